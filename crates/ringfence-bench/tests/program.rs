//! The program from outside: bad input, and what it leaves behind when it is killed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// The longest that anything here is waited for; reaching it is a failure.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(60);

/// The bench, with a subject that does nothing but fail: its own lanes drop out, the others run.
fn bench(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringfence-bench"));
    command.args(["--ringfence", "/bin/false"]).args(args).stdin(Stdio::null());
    command
}

fn said(args: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = bench(args).output().expect("the bench runs");
    (
        status.code(),
        String::from_utf8_lossy(&stdout).into(),
        String::from_utf8_lossy(&stderr).into(),
    )
}

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let dir =
            std::env::temp_dir().join(format!("ringfence-bench-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a temporary directory");
        Scratch(dir)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn bad_input_is_one_sentence_and_exit_code_125() {
    let scratch = Scratch::new("bad");
    std::fs::write(scratch.path("ringfence-bench-x.json"), "{").expect("a file");
    let file = scratch.path("ringfence-bench-x.json");
    let below_file = format!("{file}/out");
    for (args, names) in [
        (&["nosuchgroup"][..], "no group `nosuchgroup`"),
        (&["start", "--against", "nosuchpeer"], "no peer `nosuchpeer`"),
        (&["start", "--quick", "-o", &below_file], "cannot make"),
        (&["start", "-o", "/proc/nowhere"], "cannot make"),
        (&["compare", &file, &file], "is not a benchmark result"),
        (&["check", &file, "--against", &file], "is not a benchmark result"),
        (&["history", "/nonexistent"], "cannot read /nonexistent"),
        (&["start", "--also", "debug=/nonexistent"], "/nonexistent is not a file"),
    ] {
        let (code, stdout, stderr) = said(args);
        assert_eq!(code, Some(125), "{args:?}: {stderr}");
        assert!(stderr.starts_with("ringfence: ") && stderr.contains(names), "{args:?}: {stderr}");
        assert_eq!((stderr.lines().count(), stdout.as_str()), (1, ""), "{args:?}");
    }
}

#[test]
fn help_names_every_group_and_every_subcommand_has_its_own() {
    let (code, help, _) = said(&["--help"]);
    assert_eq!(code, Some(0));
    for group in ["start", "parts", "profile", "disk", "rootfs", "startup", "http", "throughput"] {
        assert!(help.contains(group), "{group}");
    }
    for group in ["snapshot", "storage", "service", "apps", "scale", "escape"] {
        assert!(help.contains(group), "{group}");
    }
    for sub in ["compare", "history", "check", "report"] {
        let (code, help, _) = said(&[sub, "--help"]);
        assert!(code == Some(0) && help.contains(&format!("ringfence bench {sub}")), "{sub}");
    }
}

#[test]
fn a_measurement_writes_its_files_and_can_be_compared_with_itself() {
    let scratch = Scratch::new("whole");
    let (out, work) = (scratch.path("out"), scratch.path("work"));
    let args =
        ["start", "--quick", "--runs", "5", "--against", "none", "-o", &out, "--work", &work];
    let (code, stdout, stderr) = said(&args);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(
        stdout.contains("unsandboxed") && stdout.contains("left out: ringfence namespace"),
        "{stdout}"
    );
    let count = |ending: &str| {
        let files = std::fs::read_dir(&out).expect("the folder").flatten();
        files.filter(|file| file.path().extension().is_some_and(|found| found == ending)).count()
    };
    assert_eq!((count("json"), count("md"), count("html"), count("part")), (1, 1, 1, 0));
    assert_eq!(
        std::fs::read_dir(&work).expect("the folder").count(),
        0,
        "the working directory is left"
    );
    let (code, stdout, _) = said(&["compare", &out, &out]);
    assert!(code == Some(0) && stdout.contains("no difference seen"), "{stdout}");
    let (code, stdout, _) = said(&["check", &out, "--against", &out]);
    assert!(code == Some(0) && stdout.contains("passed"), "{stdout}");
    let gate = "start/true/wall: unsandboxed <= 0.0001 x unsandboxed";
    let (code, stdout, _) = said(&["check", &out, "--gate", gate]);
    assert!(code == Some(1) && stdout.contains("FAIL start/true/wall"), "{stdout}");
    let (code, stdout, _) = said(&["history", &out]);
    assert!(code == Some(0) && stdout.contains("history of 1 runs"), "{stdout}");
}

/// A bench that is measuring, with its keeper and its worker.
struct Busy {
    first: Child,
    keeper: i32,
    worker: i32,
    _scratch: Scratch,
    work: PathBuf,
}

fn children(pid: i32) -> Vec<i32> {
    let text =
        std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Tries again and again until there is an answer. There is nothing to wait on for other people's
/// processes; the limit is only there to end a test that has failed.
fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let began = std::time::Instant::now();
    while began.elapsed() < LIMIT {
        if let Some(answer) = attempt() {
            return answer;
        }
        std::thread::yield_now();
    }
    panic!("{what}: not within {LIMIT:?}");
}

impl Busy {
    /// Starts a bench and waits until its worker has processes of its own: a server of the bench, that
    /// lives until something ends it.
    fn start(name: &str) -> Busy {
        let something = |_: &Path, _, worker| !children(worker).is_empty();
        Busy::start_until(name, &["escape", "start"], "something that runs", something)
    }

    /// Starts a bench of these groups and waits until this is true of its directory, its keeper and its
    /// worker.
    fn start_until(
        name: &str,
        groups: &[&str],
        moment: &str,
        reached: impl Fn(&Path, i32, i32) -> bool,
    ) -> Busy {
        let scratch = Scratch::new(name);
        let (out, work) = (scratch.path("out"), scratch.path("work"));
        let rest = ["--runs", "100000", "--against", "none", "-o", &out, "--work", &work];
        let first = bench(&[groups, &rest].concat())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the bench starts");
        let pid = first.id().cast_signed();
        let keeper = eventually("a keeper", || children(pid).first().copied());
        let worker = eventually("a worker", || children(keeper).first().copied());
        let work = PathBuf::from(work);
        eventually(moment, || reached(&work, keeper, worker).then_some(()));
        Busy { first, keeper, worker, work, _scratch: scratch }
    }

    /// Nothing of it may be left: no process that mentions the working directory, and no file in it.
    fn assert_gone(mut self) {
        self.first.wait().expect("the bench ends");
        eventually("an empty working directory", || is_empty(&self.work).then_some(()));
        eventually("no process", || mentions(&self.work).is_empty().then_some(()));
    }
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none())
}

