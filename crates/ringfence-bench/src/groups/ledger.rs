//! Group `ledger`: what the record of a session costs a run that writes much, what it takes, and what a kill
//! takes of it.

use super::{Entry, Outcome};
use crate::background::Background;
use crate::bench::Bench;
use crate::error::error;
use crate::interleave::{Reading, Rounds, Trial, interleave};
use crate::lanes::BARE;
use crate::model::Group;
use crate::tool::record;
use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Events a second while a kill is waited for.
const SECOND: u64 = 100_000;

pub const ENTRY: Entry = Entry {
    name: "ledger",
    summary: "20,000 files out of an archive, with a record and without; events a second, and what a kill loses",
    method: "`tar -x` of 20,000 files of 64 bytes in 100 directories, into a directory that is emptied \
             between the rounds. `record` is a run as it is by default, `no-record` one with --no-record, \
             `bare` tar by itself. `events`: as many events as the recorder takes, from the first to the last on \
             the disk, and the time that the recording thread spends on each; one that is missing fails the lane. \
             `SIGKILL`: 100,000 events a second, and the recording process is killed at some moment between the \
             first second and the second one: how long before that the last event was recorded that the journal \
             has. A gap before it fails the lane.",
    seconds: (80.0, 16.0),
    run,
};

fn run(bench: &mut Bench, group: &mut Group) -> Outcome {
    let tar = super::need("tar")?;
    let lane = bench.main_lane()?;
    let files = if bench.options.quick { 2_000 } else { 20_000 };
    let place = bench.work.space.join("untar");
    let archive = bench.work.space.join("files.tar");
    fill(&place, files)?;
    let pack: Vec<OsString> = vec![
        (&tar).into(),
        "-cf".into(),
        (&archive).into(),
        "-C".into(),
        (&place).into(),
        ".".into(),
    ];
    let pack = bench.plain(&pack)?;
    bench.run(&pack, false)?;
    bench.progress.workloads(3);
    let unpack: Vec<OsString> =
        vec![tar.into(), "-xf".into(), archive.into(), "-C".into(), (&place).into()];
    let bare = bench.plain(&unpack)?;
    let record = bench.command(&lane, &unpack, &[])?;
    let without = bench.command(&lane, &unpack, &["--no-record"])?;
    let trial = |name: &str, baseline: &str, command| {
        let place = place.clone();
        Trial::new(name, baseline, move |bench: &mut Bench| {
            crate::guard::remove(&place);
            make(&place)?;
            Ok(vec![Reading::millis("wall", bench.run(&command, false)?.wall)])
        })
    };
    let trials = vec![
        trial("no-record", "", without),
        trial("record", "no-record", record),
        trial(BARE, "no-record", bare),
    ];
    interleave(bench, group, &format!("{files} files"), trials, Rounds::long(bench));
    crate::guard::remove(&place);
    bench.progress.next();
    events(bench, group)
}

/// Events that are recorded, by the library in a process of its own.
fn events(bench: &mut Bench, group: &mut Group) -> Outcome {
    let place = bench.work.space.join("sessions");
    let count = if bench.options.quick { "100000" } else { "500000" };
    let all = bench.plain(&bench.tool("record", &[place.as_os_str(), count.as_ref()]))?;
    let at = place.clone();
    let trial = Trial::new("recorder", "", move |bench: &mut Bench| {
        crate::guard::remove(&at);
        make(&at)?;
        crate::tool::readings(&bench.run(&all, true)?.stdout)
    });
    let rounds = Rounds { warm_up: 1, ..Rounds::long(bench) };
    interleave(bench, group, &format!("{count} events"), vec![trial], rounds);
    bench.progress.next();
    let at = place.clone();
    let trial = Trial::new("recorder", "", move |bench: &mut Bench| {
        crate::guard::remove(&at);
        make(&at)?;
        killed(bench, &at)
    });
    interleave(bench, group, "SIGKILL", vec![trial], rounds);
    crate::guard::remove(&place);
    Ok(())
}

/// Kills a process that records, and looks what it left.
fn killed(bench: &Bench, place: &Path) -> crate::error::Result<Vec<Reading>> {
    let moment = fastrand::u64(SECOND..2 * SECOND).to_string();
    let second = SECOND.to_string();
    let words = [place.as_os_str(), moment.as_ref(), second.as_ref()];
    let mut process = Background::start(bench, &bench.plain(&bench.tool("record", &words))?)?;
    let said = process.line()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    process.kill();
    let kept = record::kept(place)?;
    if said != "now" || kept.count == 0 {
        return Err(error!("it said {said:?}, and the journal has {} events", kept.count));
    }
    let last = Duration::from_micros(kept.last.unsigned_abs());
    Ok(vec![Reading::millis("lost", now.saturating_sub(last))])
}

fn make(place: &Path) -> crate::error::Result<()> {
    std::fs::create_dir_all(place).map_err(|cause| crate::error::Error::file("make", place, cause))
}

fn fill(place: &Path, files: usize) -> crate::error::Result<()> {
    for number in 0..files {
        let directory = place.join(format!("{}", number % 100));
        if number < 100 {
            make(&directory)?;
        }
        crate::work::write(&directory.join(format!("file{number}")), &[b'x'; 64])?;
    }
    Ok(())
}
