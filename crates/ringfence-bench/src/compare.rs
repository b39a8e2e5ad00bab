//! `bench compare`: did anything change between two results, surely and noticeably?
//!
//! Two runs of the same build never give the same numbers. Three things keep that from looking like a
//! change. Measures with a baseline are compared by their factor over it, taken in pairs within each
//! run: what the machine does differently from one hour to the next cancels. The interval of
//! the change is a block bootstrap's, at a confidence raised by the number of measures compared
//! (Bonferroni), so that the chance of one false alarm *in the whole comparison* is under 5 %. And a
//! change must exceed a smallest size that two runs differ by for reasons no sample within a run
//! shows: where memory happened to lie, which core it was.

use crate::error::Result;
use crate::model::{Better, Group, Measure, Run};
use crate::report::summary::{carries, number};
use crate::stats::{self, Estimate};
use fastrand::Rng;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

/// The chance of a false alarm in a whole comparison.
pub const ALARM: f64 = 0.05;
/// By how much two runs of one build differ, as measured (`docs/benchmarking.md`), beyond what
/// their samples show.
pub const BETWEEN: f64 = 0.01;
/// Changes smaller than this share are not reported.
pub const SMALLEST: f64 = 0.04;

/// What became of one measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// No difference is seen.
    Same,
    /// It is better, surely.
    Better,
    /// It is worse, surely.
    Worse,
    /// There are too few samples to say.
    Unsure,
}

/// One measure in both results.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Which measure: `group/workload/metric/lane`.
    pub key: String,
    /// What was compared: `factor` over the baseline, or the `value` itself.
    pub by: &'static str,
    /// The earlier median.
    pub before: f64,
    /// The later median.
    pub after: f64,
    /// How many times the earlier one the later one is.
    pub change: f64,
    /// The low end of the change's interval.
    pub low: f64,
    /// The high end of the change's interval.
    pub high: f64,
    /// What that means.
    pub verdict: Verdict,
}

/// A comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// [`crate::model::SCHEMA`].
    pub schema: u32,
    /// The measures that both results have.
    pub lines: Vec<Line>,
    /// The measures that only one of them has, or that failed in one.
    pub unmatched: Vec<String>,
    /// What makes the comparison doubtful.
    pub warnings: Vec<String>,
}

/// Compares two result files and prints what is different.
pub fn run(before: &Path, after: &Path, json: bool, all: bool) -> Result<i32> {
    let comparison = compare(&crate::report::open(before)?, &crate::report::open(after)?);
    if json {
        let mut text = serde_json::to_string_pretty(&comparison).unwrap_or_default();
        text.push('\n');
        crate::print(&text)?;
    } else {
        crate::print(&comparison.text(all))?;
    }
    Ok(0)
}

/// A measure's series as it is compared.
struct Series {
    by: &'static str,
    values: Vec<f64>,
}

/// The pairs' factors when the measure has a baseline that can carry them, else its own samples.
fn series(group: &Group, measure: &Measure, noise: f64) -> Series {
    if let Some(base) = group.baseline_of(measure).filter(|base| {
        carries(base, noise)
            && base.samples.iter().all(|sample| *sample > 0.0)
            && base.samples.len() == measure.samples.len()
            && base.samples.len() >= stats::FEWEST
    }) {
        return Series { by: "factor", values: stats::ratios(&base.samples, &measure.samples) };
    }
    Series { by: "value", values: measure.samples.clone() }
}

/// Compares two results.
#[must_use]
pub fn compare(before: &Run, after: &Run) -> Comparison {
    let mut pairs = Vec::new();
    let mut unmatched = Vec::new();
    for (group, measure) in before.measures() {
        let key = measure.key(&group.name);
        let other = after.measures().find(|(group, measure)| measure.key(&group.name) == key);
        match other {
            Some((other_group, other)) if measure.error.is_empty() && other.error.is_empty() => {
                let a = series(group, measure, before.host.clock_noise_ns);
                let b = series(other_group, other, after.host.clock_noise_ns);
                pairs.push((key, measure.better, a, b));
            }
            Some((_, other)) if other.error.is_empty() => {
                unmatched.push(format!("{key}: failed before"))
            }
            Some((_, other)) => unmatched.push(format!("{key}: fails now: {}", other.error)),
            None => unmatched.push(format!("{key}: only in the earlier result")),
        }
    }
    let keys: Vec<String> =
        before.measures().map(|(group, measure)| measure.key(&group.name)).collect();
    let new = after.measures().map(|(group, measure)| measure.key(&group.name));
    unmatched.extend(
        new.filter(|key| !keys.contains(key)).map(|key| format!("{key}: only in the later result")),
    );
    let level = 1.0 - ALARM / pairs.len().max(1) as f64;
    let mut rng = Rng::with_seed(1);
    let lines =
        pairs.into_iter().map(|(key, better, a, b)| judge(key, better, &a, &b, level, &mut rng));
    Comparison {
        schema: crate::model::SCHEMA,
        lines: lines.collect(),
        unmatched,
        warnings: doubts(before, after),
    }
}

