//! The record of a command that ended soon, written before libc is up: its session's directory, and in it the
//! whole journal at once (`ledger::journal` in `ringfence-session` has the lines and reads them). The directory
//! is made while the command runs, and is gone again where `main` goes on.

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

/// A place for a record: the directory of all sessions, this session's in it, and in that a file without a name
/// that readers know. All zeroes while there is none.
pub(crate) struct Filing {
    id: [u8; 9],
    above: i32,
    directory: i32,
    file: i32,
}

const PATH_DIRECTORY_CLOEXEC: usize = 0o12_000_000 | crate::flags::DIRECTORY as usize;
const AT_REMOVEDIR: usize = 0x200;

impl Filing {
    pub const NONE: Filing = Filing { id: [0; 9], above: 0, directory: 0, file: 0 };

    /// Makes the place. `room` is written over.
    pub fn begin(&mut self, image: &Image, session: u32, room: &mut [u8; MOST]) -> Option<()> {
        const O_WRONLY_CREAT_EXCL_CLOEXEC: usize = 0o1 | 0o100 | 0o200 | 0o2_000_000;
        let id = self.id.first_chunk_mut::<8>()?;
        write_digits(id, u64::from(session), true);
        let id = self.id.as_ptr();
        let mut path = Text::new(room);
        path.push(image.bytes(image.header().sessions));
        let path = path.terminated()?;
        // SAFETY: the paths end with a zero byte.
        unsafe {
            let above = sys!(openat, AT_FDCWD, path, PATH_DIRECTORY_CLOEXEC, 0).ok()?;
            self.above = above as i32;
            if sys!(mkdirat, above, id, 0o700).is_err() {
                close(self.above);
                self.above = 0;
                return None;
            }
            self.directory = sys!(openat, above, id, PATH_DIRECTORY_CLOEXEC, 0).ok()? as i32;
            let flags = O_WRONLY_CREAT_EXCL_CLOEXEC;
            self.file = sys!(openat, self.directory, BESIDE, flags, 0o600).ok()? as i32;
        }
        Some(())
    }

    /// Writes the lines: who reads them finds all, or none.
    fn finish(&self, lines: &[u8]) -> Option<()> {
        if self.file <= 0 {
            return None;
        }
        // SAFETY: the pointer and length describe `lines`, the names are literals.
        let written = unsafe {
            sys!(write, self.file, lines.as_ptr(), lines.len()) == Ok(lines.len())
                && sys!(renameat, self.directory, BESIDE, self.directory, c"journal".as_ptr())
                    .is_ok()
        };
        written.then_some(())
    }

    /// Removes what was made.
    pub fn undo(&mut self) {
        // SAFETY: the names end with a zero byte. The directory is our own, and nobody else knows it.
        unsafe {
            if self.file > 0 {
                close(self.file);
                let _ = sys!(unlinkat, self.directory, BESIDE, 0);
            }
            if self.directory > 0 {
                close(self.directory);
            }
            if self.above > 0 {
                let _ = sys!(unlinkat, self.above, self.id.as_ptr(), AT_REMOVEDIR);
                close(self.above);
            }
        }
        (self.above, self.directory, self.file) = (0, 0, 0);
    }
}

/// The journal's name while it is not whole.
const BESIDE: *const core::ffi::c_char = c".journal".as_ptr();

impl Account<'_> {
    /// Writes it: whole, or not at all. `room` is written over.
    pub fn write(&self, filing: &Filing, room: &mut [u8; MOST]) -> Option<()> {
        let mut lines = Text::new(room);
        self.lines(&mut lines, filing.id.first_chunk()?, *self.image.header())?;
        filing.finish(lines.get()?)
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
        lines.push_number(self.launched.before.since / 1000);
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
