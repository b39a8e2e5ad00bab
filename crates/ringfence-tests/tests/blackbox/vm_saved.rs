//! Clones that go on from QEMU's saved process, and those for which it is of no use.

use super::vm::{cache, guests_apart, guests_of_one_apart, ringfence, start};
use ringfence_tests::{Place, Running, binary, write_program};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;

/// The one template that there is after `vm clean` and a run.
fn template(place: &Place) -> PathBuf {
    Running::start(ringfence(place, &["vm", "clean"])).finish().ends(0);
    start(place, &[], &["true"]).finish().ends(0);
    let entries = fs::read_dir(cache(place.person).join("ringfence/vm")).unwrap().flatten();
    let is = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("template-");
    let found: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].clone()
}

/// How QEMU is started for a command that waits: by its own words, or as what was saved.
fn started(place: &Place) -> &'static str {
    looked_at(place, |_| {})
}

/// The same, of a process that is looked at while the command waits.
fn looked_at(place: &Place, look: impl Fn(u32)) -> &'static str {
    let mut running = start(place, &[], &["sh", "-c", "echo up; exec sleep 1000"]);
    running.printed("up\n");
    let words = |pid: u32| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let all = fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let below = |mut pid: u32| {
        (0..8).any(|_| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let parent = status.lines().find_map(|line| line.strip_prefix("PPid:\t"));
            pid = parent.and_then(|parent| parent.parse().ok()).unwrap_or(0);
            pid == running.pid()
        })
    };
    let mut found: Vec<(u32, &str)> = pids
        .filter(|&pid| below(pid))
        .filter_map(|pid| {
            let words = words(pid);
            let mut list = words.split('\0');
            let (first, second) = (list.next()?, list.next()?);
            if first.ends_with("/qemu-system-x86_64") {
                Some((pid, "started"))
            } else if second == "machine-restore" {
                let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
                assert_eq!(name, "qemu-system-x86\n");
                Some((pid, "restored"))
            } else {
                None
            }
        })
        .collect();
    assert_eq!(found.len(), 1, "{found:?}");
    let (pid, kind) = found.remove(0);
    look(pid);
    running.signal(Signal::TERM);
    running.finish().ends(143);
    kind
}

/// A program of so few instructions that writes what the first of them, of four bytes, leaves in `rax`.
fn writes_a_word(instruction: [u8; 4]) -> Vec<u8> {
    const CODE: [u8; 21] = [
        0x50, // push rax
        0x6a, 0x01, 0x58, // mov eax, 1: write(2)
        0x89, 0xc7, // mov edi, eax
        0x48, 0x89, 0xe6, // mov rsi, rsp
        0x6a, 0x08, 0x5a, // mov edx, 8
        0x0f, 0x05, // syscall
        0x6a, 0x3c, 0x58, // mov eax, 60: exit(2)
        0x31, 0xff, // xor edi, edi
        0x0f, 0x05, // syscall
    ];
    const BASE: u64 = 0x40_0000;
    const HEADERS: u64 = 64 + 56;
    let code = [&instruction[..], &CODE].concat();
    let size = HEADERS + code.len() as u64;
    // elf(5): 64 bits, an executable for x86-64, one segment that is read and executed.
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec();
    let words = |file: &mut Vec<u8>, list: &[u64]| {
        list.iter().for_each(|word| file.extend(word.to_le_bytes()));
    };
    words(&mut file, &[BASE + HEADERS, 64, 0]);
    file.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 64, 0, 0, 0, 0, 0]);
    file.extend([1, 0, 0, 0, 5, 0, 0, 0]);
    words(&mut file, &[0, BASE, BASE, size, size, 4096]);
    file.extend(code);
    file
}

