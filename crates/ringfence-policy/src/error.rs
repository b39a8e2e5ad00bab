//! [`PolicyError`]: why there is no policy, in one sentence each.

use crate::catalog::Kind;
use crate::policy::Source;
use crate::profile::ProfileError;
use crate::suggest::tail;
use std::path::PathBuf;
use thiserror::Error;

/// Why a request is not a policy. Each message names the thing, where it stands, and, where
/// there is one, the nearest valid thing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// The text of a profile is not one.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// No profile or feature has this name.
    #[error("there is no {kind} `{name}`{}{}", named_by(.by), tail(.nearest.as_deref()))]
    Unknown {
        /// `profile` or `feature`.
        kind: &'static str,
        /// The name that was asked for.
        name: String,
        /// The profile that asked for it, when it was not the user.
        by: Option<String>,
        /// The nearest name that exists.
        nearest: Option<String>,
    },
    /// Profiles extend each other in a circle, or features require each other in one.
    #[error("{} `{}` {} itself: {}", .kind.word(), .chain.first().map_or("", String::as_str), .kind.needs(), .chain.join(" → "))]
    Cycle {
        /// What the first one is.
        kind: Kind,
        /// The circle, the first name again at its end.
        chain: Vec<String>,
    },
    /// A profile that is a file of its own names another file.
    #[error(
        "file {}: it names the file `{name}`, which could change without being noticed; a profile \
         outside of ringfence's own directories names others by name only", .path.display()
    )]
    Unfixed {
        /// The profile.
        path: PathBuf,
        /// The file it names.
        name: String,
    },
    /// Two features cannot be used together.
    #[error("{one} and feature {other} exclude each other; leave one of them out")]
    Conflict {
        /// What says so, with its kind.
        one: String,
        /// The feature.
        other: String,
    },
    /// Profiles extend each other too deeply.
    #[error("profile `{name}` is extended more than {limit} levels deep")]
    TooDeep {
        /// The outermost profile.
        name: String,
        /// The limit.
        limit: usize,
    },
    /// A file could not be read.
    #[error("cannot read {}: {reason}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        reason: String,
    },
    /// A value is not of its kind.
    #[error("{source_}: {reason}")]
    Value {
        /// The rule.
        source_: Source,
        /// What is wrong with it, and what would be right.
        reason: String,
    },
    /// A granted path does not exist.
    #[error(
        "{rule}: {} does not exist; write `?{}` if it may be missing", .path.display(), .rule.text
    )]
    Missing {
        /// The rule.
        rule: Source,
        /// The path it means.
        path: PathBuf,
    },
    /// A granted path leads out of a writable tree through a symbolic link in it.
    #[error(transparent)]
    Planted(Box<Planted>),
}

/// A granted path that leads out of a writable tree through a symbolic link in it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{rule}: {} is a symbolic link inside the writable {} and leads to {target}; a program in an \
     earlier sandbox may have made it, so remove the link or grant {target} by its own path",
    .link.display(), .tree.display(), target = .target.display()
)]
pub struct Planted {
    /// The rule.
    pub rule: Source,
    /// The link.
    pub link: PathBuf,
    /// The writable tree it is in.
    pub tree: PathBuf,
    /// Where it leads.
    pub target: PathBuf,
}

impl PolicyError {
    /// A value that is not of its kind.
    pub(crate) fn value(source: &Source, reason: impl ToString) -> PolicyError {
        PolicyError::Value { source_: source.clone(), reason: reason.to_string() }
    }
}

fn named_by(by: &Option<String>) -> String {
    by.as_ref().map(|by| format!(" (named by {by})")).unwrap_or_default()
}

impl std::fmt::Display for Source {
    /// `profile default, filesystem.read "~/.nvm"`; for an option `option --read "~/.nvm"`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.origin)?;
        if !self.key.is_empty() {
            write!(f, ", {}", self.key)?;
        }
        if self.text.is_empty() { Ok(()) } else { write!(f, " \"{}\"", self.text) }
    }
}
