//! What can be seen, read and written inside, with the control that the same act, granted or
//! outside, works.

use ringfence_tests::{Place, Tier, everybody, everywhere};
use std::fs;
use std::path::Path;

/// The errno names that stand for "not there or not allowed".
const REFUSALS: [&str; 6] = [
    "Invalid cross-device link",
    "No such file or directory",
    // ENOENT in dash's words.
    "Directory nonexistent",
    "Permission denied",
    "Read-only file system",
    "Operation not permitted",
];

/// The act fails inside with one of the refusals.
#[track_caller]
fn refused(place: &Place, options: &[&str], script: &str) {
    let ended = place.sh(options, script);
    assert_ne!(ended.code, 0, "{script} works inside with {options:?}: {}", ended.text());
    assert!(ended.code < 125, "{script}: ringfence itself failed: {}", ended.err);
    assert!(REFUSALS.iter().any(|text| ended.err.contains(text)), "{script}: {}", ended.err);
}

#[test]
fn the_project_is_writable_and_what_is_written_stays() {
    everywhere(|place| {
        place.sh(&[], "echo one > a && mkdir d && mv a d/b && ln -s b d/l && chmod 700 d").ends(0);
        assert_eq!(fs::read_to_string(place.project("d/b")).unwrap(), "one\n");
        assert!(place.project("d/l").is_symlink());
        place.sh(&[], "rm -r d").ends(0);
        assert!(!place.project("d").exists());
    });
}

#[test]
fn the_system_is_readable_and_not_writable() {
    everywhere(|place| {
        place
            .sh(&[], "cat /etc/passwd >/dev/null && ls /usr/bin >/dev/null && test -x /bin/sh")
            .ends(0);
        for path in ["/usr", "/etc", "/usr/bin", "/", "/opt", "/dev", "/proc", "/sys"] {
            refused(place, &[], &format!("echo x > {path}/ringfence-probe"));
            assert!(!Path::new(path).join("ringfence-probe").exists());
        }
        refused(place, &[], "echo x >> /etc/passwd");
        refused(place, &[], "rm /usr/bin/env");
    });
}

#[test]
fn metadata_outside_the_writable_trees_stays() {
    everywhere(|place| {
        // The caller's own files, so that only the sandbox stands between.
        let secret = place.text("outside/secret");
        let shown = ["-r", &secret];
        let state = |place: &Place| place.shell(&format!("stat -c '%a %u %g %Y' {secret}")).well();
        let before = state(place);
        for act in ["chmod 777", "touch -d 2001-01-01", "chmod u+s"] {
            refused(place, &shown, &format!("{act} {secret}"));
            assert_eq!(state(place), before, "{act}");
        }
        place.sh(&["-w", &secret], &format!("chmod 640 {secret}")).ends(0);
        assert_ne!(state(place), before, "the control");
    });
}

#[test]
fn beside_the_project_nothing_is_seen() {
    everywhere(|place| {
        place.file("home/.ssh/id_ed25519", "key");
        place.file("home/other/file", "other project");
        let outside = place.text("outside/secret");
        place.shell(&format!("cat {outside} ~/.ssh/id_ed25519 ../other/file")).ends(0);
        for path in [outside.as_str(), "~/.ssh/id_ed25519", "../other/file"] {
            refused(place, &[], &format!("cat {path}"));
        }
        refused(place, &[], &format!("cat {}", place.text("home/.ssh/id_ed25519")));
        refused(place, &[], &format!("echo x > {}", place.text("outside/new")));
        refused(place, &[], &format!("rm {outside}"));
        assert!(!place.at("outside/new").exists());
        // Granted, the same works.
        let ended = place.sh(&["-r", &place.text("outside")], &format!("cat {outside}"));
        assert_eq!(ended.well(), "a secret");
    });
}

