//! `ringfence overlay`: changes that wait, and what becomes of them.

use super::arguments::{Given, Known, parse};
use super::{find, text, unified};
use crate::SessionError;
use crate::overlay::{Done, Found, Kind, Overlay, Select, Trouble, What};
use crate::snapshot::beneath;
use ringfence_policy::shown;
use ringfence_policy::suggest;
use rustix::fs::FileType;
use rustix::io::Errno;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Larger files are only said to differ.
const LIMIT: u64 = 4 << 20;

/// As many lines of a summary are shown.
const LINES: usize = 40;

const KNOWN: Known = Known { switches: &["json", "force", "summary", "help"], valued: &[] };

const HELP: &str = "\
Usage: ringfence overlay diff SESSION [PATH...] [--summary] [--json]
       ringfence overlay commit SESSION [PATH...] [--force] [--json]
       ringfence overlay discard SESSION [--force]

Changes that `ringfence run --overlay` kept apart. SESSION is an identifier, a name, or `latest`.

  diff      what would change in the real trees, against what they are now
  commit    write the changes to the real trees, or only those at and below PATH
  discard   drop them

  --summary   one line for each path
  --force     commit: replace what the host changed meanwhile; discard: although a commit was
              interrupted
";

const VERBS: [&str; 3] = ["diff", "commit", "discard"];

fn told(error: SessionError) -> String {
    error.to_string()
}

/// `ringfence overlay diff|commit|discard SESSION [PATH...]`; exit code 1 when something stays.
///
/// # Errors
/// One sentence.
pub fn overlay(arguments: Vec<OsString>) -> Result<u8, String> {
    let given = parse(&KNOWN, arguments)?;
    if given.has("help") {
        return text::print(HELP.as_bytes());
    }
    if given.words.is_empty() {
        return Ok(text::misused(HELP));
    }
    let verb = given.word(0)?.unwrap_or_default().to_owned();
    if !VERBS.contains(&verb.as_str()) {
        let meant = suggest::meant(&verb, &VERBS, &format!("; there are {}", VERBS.join(", ")));
        return Err(format!("unknown: overlay {verb}{meant}"));
    }
    let session = given.word(1)?.ok_or_else(|| {
        format!("{verb} of which session? ringfence overlay {verb} SESSION (ringfence ps)")
    })?;
    let session = find(session).map_err(told)?;
    let overlay = Overlay::open(&session).map_err(told)?;
    match verb.as_str() {
        "diff" => diff(&overlay, &given),
        "commit" => commit(&overlay, &given),
        _ if given.words.len() > 2 => Err("discard drops everything; it takes no paths".to_owned()),
        _ => overlay.discard(given.has("force")).map(|()| 0).map_err(told),
    }
}

/// The paths that were given, as absolute ones.
fn paths(given: &Given) -> Result<Vec<PathBuf>, String> {
    let cwd = || std::env::current_dir().map_err(|error| format!("the current directory: {error}"));
    let words = given.words.get(2..).unwrap_or_default();
    words
        .iter()
        .map(|word| {
            let path = Path::new(word);
            let whole = if path.is_absolute() { path.to_owned() } else { cwd()?.join(path) };
            Ok(ringfence_policy::path::normal(&whole))
        })
        .collect()
}

fn diff(overlay: &Overlay, given: &Given) -> Result<u8, String> {
    let paths = paths(given)?;
    let mut all = overlay.changes().map_err(told)?;
    let changed = |path: &&PathBuf| all.iter().any(|found| found.path.starts_with(path));
    if let Some(path) = paths.iter().find(|path| !changed(path)) {
        return Err(format!("{} was not changed", text::path(path)));
    }
    if !paths.is_empty() {
        all.retain(|found| paths.iter().any(|path| found.path.starts_with(path)));
    }
    if given.has("json") {
        let rows: Vec<Value> = all.iter().map(row).collect();
        return text::json(json!({
            "session": overlay.record().session, "changes": rows,
            "interrupted": overlay.interrupted(),
        }));
    }
    if overlay.interrupted() {
        ringfence_sys::say!(
            "ringfence: a commit of these changes was interrupted; commit to finish it"
        );
    }
    for found in &all {
        let summary = given.has("summary");
        let out = if summary { line(found).into_bytes() } else { content(overlay, found) };
        text::print_contents(&out)?;
    }
    Ok(0)
}

