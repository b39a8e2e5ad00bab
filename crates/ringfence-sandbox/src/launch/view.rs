//! The mount steps of a plan as system calls, for the child in its own mount namespace: the
//! mount API of Linux 5.2 (`fsopen`, `open_tree`, `move_mount`, `mount_setattr`), descriptors
//! instead of paths, a whole tree made read-only in one call.

mod masks;
mod own;

use super::cover::Covers;
use super::failure::{KEEP_APART, MAKE_FILE_SYSTEM, OPEN};
use super::mounts::{
    EEXIST, O_CLOEXEC, attach, copy_tree, make_directory, make_file, make_private, memory_options,
    most_files, new_file_system, relative, remove, set_attributes,
};
use super::overlay::{self, Layered};
use super::script::{Arg, CWD, Part, Script};
use super::shelf::Shelf;
use super::skeleton::{self, Skeletons};
use crate::plan::{MountOp, MountStep, Plan};
use ringfence_policy::Overlay;
use ringfence_policy::path::within;
use ringfence_start::{Sysno, flags};
use ringfence_sys::mount::attribute::{NO_DEVICES, NO_EXEC, NO_SUID, READ_ONLY};
use std::ffi::{CStr, CString};
use std::path::{Path, PathBuf};

/// What masks are made of: a file and a directory, whose names are gone when the view is finished.
const MASKS: [&str; 2] = [".mask-file", ".mask-directory"];

/// The new root while it is built.
struct Building<'a> {
    script: &'a mut Script,
    /// The memory-backed file system from which everything private is taken.
    memory: u8,
    /// The root of the view: the same, or the host's tree on it.
    root: u8,
    /// What each memory-backed file system may hold, as its option.
    size: CString,
    /// And so many files and directories, where the size is the user's choice.
    files: Option<CString>,
    /// The view is the host's tree.
    host: bool,
    /// Directories bound so far: what is below them exists already.
    bound: Vec<PathBuf>,
    /// Directories of the sandbox's own over the host's: nothing of what is there is in them.
    emptied: Vec<PathBuf>,
    /// Private directories that are closed to other users: what is made in them is closed too.
    closed: Vec<PathBuf>,
    /// A home that is kept: programs of earlier runs made what is in it, links too.
    kept: Option<PathBuf>,
    /// The last directory made, so that its parents are not made again.
    made: PathBuf,
    /// Masks of files and of directories that are mounted already: others are copies of them.
    masks: [Option<u8>; 2],
    /// The directory of the last mask, left open for the next one.
    masked: Option<(PathBuf, u8)>,
    /// Private directories made on the side of a host root.
    aside: u32,
    /// Directories shown by their parts.
    shelf: Shelf,
    /// Those of them that lie in a bound tree.
    covers: Covers,
    /// And those that an overlay shows.
    skeletons: &'a Skeletons,
    /// What is written to layers is dropped with the run.
    dropped: bool,
}

/// Whether a path of a plan is in a tree, and not the tree itself.
pub(super) fn is_inside(path: &Path, tree: &Path) -> bool {
    path.as_os_str() != tree.as_os_str() && within(path, tree)
}

/// Writes the steps that build the view and make it the root directory.
pub(super) fn write(script: &mut Script, plan: &Plan, skeletons: &Skeletons) {
    script.note("separate mounts from", Some(Path::new("/")));
    make_private(script);
    let Some((first, rest)) = plan.mounts.split_first() else { return };
    let mut building = Building::new(script, &first.op, rest, skeletons);
    building.dropped = plan.overlay.as_ref().is_some_and(|apart| apart.end == Overlay::Discard);
    if !building.host {
        building.covers.begin(building.script, building.root);
    }
    for step in rest {
        building.step(step);
    }
    building.finish();
}

