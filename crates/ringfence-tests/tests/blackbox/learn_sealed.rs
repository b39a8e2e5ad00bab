//! What a run that is watched is held by: the user's own trust, and what ringfence keeps of other sandboxes, wherever that is.

use ringfence_tests::{Person, Place, Running, Tier, binary, everybody, left_out};
use std::io::{BufRead, Write};
use std::path::Path;

/// Has a script learnt, where the state of sessions is elsewhere.
fn learnt(place: &Place, state: Option<&Path>, script: &str) -> ringfence_tests::Finished {
    let mut command = place.command(binary());
    if let Some(state) = state {
        command.env("XDG_STATE_HOME", state);
    }
    command.args(["learn", "--", "sh", "-c", script]);
    Running::start(command).finish()
}

/// A project's own policy is trusted by what the user accepted, which is kept where it always is.
#[test]
fn what_a_trusted_project_denies_is_denied_to_what_is_learnt() {
    everybody(Tier::Namespace, |place| {
        place.file("home/project/private/s", "SECRET\n");
        place.file("home/project/open", "open\n");
        let policy = "[filesystem]\ndeny = [\"private\"]\n[environment]\nset = { TOLD = \"so\" }\n";
        place.file("home/project/ringfence.toml", policy);
        place.ringfence(["trust", "ringfence.toml"]).ends(0);
        let script = "cat open; echo $TOLD; echo state ${XDG_STATE_HOME-unset} ${RINGFENCE_LEARNING-unset}; cat private/s";
        let run = place.sh(&[], script);
        run.ends(1).prints("open\nso\nstate unset unset");
        let learnt = learnt(place, None, script);
        // The proposal follows.
        assert!(learnt.text().starts_with(&format!("{}\n#", run.text())), "{}", learnt.text());
        assert!(!learnt.err.contains("not trusted"), "{}", learnt.err);
        // The control: without that policy it is shown.
        std::fs::remove_file(place.project("ringfence.toml")).unwrap();
        self::learnt(place, None, script).ends(0).prints("SECRET");
    });
}

/// The sockets of sessions are hidden from what is learnt as from every sandbox: by them it would act in any of them.
#[test]
fn no_session_is_reached_from_what_is_learnt() {
    everybody(Tier::Namespace, |place| {
        place.file("home/.ssh/id_ed25519", "KEY\n");
        let own = binary().display().to_string();
        for name in ["outside/state", "home/kept/state", ""] {
            let at = (!name.is_empty()).then(|| place.directory(name));
            let mut command = place.ringfence_run();
            if let Some(at) = &at {
                command.env("XDG_STATE_HOME", at);
            }
            let key = place.text("home/.ssh/id_ed25519");
            command.args([
                "--name",
                "open",
                "-r",
                &key,
                "--",
                "sh",
                "-c",
                "echo up; exec sleep 1000",
            ]);
            let mut session = Running::start(command);
            session.printed("up\n");
            let state = at.clone().unwrap_or_else(|| place.at("home/.local/state"));
            let exec = format!("XDG_STATE_HOME={} {own} exec open -- cat {key}", state.display());
            // The control: outside it is reached.
            place.shell(&exec).ends(0).prints("KEY");
            let said = learnt(
                place,
                at.as_deref(),
                &format!("ls -R {}; {exec}", state.join("ringfence").display()),
            );
            let all = format!("{name}: {}{}", said.text(), said.err);
            assert!(!all.contains("KEY") && !all.contains("journal"), "{all}");
            assert_ne!(said.code, 0, "{all}");
            session.signal(rustix::process::Signal::TERM);
            session.finish();
        }
    });
}

