//! The program of a session that is played: it makes one system call after the other, those that a loader, a C library and
//! a shell make, and ends. It is no more than that, since all of it has to be translated as well.
//!
//! It is made here, byte by byte (elf(5)): nothing that is installed can be relied on, and a guest has no files yet.

/// Where it is loaded.
const BASE: u64 = 0x40_0000;
/// Where it has memory of its own, which is zero, and how much.
const MEMORY: u64 = 0x50_0000;
const MEMORY_SIZE: u64 = 0x1_0000;
/// Where its mapping of a file and its memory without one are to be.
const MAPPED: u64 = 0x60_0000;
const ANONYMOUS: u64 = 0x70_0000;
/// How long the headers are: the file's, and those of two segments.
const HEADERS: u64 = 64 + 2 * 56;
/// The machine code: `rbx` goes through a table of calls, a number and six arguments each.
const CODE: [u8; 36] = [
    0x48, 0x8b, 0x03, // mov rax, [rbx]
    0x48, 0x8b, 0x7b, 0x08, // mov rdi, [rbx + 8]
    0x48, 0x8b, 0x73, 0x10, // mov rsi, [rbx + 16]
    0x48, 0x8b, 0x53, 0x18, // mov rdx, [rbx + 24]
    0x4c, 0x8b, 0x53, 0x20, // mov r10, [rbx + 32]
    0x4c, 0x8b, 0x43, 0x28, // mov r8, [rbx + 40]
    0x4c, 0x8b, 0x4b, 0x30, // mov r9, [rbx + 48]
    0x0f, 0x05, // syscall
    0x48, 0x83, 0xc3, 0x38, // add rbx, 56
    0xeb, 0xdd, // jmp to the first
    0xcc,
];
/// What it says.
const SAID: &[u8] = b"played\n";

/// The program's file. `name` is what it is called in the root.
#[must_use]
pub fn make(name: &[u8]) -> Vec<u8> {
    // The code begins with `mov ebx, TABLE`.
    let strings = HEADERS + 5 + CODE.len() as u64;
    let own = strings;
    let absent = own + name.len() as u64 + 2;
    let said = absent + ABSENT.len() as u64;
    let table = (said + SAID.len() as u64).next_multiple_of(8);
    let calls = calls(BASE + own, BASE + absent, BASE + said);
    let size = table + calls.len() as u64 * 56;
    let mut file = Vec::with_capacity(size as usize);
    // ELF, 64 bits, little-endian, version 1; an executable for x86-64.
    file.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    file.extend([2, 0, 62, 0, 1, 0, 0, 0]);
    words(&mut file, &[BASE + HEADERS, 64, 0]);
    // Flags, and the sizes of headers: this one, two of segments, none of sections.
    file.extend([0, 0, 0, 0, 64, 0, 56, 0, 2, 0, 64, 0, 0, 0, 0, 0]);
    // PT_LOAD: read and execute the file; read and write memory.
    file.extend([1, 0, 0, 0, 5, 0, 0, 0]);
    words(&mut file, &[0, BASE, BASE, size, size, 4096]);
    file.extend([1, 0, 0, 0, 6, 0, 0, 0]);
    words(&mut file, &[0, MEMORY, MEMORY, 0, MEMORY_SIZE, 4096]);
    file.push(0xbb);
    file.extend(((BASE + table) as u32).to_le_bytes());
    file.extend(CODE);
    file.push(b'/');
    file.extend(name);
    file.push(0);
    file.extend(ABSENT);
    file.extend(SAID);
    file.resize(table as usize, 0);
    for (number, arguments) in calls {
        words(&mut file, &[number]);
        words(&mut file, &arguments);
    }
    file
}

const ABSENT: &[u8] = b"/absent\0";

fn words(file: &mut Vec<u8>, list: &[u64]) {
    list.iter().for_each(|word| file.extend(word.to_le_bytes()));
}

