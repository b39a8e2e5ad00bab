//! Reading parts of a file, bounded: what a header claims is never believed.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// Something of which parts can be read.
pub trait Bytes {
    /// Reads into `buffer` from `offset` on; how much was there (0: nothing, or an error).
    fn read(&self, offset: u64, buffer: &mut [u8]) -> usize;

    /// The beginning, where it was read already.
    fn start(&self) -> Option<&[u8]> {
        None
    }

    /// At most `length` bytes from `offset` on. Memory is taken for what is there only.
    fn part(&self, offset: u64, length: u64, most: usize) -> Vec<u8> {
        let mut part = Vec::new();
        let got = self.fill(offset, length, most, &mut part).len();
        part.truncate(got);
        part
    }

    /// The same in `room`, whose memory is used again: to take and clear new memory costs more than
    /// to read what goes there.
    fn fill<'r>(&self, offset: u64, length: u64, most: usize, room: &'r mut Vec<u8>) -> &'r [u8] {
        // Most files are short: little is taken first.
        const STEPS: (usize, usize) = (4 << 10, 64 << 10);
        let wanted = usize::try_from(length).unwrap_or(usize::MAX).min(most);
        let mut filled = 0;
        while filled < wanted {
            let step = filled.clamp(STEPS.0, STEPS.1);
            let end = wanted.min(room.len().max(filled + step));
            if room.len() < end {
                room.resize(end, 0);
            }
            let got = self.read(offset.saturating_add(filled as u64), &mut room[filled..end]);
            filled += got;
            if filled < end {
                break;
            }
        }
        &room[..filled]
    }
}

impl Bytes for File {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let mut got = 0;
        while got < buffer.len() {
            match self.read_at(&mut buffer[got..], offset.saturating_add(got as u64)) {
                Ok(0) => break,
                Ok(more) => got += more,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        got
    }
}

/// A file of which the beginning is read at once: in most objects all headers are there.
pub struct Started<'f> {
    file: &'f File,
    start: &'f [u8],
    /// There is no more of it.
    whole: bool,
}

impl<'f> Started<'f> {
    /// Reads the beginning, to a room that is used again.
    pub fn of(file: &'f File, room: &'f mut [u8; 4096]) -> Started<'f> {
        let got = file.read(0, room);
        Started { file, whole: got < room.len(), start: &room[..got] }
    }
}

impl Bytes for Started<'_> {
    fn start(&self) -> Option<&[u8]> {
        Some(self.start)
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let within = offset.checked_add(buffer.len() as u64);
        match self.whole || within.is_some_and(|end| end <= self.start.len() as u64) {
            true => self.start.read(offset, buffer),
            false => self.file.read(offset, buffer),
        }
    }
}

impl Bytes for [u8] {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let Some(rest) = usize::try_from(offset).ok().and_then(|offset| self.get(offset..)) else {
            return 0;
        };
        let got = rest.len().min(buffer.len());
        buffer[..got].copy_from_slice(&rest[..got]);
        got
    }
}

impl Bytes for Vec<u8> {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        self.as_slice().read(offset, buffer)
    }
}
