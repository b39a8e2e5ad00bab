//! Skeletons: names and attributes of libraries, kept on disk, of which an overlay with data-only
//! layers (Linux 6.16) makes a directory that has just these names and the host's contents
//! (`--libs exact`). One mount stands for one of each file.
//!
//! A skeleton is filed among ringfence's own state under a sum of what is in it, so that plans share it. It
//! is made aside and renamed into its place, read through whenever a plan is made, and made anew where
//! anything in it is not as it should be. A sandbox that uses one has it locked. A library in it is an empty
//! file with two attributes, which name the file beneath the directory that the overlay shows: the kernel
//! follows them neither out of it nor over a link or a mount.

use super::script::{Arg, CWD, Script};
use crate::error::LaunchError;
use crate::inputs::Inputs;
use crate::plan::{MountOp, MountStep, Plan};
use crate::state;
use ringfence_start::image::special;
use ringfence_start::{Sysno, flags};
use ringfence_sys as sys;
use ringfence_sys::mount::attribute::{NO_DEVICES, NO_SUID, READ_ONLY};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, OsStr};
use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// What the note of an overlay's steps says.
pub(super) const SHOW: &str = "show exact libraries by an overlay in";

/// At most so many skeletons are kept.
const MOST: usize = 64;

/// The file's content is in a data layer; where it is there.
const METACOPY: &std::ffi::CStr = c"user.overlay.metacopy";
const REDIRECT: &std::ffi::CStr = c"user.overlay.redirect";

/// One name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Name {
    /// On the way to others, or something is mounted there.
    Directory,
    /// A file is mounted there.
    Place,
    Link(PathBuf),
    /// What is shown of the host's file.
    Library {
        mode: u32,
        size: u64,
        modified: SystemTime,
    },
}

/// Below the directory.
type Names = BTreeMap<PathBuf, Name>;

/// The skeletons of a plan, by the directories that they stand for.
pub(super) type Skeletons = BTreeMap<PathBuf, PathBuf>;

/// Finds or makes those that a plan wants.
///
/// # Errors
/// [`LaunchError::NoSkeleton`]: libraries have to be mounted one by one.
pub(super) fn prepare(plan: &Plan, inputs: &Inputs) -> Result<Skeletons, LaunchError> {
    let wanted = plan.mounts.iter().filter(|step| step.op == MountOp::Skeleton);
    let mut skeletons = Skeletons::new();
    for step in wanted {
        let found = names(&plan.mounts, &step.path).and_then(|names| find(&names, inputs));
        let found = found.map_err(|error| {
            let directory = step.path.display();
            LaunchError::NoSkeleton(format!("cannot {SHOW} {directory}: {error}"))
        })?;
        skeletons.insert(step.path.clone(), found);
    }
    Ok(skeletons)
}

/// The names below a directory, of a plan's steps.
fn names(steps: &[MountStep], root: &Path) -> io::Result<Names> {
    let below = |step: &&MountStep| step.path != root && step.path.starts_with(root);
    let top = File::open(root)?;
    let mut names = Names::new();
    for step in steps.iter().filter(below) {
        let path = step.path.strip_prefix(root).unwrap_or(&step.path);
        let name = match &step.op {
            MountOp::Symlink { target } => Name::Link(target.clone()),
            MountOp::Library => library(&top, path)?,
            MountOp::Bind { directory: true, .. } => Name::Directory,
            MountOp::Bind { directory: false, .. } => Name::Place,
            // They hold what another step shows.
            _ => continue,
        };
        for above in path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
            names.insert(above.to_owned(), Name::Directory);
        }
        names.insert(path.to_owned(), name);
    }
    Ok(names)
}

/// What is shown of a library: one that the kernel finds by the same rules.
fn library(root: &File, path: &Path) -> io::Result<Name> {
    let name = c_string(path)?;
    let file = File::from(sys::file::open_beneath(root.as_fd(), &name).map_err(of_errno)?);
    let data = file.metadata()?;
    if !data.is_file() {
        return Err(io::Error::other(format!("{} is no regular file", path.display())));
    }
    let mode = data.mode() & 0o777;
    Ok(Name::Library { mode, size: data.len(), modified: data.modified()? })
}

