//! What HOME is in the process tier, which has no view to show one in: a private directory with links to what is granted
//! below the real one, whose path is another one in each session.

use super::grants::Grants;
use super::{PlanError, Planning, built_in};
use crate::facts::Kind;
use crate::plan::{EnvironmentStep, Tier};
use ringfence_policy::{Home, Layer, Policy, through_links};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Refuses what the tier cannot do.
pub(super) fn check(planning: &Planning<'_>, tier: Tier) -> Result<(), PlanError> {
    match &planning.policy.home {
        Home::Named(name) if tier == Tier::Process => Err(PlanError::Missing {
            layer: Layer::Namespaces,
            what: format!(
                "the home {name} is kept to be shown in the place of yours (--home, or a profile's `home`), for which \
                 the process tier has no mounts"
            ),
            remedy: "use --tier namespace, or --home private".to_owned(),
        }),
        _ => Ok(()),
    }
}

/// What the user should know of a program with a home of its own: where it was started, nothing of what it writes is
/// kept under that name.
pub(super) fn told(planning: &Planning<'_>, grants: &Grants, tier: Tier) -> Option<String> {
    let Policy { workdir, home_dir, arguments, .. } = planning.policy;
    let Home::Named(name) = &planning.policy.home else { return None };
    let apart = arguments.is_some() && workdir != home_dir && grants.covering(workdir).is_none();
    if tier != Tier::Namespace || !apart {
        return None;
    }
    let shown = workdir.display();
    let below = workdir.strip_prefix(home_dir).ok();
    let kept = below.filter(|_| grants.trees.keys().any(|tree| tree.starts_with(workdir)));
    Some(match kept {
        Some(below) => format!(
            "{shown} is a directory of the home {name} here: what is written into it goes to {}; -w . grants the real one",
            crate::state::homes(home_dir).join(name).join(below).display()
        ),
        None => format!(
            "{shown} is empty here, and what is written into it is gone at the end; -w . grants the real one"
        ),
    })
}

/// The home, if a private one is in its place.
pub(super) fn private(planning: &Planning<'_>, grants: &Grants, tier: Tier) -> Option<PathBuf> {
    let Policy { home, home_dir, .. } = planning.policy;
    let private = match tier {
        Tier::Namespace => *home == Home::Private && !grants.trees.contains_key(home_dir),
        Tier::Process => *home != Home::Host,
    };
    (private && home_dir.parent().is_some()).then(|| home_dir.clone())
}

/// The links of the private home, and where they lead: what is granted below the real one, by its own name and by those
/// that links of the host's give it.
pub(super) fn links(
    planning: &Planning<'_>,
    grants: &Grants,
    tier: Tier,
) -> Vec<(PathBuf, PathBuf)> {
    let policy = planning.policy;
    let Policy { home, home_dir, links, .. } = policy;
    if tier != Tier::Process || *home == Home::Host {
        return Vec::new();
    }
    let mut all = BTreeMap::new();
    let mut add = |name: &Path, to: &Path| {
        if let Ok(relative) = name.strip_prefix(home_dir)
            && !relative.as_os_str().is_empty()
        {
            all.entry(relative.to_owned()).or_insert_with(|| to.to_owned());
        }
    };
    for path in grants.trees.keys() {
        add(path, path);
    }
    for link in links.keys().filter(|link| link.starts_with(home_dir)) {
        let to = through_links(policy, link);
        match grants.covering(&to) {
            Some(_) => add(link, &to),
            // What it leads to is not shown as a whole: what is written beside is the private home's.
            None => {
                let parts = grants
                    .trees
                    .keys()
                    .filter_map(|tree| Some((tree, tree.strip_prefix(&to).ok()?)));
                parts.for_each(|(tree, rest)| add(&link.join(rest), tree));
            }
        }
    }
    // What is below another link is there by that one, and follows it in this order: a link of its own would be made in
    // the host's directory.
    let mut kept: Vec<(PathBuf, PathBuf)> = Vec::new();
    for (name, to) in all {
        if !kept.last().is_some_and(|(above, _)| name.starts_with(above)) {
            kept.push((name, to));
        }
    }
    kept
}

/// A directory of a tool's below the home, by whose path it knows what it has built, and the variable that names it.
struct Known {
    variable: &'static str,
    usual: &'static str,
    /// What has to be granted.
    part: &'static str,
    write: bool,
    /// The profile that it is for; empty for any.
    profile: &'static str,
    /// What the tool would fail to read there, where it is and is not granted: in a private home it is absent.
    read: &'static [&'static str],
}

const KNOWN: [Known; 5] = [
    Known {
        variable: "CARGO_HOME",
        usual: ".cargo",
        part: ".cargo/registry",
        write: false,
        profile: "",
        read: &["config", "config.toml", "credentials", "credentials.toml"],
    },
    Known {
        variable: "GOMODCACHE",
        usual: "go/pkg/mod",
        part: "go/pkg/mod",
        write: false,
        profile: "",
        read: &[],
    },
    Known {
        variable: "GOCACHE",
        usual: ".cache/go-build",
        part: ".cache/go-build",
        write: true,
        profile: "",
        read: &[],
    },
    // pnpm would make its store in the project: it looks for a place from which it can link, and the private home is
    // on another file system. npm warns of a key that it does not know.
    Known {
        variable: "npm_config_store_dir",
        usual: ".local/share/pnpm/store",
        part: ".local/share/pnpm/store",
        write: true,
        profile: "profile pnpm",
        read: &[],
    },
    // From its version 11 on it reads names of its own.
    Known {
        variable: "pnpm_config_store_dir",
        usual: ".local/share/pnpm/store",
        part: ".local/share/pnpm/store",
        write: true,
        profile: "profile pnpm",
        read: &[],
    },
];

/// Variables: the real home, if that is what is asked for; and for tools where theirs really is, which would build all
/// anew in each session for its being elsewhere.
pub(super) fn environment(
    planning: &Planning<'_>,
    grants: &Grants,
    tier: Tier,
) -> Vec<EnvironmentStep> {
    let policy = planning.policy;
    if tier != Tier::Process || policy.home_dir.parent().is_none() {
        return Vec::new();
    }
    let environment = &policy.environment;
    let set = |name: &str, path: PathBuf, why| {
        // One that is no text is left as it is.
        let value = path.to_str().filter(|_| !environment.set.contains_key(name))?.to_owned();
        Some(EnvironmentStep::Set { name: name.to_owned(), value, rule: built_in(why) })
    };
    if policy.home == Home::Host {
        return set("HOME", policy.home_dir.clone(), "the host's home").into_iter().collect();
    }
    let granted = |path: &PathBuf| grants.covering(path).is_some();
    let known = KNOWN.iter().filter(|known| {
        let at = |name: &str| policy.home_dir.join(known.usual).join(name);
        let part = policy.home_dir.join(known.part);
        let told = planning.facts.environment.iter().any(|name| name == known.variable);
        let shown = grants.covering(&part).is_some_and(|(_, grant)| grant.write || !known.write);
        let unreadable =
            |name: &&str| planning.paths.kind(&at(name)) != Kind::Absent && !granted(&at(name));
        let meant =
            known.profile.is_empty() || policy.profiles.iter().any(|name| name == known.profile);
        meant && !told && !environment.clean && shown && !known.read.iter().any(unreadable)
    });
    let steps = known.map(|known| {
        let why = "where it really is: by another path in each session all would be built anew";
        set(known.variable, policy.home_dir.join(known.usual), why)
    });
    steps.flatten().collect()
}
