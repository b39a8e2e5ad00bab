//! What is kept, and giving space back.
//!
//! Deleting a snapshot removes its row; the objects that only it used are swept later, together
//! (by `compact`, or after some deletions by the next `create`), so that deleting costs the same
//! however large the snapshot is.

use super::content::{CHUNK, read_list};
use super::database::Database;
use super::entry::{Entry, Hash, Kind, read_cache, write_cache, write_tree};
use super::record::{Origin, Snapshot};
use super::{New, Store, fault};
use crate::error::{Result, SessionError};
use rusqlite::params;
use std::collections::{BTreeMap, HashSet};

/// After so many deletions a `create` sweeps.
pub(super) const SWEEP_AFTER: i64 = 16;

/// So many automatic snapshots of a kind are kept, however large: who fills the workspace must not push out what it was.
const FEWEST: usize = 3;

/// What compacting did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compacted {
    /// The merged snapshot, where some were merged.
    pub snapshot: Option<Snapshot>,
    /// Bytes of the store before.
    pub before: u64,
    /// Bytes of the store after.
    pub after: u64,
}

impl Store {
    /// Deletes a snapshot.
    ///
    /// # Errors
    /// An interrupted revert needs it.
    pub fn delete(&mut self, snapshot: &Snapshot) -> Result<()> {
        let _lock = self.lock()?;
        let needed = self.database.pending()?.map(|pending| [pending.snapshot, pending.before]);
        if needed.is_some_and(|needed| needed.contains(&snapshot.id)) {
            return Err(SessionError::usage(format!(
                "snapshot {} is needed to finish an interrupted revert; first \
                 `ringfence snapshot revert --resume` or `--abandon`",
                snapshot.label()
            )));
        }
        self.with_room(|store| store.transaction(|store| store.database.delete(snapshot.id)))
    }

    /// Does what gives space back. It takes some first; on a full disk that may be what the log holds.
    fn with_room<T>(&mut self, mut act: impl FnMut(&mut Store) -> Result<T>) -> Result<T> {
        let done = match act(self) {
            Err(SessionError::Full(_)) if self.database.fold().is_ok() => act(self),
            done => done,
        };
        let limited = self.options.limit.is_some() || self.options.growth.is_some();
        done.map_err(|error| match error {
            SessionError::Full(path) if !limited => SessionError::usage(format!(
                "no space is left for {}, not even for the little that it takes to give some back: \
                 remove something else first, then do the same again",
                path.display()
            )),
            error => error,
        })
    }

    /// Merges snapshots into one (for each path the newest that has it), then gives back all
    /// space that no snapshot needs.
    ///
    /// # Errors
    /// The disk is full; the name is taken.
    pub fn compact(&mut self, merge: &[Snapshot], name: Option<&str>) -> Result<Compacted> {
        if let Some(name) = name {
            super::record::check_name(name)?;
        }
        let _lock = self.lock()?;
        if self.database.pending()?.is_some() && !merge.is_empty() {
            return Err(SessionError::usage(
                "a revert was interrupted; first `ringfence snapshot revert --resume` or `--abandon`",
            ));
        }
        let before = self.database.bytes();
        let mut snapshot = None;
        if let [_, _, ..] = merge {
            let mut merge = merge.to_vec();
            merge.sort_by_key(|snapshot| snapshot.id);
            snapshot = Some(self.transaction(|store| store.merge(&merge, name))?);
        }
        self.with_room(|store| store.database.sweep())?;
        self.with_room(|store| store.database.shrink())?;
        Ok(Compacted { snapshot, before, after: self.database.bytes() })
    }

