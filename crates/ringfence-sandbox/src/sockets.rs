//! What answers the socket calls that the filter hands to the launcher.

use crate::network::Filter;
use crate::plan::{MountOp, MountStep, Plan, Tier};
use ringfence_net::publish::{Handler, Reach};
use ringfence_net::redirect::Redirect;
use ringfence_policy::NetworkMode;

/// What answers those of a plan's command.
pub(crate) fn handler(plan: &Plan, filter: Option<&Filter>) -> Handler {
    let confined = plan.landlock.as_ref().is_some_and(|landlock| landlock.ports.is_some());
    let reach = match (plan.tier, plan.network, filter) {
        (Tier::Process, NetworkMode::Filtered, Some(filter)) => {
            let filter = filter.clone();
            let make = move |listeners| filter.gateway(listeners);
            Reach::Redirected(Redirect::new(Box::new(make)))
        }
        (Tier::Namespace, _, _) if confined => {
            // Sockets that are granted by name are shown one by one.
            let single =
                |step: &&MountStep| matches!(step.op, MountOp::Bind { directory: false, .. });
            let granted = plan.mounts.iter().filter(single).map(|step| step.path.clone());
            let no_sockets = plan.landlock.as_ref().is_some_and(|landlock| landlock.no_sockets);
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
