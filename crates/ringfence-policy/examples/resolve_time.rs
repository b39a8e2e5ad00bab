//! Prints how many microseconds resolving the default policy takes on this host.
//!
//! `cargo run --release -p ringfence-policy --example resolve_time [-- COMMAND]`

use ringfence_policy::{Context, HostFiles, Request, resolve};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    const RUNS: usize = 2_000;
    let env = |name: &str| std::env::var_os(name);
    let request = Request {
        command: Some(std::env::args_os().nth(1).unwrap_or_else(|| OsString::from("true"))),
        ..Request::default()
    };
    let context = Context {
        home: PathBuf::from(env("HOME").ok_or("HOME is not set")?),
        cwd: std::env::current_dir()?,
        uid: if env("RINGFENCE_AS_ROOT").is_some() { 0 } else { 1000 },
        env: &env,
        variables: std::env::vars().map(|(name, _)| name).collect(),
        files: &HostFiles,
    };
    let mut times = Vec::with_capacity(RUNS);
    let mut rules = 0;
    for _ in 0..RUNS {
        let start = Instant::now();
        let policy = resolve(&request, &context)?;
        times.push(start.elapsed().as_nanos());
        rules = policy.paths.len() + policy.protected_names.len();
    }
    let first = times[0];
    times.sort_unstable();
    let micros = |nanos: u128| nanos as f64 / 1000.0;
    println!(
        "resolve: {:.1} µs median, {:.1} µs first, {rules} rules",
        micros(times[RUNS / 2]),
        micros(first)
    );
    Ok(())
}
