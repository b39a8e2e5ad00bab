//! Python's packages that distributions install for their programs (`dist-packages`): they are
//! shown as a whole, and what the compiled ones among those that a script imports need of the
//! system is looked for. Read, never imported.

use crate::collect::Collector;
use crate::host::{Entry, Kind};
use crate::started::imports;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The most modules that one script leads to.
const MOST_MODULES: usize = 128;
/// The most files of one package that are read, and the most of each.
const MOST_FILES: usize = 32;
const MOST_TEXT: usize = 256 << 10;
/// The most names of a directory of packages.
const MOST_NAMES: usize = 4096;

impl Collector<'_, '_> {
    /// What the modules need that a script of Python's imports.
    pub(crate) fn imported(&mut self, script: &[u8]) {
        let mut waiting: Vec<Vec<u8>> = imports(script).into_iter().collect();
        if waiting.is_empty() {
            return;
        }
        let places: Vec<(PathBuf, Vec<(OsString, Entry)>)> = self
            .packages()
            .into_iter()
            .map(|place| {
                let entries = self.host().entries(&place, MOST_NAMES);
                (place, entries)
            })
            .collect();
        let mut seen: HashSet<Vec<u8>> = HashSet::new();
        while let Some(name) = waiting.pop() {
            if seen.len() >= MOST_MODULES || !seen.insert(name.clone()) {
                continue;
            }
            for (place, entries) in &places {
                // `name`, `name.py`, `name.cpython-….so`.
                let of_it = entries.iter().filter(|(file, _)| {
                    let rest = file.as_bytes().strip_prefix(name.as_slice());
                    rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'.')
                });
                for (file, kind) in of_it {
                    let path = place.join(file);
                    if *kind == Entry::Directory {
                        self.inside(&path);
                        waiting.extend(self.package(&path));
                    } else if file.as_bytes().ends_with(b".so") {
                        self.close(&path, false);
                    } else if file.as_bytes().ends_with(b".py") {
                        waiting.extend(self.imports_of(&path));
                    }
                }
            }
        }
    }

    /// The directories of packages in the roots.
    fn packages(&self) -> Vec<PathBuf> {
        let roots = self.answer.roots.iter();
        let versions = roots.flat_map(|root| {
            let names = self.host().names(root, MOST_NAMES);
            let python = names.into_iter().filter(|name| name.as_bytes().starts_with(b"python3"));
            python.map(|name| root.join(name)).collect::<Vec<_>>()
        });
        let places = versions.map(|version| version.join("dist-packages"));
        places.filter(|place| self.host().kind(place) == Kind::Directory).collect()
    }

    /// What the files of a package import.
    fn package(&self, directory: &Path) -> Vec<Vec<u8>> {
        let names = self.host().names(directory, MOST_NAMES);
        let python = |name: &&OsString| Path::new(name).extension() == Some(OsStr::new("py"));
        let files = names.iter().filter(python).take(MOST_FILES);
        files.flat_map(|name| self.imports_of(&directory.join(name))).collect()
    }

    fn imports_of(&self, path: &Path) -> Vec<Vec<u8>> {
        let text = self.host().beginning(path, MOST_TEXT).unwrap_or_default();
        imports(&text).into_iter().collect()
    }
}
