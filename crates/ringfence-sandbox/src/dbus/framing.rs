//! Where a message of D-Bus ends and the next one begins (the D-Bus specification, "Message Protocol"
//! and "Authentication Protocol"): no more is understood of what is passed on.
//!
//! Descriptors belong to messages. Who reads message by message (sd-bus) takes one for broken when the
//! next one's descriptors come with it, so that they must not be passed on with bytes of another.

/// Bytes of a message's fixed beginning.
const HEAD: usize = 16;
/// The greatest type of a message; lines of the beginning have a letter there.
const LAST_TYPE: u8 = 4;

/// One way of a connection, followed as it passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Framing(At);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    /// Between lines or messages.
    #[default]
    Start,
    /// In a line of the authentication that comes before all messages.
    Line,
    /// In the fixed beginning of a message, of which so much has passed.
    Head([u8; HEAD], usize),
    /// So much of a message is still to come.
    Rest(u64),
}

impl Framing {
    /// The most bytes that may be received at once. (Lines have no length that is known: the first
    /// message, which carries no descriptors, may begin among the bytes.)
    pub fn most(self) -> usize {
        match self.0 {
            At::Start | At::Line => HEAD,
            At::Head(_, passed) => HEAD - passed,
            At::Rest(left) => usize::try_from(left).unwrap_or(usize::MAX),
        }
    }

    /// Whether nothing is begun.
    pub fn between(self) -> bool {
        self.0 == At::Start
    }

    /// Follows what has been received.
    pub fn follow(&mut self, mut bytes: &[u8]) {
        while let Some((&byte, after)) = bytes.split_first() {
            bytes = after;
            self.0 = match self.0 {
                At::Start if matches!(byte, b'l' | b'B') => {
                    let mut head = [0; HEAD];
                    head[0] = byte;
                    At::Head(head, 1)
                }
                // `BEGIN`, which is no message of the other byte order.
                At::Head([b'B', ..], 1) if byte > LAST_TYPE => At::Line,
                At::Head(mut head, passed) => {
                    head[passed] = byte;
                    if passed + 1 < HEAD { At::Head(head, passed + 1) } else { rest(&head) }
                }
                At::Rest(left) => {
                    let passed = left.min(1 + after.len() as u64);
                    bytes = &after[(passed - 1) as usize..];
                    if left > passed { At::Rest(left - passed) } else { At::Start }
                }
                At::Start | At::Line if byte == b'\n' => At::Start,
                At::Start | At::Line => At::Line,
            };
        }
    }
}

/// What comes after a message's fixed beginning: the rest of its header, filled up to eight, and its
/// body.
fn rest(head: &[u8; HEAD]) -> At {
    let word = |at: usize| {
        let bytes = [head[at], head[at + 1], head[at + 2], head[at + 3]];
        let little = head[0] == b'l';
        u64::from(if little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) })
    };
    match word(4) + word(12).next_multiple_of(8) {
        0 => At::Start,
        left => At::Rest(left),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(order: u8, fields: u32, body: u32) -> Vec<u8> {
        let number = |n: u32| if order == b'l' { n.to_le_bytes() } else { n.to_be_bytes() };
        let mut bytes = vec![order, 1, 0, 1];
        bytes.extend([number(body), number(7), number(fields)].concat());
        bytes.resize(16 + fields.next_multiple_of(8) as usize + body as usize, b'\n');
        bytes
    }

    /// Receives as a relay does, and says where messages ended.
    fn ends(stream: &[u8]) -> Vec<usize> {
        let (mut framing, mut at, mut ends) = (Framing::default(), 0, Vec::new());
        while at < stream.len() {
            let most = framing.most().min(stream.len() - at);
            framing.follow(&stream[at..at + most]);
            at += most;
            if framing.between() {
                ends.push(at);
            }
        }
        ends
    }

    #[test]
    fn messages_end_where_they_say() {
        let sizes = [(0, 0), (1, 0), (8, 3), (109, 4), (0, 70_000)];
        for order in [b'l', b'B'] {
            let (mut stream, mut wanted) = (Vec::new(), Vec::new());
            for (fields, body) in sizes {
                stream.extend(message(order, fields, body));
                wanted.push(stream.len());
            }
            assert_eq!(ends(&stream), wanted);
        }
    }

    #[test]
    fn messages_come_after_lines() {
        let lines: [&[u8]; 3] = [
            b"\0AUTH EXTERNAL 30\r\nNEGOTIATE_UNIX_FD\r\nBEGIN\r\n",
            b"OK 0123456789abcdef0123456789abcdef\r\nAGREE_UNIX_FD\r\n",
            b"\0AUTH\r\nBEGIN\n",
        ];
        for lines in lines {
            let mut stream = lines.to_vec();
            let first = stream.len() + message(b'l', 100, 8).len();
            stream.extend(message(b'l', 100, 8));
            stream.extend(message(b'B', 24, 0));
            let found = ends(&stream);
            let after: Vec<usize> = found.into_iter().filter(|end| *end > lines.len()).collect();
            assert_eq!(after, [first, stream.len()]);
        }
    }

    #[test]
    fn no_length_is_too_much() {
        let mut framing = Framing::default();
        framing.follow(b"l\x01\0\x01\xff\xff\xff\xff\0\0\0\0\xff\xff\xff\xff");
        assert_eq!(framing.0, At::Rest(0xffff_ffff + 0x1_0000_0000));
        assert!(framing.most() > 16);
        framing.follow(&[0; 70_000]);
        assert!(!framing.between());
    }
}
