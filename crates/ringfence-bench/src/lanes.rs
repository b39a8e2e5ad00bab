//! The lanes of a measurement: where a command can run.

use crate::error::{Result, error};
use crate::options::Options;
use crate::peers::{self, Job, Peer};
use crate::work::Work;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A place where a command can run.
#[derive(Clone)]
pub struct Lane {
    /// Its name, as results show it.
    pub name: String,
    /// What it is.
    pub kind: Kind,
}

/// The kinds of lanes.
#[derive(Clone)]
pub enum Kind {
    /// No sandbox: the baseline.
    Bare,
    /// The bare program that makes a launch's kernel calls.
    Floor,
    /// A ringfence binary, in one tier.
    Ringfence {
        /// The binary.
        exe: PathBuf,
        /// The tier.
        tier: String,
    },
    /// An alternative.
    Peer {
        /// How to call it.
        peer: &'static Peer,
        /// Where it is.
        exe: PathBuf,
    },
}

/// The name of the baseline lane.
pub const BARE: &str = "unsandboxed";
/// The name of the floor's lane.
pub const FLOOR: &str = "floor";

impl Lane {
    /// The baseline.
    #[must_use]
    pub fn bare() -> Lane {
        Lane { name: BARE.into(), kind: Kind::Bare }
    }

    /// The floor.
    #[must_use]
    pub fn floor() -> Lane {
        Lane { name: FLOOR.into(), kind: Kind::Floor }
    }

    /// The tier of a lane of ringfence.
    #[must_use]
    pub fn tier(&self) -> Option<&str> {
        match &self.kind {
            Kind::Ringfence { tier, .. } => Some(tier),
            _ => None,
        }
    }

    /// Whether this is a lane of ringfence.
    #[must_use]
    pub fn is_ringfence(&self) -> bool {
        matches!(self.kind, Kind::Ringfence { .. })
    }

    /// Whether this is an alternative's lane.
    #[must_use]
    pub fn is_peer(&self) -> bool {
        matches!(self.kind, Kind::Peer { .. })
    }

    /// The command line that runs `argv` here. `options` are for ringfence's `run` alone.
    pub fn wrap(
        &self,
        work: &Work,
        argv: &[OsString],
        options: &[OsString],
    ) -> Result<Vec<OsString>> {
        let join = |before: Vec<OsString>| before.into_iter().chain(argv.iter().cloned()).collect();
        match &self.kind {
            Kind::Bare => Ok(argv.to_vec()),
            Kind::Floor => Ok(join(vec![work.tool().into(), "bench".into(), "__floor".into()])),
            Kind::Ringfence { exe, tier } => {
                let mut before: Vec<OsString> =
                    vec![exe.into(), "run".into(), "--tier".into(), tier.into()];
                before.extend(options.iter().cloned());
                before.push("--".into());
                Ok(join(before))
            }
            Kind::Peer { peer, exe } => {
                // Each command has settings of its own: some peers keep the command in a file there.
                static COUNT: AtomicU32 = AtomicU32::new(0);
                let number = COUNT.fetch_add(1, Ordering::Relaxed);
                let settings = work.root.join(format!("{}-{number}", peer.name));
                std::fs::create_dir_all(&settings)
                    .map_err(|cause| error!("cannot make {}: {cause}", settings.display()))?;
                (peer.wrap)(&Job { exe, argv, space: &work.space, settings: &settings })
            }
        }
    }
}

/// The lanes of the ringfence binaries: the one under test in each tier, and those of `--also`.
#[must_use]
pub fn ringfence(exe: &Path, options: &Options) -> Vec<Lane> {
    let subjects = std::iter::once(("ringfence", exe))
        .chain(options.also.iter().map(|(name, path)| (name.as_str(), path.as_path())));
    let lane = |name: &str, exe: &Path, tier: &String| Lane {
        name: format!("{name} {tier}"),
        kind: Kind::Ringfence { exe: exe.to_owned(), tier: tier.clone() },
    };
    subjects
        .flat_map(|(name, exe)| options.tiers.iter().map(move |tier| lane(name, exe, tier)))
        .collect()
}

/// The lanes of the alternatives that were asked for and are here, and the names of those that are not.
#[must_use]
pub fn peers(options: &Options) -> (Vec<Lane>, Vec<String>) {
    let (mut lanes, mut missing) = (Vec::new(), Vec::new());
    for peer in peers::ALL {
        let asked = options.against.as_ref().map(|list| list.iter().any(|name| name == peer.name));
        if asked == Some(false) {
            continue;
        }
        match crate::work::find_any(peer.program) {
            Some(exe) => {
                lanes.push(Lane { name: peer.name.into(), kind: Kind::Peer { peer, exe } })
            }
            None if asked.is_some() => missing.push(peer.name.into()),
            None => {}
        }
    }
    (lanes, missing)
}
