//! The launcher's part of a filtered network: takes the listeners that the child hands out, and
//! starts the gateway when the first program knocks.

use ringfence_net::capture::Calls;
use ringfence_net::upstream::Upstream;
use ringfence_net::{Control, Gateway, Inspection, Listeners, NetDecision};
use std::cell::Cell;
use std::fmt;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// By what a network is filtered, and who hears of it.
#[derive(Clone)]
pub struct Filter {
    /// Hears every decision, on the gateway's thread; must not block.
    pub sink: Arc<dyn Fn(&NetDecision) + Send + Sync>,
    /// The rules as they stand, for those who change them.
    pub control: Control,
    /// For hosts whose requests are looked at.
    pub inspection: Option<Arc<Inspection>>,
}

impl Filter {
    /// A gateway that decides by it.
    pub(crate) fn gateway(&self, listeners: Listeners) -> Gateway {
        let sink = self.sink.clone();
        let sink = Box::new(move |decision| sink(&decision));
        let gateway = Gateway::new(self.control.clone(), listeners, sink);
        gateway.inspecting(self.inspection.clone())
    }

    /// What a port of the host's own loopback is kept for: who listens there gets what is the user's.
    pub(crate) fn kept(&self, port: u16) -> Option<String> {
        let upstream = Upstream::of_environment(&|name| std::env::var(name).ok());
        if upstream.is_here(port) {
            return Some("it is your proxy's (HTTPS_PROXY and its kin)".to_owned());
        }
        // Where no requests are looked at, none gets a credential.
        self.inspection.as_ref()?;
        let header = self.control.injects_at_loopback(port)?;
        Some(format!("requests to it get the credential `{header}` (--inject)"))
    }
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
    /// The listeners came as [`ringfence_net::capture::Calls`] makes them.
    usual: Rc<Cell<bool>>,
}

impl Network {
    /// To be made once the sandbox has been cloned: it waits for what is made here.
    pub fn new(filter: Option<Filter>) -> Network {
        let inspection = filter.as_ref().and_then(|filter| filter.inspection.as_ref());
        if let Some(Err(why)) = inspection.map(|inspection| inspection.begin()) {
            // The sandbox sees it too, and does not start.
            ringfence_sys::say!("ringfence: {why}");
        }
        Network { filter, gateway: None, usual: Rc::default() }
    }

    /// Becomes true when the child hands out the listeners of a kernel that has all that is
    /// needed: the same calls will do at the next start.
    pub fn usual(&self) -> Rc<Cell<bool>> {
        self.usual.clone()
    }

    /// What to watch: readable means that somebody inside wants something.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let mut watched = self.gateway.as_ref().map(Gateway::fds).unwrap_or_default();
        watched.extend(self.filter.as_ref().and_then(|filter| filter.control.door()));
        watched
    }

    /// Takes the child's listeners. Without a filter they close, and all is refused.
    pub fn listen(&mut self, message: &[u8], descriptors: Vec<OwnedFd>) {
        self.usual.set(Calls::would_do(message));
        if let Some(filter) = &self.filter
            && let Some(listeners) = Listeners::of_message(message, descriptors)
        {
            self.gateway = Some(filter.gateway(listeners));
        }
    }

    /// Starts serving.
    ///
    /// # Errors
    /// A sentence; every connection is refused then.
    pub fn serve(&mut self) -> Result<(), String> {
        if let Some(filter) = &self.filter {
            filter.control.serve();
        }
        self.gateway.as_mut().map_or(Ok(()), Gateway::start)
    }

    /// Passes on what those inside sent before they ended, and has it told.
    pub fn settle(&mut self, limit: Duration) {
        if let Some(gateway) = &mut self.gateway {
            gateway.settle(limit);
        }
    }
}
