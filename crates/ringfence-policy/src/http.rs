//! Requests: the rules of `--http` and `--inject`, and the URLs they are asked about.

use crate::error::PolicyError;
use crate::host::{Host, HostRule};
use crate::policy::{HttpRule, InjectRule, Source};
use crate::shown;

/// A URL taken apart into what rules are about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Whether it is `https`.
    pub secure: bool,
    /// Its host.
    pub host: Host,
    /// Its port, 443 or 80 when it names none.
    pub port: u16,
    /// Its path, normalised, without query; `None` when servers read it differently
    /// ([`normal_path`]).
    pub path: Option<String>,
}

impl Url {
    /// Reads `http[s]://HOST[:PORT][/PATH]`; without a scheme, `https`.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn parse(text: &str) -> Result<Url, String> {
        let (secure, rest) = match text.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (true, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (false, rest),
            Some((scheme, _)) => return Err(format!("`{scheme}` is neither http nor https")),
            None => (true, text),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        // What is behind its colon is a password, and no port.
        if authority.contains('@') {
            return Err("a user name does not belong here".to_owned());
        }
        let colon = authority.rfind(':').filter(|&at| !authority[at..].contains(']'));
        let (host, port) = match colon {
            Some(at) => (&authority[..at], crate::port::port(&authority[at + 1..])?),
            None => (authority, if secure { 443 } else { 80 }),
        };
        let host = Host::parse(host).map_err(|error| error.to_string())?;
        let path = path.split(['?', '#']).next().unwrap_or(path);
        Ok(Url { secure, host, port, path: normal_path(path) })
    }
}

/// A target, or a path, with the bytes as `%XX` that URLs do not hold (RFC 3986 §2) and programs write nevertheless, as
/// browsers send them; nothing where it has none of them.
pub fn encoded(target: &[u8]) -> Option<String> {
    let foreign = |byte: u8| matches!(byte, b'"' | b'<' | b'>' | b'`' | 0x80..);
    if !target.iter().copied().any(foreign) {
        return None;
    }
    let mut out = String::with_capacity(target.len() * 2);
    for &byte in target {
        match foreign(byte) {
            true => out.push_str(&format!("%{byte:02X}")),
            false => out.push(char::from(byte)),
        }
    }
    Some(out)
}

/// A path with its dot segments and doubled slashes taken out, its needless escapes undone, and needed ones made ([`encoded`]).
///
/// `None` for what servers understand differently: an escaped slash, backslash, dot segment
/// hidden twice or behind blanks and dots, NUL or other control character, a character in more bytes than it takes
/// (RFC 3629 §10), or a broken escape. Such a request matches no
/// rule that names a path, only those for all of a host (`HOST/*`).
pub fn normal_path(path: &str) -> Option<String> {
    let encoded = encoded(path.as_bytes());
    let path = encoded.as_deref().unwrap_or(path);
    let mut decoded = String::with_capacity(path.len());
    let mut before = 0;
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let (high, low) = (rest.next()?, rest.next()?);
                let digits = [high, low];
                let digits = std::str::from_utf8(&digits).ok()?;
                if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                    return None;
                }
                let value = u8::from_str_radix(digits, 16).ok()?;
                let long = matches!(
                    (before, value),
                    (0xe0, 0x80..0xa0) | (0xed, 0xa0..0xc0) | (0xf0, 0x80..0x90)
                );
                before = value;
                match value {
                    0xc0 | 0xc1 | 0xf5.. => return None,
                    _ if long => return None,
                    b'/' | b'\\' | b'%' | 0..0x20 | 0x7f => return None,
                    b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                        decoded.push(char::from(value));
                    }
                    _ => {
                        decoded.push('%');
                        decoded.push_str(&digits.to_ascii_uppercase());
                    }
                }
            }
            b'\\' | 0..0x21 | 0x7f.. => return None,
            byte => {
                before = 0;
                decoded.push(char::from(byte));
            }
        }
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in decoded.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part if hides_dots(part) => return None,
            part => parts.push(part),
        }
    }
    let directory = decoded.ends_with('/') || decoded.ends_with("/.") || decoded.ends_with("/..");
    let mut out = format!("/{}", parts.join("/"));
    if directory && out.len() > 1 {
        out.push('/');
    }
    Some(out)
}