#[test]
fn home_is_private_and_ends_with_the_run() {
    everywhere(|place| {
        place.file("home/.bashrc", "host's");
        let script = "test -w ~ && echo x > ~/.bashrc && cat ~/.bashrc && mkdir -p ~/.config/x";
        assert_eq!(place.sh(&[], script).quiet(), "x");
        assert_eq!(fs::read_to_string(place.at("home/.bashrc")).unwrap(), "host's");
        assert!(!place.at("home/.config").exists());
        place.sh(&[], "test -e ~/.bashrc").ends(1);
    });
}

#[test]
fn a_grant_within_another_one_is_there_by_the_home() {
    everywhere(|place| {
        place.file("home/docs/a", "a\n");
        place.directory("home/docs/below/deep");
        let (docs, below) = (place.text("home/docs"), place.text("home/docs/below"));
        let deep = place.text("home/docs/below/deep");
        let script = "cat ~/docs/a; echo b > ~/docs/below/b; cat ~/docs/below/b; \
                      echo c > ~/docs/below/deep/c || echo no; echo d > ~/docs/d || echo no";
        let seen = place.sh(&["-r", &docs, "-w", &below, "--protect", &deep], script);
        seen.ends(0);
        let kept = place.at("home/docs/below/deep/c").exists();
        assert!(!kept && !place.at("home/docs/d").exists());
        assert_eq!(fs::read_to_string(place.at("home/docs/below/b")).unwrap(), "b\n");
        let control = place.sh(&["-w", &docs], "echo d > ~/docs/d && cat ~/docs/d");
        assert_eq!(control.quiet(), "d");
        assert_eq!(
            fs::read_dir(below).unwrap().count(),
            2,
            "a link is left in the host's directory"
        );
    });
}

#[test]
fn temporary_directories_are_private() {
    everywhere(|place| {
        let name = format!("seen-{}", place.root().file_name().unwrap().display());
        let on_host = Path::new("/tmp").join(&name);
        fs::write(&on_host, "x").unwrap();
        let seen = place.sh(&[], &format!("cat /tmp/{name}"));
        fs::remove_file(&on_host).unwrap();
        assert_ne!(seen.code, 0, "/tmp of the host is seen");
        let script =
            format!("f=$(mktemp) && echo y > $f && cat $f; touch ${{TMPDIR:-/tmp}}/{name}");
        assert_eq!(place.sh(&[], &script).quiet(), "y");
        assert!(!on_host.exists());
        assert_eq!(place.left_behind(), [""; 0]);
    });
    everybody(Tier::Namespace, |place| {
        place
            .sh(
                &[],
                "for d in /tmp /var/tmp /dev/shm; do echo x > $d/f && cat $d/f || exit 1; done",
            )
            .ends(0);
    });
}

#[test]
fn a_project_in_a_directory_for_temporary_files_works() {
    everywhere(|place| {
        for base in ["/var/tmp", "/tmp"] {
            let project = tempfile::tempdir_in(base).unwrap();
            place.person.owns(project.path());
            let mut command = place.ringfence_run();
            command.current_dir(project.path()).args(["--", "sh", "-c", "pwd; echo x > made"]);
            let ended = ringfence_tests::Running::start(command).finish();
            assert_eq!(ended.quiet(), project.path().to_str().unwrap());
            assert_eq!(fs::read_to_string(project.path().join("made")).unwrap(), "x\n");
            // The directory around it is one for temporary files inside as well, and the sandbox's own.
            if place.tier != Tier::Process {
                let script = format!("f=$(mktemp -p {base}) && echo y > $f && cat $f && echo $f");
                let mut command = place.ringfence_run();
                command.current_dir(project.path()).args(["--", "sh", "-c", &script]);
                let said = ringfence_tests::Running::start(command).finish().quiet();
                let (written, file) = said.split_once('\n').unwrap();
                assert_eq!(written, "y");
                assert!(file.starts_with(base) && !Path::new(file).exists(), "{file}");
            }
        }
    });
}

