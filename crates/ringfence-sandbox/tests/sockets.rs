//! Directories of sockets that act for whoever asks, in granted trees: hidden but for what is granted in them.
#![allow(missing_docs, clippy::unwrap_used)]

mod host;

use host::{Host, host};
use ringfence_policy::Key;
use ringfence_policy::files::Fake;
use ringfence_sandbox::Plan;
use ringfence_sandbox::plan::{MountOp, Rights};
use std::path::Path;

const USERS: &str = "/run/user";
const DEEP: &str = "/run/user/1000/a/deep";

fn with_sockets() -> Host {
    let mut host = host();
    for socket in ["/run/user/1000/bus", "/run/user/1000/systemd/private", DEEP] {
        host.files = host.files.with(socket, Fake::Socket);
    }
    host
}

fn step<'p>(plan: &'p Plan, path: &str) -> Option<&'p MountOp> {
    plan.mounts.iter().find(|step| step.path == Path::new(path)).map(|step| &step.op)
}

#[test]
fn what_is_granted_in_one_opens_nothing_else_there() {
    let shown = [
        (Key::Sockets, DEEP),
        (Key::Read, DEEP),
        (Key::Read, "/run/user/1000/a"),
        (Key::Write, "/run/user/1000/a"),
    ];
    for tree in ["/run", "/"] {
        for (key, path) in shown {
            let plan = with_sockets().option(Key::Read, tree).option(key, path).plan();
            let own = match step(&plan, USERS) {
                Some(MountOp::Cover) => tree == "/run",
                Some(MountOp::Private { .. }) => tree == "/",
                _ => false,
            };
            assert!(own, "{tree} {path}: {:?}", step(&plan, USERS));
            assert!(matches!(step(&plan, path), Some(MountOp::Bind { .. })), "{tree} {path}");
        }
        let plan = with_sockets().option(Key::Read, tree).plan();
        assert_eq!(step(&plan, USERS), Some(&MountOp::Mask { directory: true }), "{tree}");
        // One's own word about just this.
        let plan = with_sockets().option(Key::Read, tree).option(Key::Read, USERS).plan();
        assert!(!matches!(step(&plan, USERS), Some(MountOp::Cover | MountOp::Mask { .. })));
    }
}

#[test]
fn without_mounts_they_are_left_out_of_the_tree() {
    let plan =
        with_sockets().process().option(Key::Read, "/run").option(Key::Read, "/run/user/1000/a");
    let plan = plan.plan();
    let files = plan.landlock.unwrap().files;
    let reads = |path: &str| {
        let covers = |rule: &Path| Path::new(path).starts_with(rule);
        files.iter().any(|rule| rule.rights != Rights::Use && covers(&rule.path))
    };
    assert!(reads(DEEP) && !reads("/run/user/1000/bus") && !reads("/run/utmp-is-not-there"));
    assert!(!reads(USERS));
}
