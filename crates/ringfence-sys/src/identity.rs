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

/// Random bits of the kernel (`getrandom(2)`), the clock's if it has none yet.
pub fn random() -> u32 {
    let mut bits = 0u32;
    const NONBLOCK: u32 = 1;
    // SAFETY: `bits` is four writable bytes.
    if unsafe { sys!(getrandom, &raw mut bits, 4, NONBLOCK) } == Ok(4) {
        return bits;
    }
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| now.subsec_nanos()) ^ std::process::id()
}