#[test]
fn reading_does_not_imply_writing_and_writing_implies_reading() {
    everywhere(|place| {
        let (file, secret) = (place.text("outside/secret"), place.text("outside"));
        refused(place, &["-r", &secret], &format!("echo x >> {file}"));
        refused(place, &["-r", &secret], &format!("touch {secret}/new"));
        place.sh(&["-w", &secret], &format!("cat {file} && echo more >> {file}")).ends(0);
        assert_eq!(fs::read_to_string(&file).unwrap(), "a secret\nmore\n");
        // A single file, not its neighbours.
        place.file("outside/neighbour", "x");
        place.sh(&["-w", &file], &format!("echo again > {file}")).ends(0);
        refused(place, &["-w", &file], &format!("cat {secret}/neighbour"));
    });
}

#[test]
fn deny_beats_every_grant() {
    everybody(Tier::Namespace, |place| {
        place.file("home/project/.env", "TOKEN=1");
        place.file("home/project/keys/a", "key");
        place.sh(&[], "cat .env keys/a").ends(0);
        refused(place, &["--deny", ".env"], "cat .env");
        refused(place, &["--deny", ".env", "-r", ".env"], "cat .env");
        refused(place, &["--deny", "keys"], "ls keys");
        refused(place, &["--deny", "keys", "-w", "keys"], "cat keys/a");
        refused(place, &["--deny", "keys"], "echo x > keys/b");
        // Neither renaming nor hard linking leads around it, in a later run either.
        place.sh(&["--deny", "keys/a"], "mv keys k").ends(1).says("busy");
        refused(place, &["--deny", "keys/a"], "mv keys k; cat k/a");
        refused(place, &["--deny", "keys/a"], "ln keys/a b && cat b");
        assert_eq!(fs::read_to_string(place.project("keys/a")).unwrap(), "key");
    });
}

#[test]
fn deny_of_what_does_not_exist_yet_leaves_nothing() {
    everybody(Tier::Namespace, |place| {
        let ended = place.sh(&["--deny", "later"], "echo x > later; true");
        ended.ends(0);
        assert!(!place.project("later").exists(), "{}", ended.err);
        place.sh(&[], "echo x > later").ends(0);
        assert!(place.project("later").exists());
    });
}

#[test]
fn deny_inside_a_writable_tree_is_refused_in_the_process_tier() {
    everybody(Tier::Process, |place| {
        place.file("home/project/.env", "TOKEN=1");
        let ended = place.sh(&["--deny", ".env"], "cat .env");
        ended.ends(125).says(".env").says("--allow-degraded deny");
        let accepted = place.sh(&["--deny", ".env", "--allow-degraded", "deny"], "cat .env");
        accepted.ends(0).says("running without deny");
        // Inside a readable tree it holds.
        place.file("outside/deep/x", "x");
        let outside = place.text("outside");
        let options = ["-r", &outside, "--deny", &place.text("outside/secret")];
        refused(place, &options, &format!("cat {outside}/secret"));
        assert_eq!(place.sh(&options, &format!("cat {outside}/deep/x")).well(), "x");
    });
}

#[test]
fn protect_refuses_writing_inside_a_writable_tree() {
    everybody(Tier::Namespace, |place| {
        place.file("home/project/ci/build", "host's");
        place.sh(&[], "echo x >> ci/build").ends(0);
        for act in ["echo x >> ci/build", "rm ci/build", "mv ci other", "rm -r ci", "touch ci/new"]
        {
            let before = fs::read_to_string(place.project("ci/build")).unwrap();
            let ended = place.sh(&["--protect", "ci"], act);
            assert_ne!(ended.code, 0, "{act} works");
            assert!(
                ended.err.contains("Read-only file system") || ended.err.contains("busy"),
                "{act}: {}",
                ended.err
            );
            assert_eq!(fs::read_to_string(place.project("ci/build")).unwrap(), before);
        }
        place.sh(&["--protect", "ci"], "cat ci/build && touch beside").ends(0);
        // Parents of a protected file cannot be renamed away with it.
        place.sh(&["--protect", "ci/build"], "mv ci other").ends(1).says("busy");
    });
}

