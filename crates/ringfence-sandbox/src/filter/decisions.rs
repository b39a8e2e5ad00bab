//! What a filter decides, as a graph: tests that lead to tests, and to actions. What is alike is there once, so that
//! calls whose arguments are looked at in the same way share all of it.

use foldhash::fast::RandomState;
use std::collections::HashMap;

/// A place in a graph.
pub(super) type Place = usize;

/// What is compared, as the operations of the kernel's filters have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Compare {
    /// Equal to the number.
    Equal(u32),
    /// At or above it.
    AtLeast(u32),
    /// Has a bit of it.
    AnyBit(u32),
}

/// One step of a decision. The last loaded word is in the accumulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    /// The end: an action.
    Give(u32),
    /// Loads the word at an offset of `struct seccomp_data`.
    Load(u32, Place),
    /// Takes these bits of it.
    And(u32, Place),
    /// Goes on at the first place if the word compares so, and at the second if not.
    If(Compare, Place, Place),
}

/// Steps, each behind those that it leads to.
pub(super) struct Decisions {
    steps: Vec<Step>,
    /// The rules are the program's own: nobody chooses keys here that have one hash.
    known: HashMap<Step, Place, RandomState>,
}

impl Default for Decisions {
    fn default() -> Decisions {
        /// The default policy takes 240.
        const USUAL: usize = 400;
        let known = HashMap::with_capacity_and_hasher(USUAL, RandomState::default());
        Decisions { steps: Vec::with_capacity(USUAL), known }
    }
}

impl Decisions {
    /// Where a step is, which is made if it is not there yet.
    pub(super) fn step(&mut self, step: Step) -> Place {
        match step {
            Step::If(_, yes, no) if yes == no => yes,
            _ => *self.known.entry(step).or_insert_with(|| {
                self.steps.push(step);
                self.steps.len() - 1
            }),
        }
    }

    /// The place of an action.
    pub(super) fn give(&mut self, action: u32) -> Place {
        self.step(Step::Give(action))
    }

    /// What is at a place.
    pub(super) fn at(&self, place: Place) -> Step {
        self.steps[place]
    }

    /// How many places there are.
    pub(super) fn len(&self) -> usize {
        self.steps.len()
    }
}
