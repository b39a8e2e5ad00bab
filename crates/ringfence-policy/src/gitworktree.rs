//! Whether a `core.worktree` is the repository's own: git would write files there. How far that is looked at is bounded, of
//! each and of all ([`crate::gitread`]).

use crate::files::real;
use crate::gitbytes;
use crate::gitread::{DEEPEST_WORKTREE, LONGEST_PATH, MOST_WORKTREES};
use crate::guard::{Standing, standing};
use crate::path::normal;
use crate::protect::NAMES;
use std::cell::Cell;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Whether a worktree is the repository's own, for the first few that are asked about: each costs looks at the file system.
pub(crate) fn own_worktrees(directory: &Path, project: Option<&Path>) -> impl Fn(&str) -> bool {
    let left = Cell::new(MOST_WORKTREES);
    move |worktree| {
        let more = left.get().checked_sub(1);
        left.set(more.unwrap_or(0));
        more.is_some() && own_worktree(worktree, directory, project)
    }
}

/// Git writes what is committed below a worktree, whatever lies there: nothing that is protected may.
fn own_worktree(worktree: &str, directory: &Path, project: Option<&Path>) -> bool {
    // For git a value ends there.
    if worktree.contains('\0') {
        return false;
    }
    let target = directory.join(gitbytes::path(worktree));
    if target.as_os_str().len() >= LONGEST_PATH {
        return false;
    }
    let target = followed(&target);
    let below = |tree: &Path| target.strip_prefix(followed(tree)).ok().map(Path::to_owned);
    let git = directory.ancestors().find(|at| at.ends_with(".git"));
    let own = git.zip(git.and_then(Path::parent)).and_then(|(git, tree)| {
        let rest = below(tree)?;
        Some(match git == directory {
            true => rest.as_os_str().is_empty(),
            false => !rest.as_os_str().is_empty() && is_free(&rest),
        })
    });
    let elsewhere = project.filter(|project| !directory.starts_with(project));
    own == Some(true) || elsewhere.and_then(below).is_some_and(|rest| is_free(&rest))
}

/// Whether a path below a tree is no protected name, nor in one, nor in a repository.
fn is_free(rest: &Path) -> bool {
    let parts: Vec<&OsStr> = rest.iter().collect();
    let protected = |start: usize| {
        let mut names = NAMES.iter().filter(|entry| entry.nested || start == 0);
        names.any(|entry| matches!(standing(entry.name, &parts[start..]), Standing::Within(_)))
    };
    parts.len() <= DEEPEST_WORKTREE
        && !parts.iter().any(|part| *part == ".git")
        && !(0..parts.len()).any(protected)
}

/// A path as the kernel follows it, links included; of what does not exist, by its text.
fn followed(path: &Path) -> PathBuf {
    if let Some(real) = real(path) {
        return real;
    }
    // In what is not there nothing is: a few looks find where that begins, however long the path is.
    let above: Vec<&Path> = path.ancestors().collect();
    let there = above.partition_point(|above| above.metadata().is_err());
    let real = |above: &&Path| {
        let rest = path.strip_prefix(above).ok()?;
        Some(normal(&real(above)?.join(rest)))
    };
    above.get(there).and_then(real).unwrap_or_else(|| normal(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    /// A chain of directories with a link in it, and paths beyond their end.
    #[test]
    fn a_path_is_followed_as_far_as_something_is_there() {
        let room = std::env::temp_dir().join(format!("ringfence-follow-{}", std::process::id()));
        let room = room.canonicalize().unwrap_or(room);
        std::fs::create_dir_all(room.join("a/b")).expect("made");
        let room = room.canonicalize().expect("it is there");
        std::os::unix::fs::symlink("a/b", room.join("link")).expect("made");
        std::os::unix::fs::symlink("nowhere", room.join("broken")).expect("made");
        std::fs::create_dir(room.join("x (deleted)")).expect("made");
        for (path, leads) in [
            ("link", "a/b"),
            ("link/..", "a"),
            ("link/../..", ""),
            ("link/c/d/../e", "a/b/c/e"),
            ("absent/../link", "link"),
            ("absent/link", "absent/link"),
            ("broken/c", "broken/c"),
            ("x (deleted)/y", "x (deleted)/y"),
        ] {
            assert_eq!(followed(&room.join(path)), normal(&room.join(leads)), "{path}");
        }
        std::fs::remove_dir_all(&room).expect("removed");
    }

    /// What git cannot use, and what would take long to look at, is nobody's worktree.
    #[test]
    fn a_worktree_has_bounds() {
        let directory = Path::new("/nowhere/w/.git/modules/x");
        let own = |worktree: &str| own_worktrees(directory, None)(worktree);
        let parts = |number: usize| "../../../".to_owned() + &"a/".repeat(number);
        assert!(own(&parts(1)) && own(&parts(DEEPEST_WORKTREE)));
        assert!(!own(&parts(DEEPEST_WORKTREE + 1)));
        let long = |length: usize| {
            let mut worktree = parts(1);
            let rest = length - directory.as_os_str().len() - 1 - worktree.len();
            write!(worktree, "{}", "a".repeat(rest)).expect("a text");
            worktree
        };
        assert!(own(&long(LONGEST_PATH - 1)));
        assert!(!own(&long(LONGEST_PATH)));
        let several = own_worktrees(directory, None);
        let looked = (0..1000).filter(|_| several("../../../x")).count();
        assert_eq!(looked, MOST_WORKTREES);
    }
}
