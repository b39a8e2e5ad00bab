//! Group `start`: what it costs to begin.

use super::{Entry, Outcome};
use crate::background::{Holder, Server};
use crate::bench::Bench;
use crate::error::{Result, error};
use crate::interleave::{Rounds, Trial, interleave};
use crate::lanes::{BARE, Kind, Lane};
use crate::model::Group;
use crate::work::find;
use std::ffi::OsString;

pub const ENTRY: Entry = Entry {
    name: "start",
    summary: "starting programs: cold, warm, many in one sandbox, beside every peer found",
    method: "Wall time from clone to the last process's end of one whole command, no shell in between. \
             Every round runs each lane once, in a fresh random order; the factor is the median of the \
             rounds' ratios to the unsandboxed lane. `floor` is a bare program making the kernel calls of a \
             namespace launch. `inside` workloads start N programs within one sandbox and show the time of \
             one; `exec` workloads start one in a sandbox that lives already.",
    seconds: (200.0, 40.0),
    run,
};

/// A command that is started in every lane.
struct Work {
    name: &'static str,
    program: &'static str,
    args: &'static [&'static str],
    /// What it must print, or else it did not run.
    prints: Option<&'static str>,
    quick: bool,
}

const WORKS: [Work; 8] = [
    Work { name: "true", program: "true", args: &[], prints: None, quick: true },
    Work { name: "echo", program: "echo", args: &["hello"], prints: Some("hello\n"), quick: true },
    Work { name: "python", program: "python3", args: &["-c", "pass"], prints: None, quick: true },
    Work { name: "node", program: "node", args: &["-e", ""], prints: None, quick: false },
    Work {
        name: "git status",
        program: "git",
        args: &["status", "--porcelain"],
        prints: Some(""),
        quick: true,
    },
    Work {
        name: "rg",
        program: "rg",
        args: &["-n", "package", "-S", "."],
        prints: None,
        quick: false,
    },
    Work {
        name: "file write",
        program: "cp",
        args: &["in.txt", "out.txt"],
        prints: None,
        quick: true,
    },
    Work {
        name: "file read",
        program: "cat",
        args: &["in.txt"],
        prints: Some("test\n"),
        quick: true,
    },
];

fn run(bench: &mut Bench, group: &mut Group) -> Outcome {
    if let Some(git) = find("git") {
        bench.work.make_repository(&git)?;
    }
    let quick = bench.options.quick;
    let works: Vec<&Work> = WORKS.iter().filter(|work| work.quick || !quick).collect();
    bench.progress.workloads(works.len() + if quick { 3 } else { 9 });
    for work in works {
        cold(bench, group, work)?;
        bench.progress.next();
    }
    inside(bench, group, "inside: 10 × true", "true", &[], 10)?;
    if !quick {
        inside(bench, group, "inside: 100 × true", "true", &[], 100)?;
        inside(bench, group, "inside: 10 × git status", "git", &["status", "--porcelain"], 10)?;
    }
    for (program, args) in [("true", &[][..]), ("python3", &["-c", "pass"])] {
        if program == "true" || !quick {
            warm(bench, group, program, args)?;
        }
    }
    if quick {
        return Ok(());
    }
    variant(bench, group, "monitor", &["--monitor"])?;
    let denied = deny_options();
    variant(
        bench,
        group,
        "deny 8 programs",
        &denied.iter().map(String::as_str).collect::<Vec<_>>(),
    )?;
    filtered(bench, group)?;
    Ok(())
}

/// One command, once per sandbox.
fn cold(bench: &mut Bench, group: &mut Group, work: &Work) -> Result<()> {
    let Some(program) = find(work.program) else {
        group.notes.push(format!("{}: `{}` is not installed", work.name, work.program));
        return Ok(());
    };
    let argv = line(&program, work.args);
    let mut lanes = bench.lanes();
    if work.program == "true" {
        lanes.insert(1, Lane::floor());
    }
    let mut trials = Vec::new();
    for lane in lanes {
        let command = proven(bench, &lane, &argv, &[], work.prints);
        trials.push(Trial::wall(&lane.name, BARE, command));
    }
    let rounds = Rounds::short(bench);
    interleave(bench, group, work.name, trials, rounds);
    Ok(())
}

fn line(program: &std::path::Path, args: &[&str]) -> Vec<OsString> {
    std::iter::once(program.into()).chain(args.iter().map(OsString::from)).collect()
}

