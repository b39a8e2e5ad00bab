//! ringfence's own directories: what is in them decides about later sandboxes.
//!
//! A program inside that could write a profile, a trusted hash or a compiled plan would choose its
//! next boundary itself. So they are protected whatever grants them, also where they do not exist
//! yet: then they are made before the run ([`crate::Policy::made`]), so that a mount can hold them.
//! Compiled plans are not even read: they name what other sandboxes show; nor are the records of
//! sessions, beside which are the sockets of those that run, and a read-only mount does not stop
//! connecting to one.

use crate::files::{Real, Resolver};
use crate::guard::plain;
use crate::policy::{Access, PathRule, Policy, Source};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// One of the directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Own {
    pub path: PathBuf,
    pub access: Access,
    pub reason: &'static str,
}

/// Variable, directory below the home without it, what rules say, and the reason.
const BASES: [(&str, &str, Access, &str); 3] = [
    (
        "XDG_CONFIG_HOME",
        ".config",
        Access::Protect,
        "profiles decide what a sandbox may do, and hooks in them run outside",
    ),
    (
        "XDG_STATE_HOME",
        ".local/state",
        Access::Deny,
        "the sockets and records of sandboxes, and what is trusted",
    ),
    ("XDG_CACHE_HOME", ".cache", Access::Deny, "compiled plans are carried out as they are"),
];

/// Names the directory, usually among those of the state's `learn`, in which a run that is watched keeps its session and what it
/// writes, in place of those of other sessions. What else ringfence keeps is where it always is.
pub const LEARNING: &str = "RINGFENCE_LEARNING";

/// Set for the run that holds the machine of the vm tier, which reads what is kept of its guest.
pub const MACHINE: &str = "RINGFENCE_MACHINE";

/// The directories of this user, by the XDG base directory rules, those without the variables too
/// (another program of the user's may run without them), and the system's.
pub(crate) fn directories(home: &Path, env: &dyn Fn(&str) -> Option<OsString>) -> Vec<Own> {
    let mut all = Vec::with_capacity(4);
    for (variable, usual, access, reason) in BASES {
        let named = env(variable).map(PathBuf::from).filter(|path| path.is_absolute());
        let usual = home.join(usual);
        for base in named.into_iter().filter(|named| *named != usual).chain([usual.clone()]) {
            all.push(Own { path: base.join("ringfence"), access, reason });
        }
    }
    if let Some(learning) = env(LEARNING).map(PathBuf::from).filter(|path| path.is_absolute()) {
        let reason = "the sockets and records of sandboxes";
        all.push(Own { path: learning, access: Access::Deny, reason });
    }
    let reason = "profiles decide what a sandbox may do";
    all.push(Own { path: PathBuf::from("/etc/ringfence"), access: Access::Protect, reason });
    all
}

/// What of ringfence's own no sandbox is shown, whoever says so: by a rule for just that, or for a link that leads there.
/// Plans would be read, and sockets be connected to. Each with where its links lead.
pub(crate) struct Hidden(Vec<(Own, Option<PathBuf>)>);

impl Hidden {
    /// Of this user. Asked about each rule that grants something, so this is found once.
    pub fn of(
        home: &Path,
        env: &dyn Fn(&str) -> Option<OsString>,
        resolver: &mut Resolver<'_>,
    ) -> Hidden {
        if env(MACHINE).is_some() {
            return Hidden(Vec::new());
        }
        let all = directories(home, env).into_iter().filter(|own| own.access == Access::Deny);
        let real = |own: Own| {
            let real = resolver.real(&own.path).ok().map(|real| real.path);
            (own, real)
        };
        Hidden(all.map(real).collect())
    }

    /// Why a path is not shown, if it is in one of them.
    pub fn why(&self, path: &Path) -> Option<String> {
        let within = |(own, real): &&(Own, Option<PathBuf>)| {
            path.starts_with(&own.path) || real.as_ref().is_some_and(|real| path.starts_with(real))
        };
        let (own, _) = self.0.iter().find(within)?;
        let (place, reason) = (own.path.display(), own.reason);
        Some(format!("{place} is ringfence's own, and not shown inside: {reason}"))
    }
}

