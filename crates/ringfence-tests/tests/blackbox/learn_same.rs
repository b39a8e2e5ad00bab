//! What `learn` says is so: where it names nothing that is left to the user, a run under what it proposes ends as the same
//! command does outside; and where a run ends in another way, it names what it does not propose.

use crate::learn_rules::learn;
use ringfence_tests::{Finished, Person, Place, Tier, everybody};
use std::fs;
use std::path::PathBuf;

/// A script, and what `learn` says that it leaves to the user; nothing where the run is the same.
type Case = (&'static str, Option<&'static str>);

const HOME: [Case; 19] = [
    ("echo x >> ~/.app/log && cat ~/.app/log", None),
    ("echo x >> ~/.app/log", None),
    ("echo x > ~/.app/new", None),
    ("cd ~/.app && echo x > new", None),
    ("mkdir ~/.app/sub && echo x > ~/.app/sub/f && cat ~/.app/sub/f", None),
    ("mkdir -p ~/.app && echo x > ~/.app/new", None),
    ("mkdir -p ~/.new/sub && echo x > ~/.new/sub/f", None),
    ("mv ~/.app/log ~/.app/log.1 && echo x > ~/.app/log && cat ~/.app/log.1", None),
    ("ln ~/.app/log ~/.app/other && rm ~/.app/log && cat ~/.app/other", None),
    ("touch ~/.app/log && truncate -s 0 ~/.app/log && cat ~/.app/log", None),
    ("cp ~/.config/tool/settings ~/.cache/tool/ && cat ~/.cache/tool/settings", None),
    ("echo x > ~/.local/share/tool/f", None),
    ("echo x > ~/data/f", None),
    ("echo x > new; echo x > ~/.rc; cat new", None),
    ("echo x > ~/.cache/new", Some("filesystem.write ~/.cache?: ")),
    ("echo x > ~/.local/bin/new", Some("filesystem.write ~/.local/bin?: it is protected")),
    ("echo x > ~/.config/autostart/a.desktop", Some("a.desktop?: it is protected")),
    ("echo x > ~/.aws/config", Some("filesystem.write ~/.aws")),
    ("ln ~/.app/log ~/.config/tool/l", Some("(EXDEV: some programs copy it then)")),
];

/// `@` is a directory of the host's that no rule shows, where temporary files are.
const TEMPORARY: [Case; 9] = [
    ("f=$(mktemp) && echo x > $f && cat $f && rm $f", None),
    ("d=$(mktemp -d) && mkdir $d/a && echo x > $d/a/b && cat $d/*/b && rm -r $d", None),
    ("mkdir -p @ && echo x > @/f && cat @/f", None),
    ("cat @/f", Some("filesystem.read @?: each run has a /tmp of its own")),
    ("cd @", Some("filesystem.read @?: ")),
    ("rm @/f", Some("filesystem.read @?: ")),
    ("echo x > @/new", Some("filesystem.write @?: each run has a /tmp of its own")),
    ("mkdir @/new", Some("filesystem.write @?: ")),
    ("cat @/f || mkdir -p @ && echo x > @/f && cat @/f", Some("filesystem.read @?: ")),
];

/// The home as it is before each.
fn afresh(place: &Place) {
    for name in [".app", ".new", ".config/tool", ".cache/tool", ".local/bin", "data"] {
        let _ = fs::remove_dir_all(place.at("home").join(name));
    }
    for name in [".cache/new", ".rc", ".config/autostart/a.desktop", ".aws/config", "project/new"] {
        let _ = fs::remove_file(place.at("home").join(name));
    }
    for name in [".app/log", ".config/tool/settings"] {
        place.file(format!("home/{name}"), "old\n");
    }
    let directories =
        [".cache/tool", ".local/share/tool", ".local/bin", ".config/autostart", ".aws", "data"];
    directories.iter().for_each(|name| _ = place.directory(format!("home/{name}")));
    let _ = fs::remove_dir_all(place.at("apart"));
    place.file("apart/f", "the host's\n");
}

fn end(ran: &Finished) -> (i32, String) {
    (ran.code, ran.text())
}

fn holds(place: &Place, script: &str, left: Option<&str>) {
    let _ = fs::remove_file(place.project("l.toml"));
    afresh(place);
    let outside = end(&place.shell(script));
    assert_eq!(outside.0, 0, "the control: {script}: {}", outside.1);
    afresh(place);
    let learnt = learn(place, &["-o", "l.toml"], script);
    let ran = place.sh(&["-p", "./l.toml"], script);
    let allowed = learnt.err.contains("the policy allows what it did");
    match left {
        None => {
            assert!(!learnt.err.contains("not proposed: "), "{script}: {}", learnt.err);
            assert_eq!(end(&ran), outside, "{script}: {}\n{}", learnt.err, ran.err);
        }
        Some(left) => {
            assert!(!allowed, "{script}: {}", learnt.err);
            learnt.says(left);
            assert_ne!(end(&ran), outside, "it is said for nothing: {script}");
        }
    }
}

