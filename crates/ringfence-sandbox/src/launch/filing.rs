//! Which plans are kept for the next start, and with what.

use super::brief::{Brief, brief};
use super::compile::Filed;
use super::{Order, cache};
use crate::cover::Cover;
use crate::guard::{Guarding, Saved};
use crate::inputs::Inputs;
use crate::plan::{LimitStep, Plan};
use ringfence_start::before::MOST_NOTES;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// What the launcher needs of a plan while the command runs.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Kept {
    /// The plan, without what only the child needs.
    pub plan: Plan,
    /// What was saved of guarded paths.
    pub saved: Vec<Saved>,
    /// The mounts that depend on names of the host's.
    pub covers: Vec<Cover>,
}

/// An image larger than this is not worth keeping.
const LARGEST: usize = 1 << 20;

/// A place in the cache for this start.
pub(super) struct Filing<'a> {
    key: Vec<u8>,
    path: PathBuf,
    plan: &'a Plan,
    order: &'a Order,
    inputs: &'a Inputs,
    saved: Vec<Saved>,
    notes: Vec<PathBuf>,
    /// From when on something may have changed without a sign.
    since: u64,
}

/// What is kept there beside the plan.
pub(super) struct Record<'a> {
    key: &'a [u8],
    inputs: &'a Inputs,
    words: &'a [OsString],
    notes: Vec<PathBuf>,
    announce: String,
    brief: Option<Brief>,
    extra: Vec<u8>,
}

/// A place for this start, if its plan can be used again. What has to be looked at before the command runs is looked at;
/// the rest is [`Filing::record`], which takes longer.
pub(super) fn filing<'a>(
    plan: &'a Plan,
    order: &'a Order,
    inputs: &'a Inputs,
    guarding: &Guarding,
) -> Option<Filing<'a>> {
    let (key, path) = cache::place(order.place?)?;
    // Groups are made for each run.
    let assisted =
        |limit: &LimitStep| matches!(limit, LimitStep::Cgroup { .. } | LimitStep::CgroupV1 { .. });
    if plan.limits.iter().any(assisted) {
        return None;
    }
    // So are the certificates of a network whose requests are looked at.
    if order.filter.as_ref().is_some_and(|filter| filter.inspection.is_some()) {
        return None;
    }
    // Whether a call is listed is in the plan, which is not kept whole.
    if plan.allowed_calls.as_ref().is_some_and(crate::ask::asks) {
        return None;
    }
    // Layers are the session's own.
    if plan.overlaid().next().is_some() {
        return None;
    }
    // What another run found says nothing of later ones.
    if guarding.inherits() {
        return None;
    }
    let (saved, notes) = guarding.kept();
    for (step, saved) in plan.guards.iter().zip(&saved) {
        note_content(inputs, &step.path, saved);
    }
    let since = u64::try_from(guarding.since()).ok()?;
    let few = notes.len() <= MOST_NOTES && plan.guarded_trees.len() <= ringfence_start::tops::MOST;
    few.then_some(Filing { key, path, plan, order, inputs, saved, notes, since })
}

/// What was saved must be what is there at a later start.
fn note_content(inputs: &Inputs, path: &Path, saved: &Saved) {
    if *saved == Saved::Unknown {
        inputs.fleeting("a guarded path that is neither file nor directory");
    }
    inputs.content(path);
    if let Saved::Directory(entries) = saved {
        for (name, saved) in entries {
            note_content(inputs, &path.join(name), saved);
        }
    }
}

/// Directories to note, with those that tell whether a mount's name was replaced; whether there is room for them all.
fn with_parents(notes: &[PathBuf], covers: &[Cover]) -> (Vec<PathBuf>, bool) {
    let parents = covers.iter().filter_map(|cover| cover.path.parent());
    let all: BTreeSet<&Path> = notes.iter().map(PathBuf::as_path).chain(parents).collect();
    match all.len() <= MOST_NOTES {
        true => (all.into_iter().map(Path::to_path_buf).collect(), true),
        false => (notes.to_vec(), false),
    }
}

impl Filing<'_> {
    /// What is kept, if stamps can hold all that the plan was derived from. The child has no use for it, and builds the
    /// sandbox meanwhile.
    pub fn record(&self) -> Option<Record<'_>> {
        let Filing { plan, order, .. } = self;
        if !cache::checkable(self.inputs, self.since) {
            return None;
        }
        let covers = crate::cover::covers(&plan.mounts);
        let (notes, all) = with_parents(&self.notes, &covers);
        let kept = Kept { plan: plan.lean(), saved: self.saved.clone(), covers };
        let mut extra = Vec::with_capacity(32 << 10);
        serde_json::to_writer(&mut extra, &kept).ok()?;
        Some(Record {
            key: &self.key,
            inputs: self.inputs,
            words: &order.argv,
            announce: plan.announcement(),
            brief: all.then(|| brief(plan, order, &self.saved, &notes)).flatten(),
            notes,
            extra,
        })
    }

    /// Writes the image. A launcher that would find it unreadable could not go back, as its command runs already.
    pub fn store(&self, record: &Record<'_>, image: &[u8]) {
        if image.len() <= LARGEST && serde_json::from_slice::<Kept>(&record.extra).is_ok() {
            cache::store(&self.path, image);
        }
    }

    /// Takes it back: it could not be carried out.
    pub fn forget(&self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Record<'_> {
    /// What goes into the image.
    pub fn filed(&self) -> Filed<'_> {
        Filed {
            key: self.key,
            inputs: self.inputs,
            words: self.words,
            notes: &self.notes,
            announce: &self.announce,
            brief: self.brief.as_ref(),
            extra: &self.extra,
        }
    }
}
