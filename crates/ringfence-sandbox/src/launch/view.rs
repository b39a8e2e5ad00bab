//! Carries out the mount steps of a plan, in the child, in its own mount namespace.

#[path = "overlay.rs"]
mod overlay;

use crate::plan::{MountOp, MountStep};
use ringfence_net::Inspection;
use ringfence_net::inspect::Content;
use ringfence_sys as sys;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use sys::mount::Attributes;
use sys::{Errno, describe};

/// A failed step, as a sentence.
pub(super) type Failure = String;

fn failed<'a>(what: &'a str, path: &'a Path) -> impl Fn(Errno) -> Failure + 'a {
    move |errno| {
        let hint = match errno {
            Errno::ELOOP => "; a component became a symbolic link after the policy was resolved",
            Errno::ENOENT => "; it vanished after the policy was resolved",
            Errno::EPERM => {
                "; the kernel or a container around us forbids it (see ringfence doctor)"
            }
            Errno::ENOSPC => "; fs.mount-max or the disk is exhausted",
            _ => "",
        };
        format!("cannot {what} {}: {} ({errno:?}){hint}", path.display(), describe(errno))
    }
}

fn c_string(path: &Path) -> Result<CString, Failure> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| format!("a path holds a NUL byte: {}", path.display()))
}

/// The path relative to the root, for calls on the new root's descriptor.
fn relative(path: &Path) -> Result<CString, Failure> {
    c_string(path.strip_prefix("/").unwrap_or(path))
}

/// The new root while it is built.
struct Building<'a> {
    /// The memory-backed file system from which everything private is taken.
    memory: OwnedFd,
    /// The root of the view: the same, or the host's tree on it.
    root: OwnedFd,
    /// The view is the host's tree.
    host: bool,
    /// Directories bound so far: what is below them exists already.
    bound: Vec<PathBuf>,
    /// The last directory made, so that its parents are not made again.
    made: PathBuf,
    /// Sources for masks, once one is needed.
    masks: Option<(OwnedFd, OwnedFd)>,
    /// Private directories made on the side of a host root.
    aside: u32,
    /// Makes the files of the session's own.
    inspection: Option<&'a Inspection>,
}

/// The most bytes of a file of the session's own.
const DATA: usize = 64 << 20;

/// Builds the view and makes it the root directory.
pub(super) fn build(
    steps: &[MountStep],
    inspection: Option<&Inspection>,
) -> Result<(), Failure> {
    sys::mount::make_private().map_err(failed("separate mounts from", Path::new("/")))?;
    let Some((first, rest)) = steps.split_first() else {
        return Err("the plan has no root".to_owned());
    };
    let mut building = Building::new(&first.op, inspection)?;
    for step in rest {
        building.step(step)?;
    }
    building.finish()
}

