//! `ringfence snapshot`

use super::arguments::{Given, Known, parse};
use super::{diff, text, unified, verbs};
use crate::snapshot::{
    Change, Entry, Ignored, Kind, New, Options, Reverted, Select, Snapshot, Store, What,
};
use ringfence_policy::suggest;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Component, Path, PathBuf};

const USAGE: &str = "\
Usage: ringfence snapshot VERB [OPTIONS]
  create [--name NAME] [--exclude-ignored]   keep the workspace as it is now
  list                                       all snapshots of this workspace
  show SNAPSHOT [PATH]                       what is in it; with the path of a file, its bytes
  changes [SNAPSHOT [SNAPSHOT]] [-- PATH...] what is different now, or in the second one
  diff [SNAPSHOT [SNAPSHOT]] [-- PATH...]    the same, line by line
  history PATH                               what happened to a path
  revert [SNAPSHOT] [-- PATH...] [--dry-run] make the workspace, or paths, what they were
  revert --resume | --abandon                after an interrupted revert
  compact [SNAPSHOT... --name NAME]          merge snapshots (newest wins); give space back
  delete SNAPSHOT...
Each takes --workspace DIR (default: the current directory) and --json. SNAPSHOT is a name, a
number, or `latest`, which is the default.
";

const KNOWN: Known = Known {
    switches: &["json", "help", "exclude-ignored", "dry-run", "resume", "abandon"],
    valued: &["name", "workspace", "session"],
};

/// Runs `ringfence snapshot ARGS`.
///
/// # Errors
/// One sentence for the user; the exit code is then 125.
pub fn snapshot(args: Vec<OsString>) -> Result<u8, String> {
    // Paths come after `--` where snapshots may come before.
    let cut = args.iter().position(|word| word == "--").unwrap_or(args.len());
    let paths: Vec<PathBuf> = args.iter().skip(cut + 1).map(PathBuf::from).collect();
    let given = parse(&KNOWN, args[..cut].to_vec())?;
    let verb = given.word(0)?;
    let Some(verb) = verb.filter(|_| !given.has("help")).map(ToOwned::to_owned) else {
        return if given.has("help") {
            text::print(USAGE.as_bytes())
        } else if args.is_empty() {
            Ok(text::misused(USAGE))
        } else {
            Err(format!("which of {}? See ringfence snapshot --help", verbs::ALL.join(", ")))
        };
    };
    if !verbs::ALL.contains(&verb.as_str()) {
        let all = format!("; there are {}", verbs::ALL.join(", "));
        let meant = suggest::meant(&verb, &verbs::ALL, &all);
        return Err(format!("unknown: snapshot {verb}{meant}"));
    }
    verbs::check(&verb, &given, paths.len())?;
    if crate::gateway::client::socket().is_some() {
        return super::inside::run(&verb, &given, &paths);
    }
    let workspace = match given.value("workspace") {
        Some(workspace) => PathBuf::from(workspace),
        None => std::env::current_dir().map_err(|e| format!("the current directory: {e}"))?,
    };
    let told = |error: crate::SessionError| error.to_string();
    if verb != "create" && !Store::exists(&workspace).map_err(told)? {
        return no_store(&verb, &workspace, given.has("json"));
    }
    if verb == "create" && given.value("workspace").is_none() && is_home(&workspace) {
        return Err("this is your home directory: a snapshot would hold all of it, and a revert \
                    would change all of it; if that is meant: --workspace ~"
            .to_owned());
    }
    let durable = verb == "revert";
    let store = Store::open(&workspace, Options { durable, ..Options::default() });
    let mut command = Command { store: store.map_err(told)?, given, paths };
    command.run(&verb)
}

fn is_home(path: &Path) -> bool {
    let home = ringfence_sys::identity::home().and_then(|home| home.canonicalize().ok());
    home.is_some_and(|home| path.canonicalize().ok() == Some(home))
}

/// Nothing is made only to find it empty.
fn no_store(verb: &str, workspace: &Path, as_json: bool) -> Result<u8, String> {
    if verb == "list" {
        return if as_json { text::json(json!({"snapshots": []})) } else { Ok(0) };
    }
    let full = workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
    let above = full.ancestors().skip(1).find(|above| Store::exists(above).unwrap_or(false));
    Err(match above {
        Some(above) => format!(
            "there are no snapshots of {}; there are some of {}: add --workspace {}",
            full.display(),
            above.display(),
            above.display()
        ),
        None => format!(
            "there are no snapshots of {}; make one: ringfence snapshot create (those of a directory that was moved \
             belong to its former path: move it back to use them)",
            full.display()
        ),
    })
}

struct Command {
    store: Store,
    given: Given,
    paths: Vec<PathBuf>,
}

