//! Virtual environments outside the project: shown where they are active, and named where they are not.

use ringfence_tests::{Finished, Place, Running, Tier, everybody, everywhere};
use std::fs;

/// An environment as `python3 -m venv` lays it out, with a program whose interpreter is in it.
fn environment(place: &Place, name: &str) -> String {
    let root = place.directory(name);
    place.file(format!("{name}/pyvenv.cfg"), "home = /usr/bin\n");
    place.file(format!("{name}/pip.conf"), "a password\n");
    place.file(format!("{name}/lib/module"), "a module\n");
    place.directory(format!("{name}/bin"));
    place.link(format!("{name}/bin/python"), "/bin/sh");
    let program = format!("#!{}/bin/python\ncat {}/lib/module\n", root.display(), root.display());
    place.program(format!("{name}/bin/rf-tool"), &program);
    root.display().to_string()
}

/// A run with the environment's programs first in `PATH`, as where it is active.
fn run(place: &Place, root: &str, active: bool, options: &[&str], argv: &[&str]) -> Finished {
    let mut command = place.ringfence_run();
    command.env("PATH", format!("{root}/bin:/usr/bin:/bin"));
    if active {
        command.env("VIRTUAL_ENV", root);
    }
    command.args(options).arg("--").args(argv);
    Running::start(command).finish()
}

#[test]
fn the_one_that_is_active_is_readable_but_for_its_settings_of_pip() {
    everywhere(|place| {
        let root = environment(place, "home/v");
        run(place, &root, true, &[], &["rf-tool"]).ends(0).prints("a module");
        let settings = format!("{root}/pip.conf");
        let refused = run(place, &root, true, &[], &["cat", &settings]);
        refused.ends(1);
        assert!(!refused.text().contains("a password"), "{}", refused.text());
        run(place, &root, true, &["-r", &settings], &["cat", &settings])
            .ends(0)
            .prints("a password");
        let written =
            run(place, &root, true, &[], &["sh", "-c", &format!("echo x > {root}/lib/y")]);
        assert_ne!(written.code, 0);
        assert!(!place.at("home/v/lib/y").exists(), "it is only read");
    });
}

/// Whatever the variable holds, an earlier run's link too.
#[test]
fn one_that_leads_elsewhere_grants_nothing_and_stops_nothing() {
    everywhere(|place| {
        let root = environment(place, "home/other");
        place.link("home/project/.venv", "../other");
        let inside = place.project(".venv").display().to_string();
        let module = format!("{root}/lib/module");
        let led = run(place, &inside, true, &[], &["cat", &module]);
        assert_eq!((led.code, led.text().as_str()), (1, ""), "{}", led.err);
        run(place, ".venv", true, &[], &["true"]).ends(0);
        run(place, &root, true, &[], &["cat", &module]).ends(0).prints("a module");
    });
}

#[test]
fn one_that_is_not_active_is_named_whole() {
    everywhere(|place| {
        let root = environment(place, "home/v");
        let grant = format!("-r {root}");
        let told = run(place, &root, false, &[], &["rf-tool"]);
        told.says("on the host it is").says(&grant);
        assert!(!told.err.contains(&format!("{grant}/bin")), "{}", told.err);
        run(place, &root, false, &["-r", &root], &["rf-tool"]).ends(0).prints("a module");
    });
    everybody(Tier::Namespace, |place| {
        let root = environment(place, "home/v");
        let program = format!("{root}/bin/rf-tool");
        let alone = run(place, &root, false, &["-r", &program], &["rf-tool"]);
        alone.ends(126).says("its interpreter does not exist in the sandbox");
        alone.says(&format!("it is {root}/bin/python, which no rule grants: -r {root}"));
        let why = place.ringfence(["why", "--", "exec", &program]);
        assert!(why.ends(1).text().ends_with(&format!("--read {root}")), "{}", why.text());
        let traced = run(place, &root, false, &["--trace-missing"], &["sh", "-c", "rf-tool"]);
        traced.says(&format!("--read {root} shows it"));
        // The control: beside no environment it is the file.
        fs::remove_file(place.at("home/v/pyvenv.cfg")).unwrap();
        let why = place.ringfence(["why", "--", "exec", &program]);
        assert!(why.ends(1).text().ends_with(&format!("--read {program}")), "{}", why.text());
    });
}
