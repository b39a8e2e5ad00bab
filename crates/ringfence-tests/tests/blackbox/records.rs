//! Records of sessions: where they may lie, and the commands that read them.

use crate::mcp::{HELLO, call};
use ringfence_tests::{Person, Place, Running, Tier, binary, everybody, left_out};
use serde_json::Value;
use std::fs;

/// Homes are links where they were moved to a larger disk.
#[test]
fn a_record_behind_a_link_is_read() {
    everybody(Tier::Namespace, |place| {
        place.shell("mkdir ../real && ln -s real ../link");
        let state = place.root().join("home/link");
        let ringfence = |words: &[&str]| {
            let mut command = place.command(binary());
            command.args(words).env("XDG_STATE_HOME", &state);
            Running::start_with(command, Vec::new()).finish()
        };
        ringfence(&["run", "--name", "linked", "--", "sh", "-c", "exit 3"]).ends(3);
        ringfence(&["logs", "linked"]).ends(0).prints("exec");
        ringfence(&["show", "linked"]).ends(0).prints("exited (3)");
        assert!(fs::symlink_metadata(&state).unwrap().is_symlink());
    });
}

#[test]
fn every_command_tells_what_it_takes() {
    everybody(Tier::Namespace, |place| {
        let all = place.ringfence(["--help"]).text();
        let commands: Vec<&str> = all
            .lines()
            .skip_while(|line| !line.starts_with("Commands"))
            .skip(1)
            .take_while(|line| !line.is_empty())
            .filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next())
            .collect();
        assert!(commands.contains(&"ps") && commands.len() > 30, "{all}");
        for command in commands.into_iter().filter(|command| *command != "version") {
            let told = place.ringfence([command, "--help"]);
            assert!(told.ends(0).text().contains("Usage: ringfence"), "{command}: {}", told.text());
        }
        place.ringfence(["rm", ""]).ends(125).says("the name of a session is empty");
    });
}

/// What a command has no use for was meant for something.
#[test]
fn a_word_too_many_is_named_and_nothing_is_done() {
    everybody(Tier::Namespace, |place| {
        for name in ["one", "two"] {
            place.run(&["--name", name], &["true"]).quiet();
        }
        for words in [
            "ps one",
            "show one two",
            "logs one two",
            "report one two",
            "gc two",
            "doctor two",
            "man two",
            "schema two",
            "version two",
            "-V two",
            "help run two",
            "--help two",
            "fork --helper python two",
            "snapshot revert --resume two",
        ] {
            let told = place.ringfence(words.split(' '));
            told.ends(125).says(words.rsplit(' ').next().unwrap());
            assert_eq!(told.text(), "", "{words}");
        }
        for (words, why) in [
            ("snapshot create --dry-run", "takes no --dry-run: revert does"),
            ("snapshot list --name two", "takes no --name: create and compact does"),
            ("hooks install --claude --session", "--session needs the name"),
        ] {
            place.ringfence(words.split(' ')).ends(125).says(why);
        }
        // The controls: those that take several do all, or none.
        place.ringfence(["rm", "one", "three"]).ends(125).says("no session three");
        place.ringfence(["show", "one"]).ends(0);
        place.ringfence(["rm", "one", "two"]).quiet();
        place.ringfence(["show", "two"]).ends(125);
        place.ringfence(["help", "ps"]).ends(0).prints("Usage: ringfence ps");
        place.ringfence(["snapshot", "list"]).ends(0);
    });
}

/// A record that is larger than what there is of memory is read row by row.
#[test]
fn a_long_record_is_not_held_in_memory() {
    everybody(Tier::Namespace, |place| {
        place
            .run(&["--record-programs", "--name", "long"], &["sh", "-c", "/bin/true; true"])
            .quiet();
        // `ps` takes nothing of the journal into the database, which goes on where it stopped.
        let id = place.ringfence(["ps", "--all"]).quiet();
        let id = id.split_whitespace().next().unwrap().to_owned();
        let journal = place.text(format!("home/.local/state/ringfence/sessions/{id}/journal"));
        // Its rows many times over.
        place.shell(&format!(
            "head -n 1 {journal} > more; sed -n 2p {journal} > row; \
             for i in $(seq 200); do cat row; done > rows; for i in $(seq 300); do cat rows; done >> more; \
             tail -n 1 {journal} >> more; cat more > {journal}; rm more rows"
        ))
        .ends(0);
        let ringfence = binary().display();
        // The session's own command is one more in the document.
        for (words, count) in [
            ("logs long --json", "[ $(grep -c '\"argv\"' out) = 60001 ]"),
            ("logs long", "[ $(grep -c exec out) = 60000 ]"),
            ("show long", "grep 'exec *60000' out"),
        ] {
            let told = place.shell(&format!(
                "ulimit -v 90000; {ringfence} {words} > out; echo ended $?; {count}"
            ));
            told.ends(0).prints("ended 0");
        }
        // It is one document all the same.
        let logs = place.ringfence(["logs", "long", "--json"]).quiet();
        let logs: Value = serde_json::from_str(&logs).unwrap();
        assert_eq!(logs["events"].as_array().unwrap().len(), 60_000);
        assert_eq!((&logs["schema"], &logs["session"]["id"]), (&1.into(), &id.into()));
    });
}

