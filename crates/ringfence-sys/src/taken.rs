//! Copies of descriptors of a sandboxed program: it decides what closing them would wait for, and we never do.
//!
//! The program may close its own while we have a copy, or end, and then our close is the last one. That of a connection
//! waits until all is sent that the program sent, for as long as the program said (`SO_LINGER`, socket(7)); that of a
//! file on a network file system, for its server; that of a large file that has no name any more, until its space is
//! free.

use crate::fd::poll_readable;
use crate::{Errno, Result, socket, sys};
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// A copy of a descriptor of a sandboxed program. It is closed when it is dropped, at once where that is the end of
/// nothing, and never waits for more than [`PATIENCE`].
#[derive(Debug)]
pub struct Taken(ManuallyDrop<OwnedFd>);

impl Taken {
    /// Whether copies can be taken: there is somebody who would close them.
    ///
    /// # Errors
    /// `EAGAIN`: no thread or no timer is to be had for that, or too many copies are being closed.
    pub(crate) fn can_be() -> Result<()> {
        aside_is_ready()?;
        BELL.try_with(|bell| bell.timer.map(drop)).unwrap_or(Err(Errno::EAGAIN))
    }
}

impl From<OwnedFd> for Taken {
    fn from(fd: OwnedFd) -> Taken {
        Taken(ManuallyDrop::new(fd))
    }
}

impl AsFd for Taken {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        // SAFETY: it is not used again.
        let fd = unsafe { ManuallyDrop::take(&mut self.0) };
        if ends_soon(fd.as_fd()) { close_by_bell(fd) } else { hand_over(fd) }
    }
}

/// Whether a signal ends whatever its last close waits for: it is a socket, and holds no descriptors of other files (in
/// messages that nobody took, unix(7)).
fn ends_soon(fd: BorrowedFd<'_>) -> bool {
    match socket::family(fd) {
        Ok(libc::AF_INET | libc::AF_INET6 | libc::AF_NETLINK) => true,
        Ok(libc::AF_UNIX) => poll_readable(&[fd], 0).is_ok_and(|ready| ready == [false]),
        _ => false,
    }
}

/// How long a close may wait here.
pub const PATIENCE: Duration = Duration::from_millis(10);

/// The signal that ends such a wait: one of those that we have for ourselves.
const SIGNAL: i32 = 59;

/// A timer that sends it to one thread, again and again: what comes before the thread waits would end nothing.
struct Bell {
    timer: Result<i32>,
}

thread_local! {
    static BELL: Bell = Bell { timer: Bell::made() };
}

/// Does nothing: that it comes is enough.
extern "C" fn rung(_signal: i32) {}

impl Bell {
    fn made() -> Result<i32> {
        static HEARD: OnceLock<bool> = OnceLock::new();
        let heard = HEARD.get_or_init(|| {
            // SAFETY: sigaction is plain data, for which all zeroes are valid.
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            let handler: extern "C" fn(i32) = rung;
            action.sa_sigaction = handler as usize;
            action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
            // SAFETY: the handler does nothing, at whatever place it interrupts.
            unsafe { libc::sigaction(SIGNAL, &raw const action, std::ptr::null_mut()) == 0 }
        });
        if !heard {
            return Err(Errno::EAGAIN);
        }
        // SAFETY: sigevent is plain data, for which all zeroes are valid.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = SIGNAL;
        // SAFETY: takes nothing.
        event.sigev_notify_thread_id = unsafe { sys!(gettid) }? as i32;
        let mut timer = 0i32;
        // SAFETY: the pointers are to the structure and to room for the timer's number.
        unsafe { sys!(timer_create, libc::CLOCK_MONOTONIC, &raw const event, &raw mut timer) }?;
        Ok(timer)
    }

    /// Sets a timer; not at all for a time of nought.
    fn set(timer: i32, time: Duration) -> Result<()> {
        let spec = libc::timespec { tv_sec: 0, tv_nsec: i64::from(time.subsec_nanos()) };
        let times = libc::itimerspec { it_value: spec, it_interval: spec };
        let null = std::ptr::null_mut::<libc::itimerspec>();
        // SAFETY: the pointer is to the structure; the former times are not asked for.
        unsafe { sys!(timer_settime, timer, 0, &raw const times, null) }.map(drop)
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        if let Ok(timer) = self.timer {
            // SAFETY: takes a number.
            let _ = unsafe { sys!(timer_delete, timer) };
        }
    }
}

/// Closes here, and what that waits for ends when the bell rings: the kernel goes on with what is to be sent.
fn close_by_bell(fd: OwnedFd) {
    let (heard, null) = (1u64 << (SIGNAL - 1), std::ptr::null_mut::<u64>());
    // Whoever set the thread's mask may have blocked it.
    // SAFETY: the pointer is to eight bytes, the size given; the former mask is not asked for.
    let unblocked = unsafe { sys!(rt_sigprocmask, libc::SIG_UNBLOCK, &raw const heard, null, 8) };
    let timer = BELL.try_with(|bell| bell.timer).unwrap_or(Err(Errno::EAGAIN));
    let Ok(timer) = timer.and_then(|timer| {
        unblocked?;
        Bell::set(timer, PATIENCE).map(|()| timer)
    }) else {
        return hand_over(fd);
    };
    drop(fd);
    let _ = Bell::set(timer, Duration::ZERO);
}

