//! Decisions about files and sockets.

use crate::decide::{Subject, Verdict};
use crate::files::FileView;
use crate::glob;
use crate::guard;
use crate::path::within;
use crate::policy::{Access, Guarded, Home, PathRule, Policy, Source, TierChoice};
use crate::shown;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What is to be done with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Read,
    Write,
    Exec,
}

/// Devices that every sandbox has.
const DEVICES: [&str; 8] = ["null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts"];
/// Of these the last ones make terminals.
const TERMINALS: usize = 2;

/// Directories that are the sandbox's own.
const PRIVATE: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

/// Judges a path by both its spellings; the worse one counts.
pub(crate) fn file(policy: &Policy, subject: &Subject, act: Act) -> Verdict {
    let written = through_links(policy, &subject.path);
    let first = one(policy, &written, subject.missing, act);
    match &subject.real {
        Some(real) if first.allowed && *real != written => {
            let second = one(policy, real, subject.missing, act);
            let explained = format!(
                "{} leads to {}: {}",
                subject.path.display(),
                real.display(),
                second.explanation
            );
            Verdict { explanation: explained, ..second }
        }
        _ => first,
    }
}

/// Judges a connection to a Unix socket of the host.
pub(crate) fn socket(policy: &Policy, subject: &Subject) -> Verdict {
    let written = through_links(policy, &subject.path);
    let path = subject.real.as_deref().unwrap_or(&written);
    let shown = path.display();
    if policy.tier == TierChoice::Process {
        let explanation = format!(
            "{shown} cannot be reached: the process tier refuses all local sockets of the host"
        );
        return Verdict::new(false, "socket", explanation).remedy(format!(
            "--tier namespace {}",
            shown::option("--allow-socket", path, subject.missing)
        ));
    }
    if let Some(rule) = policy.network.sockets.iter().find(|rule| rule.path == path) {
        return Verdict::new(true, "socket", format!("a rule grants the socket {shown}"))
            .rule(&rule.source);
    }
    let file = file(policy, subject, Act::Read);
    match file.rule.as_ref().filter(|_| file.allowed) {
        Some(rule) => {
            Verdict::new(true, "socket", format!("{shown} lies in a granted tree")).rule(rule)
        }
        None => {
            let explanation =
                format!("no rule grants the socket {shown}, and it is not visible inside");
            Verdict::new(false, "socket", explanation).remedy(shown::option(
                "--allow-socket",
                path,
                subject.missing,
            ))
        }
    }
}

/// The path with the links of the policy followed, as the view inside has them.
pub fn through_links(policy: &Policy, path: &Path) -> PathBuf {
    let mut path = path.to_path_buf();
    // As many as the kernel follows; a circle ends here as it does there.
    for _ in 0..40 {
        let links = policy.links.iter().filter(|(place, _)| within(&path, place));
        let link = links.max_by_key(|(place, _)| place.as_os_str().len());
        let Some((place, target)) = link else { break };
        let rest = path.strip_prefix(place).unwrap_or(Path::new("")).to_path_buf();
        let base = place.parent().unwrap_or(Path::new("/"));
        path = crate::path::normal(&base.join(target).join(rest));
    }
    path
}

fn one(policy: &Policy, path: &Path, missing: bool, act: Act) -> Verdict {
    let shown = path.display();
    let covering = |access| best(policy, access, path);
    if let Some(rule) = covering(Access::Deny) {
        let why = reason(rule);
        return Verdict::new(false, "filesystem", format!("{shown} is denied{why}"))
            .rule(&rule.source)
            .remedy(undo(rule, "deny"));
    }
    // What is granted around directories of the sandbox's own does not show the host's in them.
    let write = covering(Access::Write).filter(|rule| !is_around_own(policy, rule, path));
    let read = covering(Access::Read)
        .filter(|rule| !private_in_root(policy, rule, path) && !is_around_own(policy, rule, path));
    match act {
        Act::Write => match (write, protection(policy, path, missing)) {
            (Some(_), Some(verdict)) => verdict,
            (Some(rule), None) => {
                Verdict::new(true, "filesystem", format!("{shown} is writable")).rule(&rule.source)
            }
            (None, _) => not_writable(policy, path, missing, read),
        },
        Act::Read | Act::Exec if emptied(policy, path) => {
            let explanation = format!("{shown} is in a directory that is empty inside");
            Verdict::new(true, "private", explanation)
        }
        Act::Read | Act::Exec => match write.or(read) {
            Some(rule) => {
                let can =
                    if act == Act::Exec { "executable where its mode says so" } else { "readable" };
                Verdict::new(true, "filesystem", format!("{shown} is {can}")).rule(&rule.source)
            }
            None => not_readable(policy, path, missing, act),
        },
    }
}

