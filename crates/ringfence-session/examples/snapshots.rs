//! Measures the operations on snapshots in one process, as the gateway does them: the median
//! in milliseconds, and in brackets that of the processor's time.
//!
//! `cargo run --release -p ringfence-session --example snapshots -- DIRECTORY [FILES]`
#![allow(clippy::unwrap_used)]

use ringfence_session::snapshot::{New, Options, Select, Store};
use std::path::PathBuf;
use std::time::Instant;

fn main() {
    let mut args = std::env::args_os().skip(1);
    let top = PathBuf::from(args.next().expect("a new directory to work in"));
    let given = args.next().map(|count| count.to_string_lossy().parse().unwrap());
    let counts = given.map_or(vec![10, 100, 500], |count: usize| vec![count]);
    for count in counts {
        let work = top.join(format!("work{count}"));
        for number in 0..count {
            let directory =
                if count > 1000 { work.join(format!("{}", number % 1000)) } else { work.clone() };
            if number < 1000 {
                std::fs::create_dir_all(&directory).unwrap();
            }
            let mut page = [0; 4096];
            blake3::Hasher::new().update(&number.to_le_bytes()).finalize_xof().fill(&mut page);
            std::fs::write(directory.join(format!("file{number}")), page).unwrap();
        }
        measure(count, &work, top.join(format!("store{count}")));
    }
}

fn measure(count: usize, work: &std::path::Path, directory: PathBuf) {
    let options = Options { directory: Some(directory), ..Options::default() };
    let mut store = Store::open(work, options).unwrap();
    let begin = (Instant::now(), processor());
    let first = store.create(&New::default()).unwrap().snapshot;
    let cold = (begin.0.elapsed().as_secs_f64() * 1e3, processor() - begin.1);
    store.delete(&first).unwrap();
    let changed = (count / 1000).max(1);
    let file = |number: usize| match count > 1000 {
        true => work.join(format!("{}/file{number}", number % 1000)),
        false => work.join(format!("file{number}")),
    };
    let rounds = if count > 1000 { 11 } else { 101 };
    let mut times: Vec<Vec<(f64, f64)>> = vec![Vec::new(); 5];
    for round in 0..rounds {
        let mut timed = |at: usize, begin: (Instant, f64)| {
            times[at].push((begin.0.elapsed().as_secs_f64() * 1e3, processor() - begin.1));
        };
        let begin = (Instant::now(), processor());
        let made = store.create(&New::default()).unwrap().snapshot;
        timed(0, begin);
        let begin = (Instant::now(), processor());
        store.list().unwrap();
        timed(1, begin);
        for number in 0..changed {
            std::fs::write(file(number), [round as u8; 4096]).unwrap();
        }
        std::fs::remove_file(file(count - 1)).unwrap();
        std::fs::write(work.join("added"), "new").unwrap();
        let begin = (Instant::now(), processor());
        let found = store.changes(&made, None, &Select::default()).unwrap();
        timed(2, begin);
        assert_eq!(found.len(), changed + 2);
        let begin = (Instant::now(), processor());
        store.revert(&made, &Select::default()).unwrap();
        timed(3, begin);
        for number in 0..changed {
            std::fs::write(file(number), [!round as u8; 4096]).unwrap();
        }
        let begin = (Instant::now(), processor());
        store.delete(&made).unwrap();
        timed(4, begin);
    }
    print!("{count} files, {changed} changed: first {:.2} ({:.2}) ms", cold.0, cold.1);
    for (name, times) in ["create", "list", "changes", "revert", "delete"].iter().zip(&mut times) {
        let middle = |mut all: Vec<f64>| {
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        let (wall, cpu) = times.drain(..).unzip();
        print!(", {name} {:.2} ({:.2})", middle(wall), middle(cpu));
    }
    println!();
}

/// Processor time of this process, in milliseconds: what a loaded machine does not change.
fn processor() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}
