//! What the wildcards of a rule name on this host; each reads only the directory it is in.

use crate::files::FileView;
use crate::glob;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A wildcard in a grant names at most this many paths, and looks at this many names of a directory.
const MOST_MATCHES: usize = 1_000;
const MOST_NAMES: usize = 10_000;

/// Why a wildcard grants nothing.
pub(crate) enum Refused {
    /// It is none that a grant takes.
    Wrong(String),
    /// It names more than can be granted one by one.
    Crowded(String),
}

/// The existing paths that the pattern of a grant names. As in shells, `*` does not stand for a first dot.
///
/// # Errors
/// [`Refused`], with the sentence that says why.
pub(crate) fn granted(
    files: &dyn FileView,
    anchor: &Path,
    pattern: &str,
) -> Result<Vec<PathBuf>, Refused> {
    let mut found = vec![anchor.to_owned()];
    for component in pattern.split('/') {
        if component == "**" {
            let why = "`**` grants a tree at the end of a path only; name the tree";
            return Err(Refused::Wrong(why.to_owned()));
        }
        let mut next = Vec::new();
        for directory in &found {
            if !component.contains(['*', '?']) {
                next.push(directory.join(component));
                continue;
            }
            let names = files.names(directory, MOST_NAMES + 1).unwrap_or_default();
            if names.len() > MOST_NAMES {
                let shown = directory.display();
                let why = format!("{shown} holds over {MOST_NAMES} names; grant the tree");
                return Err(Refused::Crowded(why));
            }
            let shown = |name: &[u8]| component.starts_with('.') || !name.starts_with(b".");
            next.extend(names.iter().filter_map(|name| {
                let bytes = name.as_bytes();
                let matches = shown(bytes) && glob::name(component.as_bytes(), bytes);
                matches.then(|| directory.join(name))
            }));
        }
        if next.len() > MOST_MATCHES {
            let why = format!("it names over {MOST_MATCHES} paths; grant the tree");
            return Err(Refused::Crowded(why));
        }
        found = next;
    }
    found.retain(|path| files.link(path).is_ok());
    Ok(found)
}

/// The existing paths that the pattern of a `deny` names, however many and with a first dot too: what is
/// left out here would be open. Of `**` there are none: it is refused where the rule is to be enforced.
pub(crate) fn denied(files: &dyn FileView, anchor: &Path, pattern: &str) -> Vec<PathBuf> {
    let mut found = vec![anchor.to_owned()];
    for component in pattern.split('/') {
        found = match component {
            "**" => Vec::new(),
            _ if component.contains(['*', '?']) => {
                let named = |directory: &PathBuf| {
                    let names = files.names(directory, usize::MAX).unwrap_or_default();
                    let matching = |name: &std::ffi::OsString| {
                        glob::name(component.as_bytes(), name.as_bytes())
                    };
                    let directory = directory.clone();
                    names.into_iter().filter(matching).map(move |name| directory.join(name))
                };
                found.iter().flat_map(named).collect()
            }
            _ => found.iter().map(|directory| directory.join(component)).collect(),
        };
    }
    found.retain(|path| files.link(path).is_ok());
    found
}
