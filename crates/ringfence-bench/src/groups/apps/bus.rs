//! What a session bus inside costs a start: the same command with and without `[dbus]`, beside a bus
//! of the bench's own.

use crate::bench::Bench;
use crate::error::{Error, Result, error};
use crate::interleave::{Rounds, Trial, interleave};
use crate::lanes::{BARE, Lane};
use crate::model::Group;
use crate::work::find;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Nobody has this name: the filter grants it, and is not asked for it.
const PROFILE: &str = "extends = [\"default\"]\n[dbus]\ntalk = [\"org.example.Nobody\"]\n";

/// A bus that lives as long as this does.
struct Bus {
    daemon: Child,
    address: OsString,
}

impl Bus {
    fn start(program: &Path) -> Result<Bus> {
        let failed = |cause| Error::file("run", program, cause);
        let mut daemon = Command::new(program)
            .args(["--session", "--nofork", "--nopidfile", "--print-address=1"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let mut address = String::new();
        if let Some(out) = daemon.stdout.take() {
            BufReader::new(out).read_line(&mut address).map_err(failed)?;
        }
        Ok(Bus { daemon, address: address.trim().into() })
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        // Nothing is in it that would have to be put away.
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// Measures it.
///
/// # Errors
/// A sentence: what is missing.
pub fn measure(bench: &mut Bench, group: &mut Group) -> Result<()> {
    let needed = |name: &str| find(name).ok_or_else(|| error!("`{name}` is not installed"));
    needed("xdg-dbus-proxy")?;
    let bus = Bus::start(&needed("dbus-daemon")?)?;
    if bus.address.is_empty() {
        return Err(error!("dbus-daemon does not say where it listens"));
    }
    let directory = bench.work.space.join(".bench");
    std::fs::create_dir_all(&directory).map_err(|cause| Error::file("make", &directory, cause))?;
    let profile = directory.join("bus.toml");
    crate::work::write(&profile, PROFILE.as_bytes())?;
    let argv: Vec<OsString> = vec![needed("true")?.into()];
    let mut trials = vec![Trial::wall(BARE, BARE, bench.command(&Lane::bare(), &argv, &[]))];
    // Other tiers refuse it.
    let namespace = |lane: &&Lane| lane.tier() == Some("namespace");
    for lane in bench.ringfence.iter().filter(namespace) {
        let with = vec!["-p".into(), profile.clone().into()];
        for (state, options) in [("without [dbus]", Vec::new()), ("with [dbus]", with)] {
            let line = lane.wrap(&bench.work, &argv, &options)?;
            let around = [("DBUS_SESSION_BUS_ADDRESS", bus.address.as_os_str())];
            let command = bench.plain_with(&line, &around);
            trials.push(Trial::wall(&format!("{}, {state}", lane.name), BARE, command));
        }
    }
    let rounds = Rounds { most: 200, ..Rounds::short(bench) };
    interleave(bench, group, "true beside a session bus", trials, rounds);
    Ok(())
}
