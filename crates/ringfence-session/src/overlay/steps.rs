//! From changes to the steps of a commit, and the journal that holds them.
//!
//! A journal is whole or not there, and is written before the first step. Each step knows what it
//! expects to find, so that doing all of them again finishes what was interrupted.

use super::layer::{Change, Layer};
use super::record::bytes;
use crate::error::{Result, SessionError};
use crate::snapshot::What;
use crate::snapshot::beneath::{self, shown, split};
use crate::snapshot::entry::{Kind, Stamp};
use crate::whole;
use rustix::fd::AsFd;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What a step does with its path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Act {
    /// Puts the layer's file or link there.
    Place,
    /// Makes it another name of a file that was placed.
    Link(#[serde(with = "bytes")] PathBuf),
    /// Makes a directory.
    Directory,
    /// Gives a directory its mode and attributes; a new one its time as well.
    Dress {
        /// It was made by this commit.
        new: bool,
    },
    /// Removes it.
    Remove,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Step {
    pub act: Act,
    #[serde(with = "bytes")]
    path: PathBuf,
    /// What is expected there.
    pub before: Option<Stamp>,
    /// What is removed is a directory.
    pub directory: bool,
    /// Permission bits.
    pub mode: u32,
}

impl Step {
    pub fn path(&self) -> &[u8] {
        self.path.as_os_str().as_bytes()
    }
}

/// All steps of a commit, one list for each tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Journal {
    schema: u32,
    pub trees: Vec<Vec<Step>>,
    /// Nothing is left when it is done.
    pub whole: bool,
}

impl Journal {
    pub fn new(trees: Vec<Vec<Step>>, whole: bool) -> Journal {
        Journal { schema: 1, trees, whole }
    }

    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_vec(self).map_err(std::io::Error::other);
        text.and_then(|text| whole::write(path, &text))
            .map_err(|error| SessionError::call("write", path, error))
    }

    pub fn read(path: &Path) -> Result<Option<Journal>> {
        let text = match std::fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(SessionError::call("read", path, error)),
        };
        let corrupt = |error: serde_json::Error| SessionError::Corrupt {
            path: path.to_owned(),
            what: error.to_string(),
        };
        serde_json::from_slice(&text).map(Some).map_err(corrupt)
    }
}

/// The steps of some changes. New things are made before old ones are removed, but for what
/// stands in their way, so that a full disk finds the old ones still there.
pub(super) fn of(layer: &Layer<'_>, changes: &[&Change]) -> Result<Vec<Step>> {
    let (mut way, mut make, mut remove, mut dress) = (vec![], vec![], vec![], vec![]);
    let mut linked: HashMap<(u64, u64), PathBuf> = HashMap::new();
    for change in changes {
        let path = shown(&change.path);
        let step = |act, before, directory, mode| Step {
            act,
            path: path.clone(),
            before,
            directory,
            mode,
        };
        if change.what == What::Deleted {
            let step = step(Act::Remove, change.before, change.directory_before, 0);
            if change.early {
                way.push(step)
            } else {
                remove.push(step)
            }
            continue;
        }
        let (parent, name) = split(&change.path);
        let failed = |error| super::layer::failed("statx", &change.path, error);
        let parent = beneath::open_directory(layer.upper.as_fd(), parent).map_err(failed)?;
        let new = beneath::stat(&parent, name).map_err(failed)?.stamp;
        let was_directory = change.before.filter(|_| change.directory_before);
        if change.kind == Kind::Directory {
            if change.what == What::Kind {
                way.push(step(Act::Remove, change.before, false, 0));
            }
            let made = change.what != What::Attributes;
            if made {
                make.push(step(Act::Directory, None, true, 0));
            }
            dress.push(step(Act::Dress { new: made }, None, true, new.mode));
            continue;
        }
        if was_directory.is_some() {
            way.push(step(Act::Remove, change.before, true, 0));
        }
        // Bits that lend the owner's rights come from nobody but the user.
        let before = change.before.filter(|_| !change.directory_before);
        let lent = before.map_or(0, |before| before.mode & 0o6000);
        let mode = new.mode & (0o1777 | lent);
        let act = match linked.get(&(new.device, new.inode)) {
            Some(first) => Act::Link(first.clone()),
            None => Act::Place,
        };
        if new.links > 1 && act == Act::Place {
            linked.insert((new.device, new.inode), path.clone());
        }
        make.push(step(act, before, false, mode));
    }
    // Changes come by path; what is in a directory goes before it.
    for backwards in [&mut way, &mut remove, &mut dress] {
        backwards.reverse();
    }
    way.extend(make);
    way.extend(remove);
    way.extend(dress);
    Ok(way)
}
