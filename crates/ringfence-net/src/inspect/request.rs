//! Whether one request may pass, and in which spelling: the path that was judged is the path that
//! is sent, so that no server reads it differently.

use super::besides;
use crate::first::authority;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Uri};
use ringfence_policy::http::{encoded, never, normal_path};
use ringfence_policy::{Decision, Host, Policy, decide_over};

/// Where a connection leads.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub host: Host,
    pub port: u16,
    /// By TLS.
    pub secure: bool,
}

/// Why a request does not pass.
#[derive(Debug)]
pub(super) struct Refused {
    /// A sentence.
    pub why: String,
    /// The policy's answer, when it is the policy's.
    pub decision: Option<Box<Decision>>,
}

/// A header's name as some servers spell it: those that hand headers on as variables (CGI, WSGI, Rack, PHP)
/// make no difference between `X-Key` and `X_Key`.
pub(super) fn plain_name(name: &HeaderName) -> String {
    let plain = |character: char| if character.is_ascii_alphanumeric() { character } else { '-' };
    name.as_str().chars().map(plain).collect()
}

/// Headers by which some servers take another host, or are told of it.
const OTHER_HOST: [&str; 7] = [
    "forwarded",
    "x-forwarded-host",
    "x-forwarded-server",
    "x-host",
    "x-http-host-override",
    "x-original-forwarded-host",
    "x-original-host",
];
/// Headers by which some (Gunicorn, Spring, ASP.NET) take a part of the path for the application's own place (PEP 3333), or
/// are told by proxies before them what was asked for there.
const PLACE: [&str; 7] = [
    "path-info",
    "script-name",
    "x-envoy-original-path",
    "x-forwarded-path",
    "x-forwarded-prefix",
    "x-original-method",
    "x-script-name",
];
/// Headers by which a store of objects (Swift) takes another account than that of the path.
const OTHER_ACCOUNT: [&str; 3] =
    ["destination-account", "x-copy-from-account", "x-symlink-target-account"];
/// Headers that concern one connection, not the request (RFC 9110 §7.6.1).
const OF_THE_CONNECTION: [&str; 7] = [
    "connection",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
];

impl Place {
    /// `HOST`, with the port where it is not the scheme's own.
    pub fn authority(&self) -> String {
        if self.port == self.usual() { self.host.to_string() } else { self.whole() }
    }

    fn whole(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Whether a host that a request names is this one. Loopback goes by several names.
    fn is(&self, host: &Host) -> bool {
        *host == self.host || host.is_loopback() && self.host.is_loopback()
    }

    /// The host that an authority (`HOST`, `HOST:PORT`) names, if that is where the connection leads.
    pub(super) fn named(&self, named: &[u8]) -> Option<Host> {
        let text = String::from_utf8_lossy(named);
        let port = text
            .rsplit_once(':')
            .filter(|(_, port)| !port.contains(']'))
            .map_or(Some(self.usual()), |(_, port)| port.parse().ok());
        authority(named).filter(|host| self.is(host) && port == Some(self.port))
    }

    /// The scheme's own port.
    fn usual(&self) -> u16 {
        if self.secure { 443 } else { 80 }
    }

    pub fn url(&self, path: &str) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://{}{path}", self.whole())
    }
}

/// Judges a request over a connection of which `settled` was said, and makes of it what is sent on: addressed
/// to the one host, by the path that was judged, without what concerns the client's connection only. Returns
/// the path without its query.
///
/// # Errors
/// [`Refused`].
pub(super) fn judge(
    policy: &Policy,
    settled: &Decision,
    place: &Place,
    parts: &mut Parts,
) -> Result<String, Refused> {
    let refused = |why: String| Err(Refused { why, decision: None });
    let method = parts.method.clone();
    if never(method.as_str()) {
        // Some servers read any case.
        return refused(format!("{method} has no place in an inspected connection"));
    }
    let named = same_host(place, parts)?;
    let path = parts.uri.path();
    if !path.starts_with('/') {
        return refused(format!("{method} {path} concerns no path"));
    }
    let ask = |method: &str, path: &str| {
        let decision = decide_over(policy, settled, method, &place.url(path));
        match decision.allowed {
            true => Ok(()),
            false => Err(Refused {
                why: decision.explanation.clone(),
                decision: Some(Box::new(decision)),
            }),
        }
    };
    ask(method.as_str(), path)?;
    if policy.network.http.iter().any(|rule| rule.host.matches(&place.host, place.port)) {
        let path = path.to_owned();
        besides::allowed(place, &mut parts.headers, (method.as_str(), &path), &ask)?;
    }
    // One spelling for us and for the server; a path without one is allowed as all of a host only.
    let spelled = normal_path(path).unwrap_or_else(|| path.to_owned());
    let target = match parts.uri.query() {
        Some(query) => format!("{spelled}?{query}"),
        None => spelled.clone(),
    };
    let target = encoded(target.as_bytes()).unwrap_or(target);
    parts.uri = target.parse::<Uri>().map_err(|_| Refused {
        why: format!("the path of {method} {path} is none"),
        decision: None,
    })?;
    clean(&mut parts.headers);
    remove(&mut parts.headers, &[&OTHER_HOST, &PLACE, &OTHER_ACCOUNT]);
    parts.headers.remove(header::EXPECT);
    let place = Place { host: named.unwrap_or_else(|| place.host.clone()), ..place.clone() };
    if let Ok(host) = HeaderValue::try_from(place.authority()) {
        parts.headers.insert(header::HOST, host);
    }
    Ok(spelled)
}

