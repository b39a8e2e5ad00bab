//! Workspaces: packages within a project whose scripts its package manager runs from there.

use super::projects::MOST_ABOVE;
use super::{MOST_TEXT, Programs};
use crate::host::{Entry, Kind};
use crate::words::Word;
use ringfence_policy::glob;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The most packages that are looked at, and the most directories: those that patterns mean, and those that are read for it.
const MOST_PACKAGES: usize = 256;
const MOST_PLACES: usize = 1024;
/// How deep below the project.
const DEEPEST: usize = 6;

/// Which workspaces a command is about.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    all: bool,
    names: Vec<Vec<u8>>,
}

impl Chosen {
    /// All that there are.
    pub fn all() -> Chosen {
        Chosen { all: true, names: Vec::new() }
    }

    fn take(&mut self, name: Option<Vec<u8>>) {
        let plain = |name: &Vec<u8>| {
            name.iter().all(|byte| byte.is_ascii_alphanumeric() || b"@/._-".contains(byte))
                && !name.windows(3).any(|three| three == b"...")
        };
        match name.filter(plain) {
            Some(name) => self.names.push(name),
            // Which ones a pattern or a range means is not followed, nor what is computed.
            None => self.all = true,
        }
    }

    fn has(&self, root: &Path, place: &Path, name: &str) -> bool {
        let base = name.rsplit('/').next().unwrap_or(name);
        self.all
            || self.names.iter().any(|wanted| {
                let below = root.join(OsStr::from_bytes(wanted));
                wanted == name.as_bytes() || wanted == base.as_bytes() || place.starts_with(below)
            })
    }
}

/// What a package manager's words say of workspaces, if they do, and the words without that.
pub(super) fn chosen(manager: &str, words: &[Word]) -> (Option<Chosen>, Vec<Word>) {
    let mut chosen: Option<Chosen> = None;
    let mut kept = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let text = word.constant().unwrap_or_default();
        let mut parts = text.splitn(2, |byte| *byte == b'=');
        let (option, value) = (parts.next().unwrap_or_default(), parts.next());
        match option {
            b"--" => {
                kept.push(word.clone());
                kept.extend(words.by_ref().cloned());
            }
            // The root of them.
            b"-w" if manager == "pnpm" => {}
            b"-w" | b"--workspace" | b"-F" | b"--filter" => {
                let value = value.map(<[u8]>::to_vec);
                let value = value.or_else(|| words.next().and_then(Word::constant));
                chosen.get_or_insert_default().take(value);
            }
            b"-ws" | b"--ws" | b"--workspaces" if value != Some(b"false") => {
                chosen = Some(Chosen::all());
            }
            b"-r" | b"--recursive" if manager == "pnpm" => chosen = Some(Chosen::all()),
            _ => kept.push(word.clone()),
        }
    }
    let first = kept.first().and_then(Word::constant).filter(|_| manager == "yarn");
    match first.as_deref() {
        Some(b"workspace") => {
            chosen.get_or_insert_default().take(kept.get(1).and_then(Word::constant));
            kept.drain(..kept.len().min(2));
        }
        Some(b"workspaces") => {
            chosen = Some(Chosen::all());
            let is_run = |word: &Word| word.constant().is_some_and(|word| word == b"run");
            kept.drain(..kept.iter().position(is_run).unwrap_or(1));
        }
        _ => {}
    }
    (chosen, kept)
}

impl Programs<'_, '_, '_> {
    /// The directories of the chosen workspaces of the project that a directory is in.
    pub(super) fn workspaces(&mut self, start: &Path, chosen: &Chosen) -> Vec<PathBuf> {
        let mut above = start.ancestors().take(MOST_ABOVE);
        let found = above.find_map(|root| Some(root).zip(self.patterns(root)));
        let Some((root, patterns)) = found else { return Vec::new() };
        let (mut places, mut read) = (Vec::new(), 0);
        for pattern in &patterns {
            let mut parts: Vec<&str> =
                pattern.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
            parts.dedup_by(|one, other| one == other && *one == "**");
            // No package of the project's is outside of it.
            if !pattern.starts_with(['!', '/']) && !parts.contains(&"..") {
                self.expand(root, &parts, 0, &mut places, &mut read);
            }
        }
        places.sort_unstable();
        places.dedup();
        let mut packages = Vec::new();
        for place in places {
            let Some(package) = self.package(&place) else { continue };
            let name = package["name"].as_str().unwrap_or_default();
            if packages.len() < MOST_PACKAGES && chosen.has(root, &place, name) {
                packages.push(place);
            }
        }
        packages
    }

    fn package(&self, place: &Path) -> Option<serde_json::Value> {
        let found = self.host.resolve(&place.join("package.json"))?;
        if !matches!(self.host.kind(&found.real), Kind::File(_)) {
            return None;
        }
        Some(
            serde_json::from_slice(&self.host.beginning(&found.real, MOST_TEXT)?)
                .unwrap_or_default(),
        )
    }

    /// The patterns of a project's workspaces, if it has such.
    fn patterns(&self, root: &Path) -> Option<Vec<String>> {
        let package = self.package(root)?;
        let all = &package["workspaces"];
        let all = all.as_array().or_else(|| all["packages"].as_array());
        if let Some(all) = all {
            return Some(all.iter().filter_map(|one| Some(one.as_str()?.to_owned())).collect());
        }
        let found = self.host.resolve(&root.join("pnpm-workspace.yaml"))?;
        let text = self.host.beginning(&found.real, MOST_TEXT)?;
        let text = String::from_utf8_lossy(&text);
        let mut lines = text.lines().skip_while(|line| line.trim_end() != "packages:");
        let items = lines.by_ref().skip(1).map_while(|line| match line.trim() {
            line if line.is_empty() || line.starts_with('#') => Some(None),
            line => Some(Some(line.strip_prefix('-')?.trim().trim_matches(['"', '\'']).to_owned())),
        });
        Some(items.flatten().collect())
    }

    /// The directories that the rest of a pattern means.
    fn expand(
        &self,
        place: &Path,
        parts: &[&str],
        deep: usize,
        places: &mut Vec<PathBuf>,
        read: &mut usize,
    ) {
        if places.len() >= MOST_PLACES || deep > DEEPEST {
            return;
        }
        let Some((part, rest)) = parts.split_first() else { return places.push(place.to_owned()) };
        let every = *part == "**";
        if every {
            self.expand(place, rest, deep, places, read);
        } else if !part.contains('*') {
            return self.expand(&place.join(part), rest, deep + 1, places, read);
        }
        *read += 1;
        if *read > MOST_PLACES {
            return;
        }
        for (name, kind) in self.host.entries(place, MOST_PLACES) {
            let fit = every || glob::name(part.as_bytes(), name.as_bytes());
            let own = !name.as_bytes().starts_with(b".") && name != "node_modules";
            if kind == Entry::Directory && own && fit {
                let rest = if every { parts } else { rest };
                self.expand(&place.join(name), rest, deep + 1, places, read);
            }
        }
    }
}
