//! What a program leaves for those who name files outside: links that lead where it may not read or write, pipes
//! that hold up whoever opens them, streams that it keeps.

use ringfence_tests::{Place, Running, Tier, binary, everybody, everywhere};
use std::fs;
use std::path::Path;

/// A session in the project, where these names are then made by its own program.
fn session(place: &Place, script: &str) -> Running {
    let path = format!("{}:/usr/bin:/bin", place.text("home/project/bin"));
    let mut command = place.ringfence_run();
    let script = format!("{script}\necho up; exec sleep 1000");
    command.env("PATH", path).args(["--name", "one", "--", "sh", "-c", &script]);
    let mut running = Running::start(command);
    running.printed("up\n");
    running
}

fn ends(place: &Place, running: Running) {
    place.ringfence(["kill", "one"]).quiet();
    running.finish().ends(143);
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap()
}

/// What an earlier run left in another tree, which the session may write too, is no more the user's word.
#[test]
fn a_link_that_an_earlier_run_left_elsewhere_leads_no_copy() {
    everywhere(|place| {
        let (data, secret) = (place.directory("home/data"), place.text("outside/secret"));
        let data = data.display().to_string();
        let plant =
            format!("ln -sf {secret} {data}/report; ln -sfn {} {data}/dist", place.text("outside"));
        place.run(&["-w", &data], &["sh", "-c", &plant]).ends(0);
        place.clock_moves_on();
        place.link("home/data/own", place.at("home/project"));
        place.clock_moves_on();
        let mut command = place.ringfence_run();
        command.args([
            "--name",
            "one",
            "-w",
            &data,
            "--",
            "sh",
            "-c",
            "echo new > new; echo up; exec sleep 1000",
        ]);
        let mut running = Running::start(command);
        running.printed("up\n");
        let copy = |from: &str, to: &str| place.ringfence(["cp", from, to]);
        let report = |to: &str| place.ringfence(["report", "one", "--output", to]);
        copy(&format!("{data}/report"), "one:stolen").ends(125).says("may have made");
        copy(&format!("{data}/dist/secret"), "one:stolen").ends(125).says("may have made");
        copy("one:new", &format!("{data}/dist/")).ends(125).says("may have made");
        report(&format!("{data}/dist/page.html")).ends(125).says("may have made");
        // The control: a link of the user's.
        copy("one:new", &format!("{data}/own/copied")).ends(0);
        assert_eq!(read(place.project("copied")), "new\n");
        assert_eq!(fs::read_dir(place.at("outside")).unwrap().count(), 1);
        ends(place, running);
    });
}

#[test]
fn what_is_copied_in_is_no_link_of_the_programs_and_no_pipe() {
    everywhere(|place| {
        place.file("home/plain", "plain\n");
        place.file("home/project/tree/file", "a tree\n");
        place.link("home/own", place.at("home/plain"));
        let script = format!(
            "ln -s {0}/secret log; ln -s {0} logs; mkfifo pipe; echo own > file",
            place.text("outside")
        );
        let running = session(place, &script);
        let copy = |from: &str, to: &str| place.ringfence(["cp", from, &format!("one:{to}")]);
        for from in ["log", "logs", "logs/secret"] {
            copy(from, "stolen").ends(125).says("may have made").says("outside");
        }
        copy("pipe", "stolen").ends(125).says("pipe is neither a file nor a directory");
        let given = format!("{} cp <(echo given) one:stolen", binary().display());
        place.shell(&given).ends(125).says("is neither a file nor a directory");
        copy("no-such", "stolen").ends(125).says("no-such");
        let there = |path: &str| place.ringfence(["exec", "one", "--", "cat", path]);
        there("stolen").ends(1);
        // The control: what is no link goes in, a link of the user's too, and what a link leads to by its own name.
        let secret = place.text("outside/secret");
        let own = place.text("home/own");
        let all = [("file", "own\n"), (&own, "plain\n"), (&secret, "a secret\n")];
        for (from, text) in all {
            copy(from, "copy").ends(0);
            assert_eq!(there("copy").ends(0).text(), text.trim_end());
        }
        copy("tree", "copied").ends(0);
        there("copied/file").ends(0).prints("a tree");
        ends(place, running);
    });
}

/// A `cat` of the program's own that keeps what it was lent, and uses it when it is told to.
const CAT: &str = "#!/bin/sh
echo first
(
    trap '' PIPE
    read go < gate
    echo late
    echo done > told
) 2> /dev/null &
";

#[test]
fn what_was_copied_out_is_not_written_to_later() {
    everywhere(|place| {
        place.script("bin/cat", CAT);
        let running = session(place, "mkfifo gate told; touch file");
        let copy = place.text("outside/copy");
        let file = format!("one:{}", place.text("home/project/file"));
        place.ringfence(["cp", &file, &copy]).ends(0);
        assert_eq!(read(&copy), "first\n");
        // What is in the background goes on, and has nowhere to write to.
        place.shell("echo go > gate; cat told").ends(0).prints("done");
        assert_eq!(read(&copy), "first\n");
        ends(place, running);
    });
}

