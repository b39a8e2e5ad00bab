//! How long it takes to find the libraries of all programs that a system has.

use crate::bench::Bench;
use crate::error::{Result, error};
use crate::interleave::{Reading, Rounds, Trial, interleave};
use crate::model::Group;
use ringfence_learn::closure::{Finder, Surroundings};
use ringfence_learn::host::Host;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Where most programs are.
const PROGRAMS: &str = "/usr/bin";

/// Measures it.
///
/// # Errors
/// A sentence: there are none.
pub fn measure(bench: &mut Bench, group: &mut Group) -> Result<()> {
    let entries = std::fs::read_dir(PROGRAMS).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.sort();
    let (programs, objects) = scan(&files);
    if programs == 0 {
        return Err(error!("no ELF program in {PROGRAMS}"));
    }
    group.notes.push(format!(
        "{PROGRAMS}: {programs} ELF programs, {objects} objects loaded by them in all"
    ));
    let trial = Trial::new("library", "", move |_| {
        let began = Instant::now();
        scan(&files);
        Ok(vec![Reading::millis("wall", began.elapsed())])
    });
    let rounds = Rounds { most: 40, ..Rounds::short(bench) };
    interleave(bench, group, "closures of all of /usr/bin", vec![trial], rounds);
    Ok(())
}

/// How many of these are ELF programs, and how many objects these load.
fn scan(files: &[PathBuf]) -> (usize, usize) {
    let mut looked = |_: &Path, _| {};
    let host = Host::new(&mut looked);
    let mut finder = Finder::new(&host, Surroundings::default());
    let closures = files.iter().filter_map(|file| finder.closure(file));
    closures.fold((0, 0), |(programs, objects), closure| {
        (programs + 1, objects + closure.objects.len())
    })
}
