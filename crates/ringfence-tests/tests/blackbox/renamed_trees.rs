//! The writable tree is renamed while the run goes on: the command has the directory, not its name.

use ringfence_tests::{Place, Running, everywhere, until};
use rustix::fs::OFlags;
use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// What a run makes at protected names once it is let go: at the top, below, and in git's own directory.
const MAKES: &str = "echo evil > .envrc; mkdir -p .vscode n/.claude n/.git/hooks; echo evil > .vscode/tasks.json
    echo evil > n/.claude/settings.json; echo evil > n/.git/hooks/post-checkout
    echo evil 2>&- > .git/hooks/pre-commit; echo '[core] fsmonitor = evil' 2>&- >> .git/config; echo mine > plain";

const MADE: [&str; 5] = [
    ".envrc",
    ".vscode/tasks.json",
    "n/.claude/settings.json",
    "n/.git/hooks/post-checkout",
    ".git/hooks/pre-commit",
];

const CONFIG: &str = "[core]\n\trepositoryformatversion = 0\n";

/// A run in a repository of this name in the project, which waits to be let go.
fn start(place: &Place, name: &str) -> Running {
    place.directory(format!("home/project/{name}/.git/refs"));
    place.directory(format!("home/project/{name}/.git/objects"));
    place.file(format!("home/project/{name}/.git/HEAD"), "ref: refs/heads/main\n");
    place.file(format!("home/project/{name}/.git/config"), CONFIG);
    place.shell(&format!("mkfifo project/{name}/gate || mkfifo {name}/gate")).ends(0);
    let workdir = place.project(name);
    let options = ["--workdir", workdir.to_str().expect("a name"), "-w", "."];
    // Launched from a plan that was compiled, or from none.
    for _ in 0..2 * u8::from(name.contains("hot")) {
        place.run(&options, &["sh", "-c", "true"]).ends(0);
    }
    let script = format!("echo begun; read line < gate; {MAKES}; echo made");
    let mut running = place.start(&options, &["sh", "-c", &script]);
    running.printed("begun");
    running
}

/// Lets it go where its directory is now, and returns what it said.
fn go(mut running: Running, now: &Path) -> String {
    fs::write(now.join("gate"), "go\n").expect("somebody reads");
    running.printed("made");
    let finished = running.finish();
    finished.ends(0);
    assert!(now.join("plain").exists(), "the control: it writes there");
    finished.err.clone()
}

fn is_clean(tree: &Path, said: &str) {
    for name in MADE {
        assert!(!tree.join(name).exists(), "{name} in {tree:?}: {said}");
    }
    assert_eq!(fs::read_to_string(tree.join(".git/config")).expect("a file"), CONFIG, "{said}");
}

#[test]
fn what_was_made_is_looked_for_where_the_tree_is() {
    everywhere(|place| {
        for (at, name) in [("sub", "sub"), ("above/sub", "above"), ("hot", "hot")] {
            let running = start(place, at);
            let (was, now) = (place.project(name), place.project(format!("{name}-2")));
            fs::rename(&was, &now).expect("nobody holds it");
            let tree = now.join(Path::new(at).strip_prefix(name).expect("below it"));
            let said = go(running, &tree);
            assert!(said.contains("was renamed to"), "{said}");
            is_clean(&tree, &said);
            assert!(!was.exists(), "{said}");
        }
    });
}

#[test]
fn what_stands_in_its_place_is_left_alone() {
    everywhere(|place| {
        let running = start(place, "sub");
        let (was, now) = (place.project("sub"), place.project("sub-2"));
        for (name, text) in [(".git/config", "[user]\n\tname = other\n"), (".envrc", "mine\n")] {
            place.file(format!("home/project/other/{name}"), text);
        }
        place.file("home/project/other/.vscode/tasks.json", "mine\n");
        fs::rename(&was, &now).expect("nobody holds it");
        fs::rename(place.project("other"), &was).expect("a free name");
        let said = go(running, &now);
        is_clean(&now, &said);
        let there = |name: &str| fs::read_to_string(was.join(name)).expect("a file");
        assert_eq!(there(".git/config"), "[user]\n\tname = other\n", "{said}");
        assert_eq!(there(".envrc"), "mine\n", "{said}");
        assert_eq!(there(".vscode/tasks.json"), "mine\n", "{said}");
    });
}

#[test]
fn a_link_in_its_place_leads_nowhere_else() {
    everywhere(|place| {
        let running = start(place, "above/hot");
        let (was, now) = (place.project("above"), place.project("above-2"));
        fs::rename(&was, &now).expect("nobody holds it");
        place.link("home/project/above", "above-2");
        let said = go(running, &now.join("hot"));
        is_clean(&now.join("hot"), &said);
        assert!(was.is_symlink(), "{said}");
    });
}

#[test]
fn one_that_is_removed_takes_all_with_it() {
    everywhere(|place| {
        let running = start(place, "sub");
        let now = place.project("sub-2");
        fs::rename(place.project("sub"), &now).expect("nobody holds it");
        // Who reads has opened it: for writing it cannot be before (fifo(7)).
        let mut gate = None;
        until("somebody reads", || {
            let mut options = fs::OpenOptions::new();
            options.write(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
            gate = options.open(now.join("gate")).ok();
            gate.is_some()
        });
        fs::remove_dir_all(&now).expect("removed");
        drop(gate);
        let finished = running.finish();
        finished.says("was removed while the run went on");
        assert!(!now.exists() && !place.project("sub").exists());
    });
}
