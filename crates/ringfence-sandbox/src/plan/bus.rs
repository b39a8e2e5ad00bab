//! The session bus inside, as a plan has it.

use ringfence_policy::Source;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A session bus behind a filter, which is started when the first program connects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bus {
    /// The socket inside.
    #[serde(serialize_with = "super::paths::write")]
    pub socket: PathBuf,
    /// The filter: xdg-dbus-proxy(1).
    #[serde(serialize_with = "super::paths::write")]
    pub program: PathBuf,
    /// The bus behind it, as the D-Bus specification writes addresses.
    pub address: String,
    /// What the filter lets through; nothing else.
    pub grants: Vec<BusGrant>,
    /// Where the filter notes what is asked of it.
    #[serde(
        default,
        serialize_with = "super::paths::write",
        skip_serializing_if = "Option::is_none"
    )]
    pub trace: Option<PathBuf>,
    /// Why there is a bus.
    pub rule: Source,
}

/// One thing that the filter lets through.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BusGrant {
    /// In the filter's words.
    pub argument: String,
    /// Why.
    pub rule: Source,
}
