//! `--strict`: refuses the call that would make a protected name.
//!
//! The calls that make names wait for the launcher (seccomp notification), which looks at what they
//! name and lets them go on, or not. A program whose threads change the words meanwhile, or whose
//! directories move, can get past this look: what it makes is taken away then, as it is without
//! `--strict`. So nothing is weaker for it, and an honest program is told at the call.

use crate::metadata::open_text;
use crate::plan::{Found, GuardedTree, Plan};
use crate::planner::glob;
use ringfence_policy::Guarded;
use ringfence_sys as sys;
use std::collections::BTreeSet;
use std::ffi::{CString, OsStr};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use sys::caller::read_text;
use sys::fd::CWD;
use sys::notify::{self, Notification};
use sys::{Errno, Sysno};

const O_CREAT: u64 = 0o100;
const O_EXCL: u64 = 0o200;
const O_NOFOLLOW: u64 = ringfence_start::flags::NO_FOLLOW as u64;
const RENAME_EXCHANGE: u64 = 2;
/// Links that are followed from a name to the file that is made.
const MOST_LINKS: usize = 40;
/// Refusals that are told.
const MOST_TOLD: usize = 16;

/// The calls that make names, and the argument with the flags of those that may.
pub(crate) const CALLS: [(&str, Option<u8>); 14] = [
    ("open", Some(1)),
    ("openat", Some(2)),
    ("creat", None),
    ("mkdir", None),
    ("mkdirat", None),
    ("mknod", None),
    ("mknodat", None),
    ("symlink", None),
    ("symlinkat", None),
    ("link", None),
    ("linkat", None),
    ("rename", None),
    ("renameat", None),
    ("renameat2", None),
];

/// What may not be made.
#[derive(Debug)]
pub(crate) struct Creations {
    trees: Vec<GuardedTree>,
    paths: Vec<(PathBuf, Guarded)>,
    told: BTreeSet<PathBuf>,
}

/// How a name is made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// As a file; a link in its place is followed.
    Through,
    /// As what it is.
    Itself,
    /// As an empty directory.
    Directory,
    /// With all that is in it.
    Moved,
}

/// A name that a call makes: the directory's descriptor, and where the path is in memory.
type Name = (i32, u64, How);

impl Creations {
    /// By a plan that wants it.
    pub fn of(plan: &Plan) -> Option<Creations> {
        let absent = plan.guards.iter().filter(|step| step.found == Found::Absent);
        plan.strict.then(|| Creations {
            trees: plan.guarded_trees.clone(),
            paths: absent.map(|step| (step.path.clone(), step.guarded)).collect(),
            told: BTreeSet::new(),
        })
    }

    /// Whether a call is one of these.
    pub fn concerns(call: &Notification) -> bool {
        let name = Sysno::new(call.call as usize).map(|number| number.name());
        CALLS.iter().any(|(known, _)| name == Some(known))
    }

    /// Answers a call that waits.
    pub fn answer(&mut self, listener: BorrowedFd<'_>, call: &Notification) {
        let refused = names(call).into_iter().find_map(|name| self.refused(listener, call, name));
        // Gone meanwhile: nobody waits for the answer.
        let _ = match refused {
            Some(path) => {
                if self.told.len() < MOST_TOLD {
                    self.told.insert(path);
                }
                notify::finish(listener, call.id, Err(Errno::EPERM))
            }
            None => notify::go_on(listener, call.id),
        };
    }

    /// What was refused, a sentence each.
    pub fn said(&self) -> impl Iterator<Item = String> {
        self.told.iter().map(|path| {
            let path = ringfence_policy::shown::path(path);
            format!("{path} is a protected name: making it was refused (--strict)")
        })
    }

