//! The result of a run, as it stands in its JSON file.

use crate::error::{Error, Result, error};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The version of the file's layout. Raised when a reader of the old one would misread the new one.
pub const SCHEMA: u32 = 1;
/// What the file's `program` says, by which a result is told from other JSON.
pub const PROGRAM: &str = "ringfence-bench";

/// Everything one run of the bench found out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// [`SCHEMA`].
    pub schema: u32,
    /// [`PROGRAM`].
    pub program: String,
    /// The bench's own version.
    pub version: String,
    /// When it began, in UTC, as `2026-01-31T12:34:56Z`.
    pub recorded: String,
    /// The arguments it was called with.
    pub command: Vec<String>,
    /// Whether `--quick` shortened it.
    pub quick: bool,
    /// The seed of the random order.
    pub seed: u64,
    /// The machine.
    pub host: Host,
    /// What was measured: programs and their versions.
    pub subjects: Vec<Subject>,
    /// What makes this machine, now, a poor place to measure.
    pub warnings: Vec<String>,
    /// The groups, in the order they ran.
    pub groups: Vec<Group>,
}

/// The facts of a machine that a reader needs to judge its numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// The operating system's name, from os-release.
    pub os: String,
    /// The kernel's release.
    pub kernel: String,
    /// The architecture.
    pub arch: String,
    /// The processor's model.
    pub cpu: String,
    /// How many processors this process may use.
    pub cpus: usize,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// The load of the last minute, at the start.
    pub load: f64,
    /// The share of the processors that other work took while this was measured, by looks between runs.
    pub other_work: f64,
    /// The frequency governor; empty when there is none.
    pub governor: String,
    /// What the machine runs under: `kvm`, `hypervisor`, `container`…; empty on bare metal.
    pub virtualised: String,
    /// The clock source of the kernel.
    pub clock: String,
    /// The noise of the clock as measured: the 99th percentile of two readings' distance, in ns.
    pub clock_noise_ns: f64,
    /// The file system that the workspace lies on.
    pub filesystem: String,
    /// Whether hardware counters can be read.
    pub perf: bool,
    /// The effective user.
    pub uid: u32,
}

/// A program that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subject {
    /// Its lane's name.
    pub name: String,
    /// What it says of its version; empty when it says nothing.
    pub version: String,
    /// The size of its file in bytes.
    pub bytes: u64,
}

/// Whether a group ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It ran; single lanes may still have failed.
    Measured,
    /// What it measures does not exist in this build, or on this machine.
    Unavailable,
    /// It should have run, and could not.
    Failed,
}

/// One group's findings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Whether it ran.
    pub state: State,
    /// Why not, when it did not.
    pub reason: String,
    /// What was done, in a sentence or two.
    pub method: String,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// What was found in numbers.
    pub measures: Vec<Measure>,
    /// What was found in words.
    pub tables: Vec<Table>,
    /// Remarks: what was left out, and why.
    pub notes: Vec<String>,
}

/// Which way is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Less is better: times, memory.
    Lower,
    /// More is better: rates, throughput.
    Higher,
}

/// One series of samples: one metric of one workload in one lane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measure {
    /// What was done.
    pub workload: String,
    /// Where: `unsandboxed`, `ringfence namespace`, `bwrap`…
    pub lane: String,
    /// What was measured of it.
    pub metric: String,
    /// The unit of the samples.
    pub unit: String,
    /// Which way is good.
    pub better: Better,
    /// The lane that this one is to be held against; empty for the baseline itself.
    pub baseline: String,
    /// The samples, in the order they were taken. Sample *n* of every lane of a workload belongs to
    /// the same round.
    pub samples: Vec<f64>,
    /// Why there are none, when this lane failed.
    pub error: String,
}

/// A small table of words.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// The names of the columns.
    pub columns: Vec<String>,
    /// The rows, each as long as the columns.
    pub rows: Vec<Vec<String>>,
}

impl Group {
    /// A group that has found nothing yet.
    #[must_use]
    pub fn new(name: &str, method: &str) -> Group {
        Group {
            name: name.into(),
            state: State::Measured,
            reason: String::new(),
            method: method.into(),
            seconds: 0.0,
            measures: Vec::new(),
            tables: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// The series of the lane that `measure` is to be held against.
    #[must_use]
    pub fn baseline_of(&self, measure: &Measure) -> Option<&Measure> {
        if measure.baseline.is_empty() {
            return None;
        }
        self.measures.iter().find(|other| {
            other.lane == measure.baseline
                && other.workload == measure.workload
                && other.metric == measure.metric
                && !other.samples.is_empty()
        })
    }
}

impl Run {
    /// Reads a result from its file.
    ///
    /// # Errors
    /// When the file cannot be read, is no result, is of another layout, or holds impossible values.
    pub fn load(path: &Path) -> Result<Run> {
        let text = std::fs::read(path).map_err(|cause| Error::file("read", path, cause))?;
        let shown = path.display();
        let value: serde_json::Value = serde_json::from_slice(&text)
            .map_err(|cause| error!("{shown} is not a benchmark result: {cause}"))?;
        if value.get("program").and_then(|program| program.as_str()) != Some(PROGRAM) {
            return Err(error!("{shown} is not a result of `ringfence bench`"));
        }
        let schema = value.get("schema").and_then(serde_json::Value::as_u64);
        if schema != Some(SCHEMA.into()) {
            let schema = schema.map_or("none".into(), |schema| schema.to_string());
            return Err(error!("{shown} has layout {schema}; this build reads layout {SCHEMA}"));
        }
        let run: Run = serde_json::from_value(value)
            .map_err(|cause| error!("{shown} is a damaged benchmark result: {cause}"))?;
        for (group, measure) in run.measures() {
            if measure.samples.iter().any(|sample| *sample < 0.0) {
                let name = measure.key(&group.name);
                return Err(error!("{shown} is a damaged benchmark result: {name} is negative"));
            }
        }
        Ok(run)
    }

    /// The result as its file's text.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// Every series, with its group.
    pub fn measures(&self) -> impl Iterator<Item = (&Group, &Measure)> {
        self.groups.iter().flat_map(|group| group.measures.iter().map(move |m| (group, m)))
    }
}

impl Measure {
    /// What identifies this series in every run.
    #[must_use]
    pub fn key(&self, group: &str) -> String {
        format!("{group}/{}/{}/{}", self.workload, self.metric, self.lane)
    }
}
