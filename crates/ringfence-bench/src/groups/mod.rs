//! The groups of measurements.

mod apps;
mod connections;
mod disk;
mod dns;
mod escape;
mod fork;
mod http;
mod ledger;
mod parts;
mod profile;
mod rootfs;
mod scale;
mod service;
mod snapshot;
mod start;
mod startup;
mod storage;
mod throughput;
mod vm;

use crate::bench::Bench;
use crate::error::Error;
use crate::model::{Group, State};
use std::time::Instant;

/// Why a group gives nothing.
pub enum Stop {
    /// What it measures is not there.
    Unavailable(String),
    /// It should have worked, and did not.
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error)
    }
}

/// What a group's function answers.
pub type Outcome = Result<(), Stop>;

/// One group.
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// What it measures, for the help.
    pub summary: &'static str,
    /// What it does, for the report.
    pub method: &'static str,
    /// About how many seconds it takes: in full, and quick.
    pub seconds: (f64, f64),
    /// Measures.
    pub run: fn(&mut Bench, &mut Group) -> Outcome,
}

/// Every group.
pub const ALL: &[Entry] = &[
    start::ENTRY,
    parts::ENTRY,
    profile::ENTRY,
    disk::ENTRY,
    rootfs::ENTRY,
    startup::ENTRY,
    http::ENTRY,
    throughput::ENTRY,
    connections::ENTRY,
    dns::ENTRY,
    snapshot::ENTRY,
    fork::ENTRY,
    ledger::ENTRY,
    storage::ENTRY,
    service::ENTRY,
    apps::ENTRY,
    scale::ENTRY,
    vm::ENTRY,
    escape::ENTRY,
];

/// The group of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Entry> {
    ALL.iter().find(|entry| entry.name == name)
}

impl Entry {
    /// How long it takes, by what was asked for.
    #[must_use]
    pub fn weight(&self, quick: bool) -> f64 {
        if quick { self.seconds.1 } else { self.seconds.0 }
    }

    /// Measures, and says what came of it.
    pub fn measure(&self, bench: &mut Bench) -> Group {
        let mut group = Group::new(self.name, self.method);
        bench.progress.group(self.name, self.weight(bench.options.quick));
        let began = Instant::now();
        let outcome = (self.run)(bench, &mut group);
        group.seconds = (began.elapsed().as_secs_f64() * 1000.0).round() / 1000.0;
        match outcome {
            Ok(()) => {}
            Err(Stop::Unavailable(reason)) => {
                (group.state, group.reason) = (State::Unavailable, reason)
            }
            Err(Stop::Failed(error)) => {
                (group.state, group.reason) = (State::Failed, error.to_string())
            }
        }
        group
    }
}

/// Says that a group needs a program that is not here.
fn need(name: &str) -> Result<std::path::PathBuf, Stop> {
    crate::work::find(name).ok_or_else(|| Stop::Unavailable(format!("`{name}` is not installed")))
}
