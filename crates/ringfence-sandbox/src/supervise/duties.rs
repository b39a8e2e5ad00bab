//! What the supervising launcher was given to do.

use crate::cover::Cover;
use crate::cover::watch::Identity;
use crate::error::LaunchError;
use crate::guard::Vigil;
use crate::live::Keeper;
use crate::metadata::Metadata;
use crate::plan::Plan;
use crate::vm::Machine;
use crate::watches::Watches;
use ringfence_net::publish::Handler;
use ringfence_sys::Errno;
use std::cell::RefCell;
use std::os::fd::BorrowedFd;
use std::path::Path;

/// What the launcher does for a running sandbox, beside watching it.
pub(crate) struct Duties<'a> {
    /// The command executes.
    pub started: &'a dyn Fn(),
    /// All is built, and the command is about to: for what nobody waits for.
    pub going: &'a dyn Fn(),
    /// Watches for protected names while the command runs.
    pub vigil: &'a dyn Fn() -> Option<Vigil<'a>>,
    /// The mounts that depend on names of the host's.
    pub covers: &'a dyn Fn() -> Vec<Cover>,
    /// Those of names that another run puts back.
    pub awaited: &'a dyn Fn() -> Vec<Cover>,
    /// A protected name was removed by somebody outside, and what it was.
    pub removed: &'a dyn Fn(&Path, Option<Identity>),
    /// Puts protected paths right; a sentence for each.
    pub enforce: &'a dyn Fn() -> Vec<String>,
    /// Left to the warden, in case that we are killed.
    pub will: Option<(Vec<u8>, BorrowedFd<'a>)>,
    /// Carries out supervised calls that change what files are.
    pub metadata: Metadata,
    /// Carries out those that add watches.
    pub watches: Watches<'a>,
    /// Puts sockets of the host in the place of published ones.
    pub publish: Handler,
    /// What a failed step of the child means.
    pub explain: &'a dyn Fn(u8, u32, Errno) -> LaunchError,
    /// Keeps the session's record.
    pub keeper: Option<&'a dyn Keeper>,
    /// The machine behind the command.
    pub machine: Option<&'a RefCell<Machine>>,
    /// What is carried out.
    pub plan: &'a Plan,
}
