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
