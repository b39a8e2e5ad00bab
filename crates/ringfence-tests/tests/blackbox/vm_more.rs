//! `--tier vm`: what is the launcher's or the bridge's affair holds for guests too, and what only a guest's kernel knows is
//! told.

use super::inspection::server::Server;
use super::vm::{cache, guests_of_one, ringfence, sh, start};
use ringfence_tests::{Person, Place, Running, Tier, binary, copy_program, left_out, people};
use rustix::process::Signal;
use std::fs;

/// Fills the memory that there is, piece by piece: one piece of all of it would be refused.
const GREEDY: &str = "kept = []\nwhile True: kept.append(b'x' * (1 << 26))\n";

#[test]
fn requests_of_a_guest_are_looked_at_and_get_what_is_never_inside() {
    const SECRET: &str = "s3cret-credential-0123456789";
    guests_of_one(|place| {
        let server = Server::secure();
        let authority = place.file("authority.pem", &server.authority);
        let rule = format!("GET localhost:{}/echo/*", server.port);
        let header = format!("localhost:{} X-Key=env:TOKEN", server.port);
        let script = format!(
            "U=https://localhost:{}; curl -sS $U/echo/x | grep -i x-key; \
             curl -sS -o /dev/null -w '%{{http_code}}\\n' $U/no; echo \"inside: ${{TOKEN-none}}\"",
            server.port
        );
        let mut command = ringfence(place, &["run", "--tier", "vm", "--http", &rule]);
        command.env("SSL_CERT_FILE", authority).env("TOKEN", SECRET);
        command.args(["--inject", &header, "--", "sh", "-c", &script]);
        let ended = Running::start(command).finish();
        assert_eq!(ended.well(), format!("x-key: {SECRET}\n403\ninside: none"));
    });
}

#[test]
fn a_guest_sees_exactly_the_libraries_that_its_command_needs() {
    guests_of_one(|place| {
        let list = "ls /usr/lib/*-linux-gnu | wc -l";
        let count = |options: &[&str]| sh(place, options, list).well().parse::<usize>().unwrap();
        let (exact, all) = (count(&["--libs", "exact"]), count(&[]));
        assert!(0 < exact && exact < all, "{exact} of {all}");
    });
}

#[test]
fn hooks_run_outside_of_a_guest() {
    guests_of_one(|place| {
        let log = place.text("outside/log");
        place.file("outside/log", "");
        let profile = format!(
            "extends = [\"default\"]\n[hooks]\nbefore = [\"uname -r >> {log}\"]\n\
             after = [\"echo after >> {log}\"]\n"
        );
        place.file("home/.config/ringfence/profiles/hooked.toml", &profile);
        let inside = start(place, &["-p", "hooked"], &["uname", "-r"]).finish().well();
        let here = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let told = fs::read_to_string(place.at("outside/log")).unwrap();
        assert_eq!(told, format!("{here}after\n"));
        assert_ne!(inside, here.trim());
        // One that fails keeps the command from running.
        place.file("home/.config/ringfence/profiles/hooked.toml", profile.replace("uname -r", "!"));
        start(place, &["-p", "hooked"], &["touch", "ran"]).finish().ends(125).says("not run");
        assert!(!place.project("ran").exists());
    });
}

#[test]
fn memory_that_is_used_up_ends_a_program_and_is_told_and_the_session_lives() {
    guests_of_one(|place| {
        place.file("home/project/greedy.py", GREEDY);
        let mut running = start(place, &["--name", "greedy"], &["sh", "-c", "echo up; sleep 1000"]);
        running.printed("up\n");
        let exec = |words: &[&str]| {
            let words = [&["exec", "greedy", "--"], words].concat();
            Running::start(ringfence(place, &words)).finish()
        };
        exec(&["python3", "greedy.py"]).ends(137);
        assert_eq!(exec(&["echo", "lives"]).quiet(), "lives");
        running.signal(Signal::TERM);
        let told =
            "the guest's memory (1024 MiB) was used up (--memory): its kernel ended 1 process";
        running.finish().says(&format!("{told}\n"));
        let log = Running::start(ringfence(place, &["logs", "latest"])).finish().well();
        assert!(log.contains(&format!("{told} by")), "{log}");
        assert_eq!(place.left_behind(), [""; 0]);
        // A program that is killed otherwise is not said to have been ended for that.
        let ended = sh(place, &["--pids", "40"], "sh -c 'kill -KILL $$'; exit 137");
        assert_eq!(ended.ends(137).err.matches("ringfence:").count(), 0, "{}", ended.err);
    });
}

#[test]
fn an_emulated_guests_kernel_does_nothing_that_no_processor_gains_by() {
    guests_of_one(|place| {
        let status = Running::start(ringfence(place, &["vm", "status"])).finish().well();
        if !status.contains("executed by   tcg") {
            println!("skipped: {status}");
            return;
        }
        let script = "cat /sys/devices/system/clocksource/clocksource0/current_clocksource; \
                      cat /sys/kernel/mm/transparent_hugepage/enabled; \
                      awk '$1 == \"memory\" {print $4}' /proc/cgroups";
        assert_eq!(sh(place, &[], script).well(), "tsc\nalways madvise [never]\n0");
    });
}

