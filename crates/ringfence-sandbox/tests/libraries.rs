//! `--libs exact`: directories of libraries are covered, and shown by the parts that are needed.
#![allow(missing_docs, clippy::unwrap_used)]

mod host;

use host::{Host, host};
use ringfence_policy::Key;
use ringfence_sandbox::facts::{Availability, Libraries, data_layers};
use ringfence_sandbox::plan::{MountOp, Plan};
use std::path::{Path, PathBuf};

/// A machine with libraries of which one file, one link and one directory are needed.
fn exact() -> Host {
    let list = |paths: &[&str]| paths.iter().map(PathBuf::from).collect::<Vec<_>>();
    let libraries = Libraries {
        roots: list(&["/usr/lib", "/usr/local/lib"]),
        files: list(&["/usr/lib/m/libc.so.6", "/elsewhere/lib.so"]),
        directories: list(&["/usr/lib/tool"]),
        links: vec![("/usr/lib/m/libc.so".into(), "libc.so.6".into())],
    };
    let host = host().file("/usr/lib/m/libc.so.6").file("/usr/lib/m/other.so");
    let host = host.file("/usr/lib/tool/part").file("/usr/local/lib/mine.so").file("/usr/bin/t");
    host.facts(|facts| facts.libraries = Some(libraries)).option(Key::Libs, "exact")
}

fn op<'a>(plan: &'a Plan, path: &str) -> Option<&'a MountOp> {
    plan.mounts.iter().find(|step| step.path == Path::new(path)).map(|step| &step.op)
}

const READ: MountOp = MountOp::Bind { directory: true, read_only: true, devices: false };

#[test]
fn the_tree_is_bound_once_and_covered() {
    let plan = exact().plan();
    assert_eq!(op(&plan, "/usr"), Some(&READ));
    for root in ["/usr/lib", "/usr/local/lib"] {
        assert_eq!(op(&plan, root), Some(&MountOp::Cover));
    }
    let file = MountOp::Bind { directory: false, read_only: true, devices: false };
    assert_eq!(op(&plan, "/usr/lib/m/libc.so.6"), Some(&file));
    assert_eq!(op(&plan, "/usr/lib/tool"), Some(&READ));
    assert!(matches!(op(&plan, "/usr/lib/m/libc.so"), Some(MountOp::Symlink { .. })));
    for absent in ["/usr/lib/m", "/usr/lib/m/other.so", "/usr/bin", "/elsewhere/lib.so"] {
        assert_eq!(op(&plan, absent), None, "{absent}");
    }
    let place = |path: &str| plan.mounts.iter().position(|step| step.path == Path::new(path));
    assert!(place("/usr") < place("/usr/lib") && place("/usr/lib") < place("/usr/lib/tool"));
}

/// The same with many links, on a kernel with data-only layers.
fn many() -> Host {
    exact().facts(|facts| {
        facts.data_layers = Availability::Yes;
        let links = &mut facts.libraries.as_mut().unwrap().links;
        links.extend((0..30).map(|number| {
            (PathBuf::from(format!("/usr/lib/m/l{number}.so")), PathBuf::from("libc.so.6"))
        }));
    })
}

#[test]
fn an_overlay_shows_many_names_where_the_kernel_can() {
    let plan = many().plan();
    assert_eq!(op(&plan, "/usr"), Some(&READ));
    assert_eq!(op(&plan, "/usr/lib"), Some(&MountOp::Skeleton));
    assert_eq!(op(&plan, "/usr/lib/m/libc.so.6"), Some(&MountOp::Library));
    assert_eq!(op(&plan, "/usr/lib/tool"), Some(&READ), "directories are mounted");
    assert!(matches!(op(&plan, "/usr/lib/m/l7.so"), Some(MountOp::Symlink { .. })));
    assert_eq!(op(&plan, "/usr/local/lib"), Some(&MountOp::Cover), "nothing of it is needed");
    // Few names; an older kernel.
    for host in [
        exact().facts(|facts| facts.data_layers = Availability::Yes),
        many().facts(|facts| facts.data_layers = data_layers("6.15.9-amd64")),
    ] {
        assert_eq!(op(&host.plan(), "/usr/lib"), Some(&MountOp::Cover));
    }
    for (release, can) in [("6.16.0", true), ("6.9.1", false), ("7.0-rc1", true), ("odd", false)] {
        assert_eq!(data_layers(release).yes(), can, "{release}");
    }
}

#[test]
fn what_is_no_library_is_mounted_on_its_place() {
    let file = MountOp::Bind { directory: false, read_only: true, devices: false };
    let granted = many().file("/usr/lib/m/socket").option(Key::Read, "/usr/lib/m/socket").plan();
    assert_eq!(op(&granted, "/usr/lib"), Some(&MountOp::Skeleton));
    assert_eq!(op(&granted, "/usr/lib/m/socket"), Some(&file), "it may be a socket");
    let denied = many().option(Key::Deny, "/usr/lib/m/libc.so.6").plan();
    assert_eq!(op(&denied, "/usr/lib"), Some(&MountOp::Skeleton));
    assert_eq!(op(&denied, "/usr/lib/m/libc.so.6"), None);
    // A mask lies in what is shown.
    let masked = many().option(Key::Deny, "/usr/lib/tool/part").plan();
    assert_eq!(op(&masked, "/usr/lib"), Some(&MountOp::Skeleton));
    assert_eq!(op(&masked, "/usr/lib/tool/part"), Some(&MountOp::Mask { directory: false }));
    // Something writable has no place in it.
    let writable = many().file("/usr/lib/m/state/x").option(Key::Write, "/usr/lib/m/state").plan();
    assert_eq!(op(&writable, "/usr/lib"), Some(&MountOp::Cover));
    assert_eq!(op(&writable, "/usr/lib/m/libc.so.6"), Some(&file));
}

#[test]
fn what_is_denied_or_granted_below_a_cover_is_as_it_says() {
    let denied = exact().option(Key::Deny, "/usr/lib/m/libc.so.6").plan();
    // Not a mask either: nothing is there to be masked.
    assert_eq!(op(&denied, "/usr/lib/m/libc.so.6"), None);
    assert_eq!(op(&denied, "/usr/lib"), Some(&MountOp::Cover));
    let granted = exact().option(Key::Read, "/usr/lib/m").plan();
    assert_eq!(op(&granted, "/usr/lib/m"), Some(&READ));
    assert_eq!(op(&granted, "/usr/lib/m/libc.so.6"), None, "the directory shows it");
}

#[test]
fn without_a_view_the_tree_is_granted_by_its_other_parts() {
    let plan = exact().process().plan();
    assert!(plan.mounts.is_empty());
    let rules = &plan.landlock.as_ref().unwrap().files;
    let readable = |path: &str| rules.iter().any(|rule| Path::new(path).starts_with(&rule.path));
    assert!(readable("/usr/bin/t") && readable("/usr/lib/m/libc.so.6"));
    assert!(!readable("/usr/lib/m/other.so") && !readable("/usr/local/lib/mine.so"));
}

#[test]
fn a_writable_tree_is_refused() {
    let refusal = exact().option(Key::Write, "/usr").refusal();
    assert!(refusal.contains("cannot narrow"), "{refusal}");
}
