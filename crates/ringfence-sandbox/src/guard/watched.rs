//! The directories that tell the vigil of new names.
//!
//! Those of which the list says how many there can be have always room. The others are as many as who is inside likes,
//! and only so many are watched. What is gone makes room again.

use super::absent::{Rank, Wanted};
use super::{Directory, Identity, identity};
use ringfence_sys as sys;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use sys::Errno;

/// Directories watched at most, of those that may be many.
pub(super) const MOST: usize = 512;

struct Place {
    path: PathBuf,
    is: Option<Identity>,
    wanted: Wanted,
}

impl Place {
    fn is_known(&self) -> bool {
        self.wanted.rank == Some(Rank::Known) && !self.wanted.all
    }
}

/// Whether a directory is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Yes,
    /// Nothing tells of anything.
    Blind,
    /// There are too many, or it cannot be.
    No,
}

/// All of them.
pub(super) struct Watched {
    /// None where all that the user may have are taken, by the command itself perhaps.
    names: Option<sys::inotify::Names>,
    places: HashMap<i32, Place>,
    numbers: BTreeMap<PathBuf, i32>,
    /// Those that may be many.
    many: usize,
    /// Room was looked for in vain since the last turn.
    full: bool,
}

impl Watched {
    pub fn new() -> Watched {
        Watched {
            names: sys::inotify::Names::new().ok(),
            places: HashMap::new(),
            numbers: BTreeMap::new(),
            many: 0,
            full: false,
        }
    }

    /// Where nothing tells.
    #[cfg(test)]
    pub fn blind() -> Watched {
        Watched { names: None, ..Watched::new() }
    }

    /// Readable when there is something to see.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.names.as_ref().map(sys::inotify::Names::descriptor)
    }

    pub fn is_blind(&self) -> bool {
        self.names.is_none()
    }

    /// Watches a directory for the names that count in it.
    pub fn watch(&mut self, path: &Path, directory: &Directory, wanted: Wanted) -> Told {
        let place = Place { path: path.to_owned(), is: identity(&directory.at(".")), wanted };
        let again = self.numbers.get(path).is_some_and(|number| self.places[number].is == place.is);
        if !place.is_known() && !again && !self.has_room() {
            return Told::No;
        }
        let Some(names) = &self.names else { return Told::Blind };
        match names.watch(directory.0.as_fd()) {
            Ok(number) => {
                // It had another name, or another directory had this one.
                self.drop_number(number);
                if let Some(before) = self.numbers.get(path).copied() {
                    self.forget_number(before);
                }
                self.many += usize::from(!place.is_known());
                self.numbers.insert(path.to_owned(), number);
                self.places.insert(number, place);
                Told::Yes
            }
            // No more can be had.
            Err(Errno::ENOSPC | Errno::ENOMEM) => {
                self.names = None;
                self.places.clear();
                self.numbers.clear();
                self.many = 0;
                Told::Blind
            }
            Err(_) => Told::No,
        }
    }

    /// Whether one more may be watched of those that may be many; those that are gone are let go of first.
    fn has_room(&mut self) -> bool {
        if self.many >= MOST && !self.full {
            let gone = |place: &&Place| identity(&place.path) != place.is;
            let gone = self.places.values().filter(gone).map(|place| place.path.clone());
            for path in gone.collect::<Vec<_>>() {
                self.forget(&path);
            }
            self.full = self.many >= MOST;
        }
        self.many < MOST
    }

    /// A path was taken away, with what is in it.
    pub fn forget(&mut self, path: &Path) {
        let below = self.numbers.range(path.to_owned()..);
        let below = below.take_while(|(below, _)| below.starts_with(path));
        for number in below.map(|(_, number)| *number).collect::<Vec<_>>() {
            self.forget_number(number);
        }
    }

    fn forget_number(&mut self, number: i32) {
        self.drop_number(number);
        self.names.iter().for_each(|names| names.forget(number));
    }

    fn drop_number(&mut self, number: i32) {
        let Some(place) = self.places.remove(&number) else { return };
        self.many -= usize::from(!place.is_known());
        self.numbers.remove(&place.path);
    }

    /// Takes what was told: a call for each name that counts. Whether there was more than the kernel keeps.
    pub fn take(&mut self, mut each: impl FnMut(PathBuf, Rank)) -> bool {
        self.full = false;
        let told = self.names.as_ref().map(sys::inotify::Names::take_all).unwrap_or_default();
        for named in &told.names {
            let name: &OsStr = &named.name;
            if let Some(place) = self.places.get(&named.directory)
                && let Some(rank) = place.wanted.rank(name)
            {
                each(place.path.join(name), rank);
            }
        }
        told.gone.into_iter().for_each(|number| self.drop_number(number));
        told.lost
    }
}

