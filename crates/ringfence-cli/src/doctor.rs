//! `ringfence doctor`: prints what the host offers.

use crate::error::Fault;
use crate::generate::print;
use crate::help;
use crate::options::{PLAIN, parse};
use ringfence_sandbox::Facts;
use ringfence_sandbox::doctor::{Report, State, Surroundings, report};
use std::ffi::OsString;
use std::fmt::Write;

/// `ringfence doctor [--json]`: exit 0 when a tier works, 1 when none does.
///
/// # Errors
/// Standard output cannot be written.
pub fn doctor(arguments: Vec<OsString>) -> Result<u8, Fault> {
    let parsed = parse(&PLAIN, arguments, false)?;
    if let Some(done) = help::asked("doctor", &parsed) {
        return done;
    }
    help::no_words("doctor", &parsed.rest)?;
    let mut report = report(&Facts::probed(), &Surroundings::look());
    report.findings.push(crate::vm::finding());
    let text = if parsed.has("json") {
        let mut text = serde_json::to_string_pretty(&report).map_err(Fault::of)?;
        text.push('\n');
        text
    } else {
        words(&report)
    };
    print(text.as_bytes())?;
    Ok(u8::from(report.tier == "none"))
}

fn words(report: &Report) -> String {
    let mut text = format!("strongest tier: {}\n", report.tier);
    for finding in &report.findings {
        let sign = match finding.state {
            State::Ok => "ok      ",
            State::Partial => "partial ",
            State::Missing => "MISSING ",
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{sign} {:<20} {}", finding.name, finding.found);
        if let Some(remedy) = &finding.remedy {
            let _ = writeln!(text, "         {:<20} → {remedy}", "");
        }
    }
    text
}
