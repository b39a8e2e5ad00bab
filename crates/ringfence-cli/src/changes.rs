//! `run --snapshot`, `snapshot = "auto"` in a profile: the state before the run is kept, and what the run
//! changed is on record.
//!
//! It is made before the command starts, since one that is made beside it holds what the command had
//! changed by then, and takes back nothing. So a start waits for it, and `auto` has bounds.

use crate::error::Fault;
use crate::options::Parsed;
use ringfence_policy::{Policy, Snapshot as Wanted};
use ringfence_sandbox::Plan;
use ringfence_session::ledger::{Event, FileChange};
use ringfence_session::overlay::{Found, Overlay};
use ringfence_session::renamed::pairs;
use ringfence_session::snapshot::{
    Change, Kind, Most, New, Options, Origin, Select, Snapshot, Store, What,
};
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// The state before a run.
pub struct Before {
    store: Store,
    snapshot: Snapshot,
}

/// What `auto` takes at most, in names looked at, and in files and bytes that no snapshot has yet: about
/// a second of a slow machine.
const MOMENT: Most = Most { names: 100_000, files: 10_000, bytes: 256 << 20 };

/// Whether the state before the run is wanted. What happens by itself belongs to the record.
pub fn kept(policy: &Policy, parsed: &Parsed) -> bool {
    match policy.snapshot {
        Some(Wanted::Always) => true,
        Some(Wanted::Auto) => !parsed.has("no-record"),
        Some(Wanted::Never) | None => false,
    }
}

/// Keeps the state of the writable tree that the run starts in, if that is wanted.
///
/// # Errors
/// There is no such tree; it cannot be kept.
pub fn keep(
    policy: &Policy,
    parsed: &Parsed,
    plan: &Plan,
    session: &str,
) -> Result<Option<Before>, Fault> {
    if !kept(policy, parsed) {
        return Ok(None);
    }
    if policy.snapshot == Some(Wanted::Auto) {
        let tree = tree(plan).filter(|_| plan.overlay.is_none());
        let options = Options { most: Some(MOMENT), ..Options::default() };
        let made = tree.map(|tree| make(tree, options, session)).transpose();
        return made.or_else(|why| {
            let why = why.message;
            ringfence_sys::say!("ringfence: the state before this run is not kept: {why}");
            Ok(None)
        });
    }
    if plan.overlay.is_some() {
        return Err(Fault::usage(
            "--snapshot has nothing to keep: with --overlay nothing changes until it is committed; \
             leave one of them out",
        ));
    }
    let tree = tree(plan).ok_or_else(|| {
        Fault::usage(format!(
            "--snapshot has nothing to keep: no rule lets {} be written; -w grants it",
            plan.workdir.display()
        ))
    })?;
    make(tree, Options::default(), session).map(Some)
}

fn make(tree: &Path, options: Options, session: &str) -> Result<Before, Fault> {
    let mut store = Store::open(tree, options).map_err(Fault::of)?;
    let new = New { origin: Origin::Start, session: Some(session.to_owned()), ..New::default() };
    let made = store.create(&new).map_err(Fault::of)?;
    if let Some(first) = made.unreadable.first() {
        let (count, first) = (made.unreadable.len(), tree.join(first));
        ringfence_sys::say!(
            "ringfence: {count} paths cannot be read and are not in the snapshot, as {}",
            first.display()
        );
    }
    if let Some(first) = made.foreign.first() {
        let (count, first) = (made.foreign.len(), tree.join(first));
        ringfence_sys::say!(
            "ringfence: {count} paths are other file systems or devices and not in the snapshot, as {}",
            first.display()
        );
    }
    Ok(Before { store, snapshot: made.snapshot })
}

/// The innermost writable tree around the directory that the run starts in.
fn tree(plan: &Plan) -> Option<&Path> {
    let trees = plan.guarded_trees.iter().map(|tree| tree.tree.as_path());
    let around = trees.filter(|tree| plan.workdir.starts_with(tree));
    around.max_by_key(|tree| tree.components().count())
}

impl Before {
    /// The row of the snapshot itself.
    pub fn row(&self) -> Event {
        let Snapshot { id, name, .. } = &self.snapshot;
        Event::Snapshot { verb: "create", snapshot: *id, name: name.clone(), paths: 0 }
    }

    /// A row for each path that is not as it was before the run: by content, not by times.
    pub fn rows(mut self) -> Vec<Event> {
        let changes = self.store.changes(&self.snapshot, None, &Select::default());
        let top = self.store.workspace().to_owned();
        match changes {
            Ok(changes) => rows(&top, &changes),
            Err(error) => {
                ringfence_sys::say!("ringfence: what the run changed is not on record: {error}");
                Vec::new()
            }
        }
    }
}

fn rows(top: &Path, changes: &[Change]) -> Vec<Event> {
    let file = |change: &Change| {
        let side = if change.what == What::Deleted { &change.old } else { &change.new };
        side.as_ref().filter(|side| side.kind == Kind::File).map(|side| (side.size, side.hash))
    };
    let of = |what: What| {
        let all = changes.iter().enumerate().filter(move |(_, change)| change.what == what);
        all.filter_map(|(at, change)| Some((at, file(change)?.0)))
    };
    let gone: Vec<_> = of(What::Deleted).filter(|(_, size)| *size > 0).collect();
    let new: Vec<_> = of(What::Added).collect();
    let told = Told::of(pairs(&gone, &new, |at| file(&changes[at]).map(|(_, hash)| hash)));
    let row = |(at, change): (usize, &Change)| {
        let (what, from) = told.change(at, change.what)?;
        let from = from.map(|from| top.join(&changes[from].path));
        let size = change.new.as_ref().filter(|new| new.kind == Kind::File).map(|new| new.size);
        Some(Event::File { change: what, path: top.join(&change.path), from, size })
    };
    changes.iter().enumerate().filter_map(row).collect()
}

/// A row for each change that a layer holds.
pub fn apart(overlay: &Overlay, all: &[Found]) -> Vec<Event> {
    let told = Told::of(overlay.renamed(all));
    let row = |(at, found): (usize, &Found)| {
        let (change, from) = told.change(at, found.change.what)?;
        let from = from.map(|from| all[from].path.clone());
        let file = found.change.kind == Kind::File && change != FileChange::Deleted;
        let size = file.then_some(found.change.size);
        Some(Event::File { change, path: found.path.clone(), from, size })
    };
    all.iter().enumerate().filter_map(row).collect()
}

/// How changes are told, by their places: what was renamed is one row.
struct Told {
    /// A new file, and the deleted one that it was.
    renamed: HashMap<usize, usize>,
    moved: HashSet<usize>,
}

impl Told {
    fn of(renamed: HashMap<usize, usize>) -> Told {
        let moved = renamed.values().copied().collect();
        Told { renamed, moved }
    }

    /// What the row of a change says, and where the file was before; none for what another row tells.
    fn change(&self, at: usize, what: What) -> Option<(FileChange, Option<usize>)> {
        let from = self.renamed.get(&at).copied();
        let change = match what {
            _ if from.is_some() => FileChange::Renamed,
            What::Deleted if self.moved.contains(&at) => return None,
            What::Added => FileChange::Created,
            What::Deleted => FileChange::Deleted,
            What::Modified | What::Attributes | What::Kind => FileChange::Modified,
        };
        Some((change, from))
    }
}
