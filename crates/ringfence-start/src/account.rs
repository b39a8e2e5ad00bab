//! The record of a command that ended soon, written before libc is up: its session's directory, and in it the
//! whole journal at once (`ledger::journal` in `ringfence-session` has the lines and reads them).

use crate::bytes::{Text, position, write_digits};
use crate::call::{close, sys};
use crate::entry::Launched;
use crate::image::{Header, Image, PROCESS_TIER};
use crate::key::Caller;
use crate::stamp::AT_FDCWD;

/// The layout of the lines.
pub const VERSION: u64 = 2;

/// Bytes of its last line: a reader looks for it within so many.
pub const LAST: usize = 4000;
/// Bytes of a journal that is written here; a longer one is left to `main`.
pub const MOST: usize = 16 << 10;

/// What is to be written.
pub(crate) struct Account<'a> {
    pub image: &'a Image,
    pub caller: &'a Caller,
    pub launched: &'a Launched,
    /// The command's process number and file, as the session has them.
    pub pid: i32,
    pub exe: &'a [u8],
    /// When it was said to execute, in microseconds since 1970.
    pub executed: u64,
    /// Its exit code.
    pub code: u8,
}

/// Microseconds since 1970.
pub(crate) fn now() -> u64 {
    const CLOCK_REALTIME: usize = 0;
    crate::trace::clock(CLOCK_REALTIME) / 1000
}

impl Account<'_> {
    /// Writes it: whole, or not at all. `room` is written over.
    pub fn write(&self, room: &mut [u8; MOST]) -> Option<()> {
        const AT_REMOVEDIR: usize = 0x200;
        let mut place = [0u8; 8];
        write_digits(&mut place, u64::from(self.launched.session), true);
        let header = *self.image.header();
        let (path, rest) = room.split_at_mut(4096);
        let mut lines = Text::new(rest);
        self.lines(&mut lines, &place, header)?;
        let lines = lines.get()?;
        let mut path = Text::new(path);
        path.push(self.image.bytes(header.sessions));
        path.push(b"/");
        path.push(&place);
        let path = path.terminated()?;
        // SAFETY: the path ends with a zero byte.
        unsafe { sys!(mkdirat, AT_FDCWD, path, 0o700) }.ok()?;
        let written = write(path, lines);
        if written.is_none() {
            // SAFETY: as above. The directory is our own, and nobody else knows it.
            let _ = unsafe { sys!(unlinkat, AT_FDCWD, path, AT_REMOVEDIR) };
        }
        written
    }

    fn lines(&self, lines: &mut Text<'_>, id: &[u8; 8], header: Header) -> Option<()> {
        // SAFETY: takes nothing.
        let own = unsafe { sys!(getpid) }.ok()?;
        lines.push(b"{\"start\":{\"version\":");
        lines.push_number(VERSION);
        lines.push(b",\"id\":\"");
        lines.push(id);
        lines.push(b"\",\"name\":null,\"argv\":[");
        let mut at = self.launched.command;
        while let Some(word) = self.caller.argument(at) {
            if at > self.launched.command {
                lines.push(b",");
            }
            string(lines, word)?;
            at += 1;
        }
        lines.push(b"],\"cwd\":");
        string(lines, self.image.bytes(header.workdir))?;
        lines.push(b",\"tier\":");
        let process = header.flags & PROCESS_TIER != 0;
        lines.push(if process { b"\"process\"" } else { b"\"namespace\"" });
        lines.push(b",\"pid\":");
        lines.push_number(own as u64);
        lines.push(b",\"at\":");
        lines.push_number(self.launched.since / 1000);
        lines.push(b",\"record\":true}}\n");
        let first = lines.get()?.len();
        lines.push(b"{\"brief\":{\"pid\":");
        lines.push_number(u64::try_from(self.pid).ok()?);
        lines.push(b",\"parent\":");
        lines.push_number(u64::try_from(self.launched.pid).ok()?);
        lines.push(b",\"exe\":");
        string(lines, self.exe)?;
        lines.push(b",\"at\":");
        lines.push_number(self.executed);
        lines.push(b",\"ended\":{\"code\":");
        lines.push_number(u64::from(self.code));
        lines.push(b"},\"until\":");
        lines.push_number(now());
        lines.push(b"}}\n");
        (lines.get()?.len() - first <= LAST).then_some(())
    }
}

/// A text as JSON has it. One with other than ASCII is left to `main`, which knows what is no UTF-8.
fn string(lines: &mut Text<'_>, text: &[u8]) -> Option<()> {
    lines.push(b"\"");
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        match *byte {
            b'"' | b'\\' => {
                lines.push(b"\\");
                lines.push(&[*byte]);
            }
            0..0x20 => {
                let mut digits = [0u8; 4];
                write_digits(&mut digits, u64::from(*byte), true);
                lines.push(b"\\u");
                lines.push(&digits);
            }
            0x80.. => return None,
            _ => lines.push(&[*byte]),
        }
        at += 1;
    }
    lines.push(b"\"");
    // A path of the kernel's is a string within its buffer.
    position(text, 0).is_none().then_some(())
}

/// Writes the journal in a directory: who reads it finds all of it, or none. What could not be written whole is
/// gone again.
fn write(directory: *const u8, bytes: &[u8]) -> Option<()> {
    const PATH_DIRECTORY_CLOEXEC: usize = 0o12_000_000 | crate::flags::DIRECTORY as usize;
    const O_WRONLY_CREAT_EXCL_CLOEXEC: usize = 0o1 | 0o100 | 0o200 | 0o2_000_000;
    let (beside, name) = (c".journal".as_ptr(), c"journal".as_ptr());
    // SAFETY: the path ends with a zero byte.
    let directory =
        unsafe { sys!(openat, AT_FDCWD, directory, PATH_DIRECTORY_CLOEXEC, 0) }.ok()? as i32;
    // SAFETY: the names are literals, the pointer and length describe `bytes`.
    let written = unsafe {
        let file = sys!(openat, directory, beside, O_WRONLY_CREAT_EXCL_CLOEXEC, 0o600);
        let written = match file {
            Ok(file) => {
                let written = sys!(write, file, bytes.as_ptr(), bytes.len());
                close(file as i32);
                written == Ok(bytes.len())
                    && sys!(renameat, directory, beside, directory, name).is_ok()
            }
            Err(_) => false,
        };
        if !written && file.is_ok() {
            let _ = sys!(unlinkat, directory, beside, 0);
        }
        written
    };
    close(directory);
    written.then_some(())
}
