//! What is executed inside is on record, by whomever, and the record is nobody's to avoid.

use ringfence_tests::{Place, everywhere};
use serde_json::Value;

/// The rows of programs of the last session.
fn executed(place: &Place) -> Vec<Value> {
    let logs = place.ringfence(["logs", "latest", "--kind", "exec", "--json"]).quiet();
    let mut logs: Value = serde_json::from_str(&logs).unwrap();
    serde_json::from_value(logs["events"].take()).unwrap()
}

fn row<'a>(rows: &'a [Value], argv: &[&str]) -> &'a Value {
    let found = rows.iter().find(|row| row["argv"] == serde_json::json!(argv));
    found.unwrap_or_else(|| panic!("{argv:?} is not in {rows:#?}"))
}

/// A file, so that no shell takes the commands for its own.
fn script(place: &Place, text: &str) {
    place.file("home/project/script", text);
}

#[test]
fn what_commands_execute_is_on_record() {
    everywhere(|place| {
        script(
            place,
            "cd sub; env A=1 cat one; no-such-program; sh -c 'exit 4'; exec sh -c 'exit 5'",
        );
        place.file("home/project/sub/one", "1\n");
        place.run(&["--record-programs"], &["sh", "script"]).ends(5);
        let rows = executed(place);
        let first = row(&rows, &["sh", "script"]);
        // One process, three programs; the last of it has its end.
        let env = row(&rows, &["env", "A=1", "cat", "one"]);
        let cat = row(&rows, &["cat", "one"]);
        assert_eq!(env["pid"], cat["pid"]);
        assert_eq!((&env["parent"], &cat["parent"]), (&first["pid"], &first["pid"]));
        assert_eq!((&cat["code"], &env["code"]), (&0.into(), &Value::Null));
        assert_eq!(cat["cwd"], place.text("home/project/sub"));
        assert!(cat["exe"].as_str().unwrap().ends_with("/cat"), "{cat}");
        assert!(cat["duration"].as_i64() > Some(0), "{cat}");
        assert_ne!(cat["argv_hash"], env["argv_hash"]);
        assert_eq!(row(&rows, &["sh", "-c", "exit 4"])["code"], 4);
        // The command itself goes on as another program.
        let last = row(&rows, &["sh", "-c", "exit 5"]);
        assert_eq!((&last["pid"], &last["code"]), (&first["pid"], &5.into()));
        // What was looked for in vain is not.
        assert_eq!(rows.len(), 5, "{rows:#?}");
    });
}

#[test]
fn what_runs_on_when_its_session_ends_has_an_end_on_record() {
    everywhere(|place| {
        script(place, "mkfifo p q; sh -c 'echo > p; read x < q' & read x < p");
        place.run(&["--record-programs"], &["sh", "script"]).ends(0);
        let rows = executed(place);
        let left = row(&rows, &["sh", "-c", "echo > p; read x < q"]);
        assert_eq!((&left["code"], &left["signal"]), (&Value::Null, &9.into()));
    });
}

#[test]
fn what_exec_and_its_children_execute_is_on_record() {
    everywhere(|place| {
        let command = ["sh", "-c", "echo up; exec sleep 1000"];
        let mut running = place.start(&["--record-programs", "--name", "host"], &command);
        running.printed("up\n");
        place.ringfence(["exec", "host", "sh", "-c", "env B=2 true; exit 3"]).ends(3);
        place.ringfence(["kill", "host"]).quiet();
        running.finish().ends(143);
        let rows = executed(place);
        let outer = row(&rows, &["sh", "-c", "env B=2 true; exit 3"]);
        assert_eq!(outer["code"], 3);
        assert_eq!(row(&rows, &["env", "B=2", "true"])["parent"], outer["pid"]);
        assert_eq!(row(&rows, &["true"])["code"], 0);
        assert_eq!(row(&rows, &["sleep", "1000"])["signal"], 15);
    });
}

/// Calls that are made in unusual ways: with what the filter's source has in the place of the
/// session's own numbers, from a second thread, by descriptor, with a link as the name, from memory that
/// cannot be read, and with too many words.
const WAYS: &str = r#"
import ctypes, os, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
def words(*all):
    return (ctypes.c_char_p * (len(all) + 1))(*all, None)
def call(path, argv, *more):
    return libc.syscall(ctypes.c_long(59 if os.uname().machine == "x86_64" else 221), ctypes.c_char_p(path), argv, words(),
                        *[ctypes.c_long(one) for one in more])
def child(act):
    pid = os.fork()
    if pid == 0:
        try:
            act()
        finally:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
true = os.path.realpath("/bin/true")
print(child(lambda: call(true.encode(), words(b"marked"), 0x72666d31, 0x72666d32)))
def threaded():
    thread = threading.Thread(target=lambda: os.execv(true, ["threaded"]))
    thread.start()
    thread.join()
