//! Clones of a warm template: they share its memory, and every layer holds in each.

use ringfence_tests::{Place, Running, Terminal, Tier, binary, everybody};
use rustix::process::Signal;

/// A template with 32 MiB that were filled before it was ready; each clone checks itself.
const TEMPLATE: &str = r#"
import ctypes, errno, os, resource, sys
import ringfence_template
warm = bytearray(b"w" * (32 << 20))
layers = lambda: {n: os.readlink("/proc/self/ns/" + n) for n in ("user", "mnt", "pid", "net", "ipc", "uts", "cgroup")}
mine, group = layers(), open("/proc/self/cgroup").read()

def status(name):
    return [l.split()[1] for l in open("/proc/self/status") if l.startswith(name + ":")][0]

def refused(error, act):
    try:
        act()
    except OSError as e:
        assert e.errno in error, e
    else:
        raise AssertionError("not refused")

def work(index, words):
    if words[:1] == ["exit"]:
        return index
    if words[:1] == ["wait"]:
        print("waiting", index, flush=True)
        sys.stdin.read()
        return 0
    assert words == ["check", "a b", ""]
    # Shared with the template until somebody writes.
    shared = sum(int(l.split()[1]) for l in open("/proc/self/smaps_rollup") if l.startswith("Shared"))
    assert shared >= 32 << 10, shared
    assert warm[index] == ord("w")
    warm[index] = 0
    # Namespaces, no_new_privs, filter, capabilities, limits, control group.
    assert layers() == mine and open("/proc/self/cgroup").read() == group
    assert status("NoNewPrivs") == "1" and status("Seccomp") == "2" and int(status("Seccomp_filters")) >= 1
    for sort in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(status(sort), 16) == 0, sort
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] == 200
    # The filter: a namespace, another process's memory.
    libc = ctypes.CDLL(None, use_errno=True)
    def call(f, *a):
        if f(*a) == -1:
            raise OSError(ctypes.get_errno(), "")
    refused([errno.EPERM], lambda: call(libc.unshare, 0x10000000))
    refused([errno.EPERM], lambda: call(libc.ptrace, 16, os.getppid(), 0, 0))
    # The view.
    refused([errno.ENOENT], lambda: open(os.environ["SECRET"]))
    refused([errno.EROFS, errno.EACCES], lambda: open("/usr/made", "w"))
    open("made-%d" % index, "w").close()
    # Landlock: 16 domains at most are put on one another, and one of them is on already, or two where
    # one is around all commands of a session.
    attributes = (ctypes.c_uint64 * 1)(1)
    ruleset = libc.syscall(444, attributes, 8, 0)
    more = 0
    while libc.syscall(446, ruleset, 0) == 0:
        more += 1
    assert more in (14, 15) and ctypes.get_errno() == errno.E2BIG, more

print("warm", flush=True)
ringfence_template.serve(work)
"#;

/// A session with a template that is named `warm`; nothing where there is no Python.
fn template(place: &Place) -> Option<Running> {
    if !place.has("python3", "--version") {
        return None;
    }
    let helper = place.ringfence(["fork", "--helper", "python"]).well();
    place.file("home/project/ringfence_template.py", helper + "\n");
    place.file("home/project/template.py", TEMPLATE);
    let secret = format!("SECRET={}", place.file("home/secret", "s\n").display());
    let options = ["--gateway", "--name", "warm", "--open-files", "200", "-e", &secret];
    let mut running = place.start(&options, &["python3", "template.py"]);
    running.printed("warm\n");
    Some(running)
}

#[test]
fn every_layer_holds_in_every_clone() {
    everybody(Tier::Namespace, |place| {
        let Some(running) = template(place) else { return };
        let done = place.ringfence(["fork", "--json", "warm", "100", "--", "check", "a b", ""]);
        let codes = vec!["0"; 100].join(", ");
        done.ends(0).prints(&format!("[{codes}]"));
        for index in 0..100 {
            assert!(place.project(format!("made-{index}")).exists(), "{index}");
        }
        // The control: outside, what the clones were refused is possible.
        place.shell("cat ../secret && unshare -U true").ends(0);
        // What one clone wrote none of the next ones sees: they are the template's.
        place.ringfence(["fork", "warm", "3", "check", "a b", ""]).ends(0);
        // Codes are in order; the first that is not 0 counts.
        let codes = place.ringfence(["fork", "--json", "warm", "4", "exit"]);
        codes.ends(1).prints("[0, 1, 2, 3]");
        place.ringfence(["kill", "warm"]).ends(0);
        running.finish().ends(143);
        assert_eq!(place.left_behind(), Vec::<String>::new());
    });
}

