//! Taking samples: all lanes of a workload in every round, in a fresh random order.
//!
//! Rounds make pairs: sample *n* of each lane was taken within the same short while, so that a drift
//! of the machine (frequency, neighbours, caches) touches all lanes alike and cancels in the ratio.
//! The random order keeps any lane from always running after the same other one.

use crate::bench::Bench;
use crate::error::Result;
use crate::model::{Better, Group, Measure};
use crate::sys::process::Prepared;
use std::time::{Duration, Instant};

/// One number that a run gave.
#[derive(Clone, Debug)]
pub struct Reading {
    /// What it is.
    pub metric: String,
    /// In what unit.
    pub unit: String,
    /// Which way is good.
    pub better: Better,
    /// How much.
    pub value: f64,
}

impl Reading {
    /// A reading.
    pub fn new(metric: &str, unit: &str, better: Better, value: f64) -> Reading {
        Reading { metric: metric.into(), unit: unit.into(), better, value }
    }

    /// A time in milliseconds.
    #[must_use]
    pub fn millis(metric: &str, time: Duration) -> Reading {
        Reading::new(metric, "ms", Better::Lower, time.as_nanos() as f64 / 1e6)
    }
}

/// What one lane does in a round.
type Action<'a> = Box<dyn FnMut(&mut Bench) -> Result<Vec<Reading>> + 'a>;

/// One lane of a workload.
pub struct Trial<'a> {
    lane: String,
    baseline: String,
    action: Action<'a>,
}

impl<'a> Trial<'a> {
    /// A lane that is held against lane `baseline` (empty for the baseline itself).
    pub fn new(
        lane: &str,
        baseline: &str,
        action: impl FnMut(&mut Bench) -> Result<Vec<Reading>> + 'a,
    ) -> Trial<'a> {
        let baseline = if baseline == lane { "" } else { baseline };
        Trial { lane: lane.into(), baseline: baseline.into(), action: Box::new(action) }
    }

    /// A lane whose reading is how long a command takes.
    #[must_use]
    pub fn wall(lane: &str, baseline: &str, command: Result<Prepared>) -> Trial<'a> {
        Trial::wall_of(lane, baseline, command, 1, "wall")
    }

    /// The same for a command that does one thing `times` times: the reading is of one.
    #[must_use]
    pub fn wall_of(
        lane: &str,
        baseline: &str,
        command: Result<Prepared>,
        times: u32,
        metric: &'static str,
    ) -> Trial<'a> {
        Trial::new(lane, baseline, move |bench| {
            let command = command.as_ref().map_err(Clone::clone)?;
            Ok(vec![Reading::millis(metric, bench.run(command, false)?.wall / times)])
        })
    }
}

/// How many rounds to take.
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    /// No fewer than this, whatever it takes.
    pub fewest: usize,
    /// No more than this.
    pub most: usize,
    /// Between the two, as many as fit this time.
    pub budget: Duration,
    /// Rounds whose samples are thrown away, to fill caches.
    pub warm_up: usize,
}

impl Rounds {
    /// The rounds of a workload of short commands.
    #[must_use]
    pub fn short(bench: &Bench) -> Rounds {
        if bench.options.quick {
            Rounds { fewest: 10, most: 80, budget: Duration::from_secs(4), warm_up: 2 }
        } else {
            Rounds { fewest: 20, most: 150, budget: Duration::from_secs(12), warm_up: 3 }
        }
    }

    /// The rounds of a workload that takes seconds.
    #[must_use]
    pub fn long(bench: &Bench) -> Rounds {
        if bench.options.quick {
            Rounds { fewest: 2, most: 3, budget: Duration::from_secs(8), warm_up: 0 }
        } else {
            Rounds { fewest: 5, most: 9, budget: Duration::from_secs(40), warm_up: 1 }
        }
    }

    /// How many rounds fit, when one takes `round`.
    #[must_use]
    fn fitting(&self, round: Duration) -> usize {
        let fit = self.budget.as_secs_f64() / round.as_secs_f64().max(1e-6);
        (fit as usize).clamp(self.fewest.min(self.most), self.most)
    }
}

/// A workload: the same thing done in several lanes.
pub struct Workload<'a> {
    /// Its name.
    pub name: String,
    /// Its lanes.
    pub trials: Vec<Trial<'a>>,
    /// How often.
    pub rounds: Rounds,
}

