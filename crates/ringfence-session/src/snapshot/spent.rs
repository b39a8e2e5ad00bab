//! Files that were replaced. When the last name of one goes that was just written to, whoever takes it waits for the disk
//! (ext4 began to write it out, and lets nobody free its blocks before that is done). A descriptor keeps the file for as
//! long as it is open: so it is closed by a thread, and nobody waits.

use rustix::fd::{AsFd, OwnedFd};
use std::thread::JoinHandle;

/// Files held at most, by whoever replaces and by the thread each.
const MOST: usize = 64;
/// How large one of them may be: what is held takes room on the disk.
const LARGEST: u64 = 64 << 10;
/// So many free bytes are enough for that.
const ROOM: u64 = 256 << 20;

/// Takes what was replaced.
pub(crate) struct Spent {
    room: bool,
    held: Vec<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Spent {
    /// For replacing on the file system of this directory.
    pub fn on(directory: impl AsFd) -> Spent {
        // Nobody waits where there is no disk.
        const TMPFS: u64 = 0x0102_1994;
        let room = rustix::fs::fstatfs(directory).is_ok_and(|found| {
            let free = found.f_bavail.saturating_mul(found.f_bsize as u64);
            found.f_type as u64 != TMPFS && free >= ROOM
        });
        Spent { room, held: Vec::new(), thread: None }
    }

    /// Takes a file of this size that has no name any more.
    pub fn take(&mut self, file: OwnedFd, size: u64) {
        if self.held.len() >= MOST && self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
            self.close();
        }
        // What is not held is closed here, and waited for.
        if self.room && size <= LARGEST && self.held.len() < MOST {
            self.held.push(file);
        }
    }

    fn close(&mut self) {
        let held = std::mem::take(&mut self.held);
        // Where no thread can be made they are closed with what it would have done.
        self.thread = std::thread::Builder::new().spawn(move || drop(held)).ok();
    }
}

impl Drop for Spent {
    fn drop(&mut self) {
        if !self.held.is_empty() {
            self.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Read};

    #[test]
    fn what_is_small_is_closed_later_and_all_of_it_in_the_end() {
        let mut spent = Spent { room: true, held: Vec::new(), thread: None };
        let pipes: Vec<_> = (0..300).map(|_| std::io::pipe().expect("a pipe")).collect();
        let mut readers = Vec::new();
        for (number, (reader, writer)) in pipes.into_iter().enumerate() {
            spent.take(writer.into(), if number == 0 { LARGEST + 1 } else { 0 });
            readers.push(reader);
        }
        let closed = |reader: &std::io::PipeReader| {
            rustix::io::ioctl_fionbio(reader, true).expect("a mode");
            let read = (&*reader).read(&mut [0]);
            rustix::io::ioctl_fionbio(reader, false).expect("a mode");
            !read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
        };
        assert!(closed(&readers[0]), "a large one at once");
        assert!(readers.iter().any(|reader| !closed(reader)), "some are held");
        drop(spent);
        // Each is waited for.
        assert!(readers.iter_mut().all(|reader| reader.read(&mut [0]).is_ok_and(|read| read == 0)));
    }
}
