//! The system call filter: what no confined program needs, and what would reach around the
//! other layers.
//!
//! The list is the union of what the surveyed sandboxes and container runtimes refuse. Calls
//! are named, so that the plan reads the same on every architecture; a name that the running
//! architecture does not have is left out when the filter is compiled.

mod sockets;
mod terminal;

use crate::own_number::CALLS as BY_NUMBER;
use crate::plan::{AllowedCalls, CallRule, Degraded, Test, Tier, Verdict};
use ringfence_policy::calls::{ALWAYS, Otherwise, members};
use ringfence_policy::{Layer, Policy};
use std::collections::BTreeSet;

/// Refused outright: name and reason, by group.
const REFUSED: [(&str, &[&str]); 15] = [
    (
        "changes the view of the file system",
        &[
            "mount",
            "umount2",
            "pivot_root",
            "chroot",
            "fsopen",
            "fsconfig",
            "fsmount",
            "fspick",
            "open_tree",
            "open_tree_attr",
            "move_mount",
            "mount_setattr",
            "swapon",
            "swapoff",
            "quotactl",
            "quotactl_fd",
            "acct",
        ],
    ),
    ("makes or enters namespaces", &["unshare", "setns"]),
    (
        "reads or changes other processes",
        &[
            "ptrace",
            "process_vm_readv",
            "process_vm_writev",
            "pidfd_getfd",
            "kcmp",
            "process_madvise",
            "process_mrelease",
        ],
    ),
    ("opens files past the path rules", &["open_by_handle_at", "name_to_handle_at"]),
    (
        "does calls that a filter cannot see",
        &["io_uring_setup", "io_uring_enter", "io_uring_register"],
    ),
    (
        "loads code into the kernel",
        &[
            "bpf",
            "init_module",
            "finit_module",
            "delete_module",
            "create_module",
            "kexec_load",
            "kexec_file_load",
        ],
    ),
    ("measures other programs", &["perf_event_open", "lookup_dcookie"]),
    ("reaches the keys of the host", &["keyctl", "add_key", "request_key"]),
    ("delays the kernel in the middle of a call", &["userfaultfd"]),
    (
        "acts on the whole machine",
        &[
            "reboot",
            "sethostname",
            "setdomainname",
            "settimeofday",
            "clock_settime",
            "clock_adjtime",
            "adjtimex",
            "stime",
            "syslog",
            "vhangup",
            "nfsservctl",
        ],
    ),
    (
        "reaches hardware",
        &["ioperm", "iopl", "pciconfig_read", "pciconfig_write", "pciconfig_iobase"],
    ),
    ("watches files of others", &["fanotify_init", "fanotify_mark"]),
    ("moves memory of others", &["move_pages", "migrate_pages"]),
    (
        "has no use and old holes",
        &[
            "uselib",
            "ustat",
            "sysfs",
            "_sysctl",
            "query_module",
            "get_kernel_syms",
            "modify_ldt",
            "vm86",
            "vm86old",
            "vserver",
        ],
    ),
    ("changes the rules for nested security modules", &["lsm_set_self_attr"]),
];

/// What debuggers and leak checkers do to other processes. Whom they may do it to is not the filter's to say: only
/// who is in the same Landlock domain or a deeper one, which neither PID 1 nor what `exec` starts is.
const TRACES: [&str; 4] = ["ptrace", "process_vm_readv", "process_vm_writev", "kcmp"];

/// `CLONE_NEW*` flags that `clone` may not carry; the low byte is the exit signal.
const CLONE_NEW: u32 = 0x7E02_0080;

const AT_EMPTY_PATH: u32 = 0x1000;
/// `S_IFMT`, `S_IFCHR`, `S_IFBLK`.
const TYPE_OF_NODE: u32 = 0o170_000;
const CHARACTER: u32 = 0o020_000;
const BLOCK: u32 = 0o060_000;
const PR_SET_MM: u32 = 35;
/// Makes the file that is opened.
const O_CREAT: u32 = 0o100;
const O_ACCMODE: u32 = 3;
const O_RDWR: u32 = 2;
/// The set-user-ID bit.
const SET_USER_ID: u32 = 0o4000;

