//! The session bus: whether there is one inside, and what its filter lets through.

use super::{PlanError, Planning, built_in, own_socket};
use crate::dbus::{PROXY, TRACE};
use crate::facts::BusFacts;
use crate::plan::{Bus, BusGrant, MountOp, MountStep, Tier};
use ringfence_policy::{BusAccess, BusRule, Layer, Source, TierChoice, Transport};

/// Places for the socket: a directory of the sandbox's own, else its private shared memory.
const PLACES: [&str; 2] = ["/run/ringfence/bus", "/dev/shm/.ringfence-bus"];

/// The bus that a policy asks for, or that is there to see what would be asked of it.
pub(super) fn of(planning: &Planning<'_>, tier: Tier) -> Result<Option<Bus>, PlanError> {
    let policy = planning.policy;
    let facts = planning.facts.bus.as_ref();
    let trace = facts.and_then(|facts| facts.trace.clone());
    let made = match policy.dbus.first() {
        Some(first) => made(planning, tier, &first.source).map(Some),
        None if trace.is_none() || policy.tier == TierChoice::Vm => return Ok(None),
        // Nobody asked for it: where it cannot be, there is none.
        None => Ok(made(planning, tier, &built_in(TRACE)).ok()),
    };
    Ok(made?.map(|bus| Bus { trace, ..bus }))
}

fn made(planning: &Planning<'_>, tier: Tier, rule: &Source) -> Result<Bus, PlanError> {
    let policy = planning.policy;
    let asked = crate::text::source(rule);
    let missing = |what: String, remedy: &str| {
        let what = format!("{asked} {what}");
        PlanError::Missing { layer: Layer::Namespaces, what, remedy: remedy.to_owned() }
    };
    if tier == Tier::Process {
        let what = "needs the namespace tier: the process tier refuses all local sockets";
        return Err(missing(what.to_owned(), "use --tier namespace"));
    }
    if policy.network.publishes(Transport::Tcp) && planning.facts.user.0 != 0 {
        let what = "does not go with --publish for an ordinary user: over a bus the published \
                    socket could be passed on to another program";
        return Err(missing(what.to_owned(), "leave one of them away"));
    }
    let Some(BusFacts { program, address, .. }) = &planning.facts.bus else {
        return Err(PlanError::NotBuilt { what: "a look at the session bus".to_owned() });
    };
    let program = program.clone().ok_or_else(|| {
        let what = format!("needs {PROXY}, which is not installed where only root can write");
        missing(what, &format!("install the package {PROXY}"))
    })?;
    let address = address.clone().map_err(|why| {
        let remedy = "log in to a desktop, or start the command under dbus-run-session";
        missing(format!("needs a session bus, and {why}"), remedy)
    })?;
    let socket = own_socket(policy, PLACES).ok_or_else(|| {
        let what = "finds no place for its socket: both /run and /dev/shm are the host's";
        missing(what.to_owned(), "leave -r /dev/shm out")
    })?;
    let grant = |rule: &BusRule| BusGrant { argument: argument(rule), rule: rule.source.clone() };
    let grants = policy.dbus.iter().map(grant).collect();
    Ok(Bus { socket, program, address, grants, trace: None, rule: rule.clone() })
}

/// A rule in the filter's words.
fn argument(rule: &BusRule) -> String {
    let word = match rule.access {
        BusAccess::See => "see",
        BusAccess::Talk => "talk",
        BusAccess::Own => "own",
        BusAccess::Call => "call",
    };
    match &rule.rule {
        Some(call) => format!("--{word}={}={call}", rule.name),
        None => format!("--{word}={}", rule.name),
    }
}

/// The socket.
pub(super) fn mount(bus: Option<&Bus>) -> Option<MountStep> {
    bus.map(|bus| MountStep { path: bus.socket.clone(), op: MountOp::Bus, rule: bus.rule.clone() })
}
