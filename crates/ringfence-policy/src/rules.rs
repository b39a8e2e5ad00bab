//! The path rules of a policy: texts anchored, links followed, what is missing refused.

use crate::error::{Planted, PolicyError};
use crate::files::{Real, Resolver, planted, stands_in};
use crate::guard::plain;
use crate::key::Key;
use crate::merge::{Entry, Merged};
use crate::moved::Moved;
use crate::own::{self, Own};
use crate::path::{Anchored, Bases, PathError, anchor, is_relative};
use crate::policy::{Access, Guarded, Home, Made, PathRule, Policy, Source};
use crate::resolve::Context;
use crate::wildcard::Refused;
use crate::{git_files, git_user, guard, wildcard, workspace};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

mod doubted;
mod home_within;
mod refusals;

use doubted::granted_elsewhere;

/// A rule before it is known whether the links it followed can be trusted.
struct Grant {
    rule: PathRule,
    links: Vec<(PathBuf, PathBuf)>,
    /// Nobody wrote that name: a wildcard found it, or a variable of the caller's has it.
    found: bool,
}

/// What the default profile's rules about the active virtual environment begin with.
const ACTIVE: &[u8] = b"${VIRTUAL_ENV}";

/// A wildcard that names too much: where it begins, what it was to grant, and the refusal.
struct Crowded {
    path: PathBuf,
    access: Access,
    error: PolicyError,
}

/// Whether an entry is one of those: whatever the variable holds is no reason not to run.
fn is_active(entry: &Entry) -> bool {
    entry.is_shipped() && entry.text.as_bytes().starts_with(ACTIVE)
}

/// As what a path is granted, by all that reach it.
fn granted(grants: &[Grant], path: &Path) -> Option<Access> {
    let around = grants.iter().filter(|grant| path.starts_with(&grant.rule.path));
    around.map(|grant| grant.rule.access).max()
}

/// What turns entries into rules.
struct Rules<'r, 'f> {
    merged: &'r Merged,
    bases: &'r Bases<'r>,
    resolver: &'r mut Resolver<'f>,
    grants: Vec<Grant>,
    /// Paths that are granted for writing and do not exist.
    may_appear: Vec<PathBuf>,
    /// Grants for writing that do not ship, and where they stand.
    asked: Vec<(PathBuf, Source)>,
    /// `deny` and `protect`.
    others: Vec<Grant>,
    /// Wildcards that name too much to be granted one by one.
    crowded: Vec<Crowded>,
    /// ringfence's own directories, and where their links lead.
    own: Vec<(Own, Real)>,
    hidden: own::Hidden,
    /// The user's homes, with his number: no rule which ships shows one for being in its tree.
    homes: Vec<(PathBuf, u32)>,
    /// Links beside these, with their targets as written.
    beside: Vec<(PathBuf, PathBuf)>,
    uid: u32,
}

