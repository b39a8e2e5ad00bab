//! The gateway for snapshots: what the command inside may ask for, and what it may not, however it
//! asks.

use ringfence_tests::{Finished, Place, Tier, binary, everybody, everywhere};
use serde_json::Value;
use std::fs;

/// Runs a script in a sandbox with a gateway; `$R` is `ringfence snapshot` inside.
fn inside(place: &Place, options: &[&str], script: &str) -> Finished {
    let program = binary().to_str().unwrap();
    let mut all = vec!["--gateway", "-r", program];
    all.extend(options);
    let script = format!("set -e; R='{program} snapshot'; {script}");
    place.sh(&all, &script)
}

/// Sends lines as they are, and prints what comes back.
const CLIENT: &str = "
import json, os, socket, sys
def connect():
    s = socket.socket(socket.AF_UNIX); s.connect(os.environ['RINGFENCE_GATEWAY']); return s
def ask(**words):
    s = connect(); s.sendall(json.dumps(words).encode() + b'\\n')
    return json.loads(s.makefile().readline())
";

fn python(place: &Place, options: &[&str], script: &str) -> Option<Finished> {
    if !place.has("python3", "--version") {
        return None;
    }
    place.file("home/project/attack.py", format!("{CLIENT}{script}"));
    let mut all = vec!["--gateway"];
    all.extend(options);
    Some(place.run(&all, &["python3", "attack.py"]))
}

#[test]
fn the_command_makes_and_reverts_snapshots_of_its_own() {
    everybody(Tier::Namespace, |place| {
        place.file("home/project/a", "one\n");
        let script = "$R create --name base; echo two > a; mkdir d; echo new > d/n; $R list --json; \
                      $R changes >&2; $R diff >&2; $R revert base -- a >&2; cat a >&2; \
                      $R revert base >&2; test ! -e d; $R delete base; $R list >&2; \
                      $R create >&2; $R compact || echo no compact";
        let done = inside(place, &[], script);
        done.ends(0)
            .says("M a\nA d/\nA d/n\n")
            .says("-one\n+two\n")
            .says("1 path reverted; to undo")
            .says("one\n2 paths reverted")
            .says("before-revert")
            .says("inside a sandbox there are create, list, show")
            .prints("\"name\": \"base\"")
            .prints("no compact");
        assert_eq!(fs::read_to_string(place.project("a")).unwrap(), "one\n");
        // Each is a row of the record, and outside the name tells whose it is.
        let rows = place.ringfence(["logs", "latest", "--kind", "snapshot"]).quiet();
        for word in ["create", "revert", "delete"] {
            assert!(rows.contains(word), "{rows}");
        }
        inside(place, &[], "$R create --name base").ends(0);
        let listed = place.ringfence(["snapshot", "list"]).quiet();
        assert!(listed.contains("base."), "{listed}");
        // From a plan that was kept, too.
        for _ in 0..2 {
            place.run(&["--gateway"], &["sh", "-c", "test -S $RINGFENCE_GATEWAY"]).quiet();
        }
        // Without being asked for there is none.
        place.run(&[], &["sh", "-c", "test -z \"$RINGFENCE_GATEWAY\""]).quiet();
        assert_eq!(place.left_behind(), Vec::<String>::new());
    });
}

#[test]
fn what_a_snapshot_holds_can_be_read_and_how_it_came() {
    everybody(Tier::Namespace, |place| {
        place.file("home/project/a", "one\n");
        place.file("home/project/secret.env", "token-of-mine\n");
        place.file("home/project/.git/config", "[core]\n");
        place.file("home/project/d/bytes", b"\xff\x00\x01");
        // Of the user's own, before: none of the session's history.
        place.ringfence(["snapshot", "create", "--name", "outside"]).well();
        let script = "$R create --name base >/dev/null; echo two > a; chmod 600 d/bytes; \
                      $R create --name next >/dev/null; rm a; $R create >/dev/null; \
                      $R show base a; $R show base d/bytes | od -An -tx1; $R show base; $R show base d; \
                      $R history a; $R history d/bytes; \
                      for path in secret.env .git/config ../x /etc/passwd none; do \
                          ! $R show base $path 2>&1 || exit 9; done; \
                      ! $R show outside 2>/dev/null || exit 9; ! $R history secret.env 2>&1 || exit 9; \
                      $R show base --json | grep -c token || true";
        let done = inside(place, &["--deny", "secret.env"], script);
        done.ends(0)
            .prints("one\n ff 00 01\n")
            .prints("0644 file                 4 a\n")
            .prints("0644 file                 3 d/bytes\n")
            .prints("added                 4  base\n")
            .prints("modified              4  next\n")
            .prints("deleted               0  ")
            .prints("attributes            3  next\n")
            .prints("secret.env here")
            .prints(".git/config here")
            .prints("none is not in snapshot");
        let text = done.text();
        assert_eq!(text.matches("  base\n").count(), 4, "{text}");
        assert!(!text.contains("token-of") && !text.contains("outside"), "{text}");
        assert!(!text.lines().any(|line| line.ends_with(" secret.env")), "{text}");
    });
}

