//! What was learnt about system calls, kept between runs: by profile, by program, by build.
//!
//! It is evidence and no policy: nothing reads it to allow anything. `learn` adds to it and
//! proposes from it, the user decides, and what is in force stands in the profile.

use crate::elf;
use crate::watch::Observed;
use rusqlite::{Connection, OpenFlags, params};
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// The version of the tables (`PRAGMA user_version`).
const SCHEMA: i64 = 1;
/// The name of the file in the user's directory of state.
const FILE: &str = "learnt.db";

/// One call of one build of a program, under one profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Learnt {
    /// The program's file.
    pub program: String,
    /// Which build of it: the GNU build-id, else what tells its file from others.
    pub build: String,
    /// The call's family.
    pub call: String,
    /// How often it was made.
    pub count: u64,
}

/// The file.
#[derive(Debug)]
pub struct Evidence(Connection);

fn other(error: rusqlite::Error) -> io::Error {
    io::Error::other(error)
}

impl Evidence {
    /// Opens the file in a directory of the user's own, which is made if it is missing.
    ///
    /// # Errors
    /// It cannot be made or read; it is a newer version's.
    pub fn open(directory: &Path) -> io::Result<Evidence> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        let path = directory.join(FILE);
        // Made by us, so that it is nobody else's to read from the beginning. One that is there is
        // not opened: to close it would drop the locks that another connection of ours has on it.
        match File::options().append(true).create_new(true).mode(0o600).open(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let connection = Connection::open_with_flags(&path, flags).map_err(other)?;
        connection.busy_timeout(Duration::from_secs(10)).map_err(other)?;
        Evidence(connection).prepared()
    }

    fn prepared(mut self) -> io::Result<Evidence> {
        let change = self.0.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate);
        let change = change.map_err(other)?;
        let version: i64 =
            change.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(other)?;
        if version > SCHEMA {
            return Err(io::Error::other(format!(
                "{FILE} was made by a newer ringfence (version {version})"
            )));
        }
        change
            .execute_batch(
                "CREATE TABLE IF NOT EXISTS programs (
                     id INTEGER PRIMARY KEY, path TEXT NOT NULL, build TEXT NOT NULL,
                     UNIQUE (path, build)) STRICT;
                 CREATE TABLE IF NOT EXISTS calls (
                     profile TEXT NOT NULL, program INTEGER NOT NULL REFERENCES programs (id),
                     call TEXT NOT NULL, count INTEGER NOT NULL, last INTEGER NOT NULL,
                     PRIMARY KEY (profile, program, call)) STRICT, WITHOUT ROWID;
                 PRAGMA user_version = 1;",
            )
            .map_err(other)?;
        change.commit().map_err(other)?;
        Ok(self)
    }

    /// Adds what a run was seen to call.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&mut self, profile: &str, observed: &Observed) -> io::Result<()> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let change = self.0.transaction().map_err(other)?;
        let mut known: Option<(&Path, i64)> = None;
        for ((program, call), count) in &observed.calls {
            let id = match known {
                Some((path, id)) if path == program => id,
                _ => {
                    let path = program.to_string_lossy();
                    let build = build(program);
                    change
                        .execute(
                            "INSERT OR IGNORE INTO programs (path, build) VALUES (?1, ?2)",
                            params![path, build],
                        )
                        .map_err(other)?;
                    let find = "SELECT id FROM programs WHERE path = ?1 AND build = ?2";
                    let id: i64 = change
                        .query_row(find, params![path, build], |row| row.get(0))
                        .map_err(other)?;
                    known = Some((program, id));
                    id
                }
            };
            let count = i64::try_from(*count).unwrap_or(i64::MAX);
            change
                .execute(
                    "INSERT INTO calls VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO UPDATE
                     SET count = count + excluded.count, last = excluded.last",
                    params![profile, id, call, count, now],
                )
                .map_err(other)?;
        }
        change.commit().map_err(other)
    }

    /// What was learnt under a profile, sorted by call.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn of(&self, profile: &str) -> io::Result<Vec<Learnt>> {
        let mut query = self
            .0
            .prepare(
                "SELECT path, build, call, count FROM calls JOIN programs ON program = id
                 WHERE profile = ?1 ORDER BY call, path, build",
            )
            .map_err(other)?;
        let rows = query
            .query_map([profile], |row| {
                let count: i64 = row.get(3)?;
                Ok(Learnt {
                    program: row.get(0)?,
                    build: row.get(1)?,
                    call: row.get(2)?,
                    count: count.unsigned_abs(),
                })
            })
            .map_err(other)?;
        rows.collect::<Result<_, _>>().map_err(other)
    }

    /// Forgets what was learnt under a profile; how many calls that were.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn forget(&mut self, profile: &str) -> io::Result<usize> {
        self.0.execute("DELETE FROM calls WHERE profile = ?1", [profile]).map_err(other)
    }
}

/// Which build of a program a file is: its GNU build-id; without one, its inode, size and time.
pub fn build(program: &Path) -> String {
    let id = File::open(program).ok().and_then(|file| elf::parse(&file)?.build_id);
    if let Some(id) = id {
        return id.iter().map(|byte| format!("{byte:02x}")).collect();
    }
    match program.metadata() {
        Ok(data) => format!("file {} {} {}", data.ino(), data.len(), data.mtime()),
        Err(_) => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn what_was_learnt_is_kept_by_profile_and_adds_up() {
        let place = tempfile::tempdir().expect("a directory");
        let directory = place.path().join("state");
        let mut observed = Observed::default();
        observed.call(Path::new("/bin/sh"), "open");
        observed.call(Path::new("/bin/sh"), "openat");
        observed.call(Path::new("/nowhere"), "socket");
        for _ in 0..2 {
            let mut evidence = Evidence::open(&directory).expect("it opens");
            evidence.add("mine", &observed).expect("it is added");
        }
        let mut evidence = Evidence::open(&directory).expect("it opens");
        let learnt = evidence.of("mine").expect("it is read");
        let calls: Vec<_> = learnt.iter().map(|one| (one.call.as_str(), one.count)).collect();
        assert_eq!(calls, [("openat", 4), ("socket", 2)]);
        assert!(learnt[0].build.len() >= 16, "{learnt:?}");
        assert_eq!(learnt[1].build, "unknown");
        assert_eq!(evidence.of("other").expect("it is read"), []);
        assert_eq!(evidence.forget("mine").expect("it is written"), 2);
        assert_eq!(evidence.of("mine").expect("it is read"), []);
        let mode = std::fs::metadata(directory.join(FILE)).expect("it is there").permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
    }

    #[test]
    fn a_newer_or_broken_file_is_an_error() {
        let place = tempfile::tempdir().expect("a directory");
        let evidence = Evidence::open(place.path()).expect("it opens");
        evidence.0.pragma_update(None, "user_version", 99).expect("it is written");
        drop(evidence);
        let error = Evidence::open(place.path()).expect_err("it is newer");
        assert!(error.to_string().contains("newer"), "{error}");
        std::fs::write(place.path().join(FILE), [7; 4096]).expect("it is written");
        Evidence::open(place.path()).expect_err("it is no database");
    }
}
