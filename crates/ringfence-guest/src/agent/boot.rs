//! From a kernel that has just started to a guest that commands can run in.

use super::REQUEST;
use crate::watch::Watching;
use crate::wire::{Message, Start, ToHost, VERSION};
use ringfence_sys::mount::PROC_OF_THE_KERNEL;
use ringfence_sys::process::{self, Forked};
use rustix::fs::{FileType, Mode, OFlags, inotify};
use rustix::mount::{
    MountFlags, mount, mount_bind, mount_bind_recursive, mount_move, mount_remount,
};
use rustix::process::{Resource, Rlimit};
use rustix::thread::CapabilitySet;
use std::ffi::{CString, OsStr};
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

/// The first port of the first virtio-serial device.
const PORT: &str = "/dev/vport0p1";
/// Device nodes of the commands': name, major, minor.
const DEVICES: [(&str, u32, u32); 6] = [
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("tty", 5, 0),
];
/// What commands see as `/dev/shm`, and how it is mounted.
const SHARED: &str = "/own/shm";
const SHARED_FLAGS: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);
/// Where control groups are, and that of commands, for a limit of theirs.
pub const GROUPS: &str = "/cgroup";
pub const GROUP: &str = "/cgroup/run";
/// How many files the agent may have open: a connection is one, and a command three.
const MOST_OPEN: u64 = 1 << 16;
const LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

fn failed<E: std::fmt::Display>(what: impl Into<String>) -> impl FnOnce(E) -> String {
    let what = what.into();
    move |error| format!("{what}: {error}")
}

fn mounted(kind: &str, at: &str, flags: MountFlags, data: &str) -> Result<(), String> {
    fs::create_dir_all(at).map_err(failed(format!("mkdir({at})")))?;
    let options = CString::new(data).unwrap_or_default();
    mount(kind, at, kind, flags, options.as_c_str()).map_err(failed(format!("mount({at})")))
}

/// All that no session is needed for.
pub fn boot() -> Result<(), String> {
    let quiet = MountFlags::NOSUID | MountFlags::NOEXEC;
    mounted("proc", "/proc", quiet | MountFlags::NODEV, "")?;
    mounted("sysfs", "/sys", quiet | MountFlags::NODEV, "")?;
    mounted("devtmpfs", "/dev", quiet, "")?;
    seed()?;
    mounted("devpts", "/dev/pts", quiet, "newinstance,ptmxmode=0666,mode=620")?;
    modules()?;
    // Process limits are the guest's own; a kernel without them is asked for none.
    let _ = mounted("cgroup2", GROUPS, quiet | MountFlags::NODEV, "");
    let _ = fs::write("/cgroup/cgroup.subtree_control", "+pids");
    let _ = fs::create_dir(GROUP);
    // What programs leave in mappings of files is the host's a second later, should all be killed.
    for setting in ["dirty_expire_centisecs", "dirty_writeback_centisecs"] {
        let _ = fs::write(format!("/proc/sys/vm/{setting}"), "100");
    }
    // What a kernel does again and again for machines that run for days: its statistics, and memory in one piece.
    let _ = fs::write("/proc/sys/vm/stat_interval", "3600");
    let _ = fs::write("/proc/sys/vm/compaction_proactiveness", "0");
    devices()?;
    fs::create_dir_all("/view").map_err(failed("mkdir(/view)"))?;
    let _ = ringfence_sys::netlink::loopback_up();
    bound();
    // Commands have limits of their own.
    let most = Rlimit { current: Some(MOST_OPEN), maximum: Some(MOST_OPEN) };
    let _ = rustix::process::setrlimit(Resource::Nofile, most);
    // What the host says is heard whatever a thousand programs do: a fork bomb too is told to end.
    let _ = ringfence_sys::guest::come_first();
    Ok(())
}

