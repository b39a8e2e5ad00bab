//! The ledger: what is recorded comes back, whatever happens to the process.
#![allow(missing_docs, clippy::unwrap_used)]

mod recording;

use recording::{LONG, decision, start};
use ringfence_session::ledger::{
    Ended, Event, FileChange, Ledger, Process, Reader, Start, Verdict,
};
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// One stimulus of each kind, and each field of it.
#[test]
fn every_field_of_every_kind_comes_back() {
    let sessions = tempfile::tempdir().unwrap();
    let ledger = start(sessions.path(), "one");
    let recorder = ledger.recorder();
    let argv = ["git".into(), "push".into()];
    let process = Process::new(42, 7, "/usr/bin/git".into(), &argv);
    let by = Some(&process);
    let address = Some([192, 0, 2, 1].into());
    let duration = Duration::from_micros(1500);
    let verdict = Verdict::Allow;
    recorder.record(by, &Event::Exec { argv: argv.to_vec(), cwd: "/project".into() });
    recorder.record(
        by,
        &Event::Network {
            protocol: "tcp",
            host: Some("example.org".into()),
            address,
            port: Some(443),
            published: Some(53),
            peers: Some(1),
            sent: 10,
            received: 20,
            duration,
            verdict,
            why: Some("no answer".into()),
        },
    );
    recorder.record(
        by,
        &Event::Dns {
            name: "example.org".into(),
            record: "A".into(),
            code: 0,
            answer: address,
            verdict,
            duration,
        },
    );
    recorder.record(
        by,
        &Event::Http {
            method: "POST".into(),
            host: "example.org".into(),
            path: "/a?b".into(),
            status: Some(403),
            sent: 1,
            received: 2,
            duration,
            verdict: Verdict::Deny,
            why: Some("no rule allows it".into()),
        },
    );
    recorder.record(
        by,
        &Event::File {
            change: FileChange::Renamed,
            path: "new".into(),
            from: Some("old".into()),
            size: Some(3),
        },
    );
    recorder.record(by, &decision(1));
    recorder.record(
        by,
        &Event::ToolCall {
            server: String::new(),
            tool: "read_file".into(),
            arguments: "{}".into(),
            error: Some("no such file".into()),
            verdict,
            duration,
        },
    );
    recorder.record(
        None,
        &Event::Snapshot { verb: "create", snapshot: 5, name: Some("base".into()), paths: 0 },
    );
    recorder.record(
        by,
        &Event::Substitution {
            host: "example.org".into(),
            header: "Authorization".into(),
            source: "env:TOKEN".into(),
        },
    );
    recorder.record(
        by,
        &Event::ModelCall {
            provider: "anthropic".into(),
            model: "m".into(),
            input: Some(100),
            output: None,
            tool_calls: 2,
            status: Some(200),
            duration,
        },
    );
    recorder.record(by, &Event::Exit { ended: Some(Ended::Code(1)), duration });
    ledger.end(Ended::Signal(15)).unwrap();

    let reader = Reader::open(&sessions.path().join("one")).unwrap();
    let session = reader.session().unwrap();
    assert_eq!((session.id.as_str(), session.name.as_deref()), ("one", Some("one")));
    assert_eq!((session.argv.join(" "), session.cwd.as_str()), ("make all".into(), "/project"));
    assert_eq!((session.code, session.signal, session.lost), (None, Some(15), 0));
    assert_eq!((session.status(), session.tier.as_str()), ("exited", "namespace"));
    assert!(session.started <= session.ended.unwrap());
    let rows = reader.events(0, &[], false).unwrap();
    let git = json!({
        "pid": 42, "parent": 7, "exe": "/usr/bin/git",
        "argv_hash": blake3::hash(b"git\0push\0").to_hex().as_str(),
    });
    let wanted = [
        (
            "exec",
            json!({"argv": ["git", "push"], "cwd": "/project", "code": 1, "signal": null, "duration": 1500}),
        ),
        (
            "network",
            json!({"verdict": "allow", "protocol": "tcp", "host": "example.org", "address": "192.0.2.1",
            "port": 443, "sent": 10, "received": 20, "duration": 1500, "why": "no answer", "published": 53, "peers": 1}),
        ),
        (
            "dns",
            json!({"verdict": "allow", "name": "example.org", "record": "A", "code": 0, "answer": "192.0.2.1",
            "duration": 1500}),
        ),
        (
            "http",
            json!({"verdict": "deny", "method": "POST", "host": "example.org", "path": "/a?b", "status": 403,
            "sent": 1, "received": 2, "duration": 1500, "why": "no rule allows it"}),
        ),
        ("file", json!({"change": "renamed", "path": "new", "was": "old", "size": 3})),
        (
            "decision",
            json!({"verdict": "deny", "act": "read", "object": "/file/1",
            "rule": "~/.ssh (profile default, filesystem.deny)", "layer": "landlock"}),
        ),
        (
            "tool_call",
            json!({"verdict": "allow", "server": "", "tool": "read_file", "arguments": "{}",
            "error": "no such file", "duration": 1500}),
        ),
        (
            "snapshot",
            json!({"verb": "create", "snapshot": 5, "name": "base", "paths": 0,
            "pid": null, "parent": null, "exe": null, "argv_hash": null}),
        ),
        (
            "substitution",
            json!({"host": "example.org", "header": "Authorization", "source": "env:TOKEN"}),
        ),
        (
            "model_call",
            json!({"provider": "anthropic", "model": "m", "input": 100, "output": null,
            "tool_calls": 2, "status": 200, "duration": 1500}),
        ),
    ];
    assert_eq!(rows.len(), wanted.len());
    for (number, (row, (kind, fields))) in rows.iter().zip(&wanted).enumerate() {
        let mut all = git.as_object().unwrap().clone();
        all.extend(fields.as_object().unwrap().clone());
        assert_eq!((row.kind, row.event), (*kind, number as i64 + 1));
        assert_eq!(row.fields, all, "{kind}");
        assert!(row.at >= session.started - 1_000_000);
    }
    let denied = reader.events(0, &[], true).unwrap();
    let denied: Vec<&str> = denied.iter().map(|row| row.kind).collect();
    assert_eq!(denied, ["http", "decision"]);
}

