//! The record of sessions: what `ps`, `show`, `logs`, `kill`, `rm` and `gc` say of real runs.

use ringfence_tests::{Person, Place, Running, Tier, binary, everybody, everywhere};
use rustix::process::Signal;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;

fn json(place: &Place, words: &[&str]) -> Value {
    let mut all = words.to_vec();
    all.push("--json");
    serde_json::from_str(&place.ringfence(all).quiet()).unwrap()
}

/// What is in the directory of sessions.
fn kept(place: &Place) -> Vec<String> {
    let sessions = place.at("home/.local/state/ringfence/sessions");
    let mut all: Vec<String> = std::fs::read_dir(sessions)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "by-name")
        .collect();
    all.sort();
    all
}

#[test]
fn a_run_is_on_record() {
    everywhere(|place| {
        place.run(&["--name", "first"], &["sh", "-c", "exit 3"]).ends(3);
        let session = &json(place, &["show", "first"])["session"];
        assert_eq!((&session["status"], &session["code"]), (&"exited".into(), &3.into()));
        assert_eq!(session["tier"], place.tier_name());
        assert_eq!(session["argv"], serde_json::json!(["sh", "-c", "exit 3"]));
        assert_eq!(session["cwd"], place.text("home/project"));
        assert!(session["ended_us"].as_i64() >= session["started_us"].as_i64());
        let logs = json(place, &["logs", "first"]);
        let row = &logs["events"][0];
        assert_eq!((&row["kind"], &row["code"]), (&"exec".into(), &3.into()));
        assert!(row["pid"].as_i64() > Some(1) && row["duration"].as_i64() > Some(0), "{row}");
        assert!(row["exe"].as_str().unwrap().ends_with("sh"), "{row}");
        // By any of its names.
        let id = session["id"].as_str().unwrap();
        for word in [id, &id[..5], "first", "latest"] {
            assert_eq!(json(place, &["show", word])["session"]["id"], id, "{word}");
        }
        place.ringfence(["show", "frist"]).ends(125).says("did you mean first?");
        // Signals are told apart from codes.
        place.sh(&[], "kill -TERM $$").ends(143);
        let session = &json(place, &["show", "latest"])["session"];
        assert_eq!((&session["code"], &session["signal"]), (&Value::Null, &15.into()));
        place.sh(&["--timeout", "100ms"], "sleep 1000").ends(124);
        assert_eq!(json(place, &["show", "latest"])["session"]["code"], 124);
        let denied = place.ringfence(["logs", "latest", "--denied"]).quiet();
        assert!(denied.contains("the time ran out"), "{denied}");
        // The page.
        let page = place.ringfence(["report", "first"]).quiet();
        assert!(page.starts_with("<!doctype html>") && page.contains("exit code 3"));
        for entry in kept(place) {
            let at = place.at("home/.local/state/ringfence/sessions").join(entry);
            assert_eq!(at.metadata().unwrap().permissions().mode() & 0o777, 0o700);
            for file in std::fs::read_dir(&at).unwrap() {
                let mode = file.unwrap().metadata().unwrap().permissions().mode();
                assert_eq!(mode & 0o777, 0o600);
            }
        }
    });
}

#[test]
fn what_runs_is_listed_and_can_be_ended() {
    everywhere(|place| {
        let command = ["sh", "-c", "echo up; exec sleep 1000"];
        let mut running = place.start(&["--name", "server"], &command);
        running.printed("up\n");
        let listed = json(place, &["ps"]);
        let session = &listed["sessions"][0];
        assert_eq!((&session["name"], &session["status"]), (&"server".into(), &"running".into()));
        assert_eq!(session["pid"], running.pid());
        place.ringfence(["rm", "server"]).ends(125).says("is running; end it first");
        place.ringfence(["gc", "--all"]).quiet();
        assert_eq!(kept(place).len(), 1, "gc leaves it alone");
        // Its name is its own.
        let twice = place.run(&["--name", "server"], &["true"]);
        twice.ends(125).says("--name server: the running session").says("ringfence kill server");
        place.ringfence(["kill", "server"]).quiet();
        running.finish().ends(143);
        assert_eq!(json(place, &["ps"])["sessions"], serde_json::json!([]));
        assert_eq!(json(place, &["show", "server"])["session"]["signal"], 15);
        place.ringfence(["kill", "server"]).ends(125).says("does not run");
        // The name is free again, and means the newer one.
        place.run(&["--name", "server"], &["true"]).quiet();
        assert_eq!(json(place, &["show", "server"])["session"]["code"], 0);
        place.ringfence(["rm", "server", "latest"]).quiet();
        assert_eq!(kept(place), Vec::<String>::new());
    });
}

