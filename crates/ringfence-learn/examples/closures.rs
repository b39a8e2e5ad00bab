//! Finds the libraries of every ELF program and library in directories, and says how long it
//! took: `cargo run --release -p ringfence-learn --example closures -- /usr/bin`.

use ringfence_learn::closure::{Finder, Surroundings};
use ringfence_learn::host::Host;
use std::path::Path;
use std::time::Instant;

fn main() {
    let started = Instant::now();
    let mut looked = |_: &Path, _| {};
    let host = Host::new(&mut looked);
    let mut finder = Finder::new(&host, Surroundings::default());
    let (mut programs, mut objects, mut missing) = (0, 0, 0);
    for directory in std::env::args_os().skip(1) {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()) {
            if let Some(closure) = finder.closure(&path) {
                programs += 1;
                objects += closure.objects.len();
                missing += closure.missing.len();
            }
        }
    }
    let took = started.elapsed();
    println!("{programs} programs, {objects} objects, {missing} names missing, {took:?}");
}
