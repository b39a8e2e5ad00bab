//! Group `service`: a network service behind each kind of isolation.

use super::{Entry, Outcome, need};
use crate::background::Background;
use crate::bench::Bench;
use crate::error::{Result, error};
use crate::interleave::{Reading, Rounds, Trial, interleave};
use crate::lanes::{Kind, Lane};
use crate::model::{Better, Group};
use crate::sys::process::Prepared;
use std::ffi::{OsStr, OsString};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub const ENTRY: Entry = Entry {
    name: "service",
    summary: "Redis: bare metal, ringfence, bwrap and container networking",
    method: "redis-server without persistence in each lane; redis-benchmark outside on loopback: SET and GET, 50 \
             clients, 256 bytes. Every round starts a fresh server in each lane. `container networking` is a \
             network namespace, a bridge, a veth pair and a DNAT rule, made for one run and gone with it.",
    seconds: (60.0, 15.0),
    run,
};

const BASE: &str = "bare metal";

fn run(bench: &mut Bench, group: &mut Group) -> Outcome {
    let (server, client) = (need("redis-server")?, need("redis-benchmark")?);
    let requests = if bench.options.quick { 20_000 } else { 100_000 };
    let redis = Redis { server, client, requests };
    let mut trials = vec![outside(&redis, BASE, |bench, redis, port| {
        bench.command(&Lane::bare(), &redis.serve(port), &[])
    })];
    if let Ok(main) = bench.main_lane() {
        let ways = [("host network", "--network=host"), ("isolated, published", "--publish=")];
        for (name, option) in ways {
            let (lane, main) = (format!("ringfence, {name}"), main.clone());
            trials.push(outside(&redis, &lane, move |bench, redis, port| {
                let option =
                    if option.ends_with('=') { format!("{option}{port}") } else { option.into() };
                bench.command(&main, &redis.serve(port), &[&option])
            }));
        }
    }
    if let Some(bwrap) = bench.peers.iter().find(|lane| lane.name == "bwrap").cloned() {
        trials.push(outside(&redis, "bwrap, host network", move |bench, redis, port| {
            let Kind::Peer { exe, .. } = &bwrap.kind else { return Err(error!("bwrap is no peer")) };
            let words = "--ro-bind / / --dev /dev --proc /proc --unshare-all --share-net --die-with-parent --";
            let mut line: Vec<OsString> = vec![exe.into()];
            line.extend(words.split_whitespace().map(OsString::from));
            line.extend(redis.serve(port));
            bench.plain(&line)
        }));
    }
    let name = "container networking";
    trials.push(Trial::new(name, BASE, |bench| wired(bench, &redis)));
    let rounds = Rounds { warm_up: 0, budget: Duration::from_secs(60), ..Rounds::long(bench) };
    interleave(bench, group, "redis", trials, rounds);
    Ok(())
}

/// The programs, and how often.
struct Redis {
    server: PathBuf,
    client: PathBuf,
    requests: u32,
}

impl Redis {
    fn serve(&self, port: u16) -> Vec<OsString> {
        let port = port.to_string();
        let words = ["--port", &port, "--save", "", "--appendonly", "no", "--protected-mode", "no"];
        words_of(&self.server, &words)
    }

    fn load(&self, host: &str, port: u16) -> Vec<OsString> {
        let (port, requests) = (port.to_string(), self.requests.to_string());
        let words = [
            "-h", host, "-p", &port, "-c", "50", "-n", &requests, "-d", "256", "-t", "set,get",
            "--csv",
        ];
        words_of(&self.client, &words)
    }
}

fn words_of(program: &Path, words: &[&str]) -> Vec<OsString> {
    std::iter::once(program.into()).chain(words.iter().map(OsString::from)).collect()
}

/// A lane whose server listens on the host's loopback.
fn outside<'a>(
    redis: &'a Redis,
    lane: &str,
    command: impl Fn(&Bench, &Redis, u16) -> Result<Prepared> + 'a,
) -> Trial<'a> {
    Trial::new(lane, BASE, move |bench| {
        let port = free_port()?;
        let command = command(bench, redis, port)?;
        let mut server = Background::start(bench, &command)?;
        loop {
            match server.line() {
                Ok(line) if line.contains("Ready to accept connections") => break,
                Ok(_) => {}
                Err(cause) => {
                    drop(server);
                    return Err(error!("the server: {cause}; {}", bench.last_words()));
                }
            }
        }
        let load = bench.plain(&redis.load("127.0.0.1", port))?;
        let result = bench.run(&load, true);
        server.stop();
        read(&result?.stdout)
    })
}

/// The container lane: the tool builds the network, and runs server and client in it.
fn wired(bench: &mut Bench, redis: &Redis) -> Result<Vec<Reading>> {
    let port = 6379;
    let number = port.to_string();
    let mut words: Vec<OsString> = vec![number.into()];
    words.extend(redis.serve(port));
    words.push("--".into());
    words.extend(redis.load(crate::tool::wires::ADDRESS, port));
    let words: Vec<&OsStr> = words.iter().map(OsString::as_os_str).collect();
    let command = bench.plain(&bench.tool("wires", &words))?;
    read(&bench.run(&command, true)?.stdout)
}

/// A port that nothing listens on just now.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0));
    let address = listener.and_then(|listener| listener.local_addr());
    address
        .map(|address| address.port())
        .map_err(|cause| error!("cannot find a free port: {cause}"))
}

/// Reads what `redis-benchmark --csv` prints.
fn read(output: &[u8]) -> Result<Vec<Reading>> {
    let text = String::from_utf8_lossy(output);
    let fields = |line: &str| -> Vec<String> {
        line.split(',').map(|field| field.trim().trim_matches('"').to_owned()).collect()
    };
    let mut lines = text.lines().map(fields).skip_while(|line| line[0] != "test");
    let columns = lines.next().ok_or_else(|| error!("redis-benchmark printed no table"))?;
    let mut readings = Vec::new();
    for row in lines {
        let value = |name: &str| -> Result<f64> {
            let at = columns.iter().position(|column| column == name);
            let value = at.and_then(|at| row.get(at)?.parse().ok());
            value.ok_or_else(|| error!("redis-benchmark printed no {name}"))
        };
        let test = &row[0];
        readings.push(Reading::new(test, "1/s", Better::Higher, value("rps")?));
        for (name, column) in [("p50", "p50_latency_ms"), ("p99", "p99_latency_ms")] {
            readings.push(Reading::new(
                &format!("{test} {name}"),
                "ms",
                Better::Lower,
                value(column)?,
            ));
        }
    }
    if readings.is_empty() { Err(error!("redis-benchmark measured nothing")) } else { Ok(readings) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_redis_benchmark_is_read_by_its_header() {
        let table = b"\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\
                      \"p99_latency_ms\",\"max_latency_ms\"\n\"SET\",\"8000.5\",\"1\",\"1\",\"0.5\",\"1\",\"2\",\"3\"\n";
        let readings = read(table).expect("a table");
        let found: Vec<_> = readings.iter().map(|r| (r.metric.as_str(), r.value)).collect();
        assert_eq!(found, [("SET", 8000.5), ("SET p50", 0.5), ("SET p99", 2.0)]);
        assert!(read(b"Could not connect to Redis").is_err());
    }
}
