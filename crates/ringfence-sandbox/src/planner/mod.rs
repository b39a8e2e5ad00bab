//! From a policy and the facts of the host to a [`Plan`]: a pure function.
//!
//! Each file makes one part: [`view`] the mounts, [`files`] the Landlock rules, [`calls`] the
//! system call filter, [`guards`] what is put right at the end, [`environment`] and [`limits`];
//! [`gateway`] and [`bus`] the sockets behind which the launcher is.

mod browsers;
mod bus;
pub mod calls;
mod environment;
mod files;
mod gateway;
mod grants;
mod guards;
mod home;
mod libraries;
mod limits;
mod links;
mod machine;
mod named;
mod others;
mod trust;
mod view;
mod ways;

pub use grants::hidden_sockets;
pub(crate) use grants::{expand, glob};

use crate::facts::{Availability, Facts, PathFacts};
use crate::plan::{Degraded, EnvironmentStep, Plan, SCHEMA, Tier};
use ringfence_net::capture::DNS_PORT;
use ringfence_policy::calls::Otherwise;
use ringfence_policy::{
    Access, Layer, NetworkMode, Policy, Publish, Source, TierChoice, Transport,
};
use std::borrow::Cow;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why no plan carries the policy out on this host.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlanError {
    /// A layer the policy needs is missing.
    #[error("{what}; {remedy}")]
    Missing {
        /// The layer.
        layer: Layer,
        /// What is missing and why it is needed.
        what: String,
        /// What to do.
        remedy: String,
    },
    /// A rule cannot be enforced as written.
    #[error("{rule} cannot be enforced: {why}")]
    Unenforceable {
        /// The rule, with where it stands.
        rule: String,
        /// The reason and the way out.
        why: String,
    },
    /// The libraries of which command?
    #[error(
        "--libs exact shows what a command needs, and none is named: ringfence plan --libs exact -- CMD"
    )]
    NoCommand,
    /// The vm tier cannot carry it out, or has not what it needs.
    #[error("{why}")]
    Machine {
        /// The reason and the way out.
        why: String,
    },
    /// A part of ringfence that this build does not have.
    #[error("{what} is not available in this build")]
    NotBuilt {
        /// The part.
        what: String,
    },
}

impl PlanError {
    fn unenforceable(rule: &Source, why: impl Into<String>) -> PlanError {
        PlanError::Unenforceable { rule: crate::text::source(rule), why: why.into() }
    }
}

/// A step that no policy rule asked for.
pub(crate) fn built_in(text: &str) -> Source {
    Source { origin: "built in".to_owned(), key: String::new(), text: text.to_owned() }
}

/// Where a socket of the sandbox's own is, of a directory of its own and, where the host's is shown,
/// its private shared memory; none where that is the host's as well.
fn own_socket(policy: &Policy, places: [&str; 2]) -> Option<PathBuf> {
    let grants = |access| matches!(access, Access::Read | Access::Write);
    let granted = |path: &Path| {
        let rules = policy.paths.iter().chain(&policy.network.sockets);
        rules.filter(|rule| grants(rule.access)).any(|rule| path.starts_with(&rule.path))
    };
    // The host's whole root has a private /dev/shm, but where that is granted by itself.
    let shared = |rule: &Path| rule != Path::new("/") && Path::new(places[1]).starts_with(rule);
    let mut rules = policy.paths.iter().filter(|rule| grants(rule.access));
    match granted(Path::new(places[0])) {
        false => Some(PathBuf::from(places[0])),
        true if rules.any(|rule| shared(&rule.path)) => None,
        true => Some(PathBuf::from(places[1])),
    }
}

/// What the parts of the planner read and add to.
struct Planning<'a> {
    policy: &'a Policy,
    facts: &'a Facts,
    paths: &'a dyn PathFacts,
    degraded: Vec<Degraded>,
}

