//! Tries whether namespaces can be made here, by making them.

use crate::facts::Availability;
use ringfence_sys as sys;
use std::path::Path;
use sys::Errno;
use sys::process::{Forked, Namespaces};

/// Makes a child with the namespaces of the namespace tier, which mounts a `/proc` and ends.
pub fn probe() -> Availability {
    let all = [
        Namespaces::MOUNT,
        Namespaces::PID,
        Namespaces::NETWORK,
        Namespaces::IPC,
        Namespaces::UTS,
        Namespaces::CGROUP,
    ];
    let all = all.into_iter().fold(Namespaces::USER, Namespaces::and);
    let (user, group) = (sys::identity::user(), sys::identity::group());
    match ringfence_start::withdrawn::again(|| sys::process::fork_into(all, None)) {
        Ok(Forked::Child) => {
            let mapped = map_identity(user, group);
            let proc = sys::mount::new_file_system(c"proc");
            sys::process::exit_now(match (mapped, proc) {
                (Ok(()), Ok(_)) => 0,
                (Err(_), _) => 1,
                (_, Err(_)) => 2,
            })
        }
        Ok(Forked::Parent(..)) => match sys::process::wait_any(true) {
            Ok(Some((_, sys::process::Change::Exited(0)))) => Availability::Yes,
            Ok(Some((_, sys::process::Change::Exited(1)))) => Availability::No(no_identity()),
            Ok(Some((_, sys::process::Change::Exited(2)))) => Availability::No(no_proc()),
            _ => Availability::No("the trial process died".to_owned()),
        },
        Err(errno) => Availability::No(reason(errno)),
    }
}

/// What is said where a user namespace is of no use.
pub(super) fn no_identity() -> String {
    format!("a user namespace can be made, but its identity cannot be mapped{}", hint())
}

/// What is said where the others are not: a new `/proc` would show what the one that we see is covered for
/// (`mount_too_revealing` in the kernel's fs/namespace.c).
pub(super) fn no_proc() -> String {
    format!(
        "namespaces can be made, but no /proc can be mounted in them (a container hides parts of its own /proc){}",
        hint()
    )
}

/// Why the kernel refused, as far as the host shows it.
pub(super) fn reason(errno: Errno) -> String {
    let what = match errno {
        Errno::ENOSPC => {
            "the limit of namespaces is reached (user.max_user_namespaces, user.max_net_namespaces)"
        }
        Errno::EPERM => "the kernel or a container's filter refuses new user namespaces",
        Errno::ENOSYS => "a container's filter hides clone3, or the kernel is older than 5.3",
        Errno::EINVAL => "the kernel was built without a namespace that is needed",
        Errno::EUSERS => "user namespaces are nested too deep",
        _ => "clone3 failed",
    };
    format!("{what} ({errno:?}){}", hint())
}

/// The settings by which distributions close user namespaces.
fn hint() -> String {
    let read = |path: &str| std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
    if std::env::var_os("RINGFENCE").is_some() {
        return "; we are inside a sandbox already".to_owned();
    }
    if read("/proc/sys/user/max_user_namespaces").as_deref() == Some("0") {
        return "; user.max_user_namespaces is 0: sysctl user.max_user_namespaces=15000".to_owned();
    }
    if read("/proc/sys/kernel/unprivileged_userns_clone").as_deref() == Some("0") {
        return "; kernel.unprivileged_userns_clone is 0: sysctl kernel.unprivileged_userns_clone=1".to_owned();
    }
    if read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").as_deref() == Some("1") {
        return "; AppArmor restricts user namespaces: give ringfence a profile with `userns,` (ringfence doctor prints it)".to_owned();
    }
    if Path::new("/.dockerenv").exists() || Path::new("/run/.containerenv").exists() {
        return "; this is a container: run it with --security-opt seccomp=unconfined --security-opt systempaths=unconfined, or use --tier process".to_owned();
    }
    String::new()
}

/// Maps the user and the group to themselves, as a launch does.
fn map_identity(user: u32, group: u32) -> sys::Result<()> {
    use std::os::fd::AsFd;
    let write = |path: &std::ffi::CStr, text: String| {
        let file = sys::fd::open_at(sys::fd::CWD, path, sys::fd::WRITE_ONLY, 0)?;
        sys::fd::write_all(file.as_fd(), text.as_bytes())
    };
    write(c"/proc/self/setgroups", "deny".to_owned())?;
    write(c"/proc/self/uid_map", format!("{user} {user} 1"))?;
    write(c"/proc/self/gid_map", format!("{group} {group} 1"))
}
