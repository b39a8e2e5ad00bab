//! Which trees are granted, after redundant and denied ones are taken out.

use super::Planning;
use super::view::PRIVATE;
use crate::facts::{Kind, PathFacts};
use crate::plan::Tier;
use ringfence_policy::path::within;
use ringfence_policy::protect::{GIT_DEEPEST, GIT_INNARDS};
use ringfence_policy::{Access, Home, Policy, Source, denied, protected_whole};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A granted tree or file.
#[derive(Clone, Debug)]
pub(super) struct Grant {
    pub write: bool,
    pub directory: bool,
    pub rule: Source,
}

/// A denied path that lies inside a granted tree.
#[derive(Clone, Debug)]
pub(super) struct Denial {
    pub path: PathBuf,
    pub kind: Kind,
    /// A link that leads to what is not denied: nothing is to be had by its name. Other links are held, so
    /// that they go on leading to what is.
    pub closed: bool,
    pub rule: Source,
}

/// The granted trees, parents before children, and the holes in them.
#[derive(Clone, Debug, Default)]
pub(super) struct Grants {
    pub trees: BTreeMap<PathBuf, Grant>,
    pub denials: Vec<Denial>,
    /// Directories in them that are shown by their parts: what is below one is granted only by
    /// a tree that is there as well.
    pub covers: BTreeMap<PathBuf, Source>,
    /// Symbolic links of trees that are granted by their parts.
    pub links: BTreeMap<PathBuf, PathBuf>,
    /// Directories of the sandbox's own in trees of the host's: what is granted around one does not show what the host
    /// has there, nor is that written to. (Where all of the host is granted, the view's own steps see to it.)
    pub own: Vec<PathBuf>,
    /// Directories that are granted for writing by themselves and lie in a writable tree: names are protected in each of
    /// them as in a tree.
    pub inside: Vec<PathBuf>,
}

impl Grants {
    pub fn of(planning: &Planning<'_>, tier: Tier) -> Grants {
        let Planning { policy, paths, .. } = planning;
        let mut grants = Grants::default();
        // A socket that is seen can be connected to: a read-only mount does not stop that.
        for rule in policy.paths.iter().chain(&policy.network.sockets) {
            let write = match rule.access {
                Access::Write => true,
                Access::Read => false,
                Access::Deny | Access::Protect => continue,
            };
            let directory = match paths.kind(&rule.path) {
                Kind::Absent | Kind::Symlink(_) => continue,
                Kind::File => false,
                Kind::Directory => true,
            };
            let entry = grants.trees.entry(rule.path.clone());
            let grant =
                entry.or_insert_with(|| Grant { write, directory, rule: rule.source.clone() });
            if write && !grant.write {
                *grant = Grant { write, directory, rule: rule.source.clone() };
            }
        }
        let denied = |path: &Path| {
            policy.paths.iter().any(|rule| {
                rule.access == Access::Deny && rule.pattern.is_none() && within(path, &rule.path)
            })
        };
        grants.trees.retain(|path, _| !denied(path));
        // What is protected is never written: a tree of it is there to be read.
        for (path, grant) in grants.trees.iter_mut().filter(|(_, grant)| grant.write) {
            if let Some(rule) = protected_whole(policy, path) {
                *grant = Grant { write: false, rule: rule.source.clone(), ..*grant };
            }
        }
        let hidden = grants.hidden(policy);
        grants.drop_redundant(policy, &hidden);
        grants.mask_sockets(planning, tier, hidden);
        grants.find_denials(planning);
        grants
    }

    /// What the user should know of what is granted for writing, and protected whole.
    pub fn told(&self, policy: &Policy) -> Option<String> {
        let mut wanted = policy.paths.iter().filter(|rule| rule.access == Access::Write);
        let (tree, rule) = wanted.find_map(|rule| {
            let grant = self.trees.get(&rule.path).filter(|grant| !grant.write)?;
            let around = protected_whole(policy, &rule.path)?;
            (grant.rule == around.source).then_some((&rule.path, around))
        })?;
        Some(format!(
            "{} is read-only: {} protects it whole",
            ringfence_policy::shown::path(tree),
            crate::text::source(&rule.source)
        ))
    }

    /// The innermost granted tree that covers a path.
    pub fn covering(&self, path: &Path) -> Option<(&Path, &Grant)> {
        let (tree, grant) = self.innermost(path)?;
        // In a covered directory, or one of the sandbox's own, it would have to be nearer.
        let covered = |cover: &PathBuf| {
            cover.as_os_str().len() > tree.as_os_str().len() && within(path, cover)
        };
        (!self.covers.keys().chain(&self.own).any(covered)).then_some((tree, grant))
    }