/// The rule that covers a path most closely.
fn best<'p>(policy: &'p Policy, access: Access, path: &Path) -> Option<&'p PathRule> {
    let rules = policy.paths.iter().filter(|rule| rule.access == access && covers(rule, path));
    rules.max_by_key(|rule| rule.path.as_os_str().len())
}

/// Whether a path lies where the command has an empty directory of its own.
fn emptied(policy: &Policy, path: &Path) -> bool {
    let private = best(policy, Access::Protect, path);
    let private = private.is_some_and(|rule| rule.guarded == Guarded::Private);
    private && policy.tier != TierChoice::Process && best(policy, Access::Write, path).is_some()
}

/// Whether a rule denies a path, the very one that is meant: no link of it is followed.
pub fn denied(policy: &Policy, path: &Path) -> bool {
    best(policy, Access::Deny, &crate::path::normal(path)).is_some()
}

/// The user's rule by which all of a granted tree is protected, because it names that or what is around it.
pub fn protected_whole<'p>(policy: &'p Policy, tree: &Path) -> Option<&'p PathRule> {
    let mut around = policy.paths.iter().filter(|rule| {
        let protects = rule.access == Access::Protect && rule.guarded == Guarded::Plain;
        protects && rule.source.origin != "built in" && covers(rule, tree)
    });
    around.next()
}

/// Whether a rule covers a path.
pub(crate) fn covers(rule: &PathRule, path: &Path) -> bool {
    // Both are normal, and most rules are about something else.
    if !within(path, &rule.path) {
        return false;
    }
    match (path.strip_prefix(&rule.path), &rule.pattern) {
        (Err(_), _) => false,
        (Ok(below), _) if rule.link => below.as_os_str().is_empty(),
        (Ok(_), None) => true,
        (Ok(below), Some(pattern)) => glob::covers(pattern, below.as_os_str().as_bytes()),
    }
}

/// What keeps a path in a writable tree from being written, if something does.
fn protection(policy: &Policy, path: &Path, missing: bool) -> Option<Verdict> {
    let shown = path.display();
    let judged = |guarded| match guarded {
        Guarded::GitConfig if policy.git_settings => Guarded::GitSettings,
        guarded => guarded,
    };
    if let Some(rule) = best(policy, Access::Protect, path) {
        let undo = match rule.source.origin == "built in" {
            true => lift(&rule.path, missing, judged(rule.guarded)),
            false => undo(rule, "protect"),
        };
        let explanation = format!("{shown} is protected{}", reason(rule));
        return Some(
            new_ones(Verdict::new(false, "protect", explanation), judged(rule.guarded))
                .rule(&rule.source)
                .remedy(undo),
        );
    }
    // The innermost tree's protection is the one that holds: names count from each tree.
    for tree in guard::writable(policy).filter(|tree| path.starts_with(tree)) {
        let Some((guarded, name)) = guard::named(&policy.protected_names, tree, path) else {
            continue;
        };
        if policy.unprotected.iter().any(|free| path.starts_with(free)) {
            continue;
        }
        let explanation =
            format!("{} is protected in writable trees: {}", guarded.display(), name.reason);
        let closer = best(policy, Access::Write, path);
        let closer = closer.filter(|rule| rule.path != guarded && rule.path.starts_with(&guarded));
        let explanation = match closer.map(|rule| &rule.source) {
            Some(source) => format!(
                "{explanation} (`{}` of {} lifts nothing of that: it is protected whole)",
                source.text, source.origin
            ),
            None => explanation,
        };
        let verdict = Verdict::new(false, "protect", explanation).rule(&guard::built_in());
        let remedy = lift(&guarded, missing, judged(name.guarded));
        return Some(new_ones(verdict, judged(name.guarded)).remedy(remedy));
    }
    None
}

/// What lifts a built-in protection.
fn lift(path: &Path, missing: bool, guarded: Guarded) -> String {
    let write = shown::option("--write", path, missing);
    match guarded {
        Guarded::GitConfig => {
            format!("{write}, or --feature git-settings, but for what makes git run something")
        }
        _ => write,
    }
}

