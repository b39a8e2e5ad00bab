//! Which files a command line of git's configuration runs, read as a shell reads it: the first word of each command, and
//! what an interpreter is told to run. What is merely mentioned (`git add src/main.rs`) is the user's data, as long as it
//! does not look like a program that somebody could be told to run.

mod lists;
mod meaning;
#[cfg(test)]
mod tests;

use meaning::{COMMAND, Target};

/// How deep commands are followed that stand in others.
const DEEP: usize = 8;

/// Files that one setting can name.
const MOST: usize = 256;

/// What is done with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// It is run.
    Run,
    /// It is run, or a word of another meaning: an option's value, or what is behind a variable that leads anywhere.
    Perhaps,
    /// Something is told of it that may run it.
    Mention,
    /// Its files are run as hooks.
    Hooks,
    /// It is taken for configuration.
    Configuration,
}

/// The files, as the words are: from the directory of the command, or from a home behind `~`. Of a word that begins with
/// what is known only when it runs, what is behind that, from the directory of the command.
pub(crate) fn programs(text: &str) -> Vec<(String, How)> {
    let mut found = Vec::new();
    Line::of(text, 0, &mut found).commands(false);
    found
}

struct Line<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
    /// Words that end here-documents, which begin with the next line.
    bodies: Vec<String>,
    found: &'a mut Vec<(String, How)>,
    /// Where the word leads that is looked at is known.
    sure: bool,
    /// What is shown in this pipeline: a shell at its end runs it.
    shown: Vec<String>,
}

/// A word.
#[derive(Clone, Default)]
struct Word {
    text: String,
    /// What it is instead, where it is only known when it runs: a variable, or a command.
    instead: Option<String>,
    /// It has something in it that may lead anywhere.
    open: bool,
}

