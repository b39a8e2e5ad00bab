//! What projects have run by a name: scripts of `package.json`, recipes of Makefiles.

use super::workspaces::{self, Chosen};
use super::{MOST_TEXT, Programs};
use crate::host::Kind;
use crate::makefile::Makefile;
use crate::words::Word;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The names of a Makefile, in the order in which make looks for them.
const MAKEFILES: [&str; 3] = ["GNUmakefile", "makefile", "Makefile"];
/// The most files that Makefiles include.
const MOST_INCLUDED: usize = 64;
/// Scripts that package managers run when they install.
const INSTALLING: [&str; 7] =
    ["preinstall", "install", "postinstall", "prepublish", "preprepare", "prepare", "postprepare"];

/// Whether a program runs what a project's file says.
pub(super) fn is_runner(name: &str) -> bool {
    matches!(
        name,
        "npm"
            | "pnpm"
            | "yarn"
            | "bun"
            | "npx"
            | "pnpx"
            | "bunx"
            | "run-s"
            | "run-p"
            | "npm-run-all"
            | "concurrently"
            | "make"
            | "gmake"
    )
}

impl Programs<'_, '_, '_> {
    /// What such a program runs.
    pub(super) fn runs(&mut self, name: &str, path: &Path, rest: &[Word], depth: usize) {
        match name {
            "make" | "gmake" => self.make(path, rest, depth),
            "npx" | "pnpx" | "bunx" => self.package_program(path, rest, None, depth),
            "run-s" | "run-p" | "npm-run-all" => {
                for name in rest.iter().filter_map(Word::constant) {
                    self.package_script(&name, path, None, depth);
                }
            }
            "concurrently" => {
                for text in rest {
                    self.within_package(None, |programs, _| {
                        programs.texts_of(text, Some(path), depth)
                    });
                }
            }
            _ => self.package_manager(name, path, rest, depth),
        }
    }

    fn package_manager(&mut self, name: &str, path: &Path, rest: &[Word], depth: usize) {
        let (chosen, rest) = workspaces::chosen(name, rest);
        let mut rest = rest.as_slice();
        let mut directory = None;
        while let Some((first, after)) = rest.split_first() {
            let Some(word) = first.constant().filter(|word| word.starts_with(b"-")) else { break };
            rest = after;
            if matches!(word.as_slice(), b"--prefix" | b"-C" | b"--cwd" | b"--dir") {
                directory = rest.first().and_then(Word::constant).or(directory);
                rest = rest.get(1..).unwrap_or(&[]);
            }
        }
        let directory = directory.map(|path| self.at.join(OsStr::from_bytes(&path)));
        self.packaged(name, path, directory.clone(), rest, depth);
        let word = rest.first().and_then(Word::constant).unwrap_or_default();
        let chosen = chosen.or_else(|| is_install(&word).then(Chosen::all));
        let start = directory.unwrap_or_else(|| self.at.clone());
        for place in chosen.map_or_else(Vec::new, |chosen| self.workspaces(&start, &chosen)) {
            self.packaged(name, path, Some(place), rest, depth);
        }
    }

    /// What a package manager is told to do with the package of a directory.
    fn packaged(
        &mut self,
        name: &str,
        path: &Path,
        directory: Option<PathBuf>,
        rest: &[Word],
        depth: usize,
    ) {
        let word = rest.first().and_then(Word::constant).unwrap_or_default();
        let behind = rest.get(1..).unwrap_or(&[]);
        let script = |word: &Word| word.constant().filter(|word| !word.starts_with(b"-"));
        match word.as_slice() {
            b"run" | b"run-script" | b"rum" | b"urn" => {
                if let Some(script) = behind.iter().find_map(script) {
                    self.package_script(&script, path, directory, depth);
                }
            }
            b"test" | b"t" | b"tst" => self.package_script(b"test", path, directory, depth),
            b"start" | b"stop" | b"restart" => {
                self.package_script(&word, path, directory, depth);
            }
            b"exec" | b"x" | b"dlx" => self.package_program(path, behind, directory, depth),
            word if is_install(word) => {
                for name in INSTALLING {
                    self.package_script(name.as_bytes(), path, directory.clone(), depth);
                }
                if word.ends_with(b"t") && word.len() > 1 {
                    self.package_script(b"test", path, directory, depth);
                }
            }
            // Of the others a script can be named by itself.
            _ if name != "npm" => self.package_script(&word, path, directory, depth),
            _ => {}
        }
    }

    /// `npx PROGRAM`: one that the project has.
    fn package_program(
        &mut self,
        path: &Path,
        rest: &[Word],
        directory: Option<PathBuf>,
        depth: usize,
    ) {
        let mut rest = rest;
        while let Some((first, after)) = rest.split_first() {
            let Some(word) = first.constant().filter(|word| word.starts_with(b"-")) else { break };
            rest = after;
            if matches!(word.as_slice(), b"-c" | b"--call") {
                let text = rest.first().cloned().unwrap_or_default();
                return self.within_package(directory, |programs, _| {
                    programs.texts_of(&text, Some(path), depth)
                });
            }
            if matches!(word.as_slice(), b"-p" | b"--package") {
                rest = rest.get(1..).unwrap_or(&[]);
            }
        }
        self.within_package(directory, |programs, _| programs.command(rest, Some(path), depth + 1));
    }

    /// A script of the nearest `package.json`, and those that run before and after it.
    fn package_script(
        &mut self,
        name: &[u8],
        path: &Path,
        directory: Option<PathBuf>,
        depth: usize,
    ) {
        let own = String::from_utf8_lossy(name).into_owned();
        self.within_package(directory, |programs, file| {
            let Some(text) = programs.host.beginning(file, MOST_TEXT) else { return };
            let json: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
            for name in [format!("pre{own}"), own.clone(), format!("post{own}")] {
                let Some(script) = json["scripts"][&name].as_str() else { continue };
                let mut once = file.as_os_str().to_owned();
                once.push("\0");
                once.push(&name);
                if programs.texts.insert(once) {
                    programs.collector.reason(file, "a script of its is run by", Some(path));
                    programs.texts_of(&Word::text(script.as_bytes()), Some(file), depth + 1);
                }
            }
        });
    }

    /// Does something where the nearest `package.json` is, with the programs of its dependencies.
    fn within_package(&mut self, directory: Option<PathBuf>, act: impl FnOnce(&mut Self, &Path)) {
        let start = directory.unwrap_or_else(|| self.at.clone());
        let file = start.ancestors().take(MOST_ABOVE).map(|above| above.join("package.json"));
        let found = file
            .filter_map(|file| self.host.resolve(&file))
            .find(|found| matches!(self.host.kind(&found.real), Kind::File(_)));
        let Some(found) = found else { return act(self, &start.join("package.json")) };
        let place = found.real.parent().unwrap_or(Path::new("/")).to_owned();
        let above = place.ancestors().take(MOST_ABOVE);
        let beside = above.map(|above| above.join("node_modules/.bin")).collect();
        let was = (
            std::mem::replace(&mut self.at, place),
            std::mem::replace(&mut self.beside, beside),
            std::mem::take(&mut self.found),
        );
        act(self, &found.real);
        (self.at, self.beside, self.found) = was;
    }

    /// `make [-C DIR] [-f FILE] [NAME=VALUE] [TARGET]`
    fn make(&mut self, path: &Path, rest: &[Word], depth: usize) {
        let (mut directory, mut files) = (self.at.clone(), Vec::new());
        let (mut targets, mut given) = (Vec::new(), Vec::new());
        let mut words = rest.iter();
        while let Some(word) = words.next() {
            // What is not known may be a target: then any may be.
            let Some(word) = word.constant() else {
                targets.push(b"${unknown}".to_vec());
                continue;
            };
            if word.starts_with(b"-") {
                let (option, value) = option(&word);
                let value = value.map(<[u8]>::to_vec).or_else(|| {
                    let takes = matches!(option, b'C' | b'f' | b'I' | b'o' | b'W' | b'E');
                    takes.then(|| words.next().and_then(Word::constant)).flatten()
                });
                match (option, value) {
                    (b'C', Some(place)) => directory = directory.join(OsStr::from_bytes(&place)),
                    (b'f', Some(file)) => files.push(file),
                    _ => {}
                }
            } else if let Some(at) = word.iter().position(|byte| *byte == b'=') {
                let name = word[..at].strip_suffix(b":").unwrap_or(&word[..at]);
                given.push((name.to_vec(), word[at + 1..].to_vec()));
            } else if !word.iter().all(u8::is_ascii_digit) {
                targets.push(word);
            }
        }
        if files.is_empty() {
            let usual = MAKEFILES.iter().find(|name| {
                let found = self.host.resolve(&directory.join(name));
                found.is_some_and(|found| matches!(self.host.kind(&found.real), Kind::File(_)))
            });
            files.extend(usual.map(|name| name.as_bytes().to_vec()));
        }
        let mut once = directory.clone().into_os_string();
        for word in files.iter().chain(&targets) {
            once.push("\0");
            once.push(OsStr::from_bytes(word));
        }
        if depth > super::DEEPEST || !self.texts.insert(once) {
            return;
        }
        let mut makefile = Makefile::given(given);
        let mut by = path.to_owned();
        let mut read = 0;
        files.reverse();
        while let Some(file) = files.pop() {
            let Some(found) = self.host.resolve(&directory.join(OsStr::from_bytes(&file))) else {
                continue;
            };
            read += 1;
            if read > MOST_INCLUDED {
                break;
            }
            if let Some(text) = self.host.beginning(&found.real, MOST_TEXT) {
                self.collector.reason(&found.real, "its recipes are run by", Some(path));
                by.clone_from(&found.real);
                makefile.read(&text);
                files.extend(makefile.includes());
            }
        }
        let was = (std::mem::replace(&mut self.at, directory), std::mem::take(&mut self.found));
        for text in makefile.texts(&targets) {
            self.texts_of(&text, Some(&by), depth + 1);
        }
        (self.at, self.found) = was;
    }
}

