//! A real terminal: a pseudoterminal whose other side the test plays.

use crate::{PATIENCE, Place};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetpgrp, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Instant;

/// A program on a terminal of its own.
pub struct Terminal {
    child: Child,
    master: File,
    chunks: Receiver<Vec<u8>>,
    shown: String,
    seen: usize,
}

/// What a window of `rows` and `columns` is to the kernel.
fn window(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

impl Terminal {
    /// Starts an interactive shell of the host on a new terminal of 24 rows and 80 columns;
    /// `$RF` in it is `ringfence run --tier TIER`.
    ///
    /// # Panics
    /// There is no terminal or no shell.
    pub fn shell(place: &Place) -> Terminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC);
        let master = master.expect("a pseudoterminal");
        grantpt(&master).expect("a pseudoterminal of ours");
        unlockpt(&master).expect("a pseudoterminal of ours");
        let name = ptsname(&master, Vec::new()).expect("a pseudoterminal with a name");
        let path = std::path::PathBuf::from(name.to_string_lossy().into_owned());
        place.person.owns(&path);
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let side = rustix::fs::open(&path, flags, Mode::empty()).expect("the other side");
        tcsetwinsize(&master, window(24, 80)).expect("a terminal");
        // setsid makes the terminal on its standard input the controlling one.
        let mut command: Command = place.command("setsid");
        let run = format!("{} run --tier {}", crate::binary().display(), place.tier_name());
        command.args(["--ctty", "bash", "--norc", "--noprofile", "--noediting", "-i"]);
        command.env("RF", run).env("PS1", "ready> ").env("TERM", "dumb").env("HISTFILE", "");
        let stream = || side.try_clone().expect("a descriptor");
        command.stdin(stream()).stdout(stream()).stderr(stream());
        let child = command.spawn().expect("setsid and bash");
        drop(side);
        let master = File::from(master);
        let mut reader = master.try_clone().expect("a descriptor");
        let (send, chunks) = channel();
        thread::spawn(move || {
            let mut chunk = [0; 4096];
            // The end of all on the other side is EIO here.
            while let Ok(length @ 1..) = reader.read(&mut chunk) {
                if send.send(chunk[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        let mut terminal = Terminal { child, master, chunks, shown: String::new(), seen: 0 };
        terminal.shows("ready> ");
        terminal
    }

    /// Types text.
    ///
    /// # Panics
    /// The terminal is gone.
    pub fn types(&mut self, text: &str) -> &mut Terminal {
        self.master.write_all(text.as_bytes()).expect("a terminal");
        self
    }

    /// Types a line.
    pub fn line(&mut self, text: &str) -> &mut Terminal {
        self.types(&format!("{text}\n"))
    }

    /// Waits until the text is shown, after what was waited for before, and returns what came
    /// up to it.
    ///
    /// # Panics
    /// It is not shown.
    #[track_caller]
    pub fn shows(&mut self, text: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.shown[self.seen..].find(text) {
                let found = self.shown[self.seen..self.seen + at].to_owned();
                self.seen += at + text.len();
                return found;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.chunks.recv_timeout(left) {
                Ok(chunk) => self.shown.push_str(&String::from_utf8_lossy(&chunk)),
                Err(_) => panic!("{text:?} is not shown, but: {}", self.shown),
            }
        }
    }

    /// Waits for the prompt; the last command ended with this code.
    ///
    /// # Panics
    /// It did not.
    #[track_caller]
    pub fn code(&mut self, code: i32) {
        self.shows("ready> ");
        self.line("echo co''de $?");
        let shown = self.shows("\ncode ");
        let said = self.shows("\n");
        assert_eq!(said.trim(), code.to_string(), "after {shown}");
        self.shows("ready> ");
    }

    /// Changes the size of the window.
    ///
    /// # Panics
    /// The terminal is gone.
    pub fn resize(&mut self, rows: u16, columns: u16) {
        tcsetwinsize(&self.master, window(rows, columns)).expect("a terminal");
    }

    /// Stops the job in the foreground by Ctrl-Z, and waits for the prompt.
    ///
    /// # Panics
    /// It does not stop.
    #[track_caller]
    pub fn stops_job(&mut self) {
        self.types("\x1a").shows("Stopped");
        self.shows("ready> ");
    }

    /// Waits until the shell has given the terminal to a job: what is typed before is the shell's.
    ///
    /// # Panics
    /// It does not.
    pub fn is_given(&self) {
        crate::until("the shell gives the terminal to the job", || {
            let group = tcgetpgrp(&self.master).map(|group| group.as_raw_nonzero().get());
            group.is_ok_and(|group| group.cast_unsigned() != self.child.id())
        });
    }

    /// Leaves the shell and waits for its end.
    pub fn leave(mut self) {
        self.line("exit 0");
        let deadline = Instant::now() + PATIENCE;
        while self.chunks.recv_timeout(deadline.saturating_duration_since(Instant::now())).is_ok() {
        }
        // What is left is killed as the terminal is dropped.
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
