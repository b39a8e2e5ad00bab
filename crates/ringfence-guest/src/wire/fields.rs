//! The parts of a payload: written in order, and taken apart in the same.

use super::{MOST_WORDS, Output, PIECE, Start};

/// Builds a payload.
#[derive(Default)]
pub struct Writer(pub Vec<u8>);

impl Writer {
    /// Adds a byte.
    pub fn byte(mut self, value: u8) -> Writer {
        self.0.push(value);
        self
    }
    /// Adds 16 bits.
    pub fn short(mut self, value: u16) -> Writer {
        self.0.extend(value.to_le_bytes());
        self
    }
    /// Adds 32 bits.
    pub fn word(mut self, value: u32) -> Writer {
        self.0.extend(value.to_le_bytes());
        self
    }
    /// Adds 64 bits.
    pub fn long(mut self, value: u64) -> Writer {
        self.0.extend(value.to_le_bytes());
        self
    }
    /// Adds a string with its length.
    pub fn text(self, text: &[u8]) -> Writer {
        let mut writer = self.word(text.len() as u32);
        writer.0.extend(text);
        writer
    }
    /// Adds strings with their number.
    pub fn texts(self, texts: &[Vec<u8>]) -> Writer {
        texts.iter().fold(self.word(texts.len() as u32), |writer, text| writer.text(text))
    }
    /// Adds a number that may be missing.
    pub fn maybe(self, value: Option<u64>) -> Writer {
        self.byte(u8::from(value.is_some())).long(value.unwrap_or_default())
    }
    /// Adds what a guest that begins is told.
    pub fn start(self, start: &Start) -> Writer {
        let w = self.long(start.clock).text(&start.entropy);
        let w = w.text(&start.name).byte(u8::from(start.network));
        let w = w.maybe(start.processes).maybe(start.disk);
        let ports = &start.loopback;
        let w = w.word(ports.len() as u32);
        ports.iter().fold(w, |w, ports| w.short(ports.0).short(ports.1))
    }
}

/// Takes a payload apart; `None` as soon as something is missing.
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// The next bytes.
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }
    /// The next byte.
    pub fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }
    /// The next byte, 0 or 1.
    pub fn flag(&mut self) -> Option<bool> {
        self.byte().filter(|&byte| byte <= 1).map(|byte| byte == 1)
    }
    /// The next 16 bits.
    pub fn short(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }
    /// The next 32 bits.
    pub fn word(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }
    /// The next 64 bits.
    pub fn long(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
    /// The next string.
    pub fn text(&mut self) -> Option<Vec<u8>> {
        let length = self.word()? as usize;
        let (head, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(head.to_vec())
    }
    /// As many things as are promised, while they come.
    pub fn list<T>(&mut self, one: impl Fn(&mut Reader<'a>) -> Option<T>) -> Option<Vec<T>> {
        let count = self.word()? as usize;
        if count > MOST_WORDS {
            return None;
        }
        (0..count).map(|_| one(self)).collect()
    }
    /// Strings with their number before them.
    pub fn texts(&mut self) -> Option<Vec<Vec<u8>>> {
        self.list(Reader::text)
    }
    /// A number that may be missing.
    pub fn maybe(&mut self) -> Option<Option<u64>> {
        let there = self.flag()?;
        let value = self.long()?;
        Some(there.then_some(value))
    }
    /// What a guest that begins is told.
    pub fn start(&mut self) -> Option<Start> {
        let (clock, entropy) = (self.long()?, self.text()?);
        let name = self.text()?;
        let (network, processes, disk) = (self.flag()?, self.maybe()?, self.maybe()?);
        let loopback = self.list(|r| Some((r.short()?, r.short()?)))?;
        Some(Start { clock, entropy, name, network, loopback, processes, disk })
    }
    /// All that is left.
    pub fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0).to_vec()
    }
    /// At most a piece of a stream, and not nothing.
    pub fn piece(&mut self) -> Option<Vec<u8>> {
        (1..=PIECE).contains(&self.0.len()).then(|| self.rest())
    }
    /// A signal's number.
    pub fn signal(&mut self) -> Option<u8> {
        self.byte().filter(|signal| (1..=64).contains(signal))
    }
    /// All that is left, as a sentence for people.
    pub fn sentence(&mut self) -> String {
        String::from_utf8_lossy(&self.rest()).chars().take(1000).collect()
    }
    /// Which output.
    pub fn output(&mut self) -> Option<Output> {
        Some(if self.flag()? { Output::Error } else { Output::Out })
    }
}
