//! The guest's files: FUSE requests, answered with what this process can see.
//!
//! This process sees what its sandbox shows it: the rules were carried out by the kernel before the
//! first request. Here, only what a hostile guest could turn against this very process is refused:
//! links are never followed, names are single names, special files are not opened, and process,
//! device and terminal file systems are empty directories.

pub mod abi;
mod attributes;
mod directories;
mod found;
mod nodes;
mod own;
mod places;
mod saved;
mod serve;

pub use own::{PROGRAM, play, rehearse};

use abi::{Body, Fields, Opcode, Request};
use directories::Directory;
use found::{identity, stat, stat_at};
use nodes::{Nodes, ROOT};
use places::Places;
use rustix::fs::{FileType, Mode, OFlags, Statx};
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// How long the guest may believe what it was told of a file that can be changed, in seconds.
const BELIEVED: u64 = 1;
/// The same where this view is read-only.
const BELIEVED_READ_ONLY: u64 = 60;
/// Of a guest's memory, for each node: more than its kernel needs for one (an inode and a name's entry), so that only
/// a kernel which means ill has so many nodes. Each takes some 500 bytes here at most.
const MEMORY_OF_A_NODE: u64 = 1024;
/// The most open files and directories.
const MOST_OPEN: usize = 64 * 1024;

/// `PROC_SUPER_MAGIC`, `SYSFS_MAGIC`, `DEVPTS_SUPER_MAGIC`, `MQUEUE_MAGIC`: what is in them is about this process.
const ABOUT_US: [i64; 4] = [0x9fa0, 0x6265_6572, 0x1cd1, 0x1980_0202];
/// What of the host's is not the guest's.
const MACHINE_ID: &[u8] = b"etc/machine-id";
/// Its name, which is never taken for another one of the file's.
const MACHINE_ID_NAME: &[u8] = b"machine-id";
/// Directories in the root that a guest has of its own.
const OWN: [&[u8]; 3] = [b"proc", b"dev", b"sys"];

type Result<T> = std::result::Result<T, Errno>;

/// An open file or directory of the guest's.
enum Handle {
    File {
        file: OwnedFd,
        node: u64,
    },
    Directory(Directory),
    /// It was open in a session that this one is a fork of, and is not to be had any more.
    Lost {
        node: u64,
    },
}

/// What is known of a mount.
#[derive(Clone, Copy)]
struct Mount {
    read_only: bool,
    about_us: bool,
}

/// A file system of this process's own view.
pub struct Files {
    root: OwnedFd,
    nodes: Nodes,
    handles: HashMap<u64, Handle>,
    /// The most of these.
    most_open: usize,
    next_handle: u64,
    /// Directories that programs are in.
    places: Places,
    mounts: HashMap<u64, Mount>,
    /// Numbers for devices, which make inode numbers unique across mounts.
    devices: HashMap<(u32, u32), u64>,
    /// The next of these: one that a guest was told of stands for no other device ever.
    next_device: u64,
    whole: bool,
    /// The guest's own identity, in place of what the host has in its file.
    machine_id: Vec<u8>,
    /// Something was opened that can be written, so that the guest may hold what the host has not.
    written: bool,
    /// The first mapping of a file that could not be written back, and why: no call tells its program.
    lost: Option<(PathBuf, Errno)>,
}

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Files").field("nodes", &self.nodes).finish_non_exhaustive()
    }
}

