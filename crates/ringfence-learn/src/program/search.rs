//! Where a command is, by `PATH`.

use super::{Programs, Question};
use crate::host::{Kind, below};
use std::borrow::Cow;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// From so many commands on that are not in a directory of `PATH`, its names are read, if they are no more than these:
/// that takes as long as some ten looks.
const MANY: usize = 8;
const MOST_LISTED: usize = 512;
/// What a directory of so many names takes on a file system that counts by blocks: of a larger one all that was read
/// would be for nothing.
const MOST_BYTES: u64 = 24 << 10;

impl Question {
    /// Whether a directory is one in which names come and go.
    pub fn is_busy(&self, directory: &Path) -> bool {
        const BUSY: [&str; 2] = ["/tmp", "/var/tmp"];
        let busy = BUSY.map(Path::new);
        busy.into_iter().chain([&*self.workdir, &*self.home]).any(|busy| busy == directory)
    }
}

impl Programs<'_, '_, '_> {
    /// The first program of a name in the directories of `PATH`, or the one that a path leads to.
    pub(super) fn search(&mut self, name: &[u8]) -> Option<PathBuf> {
        let file = Path::new(OsStr::from_bytes(name));
        if name.is_empty() || name.contains(&0) {
            return None;
        }
        if name.contains(&b'/') {
            return Some(self.at.join(file)).filter(|path| self.is_program(path));
        }
        for at in 0..self.beside.len() + self.question.search.len().min(256) {
            let beyond = || &self.question.search[at - self.beside.len()];
            let directory = self.beside.get(at).unwrap_or_else(beyond);
            let directory = match directory.is_absolute() {
                true => Cow::Borrowed(directory.as_path()),
                false => Cow::Owned(self.at.join(directory)),
            };
            let path = below(&directory, file.as_os_str());
            if self.is_program(&path) {
                return Some(path);
            }
            let missed = self.missed.entry(directory.as_os_str().to_owned()).or_default();
            *missed += 1;
            if *missed == MANY {
                self.list(&directory);
            }
        }
        None
    }

    fn is_program(&self, path: &Path) -> bool {
        let Some(found) = self.host.resolve(path) else { return false };
        let kind = self.host.kind(&found.real);
        // One that becomes executable comes before the one that is found now.
        if kind == Kind::File(false) {
            self.host.rely_on(&found.real);
        }
        kind == Kind::File(true)
    }

    /// Reads the names of a directory of `PATH` in which many commands were not found: what else is looked for there
    /// needs no look. Not of one whose names come and go: an answer depends on all that was read.
    fn list(&self, directory: &Path) {
        if let Some(found) = self.host.resolve(directory)
            && self.host.kind(&found.real) == Kind::Directory
            && !self.question.is_busy(&found.real)
            && found.real.symlink_metadata().is_ok_and(|data| data.len() <= MOST_BYTES)
        {
            let _ = self.host.listing(&found.real, MOST_LISTED);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Look;
    use crate::program::libraries;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn names_of_a_directory_that_has_none_of_many_commands_are_read_once() {
        let room = tempfile::tempdir().expect("made");
        let room = room.path().canonicalize().expect("a path");
        let (first, second) = (room.join("first"), room.join("second"));
        for directory in [&first, &second] {
            std::fs::create_dir(directory).expect("made");
        }
        let program = |path: &Path| {
            std::fs::write(path, "#!/bin/sh\n").expect("written");
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("its mode");
        };
        let names: Vec<String> = (0..MANY + 8).map(|number| format!("rf-{number}")).collect();
        names.iter().for_each(|name| program(&second.join(name)));
        let last = names.last().expect("many");
        program(&first.join(last));
        program(&second.join("script"));
        std::fs::write(second.join("script"), format!("#!/bin/sh\n{}\n", names.join("\n")))
            .expect("written");
        let question = |workdir: &Path| Question {
            argv: vec![second.join("script").into()],
            search: vec![first.clone(), second.clone()],
            workdir: workdir.to_owned(),
            home: room.join("home"),
            ..Question::default()
        };
        for (workdir, listed) in [(&room, 1), (&first, 0)] {
            let mut count = 0;
            let answer = libraries(&question(workdir), &mut |path, look| {
                count += usize::from(look == Look::Names && path == first);
            });
            assert_eq!(count, listed, "names come and go where the command starts");
            let (one, others) = names.split_last().expect("many");
            assert!(answer.reasons.contains_key(&first.join(one)), "{:?}", answer.reasons);
            assert!(!answer.reasons.contains_key(&second.join(one)));
            for name in others {
                assert!(answer.reasons.contains_key(&second.join(name)), "{name}");
            }
        }
    }
}
