//! What a file is, beside its content: owner, times, attributes.

use crate::{Errno, Result, sys};
use std::ffi::CStr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Who owns what an open path leads to, and what kind of file it is (`st_mode`).
///
/// # Errors
/// The kernel's.
pub fn owner_and_mode(file: BorrowedFd<'_>) -> Result<(u32, u32)> {
    // SAFETY: statx is plain numbers, for which all zeroes are valid.
    let mut data: libc::statx = unsafe { std::mem::zeroed() };
    let mask = libc::STATX_UID | libc::STATX_TYPE | libc::STATX_MODE;
    let (empty, flags) = (c"".as_ptr(), libc::AT_EMPTY_PATH);
    // SAFETY: `data` is room for the answer; the path is a NUL-terminated literal.
    unsafe { sys!(statx, file.as_raw_fd(), empty, flags, mask, &raw mut data) }?;
    Ok((data.stx_uid, u32::from(data.stx_mode)))
}

/// The next part of a file, from a place on, that is no hole (lseek(2), `SEEK_DATA`); `None`: there is none. Moves the
/// descriptor's place.
///
/// # Errors
/// The kernel's; `EINVAL` of a file system that does not know.
pub fn next_part(file: BorrowedFd<'_>, from: u64) -> Result<Option<std::ops::Range<u64>>> {
    let from = i64::try_from(from).or(Err(Errno::EINVAL))?;
    let file = file.as_raw_fd();
    // SAFETY: takes numbers only.
    let start = match unsafe { sys!(lseek, file, from, libc::SEEK_DATA) } {
        Err(Errno::ENXIO) => return Ok(None),
        found => found?,
    };
    // SAFETY: takes numbers only.
    let end = unsafe { sys!(lseek, file, start, libc::SEEK_HOLE) }?;
    Ok(Some(start as u64..end as u64))
}

/// File systems that this kernel alone writes to, by their numbers (statfs(2)): ext2 to 4, xfs, btrfs, tmpfs, overlayfs,
/// f2fs, bcachefs, zfs.
const OF_THIS_MACHINE: [u64; 8] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0x0102_1994,
    0x794c_7630,
    0xf2f5_2010,
    0xca45_1a4e,
    0x2fc1_2fc1,
];

/// Whether anybody has a file open for writing, or mapped so: `None` where the kernel does not say, as of a file of
/// another user's, or on another machine (NFS refuses leases for reasons of its own). It must be open for reading only.
///
/// A read lease is given for a file that nobody can write to (fcntl(2), `F_SETLEASE`), and is given back at once. Who
/// wants to write in between waits for that, and we would be told by a signal: by one that does nothing.
pub fn has_writers(file: BorrowedFd<'_>) -> Option<bool> {
    /// `F_SETSIG`, which is the same on all architectures.
    const F_SETSIG: i32 = 10;
    let file = file.as_raw_fd();
    if !OF_THIS_MACHINE.contains(&file_system(file)?[0]) {
        return None;
    }
    // SAFETY: takes numbers only.
    unsafe { sys!(fcntl, file, F_SETSIG, libc::SIGURG) }.ok()?;
    // SAFETY: takes numbers only.
    match unsafe { sys!(fcntl, file, libc::F_SETLEASE, libc::F_RDLCK) } {
        Ok(_) => {
            // SAFETY: takes numbers only.
            let _ = unsafe { sys!(fcntl, file, libc::F_SETLEASE, libc::F_UNLCK) };
            Some(false)
        }
        Err(Errno::EAGAIN) => Some(true),
        Err(_) => None,
    }
}

/// `chmod(2)`.
///
/// # Errors
/// The kernel's.
pub fn set_mode(path: &CStr, mode: u32) -> Result<()> {
    // SAFETY: a NUL-terminated string.
    unsafe { sys!(fchmodat, crate::fd::CWD, path.as_ptr(), mode) }.map(drop)
}

/// `chown(2)`; `u32::MAX` leaves an identity as it is.
///
/// # Errors
/// The kernel's.
pub fn set_owner(path: &CStr, user: u32, group: u32) -> Result<()> {
    // SAFETY: a NUL-terminated string.
    unsafe { sys!(fchownat, crate::fd::CWD, path.as_ptr(), user, group, 0) }.map(drop)
}

/// `utimensat(2)`: seconds and nanoseconds of access and modification; without them, now.
///
/// # Errors
/// The kernel's.
pub fn set_times(path: &CStr, times: Option<[(i64, i64); 2]>) -> Result<()> {
    set_times_at(crate::fd::CWD, path, times, 0)
}

/// As [`set_owner`], of what is open, be it a symbolic link (`O_PATH | O_NOFOLLOW`) itself: `AT_EMPTY_PATH`, Linux 2.6.39.
///
/// # Errors
/// The kernel's.
pub fn set_owner_of(place: BorrowedFd<'_>, user: u32, group: u32) -> Result<()> {
    let (place, nothing) = (place.as_raw_fd(), c"".as_ptr());
    // SAFETY: a NUL-terminated string.
    unsafe { sys!(fchownat, place, nothing, user, group, libc::AT_EMPTY_PATH) }.map(drop)
}

