//! What is taken from protected names while a command runs, where no rename leads to the quarantine.

use ringfence_tests::{Finished, Person, Place, Running, Tier, everywhere, left_out, people};
use rustix::process::Signal;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

/// The state is on another file system than the project: no rename leads there.
#[test]
fn protected_names_are_gone_at_once_across_file_systems() {
    everywhere(|place| {
        let state = Elsewhere::new();
        let gone = |path: &str| format!("while test -e {path} || test -L {path}; do :; done");
        let settled = "while ls -A . .vscode | grep -q ^.ringfence-; do :; done";
        let script = [
            "exec 2>/dev/null".to_owned(),
            // What is written after it was taken away is kept as well.
            "exec 3> .envrc; echo early >&3".into(),
            gone(".envrc"),
            "echo late >&3; exec 3>&-".into(),
            "ln -s /etc/passwd .envrc".into(),
            gone(".envrc"),
            "mkfifo .envrc".into(),
            gone(".envrc"),
            "mkdir .vscode; echo evil > beside; mv beside .vscode/tasks.json".into(),
            gone(".vscode/tasks.json"),
            // Its owner cannot read it.
            "umask 777; echo mine > .mcp.json; umask 22".into(),
            gone(".mcp.json"),
            settled.into(),
            // Too much for a copy while the command runs: out of the way until the end. It has another name, which stays.
            "head -c 17M /dev/zero > beside; ln beside other; mv beside .mcp.json".into(),
            gone(".mcp.json"),
            "ls -A | grep -vE '^.ringfence-aside-[0-9a-f]{16}$'; echo end".into(),
        ]
        .join("\n");
        let run = state.run(place, &script);
        assert_eq!(run.ends(0).text(), ".vscode\nother\nend", "{}", run.err);
        let said = |what: &str| {
            let told = |line: &&str| line.contains(what) && line.contains("while the command ran");
            run.err.lines().filter(told).count()
        };
        assert_eq!((said("moved to"), said("removed")), (5, 1), "{}", run.err);
        run.says("(it was no plain file)")
            .says("moved aside while the command ran; at the end moved to");
        assert!(!fs::read_dir(place.project(".")).unwrap().any(|entry| {
            entry.unwrap().file_name().to_string_lossy().starts_with(".ringfence-")
        }));
        assert!(!run.err.contains("not whole"), "{}", run.err);
        let session = fs::read_dir(state.0.path().join("ringfence/quarantine")).unwrap();
        let session = session.map(|entry| entry.unwrap().path()).next().unwrap();
        let read = |name: &str| fs::read_to_string(session.join(name)).unwrap();
        assert_eq!(read("1-.envrc"), "early\nlate\n");
        assert_eq!(fs::read_link(session.join("2-.envrc")).unwrap().to_str(), Some("/etc/passwd"));
        assert_eq!(read("4-tasks.json"), "evil\n");
        fs::set_permissions(session.join("5-.mcp.json"), Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read("5-.mcp.json"), "mine\n");
        assert_eq!(read("6-.mcp.json").len(), 17 << 20);
        assert_eq!(place.project("other").metadata().unwrap().len(), 17 << 20);
    });
}

/// A launcher that was killed between two steps leaves a name of its own: whoever puts the tree right finds it.
#[test]
fn what_was_set_aside_does_not_stay() {
    everywhere(|place| {
        place.directory("home/project/d/.claude");
        let script = "for name in 0123456789abcdef 0123; do \
                      echo x > .ringfence-aside-$name; echo x > d/.ringfence-aside-$name; echo x > d/.claude/.ringfence-aside-$name; done";
        place.run(&[], &["sh", "-c", script]).ends(0).says("left inside");
        for directory in [".", "d", "d/.claude"] {
            let left = place.project(directory);
            assert!(!left.join(".ringfence-aside-0123456789abcdef").exists());
            assert!(left.join(".ringfence-aside-0123").exists(), "its own names stay");
        }
    });
}

