//! What is known of an overlay beside its layers: written before the run, read by whoever
//! commits.

use super::top::Top;
use crate::error::{Result, SessionError};
use rustix::fs::{MemfdFlags, Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Version of the record's form.
const SCHEMA: u32 = 1;

/// What becomes of the changes at the end of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// The user is asked.
    Ask,
    /// They go to the real trees.
    Commit,
    /// They are dropped.
    Discard,
    /// They wait.
    Keep,
}

/// A tree whose writes are kept apart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tree {
    /// The real one.
    #[serde(with = "bytes")]
    pub path: PathBuf,
    /// A directory; else one file in one.
    pub directory: bool,
    /// Which it was at the start: device and inode of the directory (of a file's parent).
    identity: (u64, u64),
    /// What the layer's own directory was made as. None: it was not made as the real one is.
    #[serde(default)]
    pub(super) top: Option<Top>,
}

impl Tree {
    /// Notes a tree as it is now.
    ///
    /// # Errors
    /// The file system's.
    pub fn of(path: &Path, directory: bool) -> Result<Tree> {
        let mut tree = Tree { path: path.to_owned(), directory, identity: (0, 0), top: None };
        tree.identity = identity(tree.root())?;
        Ok(tree)
    }

    /// The directory that the layer lies on.
    pub fn root(&self) -> &Path {
        if self.directory { &self.path } else { self.path.parent().unwrap_or(&self.path) }
    }

    /// For a single file, its name: nothing else of the layer counts.
    pub(super) fn only(&self) -> Option<&std::ffi::OsStr> {
        if self.directory { None } else { self.path.file_name() }
    }

    /// Opens the real directory: the one that it was at the start.
    pub(super) fn open(&self) -> Result<std::os::fd::OwnedFd> {
        let root = self.root();
        if identity(root)? != self.identity {
            return Err(SessionError::usage(format!(
                "{} is another directory than when the run began; move the former one back, or \
                 discard the changes",
                root.display()
            )));
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let resolve = rustix::fs::ResolveFlags::NO_SYMLINKS;
        let opened = rustix::fs::openat2(rustix::fs::CWD, root, flags, Mode::empty(), resolve);
        opened.map_err(|error| SessionError::call("open", root, error))
    }
}

fn identity(path: &Path) -> Result<(u64, u64)> {
    let found = path.symlink_metadata().map_err(|e| SessionError::call("lstat", path, e))?;
    Ok((found.dev(), found.ino()))
}

/// A path that no commit changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guard {
    /// It.
    #[serde(with = "bytes")]
    pub path: PathBuf,
    /// How a new one is judged, by the policy's word (`plain`, `git-config`, …).
    pub guarded: String,
    /// Something was there at the start.
    pub present: bool,
    /// The rule, for people.
    pub rule: String,
}

/// Names that no commit makes in a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// The tree.
    #[serde(with = "bytes")]
    pub tree: PathBuf,
    /// At its top: name and how it is judged.
    pub top: Vec<(String, String)>,
    /// In any directory.
    pub nested: Vec<(String, String)>,
}

/// The record of an overlay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    schema: u32,
    /// The session.
    pub session: String,
    /// What was asked for the end.
    pub end: End,
    /// What changed on the host from here on changed during the run, or after: nanoseconds of
    /// the clock that stamps files.
    pub(super) since: i64,
    /// The trees; the number of each is the name of its layer.
    pub trees: Vec<Tree>,
    /// Protected paths.
    pub guards: Vec<Guard>,
    /// Protected names.
    pub names: Vec<Names>,
}

impl Record {
    /// A record that begins now.
    pub fn new(session: &str, end: End, trees: Vec<Tree>) -> Record {
        Record {
            schema: SCHEMA,
            session: session.to_owned(),
            end,
            since: mark(),
            trees,
            guards: Vec::new(),
            names: Vec::new(),
        }
    }

    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_vec(self).map_err(|error| corrupt(path, &error))?;
        // Whole or not there: by it others see that something waits to be committed.
        let beside = path.with_extension("new");
        let mut options = std::fs::File::options();
        let made = options.write(true).create_new(true).mode(0o600).open(&beside);
        made.and_then(|mut file| file.write_all(&text))
            .and_then(|()| std::fs::rename(&beside, path))
            .map_err(|error| SessionError::call("write", path, error))
    }

    pub(super) fn read(path: &Path) -> Result<Record> {
        let text = std::fs::read(path).map_err(|error| SessionError::call("read", path, error))?;
        let value: serde_json::Value =
            serde_json::from_slice(&text).map_err(|error| corrupt(path, &error))?;
        let found = value["schema"].as_i64().unwrap_or_default();
        if found > i64::from(SCHEMA) {
            let known = i64::from(SCHEMA);
            return Err(SessionError::Newer { path: path.to_owned(), found, known });
        }
        serde_json::from_value(value).map_err(|error| corrupt(path, &error))
    }
}

fn corrupt(path: &Path, error: &serde_json::Error) -> SessionError {
    SessionError::Corrupt { path: path.to_owned(), what: error.to_string() }
}

/// Now, by the clock that stamps files. It stands still for milliseconds, but since Linux 6.13 a
/// change of a file whose time was looked at takes the precise time, and no later change of
/// any file is dated before it.
fn mark() -> i64 {
    let coarse = crate::snapshot::beneath::now();
    let precise = || {
        let file = rustix::fs::memfd_create(c"clock", MemfdFlags::CLOEXEC).ok()?;
        let mut changed = 0;
        for _ in 0..2 {
            rustix::io::write(&file, b".").ok()?;
            changed = crate::snapshot::beneath::stat(&file, b"").ok()?.stamp.changed;
        }
        Some(changed)
    };
    precise().map_or(coarse, |precise| precise.max(coarse))
}

/// Paths of any bytes, as text: what is not printable ASCII, and `%`, as `%XX`.
pub(super) mod bytes {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    /// Writes one.
    pub fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = String::new();
        for &byte in path.as_os_str().as_bytes() {
            if matches!(byte, b' '..=b'~') && byte != b'%' {
                text.push(char::from(byte));
            } else {
                text.push_str(&format!("%{byte:02X}"));
            }
        }
        serializer.serialize_str(&text)
    }

    /// Reads one.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        let text = String::deserialize(deserializer)?;
        let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
        while let Some((&byte, after)) = rest.split_first() {
            rest = after;
            if byte != b'%' {
                bytes.push(byte);
                continue;
            }
            let pair = rest.get(..2).and_then(|pair| std::str::from_utf8(pair).ok());
            let value = pair.and_then(|pair| u8::from_str_radix(pair, 16).ok());
            bytes.push(value.ok_or_else(|| serde::de::Error::custom("a path ends within %XX"))?);
            rest = &rest[2..];
        }
        Ok(PathBuf::from(OsString::from_vec(bytes)))
    }
}