/// As [`set_times`], of what is open, be it a symbolic link itself: `AT_EMPTY_PATH`, Linux 5.8.
///
/// # Errors
/// The kernel's; `EINVAL` from an older one.
pub fn set_times_of(place: BorrowedFd<'_>, times: Option<[(i64, i64); 2]>) -> Result<()> {
    set_times_at(place.as_raw_fd(), c"", times, libc::AT_EMPTY_PATH)
}

fn set_times_at(place: i32, path: &CStr, times: Option<[(i64, i64); 2]>, flags: i32) -> Result<()> {
    let times = times.map(|times| times.map(|(sec, nsec)| [sec, nsec]));
    let pointer = times.as_ref().map_or(std::ptr::null(), |times| times.as_ptr());
    // SAFETY: the path is NUL-terminated; the times have the layout of two timespecs.
    unsafe { sys!(utimensat, place, path.as_ptr(), pointer, flags) }.map(drop)
}

/// `setxattr(2)`.
///
/// # Errors
/// The kernel's.
pub fn set_attribute(path: &CStr, name: &CStr, value: &[u8], flags: u32) -> Result<()> {
    let (pointer, length) = (value.as_ptr(), value.len());
    // SAFETY: strings are NUL-terminated; pointer and length describe `value`.
    unsafe { sys!(setxattr, path.as_ptr(), name.as_ptr(), pointer, length, flags) }.map(drop)
}

/// `removexattr(2)`.
///
/// # Errors
/// The kernel's.
pub fn remove_attribute(path: &CStr, name: &CStr) -> Result<()> {
    // SAFETY: strings are NUL-terminated.
    unsafe { sys!(removexattr, path.as_ptr(), name.as_ptr()) }.map(drop)
}

/// Opens what a path names, relative to an open directory, as a place (`O_PATH`); with `follow`
/// unset a link at its end is opened itself. Magic links (`/proc/PID/fd/N`) are not followed.
///
/// # Errors
/// The kernel's.
pub fn open_place(
    directory: BorrowedFd<'_>,
    path: &CStr,
    follow: bool,
) -> Result<std::os::fd::OwnedFd> {
    open_resolved(directory, path, follow, libc::RESOLVE_NO_MAGICLINKS)
}

/// As [`open_place`], resolved in this way (`RESOLVE_…` of openat2(2)).
fn open_resolved(
    directory: BorrowedFd<'_>,
    path: &CStr,
    follow: bool,
    resolve: u64,
) -> Result<std::os::fd::OwnedFd> {
    let flags = libc::O_PATH | libc::O_CLOEXEC | if follow { 0 } else { libc::O_NOFOLLOW };
    let how = [flags as u64, 0, resolve];
    let (raw, pointer) = (directory.as_raw_fd(), path.as_ptr());
    // SAFETY: `path` is NUL-terminated; `how` has the layout and size of `struct open_how`.
    unsafe { sys!(openat2, raw, pointer, how.as_ptr(), size_of_val(&how)) }.map(crate::fd::owned)
}

/// Opens, as a place only, what is beneath a directory, on the same mount and without a link on the way.
///
/// # Errors
/// The file system's; `EXDEV` where something is mounted on the way, `ELOOP` at a link.
pub fn open_beneath(directory: BorrowedFd<'_>, path: &CStr) -> Result<std::os::fd::OwnedFd> {
    let links = libc::RESOLVE_NO_MAGICLINKS | libc::RESOLVE_NO_SYMLINKS;
    open_resolved(directory, path, true, libc::RESOLVE_NO_XDEV | libc::RESOLVE_BENEATH | links)
}

/// Opens, as a place only, what a path below a directory leads to, by links that stay below it, and in its mount; a link at
/// its end is opened itself with `follow` unset.
///
/// # Errors
/// The file system's; `EXDEV` where it leads out of the directory, or to what is mounted in it, `ELOOP` where a link of `/proc` is on the way.
pub fn open_within(
    directory: BorrowedFd<'_>,
    path: &CStr,
    follow: bool,
) -> Result<std::os::fd::OwnedFd> {
    let within = libc::RESOLVE_NO_XDEV | libc::RESOLVE_BENEATH;
    open_resolved(directory, path, follow, libc::RESOLVE_NO_MAGICLINKS | within)
}

/// `lgetxattr(2)`: of at most so many bytes.
///
/// # Errors
/// The kernel's; `ERANGE` where it is longer.
pub fn attribute(path: &CStr, name: &CStr, most: usize) -> Result<Vec<u8>> {
    let mut value = vec![0; most];
    let room = value.as_mut_ptr();
    // SAFETY: strings are NUL-terminated; there is room for `most` bytes.
    let length = unsafe { sys!(lgetxattr, path.as_ptr(), name.as_ptr(), room, most) }?;
    value.truncate(length);
    Ok(value)
}

