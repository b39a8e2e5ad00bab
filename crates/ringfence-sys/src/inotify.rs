//! Directories that tell of new names in them (inotify(7)).

use crate::fd::owned;
use crate::{Result, sys};
use std::ffi::{OsStr, OsString};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

/// Has an inotify descriptor, somebody else's perhaps, tell of what happens to a place, as
/// `inotify_add_watch(2)`: the number of the watch. What the place is, is not looked up again.
///
/// # Errors
/// The call's; `EINVAL` for a descriptor of another kind.
pub fn watch(inotify: BorrowedFd<'_>, place: BorrowedFd<'_>, events: u32) -> Result<i32> {
    let path = format!("/proc/self/fd/{}\0", place.as_raw_fd());
    // The path is a link to the place.
    let events = events & !libc::IN_DONT_FOLLOW;
    // SAFETY: the path is a string.
    unsafe { sys!(inotify_add_watch, inotify.as_raw_fd(), path.as_ptr(), events) }
        .map(|number| number as i32)
}

/// Watched directories.
///
/// Who closes one that watched something waits until no processor looks at what watched, by which 5 to 22 ms pass (Linux
/// 6.18 at 250 Hz; `fsnotify_destroy_group` in fs/notify/group.c), and so does who ends with it open. So a worker of the
/// kernel closes it.
#[derive(Debug)]
pub struct Names(ManuallyDrop<OwnedFd>);

impl Drop for Names {
    fn drop(&mut self) {
        // SAFETY: it is not used again.
        crate::socket::close_aside(unsafe { ManuallyDrop::take(&mut self.0) });
    }
}

/// A name that is new, or gone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Named {
    /// The number of the directory that it is in.
    pub directory: i32,
    /// It.
    pub name: OsString,
}

impl Names {
    /// None yet.
    ///
    /// # Errors
    /// `EMFILE`: the user has too many of these, or the process too many descriptors.
    pub fn new() -> Result<Names> {
        // SAFETY: takes numbers only.
        unsafe { sys!(inotify_init1, libc::IN_CLOEXEC | libc::IN_NONBLOCK) }
            .map(owned)
            .map(ManuallyDrop::new)
            .map(Names)
    }

    /// Readable when there are new names.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Watches an open directory; the same one twice has the same number.
    ///
    /// # Errors
    /// `ENOSPC` at the user's limit of watches.
    pub fn watch(&self, directory: BorrowedFd<'_>) -> Result<i32> {
        let events = libc::IN_CREATE | libc::IN_MOVED_TO | libc::IN_ONLYDIR;
        watch(self.0.as_fd(), directory, events)
    }

    /// The same, and it tells of names that are gone as well.
    ///
    /// # Errors
    /// As [`Names::watch`].
    pub fn watch_both(&self, directory: BorrowedFd<'_>) -> Result<i32> {
        let made = libc::IN_CREATE | libc::IN_MOVED_TO;
        let gone = libc::IN_DELETE | libc::IN_MOVED_FROM;
        watch(self.0.as_fd(), directory, made | gone | libc::IN_ONLYDIR)
    }

    /// Watches a directory no more; what it told by now is still told.
    pub fn forget(&self, number: i32) {
        // SAFETY: takes numbers only.
        let _ = unsafe { sys!(inotify_rm_watch, self.0.as_raw_fd(), number) };
    }

    /// Takes what is told, some at a time, without waiting.
    pub fn take(&self) -> Told {
        let mut told = Told::default();
        self.read(&mut told);
        told
    }

    /// Takes all that is told, without waiting: at most as much as the kernel keeps.
    pub fn take_all(&self) -> Told {
        /// 16,384 events (`max_queued_events`) of 32 bytes, and more of short ones.
        const READS: usize = 128;
        let mut told = Told::default();
        for _ in 0..READS {
            if !self.read(&mut told) {
                break;
            }
        }
        told
    }

    /// One look; false where there was nothing.
    fn read(&self, told: &mut Told) -> bool {
        /// `struct inotify_event` without its name: watch, mask, cookie, length.
        const HEAD: usize = 16;
        let mut room = [0u8; 8192];
        // SAFETY: the pointer and size describe `room`.
        let read = unsafe { sys!(read, self.0.as_raw_fd(), room.as_mut_ptr(), room.len()) };
        let mut rest = &room[..read.unwrap_or(0)];
        let any = !rest.is_empty();
        while let Some((head, after)) = rest.split_first_chunk::<HEAD>() {
            let word = |at: usize| [head[at], head[at + 1], head[at + 2], head[at + 3]];
            let directory = i32::from_ne_bytes(word(0));
            let events = u32::from_ne_bytes(word(4));
            let length = u32::from_ne_bytes(word(12)) as usize;
            let Some((name, after)) = after.split_at_checked(length) else { break };
            let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
            if events & libc::IN_Q_OVERFLOW != 0 {
                told.lost = true;
            } else if events & libc::IN_IGNORED != 0 {
                told.gone.push(directory);
            } else if !name.is_empty() {
                told.names.push(Named { directory, name: OsStr::from_bytes(name).to_owned() });
            }
            rest = after;
        }
        any
    }
}

/// What watched directories told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// New names.
    pub names: Vec<Named>,
    /// The numbers of directories that are not watched any more: they were removed.
    pub gone: Vec<i32>,
    /// There was more than the kernel keeps.
    pub lost: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A set, as soon as there is one to be had: the kernel closes those that were let go of when it comes to it.
    fn set() -> Names {
        let until = std::time::Instant::now() + std::time::Duration::from_secs(40);
        loop {
            match Names::new() {
                Ok(names) => return names,
                Err(errno) => assert!(
                    errno == crate::Errno::EMFILE && std::time::Instant::now() < until,
                    "{errno}: they stay open"
                ),
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn those_that_are_let_go_of_are_closed() {
        let place = std::fs::File::open("/").expect("a directory");
        let most = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_instances");
        let most: usize = most.ok().and_then(|most| most.trim().parse().ok()).unwrap_or(128);
        for _ in 0..most.min(1000) * 2 {
            let names = set();
            names.watch(place.as_fd()).expect("watched");
        }
    }

    #[test]
    fn new_names_are_told_and_others_are_not() {
        let place = std::env::temp_dir().join(format!("ringfence-inotify-{}", std::process::id()));
        std::fs::create_dir(&place).expect("a directory");
        let names = set();
        let open = std::fs::File::open(&place).expect("a directory");
        let number = names.watch(open.as_fd()).expect("watched");
        assert_eq!(names.watch(open.as_fd()), Ok(number));
        assert_eq!(names.take().names, []);
        std::fs::write(place.join("a"), "x").expect("a file");
        std::fs::rename(place.join("a"), place.join("b")).expect("renamed");
        std::fs::remove_file(place.join("b")).expect("removed");
        let told: Vec<OsString> = names.take().names.into_iter().map(|named| named.name).collect();
        assert_eq!(told, ["a", "b"]);
        // What is open is not gone.
        drop(open);
        std::fs::remove_dir(&place).expect("removed");
        let told = names.take_all();
        assert_eq!(told, Told { gone: vec![number], ..Told::default() });
        std::fs::create_dir(&place).expect("a directory");
        let open = std::fs::File::open(&place).expect("a directory");
        let number = names.watch(open.as_fd()).expect("watched");
        names.forget(number);
        std::fs::write(place.join("a"), "x").expect("a file");
        std::fs::remove_dir_all(&place).expect("removed");
        assert_eq!(names.take_all(), Told { gone: vec![number], ..Told::default() });
    }
}
