//! The repositories of a tree whose configuration is read when a run is planned: those at fixed places. Further down
//! they are found after the run (`guard::named`): to find them before would take a walk through the tree.

use super::Planning;
use super::links::real;
use crate::facts::{Kind, PathFacts};
use ringfence_policy::gitconfig::last_path;
use ringfence_policy::gitnamed::Reader;
use ringfence_policy::gitread::{NotKnown, Pass, Said};
use ringfence_policy::home_of;
use ringfence_policy::path::normal;
use std::path::{Path, PathBuf};

/// Submodules whose configuration is followed, of one repository. What others name is judged after the run.
const MOST_MODULES: usize = 64;

/// A repository, for what its configuration names.
pub(super) struct Repository {
    /// The files that it begins with.
    pub files: Vec<PathBuf>,
    /// Where its objects are, which nothing protects.
    pub objects: PathBuf,
    /// The directory in which git runs what is named.
    pub worktree: PathBuf,
}

impl Repository {
    /// One whose worktree keeps what is its own in `private`.
    fn of(common: &Path, private: &Path, worktree: &Path) -> Repository {
        Repository {
            files: vec![common.join("config"), private.join("config.worktree")],
            objects: common.join("objects"),
            worktree: worktree.to_owned(),
        }
    }
}

/// The one at the top of a tree, or that the tree is a worktree of, and those of its submodules. `judged` are files of
/// configuration that are protected.
pub(super) fn repositories<'a>(
    paths: &dyn PathFacts,
    tree: &Path,
    judged: impl Iterator<Item = &'a Path>,
    pass: &Pass,
) -> Result<Vec<Repository>, NotKnown> {
    let git = tree.join(".git");
    if paths.kind(&git) == Kind::File {
        return Ok(worktree_of(paths, tree, pass)?.into_iter().collect());
    }
    let mut found = vec![Repository::of(&git, &git, tree)];
    let modules = git.join("modules");
    let configurations =
        judged.filter(|path| path.starts_with(&modules) && path.ends_with("config"));
    for configuration in configurations.take(MOST_MODULES) {
        let Some(directory) = configuration.parent() else { continue };
        // One that cannot be read is told of when it is gone through.
        let worktree = match pass.read(|| paths.git(configuration)) {
            Said::Nothing => continue,
            Said::Unknown(_) => directory.to_owned(),
            Said::Bytes(text) => match last_path(text, "core", "worktree") {
                Some(worktree) => normal(&directory.join(worktree)),
                None => continue,
            },
        };
        found.push(Repository::of(directory, directory, &worktree));
    }
    Ok(found)
}

/// The repository that a `.git` file leads to.
fn worktree_of(
    paths: &dyn PathFacts,
    tree: &Path,
    pass: &Pass,
) -> Result<Option<Repository>, NotKnown> {
    let real = |path: &Path| real(paths, path).filter(|real| real.exists).map(|real| real.path);
    let (text, program) = (|path: &Path| paths.git(path), |path: &Path| paths.program(path));
    let found = Reader { real: &real, text: &text, program: &program, pass }.of_worktree(tree)?;
    Ok(found.map(|(common, private)| Repository::of(&common, &private, tree)))
}

/// The home of a user by his name; of the caller, without one.
pub(super) fn home(planning: &Planning<'_>, user: &str) -> Option<PathBuf> {
    if user.is_empty() {
        return Some(planning.policy.home_dir.clone());
    }
    home_of(planning.paths.text(Path::new("/etc/passwd"))?.as_bytes(), user)
}
