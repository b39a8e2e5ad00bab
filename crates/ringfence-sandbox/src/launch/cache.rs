//! Compiled plans that are used again: `$XDG_CACHE_HOME/ringfence/plans`, one file for each way
//! of calling `run` in a directory, found and checked before libc is up (`ringfence-start`).
//!
//! A file holds all that its plan was derived from; whatever of that is not as it was makes the
//! start an ordinary one, which writes the file anew. Nothing is ever repaired or trusted in
//! part.

use super::script::Script;
use super::settled;
use crate::inputs::{Found, Inputs, Names, plain};
use ringfence_policy::kept::Kept;
use ringfence_start::bytes::Text;
use ringfence_start::entry;
use ringfence_start::image::{Stamp, stamp_kind};
use ringfence_start::{key, later, listing};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Files that changed so shortly before the start may change again without a sign of it, in
/// nanoseconds: file times are as coarse as the kernel's tick.
const GRAIN: u64 = 20_000_000;
/// At most so many plans are kept.
const MOST_PLANS: usize = 256;

/// The key of this start and where its image is filed, if it can be cached.
pub(super) fn place(command: usize) -> Option<(Vec<u8>, PathBuf)> {
    let caller = entry::caller()?;
    // The parser and the entry agree where the command begins.
    (caller.command()? == command).then_some(())?;
    let mut room = vec![0; key::MOST];
    let mut text = Text::new(&mut room);
    key::write(&mut text, &caller)?;
    let key = text.get()?.to_vec();
    let mut room = vec![0; ringfence_start::spawn::MOST_PATH];
    let mut text = Text::new(&mut room);
    key::write_path(&mut text, &caller, &key)?;
    let path = PathBuf::from(OsStr::from_bytes(text.get()?));
    Some((key, path))
}

/// What the inputs say, as stamps.
#[derive(Default)]
pub(super) struct Stamps {
    /// Looked at before anything else is done.
    pub first: Vec<Stamp>,
    /// Looked at while the view is built: files by their name in a directory (`text`), those of one
    /// directory together.
    pub later: Vec<Stamp>,
}

/// What the inputs say, as stamps. Only for [`checkable`] inputs. With `later` there is a thread
/// that looks at some of them beside the launch.
pub(super) fn stamps(
    script: &mut Script,
    inputs: &Inputs,
    words: &[OsString],
    later: bool,
) -> Stamps {
    let mut stamps = Vec::new();
    if inputs.arguments_count() {
        let identity = |number: usize| [number as u64, 0, 0, 0, 0];
        let count = identity(words.len());
        stamps.push(Stamp { kind: stamp_kind::WORDS, identity: count, ..Stamp::default() });
        for (place, word) in words.iter().enumerate() {
            let text = script.text_at(word.as_bytes());
            let (kind, identity) = (stamp_kind::ARGUMENT, identity(place));
            stamps.push(Stamp { kind, text, identity, ..Stamp::default() });
        }
    }
    let mut needed = inputs.needed(GRAIN);
    let later = if later { take_later(script, &mut needed) } else { Vec::new() };
    for (directory, entries) in settled::groups(inputs, needed, GRAIN) {
        if let Some((path, identity)) = directory {
            let name = script.text_at(path.as_os_str().as_bytes());
            let text = entries.len() as u32;
            stamps.push(Stamp { kind: stamp_kind::UNCHANGED, name, text, identity, unused: 0 });
        }
        stamps.extend(entries.into_iter().map(|(path, found)| stamp(script, &path, found)));
    }
    // Notes and records of such a start go there before anybody else looks whose it is.
    if let Some(home) = ringfence_sys::identity::home() {
        let state = Kept::State.path(&home);
        let state = state.canonicalize().unwrap_or(state);
        let name = script.text_at(state.as_os_str().as_bytes());
        stamps.push(Stamp { kind: stamp_kind::OWN, name, ..Stamp::default() });
    }
    for (path, identity) in inputs.owned() {
        stamps.push(stamp(script, &path, Found::Same(identity)));
    }
    for (name, value) in inputs.variables() {
        let name = script.text_at(name.as_bytes());
        let (kind, text) = match value {
            Some(value) => (stamp_kind::VARIABLE, script.text_at(value.as_bytes())),
            None => (stamp_kind::UNSET, 0),
        };
        stamps.push(Stamp { kind, name, text, ..Stamp::default() });
    }
    Stamps { first: stamps, later }
}

fn stamp(script: &mut Script, path: &Path, found: Found) -> Stamp {
    let name = script.text_at(path.as_os_str().as_bytes());
    let mut stamp = Stamp { name, ..Stamp::default() };
    stamp.kind = match found {
        Found::Absent => stamp_kind::ABSENT,
        Found::Hidden => stamp_kind::HIDDEN,
        Found::Plain => stamp_kind::PLAIN,
        Found::Directory => stamp_kind::DIRECTORY,
        Found::File => stamp_kind::FILE,
        Found::Link(target) => {
            stamp.text = script.text_at(target.as_os_str().as_bytes());
            stamp_kind::LINK
        }
        Found::Same(identity) => {
            stamp.identity = identity;
            stamp_kind::SAME
        }
        Found::Listed(identity, names) => {
            stamp.identity = identity;
            stamp.text = script.constant(&list(&names));
            stamp_kind::LISTED
        }
        Found::Crowded(identity) => {
            stamp.identity = identity;
            stamp_kind::CROWDED
        }
        Found::Links(identity, names) => {
            stamp.identity = identity;
            let one = |name: &OsString| [&[listing::THERE], name.as_bytes(), b"\0"].concat();
            let list: Vec<u8> = names.iter().flat_map(one).chain([0]).collect();
            stamp.text = script.constant(&list);
            stamp_kind::LINKS
        }
    };
    stamp
}

