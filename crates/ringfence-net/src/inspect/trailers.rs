//! How much the trailers of an HTTP/2 stream may take. They stand under no window, and the engine holds them until all that
//! came before them was taken, which the other side may put off for ever: so they are measured on their way to it, field by
//! field. Compressed, one is a single byte (RFC 7541 §6.1).

use super::heads::FIELD;
use std::collections::BTreeSet;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes with which a program begins (RFC 9113 §3.4), and of a frame's header.
pub(super) const PREFACE: usize = 24;
const HEADER: usize = 9;
/// Frames that hold fields, and what their flags say (RFC 9113 §6.2, §6.10).
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const PADDED: u8 = 8;
const PRIORITY: u8 = 32;
/// How many streams are known to have begun; of those before them it is taken that they have.
const KNOWN: usize = 1024;

/// The fields of one block, as far as they were seen: how many, and what they hold themselves. What they name of the table
/// is the table's.
#[derive(Debug, Default)]
struct Fields {
    count: usize,
    bytes: usize,
    /// Texts of the field under way that are still to come, and what of one.
    texts: u8,
    text: usize,
    number: Option<Number>,
}

/// A number of which there is more to come (RFC 7541 §5.1).
#[derive(Debug)]
struct Number {
    means: Means,
    value: usize,
    shift: u32,
}

#[derive(Clone, Copy, Debug)]
enum Means {
    /// A place in the table, or its size.
    Nothing,
    /// The place of a name, which comes as a text where that is 0.
    Name,
    /// A text's length; it may be written by Huffman's code, in which the shortest letter has five bits.
    Length { coded: bool },
}

impl Fields {
    fn feed(&mut self, mut bytes: &[u8]) {
        loop {
            let skipped = self.text.min(bytes.len());
            self.text -= skipped;
            let Some((&byte, rest)) = bytes[skipped..].split_first() else { return };
            bytes = rest;
            self.next(byte);
        }
    }

    fn next(&mut self, byte: u8) {
        if let Some(Number { means, value, shift }) = self.number.take() {
            let more = usize::from(byte & 0x7f) << shift;
            let value = value.saturating_add(more);
            // None is so long; the engine takes it for an error as well.
            return match byte & 0x80 == 0 || shift > 21 {
                true => self.is(means, value),
                false => self.number = Some(Number { means, value, shift: shift + 7 }),
            };
        }
        let (means, bits) = match byte {
            _ if self.texts > 0 => (Means::Length { coded: byte & 0x80 != 0 }, 7),
            0x80.. => (Means::Nothing, 7),
            0x40.. => (Means::Name, 6),
            0x20.. => (Means::Nothing, 5),
            _ => (Means::Name, 4),
        };
        self.count += usize::from(self.texts == 0 && !matches!(byte, 0x20..0x40));
        let most = (1 << bits) - 1;
        let value = usize::from(byte) & most;
        match value == most {
            true => self.number = Some(Number { means, value, shift: 0 }),
            false => self.is(means, value),
        }
    }

    fn is(&mut self, means: Means, value: usize) {
        match means {
            Means::Nothing => {}
            Means::Name => self.texts = if value == 0 { 2 } else { 1 },
            Means::Length { coded } => {
                self.texts -= 1;
                self.text = value;
                self.bytes += if coded { value * 8 / 5 } else { value };
            }
        }
    }

    const fn size(&self) -> usize {
        self.count * FIELD + self.bytes
    }
}

/// The frames that are read, as far as they were seen.
#[derive(Debug)]
struct Frames {
    /// What a stream's trailers may take at most.
    most: usize,
    /// Bytes of the preface that are still to come.
    preface: usize,
    header: [u8; HEADER],
    count: usize,
    /// Bytes of the frame that are still to come: before its fields, of fields, and behind them.
    before: usize,
    fields: usize,
    behind: usize,
    /// The first byte says how many of its bytes are padding.
    padded: bool,
    /// Trailers that have begun and not ended.
    trailers: Option<Fields>,
    /// Streams whose head has come, and the last one of which that is not known any more.
    begun: BTreeSet<u32>,
    forgotten: u32,
}

impl Frames {
    fn new(most: usize, preface: usize) -> Frames {
        Frames {
            most,
            preface,
            header: [0; HEADER],
            count: 0,
            before: 0,
            fields: 0,
            behind: 0,
            padded: false,
            trailers: None,
            begun: BTreeSet::new(),
            forgotten: 0,
        }
    }

