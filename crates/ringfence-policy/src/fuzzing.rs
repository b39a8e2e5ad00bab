//! What the fuzz targets run: each parser on any bytes, with what must hold of what it reads.
//!
//! They are here and not in `fuzz/`, so that an ordinary test runs them as well.

use crate::gitconfig;
use crate::gitnamed::{self, Base};
use crate::gitstate::{self, Content};
use crate::host::{Host, HostRule};
use crate::import::{Peer, import};
use crate::path::{Bases, anchor, normal, quote};
use crate::profile::Profile;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A profile that is read is written so that it is read again.
pub fn profile(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(profile) = Profile::from_toml(text, "fuzz") else { return };
    let again = Profile::from_toml(&profile.to_toml(), "fuzz").expect("what was written is read");
    assert_eq!(again.values, profile.values);
    assert_eq!(again.configurations, profile.configurations);
    let _ = profile.lines();
}

/// A path that is read is absolute and normal, and can be written as a rule again.
pub fn path(bytes: &[u8]) {
    let env = |name: &str| (name.len() % 2 == 1).then(|| OsString::from("/some where/*"));
    let bases = Bases { home: Path::new("/home/u"), workdir: Path::new("/cwd"), env: &env };
    let Ok(anchored) = anchor(OsStr::from_bytes(bytes), &bases) else { return };
    assert!(anchored.path.is_absolute());
    assert_eq!(normal(&anchored.path).as_os_str(), anchored.path.as_os_str());
    let again = anchor(&quote(&anchored.path), &bases).expect("what was written is read");
    assert_eq!(again.path, anchored.path);
    if let Some(pattern) = &anchored.pattern {
        let _ = crate::glob::covers(pattern, bytes);
    }
}

/// A host that is read is written so that it is read again, and holds nothing that another
/// program could read differently.
pub fn host(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(host) = Host::parse(text) {
        let written = host.to_string();
        assert!(written.is_ascii() && !written.contains(['\0', ' ', '@', '/', '%']));
        assert_eq!(Host::parse(&written).expect("what was written is read"), host);
    }
    if let Ok(rule) = HostRule::parse(text) {
        assert_eq!(HostRule::parse(&rule.to_string()).expect("what was written is read"), rule);
    }
    if let Ok(url) = crate::http::Url::parse(text) {
        let path = url.path.as_deref();
        assert_eq!(path.and_then(crate::http::normal_path).as_deref(), path);
    }
}

/// A git configuration that is read is judged; one that cannot be read never counts as harmless.
pub fn git_config(bytes: &[u8]) {
    let read = gitconfig::parse(bytes);
    let judged = gitconfig::executes(bytes);
    assert!(read.is_ok() || judged.is_some());
    let home = |_: &str| Some("/h".into());
    let base = Base {
        file: Path::new("/w/.git"),
        worktree: Path::new("/w"),
        home: &home,
        program: &|_| true,
    };
    let mut named = read.iter().flatten().flat_map(|setting| gitnamed::named(setting, &base));
    assert!(named.all(|(path, _)| path.is_absolute()));
}

/// What git keeps for itself is judged, whatever is in it; an index that names what git refuses never counts as harmless.
pub fn git_state(bytes: &[u8]) {
    for name in ["index", "MERGE_RR", "opts", "strategy"] {
        for hash in [20, 32] {
            let mut read_at = |at: u64, into: &mut [u8]| {
                let from = bytes.get(at as usize..).unwrap_or_default();
                // In pieces, as a file may be read.
                let length = from.len().min(into.len()).min(97);
                into[..length].copy_from_slice(&from[..length]);
                Ok(length)
            };
            let content = Content { size: bytes.len() as u64, read_at: &mut read_at };
            let judged = gitstate::judge(Path::new(name), hash, content);
            assert!(name != "index" || judged.is_err() || bytes.starts_with(b"DIRC"));
        }
    }
}

/// A peer's settings that are read give a profile that is read.
pub fn settings(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for peer in [Peer::Claude, Peer::Srt, Peer::Fence, Peer::Greywall] {
        let Ok(imported) = import(peer, text) else { continue };
        let again = Profile::from_toml(&imported.toml, "fuzz").expect("what was written is read");
        assert_eq!(again.values, imported.profile.values);
    }
}
