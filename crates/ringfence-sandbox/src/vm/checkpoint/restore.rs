//! How a saved QEMU becomes a process again: in a program of ours, which stands in the sandbox in QEMU's place.

use super::{
    Checkpoint, Content, Host, Kernels, Kind, LAST_GIVEN, LONGEST, Mapped, NEVER, NOT_NOW, Region,
    VERSION,
};
use ringfence_sys as sys;
use ringfence_sys::Errno;
use ringfence_sys::restore::{self, Thread, are_pages};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;

/// How often it is begun anew because something of this program's own lies where the process is to be: it lies elsewhere each time.
const TRIES: u64 = 8;
/// `PROT_WRITE`.
const WRITE: u32 = 2;
/// Above all numbers that a process has.
const ABOVE: i32 = 200;

/// Becomes the process that was saved in two files. Returns where that cannot be.
pub fn run(arguments: &mut dyn Iterator<Item = OsString>) -> u8 {
    let words: Vec<OsString> = arguments.collect();
    let failure = match &words[..] {
        [process, pages, qemu, more @ ..] => {
            let number = |at: usize| more.get(at).and_then(|word| word.to_str()?.parse().ok());
            let (tries, before) = (number(0).unwrap_or(0), number(1));
            let here = whereabouts();
            match become_process(Path::new(process), Path::new(pages)) {
                // Where programs always have the same addresses it is in the way each time.
                Failure::InTheWay if tries < TRIES && before != Some(here) => {
                    let mut again = std::process::Command::new("/proc/self/exe");
                    again.arg(super::super::RESTORE).args([process, pages, qemu]);
                    again.args([(tries + 1).to_string(), here.to_string()]);
                    Failure::NotNow(again.exec().to_string())
                }
                failure => failure,
            }
        }
        _ => Failure::NotNow("two files are needed".to_owned()),
    };
    let (what, why) = match failure {
        Failure::InTheWay => (NOT_NOW, "its memory is in use".to_owned()),
        Failure::NotNow(why) => (NOT_NOW, why),
        Failure::Never(why) => (NEVER, why),
    };
    sys::say!("ringfence: {what}{why}");
    125
}

/// Where this program's stack is: elsewhere each time, where the kernel lays programs out at random.
fn whereabouts() -> u64 {
    let here = 0_u8;
    &raw const here as u64
}

/// Why there is no process.
enum Failure {
    /// Something is mapped where it was.
    InTheWay,
    /// What may be otherwise the next time: limits, the kernel's lack of something.
    NotNow(String),
    /// It does not fit, or is odd.
    Never(String),
}

fn become_process(process: &Path, pages: &Path) -> Failure {
    match becoming(process, pages) {
        Ok(never) => match never {},
        Err(failure) => failure,
    }
}

fn becoming(process: &Path, pages: &Path) -> Result<std::convert::Infallible, Failure> {
    let checkpoint = read(process)?;
    let pages = open(pages)?;
    let length = pages.metadata().map_err(|error| Failure::NotNow(error.to_string()))?.len();
    checkpoint.check(length).map_err(Failure::Never)?;
    if checkpoint.host != Host::now() {
        return Err(Failure::Never("it is another kernel's, or another processor's".to_owned()));
    }
    // What the C library asks of brk(2) goes on to be answered of this program's heap. Where that is above, it answers with an address
    // that is higher than what was asked for, which the library takes for a yes.
    if checkpoint.heap.is_some_and(|heap| restore::heaps_end().is_none_or(|end| end > heap)) {
        return Err(Failure::InTheWay);
    }
    let given = (0..=LAST_GIVEN).map(above).collect::<Result<Vec<OwnedFd>, _>>();
    let given = given.map_err(Failure::NotNow)?;
    map(&checkpoint, &pages, given[0].as_fd())?;
    let maps = fs::read_to_string("/proc/self/maps");
    let maps = maps.map_err(|error| Failure::NotNow(error.to_string()))?;
    let moves = moves(&maps, &checkpoint.kernels)?;
    drop(pages);
    descriptors(&checkpoint, given).map_err(Failure::NotNow)?;
    restore::call_it(c"qemu-system-x86");
    let threads: Vec<Thread> = checkpoint.threads.into_iter().map(Thread::from).collect();
    let heap = maps.lines().find_map(|line| range(line, "[heap]"));
    let constant = constant(&checkpoint.regions);
    let errno = restore::become_process(&moves, &checkpoint.handlers, &threads, heap, &constant);
    // What comes now is done by a program whose clock and handlers may be gone.
    Err(Failure::from_mapping(errno))
}

