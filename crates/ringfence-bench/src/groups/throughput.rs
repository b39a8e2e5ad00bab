//! Group `throughput`: a large download through the filter.

use super::{Entry, Outcome};
use crate::background::Server;
use crate::bench::Bench;
use crate::model::Group;

pub const ENTRY: Entry = Entry {
    name: "throughput",
    summary: "a 100 MB download through the filter, inspected and not",
    method: "One connection, one request, 100,000,000 bytes from a local server outside the sandbox; \
             connecting is part of the time. Lanes as in `http`.",
    seconds: (15.0, 5.0),
    run,
};

fn run(bench: &mut Bench, group: &mut Group) -> Outcome {
    let server = Server::start(bench, "serve", &[])?;
    super::http::through_filter(bench, group, &server, "100 MB", "/bytes/100000000", 1, "1")
}
