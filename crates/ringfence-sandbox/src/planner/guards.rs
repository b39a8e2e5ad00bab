//! Protected paths: those the kernel can hold, and those that are put right at the end.
//!
//! A path that exists is held by a mount (namespace tier): read-only, or, where it is a symbolic
//! link, of the link itself. One that does not exist cannot be mounted over without leaving a ghost
//! on the host, and the process tier has no mounts: these are recorded before the run and put
//! right after it, when nothing of the sandbox lives any more.

mod above;
mod led;
mod outside;
mod worktrees;

use super::grants::{Grants, expanded, glob};
use super::named::{self, Repository};
use super::{PlanError, Planning};
use crate::facts::{Kind, PathFacts};
use crate::plan::{Apart, Found, GuardStep, GuardedTree, Tier};
use led::MOST_LINKS;
use ringfence_policy::gitnamed::Reader;
use ringfence_policy::gitread::{NotKnown, Pass};
use ringfence_policy::gitstate::STATE;
use ringfence_policy::guard::built_in;
use ringfence_policy::{Access, Guarded, Layer, PathRule, Source};
use ringfence_start::listing;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A path held by a mount.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub path: PathBuf,
    /// The writable tree it lies in.
    pub tree: PathBuf,
    pub found: Found,
    /// An empty directory in memory is in its place.
    pub emptied: bool,
    pub rule: Source,
}

/// What is protected, and how.
#[derive(Clone, Debug, Default)]
pub(super) struct Guards {
    pub held: Vec<Held>,
    pub steps: Vec<GuardStep>,
    pub trees: Vec<GuardedTree>,
}

impl Guards {
    /// Takes what is put right at the end: with writes kept apart the real trees are not written
    /// to, and what would be put right is not committed instead. Mounts hold what they hold.
    pub fn apart(&mut self, end: ringfence_policy::Overlay) -> Apart {
        let mut guards = std::mem::take(&mut self.steps);
        let held = self.held.iter().filter(|held| !held.emptied).map(|held| GuardStep {
            path: held.path.clone(),
            found: held.found,
            guarded: Guarded::Plain,
            rule: held.rule.clone(),
        });
        guards.extend(held);
        Apart { end, guards, guarded_trees: std::mem::take(&mut self.trees) }
    }
}

pub(super) fn guards(
    planning: &mut Planning<'_>,
    grants: &Grants,
    tier: Tier,
) -> Result<Guards, PlanError> {
    let (git_settings, strict) = (planning.policy.git_settings, planning.policy.strict);
    let pass = Pass::default();
    let mut wanted = Wanted {
        planning,
        grants,
        rules: BTreeMap::new(),
        listed: BTreeSet::new(),
        closed: Vec::new(),
        hooks: BTreeSet::new(),
        crowded: None,
        pass: &pass,
        unknown: None,
    };
    wanted.named_paths(tier)?;
    let trees = wanted.known_names();
    wanted.led_to_from_outside();
    wanted.led_to_from_above();
    wanted.led_to();
    if let Some((directory, rule)) = wanted.closed.first() {
        return Err(unknowable(directory, rule));
    }
    let mut let_go = wanted.worktrees();
    if strict {
        let_go.clear();
    }
    let (wanted, crowded, unknown) = (wanted.rules, wanted.crowded, wanted.unknown);
    if let Some((file, why)) = unknown {
        let (file, (why, remedy)) = (ringfence_policy::shown::path(&file), why.text());
        let what =
            format!("{file} {why}: what git's configuration names and runs by it is not protected");
        planning.missing(Layer::Protect, what, remedy)?;
    }
    if let Some(directory) = crowded {
        let directory = ringfence_policy::shown::path(&directory);
        let what = format!(
            "{directory} has more than {MOST_LINKS} symbolic links: what the others lead to in a writable tree is not protected"
        );
        planning.missing(Layer::Protect, what, "remove some")?;
    }
    let mut guards = Guards { trees, ..Guards::default() };
    for (path, (tree, guarded, rule)) in wanted {
        let kind = planning.paths.kind(&path);
        if kind == Kind::Absent
            && let Some(directory) = planning.paths.closed(&path)
        {
            return Err(unknowable(&directory, &rule));
        }
        let found = match kind {
            Kind::Absent if guarded == Guarded::ExistingOnly => continue,
            Kind::Absent => Found::Absent,
            Kind::Symlink(_) => Found::Symlink,
            Kind::File | Kind::Directory => Found::Present,
        };
        let guarded = match guarded {
            Guarded::GitConfig if git_settings && found == Found::Present => Guarded::GitSettings,
            guarded => guarded,
        };
        // What is judged by its content stays writable.
        let judged =
            matches!(guarded, Guarded::Settings | Guarded::GitSettings) || let_go.contains(&path);
        if found != Found::Absent && tier == Tier::Namespace && !judged {
            let emptied = guarded == Guarded::Private && kind == Kind::Directory;
            guards.held.push(Held { path, tree, found, emptied, rule });
        } else {
            guards.steps.push(GuardStep { path, found, guarded, rule });
        }
    }
    Ok(guards)
}

