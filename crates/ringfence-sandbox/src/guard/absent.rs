//! Protected names that were not there: what a path is to them, and which names count in a directory.

use super::{Guarding, changed};
use crate::plan::{Found, GuardedTree, MountOp, Plan};
use crate::planner::glob;
use ringfence_policy::Guarded;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// A protected name that was not there: the directory that was, and the way from it.
pub(super) struct Absent {
    pub base: PathBuf,
    pub way: Vec<OsString>,
    pub guarded: Guarded,
    /// There may have been others that match, which nobody has counted: only those count that the run made or changed.
    pub new: bool,
}

/// Those of all trees, found by where they are: to a path only those can be anything whose base it is, or is in, and of
/// these there are no more where there are more trees.
#[derive(Default)]
pub(super) struct Names {
    all: Vec<Absent>,
    /// Their places in the list.
    by_base: BTreeMap<PathBuf, Vec<usize>>,
}

impl Names {
    pub fn push(&mut self, absent: Absent) {
        self.by_base.entry(absent.base.clone()).or_default().push(self.all.len());
        self.all.push(absent);
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// From where they are watched for, each once.
    pub fn bases(&self) -> impl Iterator<Item = &Path> {
        self.by_base.keys().map(PathBuf::as_path)
    }

    /// Those to which a path may be something, in the order of the list.
    pub fn around(&self, path: &Path) -> impl Iterator<Item = &Absent> {
        let bases = path.ancestors().filter_map(|base| self.by_base.get(base));
        let mut places: Vec<usize> = bases.flatten().copied().collect();
        places.sort_unstable();
        places.into_iter().map(|place| &self.all[place])
    }
}

impl FromIterator<Absent> for Names {
    fn from_iter<T: IntoIterator<Item = Absent>>(all: T) -> Names {
        let mut names = Names::default();
        all.into_iter().for_each(|absent| names.push(absent));
        names
    }
}

/// What a path is to the protected names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    /// Nothing.
    Free,
    /// A directory on the way to one.
    OnTheWay,
    /// One of them, or something in it.
    Protected,
}

/// How many there can be of what a path is; the fewest are looked at first, as who floods us chooses the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// The list says how many: a name without a pattern, or a directory on the way to one.
    Known,
    /// As many as one likes match a pattern.
    Matched,
    /// As many as one likes are in a protected directory.
    Inside,
}

/// Which names count in a directory.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    /// How many such directories there can be; none where no name in it counts.
    pub rank: Option<Rank>,
    /// It is protected itself: all names count.
    pub all: bool,
    pub plain: HashSet<OsString>,
    pub patterns: Vec<OsString>,
}

impl Wanted {
    /// Of those names, in that directory.
    pub fn of(all: &Names, directory: &Path) -> Wanted {
        let mut wanted = Wanted::default();
        for absent in all.around(directory) {
            let (standing, rank) = absent.standing(directory);
            let program = absent.guarded == Guarded::Program;
            if standing == Standing::Free || standing == Standing::Protected && program {
                continue;
            }
            let most = wanted.rank.map_or(rank, |known| known.min(rank));
            wanted.rank = Some(most);
            wanted.all |= standing == Standing::Protected;
            let below = directory.strip_prefix(&absent.base).map_or(0, |way| way.iter().count());
            match absent.way.get(below) {
                Some(name) if is_pattern(name) => wanted.also(name),
                Some(name) => drop(wanted.plain.insert(name.clone())),
                None => {}
            }
        }
        wanted
    }

    fn also(&mut self, pattern: &OsString) {
        if !self.patterns.contains(pattern) {
            self.patterns.push(pattern.clone());
        }
    }

    /// What a name in the directory is.
    pub fn rank(&self, name: &OsStr) -> Option<Rank> {
        let here = self.rank?;
        match self.all {
            true => Some(Rank::Inside),
            false if self.plain.contains(name) => Some(here),
            false => self.matches(name).then_some(Rank::Matched),
        }
    }

    /// Whether a name matches a pattern.
    pub fn matches(&self, name: &OsStr) -> bool {
        self.patterns.iter().any(|pattern| matches(pattern, name))
    }
}

impl Guarding {
    /// The names that can be told by themselves.
    pub(super) fn absent(&self) -> Names {
        let mut all = Names::default();
        for tree in &self.trees {
            // Those that begin with a pattern are looked for at the top as well, and may have been there.
            let wild = tree.nested.iter().filter(|(name, _)| begins_wild(name));
            let names = tree.absent.iter().map(|name| (name, false));
            for ((name, guarded), new) in names.chain(wild.map(|name| (name, true))) {
                if told(*guarded)
                    && let Some(way) = way(Path::new(name.as_ref()))
                {
                    all.push(Absent { base: tree.tree.clone(), way, guarded: *guarded, new });
                }
            }
        }
        let steps = self.steps.iter().map(|(step, _)| step);
        for step in steps.filter(|step| step.found == Found::Absent && told(step.guarded)) {
            if let Some((base, way)) = self.base(&step.path) {
                all.push(Absent { base, way, guarded: step.guarded, new: false });
            }
        }
        all
    }

