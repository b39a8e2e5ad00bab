//! The launcher's part of a filtered network: takes the listeners that the child hands out, and
//! starts the gateway when the first program knocks.

use ringfence_net::{Gateway, Listeners, NetDecision};
use ringfence_policy::Policy;
use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

/// By what a network is filtered, and who hears of it.
#[derive(Clone)]
pub struct Filter {
    /// The policy.
    pub policy: Arc<Policy>,
    /// Hears every decision, on the gateway's thread; must not block.
    pub sink: Arc<dyn Fn(&NetDecision) + Send + Sync>,
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filter").finish_non_exhaustive()
    }
}

/// A sandbox's network, as the launcher sees it.
pub(crate) struct Network {
    filter: Option<Filter>,
    gateway: Option<Gateway>,
}

impl Network {
    pub fn new(filter: Option<Filter>) -> Network {
        Network { filter, gateway: None }
    }

    /// What to watch: readable means that somebody inside wants something.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.gateway.as_ref().map(Gateway::fds).unwrap_or_default()
    }

    /// Takes the child's listeners. Without a filter they close, and all is refused.
    pub fn listen(&mut self, message: &[u8], descriptors: Vec<OwnedFd>) {
        if let Some(filter) = &self.filter
            && let Some(listeners) = Listeners::of_message(message, descriptors)
        {
            let sink = filter.sink.clone();
            let sink = Box::new(move |decision| sink(&decision));
            self.gateway = Some(Gateway::new(filter.policy.clone(), listeners, sink));
        }
    }

    /// Starts serving.
    ///
    /// # Errors
    /// A sentence; every connection is refused then.
    pub fn serve(&mut self) -> Result<(), String> {
        self.gateway.as_mut().map_or(Ok(()), Gateway::start)
    }
}
