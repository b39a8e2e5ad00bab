//! Differences as text, in the unified form.

use super::{text, unified};
use crate::error::Result;
use crate::snapshot::{Change, Kind, Snapshot, Store};
use std::os::unix::ffi::OsStrExt;

/// Larger files are only said to differ.
const LIMIT: u64 = 4 << 20;

/// The differences of one path, ready to print.
pub(crate) fn of(store: &Store, change: &Change, to: Option<&Snapshot>) -> Result<Vec<u8>> {
    let path = text::path(&change.path);
    let (old, new) = (&change.old, &change.new);
    let bytes =
        [old, new].into_iter().flatten().all(|e| matches!(e.kind, Kind::File | Kind::Symlink));
    if !bytes {
        return Ok(format!("{} {path}\n", change.told().word()).into_bytes());
    }
    let before = match old {
        Some(old) => store.read(old, LIMIT)?,
        None => Some(Vec::new()),
    };
    let after = match (new, to) {
        (Some(new), Some(_)) => store.read(new, LIMIT)?,
        (Some(_), None) => store.read_current(&change.path, LIMIT)?,
        (None, _) => Some(Vec::new()),
    };
    let (Some(before), Some(after)) = (before, after) else {
        return Ok(format!("{} {path}: too large to show\n", change.told().word()).into_bytes());
    };
    if before.contains(&0) || after.contains(&0) {
        return Ok(format!("{} {path}: not text\n", change.told().word()).into_bytes());
    }
    let mode = match (old, new) {
        (Some(old), Some(new)) if old.mode != new.mode => {
            format!("mode {:o} -> {:o} {path}\n", old.mode, new.mode)
        }
        _ => String::new(),
    };
    if before == after {
        let line = || format!("{} {path}\n", change.told().word());
        return Ok(if mode.is_empty() { line() } else { mode }.into_bytes());
    }
    let name = |side: &[u8], there: bool| match there {
        true => [side, change.path.as_os_str().as_bytes()].concat(),
        false => b"/dev/null".to_vec(),
    };
    let (from, to) = (name(b"a/", old.is_some()), name(b"b/", new.is_some()));
    let mut shown = mode.into_bytes();
    shown.append(&mut unified::difference((&from, &before), (&to, &after)));
    Ok(shown)
}