/// A giant without content decides neither how long the end takes nor how full the disk gets.
#[test]
fn giants_are_not_copied_across_file_systems() {
    everywhere(|place| {
        let state = Elsewhere::new();
        let run = state.run(
            place,
            // By a rename: what is taken is a giant from the first moment.
            "mkdir d; truncate -s 1T d/.envrc giant; mv giant .envrc; \
                                   while test -e .envrc; do :; done",
        );
        run.ends(0)
            .says("at the end it cannot be kept elsewhere (file too large), and is ")
            .says("d/.envrc was created or changed inside and is protected: it cannot be kept elsewhere (file too large)");
        assert!(!place.project(".envrc").exists() && !place.project("d/.envrc").exists());
        // They may be all that their owner has of them.
        let left =
            "find . -size 1024G -path './.ringfence-aside-*' | wc -l; rm -r .ringfence-aside-*";
        assert_eq!(place.shell(left).text(), "2");
        let kept = fs::read_dir(state.0.path().join("ringfence/quarantine")).unwrap();
        let kept = kept.flat_map(|session| fs::read_dir(session.unwrap().path()).unwrap());
        assert!(kept.map(|kept| kept.unwrap().metadata().unwrap().len()).all(|length| length == 0));
    });
}

/// A disk of 64 MiB for the state, which only root can have: it is not filled, and what is in the way of that stays aside.
#[test]
fn what_is_kept_does_not_fill_the_disk() {
    everywhere(|place| {
        if place.person != Person::Root {
            return;
        }
        let state = Elsewhere::new();
        let disk = state.0.path().display();
        let mounted = place.shell(&format!("mount -t tmpfs -o size=64m,mode=1777 small {disk}"));
        if mounted.code != 0 {
            return left_out("a full disk", mounted.err.trim());
        }
        let run = state.run(
            place,
            "truncate -s 900M b; mv b .envrc; while test -e .envrc; do :; done; \
                                    mkdir d; truncate -s 60M d/.envrc; truncate -s 60M d/.mcp.json",
        );
        let free = place.shell(&format!("df -k --output=avail {disk} | tail -1; umount {disk}"));
        run.ends(0).says("cannot be kept elsewhere");
        let left =
            "find . -size +50M -path './.ringfence-aside-*' | wc -l; rm -r .ringfence-aside-*";
        assert_eq!(place.shell(left).text(), "3");
        let free: u64 = free.text().trim().parse().unwrap();
        assert!(free > 40 << 10, "{free}: {}", run.err);
    });
}

/// A disk on which no more names can be made, which only root can have: that is the reason of all that cannot be kept.
#[test]
fn a_full_disk_is_the_reason_each_time() {
    everywhere(|place| {
        if place.person != Person::Root {
            return;
        }
        let state = Elsewhere::new();
        let disk = state.0.path().display();
        let mounted =
            place.shell(&format!("mount -t tmpfs -o size=1m,nr_inodes=40,mode=1777 full {disk}"));
        if mounted.code != 0 {
            return left_out("a full disk", mounted.err.trim());
        }
        state.run(place, "true").ends(0);
        place.shell(&format!("n=0; while mkdir {disk}/$n; do n=$((n+1)); done 2>/dev/null"));
        let run = state.run(place, "mkdir d; echo x > d/.envrc; echo y > d/.mcp.json");
        place.shell(&format!("umount {disk}")).ends(0);
        run.ends(0).says("so that nothing of this session can be on record: free some");
        let told = run.err.lines().filter(|line| line.contains("cannot be kept elsewhere")).count();
        assert_eq!(told, 2, "{}", run.err);
        let reason = run.err.matches("(No space left on device").count();
        assert_eq!(reason, told, "{}", run.err);
        place.shell("rm -r .ringfence-aside-*").ends(0);
    });
}