#[test]
fn a_reader_reads_while_the_writer_writes() {
    let sessions = tempfile::tempdir().unwrap();
    let ledger = start(sessions.path(), "one");
    let recorder = ledger.recorder();
    recorder.record(None, &decision(0));
    assert!(ledger.flush(LONG));
    let reader = Reader::open(ledger.directory()).unwrap();
    let mut last = 0;
    for round in 0..50 {
        for number in 0..100 {
            recorder.record(None, &decision(number));
        }
        assert!(ledger.flush(LONG));
        let rows = reader.events(last, &[], false).unwrap();
        last = rows.last().unwrap().event;
        assert_eq!(last, 1 + 100 * (round + 1));
    }
    let session = reader.session().unwrap();
    assert_eq!((session.status(), session.live), ("running", true));
    ledger.end(Ended::Code(0)).unwrap();
    assert_eq!(reader.session().unwrap().status(), "exited");
}

#[test]
fn two_sessions_are_two_and_an_identifier_is_used_once() {
    let sessions = tempfile::tempdir().unwrap();
    let one = start(sessions.path(), "one");
    let two = start(sessions.path(), "two");
    one.recorder().record(None, &decision(1));
    one.end(Ended::Code(0)).unwrap();
    two.end(Ended::Code(0)).unwrap();
    let count = |id: &str| {
        Reader::open(&sessions.path().join(id)).unwrap().events(0, &[], false).unwrap().len()
    };
    assert_eq!((count("one"), count("two")), (1, 0));
    for id in ["one", "", "..", "a/b", "a b"] {
        let start = Start {
            id: id.into(),
            name: None,
            argv: vec![],
            cwd: "/".into(),
            tier: "process",
            record: true,
        };
        assert!(Ledger::start_in(sessions.path(), start).is_err(), "{id:?}");
    }
}

#[test]
fn all_of_it_is_for_the_user_alone() {
    let sessions = tempfile::tempdir().unwrap();
    let ledger = start(&sessions.path().join("new"), "one");
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(ledger.directory()), 0o700);
    assert_eq!(mode(&sessions.path().join("new/by-name")), 0o700);
    assert_eq!(mode(&ledger.directory().join("journal")), 0o600);
    let _reader = Reader::open(ledger.directory()).unwrap();
    for name in ["session.db", "session.db-wal", "session.db-shm"] {
        assert_eq!(mode(&ledger.directory().join(name)), 0o600, "{name}");
    }
}

