//! Group `dns`: how fast names are answered inside.

use super::http::readings;
use super::{Entry, Outcome};
use crate::background::Server;
use crate::bench::Bench;
use crate::interleave::{Rounds, interleave};
use crate::lanes::{BARE, Lane};
use crate::model::Group;
use std::ffi::{OsStr, OsString};

pub const ENTRY: Entry = Entry {
    name: "dns",
    summary: "answers per second and latencies of the resolver inside",
    method: "A load generator asks for the address of an allowed name over UDP, one question under way on each \
             socket; an answer that does not come, or has no address, fails the run. The unsandboxed lane asks a \
             local server that gives the same answer to everything: the limit of the fixture.",
    seconds: (30.0, 8.0),
    run,
};

/// The name that is asked for; nobody is asked outside.
const NAME: &str = "packages.example.org";

fn run(bench: &mut Bench, group: &mut Group) -> Outcome {
    let server = Server::start(bench)?;
    let main = bench.main_lane()?;
    let levels: [(&str, &str); 2] = [("1 socket", "1"), ("64 sockets", "64")];
    let count = if bench.options.quick { "20000" } else { "100000" };
    bench.progress.workloads(levels.len());
    for (workload, sockets) in levels {
        let line = |address: &str| -> Vec<OsString> {
            bench.tool("dns", &[address, NAME, count, sockets].map(OsStr::new))
        };
        let (fixture, inside) =
            (line(&format!("127.0.0.1:{}", server.names)), line("192.0.2.53:53"));
        let bare = bench.command(&Lane::bare(), &fixture, &[]);
        let filtered = bench.command(&main, &inside, &["--allow-host", NAME]);
        let lane = format!("{}, filtered", main.name);
        let trials = vec![readings(BARE, bare), readings(&lane, filtered)];
        let rounds = Rounds::long(bench);
        interleave(bench, group, workload, trials, rounds);
        bench.progress.next();
    }
    Ok(())
}