/// The same in C: 32 MiB that were filled before it was ready, and clones that check themselves.
const TEMPLATE_C: &str = r#"
#include "ringfence_template.h"
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
static char *warm;
static const char *names[] = {"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"};
static char layers[7][64], group[4096];
#define CHECK(what) do { if (!(what)) { fprintf(stderr, "%d: %s (errno %d)\n", __LINE__, #what, errno); return 99; } } while (0)
static void look(char all[7][64]) {
    for (int i = 0; i < 7; i++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/ns/%s", names[i]);
        all[i][0] = 0;
        if (readlink(path, all[i], 63) < 0) abort();
    }
}
static void whole(const char *path, char *to, size_t size) {
    FILE *file = fopen(path, "r");
    to[file ? fread(to, 1, size - 1, file) : 0] = 0;
    if (file) fclose(file);
}
static long status(const char *name, int base) {
    static char text[8192];
    whole("/proc/self/status", text, sizeof text);
    char *at = strstr(text, name);
    return at ? strtol(at + strlen(name) + 1, NULL, base) : -1;
}
static int work(int index, int count, char **words) {
    if (count > 0 && strcmp(words[0], "exit") == 0) return index;
    CHECK(count == 3 && strcmp(words[0], "check") == 0 && strcmp(words[1], "a b") == 0 && words[2][0] == 0);
    static char rollup[8192], now[7][64], here[4096];
    whole("/proc/self/smaps_rollup", rollup, sizeof rollup);
    long shared = 0;
    for (char *at = rollup; (at = strstr(at, "Shared_")); at++) shared += strtol(strchr(at, ':') + 1, NULL, 10);
    CHECK(shared >= 32 << 10);
    CHECK(warm[index] == 'w');
    warm[index] = 0;
    look(now);
    CHECK(memcmp(now, layers, sizeof now) == 0);
    whole("/proc/self/cgroup", here, sizeof here);
    CHECK(strcmp(here, group) == 0);
    CHECK(status("NoNewPrivs:", 10) == 1 && status("Seccomp:", 10) == 2 && status("Seccomp_filters:", 10) >= 1);
    const char *sets[] = {"CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"};
    for (int i = 0; i < 5; i++) CHECK(status(sets[i], 16) == 0);
    struct rlimit files;
    CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_max == 200);
    CHECK(unshare(CLONE_NEWUSER) == -1 && errno == EPERM);
    CHECK(ptrace(PTRACE_ATTACH, getppid(), 0, 0) == -1 && errno == EPERM);
    CHECK(open(getenv("SECRET"), O_RDONLY) == -1 && errno == ENOENT);
    CHECK(open("/usr/made", O_CREAT | O_WRONLY, 0644) == -1 && (errno == EROFS || errno == EACCES));
    char name[32];
    snprintf(name, sizeof name, "c-made-%d", index);
    CHECK(open(name, O_CREAT | O_WRONLY, 0644) >= 0);
    // Landlock: 16 domains at most are put on one another, and one of them is on already, or two where
    // one is around all commands of a session.
    unsigned long long attributes = 1;
    int ruleset = (int)syscall(444, &attributes, sizeof attributes, 0), more = 0;
    CHECK(ruleset >= 0);
    while (syscall(446, ruleset, 0) == 0) more++;
    CHECK((more == 14 || more == 15) && errno == E2BIG);
    return 0;
}
int main(void) {
    warm = malloc(32 << 20);
    memset(warm, 'w', 32 << 20);
    look(layers);
    whole("/proc/self/cgroup", group, sizeof group);
    puts("warm");
    fflush(stdout);
    return ringfence_serve(work) == 0 ? 0 : 1;
}
"#;

