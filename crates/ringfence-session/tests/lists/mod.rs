//! Access lists (acl(5)), as the kernel has them in an attribute.
#![allow(clippy::disallowed_macros, reason = "whoever runs it reads what it says")]

use rustix::fs::XattrFlags;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

pub const ACCESS: &str = "system.posix_acl_access";

/// One more user may do this; the owner may write, the group and others read, and no more than `mask` counts.
pub fn list(user: u32, may: u16, mask: u16) -> Vec<u8> {
    let none = u32::MAX;
    let entries = [(1, 6, none), (2, may, user), (4, 4, none), (0x10, mask, none), (0x20, 4, none)];
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, may, who) in entries {
        bytes.extend(u16::to_le_bytes(tag));
        bytes.extend(u16::to_le_bytes(may));
        bytes.extend(u32::to_le_bytes(who));
    }
    bytes
}

/// Sets one; false where this file system has none.
pub fn set(path: &Path, name: &str, value: &[u8]) -> bool {
    match rustix::fs::setxattr(path, name, value, XattrFlags::empty()) {
        Err(rustix::io::Errno::OPNOTSUPP) => {
            eprintln!("left out: this file system has no access lists");
            false
        }
        done => done.map(|()| true).unwrap(),
    }
}

/// The one of a path, and its mode.
pub fn get(path: &Path, name: &str) -> (Option<Vec<u8>>, u32) {
    let mut value = [0u8; 256];
    let length = rustix::fs::getxattr(path, name, &mut value[..]).ok();
    let mode = path.metadata().unwrap().mode() & 0o7777;
    (length.map(|length| value[..length].to_vec()), mode)
}