/// A command that was run once and did print what it should: a sandbox in which nothing runs must
/// not pass for a fast one.
fn proven(
    bench: &mut Bench,
    lane: &Lane,
    argv: &[OsString],
    options: &[&str],
    prints: Option<&str>,
) -> Result<crate::sys::process::Prepared> {
    let command = bench.command(lane, argv, options)?;
    let ran = bench.run(&command, true)?;
    match prints {
        Some(expected) if ran.stdout != expected.as_bytes() => {
            let got = String::from_utf8_lossy(&ran.stdout);
            Err(error!("it printed {:?}, not {expected:?}", crate::bench::shortened(&got, 60)))
        }
        _ => Ok(command),
    }
}

/// Many commands in one sandbox, each a process of its own.
fn inside(
    bench: &mut Bench,
    group: &mut Group,
    name: &str,
    program: &str,
    args: &[&str],
    times: u32,
) -> Result<()> {
    let Some(program) = find(program) else { return Ok(()) };
    let mut argv = bench.tool("repeat", &[times.to_string().as_ref()]);
    argv.extend(line(&program, args));
    let mut trials = Vec::new();
    for lane in bench.lanes() {
        let command = proven(bench, &lane, &argv, &[], None);
        trials.push(Trial::wall_of(&lane.name, BARE, command, times, "wall of one"));
    }
    let rounds = Rounds::short(bench);
    interleave(bench, group, name, trials, rounds);
    bench.progress.next();
    Ok(())
}

/// A command in a sandbox that lives already.
fn warm(bench: &mut Bench, group: &mut Group, program: &str, args: &[&str]) -> Result<()> {
    let name = format!("exec {program}");
    if let Err(reason) = bench.has("exec") {
        group.notes.push(format!("{name}: {reason}"));
        return Ok(());
    }
    let Some(program) = find(program) else { return Ok(()) };
    let argv = line(&program, args);
    let mut holders = Vec::new();
    let bare = bench.command(&Lane::bare(), &argv, &[]);
    let mut trials = vec![Trial::wall(BARE, BARE, bare)];
    for (number, lane) in bench.ringfence.clone().iter().enumerate() {
        let Kind::Ringfence { exe, .. } = &lane.kind else { continue };
        let session = format!("bench{}-{number}", std::process::id());
        let command = Holder::start(bench, lane, &["--name", &session]).and_then(|holder| {
            holders.push(holder);
            let mut line: Vec<OsString> =
                vec![exe.into(), "exec".into(), session.into(), "--".into()];
            line.extend(argv.iter().cloned());
            bench.plain(&line)
        });
        trials.push(Trial::wall(&lane.name, BARE, command));
    }
    let rounds = Rounds::short(bench);
    interleave(bench, group, &name, trials, rounds);
    bench.progress.next();
    Ok(())
}

/// `true` under ringfence with further options, against `true` without a sandbox.
fn variant(bench: &mut Bench, group: &mut Group, name: &str, options: &[&str]) -> Result<()> {
    let Some(program) = find("true") else { return Ok(()) };
    let argv = line(&program, &[]);
    let bare = bench.command(&Lane::bare(), &argv, &[]);
    let mut trials = vec![Trial::wall(BARE, BARE, bare)];
    for lane in bench.ringfence.clone() {
        let command = proven(bench, &lane, &argv, options, None);
        trials.push(Trial::wall(&lane.name, BARE, command));
    }
    let rounds = Rounds::short(bench);
    interleave(bench, group, name, trials, rounds);
    bench.progress.next();
    Ok(())
}

/// The programs that Fence's benchmark of this name denies, where they exist.
fn deny_options() -> Vec<String> {
    let names = ["curl", "wget", "nc", "ssh", "ls", "cat", "cp", "mv"];
    let paths = names.iter().filter_map(|name| find(name));
    paths.flat_map(|path| ["--deny".into(), path.to_string_lossy().into_owned()]).collect()
}

/// `curl` from a local server, through the filter.
fn filtered(bench: &mut Bench, group: &mut Group) -> Result<()> {
    let Some(curl) = find("curl") else {
        group.notes.push("curl: `curl` is not installed".into());
        return Ok(());
    };
    let server = Server::start(bench, "serve", &[])?;
    let url = format!("http://localhost:{}/json", server.port);
    let argv = line(&curl, &["-sSf", "--noproxy", "*", &url]);
    let allow = format!("localhost:{}", server.port);
    let body = Some(crate::tool::serve::JSON);
    let bare = proven(bench, &Lane::bare(), &argv, &[], body);
    let mut trials = vec![Trial::wall(BARE, BARE, bare)];
    for lane in bench.ringfence.clone() {
        let command = proven(bench, &lane, &argv, &["--allow-host", &allow], body);
        trials.push(Trial::wall(&lane.name, BARE, command));
    }
    let rounds = Rounds::short(bench);
    interleave(bench, group, "curl, filtered", trials, rounds);
    bench.progress.next();
    Ok(())
}
