//! The launcher sees to it that mounts on names of the host's stay ([`crate::cover`]).

use super::{SIGKILL, Watch};
use crate::cover::Cover;
use crate::cover::watch::{self, Watch as Names};
use crate::guard::BLIND;
use crate::plan::Tier;
use ringfence_policy::shown;
use ringfence_sys as sys;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::Instant;

/// Sentences at most.
const SAID: usize = 64;

/// So many words to the warden wait for its answer at most: a simple one has to become one that reads, and a full
/// socket would hold us up.
const AT_ONCE: usize = 16;

/// Removed names that the warden is told at most, for the same reason.
const TOLD: usize = 64;

/// So often it may fail for one name.
const TRIES: usize = 8;

/// What is known of them.
#[derive(Default)]
pub(super) struct Covers {
    /// The command runs for long enough.
    due: bool,
    names: Option<Names>,
    /// When all are looked at next.
    look: Option<Instant>,
    /// What the warden is to make again.
    wanted: VecDeque<Cover>,
    /// What it was told to, and has not answered yet.
    asked: VecDeque<Cover>,
    /// How many removed names it was told.
    told: usize,
    /// What it has made again.
    made: BTreeSet<PathBuf>,
    /// What it could not make.
    failed: BTreeMap<PathBuf, usize>,
}

impl Covers {
    /// From now on they are to be watched.
    pub fn due(&mut self) {
        self.due = true;
    }

    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.names.as_ref().and_then(Names::descriptor)
    }

    /// When there is something to do by itself.
    pub fn next(&self) -> Option<Instant> {
        self.look.into_iter().chain(self.names.as_ref().and_then(Names::settles)).min()
    }

    /// A sentence for each that was made again, but for these.
    fn said(&self, left: &[PathBuf]) -> impl Iterator<Item = String> {
        let made = self.made.iter().filter(|path| !left.contains(path));
        made.take(SAID).map(|path| {
            let path = shown::path(path);
            format!("{path} was replaced outside while the command ran: its rule holds for what is there now, but some milliseconds passed in between, in which the command could write it, or make it where it was removed")
        })
    }
}

impl Watch<'_, '_> {
    /// Watches from now on, and looks whether all are there; not before the command executes, when the view is
    /// whole, and a message is not taken for our end any more.
    pub(super) fn begin_covers(&mut self) {
        let begun = self.covers.names.is_some();
        if self.covers.due && self.executes && !begun && self.child.tier == Tier::Namespace {
            self.covers.names =
                Names::begin((self.duties.covers)(), (self.duties.awaited)(), self.child.pid);
            self.look_at_covers();
        }
    }

    /// Those that lie open at the end: what came to their names came too late to be covered. Looked at before anything
    /// is put right, which moves names too.
    pub(super) fn left_open(&self) -> Vec<PathBuf> {
        if !self.executes || self.child.tier != Tier::Namespace {
            return Vec::new();
        }
        let exchanged = || {
            let names = self.covers.names.iter().flat_map(Names::exchanged);
            names.filter(|path| !self.covers.made.contains(path)).collect()
        };
        watch::left((self.duties.covers)(), self.child.pid).unwrap_or_else(exchanged)
    }

    /// A sentence for each name that was replaced outside. What was left open may have been put right since.
    pub(super) fn replaced(&mut self, left: &[PathBuf]) {
        let made = self.covers.said(left);
        let there = left.iter().filter(|path| path.symlink_metadata().is_ok());
        let late = there.take(SAID).map(|path| {
            let path = shown::path(path);
            format!("{path} was replaced outside just before the command ended, and its rule was not carried out again: the command could reach what is there now; look at what is in it")
        });
        self.outcome.restored.extend(made.chain(late));
    }

    /// Looks at those whose time it is.
    pub(super) fn covers_due(&mut self) {
        if self.covers.look.is_some_and(|look| Instant::now() >= look) {
            self.look_at_covers();
        }
        let gone = self.covers.names.as_mut().map(Names::settle).unwrap_or_default();
        self.cover_again(gone);
    }

    /// Looks at all of them.
    fn look_at_covers(&mut self) {
        let Some(names) = &mut self.covers.names else { return };
        self.covers.look = names.is_blind().then(|| Instant::now() + BLIND);
        let gone = names.gone();
        self.cover_again(gone);
    }

    /// Looks at what happened to them.
    pub(super) fn serve_covers(&mut self) {
        let Some(names) = &mut self.covers.names else { return };
        let gone = names.serve();
        if names.is_blind() && self.covers.look.is_none() {
            self.covers.look = Some(Instant::now() + BLIND);
        }
        self.cover_again(gone);
    }

    fn cover_again(&mut self, gone: Vec<Cover>) {
        let removed = self.covers.names.as_mut().map(Names::removed).unwrap_or_default();
        for (path, was) in removed {
            (self.duties.removed)(&path, was);
            if self.covers.told < TOLD {
                self.covers.told += 1;
                self.send(sys::image::SERVICE);
                let _ = sys::fd::send(self.child.control.as_fd(), &watch::removal(&path, was));
            }
            self.vigil.iter_mut().for_each(|vigil| vigil.also(&path));
        }
        for cover in gone {
            // One that was asked for may be replaced again since it was made.
            if !self.covers.wanted.iter().any(|known| known.path == cover.path) {
                self.covers.wanted.push_back(cover);
            }
        }
        self.ask_for_covers();
    }

    fn ask_for_covers(&mut self) {
        while self.covers.asked.len() < AT_ONCE
            && let Some(cover) = self.covers.wanted.pop_front()
        {
            // A simple warden reads nothing, it waits for signals.
            self.send(sys::image::SERVICE);
            match sys::fd::send(self.child.control.as_fd(), &watch::message(&cover)) {
                Ok(_) => self.covers.asked.push_back(cover),
                // It ends.
                Err(sys::Errno::EPIPE | sys::Errno::ECONNRESET) => return,
                Err(_) => return self.send(SIGKILL),
            }
        }
    }

    /// The warden's answer.
    pub(super) fn covered(&mut self, message: &[u8]) {
        let Some(cover) = self.covers.asked.pop_front() else { return };
        let errno = message.get(1..5).and_then(|bytes| bytes.try_into().ok());
        match errno.map(i32::from_ne_bytes) {
            Some(0) => {
                self.covers.failed.remove(&cover.path);
                self.covers.made.insert(cover.path);
            }
            errno => {
                let tries = self.covers.failed.entry(cover.path.clone()).or_default();
                *tries += 1;
                if *tries < TRIES {
                    self.covers.wanted.push_back(cover);
                } else {
                    // Open to who is inside, and not to be closed: nothing may go on there.
                    let why = sys::describe(sys::Errno::new(errno.unwrap_or_default()));
                    let path = shown::path(&cover.path);
                    self.outcome.limits_hit.push(format!(
                        "{path} was replaced outside while the command ran, and its rule cannot be carried out again ({why}): ended"
                    ));
                    self.send(SIGKILL);
                }
            }
        }
        self.ask_for_covers();
    }
}
