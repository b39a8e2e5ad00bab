//! `deny` through symbolic links: what they lead to is denied, by each of its names, and who may write the
//! links changes nothing in that, in this run nor in the next.

use ringfence_tests::{Place, Tier, everybody, everywhere};
use std::fs;

/// `keys/key` and `keys/deep/key` hold `key`; `w/link` leads to `keys`, `w/ab` by way of a second link.
fn keys(place: &Place) {
    place.file("home/project/keys/key", "key");
    place.file("home/project/keys/deep/key", "key");
    place.directory("home/project/w/a");
    place.link("home/project/w/link", "../keys");
    place.link("home/project/w/ab", "a/c");
    place.link("home/project/w/a/c", "../../keys");
}

#[test]
fn what_a_link_leads_to_is_denied_by_each_of_its_names() {
    everybody(Tier::Namespace, |place| {
        keys(place);
        place.sh(&[], "cat keys/key w/link/key w/ab/deep/key").ends(0).prints("keykeykey");
        for (denied, closed, open) in [
            ("w/link", "keys/key w/link/key w/ab/key w/link/deep/key", ""),
            ("w/link/key", "keys/key w/link/key w/ab/key", "keys/deep/key"),
            ("w/ab/deep", "keys/deep/key w/link/deep/key w/ab/deep/key", "keys/key"),
            ("w/link/k*", "keys/key w/link/key w/ab/key", "w/link/deep/key"),
            // A link that a wildcard finds in a writable tree is closed itself.
            ("w/*/key", "w/link/key w/ab/key", "keys/key"),
            ("w/l*", "w/link/key", "keys/key"),
        ] {
            let each =
                format!("for f in {closed}; do cat $f && exit 9; done; cat {open} </dev/null");
            let ended = place.sh(&["--deny", denied], &each);
            // What is closed by a wildcard is no directory any more.
            let said = ["Permission denied", "Not a directory"];
            assert!(said.iter().any(|said| ended.ends(0).err.contains(said)), "--deny {denied}");
            let left = if open.is_empty() { "" } else { "key" };
            assert_eq!(ended.text(), left, "--deny {denied}");
        }
        assert_eq!(fs::read_to_string(place.project("keys/key")).unwrap(), "key");
    });
}

#[test]
fn links_to_what_is_denied_cannot_be_made_to_lead_elsewhere() {
    everybody(Tier::Namespace, |place| {
        keys(place);
        let acts = ["mv w/ab w/x", "rm w/ab", "ln -sfn a w/ab", "mv w/a w/x", "rm w/a/c", "mv w x"];
        for act in acts {
            place.sh(&["--deny", "w/ab/deep"], act).ends(1).says("busy");
        }
        place.sh(&["--deny", "w/ab/deep"], "cat w/ab/deep/key keys/deep/key").ends(1);
        place.sh(&[], "mv w/ab w/x").ends(0);
    });
}

#[test]
fn links_that_lead_nowhere_hold_up_no_run() {
    everybody(Tier::Namespace, |place| {
        place.directory("home/project/w");
        place.link("home/project/w/loop", "loop");
        place.link("home/project/w/gone", "nowhere");
        for denied in ["w/loop", "w/loop/x", "w/gone", "w/gone/x", "w/*", "w/*/x"] {
            place.sh(&["--deny", denied], "echo x > other").ends(0);
            let made = "mkdir -p w/nowhere; echo x > w/nowhere/x; true";
            place.sh(&["--deny", denied], made).ends(0);
            fs::remove_dir_all(place.project("w/nowhere")).ok();
            assert!(place.project("w/gone").is_symlink());
        }
    });
}

