//! Base directories that are elsewhere than usual (`XDG_CONFIG_HOME` and its like).
//!
//! What ships names files by their usual place, `~/.config/x`. Where the caller's variables move
//! such a directory, programs look for the same file there: a rule that grants, hides or protects
//! the one has to do so for the other.

use crate::path::{normal, quote};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Variable, and the directory below the home without it.
const BASES: [(&str, &str); 4] = [
    ("XDG_CONFIG_HOME", ".config"),
    ("XDG_CACHE_HOME", ".cache"),
    ("XDG_DATA_HOME", ".local/share"),
    ("XDG_STATE_HOME", ".local/state"),
];

/// The base directories that are not where they usually are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moved(Vec<(&'static str, PathBuf)>);

impl Moved {
    /// By the caller's variables. As their specification says, one that is not absolute counts as
    /// none; the root of the file system is no program's directory.
    pub fn of(home: &Path, env: &dyn Fn(&str) -> Option<OsString>) -> Moved {
        let moved = BASES.iter().filter_map(|(variable, usual)| {
            let base = PathBuf::from(env(variable)?);
            let base = base.is_absolute().then(|| normal(&base))?;
            (base.parent().is_some() && base != home.join(usual)).then_some((*usual, base))
        });
        Moved(moved.collect())
    }

    /// Where a path below the home is, if its base directory was moved.
    pub fn path(&self, below: impl AsRef<Path>) -> Option<PathBuf> {
        self.0.iter().find_map(|(usual, base)| {
            // By its bytes: all protected names are asked about.
            let below = below.as_ref().as_os_str().as_bytes();
            let rest = below.strip_prefix(usual.as_bytes())?.strip_prefix(b"/")?;
            (!rest.is_empty()).then(|| base.join(OsStr::from_bytes(rest)))
        })
    }

    /// The path below the home by which one in a moved directory is usually known.
    pub fn usual(&self, path: &Path) -> Option<PathBuf> {
        self.0.iter().find_map(|(usual, base)| {
            let rest = path.strip_prefix(base).ok()?;
            (!rest.as_os_str().is_empty()).then(|| Path::new(usual).join(rest))
        })
    }

    /// A rule about a path in a usual place, `~/.config/x?`, as one about where that was moved to.
    pub fn rule(&self, text: &OsStr) -> Option<OsString> {
        let bytes = text.as_bytes();
        let optional = bytes.starts_with(b"?");
        let below = bytes[usize::from(optional)..].strip_prefix(b"~/")?;
        self.0.iter().find_map(|(usual, base)| {
            let rest = below.strip_prefix(usual.as_bytes())?.strip_prefix(b"/")?;
            let mut moved = OsString::from(if optional { "?" } else { "" });
            moved.push(quote(base));
            moved.push("/");
            moved.push(OsStr::from_bytes(rest));
            (!rest.is_empty()).then_some(moved)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(variables: &[(&str, &str)]) -> Moved {
        let env = |name: &str| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| OsString::from(value))
        };
        Moved::of(Path::new("/home/u"), &env)
    }

    #[test]
    fn rules_about_usual_places_have_a_moved_form() {
        let moved = moved(&[("XDG_CONFIG_HOME", "/data/c*g/"), ("XDG_DATA_HOME", "/home/u/d")]);
        let rule = |text: &str| moved.rule(OsStr::new(text)).map(|text| text.into_string());
        let is = |text: &str| Some(Ok(text.to_owned()));
        assert_eq!(rule("~/.config/git/config?"), is("/data/c\\*g/git/config?"));
        assert_eq!(rule("?~/.config/a*"), is("?/data/c\\*g/a*"));
        assert_eq!(rule("~/.local/share/x"), is("/home/u/d/x"));
        for other in ["~/.config", "~/.config/", "~/.configs/x", "/etc/.config/x", "~/.cache/x"] {
            assert_eq!(rule(other), None, "{other}");
        }
        assert_eq!(moved.path(".config/i3"), Some("/data/c*g/i3".into()));
        assert_eq!(moved.path(".config"), None);
        assert_eq!(moved.usual(Path::new("/data/c*g/i3")), Some(".config/i3".into()));
        assert_eq!(moved.usual(Path::new("/data/c*g")), None);
        assert_eq!(moved.path(".local/state/x"), None);
    }

    #[test]
    fn what_names_no_other_directory_moves_nothing() {
        for value in ["", "relative", "/", "/..", "/home/u/.config", "/home/u/x/../.config/"] {
            assert_eq!(moved(&[("XDG_CONFIG_HOME", value)]), Moved::default(), "{value}");
        }
    }
}
