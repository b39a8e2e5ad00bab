//! Requests that are longer than the protocol's reader takes. It drops them without a word, and their client would
//! wait for good: what is behind such a line is a short one in its place, which is answered.

use crate::line::Outline;
use serde_json::{Value, json};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, ReadBuf};

/// The longest line, with its end: the reader's own bound.
pub(crate) const MOST: usize = rmcp::transport::async_rw::DEFAULT_MAX_LINE_LENGTH;

/// What stands in the place of a request that was too long.
pub(crate) const METHOD: &str = "ringfence/too_long";

/// What comes from a client.
pub(crate) struct Bounded<R> {
    from: R,
    /// The longest line.
    most: usize,
    /// Of the line that comes just now.
    length: usize,
    outline: Outline,
    /// What stands in the place of one that was too long.
    instead: Vec<u8>,
    /// What came behind it, and was not looked at.
    behind: Vec<u8>,
}

impl<R> Bounded<R> {
    pub(crate) fn new(from: R) -> Bounded<R> {
        Bounded::up_to(MOST, from)
    }

    fn up_to(most: usize, from: R) -> Bounded<R> {
        let (instead, behind) = (Vec::new(), Vec::new());
        Bounded { from, most, length: 0, outline: Outline::default(), instead, behind }
    }

    /// Looks at what came. Where a line ends in it that was too long: how much of it goes first.
    fn look(&mut self, came: &[u8]) -> Option<usize> {
        for (at, &byte) in came.iter().enumerate() {
            self.length += 1;
            if byte != b'\n' {
                self.outline.byte(byte);
                continue;
            }
            let (length, outline) = (self.length, std::mem::take(&mut self.outline));
            self.length = 0;
            if length > self.most
                && let Some(instead) = instead(outline)
            {
                self.instead = instead;
                return Some(at + 1);
            }
        }
        None
    }
}

/// The request that is answered for one. A notification has no answer, and nothing waits for an answer of a client's.
fn instead(outline: Outline) -> Option<Vec<u8>> {
    let (id, method) = outline.told();
    let id = id.and_then(|id| serde_json::from_slice::<Value>(&id).ok());
    let message = match id.filter(|id| id.is_string() || id.is_i64() || id.is_u64()) {
        Some(_) if !method => return None,
        Some(id) => json!({"jsonrpc": "2.0", "id": id, "method": METHOD}),
        None if method => return None,
        // To what is no message the reader answers by itself, without an identifier.
        None => json!({"jsonrpc": "2.0"}),
    };
    Some(format!("{message}\n").into_bytes())
}

fn give(held: &mut Vec<u8>, into: &mut ReadBuf<'_>) {
    let length = held.len().min(into.remaining());
    into.put_slice(&held[..length]);
    held.drain(..length);
}

impl<R: AsyncRead + Unpin> AsyncRead for Bounded<R> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let this = self.get_mut();
        if !this.instead.is_empty() {
            give(&mut this.instead, into);
            return Poll::Ready(Ok(()));
        }
        let begins = into.filled().len();
        if this.behind.is_empty() {
            ready!(Pin::new(&mut this.from).poll_read(context, into))?;
        } else {
            give(&mut this.behind, into);
        }
        if let Some(first) = this.look(&into.filled()[begins..]) {
            let mut behind = into.filled()[begins + first..].to_vec();
            behind.append(&mut this.behind);
            this.behind = behind;
            into.set_filled(begins + first);
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    const LONGEST: usize = 20_000;

    fn through(lines: &[u8]) -> Vec<u8> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let mut got = Vec::new();
        let read = async { Bounded::up_to(LONGEST, lines).read_to_end(&mut got).await };
        runtime.block_on(read).expect("read");
        got
    }

    /// A request of so many bytes, with the end of its line.
    fn request(members: &str, length: usize) -> Vec<u8> {
        let end = format!("\"}},{members}}}\n");
        let mut line = br#"{"params":{"id":5,"text":""#.to_vec();
        line.resize(length - end.len(), b'x');
        line.extend_from_slice(end.as_bytes());
        line
    }

    #[test]
    fn what_is_too_long_has_a_short_one_behind_it() {
        let asked =
            |id: &str| format!("{{\"id\":{id},\"jsonrpc\":\"2.0\",\"method\":\"{METHOD}\"}}\n");
        let none = "{\"jsonrpc\":\"2.0\"}\n".to_owned();
        let next = "{\"id\":9,\"method\":\"ping\"}\n";
        for (members, behind) in [
            (r#""method":"tools/call","id":7"#, asked("7")),
            (r#""method":"tools/call","id": "a\"b" "#, asked(r#""a\"b""#)),
            (r#""method":"notifications/progress""#, String::new()),
            (r#""result":{},"id":7"#, String::new()),
            (r#""what":1"#, none.clone()),
            (r#""id":7.5"#, none),
        ] {
            let long = request(members, LONGEST + 1);
            let all = [&long[..], next.as_bytes(), &long, next.as_bytes()].concat();
            let wanted = [&long[..], behind.as_bytes(), next.as_bytes()].concat();
            assert!(through(&all) == [&wanted[..], &wanted].concat(), "{members}");
            // The control: one byte less is nobody's to answer but the reader's.
            let fits = [&request(members, LONGEST)[..], next.as_bytes()].concat();
            assert!(through(&fits) == fits, "{members}");
        }
        // Without its end it is no line yet.
        let open = [br#"{"id":1,"method":"x","y":""#.to_vec(), vec![b'x'; LONGEST + 9]].concat();
        assert!(through(&open) == open);
    }
}
