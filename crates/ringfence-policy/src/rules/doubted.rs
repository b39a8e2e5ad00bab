//! Links behind variables: a directory that the caller's environment names may lie where runs write, though this one does
//! not. Who ran there before could have put a link in its place.

use super::{ACTIVE, Grant, Rules};
use crate::files::{planted, stands_in};
use crate::policy::{Access, PathRule, Policy};
use crate::shown;
use crate::workspace::no_workspace;
use std::path::{Path, PathBuf};

impl Rules<'_, '_> {
    /// Why a rule whose path a variable names is left out, if it is: a link on the way stands where a run may have been
    /// started, and leads out of there. In this run's own trees such a link is a refusal.
    pub(super) fn doubt(
        &self,
        rule: &PathRule,
        links: &[(PathBuf, PathBuf)],
        policy: &Policy,
    ) -> Option<String> {
        let PathRule { path: target, access, source, .. } = rule;
        let text = source.text.trim_start_matches('?');
        let active = text.as_bytes().starts_with(ACTIVE);
        // An option is somebody's express will.
        if !text.starts_with("${") || active || source.origin.starts_with("option ") {
            return None;
        }
        let files = self.resolver.files();
        let (link, _) = links.iter().find(|(link, _)| {
            let reached = |parent: &&Path| self.uid == 0 || !files.fixed(parent);
            let Some(parent) = link.parent().filter(reached) else { return false };
            let out = |above: &&Path| stands_in(link, above) && !target.starts_with(above);
            parent.ancestors().filter(out).any(|above| no_workspace(above, policy).is_none())
        })?;
        let name = text[2..].split([':', '}']).next().unwrap_or_default();
        let option = if *access == Access::Write { "--write" } else { "--read" };
        Some(format!(
            "{name} is not followed: {} leads to {}, and could be an earlier run's; {} grants it",
            shown::path(link),
            shown::path(target),
            shown::option(option, target, false)
        ))
    }
}

/// Whether what a grant leads to is granted as strongly by a rule that needs no link in a
/// writable tree: then the link gives nothing that there is not anyhow.
pub(super) fn granted_elsewhere(grants: &[Grant], index: usize, trees: &[PathBuf]) -> bool {
    let wanted: &PathRule = &grants[index].rule;
    grants.iter().enumerate().any(|(other, grant)| {
        other != index
            && grant.rule.access >= wanted.access
            && planted(&grant.links, &grant.rule.path, trees).is_none()
            && wanted.path.starts_with(&grant.rule.path)
    })
}
