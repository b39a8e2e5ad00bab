//! The view's end, left to the kernel.
//!
//! A mount namespace is taken apart by whoever lets go of it last: some fifty mounts, a grace period of RCU, the file
//! systems in memory; half of what the warden's end takes, for which its launcher waits. So the namespace is held by a
//! message that lies unread in a socket, and the socket by another message in itself. When the warden's descriptors
//! are gone, only the kernel's collector of such circles finds it (`net/unix/garbage.c`), in a thread of its own, and
//! lets go of the namespace there: some milliseconds after the run nothing is left of the view.
//!
//! Nobody can enter it meanwhile: there is no process in it, and no descriptor that anybody could receive.

use crate::Result;
use crate::call::{close, sys};
use crate::machine::hand_out;
use crate::stamp::AT_FDCWD;

/// Has the caller's mount namespace outlive it by a moment. Where that cannot be done (no `/proc` in the view, no
/// descriptors left), its end is waited for, as that of others.
pub(crate) fn leave_to_the_kernel() {
    const READ_CLOEXEC: usize = 0o2_000_000;
    let path = c"/proc/self/ns/mnt".as_ptr();
    // SAFETY: the path ends with a zero byte.
    let opened = unsafe { sys!(openat, AT_FDCWD, path, READ_CLOEXEC, 0) };
    if let Ok(namespace) = opened {
        let _ = hold(namespace as i32);
        close(namespace as i32);
    }
}

/// Puts a descriptor into a circle of sockets, which is closed when this process ends.
fn hold(namespace: i32) -> Result<()> {
    let (near, far) = crate::entry::socket_pair()?;
    let held = hand_out(near, b'n', namespace).and_then(|()| hand_out(near, b's', far));
    close(near);
    held
}