#[test]
fn doctor_says_what_executes_guests() {
    guests_of_one(|place| {
        let told = Running::start(ringfence(place, &["doctor", "--json"])).finish().well();
        let told: serde_json::Value = serde_json::from_str(&told).unwrap();
        let findings = told["findings"].as_array().unwrap();
        let own = findings.iter().find(|finding| finding["name"] == "vm tier").unwrap();
        let found = own["found"].as_str().unwrap();
        let kernel = sh(place, &[], "uname -r").well();
        assert!(found.contains(&format!("guest kernel {kernel}")), "{found}");
        // It is no failure that QEMU executes them itself, and it says what would be faster.
        assert!(own["state"] == "ok" || own["remedy"].is_string(), "{own}");
    });
}

/// What stands in the program's place by then is not shown to a sandbox in its stead.
#[test]
fn a_program_that_was_removed_meanwhile_says_so() {
    guests_of_one(|place| {
        let program = place.at("rf");
        let run = |first: &str| {
            copy_program(binary(), &program);
            let script = format!(
                "exec 3<'{0}'; {first}; exec /proc/self/fd/3 run --tier vm -- true",
                program.display()
            );
            let mut command = place.command("/bin/sh");
            command.env("XDG_CACHE_HOME", cache(place.person)).args(["-c", &script]);
            Running::start(command).finish()
        };
        run(&format!("rm '{}'", program.display())).ends(125).says("start it anew");
        // The control.
        run(":").ends(0);
    });
}

/// Root with another user's home (`sudo -E`): what lies there would be the kernel and the memory of its guests.
#[test]
fn the_cache_of_another_user_is_none() {
    if !people().contains(&Person::Root) {
        return left_out(
            "another user's cache of guests",
            "it takes root to give a directory away",
        );
    }
    let place = Place::new(Person::Root, Tier::Namespace);
    let theirs = place.directory("theirs");
    std::os::unix::fs::chown(&theirs, Some(12345), None).unwrap();
    for words in [
        &["run", "--tier", "vm", "--", "true"][..],
        &["vm", "setup"],
        &["vm", "status"],
        &["vm", "clean"],
    ] {
        let mut command = ringfence(&place, words);
        command.env("XDG_CACHE_HOME", theirs.join("cache"));
        Running::start(command).finish().ends(125).says("is another user's (uid 12345)");
    }
    assert_eq!(fs::read_dir(&theirs).unwrap().count(), 0);
}

#[test]
fn what_the_caller_ignores_or_blocks_a_guests_command_does_too() {
    guests_of_one(|place| {
        let shown = "grep -E '^Sig(Blk|Ign)' /proc/self/status";
        let begun = |how: &str, words: &str| {
            let script = format!("{how} exec {words} {shown}");
            let mut command = place.command("bash");
            command.env("XDG_CACHE_HOME", cache(place.person)).args(["-c", &script]);
            Running::start(command).finish().quiet().replace(['\t', '\n'], " ")
        };
        for how in ["", "trap '' HUP INT QUIT PIPE CHLD XFSZ 40;"] {
            let run = format!("{} run --tier vm --", binary().display());
            assert_eq!(begun(how, &run), begun(how, ""), "{how}");
        }
        // Of a limit a program dies as outside.
        let script = "ulimit -f 1; head -c 100000 /dev/zero >x; echo $?";
        assert_eq!(start(place, &[], &["bash", "-c", script]).finish().text(), "153");
        if place.has("python3", "--version") {
            let script = "import os, signal, sys\nsignal.pthread_sigmask(signal.SIG_BLOCK, [10, 15, 42])\n\
                          os.execv(sys.argv[1], sys.argv[1:])\n";
            let mut command = place.command("python3");
            command.env("XDG_CACHE_HOME", cache(place.person)).args(["-c", script]);
            command.arg(binary()).args(["run", "--tier", "vm", "--"]);
            command.args(["grep", "SigBlk", "/proc/self/status"]);
            assert_eq!(Running::start(command).finish().quiet(), "SigBlk:\t0000020000004200");
        }
        // A terminal that hangs up ends nothing that is not to hear of it.
        let mut command = place.command("nohup");
        command.env("XDG_CACHE_HOME", cache(place.person)).arg(binary());
        command.args(["run", "--tier", "vm", "--", "sh", "-c"]);
        command.arg("echo up; while ! [ -e go ]; do sleep 0.1; done; echo lives");
        let mut running = Running::start(command);
        running.printed("up\n");
        running.signal(Signal::HUP);
        fs::write(place.project("go"), "").unwrap();
        running.finish().ends(0).prints("up\nlives");
    });
}

#[test]
fn what_no_guest_can_be_given_is_told_before_it_has_begun() {
    guests_of_one(|place| {
        let count = |words: &[String]| {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            start(place, &[], &[&["sh", "-c", "echo $#", "sh"][..], &words].concat()).finish()
        };
        let many = vec!["a".to_owned(); 65_537];
        count(&many)
            .ends(125)
            .says("has 65541 words or variables, and a virtual machine takes 65536");
        assert_eq!(count(&many[..60_000]).quiet(), "60000");
        let long = vec!["a".repeat(100_000); 12];
        count(&long).ends(125).says("bytes, and a virtual machine takes").says("standard input");
        assert_eq!(count(&long[..10]).quiet(), "10");
        // Where its socket can have no place.
        let long = place.directory(format!("outside/{}", "d".repeat(90)));
        let missing = place.at("outside/none");
        for (to, why) in [(&missing, "No such file or directory"), (&long, "more than 107 bytes")] {
            let mut command = ringfence(place, &["run", "--tier", "vm", "--", "true"]);
            command.env("TMPDIR", to).env_remove("XDG_RUNTIME_DIR");
            let named = format!("the virtual machine's directory in {}: ", to.display());
            let ended = Running::start(command).finish();
            ended.ends(125).says(&named).says(why).says("set TMPDIR");
        }
    });
}
