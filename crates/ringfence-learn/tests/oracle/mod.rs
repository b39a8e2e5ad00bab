//! The dynamic loader of this machine, asked for what it would load; and what we find.

use ringfence_learn::closure::{Cause, Finder, Surroundings};
use ringfence_learn::host::Host;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The loader of this machine.
pub fn loader() -> PathBuf {
    let mut looked = |_: &Path, _| {};
    let host = Host::new(&mut looked);
    let mut finder = Finder::new(&host, Surroundings::default());
    let closure = finder.closure(Path::new("/bin/sh")).expect("a shell");
    let found = closure.objects.iter().find(|object| object.cause == Cause::Interpreter);
    found.expect("an interpreter").path.clone()
}

/// What the loader says, with variables of its environment: paths and names that it does not find; unset when it refuses.
pub fn told(
    loader: &Path,
    program: &Path,
    env: &[(&str, &Path)],
) -> Option<(BTreeSet<PathBuf>, BTreeSet<String>)> {
    // As ldd(1) does it: told so, the loader runs nothing, and names what is missing too.
    let mut command = Command::new(loader);
    command.arg(program).env_clear().env("LD_TRACE_LOADED_OBJECTS", "1");
    let output = command.envs(env.iter().copied()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let (mut found, mut missing) = (BTreeSet::new(), BTreeSet::new());
    for line in text.lines().map(str::trim) {
        match line.split_once(" => ") {
            Some((name, "not found")) => {
                missing.insert(name.to_owned());
            }
            Some((_, path)) => {
                found.insert(PathBuf::from(path.rsplit_once(" (").map_or(path, |(path, _)| path)));
            }
            None => {
                let path = line.rsplit_once(" (").map_or(line, |(path, _)| path);
                if path.starts_with('/') {
                    found.insert(PathBuf::from(path));
                }
            }
        }
    }
    let of_loader = |path: &PathBuf| path.file_name() == loader.file_name();
    found.retain(|path| !of_loader(path));
    output.status.success().then_some((found, missing))
}

/// What we find.
pub fn ours(finder: &mut Finder<'_, '_>, loader: &Path, program: &Path) -> Option<Found> {
    let closure = finder.closure(program)?;
    let object = &closure.objects[0].object;
    if !object.dynamic || object.is_static() {
        return None;
    }
    let mut found = Found::default();
    for object in closure.objects.iter().skip(1) {
        let path = &object.path;
        match object.cause {
            _ if path.file_name() == loader.file_name() => {}
            Cause::Variant => _ = found.variants.insert(path.clone()),
            _ => _ = found.paths.insert(path.clone()),
        }
    }
    let names = closure.missing.iter().map(|(name, _)| String::from_utf8_lossy(name).into_owned());
    found.missing = names.collect();
    Some(found)
}

/// What was found.
#[derive(Debug, Default)]
pub struct Found {
    pub paths: BTreeSet<PathBuf>,
    pub variants: BTreeSet<PathBuf>,
    pub missing: BTreeSet<String>,
}
