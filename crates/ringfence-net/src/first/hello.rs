//! The TLS ClientHello (RFC 8446 §4.1.2), as far as the server's name.

use super::First;
use ringfence_policy::Host;

/// The type of a record that holds handshake messages.
pub(super) const HANDSHAKE: u8 = 22;
/// That of a change of cipher, which has no meaning in TLS 1.3, and of data.
pub(super) const CHANGE: u8 = 20;
pub(super) const DATA: u8 = 23;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;
/// A record holds at most this much (RFC 8446 §5.1).
const RECORD: usize = 16_384;

/// Whether an extension hides a name: Encrypted Client Hello (RFC 9849) by the number that it has and those that its drafts
/// had (`encrypted_client_hello` since draft-ietf-tls-esni-07), and what came before it (`encrypted_server_name`). Servers
/// of the drafts may still be there.
const fn hides(kind: u16) -> bool {
    matches!(kind, 0xfe08..=0xfe0d | 0xff02 | 0xff08 | 0xffce)
}

/// Reads a ClientHello from TLS records, over which it may be spread in any way.
pub(super) fn read(bytes: &[u8]) -> First {
    match message(bytes) {
        Ok(Some(hello)) => client_hello(&hello).unwrap_or(First::Broken("a broken ClientHello")),
        Ok(None) if bytes.len() < super::MOST => First::More,
        Ok(None) => First::Broken("a ClientHello beyond all measure"),
        Err(what) => First::Broken(what),
    }
}

/// What begins as TLS does, but not with a ClientHello's record; nothing for what is no TLS.
///
/// Servers exist that skip an alert, and take the ClientHello that follows it; some look at no more of a record's
/// version than that it is small. In a hello of SSL 2 there is no room for a name.
pub(super) fn other(bytes: &[u8]) -> Option<First> {
    match *bytes {
        [0x14..=0x18] | [0x80..=0xff, _] | [0x80..=0xff, _, CLIENT_HELLO] | [0x80..=0xff] => {
            Some(First::More)
        }
        [0x14..=0x18, 0..=0x0f, ..] => {
            Some(First::Broken("another TLS record than a handshake's first"))
        }
        [0x80..=0xff, _, CLIENT_HELLO, 0 | 3, ..] => {
            Some(First::Broken("a hello of SSL 2, which names no server"))
        }
        _ => None,
    }
}

/// Puts the first handshake message together.
fn message(mut bytes: &[u8]) -> Result<Option<Vec<u8>>, &'static str> {
    let mut message: Vec<u8> = Vec::new();
    loop {
        if message.first().is_some_and(|&kind| kind != CLIENT_HELLO) {
            return Err("another TLS message than a ClientHello first");
        }
        if let [_, a, b, c, ..] = message[..] {
            let length = 4 + (usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c));
            if message.len() >= length {
                message.truncate(length);
                return Ok(Some(message.split_off(4)));
            }
        }
        let [kind, major, _, high, low, rest @ ..] = bytes else {
            // The parts of the header that are there must be right.
            let wrong = bytes.first().is_some_and(|&kind| kind != HANDSHAKE)
                || bytes.get(1).is_some_and(|&major| major != 3);
            return if wrong { Err("a broken TLS record") } else { Ok(None) };
        };
        let length = usize::from(*high) << 8 | usize::from(*low);
        if *kind != HANDSHAKE || *major != 3 || length == 0 || length > RECORD {
            return Err("a broken TLS record");
        }
        message.extend_from_slice(&rest[..length.min(rest.len())]);
        if rest.len() < length {
            // Whole messages only, so that the answer is the same however the bytes arrive.
            return complete(&message);
        }
        bytes = &rest[length..];
    }
}

/// The message, if the last, unfinished record happens to hold its end.
fn complete(message: &[u8]) -> Result<Option<Vec<u8>>, &'static str> {
    match *message {
        [kind, ..] if kind != CLIENT_HELLO => Err("another TLS message than a ClientHello first"),
        [_, a, b, c, ref rest @ ..] => {
            let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
            Ok(rest.get(..length).map(<[u8]>::to_vec))
        }
        _ => Ok(None),
    }
}

/// Where the records of a complete message end; nothing where they hold more than that.
pub(super) fn end(bytes: &[u8]) -> Option<usize> {
    let (mut content, mut at) = (Vec::new(), 0);
    loop {
        let [_, _, _, high, low, rest @ ..] = bytes.get(at..)? else { return None };
        let length = usize::from(*high) << 8 | usize::from(*low);
        content.extend_from_slice(rest.get(..length)?);
        at += 5 + length;
        if let [_, a, b, c, ref body @ ..] = content[..] {
            let wanted = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
            if body.len() >= wanted {
                return (body.len() == wanted).then_some(at);
            }
        }
    }
}

/// Takes `count` bytes off the front.
fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (front, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(front)
}

/// Takes a vector with a length of `width` bytes off the front.
fn vector<'a>(bytes: &mut &'a [u8], width: usize) -> Option<&'a [u8]> {
    let length = take(bytes, width)?.iter().fold(0usize, |sum, &byte| sum << 8 | usize::from(byte));
    take(bytes, length)
}

fn word(bytes: &mut &[u8]) -> Option<u16> {
    take(bytes, 2).map(|two| u16::from_be_bytes([two[0], two[1]]))
}

