//! Names that are replaced, removed, or moved from one place to another: what a rule shows is a mount, which cannot be
//! replaced, and from which nothing is renamed or linked to another one.

use crate::files::{Named, Wanted};
use crate::propose::{Proposal, WRITE, is_its_own, shown};
use crate::watch::{Act, Observed, Use};
use ringfence_policy::own::places;
use ringfence_policy::{Access, PathRule, Policy};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::path::{Path, PathBuf};

/// Whether a rule is for just this name: it is a mount then, unless what it is in is writable as a whole.
pub(crate) fn is_mount(policy: &Policy, path: &Path) -> bool {
    let exactly = |rule: &PathRule| {
        let shows = matches!(rule.access, Access::Read | Access::Write);
        shows && rule.path.as_os_str() == path.as_os_str() && is_tree(rule)
    };
    let writable = |rule: &PathRule| {
        let above = || rule.path != path && path.starts_with(&rule.path);
        rule.access == Access::Write && above() && is_tree(rule)
    };
    policy.paths.iter().any(exactly) && !policy.paths.iter().any(writable)
}

fn is_tree(rule: &PathRule) -> bool {
    rule.pattern.is_none() && !rule.link
}

/// The units, but for those that are replaced or removed themselves the directory that they are in, where it may be one. Of a
/// directory that may not be lifted so the rule is for what is in it: its own name is noted in `stay`.
pub(crate) fn lifted(
    units: BTreeMap<PathBuf, Wanted>,
    observed: &Observed,
    named: &mut Named<'_>,
    home: &Path,
    stay: &mut BTreeSet<String>,
) -> BTreeMap<PathBuf, Wanted> {
    let mut lifted: BTreeMap<PathBuf, Wanted> = BTreeMap::new();
    for (unit, mut wanted) in units {
        let mut at = unit.as_path();
        let mut stays = false;
        let mut journal = journal(observed, &unit);
        while wanted.reason.is_none() && (journal.is_some() || observed.replaced.contains(at)) {
            let Some(above) = at.parent() else { break };
            let Some(why) = named.guarded(above) else {
                at = above;
                journal = None;
                continue;
            };
            if let Some(journal) = journal {
                let (journal, above) = (shown(&journal, home), shown(above, home));
                wanted.reason = Some(format!(
                    "by a rule for it alone {journal} is gone with each run, and what an interrupted one wrote with it (the \
                     database is corrupt then), and {above} is not proposed: {why}. Move it to a directory of its own"
                ));
                break;
            }
            if is_directory(at) && is_used_within(observed, at) {
                stay.insert(shown(at, home));
                stays = true;
                break;
            }
            let above = shown(above, home);
            wanted.reason = Some(format!(
                "its name is replaced or removed, which a rule for it alone does not let (EBUSY), and {above} is not \
                 proposed: {why}. Change it outside (a rule to read shows it as it is), or have --home NAME keep \
                 one of the sandbox's own"
            ));
        }
        if stays && !wanted.refused {
            continue;
        }
        let at = if wanted.reason.is_none() { at.to_owned() } else { unit.clone() };
        lifted.entry(at).or_default().take(wanted);
    }
    lifted
}

/// What SQLite writes beside a database to bring it back to a state that is whole (sqlite.org/tempfiles.html): without it a
/// transaction that was cut off stays half done.
pub(crate) fn journal(observed: &Observed, database: &Path) -> Option<PathBuf> {
    ["-wal", "-journal"].into_iter().find_map(|end| {
        let mut name = database.as_os_str().to_owned();
        name.push(end);
        let beside = (PathBuf::from(name), Act::Write);
        observed.paths.contains_key(&beside).then_some(beside.0)
    })
}

fn is_directory(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|data| data.is_dir())
}

/// Whether anything in a directory was used.
fn is_used_within(observed: &Observed, directory: &Path) -> bool {
    let own = Excluded((directory.to_owned(), Act::Bind));
    // Names in it are next in order.
    let mut behind = observed.paths.range((own, Unbounded));
    behind.next().is_some_and(|((path, _), _)| path.starts_with(directory))
}

