//! Names that another run has removed, and puts back at its end. Until then no mount holds them, as they were not there
//! when the view was planned; what is made there meanwhile is the program's.

use super::saved::{CAREFULLY, Saved};
use super::vigil::{BLIND, Vigil};
use super::{Guarding, keep};
use ringfence_sys as sys;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

impl Guarding {
    /// The name that a path is, or is in, if another run is to put it back yet.
    pub(super) fn awaits(&self, path: &Path) -> Option<PathBuf> {
        self.awaited.borrow().iter().find(|name| path.starts_with(name)).cloned()
    }

    /// Whether what was there is there again, and nobody can write it any more but by its name.
    fn is_put_back(&self, name: &Path, now: &Saved) -> bool {
        let same = self.steps.iter().any(|(step, saved)| step.path == name && saved == now);
        let file = || fs::OpenOptions::new().read(true).custom_flags(CAREFULLY).open(name).ok();
        let written = || sys::file::has_writers(file()?.as_fd());
        same && (!matches!(now, Saved::File { .. }) || written() != Some(true))
    }
}

impl Vigil<'_> {
    /// Something is at such a name: who puts it back is given a moment.
    pub(super) fn wait_for(&mut self, name: PathBuf) {
        self.later.entry(name).or_insert_with(|| Instant::now() + BLIND);
    }

    /// Judges what had its moment: it is the user's again, which a mount holds by now, or is taken away.
    pub(super) fn settle(&mut self) {
        let now = Instant::now();
        let due: Vec<PathBuf> =
            self.later.iter().filter(|(_, at)| **at <= now).map(|(name, _)| name.clone()).collect();
        for name in due {
            self.later.remove(&name);
            let there = keep(&name).unwrap_or(Saved::Unknown);
            if self.guarding.is_put_back(&name, &there) {
                self.guarding.awaited.borrow_mut().remove(&name);
            } else if there != Saved::Nothing {
                self.take(&name);
            }
        }
    }
}
