//! One request: what is asked for, whether it may be, and the answer.

use super::look;
use super::{
    LONGEST_DIFFERENCES, MOST_GROWTH, MOST_PATHS, MOST_SNAPSHOTS, Peer, Scope, Told, Tree,
};
use crate::cli::{diff, unified};
use crate::error::{Result, SessionError};
use crate::ledger::Event;
use crate::snapshot::{
    Change, Ignored, New, Options, Origin, Reverted, Select, Snapshot, Store, Version, check_name,
};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// How often a revert is begun again that somebody wrote into.
const TRIES: usize = 3;

/// A request, one line of JSON.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Request {
    /// Makes a snapshot.
    Create {
        name: Option<String>,
        #[serde(default)]
        exclude_ignored: bool,
        tree: Option<String>,
    },
    /// All of the session's.
    List { tree: Option<String> },
    /// What differs from the tree as it is, or from a later snapshot.
    Changes {
        snapshot: Option<String>,
        to: Option<String>,
        #[serde(default)]
        paths: Vec<String>,
        tree: Option<String>,
    },
    /// The same, line by line.
    Diff {
        snapshot: Option<String>,
        to: Option<String>,
        #[serde(default)]
        paths: Vec<String>,
        tree: Option<String>,
    },
    /// What is in a snapshot; with the path of a file, its bytes.
    Show { snapshot: Option<String>, path: Option<String>, tree: Option<String> },
    /// What happened to a path from one of the session's snapshots to the next.
    History { path: String, tree: Option<String> },
    /// Makes the tree, or paths in it, what they were.
    Revert {
        snapshot: Option<String>,
        #[serde(default)]
        paths: Vec<String>,
        tree: Option<String>,
    },
    /// Forgets a snapshot.
    Delete { snapshot: String, tree: Option<String> },
    /// The trees there are.
    Trees {},
}

/// Does what is asked for: for whoever knocks inside, and for the tools that act in a session's place.
pub struct Actor {
    session: String,
    trees: Vec<Arc<Tree>>,
    told: Told,
    /// Opened when first asked for.
    stores: HashMap<PathBuf, Store>,
}

impl std::fmt::Debug for Actor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Actor").field("session", &self.session).finish_non_exhaustive()
    }
}

impl Actor {
    /// One that does what this session may have done, and tells of it.
    pub fn new(scope: Scope, told: Told) -> Actor {
        let trees = scope.trees.into_iter().map(Arc::new).collect();
        Actor { session: scope.session, trees, told, stores: HashMap::new() }
    }

    /// The answer to a line, of a process by its number on the host.
    pub fn answer(&mut self, line: &[u8], by: &Peer) -> Value {
        let done = match serde_json::from_slice::<Request>(line) {
            Ok(request) => self.act(request, by),
            Err(error) => Err(SessionError::usage(format!("no request of the gateway: {error}"))),
        };
        match done {
            Ok(mut answer) => {
                answer["ok"] = true.into();
                answer
            }
            Err(error) => json!({"ok": false, "error": error.to_string()}),
        }
    }

