//! Which built-in protections hold in the writable trees of a policy.

use crate::decide::{Request, Subject, decide};
use crate::files::Resolver;
use crate::glob;
use crate::moved::Moved;
use crate::policy::{Access, Guarded, Made, PathRule, Policy, ProtectedName, Source};
use crate::protect::{GIT_INNARDS, HOME, JUDGED, NAMES};
use crate::shown;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Fills in the built-in protections. `may_appear` are paths that rules grant for writing and
/// that do not exist: they lift a protection as existing ones do.
pub(crate) fn resolve(policy: &mut Policy, may_appear: &[PathBuf], moved: &Moved) {
    let trees: Vec<PathBuf> = writable(policy).map(Path::to_path_buf).collect();
    if trees.is_empty() {
        return;
    }
    policy.protected_names = NAMES
        .iter()
        .map(|entry| ProtectedName {
            name: entry.name.into(),
            guarded: entry.guarded,
            reason: entry.reason.into(),
            nested: entry.nested,
        })
        .collect();
    for tree in trees.iter().chain(may_appear) {
        let above = trees.iter().filter(|above| tree.starts_with(above) && tree != *above);
        for above in above {
            // Only exactly the guarded path lifts its protection: a rule about something in it
            // would free the rest as well.
            let named = named(&policy.protected_names, above, tree);
            if named.is_some_and(|(guarded, _)| guarded == *tree) {
                policy.unprotected.insert(tree.clone());
            }
        }
    }
    home(policy, &policy.home_dir.clone(), &trees, may_appear);
    if let Some(account) = policy.account_home.clone() {
        home(policy, &account, &trees, may_appear);
    }
    // Root names another's home, or something in it. A tree above all of them has the names.
    let holds = |home: &&PathBuf| trees.iter().any(|tree| tree.starts_with(home));
    let others: Vec<PathBuf> = policy.homes_of_others.iter().filter(holds).cloned().collect();
    for other in others {
        home(policy, &other, &trees, may_appear);
    }
    elsewhere(policy, &trees, may_appear, moved);
    crate::begun::protect(policy, &trees, may_appear);
    // A grant lifts what is protected by the list, not what a rule protects: that beats any grant.
    let Policy { paths, unprotected, .. } = policy;
    unprotected.retain(|path| {
        !paths.iter().any(|rule| rule.access == Access::Protect && rule.path == *path)
    });
}

/// Protects what mise reads for the environments that the caller's variable names.
pub(crate) fn of_environment(policy: &mut Policy, env: &dyn Fn(&str) -> Option<OsString>) {
    if policy.protected_names.is_empty() {
        return;
    }
    let all = env("MISE_ENV").unwrap_or_default().to_string_lossy().into_owned();
    let plain = |name: &&str| !name.is_empty() && !name.contains(['/', '*', '?', '\0', '\u{fffd}']);
    for name in all.split(',').map(str::trim).filter(plain).take(MOST_ENVIRONMENTS) {
        for file in
            ["mise.NAME.toml", ".mise.NAME.toml", "mise.NAME.local.toml", ".mise.NAME.local.toml"]
        {
            let file = file.replace("NAME", name);
            if !policy.protected_names.iter().any(|known| known.name == file) {
                let reason = "mise runs its hooks on entering the directory, MISE_ENV says so";
                policy.protected_names.push(ProtectedName {
                    name: file.into(),
                    guarded: Guarded::Plain,
                    reason: reason.into(),
                    nested: true,
                });
            }
        }
    }
}

/// Environments of `MISE_ENV` that are looked at.
const MOST_ENVIRONMENTS: usize = 16;

/// Protects what is looked for in a base directory that was moved away from the home.
fn elsewhere(policy: &mut Policy, trees: &[PathBuf], may_appear: &[PathBuf], moved: &Moved) {
    let judged = JUDGED.iter().map(|(name, guarded, reason)| (*name, *guarded, *reason));
    let listed = HOME.iter().map(|(name, reason)| (*name, Guarded::Plain, *reason));
    let named = NAMES.iter().map(|entry| (entry.name, entry.guarded, entry.reason));
    let all = judged.chain(listed).chain(named).filter(|(name, ..)| !name.contains('*'));
    for (name, guarded, reason) in all {
        let Some(path) = moved.path(name) else { continue };
        if !trees.iter().any(|tree| path.starts_with(tree)) {
            continue;
        }
        let granted = trees.contains(&path) || may_appear.contains(&path);
        if granted && !judged_always(guarded) {
            policy.unprotected.insert(path);
        } else {
            protect(policy, path, guarded, reason);
        }
    }
}

