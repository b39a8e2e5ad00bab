//! The floor: a bare program that makes the kernel calls of a launch in the namespace tier, and
//! nothing else: no policy, no plan, no supervision. How far a real sandbox is from it is what the
//! sandbox's own work costs.

use crate::error::{Error, Result};
use crate::sys::mount;
use crate::sys::process::{Child, Ended, Prepared, Stdio, die_with_parent};
use std::ffi::{CStr, CString, OsStr, OsString};
use std::io::{Read, Write};
use std::path::Path;

/// Where the new root is put together: a directory that exists everywhere and that we show nothing of.
const STAGE: &CStr = c"/sys";

/// What is shown read-only, if the host has it: as many mounts as a default policy makes.
const SHOWN: [&CStr; 11] = [
    c"usr", c"bin", c"sbin", c"lib", c"lib64", c"lib32", c"libx32", c"etc", c"opt", c"var", c"srv",
];

/// The devices every program expects.
const DEVICES: [&CStr; 6] =
    [c"dev/null", c"dev/zero", c"dev/full", c"dev/random", c"dev/urandom", c"dev/tty"];

/// The instructions of a filter like ringfence's own.
const FILTER_LENGTH: usize = 160;

/// Runs `argv` at the bottom of fresh namespaces, and answers its exit code.
pub fn run(argv: &[OsString]) -> Result<i32> {
    let step = |what: &'static str| {
        move |cause: std::io::Error| Error::new(format!("floor: {what}: {cause}"))
    };
    let (mut ready_read, mut ready_write) = std::io::pipe().map_err(step("pipe"))?;
    let ids = (crate::sys::process::user(), group());
    match mount::clone_into_namespaces().map_err(step("clone3"))? {
        Some(pid) => {
            write_proc(pid, "setgroups", "deny").map_err(step("setgroups"))?;
            let line = |id| format!("{id} {id} 1\n");
            write_proc(pid, "uid_map", &line(ids.0)).map_err(step("uid_map"))?;
            write_proc(pid, "gid_map", &line(ids.1)).map_err(step("gid_map"))?;
            ready_write.write_all(b"1").map_err(step("pipe"))?;
            drop(ready_write);
            let mut code = 125;
            while let Some((reaped, exit)) = crate::sys::signal::reap(true) {
                if reaped == pid {
                    code = exit;
                }
            }
            Ok(code)
        }
        None => {
            die_with_parent(libc::SIGKILL);
            drop(ready_write);
            let told = ready_read.read(&mut [0]).is_ok_and(|count| count == 1);
            let code = if told { inside(argv).unwrap_or_else(|error| report(&error)) } else { 125 };
            crate::sys::process::exit_now(code)
        }
    }
}

fn report(error: &Error) -> i32 {
    eprintln!("ringfence: {error}");
    125
}

fn group() -> u32 {
    std::os::unix::fs::MetadataExt::gid(&match std::fs::metadata("/proc/self") {
        Ok(metadata) => metadata,
        Err(_) => return 0,
    })
}

fn write_proc(pid: i32, name: &str, text: &str) -> std::io::Result<()> {
    std::fs::OpenOptions::new()
        .write(true)
        .open(format!("/proc/{pid}/{name}"))?
        .write_all(text.as_bytes())
}