pub(crate) fn resolve(
    merged: &Merged,
    context: &Context<'_>,
    bases: &Bases<'_>,
    resolver: &mut Resolver<'_>,
    policy: &mut Policy,
) -> Result<(), PolicyError> {
    let hidden = own::Hidden::of(bases.home, bases.env, resolver);
    let mut rules = Rules {
        merged,
        bases,
        resolver,
        grants: Vec::with_capacity(64),
        may_appear: Vec::new(),
        asked: Vec::new(),
        others: Vec::new(),
        crowded: Vec::new(),
        own: Vec::new(),
        hidden,
        homes: Vec::new(),
        beside: Vec::new(),
        uid: context.uid,
    };
    let account = policy.account_home.clone();
    if policy.home != Home::Host {
        let homes = [&policy.home_dir].into_iter().chain(&account).cloned();
        rules.homes = homes.map(|home| (home, context.uid)).collect();
    }
    let mut owned = own::directories(&context.home, context.env);
    // A run with another `HOME` looks there.
    let usual = account.iter().flat_map(|home| own::directories(home, &|_| None));
    owned.extend(
        usual.filter(|own| account.as_ref().is_some_and(|home| own.path.starts_with(home))),
    );
    for own in owned {
        let unknown = |_| Real { path: own.path.clone(), links: Vec::new(), exists: false };
        let real = rules.resolver.real(&own.path).unwrap_or_else(unknown);
        rules.own.push((own, real));
    }
    let moved = Moved::of(&context.home, context.env);
    for entry in &merged.entries {
        // A path that the user wrote is the very one that is meant.
        let elsewhere = if entry.is_shipped() { moved.rule(&entry.text) } else { None };
        let usual = elsewhere.is_none() || entry.key != Key::State || rules.is_there(entry)?;
        if usual {
            rules.entry(entry, policy)?;
        }
        if let Some(text) = elsewhere {
            rules.entry(&entry.with_text(text), policy)?;
        }
    }
    if let Some(account) = &account {
        rules.refuse_of_account(account);
    }
    rules.of_git(&context.home, &moved, context.env);
    rules.own(policy);
    if context.uid == 0 {
        rules.root_only();
    }
    let may_appear = std::mem::take(&mut rules.may_appear);
    let asked = std::mem::take(&mut rules.asked);
    rules.finish(policy)?;
    workspace::resolve(resolver, policy);
    guard::resolve(policy, &may_appear, &moved);
    guard::of_environment(policy, context.env);
    guard::without_effect(policy, &asked, resolver);
    guard::make_private(policy, resolver);
    git_files::resolve(resolver, policy, &moved, context.env);
    policy.may_appear = may_appear;
    Ok(())
}

impl Rules<'_, '_> {
    fn entry(&mut self, entry: &Entry, policy: &mut Policy) -> Result<(), PolicyError> {
        match entry.key {
            Key::Read => self.grant(entry, Access::Read, policy),
            Key::Write => self.grant(entry, Access::Write, policy),
            Key::State => self.state(entry, policy),
            Key::Deny => self.refuse(entry, Access::Deny, Guarded::Plain),
            Key::Protect => self.refuse(entry, Access::Protect, Guarded::Plain),
            Key::Judged => self.refuse(entry, Access::Protect, guard::judged(&entry.text)),
            Key::Private => self.refuse(entry, Access::Protect, Guarded::Private),
            _ => Ok(()),
        }
    }

    /// Whether what an entry names exists.
    fn is_there(&mut self, entry: &Entry) -> Result<bool, PolicyError> {
        let anchored = self.anchor(entry)?;
        Ok(anchored.is_some_and(|anchored| self.resolver.exists(&anchored.path)))
    }

    fn anchor(&self, entry: &Entry) -> Result<Option<Anchored>, PolicyError> {
        match anchor(&entry.text, self.bases) {
            Ok(anchored) => Ok(Some(anchored)),
            Err(PathError::Unset(_)) => Ok(None),
            Err(PathError::Wrong(_)) if is_active(entry) => Ok(None),
            Err(PathError::Wrong(reason)) => {
                Err(PolicyError::value(&self.merged.source(entry), reason))
            }
        }
    }