    fn act(&mut self, request: Request, by: &Peer) -> Result<Value> {
        match request {
            Request::Trees {} => {
                let trees = self.trees.iter().map(|tree| shown(&tree.path));
                Ok(json!({"trees": trees.collect::<Vec<_>>()}))
            }
            Request::List { tree } => {
                let tree = self.tree(tree.as_deref())?;
                if !Store::exists(&tree.path)? {
                    return Ok(json!({"snapshots": []}));
                }
                let own: Vec<Value> = self.own(&tree)?.iter().map(|s| self.row(s)).collect();
                Ok(json!({ "snapshots": own }))
            }
            Request::Create { name, exclude_ignored, tree } => {
                let tree = self.tree(tree.as_deref())?;
                self.create(&tree, name, exclude_ignored, by)
            }
            Request::Changes { snapshot, to, paths, tree } => {
                self.changes(tree.as_deref(), snapshot.as_deref(), to.as_deref(), &paths, false)
            }
            Request::Diff { snapshot, to, paths, tree } => {
                self.changes(tree.as_deref(), snapshot.as_deref(), to.as_deref(), &paths, true)
            }
            Request::Show { snapshot, path, tree } => {
                let tree = self.tree(tree.as_deref())?;
                let found = self.find(&tree, snapshot.as_deref())?;
                let mut answer = look::show(self.store(&tree)?, &tree, &found, path.as_deref())?;
                answer["snapshot"] = self.row(&found);
                Ok(answer)
            }
            Request::History { path, tree } => {
                let tree = self.tree(tree.as_deref())?;
                let own = if Store::exists(&tree.path)? { self.own(&tree)? } else { Vec::new() };
                let path = look::one(&tree, &path)?;
                let versions = self.store(&tree)?.history_among(own, &path)?;
                let row = |version: &Version| {
                    let entry = version.entry.as_ref().map(|entry| look::row(&path, entry));
                    json!({"snapshot": self.row(&version.snapshot), "what": version.what.word(), "entry": entry})
                };
                let rows: Vec<Value> = versions.iter().map(row).collect();
                Ok(json!({"path": shown(&path), "versions": rows}))
            }
            Request::Revert { snapshot, paths, tree } => {
                let tree = self.tree(tree.as_deref())?;
                let to = self.find(&tree, snapshot.as_deref())?;
                let select = select(&tree, &paths)?;
                let done = self.revert(&tree, &to, &select)?;
                let paths = done.changes.len() as u64;
                self.tell(by, "revert", &to, paths);
                let (changes, left_out) = rows(&done.changes, &select);
                Ok(json!({
                    "reverted": changes, "left_out": left_out,
                    "undo": done.before.as_ref().map(|before| before.id.to_string()),
                    "kept": done.kept,
                }))
            }
            Request::Delete { snapshot, tree } => {
                let tree = self.tree(tree.as_deref())?;
                let found = self.find(&tree, Some(&snapshot))?;
                if found.origin == Origin::Start {
                    return Err(SessionError::usage(format!(
                        "snapshot {} was made at the start of the run: it is not the session's to \
                         delete",
                        found.id
                    )));
                }
                self.store(&tree)?.delete(&found)?;
                self.tell(by, "delete", &found, 0);
                Ok(json!({"deleted": found.id}))
            }
        }
    }

    fn tell(&self, by: &Peer, verb: &'static str, snapshot: &Snapshot, paths: u64) {
        let name = snapshot.name.clone();
        (self.told)(by, &Event::Snapshot { verb, snapshot: snapshot.id, name, paths });
    }

    /// The tree of a name: one of the session's own, or a directory in one.
    fn tree(&self, name: Option<&str>) -> Result<Arc<Tree>> {
        let trees = &self.trees;
        let Some(name) = name else {
            return trees.first().cloned().ok_or_else(|| {
                SessionError::usage("this session has no writable tree: -w grants one")
            });
        };
        let wanted = Path::new(name);
        let around = trees.iter().filter(|tree| wanted.starts_with(&tree.path));
        let plain = wanted.components().all(|part| !matches!(part, Component::ParentDir));
        around
            .filter(|_| plain)
            .max_by_key(|tree| tree.path.components().count())
            .cloned()
            .ok_or_else(|| {
                let all: Vec<String> = trees.iter().map(|tree| shown(&tree.path)).collect();
                SessionError::usage(format!(
                    "{name} is in no writable tree of this session; there are: {}",
                    all.join(", ")
                ))
            })
    }

    fn store(&mut self, tree: &Tree) -> Result<&mut Store> {
        if !self.stores.contains_key(&tree.path) {
            let session = Some(self.session.clone());
            let (growth, except) = (Some(MOST_GROWTH), tree.except.clone());
            let options = Options { session, growth, except, ..Options::default() };
            let store = Store::open(&tree.path, options)?;
            if store.workspace() != tree.path {
                // A link took its place: not the tree that the plan was made for.
                return Err(SessionError::usage(format!(
                    "{} is another directory by now",
                    shown(&tree.path)
                )));
            }
            self.stores.insert(tree.path.clone(), store);
        }
        self.stores
            .get_mut(&tree.path)
            .ok_or_else(|| SessionError::usage("the snapshots are in disorder"))
    }

