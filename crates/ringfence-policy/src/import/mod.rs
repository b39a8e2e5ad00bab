//! Peers' settings as profiles: what can be carried over, and a note on each thing that cannot.

mod claude;
mod credentials;
mod dangers;
mod jsonc;
mod peers;
mod reads;

pub use jsonc::plain;

use crate::host::HostRule;
use crate::key::Key;
use crate::path::quote;
use crate::profile::{Profile, Text, Value};
use serde_json::Value as Json;
use std::collections::BTreeSet;
use std::path::Path;
use std::str::FromStr;

/// A system whose settings can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Claude Code's `settings.json`.
    Claude,
    /// The sandbox runtime's `srt-settings.json`.
    Srt,
    /// Fence's `fence.json`.
    Fence,
    /// Greywall's `greywall.json`.
    Greywall,
}

/// The names of the peers.
pub const PEERS: [&str; 4] = ["claude", "srt", "fence", "greywall"];

impl FromStr for Peer {
    type Err = String;

    fn from_str(name: &str) -> Result<Peer, String> {
        match name {
            "claude" => Ok(Peer::Claude),
            "srt" => Ok(Peer::Srt),
            "fence" => Ok(Peer::Fence),
            "greywall" => Ok(Peer::Greywall),
            _ => {
                let near = crate::suggest::tail(crate::suggest::nearest(name, &PEERS));
                Err(format!("`{name}` is none of `{}`{near}", PEERS.join("`, `")))
            }
        }
    }
}

/// What came of an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The profile.
    pub profile: Profile,
    /// The profile as a file.
    pub toml: String,
    /// What could not be carried over, or means something else here; a sentence each.
    pub notes: Vec<String>,
}

/// Reads a peer's settings: JSON, comments and trailing commas accepted.
///
/// # Errors
/// A sentence, when the text is no JSON object.
pub fn import(peer: Peer, text: &str) -> Result<Imported, String> {
    let json: Json = serde_json::from_str(&plain(text)).map_err(|error| error.to_string())?;
    if !json.is_object() {
        return Err("it is no JSON object".to_owned());
    }
    let mut importer =
        Importer { json, profile: Profile::default(), notes: Vec::new(), used: BTreeSet::new() };
    importer.profile.add(Key::Extends, "default");
    match peer {
        Peer::Claude => claude::import(&mut importer),
        Peer::Srt => peers::srt(&mut importer),
        Peer::Fence => peers::fence(&mut importer),
        Peer::Greywall => peers::greywall(&mut importer),
    }
    importer.leftovers();
    let toml = importer.profile.to_toml();
    Ok(Imported { profile: importer.profile, toml, notes: importer.notes })
}

/// Settings on their way into a profile.
struct Importer {
    json: Json,
    profile: Profile,
    notes: Vec<String>,
    /// The settings that were looked at, as `a.b.c`.
    used: BTreeSet<String>,
}

impl Importer {
    fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// A setting, which then counts as looked at.
    fn take(&mut self, path: &str) -> Option<Json> {
        self.used.insert(path.to_owned());
        let mut found = &self.json;
        for name in path.split('.') {
            found = found.get(name)?;
        }
        Some(found.clone())
    }

    /// A setting that is a list; what is none is noted.
    fn list(&mut self, path: &str) -> Vec<Json> {
        match self.take(path) {
            None => Vec::new(),
            Some(Json::Array(list)) => list,
            Some(other) => {
                self.note(format!("`{path}` is {other}, not a list: left out"));
                Vec::new()
            }
        }
    }

    /// A setting that is a list of texts, or a single one; what is no text in it is noted.
    fn texts(&mut self, path: &str) -> Vec<String> {
        self.words(path, false)
    }

    /// The same of texts or numbers.
    fn ports(&mut self, path: &str) -> Vec<String> {
        self.words(path, true)
    }

    fn words(&mut self, path: &str, numbers: bool) -> Vec<String> {
        if let Some(Json::String(text)) = self.take(path) {
            return vec![text];
        }
        let mut texts = Vec::new();
        for value in self.list(path) {
            match value {
                Json::String(text) => texts.push(text),
                Json::Number(number) if numbers => texts.push(number.to_string()),
                other => {
                    self.note(format!("`{path}` holds {other}, which is no text: left out"));
                }
            }
        }
        texts
    }

    /// A setting that is true or false, where it is there; what is neither is noted.
    fn switch(&mut self, path: &str) -> Option<bool> {
        match self.take(path)? {
            Json::Bool(value) => Some(value),
            other => {
                self.note(format!("`{path}` is {other}, neither true nor false: left out"));
                None
            }
        }
    }

