//! `--tier vm`: a session that runs is copied from and to, held still, and let go on.

use super::vm::{guests, guests_of_one, ringfence, start};
use ringfence_tests::{Finished, Place, Running, until};
use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, socket_with,
};
use rustix::process::Signal;
use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn call(place: &Place, words: &[&str]) -> Finished {
    Running::start(ringfence(place, words)).finish()
}

#[test]
fn files_are_copied_out_of_a_session_and_into_it() {
    guests(|place| {
        let name = format!("cp-{}", place.person.ids().0);
        place.file("home/project/hidden", "hidden");
        let hidden = place.text("home/project/hidden");
        let script = "mkdir /dev/shm/d; echo inside >/dev/shm/d/f; ln -s /etc/passwd /dev/shm/d/l; echo up; cat";
        let mut command =
            ringfence(place, &["run", "--tier", "vm", "--name", &name, "--deny", &hidden, "--"]);
        command.args(["sh", "-c", &format!("sleep 1000 | {{ {script}; }}")]);
        let mut running = Running::start(command);
        running.printed("up\n");
        let inside = |path: &str| format!("{name}:{path}");
        let out = place.directory("home/out");
        let out = out.to_str().unwrap();
        // /dev/shm is the guest's own: only through the session can its files be had.
        call(place, &["cp", &inside("/dev/shm/d/f"), &format!("{out}/copy")]).quiet();
        assert_eq!(fs::read_to_string(place.at("home/out/copy")).unwrap(), "inside\n");
        call(place, &["cp", &inside("/dev/shm/d"), out]).quiet();
        assert_eq!(fs::read_to_string(place.at("home/out/d/f")).unwrap(), "inside\n");
        assert!(place.at("home/out/d/l").symlink_metadata().unwrap().is_symlink());
        let sent = place.file("home/out/sent", "outside\n");
        call(place, &["cp", sent.to_str().unwrap(), &inside("/dev/shm/d")]).quiet();
        call(place, &["cp", &format!("{out}/d"), &inside("/dev/shm/e")]).quiet();
        let script = "cat /dev/shm/d/sent /dev/shm/e/f";
        let said = call(place, &["exec", &name, "--", "sh", "-c", script]);
        assert_eq!(said.quiet(), "outside\ninside");
        // What the session may not see or write is not to be had through it either; nothing is left of the try.
        call(place, &["cp", &inside(&hidden), &format!("{out}/stolen")])
            .ends(125)
            .says("was not copied");
        call(place, &["cp", &inside("/dev/shm/no"), &format!("{out}/stolen")]).ends(125);
        call(place, &["cp", sent.to_str().unwrap(), &inside("/usr/sent")]).ends(125);
        let left: Vec<_> =
            fs::read_dir(out).unwrap().flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(left.len(), 3, "{left:?}");
        assert!(!std::path::Path::new("/usr/sent").exists());
        call(place, &["cp", "a", "b"]).ends(125).says("one of the two is in a session");
        running.signal(Signal::TERM);
        running.finish();
    });
}

/// Another sandbox may have the directory for temporary files in its tree, and call where the bridge is expected.
#[test]
fn who_calls_before_the_bridge_gets_nothing_and_is_in_nobodys_way() {
    guests_of_one(|place| {
        let directory = place.at("tmp");
        let over = Arc::new(AtomicBool::new(false));
        let seen = over.clone();
        let calls = std::thread::spawn(move || {
            let mut called = Vec::new();
            while !seen.load(Ordering::Relaxed) {
                for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
                    let kind = (SocketType::SEQPACKET, SocketFlags::NONBLOCK);
                    let socket = socket_with(AddressFamily::UNIX, kind.0, kind.1, None).unwrap();
                    let place = SocketAddrUnix::new(entry.path().join("line")).unwrap();
                    if called.len() < 100 && connect(&socket, &place).is_ok() {
                        called.push(socket);
                    }
                }
            }
            let answered = |socket: &OwnedFd| recv(socket, &mut [0; 64], RecvFlags::empty());
            let heard = called.iter().map(answered).filter(|said| matches!(said, Ok((1.., _))));
            (called.len(), heard.count())
        });
        let run = call(place, &["run", "--tier", "vm", "--", "echo", "done"]);
        over.store(true, Ordering::Relaxed);
        let (called, heard) = calls.join().unwrap();
        assert_eq!(run.quiet(), "done");
        assert!(called > 0 && heard == 0, "{called} {heard}");
    });
}