/// The skeleton with these names, whole; its directories are noted.
fn find(names: &Names, inputs: &Inputs) -> io::Result<PathBuf> {
    let place = place()?;
    let path = place.join(sum(names));
    // Before it is looked at: a change after that is one of the stamp.
    let directories = || {
        let below = names.iter().filter(|(_, name)| **name == Name::Directory);
        std::iter::once(path.clone()).chain(below.map(|(below, _)| path.join(below)))
    };
    for _ in 0..3 {
        directories().for_each(|directory| inputs.own(&directory));
        match check(&path, names) {
            Ok(true) => return Ok(path),
            Ok(false) => discard(&place, &path)?,
            // What vanished while it was looked at was moved away by somebody else, or is missed at the next look.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if path.symlink_metadata().is_ok() {
                    continue;
                }
            }
            // It may be whole, and others use it.
            Err(error) => return Err(error),
        }
        make(&place, &path, names)?;
    }
    Err(io::Error::other(format!("{} is changed by somebody", path.display())))
}

/// The directory of all skeletons, without links on the way, which nobody but the user can change.
fn place() -> io::Result<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let home = home.ok_or_else(|| io::Error::other("HOME is not set"))?;
    let place = state::directory(&home).map_err(io::Error::other)?.join("skeletons");
    if !state::is_ours_alone(&place) {
        let what = format!("others could change what is in {}", place.display());
        return Err(io::Error::other(what));
    }
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&place)?;
    let data = place.symlink_metadata()?;
    if !data.is_dir() || data.uid() != crate::facts::user() || data.mode() & 0o022 != 0 {
        return Err(io::Error::other(format!("{} is not the user's own", place.display())));
    }
    place.canonicalize()
}

/// By which it is filed: two sums make it 128 bits, which is no proof, and needs to be none.
fn sum(names: &Names) -> String {
    let mut text = Vec::new();
    for (path, name) in names {
        text.extend_from_slice(path.as_os_str().as_bytes());
        text.push(0);
        text.extend_from_slice(format!("{name:?}").as_bytes());
        text.push(0);
    }
    let (whole, rest) = (ringfence_start::image::sum(&text), &text[1.min(text.len())..]);
    format!("{whole:016x}{:016x}", ringfence_start::image::sum(rest) ^ whole.rotate_left(17))
}

/// Whether a skeleton has these names, as they should be, and no others.
///
/// # Errors
/// It cannot be told.
fn check(path: &Path, names: &Names) -> io::Result<bool> {
    let user = crate::facts::user();
    let is = |data: &Metadata, mode: u32| data.uid() == user && data.mode() & 0o7777 == mode;
    let mut directories = vec![(path.to_path_buf(), PathBuf::new())];
    let mut seen = 0;
    while let Some((directory, below)) = directories.pop() {
        let data = directory.symlink_metadata()?;
        if !data.is_dir() || !is(&data, 0o755) || !attributes(&directory)?.is_empty() {
            return Ok(false);
        }
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            let (at, below) = (entry.path(), below.join(entry.file_name()));
            let data = entry.metadata()?;
            let held = match names.get(&below) {
                Some(Name::Directory) => {
                    directories.push((at.clone(), below));
                    data.is_dir()
                }
                Some(Name::Link(target)) => data.is_symlink() && fs::read_link(&at)? == *target,
                Some(Name::Place) => {
                    data.is_file()
                        && is(&data, 0o644)
                        && data.len() == 0
                        && attributes(&at)?.is_empty()
                }
                Some(Name::Library { mode, size, modified }) => {
                    let shown = (data.len(), data.modified()?) == (*size, *modified);
                    data.is_file()
                        && is(&data, *mode)
                        && data.nlink() == 1
                        && shown
                        && is_redirected(&at, &below)?
                }
                None => false,
            };
            if !held {
                return Ok(false);
            }
            seen += 1;
        }
    }
    Ok(seen == names.len())
}

