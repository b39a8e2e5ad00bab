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

const SECRETS: [&str; 18] = [
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
    "SSHPASS",
    "CI_JOB_JWT_V2",
    "BUNDLE_GITHUB__COM",
    "NIX_CONFIG",
    "MC_HOST_x",
    "GIT_CONFIG_PARAMETERS",
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
fn a_password_in_a_value_hides_the_variable_and_no_plan_forgets_it() {
    everywhere(|place| {
        let names = ["HTTPS_PROXY", "all_proxy", "GOPROXY", "SMTP_URL", "my_broker_uri"];
        for value in
            ["http://proxy:1", "http://me:hush@proxy:1", "http://proxy:1", "socks://me:hush@proxy"]
        {
            // A plan that was made for another value is not used for this one.
            let outside = names.map(|name| (name, value));
            let seen = inside(place, &[], &outside);
            let shown = names.map(|name| seen.contains(&format!("{name}={value}")));
            assert_eq!(shown, [!value.contains("hush"); 5], "{value}: {seen:?}");
        }
        let seen =
            inside(place, &["-e", "HTTPS_PROXY"], &[("HTTPS_PROXY", "http://me:hush@proxy")]);
        assert!(seen.iter().any(|entry| entry == "HTTPS_PROXY=http://me:hush@proxy"), "{seen:?}");
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

/// Programs differ in which of two variables of one name they take: nobody says something else of where they are.
#[test]
fn what_tells_programs_where_they_are_is_set_by_no_rule() {
    everywhere(|place| {
        let profile = "extends = [\"default\"]\n[environment]\nset = { RINGFENCE = \"0\" }\n";
        let profile = place.file("home/own.toml", profile);
        let profile = profile.to_str().unwrap();
        for options in [
            ["-e", "RINGFENCE=0"],
            ["-e", "RINGFENCE_SESSION=mine"],
            ["-e", "RINGFENCE_NETWORK="],
            ["-e", "RINGFENCE_GATEWAY=/tmp/mine"],
            ["-p", profile],
        ] {
            let run = place.sh(&options, "touch ran");
            run.ends(125).says("ringfence sets this variable itself: ").says("leave it out");
            assert!(!run.err.contains("mine"), "a value may be secret: {}", run.err);
            assert!(!place.project("ran").exists(), "{}", run.err);
        }
        // The controls: by name, and others of its kind; each is there once.
        let options = ["-e", "RINGFENCE", "-e", "RINGFENCED=1", "-e", "PWD=/mine"];
        let seen = inside(place, &options, &[("RINGFENCE", "forged")]);
        for (name, value) in [("RINGFENCE", "1"), ("RINGFENCED", "1"), ("PWD", "/mine")] {
            let name = format!("{name}=");
            let all: Vec<_> = seen.iter().filter_map(|entry| entry.strip_prefix(&name)).collect();
            assert_eq!(all, [value], "{name}{seen:?}");
        }
    });
}

#[test]
fn temporary_files_have_a_place_by_every_variable() {
    everywhere(|place| {
        // Larger than what a pipe holds: shells that use pipes for small ones make a file of it.
        let line = "0123456789abcdef".repeat(16);
        let document = vec![line.as_str(); 1024].join("\n");
        for shell in ["bash", "dash", "zsh", "ksh", "mksh", "busybox sh"] {
            let words: Vec<_> = shell.split(' ').collect();
            if place.command(words[0]).args(&words[1..]).args(["-c", ":"]).output().is_err() {
                ringfence_tests::left_out(shell, "it is not there");
                continue;
            }
            let script = place.script("here", &format!("cat <<'END'\n{document}\nEND\n"));
            let control = place.command(words[0]).args(&words[1..]).arg(&script).output().unwrap();
            assert_eq!(control.stdout.len(), document.len() + 1, "outside, {shell}");
            let inside = place.run(&[], &[words.as_slice(), &["./here"]].concat());
            inside.ends(0);
            assert!(
                inside.out == control.stdout && inside.err.is_empty(),
                "{shell}: {}",
                inside.err
            );
        }
        // Those that the caller has set lead to the host's directory, which is not there.
        let own = place.text("tmp");
        let outside = [("TEMP", own.as_str()), ("TMP", &own), ("TMPPREFIX", "/tmp/zsh")];
        let mut command = place.ringfence_run();
        command.envs(outside).args(["--", "sh", "-c"]).arg(
            "for d in \"${TMPDIR-/tmp}\" \"${TEMP-/tmp}\" \"${TMP-/tmp}\"; do echo x > $d/f && cat $d/f; done; \
             n=${TMPPREFIX-/tmp/zsh}1; echo y > $n && cat $n",
        );
        assert_eq!(Running::start(command).finish().quiet(), "x\nx\nx\ny");
        assert_eq!(std::fs::read_dir(&own).unwrap().count(), 0, "something is left on the host");
        // They are set by name where one says so, and are not added to a clean environment.
        let seen = inside(place, &["-e", "TMP=/x", "-e", "TMPPREFIX=/y"], &outside);
        assert!(seen.iter().any(|entry| entry == "TMP=/x"), "{seen:?}");
        assert!(seen.iter().any(|entry| entry == "TMPPREFIX=/y"), "{seen:?}");
        let seen = inside(place, &["--clean-env"], &outside);
        assert!(!seen.iter().any(|entry| entry.starts_with("TEMP=")), "{seen:?}");
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

#[test]
fn names_with_an_end_of_line_in_them_are_told_apart() {
    everywhere(|place| {
        let run = |variables: [(&str, &str); 2]| {
            let mut command = place.ringfence_run();
            command.envs(variables).args(["--", "env", "-0"]);
            let run = Running::start(command).finish();
            run.ends(0).text()
        };
        // In one order, with the same ends of lines; each has a token of its own by its name.
        for _ in 0..3 {
            place.clock_moves_on();
            let first = run([("X\nY_TOKEN", "three"), ("Z", "four")]);
            assert!(first.contains("four") && !first.contains("three"), "{first}");
        }
        let second = run([("X", "one"), ("Y_TOKEN\nZ", "two")]);
        assert!(second.contains("one") && !second.contains("two"), "{second}");
    });
}
