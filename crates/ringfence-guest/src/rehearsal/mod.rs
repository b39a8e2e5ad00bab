//! Sessions that are played with a guest before it is saved, and what runs in them.
//!
//! What a session executes first is what a clone waits for: under the emulator each piece of code is translated when it
//! is executed for the first time. So whoever makes a template lets the guest live through all of it: a beginning, a program that is
//! loaded from the host's files, the session's end. Nothing of it stays but what the guest's kernel keeps of any program, and
//! forgets: one file, whose number no session gives.

mod program;

use crate::files::{PROGRAM, play as answer};
use crate::stream::{Over, Stream};
use crate::watch::Watching;
use crate::wire::{Exec, Start, ToGuest, ToHost, VERSION};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// How often: what is executed first and what is executed again are not the same in all places.
const TIMES: u32 = 2;
/// The channel of the command.
const COMMAND: u32 = 1;

/// Plays sessions with a guest that has said hello, and leaves it where it was. No longer than `patience`.
///
/// # Errors
/// A sentence.
pub fn play(stream: OwnedFd, patience: Duration) -> Result<(), String> {
    ringfence_sys::fd::never_wait(stream.as_fd()).map_err(|errno| format!("fcntl: {errno:?}"))?;
    let until = Instant::now() + patience;
    let program = program::make(PROGRAM);
    let mut guest = Guest { stream: Stream::new(stream), program, last: false, said: None };
    for left in (0..TIMES).rev() {
        guest.last = left == 0;
        guest.play(until)?;
    }
    Ok(())
}

struct Guest {
    stream: Stream,
    program: Vec<u8>,
    /// There will be no further session.
    last: bool,
    /// How the command ended.
    said: Option<Result<(), String>>,
}

impl Guest {
    fn play(&mut self, until: Instant) -> Result<(), String> {
        self.begin().map_err(|over| format!("{over:?}"))?;
        loop {
            if Instant::now() >= until {
                return Err("the guest does not come to an end".to_owned());
            }
            match self.turn(until) {
                Ok(false) => {}
                Ok(true) => return self.said.take().unwrap_or(Err("nothing ran".to_owned())),
                Err(over) => return Err(format!("{over:?}")),
            }
        }
    }

    fn begin(&mut self) -> Result<(), Over> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let clock = now.unwrap_or_default().as_nanos() as u64;
        // Clones get randomness of their own.
        let start = Start { clock, entropy: vec![0; 64], name: b"vm".to_vec(), ..Start::default() };
        self.stream.send(0, &ToGuest::Start(start))?;
        let path = [b"/", PROGRAM].concat();
        let exec = Exec {
            files: (1024, 4096),
            umask: 0o22,
            workdir: b"/".to_vec(),
            argv: vec![path],
            environment: vec![b"PATH=/".to_vec()],
            ..Exec::default()
        };
        self.stream.send(COMMAND, &ToGuest::Exec(exec))
    }

    /// Hears the guest; whether it has said hello again.
    fn turn(&mut self, until: Instant) -> Result<bool, Over> {
        let mut watching = Watching::new();
        watching.add((), self.stream.as_fd(), true, self.stream.waiting() > 0);
        let ready = watching.wait(Some(until))?;
        self.stream.flush()?;
        if ready.iter().any(|((), ready)| ready.read) {
            self.stream.receive()?;
        }
        while let Some((channel, message)) = self.stream.take::<ToHost>()? {
            match message {
                ToHost::Files(request) => {
                    if let Some(reply) = answer(&request, &self.program) {
                        self.stream.send(0, &ToGuest::Files(reply))?;
                    }
                }
                ToHost::Output(output, bytes) => {
                    self.stream.send(channel, &ToGuest::Taken(output, bytes.len() as u32))?;
                }
                ToHost::Ready(Err(why)) | ToHost::Failed(_, why) => {
                    self.said = Some(Err(why));
                    return Ok(true);
                }
                ToHost::Change(change) => {
                    let well = change == crate::wire::Change::Exited(0);
                    self.said = Some(if well { Ok(()) } else { Err(format!("{change:?}")) });
                    self.stream.send(0, &ToGuest::Stop)?;
                }
                ToHost::Stopped => self.stream.send(0, &ToGuest::Again(self.last))?,
                ToHost::Hello(VERSION) => return Ok(true),
                _ => {}
            }
        }
        self.stream.flush().map(|()| false)
    }
}
