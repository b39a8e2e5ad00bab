//! `bench compare`: did anything change between two results, surely and noticeably?
//!
//! Two runs of the same build never give the same numbers. Some things keep that from looking like a
//! change:
//!
//! - Measures with a baseline are compared by their factor over it, taken in pairs within each run:
//!   what the machine does differently from one hour to the next cancels.
//! - What has not changed between the two runs (the floor, peers of the same version, the baseline)
//!   is not judged but serves as a **control**: as far as it moved, the others may have moved as well.
//! - The interval's confidence allows for the number of measures compared (Bonferroni), so that the
//!   chance of one false alarm *in the whole comparison* is under 5 %.
//! - What happens on the way of every launch is in every workload of a lane, so a lane's workloads are
//!   judged together as well: that shows a change that each alone is too noisy to show.
//! - Other work on the machine, which each run looks for while it measures, widens every interval.
//! - A change must exceed a smallest size.

use crate::error::Result;
use crate::model::{Better, Group, Measure, Run};
use crate::report::summary::{carries, number};
use crate::stats::{self, Change, Estimate};
use fastrand::Rng;
use serde::Serialize;
use std::fmt::Write;
use std::path::Path;

/// The chance of a false alarm in a whole comparison.
pub const ALARM: f64 = 0.05;
/// Changes smaller than this share are not reported.
pub const SMALLEST: f64 = 0.05;
/// By how much the factors of two runs of one build differ at least, beyond what their samples show.
const FACTORS: f64 = 0.02;
/// The same for values that have no baseline: the machine's own drift is in them.
const VALUES: f64 = 0.05;
/// How much of other work's share of the processors the factors may move by: what was seen between
/// runs of one build on a machine that was busy with compilers.
const DISTURBANCE: f64 = 0.3;
/// Controls are few: what they show is taken this much larger.
const CAUTION: f64 = 1.25;

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
    /// It is the same program in both runs: what moved is the machine.
    Control,
}

/// One measure in both results.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Which measure: `group/workload/metric/lane`.
    pub key: String,
    /// What was compared: the `factor` over the baseline, the `value` itself, or the factors of all
    /// workloads `together`.
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
    /// By what share a factor may differ between two such runs of one build: from the controls, and
    /// from the other work there was.
    pub uncertainty: f64,
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

/// A measure in both runs.
struct Pair {
    key: String,
    /// What it is judged together with.
    together: String,
    better: Better,
    control: bool,
    by: &'static str,
    before: Vec<f64>,
    after: Vec<f64>,
}

/// The pairs' factors when the measure has a baseline that can carry them, else its own samples.
fn series(group: &Group, measure: &Measure, noise: f64) -> (&'static str, Vec<f64>) {
    let usable = |base: &&Measure| {
        carries(base, noise)
            && base.samples.iter().all(|sample| *sample > 0.0)
            && base.samples.len() == measure.samples.len()
            && base.samples.len() >= stats::FEWEST
    };
    match group.baseline_of(measure).filter(usable) {
        Some(base) => ("factor", stats::ratios(&base.samples, &measure.samples)),
        None => ("value", measure.samples.clone()),
    }
}

/// Compares two results.
#[must_use]
pub fn compare(before: &Run, after: &Run) -> Comparison {
    let (pairs, unmatched) = matched(before, after);
    let mut rng = Rng::with_seed(1);
    let changes: Vec<_> =
        pairs.iter().map(|pair| stats::change(&pair.before, &pair.after, &mut rng)).collect();
    let pools = pools(&pairs, &changes);
    let judged = pairs.iter().filter(|pair| !pair.control).count() + pools.len();
    let level = 1.0 - ALARM / judged.max(1) as f64;
    let moved = |by| moved(&pairs, by) * CAUTION;
    let disturbed = before.host.other_work.max(after.host.other_work) * DISTURBANCE;
    let factors = moved("factor").max(FACTORS).max(disturbed);
    let values = moved("value").max(VALUES).max(disturbed);
    let between = |by| if by == "factor" { factors } else { values };
    let judge = |(pair, change): (&Pair, &Option<Change>)| {
        judge(pair, change.map(|change| change.estimate(level, between(pair.by))))
    };
    let mut lines: Vec<Line> = pairs.iter().zip(&changes).map(judge).collect();
    lines.extend(pools.into_iter().map(|pool| {
        let estimate = pool.change.estimate(level, factors);
        let verdict = verdict(estimate, pool.better);
        let Estimate { value, low, high } = estimate;
        let (key, before, after) = (pool.key, 1.0, value);
        Line { key, by: "together", before, after, change: value, low, high, verdict }
    }));
    Comparison {
        schema: crate::model::SCHEMA,
        lines,
        uncertainty: factors,
        unmatched,
        warnings: doubts(before, after),
    }
}

