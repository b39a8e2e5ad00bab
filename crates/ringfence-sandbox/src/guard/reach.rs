//! Where a link leads that was made on the way to a protected name, without a look at anything outside of the writable
//! trees: who made it cannot see what is there, and would be told by what becomes of the link. A look can also have a
//! file system mounted there, or wait for one that is away; one that is mounted within a tree is outside as well.

use super::Directory;
use super::absent::matches;
use super::vigil::LISTED;
use ringfence_sys::directory::Names;
use ringfence_sys::{Errno, file};
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Where a link leads, as far as its text and the trees tell.
pub(super) struct Reach {
    /// The top of the tree that it leads into, and the way from there; nothing where it leads out of all of them.
    within: Option<(File, PathBuf)>,
}

impl Reach {
    /// Of a link; nothing where it is none any more.
    pub fn of<'t>(link: &Path, trees: impl Iterator<Item = &'t Path>) -> Option<Reach> {
        let target = link.parent()?.join(link.read_link().ok()?);
        let top =
            trees.filter(|top| target.starts_with(top)).max_by_key(|top| top.as_os_str().len());
        let within = top
            .and_then(|top| Some((File::open(top).ok()?, target.strip_prefix(top).ok()?.into())));
        let reach = Reach { within };
        let out = reach.look(Path::new(""), true).is_err_and(|errno| errno == Errno::EXDEV);
        Some(if out { Reach { within: None } } else { reach })
    }

    /// Whether such a name is where it leads, one in it that matches the pattern, if there is one, or nobody may say what
    /// is.
    pub fn has(&self, name: &Path, pattern: Option<&OsStr>) -> bool {
        let there = self.look(name, pattern.is_some());
        match (there, pattern) {
            (Ok(directory), Some(pattern)) => any(directory, pattern),
            (there, _) => matches!(there, Ok(_) | Err(Errno::EXDEV | Errno::ELOOP)),
        }
    }

    fn look(&self, name: &Path, follow: bool) -> Result<OwnedFd, Errno> {
        let (top, way) = self.within.as_ref().ok_or(Errno::EXDEV)?;
        let path = Path::new(".").join(way).join(name).into_os_string().into_vec();
        let path = CString::new(path).map_err(|_| Errno::EINVAL)?;
        file::open_within(top.as_fd(), &path, follow)
    }
}

/// Whether a directory has a name that matches, as far as it is read, or more than that.
fn any(directory: OwnedFd, pattern: &OsStr) -> bool {
    let Ok(names) = Names::of(&Directory(directory.into()).at(".")) else { return false };
    names
        .enumerate()
        .take(LISTED + 1)
        .any(|(at, (name, _))| at == LISTED || matches(pattern, &name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_is_outside_of_the_trees_is_no_answer() {
        let place = std::env::temp_dir().join(format!("ringfence-reach-{}", std::process::id()));
        for directory in
            ["tree/with/hooks", "tree/without", "other", "hidden/with/hooks", "hidden/without"]
        {
            fs::create_dir_all(place.join(directory)).expect("a directory");
        }
        let link = place.join("tree/link");
        let trees = [place.join("tree"), place.join("other")];
        let has = |target: &Path| {
            let _ = fs::remove_file(&link);
            symlink(target, &link).expect("a link");
            let reach = Reach::of(&link, trees.iter().map(PathBuf::as_path)).expect("a link");
            let has = reach.has(Path::new("hooks"), None);
            assert!(!has || reach.has(Path::new(""), Some(OsStr::new("h*ks"))), "as by its name");
            has
        };
        let matching = |pattern: &str| {
            let _ = fs::remove_file(&link);
            symlink("with", &link).expect("a link");
            let reach = Reach::of(&link, trees.iter().map(PathBuf::as_path)).expect("a link");
            reach.has(Path::new(""), Some(OsStr::new(pattern)))
        };
        assert!(matching("*") && matching("hook?") && !matching("*.toml"));
        assert!(has(Path::new("with")) && has(&place.join("tree/with")));
        assert!(
            !has(Path::new("without")) && !has(&place.join("other")) && !has(Path::new("nothing"))
        );
        symlink("without", place.join("tree/second")).expect("a link");
        assert!(!has(Path::new("second")));
        // Whatever is there, and by whatever way.
        for hidden in ["with", "without", "nothing"] {
            let at = place.join("hidden").join(hidden);
            assert!(has(&at) && has(&Path::new("../hidden").join(hidden)), "{hidden}");
            let second = place.join("tree/second");
            fs::remove_file(&second).expect("the last one");
            symlink(&at, &second).expect("a link");
            assert!(has(Path::new("second")), "{hidden} by two");
        }
        // What is on a way out and in again is outside as well.
        assert!(has(Path::new("../tree/without")));
        // One that is on the way behind it.
        symlink(place.join("hidden/with/hooks"), place.join("tree/without/hooks")).expect("a link");
        assert!(has(Path::new("without")));
        fs::remove_file(&link).expect("the link");
        assert!(Reach::of(&link, trees.iter().map(PathBuf::as_path)).is_none());
        fs::remove_dir_all(&place).expect("removed");
    }
}
