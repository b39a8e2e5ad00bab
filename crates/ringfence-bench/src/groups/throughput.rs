//! Group `throughput`: large downloads through the filter.

use super::http::Load;
use super::{Entry, Outcome};
use crate::background::Server;
use crate::bench::Bench;
use crate::model::Group;

pub const ENTRY: Entry = Entry {
    name: "throughput",
    summary: "downloads of 100 MB and 1 GB through the filter, inspected and not",
    method: "One connection, one request, 100,000,000 or 1,000,000,000 bytes from a local server outside the \
             sandbox; connecting is part of the time. Lanes as in `http`.",
    seconds: (90.0, 15.0),
    run,
};

/// What is downloaded: workload, scheme, path; whether a quick run has it.
const DOWNLOADS: [(&str, &str, &str, bool); 3] = [
    ("100 MB", "http", "/bytes/100000000", true),
    ("100 MB, TLS", "https", "/bytes/100000000", true),
    ("1 GB", "http", "/bytes/1000000000", false),
];

fn run(bench: &mut Bench, group: &mut Group) -> Outcome {
    let server = Server::start(bench)?;
    let quick = bench.options.quick;
    let downloads = DOWNLOADS.iter().filter(|download| download.3 || !quick);
    bench.progress.workloads(downloads.clone().count());
    for &(workload, scheme, path, _) in downloads {
        let load = Load { workload, scheme, path, requests: 1, connections: 1, mode: "kept" };
        super::http::through_filter(bench, group, &server, &load)?;
        bench.progress.next();
    }
    Ok(())
}
