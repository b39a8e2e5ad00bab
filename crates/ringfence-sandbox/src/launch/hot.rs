//! What a process does that was launched from the cache before libc was up: the launcher
//! supervises what runs already, the child becomes a warden with libc when a simple one does
//! not suffice.

use super::filing::Kept;
use super::{Order, cache, timeout};
use crate::error::LaunchError;
use crate::guard::Guarding;
use crate::live::Spawner;
use crate::network::Network;
use crate::plan::{Plan, Tier};
use crate::supervise::{self, Heard, Outcome};
use crate::trace::Trace;
use crate::warden::Warden;
use crate::watches::Watches;
use ringfence_start::entry::{self, Launched, Role};
use ringfence_sys as sys;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use sys::image::Words;
use sys::signal::SignalSet;

/// A launch that is under way.
pub struct Resumed {
    launched: &'static Launched,
    kept: Kept,
    control: OwnedFd,
    pidfd: OwnedFd,
}

/// The launch that the entry has begun, if it has.
///
/// # Errors
/// What the launcher needs cannot be read. Its command may have run already, and is ended.
pub fn resumed() -> Result<Option<Resumed>, LaunchError> {
    if !matches!(entry::role(), Role::Launcher) {
        return Ok(None);
    }
    let parts = entry::launched().and_then(|launched| {
        let control = sys::fd::adopt(launched.control)?;
        let pidfd = sys::fd::adopt(launched.pidfd)?;
        match kept(launched) {
            Some(kept) => Some(Resumed { launched, kept, control, pidfd }),
            None => {
                abandon(launched, control, &pidfd);
                None
            }
        }
    });
    parts.map(Some).ok_or_else(unreadable)
}

fn unreadable() -> LaunchError {
    let what = "a compiled plan in the cache is unreadable: it is removed; run the command again";
    LaunchError::Setup(what.to_owned())
}

fn kept(launched: &Launched) -> Option<Kept> {
    serde_json::from_slice(launched.image?.extra()).ok()
}

/// Ends a child that this launcher cannot look after.
fn abandon(launched: &Launched, control: OwnedFd, pidfd: &OwnedFd) {
    let _ = sys::signal::send(pidfd.as_fd(), 9);
    drop(control);
    while matches!(sys::process::wait_any(true), Ok(Some((pid, _))) if pid != launched.pid) {}
    put_back(launched);
    cache::forget(launched.command);
}

/// Makes this process what it was before the entry launched something.
fn put_back(launched: &Launched) {
    let _ = sys::signal::set_mask(SignalSet::of_bits(launched.mask));
    sys::process::set_umask(launched.umask);
}

fn guarding(launched: &Launched, kept: &Kept) -> Option<Guarding> {
    let image = launched.image?;
    let notes = image.bytes(image.header().notes);
    let paths = notes.split(|&byte| byte == 0).filter(|path| !path.is_empty());
    let paths = paths.map(|path| PathBuf::from(OsStr::from_bytes(path)));
    let notes = paths.zip(launched.before.notes);
    let times = (launched.before.since, since(launched.before.began));
    Guarding::again(&kept.plan, kept.saved.clone(), notes, times)
}

/// The writable trees that the entry holds, in the order of the plan's.
fn tops(launched: &Launched, plan: &Plan) -> impl Iterator<Item = (PathBuf, File)> {
    let top = |(which, top): (usize, i32)| {
        let tree = &plan.guarded_trees.get(which)?.tree;
        Some((tree.clone(), File::from(sys::fd::adopt(top)?)))
    };
    launched.tops.held().filter_map(top)
}

impl Resumed {
    /// The plan, as far as a launcher needs it.
    pub fn plan(&self) -> &Plan {
        &self.kept.plan
    }

    /// The session's number.
    pub fn session(&self) -> u32 {
        self.launched.session
    }
}

