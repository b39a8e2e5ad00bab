//! Two runs at once: what one of them changed does not become what was "there before" for the other.

use ringfence_tests::{Place, Running, Tier, everybody, everywhere};
use rustix::process::Signal;
use std::fs;

/// Starts a run that does something, says so, and goes on until it is [let go](go).
fn start(place: &Place, options: &[&str], script: &str, gate: &str) -> Running {
    place.shell(&format!("mkfifo {gate}")).ends(0);
    let script = format!("{script}\necho done-{gate}; read line < {gate}");
    let mut running = place.start(options, &["sh", "-c", &script]);
    running.printed(&format!("done-{gate}"));
    running
}

/// Lets a run go on, which ends well; returns what it said.
fn go(place: &Place, running: Running, gate: &str) -> String {
    fs::write(place.project(gate), "go\n").expect("somebody reads");
    let finished = running.finish();
    finished.ends(0);
    finished.err.clone()
}

const CLAUDE: &str = r#"{"numStartups": 1, "mcpServers": {"docs": {"command": "docs"}}}"#;

#[test]
fn settings_that_a_run_changed_are_not_put_back_by_another() {
    everywhere(|place| {
        let file = place.file("home/.claude.json", CLAUDE);
        let evil = r#"{"numStartups": 2, "mcpServers": {"docs": {"command": "evil"}}}"#;
        let options = ["-p", "claude", "--network", "none"];
        let write = format!("echo '{evil}' > ~/.claude.json");
        let first = start(place, &options, &write, "a");
        assert!(fs::read_to_string(&file).expect("a file").contains("evil"), "the control");
        let second = start(place, &options, "", "b");
        let third = start(place, &options, "", "c");
        assert!(go(place, first, "a").contains("mcpServers"));
        let harmless = |when| {
            let text = fs::read_to_string(&file).expect("a file");
            let now: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            assert_eq!(now["mcpServers"]["docs"]["command"], "docs", "{when}");
            assert_eq!(now["numStartups"], 2, "{when}");
        };
        harmless("the first has ended");
        // One that begins when the first has ended, and another one has what was before it.
        let last = start(place, &options, &write, "d");
        assert!(go(place, second, "b").contains("mcpServers"), "what the last one has done by now");
        harmless("the second has ended");
        go(place, last, "d");
        harmless("the last has ended");
        assert_eq!(go(place, third, "c"), "");
        harmless("all have ended");
        let told = place.at("home/.local/state/ringfence/before");
        assert_eq!(fs::read_dir(told).expect("made for it").count(), 0);
    });
}

#[test]
fn protected_files_that_a_run_changed_are_not_put_back_by_another() {
    everybody(Tier::Process, |place| {
        let names = [".envrc", ".husky/pre-commit", ".vscode/tasks.json"];
        let before = |name: &str| format!("{name} of the user's\n");
        let files = names.map(|name| place.file(format!("home/project/{name}"), before(name)));
        let change = "for name in .envrc .husky/pre-commit .vscode/tasks.json; do echo evil > $name; done; echo evil > .mcp.json";
        let first = start(place, &[], change, "a");
        for file in &files {
            assert_eq!(fs::read_to_string(file).expect("a file"), "evil\n", "the control");
        }
        let idle = start(place, &[], "", "b");
        let other = start(place, &[], change, "c");
        assert!(go(place, first, "a").contains("is protected"));
        let as_before = || {
            for (name, file) in names.iter().zip(&files) {
                assert_eq!(fs::read_to_string(file).expect("a file"), before(name));
            }
            assert!(!place.project(".mcp.json").exists());
        };
        go(place, other, "c");
        as_before();
        // It can have taken away what another one made, and has nothing to put back.
        let said = go(place, idle, "b");
        assert!(
            !said.contains("restored") && names.iter().all(|name| !said.contains(name)),
            "{said}"
        );
        as_before();
        // What the user changes when none runs is his.
        fs::write(&files[0], "new\n").expect("written");
        place.sh(&[], "echo evil > .envrc").ends(0).says("was restored");
        assert_eq!(fs::read_to_string(&files[0]).expect("a file"), "new\n");
    });
}

/// The private home has a place where runs tell what they found as well, and inside it is the program's.
const FORGED: &str = r#"
import fcntl, os, signal, struct
place = os.environ["HOME"] + "/.local/state/ringfence/before"
os.makedirs(place, exist_ok=True)
os.mkfifo(place + "/1")
told = os.open(place + "/1", os.O_RDWR)
F_OFD_SETLK = 37
fcntl.fcntl(told, F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 0, 1, 0))
print("locked", flush=True)
signal.pause()
"#;

#[test]
fn what_a_program_tells_holds_up_no_warden() {
    everywhere(|place| {
        // The process tier shows the host's home, where nothing can be written there.
        if place.tier != Tier::Namespace || !place.has("python3", "--version") {
            return;
        }
        place.file("home/project/forged.py", FORGED);
        let script = "test -e go || exit 0; exec python3 forged.py";
        // Started from a plan that was kept: what looks after it reads what it needs then.
        for _ in 0..3 {
            place.sh(&[], script).ends(0);
        }
        place.file("home/project/go", "");
        let mut running = place.start(&[], &["sh", "-c", script]);
        running.printed("locked");
        running.signal(Signal::KILL);
        // To the end of its output, which all that is inside holds.
        running.finish().ends(137);
        assert_eq!(place.left_behind(), [""; 0]);
    });
}

