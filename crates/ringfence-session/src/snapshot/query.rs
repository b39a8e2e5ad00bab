//! Reading: lists, files, and the history of a path.

use super::Store;
use super::beneath::{self, join, shown, split};
use super::compare::What;
use super::content;
use super::entry::{Entry, Kind};
use super::record::Snapshot;
use crate::error::{Result, SessionError};
use rustix::fd::AsFd;
use rustix::fs::FileType;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A path as one snapshot has it, where it differs from the snapshot before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// What had happened to the path.
    pub what: What,
    /// The path there, unless it was deleted.
    pub entry: Option<Entry>,
}

impl Store {
    /// All snapshots, oldest first.
    ///
    /// # Errors
    /// The store is damaged.
    pub fn list(&self) -> Result<Vec<Snapshot>> {
        self.database.snapshots()
    }

    /// A snapshot by its name or number; `latest` is the last one somebody asked for.
    ///
    /// # Errors
    /// There is none; the message lists those there are.
    pub fn find(&self, label: &str) -> Result<Snapshot> {
        let all = self.list()?;
        let automatic = super::Origin::BeforeRevert;
        let found = match label {
            "latest" => all.iter().rev().find(|s| s.origin != automatic),
            _ => all.iter().find(|s| s.name.as_deref() == Some(label) || s.id.to_string() == label),
        };
        if let Some(found) = found {
            return Ok(found.clone());
        }
        let labels: Vec<String> = all.iter().rev().take(8).map(Snapshot::label).collect();
        let workspace = self.workspace.display();
        Err(SessionError::usage(match labels.len() {
            0 => format!(
                "there are no snapshots of {workspace}; make one: ringfence snapshot create"
            ),
            _ => format!(
                "there is no snapshot {label} of {workspace}; there are: {}",
                labels.join(", ")
            ),
        }))
    }

    /// Everything in a snapshot, parents first.
    ///
    /// # Errors
    /// The store is damaged.
    pub fn entries(&self, snapshot: &Snapshot) -> Result<Vec<(PathBuf, Entry)>> {
        let mut all = Vec::new();
        let mut pending = vec![(Vec::new(), snapshot.root)];
        while let Some((path, hash)) = pending.pop() {
            for entry in self.database.tree(&hash)? {
                let below = join(&path, &entry.name);
                if entry.kind == Kind::Directory {
                    pending.push((below.clone(), entry.hash));
                }
                all.push((shown(&below), entry));
            }
        }
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(all)
    }

    /// One path of a snapshot, relative to the workspace.
    ///
    /// # Errors
    /// The store is damaged.
    pub fn entry(&self, snapshot: &Snapshot, path: &Path) -> Result<Option<Entry>> {
        let mut hash = snapshot.root;
        let mut found: Option<Entry> = None;
        for name in path {
            if found.as_ref().is_some_and(|entry| entry.kind != Kind::Directory) {
                return Ok(None);
            }
            let tree = self.database.tree(&hash)?;
            let Ok(at) = tree.binary_search_by(|entry| entry.name[..].cmp(name.as_bytes())) else {
                return Ok(None);
            };
            hash = tree[at].hash;
            found = Some(tree[at].clone());
        }
        Ok(found)
    }

    /// The bytes of a stored file, or the target of a stored link; `None` beyond `limit` bytes.
    ///
    /// # Errors
    /// The store is damaged.
    pub fn read(&self, entry: &Entry, limit: u64) -> Result<Option<Vec<u8>>> {
        match entry.kind {
            Kind::File | Kind::Symlink => content::whole(&self.database, entry, limit),
            _ => Ok(None),
        }
    }

    /// The bytes of a file in the workspace, never through a link; `None` beyond `limit` bytes.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read_current(&self, path: &Path, limit: u64) -> Result<Option<Vec<u8>>> {
        let (directory, name) = split(path.as_os_str().as_bytes());
        let failed = |error| SessionError::call("open", &self.workspace.join(path), error);
        let directory = beneath::open_directory(self.root.as_fd(), directory).map_err(failed)?;
        if let Ok(target) = rustix::fs::readlinkat(&directory, name, Vec::new()) {
            return Ok(Some(target.into_bytes()));
        }
        let file = beneath::open_file(&directory, name).map_err(failed)?;
        let found = beneath::stat(&file, b"").map_err(failed)?;
        if found.file_type != FileType::RegularFile || found.stamp.size > limit {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        let mut file = std::fs::File::from(file).take(limit);
        file.read_to_end(&mut bytes)
            .map(|_| Some(bytes))
            .map_err(|error| SessionError::call("read", &self.workspace.join(path), error))
    }

    /// What happened to a path from snapshot to snapshot, oldest first.
    ///
    /// # Errors
    /// The store is damaged.
    pub fn history(&self, path: &Path) -> Result<Vec<Version>> {
        self.history_among(self.list()?, path)
    }

    /// The same from one to the next of these snapshots.
    ///
    /// # Errors
    /// The store is damaged.
    pub fn history_among(&self, snapshots: Vec<Snapshot>, path: &Path) -> Result<Vec<Version>> {
        let mut versions = Vec::new();
        let mut before: Option<Entry> = None;
        for snapshot in snapshots {
            let entry = self.entry(&snapshot, path)?;
            let what = match (&before, &entry) {
                (None, None) => None,
                (None, Some(_)) => Some(What::Added),
                (Some(_), None) => Some(What::Deleted),
                (Some(old), Some(new)) if old.kind != new.kind => Some(What::Kind),
                (Some(old), Some(new)) if !old.same_content(new) => Some(What::Modified),
                (Some(old), Some(new)) => (!old.same(new)).then_some(What::Attributes),
            };
            if let Some(what) = what {
                versions.push(Version { snapshot, what, entry: entry.clone() });
            }
            before = entry;
        }
        Ok(versions)
    }
}
