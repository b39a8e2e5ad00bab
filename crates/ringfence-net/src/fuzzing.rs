//! What the fuzz targets run: each parser on any bytes, with what must hold of what it reads.
//!
//! They are here and not in `fuzz/`, so that an ordinary test runs them as well.

use crate::dns;
use crate::first::{First, first};
use crate::inspect;
use crate::names::Names;
use crate::proxy;
use crate::requests::Requests;
use ringfence_policy::Host;

/// A question is answered in its own name, or not at all; only an allowed one gets an address.
pub fn dns(bytes: &[u8]) {
    let mut names = Names::default();
    let allowed = &mut |host: &Host| host.to_string().len().is_multiple_of(2);
    let (answer, _) = dns::answer(bytes, &mut names, true, allowed);
    if !answer.is_empty() {
        assert_eq!(answer[..2], bytes[..2], "the same number");
        assert!(answer.len() >= 12 && answer[2] & 0x80 != 0, "an answer");
    }
}

/// A TLS or HTTP beginning: what was told of it stays true, however much more comes.
pub fn beginning(bytes: &[u8]) {
    let mut seen = First::More;
    for length in 0..=bytes.len().min(512) {
        let now = first(&bytes[..length]);
        assert!(matches!(seen, First::More | First::Word | First::Watch) || now == seen);
        seen = now;
    }
}

/// A stream of requests passes or does not, however it is cut; what passes is a part of it.
pub fn requests(bytes: &[u8]) {
    let judge = |first: &First| match first {
        First::Http { .. } => Ok(()),
        _ => Err("no request".to_owned()),
    };
    let pass = |size: usize| {
        let (mut requests, mut out) = (Requests::default(), Vec::new());
        let parts = bytes.chunks(size.max(1));
        let result = parts.into_iter().try_for_each(|part| requests.feed(part, &judge, &mut out));
        (result.is_ok(), out)
    };
    let whole = pass(bytes.len());
    let cut = pass(7);
    assert_eq!(whole.0, cut.0);
    if whole.0 {
        assert_eq!(whole.1, cut.1);
    }
    assert!(whole.1.len() <= bytes.len());
    // For an engine targets are spelled in one way, which changes no answer but by their length.
    let (mut requests, mut spelled) = (Requests::of(usize::MAX - 2), Vec::new());
    let _ = requests.feed(bytes, &judge, &mut spelled);
    let mut again = Vec::new();
    let mut requests = Requests::of(usize::MAX - 2);
    let result = requests.feed(&spelled, &judge, &mut again);
    assert!(result.is_ok() && again.len() <= spelled.len(), "what passed passes again");
}

/// A request to an inspected host: what passes is allowed by the policy in the spelling that is
/// sent, and names the host that it goes to.
pub fn request(bytes: &[u8]) {
    inspect::judge_any(bytes);
}

/// What comes to the proxy inside: CONNECT, a URL, SOCKS5.
pub fn proxy(bytes: &[u8]) {
    proxy::ask_any(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Path;

    type Target = fn(&[u8]);

    /// Inputs worth keeping: what fuzzing begins with, and what it has found.
    #[test]
    fn the_corpus() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
        let targets: [(&str, Target); 5] = [
            ("beginning", beginning),
            ("dns", dns),
            ("proxy", proxy),
            ("request", request),
            ("requests", requests),
        ];
        for (name, target) in targets {
            let mut files: Vec<_> = std::fs::read_dir(root.join(name))
                .unwrap_or_else(|error| panic!("{name}: {error}"))
                .map(|entry| entry.expect("an entry").path())
                .collect();
            files.sort();
            assert!(!files.is_empty(), "{name}");
            for file in files {
                let bytes = std::fs::read(&file).expect("a file");
                // Each beginning too: what comes in pieces, and what ends early.
                for length in 0..=bytes.len().min(1024) {
                    target(&bytes[..length]);
                }
                target(&bytes);
            }
        }
    }

    proptest! {
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            dns(&bytes);
            beginning(&bytes);
            requests(&bytes);
            request(&bytes);
            proxy(&bytes);
            proxy(&[&[5, 1, 0, 5, 1, 0], &bytes[..]].concat());
        }

        #[test]
        fn requests_like_bytes(
            method in "GET|POST|TRACE|get|CONNECT",
            target in "(https?://)?(a.org|b.org)?(:443|:80)?/[a-c%2eEfF5C./;?\"<`\u{e9}]{0,16}",
            lines in proptest::collection::vec(
                "(Host|X-Original-URL|Content-Length|Transfer-Encoding|X-HTTP-Method): ?(a.org|b.org|/a/b|5|chunked|POST)",
                0..4
            ),
            tail in "[0-9a-f]{0,9}[ ;\t\x0c]{0,2}[0-9a-z]?\r\n(0\r\n)?[A-Z]{0,2}:?[ /]{0,2}x? ?(HTTP/1.1)?\r\n(\r\n)?",
        ) {
            let text = format!("{method} {target} HTTP/1.1\r\n{}\r\n\r\n{tail}", lines.join("\r\n"));
            beginning(text.as_bytes());
            requests(text.as_bytes());
            request(text.as_bytes());
        }

        #[test]
        fn questions_like_bytes(
            id in any::<[u8; 2]>(),
            flags in any::<[u8; 2]>(),
            name in proptest::collection::vec("[a-z]{1,5}", 0..5),
            kind in 0u16..60,
        ) {
            let mut query = [&id[..], &flags, &[0, 1, 0, 0, 0, 0, 0, 0]].concat();
            for label in name {
                query.push(label.len() as u8);
                query.extend_from_slice(label.as_bytes());
            }
            query.push(0);
            query.extend_from_slice(&kind.to_be_bytes());
            query.extend_from_slice(&[0, 1]);
            dns(&query);
        }
    }
}