#[test]
fn large_files_come_and_go_whole() {
    everywhere(|place| {
        // More than pipes hold, and no multiple of what is read at once.
        let bytes: Vec<u8> = (0..3_000_001u32).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
        place.file("home/large", &bytes);
        let running = session(place, "");
        let inside = format!("one:{}", place.text("home/project/large"));
        place.ringfence(["cp", &place.text("home/large"), &inside]).quiet();
        assert!(fs::read(place.project("large")).unwrap() == bytes);
        place.ringfence(["cp", &inside, &place.text("home/back")]).quiet();
        assert!(fs::read(place.at("home/back")).unwrap() == bytes);
        // Who does not read all of it is answered by his code.
        place.script("bin/cat", "#!/bin/sh\nexit 3\n");
        place
            .ringfence(["cp", &place.text("home/large"), "one:x"])
            .ends(125)
            .says("exit status: 3");
        ends(place, running);
    });
}

#[test]
fn a_report_goes_to_a_new_file_and_through_no_link() {
    everybody(Tier::Namespace, |place| {
        place.file("home/victim", "the user's\n");
        place.directory("home/kept");
        let script = "ln -s ../victim page.html; ln -s ../kept pages; mkfifo pipe.html; ln -s ../absent dangling.html";
        place.sh(&[], script).quiet();
        let report = |to: &str| place.ringfence(["report", "latest", "--output", to]);
        for name in ["page.html", "pipe.html", "dangling.html"] {
            report(name).quiet();
            assert!(place.project(name).symlink_metadata().unwrap().is_file(), "{name}");
            assert!(read(place.project(name)).starts_with("<!doctype html>"));
        }
        report("pages/page.html").ends(125).says("may have made");
        assert_eq!(read(place.at("home/victim")), "the user's\n");
        assert!(!place.at("home/absent").exists());
        assert_eq!(fs::read_dir(place.at("home/kept")).unwrap().count(), 0);
        // The control: the user's own places, and a stream.
        place.link("home/places", place.at("home/kept"));
        place.sh(&["--workdir", &place.text("home/project")], "true").quiet();
        report(&place.text("home/kept/page.html")).quiet();
        let stream = format!("{} report latest --output /dev/stdout | cat", binary().display());
        place.shell(&stream).ends(0).prints("<!doctype html>");
        let parts = fs::read_dir(place.at("home/project")).unwrap().flatten();
        assert!(
            !parts
                .map(|entry| entry.file_name())
                .any(|name| name.display().to_string().contains("part"))
        );
    });
}

#[test]
fn what_is_written_to_a_file_goes_through_no_dangling_link() {
    everybody(Tier::Namespace, |place| {
        let settings = place.file("home/settings.json", "{}");
        let settings = settings.to_str().unwrap();
        place.sh(&[], "ln -s ../absent policy.toml; mkfifo pipe.toml").quiet();
        for name in ["policy.toml", "pipe.toml"] {
            place.ringfence(["import", "claude", settings, "-o", name]).ends(0);
            assert!(place.project(name).symlink_metadata().unwrap().is_file(), "{name}");
        }
        assert!(!place.at("home/absent").exists());
    });
}

#[test]
fn a_pipe_in_the_place_of_a_policy_holds_up_no_run() {
    everywhere(|place| {
        // A directory deeper down, where nobody takes it away.
        place.directory("home/project/sub");
        place.shell("mkfifo sub/ringfence.toml").ends(0);
        let run = |words: &str| place.shell(&format!("cd sub; {words}"));
        let ran = run("exec $RF -- sh -c 'echo ran'");
        ran.ends(0).prints("ran").says("ringfence.toml is not trusted");
        let ringfence = binary().display();
        for words in ["trust ringfence.toml", "learn --merge ringfence.toml -- true"] {
            run(&format!("exec {ringfence} {words}")).ends(125).says("it is no regular file");
        }
    });
}

/// A run of which nothing can be noted, as on a full disk, says what follows from that.
#[test]
fn a_run_that_cannot_be_noted_says_so() {
    everywhere(|place| {
        let runs = place.at("home/.local/state/ringfence/runs");
        place.run(&[], &["true"]).ends(0).quiet();
        fs::remove_file(&runs).unwrap();
        fs::create_dir(&runs).unwrap();
        for _ in 0..2 {
            let run = place.run(&[], &["true"]);
            run.ends(0).says("this run cannot be noted in ").says("counts as yours in later runs");
            assert_eq!(run.err.lines().count(), 1, "{}", run.err);
        }
        // The control.
        fs::remove_dir(&runs).unwrap();
        place.run(&[], &["true"]).ends(0).quiet();
        assert!(runs.is_file());
    });
}
