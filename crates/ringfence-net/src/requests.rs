//! Requests one after another on a plain HTTP/1 connection (RFC 9112 §6): each has its head looked
//! at, since each can name another host. Bodies pass as they are.

use crate::first::{First, first};

/// The most bytes of one head, and of one line between chunks.
const HEAD: usize = 32 * 1024;
const LINE: usize = 4 * 1024;

/// Where in the stream of requests a client is.
#[derive(Debug)]
pub(crate) enum Requests {
    /// In a head; what there is of it.
    Head(Vec<u8>),
    /// In a body, with so many bytes to come.
    Body(u64),
    /// In the line that gives a chunk's size.
    Size(Vec<u8>),
    /// In a chunk, with so many bytes to come, its line's end included.
    Chunk(u64),
    /// In the lines after the last chunk.
    Trailer(Vec<u8>),
    /// Another protocol by now (WebSocket).
    Free,
}

impl Default for Requests {
    fn default() -> Requests {
        Requests::Head(Vec::new())
    }
}

impl Requests {
    /// Takes bytes of the client's, and adds those that may pass to `out`. `judge` looks at each
    /// head.
    ///
    /// # Errors
    /// A sentence: a head does not fit, or what follows cannot be told for sure.
    pub fn feed(
        &mut self,
        mut bytes: &[u8],
        judge: &dyn Fn(&First) -> Result<(), String>,
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        while !bytes.is_empty() {
            match self {
                Requests::Free => {
                    out.extend_from_slice(bytes);
                    return Ok(());
                }
                Requests::Body(left) | Requests::Chunk(left) => {
                    let count = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                    out.extend_from_slice(&bytes[..count]);
                    bytes = &bytes[count..];
                    *left -= count as u64;
                    if *left == 0 {
                        *self = match self {
                            Requests::Chunk(_) => Requests::Size(Vec::new()),
                            _ => Requests::default(),
                        };
                    }
                }
                Requests::Size(line) | Requests::Trailer(line) => {
                    let end = bytes.iter().position(|&byte| byte == b'\n').map(|end| end + 1);
                    line.extend_from_slice(&bytes[..end.unwrap_or(bytes.len())]);
                    bytes = &bytes[end.unwrap_or(bytes.len())..];
                    if line.len() > LINE {
                        return Err("a chunk's line has no end".to_owned());
                    }
                    if end.is_some() {
                        out.extend_from_slice(line);
                        *self = self.after_line()?;
                    }
                }
                Requests::Head(head) => {
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
                        return if head.len() > HEAD {
                            Err("a request whose head has no end".to_owned())
                        } else {
                            Ok(())
                        };
                    };
                    bytes = &bytes[bytes.len() - (head.len() - end)..];
                    head.truncate(end);
                    let seen = first(head);
                    judge(&seen)?;
                    if !matches!(seen, First::Http { .. }) {
                        return Err("something else than a request after a request".to_owned());
                    }
                    let next = framing(head)?;
                    out.extend_from_slice(head);
                    *self = next;
                }
            }
        }
        Ok(())
    }

    /// What comes after a complete line between chunks.
    fn after_line(&self) -> Result<Requests, String> {
        match self {
            Requests::Trailer(line) if line.trim_ascii().is_empty() => Ok(Requests::default()),
            Requests::Trailer(_) => Ok(Requests::Trailer(Vec::new())),
            Requests::Size(line) => {
                let line = line.trim_ascii_end();
                let digits = line.split(|byte| matches!(byte, b';' | b' ' | b'\t')).next();
                let size = digits.and_then(|digits| std::str::from_utf8(digits).ok());
                let valid = |text: &&str| {
                    (1..=15).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit())
                };
                let size = size.filter(valid).and_then(|text| u64::from_str_radix(text, 16).ok());
                match size.ok_or("a chunk whose size is none")? {
                    0 => Ok(Requests::Trailer(Vec::new())),
                    size => Ok(Requests::Chunk(size + 2)),
                }
            }
            _ => Ok(Requests::default()),
        }
    }
}

