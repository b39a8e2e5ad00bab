//! The rows of the store: snapshots and the journal.

use super::codec::{Reader, put_bytes};
use super::database::Database;
use super::entry::{Hash, Kind};
use super::scan::{Leave, Scan};
use super::{New, Pending, Select};
use crate::error::{Result, SessionError};
use ringfence_policy::shown;
use rusqlite::{OptionalExtension, Row, params};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// Who asked for a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Somebody.
    Manual,
    /// The start of a run.
    Start,
    /// A revert, to keep what it replaced.
    BeforeRevert,
}

impl Origin {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Origin::Manual => "manual",
            Origin::Start => "start",
            Origin::BeforeRevert => "before-revert",
        }
    }
}

/// Whether what `.gitignore` files name is in a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ignored {
    /// It is, and a revert brings it back.
    Included,
    /// It is not, and a revert leaves it as it is.
    Excluded,
}

impl Ignored {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Ignored::Included => "included",
            Ignored::Excluded => "excluded",
        }
    }
}

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Its number, never used again.
    pub id: i64,
    /// Its name, if it got one.
    pub name: Option<String>,
    /// Who asked for it.
    pub origin: Origin,
    /// When, in milliseconds since the epoch.
    pub created: i64,
    /// Its tree.
    pub root: Hash,
    /// Whether ignored files are in it.
    pub ignored: Ignored,
    /// The session it belongs to.
    pub session: Option<String>,
    /// Regular files in it.
    pub files: u64,
    /// Directories in it.
    pub directories: u64,
    /// Bytes of all its files.
    pub bytes: u64,
    /// Bytes the store grew by.
    pub added: u64,
    /// Names that share an inode.
    pub(super) links: u64,
    /// Paths that could not be read.
    pub unreadable: u64,
}

impl Snapshot {
    /// Its name, else its number.
    pub fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.id.to_string())
    }

    pub(super) fn leave(&self) -> Leave {
        match self.ignored {
            Ignored::Included => Leave::Nothing,
            Ignored::Excluded => Leave::Tree(self.root),
        }
    }
}

/// A name that cannot be mistaken for a number, an option or a path.
///
/// # Errors
/// It is none.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ' ');
    let good = (1..=64).contains(&name.chars().count())
        && name.chars().all(plain)
        && !name.starts_with(['-', '.', ' '])
        && !name.chars().all(|c| c.is_ascii_digit())
        && name != "latest";
    if good {
        return Ok(());
    }
    Err(SessionError::usage(format!(
        "{name:?} is no name for a snapshot: up to 64 letters, digits, `-`, `_`, `.`, spaces, not a \
         number, and not `latest`"
    )))
}

const COLUMNS: &str = "id, name, kind, created, root, ignored, session, files, directories, bytes, \
                       added, links, unreadable";

fn snapshot(row: &Row<'_>) -> rusqlite::Result<Snapshot> {
    let number = |at| row.get::<_, i64>(at).map(|number| number as u64);
    let kind: String = row.get(2)?;
    let ignored: String = row.get(5)?;
    Ok(Snapshot {
        id: row.get(0)?,
        name: row.get(1)?,
        origin: match kind.as_str() {
            "start" => Origin::Start,
            "before-revert" => Origin::BeforeRevert,
            _ => Origin::Manual,
        },
        created: row.get(3)?,
        root: row.get(4)?,
        ignored: if ignored == "excluded" { Ignored::Excluded } else { Ignored::Included },
        session: row.get(6)?,
        files: number(7)?,
        directories: number(8)?,
        bytes: number(9)?,
        added: number(10)?,
        links: number(11)?,
        unreadable: number(12)?,
    })
}

impl Database {
    /// Refuses a name that is taken.
    pub fn name_is_free(&self, name: Option<&str>) -> Result<()> {
        let Some(name) = name else { return Ok(()) };
        match self.by_name(name)? {
            Some(found) => Err(SessionError::usage(format!(
                "there is a snapshot {name} already (number {}); give another name, or delete it: \
                 ringfence snapshot delete {}",
                found.id,
                shown::word(name)
            ))),
            None => Ok(()),
        }
    }

