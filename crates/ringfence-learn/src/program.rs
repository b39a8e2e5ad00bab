//! From a command line to the exact set of libraries: programs, scripts and what they start.

mod projects;
mod search;
mod workspaces;

use crate::closure::Surroundings;
pub use crate::collect::{Answer, Reason};
use crate::collect::{Collector, lies_in};
use crate::hints;
use crate::host::{Host, Kind, Look};
use crate::shell;
use crate::started;
use crate::supplies::{self, SUPPLIES, fits};
use crate::table::{Known, Table};
use crate::words::{Variables, Word};
use crate::wrappers::{self, Starts};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The most that is read of a script.
const MOST_TEXT: usize = 4 << 20;
/// How far commands are followed from the one that was given.
const DEEPEST: usize = 8;
/// The most files that one pattern stands for.
const MOST_SOURCED: usize = 256;
/// The most programs that are looked at.
const MOST_PROGRAMS: usize = 1024;

/// What is to be run.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// The command and its arguments.
    pub argv: Vec<OsString>,
    /// The directories of `PATH`.
    pub search: Vec<PathBuf>,
    /// Where it starts.
    pub workdir: PathBuf,
    /// The user's home.
    pub home: PathBuf,
    /// What of the environment counts for the loader.
    pub surroundings: Surroundings,
}

/// The libraries that a command needs, and all that was looked at to find out.
pub fn libraries(question: &Question, looked: &mut dyn FnMut(&Path, Look)) -> Answer {
    let host = Host::new(looked);
    let mut programs = Programs {
        question,
        at: question.workdir.clone(),
        beside: Vec::new(),
        host: &host,
        collector: Collector::new(&host, question.surroundings.clone()),
        seen: Known::default(),
        texts: Known::default(),
        aside: false,
        found: Table::default(),
        missed: Table::default(),
    };
    let words: Vec<Word> = question.argv.iter().map(|word| Word::text(word.as_bytes())).collect();
    programs.command(&words, None, 0);
    let mut answer = programs.collector.finish();
    let directories = answer.directories.clone();
    let covered = |path: &Path| directories.iter().any(|above| lies_in(path, above));
    answer.files.retain(|path| !covered(path));
    answer.directories.retain(|path| !covered(path));
    answer.links.retain(|path, _| !covered(path));
    answer
}

struct Programs<'q, 'h, 'a> {
    question: &'q Question,
    /// Where commands start.
    at: PathBuf,
    /// Directories before those of `PATH`.
    beside: Vec<PathBuf>,
    host: &'h Host<'a>,
    collector: Collector<'h, 'a>,
    /// Programs that were looked at.
    seen: Known<OsString>,
    /// Scripts that were read.
    texts: Known<OsString>,
    /// In scripts that lie in a directory of the set: one of them may start an interpreter, but
    /// the command as a whole is not about that.
    aside: bool,
    /// Where commands are.
    found: Table<Vec<u8>, Option<PathBuf>>,
    /// How many commands are not in a directory of `PATH`.
    missed: Table<OsString, usize>,
}

