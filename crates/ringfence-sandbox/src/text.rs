//! How policy words are written for people.

use ringfence_policy::{Layer, Source};

/// A rule with where it stands: `/usr (profile default, filesystem.read)`.
pub fn source(source: &Source) -> String {
    match (source.key.as_str(), source.text.as_str()) {
        ("", "") => source.origin.clone(),
        ("", text) => format!("{} {text}", source.origin),
        (key, text) => format!("{text} ({}, {key})", source.origin),
    }
}

/// A layer's name, as `--allow-degraded` takes it.
pub fn layer(layer: Layer) -> &'static str {
    match layer {
        Layer::Namespaces => "namespaces",
        Layer::Landlock => "landlock",
        Layer::LandlockTruncate => "landlock-truncate",
        Layer::LandlockNetwork => "landlock-network",
        Layer::LandlockIoctl => "landlock-ioctl",
        Layer::LandlockScope => "landlock-scope",
        Layer::Seccomp => "seccomp",
        Layer::SeccompNotify => "seccomp-notify",
        Layer::MemoryLimit => "memory-limit",
        Layer::PidsLimit => "pids-limit",
        Layer::CpusLimit => "cpus-limit",
        Layer::DiskLimit => "disk-limit",
        Layer::Protect => "protect",
        Layer::Deny => "deny",
        Layer::PrivateDirectories => "private-directories",
        Layer::Metadata => "metadata",
    }
}
