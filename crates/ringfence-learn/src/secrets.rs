//! What is secret: by lists of places, since nothing about a file says it, and by names. What a path is asked by is one
//! of its names; what it leads to is as secret.

use crate::credentials::{AGENTS, ELSEWHERE, SECRETS, by_name};
use crate::units::is_shared;
use ringfence_policy::{HostFiles, Moved, Policy, Resolver, homes_of_others};
use std::ffi::OsString;
use std::iter::once;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What is secret to the user that a policy is for.
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
    /// What the links in these places lead to.
    led: Vec<(PathBuf, &'static str)>,
}

impl Secrets {
    /// Those of a policy's user, with the environment of the caller.
    pub fn of(policy: &Policy) -> Secrets {
        let others = homes_of_others(ringfence_sys::identity::user(), &policy.home_dir);
        let homes = once(policy.home_dir.clone()).chain(policy.account_home.clone()).collect();
        Secrets::with(homes, others, &|name| std::env::var_os(name))
    }

    fn with(
        homes: Vec<PathBuf>,
        others: Vec<PathBuf>,
        env: &dyn Fn(&str) -> Option<OsString>,
    ) -> Secrets {
        let moved = homes.first().map_or_else(Moved::default, |home| Moved::of(home, env));
        let elsewhere = ELSEWHERE.into_iter().filter_map(|(variable, usual)| {
            let base = env(variable).map(PathBuf::from)?;
            (base.is_absolute() && base.parent().is_some()).then_some((base, usual))
        });
        let elsewhere = elsewhere.collect();
        let mut secrets =
            Secrets { homes, others, moved, elsewhere, places: Vec::new(), led: Vec::new() };
        secrets.places = secrets.all().collect();
        let led = |(place, why): &(PathBuf, _)| {
            let real = place.canonicalize().ok().filter(|real| real != place)?;
            // Not `/dev/null`, by which many a history is kept from being kept.
            let kept = real.is_file() || real.is_dir();
            let above = secrets.homes.iter().any(|home| home.starts_with(&real));
            (kept && !above).then_some((real, *why))
        };
        secrets.led = secrets.places.iter().filter_map(led).collect();
        secrets
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
                let rest = Path::new(below).strip_prefix(usual).ok()?;
                Some((
                    if rest.as_os_str().is_empty() { base.clone() } else { base.join(rest) },
                    *why,
                ))
            })
        })
    }

    /// What a run that is watched is not shown, wherever it may be, but for an agent's files that its policy grants.
    pub fn hidden(&self, granted: &dyn Fn(&Path) -> bool) -> Vec<PathBuf> {
        let open = self.homes.iter().skip(1).chain(&self.others).filter(|home| is_open(home));
        let open: Vec<&PathBuf> = open.collect();
        let at = |(below, _): &(&str, _)| {
            let first = self.homes.first().map(|home| home.join(below));
            // In other homes what is there and not closed: root has no capability inside.
            let there = |path: &PathBuf| {
                let home = Path::new(below).components().count() - 1;
                let mut above = path.ancestors().skip(1).take(home);
                path.symlink_metadata().is_ok() && above.all(is_open)
            };
            let there = open.iter().map(|home| home.join(below)).filter(there);
            let all = first.into_iter().chain(there);
            all.chain(self.moved.path(below)).collect::<Vec<_>>()
        };
        let mut all: Vec<PathBuf> = SECRETS.iter().flat_map(at).collect();
        let agents = AGENTS.iter().flat_map(at).chain(self.told().map(|(place, _)| place));
        all.extend(agents.filter(|path| !granted(path)));
        all
    }

    /// What is secret about a path, or about what it leads to.
    pub fn secret(&self, path: &Path) -> Option<String> {
        names(path).into_iter().find_map(|name| {
            let is_file = || name == path || !name.is_dir();
            let why = self.placed(&name).or_else(|| by_name(&name).filter(|_| is_file()))?;
            Some(self.by_link(why, &name, path))
        })
    }

    /// Why a directory is not one rule: for what is in it, or usually is, or in what it leads to.
    pub(crate) fn tree(&self, directory: &Path) -> Option<String> {
        let names = names(directory);
        let placed = |name: &PathBuf| {
            let why = format!("credentials: {}", self.placed(name)?);
            Some(self.by_link(&why, name, directory))
        };
        // What is beside a link on the way is not shown.
        let ends = || [names.first(), names.last()].into_iter().flatten();
        let below = |name: &PathBuf| Some(self.by_link(&self.below(name)?, name, directory));
        names.iter().find_map(placed).or_else(|| ends().find_map(below))
    }

    /// Why what is written is left to the user: a rule for exactly a protected name lifts its protection.
    pub(crate) fn protected(&self, unit: &Path) -> Option<String> {
        let why = |name: PathBuf| {
            let usual = self.usual(&name);
            usual.iter().find_map(|usual| ringfence_policy::protect::below_home(usual))
        };
        let why = names(unit).into_iter().find_map(why)?;
        Some(format!("it is protected, and no more with this: {why}"))
    }

    /// The base directories that are elsewhere.
    pub(crate) fn moved(&self) -> &Moved {
        &self.moved
    }

    /// What is secret by its place.
    fn placed(&self, path: &Path) -> Option<&'static str> {
        // What ssh needs to know a host is none.
        let known = [".ssh/known_hosts", ".ssh/known_hosts2"];
        let why = |name: &PathBuf| {
            let all = SECRETS.iter().chain(&AGENTS);
            let mut all = all.filter(|_| !known.iter().any(|known| name == Path::new(known)));
            all.find(|(secret, _)| name.starts_with(secret)).map(|(_, why)| *why)
        };
        // All of them: a base directory can be moved to where the home has another secret.
        let usual = self.usual(path);
        let led = || self.led.iter().find(|(real, _)| path.starts_with(real)).map(|(_, why)| *why);
        usual.iter().find_map(why).or_else(led)
    }

    /// What a path is called below a home.
    fn usual(&self, path: &Path) -> Vec<PathBuf> {
        let mut names: Vec<PathBuf> = self.moved.usual(path).into_iter().collect();
        let homes = self.homes.iter().chain(&self.others);
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
        let is_in_one = |homes: &[PathBuf]| homes.iter().any(|home| directory.starts_with(home));
        if is_in_one(&self.others) && !is_in_one(&self.homes) {
            return Some("it is in another user's home".to_owned());
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
        let home = self.homes.first().and_then(|home| name.strip_prefix(home).ok());
        match home {
            Some(rest) => format!("{why}, by a link to ~/{}", rest.display()),
            None => format!("{why}, by a link to {}", name.display()),
        }
    }
}

