//! Whether the host is still as a plan was derived from it.

use crate::bytes::{equal, string};
use crate::call::sys;
use crate::image::{Image, Stamp, stamp_kind};
use crate::key::Caller;
use crate::{Errno, Result};
use core::mem::MaybeUninit;

pub(crate) const AT_FDCWD: usize = -100_isize as usize;
const AT_SYMLINK_NOFOLLOW: usize = 0x100;
/// `AT_EMPTY_PATH`: the descriptor itself.
pub const EMPTY_PATH: usize = 0x1000;

#[derive(Clone, Copy)]
#[repr(C)]
struct Time {
    seconds: i64,
    nanoseconds: u32,
    padding: i32,
}

impl Time {
    fn nanoseconds(self) -> u64 {
        (self.seconds as u64).wrapping_mul(1_000_000_000).wrapping_add(u64::from(self.nanoseconds))
    }
}

/// `struct statx` (statx(2)).
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Stat {
    mask: u32,
    block_size: u32,
    attributes: u64,
    /// Hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    gid: u32,
    /// Type and permission bits.
    pub mode: u16,
    padding: u16,
    inode: u64,
    /// Bytes.
    pub size: u64,
    blocks: u64,
    attributes_mask: u64,
    accessed: Time,
    born: Time,
    changed: Time,
    modified: Time,
    device_of: [u32; 2],
    device: [u32; 2],
    mount: u64,
    rest: [u64; 13],
}

impl Stat {
    /// What makes a file the same as it was: device, inode, size, modification and change time.
    pub fn identity(&self) -> [u64; 5] {
        let device = u64::from(self.device[0]) << 32 | u64::from(self.device[1]);
        let (modified, changed) = (self.modified.nanoseconds(), self.changed.nanoseconds());
        [device, self.inode, self.size, modified, changed]
    }

    /// The mount it was found in; none before Linux 5.8.
    pub fn mount(&self) -> Option<u64> {
        const STATX_MNT_ID: u32 = 0x1000;
        (self.mask & STATX_MNT_ID != 0).then_some(self.mount)
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.mode & 0o170_000 == 0o040_000
    }

    /// Whether it is a directory of the caller's own that none of these can write to.
    pub fn is_own_directory(&self, others: u16) -> bool {
        // SAFETY: takes nothing.
        let user = unsafe { sys!(geteuid) }.unwrap_or(usize::MAX);
        self.is_directory() && self.uid as usize == user && self.mode & others == 0
    }

    /// Whether it is a socket.
    pub fn is_socket(&self) -> bool {
        self.mode & 0o170_000 == 0o140_000
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.mode & 0o170_000 == 0o100_000
    }

    /// The numbers of a character device.
    pub fn character_device(&self) -> Option<[u32; 2]> {
        (self.mode & 0o170_000 == 0o020_000).then_some(self.device_of)
    }

    /// Whether it is a symbolic link.
    pub fn is_link(&self) -> bool {
        self.mode & 0o170_000 == 0o120_000
    }
}

/// Room for an answer of [`look`]. Filled in place: it is too large to be moved without libc.
pub struct Looked(MaybeUninit<Stat>);

impl Looked {
    /// Empty.
    pub const fn new() -> Looked {
        Looked(MaybeUninit::uninit())
    }
}

impl Default for Looked {
    fn default() -> Looked {
        Looked::new()
    }
}

/// [`look`] at what the last link leads to.
pub(crate) const FOLLOWED: usize = AT_SYMLINK_NOFOLLOW;

/// `statx(2)`, the last link not followed, or [`FOLLOWED`]. `path` must end with a zero byte.
///
/// # Errors
/// The kernel's.
pub fn look(room: &mut Looked, directory: i32, path: *const u8, flags: usize) -> Result<&Stat> {
    const BASIC: usize = 0x7ff;
    let flags = flags ^ AT_SYMLINK_NOFOLLOW;
    let place = room.0.as_mut_ptr();
    // SAFETY: the path is the caller's, the room has the size of the kernel's structure.
    unsafe { sys!(statx, directory as isize, path, flags, BASIC, place) }?;
    // SAFETY: the kernel has filled it; it is numbers only.
    Ok(unsafe { room.0.assume_init_ref() })
}

/// A path must lead to what a descriptor is: it may have been removed since it was opened. `path` must end
/// with a zero byte.
pub(crate) fn leads_to(fd: i32, path: *const u8) -> Result<()> {
    let (mut first, mut second) = (Looked::new(), Looked::new());
    let opened = look(&mut first, fd, c"".as_ptr().cast(), EMPTY_PATH)?;
    let there = look(&mut second, AT_FDCWD as i32, path, 0)?;
    let same = opened.device == there.device && opened.inode == there.inode;
    if same { Ok(()) } else { Err(Errno::ESTALE) }
}

/// A `NAME=value` string of the environment by its name.
///
/// # Safety
/// `environment` must be a null-terminated list of strings.
pub unsafe fn variable<'a>(environment: *const *const u8, name: &[u8]) -> Option<&'a [u8]> {
    let mut at = environment;
    loop {
        // SAFETY: the list goes on until the null pointer.
        let entry = unsafe { *at };
        if entry.is_null() {
            return None;
        }
        // The names of the others are not measured, nor are their values: dozens are asked for.
        let mut same = 0;
        // SAFETY: as above; strings end with a zero byte, which no name has, so that nothing behind it is read.
        unsafe {
            while name.get(same) == Some(&*entry.add(same)) {
                same += 1;
            }
            if same == name.len() && *entry.add(same) == b'=' {
                return Some(string(entry.add(same + 1)));
            }
        }
        // SAFETY: as above.
        at = unsafe { at.add(1) };
    }
}

