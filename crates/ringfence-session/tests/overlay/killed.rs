//! A commit that is killed, and a host that writes at the worst moment.

use crate::world::{State, World, no_traces, state};
use ringfence_session::overlay::{self, Select};
use ringfence_session::snapshot::fault;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Commits in another process, which is killed at its step of this number, or writes to a file at
/// it. False: it came to its end first.
fn commit(top: &Path, step: usize, write_to: Option<&str>) -> bool {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::child", "--ignored", "--test-threads=1", "-q"])
        .env("RINGFENCE_TEST_TOP", top)
        .env("RINGFENCE_TEST_STEP", step.to_string())
        .env("RINGFENCE_TEST_WRITE", write_to.unwrap_or_default())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap();
    status.signal() == Some(9) || (write_to.is_some() && !status.success())
}

#[test]
#[ignore = "run by other tests, as a process of its own"]
fn child() {
    let get = |name: &str| std::env::var(format!("RINGFENCE_TEST_{name}")).unwrap();
    let top = PathBuf::from(get("TOP"));
    let (step, write): (usize, String) = (get("STEP").parse().unwrap(), get("WRITE"));
    let passed = AtomicUsize::new(0);
    let place = top.clone();
    fault::install(move |_| {
        if passed.fetch_add(1, Ordering::Relaxed) != step {
        } else if write.is_empty() {
            let me = rustix::process::getpid();
            rustix::process::kill_process(me, rustix::process::Signal::KILL).unwrap();
        } else {
            // Without truncation: as an editor that has it open.
            let mut options = fs::File::options();
            if let Ok(mut file) = options.append(true).open(place.join(&write)) {
                std::io::Write::write_all(&mut file, b" and the host's").unwrap();
            }
        }
    });
    World::at(&top).open().commit(&Select::default()).unwrap();
}

fn changed() -> World {
    let world = World::new();
    let run = world.begin();
    world.change("kept/a", "new a");
    world.delete("gone");
    world.anew("anew");
    world.put("anew/both", "new both");
    world.anew("replaced");
    world.put("replaced/file", "x");
    world.put("made/file", "made");
    world.link("link", "kept".as_ref());
    drop(run);
    world
}

/// Modes and texts; times differ from world to world.
fn without_times(state: State) -> Vec<(PathBuf, String)> {
    let plain = |text: String| match text.splitn(4, ' ').collect::<Vec<_>>()[..] {
        ["file", mode, _, text] => format!("file {mode} {text}"),
        _ => text,
    };
    state.into_iter().map(|(path, text)| (path, plain(text))).collect()
}

#[test]
fn a_commit_killed_at_each_step_is_finished() {
    let wanted = {
        let world = changed();
        assert!(world.commit().empty);
        without_times(state(&world.real("")))
    };
    let mut step = 0;
    loop {
        let world = changed();
        let killed = commit(&world.top, step, None);
        if killed && overlay::kept(&world.session()) {
            // Killed once more on the way, then done.
            commit(&world.top, step % 3, None);
        }
        if overlay::kept(&world.session()) {
            let overlay = world.open();
            if overlay.interrupted() {
                assert!(overlay.discard(false).is_err(), "half of it must not be dropped");
            }
            assert!(world.commit().empty, "step {step}");
        }
        assert_eq!(without_times(state(&world.real(""))), wanted, "step {step}");
        if !killed {
            break;
        }
        step += 1;
    }
    assert!(step > 20, "only {step} steps");
}

#[test]
fn what_the_host_writes_during_the_commit_is_never_lost() {
    for name in ["real/kept/a", "real/gone/deep/file", "real/anew/both"] {
        for step in 0.. {
            let world = changed();
            let old = fs::read_to_string(world.top.join(name)).unwrap();
            let stopped = commit(&world.top, step, Some(name));
            no_traces(&world.real(""));
            let all = without_times(state(&world.real("")));
            let ours = format!("{old} and the host's");
            let lives = all.iter().any(|(_, text)| text.contains(&ours));
            // Stopped with the host's bytes in place; or they came when the file was ours.
            assert!(!stopped || lives, "{name}, step {step}: {all:?}");
            if lives {
                assert!(stopped, "{name}, step {step}");
                assert!(world.open().commit(&Select::default()).is_err(), "it is named again");
                let forced = Select { paths: Vec::new(), force: true };
                assert!(world.open().commit(&forced).unwrap().empty);
            }
            if !overlay::kept(&world.session()) && !stopped && step > 30 {
                break;
            }
        }
    }
}