/// A client's first calls come before the sandbox of the server is there.
#[test]
fn calls_that_are_refused_at_once_are_on_record() {
    everybody(Tier::Namespace, |place| {
        let calls = (2..6).map(|id| call(id, "bad", "{}"));
        let messages: String = std::iter::once(HELLO.to_owned()).chain(calls).collect();
        let mut command = place.command(binary());
        command.args(["mcp", "wrap", "--deny-tool", "bad", "--", "cat"]);
        Running::start_with(command, messages.into_bytes()).finish().ends(0);
        let log = place.ringfence(["logs", "latest", "--kind", "tool_call"]).text();
        assert_eq!(log.matches("DENIED bad").count(), 4, "{log}");
    });
}

/// A disk of 512 KiB for the state, which only root can have here.
fn small_disk(place: &Place) -> Option<String> {
    if place.person != Person::Root {
        return None;
    }
    let disk = place.directory("small").to_str().unwrap().to_owned();
    let mounted = place.shell(&format!("mount -t tmpfs -o size=512k,mode=1777 small {disk}"));
    if mounted.code != 0 {
        left_out("a full disk", mounted.err.trim());
        return None;
    }
    Some(disk)
}

/// It fills while the programs of a session are recorded: the end is on record, and how much is not.
#[test]
fn a_disk_that_fills_does_not_take_the_end_of_a_record() {
    everybody(Tier::Namespace, |place| {
        let Some(disk) = small_disk(place) else { return };
        let ringfence = format!("env XDG_STATE_HOME={disk} {}", binary().display());
        let script = format!(
            "mkfifo to from; ({ringfence} run --record-programs --name full -- \
             sh -c 'echo up; read go; for i in $(seq 200); do /bin/true; done; exit 4' \
             <to >from; echo ended $?) & exec 3>to 4<from; read up <&4; \
             dd if=/dev/zero of={disk}/fill bs=4k 2>/dev/null; echo go >&3; wait; rm {disk}/fill; \
             {ringfence} logs full; {ringfence} show full; {ringfence} report full; \
             {ringfence} show full --json"
        );
        let told = place.shell(&script);
        place.shell(&format!("umount {disk}")).ends(0);
        told.prints("ended 4").prints("exited (4)").says("this session's record is not whole");
        let (_, json) = told
            .text()
            .rsplit_once("\n{\n")
            .map(|(a, b)| (a.to_owned(), format!("{{{b}")))
            .unwrap();
        let json: Value = serde_json::from_str(&json).unwrap();
        let lost = json["session"]["lost"].as_u64().unwrap();
        assert!(lost > 100 && json["session"]["code"] == 4, "{json}");
        told.prints(&format!("lost         {lost} events"))
            .prints(&format!("lost      {lost} events"))
            .prints(&format!("{lost} events could not be kept"));
    });
}

/// The rows of the latest session, of one kind.
fn rows(place: &Place, kind: &str) -> Vec<Value> {
    let told = place.ringfence(["logs", "latest", "--json", "--kind", kind]).quiet();
    let told: Value = serde_json::from_str(&told).unwrap();
    told["events"].as_array().unwrap().clone()
}

