//! What a request asks for besides its request line, by headers: another method, another path, or a second one that is
//! written or read too. Each must be allowed as well.

use super::request::{Place, Refused, plain_name};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use ringfence_policy::http::{encoded, normal_path};

/// Headers by which programs ask a server to take another method than the one they send.
const OTHER_METHOD: [&str; 4] =
    ["x-http-method-override", "x-http-method", "x-http-verb-override", "x-method-override"];
/// Headers by which some servers take another path.
const OTHER_PATH: [&str; 9] = [
    "x-forwarded-uri",
    "x-invoke-path",
    "x-matched-path",
    "x-original-path",
    "x-original-uri",
    "x-original-url",
    "x-override-url",
    "x-request-uri",
    "x-rewrite-url",
];
/// Where `COPY` and `MOVE` write (RFC 4918 §10.3).
const DESTINATION: [&str; 1] = ["destination"];
/// What a server copies from, which can be read then: of stores of objects.
const SOURCE: [&str; 14] = [
    "x-amz-copy-source",
    "x-amz-rename-source",
    "x-bce-copy-source",
    "x-copy-from",
    "x-cos-copy-source",
    "x-goog-copy-source",
    "x-ms-copy-source",
    "x-ms-rename-source",
    "x-nos-copy-source",
    "x-object-manifest",
    "x-obs-copy-source",
    "x-oss-copy-source",
    "x-symlink-target",
    "x-tos-copy-source",
];

/// All of them.
pub(super) const ALL: [&[&str]; 4] = [&OTHER_METHOD, &OTHER_PATH, &DESTINATION, &SOURCE];

/// Whether a method and a path of the connection's host may be asked for.
type Ask<'a> = &'a dyn Fn(&str, &str) -> Result<(), Refused>;

/// What a request with this method and path asks for besides must be allowed too; a second path, and another method, are
/// sent in the spelling that was judged.
///
/// # Errors
/// [`Refused`].
pub(super) fn allowed(
    place: &Place,
    headers: &mut HeaderMap,
    (method, path): (&str, &str),
    ask: Ask<'_>,
) -> Result<(), Refused> {
    for (name, value) in headers.iter_mut() {
        let plain = plain_name(name);
        let of = |list: &[&str]| list.contains(&plain.as_str());
        if !ALL.iter().any(|list| of(list)) {
            continue;
        }
        let text = value.to_str().map_err(|_| unreadable(name))?.trim().to_owned();
        if of(&OTHER_METHOD) {
            // As servers read it that make no difference of case; others do.
            let capitals = text.to_ascii_uppercase();
            ask(&capitals, path)?;
            *value = HeaderValue::try_from(capitals).map_err(|_| unreadable(name))?;
        } else if of(&OTHER_PATH) {
            let other = text.split(['?', '#']).next().unwrap_or(&text);
            if !other.starts_with('/') {
                return Err(unreadable(name));
            }
            ask(method, other)?;
        } else if of(&DESTINATION) {
            let (host, other) = of_this_host(place, name, &text)?;
            // What a query of a path that is written would mean nobody knows.
            let spelled = normal_path(other).filter(|_| !other.contains(['?', '#']));
            let spelled = spelled.ok_or_else(|| unreadable(name))?;
            ask(method, &spelled)?;
            let sent = encoded(format!("{host}{spelled}").as_bytes());
            let sent = sent.unwrap_or_else(|| format!("{host}{spelled}"));
            *value = HeaderValue::try_from(sent).map_err(|_| unreadable(name))?;
        } else {
            // A version of it is asked for by a query.
            let text = text.split(['?', '#']).next().unwrap_or(&text);
            let below = format!("/{}", text.trim_start_matches('/'));
            let url = text.contains("://");
            let other = if url { of_this_host(place, name, text)?.1 } else { &below };
            ask("GET", other)?;
        }
    }
    Ok(())
}

