//! What answers the socket calls that the filter hands to the launcher.

use crate::network::Filter;
use crate::plan::{Plan, Tier};
use ringfence_net::publish::{Handler, Reach};
use ringfence_net::redirect::Redirect;
use ringfence_policy::NetworkMode;
use ringfence_sys::{fd, identity};
use std::ffi::CString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

/// What answers those of a plan's command.
pub(crate) fn handler(plan: &Plan, filter: Option<&Filter>) -> Handler {
    let confined = plan.landlock.as_ref().is_some_and(|landlock| landlock.ports.is_some());
    let reach = match (plan.tier, plan.network, filter) {
        (Tier::Process, NetworkMode::Filtered, Some(filter)) => {
            let (filter, kept, control) = (filter.clone(), filter.clone(), filter.control.clone());
            let make = move |listeners| filter.gateway(listeners);
            let grants = move |port| control.grants_loopback(port);
            let kept = move |port| kept.kept(port);
            let (make, grants) = (Box::new(make), Box::new(grants));
            Reach::Redirected(Redirect::new(make, grants, Box::new(kept), Box::new(listeners)))
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

/// The file by which sandboxes of the process tier know each other's servers.
fn listeners() -> Option<OwnedFd> {
    // Directories of the user's may be made, a home may not.
    let home = identity::home().filter(|home| home.is_absolute() && home.is_dir())?;
    let directory = crate::state::directory(&home).ok()?;
    crate::state::make_directory(&directory).ok()?;
    let path = directory.join("listeners");
    let mut options = File::options();
    let file = options.read(true).append(true).create(true).mode(0o600).open(path).ok()?;
    let data = file.metadata().ok()?;
    (data.is_file() && data.uid() == identity::user()).then(|| file.into())
}
