//! A command that ends soon ends its launcher before libc is up: as any other, and with all that belongs to it.

use ringfence_tests::{Place, Tier, everybody, everywhere, left_out};
use std::fs;

/// So often a command is run again from its kept plan: whether it ends within the moment is the machine's to say.
const ROUNDS: usize = 4;
/// At most so often, where it has to.
const ATTEMPTS: usize = 40;

/// The calls that the launcher makes, without what runs inside.
fn calls(place: &Place, command: &str) -> Option<String> {
    let traced = place.shell(&format!("strace -qq -s 512 -o ../calls $RF {command}; echo $?"));
    if traced.text().lines().last() != Some("0") {
        left_out("strace", &traced.err);
        return None;
    }
    fs::read_to_string(place.at("home/calls")).ok()
}

/// What libc begins with: the heap.
fn of_libc(calls: &str) -> bool {
    calls.contains("brk(")
}

#[test]
fn the_launcher_of_a_command_that_ends_soon_never_starts_libc() {
    everywhere(|place| {
        if !place.has("strace", "--version") {
            return;
        }
        for command in ["-- /bin/true", "-n example.org -- /bin/true", "--no-record -- /bin/true"] {
            let Some(first) = calls(place, command) else { return };
            assert!(of_libc(&first), "the plan is not there yet");
            let early = (0..ATTEMPTS).any(|_| calls(place, command).is_some_and(|c| !of_libc(&c)));
            assert!(early, "{command}: libc was started {ATTEMPTS} times");
        }
        assert_eq!(place.left_behind(), [""; 0]);
        if place.tier == Tier::Namespace {
            in_a_repository(place);
        }
        // Who is told of each step, or keeps time, needs more.
        for options in ["--timeout 10s", "--status-fd 2", "--name some"] {
            for _ in 0..ROUNDS {
                let other = calls(place, &format!("{options} -- /bin/true"));
                assert!(other.is_some_and(|other| of_libc(&other)), "{options}");
            }
        }
    });
}

/// Where all work is done: in a repository, as git makes and as it leaves one. (Without mounts its configuration is
/// kept and compared, by the long way.)
fn in_a_repository(place: &Place) {
    let who = "-c user.name=a -c user.email=b";
    let made = format!("git init -q . && git {who} commit -q --allow-empty -m 1 && git gc -q");
    place.shell(&made).ends(0);
    let mut tries = 0..ATTEMPTS;
    let early = tries.any(|_| calls(place, "-- /bin/true").is_some_and(|c| !of_libc(&c)));
    assert!(early, "in a repository libc was started {ATTEMPTS} times");
    // What is put into a directory of names is seen all the same.
    for listed in ["branches", "remotes"] {
        place.shell(&format!("mkdir -p .git/{listed}; $RF -- true; $RF -- true")).ends(0);
        let name = format!(".git/{listed}/fetched");
        let run = place.sh(&[], &format!("echo ext::sh > {name}"));
        run.ends(0).says(&name);
        assert!(!place.at("home/project").join(name).exists());
    }
}

#[test]
fn its_record_is_as_any_other() {
    everywhere(|place| {
        let odd = "exit 7 # \" \\ \t";
        for _ in 0..ROUNDS {
            place.sh(&[], odd).ends(7);
            let shown = place.ringfence(["show", "latest", "--json"]).quiet();
            let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
            let journal = place.shell("tail -n 1 ~/.local/state/ringfence/sessions/*/journal");
            let is = |pointer: &str, wanted: serde_json::Value| {
                let told = format!("{shown}\n{}", journal.text());
                assert_eq!(shown.pointer(pointer), Some(&wanted), "{told}");
            };
            is("/session/argv", serde_json::json!(["sh", "-c", odd]));
            is("/session/tier", place.tier_name().into());
            is("/session/cwd", place.text("home/project").into());
            let logs = place.ringfence(["logs", "latest", "--json"]).quiet();
            let logs: serde_json::Value = serde_json::from_str(&logs).unwrap();
            let rows = logs["events"].as_array().unwrap();
            let row = |kind: &str| {
                let mut found = rows.iter().filter(|row| row["kind"] == kind);
                let one = found.next().cloned();
                assert!(one.is_some() && found.next().is_none(), "{kind}: {rows:?}");
                one.unwrap_or_default()
            };
            assert_eq!(row("exec")["code"], 7, "{rows:?}");
        }
        // A text that is not ASCII is as it is, whoever writes it.
        for _ in 0..ROUNDS {
            place.sh(&[], "exit 0 # \u{fc}").ends(0);
            let shown = place.ringfence(["show", "latest", "--json"]).quiet();
            assert!(shown.contains('\u{fc}') || shown.contains("\\u00fc"), "{shown}");
        }
        // Without a record nothing is left.
        place.shell("rm -rf ~/.local/state/ringfence/sessions").ends(0);
        for _ in 0..ROUNDS {
            place.sh(&["--no-record"], "exit 3").ends(3);
        }
        let left = place.shell("ls ~/.local/state/ringfence/sessions 2>/dev/null; true");
        assert_eq!(left.text(), "");
    });
}

