//! What a saved process's C library believes of its heap (brk(2)), which a restored one does not have: the kernel's is
//! the restorer's there.

use super::PAGE;
use super::save::Line;
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSymbol};
use ringfence_sys::ptrace::Held;
use ringfence_sys::{Sysno, describe};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};

/// Where glibc keeps the end of the heap, as sbrk(2) tells it.
const END: &str = "__curbrk";
/// By what name glibc is mapped.
const LIBRARY: &str = "/libc.so.6";

/// A restored thread's C library takes the heap's end to be a page further than it is, and so neither gives back nor
/// extends what it has of it:
///
/// - To give memory back, `free(3)` and `malloc_trim(3)` ask first whether the heap still ends where theirs does. Else
///   they have the kernel set its end, look where it is then, at the restorer's heap, and take all that lies between
///   for given back: "double free or corruption (out)".
/// - What is asked for behind that end cannot be had, since the heap that was saved lies before it: the kernel answers
///   with the restorer's, which is lower, and `malloc(3)` maps its memory elsewhere from then on.
///
/// A process without a heap is left as it is.
pub(super) fn set_apart(held: &Held, memory: &File, maps: &str) -> Result<(), String> {
    if !maps.lines().any(|line| line.ends_with("[heap]")) {
        return Ok(());
    }
    let end = held.call(Sysno::brk, [0; 4]);
    let end = end.map_err(|errno| format!("brk: {}", describe(errno)))? as u64;
    let place = kept_at(maps).ok_or("it has no C library that is known")?;
    let failed = |error: std::io::Error| format!("/proc/PID/mem: {error}");
    let mut kept = [0; 8];
    memory.read_exact_at(&mut kept, place).map_err(failed)?;
    if u64::from_ne_bytes(kept) != end {
        return Err("its C library does not keep its heap's end as glibc does".to_owned());
    }
    memory.write_all_at(&(end + PAGE).to_ne_bytes(), place).map_err(failed)
}

/// Where a process keeps it, by what it has mapped.
fn kept_at(maps: &str) -> Option<u64> {
    let mut lines = maps.lines().filter_map(Line::parse);
    let library = lines.find(|line| line.name.ends_with(LIBRARY) && line.offset == 0)?;
    if fs::metadata(library.name).ok()?.ino() != library.inode {
        return None;
    }
    let bytes = fs::read(library.name).ok()?;
    let file = ElfFile64::<Endianness>::parse(&*bytes).ok()?;
    let found = file.dynamic_symbols().find(|symbol| symbol.name() == Ok(END))?;
    library.start.checked_add(found.address())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Read, Write};
    use std::process::{Command, Stdio};

    /// Python tells what the C library of its process says.
    const SAYS: &str = "import ctypes, sys
libc = ctypes.CDLL(None)
libc.sbrk.restype = libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]; libc.free.argtypes = [ctypes.c_void_p]
few = [libc.malloc(100_000) for _ in range(100)]
print(libc.sbrk(0), flush=True); sys.stdin.readline()
said = libc.sbrk(0)
for one in reversed(few): libc.free(one)
libc.malloc_trim(0)
print(said, libc.sbrk(0), flush=True)";

    #[test]
    fn the_c_library_is_told_another_end_and_gives_nothing_back() {
        let run = |apart: bool| {
            let mut child = Command::new("python3")
                .args(["-c", SAYS])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("python3");
            let mut to = child.stdin.take().expect("piped");
            let mut from = BufReader::new(child.stdout.take().expect("piped"));
            let mut said = String::new();
            from.read_line(&mut said).expect("said");
            let end: u64 = said.trim().parse().expect("a number");
            if apart {
                let place = format!("/proc/{}", child.id());
                let memory = File::options().read(true).write(true).open(format!("{place}/mem"));
                let maps = fs::read_to_string(format!("{place}/maps")).expect("read");
                let held = Held::seize(child.id() as i32).expect("held");
                assert_eq!(set_apart(&held, &memory.expect("its memory"), &maps), Ok(()));
            }
            to.write_all(b"\n").expect("written");
            let mut rest = String::new();
            from.read_to_string(&mut rest).expect("said");
            assert!(child.wait().expect("ended").success());
            let numbers: Vec<u64> =
                rest.split_whitespace().map(|word| word.parse().expect("a number")).collect();
            let (then, after) = (numbers[0], numbers[1]);
            (then - end, after < then)
        };
        assert_eq!(run(false), (0, true), "the control: its memory was given back");
        assert_eq!(run(true), (PAGE, false));
    }
}
