//! The one parser for paths in rules: from the text of a rule to an anchor and a pattern.
//!
//! `~`, `~/x`, `$VAR`, `${VAR}` and `${VAR:-text}` are expanded; `.` and other relative paths
//! stand on the directory of the run; `..` is taken out lexically. `?PATH` and `PATH?` may be
//! missing. `PATH/**` is the tree, as PATH alone is. `*` and `?` match within one component.
//! A backslash takes the special meaning from the next character. Bytes that are not UTF-8 are
//! kept; only NUL is refused, which no path can hold.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

/// What relative paths and variables in a rule stand on.
pub struct Bases<'a> {
    /// The home directory.
    pub home: &'a Path,
    /// The directory of the run.
    pub workdir: &'a Path,
    /// The caller's environment.
    pub env: &'a dyn Fn(&str) -> Option<OsString>,
}

/// A rule's path: where it is anchored, and what it names there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchored {
    /// Absolute and lexically normal.
    pub path: PathBuf,
    /// The part from the first wildcard on, where there is one.
    pub pattern: Option<String>,
    /// A missing path is no error.
    pub optional: bool,
}

/// Why a text gives no path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathError {
    /// It is not a path rule; the text says why, and what would be.
    Wrong(String),
    /// An optional rule names a variable that is not set: the rule falls away.
    Unset(String),
}

/// One byte of a rule after expansion: whether it may be a wildcard or a separator.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Byte {
    value: u8,
    literal: bool,
}

/// Reads the text of a path rule.
///
/// # Errors
/// [`PathError::Wrong`] for a text that is no path; [`PathError::Unset`] for an optional one
/// whose variable is not set.
pub fn anchor(text: &OsStr, bases: &Bases<'_>) -> Result<Anchored, PathError> {
    let (text, optional) = strip_optional(text.as_bytes());
    if text.is_empty() {
        return Err(PathError::Wrong("it is empty; write `.` for the directory of the run".into()));
    }
    if text.contains(&0) {
        return Err(PathError::Wrong("it holds a NUL, which no path can".into()));
    }
    // The common cases need no expansion.
    if !text.iter().any(|byte| matches!(byte, b'$' | b'\\' | b'*' | b'?')) {
        let (base, rest) = match text.strip_prefix(b"~/") {
            Some(rest) => (bases.home, relative(rest)),
            None => (bases.workdir, text),
        };
        if !text.starts_with(b"~") || text.starts_with(b"~/") {
            let path = normal(&base.join(OsStr::from_bytes(rest)));
            return Ok(Anchored { path, pattern: None, optional });
        }
    }
    let expanded = expand(text, bases).map_err(|error| match error {
        PathError::Unset(name) if !optional => PathError::Wrong(format!(
            "the variable {name} is not set; write `?{}` if it may be",
            String::from_utf8_lossy(text)
        )),
        error => error,
    })?;
    split(&expanded, bases.workdir, optional)
}

/// Escapes a path so that [`anchor`] reads back exactly it.
pub fn quote(path: &Path) -> OsString {
    let bytes = path.as_os_str().as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    for (index, &byte) in bytes.iter().enumerate() {
        if matches!(byte, b'*' | b'?' | b'$' | b'\\') || (byte == b'~' && index == 0) {
            out.push(b'\\');
        }
        out.push(byte);
    }
    OsString::from_vec(out)
}

/// A path without `.`, `..`, doubled and trailing slashes, no link followed; `..` at the root
/// stays there.
pub fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::with_capacity(path.as_os_str().len());
    for component in path.components() {
        match component {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            component => out.push(component),
        }
    }
    out
}

/// Whether a path is in a tree, or is it; both without `.`, doubled slashes and one at the end, as paths of policies are.
/// By their bytes: a start asks thousands of times, and to take both apart each time takes ten times as long.
pub fn within(path: &Path, tree: &Path) -> bool {
    let tree = tree.as_os_str().as_bytes();
    let rest = path.as_os_str().as_bytes().strip_prefix(tree);
    rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/' || tree.ends_with(b"/"))
}

/// Whether a rule stands on the directory of the run.
pub(crate) fn is_relative(text: &OsStr) -> bool {
    let text = text.as_bytes();
    let text = text.strip_prefix(b"?").unwrap_or(text);
    !text.starts_with(b"/") && !text.starts_with(b"~") && !text.starts_with(b"$")
}

/// What is left of `~//x` after the home must not count as absolute.
fn relative(mut rest: &[u8]) -> &[u8] {
    while let Some(after) = rest.strip_prefix(b"/") {
        rest = after;
    }
    rest
}

fn strip_optional(text: &[u8]) -> (&[u8], bool) {
    if let Some(rest) = text.strip_prefix(b"?") {
        return (rest, true);
    }
    match text.strip_suffix(b"?") {
        // An escaped one is part of the name.
        Some(rest) if rest.iter().rev().take_while(|&&byte| byte == b'\\').count() % 2 == 0 => {
            (rest, true)
        }
        _ => (text, false),
    }
}

/// Expands `~`, variables and escapes.
fn expand(text: &[u8], bases: &Bases<'_>) -> Result<Vec<Byte>, PathError> {
    let mut out = Vec::with_capacity(text.len() + 32);
    let mut at = tilde(text, bases, &mut out)?;
    while at < text.len() {
        match text[at] {
            b'\\' => {
                let value = *text.get(at + 1).ok_or_else(|| {
                    PathError::Wrong("a `\\` at the end takes the meaning from nothing".into())
                })?;
                out.push(Byte { value, literal: true });
                at += 2;
            }
            b'$' => at = variable(text, at, bases, &mut out)?,
            value => {
                out.push(Byte { value, literal: false });
                at += 1;
            }
        }
    }
    Ok(out)
}

