//! `--libs exact` from a compiled plan: what was looked for and not found is held by the stamps
//! of directories, and counts as much as what was found.

use ringfence_tests::{Finished, Person, Place, Running, Tier, everybody, left_out, write_program};
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// Runs a command with the place's own directory of programs before the others; whether it was
/// started from the cache.
fn run(place: &Place, argv: &[&str]) -> (Finished, bool) {
    let own = place.text("home/bin");
    let search = std::env::var("PATH").unwrap_or_default();
    let mut command = place.ringfence_run();
    command.env("RINGFENCE_TRACE_LAUNCH", "2").env("PATH", format!("{own}:{search}"));
    command.args(["--libs", "exact", "-r", &own, "--"]).args(argv);
    let ended = Running::start(command).finish();
    let hot = ended.err.lines().any(|line| line.ends_with(" resumed"));
    (ended, hot)
}

/// Runs it until it is started from the cache.
fn hot(place: &Place, argv: &[&str]) -> Finished {
    place.clock_moves_on();
    let started = (0..20).map(|_| run(place, argv)).find(|(_, hot)| *hot);
    started.expect("a plan is used again").0
}

#[test]
fn a_program_that_appears_earlier_in_path_is_the_one_that_runs() {
    everybody(Tier::Namespace, |place| {
        place.directory("home/bin");
        let argv = ["uname", "-s"];
        assert_eq!(hot(place, &argv).ends(0).text(), "Linux");
        let mine = place.program("home/bin/uname", "#!/bin/sh\necho mine | tr a-z A-Z\n");
        fs::set_permissions(&mine, fs::Permissions::from_mode(0o644)).unwrap();
        let (ended, again) = run(place, &argv);
        assert!(!again, "a plan was used that does not know of it");
        assert_eq!(ended.ends(0).text(), "Linux", "it is not executable");
        assert_eq!(hot(place, &argv).text(), "Linux");
        // Its directory does not change with its mode.
        fs::set_permissions(&mine, fs::Permissions::from_mode(0o755)).unwrap();
        let (ended, again) = run(place, &argv);
        assert!(!again, "a plan was used that does not know of it");
        assert_eq!(ended.ends(0).text(), "MINE");
    });
}

#[test]
fn a_library_that_appears_where_one_was_looked_for_is_taken() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    if !place.has("gcc", "--version") {
        return;
    }
    let script = "mkdir -p ~/bin first second && echo 'int f(void) { return N; }' > f.c && \
         echo 'int f(void); int main(void) { return f(); }' > m.c && \
         gcc -shared -fPIC -DN=3 f.c -o second/libf.so && \
         gcc m.c -Lsecond -lf -Wl,-rpath,'$ORIGIN/first:$ORIGIN/second' -o m";
    place.shell(script).ends(0);
    hot(place, &["./m"]).ends(3);
    place.shell("gcc -shared -fPIC -DN=4 f.c -o first/libf.so").ends(0);
    let (ended, again) = run(place, &["./m"]);
    assert!(!again, "a plan was used that does not know of it");
    ended.ends(4);
}

#[test]
fn libraries_shown_one_by_one_cannot_be_changed_or_joined_by_others() {
    everybody(Tier::Namespace, |place| {
        place.directory("home/bin");
        let script = "cd /usr/lib; for d in . *-linux-gnu; do
            echo x > $d/new; mkdir $d/dir; ln -s a $d/link
            for f in $d/libc.so.*; do
                rm $f; mv $f $f.away; true >> $f; chmod 777 $f; ln -f /bin/sh $f
            done
        done; ls -d /.shelf /usr/lib/new; echo end";
        let outside = place.shell("ls -la /usr/lib/*-linux-gnu | cksum").well();
        for ended in [run(place, &["sh", "-c", script]).0, hot(place, &["sh", "-c", script])] {
            let text = ended.text();
            assert_eq!(text, "end", "{}", ended.err);
            let refused = ended.err.matches("Read-only file system").count();
            assert!(refused >= 8, "{}", ended.err);
        }
        assert_eq!(place.shell("ls -la /usr/lib/*-linux-gnu | cksum").well(), outside);
    });
}

#[test]
fn what_lies_under_a_cover_cannot_be_uncovered() {
    everybody(Tier::Namespace, |place| {
        place.directory("home/bin");
        // Names that no command needs, beside a part of the same tree that is shown as it is.
        let names = "ls /usr/lib | sort | cksum; ls /usr/share | sort | cksum";
        let outside = place.shell(names).well();
        let (hidden, shown) = outside.split_once('\n').unwrap();
        let plain = place.sh(&[], names).quiet();
        assert_eq!(plain, outside, "without --libs exact all is there");
        let script = format!(
            "umount /usr/lib; umount -l /usr/lib; mount --bind /usr /tmp; unshare -Urm true
             for way in /proc/self/root/usr/lib /usr/bin/../lib /usr/share/../lib; do
                 ls $way | sort | cksum
             done; {names}"
        );
        let argv = ["sh", "-c", &script];
        for ended in [run(place, &argv).0, hot(place, &argv)] {
            let text = ended.ends(0).text();
            assert_eq!(text.lines().last(), Some(shown), "the rest of the tree is as it was");
            let seen: Vec<&str> = text.lines().collect();
            assert_eq!(seen.len(), 5, "{text}");
            assert!(seen[..4].iter().all(|names| *names == seen[0] && *names != hidden), "{text}");
            let refused = ended.err.matches("ermi").count() + ended.err.matches("must be").count();
            assert!(refused >= 3, "{}", ended.err);
        }
        assert_eq!(place.shell(names).well(), outside);
    });
}