#[test]
fn nothing_of_others_can_be_named() {
    everybody(Tier::Namespace, |place| {
        place.file("home/project/a", "mine\n");
        place.file("home/other/b", "theirs\n");
        place.ringfence(["snapshot", "create", "--name", "outside"]).well();
        inside(place, &[], "$R create --name first").ends(0);
        let other = place.text("home/other");
        place.ringfence(["snapshot", "create", "--workspace", &other]).well();
        place.file("home/project/a", "changed\n");
        let script = format!(
            "before = open('a').read()\n\
             print(ask(do='list')['snapshots'])\n\
             for name in ['outside', '1', '2', 'first', 'latest', '../1', '']:\n  \
                 for verb in ['changes', 'diff', 'show', 'revert', 'delete']:\n    \
                     answer = ask(do=verb, snapshot=name)\n    \
                     assert not answer['ok'] and 'no snapshot' in answer['error'], answer\n\
             for tree in ['{other}', '/', '/etc', '..', 'home', '{project}/../other', '']:\n  \
                 for verb in ['create', 'list', 'changes', 'revert']:\n    \
                     answer = ask(do=verb, tree=tree)\n    \
                     assert not answer['ok'] and 'in no writable tree' in answer['error'], answer\n\
             assert ask(do='create', name='own')['ok']\n\
             for path in ['../other/b', '{other}/b', '/etc/passwd', 'a/../../other/b']:\n  \
                 answer = ask(do='diff', paths=[path])\n  \
                 assert not answer['ok'] and 'is not in' in answer['error'], answer\n\
             # The names of others are free, and say nothing of them.\n\
             assert ask(do='create', name='outside')['ok']\n\
             assert ask(do='create', name='first')['ok']\n\
             assert not ask(do='create', name='first')['ok']\n\
             for name in ['1', 'latest', '-x', '../x', 'a/b', '', 'x' * 80]:\n  \
                 assert not ask(do='create', name=name)['ok'], name\n\
             assert open('a').read() == before\n\
             print('held')\n",
            project = place.text("home/project"),
        );
        let Some(done) = python(place, &[], &script) else { return };
        done.ends(0).prints("[]\n").prints("held");
        assert_eq!(fs::read_to_string(place.at("home/other/b")).unwrap(), "theirs\n");
        let listed = place.ringfence(["snapshot", "list"]).quiet();
        assert!(listed.contains("  outside  ") && listed.contains("first."), "{listed}");
    });
}