print(child(threaded))
os.symlink(true, "link")
print(child(lambda: os.execv("./link", ["linked"])))
print(child(lambda: os.execv(true, ["long"] + ["x" * 1000] * 100)))
print(child(lambda: call(true.encode(), ctypes.c_long(1))))
print(child(lambda: os.execv("/proc/self/exe", ["itself", "-c", "import sys; sys.exit(0)"])))
"#;

#[test]
fn no_way_to_execute_leads_past_the_record() {
    everywhere(|place| {
        place.file("home/project/ways.py", WAYS);
        let run = place.run(&["--record-programs"], &["/usr/bin/python3", "ways.py"]);
        // A list that cannot be read is an error of the call's, and nothing runs.
        assert_eq!(run.ends(0).text(), "0\n0\n0\n0\n99\n0");
        let rows = executed(place);
        for name in ["marked", "threaded", "linked"] {
            let row = row(&rows, &[name]);
            assert!(row["exe"].as_str().unwrap().ends_with("/true"), "{row}");
            assert_eq!(row["code"], 0, "{row}");
        }
        let long = rows.iter().find(|row| row["argv"][0] == "long").unwrap();
        let kept: usize =
            long["argv"].as_array().unwrap().iter().map(|word| word.as_str().unwrap().len()).sum();
        assert!((60_000..=65_536).contains(&kept), "{kept}");
        row(&rows, &["itself", "-c", "import sys; sys.exit(0)"]);
    });
}

#[test]
fn without_a_record_nothing_is_noted_and_everything_runs() {
    everywhere(|place| {
        let plan = place.ringfence(["plan", "--json", "--", "true"]).quiet();
        assert!(!plan.contains("observe"), "a plan is about what is allowed: {plan}");
        script(place, "env true && sh -c 'exit 4'");
        place.run(&["--no-record"], &["sh", "script"]).ends(4);
        // A sandbox in a sandbox: the outer one's record has all.
        place.run(&["--record-programs"], &["sh", "script"]).ends(4);
        assert_eq!(executed(place).len(), 4);
    });
}

/// Calls that come faster than they are answered leave the launcher time for its other duties.
#[test]
fn a_flood_of_calls_does_not_hold_up_the_end() {
    everywhere(|place| {
        let flood = "
import os
for _ in range(8):
    if os.fork() == 0:
        while True:
            try:
                os.execv('/etc/passwd', ['x'])
            except OSError:
                pass
os.wait()
";
        place.file("home/project/flood.py", flood);
        place
            .run(&["--record-programs", "--timeout", "300ms"], &["/usr/bin/python3", "flood.py"])
            .ends(124);
        assert_eq!(place.left_behind(), Vec::<String>::new());
    });
}

/// A row's time is not after the program's own, nor its end before it: the kernel is asked for both, and nobody's load is
/// in between. Nor does a command's time go on while what it changed is looked at.
#[test]
fn durations_begin_when_a_program_does_and_end_when_it_has() {
    everywhere(|place| {
        script(place, "for i in $(seq 60); do sh -c 'date +%s%N; date +%s%N'; done");
        let run = place.run(&["--record-programs", "--snapshot"], &["sh", "script"]);
        let times: Vec<i64> =
            run.ends(0).text().lines().map(|time| time.parse::<i64>().unwrap() / 1000).collect();
        let rows = executed(place);
        let dates: Vec<&Value> =
            rows.iter().filter(|row| row["argv"] == serde_json::json!(["date", "+%s%N"])).collect();
        assert_eq!((dates.len(), times.len()), (120, 120));
        for (row, told) in dates.iter().zip(&times) {
            let at = row["at_us"].as_i64().unwrap();
            // Both clocks are of one kernel, the durations' goes on evenly.
            let ended = at + row["duration"].as_i64().unwrap() + 1;
            assert!((at..=ended).contains(told), "{row}: {told}");
        }
        place.run(&["--snapshot"], &["sh", "-c", "echo made > made"]).ends(0);
        let logs = place.ringfence(["logs", "latest", "--json"]).quiet();
        let logs: Value = serde_json::from_str(&logs).unwrap();
        let of = |kind: &str| {
            let mut rows = logs["events"].as_array().unwrap().iter();
            rows.find(|row| row["kind"] == kind).unwrap_or_else(|| panic!("{kind}: {logs}"))
        };
        let (command, made) = (of("exec"), of("file"));
        let ended = command["at_us"].as_i64().unwrap() + command["duration"].as_i64().unwrap();
        assert!(ended <= made["at_us"].as_i64().unwrap(), "{command} {made}");
    });
}