    /// Notes which directories are the sandbox's own, in the tier that can show them: none that is granted itself.
    pub fn note_own(&mut self, policy: &Policy) {
        let own = own_directories(policy).map(Path::to_path_buf);
        let in_a_tree = |path: &PathBuf| {
            let tree = self.covering(path);
            tree.is_some_and(|(tree, _)| tree != path && tree.parent().is_some())
        };
        self.own = own.filter(in_a_tree).collect();
    }

    /// The nearest tree above a path: the last one before it in their order, or one above what the two have in common.
    fn innermost(&self, path: &Path) -> Option<(&Path, &Grant)> {
        let mut at = path;
        loop {
            let until = (Bound::Unbounded, Bound::Included(at));
            let (tree, grant) = self.trees.range::<Path, _>(until).next_back()?;
            if within(at, tree) {
                return Some((tree, grant));
            }
            at = at.ancestors().skip(1).find(|above| within(tree, above))?;
        }
    }

    /// A grant below another one of at least the same strength adds nothing, but where a directory of the sandbox's own, or
    /// one that is hidden, lies between the two.
    fn drop_redundant(&mut self, policy: &Policy, hidden: &[PathBuf]) {
        let own: Vec<&Path> =
            own_directories(policy).chain(hidden.iter().map(PathBuf::as_path)).collect();
        let all = self.clone();
        let inside = &mut self.inside;
        self.trees.retain(|path, grant| {
            let above = all.covering_kept(path, &own);
            let kept = above.is_none_or(|above| grant.write && !above.write);
            if !kept && grant.write && grant.directory {
                inside.push(path.clone());
            }
            kept
        });
    }

    /// As `covering`, of what is above a path, but a write grant anywhere there beats a read grant nearer by: read
    /// grants never narrow.
    fn covering_kept(&self, path: &Path, own: &[&Path]) -> Option<&Grant> {
        let mut found: Option<&Grant> = None;
        for (below, ancestor) in path.ancestors().zip(path.ancestors().skip(1)) {
            // What is granted around a directory of the sandbox's own does not show the host's in it.
            if own.contains(&below) {
                break;
            }
            if let Some(grant) = self.trees.get(ancestor) {
                if grant.write {
                    return Some(grant);
                }
                found = found.or(Some(grant));
            }
        }
        found
    }

    fn find_denials(&mut self, planning: &Planning<'_>) {
        for rule in planning.policy.paths.iter().filter(|rule| rule.access == Access::Deny) {
            let matches = match &rule.pattern {
                None => vec![rule.path.clone()],
                // Refused where the guards are planned.
                Some(pattern) if pattern.split('/').any(|part| part == "**") => Vec::new(),
                Some(pattern) => expand(planning.paths, &rule.path, pattern),
            };
            for path in matches {
                self.deny(planning, path, &rule.source);
            }
        }
        self.denials.sort_by(|a, b| a.path.cmp(&b.path).then(b.closed.cmp(&a.closed)));
        self.denials.dedup_by(|a, b| a.path == b.path);
        // In a directory that is covered as a whole there is nothing left to cover.
        let whole = |denial: &&Denial| denial.kind == Kind::Directory;
        let whole: BTreeSet<PathBuf> =
            self.denials.iter().filter(whole).map(|denial| denial.path.clone()).collect();
        let within = |path: &Path| path.ancestors().skip(1).any(|above| whole.contains(above));
        self.denials.retain(|denial| !within(&denial.path));
    }

    /// A hole at a path. What links in a granted tree lead to has a rule of its own, and so a hole of its
    /// own; but for what a wildcard found and a program may have made.
    fn deny(&mut self, planning: &Planning<'_>, path: PathBuf, rule: &Source) {
        let Some(tree) = self.covering(&path).map(|(tree, _)| tree.to_owned()) else { return };
        let mut hole = |path, kind, closed| {
            self.denials.push(Denial { path, kind, closed, rule: rule.clone() });
        };
        let below = path.ancestors().take_while(|above| *above != tree);
        let links = below.filter(|above| matches!(planning.paths.kind(above), Kind::Symlink(_)));
        let Some(first) = links.last().map(Path::to_owned) else {
            let kind = planning.paths.kind(&path);
            return hole(path, kind, false);
        };
        match super::links::real(planning.paths, &path) {
            Some(real) if real.exists && !denied(planning.policy, &real.path) => {
                hole(first.clone(), planning.paths.kind(&first), true);
            }
            Some(real) => {
                for (link, target) in real.links {
                    hole(link, Kind::Symlink(target), false);
                }
            }
            // A circle leads to nothing.
            None => hole(first.clone(), planning.paths.kind(&first), false),
        }
    }
}