#[test]
fn what_is_denied_or_protected_is_neither_shown_nor_reverted() {
    everybody(Tier::Namespace, |place| {
        place.file("home/project/secret.env", "token-of-mine\n");
        place.file("home/project/.git/config", "[core]\n");
        place.file("home/project/.git/hooks/pre-commit", "old hook\n");
        place.file("home/project/held", "held\n");
        place.file("home/project/a", "one\n");
        let options = ["--deny", "secret.env", "--protect", "held", "--snapshot"];
        // The start of the run is kept from outside, and knows all of it. The control is `a`.
        let script = "before = ask(do='list')['snapshots']\n\
                      made = ask(do='create')\n\
                      assert made['ok'] and ask(do='delete', snapshot=str(made['snapshot']['id']))['ok'], made\n\
                      for name in ['files\\'', 'bytes\\'', '\\'read\\'']:\n  \
                          assert name not in str(before) + str(made), (before, made)\n\
                      assert [s['origin'] for s in before] == ['start'], before\n\
                      input()\n\
                      open('a', 'w').write('two\\n')\n\
                      changes = ask(do='changes')['changes']\n\
                      text = json.dumps(ask(do='diff'))\n\
                      assert '+two' in text, text\n\
                      for word in ['secret', 'token', 'hook', 'held']:\n  \
                          assert word not in text + json.dumps(changes), text\n\
                      for path in ['secret.env', '.git/hooks/pre-commit', 'held', '.git/hooks']:\n  \
                          assert ask(do='diff', paths=[path])['changes'] == [], path\n  \
                          assert ask(do='revert', paths=[path])['reverted'] == [], path\n\
                      assert [c['path'] for c in ask(do='revert')['reverted']].count('a') == 1\n\
                      assert not ask(do='delete', snapshot=str(before[0]['id']))['ok']\n\
                      print('held')\n";
        if !place.has("python3", "--version") {
            return;
        }
        place.file("home/project/attack.py", format!("{CLIENT}{script}"));
        let mut command = place.ringfence_run();
        command.arg("--gateway").args(options).args(["--", "sh", "-c"]);
        // The user changes all of them meanwhile, and what the user wrote stays.
        command.arg("mkfifo pipe; echo ready; cat pipe | python3 attack.py");
        let mut running = ringfence_tests::Running::start(command);
        running.printed("ready\n");
        let outside = "echo newer-token > secret.env; echo newer > .git/hooks/pre-commit; \
                       echo newer > held; echo > pipe";
        place.shell(outside).ends(0);
        let done = running.finish();
        done.ends(0).prints("held");
        for (name, text) in [
            ("secret.env", "newer-token\n"),
            (".git/hooks/pre-commit", "newer\n"),
            ("held", "newer\n"),
            ("a", "one\n"),
        ] {
            assert_eq!(fs::read_to_string(place.project(name)).unwrap(), text, "{name}");
        }
    });
}

#[test]
fn names_that_are_protected_do_not_come_back_by_a_revert() {
    everybody(Tier::Namespace, |place| {
        place.file("home/project/a", "one\n");
        // They may stand there for a moment, and be kept then; reverting does not make them.
        let script = "mkdir -p deep/.vscode .idea; echo x > deep/.vscode/tasks.json; echo x > .envrc; \
                      odd=$(printf 'e\\033[31m'); mkdir -p $odd/.vscode; \
                      $R create --name with; rm -rf deep .idea .envrc $odd; echo two > a; \
                      $R revert with >&2; cat a; ls -A";
        let done = inside(place, &[], script);
        done.ends(0).prints("one\n");
        let names = [".envrc", ".idea", "deep/.vscode"];
        let none = || names.iter().all(|name| !place.project(name).exists());
        assert!(none());
        // Nor does who reverts to it from outside put them back, but for what is named.
        place.file("home/project/a", "three\n");
        let listed = place.ringfence(["snapshot", "list"]).quiet();
        let with = listed.split_whitespace().find(|word| word.starts_with("with.")).unwrap();
        let reverted = place.ringfence(["snapshot", "revert", with]);
        reverted
            .ends(0)
            .says("deep/.vscode: the session that made the snapshot was not to change it")
            .says("e\\u{1b}[31m/.vscode: the session");
        assert_eq!(fs::read_to_string(place.project("a")).unwrap(), "one\n");
        assert!(none() && place.project("deep").is_dir());
        place.ringfence(["snapshot", "revert", with, "--", "deep/.vscode"]).ends(0);
        assert!(place.project("deep/.vscode/tasks.json").exists());
    });
}

#[test]
fn a_root_that_became_a_link_is_not_followed() {
    everybody(Tier::Namespace, |place| {
        place.file("home/project/tree/a", "one\n");
        place.file("home/elsewhere/a", "elsewhere\n");
        place.file("home/project/sub/b", "sub\n");
        let elsewhere = place.text("home/elsewhere");
        let script = format!(
            "assert ask(do='create', name='x')['ok']\n\
             os.rename('sub', 'moved'); os.symlink('{elsewhere}', 'sub')\n\
             os.rename('tree/a', 'tree/b'); os.symlink('/etc/passwd', 'tree/a')\n\
             text = json.dumps(ask(do='diff'))\n\
             assert 'root:' not in text, text\n\
             done = ask(do='revert', snapshot='x')\n\
             assert done['ok'], done\n\
             assert open('sub/b').read() == 'sub\\n' and not os.path.islink('sub')\n\
             assert open('tree/a').read() == 'one\\n' and not os.path.exists('moved')\n\
             print('held')\n"
        );
        let Some(done) = python(place, &[], &script) else { return };
        done.ends(0).prints("held");
        let there: Vec<_> = fs::read_dir(place.at("home/elsewhere")).unwrap().collect();
        assert_eq!(there.len(), 1);
        assert_eq!(fs::read_to_string(place.at("home/elsewhere/a")).unwrap(), "elsewhere\n");
    });
}