impl Programs<'_, '_, '_> {
    /// A command as it stands on a line or in a script.
    fn command(&mut self, words: &[Word], by: Option<&Path>, depth: usize) {
        let Some((first, rest)) = words.split_first() else { return };
        if depth > DEEPEST {
            return;
        }
        for name in first.values() {
            if name == b"eval" {
                let mut text = Word::text(b"");
                for word in rest {
                    text.push(word);
                    text.push_bytes(b" ");
                }
                self.texts_of(&text, by, depth);
            } else if matches!(name.as_slice(), b"." | b"source") {
                for path in rest.first().into_iter().flat_map(Word::values) {
                    let path = self.at.join(OsStr::from_bytes(path));
                    for path in self.matching(&path) {
                        self.shell_file(&path, depth + 1);
                    }
                }
            } else if name == b"trap" && by.is_some() {
                rest.iter().take(1).for_each(|text| self.texts_of(text, by, depth));
            } else if name == b"set" && by.is_some() {
                self.told("set", Path::new(""), rest, by, depth);
            } else if by.is_some() && supplies::is_builtin(name) {
                continue;
            } else {
                self.named(name, rest, by, depth);
            }
        }
    }

    /// The files that a name with `*` at its end stands for (`for f in dir/*; do . $f`); what is
    /// no pattern stands for itself.
    fn matching(&self, path: &Path) -> Vec<PathBuf> {
        let (directory, name) = (path.parent(), path.file_name().and_then(OsStr::to_str));
        let (Some(directory), Some(pattern)) = (directory, name.filter(|name| name.contains('*')))
        else {
            return vec![path.to_owned()];
        };
        let names = self.host.names(directory, MOST_SOURCED);
        let fitting = |name: &OsString| {
            name.to_str().is_some_and(|name| !name.starts_with('.') && fits(pattern, name))
        };
        names.into_iter().filter(fitting).map(|name| directory.join(name)).collect()
    }

    /// A command that is no builtin: the program, and what it is told to start.
    fn named(&mut self, name: &[u8], rest: &[Word], by: Option<&Path>, depth: usize) {
        let text = String::from_utf8_lossy(name).into_owned();
        let base = text.rsplit('/').next().unwrap_or_default().to_owned();
        if self.aside && is_interpreter(&base) {
            return;
        }
        if let Some(path) = self.find(name) {
            let how = if by.is_some() { "a command in" } else { "the command" };
            self.program(&path, how, by, depth);
            self.told(&base, &path, rest, by, depth);
        } else if by.is_none() {
            self.collector.answer.missing.insert((text, self.question.workdir.clone()));
        } else {
            // `exec` and `command` are the shell's own.
            self.told(&base, Path::new(""), rest, by, depth);
        }
    }

    /// Where a command is.
    fn find(&mut self, name: &[u8]) -> Option<PathBuf> {
        if let Some(known) = self.found.get(name) {
            return known.clone();
        }
        let found = self.search(name);
        self.found.insert(name.to_vec(), found.clone());
        found
    }

    /// What a program's arguments say about further programs.
    fn told(&mut self, base: &str, path: &Path, rest: &[Word], by: Option<&Path>, depth: usize) {
        let own = by.is_none();
        if supplies::is_shell(base) {
            self.collector.answer.arguments |= own;
            self.shell_arguments(path, rest, depth);
        } else if base == "find" {
            self.collector.answer.arguments |= own;
            let starts = |word: &Word| {
                let execs: [&[u8]; 4] = [b"-exec", b"-execdir", b"-ok", b"-okdir"];
                word.constant().is_some_and(|word| execs.contains(&word.as_slice()))
            };
            for (at, _) in rest.iter().enumerate().filter(|(_, word)| starts(word)) {
                self.command(&rest[at + 1..], Some(by.unwrap_or(path)), depth + 1);
            }
        } else if let Some(starts) = wrappers::starts(base, rest) {
            self.collector.answer.arguments |= own;
            match starts {
                Starts::Words(words) => self.command(&words, Some(by.unwrap_or(path)), depth + 1),
                Starts::Text(text) => self.texts_of(&text, Some(by.unwrap_or(path)), depth),
            }
        } else if projects::is_runner(base) {
            self.collector.answer.arguments |= own;
            self.runs(base, by.unwrap_or(path), rest, depth);
        } else if matches!(base, "busybox" | "toybox") {
            self.collector.answer.arguments |= own;
            let applet = rest.first().and_then(Word::constant);
            let applet = applet.and_then(|name| String::from_utf8(name).ok());
            if let Some(applet) = applet.filter(|applet| depth < DEEPEST && applet != base) {
                self.told(&applet, path, &rest[1..], by, depth + 1);
            }
        } else if is_interpreter(base) {
            self.collector.answer.arguments |= own;
            let mut words = rest.iter().filter_map(Word::constant);
            let script = words.find(|word| !word.starts_with(b"-") || is_text(base, word));
            if script.as_ref().is_some_and(|word| is_text(base, word)) {
                if let Some(text) = words.next() {
                    self.interpreted_text(base, &text, path, depth);
                }
            } else if let Some(script) = script {
                let script = self.at.join(OsStr::from_bytes(&script));
                self.entry_script(base, &script, depth);
            }
        }
    }

    /// What an interpreter's text names: typelibs, modules, programs that it starts.
    fn interpreted_text(&mut self, interpreter: &str, text: &[u8], by: &Path, depth: usize) {
        if fits("python*", interpreter) {
            self.collector.introspected(text, by);
            self.collector.imported(text);
        }
        for name in started::programs(text) {
            self.command(&[Word::text(&name)], Some(by), depth + 1);
        }
    }

    /// `sh -c TEXT` and `sh FILE`.
    fn shell_arguments(&mut self, shell: &Path, rest: &[Word], depth: usize) {
        let mut rest = rest;
        let mut text = false;
        while let Some((first, after)) = rest.split_first() {
            let word = first.constant().unwrap_or_default();
            let option =
                word.first().is_some_and(|byte| matches!(byte, b'-' | b'+')) && word.len() > 1;
            if !option {
                break;
            }
            rest = after;
            let long = word.starts_with(b"--");
            text |= !long && word.contains(&b'c');
            if !long && matches!(word.last(), Some(b'o' | b'O')) || word == b"--rcfile" {
                rest = rest.get(1..).unwrap_or(&[]);
            }
            if word == b"--" {
                break;
            }
        }
        let Some(first) = rest.first() else { return };
        if text {
            self.texts_of(first, Some(shell), depth);
        } else {
            for path in first.values() {
                let path = self.at.join(OsStr::from_bytes(path));
                self.shell_file(&path, depth + 1);
            }
        }
    }

    /// Shell text in a word.
    fn texts_of(&mut self, text: &Word, by: Option<&Path>, depth: usize) {
        for text in text.values() {
            let mut variables = self.variables();
            let by = by.map_or_else(|| PathBuf::from("/"), Path::to_owned);
            self.script(text, &mut variables, &by, depth + 1);
        }
    }

    fn variables(&self) -> Variables {
        let home = self.question.home.as_os_str().as_bytes().to_vec();
        let workdir = self.at.as_os_str().as_bytes().to_vec();
        Variables::new([(b"HOME".to_vec(), home), (b"PWD".to_vec(), workdir)])
    }

    /// A script of the shell's in a file.
    fn shell_file(&mut self, path: &Path, depth: usize) {
        let Some(found) = self.host.resolve(path) else { return };
        if depth > DEEPEST || !self.texts.insert(found.real.clone().into_os_string()) {
            return;
        }
        let Some(text) = self.host.beginning(&found.real, MOST_TEXT) else { return };
        if text.starts_with(b"\x7fELF") {
            return;
        }
        let mut variables = self.variables();
        variables.assign(b"0", Word::text(path.as_os_str().as_bytes()));
        self.collector.reason(&found.real, "the script", None);
        self.script(&text, &mut variables, &found.real, depth);
        self.written(&text, &found.real);
    }

    fn script(&mut self, text: &[u8], variables: &mut Variables, by: &Path, depth: usize) {
        let script = shell::scan(text, variables);
        for words in &script.commands {
            let function = matches!(words[0].values(), [name] if script.functions.contains(name));
            if !function && self.seen.len() < MOST_PROGRAMS {
                self.command(words, Some(by), depth);
            }
        }
    }

    /// Paths of directories of libraries in a script's text.
    fn written(&mut self, text: &[u8], by: &Path) {
        for path in hints::paths(text) {
            if self.host.kind(&path) != Kind::Absent {
                self.collector.place(&path, "its path is written in", Some(by));
            }
        }
    }

    /// The script that an interpreter is given.
    fn entry_script(&mut self, interpreter: &str, script: &Path, depth: usize) {
        let Some(found) = self.host.resolve(script) else { return };
        let file = matches!(self.host.kind(&found.real), Kind::File(_));
        if depth > DEEPEST || !file || !self.texts.insert(found.real.clone().into_os_string()) {
            return;
        }
        self.collector.reason(&found.real, "the script", None);
        self.collector.place(script, "the script", None);
        let name = found.real.file_stem().and_then(OsStr::to_str).unwrap_or_default().to_owned();
        self.collector.belongings(&name, &found.real);
        if let Some(text) = self.host.beginning(&found.real, MOST_TEXT) {
            self.written(&text, &found.real);
            self.interpreted_text(interpreter, &text, &found.real, depth);
        }
    }

    /// A program's file.
    fn program(&mut self, path: &Path, how: &str, by: Option<&Path>, depth: usize) {
        let Some(found) = self.host.resolve(path) else { return };
        let real = found.real.clone();
        if self.seen.len() >= MOST_PROGRAMS || !self.seen.insert(path.into()) {
            return;
        }
        self.collector.place(path, how, by);
        let name =
            |path: &Path| path.file_name().and_then(OsStr::to_str).unwrap_or_default().to_owned();
        let names: HashSet<String> = [name(path), name(&real)].into();
        // A shim has the name of what it stands for, and nothing of it.
        let shim = real.parent().and_then(Path::file_name) == Some(OsStr::new("shims"));
        for name in names.iter().filter(|_| !shim) {
            self.collector.belongings(name, &real);
        }
        if self.collector.finder.object(&real).is_some() {
            self.collector.close(&real, true);
        } else {
            self.interpreted(path, &real, depth);
        }
        let commands = SUPPLIES.iter().filter(|supply| {
            supply.programs.iter().any(|pattern| names.iter().any(|name| fits(pattern, name)))
        });
        for command in commands.flat_map(|supply| supply.commands) {
            self.command(&[Word::text(command.as_bytes())], Some(&real), depth + 1);
        }
        let aside = self.aside;
        for script in std::mem::take(&mut self.collector.scripts) {
            self.aside = true;
            if depth < DEEPEST && self.is_shell_script(&script) {
                self.program(&script, "a program in the directory", script.parent(), depth + 1);
            }
        }
        self.aside = aside;
    }

    /// A script: its interpreter by its first line (`execve(2)`), and what it starts.
    fn interpreted(&mut self, path: &Path, real: &Path, depth: usize) {
        let Some(start) = self.host.beginning(real, 4096) else { return };
        let line = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let shown = Word::text(path.as_os_str().as_bytes());
        let Some(line) = line.strip_prefix(b"#!") else {
            // A text without `#!` is the shell's, as for execvp(3).
            if !start.contains(&0) {
                self.command(&[Word::text(b"/bin/sh"), shown], Some(real), depth + 1);
            }
            return;
        };
        let line = line.trim_ascii();
        let split = line.iter().position(|byte| matches!(byte, b' ' | b'\t'));
        let (interpreter, argument) = line.split_at(split.unwrap_or(line.len()));
        let argument = argument.trim_ascii();
        let mut words = vec![Word::text(interpreter)];
        if !argument.is_empty() {
            words.push(Word::text(argument));
        }
        words.push(shown);
        self.command(&words, Some(real), depth + 1);
        self.dispatched(real, depth);
    }

    fn is_shell_script(&self, path: &Path) -> bool {
        let start = self.host.beginning(path, 256).unwrap_or_default();
        let line = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let words = line.strip_prefix(b"#!").unwrap_or_default().split(u8::is_ascii_whitespace);
        let mut names = words.map(|word| word.rsplit(|byte| *byte == b'/').next());
        names
            .any(|name| std::str::from_utf8(name.unwrap_or_default()).is_ok_and(supplies::is_shell))
    }

    /// Scripts that start others of their own by name: the shims of `pyenv` and `rbenv` start
    /// `pyenv-exec` and others beside `pyenv`, and in the end a program that a version has.
    fn dispatched(&mut self, real: &Path, depth: usize) {
        let (Some(directory), Some(name)) = (real.parent(), real.file_name()) else { return };
        let within = |name: &str| directory.file_name() == Some(OsStr::new(name));
        if within("libexec") {
            let start = [name.as_bytes(), b"-"].concat();
            for other in self.host.names(directory, 4096) {
                let rest = other.as_bytes().strip_prefix(start.as_slice()).unwrap_or_default();
                let parts: [&[u8]; 6] =
                    [b"exec", b"hooks", b"prefix", b"root", b"version", b"which"];
                if parts.iter().any(|part| rest.starts_with(part)) {
                    let path = directory.join(other);
                    self.program(&path, "started by name from", Some(real), depth + 1);
                }
            }
        }
        let Some(home) = directory.parent().filter(|_| within("shims")) else { return };
        let versions = home.join("versions");
        for version in self.versions(home, &versions) {
            let path = versions.join(version).join("bin").join(name);
            if self.host.kind(&path) != Kind::Absent {
                self.program(&path, "started by name from", Some(real), depth + 1);
            }
        }
    }
}