/// Attributes of overlayfs that a file has.
fn attributes(path: &Path) -> io::Result<BTreeSet<Vec<u8>>> {
    let names = sys::file::attributes(&c_string(path)?).map_err(of_errno)?;
    let names = names.split(|&byte| byte == 0);
    Ok(names.filter(|name| name.starts_with(b"user.overlay.")).map(<[u8]>::to_vec).collect())
}

/// Whether a file stands for that of the same name beneath the directory, and for no other.
fn is_redirected(path: &Path, below: &Path) -> io::Result<bool> {
    let both = [METACOPY, REDIRECT].map(|name| name.to_bytes().to_vec());
    if attributes(path)? != BTreeSet::from(both) {
        return Ok(false);
    }
    let path = c_string(path)?;
    let is = |name, wanted: &[u8]| match sys::file::attribute(&path, name, 4096) {
        Ok(value) => Ok(value == wanted),
        // Longer than any that was made.
        Err(sys::Errno::ERANGE) => Ok(false),
        Err(errno) => Err(of_errno(errno)),
    };
    Ok(is(METACOPY, b"")? && is(REDIRECT, &redirect(below))?)
}

/// Where a library is in the data layer.
fn redirect(below: &Path) -> Vec<u8> {
    [b"/", below.as_os_str().as_bytes()].concat()
}

/// Makes a skeleton, whole or not at all. Where somebody else was first, theirs stays.
fn make(place: &Path, path: &Path, names: &Names) -> io::Result<()> {
    sweep(place);
    let temporary = aside(place, "new");
    let made = fill(&temporary, names).and_then(|()| fs::rename(&temporary, path));
    if made.is_err() {
        let _ = fs::remove_dir_all(&temporary);
    }
    match made {
        Err(_) if path.is_dir() => Ok(()),
        made => made,
    }
}

fn fill(top: &Path, names: &Names) -> io::Result<()> {
    let directory = |at: &Path| {
        fs::DirBuilder::new().mode(0o700).create(at)?;
        fs::set_permissions(at, Permissions::from_mode(0o755))
    };
    directory(top)?;
    for (below, name) in names {
        let at = top.join(below);
        let new = || File::options().write(true).create_new(true).mode(0o600).open(&at);
        match name {
            Name::Directory => directory(&at)?,
            Name::Link(target) => std::os::unix::fs::symlink(target, &at)?,
            Name::Place => new()?.set_permissions(Permissions::from_mode(0o644))?,
            Name::Library { mode, size, modified } => {
                // Beyond the limit the kernel sends a signal that ends us.
                if *size > sys::limit::get(sys::limit::Resource::FileSize).map_err(of_errno)? {
                    return Err(io::Error::from(io::ErrorKind::FileTooLarge));
                }
                let file = new()?;
                let path = c_string(&at)?;
                let set = |name, value: &[u8]| {
                    sys::file::set_attribute(&path, name, value, 0).map_err(of_errno)
                };
                set(METACOPY, b"")?;
                set(REDIRECT, &redirect(below))?;
                file.set_len(*size)?;
                file.set_permissions(Permissions::from_mode(*mode))?;
                file.set_modified(*modified)?;
            }
        }
    }
    Ok(())
}

/// A name beside the skeletons, of something that this process makes or removes.
fn aside(place: &Path, what: &str) -> PathBuf {
    place.join(format!(".{what}-{}-{:08x}", std::process::id(), super::random()))
}

/// Takes a skeleton out of its place. Sandboxes that use it keep it; a sweep removes it when they are gone.
fn discard(place: &Path, path: &Path) -> io::Result<()> {
    match fs::rename(path, aside(place, "old")) {
        // By somebody else.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        moved => moved,
    }
}

