//! A directory that is named for the run, and the links that lead to it.

use crate::common::{Host, host};
use ringfence_policy::{Access, Key, PolicyError};
use std::path::{Path, PathBuf};

/// Standing in a directory, a link and what it leads to, and what is named.
fn of(cwd: &str, (link, target): (&str, &str), named: &str) -> Result<PathBuf, PolicyError> {
    let host: Host = host()
        .cwd(cwd)
        .with(|files| files.directory("/home/u/private").directory("/home/u/project/below"))
        .with(|files| files.symlink(link, target));
    let mut host = host.profile("default");
    host.request.workdir = Some(PathBuf::from(named));
    host.resolve().map(|policy| policy.workdir)
}

#[test]
fn a_link_in_the_workspace_leads_no_run_out_of_it() {
    let link = ("/home/u/project/link", "/home/u/private");
    for (cwd, named) in [
        ("/home/u/project", "link"),
        ("/home/u/project", "/home/u/project/link"),
        ("/home/u/project/below", "../link"),
    ] {
        match of(cwd, link, named) {
            Err(PolicyError::Planted(planted)) => {
                assert_eq!(planted.link, Path::new("/home/u/project/link"));
                assert_eq!(planted.target, Path::new("/home/u/private"));
                assert_eq!(planted.rule.origin, "option --workdir");
            }
            other => panic!("{cwd} {named}: {other:?}"),
        }
    }
}

#[test]
fn other_links_lead_where_they_lead() {
    for (cwd, link, named, workdir) in [
        // Within the workspace.
        ("/home/u/project", ("/home/u/project/link", "below"), "link", "/home/u/project/below"),
        // No run is started in the home.
        ("/home/u", ("/home/u/link", "/home/u/private"), "link", "/home/u/private"),
        // None that stands somewhere else altogether.
        ("/home/u/project", ("/home/u/link", "private"), "../link", "/home/u/private"),
        // None at all.
        ("/home/u/project", ("/home/u/link", "private"), "/home/u/private", "/home/u/private"),
    ] {
        assert_eq!(of(cwd, link, named).unwrap(), Path::new(workdir), "{cwd} {named}");
    }
}

/// Whether a directory that `CCACHE_DIR` names is granted for writing, and what is said.
fn by_variable(link: (&str, &str), value: &str) -> (bool, Vec<String>) {
    let files = |link: (&str, &str)| {
        let host = host().with(|files| files.directory("/home/u/private/in"));
        host.with(|files| files.directory("/home/u/other/in").symlink(link.0, link.1))
    };
    let mut host = files(link).profile("default").env("CCACHE_DIR", value);
    host.request.features.push("gcc".to_owned());
    let policy = host.policy();
    let mut written = policy.paths.iter().filter(|rule| rule.access == Access::Write);
    let led = |path: &Path| path.starts_with("/home/u/private") || path.ends_with("in");
    (written.any(|rule| led(&rule.path)), policy.warnings)
}

#[test]
fn a_variable_follows_no_link_that_an_earlier_run_may_have_made() {
    for (link, value) in [
        (("/home/u/other/c", "/home/u/private"), "/home/u/other/c"),
        (("/home/u/other/c", "/home/u/private"), "/home/u/other/c/in"),
        (("/home/u/other/in/c", "../../private"), "/home/u/other/in/c"),
    ] {
        let (granted, told) = by_variable(link, value);
        assert!(!granted, "{value}");
        let told: Vec<_> = told.iter().filter(|one| one.contains("CCACHE_DIR")).collect();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("--write /home/u/private"), "{told:?}");
    }
    for (link, value) in [
        // No run is started in the home.
        (("/home/u/c", "/home/u/private"), "/home/u/c"),
        // It leads nowhere else.
        (("/home/u/other/c", "in"), "/home/u/other/c"),
        // None is on the way.
        (("/home/u/other/c", "/home/u/private"), "/home/u/private"),
    ] {
        let (granted, told) = by_variable(link, value);
        assert!(granted, "{value} {told:?}");
        assert!(!told.iter().any(|one| one.contains("CCACHE_DIR")), "{told:?}");
    }
}

#[test]
fn the_hooks_directory_may_be_in_the_home_of_a_user_by_his_name() {
    let hooks = |value: &str| {
        let host = host().with(|files| {
            let accounts = "root:x:0:0::/root:/bin/sh\nada:x:1000:1000::/home/u:/bin/sh\n";
            let text = format!("[core]\n\thooksPath = {value}\n");
            files.file("/etc/passwd", accounts).file("/home/u/project/.git/config", &text)
        });
        let policy = host.option(Key::Write, ".").resolve().expect("a policy");
        let hooks = Path::new("/home/u/project/c");
        policy.paths.iter().any(|rule| rule.access == Access::Protect && rule.path == hooks)
    };
    assert!(hooks("~ada/project/c") && hooks("~/project/c") && hooks("c"));
    assert!(!hooks("~bob/project/c") && !hooks("~ada/project/d"));
}

#[test]
fn a_hooks_directory_that_is_granted_exactly_may_be_written() {
    for global in [false, true] {
        let file = if global { "/home/u/.gitconfig" } else { "/home/u/project/.git/config" };
        let policy = |value: &str, granted: &str| {
            let text = format!("[core]\n\thooksPath = {value}\n");
            let host = host().with(|files| {
                files
                    .file(file, &text)
                    .directory("/home/u/project/hk")
                    .directory("/home/u/project/.git")
            });
            host.option(Key::Write, ".").option(Key::Write, granted).resolve().expect("a policy")
        };
        let held = |value: &str, granted: &str, path: &str| {
            let policy = policy(value, granted);
            let path = Path::new(path);
            let name = path.strip_prefix("/home/u/project").unwrap();
            let named =
                || policy.protected_names.iter().any(|known| Path::new(&*known.name) == name);
            let mut rules = policy.paths.iter();
            let ruled = rules.any(|rule| rule.access == Access::Protect && rule.path == path);
            ruled || named() && !policy.unprotected.contains(path)
        };
        let hooks = "/home/u/project/hk";
        for value in ["hk", "~/project/hk", hooks] {
            assert!(held(value, ".", hooks), "the control: {value}");
            assert!(!held(value, "hk", hooks), "{value}");
        }
        // The directory of the run itself.
        assert!(!held("~/project", ".", "/home/u/project"));
        assert!(!held(".", ".", "/home/u/project"));
    }
}
