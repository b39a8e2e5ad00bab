//! `ringfence ps`, `show`, `rm` and `gc`: sessions as a whole.

use super::arguments::{Given, Known, parse};
use super::text;
use crate::ledger::{JOURNAL, Reader, Session};
use crate::{Result as Told, SessionError, ledger, overlay, place};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Without another word, `gc` keeps the ended sessions of this long.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);

/// And a directory in which a launcher that was killed had written nothing yet.
const BEGUN: Duration = Duration::from_secs(60);

fn told(error: SessionError) -> String {
    error.to_string()
}

/// The directories of all sessions.
fn directories() -> Told<Vec<PathBuf>> {
    let sessions = place::sessions()?;
    let found = std::fs::read_dir(&sessions).into_iter().flatten().flatten();
    let mut all: Vec<PathBuf> = found
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter(|entry| entry.file_name() != place::NAMES)
        .map(|entry| entry.path())
        .collect();
    all.sort();
    Ok(all)
}

/// All sessions that can be read, oldest first, with their directories.
///
/// # Errors
/// There is no home directory.
pub fn sessions() -> Told<Vec<(PathBuf, Session)>> {
    let read = |directory: PathBuf| {
        let session = ledger::session(&directory).ok()?;
        Some((directory, session))
    };
    let mut all: Vec<(PathBuf, Session)> = directories()?.into_iter().filter_map(read).collect();
    all.sort_by_key(|(_, session)| session.started);
    Ok(all)
}

/// The directory of the session that a word names: an identifier, a name (the newest that has
/// it), the beginning of an identifier, or `latest`.
///
/// # Errors
/// There is none, or several begin so.
pub fn find(word: &str) -> Told<PathBuf> {
    if word.is_empty() {
        return Err(SessionError::usage("the name of a session is empty"));
    }
    let place = place::sessions()?;
    let exact = place.join(word);
    if ledger::check_id(word).is_ok() && exact.is_dir() {
        return Ok(exact);
    }
    if place::check_name(word).is_ok()
        && let Ok(target) = std::fs::read_link(place.join(place::NAMES).join(word))
        && let Some(id) = target.file_name()
        && place.join(id).is_dir()
    {
        return Ok(place.join(id));
    }
    let all = sessions()?;
    let called = |session: &Session| word == "latest" || session.name.as_deref() == Some(word);
    if let Some((directory, _)) = all.iter().rev().find(|(_, session)| called(session)) {
        return Ok(directory.clone());
    }
    let begin: Vec<&(PathBuf, Session)> =
        all.iter().filter(|(_, session)| session.id.starts_with(word)).collect();
    match begin[..] {
        [(directory, _)] => Ok(directory.clone()),
        [] => Err(SessionError::usage(unknown(word, &all))),
        _ => Err(SessionError::usage(format!(
            "{} sessions begin with {}; give more of it",
            begin.len(),
            text::safe(word.as_bytes())
        ))),
    }
}

/// Each word names a session: else nothing is done to any of them.
pub(super) fn check(given: &Given) -> Result<(), String> {
    for at in 0..given.words.len() {
        find(given.word(at)?.unwrap_or_default()).map_err(told)?;
    }
    Ok(())
}

/// There is no such session, but maybe one that is called much like it.
fn unknown(word: &str, all: &[(PathBuf, Session)]) -> String {
    let known = all.iter().flat_map(|(_, session)| {
        [Some(session.id.as_str()), session.name.as_deref()].into_iter().flatten()
    });
    let near = known
        .map(|known| (strsim::damerau_levenshtein(word, known), known))
        .min()
        .filter(|(distance, known)| *distance <= 2.max(known.len() / 3));
    let meant = match near {
        Some((_, near)) => format!("did you mean {}?", text::safe(near.as_bytes())),
        None => "`ringfence ps --all` lists them".to_owned(),
    };
    format!("there is no session {}; {meant}", text::safe(word.as_bytes()))
}

/// Runs `ringfence ps [--all] [--json]`.
///
/// # Errors
/// One sentence for the user; the exit code is then 125.
pub fn ps(args: Vec<OsString>) -> Result<u8, String> {
    let given = parse(&Known { switches: &["all", "json"], valued: &[] }, args)?;
    given.at_most(0, "ringfence ps [--all] [--json]; one session: ringfence show SESSION")?;
    let all: Vec<Session> = sessions().map_err(told)?.into_iter().map(|(_, s)| s).collect();
    let shown = all.iter().filter(|session| given.has("all") || session.live);
    if given.has("json") {
        let rows: Vec<Value> = shown.map(Session::json).collect();
        return text::json(json!({"sessions": rows}));
    }
    let mut out = String::new();
    for session in shown.rev() {
        let argv = text::safe(session.argv.join(" ").as_bytes());
        let name = text::safe(session.name.as_deref().unwrap_or("-").as_bytes());
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "{:<16} {name:<12} {:<8} {:<10} {}  {argv}",
            session.id,
            session.status(),
            session.tier,
            text::time(session.started / 1000)
        );
    }
    text::print(out.as_bytes())
}

