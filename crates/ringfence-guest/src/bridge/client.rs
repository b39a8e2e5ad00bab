//! One more command of a session: a process of the sandbox that hands its streams to the bridge and
//! ends as the command ends.

use super::door::{LONGEST, PLACE};
use super::settings::{self, Before};
use super::{End, PASSED, SIGCONT, told};
use crate::wire::{Message, ToGuest};
use ringfence_sys::fd::{self, Watched};
use ringfence_sys::signal::{self, Outset, SignalSet};
use ringfence_sys::{Errno, socket, unix};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// Lets the guest of this sandbox run a command, and waits for its end.
pub fn run(argv: Vec<Vec<u8>>) -> End {
    attend(argv).unwrap_or_else(|why| End::Failed(125, why))
}

fn attend(argv: Vec<Vec<u8>>) -> Result<End, String> {
    let failed = |what: &'static str| move |errno| format!("{what}: {errno:?}");
    let signals = SignalSet::of(&PASSED);
    let mask = signal::set_mask(signals).map_err(failed("sigprocmask"))?;
    let theirs = Outset::of_this_process(mask);
    let signals = signal::descriptor(signals).map_err(failed("signalfd"))?;
    let door = unix::connect(Path::new(PLACE))
        .map_err(|errno| format!("the session's virtual machine takes no commands: {errno:?}"))?;
    let before = Before { umask: ringfence_sys::process::set_umask(0), signals: theirs };
    // The bridge looks at the streams itself.
    let exec = settings::exec(((false, false), (0, 0)), argv, before);
    let message = ToGuest::Exec(exec).encode(0);
    if message.len() > LONGEST {
        return Err(format!("the command line is too long ({} bytes)", message.len()));
    }
    let (input, out, error) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    match socket::send_with(door.as_fd(), &message, &[input.as_fd(), out.as_fd(), error.as_fd()]) {
        // Who was turned away is told why, and finds nobody there any more.
        Ok(()) | Err(Errno::EPIPE | Errno::ECONNRESET) => {}
        Err(errno) => return Err(failed("sendmsg")(errno)),
    }
    loop {
        let watch = |fd| Watched { fd, read: true, write: false };
        let ready = fd::poll(&[watch(door.as_fd()), watch(signals.as_fd())], -1);
        let ready = ready.map_err(failed("poll"))?;
        if ready[1].read {
            while let Ok(arrived) = signal::take(signals.as_fd()) {
                let group = !arrived.by_process || arrived.signal == SIGCONT;
                let _ = fd::send(door.as_fd(), &[arrived.signal as u8, u8::from(group)]);
            }
        }
        if !ready[0].read {
            continue;
        }
        if let Some(end) = heard(door.as_fd()) {
            return end;
        }
    }
}

/// What the bridge says, if that is an end.
pub(super) fn heard(door: BorrowedFd<'_>) -> Option<Result<End, String>> {
    let mut message = [0; 2048];
    let count = match fd::receive(door, &mut message, true) {
        // It closed its end before it had read all: what it said is there all the same.
        Err(Errno::ECONNRESET) => fd::receive(door, &mut message, true),
        other => other,
    };
    Some(Ok(match &message[..count.unwrap_or_default()] {
        [b'x', code] => End::Code(*code),
        [b'k', signal] => End::Signal(*signal),
        [b's', number] => {
            if !told::stop_by((*number).into()) {
                let _ = fd::send(door, &[SIGCONT as u8, 1]);
            }
            return None;
        }
        [b'F', code, why @ ..] => End::Failed(*code, String::from_utf8_lossy(why).into_owned()),
        _ => return Some(Err("the session ended before its command".to_owned())),
    }))
}
