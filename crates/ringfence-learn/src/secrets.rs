//! What is secret: by lists of places, since nothing about a file says it, and by names. What a path is asked by is one
//! of its names; what it leads to is as secret.

use crate::called::by_name;
use crate::credentials::{AGENTS, OUTSIDE, SECRETS};
use crate::looked::Looked;
use crate::propose::shown;
use crate::{services, units::is_shared};
use ringfence_policy::path::{normal, within};
use ringfence_policy::secrets::{Lead, leads};
use ringfence_policy::{Moved, Policy, Resolver, homes_of_others};
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::iter::once;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// What is secret to the user that a policy is for.
#[derive(Default)]
pub struct Secrets {
    /// The user's homes: that of the policy, and the account's where that is another one.
    homes: Vec<PathBuf>,
    /// Those of others: the lists are about these too.
    others: Vec<PathBuf>,
    moved: Moved,
    /// Where variables say that something is, and where it usually is below the home.
    elsewhere: Vec<(PathBuf, &'static str)>,
    /// Each place of the lists, wherever it may be.
    places: Vec<(PathBuf, &'static str)>,
    /// Other places, outside of a home or as variables say; and what the links in all of them lead to.
    led: Vec<(PathBuf, &'static str)>,
    files: Looked,
}

impl Secrets {
    /// Those of a policy's user, with the environment of the caller.
    pub fn of(policy: &Policy) -> Secrets {
        let others = homes_of_others(ringfence_sys::identity::user(), &policy.home_dir);
        let homes = once(policy.home_dir.clone()).chain(policy.account_home.clone()).collect();
        Secrets::with(homes, others, &policy.workdir, &std::env::vars_os().collect::<Vec<_>>())
    }

    fn with(
        homes: Vec<PathBuf>,
        others: Vec<PathBuf>,
        workdir: &Path,
        env: &[(OsString, OsString)],
    ) -> Secrets {
        let value = |name: &str| {
            let mut all = env.iter().filter(|(variable, _)| variable == name);
            all.next().map(|(_, value)| value.clone())
        };
        let moved = homes.first().map_or_else(Moved::default, |home| Moved::of(home, &value));
        let led = OUTSIDE.map(|(place, why)| (PathBuf::from(place), why)).to_vec();
        let mut secrets = Secrets { homes, others, moved, led, ..Secrets::default() };
        for (name, value) in env {
            for (place, lead) in name.to_str().map_or_else(Vec::new, |name| leads(name, value)) {
                secrets.leads(&normal(&workdir.join(place)), lead, workdir);
            }
        }
        secrets.places = secrets.all().collect();
        let told = secrets.led.clone();
        let led = |(place, why): &(PathBuf, _)| {
            // Hundreds of places in the same few directories: each name is looked at once.
            let real = Resolver::once(&secrets.files).real(place).ok()?;
            let real = Some(real.path).filter(|path| real.exists && path != place)?;
            // Not `/dev/null`, by which many a history is kept from being kept.
            let kept = real.is_file() || real.is_dir();
            (kept && !secrets.is_above(&real)).then_some((real, *why))
        };
        let led: Vec<_> = secrets.places.iter().chain(&told).filter_map(led).collect();
        secrets.led.extend(led);
        secrets
    }

    /// Notes where a variable says that something is. What the user's directories are below is none by itself.
    fn leads(&mut self, place: &Path, lead: Lead, workdir: &Path) {
        let above = self.is_above(place) || workdir.starts_with(place);
        let is_whole = |usual: &str| {
            let mut all = SECRETS.iter().chain(&AGENTS);
            all.any(|(secret, _)| Path::new(usual).starts_with(secret))
        };
        match lead {
            Lead::Usually(usual) if place.parent().is_some() && !(above && is_whole(usual)) => {
                self.elsewhere.push((place.to_owned(), usual));
            }
            Lead::Of(why) if !above => self.led.push((place.to_owned(), why)),
            _ => {}
        }
    }

    fn is_above(&self, place: &Path) -> bool {
        self.homes.iter().any(|home| home.starts_with(place))
    }

    fn all(&self) -> impl Iterator<Item = (PathBuf, &'static str)> {
        let all = || SECRETS.iter().chain(&AGENTS);
        let below = move |home: &PathBuf| {
            let home = home.clone();
            all().map(move |(below, why)| (home.join(below), *why))
        };
        let moved = all().filter_map(|(below, why)| Some((self.moved.path(below)?, *why)));
        self.homes.iter().flat_map(below).chain(moved).chain(self.told())
    }

    /// Those of the places that variables tell.
    fn told(&self) -> impl Iterator<Item = (PathBuf, &'static str)> {
        self.elsewhere.iter().flat_map(|(base, usual)| {
            SECRETS.iter().chain(&AGENTS).filter_map(move |(below, why)| {
                // A file in a directory that is secret as a whole, or the reverse.
                let rest = match Path::new(below).strip_prefix(usual) {
                    Ok(rest) => rest,
                    Err(_) if Path::new(usual).starts_with(below) => Path::new(""),
                    Err(_) => return None,
                };
                let whole = rest.as_os_str().is_empty();
                Some((if whole { base.clone() } else { base.join(rest) }, *why))
            })
        })
    }

    /// What a run that is watched is not shown, wherever it may be, but for what its policy grants: `named` by the
    /// rules that grant, and all that is `granted`.
    pub fn hidden(&self, named: &[&Path], granted: &dyn Fn(&Path) -> bool) -> Vec<PathBuf> {
        let open = self.homes.iter().skip(1).chain(&self.others).filter(|home| is_open(home));
        let open: Vec<(&PathBuf, Option<HashSet<OsString>>)> =
            open.map(|home| (home, names(home))).collect();
        let at = |(below, _): &(&str, _)| {
            let first = self.homes.first().map(|home| home.join(below));
            // In other homes what is there and not closed: root has no capability inside.
            let there = |path: &PathBuf| {
                let home = Path::new(below).components().count() - 1;
                let mut above = path.ancestors().skip(1).take(home);
                path.symlink_metadata().is_ok() && above.all(is_open)
            };
            let first_name = Path::new(below).iter().next().unwrap_or_default();
            // Where it may be listed, most of it is seen not to be there by one look.
            let open = open
                .iter()
                .filter(|(_, names)| names.as_ref().is_none_or(|names| names.contains(first_name)));
            let there = open.map(|(home, _)| home.join(below)).filter(there);
            let all = first.into_iter().chain(there);
            all.chain(self.moved.path(below)).collect::<Vec<_>>()
        };
        let all =
            SECRETS.iter().chain(&AGENTS).flat_map(at).chain(self.told().map(|(place, _)| place));
        let all = all.chain(self.led.iter().map(|(place, _)| place.clone()));
        all.flat_map(|place| self.beside(place, named, granted)).collect()
    }

    /// A place, or what is in it beside what is granted there: a denied directory would hide that too.
    fn beside(
        &self,
        place: PathBuf,
        named: &[&Path],
        granted: &dyn Fn(&Path) -> bool,
    ) -> Vec<PathBuf> {
        if granted(&place) {
            return Vec::new();
        }
        let real = Resolver::once(&self.files)
            .real(&place)
            .map_or_else(|_| place.clone(), |real| real.path);
        if !named.iter().any(|rule| *rule != real && rule.starts_with(&real)) {
            return vec![place];
        }
        // What cannot be listed as a whole is hidden as a whole.
        let Some(names) = names(&real) else { return vec![place] };
        let entries = names.into_iter().map(|name| real.join(name));
        entries.flat_map(|entry| self.beside(entry, named, granted)).collect()
    }

    /// What is secret about a path, or about what it leads to.
    pub fn secret(&self, path: &Path) -> Option<String> {
        let names = self.names(path);
        let placed = |name: &PathBuf| Some(self.by_link(self.placed(name)?, name, path));
        let called = |name: &PathBuf| {
            let is_file = || name == path || !name.is_dir();
            let why = by_name(name).filter(|_| is_file())?;
            Some(self.by_link(why, name, path))
        };
        names.iter().find_map(placed).or_else(|| names.iter().find_map(called))
    }

    /// Why a directory is not one rule: for what is in it, or usually is, or in what it leads to.
    pub(crate) fn tree(&self, directory: &Path) -> Option<String> {
        let names = self.names(directory);
        let placed = |name: &PathBuf| {
            let why = format!("credentials: {}", self.placed(name)?);
            Some(self.by_link(&why, name, directory))
        };
        // What is beside a link on the way is not shown.
        let ends = || [names.first(), names.last()].into_iter().flatten();
        let below = |name: &PathBuf| Some(self.by_link(&self.below(name)?, name, directory));
        let listen =
            |name: &PathBuf| Some(self.by_link(&services::listen_in(name)?, name, directory));
        let found = names.iter().find_map(placed).or_else(|| ends().find_map(below));
        found.or_else(|| names.iter().find_map(listen))
    }

    /// Why what is written is left to the user: a rule for exactly a protected name lifts its protection.
    pub(crate) fn protected(&self, unit: &Path) -> Option<String> {
        let why = |name: PathBuf| {
            let usual = self.usual(&name);
            usual.iter().find_map(|usual| ringfence_policy::protect::below_home(usual))
        };
        let why = self.names(unit).into_iter().find_map(why)?;
        Some(format!("it is protected, and no more with this: {why}"))
    }

    /// The base directories that are elsewhere.
    pub(crate) fn moved(&self) -> &Moved {
        &self.moved
    }

    /// A path, each link on the way of it, and what it leads to.
    fn names(&self, path: &Path) -> Vec<PathBuf> {
        let real = Resolver::once(&self.files).real(path);
        let led = real.into_iter().flat_map(|real| {
            let links = real.links.into_iter().map(|(link, _)| link);
            links.chain(once(real.path))
        });
        once(path.to_owned()).chain(led).collect()
    }

    /// The host's files, each looked at once.
    pub(crate) fn files(&self) -> &Looked {
        &self.files
    }

    /// What is secret by its place.
    fn placed(&self, path: &Path) -> Option<&'static str> {
        // All of them: a base directory can be moved to where the home has another secret.
        let usual = self.usual(path);
        let led = || self.led.iter().find(|(real, _)| within(path, real)).map(|(_, why)| *why);
        usual.iter().find_map(|name| listed(name)).or_else(led)
    }

    /// What a path is called below a home.
    fn usual(&self, path: &Path) -> Vec<PathBuf> {
        let mut names: Vec<PathBuf> = self.moved.usual(path).into_iter().collect();
        let homes = self.homes.iter().chain(&self.others);
        let homes = homes.filter(|home| within(path, home));
        let homes = homes.filter_map(|home| path.strip_prefix(home).ok());
        names.extend(homes.map(Path::to_owned));
        names.extend(self.elsewhere.iter().filter_map(|(base, usual)| {
            let rest = path.strip_prefix(base).ok()?;
            Some(if rest.as_os_str().is_empty() {
                usual.into()
            } else {
                Path::new(usual).join(rest)
            })
        }));
        names
    }

    /// What is secret below a directory of the host's, now or usually.
    fn below(&self, directory: &Path) -> Option<String> {
        let mut homes = self.homes.iter().chain(&self.others);
        if homes.any(|home| home.starts_with(directory)) {
            return Some("a home is in it".to_owned());
        }
        // One may be in another: `HOME` may be the root.
        let deepest = |homes: &[PathBuf]| {
            let around = homes.iter().filter(|home| directory.starts_with(home));
            around.map(|home| home.components().count()).max()
        };
        if deepest(&self.others) > deepest(&self.homes) {
            return Some("it is in another user's home".to_owned());
        }
        let groups = Path::new("/sys/fs/cgroup");
        if groups.starts_with(directory) || directory.starts_with(groups) {
            return Some("it shows the control groups: what the host runs".to_owned());
        }
        let is_in = |path: &Path| {
            path != directory && path.starts_with(directory) && path.symlink_metadata().is_ok()
        };
        if let Some((_, why)) = self.places.iter().chain(&self.led).find(|(place, _)| is_in(place))
        {
            return Some(format!("in it are credentials: {why}"));
        }
        // Whether or not something is there now.
        let usually = |usual: &PathBuf| {
            let shared = is_shared(usual).then_some("each program's directory is in it");
            let credentials = || is_usual_above(usual).then_some("credentials are usually in it");
            shared.or_else(credentials).map(str::to_owned)
        };
        self.usual(directory).iter().find_map(usually)
    }

    /// A reason that is one by what a path leads to says so.
    fn by_link(&self, why: &str, name: &Path, path: &Path) -> String {
        if name == path {
            return why.to_owned();
        }
        let name = match self.homes.first() {
            Some(home) => shown(name, home),
            None => name.display().to_string(),
        };
        format!("{why}, by a link to {name}")
    }
}

/// The lists by their places, with where in them each stands: thousands of paths are asked about.
static LISTED: LazyLock<HashMap<&[u8], (usize, &str)>> = LazyLock::new(|| {
    let mut listed = HashMap::new();
    for (at, (place, why)) in SECRETS.iter().chain(&AGENTS).enumerate() {
        listed.entry(place.as_bytes()).or_insert((at, *why));
    }
    listed
});

/// What the lists say of a path below a home, itself or for what it is in: the first in their order.
fn listed(name: &Path) -> Option<&'static str> {
    // What ssh needs to know a host is none.
    const KNOWN: [&str; 2] = [".ssh/known_hosts", ".ssh/known_hosts2"];
    let bytes = name.as_os_str().as_bytes();
    let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end);
    let found = ends.chain(once(bytes.len())).filter_map(|end| LISTED.get(&bytes[..end]));
    let (_, why) = found.min()?;
    (!KNOWN.iter().any(|known| bytes == known.as_bytes())).then_some(*why)
}

