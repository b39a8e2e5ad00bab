//! Rules about files: what was asked for and refused, by units, and which of these are left to the user.

use crate::called::{Has, Looking, by_content};
use crate::propose::{Proposal, READ, WRITE, is_its_own, shown};
use crate::replaced::{is_mount, journal, lifted};
use crate::secrets::Secrets;
use crate::temporary::is_made;
use crate::units::{is_shared, unit};
use crate::watch::{Act, Observed, Use};
use ringfence_policy::decide::{Decision, Request};
use ringfence_policy::own::places;
use ringfence_policy::{
    FileView, Home, HostFiles, Moved, Policy, Resolver, Subject, decide, unseen_above,
};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ffi::OsStr;
use std::ops::Bound::{Excluded, Unbounded};
use std::path::{Path, PathBuf};

/// What of one unit was used.
#[derive(Default)]
pub(crate) struct Wanted {
    pub read: Use,
    pub write: Use,
    pub reason: Option<String>,
    /// What is written there would fail without a rule, though the private home takes writes.
    needed: bool,
    /// Some of it the policy refuses; else it is only that its name cannot be replaced, or nothing be kept beside it.
    pub refused: bool,
    /// It is left to the user for what is in it: what it is in is no rule either.
    guarded: bool,
}

impl Wanted {
    pub fn join(&mut self, other: &Wanted) {
        self.needed |= other.needed;
        self.refused |= other.refused;
        self.read.join(&other.read);
        self.write.join(&other.write);
    }

    /// The same, with what is to be said of it.
    pub fn take(&mut self, other: Wanted) {
        self.join(&other);
        self.guarded |= other.guarded;
        self.reason = self.reason.take().or(other.reason);
    }

    /// Whether its rule is enough for the other's.
    fn covers(&self, other: &Wanted) -> bool {
        self.reason.is_none()
            && other.reason.is_none()
            && (self.write.count > 0 || other.write.count == 0)
    }
}

/// What the policy refuses, or takes only in a private home.
struct Lacking<'o> {
    path: &'o Path,
    act: Act,
    uses: &'o Use,
    decision: Decision,
    secret: Option<String>,
    /// The policy does; else it is only that its name is a mount's.
    refused: bool,
    /// It is a name that was replaced or removed, whatever it leads to.
    replaced: bool,
    /// The directory that it is written in, where only the host has it: the private home takes no such write.
    lacks: Option<PathBuf>,
}

/// What nearly each runtime asks the kernel about the machine, and does without. It is not in the default view, where
/// it would be a mount for each in every start; the feature `machine` shows it, but for the names of control groups.
const COMMON: [&str; 6] = [
    "/sys/devices/system/clocksource",
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
    "/sys/fs/cgroup",
    "/sys/kernel/mm/hugepages",
    "/sys/kernel/mm/transparent_hugepage",
];

const OUTSIDE: &str = "it is written outside the home and the project";

