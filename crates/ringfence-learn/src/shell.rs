//! Which commands a shell script names, read off its text: nothing is executed, no expansion
//! with an effect is made.
//!
//! This is not a whole parser of a shell: it is a scanner that knows where commands stand.
//! It goes over the text once, in time and memory bounded by its length, and never fails: what
//! it does not understand it passes over. It is written here, and not taken from a grammar in
//! C or a backtracking parser, since scripts are foreign bytes read outside any sandbox.

mod expansion;

use crate::supplies::is_shell;
use crate::words::{Variables, Word};

/// How deep substitutions and groups may nest.
const DEEPEST: usize = 64;
/// The most commands that are taken from one script.
const MOST_COMMANDS: usize = 4096;

/// What a script names.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// Simple commands, each word with the values it can have.
    pub commands: Vec<Vec<Word>>,
    /// Functions it defines.
    pub functions: Vec<Vec<u8>>,
    /// Not everything was understood, or there was too much.
    pub incomplete: bool,
}

/// Reads a script; constant assignments go to the variables, and are taken from there.
pub fn scan(text: &[u8], variables: &mut Variables) -> Script {
    let mut script = Script::default();
    Scanner {
        text,
        at: 0,
        depth: 0,
        script: &mut script,
        variables,
        documents: Vec::new(),
        given: Vec::new(),
    }
    .list(&[]);
    script
}

struct Scanner<'t, 's> {
    text: &'t [u8],
    at: usize,
    depth: usize,
    script: &'s mut Script,
    variables: &'s mut Variables,
    /// Here-documents whose text follows the line.
    documents: Vec<Document>,
    /// What the command at hand is given to read (`<<<`).
    given: Vec<Word>,
}

/// A here-document.
struct Document {
    end: Vec<u8>,
    /// Tabs before its lines are none of it.
    tabs: bool,
    expanded: bool,
    /// A shell reads it.
    commands: bool,
}

/// Whether a command is a shell that reads its commands: it is given neither a file nor a text.
fn reads_commands(words: &[Word]) -> bool {
    let Some((first, rest)) = words.split_first() else { return false };
    let [name] = first.values() else { return false };
    let name = name.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    if !std::str::from_utf8(name).is_ok_and(is_shell) {
        return false;
    }
    let option = |word: &Word| {
        let word = word.constant().unwrap_or_default();
        let short = word.starts_with(b"-") && !word.starts_with(b"--");
        word.starts_with(b"-") && !(short && word.contains(&b'c'))
    };
    let all = rest.iter().take_while(|word| word.constant().is_none_or(|word| word != b"-s"));
    all.into_iter().all(option)
}

/// A word as it was read, before it is known what it is for.
struct Read<'t> {
    word: Word,
    /// Its characters, where nothing of it was quoted or expanded.
    bare: Option<&'t [u8]>,
}

