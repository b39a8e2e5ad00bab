//! `--tier vm`: real guests under the real QEMU. Each person's first guest boots once; all others are
//! clones of it.

use ringfence_tests::{Finished, Person, Place, Running, Tier, binary, left_out, people};
use rustix::process::Signal;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};

/// Where this person's saved guests are: kept between runs of the tests, as they are for users.
pub fn cache(person: Person) -> PathBuf {
    let path = PathBuf::from(format!("/var/tmp/ringfence-test-vm-{}", person.ids().0));
    std::fs::create_dir_all(&path).unwrap();
    person.owns(&path);
    path
}

pub fn ringfence(place: &Place, words: &[&str]) -> Command {
    let mut command = place.command(binary());
    command.env("XDG_CACHE_HOME", cache(place.person)).args(words);
    command
}

/// `ringfence run --tier vm OPTIONS -- ARGV`, started.
pub fn start(place: &Place, options: &[&str], argv: &[&str]) -> Running {
    let mut command = ringfence(place, &["run", "--tier", "vm"]);
    command.args(options).arg("--").args(argv);
    Running::start(command)
}

pub fn sh(place: &Place, options: &[&str], script: &str) -> Finished {
    start(place, options, &["sh", "-c", script]).finish()
}

/// Runs a test for everybody who can have a guest here. One such test at a time for each processor: an emulated guest
/// needs one for itself.
pub fn guests(test: impl Fn(&Place)) {
    guests_of(&people(), Turn::take(1), test);
}

/// The same for an ordinary user alone: each start takes a second, and root can do no less.
pub fn guests_of_one(test: impl Fn(&Place)) {
    let people = people();
    guests_of(&people[people.len() - 1..], Turn::take(1), test);
}

/// The same for one that changes what all guests of a person are made from, or that counts on a quick machine: no other
/// test has guests meanwhile.
pub fn guests_apart(test: impl Fn(&Place)) {
    guests_of(&people(), Turn::take(Turn::all()), test);
}

/// [`guests_apart`] for an ordinary user alone.
pub fn guests_of_one_apart(test: impl Fn(&Place)) {
    let people = people();
    guests_of(&people[people.len() - 1..], Turn::take(Turn::all()), test);
}

/// So many of the turns that are had at a time.
struct Turn(usize);

/// How many are had, and who waits for some.
static TURNS: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

impl Turn {
    fn all() -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }

    fn take(these: usize) -> Turn {
        let had = TURNS.0.lock().unwrap_or_else(PoisonError::into_inner);
        let had = TURNS.1.wait_while(had, |had| *had + these > Turn::all());
        *had.unwrap_or_else(PoisonError::into_inner) += these;
        Turn(these)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *TURNS.0.lock().unwrap_or_else(PoisonError::into_inner) -= self.0;
        TURNS.1.notify_all();
    }
}

fn guests_of(these: &[Person], _turn: Turn, test: impl Fn(&Place)) {
    static READY: OnceLock<Vec<(u32, Result<(), String>)>> = OnceLock::new();
    let ready = READY.get_or_init(|| {
        let one = |person: Person| {
            let place = Place::new(person, Tier::Namespace);
            // The boot, of which the others are clones. On a loaded machine it may take a minute: it
            // has a bound of its own.
            let call = |words: &[&str]| ringfence(&place, words).output().unwrap();
            let setup = call(&["vm", "setup"]);
            let boot = call(&["run", "--tier", "vm", "--", "true"]);
            let why = |ended: &Output| String::from_utf8_lossy(&ended.stderr).trim().to_owned();
            let told = match (setup.status.code(), boot.status.code()) {
                (Some(0), Some(0)) => Ok(()),
                // Without a network nothing can be fetched; with all there, it must boot.
                (Some(0), _) => panic!("the guest does not boot: {}", why(&boot)),
                _ => Err(why(&setup)),
            };
            (person.ids().0, told)
        };
        people().into_iter().map(one).collect()
    });
    for &person in these {
        let place = Place::new(person, Tier::Namespace);
        match ready.iter().find(|(user, _)| *user == person.ids().0) {
            Some((_, Ok(()))) => test(&place),
            Some((_, Err(why))) => left_out("the vm tier", why),
            None => unreachable!("everybody is in the list"),
        }
    }
}

#[test]
fn a_command_in_a_guest_is_as_one_outside_behind_another_kernel() {
    guests(|place| {
        let script = "echo out; echo err >&2; cat; id -u; pwd; echo $X; uname -r; exit 7";
        let mut command = ringfence(place, &["run", "--tier", "vm", "-e", "X=a b", "--"]);
        command.args(["sh", "-c", script]);
        let ended = Running::start_with(command, b"input\n".to_vec()).finish();
        ended.ends(7);
        let text = ended.text();
        let lines: Vec<&str> = text.lines().collect();
        let (user, project) = (place.person.ids().0.to_string(), place.text("home/project"));
        assert_eq!(lines[..5], ["out", "input", &user, &project, "a b"]);
        let here = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        assert_ne!(lines[5], here.trim(), "another kernel");
        assert_eq!(ended.err, "err\n");
        start(place, &[], &["sh", "-c", "kill -TERM $$"]).finish().ends(143);
        start(place, &[], &["no-such-program"]).finish().ends(127).says("command not found");
        start(place, &["--timeout", "1s"], &["sleep", "1000"]).finish().ends(124);
        // The guest's own limit on processes.
        let script = "for n in 1 2 3 4 5 6 7 8; do sleep 1000 & done; echo made";
        let ended = sh(place, &["--pids", "4"], script);
        assert!(ended.err.contains("ork"), "{}", ended.err);
        ended.says("the process limit was reached (--pids)");
        assert_eq!(sh(place, &["--pids", "40"], script).quiet(), "made");
        assert_eq!(place.left_behind(), [""; 0]);
    });
}

