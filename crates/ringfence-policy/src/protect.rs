//! What is protected inside writable trees, and why: the one list.
//!
//! The danger is not what a sandboxed program does, but what it leaves behind: a file that a
//! program of the host later executes or trusts, without anybody having meant to run the
//! project. An entry belongs here when all of this holds:
//!
//! - a program on the host reads it by itself (opening an editor, `cd`, `git status`, a login),
//! - it can make that program execute something or hand out a credential,
//! - programs in a sandbox seldom have a reason to write it.
//!
//! Not here, because agents edit them every day and they take effect only when somebody runs
//! the project, which is then his decision: `package.json`, `Makefile`, `conftest.py`,
//! `build.rs`, `pom.xml`, `gradle/wrapper`, `.github/workflows`, `.gitattributes` (it names drivers,
//! which only a git configuration defines), `.nvmrc`, `flake.nix`, the programs in `node_modules`
//! and `.venv/bin`. An editor's language server may run some of that when it opens the project
//! (`build.rs`, `eslint.config.js`, pylint's `init-hook`), direnv evaluates a `flake.nix` that an
//! allowed `.envrc` uses, and launchers fetch the version that a `lean-toolchain` names: SECURITY.md says so. Not here either, because they are instructions and not programs, and stand in
//! the next diff: `AGENTS.md`, `CLAUDE.md`, `GEMINI.md`, `.cursorrules`. Whoever wants one of
//! them protected says `--protect`; whoever wants to write one of the list says `--write` with
//! exactly that path.
//!
//! `.git` itself is not an entry, since git writes in it all the time. Where it appears as a file
//! or a symbolic link, [`git_link_allowed`] judges where it may lead.
//!
//! What names cannot cover: a bare repository (`HEAD`, `config`, `objects`, `refs` in an
//! ordinary directory) made inside. Set `safe.bareRepository = explicit` against it.

pub use crate::protect_home::{HOME, LINKED_IN, is_of_programs};
pub use crate::protect_names::NAMES;

use crate::policy::Guarded;

/// One entry of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Relative path; `*` matches within a component, `**` one directory or several, none of
    /// them [`GIT_INNARDS`].
    pub name: &'static str,
    /// How a new one is judged.
    pub guarded: Guarded,
    /// Also below the first level of a tree.
    pub nested: bool,
    /// Who executes or trusts it.
    pub reason: &'static str,
}

/// Why a path below the home is protected there, if it is, or is in what is: a grant of just that lifts it.
pub fn below_home(rest: &std::path::Path) -> Option<&'static str> {
    let judged = JUDGED.iter().map(|(name, _, reason)| (*name, *reason));
    let mut all = held_in_home().chain(judged);
    all.find(|(name, _)| rest.starts_with(name)).map(|(_, reason)| reason)
}

/// The names that nobody may change below the home, each with its reason.
pub fn held_in_home() -> impl Iterator<Item = (&'static str, &'static str)> {
    HOME.iter().copied().chain(NAMES.iter().map(|entry| (entry.name, entry.reason)))
}

/// Below the home as well: what is judged by its content, whoever grants it, and what is of one session.
pub const JUDGED: &[(&str, Guarded, &str)] = &[
    (
        ".claude.json",
        Guarded::Settings,
        "Claude Code starts the servers and trusts the projects it names",
    ),
    (
        ".gemini/settings.json",
        Guarded::Settings,
        "Gemini CLI runs its hooks and starts the servers it names",
    ),
    (".cursor/cli-config.json", Guarded::Settings, "Cursor follows its permissions"),
    (".config/cursor/cli-config.json", Guarded::Settings, "Cursor follows its permissions"),
    (".copilot/config.json", Guarded::Settings, "Copilot trusts the folders it names"),
    (".copilot/settings.json", Guarded::Settings, "Copilot runs its hooks"),
    (".codex/skills", Guarded::Skills, "Codex follows them, scripts included"),
    (
        ".local/share/opencode/auth.json",
        Guarded::Settings,
        "opencode takes settings from the servers it names",
    ),
    (".claude/shell-snapshots", Guarded::Private, "Claude Code sources them before each command"),
    (".claude/session-env", Guarded::Private, "Claude Code sources what is in it before commands"),
    (".claude/ide", Guarded::Private, "Claude Code connects to the editors it names"),
    (".codex/shell_snapshots", Guarded::Private, "Codex sources them before each command"),
    (".codex/tmp", Guarded::Private, "Codex finds programs there"),
    (
        ".gemini/history",
        Guarded::Private,
        "Gemini runs git in its repositories, and writes its files",
    ),
    (".qwen/history", Guarded::Private, "Qwen runs git in its repositories, and writes its files"),
];

