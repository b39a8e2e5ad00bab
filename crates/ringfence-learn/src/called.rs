//! What is called like a credential, or begins as a key does: for programs that no table names; and whether a directory
//! has such in it.

use crate::secrets::is_listed_whole;
use ringfence_policy::{FileView, HostFiles};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What is public, or text of a program.
const PUBLIC: [&str; 46] = [
    "a", "asm", "c", "cc", "cjs", "class", "cpp", "crt", "cs", "css", "cxx", "d", "erl", "ex",
    "exs", "go", "h", "hh", "hpp", "hs", "html", "java", "js", "jsx", "kt", "lua", "md", "mjs",
    "ml", "o", "php", "pl", "pm", "po", "pub", "py", "pyc", "rb", "rs", "rst", "scala", "so",
    "svg", "swift", "ts", "tsx",
];

/// Endings of keys, and of what has some in it.
const KEYS: [&str; 19] = [
    "pem", "key", "kdb", "kdbx", "p12", "p8", "pfx", "pkcs12", "der", "jks", "jceks", "bks",
    "keystore", "keychain", "ppk", "ovpn", "tfvars", "tfstate", "agekey",
];

const FILES: [&str; 22] = [
    "auth.json",
    "netrc",
    "_netrc",
    ".netrc",
    ".my.cnf",
    ".s3cfg",
    ".boto",
    "wallet.dat",
    "terraform.tfstate.backup",
    "shadow",
    "logins.json",
    "login data",
    "key3.db",
    "key4.db",
    "signons.sqlite",
    "sessionstore.jsonlz4",
    "secring.gpg",
    "sitemanager.xml",
    "rclone.conf",
    "wpa_supplicant.conf",
    ".dockercfg",
    ".htdigest",
];

/// Directories of which all is one, wherever they are: copies of the home's own.
const DIRECTORIES: [&str; 12] = [
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".oci",
    ".password-store",
    ".mozilla",
    ".thunderbird",
    "private-keys",
    "private_keys",
    "private-keys-v1.d",
];

/// What people call such: the last word of it (`prod-secrets`).
const WORDS: [&str; 5] = ["secret", "secrets", "credential", "credentials", "passwords"];

/// Whether a directory is called so.
fn is_kept(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let last = name.rsplit(|byte| !byte.is_ascii_alphanumeric()).next().unwrap_or_default();
    DIRECTORIES.iter().any(|directory| name.eq_ignore_ascii_case(directory.as_bytes()))
        || WORDS.iter().any(|word| last.eq_ignore_ascii_case(word.as_bytes()))
}

/// What it is to look like, for who has none yet.
const EXAMPLES: [&str; 6] = ["example", "sample", "template", "dist", "defaults", "schema"];

/// Endings of what was kept of a file.
const KEPT: [&str; 9] = ["bak", "backup", "old", "orig", "save", "saved", "copy", "prev", "swp"];

/// Words that end in `pass` and are about none.
const NO_PASS: [&str; 8] =
    ["bypass", "compass", "encompass", "overpass", "passpass", "surpass", "trespass", "underpass"];

/// Directories of packages: copies of what is public, tests with keys of their own among it; and others whose names say nothing.
const INSTALLED: [&str; 3] = ["site-packages", "dist-packages", "node_modules"];
const PACKAGES: [[&str; 2]; 22] = [
    [".cargo", "registry"],
    [".cargo", "git"],
    [".rustup", "toolchains"],
    ["pkg", "mod"],
    [".npm", "_cacache"],
    [".m2", "repository"],
    [".gradle", "caches"],
    [".nuget", "packages"],
    [".pub-cache", "hosted"],
    ["share", "pnpm"],
    [".cache", "go-build"],
    [".cache", "pip"],
    [".cache", "uv"],
    [".cache", "yarn"],
    [".cache", "deno"],
    [".cache", "ms-playwright"],
    [".pyenv", "versions"],
    [".nvm", "versions"],
    // Git's own: what branches are called, and numbers.
    [".git", "objects"],
    ["refs", "heads"],
    ["refs", "remotes"],
    ["refs", "tags"],
];

/// Whether a path is in a directory of packages.
fn is_installed(path: &Path) -> bool {
    let names = || path.iter();
    names().any(|name| INSTALLED.iter().any(|installed| name == *installed))
        || names().zip(names().skip(1)).any(|(above, name)| {
            PACKAGES.iter().any(|packages| above == packages[0] && name == packages[1])
        })
}

