//! What was seen: each thing once, with how often and by which programs.

use super::process::normal;
use super::{Peaks, changes::Change};
use crate::temporary::is_temporary;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The most different things that are kept; more are counted as lost.
const MOST: usize = 200_000;

/// What is done with a thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Act {
    /// Opened for reading, or listed.
    Read,
    /// Opened for writing, made, changed or removed.
    Write,
    /// Executed.
    Execute,
    /// Connected to.
    Connect,
    /// Bound.
    Bind,
}

/// How often, and by whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// How often.
    pub count: u64,
    /// How often of these a file was opened, executed or gone into; else it was made, changed, replaced, removed.
    pub opened: u64,
    /// How often of these a directory was only gone into.
    pub entered: u64,
    /// By which programs.
    pub by: BTreeSet<String>,
}

impl Use {
    /// Once more.
    pub fn add(&mut self, by: &str) {
        self.count += 1;
        if !self.by.contains(by) {
            self.by.insert(by.to_owned());
        }
    }

    /// Takes another one in.
    pub fn join(&mut self, other: &Use) {
        self.count += other.count;
        self.opened += other.opened;
        self.entered += other.entered;
        self.by.extend(other.by.iter().cloned());
    }
}

/// Everything that was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Files and directories.
    pub paths: BTreeMap<(PathBuf, Act), Use>,
    /// Names that were replaced or removed, whatever they led to: no mount can be.
    pub replaced: BTreeSet<PathBuf>,
    /// What was renamed or linked from one directory to another: from, to.
    pub moved: BTreeMap<(PathBuf, PathBuf), Use>,
    /// Symbolic links that were made, and what they led to.
    links: BTreeMap<PathBuf, PathBuf>,
    /// Temporary files that were asked for before anything was written there.
    pub early: BTreeSet<PathBuf>,
    /// Unix sockets that were connected to, by path.
    pub sockets: BTreeMap<PathBuf, Use>,
    /// Addresses that were connected to, or bound.
    pub addresses: BTreeMap<(Act, IpAddr, u16), Use>,
    /// System calls, by program and family, where all calls were watched. Those that are always
    /// allowed are not among them.
    pub calls: BTreeMap<(PathBuf, String), u64>,
    /// Programs that were executed.
    pub processes: u64,
    /// The most that it had at once.
    pub peaks: Peaks,
    /// Things that were too many.
    pub lost: u64,
    /// What is yet to be put in order: who is watched waits while it is noted.
    noted: HashMap<OsString, Noted>,
}

/// What was done with one path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Noted {
    read: Use,
    write: Use,
    execute: Use,
    replaced: bool,
    early: bool,
}

impl Observed {
    /// A file was named, as is on record.
    pub fn path(&mut self, act: Act, path: &Path, by: &str) {
        self.named(act, path, by, false);
        self.settle();
    }

    /// A file was named, and perhaps opened, executed or gone into.
    pub(super) fn named(&mut self, act: Act, path: &Path, by: &str, opened: bool) {
        let Some(noted) = self.noted(path) else { return };
        let asked = opened && act != Act::Write;
        noted.early |= asked && noted.write.count == 0 && is_temporary(path);
        let uses = match act {
            Act::Write => &mut noted.write,
            Act::Execute => &mut noted.execute,
            _ => &mut noted.read,
        };
        uses.add(by);
        uses.opened += u64::from(opened);
    }

    fn noted(&mut self, path: &Path) -> Option<&mut Noted> {
        let name = path.as_os_str();
        if !self.noted.contains_key(name) {
            if self.noted.len() >= MOST {
                self.lost += 1;
                return None;
            }
            self.noted.insert(name.to_owned(), Noted::default());
        }
        self.noted.get_mut(name)
    }

    /// A name was changed: what must be there for that must be shown.
    pub(super) fn changed(&mut self, path: &Path, change: Change, by: &str) {
        if change.needed {
            self.named(Act::Read, path, by, false);
        }
        if let Some(noted) = self.noted(path).filter(|_| change.replaced) {
            noted.replaced = true;
        }
    }

    /// Puts in order what was noted.
    pub(super) fn settle(&mut self) {
        for (path, noted) in std::mem::take(&mut self.noted) {
            let path = PathBuf::from(path);
            if noted.replaced {
                self.replaced.insert(path.clone());
            }
            if noted.early {
                self.early.insert(path.clone());
            }
            let acts =
                [(Act::Read, noted.read), (Act::Write, noted.write), (Act::Execute, noted.execute)];
            for (act, uses) in acts.into_iter().filter(|(_, uses)| uses.count > 0) {
                self.paths.entry((path.clone(), act)).or_default().join(&uses);
            }
        }
    }

    /// A directory was gone into: the use of it that was named last.
    pub(super) fn enters(&mut self, path: &Path) {
        if let Some(noted) = self.noted.get_mut(path.as_os_str()) {
            noted.read.entered += 1;
        }
    }