/// Directories of a repository in which no other repository is looked for.
pub const GIT_INNARDS: &[&str] = &["objects", "refs", "logs", "hooks", "info", "lfs", "rr-cache"];

/// Directories below `modules` further down than this are nobody's.
pub const GIT_DEEPEST: usize = 8;

/// Whether a `.git` that is a file (`gitdir: TARGET`) or a symbolic link to TARGET may appear in
/// a writable tree: TARGET, as an absolute path, is a submodule's or a worktree's directory in a
/// repository, where the list guards the configuration. A submodule may have any name, slashes too. A repository in
/// another's `.git` is none that anybody looks for.
pub fn git_link_allowed(target: &std::path::Path) -> bool {
    let names: Vec<_> = target.components().map(|component| component.as_os_str()).collect();
    let git = names.iter().position(|name| *name == ".git");
    let Some([_, place, rest @ ..]) = git.map(|git| &names[git..]) else { return false };
    *place == "modules" && !rest.is_empty() || *place == "worktrees" && rest.len() == 1
}

/// Whether it may lead there because that is a worktree's directory in a bare repository, `REPOSITORY/worktrees/NAME`:
/// in a guarded tree all repositories are looked at, whatever they are called, but for those in another's `.git`.
pub fn git_bare_worktree(target: &std::path::Path, tree: &std::path::Path) -> bool {
    let Ok(below) = target.strip_prefix(tree) else { return false };
    let in_git = below.components().any(|component| component.as_os_str() == ".git");
    !in_git && git_of_worktree(target).is_some_and(|own| own.starts_with(tree))
}

/// The directory of the repository whose worktree keeps what is its own in this one, `REPOSITORY/worktrees/NAME`.
pub fn git_of_worktree(private: &std::path::Path) -> Option<&std::path::Path> {
    private.parent().filter(|folder| folder.ends_with("worktrees"))?.parent()
}

/// The path that a `.git` file names, as git reads it (`read_gitfile_gently` in setup.c): behind one space, up to the
/// ends of the line. A zero byte would end it for git and not for us.
pub fn git_file_target(content: &[u8]) -> Option<&std::path::Path> {
    git_path(content.strip_prefix(b"gitdir: ")?)
}

/// The path in a file of git's that holds nothing else.
pub fn git_path(content: &[u8]) -> Option<&std::path::Path> {
    use std::os::unix::ffi::OsStrExt;
    let end = content.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r'))?;
    let path = content.get(..=end)?;
    (!path.contains(&0)).then(|| std::path::Path::new(std::ffi::OsStr::from_bytes(path)))
}

