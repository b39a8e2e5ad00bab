//! Makes the calls of an image, one after the other.

use crate::beside::Beside;
use crate::call::{call, receive, send, sys};
use crate::image::{Image, Op, register, special};
use crate::trace::Trace;
use crate::{Errno, Result, Sysno};
use core::ffi::c_void;

/// A step that failed: its place in the list, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Place in the list.
    pub op: u32,
    /// The kernel's word.
    pub errno: Errno,
}

/// What a launcher with libc does for [`special::ASSIST`]; 0, or an error number.
pub type Assist = unsafe extern "C" fn(context: *mut c_void, number: u64, operand: usize) -> i32;

/// The state while an image is carried out.
pub struct Machine {
    /// The image.
    pub image: Option<Image>,
    /// Registers.
    pub registers: [usize; register::COUNT],
    /// Where marks go.
    pub trace: Trace,
    /// The launcher's help, with what it wants to be called with.
    pub assist: Option<(Assist, *mut c_void)>,
    /// The process that becomes the command; null in its own machine.
    pub beside: *mut Beside,
}

impl Machine {
    /// Without an image. All zeroes, so that a static one takes no place in the file.
    pub const NEW: Machine = Machine {
        image: None,
        registers: [0; register::COUNT],
        trace: Trace { out: 0, start: 0, fault: core::ptr::null() },
        assist: None,
        beside: core::ptr::null_mut(),
    };

    /// Gives it an image. `beside` must stay where it is while the machine runs.
    pub fn set(&mut self, image: Image, beside: *mut Beside, trace: Trace) {
        self.image = Some(image);
        self.beside = beside;
        self.trace = trace;
    }

    /// The control socket.
    pub fn control(&self) -> i32 {
        self.registers[register::CONTROL as usize] as i32
    }

    /// Makes the calls of a list from one place to another.
    ///
    /// # Errors
    /// The first step that failed and was not tolerated.
    ///
    /// # Safety
    /// The image must have been made by this program's compiler: what it tells the kernel is
    /// not checked but for pointers, which stay within the image's data.
    pub unsafe fn run(
        &mut self,
        ops: &[Op],
        from: usize,
        to: usize,
    ) -> core::result::Result<(), Failed> {
        let mut at = from;
        while at < to
            && let Some(op) = ops.get(at)
        {
            // SAFETY: by the caller's promise.
            let result = unsafe { self.step(op) };
            at += 1;
            match result {
                Ok(value) => {
                    if let Some(register) = self.registers.get_mut(op.result as usize) {
                        *register = value;
                    }
                    at += op.then as usize;
                }
                Err(errno) => {
                    let raw = errno.into_raw();
                    let [first, second] = op.tolerated;
                    let is = |tolerated: u8| tolerated != 0 && i32::from(tolerated) == raw;
                    if !is(first) && !is(second) {
                        return Err(Failed { op: at as u32 - 1, errno });
                    }
                    at += op.otherwise as usize;
                }
            }
        }
        Ok(())
    }

    fn pointer(&self, offset: u64, bytes: u64) -> Result<*mut u8> {
        self.image.as_ref().and_then(|image| image.pointer(offset, bytes)).ok_or(Errno::EFAULT)
    }

    fn argument(&self, op: &Op, index: usize) -> Result<usize> {
        let value = op.arguments.get(index).copied().ok_or(Errno::EINVAL)?;
        match op.kinds >> (4 * index) & 0xf {
            0 => Ok(value as usize),
            1 => self.pointer(value, 1).map(|place| place as usize),
            2 => self.registers.get(value as usize).copied().ok_or(Errno::EINVAL),
            _ => Err(Errno::EINVAL),
        }
    }