/// In how many portions the rounds of several workloads are taken: spread over the whole time of the
/// group, so that a slow minute of the machine touches a portion of each and not all of one.
const PASSES: usize = 5;

/// Runs one workload and adds what its lanes gave to `group`.
///
/// A lane that fails once is out: its samples are dropped and the reason stands in their place.
pub fn interleave(
    bench: &mut Bench,
    group: &mut Group,
    workload: &str,
    trials: Vec<Trial<'_>>,
    rounds: Rounds,
) {
    let name = workload.into();
    take(bench, group, vec![Workload { name, trials, rounds }], 1);
}

/// Runs several workloads in turns, each in portions. The first round of each portion is thrown away: it
/// fills the caches that the other workloads have emptied.
pub fn interleave_all(bench: &mut Bench, group: &mut Group, workloads: Vec<Workload<'_>>) {
    bench.progress.workloads(PASSES * workloads.len());
    take(bench, group, workloads, PASSES);
}

fn take(bench: &mut Bench, group: &mut Group, workloads: Vec<Workload<'_>>, passes: usize) {
    let mut running: Vec<(String, Rounds, usize, Vec<Running<'_>>)> = workloads
        .into_iter()
        .map(|Workload { name, trials, rounds }| {
            (name, rounds, 0, trials.into_iter().map(Running::new).collect())
        })
        .collect();
    for pass in 0..passes {
        bench.lookout.look();
        for (name, rounds, count, lanes) in &mut running {
            let warm_up = if pass == 0 { rounds.warm_up } else { 1 };
            for _ in 0..warm_up {
                round(bench, lanes, name, false);
            }
            let mut done = 0;
            if pass == 0 {
                let began = Instant::now();
                round(bench, lanes, name, true);
                let first = began.elapsed();
                *count = bench.options.runs.unwrap_or_else(|| rounds.fitting(first));
                done = 1;
            }
            let portion = *count * (pass + 1) / passes - *count * pass / passes;
            while done < portion {
                bench.progress.within(done as f64 / portion as f64);
                round(bench, lanes, name, true);
                done += 1;
            }
            if passes > 1 {
                bench.progress.next();
            }
        }
    }
    for (name, _, _, lanes) in running {
        for lane in lanes {
            group.measures.extend(lane.into_measures(&name));
        }
    }
}

/// One lane on its way.
struct Running<'a> {
    trial: Trial<'a>,
    readings: Vec<Vec<Reading>>,
    error: Option<String>,
}

impl<'a> Running<'a> {
    fn new(trial: Trial<'a>) -> Running<'a> {
        Running { trial, readings: Vec::new(), error: None }
    }

    /// Turns rounds of readings into one series for each metric.
    fn into_measures(self, workload: &str) -> Vec<Measure> {
        let Trial { lane, baseline, .. } = self.trial;
        let measure = |metric: &str, unit: &str, better, samples, error| Measure {
            workload: workload.into(),
            lane: lane.clone(),
            metric: metric.into(),
            unit: unit.into(),
            better,
            baseline: baseline.clone(),
            samples,
            error,
        };
        if let Some(error) = self.error {
            return vec![measure("wall", "ms", Better::Lower, Vec::new(), error)];
        }
        let Some(first) = self.readings.first() else { return Vec::new() };
        let series = |reading: &Reading| -> Vec<f64> {
            let of_round = |round: &Vec<Reading>| {
                round
                    .iter()
                    .find(|other| other.metric == reading.metric)
                    .map(|other| rounded(other.value))
            };
            self.readings.iter().filter_map(of_round).collect()
        };
        first
            .iter()
            .map(|r| measure(&r.metric, &r.unit, r.better, series(r), String::new()))
            .collect()
    }
}

/// A value to a millionth: finer than any clock here, and the same after a trip through JSON.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

fn round(bench: &mut Bench, lanes: &mut [Running<'_>], workload: &str, keep: bool) {
    let mut order: Vec<usize> = (0..lanes.len()).filter(|&at| lanes[at].error.is_none()).collect();
    bench.rng.shuffle(&mut order);
    for at in order {
        let lane = &mut lanes[at];
        bench.progress.show(&format!("{workload} · {}", lane.trial.lane));
        match (lane.trial.action)(bench) {
            Ok(readings) if keep => lane.readings.push(readings),
            Ok(_) => {}
            Err(cause) => {
                lane.readings.clear();
                lane.error = Some(cause.to_string());
            }
        }
    }
}