/// Runs `ringfence show SESSION [--json]`.
///
/// # Errors
/// One sentence for the user; the exit code is then 125.
pub fn show(args: Vec<OsString>) -> Result<u8, String> {
    let given = parse(&Known { switches: &["json"], valued: &[] }, args)?;
    given.at_most(1, "it shows one session: ringfence show SESSION")?;
    let word = given.word(0)?.ok_or("show which session? ringfence show SESSION")?;
    let directory = find(word).map_err(told)?;
    let reader = Reader::open(&directory).map_err(told)?;
    let session = reader.session().map_err(told)?;
    let mut counts: Vec<(&str, u64, u64)> = Vec::new();
    let count = |event: ledger::Row| {
        let at = counts.iter().position(|(kind, _, _)| *kind == event.kind).unwrap_or_else(|| {
            counts.push((event.kind, 0, 0));
            counts.len() - 1
        });
        counts[at].1 += 1;
        counts[at].2 += u64::from(event.denied());
        Ok(true)
    };
    reader.each(0, &[], false, count).map_err(told)?;
    if given.has("json") {
        let counts: serde_json::Map<String, Value> = counts
            .iter()
            .map(|(kind, all, denied)| {
                ((*kind).to_owned(), json!({"events": all, "denied": denied}))
            })
            .collect();
        return text::json(json!({"session": session.json(), "events": counts}));
    }
    let mut out = format!(
        "session   {}\nname      {}\ncommand   {}\nin        {}\ntier      {}\nstarted   {}\nstatus    {}",
        session.id,
        text::safe(session.name.as_deref().unwrap_or("-").as_bytes()),
        text::safe(session.argv.join(" ").as_bytes()),
        text::safe(session.cwd.as_bytes()),
        session.tier,
        text::time(session.started / 1000),
        session.status(),
    );
    // Writing to a String cannot fail.
    let _ = match (session.code, session.signal) {
        (Some(code), _) => writeln!(out, " ({code})"),
        (None, Some(signal)) => writeln!(out, " (signal {signal})"),
        (None, None) => writeln!(out),
    };
    if session.lost > 0 {
        let _ = writeln!(out, "lost      {}", text::count(session.lost, "event"));
    }
    for (kind, all, denied) in counts {
        let _ = writeln!(out, "{kind:<12} {all:>8}, {denied} denied");
    }
    text::print(out.as_bytes())
}

/// Runs `ringfence rm [--force] SESSION...`: removes the record of ended sessions. One whose
/// writes wait to be committed is left, unless forced.
///
/// # Errors
/// One sentence for the user; the exit code is then 125.
pub fn rm(args: Vec<OsString>) -> Result<u8, String> {
    let given = parse(&Known { switches: &["force"], valued: &[] }, args)?;
    if given.words.is_empty() {
        return Err("remove which session? ringfence rm SESSION...".to_owned());
    }
    check(&given)?;
    for at in 0..given.words.len() {
        let word = given.word(at)?.unwrap_or_default();
        let directory = find(word).map_err(told)?;
        if overlay::kept(&directory) && !given.has("force") {
            return Err(format!(
                "what session {word} wrote waits to be committed: ringfence overlay diff {word}, \
                 then commit or discard; rm --force drops it"
            ));
        }
        if !remove(&directory).map_err(told)? {
            return Err(format!("session {word} is running; end it first: ringfence kill {word}"));
        }
    }
    Ok(0)
}

/// Runs `ringfence gc [--all] [--json]`: removes the records of sessions that ended more than
/// 30 days ago, or with `--all` of all that ended, and what was begun and never written.
///
/// # Errors
/// One sentence for the user; the exit code is then 125.
pub fn gc(args: Vec<OsString>) -> Result<u8, String> {
    let given = parse(&Known { switches: &["all", "json"], valued: &[] }, args)?;
    given.at_most(0, "ringfence gc [--all] [--json]; one session: ringfence rm SESSION")?;
    let mut removed = Vec::new();
    for directory in directories().map_err(told)? {
        let changed = std::fs::metadata(directory.join(JOURNAL))
            .or_else(|_| std::fs::metadata(&directory))
            .and_then(|found| found.modified());
        let age = changed.ok().and_then(|at| SystemTime::now().duration_since(at).ok());
        let kept = if is_empty(&directory) { BEGUN } else { KEPT };
        let old = given.has("all") || age.is_some_and(|age| age > kept);
        let made = || overlay::unfinished(&directory) && overlay::in_use(&directory);
        let waits = overlay::kept(&directory) || made();
        if old && !waits && remove(&directory).map_err(told)? {
            removed.push(directory.file_name().unwrap_or_default().to_string_lossy().into_owned());
        } else if !ledger::live(&directory) {
            // A launcher that was killed could not.
            ledger::remove_sockets(&directory);
        }
    }
    if given.has("json") {
        return text::json(json!({"removed": removed}));
    }
    let count = text::count(removed.len() as u64, "session");
    text::print(format!("{count} removed\n").as_bytes())
}

/// Nothing was recorded in it yet, nor is something to be committed.
fn is_empty(directory: &Path) -> bool {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let unwritten = ledger::begun(directory);
    let begun = |name: OsString| {
        name == ".journal"
            || name == "overlay" && overlay::unfinished(directory)
            // The sockets are made before the first line.
            || unwritten && (name == JOURNAL || ledger::SOCKETS.iter().any(|socket| name == *socket))
    };
    entries.map(|entry| entry.file_name()).all(begun)
}

/// Removes a session's directory, unless it lives.
fn remove(directory: &Path) -> Told<bool> {
    if ledger::live(directory) {
        return Ok(false);
    }
    overlay::remove(directory)?;
    // Links are removed, not followed.
    std::fs::remove_dir_all(directory)
        .map_err(|error| SessionError::call("rmdir", directory, error))?;
    place::forget_names(directory);
    Ok(true)
}