/// Protects what is in a home directory, where that is writable: the home itself, a directory
/// above it, or one in it.
fn home(policy: &mut Policy, directory: &Path, trees: &[PathBuf], may_appear: &[PathBuf]) {
    if directory.parent().is_none() {
        // Somebody without a home has none of this, and the root's `bin` is the system's.
        return;
    }
    for tree in trees {
        let inside = tree.strip_prefix(directory).ok();
        if inside.is_none() && !directory.starts_with(tree) {
            continue;
        }
        for (name, guarded, reason) in JUDGED {
            // Granted by exactly its name it is judged as well: other keys may change.
            let path = directory.join(name);
            if !judged_always(*guarded) && trees.contains(&path) {
                policy.unprotected.insert(path);
            } else if path.starts_with(tree) {
                protect(policy, path, *guarded, reason);
            }
        }
        let inside = inside.map(|inside| inside.as_os_str().as_bytes());
        // Names count from the tree's top, which is the home's only when the tree is the home.
        let named = NAMES.iter().filter(|entry| match inside {
            Some(inside) => !inside.is_empty() && !entry.name.contains('*'),
            None => !entry.nested,
        });
        let named = named.map(|entry| (entry.name, entry.guarded, entry.reason));
        let listed = HOME.iter().map(|(name, reason)| (*name, Guarded::Plain, *reason));
        for (name, guarded, reason) in listed.chain(named) {
            let below = match inside {
                None | Some([]) => true,
                Some(inside) => {
                    let rest = name.as_bytes().strip_prefix(inside);
                    rest.is_some_and(|rest| rest.starts_with(b"/"))
                }
            };
            if below {
                let path = directory.join(name);
                if trees.contains(&path) || may_appear.contains(&path) {
                    policy.unprotected.insert(path);
                } else {
                    protect(policy, path, guarded, reason);
                }
            }
        }
    }
}

/// Says which grants for writing are of something in what is protected whole: they lift nothing. `asked` are those
/// that somebody wrote.
pub(crate) fn without_effect(
    policy: &mut Policy,
    asked: &[(PathBuf, Source)],
    resolver: &mut Resolver<'_>,
) {
    for (path, source) in asked {
        let held = writable(policy).find_map(|tree| named(&policy.protected_names, tree, path));
        let Some((whole, _)) = held.filter(|(whole, _)| whole != path) else { continue };
        let question = Request::Write(Subject::lexical(path));
        let decision = decide(policy, &question);
        if decision.allowed || decision.rule != Some(built_in()) {
            continue;
        }
        let remedy = shown::option("--write", &whole, !resolver.exists(&whole));
        policy.warnings.push(format!(
            "{} {} has no effect: {} is protected whole, and {remedy} grants that",
            source.origin.trim_start_matches("option "),
            source.text,
            whole.display(),
        ));
    }
}

/// Says which grants of the command line a profile denies: nothing shows there that the one was overruled by the other.
pub(crate) fn overruled(policy: &mut Policy) {
    let by_option = |rule: &PathRule| rule.source.origin.starts_with("option ");
    let asked = policy
        .paths
        .iter()
        .filter(|rule| matches!(rule.access, Access::Read | Access::Write) && by_option(rule));
    let said = asked.filter_map(|rule| {
        let denies = |other: &&PathRule| {
            other.access == Access::Deny
                && other.pattern.is_none()
                && rule.path.starts_with(&other.path)
        };
        // Who wrote both on one line knows of both.
        let mut denies = policy.paths.iter().filter(denies);
        let deny = denies.find(|deny| !by_option(deny) && deny.source != built_in())?;
        Some(format!(
            "{} {} has no effect: {} denies it ({}), whatever grants it",
            rule.source.origin.trim_start_matches("option "),
            rule.source.text,
            deny.source.origin,
            deny.source.text,
        ))
    });
    let said: Vec<String> = said.collect();
    policy.warnings.extend(said);
}

/// Whether who grants exactly the path has it judged as well.
fn judged_always(guarded: Guarded) -> bool {
    matches!(guarded, Guarded::Settings | Guarded::Skills)
}

/// Has what profiles call private made in writable trees: only on what is there can an empty one be mounted.
pub(crate) fn make_private(policy: &mut Policy, resolver: &mut Resolver<'_>) {
    let trees: Vec<PathBuf> = writable(policy).map(Path::to_path_buf).collect();
    let mut wanted = Vec::new();
    for rule in policy.paths.iter().filter(|rule| rule.guarded == Guarded::Private) {
        let below = |tree: &PathBuf| rule.path != *tree && rule.path.starts_with(tree);
        let written =
            rule.source != built_in() && rule.pattern.is_none() && trees.iter().any(below);
        if written && rule.path.starts_with(&policy.home_dir) && !resolver.exists(&rule.path) {
            wanted.push(Made { path: rule.path.clone(), text: None });
        }
    }
    policy.made.extend(wanted);
}

pub(crate) fn protect(policy: &mut Policy, path: PathBuf, guarded: Guarded, reason: &str) {
    let known = |rule: &PathRule| rule.access == Access::Protect && rule.path == path;
    if policy.paths.iter().any(known) {
        return;
    }
    let reason = Some(reason.to_owned());
    let rule = plain(Access::Protect, path, true, built_in());
    policy.paths.push(PathRule { guarded, reason, ..rule });
}

/// A rule about one path, with nothing said beside.
pub(crate) fn plain(access: Access, path: PathBuf, optional: bool, source: Source) -> PathRule {
    PathRule {
        access,
        link: false,
        path,
        pattern: None,
        optional,
        guarded: Guarded::Plain,
        reason: None,
        source,
    }
}

