//! Where a loader looks for a name: `$ORIGIN` and its like, directories of the system.

use crate::elf::Machine;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Which loader an object asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loader {
    /// glibc's `ld-linux`.
    Glibc,
    /// musl's `ld-musl`.
    Musl,
}

impl Loader {
    /// By the interpreter's name.
    pub fn of(interpreter: &Path) -> Loader {
        let name = interpreter.file_name().unwrap_or_default().as_bytes();
        if name.starts_with(b"ld-musl-") { Loader::Musl } else { Loader::Glibc }
    }
}

/// The name of a machine in paths of multiarch systems, and to `$PLATFORM`.
fn names(machine: Machine) -> (&'static str, &'static [&'static str]) {
    match (machine.number, machine.wide, machine.big) {
        (62, true, _) => ("x86_64-linux-gnu", &["x86_64", "haswell", "xeon_phi"]),
        (62, false, _) => ("x86_64-linux-gnux32", &["x86_64"]),
        (3, ..) => ("i386-linux-gnu", &["i686", "i586", "i386"]),
        (183, _, false) => ("aarch64-linux-gnu", &["aarch64"]),
        (40, ..) => ("arm-linux-gnueabihf", &["v7l", "v6l"]),
        (243, true, _) => ("riscv64-linux-gnu", &[""]),
        (21, _, false) => ("powerpc64le-linux-gnu", &["power9", "power8"]),
        (22, true, _) => ("s390x-linux-gnu", &["z14", "z13"]),
        (258, true, _) => ("loongarch64-linux-gnu", &[""]),
        _ => ("unknown-linux-gnu", &[""]),
    }
}

/// The directories of the system, as they are compiled into loaders: Debian's and others'.
pub fn system_directories(machine: Machine, loader: Loader) -> Vec<PathBuf> {
    if loader == Loader::Musl {
        return ["/lib", "/usr/local/lib", "/usr/lib"].map(PathBuf::from).to_vec();
    }
    let (triple, _) = names(machine);
    let mut found = vec![Path::new("/lib").join(triple), Path::new("/usr/lib").join(triple)];
    let wide: &[&str] = if machine.wide { &["/lib64", "/usr/lib64"] } else { &["/lib32"] };
    found.extend(wide.iter().chain(&["/lib", "/usr/lib"]).map(PathBuf::from));
    found
}

/// Musl's name of a machine, in the name of its list of directories.
pub fn musl_list(interpreter: &Path) -> Option<PathBuf> {
    let name = interpreter.file_name()?.to_str()?;
    let machine = name.strip_prefix("ld-musl-")?.strip_suffix(".so.1")?;
    Some(PathBuf::from(format!("/etc/ld-musl-{machine}.path")))
}

/// Expands `$ORIGIN`, `$LIB` and `$PLATFORM` (also in braces). What a name stands for can
/// differ between loaders and processors: then there are several.
pub fn expand(text: &[u8], origin: &Path, machine: Machine) -> Vec<Vec<u8>> {
    // Most have none of them.
    if !text.contains(&b'$') {
        return vec![text.to_vec()];
    }
    let (triple, platforms) = names(machine);
    let own = format!("lib/{triple}");
    let plain: &str = if machine.wide { "lib64" } else { "lib" };
    let mut found = vec![Vec::new()];
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        let token = (byte == b'$').then(|| token(after)).flatten();
        let values: Vec<&[u8]> = match token {
            Some(("ORIGIN", _)) => vec![origin.as_os_str().as_bytes()],
            Some(("LIB", _)) => vec![own.as_bytes(), plain.as_bytes()],
            Some(("PLATFORM", _)) => platforms.iter().map(|name| name.as_bytes()).collect(),
            _ => vec![std::slice::from_ref(&byte)],
        };
        let longer = |start: &Vec<u8>| {
            let start = start.clone();
            values.iter().map(move |value| [start.as_slice(), value].concat()).collect::<Vec<_>>()
        };
        found = found.iter().flat_map(longer).take(16).collect();
        rest = &after[token.map_or(0, |(_, length)| length)..];
    }
    found
}

/// A token behind `$`, and its length.
fn token(text: &[u8]) -> Option<(&'static str, usize)> {
    ["ORIGIN", "LIB", "PLATFORM"].into_iter().find_map(|name| {
        let braced = format!("{{{name}}}");
        if text.starts_with(braced.as_bytes()) {
            return Some((name, braced.len()));
        }
        let word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let ends = !text.get(name.len()).is_some_and(word);
        (text.starts_with(name.as_bytes()) && ends).then_some((name, name.len()))
    })
}

/// The directories of a search path, in its order (an empty one is the current directory, which is
/// the sandbox's and not known here); where a token stands for several, all of them
/// together: which one this processor has is decided when the program starts.
pub fn directories(text: &[u8], origin: &Path, machine: Machine) -> Vec<Vec<PathBuf>> {
    let parts = text.split(|byte| *byte == b':');
    let absolute = |part: &[u8]| {
        let paths = expand(part, origin, machine);
        let paths = paths.iter().map(|part| PathBuf::from(OsStr::from_bytes(part)));
        paths.filter(|path| path.is_absolute()).collect::<Vec<_>>()
    };
    parts.map(absolute).filter(|paths| !paths.is_empty()).take(256).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: Machine = Machine { wide: true, big: false, number: 62 };

    #[test]
    fn tokens_are_expanded_and_nothing_else_is() {
        let paths =
            |text: &str| directories(text.as_bytes(), Path::new("/opt/x/bin"), MACHINE).concat();
        assert_eq!(paths("$ORIGIN/../lib"), [Path::new("/opt/x/bin/../lib")]);
        assert_eq!(paths("${ORIGIN}:/b"), [Path::new("/opt/x/bin"), Path::new("/b")]);
        assert_eq!(paths("/a$ORIGINAL"), [Path::new("/a$ORIGINAL")]);
        assert_eq!(paths("/$LIB"), [Path::new("/lib/x86_64-linux-gnu"), Path::new("/lib64")]);
        assert_eq!(paths("/p/$PLATFORM")[0], Path::new("/p/x86_64"));
        assert!(paths("::relative").is_empty());
    }

    #[test]
    fn tokens_do_not_multiply_without_end() {
        let many = "$PLATFORM$PLATFORM$PLATFORM$PLATFORM$PLATFORM$PLATFORM$PLATFORM$PLATFORM";
        assert!(expand(many.as_bytes(), Path::new("/"), MACHINE).len() <= 16);
    }
}