    /// Takes what was read; whether that is within the measure.
    fn feed(&mut self, mut bytes: &[u8]) -> bool {
        let part = |left: &mut usize, bytes: &mut &[u8]| {
            let (taken, rest) = bytes.split_at((*left).min(bytes.len()));
            *left -= taken.len();
            *bytes = rest;
            taken.len()
        };
        part(&mut self.preface, &mut bytes);
        while !bytes.is_empty() {
            if self.padded {
                self.padded = false;
                // More than there is: the engine ends the connection.
                self.behind = usize::from(bytes[0]).min(self.fields);
                self.fields -= self.behind;
                bytes = &bytes[1..];
            }
            part(&mut self.before, &mut bytes);
            let all = bytes;
            let taken = part(&mut self.fields, &mut bytes);
            if let Some(fields) = &mut self.trailers {
                fields.feed(&all[..taken]);
                if fields.size() > self.most {
                    return false;
                }
            }
            part(&mut self.behind, &mut bytes);
            let taken = bytes.len().min(HEADER - self.count);
            self.header[self.count..self.count + taken].copy_from_slice(&bytes[..taken]);
            self.count += taken;
            bytes = &bytes[taken..];
            if self.count == HEADER {
                self.count = 0;
                self.begin();
            }
        }
        true
    }

    /// A frame begins.
    fn begin(&mut self) {
        let [high, middle, low, kind, flags, stream @ ..] = self.header;
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        let is = |flag: u8| flags & flag != 0;
        match kind {
            HEADERS => {
                let stream = u32::from_be_bytes(stream) & (u32::MAX >> 1);
                // Others than these end no stream: a head, or one of several.
                let trailers = self.has_begun(stream) && is(END_STREAM);
                self.trailers = trailers.then(Fields::default);
                self.padded = is(PADDED) && length > 0;
                let length = length - usize::from(self.padded);
                self.before = if is(PRIORITY) { length.min(5) } else { 0 };
                self.fields = length - self.before;
                if !is(END_STREAM) && !self.has_begun(stream) {
                    self.begun.insert(stream);
                }
                if self.begun.len() > KNOWN {
                    self.forgotten = self.begun.pop_first().unwrap_or_default();
                }
            }
            CONTINUATION if self.trailers.is_some() => self.fields = length,
            _ => {
                self.trailers = None;
                self.behind = length;
            }
        }
    }

    fn has_begun(&self, stream: u32) -> bool {
        stream <= self.forgotten || self.begun.contains(&stream)
    }
}

/// A connection whose other side speaks HTTP/2. It ends where that side's trailers take too much, and says so once.
pub(super) struct Trailers<S, F> {
    stream: S,
    frames: Frames,
    tell: Option<F>,
}

impl<S, F: FnOnce(&str)> Trailers<S, F> {
    /// A stream's take so much at most; what comes begins with so many bytes that are no frame.
    pub fn new(stream: S, most: usize, preface: usize, tell: F) -> Trailers<S, F> {
        Trailers { stream, frames: Frames::new(most, preface), tell: Some(tell) }
    }
}

impl<S: AsyncRead + Unpin, F: FnOnce(&str) + Unpin> AsyncRead for Trailers<S, F> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        if self.tell.is_some() {
            ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
            if self.frames.feed(&buffer.filled()[before..]) {
                return Poll::Ready(Ok(()));
            }
            buffer.set_filled(before);
        }
        let why = format!("trailers that take more than {} KiB", self.frames.most >> 10);
        if let Some(tell) = self.tell.take() {
            tell(&why);
        }
        Poll::Ready(Err(io::Error::other(why)))
    }
}