/// The source of what the built-in list protects.
pub fn built_in() -> Source {
    let text = "protected in writable trees".to_owned();
    Source { origin: "built in".to_owned(), key: String::new(), text }
}

/// The trees that a policy makes writable.
pub(crate) fn writable(policy: &Policy) -> impl Iterator<Item = &Path> {
    let rules = policy.paths.iter().filter(|rule| rule.access == Access::Write);
    rules.map(|rule| rule.path.as_path())
}

/// Whether exactly this path is granted for writing.
pub(crate) fn granted(policy: &Policy, path: &Path) -> bool {
    let mut rules = policy.paths.iter().filter(|rule| rule.access == Access::Write);
    rules.any(|rule| rule.pattern.is_none() && rule.path == path)
}

/// The protected name that a path below a tree is, or lies below, and the path that it guards.
pub fn named<'n>(
    names: &'n [ProtectedName],
    tree: &Path,
    path: &Path,
) -> Option<(PathBuf, &'n ProtectedName)> {
    let below = path.strip_prefix(tree).ok()?;
    let parts: Vec<&OsStr> = below.iter().collect();
    for start in 0..parts.len() {
        // Of what git keeps for itself its own names count alone.
        let in_git = parts[..start].iter().any(|part| *part == ".git");
        let counts = |name: &&ProtectedName| {
            start == 0 || name.nested && (!in_git || name.name.starts_with(".git/"))
        };
        for name in names.iter().filter(counts) {
            let Standing::Within(length) = standing(&name.name, &parts[start..]) else { continue };
            let end = start + length;
            let mut guarded = tree.to_path_buf();
            guarded.extend(&parts[..end]);
            return Some((guarded, name));
        }
    }
    None
}

/// How a path stands to a protected name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has nothing to do with it.
    Apart,
    /// It is a directory on the way to it.
    OnTheWay,
    /// It is it, or lies below: so many of its components are the name's.
    Within(usize),
}

/// How a path stands to a name that is looked for at its beginning.
pub fn standing(name: &str, parts: &[&OsStr]) -> Standing {
    // All names are asked about each path, and most differ in the first letter.
    let (letter, part) = (name.as_bytes().first(), parts.first());
    let other = part.is_some_and(|part| part.as_bytes().first() != letter);
    if other && !matches!(letter, Some(b'*' | b'?')) {
        return Standing::Apart;
    }
    standing_from(Some(name), parts, 0)
}

/// `name` is what is left of it, which is taken apart no further than it is needed.
fn standing_from(name: Option<&str>, parts: &[&OsStr], count: usize) -> Standing {
    let Some(name) = name else { return Standing::Within(count) };
    let Some(part) = parts.get(count) else { return Standing::OnTheWay };
    let end = name.bytes().position(|byte| byte == b'/');
    let (first, rest) = (&name[..end.unwrap_or(name.len())], end.map(|end| &name[end + 1..]));
    if first == "**" {
        // One directory or several.
        if GIT_INNARDS.iter().any(|innards| **part == **innards) {
            return Standing::Apart;
        }
        let near = standing_from(rest, parts, count + 1);
        if matches!(near, Standing::Within(_)) {
            return near;
        }
        return match standing_from(Some(name), parts, count + 1) {
            Standing::Apart => near,
            far => far,
        };
    }
    let same = match first.contains('*') {
        true => glob::name(first.as_bytes(), part.as_bytes()),
        false => first.as_bytes() == part.as_bytes(),
    };
    if same { standing_from(rest, parts, count + 1) } else { Standing::Apart }
}

/// How something that its content decides about is judged.
pub(crate) fn judged(text: &OsStr) -> Guarded {
    let skills = Path::new(text).file_name().is_some_and(|name| name == "skills");
    if skills { Guarded::Skills } else { Guarded::Settings }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_apart_from_a_name_on_the_way_to_it_or_within_it() {
        let standing =
            |name, path: &str| standing(name, &Path::new(path).iter().collect::<Vec<_>>());
        for (name, path, is) in [
            (".claude/settings.json", ".claude", Standing::OnTheWay),
            (".claude/settings.json", ".claude/settings.json", Standing::Within(2)),
            (".claude/settings.json", ".claude/other", Standing::Apart),
            (".vscode", ".vscode/tasks.json", Standing::Within(1)),
            ("*.bazelrc", "a.bazelrc", Standing::Within(1)),
            (".git/modules/**/hooks", ".git/modules", Standing::OnTheWay),
            (".git/modules/**/hooks", ".git/modules/libs", Standing::OnTheWay),
            (".git/modules/**/hooks", ".git/modules/a/hooks/x", Standing::Within(4)),
            (".git/modules/**/hooks", ".git/modules/libs/a/hooks/x", Standing::Within(5)),
            (".git/modules/**/config", ".git/modules/a/refs/heads/config", Standing::Apart),
            (".git/modules/**/config", ".git/modules/refs", Standing::Apart),
        ] {
            assert_eq!(standing(name, path), is, "{name} {path}");
        }
    }
}
