//! The files that git's configuration names: further configuration, hooks, programs and what these are told to run.
//! Whoever writes them decides what git runs.

use crate::gitbytes;
use crate::gitconfig::{Setting, Unread, parse};
use crate::gitread::{MOST_INCLUDED, MOST_NAMED, NotKnown, Pass, Said, Unknown};
use crate::gitruns::runs;
use crate::gitwords::{How, programs};
use crate::path::normal;
use crate::policy::Guarded;
use crate::protect::git_file_target;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// From where the paths of a setting count.
#[derive(Clone, Copy)]
pub struct Base<'a> {
    /// The directory of the file that it stands in.
    pub file: &'a Path,
    /// The directory in which git runs what it names.
    pub worktree: &'a Path,
    /// The home of a user by his name; of the one who runs git, without a name.
    pub home: &'a dyn Fn(&str) -> Option<PathBuf>,
    /// Whether what is at a path is a program ([`crate::files::is_program`]): what a command merely mentions counts then.
    pub program: &'a dyn Fn(&Path) -> bool,
}

impl Base<'_> {
    /// The path that a text means, from a directory. `None` where a user's home is not known.
    fn path(&self, from: &Path, text: &str) -> Option<PathBuf> {
        place(from, text, self.home).map(|path| normal(&path))
    }
}

/// The same as it is written, from a directory.
pub(crate) fn place(
    from: &Path,
    text: &str,
    home: &dyn Fn(&str) -> Option<PathBuf>,
) -> Option<PathBuf> {
    let Some(of) = text.strip_prefix('~') else { return Some(from.join(gitbytes::path(text))) };
    let (user, below) = of.split_once('/').unwrap_or((of, ""));
    Some(home(user)?.join(gitbytes::path(below)))
}

/// The files that a setting names, and how each is guarded. What a command runs counts whether it is there or not
/// ([`Guarded::Program`]); what may be a word of another meaning, where a file is there ([`Guarded::ExistingOnly`]).
pub fn named(setting: &Setting, base: &Base<'_>) -> Vec<(PathBuf, Guarded)> {
    let Some(value) = &setting.value else { return Vec::new() };
    let one =
        |path: Option<PathBuf>, guarded| path.map(|path| (path, guarded)).into_iter().collect();
    if matches!(&*setting.section, "include" | "includeif") {
        return one(base.path(base.file, value), Guarded::GitConfig);
    }
    if &*setting.section == "core" && setting.name == "hookspath" {
        return one(base.path(base.worktree, value), Guarded::GitHooks);
    }
    if &*setting.section == "init" && setting.name == "templatedir" {
        // What is in it is in each new repository.
        let parts = [("hooks", Guarded::GitHooks), ("config", Guarded::GitConfig)];
        let template = base.path(base.worktree, value);
        let part = |template: &PathBuf| parts.map(|(name, guarded)| (template.join(name), guarded));
        return template.iter().flat_map(part).collect();
    }
    // A remote in the tree, for one, is named by a path as well, and is not run.
    if !runs(setting) {
        return Vec::new();
    }
    let words = match &*setting.section == "alias" && !value.starts_with('!') {
        true => programs(&format!("git {value}")),
        false => {
            // Some take a path, others a command; a plain word is looked for in PATH, and not in the tree.
            let whole = value.contains('/') && !value.starts_with('!');
            // Without a shell git starts few, whose blanks are in their names.
            let path = &*setting.section == "gpg" || setting.name == "askpass";
            let how = if path { How::Run } else { How::Perhaps };
            let whole = whole.then(|| (value.clone(), how));
            let words = programs(value.strip_prefix("ext::").unwrap_or(value));
            whole.into_iter().chain(words).collect()
        }
    };
    let file = |(word, how): (String, How)| {
        let path = base.path(base.worktree, &word)?;
        match how {
            How::Mention if !(base.program)(&path) => None,
            How::Run => Some((path, Guarded::Program)),
            How::Perhaps | How::Mention => Some((path, Guarded::ExistingOnly)),
            How::Hooks => Some((path, Guarded::GitHooks)),
            How::Configuration => Some((path, Guarded::GitConfig)),
        }
    };
    let mut files: BTreeMap<_, _> = BTreeMap::new();
    for (path, guarded) in words.into_iter().filter_map(file) {
        let known = files.entry(path).or_insert(guarded);
        if *known == Guarded::ExistingOnly {
            *known = guarded;
        }
    }
    files.into_iter().collect()
}

