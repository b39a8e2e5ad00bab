//! Requests of any bytes, as fuzzing makes them, under rules of its own.

use super::request::{Place, judge};
use hyper::header;
use ringfence_policy::decide::Request;
use ringfence_policy::{Host, Policy, decide};

/// Judges what bytes say of a request, by rules of its own; for fuzzing.
pub(crate) fn judge_any(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut lines = text.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut request = hyper::Request::builder().method(method).uri(target);
    for (name, value) in lines.take_while(|line| !line.is_empty()).filter_map(|l| l.split_once(':'))
    {
        request = request.header(name, value.trim());
    }
    let Ok(request) = request.body(()) else { return };
    let place = Place { host: Host::Name("a.org".to_owned()), port: 443, secure: true };
    let policy = only_a();
    let (mut parts, ()) = request.into_parts();
    let connect = Request::Connect { host: place.host.clone(), port: place.port };
    let Ok(path) = judge(&policy, &decide(&policy, &connect), &place, &mut parts) else { return };
    let sent = place.url(parts.uri.path());
    let request = Request::Http { method: parts.method.to_string(), url: sent };
    assert!(decide(&policy, &request).allowed, "{path} is sent as {}", parts.uri);
    assert_eq!(parts.headers[header::HOST], "a.org");
    assert!(path.starts_with("/a/") && !path.contains("..") && !path.contains("//"), "{path}");
}

/// `GET a.org/a/*` and nothing else.
fn only_a() -> Policy {
    let mut policy = Policy::default();
    policy.network.mode = ringfence_policy::NetworkMode::Filtered;
    policy.network.http.push(ringfence_policy::HttpRule {
        methods: vec!["GET".to_owned()],
        host: ringfence_policy::HostRule {
            target: ringfence_policy::host::Target::Name("a.org".to_owned()),
            ports: ringfence_policy::port::Ports::default(),
        },
        path: "/a/*".to_owned(),
        source: ringfence_policy::Source {
            origin: "fuzzing".to_owned(),
            key: String::new(),
            text: String::new(),
        },
    });
    policy
}
