//! Git's configuration for all of the user's repositories: which files it is in, and the hooks that it names.

use crate::files::Resolver;
use crate::gitconfig::Setting;
use crate::gitnamed::Reader;
use crate::gitread::{self, MOST_INCLUDED, Pass};
use crate::guard::{granted, plain, writable};
use crate::moved::Moved;
use crate::path::normal;
use crate::policy::{Access, Guarded, PathRule, Policy, ProtectedName};
use crate::workspace::{HOOKS_PATH, hooks_named};
use crate::{git_user, git_variables};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Finds the files, those that they include too, whatever an `includeIf` asks for; and protects the directories of hooks
/// that they name: an absolute one where it is, a relative one in each repository, the writable trees first of all. One
/// whose name does not begin with a dot is looked for at their top only: further down `hooks` is an ordinary name.
pub(crate) fn resolve(
    resolver: &mut Resolver<'_>,
    policy: &mut Policy,
    moved: &Moved,
    env: &dyn Fn(&str) -> Option<OsString>,
) {
    if writable(policy).next().is_none() {
        return;
    }
    policy.git_variables = git_variables::of(env);
    // git-config(1), FILES and GIT_CONFIG_GLOBAL: the variables come in place of the usual ones, which a program of the
    // user's that runs without them takes all the same.
    let mut files = vec![PathBuf::from("/etc/gitconfig")];
    files.extend(git_user::usual(&policy.home_dir, moved));
    let named = ["GIT_CONFIG_SYSTEM", "GIT_CONFIG_GLOBAL"];
    files.extend(named.into_iter().filter_map(|name| git_user::told(env, name)));
    let (mut included, mut hooks) = (Vec::new(), Vec::new());
    let home = policy.home_dir.clone();
    // Where a command that they name is looked for is another place in each repository: that is the planner's.
    let reader = Reader {
        real: &|path| Some(path.to_owned()),
        // What cannot be read, and more than are followed, is a refusal of the planner's.
        text: &|path| gitread::read(resolver.files(), path),
        program: &|_| false,
        pass: &Pass::default(),
    };
    let of = |user: &str| user.is_empty().then(|| home.clone());
    let tell = |_: &Path, setting: &Setting, path: &Path, guarded| match guarded {
        Guarded::GitConfig if setting.section.starts_with("include") => {
            included.push(path.to_owned())
        }
        Guarded::GitHooks if &*setting.section == "core" => hooks.extend(setting.value.clone()),
        _ => {}
    };
    let _ = reader.each(files.clone(), Path::new("/"), &of, tell);
    files.extend(included);
    files.truncate(MOST_INCLUDED);
    for hooks in hooks {
        if let Some(hooks) = hooks_named(&hooks, &home, resolver) {
            protect_hooks(policy, &hooks);
        }
    }
    policy.git_files = files;
}

fn protect_hooks(policy: &mut Policy, hooks: &Path) {
    let reason = HOOKS_PATH.to_owned();
    if hooks.is_absolute() {
        let (path, source) = (normal(hooks), crate::guard::built_in());
        if granted(policy, &path) {
            return;
        }
        let rule = plain(Access::Protect, path, true, source);
        policy.paths.push(PathRule { reason: Some(reason), ..rule });
        return;
    }
    let hooks = normal(&Path::new("/").join(hooks));
    let Ok(relative) = hooks.strip_prefix("/") else { return };
    let name = relative.to_str().filter(|name| !name.contains(['*', '?']));
    let Some(name) = name else {
        // No name of a list can say it.
        let trees: Vec<PathBuf> = writable(policy).map(|tree| tree.join(relative)).collect();
        let absolute = trees.iter().filter(|path| !granted(policy, path));
        let rule = |path: &PathBuf| PathRule {
            reason: Some(reason.clone()),
            ..plain(Access::Protect, path.clone(), true, crate::guard::built_in())
        };
        let rules: Vec<PathRule> = absolute.map(rule).collect();
        return policy.paths.extend(rules);
    };
    let known = policy.protected_names.iter().any(|known| known.name == name);
    if !name.is_empty() && !known {
        // As with any name of the list (`guard::resolve`).
        let protected = |path: &Path| {
            let mut rules = policy.paths.iter().filter(|rule| rule.access == Access::Protect);
            rules.any(|rule| rule.path == path)
        };
        let paths = writable(policy).map(|tree| tree.join(name));
        let lifted: Vec<PathBuf> =
            paths.filter(|path| granted(policy, path) && !protected(path)).collect();
        policy.unprotected.extend(lifted);
        let (name, nested) = (name.to_owned().into(), name.starts_with('.'));
        let guarded = Guarded::GitHooks;
        policy.protected_names.push(ProtectedName { name, guarded, reason: reason.into(), nested });
    }
}
