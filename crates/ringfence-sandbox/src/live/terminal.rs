//! Between the user's terminal and one inside: every byte goes through as it is, and the inner one
//! makes signals of Ctrl-C and its like.

use ringfence_sys as sys;
use std::io::{Stdin, Write, stdin, stdout};
use std::os::fd::{AsFd, OwnedFd};
use sys::Errno;
use sys::fd::{Ready, Watched};
use sys::terminal::Mode;

/// Carries bytes both ways, and puts the user's terminal back when it is dropped.
pub(super) struct Relay {
    input: Stdin,
    master: OwnedFd,
    /// How the user's terminal was.
    former: Option<Mode>,
    /// Typed, and not taken by the inner terminal yet.
    typed: Vec<u8>,
    /// The user's terminal gives no more.
    input_ended: bool,
    /// Nobody holds the inner terminal any more.
    output_ended: bool,
}

impl Relay {
    pub fn new(master: OwnedFd) -> Relay {
        let input = stdin();
        let former = sys::terminal::mode(input.as_fd()).ok();
        // What is typed must not stop what is printed.
        let _ = sys::fd::never_wait(master.as_fd());
        let typed = Vec::new();
        let (input_ended, output_ended) = (false, false);
        let relay = Relay { input, master, former, typed, input_ended, output_ended };
        relay.resume();
        relay
    }

    /// What to watch: standard input, the master.
    pub fn watched(&self) -> [Watched<'_>; 2] {
        let input = Watched {
            fd: self.input.as_fd(),
            read: self.typed.is_empty() && !self.input_ended,
            write: false,
        };
        let master = Watched {
            fd: self.master.as_fd(),
            read: !self.output_ended,
            write: !self.typed.is_empty() && !self.output_ended,
        };
        [input, master]
    }

    /// Carries what is ready.
    pub fn carry(&mut self, ready: &[Ready]) {
        let [input, master] = ready else { return };
        if input.read {
            let mut buffer = [0; 4096];
            match sys::fd::read(self.input.as_fd(), &mut buffer) {
                Ok(0) => self.input_ended = true,
                Ok(count) => self.typed.extend_from_slice(&buffer[..count]),
                Err(Errno::EAGAIN) => {}
                Err(_) => self.input_ended = true,
            }
        }
        if !self.typed.is_empty() {
            match sys::fd::write(self.master.as_fd(), &self.typed) {
                Ok(count) => drop(self.typed.drain(..count)),
                Err(Errno::EAGAIN) => {}
                Err(_) => self.typed.clear(),
            }
        }
        if master.read {
            self.print();
        }
    }

    /// Prints what there is, once; false when there is no more now.
    fn print(&mut self) -> bool {
        let mut buffer = [0; 16 * 1024];
        match sys::fd::read(self.master.as_fd(), &mut buffer) {
            Ok(count @ 1..) => {
                let mut out = stdout().lock();
                // A terminal that is gone sends SIGHUP.
                let _ = out.write_all(&buffer[..count]).and_then(|()| out.flush());
                true
            }
            Err(Errno::EAGAIN) => false,
            // EIO: the last one closed it.
            _ => {
                self.output_ended = true;
                false
            }
        }
    }

    /// Prints what the command left.
    pub fn print_rest(&mut self) {
        // What its children print from now on is nobody's: an end that never comes must not be waited for.
        let _ = (0..256).find(|_| !self.print());
    }

    /// The user's terminal has another size.
    pub fn resize(&self) {
        if let Ok(size) = sys::terminal::size(self.input.as_fd()) {
            let _ = sys::terminal::set_size(self.master.as_fd(), size);
        }
    }

    /// Gives the user's terminal back, for a while.
    pub fn restore(&self) {
        if let Some(former) = &self.former {
            let _ = sys::terminal::set_mode(self.input.as_fd(), former);
        }
    }

    /// Takes it again.
    pub fn resume(&self) {
        if let Some(former) = &self.former {
            let _ = sys::terminal::set_mode(self.input.as_fd(), &former.raw());
        }
        self.resize();
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.restore();
    }
}
