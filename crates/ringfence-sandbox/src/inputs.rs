//! What a plan was derived from: every file, link, listing and variable that was looked at,
//! with what was found. A compiled plan is used again only while all of it is as it was.
//!
//! Stamps are taken before the look, so that a change in between makes the stamp a wrong one,
//! never a wrong plan that passes for right.

#[cfg(test)]
mod tests;
mod view;

use crate::facts::{self, HostPaths, Kind, PathFacts};
use crate::settled::is_older;
use ringfence_policy::Resolver;
use ringfence_policy::gitread::Said;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::SystemTime;

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Absent,
    /// What cannot be looked at.
    Hidden,
    /// Something that is no symbolic link.
    Plain,
    /// A symbolic link with this text.
    Link(PathBuf),
    /// A directory.
    Directory,
    /// Neither a directory nor a link.
    File,
    /// This very file or directory: device, inode, size, modification and change time in
    /// nanoseconds.
    Same([u64; 5]),
    /// A directory with just those of some names: as in `Same`, or, where that is not so any more
    /// or cannot be known by it (zeroes), by looking through it.
    Listed([u64; 5], Rc<Names>),
    /// A directory with more names than are looked through: as in `Listed`, or by counting them.
    Crowded([u64; 5]),
    /// A directory with just these symbolic links among few names: as in `Listed`.
    Links([u64; 5], Rc<BTreeSet<OsString>>),
}

impl Found {
    /// Whether it is about what is in a directory, of which that one's stamp says nothing.
    pub fn is_within(&self) -> bool {
        self.identity().is_some()
    }

    /// What its stamp compares first.
    pub fn identity(&self) -> Option<&[u64; 5]> {
        match self {
            Found::Same(identity) | Found::Crowded(identity) => Some(identity),
            Found::Listed(identity, _) | Found::Links(identity, _) => Some(identity),
            _ => None,
        }
    }
}

/// Names that were looked for in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// Names, and ends of names after a `*`, each with a zero byte behind it: they are hundreds.
    pub wanted: String,
    /// Those that are there.
    pub there: BTreeSet<OsString>,
}

/// Everything that was looked at.
#[derive(Debug, Default)]
pub struct Inputs {
    /// The time before the first look, in nanoseconds since 1970.
    began: u64,
    /// By their bytes: to compare paths by their components takes several times as long.
    paths: RefCell<BTreeMap<OsString, Found>>,
    /// Directories of ringfence's own, in which nobody else changes anything: how young they are does not matter.
    owned: RefCell<BTreeMap<PathBuf, [u64; 5]>>,
    variables: RefCell<BTreeMap<String, Option<OsString>>>,
    /// The words of the command count.
    arguments: Cell<bool>,
    /// Something was seen that no stamp can hold.
    fleeting: RefCell<Option<&'static str>>,
    /// Directories by the names they were looked at under: where they lead, if anywhere, and
    /// whether their stamp stands for all names in them.
    directories: RefCell<HashMap<OsString, Directory>>,
}

/// A directory that was looked into.
#[derive(Clone, Debug)]
struct Directory {
    real: Option<PathBuf>,
    stamped: bool,
}