#[test]
fn a_template_in_c_has_clones_with_every_layer_too() {
    everybody(Tier::Namespace, |place| {
        if !place.has("cc", "--version") {
            return;
        }
        let helper = place.ringfence(["fork", "--helper", "c"]).well();
        place.file("home/project/ringfence_template.h", helper + "\n");
        place.file("home/project/template.c", TEMPLATE_C);
        place.shell("cc -Wall -Wextra -Werror -o template template.c").ends(0);
        let secret = format!("SECRET={}", place.file("home/secret", "s\n").display());
        let options = ["--gateway", "--name", "warm", "--open-files", "200", "-e", &secret];
        let mut running = place.start(&options, &["./template"]);
        running.printed("warm\n");
        // Twice: what a clone wrote the next ones do not see.
        for _ in 0..2 {
            let done = place.ringfence(["fork", "--json", "warm", "20", "--", "check", "a b", ""]);
            done.ends(0).prints(&format!("[{}]", vec!["0"; 20].join(", ")));
        }
        for index in 0..20 {
            assert!(place.project(format!("c-made-{index}")).exists(), "{index}");
        }
        place.shell("cat ../secret && unshare -U true").ends(0);
        place.ringfence(["fork", "--json", "warm", "4", "exit"]).ends(1).prints("[0, 1, 2, 3]");
        place.ringfence(["kill", "warm"]).ends(0);
        running.finish().ends(143);
        assert_eq!(place.left_behind(), Vec::<String>::new());
    });
}

#[test]
fn clones_end_with_who_asked_and_with_the_session() {
    everybody(Tier::Namespace, |place| {
        let Some(running) = template(place) else { return };
        let ask = || {
            let mut command = place.command(binary());
            command.args(["fork", "warm", "2", "wait"]);
            // A pipe that nobody writes to.
            Running::start_with(command, Vec::new())
        };
        let mut held = place.command("/bin/bash");
        held.args(["-c", "mkfifo pipe; exec \"$0\" fork warm 2 wait 0<>pipe"]).arg(binary());
        let mut held = Running::start(held);
        held.printed("waiting 0").printed("waiting 1");
        held.signal(Signal::KILL);
        drop(held);
        // The template is free again only when these have ended.
        ask().finish().ends(0).prints("waiting 1");
        place.ringfence(["kill", "--signal", "KILL", "warm"]).ends(0);
        running.finish().ends(137);
        place.ringfence(["fork", "warm", "1", "exit"]).ends(125).says("session warm has ended");
        assert_eq!(place.left_behind(), Vec::<String>::new());
    });
}

/// Who asks may be faster than the session that is started at the same time.
#[test]
fn a_session_that_starts_is_waited_for() {
    everybody(Tier::Namespace, |place| {
        let mut fork = place.command(binary());
        fork.args(["fork", "--timeout", "600s", "late", "1"]);
        let early = Running::start(fork);
        let lives = std::path::PathBuf::from(format!("/proc/{}/exe", early.pid()));
        // It watches by now, since the directory of names is its.
        let names = place.at("home/.local/state/ringfence/sessions/by-name");
        while !names.exists() && lives.read_link().is_ok() {
            std::thread::yield_now();
        }
        let mut running =
            place.start(&["--name", "late"], &["sh", "-c", "echo up; exec sleep 1000"]);
        running.printed("up\n");
        // The name is there with all that belongs to it: the answer is about this session.
        early.finish().ends(125).says("start it with --gateway");
        place.ringfence(["kill", "late"]).ends(0);
        running.finish().ends(143);
    });
}

/// Until the session is there, its name leads to the last one that had it.
#[test]
fn a_session_that_had_the_name_is_not_taken_for_the_one_that_starts() {
    everybody(Tier::Namespace, |place| {
        place.run(&["--name", "late"], &["true"]).ends(0);
        place.ringfence(["fork", "--timeout", "1ms", "late", "1"]).ends(125).says("late has ended");
        let mut fork = place.command(binary());
        fork.args(["fork", "--timeout", "600s", "late", "1"]);
        let early = Running::start(fork);
        let watches = || {
            let all = std::fs::read_dir(format!("/proc/{}/fdinfo", early.pid()));
            let told = |one: std::fs::DirEntry| std::fs::read_to_string(one.path());
            all.map(|mut all| {
                all.any(|one| one.and_then(told).is_ok_and(|text| text.contains("inotify wd")))
            })
        };
        // It ends instead, if it does not wait.
        let lives = std::path::PathBuf::from(format!("/proc/{}/exe", early.pid()));
        while lives.read_link().is_ok() && !watches().unwrap_or(true) {
            std::thread::yield_now();
        }
        let mut running =
            place.start(&["--name", "late"], &["sh", "-c", "echo up; exec sleep 1000"]);
        running.printed("up\n");
        early.finish().ends(125).says("start it with --gateway");
        place.ringfence(["kill", "late"]).ends(0);
        running.finish().ends(143);
    });
}

