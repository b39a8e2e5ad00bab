//! How a QEMU that stands still is saved.

use super::{
    Checkpoint, Content, Descriptor, Host, Kernels, Kind, LAST_GIVEN, Mapped, PAGE, Region, Thread,
    VERSION,
};
use ringfence_sys::Sysno;
use ringfence_sys::fd::NON_BLOCKING;
use ringfence_sys::ptrace::{Held, SYSCALL, register};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// How often a thread that makes no system call is let go on for a millisecond.
const TRIES: u32 = 200;
/// Where glibc keeps a thread's number, from the beginning of its storage (`struct pthread`, `tid`; x86-64).
const NUMBER: u64 = 0x2d0;
/// How far below a thread's stack pointer a call of ours writes its answer: what was there is put back, and is not what the thread
/// keeps below it (128 bytes, by the ABI).
const SCRATCH: u64 = 16 * 1024;
/// How far the first thread's stack may grow: less than the usual limit, which counts from its top.
const STACK: u64 = 7 << 20;
/// How far apart parts of the file of pages begin, so that the kernel reads them ahead for themselves.
const ALIGNMENT: u64 = 64 * 1024;
/// So many zeroes are none of the file's: a clone that looks there would hold pages of it, and the kernel maps so many at once.
const GAP: u64 = 64 * 1024;
/// Of how many pages it is read at once whether there is something in them.
const MOST_AT_ONCE: u64 = 1 << 16;
/// `/proc/PID/pagemap`: there is a page, in memory or swapped out; it is a file's.
const PRESENT: u64 = 3 << 62;
const OF_A_FILE: u64 = 1 << 61;

/// Saves a process that waits, and whose memory of the guest's is `memory`, into two new files.
///
/// # Errors
/// A sentence: it may not be looked into, or is not what can be saved.
pub fn save(
    pid: i32,
    memory: &File,
    [process, pages]: &[std::path::PathBuf; 2],
) -> Result<(), String> {
    let threads = hold(pid)?;
    let proc = Path::new("/proc").join(pid.to_string());
    let own = open(&proc.join("mem"), true)?;
    let memory = identity(memory).map_err(|error| format!("the guest's memory: {error}"))?;
    let numbers = inner_numbers(&proc, &threads)?;
    let mut saved = Vec::new();
    for (held, number) in threads.iter().zip(numbers) {
        saved.push(thread(held, &own, number)?);
    }
    let first = threads.first().ok_or("it has no threads")?;
    let handlers = handlers(first, &own)?;
    let maps = read(&proc.join("maps"))?;
    super::heap::set_apart(first, &own, &maps)?;
    for held in &threads {
        without_rseq(held, &own)?;
    }
    let mut image = File::options();
    let image = image.write(true).create_new(true).mode(0o600).open(pages);
    let mut image = Image {
        own: &own,
        table: open(&proc.join("pagemap"), false)?,
        pages: image.map_err(|error| format!("{}: {error}", pages.display()))?,
        end: 0,
    };
    let mut checkpoint = Checkpoint {
        version: VERSION,
        host: Host::now(),
        kernels: Vec::new(),
        files: Vec::new(),
        regions: Vec::new(),
        heap: None,
        handlers,
        threads: saved,
        descriptors: descriptors(&proc, memory)?,
        pages: 0,
    };
    for line in maps.lines() {
        let line = Line::parse(line).ok_or_else(|| format!("odd mapping: {line}"))?;
        image.region(&line, memory, &mut checkpoint)?;
    }
    checkpoint.pages = image.end;
    image.pages.set_len(image.end).map_err(|error| error.to_string())?;
    let text = serde_json::to_vec(&checkpoint).map_err(|error| error.to_string())?;
    fs::write(process, text).map_err(|error| format!("{}: {error}", process.display()))
}

