//! The fuzz targets, on bytes made up here: every parser meets every kind of nonsense in CI too.

use proptest::prelude::*;
use ringfence_policy::fuzzing;

fn all(bytes: &[u8]) {
    fuzzing::profile(bytes);
    fuzzing::path(bytes);
    fuzzing::host(bytes);
    fuzzing::git_config(bytes);
    fuzzing::git_state(bytes);
    fuzzing::git_state(&[b"DIRC\0\0\0\x02\0\0\0\x01", bytes].concat());
    fuzzing::settings(bytes);
}

/// Pieces that mean something to one of the parsers.
const PIECES: [&str; 46] = [
    "[filesystem]",
    "read",
    "=",
    "[",
    "]",
    "\"",
    "'",
    "\n",
    "#",
    ",",
    "{",
    "}",
    "~",
    "/",
    "..",
    "**",
    "*",
    "?",
    "$",
    "${",
    "HOME",
    ":-",
    "\\",
    "\\u0000",
    "\0",
    ":",
    "443",
    "-",
    "::",
    "ffff:",
    "127.0.0.1",
    "0x7f",
    "%eth0",
    "xn--",
    ".",
    "a",
    "example.org",
    "[core]",
    "fsmonitor",
    "true",
    "permissions",
    "allow",
    "Read(",
    ")",
    "//",
    "/*",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        all(&bytes);
    }

    #[test]
    fn likely_texts_are_read_or_refused(pieces in prop::collection::vec(prop::sample::select(&PIECES[..]), 0..24)) {
        all(pieces.concat().as_bytes());
    }

    #[test]
    fn settings_of_any_shape_are_read_or_refused(
        key in prop::sample::select(&[
            "permissions.allow", "permissions.deny", "sandbox.filesystem.denyRead", "network.allowedDomains",
            "network.deniedDomains", "filesystem.allowWrite", "filesystem.denyWrite", "env", "command.deny",
        ][..]),
        texts in prop::collection::vec(prop::collection::vec(prop::sample::select(&PIECES[..]), 0..6), 0..4),
    ) {
        let texts: Vec<String> = texts.iter().map(|pieces| pieces.concat()).collect();
        let mut json = serde_json::json!(texts);
        for name in key.rsplit('.') {
            json = serde_json::json!({ name: json });
        }
        fuzzing::settings(json.to_string().as_bytes());
    }
}

#[test]
fn deep_nesting_is_read_or_refused() {
    for open in ["[", "{\"a\":", "a = [", "[a", "("] {
        all(open.repeat(10_000).as_bytes());
    }
}
