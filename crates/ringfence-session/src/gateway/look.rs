//! What a snapshot holds, for who is inside: lists, and the bytes of a file.

use super::act::{select, shown};
use super::{LONGEST_DIFFERENCES, MOST_PATHS, Tree};
use crate::cli::text;
use crate::error::{Result, SessionError};
use crate::snapshot::{Entry, Kind, Snapshot, Store};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Whether the command itself could have read this: its own, or everybody's, in directories that are. (Who is root
/// outside may have kept more.)
pub(super) fn readable(
    store: &Store,
    snapshot: &Snapshot,
    path: &Path,
    entry: &Entry,
) -> Result<bool> {
    let may = |entry: &Entry, everybody: u32| {
        entry.uid == rustix::process::geteuid().as_raw() || entry.mode & everybody != 0
    };
    if !may(entry, 0o004) {
        return Ok(false);
    }
    // Nobody else's snapshot has what its maker could not get to.
    if !rustix::process::geteuid().is_root() {
        return Ok(true);
    }
    for above in path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
        if !store.entry(snapshot, above)?.is_some_and(|above| may(&above, 0o001)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// An entry as JSON.
pub(super) fn row(path: &Path, entry: &Entry) -> Value {
    json!({
        "path": shown(path), "kind": entry.kind.word(), "mode": format!("{:04o}", entry.mode),
        "size": entry.size,
    })
}

/// One path of a tree, relative to it, which may be shown.
pub(super) fn one(tree: &Tree, path: &str) -> Result<PathBuf> {
    let mut select = select(tree, &[path.to_owned()])?;
    let path = select.only.pop().unwrap_or_default();
    // As if it were not there: what is excepted has no answer of its own.
    if !path.as_os_str().is_empty() && !select.takes(&path) {
        return Err(SessionError::usage(format!("nothing is kept of {} here", shown(&path))));
    }
    Ok(path)
}

/// What a snapshot holds below a path, or the bytes of a file.
pub(super) fn show(
    store: &Store,
    tree: &Tree,
    snapshot: &Snapshot,
    path: Option<&str>,
) -> Result<Value> {
    let path = one(tree, path.unwrap_or(""))?;
    if !path.as_os_str().is_empty() {
        let found = store.entry(snapshot, &path)?.ok_or_else(|| {
            SessionError::usage(format!("{} is not in snapshot {}", shown(&path), snapshot.id))
        })?;
        if found.kind != Kind::Directory {
            return file(store, snapshot, &path, &found);
        }
    }
    let visible = select(tree, &[])?;
    let all = store.entries(snapshot)?;
    let all: Vec<_> =
        all.iter().filter(|(at, _)| at.starts_with(&path) && visible.takes(at)).collect();
    let rows: Vec<Value> = all.iter().take(MOST_PATHS).map(|(at, entry)| row(at, entry)).collect();
    Ok(json!({"left_out": all.len() - rows.len(), "entries": rows}))
}

/// What it holds, in `text` or `hex`.
fn file(store: &Store, snapshot: &Snapshot, path: &Path, found: &Entry) -> Result<Value> {
    if !readable(store, snapshot, path, found)? {
        return Err(SessionError::usage(format!("{}: its mode hides it", shown(path))));
    }
    let bytes = store.read(found, LONGEST_DIFFERENCES as u64)?;
    let mut answer = json!({"entry": row(path, found)});
    match bytes {
        Some(bytes) => text::put_bytes(&mut answer, bytes),
        None if found.kind == Kind::File => {
            return Err(SessionError::usage(format!(
                "{} is longer than {LONGEST_DIFFERENCES} bytes: revert to the snapshot, and read it",
                shown(path)
            )));
        }
        None => {}
    }
    Ok(answer)
}
