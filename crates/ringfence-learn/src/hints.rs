//! What an object may open while it runs, as far as its constants say: paths of libraries and
//! their directories, names for `dlopen(3)`, and functions that open libraries by themselves.

use crate::bytes::Bytes;
use crate::elf::Object;
use crate::tables;
use memchr::memmem::Finder;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The most that is read of one object's constants.
const MOST_BYTES: u64 = 16 << 20;
/// Read at a time; a text that crosses the border is read again with the next part. No more: new memory costs more than
/// a further call.
const STEP: usize = 64 << 10;
const OVERLAP: usize = 4096;
/// The most that is read of its table of names.
const MOST_NAMES: u64 = 8 << 20;
/// The most hints that are taken from one object.
const MOST_HINTS: usize = 512;

/// What an object may open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// Absolute paths that hold a directory of libraries.
    pub paths: BTreeSet<PathBuf>,
    /// Names like those of libraries.
    pub libraries: BTreeSet<Vec<u8>>,
    /// Databases of `nsswitch.conf(5)` that it asks.
    pub databases: BTreeSet<&'static str>,
    /// It converts between character sets (`iconv(3)`).
    pub converts: bool,
    /// It opens libraries (`dlopen(3)`).
    pub opens: bool,
    /// It unwinds its stack: cancelled threads, backtraces.
    pub unwinds: bool,
}

/// Beginnings of functions' names, and the database that they ask.
const DATABASES: [(&[u8], &str); 16] = [
    (b"getpw", "passwd"),
    (b"getgr", "group"),
    (b"initgroups", "group"),
    (b"getaddrinfo", "hosts"),
    (b"getnameinfo", "hosts"),
    (b"gethostby", "hosts"),
    (b"getservby", "services"),
    (b"getservent", "services"),
    (b"getprotoby", "protocols"),
    (b"getnetby", "networks"),
    (b"getnetgr", "netgroup"),
    (b"innetgr", "netgroup"),
    (b"getrpcby", "rpc"),
    (b"getsp", "shadow"),
    (b"ether_", "ethers"),
    (b"getalias", "aliases"),
];

/// Reads the hints of an object, in `room`, which is used again for the next one. Those of the C library itself are about what it could do for
/// others, and are left out.
pub fn of(bytes: &dyn Bytes, object: &Object, room: &mut Vec<u8>) -> Hints {
    let mut hints = functions(bytes, object, room);
    if is_c_library(object) {
        return hints;
    }
    let mut left = MOST_BYTES;
    for (from, to) in tables::texts(bytes, object) {
        let length = (to - from).min(left);
        left -= length;
        in_steps(bytes, (from, length), room, |part| hints.texts(part));
    }
    // What is needed anyway says nothing about opening.
    for name in object.needed.iter().chain(&object.soname) {
        hints.libraries.remove(name);
    }
    hints
}

/// Reads a part of a file, from an offset so many bytes.
fn in_steps(
    bytes: &dyn Bytes,
    (offset, length): (u64, u64),
    room: &mut Vec<u8>,
    mut read: impl FnMut(&[u8]),
) {
    let mut at = 0;
    while at < length {
        let part = bytes.fill(offset.saturating_add(at), length - at, STEP, room);
        read(part);
        if part.len() < STEP {
            break;
        }
        at += (STEP - OVERLAP) as u64;
    }
}

/// Only which functions an object calls, without what its constants name.
pub fn functions(bytes: &dyn Bytes, object: &Object, room: &mut Vec<u8>) -> Hints {
    let mut hints = Hints::default();
    if !is_c_library(object) {
        hints.functions(bytes, object, room);
    }
    hints
}

/// The parts of the C library.
fn is_c_library(object: &Object) -> bool {
    const PARTS: [&[u8]; 10] = [
        b"libc.so.",
        b"ld-linux",
        b"ld-musl",
        b"libm.so.",
        b"libpthread.so.",
        b"libdl.so.",
        b"librt.so.",
        b"libresolv.so.",
        b"libutil.so.",
        b"libnss_",
    ];
    let name = object.soname.as_deref().unwrap_or_default();
    PARTS.iter().any(|part| name.starts_with(part))
}

impl Hints {
    fn functions(&mut self, bytes: &dyn Bytes, object: &Object, room: &mut Vec<u8>) {
        let Some((offset, length)) = object.strings else { return };
        in_steps(bytes, (offset, length.min(MOST_NAMES)), room, |table| {
            // Each name begins behind a zero byte: gone through once, by the first letter.
            let mut from = 0;
            while let Some(zero) = memchr::memchr(0, &table[from..]) {
                from += zero + 1;
                let rest = &table[from..];
                if let Some(b'g' | b'i' | b'e' | b'd' | b'p' | b'b') = rest.first() {
                    self.function(rest);
                }
            }
        });
    }

