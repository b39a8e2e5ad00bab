//! Differences as text, in the unified form.

use super::text;
use crate::error::Result;
use crate::snapshot::{Change, Kind, Snapshot, Store};
use similar::TextDiff;

/// Larger files are only said to differ.
const LIMIT: u64 = 4 << 20;

/// The differences of one path, ready to print.
pub(crate) fn of(store: &Store, change: &Change, to: Option<&Snapshot>) -> Result<String> {
    let path = text::path(&change.path);
    let (old, new) = (&change.old, &change.new);
    let bytes =
        [old, new].into_iter().flatten().all(|e| matches!(e.kind, Kind::File | Kind::Symlink));
    if !bytes {
        return Ok(format!("{} {path}\n", change.what.word()));
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
        return Ok(format!("{} {path}: too large to show\n", change.what.word()));
    };
    if before.contains(&0) || after.contains(&0) {
        return Ok(format!("{} {path}: not text\n", change.what.word()));
    }
    let mode = match (old, new) {
        (Some(old), Some(new)) if old.mode != new.mode => {
            format!("mode {:o} -> {:o} {path}\n", old.mode, new.mode)
        }
        _ => String::new(),
    };
    if before == after {
        return Ok(if mode.is_empty() { format!("{} {path}\n", change.what.word()) } else { mode });
    }
    let (before, after) = (String::from_utf8_lossy(&before), String::from_utf8_lossy(&after));
    let name = |side: char, there: bool| {
        if there { format!("{side}/{path}") } else { "/dev/null".to_owned() }
    };
    let diff = TextDiff::configure()
        .timeout(std::time::Duration::from_secs(2))
        .diff_lines(before.as_ref(), after.as_ref());
    let (from, to) = (name('a', old.is_some()), name('b', new.is_some()));
    Ok(format!("{mode}{}", diff.unified_diff().header(&from, &to)))
}
