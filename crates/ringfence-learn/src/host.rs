//! Looking at the host, with a record of everything that was looked at, so that whoever keeps
//! an answer knows when it does not hold any more. Nothing is executed, nothing is changed.

use crate::table::{Known, Table};
use foldhash::fast::RandomState;
use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::hash::BuildHasher;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

/// `O_NONBLOCK`: a FIFO that somebody put in a library's place must not hold us.
const NON_BLOCKING: i32 = 0o4000;
/// The longest beginning of a file that is kept.
const SHORT: usize = 64 << 10;
/// What is read at once of a file whose beginning is asked for.
const SCRIPT: usize = 16 << 10;
/// Links followed on one path, as the kernel does (`path_resolution(7)`).
const MOST_LINKS: usize = 40;

/// What an answer depends on, about one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Look {
    /// If it is a file, it is about to be read.
    File,
    /// Nothing is there.
    Absent,
    /// It is a symbolic link, and it was followed.
    Link,
    /// If it is a directory, its names are about to be read.
    Names,
    /// Names in it, a directory if it is there, are about to be looked for; told once, and
    /// before the first look, so that whoever stamps the directory need not stamp each name.
    Within,
}

/// What a path is, its last link not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing, or nothing that may be looked at.
    Absent,
    /// A regular file; whether anybody may execute it.
    File(bool),
    /// A directory.
    Directory,
    /// A symbolic link, with its text.
    Link(PathBuf),
    /// Something else.
    Other,
}

/// What a name in a directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Entry {
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// Anything else.
    File,
}

/// Where a path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Without links.
    pub real: PathBuf,
    /// The links on the way: where they are, and what they say.
    pub links: Vec<(PathBuf, PathBuf)>,
}

/// Who is told what was looked at.
type Looked<'a> = &'a mut dyn FnMut(&Path, Look);

/// The host's files. Each path is looked at once: what changes meanwhile is not seen.
///
/// What is known is kept by the bytes of paths: to compare them by their components, as paths
/// are, took a fifth of the time of all that is done here.
pub struct Host<'a> {
    looked: RefCell<Looked<'a>>,
    kinds: RefCell<Table<OsString, Kind>>,
    resolved: RefCell<Table<OsString, Option<Rc<Resolved>>>>,
    /// Directories of which it was told that names in them are looked for.
    within: RefCell<Known<OsString>>,
    /// Files of which it was told that they are read.
    opened: RefCell<Known<OsString>>,
    /// What a directory said is a link, and was not looked at yet.
    links: RefCell<Known<OsString>>,
    /// Beginnings of files; whether they are all of them.
    short: RefCell<Table<OsString, (bool, Vec<u8>)>>,
    /// What directories hold; whether that is all of it.
    listed: RefCell<Table<OsString, (bool, Rc<Entries>)>>,
    /// Directories that were read to the end: what has not one of their names is not there.
    complete: RefCell<Table<OsString, Names>>,
}

/// Names in a directory, and what they are.
pub type Entries = [(OsString, Entry)];

