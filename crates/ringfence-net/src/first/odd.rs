//! What no careful server takes for a request, and some do: those that read a method of any bytes, blanks that are none in
//! HTTP, or a version of any form. It passes as another protocol's would, since it may be one, and is watched for as
//! long as it could still become such a request: before the bytes that make it one have passed it is refused.

use super::First;
use super::http::blank;

/// How much of it is looked at. No more than a connection may always hold.
const WATCHED: usize = 8 * 1024;

const DIFFERENT: First = First::Broken("a request line that servers read differently");

/// Tells what bytes are that are no request's to a careful server.
pub(super) fn read(bytes: &[u8]) -> First {
    let window = &bytes[..bytes.len().min(WATCHED)];
    let undecided = if bytes.len() < WATCHED { First::Watch } else { First::Other };
    let ends = |by: &[u8]| window.windows(by.len()).position(|part| part == by);
    // Java's own server ends its first line by CR LF alone, so that a method of its can hold either.
    let end = ends(b"\r\n");
    if [ends(b"\n"), ends(b"\r"), end].iter().flatten().any(|&end| versioned(&window[..end])) {
        return DIFFERENT;
    }
    let Some(end) = end else { return undecided };
    if !aimed(&window[..end]) {
        return First::Other;
    }
    // Fields it ends by one alone as well; a line of blanks ends none, nor the head. The last line is not ended yet, but
    // the name of a field in it may be.
    let mut fields = window[end + 2..].split(|&byte| byte == b'\n');
    let mut head = fields.by_ref().take_while(|line| !matches!(*line, b"" | b"\r"));
    if head.any(|line| line.split(|&byte| byte == b'\r').any(named_host)) {
        return DIFFERENT;
    }
    match fields.next() {
        Some(_) => First::Other,
        None => undecided,
    }
}

/// Whether a line could be a request's to the most lenient server.
pub(crate) fn like_a_request(line: &[u8]) -> bool {
    versioned(line) || aimed(line)
}

/// The words of a line, as the most lenient server takes them apart.
fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|&byte| blank(byte) || byte == b'\n').filter(|word| !word.is_empty())
}

/// Whether the last of several words is a version of HTTP.
fn versioned(line: &[u8]) -> bool {
    let mut all = words(line);
    let first = all.next();
    let number = |version: &[u8]| {
        version.first().is_some_and(u8::is_ascii_digit)
            && version.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.')
    };
    first.is_some()
        && all
            .last()
            .and_then(|word| word.split_at_checked(5))
            .is_some_and(|(name, version)| name.eq_ignore_ascii_case(b"http/") && number(version))
}

/// Whether there is a target between two words. Java's own server takes anything for these, nothing as well, and splits
/// at spaces alone; others at all blanks.
fn aimed(line: &[u8]) -> bool {
    let target =
        |word: &&[u8]| word.starts_with(b"/") || word.windows(3).any(|part| part == b"://");
    let between = |all: Vec<&[u8]>| all.len() > 2 && all[1..all.len() - 1].iter().any(target);
    between(words(line).collect()) || between(line.split(|&byte| byte == b' ').collect())
}

/// Whether a line is the field that names a host.
fn named_host(line: &[u8]) -> bool {
    let Some(colon) = line.iter().position(|&byte| byte == b':') else { return false };
    line[..colon].trim_ascii().eq_ignore_ascii_case(b"host")
}

#[cfg(test)]
mod tests {
    use crate::first::{First, first};

    /// `http.server` of Python takes the first of these, `com.sun.net.httpserver` of Java the others.
    #[test]
    fn what_lenient_servers_serve_is_refused_before_it_is_whole() {
        let lines: [&[u8]; 23] = [
            b"GET\x1c/\x1cHTTP/1.1",
            b"GET\x1d/x HTTP/1.1",
            b"GET\xa0/\xa0HTTP/1.1",
            b"GET\x85/ HTTP/1.1\xa0",
            b"\xa0GET / HTTP/1.1",
            b"\x1fGET / HTTP/1.1",
            b"G(T / HTTP/1.1",
            b"\0GET / http/1.0",
            b"\r\n@GET / HTTP/1.1",
            b"G\nT / HTTP/1.1",
            b"G(T / x",
            b"G\xff http://b.org/ 1",
            b"G(\tT / x",
            b"G(\tT http://b.org/ x",
            b"G(T / ",
            b" / x",
            b"G(\rT / x",
            b"G(\n\rT / x",
            b"G(\r1\n\n / x",
            b"G(T / x\r\na: b\r\n ",
            b"G(T / x\r\na: b\r\n\t \r\nc: d",
            b"G(T / x\r\na: b\n\x01",
            b"G(T / x\r\na: b\rc: d",
        ];
        for line in lines {
            let whole = [line, b"\r\nHost: b.org\r\n\r\n"].concat();
            assert!(matches!(first(&whole), First::Broken(_)), "{}", line.escape_ascii());
            let last = (1..=whole.len())
                .find(|&length| matches!(first(&whole[..length]), First::Broken(_)));
            // The field's name is there then, but nothing that it says.
            assert!(
                last.is_some_and(|last| last <= line.len() + 7),
                "{}: {last:?}",
                line.escape_ascii()
            );
        }
    }

