//! What can go wrong with snapshots and ledgers, told to people.

use std::path::{Path, PathBuf};
use thiserror::Error;

/// The result of everything in this crate.
pub type Result<T> = std::result::Result<T, SessionError>;

/// Why an operation failed. Whatever the reason, the user's bytes are where they were, or in
/// the store.
#[derive(Debug, Error)]
pub enum SessionError {
    /// A call failed.
    #[error("{call}({}): {source}", path.display())]
    Call {
        /// The call.
        call: &'static str,
        /// Its operand.
        path: PathBuf,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// The disk, a quota, or the store's own limit is used up.
    #[error(
        "no space is left for {}; nothing was lost: free some (`ringfence snapshot delete`, \
         `ringfence snapshot compact`, `ringfence gc --all` for records of sessions), then do the same again",
        .0.display()
    )]
    Full(PathBuf),
    /// The database cannot be used.
    #[error("{}: {source}", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// SQLite's answer.
        source: rusqlite::Error,
    },
    /// Stored bytes are not what was stored.
    #[error("{} is damaged: {what}; move it away to start a new one", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Written by a later ringfence.
    #[error(
        "{} has version {found}, and this ringfence knows versions up to {known}; use the newer \
         ringfence that wrote it",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// Ours.
        known: i64,
    },
    /// Another process holds the lock for too long.
    #[error("another ringfence (process {holder}) has held {} for {seconds} s; wait for it, or end it", path.display())]
    Busy {
        /// The lock file.
        path: PathBuf,
        /// Who holds it, as far as it said so.
        holder: String,
        /// How long we waited.
        seconds: u64,
    },
    /// The workspace changed under our hands.
    #[error(
        "{} was written to while it was being reverted; it was left as it is: stop the writer, \
         then `ringfence snapshot revert --resume`",
        .0.display()
    )]
    Changed(PathBuf),
    /// A name that a running session has.
    #[error(
        "--name {name}: the running session {id} has this name; `ringfence kill {name}` ends it"
    )]
    Taken {
        /// The name.
        name: String,
        /// The session's identifier.
        id: String,
    },
    /// Bad input: one whole sentence.
    #[error("{0}")]
    Usage(String),
}

impl SessionError {
    /// A failed call; a full disk is told apart.
    pub(crate) fn call(call: &'static str, path: &Path, source: impl Into<std::io::Error>) -> Self {
        let source = source.into();
        let full = [std::io::ErrorKind::StorageFull, std::io::ErrorKind::QuotaExceeded];
        if full.contains(&source.kind()) {
            return SessionError::Full(path.to_owned());
        }
        SessionError::Call { call, path: path.to_owned(), source }
    }

    /// A failed statement; a full disk and a damaged file are told apart.
    pub(crate) fn database(path: &Path, source: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode::{DatabaseCorrupt, DiskFull, NotADatabase};
        match source.sqlite_error_code() {
            Some(DiskFull) => SessionError::Full(path.to_owned()),
            Some(DatabaseCorrupt | NotADatabase) => {
                SessionError::Corrupt { path: path.to_owned(), what: source.to_string() }
            }
            _ => SessionError::Database { path: path.to_owned(), source },
        }
    }

    /// Bad input.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        SessionError::Usage(text.into())
    }
}
