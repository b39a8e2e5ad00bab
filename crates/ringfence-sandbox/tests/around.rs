//! A directory that is protected around what is granted for writing.
#![allow(missing_docs, clippy::unwrap_used)]

mod host;

use host::{Host, host};
use ringfence_policy::Key;
use ringfence_sandbox::plan::{MountOp, Rights};
use std::path::Path;

const WORKSPACE: &str = "/home/u/project";

fn protecting(path: &str) -> Host {
    host().link("/home/u/to", "/home/u/project").option(Key::Protect, path)
}

#[test]
fn what_lies_in_a_protected_directory_is_read_only_and_that_is_said() {
    let overlaid = |host: Host| host.option(Key::Overlay, "commit");
    let granted = |host: Host| host.option(Key::Write, "/home/u/project/src");
    let hosts = ["/home/u", WORKSPACE, "/home/u/to", "/home/u/proj*"].map(protecting);
    for host in hosts {
        for host in [host.clone(), host.clone().process(), overlaid(host.clone()), granted(host)] {
            let plan = host.plan();
            let mounted = plan.mounts.iter().filter(|step| step.path.starts_with(WORKSPACE));
            for step in mounted.filter(|step| step.path == Path::new(WORKSPACE)) {
                assert!(matches!(step.op, MountOp::Bind { read_only: true, .. }), "{step:?}");
            }
            let files = plan.landlock.unwrap().files;
            let writes = |path: &Path| {
                files
                    .iter()
                    .any(|rule| rule.rights == Rights::Write && path.starts_with(&rule.path))
            };
            let writes = writes(Path::new("/home/u/project/src"));
            // In the namespace tier the home that is shown there is a private one.
            assert!(!writes || plan.tier == ringfence_sandbox::plan::Tier::Namespace);
            let told =
                |told: &&String| told.contains("/home/u/project") && told.contains("is read-only");
            assert_eq!(plan.warnings.iter().filter(told).count(), 1, "{:?}", plan.warnings);
        }
    }
}

#[test]
fn what_lies_beside_a_protected_directory_is_writable() {
    for path in ["/home/u/project/src", "/home/u/proj", "/srv"] {
        let plan = protecting(path).plan();
        let writable = |op: &MountOp| matches!(op, MountOp::Bind { read_only: false, .. });
        let mut mounts = plan.mounts.iter();
        assert!(
            mounts.any(|step| step.path == Path::new(WORKSPACE) && writable(&step.op)),
            "{path}"
        );
        assert!(!plan.warnings.iter().any(|told| told.contains("is read-only")), "{path}");
    }
}