    /// A function whose name is at the beginning of a text.
    fn function(&mut self, text: &[u8]) {
        // They are thousands: most differ in the second letter.
        let alike = |(beginning, _): &&(&[u8], _)| text.get(1) == Some(&beginning[1]);
        for (beginning, database) in DATABASES.iter().filter(alike) {
            if text.starts_with(beginning) {
                self.databases.insert(database);
            }
        }
        let is = |name: &[u8]| text.starts_with(name);
        self.converts |= is(b"iconv_open\0");
        self.opens |= is(b"dlopen\0") || is(b"dlmopen\0");
        self.unwinds |= is(b"pthread_exit\0") || is(b"pthread_cancel\0") || is(b"backtrace\0");
    }

    fn texts(&mut self, part: &[u8]) {
        self.paths.extend(paths(part));
        // What opens none by name names none.
        if !self.opens {
            return;
        }
        for at in Finder::new(b".so").find_iter(part) {
            if self.libraries.len() >= MOST_HINTS {
                return;
            }
            let name =
                around(part, at, |byte| byte.is_ascii_alphanumeric() || b"._+-".contains(&byte));
            let end = at - (name.as_ptr() as usize - part.as_ptr() as usize) + 3;
            let version = name.get(end..).unwrap_or_default();
            if name.starts_with(b"lib") && (version.is_empty() || version[0] == b'.') {
                self.libraries.insert(name.to_vec());
            }
        }
    }
}

/// The text around a place whose bytes all fit.
fn around(part: &[u8], at: usize, fits: impl Fn(u8) -> bool) -> &[u8] {
    let longest = 1024;
    let before = part[..at].iter().rev().take(longest).take_while(|byte| fits(**byte)).count();
    let after = part[at..].iter().take(longest).take_while(|byte| fits(**byte)).count();
    &part[at - before..at + after]
}

/// The absolute paths below directories called `lib…` that a text holds.
pub fn paths(text: &[u8]) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for at in Finder::new(b"/lib").find_iter(text) {
        if found.len() >= MOST_HINTS {
            break;
        }
        let path =
            around(text, at, |byte| byte.is_ascii_alphanumeric() || b"/._+-@".contains(&byte));
        let path = Path::new(OsStr::from_bytes(path));
        let known = ["/lib", "/usr/lib", "/usr/local/lib"];
        let known =
            path.to_str().is_some_and(|text| known.iter().any(|known| text.starts_with(known)));
        if known && !path.starts_with("/usr/lib/debug") {
            found.insert(path.components().collect());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cut_out_of_texts() {
        let text =
            b"x\0/usr/lib/git-core\0PATH=/usr/lib/a:/lib/b/\0/opt/lib/c\0 /usr/local/lib/d\"";
        let found: Vec<_> = paths(text).into_iter().collect();
        let wanted = ["/lib/b", "/usr/lib/a", "/usr/lib/git-core", "/usr/local/lib/d"];
        assert_eq!(found, wanted.map(PathBuf::from));
    }

    #[test]
    fn functions_are_told_by_their_whole_names_or_beginnings() {
        let told = |table: &[u8]| {
            let object = Object { strings: Some((0, table.len() as u64)), ..object() };
            functions(&table.to_vec(), &object, &mut Vec::new())
        };
        let found = told(b"\0xgetpwnam\0getaddrinfo\0innetgr\0iconv_open\0dlopen\0backtrace\0");
        assert_eq!(found.databases, ["hosts", "netgroup"].into());
        assert!(found.converts && found.opens && found.unwinds);
        let others =
            told(b"dlopen\0xdlopen\0dlopener\0iconv_open_x\0backtrace_symbols\0pthread_exit");
        assert!(others.databases.is_empty());
        assert!(!others.converts && !others.opens && !others.unwinds, "{others:?}");
    }

    fn object() -> Object {
        Object {
            machine: crate::elf::Machine { wide: true, big: false, number: 62 },
            interpreter: None,
            dynamic: true,
            needed: Vec::new(),
            soname: None,
            rpath: None,
            runpath: None,
            no_default: false,
            build_id: None,
            dlopen: Vec::new(),
            segments: Vec::new(),
            strings: None,
            sections: None,
        }
    }

    #[test]
    fn names_of_libraries_are_cut_out_of_texts() {
        let mut hints = Hints { opens: true, ..Hints::default() };
        hints.texts(b"\0libx.so.1\0liby.so\0notlib.so\0libz.source\0libv.so.1.2 not found\0.so");
        let found: Vec<_> = hints.libraries.iter().map(Vec::as_slice).collect();
        assert_eq!(found, [b"libv.so.1.2".as_slice(), b"libx.so.1", b"liby.so"]);
    }
}
