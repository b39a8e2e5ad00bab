//! The launch path: nothing executed but the command, no walk through the mounts.

use ringfence_tests::{Person, Tier, everybody, everywhere, left_out};

#[test]
fn nothing_is_executed_but_the_command_and_no_mount_table_is_read() {
    everywhere(|place| {
        if !place.has("strace", "--version") {
            return;
        }
        let traced = place.shell(
            "mkdir calls; strace -ff -qq -s 4096 -e signal=none -e trace=execve,execveat,open,openat,openat2 -o calls/of \
             $RF -- /bin/true; echo $?",
        );
        if traced.text() != "0" {
            return left_out("strace", &traced.err);
        }
        // One file for each process, by its number.
        let mut files: Vec<_> =
            std::fs::read_dir(place.project("calls")).unwrap().flatten().collect();
        files.sort_by_key(|file| {
            file.path().extension().unwrap().to_string_lossy().parse::<u32>().unwrap()
        });
        let calls: Vec<_> =
            files.iter().map(|file| std::fs::read_to_string(file.path()).unwrap()).collect();
        let executed: Vec<&str> = calls
            .iter()
            .flat_map(|calls| calls.lines())
            .filter(|line| line.contains("execve") && line.ends_with("= 0"))
            .collect();
        assert_eq!(executed.len(), 2, "ringfence and the command: {executed:?}");
        assert!(executed[0].contains(ringfence_tests::binary().to_str().unwrap()), "{executed:?}");
        // A tracer that is not root cannot read the memory of the process that watches inside,
        // and sees pointers in the place of names.
        let command = executed[1].split('"').nth(1).unwrap_or("hidden/true");
        assert!(command.ends_with("/true"), "{executed:?}");
        for file in ["mountinfo", "/proc/self/mounts", "/etc/mtab\"", "/proc/mounts"] {
            let by_ringfence = calls.iter().filter_map(|calls| calls.split("/true\"").next());
            let opened = by_ringfence.filter(|calls| calls.contains(file)).count();
            assert_eq!(opened, 0, "{file} is opened");
        }
    });
}

#[test]
fn a_start_does_as_much_in_a_large_project_as_in_a_small_one() {
    everybody(Tier::Namespace, |place| {
        if !place.has("strace", "--version") {
            return;
        }
        let mut counts = Vec::new();
        place.shell("mkdir small large && cd large && seq 20000 | xargs touch && mkdir -p $(seq 20001 20300)").ends(0);
        for project in ["small", "large"] {
            let traced = place.shell(&format!(
                "cd {project} && strace -f -qq -e signal=none -o ../calls $RF -- /bin/true; echo $?"
            ));
            if traced.text() != "0" {
                return left_out("strace", &traced.err);
            }
            let calls = std::fs::read_to_string(place.project("calls")).unwrap();
            // A call that another process interrupts has two lines.
            counts.push(calls.lines().filter(|line| !line.contains("<... ")).count());
        }
        let (small, large) = (counts[0] as i64, counts[1] as i64);
        // Names are looked up one by one where a listing would be long, and what a run of some
        // length may have changed is looked for: a bounded number, with 20,300 names there.
        assert!(
            (large - small).abs() < 1500,
            "{small} calls in the small one, {large} in the large one"
        );
    });
}

#[test]
fn a_plain_exec_is_over_before_libc_is_up() {
    everywhere(|place| {
        if !place.has("strace", "--version") {
            return;
        }
        let sleeping = ["sh", "-c", "echo up; exec sleep 1000"];
        let mut running = place.start(&["--name", "host"], &sleeping);
        running.printed("up\n");
        let id = place.ringfence(["exec", "host", "printenv", "RINGFENCE_SESSION"]).quiet();
        let binary = ringfence_tests::binary().display().to_string();
        let calls = |words: &str, code: i32| {
            let line = format!("strace -qq -o calls {binary} exec {words}; echo $?");
            assert_eq!(place.shell(&line).text().lines().last(), Some(&*code.to_string()));
            std::fs::read_to_string(place.project("calls")).unwrap()
        };
        // What libc begins with: the heap.
        let of_libc = |calls: &str| calls.contains("brk(");
        let plain = "-- sh -c 'exit 7' </dev/null";
        for session in ["host", id.trim()] {
            let early = calls(&format!("{session} {plain}"), 7);
            assert!(!of_libc(&early), "{early}");
        }
        // What is not plain: options, and an end that is no exit code.
        for other in ["-e A=b host -- sh -c 'exit 7'", "host --workdir . -- sh -c 'exit 7'"] {
            assert!(of_libc(&calls(&format!("{other} </dev/null"), 7)), "{other}");
        }
        assert!(of_libc(&calls("host -- sh -c 'kill $$' </dev/null", 143)));
        assert!(of_libc(&calls("host -- no-such-program </dev/null", 127)));
        place.ringfence(["kill", "host"]).quiet();
        running.finish().ends(143);
    });
}

#[test]
fn the_command_cannot_gain_privileges() {
    everywhere(|place| {
        let status = place.sh(&[], "grep -E '^(NoNewPrivs|Seccomp|CapEff|CapPrm|CapBnd|CapAmb|CapInh)' /proc/self/status").quiet();
        let of = |key: &str| {
            status
                .lines()
                .find_map(|line| line.strip_prefix(key))
                .unwrap()
                .trim_start_matches(':')
                .trim()
                .to_owned()
        };
        assert_eq!((of("NoNewPrivs").as_str(), of("Seccomp").as_str()), ("1", "2"));
        for set in ["CapEff", "CapPrm", "CapAmb", "CapInh"] {
            assert_eq!(of(set), "0000000000000000", "{set} as {:?}", place.person);
        }
        // An ordinary user needs a user namespace to drop these; without new privileges they are
        // nobody's to gain.
        if place.tier == Tier::Namespace || place.person == Person::Root {
            assert_eq!(of("CapBnd"), "0000000000000000");
        }
    });
}

