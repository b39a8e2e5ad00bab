//! A session while it lives: who keeps its record, and `exec`, one more command inside.
//!
//! ```text
//! exec's client ──connect──► control.sock ──► warden (PID 1 inside) ──fork, confine──► command
//!    │  argv, environment, standard streams ──►│                                        │
//!    │ ──────────────── signals ──────────────►│                                        │
//!    │ ◄── started, stopped, exit code ─────── │ ◄──────────────── exit ────────────────┘
//! ```
//!
//! The launcher makes the socket, on the host, where nothing inside can see it. It gives it to the
//! warden when somebody knocks for the first time, and is out of the way from then on: a run
//! into which nobody execs pays nothing.

pub mod captured;
pub mod client;
pub mod protocol;
mod service;
mod spawn;
mod terminal;
pub(crate) mod told;
mod uptake;

pub(crate) use service::{ENDED, LISTEN, STARTED, Service};
pub(crate) use spawn::Spawner;

use crate::plan::Plan;
use crate::supervise::Outcome;
use ringfence_start::brief::passed;
use std::ffi::OsString;
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Message from the child: the listener of the gateway for snapshots.
pub(crate) const GATEWAY: u8 = passed::GATEWAY;
/// Message from the child: the listener of the session bus, and where its filter can listen.
pub(crate) const BUS: u8 = passed::BUS;

/// A command that executes in a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Executed {
    /// Which of the session's commands: 0 is the one that `run` started.
    pub number: u32,
    /// Its process number on the host; 0 where the kernel would not tell.
    pub pid: i32,
    /// The warden's, its parent.
    pub parent: i32,
    /// The file, as the sandbox sees it.
    pub path: PathBuf,
    /// Where it started; empty for the command of `run`.
    pub workdir: PathBuf,
    /// Its arguments; empty for the command of `run`. What does not fit into a message is cut off.
    pub argv: Vec<OsString>,
    /// When that was, where it is known better than by when it is told.
    pub since: Option<Instant>,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With an exit code.
    Code(u8),
    /// By a signal.
    Signal(u8),
}

/// Keeps the record of a session. Called on the launcher's thread, while it would wait.
pub trait Keeper: fmt::Debug {
    /// The sandbox is being built. Returns the socket for `exec`, if the session can have one.
    fn begin(&self, plan: &Plan) -> Option<OwnedFd>;
    /// What is to be known when a session that ends soon is recorded without the keeper: the directory of all
    /// sessions, and whether it is recorded at all. None where such a one has to be told as well.
    fn brief(&self, plan: &Plan) -> Option<(PathBuf, bool)>;
    /// A command executes.
    fn executed(&self, command: Executed);
    /// Something inside executes a program; it is none of the commands when they start.
    fn noted(&self, program: Executed);
    /// A process that executed one has ended, after so long; how, where the kernel says so.
    fn gone(&self, pid: i32, end: Option<End>, duration: Duration);
    /// A command of `exec` has ended.
    fn finished(&self, number: u32, end: End);
    /// Somebody inside knocks at the gateway; serves it from now on, on a thread.
    fn serve(&self, listener: OwnedFd);
    /// A machine that was held still goes on, if this one was.
    fn goes_on(&self) -> bool;
    /// Nothing lives inside any more: what the gateway does is finished, and it does no more.
    fn close(&self);
    /// The session's command has ended, and all else inside with it.
    fn ended(&self, outcome: &Outcome);
}