impl<'a> Line<'a> {
    fn of(text: &'a str, depth: usize, found: &'a mut Vec<(String, How)>) -> Line<'a> {
        let (bodies, shown) = (Vec::new(), Vec::new());
        Line { text: text.as_bytes(), at: 0, depth, bodies, found, sure: true, shown }
    }

    /// All commands to the end, or to the parenthesis that closes what was opened before.
    fn commands(&mut self, within: bool) {
        let (mut command, mut open) = (COMMAND, 0_usize);
        while let Some(byte) = self.peek() {
            self.at += 1;
            match byte {
                b' ' | b'\t' | b'\r' => {}
                b'#' => self.skip(|byte| byte != b'\n'),
                b')' if within && open == 0 => return,
                b'(' | b')' => {
                    open = if byte == b'(' { open + 1 } else { open.saturating_sub(1) };
                    command = COMMAND;
                }
                b';' | b'&' | b'|' | b'\n' => {
                    command = COMMAND;
                    if byte != b'|' {
                        self.shown.clear();
                    }
                    if byte == b'\n' {
                        self.documents();
                    }
                }
                b'<' | b'>' => {
                    let from = self.at - 1;
                    self.skip(|byte| b"<>&|".contains(&byte));
                    command.target = match &self.text[from..self.at] {
                        b"<<" => {
                            self.skip(|byte| b"- \t".contains(&byte));
                            let end = self.word().text;
                            self.bodies.push(end);
                            None
                        }
                        b"<<<" => Some(Target::Text),
                        _ if byte == b'<' => Some(Target::Read),
                        _ => Some(Target::Write),
                    };
                }
                _ => {
                    self.at -= 1;
                    let word = self.word();
                    let descriptor = word.text.bytes().all(|byte| byte.is_ascii_digit());
                    if !(descriptor && matches!(self.peek(), Some(b'<' | b'>'))) {
                        self.take(&mut command, &word);
                    }
                }
            }
        }
    }

    /// Here-documents that begin here: commands for a shell, or such in a text.
    fn documents(&mut self) {
        for end in std::mem::take(&mut self.bodies) {
            let mut body = String::new();
            while self.at < self.text.len() {
                let from = self.at;
                self.skip(|byte| byte != b'\n');
                let line = String::from_utf8_lossy(&self.text[from..self.at]).into_owned();
                self.at = self.text.len().min(self.at + 1);
                if line.trim_start_matches('\t') == end {
                    break;
                }
                body.push_str(&line);
                body.push('\n');
            }
            self.code(&body);
        }
    }

    /// What another text runs.
    fn code(&mut self, text: &str) {
        let depth = self.depth + 1;
        if depth < DEEP {
            Line::of(text, depth, self.found).commands(false);
        }
    }

    fn found(&mut self, word: &str, how: How) {
        let how = if how == How::Run && !self.sure { How::Perhaps } else { how };
        if self.found.len() < MOST && !word.is_empty() {
            self.found.push((word.to_owned(), how));
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn skip(&mut self, wanted: impl Fn(u8) -> bool) {
        while self.peek().is_some_and(&wanted) {
            self.at += 1;
        }
    }

    fn word(&mut self) -> Word {
        let (mut word, mut quote) = (Vec::new(), None);
        // Behind an alias's mark, and between quotes, a word may be nothing else.
        let (mut instead, mut literal, mut open_to) = (None, false, false);
        while let Some(byte) = self.peek() {
            self.at += 1;
            match (byte, quote) {
                (byte, Some(open)) if byte == open => quote = None,
                (b'\'' | b'"', None) => quote = Some(byte),
                (b'\\', open) if open != Some(b'\'') => {
                    literal = true;
                    self.escaped(quote.is_some(), &mut word);
                }
                // `$'…'` and `$"…"` are quotes.
                (b'$', None) if matches!(self.peek(), Some(b'\'' | b'"')) => {}
                (b'$' | b'`', open) if open != Some(b'\'') => {
                    self.at -= 1;
                    match self.expansion(&mut word) {
                        Some(meant) => {
                            open_to |= !is_known(&meant);
                            instead = Some(meant);
                        }
                        None => literal = true,
                    }
                }
                (byte, None) if byte.is_ascii_whitespace() || b";&|()<>".contains(&byte) => {
                    self.at -= 1;
                    break;
                }
                (byte, _) => {
                    literal |= byte != b'!' || !word.is_empty();
                    word.push(byte);
                }
            }
        }
        let text = String::from_utf8_lossy(&word).into_owned();
        Word { text, instead: instead.filter(|_| !literal), open: open_to }
    }

    fn escaped(&mut self, quoted: bool, word: &mut Vec<u8>) {
        let Some(byte) = self.peek() else { return };
        self.at += 1;
        if quoted && !b"$`\"\\\n".contains(&byte) {
            word.push(b'\\');
        }
        if byte != b'\n' {
            word.push(byte);
        }
    }

    /// What is put in the place of a variable or of a command's output; what it was, if it was one.
    fn expansion(&mut self, word: &mut Vec<u8>) -> Option<String> {
        let start = self.at + 1;
        let text = self.text;
        let to = |end: u8| {
            let rest = text.get(start..).unwrap_or_default();
            rest.iter().position(|byte| *byte == end).map_or(text.len(), |at| start + at)
        };
        let of = |end: usize| String::from_utf8_lossy(&text[start..end]).into_owned();
        let meant = match (text[self.at], text.get(start)) {
            (b'`', _) => {
                let end = to(b'`');
                self.at = text.len().min(end + 1);
                let inner = of(end);
                self.code(&inner);
                inner
            }
            (_, Some(b'(')) if self.depth < DEEP => {
                self.at += 2;
                self.depth += 1;
                self.commands(true);
                self.depth -= 1;
                of(self.at)
            }
            (_, Some(b'{')) => {
                let end = to(b'}');
                self.at = text.len().min(end + 1);
                let inner = of(end);
                let inner = inner.trim_start_matches('{');
                match inner.split_once([':', '-', '=', '+']) {
                    Some((name, default)) => {
                        self.code(default.trim_start_matches(['-', '=', '+']));
                        name.to_owned()
                    }
                    None => inner.to_owned(),
                }
            }
            (_, Some(byte)) if byte.is_ascii_alphabetic() || *byte == b'_' => {
                self.at = start;
                self.skip(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
                of(self.at)
            }
            (_, Some(byte)) if byte.is_ascii_digit() || b"@*#?$!-".contains(byte) => {
                self.at = start + 1;
                String::new()
            }
            _ => {
                self.at = start;
                word.push(b'$');
                return None;
            }
        };
        // Behind an alias's mark, or an option's.
        let begins = word.iter().rposition(|byte| b"!=".contains(byte)).map_or(0, |at| at + 1);
        let home = meant == "HOME" && word.len() == begins;
        word.truncate(begins);
        word.extend_from_slice(match () {
            () if home => b"~",
            () if git_directory(&meant) => b"./.git",
            () => b".",
        });
        Some(meant)
    }
}

/// Whether it is known where a variable, or a command, leads: to the home, the repository or its worktree.
fn is_known(meant: &str) -> bool {
    let says = ["--show-toplevel", "--show-cdup"];
    matches!(meant, "HOME" | "PWD" | "GIT_PREFIX" | "GIT_WORK_TREE" | "pwd")
        || git_directory(meant)
        || says.iter().any(|one| meant.contains(one))
}

/// Whether a variable, or a command, says where the repository is.
fn git_directory(meant: &str) -> bool {
    let says = ["--git-dir", "--absolute-git-dir", "--git-common-dir"];
    matches!(meant, "GIT_DIR" | "GIT_COMMON_DIR") || says.iter().any(|one| meant.contains(one))
}
