//! `ringfence snapshot` inside a sandbox that has a gateway: the launcher does it.

use super::arguments::Given;
use super::text;
use crate::gateway::client::ask;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The verbs there are here.
pub(super) const VERBS: [&str; 8] =
    ["create", "list", "show", "changes", "diff", "history", "revert", "delete"];

/// Carries a verb out.
pub(super) fn run(verb: &str, given: &Given, paths: &[PathBuf]) -> Result<u8, String> {
    if !VERBS.contains(&verb) {
        return Err(format!(
            "ringfence snapshot {verb}: inside a sandbox there are {}",
            VERBS.join(", ")
        ));
    }
    for option in ["resume", "abandon"] {
        if given.has(option) {
            return Err(format!("--{option} is not to be had inside a sandbox: revert again"));
        }
    }
    let request = request(verb, given, paths)?;
    let dry = verb == "revert" && given.has("dry-run");
    let answer = ask(&request)?;
    if given.has("json") {
        let mut answer = answer;
        if let Some(fields) = answer.as_object_mut() {
            fields.remove("ok");
        }
        return text::json(answer);
    }
    if verb == "show" && answer.get("entry").is_some() {
        return text::print_contents(&bytes(&answer));
    }
    let shown = match verb {
        "create" => line(&answer["snapshot"]),
        "list" => rows(&answer["snapshots"]).rev().map(line).collect(),
        "show" => entries(&answer),
        "history" => rows(&answer["versions"]).map(version).collect(),
        "diff" => rows(&answer["changes"]).map(|row| word(&row["diff"])).collect(),
        "changes" => changes(&answer["changes"]),
        "revert" if dry => changes(&answer["changes"]),
        "revert" => reverted(&answer),
        _ => String::new(),
    };
    for key in ["unreadable", "foreign", "unsettled", "kept"] {
        rows(&answer[key]).for_each(|row| ringfence_sys::say!("ringfence: {key}: {}", word(row)));
    }
    if let Some(more) = answer["left_out"].as_u64().filter(|more| *more > 0) {
        ringfence_sys::say!("ringfence: {} are left out", text::count(more, "more path"));
    }
    text::print_contents(shown.as_bytes())
}

fn request(verb: &str, given: &Given, paths: &[PathBuf]) -> Result<Value, String> {
    let verb = if verb == "revert" && given.has("dry-run") { "changes" } else { verb };
    let mut request = json!({ "do": verb });
    let here = std::env::current_dir().map_err(|e| format!("the current directory: {e}"))?;
    let tree = given.value("workspace").map_or(here.clone(), |tree| here.join(tree));
    request["tree"] = plain(tree.as_os_str().to_owned())?.into();
    let full: Result<Vec<String>, String> =
        paths.iter().map(|path| plain(here.join(path).into_os_string())).collect();
    match verb {
        "create" => {
            if let Some(name) = given.text("name")? {
                request["name"] = name.into();
            }
            request["exclude_ignored"] = given.has("exclude-ignored").into();
        }
        "delete" => {
            let snapshot =
                given.word(1)?.ok_or("delete what? ringfence snapshot delete SNAPSHOT")?;
            if given.words.len() > 2 {
                return Err("one snapshot at a time, inside a sandbox".to_owned());
            }
            request["snapshot"] = snapshot.into();
        }
        "show" => {
            let snapshot =
                given.word(1)?.ok_or("show what? ringfence snapshot show SNAPSHOT [PATH]")?;
            request["snapshot"] = snapshot.into();
            if let Some(path) = asked(given, 2, paths, &here) {
                request["path"] = path?.into();
            }
        }
        "history" => {
            let path = asked(given, 1, paths, &here);
            let path = path.ok_or("the history of what? ringfence snapshot history PATH")?;
            request["path"] = path?.into();
        }
        "changes" | "diff" | "revert" => {
            request["paths"] = full?.into();
            if let Some(snapshot) = given.word(1)? {
                request["snapshot"] = snapshot.into();
            }
            if let Some(to) = given.word(2)? {
                if verb == "revert" || given.has("dry-run") {
                    return Err(
                        "paths come after `--`: ringfence snapshot revert SNAPSHOT -- PATH..."
                            .into(),
                    );
                }
                request["to"] = to.into();
            }
        }
        _ => {}
    }
    Ok(request)
}

/// The path that is asked about: a word of the line, or what comes after `--`.
fn asked(
    given: &Given,
    at: usize,
    paths: &[PathBuf],
    here: &Path,
) -> Option<Result<String, String>> {
    let path = given.words.get(at).map(PathBuf::from).or_else(|| paths.first().cloned())?;
    Some(plain(here.join(path).into_os_string()))
}

/// A path without `.` and `..`, as text.
fn plain(path: OsString) -> Result<String, String> {
    let path = ringfence_policy::path::normal(Path::new(&path));
    let text = path.to_str().map(ToOwned::to_owned);
    text.ok_or_else(|| format!("{}: only names that are text can be asked for", path.display()))
}

fn rows(value: &Value) -> std::slice::Iter<'_, Value> {
    value.as_array().map(Vec::as_slice).unwrap_or_default().iter()
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn line(row: &Value) -> String {
    let id = row["id"].as_i64().unwrap_or(0);
    let time = text::time(row["created_ms"].as_i64().unwrap_or(0));
    let name = row["name"].as_str().or(row["origin"].as_str()).unwrap_or_default();
    format!("{id:>4}  {time}  {name}\n")
}

/// The bytes of a file.
fn bytes(answer: &Value) -> Vec<u8> {
    if let Some(text) = answer["text"].as_str() {
        return text.as_bytes().to_vec();
    }
    let hex = answer["hex"].as_str().unwrap_or_default().as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    hex.chunks(2).filter_map(byte).collect()
}

fn entries(answer: &Value) -> String {
    let mut out = line(&answer["snapshot"]);
    for row in rows(&answer["entries"]) {
        let (mode, kind, size) = (word(&row["mode"]), word(&row["kind"]), row["size"].as_u64());
        let (size, path) = (size.unwrap_or(0), text::safe(word(&row["path"]).as_bytes()));
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{mode} {kind:<9} {size:>12} {path}");
    }
    out
}

fn version(row: &Value) -> String {
    let (snapshot, what) = (&row["snapshot"], word(&row["what"]));
    let size = row["entry"]["size"].as_u64().unwrap_or(0);
    let time = text::time(snapshot["created_ms"].as_i64().unwrap_or(0));
    let label = snapshot["name"].as_str().map(ToOwned::to_owned);
    let label = label.unwrap_or_else(|| snapshot["id"].to_string());
    format!("{time}  {what:<10} {size:>12}  {label}\n")
}

fn changes(all: &Value) -> String {
    let mut out = String::new();
    for row in rows(all) {
        let letter = match row["what"].as_str() {
            Some("added") => 'A',
            Some("deleted") => 'D',
            Some("modified") => 'M',
            Some("attributes") => 'P',
            _ => 'T',
        };
        // Writing to a String cannot fail.
        let slash = if row["kind"] == "directory" { "/" } else { "" };
        let _ = writeln!(out, "{letter} {}{slash}", text::safe(word(&row["path"]).as_bytes()));
    }
    out
}

fn reverted(answer: &Value) -> String {
    let left_out = answer["left_out"].as_u64().unwrap_or(0);
    let paths = rows(&answer["reverted"]).len() as u64 + left_out;
    let undo = answer["undo"]
        .as_str()
        .map_or(String::new(), |undo| format!("; to undo: ringfence snapshot revert {undo}"));
    format!("{} reverted{undo}\n", text::count(paths, "path"))
}