    fn grant(
        &mut self,
        entry: &Entry,
        access: Access,
        policy: &mut Policy,
    ) -> Result<(), PolicyError> {
        let Some(anchored) = self.anchor(entry)? else { return Ok(()) };
        // An option is somebody's express will; a profile is written for any directory.
        if anchored.pattern.is_none()
            && !entry.is_option()
            && is_relative(&entry.text)
            && let Some(reason) = self.no_workspace(&anchored.path, policy)
        {
            let directory = anchored.path.display();
            let option = entry.key.option();
            let text = entry.text.to_string_lossy();
            let never = anchored.path.parent().is_none() && access == Access::Write;
            let own = self.within_own(&anchored.path).is_some();
            let grant = if own || never {
                String::new()
            } else {
                format!("; say {option} {text} to grant it")
            };
            policy.warnings.push(format!(
                "{directory} is not granted as the workspace, because {reason}{grant}"
            ));
            return Ok(());
        }
        match &anchored.pattern {
            None => self.grant_one(entry, access, &anchored, &anchored.path),
            Some(pattern) => {
                let paths = match wildcard::granted(self.resolver.files(), &anchored.path, pattern)
                {
                    Ok(paths) => paths,
                    Err(Refused::Wrong(why)) => {
                        return Err(PolicyError::value(&self.merged.source(entry), why));
                    }
                    Err(Refused::Crowded(why)) => {
                        return self.crowded(entry, access, &anchored, why);
                    }
                };
                if paths.is_empty() && !anchored.optional {
                    let path = anchored.path.join(pattern);
                    return Err(PolicyError::Missing { rule: self.merged.source(entry), path });
                }
                for path in &paths {
                    if !entry.is_shipped() || self.stays(&anchored.path, path) {
                        self.grant_one(entry, access, &anchored, path)?;
                    }
                }
                Ok(())
            }
        }
    }

    /// A wildcard that names too much. Who may write in there, a program inside too, chooses how much that
    /// is, and must not have the next run fail by it: of what ships the whole directory is shown then, and
    /// what another rule grants needs no wildcard.
    fn crowded(
        &mut self,
        entry: &Entry,
        access: Access,
        anchored: &Anchored,
        reason: String,
    ) -> Result<(), PolicyError> {
        if entry.is_shipped() && access == Access::Read {
            return self.grant_one(entry, access, anchored, &anchored.path);
        }
        let error = PolicyError::value(&self.merged.source(entry), reason);
        let Ok(Real { path, .. }) = self.resolver.real(&anchored.path) else { return Err(error) };
        self.crowded.push(Crowded { path, access, error });
        Ok(())
    }

    /// Whether a name that a wildcard found leads to somewhere in the directory in which the wildcards
    /// begin, or one in a virtual environment into that. Of what ships nobody wrote that name: whoever may write in
    /// there, a program of an earlier run too, would choose what is granted.
    fn stays(&mut self, base: &Path, path: &Path) -> bool {
        let mut real = |path| self.resolver.real(path).map(|real| real.path);
        matches!((real(path), real(base)), (Ok(path), Ok(base)) if path.starts_with(&base))
    }

    /// Whether the variable names a virtual environment: with a `pyvenv.cfg` of its own, and by no link. A program of
    /// an earlier run that had it in its project could have put a link to something else in its place.
    fn is_environment(&mut self, directory: &Path) -> bool {
        let mut real = |path: &Path| self.resolver.real(path).ok().filter(|real| real.exists);
        let (Some(above), Some(name)) = (directory.parent(), directory.file_name()) else {
            return false;
        };
        let (Some(above), Some(it)) = (real(above), real(directory)) else { return false };
        let settings = real(&directory.join("pyvenv.cfg"));
        it.path == above.path.join(name)
            && settings.is_some_and(|settings| settings.path == it.path.join("pyvenv.cfg"))
    }

