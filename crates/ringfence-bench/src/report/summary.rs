//! A group's raw samples, as rows of estimates.

use crate::model::{Better, Group, Measure};
use crate::stats::{self, Estimate};
use fastrand::Rng;

/// A baseline below this many times the clock's noise says nothing as a divisor.
const NOISES: f64 = 100.0;

/// One metric of one workload, in every lane.
pub struct Row {
    /// What was done.
    pub workload: String,
    /// What was measured.
    pub metric: String,
    /// In what unit.
    pub unit: String,
    /// Which way is good.
    pub better: Better,
    /// The lanes' values.
    pub cells: Vec<Cell>,
}

/// One lane's value in a row.
pub struct Cell {
    /// The lane.
    pub lane: String,
    /// The median and its interval; nothing when the lane failed.
    pub value: Option<Estimate>,
    /// How it compares to its baseline, and whether that comparison was left out for noise.
    pub factor: Factor,
    /// How many samples.
    pub count: usize,
    /// Why there is no value.
    pub error: String,
}

/// A comparison with a baseline.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Factor {
    /// This lane is the baseline, or has none.
    None,
    /// The baseline is too close to the clock's noise to divide by.
    Noise,
    /// So many times the baseline.
    Of(Estimate),
}

/// The rows of a group. The numbers are the same each time, for the same samples.
#[must_use]
pub fn rows(group: &Group, clock_noise_ns: f64) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for measure in &group.measures {
        let same =
            |row: &&mut Row| row.workload == measure.workload && row.metric == measure.metric;
        let cell = cell(group, measure, clock_noise_ns);
        if let Some(row) = rows.iter_mut().find(same) {
            row.cells.push(cell);
        } else {
            rows.push(Row {
                workload: measure.workload.clone(),
                metric: measure.metric.clone(),
                unit: measure.unit.clone(),
                better: measure.better,
                cells: vec![cell],
            });
        }
    }
    rows
}

fn cell(group: &Group, measure: &Measure, clock_noise_ns: f64) -> Cell {
    let mut rng = Rng::with_seed(1);
    let value = (!measure.samples.is_empty()).then(|| stats::estimate(&measure.samples, &mut rng));
    Cell {
        lane: measure.lane.clone(),
        value,
        factor: factor(group, measure, clock_noise_ns, &mut rng),
        count: measure.samples.len(),
        error: measure.error.clone(),
    }
}

/// How a measure compares to its baseline.
pub fn factor(group: &Group, measure: &Measure, clock_noise_ns: f64, rng: &mut Rng) -> Factor {
    let Some(base) = group.baseline_of(measure).filter(|_| !measure.samples.is_empty()) else {
        return Factor::None;
    };
    if !carries(base, clock_noise_ns) {
        return Factor::Noise;
    }
    stats::factor(&base.samples, &measure.samples, rng).map_or(Factor::Noise, Factor::Of)
}

/// Whether a baseline is long enough, beside the clock's noise, to be divided by.
#[must_use]
pub fn carries(base: &Measure, clock_noise_ns: f64) -> bool {
    let scale = match base.unit.as_str() {
        "ms" => 1e6,
        "µs" => 1e3,
        _ => f64::INFINITY, // not a time: the clock's noise is in it only divided by much work
    };
    stats::median(&base.samples) * scale >= NOISES * clock_noise_ns
}

/// The lanes of some rows, in the order of their first appearance.
#[must_use]
pub fn lanes(rows: &[Row]) -> Vec<String> {
    let mut lanes: Vec<String> = Vec::new();
    for cell in rows.iter().flat_map(|row| &row.cells) {
        if !lanes.contains(&cell.lane) {
            lanes.push(cell.lane.clone());
        }
    }
    lanes
}

impl Row {
    /// The cell of a lane.
    #[must_use]
    pub fn cell(&self, lane: &str) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.lane == lane)
    }

    /// What the row is called.
    #[must_use]
    pub fn title(&self) -> String {
        match self.metric.as_str() {
            "wall" | "cold" => self.workload.clone(),
            metric => format!("{}: {metric}", self.workload),
        }
    }
}

/// A number with three significant digits.
#[must_use]
pub fn number(value: f64) -> String {
    let size = value.abs();
    if size >= 10_000.0 {
        return grouped(value.round());
    }
    let digits = match size {
        0.0 => 0,
        _ if size >= 100.0 => 0,
        _ if size >= 10.0 => 1,
        _ if size >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

/// A whole number with commas between its thousands.
fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) && !text.ends_with('-') {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A comparison in words: `×2.31` for times, `97.5 %` for rates.
#[must_use]
pub fn compared(factor: Factor, better: Better) -> String {
    match (factor, better) {
        (Factor::None, _) => String::new(),
        (Factor::Noise, _) => "baseline within noise".into(),
        (Factor::Of(of), Better::Lower) => format!("×{}", number(of.value)),
        (Factor::Of(of), Better::Higher) => format!("{} %", number(of.value * 100.0)),
    }
}

/// The interval of a comparison: `2.28–2.35`.
#[must_use]
pub fn interval(factor: Factor, better: Better) -> String {
    let Factor::Of(of) = factor else { return String::new() };
    let scale = if better == Better::Lower { 1.0 } else { 100.0 };
    if of.low == of.high {
        return String::new();
    }
    format!("{}–{}", number(of.low * scale), number(of.high * scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measure(lane: &str, baseline: &str, samples: &[f64]) -> Measure {
        Measure {
            workload: "true".into(),
            lane: lane.into(),
            metric: "wall".into(),
            unit: "ms".into(),
            better: Better::Lower,
            baseline: baseline.into(),
            samples: samples.to_vec(),
            error: String::new(),
        }
    }

    #[test]
    fn a_factor_is_suppressed_when_its_baseline_is_within_the_clocks_noise() {
        let mut group = Group::new("start", "");
        group.measures = vec![measure("bare", "", &[0.001; 5]), measure("box", "bare", &[0.5; 5])];
        let rows_noisy = rows(&group, 50.0);
        assert_eq!(rows_noisy[0].cells[1].factor, Factor::Noise);
        let rows_quiet = rows(&group, 5.0);
        assert!(
            matches!(rows_quiet[0].cells[1].factor, Factor::Of(of) if (of.value - 500.0).abs() < 1e-6)
        );
    }

    #[test]
    fn a_failed_lane_has_no_value_and_no_factor() {
        let mut group = Group::new("start", "");
        let failed = Measure { error: "exit code 1".into(), ..measure("box", "bare", &[]) };
        group.measures = vec![measure("bare", "", &[1.0; 5]), failed];
        let cell = &rows(&group, 1.0)[0].cells[1];
        assert!(cell.value.is_none() && cell.factor == Factor::None && cell.error == "exit code 1");
    }

    #[test]
    fn numbers_have_three_significant_digits() {
        let shown = [0.7312, 2.345, 76.91, 612.3, 12_345.6].map(number);
        assert_eq!(shown, ["0.731", "2.35", "76.9", "612", "12,346"]);
    }
}
