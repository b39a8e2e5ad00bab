//! The ledger under load: a reader that holds a transaction open blocks nobody and is blocked by
//! nobody, and a writer that is killed loses nothing that it was told is written.
#![allow(missing_docs, clippy::unwrap_used)]

mod recording;

use recording::{LONG, decision, start};
use ringfence_session::ledger::{Ended, Reader};
use rusqlite::Connection;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// Rows that are written while somebody reads.
const MANY: u64 = 120_000;

/// How many rows a connection sees, asked for at once: it waits for nobody.
fn rows(connection: &Connection) -> i64 {
    connection.query_row("SELECT count(*) FROM decision", [], |row| row.get(0)).unwrap()
}

#[test]
fn a_reader_with_an_open_transaction_is_never_blocked_and_blocks_nobody() {
    let sessions = tempfile::tempdir().unwrap();
    let ledger = start(sessions.path(), "one");
    let directory = ledger.directory().to_owned();
    for number in 0..10 {
        ledger.recorder().record(None, &decision(number));
    }
    assert!(ledger.flush(LONG));
    drop(Reader::open(&directory).unwrap());
    let held = Connection::open(directory.join("session.db")).unwrap();
    // Not to wait at all: SQLITE_BUSY would come at once.
    held.busy_timeout(std::time::Duration::ZERO).unwrap();
    held.execute_batch("BEGIN").unwrap();
    assert_eq!(rows(&held), 10);
    let log = directory.join("session.db-wal");
    let before = log.metadata().unwrap().len();
    let done = AtomicBool::new(false);
    let taken = std::thread::scope(|scope| {
        scope.spawn(|| {
            let recorder = ledger.recorder();
            for number in 10..MANY {
                recorder.record(None, &decision(number));
                if number.is_multiple_of(1000) {
                    assert!(ledger.flush(LONG), "the writer is blocked");
                }
            }
        });
        // The reader that takes the lines in, while they come.
        let taker = scope.spawn(|| {
            let reader = Reader::open(&directory).unwrap();
            let mut last = 0;
            while last < MANY as i64 {
                let rows = reader.events(last, &[], false).unwrap();
                last = rows.last().map_or(last, |row| row.event);
            }
            done.store(true, Ordering::Relaxed);
            last
        });
        let mut asked = 0;
        while asked == 0 || !done.load(Ordering::Relaxed) {
            assert_eq!(rows(&held), 10, "one state, for as long as the transaction is open");
            assert!(!taker.is_finished() || done.load(Ordering::Relaxed), "the taker failed");
            asked += 1;
        }
        taker.join().unwrap()
    });
    assert_eq!(taken, MANY as i64);
    assert_eq!(rows(&held), 10);
    // What the reader holds is in the log, and goes into the database when it has let go. A row takes some 90 bytes, and each
    // transaction some pages more; how many of these there were is the machine's.
    assert!(log.metadata().unwrap().len() > before + 80 * MANY);
    held.execute_batch("COMMIT").unwrap();
    assert_eq!(rows(&held), MANY as i64);
    let busy: i64 =
        held.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).unwrap();
    assert_eq!((busy, log.metadata().unwrap().len()), (0, 0));
    assert_eq!(rows(&held), MANY as i64);
    ledger.end(Ended::Code(0)).unwrap();
}

/// This program again, as a process of its own that records until it is killed.
fn writer(name: &str, sessions: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--ignored", "--nocapture", "-q"])
        .env("RINGFENCE_TEST_SESSIONS", sessions)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The database is sound, and its rows are the first ones that were recorded, each once.
fn sound(directory: &Path) -> usize {
    let reader = Reader::open(directory).unwrap();
    let rows = reader.events(0, &[], false).unwrap();
    for (at, row) in rows.iter().enumerate() {
        assert_eq!((row.event, row.text("object")), (at as i64 + 1, &*format!("/file/{at}")));
    }
    assert_eq!(reader.session().unwrap().status(), "killed");
    let database = Connection::open(directory.join("session.db")).unwrap();
    let check: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
    let skipped: i64 =
        database.query_row("SELECT skipped FROM taken", [], |row| row.get(0)).unwrap();
    assert_eq!(skipped, 0);
    rows.len()
}

#[test]
fn a_kill_takes_nothing_that_was_acknowledged() {
    for round in 0..8 {
        let sessions = tempfile::tempdir().unwrap();
        let mut child = writer("acknowledging", sessions.path());
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        // At another moment each time.
        let moment = blake3::hash(sessions.path().as_os_str().as_encoded_bytes()).as_bytes()[0];
        let acknowledged: Vec<usize> = lines
            .by_ref()
            .filter_map(|line| line.strip_prefix("written ")?.parse().ok())
            .take(1 + usize::from(moment % 16))
            .collect();
        child.kill().unwrap();
        child.wait().unwrap();
        let acknowledged = *acknowledged.last().expect("it was acknowledged");
        let directory = sessions.path().join("killed");
        // A reader may have been there before, or not.
        let found = sound(&directory);
        assert!(found >= acknowledged, "round {round}: {found} of {acknowledged}");
        assert_eq!(sound(&directory), found);
    }
}

/// Nobody asks for it, and it is written all the same, within the 50 ms that events gather.
#[test]
fn what_nobody_waits_for_is_written_too() {
    let sessions = tempfile::tempdir().unwrap();
    let mut child = writer("silent", sessions.path());
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "recorded"));
    let journal = sessions.path().join("killed/journal");
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
    inotify::add_watch(&watch, &journal, inotify::WatchFlags::MODIFY).unwrap();
    let written = || std::fs::read(&journal).unwrap().iter().filter(|&&byte| byte == b'\n').count();
    while written() < 1 + 1000 {
        let patience = Timespec { tv_sec: LONG.as_secs() as i64, tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(&watch, PollFlags::IN)], Some(&patience)).unwrap();
        assert_eq!(ready, 1, "{} lines are written", written());
        let mut room = [std::mem::MaybeUninit::uninit(); 4096];
        let _ = inotify::Reader::new(&watch, &mut room).next().unwrap();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(sound(&sessions.path().join("killed")), 1000);
}

#[test]
#[ignore = "run by another test, as a process of its own"]
fn acknowledging() {
    let sessions = std::env::var_os("RINGFENCE_TEST_SESSIONS").unwrap();
    let ledger = start(Path::new(&sessions), "killed");
    let recorder = ledger.recorder();
    let mut number = 0;
    loop {
        // Batches of all sizes, and events that nobody waits for between them.
        for _ in 0..1 + number % 97 {
            recorder.record(None, &decision(number));
            number += 1;
        }
        assert!(ledger.flush(LONG));
        println!("\nwritten {number}");
        recorder.record(None, &decision(number));
        number += 1;
    }
}

#[test]
#[ignore = "run by another test, as a process of its own"]
fn silent() {
    let sessions = std::env::var_os("RINGFENCE_TEST_SESSIONS").unwrap();
    let ledger = start(Path::new(&sessions), "killed");
    let recorder = ledger.recorder();
    for number in 0..1000 {
        recorder.record(None, &decision(number));
    }
    println!("\nrecorded");
    // Until it is killed, or whoever started it is gone.
    let _ = std::io::stdin().read_line(&mut String::new());
    std::process::abort();
}
