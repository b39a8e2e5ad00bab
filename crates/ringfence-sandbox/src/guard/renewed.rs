//! Makes what lies in the quarantine new, so that no program can change it there: it is read later, and perhaps taken
//! back to where programs outside obey it.
//!
//! What was moved there is the very file that the program made. It may have another name in the tree, by which a later
//! run would write it: such a file is copied. And a run that goes on may hold it, or a directory of it, open: what is open
//! for reading can be opened anew for writing by `/proc/self/fd` in a view of its own. So where one goes on, files are
//! copied, but for large ones of which nothing speaks for such a hold, and directories are made anew. A directory is
//! emptied into its new one before what it holds is looked at.
//!
//! Nothing is removed that has no other name: what a disk has no room for stays where it is, and that is told.

use super::directory::Directory;
use super::quarantine::{Copied, Quarantine, copy, fill, random_name, rename_aside, unlock};
use super::{Said, past, short};
use crate::removal;
use ringfence_policy::shown;
use ringfence_sys as sys;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, Metadata, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{
    DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, fchown,
};
use std::path::Path;

/// Up to so many bytes a file is copied in any case: what programs obey is rarely longer.
const SMALL: u64 = 1 << 20;
/// So many files are copied and directories made at most: how many there are was for the program to decide, and must not
/// decide how long the end takes.
const MOST: usize = 4096;
/// Directories further down are removed: no program looks for its settings there.
const DEEPEST: usize = 256;
/// What a mode may carry over.
const MODE: u32 = 0o777;
/// What the name begins with of what is made in place of something, in the session's own directory: other names there
/// and in the directories below are the program's choice.
const NEW: &str = ".ringfence-new-";

/// Whether a file has another name.
pub(super) fn is_linked(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|data| data.is_file() && data.nlink() > 1)
}

impl Quarantine {
    /// Does it with all that was taken in a run, when nobody of the run lives any more, and its end is noted.
    pub fn renew(&mut self, said: &mut Said) {
        let Some(path) = self.directory.clone().filter(|_| self.taken > 0) else { return };
        let Ok(session) = Directory::open(&path) else { return };
        unlock(&path, 0);
        let room = &mut self.room;
        let shared = past::read().goes_on();
        let (held, stayed, rename) = (0, 0, plain_rename as Rename);
        Renewing { session: &session, shared, room, most: MOST, held, stayed, said, rename }
            .all(&path);
    }
}

/// [`fs::rename`]; in tests, one that fails.
type Rename = fn(&Path, &Path) -> io::Result<()>;

fn plain_rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)
}

/// One pass over what was taken.
struct Renewing<'a> {
    /// The session's own directory, which no program has open.
    session: &'a Directory,
    /// A run goes on, and may hold some of it.
    shared: bool,
    room: &'a mut u64,
    /// Files that may yet be copied, and directories made.
    most: usize,
    /// Those that are what they were, and may be changed.
    held: usize,
    /// What could not be brought from a directory to its new one.
    stayed: usize,
    said: &'a mut Said,
    rename: Rename,
}

/// What became of something that was to have its place elsewhere.
enum Moved {
    There,
    /// Taken away by who holds the directory.
    Gone,
    Stays,
}