/// System V IPC and message queues: one space for the whole host, unless it is unshared.
const SHARED_IPC: [&str; 14] = [
    "shmget",
    "shmat",
    "shmctl",
    "shmdt",
    "msgget",
    "msgsnd",
    "msgrcv",
    "msgctl",
    "semget",
    "semop",
    "semtimedop",
    "semctl",
    "mq_open",
    // Removes a queue by its name alone, and no Landlock rule sees it.
    "mq_unlink",
];

/// The number of the warden, in the namespace tier's own PID namespace: without descriptors it could not put right
/// what a killed launcher leaves.
const WARDEN: u32 = 1;

/// Calls that give files away, and the argument that says to which user; the next one says to which group.
const OWNERS: [(&str, u8); 4] = [("chown", 1), ("lchown", 1), ("fchown", 1), ("fchownat", 2)];

/// Calls whose first argument says whether their number is a process's (this value), or a group's or
/// a user's: there 0 means all processes that the user has, outside too.
const OF_ONE_PROCESS: [(&str, u32); 2] = [("setpriority", 0), ("ioprio_set", 1)];

/// The same, and which value means the group: as 0 it is the caller's own, in which the launcher is, and whoever
/// started it, whatever the PID namespace.
const OF_OWN_GROUP: [(&str, u32); 2] = [("setpriority", 1), ("ioprio_set", 2)];

/// Calls that change what a file is, not what is in it.
const METADATA: [&str; 21] = [
    "chmod",
    "fchmod",
    "fchmodat",
    "fchmodat2",
    "chown",
    "fchown",
    "lchown",
    "fchownat",
    "utime",
    "utimes",
    "utimensat",
    "futimesat",
    "setxattr",
    "lsetxattr",
    "fsetxattr",
    "setxattrat",
    "removexattr",
    "lremovexattr",
    "fremovexattr",
    "removexattrat",
    "file_setattr",
];

/// Requests that change a file's attributes by a descriptor that is open for reading (`ioctl_fs(2)`
/// pages; `linux/fs.h`, `linux/fsverity.h`, `linux/fscrypt.h`): `FS_IOC_SETFLAGS` and
/// `FS_IOC_SETVERSION` in both sizes, `FS_IOC_FSSETXATTR`, `FS_IOC_ENABLE_VERITY`,
/// `FS_IOC_SET_ENCRYPTION_POLICY`, `EXT4_IOC_SETVERSION`, `FAT_IOCTL_SET_ATTRIBUTES`.
const SET_FILE_ATTRIBUTES: [u32; 9] = [
    0x4008_6602,
    0x4004_6602,
    0x4008_7602,
    0x4004_7602,
    0x401C_5820,
    0x4080_6685,
    0x800C_6613,
    0x4008_6604,
    0x4004_7211,
];

/// Ioctls of btrfs (`linux/btrfs.h`) have this type. Its subvolumes are made and removed by a descriptor of a
/// directory that is open for reading, and Landlock has no hook there. A snapshot of one that the user owns shows what
/// lies under the mounts in it: what is denied.
const TYPE_OF_IOCTL: u32 = 0xFF00;
const BTRFS: u32 = 0x9400;
/// `FICLONE`, `FICLONERANGE`, `FIDEDUPERANGE`: of the same type, and of every file system; they want
/// a descriptor that is open for writing, or change nothing.
const CLONES: [u32; 3] = [0x4004_9409, 0x4020_940D, 0xC018_9436];

/// `FS_IOC_ADD_ENCRYPTION_KEY`, `FS_IOC_REMOVE_ENCRYPTION_KEY` and `…_ALL_USERS`
/// (`linux/fscrypt.h`): by any descriptor of the file system, open for reading on a read-only mount
/// too, they lock what the user has unlocked everywhere.
const ENCRYPTION_KEYS: [u32; 3] = [0xC050_6617, 0xC040_6618, 0xC040_6619];

/// Requests that exchange what is in two files (`linux/ext4.h`, xfsprogs' `xfs_fs.h`, `linux/f2fs.h`): `EXT4_IOC_MOVE_EXT`,
/// `XFS_IOC_SWAPEXT`, `XFS_IOC_EXCHANGE_RANGE`, `XFS_IOC_COMMIT_RANGE`, `F2FS_IOC_MOVE_RANGE`. Defragmenters use them.
const EXCHANGES: [u32; 5] = [0xC028_660F, 0xC0C0_586D, 0x4028_5881, 0x4058_5883, 0xC020_F509];

