//! From what was seen to the rules that a policy lacks for it.
//!
//! Only what the policy refuses is proposed, so that a second run under the proposal has nothing
//! left to propose. What leads to credentials, or out of the sandbox, is named and left to the
//! user: it is never among the rules.

use crate::program::Answer;
use crate::secrets::Secrets;
use crate::temporary::{is_made, temporary};
use crate::watch::{Act, Observed, Use};
use ringfence_policy::decide::Request;
use ringfence_policy::path::{Bases, anchor, quote, within};
use ringfence_policy::{Access, Host, HostFiles, Policy, Subject, decide};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// A host that was asked for, by the record of the session.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Asked {
    /// Its name, or its address where it had none.
    pub host: String,
    /// The port; 0 where only the name was asked for, and refused.
    pub port: u16,
    /// The connection was let through.
    pub allowed: bool,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Where it stands in a profile: table and key.
    pub key: (&'static str, &'static str),
    /// Its text.
    pub text: String,
    /// What it is for.
    pub uses: Use,
    /// Why it is withheld; empty for one that is proposed.
    pub reason: String,
}

/// What is proposed, and what is left to the user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proposal {
    /// Rules to add.
    pub rules: Vec<Rule>,
    /// Rules that only the user should add, with reasons.
    pub withheld: Vec<Rule>,
    /// What nearly each runtime asks for and does without.
    pub common: BTreeSet<&'static str>,
    /// What is only written, in a private home: it needs no rule, and is gone with each run.
    pub gone: BTreeSet<String>,
    /// Directories that are removed or replaced themselves: a rule lets all that is in them be, and not their own names.
    pub stay: BTreeSet<String>,
    /// What was renamed or linked between places that are one in a run, and are not while it is watched.
    pub apart: BTreeSet<String>,
}

impl Proposal {
    /// A sentence about what is common, if any of it was asked for.
    pub fn told(&self) -> Option<String> {
        let common: Vec<&str> = self.common.iter().copied().collect();
        (!common.is_empty()).then(|| {
            let common = common.join(", ");
            format!(
                "nearly each runtime asks for {common} and does without; --feature machine shows it"
            )
        })
    }
}

impl Proposal {
    /// A sentence about what is gone with each run, if there is such.
    pub fn lost(&self) -> Option<String> {
        let some = some(&self.gone)?;
        Some(format!("only written, in the private home, and gone with each run: {some}"))
    }

    /// A sentence about directories whose own names stay, if there is such.
    pub fn stays(&self) -> Option<String> {
        let some = some(&self.stay)?;
        Some(format!(
            "removed or replaced, which a rule lets with all that is in it and not with the directory itself (EBUSY): {some}"
        ))
    }
}

impl Proposal {
    /// A sentence about what failed by being watched, if there is such.
    pub fn parted(&self) -> Option<String> {
        let some = some(&self.apart)?;
        Some(format!(
            "renamed or linked, which fails while it is watched (EXDEV: some programs copy then) and in no run, so that \
             what comes after it may not have been seen: {some}"
        ))
    }

    /// What is to be said where no rule is proposed: that the policy allows what was done only where it does.
    pub fn nothing(&self, lost: u64) -> &'static str {
        if !self.withheld.is_empty() || self.told().is_some() || !self.stay.is_empty() {
            "what the policy refuses is left to you"
        } else if lost > 0 || !self.apart.is_empty() {
            "the policy allows what was seen of it"
        } else {
            "the policy allows what it did"
        }
    }
}

/// The first few of some names.
fn some(names: &BTreeSet<String>) -> Option<String> {
    const MOST: usize = 5;
    let some: Vec<&str> = names.iter().take(MOST).map(String::as_str).collect();
    let more = match names.len().saturating_sub(MOST) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    (!some.is_empty()).then(|| format!("{}{more}", some.join(", ")))
}