/// Takes out what is looked at later: files of directories of which many are to be looked at.
fn take_later(script: &mut Script, needed: &mut Vec<(PathBuf, Found)>) -> Vec<Stamp> {
    let mut counts: BTreeMap<&OsStr, usize> = BTreeMap::new();
    for (path, _) in needed.iter().filter(|(_, found)| matches!(found, Found::Same(_))) {
        if let Some(directory) = path.parent() {
            *counts.entry(directory.as_os_str()).or_default() += 1;
        }
    }
    counts.retain(|directory, count| *count >= later::ENOUGH && is_open(Path::new(directory)));
    let mut crowded: Vec<(usize, PathBuf)> =
        counts.into_iter().map(|(directory, count)| (count, directory.into())).collect();
    crowded.sort_by(|a, b| b.cmp(a));
    crowded.truncate(later::MOST);
    let mut stamps = Vec::new();
    for (_, directory) in crowded {
        let text = script.text_at(directory.as_os_str().as_bytes());
        needed.retain(|(path, found)| {
            let (Found::Same(identity), true) = (found, path.parent() == Some(&directory)) else {
                return true;
            };
            let Some(name) = path.file_name() else { return true };
            let (name, identity) = (script.text_at(name.as_bytes()), *identity);
            stamps.push(Stamp { kind: stamp_kind::SAME, name, text, identity, ..Stamp::default() });
            false
        });
    }
    stamps
}

/// Whether names in a directory can be looked for without a capability: in a user namespace there
/// is none for what others own.
fn is_open(directory: &Path) -> bool {
    let user = crate::facts::user();
    directory.ancestors().all(|above| {
        above.symlink_metadata().is_ok_and(|data| {
            let needed = if data.uid() == user { 0o100 } else { 0o011 };
            data.is_dir() && data.mode() & needed == needed
        })
    })
}

/// Names as [`listing`] reads them.
fn list(names: &Names) -> Vec<u8> {
    let mut list = Vec::new();
    let mut add = |mark: u8, name: &[u8]| {
        list.push(mark);
        list.extend_from_slice(name);
        list.push(0);
    };
    for wanted in names.wanted.split_terminator('\0') {
        match wanted.strip_prefix('*') {
            Some(end) => add(listing::ENDING, end.trim_start_matches('*').as_bytes()),
            None if names.there.contains(OsStr::new(wanted)) => {}
            None => add(listing::ABSENT, wanted.as_bytes()),
        }
    }
    for name in &names.there {
        add(listing::THERE, name.as_bytes());
    }
    list.push(0);
    list
}

/// Whether stamps can hold all that was looked at, at this moment (nanoseconds of the clock of
/// file times).
pub(super) fn checkable(inputs: &Inputs, now: u64) -> bool {
    let settled = |path: &Path, found: &Found| {
        let old = match found {
            Found::Same(identity) => crate::settled::is_older(identity, GRAIN, now),
            Found::Link(target) => plain(target.as_os_str()).is_some(),
            _ => true,
        };
        old && plain(path.as_os_str()).is_some()
    };
    inputs.lasting() && inputs.all(settled)
}

/// Writes an image, whole or not at all. That it cannot be written costs the next start some
/// time, and is nobody's trouble.
pub(super) fn store(path: &Path, image: &[u8]) -> Option<()> {
    let directory = path.parent()?;
    make_own(directory)?;
    let name = format!(".new-{}-{:08x}", std::process::id(), super::random());
    let temporary = directory.join(name);
    let written = (|| {
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(image)?;
        fs::rename(&temporary, path)
    })();
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    sweep(directory);
    written.ok()
}

/// Makes the directory, for the user alone; one that others may write to is not used, nor is one where they decide what lies
/// there, or where what a plan writes to lies.
fn make_own(directory: &Path) -> Option<()> {
    let (home, user) = (ringfence_sys::identity::home()?, crate::facts::user());
    [Kept::Cache, Kept::State].iter().all(|kept| kept.own(&home, user).is_ok()).then_some(())?;
    // `~/.cache` may be made, a home may not.
    directory.ancestors().nth(3)?.is_dir().then_some(())?;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).ok()?;
    let data = directory.symlink_metadata().ok()?;
    let own = data.is_dir() && data.uid() == crate::facts::user() && data.mode() & 0o022 == 0;
    own.then_some(())
}

/// Keeps the number of plans bounded: the oldest half goes.
fn sweep(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    let mut plans: Vec<_> = entries
        .flatten()
        .filter_map(|entry| Some((entry.metadata().ok()?.mtime(), entry.path())))
        .collect();
    if plans.len() > MOST_PLANS {
        plans.sort();
        for (_, path) in &plans[..plans.len() / 2] {
            let _ = fs::remove_file(path);
        }
    }
}

/// Removes the image of this start: it could not be carried out.
pub(super) fn forget(command: usize) {
    if let Some((_, path)) = place(command) {
        let _ = fs::remove_file(path);
    }
}
