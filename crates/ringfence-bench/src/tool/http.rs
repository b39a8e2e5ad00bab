//! `http PORT PATH REQUESTS CONNECTIONS`: a load generator.
//!
//! Each connection has a thread and is kept alive; the next request goes out when the answer to the last is
//! complete. Any answer that is not a complete 200 makes the whole run fail.

use super::{number, print, text};
use crate::error::{Result, error};
use crate::model::Better;
use crate::stats;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Runs the tool.
pub fn run(args: &[OsString]) -> Result<i32> {
    let (host, port, path) = (text(args, 0)?, number::<u16>(args, 1)?, text(args, 2)?);
    let (requests, connections): (usize, usize) = (number(args, 3)?, number(args, 4)?);
    let share = requests.div_ceil(connections.max(1));
    let began = Instant::now();
    let (mut latencies, mut bytes) = (Vec::new(), 0);
    let results: Vec<Result<(Vec<f64>, usize)>> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..connections).map(|_| scope.spawn(|| client(host, port, path, share))).collect();
        let gone = || Err(error!("bench: http: a thread panicked"));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| gone())).collect()
    });
    let seconds = began.elapsed().as_secs_f64();
    for result in results {
        let (times, size) = result?;
        latencies.extend(times);
        bytes += size;
    }
    if requests == 1 {
        print("throughput", "MB/s", Better::Higher, bytes as f64 / 1e6 / seconds);
        return Ok(0);
    }
    print("requests", "1/s", Better::Higher, latencies.len() as f64 / seconds);
    for (name, q) in [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)] {
        print(name, "ms", Better::Lower, stats::quantile(&latencies, q));
    }
    Ok(0)
}

/// Makes `count` requests over one connection: the time of each in ms, and the bytes of all bodies.
fn client(host: &str, port: u16, path: &str, count: usize) -> Result<(Vec<f64>, usize)> {
    let failed = |cause: std::io::Error| error!("bench: http: {cause}");
    let stream = TcpStream::connect((host, port)).map_err(failed)?;
    let limit = Some(Duration::from_secs(20));
    stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(limit)).map_err(failed)?;
    let mut reader = BufReader::with_capacity(64 * 1024, &stream);
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUser-Agent: bench\r\n\r\n");
    let (mut times, mut bytes) = (Vec::with_capacity(count), 0);
    for _ in 0..count {
        let began = Instant::now();
        (&stream).write_all(request.as_bytes()).map_err(failed)?;
        bytes += response(&mut reader)?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    Ok((times, bytes))
}

/// Reads one whole answer: the size of its body.
fn response(reader: &mut impl BufRead) -> Result<usize> {
    let failed = |cause: std::io::Error| error!("bench: http: {cause}");
    let mut line = String::new();
    reader.read_line(&mut line).map_err(failed)?;
    if line.split(' ').nth(1) != Some("200") {
        return Err(error!("bench: http: the answer was {:?}", line.trim_end()));
    }
    let mut length = None;
    loop {
        line.clear();
        reader.read_line(&mut line).map_err(failed)?;
        match line.trim_end().split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.trim().parse::<usize>().ok();
            }
            Some(_) => {}
            None => break,
        }
    }
    let length = length.ok_or_else(|| error!("bench: http: an answer without a length"))?;
    let read =
        std::io::copy(&mut reader.take(length as u64), &mut std::io::sink()).map_err(failed)?;
    if read == length as u64 {
        Ok(length)
    } else {
        Err(error!("bench: http: the answer was cut short"))
    }
}