/// The rules, in order: the first that holds decides.
pub(super) fn rules(
    (tier, user): (Tier, (u32, u32)),
    policy: &Policy,
    notify: bool,
    confined: bool,
    signals_inside: bool,
    degraded: &[Degraded],
) -> Vec<CallRule> {
    let mut rules = Vec::with_capacity(128);
    let mut add = |call, verdict, tests: &[(u8, Test)], reason| {
        rules.push(CallRule { call, verdict, tests: tests.to_vec(), reason });
    };
    for (reason, calls) in REFUSED {
        for call in calls.iter().filter(|call| !(policy.trace && TRACES.contains(call))) {
            add(call, Verdict::Refuse, &[], reason);
        }
    }
    // glibc falls back to clone, whose flags can be seen.
    let unseen = "its flags lie in memory, where a filter cannot look";
    add("clone3", Verdict::NotImplemented, &[], unseen);
    add("clone", Verdict::Refuse, &[(0, Test::AnyBit(CLONE_NEW))], "makes namespaces");
    terminal::rules(&mut add, notify);
    for request in ENCRYPTION_KEYS {
        let test = [(1, Test::Equals(request))];
        add("ioctl", Verdict::Refuse, &test, "reaches the keys of the host's file systems");
    }
    for request in EXCHANGES {
        let test = [(1, Test::Equals(request))];
        add("ioctl", Verdict::Refuse, &test, "changes what is in a file and leaves no time of it");
    }
    let mut test = vec![(1, Test::Masked(TYPE_OF_IOCTL, BTRFS))];
    test.extend(CLONES.map(|clone| (1, Test::Differs(clone))));
    let reason =
        "copies, makes and removes subvolumes, past the path rules and what is mounted in them";
    add("ioctl", Verdict::Refuse, &test, reason);
    sockets::rules(&mut add, tier, &policy.network, confined);
    let handle = "executes a file that has no path";
    add("execveat", Verdict::Refuse, &[(4, Test::AnyBit(AT_EMPTY_PATH))], handle);
    for (call, mode) in [("mknod", 1), ("mknodat", 2)] {
        for kind in [CHARACTER, BLOCK] {
            let test = [(mode, Test::Masked(TYPE_OF_NODE, kind))];
            add(call, Verdict::Refuse, &test, "makes a device node");
        }
    }
    for (call, mode) in [("chmod", 1), ("fchmod", 1), ("fchmodat", 2), ("fchmodat2", 2)] {
        let test = [(mode, Test::AnyBit(SET_USER_ID))];
        add(call, Verdict::Refuse, &test, "leaves a set-user-ID program on the host");
    }
    if tier == Tier::Namespace {
        // Nobody else has a number in the user namespace: the kernel says EINVAL there, and EPERM outside, which programs
        // that copy and `fakeroot` put up with.
        for (call, at) in OWNERS {
            for (argument, own) in [(at, user.0), (at + 1, user.1)] {
                let test = [(argument, Test::Differs(own)), (argument, Test::Differs(u32::MAX))];
                add(call, Verdict::Refuse, &test, "gives files to others");
            }
        }
        for (call, group) in OF_OWN_GROUP {
            let test = [(0, Test::Equals(group)), (1, Test::Equals(0))];
            add(call, Verdict::Refuse, &test, "changes processes outside, of the launcher's group");
        }
        for (call, number) in BY_NUMBER {
            let test = [(number, Test::Equals(WARDEN))];
            add(call, Verdict::Refuse, &test, "changes the warden, which puts right what is left");
        }
        // Where Landlock does not keep it inside. Programs need it: timeout(1) ends by it what its command started.
        if !signals_inside {
            let verdict = if notify { Verdict::Supervise } else { Verdict::Refuse };
            let reason = "signals processes outside, while the caller is in the launcher's group";
            add("kill", verdict, &[(0, Test::Equals(0))], reason);
            if notify {
                // `kill -- -$$` of a script that a shell started: it leads its group there.
                let first = crate::own_group::FIRST.wrapping_neg().cast_unsigned();
                let reason = "names the group that the command would lead without a sandbox";
                add("kill", verdict, &[(0, Test::Equals(first))], reason);
            }
        }
    }
    if tier == Tier::Process {
        for call in SHARED_IPC {
            add(call, Verdict::Refuse, &[], "reaches memory and queues of other programs");
        }
        for (call, number) in BY_NUMBER {
            let mut test = vec![(number, Test::Differs(0))];
            // The others are refused below: their number is a group's or a user's.
            test.extend(
                OF_ONE_PROCESS.iter().find(|of| of.0 == call).map(|of| (0, Test::Equals(of.1))),
            );
            let verdict = if notify { Verdict::Supervise } else { Verdict::Refuse };
            add(call, verdict, &test, "changes other processes of the user");
        }
        for (call, one) in OF_ONE_PROCESS {
            let test = [(0, Test::Differs(one))];
            add(call, Verdict::Refuse, &test, "changes all processes of the user");
        }
        // Shells need it for jobs. 0 makes a group.
        if notify {
            let reason = "joins a group of processes, which may be one outside";
            add("setpgid", Verdict::Supervise, &[(1, Test::Differs(0))], reason);
        }
        let verdict = if notify { Verdict::Supervise } else { Verdict::AccessDenied };
        let reason = "tells of names in directories that cannot be listed";
        add("inotify_add_watch", verdict, &[], reason);
    }
    let accepted = policy.allow_degraded.contains(&Layer::Metadata)
        || degraded.iter().any(|degraded| degraded.layer == Layer::Metadata);
    if tier == Tier::Process && !accepted {
        // Landlock does not rule them, and without a read-only view they reach every file that
        // the user owns.
        let verdict = if notify { Verdict::Supervise } else { Verdict::Refuse };
        for call in METADATA {
            add(call, verdict, &[], "changes modes, owners, times or attributes of any file");
        }
        for request in SET_FILE_ATTRIBUTES {
            let test = [(1, Test::Equals(request))];
            add("ioctl", Verdict::Refuse, &test, "changes attributes of files that can be read");
        }
    }
    if policy.strict && notify {
        let reason = "makes names, some of which are protected (--strict)";
        for (call, flags) in crate::creations::CALLS {
            let tests = flags.map(|flags| (flags, Test::AnyBit(O_CREAT)));
            add(call, Verdict::Supervise, tests.as_slice(), reason);
        }
        let unseen = "its flags lie in memory, where a filter cannot look";
        add("openat2", Verdict::NotImplemented, &[], unseen);
    }
    if policy.opens_input {
        let verdict = if notify { Verdict::Supervise } else { Verdict::Refuse };
        let test = [(2, Test::Masked(O_ACCMODE, O_RDWR))];
        add("openat", verdict, &test, "standard input is given as it is");
    }
    add("prctl", Verdict::Refuse, &[(0, Test::Equals(PR_SET_MM))], "rewrites what /proc tells");
    personality(&mut add, policy.trace);
    rules
}