    /// Notes what was scanned as a snapshot.
    pub fn record(&mut self, new: &New, scan: &Scan) -> Result<Snapshot> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let unreadable =
            scan.directories.values().flatten().filter(|s| s.entry.kind == Kind::Unreadable);
        let done = self
            .connection
            .prepare_cached(
                "INSERT INTO snapshot (name, kind, created, root, ignored, session, files, \
                 directories, bytes, added, links, unreadable) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
            )
            .and_then(|mut statement| {
                statement.insert(params![
                    new.name,
                    new.origin.word(),
                    now.as_millis() as i64,
                    scan.root,
                    new.ignored.word(),
                    new.session,
                    scan.files as i64,
                    scan.directories.len() as i64,
                    i64::try_from(scan.bytes).unwrap_or(i64::MAX),
                    self.added as i64,
                    scan.links as i64,
                    unreadable.count() as i64,
                ])
            });
        let id = self.run(done)?;
        self.by_id(id)
    }

    /// All of them, oldest first.
    pub fn snapshots(&self) -> Result<Vec<Snapshot>> {
        let all = self
            .connection
            .prepare_cached(&format!("SELECT {COLUMNS} FROM snapshot ORDER BY id"))
            .and_then(|mut statement| statement.query_map([], snapshot)?.collect());
        self.run(all)
    }

    /// The one of this number.
    pub fn by_id(&self, id: i64) -> Result<Snapshot> {
        let found = self
            .connection
            .prepare_cached(&format!("SELECT {COLUMNS} FROM snapshot WHERE id = ?1"))
            .and_then(|mut statement| statement.query_row([id], snapshot).optional());
        self.run(found)?.ok_or_else(|| SessionError::usage(format!("there is no snapshot {id}")))
    }

    /// The one of this name.
    pub fn by_name(&self, name: &str) -> Result<Option<Snapshot>> {
        let found = self
            .connection
            .prepare_cached(&format!("SELECT {COLUMNS} FROM snapshot WHERE name = ?1"))
            .and_then(|mut statement| statement.query_row([name], snapshot).optional());
        self.run(found)
    }

    /// The journal's entry.
    pub fn pending(&self) -> Result<Option<Pending>> {
        let row = |row: &Row<'_>| {
            let paths = (row.get::<_, Vec<u8>>(1)?, row.get::<_, Vec<u8>>(2)?);
            let select = Select { only: read_paths(&paths.0), except: read_paths(&paths.1) };
            let (snapshot, temporary, before) = (row.get(0)?, row.get(3)?, row.get(4)?);
            Ok(Pending { snapshot, select, before, temporary })
        };
        let found = self
            .connection
            .prepare_cached("SELECT snapshot, paths, except_paths, temporary, safety FROM journal")
            .and_then(|mut statement| statement.query_row([], row).optional());
        self.run(found)
    }

    /// Writes or clears it.
    pub fn set_pending(&self, pending: Option<&Pending>) -> Result<()> {
        let set = "INSERT OR REPLACE INTO journal VALUES (1, ?1, ?2, ?3, ?4, ?5)";
        let statement = if pending.is_some() { set } else { "DELETE FROM journal" };
        let done = self.connection.prepare_cached(statement).and_then(|mut done| match pending {
            Some(pending) => done.execute(params![
                pending.snapshot,
                write_paths(&pending.select.only),
                write_paths(&pending.select.except),
                pending.temporary,
                pending.before
            ]),
            None => done.execute([]),
        });
        self.run(done).map(drop)
    }
}

fn write_paths(paths: &[PathBuf]) -> Vec<u8> {
    let mut out = Vec::new();
    paths.iter().for_each(|path| put_bytes(&mut out, path.as_os_str().as_bytes()));
    out
}

fn read_paths(bytes: &[u8]) -> Vec<PathBuf> {
    let mut reader = Reader(bytes);
    let mut paths = Vec::new();
    while let Some(path) = (!reader.at_end()).then(|| reader.bytes()).flatten() {
        paths.push(PathBuf::from(OsStr::from_bytes(path)));
    }
    paths
}
