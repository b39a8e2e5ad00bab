//! What is only written in a private home: where its directory is on the host alone the write fails inside.

use crate::learn_rules::{learn, rules};
use ringfence_tests::{Person, Place, Tier, everybody};
use std::fs;

#[test]
fn a_directory_that_only_the_host_has_is_proposed_to_be_written() {
    everybody(Tier::Namespace, |place| {
        for script in ["echo x > ~/data/o", "mkdir ~/data/nd", "cd /; touch ~/data/deep/o"] {
            let _ = fs::remove_file(place.project("l.toml"));
            let _ = fs::remove_dir_all(place.at("home/data"));
            place.directory("home/data/deep");
            assert_ne!(place.sh(&[], script).code, 0, "the control: it fails inside");
            learn(place, &["-o", "l.toml"], script).ends(0).says("1 rule proposed");
            assert!(rules(place).contains("~/data"), "{}", rules(place));
            assert!(!place.at("home/data/o").exists(), "nothing real is changed");
            place.run(&["-p", "./l.toml"], &["sh", "-c", script]).ends(0);
            let made =
                ["o", "nd", "deep/o"].iter().any(|name| place.at("home/data").join(name).exists());
            assert!(made, "{script}");
            let _ = fs::remove_dir(place.at("home/data/nd"));
            learn(place, &["-p", "./l.toml"], script).ends(0).says("nothing to propose");
        }
    });
}

#[test]
fn what_the_private_home_takes_is_told_to_be_gone() {
    everybody(Tier::Namespace, |place| {
        place.directory("home/made");
        place.directory("home/.app");
        let script = "echo x > ~/new; mkdir -p ~/made && echo x > ~/made/o; mkdir -p ~/.app; \
                      echo x > ~/.app/log";
        let learnt = learn(place, &[], script);
        learnt.ends(0).says("nothing to propose");
        learnt.says("gone with each run").says("~/new").says("~/.app");
        place.sh(&[], script).ends(0);
        assert!(!place.at("home/new").exists() && !place.at("home/made/o").exists());
        let kept = learn(place, &[], "echo x > new");
        assert!(!kept.err.contains("gone with each run"), "{}", kept.err);
    });
}

#[test]
fn a_directory_to_be_written_in_is_missed_and_why_says_so() {
    everybody(Tier::Namespace, |place| {
        let data = place.directory("home/data").display().to_string();
        let traced = place.run(&["--trace-missing"], &["sh", "-c", "echo x > ~/data/o"]);
        traced.says(&format!("missing: {data} (by sh)")).says(&format!("--write {data} lets that"));
        let made = "mkdir -p ~/data && echo x > ~/data/o";
        let traced = place.run(&["--trace-missing"], &["sh", "-c", made]);
        traced.ends(0).says("nothing that the host has was missing");
        let file = format!("{data}/o");
        let why = place.ringfence(["why", "--", "write", &file]);
        why.ends(0).prints(&format!("{data} is not there inside, until it is made"));
        let why = place.ringfence(["why", "--", "write", "~/new"]);
        assert!(!why.text().contains("not there"), "{}", why.text());
        // Nobody is told to grant a directory of secrets, or what programs' directories are in, for one file.
        for (above, file) in [(".ssh", ".ssh/config"), (".cache", ".cache/new")] {
            let above = place.directory(format!("home/{above}")).display().to_string();
            let why = place.ringfence(["why", "--", "write", &format!("~/{file}")]).ends(0).text();
            assert!(
                !why.contains(&format!("--write {above} "))
                    && !why.ends_with(&format!("--write {above}")),
                "{why}"
            );
            assert!(
                why.contains(&format!("--write {}", place.text(format!("home/{file}")))),
                "{why}"
            );
            let script = format!("echo x > ~/{file}");
            let traced = place.run(&["--trace-missing"], &["sh", "-c", &script]);
            traced.says(&format!("{above} (by sh)")).says("grant that alone");
        }
    });
}

/// A user's own `default` extends the one that ships, and is called as it is.
#[test]
fn a_profile_that_is_named_twice_is_extended_once() {
    let place = Place::new(Person::Ordinary, Tier::Namespace);
    place.file("home/.config/ringfence/profiles/default.toml", "extends = [\"default\"]\n");
    let learnt = learn(&place, &[], "true");
    learnt.ends(0).prints("extends = [\"default\"]");
}

#[test]
fn what_is_missing_is_told_in_each_tier() {
    for tier in Tier::here() {
        everybody(tier, |place| {
            let data = place.file("home/data/f", "x\n").display().to_string();
            let script = format!("head -c 1 {data}; cat l.txt; /bin/sh -c 'cat {data}'");
            place.file("home/project/l.txt", "shown\n");
            let traced = place.run(&["--trace-missing"], &["sh", "-c", &script]);
            let told = format!("missing: {data} (by cat, head); --read {data} shows it");
            traced.ends(1).prints("shown").says(&told);
            assert!(!traced.err.contains("l.txt"), "{}", traced.err);
            let traced = place.run(&["--trace-missing", "--read", &data], &["sh", "-c", &script]);
            traced.ends(0).says("nothing that the host has was missing");
        });
    }
}

/// What hooks of git, shells and package managers outside run lies beside logs and locks that programs write.
#[test]
fn directories_of_programs_that_run_outside_are_not_proposed_for_writing() {
    everybody(Tier::Namespace, |place| {
        let programs = [
            (".cache/pre-commit/repo/log", ".cache/pre-commit/repo/bin/black"),
            (".config/yarn/log", ".config/yarn/global/node_modules/.bin/tool"),
            (".cache/node/log", ".cache/node/corepack/v1/yarn/1.22.22/bin/yarn.js"),
            (".sbt/log", ".sbt/1.0/plugins/plugins.sbt"),
            (".zfunc/log", ".zfunc/_tool"),
            (".cache/ms-playwright/log", ".cache/ms-playwright/chromium-1/chrome"),
            (".local/share/virtualenvs/log", ".local/share/virtualenvs/x/bin/tool"),
        ];
        for (log, program) in programs {
            place.file(format!("home/{log}"), "old\n");
            let program = place.file(format!("home/{program}"), "old\n");
            let _ = fs::remove_file(place.project("l.toml"));
            let shown = program.display();
            learn(place, &["-o", "l.toml"], &format!("cat {shown}; echo a >> ~/{log}"));
            let changes = format!("echo evil > {shown}");
            assert_ne!(place.sh(&["-p", "./l.toml"], &changes).code, 0, "{log}");
            // Granted with all that is around it, too; and by exactly its name it is its user's.
            let above = place.at("home").join(log.split('/').next().unwrap());
            let tree = if log.starts_with(".cache") { above } else { place.at("home") };
            let tree = tree.display().to_string();
            assert_ne!(place.sh(&["-w", &tree], &changes).code, 0, "{log}");
            assert_eq!(fs::read_to_string(&program).unwrap(), "old\n", "{log}");
        }
        let environments = place.text("home/.cache/pre-commit");
        place.sh(&["-w", &environments], "echo new > ~/.cache/pre-commit/repo/bin/black").ends(0);
    });
}
