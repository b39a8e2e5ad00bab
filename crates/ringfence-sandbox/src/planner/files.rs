//! The Landlock domain: in the namespace tier a second lock behind the mounts, in the process
//! tier the lock itself.

use super::grants::Grants;
use super::{PlanError, Planning, built_in, view};
use crate::facts::Kind;
use crate::plan::{FileRule, Landlock, Rights, Tier};
use ringfence_policy::{Access, Home, Layer, NetworkMode, Source, Transport, own};
use std::path::{Path, PathBuf};

/// What each version adds, and the layer that stands for it.
const SINCE: [(u32, Layer, &str); 4] = [
    (3, Layer::LandlockTruncate, "files that are only readable could be truncated"),
    (4, Layer::LandlockNetwork, "TCP ports cannot be ruled"),
    (5, Layer::LandlockIoctl, "devices that are only readable could be controlled"),
    (6, Layer::LandlockScope, "abstract sockets and signals reach outside"),
];

pub(super) fn domain(
    planning: &mut Planning<'_>,
    grants: &Grants,
    tier: Tier,
) -> Result<Option<Landlock>, PlanError> {
    let abi = planning.facts.landlock_abi;
    if abi == 0 {
        let what = "the kernel has no Landlock (Linux 5.13, CONFIG_SECURITY_LANDLOCK)".to_owned();
        let remedy = "boot with lsm=landlock,… or use a newer kernel";
        if tier == Tier::Process {
            let remedy = format!("{remedy}; the process tier is nothing without it");
            return Err(PlanError::Missing { layer: Layer::Landlock, what, remedy });
        }
        planning.missing(Layer::Landlock, what, remedy)?;
        return Ok(None);
    }
    // In the namespace tier mounts and namespaces hold what an older Landlock does not.
    let relied_on = |layer| match layer {
        Layer::LandlockNetwork => false,
        Layer::LandlockScope if tier == Tier::Namespace => {
            planning.policy.network.mode == NetworkMode::Host
        }
        _ => tier == Tier::Process,
    };
    let missing: Vec<_> =
        SINCE.iter().filter(|(since, layer, _)| abi < *since && relied_on(*layer)).collect();
    for (since, layer, what) in missing {
        let what = format!("{what} with Landlock version {abi} (version {since} is needed)");
        planning.missing(*layer, what, "use a newer kernel")?;
    }
    let files = match tier {
        Tier::Namespace => namespace_rules(planning, grants),
        Tier::Process => process_rules(planning, grants)?,
    };
    // Where namespaces hold signals and sockets, the commands of one session (`exec`), each in a
    // domain of its own, are to reach each other as they would without a sandbox. One more domain around all of
    // them would have to be there before the view is, and no domain that does not rule it lets files be moved
    // between directories (LANDLOCK_ACCESS_FS_REFER).
    let scoped = abi >= 6 && relied_on(Layer::LandlockScope);
    let ports = confined(planning, tier).then(Vec::new);
    // Over a Unix socket the host's could be passed on, where it is not locked by itself.
    let no_sockets = ports.is_some() && !locks_sockets(planning, tier);
    Ok(Some(Landlock { abi, files, ports, no_sockets, scoped }))
}

/// Whether the program's sockets are held by what confines the program: it may connect, bind and
/// listen only through the launcher. So it is where it gets sockets of the host, which an ordinary
/// user may not be able to lock, and whose lock stops no connection that both ends began; and where all its sockets are
/// the host's.
pub(super) fn confined(planning: &Planning<'_>, tier: Tier) -> bool {
    let network = &planning.policy.network;
    let notify = planning.facts.seccomp_notify.yes() && planning.facts.landlock_abi >= 4;
    match tier {
        Tier::Process => network.mode == NetworkMode::Filtered && notify,
        Tier::Namespace => {
            network.mode != NetworkMode::Host && network.publishes(Transport::Tcp) && notify
        }
    }
}

/// Whether the sockets of the host that the program gets are locked to their ports by themselves as well, so that it
/// does not matter who holds them.
fn locks_sockets(planning: &Planning<'_>, tier: Tier) -> bool {
    tier == Tier::Namespace && planning.facts.user.0 == 0
}

fn rule(path: impl Into<PathBuf>, rights: Rights, rule: Source) -> FileRule {
    FileRule { path: path.into(), rights, file: false, rule }
}

