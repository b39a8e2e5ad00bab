//! Limits, by whatever mechanism this host has; where it has none, an honest refusal.

use ringfence_tests::{Person, Place, Tier, everybody, everywhere};

/// Whether the plan is made with these options; if not, the refusal names the layer and how to
/// accept its absence, and accepting it works.
fn planned(place: &Place, options: &[&str], layer: &str) -> bool {
    let run = place.run(options, &["true"]);
    if run.code == 0 {
        return true;
    }
    run.ends(125).says(&format!("--allow-degraded {layer}"));
    let accepted = [options, &["--allow-degraded", layer]].concat();
    place.run(&accepted, &["true"]).ends(0).says(&format!("running without {layer}"));
    false
}

#[test]
fn processes_are_counted() {
    everywhere(|place| {
        // dash ends when it cannot fork, so the count is in what it managed to say.
        let script =
            "i=0; while [ $i -lt 60 ]; do sleep 1000 & i=$((i + 1)); echo $i; done; echo all";
        assert!(place.sh(&[], script).well().ends_with("all"), "the control");
        if planned(place, &["--pids", "20"], "pids-limit") {
            let ended = place.sh(&["--pids", "20"], script);
            assert!(!ended.text().ends_with("all"), "60 processes were started");
            let started: u32 = ended.text().lines().last().unwrap_or("0").parse().unwrap();
            assert!((5..20).contains(&started), "{started}; {}", ended.err);
        } else {
            assert!(place.tier == Tier::Process || place.person == Person::Root);
        }
    });
}

#[test]
fn memory_is_limited_for_all_processes_together() {
    everywhere(|place| {
        // tail keeps the last line, and there is only one.
        let fill = "head -c 200M /dev/zero | tail -n 1 | wc -c";
        assert_eq!(place.sh(&[], fill).well(), "209715200", "the control");
        if planned(place, &["--memory", "64M"], "memory-limit") {
            let ended = place.sh(&["--memory", "64M"], fill);
            assert_ne!(ended.text(), "209715200");
            ended.says("--memory");
        } else {
            assert_eq!(place.person, Person::Ordinary);
        }
    });
}

#[test]
fn processors_are_limited() {
    everywhere(|place| {
        if planned(place, &["--cpus", "1"], "cpus-limit") {
            let mut running =
                place.start(&["--cpus", "1"], &["sh", "-c", "nproc; echo there; exec sleep 1000"]);
            running.printed("there");
            let by_count = running.so_far().starts_with("1\n");
            let groups = own_groups(running.pid());
            let by_group = groups.iter().any(|group| {
                std::fs::read_to_string(group.join("cpu.cfs_quota_us"))
                    .is_ok_and(|quota| quota.trim() == "100000")
                    || std::fs::read_to_string(group.join("cpu.max"))
                        .is_ok_and(|quota| quota.starts_with("100000 "))
            });
            assert!(
                by_count || by_group,
                "{:?} {:?}: {} {groups:?}",
                place.person,
                place.tier,
                running.so_far()
            );
            running.signal(rustix::process::Signal::TERM);
            running.finish().ends(143);
            assert!(groups.iter().all(|group| !group.exists()), "groups are removed");
        }
        planned(place, &["--cpus", "0.5"], "cpus-limit");
    });
}

/// Control groups of ringfence's that the children of a launcher are in.
fn own_groups(launcher: u32) -> Vec<std::path::PathBuf> {
    let read = |path: String| std::fs::read_to_string(path).unwrap_or_default();
    let mounts = read("/proc/self/mounts".to_owned());
    let mounts: Vec<&str> = mounts
        .lines()
        .filter(|line| line.contains(" cgroup"))
        .filter_map(|line| line.split(' ').nth(1))
        .collect();
    let mut found = Vec::new();
    for child in read(format!("/proc/{launcher}/task/{launcher}/children")).split_whitespace() {
        let groups = read(format!("/proc/{child}/cgroup"));
        for group in groups.lines().filter_map(|line| line.splitn(3, ':').nth(2)) {
            let ours = mounts.iter().filter(|_| group.contains("/ringfence-"));
            let paths = ours.map(|at| std::path::Path::new(at).join(group.trim_start_matches('/')));
            found.extend(paths.filter(|path| path.exists()));
        }
    }
    found
}

