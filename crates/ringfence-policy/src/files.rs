//! The host's files, as far as resolving a policy looks at them.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasherDefault, Hasher};
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

/// What resolving a policy may ask about files. Tests answer from a map.
pub trait FileView {
    /// The target of a symbolic link; `None` when the path is something else.
    ///
    /// # Errors
    /// `NotFound` (or `NotADirectory`) when there is nothing there.
    fn link(&self, path: &Path) -> io::Result<Option<PathBuf>>;

    /// The names in a directory, in order, at most `most` of them.
    ///
    /// # Errors
    /// Those of reading a directory.
    fn names(&self, directory: &Path, most: usize) -> io::Result<Vec<OsString>>;

    /// The text of a regular file of at most `most` bytes.
    ///
    /// # Errors
    /// Those of reading a file; `InvalidData` when it is too large, no regular file or no UTF-8.
    fn text(&self, path: &Path, most: u64) -> io::Result<String>;

    /// The first `most` bytes of a regular file, whatever they are.
    ///
    /// # Errors
    /// Those of reading a file.
    fn beginning(&self, path: &Path, most: u64) -> io::Result<Vec<u8>> {
        let mut bytes = self.text(path, most)?.into_bytes();
        bytes.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        Ok(bytes)
    }

    /// Whether a path, no link followed at its end, is a Unix socket.
    fn socket(&self, path: &Path) -> bool;

    /// Whose a file or directory is, and its mode, its links followed; none where that is not known.
    fn owner_and_mode(&self, _: &Path) -> Option<(u32, u32)> {
        None
    }

    /// Whether a file and every directory above it, of a path without links, is root's, and nobody else may write it.
    fn fixed(&self, path: &Path) -> bool {
        // What a list grants beside (acl(5)) is in the bits of the group.
        let closed = |(owner, mode)| owner == 0 && mode & 0o022 == 0;
        path.ancestors().all(|path| self.owner_and_mode(path).is_some_and(closed))
    }

    /// The names in a directory of what holds something and is closed to those who neither own it nor are in
    /// its group.
    fn closed_in(&self, _: &Path) -> Vec<OsString> {
        Vec::new()
    }
}

/// The names in the real environment; one that is no text names nothing that a policy could.
pub fn variable_names() -> Vec<String> {
    std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect()
}

/// The real files.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostFiles;

impl FileView for HostFiles {
    fn link(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        // One call answers both questions: is it there, and is it a link.
        match path.read_link() {
            Ok(target) => Ok(Some(target)),
            Err(error) if error.kind() == ErrorKind::InvalidInput => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn names(&self, directory: &Path, most: usize) -> io::Result<Vec<OsString>> {
        let entries = directory.read_dir()?.take(most);
        let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
        names.sort_unstable();
        Ok(names)
    }

    fn text(&self, path: &Path, most: u64) -> io::Result<String> {
        let mut text = String::new();
        regular(path)?.take(most + 1).read_to_string(&mut text)?;
        if text.len() as u64 > most {
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                format!("it has over {most} bytes"),
            ));
        }
        Ok(text)
    }

    fn beginning(&self, path: &Path, most: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        regular(path)?.take(most).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn socket(&self, path: &Path) -> bool {
        path.symlink_metadata().is_ok_and(|data| data.file_type().is_socket())
    }

    fn owner_and_mode(&self, path: &Path) -> Option<(u32, u32)> {
        path.metadata().ok().map(|data| (data.uid(), data.mode()))
    }

    fn closed_in(&self, directory: &Path) -> Vec<OsString> {
        let closed = |entry: &std::fs::DirEntry| {
            entry.metadata().is_ok_and(|data| match data.file_type() {
                kind if kind.is_dir() => data.mode() & 0o5 == 0,
                kind => kind.is_file() && data.mode() & 0o4 == 0 && data.len() > 0,
            })
        };
        let entries = directory.read_dir().into_iter().flatten().flatten();
        let mut names: Vec<_> = entries.filter(closed).map(|entry| entry.file_name()).collect();
        names.sort_unstable();
        names
    }
}

/// Endings of files that a program is told to run.
const SCRIPTS: &str = "\
    sh bash zsh ksh fish nu csh py pyw pyz pl rb js mjs cjs ts mts cts tsx r jl lua php tcl exp jar class ps1 psm1 \
    groovy kts sc clj bb exs escript rkt scm raku awk jq hs ml csx fsx dll exe bat cmd com vbs applescript scpt phar";

/// Whether a name is a script's by its ending.
pub(crate) fn is_script(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| SCRIPTS.split(' ').any(|one| one.eq_ignore_ascii_case(ending)))
}

