//! Group `apps`: programs with exactly the libraries that they need.

mod bus;
mod learn;
mod scan;

use super::{Entry, Outcome, Stop};
use crate::bench::Bench;
use crate::cold::Files;
use crate::error::{Error, Result, error};
use crate::interleave::{Reading, Rounds, Trial, interleave};
use crate::lanes::{BARE, Lane};
use crate::model::Group;
use crate::work::{find, find_any};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const ENTRY: Entry = Entry {
    name: "apps",
    summary: "exact library sets: hot, cold, cold from disk, refreshed; small and browser-sized programs; a session bus; \
              all of /usr/bin; learning",
    method: "`run --libs exact`. hot: the set is cached. cold: ringfence's cache is empty. cold from disk: and the \
             cached pages of all files the program opens are dropped. refresh: the program's file has changed \
             since the set was cached. The library trees are made by the bench with the C compiler: each library \
             needs two others, like those of desktop programs. Give other builds (debug, PGO) by --also. With [dbus]: the profile grants a name of the session bus, and \
             the command does not connect. closures of all of /usr/bin: the library's functions, in this process, from nothing each \
             time. learn: the same work outside, in a run, and under `learn`, which watches it.",
    seconds: (180.0, 40.0),
    run,
};

/// The made programs: how many libraries, and what has as many.
const TREES: [(usize, &str); 3] = [(60, "GTK-sized"), (100, "Qt-sized"), (160, "Chromium-sized")];

fn run(bench: &mut Bench, group: &mut Group) -> Outcome {
    let main = bench.main_lane()?;
    let tried = find("true").ok_or_else(|| error!("`true` is not installed")).and_then(|program| {
        let command = bench.command(&main, &[program.into()], &["--libs", "exact"])?;
        bench.run(&command, false)
    });
    if let Err(cause) = tried {
        return Err(Stop::Unavailable(format!(
            "not available in this build (`run --libs exact`: {cause})"
        )));
    }
    let mut programs: Vec<(String, Vec<OsString>)> = Vec::new();
    for (name, program, args) in [
        ("sh", "sh", &["-c", "exit"][..]),
        ("git", "git", &["--version"]),
        ("python", "python3", &["-c", "pass"]),
        ("a CLI daemon (redis-server)", "redis-server", &["--version"]),
        ("Chromium", "chromium", &["--version"]),
    ] {
        // Distributions start Chromium by a script of theirs.
        let script = || (program == "chromium").then(|| find_any(program)).flatten();
        if let Some(path) = find(program).or_else(script) {
            let line = std::iter::once(path.into()).chain(args.iter().map(OsString::from));
            programs.push((name.into(), line.collect()));
        }
    }
    bench.progress.show("building library trees");
    match trees(bench) {
        Ok(built) => programs.extend(built),
        Err(cause) => group.notes.push(format!("library trees: {cause}")),
    }
    bench.progress.workloads(programs.len() + 3);
    for (name, argv) in programs {
        program(bench, group, &name, &argv)?;
        bench.progress.next();
    }
    if let Err(cause) = bus::measure(bench, group) {
        group.notes.push(format!("session bus: {cause}"));
    }
    bench.progress.next();
    if let Err(cause) = scan::measure(bench, group) {
        group.notes.push(format!("closures: {cause}"));
    }
    bench.progress.next();
    if let Err(cause) = learn::measure(bench, group) {
        group.notes.push(format!("learn: {cause}"));
    }
    bench.progress.next();
    Ok(())
}

/// One program in all states of the caches.
fn program(bench: &mut Bench, group: &mut Group, name: &str, argv: &[OsString]) -> Result<()> {
    let files = Files::of(bench, argv)?;
    let (files, exact) = (&files, ["--libs", "exact"]);
    // The one that changes is another program: those of the other lanes stay as they were cached.
    let own = argv.first().map(PathBuf::from).filter(|path| path.starts_with(&bench.work.space));
    let own = own.map(|path| copy_beside(&path)).transpose()?;
    let bare = bench.command(&Lane::bare(), argv, &[]);
    let mut trials = vec![Trial::wall(BARE, BARE, bare)];
    for lane in bench.ringfence.clone() {
        let named = |state: &str| format!("{}, {state}", lane.name);
        trials.push(Trial::wall(&named("all libraries"), BARE, bench.command(&lane, argv, &[])));
        let hot = bench.command(&lane, argv, &exact);
        trials.push(Trial::wall(&named("hot"), BARE, hot));
        let line = lane.wrap(&bench.work, argv, &exact.map(OsString::from))?;
        for (state, from_disk) in [("cold", false), ("cold from disk", true)] {
            let line = line.clone();
            trials.push(Trial::new(&named(state), BARE, move |bench| {
                let cache = bench.work.fresh("cold-cache")?;
                let command = bench.plain_with(&line, &[("XDG_CACHE_HOME", cache.as_os_str())])?;
                if from_disk {
                    files.drop_cached();
                }
                Ok(vec![Reading::millis("wall", bench.run(&command, false)?.wall)])
            }));
        }
        if let Some(own) = own.clone() {
            let changed = std::iter::once(own.clone().into()).chain(argv[1..].iter().cloned());
            let changed: Vec<OsString> = changed.collect();
            let line = lane.wrap(&bench.work, &changed, &exact.map(OsString::from))?;
            trials.push(Trial::new(&named("refresh"), BARE, move |bench| {
                let command = bench.plain(&line)?;
                bench.run(&command, false)?;
                touch(&own)?;
                Ok(vec![Reading::millis("wall", bench.run(&command, false)?.wall)])
            }));
        }
    }
    let rounds = Rounds { most: 40, ..Rounds::short(bench) };
    interleave(bench, group, name, trials, rounds);
    Ok(())
}

