//! `--status-fd N`: one JSON line for each event of a session.

use crate::error::Fault;
use crate::options::Parsed;
use ringfence_sandbox::Plan;
use ringfence_sandbox::supervise::Outcome;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::fs::File;
use std::io::Write;

/// Where the lines go, if anywhere.
pub struct Status(Option<RefCell<File>>);

impl Status {
    /// Takes over the descriptor that `--status-fd` names.
    ///
    /// # Errors
    /// It is no open descriptor.
    pub fn of(parsed: &Parsed) -> Result<Status, Fault> {
        let Some(value) = parsed.last("status-fd") else { return Ok(Status(None)) };
        let number = value.to_str().and_then(|value| value.parse().ok());
        let file = number.and_then(ringfence_sandbox::launch::adopt_descriptor);
        let file = file.ok_or_else(|| {
            let shown = value.display();
            Fault::usage(format!("--status-fd {shown}: no open descriptor above 2 has this number"))
        })?;
        Ok(Status(Some(RefCell::new(file.into()))))
    }

    /// Whether anybody listens.
    pub fn wanted(&self) -> bool {
        self.0.is_some()
    }

    /// The command executes.
    pub fn started(&self, session: &str, plan: &Plan) {
        let tier = plan.tier_name();
        self.line(json!({"schema": 1, "event": "started", "session": session, "tier": tier}));
    }

    /// No command ran.
    pub fn failed(&self, session: &str, fault: &Fault) {
        let Fault { message, code } = fault;
        self.line(json!({"schema": 1, "event": "failed", "session": session, "code": code, "message": message}));
    }

    /// The sandbox has ended.
    pub fn exited(&self, session: &str, outcome: &Outcome) {
        self.line(json!({
            "schema": 1, "event": "exited", "session": session, "code": outcome.code,
            "signal": outcome.signal, "timed_out": outcome.timed_out,
            "restored": outcome.restored, "limits": outcome.limits_hit,
        }));
    }

    fn line(&self, value: Value) {
        if let Some(file) = &self.0 {
            // Nobody reads any more: not the command's problem.
            let _ = writeln!(file.borrow_mut(), "{value}");
        }
    }
}
