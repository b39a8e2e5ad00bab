//! The ledger in trouble: full disks, lost directories, damaged files, many readers at once.
#![allow(missing_docs, clippy::unwrap_used)]

mod recording;

use recording::{LONG, decision, start};
use ringfence_session::SessionError;
use ringfence_session::ledger::{Ended, Event, Ledger, Reader, Start, Verdict};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

#[test]
fn a_directory_that_is_lost_ends_the_record_and_nothing_else() {
    let sessions = tempfile::tempdir().unwrap();
    let ledger = start(sessions.path(), "one");
    let recorder = ledger.recorder();
    recorder.record(None, &decision(1));
    std::fs::remove_dir_all(ledger.directory()).unwrap();
    // The journal is open still, and takes what comes.
    assert!(ledger.flush(LONG));
    ledger.end(Ended::Code(0)).unwrap();
    // Recording goes nowhere afterwards, and does no harm.
    recorder.record(None, &decision(2));
    assert!(!sessions.path().join("one").exists());
    assert!(matches!(
        Reader::open(&sessions.path().join("one")),
        Err(SessionError::Call { call: "open", .. })
    ));
}

/// A full disk: the reason is told, and the lines that there are can be read.
#[test]
fn a_full_disk_ends_the_record_and_is_told() {
    let sessions = tempfile::tempdir().unwrap();
    let out = Command::new("sh")
        .args(["-c", "trap '' XFSZ; exec \"$@\"", "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "limited", "--ignored", "--nocapture", "-q"])
        .env("RINGFENCE_TEST_SESSIONS", sessions.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(said.contains("told: write("), "{said}{}", String::from_utf8_lossy(&out.stderr));
    let directory = sessions.path().join("limited");
    let rows = Reader::open(&directory).unwrap().events(0, &[], false).unwrap();
    assert!((1..1000).contains(&rows.len()), "{}", rows.len());
    // What was cut off is ended by the next writer's line, which is whole again.
    ringfence_session::ledger::append(&directory, None, &decision(0)).unwrap();
    ringfence_session::ledger::append(&directory, None, &decision(1)).unwrap();
    let after = Reader::open(&directory).unwrap().events(0, &[], false).unwrap();
    assert_eq!(after.last().unwrap().text("object"), "/file/1");
}

#[test]
#[ignore = "run by another test, as a process of its own"]
fn limited() {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let sessions = std::env::var_os("RINGFENCE_TEST_SESSIONS").unwrap();
    let ledger = start(Path::new(&sessions), "limited");
    // The kernel's word for it is EFBIG, and a signal.
    let (current, maximum) = (Some(20_000), Some(20_000));
    setrlimit(Resource::Fsize, Rlimit { current, maximum }).unwrap();
    let recorder = ledger.recorder();
    for number in 0..1000 {
        recorder.record(None, &decision(number));
    }
    println!("told: {}", ledger.end(Ended::Code(0)).unwrap_err());
}

#[test]
fn a_damaged_database_is_told_and_left_as_it_is() {
    let sessions = tempfile::tempdir().unwrap();
    start(sessions.path(), "one").end(Ended::Code(0)).unwrap();
    let directory = sessions.path().join("one");
    std::fs::write(directory.join("session.db"), "somebody's".repeat(100)).unwrap();
    let error = Reader::open(&directory).err().unwrap();
    assert!(matches!(error, SessionError::Corrupt { .. }), "{error}");
    assert_eq!(std::fs::read(directory.join("session.db")).unwrap().len(), 1000);
    // It is made from the journal: without it, all is there again.
    std::fs::remove_file(directory.join("session.db")).unwrap();
    assert_eq!(Reader::open(&directory).unwrap().session().unwrap().code, Some(0));
}

#[test]
fn a_later_version_is_refused() {
    let sessions = tempfile::tempdir().unwrap();
    start(sessions.path(), "one").end(Ended::Code(0)).unwrap();
    let directory = sessions.path().join("one");
    drop(Reader::open(&directory).unwrap());
    let database = rusqlite::Connection::open(directory.join("session.db")).unwrap();
    database.pragma_update(None, "user_version", 99).unwrap();
    drop(database);
    let error = Reader::open(&directory).err().unwrap();
    assert!(matches!(error, SessionError::Newer { found: 99, .. }), "{error}");
    let journal = directory.join("journal");
    let text = std::fs::read_to_string(&journal).unwrap();
    std::fs::write(&journal, text.replacen("\"version\":2", "\"version\":3,\"new\":0", 1)).unwrap();
    let error = Reader::open(&directory).err().unwrap();
    assert!(matches!(error, SessionError::Newer { found: 3, known: 2, .. }), "{error}");
    // One of before is read.
    let before = text.replacen("\"version\":2", "\"version\":1", 1);
    std::fs::write(&journal, before).unwrap();
    std::fs::remove_file(directory.join("session.db")).unwrap();
    assert_eq!(Reader::open(&directory).unwrap().session().unwrap().code, Some(0));
}

/// Somebody's link is not where a database is made.
#[test]
fn a_link_in_the_place_of_the_database_is_not_followed() {
    let sessions = tempfile::tempdir().unwrap();
    let ledger = start(sessions.path(), "one");
    ledger.recorder().record(None, &decision(1));
    ledger.end(Ended::Code(0)).unwrap();
    let directory = sessions.path().join("one");
    let elsewhere = sessions.path().join("elsewhere");
    std::os::unix::fs::symlink(&elsewhere, directory.join("session.db")).unwrap();
    assert!(Reader::open(&directory).is_err());
    assert!(!elsewhere.exists());
}

/// Rows are there once, whoever reads at the same time.
#[test]
fn many_readers_take_each_line_once() {
    let sessions = tempfile::tempdir().unwrap();
    let ledger = start(sessions.path(), "one");
    let recorder = ledger.recorder();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while ledger.directory().join("journal").metadata().unwrap().len() < 900_000 {
                    Reader::open(ledger.directory()).unwrap();
                }
            });
        }
        for number in 0..5000 {
            recorder.record(None, &decision(number));
        }
    });
    ledger.end(Ended::Code(0)).unwrap();
    let rows = Reader::open(&sessions.path().join("one")).unwrap().events(0, &[], false).unwrap();
    assert_eq!(rows.len(), 5000);
    assert!(rows.iter().enumerate().all(|(at, row)| row.event == at as i64 + 1));
    assert!(rows.iter().enumerate().all(|(at, row)| row.text("object") == format!("/file/{at}")));
}