fn commit(overlay: &Overlay, given: &Given) -> Result<u8, String> {
    let select = Select { paths: paths(given)?, force: given.has("force") };
    let done = overlay.commit(&select).map_err(told)?;
    if given.has("json") {
        let rows = |all: &[Found]| all.iter().map(row).collect::<Vec<Value>>();
        text::json(json!({
            "session": overlay.record().session, "committed": rows(&done.committed),
            "conflicts": rows(&done.conflicts), "left": rows(&done.left), "kept": done.kept,
            "empty": done.empty, "resumed": done.resumed, "waiting": done.waiting,
        }))?;
    } else {
        tell(&done, &overlay.record().session);
    }
    Ok(u8::from(!done.conflicts.is_empty() || !done.left.is_empty()))
}

/// Says on standard error what a commit did, and what it did not.
pub fn tell(done: &Done, session: &str) {
    if done.resumed {
        ringfence_sys::say!("ringfence: the interrupted commit was finished");
        if done.waiting > 0 {
            let waiting = text::count(done.waiting as u64, "change");
            ringfence_sys::say!(
                "ringfence: {waiting} that it left out still wait: ringfence overlay diff|commit|discard {session}"
            );
        }
        // What it was asked for is done, and nothing else was.
        if done.committed.is_empty() && done.conflicts.is_empty() && done.left.is_empty() {
            done.kept.iter().for_each(|sentence| {
                ringfence_sys::say!("ringfence: {}", text::safe(sentence.as_bytes()))
            });
            return;
        }
    }
    for found in &done.conflicts {
        let (path, why) = (text::path(&found.path), reason(found));
        ringfence_sys::say!("ringfence: conflict: {path}: {why}");
    }
    if !done.conflicts.is_empty() {
        ringfence_sys::say!(
            "ringfence: nothing was committed; look at them with `ringfence overlay diff {session}`, \
             commit others by naming them, or all with --force"
        );
        return;
    }
    for found in &done.left {
        ringfence_sys::say!(
            "ringfence: not committed: {}: {}",
            text::path(&found.path),
            reason(found)
        );
    }
    for sentence in &done.kept {
        ringfence_sys::say!("ringfence: {}", text::safe(sentence.as_bytes()));
    }
    ringfence_sys::say!(
        "ringfence: committed {}",
        text::count(done.committed.len() as u64, "change")
    );
    if !done.left.is_empty() {
        ringfence_sys::say!(
            "ringfence: what was not committed stays in the session: ringfence overlay diff {session}, \
             ringfence overlay discard {session}"
        );
    }
}

/// The changes in full, for the end of a run, with nothing in it that a terminal would obey.
pub fn differences(overlay: &Overlay, all: &[Found]) -> String {
    let all: Vec<u8> = all.iter().flat_map(|found| content(overlay, found)).collect();
    shown::contents(&all)
}

/// The changes as lines, for a summary at the end of a run.
pub fn summary(all: &[Found]) -> String {
    let mut out: String = all.iter().take(LINES).map(line).collect();
    if all.len() > LINES {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "… and {} more", all.len() - LINES);
    }
    out
}

fn reason(found: &Found) -> String {
    match &found.change.trouble {
        None => String::new(),
        Some(Trouble::Conflict(why) | Trouble::Left(why)) => text::safe(why.as_bytes()),
    }
}