/// Of sessions that start at the same time with one name, one has it, and the others do not run.
#[test]
fn a_name_belongs_to_one_of_those_that_start_at_once() {
    everybody(Tier::Namespace, |place| {
        let ringfence = binary().display();
        // Each says one word: it is up, and waits, or it is refused. When all have, those that wait are let go.
        let run = place.shell(&format!(
            "mkfifo go said; exec 3<>go 4<>said; for i in 1 2 3 4 5 6; do \
             ({ringfence} run --name same -- sh -c 'echo up; read x' <&3 >&4 2>>refused || echo $? >&4) & \
             done; for i in 1 2 3 4 5 6; do read word <&4; echo $word; done; \
             for i in 1 2 3 4 5 6; do echo >&3; done; wait; cat refused >&2"
        ));
        let words = run.ends(0).text();
        assert_eq!(words.matches("up").count(), 1, "{words} {}", run.err);
        assert_eq!(words.matches("125").count(), 5, "{words} {}", run.err);
        assert_eq!(run.err.matches("--name same: the running session").count(), 5, "{}", run.err);
        // The control: it is free again.
        place.run(&["--name", "same"], &["true"]).quiet();
    });
}

#[test]
fn who_follows_a_session_sees_its_end() {
    everywhere(|place| {
        let options = ["--record-programs", "--name", "seen"];
        let mut running = place.start(&options, &["sh", "-c", "echo up; exec sleep 1000"]);
        running.printed("up\n");
        let follow = |json: &[&str]| {
            let mut command = place.command(binary());
            command.args(["logs", "--follow", "seen"]).args(json);
            Running::start(command)
        };
        let (mut text, mut rows) = (follow(&[]), follow(&["--json"]));
        text.printed("sh -c echo up");
        rows.printed("\"argv\"");
        place.ringfence(["exec", "seen", "sh", "-c", "exit 7"]).ends(7);
        text.printed("-> 7");
        place.ringfence(["kill", "--signal", "USR1", "seen"]).quiet();
        running.finish().ends(138);
        text.finish().ends(0).prints("sleep -> signal 10");
        let rows = rows.finish();
        let rows: Vec<Value> =
            rows.ends(0).text().lines().map(|row| serde_json::from_str(row).unwrap()).collect();
        let codes: Vec<&Value> = rows.iter().map(|row| &row["code"]).collect();
        assert!(codes.contains(&&7.into()), "{rows:?}");
        // The last row is one of an earlier number, whole by now.
        let last = rows.last().unwrap();
        let first = rows.iter().find(|row| row["event"] == last["event"]).unwrap();
        assert_eq!((&last["kind"], &last["signal"]), (&"exec".into(), &10.into()));
        assert_eq!((&first["argv"], &first["signal"]), (&last["argv"], &Value::Null));
        assert!(last["duration"].as_i64() > Some(0), "{last}");
    });
}

#[test]
fn what_ignores_its_end_is_ended() {
    everywhere(|place| {
        let script = "trap '' TERM; echo x > .envrc; echo up; while :; do sleep 1000; done";
        let mut running = place.start(&["--name", "deaf"], &["sh", "-c", script]);
        running.printed("up\n");
        place.ringfence(["kill", "--signal", "KILL", "deaf"]).quiet();
        // What is done and told at any end is done and told at this one.
        running.finish().ends(137).says("inside and is protected: moved to");
        assert_eq!(json(place, &["show", "deaf"])["session"]["status"], "exited");
        assert_eq!(place.left_behind(), Vec::<String>::new());
        // Other signals are sent, and that is all.
        let script = "trap 'echo heard; exit 5' USR1; echo up; while :; do sleep 1000 & wait; done";
        let mut running = place.start(&["--name", "deaf"], &["sh", "-c", script]);
        running.printed("up\n");
        place.ringfence(["kill", "--signal", "sigusr1", "deaf"]).quiet();
        assert_eq!(running.finish().ends(5).text(), "up\nheard");
        place.ringfence(["kill", "--signal", "SEGV", "deaf"]).ends(125).says("--signal SEGV");
    });
}

