//! What differs between two states. Directories with the same tree are not entered, so that
//! the cost grows with what changed.

use super::beneath::{join, shown};
use super::database::Database;
use super::entry::{Entry, Hash, Kind};
use super::scan::Scan;
use crate::error::Result;
use ringfence_policy::protect::GIT_INNARDS;
use std::borrow::Cow;
use std::cmp::Ordering;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How a path differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It is only in the newer state.
    Added,
    /// It is only in the older state.
    Deleted,
    /// Its bytes differ.
    Modified,
    /// Its mode, owner, attributes or hard links differ.
    Attributes,
    /// It is another kind of thing.
    Kind,
}

impl What {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            What::Added => "added",
            What::Deleted => "deleted",
            What::Modified => "modified",
            What::Attributes => "attributes",
            What::Kind => "kind",
        }
    }
}

/// One path that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Relative to the workspace.
    pub path: PathBuf,
    /// How.
    pub what: What,
    /// In the older state.
    pub old: Option<Entry>,
    /// In the newer state.
    pub new: Option<Entry>,
}

impl Change {
    /// How it is told: what is closed to its own user since (`chmod 000`) is nothing else for that.
    pub fn told(&self) -> What {
        let mut sides = [&self.old, &self.new].into_iter().flatten();
        let closed = sides.any(|entry| entry.kind == Kind::Unreadable);
        if closed && self.what == What::Kind { What::Attributes } else { self.what }
    }
}

/// Which paths an operation is about, relative to the workspace. Without any, all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Select {
    /// These, and what is below them.
    pub only: Vec<PathBuf>,
    /// But not these, nor what is below them. `*` and `?` match within a component, `**` at the
    /// beginning is any directory.
    pub except: Vec<PathBuf>,
}

impl Select {
    pub(crate) fn takes(&self, path: &Path) -> bool {
        let taken = self.only.is_empty() || self.only.iter().any(|top| path.starts_with(top));
        taken && !self.excepts(path)
    }

    /// It is left out, whatever is chosen.
    pub(crate) fn excepts(&self, path: &Path) -> bool {
        let first = FirstBytes::of(path.as_os_str().as_bytes());
        self.except.iter().any(|except| first.may_match(except) && excepted(except, path))
    }

    fn leads_to(&self, path: &Path) -> bool {
        self.takes(path) || self.only.iter().any(|top| top.starts_with(path))
    }
}

/// The bytes with which components of a path begin: most exceptions begin with another one.
struct FirstBytes([u64; 4]);

impl FirstBytes {
    fn of(path: &[u8]) -> FirstBytes {
        let mut set = [0; 4];
        let mut begins = true;
        for &byte in path {
            if begins {
                set[usize::from(byte / 64)] |= 1 << (byte % 64);
            }
            begins = byte == b'/';
        }
        FirstBytes(set)
    }

    fn may_match(&self, except: &Path) -> bool {
        let except = except.as_os_str().as_bytes();
        match except.strip_prefix(b"**/").unwrap_or(except).first() {
            None | Some(b'*' | b'?') => true,
            Some(byte) => self.0[usize::from(byte / 64)] & 1 << (byte % 64) != 0,
        }
    }
}

/// Whether a path is what an exception names, or below it. Asked of each path for each of some hundred
/// exceptions: bytes are compared, and nothing is allocated.
fn excepted(except: &Path, path: &Path) -> bool {
    let (except, path) = (except.as_os_str().as_bytes(), path.as_os_str().as_bytes());
    if let Some(rest) = path.strip_prefix(except)
        && matches!(rest.first(), None | Some(b'/'))
    {
        return true;
    }
    let anywhere = if except == b"**" { Some(&b""[..]) } else { except.strip_prefix(b"**/") };
    let pattern = anywhere.unwrap_or(except);
    let mut rest = Some(path);
    while let Some(from) = rest {
        if begins(from, pattern) {
            return true;
        }
        rest = anywhere.and_then(|_| split(from).1);
    }
    false
}

