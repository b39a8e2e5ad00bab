//! The head of an HTTP/1 request (RFC 9112), as far as the host.

use super::{First, odd};
use ringfence_policy::Host;

/// The most bytes of a request's head.
const HEAD: usize = 32 * 1024;
/// The longest first line that is waited for, where it may become a request's: one may fill the head.
const LINE: usize = HEAD;
/// What is said of a longer one.
const LONG: First = First::Broken("a first line of more than 32 KiB");

/// The end of what version 2 of the PROXY protocol begins with; empty lines come before.
const PROXY_2: &[u8] = b"\0\r\nQUIT\n";
/// Servers that take such a header look only at what follows for the host that is meant.
const AFTER_PROXY: First =
    First::Broken("a PROXY header, behind which any other host could be meant");

/// Tells whether the bytes are a request, and for which host.
pub(super) fn read(bytes: &[u8]) -> First {
    // Servers skip empty lines before a request.
    let skipped = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    let bytes = &bytes[skipped..];
    if bytes.is_empty() {
        let endless = First::Broken("empty lines without an end");
        return if skipped < LINE { First::More } else { endless };
    }
    if skipped > 0 && PROXY_2.starts_with(&bytes[..bytes.len().min(PROXY_2.len())]) {
        return if bytes.len() < PROXY_2.len() { First::More } else { AFTER_PROXY };
    }
    let Some(line_end) = bytes.iter().position(|&byte| byte == b'\n') else {
        return match beginning(bytes) {
            Some(Beginning::Word | Beginning::Line) if bytes.len() > LINE => LONG,
            Some(Beginning::Word) if skipped == 0 => First::Word,
            Some(Beginning::Line) if is_gits(bytes) => odd::read(bytes),
            Some(Beginning::Word | Beginning::Line) => First::More,
            Some(Beginning::Odd) | None => odd::read(bytes),
        };
    };
    let line = trim(&bytes[..line_end]);
    if line.starts_with(b"PROXY ") {
        return AFTER_PROXY;
    }
    if line == b"PRI * HTTP/2.0" {
        return First::Broken("HTTP/2 without TLS, in which the host cannot be checked");
    }
    if matches!(beginning(bytes), Some(Beginning::Word | Beginning::Line)) && line_end > LINE {
        return LONG;
    }
    let (target, like) = match (target(line), target_of_like(line)) {
        (Some(target), _) => (target, false),
        (None, Some(target)) => (target, true),
        (None, None) => {
            let (_, rest) = split(line, token);
            let begins = rest.first().is_none_or(|&byte| blank(byte));
            return match begins && loosely(line) {
                true => First::Broken("a request line that servers read differently"),
                false => odd::read(bytes),
            };
        }
    };
    match head(&bytes[line_end + 1..], bytes[..line_end].ends_with(b"\r")) {
        Ok(Some(host)) if like => judge_like(target, &host),
        Ok(Some(host)) => judge(line, target, host),
        Ok(None) if bytes.len() < HEAD => First::More,
        Ok(None) => First::Broken("a request whose head has more than 32 KiB"),
        Err(what) => First::Broken(what),
    }
}

/// What an unfinished first line may still become.
enum Beginning {
    /// A method, of which all that is there is a part.
    Word,
    /// A request line: a method, and what some server takes for a space after it.
    Line,
    /// The same, with what few take for one, and other protocols say as well (in LDAP it is a length).
    Odd,
}

/// Whether a first line begins as a request line does, as the most lenient server reads it. What it ends with
/// decides then, however long it is: none of it may be passed on before. Lengths that other protocols begin with can be
/// blanks, or digits before one: no method begins so, or no target of what is called like a number.
fn beginning(line: &[u8]) -> Option<Beginning> {
    let (before, rest) = split(line, blank);
    let (word, rest) = split(rest, token);
    let (between, rest) = split(rest, blank);
    let first = before.first().or(between.first());
    match (between, rest) {
        // Behind a blank a target alone is a request to some.
        ([], [byte, ..]) if before.is_empty() || !begins_target(*byte) => None,
        (_, [byte, ..])
            if word.first().is_some_and(u8::is_ascii_digit) && !begins_target(*byte) =>
        {
            None
        }
        _ => Some(match first {
            None => Beginning::Word,
            Some(b' ' | b'\t' | 0x0b | b'\r') => Beginning::Line,
            Some(_) => Beginning::Odd,
        }),
    }
}

