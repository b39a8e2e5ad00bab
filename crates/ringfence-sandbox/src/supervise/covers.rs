//! The launcher sees to it that mounts on names of the host's stay ([`crate::cover`]).

use super::{SIGKILL, Watch};
use crate::cover::Cover;
use crate::cover::watch::{self, Watch as Names};
use crate::plan::Tier;
use ringfence_policy::shown;
use ringfence_sys as sys;
use std::collections::{BTreeSet, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

/// Sentences at most.
const SAID: usize = 64;

/// What is known of them.
#[derive(Default)]
pub(super) struct Covers {
    /// The command runs for long enough.
    due: bool,
    names: Option<Names>,
    /// What the warden was told to make again, and has not answered yet.
    asked: VecDeque<PathBuf>,
    /// What it has made again.
    made: BTreeSet<PathBuf>,
}

impl Covers {
    /// From now on they are to be watched.
    pub fn due(&mut self) {
        self.due = true;
    }

    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.names.as_ref().map(Names::descriptor)
    }

    /// A sentence for each that was made again.
    pub fn said(&self) -> impl Iterator<Item = String> {
        self.made.iter().take(SAID).map(|path| {
            let path = shown::path(path);
            format!("{path} was replaced outside while the command ran: its rule holds for what is there now, but some milliseconds passed in between")
        })
    }
}

impl Watch<'_, '_> {
    /// Watches from now on, and looks whether all are there; not before the command executes, when the view is
    /// whole, and a message is not taken for our end any more.
    pub(super) fn begin_covers(&mut self) {
        let begun = self.covers.names.is_some();
        if self.covers.due && self.executes && !begun && self.child.tier == Tier::Namespace {
            self.covers.names = Names::begin((self.duties.covers)(), self.child.pid);
            let gone = self.covers.names.as_ref().map(Names::gone);
            self.cover_again(gone.unwrap_or_default());
        }
    }

    /// Looks at what happened to them.
    pub(super) fn serve_covers(&mut self) {
        let gone = self.covers.names.as_mut().map(Names::serve);
        self.cover_again(gone.unwrap_or_default());
    }

    fn cover_again(&mut self, gone: Vec<Cover>) {
        if gone.is_empty() {
            return;
        }
        for cover in gone {
            let told = sys::fd::send(self.child.control.as_fd(), &watch::message(&cover));
            if told.is_err() {
                self.send(SIGKILL);
            }
            self.covers.asked.push_back(cover.path);
        }
        // A simple warden reads nothing, it waits for signals.
        self.send(sys::image::SERVICE);
    }

    /// The warden's answer.
    pub(super) fn covered(&mut self, message: &[u8]) {
        let Some(path) = self.covers.asked.pop_front() else { return };
        let errno = message.get(1..5).and_then(|bytes| bytes.try_into().ok());
        match errno.map(i32::from_ne_bytes) {
            Some(0) => drop(self.covers.made.insert(path)),
            errno => {
                // Open to who is inside, and not to be closed: nothing may go on there.
                let why = sys::describe(sys::Errno::new(errno.unwrap_or_default()));
                let path = shown::path(&path);
                self.outcome.limits_hit.push(format!(
                    "{path} was replaced outside while the command ran, and its rule cannot be carried out again ({why}): ended"
                ));
                self.send(SIGKILL);
            }
        }
    }
}