impl Command {
    fn run(&mut self, verb: &str) -> Result<u8, String> {
        let pending = self.store.pending().map_err(told)?;
        if pending.is_some() && !self.given.has("resume") && !self.given.has("abandon") {
            ringfence_sys::say!(
                "ringfence: a revert was interrupted here; finish it with `ringfence snapshot \
                 revert --resume`, or leave things as they are with `--abandon`"
            );
        }
        match verb {
            "create" => self.create(),
            "list" => self.list(),
            "show" => self.show(),
            "changes" => self.changes(false),
            "diff" => self.changes(true),
            "history" => self.history(),
            "revert" => self.revert(),
            "compact" => self.compact(),
            _ => self.delete(),
        }
    }

    fn json(&self) -> bool {
        self.given.has("json")
    }

    fn find(&self, at: usize) -> Result<Snapshot, String> {
        self.store.find(self.given.word(at)?.unwrap_or("latest")).map_err(told)
    }

    /// Paths are given from where the user stands, and kept from the workspace.
    fn inside(&self, path: &Path) -> Result<PathBuf, String> {
        let here = std::env::current_dir().and_then(|here| here.canonicalize());
        let here = here.map_err(|error| format!("the current directory: {error}"))?;
        let base = if path.is_absolute() || here.starts_with(self.store.workspace()) {
            here
        } else {
            self.store.workspace().to_owned()
        };
        let mut full = PathBuf::new();
        for part in base.join(path).components() {
            match part {
                Component::ParentDir => drop(full.pop()),
                Component::CurDir => {}
                part => full.push(part),
            }
        }
        full.strip_prefix(self.store.workspace()).map(Path::to_owned).map_err(|_| {
            format!("{} is not in {}", path.display(), self.store.workspace().display())
        })
    }

    fn select(&self) -> Result<Select, String> {
        let only: Result<Vec<PathBuf>, String> =
            self.paths.iter().map(|path| self.inside(path)).collect();
        let only = only?.into_iter().filter(|path| !path.as_os_str().is_empty()).collect();
        Ok(Select { only, except: Vec::new() })
    }

    /// Paths that are nowhere were mistyped.
    fn known(&self, select: &Select, from: &Snapshot, to: Option<&Snapshot>) -> Result<(), String> {
        for path in &select.only {
            let stored = |snapshot: &Snapshot| self.store.entry(snapshot, path).map_err(told);
            let there = match to {
                Some(to) => stored(to)?.is_some(),
                None => self.store.workspace().join(path).symlink_metadata().is_ok(),
            };
            if !there && stored(from)?.is_none() {
                let beside = match to {
                    Some(to) => format!("in snapshot {}", to.label()),
                    None => format!("in {}", text::path(self.store.workspace())),
                };
                let path = text::path(path);
                return Err(format!("{path} is neither in snapshot {} nor {beside}", from.label()));
            }
        }
        Ok(())
    }

    fn create(&mut self) -> Result<u8, String> {
        let ignored = match self.given.has("exclude-ignored") {
            true => Ignored::Excluded,
            false => Ignored::Included,
        };
        let name = self.given.text("name")?.map(ToOwned::to_owned);
        let session = self.given.text("session")?.map(ToOwned::to_owned);
        let new = New { name, ignored, session, ..New::default() };
        let made = self.store.create(&new).map_err(told)?;
        for path in &made.unreadable {
            let path = text::path(path);
            ringfence_sys::say!(
                "ringfence: {path} cannot be read: it is not in the snapshot, and a revert leaves it alone"
            );
        }
        for path in &made.foreign {
            let path = text::path(path);
            ringfence_sys::say!(
                "ringfence: {path} is another file system or a device: it is not in the snapshot, and a revert \
                 leaves it alone"
            );
        }
        for path in &made.unsettled {
            let path = text::path(path);
            ringfence_sys::say!(
                "ringfence: {path} was written to all the time: it is kept as it was read"
            );
        }
        if self.json() {
            let mut value = json!({"snapshot": row(&made.snapshot), "read": made.read});
            value["unreadable"] = made.unreadable.iter().map(|p| text::json_path(p)).collect();
            value["foreign"] = made.foreign.iter().map(|p| text::json_path(p)).collect();
            value["unsettled"] = made.unsettled.iter().map(|p| text::json_path(p)).collect();
            return text::json(value);
        }
        text::print(line(&made.snapshot).as_bytes())
    }

    fn list(&self) -> Result<u8, String> {
        let all = self.store.list().map_err(told)?;
        if self.json() {
            let rows: Vec<Value> = all.iter().map(row).collect();
            return text::json(json!({"snapshots": rows}));
        }
        let lines: String = all.iter().rev().map(line).collect();
        text::print(lines.as_bytes())
    }

