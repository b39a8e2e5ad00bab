//! The protected names of a tree.

use ringfence_policy::gitstate::STATE;
use ringfence_policy::guard::{Standing, standing};
use ringfence_policy::protect::NAMES;
use ringfence_policy::{Guarded, glob};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    /// As the list has it.
    pub name: String,
    /// How what is there is judged.
    pub guarded: Guarded,
    /// It counts in any directory, not at the top alone.
    nested: bool,
}

fn named(nested: bool) -> impl Fn((String, Guarded)) -> Name {
    move |(name, guarded)| Name { name, guarded, nested }
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    all: Vec<Name>,
    /// Those that begin so, by their first component.
    by_first: HashMap<OsString, Vec<usize>>,
    /// Those that begin with a wildcard, with their first component.
    wild: Vec<(OsString, usize)>,
    /// What is protected in a repository, by what git's own directory is called.
    pub git: Vec<(String, Guarded)>,
}

impl Names {
    /// Those at the top of a tree, and those in any directory.
    pub fn new(
        top: impl Iterator<Item = (String, Guarded)>,
        nested: impl Iterator<Item = (String, Guarded)>,
    ) -> Names {
        let mut names = Names::default();
        for name in nested.map(named(true)).chain(top.map(named(false))) {
            names.add(name);
        }
        names
    }

    /// Those that stand in what a session is not to change ([`crate::snapshot::Select::except`]).
    pub fn excepted(except: &[PathBuf]) -> Names {
        let guarded = |name: &str| {
            let known = NAMES.iter().find(|entry| entry.name == name);
            known.map_or(Guarded::Plain, |entry| entry.guarded)
        };
        let mut names = Names::default();
        for except in except.iter().filter_map(|path| path.to_str()) {
            let (name, nested) = match except.strip_prefix("**/") {
                Some(name) => (name, true),
                None => (except, false),
            };
            names.add(Name { name: name.to_owned(), guarded: guarded(name), nested });
        }
        // No list has it: what git keeps for itself is the session's to change.
        if !names.git.is_empty() {
            let state = STATE.iter();
            let state = state.map(|entry| (entry.name.to_owned(), entry.guarded));
            state.map(named(true)).for_each(|name| names.add(name));
        }
        names
    }

    fn add(&mut self, name: Name) {
        let number = self.all.len();
        match Path::new(&name.name).iter().next() {
            Some(first) if first.as_bytes().contains(&b'*') => {
                self.wild.push((first.to_owned(), number));
            }
            Some(first) => self.by_first.entry(first.to_owned()).or_default().push(number),
            None => return,
        }
        if let Some(inner) = name.name.strip_prefix(".git/")
            && !self.git.iter().any(|(known, _)| known == inner)
        {
            self.git.push((inner.to_owned(), name.guarded));
        }
        self.all.push(name);
    }

    /// What is left of the names that a name in a directory is on the way to. At the top those without a pattern are
    /// known by where they lead.
    pub fn beyond(&self, name: &OsStr, top: bool) -> Vec<(PathBuf, &Name)> {
        let met = self.by_first.get(name).into_iter().flatten().map(|&number| &self.all[number]);
        let looked_for = met.filter(|name| match top {
            true => name.name.contains('*'),
            false => name.nested,
        });
        let rest = looked_for.filter_map(|name| Some((name.name.split_once('/')?.1.into(), name)));
        rest.collect()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The names that a path is, lies below or is on the way to, and at which of its components they begin.
    pub fn met<'a>(
        &'a self,
        parts: &'a [&'a OsStr],
    ) -> impl Iterator<Item = (usize, &'a Name, Standing)> {
        (0..parts.len()).flat_map(move |start| {
            let first = self.by_first.get(parts[start]).into_iter().flatten();
            let part = parts[start].as_bytes();
            let wild = self.wild.iter().filter(|(first, _)| glob::name(first.as_bytes(), part));
            first.chain(wild.map(|(_, number)| number)).filter_map(move |&number| {
                let name = &self.all[number];
                let standing = match name.nested || start == 0 {
                    true => standing(&name.name, &parts[start..]),
                    false => Standing::Apart,
                };
                (standing != Standing::Apart).then_some((start, name, standing))
            })
        })
    }
}