    fn grant_one(
        &mut self,
        entry: &Entry,
        access: Access,
        anchored: &Anchored,
        path: &Path,
    ) -> Result<(), PolicyError> {
        let real = match self.resolver.real(path) {
            Ok(real) => real,
            Err(_) if anchored.optional => return Ok(()),
            Err(error) => return Err(PolicyError::value(&self.merged.source(entry), error)),
        };
        let above = path.parent().unwrap_or(path);
        if is_active(entry) && !(self.is_environment(above) && self.stays(above, path)) {
            return Ok(());
        }
        if access == Access::Write {
            self.not_own(entry, &real.path)?;
            if real.path.parent().is_none() {
                // Home, devices and /tmp are the sandbox's own in whatever view there is.
                let reason = "the root of the file system is not granted for writing; name the \
                              directories that are to be written";
                return Err(PolicyError::value(&self.merged.source(entry), reason));
            }
            if !entry.is_shipped() && (real.exists || anchored.optional) {
                self.asked.push((real.path.clone(), self.merged.source(entry)));
            }
        } else if real.exists
            && let Some(reason) = self.hidden.why(&real.path)
        {
            return Err(PolicyError::value(&self.merged.source(entry), reason));
        }
        let within = if access == Access::Read && entry.is_shipped() {
            self.homes_within(entry, &real.path)
        } else {
            Vec::new()
        };
        match (real.exists, anchored.optional) {
            (true, _) if !within.is_empty() => self.beside_homes(entry, &real.path, &within),
            (true, optional) => {
                let source = self.merged.source(entry);
                let rule = plain(access, real.path, optional, source);
                let found = is_active(entry);
                self.grants.push(Grant { rule, links: real.links, found });
                Ok(())
            }
            (false, true) => {
                if access == Access::Write {
                    self.may_appear.push(real.path);
                }
                Ok(())
            }
            (false, false) => {
                let path = path.to_path_buf();
                Err(PolicyError::Missing { rule: self.merged.source(entry), path })
            }
        }
    }

    /// What the user's own configuration of git names, where that is shown.
    fn of_git(&mut self, home: &Path, moved: &Moved, env: &dyn Fn(&str) -> Option<OsString>) {
        let grants = &self.grants;
        let shown = |path: &Path| granted(grants, path);
        for one in git_user::named(self.resolver, home, moved, env, &shown) {
            let rule = plain(Access::Read, one.real.path, true, one.source);
            self.grants.push(Grant { rule, links: one.real.links, found: true });
        }
    }

    /// State of a program's own: written, and made when it is missing.
    fn state(&mut self, entry: &Entry, policy: &mut Policy) -> Result<(), PolicyError> {
        let ends = |end: &str| entry.text.as_bytes().strip_suffix(end.as_bytes());
        let file = ends("={}").map(|path| (path, "{}\n")).or_else(|| Some((ends("=")?, "")));
        let (path, text) = match file {
            Some((path, text)) => (OsStr::from_bytes(path), Some(text.to_owned())),
            None => (entry.text.as_ref(), None),
        };
        let source = || self.merged.source(entry);
        let wrong = |reason: String| PolicyError::value(&source(), reason);
        let anchored = match anchor(path, self.bases) {
            Ok(anchored) => anchored,
            Err(PathError::Unset(_)) => return Ok(()),
            Err(PathError::Wrong(reason)) => return Err(wrong(reason)),
        };
        if anchored.pattern.is_some() {
            return Err(wrong("what is made is named, not matched by a pattern".to_owned()));
        }
        let real = self.resolver.real(&anchored.path).map_err(|error| wrong(error.to_string()))?;
        self.not_own(entry, &real.path)?;
        let rule = plain(Access::Write, real.path.clone(), true, self.merged.source(entry));
        if !real.exists && self.doubt(&rule, &real.links, policy).is_none() {
            // Elsewhere it is not a program's state, and not ringfence's to make.
            if !real.path.starts_with(&policy.home_dir) || policy.home_dir.parent().is_none() {
                return Ok(());
            }
            policy.made.push(Made { path: real.path, text });
        }
        self.grants.push(Grant { rule, links: real.links, found: false });
        Ok(())
    }

    /// Why a profile's `.` does not make a directory writable, if it does not.
    fn no_workspace(&self, path: &Path, policy: &Policy) -> Option<String> {
        match self.within_own(path) {
            Some(_) => Some("what is there decides about sandboxes".to_owned()),
            None => workspace::no_workspace(path, policy),
        }
    }

    /// The directory of ringfence's own that a path is in.
    fn within_own(&self, path: &Path) -> Option<&Own> {
        self.own.iter().find(|(_, real)| path.starts_with(&real.path)).map(|(own, _)| own)
    }

