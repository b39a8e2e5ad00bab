//! Room on the disk. What a snapshot puts goes into the store in batches, so that it never needs twice its size: as long as
//! it is in the write-ahead log alone, it takes room there, and needs as much again in the store.
//!
//! A batch holds objects and stat caches, which no snapshot names yet: harmless. With the first one the next `create`
//! is told to sweep, and with the last one no longer: so what a killed one has put goes with the next.

use super::database::Database;
use super::retain::SWEEP_AFTER;
use super::{Store, fault};
use crate::error::{Result, SessionError};
use std::path::PathBuf;

/// The write-ahead log may be so long, bytes: then it is taken into the store. SQLite would do that by itself, whether there
/// is room or not.
pub(super) const LOG: u64 = 16 << 20;

/// How much a batch holds, bytes; where little is left, this part of it.
const BATCH: std::ops::RangeInclusive<u64> = 1 << 20..=32 << 20;
const PART: u64 = 8;

/// With less than this left the log is emptied first.
const TIGHT: u64 = 256 << 20;

/// So much is left, to give some back with.
const SPARE: u64 = 512 << 10;

/// What an object takes besides its bytes, and the log for some pages of the tables.
const ROW: u64 = 128;
const PAGES: u64 = 64 << 10;

/// What was put in batches.
pub(super) struct Batches {
    /// How much one holds.
    size: u64,
    /// What those took that are in the store.
    committed: u64,
}

impl Store {
    /// Does all or nothing.
    pub(super) fn transaction<T>(
        &mut self,
        act: impl FnOnce(&mut Store) -> Result<T>,
    ) -> Result<T> {
        self.database.begin()?;
        let result = act(self);
        self.database.end(result)
    }

    /// Does all or nothing, but for what it puts, which no snapshot names then.
    pub(super) fn in_batches<T>(&mut self, act: impl FnOnce(&mut Store) -> Result<T>) -> Result<T> {
        self.database.begin_batches()?;
        let result = act(self);
        self.database.end(result)
    }
}

impl Database {
    fn begin_batches(&mut self) -> Result<()> {
        let free = self.free();
        if free < TIGHT && self.log_length() > 0 {
            let _ = self.fold();
        }
        self.begin()?;
        self.batches = Some(Batches { size: size_of_batch(free), committed: 0 });
        Ok(())
    }

    /// Counts what was put.
    pub(super) fn has_put(&mut self, bytes: usize) -> Result<()> {
        self.put += bytes as u64 + ROW;
        match &self.batches {
            Some(batches) if self.put >= batches.size => self.next_batch(),
            _ => Ok(()),
        }
    }

    fn next_batch(&mut self) -> Result<()> {
        let committed = self.batches.as_ref().map_or(0, |batches| batches.committed);
        self.has_room(committed)?;
        if committed == 0 {
            self.count(SWEEP_AFTER)?;
        }
        self.short("COMMIT")?;
        let committed = committed + self.put;
        // Before anything that may fail.
        self.batches = Some(Batches { size: *BATCH.start(), committed });
        fault::point("batch");
        self.fold()?;
        self.begin()?;
        self.batches = Some(Batches { size: size_of_batch(self.free()), committed });
        Ok(())
    }

    /// What is to be done before the last one is committed.
    pub(super) fn last_batch(&self, batches: &Batches) -> Result<()> {
        self.has_room(batches.committed)?;
        if batches.committed > 0 {
            self.count(-SWEEP_AFTER)?;
        }
        Ok(())
    }

    /// Takes out again what was put in batches; where there was no room, also what is to be swept anyhow.
    pub(super) fn undo(&mut self, batches: &Batches, full: bool) {
        let due = || self.deleted().is_ok_and(|deleted| deleted >= SWEEP_AFTER);
        if batches.committed > 0 || full && due() {
            // Else the next `create` does.
            let _ = self.sweep().and_then(|()| self.shrink());
        }
    }

    /// Sweeps after a snapshot was made: where there is no room for that, it is made all the same, and the next one does.
    pub(super) fn sweep_if_room(&mut self) -> Result<()> {
        match self.sweep() {
            Err(SessionError::Full(_)) => Ok(()),
            swept => swept,
        }
    }

