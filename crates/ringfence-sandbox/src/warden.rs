//! The process that stays with the command inside: PID 1 of the namespace tier, the subreaper
//! of the process tier. It reaps, passes signals on, reports stops to the launcher, and ends
//! everything when the launcher is gone. It starts further commands, for `exec`.

use crate::cover::{self, What};
use crate::descendants;
use crate::guard::{Guarding, WILL};
use crate::live::{self, Service, Spawner};
use crate::plan::Tier;
use ringfence_sys as sys;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use sys::Errno;
use sys::image::{Stops, Wanted};
use sys::process::Change;
use sys::signal::{Arrived, SignalSet};

const SIGCHLD: i32 = 17;
const SIGCONT: i32 = 18;
const SIGKILL: i32 = 9;

/// Bytes of the launcher's longest message: a path with what it is about.
const LONGEST: usize = 4096 + 32;

/// After so many milliseconds without anything to do it makes itself small.
const IDLE: i32 = 100;

/// Without a descriptor for signals it is looked so often whether the launcher is there.
const SECOND: Duration = Duration::from_secs(1);

/// What it watches over.
pub(crate) struct Warden<'a> {
    /// The command's PID, as seen here.
    pub command: i32,
    /// The command as it was started, for more of its kind.
    pub spawner: Spawner,
    /// The way to the launcher.
    pub control: OwnedFd,
    /// How far its sandbox reaches.
    pub tier: Tier,
    /// What is put right when the launcher cannot do it any more.
    pub guarding: &'a Guarding,
    /// The process tier's directory, likewise.
    pub private: Option<PathBuf>,
}

impl Warden<'_> {
    /// Goes on where a simple warden (`ringfence-start`) stopped: waits for the command's end,
    /// then ends everything else and exits with its code.
    pub fn go_on(self, wanted: Wanted) -> ! {
        let Warden { command, spawner, control, tier, guarding, private } = self;
        let mut service = Service::new(spawner, tier);
        let mut watch = Watch {
            command,
            control,
            tier,
            guarding,
            private,
            stops: Stops::default(),
            will: None,
            busy: true,
        };
        match wanted {
            Wanted::Orphaned => watch.orphaned(),
            Wanted::Finish(kind, value) => watch.end(kind, value),
            Wanted::Service(stops) => watch.stops = stops,
        }
        // Without it (no descriptor is left) signals are waited for, and nothing else.
        let signals = sys::signal::descriptor(SignalSet::ALL);
        loop {
            watch.reap(&mut service);
            match &signals {
                Ok(signals) => watch.wait(signals.as_fd(), &mut service),
                Err(_) => {
                    if let Ok(arrived) = sys::signal::wait(SignalSet::ALL, Some(SECOND)) {
                        watch.signal(arrived, &mut service);
                    }
                    watch.look_at_launcher();
                }
            }
        }
    }
}

struct Watch<'a> {
    command: i32,
    control: OwnedFd,
    tier: Tier,
    guarding: &'a Guarding,
    private: Option<PathBuf>,
    /// Stops of the command that were told.
    stops: Stops,
    /// What the launcher left to us, if it was read already.
    will: Option<Will>,
    /// Something has happened since it was last at rest.
    busy: bool,
}

/// A message of the launcher's with a descriptor.
type Will = (Vec<u8>, OwnedFd);