impl Proposal {
    /// What is renamed or linked from what one rule shows to what another one does: one for both, where there may be one.
    pub(crate) fn across(
        &mut self,
        policy: &Policy,
        observed: &Observed,
        units: &mut BTreeMap<PathBuf, Wanted>,
        named: &mut Named<'_>,
    ) {
        let home = &policy.home_dir;
        let holding = holding(home);
        let mut between: BTreeMap<[PathBuf; 2], ([&Path; 2], Use)> = BTreeMap::new();
        for ((old, new), uses) in &observed.moved {
            let own = is_its_own(policy, old) || is_its_own(policy, new);
            let [Some(one), Some(other)] = [old, new].map(|path| mount(policy, units, path)) else {
                continue;
            };
            if own {
                continue;
            }
            if one != other {
                let first = || ([old.as_path(), new.as_path()], Use::default());
                between.entry([one, other]).or_insert_with(first).1.join(uses);
            } else if home.starts_with(&one) && held(&holding, old) != held(&holding, new) {
                // In a run it is so where the home is shown to be written; a private one is whole.
                if policy.paths.iter().any(|rule| rule.path == one) {
                    let reason = format!(
                        "{} is renamed or linked to it, which is not let where the home is written as a whole (EXDEV: some \
                         programs copy it then): what holds ringfence's own directories is mounted by itself",
                        shown(old, home)
                    );
                    self.path(WRITE, new, home, uses.clone(), Some(reason));
                } else {
                    self.apart.insert(format!("{} to {}", shown(old, home), shown(new, home)));
                }
            }
        }
        for ([one, other], ([old, new], uses)) in between {
            let Some(common) = one.ancestors().find(|above| other.starts_with(above)) else {
                continue;
            };
            if let Some(why) = named.guarded(common) {
                let (old, common) = (shown(old, home), shown(common, home));
                let reason = format!(
                    "{old} is renamed or linked to it, which rules for two places do not let (EXDEV: some programs copy \
                     it then), and {common} is not proposed: {why}"
                );
                self.path(WRITE, new, home, uses, Some(reason));
            } else {
                units.entry(common.to_owned()).or_default().write.join(&uses);
            }
        }
    }
}

/// The directories of the home that hold ringfence's own: where the home is written as a whole, as while a run is watched,
/// each is a mount, so that none is renamed.
fn holding(home: &Path) -> Vec<PathBuf> {
    let own = places(home, &|name| std::env::var_os(name));
    let above = |place: &PathBuf| place.ancestors().skip(1).map(Path::to_owned).collect::<Vec<_>>();
    let above = own.iter().flat_map(above);
    above.filter(|above| above != home && above.starts_with(home)).collect()
}

/// The innermost of them that a path is in.
fn held<'h>(holding: &'h [PathBuf], path: &Path) -> Option<&'h PathBuf> {
    let around = holding.iter().filter(|above| path != *above && path.starts_with(above));
    around.max_by_key(|above| above.components().count())
}

/// What a path is in that is a mount of its own: by a rule, or the home; unset where it is not to be written.
fn mount(policy: &Policy, units: &BTreeMap<PathBuf, Wanted>, path: &Path) -> Option<PathBuf> {
    let proposed = units.iter().filter(|(_, wanted)| wanted.reason.is_none());
    let written = |rule: &&PathRule| rule.access == Access::Write && is_tree(rule);
    let rules = policy.paths.iter().filter(written).map(|rule| &rule.path);
    let all = proposed.filter(|(_, wanted)| wanted.write.count > 0).map(|(unit, _)| unit);
    // Of rules that are in one another the outermost is the mount; the home is around them all.
    let rule =
        all.chain(rules).filter(|at| path.starts_with(at)).min_by_key(|at| at.components().count());
    rule.or_else(|| path.starts_with(&policy.home_dir).then_some(&policy.home_dir)).cloned()
}