/// Whether everything is as the stamps say, for a command that stands at this place among the
/// arguments.
pub fn all_hold(image: &Image, caller: &Caller, command: usize) -> bool {
    let stamps = image.stamps();
    let mut at = 0;
    while let Some(stamp) = stamps.get(at) {
        at += 1;
        if stamp.kind == stamp_kind::UNCHANGED {
            if is_unchanged(image, stamp) {
                at += stamp.text as usize;
            }
        } else if holds(image, stamp, caller, command) != Some(true) {
            return false;
        }
    }
    true
}

/// Whether it is this very directory, to which nothing was added, and from which nothing was taken away.
fn is_unchanged(image: &Image, stamp: &Stamp) -> bool {
    let Some(name) = image.pointer(u64::from(stamp.name), 1) else { return false };
    let mut looked = Looked::new();
    look(&mut looked, -100, name, 0).is_ok_and(|stat| same(stat, &stamp.identity))
}

/// Whether it is this very file or directory, unchanged.
pub(crate) fn same(stat: &Stat, identity: &[u64; 5]) -> bool {
    let now = stat.identity();
    let mut at = 0;
    while at < now.len() && now.get(at) == identity.get(at) {
        at += 1;
    }
    at == now.len()
}

/// Whether a path is a link to another one.
#[inline(never)]
fn is_link_to(name: *const u8, target: &[u8]) -> bool {
    const LONGEST: usize = 4096;
    let mut room = MaybeUninit::<[u8; LONGEST]>::uninit();
    let first = room.as_mut_ptr().cast::<u8>();
    // SAFETY: the path is a string, the room is writable for so many bytes, and the kernel has filled as many as it says.
    unsafe {
        sys!(readlinkat, AT_FDCWD, name, first, LONGEST)
            .is_ok_and(|length| equal(core::slice::from_raw_parts(first, length), target))
    }
}

fn holds(image: &Image, stamp: &Stamp, caller: &Caller, command: usize) -> Option<bool> {
    let name = image.pointer(u64::from(stamp.name), 1)?.cast_const();
    let text = image.pointer(u64::from(stamp.text), 1)?.cast_const();
    // SAFETY: strings in the data end within it.
    let (name_bytes, text_bytes) = unsafe { (string(name), string(text)) };
    let mut looked = Looked::new();
    Some(match stamp.kind {
        stamp_kind::ABSENT | stamp_kind::HIDDEN | stamp_kind::PLAIN | stamp_kind::LINK => {
            // Mostly it is none: where it leads is read when that is asked for.
            let mut first = 0u8;
            // SAFETY: the path is a string, the room is writable for one byte.
            match unsafe { sys!(readlinkat, AT_FDCWD, name, &raw mut first, 1) } {
                Ok(_) => stamp.kind == stamp_kind::LINK && is_link_to(name, text_bytes),
                // It is there, and no link.
                Err(Errno::EINVAL) => stamp.kind == stamp_kind::PLAIN,
                Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::ENAMETOOLONG) => {
                    stamp.kind == stamp_kind::ABSENT
                }
                // In a directory that was closed since, something may be.
                Err(_) => stamp.kind == stamp_kind::HIDDEN,
            }
        }
        stamp_kind::DIRECTORY => {
            look(&mut looked, -100, name, 0).is_ok_and(|stat| stat.is_directory())
        }
        stamp_kind::OWN => match look(&mut looked, -100, name, 0) {
            Ok(stat) => stat.is_own_directory(0o002),
            Err(errno) => errno == Errno::ENOENT,
        },
        stamp_kind::FILE => look(&mut looked, -100, name, 0)
            .is_ok_and(|stat| !stat.is_directory() && !stat.is_link()),
        stamp_kind::SAME => {
            look(&mut looked, -100, name, 0).is_ok_and(|stat| same(stat, &stamp.identity))
        }
        stamp_kind::LISTED => {
            look(&mut looked, -100, name, 0).is_ok_and(|stat| same(stat, &stamp.identity))
                || crate::listing::holds(image, name, stamp.text)?
        }
        stamp_kind::LINKS => {
            look(&mut looked, -100, name, 0).is_ok_and(|stat| same(stat, &stamp.identity))
                || crate::listing::holds_links(image, name, stamp.text)?
        }
        stamp_kind::CROWDED => {
            look(&mut looked, -100, name, 0).is_ok_and(|stat| same(stat, &stamp.identity))
                || crate::listing::is_crowded(name)
        }
        stamp_kind::VARIABLE => {
            caller.variable(name_bytes).is_some_and(|value| equal(value, text_bytes))
        }
        stamp_kind::UNSET => caller.variable(name_bytes).is_none(),
        stamp_kind::ARGUMENT => {
            let place = command.checked_add(stamp.identity[0] as usize)?;
            caller.argument(place).is_some_and(|word| equal(word, text_bytes))
        }
        stamp_kind::WORDS => caller.count - command == stamp.identity[0] as usize,
        _ => false,
    })
}