/// Sockets behind which a host program does anything it is asked: hidden inside granted trees
/// unless named by `--allow-socket`.
const SOCKETS_OF_POWER: [&str; 14] = [
    "/run/docker.sock",
    "/run/podman/podman.sock",
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/buildkit/buildkitd.sock",
    "/run/lxd.socket",
    "/run/snapd.socket",
    "/run/libvirt",
    "/run/dbus/system_bus_socket",
    "/run/systemd/private",
    "/run/systemd/userdb",
    "/run/systemd/resolve/io.systemd.Resolve",
    "/run/user",
    "/tmp/.X11-unix",
];

/// Entries of a granted directory among which sockets are looked for.
const MOST_ENTRIES: usize = 1024;

/// Why they are hidden.
pub fn hidden_sockets() -> Source {
    super::built_in("sockets that act for whoever asks (--allow-socket)")
}

impl Grants {
    /// Those that lie in a granted tree, and are not granted themselves. What is granted below one is the user's own word
    /// about just that.
    fn hidden(&self, policy: &Policy) -> Vec<PathBuf> {
        let named = |path: &Path| policy.network.sockets.iter().any(|rule| rule.path == path);
        let hidden = |path: &PathBuf| {
            !self.trees.contains_key(path) && !named(path) && self.covering(path).is_some()
        };
        SOCKETS_OF_POWER.map(PathBuf::from).into_iter().filter(hidden).collect()
    }

    fn mask_sockets(&mut self, planning: &Planning<'_>, tier: Tier, hidden: Vec<PathBuf>) {
        for path in hidden {
            let kind = planning.paths.kind(&path);
            let parts = self.trees.keys().any(|tree| is_below(tree, &path));
            if parts && kind == Kind::Directory && tier == Tier::Namespace {
                self.covers.insert(path, hidden_sockets());
            } else {
                self.denials.push(Denial { path, kind, closed: false, rule: hidden_sockets() });
            }
        }
        // A read grant of the user's own: a read-only mount does not stop connecting to what
        // listens in it. Further down nobody looks: a start must not walk trees.
        let read = self.trees.iter().filter(|(_, grant)| !grant.write && grant.directory);
        let system = |origin: &str| matches!(origin, "profile default" | "profile program");
        let own = read.filter(|(_, grant)| !system(&grant.rule.origin));
        let looked = own.flat_map(|(tree, _)| runtime(planning.paths, tree));
        let sockets = looked.flat_map(|place| planning.paths.sockets(&place, MOST_ENTRIES));
        let named =
            |path: &PathBuf| planning.policy.network.sockets.iter().any(|rule| rule.path == *path);
        let hidden: Vec<Denial> = sockets
            .filter(|path| !named(path))
            .map(|path| Denial { path, kind: Kind::File, closed: false, rule: hidden_sockets() })
            .collect();
        self.denials.extend(hidden);
    }
}

/// The directories that are the sandbox's own, but where they are granted themselves.
fn own_directories(policy: &Policy) -> impl Iterator<Item = &Path> {
    let home = (policy.home != Home::Host).then_some(&*policy.home_dir);
    PRIVATE.into_iter().map(|(path, _)| Path::new(path)).chain(home)
}

fn is_below(path: &Path, tree: &Path) -> bool {
    path != tree && within(path, tree)
}

/// Where sockets are looked for in a granted tree: in itself, and in a user's runtime directory in those that its services
/// have (`systemd/private`, `gnupg/S.gpg-agent`, `keyring/ssh`).
fn runtime(paths: &dyn PathFacts, tree: &Path) -> Vec<PathBuf> {
    const USERS: &str = "/run/user";
    /// Users, and directories of each.
    const MOST: usize = 64;
    let mut looked = vec![tree.to_owned()];
    let deep =
        tree.strip_prefix(USERS).map(|below| 3_usize.saturating_sub(below.components().count()));
    for _ in 0..deep.unwrap_or_default() {
        let names = |above: &PathBuf| {
            let above = above.clone();
            paths.list(&above).into_iter().take(MOST).map(move |name| above.join(name))
        };
        let below: Vec<PathBuf> = looked.iter().flat_map(names).collect();
        let new = below.into_iter().filter(|path| paths.kind(path) == Kind::Directory);
        let new: Vec<PathBuf> = new.filter(|path| !looked.contains(path)).collect();
        looked.extend(new);
    }
    looked
}

/// The existing paths that a pattern names below an anchor. Each `*` costs one directory listing,
/// and `**`, which only the built-in names have, one for each directory that may be a repository's.
pub(crate) fn expand(paths: &dyn PathFacts, anchor: &Path, pattern: &str) -> Vec<PathBuf> {
    expanded(paths, anchor, pattern, &mut Vec::new())
}

