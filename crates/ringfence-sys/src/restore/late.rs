//! What a restored process has mapped for its start, and does not need at its work.

use super::{Part, THREAD};

/// When it is at work.
static AT_WORK: libc::timespec = libc::timespec { tv_sec: 1, tv_nsec: 0 };

/// Starts a thread that lets go of a list of parts (madvise(2), `MADV_DONTNEED`) once the process is at work, and ends. Of the
/// emulator's program and libraries that are mapped by then the half was for its start, or is what the kernel maps
/// beside what is touched. What is needed comes back from the page cache. Where there can be no such thread, nothing is let go of.
pub(super) fn let_go(list: &'static [Part]) {
    // SAFETY: the new thread, by nanosleep(2), madvise(2) and exit(2), reads a constant and the list, which is kept. No signal is
    // taken by it, as none was by this one. It has this one's stack pointer and storage, and uses neither. What it lets go
    // of is mapped privately from files and was never written, or is this program's, of which nothing but this code is
    // needed by then: on the next touch, by whatever thread, the file's content is there.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 4f",
            "mov rdi, r13",
            "xor esi, esi",
            "mov eax, 35",
            "syscall",
            "2:",
            "mov rdi, [r12]",
            "test rdi, rdi",
            "jz 3f",
            "mov rsi, [r12 + 8]",
            "mov edx, 4",
            "mov eax, 28",
            "syscall",
            "add r12, 16",
            "jmp 2b",
            "3:",
            "xor edi, edi",
            "mov eax, 60",
            "syscall",
            "ud2",
            "4:",
            inlateout("rax") 56_i64 => _,
            inlateout("rdi") i64::from(THREAD) => _,
            inlateout("rsi") 0_i64 => _,
            inlateout("rdx") 0_i64 => _,
            in("r12") list.as_ptr(),
            in("r13") &raw const AT_WORK,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::time::{Duration, Instant};

    const PAGE: usize = crate::memory::PAGE;

    /// How many pages of a file's private mapping are there.
    fn there(start: usize, length: usize) -> usize {
        let pages = length / PAGE;
        let mut table = vec![0; pages * 8];
        let own = std::fs::File::open("/proc/self/pagemap").expect("open");
        std::os::unix::fs::FileExt::read_exact_at(&own, &mut table, (start / PAGE * 8) as u64)
            .expect("read");
        table.chunks(8).filter(|entry| entry[7] & 0x80 != 0).count()
    }

    #[test]
    fn what_is_on_the_list_goes_and_comes_back_when_it_is_needed() {
        let path = std::env::temp_dir().join(format!("ringfence-late-{}", std::process::id()));
        let mut file = std::fs::File::create_new(&path).expect("made");
        file.write_all(&[7; 16 * PAGE]).expect("written");
        let file = std::fs::File::open(&path).expect("open");
        std::fs::remove_file(&path).expect("removed");
        let length = 16 * PAGE;
        let map = |at: usize| {
            crate::restore::map(at as u64, length as u64, 1, Some((file.as_fd(), 0)))
                .expect("mapped");
            // SAFETY: it was mapped just now, for reading, as long, and is never unmapped.
            unsafe { std::slice::from_raw_parts(at as *const u8, length) }
        };
        let (listed, other) = (0x3_0000_0000, 0x3_1000_0000);
        let (one, two) = (map(listed), map(other));
        let sum = |bytes: &[u8]| bytes.iter().map(|byte| usize::from(*byte)).sum::<usize>();
        assert_eq!((sum(one), sum(two)), (7 * length, 7 * length));
        assert_eq!((there(listed, length), there(other, length)), (16, 16));
        let begun = Instant::now();
        let_go(Box::leak(Box::new([[listed as u64, length as u64], [0; 2]])));
        while there(listed, length) > 0 && begun.elapsed() < Duration::from_secs(60) {
            std::thread::yield_now();
        }
        assert_eq!((there(listed, length), there(other, length)), (0, 16));
        assert_eq!(sum(one), 7 * length);
        assert!(begun.elapsed() >= Duration::from_secs(1), "not before it is at work");
    }
}
