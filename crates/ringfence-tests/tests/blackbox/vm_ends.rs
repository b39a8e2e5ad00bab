//! `--tier vm`: whoever of a session's processes is killed, nothing of it is left.

use super::vm::{cache, guests, guests_of_one, guests_of_one_apart, ringfence, start};
use ringfence_tests::{PATIENCE, Place, Running, Terminal, binary, until};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// A process of a session's.
struct Member {
    words: String,
    pidfd: OwnedFd,
}

/// A launcher's descendants.
fn family(launcher: u32) -> Vec<Member> {
    let parent = |pid: u32| -> Option<u32> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
    };
    let descends = |pid: u32| {
        std::iter::successors(Some(pid), |&pid| parent(pid)).skip(1).any(|pid| pid == launcher)
    };
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        let Some(pid) = pid.filter(|&pid| descends(pid)) else { continue };
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        if let Some(Ok(pidfd)) =
            Pid::from_raw(pid as i32).map(|pid| pidfd_open(pid, PidfdFlags::empty()))
        {
            found.push(Member { words, pidfd });
        }
    }
    found
}

/// Directories of machines, wherever they may be made.
fn directories(place: &Place) -> Vec<String> {
    let places = [place.at("tmp"), "/tmp".into(), "/dev/shm".into()];
    let own = format!("{}", place.person.ids().0);
    let mut found = Vec::new();
    for entry in places.iter().flat_map(|place| fs::read_dir(place).into_iter().flatten().flatten())
    {
        use std::os::unix::fs::MetadataExt;
        let name = entry.file_name().to_string_lossy().into_owned();
        let user = entry.metadata().map(|data| data.uid().to_string()).unwrap_or_default();
        if name.starts_with("ringfence-vm-") && user == own {
            found.push(entry.path().display().to_string());
        }
    }
    found
}

#[test]
fn whoever_of_a_session_is_killed_all_end_and_nothing_is_left() {
    // Each by a word of its command line: none is the launcher itself.
    let victims = [
        ("the launcher", None),
        ("QEMU", Some(" machine-restore ")),
        ("the launcher of QEMU", Some(" run --tier namespace ")),
        ("the bridge", Some(" guest-bridge ")),
    ];
    guests(|place| {
        for (who, word) in victims {
            let mut running = start(place, &[], &["sh", "-c", "echo up; sleep 1000"]);
            running.printed("up\n");
            let family = family(running.pid());
            match word {
                None => running.signal(Signal::KILL),
                Some(word) => {
                    // The command line of a launcher holds that of what it launches.
                    let own = |member: &&Member| match who {
                        // Where no clone of its process begins it is QEMU itself.
                        "QEMU" => {
                            let is = |word| member.words.contains(word);
                            (is(word) || is("qemu-system")) && !is(" run ")
                        }
                        "the launcher of QEMU" => member.words.contains(word),
                        _ => member.words.contains(word),
                    };
                    let victim = family.iter().find(own);
                    let victim = victim.unwrap_or_else(|| panic!("{who} is not there"));
                    pidfd_send_signal(&victim.pidfd, Signal::KILL).unwrap();
                }
            }
            let ended = running.finish();
            assert!(!matches!(ended.code, 0 | 124), "{who}: {}", ended.code);
            assert!(family.len() >= 4, "{who}: {}", family.len());
            for member in &family {
                let mut watched = [PollFd::new(&member.pidfd, PollFlags::IN)];
                let limit = Timespec::try_from(PATIENCE).unwrap();
                let count = poll(&mut watched, Some(&limit)).unwrap();
                assert_eq!(count, 1, "{who} was killed, and this lives: {}", member.words);
            }
            assert_eq!(place.left_behind(), [""; 0], "{who}");
            assert_eq!(directories(place), [""; 0], "{who}");
        }
    });
}

/// While its command runs the bridge lets every byte of the terminal through.
#[test]
fn the_terminal_is_as_before_however_a_session_ends() {
    guests_of_one(|place| {
        let mut terminal = Terminal::shell(place);
        let (rf, cache) = (binary(), cache(place.person));
        terminal.line(&format!(
            "XDG_CACHE_HOME='{}' {} run --tier vm --name one -- sh -c 'stty -echo; echo u''p; sleep 1000'",
            cache.display(),
            rf.display()
        ));
        terminal.shows("\nup");
        let kill = ringfence(place, &["kill", "--signal", "KILL", "one"]);
        Running::start(kill).finish().ends(0);
        terminal.code(137);
        terminal.line("stty -a; echo e''nd");
        let settings = terminal.shows("\nend");
        assert!(settings.contains(" icanon") && settings.contains(" echo "), "{settings}");
        terminal.leave();
    });
}

