//! How what runs inside learns to trust the session's authority, where requests are inspected:
//! its bundle in the place of the system's own, and the variables by which programs are told of
//! another one.

use super::built_in;
use super::grants::Grants;
use crate::facts::{Kind, PathFacts};
use crate::plan::{EnvironmentStep, MountOp, MountStep, PRIVATE, Tier};
use ringfence_net::inspect::{Content, trust};
use ringfence_policy::{NetworkMode, Policy};
use std::path::{Path, PathBuf};

/// Directories for the public files, the first that no grant of the host's covers.
const DIRECTORIES: [&str; 3] = ["/run/ringfence", "/tmp/.ringfence", "/dev/shm/.ringfence"];
/// Links followed from a usual place of the bundle to where it is.
const MOST_LINKS: usize = 8;

/// Whether requests are inspected.
pub(super) fn wanted(policy: &Policy) -> bool {
    let network = &policy.network;
    network.mode == NetworkMode::Filtered && !(network.http.is_empty() && network.inject.is_empty())
}

/// The public files that the process tier has in its private directory, where requests are inspected:
/// without a view of its own nothing can be put in the place of the system's bundle, so that programs
/// learn of it by their variables alone.
pub(super) fn private_files(policy: &Policy, tier: Tier) -> Vec<(PathBuf, Content)> {
    if tier != Tier::Process || !wanted(policy) {
        return Vec::new();
    }
    vec![("ca.pem".into(), Content::Bundle), ("ca.p12".into(), Content::Truststore)]
}

fn directory(covered: &dyn Fn(&Path) -> bool) -> &'static Path {
    let free = DIRECTORIES.into_iter().map(Path::new).find(|path| !covered(path));
    free.unwrap_or(Path::new(DIRECTORIES[2]))
}

/// The mounts: the public files, and the bundle in place of each that the system has.
pub(super) fn mounts(policy: &Policy, grants: &Grants, paths: &dyn PathFacts) -> Vec<MountStep> {
    if !wanted(policy) {
        return Vec::new();
    }
    let step = |path: PathBuf, content, why| MountStep {
        path,
        op: MountOp::Data { content },
        rule: built_in(why),
    };
    let directory = directory(&|path| grants.covering(path).is_some());
    let why = "whom to trust, where requests are inspected";
    let mut steps = vec![
        step(directory.join("ca.pem"), Content::Bundle, why),
        step(directory.join("ca.p12"), Content::Truststore, why),
    ];
    let mut found: Vec<PathBuf> =
        trust::BUNDLES.iter().filter_map(|path| real(Path::new(path), paths)).collect();
    found.sort();
    found.dedup();
    found.retain(|path| grants.covering(path).is_some());
    let why = "in place of the system's, where requests are inspected";
    steps.extend(found.into_iter().map(|path| step(path, Content::Bundle, why)));
    steps
}

/// The file that a path leads to, if there is one.
pub(super) fn real(path: &Path, paths: &dyn PathFacts) -> Option<PathBuf> {
    let mut at = path.to_owned();
    for _ in 0..MOST_LINKS {
        // A directory on the way may be a link as well.
        let parents: Vec<&Path> = at.ancestors().skip(1).collect();
        let linked = parents.iter().rev().find_map(|parent| match paths.kind(parent) {
            Kind::Symlink(target) => Some((parent.to_path_buf(), target)),
            _ => None,
        });
        let (link, target) = match (linked, paths.kind(&at)) {
            (Some(linked), _) => linked,
            (None, Kind::Symlink(target)) => (at.clone(), target),
            (None, Kind::File) => return Some(at),
            (None, Kind::Absent | Kind::Directory) => return None,
        };
        let rest = at.strip_prefix(&link).unwrap_or(Path::new("")).to_owned();
        let from = link.parent().unwrap_or(Path::new("/")).join(target);
        let joined = if rest.as_os_str().is_empty() { from } else { from.join(rest) };
        at = ringfence_policy::path::normal(&joined);
    }
    None
}

/// The environment: where the bundle is, and no variable that a credential was taken from.
pub(super) fn environment(
    policy: &Policy,
    host: &[String],
    tier: Tier,
    steps: &mut Vec<EnvironmentStep>,
) {
    for rule in &policy.network.inject {
        let source = ringfence_policy::http::secret_parts(&rule.secret);
        if let Ok((_, ringfence_policy::http::SecretSource::Variable(name), _)) = source {
            steps.retain(|step| !concerns(step, name));
            if host.iter().any(|known| known == name) {
                let (name, rule) = (name.to_owned(), rule.source.clone());
                steps.push(EnvironmentStep::Hide { name, rule });
            }
        }
    }
    if !wanted(policy) {
        return;
    }
    let granted = |path: &Path| {
        let rules = policy.paths.iter().chain(&policy.network.sockets);
        let mut granting = rules.filter(|rule| {
            matches!(rule.access, ringfence_policy::Access::Read | ringfence_policy::Access::Write)
        });
        granting.any(|rule| path.starts_with(&rule.path))
    };
    let directory = match tier {
        Tier::Namespace => directory(&granted),
        Tier::Process => Path::new(PRIVATE),
    };
    let bundle = directory.join("ca.pem").display().to_string();
    let store = directory.join("ca.p12").display().to_string();
    let why = || built_in("whom to trust, where requests are inspected");
    let mut set = |name: &str, value: String| {
        if !policy.environment.set.contains_key(name) {
            steps.retain(|step| !concerns(step, name));
            steps.push(EnvironmentStep::Set { name: name.to_owned(), value, rule: why() });
        }
    };
    for name in trust::BUNDLE_VARIABLES {
        set(name, bundle.clone());
    }
    // Java's word for a truststore without a password is an empty one; the type is not guessed
    // before Java 9. The user's own options stay: the other variable is added to them.
    let own = "JAVA_TOOL_OPTIONS";
    let taken = policy.environment.set.contains_key(own) || host.iter().any(|known| known == own);
    set(
        if taken { "JDK_JAVA_OPTIONS" } else { own },
        format!(
            "-Djavax.net.ssl.trustStore={store} -Djavax.net.ssl.trustStoreType=PKCS12 \
             -Djavax.net.ssl.trustStorePassword="
        ),
    );
}

fn concerns(step: &EnvironmentStep, variable: &str) -> bool {
    match step {
        EnvironmentStep::Set { name, .. }
        | EnvironmentStep::Hide { name, .. }
        | EnvironmentStep::Pass { name, .. } => name == variable,
        EnvironmentStep::Clean { .. } => false,
    }
}