/// `llistxattr(2)`: names, each with a zero byte at its end.
///
/// # Errors
/// The kernel's; `E2BIG` or `ERANGE` where there are too many.
pub fn attributes(path: &CStr) -> Result<Vec<u8>> {
    let mut names = vec![0; 64 << 10];
    // SAFETY: the string is NUL-terminated; there is room for so many bytes.
    let length = unsafe { sys!(llistxattr, path.as_ptr(), names.as_mut_ptr(), names.len()) }?;
    names.truncate(length);
    Ok(names)
}

/// Whether a directory is on a file system whose directories' times say when a name was added or taken away.
/// Those that make names up (proc, automounts), and those of other machines and of programs (NFS, FUSE), are not
/// taken at their word.
pub fn tells_changes(directory: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(directory.as_os_str().as_bytes()) else { return false };
    let mut data = [0_u64; 15];
    // SAFETY: the path is a string, `data` is room for the answer.
    let asked = unsafe { sys!(statfs, path.as_ptr(), data.as_mut_ptr()) };
    asked.is_ok() && OF_THIS_MACHINE.contains(&data[0])
}

/// An open file's `struct statfs` (statfs(2)), in words: type, block size, blocks, free, available.
fn file_system(file: i32) -> Option<[u64; 15]> {
    let mut data = [0_u64; 15];
    // SAFETY: `data` is room for the answer.
    unsafe { sys!(fstatfs, file, data.as_mut_ptr()) }.ok()?;
    Some(data)
}

/// The bytes that are free for anybody on the file system of an open file; nothing where it does not say.
pub fn free(file: BorrowedFd<'_>) -> Option<u64> {
    let [_, block, blocks, _, available, ..] = file_system(file.as_raw_fd())?;
    (blocks > 0).then(|| available.saturating_mul(block))
}

/// The bytes of a memory-backed file system (tmpfs(5)) from which programs can be executed;
/// nothing for any other.
pub fn room_in_memory(path: &CStr) -> Option<u64> {
    const TMPFS_MAGIC: u64 = 0x0102_1994;
    const ST_NOEXEC: u64 = 8;
    // struct statfs of 64-bit machines (statfs(2)): type, block size, blocks, free, available,
    // files, free ones, identifier, length of names, fragment size, flags, four spare ones. libc's
    // does not name the flags.
    let mut data = [0_u64; 15];
    // SAFETY: the path is a string, `data` is room for the answer.
    unsafe { sys!(statfs, path.as_ptr(), data.as_mut_ptr()) }.ok()?;
    let [kind, block, blocks, _, _, _, _, _, _, _, flags, ..] = data;
    let serves = kind == TMPFS_MAGIC && flags & ST_NOEXEC == 0;
    serves.then(|| blocks.saturating_mul(block))
}

/// Opens, as a place only, what a path leads to for a process whose root directory this is: links
/// and `..` stay within it.
///
/// # Errors
/// The file system's; `ELOOP` where a link of `/proc` is on the way.
pub fn open_in_root(root: BorrowedFd<'_>, path: &CStr) -> Result<std::os::fd::OwnedFd> {
    open_resolved(root, path, true, libc::RESOLVE_NO_MAGICLINKS | libc::RESOLVE_IN_ROOT)
}

/// A point in the time of files, in nanoseconds since 1970: what changed before has an earlier
/// change time, what changes from now on has this one or a later one
/// ([`ringfence_start::mark::time_mark`]).
pub fn time_mark() -> i128 {
    ringfence_start::mark::time_mark().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, OpenOptions};
    use std::os::fd::AsFd;

    #[test]
    fn the_parts_of_a_file_that_are_no_holes_are_found() {
        use std::os::unix::fs::FileExt;
        let file = File::from(crate::fd::in_memory(b"").expect("a memfd"));
        assert_eq!(next_part(file.as_fd(), 0), Ok(None));
        file.set_len(1 << 40).expect("sized");
        assert_eq!(next_part(file.as_fd(), 0), Ok(None));
        file.write_all_at(b"x", (1 << 30) + 5).expect("written");
        let found = next_part(file.as_fd(), 0).expect("looked for").expect("found");
        assert!(found.contains(&((1 << 30) + 5)) && found.end - found.start <= 2 << 20);
        assert_eq!(next_part(file.as_fd(), found.end), Ok(None));
        assert_eq!(next_part(file.as_fd(), 1 << 40), Ok(None), "its end");
        assert_eq!(next_part(file.as_fd(), u64::MAX), Err(Errno::EINVAL));
    }

    #[test]
    fn a_file_that_is_open_for_writing_has_writers() {
        let path = std::env::temp_dir().join(format!("ringfence-writers-{}", std::process::id()));
        std::fs::write(&path, "text").expect("a file");
        let asks = || has_writers(File::open(&path).expect("a file").as_fd());
        let before = asks();
        let writer = OpenOptions::new().append(true).open(&path).expect("a file");
        let meanwhile = asks();
        drop(writer);
        let after = asks();
        let _ = std::fs::remove_file(&path);
        if before.is_none() {
            println!("skipped: this file system gives no leases");
            return;
        }
        assert_eq!((before, meanwhile, after), (Some(false), Some(true), Some(false)));
    }
}
