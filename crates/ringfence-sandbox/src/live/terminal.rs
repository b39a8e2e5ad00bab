//! Between the user's terminal and one inside: every byte goes through as it is, and the inner one
//! makes signals of Ctrl-C and its like.

use ringfence_sys as sys;
use std::io::{Stdin, stderr, stdin, stdout};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use sys::Errno;
use sys::fd::{Ready, Watched};
use sys::terminal::Mode;

/// Where a command prints that prints on a terminal; nothing where it does not.
pub(super) fn screen() -> Option<OwnedFd> {
    let own = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().ok();
    if sys::fd::is_terminal(1) {
        return own(stdout().as_fd());
    }
    sys::fd::is_terminal(2).then(|| own(stderr().as_fd())).flatten()
}

/// Carries bytes both ways, and puts the user's terminal back when it is dropped.
pub(super) struct Relay {
    input: Stdin,
    screen: OwnedFd,
    master: OwnedFd,
    /// How the user's terminal was, if what is typed is the command's.
    former: Option<Mode>,
    /// Typed, and not taken by the inner terminal yet.
    typed: Vec<u8>,
    /// The user's terminal gives no more.
    input_ended: bool,
    /// Nobody holds the inner terminal any more.
    output_ended: bool,
}

impl Relay {
    /// Nothing where there is no terminal to print on. What is typed is carried where standard output
    /// is one as well.
    pub fn new(master: OwnedFd) -> Option<Relay> {
        let (input, screen) = (stdin(), screen()?);
        let typed_here = sys::fd::is_terminal(0) && sys::fd::is_terminal(1);
        let former = typed_here.then(|| sys::terminal::mode(input.as_fd()).ok()).flatten();
        // What is typed must not stop what is printed.
        let _ = sys::fd::never_wait(master.as_fd());
        let typed = Vec::new();
        let (input_ended, output_ended) = (!typed_here, false);
        let relay = Relay { input, screen, master, former, typed, input_ended, output_ended };
        relay.resume();
        Some(relay)
    }

    /// Whether what is typed is the command's.
    pub fn takes_keys(&self) -> bool {
        self.former.is_some()
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
                // A terminal that is gone sends SIGHUP.
                let _ = sys::fd::write_all(self.screen.as_fd(), &buffer[..count]);
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
        if let Ok(size) = sys::terminal::size(self.screen.as_fd()) {
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
