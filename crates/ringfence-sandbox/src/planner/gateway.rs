//! The gateway for snapshots: a socket inside, and what the launcher may do for who knocks there.

use super::grants::Grants;
use super::guards::Guards;
use super::{PlanError, Planning, built_in, own_socket};
use crate::plan::{Gateway, GatewayTree, MountOp, MountStep, Tier};
use ringfence_policy::{Guarded, Layer, Policy, TierChoice};
use std::path::{Path, PathBuf};

/// Says inside where the socket is.
pub(super) const VARIABLE: &str = "RINGFENCE_GATEWAY";

/// Places for the socket: a directory of the sandbox's own, else its private shared memory.
const PLACES: [&str; 2] = ["/run/ringfence/gateway.sock", "/dev/shm/.ringfence-gateway"];

/// Where the socket is, where one is wanted.
pub(super) fn socket(policy: &Policy) -> Option<PathBuf> {
    policy.gateway.then(|| own_socket(policy, PLACES)).flatten()
}

/// Refuses what cannot have one.
pub(super) fn check(planning: &Planning<'_>, tier: Tier) -> Result<(), PlanError> {
    let policy = planning.policy;
    if !policy.gateway {
        return Ok(());
    }
    let refused = |what: &str, remedy: &str| {
        let (what, remedy) = (what.to_owned(), remedy.to_owned());
        Err(PlanError::Missing { layer: Layer::Namespaces, what, remedy })
    };
    if tier == Tier::Process {
        return refused(
            "--gateway needs the namespace tier: the process tier refuses all local sockets",
            "use --tier namespace",
        );
    }
    if policy.tier == TierChoice::Vm {
        return refused(
            "--gateway is a Unix socket, which another kernel cannot connect to",
            "use --tier namespace",
        );
    }
    if policy.overlay.is_some() {
        return refused(
            "--gateway has nothing to keep: with --overlay nothing changes until it is committed",
            "leave one of them out",
        );
    }
    if socket(policy).is_none() {
        return refused(
            "--gateway finds no place for its socket: both /run and /dev/shm are the host's",
            "leave -r /dev/shm out",
        );
    }
    Ok(())
}

/// The socket.
pub(super) fn mount(policy: &Policy) -> Option<MountStep> {
    let rule = built_in("where snapshots are made");
    socket(policy).map(|path| MountStep { path, op: MountOp::Gateway, rule })
}

/// What the launcher may do.
pub(super) fn of(planning: &Planning<'_>, grants: &Grants, guards: &Guards) -> Option<Gateway> {
    let socket = socket(planning.policy)?;
    let wanted = |path: &Path| path != Path::new("/") && !path.starts_with("/dev");
    let trees = grants.trees.iter().filter(|(_, grant)| grant.write && grant.directory);
    let trees = trees.map(|(tree, _)| tree).filter(|tree| wanted(tree));
    let mut trees: Vec<GatewayTree> = trees
        .map(|tree| GatewayTree { tree: tree.clone(), except: except(tree, grants, guards) })
        .collect();
    let workdir = &planning.policy.workdir;
    trees.sort_by_key(|tree| {
        let around = workdir.starts_with(&tree.tree);
        (!around, if around { usize::MAX - tree.tree.components().count() } else { 0 })
    });
    Some(Gateway { socket, trees })
}

/// What of a tree is not the command's to see or to change. A path with `*` in it is a pattern that
/// takes itself as well.
fn except(tree: &Path, grants: &Grants, guards: &Guards) -> Vec<PathBuf> {
    let held = guards.held.iter().map(|held| held.path.as_path());
    let steps = guards.steps.iter().map(|step| step.path.as_path());
    let denied = grants.denials.iter().map(|denial| denial.path.as_path());
    let below = |path: &Path| path.strip_prefix(tree).ok().map(Path::to_owned);
    let mut except: Vec<PathBuf> = held.chain(steps).chain(denied).filter_map(below).collect();
    for names in guards.trees.iter().filter(|names| names.tree == tree) {
        except.extend(names.absent.iter().map(|(name, _)| PathBuf::from(name.as_ref())));
        // What git keeps for itself goes back with the rest.
        let nested = names.nested.iter().filter(|(_, guarded)| *guarded != Guarded::GitState);
        let nested = nested.map(|(name, _)| Path::new("**").join(name.as_ref()));
        except.extend(nested);
    }
    except.sort();
    except.dedup();
    except
}