    fn merge(&mut self, merge: &[Snapshot], name: Option<&str>) -> Result<Snapshot> {
        let roots: Vec<Hash> = merge.iter().map(|snapshot| snapshot.root).collect();
        let mut scan = super::Scan { root: self.database.merge(&roots)?, ..Default::default() };
        let newest = &merge[merge.len() - 1];
        let (mut directories, mut pending) = (0, vec![scan.root]);
        while let Some(tree) = pending.pop() {
            directories += 1;
            for entry in self.database.tree(&tree)? {
                match entry.kind {
                    Kind::Directory => pending.push(entry.hash),
                    Kind::File => scan.files += 1,
                    _ => {}
                }
                scan.links += u64::from(entry.link.is_some());
                scan.bytes = scan.bytes.saturating_add(entry.size);
            }
        }
        let mut except = Vec::new();
        for snapshot in merge {
            except.extend(self.database.excepted(snapshot)?);
            self.database.delete(snapshot.id)?;
        }
        // What was not a session's to change is not the user's own by being merged; nor is it that session's.
        let session = (!except.is_empty()).then(|| format!("merged-{}", newest.id));
        if let Some(session) = &session {
            self.database.note_excepted(session, &except)?;
        }
        self.database.name_is_free(name)?;
        let name = name.map(ToOwned::to_owned).or_else(|| newest.name.clone());
        let new = New { name, ignored: newest.ignored, session, ..New::default() };
        let made = self.database.record(&new, &scan)?;
        let set = self.database.connection.execute(
            "UPDATE snapshot SET directories = ?1 WHERE id = ?2",
            params![directories, made.id],
        );
        self.database.run(set)?;
        self.database.by_id(made.id)
    }
}

impl Database {
    pub(super) fn delete(&self, id: i64) -> Result<()> {
        self.run(self.connection.execute("DELETE FROM snapshot WHERE id = ?1", [id]))?;
        let count = "UPDATE counter SET value = value + 1 WHERE name = 'deleted'";
        self.run(self.connection.execute(count, [])).map(drop)
    }

    /// Deletions since the last sweep.
    pub(super) fn deleted(&self) -> Result<i64> {
        let count = "SELECT value FROM counter WHERE name = 'deleted'";
        self.run(self.connection.query_row(count, [], |row| row.get(0)))
    }

    /// Deletes the oldest automatic snapshots of each kind beyond a number, and those beyond so many bytes that they added
    /// to the store: what sessions reverted by themselves pushes nothing out that was reverted from outside. Whether
    /// some were too large.
    ///
    /// A snapshot that another one deleted has made the oldest needs some of what that one added: so these bytes are what
    /// all but one state takes.
    pub(super) fn retain(&self, keep: usize, most: u64) -> Result<bool> {
        let mut large = false;
        let pending = self.pending()?;
        let all = self.snapshots()?;
        let outside = |s: &Snapshot| s.origin == Origin::Start || s.session.is_none();
        for (origin, from_outside) in
            [(Origin::Start, true), (Origin::BeforeRevert, true), (Origin::BeforeRevert, false)]
        {
            let of_kind = all.iter().filter(|s| s.origin == origin && s.name.is_none());
            let of_kind: Vec<&Snapshot> = of_kind.filter(|s| outside(s) == from_outside).collect();
            let many = of_kind.len().saturating_sub(keep);
            let mut bytes = 0_u64;
            let fits = |s: &&&Snapshot| {
                bytes = bytes.saturating_add(s.added);
                bytes <= most
            };
            let few = of_kind.iter().rev().take_while(fits).count().max(FEWEST);
            let beyond = of_kind.len().saturating_sub(few);
            for old in &of_kind[..many.max(beyond)] {
                let needed = |p: &super::Pending| [p.snapshot, p.before].contains(&old.id);
                if !pending.as_ref().is_some_and(needed) {
                    self.delete(old.id)?;
                    large |= beyond > many;
                }
            }
        }
        Ok(large)
    }

    /// The newest of each path of some trees, oldest first, as a tree.
    fn merge(&mut self, trees: &[Hash]) -> Result<Hash> {
        let Some((first, rest)) = trees.split_first() else { return Ok(super::entry::NONE) };
        if rest.iter().all(|tree| tree == first) {
            return Ok(*first);
        }
        let mut names: BTreeMap<Vec<u8>, Vec<Entry>> = BTreeMap::new();
        for tree in trees {
            for entry in self.tree(tree)? {
                names.entry(entry.name.clone()).or_default().push(entry);
            }
        }
        let mut merged = Vec::with_capacity(names.len());
        for all in names.into_values() {
            let Some(mut newest) = all.last().cloned() else { continue };
            if newest.kind == Kind::Directory {
                let below: Vec<Hash> =
                    all.iter().filter(|e| e.kind == Kind::Directory).map(|e| e.hash).collect();
                newest.hash = self.merge(&below)?;
            }
            merged.push(newest);
        }
        let bytes = write_tree(&merged.iter().collect::<Vec<_>>());
        let hash = *blake3::hash(&bytes).as_bytes();
        self.put(&hash, &bytes)?;
        Ok(hash)
    }