impl Proposal {
    pub(crate) fn files(&mut self, policy: &Policy, observed: &Observed) {
        let home = &policy.home_dir;
        let secrets = &Secrets::of(policy);
        let moved = secrets.moved();
        let lacking = lacking(policy, observed, secrets);
        let seen = lacking.iter().filter(|one| one.secret.is_some()).map(|one| one.path);
        // What connects to the host's services is left to the user, and no directory with one of them in it is a rule.
        let services = observed.sockets.keys().filter(|socket| !is_made(observed, socket));
        let seen = seen.chain(services.map(PathBuf::as_path)).collect();
        let own = places(home, &|name| std::env::var_os(name));
        let mut named =
            Named { secrets, seen, own, looking: Looking::default(), trees: BTreeMap::new() };
        let mut units: BTreeMap<PathBuf, Wanted> = BTreeMap::new();
        for one in &lacking {
            let common = COMMON.iter().find(|common| one.path.starts_with(common));
            if let Some(common) = common.filter(|_| one.act == Act::Read) {
                self.common.insert(common);
                continue;
            }
            for (unit, reason) in named.units(one, policy, moved) {
                let reason = reason.or_else(|| one.reason(home));
                // What is only written in a private home asks for no rule, so for none that is too wide.
                let judged = reason.is_none() && !one.is_private();
                let guarded = if judged { named.guarded(&unit) } else { None };
                let wanted = units.entry(unit).or_default();
                wanted.needed |= one.lacks.is_some();
                wanted.refused |= one.refused;
                wanted.guarded |= guarded.is_some() || one.secret.is_some();
                match one.act {
                    Act::Write => wanted.write.join(one.uses),
                    _ => wanted.read.join(one.uses),
                }
                wanted.reason = wanted.reason.take().or(reason).or(guarded);
            }
        }
        let mut gone = private(policy, &mut units);
        let mut units = lifted(units, observed, &mut named, home, &mut self.stay);
        if policy.home == Home::Private {
            let kept = |above: &Path| {
                units.get(above).is_some_and(|one| one.reason.is_none() && one.write.count > 0)
            };
            gone.retain(|path| !path.ancestors().any(kept));
            self.gone = gone.iter().map(|unit| shown(unit, home)).collect();
        }
        for (unit, wanted) in &mut units {
            if wanted.reason.is_none() {
                let protected = if wanted.write.count > 0 { secrets.protected(unit) } else { None };
                // Some were made from others.
                let tree = named.tree(unit);
                wanted.guarded |= tree.is_some();
                wanted.reason = protected.or(tree);
            }
        }
        let mut units = collapsed(units);
        self.across(policy, observed, &mut units, &mut named);
        left_whole(&mut units, home);
        self.temporary(policy, observed, secrets);
        for (unit, Wanted { read, write, reason, .. }) in collapsed(units) {
            let key = if write.count > 0 { WRITE } else { READ };
            let mut uses = read;
            uses.join(&write);
            self.path(key, &unit, home, uses, reason);
        }
    }
}

fn lacking<'o>(policy: &Policy, observed: &'o Observed, secrets: &Secrets) -> Vec<Lacking<'o>> {
    let mut lacking = Vec::new();
    let files = secrets.files();
    let leading = leading(policy);
    for ((path, act), uses) in &observed.paths {
        // That a directory in which each program has one was listed is told, though it is on the way to a rule.
        let below = path.strip_prefix(&policy.home_dir);
        let listed = *act == Act::Read && below.is_ok_and(is_shared);
        if is_passed(observed, path, *act, uses) {
            continue;
        }
        if is_its_own(policy, path) || leading.contains(path.as_os_str()) && !listed {
            continue;
        }
        let replaced = observed.replaced.contains(path);
        let subject = match replaced && uses.opened == 0 {
            true => itself(path, files),
            false => Subject::on_host(path, files),
        };
        let led = subject.real.clone().filter(|_| !subject.missing);
        let decision = match act {
            Act::Write => decide(policy, &Request::Write(subject)),
            // What the host has not is not there either way.
            _ if files.link(path).is_err() => continue,
            Act::Execute => decide(policy, &Request::Exec(subject)),
            _ => decide(policy, &Request::Read(subject)),
        };
        let private = decision.layer == "private" && *act == Act::Write;
        let lies_there = || {
            (!decision.allowed || private).then(|| by_content(path)).flatten().map(str::to_owned)
        };
        let secret = secrets.secret(path).or_else(lies_there);
        // A private home takes writes; what is secret is told even then.
        let passing = decision.allowed && (secret.is_none() || !private);
        let alone = || observed.replaced.contains(path) || journal(observed, path).is_some();
        let held = *act == Act::Write && is_mount(policy, path) && alone();
        let unseen = |path: &Path| unseen_above(policy, path, files);
        let lacks = || unseen(path).or_else(|| led.as_deref().and_then(unseen));
        let lacks = private.then(lacks).flatten();
        // Whoever does not find it makes it: this program did, though it was there (`mkdir -p`).
        let made = |above: &PathBuf| observed.paths.contains_key(&(above.clone(), Act::Write));
        let lacks = lacks.filter(|above| !made(above));
        let refused = !passing || private;
        let one = Lacking { path, act: *act, uses, decision, secret, refused, replaced, lacks };
        if refused || held {
            lacking.push(one);
        }
    }
    lacking
}

