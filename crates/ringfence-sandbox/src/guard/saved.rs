//! What is at a path, kept in memory: enough to see whether it changed, and to put it back.

use super::Directory;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Protected files are settings and hooks, most of them; of what is larger than this in all only stamps are kept.
const LARGEST: u64 = 16 << 20;
const MOST_ENTRIES: usize = 4096;
const DEEPEST: usize = 16;
/// `O_NOFOLLOW | O_NONBLOCK`: neither a link nor a FIFO put there may lead or stop us.
pub(super) const CAREFULLY: i32 = ringfence_start::flags::NO_FOLLOW as i32 | 0o4_000;

/// A file, a link, a directory with what is in it, or nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Saved {
    Nothing,
    File {
        #[serde(with = "text")]
        bytes: Vec<u8>,
        mode: u32,
    },
    Link(#[serde(with = "self::path")] PathBuf),
    Directory(#[serde(with = "pairs")] BTreeMap<OsString, Saved>),
    /// A file too large to be kept, a program: that it changed is seen, and what it was cannot be put back. The change
    /// time is the kernel's alone to set (in memory a write through a mapping sets none).
    Stamped {
        file: (u64, u64),
        size: u64,
        changed: (i64, i64),
    },
    /// A socket, a FIFO, a device, or something too large: equal to nothing that was saved.
    Unknown,
}

/// Bytes as text, which most files are: a list of numbers takes four times as much.
mod text {
    use serde::de::{SeqAccess, Visitor};
    use serde::{Deserializer, Serializer};
    use std::fmt;

    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(bytes) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => serializer.collect_seq(bytes),
        }
    }

    struct Bytes;

    impl<'de> Visitor<'de> for Bytes {
        type Value = Vec<u8>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("text or a list of bytes")
        }

        fn visit_str<E>(self, text: &str) -> Result<Vec<u8>, E> {
            Ok(text.into())
        }

        fn visit_string<E>(self, text: String) -> Result<Vec<u8>, E> {
            Ok(text.into_bytes())
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<u8>, A::Error> {
            std::iter::from_fn(|| list.next_element().transpose()).collect()
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        deserializer.deserialize_any(Bytes)
    }
}

/// A path as its bytes: it may be no text.
pub(super) mod path {
    use serde::{Deserializer, Serializer};
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::path::{Path, PathBuf};