super::wire::writes!(Trailers, F);

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: usize = 8 << 10;

    fn frame(kind: u8, flags: u8, stream: u8, held: &[u8]) -> Vec<u8> {
        let length = u32::try_from(held.len()).expect("short").to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, stream], held].concat()
    }

    /// Whether what is read stays within the measure, in whatever pieces it comes.
    fn fits(read: &[u8]) -> bool {
        let seen = |size: usize| {
            let mut frames = Frames::new(MOST, PREFACE);
            [&[b'P'; PREFACE], read].concat().chunks(size).all(|piece| frames.feed(piece))
        };
        let fits = seen(usize::MAX);
        for size in [1, 2, 3, 7, 10, 64] {
            assert_eq!(seen(size), fits, "{size}");
        }
        fits
    }

    /// A head, a piece of a body, and a block that ends the stream.
    fn with(trailers: &[u8]) -> Vec<u8> {
        [frame(HEADERS, 4, 1, &[0x88]), frame(0, 0, 1, b"body"), trailers.to_vec()].concat()
    }

    #[test]
    fn trailers_are_measured_by_their_fields_however_short_they_are() {
        let ends = END_STREAM | 4;
        let plain = |count: usize| with(&frame(HEADERS, ends, 1, &vec![0xbe; count]));
        assert!(fits(&plain(MOST / FIELD)));
        assert!(!fits(&plain(MOST / FIELD + 1)));
        // A place in the table that takes several bytes is one field, and one of a size none.
        assert!(fits(&with(&frame(HEADERS, ends, 1, &[0xff, 0x80, 0x01].repeat(MOST / FIELD)))));
        assert!(fits(&with(&frame(HEADERS, ends, 1, &[0x3f, 0xe1, 0x1f].repeat(99)))));
        // What they hold counts too, as it is and as it is written.
        let text = |kind: u8, flag: u8, length: usize| {
            let more = length - 127;
            let length = [flag | 0x7f, (more & 0x7f) as u8 | 0x80, (more >> 7) as u8];
            let held = vec![b'x'; more + 127];
            with(&frame(HEADERS, ends, 1, &[&[kind, 1, b'n'], &length[..], &held].concat()))
        };
        for kind in [0x40, 0, 0x10] {
            assert!(fits(&text(kind, 0, MOST - FIELD - 1)));
            assert!(!fits(&text(kind, 0, MOST - FIELD)));
            assert!(fits(&text(kind, 0x80, 4999)));
            assert!(!fits(&text(kind, 0x80, 5000)));
        }
        // And bytes of a text are no fields: these would be 1,000.
        let held = [&[0x0f, 0x2f, 0x7f, 0xe9, 0x06], &[0xbe; 1000][..], &[0xbe]].concat();
        assert!(fits(&with(&frame(HEADERS, ends, 1, &held))));
    }

    #[test]
    fn trailers_are_found_in_whatever_frames_they_come() {
        let (half, much) = ([0xbe; 30], [0xbe; 60]);
        let both = [frame(HEADERS, END_STREAM, 1, &half), frame(CONTINUATION, 4, 1, &half)];
        assert!(!fits(&with(&both.concat())));
        assert!(fits(&with(&both[0])));
        let padded = |count: u8, fields: &[u8]| {
            let held = [&[count, 0, 0, 0, 0, 0][..], fields, &vec![0xbe; count.into()]].concat();
            with(&frame(HEADERS, END_STREAM | 4 | PADDED | PRIORITY, 1, &held))
        };
        assert!(fits(&padded(200, &half)));
        assert!(!fits(&padded(200, &much)));
        // Of a stream after others, which have ended or are not there.
        let others = (3..99).map(|id| frame(HEADERS, 4 | (id & END_STREAM), id & !1 | 1, &[0x88]));
        let others: Vec<u8> = others.flatten().collect();
        assert!(!fits(&[with(&others), frame(HEADERS, 5, 1, &much)].concat()));
    }

    #[test]
    fn what_is_no_trailers_is_not_measured() {
        let much = [0xbe; 60];
        // A head, with a body or without; and one after interim answers.
        assert!(fits(&frame(HEADERS, 4, 1, &much)));
        assert!(fits(&frame(HEADERS, END_STREAM | 4, 1, &much)));
        assert!(fits(&with(&frame(HEADERS, 4, 1, &much))));
        // Nor is a body that looks like them.
        assert!(fits(&with(&frame(0, END_STREAM, 1, &frame(HEADERS, 5, 1, &much)))));
    }

    #[test]
    fn streams_that_are_not_known_any_more_have_begun() {
        let mut frames = Frames::new(MOST, 0);
        let head = |stream: u32, flags: u8| {
            let mut head = frame(HEADERS, flags, 0, &[0xbe; 60]);
            head[5..9].copy_from_slice(&stream.to_be_bytes());
            head
        };
        for stream in 0..4 * KNOWN as u32 {
            assert!(frames.feed(&head(2 * stream + 1, 4)));
        }
        assert!(frames.begun.len() <= KNOWN);
        assert!(frames.feed(&head(1, 4)), "it ends nothing");
        assert!(frames.feed(&head(8 * KNOWN as u32 + 1, 5)), "it is a new one");
        assert!(!frames.feed(&head(1, 5)));
    }
}
