//! What was not a session's to change, and may be in its snapshots all the same: a name that programs outside run
//! by themselves (`.envrc`, hooks) is taken away from where a command made it, at the end of its run at the
//! latest, and a snapshot that was made before still has it. Who reverts to that snapshot from outside would put it back,
//! so a store notes these paths with the session, and leaves them out of such a revert.

use super::compare::{Change, Select};
use super::database::Database;
use super::entry::{Entry, Kind};
use super::record::{Origin, Snapshot};
use super::{beneath, content};
use crate::error::Result;
use crate::judged::{Item, Judge, Names, Source};
use ringfence_policy::gitread::LONGEST_PATH;
use rusqlite::{OptionalExtension, params};
use rustix::fd::{AsFd, OwnedFd};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

impl Database {
    /// Notes what is not a session's to change.
    pub(super) fn note_excepted(&self, session: &str, except: &[PathBuf]) -> Result<()> {
        let paths: Vec<&[u8]> = except.iter().map(|path| path.as_os_str().as_bytes()).collect();
        // Stores of earlier versions have no such table.
        let make =
            "CREATE TABLE IF NOT EXISTS excepted (session TEXT PRIMARY KEY, paths BLOB NOT NULL)";
        self.run(self.connection.execute(make, []))?;
        let done = self
            .connection
            .prepare_cached("INSERT OR IGNORE INTO excepted VALUES (?1, ?2)")
            .and_then(|mut statement| statement.execute(params![session, paths.join(&0)]));
        self.run(done).map(drop)
    }

    /// What was not to be changed by who made a snapshot; as [`Select::except`] has it.
    pub(super) fn excepted(&self, snapshot: &Snapshot) -> Result<Vec<PathBuf>> {
        let inside = snapshot.origin != Origin::Start;
        let Some(session) = snapshot.session.as_ref().filter(|_| inside) else {
            return Ok(Vec::new());
        };
        let known = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'excepted'";
        let known = self.connection.prepare_cached(known).and_then(|mut known| known.exists([]));
        if !self.run(known)? {
            return Ok(Vec::new());
        }
        let paths = self
            .connection
            .query_row("SELECT paths FROM excepted WHERE session = ?1", [session], |row| {
                row.get::<_, Vec<u8>>(0)
            })
            .optional();
        let paths = self.run(paths)?.unwrap_or_default();
        let paths = paths.split(|&byte| byte == 0).filter(|path| !path.is_empty());
        Ok(paths.map(|path| PathBuf::from(OsStr::from_bytes(path))).collect())
    }
}

/// A selection without what is held back, but for what it names itself.
pub(super) fn without(select: &Select, held: &[PathBuf]) -> Select {
    let named = |path: &&PathBuf| {
        let held = Select { only: Vec::new(), except: vec![PathBuf::from(path)] };
        select.only.iter().any(|only| held.excepts(only))
    };
    let mut except = select.except.clone();
    except.extend(held.iter().filter(|path| !named(path)).cloned());
    Select { only: select.only.clone(), except }
}

/// Takes the changes out that a selection does not have any more, and says so of each.
pub(super) fn hold_back(changes: &mut Vec<Change>, select: &Select) -> Vec<String> {
    let mut held = Vec::new();
    changes.retain(|change| {
        // A directory above what is chosen is no part of the choice, and comes back with it.
        let takes = !select.excepts(&change.path);
        if !takes {
            held.push(sentence(&change.path));
        }
        takes
    });
    held
}

/// Takes the changes out by which something would be run that the names alone do not tell of (a repository that is
/// called something else, a link to where a name is looked for), and says so of each. What `named` has stays: the
/// user's word, outside.
pub(super) fn judge(
    database: &Database,
    (path, root): (&Path, &OwnedFd),
    names: &Names,
    named: Option<&[PathBuf]>,
    changes: &mut Vec<Change>,
) -> Result<Vec<String>> {
    let kind = |entry: &Option<Entry>| entry.as_ref().map(|entry| entry.kind);
    let mut items = Vec::with_capacity(changes.len());
    for Change { path, old, new, .. } in &*changes {
        // It goes back from the newer state to the older one.
        items.push(Item { path: path.as_os_str().as_bytes(), kind: kind(old), was: kind(new) });
    }
    let source = Stored { database, changes };
    let judge = Judge::new((path, root.as_fd()), names, &items, &source);
    let mut all = vec![None; items.len()];
    judge.judge(&mut all)?;
    let (mut all, mut said) = (all.into_iter(), Vec::new());
    changes.retain(|change| {
        let Some(held) = all.next().flatten() else { return true };
        let protected = &change.path.as_os_str().as_bytes()[..held.protected];
        let is_named = |named: &[PathBuf]| {
            named.iter().any(|path| path.starts_with(beneath::shown(protected)))
        };
        let stays = named.is_some_and(is_named);
        if !stays {
            let remedy = if named.is_some() { "; name it to have it reverted" } else { "" };
            said.push(format!("{}: {}{remedy}", change.path.display(), held.why));
        }
        stays
    });
    Ok(said)
}

/// What a snapshot has, by the number of the change.
struct Stored<'a> {
    database: &'a Database,
    changes: &'a [Change],
}

impl Stored<'_> {
    fn of(&self, number: usize, kind: Kind, most: u64) -> Result<Option<Vec<u8>>> {
        let entry = self.changes[number].old.as_ref().filter(|entry| entry.kind == kind);
        entry.map_or(Ok(None), |entry| content::whole(self.database, entry, most))
    }
}

impl Source for Stored<'_> {
    fn bytes(&self, number: usize, most: u64) -> Result<Option<Vec<u8>>> {
        self.of(number, Kind::File, most)
    }

    fn target(&self, number: usize) -> Result<Option<Vec<u8>>> {
        self.of(number, Kind::Symlink, LONGEST_PATH as u64)
    }
}

fn sentence(path: &Path) -> String {
    format!(
        "{}: the session that made the snapshot was not to change it; name it to have it reverted",
        path.display()
    )
}
