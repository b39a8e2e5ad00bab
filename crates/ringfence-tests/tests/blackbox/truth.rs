//! `why` tells what really happens: each answer is held against the act itself.

use ringfence_tests::{Place, everybody, everywhere};
use std::path::Path;

/// What `why` answers: 0 allowed, 1 denied.
pub fn why(place: &Place, options: &[&str], question: &[&str]) -> (bool, String) {
    let tier = ["--tier", place.tier_name()];
    let words = [&["why"], &tier[..], options, &["--"], question].concat();
    let said = place.ringfence(words);
    assert!([0, 1].contains(&said.code), "{question:?}: {}", said.err);
    assert!(
        said.text().starts_with(["allowed: ", "denied: "][said.code as usize]),
        "{}",
        said.text()
    );
    (said.code == 0, said.text())
}

/// The act that a question is about, as a shell says it.
pub fn act(verb: &str, path: &str) -> String {
    match verb {
        "read" => format!("if [ -d '{path}' ]; then ls -A '{path}'; else head -c 1 '{path}'; fi"),
        "write" => format!(": >> '{path}'"),
        _ => format!("'{path}'"),
    }
}

/// Holds the answers against the acts, for what this person may do without a sandbox.
fn agree(place: &Place, options: &[&str], questions: &[(&str, &str)]) {
    // What is not there is made by no question: it would be there for the next one.
    let asked =
        questions.iter().filter(|(verb, path)| *verb != "write" || Path::new(path).exists());
    let asked: Vec<_> = asked.collect();
    // Each by itself, all in one shell: a line says whether it could be done, or why not.
    let acts: String = asked
        .iter()
        .map(|(verb, path)| {
            let script = act(verb, path);
            format!("if e=$( ( {script} ) 2>&1 >/dev/null ); then echo yes; else echo no $e; fi\n")
        })
        .collect();
    let acts = format!("set -f\n{acts}");
    let (outside, done) = (place.shell(&acts), place.run(options, &["sh", "-c", &acts]));
    let (outside, inside) = (outside.well(), done.well());
    assert_eq!(outside.lines().count(), asked.len(), "{outside}");
    assert_eq!(inside.lines().count(), asked.len(), "{inside}");
    for ((verb, path), (outside, inside)) in
        asked.into_iter().zip(outside.lines().zip(inside.lines()))
    {
        let (allowed, said) = why(place, options, &[verb, path]);
        // In a private directory there is nothing yet, not even the directories on the way.
        if said.contains("effect:  private") && inside.contains("nonexistent") {
            continue;
        }
        if outside == "yes" || !allowed {
            assert_eq!(
                inside == "yes",
                allowed,
                "{:?} {options:?} {verb} {path}: {said}; but {inside}",
                place.tier
            );
        }
    }
}

/// A place with something of every kind in it.
fn furnish(place: &Place) {
    place.file("home/.ssh/id_ed25519", "key");
    place.file("home/.bashrc", "");
    place.file("home/other/file", "");
    place.file("home/project/file", "");
    place.file("home/project/keys/a", "");
    place.file("home/project/ci/build", "");
    place.file("home/project/.envrc", "");
    place.file("home/project/.vscode/tasks.json", "");
    place.file("home/project/.git/config", "[core]\n");
    place.file("home/project/.git/hooks/pre-commit", "");
    place.file("home/project/.git/HEAD", "ref: refs/heads/main\n");
    place.file("home/project/deep/.git/config", "[core]\n");
    place.link("home/project/out", place.at("outside"));
    place.script("tool", "#!/bin/sh\n");
}

#[test]
fn reading_is_as_why_says() {
    everywhere(|place| {
        furnish(place);
        let own: Vec<String> = [
            "home/project",
            "home/project/file",
            "home/project/.git/config",
            "home/project/.git/hooks",
            "home/project/.envrc",
            "home/.ssh/id_ed25519",
            "home/.bashrc",
            "home/other",
            "home/other/file",
            "outside",
            "outside/secret",
            "home/project/out/secret",
        ]
        .iter()
        .map(|name| place.text(name))
        .collect();
        let system = [
            "/etc/passwd",
            "/etc/shadow",
            "/etc/hosts",
            "/usr",
            "/usr/bin/env",
            "/bin/sh",
            "/lib",
            "/opt",
            "/boot",
            "/srv",
            "/root",
            "/var/log",
            "/var/lib/dpkg/status",
            "/var/lib/apt/lists",
            "/sys/kernel",
            "/dev/null",
            "/dev/kmsg",
            "/dev/vda",
        ];
        let all = own
            .iter()
            .map(String::as_str)
            .chain(system.into_iter().filter(|path| Path::new(path).exists()));
        let questions: Vec<(&str, &str)> = all.map(|path| ("read", path)).collect();
        agree(place, &[], &questions);
        let outside = place.text("outside");
        agree(place, &["-r", &outside], &questions);
        agree(place, &["-r", &outside, "--deny", &place.text("outside/secret")], &questions);
    });
}

