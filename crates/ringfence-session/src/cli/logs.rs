//! `ringfence logs`: the events of a session, one line each.

use super::arguments::{Known, parse};
use super::{sessions, text};
use crate::ledger::{self, Reader, Row};
use crate::{Result as Told, SessionError};
use ringfence_policy::shown;
use ringfence_policy::suggest;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;

const KINDS: [&str; 10] = [
    "exec",
    "network",
    "dns",
    "http",
    "file",
    "decision",
    "tool_call",
    "snapshot",
    "substitution",
    "model_call",
];

/// Runs `ringfence logs SESSION [--follow] [--denied] [--kind KIND[,KIND]] [--json]`.
///
/// With `--follow --json` each line is one document; else the whole is one.
///
/// # Errors
/// One sentence for the user; the exit code is then 125.
pub fn logs(args: Vec<OsString>) -> Result<u8, String> {
    let told = |error: SessionError| error.to_string();
    let known = Known { switches: &["json", "follow", "denied"], valued: &["kind"] };
    let given = parse(&known, args)?;
    given.at_most(1, "they are of one session: ringfence logs [SESSION]")?;
    let word = given.word(0)?.unwrap_or("latest");
    let kinds: Vec<&str> = given.text("kind")?.map_or(Vec::new(), |all| all.split(',').collect());
    if let Some(kind) = kinds.iter().find(|kind| !KINDS.contains(kind)) {
        let meant = suggest::meant(kind, &KINDS, &format!("; there are {}", KINDS.join(", ")));
        return Err(format!("unknown kind {kind}{meant}"));
    }
    let directory = sessions::find(word).map_err(told)?;
    let (denied, as_json) = (given.has("denied"), given.has("json"));
    if given.has("follow") {
        return follow(&directory, &kinds, denied, as_json).map_err(told);
    }
    let reader = Reader::open(&directory).map_err(told)?;
    let mut out = text::Out::default();
    // A record can be larger than what there is of memory: none of it is held for longer than a row.
    let each = |out: &mut text::Out, shown: &mut dyn FnMut(&Row) -> String| {
        reader.each(0, &kinds, denied, |row| out.put(&shown(&row)).map_err(SessionError::usage))
    };
    if as_json {
        let session = reader.session().map_err(told)?.json();
        let mut before = "\n";
        out.put(&format!(
            "{{\n  \"schema\": 1,\n  \"session\": {},\n  \"events\": [",
            text::indented(&session, 1)
        ))?;
        each(&mut out, &mut |row| {
            let row = text::indented(&row.json(), 2);
            format!("{}    {row}", std::mem::replace(&mut before, ",\n"))
        })
        .map_err(told)?;
        let last = if before == "\n" { "]\n}\n" } else { "\n  ]\n}\n" };
        out.put(last)?;
    } else {
        each(&mut out, &mut line).map_err(told)?;
        out.put(&lost(&reader).map_err(told)?)?;
    }
    out.end()
}

/// The kernel tells of a file that is closed before it lets go of the lock that came with it, by which a session
/// lives: after that it is looked at again, for the first and the last time so many nanoseconds later.
const FIRST_LOOK: i64 = 10_000_000;
const LAST_LOOK: i64 = 640_000_000;

/// The kernel tells when the journal was written, and when its launcher closed it, however that
/// came.
fn follow(directory: &Path, kinds: &[&str], denied: bool, as_json: bool) -> Told<u8> {
    let failed = |error: Errno| SessionError::call("inotify", directory, error);
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC).map_err(failed)?;
    let events = inotify::WatchFlags::MODIFY
        | inotify::WatchFlags::CLOSE_WRITE
        | inotify::WatchFlags::ATTRIB
        | inotify::WatchFlags::DELETE_SELF;
    inotify::add_watch(&watch, directory.join(ledger::JOURNAL), events).map_err(failed)?;
    let reader = Reader::open(directory)?;
    let mut last = 0;
    // Processes whose ends are still to be told.
    let mut open = BTreeSet::new();
    let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
    let mut again = None;
    loop {
        // First whether it lives, then what there is: else the last rows could be missed.
        let live = ledger::live(directory);
        let rows = reader.events(last, kinds, denied)?;
        let ended = reader.ended(&open)?;
        for row in rows.iter().chain(&ended) {
            last = last.max(row.event);
            let line = match (as_json, open.remove(&row.event)) {
                // The same row once more, whole by now.
                (true, _) => shown::json(&format!("{}\n", row.json())).into_owned(),
                (false, true) => end(row),
                (false, false) => line(row),
            };
            if row.kind == "exec" && row.number("duration").is_none() {
                open.insert(row.event);
            }
            text::print(line.as_bytes()).map_err(SessionError::usage)?;
        }
        if !live {
            if !as_json {
                text::print(lost(&reader)?.as_bytes()).map_err(SessionError::usage)?;
            }
            return Ok(0);
        }
        // Waits for one event, and takes all that came with it.
        let limit = again.map(|nanoseconds| Timespec { tv_sec: 0, tv_nsec: nanoseconds });
        match poll(&mut [PollFd::new(&watch, PollFlags::IN)], limit.as_ref()) {
            Ok(0) => {
                again = again.map(|last| last * 2).filter(|next| *next <= LAST_LOOK);
                continue;
            }
            Err(Errno::INTR) => continue,
            ready => ready.map_err(failed)?,
        };
        let mut arrived = inotify::Reader::new(&watch, &mut buffer);
        loop {
            let event = arrived.next().map_err(failed)?.events();
            // One of those that were too many for the kernel's queue may have been that.
            let closed = inotify::ReadFlags::CLOSE_WRITE | inotify::ReadFlags::QUEUE_OVERFLOW;
            again = event.intersects(closed).then_some(FIRST_LOOK).or(again);
            if arrived.is_buffer_empty() {
                break;
            }
        }
    }
}