    unsafe fn step(&mut self, op: &Op) -> Result<usize> {
        if op.call < special::FIRST {
            if !known(op.call) {
                return Err(Errno::ENOSYS);
            }
            let a = [
                self.argument(op, 0)?,
                self.argument(op, 1)?,
                self.argument(op, 2)?,
                self.argument(op, 3)?,
                self.argument(op, 4)?,
                self.argument(op, 5)?,
            ];
            // SAFETY: by the promise of `run`'s caller.
            return unsafe { call(op.call, a) };
        }
        let (first, second) = (self.argument(op, 0)?, self.argument(op, 1)?);
        match op.call {
            special::STORE => {
                let width = op.arguments[2];
                let place = self.pointer(op.arguments[0], width)?;
                // SAFETY: the range was checked; images need not align.
                unsafe {
                    match width {
                        4 => place.cast::<u32>().write_unaligned(second as u32),
                        8 => place.cast::<u64>().write_unaligned(second as u64),
                        _ => return Err(Errno::EINVAL),
                    }
                }
                Ok(0)
            }
            special::LOAD => {
                let place = self.pointer(op.arguments[0], 4)?;
                // SAFETY: the range was checked; images need not align.
                Ok(unsafe { place.cast::<u32>().read_unaligned() } as usize)
            }
            special::COMMAND_START
            | special::NETWORK_ENTER
            | special::PLACES_START
            | special::ALL_BUILT
            | special::PLACES_MADE
                if self.beside.is_null() =>
            {
                Err(Errno::ENOSYS)
            }
            special::COMMAND_START => {
                // SAFETY: the object was prepared, and stays where it is while the machine runs.
                unsafe { Beside::start(self.beside, &self.registers, first != 0) }.map(|()| 0)
            }
            special::PLACES_START => {
                // SAFETY: as above.
                unsafe { Beside::make_places(self.beside, &self.registers) };
                Ok(0)
            }
            // SAFETY: as above.
            special::PLACES_MADE => unsafe { Beside::places_made(self.beside) }.map(|()| 0),
            // SAFETY: as above.
            special::NETWORK_ENTER => unsafe { Beside::enter_network(self.beside) }.map(|()| 0),
            special::ALL_BUILT => {
                // SAFETY: as above.
                unsafe { Beside::all_built(self.beside, self.control()) }.map(|()| 0)
            }
            special::DROP_CAPABILITIES => drop_capabilities().map(|()| 0),
            special::LIMIT => limit(first, second as u64).map(|()| 0),
            special::INHERIT => crate::inherited::give_back(first).map(|()| 0),
            special::PROCESSORS => crate::processors::restrict(first).map(|()| 0),
            special::MARK => {
                // SAFETY: strings in the data end within it.
                let name = unsafe { crate::bytes::string(first as *const u8) };
                self.trace.mark_child(name, self.control());
                Ok(0)
            }
            special::ASSIST => match self.assist {
                // SAFETY: the launcher set both.
                Some((assist, context)) => match unsafe { assist(context, first as u64, second) } {
                    0 => Ok(0),
                    errno => Err(Errno::new(errno)),
                },
                None => Err(Errno::ENOSYS),
            },
            special::OWNED => owned(first as i32).map(|()| 0),
            special::LEADS_TO => {
                crate::stamp::leads_to(first as i32, second as *const u8).map(|()| 0)
            }
            special::HAND_OUT => hand_out(self.control(), first as u8, second as i32).map(|()| 0),
            special::LEAVE_IF_ORPHANED => {
                if orphaned(self.control()) {
                    Err(Errno::ESRCH)
                } else {
                    Ok(0)
                }
            }
            special::NUMBER => {
                const ROOM: u64 = 11;
                let place = self.pointer(op.arguments[0], ROOM)?;
                // SAFETY: the range was checked.
                let place = unsafe { core::slice::from_raw_parts_mut(place, ROOM as usize) };
                let mut text = crate::bytes::Text::new(place);
                text.push_number(second as u64);
                text.terminated().map(|_| 0).ok_or(Errno::EOVERFLOW)
            }
            special::ACKNOWLEDGED => acknowledged(first as i32).map(|()| 0),
            special::STREAMS => {
                crate::inherited::grant_streams(first, second as u64);
                Ok(0)
            }
            _ => Err(Errno::ENOSYS),
        }
    }
}

/// The calls that plans use, a bit each. None of these touches memory but what its arguments point to.
const KNOWN: [u64; 8] = {
    const ALL: [Sysno; 38] = [
        Sysno::bind,
        Sysno::chdir,
        Sysno::close,
        Sysno::close_range,
        Sysno::fchdir,
        Sysno::flock,
        Sysno::fsconfig,
        Sysno::fsmount,
        Sysno::fsopen,
        Sysno::getrandom,
        Sysno::landlock_add_rule,
        Sysno::landlock_create_ruleset,
        Sysno::landlock_restrict_self,
        Sysno::listen,
        Sysno::mkdirat,
        Sysno::mknodat,
        Sysno::mount,
        Sysno::mount_setattr,
        Sysno::move_mount,
        Sysno::open_tree,
        Sysno::open_tree_attr,
        Sysno::openat,
        Sysno::openat2,
        Sysno::pivot_root,
        Sysno::prctl,
        Sysno::rt_sigprocmask,
        Sysno::seccomp,
        Sysno::sendmsg,
        Sysno::sendto,
        Sysno::setsockopt,
        Sysno::socket,
        Sysno::symlinkat,
        Sysno::umask,
        Sysno::umount2,
        Sysno::unlinkat,
        Sysno::write,
        Sysno::fchmod,
        Sysno::sethostname,
    ];
    let (mut known, mut at) = ([0; 8], 0);
    while at < ALL.len() {
        known[ALL[at] as usize / 64] |= 1 << (ALL[at] as usize % 64);
        at += 1;
    }
    known
};

