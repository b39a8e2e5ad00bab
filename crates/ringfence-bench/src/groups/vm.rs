//! Group `vm`: what a kernel of one's own costs, beside the namespace tier.

use super::disk::readings_of;
use super::http::{self, Load};
use super::{Entry, Outcome, Stop, rootfs, startup};
use crate::background::{Holder, Server};
use crate::bench::Bench;
use crate::error::{Result, error};
use crate::interleave::{Reading, Rounds, Trial, Workload, interleave, interleave_all};
use crate::lanes::{BARE, Kind, Lane};
use crate::model::Group;
use crate::sys::process::Prepared;
use crate::work::find;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::{Duration, Instant};

pub const ENTRY: Entry = Entry {
    name: "vm",
    summary: "guests of the vm tier: their lives, files, programs and connections, beside the namespace tier",
    method: "`true` is a whole `run`: a clone of the saved guest is made, begins, executes, and is gone. The guest \
             that is saved boots before the measurement. `true, with a snapshot` takes one of the workspace before. `exec \
             true` runs in a guest that is there. `read` and `write` move 16 MiB of a file of the host's. `a life` is \
             a session's: until its command runs (`ready`), one more command in it (`exec true`), and from its \
             `kill` until its launcher has ended. `true, booted` is a `run` without a saved guest: one boots, is \
             saved, and the command runs in its clone. The others are those of the groups `disk`, `rootfs`, \
             `startup`, `http` and `throughput`, with less to do. Whether KVM or an emulator executes guests is a \
             note: figures of the two have nothing in common.",
    seconds: (400.0, 200.0),
    run,
};

fn run(bench: &mut Bench, group: &mut Group) -> Outcome {
    bench.has("vm").map_err(Stop::Unavailable)?;
    let status = bench.product(&["vm", "status"])?;
    match bench.run(&status, true) {
        Ok(ran) => {
            let text = String::from_utf8_lossy(&ran.stdout).into_owned();
            group.notes.extend(text.lines().map(ToOwned::to_owned));
        }
        Err(cause) => return Err(Stop::Unavailable(cause.to_string())),
    }
    let main = bench.main_lane()?;
    let Kind::Ringfence { exe, .. } = main.kind else {
        return Err(Stop::Failed(error!("the first lane is no lane of ringfence")));
    };
    let lane = |tier: &str| Lane {
        name: format!("ringfence {tier}"),
        kind: Kind::Ringfence { exe: exe.clone(), tier: tier.into() },
    };
    let lanes = [Lane::bare(), lane("namespace"), lane("vm")];
    let program = |name: &str| find(name).ok_or_else(|| error!("`{name}` is not installed"));
    let file = bench.work.space.join("vm-file");
    crate::work::write(&file, &vec![7; 16 << 20])?;
    let copy = bench.work.space.join("vm-copy");
    let commands: [(&str, Vec<OsString>); 3] = [
        ("true", vec![program("true")?.into()]),
        ("read 16 MiB", vec![program("cksum")?.into(), file.clone().into()]),
        ("write 16 MiB", vec![program("cp")?.into(), file.into(), copy.into()]),
    ];
    let mut works = Vec::new();
    for (name, argv) in &commands {
        let trial = |lane: &Lane, bench: &mut Bench| {
            Trial::wall(&lane.name, BARE, proven(bench, lane, argv))
        };
        let trials = lanes.iter().map(|lane| trial(lane, bench)).collect();
        works.push(Workload { name: (*name).into(), trials, rounds: Rounds::short(bench) });
    }
    let mut holders = Vec::new();
    let argv = &commands[0].1;
    let mut trials = vec![Trial::wall(BARE, BARE, bench.command(&lanes[0], argv, &[]))];
    for lane in &lanes[1..] {
        let session = format!("bench-vm{}-{}", std::process::id(), holders.len());
        let command = Holder::start(bench, lane, &["--name", &session]).and_then(|holder| {
            holders.push(holder);
            let before = [exe.clone().into(), "exec".into(), session.into(), "--".into()];
            bench.plain(&before.into_iter().chain(argv.iter().cloned()).collect::<Vec<_>>())
        });
        trials.push(Trial::wall(&lane.name, BARE, command));
    }
    works.push(Workload { name: "exec true".into(), trials, rounds: Rounds::short(bench) });
    let few = Rounds { fewest: 8, most: 20, budget: Duration::from_secs(8), warm_up: 1 };
    let trials =
        lanes[1..].iter().map(|lane| life(lane, &lanes[1].name, &exe, argv.clone())).collect();
    works.push(Workload { name: "a life".into(), trials, rounds: few });
    let snapshots = lanes[1..].iter().map(|lane| {
        Trial::wall(&lane.name, &lanes[1].name, bench.command(lane, argv, &["--snapshot"]))
    });
    let trials = snapshots.collect();
    works.push(Workload { name: "true, with a snapshot".into(), trials, rounds: few });
    let (clean, lane) = (bench.product(&["vm", "clean"])?, &lanes[2]);
    let command = bench.command(lane, argv, &[])?;
    let booted = Trial::new(&lane.name, "", move |bench| {
        bench.run(&clean, false)?;
        Ok(vec![Reading::millis("wall", bench.run(&command, false)?.wall)])
    });
    let rounds = Rounds::long(bench);
    works.push(Workload { name: "true, booted".into(), trials: vec![booted], rounds });
    interleave_all(bench, group, works);
    drop(holders);
    inside(bench, group, &lanes)
}

