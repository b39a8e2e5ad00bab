//! Directories for temporary files: each run has its own, without what is in the host's.

use crate::propose::{Proposal, READ, WRITE, is_its_own};
use crate::secrets::Secrets;
use crate::watch::{Act, Observed, Use};
use ringfence_policy::decide::Request;
use ringfence_policy::path::within;
use ringfence_policy::{FileView, HostFiles, Policy, Subject, decide, unseen_above};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const OWN: [&str; 3] = ["/dev/shm", "/tmp", "/var/tmp"];

/// Whether a path is in one of them.
pub(crate) fn is_temporary(path: &Path) -> bool {
    OWN.iter().any(|own| within(path, Path::new(own)))
}

/// The directory for temporary files that a path is in, where that is the run's own and not the user's home or project.
pub fn temporary(policy: &Policy, path: &Path) -> Option<&'static str> {
    let around =
        OWN.into_iter().find(|own| within(path, Path::new(own)) && path.as_os_str() != *own)?;
    is_its_own(policy, path).then_some(around)
}

/// What of the host's a use of such a path asked for, which the run has not: the path itself, or the directory that it
/// was to be written in. What the program made there is its own, though the host has one of that name.
pub fn missed(policy: &Policy, observed: &Observed, path: &Path, act: Act) -> Option<PathBuf> {
    temporary(policy, path)?;
    let subject = Subject::on_host(path, &HostFiles);
    match act {
        Act::Write => {
            let decision = decide(policy, &Request::Write(subject));
            let private = decision.allowed && decision.layer == "private";
            let above = private.then(|| unseen_above(policy, path, &HostFiles)).flatten()?;
            (!observed.paths.contains_key(&(above.clone(), Act::Write))).then_some(above)
        }
        _ => {
            let before = observed.early.contains(path) || !is_made(observed, path);
            let there = before && HostFiles.link(path).is_ok();
            let shown = || decide(policy, &Request::Read(subject)).allowed;
            (there && !shown()).then(|| path.to_owned())
        }
    }
}

/// Whether the program made what is at a path: that was written more often than what must be there for it was changed
/// (removed, renamed, given another mode), which counts as read and written, and as opened by neither.
pub(crate) fn is_made(observed: &Observed, path: &Path) -> bool {
    let uses = |act| observed.paths.get(&(path.to_owned(), act));
    let changed = uses(Act::Read).map_or(0, |read| read.count - read.opened);
    uses(Act::Write).is_some_and(|write| write.count > changed)
}

impl Proposal {
    /// What the host has there is whichever program's that put it there: it is named, and left to the user.
    pub(crate) fn temporary(&mut self, policy: &Policy, observed: &Observed, secrets: &Secrets) {
        let mut units: BTreeMap<(PathBuf, &str), (Use, String)> = BTreeMap::new();
        for ((path, act), uses) in &observed.paths {
            let Some(around) = temporary(policy, path) else { continue };
            let Some(missed) = missed(policy, observed, path, *act) else { continue };
            let key = if *act == Act::Write { WRITE } else { READ };
            let secret = secrets.secret(path);
            // What a program keeps there is one thing, a file or a directory.
            let depth = Path::new(around).components().count() + 1;
            let unit = match secret {
                Some(_) => path.to_owned(),
                None => missed.components().take(depth).collect(),
            };
            let own =
                || format!("each run has a {around} of its own, without what is in the host's");
            let reason = secret.map_or_else(own, |why| format!("credentials: {why}"));
            let unit = units.entry((unit, key.1)).or_insert_with(|| (Use::default(), reason));
            unit.0.join(uses);
        }
        for ((unit, key), (uses, reason)) in units {
            let key = if key == WRITE.1 { WRITE } else { READ };
            self.path(key, &unit, &policy.home_dir, uses, Some(reason));
        }
    }
}