impl<'a> Host<'a> {
    /// The host; `looked` is told every path that answers depend on.
    pub fn new(looked: &'a mut dyn FnMut(&Path, Look)) -> Host<'a> {
        Host {
            looked: RefCell::new(looked),
            kinds: RefCell::default(),
            resolved: RefCell::default(),
            within: RefCell::default(),
            opened: RefCell::default(),
            links: RefCell::default(),
            short: RefCell::default(),
            listed: RefCell::default(),
            complete: RefCell::default(),
        }
    }

    fn tell(&self, path: &Path, look: Look) {
        (self.looked.borrow_mut())(path, look);
    }

    /// What a path is, its last link not followed.
    pub fn kind(&self, path: &Path) -> Kind {
        if let Some(known) = self.kinds.borrow().get(path.as_os_str()) {
            return known.clone();
        }
        let (directory, name) = plain(path).unzip();
        if let Some(directory) = directory.or_else(|| path.parent())
            && !self.within.borrow().contains(directory.as_os_str())
        {
            self.tell(directory, Look::Within);
            self.within.borrow_mut().insert(directory.into());
        }
        let listed = self.links.borrow().contains(path.as_os_str());
        let kind = match listed.then(|| path.read_link()) {
            Some(Ok(target)) => Kind::Link(target),
            None if directory.zip(name).is_some_and(|(at, name)| self.lacks(at, name)) => {
                Kind::Absent
            }
            // No link any more, or not known to be one.
            Some(Err(_)) | None => look_at(path),
        };
        match &kind {
            Kind::Absent => self.tell(path, Look::Absent),
            Kind::Link(_) => self.tell(path, Look::Link),
            Kind::File(_) | Kind::Directory | Kind::Other => {}
        }
        self.kinds.borrow_mut().insert(path.into(), kind.clone());
        kind
    }

    /// Whether a directory was read to the end, and a name is none of those that were there.
    fn lacks(&self, directory: &Path, name: &OsStr) -> bool {
        let complete = self.complete.borrow();
        complete.get(directory.as_os_str()).is_some_and(|names| !names.may_have(name))
    }

    /// Where an absolute path leads; unset when that does not exist.
    pub fn resolve(&self, path: &Path) -> Option<Rc<Resolved>> {
        if let Some(known) = self.resolved.borrow().get(path.as_os_str()) {
            return known.clone();
        }
        let resolved = match self.step(path) {
            Some(resolved) => resolved,
            None => self.walk(path).map(Rc::new),
        };
        self.resolved.borrow_mut().insert(path.into(), resolved.clone());
        resolved
    }

    /// Where a path leads, from where its directory leads; unset where that does not tell it:
    /// for a link, and for names that are none.
    fn step(&self, path: &Path) -> Option<Option<Rc<Resolved>>> {
        let (directory, name) = plain(path)?;
        let Some(above) = self.resolve(directory) else { return Some(None) };
        let real = below(&above.real, name);
        match self.kind(&real) {
            Kind::Absent if self.kind(&above.real) == Kind::Directory => Some(None),
            Kind::Absent | Kind::Link(_) => None,
            Kind::Directory | Kind::File(_) | Kind::Other => {
                Some(Some(Rc::new(Resolved { real, links: above.links.clone() })))
            }
        }
    }

    fn walk(&self, path: &Path) -> Option<Resolved> {
        let mut real = PathBuf::from("/");
        let mut links = Vec::new();
        let mut rest: Vec<OsString> = reversed(path);
        while let Some(name) = rest.pop() {
            if name == ".." {
                real.pop();
                continue;
            }
            real.push(&name);
            match self.kind(&real) {
                Kind::Absent => return None,
                Kind::Link(target) => {
                    if links.len() >= MOST_LINKS {
                        return None;
                    }
                    links.push((real.clone(), target.clone()));
                    real.pop();
                    if target.is_absolute() {
                        real = PathBuf::from("/");
                    }
                    rest.extend(reversed(&target));
                }
                Kind::Directory => {}
                Kind::File(_) | Kind::Other if rest.is_empty() => {}
                Kind::File(_) | Kind::Other => return None,
            }
        }
        Some(Resolved { real, links })
    }

    /// Says that an answer depends on what a file is, its mode included.
    pub fn rely_on(&self, path: &Path) {
        self.tell(path, Look::File);
    }

    /// Opens a regular file for reading.
    pub fn open(&self, path: &Path) -> Option<File> {
        // Told before the first one: what replaces the file meanwhile must not pass for what was
        // read, now or by then.
        if !self.opened.borrow().contains(path.as_os_str()) {
            self.tell(path, Look::File);
            self.opened.borrow_mut().insert(path.into());
        }
        let file = OpenOptions::new().read(true).custom_flags(NON_BLOCKING).open(path).ok()?;
        file.metadata().ok()?.is_file().then_some(file)
    }

    /// At most `most` bytes of a file's beginning; of a short file, as it was the first time.
    pub fn beginning(&self, path: &Path, most: usize) -> Option<Vec<u8>> {
        use crate::bytes::Bytes;
        if let Some((whole, known)) = self.short.borrow().get(path.as_os_str())
            && (*whole || known.len() >= most)
        {
            return Some(known[..known.len().min(most)].to_vec());
        }
        // Of a script its first line is asked for, then all of it: most are read in one go.
        let wanted = most.max(SCRIPT);
        let file = self.open(path)?;
        // As much memory as it takes, and one byte by which its end is told. What grows meanwhile is read as it comes.
        let length = file.metadata().ok()?.len();
        let mut text = vec![0; usize::try_from(length).unwrap_or(wanted).min(wanted - 1) + 1];
        let got = file.read(0, &mut text);
        match got < text.len() || got == wanted {
            true => text.truncate(got),
            false => text = file.part(0, u64::MAX, wanted),
        }
        if text.len() <= SHORT {
            self.short.borrow_mut().insert(path.into(), (text.len() < wanted, text.clone()));
        }
        text.truncate(most);
        Some(text)
    }

    /// The names in a directory, sorted, at most `most`.
    pub fn names(&self, path: &Path, most: usize) -> Vec<OsString> {
        self.entries(path, most).into_iter().map(|(name, _)| name).collect()
    }

    /// The names in a directory and what they are (a directory, a link, anything else), sorted, at most `most`.
    pub fn entries(&self, path: &Path, most: usize) -> Vec<(OsString, Entry)> {
        let mut entries = self.listing(path, most).to_vec();
        entries.sort_unstable();
        entries.truncate(most);
        entries
    }

    /// The same, in no order, and more than `most` where they are known. Each directory is read once.
    pub fn listing(&self, path: &Path, most: usize) -> Rc<Entries> {
        if let Some((whole, known)) = self.listed.borrow().get(path.as_os_str())
            && (*whole || known.len() >= most)
        {
            return Rc::clone(known);
        }
        self.tell(path, Look::Names);
        let Ok(entries) = path.read_dir() else { return Rc::new([]) };
        let mut unread = false;
        let found: Vec<(OsString, Entry)> = entries
            .take(most)
            .filter_map(|entry| {
                let read = entry.and_then(|entry| {
                    let kind = match entry.file_type()? {
                        kind if kind.is_dir() => Entry::Directory,
                        kind if kind.is_symlink() => Entry::Link,
                        _ => Entry::File,
                    };
                    Ok((entry.file_name(), kind))
                });
                unread |= read.is_err();
                read.ok()
            })
            .collect();
        let whole = found.len() < most;
        if whole && !unread {
            self.complete.borrow_mut().insert(path.into(), Names::of(&found));
        }
        let links = found.iter().filter(|(_, kind)| *kind == Entry::Link);
        self.links.borrow_mut().extend(links.map(|(name, _)| below(path, name).into_os_string()));
        let found: Rc<Entries> = found.into();
        self.listed.borrow_mut().insert(path.into(), (whole, Rc::clone(&found)));
        found
    }
}

/// Which names a directory may have: a bit for each, by a hash. Two names can have one bit, and then it is looked.
struct Names {
    bits: Vec<u64>,
    hashes: RandomState,
}

impl Names {
    fn of(entries: &Entries) -> Names {
        let words = (entries.len() / 4).next_power_of_two();
        let mut names = Names { bits: vec![0; words], hashes: RandomState::default() };
        for (name, _) in entries {
            let (word, bit) = names.place(name);
            names.bits[word] |= bit;
        }
        names
    }

