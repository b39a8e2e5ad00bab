//! Clones of a template while somebody is killed: the launcher, the warden, the template, who asked, a clone.
//! Nothing stays behind, and what was not killed goes on.

use ringfence_tests::{Place, Running, Tier, binary, everybody};
use rustix::process::{Pid, Signal, kill_process};

/// A template whose clones do as they are told. What `wait` for hold the output of whoever asked.
const TEMPLATE: &str = r#"
import os, signal, sys
import ringfence_template
def work(index, words):
    if words[0] == "exit":
        return index
    if words[0] == "kill" and index == 0:
        os.kill({"clone": os.getpid, "template": os.getppid}[words[1]](), signal.SIGKILL)
    if words[0] != "kill" or words[1] == "template":
        print("waiting", index, flush=True)
        signal.pause()
    return 0
forked, fork = [], os.fork
def first():
    if sys.argv[1:] == ["first"] and forked:
        os.kill(os.getpid(), signal.SIGKILL)
    forked.append(0)
    return fork()
os.fork = first
print("warm", flush=True)
ringfence_template.serve(work)
"#;

/// The same in C.
const TEMPLATE_C: &str = r#"
#include "ringfence_template.h"
static int work(int index, int count, char **words) {
    if (count > 0 && strcmp(words[0], "exit") == 0) return index;
    if (count > 1 && index == 0) kill(strcmp(words[1], "clone") == 0 ? getpid() : getppid(), SIGKILL);
    if (count > 1 && strcmp(words[1], "clone") == 0) return 0;
    printf("waiting %d\n", index);
    fflush(stdout);
    pause();
    return 0;
}
int main(void) {
    puts("warm");
    fflush(stdout);
    return ringfence_serve(work) == 0 ? 0 : 1;
}
"#;

/// A place with both templates: the words that start each of them.
fn templates(place: &Place) -> Vec<Vec<&'static str>> {
    let mut all = Vec::new();
    if place.has("python3", "--version") {
        let helper = place.ringfence(["fork", "--helper", "python"]).well();
        place.file("home/project/ringfence_template.py", helper + "\n");
        place.file("home/project/template.py", TEMPLATE);
        all.push(vec!["python3", "template.py"]);
    }
    if place.has("cc", "--version") {
        let helper = place.ringfence(["fork", "--helper", "c"]).well();
        place.file("home/project/ringfence_template.h", helper + "\n");
        place.file("home/project/template.c", TEMPLATE_C);
        place.shell("cc -Wall -Wextra -Werror -o template template.c").ends(0);
        all.push(vec!["./template"]);
    }
    all
}

/// A session of this name whose command is a template; with a fault, one of its launcher.
fn session(place: &Place, template: &[&str], fault: &str) -> Running {
    let mut command = place.ringfence_run();
    command.env("RINGFENCE_FAULT", fault);
    command.args(["--gateway", "--name", "warm", "--"]).args(template);
    let mut running = Running::start(command);
    running.printed("warm\n");
    running
}

/// One whose command is a shell, in which templates come and go.
fn shell(place: &Place) -> Running {
    let up = ["sh", "-c", "echo up; exec sleep 1000"];
    let mut running = place.start(&["--gateway", "--name", "warm"], &up);
    running.printed("up\n");
    running
}

/// A template beside the session's command.
fn beside(place: &Place, template: &[&str]) -> Running {
    let mut command = place.command(binary());
    command.args(["exec", "warm", "--"]).args(template);
    let mut running = Running::start(command);
    running.printed("warm\n");
    running
}

fn asking(place: &Place, clones: &str, words: &[&str], fault: &str) -> Running {
    let mut command = place.command(binary());
    command.env("RINGFENCE_FAULT", fault).args(["fork", "--json", "warm", clones]).args(words);
    Running::start(command)
}

fn works(place: &Place) {
    let done = place.ringfence(["fork", "--json", "warm", "3", "exit"]);
    done.ends(1).prints("[0, 1, 2]");
}

fn killed(place: &Place, running: Running) {
    place.ringfence(["kill", "--signal", "KILL", "warm"]).ends(0);
    running.finish().ends(137);
    assert_eq!(place.left_behind(), [""; 0]);
}

#[test]
fn a_launcher_killed_at_any_point_takes_the_clones_along() {
    everybody(Tier::Namespace, |place| {
        for template in templates(place) {
            for fault in ["fork-wish", "fork-lend", "fork-given", "fork-ended"] {
                let running = session(place, &template, fault);
                let words = if fault == "fork-ended" { "exit" } else { "wait" };
                // The end of its output, which the clones hold, is theirs.
                let asked = asking(place, "2", &[words], "").finish();
                asked.ends(125).says("the session ended, and the clones with it");
                assert_eq!(running.finish().signal, Some(9), "{fault}");
                assert_eq!(place.left_behind(), [""; 0], "{fault}");
                place.ringfence(["gc"]).ends(0);
                let ended = place.ringfence(["fork", "warm", "1", "exit"]);
                ended.ends(125).says("session warm has ended");
            }
        }
    });
}