impl Planning<'_> {
    /// Accepts a missing layer when the user named it, else refuses.
    fn missing(&mut self, layer: Layer, what: String, remedy: &str) -> Result<(), PlanError> {
        if self.policy.allow_degraded.contains(&layer) {
            self.degraded.push(Degraded { layer, what });
            return Ok(());
        }
        let name = crate::text::layer(layer);
        let remedy = format!("{remedy}, or accept it with --allow-degraded {name}");
        Err(PlanError::Missing { layer, what, remedy })
    }
}

/// Makes the plan.
///
/// # Errors
/// [`PlanError`] names the missing layer or the rule, and what to do.
pub fn plan(policy: &Policy, facts: &Facts, paths: &dyn PathFacts) -> Result<Plan, PlanError> {
    match (policy.tier, &facts.namespaces) {
        (TierChoice::Vm, Availability::Yes) => machine::plan(policy, facts, paths),
        (TierChoice::Vm, Availability::No(reason)) => Err(PlanError::Missing {
            layer: Layer::Namespaces,
            what: format!("the vm tier needs namespaces, which cannot be used here: {reason}"),
            remedy: "see ringfence doctor, or use --tier process".to_owned(),
        }),
        (TierChoice::Process, _) => plan_tier(Tier::Process, policy, facts, paths),
        (TierChoice::Namespace | TierChoice::Auto, Availability::Yes) => {
            plan_tier(Tier::Namespace, policy, facts, paths)
        }
        (TierChoice::Namespace, Availability::No(reason)) => Err(PlanError::Missing {
            layer: Layer::Namespaces,
            what: format!("the namespace tier cannot be used here: {reason}"),
            remedy: "see ringfence doctor, or use --tier process".to_owned(),
        }),
        (TierChoice::Auto, Availability::No(reason)) => {
            let mut plan = plan_tier(Tier::Process, policy, facts, paths).map_err(|error| {
                let remedy = format!("and the process tier does not meet the policy: {error}");
                let what = format!("namespaces cannot be used here ({reason})");
                PlanError::Missing { layer: Layer::Namespaces, what, remedy }
            })?;
            plan.warnings.push(format!("using the process tier: {reason}"));
            Ok(plan)
        }
    }
}