impl<'t> Scanner<'t, '_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn starts(&self, with: &[u8]) -> bool {
        self.text[self.at.min(self.text.len())..].starts_with(with)
    }

    /// Passes over blanks, joined lines and comments, not over the end of a line.
    fn blanks(&mut self) {
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' | b'\r' => self.at += 1,
                b'\\' if self.starts(b"\\\n") => self.at += 2,
                b'#' => {
                    let rest = &self.text[self.at..];
                    self.at += memchr::memchr(b'\n', rest).unwrap_or(rest.len());
                }
                _ => break,
            }
        }
    }

    /// The end of a line, where the here-documents begin.
    fn line(&mut self) {
        self.at += 1;
        for document in std::mem::take(&mut self.documents) {
            let start = self.at;
            let mut stop = self.text.len();
            while self.at < self.text.len() {
                let rest = &self.text[self.at..];
                let length = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
                let mut line = &rest[..length];
                while let (true, Some(after)) = (document.tabs, line.strip_prefix(b"\t")) {
                    line = after;
                }
                let begin = self.at;
                self.at = (self.at + length + 1).min(self.text.len());
                if line == document.end {
                    stop = begin;
                    break;
                }
            }
            let body = &self.text[start..stop.max(start)];
            if document.commands {
                self.nested(body, |inner| inner.list(&[]));
            } else if document.expanded {
                self.nested(body, |inner| inner.quoted_text(None));
            }
        }
    }

    /// Scans another text, one level deeper.
    fn nested<T: Default>(
        &mut self,
        text: &[u8],
        scan: impl FnOnce(&mut Scanner<'_, '_>) -> T,
    ) -> T {
        if self.depth >= DEEPEST {
            self.script.incomplete = true;
            return T::default();
        }
        let mut inner = Scanner {
            text,
            at: 0,
            depth: self.depth + 1,
            script: self.script,
            variables: self.variables,
            documents: Vec::new(),
            given: Vec::new(),
        };
        scan(&mut inner)
    }

    /// Commands up to one of these words or bytes, which is consumed.
    fn list(&mut self, until: &[&[u8]]) {
        if self.depth >= DEEPEST {
            self.script.incomplete = true;
            self.at = self.text.len();
            return;
        }
        self.depth += 1;
        self.commands(until);
        self.depth -= 1;
    }

    fn commands(&mut self, until: &[&[u8]]) {
        loop {
            self.blanks();
            let Some(byte) = self.peek() else { return };
            if let Some(end) =
                until.iter().find(|end| !end[0].is_ascii_alphabetic() && self.starts(end))
            {
                self.at += end.len();
                return;
            }
            match byte {
                b'\n' => self.line(),
                b';' | b'&' | b'|' | b')' | b'}' => self.at += 1,
                b'(' if self.starts(b"((") => self.arithmetic(2),
                b'(' => {
                    self.at += 1;
                    self.list(&[b")"]);
                }
                _ => {
                    if self.command(until) {
                        return;
                    }
                }
            }
        }
    }

    /// One command from its first word on. Whether the word was one that ends the list.
    fn command(&mut self, until: &[&[u8]]) -> bool {
        let mut words: Vec<Word> = Vec::new();
        let before = self.documents.len();
        self.given.clear();
        loop {
            self.blanks();
            let Some(byte) = self.peek() else { break };
            match byte {
                b'\n' | b';' | b'&' | b'|' | b')' if !self.starts(b"&>") => break,
                b'(' if words.len() == 1 && self.function(&words) => return false,
                b'(' => {
                    self.at += 1;
                    self.list(&[b")"]);
                    continue;
                }
                b'<' | b'>' | b'&' => {
                    self.redirection();
                    continue;
                }
                _ => {}
            }
            let first = words.is_empty();
            if first && self.assignment() {
                continue;
            }
            let before = self.at;
            let read = self.word();
            if self.at == before {
                // Not a word at all: never stand still.
                self.at += 1;
                continue;
            }
            // A number before a redirection belongs to it.
            let number = read.bare.as_ref().is_some_and(|bare| bare.iter().all(u8::is_ascii_digit));
            if number && matches!(self.peek(), Some(b'<' | b'>')) {
                continue;
            }
            match read.bare {
                Some(bare) if first && until.contains(&bare) => return true,
                Some(bare) if first && self.keyword(bare) => return false,
                _ => words.push(read.word),
            }
        }
        let given = std::mem::take(&mut self.given);
        if reads_commands(&words) {
            self.documents.iter_mut().skip(before).for_each(|document| document.commands = true);
            // A text may give itself to be read, twice: what was found bounds how often.
            for text in given.iter().flat_map(Word::values) {
                if self.script.commands.len() < MOST_COMMANDS {
                    self.nested(text, |inner| inner.list(&[]));
                }
            }
        }
        if !words.is_empty() {
            if self.script.commands.len() < MOST_COMMANDS {
                self.script.commands.push(words);
            } else {
                self.script.incomplete = true;
            }
        }
        false
    }

    /// Reserved words; after most of them a command follows.
    fn keyword(&mut self, word: &[u8]) -> bool {
        match word {
            b"if" | b"then" | b"else" | b"elif" | b"fi" | b"do" | b"done" | b"while" | b"until"
            | b"time" | b"!" | b"{" | b"}" | b"esac" | b"coproc" => {}
            b"for" | b"select" => self.for_words(),
            b"case" => self.cases(),
            b"function" => {
                self.blanks();
                let name = self.word();
                self.script.functions.extend(name.bare.map(<[u8]>::to_vec));
                self.blanks();
                if self.starts(b"()") {
                    self.at += 2;
                }
            }
            b"[[" => self.test(),
            _ => return false,
        }
        true
    }

    /// `NAME ()`: a function's body follows.
    fn function(&mut self, words: &[Word]) -> bool {
        let rest = &self.text[self.at + 1..];
        let blank = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        if rest.get(blank) != Some(&b')') {
            return false;
        }
        self.at += blank + 2;
        self.script.functions.extend(words[0].constant());
        true
    }

    /// `for NAME in WORDS`: the name takes each constant of them.
    fn for_words(&mut self) {
        self.blanks();
        if self.starts(b"((") {
            self.arithmetic(2);
            return;
        }
        let name = self.word().bare;
        self.blanks();
        while self.peek() == Some(b'\n') {
            self.line();
            self.blanks();
        }
        if !self.starts(b"in") {
            return;
        }
        self.at += 2;
        loop {
            self.blanks();
            match self.peek() {
                None | Some(b'\n' | b';' | b'&' | b'|' | b')' | b'(' | b'<' | b'>') => return,
                Some(_) => {
                    let before = self.at;
                    let word = self.word().word;
                    if self.at == before {
                        return;
                    }
                    if let Some(name) = name {
                        self.variables.assign(name, word);
                    }
                }
            }
        }
    }

    /// `case WORD in PATTERN) LIST ;; ... esac`
    fn cases(&mut self) {
        self.blanks();
        self.word();
        self.space();
        if self.starts(b"in") {
            self.at += 2;
        }
        loop {
            self.space();
            if self.peek().is_none() {
                return;
            }
            if self.peek() == Some(b'(') {
                self.at += 1;
            }
            // Patterns, up to the parenthesis.
            let mut first = true;
            loop {
                self.blanks();
                match self.peek() {
                    None | Some(b'\n') => break,
                    Some(b')') => {
                        self.at += 1;
                        break;
                    }
                    Some(b'|' | b'(' | b';' | b'&' | b'<' | b'>') => self.at += 1,
                    Some(_) => {
                        let before = self.at;
                        let word = self.word();
                        if first && word.bare == Some(b"esac") {
                            return;
                        }
                        self.at += usize::from(self.at == before);
                    }
                }
                first = false;
            }
            let mark = self.at;
            self.list(&[b";;&", b";;", b";&", b"esac"]);
            if self.text[mark..self.at].ends_with(b"esac") {
                return;
            }
        }
    }

    /// Blanks and ends of lines.
    fn space(&mut self) {
        self.blanks();
        while self.peek() == Some(b'\n') {
            self.line();
            self.blanks();
        }
    }

    /// `[[ … ]]`: substitutions in it count.
    fn test(&mut self) {
        loop {
            self.space();
            match self.peek() {
                None | Some(b';') => return,
                Some(b'(' | b')' | b'<' | b'>' | b'&' | b'|') => self.at += 1,
                Some(_) => {
                    let before = self.at;
                    if self.word().bare == Some(b"]]") {
                        return;
                    }
                    self.at += usize::from(self.at == before);
                }
            }
        }
    }

    /// `NAME=VALUE`, `NAME+=VALUE`, `NAME=(…)` before a command.
    fn assignment(&mut self) -> bool {
        let rest = &self.text[self.at..];
        let word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let length = rest.iter().take_while(|byte| word(byte)).count();
        if length == 0 || rest[0].is_ascii_digit() {
            return false;
        }
        let (name, mut after) = (&rest[..length], length);
        let adds = rest[after..].starts_with(b"+=");
        if rest.get(after) == Some(&b'[') {
            let Some(end) = rest[after..].iter().take(256).position(|byte| *byte == b']') else {
                return false;
            };
            after += end + 1;
        }
        after += usize::from(adds);
        if rest.get(after) != Some(&b'=') {
            return false;
        }
        let name = name.to_vec();
        self.at += after + 1;
        if self.peek() == Some(b'(') {
            self.array();
            self.variables.assign(&name, Word::unknown());
            return true;
        }
        let value = match self.peek() {
            None | Some(b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b')') => Word::text(b""),
            Some(_) => self.word().word,
        };
        self.variables.assign(&name, if adds { Word::unknown() } else { value });
        true
    }

    fn array(&mut self) {
        self.at += 1;
        loop {
            self.space();
            match self.peek() {
                None => return,
                Some(b')') => {
                    self.at += 1;
                    return;
                }
                Some(_) => {
                    let before = self.at;
                    self.word();
                    self.at += usize::from(self.at == before);
                }
            }
        }
    }

    /// An operator and its target; here-documents are noted.
    fn redirection(&mut self) {
        if self.starts(b"<(") || self.starts(b">(") {
            self.at += 2;
            self.list(&[b")"]);
            return;
        }
        let document = self.starts(b"<<") && !self.starts(b"<<<");
        let string = self.starts(b"<<<");
        let tabs = self.starts(b"<<-");
        while matches!(self.peek(), Some(b'<' | b'>' | b'&' | b'|')) {
            self.at += 1;
        }
        if tabs && self.peek() == Some(b'-') {
            self.at += 1;
        }
        self.blanks();
        let start = self.at;
        let target = match self.peek() {
            None | Some(b'\n') => return,
            Some(_) => self.word(),
        };
        self.at += usize::from(self.at == start);
        if document {
            let bare = target.bare.is_some();
            let raw = &self.text[start..self.at.min(self.text.len())];
            let quote = |byte: &u8| !matches!(byte, b'"' | b'\'' | b'\\');
            let end = raw.iter().copied().filter(quote).collect();
            self.documents.push(Document { end, tabs, expanded: bare, commands: false });
        } else if string {
            self.given.push(target.word);
        }
    }
}
