//! Homes that are not below `/home`: behind a link, in a tree that everybody is shown, in `/var/tmp`.

use ringfence_tests::{Finished, Person, Place, Running, Tier, binary, everybody, everywhere};
use std::fs;
use std::path::{Path, PathBuf};

/// A script in the project, with another home.
fn sh(place: &Place, home: &Path, options: &[&str], script: &str) -> Finished {
    let mut command = place.ringfence_run();
    command.env("HOME", home).args(options).args(["--", "sh", "-c", script]);
    Running::start(command).finish()
}

#[test]
fn a_home_behind_a_link_is_there_by_its_name() {
    everywhere(|place| {
        place.file("home/document", "private");
        place.file("home/granted/file", "shown\n");
        let link = place.link("moved", "home");
        let works =
            "cd && pwd >p && cd / && cat ~/p >/dev/null && mkdir -p ~/.cache/x && echo there";
        sh(place, &link, &[], works).ends(0).prints("there");
        let hidden = sh(place, &link, &[], "cat ~/document");
        assert_ne!(hidden.code, 0, "{}", hidden.err);
        sh(place, &link, &["-r", "~/granted"], "cat ~/granted/file").ends(0).prints("shown");
        assert!(!place.at("home/p").exists() && !place.at("home/.cache/x").exists());
    });
}

/// A directory in a tree of the system's, removed at the end.
struct Elsewhere(PathBuf);

