//! Git's configuration files: their syntax, and which of their settings are not harmless ([`crate::gitruns`]).
//!
//! The syntax is git's own (`config.c`): sections and quoted subsections, names without case,
//! quotes, escapes, comments, continued lines. What git would not read is reported too. It is bytes, of whatever encoding;
//! a value as text has those that are no UTF-8 as characters that mean nothing ([`crate::gitbytes`]). What is beyond the
//! bounds of [`crate::gitread`], or has a zero byte, is not read.

use crate::gitbytes;
use crate::gitread::{LONGEST_SECTION, MOST, MOST_SETTINGS, Unknown};
use crate::gitruns::runs;
use crate::gitworktree::own_worktrees;
use std::fmt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// One setting. Those of one section share its name: it may be long, and they may be many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Section, lower case.
    pub section: Rc<str>,
    /// Subsection, as written; the old form `[section.sub]` gives it in lower case.
    pub subsection: Option<Rc<str>>,
    /// Name, lower case.
    pub name: String,
    /// Value; `None` for a name alone, which means true.
    pub value: Option<String>,
    /// Line, from 1.
    pub line: usize,
}

impl Setting {
    /// The full key: `remote.origin.url`.
    pub fn key(&self) -> String {
        match &self.subsection {
            Some(subsection) => format!("{}.{subsection}.{}", self.section, self.name),
            // Before the first section git takes names too; they mean nothing.
            None if self.section.is_empty() => self.name.clone(),
            None => format!("{}.{}", self.section, self.name),
        }
    }
}

/// Why a text has no settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// Git refuses it at this line.
    Line(usize),
    /// It is beyond a bound; git may obey it.
    Unknown(Unknown),
}

/// Reads a configuration.
///
/// # Errors
/// What is wrong with it, with the settings before that lost.
pub fn parse(text: impl AsRef<[u8]>) -> Result<Vec<Setting>, Unread> {
    let text = text.as_ref();
    if text.len() as u64 > MOST {
        return Err(Unread::Unknown(Unknown::Large));
    }
    // `[core "fsmonitor\0"]` and a name: to git that key is `core.fsmonitor`. Nobody writes one.
    if text.contains(&0) {
        return Err(Unread::Unknown(Unknown::Zero));
    }
    let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
    let mut parser = Parser { text, at: 0, line: 1 };
    let mut settings = Vec::new();
    let mut section: Rc<str> = Rc::from("");
    let mut subsection: Option<Rc<str>> = None;
    loop {
        parser.skip_space_and_lines();
        match parser.peek() {
            None => return Ok(settings),
            Some(b'#' | b';') => parser.skip_line(),
            Some(b'[') => {
                let from = parser.at;
                let (name, sub) = parser.section().ok_or(Unread::Line(parser.line))?;
                if parser.at - from > LONGEST_SECTION {
                    return Err(Unread::Unknown(Unknown::Section));
                }
                (section, subsection) = (name.into(), sub.map(Rc::from));
            }
            Some(byte) if byte.is_ascii_alphabetic() => {
                if settings.len() == MOST_SETTINGS {
                    return Err(Unread::Unknown(Unknown::Settings));
                }
                let line = parser.line;
                let (name, value) = parser.setting().ok_or(Unread::Line(parser.line))?;
                let (section, subsection) = (Rc::clone(&section), subsection.clone());
                settings.push(Setting { section, subsection, name, value, line });
            }
            Some(_) => return Err(Unread::Line(parser.line)),
        }
    }
}

/// The last value of `section.name`, as git takes it; `None` when it is not set or the file
/// cannot be read.
pub fn last_value(text: impl AsRef<[u8]>, section: &str, name: &str) -> Option<String> {
    let wanted = |setting: &Setting| {
        *setting.section == *section && setting.subsection.is_none() && setting.name == name
    };
    parse(text).ok()?.into_iter().rev().find(wanted)?.value
}

/// The same of a setting that is a path.
pub fn last_path(text: impl AsRef<[u8]>, section: &str, name: &str) -> Option<PathBuf> {
    last_value(text, section, name).map(|value| gitbytes::path(&value))
}

/// What makes a configuration one that is not harmless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Executes {
    /// This key.
    Key(String),
    /// What git cannot read, or we do not.
    Unread(Unread),
}

impl fmt::Display for Executes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Executes::Key(key) => formatter.write_str(key),
            Executes::Unread(Unread::Line(line)) => {
                write!(formatter, "line {line}, which git cannot read")
            }
            Executes::Unread(Unread::Unknown(why)) => write!(formatter, "it {}", why.text().0),
        }
    }
}

/// The first key that makes git run a program, take a further configuration, or hand
/// credentials elsewhere; or a line that git cannot read. `None` when there is none.
///
/// `core.worktree` counts, since git would write files elsewhere; see [`executes_in`].
pub fn executes(text: impl AsRef<[u8]>) -> Option<String> {
    first(text.as_ref(), &|_| false).map(|found| found.to_string())
}

/// As [`executes`], for a file in `directory`: a `core.worktree` does not count that leads to the directory that the
/// repository's `.git` is in, or, as every submodule's, to another one in there. Nor does one into `project`, of a
/// repository that is not in it.
pub fn executes_in(
    text: impl AsRef<[u8]>,
    directory: &Path,
    project: Option<&Path>,
) -> Option<Executes> {
    first(text.as_ref(), &own_worktrees(directory, project))
}

fn first(text: &[u8], worktree_allowed: &dyn Fn(&str) -> bool) -> Option<Executes> {
    match parse(text) {
        Ok(settings) => {
            let found = settings.iter().find(|setting| counts(setting, worktree_allowed));
            found.map(|setting| Executes::Key(setting.key()))
        }
        Err(why) => Some(Executes::Unread(why)),
    }
}

