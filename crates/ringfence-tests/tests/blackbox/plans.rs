//! Compiled plans that are used again: a start from the cache does what an ordinary one does, and
//! whatever a plan was derived from makes it void.

use ringfence_tests::{Finished, Person, Place, Running, Tier, everybody, everywhere};
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

const PLANS: &str = "home/.cache/ringfence/plans";

fn plans(place: &Place) -> Vec<PathBuf> {
    let entries = fs::read_dir(place.at(PLANS)).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Runs a script, and says whether it was started from the cache.
fn traced(place: &Place, options: &str, script: &str) -> (Finished, bool) {
    let mut command = place.ringfence_run();
    command.env("RINGFENCE_TRACE_LAUNCH", "2").args(options.split_whitespace());
    command.args(["--", "sh", "-c", script]);
    let ended = Running::start(command).finish();
    let hot = ended.err.lines().any(|line| line.ends_with(" resumed"));
    (ended, hot)
}

/// Runs a script until it is started from the cache.
fn hot(place: &Place, options: &str, script: &str) -> Finished {
    place.clock_moves_on();
    let started = (0..20).map(|_| traced(place, options, script)).find(|(_, hot)| *hot);
    started.expect("a plan is used again").0
}

/// The same, which must not be started from the cache the next time.
fn cold(place: &Place, options: &str, script: &str) -> Finished {
    let (ended, hot) = traced(place, options, script);
    assert!(!hot, "a plan was used that does not hold any more");
    ended
}

#[test]
fn a_start_from_the_cache_is_as_any_other() {
    everywhere(|place| {
        let script = "echo $0 $# $1; id -u; pwd; umask; echo $HOME | wc -l; exit 7";
        let first = place.run(&[], &["sh", "-c", script, "a b", ""]);
        let again = hot(place, "", ":");
        assert_eq!(again.ends(0).text(), "");
        let second = place.run(&[], &["sh", "-c", script, "a b", ""]);
        assert_eq!((first.code, first.text()), (7, second.text()));
        assert_eq!(second.code, 7);
        assert_eq!(place.run(&[], &["sh", "-c", "kill -9 $$"]).code, 137);
        assert_eq!(place.run(&[], &["sh", "-c", "exec cat <nowhere"]).code, 2);
    });
}

#[test]
fn arguments_share_a_plan_and_programs_do_not() {
    everywhere(|place| {
        place.clock_moves_on();
        for argument in ["one", "two", "three"] {
            assert_eq!(place.run(&[], &["echo", argument]).well(), argument);
        }
        assert_eq!(plans(place).len(), 1);
        place.run(&[], &["true"]).ends(0);
        assert_eq!(plans(place).len(), 2);
        for plan in plans(place) {
            let data = plan.metadata().unwrap();
            assert_eq!((data.mode() & 0o7777, data.nlink()), (0o600, 1));
        }
        assert_eq!(place.at(PLANS).metadata().unwrap().mode() & 0o7777, 0o700);
    });
}

#[test]
fn what_is_protected_is_looked_at_each_time() {
    everybody(Tier::Namespace, |place| {
        let script = "echo x > .envrc";
        hot(place, "", ":");
        // Absent at the last start, and there now.
        place.file("home/project/.envrc", "host's");
        let refused = place.sh(&[], script);
        assert!(refused.err.contains("Read-only file system"), "{}", refused.err);
        assert_eq!(fs::read_to_string(place.project(".envrc")).unwrap(), "host's");
        // And away again.
        fs::remove_file(place.project(".envrc")).unwrap();
        place.sh(&[], script).ends(0);
        assert!(!place.project(".envrc").exists());
    });
}

#[test]
fn what_comes_and_goes_beside_protected_names_keeps_a_plan() {
    everywhere(|place| {
        place.shell("git init -q .");
        place.file("home/project/.vscode/tasks.json", "host's");
        hot(place, "", ":");
        let harmless =
            ["touch new", "mkdir dir", "rm new", "touch .git/index.lock", "rm .git/index.lock"];
        for change in harmless {
            place.shell(change);
            assert!(traced(place, "", ":").1, "{change}");
        }
        // A directory that was changed is looked through: by name, by end, and by number.
        let others = [
            ("touch .envrc", "rm .envrc"),
            ("touch a.code-workspace", "rm a.code-workspace"),
            ("mv .vscode v", "mv v .vscode"),
            ("mv .git g; ln -s g .git", "rm .git; mv g .git"),
            ("mkdir many; cd many; touch $(seq 256); mv * ..", "rm [1-9]*"),
        ];
        for (change, back) in others {
            place.shell(change);
            cold(place, "", ":");
            place.shell(back);
            hot(place, "", ":");
        }
    });
}

/// No start reads through a large directory: its protected names are asked for one by one, and how many more there
/// are does not count, as long as they are many.
#[test]
fn what_comes_and_goes_in_a_crowded_workspace_keeps_a_plan() {
    everywhere(|place| {
        place.file("home/project/.vscode/tasks.json", "host's");
        place.shell("touch $(seq 400)");
        hot(place, "", ":");
        for change in ["touch new", "mkdir dir", "rm new", "rm [1-9]"] {
            place.shell(change);
            assert!(traced(place, "", ":").1, "{change}");
        }
        let others = [
            ("touch .envrc", "rm .envrc"),
            ("mv .vscode v", "mv v .vscode"),
            ("rm [1-9]*", "touch $(seq 400)"),
        ];
        for (change, back) in others {
            place.shell(change);
            cold(place, "", ":");
            place.shell(back);
            hot(place, "", ":");
        }
    });
}

#[test]
fn a_name_that_is_protected_by_its_end_is_held_once_it_is_there() {
    everybody(Tier::Namespace, |place| {
        hot(place, "", ":");
        place.file("home/project/mine.code-workspace", "host's");
        let refused = place.sh(&[], "echo x > mine.code-workspace");
        assert!(refused.err.contains("Read-only file system"), "{}", refused.err);
        let kept = fs::read_to_string(place.project("mine.code-workspace")).unwrap();
        assert_eq!(kept, "host's");
        place.sh(&[], "echo x > free && cat free").ends(0).text();
    });
}

#[test]
fn a_hot_start_guards_like_a_cold_one() {
    everywhere(|place| {
        place.file("home/project/.vscode/tasks.json", "host's");
        for _ in 0..3 {
            place.clock_moves_on();
            place.sh(&[], "echo x > .vscode/tasks.json; echo x > .envrc; mkdir -p .idea; :");
            let kept = fs::read_to_string(place.project(".vscode/tasks.json")).unwrap();
            assert_eq!(kept, "host's");
            for ghost in [".envrc", ".idea"] {
                assert!(!place.project(ghost).exists(), "{ghost}");
            }
        }
    });
}

#[test]
fn profiles_links_and_variables_make_a_plan_void() {
    everywhere(|place| {
        let profile = "home/.config/ringfence/profiles/mine.toml";
        place.file("home/shown/file", "shown");
        place.file(profile, "extends = [\"default\"]\n");
        let look = "cat ~/shown/file";
        hot(place, "-p mine", "cat ~/shown/file || exit 5").ends(5);
        place.file(profile, "extends = [\"default\"]\n[filesystem]\nread = [\"~/shown\"]\n");
        assert_eq!(cold(place, "-p mine", look).text(), "shown");
        place.clock_moves_on();
        assert_eq!(hot(place, "-p mine", look).text(), "shown");
        if place.tier == Tier::Process {
            return; // Links of the home are not repeated there.
        }
        // The directory is a link to another one now.
        fs::rename(place.at("home/shown"), place.at("home/away")).unwrap();
        place.file("home/other/file", "other");
        place.link("home/shown", "other");
        assert_eq!(cold(place, "-p mine", look).text(), "other");
        // A credential that was not there.
        let mut command = place.ringfence_run();
        command.env("API_TOKEN", "secret").args(["--", "sh", "-c", "echo ${API_TOKEN-hidden}"]);
        assert_eq!(Running::start(command).finish().well(), "hidden");
    });
}

/// Of what is far below a name that is not there nothing is looked at but the directory that would have it.
#[test]
fn what_comes_far_below_makes_a_plan_void() {
    everywhere(|place| {
        let options = "-r ~/shown/far/below? -r ~/other?";
        let look = "cat ~/shown/far/below/file || exit 5";
        hot(place, options, look).ends(5);
        place.file("home/shown/unasked", "");
        hot(place, options, look).ends(5);
        place.file("home/shown/far/below/file", "there");
        assert_eq!(cold(place, options, look).well(), "there");
    });
}

/// What one may not look at is as absent: who is in other groups has another plan.
#[test]
fn a_plan_is_of_the_groups_that_it_was_made_for() {
    const GROUP: u32 = 54_321;
    everywhere(|place| {
        // Only root takes groups on for somebody else.
        if !ringfence_tests::people().contains(&Person::Root) || place.person == Person::Root {
            return;
        }
        let secret = place.file("home/team/secret/file", "of the team");
        place.file("home/team/hidden/file", "of the team");
        let team = place.at("home/team");
        std::os::unix::fs::lchown(&team, Some(0), Some(GROUP)).unwrap();
        fs::set_permissions(&team, fs::Permissions::from_mode(0o750)).unwrap();
        let (user, group) = place.person.ids();
        let read = |groups: &str| {
            let ringfence = place.ringfence_run();
            let mut command = std::process::Command::new("setpriv");
            let ids = [format!("--reuid={user}"), format!("--regid={group}"), groups.to_owned()];
            command.args(ids).arg(ringfence.get_program()).args(ringfence.get_args());
            command.env_clear().current_dir(ringfence.get_current_dir().unwrap());
            command.envs(ringfence.get_envs().filter_map(|(name, value)| Some((name, value?))));
            command.arg("-r").arg(&team);
            for hidden in ["home/team/secret", "home/team/hidden"] {
                command.arg("--deny").arg(place.at(hidden));
            }
            command.arg("--").arg("cat").arg(&secret);
            Running::start(command).finish()
        };
        place.clock_moves_on();
        for _ in 0..5 {
            assert_eq!(read("--clear-groups").text(), "");
        }
        let ours = read(&format!("--groups={GROUP}"));
        assert_eq!((ours.code, ours.text()), (1, String::new()), "{}", ours.err);
    });
}

#[test]
fn a_projects_own_policy_counts_from_the_next_start_on() {
    everywhere(|place| {
        hot(place, "", ":");
        place.file("home/project/ringfence.toml", "[environment]\nset = { X = \"1\" }\n");
        let untrusted = cold(place, "", "echo ${X-unset}");
        assert_eq!(untrusted.text(), "unset");
        assert!(untrusted.err.contains("is not trusted"), "{}", untrusted.err);
        place.ringfence(["trust", "ringfence.toml"]).ends(0);
        assert_eq!(place.sh(&[], "echo ${X-unset}").well(), "1");
        place.file("home/project/ringfence.toml", "[environment]\nset = { X = \"2\" }\n");
        assert_eq!(place.sh(&[], "echo ${X-unset}").text(), "unset");
    });
}

#[test]
fn a_broken_file_is_written_anew() {
    everywhere(|place| {
        hot(place, "", "echo ran");
        let plan = plans(place).pop().unwrap();
        let whole = fs::read(&plan).unwrap();
        let mut spoilt: Vec<Vec<u8>> = vec![
            Vec::new(),
            vec![0; 64],
            whole[..whole.len() / 2].to_vec(),
            [whole.as_slice(), b"12345678"].concat(),
        ];
        for at in (0..whole.len()).step_by(whole.len() / 23) {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x41;
            spoilt.push(bytes);
        }
        for bytes in spoilt {
            fs::write(&plan, &bytes).unwrap();
            let ended = cold(place, "", "echo ran");
            assert_eq!(ended.ends(0).text(), "ran");
            assert_ne!(fs::read(&plan).unwrap(), bytes);
        }
        assert_eq!(hot(place, "", "echo ran").text(), "ran");
    });
}

#[test]
fn only_a_file_of_ones_own_is_used() {
    everybody(Tier::Namespace, |place| {
        hot(place, "", "echo ran");
        let plan = plans(place).pop().unwrap();
        let whole = fs::read(&plan).unwrap();
        // Others may write to it.
        fs::set_permissions(&plan, fs::Permissions::from_mode(0o666)).unwrap();
        cold(place, "", "echo ran").ends(0);
        // It has another name.
        hot(place, "", "echo ran");
        fs::hard_link(&plan, place.at("home/other-name")).unwrap();
        cold(place, "", "echo ran").ends(0);
        // It is a link.
        let aside = place.file("home/aside", &whole);
        fs::set_permissions(&aside, fs::Permissions::from_mode(0o600)).unwrap();
        fs::remove_file(&plan).unwrap();
        place.link(format!("{PLANS}/{}", plan.file_name().unwrap().display()), &aside);
        cold(place, "", "echo ran").ends(0);
        assert!(plan.symlink_metadata().unwrap().is_file());
        // It is somebody else's.
        if place.person == Person::Root {
            hot(place, "", "echo ran");
            std::os::unix::fs::chown(&plan, Some(12345), None).unwrap();
            cold(place, "", "echo ran").ends(0);
        }
    });
}

#[test]
fn a_directory_that_others_can_write_is_not_used() {
    everybody(Tier::Namespace, |place| {
        let directory = place.directory(PLANS);
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
        place.clock_moves_on();
        place.run(&[], &["true"]).ends(0);
        assert_eq!(plans(place), [""; 0].map(PathBuf::from));
    });
}

#[test]
fn nothing_inside_sees_or_makes_plans() {
    everywhere(|place| {
        hot(place, "", ":");
        assert!(!plans(place).is_empty());
        let home = place.text("home");
        let script = format!("ls {home}/.cache/ringfence/plans");
        assert_ne!(place.sh(&[], &script).code, 0);
        if place.tier == Tier::Namespace {
            let write = format!("echo x > {home}/.cache/ringfence/plans/x");
            assert_ne!(place.sh(&["-w", &home], &write).code, 0);
            assert_ne!(place.sh(&["-w", &home], &script).code, 0);
        }
        assert!(!plans(place).iter().any(|plan| plan.ends_with("x")));
    });
}

#[test]
fn many_starts_at_once_share_one_plan() {
    everywhere(|place| {
        place.clock_moves_on();
        let running: Vec<_> = (0..12).map(|_| place.start(&[], &["echo", "ran"])).collect();
        for one in running {
            assert_eq!(one.finish().well(), "ran");
        }
        assert_eq!(plans(place).len(), 1);
    });
}

#[test]
fn a_command_that_cannot_start_is_told_as_ever() {
    everywhere(|place| {
        let program = place.script("program", "#!/bin/sh\necho ran\n");
        let name = program.to_str().unwrap();
        place.clock_moves_on();
        for _ in 0..2 {
            assert_eq!(place.run(&[], &[name]).well(), "ran");
        }
        fs::set_permissions(&program, fs::Permissions::from_mode(0o644)).unwrap();
        place.run(&[], &[name]).ends(126).says("permission denied");
        fs::remove_file(&program).unwrap();
        place.run(&[], &[name]).ends(127).says("command not found");
        // A text without an interpreter is the shell's, from the cache or not.
        place.script("program", "echo as text\n");
        place.clock_moves_on();
        for _ in 0..3 {
            assert_eq!(place.run(&[], &[name]).well(), "as text");
        }
    });
}

#[test]
fn a_home_that_is_not_there_is_not_made() {
    everybody(Tier::Namespace, |place| {
        place.clock_moves_on();
        for home in ["nowhere", "nowhere/deeper"] {
            let mut command = place.ringfence_run();
            command.env("HOME", place.at(home)).args(["--", "true"]);
            Running::start(command).finish();
            assert!(!place.at("nowhere").exists());
        }
        // Only what belongs into a home that is there.
        place.run(&[], &["true"]).ends(0);
        assert_eq!(plans(place).len(), 1);
    });
}

#[test]
fn a_repository_is_protected_from_the_cache_too() {
    everywhere(|place| {
        if !place.has("git", "--version") {
            return;
        }
        place.shell("git init -q .").well();
        let hook = place.file("home/project/.git/hooks/post-commit", "host's");
        hot(place, "", ":");
        let (ended, resumed) =
            traced(place, "", "rm -rf .git/hooks; echo x > .git/hooks/pre-commit");
        assert!(resumed, "{}", ended.err);
        assert_eq!(fs::read_to_string(hook).unwrap(), "host's");
        assert!(!place.at("home/project/.git/hooks/pre-commit").exists());
    });
}

/// A server on the host's loopback that answers each connection.
fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let _ = client.unwrap().write_all(b"served");
        }
    });
    port
}

