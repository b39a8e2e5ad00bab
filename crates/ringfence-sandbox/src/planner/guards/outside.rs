//! What lies outside of every writable tree and leads into one: protected names of the home that are links, as those who keep
//! their dotfiles in a repository make them, and the user's own git configuration, which names files. Who writes
//! what that leads to writes what a login, an editor or git runs.

use super::{Top, Wanted, built_in_name, first};
use crate::facts::Kind;
use crate::planner::links;
use crate::planner::named::{self, Repository};
use ringfence_policy::gitnamed::Base;
use ringfence_policy::protect::{HOME, JUDGED, LINKED_IN, NAMES, is_of_programs};
use ringfence_policy::{Guarded, git_variables};
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// What is left of a protected name below some directory, how it is guarded, and the whole name; whether the links count that
/// are there ([`LINKED_IN`], and what the list holds whole), not the name itself.
type Below<'a> = (&'a str, Guarded, &'a str, bool);

/// What a name that ends with a pattern stands for, as far as tools have settings so: a directory of the home changes all
/// the time, and a start depends on what is looked for in it.
const ENDINGS: [&str; 6] = ["toml", "local.toml", "yml", "yaml", "json", "jsonc"];

/// A name, or those that one with a pattern at its end stands for.
fn endings(name: &'static str) -> impl Iterator<Item = Cow<'static, str>> {
    let pattern = name.strip_suffix('*').filter(|stem| !stem.contains('*'));
    let all = pattern.map(|stem| ENDINGS.map(|ending| Cow::Owned(format!("{stem}{ending}"))));
    let itself = all.is_none().then_some(Cow::Borrowed(name));
    all.into_iter().flatten().chain(itself)
}

/// Whether two names have the same first component.
fn begins_alike(one: &str, other: &str) -> bool {
    let alike = one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b && *a != b'/').count();
    let ends = |name: &str| name.as_bytes().get(alike).is_none_or(|&byte| byte == b'/');
    ends(one) && ends(other)
}

/// What names are sorted by, as by their bytes: the beginning as a number, which tells most of them apart, and the rest. No
/// name has a zero byte.
fn in_order(name: &str) -> (u64, &[u8]) {
    let (start, rest) = name.as_bytes().split_at(name.len().min(8));
    let mut eight = [0; 8];
    eight[..start.len()].copy_from_slice(start);
    (u64::from_be_bytes(eight), rest)
}

impl Wanted<'_, '_> {
    /// Protects what is led to from outside, if anything is writable.
    pub(super) fn led_to_from_outside(&mut self) {
        let trees = self.trees();
        if trees.is_empty() {
            return;
        }
        let policy = self.planning.policy;
        for file in &policy.git_files {
            if let Some(real) = links::real(self.planning.paths, file) {
                // As a whole: what is harmless in a repository's is not in the user's (`url.….insteadOf`).
                self.add_real(real, Guarded::Plain, &built_in_name("git's configuration"));
            }
        }
        let homes = [Some(&policy.home_dir), policy.account_home.as_ref()];
        let mut homes: Vec<&PathBuf> = homes.into_iter().flatten().collect();
        homes.dedup();
        // Somebody without a home has none of this.
        for home in homes.into_iter().filter(|home| home.parent().is_some()) {
            self.of_home(home);
        }
        for tree in &trees {
            self.configured(Repository {
                files: policy.git_files.clone(),
                objects: tree.join(".git/objects"),
                worktree: tree.clone(),
            });
            self.by_variables(tree);
        }
    }

    /// What variables of the caller's have git run, from a tree.
    fn by_variables(&mut self, tree: &Path) {
        let planning = self.planning;
        let home = |user: &str| named::home(planning, user);
        let program = |path: &Path| planning.paths.program(path);
        let base = Base { file: tree, worktree: tree, home: &home, program: &program };
        for (name, value) in &planning.policy.git_variables {
            for (path, guarded) in git_variables::names(name, value, &base) {
                self.add_named(path, guarded, &built_in_name(name));
            }
        }
    }

