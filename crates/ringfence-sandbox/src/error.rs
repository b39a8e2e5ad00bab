//! What can go wrong between a plan and a running command.

use ringfence_sys::{Errno, describe};
use thiserror::Error;

/// Why a command did not run. Each holds the failing call and its operands.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LaunchError {
    /// A call before or beside the child failed.
    #[error("{call}: {} ({errno:?}); {advice}", describe(*.errno))]
    Call {
        /// The call and its operands.
        call: String,
        /// The kernel's answer.
        errno: Errno,
        /// What to do.
        advice: String,
    },
    /// The child could not build the boundary. Nothing was executed.
    #[error("{0}")]
    Setup(String),
    /// What the plan names was gone when the child built the boundary. Nothing was executed, and another plan may hold.
    #[error("{0}")]
    Vanished(String),
    /// The process tier's private directory cannot be made where it usually is.
    #[error("{0}")]
    NoPlace(String),
    /// Exact libraries cannot be shown by an overlay here, and have to be mounted one by one.
    #[error("{0}")]
    NoSkeleton(String),
    /// The command was found but could not be executed.
    #[error("{0}")]
    CannotExecute(String),
    /// The command was not found.
    #[error("{0}")]
    NotFound(String),
    /// A compiled plan of the cache could not be carried out; nothing was executed.
    #[error("the compiled plan is out of date")]
    Stale,
    /// Namespaces cannot be made here.
    #[error("namespaces cannot be made: {0}")]
    NoNamespaces(String),
}

impl LaunchError {
    /// A failed call.
    pub(crate) fn call(call: impl Into<String>, errno: Errno, advice: &str) -> LaunchError {
        LaunchError::Call { call: call.into(), errno, advice: advice.to_owned() }
    }

    /// The exit code that stands for it.
    pub fn exit_code(&self) -> u8 {
        match self {
            LaunchError::CannotExecute(_) => 126,
            LaunchError::NotFound(_) => 127,
            _ => 125,
        }
    }
}