    /// A symbolic link was made.
    pub(super) fn links(&mut self, link: &Path, target: &[u8]) {
        let target = Path::new(OsStr::from_bytes(target));
        let above = link.parent().unwrap_or(link);
        if self.links.len() < MOST {
            self.links.insert(link.to_owned(), normal(&above.join(target)));
        }
    }

    /// Names what was reached through links that the run made, by what they led to: they are gone with its layer.
    pub(super) fn follow(&mut self) {
        /// No kernel follows more (path_resolution(7)).
        const DEEPEST: usize = 40;
        self.links.retain(|link, _| link.symlink_metadata().is_err());
        if self.links.is_empty() {
            return;
        }
        let led = |path: &Path| {
            let (link, target) = path.ancestors().find_map(|at| self.links.get_key_value(at))?;
            Some(target.join(path.strip_prefix(link).ok()?).components().collect::<PathBuf>())
        };
        let mut more = Vec::new();
        for ((path, act), uses) in &self.paths {
            // The link itself is what was made, removed or replaced.
            if *act == Act::Write && self.links.contains_key(path) && uses.opened == 0 {
                continue;
            }
            let mut at = led(path);
            for _ in 1..DEEPEST {
                let Some(next) = at.as_deref().and_then(led) else { break };
                at = Some(next);
            }
            more.extend(at.map(|at| ((at, *act), uses.clone())));
        }
        for (key, uses) in more {
            self.paths.entry(key).or_default().join(&uses);
        }
    }

    /// A name was made from another one.
    pub(super) fn moves(&mut self, old: &Path, new: &Path, by: &str) {
        if old.parent() != new.parent() && self.moved.len() < MOST {
            self.moved.entry((old.to_owned(), new.to_owned())).or_default().add(by);
        }
    }

    /// A system call was made.
    pub fn call(&mut self, program: &Path, name: &str) {
        if self.calls.len() >= MOST {
            self.lost += 1;
            return;
        }
        let family = ringfence_policy::calls::family(name).to_owned();
        *self.calls.entry((program.to_owned(), family)).or_default() += 1;
    }

    /// An address was named, in the kernel's form (`struct sockaddr`).
    pub fn address(&mut self, act: Act, bytes: &[u8], by: &str) {
        const INET: u16 = 2;
        const INET6: u16 = 10;
        let Some((family, rest)) = bytes.split_first_chunk::<2>() else { return };
        let port = rest.first_chunk::<2>().map(|port| u16::from_be_bytes(*port));
        let address: Option<IpAddr> = match u16::from_ne_bytes(*family) {
            UNIX => {
                let path = Path::new(OsStr::from_bytes(local(bytes).unwrap_or_default()));
                // Abstract ones have no path; they stay inside.
                if act == Act::Connect && path.is_absolute() && self.sockets.len() < MOST {
                    self.sockets.entry(path.to_owned()).or_default().add(by);
                }
                None
            }
            INET => rest.get(2..6).and_then(|ip| <[u8; 4]>::try_from(ip).ok()).map(Into::into),
            INET6 => rest.get(6..22).and_then(|ip| <[u8; 16]>::try_from(ip).ok()).map(Into::into),
            _ => None,
        };
        if let (Some(address), Some(port)) = (address, port)
            && self.addresses.len() < MOST
        {
            self.addresses.entry((act, address.to_canonical(), port)).or_default().add(by);
        }
    }
}

const UNIX: u16 = 1;

/// The path in the address of a Unix socket; nothing where that is abstract or another one's.
pub(super) fn local(bytes: &[u8]) -> Option<&[u8]> {
    let (family, rest) = bytes.split_first_chunk::<2>()?;
    let end = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
    (u16::from_ne_bytes(*family) == UNIX && end > 0).then(|| &rest[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_in_the_kernels_form() {
        let mut observed = Observed::default();
        let mut bytes = 2u16.to_ne_bytes().to_vec();
        bytes.extend([1, 187, 192, 0, 2, 1]);
        bytes.extend([0; 8]);
        observed.address(Act::Connect, &bytes, "a");
        let mut unix = 1u16.to_ne_bytes().to_vec();
        unix.extend(b"/run/x.sock\0junk");
        observed.address(Act::Connect, &unix, "b");
        for length in 0..8 {
            observed.address(Act::Bind, &bytes[..length], "short");
        }
        let found: Vec<_> =
            observed.addresses.keys().map(|(_, ip, port)| (ip.to_string(), *port)).collect();
        assert_eq!(found, [("192.0.2.1".to_owned(), 443)]);
        assert_eq!(
            observed.sockets.keys().next().map(PathBuf::as_path),
            Some(Path::new("/run/x.sock"))
        );
    }
}
