//! What repositories below the top of a tree name in their configuration (hooks, further configuration, programs), and
//! where links lead that stand at protected names: as the host has them. What is to be written of such a configuration
//! names nothing that is run. What is named at the top is known by its path.

use super::leads::{Leads, Named, is_behind};
use super::{Held, Judge, above};
use crate::snapshot::beneath::{self, shown};
use crate::snapshot::entry::Kind;
use ringfence_policy::files::is_program;
use ringfence_policy::git_everywhere::{Everywhere, everywhere};
use ringfence_policy::gitnamed::Reader;
use ringfence_policy::gitread::{NotKnown, Pass, Said, read_for};
use ringfence_policy::guard::Standing;
use ringfence_policy::{Guarded, HostFiles, Resolver, home_of};
use rustix::fs::{Dir, FileType};
use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Entries of a tree that are walked through for what directories in it name outside of themselves.
const MOST_WALKED: usize = 50_000;

/// Holds what is named.
pub(super) fn judge(judge: &Judge<'_>, held: &mut [Option<Held>]) {
    if judge.names.git.is_empty() {
        return;
    }
    let mut known: HashMap<&[u8], Leads> = HashMap::new();
    let mut elsewhere: Option<Leads> = None;
    for (number, held) in held.iter_mut().enumerate().filter(|(_, held)| held.is_none()) {
        let item = &judge.items[number];
        if matches!(item.kind, None | Some(Kind::Directory)) {
            continue;
        }
        let path = judge.root.join(shown(item.path));
        let link = item.kind == Some(Kind::Symlink);
        let runs = |(named, guarded, _): &Named| match guarded {
            _ if link && named.starts_with(&path) => true,
            Guarded::GitHooks if path != *named && path.starts_with(named) => {
                !item.path.ends_with(b".sample")
            }
            Guarded::GitConfig if path == *named => {
                let text = judge.text(number).ok().and_then(Said::bytes);
                text.is_none_or(|text| !judge.says_nothing(*guarded, item.path, &text))
            }
            Guarded::ExistingOnly | Guarded::Program | Guarded::GitHooks => path == *named,
            _ => is_behind(named, &path),
        };
        for directory in above(item.path).filter(|directory| !directory.is_empty()) {
            let all = known.entry(directory);
            let all = all.or_insert_with(|| Leads::of(named_in(judge, directory)));
            if let Some((_, _, by)) = all.find(&path, link, runs) {
                *held = Some(Held::itself(item.path, format!("{by} leads to it")));
                break;
            }
        }
        let elsewhere = elsewhere.get_or_insert_with(|| Leads::of(named_around(judge)));
        if held.is_none()
            && let Some((_, _, by)) = elsewhere.find(&path, link, runs)
        {
            *held = Some(Held::itself(item.path, format!("{by} leads to it")));
        }
    }
}

/// What is named in directories of the tree that lies outside of them, as far as a walk comes, the nearest first.
fn named_around(judge: &Judge<'_>) -> Vec<Named> {
    let (mut all, mut left) = (behind_links(judge, judge.root, true), MOST_WALKED);
    let mut queue = VecDeque::from([Vec::new()]);
    while let Some(directory) = queue.pop_front() {
        let Ok(opened) = beneath::open_directory(judge.host, &directory) else { continue };
        let Ok(entries) = Dir::read_from(&opened) else { continue };
        let mut names_something = false;
        for entry in entries.flatten() {
            let Some(rest) = left.checked_sub(1_usize) else { break };
            left = rest;
            let (name, kind) = (entry.file_name().to_bytes(), entry.file_type());
            names_something |= name == b".git"
                || kind != FileType::RegularFile && is_protected(judge, OsStr::from_bytes(name))
                || matches!(kind, FileType::Symlink | FileType::Unknown)
                    && !judge.names.beyond(OsStr::from_bytes(name), false).is_empty();
            // What is none is not opened as one.
            let inner = matches!(kind, FileType::Directory | FileType::Unknown);
            if inner && ![&b"."[..], b"..", b".git"].contains(&name) {
                queue.push_back(beneath::join(&directory, name));
            }
        }
        if names_something && !directory.is_empty() {
            let at = judge.root.join(shown(&directory));
            let outside =
                |(path, ..): &Named| path.starts_with(judge.root) && !path.starts_with(&at);
            all.extend(named_in(judge, &directory).into_iter().filter(outside));
        }
    }
    all
}

/// What is named in a directory.
fn named_in(judge: &Judge<'_>, directory: &[u8]) -> Vec<Named> {
    let at = judge.root.join(shown(directory));
    let mut all = Vec::new();
    let git = at.join(".git");
    let mut hooks = vec![git.join("hooks")];
    let files = match git.symlink_metadata() {
        Ok(data) if data.is_dir() => Ok(vec![git.join("config"), git.join("config.worktree")]),
        Ok(data) if data.is_file() => reader(&judge.pass).of_worktree(&at).map(|found| {
            let of = |(common, own): (PathBuf, PathBuf)| {
                vec![common.join("config"), own.join("config.worktree")]
            };
            found.map(of).unwrap_or_default()
        }),
        _ => Ok(Vec::new()),
    };
    let known = files.and_then(|files| {
        reader(&judge.pass).each(files, &at, &home, |file, setting, path, guarded| {
            let by = format!("{} of {}", setting.key(), file.display());
            all.extend(led_to(path, guarded, &by));
            all.push((path.to_owned(), guarded, by));
            if guarded == Guarded::GitHooks {
                hooks.push(path.to_owned());
            }
        })
    });
    if let Err(unknown) = known {
        all.push(anything(judge, &unknown));
    }
    if git.symlink_metadata().is_ok() {
        for one in users(judge) {
            let (path, by) = (at.join(&one.path), format!("{}", one.by.display()));
            all.extend(led_to(&path, one.guarded, &by));
            all.push((path, one.guarded, by));
        }
    }
    let hooks = hooks.iter().flat_map(|directory| links(directory));
    for link in hooks.chain(named_links(judge, &at)) {
        if link.is_file() {
            all.extend(led_to(&link, Guarded::Plain, &format!("the link {}", link.display())));
        }
    }
    all.extend(behind_links(judge, &at, false));
    all.extend(linked_directories(judge, &at));
    all
}