    /// The session's own snapshots, oldest first.
    fn own(&mut self, tree: &Tree) -> Result<Vec<Snapshot>> {
        let all = self.store(tree)?.list()?;
        let session = Some(&self.session);
        Ok(all.into_iter().filter(|snapshot| snapshot.session.as_ref() == session).collect())
    }

    /// How a name of this session's stands in the store, where other sessions have names too.
    fn full(&self, name: &str) -> String {
        format!("{name}.{}", self.session)
    }

    fn short<'a>(&self, snapshot: &'a Snapshot) -> Option<&'a str> {
        let name = snapshot.name.as_deref()?;
        let own = name.strip_suffix(&self.session).and_then(|name| name.strip_suffix('.'));
        Some(own.unwrap_or(name))
    }

    fn find(&mut self, tree: &Tree, label: Option<&str>) -> Result<Snapshot> {
        let own = if Store::exists(&tree.path)? { self.own(tree)? } else { Vec::new() };
        let label = label.unwrap_or("latest");
        let found = match label {
            "latest" => own.iter().rev().find(|snapshot| snapshot.origin != Origin::BeforeRevert),
            _ => own.iter().find(|snapshot| {
                self.short(snapshot) == Some(label) || snapshot.id.to_string() == label
            }),
        };
        if let Some(found) = found {
            return Ok(found.clone());
        }
        let label_of = |snapshot: &Snapshot| {
            self.short(snapshot).map_or_else(|| snapshot.id.to_string(), ToOwned::to_owned)
        };
        let labels: Vec<String> = own.iter().rev().take(8).map(label_of).collect();
        Err(SessionError::usage(match labels.len() {
            0 => "this session has no snapshots; make one: ringfence snapshot create".to_owned(),
            _ => format!("this session has no snapshot {label}; there are: {}", labels.join(", ")),
        }))
    }

    fn create(
        &mut self,
        tree: &Tree,
        name: Option<String>,
        exclude_ignored: bool,
        by: &Peer,
    ) -> Result<Value> {
        let kept = self.own(tree)?.iter().filter(|s| s.origin == Origin::Manual).count();
        if kept >= MOST_SNAPSHOTS {
            return Err(SessionError::usage(format!(
                "a session keeps {MOST_SNAPSHOTS} snapshots of a tree: delete some first \
                 (ringfence snapshot delete)"
            )));
        }
        if let Some(name) = &name {
            check_name(name)?;
            let taken = self.own(tree)?.iter().any(|snapshot| self.short(snapshot) == Some(name));
            if taken {
                return Err(SessionError::usage(format!(
                    "this session has a snapshot {name} already; give another name"
                )));
            }
        }
        let ignored = if exclude_ignored { Ignored::Excluded } else { Ignored::Included };
        let name = name.map(|name| self.full(&name));
        let session = Some(self.session.clone());
        let new = New { name, ignored, session, ..New::default() };
        let made = self.store(tree)?.create(&new)?;
        self.tell(by, "create", &made.snapshot, 0);
        let visible = select(tree, &[])?;
        let paths = |paths: &[PathBuf]| -> Vec<String> {
            let seen = paths.iter().filter(|path| visible.takes(path));
            seen.take(MOST_PATHS).map(|path| shown(path)).collect()
        };
        Ok(json!({
            "snapshot": self.row(&made.snapshot), "unreadable": paths(&made.unreadable),
            "foreign": paths(&made.foreign), "unsettled": paths(&made.unsettled),
        }))
    }

    fn changes(
        &mut self,
        tree: Option<&str>,
        from: Option<&str>,
        to: Option<&str>,
        paths: &[String],
        as_diff: bool,
    ) -> Result<Value> {
        let tree = self.tree(tree)?;
        let from = self.find(&tree, from)?;
        let to = to.map(|to| self.find(&tree, Some(to))).transpose()?;
        let select = select(&tree, paths)?;
        let changes = self.store(&tree)?.changes(&from, to.as_ref(), &select)?;
        let (mut rows, left_out) = rows(&changes, &select);
        if as_diff {
            let mut bytes = 0;
            let visible = changes.iter().filter(|change| select.takes(&change.path));
            let store = self.store(&tree)?;
            for (row, change) in rows.iter_mut().zip(visible) {
                let text = if !readable(store, change, &from, to.as_ref())? {
                    format!("{} {}\n", change.told().word(), shown(&change.path))
                } else if bytes < LONGEST_DIFFERENCES {
                    unified::as_text(&diff::of(store, change, to.as_ref())?)
                } else {
                    String::new()
                };
                bytes += text.len();
                row["diff"] = if bytes > LONGEST_DIFFERENCES {
                    format!(
                        "{} {}: left out, the answer is long\n",
                        change.told().word(),
                        shown(&change.path)
                    )
                    .into()
                } else {
                    text.into()
                };
            }
        }
        Ok(json!({"from": self.row(&from), "changes": rows, "left_out": left_out}))
    }

    fn revert(&mut self, tree: &Tree, to: &Snapshot, select: &Select) -> Result<Reverted> {
        let mut tries = 1;
        loop {
            match self.store(tree)?.revert(to, select) {
                Err(SessionError::Changed(_)) if tries < TRIES => tries += 1,
                done => return done,
            }
        }
    }

    /// How many files it has, and of what size, is not said: they are counted with those that the policy denies,
    /// and would tell of each change to one.
    fn row(&self, snapshot: &Snapshot) -> Value {
        json!({
            "id": snapshot.id, "name": self.short(snapshot), "origin": snapshot.origin.word(),
            "created_ms": snapshot.created, "ignored": snapshot.ignored.word(),
        })
    }
}

