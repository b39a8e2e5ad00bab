//! QEMU's command line, and the sandbox that it runs in.

use super::Shape;
use super::accel::Accelerator;
use super::assets::Assets;
#[cfg(feature = "krun")]
use super::krun;
use super::memory;
use super::monitor::Monitor;
use crate::itself;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// What QEMU may read besides itself and its libraries.
const FIRMWARE: [&str; 2] = ["/usr/share/qemu", "/usr/share/seabios"];
/// Where libraries are.
const LIBRARIES: [&str; 5] = ["/usr/lib", "/lib", "/lib64", "/usr/lib64", "/etc/ld.so.cache"];

/// Set for the `ringfence run` that holds a QEMU: it is a part of a session, and none itself.
pub use ringfence_policy::own::MACHINE as INNER;

/// What a guest's kernel is told. One that has lost its footing ends, and with it the run: it could go on
/// without what its command waits for.
pub(super) const WORDS: &str = "quiet loglevel=0 oops=panic panic=-1 reboot=t random.trust_cpu=on audit=0 nowatchdog \
                     lsm=landlock,yama";
/// What it is told besides under the emulator, where each thousand instructions that are executed for the first
/// time take longer than a system call: nothing that only answers a real processor's faults, or
/// that makes a break-in into a kernel harder which holds one command of one user. Programs have the same addresses each time
/// (`norandmaps`): the emulator knows translated code by its address, and else translates a program's loader and C
/// library anew for each process (2,400 blocks for true(1)), without ever forgetting the old ones. Pages are counted for no
/// control group and gathered to no huge ones, by which no processor would gain. The emulated counter of time, which cannot
/// drift, is not watched: on a loaded host it would be given up for one that costs an exit for each look
/// (`tsc=reliable`). And a boot does not try the kernel's own cryptography (`cryptomgr.notests`).
const LIGHT: &str = "mitigations=off init_on_alloc=0 randomize_kstack_offset=off psi=0 \
                     hardened_usercopy=off rcupdate.rcu_expedited=1 norandmaps cgroup_disable=memory \
                     transparent_hugepage=never tsc=reliable cryptomgr.notests";
/// The emulator's processor: without what it emulates byte by byte (`rep movsb`), without what makes each of a
/// kernel's copies end a translated block, and without instructions that draw random numbers: QEMU answers them by a generator of its
/// own, and all clones of a saved process go on with the same one. The guest's kernel gets its randomness from the host.
const EMULATED: &str = "max,-erms,-fsrm,-la57,-smap,-rdrand,-rdseed";

/// The machine: without those of its own devices that a guest has no use for, which would be there to be broken into, and
/// whose buffers QEMU holds (of six disks that there are not, two megabytes).
const MACHINE: &str = "q35,hpet=off,sata=off,smbus=off,vmport=off";

/// The device of the guest's stream. Each end tells the other of everything that it puts into a queue (`event_idx=off`): to
/// leave that out, both have to write a number and then read the other's, in this order. QEMU before 8.1, and for
/// `lock` prefixes and `xchg` later ones too, emulates a single processor without barriers, while its devices are
/// another thread: so each of the two may read before the other's number is there, and nobody tells anybody.
const SERIAL: &str = "virtio-serial-pci,id=serial,max_ports=2,event_idx=off";

/// The port of that stream.
const PORT: &str = "virtserialport,id=port,nr=1,name=ringfence";

/// QEMU's name for what is behind the guest's stream.
pub(super) const STREAM: &str = "agent";

/// What one QEMU is given.
pub(super) struct Inmate<'a> {
    pub assets: &'a Assets,
    pub shape: &'a Shape,
    /// Its standard input. The guest's memory: a file without a name, the only one that it may write; or a template's, which it may
    /// read. Of libkrun, which has the memory itself, its end of the guest's stream.
    pub input: OwnedFd,
    /// What the guest starts from.
    pub from: &'a Origin<'a>,
    /// Its standard output: its end of the control connection, or a clone's of the guest's stream.
    pub output: OwnedFd,
    /// Where its complaints go: a clone's end of the control connection, by which it is asked for so little that nobody
    /// waits for the answers.
    pub errors: OwnedFd,
}

