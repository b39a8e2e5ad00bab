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
    // What is there of lines that were written at once is not lost.
    let session = Reader::open(&directory).unwrap().session().unwrap();
    assert_eq!(session.lost + rows.len() as u64, 1000);
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
    let limit = |current| setrlimit(Resource::Fsize, Rlimit { current, maximum: None }).unwrap();
    limit(Some(20_000));
    let recorder = ledger.recorder();
    for number in 0..1000 {
        recorder.record(None, &decision(number));
    }
    ledger.flush(LONG);
    // The last line has how much is lost.
    limit(None);
    println!("told: {}", ledger.end(Ended::Code(0)).unwrap_err());
}

/// A disk that fills while a session lives: what had no room is counted, and the end is there.
#[test]
fn a_disk_that_fills_does_not_take_the_end() {
    let Some(disk) = Disk::of(256) else { return };
    let ledger = start(&disk.0.path().join("sessions"), "filled");
    let recorder = ledger.recorder();
    // The writer's thread, and the launcher's own.
    recorder.record(None, &decision(0));
    assert!(ledger.flush(LONG));
    disk.fill();
    for number in 1..2000 {
        recorder.record(None, &decision(number));
    }
    assert!(!ledger.flush(LONG));
    // It goes on when there is room again.
    std::fs::remove_file(disk.0.path().join("fill")).unwrap();
    recorder.record(None, &decision(2000));
    ledger.flush(LONG);
    disk.fill();
    (2001..4000).for_each(|number| recorder.record(None, &decision(number)));
    recorder.ending();
    recorder.record_here(None, &decision(4000));
    let told = ledger.end(Ended::Code(4)).unwrap_err().to_string();
    std::fs::remove_file(disk.0.path().join("fill")).unwrap();
    let reader = Reader::open(&disk.0.path().join("sessions/filled")).unwrap();
    let (session, rows) = (reader.session().unwrap(), reader.events(0, &[], false).unwrap());
    assert_eq!((session.code, session.status()), (Some(4), "exited"), "{told}");
    assert_eq!(session.lost + rows.len() as u64, 4001, "{told}");
    assert!(session.lost > 1000 && told.contains(&format!("{} of its events", session.lost)));
    let objects: Vec<&str> = rows.iter().map(|row| row.text("object")).collect();
    assert!(objects.contains(&"/file/2000") && objects.ends_with(&["/file/4000"]), "{objects:?}");
    // Little of what was asked for is left over.
    let journal = disk.0.path().join("sessions/filled/journal").metadata().unwrap();
    use std::os::unix::fs::MetadataExt;
    assert!(journal.blocks() * 512 < journal.len() + 16_384, "{}", journal.blocks());
}

/// Other processes write to the journal as well: not into the room that is kept for the end.
#[test]
fn others_do_not_take_the_room_of_the_end() {
    let Some(disk) = Disk::of(256) else { return };
    let ledger = start(&disk.0.path().join("sessions"), "shared");
    let recorder = ledger.recorder();
    for number in 0..20 {
        recorder.record(None, &decision(number));
    }
    assert!(ledger.flush(LONG));
    disk.fill();
    let directory = ledger.directory().to_owned();
    let append = |number| ringfence_session::ledger::append(&directory, None, &decision(number));
    let refused = (0..400).map(append).filter(Result::is_err).count();
    assert!(refused > 200, "{refused}");
    recorder.ending();
    recorder.record_here(None, &decision(100));
    let told = ledger.end(Ended::Code(4));
    let session = Reader::open(&directory).unwrap().session().unwrap();
    assert_eq!((session.code, session.status(), session.lost), (Some(4), "exited", 0), "{told:?}");
}