/// Containers share homes, and have numbers of their own: that of a session's launcher is another process's here.
#[test]
fn a_session_of_another_pid_namespace_is_not_ended_by_its_number() {
    // Not as root: it would be allowed to signal whatever has that number.
    if !Tier::here().contains(&Tier::Process) {
        return;
    }
    let place = Place::new(Person::Ordinary, Tier::Process);
    let mut command = place.command("unshare");
    command.args(["-Urpf", "--mount-proc", "--kill-child"]).arg(binary());
    command.args(["run", "--tier", "process", "--name", "elsewhere", "--"]);
    command.args(["sh", "-c", "echo up; exec sleep 1000"]);
    let mut running = Running::start(command);
    running.printed("up\n");
    assert_eq!(json(&place, &["ps"])["sessions"][0]["name"], "elsewhere");
    for signal in ["TERM", "KILL", "USR1"] {
        let refused = place.ringfence(["kill", "--signal", signal, "elsewhere"]);
        refused.ends(125).says("session elsewhere runs elsewhere");
    }
    // The control: it lives, and is ended by who can see it.
    assert_eq!(json(&place, &["ps"])["sessions"][0]["name"], "elsewhere");
    running.signal(Signal::KILL);
}

#[test]
fn a_killed_launcher_is_seen_as_dead() {
    everywhere(|place| {
        let command = ["sh", "-c", "echo up; exec sleep 1000"];
        let mut running = place.start(&["--name", "gone"], &command);
        running.printed("up\n");
        // The launcher has taken note of the command when it lets others in.
        place.ringfence(["exec", "gone", "true"]).quiet();
        running.signal(Signal::KILL);
        running.finish().ends(137);
        let session = &json(place, &["show", "gone"])["session"];
        assert_eq!((&session["status"], &session["code"]), (&"killed".into(), &Value::Null));
        // What happened before is there.
        assert_eq!(json(place, &["logs", "gone"])["events"][0]["argv"][0], "sh");
        assert_eq!(json(place, &["ps"])["sessions"], serde_json::json!([]));
        place.run(&["--name", "gone"], &["true"]).quiet();
        place.ringfence(["gc", "--all"]).quiet();
        assert_eq!(kept(place), Vec::<String>::new());
    });
}

#[test]
fn without_a_record_a_session_is_known_only_while_it_lives() {
    everywhere(|place| {
        let command = ["sh", "-c", "echo up; read line; exit 4"];
        let mut run = place.ringfence_run();
        run.args(["--no-record", "--name", "quiet", "--"]).args(command);
        run.stdin(std::process::Stdio::piped());
        let mut running = Running::start(run);
        running.printed("up\n");
        let ended = running.finish();
        ended.ends(4);
        assert_eq!(kept(place), Vec::<String>::new());
        let command = ["sh", "-c", "echo up; exec sleep 1000"];
        let mut running = place.start(&["--no-record", "--name", "quiet"], &command);
        running.printed("up\n");
        assert_eq!(place.ringfence(["exec", "quiet", "echo", "in"]).quiet(), "in");
        let logs = json(place, &["logs", "quiet"]);
        assert_eq!(logs["events"], serde_json::json!([]));
        place.ringfence(["kill", "quiet"]).quiet();
        running.finish().ends(143);
        assert_eq!(kept(place), Vec::<String>::new());
    });
}