    fn of_home(&mut self, home: &Path) {
        let judged = JUDGED.iter().map(|(name, guarded, _)| (*name, *guarded));
        let listed = HOME.iter().map(|(name, _)| (*name, Guarded::Plain));
        // In what the list holds whole managers of dotfiles link files one by one.
        let whole = HOME.iter().filter(|(name, reason)| !is_of_programs(name, reason));
        let whole = whole.map(|(name, _)| *name).filter(|name| !name.starts_with(".local/"));
        let settings = NAMES.iter().map(|entry| entry.name);
        let settings = settings.filter(|name| name.starts_with(".config/") && !name.contains('*'));
        let whole = whole.chain(settings);
        let named = NAMES.iter().map(|entry| (entry.name, entry.guarded));
        // Patterns in a repository are not for a home's.
        let all = judged
            .chain(listed)
            .chain(named)
            .filter(|(name, _)| !name.starts_with(".git/") || !name.contains('*'));
        let all: Vec<_> = all
            .flat_map(|(name, guarded)| {
                endings(name).map(move |as_found| (as_found, guarded, name))
            })
            .collect();
        let all = all.iter().map(|(as_found, guarded, name)| (&**as_found, *guarded, *name, false));
        let parts = LINKED_IN.iter().copied().chain(whole);
        let parts = parts.map(|name| (name, Guarded::Plain, name, true));
        self.below(home, all.chain(parts).collect());
    }

    /// Looks for names below a directory without links, one level after the other.
    fn below(&mut self, directory: &Path, mut names: Vec<Below<'_>>) {
        if self.tree(directory).is_some() {
            // All that is there leads into the tree, what is made there later too.
            for (rest, guarded, name, part) in names {
                // At the top of a tree it is looked for as in others.
                if rest.starts_with('*') {
                    continue;
                }
                let path = directory.join(rest);
                if !part {
                    self.listed.insert(path.clone());
                    self.add_led_to(path, guarded, &built_in_name(name));
                } else if self.planning.paths.kind(&path) == Kind::Directory {
                    self.links_in(&path, name);
                }
            }
            return;
        }
        // They are hundreds: each is taken apart once.
        names.sort_by_cached_key(|&(rest, ..)| in_order(first(rest)));
        let groups: Vec<(&str, &[Below<'_>])> = names
            .chunk_by(|one, other| begins_alike(one.0, other.0))
            .map(|same| (first(same[0].0), same))
            .collect();
        let firsts: Vec<&str> = groups.iter().map(|(part, _)| *part).collect();
        let mut top = Top::of(self.planning.paths, directory, &firsts);
        for (part, same) in groups {
            if part.starts_with('*') {
                for found in top.matching(part) {
                    self.at(&directory.join(found), same);
                }
            } else if top.has(part) {
                self.at(&directory.join(part), same);
            }
        }
    }

    /// What names lead to whose next component is at a path.
    fn at(&mut self, path: &Path, names: &[Below<'_>]) {
        let linked = match self.planning.paths.kind(path) {
            Kind::Absent => return,
            Kind::File | Kind::Directory => None,
            Kind::Symlink(_) => match links::real(self.planning.paths, path) {
                Some(real) => {
                    // What is in a directory is led to by them as well.
                    if let Some((_, _, name, _)) = names.first() {
                        self.add_links(&real, &built_in_name(name));
                    }
                    Some(real.path)
                }
                // A circle of links leads to nothing.
                None => return,
            },
        };
        let path = linked.as_deref().unwrap_or(path);
        let mut deeper = Vec::new();
        for &(rest, guarded, name, part) in names {
            match rest.split_once('/') {
                Some((_, rest)) => deeper.push((rest, guarded, name, part)),
                None if linked.is_some() => {
                    self.add_led_to(path.to_owned(), guarded, &built_in_name(name));
                }
                None => {}
            }
        }
        let ends = |(rest, .., part): &&Below<'_>| *part && !rest.contains('/');
        let is_directory = || self.planning.paths.kind(path) == Kind::Directory;
        if let Some((_, _, name, _)) = names.iter().find(ends).filter(|_| is_directory()) {
            self.links_in(path, name);
        }
        if !deeper.is_empty() {
            self.below(path, deeper);
        }
    }

    /// Where the links in a directory lead.
    fn links_in(&mut self, directory: &Path, name: &str) {
        for link in self.links_of(directory) {
            if let Some(real) = links::real(self.planning.paths, &link) {
                self.add_real(real, Guarded::Plain, &built_in_name(name));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_the_order_of_their_bytes() {
        let names =
            ["", ".", ".a", ".abcdef", ".abcdefg", ".abcdefgh", ".abcdefgi", ".b", "é", "aé"];
        for one in names {
            for other in names {
                assert_eq!(in_order(one).cmp(&in_order(other)), one.cmp(other), "{one} {other}");
            }
        }
    }

    #[test]
    fn names_begin_alike_whose_first_components_are_the_same() {
        let names = ["", ".a", ".a/b", ".a/c", ".ab", ".ab/c", "b", "b/.a"];
        for one in names {
            for other in names {
                assert_eq!(begins_alike(one, other), first(one) == first(other), "{one} {other}");
            }
        }
    }
}
