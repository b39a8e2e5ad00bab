//! Pseudo terminals (pty(7)) and the mode and size of terminals (tty_ioctl(2)).

use crate::fd::owned;
use crate::{Result, sys};
use ringfence_start::job;
pub use ringfence_start::job::is_left;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Rows, columns, and pixels across and down (`struct winsize`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Size(pub [u16; 4]);

/// How a terminal treats what is typed and printed.
#[derive(Clone, Copy)]
pub struct Mode(libc::termios);

impl std::fmt::Debug for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mode").finish_non_exhaustive()
    }
}

/// The mode that a terminal has for somebody who changes it and may be killed in between: it is given back when this is
/// dropped, where the terminal is this process's by then (another program in the foreground has a mode of its own).
#[derive(Debug)]
pub struct Kept(OwnedFd, Mode);

impl Kept {
    /// That of standard input, where output goes to a terminal too.
    pub fn of_own() -> Option<Kept> {
        let (input, output) = (std::io::stdin(), std::io::stdout());
        let terminal = input.as_fd().try_clone_to_owned().ok()?;
        let mode = mode(terminal.as_fd()).ok()?;
        size(output.as_fd()).is_ok().then_some(Kept(terminal, mode))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if foreground(self.0.as_fd()) == Ok(crate::process::group()) {
            let _ = set_mode(self.0.as_fd(), &self.1);
        }
    }
}

/// A new pseudo terminal of the devpts file system behind `multiplexer` (`/dev/ptmx`): (master,
/// slave). The slave is opened by the master, not by a path that could lead elsewhere
/// (`TIOCGPTPEER`, Linux 4.13); it is nobody's controlling terminal yet.
///
/// # Errors
/// `ENOENT`, `ENOSPC` past the limit of terminals.
pub fn open(multiplexer: &CStr) -> Result<(OwnedFd, OwnedFd)> {
    let flags = libc::O_RDWR | libc::O_NOCTTY;
    let master = crate::fd::open_at(crate::fd::CWD, multiplexer, flags, 0)?;
    let unlocked = 0i32;
    // SAFETY: the operation reads the four bytes of `unlocked`.
    unsafe { sys!(ioctl, master.as_raw_fd(), libc::TIOCSPTLCK, &raw const unlocked) }?;
    let flags = flags | libc::O_CLOEXEC;
    // SAFETY: takes numbers only.
    let slave = unsafe { sys!(ioctl, master.as_raw_fd(), libc::TIOCGPTPEER, flags) }?;
    Ok((master, owned(slave)))
}

/// The size of a terminal.
///
/// # Errors
/// `ENOTTY`.
pub fn size(terminal: BorrowedFd<'_>) -> Result<Size> {
    let mut size = Size::default();
    // SAFETY: the operation fills a `struct winsize`, whose layout `Size` has.
    unsafe { sys!(ioctl, terminal.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) }?;
    Ok(size)
}

/// Sets the size of a terminal; of a master, that of its slave, whose programs are told.
///
/// # Errors
/// `ENOTTY`.
pub fn set_size(terminal: BorrowedFd<'_>, size: Size) -> Result<()> {
    // SAFETY: the operation reads a `struct winsize`, whose layout `Size` has.
    unsafe { sys!(ioctl, terminal.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) }.map(drop)
}

/// The mode of a terminal.
///
/// # Errors
/// `ENOTTY`.
pub fn mode(terminal: BorrowedFd<'_>) -> Result<Mode> {
    // SAFETY: termios is plain numbers, for which all zeroes are valid.
    let mut mode: libc::termios = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: the operation fills the kernel's shorter structure, which libc's begins with.
    unsafe { sys!(ioctl, terminal.as_raw_fd(), libc::TCGETS, &raw mut mode) }?;
    Ok(Mode(mode))
}

/// Sets the mode of a terminal, after what was written has been printed.
///
/// # Errors
/// `ENOTTY`.
pub fn set_mode(terminal: BorrowedFd<'_>, mode: &Mode) -> Result<()> {
    // SAFETY: the operation reads the kernel's shorter structure, which libc's begins with.
    unsafe { sys!(ioctl, terminal.as_raw_fd(), libc::TCSETSW, &raw const mode.0) }.map(drop)
}

/// The same, and drops what was typed and not read yet.
///
/// # Errors
/// `ENOTTY`.
pub fn set_mode_dropping_input(terminal: BorrowedFd<'_>, mode: &Mode) -> Result<()> {
    // SAFETY: the operation reads the kernel's shorter structure, which libc's begins with.
    unsafe { sys!(ioctl, terminal.as_raw_fd(), libc::TCSETSF, &raw const mode.0) }.map(drop)
}

