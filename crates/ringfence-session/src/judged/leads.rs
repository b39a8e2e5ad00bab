//! What is named, by its path: what is to be written may be as much, and neither must be gone through for each of the
//! other.

use ringfence_policy::{Guarded, glob};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A file that is named, or a pattern of such, how it is guarded, and by what.
pub(super) type Named = (PathBuf, Guarded, String);

/// All that is named, each once.
#[derive(Default)]
pub(super) struct Leads {
    all: Vec<Named>,
    /// Their numbers by their paths.
    by_path: BTreeMap<PathBuf, Vec<usize>>,
    /// Those of patterns, by what stands before the first component that is one.
    patterns: HashMap<PathBuf, Vec<usize>>,
}

impl Leads {
    /// Those.
    pub fn of(named: Vec<Named>) -> Leads {
        let mut leads = Leads::default();
        for (path, guarded, by) in named {
            let number = leads.all.len();
            let same = leads.by_path.entry(path.clone()).or_default();
            // What several links lead to is one.
            if same.iter().any(|&known| leads.all[known].1 == guarded) {
                continue;
            }
            same.push(number);
            let plain: PathBuf = path.iter().take_while(|part| !is_pattern(part)).collect();
            if plain != path {
                leads.patterns.entry(plain).or_default().push(number);
            }
            leads.all.push((path, guarded, by));
        }
        leads
    }

    /// The first one of those that can have to do with a path for which that is so: those that it is or lies below, or
    /// that match it, and of a link those that lie below it.
    pub fn find(&self, path: &Path, link: bool, is: impl Fn(&Named) -> bool) -> Option<&Named> {
        self.candidates(path, link).into_iter().map(|number| &self.all[number]).find(|one| is(one))
    }

    fn candidates(&self, path: &Path, link: bool) -> BTreeSet<usize> {
        let mut all = BTreeSet::new();
        for above in path.ancestors() {
            let here = [self.by_path.get(above), self.patterns.get(above)];
            all.extend(here.into_iter().flatten().flatten());
        }
        // Of those below one is as good as all: they are together in the order of paths.
        let below = self.by_path.range(path.to_owned()..).next();
        if let Some((_, numbers)) = below.filter(|(at, _)| link && at.starts_with(path)) {
            all.extend(numbers);
        }
        all
    }
}

fn is_pattern(part: &std::ffi::OsStr) -> bool {
    part.as_bytes().iter().any(|byte| matches!(byte, b'*' | b'?'))
}

/// Whether a path is what a pattern stands for, or lies below.
pub(super) fn is_behind(pattern: &Path, path: &Path) -> bool {
    let mut parts = path.iter();
    pattern.iter().all(|pattern| {
        parts.next().is_some_and(|part| glob::name(pattern.as_bytes(), part.as_bytes()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(path: &str, by: usize) -> Named {
        (PathBuf::from(path), Guarded::Plain, by.to_string())
    }

    /// The same as to go through all of them.
    #[test]
    fn nothing_is_missed_that_is_named() {
        let all = ["/w/a", "/w/a/b", "/w/a.c", "/w/*.d", "/w/t/mise.*", "/w/?/x/*", "/v/*", "/"];
        let all: Vec<Named> = all.iter().enumerate().map(|(by, path)| named(path, by)).collect();
        let paths = [
            "/w",
            "/w/a",
            "/w/a/b",
            "/w/a/c",
            "/w/a.c",
            "/w/a.d",
            "/w/a.d/e",
            "/w/t",
            "/w/t/mise.x",
            "/w/t/mise",
            "/w/y/x",
            "/w/y/x/z",
            "/w/yy/x/z",
            "/v",
            "/v/u",
            "/w/*.d",
            "/w/b",
        ];
        // Not with `/`, which all lie below.
        for most in [all.len(), all.len() - 1] {
            let leads = Leads::of(all[..most].to_vec());
            for (path, link) in paths.iter().flat_map(|path| [(*path, false), (*path, true)]) {
                let path = Path::new(path);
                let is = |(at, ..): &Named| is_behind(at, path) || link && at.starts_with(path);
                let plain = all[..most].iter().any(is);
                assert_eq!(
                    leads.find(path, link, is).is_some(),
                    plain,
                    "{} {link}",
                    path.display()
                );
            }
        }
    }

    /// As many links as a run may leave, which lead to one directory or to many.
    #[test]
    fn what_has_nothing_to_do_with_a_path_is_not_looked_at() {
        let one = (0..10_000).flat_map(|by| [named("/w/t/mise.*", by), named("/w/t/config", by)]);
        let many = (0..10_000).map(|by| named(&format!("/w/{by}/mise.*"), by));
        let leads = Leads::of(one.chain(many).collect());
        for (path, most) in [("/w/f", 0), ("/w/t/f", 1), ("/w/t/config", 2), ("/w/7/f", 1)] {
            for link in [false, true] {
                let number = leads.candidates(Path::new(path), link).len();
                assert!(number <= most, "{path} {link}: {number}");
            }
        }
        assert_eq!(leads.candidates(Path::new("/w"), true).len(), 1);
    }
}