/// What QEMU draws itself is the same in all clones of its saved process: a guest's program is given none of it.
#[test]
fn no_two_clones_draw_the_same_numbers() {
    guests_of_one_apart(|place| {
        let program = place.project("draws");
        let draw = |instruction| {
            write_program(&program, writes_a_word(instruction));
            let ended = start(place, &[], &["./draws"]).finish();
            (ended.code, ended.out)
        };
        // The control: `xor rax, rax; nop` is executed, and the word that it leaves is heard.
        assert_eq!(draw([0x48, 0x31, 0xc0, 0x90]), (0, vec![0; 8]));
        for (name, instruction) in
            [("rdrand", [0x48, 0x0f, 0xc7, 0xf0]), ("rdseed", [0x48, 0x0f, 0xc7, 0xf8])]
        {
            let (one, two) = (draw(instruction), draw(instruction));
            // 132: killed by SIGILL.
            assert!(one.0 == 132 && two.0 == 132 || one.1 != two.1, "{name}: {one:?} {two:?}");
        }
        // A guest that KVM executes has its processor's, whose numbers are nobody else's.
        let flags = "grep -c -w -e rdrand -e rdseed /proc/cpuinfo";
        if fs::metadata(template(place).join("process")).is_ok() {
            assert_eq!(start(place, &[], &["sh", "-c", flags]).finish().ends(1).text(), "0");
        }
    });
}

#[test]
fn a_clone_goes_on_from_the_process_that_was_saved() {
    guests_apart(|place| {
        let template = template(place);
        assert_eq!(fs::read_to_string(template.join("no-process")).ok(), None);
        assert_eq!(started(place), "restored");
        // Its threads, clock and streams are all there: what two of them say of themselves is their own.
        let script =
            "cat /etc/machine-id; od -An -N16 -tx1 /dev/urandom; date +%s; sleep 0.01; cat; exit 7";
        let said = || {
            let command = ringfence(place, &["run", "--tier", "vm", "--", "sh", "-c", script]);
            let ended = Running::start_with(command, vec![b'x'; 1 << 20]).finish();
            let text = ended.ends(7).text();
            let lines: Vec<String> = text.lines().map(str::to_owned).collect();
            assert_eq!(lines[3].len(), 1 << 20);
            lines
        };
        let (one, two) = (said(), said());
        assert_ne!(one[0], two[0]);
        assert_ne!(one[1], two[1]);
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
        let seconds: u64 = two[2].parse().unwrap();
        assert!(now - seconds < 600, "{now} {seconds}");
        // The control: it is started as ever where nothing was saved.
        let (process, aside) = (template.join("process"), template.join("aside"));
        fs::rename(&process, &aside).unwrap();
        assert_eq!(started(place), "started");
        fs::rename(&aside, &process).unwrap();
        assert_eq!(started(place), "restored");
        assert_eq!(place.left_behind(), [""; 0]);
    });
}

#[test]
fn a_clone_has_open_what_the_saved_process_had() {
    guests_apart(|place| {
        let template = template(place);
        let saved: Value =
            serde_json::from_slice(&fs::read(template.join("process")).unwrap()).unwrap();
        let list = saved["descriptors"].as_array().unwrap();
        assert!(list.len() > 6, "{list:?}");
        let kind = looked_at(place, |pid| {
            let place = PathBuf::from(format!("/proc/{pid}/fd"));
            let target = |number: &Value| fs::read_link(place.join(number.to_string())).ok();
            let memory = target(&json!(0));
            for one in list {
                let (found, kind) = (target(&one["number"]), &one["kind"]);
                let anonymous = |name: &str| Some(PathBuf::from(format!("anon_inode:[{name}]")));
                let is = |name: &str| kind.get(name).is_some();
                let wanted = match kind {
                    _ if kind == "Memory" => memory.clone(),
                    _ if is("Event") => anonymous("eventfd"),
                    _ if is("Signals") => anonymous("signalfd"),
                    _ if is("Epoll") => anonymous("eventpoll"),
                    _ if is("Given") && found.is_some() => found.clone(),
                    other => panic!("{other} is {found:?}"),
                };
                assert_eq!(found, wanted, "{one}");
            }
            // Nothing of the restorer's own is left.
            let own = |name: &std::ffi::OsString| name.to_str().unwrap().parse::<i32>().unwrap();
            let numbers = fs::read_dir(&place).unwrap().flatten().map(|entry| entry.file_name());
            assert!(numbers.map(|name| own(&name)).all(|number| number < 200));
        });
        assert_eq!(kind, "restored");
    });
}

