//! Which program is integrated: by its name, the first of `PATH`, or by where it is.

use crate::error::Fault;
use ringfence_policy::path::normal;
use ringfence_policy::{FileView, HostFiles, shown};
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

/// The first lines of a script of ours.
pub const MADE: &str = "#!/bin/sh\n# Made by: ringfence integrate ";

/// A program as it was asked for.
pub struct Named {
    /// What it is called; never more than one component of a path.
    pub name: String,
    /// Where it is, when that was said.
    path: Option<PathBuf>,
}

impl Named {
    /// From what the user or a profile says. Whatever has a `/` is a path, from the current directory on.
    ///
    /// # Errors
    /// It is neither a name nor a path of a file.
    pub fn parse(text: &str) -> Result<Named, Fault> {
        let path = Path::new(text);
        let refused = |why: &str| {
            Err(Fault::usage(format!("{} is no program for integrate: {why}", shown::path(path))))
        };
        if path.components().any(|part| part == Component::ParentDir) {
            return refused("a name with `..` may lead anywhere; say its whole path");
        }
        let Some(name) = path.file_name().and_then(OsStr::to_str).map(str::to_owned) else {
            return refused("name a file, by its path or as it is called");
        };
        if !text.contains('/') {
            return Ok(Named { name, path: None });
        }
        let directory = match path.is_absolute() {
            true => PathBuf::new(),
            false => std::env::current_dir().map_err(Fault::of)?,
        };
        Ok(Named { name, path: Some(normal(&directory.join(path))) })
    }
}

/// Where a script of ours would be put, and what is asked for there.
pub struct Place<'a> {
    /// The directory of the script.
    pub bin: &'a Path,
    /// Where programs are looked for.
    pub search: &'a OsStr,
    /// The program stays as it is, and the script has a name of its own.
    pub beside: bool,
    /// The name of that script.
    pub mark: &'a str,
}

impl Place<'_> {
    /// Whether a directory is that of the script, by whatever name: a script that took itself for the program would
    /// call itself.
    pub fn is_bin(&self, directory: &Path) -> bool {
        directory == self.bin || are_one(directory, self.bin)
    }

    /// The program that the script is to start. What is in the script's place may only be a link to it.
    ///
    /// # Errors
    /// There is none, or what is in the script's place would be lost.
    pub fn real(&self, program: &Named) -> Result<PathBuf, Fault> {
        let Named { name, path } = program;
        let own = self.bin.join(name);
        let made = is_made(&own);
        let Place { beside, mark, .. } = self;
        let way = |is: String| {
            Fault::usage(format!(
                "{is}, where the script that starts it in its sandbox would be: with --beside it stays as it is, and \
                 {mark} starts it; or move it to another directory of PATH"
            ))
        };
        let target = own.read_link().ok().map(|target| normal(&self.bin.join(target)));
        if let Some(path) = path {
            if !runs(path) {
                let path = shown::path(path);
                return Err(Fault::usage(format!("{path} is no file that can be executed")));
            }
            if !path.parent().is_some_and(|above| self.is_bin(above)) {
                let free = *beside
                    || own.symlink_metadata().is_err()
                    || target.as_ref() == Some(path)
                    || made && !are_one(path, &own);
                return match free {
                    true => Ok(path.clone()),
                    false => Err(way(format!("{} is there already", own.display()))),
                };
            }
        }
        if runs(&own) && !made {
            // A link may give way: what it leads to is called, as long as that has the name by which it was started.
            let same = |target: &PathBuf| {
                target.file_name() == Some(OsStr::new(name))
                    && !target.parent().is_some_and(|above| self.is_bin(above))
            };
            return match target.filter(|_| !beside).filter(same) {
                Some(target) => Ok(target),
                None if *beside => Ok(own),
                None => Err(way(format!("{name} is {} itself", own.display()))),
            };
        }
        let all = std::env::split_paths(self.search).filter(|above| above.is_absolute());
        let mut all = all.filter(|above| !self.is_bin(above)).map(|above| above.join(name));
        let why = || {
            format!(
                "{name} is in no directory of PATH, or cannot be executed there; say where it is: --program PATH"
            )
        };
        all.find(|path| runs(path) && !(made && are_one(path, &own)))
            .ok_or_else(|| Fault::usage(why()))
    }

    /// Whether a word that ends in the program's name starts what `real` found: a path that leads to its file, or the
    /// name itself, when the first of `PATH` does. A name that nothing has is that of the script, from now on.
    pub fn starts(&self, word: &str, real: &Path) -> bool {
        if word.contains('/') {
            return Path::new(word).is_absolute() && are_one(Path::new(word), real);
        }
        let mut all = std::env::split_paths(self.search).filter(|above| above.is_absolute());
        let first = all
            .find_map(|above| Some(above.join(word)).filter(|path| runs(path) && !is_made(path)));
        first.is_none_or(|first| are_one(&first, real))
    }
}

/// Whether two paths lead to the same place.
fn are_one(one: &Path, other: &Path) -> bool {
    one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}

/// Whether it is a file that can be executed.
pub fn runs(path: &Path) -> bool {
    path.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// Whether it is a script of ours.
fn is_made(path: &Path) -> bool {
    let text = HostFiles.beginning(path, MADE.len() as u64);
    text.is_ok_and(|text| text == MADE.as_bytes())
}