/// A launcher that is killed has all that there is of what was taken: nothing is only in a descriptor of its.
#[test]
fn what_is_taken_outlives_its_launcher() {
    everywhere(|place| {
        let state = Elsewhere::new();
        let mut command = place.ringfence_run();
        command.env("XDG_STATE_HOME", state.0.path()).args(["--", "sh", "-c"]);
        command.arg(
            "head -c 17M /dev/zero > beside; mv beside .envrc; while test -e .envrc; do :; done; \
             echo up; sleep 600",
        );
        let mut run = Running::start(command);
        run.printed("up").signal(Signal::KILL);
        run.finish();
        let large = |place: &Place, of: &str| {
            place.shell(&format!("find {of} -size 17M -name '*.ringfence-aside-*' | wc -l")).text()
        };
        assert_eq!(large(place, "."), "1", "nothing is lost");
        state.run(place, "true").ends(0).says("left inside");
        assert_eq!(large(place, "."), "0");
        assert_eq!(large(place, &state.0.path().display().to_string()), "1");
    });
}

/// What a killed launcher left aside may be all that its owner has of it: the next run keeps it or leaves it.
#[test]
fn what_a_killed_launcher_left_is_never_removed() {
    everywhere(|place| {
        let state = Elsewhere::new();
        let mut command = place.ringfence_run();
        command.env("XDG_STATE_HOME", state.0.path()).args(["--", "sh", "-c"]);
        command.arg(
            "echo precious > beside; truncate -s 1T beside; mv beside .envrc; while test -e .envrc; do :; done; \
             echo up; sleep 600",
        );
        let mut run = Running::start(command);
        run.printed("up").signal(Signal::KILL);
        run.finish();
        let left = || place.shell("head -qc 8 .ringfence-aside-*").text();
        assert_eq!(left(), "precious", "positive control: it waits aside");
        state
            .run(place, "mkdir d; echo x > d/.envrc")
            .ends(0)
            .says("and stays there: it cannot be kept");
        assert_eq!(left(), "precious");
        // Nothing else that was made in its likeness, nor in a locked directory.
        state.run(place, "mkdir -p e/.ringfence-aside-0123456789abcdef/x; chmod 500 e").ends(0);
        place.shell("chmod 700 e; rm -r e/.ringfence-aside-0123456789abcdef").ends(0);
    });
}

/// How many names are made is for the program to decide, not what the launcher remembers of them, nor how many lines
/// there are at the end.
#[test]
fn sentences_are_counted_past_some_hundreds() {
    everywhere(|place| {
        // It takes long, and does the same for each person: once in each tier.
        if people().len() > 1 && (place.person == Person::Root) == (place.tier == Tier::Process) {
            return;
        }
        let state = Elsewhere::new();
        let made = "n=0; while test $n -lt 300; do echo x > .envrc; while test -e .envrc; do :; done; n=$((n+1)); done";
        let run = state.run(place, made);
        run.ends(0).says("297 more of what was created in it inside was moved to ");
        assert_eq!(run.err.lines().count(), 4, "{}", run.err);
        // What waits for the end, as well: past what is remembered the look at the tree finds it.
        let made = "n=0; while test $n -lt 270; do truncate -s 1T b; mv b .envrc; while test -e .envrc; do :; done; n=$((n+1)); done";
        let run = state.run(place, made);
        let told = |what: &str| run.err.lines().filter(|line| line.contains(what)).count();
        let counts = (told("at the end it cannot be kept elsewhere"), told("and stays there"));
        assert_eq!(counts, (256, 14), "{}", run.err);
        place.shell("rm .ringfence-aside-*").ends(0);
    });
}