/// Descriptors that are to be closed by others than who had them.
#[derive(Default)]
struct Aside {
    waiting: VecDeque<OwnedFd>,
    /// Threads that wait for some.
    idle: usize,
    /// All threads, of this process.
    threads: usize,
    process: u32,
}

static ASIDE: Mutex<Option<Aside>> = Mutex::new(None);
static MORE: Condvar = Condvar::new();

/// The most descriptors that wait for a thread: then no more copies are taken.
const MOST_WAITING: usize = 128;
/// The most threads: each waits for one file at most.
const MOST_THREADS: usize = 16;

fn aside() -> MutexGuard<'static, Option<Aside>> {
    ASIDE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// There is a thread that closes, made here at first: later the program may have seen to it that none can be made.
fn aside_is_ready() -> Result<()> {
    let mut aside = aside();
    let aside = aside.get_or_insert_default();
    let process = std::process::id();
    if aside.process != process {
        // The threads were another process's, of which this one is a copy.
        *aside = Aside { process, ..Aside::default() };
    }
    if aside.threads == 0 {
        aside.start()?;
    }
    if aside.waiting.len() >= MOST_WAITING { Err(Errno::EAGAIN) } else { Ok(()) }
}

fn hand_over(fd: OwnedFd) {
    let mut aside = aside();
    let aside = aside.get_or_insert_default();
    aside.waiting.push_back(fd);
    if aside.waiting.len() > aside.idle && aside.threads < MOST_THREADS {
        // Another one comes to it in the end.
        let _ = aside.start();
    }
    MORE.notify_one();
}

impl Aside {
    fn start(&mut self) -> Result<()> {
        let thread = std::thread::Builder::new().name("ringfence-close".to_owned());
        let made = thread.stack_size(64 << 10).spawn(close_all);
        self.threads += usize::from(made.is_ok());
        made.map(drop).map_err(|_| Errno::EAGAIN)
    }
}

/// What such a thread does, as long as the process runs.
fn close_all() {
    let mut list = aside();
    loop {
        let Some(all) = list.as_mut() else { return };
        if let Some(fd) = all.waiting.pop_front() {
            drop(list);
            drop(fd);
            list = aside();
            continue;
        }
        all.idle += 1;
        list = MORE.wait(list).unwrap_or_else(PoisonError::into_inner);
        list.iter_mut().for_each(|all| all.idle -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fd::read;
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd as _;
    use std::sync::mpsc;

    /// A connection with more to send than its other end takes, and that waits for hours for it; and that end.
    fn lingering() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let mut ours =
            TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let (theirs, _) = listener.accept().expect("accepted");
        ours.set_nonblocking(true).expect("set");
        while ours.write(&[1; 65536]).is_ok() {}
        let (value, size) = ([1i32, 30_000], 8usize);
        let (level, name) = (libc::SOL_SOCKET, libc::SO_LINGER);
        // SAFETY: the pointer is to the value, whose size is given.
        unsafe { sys!(setsockopt, ours.as_raw_fd(), level, name, value.as_ptr(), size) }
            .expect("set");
        (ours.into(), theirs)
    }

    /// Does something on a thread of its own; whether it ends.
    fn ends(what: impl FnOnce() + Send + 'static) -> bool {
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            what();
            let _ = tell.send(());
        });
        told.recv_timeout(Duration::from_secs(60)).is_ok()
    }

    #[test]
    fn a_connection_that_lingers_makes_nobody_wait() {
        let (ours, _theirs) = lingering();
        assert!(ends(move || drop(Taken::from(ours))), "the last close lingers");
        // Nor does one with a mask that leaves no signal through, as a supervisor has.
        let (ours, _theirs) = lingering();
        assert!(ends(move || {
            crate::signal::set_mask(crate::signal::SignalSet::ALL).expect("blocked");
            drop(Taken::from(ours));
        }));
    }

    #[test]
    fn nor_does_one_that_another_socket_holds() {
        let (ours, _theirs) = lingering();
        let (near, far) = crate::fd::socket_pair().expect("a pair");
        socket::send_with(near.as_fd(), b"x", &[ours.as_fd()]).expect("sent");
        drop(near);
        drop(ours);
        assert!(ends(move || drop(Taken::from(far))));
    }

    #[test]
    fn what_is_taken_is_closed() {
        assert_eq!(Taken::can_be(), Ok(()));
        let (near, far) = crate::fd::socket_pair().expect("a pair");
        drop(Taken::from(far));
        assert_eq!(read(near.as_fd(), &mut [0]), Ok(0), "closed when it is dropped");
        for _ in 0..MOST_WAITING {
            let (read_end, write_end) = crate::fd::pipe().expect("a pipe");
            drop(Taken::from(write_end));
            assert_eq!(read(read_end.as_fd(), &mut [0]), Ok(0));
        }
    }
}