/// Whether git runs the same programs by two texts of one configuration, in the same order: the settings that
/// [`executes_in`] speaks of are the same. What cannot be read is the same as nothing.
pub fn executes_the_same(
    before: impl AsRef<[u8]>,
    now: impl AsRef<[u8]>,
    directory: &Path,
) -> bool {
    let of = |text: &[u8]| {
        let settings = parse(text).ok()?.into_iter();
        let allowed = own_worktrees(directory, None);
        let counting = settings.filter(|setting| counts(setting, &allowed));
        Some(counting.map(|setting| Setting { line: 0, ..setting }).collect::<Vec<_>>())
    };
    of(before.as_ref()).is_some_and(|before| of(now.as_ref()) == Some(before))
}

fn counts(setting: &Setting, worktree_allowed: &dyn Fn(&str) -> bool) -> bool {
    let worktree = &*setting.section == "core" && setting.name == "worktree";
    match worktree {
        true => !setting.value.as_deref().is_some_and(worktree_allowed),
        false => runs(setting),
    }
}

/// White space to git (`sane_ctype` in ctype.c): a form feed is none.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    line: usize,
}

impl Parser<'_> {
    /// The next byte, a carriage return before a line feed left out.
    fn peek(&self) -> Option<u8> {
        match self.text.get(self.at) {
            Some(b'\r') if self.text.get(self.at + 1) == Some(&b'\n') => Some(b'\n'),
            byte => byte.copied(),
        }
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        if byte == b'\n' {
            self.line += 1;
            if self.text[self.at] == b'\r' {
                self.at += 1;
            }
        }
        self.at += 1;
        Some(byte)
    }

    fn skip_space_and_lines(&mut self) {
        while self.peek().is_some_and(is_space) {
            self.next();
        }
    }

    fn skip_space(&mut self) {
        while self.peek().is_some_and(|byte| byte != b'\n' && is_space(byte)) {
            self.next();
        }
    }

    fn skip_line(&mut self) {
        while !matches!(self.next(), None | Some(b'\n')) {}
    }

    /// `[name]`, `[name.sub]`, `[name "sub"]`, or `[name.sub "more"]`: of the whole key git takes what is before the
    /// first dot for the section.
    fn section(&mut self) -> Option<(String, Option<String>)> {
        self.next();
        let (mut name, mut quoted) = (String::new(), None);
        loop {
            match self.next()? {
                b']' => break,
                byte if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.') => {
                    name.push(char::from(byte.to_ascii_lowercase()));
                }
                byte if is_space(byte) && byte != b'\n' => {
                    quoted = Some(self.subsection()?);
                    break;
                }
                _ => return None,
            }
        }
        if name.is_empty() {
            return None;
        }
        Some(match (name.split_once('.'), quoted) {
            (Some((section, sub)), None) => (section.to_owned(), Some(sub.to_owned())),
            (Some((section, sub)), Some(more)) => {
                (section.to_owned(), Some(format!("{sub}.{more}")))
            }
            (None, quoted) => (name, quoted),
        })
    }

    /// `"sub"]`, after the white space.
    fn subsection(&mut self) -> Option<String> {
        self.skip_space();
        if self.next()? != b'"' {
            return None;
        }
        let mut sub = Vec::new();
        loop {
            match self.next()? {
                b'\n' => return None,
                b'"' => break,
                b'\\' => match self.next()? {
                    b'\n' => return None,
                    byte => sub.push(byte),
                },
                byte => sub.push(byte),
            }
        }
        (self.next()? == b']').then(|| gitbytes::text(&sub))
    }

    /// `name` or `name = value`.
    fn setting(&mut self) -> Option<(String, Option<String>)> {
        let mut name = String::new();
        while let Some(byte) = self.peek().filter(|b| b.is_ascii_alphanumeric() || *b == b'-') {
            name.push(char::from(byte.to_ascii_lowercase()));
            self.next();
        }
        self.skip_space();
        match self.peek() {
            None => return Some((name, None)),
            Some(b'\n') => return Some((name, None)),
            Some(b'=') => self.next(),
            Some(_) => return None,
        };
        self.value().map(|value| (name, Some(value)))
    }

    /// The rest of the line, continued lines included.
    fn value(&mut self) -> Option<String> {
        let mut out: Vec<u8> = Vec::new();
        // White space counts only between other things, or within quotes; a continued line is another thing.
        let mut kept = 0;
        let (mut quoted, mut comment) = (false, false);
        self.skip_space();
        loop {
            let byte = match self.next() {
                None if quoted => return None,
                None => break,
                Some(byte) => byte,
            };
            match byte {
                b'\n' if quoted => return None,
                b'\n' => break,
                _ if comment => {}
                b'#' | b';' if !quoted => comment = true,
                byte if is_space(byte) && !quoted => {
                    if !out.is_empty() {
                        out.push(byte);
                    }
                }
                b'"' => {
                    quoted = !quoted;
                    kept = out.len();
                }
                b'\\' => {
                    // The end of the file ends a line as well.
                    match self.next().unwrap_or(b'\n') {
                        b'\n' => {}
                        b't' => out.push(b'\t'),
                        b'b' => out.push(8),
                        b'n' => out.push(b'\n'),
                        byte @ (b'\\' | b'"') => out.push(byte),
                        _ => return None,
                    }
                    kept = out.len();
                }
                byte => {
                    out.push(byte);
                    kept = out.len();
                }
            }
        }
        out.truncate(kept);
        Some(gitbytes::text(&out))
    }
}
