//! The files that git's configuration names: further configuration, hooks, programs and what these are told to run.
//! Whoever writes them decides what git runs.

use crate::gitconfig::{Setting, parse, runs};
use crate::gitwords::programs;
use crate::path::normal;
use crate::policy::Guarded;
use crate::protect::git_file_target;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Files of configuration that are followed, of one repository.
pub const MOST_INCLUDED: usize = 32;

/// From where the paths of a setting count.
#[derive(Clone, Copy)]
pub struct Base<'a> {
    /// The directory of the file that it stands in.
    pub file: &'a Path,
    /// The directory in which git runs what it names.
    pub worktree: &'a Path,
    /// The home of a user by his name; of the one who runs git, without a name.
    pub home: &'a dyn Fn(&str) -> Option<PathBuf>,
}

impl Base<'_> {
    /// The path that a text means, from a directory. `None` where a user's home is not known.
    fn path(&self, from: &Path, text: &str) -> Option<PathBuf> {
        let Some(of) = text.strip_prefix('~') else { return Some(normal(&from.join(text))) };
        let (user, below) = of.split_once('/').unwrap_or((of, ""));
        Some(normal(&(self.home)(user)?.join(below)))
    }
}

/// The files that a setting names, and how each is guarded. Those that a command names
/// ([`Guarded::ExistingOnly`]) may be words of another meaning: they count where a file is there.
pub fn named(setting: &Setting, base: &Base<'_>) -> Vec<(PathBuf, Guarded)> {
    let Some(value) = &setting.value else { return Vec::new() };
    let one =
        |path: Option<PathBuf>, guarded| path.map(|path| (path, guarded)).into_iter().collect();
    if matches!(setting.section.as_str(), "include" | "includeif") {
        return one(base.path(base.file, value), Guarded::GitConfig);
    }
    if setting.section == "core" && setting.name == "hookspath" {
        return one(base.path(base.worktree, value), Guarded::GitHooks);
    }
    if setting.section == "init" && setting.name == "templatedir" {
        // What is in it is in each new repository.
        let parts = [("hooks", Guarded::GitHooks), ("config", Guarded::GitConfig)];
        let template = base.path(base.worktree, value);
        let part = |template: &PathBuf| parts.map(|(name, guarded)| (template.join(name), guarded));
        return template.iter().flat_map(part).collect();
    }
    // A remote in the tree, for one, is named by a path as well, and is not run; nor is what an alias without
    // a mark says.
    if !runs(setting) || setting.section == "alias" && !value.starts_with('!') {
        return Vec::new();
    }
    // Some take a path, others a command; a plain word is looked for in PATH, and not in the tree.
    let whole = (value.contains('/') && !value.starts_with('!')).then(|| value.clone());
    let words = whole.into_iter().chain(programs(value.strip_prefix("ext::").unwrap_or(value)));
    let paths: BTreeSet<_> = words.filter_map(|word| base.path(base.worktree, &word)).collect();
    paths.into_iter().map(|path| (path, Guarded::ExistingOnly)).collect()
}

/// How files of configuration are read: `real` follows links, `text` reads a small file.
pub struct Reader<'a> {
    /// Where a path leads, if there is something.
    pub real: &'a dyn Fn(&Path) -> Option<PathBuf>,
    /// The text of a small file.
    pub text: &'a dyn Fn(&Path) -> Option<String>,
}

impl Reader<'_> {
    /// The repository that a `.git` file leads to, and the directory there that is the worktree's own, as git finds them.
    pub fn of_worktree(&self, worktree: &Path) -> Option<(PathBuf, PathBuf)> {
        let text = (self.text)(&worktree.join(".git"))?;
        let private = (self.real)(&worktree.join(git_file_target(text.as_bytes())?))?;
        let common = match (self.text)(&private.join("commondir")) {
            Some(text) => normal(&private.join(text.trim_end_matches(['\n', '\r']))),
            None => private.clone(),
        };
        Some((common, private))
    }

    /// Tells of each file that some files of configuration name, and those that these include: the file that names it,
    /// the setting, the path and how it is guarded. What is included is told before it is read.
    pub fn each(
        &self,
        mut files: Vec<PathBuf>,
        worktree: &Path,
        home: &dyn Fn(&str) -> Option<PathBuf>,
        mut tell: impl FnMut(&Path, &Setting, &Path, Guarded),
    ) {
        let mut at = 0;
        while let Some(file) = files.get(at).cloned() {
            at += 1;
            let text = (self.text)(&file);
            let base = Base { file: file.parent().unwrap_or(worktree), worktree, home };
            for setting in text.and_then(|text| parse(&text).ok()).unwrap_or_default() {
                for (path, guarded) in named(&setting, &base) {
                    tell(&file, &setting, &path, guarded);
                    let further = guarded == Guarded::GitConfig && files.len() < MOST_INCLUDED;
                    if further && !files.contains(&path) {
                        files.push(path);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<(String, Guarded)> {
        let home = |user: &str| match user {
            "" | "ada" => Some(PathBuf::from("/home/ada")),
            _ => None,
        };
        let base = Base { file: Path::new("/w/.git"), worktree: Path::new("/w"), home: &home };
        let settings = parse(text).expect("git reads it");
        let all = settings.iter().flat_map(|setting| named(setting, &base));
        all.map(|(path, guarded)| (path.display().to_string(), guarded)).collect()
    }

    #[test]
    fn a_users_home_is_his_whose_name_stands_there() {
        for (value, path) in [
            ("~/h", Some("/home/ada/h")),
            ("~ada/h", Some("/home/ada/h")),
            ("~", Some("/home/ada")),
            ("~bob/h", None),
            ("h/~ada", Some("/w/h/~ada")),
        ] {
            let found = of(&format!("[core]\n\thooksPath = {value}\n"));
            let wanted = path.map(|path| (path.to_owned(), Guarded::GitHooks));
            assert_eq!(found, Vec::from_iter(wanted), "{value}");
        }
    }

    #[test]
    fn paths_count_from_the_file_and_commands_from_the_worktree() {
        let text = "[include]\n\tpath = ../inc\n[filter \"c\"]\n\tclean = ./tools/clean\n\
                    [remote \"o\"]\n\turl = ../o\n[alias]\n\ta = log -- ./x\n";
        let wanted = [("/w/inc", Guarded::GitConfig), ("/w/tools/clean", Guarded::ExistingOnly)];
        assert_eq!(of(text), wanted.map(|(path, guarded)| (path.to_owned(), guarded)));
    }

    #[test]
    fn a_command_names_what_it_runs_and_a_path_may_have_blanks() {
        for (text, wanted) in [
            (
                "[core]\n\teditor = $HOME/ed -w ./data\n",
                &["/home/ada/ed", "/w/$HOME/ed -w ./data"][..],
            ),
            ("[alias]\n\ta = !git add ./x && sh y ./z\n", &["/w/y"]),
            ("[gpg]\n\tprogram = ./my tools/gpg\n", &["/w/my", "/w/my tools/gpg"]),
            ("[remote \"o\"]\n\turl = ext::./serve %S\n", &["/w/ext::./serve %S", "/w/serve"]),
        ] {
            let found = of(text);
            assert_eq!(found.iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>(), wanted);
        }
    }
}
