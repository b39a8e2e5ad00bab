//! Places where a test may end the process. In normal use one load each.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

type Hook = Box<dyn Fn(&str) + Send + Sync>;

static HOOK: OnceLock<Hook> = OnceLock::new();

/// Calls a function at each step that changes the workspace or the store. For tests.
pub fn install(hook: impl Fn(&str) + Send + Sync + 'static) {
    let _ = HOOK.set(Box::new(hook));
}

/// Such a step.
pub(crate) fn point(name: &str) {
    if let Some(hook) = HOOK.get() {
        hook(name);
    }
}

/// With `RINGFENCE_FAULT=NAME` the process dies of `SIGKILL` at the step of that name, as a launch does; with `NAME:2` when it
/// comes to the second of that name. Tests use it to show what is left then.
pub fn from_environment() {
    let Some(wanted) = std::env::var("RINGFENCE_FAULT").ok() else { return };
    let (wanted, count) = match wanted.split_once(':') {
        Some((name, count)) => (name.to_owned(), count.parse().unwrap_or(1)),
        None => (wanted, 1),
    };
    let come = AtomicUsize::new(0);
    install(move |name| {
        if wanted == name && come.fetch_add(1, Ordering::Relaxed) + 1 == count {
            let own = rustix::process::getpid();
            let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
        }
    });
}