pub(crate) const READ: (&str, &str) = ("filesystem", "read");
pub(crate) const WRITE: (&str, &str) = ("filesystem", "write");
const SOCKETS: (&str, &str) = ("network", "sockets");
const ALLOW: (&str, &str) = ("network", "allow");
const PUBLISH: (&str, &str) = ("network", "publish");

/// Proposes what a policy lacks.
pub fn propose(policy: &Policy, observed: &Observed, asked: &BTreeMap<Asked, Use>) -> Proposal {
    let mut proposal = Proposal::default();
    proposal.files(policy, observed);
    proposal.sockets(policy, observed);
    proposal.network(policy, observed, asked);
    proposal
}

impl Proposal {
    /// What was opened beyond the exact set of libraries: by names that a program put together
    /// while it ran. A directory that is not shared with other programs is one rule.
    pub fn libraries(&mut self, policy: &Policy, answer: &Answer, observed: &Observed) {
        let secrets = Secrets::of(policy);
        let mut units: BTreeMap<PathBuf, Use> = BTreeMap::new();
        for ((path, act), uses) in &observed.paths {
            let Ok(real) = path.canonicalize() else { continue };
            let granted = is_named(policy, answer, &real);
            let looked = *act == Act::Write || real.is_dir() && answer.is_shared(&real);
            let shown = decide(policy, &Request::Read(Subject::on_host(path, &HostFiles))).allowed;
            if looked || granted || !shown || !answer.narrows(path) {
                continue;
            }
            let own = real.ancestors().skip(1).take_while(|above| !answer.is_shared(above));
            let own = own.filter(|above| answer.roots.iter().any(|root| above.starts_with(root)));
            // By the name it was asked for: what that leads to is shown with it, and not the reverse.
            let unit = own.last().map_or_else(|| without_links_above(path), Path::to_owned);
            units.entry(unit).or_default().join(uses);
        }
        for (unit, uses) in units {
            self.path(
                READ,
                &unit,
                &policy.home_dir,
                uses,
                secrets.secret(&unit).or_else(|| secrets.tree(&unit)),
            );
        }
    }

    /// A rule for a path that was judged.
    pub(crate) fn path(
        &mut self,
        key: (&'static str, &'static str),
        path: &Path,
        home: &Path,
        uses: Use,
        reason: Option<String>,
    ) {
        match text(path, home) {
            Some(text) => self.add(key, text, uses, reason),
            None => {
                let reason =
                    reason.unwrap_or_else(|| "its name cannot be written as a rule".to_owned());
                self.add(key, path.display().to_string(), uses, Some(reason));
            }
        }
    }

    pub(crate) fn add(
        &mut self,
        key: (&'static str, &'static str),
        text: String,
        uses: Use,
        reason: Option<String>,
    ) {
        let reason = reason.unwrap_or_default();
        let rule = Rule { key, text, uses, reason };
        if rule.reason.is_empty() { self.rules.push(rule) } else { self.withheld.push(rule) }
    }

    fn sockets(&mut self, policy: &Policy, observed: &Observed) {
        for (path, uses) in &observed.sockets {
            let subject = Subject::on_host(path, &HostFiles);
            let there = path.symlink_metadata().is_ok();
            // In a directory for temporary files it may be one of the program's own.
            let own = is_its_own(policy, path)
                && (temporary(policy, path).is_none() || is_made(observed, path));
            if there && !own && !decide(policy, &Request::Socket(subject)).allowed {
                let reason = "a service of the host's acts for whoever connects to it".to_owned();
                self.path(SOCKETS, path, &policy.home_dir, uses.clone(), Some(reason));
            }
        }
    }

