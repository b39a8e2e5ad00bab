//! The directory of the run: whether it may be a workspace, and the git repository it is.

use crate::files::Resolver;
use crate::path::{normal, within};
use crate::policy::{Access, Guarded, PathRule, Policy, Source};
use crate::protect::{HOME, NAMES};
use crate::{gitbytes, gitconfig, gitread};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A `.git` file or the file that points back to it is one short line.
const MOST_GITFILE: u64 = 8 << 10;

/// Directories of the system, which a profile's `.` never makes writable.
pub(crate) const SYSTEM: [&str; 13] = [
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/nix", "/gnu", "/proc", "/run", "/sbin",
    "/sys", "/usr",
];

/// Directories that many programs share, which are no workspace themselves; one in them can be.
const SHARED: [&str; 8] =
    ["/tmp", "/var", "/var/tmp", "/opt", "/srv", "/mnt", "/media", "/var/lib"];

/// Directories of the home that are hidden, and hold what their user works on: some names of the first component.
/// Agents make worktrees below their own; `ringfence bench` works in the cache, on a real file system.
const WORKED_ON: [&str; 4] = [".dotfiles", ".worktrees", ".local/src", ".cache/ringfence-bench"];
pub(crate) const WORKTREES: [&str; 2] = ["worktrees", "worktree"];

/// Why a profile's `.` does not make this directory writable, if it does not.
pub(crate) fn no_workspace(workdir: &Path, policy: &Policy) -> Option<String> {
    let mut inside = homes(policy).filter_map(|(home, _)| workdir.strip_prefix(home).ok());
    no_argument(workdir, policy)
        .or_else(|| inside.find_map(hidden))
        .or_else(|| crate::begun::whole(workdir))
}

/// All homes, and whose they are.
fn homes(policy: &Policy) -> impl Iterator<Item = (&PathBuf, &'static str)> {
    let own = [(&policy.home_dir, "your home directory")];
    let account =
        policy.account_home.iter().map(|home| (home, "the home directory of your account"));
    let others = policy.homes_of_others.iter().map(|home| (home, "a user's home directory"));
    own.into_iter().chain(account).chain(others)
}

/// Programs keep their settings, credentials and state in the home's hidden directories: no list of them is whole.
fn hidden(inside: &Path) -> Option<String> {
    let first = inside.iter().next()?;
    let worked_on = WORKED_ON.iter().any(|name| inside.starts_with(name));
    let mut above = inside.parent()?.iter();
    let worktree = above.any(|part| WORKTREES.iter().any(|name| part == *name));
    (first.as_bytes().starts_with(b".") && !worked_on && !worktree).then(|| {
        format!("programs keep their settings, credentials and state in ~/{}", first.display())
    })
}

/// Why a directory is not granted for being named as an argument, if it is not.
pub(crate) fn no_argument(workdir: &Path, policy: &Policy) -> Option<String> {
    if workdir == Path::new("/") {
        return Some("it is the root of the file system".to_owned());
    }
    let homes = || homes(policy);
    if let Some((_, whose)) = homes().find(|(home, _)| workdir == *home) {
        return Some(format!("it is {whose}"));
    }
    if let Some((_, whose)) = homes().find(|(home, _)| home.starts_with(workdir)) {
        return Some(format!("{whose} is in it"));
    }
    let below = |home: &Path| workdir.strip_prefix(home).ok().filter(|_| home != Path::new("/"));
    // A home may itself be in a system directory (/run/…, /usr/home): what is in it is the user's.
    let in_home: Vec<PathBuf> = homes().filter_map(|(home, _)| below(home)).map(normal).collect();
    if in_home.is_empty() && SYSTEM.iter().any(|system| workdir.starts_with(system)) {
        return Some("it belongs to the system".to_owned());
    }
    if SHARED.iter().any(|shared| workdir == Path::new(shared)) {
        return Some("many programs share it".to_owned());
    }
    let mut listed =
        HOME.iter().copied().chain(NAMES.iter().map(|entry| (entry.name, entry.reason)));
    let (_, reason) =
        listed.find(|(name, _)| in_home.iter().any(|inside| within(inside, Path::new(name))))?;
    Some(format!("of what is there: {reason}"))
}

/// Why a directory is not granted as an argument for what programs keep in it: `~/.config` is as little one file as what
/// is in it that is not granted by itself.
pub(crate) fn no_argument_above(directory: &Path, policy: &Policy) -> Option<String> {
    let mut inside = homes(policy).filter_map(|(home, _)| directory.strip_prefix(home).ok());
    let is_above = |inside: &Path| HOME.iter().any(|(name, _)| Path::new(name).starts_with(inside));
    inside
        .any(is_above)
        .then(|| "programs keep their settings, credentials and state in it".to_owned())
}

