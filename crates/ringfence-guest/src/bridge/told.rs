//! What commands in the guest are told by the host's side: signals, and what visitors want; and what
//! happens when a guest hears nothing of it.

use super::command::Command;
use super::{
    Bridge, End, FIRST, PASSED, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH, door, network,
};
use crate::stream::Over;
use crate::wire::ToGuest;
use ringfence_sys::fd::{self, Watched};
use ringfence_sys::signal::{self, Arrived, SignalSet};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// How long a guest may take to say that it has told a command to end. One that is busy with a thousand
/// programs does so at once, since its agent comes before them all.
const ANSWER: Duration = Duration::from_secs(10);
/// SIGTSTP, SIGTTIN, SIGTTOU
const STOPS: [i32; 3] = [20, 21, 22];
/// What a program gets for an output that is closed.
const SIGPIPE: u8 = 13;
/// Signals that ask a program to end.
const ASK_FOR_THE_END: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];

/// A command that was told to end, as far as this side knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unanswered {
    number: u8,
    until: Instant,
}

/// Stops this process as its command in the guest stopped. False: it did not, since there is no shell that would have it
/// go on, and no key stops a program so (setpgid(2), "orphaned").
pub(super) fn stop_by(number: i32) -> bool {
    // Whoever sent a SIGCONT that is not taken yet wants it to go on.
    if !STOPS.contains(&number) || signal::pending().has(SIGCONT) {
        signal::stop();
        return true;
    }
    signal::raise_default(number);
    let _ = signal::set_mask(SignalSet::of(&PASSED));
    // It is blocked, and waits to be taken, where it had stopped.
    signal::pending().has(SIGCONT)
}

impl End {
    /// The same where something that the command was told to be done is not: as ringfence's own failure, unless the
    /// command has failed by itself. SIGPIPE is what it gets for an output that cannot be written.
    pub(super) fn failing(self, why: String) -> End {
        match self {
            End::Code(0) | End::Signal(SIGPIPE) => End::Failed(125, why),
            End::Code(code) => End::Failed(code, why),
            other => other,
        }
    }
}