/// Everything that is in the view may be read; written only what is writable there.
fn namespace_rules(planning: &Planning<'_>, grants: &Grants) -> Vec<FileRule> {
    let policy = planning.policy;
    let mut rules = vec![
        rule("/", Rights::Read, built_in("what is in the view")),
        rule("/dev", Rights::Use, built_in("minimal devices")),
        rule("/dev/shm", Rights::Write, built_in("private shared memory")),
        rule("/tmp", Rights::Write, built_in("a private /tmp")),
    ];
    if view::var_tmp_is_apart(policy, grants) {
        rules.push(rule(view::VAR_TMP, Rights::Write, built_in("a private /tmp")));
    }
    if planning.facts.user.0 != 0 {
        // Programs write their own /proc/self files; root's uid could write the kernel's.
        rules.push(rule("/proc", Rights::Use, built_in("the program's own processes")));
    }
    if policy.home != Home::Host && policy.home_dir.parent().is_some() {
        rules.push(rule(policy.home_dir.clone(), Rights::Write, built_in("a private home")));
    }
    for (path, grant) in grants.trees.iter().filter(|(_, grant)| grant.write) {
        rules.push(rule(path.clone(), Rights::Write, grant.rule.clone()));
    }
    rules
}

/// Devices that ordinary programs need, in the process tier by their real paths.
/// `/dev/pts` is not among them: it holds the user's other terminals.
const DEVICES: [&str; 6] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

fn process_rules(planning: &mut Planning<'_>, grants: &Grants) -> Result<Vec<FileRule>, PlanError> {
    let mut rules = Vec::new();
    own_directories(planning, grants)?;
    for (path, grant) in &grants.trees {
        let holes: Vec<_> = grants
            .denials
            .iter()
            .filter(|denial| denial.kind != Kind::Absent && denial.path.starts_with(path))
            .collect();
        let rights = if grant.write { Rights::Write } else { Rights::Read };
        if holes.is_empty() {
            rules.push(rule(path.clone(), rights, grant.rule.clone()));
        } else if grant.write {
            let what = format!(
                "Landlock grants whole trees, so that {} cannot be denied inside the writable {}",
                holes[0].path.display(),
                path.display()
            );
            planning.missing(Layer::Deny, what, "use the namespace tier")?;
            rules.push(rule(path.clone(), rights, grant.rule.clone()));
        } else {
            let holes: Vec<&Path> = holes.iter().map(|hole| hole.path.as_path()).collect();
            around(planning, path, &holes, &grant.rule, &mut rules);
        }
    }
    for device in DEVICES {
        if planning.paths.kind(Path::new(device)) != Kind::Absent {
            for rights in [Rights::Use, Rights::Read] {
                let granted = rule(device, rights, built_in("minimal devices"));
                rules.push(FileRule { file: true, ..granted });
            }
        }
    }
    rules.push(rule("/proc", Rights::Read, built_in("programs read their own processes")));
    Ok(rules)
}

/// What is put right after the run is in force during it: profiles, with hooks that run outside, for each ringfence
/// that is started meanwhile.
fn own_directories(planning: &mut Planning<'_>, grants: &Grants) -> Result<(), PlanError> {
    let policy = planning.policy;
    for rule in &policy.paths {
        if rule.access != Access::Protect || rule.source != own::source() {
            continue;
        }
        if let Some((tree, _)) = grants.covering(&rule.path).filter(|(_, grant)| grant.write) {
            let what = format!(
                "Landlock grants whole trees, so that ringfence's own {} cannot be protected inside the writable {}",
                rule.path.display(),
                tree.display()
            );
            planning.missing(Layer::Deny, what, "use the namespace tier")?;
        }
    }
    Ok(())
}

/// Grants a tree but for holes in it: every sibling on the way to them. One directory listing
/// for each directory that holds a hole; what is created beside them later is not granted.
///
/// The directory itself can be listed when all its holes are files: Landlock's right to list
/// holds for everything below, and the names in a denied directory are not to be seen.
fn around(
    planning: &Planning<'_>,
    tree: &Path,
    holes: &[&Path],
    source: &Source,
    rules: &mut Vec<FileRule>,
) {
    let file = |hole: &&Path| planning.paths.kind(hole) == Kind::File;
    if holes.iter().all(file) {
        rules.push(rule(tree, Rights::List, source.clone()));
    }
    for name in planning.paths.list(tree) {
        let path = tree.join(name);
        if holes.contains(&path.as_path()) {
            continue;
        }
        let inside: Vec<&Path> =
            holes.iter().copied().filter(|hole| hole.starts_with(&path)).collect();
        if !inside.is_empty() {
            around(planning, &path, &inside, source, rules);
            continue;
        }
        let file = match planning.paths.kind(&path) {
            Kind::File => true,
            Kind::Directory => false,
            _ => continue,
        };
        rules.push(FileRule { file, ..rule(path, Rights::Read, source.clone()) });
    }
}
