//! What `learn --json` prints: the proposal, as data. Nothing is written anywhere.

use crate::error::Fault;
use crate::generate::print;
use ringfence_learn::propose::{Proposal, Rule};
use ringfence_learn::watch::{Observed, Peaks};
use ringfence_policy::shown;
use serde_json::{Value, json};

/// What there is beside the rules.
#[derive(Default)]
pub struct Told {
    /// The command's words.
    pub command: Vec<String>,
    /// The exit code of the run; unset where nothing ran.
    pub code: Option<u8>,
    /// The session that it is from, if one was asked about.
    pub session: Option<String>,
    /// The most that the run used.
    pub peaks: Peaks,
    /// Uses that were too many to remember.
    pub lost: u64,
}

impl Told {
    /// Takes what was seen beside the rules.
    pub fn of(command: Vec<String>, code: u8, observed: &Observed) -> Told {
        let (peaks, lost) = (observed.peaks.clone(), observed.lost);
        Told { command, code: Some(code), session: None, peaks, lost }
    }
}

/// Prints it. `profile` is the text that `-o` would write.
///
/// # Errors
/// Standard output cannot be written.
pub fn json(proposal: &Proposal, told: &Told, profile: &str) -> Result<(), Fault> {
    let all = |rules: &[Rule]| rules.iter().map(rule).collect::<Vec<_>>();
    let peaks = (told.peaks.tasks > 0).then(|| {
        let Peaks { memory, largest, tasks, files, processor, written } = &told.peaks;
        // What was not looked at is not known, and no 0.
        let known = |number: u64| (number > 0).then_some(number);
        let whose = |most: &(u64, String)| (most.0 > 0).then(|| most.1.clone());
        json!({
            "memory": known(*memory), "largest": known(largest.0), "largest_by": whose(largest), "tasks": tasks,
            "files": known(files.0), "files_by": whose(files), "processor_ms": processor, "written": written,
        })
    });
    let value = json!({
        "schema": 1,
        "command": told.command,
        "session": told.session,
        "code": told.code,
        "rules": all(&proposal.rules),
        "withheld": all(&proposal.withheld),
        "common": proposal.common,
        "only_written": proposal.gone,
        "stay": proposal.stay,
        "apart": proposal.apart,
        "used": peaks,
        "lost": told.lost,
        "profile": profile,
    });
    print(shown::json(&format!("{value:#}\n")).as_bytes())?;
    Ok(())
}

fn rule(rule: &Rule) -> Value {
    let (table, key) = rule.key;
    let mut value = json!({
        "key": format!("{table}.{key}"),
        "value": rule.text,
        "count": rule.uses.count,
        "by": rule.uses.by,
    });
    if table == "filesystem" {
        value["opened"] = rule.uses.opened.into();
    }
    if !rule.reason.is_empty() {
        value["reason"] = rule.reason.as_str().into();
    }
    value
}
