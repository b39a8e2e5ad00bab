//! The path parser: expansion, normal form, patterns, and bytes of every kind.

use proptest::prelude::*;
use ringfence_policy::path::{Anchored, Bases, PathError, anchor, normal, quote};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

fn read(text: impl AsRef<OsStr>) -> Result<Anchored, PathError> {
    let env = |name: &str| match name {
        "DATA" => Some(OsString::from("/data dir")),
        "STAR" => Some(OsString::from("/x*y?")),
        "RELATIVE" => Some(OsString::from("x/y")),
        "EMPTY" => Some(OsString::new()),
        "BYTES" => Some(OsString::from_vec(b"/b\xff".to_vec())),
        _ => None,
    };
    let bases = Bases { home: Path::new("/home/u"), workdir: Path::new("/cwd"), env: &env };
    anchor(text.as_ref(), &bases)
}

fn path(text: &str) -> String {
    let anchored = read(text).unwrap_or_else(|error| panic!("{text}: {error:?}"));
    assert_eq!(anchored.pattern, None, "{text}");
    anchored.path.to_str().unwrap().to_owned()
}

#[test]
fn short_forms_are_expanded() {
    let cases = [
        ("~", "/home/u"),
        ("~/", "/home/u"),
        ("~/x", "/home/u/x"),
        ("~//x", "/home/u/x"),
        (".", "/cwd"),
        ("./x", "/cwd/x"),
        ("x/./y", "/cwd/x/y"),
        ("../x", "/x"),
        ("../../../x", "/x"),
        ("/a/../../b", "/b"),
        ("/a//b/", "/a/b"),
        ("$DATA", "/data dir"),
        ("${DATA}/x", "/data dir/x"),
        ("$DATA/../x", "/x"),
        ("${NONE:-~/.cargo}/bin", "/home/u/.cargo/bin"),
        ("${DATA:-~/.cargo}/bin", "/data dir/bin"),
        ("${EMPTY:-/e}", "/e"),
        ("x$EMPTY_", "?"),
        ("~/..", "/home"),
        ("/x/**", "/x"),
        ("./**", "/cwd"),
        ("/a~b", "/a~b"),
        ("x~", "/cwd/x~"),
        ("\\~/x", "/cwd/~/x"),
        ("\\$DATA", "/cwd/$DATA"),
        ("a\\*b", "/cwd/a*b"),
        ("what\\?", "/cwd/what?"),
        ("$STAR", "/x*y?"),
        ("a b\nc", "/cwd/a b\nc"),
        ("pre$RELATIVE", "/cwd/prex/y"),
    ];
    for (text, expected) in cases {
        if expected == "?" {
            assert!(matches!(read(text), Err(PathError::Wrong(_))), "{text}");
        } else {
            assert_eq!(path(text), expected, "{text}");
        }
    }
}

#[test]
fn what_may_be_missing_says_so_at_either_end() {
    assert!(read("?~/x").unwrap().optional && read("~/x?").unwrap().optional);
    assert!(!read("~/x").unwrap().optional && !read("~/x\\?").unwrap().optional);
    assert!(read("~/x\\\\?").unwrap().optional);
    assert_eq!(read("?$NONE/x"), Err(PathError::Unset("NONE".into())));
    assert!(matches!(read("$NONE/x"), Err(PathError::Wrong(_))));
}

#[test]
fn what_is_no_path_is_refused() {
    for text in [
        "",
        "?",
        "a\0b",
        "~root/x",
        "${DATA",
        "$",
        "$1",
        "a\\",
        "$RELATIVE/x",
        "a**",
        "/x/a**b/c",
        "${}",
        "*/a\\*",
    ] {
        assert!(matches!(read(text), Err(PathError::Wrong(_))), "{text:?}: {:?}", read(text));
    }
}

#[test]
fn a_pattern_starts_at_its_first_wildcard() {
    let cases = [
        ("*.env", "/cwd", "*.env"),
        ("/a/*/b", "/a", "*/b"),
        ("/a/**/b", "/a", "**/b"),
        ("/a/b?c/d/**", "/a", "b?c/d"),
        ("$STAR/*", "/x*y?", "*"),
        ("/a/*/../b*", "/a", "b*"),
    ];
    for (text, path, pattern) in cases {
        let anchored = read(text).unwrap();
        assert_eq!(
            (anchored.path.to_str().unwrap(), anchored.pattern.as_deref()),
            (path, Some(pattern)),
            "{text}"
        );
    }
}

#[test]
fn bytes_that_are_no_text_are_kept() {
    let anchored = read(OsStr::from_bytes(b"/a\xff/b")).unwrap();
    assert_eq!(anchored.path.as_os_str().as_bytes(), b"/a\xff/b");
    assert_eq!(read("$BYTES/x").unwrap().path.as_os_str().as_bytes(), b"/b\xff/x");
    assert!(matches!(read(OsStr::from_bytes(b"/*/\xff")), Err(PathError::Wrong(_))));
    assert!(matches!(read(OsStr::from_bytes(b"~/\xff?")), Ok(Anchored { optional: true, .. })));
}

proptest! {
    #[test]
    fn every_path_can_be_written_as_a_rule(bytes in prop::collection::vec(1u8.., 1..40)) {
        let path = normal(&Path::new("/").join(OsStr::from_bytes(&bytes)));
        let anchored = read(quote(&path)).unwrap();
        prop_assert_eq!(&anchored.path, &path);
        prop_assert!(!anchored.optional && anchored.pattern.is_none());
    }

    #[test]
    fn whatever_is_read_is_absolute_and_normal(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        if let Ok(anchored) = read(OsStr::from_bytes(&bytes)) {
            let parts: Vec<_> = anchored.path.components().collect();
            prop_assert_eq!(parts[0], Component::RootDir);
            prop_assert!(parts[1..].iter().all(|part| matches!(part, Component::Normal(_))));
            let rebuilt: PathBuf = parts.iter().collect();
            prop_assert_eq!(rebuilt.as_os_str(), anchored.path.as_os_str());
            prop_assert!(!anchored.path.as_os_str().as_bytes().contains(&0));
        }
    }

    #[test]
    fn dots_never_lead_above_the_root(parts in prop::collection::vec("\\.\\.|\\.|[a-z]{1,3}|", 0..12)) {
        let text = format!("/{}", parts.join("/"));
        let path = read(&text).unwrap().path;
        prop_assert!(path.is_absolute());
        prop_assert!(!path.components().any(|part| part == Component::ParentDir));
    }
}
