//! The facts of the host that a plan depends on. Tests mask them to simulate old kernels and
//! closed-down machines; nothing else in the planner looks at the host.

use crate::planner::glob;
use ringfence_policy::gitread::{self, Said};
use ringfence_sys as sys;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What a path is, its last link not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing, or nothing that may be looked at.
    Absent,
    /// A regular file, socket, FIFO or device.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, with its text.
    Symlink(PathBuf),
}

/// The file system, as far as a plan needs to look at it.
pub trait PathFacts {
    /// What a path is, its last link not followed.
    fn kind(&self, path: &Path) -> Kind;
    /// The names in a directory, sorted; none when it cannot be read.
    fn list(&self, path: &Path) -> Vec<OsString>;
    /// Symbolic links in a directory, `most` of them.
    fn links(&self, path: &Path, most: usize) -> Vec<OsString>;
    /// Which of the wanted names, each a name or a pattern of `*` and `?`, a directory has; none
    /// when it has more than `most` names: no more than that is read.
    fn among(&self, path: &Path, wanted: &[&str], most: usize) -> Option<BTreeSet<OsString>>;
    /// The text of a small regular file.
    fn text(&self, path: &Path) -> Option<String>;
    /// What a file of git's says, a configuration or one that leads to one.
    fn git(&self, path: &Path) -> Said;
    /// Whether what is at a path looks like a program.
    fn program(&self, path: &Path) -> bool;
    /// The Unix sockets among the first `most` entries of a directory.
    fn sockets(&self, path: &Path, most: usize) -> Vec<PathBuf>;
    /// The directory of the user's own that keeps it from being known whether something is at a path: whoever
    /// runs as the user can open it again.
    fn closed(&self, path: &Path) -> Option<PathBuf>;
    /// Whether a path is a directory of the user's own whose names cannot be read.
    fn unlisted(&self, path: &Path) -> bool;
    /// Whose a directory is that is not root's, and that only he and his group may write.
    fn foreign(&self, _: &Path) -> Option<u32> {
        None
    }
}

/// Whether a failed look means that nothing is at the path; after any other one it is not known what is.
pub(crate) fn nothing(error: &io::Error) -> bool {
    let known =
        [sys::Errno::ENOENT, sys::Errno::ENOTDIR, sys::Errno::ELOOP, sys::Errno::ENAMETOOLONG];
    // Without a number it is a name that no file has.
    error.raw_os_error().is_none_or(|number| known.iter().any(|known| known.into_raw() == number))
}

/// Whether something is a directory of the user's own, its last link not followed.
fn is_own(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|data| data.is_dir() && data.uid() == user())
}

/// Why no call can be supervised inside another sandbox: a process has one listener (seccomp_unotify(2), `EBUSY`).
const TOLD_ALREADY: &str =
    "a sandbox or container around this one is told of calls already, and there is room for one";

impl Facts {
    /// What to do where calls cannot be supervised.
    pub fn notify_remedy(&self) -> &'static str {
        match &self.seccomp_notify {
            Availability::No(why) if why == TOLD_ALREADY => "start it outside of that one",
            _ => "use a newer kernel",
        }
    }
}

/// The real file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostPaths;

impl PathFacts for HostPaths {
    fn kind(&self, path: &Path) -> Kind {
        seen(path).unwrap_or(Kind::Absent)
    }

    fn list(&self, path: &Path) -> Vec<OsString> {
        let Ok(entries) = path.read_dir() else { return Vec::new() };
        let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
        names.sort();
        names
    }

