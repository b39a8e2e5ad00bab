//! Variables of the environment that a run was not given, and that files which it executed or read
//! speak of. Which ones a program reads cannot be seen from outside: that is a look into its own
//! memory. What it was given can be, and what its files name.

use crate::bytes::Bytes;
use crate::propose::{Proposal, Rule};
use crate::watch::{Act, Observed, Use};
use ringfence_policy::decide::Request;
use ringfence_policy::{Policy, decide};
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::os::unix::fs::MetadataExt;

/// The most that is read of one file: constants of programs are near their beginning or not far.
const MOST_OF_ONE: usize = 16 << 20;
/// The most that is read in all.
const MOST: usize = 256 << 20;

/// Variables of the caller's that the policy hides and that files name. It reads these, and nothing of a proposal: it may be
/// asked beside.
pub fn spoken(policy: &Policy, names: &[String], observed: &Observed) -> BTreeMap<String, Use> {
    let hidden = |name: &&String| !decide(policy, &Request::Env { name: (*name).clone() }).allowed;
    let hidden: Vec<&String> = names.iter().filter(hidden).collect();
    if hidden.is_empty() { BTreeMap::new() } else { named(&hidden, observed) }
}

impl Proposal {
    /// Names what was [`spoken`] of.
    pub fn variables(&mut self, spoken: BTreeMap<String, Use>) {
        for (name, uses) in spoken {
            let reason =
                "hidden as a credential, or as what leads to a process that acts for you; \
                          files that it executed or read name it"
                    .to_owned();
            let key = ("environment", "pass");
            self.withheld.push(Rule { key, text: name, uses, reason });
        }
    }
}

/// Which of these names stand in files of the run.
fn named(names: &[&String], observed: &Observed) -> BTreeMap<String, Use> {
    let mut found: BTreeMap<String, Use> = BTreeMap::new();
    let mut seen = HashSet::new();
    let mut left = MOST;
    let mut room = Vec::new();
    for ((path, act), uses) in &observed.paths {
        if !matches!(act, Act::Execute | Act::Read) {
            continue;
        }
        let Ok(data) = path.metadata() else { continue };
        if !data.is_file() || !seen.insert((data.dev(), data.ino())) {
            continue;
        }
        let Ok(file) = File::open(path) else { continue };
        let bytes = file.fill(0, data.len(), MOST_OF_ONE.min(left), &mut room);
        left -= bytes.len().min(left);
        for name in names.iter().filter(|name| speaks_of(bytes, name.as_bytes())) {
            found.entry((*name).clone()).or_default().join(uses);
        }
        if left == 0 {
            break;
        }
    }
    found
}

/// Whether a name stands in a text as a word of its own.
fn speaks_of(text: &[u8], name: &[u8]) -> bool {
    let part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    memchr::memmem::find_iter(text, name).any(|at| {
        let before = at.checked_sub(1).and_then(|at| text.get(at));
        !before.is_some_and(part) && !text.get(at + name.len()).is_some_and(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_as_words() {
        assert!(speaks_of(b"x\0GH_TOKEN\0y", b"GH_TOKEN"));
        assert!(speaks_of(b"GH_TOKEN", b"GH_TOKEN") && speaks_of(b"${GH_TOKEN}", b"GH_TOKEN"));
        assert!(!speaks_of(b"MY_GH_TOKEN", b"GH_TOKEN") && !speaks_of(b"GH_TOKENS", b"GH_TOKEN"));
        assert!(speaks_of(b"GH_TOKENS GH_TOKEN", b"GH_TOKEN"));
    }
}
