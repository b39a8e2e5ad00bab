//! Leaving nothing behind, however the bench ends.
//!
//! Three processes: the one that the user started waits and passes signals on; the **keeper**, its
//! child in a session of its own, starts the **worker**, which measures. Both waiting processes are
//! subreapers, so whatever the worker started falls to one of them when the worker dies. Whichever
//! of the three is killed, even by SIGKILL, another is left that kills all descendants and removes
//! the working directory:
//!
//! - the worker killed: the keeper sees it end;
//! - the keeper killed: the worker dies with it (parent-death signal), the first process sees it end;
//! - the first process killed: the keeper gets SIGTERM by its parent-death signal.
//!
//! The direct children of the worker die with it besides. Network namespaces, bridges and rules
//! have no names: they exist only as long as such a process does (see [`crate::groups`]' service).

use crate::error::{Error, Result};
use crate::sys::{process, signal};
use std::collections::HashMap;
use std::path::Path;

/// How long a clean-up may take before it is given up.
const CLEANUP_SECONDS: u32 = 20;

/// Runs `body` in a worker, removes `work` afterwards, and answers the exit code of `body`, or
/// 128 + the number of the signal that ended it.
pub fn supervise(work: &Path, body: impl FnOnce() -> i32) -> Result<i32> {
    let failed = |cause| Error::new(format!("cannot fork: {cause}"));
    signal::hold();
    process::adopt_orphans();
    let first = std::process::id();
    let Some(keeper) = process::fork().map_err(failed)? else {
        process::exit_now(keep(first, work, body));
    };
    let mut asked = None;
    let code = loop {
        match signal::next() {
            signal::SIGCHLD => {
                if let Some(code) = reap(keeper) {
                    break code;
                }
            }
            stop => {
                asked = Some(stop);
                signal::send(keeper, signal::SIGTERM);
            }
        }
    };
    clean(work); // nothing to do, unless the keeper was killed
    signal::release();
    Ok(asked.map_or(code, |signal| 128 + signal))
}

/// The keeper's life.
fn keep(first: u32, work: &Path, body: impl FnOnce() -> i32) -> i32 {
    process::new_session();
    process::die_with_parent(signal::SIGTERM);
    process::adopt_orphans();
    if process::parent().cast_unsigned() != first {
        return 128 + signal::SIGTERM; // it died before the line above took effect
    }
    let keeper = std::process::id();
    let worker = match process::fork() {
        Ok(Some(worker)) => worker,
        Ok(None) => {
            process::die_with_parent(signal::SIGKILL);
            signal::release();
            if process::parent().cast_unsigned() != keeper {
                process::exit_now(128 + signal::SIGKILL);
            }
            std::process::exit(body());
        }
        Err(error) => {
            eprintln!("ringfence: cannot fork: {error}");
            return 125;
        }
    };
    let code = loop {
        match signal::next() {
            signal::SIGCHLD => {
                if let Some(code) = reap(worker) {
                    break code;
                }
            }
            stop => {
                signal::send(worker, signal::SIGKILL);
                break 128 + stop;
            }
        }
    };
    clean(work);
    code
}

/// Reaps all that has ended; the code of `awaited`, if it is among them.
fn reap(awaited: i32) -> Option<i32> {
    let mut found = None;
    while let Some((pid, code)) = signal::reap(false) {
        if pid == awaited {
            found = Some(code);
        }
    }
    found
}

/// Kills every descendant of this process, waits for each, and removes `work`.
fn clean(work: &Path) {
    process::end_after(CLEANUP_SECONDS);
    loop {
        for pid in descendants() {
            signal::send(pid, signal::SIGKILL);
        }
        if signal::reap(true).is_none() {
            break;
        }
    }
    remove(work);
    process::end_after(0);
}

/// Removes a directory, making directories that took their own permissions away accessible first.
pub fn remove(dir: &Path) {
    if std::fs::remove_dir_all(dir).is_ok() || !dir.exists() {
        return;
    }
    open_up(dir);
    let _ = std::fs::remove_dir_all(dir);
}

fn open_up(dir: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let _ = std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700));
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_up(&entry.path());
        }
    }
}

/// The numbers of all processes below this one.
#[must_use]
pub fn descendants() -> Vec<i32> {
    descendants_of(std::process::id().cast_signed())
}

/// The numbers of all processes below `root`.
#[must_use]
pub fn descendants_of(root: i32) -> Vec<i32> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        // The name stands in parentheses and may hold anything, parentheses included.
        let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
        if let Some(parent) = after.split_whitespace().nth(1).and_then(|field| field.parse().ok()) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found = Vec::new();
    let mut open = vec![root];
    while let Some(pid) = open.pop() {
        if let Some(below) = children.remove(&pid) {
            open.extend(&below);
            found.extend(below);
        }
    }
    found
}