/// What a wildcard finds is nobody's word: a link that a program has made closes no more than itself.
#[test]
fn a_planted_link_that_a_wildcard_finds_denies_nothing_but_itself() {
    everybody(Tier::Namespace, |place| {
        place.file("home/project/w/a.pem", "key");
        place
            .sh(
                &[],
                "ln -s /usr w/x.pem; ln -s /etc/passwd w/y.pem; mkdir w/d; ln -s /etc w/d/z.pem",
            )
            .ends(0);
        for denied in ["w/*.pem", "w/*/*.pem", "w/d/*/passwd"] {
            let ended = place.sh(&["--deny", denied], "cat /etc/passwd >/dev/null && ls /usr");
            ended.ends(0);
        }
        let ended = place.sh(&["--deny", "w/*.pem"], "cat w/a.pem w/y.pem; ls w/x.pem/bin");
        ended.says("w/a.pem: Permission denied").says("w/y.pem: Permission denied");
        ended.says("w/x.pem/bin");
        assert_eq!(ended.text(), "");
        place.sh(&["--deny", "w/*.pem"], "rm w/y.pem").says("busy");
        place.sh(&["--deny", "w/d/*/passwd"], "cat w/d/z.pem/passwd").ends(1);
        // Nor does one that leads to what it is in, or to the directory of the run.
        let planted = "mkdir -p w/e run && ln -s ../.. w/e/up && ln -s ../../run w/e/run";
        place.sh(&[], planted).ends(0);
        let run = place.text("home/project/run");
        place.sh(&["--deny", "w/*/up"], "cat w/a.pem; cat w/e/up/w/a.pem").ends(1).prints("key");
        let below = ["-w", "..", "--workdir", &run, "--deny", "../w/*/run"];
        place.sh(&below, "cat ../w/a.pem; ls ../w/e/run/").ends(2).prints("key");
        // The control: without the rule it is the system's own file.
        place.sh(&[], "cat w/a.pem w/y.pem; ls w/x.pem/bin").ends(0);
    });
}

/// A program of an earlier run chooses the names: they must not make the next run fail, nor take long.
#[test]
fn a_denied_directory_of_protected_names_holds_up_no_run() {
    everybody(Tier::Namespace, |place| {
        place.shell("git init -q . && mkdir src && echo x > src/x").ends(0);
        place.sh(&["--deny", ".git"], "cat .git/config").ends(1).says("Permission denied");
        place.sh(&[], "ln -s .git a.key; ln -s .git/config b.key; ln -s src c.key").ends(0);
        let denied = "cat src/x .git/config > /dev/null && cat c.key/x";
        place.sh(&["--deny", "*.key"], denied).ends(1).says("c.key/x");
        place.sh(&["--deny", "*.key"], "cat b.key").ends(1).says("Permission denied");
        place.sh(&[], "cat b.key c.key/x").ends(0);
    });
}

#[test]
fn why_and_plan_say_the_same() {
    everybody(Tier::Namespace, |place| {
        keys(place);
        for (denied, path) in
            [("w/link/key", "keys/key"), ("w/*/key", "w/link/key"), ("w/link/key", "w/ab/key")]
        {
            let why = place.ringfence(["why", "--deny", denied, "--", "read", path]);
            why.ends(1).prints("is denied");
        }
    });
}

#[test]
fn links_in_what_is_granted_for_reading_lead_to_nothing_that_is_denied() {
    everywhere(|place| {
        place.file("outside/deep/x", "x");
        place.link("outside/to", "deep");
        let outside = place.text("outside");
        for rule in ["to", "to/x", "t*", "t*/x"] {
            let denied = format!("{outside}/{rule}");
            let options = ["-r", &outside, "--deny", &denied];
            place.sh(&options, &format!("cat {outside}/to/x {outside}/deep/x")).ends(1);
            assert_eq!(place.sh(&options[..2], &format!("cat {outside}/to/x")).well(), "x");
        }
    });
}

/// Tools of uv and pipx are shown one by one; whoever may write their directory decides how many there are.
#[test]
fn no_number_of_names_makes_a_run_fail() {
    everywhere(|place| {
        let tools = place.directory("home/.local/share/uv/tools");
        for number in 0..1_001 {
            fs::create_dir(tools.join(format!("t{number}"))).unwrap();
        }
        place.file("home/.local/share/uv/tools/t7/x", "x");
        place.sh(&[], "cat ~/.local/share/uv/tools/t7/x").ends(0).prints("x");
        // A rule of the user's own: what the workspace grants anyhow needs no wildcard.
        place.sh(&[], "mkdir many && cd many && seq 1001 | xargs touch").ends(0);
        place.sh(&["-r", "many/*"], "test -e many/7").ends(0);
        // Elsewhere nothing is granted that nobody named.
        let many = place.directory("outside/many");
        for number in 0..1_001 {
            fs::write(many.join(number.to_string()), "").unwrap();
        }
        place
            .sh(&["-r", &place.text("outside/many/*")], "true")
            .ends(125)
            .says("names over 1000 paths");
    });
}
