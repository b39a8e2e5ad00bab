//! The environment inside: credentials hidden unless named, the rest as it was.

use ringfence_tests::{Place, Running, everywhere};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// The environment inside, given some variables outside.
fn inside(place: &Place, options: &[&str], outside: &[(&str, &str)]) -> Vec<String> {
    let mut command = place.ringfence_run();
    command.args(options).args(["--", "env", "-0"]).envs(outside.iter().copied());
    let ended = Running::start(command).finish();
    ended.ends(0);
    let text = String::from_utf8_lossy(&ended.out).into_owned();
    text.split_terminator('\0').map(ToOwned::to_owned).collect()
}

const SECRETS: [&str; 12] = [
    "GITHUB_TOKEN",
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "NPM_TOKEN",
    "DB_PASSWORD",
    "MY_SECRET",
    "SSH_AUTH_SOCK",
    "DOCKER_HOST",
    "DBUS_SESSION_BUS_ADDRESS",
    "KUBECONFIG",
];

#[test]
fn credentials_are_hidden_and_the_rest_is_passed() {
    everywhere(|place| {
        let mut outside: Vec<(&str, &str)> = SECRETS.iter().map(|name| (*name, "hush")).collect();
        outside.extend([("EDITOR", "vi"), ("EMPTY", ""), ("MULTI", "a\nb=c"), ("KEYBOARD", "us")]);
        let seen = inside(place, &[], &outside);
        for name in SECRETS {
            let hidden = !seen.iter().any(|entry| entry.starts_with(&format!("{name}=")));
            assert!(hidden, "{name} is seen");
        }
        assert!(!seen.iter().any(|entry| entry.contains("hush")), "{seen:?}");
        for entry in ["EDITOR=vi", "EMPTY=", "MULTI=a\nb=c", "KEYBOARD=us", "LC_ALL=C.UTF-8"] {
            assert!(seen.iter().any(|other| other == entry), "{entry} is missing: {seen:?}");
        }
    });
}

#[test]
fn what_is_named_is_passed_or_set() {
    everywhere(|place| {
        let outside = [("GITHUB_TOKEN", "hush"), ("NPM_TOKEN", "other")];
        let options = ["-e", "GITHUB_TOKEN", "-e", "COLOUR=green", "-e", "EDITOR=", "-e", "X=a=b"];
        let seen = inside(place, &options, &outside);
        for entry in ["GITHUB_TOKEN=hush", "COLOUR=green", "EDITOR=", "X=a=b"] {
            assert!(seen.iter().any(|other| other == entry), "{entry} is missing: {seen:?}");
        }
        assert!(!seen.iter().any(|entry| entry.contains("other")), "{seen:?}");
    });
}

#[test]
fn a_clean_environment_holds_only_what_programs_need() {
    everywhere(|place| {
        let outside = [("EDITOR", "vi"), ("GITHUB_TOKEN", "hush"), ("COLOUR", "red")];
        let seen = inside(place, &["--clean-env", "-e", "COLOUR"], &outside);
        assert!(seen.iter().any(|entry| entry == "COLOUR=red"), "{seen:?}");
        assert!(seen.iter().any(|entry| entry.starts_with("PATH=")), "{seen:?}");
        assert!(!seen.iter().any(|entry| entry.contains("vi") && entry.starts_with("EDITOR")));
        assert!(!seen.iter().any(|entry| entry.contains("hush")), "{seen:?}");
    });
}

#[test]
fn programs_can_see_where_they_are() {
    everywhere(|place| {
        let seen = inside(place, &[], &[("RINGFENCE_SESSION", "forged"), ("PWD", "/forged")]);
        assert!(seen.iter().any(|entry| entry == "RINGFENCE=1"), "{seen:?}");
        let session: Vec<_> =
            seen.iter().filter_map(|entry| entry.strip_prefix("RINGFENCE_SESSION=")).collect();
        assert!(
            session.len() == 1 && session[0] != "forged" && !session[0].is_empty(),
            "{session:?}"
        );
        let here = format!("PWD={}", place.text("home/project"));
        assert!(seen.contains(&here), "{seen:?}");
        // Each name once: programs differ in which of two they take.
        let mut names: Vec<_> = seen.iter().filter_map(|entry| entry.split('=').next()).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all, "{seen:?}");
    });
}

#[test]
fn variables_that_are_no_text_are_passed_or_hidden_like_others() {
    everywhere(|place| {
        let odd = OsStr::from_bytes(b"\xff\xfe odd");
        let mut command = place.ringfence_run();
        command.env("PLAIN", odd).env("GITHUB_TOKEN", odd).args(["--", "env", "-0"]);
        let ended = Running::start(command).finish();
        ended.ends(0);
        let holds = |entry: &[u8]| ended.out.split(|byte| *byte == 0).any(|other| other == entry);
        assert!(holds(b"PLAIN=\xff\xfe odd"));
        assert!(!holds(b"GITHUB_TOKEN=\xff\xfe odd"), "a secret is a secret whatever its bytes");
    });
}

#[test]
fn variables_of_the_loader_do_not_reach_ringfence_itself() {
    everywhere(|place| {
        let seen = inside(place, &[], &[("LD_PRELOAD", "/no/such.so"), ("LD_LIBRARY_PATH", "/no")]);
        // They are the command's own business: nothing was loaded into ringfence, which is static.
        assert!(seen.iter().any(|entry| entry == "RINGFENCE=1"));
    });
}
