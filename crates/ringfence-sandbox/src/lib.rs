//! From a policy to a running boundary.
//!
//! ```text
//! Policy ──► planner ──► Plan ──► launch ──► supervise
//!               ▲                    │
//!             facts                guard (before and after)
//! ```
//!
//! [`planner::plan`] is pure. [`launch::run`] is the only code that changes the kernel's mind.

pub mod ask;
pub mod dbus;
pub mod doctor;
pub mod error;
pub mod executions;
pub mod facts;
pub mod filter;
mod gone;
pub mod inputs;
pub mod itself;
pub mod launch;
pub mod live;
pub mod network;
pub mod outcome;
pub mod plan;
pub mod planner;
pub mod state;
pub mod supervise;
pub mod text;
pub mod trace;
pub mod vm;

mod cgroup;
mod cover;
mod creations;
mod descendants;
mod foreground;
mod guard;
mod metadata;
mod other_group;
mod own_group;
mod own_number;
mod removal;
mod settled;
mod sockets;
mod told_of_input;
mod warden;
mod watches;

pub use error::LaunchError;
pub use facts::Facts;
pub use guard::{made_by_a_run, written};
pub use plan::Plan;
pub use planner::PlanError;