/// The host of a URL as written, nothing for a path alone, and the path; the host must be the connection's.
fn of_this_host<'t>(
    place: &Place,
    name: &HeaderName,
    text: &'t str,
) -> Result<(&'t str, &'t str), Refused> {
    if text.starts_with('/') && !text.starts_with("//") {
        return Ok(("", text));
    }
    let rest = text.split_once("://").ok_or_else(|| unreadable(name))?.1;
    let end = rest.find('/').ok_or_else(|| unreadable(name))?;
    let (whole, path) = text.split_at(text.len() - rest.len() + end);
    let named = &rest[..end];
    let scheme = if place.secure { "https://" } else { "http://" };
    let same =
        whole.to_ascii_lowercase().starts_with(scheme) && place.named(named.as_bytes()).is_some();
    if !same {
        let why = format!(
            "the request's header {name} names {}, where the connection leads to {}",
            whole.escape_debug(),
            place.authority()
        );
        return Err(Refused { why, decision: None });
    }
    Ok((whole, path))
}

fn unreadable(name: &HeaderName) -> Refused {
    Refused { why: format!("the request's header {name} cannot be read"), decision: None }
}

#[cfg(test)]
mod tests {
    use crate::inspect::request::tests::{HOST, ask, rules};

    /// RFC 4918 §10.3, and what stores of objects copy from.
    #[test]
    fn a_second_path_is_judged_too() {
        let policy = rules(&["GET,PUT,COPY,MOVE a.org/open/*"]);
        let with = |method, name, value| ask(&policy, method, "/open/x", &[HOST, (name, value)]);
        for (value, sent) in [
            ("/open/y", "/open/y"),
            ("https://a.org/open/y", "https://a.org/open/y"),
            ("https://A.org:443/open/z/../%79", "https://A.org:443/open/y"),
        ] {
            let parts = with("COPY", "Destination", value).expect("allowed");
            assert_eq!(parts.headers["destination"], sent);
        }
        for value in [
            "/shut/y",
            "https://a.org/shut/y",
            "https://a.org/open/../shut",
            "https://b.org/open/y",
            "http://a.org/open/y",
            "https://a.org:8443/open/y",
            "https://u@b.org/open/y",
            "//a.org/open/y",
            "https://a.org",
            "open/y",
            "/open/..%2fshut",
            "/open/y?z",
            "",
        ] {
            for (method, name) in [("MOVE", "Destination"), ("COPY", "DESTINATION")] {
                assert!(with(method, name, value).is_err(), "{method} {value}");
            }
        }
        for (name, value, allowed) in [
            ("x-amz-copy-source", "open/y", true),
            ("x-amz-copy-source", "/open/y?versionId=3", true),
            ("x-amz-copy-source", "/shut/y", false),
            ("x-ms-copy-source", "https://a.org/open/y?sig=x", true),
            ("x-ms-copy-source", "https://b.org/open/y", false),
            ("X-Copy-From", "shut/y", false),
            ("x_goog_copy_source", "shut%2Fy", false),
            ("x-oss-copy-source", "/shut/y", false),
            ("x-oss-copy-source", "/open/y", true),
            ("X-Symlink-Target", "shut/y", false),
        ] {
            assert_eq!(with("PUT", name, value).is_ok(), allowed, "{name}: {value}");
        }
    }

    #[test]
    fn methods_and_paths_in_headers_are_judged_too() {
        let policy = rules(&["GET,POST a.org/open/*", "DELETE a.org/trash/*"]);
        let parts = ask(&policy, "POST", "/open/x", &[HOST, ("X-Method-Override", "get")]);
        assert_eq!(parts.expect("allowed").headers["x-method-override"], "GET");
        let with = |name, value| ask(&policy, "POST", "/open/x", &[HOST, (name, value)]).is_ok();
        assert!(with("x-http-method-override", "get") && with("x-original-url", "/open/y?z"));
        for (name, value) in [
            ("X-HTTP-Method-Override", "DELETE"),
            ("X-Method-Override", "delete"),
            ("X-HTTP-Method", "PUT"),
            ("X-Original-URL", "/shut"),
            ("X-Original-URI", "/shut"),
            ("X-Forwarded-Uri", "/shut"),
            ("X-Rewrite-URL", "/open/../shut"),
            ("X-Rewrite-URL", "https://a.org/shut"),
            ("X_HTTP_Method_Override", "DELETE"),
            ("X-HTTP-Verb-Override", "DELETE"),
            ("X-Request-Uri", "/shut"),
            ("X-Invoke-Path", "/shut"),
            ("X.Original-URL", "/shut"),
        ] {
            assert!(!with(name, value), "{name}: {value}");
        }
    }
}
