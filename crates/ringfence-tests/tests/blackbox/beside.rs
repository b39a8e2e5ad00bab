//! The process that becomes the command, made while the warden builds: killed or failing at any of its calls, and
//! with nothing shared that stays.

use ringfence_tests::{Person, Place, Running, Tier, everybody, everywhere, left_out};
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// Whether the calls of what runs inside can be followed and changed here.
fn followed(place: &Place) -> bool {
    if !place.has("strace", "--version") {
        return false;
    }
    let traced = place.shell("strace -f -qq -o ../calls $RF -- /bin/true; echo $?");
    if traced.text() != "0" {
        left_out("strace -f", &traced.err);
        return false;
    }
    true
}

#[test]
fn killed_at_any_of_its_calls_it_takes_nobody_along() {
    everywhere(|place| {
        if !followed(place) {
            return;
        }
        // The filter is the last of these that only this process makes.
        for call in ["unshare", "capset", "seccomp", "landlock_restrict_self", "execve:when=2"] {
            let (name, when) = call.split_once(':').unwrap_or((call, "when=1"));
            let line = format!(
                "strace -f -qq -o ../calls -e trace={name} -e inject={name}:signal=KILL:{when} \
                 $RF -- /bin/true; echo $?"
            );
            let ended = place.shell(&line);
            let calls = fs::read_to_string(place.at("home/calls")).unwrap_or_default();
            if calls.contains("+++ killed by SIGKILL +++") {
                assert_ne!(ended.text(), "0", "{call}: {}", ended.err);
            }
            assert_eq!(place.left_behind(), [""; 0], "{call}");
            assert_eq!(place.sh(&[], "echo fine").quiet(), "fine");
        }
    });
}

#[test]
fn a_call_of_its_that_fails_is_told() {
    everywhere(|place| {
        if !followed(place) {
            return;
        }
        let mut steps = vec![
            ("seccomp", "EFAULT", "system calls"),
            ("capset", "EPERM", "take the command's capabilities"),
        ];
        if place.tier == Tier::Namespace {
            steps.push(("unshare", "ENOSPC", "cannot make a network namespace"));
        }
        for (call, error, told) in steps {
            let line = format!(
                "strace -f -qq -o ../calls -e trace={call} -e inject={call}:error={error} \
                 $RF -- sh -c 'echo ran'; echo $?"
            );
            let ended = place.shell(&line);
            assert_eq!(ended.text(), "125", "{call}: {}", ended.err);
            ended.says(told);
            assert_eq!(place.left_behind(), [""; 0], "{call}");
        }
        assert_eq!(place.sh(&[], "echo fine").quiet(), "fine");
    });
}

/// With exact libraries it makes the places on which they are mounted: more than the warden makes of its own.
#[test]
fn places_that_it_cannot_make_are_told() {
    everybody(Tier::Namespace, |place| {
        if !followed(place) || !place.has("git", "--version") {
            return;
        }
        // A skeleton would be shown by one mount; where others could write it there is none.
        place.shell("mkdir -p ../.local/state && chmod 777 ../.local/state");
        let exact = |inject: &str| {
            place.shell(&format!(
                "strace -f -qq -o ../calls -e trace=mknodat -e inject=mknodat:{inject} \
                 $RF --libs exact -- git --version; echo $?"
            ))
        };
        exact("delay_enter=1").prints("git version");
        for (inject, told) in [("error=ENOSPC:when=20", "(ENOSPC)"), ("signal=KILL:when=20", "")] {
            let ended = exact(inject);
            assert_eq!(ended.text(), "125", "{inject}: {}", ended.err);
            ended.says("cannot make the places of libraries").says(told);
            assert_eq!(place.left_behind(), [""; 0], "{inject}");
        }
    });
}

