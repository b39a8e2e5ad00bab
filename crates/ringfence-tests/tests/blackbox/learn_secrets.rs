//! What `learn` must not propose without a word: credentials, by whatever name or place they were reached.

use crate::learn_rules::{learn, rules};
use ringfence_tests::{Place, Tier, everybody};
use std::fs;

const SECRET: &str = "SECRET-OF-THE-USER";

/// The home with a key in it, and nothing learnt yet.
fn fresh(place: &Place) {
    let _ = fs::remove_file(place.project("l.toml"));
    place.file("home/.ssh/id_ed25519", format!("{SECRET}\n"));
}

/// A rule is read by the rules of rules: a backslash in a name is no part of what it says.
#[test]
fn an_odd_name_is_proposed_as_itself_and_grants_nothing_else() {
    everybody(Tier::Namespace, |place| {
        fresh(place);
        place.file("home/notes.txt", "private\n");
        // Each is the name of another place, read as a rule and not escaped.
        let odd = ["evil/.\\./.ssh/hosts", ".ss\\h/hosts", "a*/hosts", "$HOME/hosts"];
        odd.iter().for_each(|name| _ = place.file(format!("home/{name}"), "odd\n"));
        place.file("home/ab/hosts", "another's\n");
        let reads: String = odd.iter().map(|name| format!("cat ~/'{name}'; ")).collect();
        let learnt = learn(place, &["-o", "l.toml"], &format!("{reads} ls ~/'evil/.\\./.ssh'"));
        learnt.ends(0).prints("odd\nodd\nodd\nodd");
        let see = format!("{reads} ls -a ~; cat ~/.ssh/id_ed25519 ~/notes.txt ~/ab/hosts");
        let ran = place.sh(&["-p", "l.toml"], &see);
        let all = format!("{}\n{}", rules(place), ran.text());
        assert!(!ran.text().contains(SECRET), "{all}");
        ran.ends(1).prints("odd\nodd\nodd\nodd");
        assert!(!ran.text().contains("private") && !ran.text().contains("another"), "{all}");
        learn(place, &["-p", "l.toml"], &reads).ends(0).says("nothing to propose");
    });
}
