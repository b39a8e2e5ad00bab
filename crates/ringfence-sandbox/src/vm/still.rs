//! A machine that is held still: its processes are found from its launcher, and stopped.

use super::assets::QEMU;
use ringfence_sys as sys;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};

const SIGCONT: i32 = 18;
const SIGSTOP: i32 = 19;

/// The first words of programs that hold a monitor, or are one, and have its path or word among the others.
const STANDS_FOR: [&[u8]; 3] = [b"run", super::RESTORE.as_bytes(), KRUN];
/// The word of one of libkrun's.
const KRUN: &[u8] = super::krun::MACHINE.as_bytes();

/// Stops the QEMU of a launcher.
///
/// # Errors
/// It has none.
pub fn hold(launcher: i32) -> Result<(), String> {
    signal(launcher, SIGSTOP)
}

/// Lets it go on.
///
/// # Errors
/// It has none.
pub fn release(launcher: i32) -> Result<(), String> {
    signal(launcher, SIGCONT)
}

fn signal(launcher: i32, number: i32) -> Result<(), String> {
    let mut any = false;
    for process in machine(launcher) {
        let sent = sys::signal::send(process.as_fd(), number);
        sent.map_err(|errno| format!("pidfd_send_signal: {}", sys::describe(errno)))?;
        any = true;
    }
    if any { Ok(()) } else { Err("it has no virtual machine".to_owned()) }
}

/// The processes of a launcher's machine: QEMU, and what QEMU is the command of, down from the launcher.
/// Nothing of a guest's is among them, whatever it is called.
fn machine(launcher: i32) -> Vec<OwnedFd> {
    below(launcher, is_machine).into_iter().map(|(_, held)| held).collect()
}

/// The QEMU of a launcher, that was started as such.
#[cfg(target_arch = "x86_64")]
pub(super) fn monitor(launcher: i32) -> Option<(i32, OwnedFd)> {
    let qemu = |pid| first_word(pid).ends_with(QEMU.as_bytes());
    below(launcher, qemu).into_iter().next()
}

/// Processes down from a launcher that are what is looked for.
fn below(launcher: i32, wanted: impl Fn(i32) -> bool) -> Vec<(i32, OwnedFd)> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let mut found = Vec::new();
    for pid in numbers {
        // Held before it is looked at: the number cannot become another's.
        let Ok(held) = sys::process::pidfd(pid) else { continue };
        let mut above = Some(pid);
        let below = (0..8).any(|_| {
            above = above.and_then(parent);
            above == Some(launcher)
        });
        if below && wanted(pid) {
            found.push((pid, held));
        }
    }
    found
}

fn parent(pid: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

#[cfg(target_arch = "x86_64")]
fn first_word(pid: i32) -> Vec<u8> {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    words.split(|&byte| byte == 0).next().unwrap_or_default().to_vec()
}

/// Whether a process is QEMU or its own launcher.
fn is_machine(pid: i32) -> bool {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words: Vec<&[u8]> = words.split(|&byte| byte == 0).collect();
    let qemu = |word: &[u8]| word.ends_with(QEMU.as_bytes());
    // Its launcher; and what goes on from a checkpoint, whose words are those of the program that mapped it.
    let stands_for = words.get(1).is_some_and(|word| STANDS_FOR.contains(word));
    let krun = |word: &[u8]| word == KRUN;
    words.first().is_some_and(|word| qemu(word))
        || stands_for && words.iter().any(|word| qemu(word) || krun(word))
}