#[test]
fn without_a_template_there_are_no_clones() {
    everybody(Tier::Namespace, |place| {
        let up = ["sh", "-c", "echo up; exec sleep 1000"];
        let mut plain = place.start(&["--name", "plain"], &up);
        plain.printed("up\n");
        place.ringfence(["fork", "plain", "1"]).ends(125).says("start it with --gateway");
        let mut cold = place.start(&["--name", "cold", "--gateway"], &up);
        cold.printed("up\n");
        let none = place.ringfence(["fork", "--timeout", "50ms", "cold", "1"]);
        none.ends(125).says("said that it is a warm template within 50ms");
        place.ringfence(["fork", "cold", "0"]).ends(125).says("1 to 10000");
        place.ringfence(["fork", "cold", "99999"]).ends(125).says("1 to 10000");
        place.ringfence(["fork", "nobody", "1"]).ends(125).says("no session nobody");
        place.ringfence(["kill", "plain", "cold"]).ends(0);
        plain.finish().ends(143);
        cold.finish().ends(143);
    });
}

#[test]
fn a_template_that_lies_is_let_go() {
    everybody(Tier::Namespace, |place| {
        if !place.has("python3", "--version") {
            return;
        }
        let script = r#"
import os, socket
def connect():
    s = socket.socket(socket.AF_UNIX); s.connect(os.environ["RINGFENCE_GATEWAY"]); return s
print("up", flush=True)
for lie in [b"ended 7 0\n", b"ended 1 0 0 0 0\n", b"ended 1 300 0\n", b"ended\n", b"begun\n", b"\xff\n", b""]:
    s = connect(); s.sendall(b"ready\n")
    second = connect(); second.sendall(b"ready\n"); assert second.recv(10) == b""
    got, passed, _, _ = socket.recv_fds(s, 65536, 4)
    assert got.startswith(b"fork ") and len(passed) == 4, got
    s.sendall(lie.replace(b"ended 1", b"ended " + got.split()[1]))
    if lie: assert s.recv(10) == b""
    for fd in passed: os.close(fd)
    s.close()
print("held", flush=True)
"#;
        place.file("home/project/liar.py", script);
        let mut running = place.start(&["--gateway", "--name", "liar"], &["python3", "liar.py"]);
        running.printed("up\n");
        for _ in 0..7 {
            let done = place.ringfence(["fork", "liar", "2", "x"]);
            done.ends(125).says("the template ended before its clones");
        }
        running.finish().ends(0).prints("held");
    });
}

/// A template that keeps what it is lent, says what that is, and uses it.
const HOLDER: &str = r#"
import os, socket
s = socket.socket(socket.AF_UNIX); s.connect(os.environ["RINGFENCE_GATEWAY"])
s.sendall(b"ready\n")
print("up", flush=True)
for _ in range(2):
    got, passed, _, _ = socket.recv_fds(s, 65536, 4)
    print([os.isatty(fd) for fd in passed], os.read(passed[0], 99), flush=True)
    for fd in passed[1:3]:
        try:
            # A terminal is open both ways, whichever stream it is.
            os.set_blocking(fd, False); os.read(fd, 99); print("read from an output")
        except OSError:
            pass
    os.write(passed[1], b"pri" b"nted\n"); os.write(passed[2], b"to" b"ld\n")
    s.sendall(b"ended %s 0\n" % got.split()[1])
print("held", flush=True)
"#;

#[test]
fn the_terminal_of_who_asks_is_not_lent() {
    everybody(Tier::Namespace, |place| {
        if !place.has("python3", "--version") {
            return;
        }
        place.file("home/project/holder.py", HOLDER);
        let argv = ["python3", "holder.py"];
        let mut running = place.start(&["--gateway", "--name", "holder"], &argv);
        running.printed("up\n");
        let mut terminal = Terminal::shell(place);
        // What it prints is seen all the same.
        terminal.line("${RF%% *} fork holder 1 x");
        terminal.shows("printed");
        terminal.shows("told");
        terminal.code(0);
        // The control: what is no terminal goes in as it is.
        terminal.line("echo word | ${RF%% *} fork holder 1 x 2>err | cat; cat err");
        terminal.shows("printed");
        terminal.shows("told");
        terminal.code(0);
        terminal.leave();
        let done = running.finish();
        let lent = "[False, False, False, False]";
        done.ends(0).prints(&format!("{lent} b''\n{lent} b'word\\n'\nheld"));
    });
}

