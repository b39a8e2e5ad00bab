//! What rules and the host's file modes refuse.

use super::{Grant, Rules};
use crate::error::PolicyError;
use crate::files::Real;
use crate::guard::plain;
use crate::judge_path::covers;
use crate::key::Key;
use crate::merge::Entry;
use crate::path::{Anchored, Bases, anchor};
use crate::policy::{Access, Guarded, PathRule, Source};
use crate::{guard, secrets, wildcard};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

impl Rules<'_, '_> {
    /// The grants, by their places, of what is named by a link that is denied or lies in what is: of a path as it is
    /// written, and of where its links lead, the worse answer counts.
    pub(super) fn through_denied(&self) -> BTreeSet<usize> {
        let deny = |other: &&Grant| other.rule.access == Access::Deny && !other.found;
        let denied =
            |link: &Path| self.others.iter().filter(deny).any(|other| covers(&other.rule, link));
        let through = |grant: &Grant| grant.links.iter().any(|(link, _)| denied(link));
        let places = self.grants.iter().enumerate().filter(|(_, grant)| through(grant));
        places.map(|(place, _)| place).collect()
    }

    /// A `deny` or `protect`: both where it stands and where that leads.
    pub(super) fn refuse(
        &mut self,
        entry: &Entry,
        access: Access,
        guarded: Guarded,
    ) -> Result<(), PolicyError> {
        if let Some(anchored) = self.anchor(entry)? {
            self.refuse_at(entry, access, guarded, anchored);
        }
        Ok(())
    }

    fn refuse_at(&mut self, entry: &Entry, access: Access, guarded: Guarded, at: Anchored) {
        let Anchored { path, pattern, .. } = at;
        let source = self.merged.source(entry);
        if let (Access::Deny, Some(pattern)) = (access, &pattern) {
            self.refuse_led_to(&path, pattern, &source);
        }
        self.refuse_both(access, &path, pattern, source, None, guarded);
    }

    /// What is refused of the home that `HOME` says is refused of the account's as well, where that is another one
    /// and something there is granted.
    pub(super) fn refuse_of_account(&mut self, home: &Path) {
        let around = |path: &Path| path.starts_with(home) || home.starts_with(path);
        if !self.grants.iter().any(|grant| around(&grant.rule.path)) {
            return;
        }
        let bases = Bases { home, workdir: self.bases.workdir, env: self.bases.env };
        for entry in &self.merged.entries {
            let (access, guarded) = match entry.key {
                Key::Deny => (Access::Deny, Guarded::Plain),
                Key::Protect => (Access::Protect, Guarded::Plain),
                Key::Judged => (Access::Protect, guard::judged(&entry.text)),
                _ => continue,
            };
            let (usual, there) = (anchor(&entry.text, self.bases), anchor(&entry.text, &bases));
            if let Ok(there) = there
                && usual.as_ref() != Ok(&there)
            {
                self.refuse_at(entry, access, guarded, there);
            }
        }
    }

    /// What the links lead to that the pattern of a `deny` names; but for what such a link itself or the
    /// directory of the run is in: who makes one to there would have the next run denied all of it.
    fn refuse_led_to(&mut self, anchor: &Path, pattern: &str, source: &Source) {
        let Ok(anchor) = self.resolver.real(anchor) else { return };
        for path in wildcard::denied(self.resolver.files(), &anchor.path, pattern) {
            let Ok(Real { path, links, exists: true }) = self.resolver.real(&path) else {
                continue;
            };
            let mut places = links.iter().map(|(place, _)| place.as_path());
            let around = places.any(|place| place.starts_with(&path));
            if !links.is_empty() && !around && !self.bases.workdir.starts_with(&path) {
                let rule = plain(Access::Deny, path, true, source.clone());
                self.others.push(Grant { rule, links, found: true });
            }
        }
    }

    fn refuse_both(
        &mut self,
        access: Access,
        path: &Path,
        pattern: Option<String>,
        source: Source,
        reason: Option<String>,
        guarded: Guarded,
    ) {
        let real = self.resolver.real(path);
        let rule = |path: PathBuf| PathRule {
            guarded,
            pattern: pattern.clone(),
            reason: reason.clone(),
            ..plain(access, path, true, source.clone())
        };
        // Where it cannot be known where a path leads, nothing below it is granted either.
        if let Some(Real { path: real, links, .. }) = real.ok().filter(|real| real.path != path) {
            self.others.push(Grant { rule: rule(real), links, found: false });
        }
        self.others.push(Grant { rule: rule(path.to_path_buf()), links: Vec::new(), found: false });
    }

    /// What file modes hide from ordinary users is hidden from root by rule.
    pub(super) fn root_only(&mut self) {
        let source = || Source {
            origin: "built in".to_owned(),
            key: String::new(),
            text: "only root may read it".to_owned(),
        };
        for (text, reason) in secrets::ROOT_ONLY {
            let (path, pattern) = match text.find('*').and_then(|at| text[..at].rfind('/')) {
                Some(slash) => (&text[..slash], Some(text[slash + 1..].to_owned())),
                None => (*text, None),
            };
            if pattern.is_none() && self.resolver.files().link(Path::new(path)).is_err() {
                // Not there, and no program inside can make it.
                continue;
            }
            self.refuse_both(
                Access::Deny,
                Path::new(path),
                pattern,
                source(),
                Some((*reason).to_owned()),
                Guarded::Plain,
            );
        }
        // What no list has; a rule about exactly that is the user's word.
        for name in self.resolver.files().closed_in(Path::new("/etc")) {
            let path = Path::new("/etc").join(name);
            let mut known = self.grants.iter().chain(&self.others);
            // Or about something in it.
            if !known.any(|known| known.rule.path.starts_with(&path)) {
                let reason = Some("others cannot read it".to_owned());
                self.refuse_both(Access::Deny, &path, None, source(), reason, Guarded::Plain);
            }
        }
    }
}
