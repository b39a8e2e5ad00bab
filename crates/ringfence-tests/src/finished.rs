//! How a program ended, and what it said.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// A program that has ended.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Exit code, or 128 + the signal that ended it, as shells say it.
    pub code: i32,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Standard output.
    pub out: Vec<u8>,
    /// Standard error.
    pub err: String,
}

impl Finished {
    /// From its parts.
    pub(crate) fn new(status: ExitStatus, out: Vec<u8>, err: &[u8]) -> Finished {
        let signal = status.signal();
        let code = status.code().unwrap_or_else(|| 128 + signal.unwrap_or(0));
        Finished { code, signal, out, err: String::from_utf8_lossy(err).into_owned() }
    }

    /// Standard output as text, without its last line end.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).trim_end().to_owned()
    }

    /// What it printed; it ended well and said nothing on standard error.
    ///
    /// # Panics
    /// It did not.
    #[track_caller]
    pub fn quiet(&self) -> String {
        assert_eq!(self.err, "", "nothing is said about a run that worked (code {})", self.code);
        self.well()
    }

    /// What it printed; it ended well.
    ///
    /// # Panics
    /// It did not.
    #[track_caller]
    pub fn well(&self) -> String {
        self.ends(0);
        self.text()
    }

    /// It ended with this code.
    ///
    /// # Panics
    /// It did not.
    #[track_caller]
    pub fn ends(&self, code: i32) -> &Finished {
        let Finished { err, .. } = self;
        assert_eq!(self.code, code, "exit code; it said: {}\n{err}", self.text());
        self
    }

    /// It said this on standard error.
    ///
    /// # Panics
    /// It did not.
    #[track_caller]
    pub fn says(&self, text: &str) -> &Finished {
        assert!(self.err.contains(text), "{text:?} is not said (code {}): {}", self.code, self.err);
        self
    }

    /// It printed this on standard output.
    ///
    /// # Panics
    /// It did not.
    #[track_caller]
    pub fn prints(&self, text: &str) -> &Finished {
        let Finished { code, err, .. } = self;
        assert!(
            self.text().contains(text),
            "{text:?} not in {:?} (code {code}, {err})",
            self.text()
        );
        self
    }
}