impl Failure {
    fn from_mapping(errno: Errno) -> Failure {
        match errno {
            Errno::EEXIST => Failure::InTheWay,
            errno => Failure::NotNow(sys::describe(errno)),
        }
    }
}

impl From<super::Thread> for Thread {
    fn from(saved: super::Thread) -> Thread {
        let super::Thread { registers, vectors, mask, stack, robust, number } = saved;
        Thread { registers, vectors, mask, stack, robust, number }
    }
}

fn open(path: &Path) -> Result<File, Failure> {
    File::open(path).map_err(|error| {
        let why = format!("{}: {error}", path.display());
        match error.kind() {
            io::ErrorKind::NotFound => Failure::Never(why),
            _ => Failure::NotNow(why),
        }
    })
}

fn read(path: &Path) -> Result<Checkpoint, Failure> {
    let mut bytes = Vec::new();
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let read = open(path)?.take(LONGEST + 1).read_to_end(&mut bytes);
    let length = read.map_err(|error| Failure::NotNow(failed(&error)))?;
    if length as u64 > LONGEST {
        return Err(Failure::Never(failed(&format!("it is longer than {LONGEST} bytes"))));
    }
    serde_json::from_slice(&bytes).map_err(|error| Failure::Never(failed(&error)))
}

impl Checkpoint {
    /// Whether it is whole: what is not there of a file that is mapped would end the process when it looks there.
    pub(super) fn check(&self, pages: u64) -> Result<(), String> {
        let odd = |what: &str| Err(format!("it is odd: {what}"));
        if self.version != VERSION {
            return odd("its version");
        }
        if pages < self.pages {
            return odd("its pages are cut off");
        }
        if self.handlers.len() != 64 || self.threads.is_empty() {
            return odd("its threads");
        }
        let mut before = 0;
        for region in &self.regions {
            let length = region.end.saturating_sub(region.start);
            let whole = are_pages(region.start, region.end) && region.start >= before;
            let there = match region.content {
                Content::Nothing => true,
                Content::File(file, _) => file < self.files.len(),
                Content::Memory(offset) => offset.is_multiple_of(super::PAGE),
                Content::Pages(at) => {
                    at.is_multiple_of(super::PAGE)
                        && at.checked_add(length).is_some_and(|end| end <= self.pages)
                }
            };
            if !whole || !there || region.protection > 7 {
                return odd("its memory");
            }
            before = region.end;
        }
        let numbers = |at: u64| self.regions.iter().any(|one| one.start <= at && at < one.end);
        if !self.threads.iter().all(|thread| numbers(thread.number)) {
            return odd("its threads' numbers");
        }
        let given = |number: i32| (0..ABOVE).contains(&number);
        if !self.descriptors.iter().all(|one| given(one.number)) {
            return odd("its descriptors");
        }
        Ok(())
    }
}

/// A descriptor once more, out of the way.
fn above(number: i32) -> Result<OwnedFd, String> {
    restore::above(number, ABOVE).map_err(|errno| format!("descriptor {number}: {errno:?}"))
}

