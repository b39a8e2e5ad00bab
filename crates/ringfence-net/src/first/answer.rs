//! A server's first bytes, as far as they decide what its client may say next.

use super::wish;

/// A handshake record with a ServerHello that wants another ClientHello has this for its random number (RFC 8446 §4.1.3).
const AGAIN: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
    0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];
/// Where it is: after the record's header, the message's, and the version.
const RANDOM: usize = 5 + 4 + 2;

/// So many bytes are enough for what is asked here.
pub(crate) const ENOUGH: usize = wish::ANSWERS + HELLO;
/// So many of a handshake record.
const HELLO: usize = RANDOM + AGAIN.len();

/// Whether a server changes the protocol that it was asked to change, once that is said.
pub(crate) fn changes(said: &[u8]) -> Option<bool> {
    let line = said.get(..12)?;
    Some(line.starts_with(b"HTTP/1.") && line.ends_with(b" 101"))
}

/// Whether a server speaks another protocol with the form of HTTP, once that is said.
pub(crate) fn speaks_other(said: &[u8]) -> Option<bool> {
    let name = said.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
    match *said.get(name..)? {
        [] if name < 5 => None,
        [b'/'] => None,
        [b'/', digit, ..] => {
            Some(name > 0 && digit.is_ascii_digit() && !said[..name].eq_ignore_ascii_case(b"http"))
        }
        _ => Some(false),
    }
}

/// Whether a server wants another ClientHello, once that is said. One that says it in pieces is taken to want one.
pub(crate) fn again(said: &[u8]) -> Option<bool> {
    let said = wish::after_answers(said);
    match *said {
        [] => None,
        [super::hello::HANDSHAKE, _, _, 0, length, ..] if usize::from(length) < HELLO - 5 => {
            Some(true)
        }
        [super::hello::HANDSHAKE, ..] => said.get(RANDOM..HELLO).map(|random| random == AGAIN),
        _ => Some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_wants_another_hello_or_says_something_else() {
        let hello =
            |random: [u8; 32]| [&[22, 3, 3, 0, 90, 2, 0, 0, 86, 3, 3][..], &random].concat();
        for length in 0..HELLO {
            assert_eq!(again(&hello(AGAIN)[..length]), None);
        }
        assert_eq!(again(&hello(AGAIN)), Some(true));
        assert_eq!(again(&hello([7; 32])), Some(false));
        assert_eq!(again(&[22, 3, 3, 0, 4, 2]), Some(true));
        assert_eq!(again(&[21]), Some(false));
        // After the answers to wishes for TLS.
        for said in [&b"S"[..], b"NS", b"NNNN"] {
            assert_eq!(again(said), None);
            let behind = |random| [said, &hello(random)].concat();
            assert_eq!(again(&behind(AGAIN)), Some(true));
            assert_eq!(again(&behind([7; 32])), Some(false));
            assert!(said.len() + HELLO <= ENOUGH);
        }
        assert_eq!(again(b"SSH-2.0"), Some(false));
    }

    #[test]
    fn a_server_speaks_another_protocol_or_does_not() {
        for (said, other) in [
            ("", None),
            ("RTSP", None),
            ("RTSP/", None),
            ("RTSP/1", Some(true)),
            ("SIP/2.0 100 Trying", Some(true)),
            ("HTTP/1.1 200 OK", Some(false)),
            ("http/1.1 200 OK", Some(false)),
            ("RTSPX", Some(false)),
            ("RTSP 1", Some(false)),
            ("/1", Some(false)),
            ("<html>", Some(false)),
        ] {
            assert_eq!(speaks_other(said.as_bytes()), other, "{said}");
        }
    }

    #[test]
    fn a_server_changes_the_protocol_or_does_not() {
        assert_eq!(changes(b"HTTP/1.1 10"), None);
        assert_eq!(changes(b"HTTP/1.1 101 Switching"), Some(true));
        assert_eq!(changes(b"HTTP/1.1 200 OK"), Some(false));
    }
}
