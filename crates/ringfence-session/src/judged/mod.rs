//! What is put into a tree for a program from outside (a commit, a revert), judged before it is: nothing that a program of
//! the host runs or trusts by itself. What a run makes is judged at its end, by the same list. A session's gateway reverts
//! during its run, which may change what is there after the look: then it is the sweep at the end of the run that holds.

mod leads;
mod named;
mod names;
mod repository;

pub(crate) use names::Names;

use crate::error::Result;
use crate::snapshot::beneath::{self, shown, split};
use crate::snapshot::entry::Kind;
use ringfence_policy::Guarded;
use ringfence_policy::git_everywhere::Everywhere;
use ringfence_policy::gitconfig::{Executes, Unread, executes_in};
use ringfence_policy::gitread::{MOST, MOST_STATE, Pass, Said, Unknown};
use ringfence_policy::gitstate::{self, Content};
use ringfence_policy::guard::Standing;
use ringfence_policy::path::normal;
use ringfence_policy::protect::{
    git_bare_worktree, git_common_allowed, git_file_target, git_link_allowed,
};
use rustix::fd::BorrowedFd;
use std::cell::{Cell, OnceCell};
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// The largest of git's own files that is judged: an index with millions of names.
const MOST_OF_STATE: u64 = 1 << 28;

/// One path that is to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item<'a> {
    /// Relative to the tree.
    pub path: &'a [u8],
    /// What will be there; `None`: nothing.
    pub kind: Option<Kind>,
    /// What is there now.
    pub was: Option<Kind>,
}

/// Reads what is to be written, by its number.
pub(crate) trait Source {
    /// The bytes of a file that has no more than these.
    fn bytes(&self, number: usize, most: u64) -> Result<Option<Vec<u8>>>;
    /// Where a link leads.
    fn target(&self, number: usize) -> Result<Option<Vec<u8>>>;
}

/// Something that is not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// Why, as the end of a sentence.
    pub why: String,
    /// How many bytes of the path are what is protected; the rest lies below it.
    pub protected: usize,
}

impl Held {
    /// The path itself.
    pub fn itself(path: &[u8], why: String) -> Held {
        Held { why, protected: path.len() }
    }
}

/// A tree, and what is to be written to it.
pub(crate) struct Judge<'a> {
    /// Its path.
    pub root: &'a Path,
    /// It, opened.
    pub host: BorrowedFd<'a>,
    /// What is looked for.
    pub names: &'a Names,
    /// All that is to be written, parents before what is in them.
    pub items: &'a [Item<'a>],
    /// What it is.
    pub source: &'a dyn Source,
    /// The numbers of the items, by their paths.
    known: HashMap<&'a [u8], usize>,
    /// What may yet be read of git's configuration, and bytes of what git keeps for itself.
    pass: Pass,
    state: Cell<u64>,
    /// What the user's own configuration of git names in each repository.
    everywhere: OnceCell<Vec<Everywhere>>,
}

/// What is to be done with an item, by what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It executes nothing.
    Harmless,
    /// It may.
    Held,
    /// It could, since it is not known what it says.
    Unknown(Unknown),
}

impl Verdict {
    fn of(harmless: bool) -> Verdict {
        if harmless { Verdict::Harmless } else { Verdict::Held }
    }

    /// What is said of it behind why something counts as protected; `None` where it may be made.
    pub fn held(self) -> Option<String> {
        match self {
            Verdict::Harmless => None,
            Verdict::Held => Some(String::new()),
            Verdict::Unknown(why) => Some(format!(", and it {}", why.text().0)),
        }
    }
}