#[test]
fn floods_and_half_messages_harm_nobody_else() {
    everybody(Tier::Namespace, |place| {
        place.file("home/project/a", "one\n");
        let script = "
half = [connect() for _ in range(20)]
for s in half: s.sendall(b'{\"do\":\"li')
assert ask(do='list')['ok']
for line in [b'\\n', b'null\\n', b'[]\\n', b'{\"do\":\"format\"}\\n', b'\\xff\\xfe\\n', b'{\"do\":\"list\",\"x\":1}\\n',
             b'{\"do\":\"create\",\"name\":7}\\n', b'[' * 60000 + b'\\n', b'{\"do\":\"list\",\"tree\":\"\\\\u0000\"}\\n']:
    s = connect(); s.sendall(line); answer = json.loads(s.makefile().readline())
    assert not answer['ok'], line
# Too long: told, and gone.
s = connect()
try:
    s.sendall(b'x' * 200000)
except (BrokenPipeError, ConnectionResetError): pass
try:
    read = s.makefile().read()
    assert 'at most 65536 bytes' in read, read
except ConnectionResetError: pass
# Many in one write, answered in order; and one who never reads does not stop the others.
s = connect(); s.sendall(b'{\"do\":\"list\"}\\n' * 500)
deaf = connect(); deaf.setblocking(False)
try:
    while True: deaf.send(b'{\"do\":\"trees\"}\\n' * 100)
except BlockingIOError: pass
f = s.makefile(); assert all(json.loads(f.readline())['ok'] for _ in range(500))
# More than there is room for: they wait, or are served when others leave.
more = []
for _ in range(40):
    c = socket.socket(socket.AF_UNIX); c.setblocking(False)
    try: c.connect(os.environ['RINGFENCE_GATEWAY'])
    except BlockingIOError: pass
    more.append(c)
for c in half + more + [deaf, s]: c.close()
assert ask(do='list')['ok']
for n in range(101):
    last = ask(do='create', name='n%d' % n)
assert not last['ok'] and 'keeps 100 snapshots' in last['error'], last
print('held')
";
        let Some(done) = python(place, &[], script) else { return };
        done.ends(0).prints("held");
        assert_eq!(place.left_behind(), Vec::<String>::new());
    });
}

#[test]
fn the_store_is_not_to_be_seen_and_the_end_waits_for_nobody() {
    everybody(Tier::Namespace, |place| {
        place.file("home/project/a", "one\n");
        let state = place.text("home/.local/state");
        let options = ["-w", &place.text("home")];
        let home = place.text("home");
        // A home that is writable as a whole holds the store, which is never shown in it.
        let script = format!(
            "$R create --workspace {home} --name h; ls -A {state}/ringfence 2>/dev/null || true; \
             echo two > a; $R changes h --workspace {home}; sleep 1000 &"
        );
        let done = inside(place, &options, &script);
        done.ends(0).prints("M project/a");
        assert!(!done.text().contains("snapshots"), "{}", done.text());
        assert_eq!(place.left_behind(), Vec::<String>::new());
        let listed = place.ringfence(["snapshot", "list", "--json", "--workspace", &home]).quiet();
        let listed: Value = serde_json::from_str(&listed).unwrap();
        assert_eq!(listed["snapshots"].as_array().unwrap().len(), 1);
    });
}

#[test]
fn where_there_can_be_none_the_run_is_refused() {
    everywhere(|place| {
        let refused: &[&[&str]] = match place.tier_name() {
            "process" => &[&[]],
            _ => &[&["--overlay=discard"]],
        };
        for options in refused {
            let mut all = vec!["--gateway"];
            all.extend(*options);
            place.run(&all, &["true"]).ends(125).says("--gateway");
        }
    });
}