/// A name that is changed itself, whatever it leads to: only links on the way are followed.
fn itself(path: &Path, files: &dyn FileView) -> Subject {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return Subject::on_host(path, files);
    };
    let above = Subject::on_host(above, files);
    let real = above.real.map(|real| real.join(name));
    Subject { path: path.to_owned(), real, missing: files.link(path).is_err() }
}

/// Whether a directory was only gone into, on the way to what was used in it: with a rule for that it is there.
fn is_passed(observed: &Observed, directory: &Path, act: Act, uses: &Use) -> bool {
    let own = Excluded((directory.to_owned(), Act::Bind));
    let entered = act == Act::Read && uses.entered == uses.count;
    entered && {
        let behind = observed.paths.range((own, Unbounded));
        let mut within = behind.take_while(|((path, _), _)| path.starts_with(directory));
        within.any(|((path, act), uses)| {
            let read = matches!(act, Act::Read | Act::Execute) && uses.entered < uses.count;
            read && path.symlink_metadata().is_ok()
        })
    }
}

impl Lacking<'_> {
    fn is_private(&self) -> bool {
        self.decision.layer == "private" && self.act == Act::Write && self.lacks.is_none()
    }

    /// Why it is left to the user, whatever it is a part of.
    fn reason(&self, home: &Path) -> Option<String> {
        let decision = &self.decision;
        let secret = self.secret.as_ref().map(|why| format!("credentials: {why}"));
        let refused = decision.rule.as_ref().filter(|_| !decision.allowed);
        let refused = refused.filter(|_| {
            matches!(decision.layer, "protect" | "protected")
                || decision.explanation.contains("denied by")
                || decision.explanation.contains("is denied")
        });
        let refused = refused.map(|_| decision.explanation.clone());
        let device = (!decision.allowed && is_device(self.path))
            .then(|| "a device of the host's: its driver is in reach".to_owned());
        let outside = (self.act == Act::Write && !self.path.starts_with(home) && !decision.allowed)
            .then(|| OUTSIDE.to_owned());
        secret.or(refused).or(device).or(outside)
    }
}

/// What is called like a credential, beside what was asked for.
pub(crate) struct Named<'o> {
    secrets: &'o Secrets,
    /// Credentials that were asked for.
    seen: BTreeSet<&'o Path>,
    /// Ringfence's own directories.
    own: Vec<PathBuf>,
    /// What directories were found to have.
    looking: Looking,
    /// Why directories are no rules.
    trees: BTreeMap<PathBuf, Option<String>>,
}

