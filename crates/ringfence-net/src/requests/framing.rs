//! Where a head ends, and what follows it.

use super::State;
use crate::first::blanks;
use ringfence_policy::http::encoded;

/// Where a head ends: after the first empty line.
pub(super) fn end_of_head(bytes: &[u8]) -> Option<usize> {
    let mut lines = bytes.iter().enumerate().filter(|&(_, &byte)| byte == b'\n');
    lines.find_map(|(at, _)| match bytes[at + 1..] {
        [b'\n', ..] => Some(at + 2),
        [b'\r', b'\n', ..] => Some(at + 3),
        _ => None,
    })
}

/// What follows a complete head, which has been found to be well-formed; and what is sent in its place, if something is.
pub(super) fn framing(head: &[u8], like: bool) -> Result<(State, Option<Vec<u8>>), String> {
    if head.get(..8).is_some_and(|method| method.eq_ignore_ascii_case(b"CONNECT ")) {
        // Granted is a server, not what lies behind it; and one that refuses goes on taking requests.
        return Err("a CONNECT to a server that is no proxy".to_owned());
    }
    let (mut length, mut chunked, mut upgrade) = (None, false, None);
    let mut lines = head.split(|&byte| byte == b'\n');
    let older = lines.next().is_some_and(|line| line.trim_ascii_end().ends_with(b"HTTP/1.0"));
    for line in lines {
        let Some(colon) = line.iter().position(|&byte| byte == b':') else { continue };
        let value = blanks(line[colon + 1..].strip_suffix(b"\r").unwrap_or(&line[colon + 1..]));
        let value = String::from_utf8_lossy(value).to_ascii_lowercase();
        match line[..colon].to_ascii_lowercase().as_slice() {
            b"content-length" => {
                let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
                let number = if digits { value.parse::<u64>().ok() } else { None };
                // To a server of signed numbers more than theirs is less, or none.
                let number = number.filter(|&number| i64::try_from(number).is_ok());
                if number.is_none() || length.is_some_and(|other| Some(other) != number) {
                    return Err("a request whose Content-Length is none, or two".to_owned());
                }
                length = number;
            }
            // HTTP/1.0 knows no chunks: its servers would take them for requests.
            b"transfer-encoding" if value == "chunked" && !chunked && !older => chunked = true,
            b"transfer-encoding" => {
                return Err("a request in another encoding than chunks".to_owned());
            }
            b"upgrade" if upgrade.as_ref().is_some_and(|other| *other != value) => {
                return Err("a request to change to one protocol or another".to_owned());
            }
            b"upgrade" => upgrade = Some(value),
            // ICAP (RFC 3507 §4.4) has requests in such a body, whose end is not known here.
            b"encapsulated" if like && value != "null-body=0" => {
                return Err("a body before the server has shown what it speaks".to_owned());
            }
            _ => {}
        }
    }
    // Who offers it (Java's client does with each first request) goes on with HTTP/1 where the server does not take it.
    let plain = upgrade.take_if(|protocol| protocol == "h2c").map(|_| without_upgrade(head));
    let next = match (length, chunked, upgrade.as_deref()) {
        (Some(_), true, _) => Err("a request with both a length and chunks".to_owned()),
        (None | Some(0), false, Some("websocket")) => Ok(State::Asked(Vec::new())),
        (_, _, Some("websocket")) => Err("a request with a body to change the protocol".to_owned()),
        // The next protocol would name hosts where they are not looked for.
        (_, _, Some(other)) => Err(format!("a request to change the protocol to {other}")),
        (_, true, None) => Ok(State::Size(Vec::new())),
        (None | Some(0), false, None) => Ok(State::default()),
        (Some(length), false, None) => Ok(State::Body(length)),
    };
    Ok((next?, plain))
}

/// A complete head without what offers another protocol (RFC 9110 §7.8, RFC 7540 §3.2).
fn without_upgrade(head: &[u8]) -> Vec<u8> {
    const GONE: [&[u8]; 2] = [b"upgrade", b"http2-settings"];
    let gone = |word: &[u8]| GONE.iter().any(|name| word.eq_ignore_ascii_case(name));
    let mut out = Vec::with_capacity(head.len());
    for line in head.split_inclusive(|&byte| byte == b'\n') {
        let colon = line.iter().position(|&byte| byte == b':').unwrap_or(line.len());
        let (name, value) = line.split_at(colon);
        if gone(name) {
            continue;
        }
        if !name.eq_ignore_ascii_case(b"connection") {
            out.extend_from_slice(line);
            continue;
        }
        let words = blanks(value[1..].trim_ascii_end()).split(|&byte| byte == b',').map(blanks);
        let kept: Vec<_> = words.filter(|word| !word.is_empty() && !gone(word)).collect();
        if !kept.is_empty() {
            let end = &line[line.trim_ascii_end().len()..];
            out.extend_from_slice(&[name, b": ", &kept.join(&b", "[..]), end].concat());
        }
    }
    out
}

/// A complete head with its target spelled as URLs have it ([`encoded`]); nothing where it is so.
pub(super) fn encoded_target(head: &[u8]) -> Option<Vec<u8>> {
    let end = head.iter().position(|&byte| byte == b'\n')?;
    let start = head[..end].iter().position(|&byte| byte == b' ')? + 1;
    let end = head[..end].iter().rposition(|&byte| byte == b' ').filter(|&end| end > start)?;
    let target = encoded(&head[start..end])?;
    Some([&head[..start], target.as_bytes(), &head[end..]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_spelled_as_urls_have_it() {
        for (target, expected) in [
            ("/a%20b?x={y}|z", None),
            ("/a?x={\"a\":1}", Some("/a?x={%22a%22:1}")),
            ("/<a>`", Some("/%3Ca%3E%60")),
            ("/\u{e9}", Some("/%C3%A9")),
        ] {
            let head = |target: &str| format!("GET {target} HTTP/1.1\r\nX: \"<\u{e9}\r\n\r\n");
            let spelled = encoded_target(head(target).as_bytes());
            assert_eq!(spelled, expected.map(|target| head(target).into_bytes()), "{target}");
        }
        assert_eq!(
            encoded_target(b"GET /\xff HTTP/1.1\n\n"),
            Some(b"GET /%FF HTTP/1.1\n\n".to_vec())
        );
    }
}
