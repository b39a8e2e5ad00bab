//! Supervised calls that have a file signal its owner when there is input: `O_ASYNC` by `fcntl(2)`, and `FIOASYNC`.
//!
//! A terminal without an owner takes its foreground group for one (`__tty_fasync` in drivers/tty/tty_io.c), which no
//! number names, so that no PID namespace is in the way: by `F_SETSIG` it would send the signal of the command's
//! choice to the launcher, or to the user's shell. Only a Landlock domain keeps such signals inside, and not each tier
//! has one for them. So they are had of everything but devices; the launcher sets the flag, on the file that it has
//! looked at.

use crate::plan::{CallRule, Test, Verdict};
use ringfence_sys as sys;
use std::os::fd::{AsFd, BorrowedFd};
use sys::notify::{self, Notification};
use sys::{Errno, Sysno, caller};

const F_SETFL: u32 = 4;
const FIOASYNC: u32 = 0x5452;

/// These calls, and what their arguments are then.
pub(crate) const CALLS: [(&str, &[(u8, Test)]); 2] = [
    ("fcntl", &[(1, Test::Equals(F_SETFL)), (2, Test::AnyBit(sys::fd::ASYNCHRONOUS as u32))]),
    ("ioctl", &[(1, Test::Equals(FIOASYNC))]),
];

/// Whether it is one of these calls.
pub(crate) fn is(call: &Notification) -> bool {
    call.call == Sysno::fcntl.id() || call.call == Sysno::ioctl.id() && request(call) == FIOASYNC
}

/// Whether it is a rule for one of them.
pub(crate) fn is_ruled_by(rule: &CallRule) -> bool {
    rule.verdict == Verdict::Supervise
        && CALLS.iter().any(|(call, tests)| rule.call == *call && rule.tests == *tests)
}

/// The kernel takes the low half.
fn request(call: &Notification) -> u32 {
    call.arguments[1] as u32
}

/// Answers a call that waits.
pub(crate) fn answer(listener: BorrowedFd<'_>, call: &Notification) {
    // Gone meanwhile: nobody waits for the answer.
    let _ = notify::finish(listener, call.id, set(listener, call));
}

fn set(listener: BorrowedFd<'_>, call: &Notification) -> Result<(), Errno> {
    let file = caller::descriptor(listener, call, call.arguments[0] as i32)?;
    let before = sys::fd::flags(file.as_fd())?;
    let flags = if request(call) == FIOASYNC {
        let mut on = [0; 4];
        if caller::read_memory(listener, call, call.arguments[2], &mut on)? < on.len() {
            return Err(Errno::EFAULT);
        }
        let off = before & !sys::fd::ASYNCHRONOUS;
        if on == [0; 4] { off } else { off | sys::fd::ASYNCHRONOUS }
    } else {
        // What the launcher may ask for and the caller may not, stays as it is.
        let own = sys::fd::LEAVES_NO_TIME;
        call.arguments[2] as usize & !own | before & own
    };
    if flags & sys::fd::ASYNCHRONOUS != 0 && sys::fd::is_device(file.as_fd())? {
        return Err(Errno::EPERM);
    }
    sys::fd::set_flags(file.as_fd(), flags)
}