impl Watch<'_> {
    /// Waits for something to happen, and does what it asks for.
    fn wait(&mut self, signals: BorrowedFd<'_>, service: &mut Service) {
        let mut watched = vec![signals, self.control.as_fd()];
        watched.extend(service.descriptors());
        let ready = if self.busy {
            sys::fd::poll_readable(&watched, IDLE)
        } else {
            sys::fd::rest_until_readable(&watched, -1)
        };
        let Ok(ready) = ready else { return };
        self.busy = ready.contains(&true);
        if ready[0] {
            while let Ok(arrived) = sys::signal::take(signals) {
                self.signal(arrived, service);
            }
            // First those that ended: who asks to signal one must not hit another.
            self.reap(service);
            if ready[2..].contains(&true) {
                // The list may be another one now; what waits is told again.
                return;
            }
        }
        service.serve(&ready[2..], self.control.as_fd());
        if ready[1] {
            self.message(service);
        }
    }

    fn signal(&mut self, arrived: Arrived, service: &mut Service) {
        match arrived.signal {
            SIGCHLD => {}
            signal if let Some(value) = arrived.value => {
                // What became of it by now.
                self.reap(service);
                let meant = sys::image::pass_on(signal, value, self.command, self.stops);
                if let Some(meant) = meant {
                    self.tell(b'A', i32::from(meant));
                }
            }
            // What is inside has no business with us; it can signal the command itself.
            _ if self.tier == Tier::Namespace && !arrived.from_outside => {}
            // Anybody could say so by now; what is true is heard on the socket too.
            signal if signal == sys::signal::parent_death() => self.look_at_launcher(),
            // The launcher's knock; what it is about is in its message.
            sys::image::SERVICE => {}
            // Of whoever continues our group: the launcher's word comes as well.
            SIGCONT => {}
            // A terminal's signals reach the command by themselves.
            signal if arrived.by_process => {
                let signal = if signal == sys::signal::END { SIGKILL } else { signal };
                let _ = sys::signal::kill(self.command, signal);
            }
            _ => {}
        }
    }

    fn look_at_launcher(&mut self) {
        if sys::unix::is_hung_up(self.control.as_fd()) {
            self.orphaned();
        }
    }

    /// Takes one message of the launcher's.
    fn message(&mut self, service: &mut Service) {
        let mut message = [0; LONGEST];
        match sys::socket::receive_with(self.control.as_fd(), &mut message, false) {
            Ok((length @ 2.., _)) if message[0] == cover::AGAIN => {
                self.cover(message[1], &message[2..length]);
            }
            Ok((1.., descriptors)) if message[0] == live::LISTEN => {
                if let Some(listener) = descriptors.into_iter().next() {
                    service.listen(listener);
                }
            }
            Ok((length @ 1.., descriptors)) if message[0] == WILL => {
                self.will = will(&message[..length], descriptors);
            }
            Ok((length @ 1.., _)) if message[0] == cover::REMOVED => {
                self.removed(&message[..length]);
            }
            Ok((1.., _)) | Err(Errno::EAGAIN) => {}
            // Its end of the socket is closed.
            _ => self.orphaned(),
        }
    }

    /// A protected name that was removed outside.
    fn removed(&self, message: &[u8]) {
        if let Some((path, was)) = cover::watch::removed(message) {
            self.guarding.removed(path, was);
        }
    }

    /// Makes a mount of the view again, and answers.
    fn cover(&self, what: u8, path: &[u8]) {
        let path = Path::new(OsStr::from_bytes(path));
        let made =
            What::of(what).ok_or(Errno::EINVAL).and_then(|what| cover::again::make(what, path));
        let errno = made.err().map_or(0, Errno::into_raw);
        let answer = [&[cover::DONE][..], &errno.to_ne_bytes()].concat();
        let _ = sys::fd::send(self.control.as_fd(), &answer);
    }

    fn reap(&mut self, service: &mut Service) {
        while let Ok(Some((pid, change))) = sys::process::wait_any(false) {
            if pid != self.command {
                service.changed(pid, change, self.control.as_fd());
                continue;
            }
            match change {
                Change::Exited(code) => self.end(b'x', code),
                Change::Killed(signal) => {
                    // Told apart from an exit with the same number: the launcher dies of a
                    // terminal's SIGINT as the command did.
                    self.tell(b'K', signal);
                    self.end(b'k', signal)
                }
                Change::Stopped(signal) => {
                    self.stops.stopped();
                    let message = [b'S', signal as u8, self.stops.count];
                    let _ = sys::fd::send(self.control.as_fd(), &message);
                }
                Change::Continued => {
                    self.stops.continued();
                    self.tell(b'C', 0)
                }
            }
        }
    }

    fn tell(&self, what: u8, signal: i32) {
        let _ = sys::fd::send(self.control.as_fd(), &[what, signal as u8]);
    }

    /// The command has ended: ends the rest, and sees to it that protected paths are put right
    /// before anything else can happen, by the launcher or, if that dies, here.
    fn end(&mut self, kind: u8, value: i32) -> ! {
        self.end_everything();
        let _ = sys::fd::send(self.control.as_fd(), &[b'W', kind, value as u8]);
        let mut reply = [0; 16];
        while reply[0] != b'w' {
            // Only a reply means that it was done: the socket of a launcher that died with our
            // message unread says ECONNRESET before it says that it is closed.
            if !matches!(sys::fd::receive(self.control.as_fd(), &mut reply, true), Ok(1..)) {
                self.orphaned();
            }
        }
        sys::process::exit_now(if kind == b'k' { 128 + value } else { value })
    }

    /// The launcher died: end everything, put right what it would have put right, and go.
    fn orphaned(&mut self) -> ! {
        self.end_everything();
        self.read_rest();
        self.guarding.gone().iter().for_each(|path| cover::again::unmake(path));
        self.guarding.enforce(None);
        if let Some((message, file)) = self.will.take() {
            Guarding::carry_out(&message, file);
        }
        if let Some(private) = &self.private {
            crate::state::remove_private(private);
        }
        sys::process::exit_now(128 + SIGKILL)
    }

    /// What the launcher left to us, and was not read yet.
    fn read_rest(&mut self) {
        let mut message = [0; LONGEST];
        // The socket of one that died with a message of ours unread says so once.
        let mut resets = 0;
        loop {
            match sys::socket::receive_with(self.control.as_fd(), &mut message, false) {
                Ok((length @ 1.., descriptors)) if message[0] == WILL => {
                    self.will = will(&message[..length], descriptors);
                }
                Ok((length @ 1.., _)) if message[0] == cover::REMOVED => {
                    self.removed(&message[..length]);
                }
                Ok((1.., _)) => {}
                Err(Errno::ECONNRESET) if resets < 2 => resets += 1,
                _ => return,
            }
        }
    }

    fn end_everything(&self) {
        match self.tier {
            Tier::Process => descendants::end_all(),
            Tier::Namespace => {
                let _ = sys::signal::kill(-1, SIGKILL);
                while sys::process::wait_any(true).is_ok() {}
            }
        }
    }
}

fn will(message: &[u8], descriptors: Vec<OwnedFd>) -> Option<Will> {
    descriptors.into_iter().next().map(|file| (message.to_vec(), file))
}
