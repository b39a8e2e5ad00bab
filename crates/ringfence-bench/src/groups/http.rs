//! Group `http`: requests per second through the filter.

use super::{Entry, Outcome, Stop};
use crate::background::Server;
use crate::bench::Bench;
use crate::error::{Result, error};
use crate::interleave::{Rounds, Trial, interleave};
use crate::lanes::{BARE, Lane};
use crate::model::Group;
use crate::sys::process::Prepared;
use std::ffi::{OsStr, OsString};

pub const ENTRY: Entry = Entry {
    name: "http",
    summary: "HTTP requests per second and latencies through the filter, inspected and not",
    method: "A load generator inside each lane, a local server outside all of them, one thread each. Connections \
             are kept alive, one request at a time on each, but for `a connection for each`, where a request \
             begins with its connection. The unsandboxed lane is the same client and server without a \
             sandbox: what it reaches is the limit of the fixture, not of the product. Where TLS is \
             inspected it is ended and begun anew, as TLS 1.3 with HTTP/1.1 on both sides.",
    seconds: (90.0, 20.0),
    run,
};

/// A load on one server.
pub struct Load<'a> {
    /// Its name.
    pub workload: &'a str,
    /// `http` or `https`.
    pub scheme: &'a str,
    /// What is asked for.
    pub path: &'a str,
    /// How often.
    pub requests: usize,
    /// Over how many connections at a time.
    pub connections: usize,
    /// `kept` or `fresh`.
    pub mode: &'a str,
}

/// All loads: workload, scheme, requests, connections, mode; whether a quick run has it.
const LOADS: [(&str, &str, usize, usize, &str, bool); 7] = [
    ("1 connection", "http", 20_000, 1, "kept", true),
    ("16 connections", "http", 100_000, 16, "kept", false),
    ("64 connections", "http", 200_000, 64, "kept", true),
    ("a connection for each", "http", 5_000, 1, "fresh", true),
    ("1 connection, TLS", "https", 20_000, 1, "kept", false),
    ("64 connections, TLS", "https", 200_000, 64, "kept", true),
    ("a connection for each, TLS", "https", 2_000, 1, "fresh", false),
];

fn run(bench: &mut Bench, group: &mut Group) -> Outcome {
    let server = Server::start(bench)?;
    let quick = bench.options.quick;
    let loads = LOADS.iter().filter(|load| load.5 || !quick);
    bench.progress.workloads(loads.clone().count());
    for &(workload, scheme, requests, connections, mode, _) in loads {
        let requests = if quick { requests / 4 } else { requests };
        let load = Load { workload, scheme, path: "/json", requests, connections, mode };
        through_filter(bench, group, &server, &load)?;
        bench.progress.next();
    }
    Ok(())
}

impl Load<'_> {
    /// The command line of the load generator.
    fn line(&self, bench: &Bench, server: &Server) -> Vec<OsString> {
        let (requests, connections) = (self.requests.to_string(), self.connections.to_string());
        let port = self.port(server).to_string();
        let words =
            [self.scheme, "localhost", &port, self.path, &requests, &connections, self.mode];
        bench.tool("http", &words.map(OsStr::new))
    }

    fn port(&self, server: &Server) -> u16 {
        if self.scheme == "https" { server.secure } else { server.port }
    }
}

/// The lanes of ringfence that a network's load is tried in: their names, and `run`'s options.
pub fn ways(port: u16) -> [(&'static str, Vec<String>); 3] {
    let host = format!("localhost:{port}");
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    [
        ("host network", words(&["--network", "host"])),
        ("filtered", words(&["--allow-host", &host])),
        ("inspected", words(&["--allow-host", &host, "--http", &format!("GET {host}/*")])),
    ]
}

/// Makes ready to run `argv` in `lane`, outside of which the server's authority is trusted.
pub fn trusting(
    bench: &Bench,
    lane: &Lane,
    argv: &[OsString],
    options: &[String],
    server: &Server,
) -> Result<Prepared> {
    let options: Vec<OsString> = options.iter().map(OsString::from).collect();
    let line = lane.wrap(&bench.work, argv, &options)?;
    bench.plain_with(&line, &[("SSL_CERT_FILE", server.authority.as_os_str())])
}

/// One load in the bare lane, and in ringfence's with the host's network, filtered, and inspected.
pub fn through_filter(
    bench: &mut Bench,
    group: &mut Group,
    server: &Server,
    load: &Load<'_>,
) -> Outcome {
    let main = bench.main_lane()?;
    let way = |(name, options): (&str, Vec<String>)| {
        (format!("{}, {name}", main.name), main.clone(), options)
    };
    let ways: Vec<_> = ways(load.port(server)).into_iter().map(way).collect();
    in_lanes(bench, group, server, load, &ways, Rounds::long(bench))
}

/// One load in the bare lane, and in lanes of ringfence: what they are called, and `run`'s options.
pub fn in_lanes(
    bench: &mut Bench,
    group: &mut Group,
    server: &Server,
    load: &Load<'_>,
    ways: &[(String, Lane, Vec<String>)],
    rounds: Rounds,
) -> Outcome {
    let argv = load.line(bench, server);
    let bare = trusting(bench, &Lane::bare(), &argv, &[], server);
    let mut trials = vec![readings(BARE, bare)];
    // One request shows whether a lane works.
    let tried = Load { requests: 1, connections: 1, path: "/json", ..*load }.line(bench, server);
    let mut failure = None;
    for (name, lane, options) in ways {
        let attempt = trusting(bench, lane, &tried, options, server)?;
        match bench.run(&attempt, false) {
            Ok(_) => {
                let command = trusting(bench, lane, &argv, options, server);
                trials.push(readings(name, command));
            }
            Err(cause) => {
                group.notes.push(format!("{}: {name}: {cause}", load.workload));
                failure.get_or_insert(cause);
            }
        }
    }
    if trials.len() == 1 {
        let cause = failure.unwrap_or_else(|| error!("no lane was tried"));
        return Err(Stop::Failed(error!("no lane of ringfence reaches a local server: {cause}")));
    }
    interleave(bench, group, load.workload, trials, rounds);
    Ok(())
}

pub fn readings(lane: &str, command: Result<Prepared>) -> Trial<'static> {
    Trial::new(lane, BARE, move |bench| {
        let command = command.as_ref().map_err(Clone::clone)?;
        crate::tool::readings(&bench.run(command, true)?.stdout)
    })
}