#[test]
fn how_it_ends_is_told_as_it_was() {
    everywhere(|place| {
        for (script, code) in
            [("exit 0", 0), ("exit 255", 255), ("kill $$", 143), ("kill -9 $$", 137)]
        {
            for _ in 0..ROUNDS {
                let ended = place.sh(&[], script);
                ended.ends(code);
                assert_eq!(format!("{}{}", ended.text(), ended.err), "", "{script}");
            }
        }
        // What is left running is ended, and holds nobody up.
        for _ in 0..ROUNDS {
            place.sh(&[], "setsid sleep 1000 & echo up").ends(0).quiet();
        }
        // Standard input is the command's, to the last byte.
        for _ in 0..ROUNDS {
            assert_eq!(place.shell("echo in | $RF -- cat").quiet(), "in");
        }
        for _ in 0..ROUNDS {
            place.run(&[], &["no-such-program"]).ends(127).says("no-such-program");
        }
        assert_eq!(place.left_behind(), [""; 0]);
    });
}

/// Each is what the guards look for, made by a command that takes no time.
#[test]
fn what_it_leaves_is_put_right() {
    everywhere(|place| {
        let attacks = [
            ("echo x > .envrc", ".envrc"),
            ("mkdir -p a/b; echo x > a/b/.envrc", "a/b/.envrc"),
            ("echo x > old/.envrc", "old/.envrc"),
            ("mkdir -p old/.vscode; echo x > old/.vscode/tasks.json", "old/.vscode/tasks.json"),
            (
                "mkdir -p r/objects r/refs; echo 'ref: refs/heads/m' > r/HEAD; \
                 printf '[core]\\n\\tfsmonitor = x\\n' > r/config",
                "r/config",
            ),
            ("echo x > top.code-workspace", "top.code-workspace"),
            ("mkdir -p deep/1/2/3/4; echo x > deep/1/2/3/4/.envrc", "deep/1/2/3/4/.envrc"),
            ("mkdir l; echo x > l/.envrc; chmod 0 l", "l/.envrc"),
            ("mkdir l; echo x > l/.envrc; chmod 0555 l", "l/.envrc"),
        ];
        for (attack, path) in attacks {
            for round in 0..ROUNDS {
                place.shell("chmod -R u+rwx . ; rm -rf * .[a-z]*").ends(0);
                place.file("home/project/old/kept", "kept");
                place.clock_moves_on();
                let ended = place.sh(&[], attack);
                place.shell("chmod -R u+rwx .").ends(0);
                // A read-only mount holds it, or it was taken away afterwards.
                assert!(!place.project(path).exists(), "{attack}, round {round}: {}", ended.err);
            }
        }
        // One that was there, changed in its place: no directory tells of it.
        for round in 0..ROUNDS {
            place.shell("rm -rf * .[a-z]*").ends(0);
            place.file("home/project/old/.envrc", "the user's");
            place.clock_moves_on();
            let ended = place.sh(&[], "echo x > old/.envrc");
            let now = fs::read_to_string(place.project("old/.envrc"));
            assert!(now.is_err() || now.is_ok_and(|now| now == "the user's"), "round {round}");
            assert!(!ended.err.is_empty(), "round {round}: it is told");
        }
        // What is nobody's business stays, and is quiet.
        for _ in 0..ROUNDS {
            place.shell("rm -rf * .[a-z]*").ends(0);
            place.sh(&[], "mkdir -p some/where; echo x > some/where/file").quiet();
            assert!(place.project("some/where/file").exists());
        }
    });
}

