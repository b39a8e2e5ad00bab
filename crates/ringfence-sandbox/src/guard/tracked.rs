//! What git's index has of what was taken away: git takes its absence for a removal, and commits that.

use super::git;
use ringfence_policy::gitread::Pass;
use ringfence_policy::gitstate::{self, Content};
use ringfence_policy::shown;
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Paths looked for at most.
pub(super) const MOST: usize = 256;
/// Names told at most.
const NAMED: usize = 3;
/// So much is read of all indexes: a hundred thousand files have some ten million bytes.
const LARGEST: u64 = 64 << 20;

/// A sentence for each repository that tracks something of these that is not there.
pub(super) fn missing(taken: &[PathBuf], pass: &Pass) -> Vec<String> {
    let mut repositories: BTreeMap<&Path, Vec<&Path>> = BTreeMap::new();
    for path in taken {
        let holds =
            |above: &&Path| above.join(".git").symlink_metadata().is_ok_and(|data| data.is_dir());
        let above = path.ancestors().skip(1).find(holds);
        let relative = above.and_then(|above| Some((above, path.strip_prefix(above).ok()?)));
        let gone = path.symlink_metadata().is_err();
        if let Some((repository, relative)) = relative.filter(|_| gone) {
            repositories.entry(repository).or_default().push(relative);
        }
    }
    let mut left = LARGEST;
    let told = |(repository, names): (&Path, Vec<&Path>)| {
        told(repository, &tracked(repository, &names, &mut left, pass))
    };
    repositories.into_iter().filter_map(told).collect()
}

/// Which of these the index has, or something in them.
fn tracked<'p>(
    repository: &Path,
    names: &[&'p Path],
    left: &mut u64,
    pass: &Pass,
) -> Vec<&'p Path> {
    let index = repository.join(".git/index");
    let Ok(Some((file, size))) = git::open(&index) else { return Vec::new() };
    let Some(rest) = left.checked_sub(size) else { return Vec::new() };
    *left = rest;
    let hash = git::hash_length(&index, pass);
    let mut found = vec![false; names.len()];
    let mut read_at = |at: u64, bytes: &mut [u8]| file.read_at(bytes, at);
    gitstate::tracked(Content { size, read_at: &mut read_at }, hash, &mut |path| {
        for (name, found) in names.iter().zip(&mut found) {
            let rest = path.strip_prefix(name.as_os_str().as_bytes());
            *found |= rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/');
        }
    });
    names.iter().zip(found).filter(|(_, found)| *found).map(|(name, _)| *name).collect()
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