/// The bytes up to the first that is none of these, and the rest.
fn split(bytes: &[u8], of: fn(u8) -> bool) -> (&[u8], &[u8]) {
    bytes.split_at(bytes.iter().take_while(|&&byte| of(byte)).count())
}

/// Whether a target could begin so: with what may be in a URL.
fn begins_target(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"\"<>\\{}|^`".contains(&byte)
}

/// Whether bytes are the request of git's own protocol, whole (gitprotocol-pack(5)): its length, `git-upload-pack /path`,
/// and words that end in zero bytes. No line ends it, and its server waits for no more.
fn is_gits(bytes: &[u8]) -> bool {
    let Some((length, request)) = bytes.split_at_checked(4) else { return false };
    let length =
        std::str::from_utf8(length).ok().and_then(|text| u16::from_str_radix(text, 16).ok());
    let services = [&b"git-upload-pack "[..], b"git-receive-pack ", b"git-upload-archive "];
    length.map(usize::from) == Some(bytes.len())
        && services.iter().any(|service| request.starts_with(service))
        && request.ends_with(b"\0")
}

/// What servers take for a space between the words of a request line (RFC 9112 §3; and Python's, which splits text as
/// Unicode has it).
pub(super) fn blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | 0x0b | 0x0c | b'\r' | 0x1c..=0x1f | 0x85 | 0xa0)
}

/// Whether a word begins so, in whatever case.
fn starts(word: &[u8], with: &[u8]) -> bool {
    word.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with))
}

/// Protocols whose requests have the form of HTTP's. There are servers of HTTP that take such a version too.
const LIKE: [&[u8]; 4] = [b"RTSP/", b"SIP/", b"ICAP/", b"ICE/"];

/// Whether a lenient server could take a line for a request's: one of its words is a version; or it is one of HTTP/0.9,
/// which has none. That names a host where its second word is a URL, and servers exist that look for fields after it.
fn loosely(line: &[u8]) -> bool {
    let version = |word: &[u8]| {
        let of = |name: &[u8]| {
            starts(word, name) && word.get(name.len()).is_some_and(u8::is_ascii_digit)
        };
        of(b"http/") || LIKE.into_iter().any(of)
    };
    let mut words = line.split(|&byte| blank(byte)).filter(|word| !word.is_empty());
    if words.clone().any(version) {
        return true;
    }
    match (words.next(), words.next()) {
        (Some(b"GET"), Some([b'/', ..])) => true,
        (_, Some(word)) => {
            starts(word, b"http:") || starts(word, b"https:") || absolute(word).is_some()
        }
        _ => false,
    }
}

/// What follows the scheme of a URL with a host, whatever the scheme is (RFC 3986 §3.1).
fn absolute(word: &[u8]) -> Option<&[u8]> {
    let colon = word.windows(3).position(|part| part == b"://").filter(|&colon| colon > 0)?;
    let letter = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    word[..colon].iter().all(letter).then(|| &word[colon + 3..])
}

fn token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn trim(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// The target of a request line; nothing when the line is none that all servers read alike.
fn target(line: &[u8]) -> Option<&[u8]> {
    target_of(line, b"HTTP/", b'1')
}

/// The target of a request line of a protocol that is like HTTP.
fn target_of_like(line: &[u8]) -> Option<&[u8]> {
    LIKE.into_iter()
        .find_map(|name| target_of(line, name, if name == b"SIP/" { b'2' } else { b'1' }))
}

/// The target of a request line with this major version.
fn target_of<'a>(line: &'a [u8], protocol: &[u8], major: u8) -> Option<&'a [u8]> {
    let method = line.iter().position(|&byte| byte == b' ')?;
    let (name, rest) = (&line[..method], &line[method + 1..]);
    let space = rest.iter().rposition(|&byte| byte == b' ')?;
    let (target, version) = (&rest[..space], rest[space + 1..].strip_prefix(protocol)?);
    let controls = |&byte: &u8| byte <= b' ' || byte == 0x7f;
    let good = !name.is_empty()
        && name.iter().all(|&byte| token(byte))
        && !target.is_empty()
        && !target.iter().any(controls)
        && matches!(version, [first, b'.', minor] if *first == major && minor.is_ascii_digit());
    good.then_some(target)
}

