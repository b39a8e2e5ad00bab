//! What answers the socket calls that the filter hands to the launcher.

use crate::network::Filter;
use crate::plan::{Plan, Tier};
use ringfence_net::publish::{Handler, Reach};
use ringfence_net::redirect::Redirect;
use ringfence_policy::NetworkMode;
use ringfence_sys::fd;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;

/// What answers those of a plan's command.
pub(crate) fn handler(plan: &Plan, filter: Option<&Filter>) -> Handler {
    let confined = plan.landlock.as_ref().is_some_and(|landlock| landlock.ports.is_some());
    let reach = match (plan.tier, plan.network, filter) {
        (Tier::Process, NetworkMode::Filtered, Some(filter)) => {
            let (filter, control) = (filter.clone(), filter.control.clone());
            let make = move |listeners| filter.gateway(listeners);
            let grants = move |port| control.grants_loopback(port);
            Reach::Redirected(Redirect::new(Box::new(make), Box::new(grants)))
        }
        (Tier::Namespace, _, _) if confined => {
            let no_sockets = plan.landlock.as_ref().is_some_and(|landlock| landlock.no_sockets);
            // The very ones that are there now, as those that are mounted are.
            let granted = plan.sockets.iter().filter_map(|path| {
                let path = CString::new(path.as_os_str().as_bytes()).ok()?;
                fd::open_at(fd::CWD, &path, fd::PATH_ONLY, 0).ok()
            });
            Reach::Confined { granted: no_sockets.then(|| granted.collect()) }
        }
        _ => Reach::Own,
    };
    let handler = Handler::new(plan.publish.clone()).with(reach);
    match filter {
        Some(filter) => handler.telling(filter.sink.clone()),
        None => handler,
    }
}