impl Programs<'_, '_, '_> {
    /// The versions that a shim chooses from: those that the project or the user set, else all.
    fn versions(&self, home: &Path, versions: &Path) -> Vec<OsString> {
        let language = if home.ends_with(".rbenv") { "ruby" } else { "python" };
        let own = format!(".{language}-version");
        let project = self.question.workdir.ancestors().map(|above| above.join(&own));
        let chosen = project.chain([home.join("version")]).find_map(|file| {
            let text = (self.host.kind(&file) != Kind::Absent)
                .then(|| self.host.beginning(&file, 4096))?;
            let text = String::from_utf8(text?).ok()?;
            let names = text.split_whitespace().filter(|name| !name.contains(['/', '#']));
            Some(names.map(OsString::from).collect::<Vec<_>>())
        });
        chosen.unwrap_or_else(|| self.host.names(versions, 256))
    }
}

/// Interpreters whose first operand is a script.
fn is_interpreter(name: &str) -> bool {
    let versions = ["python", "pypy", "perl", "ruby", "php", "lua"];
    matches!(name, "node" | "nodejs" | "Rscript")
        || versions.iter().any(|start| name.starts_with(start))
}

/// Whether the word behind an option is the script itself: `-c` of Python's, `-e` of most.
fn is_text(interpreter: &str, word: &[u8]) -> bool {
    let letters: &[u8] = match interpreter {
        name if fits("p*y*", name) => b"c",
        name if fits("node*", name) => b"ep",
        name if fits("php*", name) => b"r",
        _ => b"eE",
    };
    let long = matches!(word, b"--eval" | b"--print");
    long || word.starts_with(b"-")
        && !word.starts_with(b"--")
        && word.last().is_some_and(|last| letters.contains(last))
}
