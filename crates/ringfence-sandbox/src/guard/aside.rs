//! Where things go that the quarantine cannot keep: it is on another file system, has no room, or cannot be made. They may be
//! all that their owner has of them, so nothing is removed: they are moved, by one rename within their own file system, into a
//! directory that nobody else enters and under names that no program looks for.

use super::directory::Directory;
use super::locked;
use super::quarantine::{ASIDE, LONGEST, random_name, rename_aside, unlock};
use super::work::Work;
use ringfence_policy::shown;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// No protected name ends so.
const END: &str = ".aside";

/// The directories that this pass has made, by what they are in.
#[derive(Default)]
pub(super) struct Asides(BTreeMap<PathBuf, Aside>);

struct Aside {
    directory: Directory,
    path: PathBuf,
    count: u32,
}

impl Aside {
    fn new(above: &Path) -> io::Result<Aside> {
        let name = random_name(ASIDE);
        let errno = |errno: ringfence_sys::Errno| io::Error::from_raw_os_error(errno.into_raw());
        let parent = Directory::open(above).map_err(errno)?;
        DirBuilder::new().mode(0o700).create(parent.at(&name))?;
        let directory = parent.enter(&name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Aside { directory, path: above.join(name), count: 0 })
    }

    fn take(&mut self, at: &Path, name: &OsStr) -> io::Result<PathBuf> {
        self.count += 1;
        let name = numbered(self.count, name);
        fs::rename(at, self.directory.at(&name)).map(|()| self.path.join(name))
    }
}

/// A name that tells what it was of, where that is not too long.
fn numbered(count: u32, name: &OsStr) -> OsString {
    let mut all = OsString::from(format!("{count}-"));
    if all.len() + name.len() + END.len() <= LONGEST {
        all.push(name);
    }
    all.push(END);
    all
}

impl Work<'_> {
    /// Moves something aside; where it is now.
    ///
    /// # Errors
    /// It is where it was.
    pub(super) fn set_aside(&mut self, at: &Path, path: &Path) -> io::Result<PathBuf> {
        unlock(at, 0);
        let denied = match self.moved_aside(at, path) {
            Err(why) if why.kind() == io::ErrorKind::PermissionDenied => why,
            done => return done,
        };
        match path.parent() {
            Some(parent) if locked::unlock_all(self, parent) => self.moved_aside(at, path),
            _ => Err(denied),
        }
    }

    fn moved_aside(&mut self, at: &Path, path: &Path) -> io::Result<PathBuf> {
        let mut trees = self.guarding.trees.iter().map(|tree| tree.tree.as_path());
        let top = trees.find(|tree| path.starts_with(tree) && path != *tree);
        // The top may be on another file system, or a directory that could be made in it have no room.
        for above in top.into_iter().chain(path.parent()) {
            if let Ok(kept) = self.moved_into(above, at, path) {
                return Ok(kept);
            }
        }
        let name = rename_aside(at)?;
        let aside = path.with_file_name(name);
        self.guarding.told_aside(&aside);
        Ok(aside)
    }

    fn moved_into(&mut self, above: &Path, at: &Path, path: &Path) -> io::Result<PathBuf> {
        let name = path.file_name().unwrap_or_default();
        if let Some(aside) = self.asides.0.get_mut(above) {
            return aside.take(at, name);
        }
        let mut aside = Aside::new(above)?;
        match aside.take(at, name) {
            Ok(kept) => {
                self.guarding.told_aside(&aside.path);
                self.asides.0.insert(above.to_owned(), aside);
                Ok(kept)
            }
            Err(why) => {
                let _ = fs::remove_dir(&aside.path);
                Err(why)
            }
        }
    }

    /// What is said of something that is neither kept nor aside: it stays where programs look for it. So nobody can read
    /// it there, and a link, of which no more is lost than what the sentence has, is removed.
    pub(super) fn shut(&self, at: &Path, error: &io::Error) -> String {
        if let Ok(target) = fs::read_link(at) {
            return match fs::remove_file(at) {
                Ok(()) => format!("removed; it was a link to {}", shown::path(&target)),
                Err(_) => format!("it CANNOT BE REMOVED: {error}"),
            };
        }
        let place = fs::OpenOptions::new()
            .read(true)
            .custom_flags(ringfence_start::flags::NO_FOLLOW as i32 | ringfence_sys::fd::PATH_ONLY)
            .open(at);
        let closed = place.and_then(|place| {
            let through = ringfence_sys::fd::through(&place);
            fs::set_permissions(through, Permissions::from_mode(0o0))
        });
        match closed {
            Ok(()) => {
                format!(
                    "it CANNOT BE REMOVED: {error}; it is closed now (mode 0000): look before you open it"
                )
            }
            Err(_) => format!("it CANNOT BE REMOVED: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::quarantine;
    use super::super::vigil::tests::World;
    use super::*;

    #[test]
    fn what_is_set_aside_has_a_name_that_nothing_obeys_and_is_whole() {
        let world = World::new("aside");
        let quarantine = world.guarding.quarantine(None);
        let mut work = world.guarding.work(quarantine);
        let long = format!(".{}", "n".repeat(250));
        for name in ["x.bazelrc", ".envrc", &long] {
            let path = world.tree.join(name);
            fs::write(&path, name).expect("a file");
            work.take_away(&path, &path, "created");
            assert!(!world.has(name), "{name}");
        }
        let directory = world.tree.join(".vscode");
        fs::create_dir(&directory).expect("a directory");
        fs::write(directory.join("tasks.json"), "{}").expect("a file");
        fs::set_permissions(&directory, Permissions::from_mode(0o0)).expect("closed");
        work.take_away(&directory, &directory, "created");
        let entries = fs::read_dir(&world.tree).expect("a directory");
        let mut all: Vec<_> = entries.map(|entry| entry.expect("one").path()).collect();
        all.retain(|path| !path.ends_with("old.code-workspace"));
        let [aside] = &all[..] else { panic!("{all:?}") };
        assert!(quarantine::is_aside(aside.file_name().expect("a name").as_encoded_bytes()));
        let mode = aside.metadata().expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let text = |name: &str| fs::read_to_string(aside.join(name)).expect(name);
        assert_eq!(text("1-x.bazelrc.aside"), "x.bazelrc");
        assert_eq!(text("2-.envrc.aside"), ".envrc");
        assert_eq!(text("3-.aside"), long);
        assert_eq!(text("4-.vscode.aside/tasks.json"), "{}");
    }

    #[test]
    fn what_cannot_be_moved_is_closed_and_nothing_is_lost() {
        let world = World::new("shut");
        let work = world.guarding.work(world.guarding.quarantine(None));
        let at = world.tree.join(".envrc");
        fs::write(&at, "precious").expect("a file");
        let error = io::Error::from(io::ErrorKind::StorageFull);
        assert!(work.shut(&at, &error).contains("closed now"));
        assert_eq!(at.metadata().expect("there").permissions().mode() & 0o777, 0);
        fs::set_permissions(&at, Permissions::from_mode(0o600)).expect("opened");
        assert_eq!(fs::read_to_string(&at).expect("whole"), "precious");
        let link = world.tree.join("link");
        std::os::unix::fs::symlink(&at, &link).expect("a link");
        assert!(work.shut(&link, &error).contains(&format!("a link to {}", at.display())));
        assert!(link.symlink_metadata().is_err() && at.exists());
    }
}