/// What is called like a credential, or is in a directory that is: for programs that no table names. Not what is public or
/// text of a program.
pub(crate) fn by_name(path: &Path) -> Option<&'static str> {
    let name = path.file_name()?.to_string_lossy().to_ascii_lowercase();
    let ending = ending(&name);
    if PUBLIC.contains(&ending)
        // Certificates that each program comes with.
        || ["ca-", "cacert", "roots"].iter().any(|public| name.starts_with(public))
        || is_installed(path)
    {
        return None;
    }
    if name.ends_with("_history") || name.ends_with(".history") {
        return Some("what was typed, by its name");
    }
    if is_called(&name) {
        return Some("by its name");
    }
    // What ssh needs to know a host is none.
    let known = name.starts_with("known_hosts");
    let among = path.parent().is_some_and(|above| above.iter().any(is_kept));
    (!known && (among || is_listed_whole(path))).then_some("by the name of what it is in")
}

fn ending(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(_, ending)| ending)
}

/// Whether a name, in small letters, is one of a credential.
fn is_called(name: &str) -> bool {
    let ending = ending(name);
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    let kept = name.trim_end_matches('~');
    // `id_rsa.bak`, `.pgpass~`: as what it was kept of.
    if kept != name || KEPT.contains(&ending) && !stem.is_empty() {
        return is_called(if kept != name { kept } else { stem });
    }
    let words = |text| str::split(text, |c: char| !c.is_ascii_alphanumeric());
    let of_stem: Vec<&str> = words(stem).filter(|word| !word.is_empty()).collect();
    let example =
        EXAMPLES.contains(&ending) || of_stem.iter().any(|word| EXAMPLES[..3].contains(word));
    let variables = name == ".env"
        || name.starts_with(".env.") && !EXAMPLES.contains(&ending)
        || ending == "env" && !example;
    let has = |part: &&str| name.contains(part);
    let parts = [
        "credential",
        "passw",
        "passphrase",
        "apikey",
        "api_key",
        "kubeconfig",
        "privatekey",
        "secretkey",
        "serviceaccount",
        "keychain",
        "mnemonic",
    ];
    let keys = ["id_rsa", "id_dsa", "id_ecdsa", "id_ed25519"];
    // `special_tokens_map.json` is a language model's.
    let last = [of_stem.last().copied(), words(name).next_back()];
    let is_last = |word: &str| {
        let pass = word.ends_with("pass") && !NO_PASS.contains(&word);
        matches!(word, "token" | "tokens" | "creds" | "jwt" | "pwd" | "wallet") || pass
    };
    let is_one = |word: &str| {
        matches!(word, "oauth" | "cookies" | "secring")
            || word.ends_with("secret")
            || word.ends_with("secrets")
    };
    // `deploy_key`, `signing-key.json`; not `key`, `keys`, `public.key`.
    let one_key =
        of_stem.len() > 1 && of_stem.last() == Some(&"key") && !of_stem.contains(&"public");
    let private =
        of_stem.contains(&"private") && matches!(ending, "asc" | "gpg" | "txt" | "json" | "bin");
    let account = ending == "json" && of_stem.windows(2).any(|two| two == ["service", "account"]);
    KEYS.contains(&ending)
        || FILES.contains(&name)
        || variables
        || keys.iter().any(|key| name.starts_with(key))
        || parts.iter().any(has)
        || words(name).any(is_one)
        || last.iter().flatten().any(|word| is_last(word))
        || one_key
        || private
        || account
}

/// Whether a file begins as a private key does, or has one in its first lines.
pub(crate) fn by_content(path: &Path) -> Option<&'static str> {
    const BEGINNING: u64 = 4096;
    let name = path.file_name()?.to_string_lossy().to_ascii_lowercase();
    if PUBLIC.contains(&ending(&name)) && ending(&name) != "crt" || is_installed(path) {
        return None;
    }
    match HostFiles.beginning(path, BEGINNING) {
        Ok(bytes) => is_key(&bytes).then_some("a private key, by what is in it"),
        Err(error) if error.raw_os_error().is_some_and(is_too_many) => {
            Some("what is in it is not known, since too many files are open")
        }
        Err(_) => None,
    }
}

/// `ENFILE` and `EMFILE`.
fn is_too_many(error: i32) -> bool {
    matches!(error, 23 | 24)
}

fn is_key(bytes: &[u8]) -> bool {
    let begins = [&b"PuTTY-User-Key-File-"[..], b"AGE-SECRET-KEY-"];
    bytes.split(|byte| *byte == b'\n').any(|line| {
        let line = line.trim_ascii();
        let key = line.ends_with(b"PRIVATE KEY-----") || line.ends_with(b"PRIVATE KEY BLOCK-----");
        line.starts_with(b"-----BEGIN ") && key
            || begins.iter().any(|begin| line.starts_with(begin))
    })
}

