//! The lines between and after chunks (RFC 9112 §7.1).

use super::State;
use crate::first::{blanks, field, like_a_request};

/// A chunk has no more bytes than servers count that have signed numbers of 32 bits for it: others would be less to them, or
/// none.
const MOST: u64 = i32::MAX as u64;
/// So many digits at most: what a server of such numbers reads of more is its own affair.
const DIGITS: usize = 8;

/// Fields that say where a request goes or ends, and have no place after its body (RFC 9110 §6.5.1).
const NOT_AFTER: [&[u8]; 3] = [b"host", b"content-length", b"transfer-encoding"];

impl State {
    /// What comes after a complete line between chunks, or after the last one.
    pub(super) fn after_line(&self, line: &[u8]) -> Result<State, String> {
        // Servers disagree on what else ends a line.
        let line = line.strip_suffix(b"\r\n").ok_or("a chunk's line with a strange end")?;
        if line.iter().any(|byte| matches!(byte, b'\r' | 0)) {
            return Err("a chunk's line with a stray control character".to_owned());
        }
        match self {
            State::Trailer(_) if line.is_empty() => Ok(State::default()),
            State::Trailer(_) => {
                trailer(line)?;
                Ok(State::Trailer(Vec::new()))
            }
            _ => match size(line).ok_or("a chunk whose size is none, or beyond all measure")? {
                0 => Ok(State::Trailer(Vec::new())),
                size => Ok(State::Chunk(size)),
            },
        }
    }
}

/// The size that a chunk's line gives: behind its digits there is nothing but blanks, and what follows a `;`.
fn size(line: &[u8]) -> Option<u64> {
    let written = blanks(line.split(|&byte| byte == b';').next()?);
    // A `+` is a digit to the parser of numbers.
    let good = (1..=DIGITS).contains(&written.len())
        && line.starts_with(written)
        && written.iter().all(u8::is_ascii_hexdigit);
    let size = u64::from_str_radix(std::str::from_utf8(written).ok()?, 16).ok()?;
    (good && size <= MOST).then_some(size)
}

/// A line after the last chunk is a field as those of a head. To a server that knows none there it is the next request's
/// first, or a part of that.
fn trailer(line: &[u8]) -> Result<(), String> {
    let (name, _) = field(line)?;
    if NOT_AFTER.iter().any(|field| name.eq_ignore_ascii_case(field)) {
        return Err("a field after a request that belongs before it".to_owned());
    }
    if like_a_request(line) {
        return Err("a field after a request that servers may take for the next one".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chunk_is_as_long_as_every_server_counts() {
        for (line, expected) in [
            ("0", Some(0)),
            ("a", Some(10)),
            ("0000000A", Some(10)),
            ("7fffffff", Some(0x7fff_ffff)),
            ("5;x=y", Some(5)),
            ("5 ;x=y z", Some(5)),
            ("5  ", Some(5)),
            ("80000000", None),
            ("ffffffff", None),
            ("100000005", None),
            ("000000005", None),
            ("1234567890abcdef0", None),
            ("5 5", None),
            ("5 x", None),
            (" 5", None),
            ("5\x0c", None),
            ("+5", None),
            ("-1", None),
            ("0x5", None),
            ("x", None),
            ("", None),
            (";5", None),
        ] {
            assert_eq!(size(line.as_bytes()), expected, "{line:?}");
        }
    }

    /// Java's own server knows no trailers: a byte of them is gone, and the rest is its next request, whatever the method's
    /// bytes are.
    #[test]
    fn a_line_after_the_chunks_is_a_field_and_no_request() {
        for good in ["X: y", "Digest: sha-256=/x/y=", "grpc-status: 0", "a-b_c:", "X: y\tz w"] {
            assert_eq!(trailer(good.as_bytes()), Ok(()), "{good}");
        }
        for bad in [
            "XGET http://b.org/x HTTP/1.1",
            "GET / HTTP/1.1",
            " GET / HTTP/1.1",
            "\tX: y",
            "X y: z",
            ": y",
            "no colon",
            "XA: /x HTTP/1.1",
            "XA: http://b.org/x HTTP/1.1",
            "XA: /x y",
            "XA: HTTP/1.1",
            "Host: b.org",
            "content-length: 5",
            "Content-Length : 5",
        ] {
            assert!(trailer(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
