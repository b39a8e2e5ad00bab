//! A program that is running: its streams and its end, with a bound on each wait.

use crate::Finished;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How long anything may take before the test fails: far more than it needs, so that a busy
/// machine is no failure.
pub const PATIENCE: Duration = Duration::from_secs(40);

/// A stream that is read by a thread as it comes.
struct Stream {
    chunks: Receiver<Vec<u8>>,
    read: Vec<u8>,
}

impl Stream {
    fn of(mut source: impl Read + Send + 'static) -> Stream {
        let (send, chunks) = channel();
        thread::spawn(move || {
            let mut chunk = vec![0; 1 << 16];
            while let Ok(length @ 1..) = source.read(&mut chunk) {
                if send.send(chunk[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        Stream { chunks, read: Vec::new() }
    }

    /// Reads until the text came; false when the stream ended without it.
    fn until(&mut self, text: &str) -> bool {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if self.read.windows(text.len()).any(|window| window == text.as_bytes()) {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.chunks.recv_timeout(left) {
                Ok(chunk) => self.read.extend(chunk),
                Err(_) => return false,
            }
        }
    }

    /// Reads to the end: until nobody holds the stream open any more.
    fn read_out(mut self, what: &str) -> Vec<u8> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.chunks.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(chunk) => self.read.extend(chunk),
                Err(RecvTimeoutError::Disconnected) => return self.read,
                Err(RecvTimeoutError::Timeout) => {
                    panic!("some process still holds {what} open")
                }
            }
        }
    }
}

/// A running program, usually `ringfence run`.
pub struct Running {
    child: Child,
    pidfd: OwnedFd,
    out: Option<Stream>,
    err: Option<Stream>,
}

impl Running {
    /// Starts it with pipes as standard streams; standard input is empty.
    ///
    /// # Panics
    /// It cannot be started.
    pub fn start(command: Command) -> Running {
        Running::start_with(command, Vec::new())
    }

    /// Starts it with this standard input.
    ///
    /// # Panics
    /// It cannot be started.
    pub fn start_with(mut command: Command, input: Vec<u8>) -> Running {
        command.stdin(if input.is_empty() { Stdio::null() } else { Stdio::piped() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        // A program that a test has just written stays open for writing in each child that another test forked
        // meanwhile, until that child executes.
        let since = Instant::now();
        let mut spawned = command.spawn();
        while matches!(&spawned, Err(error) if error.kind() == ErrorKind::ExecutableFileBusy)
            && since.elapsed() < PATIENCE
        {
            thread::yield_now();
            spawned = command.spawn();
        }
        let mut child = spawned.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        if let Some(mut stdin) = child.stdin.take() {
            // A reader that stops early is its own business.
            thread::spawn(move || stdin.write_all(&input));
        }
        let out = child.stdout.take().map(Stream::of);
        let err = child.stderr.take().map(Stream::of);
        let pidfd =
            pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).expect("a child of ours");
        Running { child, pidfd, out, err }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it printed the text.
    ///
    /// # Panics
    /// Its output ended without it.
    #[track_caller]
    pub fn printed(&mut self, text: &str) -> &mut Running {
        let came = self.out.as_mut().is_some_and(|out| out.until(text));
        if !came {
            let read = self.out.take().map(|out| out.read).unwrap_or_default();
            let _ = self.child.kill();
            let err = self.err.take().map(|err| err.read_out("standard error")).unwrap_or_default();
            let (read, err) = (String::from_utf8_lossy(&read), String::from_utf8_lossy(&err));
            panic!("{text:?} was not printed, but {read:?}; it said: {err}");
        }
        self
    }

    /// Waits until it said the text on standard error.
    ///
    /// # Panics
    /// That ended without it.
    #[track_caller]
    pub fn said(&mut self, text: &str) -> &mut Running {
        let came = self.err.as_mut().is_some_and(|err| err.until(text));
        if !came {
            let read = self.err.take().map(|err| err.read).unwrap_or_default();
            let _ = self.child.kill();
            panic!("{text:?} was not said, but {:?}", String::from_utf8_lossy(&read));
        }
        self
    }

    /// What it printed so far, up to what [`Running::printed`] waited for.
    pub fn so_far(&self) -> String {
        let read = self.out.as_ref().map(|out| out.read.as_slice()).unwrap_or_default();
        String::from_utf8_lossy(read).into_owned()
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// It has ended.
    pub fn signal(&self, signal: Signal) {
        pidfd_send_signal(&self.pidfd, signal).expect("a running program");
    }

    /// Sends it SIGTSTP and waits until it has stopped, as a shell does.
    ///
    /// # Panics
    /// It ended instead.
    #[track_caller]
    pub fn stop(&self) {
        self.signal(Signal::TSTP);
        // Left to be waited for: `finish` waits for the same process.
        let what = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let wait = || waitid(WaitId::PidFd(self.pidfd.as_fd()), what).expect("a child of ours");
        // A stop cannot be waited for with a bound: what does not stop in time is killed.
        let (stopped, told) = channel::<()>();
        let (pid, pidfd) = (self.pid(), &self.pidfd);
        let status = thread::scope(|scope| {
            scope.spawn(move || {
                if told.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                    let seen = crate::stuck::describe(pid);
                    eprintln!("it does not stop:{seen}");
                    let _ = pidfd_send_signal(pidfd, Signal::KILL);
                }
            });
            let status = wait();
            drop(stopped);
            status
        });
        assert!(
            status.as_ref().is_some_and(|status| status.stopped()),
            "it does not stop: {status:?}"
        );
    }

    /// Whether it has ended: nobody waited for it yet.
    pub fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
    }

    /// Waits for its end and for the end of everybody who holds its output open.
    ///
    /// # Panics
    /// It does not end.
    #[track_caller]
    pub fn finish(mut self) -> Finished {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        let patience = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        let ended = poll(&mut fds, Some(&patience)).is_ok_and(|ready| ready > 0);
        if !ended {
            let seen = crate::stuck::describe(self.child.id());
            let _ = self.child.kill();
            panic!("it does not end:{seen}");
        }
        let status = self.child.wait().expect("a child of ours");
        let out = self.out.take().map(|out| out.read_out("standard output")).unwrap_or_default();
        let err = self.err.take().map(|err| err.read_out("standard error")).unwrap_or_default();
        Finished::new(status, out, &err)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Of a test that failed in the middle.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
