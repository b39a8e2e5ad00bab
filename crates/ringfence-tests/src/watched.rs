//! A bound on every test: what a test started is described and killed when it takes far longer than any test
//! does, so that a test which waits for it fails, and a run of all tests ends.

use crate::stuck::{below, describe_all, numbers};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::gettid;
use std::path::Path;
use std::sync::{Mutex, Once};
use std::thread;
use std::time::{Duration, Instant};

/// How long a test may take in one place.
const LONGEST: Duration = Duration::from_secs(600);

/// How long a test may go on after all that it started was killed.
const GRACE: Duration = Duration::from_secs(120);

/// A test that runs.
struct Test {
    /// The thread it runs in: processes are children of the thread that started them.
    thread: Pid,
    name: String,
    end: Instant,
    killed: bool,
}

static TESTS: Mutex<Vec<Test>> = Mutex::new(Vec::new());

/// As long as this lives, the calling thread's test is watched.
pub struct Watched(Pid);

/// Watches the calling thread's test.
pub fn watched() -> Watched {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        thread::spawn(watch);
    });
    let name = thread::current().name().unwrap_or_default().to_owned();
    let test = Test { thread: gettid(), name, end: Instant::now() + LONGEST, killed: false };
    let watched = Watched(test.thread);
    tests().push(test);
    watched
}

impl Drop for Watched {
    fn drop(&mut self) {
        tests().retain(|test| test.thread != self.0);
    }
}

/// A test that fails while it holds the list leaves it as it is.
fn tests() -> std::sync::MutexGuard<'static, Vec<Test>> {
    TESTS.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// What a thread of this process started, and what that started.
fn started_by(thread: Pid) -> Vec<u32> {
    let children = format!("/proc/self/task/{}/children", thread.as_raw_nonzero());
    let children = std::fs::read_to_string(children).unwrap_or_default();
    let roots: Vec<u32> = children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect();
    let all = numbers(Path::new("/proc"));
    all.filter(|&pid| roots.iter().any(|&root| below(pid, root))).collect()
}

fn watch() {
    loop {
        thread::park_timeout(Duration::from_secs(5));
        for test in tests().iter_mut().filter(|test| Instant::now() > test.end) {
            let started = started_by(test.thread);
            eprintln!("{} does not end:{}", test.name, describe_all(&started));
            if test.killed {
                // It waits for something of its own. The program ends without a result, which is a failure.
                eprintln!("{} waits for nothing that it started", test.name);
                std::process::exit(101);
            }
            for pid in started {
                if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
            (test.killed, test.end) = (true, Instant::now() + GRACE);
        }
    }
}
