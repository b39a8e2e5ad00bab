//! Who made a call, and what the names in it stand for.

use ringfence_sys::fd::CWD;
use ringfence_sys::process::{filters, numbers};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// The processes that were seen.
#[derive(Debug, Default)]
pub(super) struct Processes {
    known: HashMap<u32, Known>,
    /// How deep our own PID namespace is.
    depth: Option<usize>,
    /// The command has been executed: what was before is the sandbox being built.
    started: bool,
    count: u64,
}

#[derive(Debug, Default)]
struct Known {
    inside: bool,
    name: String,
    /// It executed something whose name could not be read: the first program's is in memory
    /// that an ordinary user may not look at.
    unknown: bool,
    /// It asked to execute what its name says: whether it does is seen at its next call.
    tried: bool,
    /// The file that it runs, once somebody asked.
    program: Option<PathBuf>,
}

impl Known {
    fn inside() -> Known {
        Known { inside: true, ..Known::default() }
    }
}

impl Processes {
    /// Whether a thread belongs to what runs in the sandbox, and not to the sandbox itself.
    pub fn is_inside(&mut self, thread: u32, executes: bool) -> bool {
        let own = *self.depth.get_or_insert_with(|| numbers(std::process::id()).len());
        let known = self
            .known
            .entry(thread)
            .or_insert_with(|| Known { inside: is_inside(thread, own), ..Known::default() });
        if executes && !known.inside {
            // In the process tier it was none before it was confined.
            known.inside = is_inside(thread, own);
        }
        if known.inside && executes && !self.started {
            self.started = true;
        }
        known.inside && self.started
    }

    /// The name of the program that a thread runs.
    pub fn name(&mut self, thread: u32) -> &str {
        let known = self.known.entry(thread).or_insert_with(Known::inside);
        if known.name.is_empty() || known.tried {
            let comm = std::fs::read(format!("/proc/{thread}/comm")).unwrap_or_default();
            let comm = comm.strip_suffix(b"\n").unwrap_or(&comm);
            // What failed left it what it was.
            if known.name.is_empty() || !comm.is_empty() && !is_of(comm, known.name.as_bytes()) {
                known.name = String::from_utf8_lossy(comm).into_owned();
            }
            known.tried = false;
        }
        &known.name
    }

    /// The file that a thread runs, by the kernel's word.
    pub fn program(&mut self, thread: u32) -> &Path {
        let known = self.known.entry(thread).or_insert_with(Known::inside);
        known.program.get_or_insert_with(|| {
            std::fs::read_link(format!("/proc/{thread}/exe")).unwrap_or_default()
        })
    }

    /// A thread executes a program.
    pub fn executes(&mut self, thread: u32, path: &Path) {
        self.count += 1;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.known.insert(thread, Known { name, tried: true, ..Known::inside() });
    }

    /// A thread executes a program whose name cannot be read.
    pub fn executes_unknown(&mut self, thread: u32) {
        self.count += 1;
        self.known.insert(thread, Known { unknown: true, ..Known::inside() });
    }

    /// The program that a thread executed, where that was not known when it did.
    pub fn executed(&mut self, thread: u32) -> Option<PathBuf> {
        let known = self.known.get_mut(&thread).filter(|known| known.unknown)?;
        known.unknown = false;
        let path = std::fs::read_link(format!("/proc/{thread}/exe")).ok()?;
        path.is_absolute().then_some(path)
    }

    /// How many programs were executed.
    pub fn count(&self) -> u64 {
        self.count
    }
}

/// Whether the kernel's name of a thread, of at most 15 bytes (proc_pid_comm(5)), is that of a program.
fn is_of(comm: &[u8], program: &[u8]) -> bool {
    const LONGEST: usize = 15;
    comm == &program[..program.len().min(LONGEST)]
}

/// Whether a thread is in a PID namespace below ours, and not what supervises it there; where the sandbox has none, whether it
/// is held by a filter beside ours: nothing but the command is.
fn is_inside(thread: u32, own: usize) -> bool {
    let numbers = numbers(thread);
    if numbers.len() > own {
        return numbers.last() != Some(&1);
    }
    let ours = filters(std::process::id()).map(|own| own + 1);
    ours.zip(filters(thread)).is_some_and(|(ours, held)| held > ours)
}

/// The absolute path that a thread names, without `.` and `..`.
pub(super) fn path(thread: u32, directory: Option<i32>, text: &[u8]) -> Option<PathBuf> {
    let named = Path::new(OsStr::from_bytes(text));
    if text.is_empty() {
        return None;
    }
    if named.is_absolute() {
        return Some(normal(named));
    }
    let base = match directory {
        None | Some(CWD) => format!("/proc/{thread}/cwd"),
        Some(number) => format!("/proc/{thread}/fd/{number}"),
    };
    let base = std::fs::read_link(base).ok().filter(|base| base.is_absolute())?;
    Some(normal(&base.join(named)))
}

/// Whether a directory that a thread names has nothing in it, or cannot be looked at.
pub(super) fn is_empty(thread: u32, path: &Path) -> bool {
    let below = path.strip_prefix("/").unwrap_or(path);
    let inside = Path::new("/proc").join(thread.to_string()).join("root").join(below);
    inside.read_dir().map_or(true, |mut entries| entries.next().is_none())
}

/// A path without `.` and `..`.
pub(super) fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::from("/");
    for component in path.components() {
        match component {
            Component::Normal(name) => normal.push(name),
            Component::ParentDir => _ = normal.pop(),
            _ => {}
        }
    }
    normal
}