impl<'a> Judge<'a> {
    /// One of these; the fields say what is what.
    pub fn new(
        (root, host): (&'a Path, BorrowedFd<'a>),
        names: &'a Names,
        items: &'a [Item<'a>],
        source: &'a dyn Source,
    ) -> Judge<'a> {
        let known = items.iter().enumerate().map(|(number, item)| (item.path, number)).collect();
        let (pass, state) = (Pass::default(), Cell::new(MOST_STATE));
        let everywhere = OnceCell::new();
        Judge { root, host, names, items, source, known, pass, state, everywhere }
    }

    /// Says of each item that is not held yet whether it is.
    pub fn judge(&self, held: &mut [Option<Held>]) -> Result<()> {
        for (number, held) in held.iter_mut().enumerate().filter(|(_, held)| held.is_none()) {
            *held = self.by_name(number)?;
        }
        repository::judge(self, held)?;
        named::judge(self, held);
        self.around(held);
        Ok(())
    }

    /// By the names on the list.
    fn by_name(&self, number: usize) -> Result<Option<Held>> {
        let item = &self.items[number];
        let path = Path::new(OsStr::from_bytes(item.path));
        let parts: Vec<&OsStr> = path.iter().collect();
        let git = parts.last().is_some_and(|last| *last == ".git");
        let link = item.kind == Some(Kind::Symlink);
        for (start, name, standing) in self.names.met(&parts) {
            match standing {
                Standing::Within(length) => {
                    let rest: PathBuf = parts[start + length..].iter().collect();
                    if let Some(more) = self.verdict(number, name.guarded, &rest)?.held() {
                        let protected = length_of(&parts[..start + length]);
                        let why = format!("{} is a protected name{more}", name.name);
                        return Ok(Some(Held { why, protected }));
                    }
                }
                // A program of the host would follow it to something that has another name here.
                Standing::OnTheWay if link && !git && name.guarded != Guarded::ExistingOnly => {
                    let why =
                        format!("it leads to where {}, a protected name, is looked for", name.name);
                    return Ok(Some(Held::itself(item.path, why)));
                }
                _ => {}
            }
        }
        let inner = parts.iter().rposition(|part| *part == ".git").map(|at| &parts[at + 1..]);
        if link && inner.is_some_and(is_written_over) && !self.names.is_empty() {
            return Ok(Some(Held::itself(item.path, WRITTEN_OVER.to_owned())));
        }
        // A `.git` that is no directory leads git to a repository elsewhere.
        if git && !self.names.is_empty() && item.kind.is_some_and(|kind| kind != Kind::Directory) {
            let target = match item.kind {
                Some(Kind::Symlink) => self.source.target(number)?,
                _ => self
                    .text(number)?
                    .bytes()
                    .and_then(|text| Some(git_file_target(&text)?.as_os_str().as_bytes().to_vec())),
            };
            let full = self.root.join(path);
            let base = full.parent().unwrap_or(&full);
            let target = target.map(|target| base.join(OsStr::from_bytes(&target)));
            let allowed = |target: PathBuf| {
                let plain = normal(&target);
                let allowed = git_link_allowed(&plain) || git_bare_worktree(&plain, self.root);
                allowed && self.leads_straight(&target)
            };
            if !target.is_some_and(allowed) {
                let why = ".git leads to a repository that is not protected".to_owned();
                return Ok(Some(Held::itself(item.path, why)));
            }
        }
        Ok(None)
    }

    /// Whether an item executes nothing; `rest` is what of its path lies below what is guarded so.
    pub(crate) fn verdict(&self, number: usize, guarded: Guarded, rest: &Path) -> Result<Verdict> {
        let item = &self.items[number];
        let itself = rest.as_os_str().is_empty();
        let verdict = match (guarded, item.kind) {
            (Guarded::GitConfig, None) => true,
            // A directory of that name is a submodule's.
            (Guarded::GitState, None | Some(Kind::Directory)) => true,
            (Guarded::GitState, _) if !itself => true,
            (Guarded::GitState, Some(Kind::File)) => {
                let bytes = self.state(|most| self.source.bytes(number, most))?;
                let hash = self.hash_length(item.path)?;
                bytes.is_some_and(|bytes| is_gits_own(item.path, hash, &bytes))
            }
            (Guarded::GitConfig | Guarded::GitCommon, Some(Kind::File)) if itself => {
                return Ok(match self.text(number)? {
                    Said::Bytes(text) => self.says(guarded, item.path, &text),
                    Said::Unknown(why) => Verdict::Unknown(why),
                    Said::Nothing => Verdict::Held,
                });
            }
            // Git removes a worktree with all that it kept of it; by itself a worktree would be a repository.
            (Guarded::GitCommon, None) if itself => self.goes(split(item.path).0),
            (Guarded::GitConfig | Guarded::GitCommon, _) => false,
            _ => harmless(guarded, item.path, item.kind, itself),
        };
        Ok(Verdict::of(verdict))
    }

    /// Whether a directory is removed.
    fn goes(&self, path: &[u8]) -> bool {
        self.known.get(path).is_some_and(|&number| self.items[number].kind.is_none())
    }

    /// The text of an item that is a file.
    fn text(&self, number: usize) -> Result<Said> {
        let mut failure = None;
        let said = self.pass.read(|| match self.source.bytes(number, MOST) {
            Ok(Some(bytes)) => Said::Bytes(bytes),
            Ok(None) => Said::Unknown(Unknown::Large),
            Err(error) => {
                failure = Some(error);
                Said::Nothing
            }
        });
        failure.map_or(Ok(said), Err)
    }

    /// The text of a file that is there.
    fn on_host(&self, path: &[u8]) -> Option<Vec<u8>> {
        let read = || match opened(self.host, path) {
            Some(file) => whole(file, MOST).map_or(Said::Unknown(Unknown::Large), Said::Bytes),
            None => Said::Nothing,
        };
        self.pass.read(read).bytes()
    }

    /// The bytes of one of git's own files, which are read so with no more than may yet be read.
    fn state(&self, read: impl FnOnce(u64) -> Result<Option<Vec<u8>>>) -> Result<Option<Vec<u8>>> {
        let most = self.state.get().min(MOST_OF_STATE);
        let bytes = read(most)?;
        // What is too large was read up to there.
        let read = bytes.as_ref().map_or(most, |bytes| bytes.len() as u64);
        self.state.set(self.state.get() - read);
        Ok(bytes)
    }

    /// How long the hashes of an index are, by the configuration that will be beside it.
    fn hash_length(&self, index: &[u8]) -> Result<usize> {
        let common = |path: &Path| match self.known.get(path.as_os_str().as_bytes()) {
            Some(&number) => self.items[number].kind.is_some(),
            None => self.root.join(path).symlink_metadata().is_ok(),
        };
        let path = gitstate::configuration(&shown(index), common);
        let path = path.as_os_str().as_bytes();
        // One that is not made leaves the one that is there.
        let new = match self.known.get(path) {
            Some(&number) if self.items[number].kind == Some(Kind::File) => {
                self.text(number)?.bytes()
            }
            _ => None,
        };
        let new = new.filter(|text| self.says_nothing(Guarded::GitConfig, path, text));
        let text = new.or_else(|| self.on_host(path));
        Ok(gitstate::hash_length(text))
    }

    /// Whether git runs nothing for what a file says.
    fn says_nothing(&self, guarded: Guarded, path: &[u8], text: &[u8]) -> bool {
        self.says(guarded, path, text) == Verdict::Harmless
    }

    fn says(&self, guarded: Guarded, path: &[u8], text: &[u8]) -> Verdict {
        let path = self.root.join(shown(path));
        if guarded == Guarded::GitCommon {
            let target = git_common_allowed(&path, text);
            return Verdict::of(target.is_some_and(|target| self.leads_straight(&target)));
        }
        let directory = path.parent().unwrap_or(&path);
        match executes_in(text, directory, None) {
            Some(Executes::Unread(Unread::Unknown(why))) => Verdict::Unknown(why),
            executes => Verdict::of(executes.is_none()),
        }
    }

    /// Whether a path leads over no link in the tree, of those that are there or are to be written.
    fn leads_straight(&self, path: &Path) -> bool {
        let is_link = |at: &Path| {
            let Ok(below) = at.strip_prefix(self.root) else { return false };
            let below = below.as_os_str().as_bytes();
            match self.known.get(below) {
                Some(&number) => self.items[number].kind == Some(Kind::Symlink),
                None => at.is_symlink(),
            }
        };
        let mut at = PathBuf::new();
        path.components().all(|component| {
            match component {
                Component::ParentDir => drop(at.pop()),
                component => at.push(component),
            }
            !is_link(&at)
        })
    }

    /// What holds something that stays must stay, and nothing is put into what is not made.
    fn around(&self, held: &mut [Option<Held>]) {
        let kept: BTreeSet<&[u8]> = self
            .items
            .iter()
            .zip(held.iter())
            .filter_map(|(item, held)| held.as_ref().map(|_| item.path))
            .collect();
        for (item, held) in self.items.iter().zip(held).filter(|(_, held)| held.is_none()) {
            let goes = item.was == Some(Kind::Directory) && item.kind != Some(Kind::Directory);
            let first = [item.path, b"/"].concat();
            let within = kept.range(&first[..]..).next().filter(|path| path.starts_with(&first));
            let why = match within {
                Some(path) if goes => Some(format!("{} in it stays", shown(path).display())),
                _ => above(item.path)
                    .find(|above| kept.contains(above))
                    .map(|above| format!("{} is not made", shown(above).display())),
            };
            *held = why.map(|why| Held::itself(item.path, why));
        }
    }
}