    fn network(&mut self, policy: &Policy, observed: &Observed, asked: &BTreeMap<Asked, Use>) {
        for (asked, uses) in asked {
            let Ok(host) = asked.host.parse::<Host>() else { continue };
            const USUAL: u16 = 443;
            let port = if asked.port == 0 { USUAL } else { asked.port };
            // Without a network no rule of it is what refuses.
            let denied = policy.network.deny.iter().find(|rule| rule.host.matches(&host, port));
            let denied = denied.map(|rule| {
                let text = &rule.source.text;
                format!("{} is denied by `{text}`", asked.host)
            });
            if decide(policy, &Request::Connect { host, port }).allowed {
                continue;
            }
            let shown = match asked.host.contains(':') {
                true => format!("[{}]", asked.host),
                false => asked.host.clone(),
            };
            // Without a port a rule is for the usual two.
            let text = if asked.port == 0 { shown } else { format!("{shown}:{}", asked.port) };
            let own = || "an address of the host's own networks".to_owned();
            let reason = denied.or_else(|| (!asked.allowed).then(own));
            self.add(ALLOW, text, uses.clone(), reason);
        }
        let served: Vec<u16> = observed
            .addresses
            .keys()
            .filter(|(act, _, port)| *act == Act::Bind && *port != 0)
            .map(|(_, _, port)| *port)
            .collect();
        // Which port the kernel gave is not seen: one of these.
        let given = observed.addresses.keys().any(|(act, _, port)| *act == Act::Bind && *port == 0);
        let is_served = |port: &u16| served.contains(port) || given && *port >= FIRST_GIVEN;
        let mut bound: BTreeMap<u16, Use> = BTreeMap::new();
        for ((act, address, port), uses) in &observed.addresses {
            let published = policy.network.publish.iter().any(|rule| rule.port == *port);
            match act {
                Act::Bind if *port != 0 && !published => bound.entry(*port).or_default().join(uses),
                Act::Connect if address.is_loopback() && *port != 53 && !is_served(port) => {
                    let host = "localhost".parse::<Host>();
                    let allowed = host.is_ok_and(|host| {
                        decide(policy, &Request::Connect { host, port: *port }).allowed
                    });
                    if !allowed && *port != 0 {
                        let reason = "a service of the host's own, on its loopback".to_owned();
                        self.add(ALLOW, format!("localhost:{port}"), uses.clone(), Some(reason));
                    }
                }
                _ => {}
            }
        }
        for (port, uses) in bound {
            let reason = "it is served inside; this would let the host connect to it".to_owned();
            self.add(PUBLISH, port.to_string(), uses, Some(reason));
        }
    }
}

/// The first port that the kernel gives to who binds none (`ip_local_port_range` of a new network namespace, ip(7)).
const FIRST_GIVEN: u16 = 32768;

/// What each sandbox has for itself.
pub(crate) fn is_its_own(policy: &Policy, path: &Path) -> bool {
    const OWN: [&str; 6] = ["/proc", "/tmp", "/var/tmp", "/dev/shm", "/dev/pts", "/dev/fd"];
    const DEVICES: [&str; 11] = [
        "/dev",
        "/dev/null",
        "/dev/zero",
        "/dev/full",
        "/dev/random",
        "/dev/urandom",
        "/dev/tty",
        "/dev/console",
        "/dev/stdin",
        "/dev/stdout",
        "/dev/stderr",
    ];
    let users = || within(path, &policy.home_dir) || within(path, &policy.workdir);
    OWN.iter().any(|own| within(path, Path::new(own))) && !users()
        || DEVICES.iter().any(|device| path.as_os_str() == *device)
}

/// Whether a rule names a path in a directory of libraries, or a tree there that it is in: that is
/// shown beside what the command needs.
pub fn is_named(policy: &Policy, answer: &Answer, real: &Path) -> bool {
    policy.paths.iter().any(|rule| {
        let below = |root: &PathBuf| rule.path != *root && rule.path.starts_with(root);
        matches!(rule.access, Access::Read | Access::Write)
            && real.starts_with(&rule.path)
            && answer.roots.iter().any(below)
    })
}

/// The path with the links before its last name followed.
fn without_links_above(path: &Path) -> PathBuf {
    let above = path.parent().and_then(|above| above.canonicalize().ok());
    match (above, path.file_name()) {
        (Some(above), Some(name)) => above.join(name),
        _ => path.to_owned(),
    }
}

