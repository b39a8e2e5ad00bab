//! What the launcher sees before the command may run: that the host is as the plan was derived from it, and how things
//! stand that are looked at again after the run.
//!
//! In the namespace tier that is seen while the child builds the boundary, in namespaces of its own, where nobody
//! else notices; the child has nothing executed before it was told.

use crate::Errno;
use crate::bytes::{from, position};
use crate::call::{glance, receive, send, sys};
use crate::image::Image;
use crate::key::Caller;
use crate::mark::Clock;
use crate::stamp::{Looked, look};
use crate::trace::Trace;

/// Directories whose change times can be noted.
pub const MOST_NOTES: usize = 64;

/// What was seen. Numbers only: one process tells it the other one as it is.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Before {
    /// The time of files ([`crate::mark`]) before the command could run, in nanoseconds.
    pub since: u64,
    /// The monotonic clock before that, in nanoseconds.
    pub began: u64,
    /// Device, inode and change time of the noted directories; zeroes where there was none.
    pub notes: [[u64; 3]; MOST_NOTES],
}

impl Before {
    /// Nothing seen yet. All zeroes, so that a static one takes no place in the file.
    pub const NONE: Before = Before { since: 0, began: 0, notes: [[0; 3]; MOST_NOTES] };

    /// Looks; nothing when the plan does not hold any more. What a user is told before the start is told here.
    pub(crate) fn look(
        &mut self,
        image: &Image,
        caller: &Caller,
        command: usize,
        clock: Clock,
        trace: &Trace,
    ) -> Option<()> {
        // First: what comes to a protected name after the stamps were looked at, and is in no plan, is to be found at the
        // end, when the command may have written into it.
        self.since = clock.mark();
        self.began = crate::trace::now();
        self.note(image)?;
        if !crate::stamp::all_hold(image, caller, command) {
            return None;
        }
        trace.mark(b"stamps");
        let announce = image.bytes(image.header().announce);
        if !announce.is_empty() {
            // SAFETY: the pointer and length describe the text.
            let _ = unsafe { sys!(write, 2, announce.as_ptr(), announce.len()) };
        }
        Some(())
    }

    /// Notes change times of directories, for seeing at the end that nothing was added to them.
    fn note(&mut self, image: &Image) -> Option<()> {
        let paths = image.bytes(image.header().notes);
        let (mut start, mut count) = (0, 0);
        while start < paths.len() {
            let mut looked = Looked::new();
            if let Ok(stat) = look(&mut looked, -100, from(paths, start).as_ptr(), 0) {
                let identity = stat.identity();
                *self.notes.get_mut(count)? = [identity[0], identity[1], identity[4]];
            }
            count += 1;
            start += position(from(paths, start), 0)? + 1;
        }
        Some(())
    }

    /// Tells the child that the command may run. One that is gone is noticed later.
    pub(crate) fn tell(&self, control: i32) {
        let first = core::ptr::from_ref(self).cast::<u8>();
        // SAFETY: numbers without gaps between them, as many bytes as there are.
        let bytes = unsafe { core::slice::from_raw_parts(first, size_of::<Before>()) };
        let _ = send(control, bytes);
    }

    /// Waits to be told; whether that was said: not by a launcher that died before.
    pub(crate) fn hear(&mut self, control: i32) -> bool {
        let first = core::ptr::from_mut(self).cast::<u8>();
        // SAFETY: as in `tell`; any bytes are numbers.
        let bytes = unsafe { core::slice::from_raw_parts_mut(first, size_of::<Before>()) };
        let mut heard = Err(Errno::EAGAIN);
        let _ = glance(|| {
            heard = receive(control, bytes, false);
            heard != Err(Errno::EAGAIN)
        });
        if heard == Err(Errno::EAGAIN) {
            heard = receive(control, bytes, true);
        }
        heard == Ok(size_of::<Before>())
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::call::close;
    use crate::entry::socket_pair;

    #[test]
    fn one_is_told_what_the_other_has_seen() {
        let (ours, theirs) = socket_pair().expect("a pair");
        let mut seen = Before { since: 1, began: 2, notes: [[3; 3]; MOST_NOTES] };
        seen.notes[MOST_NOTES - 1] = [u64::MAX; 3];
        seen.tell(ours);
        let mut heard = Before::NONE;
        assert!(heard.hear(theirs));
        assert_eq!((heard.since, heard.began, heard.notes), (1, 2, seen.notes));
        // A word of another kind is none, nor is the end of who would say it.
        send(ours, b"w").expect("sent");
        assert!(!heard.hear(theirs));
        close(ours);
        assert!(!heard.hear(theirs));
        close(theirs);
    }

    #[test]
    fn what_was_said_by_who_is_gone_orphans_nobody_until_it_was_heard() {
        let (ours, theirs) = socket_pair().expect("a pair");
        assert!(!crate::machine::orphaned(theirs));
        Before::NONE.tell(ours);
        close(ours);
        assert!(!crate::machine::orphaned(theirs));
        let mut heard = Before::NONE;
        assert!(heard.hear(theirs));
        assert!(crate::machine::orphaned(theirs));
        close(theirs);
    }
}
