//! Group `http`: requests per second through the filter.

use super::{Entry, Outcome, Stop};
use crate::background::Server;
use crate::bench::Bench;
use crate::error::Result;
use crate::interleave::{Rounds, Trial, interleave};
use crate::lanes::{BARE, Lane};
use crate::model::Group;
use crate::sys::process::Prepared;
use std::ffi::OsStr;

pub const ENTRY: Entry = Entry {
    name: "http",
    summary: "HTTP requests per second and latencies through the filter, inspected and not",
    method: "A load generator inside each lane, a local server outside all of them. Every connection is kept \
             alive; one request at a time on each. The unsandboxed lane is the same client and server \
             without a sandbox: what it reaches is the limit of the fixture, not of the product.",
    seconds: (40.0, 10.0),
    run,
};

fn run(bench: &mut Bench, group: &mut Group) -> Outcome {
    let server = Server::start(bench, "serve", &[])?;
    let levels: &[(&str, usize)] = &[("1", 20_000), ("16", 100_000), ("64", 200_000)];
    let levels = if bench.options.quick { &levels[..2] } else { levels };
    bench.progress.workloads(levels.len());
    for (connections, requests) in levels {
        let requests = if bench.options.quick { requests / 4 } else { *requests };
        let workload = format!("{connections} connections");
        through_filter(bench, group, &server, &workload, "/json", requests, connections)?;
        bench.progress.next();
    }
    Ok(())
}

/// One transfer in the bare lane, and in ringfence's with the host's network, filtered, and inspected.
pub fn through_filter(
    bench: &mut Bench,
    group: &mut Group,
    server: &Server,
    workload: &str,
    path: &str,
    requests: usize,
    connections: &str,
) -> Outcome {
    let (port, count) = (server.port.to_string(), requests.to_string());
    let words = ["localhost", &port, path, &count, connections].map(OsStr::new);
    let argv = bench.tool("http", &words);
    let host = format!("localhost:{port}");
    let rule = format!("GET {host}/*");
    let main = bench.main_lane()?;
    let ways: [(&str, Vec<&str>); 3] = [
        ("host network", vec!["--network", "host"]),
        ("filtered", vec!["--allow-host", &host]),
        ("inspected", vec!["--allow-host", &host, "--http", &rule]),
    ];
    let bare = bench.command(&Lane::bare(), &argv, &[]);
    let mut trials = vec![readings(BARE, bare)];
    let mut works = false;
    for (name, options) in &ways {
        let lane = format!("{}, {name}", main.name);
        let command = bench.command(&main, &argv, options)?;
        match bench.run(&command, false) {
            Ok(_) => {
                works |= *name != "host network";
                trials.push(readings(&lane, Ok(command)));
            }
            Err(cause) => group.notes.push(format!("{lane}: {cause}")),
        }
    }
    if !works {
        let said = group.notes.pop().unwrap_or_default();
        group.notes.clear();
        return Err(Stop::Unavailable(format!(
            "not available in this build: no filtered network ({said})"
        )));
    }
    let rounds = Rounds::long(bench);
    interleave(bench, group, workload, trials, rounds);
    Ok(())
}

fn readings(lane: &str, command: Result<Prepared>) -> Trial<'static> {
    Trial::new(lane, BARE, move |bench| {
        let command = command.as_ref().map_err(Clone::clone)?;
        crate::tool::readings(&bench.run(command, true)?.stdout)
    })
}