/// Whether a package manager that is told this runs what packages have run when they are installed.
fn is_install(word: &[u8]) -> bool {
    matches!(
        word,
        b"ci"
            | b"clean-install"
            | b"install"
            | b"i"
            | b"add"
            | b""
            | b"install-test"
            | b"it"
            | b"install-ci-test"
            | b"cit"
            | b"rebuild"
            | b"pack"
            | b"publish"
    )
}

/// The option of make's in a word that takes a value, and that if it is there.
fn option(word: &[u8]) -> (u8, Option<&[u8]>) {
    if let Some(long) = word.strip_prefix(b"--") {
        let mut parts = long.splitn(2, |byte| *byte == b'=');
        let letter = match parts.next() {
            Some(b"directory") => b'C',
            Some(b"file" | b"makefile") => b'f',
            Some(
                b"include-dir" | b"old-file" | b"assume-old" | b"what-if" | b"new-file" | b"eval",
            ) => b'I',
            _ => 0,
        };
        return (letter, parts.next());
    }
    // Letters may stand together, and the last of them have its value behind it (`-sC sub`, `-j2`).
    let at = word.iter().position(|byte| b"CfIoWEjlO".contains(byte));
    let value = at.map(|at| &word[at + 1..]).filter(|value| !value.is_empty());
    (at.map_or(0, |at| word[at]), value)
}

/// How far above a directory a project is looked for.
pub(super) const MOST_ABOVE: usize = 32;
