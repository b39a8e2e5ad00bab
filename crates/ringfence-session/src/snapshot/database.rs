//! The store: one SQLite file with the objects, the snapshots, the stat cache and the journal.
//!
//! SQLite gives what must not be got wrong: a transaction that is there or not, whenever the
//! process is killed, and a full disk that is an error. The write-ahead log is not folded back
//! at the end of each command, which would cost a flush to the disk.

use super::entry::{Entry, Hash, NONE, read_tree};
use super::room::{Batches, LOG};
use crate::error::{Result, SessionError};
use crate::wal::log_ahead;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OptionalExtension, params};
use std::cell::RefCell;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The version of the layout, kept as SQLite's `user_version`.
const VERSION: i64 = 1;

const SCHEMA: &str = "
CREATE TABLE object (
  id INTEGER PRIMARY KEY,
  hash BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
  encoding INTEGER NOT NULL CHECK (encoding IN (0, 1, 2)),
  size INTEGER NOT NULL CHECK (size >= 0),
  data BLOB NOT NULL
);
CREATE TABLE snapshot (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  name TEXT UNIQUE,
  kind TEXT NOT NULL CHECK (kind IN ('manual', 'start', 'before-revert')),
  created INTEGER NOT NULL,
  root BLOB NOT NULL CHECK (length(root) = 32),
  ignored TEXT NOT NULL CHECK (ignored IN ('included', 'excluded')),
  session TEXT,
  files INTEGER NOT NULL,
  directories INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  added INTEGER NOT NULL,
  links INTEGER NOT NULL,
  unreadable INTEGER NOT NULL
);
CREATE TABLE cache (path BLOB PRIMARY KEY, seen BLOB NOT NULL);
CREATE TABLE journal (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  snapshot INTEGER NOT NULL,
  paths BLOB NOT NULL,
  except_paths BLOB NOT NULL,
  temporary BLOB NOT NULL,
  safety INTEGER NOT NULL
);
CREATE TABLE counter (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
INSERT INTO counter VALUES ('deleted', 0);
";

/// How an object's bytes are kept.
const PLAIN: i64 = 0;
const ZSTD: i64 = 1;
/// The row holds the chunk list; the bytes are in a file that shares the original's blocks.
const CLONE: i64 = 2;

/// Below this nothing is won.
const WORTH_COMPRESSING: usize = 256;
/// Larger bytes are judged by their beginning.
const SAMPLE: usize = 32 << 10;

/// An open store.
pub(super) struct Database {
    pub connection: Connection,
    pub directory: PathBuf,
    compressor: zstd::bulk::Compressor<'static>,
    decompressor: RefCell<zstd::bulk::Decompressor<'static>>,
    /// Bytes that were added since the last reset, as stored.
    pub added: u64,
    /// How long the write-ahead log was when the transaction began.
    pub logged: u64,
    /// Bytes that the running transaction has put, about.
    pub put: u64,
    /// What was put goes into the store in batches.
    pub batches: Option<Batches>,
}

impl Database {
    /// Opens the store in a directory, and makes it if it is not there.
    pub fn open(directory: &Path, durable: bool) -> Result<Database> {
        let path = directory.join("store.db");
        let failed = |error| SessionError::database(&path, error);
        // SQLite gives its other files the mode of the first. One that is there is not opened: to
        // close it would drop the locks that another connection of this process has on it.
        let mut options = std::fs::File::options();
        match options.write(true).create_new(true).mode(0o600).open(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(SessionError::call("open", &path, error));
            }
            // Who takes the lock has opened the store before, which was not empty then.
            Err(_)
                if std::fs::metadata(&path).is_ok_and(|found| found.len() == 0)
                    && directory.join("lock").exists() =>
            {
                let what = "it is empty, and was not".to_owned();
                return Err(SessionError::Corrupt { path, what });
            }
            _ => {}
        }
        let connection = Connection::open(&path).map_err(failed)?;
        connection.busy_timeout(std::time::Duration::from_secs(10)).map_err(failed)?;
        connection
            .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
            .map_err(failed)?;
        connection.set_prepared_statement_cache_capacity(32);
        let version: i64 =
            connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(failed)?;
        if version > VERSION {
            return Err(SessionError::Newer { path, found: version, known: VERSION });
        }
        // The page size counts only before the first table. The cache, KiB, is taken as it is
        // used: pages of the index that do not fit are written again and again.
        let flush = if durable { "FULL" } else { "NORMAL" };
        if version == 0 {
            let first = "PRAGMA page_size = 16384; PRAGMA auto_vacuum = INCREMENTAL;";
            connection
                .execute_batch(first)
                .and_then(|()| log_ahead(&connection))
                .map_err(failed)?;
        }
        let settings = format!(
            "PRAGMA synchronous = {flush}; PRAGMA cache_size = -65536; \
             PRAGMA journal_size_limit = {LOG}; PRAGMA wal_autocheckpoint = 0;"
        );
        connection.execute_batch(&settings).map_err(failed)?;
        if version == 0 {
            // Two may meet here: the second finds the version set.
            let made = connection.execute_batch("BEGIN IMMEDIATE").and_then(|()| {
                let now: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
                if now == 0 {
                    connection.execute_batch(SCHEMA)?;
                    connection.pragma_update(None, "user_version", VERSION)?;
                }
                connection.execute_batch("COMMIT")
            });
            made.map_err(failed)?;
        }
        let failed = |error| SessionError::call("zstd", &path, error);
        let compressor = zstd::bulk::Compressor::new(1).map_err(failed)?;
        let decompressor = RefCell::new(zstd::bulk::Decompressor::new().map_err(failed)?);
        let directory = directory.to_owned();
        Ok(Database {
            connection,
            directory,
            compressor,
            decompressor,
            added: 0,
            logged: 0,
            put: 0,
            batches: None,
        })
    }

    /// The file, for messages.
    pub fn path(&self) -> PathBuf {
        self.directory.join("store.db")
    }

    /// Turns SQLite's errors into ours.
    pub fn run<T>(&self, result: rusqlite::Result<T>) -> Result<T> {
        result.map_err(|error| SessionError::database(&self.path(), error))
    }

    /// Does all of it or nothing.
    pub fn transaction<T>(&mut self, act: impl FnOnce(&mut Database) -> Result<T>) -> Result<T> {
        self.begin()?;
        let result = act(self);
        self.end(result)
    }

    /// Begins to do all or nothing.
    pub fn begin(&mut self) -> Result<()> {
        self.short("BEGIN IMMEDIATE")?;
        self.logged = self.log_length();
        self.put = 0;
        Ok(())
    }

    /// A statement that is used again and again, and gives nothing.
    pub fn short(&self, statement: &str) -> Result<()> {
        let done = self.connection.prepare_cached(statement).and_then(|mut done| done.execute([]));
        self.run(done).map(drop)
    }

    /// Makes it so, or undoes it all.
    pub fn end<T>(&mut self, result: Result<T>) -> Result<T> {
        let batches = self.batches.take();
        let result = match (result, &batches) {
            (Ok(value), Some(batches)) => self.last_batch(batches).map(|()| value),
            (result, _) => result,
        };
        let end = if result.is_ok() { "COMMIT" } else { "ROLLBACK" };
        let ended = self.short(end);
        if result.is_ok() && ended.is_err() {
            let _ = self.short("ROLLBACK");
        }
        let ended = result.and_then(|value| ended.map(|()| value));
        match &ended {
            Ok(_) => self.shorten(),
            Err(error) => {
                let full = matches!(error, SessionError::Full(_));
                if full {
                    self.give_back();
                }
                if let Some(batches) = batches {
                    self.undo(&batches, full);
                }
            }
        }
        ended
    }

    /// Sets how many bytes the store may take.
    pub fn limit(&self, limit: Option<u64>) -> Result<()> {
        let Some(limit) = limit else { return Ok(()) };
        let pages: i64 =
            self.run(self.connection.query_row("PRAGMA page_size", [], |row| row.get(0)))?;
        let pages = (limit / pages.max(1) as u64).max(1);
        let set = format!("PRAGMA max_page_count = {pages}");
        self.run(self.connection.query_row(&set, [], |_| Ok(())))
    }

    /// Damage in this store.
    pub fn corrupt(&self, what: impl Into<String>) -> SessionError {
        SessionError::Corrupt { path: self.path(), what: what.into() }
    }

    /// An object is stored.
    pub fn holds(&self, hash: &Hash) -> Result<bool> {
        let found = self
            .connection
            .prepare_cached("SELECT 1 FROM object WHERE hash = ?1")
            .and_then(|mut statement| statement.exists([hash]));
        self.run(found)
    }

    /// Stores bytes under their hash, once.
    pub fn put(&mut self, hash: &Hash, bytes: &[u8]) -> Result<()> {
        if self.holds(hash)? {
            return Ok(());
        }
        match self.pack(bytes) {
            Some(packed) => self.insert(hash, ZSTD, bytes.len() as u64, &packed),
            None => self.insert(hash, PLAIN, bytes.len() as u64, bytes),
        }
    }

    /// The same, as they are.
    pub fn put_plain(&mut self, hash: &Hash, bytes: &[u8]) -> Result<()> {
        if self.holds(hash)? {
            return Ok(());
        }
        self.insert(hash, PLAIN, bytes.len() as u64, bytes)
    }

    fn insert(&mut self, hash: &Hash, encoding: i64, size: u64, data: &[u8]) -> Result<()> {
        let insert = "INSERT INTO object (hash, encoding, size, data) VALUES (?1, ?2, ?3, ?4)";
        let done = self.connection.prepare_cached(insert).and_then(|mut statement| {
            statement.execute(params![hash, encoding, size as i64, data])
        });
        self.run(done)?;
        self.added += data.len() as u64;
        self.has_put(data.len())
    }

    /// Notes that the file with this chunk list stands in `clones`.
    pub fn put_clone(&mut self, hash: &Hash, size: u64, list: &[u8]) -> Result<()> {
        self.insert(hash, CLONE, size, list)
    }

    fn pack(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        if bytes.len() < WORTH_COMPRESSING {
            return None;
        }
        let pays = |packed: &Vec<u8>, of: usize| packed.len() < of - of / 8;
        if bytes.len() > SAMPLE {
            let sample = self.compressor.compress(&bytes[..SAMPLE]).ok()?;
            if !pays(&sample, SAMPLE) {
                return None;
            }
        }
        self.compressor.compress(bytes).ok().filter(|packed| pays(packed, bytes.len()))
    }

    /// The bytes of an object, and whether they are a clone's chunk list. What comes back is
    /// what was put: the hash is checked.
    pub fn get(&self, hash: &Hash) -> Result<(Vec<u8>, bool)> {
        let found = self
            .connection
            .prepare_cached("SELECT encoding, size, data FROM object WHERE hash = ?1")
            .and_then(|mut statement| {
                let row = |row: &rusqlite::Row<'_>| {
                    Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, Vec<u8>>(2)?))
                };
                statement.query_row([hash], row).optional()
            });
        let Some((encoding, size, data)) = self.run(found)? else {
            return Err(self.corrupt(format!("object {} is missing", hex(hash))));
        };
        let bytes = match encoding {
            ZSTD => {
                let size = usize::try_from(size).unwrap_or(0);
                self.decompressor
                    .borrow_mut()
                    .decompress(&data, size)
                    .map_err(|error| self.corrupt(format!("object {}: {error}", hex(hash))))?
            }
            _ => data,
        };
        if blake3::hash(&bytes).as_bytes() != hash {
            return Err(self.corrupt(format!("object {} holds other bytes", hex(hash))));
        }
        Ok((bytes, encoding == CLONE))
    }

    /// The entries of a stored directory.
    pub fn tree(&self, hash: &Hash) -> Result<Vec<Entry>> {
        if *hash == NONE {
            return Ok(Vec::new());
        }
        let (bytes, _) = self.get(hash)?;
        read_tree(&bytes).ok_or_else(|| self.corrupt(format!("tree {} is unreadable", hex(hash))))
    }

    /// Where a cloned file stands.
    pub fn clone_path(&self, hash: &Hash) -> PathBuf {
        self.directory.join("clones").join(hex(hash))
    }

    /// The cached stamps of a directory.
    pub fn cached(&self, path: &[u8]) -> Result<Option<Vec<u8>>> {
        let found = self
            .connection
            .prepare_cached("SELECT seen FROM cache WHERE path = ?1")
            .and_then(|mut statement| statement.query_row([path], |row| row.get(0)).optional());
        self.run(found)
    }

    /// Replaces them: in their row, where pages that stay the same are not written.
    pub fn set_cached(&mut self, path: &[u8], seen: &[u8]) -> Result<()> {
        let set = "INSERT INTO cache VALUES (?1, ?2) ON CONFLICT (path) DO UPDATE SET seen = ?2";
        let done = self
            .connection
            .prepare_cached(set)
            .and_then(|mut statement| statement.execute(params![path, seen]));
        self.run(done)?;
        self.has_put(seen.len())
    }
}

/// A hash for people and file names.
pub(super) fn hex(hash: &Hash) -> String {
    blake3::Hash::from_bytes(*hash).to_hex().to_string()
}