/// What cannot be kept stays aside.
#[test]
fn protected_names_are_gone_at_once_where_nothing_can_be_kept() {
    everywhere(|place| {
        let state = Elsewhere::new();
        place.directory("home/project/untouched");
        fs::create_dir(state.0.path().join("ringfence")).unwrap();
        fs::set_permissions(state.0.path().join("ringfence"), Permissions::from_mode(0o1777))
            .unwrap();
        fs::write(state.0.path().join("ringfence/quarantine"), "no directory").unwrap();
        let run = state.run(
            place,
            "echo x > .envrc; while test -e .envrc; do :; done; \
                                   ls -A | grep -vE '^.ringfence-aside-[0-9a-f]{16}$'",
        );
        assert_eq!(run.ends(0).text(), "untouched", "{}", run.err);
        run.says("moved aside while the command ran; at the end it cannot be kept elsewhere (");
        assert_eq!(place.shell("cat .ringfence-aside-*; rm .ringfence-aside-*").text(), "x");
        // Nor what is judged at the end.
        let run =
            state.run(place, "mkdir untouched/.vscode; echo y > untouched/.vscode/tasks.json");
        run.ends(0).says("protected: it cannot be kept elsewhere (").says(".vscode.aside now");
        let found =
            place.shell("ls -A untouched; cat .ringfence-aside-*/1-.vscode.aside/tasks.json");
        assert_eq!(found.ends(0).text(), "y");
        place.shell("rm -r .ringfence-aside-*").ends(0);
    });
}

/// A directory is not copied to another file system, however deep it is: it has another name then, which nothing obeys.
#[test]
fn directories_that_cannot_be_kept_do_not_keep_their_names() {
    everywhere(|place| {
        let state = Elsewhere::new();
        let at = state.0.path().display();
        let run = |script: &str| {
            place.shell(&format!("ulimit -n 512; XDG_STATE_HOME={at} $RF -- sh -c '{script}'"))
        };
        let deep =
            "mkdir -p sub/.idea/$(printf \"d/%.0s\" $(seq 1500)) && echo x > sub/.idea/a.xml";
        let two = format!("mkdir -p sub/.vscode && echo x > sub/.vscode/tasks.json; {deep}");
        let done = run(&two);
        done.ends(0).says("sub/.idea was created").says("it cannot be kept elsewhere (");
        assert_eq!(done.err.lines().count(), 2, "{}", done.err);
        assert_eq!(place.shell("ls -A sub").text(), "");
        let aside = place.shell("ls -A | grep aside").text();
        assert!(aside.starts_with(".ringfence-aside-") && aside.lines().count() == 1, "{aside}");
        let mode = place.project(&aside).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o700);
        let whole = "cat .ring*/*-.vscode.aside/tasks.json .ring*/*-.idea.aside/a.xml";
        assert_eq!(place.shell(whole).ends(0).text(), "x\nx");
        run("mkdir e; echo x > e/.envrc").ends(0).says(&aside).says("and stays there");
        place.shell("rm -r .ringfence-aside-* sub e").ends(0);
    });
}

/// The user's own files, which a configuration that is too large to be read could name: all that the run changed is taken
/// away, and none of it is lost, though there are more than are copied one by one.
#[test]
fn nothing_that_the_user_has_is_lost_across_file_systems() {
    const MANY: usize = 1300;
    everywhere(|place| {
        let state = Elsewhere::new();
        let config = format!("#{}\n", "#".repeat(5 << 20));
        let names =
            ["HEAD", "refs/x", "objects/x"].map(|name| format!("home/project/lib/.git/{name}"));
        names.iter().for_each(|name| drop(place.file(name, "ref: refs/heads/main\n")));
        place.file("home/project/lib/.git/config", &config);
        for number in 0..MANY {
            place.file(format!("home/project/src/{number}.c"), "precious");
        }
        place.clock_moves_on();
        // The control: what the run does not touch stays.
        state.run(place, "true").ends(0);
        let there = || place.shell("ls src | wc -l").text();
        assert_eq!(there(), MANY.to_string());
        // What the run changes is looked into however short it is.
        let script = "echo x > lib/x; for name in src/*; do echo formatted >> $name; done; mkdir d; ln -s /etc/hosts d/.envrc";
        let run = state.run(place, script);
        run.ends(0).says("git could run anything by it").says(&format!(
            "more than 1024 protected names were made in {}",
            place.project("src").display()
        ));
        assert_eq!(there(), "0", "{}", run.err);
        assert!(!run.err.contains("removed"), "{}", run.err);
        let kept = state.0.path().join("ringfence/quarantine");
        let count = |of: &str| {
            let all = place.shell(&format!("grep -rl preciousformatted {of} | wc -l")).text();
            all.parse::<usize>().unwrap()
        };
        let (copied, aside) = (count(&kept.display().to_string()), count(".ringfence-aside-*"));
        assert_eq!((copied, aside), (1024, MANY - 1024), "{}", run.err);
        let links = format!("find {} -lname /etc/hosts -name '*-.envrc' | wc -l", kept.display());
        assert_eq!(place.shell(&links).text(), "1");
        place.shell("rm -r .ringfence-aside-* src d").ends(0);
    });
}

