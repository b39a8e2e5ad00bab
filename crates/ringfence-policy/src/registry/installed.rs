//! The registries that installed tools use when no settings say otherwise, as the tools' own files
//! on this machine have it. Nothing is run, and what a sandboxed program could have written is not
//! believed.

use super::{Reader, go_settings};
use crate::files::Resolver;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// At most so many names of a directory are looked at.
const MOST_NAMES: usize = 64;

/// The addresses of registries that the installed tool says; nothing for one that keeps its default in its
/// program only (cargo, Maven).
pub(super) fn defaults(tool: &str, reader: &Reader<'_>) -> Option<Vec<String>> {
    match tool {
        "npm" => npm(reader),
        "pip" => pip(reader),
        "go" => go(reader),
        _ => None,
    }
}

/// Where programs of a name really are, in the order of `PATH`.
fn programs(reader: &Reader<'_>, names: &[&str]) -> Vec<PathBuf> {
    let path = (reader.context.env)("PATH").unwrap_or_default();
    let mut found = Vec::new();
    for directory in std::env::split_paths(&path).filter(|directory| directory.is_absolute()) {
        for name in names {
            let real = Resolver::new(reader.context.files).real(&directory.join(name));
            found.extend(real.ok().filter(|real| real.exists).map(|real| real.path));
        }
    }
    found.dedup();
    found
}

/// Where the first program of a name really is.
pub(super) fn program(reader: &Reader<'_>, name: &str) -> Option<PathBuf> {
    let path = (reader.context.env)("PATH").unwrap_or_default();
    std::env::split_paths(&path).filter(|directory| directory.is_absolute()).find_map(|directory| {
        let real = Resolver::new(reader.context.files).real(&directory.join(name)).ok()?;
        real.exists.then_some(real.path)
    })
}

fn said(reader: &Reader<'_>, file: &Path, read: fn(&str) -> Vec<String>) -> Option<Vec<String>> {
    // Without links: only then its place says who can write it.
    let file = Resolver::new(reader.context.files).real(file).ok().filter(|real| real.exists)?;
    let addresses = read(&reader.text(&file.path)?);
    (!addresses.is_empty() && (reader.believed)(&file.path)).then_some(addresses)
}

/// The first file that is believed and says something: behind an environment of a project's is the system's tool.
fn first(
    reader: &Reader<'_>,
    files: impl IntoIterator<Item = PathBuf>,
    read: fn(&str) -> Vec<String>,
) -> Option<Vec<String>> {
    files.into_iter().find_map(|file| said(reader, &file, read))
}

/// npm's definitions of its settings lie beside its program.
fn npm(reader: &Reader<'_>) -> Option<Vec<String>> {
    const PLACES: [&str; 4] = [
        "node_modules/@npmcli/config/lib/definitions/definitions.js",
        "../@npmcli/config/lib/definitions/definitions.js",
        "lib/utils/config/definitions.js",
        "lib/config/defaults.js",
    ];
    let read: fn(&str) -> Vec<String> = |text| {
        let after = text.split_once("'registry', {").map(|(_, rest)| rest);
        let default = after.and_then(|rest| rest.split_once("default:"));
        let default = default.or_else(|| text.split_once("registry: "));
        default.and_then(|(_, rest)| quoted(rest)).into_iter().collect()
    };
    let programs = programs(reader, &["npm"]);
    // …/npm/bin/npm-cli.js
    let roots = programs.iter().filter_map(|program| program.parent()?.parent());
    first(reader, roots.flat_map(|root| PLACES.map(|place| root.join(place))), read)
}

/// pip names its index, and the host of the files, in a module of its own.
fn pip(reader: &Reader<'_>) -> Option<Vec<String>> {
    const MODULE: &str = "pip/_internal/models/index.py";
    let names =
        |directory: &Path| reader.context.files.names(directory, MOST_NAMES).unwrap_or_default();
    let mut libraries = Vec::new();
    for program in programs(reader, &["pip3", "pip", "python3"]) {
        let Some(prefix) = program.parent().and_then(Path::parent) else { continue };
        libraries.push(prefix.join("lib"));
        // A manager of versions: its shims lie beside them.
        let versions = prefix.join("versions");
        libraries.extend(names(&versions).iter().map(|name| versions.join(name).join("lib")));
    }
    let read: fn(&str) -> Vec<String> = |text| {
        let Some((_, rest)) = text.split_once("PyPI = PackageIndex(") else { return Vec::new() };
        let arguments = rest.split_once(')').map_or(rest, |(arguments, _)| arguments);
        let index = quoted(arguments);
        let files = arguments.split_once("file_storage_domain").and_then(|(_, rest)| quoted(rest));
        index.into_iter().chain(files.map(|host| format!("https://{host}/"))).collect()
    };
    let pythons = |library: &PathBuf| {
        let own = names(library).into_iter().filter(is_python).map(|name| library.join(name));
        own.flat_map(|python| ["site-packages", "dist-packages"].map(|part| python.join(part)))
            .map(|packages| packages.join(MODULE))
            .collect::<Vec<_>>()
    };
    first(reader, libraries.iter().flat_map(pythons), read)
}

fn is_python(name: &std::ffi::OsString) -> bool {
    AsRef::<OsStr>::as_ref(name).to_str().is_some_and(|name| name.starts_with("python3"))
}

/// Go's defaults lie beside its program (Go 1.21).
fn go(reader: &Reader<'_>) -> Option<Vec<String>> {
    let programs = programs(reader, &["go"]);
    let roots = programs.iter().filter_map(|program| program.parent()?.parent());
    first(reader, roots.map(|root| root.join("go.env")), go_settings)
}

/// The first quoted text.
fn quoted(text: &str) -> Option<String> {
    let start = text.find(['"', '\''])?;
    let mark = text[start..].chars().next()?;
    let rest = &text[start + 1..];
    Some(rest[..rest.find(mark)?].to_owned())
}