impl Files {
    /// Serves the tree below `root` to a guest that has so many bytes of memory. When it is the whole view,
    /// `/proc`, `/dev` and `/sys` are empty.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn new(root: &Path, memory: u64) -> Result<Files> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Files {
            root: rustix::fs::open(root, flags, Mode::empty())?,
            nodes: Nodes::new(OWN, (memory / MEMORY_OF_A_NODE) as usize),
            handles: HashMap::new(),
            // The other half is the rest of this process's: connections, commands, and each look at a file.
            most_open: MOST_OPEN.min(open_files() / 2),
            next_handle: 1,
            places: Places::new(open_files()),
            mounts: HashMap::new(),
            devices: HashMap::new(),
            next_device: 0,
            whole: root == Path::new("/"),
            machine_id: Vec::new(),
            written: false,
            lost: None,
        })
    }

    /// Shows the guest this as its `/etc/machine-id`, where the host has one.
    pub fn personal(&mut self, machine_id: &[u8]) {
        self.machine_id = machine_id.to_vec();
    }

    /// Whether that is what a node is, and the host has it as a file.
    fn is_machine_id(&self, node: u64, found: &Statx) -> bool {
        !self.machine_id.is_empty()
            && FileType::from_raw_mode(found.stx_mode.into()) == FileType::RegularFile
            && self.nodes.path(node).is_some_and(|path| path == MACHINE_ID)
    }

    /// Whether the guest may hold something of a file that is not written yet: it has opened one for
    /// writing, and may have mapped it.
    pub fn written(&self) -> bool {
        self.written
    }

    /// Which file does not have what programs changed in a mapping of it, if there is one, and why.
    pub fn lost(&self) -> Option<(&Path, Errno)> {
        self.lost.as_ref().map(|(path, why)| (&**path, *why))
    }

    /// Answers a request; `None` when it wants no answer, or is none.
    pub fn answer(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let request = Request::parse(bytes)?;
        let Some(opcode) = Opcode::of(request.opcode) else {
            return Some(abi::reply(request.unique, Err(Errno::NOSYS.raw_os_error())));
        };
        match opcode {
            Opcode::Forget | Opcode::BatchForget => {
                self.forget(opcode, &request);
                None
            }
            Opcode::Interrupt => None,
            _ if !self.nodes.known(request.node) && opcode != Opcode::Init => {
                Some(abi::reply(request.unique, Err(Errno::STALE.raw_os_error())))
            }
            opcode => Some(match self.serve(opcode, request.node, request.body) {
                Ok(body) => abi::reply(request.unique, Ok(&body.0)),
                Err(errno) => abi::reply(request.unique, Err(errno.raw_os_error())),
            }),
        }
    }

    fn forget(&mut self, opcode: Opcode, request: &Request<'_>) {
        let mut fields = request.body;
        if opcode == Opcode::Forget {
            self.forget_node(request.node, fields.long().unwrap_or_default());
            return;
        }
        let count = fields.word().unwrap_or_default();
        fields.word();
        for _ in 0..count {
            let (Some(node), Some(lookups)) = (fields.long(), fields.long()) else { return };
            self.forget_node(node, lookups);
        }
    }

    fn forget_node(&mut self, node: u64, lookups: u64) {
        self.nodes.forget(node, lookups);
        if !self.nodes.known(node) {
            self.places.forget(node);
        }
    }

    /// A descriptor that names a directory in which a name is to be used.
    fn parent(&mut self, node: u64) -> Result<OwnedFd> {
        let (fd, found) = self.identified(node)?;
        if self.opaque(node, &found)? {
            return Err(Errno::NOENT);
        }
        Ok(fd)
    }

    /// Whether a directory looks empty from the guest.
    fn opaque(&mut self, node: u64, found: &Statx) -> Result<bool> {
        Ok(self.is_own(node) || self.mount(node, found)?.about_us)
    }

    /// Whether a directory is one that the guest has of its own.
    fn is_own(&self, node: u64) -> bool {
        let path = if self.whole { self.nodes.path(node) } else { None };
        path.is_some_and(|path| OWN.contains(&&path[..]))
    }

    /// What is known of the mount that a node is on.
    fn mount(&mut self, node: u64, found: &Statx) -> Result<Mount> {
        let id = found.stx_mnt_id;
        if let Some(mount) = self.mounts.get(&id) {
            return Ok(*mount);
        }
        let (fd, now) = self.identified(node)?;
        let system = rustix::fs::fstatfs(&fd)?;
        let flags = rustix::fs::fstatvfs(&fd)?.f_flag;
        let mount = Mount {
            read_only: flags.contains(rustix::fs::StatVfsMountFlags::RDONLY),
            about_us: ABOUT_US.contains(&(system.f_type as i64)),
        };
        // Kernels that have no numbers for mounts say 0 for all.
        if id != 0 && id == now.stx_mnt_id {
            self.mounts.insert(id, mount);
        }
        Ok(mount)
    }

    /// A way to act on what a descriptor names, whatever that is called by now.
    fn through(fd: &OwnedFd) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
    }

    /// A new number for something open.
    fn keep(&mut self, handle: Handle) -> Result<u64> {
        if self.handles.len() >= self.most_open {
            return Err(Errno::NFILE);
        }
        let number = self.next_handle;
        self.next_handle += 1;
        self.handles.insert(number, handle);
        Ok(number)
    }

    fn file(&self, handle: u64) -> Result<&OwnedFd> {
        match self.handles.get(&handle) {
            Some(Handle::File { file, .. }) => Ok(file),
            Some(Handle::Lost { .. }) => Err(Errno::STALE),
            _ => Err(Errno::BADF),
        }
    }

    /// The numbers by which the guest tells files apart; its kernel finds sockets by them.
    fn inode(&mut self, node: u64, found: &Statx) -> u64 {
        if let Some(inode) = self.nodes.inode(node) {
            return inode;
        }
        self.on_its_device(found.stx_ino, found)
    }

    /// The number of an inode that is on the same device as a file.
    fn on_its_device(&mut self, inode: u64, found: &Statx) -> u64 {
        let device = (found.stx_dev_major, found.stx_dev_minor);
        let number = self.devices.entry(device).or_insert_with(|| {
            let number = self.next_device;
            self.next_device = number.wrapping_add(1);
            number
        });
        on_device(inode, *number)
    }

    /// `struct fuse_attr`.
    fn attributes(&mut self, body: &mut Body, node: u64, found: &Statx) {
        let inode = self.inode(node, found);
        body.long(inode).long(self.size(node, found)).long(found.stx_blocks);
        for time in [&found.stx_atime, &found.stx_mtime, &found.stx_ctime] {
            body.long(time.tv_sec as u64);
        }
        for time in [&found.stx_atime, &found.stx_mtime, &found.stx_ctime] {
            body.word(time.tv_nsec);
        }
        body.word(found.stx_mode.into()).word(found.stx_nlink);
        body.word(found.stx_uid).word(found.stx_gid);
        body.word(0).word(found.stx_blksize).word(0);
    }

    /// `struct fuse_entry_out` of a name, for which the guest gets a node.
    fn entry(&mut self, body: &mut Body, parent: u64, name: &[u8], found: &Statx) -> Result<u64> {
        let identity = identity(found);
        let shared = shared(found).filter(|_| name != MACHINE_ID_NAME);
        if let Some(mount) = shared
            && let Some(other) = self.nodes.other_name(parent, name, (mount, identity))
        {
            // The host may have removed that one, and given its number to another file.
            let same = self.state(other);
            if !same
                .is_ok_and(|same| (same.stx_mnt_id, found::identity(&same)) == (mount, identity))
            {
                self.nodes.unshare(other);
            }
        }
        let node = self.nodes.look_up(parent, name, identity, shared).ok_or(Errno::NFILE)?;
        let believed = self.believed(node, found);
        body.long(node).long(0).long(believed).long(believed).word(0).word(0);
        self.attributes(body, node, found);
        Ok(node)
    }

    /// How long a file is for the guest.
    fn size(&self, node: u64, found: &Statx) -> u64 {
        if self.is_machine_id(node, found) { self.machine_id.len() as u64 } else { found.stx_size }
    }

    fn believed(&mut self, node: u64, found: &Statx) -> u64 {
        let read_only = self.mount(node, found).is_ok_and(|mount| mount.read_only);
        if read_only { BELIEVED_READ_ONLY } else { BELIEVED }
    }

    /// A file has got one more name: both are to be one node.
    fn linked(&mut self, node: u64, found: &Statx) {
        if let Some(mount) = shared(found).filter(|_| !self.is_machine_id(node, found)) {
            self.nodes.share(node, mount);
        }
    }

    /// Looks a name up. That it is not in a directory which cannot be changed is worth remembering:
    /// programs are looked for in many.
    fn look_up(&mut self, parent: u64, name: &[u8]) -> Result<Body> {
        if let Some(node) = own::node(parent, name).filter(|_| self.whole) {
            self.nodes.keep(node);
            let mut body = Body::default();
            own::entry(&mut body, node);
            return Ok(body);
        }
        let directory = &self.parent(parent)?;
        match self.found(directory, parent, name) {
            Err(Errno::NOENT) => {
                let believed = self.believed(parent, &stat(directory)?);
                if believed != BELIEVED_READ_ONLY {
                    return Err(Errno::NOENT);
                }
                let mut body = Body::default();
                body.long(0).long(0).long(believed).long(0).word(0).word(0).zeroes(88);
                Ok(body)
            }
            other => other,
        }
    }

    /// Looks a name up, and answers with it.
    fn found(&mut self, directory: &OwnedFd, parent: u64, name: &[u8]) -> Result<Body> {
        let found = stat_at(directory, name)?;
        let mut body = Body::default();
        self.entry(&mut body, parent, name, &found)?;
        Ok(body)
    }
}