fn open(path: &Path, write: bool) -> Result<File, String> {
    let file = File::options().read(true).write(write).open(path);
    file.map_err(|error| format!("{}: {error}", path.display()))
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn identity(file: &File) -> std::io::Result<(u64, u64)> {
    file.metadata().map(|data| (data.dev(), data.ino()))
}

/// All threads of a process, held; the first one first.
fn hold(pid: i32) -> Result<Vec<Held>, String> {
    let seize = |thread| {
        Held::seize(thread).map_err(|errno| format!("ptrace: {}", ringfence_sys::describe(errno)))
    };
    let mut held = vec![seize(pid)?];
    // Those that one made which was not held yet.
    loop {
        let before = held.len();
        let entries =
            fs::read_dir(format!("/proc/{pid}/task")).map_err(|error| error.to_string())?;
        for thread in entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        {
            if !held.iter().any(|known| known.id() == thread) {
                held.push(seize(thread)?);
            }
        }
        if held.len() == before {
            return Ok(held);
        }
    }
}

/// The numbers that they have in their own PID namespace.
fn inner_numbers(proc: &Path, threads: &[Held]) -> Result<Vec<u32>, String> {
    let number = |held: &Held| {
        let status = read(&proc.join(format!("task/{}/status", held.id())))?;
        let own = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        let number = own.and_then(|own| own.split_whitespace().last()?.parse().ok());
        number.ok_or_else(|| "NSpid is not told".to_owned())
    };
    threads.iter().map(number).collect()
}

fn kernel(errno: ringfence_sys::Errno) -> String {
    format!("ptrace: {}", ringfence_sys::describe(errno))
}

/// One thread. It must wait in a system call, whose state is all in its registers.
fn thread(held: &Held, memory: &File, number: u32) -> Result<Thread, String> {
    let mut tries = 0;
    let registers = loop {
        let registers = held.registers().map_err(kernel)?;
        let mut before = [0; 2];
        let at = registers[register::RIP].wrapping_sub(2);
        let called = memory.read_exact_at(&mut before, at).is_ok() && before == SYSCALL;
        if called && registers[register::ORIG_RAX] as i64 >= 0 {
            break registers;
        }
        if tries == TRIES {
            return Err("a thread does not come to rest".to_owned());
        }
        tries += 1;
        held.go_on_for(1).map_err(kernel)?;
    };
    let place = registers[register::FS_BASE] + NUMBER;
    let mut found = [0; 4];
    let kept =
        memory.read_exact_at(&mut found, place).is_ok() && u32::from_ne_bytes(found) == number;
    if !kept || registers[register::GS_BASE] != 0 {
        return Err("its C library does not keep its threads as glibc does".to_owned());
    }
    let mut stack = [0; 24];
    asked(held, memory, Sysno::sigaltstack, |at| [0, at, 0, 0], &mut stack)?;
    let word = |at: usize| u64::from_ne_bytes(stack[at..at + 8].try_into().unwrap_or_default());
    Ok(Thread {
        registers,
        vectors: held.vectors().map_err(kernel)?,
        mask: held.mask().map_err(kernel)?,
        stack: (word(0), word(8) as u32, word(16)),
        robust: held.robust().map_err(kernel)?,
        number: place,
    })
}

/// A restored thread's C library does not have the kernel write which processor it runs on: so that it asks, it is told that there
/// was nobody to do so. No call is to be made of the thread any more: at its end the kernel writes it anew.
pub(super) fn without_rseq(held: &Held, memory: &File) -> Result<(), String> {
    /// `RSEQ_CPU_ID_REGISTRATION_FAILED`, where `struct rseq` has the processor.
    const FAILED: i32 = -2;
    const PROCESSOR: u64 = 4;
    // A kernel that does not tell of it: the number stays what it was, and is a hint.
    let Ok(Some(place)) = held.rseq() else { return Ok(()) };
    memory
        .write_all_at(&FAILED.to_ne_bytes(), place + PROCESSOR)
        .map_err(|error| format!("/proc/PID/mem: {error}"))
}

/// Has a thread make a call that writes an answer, below its stack, which is left as it was.
fn asked(
    held: &Held,
    memory: &File,
    call: Sysno,
    words: impl Fn(u64) -> [u64; 4],
    answer: &mut [u8],
) -> Result<(), String> {
    let stack = held.registers().map_err(kernel)?[register::RSP];
    let at = (stack - SCRATCH) & !63;
    let mut before = vec![0; answer.len()];
    let failed = |error: std::io::Error| format!("/proc/PID/mem: {error}");
    memory.read_exact_at(&mut before, at).map_err(failed)?;
    let made = held.call(call, words(at)).map_err(|errno| format!("{call:?}: {errno:?}"));
    let read = memory.read_exact_at(answer, at).map_err(failed);
    memory.write_all_at(&before, at).map_err(failed)?;
    made.and(read)
}

fn handlers(first: &Held, memory: &File) -> Result<Vec<[u64; 4]>, String> {
    let mut handlers = Vec::new();
    for signal in 1..=64 {
        let mut answer = [0; 32];
        asked(first, memory, Sysno::rt_sigaction, |at| [signal, 0, at, 8], &mut answer)?;
        let word =
            |at: usize| u64::from_ne_bytes(answer[at..at + 8].try_into().unwrap_or_default());
        handlers.push([word(0), word(8), word(16), word(24)]);
    }
    Ok(handlers)
}

fn descriptors(proc: &Path, memory: (u64, u64)) -> Result<Vec<Descriptor>, String> {
    let mut found = Vec::new();
    let place = proc.join("fd");
    for entry in fs::read_dir(&place).map_err(|error| error.to_string())?.flatten() {
        let name = entry.file_name();
        let Some(number) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let information = read(&proc.join("fdinfo").join(&name))?;
        let kind = if number <= LAST_GIVEN {
            let flags = information.lines().find_map(|line| line.strip_prefix("flags:"));
            let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok());
            let flags = flags.ok_or("flags are not told")?;
            Kind::Given(flags & NON_BLOCKING != 0)
        } else {
            let target = fs::read_link(entry.path()).map_err(|error| error.to_string())?;
            let target = target.to_string_lossy().into_owned();
            kind(&target, &information, &entry.path(), memory)
                .ok_or_else(|| format!("it has {target} open"))?
        };
        found.push(Descriptor { number, kind });
    }
    found.sort_by_key(|descriptor| descriptor.number);
    Ok(found)
}

