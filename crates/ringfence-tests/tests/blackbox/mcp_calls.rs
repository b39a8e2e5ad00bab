//! Commands that a client of the MCP server runs: how each ends, and what its answer holds.

use crate::mcp::{HELLO, call, talk, talk_with};
use ringfence_tests::{Person, Running, Tier, binary, everybody};

/// A server that an agent starts in the background holds the streams of the call that started it.
#[test]
fn a_call_is_answered_when_its_command_has_ended() {
    everybody(Tier::Namespace, |place| {
        let background = |id, tool| {
            let script = "sleep 1000 & echo started; echo told >&2";
            call(
                id,
                tool,
                &format!(r#"{{"command":["sh","-c","{script}"],"stdin":"read by nobody"}}"#),
            )
        };
        let large = "x".repeat(1 << 20);
        let unread =
            format!(r#"{{"command":["sh","-c","sleep 1000 & echo second"],"stdin":"{large}"}}"#);
        let messages = [
            HELLO.to_owned(),
            background(2, "exec"),
            background(3, "run"),
            call(4, "exec", &unread),
        ];
        let run = talk(place, &["mcp"], messages.concat());
        run.ends(0).prints("\"stdout\":\"second\\n\"");
        assert_eq!(run.text().matches("\"stdout\":\"started\\n\"").count(), 2, "{}", run.text());
        assert!(run.text().contains("\"stderr\":\"told\\n\""), "{}", run.text());
        assert_eq!(place.left_behind(), [""; 0]);
    });
}

/// Ends of every kind, and more of everything than a pipe holds.
#[test]
fn a_call_tells_how_its_command_ended() {
    everybody(Tier::Namespace, |place| {
        let shell = |script: &str| format!(r#"{{"command":["sh","-c","{script}"]}}"#);
        let input = "y".repeat(300_000);
        let endless = r#"{"command":["sh","-c","trap '' TERM; echo on; while :; do sleep 1; done"],"timeout_seconds":1}"#;
        let messages = [
            HELLO.to_owned(),
            call(2, "exec", &format!(r#"{{"command":["wc","-c"],"stdin":"{input}"}}"#)),
            call(3, "exec", &shell("head -c 3000000 /dev/zero | tr '\\\\0' x; echo told >&2")),
            call(4, "exec", &shell("kill -KILL $$")),
            call(5, "exec", r#"{"command":["no-such-program"]}"#),
            call(6, "exec", endless),
            call(7, "exec", &shell("p=$$; (kill -STOP $p; kill -CONT $p) & wait; echo went on")),
            call(8, "exec", r#"{"command":["pwd"],"workdir":"/tmp"}"#),
            call(10, "exec", r#"{"command":["true"],"timeout_seconds":0}"#),
            call(9, "exec", "{\"command\":[\"echo\",\"a\\u0000b\"]}"),
        ];
        let run = talk(place, &["mcp"], messages.concat());
        let said = run.ends(0).text();
        let answer = |id: u32| {
            let mark = format!("\"id\":{id},");
            said.lines().find(|line| line.contains(&mark)).unwrap_or_default().to_owned()
        };
        for (id, parts) in [
            (2, &["\"stdout\":\"300000\\n\"", "\"exit_code\":0"][..]),
            (3, &["\"bytes_left_out\":1951424", "\"exit_code\":0"]),
            (4, &["\"exit_code\":137"]),
            (5, &["\"exit_code\":127", "no-such-program"]),
            (6, &["\"exit_code\":124", "ringfence: timed out after 1s"]),
            (7, &["went on", "\"exit_code\":0"]),
            (8, &["\"stdout\":\"/tmp\\n\""]),
            (9, &["an argument holds a NUL byte"]),
            (10, &["timeout_seconds must be from 1"]),
        ] {
            for part in parts {
                assert!(answer(id).contains(part), "{id} {part}: {}", answer(id));
            }
        }
        assert_eq!(place.left_behind(), [""; 0]);
    });
}

/// A server's session is called after its process, and numbers come again: one that ended long ago is not its own.
#[test]
fn an_earlier_session_of_the_same_name_is_not_taken_for_the_servers() {
    everybody(Tier::Namespace, |place| {
        if place.person == Person::Root {
            // Nothing keeps it from recording.
            return;
        }
        let sessions = place.at("home/.local/state/ringfence/sessions");
        let mut command = place.command("sh");
        let script = "\"$0\" run --name mcp-$$ -- true && chmod 500 \"$1\" && exec \"$0\" mcp";
        command.args(["-c", script]).arg(binary()).arg(&sessions);
        let messages =
            [HELLO.to_owned(), call(2, "exec", r#"{"command":["sh","-c","echo in $((40+2))"]}"#)];
        let run = Running::start_with(command, messages.concat().into_bytes()).finish();
        place.shell(&format!("chmod 700 {}", sessions.display())).ends(0);
        run.ends(0).prints("in 42").says("each command runs in a sandbox of its own");
        let logs = place.ringfence(["logs", "latest", "--kind", "tool_call"]);
        assert_eq!(logs.ends(0).text(), "", "rows of ours in the other's record");
    });
}

/// What is no string, no list and no number is not taken for something that was left out.
#[test]
fn arguments_of_another_kind_are_refused() {
    everybody(Tier::Namespace, |place| {
        place.file("home/project/file", "text");
        place.file("home/project/accents", "aéé");
        let calls = [
            (
                "exec",
                r#"{"command":["pwd"],"workdir":["/tmp"]}"#,
                "the argument workdir is no string",
            ),
            ("exec", r#"{"command":["cat"],"stdin":5}"#, "the argument stdin is no string"),
            ("snapshot_create", r#"{"name":5}"#, "the argument name is no string"),
            ("session_log", r#"{"denied":"true"}"#, "the argument denied is neither"),
            (
                "exec",
                r#"{"command":["true"],"timeout_seconds":1.5}"#,
                "timeout_seconds is no number",
            ),
            ("read_file", r#"{"path":"."}"#, "project/.: Is a directory; `why`"),
            ("read_file", r#"{"path":"none"}"#, "project/none: No such file or directory; `why`"),
            // The controls.
            (
                "exec",
                r#"{"command":["pwd"],"workdir":"/tmp","stdin":null,"timeout_seconds":5.0}"#,
                "/tmp",
            ),
            ("read_file", r#"{"path":"file","offset":2}"#, "\"text\":\"xt\""),
            ("read_file", r#"{"path":"file","offset":4}"#, "\"text\":\"\""),
            ("read_file", r#"{"path":"accents","length":4}"#, "\"bytes\":3,"),
            ("read_file", r#"{"path":"accents","offset":3}"#, "\"text\":\"é\""),
            // Not every file system can have so large a file; none has it start anew.
            ("read_file", r#"{"path":"file","offset":18446744073709551615}"#, ""),
            ("snapshot_list", "{}", "\"snapshots\":[]"),
        ];
        let messages = calls.iter().zip(2..).map(|((tool, given, _), id)| call(id, tool, given));
        let messages: Vec<String> = std::iter::once(HELLO.to_owned()).chain(messages).collect();
        let run = talk(place, &["mcp"], messages.concat());
        let said = run.ends(0).text();
        for ((tool, given, wanted), id) in calls.iter().zip(2..) {
            let mark = format!("\"id\":{id},");
            let answer = said.lines().find(|line| line.contains(&mark)).unwrap_or_default();
            assert!(answer.contains(wanted), "{tool} {given}: {answer}");
        }
        assert!(!said.contains("\"text\":\"text\""), "{said}");
    });
}

/// A shell without its locale says so each time, and does what it was told.
#[test]
fn what_a_shell_says_besides_is_no_failure_of_a_file_tool() {
    everybody(Tier::Namespace, |place| {
        let shell = "#!/bin/sh\necho warning >&2\nexec /bin/sh \"$@\"\n";
        let shell = place.script("bin/sh", shell);
        place.file("home/project/file", "written");
        let path = format!("PATH={}:/usr/bin:/bin", shell.parent().unwrap().display());
        let messages = [
            HELLO.to_owned(),
            call(2, "write_file", r#"{"path":"made","text":"written"}"#),
            call(3, "read_file", r#"{"path":"file","offset":1,"length":3}"#),
            call(4, "read_file", r#"{"path":"bin"}"#),
            call(5, "read_file", r#"{"path":"none"}"#),
        ];
        let run = talk(place, &["mcp", "-e", &path], messages.concat());
        let said = run.ends(0).text();
        assert_eq!(std::fs::read_to_string(place.project("made")).unwrap(), "written");
        for (id, part) in [
            (2, "\"bytes\":7"),
            (3, "\"text\":\"rit\""),
            // The controls: it is the one that is asked, and what fails is told.
            (4, "bin: Is a directory"),
            (5, "project/none: No such file or directory"),
        ] {
            let mark = format!("\"id\":{id},");
            let answer = said.lines().find(|line| line.contains(&mark)).unwrap_or_default();
            assert!(answer.contains(part), "{part}: {answer}");
            assert_eq!(answer.contains("\"isError\":true"), id > 3, "{answer}");
        }
    });
}

/// Clients end a connection on which one message is longer than 10 MiB. A control character takes twelve bytes of it.
#[test]
fn an_answer_is_as_long_as_clients_take() {
    everybody(Tier::Namespace, |place| {
        let both =
            r#"{"command":["sh","-c","head -c 2000000 /dev/zero; head -c 2000000 /dev/zero >&2"]}"#;
        // Calls go on beside each other: none waits for a file that another one makes.
        place.file("home/project/zeros", [0; 1_000_000]);
        let messages =
            [HELLO.to_owned(), call(2, "exec", both), call(3, "read_file", r#"{"path":"zeros"}"#)];
        let run = talk(place, &["mcp"], messages.concat());
        let said = run.ends(0).text();
        assert!(said.lines().all(|line| line.len() < 10 << 20));
        // So many zeros as there is room for, and how many there are.
        let kept = (5 << 18) / 6;
        run.prints(&format!("\"bytes_left_out\":{}", 2 * (2_000_000 - kept)));
        run.prints(&format!("\"bytes\":{kept},"));
    });
}

/// Cancels two calls, waits until nothing of them is left, and hears of a third one that it goes on.
const IMPATIENT: &str = r#"
import json, os, subprocess, sys
server = subprocess.Popen([sys.argv[1], "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
def send(**message):
    server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    server.stdin.flush()
def begin(number, tool, *command):
    meta = {"progressToken": f"t{number}"}
    given = {"name": tool, "arguments": {"command": command}, "_meta": meta}
    send(id=number, method="tools/call", params=given)
hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
send(id=1, method="initialize", params=hello)
server.stdout.readline()
send(method="notifications/initialized")
for number, tool in [(2, "exec"), (3, "run")]:
    os.mkfifo(f"pipe{number}")
    # Whoever reads the other end hears when the last one that could write is gone.
    begin(number, tool, "sh", "-c", f"exec > pipe{number}; echo on; sleep 1000 & wait")
    with open(f"pipe{number}") as pipe:
        assert pipe.readline() == "on\n"
        send(method="notifications/cancelled", params={"requestId": number, "reason": "test"})
        assert pipe.read() == ""
begin(4, "exec", "sh", "-c", "read line < pipe2; echo $line")
heard = []
while True:
    message = json.loads(server.stdout.readline())
    if message.get("id") == 4:
        break
    if message.get("method") == "notifications/progress" and message["params"]["progressToken"] == "t4":
        if not heard:
            with open("pipe2", "w") as pipe:
                pipe.write("heard\n")
        heard.append(message["params"]["progress"])
assert heard and message["result"]["structuredContent"]["stdout"] == "heard\n", message
server.stdin.close()
assert server.wait() == 0
print("held")
"#;

#[test]
fn what_is_cancelled_ends_and_what_goes_on_is_told_of() {
    everybody(Tier::Namespace, |place| {
        if !place.has("python3", "--version") {
            return;
        }
        place.file("home/project/client.py", IMPATIENT);
        let mut command = place.command("python3");
        command.arg("client.py").arg(binary());
        Running::start(command).finish().ends(0).prints("held");
        assert_eq!(place.left_behind(), [""; 0]);
    });
}

/// A model names the program and its arguments; neither chooses a policy.
#[test]
fn a_models_command_gets_no_profile_for_its_name() {
    everybody(Tier::Namespace, |place| {
        place.file("home/.claude/.credentials.json", "a secret of claude");
        place.file("home/.claude.json", "{}");
        place.directory("home/other");
        place.script("../other/claude", "#!/bin/sh\ncat ~/.claude/.credentials.json; echo ran\n");
        let viewer = "extends = [\"default\"]\narguments = \"read\"\n";
        place.file("home/.config/ringfence/profiles/viewer.toml", viewer);
        let (claude, secret) = (place.text("home/other/claude"), place.text("outside/secret"));
        // The names do choose one where the user types them: of what no rule makes writable.
        place.run(&["-r", "~/other"], &[&claude]).ends(0).prints("a secret of claude");
        place.run(&["-p", "viewer"], &["cat", &secret]).ends(0).prints("a secret");
        let asked = |options: &[&str], command: String| {
            let words = [&["mcp"], options].concat();
            let run = talk(place, &words, HELLO.to_owned() + &call(2, "run", &command));
            run.ends(0);
            run.text()
        };
        let named = format!("{{\"command\":[\"{claude}\"]}}");
        for options in [&["-r", "~/other"][..], &["-w", "~/other"]] {
            let told = asked(options, named.clone());
            assert!(told.contains("ran") && !told.contains("a secret"), "{told}");
        }
        let told = asked(&["-p", "viewer"], format!("{{\"command\":[\"cat\",\"{secret}\"]}}"));
        assert!(told.contains("No such file") && !told.contains("a secret"), "{told}");
        // Who wants a profile for all of them says so.
        let told = asked(&["--for", "claude", "-r", "~/other"], named);
        assert!(told.contains("a secret of claude"), "{told}");
        // And what lies in a tree that is written to has no name.
        let run = place.run(&["-w", "~/other"], &[&claude]);
        assert!(run.ends(0).text().contains("ran") && !run.text().contains("a secret"));
    });
}

/// What would be taken away again is not written, and a model is not told that it was.
#[test]
fn a_file_that_would_not_stay_is_not_written() {
    everybody(Tier::Namespace, |place| {
        let messages = [
            HELLO.to_owned(),
            call(2, "write_file", r#"{"path":".envrc","text":"evil"}"#),
            call(3, "write_file", r#"{"path":"sub/../.vscode/tasks.json","text":"evil"}"#),
            call(4, "write_file", r#"{"path":"sub/.git/config","text":"[user]\n\tname = x\n"}"#),
            call(5, "write_file", r#"{"path":"plain","text":"mine"}"#),
        ];
        let run = talk(place, &["mcp"], messages.concat());
        let answer = |id: u32| {
            let lines = run.text();
            let line = lines.lines().find(|line| line.contains(&format!("\"id\":{id},")));
            serde_json::from_str::<serde_json::Value>(line.unwrap()).unwrap()["result"].clone()
        };
        for id in [2, 3] {
            let said = answer(id);
            assert_eq!(said["isError"], true, "{said}");
            let why = said["structuredContent"]["error"].as_str().unwrap();
            assert!(why.contains("does not survive the run"), "{why}");
        }
        let judged = answer(4)["structuredContent"]["protected"].clone();
        assert!(judged.as_str().unwrap().contains("makes git run nothing"), "{judged}");
        let plain = answer(5)["structuredContent"].clone();
        assert_eq!((&plain["bytes"], &plain["protected"]), (&4.into(), &serde_json::Value::Null));
        assert_eq!(std::fs::read_to_string(place.project("plain")).unwrap(), "mine");
        assert!(!place.project(".envrc").exists() && !place.project(".vscode").exists());
    });
}

/// The process tier refuses the socket by which a session is asked for commands.
#[test]
fn where_sockets_are_refused_each_command_has_a_sandbox_of_its_own() {
    everybody(Tier::Process, |place| {
        place.file("home/project/old", "old");
        let secret = place.text("outside/secret");
        let program = binary().to_str().unwrap();
        let messages = [
            HELLO.to_owned(),
            call(2, "exec", r#"{"command":["sh","-c","pwd; cat; exit 3"],"stdin":"heard"}"#),
            call(3, "write_file", r#"{"path":"new","text":"written"}"#),
            call(4, "read_file", r#"{"path":"old"}"#),
            call(5, "read_file", &format!("{{\"path\":\"{secret}\"}}")),
            call(6, "exec", r#"{"command":["pwd"],"workdir":"/"}"#),
        ];
        let words = ["run", "--tier", "process", "-r", program, "--", program, "mcp"];
        let run = talk(place, &words, messages.concat());
        run.ends(0).says("local sockets are refused here");
        let text = run.text();
        let answer = |id: u32| {
            let line = text.lines().find(|line| line.contains(&format!("\"id\":{id},")));
            serde_json::from_str::<serde_json::Value>(line.unwrap()).unwrap()["result"].clone()
        };
        assert!(answer(1)["instructions"].as_str().unwrap().contains("a sandbox of its own"));
        let done = answer(2)["structuredContent"].clone();
        assert_eq!(done["exit_code"], 3, "{done}");
        assert_eq!(done["stdout"], format!("{}\nheard", place.text("home/project")), "{done}");
        assert_eq!(answer(4)["structuredContent"]["text"], "old");
        assert_eq!(answer(5)["isError"], true);
        assert!(!text.contains("a secret"), "outside files are outside");
        assert_eq!(answer(6)["structuredContent"]["stdout"], "/\n");
        assert_eq!(std::fs::read_to_string(place.project("new")).unwrap(), "written");
    });
}

/// The directory of a run is writable; without a session to ask, each command is a run.
#[test]
fn a_command_without_a_session_starts_where_a_model_says_and_that_is_not_writable() {
    everybody(Tier::Namespace, |place| {
        place.file("home/other/secret", "a secret");
        place.file("home/project/sub/file", "");
        let other = place.text("home/other");
        let tried = r#"["sh","-c","cat secret; echo evil > made"]"#;
        let at = |id, workdir: &str, command: &str| {
            call(id, "exec", &format!("{{\"command\":{command},\"workdir\":\"{workdir}\"}}"))
        };
        let messages = [
            HELLO.to_owned(),
            at(2, &other, tried),
            at(3, "..", tried),
            at(4, "sub", r#"["sh","-c","pwd; ls; echo new > made; exit 3"]"#),
        ];
        // No record can be kept: the place for it is a file.
        place.file("state", "");
        let run = talk_with(
            place,
            &[("XDG_STATE_HOME", &place.text("state"))],
            &["mcp"],
            messages.concat(),
        );
        run.says("there is no room for a session's record");
        let text = run.text();
        assert!(!text.contains("a secret"), "{text}");
        assert!(!place.at("home/other/made").exists() && !place.at("home/made").exists());
        // The control: what is in the server's directory is gone to.
        let line = text.lines().find(|line| line.contains("\"id\":4,")).unwrap();
        let done = &serde_json::from_str::<serde_json::Value>(line).unwrap()["result"]["structuredContent"];
        assert_eq!(done["stdout"], format!("{}\nfile\n", place.text("home/project/sub")), "{done}");
        assert_eq!(done["exit_code"], 3, "{done}");
        assert_eq!(std::fs::read_to_string(place.project("sub/made")).unwrap(), "new\n");
    });
}

/// Ends all that runs inside, and goes on.
const RELENTLESS: &str = r#"
import json, subprocess, sys
server = subprocess.Popen([sys.argv[1], "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
def say(message):
    server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    server.stdin.flush()
def tool(number, which, **arguments):
    say({"id": number, "method": "tools/call", "params": {"name": which, "arguments": arguments}})
    while True:
        message = json.loads(server.stdout.readline())
        if message.get("id") == number:
            return message["result"]["structuredContent"]
def call(number, *command):
    return tool(number, "exec", command=command)
def names(number):
    return [snapshot["name"] for snapshot in tool(number, "snapshot_list")["snapshots"]]
say({"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}})
server.stdout.readline()
say({"method": "notifications/initialized"})
assert call(2, "sh", "-c", "echo kept > kept; echo gone > /tmp/gone; cat /tmp/gone")["stdout"] == "gone\n"
assert tool(30, "snapshot_create", name="first")["snapshot"]["name"] == "first" and names(31) == ["first"]
call(3, "sh", "-c", "kill -KILL -1")
number = 4
# What is called while the session still ends begins in it no more, or ends with it.
while (answer := call(number, "sh", "-c", "ls /tmp/gone 2> /dev/null; cat kept"))["exit_code"] == 125 or "the session ended" in answer["stderr"]:
    number += 1
assert answer["stdout"] == "kept\n" and "this is a new one" in answer["stderr"], answer
assert call(number + 1, "true")["stderr"] == ""
# What the former session had is not this one's, and it has its own.
assert names(number + 2) == []
assert tool(number + 3, "snapshot_create", name="second")["snapshot"]["name"] == "second" and names(number + 4) == ["second"]
server.stdin.close()
assert server.wait() == 0
print("held")
"#;

#[test]
fn a_session_that_was_ended_from_inside_begins_anew() {
    everybody(Tier::Namespace, |place| {
        if !place.has("python3", "--version") {
            return;
        }
        place.file("home/project/client.py", RELENTLESS);
        let mut command = place.command("python3");
        command.arg("client.py").arg(binary());
        Running::start(command).finish().ends(0).prints("held");
        assert_eq!(place.left_behind(), [""; 0]);
    });
}