/// What is on record can be read while the disk is full, whether somebody read it before or not.
#[test]
fn a_full_disk_can_be_read() {
    let Some(disk) = Disk::of(1024) else { return };
    let sessions = disk.0.path().join("sessions");
    let session = |id: &str| {
        let ledger = start(&sessions, id);
        let recorder = ledger.recorder();
        (0..200).for_each(|number| recorder.record(None, &decision(number)));
        assert!(ledger.flush(LONG));
        ledger.end(Ended::Code(4)).unwrap();
    };
    ["new", "read"].into_iter().for_each(session);
    drop(Reader::open(&sessions.join("read")).unwrap());
    ringfence_session::ledger::append(&sessions.join("read"), None, &decision(200)).unwrap();
    disk.fill();
    let fill = std::fs::File::options().write(true).open(disk.0.path().join("fill")).unwrap();
    let filled = fill.metadata().unwrap().len();
    // It ends at any step of the database's.
    for pages in 0..48 {
        for name in ["session.db", "session.db-wal", "session.db-shm"] {
            let _ = std::fs::remove_file(sessions.join("new").join(name));
        }
        disk.fill();
        fill.set_len(filled - pages * 4096).unwrap();
        for (id, rows) in [("new", 200), ("read", 201), ("new", 200)] {
            let reader = Reader::open(&sessions.join(id)).unwrap();
            assert_eq!(reader.session().unwrap().code, Some(4), "{id}");
            assert_eq!(reader.events(0, &[], false).unwrap().len(), rows, "{id}");
        }
    }
    // The control: with room it is there for all.
    std::fs::remove_file(disk.0.path().join("fill")).unwrap();
    let reader = Reader::open(&sessions.join("new")).unwrap();
    assert_eq!(reader.events(0, &[], false).unwrap().len(), 200);
    assert!(sessions.join("new/session.db").metadata().unwrap().len() > 0);
}

/// A reader that is open when the disk gets full goes on with all that comes.
#[test]
fn a_disk_that_fills_under_a_reader_can_be_read() {
    let Some(disk) = Disk::of(1024) else { return };
    let sessions = disk.0.path().join("sessions");
    let ledger = start(&sessions, "followed");
    (0..200).for_each(|number| ledger.recorder().record(None, &decision(number)));
    assert!(ledger.flush(LONG));
    ledger.end(Ended::Code(4)).unwrap();
    let (followed, fill) = (sessions.join("followed"), disk.0.path().join("fill"));
    let append = |number| {
        ringfence_session::ledger::append(&followed, None, &decision(number)).unwrap();
    };
    for pages in 0..12 {
        let reader = Reader::open(&followed).unwrap();
        let seen = reader.events(0, &[], false).unwrap().last().unwrap().event;
        (0..20).for_each(append);
        disk.fill();
        let file = std::fs::File::options().write(true).open(&fill).unwrap();
        file.set_len(file.metadata().unwrap().len() - pages * 4096).unwrap();
        let rows = reader.events(seen, &[], false).unwrap();
        assert_eq!(rows.len(), 20, "{pages}");
        assert_eq!(rows.last().unwrap().event, seen + 20, "{pages}");
        assert_eq!(reader.events(seen + 20, &[], false).unwrap(), [], "{pages}");
        std::fs::remove_file(&fill).unwrap();
        append(20);
        assert_eq!(reader.events(seen + 20, &[], false).unwrap().len(), 1, "{pages}");
        for name in ["session.db", "session.db-wal", "session.db-shm"] {
            let _ = std::fs::remove_file(followed.join(name));
        }
    }
}

/// A small disk, where the kernel lets us have one.
struct Disk(tempfile::TempDir);

impl Disk {
    fn of(kilobytes: u32) -> Option<Disk> {
        let place = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={kilobytes}k"), "ringfence-tests"])
            .arg(place.path())
            .output();
        mounted.is_ok_and(|mounted| mounted.status.success()).then(|| {
            std::fs::create_dir(place.path().join("sessions")).unwrap();
            Disk(place)
        })
    }

    fn fill(&self) {
        let mut file = std::fs::File::create(self.0.path().join("fill")).unwrap();
        for size in [4096, 1] {
            while std::io::Write::write_all(&mut file, &vec![0; size]).is_ok() {}
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
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
    let names = std::fs::read_dir(sessions.path().join("by-name")).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, [".lock"], "what names are taken under");
}