#[cfg(test)]
mod tests {
    use super::super::absent::{Absent, Names};
    use super::*;
    use ringfence_policy::Guarded;
    use std::ffi::OsString;
    use std::fs;

    struct World(PathBuf);

    impl Drop for World {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    impl World {
        fn watch(&self, watched: &mut Watched, name: &str) -> Told {
            let path = self.0.join(name);
            fs::create_dir_all(&path).expect("a directory");
            let absent = |way: &[&str]| Absent {
                base: self.0.clone(),
                way: way.iter().map(OsString::from).collect(),
                guarded: Guarded::Plain,
                new: false,
            };
            let names: Names =
                [absent(&[".vscode"]), absent(&[".cargo", "c"])].into_iter().collect();
            let wanted = Wanted::of(&names, &path);
            watched.watch(&path, &Directory::open(&path).expect("a directory"), wanted)
        }
    }

    /// Directories in a protected one are as many as who is inside likes.
    #[test]
    fn there_is_room_for_what_is_on_the_way_and_again_for_the_others_when_some_are_gone() {
        let place = format!("ringfence-watched-{}", std::process::id());
        let world = World(std::env::temp_dir().join(place));
        let mut watched = Watched::new();
        if watched.is_blind() || world.watch(&mut watched, "") != Told::Yes {
            return;
        }
        let many = |number: usize| format!(".vscode/d{number}");
        for number in 0..MOST {
            assert_eq!(world.watch(&mut watched, &many(number)), Told::Yes, "{number}");
        }
        assert_eq!(world.watch(&mut watched, &many(MOST)), Told::No);
        assert_eq!(world.watch(&mut watched, &many(1)), Told::Yes, "it is watched");
        assert_eq!(world.watch(&mut watched, ".cargo"), Told::Yes);
        fs::write(world.0.join(".cargo/c"), "").expect("a file");
        fs::write(world.0.join(".cargo/d"), "").expect("a file");
        let mut told = Vec::new();
        assert!(!watched.take(|path, rank| told.push((path, rank))));
        assert!(told.contains(&(world.0.join(".cargo/c"), Rank::Known)), "{told:?}");
        assert!(!told.iter().any(|(path, _)| path.ends_with("d")), "{told:?}");
        // Taken away by us; moved by who made it; removed.
        watched.forget(&world.0.join(many(0)));
        assert_eq!(world.watch(&mut watched, &many(MOST)), Told::Yes);
        assert_eq!(world.watch(&mut watched, &many(MOST + 1)), Told::No);
        fs::rename(world.0.join(many(2)), world.0.join("free")).expect("renamed");
        watched.take(|_, _| {});
        assert_eq!(world.watch(&mut watched, &many(MOST + 1)), Told::Yes);
        fs::remove_dir(world.0.join(many(3))).expect("removed");
        watched.take(|_, _| {});
        assert_eq!(world.watch(&mut watched, &many(MOST + 2)), Told::Yes);
        assert_eq!(world.watch(&mut watched, &many(MOST + 3)), Told::No);
        // One name, many directories.
        for number in 0..MOST + 3 {
            let away = world.0.join(format!("away{number}"));
            fs::rename(world.0.join(".cargo"), away).expect("renamed");
            assert_eq!(world.watch(&mut watched, ".cargo"), Told::Yes);
        }
        assert_eq!(watched.places.len(), MOST + 2);
    }
}