/// The measures of both runs, and what is in one only.
fn matched(before: &Run, after: &Run) -> (Vec<Pair>, Vec<String>) {
    let (mut pairs, mut unmatched) = (Vec::new(), Vec::new());
    for (group, measure) in before.measures() {
        let key = measure.key(&group.name);
        let other = after.measures().find(|(group, measure)| measure.key(&group.name) == key);
        match other {
            Some((other_group, other)) if measure.error.is_empty() && other.error.is_empty() => {
                let mut a = series(group, measure, before.host.clock_noise_ns);
                let mut b = series(other_group, other, after.host.clock_noise_ns);
                if a.0 != b.0 {
                    (a, b) = (("value", measure.samples.clone()), ("value", other.samples.clone()));
                }
                let control = is_control(group, measure, before, after);
                let better = measure.better;
                let lane = &measure.lane;
                let together = format!("{}/all workloads/{}/{lane}", group.name, measure.metric);
                let (by, before, after) = (a.0, a.1, b.1);
                pairs.push(Pair { key, together, better, control, by, before, after });
            }
            Some((_, other)) if other.error.is_empty() => {
                unmatched.push(format!("{key}: failed before"))
            }
            Some((_, other)) => unmatched.push(format!("{key}: fails now: {}", other.error)),
            None => unmatched.push(format!("{key}: only in the earlier result")),
        }
    }
    let keys: Vec<String> = before.measures().map(|(group, m)| m.key(&group.name)).collect();
    let new = after.measures().map(|(group, measure)| measure.key(&group.name));
    unmatched.extend(
        new.filter(|key| !keys.contains(key)).map(|key| format!("{key}: only in the later result")),
    );
    (pairs, unmatched)
}

/// Whether the same program was measured in both runs: another lane's baseline, the floor, or a peer
/// of the same version.
fn is_control(group: &Group, measure: &Measure, before: &Run, after: &Run) -> bool {
    let is_baseline = group.measures.iter().any(|other| {
        other.baseline == measure.lane
            && other.workload == measure.workload
            && other.metric == measure.metric
    });
    let subject =
        |run: &Run| run.subjects.iter().find(|subject| subject.name == measure.lane).cloned();
    let is_peer = crate::peers::ALL.iter().any(|peer| peer.name == measure.lane);
    let same_peer = is_peer && subject(before).is_some() && subject(before) == subject(after);
    is_baseline || same_peer || measure.lane == crate::lanes::FLOOR
}

/// The root mean square of the controls' changes, in logarithms.
fn moved(pairs: &[Pair], by: &str) -> f64 {
    let enough = |pair: &&Pair| {
        pair.control
            && pair.by == by
            && pair.before.len() >= stats::FEWEST
            && pair.after.len() >= stats::FEWEST
    };
    let changes: Vec<f64> = pairs
        .iter()
        .filter(enough)
        .map(|pair| (stats::median(&pair.after) / stats::median(&pair.before)).ln().powi(2))
        .filter(|change| change.is_finite())
        .collect();
    if changes.is_empty() { 0.0 } else { stats::mean(&changes).sqrt() }
}

/// A lane's workloads, judged together.
struct Pool {
    key: String,
    better: Better,
    change: Change,
}

/// The fewest workloads that are judged together.
const POOL: usize = 3;

/// Puts the factors of one lane's workloads together, by group and metric.
fn pools(pairs: &[Pair], changes: &[Option<Change>]) -> Vec<Pool> {
    let mut found: Vec<(String, Better, Vec<Change>)> = Vec::new();
    for (pair, change) in pairs.iter().zip(changes) {
        let (Some(change), "factor", false) = (change, pair.by, pair.control) else { continue };
        match found.iter_mut().find(|(key, _, _)| *key == pair.together) {
            Some((_, _, changes)) => changes.push(*change),
            None => found.push((pair.together.clone(), pair.better, vec![*change])),
        }
    }
    found
        .into_iter()
        .filter(|(_, _, changes)| changes.len() >= POOL)
        .filter_map(|(key, better, changes)| {
            Some(Pool { key, better, change: Change::mean(&changes)? })
        })
        .collect()
}

fn judge(pair: &Pair, change: Option<Estimate>) -> Line {
    let (before, after) = (stats::median(&pair.before), stats::median(&pair.after));
    let (change, verdict) = match change {
        Some(change) if pair.control => (change, Verdict::Control),
        Some(change) => (change, verdict(change, pair.better)),
        None => {
            let value = after / before;
            (Estimate { value, low: f64::NAN, high: f64::NAN }, Verdict::Unsure)
        }
    };
    let Estimate { value, low, high } = change;
    Line { key: pair.key.clone(), by: pair.by, before, after, change: value, low, high, verdict }
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
        let (worse, better) = (self.count(Verdict::Worse), self.count(Verdict::Better));
        for (verdict, title) in [(Verdict::Worse, "worse: "), (Verdict::Better, "better: ")] {
            self.list(&mut out, title, verdict);
        }
        if all {
            self.list(&mut out, "", Verdict::Same);
            self.list(&mut out, "", Verdict::Unsure);
            self.list(&mut out, "control: ", Verdict::Control);
        }
        for text in &self.unmatched {
            let _ = writeln!(out, "not compared: {text}");
        }
        let unsure = self.count(Verdict::Unsure);
        let judged = self.lines.len() - unsure - self.count(Verdict::Control);
        if worse + better == 0 {
            let _ = writeln!(out, "no difference seen in {judged} measures");
        } else {
            let _ = writeln!(out, "{worse} worse, {better} better, of {judged} measures");
        }
        if self.uncertainty > 2.0 * FACTORS {
            let share = self.uncertainty * 100.0;
            let _ = writeln!(
                out,
                "the machine was unsteady: runs of one build may differ by {share:.0} % here, and only \
                 changes well above that can be told"
            );
        }
        if unsure > 0 {
            let _ = writeln!(out, "{unsure} measures have too few samples to tell");
        }
        out
    }

    fn list(&self, out: &mut String, title: &str, verdict: Verdict) {
        for line in self.lines.iter().filter(|line| line.verdict == verdict) {
            let _ = writeln!(out, "{title}{}", line.text());
        }
    }
}

impl Line {
    fn text(&self) -> String {
        let Line { key, by, before, after, change, low, high, verdict } = self;
        let by = if *by == "value" { "" } else { " × its baseline" };
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
