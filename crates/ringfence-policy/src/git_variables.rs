//! Variables that have git run something (git(1), git-var(1)): each is to git what a setting of its configuration is.

use crate::gitbytes;
use crate::gitconfig::Setting;
use crate::gitnamed::{Base, named};
use crate::policy::Guarded;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The directory of git's own programs.
const PROGRAMS: &str = "GIT_EXEC_PATH";

/// The directory of what is in each new repository.
const TEMPLATES: &str = "GIT_TEMPLATE_DIR";

/// Variable, and the section and name of a setting that is run as it is: by a shell as an editor, else as `askPass`.
const VARIABLES: [(&str, &str, &str); 13] = [
    ("EDITOR", "core", "editor"),
    ("GIT_ASKPASS", "core", "askpass"),
    ("GIT_EDITOR", "core", "editor"),
    ("GIT_EXTERNAL_DIFF", "core", "editor"),
    ("GIT_PAGER", "core", "editor"),
    ("GIT_PROXY_COMMAND", "core", "askpass"),
    ("GIT_SEQUENCE_EDITOR", "core", "editor"),
    ("GIT_SSH", "core", "askpass"),
    ("GIT_SSH_COMMAND", "core", "editor"),
    (TEMPLATES, "init", "templatedir"),
    ("PAGER", "core", "editor"),
    ("SSH_ASKPASS", "core", "askpass"),
    ("VISUAL", "core", "editor"),
];

/// Those that are set to something that can be in a tree: `vim` is looked for in `PATH`, a directory is not.
pub(crate) fn of(env: &dyn Fn(&str) -> Option<OsString>) -> Vec<(&'static str, String)> {
    let names = VARIABLES.iter().map(|(name, ..)| *name).chain([PROGRAMS]);
    let all = names.filter_map(|name| Some((name, gitbytes::text(env(name)?.as_bytes()))));
    let directory = |name: &&str| [PROGRAMS, TEMPLATES].contains(name);
    all.filter(|(name, value)| directory(name) || value.contains(['/', ' '])).collect()
}

/// The files that one of them names, as a setting does ([`named`]).
pub fn names(name: &str, value: &str, base: &Base<'_>) -> Vec<(PathBuf, Guarded)> {
    if name == PROGRAMS {
        return vec![(base.worktree.join(gitbytes::path(value)), Guarded::Plain)];
    }
    let Some((_, section, name)) = VARIABLES.iter().find(|(known, ..)| *known == name) else {
        return Vec::new();
    };
    let setting = Setting {
        section: (*section).into(),
        subsection: None,
        name: (*name).to_owned(),
        value: Some(value.to_owned()),
        line: 0,
    };
    named(&setting, base)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn what_cannot_be_in_a_tree_is_not_kept_and_each_names_what_git_would_run() {
        let env = |name: &str| match name {
            "EDITOR" => Some(OsString::from("vim")),
            "GIT_EDITOR" => Some(OsString::from("python3 ed.py")),
            "GIT_ASKPASS" => Some(OsString::from("/w/ask me")),
            "GIT_EXEC_PATH" => Some(OsString::from("/w/git")),
            "GIT_TEMPLATE_DIR" => Some(OsString::from("t")),
            _ => None,
        };
        let kept = of(&env);
        let names_kept: Vec<&str> = kept.iter().map(|(name, _)| *name).collect();
        assert_eq!(names_kept, ["GIT_ASKPASS", "GIT_EDITOR", TEMPLATES, PROGRAMS]);
        let tree = Path::new("/w");
        let base = Base { file: tree, worktree: tree, home: &|_| None, program: &|_| false };
        let all = kept.iter().flat_map(|(name, value)| names(name, value, &base));
        let all: Vec<_> =
            all.map(|(path, guarded)| (path.display().to_string(), guarded)).collect();
        let wanted = [
            ("/w/ask", Guarded::Program),
            ("/w/ask me", Guarded::Program),
            ("/w/ed.py", Guarded::Program),
            ("/w/t/hooks", Guarded::GitHooks),
            ("/w/t/config", Guarded::GitConfig),
            ("/w/git", Guarded::Plain),
        ];
        assert_eq!(all, wanted.map(|(path, guarded)| (path.to_owned(), guarded)));
    }
}