/// How many files this process may have open.
fn open_files() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX)
}

/// Whether the kernel waits for an answer to this request.
pub fn wants_answer(request: &[u8]) -> bool {
    let silent = [Opcode::Forget, Opcode::BatchForget, Opcode::Interrupt];
    Request::parse(request).is_some_and(|request| {
        Opcode::of(request.opcode).is_none_or(|opcode| !silent.contains(&opcode))
    })
}

/// The number of an inode of a device that has this number.
fn on_device(inode: u64, device: u64) -> u64 {
    inode ^ device.wrapping_shl(48)
}

/// The mount by which a file is seen that has several names; where kernels have no numbers for mounts (before
/// Linux 5.8), each name is for itself.
fn shared(found: &Statx) -> Option<u64> {
    let directory = FileType::from_raw_mode(found.stx_mode.into()) == FileType::Directory;
    let several = !directory && found.stx_nlink > 1;
    Some(found.stx_mnt_id).filter(|&mount| several && mount != 0)
}

/// The next field, or the answer to a request that has none.
fn wanted<T>(field: Option<T>) -> Result<T> {
    field.ok_or(Errno::INVAL)
}

/// The same as a name, which is no longer than Linux lets one be: the guest's kernel leaves that to us.
fn name<'a>(fields: &mut Fields<'a>) -> Result<&'a [u8]> {
    const LONGEST: usize = 255;
    let name = wanted(fields.name())?;
    if name.len() > LONGEST { Err(Errno::NAMETOOLONG) } else { Ok(name) }
}
