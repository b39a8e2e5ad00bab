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
        if known.name.is_empty() {
            let text = std::fs::read_to_string(format!("/proc/{thread}/comm")).unwrap_or_default();
            known.name = text.trim_end().to_owned();
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
        self.known.insert(thread, Known { name, ..Known::inside() });
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

fn normal(path: &Path) -> PathBuf {
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