    fn links(&self, path: &Path, most: usize) -> Vec<OsString> {
        let entries = path.read_dir().into_iter().flatten().flatten();
        let link =
            |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_symlink());
        entries.filter(link).map(|entry| entry.file_name()).take(most).collect()
    }

    fn among(&self, path: &Path, wanted: &[&str], most: usize) -> Option<BTreeSet<OsString>> {
        let entries = path.read_dir().ok()?.take(most + 1).flatten();
        let names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
        (names.len() <= most).then(|| wanted_of(names, wanted))
    }

    fn text(&self, path: &Path) -> Option<String> {
        ringfence_policy::FileView::text(&ringfence_policy::HostFiles, path, 1 << 20).ok()
    }

    fn git(&self, path: &Path) -> Said {
        gitread::read_for(user(), &ringfence_policy::HostFiles, path)
    }

    fn program(&self, path: &Path) -> bool {
        ringfence_policy::files::is_program(path)
    }

    fn sockets(&self, path: &Path, most: usize) -> Vec<PathBuf> {
        let entries = path.read_dir().into_iter().flatten().take(most).flatten();
        let socket =
            |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_socket());
        entries.filter(socket).map(|entry| entry.path()).collect()
    }

    fn closed(&self, path: &Path) -> Option<PathBuf> {
        path.symlink_metadata().err().filter(|error| !nothing(error))?;
        let above = path.ancestors().skip(1).find(|above| above.symlink_metadata().is_ok())?;
        // Nobody inside can open what is somebody else's.
        is_own(above).then(|| above.to_owned())
    }

    fn unlisted(&self, path: &Path) -> bool {
        path.read_dir().is_err_and(|error| !nothing(&error)) && is_own(path)
    }

    fn foreign(&self, path: &Path) -> Option<u32> {
        let data = path.symlink_metadata().ok().filter(|data| data.is_dir())?;
        // What a list grants beside (acl(5)) is in the bits of the group.
        let closed = data.mode() & 0o002 == 0 && !(data.gid() == 0 && data.mode() & 0o020 != 0);
        (data.uid() != 0 && closed).then(|| data.uid())
    }
}

/// What is at a path, its last link not followed.
///
/// # Errors
/// [`nothing`] tells whether nothing is there; otherwise it is not known.
pub(crate) fn seen(path: &Path) -> io::Result<Kind> {
    let data = path.symlink_metadata()?;
    Ok(match data.is_symlink() {
        true => Kind::Symlink(path.read_link()?),
        false if data.is_dir() => Kind::Directory,
        false => Kind::File,
    })
}

/// The symbolic links of a directory, where it has at most so many names.
pub(crate) fn links_among(path: &Path, most: usize) -> Option<BTreeSet<OsString>> {
    let entries: Vec<_> = path.read_dir().ok()?.take(most + 1).flatten().collect();
    let is = |entry: &std::fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_symlink());
    let few = entries.len() <= most;
    few.then(|| entries.iter().filter(|entry| is(entry)).map(|entry| entry.file_name()).collect())
}

/// Those of the names that are wanted.
fn wanted_of(names: Vec<OsString>, wanted: &[&str]) -> BTreeSet<OsString> {
    let (patterns, mut plain): (Vec<&str>, Vec<&str>) =
        wanted.iter().partition(|name| name.bytes().any(|byte| matches!(byte, b'*' | b'?')));
    plain.sort_unstable();
    let matches =
        |name: &OsString| patterns.iter().any(|pattern| glob(pattern.as_bytes(), name.as_bytes()));
    let named = |name: &OsString| {
        plain.binary_search_by(|plain| plain.as_bytes().cmp(name.as_bytes())).is_ok()
    };
    names.into_iter().filter(|name| named(name) || matches(name)).collect()
}

/// A file system made up by a test.
#[derive(Clone, Debug, Default)]
pub struct FakePaths(pub BTreeMap<PathBuf, Kind>);

impl PathFacts for FakePaths {
    fn kind(&self, path: &Path) -> Kind {
        self.0.get(path).cloned().unwrap_or(Kind::Absent)
    }

    fn list(&self, path: &Path) -> Vec<OsString> {
        let below = self.0.keys().filter(|known| known.parent() == Some(path));
        below.filter_map(|known| known.file_name().map(ToOwned::to_owned)).collect()
    }

