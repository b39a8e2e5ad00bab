//! Browsers that hide no name. They send what looks like Encrypted Client Hello to every host, so that
//! nobody can tell it from one; the network filter refuses both at hosts that are allowed by name. Their
//! settings for a whole machine are the one place where each of them can be told not to, and there they are
//! told so inside, where the host has a directory for them.

use super::grants::Grants;
use super::{Planning, built_in};
use crate::facts::Kind;
use crate::plan::{Besides, Entry, MountOp, MountStep};
use ringfence_net::rules;
use ringfence_policy::NetworkMode;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Chromium's word: of two files of policies that speak of the same, the last by name is obeyed.
const CHROMIUM: (&str, &str) =
    ("policies/managed/zz-ringfence.json", "{\"EncryptedClientHelloEnabled\": false}\n");
/// Firefox's policy `DisableEncryptedClientHello` leaves the decoy.
const FIREFOX: &str = "pref(\"security.tls.ech.grease_probability\", 0);\n\
                       pref(\"network.dns.echconfig.enabled\", false);\n";

/// Where a browser looks for settings; and the names of which one shows that it is there, of the system or in
/// the home. None: the directory itself shows it.
const PLACES: [(&str, (&str, &str), &[&str]); 7] = [
    ("/etc/chromium", CHROMIUM, &[]),
    ("/etc/brave", CHROMIUM, &[]),
    ("/etc/opt/chrome", CHROMIUM, &["/opt/google/chrome"]),
    ("/etc/opt/edge", CHROMIUM, &["/opt/microsoft/msedge"]),
    ("/etc/opt/chrome_for_testing", CHROMIUM, &["~/.cache/puppeteer", "~/.cache/ms-playwright"]),
    ("/etc/firefox", ("defaults/pref/ringfence.js", FIREFOX), &[]),
    ("/etc/firefox-esr", ("ringfence.js", FIREFOX), &[]),
];

/// The most names that a directory may have: each is a mount.
const MOST: usize = 32;

/// The directories of settings, with what ringfence says besides what the host does.
pub(super) fn mounts(planning: &Planning<'_>, grants: &Grants) -> Vec<MountStep> {
    let policy = planning.policy;
    if policy.network.mode != NetworkMode::Filtered || rules::every_name(policy, 443) {
        return Vec::new();
    }
    let paths = planning.paths;
    let is_directory = |path: &Path| paths.kind(path) == Kind::Directory;
    let mut shown: BTreeMap<PathBuf, Besides> = BTreeMap::new();
    for (place, (file, text), evidence) in PLACES {
        let there = |name: &&str| match name.strip_prefix("~/") {
            Some(below) => is_directory(&policy.home_dir.join(below)),
            None => is_directory(Path::new(name)),
        };
        if !(evidence.is_empty() && is_directory(Path::new(place)) || evidence.iter().any(there)) {
            continue;
        }
        // The innermost directory on the way that is there; /etc itself has too much in it.
        let whole = Path::new(place).join(file);
        let above: Vec<&Path> = whole.ancestors().skip(1).collect();
        let way = above.iter().rev().skip(2).take_while(|path| is_directory(path));
        let Some(at) = way.last().copied() else { continue };
        let name = whole.strip_prefix(at).unwrap_or(&whole).to_owned();
        // A link or a file of the host in the way stays what it is.
        let first = name.iter().next().map(|first| at.join(first));
        if first.is_none_or(|first| paths.kind(&first) != Kind::Absent) {
            continue;
        }
        let entry = shown.entry(at.to_owned()).or_default();
        entry.files.push((name, text.to_owned()));
    }
    let free = |path: &Path| {
        let covering = grants.covering(path);
        // Names in it are bound one by one: what somebody outside puts in a denied one's place would not be watched.
        let nests = |a: &Path, b: &Path| a.starts_with(b) || b.starts_with(a);
        let denied = grants.denials.iter().any(|denial| nests(path, &denial.path));
        covering.is_some_and(|(_, grant)| !grant.write) && !denied
    };
    shown.retain(|path, _| free(path));
    let steps = shown.into_iter().filter_map(|(path, mut besides)| {
        // One that cannot be listed can be searched all the same: what is in it would be gone.
        let names = paths.among(&path, &["*"], MOST)?;
        let entries = names.into_iter().map(PathBuf::from);
        besides.entries =
            entries.filter_map(|name| entry(paths.kind(&path.join(&name)), name)).collect();
        let rule = built_in(
            "browsers are told to hide no name (ECH), which is refused at hosts allowed by name",
        );
        Some(MountStep { path, op: MountOp::Besides(besides), rule })
    });
    steps.collect()
}

fn entry(kind: Kind, name: PathBuf) -> Option<Entry> {
    match kind {
        Kind::Absent => None,
        Kind::File => Some(Entry { name, directory: false, link: None }),
        Kind::Directory => Some(Entry { name, directory: true, link: None }),
        Kind::Symlink(target) => Some(Entry { name, directory: false, link: Some(target) }),
    }
}
