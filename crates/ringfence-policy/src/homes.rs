//! Whose home is where, by `/etc/passwd`: `HOME` may say anything (`sudo -E`, a build service's container).

use crate::files::{HostFiles, Resolver};
use crate::path::normal;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A larger list of accounts is read up to here.
const MOST: u64 = 4 << 20;

/// The homes of accounts, but for the one that `HOME` says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Homes {
    /// The caller's account's.
    pub own: Option<PathBuf>,
    /// Those of others who log in, where the caller is root and could write there.
    pub others: Vec<PathBuf>,
}

/// Those of a user, `HOME` first.
pub fn homes(uid: u32, home: &Path) -> Vec<PathBuf> {
    let others = of(uid, home, &mut Resolver::new(&HostFiles));
    [home.to_owned()].into_iter().chain(others.own).chain(others.others).collect()
}

/// Those of others who log in, whoever asks; but for what is a directory of the system as well.
pub fn homes_of_others(uid: u32, home: &Path) -> Vec<PathBuf> {
    let mut others = every(uid, home, true, &mut Resolver::new(&HostFiles)).others;
    others.retain(|home| !crate::workspace::SYSTEM.iter().any(|system| home.starts_with(system)));
    others
}

/// The home of a user, by the list of accounts (`/etc/passwd`) and his name.
pub fn home_of(accounts: &[u8], user: &str) -> Option<PathBuf> {
    let mut accounts = accounts.split(|&byte| byte == b'\n');
    accounts.find_map(|account| {
        let fields: Vec<&[u8]> = account.split(|&byte| byte == b':').collect();
        let [name, _, _, _, _, directory, _] = fields[..] else { return None };
        let home = normal(Path::new(OsStr::from_bytes(directory)));
        (name == user.as_bytes() && home.is_absolute()).then_some(home)
    })
}

/// The home of a user by his name, as far as the list of accounts is read.
pub(crate) fn of_user(user: &str, resolver: &mut Resolver<'_>) -> Option<PathBuf> {
    let accounts = resolver.files().beginning(Path::new("/etc/passwd"), MOST).ok()?;
    home_of(&accounts, user)
}

/// Looks into the list of accounts. Those of a directory service are not in it.
pub(crate) fn of(uid: u32, home: &Path, resolver: &mut Resolver<'_>) -> Homes {
    every(uid, home, uid == 0, resolver)
}

fn every(uid: u32, home: &Path, others: bool, resolver: &mut Resolver<'_>) -> Homes {
    let mut homes = Homes::default();
    let Ok(accounts) = resolver.files().beginning(Path::new("/etc/passwd"), MOST) else {
        return homes;
    };
    let number = uid.to_string();
    for account in accounts.split(|&byte| byte == b'\n') {
        let fields: Vec<&[u8]> = account.split(|&byte| byte == b':').collect();
        let [_, _, id, _, _, directory, shell] = fields[..] else { continue };
        let directory = normal(Path::new(OsStr::from_bytes(directory)));
        // A service's may be anything: `/`, `/bin`, a directory that its administrator works in.
        let mine = id == number.as_bytes();
        let logs_in = !(shell.ends_with(b"/nologin") || shell.ends_with(b"/false"));
        if !directory.is_absolute() || !(mine || others && logs_in) {
            continue;
        }
        // Of each of many homes nothing is noted that a later launch would have to look at again.
        let real = match (mine, directory.parent(), directory.file_name()) {
            (true, ..) => resolver.real(&directory).map(|real| real.path),
            (false, Some(parent), Some(name)) => {
                resolver.real(parent).map(|real| real.path.join(name))
            }
            _ => continue,
        };
        let real = real.unwrap_or(directory);
        if real.parent().is_none() || real == home {
            continue;
        }
        match mine {
            true if homes.own.is_none() => homes.own = Some(real),
            _ => homes.others.push(real),
        }
    }
    homes
}