/// Whether a segment is `.` or `..` to some servers: to those that end it at a `;` (`..;x`), undone once more too, and to those
/// whose system drops blanks and dots at the end of a name (Windows).
fn hides_dots(part: &str) -> bool {
    let mut rest = part;
    while let Some(shorter) = rest.strip_prefix('.').or_else(|| rest.strip_prefix("%20")) {
        rest = shorter;
    }
    let dotted = part[..part.len() - rest.len()].contains('.');
    dotted && (rest.is_empty() || rest.starts_with(';') || rest.starts_with("%3B"))
}

/// Whether a method, in any case, passes no connection that is looked at: `TRACE` gives back what was sent, credentials
/// included, and `CONNECT` leads elsewhere.
pub fn never(method: &str) -> bool {
    ["CONNECT", "TRACE", "TRACK"].iter().any(|name| method.eq_ignore_ascii_case(name))
}

/// Whether a rule allows a request, its host apart. The method is the one that is sent, in its case. A path of `None` is one
/// that servers read differently.
pub fn matches(rule: &HttpRule, method: &str, path: Option<&str>) -> bool {
    let method = rule.methods.is_empty() || rule.methods.iter().any(|known| known == method);
    let path = match (rule.path.strip_suffix('*'), path) {
        (Some("/"), _) => true,
        (_, None) => false,
        (Some(prefix), Some(path)) => path.starts_with(prefix),
        (None, Some(path)) => path == rule.path,
    };
    method && path
}