/// Paths of a tree, given relative to it or absolute. What is excepted is left out whatever is
/// asked for.
pub(super) fn select(tree: &Tree, paths: &[String]) -> Result<Select> {
    let only = paths.iter().map(|given| {
        let path = Path::new(given);
        let relative =
            if path.is_absolute() { path.strip_prefix(&tree.path).ok() } else { Some(path) };
        let mut plain = PathBuf::new();
        for part in relative.into_iter().flat_map(Path::components) {
            match part {
                Component::Normal(name) => plain.push(name),
                Component::CurDir => {}
                // Where it leads depends on links, which nobody here follows.
                _ => return Err(outside(given, tree)),
            }
        }
        if relative.is_none() { Err(outside(given, tree)) } else { Ok(plain) }
    });
    let only = only.collect::<Result<Vec<PathBuf>>>()?;
    let all = only.iter().any(|path| path.as_os_str().is_empty());
    Ok(Select { only: if all { Vec::new() } else { only }, except: tree.except.clone() })
}

fn outside(path: &str, tree: &Tree) -> SessionError {
    SessionError::usage(format!("{path} is not in {}, or has `..` in it", shown(&tree.path)))
}

/// Whether the command could have read what is compared: of a tree as it is, this thread reads what it can.
fn readable(
    store: &Store,
    change: &Change,
    from: &Snapshot,
    to: Option<&Snapshot>,
) -> Result<bool> {
    let sides = [(&change.old, Some(from)), (&change.new, to)];
    for (entry, snapshot) in sides {
        if let (Some(entry), Some(snapshot)) = (entry, snapshot)
            && !look::readable(store, snapshot, &change.path, entry)?
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// As JSON, those that may be shown; and how many more there are.
fn rows(changes: &[Change], select: &Select) -> (Vec<Value>, usize) {
    let visible: Vec<&Change> =
        changes.iter().filter(|change| select.takes(&change.path)).collect();
    let row = |change: &&Change| {
        let kind = change.new.as_ref().or(change.old.as_ref()).map(|entry| entry.kind.word());
        json!({"path": shown(&change.path), "what": change.told().word(), "kind": kind})
    };
    let rows: Vec<Value> = visible.iter().take(MOST_PATHS).map(row).collect();
    let left_out = visible.len() - rows.len();
    (rows, left_out)
}

pub(super) fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