/// What the restorer relocated, wrote and allocated is of no use to a process that goes on.
#[test]
fn a_clone_holds_nothing_of_the_program_that_made_it() {
    guests_of_one_apart(|place| {
        if fs::metadata(template(place).join("process")).is_err() {
            return;
        }
        let program = binary().canonicalize().unwrap();
        let kind = looked_at(place, |pid| {
            let maps = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
            let (mut own, mut parts, mut written) = (false, 0, 0);
            for line in maps.lines() {
                if line.split_once(' ').is_some_and(|(range, _)| range.contains('-')) {
                    own = line.ends_with(program.to_str().unwrap());
                    parts += usize::from(own);
                } else if let Some(size) = line.strip_prefix("Anonymous:").filter(|_| own) {
                    written += size.trim().trim_end_matches(" kB").parse::<u64>().unwrap();
                }
            }
            assert!(parts > 2, "the control: it is mapped");
            assert_eq!(written, 0, "kB of {}", program.display());
        });
        assert_eq!(kind, "restored");
    });
}

#[test]
fn what_was_saved_and_does_not_fit_is_not_used_and_nothing_runs_twice() {
    guests_of_one_apart(|place| {
        let template = template(place);
        let (process, pages) = (template.join("process"), template.join("pages"));
        let (kept_process, kept_pages) = (fs::read(&process).unwrap(), fs::read(&pages).unwrap());
        let saved: Value = serde_json::from_slice(&kept_process).unwrap();
        let altered = |change: &dyn Fn(&mut Value)| {
            let mut altered = saved.clone();
            change(&mut altered);
            assert_ne!(altered, saved);
            serde_json::to_vec(&altered).unwrap()
        };
        let half = kept_process[..kept_process.len() / 2].to_vec();
        let cases = [
            ("cut off", half),
            ("another version", altered(&|all| all["version"] = json!(0))),
            ("another kernel's", altered(&|all| all["host"]["kernel"] = json!("Linux 1"))),
            ("another processor's", altered(&|all| all["host"]["processor"][1][2] = json!(0))),
            ("another library", altered(&|all| all["files"][1]["size"] = json!(1))),
            (
                "a library that is gone",
                altered(&|all| all["files"][1]["path"] = json!("/lib/absent")),
            ),
            ("another vdso", altered(&|all| all["kernels"][0]["end"] = json!(1))),
            ("memory upon memory", altered(&|all| all["regions"][4] = all["regions"][3].clone())),
            ("beyond its pages", altered(&|all| all["pages"] = json!(4096))),
            ("no threads", altered(&|all| all["threads"] = json!([]))),
            ("a number elsewhere", altered(&|all| all["threads"][0]["number"] = json!(64))),
            ("a number too high", altered(&|all| all["descriptors"][4]["number"] = json!(5000))),
        ];
        let run = |what: &str| {
            let _ = fs::remove_file(place.project("here"));
            let ended = start(place, &[], &["sh", "-c", "echo ran >> here; exit 5"]).finish();
            assert_eq!(ended.ends(5).err, "", "{what}");
            assert_eq!(fs::read_to_string(place.project("here")).unwrap(), "ran\n", "{what}");
        };
        for (what, text) in cases {
            fs::write(&process, text).unwrap();
            run(what);
            assert!(!process.exists() && !pages.exists(), "{what}: it is forgotten");
            let why = fs::read_to_string(template.join("no-process")).unwrap();
            assert!(why.contains("a saved machine cannot go on any more: "), "{what}: {why}");
            fs::remove_file(template.join("no-process")).unwrap();
            fs::write(&pages, &kept_pages).unwrap();
            place.person.owns(&pages);
        }
        // Its memory is cut off: nobody dies of a page that is not there.
        fs::write(&process, &kept_process).unwrap();
        fs::write(&pages, &kept_pages[..kept_pages.len() / 2]).unwrap();
        run("cut off pages");
        // The control.
        fs::write(&process, &kept_process).unwrap();
        fs::write(&pages, &kept_pages).unwrap();
        [&process, &pages].into_iter().for_each(|path| place.person.owns(path));
        assert_eq!(started(place), "restored");
        run("as it was");
        assert!(process.exists());
        assert_eq!(place.left_behind(), [""; 0]);
    });
}