    fn place(&self, name: &OsStr) -> (usize, u64) {
        let hash = self.hashes.hash_one(name.as_bytes());
        ((hash >> 6) as usize & (self.bits.len() - 1), 1 << (hash & 63))
    }

    fn may_have(&self, name: &OsStr) -> bool {
        let (word, bit) = self.place(name);
        self.bits[word] & bit != 0
    }
}

/// The directory and the name of an absolute path that is written without detours at its end. What
/// [`Path::parent`] says, which goes over components.
fn plain(path: &Path) -> Option<(&Path, &OsStr)> {
    let bytes = path.as_os_str().as_bytes();
    let at = memchr::memrchr(b'/', bytes).filter(|_| bytes[0] == b'/')?;
    let (directory, name) = (&bytes[..at], &bytes[at + 1..]);
    let detour = directory.ends_with(b"/") || directory.ends_with(b"/.");
    if detour || matches!(name, b"" | b"." | b"..") {
        return None;
    }
    let directory = if directory.is_empty() { b"/" } else { directory };
    Some((Path::new(OsStr::from_bytes(directory)), OsStr::from_bytes(name)))
}

/// A name in a directory; memory is taken once.
pub(crate) fn below(directory: &Path, name: &OsStr) -> PathBuf {
    let directory = directory.as_os_str();
    let mut path = OsString::with_capacity(directory.len() + 1 + name.len());
    path.push(directory);
    if !directory.as_bytes().ends_with(b"/") {
        path.push("/");
    }
    path.push(name);
    path.into()
}

fn look_at(path: &Path) -> Kind {
    match path.symlink_metadata() {
        Err(_) => Kind::Absent,
        Ok(data) if data.is_dir() => Kind::Directory,
        Ok(data) if data.is_symlink() => path.read_link().map_or(Kind::Absent, Kind::Link),
        Ok(data) if data.is_file() => Kind::File(data.mode() & 0o111 != 0),
        Ok(_) => Kind::Other,
    }
}

/// The names of a path, last first.
fn reversed(path: &Path) -> Vec<OsString> {
    let name = |component: Component<'_>| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    };
    path.components().rev().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_followed_and_told() {
        let place = tempfile::tempdir().expect("a directory");
        let root = place.path().canonicalize().expect("a path");
        std::fs::create_dir(root.join("real")).expect("a directory");
        std::fs::write(root.join("real/file"), "").expect("a file");
        symlink("real", root.join("link")).expect("a link");
        symlink("loop", root.join("loop")).expect("a link");
        let mut told = Vec::new();
        let mut looked = |path: &Path, look| told.push((path.to_owned(), look));
        let host = Host::new(&mut looked);
        let found = host.resolve(&root.join("link/../link/file")).expect("it is there");
        assert_eq!(found.real, root.join("real/file"));
        assert_eq!(host.resolve(&root.join("loop")), None);
        assert_eq!(host.resolve(&root.join("real/file/below")), None);
        assert_eq!(host.resolve(&root.join("absent")), None);
        assert!(told.contains(&(root.join("link"), Look::Link)));
        assert!(told.contains(&(root.join("absent"), Look::Absent)));
    }

    #[test]
    fn what_a_directory_had_not_when_it_was_read_is_not_there() {
        let place = tempfile::tempdir().expect("a directory");
        let root = place.path().canonicalize().expect("a path");
        let (all, some) = (root.join("all"), root.join("some"));
        for directory in [&all, &some] {
            std::fs::create_dir(directory).expect("a directory");
            for number in 0..40 {
                std::fs::write(directory.join(format!("file{number}")), "").expect("a file");
            }
        }
        let mut absent = Vec::new();
        let mut looked = |path: &Path, look| {
            if look == Look::Absent {
                absent.push(path.to_owned());
            }
        };
        let host = Host::new(&mut looked);
        assert_eq!(host.listing(&all, 64).len(), 40);
        assert_eq!(host.listing(&some, 8).len(), 8);
        let new = |number: usize| format!("new{number}");
        for number in 0..40 {
            std::fs::write(all.join(new(number)), "").expect("a file");
        }
        // An answer is of one moment. Some are looked for nevertheless: a bit stands for several names.
        let seen = (0..40).filter(|number| host.kind(&all.join(new(*number))) != Kind::Absent);
        let seen = seen.count();
        assert!(seen < 20, "{seen}");
        for number in 0..40 {
            let name = format!("file{number}");
            assert_eq!(host.kind(&all.join(&name)), Kind::File(false));
            assert_eq!(host.kind(&some.join(&name)), Kind::File(false), "not read to the end");
        }
        assert_eq!(host.kind(&all.join("..")), Kind::Directory);
        drop(host);
        assert_eq!(absent.len(), 40 - seen, "each is told all the same");
    }

    #[test]
    fn a_path_is_split_as_by_its_components() {
        for text in ["/", "/a", "/a/b", "/a/../b", "/a/./b/c"] {
            let path = Path::new(text);
            let split = path.parent().zip(path.file_name());
            assert_eq!(plain(path), split, "{text}");
        }
        // With detours where it is split: left to who knows components.
        for text in ["", "a", "a/b", "//a", "/a//b", "/a/b/", "/a/.", "/a/..", "/a/./b"] {
            assert_eq!(plain(Path::new(text)), None, "{text}");
        }
        assert_eq!(below(Path::new("/"), OsStr::new("a")), Path::new("/a"));
        assert_eq!(below(Path::new("/a"), OsStr::new("b")).as_os_str(), "/a/b");
    }

    #[test]
    fn a_directory_and_a_script_are_read_once() {
        let place = tempfile::tempdir().expect("a directory");
        let root = place.path().canonicalize().expect("a path");
        for name in ["b", "a", "c"] {
            std::fs::write(root.join(name), "#!/bin/sh\necho\n").expect("a file");
        }
        let mut listed = 0;
        let mut looked = |_: &Path, look| listed += usize::from(look == Look::Names);
        let host = Host::new(&mut looked);
        assert_eq!(host.names(&root, 2).len(), 2);
        assert_eq!(host.names(&root, 8), ["a", "b", "c"], "it was not all of it");
        // Nobody sees the new one: an answer is of one moment.
        std::fs::write(root.join("d"), "").expect("a file");
        std::fs::write(root.join("a"), "").expect("a file");
        assert_eq!(host.listing(&root, 8).len(), 3);
        assert_eq!(host.names(&root, 2), ["a", "b"]);
        let script = root.join("c");
        assert_eq!(host.beginning(&script, 2).as_deref(), Some(b"#!".as_slice()));
        std::fs::remove_file(&script).expect("removed");
        assert_eq!(host.beginning(&script, 4096).as_deref(), Some(b"#!/bin/sh\necho\n".as_slice()));
        drop(host);
        assert_eq!(listed, 2);
    }
}
