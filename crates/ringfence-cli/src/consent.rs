//! Questions whose answer changes something. What was typed before the question stood there is no answer to it:
//! a program can ask one of its own, wait until the line is there and leave it unread, and end.

use ringfence_sandbox::launch;
use ringfence_sys::fd;
use ringfence_sys::signal::{self, SignalSet};
use ringfence_sys::terminal::{self, Mode};
use std::io::{IsTerminal, Write, stderr, stdin};
use std::os::fd::AsFd;

const INTERRUPT: i32 = 2;

/// The terminal that the user is asked on, as it was when it was looked at.
#[derive(Clone, Copy, Debug)]
pub struct Terminal(Mode);

/// What the user said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A line, in small letters, without blanks around it.
    Said(String),
    /// Ctrl-C.
    Interrupted,
    /// The end of what is typed: Ctrl-D, or the terminal is gone.
    Ended,
}

impl Terminal {
    /// The terminal as it is now; where a program is going to run before the question, look before that. None:
    /// nobody can be asked, or would see what about.
    pub fn now() -> Option<Terminal> {
        let seen = stdin().is_terminal() && stderr().is_terminal();
        let mode = || terminal::mode(stdin().as_fd()).ok();
        mode().filter(|_| seen).map(Terminal)
    }

    /// Puts a question, after everything that it is about was shown.
    pub fn ask(&self, question: &str) -> Answer {
        // The run has ended; from here on signals are for us, and Ctrl-C is an answer.
        launch::take_signals_again();
        let interrupt = SignalSet::of(&[INTERRUPT]);
        let before = signal::set_mask(interrupt);
        let answer = signal::descriptor(interrupt)
            .and_then(|interrupted| {
                terminal::take_back(stdin().as_fd());
                // What a program made of the terminal ends here, and so does what was typed for it.
                terminal::set_mode_dropping_input(stdin().as_fd(), &self.0.lines())?;
                ringfence_sys::say::text(format_args!("{question}"));
                let _ = stderr().flush();
                line(interrupted.as_fd())
            })
            .unwrap_or(Answer::Ended);
        let _ = terminal::set_mode(stdin().as_fd(), &self.0);
        if !matches!(answer, Answer::Said(_)) {
            ringfence_sys::say!("");
        }
        if let Ok(before) = before {
            let _ = signal::set_mask(before);
        }
        answer
    }

    /// A question that is answered by yes, or else is not.
    pub fn agrees(&self, question: &str) -> Answered {
        match self.ask(&format!("{question} [y/N] ")) {
            Answer::Said(word) if matches!(word.as_str(), "y" | "yes") => Answered::Yes,
            Answer::Interrupted => Answered::Interrupted,
            Answer::Said(_) | Answer::Ended => Answered::No,
        }
    }
}

/// Whether the user agrees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answered {
    /// So it was said.
    Yes,
    /// Something else was said, or nothing.
    No,
    /// No, and whoever started us is to see it as well ([`launch::die_of_interrupt`]).
    Interrupted,
}

/// One line from the terminal.
fn line(interrupted: std::os::fd::BorrowedFd<'_>) -> ringfence_sys::Result<Answer> {
    let (input, mut line) = (stdin(), Vec::new());
    while line.last() != Some(&b'\n') {
        let ready = fd::poll_readable(&[input.as_fd(), interrupted], -1)?;
        if ready.get(1) == Some(&true) && signal::take(interrupted).is_ok() {
            return Ok(Answer::Interrupted);
        }
        if ready.first() != Some(&true) {
            continue;
        }
        let mut some = [0; 256];
        match fd::read(input.as_fd(), &mut some)? {
            // Ctrl-D behind some letters gives them out; alone, it is the end.
            0 => return Ok(Answer::Ended),
            length => line.extend_from_slice(&some[..length]),
        }
    }
    Ok(Answer::Said(String::from_utf8_lossy(&line).trim().to_lowercase()))
}