/// Identity, size and times of what is at a path, its last link not followed; and whether it is
/// one.
fn identity(path: &Path) -> Option<([u64; 5], bool)> {
    let data = path.symlink_metadata().ok()?;
    let (major, minor) = (libc_major(data.dev()), libc_minor(data.dev()));
    let time = |seconds: i64, nanoseconds: i64| {
        (seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(nanoseconds as u64)
    };
    let identity = [
        major << 32 | minor,
        data.ino(),
        data.len(),
        time(data.mtime(), data.mtime_nsec()),
        time(data.ctime(), data.ctime_nsec()),
    ];
    Some((identity, data.is_symlink()))
}

/// The halves of a device number, as statx(2) gives them (makedev(3)).
fn libc_major(device: u64) -> u64 {
    (device >> 8 & 0xfff) | (device >> 32 & 0xffff_f000)
}

fn libc_minor(device: u64) -> u64 {
    (device & 0xff) | (device >> 12 & 0xffff_ff00)
}

impl Inputs {
    /// Nothing looked at.
    pub fn new() -> Inputs {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let began = u64::try_from(now.as_nanos()).unwrap_or_default();
        Inputs { began, ..Inputs::default() }
    }

    /// Says that this plan depends on something that cannot be checked later.
    pub fn fleeting(&self, what: &'static str) {
        self.fleeting.borrow_mut().get_or_insert(what);
    }

    /// Says that this plan depends on the command's arguments, not only on its name.
    pub fn arguments(&self) {
        self.arguments.set(true);
    }

    /// Whether the command's arguments count.
    pub fn arguments_count(&self) -> bool {
        self.arguments.get()
    }

    /// Whether all that was seen can be checked later.
    pub fn lasting(&self) -> bool {
        self.fleeting.borrow().is_none()
    }

    /// The value of a variable of the environment.
    pub fn variable(&self, name: &str) -> Option<OsString> {
        let value = std::env::var_os(name);
        self.variables.borrow_mut().insert(name.to_owned(), value.clone());
        value
    }

    /// Notes the content of a file or directory that was, or is about to be, looked at.
    pub fn content(&self, path: &Path) {
        // Every link on the way decides which file it is.
        if let (Some(directory), Some(name)) = (path.parent(), path.file_name())
            && let Some(real) = self.directory(directory)
            && let Some(identity) = identity(&real.join(name)).filter(|found| !found.1)
        {
            return self.add(&real.join(name), Found::Same(identity.0));
        }
        match Resolver::once(self).real(path) {
            Ok(real) if real.exists => {
                self.same(&real.path);
            }
            Ok(_) => {}
            Err(_) => self.fleeting("a path that cannot be followed"),
        }
    }

    /// Notes a directory in which many names are about to be looked for: as long as it is the
    /// same, each of them is what it is now, or as absent (a name comes, goes and is replaced by
    /// a change of its directory), and what is found there needs no note of its own but for the
    /// content of files.
    pub fn names(&self, directory: &Path) {
        let real = self.directory(directory);
        if let Some(real) = &real {
            self.same(real);
        }
        let known = Directory { real, stamped: true };
        self.directories.borrow_mut().insert(directory.into(), known);
    }

    /// Notes a directory of ringfence's own, as it is now.
    pub fn own(&self, directory: &Path) {
        let found = identity(directory).filter(|found| !found.1);
        let mut owned = self.owned.borrow_mut();
        match found {
            Some((identity, _)) => owned.insert(directory.to_owned(), identity),
            None => owned.remove(directory),
        };
    }

    /// They are not used after all: what becomes of them is nothing to the plan.
    pub fn disown(&self) {
        self.owned.borrow_mut().clear();
    }

    /// These directories.
    pub fn owned(&self) -> Vec<(PathBuf, [u64; 5])> {
        self.owned.borrow().iter().map(|(path, identity)| (path.clone(), *identity)).collect()
    }

    /// Where a directory leads; each is followed once.
    fn directory(&self, directory: &Path) -> Option<PathBuf> {
        if let Some(known) = self.directories.borrow().get(directory.as_os_str()) {
            return known.real.clone();
        }
        let real = match Resolver::once(self).real(directory) {
            Ok(real) => real.exists.then_some(real.path),
            Err(_) => {
                self.fleeting("a path that cannot be followed");
                None
            }
        };
        let known = Directory { real: real.clone(), stamped: false };
        self.directories.borrow_mut().insert(directory.into(), known);
        real
    }

    /// Whether what a path is, or that it is absent, is held by its directory's stamp.
    fn is_held(&self, path: &Path) -> bool {
        // By its bytes: a path with a detour is held by none, and has a note of its own.
        let path = path.as_os_str().as_bytes();
        let Some(at) = path.iter().rposition(|&byte| byte == b'/') else { return false };
        if matches!(&path[at + 1..], b"" | b"." | b"..") {
            return false;
        }
        let directory = OsStr::from_bytes(&path[..at.max(1)]);
        self.directories.borrow().get(directory).is_some_and(|directory| directory.stamped)
    }

    fn same(&self, path: &Path) {
        match identity(path) {
            Some((identity, _)) => self.add(path, Found::Same(identity)),
            None => self.add(path, unseen(path)),
        }
    }

    /// Keeps the finding that says most.
    fn add(&self, path: &Path, found: Found) {
        // A directory's stamp says nothing of names within those that are in it.
        if !found.is_within() && self.is_held(path) {
            return;
        }
        let mut paths = self.paths.borrow_mut();
        let Some(known) = paths.get_mut(path.as_os_str()) else {
            paths.insert(path.into(), found);
            return;
        };
        // Other names than those that have been looked for there.
        if let (Found::Listed(at, new), Found::Listed(known, names)) = (&found, &mut *known)
            && new.wanted != names.wanted
        {
            let names = Rc::make_mut(names);
            names.wanted.push_str(&new.wanted);
            names.there.extend(new.there.iter().cloned());
            if at != known {
                // Which of the looks saw what is there now is not known.
                *known = [0; 5];
            }
            return;
        }
        let weak = |found: &Found| match found {
            Found::Plain => 0,
            Found::Directory | Found::File => 1,
            Found::Listed(..) | Found::Crowded(_) | Found::Links(..) => 2,
            _ => 3,
        };
        let known_links = matches!(known, Found::Links(..));
        match known {
            // Of other names than the links of one directory.
            Found::Listed(identity, _) | Found::Crowded(identity) | Found::Links(identity, _)
                if weak(&found) == 2 && matches!(found, Found::Links(..)) != known_links =>
            {
                *known = Found::Same(*identity);
            }
            known if weak(known) >= weak(&found) => {
                // What was absent and is there now, or the reverse: it changed meanwhile.
                let there = |found: &Found| !matches!(found, Found::Absent | Found::Hidden);
                if there(known) != there(&found) {
                    self.fleeting("a file that changes at this moment");
                }
            }
            known => *known = found,
        }
    }

    /// Paths and what was found there that has to be checked: what kind of thing a name is, or
    /// that it is none, needs no look of its own while its directory is as it was long before
    /// (`grain`, nanoseconds: file times are that coarse) the first look.
    pub fn needed(&self, grain: u64) -> Vec<(PathBuf, Found)> {
        let paths = self.paths.borrow();
        let settled = |identity: &[u64; 5]| self.is_settled(identity, grain);
        let held = |directory: &Path| match paths.get(directory.as_os_str()) {
            Some(Found::Same(identity)) => settled(identity),
            _ => false,
        };
        let needed = paths.iter().filter(|(path, found)| {
            found.is_within() || !Path::new(path).parent().is_some_and(held)
        });
        let sure = |found: &Found| match found {
            Found::Listed(identity, names) if !settled(identity) => {
                Found::Listed([0; 5], names.clone())
            }
            Found::Crowded(identity) if !settled(identity) => Found::Crowded([0; 5]),
            Found::Links(identity, names) if !settled(identity) => {
                Found::Links([0; 5], names.clone())
            }
            found => found.clone(),
        };
        needed.map(|(path, found)| (path.into(), sure(found))).collect()
    }

    fn is_settled(&self, identity: &[u64; 5], grain: u64) -> bool {
        is_older(identity, grain, self.began)
    }

    /// A directory's identity, where it is as it was long before (`grain`, nanoseconds) the first look.
    pub fn settled(&self, directory: &Path, grain: u64) -> Option<[u64; 5]> {
        let (identity, is_link) = identity(directory)?;
        let kept = !is_link && self.is_settled(&identity, grain);
        (kept && ringfence_sys::file::tells_changes(directory)).then_some(identity)
    }

    /// Whether all that was found anywhere is like this.
    pub fn all(&self, is: impl Fn(&Path, &Found) -> bool) -> bool {
        self.paths.borrow().iter().all(|(path, found)| is(Path::new(path), found))
    }

    /// Variables and their values.
    pub fn variables(&self) -> Vec<(String, Option<OsString>)> {
        let variables = self.variables.borrow();
        variables.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

impl Inputs {
    /// What is at a path, and why that is not known.
    fn seen(&self, path: &Path) -> io::Result<Kind> {
        let seen = facts::seen(path);
        let found = match &seen {
            Ok(Kind::File) => Found::File,
            Ok(Kind::Directory) => Found::Directory,
            Ok(Kind::Symlink(target)) => Found::Link(target.clone()),
            Err(error) if !facts::nothing(error) => Found::Hidden,
            Err(_) | Ok(Kind::Absent) => Found::Absent,
        };
        self.add(path, found);
        seen
    }
}

impl PathFacts for Inputs {
    fn kind(&self, path: &Path) -> Kind {
        self.seen(path).unwrap_or(Kind::Absent)
    }

    fn list(&self, path: &Path) -> Vec<OsString> {
        self.content(path);
        HostPaths.list(path)
    }

    fn links(&self, path: &Path, most: usize) -> Vec<OsString> {
        let before = self.directory(path).and_then(|real| Some((identity(&real)?, real)));
        let few = facts::links_among(path, ringfence_start::listing::MOST);
        let (Some(links), Some(((identity, false), real))) = (few, before) else {
            self.content(path);
            return HostPaths.links(path, most);
        };
        let links = Rc::new(links);
        self.add(&real, Found::Links(identity, Rc::clone(&links)));
        links.iter().take(most).cloned().collect()
    }

    fn among(&self, path: &Path, wanted: &[&str], most: usize) -> Option<BTreeSet<OsString>> {
        let real = self.directory(path)?;
        let before = identity(&real);
        let there = HostPaths.among(path, wanted, most);
        let pattern = |byte| matches!(byte, b'*' | b'?');
        let only_ends = |name: &&str| !name.trim_start_matches('*').bytes().any(pattern);
        match (&there, before) {
            (Some(there), Some((identity, false))) if wanted.iter().all(only_ends) => {
                let wanted = wanted.iter().flat_map(|name| [*name, "\0"]).collect();
                let names = Names { wanted, there: there.clone() };
                self.add(&real, Found::Listed(identity, names.into()));
            }
            // What is then asked for name by name has stamps of its own.
            (None, Some((identity, false))) => self.add(&real, Found::Crowded(identity)),
            _ => self.content(path),
        }
        there
    }

    fn text(&self, path: &Path) -> Option<String> {
        self.content(path);
        PathFacts::text(&HostPaths, path)
    }

    fn git(&self, path: &Path) -> Said {
        let _ = self.file(path);
        HostPaths.git(path)
    }

    fn program(&self, path: &Path) -> bool {
        let _ = self.file(path);
        HostPaths.program(path)
    }

    fn sockets(&self, path: &Path, most: usize) -> Vec<PathBuf> {
        self.content(path);
        HostPaths.sockets(path, most)
    }

    fn closed(&self, path: &Path) -> Option<PathBuf> {
        HostPaths.closed(path)
    }

    fn unlisted(&self, path: &Path) -> bool {
        HostPaths.unlisted(path)
    }

    fn foreign(&self, path: &Path) -> Option<u32> {
        let owner = HostPaths.foreign(path)?;
        // So that it is no longer said when it is root's.
        self.content(path);
        Some(owner)
    }
}

/// What is to be said of a path at which nothing was seen.
fn unseen(path: &Path) -> Found {
    let hidden = path.symlink_metadata().is_err_and(|error| !facts::nothing(&error));
    if hidden { Found::Hidden } else { Found::Absent }
}

/// A name or value as bytes for an image: none where it holds a zero byte.
pub(crate) fn plain(text: &OsStr) -> Option<&[u8]> {
    Some(text.as_bytes()).filter(|bytes| !bytes.contains(&0))
}
