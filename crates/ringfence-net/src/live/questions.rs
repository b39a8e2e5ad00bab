//! Refusals that wait for a person's answer: one question for a place and a process, however many of its
//! connections wait for that.

use super::{Answer, Refused, locked};
use ringfence_policy::Host;
use std::sync::Mutex;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// The most questions at the same time; who would put another one is refused at once.
const MOST: usize = 256;
/// The most of them that one process puts, so that it leaves room for others.
const MOST_OF_A_PROCESS: usize = 64;

/// The questions that were not answered yet.
#[derive(Default)]
pub(super) struct Questions(Mutex<Asked>);

#[derive(Default)]
struct Asked {
    open: Vec<Open>,
    /// So many connections have waited.
    places: u64,
}

/// A question.
pub(super) struct Open {
    refused: Refused,
    pid: Option<i32>,
    deadline: Instant,
    waiting: Vec<(u64, oneshot::Sender<Answer>)>,
}

impl Open {
    pub(super) fn refused(&self) -> &Refused {
        &self.refused
    }

    /// Tells all that wait.
    pub(super) fn answer(self, answer: Answer) {
        for (_, waiting) in self.waiting {
            let _ = waiting.send(answer);
        }
    }
}

/// A connection's place among those that wait.
pub(super) struct Put {
    /// The question's.
    pub(super) number: u64,
    /// The connection's own.
    pub(super) place: u64,
    /// The question's: who comes later waits no longer than the first.
    pub(super) deadline: Instant,
    /// Nobody waited for it before.
    pub(super) new: bool,
    pub(super) answered: oneshot::Receiver<Answer>,
}

/// Who waits for a question when one has left.
#[derive(PartialEq, Eq)]
pub(super) enum Left {
    Nobody,
    /// Others, or it was answered.
    Others,
}

impl Questions {
    /// Waits with those of the same process for the same place, else `said` is asked for the refusal that
    /// a new question is about, while all others wait: it may wait for nobody. None where too many are open. Which
    /// process asks may not be known: then it is asked for itself, and counts with the others of which that is so.
    pub(super) fn put(
        &self,
        host: &Host,
        port: u16,
        pid: Option<i32>,
        patience: Duration,
        said: impl FnOnce() -> Refused,
    ) -> Option<Put> {
        let mut asked = locked(&self.0);
        asked.places += 1;
        let place = asked.places;
        let same = |open: &Open| {
            pid.is_some()
                && open.pid == pid
                && open.refused.port == Some(port)
                && open.refused.host == *host
        };
        let known = asked.open.iter().position(same);
        let at = match known {
            Some(at) => at,
            None => {
                let own = asked.open.iter().filter(|open| open.pid == pid).count();
                if asked.open.len() >= MOST || own >= MOST_OF_A_PROCESS {
                    return None;
                }
                let (refused, deadline) = (said(), Instant::now() + patience);
                asked.open.push(Open { refused, pid, deadline, waiting: Vec::new() });
                asked.open.len() - 1
            }
        };
        let (answer, answered) = oneshot::channel();
        let open = &mut asked.open[at];
        open.waiting.push((place, answer));
        let (number, deadline, new) = (open.refused.number, open.deadline, known.is_none());
        Some(Put { number, place, deadline, new, answered })
    }

    /// Takes the question with this number, to answer it.
    pub(super) fn take(&self, number: u64) -> Option<Open> {
        let open = &mut locked(&self.0).open;
        let at = open.iter().position(|open| open.refused.number == number)?;
        Some(open.remove(at))
    }

    /// Takes all about what is such a refusal.
    pub(super) fn take_all(&self, about: impl Fn(&Refused) -> bool) -> Vec<Open> {
        locked(&self.0).open.extract_if(.., |open| about(&open.refused)).collect()
    }

    /// A connection does not wait any more.
    pub(super) fn leave(&self, number: u64, place: u64) -> Left {
        let open = &mut locked(&self.0).open;
        let Some(at) = open.iter().position(|open| open.refused.number == number) else {
            return Left::Others;
        };
        open[at].waiting.retain(|(waiting, _)| *waiting != place);
        if !open[at].waiting.is_empty() {
            return Left::Others;
        }
        open.remove(at);
        Left::Nobody
    }

    #[cfg(test)]
    pub(super) fn is_free(&self) -> bool {
        self.0.try_lock().is_ok()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        locked(&self.0).open.is_empty()
    }
}
