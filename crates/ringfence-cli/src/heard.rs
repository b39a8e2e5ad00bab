//! What a program that was started says on standard error: kept for the sentence about its end, so that nothing inside
//! writes to the user's terminal by itself.

use crate::error::Fault;
use ringfence_policy::shown;
use ringfence_session::said;
use ringfence_sys as sys;
use std::os::fd::AsFd;
use std::process::{Child, ExitStatus};
use std::thread::{self, JoinHandle};

/// As much of it is kept; the rest is read and dropped.
const MOST: usize = 16 << 10;

/// A program whose standard error is a pipe.
pub struct Heard(Option<JoinHandle<Vec<u8>>>);

impl Heard {
    /// Begins to read.
    ///
    /// # Errors
    /// The kernel's.
    pub fn of(child: &mut Child) -> Result<Heard, Fault> {
        let Some(pipe) = child.stderr.take() else { return Ok(Heard(None)) };
        let ended = sys::process::pidfd(child.id() as i32).map_err(Fault::of)?;
        Ok(Heard(Some(thread::spawn(move || {
            let mut kept = Vec::new();
            let keep = |bytes: &[u8]| {
                let room = MOST.saturating_sub(kept.len()).min(bytes.len());
                kept.extend_from_slice(&bytes[..room]);
                Ok(())
            };
            // What was read until then is kept.
            let _ = sys::pipe::read(pipe.as_fd(), ended.as_fd(), keep);
            kept
        }))))
    }

    /// What has come of an end: what was said, told where it went well; else the reason alone.
    pub fn told(self, status: ExitStatus) -> Result<(), String> {
        let said = self.0.and_then(|thread| thread.join().ok()).unwrap_or_default();
        if !status.success() {
            let reason = said::reason(&said).unwrap_or_else(|| status.to_string());
            return Err(shown::line(&reason).into_owned());
        }
        let said = shown::contents(&said);
        said.lines().for_each(|line| sys::say!("{line}"));
        Ok(())
    }
}