/// Whether what is at a path looks like a program, its links followed: a file that may be executed, that begins as a script,
/// or has the name of one.
pub fn is_program(path: &Path) -> bool {
    let Ok(data) = path.metadata() else { return false };
    let begins = || HostFiles.beginning(path, 2).is_ok_and(|beginning| beginning == b"#!");
    data.is_file() && (data.mode() & 0o111 != 0 || is_script(path) || begins())
}

/// Whether a failed look means that nothing is at the path; after any other one it is not known what is.
pub(crate) fn nothing(error: &io::Error) -> bool {
    let known =
        [libc::ENOENT, libc::ENOTDIR, libc::ELOOP, libc::ENAMETOOLONG, libc::EISDIR, libc::ENXIO];
    match error.raw_os_error() {
        Some(number) => known.contains(&number),
        // A name that no file has, or a test's.
        None => matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidInput),
    }
}

/// Where a path really leads, if something is there, by one look of the kernel's: to ask for each of its components by
/// itself takes the square of their number, and a program may have made very many.
pub(crate) fn real(path: &Path) -> Option<PathBuf> {
    let at = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path).ok()?;
    let real = std::fs::read_link(format!("/proc/self/fd/{}", at.as_raw_fd())).ok();
    // What was removed meanwhile is called so, and what is called so may be there.
    let sure = real.filter(|real| !real.as_os_str().as_bytes().ends_with(b" (deleted)"));
    sure.or_else(|| path.canonicalize().ok())
}

/// A regular file, open for reading.
fn regular(path: &Path) -> io::Result<File> {
    // A FIFO in a place that a sandboxed program can write must not hold up the launch.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(ErrorKind::InvalidData, "it is no regular file")),
    }
}

/// Where a path really leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Real {
    /// The path with every link followed; of a missing path, the part that exists is, and the
    /// rest is appended.
    pub path: PathBuf,
    /// The links on the way: where each stands (its parents really), and its target as written.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// Whether there is something.
    pub exists: bool,
}

/// As many as the kernel follows.
const MOST_LINKS: usize = 40;

#[derive(Clone)]
enum Seen {
    Plain,
    Link(PathBuf),
    Missing,
}

/// Follows links, asking the host once for each component whatever the number of rules.
pub struct Resolver<'a> {
    files: &'a dyn FileView,
    seen: HashMap<Vec<u8>, Seen, BuildHasherDefault<Fnv>>,
    /// One path alone is followed.
    once: bool,
}

/// A quick hash for short keys. The keys are paths of rules, not of what a program inside
/// chooses, so that nobody can pick them to collide.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

impl<'a> Resolver<'a> {
    /// A resolver that knows nothing yet.
    pub fn new(files: &'a dyn FileView) -> Resolver<'a> {
        Resolver {
            files,
            seen: HashMap::with_capacity_and_hasher(64, BuildHasherDefault::default()),
            once: false,
        }
    }

    /// One for a single path, of which no component is met twice but by links: what it sees is not kept.
    pub fn once(files: &'a dyn FileView) -> Resolver<'a> {
        Resolver { files, seen: HashMap::default(), once: true }
    }

    /// The files it looks at.
    pub fn files(&self) -> &'a dyn FileView {
        self.files
    }

    /// Where an absolute path leads.
    ///
    /// # Errors
    /// Any but "there is nothing", which is [`Real::exists`]; `FilesystemLoop` for too many links.
    pub fn real(&mut self, path: &Path) -> io::Result<Real> {
        let mut real = Real { path: PathBuf::from("/"), links: Vec::new(), exists: true };
        // Nearly always there is no link: then the path is walked where it stands.
        let mut rest = path.to_path_buf();
        'follow: loop {
            let mut components = rest.components();
            while let Some(component) = components.next() {
                match component {
                    Component::ParentDir => {
                        real.path.pop();
                        continue;
                    }
                    Component::Normal(name) => real.path.push(name),
                    _ => continue,
                }
                if !real.exists {
                    continue;
                }
                match self.look(&real.path)? {
                    Seen::Plain => {}
                    Seen::Missing => real.exists = false,
                    Seen::Link(target) => {
                        if real.links.len() == MOST_LINKS {
                            return Err(io::Error::from_raw_os_error(libc::ELOOP));
                        }
                        let place = real.path.clone();
                        real.path.pop();
                        if target.is_absolute() {
                            real.path = PathBuf::from("/");
                        }
                        rest = target.join(components.as_path());
                        real.links.push((place, target));
                        continue 'follow;
                    }
                }
            }
            return Ok(real);
        }
    }

