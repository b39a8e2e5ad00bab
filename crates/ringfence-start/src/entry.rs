//! The program's ELF entry: a start whose compiled plan is in the cache, and whose inputs are as
//! they were, is launched right here; everything else goes on to libc as usual.
//!
//! ```text
//! kernel ─► ringfence_entry ── no image ───────────────────────────► _start ─► main: as always
//!               │ clone3
//!               ├─ launcher: does the image hold? ── no: ends the child ───────► _start ─► main: as always
//!               │     └── tells the child; a moment's sleep ── ends with a command that ended in it
//!               │               └── else ──► _start (libc) ─► main: supervises what runs already
//!               └─ child: builds, is told, spawns, watches ── rarely ─► _start ─► main: a warden with libc
//! ```
//!
//! `exec` goes a way like it ([`crate::ask`]).
//!
//! The binary names `ringfence_entry` as its entry by a linker argument; in programs that do not
//! (tests) all of this is dead code, and [`caller`] says so.

use crate::Result;
use crate::bytes::{Text, equal, from};
use crate::call::{close, sys};
use crate::child::{self, Start};
use crate::image::{ANNOUNCED, BRIEF, Image, JOB, PROCESS_TIER, Span};
use crate::inherited::{self, LEFT_ALONE, mask, streams_are_usable, umask};
use crate::key::Caller;
use crate::mark::Clock;
pub use crate::memory::{
    Launched, Role, caller, environment, heard, ignored, launched, machine, role,
};
use crate::memory::{MOST_VARIABLES, memory};
use crate::spawn::{Command, MOST_PATH};
use crate::trace::Trace;

#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn ringfence_entry() -> ! {
    // rdx holds what libc registers for exit (nothing, in a static program).
    core::arch::naked_asm!(
        "xor ebp, ebp",
        "mov rbx, rsp",
        "mov r12, rdx",
        "mov rdi, rsp",
        "and rsp, -16",
        "call {early}",
        "mov rsp, rbx",
        "mov rdx, r12",
        "xor ebp, ebp",
        "jmp _start",
        early = sym early,
    )
}

#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn ringfence_entry() -> ! {
    core::arch::naked_asm!(
        "mov x29, #0",
        "mov x30, #0",
        "mov x19, sp",
        "mov x20, x0",
        "mov x0, sp",
        "bl {early}",
        "mov sp, x19",
        "mov x0, x20",
        "mov x29, #0",
        "mov x30, #0",
        "b _start",
        early = sym early,
    )
}

extern "C" fn early(stack: *const usize) {
    // SAFETY: the entry passes its stack pointer, and nothing else runs yet.
    unsafe {
        let caller = Caller::at(stack);
        *memory().caller.get() = Some(caller);
        let role = match hot(&caller) {
            Some(role) => Some(role),
            None => {
                inherited::fill_closed_streams();
                crate::ask::ask(&caller, &mut (*memory().key.get()).0).map(Role::Client)
            }
        };
        if let Some(role) = role {
            *memory().role.get() = role;
        }
        // Rust's runtime will ignore one of them.
        *memory().ignored.get() |= inherited::ignored();
        crate::relocated::populate(&caller);
    }
}

