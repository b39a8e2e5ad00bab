//! Requests one after another on a plain HTTP/1 connection (RFC 9112 §6): each has its head looked
//! at, since each can name another host. Bodies pass as they are.
//!
//! Where a body ends must be beyond doubt: a server that finds its end elsewhere would take a part of it
//! for a request that nobody looked at. And a connection is another protocol's only once the server has said so:
//! one that does not know WebSockets answers, and takes what follows for requests.

mod framing;
mod lines;

use crate::first::{First, first};
use framing::{encoded_target, end_of_head, framing};

/// The most bytes of one head, of one line between chunks, and of what comes before a server has said
/// whether it changes the protocol.
const HEAD: usize = 32 * 1024;
const LINE: usize = 4 * 1024;
const HELD: usize = 32 * 1024;
const LONG: &str = "a request whose head has more than 32 KiB";

/// A client's stream of requests, as far as it was seen.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    state: State,
    /// Heads that have passed.
    heads: u64,
    /// The first one is of another protocol, that is like HTTP.
    like: bool,
    /// The most fields of a head, where there is a measure: an engine reads them then, to which targets are spelled
    /// as URLs have it.
    fields: Option<usize>,
}

/// Where in it the client is.
#[derive(Debug)]
enum State {
    /// In a head; what there is of it.
    Head(Vec<u8>),
    /// In a body, with so many bytes to come.
    Body(u64),
    /// In the line that gives a chunk's size.
    Size(Vec<u8>),
    /// In a chunk, with so many bytes to come.
    Chunk(u64),
    /// In the end of its line, of which so much is there.
    ChunkEnd(usize),
    /// In the lines after the last chunk.
    Trailer(Vec<u8>),
    /// After a request to change the protocol, or one of another; what came since.
    Asked(Vec<u8>),
    /// Another protocol by now (WebSocket, RTSP).
    Free,
}

impl Default for State {
    fn default() -> State {
        State::Head(Vec::new())
    }
}

/// What looks at each head.
type Judge<'a> = dyn Fn(&First) -> Result<(), String> + 'a;

impl Requests {
    /// Requests for an engine, whose heads have no more than so many fields.
    pub fn of(fields: usize) -> Requests {
        Requests { fields: Some(fields), ..Requests::default() }
    }

    /// Takes bytes of the client's, and adds those that may pass to `out`. `judge` looks at each
    /// head.
    ///
    /// # Errors
    /// A sentence: a head does not fit, or what follows cannot be told for sure.
    pub fn feed(
        &mut self,
        mut bytes: &[u8],
        judge: &Judge<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        while !bytes.is_empty() {
            if self.like && self.between() {
                self.state = State::Asked(Vec::new());
            }
            match &mut self.state {
                State::Free => {
                    out.extend_from_slice(bytes);
                    return Ok(());
                }
                State::Asked(held) => {
                    held.extend_from_slice(bytes);
                    if held.len() > HELD {
                        return Err("much before the server has changed the protocol".to_owned());
                    }
                    return Ok(());
                }
                State::Body(left) | State::Chunk(left) => {
                    let count = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                    out.extend_from_slice(&bytes[..count]);
                    bytes = &bytes[count..];
                    *left -= count as u64;
                    if *left == 0 {
                        self.state = match self.state {
                            State::Chunk(_) => State::ChunkEnd(0),
                            _ => State::default(),
                        };
                    }
                }
                State::ChunkEnd(seen) => {
                    if bytes[0] != b"\r\n"[*seen] {
                        return Err("a chunk that is not as long as it says".to_owned());
                    }
                    out.push(bytes[0]);
                    bytes = &bytes[1..];
                    *seen += 1;
                    if *seen == 2 {
                        self.state = State::Size(Vec::new());
                    }
                }
                State::Size(line) | State::Trailer(line) => {
                    let end = bytes.iter().position(|&byte| byte == b'\n').map(|end| end + 1);
                    line.extend_from_slice(&bytes[..end.unwrap_or(bytes.len())]);
                    bytes = &bytes[end.unwrap_or(bytes.len())..];
                    if line.len() > LINE {
                        return Err("a chunk's line has no end".to_owned());
                    }
                    if end.is_some() {
                        let passed = std::mem::take(line);
                        self.state = self.state.after_line(&passed)?;
                        out.extend_from_slice(&passed);
                    }
                }
                State::Head(head) => {
                    let skip = if head.is_empty() {
                        bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count()
                    } else {
                        0
                    };
                    bytes = &bytes[skip..];
                    // The end may straddle what came before.
                    let from = head.len().saturating_sub(3);
                    head.extend_from_slice(bytes);
                    let Some(end) = end_of_head(&head[from..]).map(|end| from + end) else {
                        return if head.len() > HEAD { Err(LONG.to_owned()) } else { Ok(()) };
                    };
                    bytes = &bytes[bytes.len() - (head.len() - end)..];
                    if end > HEAD {
                        return Err(LONG.to_owned());
                    }
                    head.truncate(end);
                    let lines = head.iter().filter(|&&byte| byte == b'\n').count();
                    if let Some(most) = self.fields.filter(|most| lines > most + 2) {
                        return Err(format!("a request with more than {most} header fields"));
                    }
                    let seen = first(head);
                    judge(&seen)?;
                    let like = matches!(seen, First::Like { .. });
                    if !(matches!(seen, First::Http { .. }) || like && self.heads == 0) {
                        return Err("something else than a request after a request".to_owned());
                    }
                    let (next, plain) = framing(head, like)?;
                    let plain = plain.as_deref().unwrap_or(head);
                    match self.fields.and_then(|_| encoded_target(plain)) {
                        Some(longer) if longer.len() > HEAD => return Err(LONG.to_owned()),
                        Some(longer) => out.extend_from_slice(&longer),
                        None => out.extend_from_slice(plain),
                    }
                    self.state = next;
                    self.heads += 1;
                    self.like = like;
                }
            }
        }
        Ok(())
    }