/// Where the text of an `--inject` rule says that its secret comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretSource<'a> {
    /// A variable of the caller's environment.
    Variable(&'a str),
    /// A file.
    File(&'a str),
    /// A descriptor that the caller left open.
    Descriptor(u16),
    /// What a command prints.
    Command(&'a str),
}

/// The parts of an `--inject` rule's value: the text before the secret, where the secret comes
/// from, the text after it.
///
/// # Errors
/// A sentence that says what is wrong; the text itself is not repeated: it may be the secret,
/// typed where its source belongs.
pub fn secret_parts(text: &str) -> Result<(&str, SecretSource<'_>, &str), String> {
    let (before, inside, after) = match (text.find('{'), text.rfind('}')) {
        (Some(start), Some(end)) if start < end => {
            (&text[..start], &text[start + 1..end], &text[end + 1..])
        }
        (None, None) => ("", text, ""),
        _ => return Err("a `{` needs its `}`".to_owned()),
    };
    if text.chars().any(char::is_control) {
        return Err("it holds a control character".to_owned());
    }
    let known = "write `env:NAME`, `file:PATH`, `fd:N` or `cmd:COMMAND`";
    let wrong = || format!("the secret is not written here but named: {known}");
    let source = match inside.split_once(':') {
        Some((_, "")) => return Err(format!("after the colon of `{inside}` comes what it names")),
        Some(("env", name)) => SecretSource::Variable(name),
        Some(("file", path)) => SecretSource::File(path),
        Some(("cmd", command)) => SecretSource::Command(command),
        Some(("fd", number)) => SecretSource::Descriptor(number.parse().map_err(|_| wrong())?),
        _ => return Err(wrong()),
    };
    Ok((before, source, after))
}

/// Reads `METHOD[,METHOD] HOST/PATH`.
pub(crate) fn rule(source: Source) -> Result<HttpRule, PolicyError> {
    let wrong = |reason: String| PolicyError::value(&source, reason);
    let form =
        || wrong("write `METHOD[,METHOD] HOST/PATH`, as in `GET example.org/api/*`".to_owned());
    let (methods, rest) = source.text.trim().split_once(char::is_whitespace).ok_or_else(form)?;
    let rest = rest.trim();
    let (host, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, "/*"),
    };
    let mut names = Vec::new();
    if methods != "*" {
        for method in methods.split(',') {
            // A `*` within one would be taken for a pattern.
            if !token(method) || method.contains('*') {
                return Err(wrong(format!(
                    "`{method}` is no method; write for example `GET,HEAD`, or `*` for any"
                )));
            }
            names.push(method.to_ascii_uppercase());
        }
    }
    let host = HostRule::parse(host).map_err(|error| wrong(error.to_string()))?;
    let (prefix, star) = match path.strip_suffix('*') {
        Some(prefix) => (prefix, "*"),
        None => (path, ""),
    };
    if prefix.contains(['*', '?', '#']) {
        return Err(wrong(
            "a `*` stands at the end of the path only, and no query belongs to it".to_owned(),
        ));
    }
    let path =
        normal_path(prefix).ok_or_else(|| wrong(format!("the path `{prefix}` is ambiguous")))?;
    Ok(HttpRule { methods: names, host, path: path + star, source })
}

/// The option that allows a request with this path or, with a `*` at its end, those below it; nothing where a rule cannot
/// name the method, in its case, or the place.
pub(crate) fn grant(method: &str, place: &str, path: &str) -> Option<String> {
    let text = format!("{method} {place}{path}");
    let source = Source { origin: String::new(), key: String::new(), text: text.clone() };
    let read = rule(source).ok()?;
    let same = read.methods == [method] && read.path == path;
    same.then(|| format!("--http {}", shown::word(&text)))
}

/// Whether a text is a token (RFC 9110 §5.6.2), as methods and names of headers are.
pub(crate) fn token(text: &str) -> bool {
    let of_one = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(of_one)
}

/// Methods with a meaning (IANA's registry, caches' PURGE, and M-SEARCH of UPnP).
const METHODS: [&str; 42] = [
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "DELETE",
    "PATCH",
    "OPTIONS",
    "CONNECT",
    "TRACE",
    "ACL",
    "BASELINE-CONTROL",
    "BIND",
    "CHECKIN",
    "CHECKOUT",
    "COPY",
    "LABEL",
    "LINK",
    "LOCK",
    "M-SEARCH",
    "MERGE",
    "MKACTIVITY",
    "MKCALENDAR",
    "MKCOL",
    "MKREDIRECTREF",
    "MKWORKSPACE",
    "MOVE",
    "ORDERPATCH",
    "PROPFIND",
    "PROPPATCH",
    "QUERY",
    "REBIND",
    "REPORT",
    "SEARCH",
    "UNBIND",
    "UNCHECKOUT",
    "UNLINK",
    "UNLOCK",
    "UPDATE",
    "UPDATEREDIRECTREF",
    "VERSION-CONTROL",
    "PURGE",
    "PRI",
];

/// What to say of a rule with a method that looks like a slip: servers may have methods of their own.
pub(crate) fn unusual(rule: &HttpRule) -> Option<String> {
    let unknown = |method: &&String| !METHODS.contains(&method.as_str());
    rule.methods.iter().filter(unknown).find_map(|method| {
        let nearest = crate::suggest::nearest(method, &METHODS)?;
        Some(format!("{}: `{method}` is no usual method; the nearest is `{nearest}`", rule.source))
    })
}

/// Reads `HOST HEADER=SOURCE`.
pub(crate) fn inject(source: Source) -> Result<InjectRule, PolicyError> {
    let wrong = |reason: &str| PolicyError::value(&source, reason);
    let form = "write `HOST HEADER=SOURCE`, as in `example.org Authorization=Bearer {env:TOKEN}`";
    let (host, rest) =
        source.text.trim().split_once(char::is_whitespace).ok_or_else(|| wrong(form))?;
    let (header, secret) = rest.trim_start().split_once('=').ok_or_else(|| wrong(form))?;
    if !token(header) {
        return Err(wrong("before `=` stands the name of a header, as in `Authorization`"));
    }
    let header = header.to_ascii_lowercase();
    // These decide where a request ends or goes; a rule about credentials has no business there.
    const FRAMING: [&str; 6] =
        ["host", "content-length", "transfer-encoding", "connection", "upgrade", "te"];
    if FRAMING.contains(&&*header) {
        return Err(wrong("this header belongs to the connection and cannot be set"));
    }
    let host = HostRule::parse(host).map_err(|error| PolicyError::value(&source, error))?;
    secret_parts(secret).map_err(|reason| wrong(&reason))?;
    Ok(InjectRule { host, header, secret: secret.to_owned(), file: None, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_one_spelling() {
        let cases = [
            ("", "/"),
            ("/a/./b//c", "/a/b/c"),
            ("/a/../b", "/b"),
            ("/../..", "/"),
            ("/%61/%2e%2e/b", "/b"),
            ("/a/", "/a/"),
            ("/a/b/..", "/a/"),
            ("/a%20b", "/a%20b"),
            ("/.a/..b/%20/a./a%20/.%20a", "/.a/..b/%20/a./a%20/.%20a"),
            ("/%c3%a9", "/%C3%A9"),
            ("/%e2%82%ac%e0x%90;a", "/%E2%82%AC%E0x%90;a"),
            ("/\u{e9}", "/%C3%A9"),
            ("/\"<a>`{b}|^", "/%22%3Ca%3E%60{b}|^"),
        ];
        for (written, normal) in cases {
            assert_eq!(normal_path(written).as_deref(), Some(normal), "{written}");
        }
        for wrong in [
            "/a%2fb",
            "/a%5Cb",
            "/%252e",
            "/%",
            "/%zz",
            "/%+1",
            "/a\\b",
            "/%00",
            "/..;/a",
            "/%2e%2e%3b/a",
            "/a/..%20/b",
            "/a/.%20/b",
            "/a/..%20",
            "/a/%2e%2e%20%2e/b",
            "/a/.../b",
            "/a/%20../b",
            "/a/..%20;x/b",
            "/%c0%ae%c0%ae/a",
            "/%e0%80%af",
            "/%F0%80%80%AE",
            "/a b",
        ] {
            assert_eq!(normal_path(wrong), None, "{wrong}");
        }
    }

    fn read(text: &str) -> Result<HttpRule, PolicyError> {
        let source =
            Source { origin: "option --http".into(), key: String::new(), text: text.into() };
        rule(source)
    }

    #[test]
    fn rules_match_their_requests_only() {
        let rule = read("get,HEAD api.example.org/repos/*").expect("a rule");
        assert_eq!(rule.methods, ["GET", "HEAD"]);
        assert!(matches(&rule, "GET", Some("/repos/x")));
        assert!(matches(&rule, "HEAD", Some("/repos/")));
        assert!(!matches(&rule, "get", Some("/repos/x")), "another method");
        assert!(!matches(&rule, "POST", Some("/repos/x")) && !matches(&rule, "GET", Some("/repo")));
        assert!(!matches(&rule, "GET", None), "an ambiguous path is in no tree");
        let exact = read("* example.org/a").expect("a rule");
        assert!(matches(&exact, "DELETE", Some("/a")) && !matches(&exact, "GET", Some("/a/b")));
        let whole = read("GET example.org").expect("a rule");
        assert!(matches(&whole, "GET", None) && !matches(&whole, "PUT", None));
        let tokens = read("version-control,M-SEARCH,X_1'!#$%&+.^`|~ example.org/").expect("a rule");
        assert_eq!(tokens.methods, ["VERSION-CONTROL", "M-SEARCH", "X_1'!#$%&+.^`|~"]);
        for wrong in [
            "GET",
            "GE* example.org/",
            "GET,* example.org/",
            "GET,,PUT example.org/",
            "G(T example.org/",
            "GET/ example.org/",
            "GET exa mple.org/",
            "GET example.org/a*b",
            "GET example.org/%2f",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_secret_is_named_and_never_repeated() {
        let source = |text: &str| Source {
            origin: "option --inject".into(),
            key: String::new(),
            text: text.into(),
        };
        let rule =
            inject(source("api.example.org Authorization=Bearer {env:TOKEN}")).expect("a rule");
        assert_eq!(
            (rule.header.as_str(), rule.secret.as_str()),
            ("authorization", "Bearer {env:TOKEN}")
        );
        for wrong in [
            "example.org X=hunter2",
            "example.org X={env:A",
            "example.org X=fd:x",
            "example.org Host=env:A",
            "example.org X=env:",
        ] {
            assert!(inject(source(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn urls_are_taken_apart() {
        let url = Url::parse("https://API.Example.org.:8443/a/../b?q#f").expect("a URL");
        assert_eq!(url.host, Host::Name("api.example.org".into()));
        assert_eq!((url.port, url.path.as_deref(), url.secure), (8443, Some("/b"), true));
        assert_eq!(Url::parse("http://[::1]/").expect("a URL").port, 80);
        assert!(Url::parse("ftp://example.org").is_err());
        for user in ["https://user@example.org/", "http://user:pw@example.org:80/", "http://a:1@b/"]
        {
            assert_eq!(Url::parse(user).expect_err("a user"), "a user name does not belong here");
        }
        assert!(Url::parse("https://example.org/@a:b").is_ok());
    }
}
