//! What browsers are told where names are ruled: only where that hides nothing of the host's, and costs nobody else.
#![allow(missing_docs, clippy::unwrap_used)]

mod host;

use host::{Host, host};
use ringfence_policy::Key;
use ringfence_sandbox::plan::{Besides, MountOp};
use std::path::PathBuf;

/// The files of ringfence's own, and the names of the host's beside them.
fn shown(host: &Host) -> Vec<(String, Vec<String>)> {
    let mounts = host.plan().mounts;
    let text = |path: &PathBuf| path.display().to_string();
    let of = |at: &PathBuf, besides: &Besides| {
        let files = besides.files.iter().map(|(name, _)| text(&at.join(name))).collect::<Vec<_>>();
        (files.join(" "), besides.entries.iter().map(|entry| text(&entry.name)).collect())
    };
    let steps = mounts.iter().filter_map(|step| match &step.op {
        MountOp::Besides(besides) => Some(of(&step.path, besides)),
        _ => None,
    });
    steps.collect()
}

fn named() -> Host {
    host().option(Key::Read, "/etc").option(Key::AllowHost, "example.org")
}

#[test]
fn settings_are_shown_in_the_innermost_directory_that_is_there() {
    assert_eq!(shown(&named()), [], "no browser");
    let there = named().file("/etc/chromium/master_preferences");
    let file = "/etc/chromium/policies/managed/zz-ringfence.json".to_owned();
    assert_eq!(shown(&there), [(file.clone(), vec!["master_preferences".to_owned()])]);
    let deeper = there.file("/etc/chromium/policies/managed/corporate.json");
    assert_eq!(shown(&deeper), [(file, vec!["corporate.json".to_owned()])]);
    let both = named()
        .file("/etc/opt/other/file")
        .file("/opt/google/chrome/chrome")
        .file("/home/u/.cache/ms-playwright/browser/chrome");
    let files = ["chrome", "chrome_for_testing"]
        .map(|name| format!("/etc/opt/{name}/policies/managed/zz-ringfence.json"));
    assert_eq!(shown(&both), [(files.join(" "), vec!["other".to_owned()])]);
}

#[test]
fn nothing_is_shown_where_it_is_not_needed_or_hides_something() {
    let chromium = |host: Host| host.file("/etc/chromium/master_preferences");
    assert_eq!(shown(&chromium(named())).len(), 1, "the control");
    for (host, why) in [
        (host().option(Key::Read, "/etc"), "no network"),
        (host().option(Key::Read, "/etc").option(Key::Mode, "host"), "no filter"),
        (host().option(Key::Read, "/etc").option(Key::AllowHost, "*"), "every name"),
        (named().option(Key::Deny, "/etc/chromium"), "denied"),
        (named().option(Key::Deny, "/etc/chromium/master_preferences"), "denied in it"),
        (named().option(Key::Write, "/etc/chromium"), "writable"),
        (named().link("/etc/chromium/policies", "/srv/policies"), "a link in the way"),
        (named().file("/etc/chromium/policies/managed/zz-ringfence.json"), "the host's own"),
        (named().process(), "no view"),
    ] {
        assert_eq!(shown(&chromium(host)), [], "{why}");
    }
    let crowd = (0..40).fold(named(), |host, n| host.file(&format!("/etc/chromium/{n}")));
    assert_eq!(shown(&crowd), [], "too much to be shown one by one");
}