/// What the user's own configuration names in each repository.
fn users<'j>(judge: &'j Judge<'_>) -> &'j [Everywhere] {
    judge.everywhere.get_or_init(|| {
        let found = home("")
            .map(|home| everywhere(&home, &|name| std::env::var_os(name), &reader(&judge.pass)));
        found.unwrap_or_default()
    })
}

/// Directories that links at protected names lead to: all that is in one has that name.
fn linked_directories(judge: &Judge<'_>, at: &Path) -> Vec<Named> {
    let mut all = Vec::new();
    for entry in at.read_dir().into_iter().flatten().flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        let itself = is_protected(judge, &name).then(|| (path.clone(), Guarded::Plain));
        let beyond = judge.names.beyond(&name, false).into_iter();
        let beyond = beyond.map(|(rest, name)| (path.join(rest), name.guarded));
        for (link, guarded) in itself.into_iter().chain(beyond) {
            let whole = matches!(guarded, Guarded::Plain | Guarded::GitHooks);
            if whole && link.is_symlink() && link.is_dir() {
                all.extend(led_to(&link, guarded, &format!("the link {}", link.display())));
            }
        }
    }
    all
}

/// Where names are looked for that begin with a link in a directory, and the links by which it leads there. These may be
/// patterns.
fn behind_links(judge: &Judge<'_>, at: &Path, top: bool) -> Vec<Named> {
    let mut all = Vec::new();
    for link in links(at) {
        let name = link.file_name().filter(|name| *name != ".git").unwrap_or_default();
        let beyond = judge.names.beyond(name, top);
        if beyond.is_empty() || !link.is_dir() {
            continue;
        }
        let by = format!("the link {}", link.display());
        let led_to = led_to(&link, Guarded::ExistingOnly, &by);
        let Some((real, ..)) = led_to.last() else { continue };
        let guarded = beyond.iter().map(|(rest, name)| (real.join(rest), name.guarded));
        let guarded = guarded.filter(|(_, guarded)| *guarded != Guarded::ExistingOnly);
        all.extend(guarded.map(|(path, guarded)| (path, guarded, by.clone())));
        all.extend(led_to.into_iter().filter(|(_, guarded, _)| *guarded == Guarded::Plain));
    }
    all
}

/// What a path leads to, and the links by which it does.
fn led_to(path: &Path, guarded: Guarded, by: &str) -> Vec<Named> {
    let Ok(real) = Resolver::new(&HostFiles).real(path) else { return Vec::new() };
    let links = real.links.into_iter().map(|(link, _)| (link, Guarded::Plain));
    links.chain([(real.path, guarded)]).map(|(at, how)| (at, how, by.to_owned())).collect()
}

/// Links at protected names in a directory, and in the directories that have such.
fn named_links(judge: &Judge<'_>, at: &Path) -> Vec<PathBuf> {
    let entries = at.read_dir().into_iter().flatten().flatten();
    let protected = entries.filter(|entry| is_protected(judge, &entry.file_name()));
    let links_of = |entry: std::fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_symlink() => vec![entry.path()],
        Ok(kind) if kind.is_dir() => links(&entry.path()),
        _ => Vec::new(),
    };
    protected.flat_map(links_of).collect()
}

/// Whether a name in a directory is protected, with all that is in it.
fn is_protected(judge: &Judge<'_>, name: &OsStr) -> bool {
    name != ".git"
        && judge.names.met(&[name]).any(|(_, _, standing)| standing == Standing::Within(1))
}

fn links(directory: &Path) -> Vec<PathBuf> {
    let entries = directory.read_dir().into_iter().flatten().flatten();
    let links = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
    links.map(|entry| entry.path()).collect()
}

/// A configuration that cannot be read could name all that is in the tree.
fn anything(judge: &Judge<'_>, (file, why): &NotKnown) -> Named {
    let (why, remedy) = why.text();
    let by = format!("perhaps {}, which {why} ({remedy}),", file.display());
    (judge.root.to_owned(), Guarded::Plain, by)
}

fn reader(pass: &Pass) -> Reader<'_> {
    Reader { real: &|path| path.canonicalize().ok(), text: &text, program: &is_program, pass }
}

/// What a configuration says.
fn text(path: &Path) -> Said {
    read_for(rustix::process::geteuid().as_raw(), &HostFiles, path)
}

/// The home of a user by his name; of the caller, without one.
fn home(user: &str) -> Option<PathBuf> {
    match user {
        "" => std::env::var_os("HOME").map(PathBuf::from),
        user => home_of(&std::fs::read("/etc/passwd").ok()?, user),
    }
}
