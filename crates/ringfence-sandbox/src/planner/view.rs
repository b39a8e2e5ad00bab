//! The namespace tier's view of the file system, as mounts in order.

use super::grants::{Denial, Grants};
use super::guards::Guards;
use super::{Planning, built_in, home};
use crate::facts::Kind;
use crate::plan::{Bus, Found, LimitStep, MountOp, MountStep, Tier};
use ringfence_policy::{Home, Policy, Source};
use ringfence_sys::mount::PROC_OF_THE_KERNEL;
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Links at the top of a merged-/usr system, and those old programs rely on.
const USUAL_LINKS: [&str; 8] =
    ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/var/run", "/var/lock"];

/// Device nodes without which ordinary programs do not run; none gives access to anything.
const DEVICES: [&str; 6] = ["full", "null", "random", "tty", "urandom", "zero"];

/// Links that programs expect in /dev.
const DEVICE_LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("ptmx", "pts/ptmx"),
    ("stderr", "/proc/self/fd/2"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
];

/// Files of /proc that show the kernel's memory and are root's alone to read.
const PROC_OF_ROOT: [&str; 8] = [
    "kcore",
    "kpagecgroup",
    "kpagecount",
    "kpageflags",
    "pagetypeinfo",
    "slabinfo",
    "timer_list",
    "vmallocinfo",
];

pub(super) fn steps(
    planning: &Planning<'_>,
    grants: &Grants,
    guards: &Guards,
    bus: Option<&Bus>,
) -> Vec<MountStep> {
    let mut view = View { planning, grants, steps: Vec::with_capacity(64) };
    view.private_directories();
    view.devices();
    view.granted();
    view.links();
    view.held(guards);
    view.masks();
    view.steps.extend(super::trust::mounts(planning.policy, grants, planning.paths));
    view.steps.extend(super::browsers::mounts(planning, grants));
    view.steps.extend(super::gateway::mount(planning.policy));
    view.steps.extend(super::bus::mount(bus));
    view.steps.extend(super::ways::pins(&view.steps));
    // Parents before children; at one path, what is put there before what holds it.
    view.steps.sort_by_cached_key(|step| (sort_key(&step.path), order(&step.op)));
    view.steps.dedup_by(|b, a| a.path == b.path && order(&a.op) == order(&b.op));
    super::libraries::lay(&mut view.steps, planning);
    view.steps.insert(0, view.root());
    view.steps
}

/// Orders paths by components, parents first, without taking them apart at each comparison.
fn sort_key(path: &Path) -> Vec<u8> {
    let bytes = path.as_os_str().as_bytes();
    bytes.iter().map(|&byte| if byte == b'/' { 0 } else { byte }).collect()
}

fn order(op: &MountOp) -> u8 {
    match op {
        MountOp::Pin | MountOp::PinLink | MountOp::Protect | MountOp::Emptied => 1,
        MountOp::Mask { .. } | MountOp::MaskLink => 2,
        MountOp::Data { .. } | MountOp::Besides(_) | MountOp::Gateway | MountOp::Bus => 3,
        _ => 0,
    }
}

/// Directories of the sandbox's own beside the home, each with what it is.
pub(super) const PRIVATE: [(&str, &str); 2] =
    [("/tmp", "a private /tmp"), ("/dev/shm", "private shared memory")];

/// The other directory for temporary files.
pub(super) const VAR_TMP: &str = "/var/tmp";

/// Whether `/var/tmp` is a directory of the sandbox's own, apart from `/tmp`. A link to that is cheaper than a mount;
/// but nothing can be granted below a link.
pub(super) fn var_tmp_is_apart(policy: &Policy, grants: &Grants) -> bool {
    let var_tmp = Path::new(VAR_TMP);
    let below = |path: &PathBuf| path.starts_with(var_tmp);
    grants.covering(var_tmp).is_none() && grants.trees.keys().chain([&policy.home_dir]).any(below)
}

struct View<'a> {
    planning: &'a Planning<'a>,
    grants: &'a Grants,
    steps: Vec<MountStep>,
}

