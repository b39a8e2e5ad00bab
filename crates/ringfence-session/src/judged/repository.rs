//! Directories that would be repositories to git, whatever they are called: git runs what the configuration and the
//! hooks in them say for whoever looks at it there.
//!
//! What makes one may come in several steps, each of which looks like nothing by itself. So each path is judged by what
//! is in its directory when it is written, and what makes a directory a repository by what lies there already.

use super::{
    Held, Item, Judge, Verdict, WRITTEN_OVER, above, harmless, is_gits_own, is_written_over,
    length_of, small,
};
use crate::error::Result;
use crate::snapshot::beneath::{self, join, names, shown, split};
use crate::snapshot::entry::Kind;
use ringfence_policy::guard::{Standing, standing};
use ringfence_policy::protect::{GIT_DEEPEST, GIT_INNARDS};
use ringfence_policy::{Guarded, glob};
use rustix::fs::FileType;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// By these git knows a repository.
const PARTS: [&[u8]; 4] = [b"HEAD", b"commondir", b"objects", b"refs"];

/// A directory that is one when all is written.
struct Repository<'a> {
    path: &'a [u8],
    /// It is one, or another one than it was, by these items.
    by: Vec<usize>,
}

/// Holds what would be run, and what would have something run that is there.
pub(super) fn judge(judge: &Judge<'_>, held: &mut [Option<Held>]) -> Result<()> {
    if judge.names.git.is_empty() {
        return Ok(());
    }
    let tree = Tree { judge };
    let repositories = tree.repositories();
    for (number, held) in held.iter_mut().enumerate().filter(|(_, held)| held.is_none()) {
        *held = tree.in_one(&repositories, number)?;
    }
    for repository in repositories.values().filter(|repository| !repository.by.is_empty()) {
        let Some(runs) = tree.runs(repository.path, held) else { continue };
        let why = format!(
            "by it {} would be a repository to git, with {} in it",
            shown(repository.path).display(),
            shown(&runs).display()
        );
        // Without its head it is none; where that is there already, nothing else comes.
        let head =
            repository.by.iter().position(|&number| split(judge.items[number].path).1 == b"HEAD");
        let by = head.map_or(&repository.by[..], |at| &repository.by[at..=at]);
        for &number in by {
            let path = judge.items[number].path;
            held[number].get_or_insert_with(|| Held::itself(path, why.clone()));
        }
    }
    Ok(())
}

struct Tree<'a> {
    judge: &'a Judge<'a>,
}

impl<'a> Tree<'a> {
    /// Those that something is written to which counts there.
    fn repositories(&self) -> HashMap<&'a [u8], Repository<'a>> {
        let git = self.judge.names.git.iter().filter_map(|(name, _)| name.split('/').next());
        let counts: HashSet<&[u8]> = git.map(str::as_bytes).chain(PARTS).collect();
        let mut found: HashMap<&[u8], Option<Repository<'a>>> = HashMap::new();
        for (number, item) in self.judge.items.iter().enumerate() {
            let mut below = item.path;
            for directory in above(item.path) {
                let name = split(below).1;
                let direct = below.len() == item.path.len();
                below = directory;
                // What is called `.git` is judged by its name.
                let counts = counts.contains(name) || name.starts_with(b"sharedindex.");
                if !counts || split(directory).1 == b".git" {
                    continue;
                }
                let repository = found.entry(directory).or_insert_with(|| {
                    self.is_one(directory).then(|| Repository { path: directory, by: Vec::new() })
                });
                if let Some(repository) = repository
                    && direct
                    && PARTS.contains(&name)
                    && item.kind != item.was
                {
                    repository.by.push(number);
                }
            }
        }
        found.into_iter().filter_map(|(path, repository)| Some((path, repository?))).collect()
    }

    /// Whether git takes a directory for one, when all is written.
    fn is_one(&self, directory: &[u8]) -> bool {
        let there = |name: &[u8]| self.there(&join(directory, name));
        there(b"HEAD") && (there(b"commondir") || there(b"objects") && there(b"refs"))
    }

    fn there(&self, path: &[u8]) -> bool {
        match self.judge.known.get(path) {
            Some(&number) => self.judge.items[number].kind.is_some(),
            None => self.on_host(path).is_some(),
        }
    }

    fn on_host(&self, path: &[u8]) -> Option<FileType> {
        let (parent, name) = split(path);
        let parent = beneath::open_directory(self.judge.host, parent).ok()?;
        beneath::stat(&parent, name).ok().map(|found| found.file_type)
    }

