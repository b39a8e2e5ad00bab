//! The files that git's configuration names: further configuration, hooks, programs and what these are told to run.
//! Whoever writes them decides what git runs.

use crate::files::{FileView, nothing};
use crate::gitbytes;
use crate::gitconfig::{self, Setting, parse, runs};
use crate::gitwords::{How, programs};
use crate::path::normal;
use crate::policy::Guarded;
use crate::protect::git_file_target;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Files of configuration that are followed, of one repository.
pub const MOST_INCLUDED: usize = 256;

/// What a file of configuration says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// Nothing: it is not there, is no regular file, or cannot be read by git either.
    Nothing,
    /// This.
    Bytes(Vec<u8>),
    /// What it says cannot be known, and it could be anything.
    Unknown(Unknown),
}

impl Said {
    /// What it says, as far as that is known.
    pub fn bytes(self) -> Option<Vec<u8>> {
        match self {
            Said::Bytes(bytes) => Some(bytes),
            Said::Nothing | Said::Unknown(_) => None,
        }
    }
}

/// Why it cannot be known what a configuration says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// It has more than [`gitconfig::MOST`] bytes.
    Large,
    /// It is closed to the user, who may be its owner and can open it again.
    Closed,
    /// It cannot be read for another reason.
    Broken,
    /// It includes more than [`MOST_INCLUDED`] files.
    Crowded,
}

impl Unknown {
    /// What is the matter with the file, as the end of a sentence, and what to do about it.
    pub fn text(self) -> (String, &'static str) {
        let (why, remedy) = match self {
            Unknown::Large => (
                format!("has more than {} MiB", gitconfig::MOST >> 20),
                "move what is yours into smaller files",
            ),
            Unknown::Closed => ("is closed to yourself".to_owned(), "chmod u+r it"),
            Unknown::Broken => ("cannot be read".to_owned(), "look at it"),
            Unknown::Crowded => {
                (format!("is of more than {MOST_INCLUDED} that git reads"), "include fewer")
            }
        };
        (why, remedy)
    }
}

/// Reads a configuration.
pub fn read(files: &dyn FileView, path: &Path) -> Said {
    match files.beginning(path, gitconfig::MOST + 1) {
        Ok(bytes) if bytes.len() as u64 > gitconfig::MOST => Said::Unknown(Unknown::Large),
        Ok(bytes) => Said::Bytes(bytes),
        // A device, as /dev/null, has nothing to say.
        Err(error) if nothing(&error) || error.kind() == ErrorKind::InvalidData => Said::Nothing,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Said::Unknown(Unknown::Closed),
        Err(_) => Said::Unknown(Unknown::Broken),
    }
}

/// The same of a file of this machine, for a user: what is closed to him and somebody else's, git cannot read for him
/// either, and he cannot open it.
pub fn read_for(user: u32, files: &dyn FileView, path: &Path) -> Said {
    let said = read(files, path);
    let owner = |path: &Path| Some(files.owner_and_mode(path)?.0);
    let closed = said == Said::Unknown(Unknown::Closed);
    match closed && path.ancestors().find_map(owner).is_some_and(|owner| owner != user) {
        true => Said::Nothing,
        false => said,
    }
}

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
        let Some(of) = text.strip_prefix('~') else {
            return Some(normal(&from.join(gitbytes::path(text))));
        };
        let (user, below) = of.split_once('/').unwrap_or((of, ""));
        Some(normal(&(self.home)(user)?.join(gitbytes::path(below))))
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
    // A remote in the tree, for one, is named by a path as well, and is not run.
    if !runs(setting) {
        return Vec::new();
    }
    let words = match setting.section == "alias" && !value.starts_with('!') {
        true => programs(&format!("git {value}")),
        false => {
            // Some take a path, others a command; a plain word is looked for in PATH, and not in the tree.
            let whole = value.contains('/') && !value.starts_with('!');
            let whole = whole.then(|| (value.clone(), How::Run));
            let words = programs(value.strip_prefix("ext::").unwrap_or(value));
            whole.into_iter().chain(words).collect()
        }
    };
    let file = |(word, how): (String, How)| {
        let path = base.path(base.worktree, &word)?;
        match how {
            How::Mention if !(base.program)(&path) => None,
            How::Run | How::Mention => Some((path, Guarded::ExistingOnly)),
            How::Hooks => Some((path, Guarded::GitHooks)),
            How::Configuration => Some((path, Guarded::GitConfig)),
        }
    };
    let files: BTreeMap<_, _> = words.into_iter().filter_map(file).collect();
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
}

/// A file of configuration of which it is not known what it says.
pub type NotKnown = (PathBuf, Unknown);

impl Reader<'_> {
    /// The repository that a `.git` file leads to, and the directory there that is the worktree's own, as git finds them.
    ///
    /// # Errors
    /// A file that leads there and cannot be read.
    pub fn of_worktree(&self, worktree: &Path) -> Result<Option<(PathBuf, PathBuf)>, NotKnown> {
        let read = |path: PathBuf| match (self.text)(&path) {
            Said::Unknown(why) => Err((path, why)),
            said => Ok(said.bytes()),
        };
        let Some(bytes) = read(worktree.join(".git"))? else { return Ok(None) };
        let private = git_file_target(&bytes).and_then(|at| (self.real)(&worktree.join(at)));
        let Some(private) = private else { return Ok(None) };
        let common = match read(private.join("commondir"))? {
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
        let (mut at, mut unknown) = (0, None);
        while let Some(file) = files.get(at).cloned() {
            at += 1;
            let bytes = match (self.text)(&file) {
                Said::Nothing => continue,
                Said::Bytes(bytes) => bytes,
                Said::Unknown(why) => {
                    unknown.get_or_insert((file, why));
                    continue;
                }
            };
            let directory = file.parent().unwrap_or(worktree);
            let base = Base { file: directory, worktree, home, program: self.program };
            // Git goes no further than to a line that it cannot read.
            for setting in parse(&bytes).unwrap_or_default() {
                for (path, guarded) in named(&setting, &base) {
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
        let said = |path: &Path| match path.to_str() {
            Some("/w/many") => Said::Bytes(included.clone().into_bytes()),
            Some("/w/large") => Said::Unknown(Unknown::Large),
            Some("/w/hooks") => Said::Bytes(b"[core]\n\thooksPath = h\n".to_vec()),
            _ => Said::Nothing,
        };
        let reader = Reader { real: &|_| None, text: &said, program: &|_| false };
        let each = |names: &[&str]| {
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
    }

    #[test]
    fn a_configuration_is_read_as_it_is() {
        let room = std::env::temp_dir().join(format!("ringfence-git-{}", std::process::id()));
        std::fs::create_dir_all(&room).expect("made");
        let path = room.join("config");
        let read = |path: &Path| read_for(1, &crate::HostFiles, path);
        assert_eq!(read(&path), Said::Nothing);
        std::fs::write(&path, b"J\xfc").expect("written");
        assert_eq!(read(&path), Said::Bytes(b"J\xfc".to_vec()));
        assert_eq!(read(&path.join("below")), Said::Nothing);
        assert_eq!(read(&room), Said::Nothing);
        assert_eq!(read(Path::new("/dev/null")), Said::Nothing);
        let large = std::fs::File::create(&path).expect("made");
        large.set_len(gitconfig::MOST).expect("sparse");
        assert!(read(&path).bytes().is_some());
        large.set_len(gitconfig::MOST + 1).expect("sparse");
        assert_eq!(read(&path), Said::Unknown(Unknown::Large));
        std::fs::remove_dir_all(&room).expect("removed");
    }
}