impl View<'_> {
    fn add(&mut self, path: impl Into<PathBuf>, op: MountOp, rule: Source) {
        self.steps.push(MountStep { path: path.into(), op, rule });
    }

    fn root(&self) -> MountStep {
        let host_root = self.grants.trees.get(Path::new("/"));
        let size = self.planning.policy.limits.disk;
        let (op, rule) = match host_root {
            Some(grant) => (MountOp::HostRoot { size }, grant.rule.clone()),
            None => (MountOp::Root { size }, built_in("an empty root")),
        };
        MountStep { path: PathBuf::from("/"), op, rule }
    }

    /// Directories of the sandbox's own, unless the policy grants the host's.
    fn private_directories(&mut self) {
        let policy = self.planning.policy;
        let own = PRIVATE.map(|(path, why)| (PathBuf::from(path), 0o1777, why));
        let mut wanted = Vec::from(own);
        if let Some(home) = home::private(self.planning, self.grants, Tier::Namespace) {
            wanted.push((home, 0o700, "a private home"));
        }
        // A program that is shown only what its arguments name still starts where it was called:
        // relative names among them stand on that directory.
        let workdir = &policy.workdir;
        let seen = |tree: &PathBuf| tree.starts_with(workdir);
        if policy.arguments.is_some()
            && *workdir != policy.home_dir
            && self.grants.covering(workdir).is_none()
            && !self.grants.trees.keys().any(seen)
        {
            wanted.push((workdir.clone(), 0o755, "the directory of the run, empty"));
        }
        for (path, mode, why) in wanted {
            if !self.grants.trees.contains_key(&path) {
                self.add(path, MountOp::Private { mode }, built_in(why));
            }
        }
        if let Home::Named(name) = &policy.home {
            let from = crate::state::homes(&policy.home_dir).join(name);
            self.add(
                policy.home_dir.clone(),
                MountOp::NamedHome { from, apart: policy.overlay.map(|_| PathBuf::new()) },
                built_in("a named home"),
            );
        }
        let op = if var_tmp_is_apart(policy, self.grants) {
            MountOp::Private { mode: 0o1777 }
        } else {
            MountOp::Symlink { target: PathBuf::from("/tmp") }
        };
        let var_tmp = Path::new(VAR_TMP);
        if self.grants.covering(var_tmp).is_none() {
            self.add(var_tmp, op, built_in("a private /tmp"));
        }
    }

    fn devices(&mut self) {
        let why = || built_in("minimal devices");
        for name in DEVICES {
            let path = Path::new("/dev").join(name);
            if self.planning.paths.kind(&path) == Kind::File {
                // A device is opened for writing there all the same (`special_file` in the kernel's
                // do_dentry_open): what is read-only is the node, whose mode root could change.
                let op = MountOp::Bind { directory: false, read_only: true, devices: true };
                self.add(path, op, why());
            }
        }
        for (name, target) in DEVICE_LINKS {
            let op = MountOp::Symlink { target: PathBuf::from(target) };
            self.add(Path::new("/dev").join(name), op, why());
        }
        self.add("/dev/pts", MountOp::Terminals, built_in("terminals of its own"));
        if let Some(from) = &self.planning.facts.terminal {
            let op = MountOp::Console { from: from.clone() };
            self.add("/dev/console", op, built_in("the inherited terminal"));
        }
        self.add("/proc", MountOp::Proc, built_in("the sandbox's processes only"));
        let as_root = self.planning.facts.user.0 == 0;
        for name in PROC_OF_THE_KERNEL {
            let path = Path::new("/proc").join(name);
            // An ordinary user is refused there by the files' own modes; root's uid would pass.
            if (as_root || name == "sys") && self.planning.paths.kind(&path) != Kind::Absent {
                self.add(path, MountOp::Protect, built_in("the kernel's settings"));
            }
        }
        for name in PROC_OF_ROOT.into_iter().filter(|_| as_root) {
            let path = Path::new("/proc").join(name);
            if self.planning.paths.kind(&path) != Kind::Absent {
                self.add(path, MountOp::Mask { directory: false }, built_in("the kernel's memory"));
            }
        }
    }

    fn granted(&mut self) {
        for (path, grant) in &self.grants.trees {
            if path == Path::new("/") {
                continue;
            }
            let devices = path.starts_with("/dev");
            let socket = self.planning.policy.network.sockets.iter().any(|s| s.path == *path);
            let apart = self.planning.policy.overlay.is_some() && !socket;
            let op = if apart && grant.write && !devices {
                MountOp::Overlay { directory: grant.directory, apart: PathBuf::new() }
            } else {
                // A socket is connected to over a read-only mount as well; a layer's file of it is another one, at which
                // nobody answers.
                let read_only = !grant.write || socket;
                MountOp::Bind { directory: grant.directory, read_only, devices }
            };
            self.steps.push(MountStep { path: path.clone(), op, rule: grant.rule.clone() });
        }
        for (path, rule) in &self.grants.covers {
            // Covers are made at the place of a tree before that is bound there.
            let around = path.parent().and_then(|above| self.grants.covering(above));
            let bound = around
                .is_none_or(|(_, grant)| self.planning.policy.overlay.is_none() || !grant.write);
            let host = self.grants.trees.contains_key(Path::new("/"));
            let op = if bound && !host { MountOp::Cover } else { MountOp::Private { mode: 0o755 } };
            self.add(path.clone(), op, rule.clone());
        }
    }

    /// Symbolic links outside the granted trees, on the way to what users name.
    fn links(&mut self) {
        for link in USUAL_LINKS {
            self.link(Path::new(link));
        }
        for (link, target) in &self.grants.links {
            let op = MountOp::Symlink { target: target.clone() };
            self.add(link.clone(), op, built_in("as on the host"));
        }
        for (link, target) in &self.planning.policy.links {
            if self.grants.covering(link).is_none() {
                let op = MountOp::Symlink { target: target.clone() };
                self.add(link.clone(), op, built_in("as on the host"));
            }
        }
    }

    fn link(&mut self, path: &Path) {
        let covered = self.grants.covering(path).is_some();
        if let (false, Kind::Symlink(target)) = (covered, self.planning.paths.kind(path)) {
            self.add(path, MountOp::Symlink { target }, built_in("as on the host"));
        }
    }

    /// Pins the directories between a writable tree and a path in it: renamed, they would take
    /// the path along.
    fn pin(&mut self, path: &Path, tree: &Path, rule: &Source) {
        for ancestor in path.ancestors().skip(1) {
            if ancestor == tree || !ancestor.starts_with(tree) {
                break;
            }
            // What is not there takes nothing along; what is made there is judged at the end.
            if self.planning.paths.kind(ancestor) == Kind::Absent {
                continue;
            }
            self.add(ancestor, MountOp::Pin, rule.clone());
        }
    }

    /// Protected paths, and the directories on the way to them; in a directory that is covered as a whole there is
    /// nothing to be held.
    fn held(&mut self, guards: &Guards) {
        let whole = self.grants.denials.iter().filter(|denial| denial.kind == Kind::Directory);
        let whole: BTreeSet<&Path> = whole.map(|denial| denial.path.as_path()).collect();
        let covered = |path: &Path| path.ancestors().skip(1).any(|above| whole.contains(above));
        for held in guards.held.iter().filter(|held| !covered(&held.path)) {
            self.pin(&held.path, &held.tree, &held.rule);
            let op = match held.found {
                _ if held.emptied => MountOp::Emptied,
                Found::Symlink => MountOp::PinLink,
                Found::Absent | Found::Present => MountOp::Protect,
            };
            self.add(held.path.clone(), op, held.rule.clone());
        }
    }

    /// Covers what is denied inside granted trees. In a directory of the sandbox's own nothing of the host's is.
    fn masks(&mut self) {
        let own = |step: &&MountStep| {
            matches!(step.op, MountOp::Private { .. } | MountOp::NamedHome { .. })
        };
        let own: Vec<PathBuf> =
            self.steps.iter().filter(own).map(|step| step.path.clone()).collect();
        let shown = |path: &Path| {
            let tree = self.grants.covering(path).map_or(Path::new("/"), |(tree, _)| tree);
            !own.iter().any(|own| path.starts_with(own) && !tree.starts_with(own))
        };
        let denials: Vec<&Denial> =
            self.grants.denials.iter().filter(|denial| shown(&denial.path)).collect();
        for denial in denials {
            let within = self.grants.covering(&denial.path).filter(|(_, grant)| grant.write);
            if let Some((tree, _)) = within {
                self.pin(&denial.path, tree, &denial.rule);
            }
            match denial.kind {
                Kind::Absent => {}
                Kind::Symlink(_) if denial.closed => {
                    self.add(denial.path.clone(), MountOp::MaskLink, denial.rule.clone());
                }
                // What a link points to is granted or not by itself; the link says nothing, but nobody is to put
                // something else in its place.
                Kind::Symlink(_) if within.is_some() => {
                    self.add(denial.path.clone(), MountOp::PinLink, denial.rule.clone());
                }
                Kind::Symlink(_) => {}
                Kind::File | Kind::Directory => {
                    let op = MountOp::Mask { directory: denial.kind == Kind::Directory };
                    self.add(denial.path.clone(), op, denial.rule.clone());
                }
            }
        }
        // A directory that is protected or masked as a whole needs no pin besides.
        let whole = |step: &MountStep| {
            matches!(step.op, MountOp::Protect | MountOp::Emptied | MountOp::Mask { .. })
        };
        let whole: Vec<PathBuf> =
            self.steps.iter().filter(|step| whole(step)).map(|step| step.path.clone()).collect();
        self.steps.retain(|step| step.op != MountOp::Pin || !whole.contains(&step.path));
    }
}

/// The size of the private directories, as a limit that the view itself carries out.
pub(super) fn size_limit(planning: &Planning<'_>) -> Option<LimitStep> {
    planning.policy.limits.disk.map(|bytes| LimitStep::PrivateSize { bytes })
}