/// The same; directories of the user's own whose names cannot be read are added to `unlisted`.
pub(super) fn expanded(
    paths: &dyn PathFacts,
    anchor: &Path,
    pattern: &str,
    unlisted: &mut Vec<PathBuf>,
) -> Vec<PathBuf> {
    let mut found = vec![anchor.to_owned()];
    for component in pattern.split('/') {
        found = if component == "**" {
            let below = |directory: &PathBuf| repositories(paths, directory, 1, unlisted);
            found.iter().flat_map(below).collect()
        } else if component.contains(['*', '?']) {
            let matching = |directory: &PathBuf| {
                let names = listed(paths, directory, unlisted);
                let directory = directory.clone();
                let names =
                    names.into_iter().filter(|name| glob(component.as_bytes(), name.as_bytes()));
                names.map(|name| directory.join(name)).collect::<Vec<_>>()
            };
            found.iter().flat_map(matching).collect()
        } else {
            found.iter().map(|directory| directory.join(component)).collect()
        };
    }
    found.retain(|path| {
        let there = paths.kind(path) != Kind::Absent;
        unlisted.extend(paths.closed(path).filter(|_| !there));
        there
    });
    found
}

/// The names in a directory, which is added to `unlisted` when they cannot be read.
fn listed(
    paths: &dyn PathFacts,
    directory: &Path,
    unlisted: &mut Vec<PathBuf>,
) -> Vec<std::ffi::OsString> {
    let names = paths.list(directory);
    if names.is_empty() {
        if paths.unlisted(directory) {
            unlisted.push(directory.to_owned());
        }
        unlisted.extend(paths.closed(directory));
    }
    names
}

/// Directories below one that may be repositories', which `**` in the built-in names stands for.
fn repositories(
    paths: &dyn PathFacts,
    directory: &Path,
    depth: usize,
    unlisted: &mut Vec<PathBuf>,
) -> Vec<PathBuf> {
    let names = listed(paths, directory, unlisted);
    // Elsewhere they are names of submodules.
    let part = |part: &str| names.iter().any(|name| name == part);
    let repository = part("HEAD") && part("objects") && part("refs");
    let innards =
        |name: &&std::ffi::OsString| repository && GIT_INNARDS.iter().any(|known| *name == *known);
    let below = names.iter().filter(|name| !innards(name)).map(|name| directory.join(name));
    let mut all = Vec::new();
    for path in below.filter(|path| paths.kind(path) == Kind::Directory) {
        if depth < GIT_DEEPEST {
            all.extend(repositories(paths, &path, depth + 1, unlisted));
        }
        all.push(path);
    }
    all
}

/// Whether a name matches a pattern of `*` and `?`. Bytes: a name need not be text.
pub(crate) fn glob(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if p < pattern.len() && pattern[p] == b'*' {
            star = Some((p, n));
            p += 1;
        } else if p < pattern.len() && (pattern[p] == b'?' || pattern[p] == name[n]) {
            p += 1;
            n += 1;
        } else if let Some((at, matched)) = star {
            star = Some((at, matched + 1));
            p = at + 1;
            n = matched + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_tree_covers_and_a_nearer_cover_hides_it() {
        let grant =
            || Grant { write: false, directory: true, rule: crate::planner::built_in("a test") };
        let mut grants = Grants::default();
        for tree in ["/a", "/a/b/c", "/a/b-c", "/a/b/c/d/e", "/z"] {
            grants.trees.insert(tree.into(), grant());
        }
        grants.covers.insert("/a/b/c/x".into(), crate::planner::built_in("a test"));
        grants.covers.insert("/z".into(), crate::planner::built_in("a test"));
        let covering = |path: &str| {
            grants.covering(Path::new(path)).map(|(tree, _)| tree.to_str().expect("a text"))
        };
        for (path, tree) in [
            ("/a", Some("/a")),
            ("/a/b", Some("/a")),
            ("/a/b/cc", Some("/a")),
            ("/a/b/c/d", Some("/a/b/c")),
            ("/a/b/c/d/f/g", Some("/a/b/c")),
            ("/a/b/c/d/e/f", Some("/a/b/c/d/e")),
            ("/a/b-c/x", Some("/a/b-c")),
            ("/a/c", Some("/a")),
            ("/a/b/c/x", None),
            ("/a/b/c/x/y", None),
            ("/a/b/c/xy", Some("/a/b/c")),
            ("/z/a", Some("/z")),
            ("/b", None),
            ("/", None),
        ] {
            assert_eq!(covering(path), tree, "{path}");
        }
    }
}
