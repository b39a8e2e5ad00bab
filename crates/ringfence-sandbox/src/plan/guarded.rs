//! What is put right when a run ends.

use ringfence_policy::{Guarded, Source};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::path::PathBuf;

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
    pub tree: PathBuf,
    /// Names whose first component did not exist at its top.
    pub absent: Vec<(Cow<'static, str>, Guarded)>,
    /// Names looked for at the end in the directories below its top.
    pub nested: Vec<(Cow<'static, str>, Guarded)>,
    /// Paths in it that would be protected, and that rules grant for writing by name, and all files that they do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lifted: Vec<PathBuf>,
    /// Directories in it that rules grant for writing by name: who grants just the one that a configuration names lifts
    /// that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub granted: Vec<PathBuf>,
}