/// The same for who may not wait: at once, whatever is still to be printed.
///
/// # Errors
/// `ENOTTY`.
pub fn set_mode_at_once(terminal: BorrowedFd<'_>, mode: &Mode) -> Result<()> {
    // SAFETY: the operation reads the kernel's shorter structure, which libc's begins with.
    unsafe { sys!(ioctl, terminal.as_raw_fd(), libc::TCSETS, &raw const mode.0) }.map(drop)
}

/// Drops what was typed and not read yet.
///
/// # Errors
/// `ENOTTY`.
pub fn drop_input(terminal: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: takes numbers only.
    unsafe { sys!(ioctl, terminal.as_raw_fd(), libc::TCFLSH, libc::TCIFLUSH) }.map(drop)
}

/// The group of processes that a terminal listens to; it must be the caller's controlling one.
///
/// # Errors
/// `ENOTTY`.
pub fn foreground(terminal: BorrowedFd<'_>) -> Result<i32> {
    job::foreground(terminal.as_raw_fd())
}

/// Makes a group of the caller's session the one that its terminal listens to. From the
/// background too: the signal that would stop the caller for it is held off meanwhile.
///
/// # Errors
/// `ENOTTY`, `EPERM` for a group of another session or none.
pub fn set_foreground(terminal: BorrowedFd<'_>, group: i32) -> Result<()> {
    job::give(terminal.as_raw_fd(), group)
}

/// Has a terminal listen to the caller's group again, where nobody is left of the one that it listens to.
pub fn take_back(terminal: BorrowedFd<'_>) {
    job::take_back(terminal.as_raw_fd());
}

/// The caller's controlling terminal.
pub fn own() -> Option<OwnedFd> {
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_NONBLOCK | libc::O_CLOEXEC;
    crate::fd::open_at(crate::fd::CWD, c"/dev/tty", flags, 0).ok()
}

/// Lets what is written to the caller's terminal be shown again, where a program stopped that for good by
/// `tcflow(TCOOFF)`, which no key undoes. `by_keys`: where a key did, be it the user's Ctrl-S, as well. From the
/// background too.
pub fn show_output(by_keys: bool) {
    const TCOOFF: i32 = 0;
    const TCOON: i32 = 1;
    let Some(terminal) = own() else { return };
    let Ok(before) = crate::signal::set_mask(crate::signal::SignalSet::ALL) else { return };
    // The kernel forgets a stop by a key where one by a program is ended.
    let first = if by_keys { TCOOFF } else { TCOON };
    for action in [first, TCOON] {
        // SAFETY: takes numbers only.
        let _ = unsafe { sys!(ioctl, terminal.as_raw_fd(), libc::TCXONC, action) };
    }
    let _ = crate::signal::set_mask(before);
}

impl Mode {
    /// Whole lines, shown as they are typed, with the keys that interrupt and end.
    #[must_use]
    pub fn lines(mut self) -> Mode {
        self.0.c_lflag |= libc::ICANON | libc::ECHO | libc::ISIG;
        self.0.c_iflag |= libc::ICRNL;
        self.0.c_oflag |= libc::OPOST | libc::ONLCR;
        self
    }

    /// As cfmakeraw(3): every byte goes through as it is.
    #[must_use]
    pub fn raw(mut self) -> Mode {
        // SAFETY: the pointer is to a termios.
        unsafe { libc::cfmakeraw(&raw mut self.0) };
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_raw_terminal_passes_every_byte_and_has_a_size() {
        let (master, slave) = open(c"/dev/ptmx").expect("a pseudo terminal");
        assert!(crate::fd::is_terminal(slave.as_raw_fd()));
        let former = mode(slave.as_fd()).expect("a terminal");
        set_mode(slave.as_fd(), &former.raw()).expect("a terminal");
        crate::fd::write_all(master.as_fd(), b"\x03\x04\x1a\r").expect("written");
        let mut buffer = [0; 16];
        assert_eq!(crate::fd::read(slave.as_fd(), &mut buffer), Ok(4));
        assert_eq!(&buffer[..4], b"\x03\x04\x1a\r");
        set_size(master.as_fd(), Size([30, 100, 0, 0])).expect("a terminal");
        assert_eq!(size(slave.as_fd()), Ok(Size([30, 100, 0, 0])));
        let (read, _write) = crate::fd::pipe().expect("a pipe");
        assert!(size(read.as_fd()).is_err() && mode(read.as_fd()).is_err());
    }
}
