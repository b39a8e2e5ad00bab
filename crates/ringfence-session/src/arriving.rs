//! What comes out of a session as a directory (`ringfence cp`), judged before it is put at its place: as a commit of an
//! overlay, it brings nothing that a program of the host runs or trusts by itself.

use crate::error::{Result, SessionError};
use crate::judged::{self, Held, Item, Judge, Names, Source};
use crate::snapshot::Kind;
use crate::snapshot::beneath::{self, join, shown};
use ringfence_policy::gitstate::STATE;
use ringfence_policy::protect::{HOME, JUDGED, NAMES};
use ringfence_policy::{Guarded, own, shown as words};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::FileType;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Directories further down are not looked into, and not copied: each level takes a descriptor.
const DEEPEST: usize = 200;

/// What of an unpacked directory is not to be put below `place` as `called`: paths in that directory, the outermost
/// ones, and why. What the user named himself is his word.
///
/// # Errors
/// It cannot be read.
pub fn judge(
    unpacked: &Path,
    (place, host): (&Path, BorrowedFd<'_>),
    called: &OsStr,
    homes: &[PathBuf],
) -> Result<Vec<(PathBuf, String)>> {
    let failed = |error| SessionError::call("open", unpacked, error);
    let open = beneath::open_root(unpacked).map_err(failed)?;
    let mut found =
        Found { all: vec![(called.as_bytes().to_vec(), Kind::Directory)], deep: Vec::new() };
    found.walk(&open, called.as_bytes(), 0).map_err(failed)?;
    let item = |(path, kind): &'_ (Vec<u8>, Kind)| {
        let was = place.join(shown(path)).symlink_metadata().ok();
        // What it was of the others makes no difference.
        let was = was.map(|was| if was.is_dir() { Kind::Directory } else { Kind::Foreign });
        (was, *kind)
    };
    let kinds: Vec<_> = found.all.iter().map(item).collect();
    let items: Vec<Item<'_>> = found
        .all
        .iter()
        .zip(kinds)
        .map(|((path, _), (was, kind))| Item { path, kind: Some(kind), was })
        .collect();
    let (names, source) = (names(place, homes), Unpacked { open: &open, items: &items });
    let judge = Judge::new((place, host), &names, &items, &source);
    let mut held: Vec<Option<Held>> = vec![None; items.len()];
    for &number in &found.deep {
        let why = "it lies too deep to be looked into".to_owned();
        held[number] = Some(Held::itself(items[number].path, why));
    }
    judge.judge(&mut held)?;
    let mut out: Vec<(PathBuf, String)> = Vec::new();
    for (item, held) in items.iter().zip(held) {
        let Some(held) = held else { continue };
        let path = below(item.path);
        let named = held.protected <= called.len();
        // What is in a directory comes right after it.
        if !named && !out.last().is_some_and(|(outer, _)| path.starts_with(outer)) {
            out.push((path.to_owned(), words::message(&held.why).into_owned()));
        }
    }
    Ok(out)
}

/// A path without the first component, which is what the copy is called.
fn below(path: &[u8]) -> &Path {
    let at = path.iter().position(|&byte| byte == b'/').map_or(path.len(), |at| at + 1);
    Path::new(OsStr::from_bytes(&path[at..]))
}

/// The list, as it holds below a directory: in a home, and above one, more is protected.
fn names(place: &Path, homes: &[PathBuf]) -> Names {
    let mut top = Vec::new();
    for home in homes {
        let home = home.canonicalize().unwrap_or_else(|_| home.clone());
        let of_home = HOME.iter().map(|(name, _)| (*name, Guarded::Plain));
        let judged = JUDGED.iter().map(|(name, ..)| (*name, Guarded::Plain));
        let listed = NAMES.iter().map(|entry| (entry.name, entry.guarded));
        let listed = of_home.chain(judged).chain(listed);
        let listed = listed.map(|(name, guarded)| (home.join(name), guarded));
        // Profiles, their hooks, and what is trusted decide about later sandboxes.
        let own = own::places(&home, &|name| std::env::var_os(name));
        let own = own.into_iter().map(|path| (path, Guarded::Plain));
        top.extend(listed.chain(own).filter_map(|(path, guarded)| {
            let rest = path.strip_prefix(place).ok()?.to_str()?;
            (!rest.is_empty()).then(|| (rest.to_owned(), guarded))
        }));
    }
    let nested = NAMES.iter().filter(|entry| entry.nested).chain(STATE);
    Names::new(top.into_iter(), nested.map(|entry| (entry.name.to_owned(), entry.guarded)))
}

/// All that was unpacked, parents first.
struct Found {
    all: Vec<(Vec<u8>, Kind)>,
    /// The numbers of directories that were not looked into.
    deep: Vec<usize>,
}

impl Found {
    fn walk(
        &mut self,
        directory: &OwnedFd,
        path: &[u8],
        depth: usize,
    ) -> std::result::Result<(), rustix::io::Errno> {
        for name in beneath::names(directory)?.iter() {
            let path = join(path, name);
            let kind = match beneath::stat(directory, name)?.file_type {
                FileType::Directory => Kind::Directory,
                FileType::RegularFile => Kind::File,
                FileType::Symlink => Kind::Symlink,
                // It is not copied anyhow.
                _ => continue,
            };
            self.all.push((path.clone(), kind));
            if kind != Kind::Directory {
                continue;
            }
            if depth == DEEPEST {
                self.deep.push(self.all.len() - 1);
                continue;
            }
            let open = beneath::open_directory(directory.as_fd(), name)?;
            self.walk(&open, &path, depth + 1)?;
        }
        Ok(())
    }
}

/// What the items are, read from where they were unpacked.
struct Unpacked<'a> {
    open: &'a OwnedFd,
    items: &'a [Item<'a>],
}

impl Source for Unpacked<'_> {
    fn bytes(&self, number: usize, most: u64) -> Result<Option<Vec<u8>>> {
        let path = below(self.items[number].path).as_os_str().as_bytes();
        Ok(judged::small(self.open.as_fd(), path, most))
    }

    fn target(&self, number: usize) -> Result<Option<Vec<u8>>> {
        let path = below(self.items[number].path);
        let target = rustix::fs::readlinkat(self.open, path, Vec::new());
        let failed = |error| SessionError::call("readlink", path, error);
        Ok(Some(target.map_err(failed)?.into_bytes()))
    }
}