#[test]
fn names_that_are_none_are_refused() {
    everybody(Tier::Namespace, |place| {
        for name in ["", "..", "a/b", "-x", ".hidden", "a b", "latest", &"x".repeat(65)] {
            let run = place.run(&[&format!("--name={name}")], &["true"]);
            run.ends(125).says("--name").says("a name is up to 64");
        }
        assert_eq!(kept(place), Vec::<String>::new());
    });
}

#[test]
fn a_run_that_did_not_start_leaves_no_record() {
    everywhere(|place| {
        place.run(&["--name", "none"], &["no-such-command"]).ends(127);
        place.run(&["--name", "none"], &["/etc/passwd"]).ends(126);
        assert_eq!(kept(place), Vec::<String>::new());
        place.ringfence(["show", "none"]).ends(125).says("there is no session none");
    });
}

#[test]
fn a_record_that_cannot_be_kept_is_no_matter_of_the_commands() {
    everywhere(|place| {
        // Somebody's file is where the directory should be.
        place.file("home/.local/state/ringfence/sessions", "mine\n");
        let run = place.sh(&[], "echo out; exit 6");
        assert_eq!(run.ends(6).says("this session's record is not kept").text(), "out");
        assert_eq!(run.err.lines().count(), 1, "{}", run.err);
        let file = place.at("home/.local/state/ringfence/sessions");
        assert_eq!(std::fs::read_to_string(file).unwrap(), "mine\n");
        // The disk is full (a limit of the file's size is told like one).
        let place = &Place::new(place.person, place.tier);
        place.directory("home/.local/state/ringfence/sessions");
        let run = place.shell("trap '' XFSZ; ulimit -f 0; exec $RF -- sh -c 'exit 6'");
        run.ends(6).says("this session's record is not kept");
        // Nor can it be noted for later runs that there was one: that is another matter.
        run.says("this run cannot be noted");
        assert_eq!(run.err.lines().count(), 2, "{}", run.err);
    });
}

#[test]
fn refused_names_are_on_record() {
    everybody(Tier::Namespace, |place| {
        let run = place.sh(
            &["--record-programs", "-n", "allowed.test"],
            "getent hosts refused.test; getent hosts refused.test; exit 0",
        );
        run.ends(0);
        let denied = json(place, &["logs", "latest", "--denied"]);
        let rows = denied["events"].as_array().unwrap();
        assert!(!rows.is_empty(), "{denied}");
        for row in rows {
            let told = (&row["kind"], &row["name"], &row["verdict"]);
            assert_eq!(told, (&"dns".into(), &"refused.test".into(), &"deny".into()));
        }
        // Each belongs to a process that has a row of its own, the child of another.
        let executed = json(place, &["logs", "latest", "--kind", "exec"]);
        let executed = executed["events"].as_array().unwrap();
        let own = |row: &Value, name: &str| {
            executed
                .iter()
                .find(|exec| exec["pid"] == row[name])
                .unwrap_or_else(|| panic!("{row}"))
                .clone()
        };
        for row in rows {
            let by = own(row, "pid");
            assert_eq!(by["argv"], serde_json::json!(["getent", "hosts", "refused.test"]));
            for name in ["exe", "argv_hash", "parent"] {
                assert_eq!(row[name], by[name], "{name}");
            }
            assert_eq!(own(row, "parent")["argv"][0], "sh");
        }
        let lines = place.ringfence(["logs", "--denied"]).quiet();
        assert!(lines.contains("DENIED A") && lines.contains("refused.test"), "{lines}");
    });
}

/// Two sessions of two people: neither sees the other's, whoever asks.
#[test]
fn sessions_are_their_users_own() {
    everybody(Tier::Namespace, |place| {
        place.run(&["--name", "mine"], &["true"]).quiet();
        let state = place.at("home/.local/state");
        let mode = |name: &str| state.join(name).metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode("ringfence/sessions"), 0o700);
        assert_eq!(mode("ringfence/sessions/by-name"), 0o700);
        // The same, by a home of one's own.
        let other = Place::new(place.person, place.tier);
        other.ringfence(["show", "mine"]).ends(125).says("there is no session mine");
        assert_eq!(json(&other, &["ps", "--all"])["sessions"], serde_json::json!([]));
    });
}