/// Gives the kernel the randomness that came along, before anything draws from it: nobody waits for it then, whose processor has no
/// instruction for it. Where none came along the kernel finds its own.
fn seed() -> Result<(), String> {
    let path = Path::new("/").join(crate::SEED);
    let Ok(bytes) = fs::read(&path) else { return Ok(()) };
    reseed(&random()?, &bytes)?;
    fs::remove_file(&path).map_err(failed(path.display().to_string()))
}

fn reseed(random: &OwnedFd, entropy: &[u8]) -> Result<(), String> {
    ringfence_sys::guest::reseed(random.as_fd(), entropy)
        .map_err(|errno| format!("random: {errno:?}"))
}

/// No program gets a capability: they all descend from this process, which keeps its own and executes nothing. Here, and not
/// for each command: these are a call for each capability, and a template has them behind it.
fn bound() {
    for number in 0..64 {
        let one = CapabilitySet::from_bits_retain(1 << number);
        let _ = rustix::thread::remove_capability_from_bounding_set(one);
    }
}

/// What commands see as `/dev`.
fn devices() -> Result<(), String> {
    mounted("tmpfs", "/own", MountFlags::NOSUID | MountFlags::NOEXEC, "mode=755,size=1m")?;
    let directory = |name: &str, mode: u32| {
        fs::create_dir(name)
            .and_then(|()| fs::set_permissions(name, fs::Permissions::from_mode(mode)))
            .map_err(failed(format!("mkdir({name})")))
    };
    directory("/own/pts", 0o755)?;
    directory("/own/shm", 0o755)?;
    mounted("tmpfs", SHARED, SHARED_FLAGS, "mode=1777")?;
    // Only where its modules came along: for a guest that is to have guests.
    let kvm = Path::new("/sys/class/misc/kvm").exists().then_some(("kvm", 10, 232));
    for (name, major, minor) in DEVICES.into_iter().chain(kvm) {
        let path = format!("/own/{name}");
        let (mode, device) = (Mode::from_raw_mode(0o666), rustix::fs::makedev(major, minor));
        rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::CharacterDevice, mode, device)
            .and_then(|()| rustix::fs::chmod(&path, mode))
            .map_err(failed(format!("mknod({path})")))?;
    }
    for (name, target) in LINKS {
        symlink(target, format!("/own/{name}")).map_err(failed("symlink"))?;
    }
    mount_bind_recursive("/dev/pts", "/own/pts").map_err(failed("mount(/own/pts)"))
}

/// Loads the modules that came along, in the order of their names.
fn modules() -> Result<(), String> {
    let Ok(entries) = fs::read_dir("/modules") else { return Ok(()) };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        // MODULE_INIT_COMPRESSED_FILE, where the kernel unpacks them (Linux 5.17).
        let packed = path.extension() != Some(OsStr::new("ko"));
        let name = path.display().to_string();
        let file = fs::File::open(&path).map_err(failed(&name))?;
        match rustix::system::finit_module(&file, c"", if packed { 4 } else { 0 }) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(format!("finit_module({name}): {error}")),
        }
    }
    Ok(())
}

/// The port to the host. Its driver makes it a moment after it was loaded.
pub fn port() -> Result<OwnedFd, String> {
    let watch = inotify::init(inotify::CreateFlags::CLOEXEC).map_err(failed("inotify_init"))?;
    inotify::add_watch(&watch, "/dev", inotify::WatchFlags::CREATE).map_err(failed("inotify"))?;
    let mut buffer = [0; 4096];
    while !Path::new(PORT).exists() {
        rustix::io::read(&watch, &mut buffer[..]).map_err(failed("inotify"))?;
    }
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    rustix::fs::open(PORT, flags, Mode::empty()).map_err(failed(PORT))
}

/// What each clone must have for itself: randomness, the time, a name.
pub fn personal(start: &Start, random: &OwnedFd) -> Result<(), String> {
    reseed(random, &start.entropy)?;
    set_clock(start.clock)?;
    rustix::system::sethostname(&start.name).map_err(failed("sethostname"))
}

