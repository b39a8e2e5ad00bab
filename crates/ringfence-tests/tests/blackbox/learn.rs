//! `ringfence learn`: nothing is changed, everything is seen, and what it proposes is enough.

use ringfence_tests::{Finished, Person, Place, Tier, everybody, left_out};
use std::fs;

fn learn(place: &Place, options: &[&str], script: &str) -> Finished {
    let mut words = vec!["learn"];
    words.extend(options);
    words.extend(["--", "sh", "-c", script]);
    place.ringfence(words)
}

/// The rules of a profile that are in force: without comments.
fn rules(profile: &str) -> String {
    let lines = profile.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

#[test]
fn nothing_real_is_changed() {
    everybody(Tier::Namespace, |place| {
        place.file("home/project/kept", "before\n");
        place.file("home/.config/app/settings", "before\n");
        let script = "echo after > kept; rm ~/.config/app/settings; mkdir made; echo x > ~/new; \
                      cat kept; ls ~ | grep -c new";
        let learnt = learn(place, &[], script);
        learnt.ends(0).prints("after\n1\n");
        assert_eq!(fs::read_to_string(place.project("kept")).unwrap(), "before\n");
        assert_eq!(fs::read_to_string(place.at("home/.config/app/settings")).unwrap(), "before\n");
        assert!(!place.project("made").exists() && !place.at("home/new").exists());
        assert!(place.left_behind().is_empty(), "{:?}", place.left_behind());
        let records = place.at("home/.local/state/ringfence/sessions");
        assert!(!records.exists(), "no record is left of it");
    });
}

#[test]
fn what_it_proposes_is_enough_and_a_second_run_proposes_nothing() {
    everybody(Tier::Namespace, |place| {
        place.file("home/.config/app/a", "settings\n");
        place.file("home/.app-data/deep/b", "data\n");
        let script =
            "cat ~/.config/app/a ~/.app-data/deep/b && echo x > ~/.app-data/deep/new && echo done";
        place.sh(&[], script).ends(1);
        let learnt = learn(place, &["-o", "learnt.toml"], script);
        learnt.ends(0).says("rules proposed");
        let profile = fs::read_to_string(place.project("learnt.toml")).unwrap();
        let proposed = rules(&profile);
        assert!(proposed.contains("\"~/.config/app?\","), "{profile}");
        assert!(!proposed.contains("\"~/.config?\""), "no wider than the program's own: {profile}");
        assert!(profile.contains("# once, by cat"), "{profile}");
        let ran = place.sh(&["-p", "learnt.toml"], script);
        ran.ends(0).prints("settings\ndata\ndone");
        learn(place, &["-p", "learnt.toml"], script).ends(0).says("nothing to propose");
    });
}

#[test]
fn credentials_are_hidden_and_named_but_never_proposed() {
    everybody(Tier::Namespace, |place| {
        place.file("home/.ssh/id_ed25519", "a key\n");
        place.file("home/.aws/credentials", "a secret\n");
        place.file("home/.config/app/a", "a\n");
        place.file("home/.claude/.credentials.json", "a secret\n");
        place.file("home/.config/composer/auth.json", "a secret\n");
        place.file("home/.config/composer/config.json", "a\n");
        let script = "cat ~/.config/app/a; cat ~/.ssh/id_ed25519 ~/.aws/credentials; cat ~/.claude/.cred* \
                      ~/.config/composer/*; ls ~/.config/composer";
        let learnt = learn(place, &["-o", "learnt.toml"], script);
        assert!(
            !learnt.text().contains("a key") && !learnt.text().contains("a secret"),
            "{}",
            learnt.text()
        );
        learnt.says("not proposed: filesystem.read ~/.ssh/id_ed25519?: credentials: keys of ssh");
        learnt.says(".claude/.credentials.json?: credentials: Claude Code's");
        learnt.says("~/.config/composer?: in it are credentials: Composer's");
        let profile = fs::read_to_string(place.project("learnt.toml")).unwrap();
        let proposed = rules(&profile);
        assert!(!proposed.contains(".ssh") && !proposed.contains(".aws"), "{profile}");
        assert!(!proposed.contains("composer?") && !proposed.contains(".claude"), "{profile}");
        assert!(proposed.contains("~/.config/composer/config.json?"), "{profile}");
        assert!(proposed.contains("~/.config/app?"), "the control: what is none is proposed");
        assert!(profile.contains("NOT proposed, credentials: a cloud's"), "{profile}");
    });
}

#[test]
fn dangerous_grants_are_named_and_left_to_the_user() {
    let place = Place::new(Person::Root, Tier::Namespace);
    if !ringfence_tests::people().contains(&Person::Root) {
        return left_out("writing to /etc", "not root");
    }
    let learnt = learn(
        &place,
        &["-o", "learnt.toml"],
        "echo x > /etc/rf-learn-test; echo x > .git/hooks/pre-commit",
    );
    learnt.says("not proposed: filesystem.write /etc/rf-learn-test?");
    assert!(!std::path::Path::new("/etc/rf-learn-test").exists());
    let profile = fs::read_to_string(place.project("learnt.toml")).unwrap();
    assert!(!rules(&profile).contains("/etc"), "{profile}");
}

#[test]
fn a_file_is_not_overwritten_and_merging_shows_what_is_added() {
    let place = Place::new(Person::Ordinary, Tier::Namespace);
    place.file("home/.config/app/a", "a\n");
    let old = "extends = [\"default\"]\n\n[filesystem]\nread = [\"~/.config/other?\"] # mine\n";
    place.file("home/project/mine.toml", old);
    let script = "cat ~/.config/app/a";
    learn(&place, &["-o", "mine.toml"], script).ends(125).says("exists and is not overwritten");
    let shown = learn(&place, &["--merge", "mine.toml"], script);
    shown.ends(0).prints("+    \"~/.config/app?\", # once, by cat");
    assert_eq!(fs::read_to_string(place.project("mine.toml")).unwrap(), old, "only shown");
    learn(&place, &["--merge", "mine.toml", "-o", "mine.toml"], script).ends(0);
    let merged = fs::read_to_string(place.project("mine.toml")).unwrap();
    assert!(
        merged.contains("\"~/.config/other?\"] # mine"),
        "what the user wrote is kept: {merged}"
    );
    place.run(&["-p", "mine.toml"], &["sh", "-c", script]).ends(0);
    learn(&place, &["--merge", "mine.toml"], script).ends(0).says("nothing to propose");
    // A link would be replaced by a file: whose it is the user says.
    place.file("outside/own.toml", old);
    std::os::unix::fs::symlink(place.at("outside/own.toml"), place.project("link.toml")).unwrap();
    let linked = learn(&place, &["--merge", "link.toml", "-o", "link.toml"], script);
    linked.ends(125).says("link.toml is a link, which would be replaced and not followed");
    assert!(place.project("link.toml").is_symlink());
    // Lists may be written in another way; what is there stays as it is.
    let others = [
        ("filesystem = { read = [", "\"~/.config/other?\"] } # mine\n"),
        ("filesystem.read = [ # mine\n", "    '~/.config/other?',\n]\nlimits.pids = 500\n"),
        ("\"filesystem\".'read' = [", "\"~/.config/other?\"] # mine\n"),
    ];
    for (head, rest) in others {
        let text = format!("extends = [\"default\"]\n{head}{rest}");
        place.file("home/project/dotted.toml", &text);
        learn(&place, &["--merge", "dotted.toml", "-o", "dotted.toml"], script).ends(0);
        let merged = fs::read_to_string(place.project("dotted.toml")).unwrap();
        let entry = "    \"~/.config/app?\", # once, by cat\n";
        assert!(merged.contains(entry) && merged.replace(entry, "").contains("# mine"), "{merged}");
        for line in rest.lines() {
            assert!(merged.lines().any(|found| found.trim() == line.trim()), "{line}: {merged}");
        }
        place.run(&["-p", "./dotted.toml"], &["sh", "-c", script]).ends(0);
        learn(&place, &["--merge", "dotted.toml"], script).ends(0).says("nothing to propose");
    }
}

#[test]
fn names_that_a_program_chose_do_not_become_other_rules() {
    let place = Place::new(Person::Ordinary, Tier::Namespace);
    for name in ["a\"]\nwrite = [\"~", "star*", "$HOME", "line\nbreak"] {
        place.file(format!("home/.odd/{name}"), "x");
        place.file(format!("home/data/{name}"), "x");
    }
    let script = "cd ~/data && cat ./* > /dev/null; cd ~/.odd && cat ./*";
    learn(&place, &["-o", "learnt.toml"], script).ends(0);
    let profile = fs::read_to_string(place.project("learnt.toml")).unwrap();
    // Nor what the terminal obeys, nor a line of ours.
    place.file("home/e\u{1b}[31m\nringfence: forged", "x");
    let told = learn(&place, &[], "cat ~/e*");
    assert!(
        !told.err.contains('\u{1b}') && !told.err.contains("\nringfence: forged"),
        "{}",
        told.err
    );
    told.says("not proposed");
    assert!(!rules(&profile).contains("write"), "{profile}");
    place.ringfence(["profile", "check", "learnt.toml"]).ends(0);
}

#[test]
fn the_exit_code_is_the_commands_and_interrupts_are_for_it() {
    let place = Place::new(Person::Ordinary, Tier::Namespace);
    learn(&place, &[], "exit 7").ends(7).prints("ended with code 7");
    learn(&place, &[], "kill -TERM $$").ends(143);
    place.ringfence(["learn", "--", "no-such-command"]).ends(127);
}

#[test]
fn ports_and_hosts_are_seen() {
    let place = Place::new(Person::Ordinary, Tier::Namespace);
    if !place.has("python3", "--version") {
        return;
    }
    let script = "/usr/bin/python3 -c 'import socket; s = socket.socket(); s.bind((\"127.0.0.1\", 7391)); s.listen(); c = socket.create_connection((\"127.0.0.1\", 7391)); print(1)'";
    let learnt = learn(&place, &["-o", "learnt.toml"], script);
    learnt.says("not proposed: network.publish 7391: it is served inside");
    assert!(!learnt.err.contains("localhost"), "its own server is no host's: {}", learnt.err);
}

#[test]
fn real_programs_reach_a_fixed_point() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    place.file("home/.gitconfig", "[user]\nname = n\nemail = e@x\n");
    place.file(
        "home/project/package.json",
        "{\"name\": \"a\", \"version\": \"1.0.0\", \"scripts\": {\"x\": \"echo ran\"}}",
    );
    place.file("home/project/go.mod", "module a\n\ngo 1.18\n");
    place.file("home/project/main.go", "package main\n\nfunc main() { println(1) }\n");
    // Servers are stopped when they serve, not after a time: how far one has come by then depends on
    // the load of the machine, and what it has not done yet nobody has seen.
    for (program, version, script) in [
        (
            "git",
            "--version",
            "git init -q r; cd r; echo x > f; git add f; git commit -qm m; git log --oneline | wc -l",
        ),
        (
            "python3",
            "--version",
            "/usr/bin/python3 -m venv --without-pip v && v/bin/python -c 'import json, ssl; print(1)'",
        ),
        ("npm", "--version", "npm run x"),
        ("go", "version", "GOTOOLCHAIN=local go vet ./main.go; go run main.go"),
        (
            "redis-server",
            "--version",
            "redis-server --port 7392 --save '' & until redis-cli -p 7392 ping 2> /dev/null | grep -q PONG; do :; done; \
             redis-cli -p 7392 shutdown nosave; wait",
        ),
        (
            "pip",
            "--version",
            "/usr/bin/python3 -m pip --version && /usr/bin/python3 -m pip list --disable-pip-version-check",
        ),
        (
            "nginx",
            "-v",
            "mkdir -p logs; echo 'daemon off; error_log logs/e; pid logs/p; events {} http { access_log off; \
             client_body_temp_path logs/a; proxy_temp_path logs/b; fastcgi_temp_path logs/c; uwsgi_temp_path logs/d; \
             scgi_temp_path logs/s; server { listen 127.0.0.1:7393; } }' > n.conf; rm -f logs/p; nginx -p . -e logs/e -c n.conf & \
             until [ -s logs/p ]; do :; done; kill -QUIT $(cat logs/p); wait",
        ),
        ("gcc", "--version", "echo 'int main(void) { return 0; }' > a.c && gcc a.c -o a && ./a"),
    ] {
        if !place.has(program, version) {
            continue;
        }
        let file = format!("{program}.toml");
        let first = learn(place, &["-o", &file], script);
        let again = learn(place, &["-p", &file], script);
        again.ends(first.code).says("nothing to propose");
        place.sh(&["-p", &file], script).ends(first.code);
    }
}

