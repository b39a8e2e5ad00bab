//! The end of a run: what it created or changed at protected names is put right.

use super::quarantine::Quarantine;
use super::whereabouts::{self, Turn};
use super::work::Work;
use super::{Guarding, Said, Saved, aside, crowd, locked, notes, short, sweep, tracked};
use crate::plan::Found;
use ringfence_policy::gitread::{MOST_IN_ALL, MOST_STATE};
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Looks that take no longer are over before anybody wonders.
const PATIENCE: Duration = Duration::from_secs(1);
/// So often it is looked anew where trees are renamed meanwhile.
const TURNS: usize = 8;

impl Guarding {
    /// Puts right what the run created or changed; returns a sentence for each. Without a
    /// session (the launcher is dead) nothing is kept.
    pub fn enforce(&self, session: Option<&str>) -> Vec<String> {
        let mut said = Vec::new();
        short::begin();
        let mut places = self.whereabouts();
        for turn in 1..=TURNS {
            let elsewhere = self.elsewhere(&places);
            let guarding = elsewhere.as_ref().unwrap_or(self);
            said.extend(guarding.put_right(session));
            self.taken.set(guarding.taken.get());
            self.room.set(guarding.room.get());
            let now = self.whereabouts();
            let turn = if now == places { Turn::Settled } else { Turn::of(turn, TURNS) };
            said.extend(whereabouts::told(&places, turn));
            if turn != Turn::Again {
                break;
            }
            places = now;
        }
        said.extend(short::told());
        if session.is_some() {
            self.end();
        }
        said
    }

    /// The run has ended, and nothing is left to be put back.
    fn end(&self) {
        if !self.ended.replace(true)
            && let Some(begun) = &self.begun
        {
            begun.end();
        }
        self.word.take();
    }

    fn put_right(&self, session: Option<&str>) -> Vec<String> {
        let mut work = self.work(self.quarantine(session));
        work.patience = session.map(|_| Instant::now() + PATIENCE);
        self.pass(&mut work);
        self.taken.set(work.quarantine.taken());
        if session.is_some() {
            if let Some(unnoted) = notes::end(self.begun.as_ref(), &self.trees, self.since) {
                work.said.open(unnoted);
            }
            self.ended.set(true);
            work.quarantine.renew(&mut work.said);
            for sentence in tracked::missing(&self.missed.take(), &work.pass) {
                work.said.last(sentence);
            }
        }
        work.said.all()
    }

    pub(super) fn quarantine(&self, session: Option<&str>) -> Quarantine {
        Quarantine::new(session, self.taken.get(), self.room.get())
    }

    pub(super) fn work(&self, quarantine: Quarantine) -> Work<'_> {
        let past = OnceCell::new();
        Work {
            guarding: self,
            quarantine,
            past,
            unlocked: Vec::new(),
            said: Said::default(),
            patience: None,
            budget: 0,
            innards: 0,
            pass: Rc::default(),
            state: MOST_STATE,
            samples: MOST_IN_ALL,
            anything: false,
            crowd: crowd::Crowd::default(),
            asides: aside::Asides::default(),
            led_to: BTreeSet::new(),
            everywhere: None,
        }
    }

    fn pass(&self, work: &mut Work<'_>) {
        for tree in &self.trees {
            locked::unlock(work, &tree.tree);
        }
        for (step, saved) in &self.steps {
            let parent = step.path.parent().unwrap_or(Path::new("/"));
            let absent = step.found == Found::Absent && *saved == Saved::Nothing;
            if !absent || !self.untouched(parent) {
                work.step(step, saved);
            }
        }
        for (path, was) in self.removed.borrow().iter().filter(|(path, _)| !self.was_there(path)) {
            work.came_back(path, *was);
        }
        for tree in &self.trees {
            let leads_to = work.repository(&tree.tree);
            if !self.untouched(&tree.tree) {
                work.absent_names(tree);
            }
            sweep::sweep(work, tree, leads_to.as_deref());
        }
        locked::lock_again(work);
    }
}
