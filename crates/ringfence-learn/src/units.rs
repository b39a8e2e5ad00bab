//! What a rule is made about: a program's directory instead of each file in it.

use ringfence_policy::Moved;
use std::path::{Path, PathBuf};

/// Below the home: credentials, and where programs keep what speaks for their user.
pub const SECRETS: [(&str, &str); 42] = [
    (".ssh", "keys of ssh"),
    (".gnupg", "keys of GnuPG"),
    (".aws", "a cloud's"),
    (".azure", "a cloud's"),
    (".config/gcloud", "a cloud's"),
    (".config/doctl", "a cloud's"),
    (".config/hcloud", "a cloud's"),
    (".oci", "a cloud's"),
    (".kube", "a cluster's"),
    (".docker/config.json", "registries'"),
    (".config/containers/auth.json", "registries'"),
    (".netrc", "of many programs"),
    (".git-credentials", "git's"),
    (".config/git/credentials", "git's"),
    (".config/gh", "GitHub's"),
    (".config/glab-cli", "GitLab's"),
    (".config/hub", "GitHub's"),
    (".npmrc", "npm's"),
    (".yarnrc.yml", "yarn's"),
    (".pypirc", "PyPI's"),
    (".config/pip/pip.conf", "an index's"),
    (".cargo/credentials", "cargo's"),
    (".cargo/credentials.toml", "cargo's"),
    (".gem/credentials", "RubyGems'"),
    (".m2/settings.xml", "Maven's"),
    (".m2/settings-security.xml", "Maven's"),
    (".gradle/gradle.properties", "Gradle's"),
    (".pgpass", "a database's"),
    (".my.cnf", "a database's"),
    (".vault-token", "a vault's"),
    (".terraform.d/credentials.tfrc.json", "Terraform's"),
    (".config/rclone", "storage's"),
    (".config/op", "a password manager's"),
    (".password-store", "a password manager's"),
    (".local/share/keyrings", "the keyring"),
    (".local/share/kwalletd", "the keyring"),
    (".mozilla", "a browser's sessions"),
    (".config/google-chrome", "a browser's sessions"),
    (".config/chromium", "a browser's sessions"),
    (".config/BraveSoftware", "a browser's sessions"),
    (".bash_history", "what was typed"),
    (".zsh_history", "what was typed"),
];

/// What is secret about a path.
pub fn secret(path: &Path, home: &Path, moved: &Moved) -> Option<&'static str> {
    // Both: a base directory can be moved to where the home has another secret.
    let usual = moved.usual(path);
    let names = [usual.as_deref(), path.strip_prefix(home).ok()];
    // What ssh needs to know a host is none.
    let known = [".ssh/known_hosts", ".ssh/known_hosts2"];
    let hidden = names
        .into_iter()
        .flatten()
        .filter(|rest| !known.iter().any(|known| *rest == Path::new(known)));
    let why = |rest: &Path| {
        let found = SECRETS.iter().find(|(secret, _)| rest.starts_with(secret));
        found.map(|(_, why)| *why)
    };
    hidden.filter_map(why).next()
}

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
        let unit = |path: &str| unit(Path::new(path), home, &elsewhere);
        assert_eq!(unit("/data/settings/x/a/b"), Path::new("/data/settings/x"));
        assert_eq!(unit("/data/a/b/c"), Path::new("/data/a/b"));
    }
}