/// What PID 1 of the new namespaces does: the mounts, the pivot, the confinement, the program.
fn inside(argv: &[OsString]) -> Result<i32> {
    let step = |what: &str| {
        let what = what.to_owned();
        move |cause: std::io::Error| Error::new(format!("floor: {what}: {cause}"))
    };
    let here = std::env::current_dir().map_err(step("getcwd"))?;
    mount::make_private().map_err(step("private"))?;
    mount::new_file_system(c"tmpfs", STAGE).map_err(step("root"))?;
    // Relative paths from here on are below the new root; the host's stay reachable by absolute ones
    // until the pivot.
    std::env::set_current_dir("/sys").map_err(step("chdir"))?;
    for name in SHOWN {
        let source = absolute(name)?;
        let Ok(meta) = std::fs::symlink_metadata(as_path(&source)) else { continue };
        if meta.is_symlink() {
            let target = std::fs::read_link(as_path(&source)).map_err(step("readlink"))?;
            std::os::unix::fs::symlink(target, as_path(name)).map_err(step("symlink"))?;
        } else {
            std::fs::create_dir(as_path(name)).map_err(step("mkdir"))?;
            mount::bind(&source, name, mount::READ_ONLY | mount::NO_SUID).map_err(step("bind"))?;
        }
    }
    for name in ["dev", "dev/shm", "dev/pts", "proc", "tmp", "run"] {
        std::fs::create_dir(name).map_err(step("mkdir"))?;
    }
    for device in DEVICES {
        std::fs::File::create(as_path(device)).map_err(step("device"))?;
        mount::bind(&absolute(device)?, device, 0).map_err(step("device"))?;
    }
    for (kind, at) in [(c"devpts", c"dev/pts"), (c"tmpfs", c"dev/shm"), (c"tmpfs", c"tmp")] {
        mount::new_file_system(kind, at).map_err(step("file system"))?;
    }
    mount::new_file_system(c"tmpfs", c"run").map_err(step("run"))?;
    mount::new_file_system(c"proc", c"proc").map_err(step("proc"))?;
    workspace(&here)?;
    mount::pivot_here().map_err(step("pivot_root"))?;
    mount::loopback_up().map_err(step("loopback"))?;
    std::env::set_current_dir(&here).map_err(step("chdir"))?;
    mount::drop_privileges().map_err(step("capset"))?;
    let write = [c"/tmp", c"/run", c"/dev", c"."];
    mount::landlock(&[c"/usr", c"/etc", c"/var", c"/proc", c"/"], &write)
        .map_err(step("landlock"))?;
    mount::seccomp(FILTER_LENGTH).map_err(step("seccomp"))?;
    launch(argv, &here)
}

/// Shows the current directory, writable, where it is on the host.
fn workspace(here: &Path) -> Result<()> {
    let relative = here.strip_prefix("/").unwrap_or(here);
    if relative.as_os_str().is_empty() {
        return Ok(());
    }
    if !relative.exists() {
        std::fs::create_dir_all(relative).map_err(|cause| Error::file("make", relative, cause))?;
    }
    let c = |path: &Path| CString::new(path.as_os_str().as_encoded_bytes());
    let (Ok(source), Ok(target)) = (c(here), c(relative)) else {
        return Err(Error::new("floor: the current directory's name holds a NUL byte"));
    };
    mount::bind(&source, &target, 0).map_err(|cause| Error::file("bind", here, cause))
}

fn launch(argv: &[OsString], cwd: &Path) -> Result<i32> {
    let cause = |cause: std::io::Error| Error::new(format!("floor: exec: {cause}"));
    let program = argv.first().ok_or_else(|| Error::new("floor: no command"))?;
    let env: Vec<OsString> = std::env::vars_os()
        .map(|(name, value)| {
            [name.as_os_str(), OsStr::new("="), value.as_os_str()].into_iter().collect()
        })
        .collect();
    let command = Prepared::new(
        Path::new(program),
        argv.iter().map(OsString::as_os_str),
        env.iter().map(OsString::as_os_str),
        cwd,
    )
    .map_err(cause)?;
    let stdio = Stdio { stdin: 0, stdout: 1, stderr: 2, extra: None };
    match Child::start(&command, &stdio).map_err(cause)?.wait(None).map_err(cause)? {
        Some(Ended::Code(code)) => Ok(code),
        Some(Ended::Signal(signal)) => Ok(128 + signal),
        None => Ok(124),
    }
}

fn absolute(name: &CStr) -> Result<CString> {
    let mut bytes = b"/".to_vec();
    bytes.extend_from_slice(name.to_bytes());
    CString::new(bytes).map_err(|cause| Error::new(cause.to_string()))
}

fn as_path(name: &CStr) -> &Path {
    Path::new(<OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(name.to_bytes()))
}
