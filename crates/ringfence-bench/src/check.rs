//! `bench check`: gates, as ratios, with an exit code.

use crate::compare::{self, Verdict};
use crate::error::{Result, error};
use crate::model::{Better, Run};
use crate::report;
use crate::report::summary::number;
use crate::stats;
use fastrand::Rng;
use std::fmt::Write;
use std::path::Path;

/// Judges a result: 0 when every gate holds, 1 when one does not.
pub fn run(result: &Path, baseline: Option<&Path>, limit: f64, gates: &[String]) -> Result<i32> {
    let gates: Vec<Gate> = gates.iter().map(|text| Gate::parse(text)).collect::<Result<_>>()?;
    let result = report::open(result)?;
    let mut out = String::new();
    let mut failed = 0;
    if let Some(baseline) = baseline {
        failed += against(&mut out, &report::open(baseline)?, &result, limit);
    }
    for gate in &gates {
        failed += usize::from(!gate.holds(&mut out, &result)?);
    }
    let _ = writeln!(
        out,
        "{}",
        if failed == 0 { "passed".into() } else { format!("failed: {failed}") }
    );
    crate::print(&out)?;
    Ok(i32::from(failed > 0))
}

/// Holds a result against an earlier one; answers how many measures are too much worse.
fn against(out: &mut String, baseline: &Run, result: &Run, limit: f64) -> usize {
    let comparison = compare::compare(baseline, result);
    let mut failed = 0;
    for line in &comparison.lines {
        let better = direction(result, &line.key);
        let (worst, surely) = match better {
            Better::Lower => (line.change, line.low),
            Better::Higher => (1.0 / line.change, 1.0 / line.high),
        };
        // An escape that was closed has one sample and no interval: any change of it counts.
        let opened = line.key.contains("/stopped/") && line.after < line.before;
        let too_much = line.verdict == Verdict::Worse && worst > limit && surely > 1.0;
        if opened || too_much {
            failed += 1;
            let _ = writeln!(
                out,
                "FAIL {}: {} → {}, {:.2} times worse; the limit is {limit}",
                line.key,
                number(line.before),
                number(line.after),
                worst
            );
        }
    }
    let broken = comparison.unmatched.iter().filter(|text| text.contains(": fails now: "));
    for text in broken {
        failed += 1;
        let _ = writeln!(out, "FAIL {text}");
    }
    let aside = comparison.count(Verdict::Unsure) + comparison.count(Verdict::Control);
    let judged = comparison.lines.len() - aside;
    let _ = writeln!(out, "{judged} measures held against the baseline, limit {limit}");
    failed
}

/// Which way a measure is good. What is judged together has factors of times: lower is better.
fn direction(run: &Run, key: &str) -> Better {
    let found = run.measures().find(|(group, measure)| measure.key(&group.name) == key);
    found.map_or(Better::Lower, |(_, measure)| measure.better)
}

/// A goal: one lane at most (or at least) so many times another.
#[derive(Debug, PartialEq)]
struct Gate {
    group: String,
    workload: String,
    metric: String,
    lane: String,
    at_most: bool,
    times: f64,
    other: String,
}

impl Gate {
    /// Reads `GROUP/WORKLOAD/METRIC: LANE <= N x LANE` (or `>=`).
    fn parse(text: &str) -> Result<Gate> {
        let wrong = || {
            error!(
                "bench: a gate is 'GROUP/WORKLOAD/METRIC: LANE <= N x LANE' (or >=), which `{text}` is not"
            )
        };
        let (place, rule) = text.split_once(": ").ok_or_else(wrong)?;
        let mut place = place.splitn(3, '/').map(str::trim);
        let mut next = || place.next().filter(|part| !part.is_empty()).ok_or_else(wrong);
        let (group, workload, metric) = (next()?, next()?, next()?);
        let (lane, rest, at_most) = match (rule.split_once("<="), rule.split_once(">=")) {
            (Some((lane, rest)), None) => (lane, rest, true),
            (None, Some((lane, rest))) => (lane, rest, false),
            _ => return Err(wrong()),
        };
        let (times, other) = rest.trim().split_once(" x ").ok_or_else(wrong)?;
        let times: f64 = times.trim().parse().map_err(|_| wrong())?;
        if !(times.is_finite() && times > 0.0) {
            return Err(wrong());
        }
        Ok(Gate {
            group: group.into(),
            workload: workload.into(),
            metric: metric.into(),
            lane: lane.trim().into(),
            at_most,
            times,
            other: other.trim().into(),
        })
    }

    /// Whether the result keeps it; a gate on something that was not measured does not hold.
    fn holds(&self, out: &mut String, run: &Run) -> Result<bool> {
        let Gate { group, workload, metric, lane, at_most, times, other } = self;
        let samples = |lane: &str| {
            let found = run.measures().find(|(g, m)| {
                g.name == *group && m.workload == *workload && m.metric == *metric && m.lane == lane
            });
            found.map(|(_, measure)| measure.samples.as_slice()).unwrap_or_default()
        };
        let name = format!("{group}/{workload}/{metric}: {lane}");
        let Some(ratio) = stats::factor(samples(other), samples(lane), &mut Rng::with_seed(1))
        else {
            let _ = writeln!(out, "FAIL {name}: this, or {other}, was not measured");
            return Ok(false);
        };
        let holds = if *at_most { ratio.value <= *times } else { ratio.value >= *times };
        let (word, sign) = (if holds { "ok  " } else { "FAIL" }, if *at_most { "≤" } else { "≥" });
        let _ = writeln!(
            out,
            "{word} {name} is {} × {other} ({}–{}); goal {sign} {times}",
            number(ratio.value),
            number(ratio.low),
            number(ratio.high)
        );
        Ok(holds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_is_read() {
        let gate = Gate::parse("start/true/wall: ringfence namespace <= 4.5 x unsandboxed")
            .expect("a gate");
        assert_eq!(
            (gate.group.as_str(), gate.workload.as_str(), gate.metric.as_str()),
            ("start", "true", "wall")
        );
        assert_eq!(
            (gate.lane.as_str(), gate.other.as_str()),
            ("ringfence namespace", "unsandboxed")
        );
        assert!(gate.at_most && (gate.times - 4.5).abs() < f64::EPSILON);
    }

    #[test]
    fn what_is_no_gate_is_refused_with_the_form() {
        for text in [
            "",
            "start/true: a <= 1 x b",
            "start/true/wall: a < 1 x b",
            "start/true/wall: a <= x x b",
        ] {
            let said = Gate::parse(text).expect_err(text).to_string();
            assert!(said.contains("LANE <= N x LANE"), "{said}");
        }
    }
}
