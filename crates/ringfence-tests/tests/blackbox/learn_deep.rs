//! What is secret by its name or by what is in it, however deep: no rule of `learn` takes it in.

use crate::learn_rules::{learn, rules};
use ringfence_tests::{Place, Tier, everybody};
use std::fs;

const SECRET: &str = "SECRET-OF-THE-USER";

fn fresh(place: &Place) {
    let _ = fs::remove_file(place.project("l.toml"));
    for directory in ["home/work", "home/.app", "home/.cargo"] {
        let _ = fs::remove_dir_all(place.at(directory));
    }
}

/// Reads all below `~/work` and `~/.app` under what was learnt.
fn stays_hidden(place: &Place) {
    let script = "cd ~; grep -r . work .app; true";
    let ran = place.sh(&["-p", "l.toml"], script);
    assert!(!ran.text().contains(SECRET), "{}\n{}", rules(place), ran.text());
    // The control: shown, they are read.
    let shown = place.sh(&["-r", &place.text("home/work"), "-r", &place.text("home/.app")], script);
    assert!(shown.text().contains(SECRET), "{}", shown.text());
}

#[test]
fn a_tree_with_a_credential_deep_in_it_is_no_rule() {
    everybody(Tier::Namespace, |place| {
        fresh(place);
        for (name, text) in [
            ("work/one/README", "one\n"),
            ("work/one/deploy/prod/eu/.env", SECRET),
            ("work/two/README", "two\n"),
            ("work/two/a/b/c/d/secrets/plain", SECRET),
            ("work/three/README", "three\n"),
            ("work/three/old/home/.aws/config", SECRET),
            ("work/four/README", "four\n"),
            ("work/four/a/b/c/text", "-----BEGIN PRIVATE KEY-----\nSECRET-OF-THE-USER\n"),
            ("work/five/README", "five\n"),
            ("work/five/a/b/c/text", "a text\n"),
            (".app/state", "state\n"),
            (".app/a/b/c/kubeconfig", SECRET),
        ] {
            place.file(format!("home/{name}"), text);
        }
        let one = "cat ~/work/one/README; ls ~/work/one >/dev/null";
        let others =
            "cat ~/work/two/README ~/work/three/README ~/work/four/README ~/work/five/README";
        let script = format!("{one}; {others}; cat ~/.app/state; echo x >>~/.app/state");
        let learnt = learn(place, &["-o", "l.toml"], &script);
        learnt.ends(0).prints("one\ntwo\nthree\nfour\nfive\nstate");
        learnt.says("not proposed: filesystem.read ~/work/one?: in it are credentials");
        let text = rules(place);
        for name in ["one", "two", "three", "four"] {
            assert!(text.contains(&format!("\"~/work/{name}/README?\"")), "{text}");
        }
        assert!(text.contains("\"~/work/five?\""), "the control: {text}");
        assert!(text.contains("write = [\n\"~/.app/state?\",\n]"), "{text}");
        stays_hidden(place);
        learn(place, &["-p", "l.toml"], others).ends(0).says("nothing to propose");
        fresh(place);
        // All of it was listed: which is no reason to show it.
        place.file("home/work/proj/README", "plain\n");
        place.file("home/work/proj/deploy/prod/.env", SECRET);
        place.file("home/.app/token", SECRET);
        learn(place, &["-o", "l.toml"], "find ~/work -name README")
            .ends(0)
            .says("~/work?: in it are");
        assert!(!rules(place).contains("work"), "{}", rules(place));
        stays_hidden(place);
    });
}

#[test]
fn common_names_of_credentials_are_named_and_not_proposed() {
    everybody(Tier::Namespace, |place| {
        fresh(place);
        let names = [
            "prod.env",
            "deploy_key",
            "service-account.json",
            "id_rsa.bak",
            "cookies.sqlite",
            "kubeconfig",
            "client.ovpn",
            "wallet.json",
            "private.asc",
            "app.p8",
            "key.der",
            "privatekey.txt",
            "signing-key.json",
            "mysecrets.yml",
            "dbpass.txt",
            ".pgpass.bak",
            "plain",
        ];
        for name in names {
            let key = "-----BEGIN OPENSSH PRIVATE KEY-----\n";
            let begin = if name == "plain" { key } else { "" };
            place.file(format!("home/work/{name}"), format!("{begin}{SECRET}\n"));
        }
        place.file("home/work/README", "plain\n");
        place.file("home/.app/token", SECRET);
        let script: String = names.map(|name| format!("cat ~/work/{name} >/dev/null; ")).concat();
        let learnt = learn(place, &["-o", "l.toml"], &format!("{script} cat ~/work/README"));
        learnt.ends(0).prints("plain");
        for name in names {
            let told = format!("not proposed: filesystem.read ~/work/{name}?: credentials: ");
            learnt.says(&told);
        }
        assert!(rules(place).contains("read = [\n\"~/work/README?\",\n]"), "{}", rules(place));
        stays_hidden(place);
    });
}

/// Packages are public, and have keys for their tests.
#[test]
fn what_packages_come_with_is_no_credential() {
    everybody(Tier::Namespace, |place| {
        fresh(place);
        place.file("home/.cargo/registry/src/a/tests/server.pem", "-----BEGIN PRIVATE KEY-----\n");
        place.file("home/.cargo/registry/src/a/lib.rs", "lib\n");
        let learnt = learn(place, &["-o", "l.toml"], "cat ~/.cargo/registry/src/a/lib.rs");
        learnt.ends(0).prints("lib");
        assert!(!learnt.err.contains("not proposed: filesystem"), "{}", learnt.err);
        assert!(!rules(place).contains("lib.rs"), "{}", rules(place));
    });
}
