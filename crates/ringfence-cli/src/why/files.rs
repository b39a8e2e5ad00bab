//! What a plan says of files beyond the policy: what holds them, what is shown in their place.

use super::sockets::nearest;
use ringfence_policy::{
    Access, Decision, Guarded, Overlay, PathRule, Policy, Source, TierChoice, shown,
};
use ringfence_sandbox::dbus;
use ringfence_sandbox::facts::{Facts, HostPaths};
use ringfence_sandbox::inputs::Inputs;
use ringfence_sandbox::plan::{FileRule, Found, MountOp, Plan, Rights, Tier};
use ringfence_sandbox::planner;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The plan of a run with this policy, where it would start.
pub(super) fn plan(policy: &Policy) -> Option<Plan> {
    let mut facts = Facts::probed();
    dbus::look(policy, &mut facts, &Inputs::new());
    let mut carried = policy.clone();
    if policy.tier == TierChoice::Vm {
        // A guest's files are those of its bridge, in a sandbox of this tier.
        carried.tier = TierChoice::Namespace;
    }
    planner::plan(&carried, &facts, &HostPaths).ok()
}

/// Why a file or directory of the host's cannot be read or written inside either, whatever is granted; its modes hold root
/// too, who has no capability there.
pub(super) fn is_closed(path: &Path, write: bool) -> Option<String> {
    const CIRCLE: i32 = 40; // ELOOP
    let shown = path.display();
    match path.metadata() {
        Err(error) if error.raw_os_error() == Some(CIRCLE) => {
            return Some(format!("{shown} leads nowhere: symbolic links lead in a circle"));
        }
        Err(error) if error.kind() == ErrorKind::NotFound && write => {
            // What is to be made is made in the directory that is there.
            let is_there = |path: &&Path| path.symlink_metadata().is_ok();
            let above = path.ancestors().skip(1).find(is_there)?;
            let closed = above.is_dir() && !lets(above, 0o3);
            let above = above.display();
            let why = format!("{shown} cannot be made: {above} is closed to you by its mode");
            return closed.then_some(why + ", inside as outside");
        }
        Err(error) if error.kind() != ErrorKind::PermissionDenied => return None,
        // Others do something when they are opened.
        Ok(data) if !data.is_file() && !data.is_dir() => return None,
        Ok(data) => {
            let wanted = if !write {
                0o4
            } else if data.is_dir() {
                0o3
            } else {
                0o2
            };
            if lets(path, wanted) {
                return None;
            }
        }
        Err(_) => {}
    }
    Some(format!("{shown} is closed to you by its mode, inside as outside"))
}

/// Whether the mode of a file or directory lets the user inside do this with it: read 4, write 2, search 1.
fn lets(path: &Path, wanted: u32) -> bool {
    if ringfence_sys::identity::user() != 0 {
        return match wanted {
            0o4 => File::open(path).is_ok(),
            _ => ringfence_sys::fd::may_write(path),
        };
    }
    path.metadata().is_ok_and(|data| {
        let shift = match (data.uid(), data.gid()) {
            (0, _) => 6,
            (_, 0) => 3,
            _ => 0,
        };
        data.mode() >> shift & wanted == wanted
    })
}

/// Whether a path is one of what the kernel shows a process of itself (proc_pid(5)), and a plan lets it change that where
/// it may outside.
pub(super) fn is_ones_own(policy: &Policy, path: &Path) -> bool {
    let own = ["/proc/self", "/proc/thread-self"].map(Path::new);
    let lets = |rule: &FileRule| rule.path == Path::new("/proc") && rule.rights != Rights::Read;
    own.iter().any(|own| path.starts_with(own) && path != *own)
        && plan(policy).is_some_and(|plan| {
            plan.landlock.is_none_or(|landlock| landlock.files.iter().any(lets))
        })
}

