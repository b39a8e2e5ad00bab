//! Whether two files hold the same bytes. Holes are passed over: a file may be one of petabytes, and the launcher that
//! compares hears no signal meanwhile, but looks for them.

use crate::snapshot::beneath;
use crate::snapshot::content::next_data;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Bytes that are compared at once.
const PIECE: u64 = 1 << 17;
/// Signals that end: SIGHUP, SIGINT, SIGQUIT, SIGTERM.
const ENDING: [i32; 4] = [1, 2, 3, 15];

/// What is blocked and waits to be taken says that somebody waits no longer.
///
/// # Errors
/// `EINTR`: such a signal has come.
pub(super) fn go_on() -> Result<(), Errno> {
    let pending = ringfence_sys::signal::pending();
    if ENDING.iter().any(|&signal| pending.has(signal)) { Err(Errno::INTR) } else { Ok(()) }
}

/// Compares two files of one name and size.
///
/// # Errors
/// The file system's; `EINTR` as [`go_on`].
pub(super) fn same_bytes(
    lower: &OwnedFd,
    upper: &OwnedFd,
    name: &[u8],
    size: u64,
) -> Result<bool, Errno> {
    let open = |directory| beneath::open_file(directory, name).map(File::from);
    equal(&open(lower)?, &open(upper)?, size)
}

fn equal(one: &File, other: &File, size: u64) -> Result<bool, Errno> {
    let mut buffers = [vec![0; PIECE as usize], vec![0; PIECE as usize]];
    let mut at = 0;
    loop {
        go_on()?;
        // Where both have a hole, both have zeros.
        let Some(next) =
            next_data(one, at, size).into_iter().chain(next_data(other, at, size)).min()
        else {
            return Ok(true);
        };
        let length = PIECE.min(size - next) as usize;
        let [left, right] = &mut buffers;
        let got = read(one, &mut left[..length], next)?;
        if got != read(other, &mut right[..length], next)? || left[..got] != right[..got] {
            return Ok(false);
        }
        // One that is shorter by now is no other's equal further on.
        if got < length {
            return Ok(false);
        }
        at = next + length as u64;
    }
}

/// Fills the buffer, as far as there is something.
fn read(file: &File, buffer: &mut [u8], at: u64) -> Result<usize, Errno> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], at + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_zeros_whoever_has_them() {
        let place = std::env::temp_dir().join(format!("ringfence-equal-{}", std::process::id()));
        std::fs::create_dir_all(&place).expect("made");
        let file = |name: &str| {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(true);
            options.open(place.join(name)).expect("made")
        };
        let size = 1 << 42;
        let (one, other) = (file("one"), file("other"));
        for file in [&one, &other] {
            file.set_len(size).expect("a hole");
        }
        assert_eq!(equal(&one, &other, size), Ok(true));
        // Zeros that were written are as good as a hole.
        one.write_all_at(&[0; 9000], 1 << 30).expect("written");
        assert_eq!(equal(&one, &other, size), Ok(true));
        for (holder, at) in [(&one, size - 1), (&other, 5 << 40 >> 1)] {
            holder.write_all_at(b"x", at).expect("written");
            assert_eq!(equal(&one, &other, size), Ok(false));
            assert_eq!(equal(&other, &one, size), Ok(false));
            holder.write_all_at(b"\0", at).expect("written");
            assert_eq!(equal(&one, &other, size), Ok(true));
        }
        std::fs::remove_dir_all(&place).expect("removed");
    }
}