/// All that a request names as its host must be where the connection leads. Returns it as named:
/// loopback goes by several names, between which servers may distinguish.
fn same_host(place: &Place, parts: &Parts) -> Result<Option<Host>, Refused> {
    let wrong = |named: &str| Refused {
        why: format!("a request over the connection to {} asks for {named}", place.whole()),
        decision: None,
    };
    if let Some(scheme) = parts.uri.scheme_str()
        && scheme != if place.secure { "https" } else { "http" }
    {
        return Err(wrong(scheme));
    }
    let fields = parts.headers.get_all(header::HOST).iter().map(HeaderValue::as_bytes);
    let target = parts.uri.authority().map(|authority| authority.as_str().as_bytes());
    let mut found = None;
    for named in fields.chain(target) {
        match place.named(named) {
            Some(host) if found.as_ref().is_none_or(|other| *other == host) => found = Some(host),
            _ => return Err(wrong(&String::from_utf8_lossy(named).escape_debug().to_string())),
        }
    }
    // HTTP/1.0 needs none; then it is the connection's.
    if found.is_none() && parts.version != hyper::Version::HTTP_10 {
        return Err(wrong("no host"));
    }
    Ok(found)
}

/// Takes out of trailers what says where a request goes, how it ends, who makes it, or what it is: some servers
/// take them for headers, which were judged before (RFC 9110 §6.5.1).
pub(super) fn clean_trailers(trailers: &mut HeaderMap) {
    const NOT_AFTER: [&str; 7] =
        ["host", "content-length", "trailer", "expect", "authorization", "cookie", "content-type"];
    let lists = [&NOT_AFTER[..], &OTHER_HOST, &PLACE, &OTHER_ACCOUNT, &OF_THE_CONNECTION];
    remove(trailers, &[&lists[..], &besides::ALL].concat());
}

/// Takes out what has one of these names, in any spelling that a server may take for it.
fn remove(headers: &mut HeaderMap, lists: &[&[&str]]) {
    let wrong = |name: &HeaderName| {
        let plain = plain_name(name);
        lists.iter().any(|list| list.contains(&plain.as_str()))
    };
    let names: Vec<HeaderName> = headers.keys().filter(|name| wrong(name)).cloned().collect();
    names.iter().for_each(|name| {
        headers.remove(name);
    });
}

/// Takes out what concerns the connection that a message came by.
pub(super) fn clean(headers: &mut HeaderMap) {
    if let Some(value) = headers.get(header::CONNECTION) {
        // A client could name anything here, to have it vanish on the way.
        let named: Vec<HeaderName> = value
            .to_str()
            .unwrap_or_default()
            .split(',')
            .filter_map(|name| name.trim().parse().ok())
            .filter(|name: &HeaderName| name.as_str().starts_with("x-"))
            .collect();
        named.iter().for_each(|name| {
            headers.remove(name);
        });
    }
    let trailers = headers
        .get_all("te")
        .iter()
        .any(|value| value.as_bytes().eq_ignore_ascii_case(b"trailers"));
    for name in OF_THE_CONNECTION {
        headers.remove(name);
    }
    if trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
}

/// Whether servers exist that leave the body of such a request unread, and take it for the next one: of methods that mostly
/// have none.
pub(super) fn leaves_body(method: &Method) -> bool {
    !matches!(*method, Method::POST | Method::PUT | Method::PATCH)
}

/// Makes one of the pieces in which HTTP/2 sends a cookie: HTTP/1.1 knows no others (RFC 9113 §8.2.3).
pub(super) fn whole_cookie(headers: &mut HeaderMap) {
    let pieces: Vec<&[u8]> =
        headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
    if pieces.len() > 1
        && let Ok(whole) = HeaderValue::from_bytes(&pieces.join(&b"; "[..]))
    {
        headers.insert(header::COOKIE, whole);
    }
}