#[test]
fn writing_is_as_why_says() {
    everywhere(|place| {
        furnish(place);
        let own: Vec<String> = [
            "home/project/file",
            "home/project/ci/build",
            "home/other/file",
            "outside/secret",
            "home/project/out/secret",
        ]
        .iter()
        .map(|name| place.text(name))
        .collect();
        let system = ["/etc/passwd", "/usr/bin/env", "/dev/null", "/dev/zero", "/etc/shadow"];
        let all = own.iter().map(String::as_str).chain(system);
        let questions: Vec<(&str, &str)> = all
            .filter(|path| !path.starts_with("/etc") && !path.starts_with("/usr"))
            .map(|path| ("write", path))
            .collect();
        agree(place, &[], &questions);
        let outside = place.text("outside");
        agree(place, &["-r", &outside], &questions);
        agree(place, &["-w", &outside], &questions);
    });
}

#[test]
fn terminals_and_sockets_are_as_why_says() {
    everywhere(|place| {
        agree(place, &[], &[("write", "/dev/ptmx"), ("write", "/dev/null")]);
        let socket = place.project("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        std::fs::set_permissions(&socket, std::os::unix::fs::PermissionsExt::from_mode(0o666))
            .unwrap();
        let connect = "import socket; socket.socket(socket.AF_UNIX).connect('socket')";
        let (allowed, said) = why(place, &[], &["socket", &place.text("home/project/socket")]);
        let done = place.run(&[], &["python3", "-c", connect]);
        assert_eq!(done.code == 0, allowed, "{said}; but {}", done.err);
        let granted = ["--allow-socket", "socket"];
        let (allowed, said) = why(place, &granted, &["socket", &place.text("home/project/socket")]);
        let done = place.run(&granted, &["python3", "-c", connect]);
        assert_eq!(done.code == 0, allowed, "{said}; but {}", done.err);
    });
}

#[test]
fn what_is_there_is_not_told_as_if_it_were_new() {
    everywhere(|place| {
        furnish(place);
        let (allowed, said) = why(place, &[], &["write", &place.text("home/project/.envrc")]);
        assert!(!allowed && said.contains("what is there"), "{said}");
        let (allowed, said) = why(place, &[], &["write", &place.text("home/project/.exrc")]);
        assert!(!allowed && said.contains("a new one does not survive"), "{said}");
    });
}

#[test]
fn writing_what_is_protected_is_as_why_says() {
    everybody(ringfence_tests::Tier::Namespace, |place| {
        furnish(place);
        let names = [
            ".envrc",
            ".vscode/tasks.json",
            ".git/config",
            ".git/hooks/pre-commit",
            ".git/HEAD",
            "deep/.git/config",
            "ci/build",
            "keys/a",
        ];
        let names: Vec<String> =
            names.iter().map(|name| place.text(Path::new("home/project").join(name))).collect();
        let questions: Vec<(&str, &str)> = names
            .iter()
            .filter(|name| !name.contains("deep"))
            .flat_map(|name| [("write", name.as_str()), ("read", name.as_str())])
            .collect();
        agree(place, &[], &questions);
        agree(place, &["--protect", "ci", "--deny", "keys"], &questions);
        agree(place, &["-w", ".vscode", "--protect", "keys/a"], &questions);
    });
}

#[test]
fn what_hooks_and_settings_lead_to_is_as_why_says() {
    everybody(ringfence_tests::Tier::Namespace, |place| {
        furnish(place);
        place.file("home/project/ci/check", "");
        place.file("home/project/ci/clean", "");
        place.link("home/project/.git/hooks/post-commit", "../../ci/check");
        place.file("home/project/.git/config", "[filter \"x\"]\n\tclean = ci/clean %f\n");
        let names = ["ci/check", "ci/clean", "ci/build"]
            .map(|name| place.text(Path::new("home/project").join(name)));
        let questions = names.each_ref().map(|name| ("write", name.as_str()));
        assert!(
            !why(place, &[], &["write", &names[0]]).0 && !why(place, &[], &["write", &names[1]]).0
        );
        agree(place, &[], &questions);
        let granted = ["-w", "ci/check", "-w", "ci/clean"];
        assert!(
            why(place, &granted, &["write", &names[0]]).0
                && why(place, &granted, &["write", &names[1]]).0
        );
        agree(place, &granted, &questions);
    });
}

#[test]
fn executing_is_as_why_says() {
    everywhere(|place| {
        furnish(place);
        place.file("outside/tool", "#!/bin/sh\n");
        place.shell("chmod 755 ../../outside/tool").ends(0);
        let (inside, outside) = (place.text("home/project/tool"), place.text("outside/tool"));
        agree(place, &[], &[("exec", "/bin/true"), ("exec", &inside), ("exec", &outside)]);
        agree(place, &["-r", &outside], &[("exec", &outside)]);
    });
}

#[test]
fn connecting_is_as_why_says() {
    everywhere(|place| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        // Before Linux 6.12 the host's network is to be had only without its scopes.
        let host = ["--network", "host", "--allow-degraded", "landlock-scope"];
        for options in [&[][..], &["--network", "none"], &host] {
            let (allowed, said) = why(place, options, &["connect", &format!("127.0.0.1:{port}")]);
            let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}");
            let done = place.run(options, &["bash", "-c", &script]);
            assert_eq!(done.code == 0, allowed, "{options:?}: {said}; but {}", done.err);
        }
    });
}

