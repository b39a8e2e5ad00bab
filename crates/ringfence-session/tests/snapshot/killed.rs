//! A process that is killed in the middle of an operation.

use crate::store::{create, open};
use ringfence_session::snapshot::{Select, fault};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs an operation in another process, which is killed at its step of this number. False: it
/// came to its end first.
pub fn killed(top: &Path, operation: &str, step: usize) -> bool {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::child", "--ignored", "--test-threads=1", "-q"])
        .env("RINGFENCE_TEST_TOP", top)
        .env("RINGFENCE_TEST_OPERATION", operation)
        .env("RINGFENCE_TEST_STEP", step.to_string())
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap();
    match status.signal() {
        Some(9) => true,
        None if status.success() => false,
        _ => panic!("the child ended with {status}"),
    }
}

#[test]
#[ignore = "run by other tests, as a process of its own"]
fn child() {
    let get = |name: &str| std::env::var(format!("RINGFENCE_TEST_{name}")).unwrap();
    let top = PathBuf::from(std::env::var_os("RINGFENCE_TEST_TOP").unwrap());
    let step: usize = get("STEP").parse().unwrap();
    let passed = AtomicUsize::new(0);
    fault::install(move |_| {
        if passed.fetch_add(1, Ordering::Relaxed) == step {
            let me = rustix::process::getpid();
            rustix::process::kill_process(me, rustix::process::Signal::KILL).unwrap();
        }
    });
    let small = top.join("disk").is_dir();
    let mut store = if small { crate::full::open(&top) } else { open(&top, None) };
    let operation = get("OPERATION");
    match operation.split_once(' ') {
        Some(("revert", id)) => {
            let to = store.find(id).unwrap();
            store.revert(&to, &Select::default()).unwrap();
        }
        None if operation == "create" => drop(create(&mut store)),
        None if operation == "resume" => drop(store.resume().unwrap()),
        None if operation == "compact" => drop(store.compact(&[], None).unwrap()),
        _ => panic!("{operation}"),
    }
}

#[test]
fn a_revert_killed_at_each_step_is_finished() {
    let place = crate::store::Place::new();
    let work = place.work();
    let before = |place: &crate::store::Place| {
        place.write("a/kept", "kept");
        place.write("a/changed", "before");
        place.write("deleted/deep/file", "deleted");
        std::fs::hard_link(work.join("a/kept"), work.join("linked")).unwrap();
        std::os::unix::fs::symlink("a", work.join("link")).unwrap();
    };
    before(&place);
    let wanted = crate::state::state(&work);
    let mut store = place.open();
    let base = create(&mut store);
    let spoil = || {
        for entry in std::fs::read_dir(&work).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                std::fs::remove_dir_all(path).unwrap();
            } else {
                std::fs::remove_file(path).unwrap();
            }
        }
        place.write("a/changed", "after!");
        place.write("linked", "its own");
        place.write("link/now/a/directory", "x");
        place.write("new", "new");
    };
    let mut step = 0;
    loop {
        spoil();
        let spoiled = crate::state::state(&work);
        let was_killed = killed(place.top.path(), &format!("revert {}", base.id), step);
        if was_killed {
            let pending = store.pending().unwrap();
            if pending.is_none() {
                assert_eq!(crate::state::state(&work), spoiled, "step {step}");
                step += 1;
                continue;
            }
            // Killed once more on the way, then done.
            killed(place.top.path(), "resume", step % 5);
            store.resume().unwrap();
        }
        assert_eq!(crate::state::state(&work), wanted, "step {step}");
        assert_eq!(store.pending().unwrap(), None);
        // What was replaced is not lost: one of the states kept before a revert has it.
        let kept = store.list().unwrap().into_iter().any(|snapshot| {
            store
                .entry(&snapshot, Path::new("new"))
                .unwrap()
                .is_some_and(|entry| store.read(&entry, 99).unwrap().unwrap() == b"new")
        });
        assert!(kept);
        if !was_killed {
            break;
        }
        step += 1;
    }
    assert!(step > 15, "only {step} steps");
}
