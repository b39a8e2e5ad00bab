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
//! `build.rs`, `pom.xml`, `.github/workflows`, `.gitattributes` (it names drivers, which only a
//! git configuration defines), `.nvmrc`, `flake.nix`, the programs in `node_modules` and
//! `.venv/bin`. Not here either, because they are instructions and not programs, and stand in
//! the next diff: `AGENTS.md`, `CLAUDE.md`, `GEMINI.md`, `.cursorrules`. Whoever wants one of
//! them protected says `--protect`; whoever wants to write one of the list says `--write` with
//! exactly that path.
//!
//! `.git` itself is not an entry, since git writes in it all the time. Where it appears as a file
//! or a symbolic link, [`git_link_allowed`] judges where it may lead.
//!
//! What names cannot cover: a bare repository (`HEAD`, `config`, `objects`, `refs` in an
//! ordinary directory) made inside. Set `safe.bareRepository = explicit` against it.

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
    deep(".gitmodules", GitConfig, "git fetches and updates what it says"),
    // Hooks that the repository itself holds, once somebody has installed them.
    deep(".husky", Plain, "git runs its files as hooks"),
    deep(".githooks", Plain, "git runs its files as hooks where core.hooksPath says so"),
    deep(".pre-commit-config.yaml", Plain, "the installed git hook runs its local entries"),
    deep("lefthook.yml", Plain, "the installed git hooks run its commands"),
    deep("lefthook.yaml", Plain, "the installed git hooks run its commands"),
    deep("lefthook.toml", Plain, "the installed git hooks run its commands"),
    deep(".lefthook.yml", Plain, "the installed git hooks run its commands"),
    deep("lefthook-local.yml", Plain, "the installed git hooks run its commands"),
    deep(".lefthook", Plain, "the installed git hooks run its scripts"),
    deep(".overcommit.yml", Plain, "the installed git hooks run its commands"),
    // Other version control.
    deep(".hg/hgrc", Plain, "Mercurial runs hooks and extensions it names"),
    deep(".sl/config", Plain, "Sapling runs hooks and extensions it names"),
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
    deep(".exrc", Plain, "vi runs it where `exrc` is set"),
    deep(".vimrc", Plain, "vim runs it where `exrc` is set"),
    deep(".nvimrc", Plain, "Neovim runs it where `exrc` is set"),
    deep(".nvim.lua", Plain, "Neovim runs it where `exrc` is set"),
    deep(".dir-locals.el", Plain, "Emacs evaluates it"),
    deep(".gdbinit", Plain, "gdb runs it"),
    deep(".lldbinit", Plain, "lldb runs it"),
    deep(".Rprofile", Plain, "R and its IDEs run it at start"),
    deep(".pryrc", Plain, "pry runs it at start"),
    deep(".irbrc", Plain, "irb runs it at start"),
    deep(".ghci", Plain, "GHCi runs it at start"),
    deep(".iex.exs", Plain, "iex runs it at start"),
    deep(".ocamlinit", Plain, "the OCaml toplevel runs it at start"),
    deep(".pdbrc", Plain, "Python's debugger runs it"),
    // Entering the directory is enough.
    deep(".envrc", Plain, "direnv sources it in the user's shell"),
    deep(".direnv", Plain, "direnv sources what it caches there, without asking"),
    deep(".mise.toml", Plain, "mise runs its hooks on entering the directory"),
    deep("mise.toml", Plain, "mise runs its hooks on entering the directory"),
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

