//! `ringfence overlay`: changes that wait, and what becomes of them.

use super::arguments::{Given, Known, parse};
use super::{find, text};
use crate::SessionError;
use crate::overlay::{Done, Found, Kind, Overlay, Select, Trouble, What};
use crate::snapshot::beneath;
use ringfence_policy::shown;
use serde_json::{Value, json};
use similar::TextDiff;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Read;
use std::os::fd::AsFd;
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

fn told(error: SessionError) -> String {
    error.to_string()
}

/// `ringfence overlay diff|commit|discard SESSION [PATH...]`; exit code 1 when something stays.
///
/// # Errors
/// One sentence.
pub fn overlay(arguments: Vec<OsString>) -> Result<u8, String> {
    let given = parse(&KNOWN, arguments)?;
    if given.has("help") || given.words.is_empty() {
        text::print(HELP.as_bytes())?;
        return Ok(if given.has("help") { 0 } else { 125 });
    }
    let verb = given.word(0)?.unwrap_or_default().to_owned();
    if !matches!(verb.as_str(), "diff" | "commit" | "discard") {
        return Err(format!("unknown: overlay {verb}; there are diff, commit, discard"));
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
        eprintln!("ringfence: a commit of these changes was interrupted; commit to finish it");
    }
    for found in &all {
        let out = if given.has("summary") { line(found) } else { content(overlay, found) };
        text::print_contents(out.as_bytes())?;
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
            "empty": done.empty,
        }))?;
    } else {
        tell(&done, &overlay.record().session);
    }
    Ok(u8::from(!done.conflicts.is_empty() || !done.left.is_empty()))
}

/// Says on standard error what a commit did, and what it did not.
pub fn tell(done: &Done, session: &str) {
    if done.resumed {
        eprintln!("ringfence: the interrupted commit was finished");
    }
    for found in &done.conflicts {
        let (path, why) = (text::path(&found.path), reason(found));
        eprintln!("ringfence: conflict: {path}: {why}");
    }
    if !done.conflicts.is_empty() {
        eprintln!(
            "ringfence: nothing was committed; look at them with `ringfence overlay diff {session}`, \
             commit others by naming them, or all with --force"
        );
        return;
    }
    for found in &done.left {
        eprintln!("ringfence: not committed: {}: {}", text::path(&found.path), reason(found));
    }
    for sentence in &done.kept {
        eprintln!("ringfence: {}", text::safe(sentence.as_bytes()));
    }
    eprintln!("ringfence: committed {}", text::count(done.committed.len() as u64, "change"));
    if !done.left.is_empty() {
        eprintln!(
            "ringfence: what was not committed stays in the session: ringfence overlay diff {session}, \
             ringfence overlay discard {session}"
        );
    }
}

/// The changes in full, for the end of a run, with nothing in it that a terminal would obey.
pub fn differences(overlay: &Overlay, all: &[Found]) -> String {
    let all: String = all.iter().map(|found| content(overlay, found)).collect();
    shown::contents(all.as_bytes())
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
        "path": text::path(&found.path), "what": change.what.word(), "kind": change.kind.word(),
        "size": change.size, "trouble": trouble,
    })
}

/// The difference of one path, in the unified form where it is text.
fn content(overlay: &Overlay, found: &Found) -> String {
    let change = &found.change;
    let file = matches!(change.kind, Kind::File | Kind::Symlink);
    if !file || found.change.trouble.is_some() || change.what == What::Kind {
        return line(found);
    }
    let new = match change.what {
        What::Deleted => Some(Vec::new()),
        _ => read(&overlay.layer(found.tree), &change.path),
    };
    let old = match change.what {
        What::Added => Some(Vec::new()),
        _ => read(overlay.root(found.tree), &change.path),
    };
    let (Some(old), Some(new)) = (old, new) else {
        return format!("{}  (too large, or not to be read)\n", line(found).trim_end());
    };
    if old == new {
        return line(found);
    }
    if old.contains(&0) || new.contains(&0) {
        return format!("{}  (not text)\n", line(found).trim_end());
    }
    let path = text::path(&found.path);
    let name = |side: char, there: bool| {
        if there { format!("{side}{path}") } else { "/dev/null".to_owned() }
    };
    let (from, to) =
        (name('a', change.what != What::Added), name('b', change.what != What::Deleted));
    let (old, new) = (String::from_utf8_lossy(&old), String::from_utf8_lossy(&new));
    let diff = TextDiff::configure()
        .timeout(std::time::Duration::from_secs(2))
        .diff_lines(old.as_ref(), new.as_ref());
    diff.unified_diff().header(&from, &to).to_string()
}

/// The bytes of a small file below a directory, or where a link leads. The program may still run
/// and be planting links.
fn read(root: &Path, relative: &[u8]) -> Option<Vec<u8>> {
    let root = beneath::open_root(root).ok()?;
    let (parent, name) = beneath::split(relative);
    let parent = beneath::open_directory(root.as_fd(), parent).ok()?;
    let found = beneath::stat(&parent, name).ok()?;
    if found.file_type == rustix::fs::FileType::Symlink {
        return Some(rustix::fs::readlinkat(&parent, name, Vec::new()).ok()?.into_bytes());
    }
    let file = beneath::open_file(&parent, name).ok()?;
    let regular = beneath::stat(&file, b"").ok()?;
    if regular.file_type != rustix::fs::FileType::RegularFile || regular.stamp.size > LIMIT {
        return None;
    }
    let mut bytes = Vec::new();
    std::fs::File::from(file).take(LIMIT + 1).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
