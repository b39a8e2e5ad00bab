//! One error type: a sentence for the user.

use std::fmt;
use std::path::Path;

/// What went wrong, as one sentence that names the thing and, where there is one, the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(String);

/// The result of anything here that can fail.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error that says `message`.
    pub fn new(message: impl Into<String>) -> Error {
        Error(message.into())
    }

    /// An error of an operation on a file.
    pub fn file(what: &str, path: &Path, cause: impl fmt::Display) -> Error {
        Error(format!("cannot {what} {}: {cause}", path.display()))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// Builds an [`Error`] from a format string.
macro_rules! error {
    ($($argument:tt)*) => { $crate::error::Error::new(format!($($argument)*)) };
}
pub(crate) use error;