/// Adds what becomes of a path that does not exist yet.
fn new_ones(verdict: Verdict, guarded: Guarded) -> Verdict {
    match guarded {
        Guarded::Plain => verdict.effect("a new one does not survive the run"),
        Guarded::GitHooks => {
            verdict.effect("a new one survives the run when it holds only samples")
        }
        Guarded::GitConfig => {
            verdict.effect("a new one survives the run when it makes git run nothing")
        }
        Guarded::GitSettings => Verdict { allowed: true, ..verdict }
            .effect("after the run what makes git run something is what it was"),
        Guarded::GitCommon => verdict
            .effect("a new one survives the run when it leads to the repository that it is in"),
        Guarded::GitState => Verdict { allowed: true, remedy: None, ..verdict }
            .effect("it survives the run when git itself could have written it"),
        Guarded::Program => verdict.effect("a new file does not survive the run"),
        Guarded::ExistingOnly => verdict.effect("a new one is the program's own"),
        Guarded::Settings => Verdict { allowed: true, remedy: None, ..verdict }
            .effect("keys that run or trust something keep the value they had before the run"),
        Guarded::Skills => verdict.effect("a new one does not survive the run"),
        Guarded::Private => Verdict { allowed: true, remedy: None, ..verdict }
            .effect("what is written there does not survive the run"),
    }
}

fn not_writable(policy: &Policy, path: &Path, missing: bool, read: Option<&PathRule>) -> Verdict {
    let shown = path.display();
    if let Some(verdict) = no_terminals(policy, path).filter(|_| read.is_none()) {
        return verdict;
    }
    if let Some(rule) = read {
        return Verdict::new(false, "filesystem", format!("{shown} is granted for reading only"))
            .rule(&rule.source)
            .remedy(grant_writing(path, missing));
    }
    if let Some((what, effect)) = private(policy, path) {
        return Verdict::new(true, "private", format!("{shown} is in {what}"))
            .effect(effect)
            .remedy(format!("to write the host's: {}", grant_writing(path, missing)));
    }
    Verdict::new(false, "filesystem", format!("no rule grants {shown}"))
        .remedy(grant_writing(path, missing))
}

/// A rule about what is not there grants nothing, also where it says that it may be missing.
fn grant_writing(path: &Path, missing: bool) -> String {
    let write = shown::option("--write", path, false);
    if missing { format!("make it outside, then {write}") } else { write }
}

/// What is said where the namespace tier would have terminals of the sandbox's own.
fn no_terminals(policy: &Policy, path: &Path) -> Option<Verdict> {
    let name = path.strip_prefix("/dev").ok()?.iter().next()?;
    let makes = DEVICES[DEVICES.len() - TERMINALS..].iter().any(|device| name == *device);
    (makes && policy.tier == TierChoice::Process).then(|| {
        let explanation =
            format!("{}: the process tier has no terminals of its own", path.display());
        Verdict::new(false, "filesystem", explanation).remedy("--tier namespace".to_owned())
    })
}

fn not_readable(policy: &Policy, path: &Path, missing: bool, act: Act) -> Verdict {
    let shown = path.display();
    if let Some(verdict) = no_terminals(policy, path) {
        return verdict;
    }
    if let Some(verdict) = of_first_process(policy, path) {
        return verdict;
    }
    if let Some(what) = own(policy, path).filter(|_| act == Act::Read) {
        return Verdict::new(true, "private", format!("{shown} is {what}"));
    }
    // A grant of it would be one of the whole host, and nobody needs it to come to what is below.
    if policy.tier != TierChoice::Process && !missing && leads_to_granted(policy, path) {
        let why = format!(
            "no rule grants {shown}: inside it is a directory of the view's own, with just what is granted below it"
        );
        return Verdict::new(false, "filesystem", why);
    }
    let why = match private(policy, path) {
        Some((what, _)) => format!("no rule grants {shown}, and {what} does not show the host's"),
        None => format!("no rule grants {shown}"),
    };
    Verdict::new(false, "filesystem", why).remedy(shown::option("--read", path, missing))
}

/// What the kernel shows of a process to those alone that may trace it (proc(5)).
const TRACERS: [&str; 16] = [
    "auxv",
    "cwd",
    "environ",
    "exe",
    "fdinfo",
    "map_files",
    "maps",
    "mem",
    "numa_maps",
    "pagemap",
    "personality",
    "root",
    "smaps",
    "smaps_rollup",
    "stack",
    "syscall",
];

/// What is said of process 1: the sandbox's warden or, in the process tier, one outside. Nobody inside may trace it.
fn of_first_process(policy: &Policy, path: &Path) -> Option<Verdict> {
    let below = path.strip_prefix("/proc/1").ok()?;
    let traced = below.iter().any(|name| TRACERS.iter().any(|known| name == *known));
    (traced && policy.tier != TierChoice::Vm).then(|| {
        let why = "process 1 is none of the command's, and shows this to nobody inside";
        Verdict::new(false, "private", format!("{}: {why}", path.display()))
    })
}

/// Whether a directory is on the way to what a rule grants.
fn leads_to_granted(policy: &Policy, path: &Path) -> bool {
    let grants =
        policy.paths.iter().filter(|rule| matches!(rule.access, Access::Read | Access::Write));
    grants.map(|rule| &rule.path).any(|granted| granted != path && within(granted, path))
}