/// Some files are ringfence's own, shown beside what the host has (settings of browsers).
pub(super) fn as_shown(decision: Decision, policy: &Policy, path: &Path) -> Decision {
    if !path.starts_with("/etc") || policy.tier == TierChoice::Process {
        return decision;
    }
    let mut facts = Facts::probed();
    dbus::look(policy, &mut facts, &Inputs::new());
    let Ok(plan) = planner::plan(policy, &facts, &HostPaths) else { return decision };
    let shown = plan.mounts.iter().find_map(|step| {
        let MountOp::Besides(besides) = &step.op else { return None };
        let mut files = besides.files.iter();
        files.any(|(name, _)| step.path.join(name) == path).then_some(&step.rule)
    });
    let Some(rule) = shown else { return decision };
    let effect = format!("a file of ringfence's own is there inside: {}", rule.text);
    Decision { effect: Some(effect), ..decision }
}

/// How a run keeps what is there at a protected path, if it does.
enum Kept<'p> {
    /// By a mount on this path.
    ReadOnly(&'p Path),
    /// It is put back after the run.
    PutBack,
    /// It is looked at after the run, as what is new is.
    Judged,
}

impl Kept<'_> {
    fn of<'p>(plan: &'p Plan, path: &Path) -> Kept<'p> {
        if let Some(tree) = read_only(plan, path) {
            return Kept::ReadOnly(tree);
        }
        let mut held = held(plan).filter(|(held, _)| path.starts_with(held));
        if let Some((held, _)) = held.next() {
            return Kept::ReadOnly(held);
        }
        let mut guards = plan.guards.iter().filter(|step| step.found != Found::Absent);
        match guards.any(|step| path.starts_with(&step.path)) {
            true => Kept::PutBack,
            false => Kept::Judged,
        }
    }
}

/// The tree that a path lies in, where a plan shows that for reading alone.
fn read_only<'p>(plan: &'p Plan, path: &Path) -> Option<&'p Path> {
    let length = |path: &Path| path.as_os_str().len();
    if plan.tier == Tier::Namespace {
        let nearest = nearest(plan, path)?;
        let read_only = matches!(nearest.op, MountOp::Bind { read_only: true, .. });
        return read_only.then_some(&nearest.path);
    }
    let files = plan.landlock.as_ref()?.files.iter();
    let around = files.filter(|rule| path.starts_with(&rule.path));
    let nearest = around.max_by_key(|rule| (length(&rule.path), rule.rights))?;
    (nearest.rights == Rights::Read).then_some(&nearest.path)
}

/// What mounts hold.
fn held(plan: &Plan) -> impl Iterator<Item = (&Path, &Source)> {
    let held = |op: &MountOp| matches!(op, MountOp::Protect | MountOp::PinLink);
    let mounts = plan.mounts.iter().filter(move |step| held(&step.op));
    mounts.map(|step| (step.path.as_path(), &step.rule))
}

/// What becomes of a protected path; `new` says so of one that a run makes.
fn kept(policy: &Policy, plan: &Plan, path: &Path, new: Option<&str>) -> Option<String> {
    let absent = path.symlink_metadata().is_err();
    Some(match (Kept::of(plan, path), policy.overlay, absent) {
        (Kept::ReadOnly(held), _, true) => {
            format!("it cannot be made: {} is read-only inside", held.display())
        }
        (Kept::ReadOnly(_), _, false) => "what is there is read-only inside".to_owned(),
        (_, Some(Overlay::Discard), _) => format!("{APART}, and dropped at the end"),
        (_, Some(_), _) => format!("{APART}, and never committed"),
        (_, None, true) => new?.to_owned(),
        (Kept::PutBack, None, false) => {
            "what is there can be written, and is put back after the run".to_owned()
        }
        (Kept::Judged, None, false) => {
            let new =
                new.map_or(String::new(), |new| format!("; changed, it counts as new: {new}"));
            format!("what is there can be written and removed inside, and is not put back{new}")
        }
    })
}