    fn refused(
        &self,
        listener: BorrowedFd<'_>,
        call: &Notification,
        (mut directory, address, how): Name,
    ) -> Option<PathBuf> {
        let mut text = read_text(listener, call, address).ok()?.into_bytes();
        // A directory that a link was found in, while the next one is looked at.
        let mut held = None;
        for _ in 0..MOST_LINKS {
            while text.len() > 1 && text.ends_with(b"/") {
                text.pop();
            }
            let cut = text.iter().rposition(|&byte| byte == b'/');
            let (parent, last) = match cut {
                Some(0) => (b"/".to_vec(), &text[1..]),
                Some(cut) => (text[..cut].to_vec(), &text[cut + 1..]),
                None => (b".".to_vec(), &text[..]),
            };
            if last.is_empty() || last == b"." || last == b".." {
                return None;
            }
            let parent = CString::new(parent).ok()?;
            let place = match &held {
                Some(held) if !text.starts_with(b"/") => {
                    sys::file::open_place(std::os::fd::AsFd::as_fd(held), &parent, true)
                }
                _ => open_text(listener, call, directory, &parent, true),
            };
            // Where the way does not exist nothing is made.
            let place = place.ok()?;
            let through = ringfence_sys::fd::through(&place);
            let name = OsStr::from_bytes(last);
            let link = (how == How::Through).then(|| std::fs::read_link(through.join(name)).ok());
            match link.flatten() {
                Some(target) => text = target.into_os_string().as_bytes().to_vec(),
                None => {
                    let path = std::fs::read_link(&through).ok()?.join(name);
                    return self.protects(&path, how).then_some(path);
                }
            }
            (held, directory) = (Some(place), CWD);
        }
        None
    }

    /// Whether a path may not be made so.
    fn protects(&self, path: &Path, how: How) -> bool {
        let names = |path: &Path| -> Vec<Vec<u8>> {
            path.iter().map(|name| name.as_bytes().to_vec()).collect()
        };
        let paths = self.paths.iter().any(|(guarded, kind)| {
            forbids(&names(guarded), &names(path), *kind, how, &|a, b| a == b)
        });
        paths
            || self.trees.iter().any(|tree| {
                let Ok(relative) = path.strip_prefix(&tree.tree) else { return false };
                let parts = names(relative);
                let top = tree.absent.iter().map(|(name, kind)| (name, kind, 1));
                let nested = tree.nested.iter().map(|(name, kind)| (name, kind, parts.len()));
                top.chain(nested).any(|(name, kind, starts)| {
                    let pattern = names(Path::new(name.as_ref()));
                    (0..starts).any(|start| {
                        forbids(&pattern, parts.get(start..).unwrap_or_default(), *kind, how, &glob)
                    })
                })
            })
    }
}

/// Whether a guarded name forbids to make a path: itself, what is in it, and a directory that is moved
/// to a place on the way to it, with whatever is in there.
fn forbids(
    guarded: &[Vec<u8>],
    path: &[Vec<u8>],
    kind: Guarded,
    how: How,
    like: &dyn Fn(&[u8], &[u8]) -> bool,
) -> bool {
    if !guarded.iter().zip(path).all(|(pattern, name)| like(pattern, name)) || path.is_empty() {
        return false;
    }
    match kind {
        Guarded::Plain | Guarded::GitHooks | Guarded::Program if path.len() < guarded.len() => {
            how == How::Moved
        }
        Guarded::Plain => true,
        Guarded::GitHooks | Guarded::Program if path.len() == guarded.len() => {
            how != How::Directory
        }
        Guarded::GitHooks => !path.last().is_some_and(|name| name.ends_with(b".sample")),
        // These are judged by what is in them, after the run.
        _ => false,
    }
}

/// The names that a call makes.
fn names(call: &Notification) -> Vec<Name> {
    let [a, b, c, d, e, _] = call.arguments;
    let open = |flags: u64| match flags & (O_EXCL | O_NOFOLLOW) {
        0 => How::Through,
        _ => How::Itself,
    };
    let name = Sysno::new(call.call as usize).map_or("", |number| number.name());
    match name {
        "open" if b & O_CREAT != 0 => vec![(CWD, a, open(b))],
        "openat" if c & O_CREAT != 0 => vec![(a as i32, b, open(c))],
        "creat" => vec![(CWD, a, How::Through)],
        "mkdir" => vec![(CWD, a, How::Directory)],
        "mkdirat" => vec![(a as i32, b, How::Directory)],
        "mknod" => vec![(CWD, a, How::Itself)],
        "mknodat" => vec![(a as i32, b, How::Itself)],
        "symlink" | "link" => vec![(CWD, b, How::Itself)],
        "symlinkat" => vec![(b as i32, c, How::Itself)],
        "linkat" => vec![(c as i32, d, How::Itself)],
        "rename" => vec![(CWD, b, How::Moved)],
        "renameat" => vec![(c as i32, d, How::Moved)],
        "renameat2" if e & RENAME_EXCHANGE != 0 => {
            vec![(c as i32, d, How::Moved), (a as i32, b, How::Moved)]
        }
        "renameat2" => vec![(c as i32, d, How::Moved)],
        _ => Vec::new(),
    }
}