/// The private directory that a path is in, and what writing there comes to.
fn private(policy: &Policy, path: &Path) -> Option<(&'static str, String)> {
    let gone = "private: discarded at the end".to_owned();
    if let Ok(name) = path.strip_prefix("/dev")
        && name
            .iter()
            .next()
            .is_some_and(|name| devices(policy).iter().any(|device| name == *device))
    {
        return Some(("the sandbox's own /dev", "a device: nothing is stored".to_owned()));
    }
    // Without a view of its own, the host's directories are there, and closed.
    if policy.tier == TierChoice::Process {
        return None;
    }
    if PRIVATE.iter().any(|private| path.starts_with(private)) {
        return Some(("a private directory for temporary files", gone));
    }
    if has_empty_workdir(policy) && path.starts_with(&policy.workdir) {
        return Some(("the directory of the run, which is empty inside", gone));
    }
    if !path.starts_with(&policy.home_dir) || policy.home_dir.parent().is_none() {
        return None;
    }
    match &policy.home {
        Home::Private => Some(("a private home", gone)),
        Home::Named(name) => {
            Some(("a private home", format!("private: kept in the home `{name}`")))
        }
        Home::Host => None,
    }
}

/// Whether a rule for the whole of the host does not show it at a path: there is a private directory.
fn private_in_root(policy: &Policy, rule: &PathRule, path: &Path) -> bool {
    // The view has no other one for it: the host's is shown, for reading.
    let temporary = path.starts_with("/var/tmp");
    rule.path == Path::new("/") && !temporary && private(policy, path).is_some()
}

/// Whether a rule's tree, less than all of the host, has a directory in it that is the sandbox's own, and a path is in that.
fn is_around_own(policy: &Policy, rule: &PathRule, path: &Path) -> bool {
    if policy.tier == TierChoice::Process || rule.path.parent().is_none() {
        return false;
    }
    let home = (policy.home != Home::Host).then_some(&*policy.home_dir);
    let mut own = ["/tmp", "/dev/shm"].map(Path::new).into_iter().chain(home);
    own.any(|own| path.starts_with(own) && own != rule.path && own.starts_with(&rule.path))
}

/// Whether a program that is shown only what its arguments name starts in an empty directory of its own, called as the
/// one that it was started in.
fn has_empty_workdir(policy: &Policy) -> bool {
    let workdir = &policy.workdir;
    let grants = |rule: &PathRule| matches!(rule.access, Access::Read | Access::Write);
    let shown = |rule: &PathRule| rule.path.starts_with(workdir) || workdir.starts_with(&rule.path);
    policy.arguments.is_some()
        && *workdir != policy.home_dir
        && !policy.paths.iter().any(|rule| grants(rule) && shown(rule))
}

/// The directory of the host in which a path would be made, and that a private view has not: what is written there
/// fails, unless the program makes the directory first, though the view takes writes.
pub fn unseen_above(policy: &Policy, path: &Path, files: &dyn FileView) -> Option<PathBuf> {
    private(policy, path)?;
    let above = path.ancestors().skip(1).find(|above| files.link(above).is_ok())?;
    // What is in a home that is kept is not known here.
    let kept = matches!(policy.home, Home::Named(_)) && above.starts_with(&policy.home_dir);
    let mut own = PRIVATE.iter().map(Path::new).chain([&*policy.home_dir, &*policy.workdir]);
    let there = own.any(|own| own.starts_with(above))
        || leads_to_granted(policy, above)
        || above.starts_with("/dev");
    (!kept && !there).then(|| above.to_path_buf())
}

/// What a sandbox has of its own to read.
fn own(policy: &Policy, path: &Path) -> Option<&'static str> {
    if path.starts_with("/proc") {
        return Some("the sandbox's own view of its processes");
    }
    let name = path.strip_prefix("/dev").ok()?.iter().next()?;
    devices(policy)
        .iter()
        .any(|device| name == *device)
        .then_some("a device that every sandbox has")
}

/// Those that this one has: `/dev/pts` is the host's in the process tier, with the user's other terminals in it.
fn devices(policy: &Policy) -> &'static [&'static str] {
    match policy.tier {
        TierChoice::Process => &DEVICES[..DEVICES.len() - TERMINALS],
        _ => &DEVICES,
    }
}

fn reason(rule: &PathRule) -> String {
    rule.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default()
}

/// How to take a refusal back.
fn undo(rule: &PathRule, key: &str) -> String {
    let Source { origin, text, .. } = &rule.source;
    match origin.strip_prefix("option ") {
        Some(option) => format!("leave out {option} {text}"),
        None if origin == "built in" => format!("it cannot be granted: {text}"),
        None => format!("use a profile without `{text}` in its filesystem.{key}, as {origin} has"),
    }
}
