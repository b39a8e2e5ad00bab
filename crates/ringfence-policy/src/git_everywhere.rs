//! What the user's own configuration of git names by a relative path: it is another file in each of his repositories.

use crate::git_user;
use crate::gitnamed::Reader;
use crate::moved::Moved;
use crate::policy::Guarded;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Stands for the worktree of any repository.
const WORKTREE: &str = "/.worktree-of-any-repository";

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Everywhere {
    /// From the worktree.
    pub path: PathBuf,
    /// How it is guarded.
    pub guarded: Guarded,
    /// The file that names it.
    pub by: PathBuf,
}

/// Finds them. What cannot be read is a refusal of the planner's.
pub fn everywhere(
    home: &Path,
    env: &dyn Fn(&str) -> Option<OsString>,
    reader: &Reader<'_>,
) -> Vec<Everywhere> {
    let mut files = vec![PathBuf::from("/etc/gitconfig")];
    files.extend(git_user::usual(home, &Moved::of(home, env)));
    let named = ["GIT_CONFIG_SYSTEM", "GIT_CONFIG_GLOBAL"];
    files.extend(named.into_iter().filter_map(|name| git_user::told(env, name)));
    let mut all = Vec::new();
    let of = |user: &str| user.is_empty().then(|| home.to_owned());
    let _ = reader.each(files, Path::new(WORKTREE), &of, |by, _, path, guarded| {
        let below = path.strip_prefix(WORKTREE).ok().filter(|path| !path.as_os_str().is_empty());
        if let Some(path) = below {
            all.push(Everywhere { path: path.to_owned(), guarded, by: by.to_owned() });
        }
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gitread::{Pass, Said};

    #[test]
    fn what_counts_in_each_repository_is_relative() {
        let text = |path: &Path| match path.to_str() {
            Some("/home/ada/.gitconfig") => Said::Bytes(
                b"[core]\n\thooksPath = ci/hooks\n\tfsmonitor = ~/bin/fsm\n\tpager = less\n\
                  [include]\n\tpath = more\n"
                    .to_vec(),
            ),
            Some("/home/ada/more") => Said::Bytes(b"[core]\n\tfsmonitor = ./fsm\n".to_vec()),
            _ => Said::Nothing,
        };
        let pass = Pass::default();
        let reader = Reader { real: &|_| None, text: &text, program: &|_| false, pass: &pass };
        let all = everywhere(Path::new("/home/ada"), &|_| None, &reader);
        let all: Vec<_> = all
            .iter()
            .filter_map(|one| Some((one.path.to_str()?, one.guarded, one.by.to_str()?)))
            .collect();
        let wanted = [
            ("ci/hooks", Guarded::GitHooks, "/home/ada/.gitconfig"),
            ("fsm", Guarded::Program, "/home/ada/more"),
        ];
        assert_eq!(all, wanted);
    }
}
