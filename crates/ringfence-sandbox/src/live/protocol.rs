//! What `exec`'s client and the warden say to each other, one message each.
//!
//! The request comes first, with descriptors: the standard streams, but for those that are to be a
//! terminal inside. One that is too long for a message comes as a file in memory, the last descriptor. Everything after it is a
//! letter and at most one byte.

use ringfence_start::ask::{self, TAG};
use ringfence_start::bytes::Text;
use std::ffi::CString;

pub use ask::INLINE;

/// The longest request.
pub const MOST: usize = 4 * 1024 * 1024;

/// A terminal of the command's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terminal {
    /// Which of the standard streams it is: input, output, error.
    pub streams: [bool; 3],
    /// Rows, columns, pixels across and down.
    pub size: [u16; 4],
}

/// What is to be executed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Standard streams that are not lent, but are to be a terminal inside.
    pub terminal: Option<Terminal>,
    /// Where; empty is where the session's command started.
    pub workdir: CString,
    /// The command.
    pub argv: Vec<CString>,
    /// `NAME=value` strings, added to the session's environment.
    pub environment: Vec<CString>,
}

impl Request {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let Terminal { streams, size } = self.terminal.unwrap_or_default();
        let streams = streams.into_iter().rev().fold(0, |bits, one| bits << 1 | u8::from(one));
        let mut head = [0; ask::HEAD];
        ask::write_head(&mut Text::new(&mut head), streams, size, self.argv.len() as u32);
        let mut bytes = head.to_vec();
        let all = [&self.workdir].into_iter().chain(&self.argv).chain(&self.environment);
        for text in all {
            bytes.extend_from_slice(text.as_bytes_with_nul());
        }
        bytes
    }

    /// From bytes; `None` when they are no request.
    pub fn decode(bytes: &[u8]) -> Option<Request> {
        let bytes = bytes.strip_prefix(TAG)?;
        let (&streams, bytes) = bytes.split_first()?;
        let (size, bytes) = bytes.split_first_chunk::<8>()?;
        let number = |at: usize| u16::from_ne_bytes([size[2 * at], size[2 * at + 1]]);
        let size = [number(0), number(1), number(2), number(3)];
        let (count, bytes) = bytes.split_first_chunk::<4>()?;
        let count = u32::from_ne_bytes(*count) as usize;
        // All strings end with their NUL, the last one too.
        let mut texts = bytes.split_inclusive(|&byte| byte == 0);
        let mut next = || texts.next().map(|text| CString::from_vec_with_nul(text.to_vec()).ok());
        let workdir = next()??;
        let mut argv = Vec::new();
        for _ in 0..count {
            argv.push(next()??);
        }
        let mut environment = Vec::new();
        while let Some(text) = next() {
            environment.push(text?);
        }
        let valid = streams <= 0b111 && !argv.is_empty();
        let terminal = Terminal { streams: [1, 2, 4].map(|bit| streams & bit != 0), size };
        let terminal = (streams != 0).then_some(terminal);
        valid.then_some(Request { terminal, workdir, argv, environment })
    }
}

/// From the warden.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The command executes, on the terminal that comes along. Without one nothing is said: who
    /// waits for the end is not woken for the start.
    Started,
    /// It ended with this exit code.
    Exited(u8),
    /// It ended by this signal.
    Killed(u8),
    /// It stopped by this signal.
    Stopped(u8),
    /// It goes on.
    Continued,
    /// It could not be started: the exit code that stands for it, and a sentence.
    Failed(u8, String),
}

impl Reply {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Reply::Started => b"P".to_vec(),
            Reply::Exited(code) => vec![ask::EXITED, *code],
            Reply::Killed(signal) => vec![b'k', *signal],
            Reply::Stopped(signal) => vec![b's', *signal],
            Reply::Continued => b"c".to_vec(),
            Reply::Failed(code, text) => [&[b'F', *code], text.as_bytes()].concat(),
        }
    }

    /// From bytes.
    pub fn decode(bytes: &[u8]) -> Option<Reply> {
        Some(match bytes {
            b"P" => Reply::Started,
            [ask::EXITED, code] => Reply::Exited(*code),
            [b'k', signal] => Reply::Killed(*signal),
            [b's', signal] => Reply::Stopped(*signal),
            b"c" => Reply::Continued,
            [b'F', code, text @ ..] => {
                Reply::Failed(*code, String::from_utf8_lossy(text).into_owned())
            }
            _ => return None,
        })
    }
}

/// From the client, about its command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Send the command this signal.
    Signal(u8),
    /// Send its process group this signal, as a terminal does.
    Group(u8),
    /// End it and all that descends from it.
    Kill,
}

impl Wish {
    /// As bytes.
    pub fn encode(self) -> [u8; 2] {
        match self {
            Wish::Signal(signal) => [b'g', signal],
            Wish::Group(signal) => [b'G', signal],
            Wish::Kill => [b'K', 0],
        }
    }

    /// From bytes; signals only that exist.
    pub fn decode(bytes: &[u8]) -> Option<Wish> {
        match bytes {
            [b'g', signal @ 1..=64] => Some(Wish::Signal(*signal)),
            [b'G', signal @ 1..=64] => Some(Wish::Group(*signal)),
            [b'K', 0] => Some(Wish::Kill),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> CString {
        CString::new(text).expect("no NUL")
    }

    #[test]
    fn a_request_comes_back_as_it_was() {
        let full = Request {
            terminal: Some(Terminal { streams: [false, true, true], size: [24, 80, 0, 7] }),
            workdir: text("/a b"),
            argv: vec![text("sh"), text(""), text("ä\n")],
            environment: vec![text("A="), text("B=c")],
        };
        assert_eq!(Request::decode(&full.encode()), Some(full.clone()));
        let least = Request { argv: vec![text("true")], ..Request::default() };
        assert_eq!(Request::decode(&least.encode()), Some(least));
    }

    #[test]
    fn what_is_no_request_is_refused_at_any_length() {
        let argv = vec![text("a"), text("b")];
        let whole = Request { argv, ..Request::default() }.encode();
        for length in 0..whole.len() {
            assert_eq!(Request::decode(&whole[..length]), None, "{length}");
        }
        let none = Request::default().encode();
        assert_eq!(Request::decode(&none), None);
        // More arguments promised than there are: nothing is reserved for them.
        let mut many = whole.clone();
        many[13..17].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(Request::decode(&many), None);
        let mut odd = whole;
        odd[4] = 8;
        assert_eq!(Request::decode(&odd), None);
    }

    #[test]
    fn replies_and_wishes_come_back_as_they_were() {
        let replies = [
            Reply::Started,
            Reply::Exited(3),
            Reply::Killed(9),
            Reply::Stopped(19),
            Reply::Continued,
            Reply::Failed(127, "not found".into()),
        ];
        for reply in replies {
            assert_eq!(Reply::decode(&reply.encode()), Some(reply));
        }
        for wish in [Wish::Signal(15), Wish::Group(64), Wish::Kill] {
            assert_eq!(Wish::decode(&wish.encode()), Some(wish));
        }
        for odd in [&b""[..], b"g", b"g\0", b"gA", b"Kx", b"z1", b"ggg"] {
            assert_eq!(Wish::decode(odd), None, "{odd:?}");
        }
    }
}
