//! The end of a session: whoever was inside is gone, and what they sent just before is still to be passed on, and
//! told.
//!
//! Without a sandbox the kernel goes on sending what a program that has ended had written. Here it lies in a
//! connection to the launcher, or in the queue of one of its listeners, and would be lost with it.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::Notify;

/// What something comes to, if it does before something else happens.
pub(crate) async fn before<T>(
    something: impl Future<Output = T>,
    other: impl Future<Output = ()>,
) -> Option<T> {
    let (mut something, mut other) = (pin!(something), pin!(other));
    poll_fn(|context| match something.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => other.as_mut().poll(context).map(|()| None),
    })
    .await
}

/// Whether the session is ending, and whether all of it has come to an end.
#[derive(Debug, Default)]
pub(crate) struct Leaving {
    begun: AtomicBool,
    told: Notify,
    over: Mutex<bool>,
    ended: Condvar,
}

impl Leaving {
    /// Says that nobody is inside any more; whether it is said for the first time.
    pub fn begin(&self) -> bool {
        let first = !self.begun.swap(true, Ordering::SeqCst);
        self.told.notify_waiters();
        first
    }

    /// Whether that was said.
    pub fn has_begun(&self) -> bool {
        self.begun.load(Ordering::SeqCst)
    }

    /// Waits until it is said.
    pub async fn begun(&self) {
        let mut told = pin!(self.told.notified());
        told.as_mut().enable();
        if !self.has_begun() {
            told.await;
        }
    }

    /// What something comes to, if it does before that is said.
    pub async fn before<T>(&self, something: impl Future<Output = T>) -> Option<T> {
        before(something, self.begun()).await
    }

    /// Says that nothing is left.
    pub fn end(&self) {
        *self.over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.ended.notify_all();
    }

    /// Waits for that, but not longer than this.
    pub fn wait(&self, limit: Duration) {
        let over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.ended.wait_timeout_while(over, limit, |over| !*over));
    }
}
