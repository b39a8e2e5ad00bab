//! `--tier vm`: each rule holds as in the namespace tier, or the run is refused.

use super::vm::{guests, guests_of_one, ringfence, sh, start};
use ringfence_tests::{Finished, Place, Running, free_port};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

fn call(place: &Place, words: &[&str]) -> Finished {
    Running::start(ringfence(place, words)).finish()
}

#[test]
fn what_a_guest_writes_is_judged_kept_apart_and_taken_back() {
    guests_of_one(|place| {
        // A protected name does not stay; with --strict it cannot be made, and its neighbours can.
        sh(place, &[], "echo x > .envrc").ends(0).says(".envrc was created");
        assert!(!place.project(".envrc").exists());
        let script = "mkdir d; ! echo x > .envrc && ! mv d .vscode && ! ln -s d .envrc && echo held; \
                      echo x > d/near; cat d/near";
        let done = sh(place, &["--strict"], script);
        done.ends(0).prints("held\nx").says("making it was refused (--strict)");
        assert!(!place.project(".envrc").exists() && !place.project(".vscode").exists());
        // Kept apart: dropped, then kept and committed.
        place.file("home/project/kept", "old\n");
        place.clock_moves_on();
        let script = "cat kept; echo new > kept; rm d/near; echo made > made; cat kept";
        let apart = |how: &str| sh(place, &[how], script);
        apart("--overlay=discard").ends(0).prints("old\nnew");
        apart("--overlay=keep").ends(0).prints("old\nnew");
        assert_eq!(fs::read_to_string(place.project("kept")).unwrap(), "old\n");
        assert!(place.project("d/near").exists() && !place.project("made").exists());
        call(place, &["overlay", "commit", "latest"]).ends(0).says("committed 3 changes");
        assert_eq!(fs::read_to_string(place.project("kept")).unwrap(), "new\n");
        assert!(!place.project("d/near").exists());
        // Taken back from the state before the run; a mapping's last bytes are among the changes on record.
        sh(place, &["--snapshot"], "echo newer > kept").ends(0);
        let log = call(place, &["logs", "latest", "--kind", "file"]).well();
        assert!(log.contains("modified") && log.contains("kept"), "{log}");
        call(place, &["snapshot", "revert", "latest"]).ends(0);
        assert_eq!(fs::read_to_string(place.project("kept")).unwrap(), "new\n");
        assert_eq!(place.left_behind(), [""; 0]);
    });
}

#[test]
fn the_host_connects_in_to_what_a_guest_publishes() {
    // Its Unix sockets are the guest's kernel's, wherever their files are.
    const SERVER: &str = "import os, socket, sys\nserver = socket.socket()\n\
        server.bind(('127.0.0.1', 7001))\nserver.listen()\n\
        for name in '/tmp/s', os.path.expanduser('~/s'), 's':\n\
        \x20   socket.socket(socket.AF_UNIX).bind(name)\n\
        print('ready', flush=True)\n\
        client, _ = server.accept()\nclient.sendall(b'served ' + client.recv(16))\nclient.close()\n";
    guests_of_one(|place| {
        let port = free_port();
        let publish = format!("{port}:7001");
        let mut running = start(place, &["--publish", &publish], &["python3", "-c", SERVER]);
        running.printed("ready\n");
        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        client.write_all(b"host").unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        assert_eq!(text, "served host");
        running.finish().ends(0);
        // What is not published is the guest's own.
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    });
}

#[test]
fn limits_hold_in_a_guest() {
    guests_of_one(|place| {
        let script = "ulimit -n; ulimit -Hn; ulimit -Hc; ulimit -c unlimited 2>/dev/null || echo none; \
                      for to in /tmp /dev/shm $HOME .; do head -c 3M /dev/zero >$to/big && echo $to; done";
        let options = ["--open-files", "64", "--disk", "1M"];
        let ended = start(place, &options, &["bash", "-c", script]).finish();
        assert_eq!(ended.text(), "64\n64\n0\nnone\n.");
        assert_eq!(ended.err.matches("No space left on device").count(), 3, "{}", ended.err);
        // Of each process: a guest's many may have more together.
        let script = "for n in $(seq 30); do sleep 1000 & done; sleep 0; ls -d /etc";
        assert_eq!(
            start(place, &["--open-files", "48"], &["bash", "-c", script]).finish().quiet(),
            "/etc"
        );
        // The control.
        let script =
            "for to in /tmp /dev/shm $HOME .; do head -c 3M /dev/zero >$to/big && echo $to; done";
        assert_eq!(start(place, &[], &["bash", "-c", script]).finish().well().lines().count(), 4);
        // Half a processor is a control group's to give: QEMU has it, or the run is refused, and so is the plan.
        let half = start(place, &["--cpus", "0.5"], &["true"]).finish();
        let planned = call(place, &["plan", "--tier", "vm", "--cpus", "0.5"]);
        assert_eq!(half.code, planned.code);
        if half.code != 0 {
            half.ends(125).says("--allow-degraded cpus-limit");
            let accepted = ["--cpus", "0.5", "--allow-degraded", "cpus-limit"];
            start(place, &accepted, &["true"]).finish().ends(0).says("running without cpus-limit");
        }
    });
}

