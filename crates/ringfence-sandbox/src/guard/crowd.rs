//! Very many protected names in one directory: what is inside decides how many there are, and must not decide how long
//! the end takes. After the first ones each takes one call: into one directory of the quarantine or, where that is on another
//! file system, into one beside.

use super::said;
use super::work::Work;
use ringfence_policy::shown;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// So many are kept each by itself.
const MANY: usize = 1024;
/// After so many more it is told how far it is.
const TOLD: usize = 16_384;

/// What was taken from the directory that we are in.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    parent: PathBuf,
    count: usize,
    /// Where the rest of it goes.
    kept: Option<PathBuf>,
    /// It goes aside: no rename leads there.
    aside: bool,
}

impl Work<'_> {
    /// Takes something that is one of very many in its directory: where it is now. None for one of few, or where that needs
    /// more.
    pub(super) fn take_of_many(&mut self, at: &Path, path: &Path) -> Option<PathBuf> {
        let parent = path.parent()?;
        if self.crowd.parent != parent {
            self.crowd = Crowd { parent: parent.to_owned(), ..Crowd::default() };
        }
        self.crowd.count += 1;
        let more = self.crowd.count.checked_sub(MANY + 1)?;
        if !self.quarantine.keeps() {
            return None;
        }
        let taken = match self.crowd.aside {
            true => self.set_aside(at, path).ok()?,
            false => self.among_them(at, path)?,
        };
        if more % TOLD == 0 {
            said::now(&format!(
                "more than {} protected names were made in {}: the rest goes to {}",
                MANY + more,
                shown::path(parent),
                shown::path(taken.parent().unwrap_or(&taken))
            ));
        }
        Some(taken)
    }

    /// Moves it to the directory for all of them.
    fn among_them(&mut self, at: &Path, path: &Path) -> Option<PathBuf> {
        let kept = match &self.crowd.kept {
            Some(kept) => kept.clone(),
            None => {
                let kept = self.quarantine.place_for_many(path.parent()?).ok()?;
                self.crowd.kept.insert(kept).clone()
            }
        };
        let target = kept.join(path.file_name()?);
        if target.symlink_metadata().is_ok() {
            return None;
        }
        match fs::rename(at, &target) {
            Ok(()) => Some(target),
            // A copy of each would take as long as one likes.
            Err(why) if why.kind() == io::ErrorKind::CrossesDevices => {
                let _ = fs::remove_dir(kept);
                self.crowd.aside = true;
                self.set_aside(at, path).ok()
            }
            Err(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::vigil::tests::World;
    use super::*;
    use std::fs;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).expect("a directory");
        let mut names: Vec<_> = entries
            .map(|entry| entry.expect("one").file_name().into_string().expect("text"))
            .collect();
        names.sort();
        names
    }

    #[test]
    fn many_names_in_one_directory_are_moved_into_one() {
        let world = World::new("crowd");
        let kept = world.tree.join("kept");
        let mut quarantine = world.guarding.quarantine(None);
        quarantine.directory = Some(kept.clone());
        let mut work = world.guarding.work(quarantine);
        let mut take = |name: &str, text: &str| {
            let path = world.tree.join(name);
            fs::write(&path, text).expect("a file");
            work.take_away(&path, &path, "created");
            assert!(!world.has(name), "{name}");
        };
        for number in 0..MANY + 50 {
            take(&format!("{number}.bazelrc"), &number.to_string());
        }
        // What has the name already stays what it is.
        take(&format!("{MANY}.bazelrc"), "again");
        let all = names(&kept);
        assert_eq!(all.len(), MANY + 2, "{all:?}");
        let rest = all.iter().find(|name| kept.join(name).is_dir()).expect("a directory");
        let rest = kept.join(rest);
        assert_eq!(names(&rest).len(), 50);
        let text = |at: &Path| fs::read_to_string(at).expect("a file");
        assert_eq!(text(&rest.join(format!("{MANY}.bazelrc"))), MANY.to_string());
        assert_eq!(text(&kept.join("1-0.bazelrc")), "0");
        let again = all.iter().filter(|name| name.ends_with(&format!("-{MANY}.bazelrc")));
        let again: Vec<_> = again.map(|name| text(&kept.join(name))).collect();
        assert_eq!(again, ["again"]);
    }
}
