//! GObject introspection: a script that asks for `Gtk` by `gi.require_version` loads what the
//! typelib of that name says (`girepository-1.0/Gtk-3.0.typelib`): its libraries, and those of the
//! typelibs that it builds on. Read, never loaded.

use crate::collect::Collector;
use crate::host::Kind;
use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What a typelib's header says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Typelib {
    /// Names of libraries.
    pub libraries: Vec<Vec<u8>>,
    /// The typelibs that it builds on, as `Gdk-3.0`.
    pub needs: Vec<Vec<u8>>,
}

/// The most that is read of one: its strings stand behind its tables.
const MOST: usize = 8 << 20;
/// The most names of either kind.
const MOST_NAMES: usize = 256;
/// The most typelibs that one script leads to.
const MOST_TYPELIBS: usize = 256;

const MAGIC: &[u8] = b"GOBJ\nMETADATA\r\n\x1a";
/// Where the header (`girepository/gitypelib-internal.h`) has the places of two strings.
const NEEDS: usize = 36;
const LIBRARIES: usize = 52;

/// Reads a typelib; nothing where it is none.
pub fn typelib(bytes: &[u8]) -> Option<Typelib> {
    if !bytes.starts_with(MAGIC) {
        return None;
    }
    let list = |at: usize, separator: u8| {
        let four = bytes.get(at..at + 4)?;
        let start = u32::from_le_bytes([four[0], four[1], four[2], four[3]]) as usize;
        // 0: there is none.
        let rest = bytes.get(start..).filter(|_| start > 0)?;
        let end = memchr::memchr(0, &rest[..rest.len().min(16 << 10)])?;
        let names = rest[..end].split(|byte| *byte == separator).filter(|name| is_plain(name));
        Some(names.take(MOST_NAMES).map(<[u8]>::to_vec).collect::<Vec<_>>())
    };
    Some(Typelib {
        libraries: list(LIBRARIES, b',').unwrap_or_default(),
        needs: list(NEEDS, b'|').unwrap_or_default(),
    })
}

/// Whether a name leads nowhere but to a file of this name.
fn is_plain(name: &[u8]) -> bool {
    let known = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-+".contains(byte);
    !name.is_empty() && name.len() < 256 && name[0] != b'.' && name.iter().all(known)
}

/// The typelibs that a script asks for: `require_version("Gtk", "3.0")`, in either quotes.
pub fn asked(script: &[u8]) -> BTreeSet<Vec<u8>> {
    let calls = memchr::memmem::find_iter(script, b"require_version");
    let names = calls.filter_map(|at| {
        let rest = &script[at..script.len().min(at + 256)];
        let open = memchr::memchr(b'(', rest)?;
        let close = open + memchr::memchr(b')', &rest[open..])?;
        let mut words = rest[open + 1..close].split(|byte| *byte == b',').map(|word| {
            let word = word.trim_ascii();
            let quote = *word.first()?;
            let inner = word.strip_prefix(&[quote])?.strip_suffix(&[quote])?;
            matches!(quote, b'"' | b'\'').then_some(inner)
        });
        let (name, version) = (words.next()??, words.next()??);
        Some([name, b"-", version].concat()).filter(|name| is_plain(name))
    });
    names.take(MOST_NAMES).collect()
}

impl Collector<'_, '_> {
    /// What a script loads by GObject introspection.
    pub(crate) fn introspected(&mut self, script: &[u8], by: &Path) {
        let mut waiting: Vec<Vec<u8>> = asked(script).into_iter().collect();
        if waiting.is_empty() {
            return;
        }
        let roots: Vec<PathBuf> = self.answer.roots.iter().cloned().collect();
        let places =
            roots.iter().flat_map(|root| [vec![root.clone()], self.machines(root)].concat());
        let places: Vec<PathBuf> = places.collect();
        // The bindings themselves.
        for root in &roots {
            let module = root.join("python3/dist-packages/gi");
            if self.host().kind(&module) == Kind::Directory {
                self.place(&module, "the bindings that it asks for them, by", Some(by));
            }
        }
        // Each of them builds on these, whether or not it says so.
        waiting.extend([b"GLib-2.0".to_vec(), b"GObject-2.0".to_vec(), b"Gio-2.0".to_vec()]);
        let mut seen: HashSet<Vec<u8>> = HashSet::new();
        while let Some(name) = waiting.pop() {
            if seen.len() >= MOST_TYPELIBS || !seen.insert(name.clone()) {
                continue;
            }
            let file = [name.as_slice(), b".typelib"].concat();
            let file = Path::new("girepository-1.0").join(OsStr::from_bytes(&file));
            let found = places.iter().map(|place| place.join(&file));
            let found: Vec<_> = found
                .filter_map(|path| self.place(&path, "a script asks for it:", Some(by)))
                .collect();
            for path in found {
                let bytes = self.host().beginning(&path, MOST).unwrap_or_default();
                let Some(typelib) = typelib(&bytes) else { continue };
                waiting.extend(typelib.needs);
                for library in typelib.libraries {
                    let library = Path::new(OsStr::from_bytes(&library));
                    let there = places.iter().map(|place| place.join(library));
                    for candidate in there.collect::<Vec<_>>() {
                        if let Some(real) =
                            self.place(&candidate, "it is the library of", Some(&path))
                        {
                            self.close(&real, true);
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A typelib with these strings.
    fn made(needs: &[u8], libraries: &[u8]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.resize(112, 0);
        for (at, text) in [(NEEDS, needs), (LIBRARIES, libraries)] {
            let place = u32::try_from(bytes.len()).expect("small").to_le_bytes();
            bytes[at..at + 4].copy_from_slice(&place);
            bytes.extend_from_slice(text);
            bytes.push(0);
        }
        bytes
    }

    #[test]
    fn a_typelib_names_its_libraries_and_what_it_builds_on() {
        let good = made(b"Gdk-3.0|GLib-2.0", b"libgtk-3.so.0,libgdk-3.so.0");
        let read = typelib(&good).expect("one");
        assert_eq!(read.needs, [b"Gdk-3.0".to_vec(), b"GLib-2.0".to_vec()]);
        assert_eq!(read.libraries, [b"libgtk-3.so.0".to_vec(), b"libgdk-3.so.0".to_vec()]);
        for length in 0..good.len() {
            let _ = typelib(&good[..length]);
        }
        let mut lying = good.clone();
        lying[NEEDS..NEEDS + 4].fill(0xff);
        assert!(typelib(&lying).expect("one").needs.is_empty());
        let odd = typelib(&made(b"../x|.hidden", b"/etc/passwd,a b")).expect("one");
        assert_eq!(odd, Typelib::default());
        assert_eq!(typelib(b"\x7fELF"), None);
    }

    #[test]
    fn scripts_ask_by_name_and_version() {
        let text = b"import gi\ngi.require_version('Gtk', \"3.0\")\ngi.require_version( 'Gdk','3.0' )\n\
                     gi.require_version(name, '1')\nrequire_version('../x', '1')\nrequire_version('open";
        let found: Vec<_> = asked(text).into_iter().collect();
        assert_eq!(found, [b"Gdk-3.0".to_vec(), b"Gtk-3.0".to_vec()]);
    }
}
