//! Links that are followed over what a planner knows of the host's files.

use crate::facts::{Kind, PathFacts};
use ringfence_policy::files::Real;
use ringfence_policy::{FileView, Resolver};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// The links that a planner's paths know, for whoever follows them.
struct Links<'a>(&'a dyn PathFacts);

impl FileView for Links<'_> {
    fn link(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        match self.0.kind(path) {
            Kind::Symlink(target) => Ok(Some(target)),
            Kind::Absent => Err(io::ErrorKind::NotFound.into()),
            Kind::File | Kind::Directory => Ok(None),
        }
    }

    fn names(&self, _: &Path, _: usize) -> io::Result<Vec<OsString>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn text(&self, _: &Path, _: u64) -> io::Result<String> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn socket(&self, _: &Path) -> bool {
        false
    }
}

/// Where a path leads; nowhere, where links lead in a circle.
pub(super) fn real(paths: &dyn PathFacts, path: &Path) -> Option<Real> {
    Resolver::new(&Links(paths)).real(path).ok()
}