    /// Newer ones of Java's end a field by CR alone; an empty line ends the head.
    #[test]
    fn what_is_behind_the_head_names_no_host() {
        let head = b"G(T / x\r\na: b\rHost:";
        assert!(matches!(first(head), First::Broken(_)));
        assert!(matches!(first(&head[..head.len() - 1]), First::Watch));
        for end in ["\r\n\r\n", "\n\n", "\n\r\n"] {
            let whole = [b"G(T / x\r\na: b", end.as_bytes(), b"Host: b.org\r\n\r\n"].concat();
            assert_eq!(first(&whole), First::Other, "{end:?}");
        }
    }

    /// MySQL, MongoDB, LDAP, HL7, syslog: a length is a blank, or digits before one. They pass as soon as that is seen, and
    /// what follows is watched.
    #[test]
    fn a_length_is_no_beginning_of_a_request() {
        for (said, held) in [
            (&b"\x09\x01\0\x01\x85\xa6\xff\x19"[..], 1..2),
            (b"\x20\0\0\x01\x85\xae\xff\x19", 1..2),
            (b"\x0b\x01\0\0\x02\0\0\0", 1..2),
            (b"0\x20\x02\x01\x01\x60\x1b", 2..3),
            (b"\x0bMSH|^~\\&|A|B\rPID|1\x1c\r", 1..8),
            (b"80 <34>1 2026-11-29T10:00:00Z a b", 3..4),
        ] {
            for length in 1..=said.len() {
                let (seen, shown) = (first(&said[..length]), said[..length].escape_ascii());
                let expected = if held.contains(&length) { First::More } else { First::Watch };
                let digits = said[..length].iter().all(u8::is_ascii_digit);
                let expected = if digits { First::Word } else { expected };
                assert_eq!(seen, expected, "{shown}");
            }
            for request in ["GET / HTTP/1.1\r\n", " GET / HTTP/1.1\r\n", " / x\r\nHost: b.org\r\n"]
            {
                let seen = first(&[said, request.as_bytes()].concat());
                assert!(
                    matches!(seen, First::Broken(_)),
                    "{}{request}: {seen:?}",
                    said.escape_ascii()
                );
            }
        }
        // What could be a method, or a target, is held.
        for held in [
            &b"GET \x01"[..],
            b"\x09GET \x01",
            b"2 /",
            b"0 b.org",
            b"A \x02\x01",
            b"\x0b\x09 ",
            b" /",
            b"\t(",
            b" G(T /",
        ] {
            assert_eq!(first(held), First::More, "{}", held.escape_ascii());
            // However long it is: servers answer, whatever they take for its method.
            let long = [held, &vec![b'a'; 9000]].concat();
            let request = [&long, &b" HTTP/1.1\r\nHost: b.org\r\n\r\n"[..]].concat();
            assert_eq!(first(&long), First::More, "{}", held.escape_ascii());
            assert!(
                !matches!(first(&request), First::Watch | First::Other),
                "{}",
                held.escape_ascii()
            );
        }
    }

    #[test]
    fn other_protocols_pass_at_once() {
        let ldap = b"0\x0c\x02\x01\x01\x60\x07\x02\x01\x03\x04\x00\x80\x00";
        let log = b"<34>Oct 11 host nginx: 10.0.0.1 \"GET / HTTP/1.1\" 200 12\n";
        for passes in [
            &ldap[..],
            log,
            b"{\"line\":\"GET / HTTP/1.1\"}\n",
            b"set /a 0 0 1\r\nx\r\n",
            b"CONNECT\nhost:/\n\n\0",
        ] {
            for length in 1..=passes.len() {
                let seen = first(&passes[..length]);
                assert!(
                    matches!(seen, First::Watch | First::Word | First::Other | First::More),
                    "{}: {seen:?}",
                    passes[..length].escape_ascii()
                );
            }
            let seen = first(passes);
            assert!(
                matches!(seen, First::Watch | First::Other),
                "{}: {seen:?}",
                passes.escape_ascii()
            );
        }
        let long = [&b"\0"[..], &[b'x'; super::WATCHED]].concat();
        assert_eq!(first(&long), First::Other);
        assert_eq!(first(b"SSH-2.0-x\r\n"), First::Other);
    }
}
