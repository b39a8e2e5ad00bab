//! What no commit makes: what is protected in a writable tree without an overlay is protected
//! here too, by the same list, which the planner made and the record holds.

use super::layer::{Change, Trouble, failed};
use super::record::{Guard, Record, Tree};
use crate::error::Result;
use crate::judged::{self, Held, Item, Judge, Names, Source, Verdict};
use crate::snapshot::What;
use crate::snapshot::beneath::{self, shown, split};
use crate::snapshot::entry::Kind;
use ringfence_policy::Guarded;
use rustix::fd::{AsFd, OwnedFd};

/// Marks what is protected, and what cannot be done without it.
pub(super) fn judge(
    record: &Record,
    tree: &Tree,
    (upper, lower): (&OwnedFd, &OwnedFd),
    temporary: &[u8],
    changes: &mut [Change],
) -> Result<()> {
    let items: Vec<Item<'_>> = changes.iter().map(item).collect();
    let layer = Layer { upper, items: &items };
    let all = record.names.iter().filter(|names| names.tree == tree.path);
    let of = |list: &[(String, String)]| -> Vec<(String, Guarded)> {
        list.iter().map(|(name, word)| (name.clone(), guarded(word))).collect()
    };
    let names = Names::new(
        all.clone().flat_map(|names| of(&names.top)),
        all.flat_map(|names| of(&names.nested)),
    );
    let host = lower.as_fd();
    let judge = Judge::new((tree.root(), host), &names, &items, &layer);
    let mut held = Vec::with_capacity(items.len());
    for (number, change) in changes.iter().enumerate() {
        let why = match &change.trouble {
            Some(Trouble::Left(why)) => Some(why.clone()),
            _ if split(&change.path).1 == temporary => {
                Some("the name is used by the commit".to_owned())
            }
            _ => by_path(record, tree, &judge, number)?,
        };
        held.push(why.map(|why| Held::itself(&change.path, why)));
    }
    judge.judge(&mut held)?;
    for (change, held) in changes.iter_mut().zip(held) {
        if let Some(held) = held {
            change.trouble = Some(Trouble::Left(held.why));
        }
    }
    Ok(())
}

fn item(change: &Change) -> Item<'_> {
    let was = match change.what {
        What::Added => None,
        What::Kind if change.directory_before => Some(Kind::Directory),
        // What it was of the others makes no difference.
        What::Kind => Some(Kind::Foreign),
        _ => Some(change.kind),
    };
    let kind = (change.what != What::Deleted).then_some(change.kind);
    Item { path: &change.path, kind, was }
}

/// By the word of the policy. One that is not known is one of a later ringfence's: nothing of it is harmless.
fn guarded(word: &str) -> Guarded {
    serde_json::from_value(word.into()).unwrap_or_default()
}

/// The protected path that this is, or is on the way to.
fn by_path(
    record: &Record,
    tree: &Tree,
    judge: &Judge<'_>,
    number: usize,
) -> Result<Option<String>> {
    let item = &judge.items[number];
    let path = tree.root().join(shown(item.path));
    for guard in &record.guards {
        let how = guarded(&guard.guarded);
        if let Ok(rest) = path.strip_prefix(&guard.path) {
            // Of what is there by itself only a worktree's may go (`Judge::verdict`).
            let goes = how == Guarded::GitCommon && item.kind.is_none();
            let verdict = match guard.present && !goes {
                true => Verdict::Held,
                false => judge.verdict(number, how, rest)?,
            };
            if let Some(more) = verdict.held() {
                return Ok(Some(said(guard) + &more));
            }
        } else if item.kind == Some(Kind::Symlink)
            && guard.path.starts_with(&path)
            && how != Guarded::ExistingOnly
        {
            return Ok(Some(format!("it leads to where something {}", said(guard))));
        }
    }
    Ok(None)
}

fn said(guard: &Guard) -> String {
    format!("it is protected ({})", guard.rule)
}

/// What the changes are, read from the layer.
struct Layer<'a> {
    upper: &'a OwnedFd,
    items: &'a [Item<'a>],
}

impl Source for Layer<'_> {
    fn bytes(&self, number: usize, most: u64) -> Result<Option<Vec<u8>>> {
        Ok(judged::small(self.upper.as_fd(), self.items[number].path, most))
    }

    fn target(&self, number: usize) -> Result<Option<Vec<u8>>> {
        let path = self.items[number].path;
        let (parent, name) = split(path);
        let at = |error| failed("readlink", path, error);
        let parent = beneath::open_directory(self.upper.as_fd(), parent).map_err(at)?;
        Ok(Some(rustix::fs::readlinkat(&parent, name, Vec::new()).map_err(at)?.into_bytes()))
    }
}