/// Protected below the home directory as well, wherever that lies in a writable tree: what a
/// login, a shell, a desktop or a developer's tool runs. A tree that is granted by exactly such
/// a path is left alone. The [`NAMES`] hold there besides.
pub const HOME: &[(&str, &str)] = &[
    // Shells, logins and the desktop.
    (".login", "csh runs it"),
    (".mkshrc", "mksh runs it"),
    (".bashrc.d", "bash runs what is in it"),
    (".bash_completion", "bash runs it"),
    (".local/share/bash-completion", "bash runs what is in it at a tab"),
    (".local/share/fish", "fish runs what is in it"),
    (".oh-my-zsh", "zsh runs what is in it"),
    (".config/zsh", "zsh runs what is in it"),
    (".config/nushell", "nushell runs what is in it"),
    (".config/starship.toml", "the prompt runs commands it names"),
    (".inputrc", "shells type what it says"),
    (".pam_environment", "logins take variables from it"),
    (".xinitrc", "the desktop runs it"),
    (".xprofile", "the desktop runs it"),
    (".xsession", "the desktop runs it"),
    (".xsessionrc", "the desktop runs it"),
    (".config/autostart", "the desktop runs what is in it"),
    (".config/autostart-scripts", "the desktop runs what is in it"),
    (".config/plasma-workspace", "the desktop runs what is in it"),
    (".config/environment.d", "sessions take variables from it"),
    (".config/systemd", "systemd runs what is in it"),
    (".config/user-tmpfiles.d", "systemd acts on what is in it"),
    (".local/share/systemd", "systemd runs what is in it"),
    (".local/share/dbus-1", "D-Bus starts services from it"),
    (".local/share/applications", "the desktop runs what is in it"),
    (".config/i3", "the window manager runs commands it names"),
    (".config/sway", "the window manager runs commands it names"),
    (".config/hypr", "the window manager runs commands it names"),
    (".config/kitty", "the terminal runs commands it names"),
    (".config/alacritty", "the terminal runs commands it names"),
    (".config/wezterm", "the terminal runs it"),
    (".wezterm.lua", "the terminal runs it"),
    (".config/ghostty", "the terminal runs commands it names"),
    (".config/tmux", "tmux runs it"),
    (".screenrc", "screen runs commands it names"),
    (".lessfilter", "less runs it"),
    (".mailcap", "programs run commands it names"),
    (".forward", "the mail system runs commands it names"),
    (".procmailrc", "the mail system runs commands it names"),
    (".muttrc", "mutt runs commands it names"),
    (".config/mutt", "mutt runs commands it names"),
    (".asoundrc", "programs with sound load libraries it names"),
    (".xbindkeysrc", "the desktop runs commands it names"),
    (".config/sxhkd", "the desktop runs commands it names"),
    (".config/openbox", "the window manager runs commands it names"),
    (".config/awesome", "the window manager runs it"),
    (".config/bspwm", "the window manager runs it"),
    (".config/qtile", "the window manager runs it"),
    (".config/zellij", "zellij runs commands it names"),
    (".config/mpv", "mpv runs what is in it"),
    (".config/mc", "Midnight Commander runs commands it names"),
    (".config/ranger", "ranger runs what is in it"),
    (".config/lf", "lf runs commands it names"),
    (".config/yazi", "yazi runs what is in it"),
    (".config/lazygit", "lazygit runs commands it names"),
    (".local/share/gnome-shell", "the desktop runs extensions in it"),
    (".local/share/nautilus", "the file manager runs scripts in it"),
    (".local/share/thumbnailers", "the file manager runs commands they name"),
    (".local/share/vulkan", "programs with graphics load libraries it names"),
    (".config/mimeapps.list", "the desktop opens files with programs it names"),
    // Programs that are found before the system's.
    ("bin", "shells find programs there"),
    (".local/bin", "shells find programs there"),
    (".local/lib", "Python loads modules from it at every start"),
    (".local/pipx", "programs found by shells live there"),
    (".local/share/pipx", "programs found by shells live there"),
    (".local/share/uv", "programs found by shells live there"),
    (".local/share/mise", "programs found by shells live there"),
    (".local/share/pnpm", "programs found by shells live there"),
    (".cargo/bin", "shells find programs there"),
    (".cargo/env", "shells run it"),
    (".rustup", "programs found by shells live there"),
    (".pyenv", "programs found by shells live there"),
    (".rbenv", "programs found by shells live there"),
    (".nvm", "shells run it, and find programs there"),
    (".volta", "programs found by shells live there"),
    (".asdf", "shells run it, and find programs there"),
    (".asdfrc", "asdf runs hooks it names"),
    (".sdkman", "shells run it, and find programs there"),
    (".bun/bin", "shells find programs there"),
    (".deno/bin", "shells find programs there"),
    (".npm-global", "programs found by shells live there"),
    (".nix-profile", "programs found by shells live there"),
    (".local/state/nix", "programs found by shells live there"),
    ("go/bin", "shells find programs there"),
    // Settings of tools that run what they name.
    (".gradle/init.d", "Gradle runs what is in it"),
    (".gradle/init.gradle", "Gradle runs it"),
    (".gradle/gradle.properties", "Gradle takes its runtime from it, and credentials"),
    (".m2/settings.xml", "Maven sends credentials to servers it names"),
    (".mavenrc", "Maven runs it"),
    (".pip", "pip fetches from where it says"),
    (".config/pip", "pip fetches from where it says"),
    (".config/uv", "uv fetches from where it says"),
    (".pypirc", "credentials"),
    (".condarc", "conda fetches from where it says"),
    (".ipython", "IPython runs what is in it at start"),
    (".jupyter", "Jupyter runs it at start"),
    (".config/matplotlib", "Python programs load it"),
    (".psqlrc", "psql runs it"),
    (".hgrc", "Mercurial runs hooks and extensions it names"),
    (".config/hg", "Mercurial runs hooks and extensions it names"),
    (".config/jj", "Jujutsu runs tools it names"),
    (".subversion", "Subversion runs commands its configuration names"),
    (".wgetrc", "wget runs the programs it names"),
    (".config/nix", "nix runs commands it names"),
    (".sqliterc", "sqlite3 runs it"),
    (".config/direnv", "direnv sources it"),
    (".direnvrc", "direnv sources it"),
    (".vim", "vim runs what is in it"),
    (".config/nvim", "Neovim runs it"),
    (".local/share/nvim", "Neovim runs what is in it"),
    (".emacs", "Emacs runs it"),
    (".emacs.d", "Emacs runs it"),
    (".config/emacs", "Emacs runs it"),
    (".config/helix", "Helix runs programs it names"),
    (".config/zed", "Zed runs programs it names"),
    (".config/Code", "VS Code runs programs its settings name"),
    (".config/VSCodium", "VSCodium runs programs its settings name"),
    (".config/Cursor", "Cursor runs programs its settings name"),
    (".config/JetBrains", "JetBrains IDEs run what is in it"),
    (".vscode-server", "VS Code runs what is in it"),
    (".cursor-server", "Cursor runs what is in it"),
    // Credentials and who is trusted with them.
    (".gnupg", "keys, and programs its configuration names"),
    (".aws", "credentials, and programs its configuration names"),
    (".kube", "credentials, and programs its configuration names"),
    (".docker", "credentials, and programs its configuration names"),
    (".config/containers", "credentials, and programs its configuration names"),
    (".config/gcloud", "credentials"),
    (".config/gh", "credentials, and aliases that run commands"),
    (".netrc", "credentials"),
    (".rhosts", "logins trust the machines it names"),
    (".shosts", "logins trust the machines it names"),
    (".k5login", "logins trust the people it names"),
    (".git-credentials", "credentials"),
    (".config/op", "credentials"),
    (".password-store", "credentials"),
    (".local/share/keyrings", "credentials"),
    // Agents' own settings, beside those of projects above.
    (".claude/local", "shells find claude there"),
    (".claude/.config.json", "Claude Code takes it in place of ~/.claude.json"),
    (".claude/CLAUDE.md", "Claude Code follows it in every project"),
    (".claude/rules", "Claude Code follows them in every project"),
    (".claude/output-styles", "Claude Code follows them"),
    (".claude/keybindings.json", "Claude Code runs what it binds"),
    (".claude/remote-settings.json", "Claude Code runs its hooks and follows its permissions"),
    (".codex/config.toml", "Codex starts the servers and notifiers it names"),
    (".codex/hooks", "Codex runs them"),
    (".codex/hooks.json", "Codex runs what it names"),
    (".codex/rules", "Codex runs what they allow without asking"),
    (".codex/prompts", "Codex follows them"),
    (".codex/AGENTS.md", "Codex follows it in every project"),
    (".codex/AGENTS.override.md", "Codex follows it in every project"),
    (".codex/.env", "Codex takes variables from it"),
    (".gemini/commands", "Gemini CLI follows them, shell commands included"),
    (".gemini/extensions", "Gemini CLI runs them"),
    (".gemini/trustedFolders.json", "Gemini CLI trusts the folders it names"),
    (".gemini/.env", "Gemini CLI takes variables from it"),
    (".gemini/GEMINI.md", "Gemini CLI follows it in every project"),
    (".gemini/skills", "Gemini CLI follows them, scripts included"),
    (".gemini/agents", "Gemini CLI follows them"),
    (".gemini/hooks", "Gemini CLI runs them"),
    (".gemini/policies", "Gemini CLI runs what they allow without asking"),
    (".cursor/mcp.json", "Cursor starts the servers it names"),
    (".cursor/hooks.json", "Cursor runs them"),
    (".cursor/extensions", "Cursor runs them"),
    (".cursor/rules", "Cursor follows them in every project"),
    (".cursor/commands", "Cursor follows them"),
    (".cursor/skills", "Cursor follows them, scripts included"),
    (".aider/oauth-keys.env", "aider takes its settings from it, commands included"),
    (".config/opencode", "opencode runs its plugins"),
    (".config/goose", "goose starts the extensions it names"),
    (".config/amp", "Amp follows its permissions and starts the servers it names"),
    (".copilot/mcp-config.json", "Copilot starts the servers it names"),
    (".copilot/hooks", "Copilot runs them"),
    (".copilot/skills", "Copilot follows them, scripts included"),
    (".copilot/copilot-instructions.md", "Copilot follows it in every project"),
    (".copilot/agents", "Copilot starts the servers they name"),
];

