//! On which processor a stream is moved: where there are few, on the one of its reader.
//!
//! A piece that is given to a reader on another processor has to wake that one, and its pages are read from another
//! cache. With two processors a scheduler that finds one of them idle puts reader and mover apart again and again,
//! and a stream gets half of what it has with both beside each other, while the sender has the other processor. Where there
//! are more, nothing was measured, and the scheduler decides.

use ringfence_sys::processors::Processors;
use ringfence_sys::socket;
use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;

/// The most processors of which one is chosen.
const FEW: u32 = 2;

/// What a thread may use that is not kept to one.
static ALL: OnceLock<Option<Processors>> = OnceLock::new();

thread_local! {
    /// The streams that the thread moves.
    static STREAMS: Cell<usize> = const { Cell::new(0) };
    /// The processor that it keeps to.
    static KEPT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// A stream that its thread moves, beside its reader as long as it is the only one. Each runtime here has one thread, so
/// that it ends where it began.
pub(crate) struct Beside {
    all: &'static Processors,
}

impl Beside {
    /// For a stream that begins, where there are few processors.
    pub fn new() -> Option<Beside> {
        let all = ALL.get_or_init(|| Processors::mine().ok()).as_ref()?;
        (2..=FEW).contains(&all.count()).then(|| Beside::among(all))
    }

    fn among(all: &'static Processors) -> Beside {
        STREAMS.set(STREAMS.get() + 1);
        Beside { all }
    }

    /// Goes where the reader is seen to be.
    pub fn follow(&self, reader: BorrowedFd<'_>) {
        if STREAMS.get() > 1 {
            return self.anywhere();
        }
        let there = socket::last_came_on(reader);
        if let Some(there) = there.filter(|&there| KEPT.get() != Some(there))
            && self.all.keep_to(there).is_ok()
        {
            KEPT.set(Some(there));
        }
    }

    fn anywhere(&self) {
        if KEPT.take().is_some() {
            let _ = self.all.use_all();
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        STREAMS.set(STREAMS.get() - 1);
        self.anywhere();
    }
}

/// Has a thread that begins use all, whichever processor the one that started it keeps to.
pub(crate) fn begin_anywhere() {
    if let Some(Some(all)) = ALL.get() {
        let _ = all.use_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::os::fd::AsFd;

    /// Whether the calling thread keeps to one.
    fn kept() -> bool {
        Processors::mine().expect("its own").count() == 1 && KEPT.get().is_some()
    }

    #[test]
    fn one_stream_follows_its_reader_and_several_go_anywhere() {
        // A thread of its own: the others go on where they were.
        let moved = std::thread::spawn(|| {
            let all: &Processors = Box::leak(Box::new(Processors::mine().expect("its own")));
            let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
            let mut reader = std::net::TcpStream::connect(listener.local_addr().expect("bound"))
                .expect("connected");
            let (mut ours, _) = listener.accept().expect("connected");
            // The reader's packets come in where it runs.
            let said = std::thread::spawn(move || {
                let here = (0..8192).rfind(|&at| all.keep_to(at).is_ok()).expect("one at least");
                reader.write_all(b"here").map(|()| (reader, here)).expect("written")
            });
            let (_reader, here) = said.join().expect("no panic");
            ours.read_exact(&mut [0; 4]).expect("read");
            let first = Beside::among(all);
            let follow = |stream: &Beside| stream.follow(ours.as_fd());
            follow(&first);
            assert!(kept());
            assert_eq!(KEPT.get(), Some(here));
            let second = Beside::among(all);
            follow(&first);
            assert_eq!(Processors::mine().expect("its own").count(), all.count());
            drop(first);
            follow(&second);
            assert!(kept());
            drop(second);
            assert_eq!(Processors::mine().expect("its own").count(), all.count());
            assert_eq!((STREAMS.get(), KEPT.get()), (0, None));
        });
        moved.join().expect("no panic");
    }
}