/// Sets the time: nanoseconds since 1970.
pub fn set_clock(clock: u64) -> Result<(), String> {
    let now = rustix::fs::Timespec {
        tv_sec: (clock / 1_000_000_000) as i64,
        tv_nsec: (clock % 1_000_000_000) as i64,
    };
    rustix::time::clock_settime(rustix::time::ClockId::Realtime, now).map_err(failed("clock"))
}

/// Makes this guest one of its own. Where there are limits, the control group that has them.
pub fn begin(start: &Start, random: &OwnedFd) -> Result<Option<OwnedFd>, String> {
    personal(start, random)?;
    if let Some(bytes) = start.disk {
        // A size of 0 would be none.
        let size = CString::new(format!("size={}", bytes.max(1))).unwrap_or_default();
        mount_remount(SHARED, SHARED_FLAGS, size.as_c_str()).map_err(failed("mount(/dev/shm)"))?;
    }
    let Some(count) = start.processes else { return Ok(None) };
    fs::write("/cgroup/run/pids.max", count.to_string()).map_err(failed("pids.max"))?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(GROUP, flags, Mode::empty()).map(Some).map_err(failed(GROUP))
}

/// Mounts the guest's root, whose files are asked for at the descriptor that this returns.
pub fn root() -> Result<OwnedFd, String> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let fuse = rustix::fs::open("/dev/fuse", flags, Mode::empty()).map_err(failed("/dev/fuse"))?;
    let number = std::os::fd::AsRawFd::as_raw_fd(&fuse);
    let most = crate::wire::MOST_DATA;
    let options =
        format!("fd={number},rootmode=40000,user_id=0,group_id=0,allow_other,max_read={most}");
    mounted("fuse", "/view", MountFlags::NOSUID | MountFlags::NODEV, &options)?;
    Ok(fuse)
}

/// Completes the view with what is the guest's own, and makes it the root. Runs in a child, in a mount namespace
/// of its own: it looks at the guest's files. A root by chroot(2) would not do: who is in one may not make
/// user namespaces (user_namespaces(7)), which sandboxes inside the guest need.
pub fn view() -> Result<(), String> {
    let quiet = MountFlags::NOSUID | MountFlags::NOEXEC | MountFlags::NODEV;
    mount("proc", "/view/proc", "proc", quiet, c"").map_err(failed("mount(/proc)"))?;
    mount_bind_recursive("/own", "/view/dev").map_err(failed("mount(/dev)"))?;
    let flags = quiet | MountFlags::RDONLY;
    mount("sysfs", "/view/sys", "sysfs", flags, c"").map_err(failed("mount(/sys)"))?;
    mount_move("/view", "/").map_err(failed("mount(/)"))
}

/// Makes what of `/proc` acts on the kernel read-only in the view, of the process that calls, for whoever is root there: files' modes hold the others, who
/// could make no sandbox of their own beside it (the kernel mounts no `/proc` where a part of another one is covered).
pub fn protect_kernel() -> Result<(), String> {
    for name in PROC_OF_THE_KERNEL {
        let path = format!("/proc/{name}");
        let is = rustix::fs::statvfs(&*path).map(|is| is.f_flag);
        if !is.is_ok_and(|flags| !flags.contains(rustix::fs::StatVfsMountFlags::RDONLY)) {
            continue;
        }
        let quiet = MountFlags::NOSUID | MountFlags::NOEXEC | MountFlags::NODEV;
        let flags = MountFlags::BIND | MountFlags::RDONLY | quiet;
        mount_bind(&*path, &*path).map_err(failed(path.clone()))?;
        mount_remount(&*path, flags, c"").map_err(failed(path))?;
    }
    Ok(())
}