/// What a run has removed is there again when it has ended, and stays, whoever began in between.
#[test]
fn what_a_run_puts_back_is_left_alone_by_another() {
    everybody(Tier::Process, |place| {
        let names = [".envrc", ".vscode/tasks.json", "x.bazelrc"];
        let files = names.map(|name| place.file(format!("home/project/{name}"), "the user's\n"));
        // The name itself may be odd, and where links lead.
        place.shell("mkdir .husky && ln -s \"$(printf 't\\351')\" .husky/link").ends(0);
        let first = start(place, &[], "rm -r .envrc .vscode x.bazelrc", "a");
        assert!(files.iter().all(|file| !file.exists()), "the control");
        let second = start(place, &[], "", "b");
        assert!(go(place, first, "a").contains("restored"));
        // Its launcher has been told of what came by now.
        place.sh(&[], "true").ends(0);
        let said = go(place, second, "b");
        for (name, file) in names.iter().zip(&files) {
            let there = fs::read_to_string(file).unwrap_or_default();
            assert_eq!(there, "the user's\n", "{name}: {said}");
        }
        assert!(!said.contains("moved to"), "{said}");
    });
}

/// Where one has removed a protected name, and puts it back, another one makes nothing in between.
#[test]
fn what_a_run_puts_back_is_not_made_by_another() {
    everybody(Tier::Process, |place| {
        let names = [".envrc", ".vscode/tasks.json"];
        let files = names.map(|name| place.file(format!("home/project/{name}"), "the user's\n"));
        let first = start(place, &[], "rm -r .envrc .vscode", "a");
        assert!(files.iter().all(|file| !file.exists()), "the control");
        place.shell("mkfifo b").ends(0);
        let script = "mkdir .vscode; for f in .envrc .vscode/tasks.json; do echo evil > $f; done; echo made; \
            while [ -e .envrc ] || [ -e .vscode/tasks.json ]; do :; done; echo gone; \
            until [ -e .envrc ] && [ -e .vscode/tasks.json ]; do :; done; \
            until grep -q \" $PWD/.envrc \" /proc/self/mountinfo && \
            grep -q \" $PWD/.vscode \" /proc/self/mountinfo; do :; done; \
            for f in .envrc .vscode/tasks.json; do echo evil > $f || echo held; done; echo back; read line < b";
        place.file("home/project/beside.sh", script);
        let mut second =
            place.shell_start("exec ${RF/tier process/tier namespace} -- sh beside.sh");
        second.printed("gone");
        assert!(go(place, first, "a").contains("restored"));
        second.printed("held\nheld\nback");
        for file in &files {
            assert_eq!(fs::read_to_string(file).expect("a file"), "the user's\n");
        }
        let said = go(place, second, "b");
        for file in &files {
            assert_eq!(fs::read_to_string(file).expect("a file"), "the user's\n", "{said}");
        }
    });
}

/// Whether a run has told what is in a file: until then its name begins with a dot.
fn is_told(path: &std::path::Path) -> bool {
    path.file_name().is_some_and(|name| !name.as_encoded_bytes().starts_with(b"."))
}

/// What another run found may be too much to be read: nothing is put back then, and nothing taken that did not change.
#[test]
fn what_cannot_be_known_takes_nothing_from_the_user() {
    everybody(Tier::Process, |place| {
        let file = place.file("home/project/.envrc", "the user's\n");
        for name in [".vscode", "x"] {
            place.file(format!("home/project/{name}/tasks.json"), name);
        }
        let first = start(place, &[], "", "a");
        // As a full disk leaves it.
        let told = place.at("home/.local/state/ringfence/before");
        let mut words = Vec::new();
        while words.is_empty() {
            std::thread::yield_now();
            let entries = fs::read_dir(&told).into_iter().flatten().flatten();
            let paths = entries.map(|entry| entry.path());
            words = paths.filter(|path| is_told(path)).collect();
        }
        for word in words {
            fs::OpenOptions::new().write(true).open(word).unwrap().set_len(0).unwrap();
        }
        place.clock_moves_on();
        let inner = place.project(".vscode/tasks.json");
        fs::write(&file, "edited\n").expect("written");
        fs::write(&inner, "edited\n").expect("written");
        place.clock_moves_on();
        place.sh(&[], "true").ends(0).quiet();
        for file in [&file, &inner] {
            assert_eq!(fs::read_to_string(file).expect("a file"), "edited\n");
        }
        // The control: what the command itself changes does not stay.
        let changed = place.sh(&[], "echo evil > .envrc; rm -r .vscode; mv x .vscode");
        let taken = !place.project(".vscode").exists();
        assert!(taken, "old files in a directory that was moved there: {}", changed.err);
        changed.ends(0).says(".envrc was created or changed inside and is protected: moved to");
        assert!(!changed.err.contains("restored") && !file.exists());
        go(place, first, "a");
        assert_eq!(fs::read_to_string(&file).expect("a file"), "the user's\n");
        assert_eq!(fs::read_to_string(&inner).expect("a file"), ".vscode");
    });
}
