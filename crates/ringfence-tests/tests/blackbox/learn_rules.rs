//! What `learn` makes a rule of: no credential by its place or by its name, no directory that
//! will have one, and as few rules as are enough.

use ringfence_tests::{Finished, Person, Place, Tier, everybody};
use std::fs;

/// Learns what a script needs.
pub(crate) fn learn(place: &Place, options: &[&str], script: &str) -> Finished {
    let mut words = vec!["learn"];
    words.extend(options);
    words.extend(["--", "sh", "-c", script]);
    place.ringfence(words)
}

/// What was written to `l.toml`: its rules that are in force, without comments.
pub(crate) fn rules(place: &Place) -> String {
    let profile = fs::read_to_string(place.project("l.toml")).unwrap_or_default();
    let lines = profile.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

#[test]
fn what_programs_keep_for_their_user_is_hidden_and_named() {
    everybody(Tier::Namespace, |place| {
        let _ = fs::remove_file(place.project("l.toml"));
        let known = [
            ".authinfo",
            ".smbcredentials",
            ".subversion/auth/svn.simple/a",
            ".config/filezilla/sitemanager.xml",
            ".config/weechat/sec.conf",
            ".terraformrc",
            ".vnc/passwd",
            ".local/share/atuin/key",
            ".zhistory",
            ".envrc",
            ".config/nix/nix.conf",
            ".Xauthority",
        ];
        known.iter().for_each(|name| _ = place.file(format!("home/{name}"), "a secret\n"));
        place.file("home/.config/nix/registry.json", "plain\n");
        let script: String =
            known.iter().map(|name| format!("cat ~/{name}; ")).collect::<Vec<_>>().concat();
        let learnt = learn(place, &["-o", "l.toml"], &format!("{script} cat ~/.config/nix/r*"));
        assert!(!learnt.text().contains("a secret"), "{}", learnt.text());
        learnt.ends(0).prints("plain");
        let rules = rules(place);
        for name in known {
            learnt.says(&format!("not proposed: filesystem.read ~/{name}?: credentials: "));
            let first = name.split("/auth").next().unwrap_or_default();
            assert!(!rules.contains(&format!("~/{first}")), "{name}: {rules}");
        }
        assert!(rules.contains("\"~/.config/nix/registry.json?\""), "the control: {rules}");
    });
}

#[test]
fn what_is_called_like_a_credential_is_named_and_no_rule_takes_it_in() {
    everybody(Tier::Namespace, |place| {
        let _ = fs::remove_file(place.project("l.toml"));
        place.file("home/.config/thing/settings", "plain\n");
        place.file("home/.config/thing/token.json", "asked\n");
        // Nobody asked for this one: it is there, and a rule for the directory would show it.
        place.file("home/.other/settings", "plain\n");
        place.file("home/.other/login/credentials.db", "kept\n");
        let script = "cat ~/.config/thing/settings ~/.config/thing/token.json ~/.other/settings";
        let learnt = learn(place, &["-o", "l.toml"], script);
        learnt.ends(0).says(
            "not proposed: filesystem.read ~/.config/thing/token.json?: credentials: by its name",
        );
        let rules = rules(place);
        assert!(rules.contains("\"~/.config/thing/settings?\""), "{rules}");
        assert!(rules.contains("\"~/.other/settings?\""), "{rules}");
        assert!(!rules.contains("thing?") && !rules.contains(".other?"), "{rules}");
        let script = "cat ~/.config/thing/settings ~/.other/settings; cat ~/.config/thing/token.json \
                      || cat ~/.other/login/*";
        let ran = place.sh(&["-p", "l.toml"], script);
        ran.ends(1).prints("plain\nplain").says("token.json: No such file or directory");
        assert!(!ran.text().contains("asked") && !ran.text().contains("kept"), "{}", ran.text());
    });
}

#[test]
fn a_directory_where_credentials_will_be_is_not_proposed() {
    everybody(Tier::Namespace, |place| {
        let _ = fs::remove_file(place.project("l.toml"));
        for name in [".docker/plain/a", ".cache/app/a", ".app/a"] {
            place.file(format!("home/{name}"), "x");
        }
        let learnt = learn(place, &["-o", "l.toml"], "ls ~/.docker ~/.cache ~/.app");
        learnt.ends(0);
        learnt.says("not proposed: filesystem.read ~/.docker?: credentials are usually in it");
        learnt.says("not proposed: filesystem.read ~/.cache?: each program's directory is in it");
        let rules = rules(place);
        assert!(!rules.contains(".docker") && !rules.contains(".cache"), "{rules}");
        assert!(rules.contains("\"~/.app?\""), "the control: {rules}");
        // Who logs in later has it hidden.
        place.file("home/.docker/config.json", "a secret\n");
        let ran = place.sh(&["-p", "l.toml"], "ls ~/.app; cat ~/.docker/config.json");
        ran.ends(1).prints("a").says("config.json: No such file or directory");
    });
}

#[test]
fn what_is_written_below_what_a_rule_shows_has_one_too() {
    everybody(Tier::Namespace, |place| {
        let _ = fs::remove_file(place.project("l.toml"));
        place.file("home/data/a", "x");
        place.file("home/data/sub/b", "x");
        // In a private home the writing alone takes no rule: what the reading takes shows the host's.
        let script = "ls ~/data > /dev/null && echo x > ~/data/sub/new && mkdir ~/data/sub/c ~/data/sub/c/d && \
                      echo x > ~/data/sub/c/d/e && echo x > ~/elsewhere";
        learn(place, &["-o", "l.toml"], script).ends(0);
        let text = rules(place);
        assert!(text.contains("write = [\n\"~/data/sub?\",\n]"), "{text}");
        assert!(text.contains("read = [\n\"~/data?\",\n]"), "no wider: {text}");
        learn(place, &["-p", "l.toml"], script).ends(0).says("nothing to propose");
        place.sh(&["-p", "l.toml"], script).ends(0);
        assert!(place.at("home/data/sub/c/d/e").exists() && !place.at("home/elsewhere").exists());
        fs::remove_dir_all(place.at("home/data")).unwrap();
    });
}

#[test]
fn a_rule_that_another_one_covers_is_left_out() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    place.file("home/data/a", "x");
    place.file("home/data/sub/b", "x");
    place.file("home/data/own/c", "x");
    let script = "cat ~/data/sub/b > /dev/null; ls ~/data > /dev/null; cat ~/data/own/c; echo x > ~/data/own/c";
    learn(place, &["-o", "l.toml"], script).ends(0);
    let text = rules(place);
    assert!(text.contains("read = [\n\"~/data?\",\n]"), "{text}");
    assert!(text.contains("write = [\n\"~/data/own?\",\n]"), "more than reading stays: {text}");
}

