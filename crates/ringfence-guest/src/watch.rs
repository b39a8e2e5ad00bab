//! What an end of the stream waits for: descriptors, and whose each of them is.

use crate::stream::Over;
use ringfence_sys::fd::{self, Ready, Watched};
use std::os::fd::BorrowedFd;
use std::time::Instant;

/// Descriptors to wait for.
pub(crate) struct Watching<'a, W> {
    whose: Vec<W>,
    watched: Vec<Watched<'a>>,
}

impl<'a, W> Watching<'a, W> {
    /// None yet.
    pub fn new() -> Watching<'a, W> {
        Watching { whose: Vec::with_capacity(16), watched: Vec::with_capacity(16) }
    }

    /// One more, and what it is to be ready for.
    pub fn add(&mut self, whose: W, fd: BorrowedFd<'a>, read: bool, write: bool) {
        self.whose.push(whose);
        self.watched.push(Watched { fd, read, write });
    }

    /// Waits once, at most until then; those that are ready, in their order.
    ///
    /// # Errors
    /// It cannot wait.
    pub fn wait(self, until: Option<Instant>) -> Result<Vec<(W, Ready)>, Over> {
        self.wait_by(fd::poll, until)
    }

    /// [`wait`](Self::wait) of a process that has had nothing to do for a while, and is small meanwhile.
    ///
    /// # Errors
    /// It cannot wait.
    pub fn rest(self, until: Option<Instant>) -> Result<Vec<(W, Ready)>, Over> {
        self.wait_by(fd::rest, until)
    }

    fn wait_by(
        self,
        poll: fn(&[Watched<'_>], i32) -> ringfence_sys::Result<Vec<Ready>>,
        until: Option<Instant>,
    ) -> Result<Vec<(W, Ready)>, Over> {
        let wait = until.map_or(-1, |until| {
            let left = until.saturating_duration_since(Instant::now()).as_millis();
            i32::try_from(left).unwrap_or(i32::MAX).saturating_add(1)
        });
        let ready = poll(&self.watched, wait).map_err(|_| Over::Closed)?;
        let all = self.whose.into_iter().zip(ready);
        Ok(all.filter(|(_, ready)| ready.read || ready.write).collect())
    }
}