    fn count(&self, deletions: i64) -> Result<()> {
        let count = "UPDATE counter SET value = value + ?1 WHERE name = 'deleted'";
        self.run(self.connection.execute(count, [deletions])).map(drop)
    }

    /// What the transaction has put finds room in the log, and with all of the log in the store.
    fn has_room(&self, committed: u64) -> Result<()> {
        let log = self.put + self.put / 16 + PAGES;
        // To sweep takes some.
        let spare = self.put.min(SPARE) + committed / 32;
        if self.free() < log + self.to_fold()? + spare {
            return Err(SessionError::Full(self.path()));
        }
        Ok(())
    }

    /// Bytes that are free on the disk.
    fn free(&self) -> u64 {
        let Ok(found) = rustix::fs::statvfs(&self.directory) else { return u64::MAX };
        let root = rustix::process::geteuid().is_root();
        let blocks = if root { found.f_bfree } else { found.f_bavail };
        blocks.saturating_mul(found.f_frsize)
    }

    /// The write-ahead log.
    fn log(&self) -> PathBuf {
        self.directory.join("store.db-wal")
    }

    /// How long it is: SQLite begins it anew only where all of it is in the store.
    pub(super) fn log_length(&self) -> u64 {
        self.log().metadata().map_or(0, |found| found.len())
    }

    /// How much the store will grow when the log is taken into it.
    fn to_fold(&self) -> Result<u64> {
        let pages = self.pragma("page_count")?.saturating_mul(self.pragma("page_size")?);
        let length = self.path().metadata().map_or(0, |found| found.len());
        Ok(pages.saturating_sub(length))
    }

    fn pragma(&self, name: &str) -> Result<u64> {
        let value = self
            .connection
            .prepare_cached(&format!("PRAGMA {name}"))
            .and_then(|mut statement| statement.query_row([], |row| row.get::<_, i64>(0)));
        self.run(value).map(|value| value.max(0) as u64)
    }

    /// Gives back what a transaction took that found no room: what it had put into the log stays there else, for good, and
    /// nobody has any room.
    pub(super) fn give_back(&self) {
        let log = std::fs::File::options().write(true).open(self.log());
        let longer =
            |file: &std::fs::File| file.metadata().is_ok_and(|found| found.len() > self.logged);
        // It was undone, and the store's lock is held: behind this length nothing counts.
        if let Some(log) = log.ok().filter(longer) {
            let _ = log.set_len(self.logged);
        }
        let _ = self.fold();
    }

    /// Takes the log into the store, and empties it. Where there is no room for that nothing is done: what room there is
    /// would be gone.
    pub(super) fn fold(&self) -> Result<()> {
        if self.free() < self.to_fold()? {
            return Err(SessionError::Full(self.path()));
        }
        let fold = "PRAGMA wal_checkpoint(TRUNCATE)";
        self.run(self.connection.query_row(fold, [], |_| Ok(())))
    }

    /// Takes a long log into the store.
    pub(super) fn shorten(&self) {
        if self.log_length() > LOG {
            let _ = self.fold();
        }
    }

    /// Gives free pages back to the file system; those that are moved for it are in the log first.
    pub(super) fn shrink(&self) -> Result<()> {
        let size = self.pragma("page_size")?.max(1);
        let mut left = u64::MAX;
        loop {
            let pages = size_of_batch(self.free()) / size;
            let vacuum = format!("PRAGMA incremental_vacuum({})", pages.max(1));
            let done = self.connection.prepare(&vacuum).and_then(|mut statement| {
                statement.query_map([], |_| Ok(()))?.collect::<rusqlite::Result<()>>()
            });
            self.run(done)?;
            // Where the log has more than the store has room for, that becomes less with each step.
            let folded = self.fold();
            let now = self.pragma("freelist_count")?;
            if now == 0 || now >= left {
                return folded;
            }
            left = now;
        }
    }
}

fn size_of_batch(free: u64) -> u64 {
    (free / PART).clamp(*BATCH.start(), *BATCH.end())
}
