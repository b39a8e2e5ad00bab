//! Control groups: found, made for one sandbox, removed (cgroups(7)).

use crate::error::LaunchError;
use crate::facts::Cgroups;
use crate::plan::LimitStep;
use ringfence_sys as sys;
use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Groups of ours carry this prefix and the launcher's PID.
const PREFIX: &str = "ringfence-";
const CONTROLLERS: [&str; 3] = ["memory", "pids", "cpu"];

/// Finds where groups may be made: version 2 where a subtree is delegated to us, version 1
/// where its directories can be written.
pub(crate) fn find() -> Cgroups {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut cgroups = Cgroups::default();
    for line in mounts.lines() {
        let mut fields = line.split(' ');
        let (Some(_), Some(at), Some(kind), Some(options)) =
            (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        match kind {
            "cgroup2" => cgroups.v2 = cgroups.v2.or_else(|| delegated(Path::new(at), &own)),
            "cgroup" => {
                for controller in CONTROLLERS {
                    let ours = options.split(',').any(|option| option == controller);
                    if ours && writable(Path::new(at)) {
                        cgroups.v1.insert(controller.to_owned(), PathBuf::from(at));
                    }
                }
            }
            _ => {}
        }
    }
    cgroups
}

/// The nearest group, from ours up, in which we may make groups that get the controllers.
fn delegated(mount: &Path, own: &str) -> Option<(PathBuf, Vec<String>)> {
    let relative = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mut at = mount.join(relative.trim_start_matches('/'));
    loop {
        let enabled = fs::read_to_string(at.join("cgroup.subtree_control")).unwrap_or_default();
        let controllers: Vec<String> = enabled.split_whitespace().map(ToOwned::to_owned).collect();
        if controllers.iter().any(|name| CONTROLLERS.contains(&name.as_str())) && writable(&at) {
            return Some((at, controllers));
        }
        if at == mount || !at.pop() {
            return None;
        }
    }
}

fn writable(path: &Path) -> bool {
    sys::fd::may_write(path)
}

/// The groups of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    v2: Option<(PathBuf, OwnedFd)>,
    v1: BTreeMap<PathBuf, ()>,
}

impl Groups {
    /// Whether there are groups that the child has to join by itself.
    pub fn v1_wanted(&self) -> bool {
        !self.v1.is_empty()
    }

    /// Makes the groups that the limits ask for.
    ///
    /// # Errors
    /// The failing path.
    pub fn make(limits: &[LimitStep], session: &str) -> Result<Groups, LaunchError> {
        let mut groups = Groups::default();
        for limit in limits {
            let (parent, settings, second) = match limit {
                LimitStep::Cgroup { parent, settings } => (parent, settings, true),
                LimitStep::CgroupV1 { parent, settings } => (parent, settings, false),
                _ => continue,
            };
            remove_dead(parent);
            let path = parent.join(format!("{PREFIX}{}-{session}", std::process::id()));
            let made = groups.make_one(&path, settings, second);
            if let Err((call, error)) = made {
                let errno = sys::Errno::new(error.raw_os_error().unwrap_or(5));
                let advice = "the limit cannot be set in this control group";
                return Err(LaunchError::call(call, errno, advice));
            }
        }
        Ok(groups)
    }

    fn make_one(
        &mut self,
        path: &Path,
        settings: &[(String, String)],
        second: bool,
    ) -> Result<(), (String, std::io::Error)> {
        let at = |call: String| move |error| (call, error);
        fs::create_dir(path).map_err(at(format!("mkdir({})", path.display())))?;
        if second {
            let directory =
                fs::File::open(path).map_err(at(format!("open({})", path.display())))?;
            self.v2 = Some((path.to_owned(), directory.into()));
        } else {
            self.v1.insert(path.to_owned(), ());
        }
        for (name, value) in settings {
            let file = path.join(name);
            match fs::write(&file, value) {
                // Without swap there is nothing to limit.
                Err(error)
                    if (name.contains("swap") || name.contains("memsw"))
                        && error.kind() == std::io::ErrorKind::NotFound => {}
                other => other.map_err(at(format!("write({}, {value})", file.display())))?,
            }
        }
        Ok(())
    }

    /// The group that a new process is made in.
    pub fn v2(&self) -> Option<BorrowedFd<'_>> {
        self.v2.as_ref().map(|(_, directory)| directory.as_fd())
    }

    /// Moves the calling process into the groups of version 1.
    pub fn join_v1(&self) -> Result<(), String> {
        for path in self.v1.keys() {
            let file = path.join("cgroup.procs");
            fs::write(&file, "0")
                .map_err(|error| format!("cannot join {}: {error}", file.display()))?;
        }
        Ok(())
    }

    /// Which limits were reached, by the kernel's own counters.
    pub fn limits_hit(&self) -> Vec<String> {
        let count = |path: &Path, file: &str, key: &str| -> u64 {
            let text = fs::read_to_string(path.join(file)).unwrap_or_default();
            let found = text.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok());
            found.unwrap_or(0)
        };
        let mut hit = Vec::new();
        for path in self.v2.iter().map(|(path, _)| path).chain(self.v1.keys()) {
            let killed = count(path, "memory.events", "oom_kill ")
                + count(path, "memory.oom_control", "oom_kill ");
            if killed > 0 {
                let what = "the memory limit was reached (--memory)";
                let killed = match killed {
                    1 => "1 process".to_owned(),
                    _ => format!("{killed} processes"),
                };
                hit.push(format!("{what}: the kernel ended {killed}"));
            }
            if count(path, "pids.events", "max ") > 0 {
                hit.push("the process limit was reached (--pids)".to_owned());
            }
        }
        hit
    }
}

/// Removes the groups, which are empty by now. (The child's copy is never dropped: it exits.)
impl Drop for Groups {
    fn drop(&mut self) {
        let second = self.v2.iter().map(|(path, _)| path);
        for path in second.chain(self.v1.keys()) {
            let _ = fs::remove_dir(path);
        }
    }
}

/// Removes groups whose launcher was killed before it could: they are empty, and their
/// launcher's PID is gone.
fn remove_dead(parent: &Path) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else { continue };
        let pid = rest.split('-').next().and_then(|pid| pid.parse().ok());
        if pid.is_some_and(|pid| sys::signal::kill(pid, 0) == Err(sys::Errno::ESRCH)) {
            // A group with processes in it refuses.
            let _ = fs::remove_dir(entry.path());
        }
    }
}
