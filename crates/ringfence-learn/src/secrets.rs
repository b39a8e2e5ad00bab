//! What is secret in a home: by a list, since nothing about a file says it.

use crate::credentials::{AGENTS, ELSEWHERE, SECRETS, by_name};
use ringfence_policy::Moved;
use std::iter::once;
use std::path::{Path, PathBuf};

/// Where those directories are, and what they are usually called.
fn elsewhere() -> impl Iterator<Item = (PathBuf, &'static str)> {
    ELSEWHERE.into_iter().filter_map(|(variable, usual)| {
        let base = std::env::var_os(variable).map(PathBuf::from)?;
        (base.is_absolute() && base.parent().is_some()).then_some((base, usual))
    })
}

/// What a run that is watched is not shown, wherever it may be, but for an agent's files that its policy grants.
pub fn hidden(home: &Path, moved: &Moved, granted: &dyn Fn(&Path) -> bool) -> Vec<PathBuf> {
    let at = |below: &str| once(home.join(below)).chain(moved.path(below)).collect::<Vec<_>>();
    let mut all: Vec<PathBuf> = SECRETS.iter().flat_map(|(below, _)| at(below)).collect();
    let mut agents: Vec<PathBuf> = AGENTS.iter().flat_map(|(below, _)| at(below)).collect();
    for (base, usual) in elsewhere() {
        let below =
            |(path, _): &(&str, _)| Path::new(path).strip_prefix(usual).map(|rest| base.join(rest));
        agents.extend(AGENTS.iter().filter_map(|agent| below(agent).ok()));
    }
    all.extend(agents.into_iter().filter(|path| !granted(path)));
    all
}

/// Whether something secret is usually below a directory of the home.
pub(crate) fn is_usual_above(directory: &Path) -> bool {
    let below = |(secret, _): &(&str, _)| {
        let secret = Path::new(secret);
        secret != directory && secret.starts_with(directory)
    };
    SECRETS.iter().any(below) || AGENTS.iter().any(below)
}

/// What is secret below a directory of the host's, if something is there now.
pub(crate) fn held(directory: &Path, home: &Path, moved: &Moved) -> Option<&'static str> {
    let is_in = |path: PathBuf| {
        path != directory && path.starts_with(directory) && path.symlink_metadata().is_ok()
    };
    let mut all = SECRETS.iter().chain(&AGENTS);
    let found = all.find(|(below, _)| once(home.join(below)).chain(moved.path(below)).any(is_in));
    found.map(|(_, why)| *why)
}

/// What is secret about a path.
pub fn secret(path: &Path, home: &Path, moved: &Moved) -> Option<&'static str> {
    // All of them: a base directory can be moved to where the home has another secret.
    let mut names: Vec<PathBuf> = moved.usual(path).into_iter().collect();
    names.extend(path.strip_prefix(home).map(Path::to_owned));
    names.extend(elsewhere().filter_map(|(base, usual)| {
        path.strip_prefix(base).map(|rest| Path::new(usual).join(rest)).ok()
    }));
    // What ssh needs to know a host is none.
    let known = [".ssh/known_hosts", ".ssh/known_hosts2"];
    let why = |name: &PathBuf| {
        let all = SECRETS.iter().chain(&AGENTS);
        let mut all = all.filter(|_| !known.iter().any(|known| name == Path::new(known)));
        all.find(|(secret, _)| name.starts_with(secret)).map(|(_, why)| *why)
    };
    names.iter().find_map(why).or_else(|| by_name(path))
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

    #[test]
    fn credentials_are_known_by_their_place() {
        let home = Path::new("/home/u");
        let none = Moved::default();
        assert!(secret(Path::new("/home/u/.ssh/id_ed25519"), home, &none).is_some());
        assert!(secret(Path::new("/home/u/.ssh/known_hosts"), home, &none).is_none());
        assert!(secret(Path::new("/home/u/.aws"), home, &none).is_some());
        assert!(secret(Path::new("/home/u/.awsome"), home, &none).is_none());
        assert!(secret(Path::new("/srv/.ssh/id"), home, &none).is_none());
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
            assert!(secret(&home.join(name), home, &Moved::default()).is_some(), "{name}");
        }
        for name in [".subversion/config", ".config/nix/registry.json", ".local/share/app/data"] {
            assert!(secret(&home.join(name), home, &Moved::default()).is_none(), "{name}");
        }
    }

    #[test]
    fn what_is_secret_is_so_where_its_base_directory_was_moved_to() {
        let home = Path::new("/home/u");
        let to = |base: &'static str| {
            Moved::of(home, &move |name| (name == "XDG_CONFIG_HOME").then(|| base.into()))
        };
        let elsewhere = to("/data/settings");
        let is = |path: &str, moved: &Moved| secret(Path::new(path), home, moved).is_some();
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
        let all = |granted: &dyn Fn(&Path) -> bool| hidden(home, &Moved::default(), granted);
        assert!(all(&|_| false).contains(&login));
        let learnt = all(&|_| true);
        assert!(!learnt.contains(&login) && learnt.contains(&home.join(".ssh")));
        assert!(!learnt.contains(&home.join(".Xauthority")), "the display's, by the feature x11");
    }
}