fn line(found: &Found) -> String {
    let change = &found.change;
    let sign = match change.what {
        What::Added => 'A',
        What::Deleted => 'D',
        What::Modified => 'M',
        What::Attributes => 'P',
        What::Kind => 'T',
    };
    let slash = if change.kind == Kind::Directory { "/" } else { "" };
    let note = match &change.trouble {
        None => String::new(),
        Some(Trouble::Conflict(_)) => format!("  (conflict: {})", reason(found)),
        Some(Trouble::Left(_)) => format!("  (not committed: {})", reason(found)),
    };
    format!("{sign} {}{slash}{note}\n", text::path(&found.path))
}

fn row(found: &Found) -> Value {
    let change = &found.change;
    let trouble = match &change.trouble {
        None => Value::Null,
        Some(Trouble::Conflict(why)) => json!({"kind": "conflict", "why": why}),
        Some(Trouble::Left(why)) => json!({"kind": "left", "why": why}),
    };
    json!({
        "path": text::json_path(&found.path), "what": change.what.word(), "kind": change.kind.word(),
        "size": change.size, "trouble": trouble,
    })
}

/// One side of a difference.
enum Side {
    Absent,
    Bytes(Vec<u8>),
    /// Too large, or not to be read.
    Unknown,
}

/// The difference of one path, in the unified form where it is text. What is not committed is shown behind bars, for
/// people: patch(1) passes over it.
fn content(overlay: &Overlay, found: &Found) -> Vec<u8> {
    let change = &found.change;
    let said = |why: &str| format!("{}{why}\n", line(found).trim_end()).into_bytes();
    if !matches!(change.kind, Kind::File | Kind::Symlink) || change.what == What::Kind {
        return said("");
    }
    let new = match change.what {
        What::Deleted => Side::Absent,
        _ => read(&overlay.layer(found.tree), &change.path),
    };
    let old = match (&change.trouble, change.what) {
        (None, What::Added) => Side::Absent,
        _ => read(overlay.root(found.tree), &change.path),
    };
    let path = found.path.as_os_str().as_bytes();
    let side = |side: &[u8], found: Side| match found {
        Side::Absent => Some((b"/dev/null".to_vec(), Vec::new())),
        Side::Bytes(bytes) => Some(([side, path].concat(), bytes)),
        Side::Unknown => None,
    };
    let (Some((from, old)), Some((to, new))) = (side(b"a", old), side(b"b", new)) else {
        return said("  (too large, or not to be read)");
    };
    if old == new {
        return said("");
    }
    if old.contains(&0) || new.contains(&0) {
        return said("  (not text)");
    }
    let difference = unified::difference((&from, &old), (&to, &new));
    if change.trouble.is_none() {
        return difference;
    }
    let mut out = said("");
    for line in difference.split_inclusive(|&byte| byte == b'\n') {
        out.extend_from_slice(b"| ");
        out.extend_from_slice(line);
    }
    out
}

/// The bytes of a small file below a directory, or where a link leads. The program may still run
/// and be planting links.
fn read(root: &Path, relative: &[u8]) -> Side {
    read_small(root, relative).unwrap_or_else(|error| match error {
        Errno::NOENT | Errno::NOTDIR => Side::Absent,
        _ => Side::Unknown,
    })
}

fn read_small(root: &Path, relative: &[u8]) -> Result<Side, Errno> {
    let root = beneath::open_root(root)?;
    let (parent, name) = beneath::split(relative);
    let parent = beneath::open_directory(root.as_fd(), parent)?;
    let found = beneath::stat(&parent, name)?;
    if found.file_type == FileType::Symlink {
        return Ok(Side::Bytes(rustix::fs::readlinkat(&parent, name, Vec::new())?.into_bytes()));
    }
    let file = beneath::open_file(&parent, name)?;
    let regular = beneath::stat(&file, b"")?;
    if regular.file_type != FileType::RegularFile || regular.stamp.size > LIMIT {
        return Ok(Side::Unknown);
    }
    let mut bytes = Vec::new();
    let read = std::fs::File::from(file).take(LIMIT + 1).read_to_end(&mut bytes);
    Ok(read.map_or(Side::Unknown, |_| Side::Bytes(bytes)))
}
