//! The MCP server and the guard in front of other servers, line by line, and by the official
//! Python client.

use ringfence_tests::{Finished, Place, Running, Tier, binary, everybody, everywhere};
use std::fs;
use std::io::{BufRead, Write};

pub(crate) const HELLO: &str = concat!(
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","#,
    r#""capabilities":{},"clientInfo":{"name":"test","version":"1"}}}"#,
    "\n",
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    "\n"
);

/// A server that says what it was asked, one line of Python each; it reads a file of the host.
const SERVER: &str = r#"
import sys, json
for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if "id" not in message:
        continue
    if method == "tools/list":
        result = {"tools": [{"name": name, "inputSchema": {}} for name in ("good", "bad")]}
    elif method == "tools/call":
        open("called", "a").write(message["params"]["name"] + "\n")
        try:
            result = {"content": [{"type": "text", "text": open(sys.argv[1]).read()}]}
        except OSError as error:
            result = {"content": [{"type": "text", "text": error.strerror}]}
    else:
        result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"#;

pub(crate) fn call(id: u32, tool: &str, arguments: &str) -> String {
    format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\",\
         \"params\":{{\"name\":\"{tool}\",\"arguments\":{arguments}}}}}\n"
    )
}

/// A conversation. What was asked before the end of the input is answered all the same.
pub(crate) fn talk(place: &Place, words: &[&str], messages: String) -> Finished {
    talk_with(place, &[], words, messages)
}

/// The same with further variables.
pub(crate) fn talk_with(
    place: &Place,
    variables: &[(&str, &str)],
    words: &[&str],
    messages: String,
) -> Finished {
    let mut command = place.command(binary());
    command.envs(variables.iter().copied()).args(words);
    Running::start_with(command, messages.into_bytes()).finish()
}

