//! The time of a limited run.

use super::{GRACE, SIGKILL, SIGTERM, Watch};
use crate::live::Keeper;
use crate::plan::Tier;
use crate::vm::Machine;
use ringfence_sys as sys;
use std::time::Instant;
use sys::signal::After;

impl Watch<'_, '_> {
    /// First SIGTERM, then after a grace the end of everything.
    pub(super) fn time_is_up(&mut self, passed: Instant) -> Option<Instant> {
        if self.outcome.timed_out {
            self.end_all();
            return Some(passed + GRACE);
        }
        self.outcome.timed_out = true;
        self.wake();
        self.send(SIGTERM);
        self.go_on(Some(After::Any));
        Some(Instant::now() + GRACE)
    }

    /// A machine that is held still is to hear that its command is asked to end: it goes on.
    pub(super) fn wake(&self) {
        if self.duties.machine.is_some() && self.duties.keeper.is_some_and(Keeper::goes_on) {
            Machine::wake();
        }
    }

    /// In the namespace tier the end of PID 1 is the end of all; in the process tier the warden kills the command, and
    /// ends what else descends from it.
    pub(super) fn end_all(&self) {
        match self.child.tier {
            Tier::Namespace => self.send(SIGKILL),
            Tier::Process => self.send(sys::signal::END),
        }
    }
}