    /// From where a path is watched for: the top of its tree, which nobody inside can put another in place of, as he can
    /// of a directory in it. Elsewhere, or where a name reads as a pattern, the last directory that is there.
    pub(super) fn base(&self, path: &Path) -> Option<(PathBuf, Vec<OsString>)> {
        let tops = self.trees.iter().map(|tree| tree.tree.as_path());
        let top = tops.filter(|top| path.starts_with(top)).max_by_key(|top| top.as_os_str().len());
        let plain =
            |top: &&Path| path.strip_prefix(top).is_ok_and(|way| !way.iter().any(is_pattern));
        let there = || path.ancestors().skip(1).find(|path| path.is_dir());
        let base = top.filter(plain).or_else(there)?;
        Some((base.to_owned(), way(path.strip_prefix(base).ok()?)?))
    }

    /// Whether what begins with a pattern was made or changed in the run, and is none that a mount holds or a rule grants.
    pub(super) fn is_new(&self, name: &Path) -> bool {
        let of = |tree: &GuardedTree| name.starts_with(&tree.tree) && tree.is_lifted(name);
        !self.is_held(name)
            && !self.trees.iter().any(of)
            && name.symlink_metadata().is_ok_and(|data| changed(&data) >= self.since)
    }

    /// Whether a mount holds it, which begins with a pattern; others are known by their paths.
    pub(super) fn is_held(&self, name: &Path) -> bool {
        self.held.contains(name) && !self.is_removed(name)
    }
}

/// The names of a relative path; nothing where it has others.
fn way(path: &Path) -> Option<Vec<OsString>> {
    let names = path.components().map(|one| match one {
        Component::Normal(name) => Some(name.to_owned()),
        _ => None,
    });
    names.collect::<Option<Vec<_>>>().filter(|way| !way.is_empty())
}

/// Those that a mount holds, at the top of a tree, whose name begins with a pattern.
pub(super) fn held(plan: &Plan) -> BTreeSet<PathBuf> {
    let protects = plan.mounts.iter().filter(|step| step.op == MountOp::Protect);
    let wild = |path: &&Path| {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return false };
        let mut trees = plan.guarded_trees.iter().filter(|tree| tree.tree == parent);
        trees.any(|tree| {
            let patterns = tree.nested.iter().filter(|(pattern, _)| begins_wild(pattern));
            patterns.into_iter().any(|(pattern, _)| matches(OsStr::new(pattern.as_ref()), name))
        })
    };
    protects.map(|step| &*step.path).filter(wild).map(Path::to_owned).collect()
}

/// Whether what is judged so is told by its name; else it has to be read, which waits for the end.
pub(super) fn told(guarded: Guarded) -> bool {
    matches!(guarded, Guarded::Plain | Guarded::GitHooks | Guarded::Program)
}

/// Whether a name of the list begins with a pattern.
pub(super) fn begins_wild(name: &str) -> bool {
    name.split('/').next().is_some_and(|first| is_pattern(OsStr::new(first)))
}

impl Absent {
    /// The protected name itself.
    pub fn name(&self, path: &Path) -> Option<PathBuf> {
        let relative = path.strip_prefix(&self.base).ok()?;
        Some(self.base.join(relative.iter().take(self.way.len()).collect::<PathBuf>()))
    }

    /// Of what is below a path on the way to it, the names that say where it is, and the pattern behind them, if there is
    /// one.
    pub fn below(&self, path: &Path) -> Option<(PathBuf, Option<&OsStr>)> {
        let relative = path.strip_prefix(&self.base).ok()?;
        let on_the_way = self.standing(path).0 == Standing::OnTheWay;
        let mut rest = self.way.iter().skip(relative.iter().count()).peekable();
        let mut plain = PathBuf::new();
        while let Some(name) = rest.next_if(|name| !is_pattern(name)) {
            plain.push(name);
        }
        on_the_way.then(|| (plain, rest.next().map(OsString::as_os_str)))
    }

    /// What a path is to it, and how many there can be of such.
    pub fn standing(&self, path: &Path) -> (Standing, Rank) {
        let free = (Standing::Free, Rank::Known);
        let Ok(relative) = path.strip_prefix(&self.base) else { return free };
        let mut components = relative.components().map(Component::as_os_str);
        let mut rank = Rank::Known;
        for wanted in &self.way {
            match components.next() {
                None => return (Standing::OnTheWay, rank),
                Some(name) if !matches(wanted, name) => return free,
                Some(_) if is_pattern(wanted) => rank = Rank::Matched,
                Some(_) => {}
            }
        }
        let sample = |name: &OsStr| name.as_bytes().ends_with(b".sample");
        match components.next() {
            Some(name) if self.guarded == Guarded::GitHooks && sample(name) => free,
            // A directory is no program.
            Some(_) if self.guarded == Guarded::Program => free,
            Some(_) => (Standing::Protected, Rank::Inside),
            None => (Standing::Protected, rank),
        }
    }
}