#[test]
fn the_process_that_puts_right_what_is_left_is_not_changed_by_number() {
    everybody(Tier::Namespace, |place| {
        for (program, change) in [
            ("prlimit", "prlimit --nofile=0:0 --pid"),
            ("renice", "renice -n 5 -p"),
            ("chrt", "chrt -i -p 0"),
            ("taskset", "taskset -p 1"),
        ] {
            if !place.has(program, "--version") {
                continue;
            }
            let own = change.replace("=0:0", "=64:64");
            let run = place.sh(&[], &format!("({change} 1) >&2; echo $?; ({own} $$) >&2; echo $?"));
            assert_eq!(run.text(), "1\n0", "{program}: {}", run.err);
        }
    });
}

/// Changes how threads are scheduled by their numbers, as libraries do: its own, its process's, one beside it. Then
/// another process's.
const BY_NUMBER: &str = "
import ctypes, os, resource, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
said = []
def attempt(name, act):
    try: act(); said.append(name)
    except OSError as e: said.append(name + ':' + str(e.errno))
class Param(ctypes.Structure): _fields_ = [('priority', ctypes.c_int)]
libc.pthread_self.restype = ctypes.c_ulong
def scheduled():
    code = libc.pthread_setschedparam(ctypes.c_ulong(libc.pthread_self()), 0, ctypes.byref(Param(0)))
    if code: raise OSError(code, '')
def all_of(tid, name):
    cpus = os.sched_getaffinity(0)
    attempt(name + '-affinity', lambda: os.sched_setaffinity(tid, cpus))
    attempt(name + '-scheduler', lambda: os.sched_setscheduler(tid, os.SCHED_BATCH, os.sched_param(0)))
    attempt(name + '-nice', lambda: os.setpriority(os.PRIO_PROCESS, tid, 7))
def limits(pid): resource.prlimit(pid, resource.RLIMIT_NOFILE, (64, 64))
if len(sys.argv) > 1:
    other = int(sys.argv[1]); all_of(other, 'other'); attempt('other-limits', lambda: limits(other))
else:
    attempt('pthread', scheduled)
    all_of(os.getpid(), 'own')
    ready, over = threading.Event(), threading.Event()
    beside = threading.Thread(target=lambda: (ready.set(), over.wait())); beside.start(); ready.wait()
    all_of(beside.native_id, 'beside'); over.set(); beside.join()
    mine = threading.Thread(target=lambda: (attempt('thread-pthread', scheduled), all_of(os.getpid(), 'process')))
    mine.start(); mine.join()
    attempt('limits', lambda: limits(os.getpid()))
    attempt('group', lambda: os.setpriority(os.PRIO_PGRP, os.getpid(), 8))
print(*said)
";

#[test]
fn a_thread_changes_its_own_process_by_number_and_no_other() {
    everybody(Tier::Process, |place| {
        if !place.has("python3", "--version") {
            return;
        }
        let own = place.run(&[], &["python3", "-c", BY_NUMBER]);
        own.ends(0).prints(
            "pthread own-affinity own-scheduler own-nice beside-affinity beside-scheduler \
             beside-nice thread-pthread process-affinity process-scheduler process-nice limits group:1",
        );
        // One of the same user's, outside.
        let mut outside = place.shell_start("echo ready; exec sleep 1000");
        outside.printed("ready");
        let number = outside.pid().to_string();
        let state = || {
            let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).unwrap();
            let limits = std::fs::read_to_string(format!("/proc/{number}/limits")).unwrap();
            let after = stat.rsplit_once(") ").unwrap().1;
            let fields: Vec<_> = after.split(' ').map(str::to_owned).collect();
            // Its niceness, and its policy.
            (fields[16].clone(), fields[38].clone(), limits)
        };
        let before = state();
        let refused = place.run(&[], &["python3", "-c", BY_NUMBER, &number]);
        refused.ends(0).prints("other-affinity:1 other-scheduler:1 other-nice:1 other-limits:1");
        assert_eq!(state(), before);
        // The control: without a sandbox it is changed.
        std::fs::write(place.project("by.py"), BY_NUMBER).unwrap();
        let done = place.shell(&format!("python3 by.py {number}")).text();
        assert_eq!(done, "other-affinity other-scheduler other-nice other-limits");
        assert_ne!(state(), before);
        drop(outside);
    });
}

/// What is in a file would be changed, and no time of it would tell.
#[test]
fn nothing_is_exchanged_between_files() {
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        let script = "import errno, fcntl, os, struct
one, other = (os.open(name, os.O_RDWR | os.O_CREAT) for name in ('one', 'other'))
os.write(one, b'1' * 4096); os.write(other, b'2' * 4096)
for request in (0xc028660f, 0xc0c0586d, 0x40285881, 0x40585883, 0xc020f509):
    try: fcntl.ioctl(one, request, struct.pack('=II', 0, other) + b'\\0' * 248); print('done')
    except OSError as error: print(errno.errorcode[error.errno])";
        std::fs::write(place.project("exchange.py"), script).unwrap();
        // The control: none of them is known to all file systems, and one that is says something else.
        let outside = place.shell("python3 exchange.py").well();
        assert!(!outside.contains("EPERM"), "{outside}");
        let inside = place.run(&[], &["python3", "exchange.py"]).well();
        assert_eq!(inside, "EPERM\n".repeat(5).trim_end());
    });
}
