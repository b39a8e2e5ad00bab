//! A directory of many names is looked at from both ends: one `statx` for each is most of what a look at a workspace
//! costs. What the second thread has not done by the time that it is asked for is done here, so that it costs little but
//! its start where no processor is free. It has ended when the look has: a launcher makes its child by `clone3` afterwards,
//! which would have a lock of the allocator for ever that another thread held just then.

use super::beneath::{Found, Names, now, stat};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Fewer names are looked at before a thread has begun.
const MANY: usize = 200;
/// Of more, too much would be kept at once.
const MOST: usize = 20_000;
/// Names that are looked at in one go.
const TURN: usize = 16;
/// All that the second thread needs.
const STACK: usize = 128 << 10;

/// What the kernel says of a name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Looked {
    /// A time before it was asked.
    pub began: i64,
    pub found: Result<Found, Errno>,
}

struct Shared {
    directory: Arc<OwnedFd>,
    names: Arc<Names>,
    /// What the second thread has done, in turns of [`TURN`].
    done: Vec<Mutex<Option<Vec<Looked>>>>,
    /// The turn that the first one is at.
    reached: AtomicUsize,
}

impl Shared {
    fn look(&self, turn: usize) -> Vec<Looked> {
        let names = self.names.from(turn * TURN).take(TURN);
        names.map(|name| Looked { began: now(), found: stat(&self.directory, name) }).collect()
    }

    fn look_backwards(&self) {
        for (turn, done) in self.done.iter().enumerate().rev() {
            if self.reached.load(Ordering::Relaxed) >= turn {
                break;
            }
            let looked = self.look(turn);
            if let Ok(mut done) = done.lock() {
                *done = Some(looked);
            }
        }
    }
}

/// All names of a directory, in their order.
pub(super) struct Ahead {
    shared: Arc<Shared>,
    turn: std::vec::IntoIter<Looked>,
    second: Option<JoinHandle<()>>,
}

impl Ahead {
    pub fn of(directory: &Arc<OwnedFd>, names: &Arc<Names>) -> Ahead {
        let count = names.count();
        let shared = Arc::new(Shared {
            directory: Arc::clone(directory),
            names: Arc::clone(names),
            done: (0..count.div_ceil(TURN)).map(|_| Mutex::new(None)).collect(),
            reached: AtomicUsize::new(0),
        });
        let start = || {
            let second = Arc::clone(&shared);
            let thread = std::thread::Builder::new().stack_size(STACK);
            // Where no thread can be made, one does it all.
            thread.spawn(move || second.look_backwards()).ok()
        };
        let second = (MANY..=MOST).contains(&count).then(start).flatten();
        Ahead { shared, turn: Vec::new().into_iter(), second }
    }
}

impl Iterator for Ahead {
    type Item = Looked;

    fn next(&mut self) -> Option<Looked> {
        if let Some(looked) = self.turn.next() {
            return Some(looked);
        }
        let turn = self.shared.reached.fetch_add(1, Ordering::Relaxed);
        let done = self.shared.done.get(turn)?.lock().ok().and_then(|mut done| done.take());
        self.turn = done.unwrap_or_else(|| self.shared.look(turn)).into_iter();
        self.turn.next()
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.shared.reached.store(usize::MAX, Ordering::Relaxed);
        // At most one more turn.
        let _ = self.second.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::beneath::{names, open_root};

    fn listed(count: usize) -> (tempfile::TempDir, Arc<OwnedFd>, Arc<Names>) {
        let top = tempfile::tempdir().expect("a directory");
        for number in 0..count {
            std::fs::write(top.path().join(format!("f{number}")), vec![0; number % 7])
                .expect("a file");
        }
        let directory = open_root(top.path()).expect("the directory");
        let names = names(&directory).expect("its names");
        (top, Arc::new(directory), Arc::new(names))
    }

    #[test]
    fn each_name_is_looked_at_once_and_in_order() {
        for count in [0, 1, TURN, TURN + 1, MANY, 3001] {
            let (_top, directory, names) = listed(count);
            let all: Vec<Looked> = Ahead::of(&directory, &names).collect();
            assert_eq!(all.len(), count);
            for (name, looked) in names.iter().zip(&all) {
                let now = stat(&directory, name).expect("what it is");
                assert_eq!(looked.found.expect("what it was").stamp, now.stamp, "{count}");
                assert!(looked.began > 0);
            }
        }
    }

    #[test]
    fn what_is_gone_is_said_to_be_and_the_second_thread_ends_with_the_first() {
        let (top, directory, names) = listed(MANY);
        std::fs::remove_file(top.path().join("f7")).expect("it goes");
        let gone =
            Ahead::of(&directory, &names).zip(names.iter()).filter(|(l, _)| l.found.is_err());
        let gone: Vec<_> = gone.map(|(looked, name)| (looked.found.err(), name)).collect();
        assert_eq!(gone, [(Some(Errno::NOENT), &b"f7"[..])]);
        let mut ahead = Ahead::of(&directory, &names);
        let shared = Arc::downgrade(&ahead.shared);
        assert!(ahead.next().is_some());
        drop(ahead);
        assert_eq!(shared.strong_count(), 0, "the thread has ended");
    }
}