/// Whether the first components of a path match those of a pattern, in which `**` is one directory or several, none of
/// those in which no repository is looked for.
fn begins(path: &[u8], pattern: &[u8]) -> bool {
    let (mut path, mut pattern) = (Some(path), (!pattern.is_empty()).then_some(pattern));
    while let Some(wanted) = pattern {
        let Some(there) = path else { return false };
        let ((wanted, more), (there, below)) = (split(wanted), split(there));
        if wanted == b"**" {
            if GIT_INNARDS.iter().any(|innards| innards.as_bytes() == there) {
                return false;
            }
            let here = match (more, below) {
                (Some(more), Some(below)) => begins(below, more),
                (more, _) => more.is_none(),
            };
            if here {
                return true;
            }
            path = below;
            continue;
        }
        if wanted != there && !matches(wanted, there) {
            return false;
        }
        (pattern, path) = (more, below);
    }
    true
}

/// The first component, and the rest.
fn split(path: &[u8]) -> (&[u8], Option<&[u8]>) {
    match path.iter().position(|&byte| byte == b'/') {
        Some(at) => (&path[..at], Some(&path[at + 1..])),
        None => (path, None),
    }
}

/// Whether a name matches a pattern of `*` and `?`, in time linear in both but for their product.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n, mut star) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(&wanted) if wanted == b'?' || wanted == name[n] => (p, n) = (p + 1, n + 1),
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    (p, n) = (at + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

/// A state: the workspace as seen, or a stored tree.
pub(super) enum Side<'a> {
    Stored(Hash),
    Seen(&'a Scan),
}

impl Side<'_> {
    fn root(&self) -> Hash {
        match self {
            Side::Stored(hash) => *hash,
            Side::Seen(scan) => scan.root,
        }
    }

    /// What a directory holds, without copying what is in memory already.
    fn entries(
        &self,
        database: &Database,
        path: &[u8],
        hash: &Hash,
    ) -> Result<Vec<Cow<'_, Entry>>> {
        match self {
            Side::Stored(_) => Ok(database.tree(hash)?.into_iter().map(Cow::Owned).collect()),
            Side::Seen(scan) => {
                let all = scan.directories.get(path);
                Ok(all.into_iter().flatten().map(|seen| Cow::Borrowed(&seen.entry)).collect())
            }
        }
    }
}

/// Lists what differs, parents before what is in them.
pub(super) fn compare(
    database: &Database,
    old: &Side<'_>,
    new: &Side<'_>,
    select: &Select,
) -> Result<Vec<Change>> {
    let mut walk = Walk { database, old, new, select, changes: Vec::new() };
    walk.directory(b"", Some(old.root()), Some(new.root()))?;
    Ok(walk.changes)
}

struct Walk<'a> {
    database: &'a Database,
    old: &'a Side<'a>,
    new: &'a Side<'a>,
    select: &'a Select,
    changes: Vec<Change>,
}

impl<'a> Walk<'a> {
    fn directory(&mut self, path: &[u8], old: Option<Hash>, new: Option<Hash>) -> Result<()> {
        if old == new {
            return Ok(());
        }
        let (database, sides) = (self.database, (self.old, self.new));
        let entries = |side: &'a Side<'a>, hash: Option<Hash>| match hash {
            Some(hash) => side.entries(database, path, &hash),
            None => Ok(Vec::new()),
        };
        let mut old = entries(sides.0, old)?.into_iter().peekable();
        let mut new = entries(sides.1, new)?.into_iter().peekable();
        loop {
            let order = match (old.peek(), new.peek()) {
                (Some(old), Some(new)) => old.name.cmp(&new.name),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return Ok(()),
            };
            let before = if order.is_le() { old.next() } else { None };
            let after = if order.is_ge() { new.next() } else { None };
            // Most are the same, and nobody asks for their paths.
            let same = match (&before, &after) {
                (Some(old), Some(new)) => {
                    old.same(new) && (old.kind != Kind::Directory || old.hash == new.hash)
                }
                _ => false,
            };
            if !same {
                self.entry(path, before.map(Cow::into_owned), after.map(Cow::into_owned))?;
            }
        }
    }