    fn links(&self, path: &Path, most: usize) -> Vec<OsString> {
        let mut names = self.list(path);
        names.retain(|name| matches!(self.kind(&path.join(name)), Kind::Symlink(_)));
        names.truncate(most);
        names
    }

    fn among(&self, path: &Path, wanted: &[&str], most: usize) -> Option<BTreeSet<OsString>> {
        let names = Some(self.list(path)).filter(|names| names.len() <= most);
        names.map(|names| wanted_of(names, wanted))
    }

    fn text(&self, _: &Path) -> Option<String> {
        None
    }

    fn git(&self, _: &Path) -> Said {
        Said::Nothing
    }

    fn program(&self, _: &Path) -> bool {
        false
    }

    fn sockets(&self, _: &Path, _: usize) -> Vec<PathBuf> {
        Vec::new()
    }

    fn closed(&self, _: &Path) -> Option<PathBuf> {
        None
    }

    fn unlisted(&self, _: &Path) -> bool {
        false
    }
}

/// Whether something can be used, and if not, why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Availability {
    /// It can.
    Yes,
    /// It cannot, for this reason.
    No(String),
}

impl Availability {
    /// Whether it can.
    pub fn yes(&self) -> bool {
        *self == Availability::Yes
    }
}

/// What control groups can be used for limits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cgroups {
    /// Version 2: a directory we may make groups in, and the controllers they get.
    pub v2: Option<(PathBuf, Vec<String>)>,
    /// Version 1: controller and the directory we may make groups in.
    pub v1: BTreeMap<String, PathBuf>,
}

/// What a command needs of the directories of libraries. All paths are without links.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Libraries {
    /// The directories of libraries.
    pub roots: Vec<PathBuf>,
    /// Files in them.
    pub files: Vec<PathBuf>,
    /// Directories in them, with all that is below.
    pub directories: Vec<PathBuf>,
    /// Symbolic links in them, and what they say.
    pub links: Vec<(PathBuf, PathBuf)>,
}

/// The facts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// Kernel release.
    pub kernel: String,
    /// Effective user and group.
    pub user: (u32, u32),
    /// Namespaces, including a user namespace for an ordinary user.
    pub namespaces: Availability,
    /// Landlock's version, 0 for none.
    pub landlock_abi: u32,
    /// The system call filter.
    pub seccomp: Availability,
    /// Supervised calls.
    pub seccomp_notify: Availability,
    /// This is a sandbox of ringfence's already, and its launcher is told of calls.
    pub inside: bool,
    /// Control groups.
    pub cgroups: Cgroups,
    /// The names of the caller's environment variables (lossy where they are no text).
    #[serde(skip)]
    pub environment: Vec<String>,
    /// The terminal that a standard stream is, by its name on the host.
    pub terminal: Option<PathBuf>,
    /// Overlays with data-only layers in a user namespace (Linux 6.16).
    pub data_layers: Availability,
    /// Whether the file system of the state directory can hold what `--overlay` keeps apart.
    pub layers: Availability,
    /// Where private directories are made.
    pub temporary: PathBuf,
    /// The command's libraries, where only they are to be seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub libraries: Option<Libraries>,
    /// What a session bus would be made of; looked at where the policy has rules for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bus: Option<BusFacts>,
    /// What the vm tier has to work with, or what it lacks; looked at where that tier is wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<Result<MachineFacts, String>>,
}

/// What a session bus inside would be made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BusFacts {
    /// The filter's program.
    pub program: Option<PathBuf>,
    /// The user's own bus, or why there is none.
    pub address: Result<String, String>,
    /// Where what is asked of it is to be noted.
    pub trace: Option<PathBuf>,
}