#[test]
fn what_each_runtime_asks_of_the_machine_is_told_once_and_a_feature_shows_it() {
    everybody(Tier::Namespace, |place| {
        let _ = fs::remove_file(place.project("l.toml"));
        let script = "cat /sys/devices/system/cpu/possible /sys/kernel/mm/transparent_hugepage/enabled; \
                      ls /sys/fs/cgroup /sys/class > /dev/null; true";
        let learnt = learn(place, &["-o", "l.toml"], script);
        learnt.ends(0).says(
            "not proposed: nearly each runtime asks for /sys/devices/system/cpu, /sys/fs/cgroup",
        );
        let text = rules(place);
        assert!(!text.contains("cpu") && !text.contains("cgroup"), "{text}");
        assert!(text.contains("\"/sys/class?\""), "the control: {text}");
        // By default nothing of it is there; the feature shows the facts, and not the names of control groups.
        let see = "cat /sys/devices/system/cpu/possible";
        place.sh(&[], see).ends(1).says("No such file or directory");
        let host = fs::read_to_string("/sys/devices/system/cpu/possible").unwrap();
        assert_eq!(place.sh(&["--feature", "machine"], see).well(), host.trim());
        let change = "echo 0 > /sys/devices/system/cpu/cpu1/online";
        let ran = place.sh(&["--feature", "machine"], change);
        assert_ne!(ran.code, 0, "{}", ran.text());
        let groups = place.sh(&["--feature", "machine"], "ls /sys/fs/cgroup; ls /sys/fs/cgroup/*/");
        assert!(
            !groups.text().contains(".slice") && !groups.text().contains(".procs"),
            "{}",
            groups.text()
        );
        assert_eq!(fs::read_to_string("/sys/devices/system/cpu/possible").unwrap(), host);
        learn(place, &["--feature", "machine"], see).ends(0).says("nothing to propose");
    });
}

#[test]
fn what_is_protected_is_named_and_left_to_the_user() {
    everybody(Tier::Namespace, |place| {
        let _ = fs::remove_file(place.project("l.toml"));
        place.file("home/.gitconfig", "[user]\n");
        place.file("home/.local/bin/tool", "#!/bin/sh\n");
        place.file("home/.app/a", "x");
        let script = "echo x >> ~/.gitconfig; cat ~/.local/bin/tool > /dev/null; echo x > ~/.local/bin/tool; \
                      cat ~/.app/a; echo x > ~/.app/a";
        let learnt = learn(place, &["-o", "l.toml"], script);
        learnt.ends(0).says(
            "not proposed: filesystem.write ~/.gitconfig?: it is protected, and no more with this: git runs",
        );
        learnt.says("not proposed: filesystem.write ~/.local/bin?: it is protected");
        let text = rules(place);
        assert!(!text.contains("gitconfig") && !text.contains("bin"), "{text}");
        assert!(text.contains("write = [\n\"~/.app?\",\n]"), "the control: {text}");
        assert_eq!(fs::read_to_string(place.at("home/.gitconfig")).unwrap(), "[user]\n");
    });
}