impl<'a> Building<'a> {
    fn new(
        script: &'a mut Script,
        root: &MountOp,
        rest: &[MountStep],
        skeletons: &'a Skeletons,
    ) -> Building<'a> {
        script.note("make a root directory on", Some(Path::new("/")));
        let (size, files) = match root {
            MountOp::Root { size: Some(bytes) } | MountOp::HostRoot { size: Some(bytes) } => {
                (format!("{bytes}"), Some(most_files(*bytes)))
            }
            _ => ("50%".to_owned(), None),
        };
        let size = CString::new(size).unwrap_or_default();
        let files = files.map(|files| CString::new(files.to_string()).unwrap_or_default());
        let attributes = NO_SUID | NO_DEVICES;
        let options = memory_options(c"0755", &size, files.as_deref());
        let memory = new_file_system(script, c"tmpfs", &options, attributes);
        let slash = script.text(c"/");
        const O_PATH_NOFOLLOW: u32 = 0o10_000_000 | flags::NO_FOLLOW | O_CLOEXEC;
        let old = script.open(Sysno::openat, &[CWD, slash, O_PATH_NOFOLLOW.into()]);
        let host = matches!(root, MountOp::HostRoot { .. });
        let tree =
            host.then(|| copy_tree(script, old, Path::new(""), true, attributes | READ_ONLY));
        // Stacked on the old root, which path lookups go on seeing underneath.
        attach(script, memory, old, Path::new(""));
        script.close(old);
        let root = match tree {
            Some(tree) => {
                make_directory(script, memory, Path::new("root"), 0o755);
                attach(script, tree, memory, Path::new("root"));
                tree
            }
            None => memory,
        };
        Building {
            script,
            memory,
            root,
            size,
            files,
            host,
            bound: Vec::new(),
            emptied: Vec::new(),
            closed: Vec::new(),
            kept: None,
            made: PathBuf::from("/"),
            masks: [None; 2],
            masked: None,
            aside: 0,
            shelf: Shelf::new(rest),
            covers: Covers::new(rest),
            skeletons,
            dropped: false,
        }
    }

    /// A tree whose writes go to a layer, attached nowhere yet.
    fn layered(&mut self, path: &Path, directory: bool, apart: &Path) -> u8 {
        self.script.note(KEEP_APART, Some(path));
        let layered = Layered { path, directory, apart, dropped: self.dropped };
        overlay::tree(self.script, &layered, self.memory)
    }

    fn step(&mut self, step: &MountStep) {
        let path = step.path.as_path();
        // What is mounted meanwhile may be mounted over it.
        if !matches!(step.op, MountOp::Mask { .. }) {
            self.leave_masked();
        }
        match &step.op {
            // A library is a name in a skeleton.
            MountOp::Root { .. } | MountOp::HostRoot { .. } | MountOp::Library => {}
            MountOp::Private { mode } => self.private(path, *mode),
            MountOp::Symlink { target } => self.symlink(path, target),
            MountOp::Bind { directory, read_only, devices } => {
                let mut attributes = NO_SUID;
                if *read_only {
                    attributes |= READ_ONLY;
                }
                if !devices {
                    attributes |= NO_DEVICES;
                }
                let part = (*read_only && !devices)
                    .then(|| self.shelf.take(self.script, path, attributes));
                match part.flatten() {
                    Some(part) => {
                        self.make_target(path, *directory);
                        self.prepare_covers(path);
                        self.attach(part, path);
                    }
                    None => self.bind(path, path, *directory, attributes),
                }
                // Nothing is below a file; with hundreds of libraries that makes a difference.
                if *directory {
                    self.bound.push(path.to_owned());
                }
            }
            MountOp::Overlay { directory, apart } => {
                let tree = self.layered(path, *directory, apart);
                self.make_target(path, *directory);
                self.attach(tree, path);
                self.bound.push(path.to_owned());
            }
            MountOp::NamedHome { from, apart: None } => {
                self.bind(from, path, true, NO_SUID | NO_DEVICES);
                self.emptied.push(path.to_owned());
                self.kept = Some(path.to_owned());
            }
            MountOp::NamedHome { from, apart: Some(apart) } => {
                let tree = self.layered(from, true, apart);
                self.make_target(path, true);
                self.attach(tree, path);
                self.emptied.push(path.to_owned());
                self.kept = Some(path.to_owned());
            }
            MountOp::Console { from } => self.bind(from, path, false, NO_SUID | READ_ONLY),
            MountOp::Cover => {
                self.script.note("find", Some(path));
                let place = self.open_in_view(path);
                let laid = self.covers.lay(self.script, path, place);
                self.script.close(place);
                if !laid {
                    self.mask(path, true, false);
                }
            }
            MountOp::Skeleton => {
                // Without its own the start fails: nothing of it is to be shown.
                let skeleton = self.skeletons.get(path).map_or(Path::new(""), PathBuf::as_path);
                let tree = skeleton::tree(self.script, path, skeleton);
                self.attach(tree, path);
            }
            MountOp::Proc => {
                self.file_system(path, c"proc", &[], NO_SUID | NO_DEVICES | NO_EXEC);
                self.bound.push(path.to_owned());
            }
            MountOp::Terminals => {
                let options = [
                    (c"newinstance", None),
                    (c"ptmxmode", Some(c"0666")),
                    (c"mode", Some(c"0620")),
                ];
                self.file_system(path, c"devpts", &options, NO_SUID | NO_EXEC);
            }
            MountOp::Pin => {
                self.make_target(path, true);
                self.hold(path, false, 0);
            }
            MountOp::PinLink => self.hold(path, true, 0),
            MountOp::Protect => self.hold(path, false, READ_ONLY),
            MountOp::Emptied => {
                let options = memory_options(c"0700", &self.size, self.files.as_deref());
                let made = new_file_system(self.script, c"tmpfs", &options, NO_SUID | NO_DEVICES);
                self.attach(made, path);
            }
            MountOp::Mask { directory } => self.mask(path, *directory, false),
            MountOp::MaskLink => self.mask(path, false, true),
            MountOp::Data { content } => self.data(path, *content),
            MountOp::Besides(besides) => self.besides(path, besides),
            MountOp::Gateway => self.gateway(path),
            MountOp::Bus => self.bus(path),
        }
    }

    /// Whether the path lies in a tree of the host that was bound already, so that nothing is
    /// to be made there.
    fn exists_already(&self, path: &Path) -> bool {
        let open = |bound: &PathBuf| self.covers.over(path).is_none_or(|over| !within(over, bound));
        let exists = |bound: &PathBuf| is_inside(path, bound) && open(bound);
        match self.emptied.iter().rfind(|own| is_inside(path, own)) {
            Some(own) => self.bound.iter().any(|bound| within(bound, own) && exists(bound)),
            None => self.host || self.bound.iter().any(exists),
        }
    }

    /// Whether no component of a path may be followed while it is built.
    fn is_kept(&self, path: &Path) -> bool {
        let below = self.kept.as_deref().is_some_and(|kept| is_inside(path, kept));
        below && !self.exists_already(path) && self.covers.over(path).is_none()
    }

    /// Whether a path is made in a directory of the sandbox's own, on the way to which others may put links: from that
    /// directory, opened without any.
    fn is_apart(&self, path: &Path) -> bool {
        let below = self.emptied.iter().any(|own| is_inside(path, own));
        below && !self.exists_already(path) && self.covers.over(path).is_none()
    }

    /// The directory from which a path is named while it is built, and its name from there. To be left.
    fn place<'p>(&mut self, path: &'p Path) -> (u8, &'p Path) {
        if self.is_apart(path)
            && let (Some(parent), Some(name)) = (path.parent(), path.file_name())
        {
            return (self.open_in_view(parent), Path::new(name));
        }
        self.covers.place(path).unwrap_or_else(|| (self.root, relative(path)))
    }

    fn leave(&mut self, path: &Path, directory: u8) {
        if self.is_apart(path) {
            self.script.close(directory);
        }
    }

    fn make_parents(&mut self, path: &Path) {
        let Some(parent) = path.parent() else { return };
        if within(&self.made, parent) || self.exists_already(path) {
            return;
        }
        let top = self.covers.over(path).unwrap_or_else(|| Path::new("/"));
        let mut at = top.to_path_buf();
        for component in parent.strip_prefix(top).unwrap_or(parent).components() {
            at.push(component);
            if !self.made.starts_with(&at) {
                self.script.note("make the directory", Some(&at));
                let (directory, name) = self.place(&at);
                self.covers.makes(self.script, &at);
                // Programs look at whose their directories are, and at who may write there (`~/.gnupg`).
                let closed = self.closed.iter().any(|own| is_inside(&at, own));
                make_directory(self.script, directory, name, if closed { 0o700 } else { 0o755 });
                self.leave(&at, directory);
                self.script.part(Part::Build);
            }
        }
        self.made = at;
    }

    fn make_target(&mut self, path: &Path, directory: bool) {
        self.make_parents(path);
        if self.exists_already(path) {
            return;
        }
        let (parent, name) = self.place(path);
        self.covers.makes(self.script, path);
        if directory {
            self.script.note("make the directory", Some(path));
            make_directory(self.script, parent, name, 0o755);
            self.made = path.to_owned();
        } else {
            self.script.note("make a place for", Some(path));
            make_file(self.script, parent, name, 0o644);
        }
        self.leave(path, parent);
        self.script.part(Part::Build);
    }

    /// Attaches a tree at a path of the view and lets go of it. Inside a bound tree, whose
    /// content a sandboxed program may be changing at this moment, no component may be a link.
    fn attach(&mut self, tree: u8, path: &Path) {
        if self.exists_already(path) || self.is_apart(path) {
            self.script.note("find", Some(path));
            let target = self.open_in_view(path);
            self.script.note("mount on", Some(path));
            attach(self.script, tree, target, Path::new(""));
            self.script.close(target);
        } else {
            self.script.note("mount on", Some(path));
            let (directory, name) = self.place(path);
            attach(self.script, tree, directory, name);
        }
        self.script.close(tree);
    }

    fn prepare_covers(&mut self, tree: &Path) {
        // Nothing is made over links; without its cover a directory is hidden whole.
        if !self.is_kept(tree) {
            self.covers.prepare(self.script, self.root, tree);
        }
    }

    fn open_in_view(&mut self, path: &Path) -> u8 {
        self.script.open_without_links(Arg::Register(self.root), relative(path))
    }

    fn bind(&mut self, from: &Path, to: &Path, directory: bool, attributes: u64) {
        self.script.note(OPEN, Some(from));
        let source = self.script.open_without_links(CWD, from);
        self.script.note("bind", Some(from));
        let tree = copy_tree(self.script, source, Path::new(""), true, attributes);
        self.script.close(source);
        self.make_target(to, directory);
        self.prepare_covers(to);
        self.attach(tree, to);
    }

    fn file_system(
        &mut self,
        path: &Path,
        kind: &CStr,
        options: &[(&CStr, Option<&CStr>)],
        attributes: u64,
    ) {
        self.script.note(MAKE_FILE_SYSTEM, Some(path));
        let made = new_file_system(self.script, kind, options, attributes);
        self.make_target(path, true);
        self.attach(made, path);
    }

    /// A directory of the memory-backed file system, as a mount of its own that stays writable
    /// when the root is made read-only.
    fn private(&mut self, path: &Path, mode: u32) {
        if mode.trailing_zeros() >= 6 {
            self.closed.push(path.to_owned());
        }
        let kept = self.is_kept(path);
        if kept || !self.host && self.exists_already(path) {
            // What is in a kept home would be kept, and what is there in a tree of the host's is the host's.
            let mode = CString::new(format!("{mode:o}")).unwrap_or_default();
            let (size, files) = (self.size.clone(), self.files.clone());
            let options = memory_options(&mode, &size, files.as_deref());
            self.file_system(path, c"tmpfs", &options, NO_SUID | NO_DEVICES);
            if !kept {
                self.emptied.push(path.to_owned());
            }
            return;
        }
        let (from, source) = if self.host {
            self.make_target(path, true);
            self.emptied.push(path.to_owned());
            self.aside += 1;
            (self.memory, PathBuf::from(format!("private-{}", self.aside)))
        } else {
            self.make_parents(path);
            (self.root, relative(path).to_path_buf())
        };
        self.script.note("make the directory", Some(path));
        self.script.call(Sysno::umask, &[0_u32.into()]);
        make_directory(self.script, from, &source, mode);
        self.script.call(Sysno::umask, &[0o022_u32.into()]);
        self.script.note("make private", Some(path));
        let tree = copy_tree(self.script, from, &source, false, NO_SUID | NO_DEVICES);
        self.attach(tree, path);
    }

    fn symlink(&mut self, path: &Path, target: &Path) {
        self.make_parents(path);
        if self.exists_already(path) {
            return;
        }
        self.script.note("make the link", Some(path));
        let (place, name) = self.place(path);
        let (target, name) = (self.script.path(target), self.script.path(name));
        let directory = Arg::Register(place);
        self.covers.makes(self.script, path);
        self.script.call(Sysno::symlinkat, &[target, directory, name]).tolerated[0] = EEXIST;
        self.leave(path, place);
        self.script.part(Part::Build);
    }

    /// A path of the view, which may be a symbolic link where that is said.
    fn open_itself(&mut self, path: &Path, link: bool) -> u8 {
        match link {
            true => self.script.open_link(Arg::Register(self.root), relative(path)),
            false => self.open_in_view(path),
        }
    }

    /// Binds a path of the view onto itself, a symbolic link too where it is one.
    fn hold(&mut self, path: &Path, link: bool, attributes: u64) {
        self.script.note("find", Some(path));
        let target = self.open_itself(path, link);
        self.script.note("protect", Some(path));
        let attributes = attributes | NO_SUID | NO_DEVICES;
        let tree = copy_tree(self.script, target, Path::new(""), true, attributes);
        attach(self.script, tree, target, Path::new(""));
        self.script.close(tree);
        self.script.close(target);
    }

    fn finish(mut self) {
        self.leave_masked();
        self.shelf.put_away(self.script);
        self.covers.seal(self.script);
        let script = self.script;
        script.note("enter", Some(Path::new("/")));
        for (number, mask) in self.masks.into_iter().enumerate() {
            let Some(mask) = mask else { continue };
            // What is removed could not be mounted any more.
            remove(script, self.memory, Path::new(MASKS[number]), number == 1);
            script.close(mask);
        }
        if !self.host {
            set_attributes(script, self.root, READ_ONLY, false);
        }
        change_root(script, self.root, self.host);
        script.close(self.root);
        if self.host {
            script.close(self.memory);
        }
    }
}

/// Makes the mount behind `root` the root directory. The former one is stacked on it, and let go of right before
/// the command executes ([`ringfence_start::beside`]): from then on nothing of the host's tree can be named that was
/// not put into the new one. In between lies the file system of which private directories are made, where the root is
/// the host's tree: what is unmounted then is what lies on top.
fn change_root(script: &mut Script, root: u8, between: bool) {
    let (dot, slash) = (script.text(c"."), script.text(c"/"));
    script.call(Sysno::fchdir, &[Arg::Register(root)]);
    // pivot_root(".", "."), see pivot_root(2) NOTES.
    script.call(Sysno::pivot_root, &[dot, dot]);
    script.call(Sysno::chdir, &[slash]);
    if between {
        const MNT_DETACH: u32 = 2;
        script.call(Sysno::umount2, &[slash, MNT_DETACH.into()]);
    }
}