/// What `learn` keeps for a while is no other sandbox's to see, even one that is shown all of the home, or temporary files;
/// nor is it another's that was there before.
#[test]
fn what_is_learnt_is_kept_where_no_sandbox_looks() {
    everybody(Tier::Namespace, |place| {
        let temporary = place.directory("shared");
        // The first run of all makes what later ones are not shown.
        place.run(&[], &["true"]).ends(0);
        let (home, grant) = (place.text("home"), temporary.display().to_string());
        let look = format!(
            "find {home} {grant} -name control.sock -o -name journal 2>/dev/null; echo looked"
        );
        let start = |options: &[&str], script: &str| {
            let mut command = place.command(binary());
            command.env("TMPDIR", &temporary).args(options).args(["--", "sh", "-c", script]);
            Running::start(command)
        };
        let before = format!("echo up; read line; {look}");
        let runs = [["run", "-r", &grant, "-r", &home], ["run", "-w", &grant, "-w", &home]];
        let earlier = runs.map(|options| {
            let mut command = place.command(binary());
            command.env("TMPDIR", &temporary).args(options).args(["--", "sh", "-c", &before]);
            command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
            let mut child = command.spawn().unwrap();
            let mut lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines();
            assert_eq!(lines.next().unwrap().unwrap(), "up");
            (child, lines)
        });
        let mut learning = start(&["learn"], "echo up; exec sleep 1000");
        learning.printed("up\n");
        // The control: outside it is there.
        let learnt = place.at("home/.local/state/ringfence/learn");
        assert_eq!(std::fs::read_dir(&learnt).unwrap().count(), 1);
        place.shell(&look).prints("/learn/");
        for (mut child, lines) in earlier {
            child.stdin.take().unwrap().write_all(b"\n").unwrap();
            let seen: Vec<_> = lines.map_while(Result::ok).collect();
            assert_eq!(seen, ["looked"]);
            child.wait().unwrap();
        }
        for options in runs {
            assert_eq!(start(&options, &look).finish().text(), "looked", "{options:?}");
        }
        learning.signal(rustix::process::Signal::TERM);
        learning.finish();
        assert_eq!(std::fs::read_dir(&learnt).unwrap().count(), 0, "nothing is left");
    });
}

/// By a rule for the directory its services' sockets would be connected to.
#[test]
fn a_directory_in_which_a_service_listens_is_named_and_no_rule() {
    everybody(Tier::Namespace, |place| {
        place.file("home/.engine/one/config", "config\n");
        let socket = place.at("home/.engine/one/engine.sock");
        let _ = std::fs::remove_file(&socket);
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        place.file("home/.plain/one/config", "config\n");
        let learnt = learnt(
            place,
            None,
            "cat ~/.engine/one/config ~/.plain/one/config; ls ~/.engine > /dev/null",
        );
        let text = learnt.ends(0).text();
        let rules: Vec<_> = text
            .lines()
            .filter(|line| line.starts_with("read") || line.starts_with("    \""))
            .collect();
        let rules = rules.join("\n");
        assert!(rules.contains("~/.plain?"), "the control: {text}");
        assert!(!rules.contains("~/.engine?") && !rules.contains("~/.engine/one?"), "{text}");
        drop(listener);
    });
}

/// Without a journal ext4 looks at each file that was removed near by before it makes one: the layer of each run has a place of
/// its own.
#[test]
fn the_layers_of_runs_that_are_watched_lie_apart_on_the_disk() {
    use rustix::fs::{IFlags, Mode, OFlags, ioctl_getflags, open};
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    let flags = |directory: &Path| {
        let open = open(directory, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        ioctl_getflags(open)
    };
    let kind = rustix::fs::statfs(place.root()).unwrap().f_type;
    // EXT4_SUPER_MAGIC
    if kind != 0xef53 || flags(place.root()).is_err() {
        return left_out("layers that lie apart", "the file system is not ext4");
    }
    learnt(place, None, "echo x > f").ends(0);
    let kept = place.at("home/.local/state/ringfence/learn");
    assert!(flags(&kept).unwrap().contains(IFlags::TOPDIR));
    assert!(!flags(place.root()).unwrap().contains(IFlags::TOPDIR), "the control");
    assert_eq!(std::fs::read_dir(&kept).unwrap().count(), 0, "nothing is left of it");
}