/// Whether a directory has a credential in it, by the names there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Has {
    /// It has.
    Some,
    /// It has none.
    None,
    /// There is too much in it, or it cannot be read.
    Unknown,
}

/// Directories that were looked through, each once.
#[derive(Debug)]
pub(crate) struct Looking {
    /// What was found in them, and whether that is all.
    known: BTreeMap<PathBuf, (Vec<PathBuf>, bool)>,
    /// How many names may be looked at yet, and how many files.
    names: usize,
    files: usize,
}

impl Default for Looking {
    fn default() -> Looking {
        Looking { known: BTreeMap::new(), names: MOST_IN_ALL, files: MOST_FILES }
    }
}

/// The most names in one directory and below it, and in all of them; and the most files of which the beginning is read.
const MOST: usize = 1 << 17;
const MOST_IN_ALL: usize = 1 << 19;
const MOST_FILES: usize = 2048;

impl Looking {
    /// Looks through a directory, to any depth.
    pub fn has(&mut self, directory: &Path) -> Has {
        // Interfaces of the kernel.
        if ["/sys", "/proc"].iter().any(|kernels| directory.starts_with(kernels)) {
            return Has::None;
        }
        let below = |path: &&PathBuf| *path != directory && path.starts_with(directory);
        if !self.known.contains_key(directory) {
            if let Some((named, _)) = self.around(directory) {
                return if named.iter().any(|path| below(&path)) { Has::Some } else { Has::None };
            }
            let found = self.look(directory);
            self.known.insert(directory.to_owned(), found);
        }
        match self.known.get(directory) {
            Some((named, _)) if !named.is_empty() => Has::Some,
            Some((_, true)) => Has::None,
            _ => Has::Unknown,
        }
    }

    /// What is known of a directory that this one is in, without a link on the way, where that is all.
    fn around(&self, directory: &Path) -> Option<&(Vec<PathBuf>, bool)> {
        let mut at = directory;
        loop {
            if !at.symlink_metadata().is_ok_and(|data| data.is_dir()) {
                return None;
            }
            at = at.parent()?;
            if let Some(known) = self.known.get(at).filter(|known| known.1) {
                return Some(known);
            }
        }
    }

    fn look(&mut self, directory: &Path) -> (Vec<PathBuf>, bool) {
        let mut left = MOST.min(self.names);
        let before = left;
        let mut named = Vec::new();
        let whole = self.through(directory, &mut named, &mut left).is_some();
        self.names -= before - left;
        (named, whole)
    }

    /// Nothing where not all of it was looked at.
    fn through(
        &mut self,
        directory: &Path,
        named: &mut Vec<PathBuf>,
        left: &mut usize,
    ) -> Option<()> {
        let mut waiting = vec![directory.to_owned()];
        while let Some(directory) = waiting.pop() {
            let entries = match directory.read_dir() {
                Ok(entries) => entries,
                Err(error) if is_none(error.kind()) => continue,
                Err(_) => return None,
            };
            for entry in entries {
                let entry = entry.ok()?;
                *left = left.checked_sub(1)?;
                let kind = match entry.file_type() {
                    Ok(kind) => kind,
                    Err(error) if error.kind() == ErrorKind::NotFound => continue,
                    Err(_) => return None,
                };
                let path = entry.path();
                if kind.is_dir() && !is_installed(&path) {
                    waiting.push(path);
                } else if kind.is_file() && (by_name(&path).is_some() || self.is_key(&path))
                    // What it leads to may be in here, by a name that says nothing.
                    || kind.is_symlink() && by_name(&path).is_some() && path.is_file()
                {
                    named.push(path);
                }
            }
        }
        Some(())
    }

    /// The same of what is in a file, of those whose names say nothing.
    fn is_key(&mut self, path: &Path) -> bool {
        const PLAIN: [&str; 9] = ["", "asc", "b64", "bin", "cert", "conf", "crt", "dat", "txt"];
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // Not git's objects, and the like.
        let number = name.len() >= 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        if number || self.files == 0 || !PLAIN.contains(&ending(&name)) {
            return false;
        }
        self.files -= 1;
        by_content(path).is_some()
    }
}

/// A directory that is not there, or closed to the user, has nothing for the program.
fn is_none(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied)
}

#[cfg(test)]
mod tests;
