//! Which processors a thread may use (`sched_setaffinity(2)`).

use crate::Result;
use crate::call::sys;
use core::mem::MaybeUninit;

/// Room for a set of processors, a bit each, the first in the lowest bit of the first byte: 8,192, as many as a kernel
/// can be built for. It is written in place, as a copy would be made by libc.
type Room = MaybeUninit<[u8; ROOM]>;
const ROOM: usize = 1024;

/// Those that the calling thread may use.
fn mine(room: &mut Room) -> Result<&mut [u8]> {
    let first = room.as_mut_ptr().cast::<u8>();
    // SAFETY: `first` is writable memory of the given length.
    let bytes = unsafe { sys!(sched_getaffinity, 0, ROOM, first) }?;
    // SAFETY: the kernel has filled so many bytes of what is the caller's.
    Ok(unsafe { core::slice::from_raw_parts_mut(first, bytes) })
}

/// Adds one to a set, or removes it; whether that changed anything.
fn put(set: &mut [u8], processor: usize, wanted: bool) -> bool {
    let Some(byte) = set.get_mut(processor / 8) else { return false };
    let bit = 1 << (processor % 8);
    let is = *byte & bit != 0;
    *byte = if wanted { *byte | bit } else { *byte & !bit };
    is != wanted
}

/// Has a thread use these only: 0 is the caller's.
fn use_only(thread: i32, set: &[u8]) -> Result<()> {
    // SAFETY: the pointer and length describe readable memory.
    unsafe { sys!(sched_setaffinity, thread, set.len(), set.as_ptr()) }.map(drop)
}

/// Restricts the calling thread, and what it starts, to the first `count` of the processors it may use now.
///
/// # Errors
/// The kernel's.
pub(crate) fn restrict(count: usize) -> Result<()> {
    let mut room = Room::uninit();
    let set = mine(&mut room)?;
    let mut left = count;
    let mut at = 0;
    while at < 8 * set.len() {
        if put(set, at, false) && left > 0 {
            put(set, at, true);
            left -= 1;
        }
        at += 1;
    }
    use_only(0, set)
}

/// Has a child that was just made begin on another processor than the caller's, if there is one that both may use.
/// It may use the same as before then.
///
/// Schedulers that fill one processor of a virtual machine before they wake another let it wait for the caller,
/// who has as much to do: 400 µs of each start. Who has not run yet is only put into another queue.
pub(crate) fn part_from(child: i32) {
    let mut here = 0u32;
    // SAFETY: the pointer is to four bytes; the rest is not asked for.
    let known = unsafe { sys!(getcpu, &raw mut here, 0, 0) };
    let mut room = Room::uninit();
    let Ok(set) = mine(&mut room) else { return };
    if known.is_err() || !put(set, here as usize, false) {
        return;
    }
    // EINVAL where no other is left. Who could be moved can be given its own again.
    let moved = use_only(child, set);
    put(set, here as usize, true);
    if moved.is_ok() {
        let _ = use_only(child, set);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::vec::Vec;

    fn of(thread: i32) -> Vec<u8> {
        let mut set = [0u8; ROOM];
        // SAFETY: the pointer and length describe `set`.
        let bytes = unsafe { sys!(sched_getaffinity, thread, ROOM, set.as_mut_ptr()) };
        set[..bytes.expect("a thread that is there")].to_vec()
    }

    #[test]
    fn who_begins_elsewhere_may_use_what_it_could() {
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("cat(1)");
        let pid = child.id().cast_signed();
        let before = of(pid);
        part_from(pid);
        assert_eq!(of(pid), before);
        drop(child.stdin.take());
        assert!(child.wait().expect("left to be collected").success());
    }

    #[test]
    fn the_first_processors_are_left() {
        // A thread of its own: the others go on where they were.
        let restricted = std::thread::spawn(|| {
            let before = of(0);
            restrict(1).expect("its own");
            (before, of(0))
        });
        let (before, after) = restricted.join().expect("no panic");
        let count = |set: &[u8]| set.iter().map(|byte| byte.count_ones()).sum::<u32>();
        assert_eq!(count(&after), 1);
        let first =
            |set: &[u8]| (0..8 * set.len()).find(|bit| set[bit / 8] & (1 << (bit % 8)) != 0);
        assert_eq!(first(&after), first(&before));
    }

    #[test]
    fn a_set_tells_what_changes() {
        let mut set = of(0);
        let last = 8 * set.len();
        assert!(!put(&mut set, last, true));
        let here = (0..last).find(|&at| put(&mut set, at, false)).expect("one at least");
        assert!(put(&mut set, here, true) && !put(&mut set, here, true));
        assert_eq!(Err(crate::Errno::ESRCH), use_only(i32::MAX, &set));
    }
}