fn plan_tier(
    tier: Tier,
    policy: &Policy,
    facts: &Facts,
    paths: &dyn PathFacts,
) -> Result<Plan, PlanError> {
    let mut planning = Planning { policy, facts, paths, degraded: Vec::new() };
    if let Availability::No(reason) = &facts.seccomp {
        let what = format!("system calls cannot be filtered: {reason}");
        planning.missing(Layer::Seccomp, what, "use a kernel with CONFIG_SECCOMP_FILTER")?;
    }
    if tier == Tier::Process
        && let Some(publish) = policy.network.publish.first()
        && policy.network.mode != NetworkMode::Host
    {
        let source = crate::text::source(&publish.source);
        let what = format!("{source} needs a network namespace, which the process tier has not");
        let remedy = "use --tier namespace, or --network filtered without it: servers inside are at the host's 127.0.0.1 \
                      there"
            .to_owned();
        return Err(PlanError::Missing { layer: Layer::Namespaces, what, remedy });
    }
    if tier == Tier::Namespace
        && !policy.network.publish.is_empty()
        && let Availability::No(why) = &facts.seccomp_notify
    {
        let what = format!("--publish needs seccomp notification (Linux 5.9): {why}");
        let remedy = format!("{}, or --network host", facts.notify_remedy());
        return Err(PlanError::Missing { layer: Layer::SeccompNotify, what, remedy });
    }
    let open =
        |publish: &&Publish| publish.transport == Transport::Tcp && !publish.address.is_loopback();
    if tier == Tier::Namespace
        && let Some(publish) = policy.network.publish.iter().find(open)
        && policy.network.mode != NetworkMode::Host
        && !files::confined(&planning, tier)
    {
        // What locks the socket itself stops no connection that both ends began.
        let what = format!(
            "{} needs Landlock's rules for ports (Linux 6.7): without them a program could connect out by the \
             published socket",
            crate::text::source(&publish.source)
        );
        let remedy = "publish at 127.0.0.1, use a newer kernel, or --network host".to_owned();
        return Err(PlanError::Missing { layer: Layer::LandlockNetwork, what, remedy });
    }
    let resolvers =
        |publish: &&Publish| publish.transport == Transport::Udp && publish.port == DNS_PORT;
    if policy.network.mode == NetworkMode::Filtered
        && let Some(publish) = policy.network.publish.iter().find(resolvers)
    {
        return Err(PlanError::unenforceable(
            &publish.source,
            "with a filtered network datagrams to port 53 inside are answered by ringfence itself; \
             let the server listen at another one (--publish 53:5353/udp)",
        ));
    }
    if tier == Tier::Process
        && policy.network.mode == NetworkMode::Filtered
        && let Availability::No(why) = &facts.seccomp_notify
    {
        let what = format!(
            "the network filter of the process tier needs seccomp notification (Linux 5.9): {why}"
        );
        let remedy = facts.notify_remedy();
        let remedy = format!("{remedy}, or use --tier namespace, or --network none or host");
        return Err(PlanError::Missing { layer: Layer::SeccompNotify, what, remedy });
    }
    let asks = policy.calls.as_ref().is_some_and(|list| list.otherwise == Otherwise::Ask);
    if asks && let Availability::No(why) = &facts.seccomp_notify {
        let what = format!("syscalls = \"ask\" needs seccomp notification (Linux 5.9): {why}");
        let remedy = format!("{}, or use --syscalls learned", facts.notify_remedy());
        return Err(PlanError::Missing { layer: Layer::SeccompNotify, what, remedy });
    }
    if let Some(socket) = policy.network.sockets.first().filter(|_| tier == Tier::Process) {
        let origin = &socket.source.origin;
        let what = format!(
            "{} needs the namespace tier: the process tier refuses all local sockets of the host",
            origin.strip_prefix("option ").unwrap_or(origin)
        );
        let remedy = "use --tier namespace".to_owned();
        return Err(PlanError::Missing { layer: Layer::SeccompNotify, what, remedy });
    }
    if tier == Tier::Process && policy.overlay.is_some() {
        let what = "--overlay needs mounts of its own, which the process tier has not".to_owned();
        let remedy = "use --tier namespace, or leave --overlay away".to_owned();
        return Err(PlanError::Missing { layer: Layer::Namespaces, what, remedy });
    }
    if let (Some(_), Availability::No(why)) = (policy.overlay, &facts.layers) {
        let what = format!("--overlay has no place for its layer: {why}");
        let remedy =
            "have XDG_STATE_HOME (for learn, TMPDIR) name a directory of another file system"
                .to_owned();
        return Err(PlanError::Missing { layer: Layer::Namespaces, what, remedy });
    }
    gateway::check(&planning, tier)?;
    home::check(&planning, tier)?;
    let bus = bus::of(&planning, tier)?;
    if policy.strict
        && let Availability::No(why) = &facts.seccomp_notify
    {
        let what = format!("--strict needs seccomp notification (Linux 5.9): {why}");
        let remedy = format!("{}, or leave --strict out", facts.notify_remedy());
        return Err(PlanError::Missing { layer: Layer::SeccompNotify, what, remedy });
    }
    if policy.trace && (tier == Tier::Process || facts.landlock_abi == 0) {
        let what =
            "tracing inside (`trace`, the feature debug) needs the namespace tier, and Landlock"
                .to_owned();
        let remedy = "use --tier namespace, or debug outside".to_owned();
        return Err(PlanError::Missing { layer: Layer::Namespaces, what, remedy });
    }
    let mut grants = grants::Grants::of(&planning, tier);
    if tier == Tier::Namespace {
        grants.note_own(policy);
    }
    libraries::narrow(&mut grants, &planning, tier)?;
    let mut guards = guards::guards(&mut planning, &grants, tier)?;
    let mounts = match tier {
        Tier::Namespace => view::steps(&planning, &grants, &guards, bus.as_ref()),
        Tier::Process => Vec::new(),
    };
    let private = (tier == Tier::Process)
        .then(|| facts.temporary.join(crate::state::private_name(facts.user.0)));
    let home = home::private(&planning, &grants, tier);
    let home_links = home::links(&planning, &grants, tier);
    let told = [
        home::told(&planning, &grants, tier),
        others::told(&planning, &grants),
        grants.told(policy),
    ];
    let gateway = gateway::of(&planning, &grants, &guards);
    let overlay = policy.overlay.map(|end| guards.apart(end));
    let landlock = files::domain(&mut planning, &grants, tier)?;
    let signals_inside = landlock.as_ref().is_some_and(|domain| domain.scoped);
    let limits = limits::steps(&mut planning, tier)?;
    let mut environment = environment::steps(policy, facts, tier, bus.as_ref());
    environment.extend(home::environment(&planning, &grants, tier));
    if tier == Tier::Process && facts.inside {
        let what = "modes and times of files are held by the sandbox around this one alone, whose launcher is told of \
                    such calls already";
        planning.degraded.push(Degraded { layer: Layer::Metadata, what: what.to_owned() });
    }
    Ok(Plan {
        schema: SCHEMA,
        tier,
        profiles: policy.profiles.clone(),
        user: facts.user,
        namespaces: namespaces(tier, policy.network.mode),
        mounts,
        private,
        home,
        home_links,
        private_files: trust::private_files(policy, tier),
        landlock,
        seccomp: if facts.seccomp.yes() {
            let confined = files::confined(&planning, tier);
            let notify = facts.seccomp_notify.yes();
            let whose = (tier, facts.user);
            calls::rules(whose, policy, notify, confined, signals_inside, &planning.degraded)
        } else {
            Vec::new()
        },
        allowed_calls: calls::allowed(policy).filter(|_| facts.seccomp.yes()),
        environment: resolving(environment, policy, tier),
        limits,
        guards: guards.steps,
        guarded_trees: guards.trees,
        strict: policy.strict,
        opens_input: policy.opens_input,
        overlay,
        gateway,
        bus,
        network: policy.network.mode,
        publish: policy.network.publish.clone(),
        sockets: policy.network.sockets.iter().map(|rule| rule.path.clone()).collect(),
        capture: if tier == Tier::Namespace { ringfence_net::Capture::of(policy) } else { None },
        workdir: policy.workdir.clone(),
        machine: None,
        degraded: planning.degraded,
        warnings: policy.warnings.iter().cloned().chain(told.into_iter().flatten()).collect(),
    })
}