    pub fn serialize<S: Serializer>(
        path: &impl AsRef<Path>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        super::text::serialize(path.as_ref().as_os_str().as_bytes(), serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>, P: From<PathBuf>>(
        deserializer: D,
    ) -> Result<P, D::Error> {
        let bytes = super::text::deserialize(deserializer)?;
        Ok(PathBuf::from(OsString::from_vec(bytes)).into())
    }
}

/// A map as a list: JSON takes no names that may not be text for keys.
mod pairs {
    use super::Saved;
    use serde::{Deserialize, Deserializer, Serializer};
    use std::collections::BTreeMap;
    use std::ffi::OsString;

    pub fn serialize<S: Serializer>(
        entries: &BTreeMap<OsString, Saved>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(entries)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<OsString, Saved>, D::Error> {
        Vec::<(OsString, Saved)>::deserialize(deserializer)
            .map(Vec::into_iter)
            .map(Iterator::collect)
    }
}

/// A directory, and a path to what is in it that no rename elsewhere can redirect: another sandbox in
/// the same tree may put a link in its place at any moment, even just after it was made.
fn enter(path: &Path) -> io::Result<(fs::File, PathBuf)> {
    const DIRECTORY: i32 = CAREFULLY | ringfence_start::flags::DIRECTORY as i32;
    let directory = fs::OpenOptions::new().read(true).custom_flags(DIRECTORY).open(path)?;
    let through = ringfence_sys::fd::through(&directory);
    Ok((directory, through))
}

impl Saved {
    /// Whether this is, in a directory of hooks, a sample, which git never runs. A directory of such a name could be a
    /// repository.
    pub fn is_sample(&self, name: &OsStr) -> bool {
        let plain = matches!(self, Saved::File { .. } | Saved::Stamped { .. });
        plain && name.as_encoded_bytes().ends_with(b".sample")
    }

    /// Reads what is at a path, its last link not followed. The directory that holds it is the
    /// caller's to be sure of.
    ///
    /// # Errors
    /// What cannot be read, or has too many names.
    pub fn of(path: &Path) -> io::Result<Saved> {
        Reader { bytes: LARGEST, entries: MOST_ENTRIES }.read(path, 0)
    }

    /// The same, which takes what is read from what may be: of what is too large then only a stamp is kept.
    ///
    /// # Errors
    /// As [`Saved::of`].
    pub fn within(path: &Path, left: &mut u64) -> io::Result<Saved> {
        let most = LARGEST.min(*left);
        let mut reader = Reader { bytes: most, entries: MOST_ENTRIES };
        let read = reader.read(path, 0);
        *left -= most - reader.bytes;
        read
    }

    /// Whether it holds something of which only a stamp was kept.
    pub fn is_partly_stamped(&self) -> bool {
        match self {
            Saved::Stamped { .. } => true,
            Saved::Directory(entries) => entries.values().any(Saved::is_partly_stamped),
            _ => false,
        }
    }

    /// Whether a path is this now, whatever else was read or stamped beside it.
    pub fn is_at(&self, path: &Path) -> bool {
        match self {
            Saved::Stamped { .. } => {
                path.symlink_metadata().is_ok_and(|data| Saved::stamp(&data) == *self)
            }
            Saved::Directory(_) => false,
            _ => Saved::of(path).is_ok_and(|now| now == *self),
        }
    }

    fn stamp(data: &fs::Metadata) -> Saved {
        Saved::Stamped {
            file: (data.dev(), data.ino()),
            size: data.size(),
            changed: (data.ctime(), data.ctime_nsec()),
        }
    }

    /// Puts it where nothing is now.
    ///
    /// # Errors
    /// The file system's.
    pub fn restore(&self, path: &Path) -> io::Result<()> {
        match self {
            Saved::Nothing | Saved::Unknown => Ok(()),
            Saved::File { bytes, mode } => {
                let mut options = fs::OpenOptions::new();
                let mut file = options
                    .write(true)
                    .create_new(true)
                    .mode(0o600)
                    .custom_flags(CAREFULLY)
                    .open(path)?;
                io::Write::write_all(&mut file, bytes)?;
                file.set_permissions(fs::Permissions::from_mode(*mode & 0o7777))
            }
            Saved::Link(target) => std::os::unix::fs::symlink(target, path),
            Saved::Stamped { .. } => {
                Err(io::Error::other("it was too large to be kept; install it again"))
            }
            Saved::Directory(entries) => {
                fs::create_dir(path)?;
                let (_open, through) = enter(path)?;
                // What cannot be put back is no reason to leave out the rest.
                let restored =
                    entries.iter().map(|(name, saved)| saved.restore(&through.join(name)));
                restored.fold(Ok(()), Result::and)
            }
        }
    }
}

/// What may still be read.
struct Reader {
    bytes: u64,
    entries: usize,
}

impl Reader {
    fn read(&mut self, path: &Path, depth: usize) -> io::Result<Saved> {
        let data = match path.symlink_metadata() {
            Ok(data) => data,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Saved::Nothing),
            Err(error) => return Err(error),
        };
        let too_large = || io::Error::other("it is too large");
        self.entries = self.entries.checked_sub(1).ok_or_else(too_large)?;
        if data.is_symlink() {
            return path.read_link().map(Saved::Link);
        }
        if data.is_dir() {
            if depth == DEEPEST {
                return Err(io::Error::other("it is too deep"));
            }
            let mut entries = BTreeMap::new();
            let (_open, through) = enter(path)?;
            for entry in fs::read_dir(&through)? {
                let entry = entry?;
                entries.insert(entry.file_name(), self.read(&entry.path(), depth + 1)?);
            }
            return Ok(Saved::Directory(entries));
        }
        if !data.is_file() {
            return Ok(Saved::Unknown);
        }
        if data.size() > self.bytes {
            return Ok(Saved::stamp(&data));
        }
        let mut bytes = Vec::new();
        let file = fs::OpenOptions::new().read(true).custom_flags(CAREFULLY).open(path)?;
        file.take(self.bytes + 1).read_to_end(&mut bytes)?;
        self.bytes = self.bytes.checked_sub(bytes.len() as u64).ok_or_else(too_large)?;
        Ok(Saved::File { bytes, mode: data.mode() })
    }
}

/// Written beside and put in place at once: a reader sees the old or the new.
pub(super) fn replace(directory: &Directory, name: &OsStr, with: &Saved) -> io::Result<()> {
    let mut beside = OsStr::new(".ringfence-").to_owned();
    beside.push(name);
    let beside = directory.at(beside);
    let _ = fs::remove_file(&beside);
    let put = with.restore(&beside).and_then(|()| fs::rename(&beside, directory.at(name)));
    put.inspect_err(|_| {
        let _ = fs::remove_file(&beside);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_saved_is_the_same_when_it_was_written_down() {
        for bytes in [&b"text \"\n\0 \xc3\xa4"[..], b"", b"no text \xff\xfe"] {
            let saved = Saved::File { bytes: bytes.into(), mode: 0o644 };
            let written = serde_json::to_string(&saved).expect("JSON");
            assert_eq!(serde_json::from_str::<Saved>(&written).expect("the same"), saved);
        }
    }
}