/// Without a record of programs, too, where the kernel tells who asked.
#[test]
fn rows_name_the_process_that_they_are_of() {
    everybody(Tier::Namespace, |place| {
        let ringfence = binary().to_str().unwrap();
        // A snapshot that a child of the command asks for: it is no command, and has no row of its own.
        let script = format!("{ringfence} snapshot create; echo > new");
        let options = ["--snapshot", "--gateway", "-r", ringfence];
        place.sh(&options, &script).ends(0);
        let (made, command) = (rows(place, "snapshot"), rows(place, "exec"));
        let [before, asked] = &made[..] else { panic!("{made:?}") };
        assert_eq!(asked["parent"], command[0]["pid"], "{asked}");
        assert_ne!(asked["pid"], command[0]["pid"]);
        assert_eq!(asked["exe"], ringfence, "{asked}");
        // The one before the run is the launcher's.
        let launcher = place.ringfence(["show", "latest", "--json"]).quiet();
        let launcher: Value = serde_json::from_str(&launcher).unwrap();
        assert_eq!(before["pid"], launcher["session"]["pid"], "{before}");
        // Who wrote is not known.
        let files = rows(place, "file");
        assert!(!files.is_empty());
        for field in ["pid", "parent", "exe", "argv_hash"] {
            assert_eq!(files[0][field], Value::Null, "{field}");
        }
        // The time of a command runs out.
        place.run(&["--timeout", "100ms"], &["sleep", "600"]).ends(124);
        let (decided, command) = (rows(place, "decision"), rows(place, "exec"));
        assert_eq!((&decided[0]["pid"], decided.len()), (&command[0]["pid"], 1), "{decided:?}");
        // A call about which nobody could be asked.
        place.file(
            "home/project/ask.toml",
            "extends = [\"default\"]\n[syscalls]\nmode = \"ask\"\nallow = [\"clone\", \"ioctl\", \
             \"faccessat\", \"getcwd\", \"getdents64\", \"newfstatat\", \"openat\", \"pipe2\", \
             \"prlimit64\", \"readlinkat\", \"statfs\", \"uname\"]\n",
        );
        place.shell("setsid --wait $RF -p ask.toml -- sh -c 'mkdir made; true'").ends(0);
        let (decided, command) = (rows(place, "decision"), rows(place, "exec"));
        let call = decided.iter().find(|row| row["act"] == "call").unwrap();
        assert_eq!(call["parent"], command[0]["pid"], "{call}");
        assert!(call["exe"].as_str().unwrap().contains("mkdir"), "{call}");
        // A tool is called: the server is named.
        let messages = [HELLO, &crate::mcp::call(2, "exec", r#"{"command":["true"]}"#)].concat();
        let mut server = place.command(binary());
        server.arg("mcp");
        Running::start_with(server, messages.into_bytes()).finish().ends(0);
        let (called, command) = (rows(place, "tool_call"), rows(place, "exec"));
        assert_eq!(called[0]["exe"], ringfence, "{called:?}");
        assert!(called[0]["pid"].is_number() && called[0]["pid"] != command[0]["pid"]);
    });
}

/// Tools work where no record can be kept, and the client hears of it.
#[test]
fn a_server_starts_where_nothing_can_be_recorded() {
    let serves = |place: &Place, state: &str| {
        let calls = [
            HELLO.to_owned(),
            call(2, "exec", r#"{"command":["sh","-c","cat; echo out >&2; exit 3"],"stdin":"in"}"#),
            call(3, "write_file", r#"{"path":"made","text":"written"}"#),
            call(4, "read_file", r#"{"path":"there"}"#),
            call(5, "exec", r#"{"command":["sleep","600"],"timeout_seconds":1}"#),
            call(6, "exec", r#"{"command":["cat","/etc/shadow"]}"#),
        ];
        place.file("home/project/there", "text");
        let mut server = place.command(binary());
        server.arg("mcp").env("XDG_STATE_HOME", state);
        let ended = Running::start_with(server, calls.concat().into_bytes()).finish();
        ended
            .ends(0)
            .says("this session's record is not kept")
            .says("calls of tools are not recorded");
        let answers: Vec<Value> =
            ended.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let of = |id: i64| answers.iter().find(|answer| answer["id"] == id).unwrap();
        let told = |id: i64| &of(id)["result"]["structuredContent"];
        assert!(of(1)["result"]["instructions"].as_str().unwrap().contains("not recorded"));
        assert_eq!(
            (&told(2)["stdout"], &told(2)["exit_code"]),
            (&"in".into(), &3.into()),
            "{}",
            of(2)
        );
        // Of ours it has nothing of the record, which the server has told; each command is a run of its own, though, of
        // which later ones ought to know.
        let stderr: Vec<&str> = told(2)["stderr"].as_str().unwrap().lines().collect();
        assert!(
            stderr[0] == "out" && stderr.len() == 2 && stderr[1].contains("cannot be noted"),
            "{stderr:?}"
        );
        assert_eq!(told(4)["text"], "text", "{}", of(4));
        assert_eq!(told(5)["exit_code"], 124, "{}", of(5));
        assert_ne!(told(6)["exit_code"], 0, "{}", of(6));
        assert_eq!(fs::read_to_string(place.project("made")).unwrap(), "written");
    };
    everybody(Tier::Namespace, |place| {
        // Somebody's file is where the directory should be.
        let state = place.directory("state").to_str().unwrap().to_owned();
        place.file("state/ringfence", "mine");
        serves(place, &state);
        let Some(disk) = small_disk(place) else { return };
        place.shell(&format!("dd if=/dev/zero of={disk}/fill bs=4k"));
        serves(place, &disk);
        let left =
            place.shell(&format!("find {disk}/ringfence/sessions -mindepth 1; umount {disk}"));
        assert_eq!(left.text(), "", "no part of a session stays");
    });
}

#[test]
fn a_report_is_for_its_user_alone() {
    use std::os::unix::fs::PermissionsExt;
    everybody(Tier::Namespace, |place| {
        place.run(&[], &["true"]).ends(0);
        let ringfence = binary().display();
        place.shell(&format!("umask 0; {ringfence} report latest --output page.html")).ends(0);
        let mode = place.project("page.html").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{mode:o}");
    });
}