impl<'a> Building<'a> {
    fn new(
        root: &MountOp,
        inspection: Option<&'a Inspection>,
    ) -> Result<Building<'a>, Failure> {
        let size = match root {
            MountOp::Root { size: Some(bytes) } => format!("{bytes}"),
            _ => "50%".to_owned(),
        };
        let size = CString::new(size).unwrap_or_default();
        let options = [(c"mode", Some(c"0755")), (c"size", Some(size.as_c_str()))];
        let attributes = Attributes::NO_SUID.and(Attributes::NO_DEVICES);
        let at_root = failed("make a root directory on", Path::new("/"));
        let memory =
            sys::mount::new_file_system(c"tmpfs", &options, attributes).map_err(&at_root)?;
        let old = sys::mount::handle(c"/").map_err(&at_root)?;
        let host = *root == MountOp::HostRoot;
        let tree = if host {
            let attributes = attributes.and(Attributes::READ_ONLY);
            Some(sys::mount::copy_tree(old.as_fd(), c"", true, attributes).map_err(&at_root)?)
        } else {
            None
        };
        // Stacked on the old root, which path lookups go on seeing underneath.
        sys::mount::attach(&memory, old.as_fd(), c"").map_err(&at_root)?;
        let root = match tree {
            Some(tree) => {
                sys::mount::make_directory(memory.as_fd(), c"root", 0o755).map_err(&at_root)?;
                sys::mount::attach(&tree, memory.as_fd(), c"root").map_err(&at_root)?;
                tree
            }
            None => memory
                .try_clone()
                .map_err(|error| format!("cannot make a root directory: {error}"))?,
        };
        Ok(Building {
            memory,
            root,
            host,
            bound: Vec::new(),
            made: PathBuf::from("/"),
            masks: None,
            aside: 0,
            inspection,
        })
    }

    fn step(&mut self, step: &MountStep) -> Result<(), Failure> {
        let path = step.path.as_path();
        match &step.op {
            MountOp::Root { .. } | MountOp::HostRoot => Ok(()),
            MountOp::Private { mode } => self.private(path, *mode),
            MountOp::Symlink { target } => self.symlink(path, target),
            MountOp::Bind { directory, read_only, devices } => {
                let mut attributes = Attributes::NO_SUID;
                if *read_only {
                    attributes = attributes.and(Attributes::READ_ONLY);
                }
                if !devices {
                    attributes = attributes.and(Attributes::NO_DEVICES);
                }
                self.bind(path, path, *directory, attributes)?;
                self.bound.push(path.to_owned());
                Ok(())
            }
            MountOp::Overlay { directory, apart } => {
                let tree = overlay::tree(path, *directory, apart, self.memory.as_fd())?;
                self.make_target(path, *directory)?;
                self.attach(&tree, path)?;
                self.bound.push(path.to_owned());
                Ok(())
            }
            MountOp::NamedHome { from } => {
                let attributes = Attributes::NO_SUID.and(Attributes::NO_DEVICES);
                self.bind(from, path, true, attributes)
            }
            MountOp::Console { from } => self.bind(from, path, false, Attributes::NO_SUID),
            MountOp::Proc => {
                let all = Attributes::NO_SUID.and(Attributes::NO_DEVICES).and(Attributes::NO_EXEC);
                self.file_system(path, c"proc", &[], all)?;
                self.bound.push(path.to_owned());
                Ok(())
            }
            MountOp::Terminals => {
                let options = [
                    (c"newinstance", None),
                    (c"ptmxmode", Some(c"0666")),
                    (c"mode", Some(c"0620")),
                ];
                let attributes = Attributes::NO_SUID.and(Attributes::NO_EXEC);
                self.file_system(path, c"devpts", &options, attributes)
            }
            MountOp::Pin => self.hold(path, Attributes::NONE),
            MountOp::Protect => self.hold(path, Attributes::READ_ONLY),
            MountOp::Mask { directory } => self.mask(path, *directory),
            MountOp::Data { content } => self.data(path, *content),
        }
    }

    /// Whether the path lies in a tree of the host that was bound already, so that nothing is
    /// to be made there.
    fn exists_already(&self, path: &Path) -> bool {
        self.host || self.bound.iter().any(|bound| path != bound && path.starts_with(bound))
    }

    fn make_parents(&mut self, path: &Path) -> Result<(), Failure> {
        let Some(parent) = path.parent() else { return Ok(()) };
        if self.made.starts_with(parent) || self.exists_already(path) {
            return Ok(());
        }
        let mut at = PathBuf::from("/");
        for component in parent.components().skip(1) {
            at.push(component);
            if !self.made.starts_with(&at) {
                let name = relative(&at)?;
                sys::mount::make_directory(self.root.as_fd(), &name, 0o755)
                    .map_err(failed("make the directory", &at))?;
            }
        }
        self.made = at;
        Ok(())
    }

    fn make_target(&mut self, path: &Path, directory: bool) -> Result<(), Failure> {
        self.make_parents(path)?;
        if self.exists_already(path) {
            return Ok(());
        }
        let name = relative(path)?;
        if directory {
            sys::mount::make_directory(self.root.as_fd(), &name, 0o755)
                .map_err(failed("make the directory", path))?;
            self.made = path.to_owned();
            Ok(())
        } else {
            sys::mount::make_file(self.root.as_fd(), &name, 0o644)
                .map_err(failed("make a place for", path))
        }
    }

    /// Attaches a tree at a path of the view. Inside a bound tree, whose content a sandboxed
    /// program may be changing at this moment, no component may be a link.
    fn attach(&self, tree: &OwnedFd, path: &Path) -> Result<(), Failure> {
        let name = relative(path)?;
        if self.exists_already(path) {
            let target = self.open_in_view(&name).map_err(failed("find", path))?;
            sys::mount::attach(tree, target.as_fd(), c"").map_err(failed("mount on", path))
        } else {
            sys::mount::attach(tree, self.root.as_fd(), &name).map_err(failed("mount on", path))
        }
    }

    fn open_in_view(&self, name: &CStr) -> sys::Result<OwnedFd> {
        sys::fd::open_without_links(self.root.as_raw_fd(), name, sys::fd::PATH_ONLY)
    }

    fn bind(
        &mut self,
        from: &Path,
        to: &Path,
        directory: bool,
        attributes: Attributes,
    ) -> Result<(), Failure> {
        let source =
            sys::fd::open_without_links(sys::fd::CWD, &c_string(from)?, sys::fd::PATH_ONLY)
                .map_err(failed("open", from))?;
        let tree = sys::mount::copy_tree(source.as_fd(), c"", true, attributes)
            .map_err(failed("bind", from))?;
        self.make_target(to, directory)?;
        self.attach(&tree, to)
    }

    fn file_system(
        &mut self,
        path: &Path,
        kind: &CStr,
        options: &[sys::mount::FsOption<'_>],
        attributes: Attributes,
    ) -> Result<(), Failure> {
        let made = sys::mount::new_file_system(kind, options, attributes)
            .map_err(failed("make the file system for", path))?;
        self.make_target(path, true)?;
        self.attach(&made, path)
    }

    /// A directory of the memory-backed file system, as a mount of its own that stays writable
    /// when the root is made read-only.
    fn private(&mut self, path: &Path, mode: u32) -> Result<(), Failure> {
        let attributes = Attributes::NO_SUID.and(Attributes::NO_DEVICES);
        let umask = sys::process::set_umask(0);
        let source = if self.host {
            self.aside += 1;
            let name = CString::new(format!("private-{}", self.aside)).unwrap_or_default();
            sys::mount::make_directory(self.memory.as_fd(), &name, mode)
                .map_err(failed("make the directory", path))?;
            name
        } else {
            self.make_parents(path)?;
            let name = relative(path)?;
            sys::mount::make_directory(self.root.as_fd(), &name, mode)
                .map_err(failed("make the directory", path))?;
            name
        };
        sys::process::set_umask(umask);
        let from: BorrowedFd<'_> = if self.host { self.memory.as_fd() } else { self.root.as_fd() };
        let tree = sys::mount::copy_tree(from, &source, false, attributes)
            .map_err(failed("make private", path))?;
        self.attach(&tree, path)
    }

    fn symlink(&mut self, path: &Path, target: &Path) -> Result<(), Failure> {
        self.make_parents(path)?;
        if self.exists_already(path) {
            return Ok(());
        }
        match sys::mount::make_symlink(&c_string(target)?, self.root.as_fd(), &relative(path)?) {
            Ok(()) | Err(Errno::EEXIST) => Ok(()),
            Err(errno) => Err(failed("make the link", path)(errno)),
        }
    }

    /// Binds a path of the view onto itself.
    fn hold(&self, path: &Path, attributes: Attributes) -> Result<(), Failure> {
        let target = self.open_in_view(&relative(path)?).map_err(failed("find", path))?;
        let attributes = attributes.and(Attributes::NO_SUID).and(Attributes::NO_DEVICES);
        let tree = sys::mount::copy_tree(target.as_fd(), c"", true, attributes)
            .map_err(failed("protect", path))?;
        sys::mount::attach(&tree, target.as_fd(), c"").map_err(failed("protect", path))
    }

    fn mask(&mut self, path: &Path, directory: bool) -> Result<(), Failure> {
        let at = failed("mask", path);
        if self.masks.is_none() {
            let memory = self.memory.as_fd();
            sys::mount::make_file(memory, c".mask-file", 0).map_err(&at)?;
            sys::mount::make_directory(memory, c".mask-directory", 0).map_err(&at)?;
            let open =
                |name| sys::fd::open_without_links(memory.as_raw_fd(), name, sys::fd::PATH_ONLY);
            self.masks =
                Some((open(c".mask-file").map_err(&at)?, open(c".mask-directory").map_err(&at)?));
        }
        let Some((file, empty)) = &self.masks else { return Ok(()) };
        let source = if directory { empty } else { file };
        let attributes = Attributes::READ_ONLY.and(Attributes::NO_SUID).and(Attributes::NO_DEVICES);
        let tree =
            sys::mount::copy_tree(source.as_fd(), c"", false, attributes.and(Attributes::NO_EXEC))
                .map_err(&at)?;
        let target = self.open_in_view(&relative(path)?).map_err(&at)?;
        sys::mount::attach(&tree, target.as_fd(), c"").map_err(at)
    }

    /// A file of the session's own, made on the side and bound read-only to its place.
    fn data(&mut self, path: &Path, content: Content) -> Result<(), Failure> {
        let at = failed("put the session's certificates at", path);
        let Some(inspection) = self.inspection else {
            return Err("the plan inspects requests, and the launcher does not".to_owned());
        };
        inspection.wait()?;
        let bytes = sys::fd::content(inspection.content(content), DATA).map_err(&at)?;
        let memory = self.memory.as_fd();
        sys::mount::make_file(memory, c".data", 0o444).map_err(&at)?;
        let file = sys::fd::open_at(memory.as_raw_fd(), c".data", sys::fd::WRITE_ONLY, 0);
        sys::fd::write_all(file.map_err(&at)?.as_fd(), &bytes).map_err(&at)?;
        let attributes = Attributes::READ_ONLY.and(Attributes::NO_SUID).and(Attributes::NO_DEVICES);
        let tree = sys::mount::copy_tree(memory, c".data", false, attributes).map_err(&at)?;
        self.make_target(path, false)?;
        let target = self.open_in_view(&relative(path)?).map_err(&at)?;
        sys::mount::attach(&tree, target.as_fd(), c"").map_err(&at)?;
        sys::mount::remove(self.memory.as_fd(), c".data", false).map_err(at)
    }

    fn finish(self) -> Result<(), Failure> {
        let at = failed("enter", Path::new("/"));
        if self.masks.is_some() {
            sys::mount::remove(self.memory.as_fd(), c".mask-file", false).map_err(&at)?;
            sys::mount::remove(self.memory.as_fd(), c".mask-directory", true).map_err(&at)?;
        }
        if !self.host {
            sys::mount::set_attributes(&self.root, Attributes::READ_ONLY, false).map_err(&at)?;
        }
        sys::mount::change_root(self.root.as_fd()).map_err(at)
    }
}