/// Launches from the cache, if that is possible.
unsafe fn hot(caller: &Caller) -> Option<Role> {
    let command = caller.command()?;
    let trace = trace(caller);
    if !streams_are_usable() {
        return None;
    }
    // SAFETY: nothing else runs; each of the buffers is used here only.
    let (key, path, stack, environment) = unsafe {
        (
            &mut (*memory().key.get()).0,
            &mut *memory().becoming.path.get(),
            &mut *memory().becoming.stack.get(),
            &mut *memory().environment.get(),
        )
    };
    let mut key = Text::new(key);
    crate::key::write(&mut key, caller)?;
    let key = key.get()?;
    let image = open(caller, key, environment)?;
    let header = *image.header();
    trace.mark(b"image");
    if !equal(image.bytes(header.key), key) {
        return None;
    }
    let session = random()?;
    // SAFETY: takes nothing.
    let own = unsafe { sys!(getpid) }.ok()?;
    image.patch(session, own as u32);
    fill(environment, &image, caller)?;
    let workdir = image.pointer(u64::from(header.workdir.at), 1)?.cast_const();
    // SAFETY: the list was filled and ends with a null pointer.
    let search = unsafe { crate::stamp::variable(environment.as_ptr(), b"PATH") };
    // SAFETY: nothing else runs. In place: it is too large to be moved without libc.
    let launched = unsafe { &mut *memory().launched.get() };
    launched.session = session;
    launched.command = command;
    launched.job = header.flags & JOB != 0 && crate::job::is_led(own as i32);
    // The child begins before it is known whether the plan holds, where it acts in namespaces of its own: in the
    // process tier its first steps are made in the host's tree.
    let ahead = header.flags & PROCESS_TIER == 0;
    if !ahead {
        look(launched, &image, caller, &trace)?;
    }
    let Ok((ours, theirs)) = socket_pair() else {
        launched.tops.let_go();
        launched.clock.close();
        return None;
    };
    if header.flags & BRIEF != 0 {
        crate::brief::ask_for_processes(ours);
    }
    launched.umask = umask(0o022);
    launched.mask = mask(!LEFT_ALONE);
    let children = crate::clone::hear_of_children();
    // SAFETY: nothing else runs.
    unsafe { *memory().ignored.get() = children };
    if !ahead {
        // Orphans of a warden that was killed come to us, to be ended.
        const PR_SET_CHILD_SUBREAPER: usize = 36;
        // SAFETY: takes numbers.
        let _ = unsafe { sys!(prctl, PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
    }
    trace.mark(b"prepared");
    match crate::clone::fork(header.namespaces) {
        Ok((0, _)) => {
            close(ours);
            launched.clock.close();
            // SAFETY: nothing else runs in this process. In place, as above.
            let machine = unsafe {
                *memory().mask.get() = launched.mask;
                let machine = &mut *memory().machine.get();
                (*memory().beside.get()).look_later(image);
                machine.set(image, memory().beside.get(), trace);
                let inherited = inherited::of(children, children, 0);
                child::prepare(machine, theirs, launched.umask, memory().mask.get(), inherited);
                machine
            };
            // SAFETY: the command is within the list; the places are the caller's.
            let arguments = unsafe { caller.arguments.add(command) };
            let command = Command {
                arguments,
                environment: environment.as_ptr(),
                workdir,
                streams: [-1; 3],
                session: false,
                terminal: false,
                job: launched.job,
            };
            let shell = core::ptr::null_mut();
            launched.control = theirs;
            launched.image = Some(image);
            let before = ahead.then_some(&mut launched.before);
            let start = Start { machine, command, shell, search, stack, path, before };
            // SAFETY: the image is the user's own and its key names this very binary.
            let (warden, wanted) = unsafe { child::main(start) };
            Some(Role::Warden(warden, wanted))
        }
        Ok((pid, pidfd)) => {
            close(theirs);
            trace.mark(b"cloned");
            if ahead {
                // Where there is no other processor for it, it has more to do than we.
                // SAFETY: takes nothing.
                let _ = unsafe { sys!(sched_yield) };
                if look(launched, &image, caller, &trace).is_none() {
                    crate::clone::withdraw(pid);
                    crate::withdrawn::note();
                    close(pidfd);
                    put_back(launched, ours);
                    return None;
                }
            }
            launched.pid = pid;
            launched.pidfd = pidfd;
            launched.control = ours;
            launched.image = Some(image);
            begin(launched, &image, header.runs);
            if ahead {
                launched.before.tell(ours);
            }
            let brief = header.flags & BRIEF != 0 && !trace.wanted();
            if brief && (launched.runs.is_some() || header.runs.length == 0) {
                // SAFETY: nothing else runs; each of these is used here only.
                let (heard, room) =
                    unsafe { (&mut (*memory().heard.get()).0, &mut *memory().room.get()) };
                crate::brief::wait(&image, caller, launched, heard, room);
            } else if header.flags & ANNOUNCED != 0 {
                crate::brief::let_child_run(ours);
            }
            launched.clock.close();
            Some(Role::Launcher)
        }
        Err(_) => {
            // The ordinary way finds the reason, or another tier.
            close(theirs);
            put_back(launched, ours);
            None
        }
    }
}

/// Sees that the plan holds, and holds its writable trees; nothing where it does not.
fn look(launched: &mut Launched, image: &Image, caller: &Caller, trace: &Trace) -> Option<()> {
    launched.clock = Clock::open();
    let looked = launched.before.look(image, caller, launched.command, launched.clock, trace);
    let looked = looked.filter(|()| inherited::has_descriptors());
    let held = looked.and_then(|()| launched.tops.hold(image));
    if held.is_none() {
        launched.clock.close();
    }
    held
}

/// The two variables that tests and measurements use.
fn trace(caller: &Caller) -> Trace {
    let mut trace = Trace::NONE;
    if let Some(fault) = caller.variable(b"RINGFENCE_FAULT") {
        trace.fault = fault.as_ptr();
    }
    if let Some(out) = caller.variable(b"RINGFENCE_TRACE_LAUNCH") {
        let mut number = 0i32;
        let mut at = 0;
        while let Some(digit) = out.get(at).filter(|byte| byte.is_ascii_digit())
            && number < 100_000
        {
            number = number * 10 + i32::from(*digit) - i32::from(b'0');
            at += 1;
        }
        trace.out = number;
        trace.start = crate::trace::now();
    }
    trace
}

/// Maps the image for a key: a regular file of the user's own that nobody else can write, under one name
/// only (another user may have linked something of ours here), in a directory of which the same is true: in another's
/// it may be any file of ours that was moved there. The room holds its path meanwhile.
fn open(caller: &Caller, key: &[u8], room: &mut [*const u8; MOST_VARIABLES]) -> Option<Image> {
    const O_NOFOLLOW_NONBLOCK_CLOEXEC: usize =
        crate::flags::NO_FOLLOW as usize | 0o4_000 | 0o2_000_000;
    const PROT_READ_WRITE: usize = 3;
    const MAP_PRIVATE: usize = 2;
    const LARGEST: u64 = 4 << 20;
    // SAFETY: any bytes are pointers, which nobody follows before they are written.
    let room = unsafe { &mut *core::ptr::from_mut(room).cast::<[u8; MOST_PATH]>() };
    let mut path = Text::new(room);
    let mut looked = crate::stamp::Looked::new();
    crate::key::write_directory(&mut path, caller)?;
    crate::stamp::look(&mut looked, -100, path.terminated()?, 0)
        .is_ok_and(|stat| stat.is_own_directory(0o022))
        .then_some(())?;
    path.clear();
    crate::key::write_path(&mut path, caller, key)?;
    let path = path.terminated()?;
    // SAFETY: the path ends with a zero byte.
    let fd = unsafe { sys!(openat, -100_isize, path, O_NOFOLLOW_NONBLOCK_CLOEXEC, 0) }.ok()? as i32;
    let empty = c"".as_ptr().cast();
    let stat = crate::stamp::look(&mut looked, fd, empty, crate::stamp::EMPTY_PATH).ok();
    // SAFETY: takes nothing.
    let user = unsafe { sys!(geteuid) }.ok()?;
    let image = stat.filter(|stat| {
        let own = stat.uid as usize == user && stat.mode & 0o7077 == 0 && stat.links == 1;
        own && stat.is_file() && stat.size > 0 && stat.size <= LARGEST
    });
    let image = image.and_then(|stat| {
        let size = stat.size as usize;
        // SAFETY: a new mapping, ours alone; a file that is cut short under it ends us with
        // SIGBUS, and only the user can do that.
        unsafe {
            let base = sys!(mmap, 0, size, PROT_READ_WRITE, MAP_PRIVATE, fd, 0).ok()?;
            Image::new(base as *mut u8, size)
        }
    });
    close(fd);
    image
}

/// The command's environment: the caller's kept variables, then the image's.
fn fill(list: &mut [*const u8; MOST_VARIABLES], image: &Image, caller: &Caller) -> Option<()> {
    let kept = image.bytes(image.header().kept);
    let mut count = 0;
    let mut at = 0;
    loop {
        // SAFETY: the list goes on until the null pointer.
        let entry = unsafe { *caller.environment.add(at) };
        if entry.is_null() {
            break;
        }
        // The key holds all names in their order, so that the places are the same.
        if *kept.get(at)? != 0 {
            *list.get_mut(count)? = entry;
            count += 1;
        }
        at += 1;
    }
    let set = image.bytes(image.header().set);
    let mut start = 0;
    while start < set.len() {
        *list.get_mut(count)? = from(set, start).as_ptr();
        count += 1;
        start += crate::bytes::position(from(set, start), 0)? + 1;
    }
    *list.get_mut(count)? = core::ptr::null();
    Some(())
}

/// Notes that this run goes on, for later ones. Where that cannot be done, `main` does what it takes.
fn begin(launched: &mut Launched, image: &Image, runs: Span) {
    let text = image.bytes(runs);
    let (Some(path), Some(end)) = (text.first(), crate::bytes::position(text, 0)) else { return };
    let start = i64::try_from(launched.before.since).unwrap_or(i64::MAX);
    let directories = &launched.before.notes;
    launched.runs = crate::runs::begin(path, start, from(text, end + 1), directories).ok();
}

/// A session's number.
pub fn random() -> Option<u32> {
    let mut number = 0u32;
    // SAFETY: `number` is room for four bytes.
    let got = unsafe { sys!(getrandom, &raw mut number, 4, 0) };
    (got == Ok(4)).then_some(number)
}

/// A pair of connected Unix sequenced-packet sockets, close-on-exec.
pub(crate) fn socket_pair() -> Result<(i32, i32)> {
    const AF_UNIX: usize = 1;
    const SOCK_SEQPACKET_CLOEXEC: usize = 5 | 0o2_000_000;
    let mut fds = [0i32; 2];
    // SAFETY: `fds` is room for both.
    unsafe { sys!(socketpair, AF_UNIX, SOCK_SEQPACKET_CLOEXEC, 0, fds.as_mut_ptr()) }?;
    Ok((fds[0], fds[1]))
}

/// Makes this process what it was before it was about to launch something.
fn put_back(launched: &mut Launched, control: i32) {
    close(control);
    // Who launches in the ordinary way has children of its own.
    launched.tops.let_go();
    launched.clock.close();
    umask(launched.umask);
    mask(launched.mask);
}