/// Killed at each of its calls: nothing of the sandbox stays, and the next run is as any other.
#[test]
fn killed_at_any_of_its_calls_it_leaves_nothing() {
    everybody(Tier::Namespace, killed);
    everybody(Tier::Process, killed);
}

fn killed(place: &Place) {
    if !place.has("strace", "--version") || calls(place, "-- /bin/true").is_none() {
        return;
    }
    let steps = [
        "ppoll", "recvfrom", "recvmsg", "pwrite64", "mkdirat", "lseek", "write", "renameat",
        "unlinkat", "sendto", "wait4",
    ];
    for step in steps {
        let line = format!(
            "strace -qq -o ../calls -e inject={step}:signal=KILL $RF -- /bin/true; echo $?"
        );
        let ended = place.shell(&line);
        assert!(["0", "137"].contains(&ended.text().as_str()), "{step}: {}", ended.err);
        place.ringfence(["ps"]).ends(0);
        place.ringfence(["logs"]).ends(0);
        place.sh(&[], "echo fine").quiet();
    }
    assert_eq!(place.left_behind(), [""; 0]);
}

/// A launcher that is killed while its command runs leaves an empty directory at most, which goes when it is
/// certain that nobody writes to it any more.
#[test]
fn what_a_killed_launcher_began_goes_in_time() {
    everywhere(|place| {
        place.sh(&[], "true").quiet();
        let sessions = "home/.local/state/ringfence/sessions";
        let old = place.file(format!("{sessions}/0000000a/.journal"), "");
        let empty = place.directory(format!("{sessions}/0000000b"));
        let new = place.file(format!("{sessions}/0000000c/.journal"), "");
        let other = place.file(format!("{sessions}/0000000d/some"), "");
        // Of those that had no time for their first line; of one that may be about to write it, and of one that lives.
        let unwritten = place.file(format!("{sessions}/0000000e/journal"), "");
        place.file(format!("{sessions}/0000000e/control.sock"), "");
        let half = place.file(format!("{sessions}/00000010/journal"), "{\"start\":");
        let soon = place.file(format!("{sessions}/00000011/journal"), "");
        let held = place.file(format!("{sessions}/0000000f/journal"), "");
        let written = place.file(format!("{sessions}/00000012/journal"), "of a later version\n");
        let line = "cd ~/.local/state/ringfence/sessions; \
                    touch -d '-2 minutes' 0000000[abd] 0000000[ef]/journal 0000001[02]/journal";
        place.shell(line).ends(0);
        place.ringfence(["ps"]).ends(0);
        let lock = fs::File::open(&held).unwrap();
        lock.lock().unwrap();
        assert_eq!(place.ringfence(["gc"]).quiet(), "4 sessions removed");
        assert!(!old.exists() && !empty.exists() && new.exists() && other.exists());
        assert!(!unwritten.exists() && !half.exists());
        assert!(soon.exists() && held.exists() && written.exists());
        // Not by closing: what another test starts at this moment holds the file too, until it executes.
        lock.unlock().unwrap();
        assert_eq!(place.ringfence(["gc"]).quiet(), "1 session removed");
        assert!(!held.exists());
        let all = place.ringfence(["gc", "--all"]).quiet();
        assert!(!new.exists() && !other.exists() && !soon.exists(), "{all}");
    });
}