    /// What decides about sandboxes is never writable in one, whoever says so.
    fn not_own(&self, entry: &Entry, path: &Path) -> Result<(), PolicyError> {
        match self.within_own(path) {
            Some(own) => {
                let reason = format!(
                    "{} is ringfence's own, and never writable inside: {}",
                    own.path.display(),
                    own.reason
                );
                Err(PolicyError::value(&self.merged.source(entry), reason))
            }
            None => Ok(()),
        }
    }

    /// Protects ringfence's own directories; those in a writable tree are made, so that there is
    /// something to hold, by whatever links. So are links on the way to them: who exchanged one would
    /// have ringfence look elsewhere.
    fn own(&mut self, policy: &mut Policy) {
        for (own, real) in std::mem::take(&mut self.own) {
            let rule = |path: PathBuf| PathRule {
                reason: Some(own.reason.to_owned()),
                ..plain(own.access, path, true, own::source())
            };
            for (link, _) in &real.links {
                if self.granted(link) == Some(Access::Write) {
                    let rule = PathRule { link: true, ..rule(link.clone()) };
                    self.others.push(Grant { rule, links: Vec::new(), found: false });
                }
            }
            let Some(access) = self.granted(&real.path) else { continue };
            if access == Access::Write && !real.exists {
                policy.made.push(Made { path: real.path.clone(), text: None });
            }
            self.others.push(Grant { rule: rule(real.path), links: Vec::new(), found: false });
        }
    }

    /// The most that the grants around a path give.
    fn granted(&self, path: &Path) -> Option<Access> {
        granted(&self.grants, path)
    }

    /// Checks the links of grants, and hands everything to the policy.
    fn finish(self, policy: &mut Policy) -> Result<(), PolicyError> {
        let trees: Vec<PathBuf> = self
            .grants
            .iter()
            .filter(|grant| grant.rule.access == Access::Write)
            .map(|grant| grant.rule.path.clone())
            .collect();
        for Crowded { path, access, error } in &self.crowded {
            if self.granted(path) < Some(*access) {
                return Err(error.clone());
            }
        }
        let mut left_out = self.through_denied();
        for (index, grant) in self.grants.iter().enumerate() {
            if planted(&grant.links, &grant.rule.path, &trees).is_none()
                && !granted_elsewhere(&self.grants, index, &trees)
                && let Some(doubt) = self.doubt(&grant.rule, &grant.links, policy)
            {
                left_out.insert(index);
                if !policy.warnings.contains(&doubt) {
                    policy.warnings.push(doubt);
                }
                continue;
            }
            if let Some((link, tree)) = planted(&grant.links, &grant.rule.path, &trees)
                && !granted_elsewhere(&self.grants, index, &trees)
            {
                // A project's environment that leads elsewhere is no reason not to run, and nobody asked for it.
                if grant.found {
                    left_out.insert(index);
                    continue;
                }
                return Err(PolicyError::Planted(Box::new(Planted {
                    rule: grant.rule.source.clone(),
                    link: link.to_owned(),
                    tree: tree.to_owned(),
                    target: grant.rule.path.clone(),
                })));
            }
        }
        policy.links.extend(self.beside);
        let mut seen = BTreeSet::new();
        for (index, grant) in self.grants.into_iter().enumerate() {
            if left_out.contains(&index) {
                continue;
            }
            policy.links.extend(grant.links);
            if seen.insert((grant.rule.access, grant.rule.path.clone())) {
                policy.paths.push(grant.rule);
            }
        }
        for other in self.others {
            // What is protected is put right at the end: not where only a link that a program
            // made says so. Nor does a wildcard that finds such a link deny to the next run what it leads
            // to, in its tree neither: there the link itself is closed.
            let by_program = |link: &Path| trees.iter().any(|tree| stands_in(link, tree));
            let led = other.found && other.links.iter().any(|(link, _)| by_program(link))
                || other.rule.access == Access::Protect
                    && planted(&other.links, &other.rule.path, &trees).is_some();
            if !led {
                policy.paths.push(other.rule);
            }
        }
        Ok(())
    }
}
