//! What is read of a process, and what a saved one must be like.

use super::save::{Line, device, kind, watches};
use super::*;

#[test]
fn lines_of_proc_are_read() {
    let line =
        "7f00-7f1000 r-xp 00026000 fe:00 15630934                   /usr/lib/a b.so (deleted)";
    let line = Line::parse(line).expect("a line");
    assert_eq!((line.start, line.end, line.offset), (0x7f00, 0x7f_1000, 0x26000));
    assert_eq!((line.protection, line.private, line.inode), (5, true, 15_630_934));
    assert_eq!((line.device, line.name), (0xfe00, "/usr/lib/a b.so (deleted)"));
    let line =
        Line::parse("7f00-7f1000 rw-s 00000000 00:01 293768 /memfd:x (deleted)").expect("one");
    assert_eq!((line.protection, line.private, line.device), (3, false, 1));
    let line = Line::parse("7f00-7f1000 ---p 00000000 00:00 0 ").expect("one");
    assert_eq!((line.protection, line.name), (0, ""));
    for odd in
        ["", "7f00 rw-p 0 0:0 0", "x-7f1000 rw-p 0 0:0 0", "1-2 rw 0 0:0 0", "1-2 rw-p 0 0 0"]
    {
        assert!(Line::parse(odd).is_none(), "{odd}");
    }
    // makedev(3): both halves in use.
    assert_eq!(device(0x12345, 0x6789a), 0x0001_2000_6783_459a);
    let watched =
        watches("tfd:        4 events:       19 data:     55e2e022c0  pos:0 ino:41b sdev:10");
    assert_eq!(watched, Some((4, 0x19, 0x55_e2e0_22c0)));
    assert_eq!(watches("tfd: x"), None);
}

#[test]
fn what_is_open_is_known_or_the_process_is_not_saved() {
    let of = |target: &str, text: &str| kind(target, text, Path::new("/dev/null"), (0, 0));
    let counts = "pos:\t0\nflags:\t02004002\neventfd-count:               1f\neventfd-id: 4\n";
    assert!(matches!(of("anon_inode:[eventfd]", counts), Some(Kind::Event(0x1f))));
    assert!(matches!(
        of("anon_inode:[signalfd]", "sigmask:\t0000000010002040\n"),
        Some(Kind::Signals(0x1000_2040))
    ));
    let watched = "flags: 02\ntfd:        4 events:       19 data:     1  pos:0\n";
    assert!(
        matches!(of("anon_inode:[eventpoll]", watched), Some(Kind::Epoll(list)) if list == [(4, 0x19, 1)])
    );
    assert!(of("anon_inode:[eventpoll]", "tfd: 4\n").is_none());
    for other in ["socket:[1]", "pipe:[2]", "anon_inode:[io_uring]", "/dev/null"] {
        assert!(of(other, "").is_none(), "{other}");
    }
}

/// Each part that is not what it must be keeps the whole from being used.
#[test]
fn what_was_saved_must_be_whole() {
    let good = || Checkpoint {
        version: VERSION,
        host: Host::now(),
        kernels: Vec::new(),
        files: Vec::new(),
        regions: vec![
            Region { start: 0x1000, end: 0x3000, protection: 3, content: Content::Pages(0x1000) },
            Region { start: 0x3000, end: 0x4000, protection: 0, content: Content::Nothing },
        ],
        heap: Some(0x1000),
        handlers: vec![[0; 4]; 64],
        threads: vec![Thread {
            registers: Registers::default(),
            vectors: Vec::new(),
            mask: 0,
            stack: (0, 0, 0),
            robust: (0, 0),
            number: 0x1008,
        }],
        descriptors: vec![Descriptor { number: 3, kind: Kind::Memory }],
        pages: 0x3000,
    };
    assert_eq!(good().check(0x3000), Ok(()));
    assert!(good().check(0x2fff).is_err(), "its pages are cut off");
    let changes: [fn(&mut Checkpoint); 13] = [
        |all| all.version += 1,
        |all| all.pages = 0x2000,
        |all| all.handlers.truncate(63),
        |all| all.threads.clear(),
        |all| all.threads[0].number = 0x4000,
        |all| all.descriptors[0].number = -1,
        |all| all.descriptors[0].number = 5000,
        |all| all.regions[0].start = 0x1001,
        |all| all.regions[0].end = 0x3800,
        |all| all.regions[1].start = 0x2000,
        |all| all.regions[1].protection = 8,
        |all| all.regions[1].end = 1 << 48,
        |all| all.regions[1].content = Content::File(0, 0),
    ];
    for (at, change) in changes.iter().enumerate() {
        let mut checkpoint = good();
        change(&mut checkpoint);
        assert!(checkpoint.check(0x3000).is_err(), "{at}");
    }
}

/// What a thread's C library reads of its processor without asking (rseq(2)) would be what it was when it was saved.
#[test]
fn a_saved_thread_is_not_told_which_processor_it_runs_on() {
    use ringfence_sys::ptrace::Held;
    use std::io::{Read, Write};
    use std::os::unix::fs::FileExt;
    use std::process::{Command, Stdio};
    let mut child =
        Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("cat(1)");
    // Its C library has begun where it answers.
    let (mut to, mut from) = (child.stdin.take().expect("piped"), child.stdout.take());
    to.write_all(b"x").expect("written");
    from.as_mut().expect("piped").read_exact(&mut [0]).expect("answered");
    let memory =
        fs::File::options().read(true).write(true).open(format!("/proc/{}/mem", child.id()));
    let memory = memory.expect("its memory");
    let held = Held::seize(child.id() as i32).expect("held");
    // Not with glibc before 2.35, nor told by Linux before 5.13.
    if let Ok(Some(place)) = held.rseq() {
        let processor = || {
            let mut word = [0; 4];
            memory.read_exact_at(&mut word, place + 4).expect("there");
            i32::from_ne_bytes(word)
        };
        assert!(processor() >= 0, "{}", processor());
        save::without_rseq(&held, &memory).expect("told");
        assert_eq!(processor(), -2);
    }
    drop((held, to));
    assert!(child.wait().expect("ended").success());
}

#[test]
fn what_is_let_go_of_is_a_files_and_never_written() {
    let region = |pages: std::ops::Range<u64>, protection, content| Region {
        start: pages.start * PAGE,
        end: pages.end * PAGE,
        protection,
        content,
    };
    let parts = restore::constant(&[
        region(1..3, 1, Content::File(0, 0)),
        region(3..5, 5, Content::File(0, 2 * PAGE)),
        region(5..6, 1, Content::Pages(0)),
        // What can be written may have been, and what is of no file is nowhere else.
        region(6..8, 3, Content::Pages(PAGE)),
        region(8..9, 7, Content::File(1, 0)),
        region(9..10, 1, Content::Nothing),
        region(10..11, 1, Content::Memory(0)),
        region(12..13, 5, Content::File(1, PAGE)),
    ]);
    assert_eq!(parts, [(PAGE, 6 * PAGE), (12 * PAGE, 13 * PAGE)]);
}