#[test]
fn whoever_does_not_read_holds_up_nobody_else() {
    guests_of_one(|place| {
        let name = format!("unread-{}", place.person.ids().0);
        let mut running =
            start(place, &["--name", &name], &["sh", "-c", "echo up; exec sleep 1000"]);
        running.printed("up\n");
        // It ends in the guest at once, and what it wrote is more than a pipe takes.
        let script = "head -c 200000 /dev/zero; echo ended > ended";
        let mut unread = ringfence(place, &["exec", &name, "--", "sh", "-c", script]);
        let mut unread = unread.stdout(Stdio::piped()).spawn().unwrap();
        until("the command has ended", || place.project("ended").exists());
        for _ in 0..3 {
            assert_eq!(call(place, &["exec", &name, "--", "echo", "heard"]).quiet(), "heard");
        }
        // And all of it is there when it is read.
        let mut bytes = Vec::new();
        unread.stdout.take().unwrap().read_to_end(&mut bytes).unwrap();
        assert_eq!((bytes.len(), unread.wait().unwrap().code()), (200_000, Some(0)));
        running.signal(Signal::TERM);
        running.finish().ends(143);
    });
}

#[test]
fn a_session_is_held_still_and_goes_on() {
    guests(|place| {
        let name = format!("still-{}", place.person.ids().0);
        let script = "sleep 1000 | { echo up; cat; }";
        let mut running = start(place, &["--name", &name], &["sh", "-c", script]);
        running.printed("up\n");
        let status = || call(place, &["ps"]).well();
        assert!(status().contains("running"), "{}", status());
        call(place, &["suspend", &name]).quiet();
        assert!(status().contains("suspended"), "{}", status());
        call(place, &["suspend", &name]).ends(125).says("suspended already");
        call(place, &["exec", &name, "--", "true"]).ends(125).says("ringfence resume");
        call(place, &["resume", &name]).quiet();
        call(place, &["resume", &name]).ends(125).says("is not suspended");
        call(place, &["exec", &name, "--", "sh", "-c", "exit 3"]).ends(3);
        // One that is held still ends like any other.
        call(place, &["suspend", &name]).quiet();
        call(place, &["kill", "--signal", "KILL", &name]).ends(0);
        assert_ne!(running.finish().code, 0);
        assert_eq!(place.left_behind(), [""; 0]);
    });
}

#[test]
fn a_session_that_is_held_still_hears_that_it_is_to_end() {
    guests_of_one(|place| {
        let name = format!("wakes-{}", place.person.ids().0);
        let script = "trap 'echo heard; exit 4' TERM; trap 'echo again' INT; echo up; \
                      while :; do sleep 0.1; done";
        let held = || {
            let mut running = start(place, &["--name", &name], &["sh", "-c", script]);
            running.printed("up\n");
            call(place, &["suspend", &name]).quiet();
            running
        };
        let mut running = held();
        // One that handles it lives on, and is not held still any more.
        call(place, &["kill", "--signal", "INT", &name]).quiet();
        running.printed("again\n");
        assert!(call(place, &["ps"]).well().contains("running"));
        call(place, &["suspend", &name]).quiet();
        call(place, &["kill", &name]).quiet();
        assert_eq!(running.finish().ends(4).text(), "up\nagain\nheard");
        // And of whoever signals its launcher.
        let running = held();
        running.signal(Signal::TERM);
        assert_eq!(running.finish().ends(4).text(), "up\nheard");
        assert_eq!(place.left_behind(), [""; 0]);
    });
}