/// In the process tier there are no datagrams, so that names must be asked for over TCP
/// (resolv.conf(5), `RES_OPTIONS`).
fn resolving(mut steps: Vec<EnvironmentStep>, policy: &Policy, tier: Tier) -> Vec<EnvironmentStep> {
    if tier == Tier::Process && policy.network.mode == NetworkMode::Filtered {
        let name = "RES_OPTIONS";
        let mine = |step: &EnvironmentStep| match step {
            EnvironmentStep::Set { name: other, .. }
            | EnvironmentStep::Hide { name: other, .. }
            | EnvironmentStep::Pass { name: other, .. } => other == name,
            EnvironmentStep::Clean { .. } => false,
        };
        steps.retain(|step| !mine(step));
        let (name, value) = (name.to_owned(), "use-vc".to_owned());
        let rule = built_in("names are asked for over TCP");
        steps.push(EnvironmentStep::Set { name, value, rule });
    }
    steps
}

fn namespaces(tier: Tier, network: NetworkMode) -> Vec<Cow<'static, str>> {
    let names = match (tier, network) {
        (Tier::Process, _) => Vec::new(),
        (Tier::Namespace, NetworkMode::Host) => {
            vec!["user", "mount", "pid", "ipc", "uts", "cgroup"]
        }
        (Tier::Namespace, _) => vec!["user", "mount", "pid", "network", "ipc", "uts", "cgroup"],
    };
    names.into_iter().map(Cow::Borrowed).collect()
}