/// The mount namespace of a process: the view, for commands to enter.
pub fn mounts_of(pid: i32) -> Result<OwnedFd, String> {
    let path = format!("/proc/{pid}/ns/mnt");
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    rustix::fs::open(&path, flags, Mode::empty()).map_err(failed(path))
}

/// Waits until the kernel has come to rest, two seconds at most: one that has only just booted has more to do, which each
/// clone would have to do again.
pub fn settle() {
    /// What is looked at, and how much of it must have been idle, so often in a row.
    const WINDOW: Duration = Duration::from_millis(100);
    const IDLE: Duration = Duration::from_millis(90);
    const ENOUGH: u32 = 3;
    let mut quiet = 0;
    for _ in 0..20 {
        let before = idle();
        std::thread::sleep(WINDOW);
        quiet = if idle().saturating_sub(before) >= IDLE { quiet + 1 } else { 0 };
        if quiet == ENOUGH {
            return;
        }
    }
}

/// For how long the processor has had nothing to do (proc_uptime(5)).
fn idle() -> Duration {
    let text = fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds = text.split_whitespace().nth(1).and_then(|word| word.parse().ok());
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or_default()
}

/// Says hello.
pub fn greet(port: &OwnedFd) -> Result<(), String> {
    let failed = |errno| format!("the port to the host: {errno:?}");
    ringfence_sys::fd::write_all(port.as_fd(), &ToHost::Hello(VERSION).encode(0))
        .map_err(failed)?;
    ringfence_sys::fd::never_wait(port.as_fd()).map_err(failed)
}

/// Builds the view, whose few questions about the guest's root this process answers itself; it is a mount namespace.
pub fn rehearse(fuse: &OwnedFd) -> Result<OwnedFd, String> {
    let pipe = || ringfence_sys::fd::pipe().map_err(|errno| format!("pipe: {errno:?}"));
    let ((said, theirs), (held, hold)) = (pipe()?, pipe()?);
    let child = match process::fork_into(process::Namespaces::MOUNT, None) {
        Ok(Forked::Child) => {
            drop(hold);
            let built = view();
            let word = built.err().map_or_else(|| vec![0], String::into_bytes);
            let _ = ringfence_sys::fd::write_all(theirs.as_fd(), &word);
            // The namespace lives as long as somebody has it.
            let _ = rustix::io::read(&held, &mut [0; 1][..]);
            process::exit_now(0)
        }
        Ok(Forked::Parent(pid, _)) => pid,
        Err(errno) => return Err(format!("clone: {errno:?}")),
    };
    drop(theirs);
    answered(fuse, &said, "the view")?;
    mounts_of(child)
}

/// Answers the kernel's questions about the guest's root until a child says that it has done its part: a zero, or why
/// it could not.
pub fn answered(fuse: &OwnedFd, said: &OwnedFd, what: &str) -> Result<(), String> {
    let mut buffer = vec![0; REQUEST];
    loop {
        let mut watching = Watching::new();
        watching.add(true, fuse.as_fd(), true, false);
        watching.add(false, said.as_fd(), true, false);
        for (asked, _) in watching.wait(None).map_err(|over| format!("{over:?}"))? {
            if !asked {
                return match rustix::io::read(said, &mut buffer[..]) {
                    Ok(1..) if buffer[0] == 0 => Ok(()),
                    Ok(count @ 1..) => Err(String::from_utf8_lossy(&buffer[..count]).into_owned()),
                    _ => Err(format!("{what} was not made")),
                };
            } else if let Ok(count) = rustix::io::read(fuse, &mut buffer[..])
                && let Some(reply) = crate::files::rehearse(&buffer[..count])
            {
                let _ = rustix::io::write(fuse, &reply);
            }
        }
    }
}

/// The device by which the kernel gets its randomness, open before there is a session.
pub fn random() -> Result<OwnedFd, String> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    rustix::fs::open("/dev/urandom", flags, Mode::empty()).map_err(failed("/dev/urandom"))
}