    fn show(&self) -> Result<u8, String> {
        if self.given.words.len() < 2 {
            return Err("show what? ringfence snapshot show SNAPSHOT [PATH]".to_owned());
        }
        let snapshot = self.find(1)?;
        let path = self.given.words.get(2).map(PathBuf::from).or(self.paths.first().cloned());
        let mut all = self.store.entries(&snapshot).map_err(told)?;
        if let Some(path) = path {
            let path = self.inside(&path)?;
            let found = self.store.entry(&snapshot, &path).map_err(told)?;
            let missing = format!("{} is not in snapshot {}", path.display(), snapshot.label());
            let found = found.ok_or(missing)?;
            if found.kind != Kind::Directory {
                let bytes = self.store.read(&found, u64::MAX).map_err(told)?.unwrap_or_default();
                if self.json() {
                    let (snapshot, entry) = (row(&snapshot), entry_row(&path, &found));
                    let mut shown = json!({"snapshot": snapshot, "entry": entry});
                    text::put_bytes(&mut shown, bytes);
                    return text::json(shown);
                }
                return text::print_contents(&bytes);
            }
            all.retain(|(below, _)| below.starts_with(&path));
        }
        if self.json() {
            let files: Vec<Value> = all.iter().map(|(path, e)| entry_row(path, e)).collect();
            return text::json(json!({"snapshot": row(&snapshot), "entries": files}));
        }
        let mut out = line(&snapshot);
        for (path, entry) in &all {
            let (mode, size, kind) = (entry.mode, entry.size, entry.kind.word());
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{mode:04o} {kind:<9} {size:>12} {}", text::path(path));
        }
        text::print(out.as_bytes())
    }

    fn changes(&mut self, as_diff: bool) -> Result<u8, String> {
        let from = self.find(1)?;
        let to = if self.given.words.len() > 2 { Some(self.find(2)?) } else { None };
        let select = self.select()?;
        self.known(&select, &from, to.as_ref())?;
        let changes = self.store.changes(&from, to.as_ref(), &select).map_err(told)?;
        if self.json() && !as_diff {
            let rows: Vec<Value> = changes.iter().map(change_row).collect();
            let to = to.as_ref().map(row);
            return text::json(json!({"from": row(&from), "to": to, "changes": rows}));
        }
        let mut out = Vec::new();
        let mut rows = Vec::new();
        for change in &changes {
            if !as_diff {
                out.extend(change_line(change).into_bytes());
                continue;
            }
            let mut shown = diff::of(&self.store, change, to.as_ref()).map_err(told)?;
            if self.json() {
                let mut row = change_row(change);
                row["diff"] = unified::as_text(&shown).into();
                rows.push(row);
            } else {
                out.append(&mut shown);
            }
        }
        if self.json() {
            return text::json(json!({"from": row(&from), "changes": rows}));
        }
        text::print_contents(&out)
    }

    fn history(&self) -> Result<u8, String> {
        let path = self.given.words.get(1).map(PathBuf::from).or(self.paths.first().cloned());
        let path = path.ok_or("the history of what? ringfence snapshot history PATH")?;
        let path = self.inside(&path)?;
        let versions = self.store.history(&path).map_err(told)?;
        if versions.is_empty() {
            let (path, workspace) = (text::path(&path), text::path(self.store.workspace()));
            return Err(format!("{path} is in no snapshot of {workspace}"));
        }
        if self.json() {
            let rows: Vec<Value> = versions
                .iter()
                .map(|version| {
                    json!({
                        "snapshot": row(&version.snapshot),
                        "what": version.what.word(),
                        "entry": version.entry.as_ref().map(|entry| entry_row(&path, entry)),
                    })
                })
                .collect();
            return text::json(json!({"path": text::json_path(&path), "versions": rows}));
        }
        let mut out = String::new();
        for version in &versions {
            let size = version.entry.as_ref().map_or(0, |entry| entry.size);
            let (time, label) = (text::time(version.snapshot.created), version.snapshot.label());
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{time}  {:<10} {size:>12}  {label}", version.what.word());
        }
        text::print(out.as_bytes())
    }

    fn revert(&mut self) -> Result<u8, String> {
        if self.given.has("abandon") {
            return self.store.abandon().map(|()| 0).map_err(told);
        }
        if self.given.has("resume") {
            return match self.store.resume().map_err(told)? {
                Some(done) => self.reverted(&done),
                None => Err("no revert was interrupted here".to_owned()),
            };
        }
        if self.given.words.len() > 2 {
            return Err(
                "paths come after `--`: ringfence snapshot revert SNAPSHOT -- PATH...".into()
            );
        }
        let to = self.find(1)?;
        let select = self.select()?;
        if self.given.has("dry-run") {
            return self.changes(false);
        }
        self.known(&select, &to, None)?;
        let done = self.store.revert(&to, &select).map_err(told)?;
        self.reverted(&done)
    }

