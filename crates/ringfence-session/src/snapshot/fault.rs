//! Places where a test may end the process. In normal use one load each.

use std::sync::OnceLock;

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

/// With `RINGFENCE_FAULT=NAME` the process dies of `SIGKILL` at the step of that name, as a launch does: tests use it to show
/// what is left then.
pub fn from_environment() {
    let Some(wanted) = std::env::var_os("RINGFENCE_FAULT") else { return };
    install(move |name| {
        if wanted == name {
            let own = rustix::process::getpid();
            let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
        }
    });
}