#[test]
fn a_missing_path_is_an_error_unless_optional() {
    everywhere(|place| {
        for option in ["-r", "-w"] {
            let ended = place.run(&[option, "no-such"], &["true"]);
            ended.ends(125).says("no-such").says("does not exist").says("?");
            place.run(&[option, "?no-such"], &["true"]).ends(0);
        }
        place.run(&["--protect", "no-such"], &["true"]).ends(0);
        assert!(!place.project("no-such").exists(), "no ghost");
    });
}

#[test]
fn the_command_starts_where_it_is_told() {
    everywhere(|place| {
        place.directory("home/project/deep");
        assert_eq!(place.sh(&[], "pwd").well(), place.text("home/project"));
        let deep = place.sh(&["--workdir", "deep"], "pwd; touch here");
        assert_eq!(deep.well(), place.text("home/project/deep"));
        assert!(place.project("deep/here").exists());
        place.sh(&["--workdir", "no-such"], "pwd").ends(125).says("no-such");
        assert_eq!(place.sh(&["-r", "/etc", "--workdir", "/etc"], "pwd").well(), "/etc");
    });
}

#[test]
fn the_hosts_home_and_named_ones() {
    everybody(Tier::Namespace, |place| {
        place.file("home/.profile", "host's");
        refused(place, &["--home", "host"], "cat ~/.profile");
        let profile = place.text("home/.profile");
        assert_eq!(
            place.sh(&["--home", "host", "-r", &profile], "cat ~/.profile").well(),
            "host's"
        );
        place.sh(&["--home", "agent"], "test ! -e ~/note && echo kept > ~/note").ends(0);
        assert_eq!(place.sh(&["--home", "agent"], "cat ~/note").well(), "kept");
        place.sh(&["--home", "other"], "cat ~/note").ends(1);
        place.sh(&[], "cat ~/note").ends(1);
        assert!(!place.at("home/note").exists());
        for name in ["../x", "a/b", "", "."] {
            place.sh(&["--home", name], "true").ends(125);
        }
    });
}

#[test]
fn links_do_not_lead_out() {
    everywhere(|place| {
        place.link("home/project/out", place.at("outside"));
        place.link("home/project/etc", "/etc");
        place.shell("cat out/secret").ends(0);
        refused(place, &[], "cat out/secret");
        refused(place, &[], "echo x > out/new");
        refused(place, &[], "echo x > etc/ringfence-probe");
        refused(place, &[], "cat ../../outside/secret");
        refused(
            place,
            &[],
            "cat /proc/self/root/../../../../../../etc/shadow || cat /proc/1/root/etc/shadow",
        );
        place.sh(&[], "ln -s /etc/passwd in && cat in >/dev/null").ends(0);
        assert!(!place.at("outside/new").exists());
    });
}

/// As `uvx` and `pipx run` do: they lock the directory of the tools that are installed, and make files
/// in it, to run one that is not.
#[test]
fn a_tool_is_run_once_beside_those_that_are_installed_which_stay_as_they_are() {
    everywhere(|place| {
        for tools in [".local/share/uv/tools", ".local/share/pipx/venvs", ".local/pipx/venvs"] {
            let tool =
                place.file(format!("home/{tools}/lint/bin/lint"), "#!/bin/sh\necho linted\n");
            place.shell(&format!("chmod 755 ~/{tools}/lint/bin/lint")).ends(0);
            let lock = place.file(format!("home/{tools}/.lock"), "the host's");
            place.sh(&[], &format!("~/{tools}/lint/bin/lint")).prints("linted");
            let once = format!(
                "cd ~/{tools} && mktemp .tmpXXXXXX && echo x > .lock && mkdir once && cat .lock"
            );
            assert!(place.sh(&[], &once).well().trim().ends_with('x'), "{tools}");
            let names = fs::read_dir(lock.parent().unwrap()).unwrap().count();
            assert_eq!((names, fs::read_to_string(&lock).unwrap().as_str()), (2, "the host's"));
            refused(place, &[], &format!("echo x >> ~/{tools}/lint/bin/lint"));
            refused(place, &[], &format!("echo x > ~/{tools}/lint/new"));
            refused(place, &[], &format!("rm -r ~/{tools}/lint/bin"));
            assert_eq!(fs::read_to_string(&tool).unwrap(), "#!/bin/sh\necho linted\n");
        }
    });
}