/// Where a head ends: after the first empty line.
fn end_of_head(bytes: &[u8]) -> Option<usize> {
    let mut lines = bytes.iter().enumerate().filter(|&(_, &byte)| byte == b'\n');
    lines.find_map(|(at, _)| match bytes[at + 1..] {
        [b'\n', ..] => Some(at + 2),
        [b'\r', b'\n', ..] => Some(at + 3),
        _ => None,
    })
}

/// What follows a complete head, which has been found to be well-formed.
fn framing(head: &[u8]) -> Result<Requests, String> {
    if head.starts_with(b"CONNECT ") {
        return Ok(Requests::Free);
    }
    let (mut length, mut chunked, mut upgrade) = (None, false, None);
    for line in head.split(|&byte| byte == b'\n').skip(1) {
        let Some(colon) = line.iter().position(|&byte| byte == b':') else { continue };
        let value = String::from_utf8_lossy(line[colon + 1..].trim_ascii()).to_ascii_lowercase();
        match line[..colon].to_ascii_lowercase().as_slice() {
            b"content-length" => {
                let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
                let number = if digits { value.parse::<u64>().ok() } else { None };
                if number.is_none() || length.is_some_and(|other| Some(other) != number) {
                    return Err("a request whose Content-Length is none, or two".to_owned());
                }
                length = number;
            }
            b"transfer-encoding" if value == "chunked" && !chunked => chunked = true,
            b"transfer-encoding" => {
                return Err("a request in another encoding than chunks".to_owned());
            }
            b"upgrade" => upgrade = Some(value),
            _ => {}
        }
    }
    match (length, chunked, upgrade.as_deref()) {
        (Some(_), true, _) => Err("a request with both a length and chunks".to_owned()),
        (_, _, Some("websocket")) => Ok(Requests::Free),
        // The next protocol would name hosts where they are not looked for.
        (_, _, Some(other)) => Err(format!("a request to change the protocol to {other}")),
        (_, true, None) => Ok(Requests::Size(Vec::new())),
        (None | Some(0), false, None) => Ok(Requests::default()),
        (Some(length), false, None) => Ok(Requests::Body(length)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::first::fits;
    use proptest::prelude::*;

    fn pass(stream: &[u8], size: usize) -> Result<Vec<u8>, String> {
        let mut requests = Requests::default();
        let mut out = Vec::new();
        for part in stream.chunks(size) {
            requests.feed(part, &|first| fits(first, "a.org", false), &mut out)?;
        }
        Ok(out)
    }

    const GOOD: &str = "GET / HTTP/1.1\r\nHost: a.org\r\n\r\n\
        POST /x HTTP/1.1\r\nHost: a.org\r\nContent-Length: 5\r\n\r\nGET /\
        PUT /y HTTP/1.1\r\nTransfer-Encoding: Chunked\r\nHost: A.org:80\r\n\r\n\
        4;x=y\r\nGET \r\n0\r\nTrailer: z\r\n\r\n\
        GET /ws HTTP/1.1\r\nHost: a.org\r\nUpgrade: websocket\r\n\r\nGET / HTTP/1.1\r\nanything";

    #[test]
    fn requests_for_the_host_pass_unchanged_however_they_arrive() {
        for size in [1, 2, 3, 7, 50, 4096] {
            let passed = pass(GOOD.as_bytes(), size).expect("they pass");
            assert_eq!(String::from_utf8_lossy(&passed), GOOD, "{size}");
        }
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
            "Transfer-Encoding: identity",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: gzip, chunked",
            "Upgrade: h2c",
        ] {
            let stream = format!("POST / HTTP/1.1\r\nHost: a.org\r\n{fields}\r\n\r\n");
            assert!(pass(stream.as_bytes(), 4096).is_err(), "{fields}");
        }
        for size in ["x", "-1", "0x5", "", "1234567890abcdef0"] {
            let head = "POST / HTTP/1.1\r\nHost: a.org\r\nTransfer-Encoding: chunked\r\n\r\n";
            assert!(pass(format!("{head}{size}\r\n").as_bytes(), 4096).is_err(), "{size}");
        }
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