#[test]
fn a_hot_start_looks_at_little() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    if !place.has("git", "--version") || !place.has("strace", "-V") {
        return left_out("counting calls", "git or strace is not there");
    }
    place.directory("home/bin");
    hot(place, &["git", "--version"]);
    // The calls before the first `clone3`: opens are few, and looks are bounded by the files of
    // the closure, not by what was looked for in vain.
    let own = place.text("home/bin");
    let search = std::env::var("PATH").unwrap_or_default();
    let binary = place.ringfence_run().get_program().to_owned();
    let mut command = place.command("strace");
    command.env("PATH", format!("{own}:{search}")).args(["-f", "-o", "calls"]).arg(binary);
    command.env("RINGFENCE_TRACE_LAUNCH", "2");
    command.args(["run", "--libs", "exact", "-r", &own, "--", "git", "--version"]);
    let mut counted = None;
    for _ in 0..5 {
        let mut again = place.command("strace");
        again.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        again.args(command.get_args());
        let ended = Running::start(again).finish();
        if ended.err.lines().any(|line| line.ends_with(" resumed")) {
            counted = fs::read_to_string(place.project("calls")).ok();
            break;
        }
    }
    let Some(calls) = counted else {
        return left_out("counting calls", "under strace no start came from the cache");
    };
    let before = calls.split(" clone3(").next().unwrap_or_default();
    let count = |name: &str| before.matches(&format!(" {name}(")).count();
    let (opens, looks) = (count("open") + count("openat"), count("statx") + count("readlinkat"));
    assert!(opens <= 20, "{opens} opens before the command is started");
    // Files of directories with many of them are looked at while the view is built.
    assert!(looks <= 160, "{looks} looks before the view is begun");
    let executed = calls.matches(" execve(").count();
    assert_eq!(executed, 2, "ringfence and the command, nothing else");
}

#[test]
fn files_that_are_looked_at_while_the_view_is_built_count_as_much() {
    everybody(Tier::Namespace, |place| {
        let program = |name: &str, text: &str| {
            place.program(format!("home/bin/{name}"), format!("#!/bin/sh\n{text}\n"))
        };
        // The control: a command that nobody can foresee has not its libraries.
        program("computed", "l$(echo s) /");
        if hot(place, &["computed"]).code == 0 {
            return left_out("a set that lacks something", "ls needs no library but the C library");
        }
        let names: Vec<String> = (0..12).map(|number| format!("part{number}")).collect();
        let parts: Vec<_> = names.iter().map(|name| program(name, "echo part")).collect();
        program("all", &names.join("\n"));
        assert_eq!(hot(place, &["all"]).ends(0).text().lines().count(), 12);
        for changed in [&parts[0], &parts[7], &parts[11]] {
            // In its place: neither its name nor its directory change.
            place.clock_moves_on();
            write_program(changed, "#!/bin/sh\nls / > /dev/null && echo changed\n");
            let (ended, _) = run(place, &["all"]);
            let text = ended.ends(0).text();
            let seen = (text.matches("part").count(), text.matches("changed").count());
            assert_eq!(seen, (11, 1), "{text}\n{}", ended.err);
            write_program(changed, "#!/bin/sh\necho part\n");
            assert_eq!(hot(place, &["all"]).ends(0).text().matches("part").count(), 12);
        }
    });
}

#[test]
fn odd_names_are_the_same_cold_and_hot() {
    everybody(Tier::Namespace, |place| {
        place.directory("home/bin");
        for name in ["a b", "line\nbreak", "k=v;$(x)", "\u{fc}\u{4e2d}", "'quoted\"", "*?["] {
            let directory = format!("{name}.d");
            place.directory(format!("home/project/{directory}"));
            let text = "#!/bin/sh\nls >/dev/null && printf '<%s>' \"$0\" \"$@\" \"$PWD\"\n";
            let path = place.script(&format!("{directory}/{name}"), text);
            let argv = [path.to_str().unwrap(), name, ""];
            place.clock_moves_on();
            let (cold, _) = run(place, &argv);
            assert_eq!(cold.code, 0, "{name:?}: {}", cold.err);
            let again: Vec<_> = (0..4).map(|_| run(place, &argv).0.text()).collect();
            assert!(again.iter().all(|text| *text == cold.text()), "{name:?}: {again:?}");
            assert!(cold.text().contains(&format!("<{name}>")), "{name:?}: {}", cold.text());
        }
    });
}
