//! The process tier's directory after the command: it is removed before libc is up, if nothing is in it but what
//! was made for it.

use crate::brief::Room;
use crate::bytes::{Text, before, equal, from, last_position, position};
use crate::call::{close, sys};
use crate::image::Image;

/// Removes the process tier's directory, if the command left nothing in it but what was made for it.
pub(crate) fn remove(image: &Image, room: &mut Room) -> bool {
    const AT_REMOVEDIR: usize = 0x200;
    let header = image.header();
    let path = image.bytes(header.private);
    if path.is_empty() {
        return true;
    }
    let Some(slash) = last_position(path, b'/') else { return false };
    // A string of the image, which goes on to its zero byte.
    let name = from(path, slash + 1).as_ptr();
    let mut above = Text::new(&mut room.lines);
    above.push(before(path, slash));
    let Some(parent) = above.terminated() else { return false };
    let Some(above) = own_directory(-100, parent) else { return false };
    let Some(directory) = own_directory(above, name) else {
        close(above);
        return false;
    };
    // The last made first: `/` and a directory, or a link.
    let made = image.bytes(header.made);
    let (mut at, mut removed) = (0, true);
    let mut within = Parent { of: directory, path: b"", opened: -1 };
    while removed && at < made.len() {
        let inner = from(made, at + 1);
        let end = position(inner, 0).unwrap_or(inner.len());
        let flags = if made.get(at) == Some(&b'/') { AT_REMOVEDIR } else { 0 };
        removed = within.unlink(before(inner, end), flags, &mut room.walk).is_some();
        at += 1 + end + 1;
    }
    within.close();
    // SAFETY: both are strings. Of the parent only the last one out takes the name; what killed launchers
    // left in it is removed by one that has libc.
    unsafe {
        removed = removed && sys!(unlinkat, above, name, AT_REMOVEDIR).is_ok();
        let _ = removed && sys!(unlinkat, -100_isize, parent, AT_REMOVEDIR).is_ok();
    }
    close(directory);
    close(above);
    removed
}

/// Opens a directory of the user's own, and no link to one.
fn own_directory(directory: i32, path: *const u8) -> Option<i32> {
    const PATH_DIRECTORY_NOFOLLOW_CLOEXEC: usize =
        0o12_000_000 | (crate::flags::DIRECTORY | crate::flags::NO_FOLLOW) as usize;
    // SAFETY: the path ends with a zero byte.
    let opened =
        unsafe { sys!(openat, directory as isize, path, PATH_DIRECTORY_NOFOLLOW_CLOEXEC, 0) };
    let opened = opened.ok()? as i32;
    if crate::machine::owned(opened).is_err() {
        close(opened);
        return None;
    }
    Some(opened)
}

/// A directory below one that the command could change: no component on the way may have become a link, which
/// would lead to anything of the user's.
struct Parent<'a> {
    of: i32,
    path: &'a [u8],
    /// Negative where there is none.
    opened: i32,
}

impl<'a> Parent<'a> {
    /// Removes a name. Names that follow each other are in the same directory, more often than not.
    fn unlink(&mut self, path: &'a [u8], flags: usize, room: &mut [u8]) -> Option<()> {
        let (above, name) = match last_position(path, b'/') {
            Some(slash) => (before(path, slash), from(path, slash + 1)),
            None => (&b"."[..], path),
        };
        if self.opened < 0 || !equal(self.path, above) {
            self.open(above, room)?;
        }
        // A string of the image, which goes on to its zero byte.
        // SAFETY: as said.
        unsafe { sys!(unlinkat, self.opened, name.as_ptr(), flags) }.ok().map(drop)
    }

    fn open(&mut self, path: &'a [u8], room: &mut [u8]) -> Option<()> {
        const RESOLVE_BENEATH_WITHOUT_LINKS: u64 = 0x8 | 0x2 | 0x4;
        const O_PATH_CLOEXEC: u64 = 0o12_000_000;
        self.close();
        let mut text = Text::new(room);
        text.push(path);
        let text = text.terminated()?;
        let how =
            [O_PATH_CLOEXEC | u64::from(crate::flags::DIRECTORY), 0, RESOLVE_BENEATH_WITHOUT_LINKS];
        // SAFETY: the path ends with a zero byte, `how` is a whole struct open_how.
        self.opened = unsafe { sys!(openat2, self.of, text, how.as_ptr(), 24) }.ok()? as i32;
        self.path = path;
        Some(())
    }

    fn close(&mut self) {
        if self.opened >= 0 {
            close(self.opened);
        }
        self.opened = -1;
    }
}
