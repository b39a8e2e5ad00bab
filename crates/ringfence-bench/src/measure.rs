//! A whole measurement: make ready, run the groups, write the result.

use crate::bench::Bench;
use crate::error::{Error, Result, error};
use crate::lanes::{Kind, Lane};
use crate::model::{PROGRAM, Run, SCHEMA, State, Subject};
use crate::options::Options;
use crate::progress::Progress;
use crate::work::Work;
use crate::{groups, guard, host, report, time};
use std::path::{Path, PathBuf};

/// Measures; answers the exit code: 0, or 1 when something failed that should have been measured.
pub fn run(mut options: Options, command: Vec<String>, exe: PathBuf) -> Result<i32> {
    let exe = std::fs::canonicalize(&exe).map_err(|cause| {
        error!("bench: cannot find the binary to measure, {}: {cause}", exe.display())
    })?;
    for (name, path) in &options.also {
        if !path.is_file() {
            return Err(error!("bench: --also {name}: {} is not a file", path.display()));
        }
    }
    // All that can be wrong with the input is found out before anything is measured.
    options.out = writable(&options.out)?;
    let work = Work::create(options.work.as_deref())?;
    let root = work.root.clone();
    guard::supervise(&root, move || match measure(options, command, exe, work) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("ringfence: {error}");
            125
        }
    })
}

/// Makes the folder for the results, and proves that files can be made there.
fn writable(dir: &Path) -> Result<PathBuf> {
    std::fs::create_dir_all(dir).map_err(|cause| Error::file("make", dir, cause))?;
    let dir = std::fs::canonicalize(dir).map_err(|cause| Error::file("open", dir, cause))?;
    let probe = dir.join(format!(".ringfence-bench-{}", std::process::id()));
    std::fs::File::create(&probe).map_err(|cause| Error::file("write in", &dir, cause))?;
    let _ = std::fs::remove_file(&probe);
    Ok(dir)
}

fn measure(options: Options, command: Vec<String>, exe: PathBuf, work: Work) -> Result<i32> {
    let host = host::facts(&work.space);
    let warnings = host::warnings(&host);
    if options.strict && host::unfit(&host) {
        return Err(error!(
            "bench: this machine is unfit to measure on now: {}",
            warnings.join("; ")
        ));
    }
    for warning in &warnings {
        eprintln!("ringfence: bench: {warning}");
    }
    let this =
        std::env::current_exe().map_err(|cause| error!("cannot find this program: {cause}"))?;
    work.fill(&this)?;
    let entries: Vec<_> = options.groups.iter().filter_map(|name| groups::find(name)).collect();
    let weights: Vec<f64> = entries.iter().map(|entry| entry.weight(options.quick)).collect();
    let progress = Progress::new(&weights);
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    let options = Options { seed: Some(seed), ..options };
    let mut bench = Bench::new(options, exe, work, progress)?;
    let subjects = subjects(&mut bench);
    let mut result = Run {
        schema: SCHEMA,
        program: PROGRAM.into(),
        version: env!("CARGO_PKG_VERSION").into(),
        recorded: time::now(),
        command,
        quick: bench.options.quick,
        seed,
        host,
        subjects,
        warnings,
        groups: Vec::new(),
    };
    for entry in entries {
        let group = entry.measure(&mut bench);
        result.groups.push(group);
    }
    bench.progress.finish();
    result.host.other_work = bench.lookout.share();
    if result.host.other_work > host::DISTURBED {
        let share = result.host.other_work * 100.0;
        result.warnings.push(format!(
            "other work took {share:.0} % of the processors while this was measured: the numbers are disturbed"
        ));
    }
    result.warnings.extend(bench.absent.iter().map(|text| format!("left out: {text}")));
    let files = report::write(&result, &bench.options.out)?;
    if bench.options.json {
        crate::print(&result.to_json())?;
    } else {
        crate::print(&report::terminal::text(&result))?;
        crate::print(&format!("\nwritten: {}\n", files.html.display()))?;
    }
    let failed = result.groups.iter().any(|group| group.state == State::Failed);
    Ok(i32::from(failed))
}

/// The programs that are measured, with what they say of their versions.
fn subjects(bench: &mut Bench) -> Vec<Subject> {
    let mut found: Vec<Subject> = Vec::new();
    for lane in bench.lanes() {
        let (name, exe, args) = match &lane {
            Lane { name, kind: Kind::Ringfence { exe, .. } } => (name, exe, &["--version"][..]),
            Lane { name, kind: Kind::Peer { peer, exe } } => (name, exe, peer.version),
            _ => continue,
        };
        let mut line = vec![exe.clone().into()];
        line.extend(args.iter().map(std::ffi::OsString::from));
        let said = bench.plain(&line).and_then(|command| bench.run(&command, true));
        let said = said.map(|ran| String::from_utf8_lossy(&ran.stdout).into_owned());
        let version =
            said.ok().and_then(|text| text.lines().next().map(|line| line.trim().to_owned()));
        found.push(Subject {
            name: name.clone(),
            version: crate::bench::shortened(&version.unwrap_or_default(), 80),
            bytes: std::fs::metadata(exe).map_or(0, |meta| meta.len()),
        });
    }
    found
}
