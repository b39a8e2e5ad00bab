//! The gateway for snapshots, as a plan has it.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// What the command may have snapshots made of, and reverted, by the launcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gateway {
    /// The socket inside.
    #[serde(serialize_with = "super::paths::write")]
    pub socket: PathBuf,
    /// Its writable trees; first the one that the command starts in.
    pub trees: Vec<GatewayTree>,
}

/// A writable tree, as the launcher may act on it for the command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayTree {
    /// The tree.
    #[serde(serialize_with = "super::paths::write")]
    pub tree: PathBuf,
    /// What of it is not shown and not reverted, relative to it: what is denied, protected or
    /// read-only inside. `*` and `?` match within a component, `**` at the beginning is any
    /// directory.
    #[serde(serialize_with = "super::paths::write")]
    pub except: Vec<PathBuf>,
}
