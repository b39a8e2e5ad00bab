//! What is denied: something empty mounted on it, that nobody may read.

use super::super::mounts::{ENOENT, attach, copy_tree, make_directory, make_file};
use super::{Building, MASKS};
use ringfence_sys::mount::attribute::{NO_DEVICES, NO_EXEC, NO_SUID, READ_ONLY};
use std::path::Path;

impl Building<'_> {
    pub(super) fn mask(&mut self, path: &Path, directory: bool, link: bool) {
        self.script.note("mask", Some(path));
        let known = self.masks[usize::from(directory)];
        let tree = match known {
            Some(mask) => copy_tree(self.script, mask, Path::new(""), false, 0),
            None => self.first_mask(directory),
        };
        let inner = path.parent().filter(|parent| !link && parent.parent().is_some());
        match (inner, path.file_name()) {
            (Some(parent), Some(name)) => {
                let directory = self.directory_of_masks(parent);
                // What has gone since the plan was made is watched for, as what goes later is ([`crate::cover`]).
                attach(self.script, tree, directory, Path::new(name)).tolerated[0] = ENOENT;
            }
            _ => {
                let target = self.open_itself(path, link);
                attach(self.script, tree, target, Path::new(""));
                self.script.close(target);
            }
        }
        match known {
            Some(_) => self.script.close(tree),
            None => self.masks[usize::from(directory)] = Some(tree),
        }
    }

    /// A directory in which masks are mounted on names, which are not followed: often that of the one before.
    fn directory_of_masks(&mut self, path: &Path) -> u8 {
        if let Some((_, directory)) = self.masked.as_ref().filter(|(last, _)| last == path) {
            return *directory;
        }
        self.leave_masked();
        let directory = self.open_in_view(path);
        self.masked = Some((path.to_owned(), directory));
        directory
    }

    pub(super) fn leave_masked(&mut self) {
        if let Some((_, directory)) = self.masked.take() {
            self.script.close(directory);
        }
    }

    /// Something empty that nobody may read.
    fn first_mask(&mut self, directory: bool) -> u8 {
        let (memory, name) = (self.memory, Path::new(MASKS[usize::from(directory)]));
        if directory {
            make_directory(self.script, memory, name, 0);
        } else {
            make_file(self.script, memory, name, 0);
        }
        let attributes = READ_ONLY | NO_SUID | NO_DEVICES | NO_EXEC;
        copy_tree(self.script, memory, name, false, attributes)
    }
}
