//! Where ringfence keeps things of its user's, and whether somebody else decides what lies there.

use crate::shown;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

/// One of the two directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// `$XDG_STATE_HOME/ringfence`, or `~/.local/state/ringfence`.
    State,
    /// `$XDG_CACHE_HOME/ringfence`, or `~/.cache/ringfence`.
    Cache,
}

impl Kept {
    fn variable(self) -> &'static str {
        match self {
            Kept::State => "XDG_STATE_HOME",
            Kept::Cache => "XDG_CACHE_HOME",
        }
    }

    /// Where it is, whoever it belongs to.
    pub fn path(self, home: &Path) -> PathBuf {
        match std::env::var_os(self.variable()).map(PathBuf::from) {
            Some(named) if named.is_absolute() => named.join("ringfence"),
            _ if self == Kept::State => home.join(".local/state/ringfence"),
            _ => home.join(".cache/ringfence"),
        }
    }

    /// The same, to be used by this user.
    ///
    /// # Errors
    /// A sentence: it is another user's (root with the `HOME` of one, as `sudo -E` leaves it), or others can write where
    /// it is. A link that they put there would have this user write, and remove, what it leads to.
    pub fn own(self, home: &Path, user: u32) -> Result<PathBuf, String> {
        let path = self.path(home);
        let whose = |at: &Path| {
            let data = at.symlink_metadata().ok()?;
            let target = data.is_symlink().then(|| at.read_link().ok());
            Some(Looked { owner: data.uid(), mode: data.mode(), target })
        };
        match others(&path, home, user, &whose) {
            None => Ok(path),
            Some((at, Others::Own)) => Err(format!(
                "{} belongs to another user, and nothing of yours is kept there; give HOME and {} your own values \
                 (sudo -H)",
                shown::path(&at),
                self.variable()
            )),
            Some((at, Others::Write)) => Err(format!(
                "others can write to {}, and nothing of yours is kept there; chmod o-w it, or give {} another value",
                shown::path(&at),
                self.variable()
            )),
        }
    }
}

/// What others do with a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Others {
    Own,
    Write,
}

/// What is at a path.
#[derive(Clone)]
struct Looked {
    owner: u32,
    mode: u32,
    /// Of a link where it leads, if that can be read.
    target: Option<Option<PathBuf>>,
}

/// As many links are followed as the kernel does.
const LINKS: usize = 40;

/// The first directory or link on the way to a path by which others decide what it means. Who has what the home lies in,
/// or can write to the home itself, decides about all that its user does: nothing is said of that.
fn others(
    path: &Path,
    home: &Path,
    user: u32,
    whose: &dyn Fn(&Path) -> Option<Looked>,
) -> Option<(PathBuf, Others)> {
    const WRITTEN: u32 = 0o002;
    const STICKY: u32 = 0o1000;
    let parts = |path: &Path| -> Vec<OsString> {
        let part = |part: Component<'_>| match part {
            Component::Normal(_) | Component::ParentDir => Some(part.as_os_str().to_owned()),
            _ => None,
        };
        path.components().rev().filter_map(part).collect()
    };
    let (mut at, mut left, mut links) = (PathBuf::from("/"), parts(path), 0);
    loop {
        // What is not there yet this user makes, and what cannot be looked at cannot be used.
        let Looked { owner, mode, target } = whose(&at)?;
        let above = home.starts_with(&at) && home != at;
        if !above && owner != user && owner != 0 && !is_nobodys(owner) {
            return Some((at, Others::Own));
        }
        if let Some(target) = target {
            links += 1;
            let target = target.filter(|_| links <= LINKS)?;
            left.extend(parts(&target));
            at.pop();
            if target.is_absolute() {
                at = PathBuf::from("/");
            }
        } else if mode & WRITTEN != 0 && mode & STICKY == 0 && !home.starts_with(&at) {
            return Some((at, Others::Write));
        }
        match left.pop()? {
            up if up == ".." => drop(at.pop()),
            name => at.push(name),
        }
    }
}

/// Whether an owner is one who has no number here: in a container's user namespace all of the host's users are this one.
fn is_nobodys(owner: u32) -> bool {
    /// `/proc/sys/kernel/overflowuid`, which nobody changes.
    const OVERFLOW: u32 = 65534;
    let map = || std::fs::read_to_string("/proc/self/uid_map").ok();
    owner == OVERFLOW && map().is_some_and(|map| !has(&map, owner))
}

/// Whether a map (user_namespaces(7)) has a user.
fn has(map: &str, user: u32) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(|number| number.parse::<u64>().ok());
        let (first, _, count) = (numbers.next(), numbers.next(), numbers.next());
        let (Some(Some(first)), Some(Some(count))) = (first, count) else { return true };
        (first..first.saturating_add(count)).contains(&user.into())
    })
}

#[cfg(test)]
mod tests;
