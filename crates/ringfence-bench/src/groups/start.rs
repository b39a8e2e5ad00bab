//! Group `start`: what it costs to begin.

use super::{Entry, Outcome};
use crate::background::{Holder, Server};
use crate::bench::Bench;
use crate::error::{Result, error};
use crate::interleave::{Reading, Rounds, Trial, Workload, interleave_all};
use crate::lanes::{BARE, Kind, Lane};
use crate::mcp::Gateway;
use crate::model::Group;
use crate::work::find;
use std::ffi::OsString;
use std::path::PathBuf;

pub const ENTRY: Entry = Entry {
    name: "start",
    summary: "starting programs: cold, warm, many in one sandbox, beside every peer found",
    method: "Wall time from clone to the last process's end of one whole command, no shell in between. \
             Every round runs each lane once, in a fresh random order; the factor is the median of the \
             rounds' ratios to the unsandboxed lane. `floor` is a bare program making the kernel calls of a \
             namespace launch. `inside` workloads start N programs within one sandbox and show the time of \
             one; `exec` workloads start one in a sandbox that lives already, `over MCP` by a server to which the \
             connection is there.",
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
    let mut plan = Plan { group, works: Vec::new(), holders: Vec::new(), server: None };
    for work in WORKS.iter().filter(|work| work.quick || !quick) {
        plan.cold(bench, work);
    }
    plan.inside(bench, "inside: 10 × true", "true", &[], 10);
    plan.warm(bench, "exec true", "true", &[]);
    if !quick {
        plan.inside(bench, "inside: 100 × true", "true", &[], 100);
        plan.inside(bench, "inside: 10 × git status", "git", &["status", "--porcelain"], 10);
        plan.warm(bench, "exec python", "python3", &["-c", "pass"]);
        plan.variant(bench, "monitor", &["--monitor"]);
        let denied = deny_options();
        let denied: Vec<&str> = denied.iter().map(String::as_str).collect();
        plan.variant(bench, "deny 8 programs", &denied);
        plan.filtered(bench)?;
    }
    let works = std::mem::take(&mut plan.works);
    interleave_all(bench, plan.group, works);
    Ok(())
}

/// What is going to be measured, and what must live meanwhile.
struct Plan<'a> {
    group: &'a mut Group,
    works: Vec<Workload<'static>>,
    holders: Vec<Holder>,
    server: Option<Server>,
}

impl Plan<'_> {
    fn add(&mut self, bench: &Bench, name: &str, trials: Vec<Trial<'static>>) {
        self.works.push(Workload { name: name.into(), trials, rounds: Rounds::short(bench) });
    }

    fn note(&mut self, text: String) {
        self.group.notes.push(text);
    }

    /// A program that a workload needs; a note when it is not here.
    fn program(&mut self, workload: &str, name: &str) -> Option<PathBuf> {
        let found = find(name);
        if found.is_none() {
            self.note(format!("{workload}: `{name}` is not installed"));
        }
        found
    }

    /// One command, once per sandbox.
    fn cold(&mut self, bench: &mut Bench, work: &Work) {
        let Some(program) = self.program(work.name, work.program) else { return };
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
        self.add(bench, work.name, trials);
    }

    /// Many commands in one sandbox, each a process of its own.
    fn inside(&mut self, bench: &mut Bench, name: &str, program: &str, args: &[&str], times: u32) {
        let Some(program) = self.program(name, program) else { return };
        let mut argv = bench.tool("repeat", &[times.to_string().as_ref()]);
        argv.extend(line(&program, args));
        let mut trials = Vec::new();
        for lane in bench.lanes() {
            let command = proven(bench, &lane, &argv, &[], None);
            trials.push(Trial::wall_of(&lane.name, BARE, command, times, "wall of one"));
        }
        self.add(bench, name, trials);
    }

    /// A command in a sandbox that lives already.
    fn warm(&mut self, bench: &mut Bench, name: &str, program: &str, args: &[&str]) {
        if let Err(reason) = bench.has("exec") {
            return self.note(format!("{name}: {reason}"));
        }
        let Some(program) = self.program(name, program) else { return };
        let argv = line(&program, args);
        let mut trials = vec![Trial::wall(BARE, BARE, bench.command(&Lane::bare(), &argv, &[]))];
        for lane in bench.ringfence.clone() {
            let Kind::Ringfence { exe, .. } = &lane.kind else { continue };
            let session = format!("bench{}-{}", std::process::id(), self.holders.len());
            let command = Holder::start(bench, &lane, &["--name", &session]).and_then(|holder| {
                self.holders.push(holder);
                let mut line: Vec<OsString> =
                    vec![exe.into(), "exec".into(), session.into(), "--".into()];
                line.extend(argv.iter().cloned());
                bench.plain(&line)
            });
            trials.push(Trial::wall(&lane.name, BARE, command));
        }
        match Gateway::start(bench, &bench.work.space.clone()) {
            Ok(mut gateway) => trials.push(Trial::new("over MCP", BARE, move |_| {
                Ok(vec![Reading::millis("wall", gateway.exec(&argv)?)])
            })),
            Err(cause) => self.note(format!("{name} over MCP: {cause}")),
        }
        self.add(bench, name, trials);
    }

    /// `true` under ringfence with further options, against `true` without a sandbox.
    fn variant(&mut self, bench: &mut Bench, name: &str, options: &[&str]) {
        let Some(program) = self.program(name, "true") else { return };
        self.ours(bench, name, &line(&program, &[]), options, None);
    }

    /// A command in ringfence's lanes only. When none can, that is a note and not a failure of each.
    fn ours(
        &mut self,
        bench: &mut Bench,
        name: &str,
        argv: &[OsString],
        options: &[&str],
        prints: Option<&str>,
    ) {
        let lanes = std::iter::once(Lane::bare()).chain(bench.ringfence.clone());
        let commands: Vec<_> = lanes
            .map(|lane| (lane.name.clone(), proven(bench, &lane, argv, options, prints)))
            .collect();
        let works = commands[1..].iter().any(|(_, command)| command.is_ok());
        if let (false, Some((_, Err(cause)))) = (works, commands.get(1)) {
            return self.note(format!("{name}: {cause}"));
        }
        let trial = |(lane, command): (String, _)| Trial::wall(&lane, BARE, command);
        self.add(bench, name, commands.into_iter().map(trial).collect());
    }

    /// `curl` from a local server, through the filter.
    fn filtered(&mut self, bench: &mut Bench) -> Result<()> {
        let name = "curl, filtered";
        let Some(curl) = self.program(name, "curl") else { return Ok(()) };
        let server = Server::start(bench)?;
        let url = format!("http://localhost:{}/json", server.port);
        let argv = line(&curl, &["-sSf", "--noproxy", "*", &url]);
        let allow = format!("localhost:{}", server.port);
        let body = Some(crate::tool::serve::JSON);
        self.ours(bench, name, &argv, &["--allow-host", &allow], body);
        self.server = Some(server);
        Ok(())
    }
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

/// The programs that Fence's benchmark of this name denies, where they exist.
fn deny_options() -> Vec<String> {
    let names = ["curl", "wget", "nc", "ssh", "ls", "cat", "cp", "mv"];
    let paths = names.iter().filter_map(|name| find(name));
    paths.flat_map(|path| ["--deny".into(), path.to_string_lossy().into_owned()]).collect()
}