fn client_hello(mut body: &[u8]) -> Option<First> {
    take(&mut body, 2 + 32)?;
    vector(&mut body, 1)?;
    vector(&mut body, 2)?;
    vector(&mut body, 1)?;
    if body.is_empty() {
        return Some(First::Tls { name: None, hidden: false });
    }
    let mut extensions = vector(&mut body, 2)?;
    let (mut name, mut named, mut hidden) = (None, false, false);
    while !extensions.is_empty() {
        let kind = word(&mut extensions)?;
        let content = vector(&mut extensions, 2)?;
        match kind {
            SERVER_NAME if named => return Some(First::Broken("two server names (SNI)")),
            SERVER_NAME => {
                named = true;
                name = Some(server_name(content)?);
            }
            _ => hidden |= hides(kind),
        }
    }
    Some(First::Tls { name, hidden })
}

/// The one host name of the extension (RFC 6066 §3).
fn server_name(mut content: &[u8]) -> Option<Host> {
    let mut list = vector(&mut content, 2)?;
    let kind = take(&mut list, 1)?[0];
    let name = vector(&mut list, 2)?;
    if kind != HOST_NAME || !list.is_empty() || !content.is_empty() {
        return None;
    }
    Host::parse(std::str::from_utf8(name).ok()?).ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A ClientHello with these extensions, as one message.
    pub(crate) fn hello(extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([0, 0, 2, 0x13, 1, 1, 0]);
        let list: Vec<u8> = extensions
            .iter()
            .flat_map(|(kind, content)| {
                let length = (content.len() as u16).to_be_bytes();
                [&kind.to_be_bytes()[..], &length, content].concat()
            })
            .collect();
        body.extend((list.len() as u16).to_be_bytes());
        body.extend(list);
        let mut message = vec![1];
        message.extend(&(body.len() as u32).to_be_bytes()[1..]);
        message.extend(body);
        message
    }

    pub(crate) fn sni(name: &[u8]) -> (u16, Vec<u8>) {
        let length = name.len() as u16;
        let list = [&[0][..], &length.to_be_bytes(), name].concat();
        (0, [&(list.len() as u16).to_be_bytes()[..], &list].concat())
    }

    pub(crate) fn records(message: &[u8], size: usize) -> Vec<u8> {
        message
            .chunks(size)
            .flat_map(|part| [&[22, 3, 1][..], &(part.len() as u16).to_be_bytes(), part].concat())
            .collect()
    }

    fn named(name: &str) -> First {
        First::Tls { name: Host::parse(name).ok(), hidden: false }
    }

    #[test]
    fn the_name_is_found_however_the_records_are_cut() {
        let message = hello(&[(43, vec![2, 3, 4]), sni(b"Example.org")]);
        for size in [1, 2, 5, 60, 16_384] {
            let bytes = records(&message, size);
            assert_eq!(read(&bytes), named("example.org"), "{size}");
            for length in 1..bytes.len() {
                let part = read(&bytes[..length]);
                assert_eq!(part, First::More, "{size}, {length}");
            }
        }
    }

    #[test]
    fn no_name_a_hidden_name_and_two_names_are_told_apart() {
        assert_eq!(read(&records(&hello(&[]), 500)), First::Tls { name: None, hidden: false });
        for kind in [0xfe0d, 0xfe08, 0xfe09, 0xfe0a, 0xff02, 0xff08, 0xffce] {
            let hidden = hello(&[sni(b"example.org"), (kind, vec![0; 50])]);
            let seen = read(&records(&hidden, 500));
            assert!(matches!(seen, First::Tls { hidden: true, .. }), "{kind:x}");
        }
        // Renegotiation, and what is there so that servers stay used to what they do not know.
        for kind in [0xff01, 0x0a0a, 0xfafa] {
            let plain = hello(&[sni(b"example.org"), (kind, vec![0])]);
            assert_eq!(read(&records(&plain, 500)), named("example.org"), "{kind:x}");
        }
        let two = hello(&[sni(b"example.org"), sni(b"example.com")]);
        assert!(matches!(read(&records(&two, 500)), First::Broken(_)));
    }

    #[test]
    fn a_hello_behind_something_that_servers_skip_is_no_other_protocol() {
        let hello = records(&hello(&[sni(b"example.org")]), 500);
        for before in [
            &[0x15, 3, 1, 0, 2, 1, 90][..],
            &[0x15, 0, 1, 0, 2, 1, 112],
            &[0x14, 3, 3, 0, 1, 1],
            &[0x17, 3, 3, 0, 0],
            &[0x80, 46, 1, 3, 1, 0, 3],
            &[0x80, 46, 1, 0, 2, 0, 3],
        ] {
            let bytes = [before, &hello].concat();
            let first = crate::first::first;
            assert!(matches!(first(&bytes), First::Broken(_)), "{before:?}");
            assert_eq!(first(&bytes[..1]), First::More, "{before:?}");
        }
        for another in
            [&[0x15, b'a'][..], &[0x80, 1, 0, 1], &[0xff, 0xfd, 1, 0xff], &[0xff, 0xfb, 3]]
        {
            let seen = crate::first::first(another);
            assert!(matches!(seen, First::Other | First::Watch), "{another:?}: {seen:?}");
        }
    }

    #[test]
    fn what_is_no_host_name_is_broken() {
        for wrong in [&b""[..], b"exa mple", b"example.org\0.evil.com", b"\xff", b"[::1]x"] {
            let bytes = records(&hello(&[sni(wrong)]), 500);
            assert!(matches!(read(&bytes), First::Broken(_)), "{wrong:?}");
        }
        assert!(matches!(read(&[22, 2, 0, 0, 5]), First::Broken(_)));
        assert!(matches!(read(&[22, 3, 1, 0, 1, 2]), First::Broken(_)));
    }
}