impl Renewing<'_> {
    fn all(&mut self, path: &Path) {
        let session = self.session;
        let names = names(session).unwrap_or_else(|_| {
            self.held += 1;
            Vec::new()
        });
        for name in names {
            let shown = path.join(&name);
            match session.enter(&name) {
                None => self.own(session, &name, &shown, 0),
                Some(old) if self.shared => self.anew(&old, &name, &shown),
                Some(old) => self.empty(&old, None, &shown, 0),
            }
        }
        if self.held > 0 {
            let why = match short::came() {
                true => "no more files could be opened; ",
                false => "",
            };
            self.said.push(format!(
                "{} of what was moved to {} could not be copied: {why}another run may hold it open, or have another name of \
                 it, and change it",
                self.held,
                shown::path(path)
            ));
        }
    }

    /// Gives a directory's name to a new one, with all that it holds.
    fn anew(&mut self, old: &Directory, name: &OsStr, shown: &Path) {
        let (session, fresh) = (self.session, random_name(NEW));
        let Some(new) = self.made(session, &fresh, old) else {
            self.held += 1;
            return self.empty(old, None, shown, 0);
        };
        self.stayed = 0;
        self.empty(old, Some(&new), shown, 0);
        let put = rename_aside(&session.at(name)).and_then(|aside| {
            (self.rename)(&session.at(&fresh), &session.at(name)).map(|()| aside)
        });
        let told = shown::path(shown);
        let beside = |name: &OsStr| shown::path(&shown.with_file_name(name));
        self.said.push(match put {
            Ok(aside) if self.stayed == 0 => {
                // Who holds the old one may put something there yet.
                let _ = fs::remove_dir_all(session.at(aside));
                return;
            }
            Ok(aside) => format!(
                "{} of what was moved to {told} could not be moved on, and is in {}: another run may hold that open, and \
                 change it",
                self.stayed,
                beside(&aside)
            ),
            Err(why) => format!(
                "what was moved to {told} is in {}, which could not be given that name ({why})",
                beside(&fresh)
            ),
        });
    }

    /// Brings what a directory holds to its new one, and looks at it there; where there is none it stays.
    fn empty(&mut self, old: &Directory, new: Option<&Directory>, shown: &Path, depth: usize) {
        let Ok(names) = names(old) else {
            (self.held, self.stayed) = (self.held + 1, self.stayed + 1);
            return;
        };
        for name in names {
            let path = shown.join(&name);
            let inner = old.enter(&name).filter(|_| depth < DEEPEST);
            let fresh = match (new, &inner) {
                (Some(new), Some(inner)) => self.made(new, &name, inner),
                _ => None,
            };
            let moved = match new {
                Some(new) if fresh.is_none() => Some((new, self.moved(old, new, &name))),
                _ => None,
            };
            let at = match moved {
                Some((_, Moved::Gone)) => continue,
                Some((new, Moved::There)) => new,
                Some((_, Moved::Stays)) => {
                    self.stayed += 1;
                    old
                }
                None => old,
            };
            let Some(inner) = inner else {
                self.own(at, &name, &path, depth);
                continue;
            };
            // It is the one that may be open.
            self.held += usize::from(self.shared && fresh.is_none());
            self.empty(&inner, fresh.as_ref(), &path, depth + 1);
        }
    }

    fn moved(&self, old: &Directory, new: &Directory, name: &OsStr) -> Moved {
        match (self.rename)(&old.at(name), &new.at(name)) {
            Ok(()) => Moved::There,
            Err(why) if why.kind() == io::ErrorKind::NotFound => Moved::Gone,
            Err(_) => Moved::Stays,
        }
    }

    /// Makes a file one that nobody holds and that has no other name; or removes it, which has one then.
    fn own(&mut self, directory: &Directory, name: &OsStr, shown: &Path, depth: usize) {
        let at = directory.at(name);
        let Ok(data) = at.symlink_metadata() else { return };
        let linked = data.nlink() > 1;
        let why = match data.file_type() {
            // What a link says is never changed.
            kind if kind.is_symlink() => return,
            // No descriptor is left for a look into it.
            kind if kind.is_dir() && depth < DEEPEST => return self.held += 1,
            kind if kind.is_dir() => "it is too deep".to_owned(),
            kind if kind.is_file() => {
                let large = || data.len() > SMALL && !has_writers(&at);
                if !linked && (!self.shared || large()) {
                    return;
                }
                match self.copied(&at, &data) {
                    Ok(()) => return,
                    Err(_) if !linked => return self.held += 1,
                    Err(why) => format!("it has another name, and cannot be copied: {why}"),
                }
            }
            _ if linked => "it has another name, and is no plain file".to_owned(),
            _ => return,
        };
        removal::remove(&at);
        self.said.push(format!("{} was removed ({why})", shown::path(shown)));
    }

    fn copied(&mut self, at: &Path, data: &Metadata) -> io::Result<()> {
        self.one_more().ok_or_else(|| io::Error::other("there are too many"))?;
        let beside = self.session.at(random_name(NEW));
        let made = copy(at, &beside)?;
        let done = fill(&made, self.room).and_then(|()| {
            let Copied { copy, .. } = &made;
            // Another user's stays his where that may be.
            let _ = fchown(copy, Some(data.uid()), Some(data.gid()));
            copy.set_permissions(Permissions::from_mode(data.mode() & MODE))?;
            copy.set_modified(data.modified()?)?;
            fs::rename(&beside, at)
        });
        done.inspect_err(|_| drop(fs::remove_file(&beside)))
    }

    /// A new directory, like another one.
    fn made(&mut self, directory: &Directory, name: &OsStr, like: &Directory) -> Option<Directory> {
        self.one_more()?;
        let at = directory.at(name);
        DirBuilder::new().mode(0o700).create(&at).ok()?;
        let Some((new, like)) = directory.enter(name).zip(like.at(".").metadata().ok()) else {
            let _ = fs::remove_dir(at);
            return None;
        };
        let _ = chown(new.at("."), Some(like.uid()), Some(like.gid()));
        let _ = fs::set_permissions(new.at("."), Permissions::from_mode(like.mode() & MODE));
        Some(new)
    }

    fn one_more(&mut self) -> Option<()> {
        self.most = self.most.checked_sub(1)?;
        Some(())
    }
}

