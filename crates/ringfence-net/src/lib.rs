//! The network of a sandbox (namespace tier): nothing leaves but through the gateway, and the
//! gateway asks the policy.
//!
//! ```text
//! inside (namespace)                           launcher (host)
//! capture::inside: routes, nftables,  ──────►  Listeners, by SCM_RIGHTS, in one message
//! listeners; then the command                  Gateway: no thread until one becomes readable
//! a program connects ──► listener ──────────►  accept, where to?, decide(), resolve, check, dial
//! a program asks for a name ──► UDP 53 ─────►  synthetic address for an allowed name, or NXDOMAIN
//! ```
//!
//! A socket belongs to the network namespace that it was made in, whoever holds it: that is why
//! no bridge, no interface and no helper is needed.

#![forbid(unsafe_code)]

mod beside;
mod budget;
mod calls;
pub mod capture;
mod crowd;
pub mod decision;
pub mod dns;
pub mod first;
mod flow;
pub mod forward;
#[doc(hidden)]
pub mod fuzzing;
pub mod gateway;
mod given;
mod held;
pub mod inspect;
mod inward;
mod leaving;
pub mod listeners;
pub mod live;
pub mod names;
mod proxy;
pub mod publish;
mod reach;
pub mod redirect;
mod relay;
mod requests;
pub mod resolver;
pub mod rules;
mod serve;
mod stream;
mod unix;
pub mod upstream;
mod who;

pub use capture::Capture;
pub use decision::{Event, Exchange, Injection, ModelCall, NetDecision, Process, Sink, Way};
pub use gateway::Gateway;
pub use inspect::Inspection;
pub use listeners::Listeners;
pub use live::Control;
