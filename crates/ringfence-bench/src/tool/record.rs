//! `record DIRECTORY EVENTS [SECOND]`: records so many events in a session of its own, as fast as it can; with
//! a third word so many a second, and after EVENTS of them it says `now` and goes on until it is killed.

use super::{number, print};
use crate::error::{Result, error};
use crate::model::Better;
use ringfence_session::ledger::{Ended, Event, Ledger, Process, Recorder, Start, Verdict};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The session's name in the directory.
pub const SESSION: &str = "bench";
/// What an event's object begins with; its number follows.
pub const OBJECT: &str = "/a/file/of/the/workspace/";

/// Longer than any disk takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often events come where they come at a pace.
const BEAT: Duration = Duration::from_millis(1);

/// Runs the tool.
pub fn run(args: &[OsString]) -> Result<i32> {
    let place = PathBuf::from(args.first().ok_or_else(|| error!("bench: record: no directory"))?);
    let events: u64 = number(args, 1)?;
    let failed = |cause| error!("bench: record: {cause}");
    let start = Start {
        id: SESSION.into(),
        name: None,
        argv: vec!["true".into()],
        cwd: "/".into(),
        tier: "namespace",
        record: true,
    };
    let ledger = Ledger::start_in(&place, start).map_err(failed)?;
    let recorder = ledger.recorder();
    let process = Process::new(1, 0, "/usr/bin/x".into(), &[]);
    if args.len() > 2 {
        without_end(&recorder, &process, events, number(args, 2)?);
    }
    let began = Instant::now();
    (0..events).for_each(|number| record(&recorder, &process, number));
    let recorded = began.elapsed();
    let written = ledger.flush(PATIENCE);
    let took = began.elapsed();
    ledger.end(Ended::Code(0)).map_err(failed)?;
    let kept = kept(&place)?;
    if !written || kept.count != events {
        return Err(error!("{} of {events} events are in the journal", kept.count));
    }
    print("written", "events/s", Better::Higher, events as f64 / took.as_secs_f64());
    print("recording", "ns", Better::Lower, recorded.as_nanos() as f64 / events as f64);
    Ok(0)
}

fn record(recorder: &Recorder, process: &Process, number: u64) {
    recorder.record(
        Some(process),
        &Event::Decision {
            verdict: Verdict::Allow,
            act: "read".into(),
            object: format!("{OBJECT}{number}"),
            rule: ". (profile default, filesystem.write)".into(),
            layer: "landlock".into(),
        },
    );
}

/// So many a second, by the clock: who was held up makes up for it.
fn without_end(recorder: &Recorder, process: &Process, tell: u64, second: u64) -> ! {
    let began = Instant::now();
    let mut number = 0;
    loop {
        let due = (began.elapsed().as_secs_f64() * second as f64) as u64;
        for number in number..due {
            record(recorder, process, number);
        }
        if number < tell && due >= tell {
            println!("now");
        }
        number = due;
        std::thread::sleep(BEAT);
    }
}

/// What a journal holds of these events.
pub struct Kept {
    /// How many: the first ones, without a gap.
    pub count: u64,
    /// When the last one was recorded, in microseconds since the epoch.
    pub last: i64,
}

/// Reads it.
pub fn kept(place: &Path) -> Result<Kept> {
    let path = place.join(SESSION).join("journal");
    let journal = std::fs::read(&path).map_err(|cause| error!("{}: {cause}", path.display()))?;
    let mut kept = Kept { count: 0, last: 0 };
    // What was cut off by a kill is no line.
    let whole = journal.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    for line in journal[..whole].split(|&byte| byte == b'\n') {
        let line: serde_json::Value = serde_json::from_slice(line).unwrap_or_default();
        let event = &line["event"];
        let Some(object) = event["what"]["decision"]["object"].as_str() else { continue };
        if object.strip_prefix(OBJECT) != Some(&kept.count.to_string()) {
            return Err(error!("event {} is missing in the journal", kept.count));
        }
        kept.count += 1;
        kept.last = event["at"].as_i64().unwrap_or_default();
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_journal_holds_has_no_gap_and_a_cut_line_is_none() {
        let place = std::env::temp_dir().join(format!("ringfence-bench-{}", std::process::id()));
        std::fs::create_dir_all(place.join(SESSION)).expect("a directory");
        let line = |number: u64| {
            format!(
                "{{\"event\":{{\"at\":{number},\"what\":{{\"decision\":{{\"object\":\"{OBJECT}{number}\"}}}}}}}}"
            )
        };
        let kept = |text: String| {
            std::fs::write(place.join(SESSION).join("journal"), text).expect("written");
            kept(&place)
        };
        let whole = kept(format!("{{\"start\":{{}}}}\n{}\n{}\n{}", line(0), line(1), line(2)));
        assert_eq!(whole.map(|kept| (kept.count, kept.last)).ok(), Some((2, 1)));
        let gap = kept(format!("{}\n{}\n", line(0), line(2))).err().map(|error| error.to_string());
        assert!(gap.is_some_and(|gap| gap.contains("event 1 is missing")));
        std::fs::remove_dir_all(&place).expect("removed");
    }
}
