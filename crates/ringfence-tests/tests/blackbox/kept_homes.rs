//! Homes that are kept (`--home NAME`): what an earlier run left in one leads the next start nowhere.

use ringfence_tests::{Finished, Place, Tier, everybody, everywhere};
use std::fs;

const KEPT: [&str; 2] = ["--home", "kept"];

/// A run with that home: `given` is what it is granted besides.
fn run(place: &Place, given: &[&str], script: &str) -> Finished {
    place.sh(&[&KEPT[..], given].concat(), script)
}

/// Grants below a home are shown in it, and so their places are made in it.
#[test]
fn grants_are_shown_where_they_are_and_stay_so() {
    everybody(Tier::Namespace, |place| {
        place.file("home/d/f", "a file");
        place.file("home/d/s/t", "in a directory");
        let given = ["-r", "~/d/f", "-w", "~/d/s"];
        for _ in 0..2 {
            run(place, &given, "cat ~/d/f ~/d/s/t && echo more >> ~/d/s/u").ends(0);
        }
        assert_eq!(fs::read_to_string(place.at("home/d/s/u")).unwrap(), "more\nmore\n");
    });
}

#[test]
fn a_link_that_a_run_left_is_not_followed() {
    everybody(Tier::Namespace, |place| {
        place.file("home/d/f", "a file");
        place.file("home/d/s/t", "in a directory");
        place.directory("outside/o");
        let outside = place.at("outside/o");
        let elsewhere = outside.display().to_string();
        let control = run(place, &["-r", "~/d/f"], "cat ~/d/f; rm -rf ~/d 2>/dev/null; true");
        control.ends(0).prints("a file");
        let started = place.at("home/d/s").display().to_string();
        for target in [elsewhere.as_str(), "../../etc", "/etc"] {
            run(place, &[], &format!("rm -rf ~/d && ln -s {target} ~/d")).ends(0);
            for given in [
                &["-r", "~/d/f"][..],
                &["-r", "~/d/s"],
                &["-w", "~/d/s/deep/er"],
                &["--workdir", &started],
            ] {
                place.directory("home/d/s/deep/er");
                let refused = run(place, given, "true");
                refused.ends(125).says("/d").says("is a symbolic link");
            }
            // What is not on such a way is none of it.
            run(place, &["-r", "~/project"], "true").ends(0);
        }
        // Nor the last name, nor the directory that the command starts in.
        run(place, &[], &format!("rm ~/d && mkdir ~/d && ln -s {elsewhere}/x ~/d/f")).ends(0);
        run(place, &["-r", "~/d/f"], "true").ends(125);
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "nothing was made outside");
    });
}

/// Without a view of its own nothing is made in it for a grant.
#[test]
fn no_tier_makes_anything_through_it() {
    everywhere(|place| {
        place.file("home/d/f", "a file");
        place.directory("outside/o");
        let outside = place.at("outside/o");
        // The process tier has no kept homes.
        let code = if place.tier_name() == "process" { 125 } else { 0 };
        run(place, &[], &format!("ln -s {} ~/d", outside.display())).ends(code);
        run(place, &["-r", "~/d/f", "-r", "~/d/g"], "true").ends(125);
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "nothing was made outside");
    });
}