/// Whether plans use a call.
fn known(call: u32) -> bool {
    KNOWN.get(call as usize / 64).is_some_and(|some| some & 1 << (call % 64) != 0)
}

/// Whether the launcher's end of the control socket is closed: it died before, or while the
/// death signal was being set. What it has said before is left there.
pub(crate) fn orphaned(control: i32) -> bool {
    const MSG_PEEK_DONTWAIT: usize = 0x2 | 0x40;
    let mut byte = 0u8;
    // SAFETY: the pointer is to one byte; no address is asked for.
    let got = unsafe { sys!(recvfrom, control, &raw mut byte, 1, MSG_PEEK_DONTWAIT, 0, 0) };
    !matches!(got, Ok(1) | Err(Errno::EAGAIN | Errno::EINTR))
}

#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: i32,
}

/// `_LINUX_CAPABILITY_VERSION_3`: two halves of 32 bits, each of the effective, the permitted and the inheritable
/// set.
const CAPABILITIES: CapabilityHeader = CapabilityHeader { version: 0x2008_0522, pid: 0 };

/// The calling thread's capabilities: effective, permitted and inheritable ones of the first half, and of the
/// second one.
///
/// # Errors
/// The kernel's.
pub(crate) fn capabilities() -> Result<[u32; 6]> {
    let mut sets = [0u32; 6];
    let header = CAPABILITIES;
    // SAFETY: version 3 reads the header and fills six words.
    unsafe { sys!(capget, &raw const header, sets.as_mut_ptr()) }?;
    Ok(sets)
}

/// Empties the bounding, ambient, permitted, effective and inheritable sets of the calling
/// thread (capabilities(7)). Nothing executed afterwards can hold one again, not even as uid 0.
fn drop_capabilities() -> Result<()> {
    const CAP_SETPCAP: u32 = 8;
    const PR_CAPBSET_DROP: usize = 24;
    const PR_CAP_AMBIENT: usize = 47;
    const CLEAR_ALL: usize = 4;
    let known = capabilities();
    if known.is_ok_and(|sets| sets[0] & (1 << CAP_SETPCAP) != 0) {
        let mut capability = 0;
        // The number of capabilities grows with the kernel: EINVAL names the end.
        while capability < 64 {
            // SAFETY: takes numbers only.
            match unsafe { sys!(prctl, PR_CAPBSET_DROP, capability, 0, 0, 0) } {
                Ok(_) => capability += 1,
                Err(Errno::EINVAL) => break,
                Err(errno) => return Err(errno),
            }
        }
    }
    // SAFETY: takes numbers only.
    match unsafe { sys!(prctl, PR_CAP_AMBIENT, CLEAR_ALL, 0, 0, 0) } {
        Ok(_) | Err(Errno::EINVAL) => {}
        Err(errno) => return Err(errno),
    }
    let (none, header) = ([0u32; 6], CAPABILITIES);
    // SAFETY: version 3 reads the header and six words.
    unsafe { sys!(capset, &raw const header, none.as_ptr()) }.map(drop)
}

/// Sets both the soft and the hard limit; a hard limit below `value` stays as it is.
fn limit(resource: usize, value: u64) -> Result<()> {
    let now = crate::inherited::limit(resource)?;
    let value = if value < now[1] { value } else { now[1] };
    let wanted = [value; 2];
    // SAFETY: `wanted` outlives the call; nothing is asked back.
    unsafe { sys!(prlimit64, 0, resource, wanted.as_ptr(), 0) }.map(drop)
}

/// A descriptor must be a directory of the caller's own.
pub(crate) fn owned(fd: i32) -> Result<()> {
    let mut looked = crate::stamp::Looked::new();
    let stat = crate::stamp::look(&mut looked, fd, c"".as_ptr().cast(), crate::stamp::EMPTY_PATH)?;
    if stat.is_own_directory(0) { Ok(()) } else { Err(Errno::EPERM) }
}