#[test]
fn who_asks_is_killed_at_any_point_and_the_template_serves_the_next() {
    everybody(Tier::Namespace, |place| {
        for template in templates(place) {
            let running = session(place, &template, "");
            let early = ["fork-connected", "fork-asked", "fork-told", "fork-lent"];
            for fault in early.into_iter().chain(["fork-over"]) {
                let words = if fault == "fork-over" { "exit" } else { "wait" };
                let asked = asking(place, "2", &[words], fault).finish();
                assert_eq!(asked.signal, Some(9), "{fault}: {}", asked.err);
                // Its clones have ended: there is one request at a time.
                works(place);
            }
            killed(place, running);
        }
    });
}

#[test]
fn clones_end_with_their_template() {
    everybody(Tier::Namespace, |place| {
        for template in templates(place) {
            let running = shell(place);
            let own = beside(place, &template);
            // Who asked is answered, and nobody holds its output any more.
            let asked = asking(place, "4", &["kill", "template"], "").finish();
            asked.ends(125).says("the template ended before its clones");
            own.finish().ends(137);
            // The session goes on, and takes another one.
            let own = beside(place, &template);
            works(place);
            place.ringfence(["exec", "warm", "--", "true"]).ends(0);
            killed(place, running);
            own.finish();
        }
        // Between the first clone and the second.
        if place.has("python3", "--version") {
            let running = session(place, &["python3", "template.py", "first"], "");
            let asked = asking(place, "4", &["wait"], "").finish();
            assert_eq!(asked.code, 125, "{}", asked.err);
            // Here it is the session's command.
            running.finish().ends(137);
            assert_eq!(place.left_behind(), [""; 0]);
        }
    });
}

#[test]
fn a_clone_that_is_killed_is_the_only_one() {
    everybody(Tier::Namespace, |place| {
        for template in templates(place) {
            let running = session(place, &template, "");
            let asked = asking(place, "4", &["kill", "clone"], "").finish();
            asked.ends(137).prints("[137, 0, 0, 0]");
            works(place);
            killed(place, running);
        }
    });
}

#[test]
fn the_warden_takes_the_clones_along() {
    everybody(Tier::Namespace, |place| {
        for template in templates(place) {
            let running = session(place, &template, "");
            let mut asked = asking(place, "2", &["wait"], "");
            asked.printed("waiting 0").printed("waiting 1");
            let launcher = running.pid();
            let list = format!("/proc/{launcher}/task/{launcher}/children");
            let warden = std::fs::read_to_string(list).unwrap();
            let warden: i32 = warden.split_whitespace().next().unwrap().parse().unwrap();
            kill_process(Pid::from_raw(warden).unwrap(), Signal::KILL).unwrap();
            let asked = asked.finish();
            assert_eq!(asked.code, 125, "{}", asked.err);
            let ended = running.finish();
            assert!(ended.code != 0, "{}", ended.err);
            assert_eq!(place.left_behind(), [""; 0]);
        }
    });
}

/// Between being asked to lend its streams and lending them, who asks waits for nothing else.
#[test]
fn who_lends_to_a_template_that_is_gone_is_told() {
    const CLIENT: &str = r#"
import os, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
os.chdir(os.path.dirname(sys.argv[1]))
s.connect(os.path.basename(sys.argv[1]))
s.settimeout(30)
s.send(b"fork 1\nexit\0")
print(s.recv(99), flush=True)
sys.stdin.readline()
print(s.recv(99), flush=True)
"#;
    everybody(Tier::Namespace, |place| {
        for template in templates(place).into_iter().take(1) {
            let running = shell(place);
            let own = beside(place, &template);
            let sessions = place.at("home/.local/state/ringfence/sessions/by-name/warm");
            let socket = sessions.canonicalize().unwrap().join("fork.sock");
            place.file("home/project/client.py", CLIENT);
            place.shell("mkfifo go").ends(0);
            let mut client = place.shell_start(&format!(
                "exec python3 client.py {} < <(exec 3<>go; head -n 1 <&3)",
                socket.display()
            ));
            client.printed("lend");
            // Only the session's own template ends: the exec that holds it is killed with it.
            own.signal(Signal::KILL);
            own.finish();
            place.shell("echo go > go").ends(0);
            client.finish().ends(0).prints("failed the template ended before its clones");
            let own = beside(place, &template);
            works(place);
            killed(place, running);
            own.finish();
        }
    });
}
