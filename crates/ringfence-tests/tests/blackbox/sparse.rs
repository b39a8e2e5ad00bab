//! Files that are mostly holes: they cost what is in them, at the end of a run and by `cp`.

use ringfence_tests::{Place, Running, Tier, everybody, everywhere, held, until};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::MetadataExt;

/// More than anybody reads to its end.
const HUGE: u64 = 4 << 40;

fn hole(place: &Place, name: &str, size: u64) -> fs::File {
    let path = place.file(name, "");
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_len(size).unwrap();
    file
}

#[test]
fn holes_are_not_compared_byte_by_byte() {
    everybody(Tier::Namespace, |place| {
        hole(place, "home/project/touched", HUGE);
        hole(place, "home/project/written", HUGE);
        place.clock_moves_on();
        let act =
            "touch touched; printf x | dd of=written bs=1 seek=5000000000 conv=notrunc 2>/dev/null";
        let outcome = place.sh(&["--dry-run"], act);
        outcome.ends(0).says("touched").says("written");
        assert_eq!(fs::metadata(place.project("written")).unwrap().blocks(), 0);
    });
}

#[test]
fn cp_keeps_holes() {
    everywhere(|place| {
        let script = "truncate -s 60M big; printf end >> big; printf x | dd of=big bs=1 \
                      seek=5000001 conv=notrunc 2>/dev/null; echo up; exec sleep 1000";
        let mut running = place.start(&["--name", "one"], &["sh", "-c", script]);
        running.printed("up\n");
        let to = place.directory("copies");
        place.ringfence(["cp", "one:big", to.to_str().unwrap()]).quiet();
        let (was, is) = (place.project("big"), to.join("big"));
        assert_eq!(fs::read(&was).unwrap(), fs::read(&is).unwrap());
        let found = fs::metadata(&is).unwrap();
        assert!(found.blocks() * 512 < 1 << 20, "{} blocks", found.blocks());
        assert_eq!(fs::read_dir(&to).unwrap().count(), 1);
        place.ringfence(["kill", "one"]).quiet();
        running.finish().ends(143);
    });
}

#[test]
fn a_copy_that_is_interrupted_leaves_nothing() {
    everywhere(|place| {
        let script = format!("truncate -s {HUGE} big; echo up; exec sleep 1000");
        let mut running = place.start(&["--name", "one"], &["sh", "-c", &script]);
        running.printed("up\n");
        let to = place.directory("copies");
        let mut command = place.command(ringfence_tests::binary());
        command.args(["cp", "one:big"]).arg(&to);
        let copying = Running::start(command);
        let writes = || held(copying.pid()).iter().any(|path| path.starts_with(&to) && *path != to);
        until("it copies", writes);
        copying.signal(Signal::INT);
        assert_ne!(copying.finish().code, 0);
        assert_eq!(fs::read_dir(&to).unwrap().count(), 0, "something is left");
        place.ringfence(["kill", "one"]).quiet();
        running.finish().ends(143);
    });
}