/// The values of all `Host` fields of a complete head. Its lines end as the first one does: to a server that knows one end
/// alone, others are a part of a line, and a body's beginning may be one of the head.
fn head(mut rest: &[u8], whole: bool) -> Result<Option<Vec<&[u8]>>, &'static str> {
    let mut hosts = Vec::new();
    loop {
        let Some(end) = rest.iter().position(|&byte| byte == b'\n') else { return Ok(None) };
        if rest[..end].ends_with(b"\r") != whole {
            return Err("a head whose lines end in different ways");
        }
        let line = trim(&rest[..end]);
        rest = &rest[end + 1..];
        if line.is_empty() {
            return Ok(Some(hosts));
        }
        let (name, value) = field(line)?;
        if name.eq_ignore_ascii_case(b"host") {
            hosts.push(value);
        }
    }
}

/// The name and the value of a field, of its line without the end.
pub(crate) fn field(line: &[u8]) -> Result<(&[u8], &[u8]), &'static str> {
    if line.first().is_some_and(|byte| matches!(byte, b' ' | b'\t')) {
        return Err("a folded header field");
    }
    let Some(colon) = line.iter().position(|&byte| byte == b':') else {
        return Err("a header line without a colon");
    };
    let name = &line[..colon];
    if name.is_empty() || !name.iter().all(|&byte| token(byte)) {
        return Err("a header field whose name is none");
    }
    if line.contains(&b'\r') || line.contains(&0) {
        return Err("a header field with a stray control character");
    }
    Ok((name, blanks(&line[colon + 1..])))
}