/// Why a directory is too much to be granted for one file in it, if it is.
pub fn too_much(directory: &Path, policy: &Policy) -> Option<String> {
    no_argument(directory, policy).or_else(|| no_argument_above(directory, policy))
}

/// Adds what the git repository of a writable directory of the run needs.
pub(crate) fn resolve(resolver: &mut Resolver<'_>, policy: &mut Policy) {
    let workdir = policy.workdir.clone();
    let Some(rule) =
        policy.paths.iter().find(|rule| rule.access == Access::Write && rule.path == workdir)
    else {
        return;
    };
    let source = rule.source.clone();
    let dot_git = workdir.join(".git");
    let files = resolver.files();
    let directory = match files.link(&dot_git) {
        Ok(None) => match files.text(&dot_git, MOST_GITFILE) {
            Ok(text) => {
                hold(policy, dot_git);
                let trees: Vec<PathBuf> =
                    crate::guard::writable(policy).map(Path::to_path_buf).collect();
                let Some(private) = git_directory(resolver, &workdir, &text) else { return };
                let common = common_directory(&private);
                if trees.iter().any(|tree| private.starts_with(tree)) {
                    if is_repository(resolver, &common) {
                        guard_repository(policy, &common);
                    }
                    common
                } else if is_worktree(resolver, &workdir, &private, &trees, &policy.home_dir) {
                    grant_common(policy, &common, &source)
                } else if is_submodule(resolver, &workdir, &private, &trees, &policy.home_dir) {
                    grant_common(policy, &private, &source)
                } else {
                    return;
                }
            }
            Err(_) => dot_git,
        },
        // A link may lead anywhere; what it leads to is granted or not by itself.
        Ok(Some(_)) => return hold(policy, dot_git),
        Err(_) => {
            bare(resolver, policy, &workdir);
            return;
        }
    };
    hooks_path(resolver, policy, &directory, &workdir);
}

/// Protects a `.git` that is a file or a link.
fn hold(policy: &mut Policy, dot_git: PathBuf) {
    let reason = Some("git takes the repository from where it leads".to_owned());
    let source = crate::guard::built_in();
    policy.paths.push(rule(Access::Protect, dot_git, Guarded::Plain, reason, &source));
}

/// The directory that a `.git` file with this text leads to.
fn git_directory(resolver: &mut Resolver<'_>, workdir: &Path, text: &str) -> Option<PathBuf> {
    let target = crate::protect::git_file_target(text.as_bytes())?;
    let real = resolver.real(&workdir.join(target)).ok().filter(|real| real.exists)?;
    Some(real.path)
}

/// The directory of the repository that this one is a worktree's of, or is itself.
fn common_directory(private: &Path) -> PathBuf {
    crate::protect::git_of_worktree(private).unwrap_or(private).to_path_buf()
}

fn is_repository(resolver: &mut Resolver<'_>, directory: &Path) -> bool {
    ["HEAD", "objects", "refs"].iter().all(|name| resolver.exists(&directory.join(name)))
}

/// Whether a directory outside of every writable tree is that of a linked worktree, and the repository says so as well.
///
/// The `.git` file can be written by a program in a sandbox, so that alone it proves nothing: the directory must be
/// `REPOSITORY/worktrees/NAME`, and name this very file in its `gitdir`.
fn is_worktree(
    resolver: &mut Resolver<'_>,
    workdir: &Path,
    private: &Path,
    trees: &[PathBuf],
    home: &Path,
) -> bool {
    let common = common_directory(private);
    // A repository that holds its worktrees, or the home, would make them all writable.
    if common == private
        || trees.iter().any(|tree| tree.starts_with(&common))
        || home.starts_with(&common)
    {
        return false;
    }
    let Ok(back) = resolver.files().text(&private.join("gitdir"), MOST_GITFILE) else {
        return false;
    };
    let back = private.join(back.trim_end_matches(['\n', '\r']));
    let (back, own) = (resolver.real(&back), resolver.real(&workdir.join(".git")));
    let mutual = back.ok().zip(own.ok()).is_some_and(|(back, own)| back.path == own.path);
    mutual && is_repository(resolver, &common)
}