#[test]
fn the_tools_act_in_the_sandbox() {
    everybody(Tier::Namespace, |place| {
        place.file("home/project/old", "old");
        let secret = place.text("outside/secret");
        let messages = [
            HELLO.to_owned(),
            call(2, "exec", r#"{"command":["sh","-c","echo inside; exit 3"]}"#),
            call(3, "write_file", r#"{"path":"made/file","text":"written"}"#),
            call(4, "read_file", &format!("{{\"path\":\"{secret}\"}}")),
            call(5, "exec", r#"{"command":["true"],"options":["--network=host"]}"#),
            call(6, "why", r#"{"verb":"write","operands":["/etc/passwd"]}"#),
        ];
        let run = talk(place, &["mcp"], messages.concat());
        run.ends(0)
            .prints("\"exit_code\":3")
            .prints("\"stdout\":\"inside\\n\"")
            .prints("exec has no argument options; there are command")
            .prints("\"allowed\":false");
        assert!(!run.text().contains("a secret"), "outside files are outside");
        assert_eq!(fs::read_to_string(place.project("made/file")).unwrap(), "written");
        let log = place.ringfence(["logs", "latest"]).text();
        assert!(log.contains("tool_call"), "{log}");
    });
}

/// What a model may know is what its sandbox can find out.
#[test]
fn the_tools_tell_nothing_of_what_is_out_of_sight() {
    everybody(Tier::Namespace, |place| {
        place.file("home/notes/there", "x");
        place.link("home/notes/link", place.at("outside/secret"));
        place.link("home/project/way", place.at("home/notes/link"));
        place.file("home/project/own", "x");
        place.link("home/project/near", "own");
        let home = place.text("home");
        let why = |id, verb: &str, path: &str| {
            call(id, "why", &format!(r#"{{"verb":"{verb}","operands":["{path}"]}}"#))
        };
        let out = |name: &str| format!("{home}/notes/{name}");
        let hidden = ["there", "not-there", "link", "not-there/deep"];
        let mut messages = vec![HELLO.to_owned()];
        for (at, name) in hidden.iter().enumerate() {
            for (verb, id) in [("read", 10), ("write", 20), ("exec", 30), ("socket", 40)] {
                messages.push(why(id + at as u32, verb, &out(name)));
            }
        }
        let asked = format!(r#"{{"verb":"write","operands":["{}"]}}"#, out("not-there"));
        messages.extend([
            why(50, "read", "way"),
            why(51, "read", "near"),
            why(52, "read", "/bin/sh"),
        ]);
        messages.push(call(53, "request_access", &asked));
        let run = talk(place, &["mcp"], messages.concat());
        let answers = run.ends(0).text();
        let of = |id: u32| {
            let found = answers.lines().find(|line| line.contains(&format!("\"id\":{id},")));
            found.unwrap_or_else(|| panic!("no answer {id}")).to_owned()
        };
        // The same for each name, but for the name.
        for base in [10, 20, 30, 40] {
            let plain = |at: usize| {
                of(base + at as u32).replace(&out(hidden[at]), "NAME").replacen(
                    &format!("{}", base + at as u32),
                    "ID",
                    1,
                )
            };
            for (at, name) in hidden.iter().enumerate() {
                assert_eq!(plain(at), plain(0), "{name}");
            }
            // What is written to a private home is gone with it, so that it may be.
            let allowed = format!("\"allowed\":{}", base == 20);
            assert!(of(base).contains(&allowed), "{}", of(base));
        }
        assert!(
            !answers.contains("outside/secret") && !answers.contains("until it is made"),
            "{answers}"
        );
        assert!(of(50).contains("leads to what no rule grants") && !of(50).contains("notes/link"));
        assert!(of(53).contains("--write"), "{}", of(53));
        // What can be found out inside is told; the user, who asks outside, is told all.
        assert!(
            of(51).contains("\"allowed\":true") && of(51).contains("project/own"),
            "{}",
            of(51)
        );
        assert!(of(52).contains("\"allowed\":true"), "{}", of(52));
        place
            .ringfence(["why", "--json", "--", "read", &out("link")])
            .ends(1)
            .prints("outside/secret");
        place
            .ringfence(["why", "--json", "--", "write", &out("not-there")])
            .ends(0)
            .prints("is not there inside, until it is made");
    });
}

/// A client that asks one thing after the other.
const CLIENT: &str = r#"
import json, subprocess, sys
server = subprocess.Popen(sys.argv[1:2] + ["mcp"] + sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
def send(message):
    server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    server.stdin.flush()
def call(tool, **arguments):
    send({"id": 7, "method": "tools/call", "params": {"name": tool, "arguments": arguments}})
    return json.loads(server.stdout.readline())["result"]["structuredContent"]
hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
send({"id": 1, "method": "initialize", "params": hello})
server.stdout.readline()
send({"method": "notifications/initialized"})
made = call("snapshot_create", name="base")["snapshot"]
assert made["name"] == "base", made
done = call("exec", command=["sh", "-c", "echo two > a; cat a"])
assert done["stdout"] == "two\n", done
changes = call("snapshot_changes", snapshot="base")["changes"]
assert [(c["path"], c["what"]) for c in changes] == [("a", "modified")], changes
shown = call("snapshot_show", snapshot="base", path="a")
assert (shown["text"], shown["entry"]["kind"]) == ("one\n", "file"), shown
assert "-one\n+two\n" in call("snapshot_diff", snapshot="base", paths=["a"])["changes"][0]["diff"]
told = call("snapshot_history", path="a")["versions"]
assert [(v["snapshot"]["name"], v["what"]) for v in told] == [("base", "added")], told
if len(sys.argv) > 2:
    assert "secret" not in json.dumps(call("snapshot_show", snapshot="base"))
    assert "nothing is kept" in call("snapshot_show", snapshot="base", path="secret")["error"]
    assert "nothing is kept" in call("snapshot_history", path="secret")["error"]
listed = call("snapshot_list")["snapshots"]
assert [s["name"] for s in listed] == ["base"], listed
for other in ["outside", "1"]:
    assert "no snapshot" in call("snapshot_revert", snapshot=other)["error"]
assert open("a").read() == "two\n"
assert len(call("snapshot_revert", snapshot="base")["reverted"]) == 1
assert call("read_file", path="a")["text"] == "one\n"
assert "deleted" in call("snapshot_delete", snapshot="base")
assert call("write_file", path="b", text="b").get("error") is None
assert call("write_file", path="/etc/made", text="x").get("error")
server.stdin.close()
assert server.wait() == 0
print("held")
"#;

/// The tools act in the session's place: what the user keeps is none of theirs, nor what the policy denies.
#[test]
fn the_tools_see_the_sessions_own_snapshots_and_nothing_that_is_denied() {
    everybody(Tier::Namespace, |place| {
        if !place.has("python3", "--version") {
            return;
        }
        place.file("home/project/a", "one\n");
        let secret = place.file("home/project/secret", "hunter2\n");
        place.ringfence(["snapshot", "create", "--name", "outside"]).well();
        let client = place.file("home/project/client.py", CLIENT);
        let mut command = place.command("python3");
        command.arg(client).arg(binary()).arg("--deny").arg(&secret);
        Running::start(command).finish().ends(0).prints("held");
        assert_eq!(fs::read_to_string(place.project("a")).unwrap(), "one\n");
        let listed = place.ringfence(["snapshot", "list"]).quiet();
        assert!(listed.contains("outside") && !listed.contains("base."), "{listed}");
        // The control: the user's own command shows it.
        let shown = place.ringfence(["snapshot", "show", "outside", "secret"]).quiet();
        assert!(shown.contains("hunter2"), "{shown}");
    });
}

/// `ringfence mcp` inside a sandbox: its own is a sandbox in that one, its snapshots are the gateway's.
#[test]
fn inside_a_sandbox_the_tools_ask_its_gateway() {
    everybody(Tier::Namespace, |place| {
        // The inner sandbox is of the process tier.
        if !place.has("python3", "--version") || !Tier::here().contains(&Tier::Process) {
            return;
        }
        place.file("home/project/a", "one\n");
        place.ringfence(["snapshot", "create", "--name", "outside"]).well();
        place.file("home/project/client.py", CLIENT);
        let program = binary().to_str().unwrap();
        let options = ["--gateway", "-r", program];
        place.run(&options, &["python3", "client.py", program]).ends(0).prints("held");
        assert_eq!(fs::read_to_string(place.project("a")).unwrap(), "one\n");
        assert_eq!(fs::read_to_string(place.project("b")).unwrap(), "b");
        let rows = place.ringfence(["logs", "latest", "--kind", "snapshot"]).quiet();
        for verb in ["create", "revert", "delete"] {
            assert!(rows.contains(verb), "{rows}");
        }
        let listed = place.ringfence(["snapshot", "list"]).quiet();
        assert!(listed.contains("outside") && !listed.contains("base."), "{listed}");
        assert_eq!(place.left_behind(), Vec::<String>::new());
    });
}

#[test]
fn what_a_client_left_running_ends_with_it() {
    everywhere(|place| {
        let mut command = place.command(binary());
        command.args(["mcp", "--tier", place.tier_name()]);
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut server = command.spawn().unwrap();
        let mut input = server.stdin.take().unwrap();
        let long = call(2, "exec", r#"{"command":["sh","-c","echo > began; exec sleep 1000"]}"#);
        input.write_all([HELLO, &long].concat().as_bytes()).unwrap();
        let mut output = std::io::BufReader::new(server.stdout.take().unwrap());
        output.read_line(&mut String::new()).unwrap();
        // The client dies: both of its ends are closed.
        drop((input, output));
        // The command would take 1,000 s.
        server.wait().unwrap();
        assert_eq!(place.left_behind(), Vec::<String>::new());
    });
}

#[test]
fn tools_that_are_denied_are_neither_seen_nor_called() {
    everybody(Tier::Namespace, |place| {
        place.file("home/project/server.py", SERVER);
        let secret = place.text("outside/secret");
        let twice = "{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"tools/call\",\"method\":\"ping\",\
                     \"params\":{\"name\":\"bad\",\"name\":\"good\"}}\n";
        let messages = [
            HELLO.to_owned(),
            "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/list\"}\n".to_owned(),
            call(3, "bad", "{}"),
            format!("[{}]\n", call(4, "bad", "{}").trim_end()),
            twice.to_owned(),
            call(6, "good", "{}"),
        ];
        let words =
            ["mcp", "wrap", "--deny-tool", "bad", "--", "python3", "server.py", secret.as_str()];
        let run = talk(place, &words, messages.concat());
        run.prints("--deny-tool bad").prints("a message is one JSON object");
        let text = run.text();
        assert!(!text.contains("\"name\":\"bad\""), "it is not listed: {text}");
        assert!(text.contains("\"name\":\"good\"") && !text.contains("a secret"), "{text}");
        let called = fs::read_to_string(place.project("called")).unwrap();
        assert_eq!(called, "good\n", "the server never heard of the other one");
    });
}

/// A server that takes what it reads as those of other languages do: `Name` for `name`, the last of two,
/// parameters by position; and that answers whatever it likes.
const LENIENT: &str = r#"
import sys, json
def fold(value):
    if not isinstance(value, dict):
        return value
    folded = {}
    for name, part in value.items():
        folded[name.upper().lower().split("\0")[0]] = fold(part.split("\0")[0] if isinstance(part, str) else part)
    return folded
def say(**words):
    print(json.dumps({"jsonrpc": "2.0", **words}), flush=True)
both = {"tools": [{"name": "good"}, {"name": "bad", "Name": "bad"}]}
for line in sys.stdin:
    message = fold(json.loads(line))
    method, params, id = message.get("method"), message.get("params"), message.get("id")
    if isinstance(method, str) and method.strip().lower() == "tools/call":
        name = params[0] if isinstance(params, list) else params.get("name") or "none"
        open("called", "a").write(name.strip().lower() + "\n")
        say(id=id, result={})
    elif method == "tools/list" and id == 2:
        say(id=id, method="notifications/message", result=both)
        say(id=id, Result=both)
        say(id="2", result=both)
        say(id=77, result=both)
        say(id=id, result={"tools": both["tools"][:1], "TOOLS": both["tools"]}, Result=both)
        say(id=id, result=both)
    elif method == "tools/list":
        say(id=id, error={"code": -32601, "message": "none"})
    elif id is not None:
        say(id=int(id), result={})
"#;

#[test]
fn no_other_spelling_and_no_other_answer_gets_around_the_guard() {
    everybody(Tier::Namespace, |place| {
        if !place.has("python3", "--version") {
            return;
        }
        place.file("home/project/server.py", LENIENT);
        let request = |id: u32, rest: &str| format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},{rest}}}\n");
        let list = "\"method\":\"tools/list\"";
        let messages = [
            request(2, list),
            request(
                3,
                "\"method\":\"ping\",\"METHOD\":\"tools/call\",\"params\":{\"name\":\"bad\"}",
            ),
            request(4, "\"method\":\"tools/call\",\"params\":{\"name\":\"good\",\"namE\":\"bad\"}"),
            request(
                5,
                "\"method\":\"tools/call\",\"params\":{\"name\":\"good\"},\"param\u{17f}\":{\"name\":\"bad\"}",
            ),
            request(6, "\"method\":\"tools/call\",\"params\":[\"bad\",{}]"),
            request(7, "\"method\":\"tools/call\",\"params\":{\"name\":[\"bad\"]}"),
            request(8, "\"method\":\"tools/call\",\"params\":{\"name\":\" BAD \"}"),
            request(9, "\"method\":\"Tools/Call\",\"params\":{\"name\":\"bad\"}"),
            request(10, "\"method\":[\"tools/call\"],\"params\":{\"name\":\"bad\"}"),
            // A notification has no answer, and is judged all the same.
            "{\"jsonrpc\":\"2.0\",\"method\":\"tools/call\",\"params\":{\"name\":\"bad\"}}\n"
                .to_owned(),
            request(11, list),
            call(12, "good", "{}"),
            // Some readers end a text at a NUL.
            request(13, "\"method\":\"tools/call\\u0000\",\"params\":{\"name\":\"bad\"}"),
            call(14, "bad\\u0000", "{}"),
            request(
                15,
                "\"method\":\"tools/call\",\"params\":{\"name\":\"good\",\"name\\u0000\":\"bad\"}",
            ),
            "{\"jsonrpc\":\"2.0\",\"id\":16.0,\"method\":\"ping\"}\n".to_owned(),
            "{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"tools/list\"}\n".to_owned(),
        ];
        let words = ["mcp", "wrap", "--deny-tool", "bad", "--", "python3", "server.py"];
        let run = talk(place, &words, messages.concat());
        let text = run.text();
        let answer = |id: u32| -> Vec<serde_json::Value> {
            let lines = text.lines().map(|line| serde_json::from_str(line).expect("JSON"));
            lines.filter(|answer: &serde_json::Value| answer["id"] == id).collect()
        };
        // One answer to each, and of the list what may be had.
        let tools = serde_json::json!({"tools": [{"name": "good"}]});
        assert_eq!(answer(2)[..].iter().map(|a| &a["result"]).collect::<Vec<_>>(), [&tools]);
        assert!(!text.contains("\"77\"") && !text.contains("\"bad\""), "{text}");
        // The control: what may be called is, whatever stands beside it.
        let called = fs::read_to_string(place.project("called")).unwrap();
        assert_eq!(called, "good\n".repeat(4), "{text}");
        for (id, code) in [(6, -32602), (7, -32602), (10, -32600), (11, -32601), (13, -32600)] {
            let [answer] = &answer(id)[..] else { panic!("{id}: {text}") };
            assert!(answer["error"]["code"] == code && answer.get("result").is_none(), "{answer}");
        }
        for id in [8, 9, 14] {
            assert!(answer(id)[0]["result"]["isError"] == true, "{text}");
        }
        assert_eq!(answer(16).len(), 1, "{text}");
        // What has no id has no answer; what has none that is one is told so.
        let nobody: Vec<_> = text.lines().filter(|line| line.contains("\"id\":null")).collect();
        assert!(matches!(nobody[..], [one] if one.contains("an id is a text")), "{text}");
        run.says("a request that is an answer").says("an answer to nothing that was asked");
    });
}