/// A path as it is shown to people: what is in the home from there.
pub(crate) fn shown(path: &Path, home: &Path) -> String {
    match path.strip_prefix(home) {
        Ok(rest) if rest.as_os_str().is_empty() => "~".to_owned(),
        Ok(rest) => format!("~/{}", rest.display()),
        Err(_) => path.display().to_string(),
    }
}

/// A path as a rule that means exactly it; unset where there is none.
pub(crate) fn text(path: &Path, home: &Path) -> Option<String> {
    let text = match path.strip_prefix(home) {
        Ok(rest) if !rest.as_os_str().is_empty() => format!("~/{}?", quote(rest).to_str()?),
        _ => format!("{}?", quote(path).to_str()?),
    };
    // What was judged is the path: what the text is read as must be nothing else.
    let bases = Bases { home, workdir: Path::new("/"), env: &|_| None };
    let read = anchor(OsStr::new(&text), &bases).ok()?;
    let same = read.path == path && read.pattern.is_none() && read.optional;
    (same && !text.contains(char::is_control)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringfence_policy::{Key, Profile};
    use std::ffi::OsString;

    /// What a rule of a profile is read as.
    fn read(text: &str, home: &Path) -> ringfence_policy::path::Anchored {
        let mut proposal = Proposal::default();
        proposal.add(READ, text.to_owned(), Use::default(), None);
        let profile = crate::text::profile(&proposal, &[], &[]);
        let profile = Profile::from_toml(&profile, "learnt").expect("it is a profile");
        let rules = profile.list(Key::Read).expect("a list");
        assert_eq!(rules.len(), 1, "{text}");
        let env = |_: &str| Some("/variable".into());
        let bases = Bases { home, workdir: Path::new("/project"), env: &env };
        anchor(&OsString::from(rules[0].to_string()), &bases).expect("it is a rule")
    }

    #[test]
    fn a_rule_means_the_path_that_was_judged_and_nothing_else() {
        const ODD: [&str; 24] = [
            "a", ".", "..", "~", "$", "{", "}", ":-", "*", "**", "?", "[", "]", "\\", "\\\\", " ",
            "\"", "'", "#", "%", "!", ",", "\u{202e}", "é",
        ];
        let mut names = vec![String::new()];
        for _ in 0..3 {
            let longer = |name: &String| ODD.map(|odd| format!("{name}{odd}"));
            let longer: Vec<String> = names.iter().flat_map(longer).collect();
            names.extend(longer);
        }
        names.retain(|name| !matches!(name.as_str(), "" | "." | ".."));
        names.sort_unstable();
        names.dedup();
        let usual = [".ss\\h", ".\\.", "\\.\\.", "$HOME", "${HOME}", "~root", "\\", "x\\", "x?"];
        names.extend(usual.map(str::to_owned));
        let homes = ["/home/u", "/home/\\u", "/home/$HOME", "/h*me/u?"].map(Path::new);
        for (at, name) in names.iter().enumerate() {
            // Not all of them with each home: that is the same thing each time.
            let home = homes[at % homes.len()];
            let below = [home.join(name), home.join(name).join("x"), home.join("x").join(name)];
            for path in below.into_iter().chain([Path::new("/srv").join(name)]) {
                let rule =
                    text(&path, home).unwrap_or_else(|| panic!("{} has a rule", path.display()));
                let read = read(&rule, home);
                assert_eq!(read.path.as_os_str(), path.as_os_str(), "{rule}");
                assert!(read.pattern.is_none() && read.optional, "{rule}");
            }
        }
    }

    #[test]
    fn what_no_rule_can_mean_has_none() {
        use std::os::unix::ffi::OsStrExt;
        let home = Path::new("/home/u");
        for path in
            [&b"/home/u/a\nb"[..], b"/home/u/\xff", b"/home/u/a/../b", b"/\x1b", b"relative"]
        {
            assert_eq!(text(Path::new(OsStr::from_bytes(path)), home), None);
        }
        assert_eq!(text(home, home).as_deref(), Some("/home/u?"), "the control");
    }
}