    fn entry(&mut self, directory: &[u8], old: Option<Entry>, new: Option<Entry>) -> Result<()> {
        let Some(name) = old.as_ref().or(new.as_ref()).map(|entry| &entry.name) else {
            return Ok(());
        };
        let path = join(directory, name);
        let shown = shown(&path);
        if !self.select.leads_to(&shown) {
            return Ok(());
        }
        let tree = |entry: &Option<Entry>| {
            entry.as_ref().filter(|entry| entry.kind == Kind::Directory).map(|entry| entry.hash)
        };
        let (before, after) = (tree(&old), tree(&new));
        let what = match (&old, &new) {
            (Some(old), Some(new)) if old.same(new) => None,
            (Some(old), Some(new)) if old.kind != new.kind => Some(What::Kind),
            (Some(old), Some(new)) if old.kind == Kind::Directory || old.same_content(new) => {
                Some(What::Attributes)
            }
            (Some(_), Some(_)) => Some(What::Modified),
            (Some(_), None) => Some(What::Deleted),
            (None, _) => Some(What::Added),
        };
        let foreign = [&old, &new].into_iter().flatten().any(|entry| entry.kind == Kind::Foreign);
        // A path cannot come back without the directories above it.
        let above = what == Some(What::Deleted);
        // What is in one that is closed, or that another file system hides, is not gone.
        let hidden = [&old, &new].into_iter().flatten().any(|entry| entry.kind.untouchable());
        let hidden = hidden && (foreign || self.select.takes(&shown));
        if let Some(what) = what.filter(|_| !foreign && (above || self.select.takes(&shown))) {
            self.changes.push(Change { path: shown, what, old, new });
        }
        if hidden { Ok(()) } else { self.directory(&path, before, after) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exceptions_are_paths_names_anywhere_and_patterns() {
        let select = |except: &[&str]| Select {
            only: Vec::new(),
            except: except.iter().map(PathBuf::from).collect(),
        };
        let takes = |except: &str, path: &str| select(&[except]).takes(Path::new(path));
        for (except, path) in [
            (".env", ".env"),
            (".git/hooks", ".git/hooks/pre-commit"),
            ("**/.vscode", ".vscode"),
            ("**/.vscode", "deep/er/.vscode/tasks.json"),
            ("**/.git/hooks", "sub/.git/hooks/x"),
            ("*.workspace", "a.workspace"),
            ("**/*.workspace", "b/a.workspace/x"),
            (".git/modules/**/hooks", ".git/modules/a/hooks/x"),
            ("**/.git/modules/**/hooks", "sub/.git/modules/libs/a/b/hooks"),
            ("what[*]", "what[*]"),
        ] {
            assert!(!takes(except, path), "{except} {path}");
        }
        // As component by component, for all short ones of these.
        let names = ["a", "b", "*", "?b", "ab"];
        let paths: Vec<PathBuf> = names
            .iter()
            .flat_map(|one| names.iter().map(move |two| Path::new(one).join(two)))
            .chain(names.iter().map(PathBuf::from))
            .collect();
        let by_components = |except: &Path, path: &Path| {
            let anywhere = except.strip_prefix("**").ok();
            let pattern: Vec<_> = anywhere.unwrap_or(except).iter().collect();
            let parts: Vec<_> = path.iter().collect();
            let last = if anywhere.is_some() { parts.len() } else { 1 };
            let here = |start: usize| {
                let these = parts.get(start..start + pattern.len()).unwrap_or_default();
                let fits = |(part, wanted): (&&std::ffi::OsStr, &&std::ffi::OsStr)| {
                    matches(wanted.as_bytes(), part.as_bytes())
                };
                these.len() == pattern.len() && these.iter().zip(&pattern).all(fits)
            };
            path.starts_with(except) || (0..last).any(here)
        };
        for path in &paths {
            for except in paths.iter().flat_map(|path| [path.clone(), Path::new("**").join(path)]) {
                let expected = by_components(&except, path);
                let select = Select { only: Vec::new(), except: vec![except.clone()] };
                assert_eq!(select.excepts(path), expected, "{except:?} {path:?}");
            }
        }
        for (except, path) in [
            (".env", ".envrc"),
            (".env", "sub/.env"),
            (".git/hooks", ".git/hook"),
            (".git/hooks", ".git"),
            ("**/.git/hooks", "hooks"),
            (".git/modules/**/hooks", ".git/modules/hooks"),
            (".git/modules/**/config", ".git/modules/a/refs/heads/config"),
            ("*.workspace", "b/a.workspace"),
        ] {
            assert!(takes(except, path), "{except} {path}");
        }
    }
}