#[test]
fn what_looks_at_a_guests_calls_is_refused() {
    guests_of_one(|place| {
        let calls =
            "extends = [\"default\"]\n[syscalls]\nmode = \"learned\"\nallow = [\"openat\"]\n";
        place.file("home/project/calls.toml", calls);
        for (options, why) in [
            (&["-p", "calls.toml"][..], "a list of system calls"),
            (&["--record-programs"], "--record-programs does not go with the vm tier"),
            (&["--gateway"], "another kernel cannot connect to"),
            (&["--publish", "7002/udp"], "datagrams are not carried"),
        ] {
            start(place, options, &["touch", "ran"]).finish().ends(125).says(why);
            let plan = [&["plan", "--tier", "vm"], options].concat();
            call(place, &plan).ends(125).says(why);
        }
        let traced = ["--trace-missing"];
        start(place, &traced, &["touch", "ran"])
            .finish()
            .ends(125)
            .says("--trace-missing does not");
        assert!(!place.project("ran").exists());
    });
}

#[test]
fn why_says_of_a_guests_files_what_the_run_makes_of_them() {
    guests_of_one(|place| {
        // A hook that is a link: what it leads to is protected, by no name of its own.
        place.file("home/project/tool.sh", "#!/bin/sh\n");
        place.file("home/project/.git/config", "[core]\n");
        place.directory("home/project/.git/hooks");
        place.link("home/project/.git/hooks/pre-commit", "../../tool.sh");
        let why = call(place, &["why", "--tier", "vm", "--", "write", "tool.sh"]);
        why.ends(1).prints("leads to it");
        sh(place, &[], "echo evil >> tool.sh").ends(2).says("Read-only file system");
        call(place, &["why", "--tier", "vm", "--", "write", "other"]).ends(0);
    });
}

/// A client that asks one thing after the other.
const CLIENT: &str = r#"
import json, subprocess, sys
server = subprocess.Popen(sys.argv[1:] + ["mcp", "--tier", "vm"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
def send(message):
    server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    server.stdin.flush()
def call(tool, **arguments):
    send({"id": 7, "method": "tools/call", "params": {"name": tool, "arguments": arguments}})
    return json.loads(server.stdout.readline())["result"]["structuredContent"]
hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
send({"id": 1, "method": "initialize", "params": hello})
server.stdout.readline()
send({"method": "notifications/initialized"})
assert call("snapshot_create", name="base").get("snapshot"), "made"
assert call("exec", command=["uname", "-n"])["stdout"] == "vm\n"
assert call("write_file", path="a", text="two\n").get("error") is None
assert call("write_file", path="/etc/made", text="x").get("error")
assert call("read_file", path="a")["text"] == "two\n"
assert len(call("snapshot_revert", snapshot="base")["reverted"]) == 1
assert call("exec", command=["cat", "a"])["stdout"] == "one\n"
server.stdin.close()
assert server.wait() == 0
print("held")
"#;

#[test]
fn tools_act_in_a_guest() {
    guests_of_one(|place| {
        place.file("home/project/a", "one\n");
        place.file("home/client.py", CLIENT);
        let mut command = ringfence(place, &[]);
        let program = command.get_program().to_owned();
        command = place.command("python3");
        command.arg(place.at("home/client.py")).arg(program);
        command.env("XDG_CACHE_HOME", super::vm::cache(place.person));
        Running::start(command).finish().ends(0).prints("held");
        assert_eq!(fs::read_to_string(place.project("a")).unwrap(), "one\n");
    });
}

#[test]
fn the_record_tells_what_a_guest_did() {
    guests_of_one(|place| {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        let allowed = format!("localhost:{port}");
        std::thread::spawn(move || {
            for mut client in server.incoming().flatten() {
                let _ = client.write_all(b"served\n");
            }
        });
        let script =
            format!("cat </dev/tcp/127.0.0.1/{port}; exec 4<>/dev/tcp/192.0.2.1/81 || exit 3");
        start(place, &["-n", &allowed], &["bash", "-c", &script]).finish();
        let log = call(place, &["logs", "latest"]).well();
        for words in
            ["bash -c", &format!("tcp localhost:{port} 0 B out, 7 B in"), "DENIED tcp 192.0.2.1:81"]
        {
            assert!(log.contains(words), "{words}: {log}");
        }
        // It is nobody's business how the run was made.
        assert!(!log.contains("guest-bridge") && !log.contains("qemu"), "{log}");
        call(place, &["report", "latest"]).ends(0).prints("vm");
    });
}

/// Root is nobody there either: what acts on the kernel is shown, and not changed, by a command and by those after it.
#[test]
fn nobody_changes_the_guests_kernel() {
    guests(|place| {
        let script = "try() { for at in sys/kernel/core_pattern sys/vm/swappiness sysrq-trigger; do \
                      (echo 10 >/proc/$at) 2>/dev/null && echo changed $at; done; }; cat /proc/sys/vm/swappiness; try; \
                      cat /proc/sys/vm/swappiness; unshare -Ur true 2>/dev/null; echo done";
        let said = start(place, &[], &["sh", "-c", script]).finish().well();
        let (before, after) = said.split_once('\n').expect("two lines");
        assert_eq!(after, format!("{before}\ndone"), "{:?}", place.person);
    });
}