/// What cannot be looked at is not held, and could be opened again from inside: an earlier run may have closed the
/// directory for just that.
fn unknowable(directory: &Path, rule: &Source) -> PlanError {
    let directory = ringfence_policy::shown::path(directory);
    let why = format!(
        "{directory} is closed to yourself, so that what is in it cannot be known, and a program inside could \
         open it; chmod u+rwx {directory} (a run may have closed it)"
    );
    PlanError::unenforceable(rule, why)
}

/// The writable tree of a protected path, how a new one is judged, and the rule.
type Protected = (PathBuf, Guarded, Source);
type Rules = BTreeMap<PathBuf, Protected>;

struct Wanted<'a, 'b> {
    planning: &'a Planning<'b>,
    grants: &'a Grants,
    rules: Rules,
    /// Those that the list names: of a link there, what a directory holds that it leads to is protected too.
    listed: BTreeSet<PathBuf>,
    /// Directories of the user's own in writable trees that cannot be looked into, with the rules about what is in
    /// them.
    closed: Vec<(PathBuf, Source)>,
    /// Directories that git's configuration names for hooks.
    hooks: BTreeSet<PathBuf>,
    /// One in which there are more links than are followed.
    crowded: Option<PathBuf>,
    /// What may yet be read of git's configuration.
    pass: &'a Pass,
    /// A file of git's configuration that could name anything.
    unknown: Option<NotKnown>,
}

impl Wanted<'_, '_> {
    /// The writable tree that a path lies in.
    fn tree(&self, path: &Path) -> Option<PathBuf> {
        let (tree, grant) = self.grants.covering(path)?;
        grant.write.then(|| tree.to_owned())
    }

    fn add(&mut self, path: PathBuf, guarded: Guarded, rule: &Source) {
        if self.planning.policy.unprotected.contains(&path) {
            return;
        }
        let Some(tree) = self.tree(&path) else { return };
        let within = |above: &&Path| *above != tree && above.starts_with(&tree);
        let is_link = |above: &Path| matches!(self.planning.paths.kind(above), Kind::Symlink(_));
        if path.ancestors().skip(1).take_while(within).any(is_link) {
            return self.add_behind(&path, guarded, rule);
        }
        self.rules.entry(path).or_insert_with(|| (tree, guarded, rule.clone()));
    }

    /// The same of a path that the list names.
    fn add_listed(&mut self, path: PathBuf, guarded: Guarded, rule: &Source) {
        self.listed.insert(path.clone());
        self.add(path, guarded, rule);
    }

