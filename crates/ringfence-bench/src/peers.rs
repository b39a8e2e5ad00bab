//! The alternatives, and how each is asked for what ringfence does by default: everything readable
//! that programs need, the workspace writable, no network.

use crate::error::{Error, Result};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

/// A command to be run under a peer.
pub struct Job<'a> {
    /// The peer's program.
    pub exe: &'a Path,
    /// The command, its program's path first.
    pub argv: &'a [OsString],
    /// The directory to run it in, the only one to be writable.
    pub space: &'a Path,
    /// A directory of the peer's own, outside the sandbox, for its settings.
    pub settings: &'a Path,
}

/// One alternative.
pub struct Peer {
    /// Its name, by which `--against` knows it.
    pub name: &'static str,
    /// Its program.
    pub program: &'static str,
    /// What asks it for its version.
    pub version: &'static [&'static str],
    /// How a command is run under it: the whole new command line.
    pub wrap: fn(&Job<'_>) -> Result<Vec<OsString>>,
}

/// Every alternative known.
pub const ALL: &[Peer] = &[
    Peer { name: "bwrap", program: "bwrap", version: &["--version"], wrap: bwrap },
    Peer { name: "firejail", program: "firejail", version: &["--version"], wrap: firejail },
    Peer { name: "nsjail", program: "nsjail", version: &["--help"], wrap: nsjail },
    Peer { name: "sandlock", program: "sandlock", version: &["--version"], wrap: sandlock },
    Peer { name: "landrun", program: "landrun", version: &["--version"], wrap: landrun },
    Peer { name: "srt", program: "srt", version: &["--version"], wrap: srt },
    Peer { name: "fence", program: "fence", version: &["--version"], wrap: fence },
    Peer { name: "greywall", program: "greywall", version: &["--version"], wrap: fence },
    Peer { name: "nono", program: "nono", version: &["--version"], wrap: nono },
    Peer { name: "crun", program: "crun", version: &["--version"], wrap: oci },
    Peer { name: "runc", program: "runc", version: &["--version"], wrap: oci },
    Peer { name: "podman", program: "podman", version: &["--version"], wrap: podman },
    Peer {
        name: "systemd-run",
        program: "systemd-run",
        version: &["--version"],
        wrap: systemd_run,
    },
];

/// Puts a command line together from words; `{space}` stands for the workspace.
fn line(job: &Job<'_>, words: &[&str]) -> Vec<OsString> {
    let space = job.space.as_os_str();
    let word = |word: &&str| match word.split_once("{space}") {
        Some((before, after)) => [before.as_ref(), space, after.as_ref()].into_iter().collect(),
        None => OsString::from(word),
    };
    let mut line = vec![job.exe.into()];
    line.extend(words.iter().map(word));
    line.extend(job.argv.iter().cloned());
    line
}

fn bwrap(job: &Job<'_>) -> Result<Vec<OsString>> {
    let words = "--ro-bind / / --dev /dev --proc /proc --tmpfs /tmp --bind {space} {space} \
                 --chdir {space} --unshare-all --die-with-parent --";
    Ok(line(job, &words.split_whitespace().collect::<Vec<_>>()))
}

fn firejail(job: &Job<'_>) -> Result<Vec<OsString>> {
    let words = "--quiet --noprofile --net=none --caps.drop=all --nonewprivs --seccomp --private-dev \
                 --private-tmp --";
    Ok(line(job, &words.split_whitespace().collect::<Vec<_>>()))
}

fn nsjail(job: &Job<'_>) -> Result<Vec<OsString>> {
    let words = "-Mo -Q --chroot / --tmpfsmount /tmp --bindmount {space} --cwd {space} --keep_env \
                 --disable_rlimits --time_limit 0 --";
    Ok(line(job, &words.split_whitespace().collect::<Vec<_>>()))
}

fn sandlock(job: &Job<'_>) -> Result<Vec<OsString>> {
    Ok(line(job, &["run", "-r", "/", "-w", "{space}", "--"]))
}

fn landrun(job: &Job<'_>) -> Result<Vec<OsString>> {
    let words = "--rox / --rwx {space} --rw /dev --env PATH --env HOME --";
    Ok(line(job, &words.split_whitespace().collect::<Vec<_>>()))
}

/// The settings that srt, Fence and Greywall share: no network, the workspace writable.
fn settings(job: &Job<'_>) -> Result<PathBuf> {
    let path = job.settings.join("settings.json");
    let text = serde_json::json!({
        "network": { "allowedDomains": [], "deniedDomains": [] },
        "filesystem": { "denyRead": [], "allowWrite": [job.space.to_string_lossy()], "denyWrite": [] },
    });
    crate::work::write(&path, text.to_string().as_bytes())?;
    Ok(path)
}

fn srt(job: &Job<'_>) -> Result<Vec<OsString>> {
    let path = settings(job)?;
    Ok(line(job, &["--settings", &path.to_string_lossy()]))
}

fn fence(job: &Job<'_>) -> Result<Vec<OsString>> {
    let path = settings(job)?;
    Ok(line(job, &["--settings", &path.to_string_lossy(), "--"]))
}

fn nono(job: &Job<'_>) -> Result<Vec<OsString>> {
    Ok(line(job, &["run", "--read", "/", "--allow", "{space}", "--net-block", "--"]))
}