pub(super) fn kind(
    target: &str,
    information: &str,
    path: &Path,
    memory: (u64, u64),
) -> Option<Kind> {
    let word = |name: &str| {
        let line = information.lines().find_map(|line| line.strip_prefix(name))?;
        u64::from_str_radix(line.trim(), 16).ok()
    };
    match target {
        "anon_inode:[eventfd]" => word("eventfd-count:").map(Kind::Event),
        "anon_inode:[signalfd]" => word("sigmask:").map(Kind::Signals),
        "anon_inode:[eventpoll]" => {
            let watched = information.lines().filter(|line| line.starts_with("tfd:"));
            watched.map(watches).collect::<Option<Vec<_>>>().map(Kind::Epoll)
        }
        _ => {
            let data = fs::metadata(path).ok()?;
            ((data.dev(), data.ino()) == memory).then_some(Kind::Memory)
        }
    }
}

/// `tfd: N events: MASK data: WORD …`
pub(super) fn watches(line: &str) -> Option<(i32, u32, u64)> {
    let mut words = line.split_whitespace();
    let mut after = |name: &str| words.find(|word| *word == name).and_then(|_| words.next());
    let number = after("tfd:")?.parse().ok()?;
    let events = u32::from_str_radix(after("events:")?, 16).ok()?;
    let data = u64::from_str_radix(after("data:")?, 16).ok()?;
    Some((number, events, data))
}

/// A line of `/proc/PID/maps`.
pub(super) struct Line<'a> {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) protection: u32,
    pub(super) private: bool,
    pub(super) offset: u64,
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) name: &'a str,
}

impl Line<'_> {
    pub(super) fn parse(line: &str) -> Option<Line<'_>> {
        let mut rest = line;
        let mut word = || {
            let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
            rest = after.trim_start();
            word
        };
        let hexadecimal = |text: &str| u64::from_str_radix(text, 16).ok();
        let (start, end) = word().split_once('-')?;
        let [r, w, x, private] = *word().as_bytes() else { return None };
        let offset = hexadecimal(word())?;
        let (major, minor) = word().split_once(':')?;
        let device = device(hexadecimal(major)?, hexadecimal(minor)?);
        let inode = word().parse().ok()?;
        let bit = |byte: u8, letter: u8, bit: u32| if byte == letter { bit } else { 0 };
        Some(Line {
            start: hexadecimal(start)?,
            end: hexadecimal(end)?,
            protection: bit(r, b'r', 1) | bit(w, b'w', 2) | bit(x, b'x', 4),
            private: private == b'p',
            offset,
            device,
            inode,
            name: rest,
        })
    }
}

/// A device's number as stat(2) tells it (makedev(3)).
pub(super) fn device(major: u64, minor: u64) -> u64 {
    (major & 0xffff_f000) << 32 | (major & 0xfff) << 8 | (minor & 0xffff_ff00) << 12 | minor & 0xff
}

/// The file of pages that is being written.
struct Image<'a> {
    /// The process's memory.
    own: &'a File,
    /// Which of its pages there are.
    table: File,
    pages: File,
    end: u64,
}

