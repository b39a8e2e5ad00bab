//! The journal: what a session's launcher writes, one line of JSON for each thing that happened.
//!
//! It is all that the record needs while the session lives: appending is one `write(2)`, which a
//! kill cannot take back, and no database has to be made before a command that runs for a
//! millisecond has ended. Readers fill `session.db` from it ([`super::ingest`]).

use super::event::{Ended, Event, Process};
use crate::error::{Result, SessionError};
use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The journal's name in a session's directory.
pub(crate) const NAME: &str = "journal";
/// The layout of its lines.
pub(super) const VERSION: i64 = ringfence_start::account::VERSION as i64;
/// A line of an end is far shorter than this.
const TAIL: u64 = 4096;
/// No line of ours is longer.
const LONGEST: u64 = 16 * 1024 * 1024;

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Head {
    pub version: i64,
    pub id: String,
    pub name: Option<String>,
    pub argv: Vec<String>,
    pub cwd: String,
    pub tier: String,
    /// The launcher's.
    pub pid: i32,
    /// Microseconds since the epoch.
    pub at: i64,
    /// The session is recorded; else it is only known while it lives.
    pub record: bool,
}

/// The last line, if the launcher lived to write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tail {
    pub at: i64,
    pub ended: Ended,
    /// Events that were too many to be kept, or had no room on the disk.
    pub lost: u64,
}

/// All of a session whose command ended soon, behind its first line: written at once, by a launcher without
/// libc (`ringfence_start::account`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Brief {
    /// The command's process and its parent.
    pub pid: i32,
    pub parent: i32,
    /// What it executed.
    pub exe: PathBuf,
    /// Microseconds since the epoch, as all of these: when it executed.
    pub at: i64,
    pub ended: Ended,
    /// When it had ended.
    pub until: i64,
}

impl Brief {
    /// The lines that it stands for.
    pub fn lines(&self, head: &Head) -> [Line; 3] {
        let argv: Vec<OsString> = head.argv.iter().map(OsString::from).collect();
        let by = Process::new(self.pid, self.parent, self.exe.clone(), &argv);
        let duration =
            u64::try_from(self.until - self.at).map_or(Duration::ZERO, Duration::from_micros);
        let exec = Event::Exec { argv, cwd: PathBuf::from(&head.cwd) };
        let exit = Event::Exit { ended: Some(self.ended), duration };
        [
            Line::Event { at: self.at, by: Some(by.clone()), what: exec },
            Line::Event { at: self.until, by: Some(by), what: exit },
            Line::End(self.tail()),
        ]
    }

    fn tail(&self) -> Tail {
        Tail { at: self.until, ended: self.ended, lost: 0 }
    }
}

/// A line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Line {
    Start(Head),
    Event { at: i64, by: Option<Process>, what: Event },
    End(Tail),
    Brief(Brief),
}

impl Line {
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }
}

/// An event's line, without copying what it says.
pub(super) fn event(at: i64, by: Option<&Process>, what: &Event) -> Vec<u8> {
    #[derive(Serialize)]
    #[serde(rename_all = "snake_case")]
    enum Borrowed<'a> {
        Event { at: i64, by: Option<&'a Process>, what: &'a Event },
    }
    encode(&Borrowed::Event { at, by, what })
}

fn encode(line: &impl Serialize) -> Vec<u8> {
    // Nothing in a line can fail to be written.
    let mut bytes = serde_json::to_vec(line).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// Makes a journal, locked for as long as the file is open.
pub(super) fn create(directory: &Path) -> Result<(File, PathBuf)> {
    let path = directory.join(NAME);
    let mut options = File::options();
    options.append(true).create_new(true).mode(0o600);
    let file = options.open(&path).map_err(|error| SessionError::call("open", &path, error))?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)
        .map_err(|error| SessionError::call("flock", &path, error))?;
    Ok((file, path))
}

/// Opens the journal of a session for one more line, from another process.
pub(super) fn open_to_append(directory: &Path) -> Result<(File, PathBuf)> {
    let path = directory.join(NAME);
    let file = File::options().read(true).append(true).open(&path);
    Ok((file.map_err(|error| SessionError::call("open", &path, error))?, path))
}

/// Writes lines, whole. A line that a full disk cut off is ended by the next writer's.
pub(super) fn append(mut file: &File, path: &Path, lines: &[u8]) -> Result<()> {
    file.write_all(lines).map_err(|error| SessionError::call("write", path, error))
}

/// What is kept free for what is said at a session's end, and of it for its last line.
const LAST_WORDS: u64 = 2048;
const LAST_LINE: u64 = 512;
/// The disk is asked for so much at a time. What is left of it stays with the journal: others append to it, so that it
/// cannot be cut to its length.
const PIECE: u64 = 8 << 10;
/// For how much of a journal the disk has given room: a disk that fills must not take the end of a record. A short
/// record fits into the block of its first line, and asks for nothing.
#[derive(Debug, Default)]
pub(super) struct Room {
    given: u64,
    /// The file system gives none beforehand.
    unable: bool,
    /// A full disk cut a line off.
    cut: bool,
}

/// Lines that were not written whole: how many bytes of them were, and why not the others.
pub(super) type Short = (usize, SessionError);

/// What may be used of the room that is kept free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nothing.
    #[default]
    Going,
    /// All but the last line's.
    Ending,
    /// All of it.
    Last,
}