/// What is written with `--overlay`.
const APART: &str = "what is written is kept apart from the host's files";

/// A protected path of which the policy has said that it may not be written.
pub(super) fn as_kept(decision: Decision, policy: &Policy, path: &Path) -> Decision {
    let effect =
        plan(policy).and_then(|plan| kept(policy, &plan, path, decision.effect.as_deref()));
    Decision { effect, ..decision }
}

/// What may be written goes to a layer.
fn as_apart(decision: Decision, policy: &Policy, plan: &Plan, path: &Path) -> Decision {
    let apart = |op: &MountOp| matches!(op, MountOp::Overlay { .. } | MountOp::NamedHome { .. });
    // A private directory may lie in a tree, and a tree in a private directory.
    let shown = nearest(plan, path);
    let end = match policy.overlay.filter(|_| shown.is_some_and(|step| apart(&step.op))) {
        None => return decision,
        Some(Overlay::Ask) => "; at the end you are asked whether it is committed",
        Some(Overlay::Commit) => ", and committed at the end",
        Some(Overlay::Discard) => ", and dropped at the end",
        Some(Overlay::Keep) => ", until `ringfence overlay commit`",
    };
    Decision { effect: Some(format!("{APART}{end}")), ..decision }
}

/// A file that a hook or a setting leads to is protected though it has no protected name.
pub(super) fn as_guarded(
    decision: Decision,
    policy: &Policy,
    plan: &Plan,
    path: &Path,
) -> Decision {
    let absent = path.symlink_metadata().is_err();
    let guards = plan
        .guards
        .iter()
        .filter(|step| match step.found {
            // Others are judged by what is in them.
            Found::Absent => match step.guarded {
                Guarded::Plain => absent,
                Guarded::Program => absent && step.path == path,
                Guarded::GitHooks => absent && !path.as_os_str().as_bytes().ends_with(b".sample"),
                _ => false,
            },
            _ => true,
        })
        .filter(|step| !matches!(step.guarded, Guarded::Settings | Guarded::GitSettings));
    let mut held = held(plan).chain(guards.map(|step| (step.path.as_path(), &step.rule)));
    let Some((held, rule)) = held.find(|(held, _)| path.starts_with(held)) else {
        return as_apart(decision, policy, plan, path);
    };
    let effect = kept(policy, plan, path, Some("a new one does not survive the run"));
    Decision {
        allowed: false,
        layer: "protect",
        explanation: format!("{} is protected: {} leads to it", path.display(), rule.text),
        rule: Some(rule.clone()),
        remedy: Some(shown::option("--write", held, absent)),
        effect,
        ..decision
    }
}

/// Landlock grants whole trees, so that in the process tier a directory cannot be listed without
/// what is in a denied one below it.
pub(super) fn as_listed(decision: Decision, policy: &Policy, plan: Plan, path: &Path) -> Decision {
    let Some(landlock) = plan.landlock.filter(|_| plan.tier == Tier::Process) else {
        return decision;
    };
    let lists = |rule: &FileRule| rule.rights != Rights::Use && path.starts_with(&rule.path);
    if landlock.files.iter().any(lists) {
        return decision;
    }
    let below = |rule: &&PathRule| rule.access == Access::Deny && rule.path.starts_with(path);
    let denied = policy.paths.iter().find(|rule| below(rule) && rule.path.is_dir());
    let denied = denied.or_else(|| policy.paths.iter().find(below));
    let holds = denied.map_or_else(
        || "something that is denied".to_owned(),
        |rule| format!("{}, which is denied", rule.path.display()),
    );
    Decision {
        allowed: false,
        explanation: format!(
            "{} cannot be listed in the process tier, because it holds {holds}; what else is in \
             it can be read by name",
            path.display()
        ),
        rule: denied.map(|rule| rule.source.clone()),
        remedy: Some("--tier namespace".to_owned()),
        effect: None,
        ..decision
    }
}
