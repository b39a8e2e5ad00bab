//! How many connections are served at once, and what is left of a crowd.
//!
//! Whoever is inside decides how many connections there are, and each takes descriptors and memory of the
//! launcher's, which does other things as well. So there are only so many: the next ones wait to be accepted.

use ringfence_sys::limit::{self, Resource};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::OnceLock;
use std::task::Poll;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, SemaphorePermit};

/// The most connections at once, where there are descriptors for them.
const MOST: usize = 8192;
/// Descriptors of a connection; a pipe to move much has as many.
const TWO: u32 = 2;
/// What is kept of the launcher's descriptors for all that it does besides.
const KEPT: usize = 128;
/// The pause after running out of descriptors: some will be closed meanwhile.
const EXHAUSTED: Duration = Duration::from_millis(20);
/// Accepted connections that are begun in one turn.
const TURN: usize = 64;

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

    /// Room for so many beside connections, while there is plenty: they are worth less than those.
    fn spare(&self, count: u32) -> Option<SemaphorePermit<'_>> {
        let plenty = self.left.available_permits() > self.all / 2;
        plenty.then(|| self.left.try_acquire_many(count).ok()).flatten()
    }
}

/// Room for a pipe beside a connection, given back when it is dropped.
pub(crate) fn pipe() -> Option<SemaphorePermit<'static>> {
    Descriptors::ours().spare(TWO)
}

/// Room for a published UDP port's socket for one peer, given back when it is dropped. Peers are whoever sends
/// something, so that they leave as much for connections as pipes do.
pub(crate) fn flow() -> Option<SemaphorePermit<'static>> {
    Descriptors::ours().spare(1)
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

/// Whether anybody is being served.
pub(crate) fn some() -> bool {
    CROWD.with_borrow(|crowd| crowd.now > 0)
}

/// A crowd's memory is given back when the last of it has gone: the allocator would keep it for the next.
const CROWDED: usize = 64;

/// A connection's place, given back when it is dropped.
struct Place(#[expect(dead_code, reason = "held")] Option<SemaphorePermit<'static>>);

impl Place {
    /// Waits until there is one.
    async fn free() -> Place {
        // Never closed.
        Place(Descriptors::ours().left.acquire_many(TWO).await.ok())
    }

    /// One that is free now.
    fn now() -> Option<Place> {
        Descriptors::ours().left.try_acquire_many(TWO).ok().map(|place| Place(Some(place)))
    }

    /// Somebody has come.
    fn taken(self) -> Served {
        CROWD.with_borrow_mut(|crowd| {
            crowd.now += 1;
            crowd.most = crowd.most.max(crowd.now);
        });
        Served(self)
    }
}

/// One connection of them.
struct Served(#[expect(dead_code, reason = "held")] Place);

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

/// Accepts connections for ever, and gives each a task of its own.
///
/// The kernel's queue holds few: what comes while it is full is dropped, and the client tries again after a second. So
/// all that waits there is taken at once, however much there is to do besides, and begun in turns.
pub(crate) async fn serve<F>(
    listener: TcpListener,
    connection: impl FnMut(TcpStream, SocketAddr) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    // Else the runtime would have it go on after some dozens.
    tokio::task::unconstrained(take(listener, connection)).await;
}

async fn take<F>(listener: TcpListener, mut connection: impl FnMut(TcpStream, SocketAddr) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut taken = VecDeque::new();
    loop {
        if taken.is_empty() {
            let place = Place::free().await;
            match listener.accept().await {
                Ok(client) => taken.push_back((place.taken(), client)),
                Err(error) => failed(&error).await,
            }
        }
        while let Some(place) = Place::now() {
            let Some(Ok(client)) = now(listener.accept()).await else { break };
            taken.push_back((place.taken(), client));
        }
        for (served, (client, from)) in taken.drain(..taken.len().min(TURN)) {
            let connection = connection(client, from);
            tokio::spawn(async move {
                let _served = served;
                connection.await;
            });
        }
        if taken.is_empty() {
            taken.shrink_to(TURN);
        } else {
            tokio::task::yield_now().await;
        }
    }
}

/// What there is to do after an accept that failed: errors of one connection concern nobody else.
async fn failed(error: &io::Error) {
    if error.kind() != io::ErrorKind::ConnectionAborted {
        tokio::time::sleep(EXHAUSTED).await;
    }
}

/// What a future comes to if it need not wait.
async fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_sys::listener::behalf;
    use std::os::fd::AsFd;

    #[test]
    fn the_launcher_keeps_descriptors_for_itself_however_few_there_are() {
        for (limit, all) in [(1 << 20, 16_384), (1024, 896), (256, 128), (64, 32), (0, 2)] {
            assert_eq!(Descriptors::of(limit).left.available_permits(), all, "{limit}");
        }
    }

    #[test]
    fn all_that_waits_in_the_queue_is_taken_before_any_of_it_is_served() {
        const MANY: usize = 400;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
            let to = listener.local_addr().expect("an address");
            behalf::listen(listener.as_fd(), 4096).expect("listens");
            let connect = |_| std::net::TcpStream::connect(to).expect("connected");
            let clients: Vec<_> = (0..MANY).map(connect).collect();
            listener.set_nonblocking(true).expect("set");
            let listener = TcpListener::from_std(listener).expect("watched");
            let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
            let server = tokio::spawn(serve(listener, move |client, _| {
                let tell = tell.clone();
                async move {
                    let _ = tell.send(CROWD.with_borrow(|crowd| crowd.now));
                    drop(client);
                }
            }));
            let first = told.recv().await;
            assert_eq!(first, Some(MANY), "accepted when the first one is served");
            for _ in 1..MANY {
                told.recv().await.expect("each is served");
            }
            server.abort();
            drop(clients);
        });
    }

    #[test]
    fn pipes_leave_room_for_connections() {
        let descriptors = Descriptors::of(256);
        let pipes: Vec<_> = std::iter::from_fn(|| descriptors.spare(TWO)).collect();
        assert_eq!((pipes.len(), descriptors.left.available_permits()), (32, 64));
        drop(pipes);
        assert!(descriptors.spare(1).is_some());
    }
}
