//! Sessions that run: found without a database, since `exec` is made of microseconds.

use crate::ledger::{self, Session};
use crate::place;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The socket of `exec` in a session's directory.
pub const SOCKET: &str = "control.sock";

/// The socket, beside it, of those who change the rules of the network.
pub const RULES: &str = "rules.sock";

/// The socket, beside it, of those who ask for clones of a template, or for a fork of a virtual machine.
pub const FORKS: &str = "fork.sock";

/// The file, beside it, that says that the session is held still.
pub const SUSPENDED: &str = "suspended";

/// The identifier of the running session that has a name.
pub fn named(name: &str) -> Option<String> {
    let sessions = place::sessions().ok()?;
    let target = std::fs::read_link(sessions.join(place::NAMES).join(name)).ok()?;
    let directory = sessions.join(target.file_name()?);
    ledger::live(&directory)
        .then(|| target.file_name().unwrap_or_default().to_string_lossy().into())
}

/// What the launcher of a session that runs was started with, and where it is. Nothing for one in another container.
pub fn launcher(word: &str) -> Option<(Vec<OsString>, PathBuf)> {
    let (session, socket) = find(word).ok()?;
    let directory = socket.parent()?;
    // A number alone could be another process's by now.
    if !ledger::live(directory) || !ledger::held_by(directory, session.pid) {
        return None;
    }
    let words = std::fs::read(format!("/proc/{}/cmdline", session.pid)).ok()?;
    let words = words.strip_suffix(b"\0")?.split(|&byte| byte == 0);
    let words = words.map(|word| OsStr::from_bytes(word).to_owned()).collect();
    Some((words, std::fs::read_link(format!("/proc/{}/cwd", session.pid)).ok()?))
}

/// Where the socket of a session is, if the word is its identifier or its name: in the order in
/// which they are to be tried.
pub fn sockets(word: &str) -> Vec<PathBuf> {
    let Ok(sessions) = place::sessions() else { return Vec::new() };
    let mut places = Vec::new();
    if ledger::check_id(word).is_ok() {
        places.push(sessions.join(word).join(SOCKET));
    }
    if place::check_name(word).is_ok() {
        let named = sessions.join(place::NAMES).join(word).join(SOCKET);
        // Nobody calls a session by eight digits.
        let at = if word.len() == 8 { places.len() } else { 0 };
        places.insert(at, named);
    }
    places
}

/// The session that a word names by any of its ways, and where its socket is.
///
/// # Errors
/// There is none, with the nearest that there is; several begin so.
pub fn find(word: &str) -> crate::Result<(Session, PathBuf)> {
    let directory = crate::cli::find(word)?;
    Ok((ledger::session(&directory)?, directory.join(SOCKET)))
}

/// The same, for a session that may be about to start: one that is named is waited for. Until then its name may lead to
/// one that has ended.
///
/// # Errors
/// There is none within `most`; otherwise as [`find`].
pub fn find_within(word: &str, most: Duration) -> crate::Result<(Session, PathBuf)> {
    let deadline = Instant::now() + most;
    let running = |found: &crate::Result<(Session, PathBuf)>| {
        found.as_ref().is_ok_and(|(session, _)| session.live)
    };
    let missing = find(word);
    let named = match &missing {
        Ok((session, _)) => session.name.as_deref() == Some(word),
        Err(_) => place::check_name(word).is_ok(),
    };
    if running(&missing) || !named {
        return missing;
    }
    // Names come by a rename. What cannot be watched is not waited for.
    let names = place::sessions()?.join(place::NAMES);
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC).ok().filter(|watch| {
        place::private_directory(&names).is_ok()
            && inotify::add_watch(watch, &names, inotify::WatchFlags::MOVED_TO).is_ok()
    });
    let Some(watch) = watch else { return missing };
    let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
    let mut arrived = inotify::Reader::new(&watch, &mut buffer);
    loop {
        let found = find(word);
        if running(&found) {
            return found;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&watch, PollFlags::IN)], Some(&left)) {
            Ok(0) => return missing,
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return missing,
        }
        // Takes all that came, and looks once.
        let _ = arrived.next();
        while !arrived.is_buffer_empty() {
            let _ = arrived.next();
        }
    }
}
