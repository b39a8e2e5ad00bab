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
//! (`build.rs`, `eslint.config.js`, pylint's `init-hook`), and direnv evaluates a `flake.nix` that an
//! allowed `.envrc` uses: SECURITY.md says so. Not here either, because they are instructions and not programs, and stand in
//! the next diff: `AGENTS.md`, `CLAUDE.md`, `GEMINI.md`, `.cursorrules`. Whoever wants one of
//! them protected says `--protect`; whoever wants to write one of the list says `--write` with
//! exactly that path.
//!
//! `.git` itself is not an entry, since git writes in it all the time. Where it appears as a file
//! or a symbolic link, [`git_link_allowed`] judges where it may lead.
//!
//! What names cannot cover: a bare repository (`HEAD`, `config`, `objects`, `refs` in an
//! ordinary directory) made inside. Set `safe.bareRepository = explicit` against it.

pub use crate::protect_home::HOME;

use crate::policy::Guarded;
use Guarded::{ExistingOnly, GitCommon, GitConfig, GitHooks, Plain};

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

const fn deep(name: &'static str, guarded: Guarded, reason: &'static str) -> Entry {
    Entry { name, guarded, nested: true, reason }
}

const fn top(name: &'static str, guarded: Guarded, reason: &'static str) -> Entry {
    Entry { name, guarded, nested: false, reason }
}