/// Below the home as well: what is judged by its content, whoever grants it.
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
];

/// Directories of a repository in which no other repository is looked for.
pub const GIT_INNARDS: &[&str] = &["objects", "refs", "logs", "hooks", "info", "lfs", "rr-cache"];

/// Directories below `modules` further down than this are nobody's.
pub const GIT_DEEPEST: usize = 8;

/// Whether a `.git` that is a file (`gitdir: TARGET`) or a symbolic link to TARGET may appear in
/// a writable tree: TARGET, as an absolute path, is a submodule's or a worktree's directory in a
/// repository, where the list guards its configuration. A submodule's name may have slashes.
pub fn git_link_allowed(target: &std::path::Path) -> bool {
    let names: Vec<_> = target.components().map(|component| component.as_os_str()).collect();
    names.windows(2).enumerate().any(|(index, pair)| {
        let rest = &names[index + 2..];
        let innards = |name: &&std::ffi::OsStr| GIT_INNARDS.iter().any(|innards| *name == *innards);
        let depth = (1..=GIT_DEEPEST).contains(&rest.len());
        let modules = pair[1] == "modules" && depth && !rest.iter().any(innards);
        pair[0] == ".git" && (modules || pair[1] == "worktrees" && rest.len() == 1)
    })
}

/// Whether a `commondir` file at an absolute path may appear with this content: it leads from
/// `.git/worktrees/NAME` to `.git`, or so in a submodule's directory.
pub fn git_common_allowed(path: &std::path::Path, content: &[u8]) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let content = content.strip_suffix(b"\n").unwrap_or(content);
    let content = std::path::Path::new(std::ffi::OsStr::from_bytes(content));
    let parent = path.parent();
    let worktrees = parent.and_then(std::path::Path::parent);
    let own = worktrees.filter(|at| at.ends_with("worktrees")).and_then(std::path::Path::parent);
    parent.zip(own).is_some_and(|(parent, own)| crate::path::normal(&parent.join(content)) == own)
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
            "/w/.git/modules/a/worktrees/b",
        ] {
            assert!(git_link_allowed(Path::new(good)), "{good}");
        }
        for bad in [
            "/w/evil",
            "/w/.git",
            "/w/.git/modules",
            "/w/.git/evil/x",
            "/w/.git/modules/a/objects/b",
            "/w/.git/worktrees/x/y",
        ] {
            assert!(!git_link_allowed(Path::new(bad)), "{bad}");
        }
    }

    #[test]
    fn a_worktree_leads_to_the_repository_it_is_in() {
        let at =
            |path: &str, content: &str| git_common_allowed(Path::new(path), content.as_bytes());
        assert!(at("/w/.git/worktrees/x/commondir", "../..\n"));
        assert!(at("/w/.git/worktrees/x/commondir", "/w/.git"));
        assert!(at("/w/.git/modules/a/worktrees/x/commondir", "../..\n"));
        for (path, content) in [
            ("/w/.git/worktrees/x/commondir", "../../../evil\n"),
            ("/w/.git/worktrees/x/commondir", "../..\n\n"),
            ("/w/.git/worktrees/x/commondir", ""),
            ("/w/.git/modules/a/commondir", "../..\n"),
            ("/w/.git/modules/a/commondir", "../../../evil"),
        ] {
            assert!(!at(path, content), "{path} {content}");
        }
    }
}
