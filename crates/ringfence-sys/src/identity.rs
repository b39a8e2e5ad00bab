//! Who we are.

use crate::sys;

/// The effective user.
pub fn user() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { sys!(geteuid) }.unwrap_or(0) as u32
}

/// The effective group.
pub fn group() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { sys!(getegid) }.unwrap_or(0) as u32
}

/// The user's home: what `HOME` says, or else `/etc/passwd`.
///
/// Not by `getpwuid(3)`, which [`std::env::home_dir`] asks: for a user who is not in that file it
/// loads the host's NSS modules, which ends a static program by SIGSEGV.
pub fn home() -> Option<std::path::PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    if let Some(home) = std::env::var_os("HOME").filter(|home| !home.is_empty()) {
        return Some(home.into());
    }
    let users = std::fs::read("/etc/passwd").ok()?;
    let number = user().to_string();
    let mut fields =
        users.split(|&byte| byte == b'\n').map(|line| line.split(|&byte| byte == b':'));
    fields.find_map(|mut fields| {
        let own = fields.nth(2)? == number.as_bytes();
        let home = fields.nth(2).filter(|home| own && !home.is_empty())?;
        Some(std::ffi::OsStr::from_bytes(home).into())
    })
}

/// Kernel release (`6.1.0-13-amd64`), from `uname(2)`.
pub fn kernel_release() -> String {
    // SAFETY: utsname is plain bytes, for which all zeroes are valid.
    let mut name: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: `name` is room for the structure that the call fills.
    if unsafe { sys!(uname, &raw mut name) }.is_err() {
        return String::new();
    }
    name.release.iter().take_while(|&&c| c != 0).map(|&c| c as u8 as char).collect()
}

/// Random bytes of the kernel (`getrandom(2)`), made of the clock's if it has none yet: 256 at most.
pub fn random_bytes<const COUNT: usize>() -> [u8; COUNT] {
    let mut bytes = [0; COUNT];
    const NONBLOCK: u32 = 1;
    // SAFETY: `bytes` is so many writable bytes.
    if unsafe { sys!(getrandom, bytes.as_mut_ptr(), COUNT, NONBLOCK) } != Ok(COUNT) {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let bits = now.map_or(0, |now| now.subsec_nanos()) ^ std::process::id();
        bytes.iter_mut().zip(bits.to_ne_bytes().iter().cycle()).for_each(|(to, bits)| *to = *bits);
    }
    bytes
}

/// Four of them as a number.
pub fn random() -> u32 {
    u32::from_ne_bytes(random_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_draws_are_the_same() {
        let draws = [random_bytes::<16>(), random_bytes()];
        assert_ne!(draws[0], draws[1]);
        // All of them are drawn: what is zero in so many is not.
        let all = (0..64).fold([0; 16], |all: [u8; 16], _| {
            let drawn: [u8; 16] = random_bytes();
            std::array::from_fn(|at| all[at] | drawn[at])
        });
        assert!(all.iter().all(|&byte| byte != 0), "{all:?}");
    }
}