    /// How many bytes of the client's are held.
    pub fn held(&self) -> usize {
        match &self.state {
            State::Head(held) | State::Size(held) | State::Trailer(held) | State::Asked(held) => {
                held.len()
            }
            State::Body(_) | State::Chunk(_) | State::ChunkEnd(_) | State::Free => 0,
        }
    }

    /// Whether the client is in a head, or before one.
    pub fn between(&self) -> bool {
        matches!(self.state, State::Head(_))
    }

    /// Whether it was another protocol from the beginning, if the server speaks that.
    pub const fn like(&self) -> bool {
        self.like
    }

    /// How many heads have passed when the last one asked to change the protocol, and whether the server
    /// does is not known yet.
    pub fn asked(&self) -> Option<u64> {
        (matches!(self.state, State::Asked(_)) || self.like && self.between()).then_some(self.heads)
    }

    /// Whether all that comes may pass.
    pub fn free(&self) -> bool {
        matches!(self.state, State::Free)
    }

    /// The server has said whether it changes the protocol, for which it was asked, or speaks the client's: what
    /// came since may pass, or is requests as before.
    ///
    /// # Errors
    /// As [`Requests::feed`].
    pub fn answered(
        &mut self,
        changed: bool,
        judge: &Judge<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        if self.like && !changed {
            return Err(
                "a request of another protocol to a server that does not speak it".to_owned()
            );
        }
        let held = match &mut self.state {
            State::Asked(held) => std::mem::take(held),
            State::Head(_) if self.like => Vec::new(),
            _ => return Ok(()),
        };
        self.like = false;
        self.state = if changed { State::Free } else { State::default() };
        self.feed(&held, judge, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::first::fits;
    use proptest::prelude::*;

    fn judge(first: &First) -> Result<(), String> {
        fits(first, "a.org", false)
    }

    fn fed(stream: &[u8], size: usize) -> Result<(Requests, Vec<u8>), String> {
        let (mut requests, mut out) = (Requests::default(), Vec::new());
        stream.chunks(size).try_for_each(|part| requests.feed(part, &judge, &mut out))?;
        Ok((requests, out))
    }

    fn pass(stream: &[u8], size: usize) -> Result<Vec<u8>, String> {
        fed(stream, size).map(|(_, out)| out)
    }

    const GOOD: &str = "GET / HTTP/1.1\r\nHost: a.org\r\n\r\n\
        POST /x HTTP/1.1\r\nHost: a.org\r\nContent-Length: 5\r\n\r\nGET /\
        PUT /y HTTP/1.1\r\nTransfer-Encoding: Chunked\r\nHost: A.org:80\r\n\r\n\
        4;x=y\r\nGET \r\n0\r\nTrailer: z\r\n\r\n\
        GET /z HTTP/1.1\r\nHost: a.org\r\n\r\n";
    const WEBSOCKET: &str =
        "GET /ws HTTP/1.1\r\nHost: a.org\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

    #[test]
    fn requests_for_the_host_pass_unchanged_however_they_arrive() {
        for size in [1, 2, 3, 7, 50, 4096] {
            let passed = pass(GOOD.as_bytes(), size).expect("they pass");
            assert_eq!(String::from_utf8_lossy(&passed), GOOD, "{size}");
        }
    }

    #[test]
    fn what_offers_http_2_is_taken_out() {
        let offers =
            "GET / HTTP/1.1\r\nHost: a.org\r\nUpgrade: H2C\r\nHTTP2-Settings: AAMAAABk\r\n";
        for (connection, left) in [
            ("Connection: Upgrade, HTTP2-Settings\r\n", ""),
            (
                "connection: keep-alive,http2-settings, x,upgrade\r\n",
                "connection: keep-alive, x\r\n",
            ),
        ] {
            for size in [1, 7, 4096] {
                let next = "POST / HTTP/1.1\r\nHost: b.org\r\n\r\n";
                let (mut requests, out) =
                    fed(format!("{offers}{connection}X: y\r\n\r\n").as_bytes(), size)
                        .expect("it passes");
                let seen = format!("GET / HTTP/1.1\r\nHost: a.org\r\n{left}X: y\r\n\r\n");
                assert_eq!(String::from_utf8_lossy(&out), seen);
                assert!(requests.feed(next.as_bytes(), &judge, &mut Vec::new()).is_err());
            }
        }
    }

    #[test]
    fn another_protocol_passes_freely_once_its_server_speaks_it() {
        let describe = "DESCRIBE rtsp://a.org/x RTSP/1.0\r\nCSeq: 1\r\nContent-Length: 2\r\n\r\nxx";
        let after = "$\0\x01x$GET / HTTP/1.1\r\nHost: b.org\r\n\r\n";
        for size in [1, 7, 4096] {
            let (mut requests, mut out) = fed(describe.as_bytes(), size).expect("it passes");
            assert_eq!((requests.asked(), requests.like()), (Some(1), true));
            requests.feed(after.as_bytes(), &judge, &mut out).expect("held");
            assert_eq!(String::from_utf8_lossy(&out), describe, "what follows is held");
            assert_eq!(requests.held(), after.len());
            requests.answered(true, &judge, &mut out).expect("it is spoken");
            assert!(requests.free() && out == format!("{describe}{after}").as_bytes());
            for later in ["", after] {
                let (mut requests, mut out) =
                    fed(format!("{describe}{later}").as_bytes(), size).expect("it passes");
                assert!(requests.answered(false, &judge, &mut out).is_err(), "a server of HTTP");
                assert_eq!(out, describe.as_bytes());
            }
        }
        let body = "Encapsulated: req-hdr=0, null-body=9";
        for bad in [
            "DESCRIBE rtsp://b.org/x RTSP/1.0\r\n\r\n".to_owned(),
            format!("REQMOD icap://a.org/x ICAP/1.0\r\nHost: a.org\r\n{body}\r\n\r\n"),
            "GET / HTTP/1.1\r\nHost: a.org\r\n\r\nSETUP / RTSP/1.0\r\n\r\n".to_owned(),
        ] {
            assert!(pass(bad.as_bytes(), 4096).is_err(), "{bad}");
        }
    }

    #[test]
    fn another_protocol_is_spoken_once_the_server_says_so() {
        let after = "\x01\x05GET / HTTP/1.1\r\nHost: b.org\r\n\r\n";
        for size in [1, 7, 4096] {
            let stream = format!("{WEBSOCKET}{after}");
            let (mut requests, mut out) = fed(stream.as_bytes(), size).expect("it passes");
            assert_eq!(String::from_utf8_lossy(&out), WEBSOCKET, "what follows is held");
            assert_eq!((requests.asked(), requests.free()), (Some(1), false));
            requests.answered(true, &judge, &mut out).expect("changed");
            assert!(requests.free());
            assert_eq!(out, stream.as_bytes());
        }
    }

    #[test]
    fn a_server_that_changes_no_protocol_gets_requests_for_the_host_only() {
        for (host, passes) in [("a.org", true), ("b.org", false)] {
            for size in [1, 7, 4096] {
                let next = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
                let stream = format!("{WEBSOCKET}{next}");
                let (mut requests, mut out) = fed(stream.as_bytes(), size).expect("it passes");
                let answered = requests.answered(false, &judge, &mut out);
                assert_eq!(answered.is_ok(), passes, "held: {host}");
                let (mut requests, mut out) = fed(WEBSOCKET.as_bytes(), size).expect("it passes");
                requests.answered(false, &judge, &mut out).expect("nothing is held");
                assert_eq!(requests.feed(next.as_bytes(), &judge, &mut out).is_ok(), passes);
            }
        }
    }

    #[test]
    fn what_is_held_has_a_measure() {
        let much = [WEBSOCKET.as_bytes(), &vec![b'x'; HELD + 1]].concat();
        assert!(pass(&much, 4096).is_err());
        assert!(pass(&much[..much.len() - 1], 4096).is_ok());
    }

    #[test]
    fn a_later_request_for_another_host_does_not_pass() {
        let first = "POST / HTTP/1.1\r\nHost: a.org\r\nContent-Length: 2\r\n\r\nxx";
        for second in [
            "GET / HTTP/1.1\r\nHost: b.org\r\n\r\n",
            "GET http://b.org/ HTTP/1.1\r\nHost: a.org\r\n\r\n",
            "CONNECT b.org:443 HTTP/1.1\r\nHost: a.org\r\n\r\n",
            "\r\n\r\nGET / HTTP/1.1\r\nHost: b.org\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            "rubbish\r\n\r\n",
        ] {
            for size in [1, 9, 4096] {
                let stream = format!("{first}{second}");
                assert!(pass(stream.as_bytes(), size).is_err(), "{second}");
            }
        }
    }

    #[test]
    fn what_hides_a_request_in_a_body_does_not_pass() {
        for fields in [
            "Content-Length: 5\r\nTransfer-Encoding: chunked",
            "Content-Length: 5\r\nContent-Length: 6",
            "Content-Length: +5",
            "Content-Length: 5, 5",
            "Content-Length: 9223372036854775808",
            "Content-Length: \x0c5",
            "Content-Length: 5\x0b",
            "Transfer-Encoding: \x0cchunked",
            "Transfer-Encoding: identity",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: gzip, chunked",
            "Upgrade: tls/1.0",
            "Upgrade: websocket, h2c",
            "Upgrade: h2c\r\nUpgrade: websocket",
            "Upgrade: websocket\r\nContent-Length: 5",
            "Upgrade: websocket\r\nTransfer-Encoding: chunked",
        ] {
            let stream = format!("POST / HTTP/1.1\r\nHost: a.org\r\n{fields}\r\n\r\n");
            assert!(pass(stream.as_bytes(), 4096).is_err(), "{fields}");
        }
        let chunked = "POST / HTTP/1.1\r\nHost: a.org\r\nTransfer-Encoding: chunked\r\n\r\n";
        for (body, passes) in [
            ("3\r\nabc\r\n0\r\n\r\n", true),
            ("3\nabc\r\n0\r\n\r\n", false),
            ("3;a\nb\r\nabc\r\n0\r\n\r\n", false),
            ("3;a\rb\r\nabc\r\n0\r\n\r\n", false),
            ("3\r\nabc\n2\r\n0\r\n\r\n", false),
            ("3\r\nabcd\r\n0\r\n\r\n", false),
            ("0\r\n\n", false),
            ("0\r\nHost: b.org\r\n\r\n", false),
            ("0\r\ncontent-length : 5\r\n\r\n", false),
            ("100000003\r\nabc\r\n0\r\n\r\n", false),
            ("0\r\nXGET http://b.org/ HTTP/1.1\r\n\r\n", false),
        ] {
            for size in [1, 4096] {
                let passed = pass(format!("{chunked}{body}").as_bytes(), size);
                assert_eq!(passed.is_ok(), passes, "{body:?}");
            }
        }
    }

    #[test]
    fn a_connection_is_no_tunnel_and_an_older_one_has_no_chunks() {
        for head in [
            "CONNECT a.org:80 HTTP/1.1\r\nHost: a.org:80\r\n\r\n",
            "connect a.org:80 HTTP/1.1\r\nHost: a.org:80\r\n\r\n",
            "POST / HTTP/1.0\r\nHost: a.org\r\nTransfer-Encoding: chunked\r\n\r\n",
        ] {
            assert!(pass(head.as_bytes(), 4096).is_err(), "{head}");
        }
        let older = "POST / HTTP/1.0\r\nHost: a.org\r\nContent-Length: 1\r\n\r\nx";
        assert!(pass(older.as_bytes(), 4096).is_ok());
    }

    proptest! {
        /// However a stream is cut, the same of it passes.
        #[test]
        fn cuts_change_nothing(tail in proptest::collection::vec(any::<u8>(), 0..120), size in 1usize..40) {
            let stream = [GOOD.as_bytes().split_at(140).0, &tail].concat();
            let whole = pass(&stream, stream.len());
            let cut = pass(&stream, size);
            prop_assert_eq!(whole.is_err(), cut.is_err());
            if let (Ok(whole), Ok(cut)) = (whole, cut) {
                prop_assert_eq!(whole, cut);
            }
        }
    }
}
