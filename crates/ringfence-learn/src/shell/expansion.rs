//! Words: quotes and expansions.

use super::{DEEPEST, Read, Scanner};
use crate::words::Word;

/// Where a run of bytes that stand for themselves ends: in a word, and in text with expansions.
static WORD: Stops = stops(b" \t\r\n;&|()<>'\"\\$`*?[~");
static TEXT: Stops = stops(b"\"\\$`'}");

type Stops = [bool; 256];

const fn stops(bytes: &[u8]) -> Stops {
    let mut table = [false; 256];
    let mut at = 0;
    while at < bytes.len() {
        table[bytes[at] as usize] = true;
        at += 1;
    }
    table
}

impl<'t> Scanner<'t, '_> {
    /// The bytes up to one of these; none where one is next.
    fn run(&mut self, until: &Stops) -> &'t [u8] {
        let rest = &self.text[self.at.min(self.text.len())..];
        let length = rest.iter().position(|byte| until[usize::from(*byte)]).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    /// `((…))` and `$((…))`: passed over, substitutions in it count.
    pub(super) fn arithmetic(&mut self, parentheses: usize) {
        self.at += parentheses;
        let mut open = parentheses;
        while let Some(byte) = self.peek() {
            match byte {
                b'(' => open += 1,
                b')' => {
                    open -= 1;
                    if open == 0 {
                        self.at += 1;
                        return;
                    }
                }
                b'$' | b'`' => {
                    let before = self.at;
                    self.dollar(&mut Word::default());
                    if self.at > before {
                        continue;
                    }
                }
                _ => {}
            }
            self.at += 1;
        }
    }

    /// A word, up to a blank or an operator.
    pub(super) fn word(&mut self) -> Read<'t> {
        let start = self.at;
        let mut word = Word::text(self.run(&WORD));
        let mut bare = true;
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' | b';' | b'&' | b'|' | b'(' | b')' | b'<' | b'>' => {
                    break;
                }
                b'\'' => {
                    bare = false;
                    let rest = &self.text[self.at + 1..];
                    let end = memchr::memchr(b'\'', rest).unwrap_or(rest.len());
                    word.push_bytes(&rest[..end]);
                    self.at = (self.at + end + 2).min(self.text.len());
                }
                b'"' => {
                    bare = false;
                    self.at += 1;
                    let quoted = self.quoted_text(Some(b'"'));
                    word.push(&quoted);
                }
                b'\\' => {
                    bare = false;
                    if !self.starts(b"\\\n") {
                        word.push_bytes(self.text.get(self.at + 1..self.at + 2).unwrap_or(b""));
                    }
                    self.at = (self.at + 2).min(self.text.len());
                }
                b'$' | b'`' => {
                    bare = false;
                    if self.starts(b"$'") || self.starts(b"$\"") {
                        self.at += 1;
                        continue;
                    }
                    self.dollar(&mut word);
                }
                b'*' | b'?' | b'[' | b'~' => {
                    if byte == b'~' && self.at == start {
                        word.push(&self.variables.value(b"HOME"));
                    } else if byte != b'?' {
                        // `*` stays: what is read by a pattern is looked for.
                        word.push_bytes(&[byte]);
                    } else {
                        // Patterns name files that are there or not.
                        word = Word::unknown();
                    }
                    self.at += 1;
                }
                _ => word.push_bytes(self.run(&WORD)),
            }
        }
        let text: &'t [u8] = self.text;
        Read { word, bare: bare.then(|| &text[start..self.at]) }
    }

    /// Text in which only expansions count, up to a quote or the end.
    pub(super) fn quoted_text(&mut self, end: Option<u8>) -> Word {
        let mut word = Word::text(self.run(&TEXT));
        while let Some(byte) = self.peek() {
            match byte {
                byte if Some(byte) == end => {
                    self.at += 1;
                    break;
                }
                b'\\' => {
                    word.push_bytes(self.text.get(self.at + 1..self.at + 2).unwrap_or(b""));
                    self.at = (self.at + 2).min(self.text.len());
                }
                b'$' | b'`' => self.dollar(&mut word),
                byte => {
                    word.push_bytes(&[byte]);
                    self.at += 1;
                    word.push_bytes(self.run(&TEXT));
                }
            }
        }
        word
    }

    /// An expansion, or a dollar that is none. Always goes on by a byte at least.
    pub(super) fn dollar(&mut self, word: &mut Word) {
        if self.depth >= DEEPEST {
            self.script.incomplete = true;
            self.at = self.text.len();
            return;
        }
        self.depth += 1;
        self.expansion(word);
        self.depth -= 1;
    }

    pub(super) fn expansion(&mut self, word: &mut Word) {
        if self.peek() == Some(b'`') {
            self.backquoted();
            *word = Word::unknown();
        } else if self.starts(b"$((") {
            self.at += 1;
            self.arithmetic(2);
            *word = Word::unknown();
        } else if self.starts(b"$(") {
            self.at += 2;
            self.list(&[b")"]);
            *word = Word::unknown();
        } else if self.starts(b"${") {
            self.braced(word);
        } else {
            let rest = &self.text[(self.at + 1).min(self.text.len())..];
            let name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
            let length = rest.iter().take_while(|byte| name(byte)).count();
            let special = rest.first().is_some_and(|byte| b"@*#?-$!".contains(byte));
            if length > 0 && !rest[0].is_ascii_digit() {
                word.push(&self.variables.value(&rest[..length]));
                self.at += 1 + length;
            } else if length > 0 || special {
                let zero = rest.first() == Some(&b'0');
                word.push(&if zero { self.variables.value(b"0") } else { Word::unknown() });
                self.at += 2;
            } else {
                word.push_bytes(b"$");
                self.at += 1;
            }
        }
    }

    /// `${NAME}`, `${NAME:-WORD}`, `${NAME%/*}`, `${NAME##*/}`; others are not known.
    pub(super) fn braced(&mut self, word: &mut Word) {
        self.at += 2;
        let rest = &self.text[self.at.min(self.text.len())..];
        let name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let length = rest.iter().take_while(|byte| name(byte)).count();
        let value = self.variables.value(&rest[..length]);
        self.at += length;
        let start = self.at;
        let inner = self.braced_text();
        let end = self.at.saturating_sub(1).max(start);
        let operator = &self.text[start..end];
        word.push(&match operator {
            b"" if length > 0 => value,
            b"%/*" => value
                .map(|text| memchr::memrchr(b'/', text).map_or(text, |at| &text[..at]).to_vec()),
            b"##*/" => value.map(|text| {
                memchr::memrchr(b'/', text).map_or(text, |at| &text[at + 1..]).to_vec()
            }),
            [b':', b'-' | b'=', ..] if length > 0 => value.or(&inner.without(2)),
            [b'-' | b'=', ..] if length > 0 => value.or(&inner.without(1)),
            _ => Word::unknown(),
        });
    }

    pub(super) fn braced_text(&mut self) -> Word {
        let mut word = Word::text(self.run(&TEXT));
        while let Some(byte) = self.peek() {
            match byte {
                b'}' => {
                    self.at += 1;
                    break;
                }
                b'\'' => {
                    let rest = &self.text[self.at + 1..];
                    // In double quotes it is only a quote: then there is none before the brace.
                    let brace = memchr::memchr(b'}', rest).unwrap_or(rest.len());
                    match memchr::memchr(b'\'', rest).filter(|end| *end < brace) {
                        Some(end) => {
                            word.push_bytes(&rest[..end]);
                            self.at += end + 2;
                        }
                        None => self.at += 1,
                    }
                }
                b'"' => {
                    self.at += 1;
                    let quoted = self.quoted_text(Some(b'"'));
                    word.push(&quoted);
                }
                b'\\' => {
                    word.push_bytes(self.text.get(self.at + 1..self.at + 2).unwrap_or(b""));
                    self.at = (self.at + 2).min(self.text.len());
                }
                b'$' | b'`' => self.dollar(&mut word),
                _ => word.push_bytes(self.run(&TEXT)),
            }
        }
        word
    }

    pub(super) fn backquoted(&mut self) {
        self.at += 1;
        let mut text = Vec::new();
        while let Some(byte) = self.peek() {
            self.at += 1;
            match byte {
                b'`' => break,
                b'\\' if self.peek().is_some_and(|next| b"`\\$".contains(&next)) => {
                    text.extend(self.peek());
                    self.at += 1;
                }
                byte => text.push(byte),
            }
        }
        self.nested(&text, |inner| inner.list(&[]));
    }
}
