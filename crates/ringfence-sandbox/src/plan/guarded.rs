//! What is put right when a run ends.

use ringfence_policy::{Guarded, Source};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// What a guarded path was at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Found {
    /// Nothing.
    Absent,
    /// A symbolic link.
    Symlink,
    /// A file or a directory.
    Present,
}

/// A path that is put right when the run ends, because the kernel cannot hold it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardStep {
    /// The path.
    #[serde(serialize_with = "super::paths::write")]
    pub path: PathBuf,
    /// What it was.
    pub found: Found,
    /// How a changed one is judged.
    pub guarded: Guarded,
    /// Why.
    pub rule: Source,
}

/// The names that hosts execute or trust, in one writable tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardedTree {
    /// The writable tree.
    #[serde(serialize_with = "super::paths::write")]
    pub tree: PathBuf,
    /// Names whose first component did not exist at its top.
    pub absent: Vec<(Cow<'static, str>, Guarded)>,
    /// Names looked for at the end in the directories below its top.
    pub nested: Vec<(Cow<'static, str>, Guarded)>,
    /// Paths in it that would be protected, and that rules grant for writing by name.
    #[serde(
        default,
        serialize_with = "super::paths::write",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub lifted: Vec<PathBuf>,
    /// Files in it that rules grant for writing by name, and whether they would be protected: they themselves, not what is
    /// in a directory that is made in the place of one.
    #[serde(
        default,
        serialize_with = "super::paths::write",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub files: Vec<(PathBuf, bool)>,
    /// Directories in it that rules grant for writing by name: who grants just the one that a configuration names lifts
    /// that.
    #[serde(
        default,
        serialize_with = "super::paths::write",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub granted: Vec<PathBuf>,
}

impl GuardedTree {
    /// Whether what is at a path was granted by its name, and may be what it likes.
    pub fn is_lifted(&self, path: &Path) -> bool {
        self.lifted.iter().any(|lifted| path.starts_with(lifted)) || self.is_file(path)
    }

    /// Whether a path is one of the granted files.
    pub fn is_file(&self, path: &Path) -> bool {
        self.files.iter().any(|(file, _)| file == path)
    }
}
