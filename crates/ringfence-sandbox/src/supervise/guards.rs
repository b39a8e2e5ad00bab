//! What keeps watch over the host's files while the command runs: the vigil for protected names, and the mounts on
//! names that somebody outside replaces. Also while the launcher is stopped: what is inside need not be, and whoever
//! is outside has his prompt in the very directory. Nor could it be made to stop: a timer of its own continues it.

use super::{GATHER, Heard, Job, Watch};
use crate::cover;
use crate::guard::Vigil;
use ringfence_sys as sys;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};
use sys::standin::Standin;

/// So often a launcher is told to go on until it does, and so soon one that could not stop tries again.
pub(super) const AGAIN: Duration = Duration::from_millis(100);

/// Messages that wait for the launcher to go on at most.
const MOST_HELD: usize = 256;

impl Watch<'_, '_> {
    /// When there is something to do by itself.
    pub(super) fn guards_next(&self) -> impl Iterator<Item = Instant> {
        let vigil = self.vigil.as_ref().and_then(Vigil::next);
        self.vigil_begins.into_iter().chain(self.gathering).chain(self.covers.next()).chain(vigil)
    }

    /// What tells of names; nothing while they gather.
    pub(super) fn guards_descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let listens = self.gathering.is_none();
        let vigil = self.vigil.as_ref().and_then(Vigil::descriptor);
        vigil.into_iter().chain(self.covers.descriptor()).filter(move |_| listens)
    }

    /// Does what its time has come for.
    pub(super) fn guards_due(&mut self) {
        let now = Instant::now();
        self.gathering = self.gathering.filter(|gathering| now < *gathering);
        if self.vigil_begins.is_some_and(|begins| now >= begins) {
            self.vigil = (self.duties.vigil)();
            self.vigil_begins = None;
            self.covers.due();
            self.begin_covers();
        }
        if self.covers.next().is_some_and(|next| now >= next) {
            self.covers_due();
        }
        if let Some(vigil) = &mut self.vigil
            && vigil.next().is_some_and(|next| now >= next)
        {
            vigil.due();
        }
    }

    /// Looks at what was told.
    pub(super) fn guards_serve(&mut self) {
        self.vigil.iter_mut().for_each(Vigil::serve);
        self.serve_covers();
        self.gathering = Some(Instant::now() + GATHER);
    }

    /// Stops as the command did. A stopped launcher keeps no time: only the user's own stop may halt
    /// the clock. Without somebody to keep watch meanwhile it does not stop, and tries again.
    pub(super) fn stop(&mut self) {
        let by_user = self.stops.by_user();
        let until = self.deadline.filter(|_| !by_user);
        self.stops.begins();
        self.held = Some(Vec::new());
        let stopped = sys::standin::stop_until(until, &mut |standin| self.stand_in(standin));
        let held = self.held.take().unwrap_or_default();
        match stopped {
            // The user's next stop: that of a Ctrl-Z right after `fg`.
            Ok(true) => {
                self.stops.wanted();
                self.job.iter_mut().for_each(Job::stops_anew);
            }
            Ok(false) => {}
            // Whatever it was doing is half done.
            Err(sys::Errno::ECHILD) => self.send(super::SIGKILL),
            Err(_) => {
                if by_user {
                    self.stops.wanted();
                }
                self.stops.not_followed();
                self.stops_again = Some(Instant::now() + AGAIN);
            }
        }
        held.into_iter().for_each(|heard| self.heard(heard));
    }

    /// The life of the process that stands in for a launcher that is stopped.
    fn stand_in(&mut self, standin: Standin<'_>) {
        loop {
            self.guards_due();
            let mut next: Option<Instant> = self.guards_next().min();
            // The command goes on, or the sandbox ends: so does a job whose process does.
            let ended = |held: &Heard| held.message.first() == Some(&b'W');
            if self.stops.went_on() || self.silent || self.held.iter().flatten().any(ended) {
                standin.wake();
                let again = Instant::now() + AGAIN;
                next = Some(next.map_or(again, |next| next.min(again)));
            }
            let full = self.held.as_ref().is_none_or(|held| held.len() >= MOST_HELD);
            let deaf = self.silent || full;
            let control = if deaf { standin.over() } else { self.child.control.as_fd() };
            let mut watched = vec![standin.over(), control];
            watched.extend(self.guards_descriptors());
            let ready = sys::fd::poll_readable(&watched, super::left(next));
            let Ok(ready) = ready else { return };
            if ready[0] {
                return;
            }
            if ready[1] {
                self.take_messages();
            }
            if ready[2..].contains(&true) {
                self.guards_serve();
            }
        }
    }

    /// Holds a message back that is not for who stands in: what it is about may be in the hands of another thread,
    /// and those are stopped.
    pub(super) fn holds(&mut self, heard: Heard) -> Option<Heard> {
        let at_once = [b'S', b'C', b'A', cover::DONE];
        match &mut self.held {
            Some(held) if !heard.message.first().is_some_and(|first| at_once.contains(first)) => {
                held.push(heard);
                None
            }
            _ => Some(heard),
        }
    }
}