/// How files of configuration are read: `real` follows links, `text` reads a file.
pub struct Reader<'a> {
    /// Where a path leads, if there is something.
    pub real: &'a dyn Fn(&Path) -> Option<PathBuf>,
    /// What a file says.
    pub text: &'a dyn Fn(&Path) -> Said,
    /// [`Base::program`].
    pub program: &'a dyn Fn(&Path) -> bool,
    /// What may yet be read.
    pub pass: &'a Pass,
}

impl Reader<'_> {
    /// The repository that a `.git` file leads to, and the directory there that is the worktree's own, as git finds them.
    ///
    /// # Errors
    /// A file that leads there and cannot be read.
    pub fn of_worktree(&self, worktree: &Path) -> Result<Option<(PathBuf, PathBuf)>, NotKnown> {
        let read = |path: PathBuf| match self.pass.read(|| (self.text)(&path)) {
            Said::Unknown(why) => Err((path, why)),
            said => Ok(said.bytes()),
        };
        let Some(bytes) = read(worktree.join(".git"))? else { return Ok(None) };
        let private = git_file_target(&bytes).and_then(|at| (self.real)(&worktree.join(at)));
        let Some(private) = private else { return Ok(None) };
        let common = match read(private.join("commondir"))? {
            Some(bytes) if bytes.contains(&0) => {
                return Err((private.join("commondir"), Unknown::Zero));
            }
            Some(bytes) => {
                let end = bytes.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r'));
                let path = bytes.get(..end.map_or(0, |end| end + 1)).unwrap_or_default();
                normal(&private.join(OsStr::from_bytes(path)))
            }
            None => private.clone(),
        };
        Ok(Some((common, private)))
    }

    /// Tells of each file that some files of configuration name, and those that these include: the file that names it,
    /// the setting, the path and how it is guarded. What is included is told before it is read.
    ///
    /// # Errors
    /// One of the files that could name anything, after all others have been told of.
    pub fn each(
        &self,
        mut files: Vec<PathBuf>,
        worktree: &Path,
        home: &dyn Fn(&str) -> Option<PathBuf>,
        mut tell: impl FnMut(&Path, &Setting, &Path, Guarded),
    ) -> Result<(), NotKnown> {
        let (mut at, mut unknown, mut names) = (0, None, 0);
        while let Some(file) = files.get(at).cloned() {
            at += 1;
            let bytes = match self.pass.read(|| (self.text)(&file)) {
                Said::Nothing => continue,
                Said::Bytes(bytes) => bytes,
                Said::Unknown(why) => {
                    unknown.get_or_insert((file, why));
                    continue;
                }
            };
            let directory = file.parent().unwrap_or(worktree);
            let base = Base { file: directory, worktree, home, program: self.program };
            let settings = match parse(&bytes) {
                Ok(settings) => settings,
                // Git goes no further than to a line that it cannot read.
                Err(Unread::Line(_)) => continue,
                Err(Unread::Unknown(why)) => {
                    unknown.get_or_insert((file, why));
                    continue;
                }
            };
            for setting in settings {
                for (path, guarded) in named(&setting, &base) {
                    names += 1;
                    let more = match names > MOST_NAMED {
                        true => Err(Unknown::Names),
                        false => self.pass.name(),
                    };
                    if let Err(why) = more {
                        return Err((file, why));
                    }
                    tell(&file, &setting, &path, guarded);
                    if guarded != Guarded::GitConfig || files.contains(&path) {
                        continue;
                    }
                    match files.len() < MOST_INCLUDED {
                        true => files.push(path),
                        false => drop(unknown.get_or_insert((file.clone(), Unknown::Crowded))),
                    }
                }
            }
        }
        unknown.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gitread::{LONGEST_SECTION, MOST, MOST_IN_ALL, MOST_NAMED_IN_ALL};

    fn of(text: &str) -> Vec<(String, Guarded)> {
        let home = |user: &str| match user {
            "" | "ada" => Some(PathBuf::from("/home/ada")),
            _ => None,
        };
        let base = Base {
            file: Path::new("/w/.git"),
            worktree: Path::new("/w"),
            home: &home,
            program: &|_| false,
        };
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
        let wanted = [("/w/inc", Guarded::GitConfig), ("/w/tools/clean", Guarded::Program)];
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
            ("[alias]\n\ta = rebase -x ./y main\n", &["/w/y"]),
            ("[alias]\n\ta = -c core.editor=./y commit ./z\n", &["/w/y"]),
            ("[gpg]\n\tprogram = ./my tools/gpg\n", &["/w/my", "/w/my tools/gpg"]),
            ("[remote \"o\"]\n\turl = ext::./serve %S\n", &["/w/ext::./serve %S", "/w/serve"]),
        ] {
            let found = of(text);
            assert_eq!(found.iter().map(|(path, _)| path.as_str()).collect::<Vec<_>>(), wanted);
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_a_path_all_the_same() {
        let home = |_: &str| Some(PathBuf::from("/home/ada"));
        let (file, worktree) = (Path::new("/w/.git"), Path::new("/w"));
        let base = Base { file, worktree, home: &home, program: &|_| false };
        let text = b"[user]\n\tname = J\xfcrgen\n[core]\n\thooksPath = h\xfcks\n[alias]\n\ta = !~/\xff/x y\n\
            # \xe9\n[branch \"f\xfc\"]\n\tremote = o\n[include]\n\tpath = \"\xfc c\"\n";
        let settings = parse(text).expect("git reads it");
        let all = settings.iter().flat_map(|setting| named(setting, &base));
        let all: Vec<_> = all.map(|(path, _)| path).collect();
        let wanted = [&b"/w/h\xfcks"[..], b"/home/ada/\xff/x", b"/w/.git/\xfc c"];
        assert_eq!(all, wanted.map(|path| PathBuf::from(OsStr::from_bytes(path))));
    }

    #[test]
    fn what_cannot_be_read_could_name_anything() {
        let included: String = (0..300).map(|n| format!("[include]\n\tpath = {n}\n")).collect();
        let named: String = (0..=MOST_NAMED).map(|n| format!("[a]\n\teditor = ./{n}\n")).collect();
        let section = format!("[x \"{}\"]\n[core]\n\thooksPath = h\n", "s".repeat(LONGEST_SECTION));
        let said = |path: &Path| match path.to_str() {
            Some("/w/many") => Said::Bytes(included.clone().into_bytes()),
            Some("/w/large") => Said::Unknown(Unknown::Large),
            Some("/w/much") => Said::Bytes(vec![b'#'; MOST as usize]),
            Some("/w/named") => Said::Bytes(named.clone().into_bytes()),
            Some("/w/section") => Said::Bytes(section.clone().into_bytes()),
            Some("/w/hooks") => Said::Bytes(b"[core]\n\thooksPath = h\n".to_vec()),
            _ => Said::Nothing,
        };
        let each = |names: &[&str]| {
            let pass = Pass::default();
            let reader = Reader { real: &|_| None, text: &said, program: &|_| false, pass: &pass };
            let files = names.iter().map(|name| Path::new("/w").join(name)).collect();
            let mut told = 0;
            let known = reader.each(files, Path::new("/w"), &|_| None, |_, _, _, _| told += 1);
            (known.map_err(|(file, why)| (file.display().to_string(), why)), told)
        };
        assert_eq!(each(&["hooks", "absent"]), (Ok(()), 1));
        let large = ("/w/large".to_owned(), Unknown::Large);
        assert_eq!(each(&["large", "hooks"]), (Err(large), 1), "the others are told");
        let many = ("/w/many".to_owned(), Unknown::Crowded);
        assert_eq!(each(&["many", "hooks"]), (Err(many), 301));
        let section = ("/w/section".to_owned(), Unknown::Section);
        assert_eq!(each(&["section", "hooks"]), (Err(section), 1));
        let named = ("/w/named".to_owned(), Unknown::Names);
        assert_eq!(each(&["named"]), (Err(named), MOST_NAMED));
        // Many repositories that each name what they may.
        let few: String = (0..MOST_NAMED).map(|n| format!("[a]\n\teditor = ./{n}\n")).collect();
        let few = |_: &Path| Said::Bytes(few.clone().into_bytes());
        let pass = Pass::default();
        let reader = Reader { real: &|_| None, text: &few, program: &|_| false, pass: &pass };
        let all = (0..100)
            .map(|_| reader.each(vec!["/w/c".into()], Path::new("/w"), &|_| None, |_, _, _, _| ()));
        let known = all.take_while(Result::is_ok).count();
        assert_eq!(known, MOST_NAMED_IN_ALL / MOST_NAMED);
        // One file under many names.
        let most = (MOST_IN_ALL / MOST) as usize;
        assert_eq!(each(&vec!["much"; most]), (Ok(()), 0));
        let much = ("/w/much".to_owned(), Unknown::Much);
        assert_eq!(each(&vec!["much"; most + 1]), (Err(much), 0));
    }
}
