//! What the bench runs inside sandboxes, and as servers: hidden subcommands of the same program, so
//! that nothing needs to be installed, and nothing but the sandbox differs between two lanes.

pub mod attack;
pub mod disk;
pub mod dns;
pub mod floor;
pub mod http;
pub mod record;
pub mod repeat;
pub mod rootfs;
pub mod serve;
pub mod wires;

use crate::error::{Result, error};
use crate::model::Better;
use std::ffi::OsString;
use std::io::{Read, Write};

/// Runs tool `args[0]`, and answers its exit code.
pub fn run(args: &[OsString]) -> Result<i32> {
    let (name, rest) = args.split_first().ok_or_else(|| error!("bench: no tool named"))?;
    match name.to_str().unwrap_or_default() {
        "repeat" => repeat::run(rest),
        "hold" => hold(),
        "record" => record::run(rest),
        "serve" => serve::run(rest),
        "disk" => disk::run(rest),
        "rootfs" => rootfs::run(rest),
        "http" => http::run(rest),
        "load" => http::repeatedly(rest),
        "dns" => dns::run(rest),
        "attack" => attack::run(rest),
        "part" => part(rest),
        "wires" => wires::run(rest),
        other => Err(error!("bench: no tool `{other}`")),
    }
}

/// Says `ready`, and lives until standard input closes.
fn hold() -> Result<i32> {
    println!("ready");
    let mut stdin = std::io::stdin().lock();
    while matches!(stdin.read(&mut [0; 64]), Ok(1..)) {}
    Ok(0)
}

/// `part N CALLS`: calls the Nth function of the library so many times, for valgrind to count.
fn part(args: &[OsString]) -> Result<i32> {
    let here = std::env::current_dir().map_err(|cause| error!("bench: part: {cause}"))?;
    let mut parts = crate::library::parts(&here)?;
    let (place, calls): (usize, u32) = (number(args, 0)?, number(args, 1)?);
    let part = parts.get_mut(place).ok_or_else(|| error!("bench: no part {place}"))?;
    for _ in 0..calls {
        (part.run)();
    }
    Ok(0)
}

/// What the network's tools run on: one thread.
fn runtime() -> Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|cause| error!("bench: no runtime: {cause}"))
}

/// One reading, printed for the bench outside to collect.
pub fn print(metric: &str, unit: &str, better: Better, value: f64) {
    let better = if better == Better::Lower { "lower" } else { "higher" };
    let line = format!("{metric}\t{unit}\t{better}\t{value}\n");
    let _ = std::io::stdout().write_all(line.as_bytes());
}

/// Reads what [`print`] printed.
pub fn readings(output: &[u8]) -> Result<Vec<crate::interleave::Reading>> {
    let text = String::from_utf8_lossy(output);
    text.lines()
        .map(|line| {
            let mut fields = line.split('\t');
            let mut next = || fields.next().unwrap_or_default();
            let (metric, unit, better, value) = (next(), next(), next(), next());
            let better = match better {
                "lower" => Better::Lower,
                "higher" => Better::Higher,
                _ => return Err(error!("it printed {line:?} instead of a reading")),
            };
            let value =
                value.parse().map_err(|_| error!("it printed {line:?} instead of a reading"))?;
            Ok(crate::interleave::Reading::new(metric, unit, better, value))
        })
        .collect()
}

/// The argument at `place`, as text.
fn text(args: &[OsString], place: usize) -> Result<&str> {
    args.get(place)
        .and_then(|word| word.to_str())
        .ok_or_else(|| error!("bench: tool: argument {place}"))
}

/// The argument at `place`, as a number.
fn number<T: std::str::FromStr>(args: &[OsString], place: usize) -> Result<T> {
    text(args, place)?.parse().map_err(|_| error!("bench: tool: argument {place} is no number"))
}