/// The processes whose command line or environment names `dir`.
fn mentions(dir: &Path) -> Vec<String> {
    let needle = dir.as_os_str().as_encoded_bytes();
    let names = |path: PathBuf| {
        let bytes = std::fs::read(path).unwrap_or_default();
        bytes.windows(needle.len()).any(|window| window == needle)
    };
    let entries = std::fs::read_dir("/proc").expect("/proc").flatten().map(|entry| entry.path());
    let found = entries.filter(|path| names(path.join("cmdline")) || names(path.join("environ")));
    found.map(|path| path.to_string_lossy().into_owned()).collect()
}

fn kill(signal: &str, pid: i32) {
    let status = Command::new("kill").args([signal, &pid.to_string()]).status().expect("kill runs");
    assert!(status.success());
}

#[test]
fn killing_the_first_process_leaves_nothing() {
    let busy = Busy::start("first");
    kill("-KILL", busy.first.id().cast_signed());
    busy.assert_gone();
}

#[test]
fn killing_the_keeper_leaves_nothing() {
    let busy = Busy::start("keeper");
    kill("-KILL", busy.keeper);
    busy.assert_gone();
}

#[test]
fn killing_the_worker_leaves_nothing() {
    let busy = Busy::start("worker");
    kill("-KILL", busy.worker);
    busy.assert_gone();
}

/// What exists of the host's network: interfaces and, where that can be asked, rules.
fn network() -> (Vec<std::ffi::OsString>, Vec<u8>) {
    let entries = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let mut interfaces: Vec<_> = entries.map(|entry| entry.file_name()).collect();
    interfaces.sort();
    let rules = Command::new("nft").args(["list", "ruleset"]).output();
    (interfaces, rules.map(|output| output.stdout).unwrap_or_default())
}

/// Whether a process below another is in a network namespace of its own: the container network.
fn isolated(below: i32) -> bool {
    let of = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).ok();
    let host = of("self");
    let mut open = children(below);
    while let Some(pid) = open.pop() {
        if of(&pid.to_string()).is_some_and(|own| Some(own) != host) {
            return true;
        }
        open.extend(children(pid));
    }
    false
}

/// Each of the three processes, killed at each of these moments.
#[test]
fn killed_at_any_moment_it_leaves_nothing() {
    type Moment = fn(&Path, i32) -> bool;
    let filled = |work: &Path| std::fs::read_dir(work).is_ok_and(|mut all| all.next().is_some());
    let root = is_root();
    let moments: [(&str, &[&str], Moment); 4] = [
        ("as soon as there is a worker", &["start"], |_, _| true),
        ("while its directory fills", &["start"], |work, _| {
            std::fs::read_dir(work).is_ok_and(|mut all| all.next().is_some())
        }),
        ("while servers run", &["http", "escape"], |_, worker| !children(worker).is_empty()),
        ("while there is a container network", &["service"], |_, worker| isolated(worker)),
    ];
    let before = network();
    for (moment, groups, reached) in moments {
        if groups == ["service"] && !(root && on_path("redis-server")) {
            println!("left out: {moment}: it takes root and redis-server");
            continue;
        }
        for victim in 0..3 {
            let name = format!("moment-{}-{victim}", groups[0]);
            // It may have ended by itself: then there is nothing left either.
            let reached = |place: &Path, keeper, worker| {
                reached(place, worker) || children(keeper).is_empty()
            };
            let mut busy = Busy::start_until(&name, groups, moment, reached);
            let pids = [busy.first.id().cast_signed(), busy.keeper, busy.worker];
            let _ = Command::new("kill").args(["-KILL", &pids[victim].to_string()]).status();
            busy.first.wait().expect("the bench ends");
            eventually("an empty working directory", || (!filled(&busy.work)).then_some(()));
            eventually("no process", || mentions(&busy.work).is_empty().then_some(()));
            assert_eq!(network(), before, "{moment}");
        }
    }
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|data| data.uid() == 0)
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|place| place.join(program).exists())
}

#[test]
fn a_signal_to_stop_leaves_nothing_and_is_reported() {
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let mut busy = Busy::start(&format!("signal{signal}"));
        kill(signal, busy.first.id().cast_signed());
        let status = busy.first.wait().expect("the bench ends");
        assert_eq!(status.code(), Some(code));
        busy.assert_gone();
    }
}