impl Named<'_> {
    /// Why a directory is not one rule by the names in it.
    fn within(&mut self, directory: &Path) -> Option<&'static str> {
        let below = |path: &Path| path != directory && path.starts_with(directory);
        if self.seen.iter().any(|path| below(path)) {
            return Some("in it are credentials, by their names");
        }
        match self.looking.has(directory) {
            Has::Some => Some("in it are credentials, by their names"),
            Has::None => None,
            Has::Unknown => {
                Some("whether credentials are in it is not known: it is too much to look through")
            }
        }
    }

    /// Why a directory is not one rule, by what is in it and by the names there.
    pub fn guarded(&mut self, directory: &Path) -> Option<String> {
        self.tree(directory).or_else(|| self.within(directory).map(str::to_owned))
    }

    fn tree(&mut self, directory: &Path) -> Option<String> {
        let known = self.trees.entry(directory.to_owned());
        known.or_insert_with(|| self.secrets.tree(directory)).clone()
    }

    /// The units of what is lacking, with why they are left to the user: by the name that was asked for; and by what that
    /// leads to, where a rule for the former does not show it.
    fn units(
        &mut self,
        one: &Lacking<'_>,
        policy: &Policy,
        moved: &Moved,
    ) -> Vec<(PathBuf, Option<String>)> {
        let home = &policy.home_dir;
        // What is protected stays so in a directory that may be written.
        let exactly = one.lacks.is_some() && self.secrets.protected(one.path).is_some();
        if one.secret.is_some() || exactly {
            return vec![(one.path.to_owned(), None)];
        }
        if let Some(own) = self.own(one.path).filter(|_| !one.is_private()) {
            return vec![(own, Some("it is ringfence's own, which no rule shows".to_owned()))];
        }
        let asked = self.beside(unit(one.path, home, moved), one.path);
        let there = asked.symlink_metadata().is_ok();
        // A rule for what is not there is none: what it is made in must be writable.
        if let Some(above) = one.lacks.as_ref().filter(|_| !there) {
            return vec![(above.clone(), None)];
        }
        let refused = one.act == Act::Write && !one.decision.allowed;
        if refused && !there && policy.home == Home::Host && asked.starts_with(home) {
            let above = asked.ancestors().find(|above| above.symlink_metadata().is_ok());
            let above = above.unwrap_or(home).to_owned();
            let Some(why) = self.guarded(&above) else { return vec![(above, None)] };
            let first = asked.components().take(above.components().count() + 1).collect();
            let above = shown(&above, home);
            let why = format!(
                "it is not there, so that a rule for it is none, and {above}, in which it is made, is not proposed: {why}. \
                 Make it outside first"
            );
            return vec![(first, Some(why))];
        }
        let (led, granted) = self.led(one, &asked, policy);
        let mut units = Vec::new();
        if let Some(led) = led {
            let outside = one.act == Act::Write && !led.starts_with(home);
            let outside = outside.then(|| OUTSIDE.to_owned());
            let own = || "each run has its own of that, without what is in the host's".to_owned();
            units.push(match is_its_own(policy, &led) {
                true => (led, Some(own())),
                false => (self.beside(unit(&led, home, moved), &led), outside),
            });
        }
        if !granted || units.is_empty() {
            units.push((asked, None));
        }
        units
    }

    /// Which of ringfence's own directories a path is in, or leads to.
    fn own(&self, path: &Path) -> Option<PathBuf> {
        let real = Resolver::once(self.secrets.files()).real(path).map(|real| real.path);
        let real = real.unwrap_or_else(|_| path.to_owned());
        let within = |own: &&PathBuf| path.starts_with(own) || real.starts_with(own);
        let own = self.own.iter().find(within)?;
        Some(if path.starts_with(own) { own.clone() } else { path.to_owned() })
    }

    /// What a path leads to through links in a unit, where neither a rule for that unit nor the policy shows it; and
    /// whether the policy shows the links.
    fn led(&self, one: &Lacking<'_>, unit: &Path, policy: &Policy) -> (Option<PathBuf>, bool) {
        let real = |path: &Path| {
            let real = Resolver::once(self.secrets.files()).real(path).ok()?;
            real.exists.then_some(real.path)
        };
        let (Some(led), Some(unit)) = (real(one.path), real(unit)) else { return (None, false) };
        let passing = one.decision.allowed && one.lacks.is_none();
        if passing || one.replaced || led.starts_with(&unit) {
            return (None, false);
        }
        let shown = |path: &Path| {
            let subject = Subject::lexical(path);
            let request = if one.act == Act::Write { Request::Write } else { Request::Read };
            let decision = decide(policy, &request(subject));
            decision.allowed && decision.layer != "private"
        };
        ((!shown(&led)).then_some(led), shown(one.path))
    }

    /// The unit, or as much of the path as it takes to have no credential in it.
    fn beside(&mut self, unit: PathBuf, path: &Path) -> PathBuf {
        let mut unit = unit;
        let mut wide = |unit: &Path| self.guarded(unit).is_some();
        while path.starts_with(&unit) && unit != path && wide(&unit) {
            unit = path.components().take(unit.components().count() + 1).collect();
        }
        unit
    }
}