/// What a virtual machine would be made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MachineFacts {
    /// The guest kernel's release.
    pub kernel: String,
    /// What executes a guest's instructions here.
    pub accelerator: crate::vm::accel::Accelerator,
    /// What its devices would be made by.
    #[serde(skip_serializing_if = "crate::vm::Monitor::usual")]
    pub monitor: crate::vm::Monitor,
    /// The guest is to have virtualisation of its own.
    pub nested: bool,
}

impl Facts {
    /// The facts of this host that cost next to nothing to find: namespaces are taken to work
    /// (the launch itself is the probe), control groups are looked at only when a limit needs
    /// them.
    pub fn quick(limits_wanted: bool) -> Facts {
        const USER_NOTIF: u32 = 0x7fc0_0000;
        let available = |action, what: &str| {
            if sys::seccomp::action_available(action) {
                Availability::Yes
            } else {
                Availability::No(what.to_owned())
            }
        };
        let kernel = sys::identity::kernel_release();
        let around = sys::seccomp::is_listened_to();
        Facts {
            data_layers: data_layers(&kernel),
            layers: layers(),
            kernel,
            user: (sys::identity::user(), sys::identity::group()),
            namespaces: Availability::Yes,
            landlock_abi: sys::landlock::abi(),
            seccomp: available(0x0005_0000, "the kernel has no seccomp filters"),
            seccomp_notify: if around {
                Availability::No(TOLD_ALREADY.to_owned())
            } else {
                available(USER_NOTIF, "the kernel has no seccomp notification")
            },
            inside: around && std::env::var_os("RINGFENCE").is_some(),
            cgroups: if limits_wanted { crate::cgroup::find() } else { Cgroups::default() },
            environment: environment(),
            terminal: (0..3).find_map(sys::fd::terminal_name),
            temporary: crate::state::temporary(),
            libraries: None,
            bus: None,
            machine: None,
        }
    }

    /// Has private directories made where nobody else can take or exhaust their place, after they could
    /// not be made at the usual one; false where there is no such place, or it was tried.
    pub fn keep_apart(&mut self) -> bool {
        match crate::state::apart() {
            Some(apart) if apart != self.temporary => {
                self.temporary = apart;
                true
            }
            _ => false,
        }
    }

    /// All facts, with namespaces really tried.
    pub fn probed() -> Facts {
        Facts { namespaces: crate::launch::probe(), ..Facts::quick(true) }
    }
}

/// Whether a kernel of this release lets a user namespace redirect from a lower layer of an overlay to
/// a data-only one. That it is built with overlays, and that no container forbids them, the launch finds out.
pub fn data_layers(release: &str) -> Availability {
    const SINCE: (u32, u32) = (6, 16);
    if crate::doctor::version(release).is_some_and(|version| version >= SINCE) {
        Availability::Yes
    } else {
        Availability::No("overlays with data-only layers need Linux 6.16".to_owned())
    }
}

/// Whether the state directory is, or will be, on a file system that keeps the user's attributes: an overlay marks
/// directories by them, and where it cannot, removing one with something in it fails inside (`EIO`).
fn layers() -> Availability {
    let Some(home) = sys::identity::home() else { return Availability::Yes };
    let state = ringfence_policy::kept::Kept::State.path(&home);
    let there = state.ancestors().find_map(|path| path.canonicalize().ok());
    let name = there.and_then(|path| CString::new(path.as_os_str().as_bytes()).ok());
    match name.map(|name| sys::file::attribute(&name, c"user.ringfence", 0)) {
        Some(Err(sys::Errno::EOPNOTSUPP)) => Availability::No(format!(
            "the file system of {} keeps no attributes, by which an overlay marks directories (a tmpfs does since Linux 6.6)",
            ringfence_policy::shown::path(&state)
        )),
        _ => Availability::Yes,
    }
}

/// The effective user.
pub fn user() -> u32 {
    sys::identity::user()
}

/// The names in the caller's environment.
fn environment() -> Vec<String> {
    std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()).collect()
}
