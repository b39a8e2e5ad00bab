//! How the journal writes what JSON has no word for. Bytes that are no text are written as `\xff`, and a backslash
//! beside them twice, so that two such names are two names.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;

/// A name as text.
pub(super) fn of(name: &OsStr) -> Cow<'_, str> {
    name.to_str().map_or_else(|| escaped(name.as_bytes()).into(), Cow::Borrowed)
}

fn escaped(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() + 16);
    for chunk in bytes.utf8_chunks() {
        out.push_str(&chunk.valid().replace('\\', r"\\"));
        for byte in chunk.invalid() {
            // Writing to a String cannot fail.
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

/// A path.
pub(super) mod path {
    use super::*;
    use std::path::{Path, PathBuf};

    pub fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&of(path.as_os_str()))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        String::deserialize(from).map(PathBuf::from)
    }
}

/// A path that may be absent.
pub(super) mod maybe_path {
    use super::*;
    use std::path::PathBuf;

    pub fn serialize<S: Serializer>(path: &Option<PathBuf>, to: S) -> Result<S::Ok, S::Error> {
        path.as_ref().map(|path| of(path.as_os_str())).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
        Ok(Option::<String>::deserialize(from)?.map(PathBuf::from))
    }
}

/// Arguments.
pub(super) mod words {
    use super::*;
    use std::ffi::OsString;

    pub fn serialize<S: Serializer>(words: &[OsString], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(words.iter().map(|word| of(word)))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<OsString>, D::Error> {
        Ok(Vec::<String>::deserialize(from)?.into_iter().map(OsString::from).collect())
    }
}

/// A duration, in microseconds.
pub(super) mod micros {
    use super::*;
    use std::time::Duration;

    pub fn serialize<S: Serializer>(duration: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_micros)
    }
}

/// A hash, in hexadecimal digits.
pub(super) mod hash {
    use super::*;

    pub fn serialize<S: Serializer>(hash: &[u8; 32], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&blake3::Hash::from_bytes(*hash).to_hex())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u8; 32], D::Error> {
        let text = Cow::<str>::deserialize(from)?;
        blake3::Hash::from_hex(text.as_bytes()).map(|hash| *hash.as_bytes()).map_err(Error::custom)
    }
}

fn word<'de, D: Deserializer<'de>>(
    from: D,
    known: &[&'static str],
) -> Result<&'static str, D::Error> {
    let text = Cow::<str>::deserialize(from)?;
    let found = known.iter().find(|word| **word == text);
    found.copied().ok_or_else(|| Error::custom(format!("unknown word {text}")))
}

/// The words of [`super::Event::Network`].
pub(super) fn protocol<'de, D: Deserializer<'de>>(from: D) -> Result<&'static str, D::Error> {
    word(from, &["tcp", "udp", "unix"])
}

/// The words of [`super::Event::Snapshot`].
pub(super) fn verb<'de, D: Deserializer<'de>>(from: D) -> Result<&'static str, D::Error> {
    word(from, &["create", "revert", "delete", "compact"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_no_text_are_told_apart() {
        let name = |bytes: &'static [u8]| of(OsStr::from_bytes(bytes));
        assert_eq!(name(b"b\xff"), r"b\xff");
        assert_eq!(name(b"b\xfe\\xff"), r"b\xfe\\xff");
        assert_eq!(name(r"gr\ün".as_bytes()), r"gr\ün");
    }
}