/// What a guest starts from.
pub(super) enum Origin<'a> {
    /// A kernel, which boots with this initial file system.
    Boot(&'a Path),
    /// A template. It boots nothing, and of the kernel only the header is asked for.
    Template(&'a Path),
    /// The same, to be made a template of: its memory is written where it is.
    Rehearsal(&'a Path),
    /// The same, to go on from another machine's state and memory: its own begins empty.
    Other(&'a Path),
    /// A saved process: its two files.
    #[cfg(target_arch = "x86_64")]
    Checkpoint(&'a [PathBuf; 2]),
    /// A kernel, which boots in libkrun.
    #[cfg(feature = "krun")]
    Krun(&'a krun::Files),
}

/// Starts QEMU in a sandbox of the namespace tier that holds nothing of the user's. It ends when
/// this process ends.
///
/// # Errors
/// The program cannot be started.
pub(super) fn start(inmate: Inmate<'_>, profile: &Path) -> io::Result<Child> {
    let mut command = itself::command();
    command.args(["run", "--tier", "namespace", "--no-record", "--clean-env", "--network", "none"]);
    command.arg("-p").arg(profile).args(["--workdir", "/tmp"]);
    // What becomes a saved process is this program.
    #[cfg(target_arch = "x86_64")]
    let program = match inmate.from {
        Origin::Checkpoint(_) => itself::place().map_err(io::Error::other)?,
        _ => PathBuf::new(),
    };
    let shown: &[&Path] = match inmate.from {
        Origin::Boot(initramfs) => &[&inmate.assets.kernel.image, initramfs],
        Origin::Template(header) | Origin::Rehearsal(header) | Origin::Other(header) => &[header],
        #[cfg(target_arch = "x86_64")]
        Origin::Checkpoint([process, pages]) => &[process, pages, &program],
        #[cfg(feature = "krun")]
        Origin::Krun(files) => &[&files.kernel, &files.initramfs, &inmate.assets.monitor],
    };
    for path in shown {
        command.arg("-r").arg(path);
    }
    if let Some(cpus) = inmate.shape.cpus {
        command.args(["--cpus", &format!("{}", f64::from(cpus) / 1000.0)]);
    }
    if inmate.shape.accelerator == Accelerator::Kvm {
        command.args(["-w", "/dev/kvm"]);
    }
    command.arg("--");
    match inmate.from {
        #[cfg(target_arch = "x86_64")]
        Origin::Checkpoint(files) => {
            command.arg(&program).arg(super::RESTORE).args(*files);
            command.arg(&inmate.assets.monitor);
        }
        #[cfg(feature = "krun")]
        Origin::Krun(files) => {
            command.arg(&inmate.assets.monitor).arg(krun::MACHINE);
            command.args(krun::words(files, inmate.shape));
        }
        _ => {
            command.arg(&inmate.assets.monitor);
            arguments(&mut command, &inmate);
        }
    }
    command.env_clear().env("PATH", "/usr/bin:/bin").env(INNER, "1");
    for name in ["HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "TMPDIR"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command.stdin(Stdio::from(inmate.input)).stdout(Stdio::from(inmate.output));
    // Ctrl-C is for the command.
    command.stderr(Stdio::from(inmate.errors)).process_group(0);
    ringfence_sys::process::spawn_bound(&mut command)
}

fn arguments(command: &mut Command, inmate: &Inmate<'_>) {
    let shape = inmate.shape;
    let megabytes = shape.memory >> 20;
    let accelerator = match shape.accelerator {
        Accelerator::Kvm => "kvm".to_owned(),
        Accelerator::Tcg => format!("tcg,tb-size={}", translated(megabytes)),
    };
    let share = if matches!(inmate.from, Origin::Template(_)) { "off" } else { "on" };
    let memory = match inmate.from {
        // What is empty in it takes none.
        Origin::Other(_) => format!("memory-backend-ram,id=memory,size={megabytes}M"),
        _ => format!(
            "memory-backend-file,id=memory,size={megabytes}M,mem-path={},share={share}",
            memory::PATH
        ),
    };
    let cpu = match shape.accelerator {
        Accelerator::Kvm => "host",
        Accelerator::Tcg => EMULATED,
    };
    let machine = format!("{MACHINE},memory-backend=memory");
    command.args(["-machine", &machine, "-accel", &accelerator]);
    command.args(["-cpu", cpu, "-smp", "1"]);
    command.args(["-m", &format!("{megabytes}M"), "-object", &memory]);
    command.args(["-nodefaults", "-no-user-config", "-display", "none", "-vga", "none"]);
    command.args(["-nic", "none", "-serial", "none", "-parallel", "none", "-no-reboot"]);
    command.args(["-device", SERIAL]);
    let control = match inmate.from {
        Origin::Boot(_) => "socket,id=control,fd=1",
        _ => "socket,id=control,fd=2",
    };
    command.args(["-chardev", control, "-mon", "chardev=control,mode=control"]);
    match inmate.from {
        Origin::Boot(initramfs) => {
            command.arg("-kernel").arg(&inmate.assets.kernel.image);
            command.arg("-initrd").arg(initramfs);
            let more = match shape.accelerator {
                Accelerator::Kvm => "",
                Accelerator::Tcg => LIGHT,
            };
            command.args(["-append", &format!("{WORDS} {more} rdinit=/init -- guest-agent")]);
        }
        Origin::Template(header) | Origin::Rehearsal(header) | Origin::Other(header) => {
            // What a boot is asked for by `Qmp::prepare`: QEMU reads what it is asked for byte by byte, each of which is
            // eight system calls of two of its threads.
            command.args(["-chardev", &format!("socket,id={STREAM},fd=1")]);
            command.args(["-device", &format!("{PORT},chardev={STREAM}")]);
            command.arg("-kernel").arg(header).args(["-incoming", "defer"]);
        }
        #[cfg(target_arch = "x86_64")]
        Origin::Checkpoint(_) => {}
        #[cfg(feature = "krun")]
        Origin::Krun(_) => {}
    }
}

/// The most megabytes of translated code: by itself QEMU lets a guest have a gigabyte, whatever memory it has. Where it is
/// full all of it is translated anew, so that it must hold what is executed again and again: that of a kernel,
/// of true(1) and of python3(1) is 39 MB, and with 12 a start of python3 takes 2.4 times as long.
fn translated(memory: u64) -> u64 {
    (memory / 4).clamp(64, 256)
}

/// The policy of the monitor's sandbox, as a profile: QEMU, its libraries, its firmware. libkrun has none of these.
pub(super) fn profile(monitor: Monitor, program: &Path) -> String {
    if monitor == Monitor::Krun {
        return "description = \"A virtual machine's monitor: nothing but the program.\"\n"
            .to_owned();
    }
    let qemu = program;
    let mut paths: Vec<PathBuf> = vec![qemu.to_owned()];
    paths.extend(FIRMWARE.iter().chain(&LIBRARIES).map(PathBuf::from));
    let quoted = |path: &PathBuf| {
        let text = path.display().to_string().replace('\\', "\\\\").replace('"', "\\\"");
        format!("\"{text}{}\"", if path == qemu { "" } else { "?" })
    };
    let list: Vec<String> = paths.iter().map(quoted).collect();
    format!(
        "description = \"A virtual machine's monitor: its own program and firmware.\"\n\
         [filesystem]\nread = [{}]\n",
        list.join(", ")
    )
}
