//! Marks on the way of a launch: for timing it, and for stopping it at a chosen place.
//!
//! With `RINGFENCE_TRACE_LAUNCH=FD` each mark is a line `<nanoseconds since start> <name>` on
//! that descriptor. With `RINGFENCE_FAULT=NAME` the launcher dies of `SIGKILL` at the mark of
//! that name: tests use it to show that nothing is left behind, wherever that happens. Other names are
//! faults of their own ([`Trace::fault`]).

use ringfence_sys as sys;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::time::Instant;

/// Where the marks go.
#[derive(Debug)]
pub struct Trace {
    start: Instant,
    out: Option<OwnedFd>,
    fault: Option<CString>,
}

impl Trace {
    /// Reads the two variables.
    pub fn from_environment() -> Trace {
        let descriptor = std::env::var("RINGFENCE_TRACE_LAUNCH").ok();
        let out = descriptor.and_then(|fd| sys::fd::adopt(fd.parse().ok()?));
        let fault = std::env::var("RINGFENCE_FAULT").ok();
        let fault = fault.and_then(|name| CString::new(name).ok());
        Trace { start: Instant::now(), out, fault }
    }

    /// A place on the launcher's way.
    pub fn mark(&self, name: &str) {
        if let Some(out) = &self.out {
            self.write(out, name);
        }
        if self.fault(name) {
            let _ = sys::signal::kill(std::process::id() as i32, 9);
        }
    }

    /// Whether a test wants this to go wrong.
    pub fn fault(&self, name: &str) -> bool {
        self.fault.as_ref().is_some_and(|fault| fault.as_bytes() == name.as_bytes())
    }

    /// The same for code that runs without libc.
    pub(crate) fn for_child(&self) -> sys::image::Trace {
        use std::os::fd::AsRawFd;
        let out = self.out.as_ref().map(AsRawFd::as_raw_fd);
        sys::image::trace(out, self.start.elapsed(), self.fault.as_deref())
    }

    fn write(&self, out: &OwnedFd, name: &str) {
        use std::os::fd::AsFd;
        let line = format!("{} {name}\n", self.start.elapsed().as_nanos());
        let _ = sys::fd::write_all(out.as_fd(), line.as_bytes());
    }
}
