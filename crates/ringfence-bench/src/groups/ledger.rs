//! Group `ledger`: what the record of a session costs a run that writes much.

use super::{Entry, Outcome};
use crate::bench::Bench;
use crate::interleave::{Reading, Rounds, Trial, interleave};
use crate::lanes::BARE;
use crate::model::Group;
use std::ffi::OsString;
use std::path::Path;

pub const ENTRY: Entry = Entry {
    name: "ledger",
    summary: "20,000 files out of an archive, with a record, without one, and outside",
    method: "`tar -x` of 20,000 files of 64 bytes in 100 directories, into a directory that is emptied \
             between the rounds. `record` is a run as it is by default, `no-record` one with --no-record, \
             `bare` tar by itself.",
    seconds: (60.0, 12.0),
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
    bench.progress.workloads(1);
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
    Ok(())
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
