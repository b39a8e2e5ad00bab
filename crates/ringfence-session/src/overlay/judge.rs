//! What no commit makes: what is protected in a writable tree without an overlay is protected
//! here too, by the same list, which the planner made and the record holds.

use super::layer::{Change, Trouble, failed};
use super::record::{Guard, Record, Tree};
use crate::error::Result;
use crate::snapshot::What;
use crate::snapshot::beneath::{self, shown, split};
use crate::snapshot::entry::Kind;
use ringfence_policy::gitconfig::executes_in;
use ringfence_policy::path::normal;
use ringfence_policy::protect::git_link_allowed;
use rustix::fd::{AsFd, OwnedFd};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The largest file whose text is judged; git's are small.
const MOST: u64 = 1 << 20;

/// Marks what is protected, and what cannot be done without it.
pub(super) fn judge(
    record: &Record,
    tree: &Tree,
    upper: &OwnedFd,
    temporary: &[u8],
    changes: &mut [Change],
) -> Result<()> {
    let repositories = repositories(tree, changes);
    for change in changes.iter_mut() {
        if split(&change.path).1 == temporary {
            change.trouble = Some(Trouble::Left("the name is used by the commit".to_owned()));
        } else if let Some(rule) = protected(record, tree, upper, change)? {
            change.trouble = Some(Trouble::Left(rule));
        } else if let Some(rule) = of_repository(record, tree, upper, &repositories, change)? {
            change.trouble = Some(Trouble::Left(rule));
        }
    }
    let below = |path: &[u8], above: &[u8]| {
        path.len() > above.len() && path.starts_with(above) && path[above.len()] == b'/'
    };
    let left = |change: &Change| matches!(change.trouble, Some(Trouble::Left(_)));
    let kept: Vec<Vec<u8>> =
        changes.iter().filter(|change| left(change)).map(|change| change.path.clone()).collect();
    for change in changes.iter_mut().filter(|change| !left(change)) {
        // What holds something that stays must stay, and nothing is put into what is not made.
        let holds = change.directory_before && matches!(change.what, What::Deleted | What::Kind);
        let reason = kept.iter().find_map(|path| {
            if holds && below(path, &change.path) {
                return Some(format!("{} in it stays", shown(path).display()));
            }
            below(&change.path, path).then(|| format!("{} is not made", shown(path).display()))
        });
        if let Some(reason) = reason {
            change.trouble = Some(Trouble::Left(reason));
        }
    }
    Ok(())
}

/// Directories that a commit would make repositories to git, whatever their names are: git runs what the configuration
/// in them says for whoever looks at it there.
fn repositories(tree: &Tree, changes: &[Change]) -> BTreeSet<Vec<u8>> {
    const PARTS: [&[u8]; 4] = [b"HEAD", b"commondir", b"objects", b"refs"];
    let known: BTreeMap<&[u8], bool> = changes
        .iter()
        .map(|change| (change.path.as_slice(), change.what != What::Deleted))
        .collect();
    let there = |directory: &[u8], name: &[u8]| {
        let path =
            if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() };
        let on_host = || tree.root().join(shown(&path)).symlink_metadata().is_ok();
        known.get(path.as_slice()).copied().unwrap_or_else(on_host)
    };
    let parts = changes.iter().map(|change| split(&change.path));
    let parts = parts.filter(|(_, name)| PARTS.contains(name)).map(|(directory, _)| directory);
    let is_repository = |directory: &&[u8]| {
        let common = || there(directory, b"commondir");
        let whole = || there(directory, b"objects") && there(directory, b"refs");
        there(directory, b"HEAD") && (common() || whole())
    };
    parts.filter(is_repository).map(<[u8]>::to_vec).collect()
}

/// The rule that protects a path in such a directory: what the list says of `.git`.
fn of_repository(
    record: &Record,
    tree: &Tree,
    upper: &OwnedFd,
    repositories: &BTreeSet<Vec<u8>>,
    change: &Change,
) -> Result<Option<String>> {
    let path = tree.root().join(shown(&change.path));
    let item = Item { path: &path, tree: tree.root(), upper, change };
    for directory in repositories {
        let base = tree.root().join(shown(directory));
        let Some(rest) = below(&path, &base) else { continue };
        let parts: Vec<&[u8]> = rest.iter().map(OsStrExt::as_bytes).collect();
        for names in record.names.iter().filter(|names| names.tree == tree.path) {
            for (name, guarded) in names.top.iter().chain(&names.nested) {
                let Some(name) = name.strip_prefix(".git/") else { continue };
                let pattern: Vec<&[u8]> = name.split('/').map(str::as_bytes).collect();
                let fits = parts.len() >= pattern.len()
                    && parts.iter().zip(&pattern).all(|(part, pattern)| glob(pattern, part));
                let inner: PathBuf = rest.iter().skip(pattern.len()).collect();
                if fits && !item.harmless(guarded, &inner, false)? {
                    let directory = base.display();
                    return Ok(Some(format!(
                        "{name} of {directory}, a repository to git, is protected"
                    )));
                }
            }
        }
    }
    Ok(None)
}