#[test]
fn the_environment_is_as_why_says() {
    everywhere(|place| {
        for options in [&[][..], &["-e", "GITHUB_TOKEN"], &["--clean-env"]] {
            for name in ["GITHUB_TOKEN", "EDITOR", "AWS_SECRET_ACCESS_KEY"] {
                let (allowed, said) = why(place, options, &["env", name]);
                let mut command = place.ringfence_run();
                command.env(name, place.text("value")).env("PATH", "/usr/bin:/bin");
                command.args(options).args(["--", "/usr/bin/printenv", name]);
                let done = ringfence_tests::Running::start(command).finish();
                assert_eq!(done.code == 0, allowed, "{options:?} {name}: {said}");
            }
        }
    });
}

#[test]
fn each_answer_names_its_rule_and_the_way_to_change_it() {
    everybody(ringfence_tests::Tier::Namespace, |place| {
        let secret = place.text("outside/secret");
        let said = place.ringfence(["why", "--", "read", &secret]);
        said.ends(1).prints(&secret).prints("--read");
        let said = place.ringfence(["why", "--deny", "x", "--", "read", "x"]);
        said.ends(1).prints("--deny");
        let json: serde_json::Value = serde_json::from_str(
            &place.ringfence(["why", "--json", "--", "write", "/etc/passwd"]).text(),
        )
        .unwrap();
        assert_eq!((json["schema"].as_u64(), json["allowed"].as_bool()), (Some(1), Some(false)));
        assert!(json["explanation"].as_str().unwrap().contains("/etc/passwd"));
    });
}

#[test]
fn listing_a_directory_that_holds_a_denied_path_is_as_why_says() {
    everywhere(|place| {
        agree(place, &[], &[("read", "/etc"), ("read", "/etc/ssl")]);
        place.file("outside/denied/file", "");
        place.file("outside/open/file", "");
        place.file("outside/open/secret", "");
        let at = |name: &str| place.text(name);
        let (outside, file) = (at("outside"), at("outside/secret"));
        let options = ["-r", &outside, "--deny", &file];
        let questions = ["outside", "outside/open", "outside/denied"].map(at);
        let questions = questions.each_ref().map(|path| ("read", path.as_str()));
        agree(place, &options, &questions);
        // Among files only: it can be listed. Above a denied directory: not in that tier.
        let open = at("outside/open");
        let secret = at("outside/open/secret");
        let options = [&options[..], &["--deny", &secret]].concat();
        assert!(why(place, &options, &["read", &open]).0);
        agree(place, &options, &questions);
        let denied = at("outside/denied");
        let options = [&options[..], &["--deny", &denied]].concat();
        let listed = place.tier == ringfence_tests::Tier::Namespace;
        assert_eq!(why(place, &options, &["read", &at("outside")]).0, listed);
        assert!(why(place, &options, &["read", &open]).0);
        agree(place, &options, &questions);
    });
}

#[test]
fn what_a_clean_environment_keeps_is_as_why_says() {
    everywhere(|place| {
        for name in ["PATH", "HOME", "LC_ALL"] {
            let (allowed, said) = why(place, &["--clean-env"], &["env", name]);
            let done = place.run(&["--clean-env"], &["/usr/bin/printenv", name]);
            assert_eq!(done.code == 0, allowed, "{name}: {said}");
            assert_eq!(allowed, name != "LC_ALL", "{said}");
        }
    });
}