    fn flag(&mut self, path: &str) -> bool {
        self.switch(path) == Some(true)
    }

    /// Adds path rules. A grant may be missing on this host, as it may for the peers.
    fn paths(&mut self, from: &str, key: Key, texts: Vec<String>) {
        for text in texts {
            match path(&text) {
                Ok(rule) => {
                    let grant = matches!(key, Key::Read | Key::Write | Key::Sockets);
                    if key == Key::Write && rule.bytes().all(|byte| byte == b'/') {
                        self.note(format!("`{from}`: `{text}` is the root of the file system, which is not granted for writing: left out"));
                        continue;
                    }
                    if key == Key::Sockets
                        && matches!(rule.as_str(), "*" | "**" | "/" | "/*" | "/**")
                    {
                        self.note(format!("`{from}`: `{text}`: the host's sockets are named one by one; add them to `sockets` under [network]"));
                        continue;
                    }
                    if grant && rule.split('/').any(|part| part == "**") {
                        self.note(format!("`{from}`: `{text}` matches at any depth, which a grant cannot: left out"));
                        continue;
                    }
                    if !grant && rule.contains("**/") {
                        self.note(format!("`{from}`: `{text}` matches at any depth, which no tier enforces: name the directories"));
                        continue;
                    }
                    if let Some(danger) = dangers::of_path(key, &rule) {
                        self.note(format!("`{from}`: `{text}`: {danger}"));
                        self.profile.add(Key::Dangers, danger);
                    }
                    let missing_allowed = grant && rule != ".";
                    self.profile.add(key, if missing_allowed { format!("{rule}?") } else { rule });
                }
                Err(reason) => self.note(format!("`{from}`: `{text}` {reason}: left out")),
            }
        }
    }

    /// Adds host rules. The peers' rules hold for every port.
    fn hosts(&mut self, from: &str, key: Key, texts: Vec<String>) {
        for text in texts {
            let refuses = key == Key::DenyHost;
            // A refusal that forgot most ports would be none.
            let every = format!("{text}:*");
            let rule = if refuses { HostRule::parse(&every) } else { HostRule::parse(&text) };
            match rule.or_else(|_| HostRule::parse(&text)) {
                Ok(rule) => {
                    if !refuses && let Some(danger) = dangers::of_host(&rule.to_string()) {
                        self.note(format!("`{from}`: `{text}`: {danger}"));
                        self.profile.add(Key::Dangers, danger);
                    }
                    self.profile.add(key, rule.to_string());
                }
                Err(error) => self.note(format!("`{from}`: {error}: left out")),
            }
        }
    }

    fn set_text(&mut self, key: Key, text: impl Into<Text>) {
        self.profile.set(key, Value::Text(text.into()));
    }

    /// Notes each setting that nothing looked at.
    fn leftovers(&mut self) {
        let mut paths = Vec::new();
        leaves(&self.json, "", &mut paths);
        for path in paths {
            let known = |used: &String| path == *used || path.starts_with(&format!("{used}."));
            if self.used.iter().any(known) {
                continue;
            }
            let within = format!("{path}.");
            if self.used.iter().any(|used| used.starts_with(&within)) {
                // It has settings where it is what it ought to be.
                self.note(format!("`{path}` is no object: left out"));
            } else {
                self.note(format!("`{path}` has no counterpart: left out"));
            }
        }
    }
}

/// The paths of all settings that are not objects; an empty object says nothing.
fn leaves(json: &Json, path: &str, out: &mut Vec<String>) {
    match json {
        Json::Object(entries) => {
            for (name, value) in entries {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                leaves(value, &path, out);
            }
        }
        _ if path.starts_with('$') => {}
        _ => out.push(path.to_owned()),
    }
}

/// A peer's path as a path rule: its wildcards are kept, what is special here alone is escaped.
fn path(text: &str) -> Result<String, &'static str> {
    if text.is_empty() || text.contains('\0') {
        return Err("is no path");
    }
    if text.contains(['[', '{']) {
        return Err("holds a set of characters or alternatives, which rules do not");
    }
    let tree = text.strip_suffix("/**").or_else(|| text.strip_suffix("/**/*")).unwrap_or(text);
    let tree = if tree.is_empty() { "/" } else { tree };
    let mut rule = String::with_capacity(tree.len());
    for (index, part) in tree.split('/').enumerate() {
        if index > 0 {
            rule.push('/');
        }
        if part == "~" && index == 0 {
            rule.push_str(part);
        } else {
            // Their variables are names like others.
            rule.push_str(&quote(Path::new(part)).to_string_lossy().replace("\\*", "*"));
        }
    }
    Ok(rule)
}
