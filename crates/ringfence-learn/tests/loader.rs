//! The dynamic loader itself as the oracle: what it says it would load is what we find.
//! (`LD_TRACE_LOADED_OBJECTS`; in tests only: discovery never runs anything.)
#![allow(clippy::disallowed_macros, reason = "whoever runs it reads what it says")]
#![allow(missing_docs, clippy::unwrap_used)]

mod oracle;

use oracle::{loader, ours, told};
use ringfence_learn::closure::{Finder, Surroundings};
use ringfence_learn::host::Host;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn files(directory: &Path, deep: bool, found: &mut Vec<PathBuf>) {
    let Ok(entries) = directory.read_dir() else { return };
    for entry in entries.flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_file() {
            found.push(entry.path());
        } else if deep && kind.is_dir() {
            files(&entry.path(), deep, found);
        }
    }
}

/// Compares for every ELF file; how many there were, and where the answers differ.
fn compare(directory: &str, deep: bool) -> (usize, Vec<String>) {
    let loader = loader();
    let machine = {
        let mut looked = |_: &Path, _| {};
        let host = Host::new(&mut looked);
        let mut finder = Finder::new(&host, Surroundings::default());
        finder.object(&loader).unwrap().machine
    };
    let mut paths = Vec::new();
    files(Path::new(directory), deep, &mut paths);
    paths.sort();
    let half = paths.len().div_ceil(2).max(1);
    let judge = |paths: &[PathBuf]| {
        let mut looked = |_: &Path, _| {};
        let host = Host::new(&mut looked);
        let mut finder = Finder::new(&host, Surroundings::default());
        let (mut count, mut wrong) = (0, Vec::new());
        for path in paths {
            if finder.object(path).is_none_or(|object| object.machine != machine) {
                continue;
            }
            let Some(found) = ours(&mut finder, &loader, path) else { continue };
            let Some((theirs, missing)) = told(&loader, path, &[]) else { continue };
            count += 1;
            let all: BTreeSet<_> = found.paths.union(&found.variants).cloned().collect();
            let extra = found.paths.difference(&theirs).count();
            if !theirs.is_subset(&all) || extra > found.variants.len() || missing != found.missing {
                let lacking: Vec<_> = theirs.difference(&all).collect();
                let extra: Vec<_> = found.paths.difference(&theirs).collect();
                let path = path.display();
                let names = (&missing, &found.missing);
                wrong.push(format!(
                    "{path}: lacking {lacking:?}, extra {extra:?}, missing {names:?}"
                ));
            }
        }
        (count, wrong)
    };
    std::thread::scope(|scope| {
        let parts: Vec<_> =
            paths.chunks(half).map(|part| scope.spawn(move || judge(part))).collect();
        parts.into_iter().map(|part| part.join().unwrap()).fold((0, Vec::new()), |mut sum, part| {
            sum.0 += part.0;
            sum.1.extend(part.1);
            sum
        })
    })
}

#[test]
fn every_program_of_this_machine_is_found_what_its_loader_finds() {
    let (count, wrong) = compare("/usr/bin", false);
    eprintln!("{count} programs compared, {} differ", wrong.len());
    assert!(count > 50, "{count} programs: too few to say anything");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
#[ignore = "a process for each library of the machine: half a minute"]
fn every_library_of_this_machine_is_found_what_its_loader_finds() {
    let (count, wrong) = compare("/usr/lib", true);
    eprintln!("{count} objects compared, {} differ", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