/// The children of a process.
fn children(process: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    list.unwrap_or_default().split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// What a process has open, as root sees it.
fn open(process: u32) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    let links = entries.filter_map(|entry| fs::read_link(entry.path()).ok());
    links.map(|link| link.to_string_lossy().into_owned()).collect()
}

/// Descriptors are the warden's too until the command executes.
#[test]
fn the_warden_keeps_no_listener_and_no_namespace() {
    everywhere(|place| {
        for options in [&[][..], &["--record-programs"], &["-n", "example.org"]] {
            let mut running = place.start(options, &["sh", "-c", "echo up; exec sleep 1000"]);
            running.printed("up\n");
            let [warden] = children(running.pid())[..] else { panic!("one child") };
            let open = open(warden);
            // An ordinary user does not see into a process that hides its memory.
            if ringfence_tests::people().contains(&Person::Root) {
                assert!(open.iter().any(|link| link.starts_with("socket:")), "{open:?}");
            }
            for kept in ["seccomp notify", "net:[", "user:["] {
                assert!(!open.iter().any(|link| link.contains(kept)), "{options:?}: {open:?}");
            }
            running.signal(rustix::process::Signal::TERM);
            running.finish();
        }
        assert_eq!(place.left_behind(), [""; 0]);
    });
}

/// Root of the process tier starts where only its capabilities lead, as it does without ringfence.
#[test]
fn root_starts_in_a_directory_of_somebody_else() {
    everybody(Tier::Process, |place| {
        if place.person != Person::Root {
            return;
        }
        let other = place.directory("home/other");
        Person::Ordinary.owns(&other);
        fs::set_permissions(&other, fs::Permissions::from_mode(0o700)).unwrap();
        for _ in 0..3 {
            let mut command = place.ringfence_run();
            command.args(["--", "sh", "-c", "echo ran"]).current_dir(&other);
            assert_eq!(Running::start(command).finish().ends(0).text(), "ran");
        }
    });
}

/// The host's tree is mounted over the root until the warden has let go of it: a `..` in a link that somebody puts
/// in the way of the directory to start in would lead there.
#[test]
fn no_path_is_followed_before_the_hosts_tree_is_gone() {
    everybody(Tier::Namespace, |place| {
        if !followed(place) {
            return;
        }
        // Once the long way, once by the plan that this made.
        for way in ["cold", "hot"] {
            let line = "strace -f -ttt -qq -o ../calls -e trace=umount2,chdir,faccessat,execve \
                        -e inject=umount2:delay_enter=400000 $RF -- true; echo $?";
            let ended = place.shell(line);
            assert_eq!(ended.text(), "0", "{way}: {}", ended.err);
            let calls = fs::read_to_string(place.at("home/calls")).expect("traced");
            let when = |call: &str| -> f64 {
                let line = calls.lines().rfind(|line| line.contains(call));
                let time = line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
                time.unwrap_or_else(|| panic!("{way}: no {call} in {calls}"))
            };
            // The last ones are those of the process that becomes the command.
            let gone = when("umount2(");
            for call in ["chdir(", "execve("] {
                assert!(when(call) >= gone + 0.39, "{way}: {call} in {calls}");
            }
            // Who executes looks for the command: the first look of its own counts.
            let who = calls.lines().rfind(|line| line.contains("execve("));
            let who = who.and_then(|line| line.split_whitespace().next()).expect("a process");
            let own = calls.lines().filter(|line| line.starts_with(who));
            let looks: Vec<_> = own.filter(|line| line.contains("faccessat(")).collect();
            let first = looks.first().and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
            assert!(first.is_some_and(|first: f64| first >= gone + 0.39), "{way}: {looks:?}");
        }
    });
}