/// Protected in every writable tree.
pub const NAMES: &[Entry] = &[
    // Git reads these at every command, prompts and editors included.
    deep(".git/hooks", GitHooks, "git runs hooks"),
    deep(".git/config", GitConfig, "git runs programs its configuration names"),
    deep(".git/config.worktree", GitConfig, "git runs programs its configuration names"),
    deep(".git/commondir", Plain, "git would take configuration and hooks from where it says"),
    deep(".git/modules/**/hooks", GitHooks, "git runs hooks in submodules"),
    deep(".git/modules/**/config", GitConfig, "git runs programs its configuration names"),
    deep(".git/modules/**/config.worktree", GitConfig, "git runs programs its configuration names"),
    deep(
        ".git/modules/**/commondir",
        GitCommon,
        "git would take configuration and hooks from where it says",
    ),
    deep(
        ".git/worktrees/*/commondir",
        GitCommon,
        "git would take configuration and hooks from where it says",
    ),
    deep(
        ".git/worktrees/*/config.worktree",
        GitConfig,
        "git runs programs its configuration names",
    ),
    // Without a commondir it would be a repository by itself.
    deep(".git/worktrees/*/hooks", GitHooks, "git runs hooks"),
    deep(".git/worktrees/*/config", GitConfig, "git runs programs its configuration names"),
    deep(".gitmodules", GitConfig, "git fetches and updates what it says"),
    // Hooks that the repository itself holds, once somebody has installed them.
    deep(".husky", Plain, "git runs its files as hooks"),
    deep(".githooks", Plain, "git runs its files as hooks where core.hooksPath says so"),
    deep(".pre-commit-config.yaml", Plain, "the installed git hook runs its local entries"),
    deep(".pre-commit-config.yml", Plain, "the installed git hook (prek's) runs its local entries"),
    deep("lefthook.yml", Plain, "the installed git hooks run its commands"),
    deep("lefthook.yaml", Plain, "the installed git hooks run its commands"),
    deep("lefthook.toml", Plain, "the installed git hooks run its commands"),
    deep("lefthook.json", Plain, "the installed git hooks run its commands"),
    deep("*lefthook-local.yml", Plain, "the installed git hooks run its commands"),
    deep("*lefthook-local.yaml", Plain, "the installed git hooks run its commands"),
    deep("*lefthook-local.toml", Plain, "the installed git hooks run its commands"),
    deep("*lefthook-local.json", Plain, "the installed git hooks run its commands"),
    deep(".lefthook.yml", Plain, "the installed git hooks run its commands"),
    deep(".lefthook.yaml", Plain, "the installed git hooks run its commands"),
    deep(".lefthook.toml", Plain, "the installed git hooks run its commands"),
    deep(".lefthook.json", Plain, "the installed git hooks run its commands"),
    deep(".config/lefthook.*", Plain, "the installed git hooks run its commands"),
    deep(".lefthook", Plain, "the installed git hooks run its scripts"),
    deep(".lefthook-local", Plain, "the installed git hooks run its scripts"),
    deep(".overcommit.yml", Plain, "the installed git hooks run its commands"),
    deep("prek.toml", Plain, "the installed git hook runs its local entries"),
    deep("hk.pkl", Plain, "the installed git hooks run its commands"),
    deep("hk.local.pkl", Plain, "the installed git hooks run its commands"),
    deep(".config/hk.pkl", Plain, "the installed git hooks run its commands"),
    deep(".config/hk.local.pkl", Plain, "the installed git hooks run its commands"),
    deep(".lazygit.yml", Plain, "lazygit runs the pagers and commands it names"),
    deep(".git/lazygit.yml", Plain, "lazygit runs the pagers and commands it names"),
    deep(".reviewboardrc", Plain, "rbt executes it"),
    deep(".p4config", Plain, "p4 runs the programs its variables name, P4PORT too"),
    deep("captainhook.json", Plain, "the installed git hooks run its commands"),
    // Other version control.
    deep(".hg/hgrc", Plain, "Mercurial runs hooks and extensions it names"),
    deep(".hg/hgrc-not-shared", Plain, "Mercurial runs hooks and extensions it names"),
    deep(".hg/sharedpath", Plain, "Mercurial would take configuration from where it says"),
    deep(".sl/config", Plain, "Sapling runs hooks and extensions it names"),
    deep(".sl/sharedpath", Plain, "Sapling would take configuration from where it says"),
    deep("_darcs/prefs/defaults", Plain, "darcs runs hooks it names"),
    deep(".pijul/config", Plain, "Pijul runs hooks it names"),
    deep(".jj/repo/config.toml", Plain, "Jujutsu runs tools it names"),
    // Editors run tasks, language servers and interpreters that these name.
    deep(".vscode", Plain, "VS Code runs its tasks and the programs its settings name"),
    deep("*.code-workspace", Plain, "VS Code runs its tasks and the programs its settings name"),
    deep(".idea", Plain, "JetBrains IDEs run its start-up tasks"),
    deep(".fleet", Plain, "Fleet runs its tasks"),
    deep(".zed", Plain, "Zed runs its tasks and the language servers it names"),
    deep(".helix", Plain, "Helix runs the language servers it names"),
    deep(".devcontainer", Plain, "editors run its initializeCommand on the host"),
    deep(".devcontainer.json", Plain, "editors run its initializeCommand on the host"),
    deep(".project", Plain, "Eclipse runs the builders it names"),
    deep(".externalToolBuilders", Plain, "Eclipse runs the programs its builders name"),
    deep(".bsp", Plain, "Metals and IntelliJ start the build servers it names"),
    deep("*.sublime-project", Plain, "Sublime Text starts the language servers it names"),
    deep(".vim/coc-settings.json", Plain, "coc.nvim starts the language servers it names"),
    deep(".merlin", Plain, "merlin runs the preprocessors it names"),
    deep("hie.yaml", Plain, "Haskell's language server runs the programs it names"),
    deep("buildServer.json", Plain, "SourceKit-LSP starts the build server it names"),
    deep("rust-analyzer.toml", Plain, "rust-analyzer runs the commands it names"),
    deep(".lsp/config.edn", Plain, "clojure-lsp runs the commands it names"),
    deep("omnisharp.json", Plain, "OmniSharp loads the analyzers it names"),
    deep(".factorypath", Plain, "Eclipse and editors for Java load the processors it names"),
    deep(".exrc", Plain, "vi runs it where `exrc` is set"),
    deep(".vimrc", Plain, "vim runs it where `exrc` is set"),
    deep(".gvimrc", Plain, "gvim runs it where `exrc` is set"),
    deep(".nvimrc", Plain, "Neovim runs it where `exrc` is set"),
    deep(".nvim.lua", Plain, "Neovim runs it where `exrc` is set"),
    deep(".dir-locals.el", Plain, "Emacs evaluates it"),
    deep(".dir-locals-2.el", Plain, "Emacs evaluates it"),
    deep(".gdbinit", Plain, "gdb runs it"),
    deep(".lldbinit", Plain, "lldb runs it"),
    deep(".Rprofile", Plain, "R and its IDEs run it at start"),
    deep(".Renviron", Plain, "R takes variables from it at start, one names a program to run"),
    deep(".RData", Plain, "R restores it at start, and runs the .First in it"),
    deep("renv/activate.R", Plain, "the .Rprofile of projects with renv runs it"),
    deep(".octaverc", Plain, "Octave runs it at start"),
    deep(".perldb", Plain, "Perl's debugger runs it"),
    deep(".pryrc", Plain, "pry runs it at start"),
    deep(".byebugrc", Plain, "byebug runs it at start"),
    deep(".irbrc", Plain, "irb runs it at start"),
    deep(".ghci", Plain, "GHCi runs it at start"),
    deep(".iex.exs", Plain, "iex runs it at start"),
    deep(".ocamlinit", Plain, "the OCaml toplevel runs it at start"),
    deep(".pdbrc", Plain, "Python's debugger runs it"),
    // Entering the directory is enough.
    deep(".envrc", Plain, "direnv sources it in the user's shell"),
    deep(".envrc.local", Plain, "an allowed .envrc sources it, without asking again"),
    deep(".direnv", Plain, "direnv sources what it caches there, without asking"),
    deep(".mise.toml", Plain, "mise runs its hooks on entering the directory"),
    deep("mise.toml", Plain, "mise runs its hooks on entering the directory"),
    deep("mise.local.toml", Plain, "mise runs its hooks on entering the directory"),
    deep(".mise.local.toml", Plain, "mise runs its hooks on entering the directory"),
    deep("mise/config.toml", Plain, "mise runs its hooks on entering the directory"),
    deep(".config/mise.toml", Plain, "mise runs its hooks on entering the directory"),
    deep(".rvmrc", Plain, "rvm sources it on entering the directory"),
    deep(".mise", Plain, "mise runs its hooks on entering the directory"),
    deep(".config/mise", Plain, "mise runs its hooks on entering the directory"),
    deep(".tool-versions", Plain, "asdf runs tools from a path it may name"),
    // Package managers and build tools: settings that run a program at any command.
    deep(
        ".cargo/config.toml",
        Plain,
        "cargo and rust-analyzer run the wrappers and linkers it names",
    ),
    deep(".cargo/config", Plain, "cargo and rust-analyzer run the wrappers and linkers it names"),
    deep(
        ".npmrc",
        Plain,
        "npm runs the programs it names and sends tokens to the registry it names",
    ),
    deep(".yarnrc", Plain, "yarn runs the yarn it names"),
    deep(".yarnrc.yml", Plain, "yarn runs the yarn and the plugins it names"),
    deep(".yarn/releases", Plain, "yarn runs itself from there"),
    deep(".yarn/plugins", Plain, "yarn runs its plugins from there"),
    deep(".pnpmfile.cjs", Plain, "pnpm runs it at any installation"),
    deep(".pnpmfile.mjs", Plain, "pnpm runs it at any installation"),
    deep("bunfig.toml", Plain, "bun loads what it names at any command"),
    deep("rust-toolchain.toml", Plain, "cargo and rust-analyzer run the toolchain it names"),
    deep("rust-toolchain", Plain, "cargo and rust-analyzer run the toolchain it names"),
    deep(".bundle/plugin", Plain, "Bundler loads its plugins from there at any command"),
    deep(".mvn", Plain, "Maven and IDEs load the extensions and agents it names"),
    deep("*.bazelrc", Plain, "Bazel and IDEs run the programs it names"),
    deep(".bazeliskrc", Plain, "bazelisk runs the Bazel it names"),
    deep("tools/bazel", Plain, "Bazel's launcher runs it in Bazel's place"),
    deep(".buckconfig", Plain, "Buck runs the programs it names"),
    deep(".buckconfig.local", Plain, "Buck runs the programs it names"),
    deep(".sbtopts", Plain, "sbt takes options of its runtime from it"),
    deep(".jvmopts", Plain, "sbt and Mill take options of their runtime from it"),
    deep(".ripgreprc", Plain, "ripgrep runs the preprocessor it names"),
    deep(".venv/pyvenv.cfg", ExistingOnly, "editors start the interpreter it names"),
    deep("venv/pyvenv.cfg", ExistingOnly, "editors start the interpreter it names"),
    deep(".terraformrc", Plain, "terraform runs the providers it names"),
    // Agents: their settings run hooks and servers, or widen what they may do.
    deep(".mcp.json", Plain, "agents start the servers it names"),
    deep(".claude/settings.json", Plain, "Claude Code runs its hooks and follows its permissions"),
    deep(
        ".claude/settings.local.json",
        Plain,
        "Claude Code runs its hooks and follows its permissions",
    ),
    deep(".claude/hooks", Plain, "Claude Code runs them"),
    deep(".claude/commands", Plain, "Claude Code follows them, shell commands included"),
    deep(".claude/agents", Plain, "Claude Code follows them with the permissions they name"),
    deep(".claude/skills", Plain, "Claude Code follows them, scripts included"),
    deep(".claude/plugins", Plain, "Claude Code runs them"),
    deep(".claude/launch.json", Plain, "Claude Code starts the servers it names"),
    deep(".claude/workflows", Plain, "Claude Code runs them"),
    deep(".claude/routines", Plain, "Claude Code follows them at their time"),
    deep(".claude/scheduled_tasks.json", Plain, "Claude Code follows it at its time"),
    deep(".amazonq", Plain, "Amazon Q runs its hooks and starts the servers it names"),
    deep(".augment", Plain, "Auggie runs its hooks and follows its permissions"),
    deep(".codebuddy", Plain, "CodeBuddy runs its hooks and starts the servers it names"),
    deep(".grok", Plain, "Grok CLI starts the servers it names"),
    deep(".iflow", Plain, "iFlow CLI runs its hooks and starts the servers it names"),
    deep(".junie", Plain, "Junie starts the servers it names"),
    deep(".openhands", Plain, "OpenHands runs its scripts and hooks"),
    deep(".pi", Plain, "pi loads its extensions"),
    deep(".qoder", Plain, "Qoder runs its hooks and starts the servers it names"),
    deep(".trae", Plain, "Trae starts the servers it names"),
    deep(".vibe", Plain, "Mistral Vibe starts the servers it names"),
    deep(".codex", Plain, "Codex runs its hooks and starts the servers it names"),
    deep(".gemini", Plain, "Gemini CLI runs its hooks and starts the servers it names"),
    deep(".qwen", Plain, "Qwen Code starts the servers it names"),
    deep(".cursor", Plain, "Cursor runs its hooks and starts the servers it names"),
    deep(".windsurf", Plain, "Windsurf runs its hooks and workflows"),
    deep(".opencode", Plain, "opencode runs its plugins"),
    deep("opencode.json", Plain, "opencode runs the plugins and servers it names"),
    deep("opencode.jsonc", Plain, "opencode runs the plugins and servers it names"),
    deep(".crush.json", Plain, "Crush starts the servers it names"),
    deep("crush.json", Plain, "Crush starts the servers it names"),
    deep(".crush/crush.json", Plain, "Crush starts the servers it names"),
    deep(".aider.conf.yml", Plain, "aider runs the lint and test commands it names"),
    deep(".goose", Plain, "goose runs its recipes and extensions"),
    deep(".continue", Plain, "Continue starts the servers it names"),
    deep(".continuerc.json", Plain, "Continue starts the servers it names"),
    deep(".roo", Plain, "Roo Code starts the servers it names"),
    deep(".clinerules", Plain, "Cline runs its hooks and workflows"),
    deep(".kilocode", Plain, "Kilo Code starts the servers it names"),
    deep(".kiro", Plain, "Kiro runs its hooks and starts the servers it names"),
    deep(".amp", Plain, "Amp follows its permissions and starts the servers it names"),
    deep(".agents", Plain, "agents follow its skills and commands, scripts included"),
    deep(".factory", Plain, "Droid runs its hooks and starts the servers it names"),
    deep(".copilot", Plain, "Copilot starts the servers it names"),
    deep(".github/hooks", Plain, "Copilot runs them"),
    deep(".github/copilot", Plain, "Copilot runs the hooks its settings name"),
    deep(".github/mcp.json", Plain, "Copilot starts the servers it names"),
    deep(".github/agents", Plain, "Copilot starts the servers they name"),
    // A shell's or a login's, where the tree is somebody's home or his dotfiles.
    top(".bashrc", Plain, "bash runs it"),
    top(".bash_profile", Plain, "bash runs it"),
    top(".bash_login", Plain, "bash runs it"),
    top(".bash_logout", Plain, "bash runs it"),
    top(".bash_aliases", Plain, "bash runs it"),
    top(".profile", Plain, "login shells run it"),
    top(".zshrc", Plain, "zsh runs it"),
    top(".zshenv", Plain, "zsh runs it, in scripts too"),
    top(".zprofile", Plain, "zsh runs it"),
    top(".zlogin", Plain, "zsh runs it"),
    top(".zlogout", Plain, "zsh runs it"),
    top(".kshrc", Plain, "ksh runs it"),
    top(".cshrc", Plain, "csh runs it"),
    top(".tcshrc", Plain, "tcsh runs it"),
    top(".config/fish", Plain, "fish runs what is in it"),
    top(".gitconfig", GitConfig, "git runs programs it names"),
    top(".config/git", Plain, "git runs programs its configuration names"),
    top(".tmux.conf", Plain, "tmux runs it"),
    top(".ssh", Plain, "ssh trusts its keys and runs commands it names"),
];

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
    one_path(content.strip_prefix(b"gitdir: ")?)
}

/// The path in a file that holds nothing else.
fn one_path(content: &[u8]) -> Option<&std::path::Path> {
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
    let target = parent.join(one_path(content)?);
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