/// A last line where there are events that have none.
fn lost(reader: &Reader) -> Told<String> {
    let session = reader.session()?;
    Ok(match session.lost {
        0 => String::new(),
        lost => {
            let time = text::time(session.ended.unwrap_or_default() / 1000);
            format!("{time} {:<12} {}\n", "lost", text::count(lost, "event"))
        }
    })
}

/// One line for people about the end of a process, whose beginning was told before.
fn end(row: &Row) -> String {
    let duration = row.number("duration").unwrap_or_default();
    let time = text::time((row.at + duration) / 1000);
    let pid = row.number("pid").map_or(String::new(), |pid| format!(" [{pid}]"));
    let argv = row.fields.get("argv").and_then(|argv| argv.as_array());
    let name = argv.and_then(|argv| argv.first()).and_then(|name| name.as_str());
    let name = text::safe(name.unwrap_or_default().as_bytes());
    let how = match (row.number("code"), row.number("signal")) {
        (Some(code), _) => format!("{code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "ended".to_owned(),
    };
    format!("{time} {:<12} {name} -> {how}{pid}\n", "exit")
}

/// One line for people.
pub(super) fn line(row: &Row) -> String {
    let time = text::time(row.at / 1000);
    let pid = row.number("pid").map_or(String::new(), |pid| format!(" [{pid}]"));
    let verdict = if row.denied() { "DENIED " } else { "" };
    let summary = text::safe(summary(row).as_bytes());
    format!("{time} {:<12} {verdict}{summary}{pid}\n", row.kind)
}

/// With whom a connection was.
pub(super) fn place(row: &Row) -> String {
    let host = if row.text("host").is_empty() { row.text("address") } else { row.text("host") };
    let who = match (row.number("peers"), row.number("port")) {
        (Some(peers), _) => format!("{peers} more peers"),
        (None, Some(port)) if host.contains(':') && !host.starts_with('[') => {
            format!("[{host}]:{port}")
        }
        (None, Some(port)) => format!("{host}:{port}"),
        (None, None) => host.to_owned(),
    };
    match row.number("published") {
        Some(port) => format!("from {who} to port {port}"),
        None => who,
    }
}

/// Why something was refused, or failed although it was allowed.
fn why(row: &Row) -> String {
    match (row.text("why"), row.denied()) {
        ("", _) => String::new(),
        (why, true) => format!(": {why}"),
        (why, false) => format!(", failed: {why}"),
    }
}

/// What happened, without when and who.
pub(super) fn summary(row: &Row) -> String {
    let size = |name: &str| text::size(row.number(name).unwrap_or_default() as u64);
    let or_dash = |name: &str| match row.fields.get(name) {
        None | Some(serde_json::Value::Null) => "-".to_owned(),
        Some(value) => value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned),
    };
    match row.kind {
        "exec" => {
            let argv = row.fields.get("argv").and_then(|argv| argv.as_array());
            let words = argv.into_iter().flatten().filter_map(|word| word.as_str());
            let argv = words.collect::<Vec<_>>().join(" ");
            match (row.number("code"), row.number("signal")) {
                (Some(0), _) | (None, None) => argv,
                (Some(code), _) => format!("{argv} -> {code}"),
                (None, Some(signal)) => format!("{argv} -> signal {signal}"),
            }
        }
        "network" => {
            let moved = match (row.number("sent"), row.number("received"), row.text("why")) {
                // What is refused or failed at once moves nothing.
                (Some(0), Some(0), why) if !why.is_empty() => String::new(),
                _ => format!(" {} out, {} in", size("sent"), size("received")),
            };
            format!("{} {}{moved}{}", row.text("protocol"), place(row), why(row))
        }
        "dns" => format!("{} {} -> {}", row.text("record"), row.text("name"), or_dash("answer")),
        "http" => format!(
            "{} {}{} -> {}, {}{}",
            row.text("method"),
            row.text("host"),
            row.text("path"),
            or_dash("status"),
            size("received"),
            why(row)
        ),
        "file" => match row.text("was") {
            "" => format!("{} {}", row.text("change"), row.text("path")),
            was => format!("{} {was} -> {}", row.text("change"), row.text("path")),
        },
        "decision" => format!(
            "{} {} by {} ({})",
            row.text("act"),
            row.text("object"),
            row.text("rule"),
            row.text("layer")
        ),
        "tool_call" => match row.text("error") {
            "" => format!("{} {}", row.text("tool"), row.text("arguments")),
            error => format!("{} {}: {error}", row.text("tool"), row.text("arguments")),
        },
        "snapshot" => format!("{} {} {}", row.text("verb"), or_dash("snapshot"), or_dash("name")),
        "substitution" => {
            format!("{} for {} from {}", row.text("header"), row.text("host"), row.text("source"))
        }
        _ => format!(
            "{} {}: {} tokens in, {} out",
            row.text("provider"),
            row.text("model"),
            or_dash("input"),
            or_dash("output")
        ),
    }
}
