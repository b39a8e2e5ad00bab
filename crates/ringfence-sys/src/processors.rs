//! Which processors a thread may use (`sched_setaffinity(2)`), and where it is.

use crate::{Result, sys};

/// As many as a kernel can be built for, a bit each, the first in the lowest bit of the first byte.
const ROOM: usize = 1024;

/// The processors that the calling thread might use when it asked.
pub struct Processors {
    set: [u8; ROOM],
    /// How much of it the kernel has filled.
    length: usize,
}

impl std::fmt::Debug for Processors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Processors").field(&self.count()).finish()
    }
}

impl Processors {
    /// Those that the calling thread may use now.
    ///
    /// # Errors
    /// The kernel's.
    pub fn mine() -> Result<Processors> {
        let mut set = [0; ROOM];
        // SAFETY: the pointer and the length describe `set`, which is writable.
        let length = unsafe { sys!(sched_getaffinity, 0, ROOM, set.as_mut_ptr()) }?;
        Ok(Processors { set, length })
    }

    /// How many they are.
    pub fn count(&self) -> u32 {
        self.set[..self.length].iter().map(|byte| byte.count_ones()).sum()
    }

    /// Has the calling thread use one of them only. Threads that it starts then use that one too.
    ///
    /// # Errors
    /// `EINVAL` when it is none of these.
    pub fn keep_to(&self, processor: usize) -> Result<()> {
        let mut one = [0; ROOM];
        if let Some(byte) = one[..self.length].get_mut(processor / 8) {
            *byte = self.set[processor / 8] & (1 << (processor % 8));
        }
        use_only(&one[..self.length])
    }

    /// Has the calling thread use all of them again.
    ///
    /// # Errors
    /// `EINVAL` when all of them are gone.
    pub fn use_all(&self) -> Result<()> {
        use_only(&self.set[..self.length])
    }
}

fn use_only(set: &[u8]) -> Result<()> {
    // SAFETY: the pointer and the length describe readable memory; 0 is the calling thread.
    unsafe { sys!(sched_setaffinity, 0, set.len(), set.as_ptr()) }.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Errno;

    #[test]
    fn a_thread_keeps_to_one_and_uses_all_again() {
        // A thread of its own: the others go on where they were.
        let kept = std::thread::spawn(|| {
            let all = Processors::mine().expect("its own");
            let is = |at: usize| all.set[at / 8] & (1 << (at % 8)) != 0;
            let last = (0..8 * all.length).rfind(|&at| is(at)).expect("one at least");
            let none = (0..8 * all.length).find(|&at| !is(at));
            all.keep_to(last).expect("one of its own");
            let one = Processors::mine().expect("its own");
            assert_eq!((one.count(), one.set[last / 8]), (1, 1 << (last % 8)));
            // SAFETY: asks for a number.
            assert_eq!(usize::try_from(unsafe { libc::sched_getcpu() }), Ok(last));
            for other in none.into_iter().chain([8 * ROOM, usize::MAX]) {
                assert_eq!(all.keep_to(other), Err(Errno::EINVAL));
            }
            all.use_all().expect("its own");
            assert!(Processors::mine().expect("its own").set == all.set);
        });
        kept.join().expect("no panic");
    }
}