/// Whether the lists have what a path is, or is in, by more than one name and wherever that is: of a copy of a home.
pub(crate) fn is_listed_whole(path: &Path) -> bool {
    const LONGEST: usize = 4;
    let bytes = path.as_os_str().as_bytes();
    let hidden =
        bytes.windows(2).enumerate().filter(|(_, two)| *two == b"/.").map(|(at, _)| at + 1);
    hidden.into_iter().any(|from| {
        let name = &bytes[from..];
        let ends = name.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end);
        let mut ends = ends.chain(once(name.len())).take(LONGEST).skip(1);
        ends.any(|end| LISTED.contains_key(&name[..end]))
    })
}

/// What is in a directory, where it may be listed and has not too much.
fn names(directory: &Path) -> Option<HashSet<OsString>> {
    const MOST: usize = 4096;
    let names: Vec<_> = directory.read_dir().ok()?.take(MOST).collect();
    let all = names.len() < MOST && names.iter().all(Result::is_ok);
    all.then(|| names.into_iter().flatten().map(|entry| entry.file_name()).collect())
}

/// Whether the caller may go through a directory without being root.
fn is_open(directory: &Path) -> bool {
    let Ok(data) = directory.metadata() else { return false };
    let may = match () {
        () if data.uid() == ringfence_sys::identity::user() => 0o100,
        () if data.gid() == ringfence_sys::identity::group() => 0o010,
        () => 0o001,
    };
    data.is_dir() && data.mode() & may != 0
}

/// Whether something secret is usually below a directory of the home.
pub(crate) fn is_usual_above(directory: &Path) -> bool {
    let below = |(secret, _): &(&str, _)| {
        let secret = Path::new(secret);
        secret != directory && secret.starts_with(directory)
    };
    SECRETS.iter().any(below) || AGENTS.iter().any(below)
}

#[cfg(test)]
mod tests;