/// Whether a request asks for a WebSocket, or an answer changes to one (RFC 6455 §4).
pub(super) fn websocket(headers: &HeaderMap) -> bool {
    headers
        .get(header::UPGRADE)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::rules::tests::policy;
    use proptest::prelude::*;
    use ringfence_policy::decide;
    use ringfence_policy::decide::Request;
    use ringfence_policy::{HttpRule, Source};

    pub(in crate::inspect) fn rules(list: &[&str]) -> Policy {
        let mut policy = policy(&[], &[]);
        for text in list {
            let (methods, rest) = text.split_once(' ').expect("a rule");
            let at = rest.find('/').expect("a path");
            policy.network.http.push(HttpRule {
                methods: methods.split(',').filter(|m| *m != "*").map(str::to_owned).collect(),
                host: rest[..at].parse().expect("a host"),
                path: rest[at..].to_owned(),
                source: Source {
                    origin: "option --http".to_owned(),
                    key: String::new(),
                    text: (*text).to_owned(),
                },
            });
        }
        policy
    }

    fn place(host: &str) -> Place {
        Place { host: Host::parse(host).expect("a host"), port: 443, secure: true }
    }

    pub(in crate::inspect) fn ask(
        policy: &Policy,
        method: &str,
        uri: &str,
        headers: &[(&str, &str)],
    ) -> Result<Parts, String> {
        let mut request = hyper::Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (mut parts, ()) = request.body(()).map_err(|error| error.to_string())?.into_parts();
        let place = place("a.org");
        let settled = connection(policy, &place);
        judge(policy, &settled, &place, &mut parts).map_err(|refused| refused.why)?;
        Ok(parts)
    }

    fn connection(policy: &Policy, place: &Place) -> Decision {
        decide(policy, &Request::Connect { host: place.host.clone(), port: place.port })
    }

    /// The rules about its requests hold on a connection that a person allowed, as where a rule did.
    #[test]
    fn what_an_answer_allowed_is_judged_as_what_a_rule_did() {
        let place = place("a.org");
        let asked = |policy: &Policy, settled: &Decision, method: &str| {
            let request = hyper::Request::builder().method(method).uri("/open/x");
            let request = request.header("host", "a.org").body(()).expect("a request");
            let mut parts = request.into_parts().0;
            judge(policy, settled, &place, &mut parts).is_ok()
        };
        // Rules about credentials allow nothing, and rule no requests.
        for (policy, get, delete) in
            [(rules(&[]), true, true), (rules(&["GET a.org/open/*"]), true, false)]
        {
            let denied = connection(&rules(&[]), &place);
            let once = Decision { allowed: true, ..denied.clone() };
            assert_eq!(asked(&policy, &once, "GET"), get);
            assert_eq!(asked(&policy, &once, "DELETE"), delete);
            assert!(!asked(&policy, &denied, "GET"));
        }
    }

    pub(in crate::inspect) const HOST: (&str, &str) = ("host", "a.org");

    #[test]
    fn what_is_sent_is_what_was_judged() {
        let policy = rules(&["GET a.org/open/*", "POST a.org/exact"]);
        for (written, sent) in [
            ("/open/x?q=/../y", "/open/x?q=/../y"),
            ("/open//a/./b", "/open/a/b"),
            ("/%6fpen/x", "/open/x"),
            ("/shut/../open/", "/open/"),
            ("https://A.org:443/open/x", "/open/x"),
            ("/open/\u{e9}\"?\u{e9}", "/open/%C3%A9%22?%C3%A9"),
        ] {
            let parts = ask(&policy, "GET", written, &[HOST]).expect(written);
            assert_eq!(parts.uri.to_string(), sent, "{written}");
        }
        for (method, wrong) in [
            ("POST", "/open/x"),
            ("GET", "/exact"),
            ("POST", "/exact/more"),
            ("GET", "/open/../shut"),
            ("GET", "/open/%2e%2e/shut"),
            ("GET", "/open/..;/shut"),
            ("GET", "/open%2fx"),
            ("GET", "/Open/x"),
            ("get", "/open/x%00"),
            ("GET", "/open"),
        ] {
            assert!(ask(&policy, method, wrong, &[HOST]).is_err(), "{method} {wrong}");
        }
    }

    #[test]
    fn no_other_host_is_asked_for() {
        let policy = rules(&["* a.org/*"]);
        let mut sent = vec![HOST, ("x_forwarded_host", "b.org"), ("x-forwarded-for", "192.0.2.1")];
        sent.extend(OTHER_HOST.map(|name| (name, "b.org")));
        sent.extend(PLACE.map(|name| (name, "/shut")));
        sent.extend(OTHER_ACCOUNT.map(|name| (name, "another")));
        sent.extend([("X-Original-Host", "b.org"), ("X_Forwarded_Server", "b.org")]);
        sent.extend([("X-Original-Forwarded-Host", "b.org"), ("X-Envoy-Original-Path", "/shut")]);
        sent.extend([("X-Forwarded-Path", "/shut"), ("X-Original-Method", "DELETE")]);
        sent.extend([("x-forwarded-prefix", "/shut"), ("X_Script_Name", "/shut")]);
        sent.extend([("script_name", "/open"), ("SCRIPT-NAME", "/open"), ("path_info", "/shut")]);
        let parts = ask(&policy, "GET", "/", &sent).expect("it is for a.org");
        let mut names: Vec<_> = parts.headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["host", "x-forwarded-for"]);
        let good =
            [("A.ORG", "/"), ("a.org.", "/"), ("a.org:443", "/"), ("a.org", "https://a.org/")];
        for (host, uri) in good {
            assert!(ask(&policy, "GET", uri, &[("host", host)]).is_ok(), "{host} {uri}");
        }
        for (host, uri) in [
            ("b.org", "/"),
            ("a.org:80", "/"),
            ("a.org:x", "/"),
            ("", "/"),
            ("a.org", "https://b.org/"),
            ("a.org", "http://a.org/"),
            ("a.org", "https://a.org:8443/"),
            ("u@a.org", "/"),
            ("a.org, b.org", "/"),
        ] {
            assert!(ask(&policy, "GET", uri, &[("host", host)]).is_err(), "{host} {uri}");
        }
        assert!(ask(&policy, "GET", "/", &[HOST, ("host", "b.org")]).is_err());
        assert!(ask(&policy, "GET", "/", &[]).is_err());
    }

    #[test]
    fn trailers_hold_nothing_that_was_judged_before() {
        let mut trailers = HeaderMap::new();
        for name in ["host", "x_http_method_override", "x-original-url", "te", "authorization"] {
            trailers.insert(HeaderName::from_static(name), HeaderValue::from_static("x"));
        }
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        clean_trailers(&mut trailers);
        assert_eq!(trailers.keys().collect::<Vec<_>>(), ["grpc-status"]);
    }

    #[test]
    fn what_gives_back_or_tunnels_is_refused_whatever_the_rules() {
        let policy = rules(&["* a.org/*"]);
        for method in ["TRACE", "TRACK", "trace", "Connect"] {
            assert!(ask(&policy, method, "/", &[HOST]).is_err(), "{method}");
        }
        assert!(ask(&policy, "CONNECT", "a.org:443", &[HOST]).is_err());
        assert!(ask(&policy, "OPTIONS", "*", &[HOST]).is_err());
    }

    #[test]
    fn what_concerns_the_connection_stays_behind() {
        let policy = rules(&["* a.org/*"]);
        let parts = ask(
            &policy,
            "GET",
            "/",
            &[
                HOST,
                ("connection", "keep-alive, x-hop, authorization"),
                ("x-hop", "1"),
                ("authorization", "kept"),
                ("te", "trailers"),
                ("proxy-authorization", "secret"),
                ("expect", "100-continue"),
                ("upgrade", "h2c"),
            ],
        )
        .expect("allowed");
        let mut names: Vec<_> = parts.headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["authorization", "host", "te"]);
    }

    #[test]
    fn the_pieces_of_a_cookie_are_one() {
        let mut headers = HeaderMap::new();
        whole_cookie(&mut headers);
        assert!(headers.is_empty());
        for piece in ["a=1", "b=2", "c=3"] {
            headers.append(header::COOKIE, HeaderValue::from_static(piece));
        }
        whole_cookie(&mut headers);
        let all: Vec<_> = headers.get_all(header::COOKIE).iter().collect();
        assert_eq!(all, ["a=1; b=2; c=3"]);
    }

    proptest! {
        /// The proxy and `why` say the same, whatever the path.
        #[test]
        fn agrees_with_decide(path in "/[a-c%2eEfF5C./;?A-Z~\"<>`\u{e9} -]{0,24}", method in "GET|POST|DELETE") {
            let policy = rules(&["GET a.org/a/*", "POST a.org/b", "DELETE a.org/*"]);
            let request = Request::Http {
                method: method.clone(),
                url: format!("https://a.org{path}"),
            };
            let said = decide(&policy, &request).allowed;
            let path = encoded(path.as_bytes()).unwrap_or(path);
            if path.parse::<Uri>().is_ok() {
                prop_assert_eq!(ask(&policy, &method, &path, &[HOST]).is_ok(), said);
            }
        }

        /// What passes is judged the same once more: one spelling is enough.
        #[test]
        fn what_passed_would_pass_again(path in "/[a-c%2e./]{0,24}") {
            let policy = rules(&["GET a.org/a/*"]);
            if let Ok(parts) = ask(&policy, "GET", &path, &[HOST]) {
                let sent = parts.uri.to_string();
                let again = ask(&policy, "GET", &sent, &[HOST]).expect("it passes again");
                prop_assert_eq!(again.uri.to_string(), sent);
            }
        }
    }
}
