//! Namespaces after a child was withdrawn, because its plan does not hold any more: the kernel counts those that the
//! child had towards the user's limits until it has taken them apart, by and by (`free_user_ns`, `cleanup_net`).

use crate::call::sys;
use crate::{Errno, Result};
use core::sync::atomic::{AtomicBool, Ordering};

/// How often namespaces are asked for anew, a millisecond after the other.
const MOST: u32 = 200;
/// A `struct timespec` of that.
static BETWEEN: [i64; 2] = [0, 1_000_000];

/// A child of this process, or of the one it is a copy of, was withdrawn.
static WITHDRAWN: AtomicBool = AtomicBool::new(false);

/// One was withdrawn.
pub(crate) fn note() {
    WITHDRAWN.store(true, Ordering::Relaxed);
}

/// Makes namespaces: where there is no room for them (`ENOSPC`), and those of a child that was withdrawn may still be
/// counted, again for a moment.
///
/// # Errors
/// The call's.
pub fn again<T>(mut make: impl FnMut() -> Result<T>) -> Result<T> {
    let mut tries = None;
    loop {
        match make() {
            Err(Errno::ENOSPC) => {
                let left = *tries.get_or_insert_with(|| if is_noted() { MOST } else { 0 });
                if left == 0 {
                    return Err(Errno::ENOSPC);
                }
                tries = Some(left - 1);
            }
            made => return made,
        }
        pause();
    }
}

/// By itself: what is compiled into other crates finds this crate's data by an address that is not there before libc is up.
#[inline(never)]
fn is_noted() -> bool {
    WITHDRAWN.load(Ordering::Relaxed)
}

/// See [`is_noted`].
#[inline(never)]
fn pause() {
    // SAFETY: the time is whole and lives on; what is left of it is not asked for.
    let _ = unsafe { sys!(nanosleep, BETWEEN.as_ptr(), 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_withdrawn_is_waited_for() {
        let asked = |room_after: u32, why: Errno| {
            let mut count = 0;
            let made = again(|| {
                count += 1;
                if count > room_after { Ok(()) } else { Err(why) }
            });
            (made, count)
        };
        assert_eq!(asked(1, Errno::ENOSPC), (Err(Errno::ENOSPC), 1));
        note();
        assert_eq!(asked(3, Errno::ENOSPC), (Ok(()), 4));
        assert_eq!(asked(3, Errno::EPERM), (Err(Errno::EPERM), 1));
        assert_eq!(asked(u32::MAX, Errno::ENOSPC), (Err(Errno::ENOSPC), MOST + 1));
    }
}