/// Where a `commondir` file at an absolute path leads, if it may appear with this content: from
/// `.git/worktrees/NAME` to `.git`, or so in a submodule's directory. By its text: links on the way may lead elsewhere.
pub fn git_common_allowed(path: &std::path::Path, content: &[u8]) -> Option<std::path::PathBuf> {
    let parent = path.parent()?;
    let own = git_of_worktree(parent)?;
    let target = parent.join(git_path(content)?);
    (crate::path::normal(&target) == own).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn each_entry_has_a_reason_and_stands_once() {
        let mut names: Vec<_> = NAMES.iter().map(|entry| entry.name).collect();
        assert!(NAMES.iter().all(|entry| !entry.reason.is_empty()));
        assert!(names.iter().all(|name| !name.starts_with('/') && !name.ends_with('/')));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        let mut home: Vec<_> = HOME.iter().map(|(name, _)| *name).collect();
        let count = home.len();
        home.sort_unstable();
        home.dedup();
        assert_eq!(home.len(), count);
    }

    /// Others would make a kept plan depend on every name in the directory.
    #[test]
    fn patterns_at_the_top_are_endings() {
        for entry in NAMES {
            let first = entry.name.split('/').next().unwrap_or_default();
            assert!(!first.trim_start_matches('*').contains(['*', '?']), "{first}");
        }
    }

    #[test]
    fn project_files_that_agents_edit_are_not_protected() {
        for name in ["package.json", "Makefile", "conftest.py", "AGENTS.md", ".gitattributes"] {
            assert!(NAMES.iter().all(|entry| entry.name != name), "{name}");
        }
    }

    #[test]
    fn a_git_file_leads_to_a_guarded_repository_only() {
        for good in [
            "/w/.git/modules/sub",
            "/w/.git/modules/libs/sub",
            "/w/.git/worktrees/x",
            "/w/.git/modules/a/modules/b",
            "/w/.git/modules/docs/logs",
            "/w/.git/modules/a/worktrees/b",
        ] {
            assert!(git_link_allowed(Path::new(good)), "{good}");
        }
        for bad in [
            "/w/evil",
            "/w/.git",
            "/w/.git/modules",
            "/w/.git/evil/x",
            "/w/.git/worktrees/x/y",
            "/w/.git/foo/.git/modules/m",
            "/w/.git/foo/.git/worktrees/x",
        ] {
            assert!(!git_link_allowed(Path::new(bad)), "{bad}");
        }
    }

    #[test]
    fn a_git_file_is_read_as_git_reads_it() {
        for (content, target) in [
            ("gitdir: ../x\n", Some("../x")),
            ("gitdir: ../x \r\n\n", Some("../x ")),
            ("gitdir:  x", Some(" x")),
            ("gitdir:x", None),
            ("gitdir: \n", None),
            ("gitdir: ../.git/foo\0/../modules/x", None),
        ] {
            assert_eq!(git_file_target(content.as_bytes()), target.map(Path::new), "{content:?}");
        }
    }

    #[test]
    fn a_worktree_of_a_bare_repository_is_in_the_tree() {
        for (target, good) in [
            ("/w/.bare/worktrees/x", true),
            ("/w/sub/repo.git/worktrees/x", true),
            ("/w/worktrees/x", true),
            ("/worktrees/x", false),
            ("/v/.bare/worktrees/x", false),
            ("/w/.bare", false),
            ("/w/.bare/worktrees", false),
            ("/w/.bare/worktrees/x/y", false),
            ("/w/.git/evil/worktrees/x", false),
        ] {
            assert_eq!(git_bare_worktree(Path::new(target), Path::new("/w")), good, "{target}");
        }
    }

    #[test]
    fn a_worktree_leads_to_the_repository_it_is_in() {
        let at = |path: &str, content: &str| {
            git_common_allowed(Path::new(path), content.as_bytes()).is_some()
        };
        assert!(at("/w/.git/worktrees/x/commondir", "../..\n"));
        assert!(at("/w/.git/worktrees/x/commondir", "/w/.git"));
        assert!(at("/w/.git/modules/a/worktrees/x/commondir", "../..\n"));
        for (path, content) in [
            ("/w/.git/worktrees/x/commondir", "../../../evil\n"),
            ("/w/.git/worktrees/x/commondir", "../../bar\0/.."),
            ("/w/.git/worktrees/x/commondir", ""),
            ("/w/.git/modules/a/commondir", "../..\n"),
            ("/w/.git/modules/a/commondir", "../../../evil"),
        ] {
            assert!(!at(path, content), "{path} {content}");
        }
    }
}