/// What other groups measure, in the guest too: less of it, as an emulated processor takes many times as long.
fn inside(bench: &mut Bench, group: &mut Group, lanes: &[Lane]) -> Outcome {
    let rounds = Rounds { fewest: 3, most: 8, budget: Duration::from_secs(15), warm_up: 1 };
    let disk = bench.tool("disk", &[".", "8", "200", "1024"].map(OsStr::new));
    let files = rootfs::line(bench, "200")?;
    for (name, argv) in [("workspace", disk), ("system files", files)] {
        let trials = lanes.iter().map(|lane| readings_of(bench, lane, &argv, &[])).collect();
        interleave(bench, group, name, trials, rounds);
    }
    if let Some(path) = find("python3") {
        startup::cold(bench, group, ("python3", &path), lanes, rounds);
    }
    let server = Server::start(bench)?;
    let loads = [("1 connection", "/json", 500), ("10 MB", "/bytes/10000000", 1)];
    for (workload, path, requests) in loads {
        let (scheme, mode) = ("http", "kept");
        let load = Load { workload, scheme, path, requests, connections: 1, mode };
        let way = |lane: &Lane| {
            let options = vec!["--allow-host".to_owned(), format!("localhost:{}", server.port)];
            (format!("{}, filtered", lane.name), lane.clone(), options)
        };
        let ways: Vec<_> = lanes[1..].iter().map(way).collect();
        http::in_lanes(bench, group, &server, &load, &ways, rounds)?;
    }
    Ok(())
}

/// The life of a session: until its command runs, one more command, and its end, until nothing of it is left.
fn life<'a>(lane: &Lane, baseline: &str, exe: &Path, argv: Vec<OsString>) -> Trial<'a> {
    let (own, exe) = (lane.clone(), exe.to_owned());
    let mut number = 0;
    Trial::new(&lane.name, baseline, move |bench| {
        number += 1;
        let session = format!("bench-end{}-{}-{number}", std::process::id(), own.name.len());
        let since = Instant::now();
        let holder = Holder::start(bench, &own, &["--name", &session])?;
        let ready = since.elapsed();
        let before: [OsString; 4] =
            [exe.clone().into(), "exec".into(), session.clone().into(), "--".into()];
        let exec = bench.plain(&before.into_iter().chain(argv.clone()).collect::<Vec<_>>())?;
        let exec = bench.run(&exec, false)?.wall;
        let kill = bench.plain(&[exe.clone().into(), "kill".into(), session.into()])?;
        let since = Instant::now();
        bench.run(&kill, false)?;
        // Waits for the launcher.
        drop(holder);
        let parts = [("ready", ready), ("exec true", exec), ("kill", since.elapsed())];
        Ok(parts.map(|(part, time)| Reading::millis(part, time)).to_vec())
    })
}

/// A command that was run once: the first one in a guest boots it.
fn proven(bench: &mut Bench, lane: &Lane, argv: &[OsString]) -> Result<Prepared> {
    let command = bench.command(lane, argv, &[])?;
    bench.run(&command, false)?;
    Ok(command)
}