#[test]
fn cargo_reaches_a_fixed_point() {
    let place = &Place::new(Person::Root, Tier::Namespace);
    if !ringfence_tests::people().contains(&Person::Root) {
        return left_out("cargo", "the toolchain of who runs the tests is not this person's");
    }
    let home = std::env::home_dir().unwrap_or_default();
    let of = |name: &str, directory: &str| {
        let named = std::env::var_os(name).map_or_else(|| home.join(directory), Into::into);
        named.display().to_string()
    };
    let (cargo, rustup) = (of("CARGO_HOME", ".cargo"), of("RUSTUP_HOME", ".rustup"));
    let around = format!("export CARGO_HOME={cargo} RUSTUP_HOME={rustup} PATH={cargo}/bin:$PATH;");
    if place.shell(&format!("{around} cargo --version")).code != 0 {
        return left_out("cargo", "it does not run here");
    }
    let manifest =
        "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n";
    place.file("home/project/Cargo.toml", manifest);
    place.file("home/project/src/main.rs", "fn main() { println!(\"hello\") }\n");
    let script = format!("{around} cargo build -q --offline && target/debug/tiny");
    learn(place, &["-o", "cargo.toml"], &script).ends(0).prints("hello");
    learn(place, &["-p", "cargo.toml"], &script).ends(0).says("nothing to propose");
    place.sh(&["-p", "cargo.toml"], &script).ends(0).prints("hello");
}