impl Room {
    /// Writes lines, all or none where the file system can tell beforehand.
    pub fn append(
        &mut self,
        mut file: &File,
        path: &Path,
        lines: &[u8],
        stage: Stage,
    ) -> std::result::Result<(), Short> {
        let kept = match stage {
            Stage::Going => LAST_WORDS,
            Stage::Ending => LAST_LINE,
            Stage::Last => 0,
        };
        if stage != Stage::Last && !self.unable {
            self.ask(file, path, lines.len() as u64 + kept).map_err(|why| (0, why))?;
        }
        if self.cut {
            append(file, path, b"\n").map_err(|why| (0, why))?;
            self.cut = false;
        }
        let mut done = 0;
        while done < lines.len() {
            match file.write(&lines[done..]) {
                Ok(more) if more > 0 => done += more,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => {
                    self.cut = lines[..done].last().is_some_and(|&last| last != b'\n');
                    let error = result.err().unwrap_or(ErrorKind::WriteZero.into());
                    return Err((done, SessionError::call("write", path, error)));
                }
            }
        }
        Ok(())
    }

    /// Sees that there is room for so many bytes more. How long the journal is, is asked each time: others write to it.
    fn ask(&mut self, file: &File, path: &Path, more: u64) -> Result<()> {
        let data = file.metadata().map_err(|error| SessionError::call("fstat", path, error))?;
        let written = data.len();
        if written + more <= self.given.max(data.blocks() * 512) {
            return Ok(());
        }
        for more in [more + PIECE, more] {
            let asked = loop {
                match fallocate(file, FallocateFlags::KEEP_SIZE, written, more) {
                    Err(Errno::INTR) => {}
                    asked => break asked,
                }
            };
            match asked {
                Ok(()) => {
                    self.given = written + more;
                    return Ok(());
                }
                Err(Errno::NOSPC | Errno::DQUOT) => {}
                Err(_) => {
                    self.unable = true;
                    return Ok(());
                }
            }
        }
        Err(SessionError::call("fallocate", path, Errno::NOSPC))
    }
}

/// A session's launcher lives: it holds the lock.
pub(crate) fn live(directory: &Path) -> bool {
    let file = File::open(directory.join(NAME));
    file.is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockShared).is_err())
}

/// Whether a process has the journal open, as its launcher has. The number in it is that of a launcher's own PID
/// namespace, and containers share homes.
pub(crate) fn held_by(directory: &Path, pid: i32) -> bool {
    let identity = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    let Some(journal) = identity(&directory.join(NAME)) else { return false };
    let open = std::fs::read_dir(format!("/proc/{pid}/fd"));
    open.into_iter().flatten().flatten().any(|open| identity(&open.path()) == Some(journal))
}

/// There is a journal without a whole first line: its launcher was killed before it had written that, or is about to
/// write it.
pub(crate) fn begun(directory: &Path) -> bool {
    let mut line = Vec::new();
    let file = File::open(directory.join(NAME));
    file.is_ok_and(|file| next_line(&mut BufReader::new(file), &mut line).is_ok_and(|whole| !whole))
}

/// The first line and the last one, and whether the launcher lives.
pub(super) fn ends(directory: &Path) -> Result<(Head, Option<Tail>, bool)> {
    let path = directory.join(NAME);
    let failed = |error| SessionError::call("read", &path, error);
    let file = File::open(&path).map_err(|error| SessionError::call("open", &path, error))?;
    // First whether it lives, then what it wrote last: else an end between could be missed.
    let live = flock(&file, FlockOperation::NonBlockingLockShared).is_err();
    let mut reader = BufReader::new(&file);
    let head = head(&mut reader, &path)?;
    let tail = tail(&file, TAIL).map_err(failed)?;
    Ok((head, tail, live))
}

/// The end that is told in the last bytes of a journal.
fn tail(mut file: &File, window: u64) -> std::io::Result<Option<Tail>> {
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(window)))?;
    let mut last = Vec::new();
    file.take(window).read_to_end(&mut last)?;
    Ok(last.split(|&byte| byte == b'\n').rev().find_map(|line| {
        if !line.starts_with(b"{\"end\"") && !line.starts_with(b"{\"brief\"") {
            return None;
        }
        match serde_json::from_slice(line) {
            Ok(Line::End(tail)) => Some(tail),
            Ok(Line::Brief(brief)) => Some(brief.tail()),
            _ => None,
        }
    }))
}

/// The end of a session that [`ends`] finds no more, since a line so long came behind it.
pub(super) fn end_behind(file: &File, path: &Path, line: u64) -> Result<Option<Tail>> {
    let told = |window| tail(file, window).map_err(|error| SessionError::call("read", path, error));
    Ok(if told(TAIL)?.is_some() { None } else { told(TAIL + line)? })
}

/// Reads the first line.
pub(super) fn head(reader: &mut impl BufRead, path: &Path) -> Result<Head> {
    #[derive(Deserialize)]
    struct Version {
        start: Number,
    }
    #[derive(Deserialize)]
    struct Number {
        version: i64,
    }
    let corrupt = |what: &str| SessionError::Corrupt { path: path.to_owned(), what: what.into() };
    let mut line = Vec::new();
    next_line(reader, &mut line).map_err(|error| SessionError::call("read", path, error))?;
    let version: Version =
        serde_json::from_slice(&line).map_err(|_| corrupt("it does not begin with a start"))?;
    if version.start.version > VERSION {
        let (found, known) = (version.start.version, VERSION);
        return Err(SessionError::Newer { path: path.to_owned(), found, known });
    }
    match serde_json::from_slice(&line) {
        Ok(Line::Start(head)) => Ok(head),
        _ => Err(corrupt("its first line is no start")),
    }
}

/// Reads one whole line; false at the end, where the last line may not be whole yet.
pub(super) fn next_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> std::io::Result<bool> {
    line.clear();
    reader.take(LONGEST).read_until(b'\n', line)?;
    Ok(line.last() == Some(&b'\n'))
}