fn ask(port: u16) -> String {
    let code = format!(
        "import socket; print(socket.create_connection((\\\"127.0.0.1\\\", {port}), 5).recv(9).decode())"
    );
    format!("python3 -c \"{code}\"")
}

#[test]
fn a_filtered_network_is_as_filtered_from_the_cache() {
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        let (granted, other) = (server(), server());
        let options = format!("-n localhost:{granted}");
        hot(place, &options, ":");
        let (ended, resumed) = traced(place, &options, &ask(granted));
        assert!(resumed);
        assert_eq!(ended.ends(0).text(), "served");
        let (ended, resumed) = traced(place, &options, &ask(other));
        assert!(resumed);
        ended.ends(1).says("Connection");
        // The control.
        assert_eq!(place.shell(&ask(other)).well(), "served");
    });
}

#[test]
fn a_profile_that_breaks_while_its_command_runs_grants_no_network() {
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        let port = server();
        let profile = "outside/net.toml";
        let rules = format!("extends = [\"default\"]\n[network]\nallow = [\"localhost:{port}\"]\n");
        let path = place.text(profile);
        let options = format!("-p {path}");
        let script = format!("mkfifo go; echo up; read line <go; rm go; {}", ask(port));
        for (text, code) in [(rules.as_str(), 0), ("[network]\nallow = 7\n", 1)] {
            place.file(profile, &rules);
            hot(place, &options, ":");
            let mut command = place.ringfence_run();
            command.env("RINGFENCE_TRACE_LAUNCH", "2").args(options.split_whitespace());
            command.args(["--", "sh", "-c", &script]);
            let mut running = Running::start(command);
            running.printed("up\n");
            // In place: the directory stays as it was.
            place.file(profile, text);
            fs::write(place.at("home/project/go"), "go\n").unwrap();
            let ended = running.finish();
            assert!(ended.err.contains(" resumed\n"), "{}", ended.err);
            ended.ends(code);
            if code != 0 {
                ended.says("nothing may be connected to");
            }
        }
    });
}
