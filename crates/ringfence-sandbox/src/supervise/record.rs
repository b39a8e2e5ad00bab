//! What the launcher tells the keeper of the session's record: programs that start and end, and
//! how it all ended.

use super::Watch;
use crate::executions::{self, Listener};
use crate::live::told::number;
use crate::live::{End, Executed};
use crate::plan::Tier;
use std::time::Duration;

impl Watch<'_, '_> {
    /// Completes the record, once, as soon as it is known how the command ended: the kernel takes
    /// the sandbox apart meanwhile.
    pub(super) fn record(&mut self, code: u8) {
        // Whoever ends a command by a signal does not wait for what it had begun.
        let outcome = &self.outcome;
        let ended = outcome.signal.is_some() || outcome.interrupted || outcome.timed_out;
        let limit = Duration::from_millis(if ended { 200 } else { 2000 });
        self.network.settle(limit);
        self.outcome.code = if self.outcome.timed_out { 124 } else { code };
        let decided = self.questions.take().map(|questions| questions.decided);
        self.outcome.asked.extend(decided.into_iter().flatten());
        self.duties.publish.end(limit);
        if let Some(machine) = self.duties.machine {
            self.outcome.limits_hit.extend(machine.borrow_mut().limits_hit());
        }
        if let Some(keeper) = self.duties.keeper.filter(|_| !self.recorded) {
            self.recorded = true;
            self.tell_early();
            let gone = self.executions.rest();
            self.tell_gone(&gone);
            keeper.ended(&self.outcome);
        }
    }

    /// A process's number on the host: the kernel's word, or the warden's where its numbers are
    /// the host's too.
    pub(super) fn on_host(&self, told: Option<i32>, message: &[u8], at: usize) -> i32 {
        match self.child.tier {
            Tier::Namespace => told.unwrap_or_default(),
            Tier::Process => number(message, at) as i32,
        }
    }

    pub(super) fn executed(&self, command: Executed) {
        if let Some(keeper) = self.duties.keeper {
            keeper.executed(command);
        }
    }

    /// The last command's start was told; the warden starts one after the other.
    pub(super) fn tell_early(&mut self) {
        let waiting = self.listeners.last_mut().map(Listener::started).unwrap_or_default();
        let early = std::mem::take(&mut self.early);
        early.into_iter().chain(waiting).for_each(|program| self.note(Some(program)));
    }

    pub(super) fn note(&self, program: Option<Executed>) {
        if let (Some(keeper), Some(program)) = (self.duties.keeper, program) {
            keeper.noted(program);
        }
    }

    pub(super) fn tell_gone(&self, all: &[executions::Gone]) {
        if let Some(keeper) = self.duties.keeper {
            all.iter().for_each(|gone| keeper.gone(gone.pid, gone.end, gone.duration));
        }
    }

    pub(super) fn finished(&self, message: &[u8]) {
        let end = match message[1..] {
            [_, _, _, _, b'x', code] => End::Code(code),
            [_, _, _, _, b'k', signal] => End::Signal(signal),
            _ => return,
        };
        if let Some(keeper) = self.duties.keeper {
            keeper.finished(number(message, 1), end);
        }
    }
}
