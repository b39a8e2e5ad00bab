//! How many connections are served at once, and what is left of a crowd.
//!
//! Whoever is inside decides how many connections there are, and each takes descriptors and memory of the
//! launcher's, which does other things as well. So there are only so many: the next ones wait to be accepted.

use ringfence_sys::limit::{self, Resource};
use std::cell::RefCell;
use std::sync::OnceLock;
use tokio::sync::{Semaphore, SemaphorePermit};

/// The most connections at once, where there are descriptors for them.
const MOST: usize = 8192;
/// Descriptors of a connection; a pipe to move much has as many.
const TWO: u32 = 2;
/// What is kept of the launcher's descriptors for all that it does besides.
const KEPT: usize = 128;

/// The descriptors that connections may have.
struct Descriptors {
    all: usize,
    left: Semaphore,
}

impl Descriptors {
    /// A share of so many that a process may have.
    fn of(limit: usize) -> Descriptors {
        let all =
            limit.saturating_sub(KEPT).max(limit / 2).clamp(TWO as usize, MOST * TWO as usize);
        Descriptors { all, left: Semaphore::new(all) }
    }

    /// Those of this process, as its limit was when they were first asked for.
    fn ours() -> &'static Descriptors {
        static OURS: OnceLock<Descriptors> = OnceLock::new();
        OURS.get_or_init(|| {
            let limit = limit::get(Resource::OpenFiles).ok();
            Descriptors::of(limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(MOST))
        })
    }

    /// Room for a pipe, while there is plenty: it is worth less than a connection.
    fn pipe(&self) -> Option<SemaphorePermit<'_>> {
        let plenty = self.left.available_permits() > self.all / 2;
        plenty.then(|| self.left.try_acquire_many(TWO).ok()).flatten()
    }
}

/// Room for a pipe beside a connection, given back when it is dropped.
pub(crate) fn pipe() -> Option<SemaphorePermit<'static>> {
    Descriptors::ours().pipe()
}

/// Connections that are served now, and the most since there were none.
#[derive(Debug, Default)]
struct Crowd {
    now: usize,
    most: usize,
}

thread_local! {
    /// All connections are served by this one thread.
    static CROWD: RefCell<Crowd> = RefCell::default();
}

/// A crowd's memory is given back when the last of it has gone: the allocator would keep it for the next.
const CROWDED: usize = 64;

/// A connection's place, given back when it is dropped.
pub(crate) struct Place(#[expect(dead_code, reason = "held")] Option<SemaphorePermit<'static>>);

impl Place {
    /// Waits until there is one.
    pub async fn free() -> Place {
        // Never closed.
        Place(Descriptors::ours().left.acquire_many(TWO).await.ok())
    }

    /// Somebody has come.
    pub fn taken(self) -> Served {
        CROWD.with_borrow_mut(|crowd| {
            crowd.now += 1;
            crowd.most = crowd.most.max(crowd.now);
        });
        Served(self)
    }
}

/// One connection of them.
pub(crate) struct Served(#[expect(dead_code, reason = "held")] Place);

impl Drop for Served {
    fn drop(&mut self) {
        let empty = CROWD.with_borrow_mut(|crowd| {
            crowd.now -= 1;
            crowd.now == 0 && std::mem::take(&mut crowd.most) >= CROWDED
        });
        if empty {
            // This one's own memory is still held, and is little.
            ringfence_sys::memory::give_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_launcher_keeps_descriptors_for_itself_however_few_there_are() {
        for (limit, all) in [(1 << 20, 16_384), (1024, 896), (256, 128), (64, 32), (0, 2)] {
            assert_eq!(Descriptors::of(limit).left.available_permits(), all, "{limit}");
        }
    }

    #[test]
    fn pipes_leave_room_for_connections() {
        let descriptors = Descriptors::of(256);
        let pipes: Vec<_> = std::iter::from_fn(|| descriptors.pipe()).collect();
        assert_eq!((pipes.len(), descriptors.left.available_permits()), (32, 64));
        drop(pipes);
        assert!(descriptors.pipe().is_some());
    }
}