/// Maps its memory where it was.
fn map(checkpoint: &Checkpoint, pages: &File, memory: BorrowedFd<'_>) -> Result<(), Failure> {
    let mut files = BTreeMap::new();
    for region in &checkpoint.regions {
        let file = match region.content {
            Content::Nothing => None,
            Content::Memory(offset) => Some((memory, offset)),
            Content::Pages(at) => Some((pages.as_fd(), at)),
            Content::File(at, offset) => {
                if let std::collections::btree_map::Entry::Vacant(entry) = files.entry(at) {
                    entry.insert(same(&checkpoint.files[at])?);
                }
                Some((files[&at].as_fd(), offset))
            }
        };
        restore::map(region.start, region.end - region.start, region.protection, file)
            .map_err(Failure::from_mapping)?;
    }
    Ok(())
}

/// What is mapped of files and cannot be written: its program and libraries. From where to where, ascending.
pub(super) fn constant(regions: &[Region]) -> Vec<(u64, u64)> {
    let mut parts: Vec<(u64, u64)> = Vec::new();
    for region in regions {
        let of_a_file = matches!(region.content, Content::File(..) | Content::Pages(_));
        if !of_a_file || region.protection & WRITE != 0 {
            continue;
        }
        match parts.last_mut() {
            Some((_, end)) if *end == region.start => *end = region.end,
            _ => parts.push((region.start, region.end)),
        }
    }
    parts
}

/// A file that is what it was.
fn same(mapped: &Mapped) -> Result<File, Failure> {
    let file = open(&mapped.path)?;
    let data = file.metadata().map_err(|error| Failure::NotNow(error.to_string()))?;
    if Mapped::of(&mapped.path, &data) == *mapped {
        Ok(file)
    } else {
        Err(Failure::Never(format!("{} has changed", mapped.path.display())))
    }
}

/// From where to where what has this name is mapped, of a line of `/proc/self/maps`.
fn range(line: &str, name: &str) -> Option<(u64, u64)> {
    let (start, end) = line.ends_with(name).then(|| line.split_once(' '))??.0.split_once('-')?;
    Some((u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?))
}

/// Where the kernel's own parts are to go.
fn moves(maps: &str, wanted: &[Kernels]) -> Result<Vec<restore::Move>, Failure> {
    let find = |one: &Kernels| {
        let (start, end) = maps.lines().find_map(|line| range(line, &one.name))?;
        let length = end.checked_sub(start)?;
        (length == one.end.checked_sub(one.start)?).then_some((start, one.start, length))
    };
    let lacks = |one: &Kernels| Failure::Never(format!("the kernel's {} is another one", one.name));
    wanted.iter().map(|one| find(one).ok_or_else(|| lacks(one))).collect()
}

/// Makes its descriptors, at their numbers.
fn descriptors(checkpoint: &Checkpoint, given: Vec<OwnedFd>) -> Result<(), String> {
    let failed = |errno: Errno| format!("a descriptor: {}", sys::describe(errno));
    // Out of the way first: a new one may have a number that another is to have.
    let place = |made: OwnedFd, number| {
        let high = restore::above(made.as_raw_fd(), ABOVE)?;
        // Before the number is given: it may have been this very one, which would be closed with it.
        drop(made);
        restore::place(high.as_fd(), number)
    };
    for descriptor in &checkpoint.descriptors {
        let number = descriptor.number;
        let placed = match &descriptor.kind {
            Kind::Given(waits_not) => {
                match usize::try_from(number).ok().and_then(|at| given.get(at)) {
                    None => Err(Errno::EBADF),
                    Some(fd) if *waits_not => sys::fd::never_wait(fd.as_fd()),
                    Some(_) => Ok(()),
                }
            }
            Kind::Memory => restore::place(given[0].as_fd(), number),
            Kind::Event(count) => restore::event(*count).and_then(|made| place(made, number)),
            Kind::Signals(mask) => restore::signals(*mask).and_then(|made| place(made, number)),
            Kind::Epoll(_) => restore::epoll().and_then(|made| place(made, number)),
        };
        placed.map_err(failed)?;
    }
    // They may watch each other.
    for descriptor in &checkpoint.descriptors {
        if let Kind::Epoll(watched) = &descriptor.kind {
            for &(number, events, data) in watched {
                restore::watch(descriptor.number, number, events, data).map_err(failed)?;
            }
        }
    }
    Ok(())
}
