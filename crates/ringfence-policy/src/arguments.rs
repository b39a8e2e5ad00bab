//! What a command's arguments name, granted where the profile says so (`arguments`).

use crate::files::Resolver;
use crate::path::{normal, quote};
use crate::policy::{Arguments, Policy};
use crate::workspace::{no_argument, no_argument_above, no_workspace};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The files and directories that arguments name, as rules; the home and what many programs share
/// are not granted for being named.
pub(crate) fn named(
    arguments: &[OsString],
    granted: Arguments,
    resolver: &mut Resolver<'_>,
    policy: &mut Policy,
) -> Vec<OsString> {
    let mut rules = Vec::new();
    for argument in arguments {
        let bytes = argument.as_bytes();
        let url = bytes.strip_prefix(b"file://").map(decoded);
        if url.is_none() && (bytes.is_empty() || bytes.starts_with(b"-")) {
            continue;
        }
        let path = match &url {
            Some(path) => Path::new(path),
            None => Path::new(argument),
        };
        let path = normal(&policy.workdir.join(path));
        if granted == Arguments::Beside {
            rules.extend(beside(&path, bytes.contains(&b'/'), resolver, policy));
            continue;
        }
        match resolver.real(&path) {
            Ok(real) if real.exists => {
                let reason = no_argument(&real.path, policy)
                    .or_else(|| no_argument_above(&real.path, policy));
                if let Some(reason) = reason {
                    if !covered_anyhow(&real.path) {
                        let path = path.display();
                        policy.warnings.push(format!(
                            "{path} is not granted for being an argument, because {reason}; say -r {path} to grant it"
                        ));
                    }
                    continue;
                }
                rules.push(quote(&path));
            }
            _ => {}
        }
    }
    rules
}

/// The directory of a file that an argument names, as a rule: programs make and remove files beside it. A file that is not
/// there yet will be, where the argument says in which directory; without that it is a word of another kind.
fn beside(
    path: &Path,
    in_directory: bool,
    resolver: &mut Resolver<'_>,
    policy: &mut Policy,
) -> Option<OsString> {
    let real = resolver.real(path).ok().filter(|real| real.exists || in_directory)?;
    let files = resolver.files();
    // A directory has itself in it.
    let is_directory = |path: &Path| files.link(&path.join(".")).is_ok();
    let directory = match is_directory(&real.path) {
        true => real.path,
        false => real.path.parent().map(PathBuf::from)?,
    };
    if !is_directory(&directory) || directory == policy.workdir {
        return None;
    }
    let reason = no_workspace(&directory, policy).or_else(|| no_argument_above(&directory, policy));
    let Some(reason) = reason else { return Some(quote(&directory)) };
    if !covered_anyhow(&directory) {
        policy.warnings.push(format!(
            "{} is not granted for being an argument: what is kept beside it takes all of {}, and {reason}; move it to a \
             directory of its own, or say -w {} to grant that",
            path.display(),
            directory.display(),
            directory.display()
        ));
    }
    None
}

/// Whether every profile shows it: then there is nothing to say.
fn covered_anyhow(path: &Path) -> bool {
    ["/usr", "/etc", "/bin", "/lib", "/opt", "/dev", "/proc"]
        .iter()
        .any(|tree| path.starts_with(tree))
}

/// The path of a `file:` address, its percent signs decoded.
fn decoded(text: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let digits = text.get(at + 1..at + 3).and_then(|two| std::str::from_utf8(two).ok());
        match digits.filter(|_| text[at] == b'%').and_then(|two| u8::from_str_radix(two, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(text[at]);
                at += 1;
            }
        }
    }
    OsString::from_vec(out)
}