/// Supervises a launch that is under way, as [`super::run`] does.
///
/// # Errors
/// [`LaunchError::Stale`] when the command could not be started: nothing has run then, and the
/// ordinary way is open.
pub fn resume(
    resumed: Resumed,
    order: &Order,
    trace: &Trace,
    started: &dyn Fn(&Plan),
) -> Result<Outcome, LaunchError> {
    let Resumed { launched, kept, control, pidfd } = resumed;
    let plan = &kept.plan;
    let Some(mut guarding) = guarding(launched, &kept) else {
        abandon(launched, control, &pidfd);
        return Err(unreadable());
    };
    match launched.runs {
        Some(begun) => guarding.begun(begun),
        None => guarding.begin(),
    }
    guarding.hold_these(tops(launched, plan));
    guarding.inherit_from_others(plan);
    guarding.tell();
    let private = crate::state::private_path(plan, &super::session_name(launched.session));
    let began =
        Instant::now().checked_sub(since(launched.before.began)).unwrap_or_else(Instant::now);
    let (pid, tier, heard) = (launched.pid, plan.tier, heard());
    let job = launched.job.then(supervise::Job::new);
    let supervised = supervise::Child { pid, pidfd, control, tier, job, began, heard };
    let duties = supervise::Duties {
        started: &|| started(plan),
        going: &|| (),
        vigil: &|| guarding.vigil(&order.session_name()),
        covers: &|| kept.covers.clone(),
        awaited: &|| guarding.awaited(),
        removed: &|path, was| guarding.removed(path, was),
        enforce: &|| guarding.enforce(Some(&order.session_name())),
        will: guarding.will(),
        metadata: crate::metadata::of(plan, private.as_ref()),
        watches: Watches { plan, private: private.as_ref() },
        publish: crate::sockets::handler(plan, order.filter.as_ref()),
        explain: &|_, _, _| LaunchError::Stale,
        keeper: order.keeper.as_deref(),
        // One that has a machine is never filed.
        machine: None,
        plan,
    };
    let network = Network::new(order.filter.clone());
    let mut outcome = supervise::until_end(supervised, network, timeout(plan), trace, &duties);
    trace.mark("ended");
    if let Some(private) = &private {
        crate::state::remove_private(private);
    }
    put_back_umask(launched);
    if outcome == Err(LaunchError::Stale) {
        put_back(launched);
        cache::forget(launched.command);
    }
    outcome.iter_mut().for_each(|outcome| guarding.judge(outcome));
    outcome
}

/// How long ago a time of the monotonic clock was.
fn since(nanoseconds: u64) -> Duration {
    Duration::from_nanos(ringfence_start::trace::now().saturating_sub(nanoseconds))
}

/// What the entry has taken from the control socket, in order.
fn heard() -> Vec<Heard> {
    let heard = entry::heard();
    let adopted = |fds: &[i32]| fds.iter().filter_map(|&fd| sys::fd::adopt(fd)).collect();
    let passed = heard.messages().map(|(message, fds)| Heard {
        message: message.to_vec(),
        passed: adopted(fds),
        ..Heard::default()
    });
    let said = heard.said().map(|(message, pid, at)| {
        let ago = since(at);
        Heard { message: message.to_vec(), pid: Some(pid), ago, ..Heard::default() }
    });
    passed.chain(said).collect()
}

fn put_back_umask(launched: &Launched) {
    sys::process::set_umask(launched.umask);
}

/// Goes on as a warden with libc, if this process is one; called before anything else.
pub fn become_warden() {
    let Role::Warden(simple, wanted) = entry::role() else { return };
    let parts = entry::launched().and_then(|launched| {
        let kept = kept(launched)?;
        let guarding = guarding(launched, &kept)?;
        if kept.plan.tier == Tier::Process {
            guarding.hold_these(tops(launched, &kept.plan));
        }
        let carrier = sys::image::take_over()?;
        // The launcher's own, by which its directory is named.
        let private = private_of_warden(launched, &kept.plan);
        let arguments = entry::caller()?.arguments_from(launched.command);
        let text = |text: &'static [u8]| CString::new(text).ok();
        let workdir = kept.plan.workdir.as_os_str().as_bytes();
        let words = Words {
            arguments: arguments.map(text).collect::<Option<_>>()?,
            environment: entry::environment().map(text).collect::<Option<_>>()?,
            workdir: CString::new(workdir).ok()?,
        };
        let control = sys::fd::adopt(simple.control)?;
        Some((kept, guarding, carrier, private, words, control))
    });
    let Some((kept, guarding, carrier, private, words, control)) = parts else {
        // Nothing can be looked after: end all of it.
        sys::process::exit_now(125);
    };
    Warden {
        command: simple.command,
        control,
        tier: kept.plan.tier,
        guarding: &guarding,
        private,
        spawner: Spawner { words, carrier },
    }
    .go_on(wanted)
}

/// The private directory is named for the launcher, whose number is in the environment that
/// was made for the command.
fn private_of_warden(launched: &Launched, plan: &Plan) -> Option<PathBuf> {
    if plan.tier != Tier::Process {
        return None;
    }
    let session = super::session_name(launched.session);
    entry::environment().find_map(|entry| {
        let tmp = entry.strip_prefix(b"TMPDIR=")?;
        let private = PathBuf::from(OsStr::from_bytes(tmp)).parent()?.to_path_buf();
        private.as_os_str().as_bytes().ends_with(session.as_bytes()).then_some(private)
    })
}
