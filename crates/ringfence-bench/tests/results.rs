//! Result files, and what is told from two of them.

use fastrand::Rng;
use proptest::prelude::*;
use ringfence_bench::compare::{Verdict, compare};
use ringfence_bench::model::{Better, Group, Host, Measure, PROGRAM, Run, SCHEMA, Subject, Table};
use ringfence_bench::report;
use std::path::{Path, PathBuf};

/// A directory that goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let dir = std::env::temp_dir()
            .join(format!("ringfence-bench-test-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a temporary directory");
        Scratch(dir)
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("a file");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn measure(workload: &str, lane: &str, baseline: &str, samples: Vec<f64>) -> Measure {
    Measure {
        workload: workload.into(),
        lane: lane.into(),
        metric: "wall".into(),
        unit: "ms".into(),
        better: Better::Lower,
        baseline: baseline.into(),
        samples,
        error: String::new(),
    }
}

fn run_of(measures: Vec<Measure>) -> Run {
    let mut group = Group::new("start", "a method");
    group.measures = measures;
    Run {
        schema: SCHEMA,
        program: PROGRAM.into(),
        version: "0".into(),
        recorded: "2026-01-31T12:34:56Z".into(),
        command: vec!["start".into()],
        quick: true,
        seed: 1,
        host: Host { cpus: 2, clock_noise_ns: 30.0, arch: "x86_64".into(), ..Host::default() },
        subjects: vec![Subject { name: "ringfence".into(), version: "1".into(), bytes: 9 }],
        warnings: vec!["a <warning>".into()],
        groups: vec![group],
    }
}

/// A run in which `workloads` programs take about `cost` times the baseline, on a machine that is
/// `machine` times as slow as another.
fn synthetic(rng: &mut Rng, workloads: usize, cost: f64, machine: f64) -> Run {
    let mut measures = Vec::new();
    for number in 0..workloads {
        let base: Vec<f64> = (0..40).map(|_| machine * (1.0 + spread(rng))).collect();
        let lane = base.iter().map(|base| base * cost * (1.0 + spread(rng))).collect();
        let name = format!("work {number}");
        measures.push(measure(&name, "unsandboxed", "", base));
        measures.push(measure(&name, "ringfence namespace", "unsandboxed", lane));
    }
    run_of(measures)
}

/// Skewed noise with an occasional outlier, as times of programs have.
fn spread(rng: &mut Rng) -> f64 {
    let outlier = if rng.f64() < 0.02 { 0.8 } else { 0.0 };
    -rng.f64().max(1e-9).ln() * 0.05 + outlier
}

/// The differences seen in ringfence's lanes.
fn alarms(a: &Run, b: &Run) -> usize {
    let comparison = compare(a, b);
    let seen = |verdict| matches!(verdict, Verdict::Better | Verdict::Worse);
    comparison.lines.iter().filter(|line| seen(line.verdict)).count()
}

#[test]
fn two_runs_of_the_same_build_are_the_same() {
    let mut rng = Rng::with_seed(11);
    let wrong = (0..100)
        .filter(|_| {
            let (a, b) = (synthetic(&mut rng, 6, 3.0, 1.0), synthetic(&mut rng, 6, 3.0, 1.0));
            alarms(&a, &b) > 0
        })
        .count();
    assert!(wrong < 5, "{wrong} of 100 comparisons raised a false alarm");
}

#[test]
fn a_millisecond_more_is_caught() {
    let mut rng = Rng::with_seed(12);
    for _ in 0..20 {
        let before = synthetic(&mut rng, 6, 3.0, 1.0);
        let after = synthetic(&mut rng, 6, 4.0, 1.0);
        let comparison = compare(&before, &after);
        // Each of the six, and the six together.
        assert_eq!(comparison.count(Verdict::Worse), 7, "{}", comparison.text(true));
        let back = compare(&after, &before);
        assert_eq!(back.count(Verdict::Better), 7, "{}", back.text(true));
    }
}

#[test]
fn a_slower_machine_is_not_a_slower_sandbox() {
    let mut rng = Rng::with_seed(13);
    let before = synthetic(&mut rng, 6, 3.0, 1.0);
    let after = synthetic(&mut rng, 6, 3.0, 1.7);
    let comparison = compare(&before, &after);
    let ours: Vec<_> =
        comparison.lines.iter().filter(|line| line.key.contains("ringfence")).collect();
    assert!(ours.iter().all(|line| line.verdict == Verdict::Same && line.by != "value"));
}

#[test]
fn higher_is_better_for_rates() {
    let rate = |centre: f64| Measure {
        better: Better::Higher,
        unit: "1/s".into(),
        ..measure("redis", "bare", "", (0..20).map(|at| centre + f64::from(at % 5)).collect())
    };
    let comparison = compare(&run_of(vec![rate(1000.0)]), &run_of(vec![rate(1500.0)]));
    assert_eq!(comparison.count(Verdict::Better), 1, "{}", comparison.text(true));
}

#[test]
fn few_samples_are_said_to_be_few() {
    let one = |value| run_of(vec![measure("w", "l", "", vec![value])]);
    let comparison = compare(&one(1.0), &one(9.0));
    assert_eq!(comparison.count(Verdict::Unsure), 1);
    let text = comparison.text(false);
    assert!(text.contains("no difference seen in 0 measures"), "{text}");
    assert!(text.contains("1 measures have too few samples to tell"), "{text}");
}

#[test]
fn a_lane_that_fails_now_is_named() {
    let failed = Measure { error: "exit code 1".into(), ..measure("w", "l", "", vec![]) };
    let comparison =
        compare(&run_of(vec![measure("w", "l", "", vec![1.0; 9])]), &run_of(vec![failed]));
    assert!(
        comparison.unmatched[0].contains("fails now: exit code 1"),
        "{:?}",
        comparison.unmatched
    );
}

proptest! {
    #[test]
    fn a_result_survives_its_file(samples in prop::collection::vec(0u64..1u64 << 40, 0..40), text in ".{0,30}") {
        let scratch = Scratch::new("trip");
        // Samples are rounded to a millionth when they are taken.
        let samples = samples.into_iter().map(|sample| sample as f64 / 1e6).collect();
        let mut run = run_of(vec![measure(&text, "lane", "", samples)]);
        run.groups[0].tables.push(Table { title: text.clone(), columns: vec![text.clone()], rows: vec![vec![text]] });
        let path = scratch.file("ringfence-bench-x.json", &run.to_json());
        prop_assert_eq!(Run::load(&path).expect("a result"), run);
    }
}

fn refusal(path: &Path) -> String {
    Run::load(path).expect_err("a damaged file").to_string()
}

#[test]
fn a_damaged_result_is_refused_with_its_name_and_the_reason() {
    let scratch = Scratch::new("damaged");
    let good = synthetic(&mut Rng::with_seed(1), 1, 2.0, 1.0).to_json();
    let cut = scratch.file("cut.json", &good[..good.len() / 2]);
    assert!(refusal(&cut).contains("cut.json is not a benchmark result"), "{}", refusal(&cut));
    let other = scratch.file("other.json", "{\"results\": []}");
    assert!(
        refusal(&other).contains("is not a result of `ringfence bench`"),
        "{}",
        refusal(&other)
    );
    let newer = scratch.file("newer.json", &good.replace("\"schema\": 1", "\"schema\": 99"));
    assert!(refusal(&newer).contains("layout 99"), "{}", refusal(&newer));
    let negative =
        scratch.file("negative.json", &run_of(vec![measure("w", "l", "", vec![-1.0])]).to_json());
    assert!(refusal(&negative).contains("start/w/wall/l is negative"), "{}", refusal(&negative));
    let null =
        scratch.file("null.json", &run_of(vec![measure("w", "l", "", vec![f64::NAN])]).to_json());
    assert!(refusal(&null).contains("damaged benchmark result"), "{}", refusal(&null));
    let missing = scratch.0.join("missing.json");
    assert!(refusal(&missing).contains("cannot read"), "{}", refusal(&missing));
}

#[test]
fn a_folder_stands_for_its_newest_result() {
    let scratch = Scratch::new("newest");
    let named = |stamp: &str| Run { recorded: stamp.into(), ..run_of(vec![]) };
    for stamp in ["2026-01-02T00:00:00Z", "2026-03-01T00:00:00Z", "2026-02-01T00:00:00Z"] {
        report::write(&named(stamp), &scratch.0).expect("written");
    }
    let newest = report::open(&scratch.0).expect("a result");
    assert_eq!(newest.recorded, "2026-03-01T00:00:00Z");
    let empty = Scratch::new("empty");
    let said = report::open(&empty.0).expect_err("nothing there").to_string();
    assert!(said.contains("holds no benchmark result"), "{said}");
}

#[test]
fn the_page_needs_nothing_from_elsewhere_and_escapes_what_it_shows() {
    let page = report::html::page(&synthetic(&mut Rng::with_seed(1), 2, 3.0, 1.0));
    assert!(page.contains("<svg") && page.contains("a &lt;warning&gt;"));
    for outside in ["http://", "https://", "<script", "<link", "<img", "url("] {
        assert!(!page.contains(outside), "the page holds {outside}");
    }
}