/// The rule that protects a path.
fn protected(
    record: &Record,
    tree: &Tree,
    upper: &OwnedFd,
    change: &Change,
) -> Result<Option<String>> {
    let path = tree.root().join(shown(&change.path));
    let item = Item { path: &path, tree: tree.root(), upper, change };
    for guard in &record.guards {
        if let Some(rest) = below(&path, &guard.path)
            && !item.harmless(&guard.guarded, &rest, guard.present)?
        {
            return Ok(Some(said(guard)));
        }
    }
    let relative = Path::new(std::ffi::OsStr::from_bytes(&change.path));
    let parts: Vec<&[u8]> = relative.iter().map(OsStrExt::as_bytes).collect();
    for names in record.names.iter().filter(|names| names.tree == tree.path) {
        let top = names.top.iter().map(|name| (name, 0..1));
        let nested = names.nested.iter().map(|name| (name, 0..parts.len()));
        for ((name, guarded), starts) in top.chain(nested) {
            let pattern: Vec<&[u8]> = name.split('/').map(str::as_bytes).collect();
            for start in starts.filter(|start| start + pattern.len() <= parts.len()) {
                let these = &parts[start..start + pattern.len()];
                if !these.iter().zip(&pattern).all(|(part, pattern)| glob(pattern, part)) {
                    continue;
                }
                let rest: PathBuf = relative.iter().skip(start + pattern.len()).collect();
                if !item.harmless(guarded, &rest, false)? {
                    return Ok(Some(format!("{name} is a protected name")));
                }
            }
        }
        // A `.git` that is no directory leads git to a repository elsewhere.
        let git = parts.last().is_some_and(|last| *last == b".git");
        if git && change.what != What::Deleted && change.kind != Kind::Directory {
            let target = item.git_target()?;
            let base = path.parent().unwrap_or(&path);
            if !target.is_some_and(|target| git_link_allowed(&normal(&base.join(target)))) {
                return Ok(Some(".git leads to a repository that is not protected".to_owned()));
            }
        }
    }
    Ok(None)
}

fn said(guard: &Guard) -> String {
    format!("it is protected ({})", guard.rule)
}

/// What of a path lies below another one; empty for itself.
fn below(path: &Path, above: &Path) -> Option<PathBuf> {
    path.strip_prefix(above).ok().map(Path::to_owned)
}

struct Item<'a> {
    path: &'a Path,
    tree: &'a Path,
    upper: &'a OwnedFd,
    change: &'a Change,
}

impl Item<'_> {
    /// Whether this change of something that is guarded so executes nothing. What is not known
    /// does.
    fn harmless(&self, guarded: &str, rest: &Path, present: bool) -> Result<bool> {
        if present {
            return Ok(false);
        }
        let change = self.change;
        Ok(match guarded {
            // Only what exists is protected; a new one is the program's own business.
            "existing-only" => true,
            "git-hooks" if rest.as_os_str().is_empty() => change.kind == Kind::Directory,
            "git-hooks" => self.path.as_os_str().as_bytes().ends_with(b".sample"),
            "git-config" if change.what == What::Deleted => true,
            "git-config" if change.kind == Kind::File && rest.as_os_str().is_empty() => {
                let directory = self.path.parent().unwrap_or(self.path);
                let top = self.path.ancestors().find(|at| at.ends_with(".git"));
                let tree = top.and_then(Path::parent).unwrap_or(self.tree);
                let text = self.text()?.and_then(|bytes| String::from_utf8(bytes).ok());
                text.is_some_and(|text| executes_in(&text, directory, tree).is_none())
            }
            _ => false,
        })
    }

    /// The bytes of a small file of the layer.
    fn text(&self) -> Result<Option<Vec<u8>>> {
        let (parent, name) = split(&self.change.path);
        let at = |error| failed("open", &self.change.path, error);
        let parent = beneath::open_directory(self.upper.as_fd(), parent).map_err(at)?;
        let Ok(file) = beneath::open_file(&parent, name) else { return Ok(None) };
        let mut bytes = Vec::new();
        let read = std::fs::File::from(file).take(MOST + 1).read_to_end(&mut bytes);
        Ok((read.is_ok() && bytes.len() as u64 <= MOST).then_some(bytes))
    }

    /// Where a `.git` file or link leads.
    fn git_target(&self) -> Result<Option<PathBuf>> {
        let bytes = if self.change.kind == Kind::Symlink {
            let (parent, name) = split(&self.change.path);
            let at = |error| failed("readlink", &self.change.path, error);
            let parent = beneath::open_directory(self.upper.as_fd(), parent).map_err(at)?;
            Some(rustix::fs::readlinkat(&parent, name, Vec::new()).map_err(at)?.into_bytes())
        } else {
            let text = self.text()?;
            text.and_then(|text| Some(text.strip_prefix(b"gitdir:")?.trim_ascii().to_vec()))
        };
        Ok(bytes.map(|bytes| PathBuf::from(std::ffi::OsStr::from_bytes(&bytes))))
    }
}

/// Whether a name matches a pattern of `*` and `?`.
fn glob(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.first(), name.first()) {
        (None, None) => true,
        (Some(b'*'), _) => {
            glob(&pattern[1..], name) || (!name.is_empty() && glob(pattern, &name[1..]))
        }
        (Some(b'?'), Some(_)) => glob(&pattern[1..], &name[1..]),
        (Some(one), Some(other)) if one == other => glob(&pattern[1..], &name[1..]),
        _ => false,
    }
}
