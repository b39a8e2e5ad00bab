//! A directory that shows what the host's has, and files of ringfence's own.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What is shown in such a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Besides {
    /// The files, by their paths from there, and what is in them.
    #[serde(serialize_with = "super::paths::write")]
    pub files: Vec<(PathBuf, String)>,
    /// What the host has there.
    pub entries: Vec<Entry>,
}

/// One name in a directory of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The name.
    #[serde(serialize_with = "super::paths::write")]
    pub name: PathBuf,
    /// It is a directory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub directory: bool,
    /// What it points to, where it is a symbolic link.
    #[serde(
        default,
        serialize_with = "super::paths::write",
        skip_serializing_if = "Option::is_none"
    )]
    pub link: Option<PathBuf>,
}