/// Keeps their number bounded: of too many the oldest half goes; and what was discarded, or left by
/// processes that were killed, goes too. What a sandbox uses stays.
fn sweep(place: &Path) {
    let Ok(entries) = fs::read_dir(place) else { return };
    let mut all = Vec::new();
    for entry in entries.flatten() {
        match maker(&entry.file_name()) {
            Some(("old", _)) => remove(&entry.path(), None),
            // Nobody uses one that is not whole.
            Some((_, pid)) if sys::signal::kill(pid, 0) == Err(sys::Errno::ESRCH) => {
                let _ = fs::remove_dir_all(entry.path());
            }
            Some(_) => {}
            None => all.extend(
                entry
                    .metadata()
                    .and_then(|data| data.modified())
                    .ok()
                    .map(|modified| (modified, entry.path())),
            ),
        }
    }
    if all.len() < MOST {
        return;
    }
    all.sort();
    for (_, path) in &all[..all.len() / 2] {
        remove(path, Some(place));
    }
}

/// Removes what no sandbox uses; first it is moved out of its place, if it is in one. It is locked until it is
/// gone: whoever opened it before finds it locked, or, later, its path leading elsewhere.
fn remove(path: &Path, place: Option<&Path>) {
    let options = flags::DIRECTORY | flags::NO_FOLLOW;
    let opened = File::options().read(true).custom_flags(options as i32).open(path);
    let directory = match opened {
        Ok(directory) if directory.try_lock().is_ok() => directory,
        // No directory, or a link: of no use to anybody.
        Err(error) if is_no_directory(&error) => {
            let _ = fs::remove_file(path);
            return;
        }
        _ => return,
    };
    let Some(place) = place else {
        let _ = fs::remove_dir_all(path);
        return;
    };
    let old = aside(place, "old");
    if fs::rename(path, &old).is_ok() {
        let _ = fs::remove_dir_all(&old);
    }
    drop(directory);
}

fn is_no_directory(error: &io::Error) -> bool {
    let is = |errno: sys::Errno| error.raw_os_error() == Some(errno.into_raw());
    is(sys::Errno::ENOTDIR) || is(sys::Errno::ELOOP)
}

/// What something is that lies beside the skeletons, `new` or `old`, and whose.
fn maker(name: &OsStr) -> Option<(&str, i32)> {
    let (what, rest) = name.to_str()?.strip_prefix('.')?.split_once('-')?;
    let pid = rest.split_once('-')?.0.parse().ok()?;
    ["new", "old"].contains(&what).then_some((what, pid))
}

fn c_string(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::other("a name holds a zero byte"))
}

fn of_errno(errno: sys::Errno) -> io::Error {
    io::Error::from_raw_os_error(errno.into_raw())
}

/// Writes the steps that make the overlay, attached nowhere yet. The skeleton stays open, and locked, as long
/// as the process lives that carries them out.
pub(super) fn tree(script: &mut Script, path: &Path, skeleton: &Path) -> u8 {
    const LOCK_SHARED_AT_ONCE: u32 = 1 | 4;
    const CLOEXEC: u32 = 1;
    const SET_FLAG: u32 = 0;
    const SET_DESCRIPTOR: u32 = 5;
    const CREATE: u32 = 6;
    script.note(SHOW, Some(path));
    let names = script.open_directory(skeleton);
    script.call(Sysno::flock, &[Arg::Register(names), LOCK_SHARED_AT_ONCE.into()]);
    // One that was removed before it was locked would show nothing.
    let place = script.path(skeleton);
    script.step(special::LEADS_TO, &[Arg::Register(names), place]);
    let data = script.open_without_links(CWD, path);
    let kind = script.text(c"overlay");
    let context = script.open(Sysno::fsopen, &[kind, CLOEXEC.into()]);
    let configure = Arg::Register(context);
    let key = script.text(c"userxattr");
    script.call(Sysno::fsconfig, &[configure, SET_FLAG.into(), key]);
    for (key, layer) in [(c"lowerdir+", names), (c"datadir+", data)] {
        let (key, layer) = (script.text(key), Arg::Register(layer));
        script.call(Sysno::fsconfig, &[configure, SET_DESCRIPTOR.into(), key, 0_u32.into(), layer]);
    }
    script.call(Sysno::fsconfig, &[configure, CREATE.into()]);
    let attributes = READ_ONLY | NO_SUID | NO_DEVICES;
    let tree = script.open(Sysno::fsmount, &[configure, CLOEXEC.into(), attributes.into()]);
    script.close(context);
    script.close(data);
    tree
}