    /// A path through a directory that is a link: what is protected is where that leads, and the links, so that the
    /// path goes on leading there.
    fn add_behind(&mut self, path: &Path, guarded: Guarded, rule: &Source) {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return };
        // A circle of links leads to nothing.
        let Some(real) = super::links::real(self.planning.paths, parent) else { return };
        let links = real.links.into_iter().map(|(link, _)| (link, Guarded::Plain));
        if self.listed.contains(path) {
            self.listed.insert(real.path.join(name));
        }
        let policy = self.planning.policy;
        let lifted = |path: &Path| {
            let exactly = |rule: &PathRule| {
                rule.access == Access::Write && rule.pattern.is_none() && rule.path == path
            };
            policy.unprotected.iter().any(|free| free == path) || policy.paths.iter().any(exactly)
        };
        for (path, guarded) in links.chain([(real.path.join(name), guarded)]) {
            if let Some(tree) = self.tree(&path).filter(|tree| path != *tree && !lifted(&path)) {
                self.rules.entry(path).or_insert_with(|| (tree, guarded, rule.clone()));
            }
        }
    }

    /// What a pattern names below an anchor.
    fn expand(&mut self, anchor: &Path, pattern: &str, rule: &Source) -> Vec<PathBuf> {
        let mut unlisted = Vec::new();
        let found = expanded(self.planning.paths, anchor, pattern, &mut unlisted);
        for directory in unlisted {
            self.close(directory, rule);
        }
        found
    }

    /// Notes a directory that cannot be looked into.
    fn close(&mut self, directory: PathBuf, rule: &Source) {
        if self.tree(&directory).is_some() {
            self.closed.push((directory, rule.clone()));
        }
    }

    /// `protect` rules, and `deny` rules about what does not exist yet.
    fn named_paths(&mut self, tier: Tier) -> Result<(), PlanError> {
        for rule in &self.planning.policy.paths {
            match (rule.access, &rule.pattern) {
                // Of a `.git` that is a link, nothing but that is protected.
                (Access::Protect, None)
                    if rule.source == built_in() && !rule.path.ends_with(".git") =>
                {
                    self.add_listed(rule.path.clone(), rule.guarded, &rule.source);
                }
                (Access::Protect, None) => self.add(rule.path.clone(), rule.guarded, &rule.source),
                (Access::Protect, Some(pattern)) | (Access::Deny, Some(pattern))
                    if rule.source != built_in()
                        && pattern.split('/').any(|component| component == "**") =>
                {
                    let why = "`**` between components would need a walk through the tree at each \
                               start; name the directories";
                    return Err(PlanError::unenforceable(&rule.source, why));
                }
                (Access::Protect, Some(pattern)) => {
                    for path in self.expand(&rule.path, pattern, &rule.source) {
                        self.add(path, rule.guarded, &rule.source);
                    }
                }
                // What it names is covered (`grants`).
                (Access::Deny, Some(pattern)) => {
                    self.expand(&rule.path, pattern, &rule.source);
                }
                // What a mount covers needs nothing else; Landlock, told to go without, covers
                // nothing inside a writable tree.
                (Access::Deny, None)
                    if tier == Tier::Process
                        || self.planning.paths.kind(&rule.path) == Kind::Absent =>
                {
                    self.add(rule.path.clone(), Guarded::Plain, &rule.source);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The writable trees.
    fn trees(&self) -> Vec<PathBuf> {
        let trees = self.grants.trees.iter().filter(|(_, grant)| grant.write && grant.directory);
        trees.map(|(path, _)| path.clone()).collect()
    }

    /// The list of names that hosts execute or trust, in each writable tree.
    fn known_names(&mut self) -> Vec<GuardedTree> {
        let trees = self.trees().into_iter().map(|tree| self.names_in(tree)).collect();
        // Who grants what is around one as well takes nothing from what is protected in it. What is not there is found at the
        // end, where all of the tree around it is looked through.
        for inside in &self.grants.inside {
            self.names_at(inside);
        }
        trees
    }

    /// Which first components of the list's names a directory has.
    fn top<'d>(&self, directory: &'d Path) -> Top<'d>
    where
        Self: 'd,
    {
        let names = self.planning.policy.protected_names.iter();
        let mut firsts: Vec<&str> = names.map(|name| first(&name.name)).collect();
        firsts.push(".git");
        firsts.sort_unstable();
        firsts.dedup();
        Top::of(self.planning.paths, directory, &firsts)
    }

    /// Protects what of the list is at the top of a writable tree; which names are not there.
    fn names_at(&mut self, tree: &Path) -> Vec<(Cow<'static, str>, Guarded)> {
        let policy = self.planning.policy;
        let mut top = self.top(tree);
        if let Some(closed) = self.planning.paths.closed(&tree.join(".git")) {
            self.close(closed, &built_in_name(".git"));
        }
        let mut absent = Vec::with_capacity(policy.protected_names.len());
        for name in &policy.protected_names {
            let first = first(&name.name);
            if first.contains(['*', '?']) {
                // Where the listing is long it is looked for at the end only: a start must not
                // depend on the size of a directory.
                for found in top.matching(first) {
                    let rule = built_in_name(&name.name);
                    self.add_listed(tree.join(found), name.guarded, &rule);
                }
                continue;
            }
            if !top.has(first) {
                if name.guarded != Guarded::ExistingOnly {
                    absent.push((name.name.clone(), name.guarded));
                }
                continue;
            }
            let rule = built_in_name(&name.name);
            if name.name.contains(['*', '?']) {
                for path in self.expand(tree, &name.name, &rule) {
                    self.add_listed(path, name.guarded, &rule);
                }
            } else {
                self.add_listed(tree.join(name.name.as_ref()), name.guarded, &rule);
            }
        }
        if top.has(".git") {
            let judged = self.rules.iter().filter(|(_, rule)| rule.1 == Guarded::GitConfig);
            let judged = judged.map(|(path, _)| path.as_path());
            match named::repositories(self.planning.paths, tree, judged, self.pass) {
                Ok(all) => all.into_iter().for_each(|repository| self.configured(repository)),
                Err(unknown) => self.unknown = Some(unknown),
            }
        }
        if !policy.unprotected.is_empty() {
            absent.retain(|(name, _)| !policy.unprotected.contains(&tree.join(name.as_ref())));
        }
        absent
    }

    fn names_in(&mut self, tree: PathBuf) -> GuardedTree {
        let policy = self.planning.policy;
        let absent = self.names_at(&tree);
        let nested = policy.protected_names.iter().filter(|name| {
            let judged_later = name.guarded != Guarded::ExistingOnly;
            judged_later && (name.nested || name.name.starts_with('*'))
        });
        let nested = nested.map(|name| (name.name.clone(), name.guarded));
        // Git writes it all the time: it is judged at the end alone, and after the configuration.
        let state = STATE.iter().map(|entry| (entry.name.into(), entry.guarded));
        let nested = nested.chain(state).collect();
        let granted = policy.paths.iter().filter(|rule| {
            rule.access == Access::Write && rule.pattern.is_none() && rule.path.starts_with(&tree)
        });
        let granted = granted.map(|rule| rule.path.clone()).filter(|path| *path != tree);
        let (granted, files): (Vec<_>, Vec<_>) =
            granted.partition(|path| self.planning.paths.kind(path) != Kind::File);
        let lifted = policy.unprotected.iter().chain(&self.grants.own);
        let lifted = lifted.filter(|path| path.starts_with(&tree)).cloned();
        let (protected, lifted): (Vec<_>, Vec<_>) =
            lifted.partition(|path| self.planning.paths.kind(path) == Kind::File);
        let files = files.into_iter().map(|path| (path, false));
        // Those that would be protected count as that.
        let files: BTreeMap<PathBuf, bool> =
            files.chain(protected.into_iter().map(|path| (path, true))).collect();
        let files = files.into_iter().collect();
        GuardedTree { tree, absent, nested, lifted, files, granted }
    }

    /// Files in writable trees that git's configuration names, and what that includes: further configuration,
    /// hooks, programs and what these are told to run. Whoever writes them decides what git runs.
    fn configured(&mut self, repository: Repository) {
        let Repository { files, objects, worktree } = repository;
        let planning = self.planning;
        let paths = planning.paths;
        let home = |user: &str| named::home(planning, user);
        let (text, program) = (|path: &Path| paths.git(path), |path: &Path| paths.program(path));
        let reader = Reader { real: &|_| None, text: &text, program: &program, pass: self.pass };
        let known = reader.each(files, &worktree, &home, |_, setting, path, guarded| {
            if !path.starts_with(&objects) {
                self.add_named(path.to_owned(), guarded, &built_in_name(&setting.key()));
            }
        });
        if let Err(unknown) = known {
            self.unknown = Some(unknown);
        }
    }
}

fn first(name: &str) -> &str {
    name.split('/').next().unwrap_or_default()
}

fn built_in_name(name: &str) -> Source {
    Source {
        origin: "built in".to_owned(),
        key: "protected names".to_owned(),
        text: name.to_owned(),
    }
}

/// Which of some names are at the top of a tree: by one listing where that is short, else name by
/// name.
struct Top<'a> {
    paths: &'a dyn PathFacts,
    tree: &'a Path,
    listing: Option<BTreeSet<OsString>>,
    known: BTreeMap<String, bool>,
}

impl<'a> Top<'a> {
    fn of(paths: &'a dyn PathFacts, tree: &'a Path, names: &[&str]) -> Top<'a> {
        let listing = paths.among(tree, names, listing::MOST);
        Top { paths, tree, listing, known: BTreeMap::new() }
    }

    /// Names that match a pattern, as far as the listing is short.
    fn matching(&self, pattern: &str) -> Vec<OsString> {
        let listing = self.listing.iter().flatten();
        let matching = listing.filter(|name| glob(pattern.as_bytes(), name.as_bytes()));
        matching.cloned().collect()
    }

    fn has(&mut self, name: &str) -> bool {
        if let Some(listing) = &self.listing {
            return listing.contains(OsStr::new(name));
        }
        if let Some(known) = self.known.get(name) {
            return *known;
        }
        let there = self.paths.kind(&self.tree.join(name)) != Kind::Absent;
        self.known.insert(name.to_owned(), there);
        there
    }
}