/// To follow the advice would be to grant the host.
#[test]
fn what_is_on_the_way_to_a_grant_is_not_advised_to_be_granted() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    for path in ["/", "/var"] {
        for words in [&["why", "--", "read", path][..], &["explain", path, "ls"]] {
            let told = place.ringfence(words.iter().copied());
            told.prints("inside it is a directory of the view's own");
            assert!(!told.text().contains("--read"), "{}", told.text());
        }
        place.run(&[], &["ls", "-d", path]).ends(0);
    }
    let control = place.ringfence(["why", "--", "read", "/srv"]);
    control.prints("--read /srv");
    place.ringfence(["help", "learn"]).ends(0).prints("--merge FILE");
    place.ringfence(["help"]).ends(0).prints("Commands:");
}

#[test]
fn a_directory_that_is_only_gone_to_is_missed_and_learnt() {
    everybody(Tier::Namespace, |place| {
        let _ = fs::remove_file(place.project("l.toml"));
        place.directory("home/elsewhere");
        let script = "cd ~/elsewhere && echo there";
        let missed = place.run(&["--trace-missing"], &["sh", "-c", script]);
        missed.says("home/elsewhere shows it");
        assert_eq!(missed.text(), "", "{}", missed.err);
        learn(place, &["-o", "l.toml"], script).ends(0).prints("there");
        assert!(rules(place).contains("/elsewhere?"), "{}", rules(place));
        place.run(&["-p", "./l.toml"], &["sh", "-c", script]).ends(0).prints("there");
    });
}

/// Which port the kernel gives is another one each time.
#[test]
fn a_port_that_the_program_was_given_is_no_service_of_the_hosts() {
    everybody(Tier::Namespace, |place| {
        if !place.has("python3", "--version") {
            return;
        }
        let serve = |port: u16| {
            format!(
                "python3 -c \"import socket; s = socket.create_server(('127.0.0.1', {port})); \
                 socket.create_connection(s.getsockname()); s.accept(); print('served')\""
            )
        };
        let given = learn(place, &[], &serve(0));
        given.ends(0).prints("served");
        assert!(!given.err.contains("localhost"), "{}", given.err);
        // The control: one that is asked for is told of, and a service of somebody else is.
        learn(place, &[], &serve(18_333)).ends(0).says("18333: it is served inside");
        let refused = "python3 -c \"import socket; s = socket.socket(); s.bind(('127.0.0.1', 0))
s.connect_ex(('127.0.0.1', 18334))\"";
        learn(place, &[], refused).says("localhost:18334: a service of the host's own");
    });
}

#[test]
fn the_command_that_is_told_has_the_options_that_learnt_it() {
    everybody(Tier::Namespace, |place| {
        let _ = fs::remove_file(place.project("l.toml"));
        place.file("home/with blank/data", "known\n");
        let script = "cat ~/'with blank/data'";
        let directory = place.at("home/with blank").display().to_string();
        // The session's name is none of them.
        let learnt =
            learn(place, &["-r", &directory, "-o", "l.toml", "--name=zz", "--no-record"], script);
        let told = format!("run --read='{directory}' -p l.toml -- CMD");
        learnt.ends(0).prints("known").says(&told);
        let line = format!("$RF --read='{directory}' -p l.toml -- sh -c \"{script}\"");
        assert_eq!(place.shell(&line).ends(0).text(), "known");
        let profile = fs::read_to_string(place.project("l.toml")).unwrap_or_default();
        assert!(profile.contains(&format!("It goes with --read='{directory}'")), "{profile}");
    });
}

#[test]
fn a_socket_that_nobody_listens_on_is_named_and_so_is_a_listed_directory_of_all_programs() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    let socket = place.directory("home/.app").join("left");
    place.file("home/.app/settings", "x\n");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    place.person.owns(&socket);
    place.file("home/.config/git/ignore", "x\n");
    let learnt = learn(place, &["-o", "l.toml"], "ls ~/.app ~/.config > /dev/null");
    learnt.ends(0).says("not proposed: filesystem.read ~/.app?: a service has listened in it");
    learnt.says(&format!("remove its socket {}", socket.display()));
    learnt.says("not proposed: filesystem.read ~/.config?: each program's directory is in it");
    fs::remove_file(&socket).unwrap();
    fs::remove_file(place.project("l.toml")).unwrap();
    learn(place, &["-o", "l.toml"], "ls ~/.app > /dev/null").ends(0);
    assert!(rules(place).contains("\"~/.app?\""), "{}", rules(place));
}