/// Package managers of several languages keep a project's dependencies in the home. Programs outside run
/// them: not even the profiles of those package managers let them be changed.
#[test]
fn dependencies_that_are_kept_in_the_home_are_readable_and_stay_as_they_are() {
    const KEPT: [(&str, &str); 9] = [
        (".cache/node/corepack/v1/pnpm/9.1.0/bin/pnpm.cjs", "pnpm"),
        (".cache/node-gyp/20.0.0/include/node.h", "npm"),
        (".cache/pypoetry/virtualenvs/shop/bin/lint", "pip"),
        (".local/share/virtualenvs/shop/bin/lint", "pip"),
        (".local/share/gem/ruby/3.1.0/bin/lint", "default"),
        (".gem/ruby/3.1.0/bin/lint", "default"),
        (".yarn/berry/cache/lint.zip", "default"),
        (".cache/deno/npm/lint/lint.js", "default"),
        (".cache/ms-playwright/chromium-1/chrome", "npm"),
    ];
    everywhere(|place| {
        for (name, profile) in KEPT {
            let file = place.file(format!("home/{name}"), "the host's\n");
            for options in [&[][..], &["-p", profile, "--network", "none"]] {
                assert_eq!(place.sh(options, &format!("cat ~/{name}")).well(), "the host's");
                refused(place, options, &format!("echo x >> ~/{name}"));
                refused(place, options, &format!("echo x > ~/{name}.new"));
            }
            assert_eq!(fs::read_to_string(&file).unwrap(), "the host's\n");
        }
        // What is missing of Corepack's is fetched all the same, for the run.
        let once = "mkdir -p ~/.cache/node/corepack/v1/pnpm/8.0.0 && echo fetched";
        assert_eq!(place.sh(&[], once).well(), "fetched");
        assert!(!place.at("home/.cache/node/corepack/v1/pnpm/8.0.0").exists());
    });
}

/// Gradle cannot be used without locks in its caches: without its profile it has some of its own.
#[test]
fn caches_that_their_program_locks_are_the_sandboxs_own() {
    everywhere(|place| {
        let lock = place.file("home/.gradle/caches/8.0/fileHashes/fileHashes.lock", "the host's");
        let locks = "cd && mkdir -p .gradle/caches/8.0/fileHashes && \
                     echo x > .gradle/caches/8.0/fileHashes/fileHashes.lock && echo locked";
        assert_eq!(place.sh(&[], locks).well(), "locked");
        assert_eq!(fs::read_to_string(&lock).unwrap(), "the host's");
        assert_eq!(place.sh(&["-p", "gradle", "--network", "none"], locks).well(), "locked");
        assert_eq!(fs::read_to_string(&lock).unwrap(), "x\n");
    });
}

/// As the home is that they are in: `gpg` warns of a `~/.gnupg` that others may look into.
#[test]
fn directories_that_are_made_in_the_home_are_closed_to_others() {
    everybody(Tier::Namespace, |place| {
        let file = place.file("home/.keys/agent/file", "");
        let other = place.file("outside/deep/file", "");
        let modes = |file: &Path| {
            let options = ["-r", file.to_str().unwrap()];
            let script = format!("cd {:?} && stat -c %a .. .", file.parent().unwrap());
            place.sh(&options, &script).well()
        };
        assert_eq!(modes(&file), "700\n700");
        assert_eq!(modes(&other), "755\n755");
    });
}