/// Why no link is made in a repository.
const WRITTEN_OVER: &str = "git would write to where it leads";

/// Whether git writes by a name in a repository, over a link as well. Hooks are judged by themselves.
fn is_written_over(inner: &[&OsStr]) -> bool {
    inner.first().is_some_and(|first| *first != "hooks")
}

/// Whether git itself could have written one of its own files so.
fn is_gits_own(path: &[u8], hash: usize, bytes: &[u8]) -> bool {
    let mut read_at = |at: u64, into: &mut [u8]| {
        let from = usize::try_from(at).ok().and_then(|at| bytes.get(at..)).unwrap_or_default();
        let length = from.len().min(into.len());
        into[..length].copy_from_slice(&from[..length]);
        Ok(length)
    };
    let content = Content { size: bytes.len() as u64, read_at: &mut read_at };
    gitstate::judge(&shown(path), hash, content).is_ok()
}

/// Whether what is there executes nothing, whatever it says.
fn harmless(guarded: Guarded, path: &[u8], kind: Option<Kind>, itself: bool) -> bool {
    match guarded {
        // Only what exists is protected; a new one is the program's own business.
        Guarded::ExistingOnly => true,
        Guarded::Program => !itself || matches!(kind, None | Some(Kind::Directory)),
        Guarded::GitHooks if itself => kind == Some(Kind::Directory),
        // A directory of that name could be a repository.
        Guarded::GitHooks => path.ends_with(b".sample") && matches!(kind, None | Some(Kind::File)),
        _ => false,
    }
}

/// The bytes of a small file in an open tree.
pub(crate) fn small(tree: BorrowedFd<'_>, path: &[u8], most: u64) -> Option<Vec<u8>> {
    whole(opened(tree, path)?, most)
}

fn opened(tree: BorrowedFd<'_>, path: &[u8]) -> Option<OwnedFd> {
    let (parent, name) = split(path);
    let parent = beneath::open_directory(tree, parent).ok()?;
    beneath::open_file(&parent, name).ok()
}

/// The bytes of an open file, if it is small.
pub(crate) fn whole(file: OwnedFd, most: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = std::fs::File::from(file).take(most + 1).read_to_end(&mut bytes);
    (read.is_ok() && bytes.len() as u64 <= most).then_some(bytes)
}

/// The directories above a path, the nearest first, the tree's own last.
fn above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors((!path.is_empty()).then(|| split(path).0), |path| {
        (!path.is_empty()).then(|| split(path).0)
    })
}

/// The bytes of these components as a path.
fn length_of(parts: &[&OsStr]) -> usize {
    parts.iter().map(|part| part.len() + 1).sum::<usize>().saturating_sub(1)
}
