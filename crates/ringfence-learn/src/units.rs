//! What a rule is made about: a program's directory instead of each file in it.

use crate::secrets::is_usual_above;
use ringfence_policy::Moved;
use std::path::{Path, PathBuf};

/// Directories of the home in which each program has one of its own.
const SHARED: [&str; 8] = [
    ".config",
    ".cache",
    ".local/share",
    ".local/state",
    ".local/lib",
    ".local/share/applications",
    ".local",
    "Library",
];

/// Directories of programs that hold credentials or programs beside caches: one level more.
const MIXED: [&str; 11] = [
    ".cargo",
    ".rustup",
    ".m2",
    ".gradle",
    ".docker",
    ".npm-packages",
    ".claude",
    ".codex",
    ".gemini",
    "go",
    ".ssh",
];

/// Whether a directory of the home is one that all programs share.
pub(crate) fn is_shared(directory: &Path) -> bool {
    SHARED.iter().any(|shared| directory == Path::new(shared))
}

/// What a rule about a path names.
pub fn unit(path: &Path, home: &Path, moved: &Moved) -> PathBuf {
    if let Some(unit) = moved.usual(path).and_then(|usual| moved.path(in_home(&usual))) {
        return unit;
    }
    match path.strip_prefix(home) {
        Ok(rest) if !rest.as_os_str().is_empty() => home.join(in_home(rest)),
        _ => in_system(path),
    }
}

fn first(path: &Path, components: usize) -> PathBuf {
    path.components().take(components).collect()
}

fn in_home(rest: &Path) -> PathBuf {
    let mut unit = whole(rest);
    // A directory with credentials in it is no unit: what was asked for there is named more closely.
    while is_usual_above(&unit) && unit != rest {
        unit = first(rest, unit.components().count() + 1);
    }
    unit
}

fn whole(rest: &Path) -> PathBuf {
    let shared = SHARED.iter().filter(|shared| rest.starts_with(shared));
    if let Some(deepest) = shared.map(|shared| Path::new(shared).components().count()).max() {
        return first(rest, deepest + 1);
    }
    if MIXED.iter().any(|mixed| rest.starts_with(mixed)) {
        return first(rest, 2);
    }
    let hidden = rest.as_os_str().as_encoded_bytes().starts_with(b".");
    // Another project's or the user's own: no more than the directory that the file is in.
    if hidden { first(rest, 1) } else { parent(rest, 2) }
}

fn in_system(path: &Path) -> PathBuf {
    let depth = |components| first(path, components);
    match path.components().nth(1).map(|name| name.as_os_str().as_encoded_bytes()) {
        // Interfaces of the kernel, by their subject.
        Some(b"sys") => depth(5),
        Some(b"dev" | b"run") => path.to_owned(),
        Some(b"var" | b"srv" | b"opt" | b"mnt" | b"media") => depth(4),
        _ => parent(path, 3),
    }
}

/// The directory of a path, if it is still so many components deep.
fn parent(path: &Path, least: usize) -> PathBuf {
    match path.parent() {
        Some(parent) if parent.components().count() >= least && !path.is_dir() => parent.to_owned(),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_has_one_rule_for_its_directory() {
        let home = Path::new("/home/u");
        let of = |path: &str| unit(Path::new(path), home, &Moved::default()).display().to_string();
        assert_eq!(of("/home/u/.config/app/deep/file"), "/home/u/.config/app");
        assert_eq!(of("/home/u/.local/share/app/x"), "/home/u/.local/share/app");
        assert_eq!(of("/home/u/.npm/_cacache/a/b"), "/home/u/.npm");
        assert_eq!(of("/home/u/.cargo/registry/index/a"), "/home/u/.cargo/registry");
        assert_eq!(of("/home/u/.vimrc"), "/home/u/.vimrc");
        assert_eq!(of("/home/u/tables/data/a.csv"), "/home/u/tables/data");
        assert_eq!(of("/home/u/file"), "/home/u/file");
        assert_eq!(of("/sys/devices/system/cpu/online"), "/sys/devices/system/cpu");
        assert_eq!(of("/var/lib/dpkg/status"), "/var/lib/dpkg");
        assert_eq!(of("/run/app/socket"), "/run/app/socket");
    }

    #[test]
    fn no_rule_takes_in_what_is_secret() {
        let home = Path::new("/home/u");
        let of = |path: &str| unit(Path::new(path), home, &Moved::default()).display().to_string();
        assert_eq!(of("/home/u/.config/git/config"), "/home/u/.config/git/config");
        assert_eq!(of("/home/u/.qwen/tmp/a/b"), "/home/u/.qwen/tmp");
        assert_eq!(of("/home/u/.config/sops/age/x"), "/home/u/.config/sops/age/x");
        assert_eq!(of("/home/u/.config/gitx/config"), "/home/u/.config/gitx", "the control");
    }

    #[test]
    fn a_unit_is_where_its_base_directory_was_moved_to() {
        let home = Path::new("/home/u");
        let to = |name: &str| (name == "XDG_CONFIG_HOME").then(|| "/data/settings".into());
        let elsewhere = Moved::of(home, &to);
        let unit = |path: &str| unit(Path::new(path), home, &elsewhere);
        assert_eq!(unit("/data/settings/x/a/b"), Path::new("/data/settings/x"));
        assert_eq!(unit("/data/a/b/c"), Path::new("/data/a/b"));
    }
}