/// A client of the user's own, which passes what it is told to.
const PASSES: &str = r#"
import glob, os, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect(glob.glob(os.environ["HOME"] + "/.local/state/ringfence/sessions/*/fork.sock")[0])
s.sendall(b"fork 1\nx\0")
assert s.recv(99) == b"lend"
life, _ours = os.pipe()
socket.send_fds(s, [b"streams"], [os.open(sys.argv[1], getattr(os, sys.argv[2])), 1, 2, life])
print(s.recv(99).decode())
"#;

/// By a directory the template could change modes and times in it and around it, whatever is granted.
#[test]
fn a_directory_is_not_lent() {
    everybody(Tier::Namespace, |place| {
        if !place.has("python3", "--version") {
            return;
        }
        place.file("home/project/holder.py", HOLDER);
        let argv = ["python3", "holder.py"];
        let mut running = place.start(&["--gateway", "--name", "holder"], &argv);
        running.printed("up\n");
        let fork = format!("{} fork holder 1 x", binary().display());
        place.shell(&format!("{fork} < ..")).ends(125).says("standard input is a directory");
        place.shell(&format!("{fork} 2>&1 1<.")).ends(125).prints("standard output is a directory");
        // What was opened by its name alone is no stream, and another client is no way in.
        place.file("home/project/passes.py", PASSES);
        place.file("home/project/word", "word\n");
        for (path, flags) in [("..", "O_PATH"), ("holder.py", "O_PATH"), ("..", "O_RDONLY")] {
            let by_name = format!(
                "import os, sys; os.dup2(os.open(\"{path}\", os.{flags}), 0); os.execvp(sys.argv[1], sys.argv[1:])"
            );
            place.shell(&format!("python3 -c '{by_name}' {fork}")).ends(125);
            let passed = place.shell(&format!("python3 passes.py {path} {flags}"));
            passed.ends(0).prints("failed a standard stream is a directory");
        }
        // The controls: files are lent, and nothing else was.
        place
            .shell("python3 passes.py word O_RDONLY > out 2>&1 && cat out")
            .ends(0)
            .prints("ended 0");
        place.shell(&format!("{fork} < word > out 2>&1 && cat out")).ends(0).prints("printed");
        let done = running.finish();
        done.ends(0)
            .prints(&format!("up\n{0}\n{0}\nheld", "[False, False, False, False] b'word\\n'"));
    });
}

/// Names of sockets in the directories of this place's sessions.
fn sockets(place: &Place) -> Vec<String> {
    let sessions = std::fs::read_dir(place.at("home/.local/state/ringfence/sessions")).unwrap();
    let files = sessions.flatten().flat_map(|session| std::fs::read_dir(session.path()).unwrap());
    let names = files.flatten().map(|file| file.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".sock")).collect();
    names.sort();
    names
}

#[test]
fn no_socket_outlives_its_session() {
    everybody(Tier::Namespace, |place| {
        let start = || {
            let options = ["--gateway", "--name", "held", "-n", "localhost:1"];
            let mut running = place.start(&options, &["sh", "-c", "echo up; exec sleep 1000"]);
            running.printed("up\n");
            assert_eq!(sockets(place), ["control.sock", "fork.sock", "rules.sock"], "the control");
            running
        };
        let running = start();
        place.ringfence(["gc"]).ends(0);
        assert_eq!(sockets(place).len(), 3, "it lives");
        place.ringfence(["kill", "held"]).ends(0);
        running.finish().ends(143);
        assert_eq!(sockets(place), [""; 0]);
        // A launcher that is killed takes nothing along: that is for gc.
        let running = start();
        running.signal(Signal::KILL);
        running.finish();
        place.ringfence(["gc"]).ends(0);
        assert_eq!(sockets(place), [""; 0], "killed");
        assert_eq!(place.left_behind(), Vec::<String>::new());
    });
}