    /// Everything that some snapshot needs.
    fn needed(&self) -> Result<HashSet<Hash>> {
        let mut needed = HashSet::new();
        let mut pending: Vec<Hash> = self.snapshots()?.iter().map(|s| s.root).collect();
        while let Some(tree) = pending.pop() {
            if !needed.insert(tree) {
                continue;
            }
            for entry in self.tree(&tree)? {
                needed.extend(entry.xattrs);
                match entry.kind {
                    Kind::Directory => pending.push(entry.hash),
                    Kind::File if entry.size > CHUNK && needed.insert(entry.hash) => {
                        let (list, _) = self.get(&entry.hash)?;
                        let (_, chunks) = read_list(&list)
                            .ok_or_else(|| self.corrupt("a chunk list is unreadable"))?;
                        needed.extend(chunks.into_iter().map(|(_, hash)| hash));
                    }
                    _ => {
                        needed.insert(entry.hash);
                    }
                }
            }
        }
        Ok(needed)
    }

    /// Removes what no snapshot needs.
    pub(super) fn sweep(&mut self) -> Result<()> {
        let needed = self.transaction(|database| {
            let needed = database.needed()?;
            let all: rusqlite::Result<Vec<(i64, Hash)>> = database
                .connection
                .prepare("SELECT id, hash FROM object")
                .and_then(|mut statement| {
                    statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
                });
            for (id, _) in database.run(all)?.iter().filter(|(_, hash)| !needed.contains(hash)) {
                let done = database
                    .connection
                    .prepare_cached("DELETE FROM object WHERE id = ?1")
                    .and_then(|mut statement| statement.execute([id]));
                database.run(done)?;
            }
            database.forget(&needed)?;
            fault::point("sweep");
            let reset = "UPDATE counter SET value = 0 WHERE name = 'deleted'";
            database.run(database.connection.execute(reset, []))?;
            Ok(needed)
        })?;
        // Clones go when nothing names them any more, those of a killed `create` too.
        let clones = std::fs::read_dir(self.directory.join("clones"));
        let needed: HashSet<String> = match &clones {
            Ok(_) => needed.iter().map(super::database::hex).collect(),
            Err(_) => return Ok(()),
        };
        for clone in clones.into_iter().flatten().flatten() {
            if !clone.file_name().to_str().is_some_and(|name| needed.contains(name)) {
                let _ = std::fs::remove_file(clone.path());
            }
        }
        Ok(())
    }

    /// The stat cache may only name what is stored.
    fn forget(&mut self, needed: &HashSet<Hash>) -> Result<()> {
        let all: rusqlite::Result<Vec<(Vec<u8>, Vec<u8>)>> =
            self.connection.prepare("SELECT path, seen FROM cache").and_then(|mut statement| {
                statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
            });
        for (path, seen) in self.run(all)? {
            let mut kept = read_cache(&seen).unwrap_or_default();
            kept.retain(|seen| {
                let bytes = matches!(seen.entry.kind, Kind::File | Kind::Symlink);
                (!bytes || needed.contains(&seen.entry.hash))
                    && seen.entry.xattrs.is_none_or(|hash| needed.contains(&hash))
            });
            let new = write_cache(&kept);
            if kept.is_empty() {
                let done = self.connection.execute("DELETE FROM cache WHERE path = ?1", [path]);
                self.run(done)?;
            } else if new != seen {
                self.set_cached(&path, &new)?;
            }
        }
        Ok(())
    }

    /// Bytes on disk.
    pub(super) fn bytes(&self) -> u64 {
        let mut total = 0;
        for directory in [self.directory.clone(), self.directory.join("clones")] {
            for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
                let found = entry.metadata().ok().filter(std::fs::Metadata::is_file);
                total += found.map_or(0, |found| found.len());
            }
        }
        total
    }
}