#[test]
fn open_files_are_limited_and_cannot_be_raised() {
    everywhere(|place| {
        let ended = place
            .run(&["--open-files", "32"], &["bash", "-c", "ulimit -n; ulimit -Hn; ulimit -n 64"]);
        assert_eq!(ended.text(), "32\n32");
        ended.ends(1);
        let open = "for i in $(seq 10 50); do eval \"exec $i</dev/null\" || exit 3; done; echo all";
        assert_eq!(place.run(&[], &["bash", "-c", open]).well(), "all");
        let ended = place.run(&["--open-files", "32"], &["bash", "-c", open]);
        assert_ne!(ended.code, 0);
        ended.says("Bad file descriptor");
    });
}

#[test]
fn the_private_directories_have_a_size() {
    everybody(Tier::Namespace, |place| {
        for directory in ["/tmp", "/dev/shm", "$HOME"] {
            let fill = format!("head -c 3M /dev/zero > {directory}/big");
            place.sh(&[], &fill).ends(0);
            for limited in [&["--disk", "1M"][..], &["--disk", "1M", "--read", "/"]] {
                place.sh(limited, &fill).ends(1).says("No space left on device");
            }
        }
        // What takes no blocks takes memory too.
        for directory in ["/tmp", "/dev/shm", "$HOME"] {
            let made =
                |count: &str| format!("cd {directory} && seq {count} | xargs touch && echo all");
            place.sh(&[], &made("10000")).ends(0).prints("all");
            place.sh(&["--disk", "1M"], &made("1000")).ends(0).prints("all");
            place.sh(&["--disk", "1M"], &made("10000")).says("No space left on device");
        }
        // The project is the host's file system, not one of them.
        place.sh(&["--disk", "1M"], "head -c 3M /dev/zero > big").ends(0);
    });
    everybody(Tier::Process, |place| {
        assert!(!planned(place, &["--disk", "1M"], "disk-limit"));
    });
}

#[test]
fn a_timeout_reaches_those_who_hide_from_it() {
    everywhere(|place| {
        let path = place.text("");
        let hidden = format!(
            "trap '' TERM HUP INT
             setsid sh -c 'trap \"\" TERM; while :; do sleep 1000; done' {path} </dev/null >/dev/null 2>&1 &
             (setsid setsid sleep 1000 &)
             while :; do sleep 1000; done"
        );
        // What is done at any end is done at this one: what was taken away is kept.
        let hidden = format!("echo kept > .envrc; {hidden}");
        let ended = place.sh(&["--timeout", "200ms"], &hidden);
        ended.ends(124).says("--timeout").says("inside and is protected: moved to");
        assert_eq!(place.left_behind(), [""; 0]);
    });
}

#[test]
fn a_timeout_reaches_those_who_stop_their_job() {
    everywhere(|place| {
        // A job of a shell: a group that nobody watches over cannot be stopped by all of these. Bash may
        // tell of one stop twice, for all its `wait -f`, and for ever of one whose end it saw between two waits: so
        // that there is time for the second one.
        let job = |line: &str| {
            place.shell(&format!(
                "setsid -w bash -c 'set -m; {line} & wait $!; echo $?
                 while wait -f $!; ended=$?; [ $ended = 147 ]; do :; done; echo $ended'"
            ))
        };
        for signal in ["TSTP", "TTIN", "TTOU", "STOP"] {
            let script = format!("kill -{signal} \\$\\$; sleep 1000");
            let ended = job(&format!("$RF --timeout 1s -- sh -c \"{script}\""));
            // First the shell hears of the stop.
            assert_eq!(ended.text(), "147\n124", "{signal}: {}", ended.err);
            assert_eq!(place.left_behind(), [""; 0]);
        }
        let mut running =
            place.start(&["--name", "host"], &["sh", "-c", "echo up; exec sleep 1000"]);
        running.printed("up\n");
        let exec = format!("{} exec --timeout 1s host", ringfence_tests::binary().display());
        let ended = job(&format!("{exec} sh -c \"kill -STOP \\$\\$; sleep 1000\""));
        assert_eq!(ended.text(), "147\n124", "{}", ended.err);
        place.ringfence(["kill", "host"]).quiet();
        running.finish().ends(143);
    });
}

#[test]
fn a_timeout_first_asks() {
    everywhere(|place| {
        let script = "trap 'echo asked; exit 3' TERM; while :; do sleep 1000 & wait; done";
        let ended = place.sh(&["--timeout", "300ms"], script);
        assert_eq!(ended.ends(124).text(), "asked");
    });
}

#[test]
fn no_core_files_are_written() {
    everywhere(|place| {
        let ended = place.run(&[], &["bash", "-c", "ulimit -c; ulimit -Hc"]);
        assert_eq!(ended.well(), "0\n0");
    });
}