/// What is only written, in a home that is private, works without a rule; but not below what a
/// rule shows of the host's, and for reading only. Returns what is gone with each run.
fn private(policy: &Policy, units: &mut BTreeMap<PathBuf, Wanted>) -> Vec<PathBuf> {
    let mut gone = Vec::new();
    let is_private = |unit: &Path, wanted: &Wanted| {
        wanted.read.count == 0 && wanted.reason.is_none() && !wanted.needed && {
            let subject = Subject::on_host(unit, &HostFiles);
            decide(policy, &Request::Write(subject)).layer == "private"
        }
    };
    let private: Vec<PathBuf> = units
        .iter()
        .filter(|(unit, wanted)| is_private(unit, wanted))
        .map(|(unit, _)| unit.clone())
        .collect();
    for unit in private {
        let Some(wanted) = units.remove(&unit) else { continue };
        let shown = |above: &Path| {
            units.get(above).is_some_and(|shown| shown.reason.is_none() && shown.read.count > 0)
        };
        if unit.ancestors().skip(1).any(shown) {
            // A rule for what is not there is none: what it is made in must be writable.
            let there = unit.ancestors().find(|above| above.symlink_metadata().is_ok());
            units.entry(there.unwrap_or(&unit).to_owned()).or_default().join(&wanted);
        } else {
            gone.push(unit);
        }
    }
    gone
}

/// Leaves to the user what has in it what is.
fn left_whole(units: &mut BTreeMap<PathBuf, Wanted>, home: &Path) {
    let guarded = units.iter().filter(|(_, wanted)| wanted.guarded);
    let guarded: BTreeSet<PathBuf> = guarded.map(|(unit, _)| unit.clone()).collect();
    for (unit, wanted) in units.iter_mut().filter(|(_, wanted)| wanted.reason.is_none()) {
        // Names in it are next in order.
        let mut behind = guarded.range::<Path, _>((Excluded(unit.as_path()), Unbounded));
        if let Some(below) = behind.next().filter(|below| below.starts_with(unit)) {
            wanted.reason = Some(format!("in it is {}, which is left to you", shown(below, home)));
        }
    }
}

/// Without the units that another one covers.
fn collapsed(units: BTreeMap<PathBuf, Wanted>) -> BTreeMap<PathBuf, Wanted> {
    let mut kept: BTreeMap<PathBuf, Wanted> = BTreeMap::new();
    for (unit, wanted) in units {
        let mut above = unit.ancestors().skip(1);
        let covers = |above: &&Path| kept.get(*above).is_some_and(|one| one.covers(&wanted));
        match above.find(covers).map(Path::to_owned).and_then(|above| kept.get_mut(&above)) {
            Some(above) => above.join(&wanted),
            None => _ = kept.insert(unit, wanted),
        }
    }
    kept
}

/// A device, or a place where they are.
fn is_device(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    let kind = path.metadata().map(|data| data.file_type());
    path.starts_with("/dev")
        || kind.is_ok_and(|kind| kind.is_char_device() || kind.is_block_device())
}

/// Directories on the way to what is granted, which are there anyway.
fn leading(policy: &Policy) -> HashSet<&OsStr> {
    let granted = policy.paths.iter().map(|rule| rule.path.as_path());
    let places = granted.chain([policy.workdir.as_path(), policy.home_dir.as_path()]);
    let above = places.flat_map(|place| place.ancestors().skip(1));
    above.chain([&*policy.home_dir, &*policy.workdir]).map(Path::as_os_str).collect()
}
