//! What a machine adds to its session's policy, and what runs in the command's place.

use super::Machine;
use crate::itself;
use ringfence_policy::{Access, Guarded, PathRule, Policy, Source};
use std::path::{Path, PathBuf};

fn rule(path: &Path, why: &str) -> PathRule {
    PathRule {
        link: false,
        access: Access::Read,
        path: path.to_owned(),
        pattern: None,
        optional: false,
        guarded: Guarded::Plain,
        reason: None,
        source: Source { origin: "built in".to_owned(), key: String::new(), text: why.to_owned() },
    }
}

/// Shows this program to the sandbox: it runs in the command's place, and talks to the guest.
///
/// # Errors
/// Another program stands in its place, or none.
pub fn program(policy: &mut Policy) -> Result<PathBuf, String> {
    let program = itself::place()?;
    policy.paths.push(rule(&program, "the virtual machine's bridge"));
    Ok(program)
}

impl Machine {
    /// Shows the machine's socket to the sandbox, and tells the bridge whom it is to meet there.
    pub fn show(&self, policy: &mut Policy) {
        let socket = rule(&self.socket(), "the virtual machine's socket");
        let word = (self.word(), socket.source.clone());
        policy.environment.set.insert(ringfence_guest::line::VARIABLE.to_owned(), word);
        policy.network.sockets.push(socket);
    }
}