/// A state directory on a file system of its own.
struct Elsewhere(tempfile::TempDir);

impl Elsewhere {
    fn new() -> Elsewhere {
        let state = tempfile::tempdir_in("/dev/shm").unwrap();
        fs::set_permissions(state.path(), Permissions::from_mode(0o1777)).unwrap();
        Elsewhere(state)
    }

    fn run(&self, place: &Place, script: &str) -> Finished {
        let device = |path: &std::path::Path| path.metadata().unwrap().dev();
        assert_ne!(
            device(self.0.path()),
            device(&place.project(".")),
            "the tests' own place is there"
        );
        let mut command = place.ringfence_run();
        command.env("XDG_STATE_HOME", self.0.path()).args(["--", "sh", "-c", script]);
        Running::start(command).finish()
    }
}

/// A user has 128 sets of watches, and the command can take them all.
#[test]
fn protected_names_are_gone_soon_where_nothing_can_be_watched() {
    everywhere(|place| {
        let run = place.ringfence_run();
        let words =
            run.get_args().map(|word| word.to_str().expect("text")).collect::<Vec<_>>().join(" ");
        let program = run.get_program().to_str().expect("text");
        // In a namespace of its own, so that nobody else's are taken.
        let script = "echo evil > .envrc && echo evil; while [ -e .envrc ]; do :; done; echo gone";
        let inside = format!(
            "echo 0 > /proc/sys/user/max_inotify_instances && exec {program} {words} --timeout 60s -- sh -c '{script}'"
        );
        let mut command = place.command("unshare");
        command.args(["-Ur", "sh", "-c", &inside]);
        let finished = Running::start(command).finish();
        finished.ends(0).prints("evil\ngone").says(".envrc was created inside and is protected");
        assert!(!place.project(".envrc").exists());
    });
}

/// A project on a disk of its own, which only root can have, and which the command fills.
#[test]
fn what_cannot_be_put_back_is_kept() {
    everywhere(|place| {
        if place.person != Person::Root || place.tier != Tier::Process {
            return;
        }
        let disk = place.directory("home/project/disk");
        let at = disk.display();
        let mounted = place.shell(&format!("mount -t tmpfs -o size=64k small {at}"));
        if mounted.code != 0 {
            return left_out("a full disk", mounted.err.trim());
        }
        // More than one page: it has no room where a page was given back.
        let mine = "mine\n".repeat(4096);
        place.file("home/project/disk/.husky/pre-commit", &mine);
        let script = "echo evil > .husky/pre-commit; cat /dev/zero > fill; cat .husky/pre-commit";
        let mut command = place.ringfence_run();
        command.current_dir(&disk).args(["--", "sh", "-c", script]);
        let finished = Running::start(command).finish();
        let left = fs::read_to_string(disk.join(".husky/pre-commit"));
        place.shell(&format!("umount {at}")).ends(0);
        finished.ends(0).prints("evil").says("cannot restore").says("what was there is in ");
        assert!(!left.is_ok_and(|left| left.contains("evil")));
        let kept = finished.err.lines().find_map(|line| line.split_once("what was there is in "));
        let (_, kept) = kept.expect("said");
        let kept = fs::read_to_string(std::path::Path::new(kept).join("pre-commit"));
        assert_eq!(kept.expect("kept"), mine);
    });
}