/// A link of `PATH` whose `..` leads past the root is what the view says, and not what the host has there.
#[test]
fn a_command_is_looked_for_in_the_view_alone() {
    everybody(Tier::Namespace, |place| {
        place.directory("home/p/one");
        // Outside of the workspace: in the view it is not there.
        for (name, said) in [("home/hidden/probe", "host"), ("home/p/two/probe", "view")] {
            place.program(name, format!("#!/bin/sh\necho {said}\n"));
        }
        let up = "../".repeat(16);
        let hidden = format!("{up}{}", place.at("home/hidden/probe").display());
        std::os::unix::fs::symlink(hidden, place.at("home/p/one/probe")).unwrap();
        let project = place.at("home/p");
        let search = |command: &mut std::process::Command| {
            let path = format!("{0}/one:{0}/two:/usr/bin:/bin", project.display());
            command.current_dir(&project).env("PATH", path);
        };
        let mut outside = place.command("/bin/sh");
        search(&mut outside);
        outside.args(["-c", "probe"]);
        assert_eq!(Running::start(outside).finish().text(), "host");
        for _ in 0..20 {
            let mut inside = place.ringfence_run();
            search(&mut inside);
            inside.args(["--", "probe"]);
            assert_eq!(Running::start(inside).finish().ends(0).text(), "view");
        }
    });
}

#[test]
fn a_hosts_tree_that_cannot_be_let_go_of_ends_the_start() {
    everybody(Tier::Namespace, |place| {
        if !followed(place) {
            return;
        }
        for way in ["cold", "hot"] {
            let line = "strace -f -qq -o ../calls -e trace=umount2 -e inject=umount2:error=EPERM \
                        $RF -- sh -c 'echo ran'; echo $?";
            let ended = place.shell(line);
            assert_eq!(ended.text(), "125", "{way}: {}", ended.err);
            ended.says("cannot let go of the host's tree");
            assert_eq!(place.left_behind(), [""; 0], "{way}");
        }
        assert_eq!(place.sh(&[], "echo fine").quiet(), "fine");
    });
}

/// Says which mount namespaces there are by their inodes (`NS_MNT_GET_NEXT`, Linux 6.12).
const NAMESPACES: &str = r#"
import fcntl, os
GET_INFO, NEXT, PREVIOUS = 0x8010b70a, 0x8010b70b, 0x8010b70c
def others(namespace, way):
    while True:
        try: namespace = fcntl.ioctl(namespace, way, bytearray(16))
        except OSError: return
        print(os.fstat(namespace).st_ino)
own = os.open("/proc/self/ns/mnt", os.O_RDONLY)
fcntl.ioctl(own, GET_INFO, bytearray(16))
others(own, NEXT)
others(own, PREVIOUS)
print("listed")
"#;

/// The kernel takes the view apart behind the run's end; it does.
#[test]
fn soon_after_a_run_its_mount_namespace_is_gone() {
    everybody(Tier::Namespace, |place| {
        if place.person != Person::Root {
            return;
        }
        let list = || {
            let mut python = place.command("python3");
            python.args(["-c", NAMESPACES]);
            Running::start(python).finish()
        };
        if !list().text().ends_with("listed") {
            return left_out("a list of mount namespaces", &list().err);
        }
        let lives = |own: &str| list().text().lines().any(|line| line == own);
        let inode = |link: &str| link.replace(|c: char| !c.is_ascii_digit(), "");
        let script = "readlink /proc/self/ns/mnt; echo up; exec sleep 1000";
        let mut running = place.start(&[], &["sh", "-c", script]);
        running.printed("up\n");
        // The control: it can be seen while it is there.
        let script = "readlink /proc/self/ns/mnt";
        let [warden] = children(running.pid())[..] else { panic!("one child") };
        let link = fs::read_link(format!("/proc/{warden}/ns/mnt")).expect("root may");
        assert!(lives(&inode(&link.to_string_lossy())), "{link:?} is listed");
        running.signal(rustix::process::Signal::TERM);
        running.finish();
        for _ in 0..20 {
            let own = inode(&place.sh(&[], script).ends(0).text());
            ringfence_tests::until("the view is taken apart", || !lives(&own));
        }
    });
}
