//! The session bus inside: a filter in front of the user's own, by xdg-dbus-proxy(1).
//!
//! ```text
//! program ──connect──► socket in the view ──► launcher: relay ──► xdg-dbus-proxy ──► the user's bus
//!                      (made by the child)    (a thread)          (on a nameless file system)
//! ```
//!
//! Nothing of it but the listening socket is there when the command starts, so that a run pays next
//! to nothing for a bus that it does not use, and its plan can be kept. The launcher starts the
//! filter when the first program connects, and passes connections on to it, bytes and descriptors as
//! they come. The bus sees the filter, never the launcher.
//!
//! The filter listens on a file system that the child made for it and that is mounted nowhere:
//! neither the host nor the sandbox has a name for its socket, and nothing is left of it, whoever
//! is killed.

mod framing;
mod look;
mod relay;

pub use look::look;

use crate::plan;
use relay::Relay;
use ringfence_sys as sys;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

/// The filter's program.
pub(crate) const PROXY: &str = "xdg-dbus-proxy";
/// Says where the bus is.
pub(crate) const VARIABLE: &str = "DBUS_SESSION_BUS_ADDRESS";
/// Names a file for what is asked of the bus, in the filter's words. Then there is a filter
/// without rules too, where it can be: what is asked is seen, and nothing of it granted.
pub const TRACE: &str = "RINGFENCE_TRACE_BUS";

/// The socket's name where the filter listens.
const NAME: &str = "bus";
/// How long the filter may take to end by itself, in milliseconds; it writes down what it noted.
const GRACE: i32 = 1000;

/// The session bus of a sandbox, as its launcher has it.
#[derive(Debug, Default)]
pub(crate) enum Bus {
    /// There is none, or none any more.
    #[default]
    None,
    /// Nobody has connected yet.
    Waiting {
        /// Where programs connect.
        listener: OwnedFd,
        /// Where the filter can listen.
        room: OwnedFd,
    },
    /// Somebody has.
    Served {
        /// Ends it.
        _service: Service,
    },
}

impl Bus {
    /// Takes what the child hands out.
    pub fn of(passed: Vec<OwnedFd>) -> Bus {
        match <[OwnedFd; 2]>::try_from(passed) {
            Ok([listener, room]) => Bus::Waiting { listener, room },
            Err(_) => Bus::None,
        }
    }

    /// What to watch: readable means that somebody inside has connected.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Bus::Waiting { listener, .. } => Some(listener.as_fd()),
            Bus::None | Bus::Served { .. } => None,
        }
    }

    /// Starts serving. Where that cannot be the user is told, and who connects is refused.
    pub fn serve(&mut self, plan: Option<&plan::Bus>) {
        if let (Bus::Waiting { listener, room }, Some(plan)) = (std::mem::take(self), plan) {
            match Service::start(listener, room, plan) {
                Ok(service) => *self = Bus::Served { _service: service },
                Err(why) => sys::say!("ringfence: {why}"),
            }
        }
    }
}

/// A filter that runs, and the thread that passes connections on to it. Dropping it ends both.
#[derive(Debug)]
pub(crate) struct Service {
    filter: Child,
    /// The filter again: its number may be another's once it has ended.
    pidfd: OwnedFd,
    /// Closed, it ends the thread, which closes what the filter lives for.
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    /// Starts the filter, and serves who connects as soon as it is ready. `room` is where it can
    /// listen.
    ///
    /// # Errors
    /// A sentence.
    fn start(listener: OwnedFd, room: OwnedFd, bus: &plan::Bus) -> Result<Service, String> {
        let failed = |error: std::io::Error| {
            format!("cannot start {}: {error}; there is no session bus", bus.program.display())
        };
        let (alive, theirs) = UnixStream::pair().map_err(failed)?;
        let (stop, stopped) = UnixStream::pair().map_err(failed)?;
        let log = bus.trace.as_ref().map(std::fs::File::create).transpose().map_err(failed)?;
        let mut command = Command::new(&bus.program);
        command
            .arg("--fd=0")
            .args([&bus.address, NAME, "--filter"])
            .args(bus.grants.iter().map(|grant| &grant.argument))
            .args(log.is_some().then_some("--log"))
            // In the new process, which has this descriptor until it executes the filter.
            .current_dir(format!("/proc/self/fd/{}", room.as_raw_fd()))
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(log.map_or_else(Stdio::null, Stdio::from))
            // Ctrl-C is for the command.
            .process_group(0);
        let mut filter = command.spawn().map_err(failed)?;
        // What holds the filter's end of `alive` open must be the filter alone.
        drop(command);
        let started = sys::process::pidfd(filter.id() as i32)
            .map_err(|errno| std::io::Error::from_raw_os_error(errno.into_raw()))
            .and_then(|pidfd| {
                let relay = Relay { listener, stopped, alive, room };
                let thread = std::thread::Builder::new().name("bus".to_owned());
                Ok((pidfd, thread.spawn(move || relay.run())?))
            });
        match started {
            Ok((pidfd, thread)) => {
                Ok(Service { filter, pidfd, stop: Some(stop), thread: Some(thread) })
            }
            Err(error) => {
                // It ends by itself: what it lives for is closed already.
                let _ = filter.wait();
                Err(failed(error))
            }
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = sys::fd::poll_readable(&[self.pidfd.as_fd()], GRACE);
        if !matches!(ended.as_deref(), Ok([true])) {
            let _ = sys::signal::send(self.pidfd.as_fd(), 9);
        }
        // The watch over the sandbox may have taken note of its end already.
        let _ = self.filter.wait();
        // A thread that panicked has ended too.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