impl Bridge<'_> {
    /// How the command ended; as a failure where what programs left in mappings of files is not there.
    pub(super) fn written_back(&self, end: End) -> End {
        let Some((path, why)) = self.files.lost() else { return end };
        let path = path.display();
        end.failing(format!(
            "what programs changed in a mapping of {path} could not be written: {why}"
        ))
    }

    /// When the next answer is due.
    pub(super) fn answers_due(&self) -> Option<Instant> {
        self.unanswered.values().map(|one| one.until).min()
    }

    /// Ends what a guest did not tell to end in time: of the session's own command the whole machine, since that
    /// is how it ends; of another command only what stands for it here.
    pub(super) fn deaf(&mut self) -> Option<End> {
        let now = Instant::now();
        let late = |(_, one): &(&u32, &Unanswered)| one.until <= now;
        let (&channel, &Unanswered { number, .. }) = self.unanswered.iter().find(late)?;
        self.unanswered.remove(&channel);
        if channel != FIRST || self.commands.get(&FIRST).is_some_and(Command::has_ended) {
            self.given_up(channel, End::Signal(number));
            return None;
        }
        self.commands.clear();
        ringfence_sys::say!(
            "ringfence: the guest did not take signal {number} within {} s: its virtual machine was \
             ended; what programs changed by mmap(2) without msync(2) may be lost",
            ANSWER.as_secs()
        );
        Some(End::Signal(number))
    }

    /// A command ended by the signal that it was told, and what it wrote is not read: whoever told it waits for that no
    /// longer than for a guest.
    pub(super) fn unread(&mut self, channel: u32) {
        if let Some(number) = self.commands.get(&channel).and_then(Command::ended_as_told) {
            let until = Instant::now() + ANSWER;
            self.unanswered.insert(channel, Unanswered { number, until });
        }
    }

    /// Tells the end of a command, whatever is left to be written.
    fn given_up(&mut self, channel: u32, end: End) {
        let Some(mut command) = self.commands.remove(&channel) else { return };
        self.unanswered.remove(&channel);
        self.told(channel, command.end().unwrap_or(end));
    }

    /// The guest is gone after its command: waits until what that wrote is read, or until a signal says that nobody
    /// will. `None`: it had not ended.
    pub(super) fn read_to_the_end(&mut self) -> Option<End> {
        let end = loop {
            let command = self.commands.get_mut(&FIRST).filter(|command| command.has_ended())?;
            if let Some(end) = command.over() {
                break end;
            }
            let watch = |fd| Watched { fd, read: true, write: false };
            let _ = fd::poll(&[watch(self.woken.as_fd()), watch(self.signals.as_fd())], -1);
            let _ = rustix::io::read(&self.woken, &mut [0; 256][..]);
            while let Ok(written) = self.written.try_recv() {
                if written.channel == FIRST {
                    command.written(&written);
                }
            }
            if let Ok(arrived) = signal::take(self.signals.as_fd())
                && ASK_FOR_THE_END.contains(&arrived.signal)
            {
                break End::Signal(arrived.signal as u8);
            }
        };
        Some(if self.files.written() { self.unwritten(end) } else { end })
    }

    /// A command has stopped by this signal.
    pub(super) fn stopped(&mut self, channel: u32, number: u8) -> Result<(), Over> {
        if let Some(command) = self.commands.get(&channel) {
            command.restore();
        }
        if channel != FIRST {
            if let Some(door) = &mut self.door {
                door.stopped(channel, number);
            }
            return Ok(());
        }
        let stopped = stop_by(number.into());
        if let Some(command) = self.commands.get(&FIRST) {
            command.resume();
        }
        if stopped {
            // It goes on when somebody says so, by a SIGCONT that is passed on.
            return Ok(());
        }
        self.tell(FIRST, Some(ToGuest::Signal(SIGCONT as u8, true)))
    }

    pub(super) fn signal(&mut self, arrived: &Arrived) -> Result<(), Over> {
        if ASK_FOR_THE_END.contains(&arrived.signal)
            && let Some((end, until)) = &mut self.stopping
        {
            // The command has ended, and its guest writes back what it holds: for so long as it may hear of an end, and
            // for no longer when it is asked again.
            let soon = Instant::now() + ANSWER;
            if *until > soon {
                *until = soon;
            } else {
                let end = end.clone();
                self.end = Some(self.unwritten(end));
            }
            return Ok(());
        }
        if ASK_FOR_THE_END.contains(&arrived.signal)
            && self.commands.get(&FIRST).is_some_and(Command::has_ended)
        {
            // Only somebody who does not read what it wrote keeps it: that is given up.
            self.end = Some(End::Signal(arrived.signal as u8));
            return Ok(());
        }
        let message = match arrived.signal {
            SIGWINCH => self.commands.get(&FIRST).and_then(Command::resized),
            number => Some(ToGuest::Signal(number as u8, !arrived.by_process || number == SIGCONT)),
        };
        self.tell(FIRST, message)
    }

    /// Tells the guest something about a command.
    fn tell(&mut self, channel: u32, message: Option<ToGuest>) -> Result<(), Over> {
        if let Some(ToGuest::Signal(number, _)) = message
            && ASK_FOR_THE_END.contains(&number.into())
            && let Some(command) = self.commands.get_mut(&channel)
        {
            if command.has_ended() {
                // Only somebody who does not read what it wrote keeps it.
                self.given_up(channel, End::Signal(number));
                return Ok(());
            }
            command.told_to_end(number);
            let unanswered = Unanswered { number, until: Instant::now() + ANSWER };
            self.unanswered.entry(channel).or_insert(unanswered);
        }
        let command = self.commands.get_mut(&channel);
        match command.zip(message).and_then(|(command, message)| command.tell(message)) {
            // Who is held still is ended when it goes on too late to hear it.
            Some(message) => self.say(channel, message),
            None => Ok(()),
        }
    }

    /// Says something to the guest: when it goes on, where it is held still.
    fn say(&mut self, channel: u32, message: ToGuest) -> Result<(), Over> {
        if self.stillness.holds() {
            self.owed.push((channel, message));
            return Ok(());
        }
        self.stream.send(channel, &message)
    }

    /// Writers are done with something.
    pub(super) fn taken(&mut self) -> Result<(), Over> {
        let _ = rustix::io::read(&self.woken, &mut [0; 256][..]);
        while let Ok(written) = self.written.try_recv() {
            let Some(command) = self.commands.get_mut(&written.channel) else { continue };
            let message = command.written(&written);
            match message.filter(|_| !command.has_ended()) {
                Some(message) => self.stream.send(written.channel, &message)?,
                None => self.over(written.channel),
            }
        }
        Ok(())
    }

    /// Somebody is at the door, or a visitor has something to say.
    pub(super) fn visit(&mut self, at: usize) -> Result<(), Over> {
        let Some(door) = &mut self.door else { return Ok(()) };
        if self.stillness.holds() && !door.attends(at) {
            return Ok(());
        }
        match door.hear(at) {
            door::Said::Nothing => {}
            door::Said::Exec(streams, exec) => {
                let channel = self.next_command;
                // Never one of the guest's, nor one that is in use.
                if channel >= network::INWARD {
                    return Ok(());
                }
                self.next_command += 1;
                door.enter(at, channel);
                let mut exec = exec;
                let command = Command::new(channel, streams, self.waker.clone());
                (exec.terminal, exec.size) = command.terminal();
                exec.files = self.settings.files(exec.files);
                self.commands.insert(channel, command);
                return self.stream.send(channel, &ToGuest::Exec(exec));
            }
            door::Said::Signal(channel, SIGWINCH, _) => {
                if let Some(message) = self.commands.get(&channel).and_then(Command::resized) {
                    return self.say(channel, message);
                }
            }
            door::Said::Signal(channel, number, group) => {
                if number == SIGCONT
                    && let Some(command) = self.commands.get(&channel)
                {
                    command.resume();
                }
                return self.tell(channel, Some(ToGuest::Signal(number as u8, group)));
            }
            door::Said::Gone(Some(channel)) => {
                self.commands.remove(&channel);
                self.unanswered.remove(&channel);
                return self.say(channel, ToGuest::Signal(9, true));
            }
            door::Said::Gone(None) => {}
        }
        Ok(())
    }
}
