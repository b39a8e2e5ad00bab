//! What the words of a command are: the program, what it runs, and what it is merely told of.

use super::lists::{
    ANY, GIT, GIT_CODE, GIT_VALUED, HARMLESS, KEYWORDS, NOTHING, OBEYED, Obeyed, READERS, Reader,
    SHOWING, WRAPPERS, WRAPPING, Wrapper,
};
use super::{How, Line, MOST, Word};
use crate::files::is_script;
use crate::gitconfig::Setting;
use crate::gitruns::runs;
use std::path::Path;

/// What the next word of a command is.
#[derive(Clone, Copy)]
enum Next {
    Program,
    /// A function's name, before its body.
    Function,
    Wrapped(Wrapped),
    /// A file that the program runs, or an option of it.
    Script(&'static Reader),
    /// The value of such an option.
    Value(&'static Reader),
    /// What is run, whatever it looks like.
    Told,
    /// A shell's code, or an option before it.
    Code,
    Argument(Argument),
    /// A file that the program obeys.
    File(Argument),
    /// An option of git's, or its command.
    Git,
    GitValue,
    GitSetting,
    /// An argument of that command.
    GitArgument(&'static str),
    GitCode(&'static str),
    /// Anything: what the program is, is not known.
    Every,
}

/// A program, or what stands before it: options of what runs it, and words of its own.
#[derive(Clone, Copy)]
struct Wrapped {
    by: &'static Wrapper,
    /// An option was before; with a value, or perhaps with one.
    value: Option<bool>,
    own: usize,
}

impl Wrapped {
    const fn new(by: &'static Wrapper) -> Wrapped {
        Wrapped { by, value: None, own: by.own }
    }
}

/// A word that a program is given.
#[derive(Clone, Copy)]
struct Argument {
    /// Options with a file that the program obeys.
    obeyed: &'static Obeyed,
    /// It runs nothing of what it is told.
    harmless: bool,
}

const TOLD: Next = Next::Argument(Argument { obeyed: &NOTHING, harmless: false });

/// The target of a redirection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    Read,
    Write,
    /// No file: the text that is read.
    Text,
}

/// How far a command has been read.
pub(super) struct Command {
    next: Next,
    /// The next word is that.
    pub target: Option<Target>,
}

pub(super) const COMMAND: Command = Command { next: Next::Program, target: None };

impl Line<'_> {
    pub(super) fn take(&mut self, command: &mut Command, word: &Word) {
        let text = word.text.as_str();
        self.sure = !word.open;
        if let Some(target) = command.target.take() {
            match (target, command.next) {
                (Target::Read, Next::Script(_)) => self.found(text, How::Run),
                (Target::Text, Next::Script(reader)) if reader.shell => self.code(text),
                _ => {}
            }
            return;
        }
        command.next = match command.next {
            Next::Program => self.program(word, None),
            Next::Function => Next::Program,
            Next::Wrapped(wrapped) => self.wrapped(wrapped, word),
            Next::Script(reader) => self.script(reader, text),
            Next::Value(reader) => {
                self.value(text);
                // A list of them.
                text.split(':').for_each(|one| self.found(one, How::Mention));
                Next::Script(reader)
            }
            Next::Told => {
                self.found(text, How::Run);
                TOLD
            }
            Next::Code if text.starts_with('-') => Next::Code,
            Next::Code => {
                self.code(text);
                TOLD
            }
            Next::Argument(argument) => self.argument(argument, word),
            Next::File(argument) => {
                self.found(text, How::Run);
                Next::Argument(argument)
            }
            Next::Git => self.git(text),
            Next::GitValue => Next::Git,
            Next::GitSetting => {
                self.setting(text);
                Next::Git
            }
            Next::GitArgument(command) => self.git_argument(command, text),
            Next::GitCode(command) => {
                self.code(text);
                Next::GitArgument(command)
            }
            Next::Every => {
                let value = text.rsplit_once('=').map_or(text, |(_, value)| value);
                if value.contains('/') {
                    self.code(value);
                }
                Next::Every
            }
        };
    }

    /// A word where a program is awaited, or its variables; where something runs it, that.
    fn program(&mut self, word: &Word, wrapped: Option<Wrapped>) -> Next {
        let text = word.text.as_str();
        // All marks at once: as many as a configuration has room for must not be as many calls.
        let rest = text.trim_start_matches('!');
        if rest.len() < text.len() && !rest.is_empty() {
            let rest = Word { text: rest.to_owned(), ..word.clone() };
            return self.program(&rest, None);
        }
        if rest.is_empty() && !text.is_empty() {
            return Next::Program;
        }
        if let Some(meant) = &word.instead {
            return instead(meant);
        }
        if KEYWORDS.contains(&text) {
            return Next::Program;
        }
        if text.starts_with('-') {
            return Next::Every;
        }
        if let Some((_, value)) = text.split_once('=').filter(|(name, _)| is_name(name)) {
            // `PAGER=./page git log`, or a variable that is run later.
            self.code(value);
            return wrapped.map_or(Next::Program, Next::Wrapped);
        }
        if text.contains('/') {
            self.found(text, How::Run);
        }
        let name = text.rsplit('/').next().unwrap_or_default();
        match name {
            "function" => return Next::Function,
            "eval" | "trap" => return Next::Code,
            "git" => return Next::Git,
            _ => {}
        }
        let family = match text {
            "." => "source".to_owned(),
            _ => name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.').to_lowercase(),
        };
        if let Some(reader) = READERS.iter().find(|reader| reader.names.contains(&&*family)) {
            if reader.shell {
                for shown in std::mem::take(&mut self.shown) {
                    self.found(&shown, How::Perhaps);
                }
            }
            return Next::Script(reader);
        }
        if let Some(by) = WRAPPERS.iter().find(|wrapper| wrapper.name == name) {
            return Next::Wrapped(Wrapped::new(by));
        }
        let known = !text.contains('/') || text.starts_with('/');
        let harmless = known && HARMLESS.split(' ').any(|one| one == name);
        let obeyed = OBEYED.iter().find(|obeyed| obeyed.names.contains(&name));
        Next::Argument(Argument { obeyed: obeyed.unwrap_or(&NOTHING), harmless })
    }

    /// A word behind what runs a command.
    fn wrapped(&mut self, wrapped: Wrapped, word: &Word) -> Next {
        let (by, text) = (wrapped.by, word.text.as_str());
        let rest = Wrapped { value: None, ..wrapped };
        if wrapped.value == Some(true) {
            return Next::Wrapped(rest);
        }
        if let Some(option) = text.strip_prefix('-').filter(|_| word.instead.is_none()) {
            return self.wrappers_option(rest, option);
        }
        if wrapped.value == Some(false) && !is_assignment(text) {
            // It may be an option's value, or what is run.
            if text.contains('/') {
                self.found(text, How::Perhaps);
            }
            return Next::Wrapped(rest);
        }
        if wrapped.own > 0 {
            return Next::Wrapped(Wrapped { own: wrapped.own - 1, ..rest });
        }
        let number = by.open && text.starts_with(|c: char| c.is_ascii_digit());
        if number && !text.contains('/') {
            return Next::Wrapped(rest);
        }
        if text.contains(|c: char| c.is_ascii_whitespace()) && !is_assignment(text) {
            // It may be a shell's code.
            self.code(text);
        }
        if is_script(Path::new(text)) {
            self.found(text, How::Run);
        }
        self.program(word, Some(rest))
    }

    /// An option of it, without the first dash.
    fn wrappers_option(&mut self, rest: Wrapped, option: &str) -> Next {
        let by = rest.by;
        let open = by.open.then_some(false);
        if let Some(long) = option.strip_prefix('-') {
            // `env --split-string`, and what runs a shell's code.
            let (name, code) = long.split_once('=').map_or((long, None), |(a, b)| (a, Some(b)));
            if !by.code.is_empty() && ["split-string", "command", "call"].contains(&name) {
                let Some(code) = code else { return Next::Code };
                self.code(code);
                return TOLD;
            }
            let value = match long {
                "" => None,
                long if by.long.contains(&long) => Some(true),
                long if long.contains('=') => None,
                _ => open,
            };
            return Next::Wrapped(Wrapped { value, ..rest });
        }
        for (at, letter) in option.char_indices() {
            let attached = &option[at + letter.len_utf8()..];
            if by.code.contains(letter) {
                self.code(attached);
                return if attached.is_empty() { Next::Code } else { TOLD };
            }
            if by.letters.contains(letter) {
                let value = attached.is_empty().then_some(true);
                return Next::Wrapped(Wrapped { value, ..rest });
            }
        }
        Next::Wrapped(Wrapped { value: open, ..rest })
    }

    /// A word behind an interpreter.
    fn script(&mut self, reader: &'static Reader, word: &str) -> Next {
        let Some(option) = word.strip_prefix(['-', '+']) else {
            if reader.commands.contains(&word) {
                return Next::Script(reader);
            }
            self.found(word, How::Run);
            // Of a directory it is what is called so in it.
            if let Some(main) = reader.main {
                self.found(&format!("{}/{main}", word.trim_end_matches('/')), How::Mention);
            }
            return TOLD;
        };
        if option.starts_with('-') || reader.long {
            let long = option.trim_start_matches('-');
            let (long, value) = long.split_once('=').map_or((long, None), |(a, b)| (a, Some(b)));
            let long = long.to_lowercase();
            return self.option(reader, &long, value);
        }
        for (at, letter) in option.char_indices() {
            let (one, attached) = option[at..].split_at(letter.len_utf8());
            let known = |all: &[&str]| all.contains(&one);
            if known(reader.code) || known(reader.valued) || known(reader.file) {
                // A shell's further letters are options as well.
                let value = (!attached.is_empty() && !reader.shell).then_some(attached);
                return self.option(reader, one, value);
            }
            if reader.attached.contains(letter) {
                break;
            }
        }
        Next::Script(reader)
    }

    /// An option of an interpreter's, and the value that stands with it.
    fn option(&mut self, reader: &'static Reader, option: &str, value: Option<&str>) -> Next {
        if reader.code.contains(&option) {
            return match value {
                Some(value) if reader.shell => {
                    self.code(value);
                    TOLD
                }
                None if reader.shell => Next::Code,
                _ => TOLD,
            };
        }
        let (told, valued) = (reader.file.contains(&option), reader.valued.contains(&option));
        match value {
            Some(value) if told => {
                self.found(value, How::Run);
                TOLD
            }
            Some(value) if valued => {
                self.value(value);
                Next::Script(reader)
            }
            None if told => Next::Told,
            None if valued => Next::Value(reader),
            _ => Next::Script(reader),
        }
    }

    /// The value of an interpreter's option: code that it loads, or another thing.
    fn value(&mut self, text: &str) {
        let how = if is_script(Path::new(text)) { How::Run } else { How::Perhaps };
        self.found(text, how);
        // A setting (`php -d auto_prepend_file=x`).
        if let Some((_, value)) = text.split_once('=') {
            self.found(value, How::Perhaps);
        }
    }

    /// A word that a program is given.
    fn argument(&mut self, argument: Argument, word: &Word) -> Next {
        let text = word.text.as_str();
        let Argument { obeyed, harmless } = argument;
        if text.len() > 1 && text.starts_with('!') && !harmless {
            return self.program(word, None);
        }
        if WRAPPING.contains(&text) && !harmless {
            return Next::Wrapped(Wrapped::new(&ANY));
        }
        if let Some(file) = obeyed.file(text) {
            if file.is_empty() {
                return Next::File(argument);
            }
            self.found(file, How::Run);
            return Next::Argument(argument);
        }
        let command = text.split_once(['=', ' ', '\t']).filter(|(key, _)| is_ssh_command(key));
        if let Some((_, command)) = command {
            self.code(command);
        } else if harmless {
            if text.contains('/') && self.shown.len() < MOST {
                self.shown.push(text.to_owned());
            }
        } else {
            let value = match text.starts_with('-') {
                true => text.split_once('=').map_or("", |(_, value)| value),
                false => text,
            };
            for one in [value, value.split_whitespace().next().unwrap_or_default()] {
                if one.contains('/') {
                    self.found(one, How::Mention);
                }
            }
        }
        Next::Argument(argument)
    }

    /// An option of git's, or its command.
    fn git(&mut self, word: &str) -> Next {
        match word {
            "-c" => Next::GitSetting,
            word if GIT_VALUED.contains(&word) => Next::GitValue,
            word if word.starts_with('-') => Next::Git,
            // An alias, or anybody's program.
            word => GIT.split(' ').find(|one| *one == word).map_or(TOLD, Next::GitArgument),
        }
    }

    /// A setting that stands in a command.
    fn setting(&mut self, word: &str) {
        let Some((key, value)) = word.split_once('=') else { return };
        let Some((section, rest)) = key.split_once('.') else { return };
        let (subsection, name) = match rest.rsplit_once('.') {
            Some((subsection, name)) => (Some(subsection.to_owned()), name),
            None => (None, rest),
        };
        let setting = Setting {
            section: section.to_ascii_lowercase().into(),
            subsection: subsection.map(Into::into),
            name: name.to_ascii_lowercase(),
            value: Some(value.to_owned()),
            line: 0,
        };
        match (&*setting.section, setting.name.as_str()) {
            _ if !runs(&setting) => {}
            ("core", "hookspath") => self.found(value, How::Hooks),
            ("include" | "includeif", _) => self.found(value, How::Configuration),
            ("alias", _) if !value.starts_with('!') => self.code(&format!("git {value}")),
            _ => {
                if value.contains('/') && !value.starts_with('!') {
                    self.found(value, How::Perhaps);
                }
                self.code(value.strip_prefix("ext::").unwrap_or(value));
            }
        }
    }

    /// An argument of a command of git's own.
    fn git_argument(&mut self, command: &'static str, word: &str) -> Next {
        if matches!((command, word), ("bisect", "run") | ("submodule", "foreach")) {
            return Next::Wrapped(Wrapped::new(&ANY));
        }
        let own = GIT_CODE.iter().find(|(name, ..)| *name == command);
        if let Some(long) = word.strip_prefix("--") {
            let (long, value) = long.split_once('=').map_or((long, None), |(a, b)| (a, Some(b)));
            let ends = ["-filter", "-cmd", "-pack"].iter().any(|ending| long.ends_with(ending));
            let code = ends || own.is_some_and(|(_, _, all)| all.contains(&long));
            match value {
                Some(value) if code => self.code(value),
                None if code => return Next::GitCode(command),
                _ => {}
            }
        } else if let (Some(letters), Some((_, known, _))) = (word.strip_prefix('-'), own)
            && let Some((_, value)) = letters.split_once(|letter| known.contains(letter))
        {
            // The pager of `git grep` stands with its letter.
            if value.is_empty() && command != "grep" {
                return Next::GitCode(command);
            }
            self.code(value);
        }
        Next::GitArgument(command)
    }
}

/// What a program does of which only a variable, or another command, knows the name.
fn instead(meant: &str) -> Next {
    let lower = meant.to_ascii_lowercase();
    let showing = SHOWING.contains(&meant)
        || lower.contains("git") && ["editor", "pager"].iter().any(|one| lower.contains(one));
    match READERS.iter().find(|_| meant == "SHELL") {
        Some(shell) => Next::Script(shell),
        None => Next::Argument(Argument { obeyed: &NOTHING, harmless: showing }),
    }
}

impl Obeyed {
    /// What stands in a word with an option whose value is obeyed: nothing, where that is the next word.
    fn file<'t>(&self, word: &'t str) -> Option<&'t str> {
        let (option, value) = word.split_once('=').unwrap_or((word, ""));
        if self.options.contains(&option) {
            return Some(value);
        }
        let letters = word.strip_prefix('-')?;
        let at = letters.find(|letter| !self.behind.contains(letter))?;
        let letter = letters[at..].chars().next().filter(|one| self.letters.contains(*one))?;
        Some(&letters[at + letter.len_utf8()..])
    }
}

/// Whether `ssh` runs the value of an option.
fn is_ssh_command(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    ["proxycommand", "localcommand", "knownhostscommand"].iter().any(|one| key.ends_with(one))
}

fn is_assignment(text: &str) -> bool {
    text.split_once('=').is_some_and(|(name, _)| is_name(name))
}

fn is_name(text: &str) -> bool {
    let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    first && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