/// Where they are, whether they exist or not.
pub fn places(home: &Path, env: &dyn Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    directories(home, env).into_iter().map(|own| own.path).collect()
}

/// The source of the rules about them.
pub fn source() -> Source {
    built_in("ringfence's own")
}

fn built_in(text: &str) -> Source {
    Source { origin: "built in".to_owned(), key: String::new(), text: text.to_owned() }
}

/// Where the links lead that are among the profiles and features of later runs, as those who keep their dotfiles in a
/// repository make them: whoever writes that, writes the profile.
pub(crate) fn linked(
    home: &Path,
    env: &dyn Fn(&str) -> Option<OsString>,
    resolver: &mut Resolver<'_>,
) -> Vec<PathBuf> {
    let places = directories(home, env).into_iter().filter(|own| own.access == Access::Protect);
    let mut led_to = Vec::new();
    for directory in places.flat_map(|own| ["profiles", "features"].map(|name| own.path.join(name)))
    {
        let Ok(real) = resolver.real(&directory) else { continue };
        led_to.extend(by_links(&real));
        // No run can add to them.
        let names = resolver.files().names(&real.path, usize::MAX).unwrap_or_default();
        for path in names.into_iter().map(|name| real.path.join(name)) {
            // One that leads to nothing yet is a profile as soon as that is there.
            led_to.extend(resolver.real(&path).iter().flat_map(by_links));
        }
    }
    led_to
}

/// Where links lead, and they themselves; nothing where there are none.
fn by_links(real: &Real) -> Vec<PathBuf> {
    if real.links.is_empty() {
        return Vec::new();
    }
    let links = real.links.iter().map(|(link, _)| link.clone());
    links.chain([real.path.clone()]).collect()
}

/// Protects ringfence itself, and the links that it is started by: what is put in their place runs outside the next time.
pub(crate) fn program(places: &[PathBuf], resolver: &mut Resolver<'_>, policy: &mut Policy) {
    for path in places {
        let written = crate::guard::writable(policy).any(|tree| path.starts_with(tree));
        let known = |rule: &PathRule| rule.source == source() && rule.path == *path;
        if written && !policy.paths.iter().any(known) {
            let reason = Some("what is put in its place runs outside the next time".to_owned());
            let link = resolver.files().link(path).is_ok_and(|target| target.is_some());
            let rule = plain(Access::Protect, path.clone(), true, source());
            policy.paths.push(PathRule { link, reason, ..rule });
        }
    }
}

/// Protects files that this run's policy is read from, by their names and where links there lead, and those that
/// later ones are read from, which are where their names say.
pub(crate) fn protect(
    deciding: Vec<PathBuf>,
    elsewhere: Vec<PathBuf>,
    resolver: &mut Resolver<'_>,
    policy: &mut Policy,
) {
    let mut files = elsewhere;
    for file in deciding {
        let real = resolver.real(&file).ok().filter(|real| real.exists);
        files.extend(real.iter().flat_map(by_links).filter(|path| *path != file));
        files.push(file);
    }
    for path in files.into_iter().filter(|path| path.is_absolute()) {
        let known = |rule: &PathRule| rule.access == Access::Protect && rule.path == path;
        let written = crate::guard::writable(policy).any(|tree| path.starts_with(tree));
        if written && !policy.paths.iter().any(known) {
            let source = built_in("policy is not written from inside");
            let reason = Some("it decides what a sandbox may do".to_owned());
            // Of a link itself, not of what is in the directory that it leads to.
            let link = resolver.files().link(&path).is_ok_and(|target| target.is_some());
            let rule = plain(Access::Protect, path, true, source);
            policy.paths.push(PathRule { link, reason, ..rule });
        }
    }
}