pub(super) fn matches(wanted: &OsStr, name: &OsStr) -> bool {
    name == wanted || (is_pattern(wanted) && glob(wanted.as_bytes(), name.as_bytes()))
}

pub(super) fn is_pattern(name: &OsStr) -> bool {
    name.as_bytes().iter().any(|byte| matches!(byte, b'*' | b'?'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn absent(way: &[&str], guarded: Guarded) -> Absent {
        let way = way.iter().map(OsString::from).collect();
        Absent { base: PathBuf::from("/p"), way, guarded, new: false }
    }

    #[test]
    fn a_name_and_what_is_in_it_is_protected_and_its_neighbours_are_free() {
        let of = |absent: &Absent, path: &str| absent.standing(Path::new(path)).0;
        let plain = absent(&[".a", "b*"], Guarded::Plain);
        assert!(
            of(&plain, "/p") == Standing::OnTheWay && of(&plain, "/p/.a") == Standing::OnTheWay
        );
        for path in ["/p/.a/b", "/p/.a/bc", "/p/.a/b/deep/er"] {
            assert!(of(&plain, path) == Standing::Protected, "{path}");
        }
        for path in ["/p/a", "/p/.a/c", "/q/.a/b", "/"] {
            assert!(of(&plain, path) == Standing::Free, "{path}");
        }
        let hooks = absent(&[".git", "hooks"], Guarded::GitHooks);
        assert!(of(&hooks, "/p/.git/hooks/pre-commit") == Standing::Protected);
        assert!(of(&hooks, "/p/.git/hooks/pre-commit.sample") == Standing::Free);
        let program = absent(&["tools", "x"], Guarded::Program);
        assert!(of(&program, "/p/tools/x") == Standing::Protected);
        assert!(of(&program, "/p/tools/x/in") == Standing::Free, "a directory is no program");
    }

    #[test]
    fn of_many_trees_only_those_around_a_path_are_looked_at() {
        let names = ["a", "b/*"];
        let of = |base: &str| {
            names.map(|name| Absent {
                base: PathBuf::from(base),
                way: name.split('/').map(OsString::from).collect(),
                guarded: Guarded::Plain,
                new: false,
            })
        };
        let trees: Vec<String> = (0..1000).map(|tree| format!("/p/{tree}")).collect();
        let inner = ["/p/7/inner".to_owned(), "/".to_owned()];
        let all: Names = trees.iter().chain(&inner).flat_map(|tree| of(tree)).collect();
        assert_eq!(all.bases().count(), 1002);
        for (path, looked_at) in
            [("/p/8/a", 4), ("/p/8", 4), ("/p/7/inner/b/c", 6), ("/p", 2), ("/p/70000", 2)]
        {
            let around: Vec<&Absent> = all.around(Path::new(path)).collect();
            assert_eq!(around.len(), looked_at, "{path}");
            // Nothing is missed.
            let stands = |absent: &&Absent| absent.standing(Path::new(path)).0 != Standing::Free;
            let of_all = all.all.iter().filter(stands).count();
            assert_eq!(around.into_iter().filter(stands).count(), of_all, "{path}");
        }
    }

    #[test]
    fn what_can_be_many_is_told_from_what_can_not() {
        let all = [
            absent(&["x", "*", "y"], Guarded::Plain),
            absent(&[".a"], Guarded::Plain),
            absent(&["*.b"], Guarded::Plain),
            absent(&[".c", "d"], Guarded::Plain),
        ];
        let all: Names = all.into_iter().collect();
        let rank = |at: &str, name: &str| Wanted::of(&all, Path::new(at)).rank(OsStr::new(name));
        for (at, name, of) in [
            ("/p", ".a", Some(Rank::Known)),
            ("/p", ".c", Some(Rank::Known)),
            ("/p", "x", Some(Rank::Known)),
            ("/p", "1.b", Some(Rank::Matched)),
            ("/p", "free", None),
            ("/p/.c", "d", Some(Rank::Known)),
            ("/p/.c", "e", None),
            ("/p/.a", "any", Some(Rank::Inside)),
            ("/p/.a/deep", "any", Some(Rank::Inside)),
            ("/p/1.b", "any", Some(Rank::Inside)),
            ("/p/x", "any", Some(Rank::Matched)),
            ("/p/x/any", "y", Some(Rank::Matched)),
            ("/p/x/any", "z", None),
            ("/q", ".a", None),
        ] {
            assert_eq!(rank(at, name), of, "{at}/{name}");
        }
    }
}
