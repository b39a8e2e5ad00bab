//! `explain`: what it says is in the view is there inside, and what it says is not is not.

use ringfence_tests::{Person, Place, Tier, everybody};
use std::path::Path;

/// Whether a command finds something at a path, as itself and not as what the sandbox has in its place.
fn finds(place: &Place, options: &[&str], path: &str) -> bool {
    let ran = place.run(options, &["sh", "-c", "test -e \"$0\" || test -L \"$0\"", path]);
    ran.code == 0
}

#[test]
fn what_is_explained_is_what_is_there() {
    everybody(Tier::Namespace, |place| {
        place.file("home/project/f", "");
        let own = place.text("home/project/f");
        let absent = place.text("home/project/absent");
        let mut paths = vec![
            "/lib64",
            "/lib",
            "/bin/sh",
            "/usr/lib",
            "/usr/bin/env",
            "/usr/nothing-of-this-name",
            "/proc",
            "/proc/self/status",
            "/proc/cpuinfo",
            "/proc/nothing-of-this-name",
            "/dev",
            "/dev/null",
            "/dev/fd",
            "/dev/nothing-of-this-name",
            "/",
            "/var",
            "/etc/passwd",
            "/nothing-of-this-name",
            &own,
            &absent,
        ];
        paths.retain(|path| *path != "/lib64" || Path::new("/lib64").exists());
        let exact = ["--libs", "exact"];
        for options in [&[][..], &exact] {
            let (mut shown, mut absent) = (0, 0);
            for path in &paths {
                let words = ["explain"].iter().chain(options).chain([path, &"sh"]).copied();
                let told = place.ringfence(words);
                let there = finds(place, options, path);
                assert_eq!(told.code == 0, there, "{options:?} {path}: {}", told.text());
                *if there { &mut shown } else { &mut absent } += 1;
                // What is there needs no advice, and what the host has not no grant can show.
                let advised = told.text().contains("to change it");
                assert!(!advised || !there, "{path}: {}", told.text());
            }
            assert!(shown > 10 && absent >= 4, "{shown} {absent}");
        }
    });
}

#[test]
fn processes_of_the_host_and_its_memory_are_not_in_the_view() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    let pid = std::process::id();
    let status = format!("/proc/{pid}/status");
    let told = place.ringfence(["explain", &status]);
    told.ends(1).prints("without the host's processes");
    let kernel = place.ringfence(["explain", "/proc/kcore"]);
    kernel.ends(1);
    match Path::new("/proc/kcore").exists() {
        true => kernel.prints("hidden by"),
        false => kernel.prints("there is no /proc/kcore on this host"),
    };
    place.ringfence(["explain", "/proc/self/status"]).ends(0).prints("shown with /proc");
    let link = place.ringfence(["explain", "--libs", "exact", "/lib64", "sh"]);
    if Path::new("/lib64").is_symlink() {
        link.ends(0).prints("/lib64 is a link to usr/lib64");
    }
}
