//! What an end of the stream waits for: descriptors, and whose each of them is.

use crate::stream::Over;
use ringfence_sys::fd::{Ready, Watched, poll};
use std::os::fd::BorrowedFd;

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

    /// Waits once; those that are ready, in their order.
    ///
    /// # Errors
    /// It cannot wait.
    pub fn wait(self) -> Result<Vec<(W, Ready)>, Over> {
        let ready = poll(&self.watched, -1).map_err(|_| Over::Closed)?;
        let all = self.whose.into_iter().zip(ready);
        Ok(all.filter(|(_, ready)| ready.read || ready.write).collect())
    }
}
