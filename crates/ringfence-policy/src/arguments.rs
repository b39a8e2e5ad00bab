//! What a command's arguments name, granted where the profile says so (`arguments`).

use crate::error::{Planted, PolicyError};
use crate::files::{Real, Resolver, planted};
use crate::path::{normal, quote};
use crate::policy::{Access, Arguments, Policy, Source};
use crate::workspace::{no_argument, no_argument_above, no_workspace};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// What arguments grant.
#[derive(Debug, Default)]
pub(crate) struct Named {
    /// As rules.
    pub rules: Vec<OsString>,
    /// Links that led to directories of these rules, by the names that were given.
    led: Vec<(PathBuf, Real)>,
}

/// The files and directories that arguments name, as rules; the home and what many programs share
/// are not granted for being named.
pub(crate) fn named(
    arguments: &[OsString],
    granted: Arguments,
    resolver: &mut Resolver<'_>,
    policy: &mut Policy,
) -> Named {
    let mut named = Named::default();
    let mut operands = false;
    for argument in arguments {
        let bytes = argument.as_bytes();
        let url = bytes.strip_prefix(b"file://").map(decoded);
        if bytes == b"--" && !operands {
            operands = true;
            continue;
        }
        if url.is_none() && (bytes.is_empty() || bytes.starts_with(b"-") && !operands) {
            continue;
        }
        let path = match &url {
            Some(path) => Path::new(path),
            None => Path::new(argument),
        };
        let path = normal(&policy.workdir.join(path));
        if granted == Arguments::Beside {
            named.beside(&path, bytes.contains(&b'/'), resolver, policy);
            continue;
        }
        match resolver.real(&path) {
            Ok(real) if granted == Arguments::Files && is_directory(resolver, &real.path) => {}
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
                named.rules.push(quote(&path));
            }
            _ => {}
        }
    }
    named
}

impl Named {
    /// The directory of a file that an argument names, as a rule: programs make and remove files beside it. A file that is not
    /// there yet will be, where the argument says in which directory; without that it is a word of another kind.
    fn beside(
        &mut self,
        path: &Path,
        in_directory: bool,
        resolver: &mut Resolver<'_>,
        policy: &mut Policy,
    ) {
        let real = resolver.real(path).ok().filter(|real| real.exists || in_directory);
        let Some(real) = real else { return };
        let is_directory = |path: &Path| is_directory(resolver, path);
        let above = match is_directory(&real.path) {
            true => Some(real.path.clone()),
            false => real.path.parent().map(PathBuf::from),
        };
        let above = above.filter(|above| is_directory(above) && *above != policy.workdir);
        let Some(directory) = above else { return };
        let reason =
            no_workspace(&directory, policy).or_else(|| no_argument_above(&directory, policy));
        let Some(reason) = reason else {
            self.rules.push(quote(&directory));
            self.led.push((path.to_owned(), Real { path: directory, ..real }));
            return;
        };
        if !covered_anyhow(&directory) {
            policy.warnings.push(format!(
                "{} is not granted for being an argument: what is kept beside it takes all of {}, and {reason}; move it to a \
                 directory of its own, or say -w {} to grant that",
                path.display(),
                directory.display(),
                directory.display()
            ));
        }
    }

    /// Refuses a directory that a link led to out of a writable tree: an earlier run could have made the link.
    ///
    /// # Errors
    /// The first of them.
    pub fn not_planted(&self, policy: &Policy) -> Result<(), PolicyError> {
        let written = policy.paths.iter().filter(|rule| rule.access == Access::Write);
        let trees: Vec<PathBuf> = written.map(|rule| rule.path.clone()).collect();
        for (named, real) in &self.led {
            if let Some((link, tree)) = planted(&real.links, &real.path, &trees) {
                let text = named.display().to_string();
                let origin = "the argument".to_owned();
                return Err(PolicyError::Planted(Box::new(Planted {
                    rule: Source { origin, key: String::new(), text },
                    link: link.to_owned(),
                    tree: tree.to_owned(),
                    target: real.path.clone(),
                })));
            }
        }
        Ok(())
    }
}

/// A directory has itself in it.
fn is_directory(resolver: &Resolver<'_>, path: &Path) -> bool {
    resolver.files().link(&path.join(".")).is_ok()
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