/// A path, each link on the way of it, and what it leads to.
fn names(path: &Path) -> Vec<PathBuf> {
    let real = Resolver::new(&HostFiles).real(path);
    let led = real.into_iter().flat_map(|real| {
        let links = real.links.into_iter().map(|(link, _)| link);
        links.chain(once(real.path))
    });
    once(path.to_owned()).chain(led).collect()
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

/// Files in a directory that are called like credentials, to the depth at which programs keep them.
pub(crate) fn named_in(directory: &Path) -> Vec<PathBuf> {
    const MOST_ENTRIES: usize = 4096;
    const DEEPEST: usize = 2;
    let mut waiting = vec![(directory.to_owned(), 1)];
    let (mut named, mut seen) = (Vec::new(), 0);
    while let Some((directory, depth)) = waiting.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            seen += 1;
            let kind = entry.file_type();
            if seen > MOST_ENTRIES {
                return named;
            } else if kind.as_ref().is_ok_and(|kind| kind.is_dir() && depth < DEEPEST) {
                waiting.push((entry.path(), depth + 1));
            } else if kind.is_ok_and(|kind| kind.is_file()) && by_name(&entry.path()).is_some() {
                named.push(entry.path());
            }
        }
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(home: &Path) -> Secrets {
        Secrets::with(vec![home.to_owned()], Vec::new(), &|_| None)
    }

    #[test]
    fn credentials_are_known_by_their_place() {
        let secrets = of(Path::new("/home/u"));
        let secret = |path: &str| secrets.secret(Path::new(path));
        assert!(secret("/home/u/.ssh/id_ed25519").is_some());
        assert!(secret("/home/u/.ssh/known_hosts").is_none());
        assert!(secret("/home/u/.aws").is_some());
        assert!(secret("/home/u/.awsome").is_none());
        assert!(secret("/srv/.ssh/id").is_none());
    }

    #[test]
    fn what_is_secret_is_so_in_each_home() {
        let homes = ["/tmp/other", "/home/u"].map(PathBuf::from).to_vec();
        let others = ["/home/v", "/home"].map(PathBuf::from).to_vec();
        let secrets = Secrets::with(homes, others, &|_| None);
        let secret = |path: &str| secrets.secret(Path::new(path));
        for path in ["/tmp/other/.netrc", "/home/u/.kube/config", "/home/v/.config/gh"] {
            assert!(secret(path).is_some(), "{path}");
        }
        assert!(secret("/home/u/.config/app").is_none() && secret("/srv/.netrc2").is_none());
        let tree = |path: &str| secrets.tree(Path::new(path));
        for path in ["/home/u", "/home/v", "/home/v/x/y", "/tmp/other", "/home/u/.config"] {
            assert!(tree(path).is_some(), "{path}");
        }
        assert_eq!(tree("/home/u/.config/app"), None, "though the other's is above it");
    }

    #[test]
    fn what_leads_to_a_credential_is_one() {
        let place = tempfile::tempdir().expect("a directory");
        let root = place.path().canonicalize().expect("a directory");
        let (home, data) = (root.join("home"), root.join("data"));
        for directory in
            [home.join(".kube"), home.join(".docker"), home.join("plain"), data.join("gh")]
        {
            std::fs::create_dir_all(directory).expect("a directory");
        }
        std::fs::create_dir(home.join(".config")).expect("a directory");
        for file in [".kube/config", ".netrc", "plain/file"] {
            std::fs::write(home.join(file), "x").expect("a file");
        }
        let link = |at: &str, to: &Path| {
            std::os::unix::fs::symlink(to, home.join(at)).expect("a link");
        };
        link("one", &home.join(".netrc"));
        link("two", Path::new("one"));
        link("cluster", Path::new("./.kube"));
        link("ships", &home.join(".docker"));
        link("all", &home);
        link("up", &root);
        link("fine", &home.join("plain"));
        // A credential that is a link, by the name of what it leads to.
        link(".config/gh", &data.join("gh"));
        link(".bash_history", Path::new("/dev/null"));
        let secrets = of(&home);
        let secret = |path: &str| secrets.secret(&home.join(path));
        assert_eq!(secret("one").as_deref(), Some("of many programs, by a link to ~/.netrc"));
        for path in ["two", "cluster", "cluster/config", "cluster/new", "all/.netrc", "up/home/one"]
        {
            assert!(secret(path).is_some(), "{path}");
        }
        assert!(secrets.secret(&data.join("gh/hosts.yml")).is_some());
        for path in ["fine", "fine/file", "ships", "ships/daemon.json", "gone", "../data"] {
            assert_eq!(secret(path), None, "{path}");
        }
        assert_eq!(secrets.secret(Path::new("/dev/null")), None);
        let tree = |path: &str| secrets.tree(&home.join(path));
        for path in ["cluster", "ships", "all", "up", "all/.config", "up/data", "all/.docker"] {
            assert!(tree(path).is_some(), "{path}");
        }
        assert!(secrets.tree(&data).is_some() && secrets.tree(&home).is_some());
        assert_eq!((tree("fine"), tree("plain"), tree("all/plain")), (None, None, None));
    }

    #[test]
    fn what_speaks_for_a_user_of_many_programs_is_known() {
        let home = Path::new("/home/u");
        for name in [
            ".authinfo",
            ".smbcredentials",
            ".subversion/auth/svn.simple/a",
            ".config/filezilla/sitemanager.xml",
            ".config/weechat/sec.conf",
            ".terraformrc",
            ".vnc/passwd",
            ".local/share/atuin/key",
            ".zhistory",
            ".lesshst",
            ".Xauthority",
            ".envrc",
            ".config/nix/nix.conf",
            ".config/unknown/token",
        ] {
            assert!(of(home).secret(&home.join(name)).is_some(), "{name}");
        }
        for name in [".subversion/config", ".config/nix/registry.json", ".local/share/app/data"] {
            assert!(of(home).secret(&home.join(name)).is_none(), "{name}");
        }
    }

    #[test]
    fn what_is_secret_is_so_where_its_base_directory_was_moved_to() {
        let home = Path::new("/home/u");
        let to = |base: &'static str| {
            let env = move |name: &str| (name == "XDG_CONFIG_HOME").then(|| base.into());
            Secrets::with(vec![home.to_owned()], Vec::new(), &env)
        };
        let elsewhere = to("/data/settings");
        let is = |path: &str, secrets: &Secrets| secrets.secret(Path::new(path)).is_some();
        assert!(is("/data/settings/gh/hosts.yml", &elsewhere));
        assert!(is("/home/u/.config/gh/hosts.yml", &elsewhere), "another program left it there");
        assert!(!is("/data/settings/x", &elsewhere));
        assert!(is("/home/u/.ssh/id", &to("/home/u")));
        assert!(is("/home/u/gh/hosts.yml", &to("/home/u")));
    }

    /// Whoever adds an agent names what it logs in with.
    #[test]
    fn the_login_of_each_agent_is_known() {
        let presets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../profiles");
        let mut agents = 0;
        for preset in std::fs::read_dir(presets).expect("the presets") {
            let text = std::fs::read_to_string(preset.expect("a preset").path()).expect("a preset");
            if !text.contains("_API_KEY\"") {
                continue;
            }
            agents += 1;
            let of_it = |(path, _): &&(&str, &str)| {
                let directory = Path::new(path).parent().unwrap_or(Path::new(""));
                let named = format!("~/{}", directory.display());
                named.len() > 2
                    && [&format!("\"{named}"), &format!(":-{named}}}")]
                        .iter()
                        .any(|name| text.contains(*name))
            };
            assert!(AGENTS.iter().any(|agent| of_it(&agent)), "{text}");
        }
        assert!(agents >= 11, "{agents}");
    }

    #[test]
    fn an_agent_that_is_granted_its_login_has_it() {
        let home = Path::new("/home/u");
        let login = home.join(".claude/.credentials.json");
        let all = |granted: &dyn Fn(&Path) -> bool| of(home).hidden(granted);
        assert!(all(&|_| false).contains(&login));
        let learnt = all(&|_| true);
        assert!(!learnt.contains(&login) && learnt.contains(&home.join(".ssh")));
        assert!(!learnt.contains(&home.join(".Xauthority")), "the display's, by the feature x11");
    }
}