#[test]
fn a_guest_sees_what_the_policy_shows_and_nothing_else() {
    guests(|place| {
        place.file("home/project/own", "own");
        place.file("home/project/hidden", "hidden");
        place.file("home/private", "private");
        let hidden = place.text("home/project/hidden");
        // Granted: read, written, renamed, linked, and on the host when the guest has synced it.
        let script =
            "cat own; echo new > made; mkdir d; mv made d/; ln d/made twin; chmod 600 twin;
                      ln -s d/made link; sync d/made; rm own; stat -c '%a %h' link twin";
        assert_eq!(sh(place, &["--deny", &hidden], script).quiet(), "own777 1\n600 2");
        assert_eq!(std::fs::read_to_string(place.project("d/made")).unwrap(), "new\n");
        assert!(!place.project("own").exists());
        // What is not granted is not there.
        let outside = place.text("outside/secret");
        let private = place.text("home/private");
        let script = format!("cat hidden || cat {outside} || cat {private} || echo x > /usr/x");
        let ended = sh(place, &[], &script);
        assert_eq!(ended.quiet(), "hidden", "the control: nothing denies it");
        let ended = sh(place, &["--deny", &hidden], &script);
        assert_eq!(ended.ends(2).text(), "");
        assert_eq!(ended.err.matches("No such file or directory").count(), 2, "{}", ended.err);
        ended.says("hidden: Permission denied").says("Read-only file system");
        // With a grant it is. And the kernel's and the processes' files are the guest's own.
        let script = format!(
            "cat {outside}; head -c 5 /proc/1/cmdline; ls /proc/bus/pci >/dev/null 2>&1; \
             grep -c : /proc/net/dev"
        );
        assert_eq!(sh(place, &["-r", &outside], &script).text(), "a secret\n/init1");
    });
}

#[test]
fn connections_of_a_guest_go_through_the_filter() {
    guests(|place| {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = server.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for client in server.incoming().flatten() {
                let mut client = client;
                let _ = client.write_all(b"served\n");
            }
        });
        let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port} && cat <&3");
        let allowed = format!("localhost:{port}");
        let argv = ["bash", "-c", &script];
        // A name that no rule allows has no address.
        let named = format!("getent hosts example.org || {script}");
        let served = start(place, &["-n", &allowed], &["bash", "-c", &named]).finish();
        assert_eq!(served.well(), "served");
        start(place, &[], &argv).finish().ends(1).says("Connection refused");
        start(place, &["-n", "localhost:1"], &argv).finish().ends(1).says("Connection refused");
    });
}

#[test]
fn more_commands_run_in_a_guest_that_runs() {
    guests(|place| {
        let name = format!("vm-{}", place.person.ids().0);
        let mut running = start(place, &["--name", &name], &["sh", "-c", "echo up; sleep 1000"]);
        running.printed("up\n");
        let exec = |script: &str| {
            let words = ["exec", &name, "--", "sh", "-c", script];
            Running::start(ringfence(place, &words)).finish()
        };
        assert_eq!(exec("uname -n; cat /proc/1/cmdline | head -c 5").quiet(), "vm\n/init");
        exec("exit 9").ends(9);
        exec("kill -KILL $$").ends(137);
        // QEMU is no session of the user's.
        let listed = Running::start(ringfence(place, &["ps"])).finish().well();
        assert!(!listed.contains("qemu"), "{listed}");
        running.signal(Signal::TERM);
        running.finish();
        assert_eq!(place.left_behind(), [""; 0]);
    });
}

#[test]
fn what_a_guest_has_no_part_in_is_refused_with_the_reason() {
    guests(|place| {
        let refused = |options: &[&str], why: &str| {
            start(place, options, &["true"]).finish().ends(125).says(why);
        };
        refused(&["--network", "host"], "the guest has no network card");
        let socket = place.directory("outside").join("socket");
        let _server = UnixListener::bind(&socket).unwrap();
        let socket = socket.to_str().unwrap();
        refused(&["--allow-socket", socket], "cannot be connected to from another kernel");
        refused(&["-w", "/dev/shm"], "a guest has devices");
        refused(&["--memory", "16MiB"], "needs 128 MiB");
        let plan = ringfence(place, &["plan", "--tier", "vm", "--json", "--pids", "99"]);
        let plan = Running::start(plan).finish().well();
        let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
        assert_eq!(plan["tier"], "vm");
        assert_eq!(plan["machine"]["processes"], 99);
        assert_eq!(plan["machine"]["memory"], 1 << 30);
    });
}
