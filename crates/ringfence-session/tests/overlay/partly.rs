//! Some paths are committed, and what waits is still compared with what the host did: also while
//! that commit ran, and after it was killed.

use crate::world::{World, names, no_traces};
use ringfence_session::overlay::{Done, Select};
use ringfence_session::snapshot::fault;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What the host does at a step of the commit.
const KILLS: &str = "kill";
const DELETES: &str = "delete";

/// Commits `anew/old` and `made/one` in another process. False: it came to its end before that step.
fn first(top: &Path, step: usize, host: &str) -> bool {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "partly::child", "--ignored", "--test-threads=1", "-q"])
        .env("RINGFENCE_TEST_TOP", top)
        .env("RINGFENCE_TEST_STEP", step.to_string())
        .env("RINGFENCE_TEST_HOST", host)
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    let reached = top.join("reached").exists();
    assert_eq!(status.signal() == Some(9), reached && host == KILLS, "{status}");
    assert!(status.success() || host == KILLS, "{status}");
    reached
}

#[test]
#[ignore = "run by other tests, as a process of its own"]
fn child() {
    let get = |name: &str| std::env::var(format!("RINGFENCE_TEST_{name}")).unwrap();
    let top = PathBuf::from(get("TOP"));
    let (step, host): (usize, String) = (get("STEP").parse().unwrap(), get("HOST"));
    let (passed, place) = (AtomicUsize::new(0), top.clone());
    fault::install(move |name| {
        // A deletion between two calls of a step, microseconds apart, is not seen.
        let unseen = name == "exchanged" && host == DELETES;
        if unseen || passed.fetch_add(1, Ordering::Relaxed) != step {
            return;
        }
        fs::write(place.join("reached"), "").unwrap();
        if host == KILLS {
            let me = rustix::process::getpid();
            rustix::process::kill_process(me, rustix::process::Signal::KILL).unwrap();
        }
        await_tick(&place.join("real/anew"));
        fs::remove_file(place.join("real/anew/both")).unwrap();
    });
    let done = commit(&World::at(&top), &["anew/old", "made/one"]);
    assert_eq!(done.conflicts, []);
}

/// Until the clock that gives coarse times has gone on since a directory was changed: a deletion in tmpfs has such a time.
fn await_tick(directory: &Path) {
    let changed = directory.metadata().unwrap();
    loop {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        if (now.tv_sec, now.tv_nsec) > (changed.ctime(), changed.ctime_nsec()) {
            return;
        }
        std::thread::yield_now();
    }
}

fn commit(world: &World, names: &[&str]) -> Done {
    let paths = names.iter().map(|name| world.real(name)).collect();
    world.open().commit(&Select { paths, force: false }).unwrap()
}

fn changed() -> World {
    changed_in(0o755)
}

/// With that mode of a directory.
fn changed_in(mode: u32) -> World {
    let world = World::new();
    let give = |path| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    give(world.real("anew"));
    let run = world.begin();
    for name in ["anew/old", "anew/both"] {
        world.change(name, &format!("new {name}"));
    }
    world.put("made/one", "new made/one");
    // Moved inside, from elsewhere: that the host deleted them is known by their directories only.
    for name in ["anew/came", "made/came"] {
        world.change(name, "came");
    }
    give(world.layer("anew"));
    drop(run);
    world
}

#[test]
fn what_a_commit_does_itself_is_no_conflict_later() {
    for mode in [0o755, 0o555] {
        let world = changed_in(mode);
        commit(&world, &["anew/old", "made/one"]);
        let last = commit(&world, &["anew/both", "anew/came", "made/came"]);
        assert_eq!(names(&last.conflicts), [""; 0], "{mode:o}");
        assert!(last.empty);
        assert_eq!(fs::read_to_string(world.real("anew/both")).unwrap(), "new anew/both");
    }
}

#[test]
fn what_the_host_deletes_while_some_paths_are_committed_is_a_conflict() {
    let mut step = 0;
    loop {
        let world = changed();
        let reached = first(&world.top, step, DELETES);
        if !reached {
            break;
        }
        no_traces(&world.real(""));
        assert_eq!(names(&commit(&world, &["anew/both"]).conflicts), ["anew/both"], "step {step}");
        assert!(!world.real("anew/both").exists(), "step {step}");
        step += 1;
    }
    assert!(step > 6, "only {step} steps");
}

#[test]
fn what_the_host_deletes_after_a_killed_one_is_a_conflict() {
    let mut step = 0;
    loop {
        let world = changed();
        if !first(&world.top, step, KILLS) {
            break;
        }
        fs::remove_file(world.real("anew/both")).unwrap();
        let finished = commit(&world, &["anew/old"]);
        assert!(finished.resumed, "step {step}");
        assert_eq!(fs::read_to_string(world.real("anew/old")).unwrap(), "new anew/old");
        let later = commit(&world, &["anew/both"]);
        assert_eq!(names(&later.conflicts), ["anew/both"], "step {step}");
        assert!(!world.real("anew/both").exists(), "step {step}");
        let forced = Select { paths: Vec::new(), force: true };
        assert!(world.open().commit(&forced).unwrap().empty);
        assert_eq!(fs::read_to_string(world.real("anew/both")).unwrap(), "new anew/both");
        step += 1;
    }
    assert!(step > 6, "only {step} steps");
}

/// As a power cut leaves a file that was just renamed.
#[test]
fn notes_that_are_lost_cost_a_conflict_at_most() {
    for text in ["", "[{\"tree\":0,", "\0\0\0\0"] {
        let world = changed();
        commit(&world, &["anew/old", "made/one"]);
        let notes = ringfence_session::overlay::directory(&world.session()).join("ours.json");
        assert!(notes.exists(), "the control");
        fs::write(&notes, text).unwrap();
        assert_eq!(world.open().changes().unwrap().len(), 3, "{text:?}");
        assert!(!world.commit().conflicts.is_empty(), "{text:?}");
        let forced = Select { paths: Vec::new(), force: true };
        assert!(world.open().commit(&forced).unwrap().empty, "{text:?}");
    }
}