/// Layers without a record were not made to their end: they go as soon as nobody makes them.
#[test]
fn layers_that_were_not_made_to_their_end_go_in_time() {
    everywhere(|place| {
        place.sh(&[], "true").quiet();
        let sessions = "home/.local/state/ringfence/sessions";
        let overlay = |id: &str| format!("{sessions}/{id}/overlay");
        let layer = |id: &str| {
            place.file(format!("{}/lock", overlay(id)), "");
            place.file(format!("{}/0/upper/half", overlay(id)), "half")
        };
        let (left, made, kept) = (layer("0000000a"), layer("0000000b"), layer("0000000c"));
        place.file(format!("{}/record.json", overlay("0000000c")), "{}");
        let line = "cd ~/.local/state/ringfence/sessions; touch -d '-2 minutes' 0000000?";
        place.shell(line).ends(0);
        let lock = fs::File::open(place.at(overlay("0000000b")).join("lock")).unwrap();
        lock.lock().unwrap();
        place.ringfence(["overlay", "diff", "0000000a"]).ends(125).says("keeps no changes apart");
        assert_eq!(place.ringfence(["gc"]).quiet(), "1 session removed");
        assert!(!left.exists() && made.exists() && kept.exists());
        place.ringfence(["gc", "--all"]).quiet();
        assert!(made.exists() && kept.exists());
        // Not by closing: what another test starts at this moment holds the file too, until it executes.
        lock.unlock().unwrap();
        assert_eq!(place.ringfence(["gc"]).quiet(), "1 session removed");
        assert!(!made.exists() && kept.exists());
    });
}

/// A call that fails is no trouble of the command's.
#[test]
fn a_call_that_fails_leaves_the_rest_to_the_long_way() {
    everywhere(|place| {
        if !place.has("strace", "--version") || calls(place, "-- /bin/true").is_none() {
            return;
        }
        for (step, error) in [
            ("pwrite64", "ENOSPC"),
            ("mkdirat", "ENOSPC"),
            ("getdents64", "EIO"),
            ("lseek", "ESPIPE"),
        ] {
            let line = format!(
                "strace -qq -o ../calls -e inject={step}:error={error}:when=1 $RF -- sh -c 'exit 5'; echo $?"
            );
            for _ in 0..ROUNDS {
                assert_eq!(place.shell(&line).text(), "5", "{step}");
            }
            let shown = place.ringfence(["show", "latest"]);
            assert!(shown.text().contains("exited (5)"), "{step}: {}", shown.text());
        }
        assert_eq!(place.left_behind(), [""; 0]);
    });
}

/// The process tier's home is the command's to exchange: what is removed after the run is what was made for it.
#[test]
fn a_home_that_became_a_link_leads_nowhere() {
    everybody(Tier::Process, |place| {
        place.file("home/granted", "the user's");
        place.file("home/.config/some/granted", "the user's");
        let grants =
            ["-r", &place.text("home/granted"), "-r", &place.text("home/.config/some/granted")];
        let home = place.text("home");
        for attack in [
            format!("mv $HOME $TMPDIR/h; ln -s {home} $HOME"),
            format!("mv $HOME/.config $TMPDIR/c; ln -s {home}/.config $HOME/.config"),
            "mv $HOME/.config/some $TMPDIR/c; mkdir $HOME/.config/some".to_owned(),
        ] {
            for round in 0..ROUNDS {
                place.sh(&grants, &attack).ends(0);
                for name in ["home/granted", "home/.config/some/granted"] {
                    let now = fs::read_to_string(place.at(name));
                    assert_eq!(now.ok().as_deref(), Some("the user's"), "{attack}, round {round}");
                }
            }
        }
        assert_eq!(place.left_behind(), [""; 0]);
    });
}

/// What the launcher finds in its first moment, and leaves to the long way, is found there too.
#[test]
fn what_comes_late_in_the_walk_is_told() {
    everybody(Tier::Namespace, |place| {
        place.shell("seq 350 | xargs touch; mkdir sub").ends(0);
        for round in 0..ATTEMPTS {
            place.file("home/project/sub/.envrc", "the user's");
            place.clock_moves_on();
            // Long enough for the walk's budget to reach it, and within the moment.
            let ended = place.sh(&[], "sleep 0.010; echo evil > sub/.envrc");
            let now = fs::read_to_string(place.project("sub/.envrc"));
            let told = ended.err.contains(".envrc");
            assert!(told && now.ok().as_deref() != Some("evil\n"), "round {round}: {}", ended.err);
        }
    });
}
