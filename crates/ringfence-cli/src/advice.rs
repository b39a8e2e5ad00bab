//! What to type where a program, or what it is run by, is on the host and not in the sandbox.

use crate::options::Parsed;
use crate::request;
use ringfence_policy::decide::Request;
use ringfence_policy::{FileView, HostFiles, Policy, Subject, decide, shown};
use ringfence_sandbox::LaunchError;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// No kernel reads more of a script's first line (`BINPRM_BUF_SIZE`).
const MOST: u64 = 256;

/// What is said beside the failure of a launch: nothing, or a clause that begins with `; `.
pub fn beside(error: &LaunchError, name: &OsStr, parsed: &Parsed) -> String {
    let clause = match error {
        LaunchError::NotFound(_) => hidden(name).or_else(|| line(name)),
        LaunchError::CannotExecute(_) => refused(name, parsed),
        _ => None,
    };
    clause.unwrap_or_default()
}

/// The virtual environment that a path is in: its programs need their interpreter, modules and settings beside. Never a
/// home, or what one is in.
pub fn virtual_environment(path: &Path) -> Option<PathBuf> {
    let homes = homes();
    let own = |above: &&Path| !homes.iter().any(|home| home.starts_with(above));
    let mut above = path.ancestors().skip(1).take_while(own);
    above.find(|above| above.join("pyvenv.cfg").is_file()).map(Path::to_path_buf)
}

fn homes() -> Vec<PathBuf> {
    let home = ringfence_sys::identity::home().unwrap_or_default();
    ringfence_policy::homes(ringfence_sys::identity::user(), &home)
}

/// Where the host has a command, by `PATH` where its name has no slash.
fn on_host(name: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return std::path::absolute(name).ok().filter(|path| path.is_file());
    }
    let search = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&search).map(|path| path.join(name)).find(|path| path.is_file())
}

/// Where a command that the sandbox cannot see is on the host, and what would grant it.
fn hidden(name: &OsStr) -> Option<String> {
    let path = on_host(name)?;
    Some(format!("; on the host it is {}", granting(&path)))
}

/// What to type where a whole line was given as one word, as `sh -c` takes it.
fn line(name: &OsStr) -> Option<String> {
    let text = name.to_str()?;
    let first = text.split_ascii_whitespace().next()?;
    let several = first.len() < text.len() && on_host(OsStr::new(first)).is_some();
    several.then(|| format!("; a line for a shell is given to one: sh -c {}", shown::word(text)))
}

/// Why a command that was found was not executed: it, or its interpreter, is not granted.
fn refused(name: &OsStr, parsed: &Parsed) -> Option<String> {
    let path = on_host(name)?;
    let policy = request::policy(&request::request(parsed, Some(name))).ok()?;
    if !executable(&policy, &path) {
        return Some(format!("; on the host it is {}", granting(&path)));
    }
    let interpreter = interpreter(&path)?;
    if !interpreter.is_file() {
        return Some(format!("; it is {}, which the host has not", shown::path(&interpreter)));
    }
    let hidden = !executable(&policy, &interpreter);
    hidden.then(|| format!("; it is {}", granting(&interpreter)))
}

/// The program, or what is to interpret it, that no rule of a profile grants, and the directory or file that would have to be.
pub fn ungranted(profile: &str, program: &Path) -> Option<(PathBuf, PathBuf)> {
    let options = vec![("profile", profile.into())];
    let parsed = Parsed { options, ..Parsed::default() };
    let policy = request::policy(&request::request(&parsed, Some(program.as_os_str()))).ok()?;
    let both = [Some(program.to_path_buf()), interpreter(program).filter(|path| path.is_file())];
    let hidden = both.into_iter().flatten().find(|path| !executable(&policy, path))?;
    let tree = around(&hidden);
    Some((hidden, tree))
}

/// Whether a rule grants it. What one refuses is for `why` to explain.
fn executable(policy: &Policy, path: &Path) -> bool {
    let decision = decide(policy, &Request::Exec(Subject::on_host(path, &HostFiles)));
    decision.allowed || decision.rule.is_some()
}

/// What a script names in its first line.
fn interpreter(path: &Path) -> Option<PathBuf> {
    let bytes = HostFiles.beginning(path, MOST).ok()?;
    let line = bytes.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?.trim_ascii();
    let word = line.split(|byte| matches!(byte, b' ' | b'\t')).next()?;
    let path = Path::new(OsStr::from_bytes(word));
    path.is_absolute().then(|| path.to_path_buf())
}

/// A path that no rule grants, and what would.
fn granting(path: &Path) -> String {
    format!("{}, which no rule grants: -r {}", shown::path(path), shown::path(&around(path)))
}

/// What is to be granted for a program: where it was installed, if that is a directory of its own
/// (`~/.npm-global/bin`) or a virtual environment, else the file.
fn around(path: &Path) -> PathBuf {
    let tree = path.parent().filter(|above| above.ends_with("bin")).and_then(Path::parent);
    // Nothing that others keep their things in, the home least of all.
    let homes = homes();
    let shared = |tree: &Path| {
        let name = tree.file_name().unwrap_or_default().as_encoded_bytes();
        let of_many = !name.starts_with(b".")
            || [".local", ".config", ".cache"].map(str::as_bytes).contains(&name);
        homes.iter().any(|home| home.starts_with(tree) || tree.parent() == Some(home) && of_many)
    };
    let own = |tree: &&Path| tree.components().count() > 2 && !shared(tree);
    let environment = virtual_environment(path);
    environment.as_deref().or_else(|| tree.filter(own)).unwrap_or(path).to_path_buf()
}