/// A limit that one run has, and a clone that somebody kills, say nothing of the saved process.
#[test]
fn what_was_saved_is_kept_where_one_run_alone_cannot_use_it() {
    guests_of_one_apart(|place| {
        let template = template(place);
        let (process, why) = (template.join("process"), template.join("no-process"));
        // No number is as high as those that a restorer puts descriptors out of the way at.
        let mut command = place.command("/bin/sh");
        command.env("XDG_CACHE_HOME", cache(place.person));
        command.args(["-c", "ulimit -n 190; exec \"$0\" \"$@\""]).arg(binary());
        command.args(["run", "--tier", "vm", "--", "sh", "-c", "exit 5"]);
        assert_eq!(Running::start(command).finish().ends(5).err, "");
        assert!(process.exists() && !why.exists());
        assert_eq!(started(place), "restored");
        // A restorer's own heap is above the saved one: what the C library asks for would be granted, and be nothing.
        let kept = fs::read(&process).unwrap();
        let mut saved: Value = serde_json::from_slice(&kept).unwrap();
        assert!(saved["heap"].as_u64().unwrap() > 1 << 30, "{}", saved["heap"]);
        saved["heap"] = json!(4096);
        fs::write(&process, serde_json::to_vec(&saved).unwrap()).unwrap();
        assert_eq!(started(place), "started");
        assert!(process.exists() && !why.exists());
        // One that dies as it goes on: its first thread is nowhere.
        let mut saved: Value = serde_json::from_slice(&kept).unwrap();
        saved["threads"][0]["registers"][16] = json!(0);
        let lost = serde_json::to_vec(&saved).unwrap();
        let run = |text: &[u8]| {
            fs::write(&process, text).unwrap();
            start(place, &[], &["sh", "-c", "exit 5"]).finish().ends(5);
        };
        run(&lost);
        assert!(process.exists(), "it may have been killed");
        run(&kept);
        run(&lost);
        assert!(process.exists(), "one has begun since");
        run(&lost);
        assert!(!process.exists() && !template.join("pages").exists(), "two in a row");
        assert_ne!(fs::read_to_string(&why).unwrap(), "");
    });
}

/// A cache cleaner, or one who was killed while removing it, leaves parts of a saved guest.
#[test]
fn a_guest_boots_where_a_saved_one_is_not_whole() {
    guests_of_one_apart(|place| {
        let template = template(place);
        fs::remove_file(template.join("state")).unwrap();
        assert!(template.join("memory").exists());
        let ended = start(place, &[], &["sh", "-c", "exit 5"]).finish();
        assert_eq!(ended.ends(5).err, "");
        assert!(template.join("state").exists() && template.join("process").exists());
        assert_eq!(started(place), "restored");
    });
}

/// A disk that was full, or somebody who wrote into it, leaves less of a file than there was; who was killed while he made one,
/// a directory that is nobody's.
#[test]
fn a_saved_guest_that_was_cut_off_is_made_anew_and_what_was_left_goes() {
    guests_of_one_apart(|place| {
        let template = template(place);
        let cache = template.parent().unwrap().to_owned();
        let left = || {
            // The number is that of a process that lives, and makes none.
            let left = cache.join(format!("new-{}-0", std::process::id()));
            fs::create_dir(&left).unwrap();
            fs::write(left.join("memory"), "some").unwrap();
            [&left, &left.join("memory")].into_iter().for_each(|path| place.person.owns(path));
            left
        };
        let run = || {
            let ended = start(place, &[], &["sh", "-c", "exit 5"]).finish();
            ended.ends(5).err.clone()
        };
        for file in ["memory", "state", "kernel"] {
            let path = template.join(file);
            let size = fs::metadata(&path).unwrap().len();
            fs::File::options().write(true).open(&path).unwrap().set_len(size / 2).unwrap();
            let new = left();
            let said = run();
            let why = format!("its {file} has {} bytes, and had {size}", size / 2);
            assert!(said.contains(&why) && said.lines().count() == 1, "{said}");
            assert_eq!(fs::metadata(&path).unwrap().len(), size);
            assert!(!new.exists());
            assert_eq!(run(), "", "once");
        }
        // Where none is made, and by hand.
        let new = left();
        assert_eq!(run(), "");
        assert!(!new.exists());
        let new = left();
        Running::start(ringfence(place, &["vm", "clean"])).finish().ends(0);
        assert!(!new.exists() && !template.exists());
    });
}