/// What it calls, with the places of its own path, one that is not there, and what it says. The first file that it opens is number 3.
fn calls(own: u64, absent: u64, said: u64) -> Vec<(u64, [u64; 6])> {
    let any = u64::MAX;
    let here = -100_i64 as u64;
    let call = |number: u64, given: &[u64]| {
        let mut arguments = [0; 6];
        arguments[..given.len()].copy_from_slice(given);
        (number, arguments)
    };
    vec![
        call(12, &[0]),                                     // brk
        call(158, &[0x1002, MEMORY]),                       // arch_prctl: a thread's storage
        call(218, &[MEMORY]),                               // set_tid_address
        call(273, &[MEMORY + 64, 24]),                      // set_robust_list
        call(302, &[0, 3, 0, MEMORY]),                      // prlimit64
        call(318, &[MEMORY, 8, 0]),                         // getrandom
        call(63, &[MEMORY]),                                // uname
        call(21, &[absent, 4]),                             // access
        call(257, &[here, absent, 0, 0]),                   // openat
        call(257, &[here, own, 0x8_0000, 0]),               // openat: 3
        call(0, &[3, MEMORY, 832]),                         // read
        call(17, &[3, MEMORY, 64, 64]),                     // pread64
        call(262, &[3, absent + 7, MEMORY, 0x1000]),        // newfstatat
        call(9, &[MAPPED, 0x1000, 1, 0x12, 3, 0]),          // mmap: the file
        call(9, &[MAPPED + 0x1000, 0x1000, 3, 0x12, 3, 0]), // the same, to be written
        call(9, &[ANONYMOUS, 0x2_0000, 3, 0x32, any, 0]),   // memory without a file
        call(3, &[3]),                                      // close
        call(1, &[1, MAPPED, 0]),                           // write: nothing
        call(318, &[MAPPED + 0x1000, 8, 0]),                // getrandom: a page is copied
        call(318, &[ANONYMOUS, 8, 0]),                      // a new page
        call(10, &[MAPPED + 0x1000, 0x1000, 1]),            // mprotect
        call(11, &[MAPPED, 0x1000]),                        // munmap
        call(12, &[0]),                                     // brk
        call(13, &[17, 0, MEMORY, 8]),                      // rt_sigaction
        call(14, &[0, MEMORY + 256, 0, 8]),                 // rt_sigprocmask
        call(131, &[0, MEMORY]),                            // sigaltstack
        call(7, &[MEMORY, 0, 0]),                           // poll
        call(228, &[1, MEMORY]),                            // clock_gettime
        call(39, &[]),                                      // getpid
        call(102, &[]),                                     // getuid
        call(79, &[MEMORY, 256]),                           // getcwd
        call(16, &[1, 0x5401, MEMORY]),                     // ioctl: TCGETS
        call(72, &[1, 3]),                                  // fcntl: F_GETFL
        call(293, &[MEMORY, 0]),                            // pipe2
        call(33, &[1, 9]),                                  // dup2
        call(202, &[MEMORY, 1, 1]),                         // futex: FUTEX_WAKE
        call(56, &[17]),          // clone: a child, which goes on here as well
        call(61, &[any, MEMORY]), // wait4: of the child's there are none
        call(1, &[1, said, SAID.len() as u64]), // write
        call(231, &[0]),          // exit_group
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// It is the same on the host, where a file of its name is not in the root.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn it_runs_and_ends() {
        let place =
            std::env::temp_dir().join(format!("ringfence-rehearsal-{}", std::process::id()));
        let bytes = place.with_extension("bytes");
        std::fs::write(&bytes, make(b"rehearsal")).expect("written");
        // What we have written ourselves is open for writing in what others have forked meanwhile: not to be executed.
        let copied = std::process::Command::new("cp").args([&bytes, &place]).status();
        assert!(copied.expect("cp(1)").success());
        let all = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(&place, all).expect("executable");
        let ran = std::process::Command::new(&place).output();
        for made in [&bytes, &place] {
            std::fs::remove_file(made).expect("removed");
        }
        let ran = ran.expect("it starts");
        assert!(ran.status.success(), "{ran:?}");
        assert_eq!(ran.stdout, [SAID, SAID].concat());
    }
}