    /// Whether there is something at a path, links followed.
    pub fn exists(&mut self, path: &Path) -> bool {
        self.real(path).is_ok_and(|real| real.exists)
    }

    fn look(&mut self, path: &Path) -> io::Result<Seen> {
        if let Some(seen) = self.seen.get(path.as_os_str().as_bytes()) {
            return Ok(seen.clone());
        }
        let seen = match self.files.link(path) {
            Ok(None) => Seen::Plain,
            Ok(Some(target)) => Seen::Link(target),
            Err(error) => match error.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory => Seen::Missing,
                _ => return Err(error),
            },
        };
        if !self.once {
            self.seen.insert(path.as_os_str().as_bytes().to_vec(), seen.clone());
        }
        Ok(seen)
    }
}

/// Whether a link stands in a writable tree: its root may be a link as well, which stands outside of what the
/// tree makes writable.
pub(crate) fn stands_in(link: &Path, tree: &Path) -> bool {
    link.starts_with(tree) && link != tree
}

/// The first of a rule's links that stands in a writable tree, when it leads out of that tree.
/// A program in an earlier sandbox could have made it.
pub(crate) fn planted<'a>(
    links: &'a [(PathBuf, PathBuf)],
    target: &Path,
    trees: &'a [PathBuf],
) -> Option<(&'a Path, &'a Path)> {
    links.iter().find_map(|(link, _)| {
        let planted = |tree: &&PathBuf| stands_in(link, tree) && !target.starts_with(tree);
        let tree = trees.iter().find(planted)?;
        Some((link.as_path(), tree.as_path()))
    })
}

/// Files made up by a test: a directory, a file with text, a socket, or a link.
#[derive(Clone, Debug, Default)]
pub struct FakeFiles(pub std::collections::BTreeMap<PathBuf, Fake>);

/// One made-up file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fake {
    /// A directory.
    Directory,
    /// A file.
    File(String),
    /// A Unix socket.
    Socket,
    /// A symbolic link.
    Link(PathBuf),
}

impl FakeFiles {
    /// Adds a file, and the directories above it.
    #[must_use]
    pub fn with(mut self, path: &str, fake: Fake) -> FakeFiles {
        for above in Path::new(path).ancestors().skip(1) {
            self.0.entry(above.to_owned()).or_insert(Fake::Directory);
        }
        self.0.insert(PathBuf::from(path), fake);
        self
    }

    /// Adds a directory.
    #[must_use]
    pub fn directory(self, path: &str) -> FakeFiles {
        self.with(path, Fake::Directory)
    }

    /// Adds a file.
    #[must_use]
    pub fn file(self, path: &str, text: &str) -> FakeFiles {
        self.with(path, Fake::File(text.to_owned()))
    }

    /// Adds a link.
    #[must_use]
    pub fn symlink(self, path: &str, target: &str) -> FakeFiles {
        self.with(path, Fake::Link(PathBuf::from(target)))
    }

    fn real(&self, path: &Path) -> io::Result<PathBuf> {
        let real = Resolver::new(self).real(path)?;
        if real.exists { Ok(real.path) } else { Err(ErrorKind::NotFound.into()) }
    }
}

impl FileView for FakeFiles {
    fn link(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        match self.0.get(path) {
            Some(Fake::Link(target)) => Ok(Some(target.clone())),
            Some(_) => Ok(None),
            None => Err(ErrorKind::NotFound.into()),
        }
    }

    fn names(&self, directory: &Path, most: usize) -> io::Result<Vec<OsString>> {
        let directory = self.real(directory)?;
        let inside = self.0.keys().filter(|path| path.parent() == Some(&directory));
        Ok(inside.filter_map(|path| path.file_name().map(ToOwned::to_owned)).take(most).collect())
    }

    fn text(&self, path: &Path, _most: u64) -> io::Result<String> {
        match self.0.get(&self.real(path)?) {
            Some(Fake::File(text)) => Ok(text.clone()),
            _ => Err(ErrorKind::InvalidData.into()),
        }
    }

    fn socket(&self, path: &Path) -> bool {
        self.0.get(path) == Some(&Fake::Socket)
    }
}