impl Image<'_> {
    fn region(
        &mut self,
        line: &Line<'_>,
        memory: (u64, u64),
        to: &mut Checkpoint,
    ) -> Result<(), String> {
        let Line { start, end, protection, .. } = *line;
        let mut add = |start, end, content| {
            to.regions.push(Region { start, end, protection, content });
        };
        match line.name {
            "[vsyscall]" => return Ok(()),
            "[vdso]" | "[vvar]" | "[vvar_vclock]" => {
                to.kernels.push(Kernels { name: line.name.to_owned(), start, end });
                return Ok(());
            }
            "[heap]" => to.heap = to.heap.or(Some(start)),
            "" | "[stack]" => {}
            name if name.starts_with('/') => {}
            name if name.starts_with("[anon") => {}
            name => return Err(format!("it has {name} mapped")),
        }
        if line.inode != 0 && (line.device, line.inode) == memory {
            add(start, end, Content::Memory(line.offset));
            return Ok(());
        }
        if !line.private {
            return Err(format!("it shares {} with others", line.name));
        }
        if line.name == "[stack]" {
            // A mapping made at a place does not grow.
            add(end.saturating_sub(STACK).min(start), start, Content::Nothing);
        }
        let of_a_file = line.inode != 0;
        let Some((first, last)) = self.written(start, end, of_a_file)? else {
            let content = match of_a_file.then(|| self.file(line, to)) {
                None => Content::Nothing,
                Some(file) => Content::File(file?, line.offset),
            };
            to.regions.push(Region { start, end, protection, content });
            return Ok(());
        };
        // Of a file all of it, since what lies between its written pages is the file's.
        let (first, last) = if of_a_file { (start, end) } else { (first, last) };
        let (there, at) = (self.end, first);
        let mut before = start;
        for (from, to) in self.copy(first, last)? {
            if before < from {
                add(before, from, Content::Nothing);
            }
            add(from, to, Content::Pages(there + (from - at)));
            before = to;
        }
        if before < end {
            add(before, end, Content::Nothing);
        }
        Ok(())
    }

    /// A file's place in the list.
    fn file(&self, line: &Line<'_>, to: &mut Checkpoint) -> Result<usize, String> {
        let path = Path::new(line.name);
        let failed = |error: std::io::Error| format!("{}: {error}", path.display());
        let data = fs::metadata(path).map_err(failed)?;
        if data.ino() != line.inode {
            return Err(format!("{} is another file by now", path.display()));
        }
        let mapped = Mapped::of(path, &data);
        Ok(to.files.iter().position(|known| *known == mapped).unwrap_or_else(|| {
            to.files.push(mapped);
            to.files.len() - 1
        }))
    }

    /// From the first page that the process has written there to the end of the last one.
    fn written(&self, start: u64, end: u64, of_a_file: bool) -> Result<Option<(u64, u64)>, String> {
        let mut found: Option<(u64, u64)> = None;
        let mut at = start;
        while at < end {
            let count = ((end - at) / PAGE).min(MOST_AT_ONCE);
            let mut table = vec![0; count as usize * 8];
            self.table
                .read_exact_at(&mut table, at / PAGE * 8)
                .map_err(|error| error.to_string())?;
            for (page, entry) in (at..).step_by(PAGE as usize).zip(table.chunks_exact(8)) {
                let entry = u64::from_ne_bytes(entry.try_into().unwrap_or_default());
                if entry & PRESENT != 0 && !(of_a_file && entry & OF_A_FILE != 0) {
                    found = Some((found.map_or(page, |(first, _)| first), page + PAGE));
                }
            }
            at += count * PAGE;
        }
        Ok(found)
    }

    /// Copies what is not zero to the end of the file; the parts in which there is such.
    fn copy(&mut self, start: u64, end: u64) -> Result<Vec<(u64, u64)>, String> {
        let mut buffer = vec![0; 1 << 20];
        let failed = |error: std::io::Error| format!("its memory: {error}");
        let mut parts: Vec<(u64, u64)> = Vec::new();
        let mut at = start;
        while at < end {
            let piece = &mut buffer[..(1 << 20).min((end - at) as usize)];
            self.own.read_exact_at(piece, at).map_err(failed)?;
            for (page, bytes) in (at..).step_by(PAGE as usize).zip(piece.chunks(PAGE as usize)) {
                if bytes.iter().all(|&byte| byte == 0) {
                    continue;
                }
                self.pages.write_all_at(bytes, self.end + (page - start)).map_err(failed)?;
                match parts.last_mut() {
                    Some((_, last)) if page - *last < GAP => *last = page + PAGE,
                    _ => parts.push((page, page + PAGE)),
                }
            }
            at += piece.len() as u64;
        }
        self.end = (self.end + (end - start)).next_multiple_of(ALIGNMENT);
        Ok(parts)
    }
}