/// Why a call is refused to every command, if it is, whatever its arguments.
pub fn refused_to_all(call: &str) -> Option<&'static str> {
    REFUSED.iter().find(|(_, calls)| calls.contains(&call)).map(|(reason, _)| *reason)
}

/// The calls that a profile allows, if it lists them.
pub(super) fn allowed(policy: &Policy) -> Option<AllowedCalls> {
    let list = policy.calls.as_ref()?;
    let listed = list.allow.iter().flat_map(|name| members(name));
    // The listener goes out by it, before anybody can be asked: a write to a socket that is held.
    let hands_out = (list.otherwise == Otherwise::Ask).then_some("sendmsg");
    let calls: BTreeSet<&str> = ALWAYS.into_iter().chain(listed).chain(hands_out).collect();
    let otherwise = match list.otherwise {
        Otherwise::Ask => Verdict::Ask,
        Otherwise::Refuse => Verdict::Refuse,
        Otherwise::Kill => Verdict::Kill,
    };
    Some(AllowedCalls { calls: calls.into_iter().map(str::to_owned).collect(), otherwise })
}

/// Only what container runtimes allow too: asking, the default, a 32-bit `uname`, and a 2.6 one.
/// Debuggers have their programs at the same addresses each time (`ADDR_NO_RANDOMIZE`).
fn personality(
    add: &mut impl FnMut(&'static str, Verdict, &[(u8, Test)], &'static str),
    trace: bool,
) {
    let allowed = [0, 0x8, 0x0002_0000, 0x0002_0008, 0xFFFF_FFFF];
    let fixed = trace.then_some(0x0004_0000);
    let allowed = allowed.into_iter().chain(fixed);
    let tests: Vec<_> = allowed.map(|value| (0, Test::Differs(value))).collect();
    add("personality", Verdict::Refuse, &tests, "switches to emulations with weaker rules");
}