/// Another program like this one, in its directory, where it finds the same libraries.
fn copy_beside(path: &Path) -> Result<PathBuf> {
    let mut name = path.as_os_str().to_owned();
    name.push("-that-changes");
    let copy = PathBuf::from(name);
    std::fs::copy(path, &copy).map_err(|cause| Error::file("copy", &copy, cause))?;
    Ok(copy)
}

/// Changes a file's time stamps, so that whatever was derived from it is out of date.
fn touch(path: &Path) -> Result<()> {
    let file = std::fs::File::options().write(true).open(path);
    let now = std::time::SystemTime::now();
    file.and_then(|file| file.set_modified(now)).map_err(|cause| Error::file("touch", path, cause))
}

/// Builds the programs with many libraries.
fn trees(bench: &mut Bench) -> Result<Vec<(String, Vec<OsString>)>> {
    let compiler = find("cc").or_else(|| find("gcc")).or_else(|| find("clang"));
    let compiler = compiler.ok_or_else(|| error!("there is no C compiler to build them with"))?;
    let dir = bench.work.space.join(".bench/trees");
    std::fs::create_dir_all(&dir).map_err(|cause| Error::file("make", &dir, cause))?;
    let wanted = if bench.options.quick { &TREES[..1] } else { &TREES[..] };
    let most = wanted.iter().map(|(count, _)| *count).max().unwrap_or(0);
    for number in (1..=most).rev() {
        let below: Vec<usize> =
            [2 * number, 2 * number + 1].into_iter().filter(|n| *n <= most).collect();
        library(&compiler, &dir, number, &below)?;
    }
    wanted
        .iter()
        .map(|(count, name)| {
            let path = main_program(&compiler, &dir, *count)?;
            Ok((format!("{name} ({count} libraries)"), vec![path.into()]))
        })
        .collect()
}

/// One library that needs those of the numbers in `below`.
fn library(compiler: &Path, dir: &Path, number: usize, below: &[usize]) -> Result<()> {
    let calls: String = below.iter().map(|n| format!(" + f{n}()")).collect();
    let heads: String = below.iter().map(|n| format!("int f{n}(void);\n")).collect();
    let text = format!("{heads}int f{number}(void) {{ return {number}{calls}; }}\n");
    let needed = below.iter().map(|n| format!("-lbench{n}")).collect::<Vec<_>>();
    let shared = ["-shared".to_owned(), "-fPIC".to_owned()];
    compile(compiler, dir, &text, &format!("libbench{number}.so"), shared.into_iter().chain(needed))
}

/// A program that needs the libraries up to `count`.
fn main_program(compiler: &Path, dir: &Path, count: usize) -> Result<PathBuf> {
    let heads: String = (1..=count).map(|n| format!("int f{n}(void);\n")).collect();
    let calls: String = (1..=count).map(|n| format!(" + f{n}()")).collect();
    let text = format!("{heads}int main(void) {{ return (0{calls}) == 0; }}\n");
    let name = format!("app{count}");
    compile(compiler, dir, &text, &name, (1..=count).map(|n| format!("-lbench{n}")))?;
    Ok(dir.join(name))
}

fn compile(
    compiler: &Path,
    dir: &Path,
    text: &str,
    name: &str,
    options: impl Iterator<Item = String>,
) -> Result<()> {
    crate::work::write(&dir.join("source.c"), text.as_bytes())?;
    let out = Command::new(compiler)
        .current_dir(dir)
        .args(["source.c", "-o", name, "-L.", "-Wl,-rpath,$ORIGIN", "-Wl,--no-as-needed"])
        .args(options.collect::<Vec<_>>())
        .stdin(std::process::Stdio::null())
        .output()
        .map_err(|cause| Error::file("run", compiler, cause))?;
    let said = String::from_utf8_lossy(&out.stderr);
    let first = said.lines().next().unwrap_or_default();
    if out.status.success() { Ok(()) } else { Err(error!("the C compiler failed: {first}")) }
}