/// Whether somebody has a file open for writing, as far as can be told.
fn has_writers(at: &Path) -> bool {
    let careful = ringfence_start::flags::NO_FOLLOW as i32 | sys::fd::NON_BLOCKING;
    let file = File::options().read(true).custom_flags(careful).open(at);
    file.map_or(true, |file| sys::file::has_writers(file.as_fd()) == Some(true))
}

fn names(directory: &Directory) -> io::Result<Vec<OsString>> {
    fs::read_dir(directory.at("."))?.map(|entry| entry.map(|entry| entry.file_name())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    /// A session's directory with `.vscode` and ten files in it, one of them with another name outside.
    struct World(PathBuf);

    impl Drop for World {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const LINKED: &str = "1-.vscode/sub/9";

    impl World {
        fn new(of: &str) -> World {
            let place = format!("ringfence-renewed-{of}-{}", std::process::id());
            let world = World(std::env::temp_dir().join(place));
            let sub = world.0.join("q/1-.vscode/sub");
            fs::create_dir_all(&sub).expect("directories");
            for number in 0..10 {
                let directory = if number < 5 { sub.parent().expect("above") } else { &sub };
                fs::write(directory.join(number.to_string()), number.to_string()).expect("a file");
            }
            fs::hard_link(world.q().join(LINKED), world.0.join("other")).expect("a link");
            world
        }

        fn q(&self) -> PathBuf {
            self.0.join("q")
        }

        /// Everything below: its path, its inode, what a file says.
        fn all(&self) -> Vec<(PathBuf, u64, String)> {
            fn below(at: &Path, all: &mut Vec<(PathBuf, u64, String)>) {
                for entry in fs::read_dir(at).expect("a directory") {
                    let entry = entry.expect("an entry");
                    let (path, data) = (entry.path(), entry.metadata().expect("data"));
                    let text = fs::read_to_string(&path).unwrap_or_default();
                    all.push((path.clone(), data.ino(), text));
                    if data.is_dir() {
                        below(&path, all);
                    }
                }
            }
            let mut all = Vec::new();
            below(&self.q(), &mut all);
            all.sort();
            all
        }

        fn renew(&self, shared: bool, most: usize, rename: Rename) -> Vec<String> {
            let (mut said, mut room) = (Said::default(), super::super::quarantine::ROOM);
            let session = Directory::open(&self.q()).expect("a directory");
            let (session, room, held, stayed) = (&session, &mut room, 0, 0);
            Renewing { session, shared, room, most, held, stayed, said: &mut said, rename }
                .all(&self.q());
            said.all()
        }

        /// How many are not what they were; nothing is lost, nor anything new.
        fn renewed(&self, shared: bool, most: usize) -> (usize, Vec<String>) {
            let before = self.all();
            let said = self.renew(shared, most, plain_rename);
            let now = self.all();
            let of = |all: &[(PathBuf, u64, String)]| {
                all.iter().map(|(path, _, text)| (path.clone(), text.clone())).collect::<Vec<_>>()
            };
            assert_eq!(of(&before), of(&now));
            (before.iter().zip(&now).filter(|(before, now)| before.1 != now.1).count(), said)
        }
    }

    #[test]
    fn what_nobody_can_hold_stays_what_it_is() {
        let world = World::new("alone");
        let linked = |world: &World| is_linked(&world.q().join(LINKED));
        assert!(linked(&world));
        assert_eq!(world.renewed(false, MOST), (1, Vec::new()));
        assert!(!linked(&world));
        // The control: two directories and ten files.
        assert_eq!(world.renewed(true, MOST), (12, Vec::new()));
    }

    #[test]
    fn so_much_is_made_new_and_no_more() {
        let world = World::new("many");
        fs::remove_file(world.0.join("other")).expect("a file");
        let (renewed, said) = world.renewed(true, 4);
        assert_eq!(renewed, 4);
        assert!(said.len() == 1 && said[0].starts_with("8 of what was moved to "), "{said:?}");
    }

    /// A disk without room for the names in a new directory.
    #[test]
    fn what_cannot_be_moved_on_is_not_lost() {
        fn full(from: &Path, to: &Path) -> io::Result<()> {
            match from.file_name().and_then(OsStr::to_str) {
                Some("2" | "3" | "6") => Err(io::ErrorKind::StorageFull.into()),
                Some("4") => Err(io::ErrorKind::NotFound.into()),
                _ => plain_rename(from, to),
            }
        }
        let world = World::new("full");
        let said = world.renew(true, MOST, full);
        let aside = world.all().into_iter().find(|(path, ..)| path.ends_with("sub/6"));
        let aside = aside.expect("not lost").0;
        let aside = aside.ancestors().nth(2).expect("above");
        let text = |at: &Path| fs::read_to_string(at).ok();
        for number in 0..10_u32 {
            let below = if number < 5 { "" } else { "sub/" }.to_owned() + &number.to_string();
            let old = [2, 3, 4, 6].contains(&number);
            let at = if old { aside.to_owned() } else { world.q().join("1-.vscode") };
            assert_eq!(text(&at.join(below)), Some(number.to_string()), "{number}");
        }
        let told = format!("is in {}: ", aside.display());
        assert!(
            said.len() == 1 && said[0].starts_with("3 of what") && said[0].contains(&told),
            "{said:?}"
        );
    }

    #[test]
    fn what_gets_no_name_is_not_lost() {
        fn nameless(from: &Path, to: &Path) -> io::Result<()> {
            let last = from
                .file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(NEW.as_bytes()));
            if last { Err(io::ErrorKind::StorageFull.into()) } else { plain_rename(from, to) }
        }
        let world = World::new("nameless");
        let said = world.renew(true, MOST, nameless);
        let files = world.all().into_iter().filter(|(.., text)| !text.is_empty()).count();
        assert!(files == 10 && said.len() == 1 && said[0].contains(NEW), "{files} {said:?}");
    }

    /// Names in what was taken are its program's choice, and a launcher that was killed leaves one of its own.
    #[test]
    fn no_name_is_in_the_way() {
        let world = World::new("names");
        let ours = |directory: &str| world.q().join(directory).join(".ringfence-new");
        for directory in ["1-.vscode", "1-.vscode/sub"] {
            fs::write(ours(directory), "x").expect("a file");
        }
        fs::create_dir(ours("")).expect("a directory");
        assert_eq!(world.renewed(true, MOST), (15, Vec::new()));
    }
}
