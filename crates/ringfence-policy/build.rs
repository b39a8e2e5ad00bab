//! Reads the shipped profiles and features at build time, so that a wrong one does not build
//! and a run with them parses no TOML.

#![allow(dead_code, unused_imports, missing_docs)]

#[path = "src/compiled.rs"]
mod compiled;
#[path = "src/key.rs"]
mod key;
#[path = "src/profile.rs"]
mod profile;
#[path = "src/suggest.rs"]
mod suggest;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let root =
        PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../..");
    let mut out = String::new();
    for (folder, list) in [("profiles", "PROFILES"), ("features", "FEATURES")] {
        let directory = root.join(folder);
        println!("cargo::rerun-if-changed={}", directory.display());
        let _ = writeln!(out, "static {list}: &[Builtin] = &[");
        for file in files(&directory) {
            println!("cargo::rerun-if-changed={}", file.display());
            out.push_str(&one(&file));
        }
        out.push_str("];\n");
    }
    for file in ["compiled", "key", "profile", "suggest"] {
        println!("cargo::rerun-if-changed=src/{file}.rs");
    }
    println!("cargo::rerun-if-changed=build.rs");
    let target = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    fs::write(target.join("builtin_data.rs"), out).expect("the build directory takes a file");
}

/// The entry of one file in the generated list.
fn one(file: &Path) -> String {
    let text =
        fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let profile = profile::Profile::from_toml(&text, &file.display().to_string())
        .unwrap_or_else(|error| panic!("{error}"));
    let name = file.file_stem().and_then(|name| name.to_str()).expect("a name in UTF-8");
    let programs = profile.list(key::Key::Programs).unwrap_or_default().join("\n");
    let compiled = compiled::encode(&profile);
    format!(
        "Builtin {{ name: {name:?}, toml: {text:?}, programs: {programs:?}, compiled: {compiled:?} }},\n"
    )
}

/// The TOML files of a directory, by name, so that builds are reproducible.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let paths = entries.flatten().map(|entry| entry.path());
    let mut files: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|e| e == "toml")).collect();
    files.sort();
    files
}