/// The key goes to the guest's terminal; who started the run is to see how the command ended all the same.
#[test]
fn a_command_that_a_key_ended_ends_the_run_by_its_signal() {
    guests_of_one(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        let text = "import subprocess, sys\n\
                    print('back', subprocess.run(sys.argv[1:]).returncode, 'en' + 'd')\n";
        fs::write(place.project("tells.py"), text).unwrap();
        let mut terminal = Terminal::shell(place);
        for (trap, code) in [("", -2), ("trap \"exit 5\" INT; ", 5)] {
            terminal.line(&format!(
                "XDG_CACHE_HOME='{}' python3 tells.py {} run --tier vm -- sh -c '{trap}echo u\"\"p; while :; do sleep 0.1; done'",
                cache(place.person).display(),
                binary().display()
            ));
            terminal.shows("\nup");
            terminal.types("\x03");
            let shown = terminal.shows(" end");
            assert!(shown.contains(&format!("back {code}")), "{shown}");
            terminal.shows("ready> ");
        }
        terminal.leave();
    });
}

/// Whoever reads a command's output may take his time, but for when it was told to end.
#[test]
fn a_command_that_was_told_to_end_waits_for_no_reader() {
    guests_of_one(|place| {
        let mut first = start(place, &["--name", "one"], &["sh", "-c", "echo up; sleep 1000"]);
        first.printed("up\n");
        let mut exec =
            ringfence(place, &["exec", "one", "--", "sh", "-c", "echo in >&2; exec yes"]);
        let (reader, writer) = std::io::pipe().unwrap();
        exec.stdout(writer).stderr(std::process::Stdio::piped());
        let mut exec = exec.spawn().unwrap();
        let mut said = [0; 3];
        exec.stderr.take().unwrap().read_exact(&mut said).unwrap();
        // What a pipe holds (pipe(7)).
        let held = 65536;
        until("the pipe is full", || rustix::io::ioctl_fionread(&reader).unwrap() == held);
        let pid = Pid::from_raw(exec.id() as i32).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        let mut code = None;
        until("it ends", || {
            code = exec.try_wait().unwrap();
            code.is_some()
        });
        assert_eq!(code.and_then(|code| code.code()), Some(143));
        drop(reader);
        first.signal(Signal::TERM);
        first.finish().ends(143);
    });
}

#[test]
fn a_clone_that_does_not_begin_is_replaced_once_before_anything_has_run() {
    // Whoever it is: nothing in it depends on that.
    guests_of_one(|place| {
        let run = |fault: &str| {
            let script = "echo ran >> here; exit 5";
            let mut command = ringfence(place, &["run", "--tier", "vm", "--", "sh", "-c", script]);
            command.env("RINGFENCE_FAULT", fault);
            Running::start(command).finish()
        };
        let ran = || fs::read_to_string(place.project("here")).unwrap_or_default();
        run("machines-mute").ends(125).says("neither did a second one");
        assert_eq!(ran(), "");
        run("machine-mute").ends(5);
        assert_eq!(ran(), "ran\n");
        assert_eq!(place.left_behind(), [""; 0]);
        assert_eq!(directories(place), [""; 0]);
    });
}

#[test]
fn a_stop_while_a_guest_boots_does_no_harm() {
    // A neighbour would save one meanwhile, of which this one would be a clone.
    guests_of_one_apart(|place| {
        // No clone of it is there: it boots.
        Running::start(ringfence(place, &["vm", "clean"])).finish().ends(0);
        let mut running = start(place, &[], &["sh", "-c", "echo up; exit 3"]);
        let boots = || family(running.pid()).iter().any(|one| one.words.contains(" -initrd "));
        until("a guest boots", boots);
        let state = || {
            let status = fs::read_to_string(format!("/proc/{}/status", running.pid())).unwrap();
            status.lines().find_map(|line| line.strip_prefix("State:\t")?.chars().next()).unwrap()
        };
        // In whatever it waits for, until the guest has said hello.
        let saved = || {
            let entries = fs::read_dir(cache(place.person).join("ringfence/vm")).unwrap().flatten();
            let said =
                |path: PathBuf| path.join("state").exists() || path.join("state.new").exists();
            entries.map(|entry| entry.path()).any(said)
        };
        while !saved() && state() != 'Z' {
            running.signal(Signal::STOP);
            until("it is stopped, or has ended", || "TZ".contains(state()));
            running.signal(Signal::CONT);
            until("it goes on", || state() != 'T');
        }
        running.printed("up\n");
        running.finish().ends(3);
    });
}
