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

/// What a machine is like.
pub fn machine(shape: &crate::vm::Shape) -> String {
    let mut words = vec![
        format!("{} MiB of memory", shape.memory >> 20),
        format!("Linux {}", shape.kernel),
        format!("executed by {}", shape.accelerator.name()),
    ];
    // What serves unless it is asked for something else is not said.
    words.extend((!shape.monitor.usual()).then(|| {
        format!("devices by {} ({})", shape.monitor.name(), crate::vm::monitor::VARIABLE)
    }));
    words.extend(shape.processes.map(|count| format!("{count} processes")));
    words.extend(shape.files.map(|count| format!("{count} open files for each process")));
    words.extend(shape.cpus.map(|cpus| format!("{} processors", f64::from(cpus) / 1000.0)));
    words.join(", ")
}