#[test]
fn what_was_flushed_outlives_a_kill() {
    let sessions = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--ignored", "--nocapture", "-q"])
        .env("RINGFENCE_TEST_SESSIONS", sessions.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let said = lines.find(|line| line.as_ref().unwrap().starts_with("flushed ")).unwrap().unwrap();
    let flushed: usize = said.rsplit(' ').next().unwrap().parse().unwrap();
    let reader = Reader::open(&sessions.path().join("killed")).unwrap();
    assert_eq!(reader.session().unwrap().status(), "running");
    child.kill().unwrap();
    child.wait().unwrap();
    let rows = reader.events(0, &[], false).unwrap();
    assert!(rows.len() >= flushed, "{} of {flushed}", rows.len());
    // A batch is there or not: no numbers are left out.
    assert!(rows.iter().enumerate().all(|(at, row)| row.event == at as i64 + 1));
    assert_eq!(reader.session().unwrap().status(), "killed");
    // And one who comes later finds the same.
    let again = Reader::open(&sessions.path().join("killed")).unwrap();
    assert_eq!(again.events(0, &[], false).unwrap(), rows);
}

/// `logs --follow` shows what comes while it waits, and ends with the session, also with one
/// that is killed.
#[test]
fn following_ends_with_the_session() {
    for killed in [false, true] {
        let state = tempfile::tempdir().unwrap();
        let sessions = state.path().join("ringfence/sessions");
        let id = if killed { "killed" } else { "one" };
        let again = |name: &str| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", name, "--ignored", "--nocapture", "-q"])
                .env("XDG_STATE_HOME", state.path())
                .env("RINGFENCE_TEST_SESSIONS", &sessions)
                .env("RINGFENCE_TEST_SESSION", id)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        };
        let mut launcher = killed.then(|| again("child"));
        if let Some(launcher) = &mut launcher {
            let out = launcher.stdout.take().unwrap();
            BufReader::new(out).lines().find(|l| l.as_ref().unwrap().starts_with("flushed"));
        }
        let ledger = (!killed).then(|| start(&sessions, id));
        if let Some(ledger) = &ledger {
            ledger.recorder().record(None, &decision(1));
            assert!(ledger.flush(LONG));
        }
        let mut follower = again("follower");
        let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
        let mut shows = |what: &str| lines.any(|line| line.unwrap().contains(what));
        assert!(shows("DENIED read /file/1 "));
        if let Some(ledger) = ledger {
            ledger.recorder().record(None, &decision(3));
            assert!(shows("DENIED read /file/3 "));
            ledger.end(Ended::Code(0)).unwrap();
        }
        if let Some(mut launcher) = launcher {
            launcher.kill().unwrap();
            launcher.wait().unwrap();
        }
        assert!(!shows("no such line"));
        assert!(follower.wait().unwrap().success());
    }
}

#[test]
#[ignore = "run by another test, as a process of its own"]
fn follower() {
    let id = std::env::var_os("RINGFENCE_TEST_SESSION").unwrap();
    let args = vec![id, "--follow".into(), "--denied".into()];
    assert_eq!(ringfence_session::cli::logs(args), Ok(0));
}

#[test]
#[ignore = "run by another test, as a process of its own"]
fn child() {
    let sessions = std::env::var_os("RINGFENCE_TEST_SESSIONS").unwrap();
    let ledger = start(Path::new(&sessions), "killed");
    let recorder = ledger.recorder();
    for number in 0..5000 {
        recorder.record(None, &decision(number));
    }
    assert!(ledger.flush(LONG));
    println!("\nflushed 5000");
    let mut number = 5000;
    loop {
        recorder.record(None, &decision(number));
        number += 1;
    }
}