#[test]
fn what_is_learnt_in_the_home_is_enough_or_it_is_said_what_is_not() {
    everybody(Tier::Namespace, |place| {
        HOME.iter().for_each(|(script, left)| holds(place, script, *left));
        if place.has("python3", "--version") {
            let bind = "python3 -c 'import os, socket; \
                        socket.socket(socket.AF_UNIX).bind(os.path.expanduser(\"~/.app/s\"))'";
            holds(place, bind, None);
        }
    });
}

#[test]
fn what_the_hosts_temporary_files_are_asked_for_is_said() {
    everybody(Tier::Namespace, |place| {
        let apart = place.text("apart");
        // A rule is about what a program keeps there: `/`, `tmp`, a name.
        let unit: PathBuf = place.root().iter().take(3).collect();
        let unit = unit.display().to_string();
        if !apart.starts_with("/tmp/") {
            return ringfence_tests::left_out("temporary files", "TMPDIR is elsewhere");
        }
        for (script, left) in TEMPORARY {
            let left = left.map(|left| left.replace('@', &unit));
            holds(place, &script.replace('@', &apart), left.as_deref());
        }
    });
}

#[test]
fn what_is_missing_of_the_hosts_temporary_files_is_told() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    let file = place.file("apart/f", "the host's\n").display().to_string();
    let apart = place.text("apart");
    let script = format!("cat {file}; echo x > {apart}/new");
    let traced = place.run(&["--trace-missing"], &["sh", "-c", &script]);
    traced.says(&format!("missing: {file} (by cat); --read {file} shows it"));
    traced.says(&format!("missing: {apart} (by sh); it was to be written in"));
    let own = format!("mkdir -p {apart} && echo x > {file} && cat {file}");
    let traced = place.run(&["--trace-missing"], &["sh", "-c", &own]);
    traced.ends(0).says("nothing that the host has was missing");
    let shown = place.run(&["--trace-missing", "-r", &file], &["cat", &file]);
    shown.ends(0).prints("the host's").says("nothing that the host has was missing");
}

/// What another program listens on is named also where the program's own sockets usually are.
#[test]
fn a_socket_of_the_hosts_among_temporary_files_is_named_and_ones_own_is_not() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    if !place.has("python3", "--version") {
        return;
    }
    let socket = place.directory("apart").join("s");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let (apart, socket) = (place.text("apart"), socket.display().to_string());
    let connect =
        format!("import os, socket; s = socket.socket(socket.AF_UNIX); s.connect_ex(\"{socket}\")");
    let told = format!("not proposed: network.sockets {socket}?: a service of the host's");
    learn(place, &[], &format!("python3 -c '{connect}'")).ends(0).says(&told);
    let own = format!(
        "python3 -c 'import os, socket; os.makedirs(\"{apart}\"); o = socket.socket(socket.AF_UNIX); \
         o.bind(\"{socket}\"); o.listen(); {connect}'"
    );
    let learnt = learn(place, &[], &own);
    learnt.ends(0).says("nothing to propose: the policy allows what it did");
    drop(listener);
}

/// In a private home a link from one place to another is no matter; while it is watched it is one.
#[test]
fn what_only_a_watched_run_does_not_link_is_told() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    let script =
        "mkdir ~/.config ~/.config/tool; echo x > ~/f; ln ~/f ~/.config/tool/f || true; cat ~/f";
    let learnt = learn(place, &[], script);
    learnt.ends(0).says("fails while it is watched").says("~/f to ~/.config/tool/f");
    learnt.says("the policy allows what was seen of it");
    place.sh(&[], &script.replace(" || true", "")).ends(0).prints("x");
    // Where the home is written as a whole, so is it in a run.
    place.file("home/f", "x");
    place.directory("home/.config/tool");
    let home = place.text("home");
    let script = "ln ~/f ~/.config/tool/f";
    let learnt = learn(place, &["-w", &home], script);
    learnt.says("filesystem.write ~/.config/tool/f?: ~/f is renamed or linked to it");
    place.sh(&["-w", &home], script).ends(1).says("cross-device");
    place.shell(script).ends(0);
}
