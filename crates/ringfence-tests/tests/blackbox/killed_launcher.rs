//! What a run prepared whose launcher was killed: later runs know of it, and the user's own work after
//! it is left alone.

use ringfence_tests::{Place, Running, Tier, everybody, everywhere};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::os::unix::process::CommandExt as _;

/// A repository but for its name and its HEAD, with a key that runs something.
const HALF: &str = "mkdir -p made/half/objects made/half/refs; \
                    printf '[core]\\n\\tfsmonitor = touch marker\\n' > made/half/config; echo ready; \
                    exec sleep 1000";
/// What makes it one.
const RENAME: &str =
    "echo 'ref: refs/heads/m' > made/half/HEAD; mv made/half made/.git; echo x > made/file";

/// A run that has prepared it and goes on.
fn preparing(place: &Place) -> Running {
    let mut running = place.start(&["--status-fd", "1"], &["sh", "-c", HALF]);
    // The launcher knows that the command runs.
    running.printed("ready\n").printed("started");
    running
}

/// The attack's second half, in a run of its own: what it made is noticed and taken away.
fn is_judged(place: &Place) {
    place.clock_moves_on();
    place.sh(&[], RENAME).ends(0).says("made/.git/config was created or changed inside");
    assert!(!place.project("made/.git/config").exists());
    assert!(place.project("made/file").exists());
}

/// Without the first run all of it is the user's: the same files, the same rename.
fn is_the_users_own(place: &Place) {
    place.shell(&HALF.replace("exec sleep 1000", "true").replace("made", "own")).ends(0);
    place.clock_moves_on();
    let quiet = place.sh(&[], &RENAME.replace("made", "own"));
    assert_eq!(quiet.quiet(), "", "what the user made is left alone");
    assert!(place.project("own/.git/config").exists());
}

#[test]
fn what_a_killed_launcher_s_run_prepared_is_judged_later() {
    everywhere(|place| {
        // The second one is started from a plan that was kept.
        for round in 0..2 {
            let running = preparing(place);
            running.signal(Signal::KILL);
            // The end of its output: the warden, which holds it, has put right what it could.
            running.finish().ends(137);
            place.clock_moves_on();
            // By then it was over: what the user makes now is the user's.
            is_the_users_own(place);
            is_judged(place);
            place.shell("rm -rf own made").ends(0);
            assert_eq!(place.left_behind(), [""; 0], "round {round}");
        }
    });
}

/// As tools do at the end of a time that they give.
#[test]
fn whoever_kills_the_launchers_group_leaves_nobody_of_the_run() {
    everywhere(|place| {
        // The second one is started from a plan that was kept.
        for _ in 0..2 {
            let mut command = place.ringfence_run();
            let away = "setsid sh -c 'echo ready; exec sleep 1000' & exec sleep 1000";
            command.args(["--", "sh", "-c", away]).process_group(0);
            let mut running = Running::start(command);
            running.printed("ready\n");
            let group = Pid::from_raw(running.pid().cast_signed()).expect("a process");
            kill_process_group(group, Signal::KILL).expect("a group of ours");
            // The end of its output, which the one that left the group holds too.
            running.finish().ends(137);
        }
    });
}

/// With the warden killed too nobody says when it ended.
#[test]
fn what_a_run_prepared_of_which_nothing_is_left_is_judged_later() {
    everybody(Tier::Namespace, |place| {
        let running = preparing(place);
        let launcher = running.pid();
        let list = format!("/proc/{launcher}/task/{launcher}/children");
        let warden = std::fs::read_to_string(list).unwrap();
        let warden: i32 = warden.split_whitespace().next().unwrap().parse().unwrap();
        // Stopped, the launcher cannot see that the warden is gone.
        running.signal(Signal::STOP);
        kill_process(Pid::from_raw(warden).unwrap(), Signal::KILL).unwrap();
        running.signal(Signal::KILL);
        // The namespace's end is the command's.
        running.finish().ends(137);
        is_judged(place);
    });
}

/// A start that came to nothing has no time of its own.
#[test]
fn what_the_user_makes_after_a_start_that_failed_is_left_alone() {
    everywhere(|place| {
        for _ in 0..2 {
            place.run(&[], &["no-such-program"]).ends(127);
            place.clock_moves_on();
            is_the_users_own(place);
            place.shell("rm -rf own").ends(0);
        }
    });
}

/// Another run that goes on at the same time could have written there, too.
#[test]
fn what_a_run_that_goes_on_prepares_is_judged_by_others() {
    everywhere(|place| {
        let running = preparing(place);
        is_judged(place);
        running.signal(Signal::TERM);
        running.finish().ends(143);
        // Its note is complete: what comes now is the user's.
        place.clock_moves_on();
        is_the_users_own(place);
    });
}