/// `struct iovec`.
#[repr(C)]
struct Part {
    base: *const u8,
    length: usize,
}

/// `struct msghdr`.
#[repr(C)]
struct Message {
    name: usize,
    name_length: usize,
    parts: *const Part,
    count: usize,
    control: *const c_void,
    control_length: usize,
    flags: usize,
}

const SOL_SOCKET: i32 = 1;
const MSG_NOSIGNAL: usize = 0x4000;

/// Sends one byte and one descriptor (`SCM_RIGHTS`, unix(7)).
pub(crate) fn hand_out(control: i32, byte: u8, fd: i32) -> Result<()> {
    #[repr(C)]
    struct Rights {
        length: usize,
        level: i32,
        kind: i32,
        fd: i32,
        padding: i32,
    }
    const SCM_RIGHTS: i32 = 1;
    let part = Part { base: &raw const byte, length: 1 };
    let rights = Rights { length: 20, level: SOL_SOCKET, kind: SCM_RIGHTS, fd, padding: 0 };
    let message = Message {
        name: 0,
        name_length: 0,
        parts: &raw const part,
        count: 1,
        control: (&raw const rights).cast(),
        control_length: size_of::<Rights>(),
        flags: 0,
    };
    // SAFETY: the structures are laid out as the kernel reads them and outlive the call.
    unsafe { sys!(sendmsg, control, &raw const message, MSG_NOSIGNAL) }.map(drop)
}

/// Sends one message about a process of the caller's PID namespace: the receiver gets its number
/// as its own namespace has it (`SCM_CREDENTIALS`, unix(7)). Without the right to say so
/// (`CAP_SYS_ADMIN` over the namespace) it is sent as from the caller.
pub(crate) fn send_about(control: i32, tag: u8, text: &[u8], pid: i32) -> Result<()> {
    let number = pid.to_ne_bytes();
    #[repr(C)]
    struct Credentials {
        length: usize,
        level: i32,
        kind: i32,
        pid: i32,
        user: u32,
        group: u32,
        padding: u32,
    }
    const SCM_CREDENTIALS: i32 = 2;
    // SAFETY: both take nothing.
    let (user, group) = unsafe { (sys!(geteuid)?, sys!(getegid)?) };
    let (user, group) = (user as u32, group as u32);
    let (level, kind) = (SOL_SOCKET, SCM_CREDENTIALS);
    let about = Credentials { length: 28, level, kind, pid, user, group, padding: 0 };
    let parts = [
        Part { base: &raw const tag, length: 1 },
        Part { base: number.as_ptr(), length: number.len() },
        Part { base: text.as_ptr(), length: text.len() },
    ];
    let mut message = Message {
        name: 0,
        name_length: 0,
        parts: parts.as_ptr(),
        count: 3,
        control: (&raw const about).cast(),
        control_length: size_of::<Credentials>(),
        flags: 0,
    };
    // SAFETY: the structures are laid out as the kernel reads them and outlive the call.
    match unsafe { sys!(sendmsg, control, &raw const message, MSG_NOSIGNAL) } {
        Err(Errno::EPERM) => {
            message.control_length = 0;
            // SAFETY: as above.
            unsafe { sys!(sendmsg, control, &raw const message, MSG_NOSIGNAL) }.map(drop)
        }
        other => other.map(drop),
    }
}

/// Takes the answer to a netlink message that asked for one (netlink(7)).
fn acknowledged(socket: i32) -> Result<()> {
    const NLMSG_ERROR: u16 = 2;
    let mut answer = [0u8; 128];
    let length = receive(socket, &mut answer, true)?;
    let kind = u16::from_le_bytes([answer[4], answer[5]]);
    if length < 20 || kind != NLMSG_ERROR {
        return Err(Errno::EPROTO);
    }
    match i32::from_le_bytes([answer[16], answer[17], answer[18], answer[19]]) {
        0 => Ok(()),
        error => Err(Errno::new(-error)),
    }
}

/// Tells the launcher which step failed.
pub(crate) fn report(control: i32, tag: u8, failed: Failed) {
    let op = failed.op.to_le_bytes();
    let errno = failed.errno.into_raw().to_le_bytes();
    let message = [tag, op[0], op[1], op[2], op[3], errno[0], errno[1], errno[2], errno[3]];
    let _ = send(control, &message);
}
