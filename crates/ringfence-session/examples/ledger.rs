//! Measures how many events a second the ledger takes.
//!
//! `cargo run --release -p ringfence-session --example ledger -- DIRECTORY`
#![allow(clippy::unwrap_used)]

use ringfence_session::ledger::{Ended, Event, Ledger, Process, Start, Verdict};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const EVENTS: u64 = 700_000;

fn main() {
    let sessions = PathBuf::from(std::env::args_os().nth(1).expect("a new directory"));
    let start = |id: &str| Start {
        id: id.into(),
        name: None,
        argv: vec!["true".into()],
        cwd: "/".into(),
        tier: "namespace",
        record: true,
    };
    let mut lives: Vec<f64> = (0..200)
        .map(|round| {
            let begin = Instant::now();
            let ledger = Ledger::start_in(&sessions, start(&format!("s{round}"))).unwrap();
            let begun = begin.elapsed();
            // What `true` takes, within which the file is made.
            std::process::Command::new("/bin/true").status().unwrap();
            let begin = Instant::now();
            ledger.end(Ended::Code(0)).unwrap();
            (begun + begin.elapsed()).as_secs_f64() * 1e3
        })
        .collect();
    lives.sort_by(f64::total_cmp);
    println!(
        "start and end on the launcher's path: p50 {:.3} ms, p95 {:.3} ms",
        lives[100], lives[190]
    );
    let begin = Instant::now();
    let ledger = Ledger::start_in(&sessions, start("many")).unwrap();
    let started = begin.elapsed();
    assert!(ledger.flush(Duration::from_secs(60)));
    let ready = begin.elapsed();
    println!("started in {started:?}, the file is ready after {ready:?}");
    let recorder = ledger.recorder();
    let process = Process::new(1, 0, "/usr/bin/x".into(), &[]);
    let begin = Instant::now();
    for number in 0..EVENTS {
        recorder.record(
            Some(&process),
            &Event::Decision {
                verdict: Verdict::Allow,
                act: "read".into(),
                object: format!("/a/file/of/the/workspace/{number}"),
                rule: ". (profile default, filesystem.write)".into(),
                layer: "landlock".into(),
            },
        );
    }
    let recorded = begin.elapsed();
    assert!(ledger.flush(Duration::from_secs(600)));
    let written = begin.elapsed().as_secs_f64();
    println!(
        "{EVENTS} events: recorded in {:.0} ns each, on disk at {:.0} a second",
        recorded.as_secs_f64() * 1e9 / EVENTS as f64,
        EVENTS as f64 / written
    );
    ledger.end(Ended::Code(0)).unwrap();
}
