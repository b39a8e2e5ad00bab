//! What both programs of ledger tests record.

use ringfence_session::ledger::{Event, Ledger, Start, Verdict};
use std::path::Path;
use std::time::Duration;

/// Longer than anything here takes.
pub const LONG: Duration = Duration::from_secs(60);

/// A session's record, begun.
pub fn start(sessions: &Path, id: &str) -> Ledger {
    let start = Start {
        id: id.into(),
        name: Some(id.into()),
        argv: vec!["make".into(), "all".into()],
        cwd: "/project".into(),
        tier: "namespace",
        record: true,
    };
    Ledger::start_in(sessions, start).unwrap()
}

/// A decision by its number.
pub fn decision(number: u64) -> Event {
    Event::Decision {
        verdict: if number.is_multiple_of(2) { Verdict::Allow } else { Verdict::Deny },
        act: "read".into(),
        object: format!("/file/{number}"),
        rule: "~/.ssh (profile default, filesystem.deny)".into(),
        layer: "landlock".into(),
    }
}