/// Whether a directory outside of every writable tree is that of a submodule, `REPOSITORY/.git/modules/NAME`, whose
/// configuration says that its files are in this very directory. It is protected in runs in the repository around it.
fn is_submodule(
    resolver: &mut Resolver<'_>,
    workdir: &Path,
    private: &Path,
    trees: &[PathBuf],
    home: &Path,
) -> bool {
    let within = private.ancestors().skip(1).any(|above| above.ends_with(".git/modules"));
    if !within || trees.iter().any(|tree| tree.starts_with(private)) || home.starts_with(private) {
        return false;
    }
    let text = gitread::read(resolver.files(), &private.join("config")).bytes();
    let back = text.and_then(|text| gitconfig::last_path(text, "core", "worktree"));
    let Some(back) = back else { return false };
    let back = resolver.real(&private.join(back)).ok();
    back.is_some_and(|back| back.path == workdir) && is_repository(resolver, private)
}

/// Grants a repository's directory for writing, what git runs from it protected.
fn grant_common(policy: &mut Policy, common: &Path, source: &Source) -> PathBuf {
    let source = Source { text: format!("{} (its git repository)", source.text), ..source.clone() };
    policy.paths.push(rule(Access::Write, common.to_path_buf(), Guarded::Plain, None, &source));
    guard_repository(policy, common);
    common.to_path_buf()
}

/// A bare repository as workspace has its hooks and configuration at its top.
fn bare(resolver: &mut Resolver<'_>, policy: &mut Policy, workdir: &Path) {
    let parts = ["HEAD", "objects", "refs"];
    if parts.iter().all(|name| resolver.files().link(&workdir.join(name)).is_ok()) {
        guard_repository(policy, workdir);
    }
}

/// Protects what the list of names protects below `.git`, where the directory has another name.
fn guard_repository(policy: &mut Policy, directory: &Path) {
    for entry in NAMES {
        let Some(name) = entry.name.strip_prefix(".git/") else { continue };
        let (path, pattern) = match name.split_once("/*") {
            Some((first, rest)) => (directory.join(first), Some(format!("*{rest}"))),
            None => (directory.join(name), None),
        };
        let reason = Some(entry.reason.to_owned());
        let source = crate::guard::built_in();
        policy.paths.push(PathRule {
            pattern,
            ..rule(Access::Protect, path, entry.guarded, reason, &source)
        });
    }
}

/// Protects the hooks directory that the repository's configuration names, when it is not the
/// usual one.
fn hooks_path(resolver: &mut Resolver<'_>, policy: &mut Policy, git: &Path, workdir: &Path) {
    let Some(hooks) = hooks_of(resolver, &git.join("config"), &policy.home_dir) else { return };
    let path = normal(&workdir.join(hooks));
    // Who works on the hooks themselves, or whose hooks are beside all else.
    if crate::guard::granted(policy, &path) {
        return;
    }
    let reason = Some(HOOKS_PATH.to_owned());
    let source = crate::guard::built_in();
    policy.paths.push(rule(Access::Protect, path, Guarded::Plain, reason, &source));
}

pub(crate) const HOOKS_PATH: &str = "git runs its files as hooks, core.hooksPath says so";

/// The hooks directory that a configuration names.
fn hooks_of(resolver: &mut Resolver<'_>, file: &Path, home: &Path) -> Option<PathBuf> {
    // What cannot be read is a refusal of the planner's.
    let text = gitread::read(resolver.files(), file).bytes()?;
    hooks_named(&gitconfig::last_value(&text, "core", "hookspath")?, home, resolver)
}

/// The hooks directory that a value of `core.hooksPath` means.
pub(crate) fn hooks_named(
    hooks: &str,
    home: &Path,
    resolver: &mut Resolver<'_>,
) -> Option<PathBuf> {
    // The usual way to have none is /dev/null.
    if hooks == "/dev/null" {
        return None;
    }
    let Some(of) = hooks.strip_prefix('~') else {
        return (!hooks.is_empty()).then(|| gitbytes::path(hooks));
    };
    let (user, below) = of.split_once('/').unwrap_or((of, ""));
    let home = match user {
        "" => home.to_owned(),
        user => crate::homes::of_user(user, resolver)?,
    };
    Some(home.join(gitbytes::path(below)))
}

fn rule(
    access: Access,
    path: PathBuf,
    guarded: Guarded,
    reason: Option<String>,
    source: &Source,
) -> PathRule {
    PathRule {
        access,
        link: false,
        path,
        pattern: None,
        optional: true,
        guarded,
        reason,
        source: source.clone(),
    }
}
