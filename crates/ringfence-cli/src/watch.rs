//! `ringfence watch [SESSION]`: refused connections as they come, and their answers by a key.

use crate::allow::Change;
use crate::error::Fault;
use crate::help;
use crate::options::{Spec, parse};
use ringfence_net::live::client::{Client, Said};
use ringfence_session::live::RULES;
use ringfence_sys::{fd, terminal};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::File;
use std::io::{IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

const INTERRUPT: u8 = 3;

/// As long does a question stand that nobody called up, before a key is an answer to it.
const READING: Duration = Duration::from_millis(500);
/// And as long one that stands there since a key: a second tap of it, or one that is held down, answers nothing more.
const TAPPING: Duration = Duration::from_millis(300);
/// Refusals that wait for nothing are kept so long as there are not more of them: a program may make as many as it likes.
const KEPT: usize = 256;

/// Its options.
pub const WATCH: [Spec; 2] = [
    Spec {
        long: "profile",
        short: None,
        value: Some("NAME"),
        value_optional: false,
        repeatable: false,
        help: "The profile that the key a (always) changes",
    },
    Spec {
        long: "help",
        short: Some('h'),
        value: None,
        value_optional: false,
        repeatable: false,
        help: "Print help",
    },
];

/// One session that is watched.
struct Watched {
    name: String,
    client: Client,
}

/// A refusal that was not answered yet.
struct Open {
    session: usize,
    number: u64,
    waits: bool,
    place: String,
}

/// `ringfence watch [--profile NAME] [SESSION]`
///
/// # Errors
/// There is no such session, or none that has a network filter.
pub fn watch(arguments: Vec<OsString>) -> Result<u8, Fault> {
    let parsed = parse(&WATCH, arguments, false)?;
    if parsed.has("help") {
        return help::command("watch");
    }
    let watched = match &parsed.rest[..] {
        [] => all()?,
        [session] => {
            let name = session.to_string_lossy().into_owned();
            vec![Watched { client: crate::allow::connect(&name)?, name }]
        }
        _ => {
            return Err(Fault::usage("name one session, or none for all: ringfence watch SESSION"));
        }
    };
    for session in &watched {
        session.client.say(&["watch"]).map_err(Fault::usage)?;
    }
    let profile = parsed.last("profile").map(|name| name.to_string_lossy().into_owned());
    let view = View { watched, open: VecDeque::new(), profile };
    if std::io::stdin().is_terminal() { view.on_terminal() } else { view.print_lines() }
}

/// All sessions that run and have rules to change.
fn all() -> Result<Vec<Watched>, Fault> {
    let sessions = ringfence_session::cli::sessions().map_err(Fault::of)?;
    let live = sessions.into_iter().filter(|(_, session)| session.live);
    let watched = live.filter_map(|(directory, session)| {
        let client = Client::connect(&directory.join(RULES)).ok()?;
        Some(Watched { name: session.name.unwrap_or(session.id), client })
    });
    let watched: Vec<Watched> = watched.collect();
    if watched.is_empty() {
        return Err(Fault::usage(
            "no session with a network filter runs: ringfence run --allow-host HOST -- CMD",
        ));
    }
    Ok(watched)
}

/// The question in front, and since when. When another one moves up (the time of the one before is over, which a
/// program can arrange), a key that was meant for that one is no answer to it.
#[derive(Default)]
struct Front {
    question: Option<(String, u64)>,
    /// Until then nobody can have read it.
    unread: Option<Instant>,
}

impl Front {
    /// Notes what is in front now; true: it is another question, and what was typed before it was shown is dropped.
    /// `by_key`: the user answered the one before, and looks there.
    fn is_new(&mut self, question: Option<(String, u64)>, by_key: bool, now: Instant) -> bool {
        if self.question == question {
            return false;
        }
        self.question = question;
        self.unread = Some(now + if by_key { TAPPING } else { READING });
        true
    }

    fn takes_keys(&self, now: Instant) -> bool {
        self.unread.is_none_or(|unread| now >= unread)
    }
}

struct View {
    watched: Vec<Watched>,
    open: VecDeque<Open>,
    profile: Option<String>,
}

impl View {
    /// Without a terminal: lines, until the sessions have ended.
    fn print_lines(mut self) -> Result<u8, Fault> {
        let mut out = std::io::stdout();
        while self.hear(None, &mut |line| out.write_all(format!("{line}\n").as_bytes()).is_ok()) {}
        Ok(0)
    }

    fn on_terminal(mut self) -> Result<u8, Fault> {
        let input = std::io::stdin();
        let failed = |errno| Fault::usage(format!("cannot use this terminal: {errno:?}"));
        let mode = terminal::mode(input.as_fd()).map_err(failed)?;
        let raw = mode.raw();
        terminal::set_mode(input.as_fd(), &raw).map_err(failed)?;
        // What is read ahead would be out of the terminal's reach, which drops it.
        let mut keys = input.as_fd().try_clone_to_owned().map(File::from).map_err(Fault::of)?;
        let (mut key, mut front, mut by_key) = ([0], Front::default(), false);
        let result = loop {
            self.prompt();
            if front.is_new(self.front(), by_key, Instant::now()) {
                let _ = terminal::set_mode_dropping_input(input.as_fd(), &raw);
            }
            by_key = false;
            let print = &mut |line: &str| {
                let _ = write!(std::io::stdout(), "\r\x1b[K{line}\r\n");
                true
            };
            if !self.hear(Some(()), print) {
                break Ok(0);
            }
            // Another one moved up meanwhile: it is shown before a key is read.
            if self.front() != front.question {
                continue;
            }
            let ready = fd::poll_readable(&[input.as_fd()], 0).unwrap_or_default();
            if ready.first() != Some(&true) {
                continue;
            }
            match keys.read(&mut key) {
                Ok(1..) if !matches!(key[0], b'q' | INTERRUPT | 4) => {}
                _ => break Ok(0),
            }
            if !front.takes_keys(Instant::now()) {
                continue;
            }
            by_key = true;
            if key[0] == b'a' {
                let _ = terminal::set_mode(input.as_fd(), &mode);
                let always = self.always();
                let _ = terminal::set_mode(input.as_fd(), &raw);
                if let Err(fault) = always {
                    let _ = write!(std::io::stdout(), "\r\x1b[K{}\r\n", fault.message);
                }
            } else {
                self.key(key[0]);
            }
        };
        let _ = terminal::set_mode(input.as_fd(), &mode);
        let _ = write!(std::io::stdout(), "\r\x1b[K");
        result
    }

    /// What is asked about: the first for which a program waits, however many were refused before it, or else the first.
    fn first(&self) -> Option<usize> {
        let waits = self.open.iter().position(|open| open.waits);
        waits.or((!self.open.is_empty()).then_some(0))
    }

    /// The session and the number of the question in front.
    fn front(&self) -> Option<(String, u64)> {
        let open = &self.open[self.first()?];
        Some((self.watched.get(open.session)?.name.clone(), open.number))
    }

    fn prompt(&self) {
        let mut out = std::io::stdout();
        let _ = match self.first().map(|first| &self.open[first]) {
            None => write!(out, "\r\x1b[Kwatching; q quits"),
            Some(open) => {
                let once = if open.waits { "o once, " } else { "" };
                let place = &open.place;
                write!(out, "\r\x1b[K{place}: {once}s for the session, a always, d deny, q quit ")
            }
        };
        let _ = out.flush();
    }

    /// Waits for the sessions (and, with `keys`, the terminal), and shows what they say. False:
    /// all of them have ended, or nobody reads.
    fn hear(&mut self, keys: Option<()>, show: &mut dyn FnMut(&str) -> bool) -> bool {
        let input = std::io::stdin();
        let mut fds: Vec<_> = self.watched.iter().map(|session| session.client.as_fd()).collect();
        fds.extend(keys.map(|()| input.as_fd()));
        let Ok(ready) = fd::poll_readable(&fds, -1) else { return false };
        let mut ended = Vec::new();
        for at in (0..self.watched.len()).filter(|&at| ready[at]) {
            let Some(said) = self.watched[at].client.hear(false) else {
                ended.push(at);
                continue;
            };
            if self.said(at, said).is_some_and(|line| !show(&line)) {
                return false;
            }
        }
        for at in ended.into_iter().rev() {
            let name = self.watched.remove(at).name;
            self.open.retain(|open| open.session != at);
            for open in self.open.iter_mut().filter(|open| open.session > at) {
                open.session -= 1;
            }
            if !show(&format!("{name}: ended")) {
                return false;
            }
        }
        !self.watched.is_empty()
    }

    fn said(&mut self, at: usize, said: Said) -> Option<String> {
        let name = self.watched[at].name.clone();
        match said {
            Said::Answer(Ok(text)) if text.is_empty() => None,
            Said::Answer(Ok(text) | Err(text)) => Some(format!("{name}: {text}")),
            Said::Settled { number, text } => {
                let mine = |open: &Open| open.session == at && open.number == number;
                let found = self.open.iter().position(mine);
                let place = found.and_then(|found| self.open.remove(found)).map(|open| open.place);
                Some(format!("{name}: {}{text}", place.map_or(String::new(), |place| place + " ")))
            }
            Said::Refused { number, waits, place, process, why } => {
                let by = if process.is_empty() { process } else { format!(" by {process}") };
                let line = if waits > 0 {
                    format!("{name}: {place}{by} waits {waits} s: {why}")
                } else {
                    format!("{name}: refused {place}{by}: {why}")
                };
                let known = |open: &Open| open.session == at && open.place == place && !open.waits;
                if waits > 0 || !self.open.iter().any(known) {
                    self.open.push_back(Open { session: at, number, waits: waits > 0, place });
                }
                if self.open.iter().filter(|open| !open.waits).count() > KEPT
                    && let Some(oldest) = self.open.iter().position(|open| !open.waits)
                {
                    self.open.remove(oldest);
                }
                Some(line)
            }
        }
    }

    fn key(&mut self, key: u8) {
        let word = match key {
            b'o' => "once",
            b's' => "session",
            b'd' => "deny",
            _ => return,
        };
        let Some(first) = self.first() else { return };
        let open = &self.open[first];
        if word == "once" && !open.waits {
            return;
        }
        if open.waits || word == "session" {
            let _ = self.watched[open.session].client.say(&[word, &open.number.to_string()]);
        }
        self.open.remove(first);
    }

    fn always(&mut self) -> Result<(), Fault> {
        let Some(first) = self.first() else { return Ok(()) };
        let open = &self.open[first];
        let Some(profile) = &self.profile else {
            return Err(Fault::usage(
                "which profile? start ringfence watch with --profile NAME; s allows it for the \
                 session",
            ));
        };
        crate::generate::print(b"\n")?;
        // Who does not want it after all is asked again: nothing was allowed.
        if Change::of(profile, &open.place)?.make(false)? {
            self.key(b's');
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_no_answer_to_a_question_that_moved_up_unseen() {
        let (start, of) = (Instant::now(), |number| Some(("s".to_owned(), number)));
        let mut front = Front::default();
        assert!(front.is_new(of(1), false, start) && !front.takes_keys(start));
        let later = start + READING;
        assert!(!front.is_new(of(1), false, later) && front.takes_keys(later));
        // Its time is over: the next one stands there, and nobody has read it.
        assert!(front.is_new(of(2), false, later) && !front.takes_keys(later));
        let later = later + READING;
        assert!(front.takes_keys(later));
        // The control: who answered one looks at the next, but for a second tap; what was typed ahead is dropped.
        assert!(front.is_new(of(3), true, later) && !front.takes_keys(later));
        let later = later + TAPPING;
        assert!(front.takes_keys(later));
        // The same number in another session is another question.
        assert!(front.is_new(Some(("t".to_owned(), 3)), false, later));
    }
}