impl Elsewhere {
    fn new(place: &Place, above: &str) -> Option<Elsewhere> {
        let name = place.root().file_name().expect("a name").to_owned();
        let home = Elsewhere(Path::new(above).join(name));
        fs::create_dir(&home.0).ok()?;
        for name in [".ssh", "beside"] {
            fs::create_dir(home.0.join(name)).unwrap();
        }
        for name in [".ssh/id_ed25519", ".netrc", "document"] {
            fs::write(home.0.join(name), "SECRET\n").unwrap();
        }
        for name in ["", ".ssh", "beside", ".ssh/id_ed25519", ".netrc", "document"] {
            place.person.owns(&home.0.join(name));
        }
        Some(home)
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Of what ships every rule is about programs, and none about whoever lives in their tree.
#[test]
fn a_home_in_a_tree_that_is_shown_is_private() {
    everywhere(|place| {
        for above in ["/opt", "/usr/local", "/usr/share", "/var/tmp"] {
            let Some(home) = Elsewhere::new(place, above) else {
                println!("skipped: nothing can be made in {above}");
                return;
            };
            let beside = format!("{}-beside", home.0.display());
            fs::write(&beside, "a program's\n").unwrap();
            for name in [".ssh/id_ed25519", ".netrc", "document"] {
                let read =
                    sh(place, &home.0, &[], &format!("cat ~/{name} {}/{name}", home.0.display()));
                assert_ne!(read.code, 0, "{above} {name}");
                assert!(!read.text().contains("SECRET"), "{above} {name}");
            }
            sh(place, &home.0, &[], "touch ~/x && ls ~/x >/dev/null").ends(0);
            assert!(!home.0.join("x").exists(), "{above}");
            let seen = sh(place, &home.0, &[], &format!("cat {beside}"));
            // What the user grants himself is shown.
            let document = format!("{}/document", home.0.display());
            sh(place, &home.0, &["-r", &document], &format!("cat {document}")).prints("SECRET");
            fs::remove_file(&beside).unwrap();
            if above != "/var/tmp" {
                seen.ends(0).prints("a program's");
            }
        }
    });
}

/// Where parts of `/proc` are covered, as in a container, the kernel lets nobody mount another one.
#[test]
fn where_no_proc_can_be_mounted_another_tier_is_taken() {
    everybody(Tier::Namespace, |place| {
        if place.person != Person::Root {
            return;
        }
        let run = format!("{} run -- echo ran", binary().display());
        let within = |script: &str| {
            let mut command = place.command("unshare");
            command.args(["-mpf", "--kill-child", "--propagation", "private", "sh", "-ec", script]);
            Running::start(command).finish()
        };
        let covered = "mount -t proc proc /proc && mount --bind /proc/sys /proc/sys && \
                       mount -o remount,bind,ro /proc/sys";
        let other = within(&format!("mount -t proc proc /proc && {run} 2>&1"));
        other.ends(0).prints("ran");
        for _ in 0..2 {
            let fallen_back = within(&format!("{covered} && {run}"));
            fallen_back.ends(0).prints("ran").says("using the process tier: ");
        }
        let of_that_tier = run.replace("run --", "run --tier namespace --");
        let named = within(&format!("{covered} && {of_that_tier}"));
        named.ends(125).says("no /proc can be mounted");
        // The plan that was kept there is none for here.
        let again = place.ringfence(["run", "--", "echo", "ran"]);
        again.ends(0).prints("ran");
        assert_eq!(again.err, "");
    });
}

/// The launcher's own files may be larger than what the command may write.
#[test]
fn a_limit_of_files_ends_what_writes_past_it_alone() {
    everywhere(|place| {
        for _ in 0..60 {
            place.run(&[], &["true"]).ends(0);
        }
        let inside = place.shell("ulimit -f 1; $RF -- sh -c 'echo done; exit 7'");
        inside.ends(7).prints("done");
        // The command's own are limited as outside.
        let large = "ulimit -f 1; $RF -- sh -c 'head -c 9000 /dev/zero >large; kill -l $?'";
        assert_eq!(place.shell(large).text(), "XFSZ", "{:?} {:?}", place.person, place.tier);
    });
}

/// What is denied there is not: neither is ringfence's own, which is found there as soon as something was run.
#[test]
fn a_private_home_is_private_where_all_of_the_host_is_shown() {
    everybody(Tier::Namespace, |place| {
        let Some(home) = Elsewhere::new(place, "/srv") else { return };
        // Makes what is denied: the plans that are kept.
        sh(place, &home.0, &[], "true").ends(0);
        assert!(home.0.join(".cache/ringfence").exists(), "{:?}", place.person);
        for _ in 0..2 {
            let shown = "ls -A ~/.cache ~/.ssh ~/document 2>/dev/null; cat /etc/os-release >/dev/null && echo shown";
            sh(place, &home.0, &["-r", "/"], shown).ends(0).prints("shown");
        }
        let all = &["-r", "/", "--home", "host"];
        sh(place, &home.0, all, "ls -A ~/.cache/ringfence; cat ~/document").prints("SECRET");
    });
}

/// What is granted in a place of the sandbox's own is no part of what is granted around it.
#[test]
fn what_is_granted_in_a_private_home_is_there_where_all_of_the_host_is_shown() {
    everybody(Tier::Namespace, |place| {
        place.file("home/document", "private\n");
        let given = place.file("home/given/file", "shown\n").display().to_string();
        let home = place.at("home");
        let above = place.root().display().to_string();
        let script = "cat ~/given/file; cat ~/document";
        let ended = sh(place, &home, &["-r", "/", "-r", &given], script);
        ended.prints("shown").says("document: No such file");
        let ended = sh(place, &home, &["-r", "/"], script);
        ended.says("given/file: No such file").says("document: No such file");
        // So is what is granted as a whole.
        let ended = sh(place, &home, &["-r", "/", "-r", "~"], "cat ~/document");
        ended.ends(0).prints("private");
        if above.starts_with("/tmp/") {
            let beside = place.file("beside", "beside\n").display().to_string();
            let script = format!("cat {beside}");
            sh(place, &home, &["-r", "/", "-r", "/tmp"], &script).ends(0).prints("beside");
            let ended = sh(place, &home, &["-r", "/"], &script);
            ended.ends(1).says("beside: No such file");
        }
    });
}