fn systemd_run(job: &Job<'_>) -> Result<Vec<OsString>> {
    let user = if crate::sys::process::user() == 0 { "--system" } else { "--user" };
    let words = "--quiet --collect --wait --pipe -p PrivateNetwork=yes -p ProtectSystem=strict \
                 -p PrivateTmp=yes -p NoNewPrivileges=yes -p ReadWritePaths={space} \
                 -p WorkingDirectory={space} --";
    let words: Vec<_> = std::iter::once(user).chain(words.split_whitespace()).collect();
    Ok(line(job, &words))
}

/// The system's directories, for containers that are given no image: (real directories, links).
fn system_dirs() -> (Vec<PathBuf>, Vec<(PathBuf, PathBuf)>) {
    let (mut dirs, mut links) = (Vec::new(), Vec::new());
    for name in ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc"].map(PathBuf::from) {
        match fs::read_link(&name) {
            Ok(target) => links.push((name, target)),
            Err(_) if name.is_dir() => dirs.push(name),
            Err(_) => {}
        }
    }
    (dirs, links)
}

/// A root directory for a container: empty mount points, and the links between system directories.
fn root_directory(job: &Job<'_>) -> Result<PathBuf> {
    let root = job.settings.join("rootfs");
    let below = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
    let make = |path: PathBuf| {
        fs::create_dir_all(&path).map_err(|cause| Error::file("make", &path, cause))
    };
    let (dirs, links) = system_dirs();
    for dir in dirs.iter().map(PathBuf::as_path).chain([job.space]) {
        make(below(dir))?;
    }
    for (link, target) in links {
        let path = below(&link);
        if !path.is_symlink() {
            std::os::unix::fs::symlink(target, &path)
                .map_err(|cause| Error::file("link", &path, cause))?;
        }
    }
    Ok(root)
}

/// An OCI bundle without an image: the host's own programs, read-only.
fn oci(job: &Job<'_>) -> Result<Vec<OsString>> {
    root_directory(job)?;
    let text = |word: &OsStr| word.to_string_lossy().into_owned();
    let bind = |path: &Path, mode: &str| {
        let path = path.to_string_lossy();
        serde_json::json!({ "destination": path, "source": path, "type": "bind", "options": ["rbind", mode] })
    };
    let own = |kind: &str, at: &str| serde_json::json!({ "destination": at, "type": kind, "source": kind, "options": ["nosuid"] });
    let mut mounts = vec![own("proc", "/proc"), own("tmpfs", "/dev"), own("tmpfs", "/tmp")];
    mounts.extend(system_dirs().0.iter().map(|dir| bind(dir, "ro")));
    mounts.push(bind(job.space, "rw"));
    let mut kinds = vec!["pid", "network", "ipc", "uts", "mount", "cgroup"];
    let mut linux = serde_json::json!({});
    let user = crate::sys::process::user();
    if user != 0 {
        kinds.push("user");
        let map = serde_json::json!([{ "containerID": 0, "hostID": user, "size": 1 }]);
        linux["uidMappings"] = map.clone();
        linux["gidMappings"] = map;
    }
    linux["namespaces"] = kinds.iter().map(|kind| serde_json::json!({ "type": kind })).collect();
    let env: Vec<_> = std::env::vars().map(|(name, value)| format!("{name}={value}")).collect();
    let config = serde_json::json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false,
            "user": { "uid": 0, "gid": 0 },
            "args": job.argv.iter().map(|word| text(word)).collect::<Vec<_>>(),
            "env": env,
            "cwd": job.space.to_string_lossy(),
            "noNewPrivileges": true,
        },
        "root": { "path": "rootfs", "readonly": true },
        "mounts": mounts,
        "linux": linux,
    });
    crate::work::write(&job.settings.join("config.json"), config.to_string().as_bytes())?;
    let state = job.settings.join("state").to_string_lossy().into_owned();
    let number = job.settings.file_name().unwrap_or_default().to_string_lossy();
    let name = format!("bench-{}-{number}", std::process::id());
    let bundle = job.settings.to_string_lossy();
    let mut words = vec!["--root", &state, "run", "--bundle", &bundle, &name];
    if job.exe.ends_with("crun") {
        // No limits are asked for, and it does not start beside control groups of the first version.
        words.insert(0, "--cgroup-manager=disabled");
    }
    let mut line = line(job, &words);
    line.truncate(line.len() - job.argv.len()); // the bundle holds the command
    Ok(line)
}

fn podman(job: &Job<'_>) -> Result<Vec<OsString>> {
    let root = root_directory(job)?.to_string_lossy().into_owned();
    let mut words: Vec<String> =
        ["run", "--rm", "--quiet", "--network=none", "--security-opt=no-new-privileges"]
            .map(String::from)
            .to_vec();
    words.extend(system_dirs().0.iter().map(|dir| format!("-v={0}:{0}:ro", dir.display())));
    words.extend(
        ["-v={space}:{space}", "-w={space}", "--rootfs", &root]
            .map(|word| word.replace("{space}", &job.space.to_string_lossy())),
    );
    Ok(line(job, &words.iter().map(String::as_str).collect::<Vec<_>>()))
}
