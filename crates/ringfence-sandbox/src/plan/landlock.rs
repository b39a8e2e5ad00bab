//! The Landlock domain of a plan.

use ringfence_policy::Source;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// File rights, as groups of Landlock's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rights {
    /// List directories.
    List,
    /// Read files, list directories, execute.
    Read,
    /// Open existing files for writing, and control devices.
    Use,
    /// Everything.
    Write,
}

/// One Landlock rule about a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRule {
    /// The path below which it holds.
    #[serde(serialize_with = "super::paths::write")]
    pub path: PathBuf,
    /// What it grants.
    pub rights: Rights,
    /// It is known to be no directory: only a file's rights are granted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub file: bool,
    /// Why.
    pub rule: Source,
}

/// One Landlock rule about a TCP port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortRule {
    /// The port.
    pub port: u16,
    /// It may be bound (else connected to).
    pub bind: bool,
    /// Why.
    pub rule: Source,
}

/// The Landlock domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Landlock {
    /// The version it is made for.
    pub abi: u32,
    /// Paths.
    pub files: Vec<FileRule>,
    /// TCP ports; unset: TCP is not Landlock's business here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports: Option<Vec<PortRule>>,
    /// The program can make no files of Unix sockets by itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_sockets: bool,
    /// Abstract Unix sockets and signals stay within.
    pub scoped: bool,
}