#[test]
fn what_is_inside_does_not_fill_the_disk() {
    let sessions = tempfile::tempdir().unwrap();
    let ledger = start(sessions.path(), "one");
    let recorder = ledger.recorder();
    let long = Event::ToolCall {
        server: "x".repeat(1 << 20),
        tool: String::new(),
        arguments: String::new(),
        error: None,
        verdict: Verdict::Allow,
        duration: Duration::ZERO,
    };
    for _ in 0..300 {
        recorder.record(None, &long);
        assert!(ledger.flush(LONG));
    }
    let directory = ledger.directory().to_owned();
    ledger.end(Ended::Code(0)).unwrap();
    let size = directory.join("journal").metadata().unwrap().len();
    assert!(size <= (256 << 20) + 4096, "{size}");
    let session = Reader::open(&directory).unwrap().session().unwrap();
    assert!((40..60).contains(&session.lost), "{}", session.lost);
}

#[test]
fn without_a_record_nothing_stays() {
    let sessions = tempfile::tempdir().unwrap();
    let start = Start {
        id: "one".into(),
        name: Some("test".into()),
        argv: vec!["true".into()],
        cwd: "/".into(),
        tier: "process",
        record: false,
    };
    let ledger = Ledger::start_in(sessions.path(), start).unwrap();
    ledger.recorder().record(None, &decision(1));
    assert!(Reader::open(ledger.directory()).unwrap().events(0, &[], false).unwrap().is_empty());
    assert!(sessions.path().join("by-name/test/journal").exists());
    ledger.end(Ended::Code(0)).unwrap();
    assert_eq!(std::fs::read_dir(sessions.path()).unwrap().count(), 1, "only by-name");
    assert_eq!(std::fs::read_dir(sessions.path().join("by-name")).unwrap().count(), 0);
}
