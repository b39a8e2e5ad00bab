//! Marks on the way of a launch: for timing it, and for stopping it at a chosen place.
//!
//! With `RINGFENCE_TRACE_LAUNCH=FD` each mark is a line `<nanoseconds since start> <name>` on
//! that descriptor. With `RINGFENCE_FAULT=NAME` the launcher dies of `SIGKILL` at the mark of
//! that name: tests use it to show that nothing is left behind, wherever that happens.

use ringfence_sys as sys;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

/// Where the marks go.
#[derive(Debug)]
pub struct Trace {
    start: Instant,
    out: Option<OwnedFd>,
    fault: Option<String>,
}

impl Trace {
    /// Reads the two variables.
    pub fn from_environment() -> Trace {
        let descriptor = std::env::var("RINGFENCE_TRACE_LAUNCH").ok();
        let out = descriptor.and_then(|fd| sys::fd::adopt(fd.parse().ok()?));
        Trace { start: Instant::now(), out, fault: std::env::var("RINGFENCE_FAULT").ok() }
    }

    /// A place on the launcher's way.
    pub fn mark(&self, name: &str) {
        if let Some(out) = &self.out {
            self.write(out, name);
        }
        if self.fault.as_deref() == Some(name) {
            let _ = sys::signal::kill(std::process::id() as i32, 9);
        }
    }

    /// A place on the child's way; a fault there asks the launcher to die.
    pub fn mark_child(&self, name: &str, control: BorrowedFd<'_>) {
        if let Some(out) = &self.out {
            self.write(out, name);
        }
        if self.fault.as_deref() == Some(name) {
            let _ = sys::fd::send(control, b"D");
            // The launcher's death ends us at once, or is the signal that the warden waits for.
            let death = sys::signal::SignalSet::of(&[sys::signal::parent_death()]);
            let _ = sys::signal::wait(death, None);
            let _ = sys::signal::kill(std::process::id() as i32, sys::signal::parent_death());
        }
    }

    fn write(&self, out: &OwnedFd, name: &str) {
        use std::os::fd::AsFd;
        let line = format!("{} {name}\n", self.start.elapsed().as_nanos());
        let _ = sys::fd::write_all(out.as_fd(), line.as_bytes());
    }
}