    fn reverted(&self, done: &Reverted) -> Result<u8, String> {
        for kept in &done.kept {
            ringfence_sys::say!(
                "ringfence: not as in the snapshot: {}",
                text::safe(kept.as_bytes())
            );
        }
        if self.json() {
            let rows: Vec<Value> = done.changes.iter().map(change_row).collect();
            text::json(json!({
                "before": done.before.as_ref().map(row), "reverted": rows, "kept": done.kept,
            }))?;
            return Ok(u8::from(done.unread));
        }
        let paths = text::count(done.changes.len() as u64, "path");
        let undo = done.before.as_ref().map_or(String::new(), |before| {
            format!("; to undo: ringfence snapshot revert {}", before.id)
        });
        text::print(format!("{paths} reverted{undo}\n").as_bytes())?;
        Ok(u8::from(done.unread))
    }

    fn compact(&mut self) -> Result<u8, String> {
        let merge: Result<Vec<Snapshot>, String> =
            (1..self.given.words.len()).map(|at| self.find(at)).collect();
        let mut merge = merge?;
        merge.sort_by_key(|snapshot| snapshot.id);
        merge.dedup_by_key(|snapshot| snapshot.id);
        let name = self.given.text("name")?.map(ToOwned::to_owned);
        let done = self.store.compact(&merge, name.as_deref()).map_err(told)?;
        if self.json() {
            let snapshot = done.snapshot.as_ref().map(row);
            return text::json(
                json!({"snapshot": snapshot, "before": done.before, "after": done.after}),
            );
        }
        let made = done.snapshot.as_ref().map(line).unwrap_or_default();
        let (before, after) = (text::size(done.before), text::size(done.after));
        text::print(format!("{made}the store took {before}, and takes {after}\n").as_bytes())
    }

    fn delete(&mut self) -> Result<u8, String> {
        if self.given.words.len() < 2 {
            return Err("delete which? ringfence snapshot delete SNAPSHOT...".to_owned());
        }
        let all: Result<Vec<Snapshot>, String> =
            (1..self.given.words.len()).map(|at| self.find(at)).collect();
        let all = all?;
        for snapshot in &all {
            self.store.delete(snapshot).map_err(told)?;
        }
        if self.json() {
            let rows: Vec<Value> = all.iter().map(row).collect();
            return text::json(json!({"deleted": rows}));
        }
        Ok(0)
    }
}

fn told(error: crate::SessionError) -> String {
    error.to_string()
}

fn line(snapshot: &Snapshot) -> String {
    let name = snapshot.name.as_deref().unwrap_or(snapshot.origin.word());
    let ignored = match snapshot.ignored {
        Ignored::Included => "",
        Ignored::Excluded => ", without ignored files",
    };
    format!(
        "{:>4}  {}  {name:<20}  {}, {} (+{} stored){ignored}\n",
        snapshot.id,
        text::time(snapshot.created),
        text::count(snapshot.files, "file"),
        text::size(snapshot.bytes),
        text::size(snapshot.added),
    )
}

fn row(snapshot: &Snapshot) -> Value {
    json!({
        "id": snapshot.id, "name": snapshot.name, "origin": snapshot.origin.word(),
        "created_ms": snapshot.created, "ignored": snapshot.ignored.word(),
        "session": snapshot.session, "files": snapshot.files,
        "directories": snapshot.directories, "bytes": snapshot.bytes,
        "stored_bytes": snapshot.added, "unreadable": snapshot.unreadable,
    })
}

fn entry_row(path: &Path, entry: &Entry) -> Value {
    json!({
        "path": text::json_path(path), "kind": entry.kind.word(), "mode": format!("{:04o}", entry.mode),
        "size": entry.size,
    })
}

fn change_row(change: &Change) -> Value {
    let side = |entry: &Option<Entry>| entry.as_ref().map(|e| entry_row(&change.path, e));
    json!({
        "path": text::json_path(&change.path), "what": change.told().word(),
        "old": side(&change.old), "new": side(&change.new),
    })
}

fn change_line(change: &Change) -> String {
    let sign = match change.told() {
        What::Added => 'A',
        What::Deleted => 'D',
        What::Modified => 'M',
        What::Attributes => 'P',
        What::Kind => 'T',
    };
    let entry = change.new.as_ref().or(change.old.as_ref());
    let slash = entry.is_some_and(|entry| entry.kind == Kind::Directory);
    format!("{sign} {}{}\n", text::path(&change.path), if slash { "/" } else { "" })
}