    /// What the list says of `.git`, of a path in one of them.
    fn in_one(
        &self,
        repositories: &HashMap<&[u8], Repository<'_>>,
        number: usize,
    ) -> Result<Option<Held>> {
        let item: &Item<'_> = &self.judge.items[number];
        for directory in above(item.path).filter(|above| repositories.contains_key(above)) {
            let rest = &item.path[if directory.is_empty() { 0 } else { directory.len() + 1 }..];
            let parts: Vec<&OsStr> = Path::new(OsStr::from_bytes(rest)).iter().collect();
            if item.kind == Some(Kind::Symlink) && is_written_over(&parts) {
                return Ok(Some(Held::itself(item.path, WRITTEN_OVER.to_owned())));
            }
            for (name, guarded) in &self.judge.names.git {
                let (protected, verdict) = match standing(name, &parts) {
                    Standing::Apart => continue,
                    Standing::OnTheWay => {
                        (parts.len(), Verdict::of(item.kind != Some(Kind::Symlink)))
                    }
                    Standing::Within(length) => {
                        let inner: PathBuf = parts[length..].iter().collect();
                        (length, self.judge.verdict(number, as_other(*guarded, name), &inner)?)
                    }
                };
                if let Some(more) = verdict.held() {
                    let shown = self.judge.root.join(shown(directory));
                    let why = format!(
                        "{name} of {}, a repository to git, is protected{more}",
                        shown.display()
                    );
                    let protected = item.path.len() - rest.len() + length_of(&parts[..protected]);
                    return Ok(Some(Held { why, protected }));
                }
            }
        }
        Ok(None)
    }

    /// What lies in a directory of the host, stays there, and would be run, were it a repository.
    fn runs(&self, directory: &[u8], held: &[Option<Held>]) -> Option<Vec<u8>> {
        let stays =
            |path: &[u8]| self.judge.known.get(path).is_none_or(|&number| held[number].is_some());
        for (name, guarded) in &self.judge.names.git {
            let guarded = as_other(*guarded, name);
            let parts: Vec<&[u8]> = name.split('/').map(str::as_bytes).collect();
            let (found, mut runs) = self.expand(directory.to_vec(), &parts);
            for path in found {
                if guarded == Guarded::GitHooks && self.on_host(&path) == Some(FileType::Directory)
                {
                    let hooks = self.listed(&path).into_iter().map(|name| join(&path, &name));
                    runs.extend(hooks.filter(|hook| !self.safe(hook, guarded)));
                } else if !self.safe(&path, guarded) {
                    runs.push(path);
                }
            }
            if let Some(path) = runs.into_iter().find(|path| stays(path)) {
                return Some(path);
            }
        }
        None
    }

    /// Whether what lies at a path of the host executes nothing.
    fn safe(&self, path: &[u8], guarded: Guarded) -> bool {
        match guarded {
            Guarded::GitConfig | Guarded::GitCommon => {
                let text = self.judge.on_host(path);
                text.is_some_and(|text| self.judge.says_nothing(guarded, path, &text))
            }
            // A directory of that name is a submodule's.
            Guarded::GitState => {
                self.on_host(path) == Some(FileType::Directory)
                    || self.judge.hash_length(path).is_ok_and(|hash| {
                        let read = |most| Ok(small(self.judge.host, path, most));
                        let bytes = self.judge.state(read).ok().flatten();
                        bytes.is_some_and(|bytes| is_gits_own(path, hash, &bytes))
                    })
            }
            _ => harmless(guarded, path, Some(Kind::File), false),
        }
    }

    /// What there is on the host at a name of the list below a directory, and links on the way to it.
    fn expand(&self, directory: Vec<u8>, name: &[&[u8]]) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let (mut found, mut links) = (vec![directory], Vec::new());
        for (number, part) in name.iter().enumerate() {
            let step = |at: &Vec<u8>| match *part {
                b"**" => self.below(at, 1),
                part if part.contains(&b'*') => {
                    let mut names = self.listed(at);
                    names.retain(|name| glob::name(part, name));
                    names.into_iter().map(|name| join(at, &name)).collect()
                }
                part => vec![join(at, part)],
            };
            let next: Vec<Vec<u8>> = found.iter().flat_map(step).collect();
            found = Vec::new();
            for path in next {
                match self.on_host(&path) {
                    Some(FileType::Symlink) if number + 1 < name.len() => links.push(path),
                    Some(_) => found.push(path),
                    None => {}
                }
            }
        }
        (found, links)
    }

    /// Directories that may be repositories, which `**` stands for, and links among them.
    fn below(&self, directory: &[u8], depth: usize) -> Vec<Vec<u8>> {
        let innards = |name: &[u8]| GIT_INNARDS.iter().any(|innards| innards.as_bytes() == name);
        let mut all = Vec::new();
        for name in self.listed(directory).into_iter().filter(|name| !innards(name)) {
            let path = join(directory, &name);
            match self.on_host(&path) {
                Some(FileType::Directory) if depth < GIT_DEEPEST => {
                    all.extend(self.below(&path, depth + 1));
                }
                Some(FileType::Directory | FileType::Symlink) => {}
                _ => continue,
            }
            all.push(path);
        }
        all
    }

    fn listed(&self, directory: &[u8]) -> Vec<Vec<u8>> {
        let opened = beneath::open_directory(self.judge.host, directory);
        let names = opened.and_then(|directory| names(&directory)).unwrap_or_default();
        names.iter().map(<[u8]>::to_vec).collect()
    }
}

/// In a repository that is not called `.git`, a `commondir` may be a worktree's, which leads to the repository that
/// it is in.
fn as_other(guarded: Guarded, name: &str) -> Guarded {
    if name == "commondir" { Guarded::GitCommon } else { guarded }
}
