//! Extended attributes: those that are a user's own (`user.`).
//!
//! Others are about the host: its labels, its capabilities, its lists of who may do what are the
//! host kernel's to obey, and mean nothing in the guest. For them there is no support (`EOPNOTSUPP`),
//! which programs ask for once and remember.

use super::abi::{Body, Fields};
use super::{Files, Result, wanted};
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// What names begin with that are served.
const OWN: &[u8] = b"user.";
/// The longest value, and the longest list of names (xattr(7)).
const LONGEST: usize = 64 * 1024;

/// The next field as the name of an attribute that is served.
fn name<'a>(f: &mut Fields<'a>) -> Result<&'a OsStr> {
    let name = wanted(f.text())?;
    if !name.starts_with(OWN) {
        return Err(Errno::OPNOTSUPP);
    }
    Ok(OsStr::from_bytes(name))
}

/// What was found, or only how long it is when the guest has no room.
fn answer(found: &[u8], room: u32) -> Result<Body> {
    let mut body = Body::default();
    if room == 0 {
        body.word(found.len() as u32).word(0);
    } else if found.len() > room as usize {
        return Err(Errno::RANGE);
    } else {
        body.0.extend_from_slice(found);
    }
    Ok(body)
}

impl Files {
    /// `FUSE_SETXATTR`
    pub(super) fn set_attribute(&mut self, node: u64, f: &mut Fields<'_>) -> Result<()> {
        let (size, flags) = (wanted(f.word())? as usize, wanted(f.word())?);
        let name = name(f)?;
        let value = wanted(f.0.get(..size))?;
        let named = self.named(node)?;
        let flags = XattrFlags::from_bits(flags).ok_or(Errno::INVAL)?;
        rustix::fs::setxattr(Files::through(&named), name, value, flags)
    }

    /// `FUSE_GETXATTR`
    pub(super) fn attribute(&mut self, node: u64, f: &mut Fields<'_>) -> Result<Body> {
        let room = wanted(f.word())?;
        f.word();
        let name = name(f)?;
        let named = self.named(node)?;
        let mut value = vec![0; LONGEST];
        let count = rustix::fs::getxattr(Files::through(&named), name, &mut value[..])?;
        answer(&value[..count], room)
    }

    /// `FUSE_LISTXATTR`
    pub(super) fn list_attributes(&mut self, node: u64, f: &mut Fields<'_>) -> Result<Body> {
        let room = wanted(f.word())?;
        let named = self.named(node)?;
        let mut names = vec![0; LONGEST];
        let count = rustix::fs::listxattr(Files::through(&named), &mut names[..])?;
        let own: Vec<u8> = names[..count]
            .split_inclusive(|&byte| byte == 0)
            .filter(|name| name.starts_with(OWN))
            .flatten()
            .copied()
            .collect();
        answer(&own, room)
    }

    /// `FUSE_REMOVEXATTR`
    pub(super) fn remove_attribute(&mut self, node: u64, f: &mut Fields<'_>) -> Result<()> {
        let name = name(f)?;
        let named = self.named(node)?;
        rustix::fs::removexattr(Files::through(&named), name)
    }
}