/// As a launcher without libc writes it: two lines, at once.
#[test]
fn a_session_that_ended_soon_has_the_rows_of_any_other() {
    let sessions = tempfile::tempdir().unwrap();
    let rows = |id: &str| {
        let reader = Reader::open(&sessions.path().join(id)).unwrap();
        assert_eq!(reader.session().unwrap().status(), "exited");
        let mut rows: Vec<_> = reader.events(0, &[], false).unwrap();
        rows.extend(
            reader.ended(&rows.iter().filter_map(|row| row.number("id")).collect()).unwrap(),
        );
        rows.iter()
            .map(|row| {
                let mut row = row.json();
                row.as_object_mut().unwrap().remove("at_us");
                row
            })
            .collect::<Vec<_>>()
    };
    let argv = ["sh".into(), "-c".into(), "exit \"3\"".into()];
    let tier = "namespace";
    let begin = Start {
        id: "long".into(),
        name: None,
        argv: argv.to_vec(),
        cwd: "/p".into(),
        tier,
        record: true,
    };
    let ledger = Ledger::start_in(sessions.path(), begin).unwrap();
    let process = Process::new(42, 7, "/usr/bin/sh".into(), &argv);
    let recorder = ledger.recorder();
    recorder.record_here(Some(&process), &Event::Exec { argv: argv.to_vec(), cwd: "/p".into() });
    let (ended, duration) = (Some(Ended::Code(3)), Duration::from_micros(1500));
    recorder.record_here(Some(&process), &Event::Exit { ended, duration });
    ledger.end(Ended::Code(3)).unwrap();
    let brief = sessions.path().join("brief");
    std::fs::create_dir(&brief).unwrap();
    let head = r#"{"start":{"version":2,"id":"brief","name":null,"argv":["sh","-c","exit \"3\""],"cwd":"/p","tier":"namespace","pid":1,"at":1,"record":true}}"#;
    let line = r#"{"brief":{"pid":42,"parent":7,"exe":"/usr/bin/sh","at":1000,"ended":{"code":3},"until":2500}}"#;
    std::fs::write(brief.join("journal"), format!("{head}\n{line}\n")).unwrap();
    assert_eq!(rows("brief"), rows("long"));
    assert!(!rows("brief").is_empty());
}

/// Of sessions that begin at the same time with one name, one gets it; the others leave nothing.
#[test]
fn a_name_is_one_living_sessions() {
    let sessions = tempfile::tempdir().unwrap();
    let begin = |id: String, name: &str| {
        let (argv, cwd) = (vec!["true".into()], "/".into());
        let name = Some(name.to_owned());
        let start = Start { id, name, argv, cwd, tier: "namespace", record: true };
        Ledger::start_in(sessions.path(), start)
    };
    for round in 0..20 {
        let barrier = std::sync::Barrier::new(8);
        let (barrier, begin) = (&barrier, &begin);
        let began: Vec<_> = std::thread::scope(|scope| {
            let one = |number: usize| {
                scope.spawn(move || {
                    barrier.wait();
                    begin(format!("r{round}n{number}"), "same")
                })
            };
            let all: Vec<_> = (0..8).map(one).collect();
            all.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let (won, lost): (Vec<_>, Vec<_>) = began.into_iter().partition(Result::is_ok);
        assert_eq!((won.len(), lost.len()), (1, 7));
        for error in lost.into_iter().filter_map(Result::err) {
            assert!(error.to_string().contains("--name same: the running session"), "{error}");
        }
        assert_eq!(std::fs::read_dir(sessions.path()).unwrap().count(), 2 + round, "and by-name");
        // One that is gone, however it went, has no claim to it; another name was free all the time.
        begin(format!("r{round}other"), "other").unwrap().remove();
        drop(won);
    }
}

/// Who is gone before all of it was read is no child of a process 0.
#[test]
fn a_parent_that_is_not_known_is_null() {
    let sessions = tempfile::tempdir().unwrap();
    let ledger = start(sessions.path(), "one");
    for parent in [0, 7] {
        let process = Process::new(42, parent, "/usr/bin/curl".into(), &["curl".into()]);
        ledger.recorder().record(Some(&process), &decision(1));
    }
    ledger.end(Ended::Code(0)).unwrap();
    let rows = Reader::open(&sessions.path().join("one")).unwrap();
    let rows = rows.events(0, &[], false).unwrap();
    let parents: Vec<_> = rows.iter().map(|row| row.fields["parent"].clone()).collect();
    assert_eq!(parents, [json!(null), json!(7)]);
}
