//! The launcher killed at each stage of a launch: nothing is left behind.
//!
//! `RINGFENCE_FAULT=STAGE` makes the launcher kill itself by SIGKILL when that stage is
//! reached, so that each is hit for certain. Everything of a sandbox holds the standard output
//! that the test reads to its end: then nobody lives any more.

use ringfence_tests::{Finished, Person, Place, Running, Tier, everybody, everywhere};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The stages of a launch whose plan is not compiled yet, by the launcher and by its child.
fn stages(place: &Place) -> Vec<String> {
    forget_plans(place);
    traced(place)
}

/// The stages of a launch whose plan is.
fn hot_stages(place: &Place) -> Vec<String> {
    place.clock_moves_on();
    let stages = (0..20).map(|_| traced(place)).find(|stages| is_hot(stages));
    stages.expect("a plan is used again")
}

fn is_hot(stages: &[String]) -> bool {
    stages.iter().any(|stage| stage == "resumed")
}

fn traced(place: &Place) -> Vec<String> {
    let mut command = place.ringfence_run();
    command.env("RINGFENCE_FAULT", "none").env("RINGFENCE_TRACE_LAUNCH", "2");
    command.args(["--", "sh", "-c", ":"]);
    let trace = Running::start(command).finish().err;
    let names: BTreeSet<_> =
        trace.lines().filter_map(|line| line.split(' ').nth(1)).map(ToOwned::to_owned).collect();
    names.into_iter().collect()
}

fn forget_plans(place: &Place) {
    let _ = std::fs::remove_dir_all(place.at("home/.cache/ringfence/plans"));
}

/// A run that dies at a stage. Its command leaves protected things behind, to be put right.
fn run_with_fault(place: &Place, stage: &str, options: &[&str]) -> Finished {
    let path = place.text("");
    let script = format!(
        "mkdir -p .vscode; echo x > .vscode/tasks.json; echo x > .envrc
         setsid sh -c 'while :; do sleep 1000; done' {path} &
         echo ran; true"
    );
    let mut command = place.ringfence_run();
    // Both variables, as where the stages were found: their names are part of a plan's key.
    command.env("RINGFENCE_FAULT", stage).env("RINGFENCE_TRACE_LAUNCH", "2");
    command.args(options).args(["--", "sh", "-c", &script]);
    Running::start(command).finish()
}

#[test]
fn the_stages_are_known() {
    everywhere(|place| {
        let stages = stages(place);
        for stage in
            ["policy", "plan", "prepared", "cloned", "child", "view", "rules", "executed", "ended"]
        {
            assert!(stages.iter().any(|other| other == stage), "{stage} is not in {stages:?}");
        }
        let stages = hot_stages(place);
        for stage in ["image", "stamps", "resumed", "child", "view", "rules", "executed", "ended"] {
            assert!(stages.iter().any(|other| other == stage), "{stage} is not in {stages:?}");
        }
        assert!(!stages.iter().any(|stage| stage == "policy"), "{stages:?}");
    });
}

#[test]
fn a_launcher_killed_at_any_stage_leaves_no_process_mount_or_ghost() {
    everywhere(|place| {
        let cold = stages(place).into_iter().map(|stage| (stage, false));
        let hot = hot_stages(place).into_iter().map(|stage| (stage, true));
        for (stage, hot) in cold.chain(hot) {
            if hot {
                hot_stages(place);
            } else {
                forget_plans(place);
            }
            let ended = run_with_fault(place, &stage, &[]);
            assert_eq!(ended.signal, Some(9), "at {stage}: {} {}", ended.code, ended.err);
            // The child builds already, but executes nothing before it knows that the plan holds; one of a plan that
            // was just made, and in the process tier, is not made before.
            let before = ["policy", "plan", "image", "stamps", "prepared", "view"];
            let waits = stage == "cloned" && hot && place.tier_name() == "namespace";
            let may_run = !(waits || before.contains(&stage.as_str()));
            assert!(may_run || ended.out.is_empty(), "at {stage}: {:?}", ended.out);
            let left: Vec<String> = place
                .left_behind()
                .into_iter()
                // The process tier's private directory may need the next run, as below.
                .filter(|what| !what.starts_with("temporary"))
                .collect();
            assert_eq!(left, [""; 0], "at {stage}");
            for ghost in [".vscode", ".envrc"] {
                assert!(
                    !place.project(ghost).exists(),
                    "{ghost} at {stage}, {:?} {:?}",
                    place.person,
                    place.tier
                );
            }
        }
    });
}

#[test]
fn a_launcher_killed_at_any_stage_leaves_no_directory_past_the_next_run() {
    everywhere(|place| {
        for stage in stages(place) {
            forget_plans(place);
            run_with_fault(place, &stage, &[]);
            place.run(&[], &["true"]).ends(0);
            assert_eq!(place.left_behind(), [""; 0], "at {stage}");
        }
    });
}

/// Control groups that a launcher made.
fn groups_of(launcher: u32) -> Vec<PathBuf> {
    let prefix = format!("ringfence-{launcher}-");
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let mut found = Vec::new();
    for line in mounts.lines().filter(|line| line.contains(" cgroup")) {
        let at = line.split(' ').nth(1).unwrap();
        let entries = std::fs::read_dir(at).into_iter().flatten().flatten();
        let ours = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix));
        found.extend(ours.map(|entry| entry.path()));
    }
    found
}

#[test]
fn control_groups_of_killed_launchers_are_removed_by_a_later_run() {
    everywhere(|place| {
        let limits = ["--pids", "100"];
        if place.person != Person::Root || place.run(&limits, &["true"]).code != 0 {
            return;
        }
        for stage in stages(place).iter().filter(|stage| stage.as_str() != "ended") {
            let mut command = place.ringfence_run();
            command.env("RINGFENCE_FAULT", stage).args(limits).args(["--", "true"]);
            let running = Running::start(command);
            let launcher = running.pid();
            running.finish();
            // A process leaves its group a moment after it has closed what it held open.
            let gone = (0..50).any(|_| {
                place.run(&limits, &["true"]).ends(0);
                groups_of(launcher).is_empty()
            });
            assert!(gone, "{:?} at {stage}", groups_of(launcher));
        }
    });
}

#[test]
fn a_refused_launch_leaves_nothing() {
    everywhere(|place| {
        for options in [
            &["-r", "no-such"][..],
            &["--workdir", "no-such"],
            &["--tier", "vm", "--network", "host"],
        ] {
            place.run(options, &["sh", "-c", "echo ran"]).ends(125);
            assert_eq!(place.left_behind(), [""; 0], "{options:?}");
        }
        place.run(&[], &["no-such-program"]).ends(127);
        assert_eq!(place.left_behind(), [""; 0]);
    });
}

#[test]
fn what_was_there_before_a_killed_run_is_there_after_it() {
    everybody(Tier::Namespace, |place| {
        place.file("home/project/.vscode/tasks.json", "host's");
        place.file("home/project/.envrc", "host's");
        for stage in stages(place) {
            forget_plans(place);
            run_with_fault(place, &stage, &[]);
            for kept in [".vscode/tasks.json", ".envrc"] {
                assert_eq!(
                    std::fs::read_to_string(place.project(kept)).unwrap(),
                    "host's",
                    "at {stage}"
                );
            }
        }
    });
}
