//! What git's index has of what was taken away: git takes its absence for a removal, and commits that.

use super::git;
use ringfence_policy::gitread::{self, Pass};
use ringfence_policy::gitstate::{self, Content};
use ringfence_policy::protect::git_file_target;
use ringfence_policy::{HostFiles, shown};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Paths looked for at most: a program may make many that nobody tracks.
pub(super) const MOST: usize = 100_000;
/// Names told at most.
const NAMED: usize = 3;
/// So much is read of all indexes: a hundred thousand files have some ten million bytes.
const LARGEST: u64 = 64 << 20;
/// Parts of a split index that are looked at, of one repository.
const MOST_SHARED: usize = 16;

/// Entries of directories in which these are looked for.
const MOST_ENTRIES: usize = 100_000;

/// What is left to be read, of all repositories.
struct Bounds {
    left: u64,
    entries: usize,
}

/// A sentence for each repository that tracks something of these that is not there.
pub(super) fn missing(taken: &[PathBuf], pass: &Pass) -> Vec<String> {
    let mut repositories: BTreeMap<&Path, Vec<&Path>> = BTreeMap::new();
    // Many may be in one directory.
    let mut known: HashMap<&Path, Option<&Path>> = HashMap::new();
    for path in taken {
        let Some(parent) = path.parent() else { continue };
        let above = *known.entry(parent).or_insert_with(|| {
            parent.ancestors().find(|above| above.join(".git").symlink_metadata().is_ok())
        });
        let relative = above.and_then(|above| Some((above, path.strip_prefix(above).ok()?)));
        let gone = path.symlink_metadata().is_err();
        if let Some((repository, relative)) = relative.filter(|_| gone) {
            repositories.entry(repository).or_default().push(relative);
        }
    }
    let mut bounds = Bounds { left: LARGEST, entries: MOST_ENTRIES };
    let told = |(repository, names): (&Path, Vec<&Path>)| {
        told(repository, &tracked(repository, &names, &mut bounds, pass))
    };
    repositories.into_iter().filter_map(told).collect()
}

/// The directory that the index of a repository's files is in: of a worktree and a submodule it is elsewhere.
fn private(repository: &Path, pass: &Pass) -> Option<PathBuf> {
    let git = repository.join(".git");
    if git.symlink_metadata().ok()?.is_dir() {
        return Some(git);
    }
    let text = pass.read(|| gitread::read(&HostFiles, &git)).bytes()?;
    git_file_target(&text).map(|target| repository.join(target))
}

/// Which of these the index has, or something in them.
fn tracked<'p>(
    repository: &Path,
    names: &[&'p Path],
    bounds: &mut Bounds,
    pass: &Pass,
) -> Vec<&'p Path> {
    let Some(private) = private(repository, pass) else { return Vec::new() };
    let wanted = Wanted::of(names);
    let mut found = vec![false; names.len()];
    let index = private.join("index");
    let hash = git::hash_length(&index, pass);
    // Most of a split one is in another file; the names of older ones are no more than remembered.
    let mut entries = fs::read_dir(&private).into_iter().flatten().flatten();
    // Many repositories may be one by their `.git` files.
    let entries = std::iter::from_fn(|| {
        bounds.entries = bounds.entries.checked_sub(1)?;
        entries.next()
    });
    let shared = entries.filter(|entry| entry.file_name().as_bytes().starts_with(b"sharedindex."));
    let shared: Vec<PathBuf> = shared.map(|entry| entry.path()).take(MOST_SHARED).collect();
    for index in [index].into_iter().chain(shared) {
        let Ok(Some((file, size))) = git::open(&index) else { continue };
        let Some(rest) = bounds.left.checked_sub(size) else { continue };
        bounds.left = rest;
        let mut read_at = |at: u64, bytes: &mut [u8]| file.read_at(bytes, at);
        gitstate::tracked(Content { size, read_at: &mut read_at }, hash, &mut |path| {
            wanted.met(path, &mut |number| found[number] = true);
        });
    }
    names.iter().zip(found).filter(|(_, found)| *found).map(|(name, _)| *name).collect()
}

/// Names by their components, so that a path of an index is gone through once, however many are looked for.
struct Wanted<'p> {
    /// What a component leads to, behind others.
    steps: HashMap<(usize, &'p [u8]), usize>,
    /// Which of the names ends there.
    ends: Vec<Option<usize>>,
}

impl<'p> Wanted<'p> {
    fn of(names: &[&'p Path]) -> Wanted<'p> {
        let mut wanted = Wanted { steps: HashMap::new(), ends: vec![None] };
        for (number, name) in names.iter().enumerate() {
            let mut at = 0;
            for part in name.iter() {
                let next = wanted.ends.len();
                at = *wanted.steps.entry((at, part.as_bytes())).or_insert(next);
                if at == next {
                    wanted.ends.push(None);
                }
            }
            wanted.ends[at] = Some(number);
        }
        wanted
    }

    /// Tells of the names that a path is, or lies below.
    fn met(&self, path: &[u8], tell: &mut dyn FnMut(usize)) {
        let mut at = 0;
        for part in path.split(|byte| *byte == b'/') {
            let Some(&next) = self.steps.get(&(at, part)) else { return };
            at = next;
            if let Some(number) = self.ends[at] {
                tell(number);
            }
        }
    }
}

fn told(repository: &Path, names: &[&Path]) -> Option<String> {
    let (first, more) = names.split_at(names.len().min(NAMED));
    let mut list: Vec<String> = first.iter().map(|name| shown::path(name)).collect();
    list.sort();
    if !more.is_empty() {
        list.push(format!("{} more", more.len()));
    }
    let of = match list.split_last()? {
        (only, []) => only.clone(),
        (last, others) => format!("{} and {last}", others.join(", ")),
    };
    Some(format!(
        "git tracks {of} in {}: bring back what you trust with `git checkout -- NAME`, outside, or the next commit \
         removes it",
        shown::path(repository)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_met_by_whole_components() {
        let names = ["a", "b/c", "b/c/d", "e"].map(Path::new);
        let wanted = Wanted::of(&names);
        let met = |path: &str| {
            let mut all = Vec::new();
            wanted.met(path.as_bytes(), &mut |number| all.push(names[number].to_str()));
            all.into_iter().flatten().collect::<Vec<_>>()
        };
        assert_eq!(met("a"), ["a"]);
        assert_eq!(met("a/x/y"), ["a"]);
        assert_eq!(met("b/c/d/x"), ["b/c", "b/c/d"]);
        for path in ["ab", "b", "b/cd", "c", "x/a", ""] {
            assert_eq!(met(path), [""; 0], "{path}");
        }
    }
}