/// A value without the blanks around it: spaces and tabs, and no others (RFC 9110 §5.6.3).
pub(crate) fn blanks(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

fn judge(line: &[u8], target: &[u8], hosts: Vec<&[u8]>) -> First {
    let named = match hosts[..] {
        [] if !line.ends_with(b"HTTP/1.0") => {
            return First::Broken("a request without a Host");
        }
        [] => None,
        [host] => match authority(host) {
            Some(host) => Some(host),
            None => return First::Broken("a request whose Host is none"),
        },
        _ => return First::Broken("a request with two Hosts"),
    };
    if line.starts_with(b"CONNECT ") {
        return match (authority(target), named) {
            (Some(host), None) => First::Http { host: Some(host), proxied: true },
            (Some(host), Some(named)) if host == named => {
                First::Http { host: Some(host), proxied: true }
            }
            _ => First::Broken("a CONNECT to one host and another in Host"),
        };
    }
    if target.starts_with(b"/") || target == b"*" {
        return First::Http { host: named, proxied: false };
    }
    // An absolute target wins over the Host field, for servers that look at no scheme too, so both must be the same.
    let Some(rest) = absolute(target) else {
        return First::Broken("a request whose target is neither a path nor a URL");
    };
    let end = rest.iter().position(|byte| b"/?#".contains(byte)).unwrap_or(rest.len());
    match (authority(&rest[..end]), named) {
        (None, _) => First::Broken("a request whose target has no host"),
        (Some(host), Some(named)) if host != named => {
            First::Broken("a request with one host in its target and another in Host")
        }
        (host, _) => First::Http { host, proxied: true },
    }
}

/// Which host a request of a protocol that is like HTTP names: in a target that is a URL, or in a field, as a server of
/// HTTP would look for it there.
fn judge_like(target: &[u8], hosts: &[&[u8]]) -> First {
    let in_target = absolute(target).map(|rest| {
        let end = rest.iter().position(|byte| b"/?#".contains(byte)).unwrap_or(rest.len());
        &rest[..end]
    });
    let mut named = None;
    for text in in_target.into_iter().chain(hosts.iter().copied()) {
        match (authority(text), &named) {
            (None, _) => return First::Broken("a request whose Host is none"),
            (Some(host), Some(other)) if host != *other => {
                return First::Broken("a request with one host in its target and another in Host");
            }
            (host, _) => named = host,
        }
    }
    First::Like { host: named }
}

/// The host of `HOST[:PORT]`.
pub(crate) fn authority(text: &[u8]) -> Option<Host> {
    let text = std::str::from_utf8(text).ok()?;
    let (host, port) = match text.rfind(':') {
        Some(colon) if !text[colon..].contains(']') => (&text[..colon], &text[colon + 1..]),
        _ => (text, ""),
    };
    let port = port.bytes().all(|byte| byte.is_ascii_digit());
    Host::parse(host).ok().filter(|_| port)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> First {
        First::Http { host: Host::parse(name).ok(), proxied: false }
    }

    #[test]
    fn what_proxies_are_asked_is_known() {
        for text in [
            "CONNECT a.org:443 HTTP/1.1\r\nHost: a.org:443\r\n\r\n",
            "CONNECT a.org:443 HTTP/1.0\r\n\r\n",
            "GET http://a.org/x HTTP/1.1\r\nHost: a.org\r\n\r\n",
        ] {
            let expected = First::Http { host: Host::parse("a.org").ok(), proxied: true };
            assert_eq!(read(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn the_host_of_a_request_is_read() {
        for (text, name) in [
            ("GET / HTTP/1.1\r\nHost: a.org\r\n\r\n", "a.org"),
            ("\r\n\nGET / HTTP/1.1\nHOST:A.org:8080\n\n", "a.org"),
            ("GET http://a.org/x HTTP/1.1\r\nHost: a.org\r\n\r\nbody", "a.org"),
            ("GET WS://A.org:80/x HTTP/1.1\r\nHost: a.org\r\n\r\n", "a.org"),
            ("GET /http://b.org/ HTTP/1.1\r\nHost: a.org\r\n\r\n", "a.org"),
            ("GET //b.org/ HTTP/1.1\r\nHost: a.org\r\n\r\n", "a.org"),
            ("OPTIONS * HTTP/1.1\r\nHost: a.org\r\n\r\n", "a.org"),
            ("x-custom /a HTTP/1.1\r\nx: y\r\nHost: [::1]:80\r\n\r\n", "::1"),
        ] {
            let of = matches!(read(text.as_bytes()), First::Http { host, .. } if host == Host::parse(name).ok());
            assert!(of, "{text}");
        }
        assert_eq!(read(b"GET / HTTP/1.0\r\n\r\n"), First::Http { host: None, proxied: false });
    }

    #[test]
    fn what_servers_read_differently_is_refused() {
        for text in [
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a.org\r\nHost: b.org\r\n\r\n",
            "GET / HTTP/1.1\r\nHost : a.org\r\n\r\n",
            "GET / HTTP/1.1\r\nX: y\r\n Host: a.org\r\nHost: b.org\r\n\r\n",
            "GET http://b.org/ HTTP/1.1\r\nHost: a.org\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a.org, b.org\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: \x0ca.org\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a.org\n\r\n",
            "POST / HTTP/1.1\r\nHost: a.org\r\nContent-Length: 9\n\nHost: b.org\r\n\r\n",
            "GET / HTTP/1.1\nHost: a.org\r\n\n",
            "GET / HTTP/1.1\r\nHost: a.org\0\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a.org\rHost: b.org\r\n\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            "GET ws://b.org/ HTTP/1.1\r\nHost: a.org\r\n\r\n",
            "GET x-1+y.z://b.org HTTP/1.1\r\nHost: a.org\r\n\r\n",
            "GET http:\\\\b.org/ HTTP/1.1\r\nHost: a.org\r\n\r\n",
            "GET b.org/ HTTP/1.1\r\nHost: a.org\r\n\r\n",
            "GET ://b.org/ HTTP/1.1\r\nHost: a.org\r\n\r\n",
            "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\nGET / HTTP/1.1\r\n",
            "\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c",
        ] {
            assert!(matches!(read(text.as_bytes()), First::Broken(_)), "{text:?}");
        }
    }

    /// A lenient server reads a request where a strict reader sees none: what passed as another protocol would
    /// be served for whatever host it names.
    #[test]
    fn what_only_some_servers_take_for_a_request_is_no_other_protocol() {
        let rest = "Host: b.org\r\n\r\n";
        for line in [
            " GET / HTTP/1.1",
            "GET\t/ HTTP/1.1",
            "GET\t/\tHTTP/1.1",
            "GET\x0b/\x0cHTTP/1.1",
            "GET / http/1.1",
            "GET /a b HTTP/1.1",
            "GET  http://b.org/ HTTP/1.1",
            "GET /\x01 HTTP/1.1",
            "GET / HTTP/1.1 ",
            "GET / HTTP/1.1\rHost: b.org",
            "GET / HTTP/1.10",
            "GET / HTTP/2.0",
            "GET /",
            "GET http://b.org/",
            "GET\tHTTPS://b.org/ ",
            "GET ws://b.org/",
            "SETUP  / RTSP/1.0",
            "SETUP\t/ rtsp/1.0",
            "SOURCE /a b ICE/1.0",
            "SETUP / RTSP/1.10",
        ] {
            let text = format!("{line}\r\n{rest}");
            assert!(matches!(read(text.as_bytes()), First::Broken(_)), "{line:?}");
            for length in 1..line.len() {
                let part = read(&line.as_bytes()[..length]);
                assert!(matches!(part, First::More | First::Word), "{:?}", &line[..length]);
            }
        }
        let endless = |line: String| {
            for length in [LINE - 1, LINE, LINE + 1, line.len()] {
                let read = read(&line.as_bytes()[..length]);
                let waits = length <= LINE && matches!(read, First::More | First::Word);
                assert!(waits || matches!(read, First::Broken(_)), "{length}: {read:?}");
            }
        };
        let long = "a".repeat(LINE + 9);
        endless(format!("GET /{long} HTTP/1.1\r\n{rest}"));
        endless(format!("{long} / HTTP/1.1\r\n{rest}"));
        endless("\r\n".repeat(LINE));
    }

    /// Signed links and long queries: as much as the rest of a head may have.
    #[test]
    fn a_request_line_may_fill_a_head() {
        for (length, good) in [(HEAD - 60, true), (HEAD + 1, false)] {
            let path = "a".repeat(length);
            let request = format!("GET /{path} HTTP/1.1\r\nHost: a.org\r\n\r\n");
            let expected = if good { host("a.org") } else { LONG };
            assert_eq!(read(request.as_bytes()), expected, "{length}");
            // However it comes.
            let part = read(&request.as_bytes()[..request.len().min(LINE + 1) - 1]);
            assert_eq!(part, First::More, "{length}");
        }
    }

    /// Node's server takes the first of these for requests of its own.
    #[test]
    fn protocols_with_the_form_of_http_are_known_and_name_a_host() {
        let like =
            |name: Option<&str>| First::Like { host: name.and_then(|name| Host::parse(name).ok()) };
        for (text, name) in [
            ("SETUP / RTSP/1.0\r\nHost: b.org\r\n\r\n", Some("b.org")),
            ("DESCRIBE rtsp://B.org:554/x RTSP/1.0\r\nCSeq: 2\r\n\r\n", Some("b.org")),
            ("OPTIONS * RTSP/1.0\r\nCSeq: 1\r\n\r\n", None),
            ("SOURCE /x ICE/1.0\r\n\r\n", None),
            ("OPTIONS icap://b.org/x ICAP/1.0\r\nHost: b.org\r\n\r\n", Some("b.org")),
            ("INVITE sip:bob@b.org SIP/2.0\r\nVia: x\r\n\r\n", None),
        ] {
            assert_eq!(read(text.as_bytes()), like(name), "{text}");
        }
        for text in [
            "SETUP rtsp://a.org/ RTSP/1.0\r\nHost: b.org\r\n\r\n",
            "SETUP / RTSP/1.0\r\nHost: a.org\r\nHost: b.org\r\n\r\n",
            "SETUP rtsp://user@a.org/ RTSP/1.0\r\n\r\n",
            "SETUP / RTSP/1.0\r\nHost : a.org\r\n\r\n",
        ] {
            assert!(matches!(read(text.as_bytes()), First::Broken(_)), "{text:?}");
        }
        assert_eq!(read(b"SETUP / RTSP/1.0\r\nHost: b.org\r\n"), First::More);
    }

    #[test]
    fn other_protocols_are_neither_held_up_nor_taken_for_http() {
        for text in [
            "SSH-2.0-x\r\n",
            "\x00\x00\x00\x08",
            "*1\r\n$4\r\nPING\r\n",
            "SET a b\r\n",
            "SET a http://b.org/\r\n",
            "get /a\r\n",
            "http://b.org/\r\n",
            "\u{80}.\x01",
        ] {
            let seen = read(text.as_bytes());
            assert!(matches!(seen, First::Other | First::Watch), "{text:?}: {seen:?}");
        }
        assert_eq!(read(b"GET / HT"), First::More);
        assert_eq!(read(b"0042"), First::Word);
        // Git's, whole and no more; what comes then is still looked at.
        let git = b"0033git-upload-pack /project.git\0host=myserver.com\0";
        assert_eq!(read(git), First::Watch);
        assert_eq!(read(&git[..git.len() - 1]), First::More);
        assert_eq!(read(b"0021git-upload-pack /a\0host=b.org "), First::More);
        let then = |more: &[u8]| read(&[git, more].concat());
        assert!(matches!(then(b"0032want 7f\n"), First::Other | First::Watch));
        assert!(matches!(then(b" HTTP/1.1\r\nHost: b.org\r\n\r\n"), First::Broken(_)));
    }
}
