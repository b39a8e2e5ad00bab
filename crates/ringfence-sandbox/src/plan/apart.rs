//! Writes that are kept apart, as a plan has them.

use super::{GuardStep, GuardedTree};
use serde::{Deserialize, Serialize};

/// Writes that do not reach the real trees during the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Apart {
    /// What becomes of them.
    pub end: ringfence_policy::Overlay,
    /// Paths that no commit changes.
    pub guards: Vec<GuardStep>,
    /// Names that no commit makes.
    pub guarded_trees: Vec<GuardedTree>,
}