/// Expands a `~` at the start; returns how much of the text it took.
fn tilde(text: &[u8], bases: &Bases<'_>, out: &mut Vec<Byte>) -> Result<usize, PathError> {
    match text {
        [b'~'] | [b'~', b'/', ..] => {
            push_literal(bases.home.as_os_str(), out);
            Ok(1)
        }
        [b'~', ..] => {
            let what = "only one's own home has a short form, `~/…`; write another's in full";
            Err(PathError::Wrong(what.into()))
        }
        _ => Ok(0),
    }
}

/// Expands the variable at `at`; returns where the text goes on.
fn variable(
    text: &[u8],
    at: usize,
    bases: &Bases<'_>,
    out: &mut Vec<Byte>,
) -> Result<usize, PathError> {
    let rest = &text[at + 1..];
    let braced = rest.first() == Some(&b'{');
    let (inside, next) = if braced {
        let end = rest.iter().position(|&byte| byte == b'}');
        let end = end.ok_or_else(|| PathError::Wrong("a `${` needs its `}`".into()))?;
        (&rest[1..end], at + end + 2)
    } else {
        let name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let end = rest.iter().position(|byte| !name(byte)).unwrap_or(rest.len());
        (&rest[..end], at + 1 + end)
    };
    let inside = String::from_utf8_lossy(inside);
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (&*inside, None),
    };
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !starts || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        let message = format!("`${name}` names no variable; write `\\$` for a dollar sign");
        return Err(PathError::Wrong(message));
    }
    // As in shells with `:-`, an empty value counts as none: it would make `$X/y` mean `/y`.
    let value = (bases.env)(name).filter(|value| !value.is_empty());
    match (value, default) {
        (Some(value), _) if out.is_empty() && !Path::new(&value).is_absolute() => {
            let value = value.to_string_lossy();
            let message = format!("the variable {name} holds `{value}`, which is not absolute");
            return Err(PathError::Wrong(message));
        }
        (Some(value), _) => push_literal(&value, out),
        (None, Some(default)) => {
            let default = default.as_bytes();
            let taken = if out.is_empty() { tilde(default, bases, out)? } else { 0 };
            push_literal(OsStr::from_bytes(&default[taken..]), out);
        }
        (None, None) => return Err(PathError::Unset(name.to_owned())),
    }
    Ok(next)
}

/// What came from a variable holds no wildcards, but its slashes separate.
fn push_literal(text: &OsStr, out: &mut Vec<Byte>) {
    out.extend(text.as_bytes().iter().map(|&value| Byte { value, literal: value != b'/' }));
}

/// Splits expanded bytes into the anchor and the pattern.
fn split(bytes: &[Byte], workdir: &Path, optional: bool) -> Result<Anchored, PathError> {
    let absolute = bytes.first().is_some_and(|byte| byte.value == b'/');
    let mut parts: Vec<(Vec<u8>, bool)> = Vec::new();
    if !absolute {
        let workdir = normal(workdir);
        let names = workdir.components().filter_map(|component| match component {
            Component::Normal(name) => Some((name.as_bytes().to_vec(), false)),
            _ => None,
        });
        parts.extend(names);
    }
    for part in bytes.split(|byte| byte.value == b'/' && !byte.literal) {
        let name: Vec<u8> = part.iter().map(|byte| byte.value).collect();
        if name.contains(&b'/') {
            return Err(PathError::Wrong("no name holds a slash".into()));
        }
        match name.as_slice() {
            b"" | b"." => {}
            b".." => {
                parts.pop();
            }
            _ => {
                let wild = |byte: &Byte| !byte.literal && matches!(byte.value, b'*' | b'?');
                parts.push((name, part.iter().any(wild)));
            }
        }
    }
    if parts.last().is_some_and(|(name, wild)| *wild && name == b"**") {
        parts.pop();
    }
    let first = parts.iter().position(|(_, wild)| *wild).unwrap_or(parts.len());
    let mut path = PathBuf::from("/");
    path.extend(parts[..first].iter().map(|(name, _)| OsStr::from_bytes(name)));
    let pattern = pattern(&parts[first..])?;
    Ok(Anchored { path, pattern, optional })
}

fn pattern(parts: &[(Vec<u8>, bool)]) -> Result<Option<String>, PathError> {
    let mut names = Vec::with_capacity(parts.len());
    for (name, wild) in parts {
        let name = std::str::from_utf8(name).map_err(|_| {
            PathError::Wrong("a pattern is UTF-8 from its first wildcard on".into())
        })?;
        if *wild && name.contains("**") && name != "**" {
            return Err(PathError::Wrong("`**` stands alone between slashes".into()));
        }
        if !wild && name.contains(['*', '?']) {
            return Err(PathError::Wrong(
                "after a wildcard, a `*` or `?` cannot be part of a name".into(),
            ));
        }
        names.push(name);
    }
    Ok((!names.is_empty()).then(|| names.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_within_a_tree_is_what_the_components_say() {
        let paths = ["/", "/a", "/a/b", "/a/b/c", "/a/bc", "/ab", "a", "a/b", "ab", ""];
        for path in paths.map(Path::new) {
            for tree in paths.map(Path::new).iter().filter(|tree| !tree.as_os_str().is_empty()) {
                assert_eq!(within(path, tree), path.starts_with(tree), "{path:?} {tree:?}");
            }
        }
    }
}
