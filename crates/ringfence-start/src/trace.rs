//! Marks on the child's way: for timing it, and for dying at a chosen place.

use crate::bytes::{Text, equal};
use crate::call::{receive, send, sys};

/// The last real-time signal: ours for "the launcher died", which nobody else sends.
pub const PARENT_DEATH: i32 = 64;

/// Where marks go, and which one is deadly.
#[derive(Clone, Copy)]
pub struct Trace {
    /// A descriptor for lines `<nanoseconds since start> <name>`, or -1.
    pub out: i32,
    /// The monotonic clock at the start, in nanoseconds.
    pub start: u64,
    /// The name of the mark at which the launcher is to die; null for none.
    pub fault: *const u8,
}

impl Trace {
    /// No marks.
    pub const NONE: Trace = Trace { out: -1, start: 0, fault: core::ptr::null() };

    /// Whether anything is to be marked.
    pub(crate) fn wanted(&self) -> bool {
        self.out >= 0 || !self.fault.is_null()
    }

    fn write(&self, name: &[u8]) {
        if self.out >= 0 {
            let mut buffer = [0u8; 96];
            let mut line = Text::new(&mut buffer);
            line.push_number(now() - self.start);
            line.push(b" ");
            line.push(name);
            line.push(b"\n");
            if let Some(line) = line.get() {
                // SAFETY: the pointer and length describe `line`.
                let _ = unsafe { sys!(write, self.out, line.as_ptr(), line.len()) };
            }
        }
    }

    fn deadly(&self, name: &[u8]) -> bool {
        // SAFETY: a fault's name is a string of the environment.
        !self.fault.is_null() && equal(unsafe { crate::bytes::string(self.fault) }, name)
    }

    /// A place on the launcher's way.
    pub fn mark(&self, name: &[u8]) {
        if self.wanted() {
            self.write(name);
            if self.deadly(name) {
                // SAFETY: takes numbers.
                let _ = unsafe { sys!(kill, sys!(getpid).unwrap_or(0), 9) };
            }
        }
    }

    /// A place on the child's way; a fault there asks the launcher to die, and goes on when the
    /// child knows that it did.
    pub fn mark_child(&self, name: &[u8], control: i32) {
        if self.is_end_of_launcher(name, control) {
            // SAFETY: takes numbers.
            let _ = unsafe { sys!(kill, sys!(getpid).unwrap_or(0), PARENT_DEATH) };
        }
    }

    /// The same on the way of the process that becomes the command: the launcher's death is the warden's to be told of.
    pub(crate) fn mark_command(&self, name: &[u8], control: i32) {
        let _ = self.is_end_of_launcher(name, control);
    }

    /// Whether a mark was the launcher's end.
    fn is_end_of_launcher(&self, name: &[u8], control: i32) -> bool {
        if !self.wanted() {
            return false;
        }
        self.write(name);
        if !self.deadly(name) {
            return false;
        }
        let _ = send(control, b"D");
        // The launcher's end of the socket closes when it is dead; before the warden's time
        // its death kills us right here.
        let mut word = [0u8; 1];
        while receive(control, &mut word, true).unwrap_or(0) > 0 {}
        true
    }
}

/// The monotonic clock, in nanoseconds.
pub fn now() -> u64 {
    const CLOCK_MONOTONIC: usize = 1;
    clock(CLOCK_MONOTONIC)
}

/// A clock (`clock_gettime(2)`), in nanoseconds.
pub(crate) fn clock(which: usize) -> u64 {
    let mut time = [0u64; 2];
    // SAFETY: `time` is room for a timespec.
    let _ = unsafe { sys!(clock_gettime, which, time.as_mut_ptr()) };
    time[0] * 1_000_000_000 + time[1]
}