fn judge(key: String, better: Better, a: &Series, b: &Series, level: f64, rng: &mut Rng) -> Line {
    let (before, after) = (stats::median(&a.values), stats::median(&b.values));
    let change =
        if a.by == b.by { stats::change(&a.values, &b.values, level, BETWEEN, rng) } else { None };
    let (change, verdict) = match change {
        Some(change) => (change, verdict(change, better)),
        None => {
            let value = after / before;
            (Estimate { value, low: f64::NAN, high: f64::NAN }, Verdict::Unsure)
        }
    };
    let Estimate { value, low, high } = change;
    Line { key, by: a.by, before, after, change: value, low, high, verdict }
}

/// What a change means: nothing, unless it is sure and large enough.
#[must_use]
pub fn verdict(change: Estimate, better: Better) -> Verdict {
    let sure = change.low > 1.0 || change.high < 1.0;
    let large = change.value > 1.0 + SMALLEST || change.value < 1.0 / (1.0 + SMALLEST);
    match (sure && large, (change.value > 1.0) == (better == Better::Higher)) {
        (false, _) => Verdict::Same,
        (true, true) => Verdict::Better,
        (true, false) => Verdict::Worse,
    }
}

/// What makes two results hard to compare.
fn doubts(before: &Run, after: &Run) -> Vec<String> {
    let mut found = Vec::new();
    let (a, b) = (&before.host, &after.host);
    for (what, a, b) in [
        ("processors", format!("{} × {}", a.cpus, a.cpu), format!("{} × {}", b.cpus, b.cpu)),
        ("kernels", a.kernel.clone(), b.kernel.clone()),
        ("file systems", a.filesystem.clone(), b.filesystem.clone()),
    ] {
        if a != b {
            found.push(format!("the {what} differ: {a} and {b}"));
        }
    }
    if before.quick != after.quick {
        found.push("one run is --quick and the other is not".into());
    }
    found
}

impl Comparison {
    /// How many measures have this verdict.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        self.lines.iter().filter(|line| line.verdict == verdict).count()
    }

    /// The comparison for people.
    #[must_use]
    pub fn text(&self, all: bool) -> String {
        let mut out = String::new();
        for warning in &self.warnings {
            let _ = writeln!(out, "note: {warning}");
        }
        for (verdict, title) in [(Verdict::Worse, "worse"), (Verdict::Better, "better")] {
            for line in self.lines.iter().filter(|line| line.verdict == verdict) {
                let _ = writeln!(out, "{title}: {}", line.text());
            }
        }
        if all {
            let rest =
                self.lines.iter().filter(|l| matches!(l.verdict, Verdict::Same | Verdict::Unsure));
            for line in rest {
                let _ = writeln!(out, "{}", line.text());
            }
        }
        for text in &self.unmatched {
            let _ = writeln!(out, "not compared: {text}");
        }
        let (worse, better) = (self.count(Verdict::Worse), self.count(Verdict::Better));
        let unsure = self.count(Verdict::Unsure);
        let judged = self.lines.len() - unsure;
        if worse + better == 0 {
            let _ = writeln!(out, "no difference seen in {judged} measures");
        } else {
            let _ = writeln!(out, "{worse} worse, {better} better, of {judged} measures");
        }
        if unsure > 0 {
            let _ = writeln!(out, "{unsure} measures have too few samples to tell");
        }
        out
    }
}

impl Line {
    fn text(&self) -> String {
        let Line { key, by, before, after, change, low, high, verdict } = self;
        let by = if *by == "factor" { " × its baseline" } else { "" };
        let moved = (change - 1.0) * 100.0;
        let interval = match verdict {
            Verdict::Unsure => "too few samples".to_owned(),
            _ => format!("{:+.1} to {:+.1} %", (low - 1.0) * 100.0, (high - 1.0) * 100.0),
        };
        let word = if *verdict == Verdict::Same { "; no difference seen" } else { "" };
        format!(
            "{key}: {} → {}{by} ({moved:+.1} %, {interval}{word})",
            number(*before),
            number(*after)
        )
    }
}
