//! What answers the socket calls that the filter hands to the launcher.

use crate::plan::{MountOp, MountStep, Plan};
use ringfence_net::publish::{Handler, Reach};

/// What answers those of a plan's command.
pub(crate) fn handler(plan: &Plan) -> Handler {
    let confined = plan.landlock.as_ref().is_some_and(|landlock| landlock.ports.is_some());
    let reach = if confined {
        // Sockets that are granted by name are shown one by one.
        let single = |step: &&MountStep| matches!(step.op, MountOp::Bind { directory: false, .. });
        let granted = plan.mounts.iter().filter(single).map(|step| step.path.clone()).collect();
        Reach::Confined { granted }
    } else {
        Reach::Own
    };
    Handler::new(plan.publish.clone()).with(reach)
}
