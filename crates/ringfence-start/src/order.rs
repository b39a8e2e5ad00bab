//! What a launcher has its warden do by a queued signal, so that nobody else can.
//!
//! What such a signal says of its sender is the sender's own word (`rt_sigqueueinfo(2)`): who is inside can say what the
//! launcher would. So its value holds a secret beside the order: random bytes that the kernel gave the launcher at its
//! start (`AT_RANDOM`, getauxval(3)), and the warden with all of its memory. What is executed inside is given others.

/// The bits of an order; the others are the secret's.
const ORDER: u64 = 0xfff;

/// A signal's value that is this order.
pub fn seal(order: i32) -> u64 {
    secret().unwrap_or(0) & !ORDER | order as u64 & ORDER
}

/// The order that a signal's value is, if it is the launcher's.
pub fn open(value: u64) -> Option<i32> {
    ((value ^ secret()?) & !ORDER == 0).then_some((value & ORDER) as i32)
}

/// The latter half of the bytes; none where this program was not started by its own entry, as tests are.
fn secret() -> Option<u64> {
    const AT_NULL: usize = 0;
    const AT_RANDOM: usize = 25;
    let mut place = crate::memory::caller()?.environment.cast::<usize>();
    // SAFETY: the System V ABI's process stack, which lives as long as the process: the environment, null, pairs of
    // numbers, of which the last one begins with nought.
    unsafe {
        while *place != 0 {
            place = place.add(1);
        }
        place = place.add(1);
        while *place != AT_NULL {
            if *place == AT_RANDOM {
                return Some((*place.add(1) as *const u64).add(1).read_unaligned());
            }
            place = place.add(2);
        }
    }
    None
}
