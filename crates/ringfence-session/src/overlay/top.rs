//! The top of a tree. Inside it is the layer's own directory: the kernel shows that one's mode, owner and attributes there,
//! not the real one's. So it is made as the real one is, and what the run made of it is a change as of any other directory.

use super::layer::{Change, Layer, attributes, meanwhile};
use super::record::Tree;
use crate::snapshot::What;
use crate::snapshot::beneath::{self, Found};
use crate::snapshot::content::{self, Attributes};
use crate::snapshot::entry::Kind;
use rustix::fd::OwnedFd;
use rustix::fs::{Gid, Mode, Timespec, Timestamps, XattrFlags};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What the layer's directory had when the run began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Top {
    mode: u32,
    owner: (u32, u32),
    attributes: Attributes,
}

/// Makes a layer's directory as the real one is, as far as we may: others cannot get to it, whatever its mode, as they are
/// kept out further up. None: it is the top of no tree inside, or of one that keeps us out ourselves.
pub(super) fn make(tree: &Tree, upper: &Path) -> Option<Top> {
    if !tree.directory {
        return None;
    }
    let real = tree.open().ok()?;
    let layer = beneath::open_root(upper).ok()?;
    let (found, now) = (beneath::stat(&real, b"").ok()?.stamp, beneath::stat(&layer, b"").ok()?);
    let (wanted, have) = (attributes(&real), attributes(&layer));
    // The user of another number has no name inside, and nothing could be put into what is theirs.
    if found.gid != now.stamp.gid {
        let _ = rustix::fs::fchown(&layer, None, Some(Gid::from_raw(found.gid)));
    }
    let mut mode = found.mode;
    if found.uid != now.stamp.uid {
        mode |= 0o700;
    }
    // Where the session lies a list may be that all new ones get.
    for (name, _) in have.iter().filter(|(name, _)| !wanted.iter().any(|(other, _)| other == name))
    {
        let _ = rustix::fs::fremovexattr(&layer, &name[..]);
    }
    for (name, value) in content::lists_last(&wanted).filter(|pair| !have.contains(pair)) {
        if rustix::fs::fsetxattr(&layer, &name[..], value, XattrFlags::empty()).is_err() {
            mode = content::without_list(mode, name);
        }
    }
    let _ = rustix::fs::fchmod(&layer, Mode::from_raw_mode(mode));
    let _ = rustix::fs::futimens(&layer, &modified(found.modified));
    Some(Top::of(&layer, &beneath::stat(&layer, b"").ok()?))
}

fn modified(time: i64) -> Timestamps {
    const SECOND: i64 = 1_000_000_000;
    let time = Timespec { tv_sec: time.div_euclid(SECOND), tv_nsec: time.rem_euclid(SECOND) };
    Timestamps { last_access: time, last_modification: time }
}

impl Top {
    fn of(directory: &OwnedFd, found: &Found) -> Top {
        let Found { stamp, .. } = found;
        let owner = (stamp.uid, stamp.gid);
        Top { mode: stamp.mode, owner, attributes: attributes(directory) }
    }

    /// The run made another one of it. What cannot be looked at counts as one.
    pub(super) fn is_changed(&self, upper: &OwnedFd) -> bool {
        beneath::stat(upper, b"").map_or(true, |found| Top::of(upper, &found) != *self)
    }

    /// What is to be told of it; nothing where the real one is the same by now.
    pub(super) fn change(&self, layer: &Layer<'_>) -> Option<Change> {
        let (new, old) = (stat(layer.upper)?, stat(layer.lower)?);
        let (is, was) = (Top::of(layer.upper, &new), Top::of(layer.lower, &old));
        let plain = |top: &Top| (top.mode, top.attributes.clone());
        let same = plain(&is) == plain(&was) && (is.owner == self.owner || is.owner == was.owner);
        if is == *self || same {
            return None;
        }
        // Which of the two changed it nobody could tell afterwards.
        let conflict = layer.later(b"", &old) && plain(&was) != plain(self);
        Some(Change {
            path: Vec::new(),
            what: What::Attributes,
            kind: Kind::Directory,
            size: 0,
            trouble: conflict.then(meanwhile),
            before: Some(old.stamp),
            directory_before: true,
            early: false,
            anew: None,
        })
    }

    /// What a commit gives the real one, of what the layer's has: what could not be given to that in the beginning is not
    /// taken from the real one.
    pub(super) fn given(
        &self,
        (layer, real): ((u32, u32), (u32, u32)),
        (new, old): (Attributes, &Attributes),
    ) -> ((u32, u32), Attributes) {
        let owner = if layer == self.owner { real } else { layer };
        (owner, if new == self.attributes { old.clone() } else { new })
    }
}

fn stat(directory: &OwnedFd) -> Option<Found> {
    beneath::stat(directory, b"").ok()
}
