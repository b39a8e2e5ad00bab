//! The bench's own directory: the workspace that the measured programs see, their state, the tool.

use crate::error::{Error, Result, error};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The working directory of one run. It is locked for as long as any process of the run lives.
pub struct Work {
    /// The directory itself.
    pub root: PathBuf,
    /// The project directory that sandboxes get as theirs: a git repository.
    pub space: PathBuf,
    _lock: File,
}

/// How many files the workspace's repository holds.
const FILES: usize = 200;

impl Work {
    /// Makes a fresh working directory below `base`, and removes those that dead runs left.
    pub fn create(base: Option<&Path>) -> Result<Work> {
        let base = match base {
            Some(base) => base.to_owned(),
            None => default_base(),
        };
        fs::create_dir_all(&base).map_err(|cause| Error::file("make", &base, cause))?;
        sweep(&base);
        let root = base.join(format!("{}-{:04x}", std::process::id(), fastrand::u16(..)));
        private_dir(&root)?;
        let lock_path = root.join("lock");
        let lock =
            File::create(&lock_path).map_err(|cause| Error::file("make", &lock_path, cause))?;
        lock.lock().map_err(|cause| Error::file("lock", &lock_path, cause))?;
        let space = root.join("space");
        for dir in ["space", "state", "cache", "run"] {
            private_dir(&root.join(dir))?;
        }
        Ok(Work { root, space, _lock: lock })
    }

    /// The environment of everything measured: the caller's, with our own places for state.
    #[must_use]
    pub fn environment(&self) -> Vec<OsString> {
        let ours =
            [("XDG_STATE_HOME", "state"), ("XDG_CACHE_HOME", "cache"), ("XDG_RUNTIME_DIR", "run")];
        std::env::vars_os()
            .filter(|(name, _)| {
                !name.as_encoded_bytes().starts_with(b"RINGFENCE")
                    && ours.iter().all(|(ours, _)| name != ours)
            })
            .chain(ours.iter().map(|(name, dir)| (name.into(), self.root.join(dir).into())))
            .map(|(name, value)| [name, value].join(OsStr::new("=")))
            .collect()
    }

    /// Fills the workspace: the tool, a file to read, and a repository for git and rg.
    pub fn fill(&self, tool: &Path) -> Result<()> {
        let ours = self.space.join(".bench");
        private_dir(&ours)?;
        let copy = self.tool();
        fs::copy(tool, &copy).map_err(|cause| Error::file("copy", tool, cause))?;
        write(&self.space.join(".gitignore"), b".bench/\nout.txt\n")?;
        write(&self.space.join("in.txt"), b"test\n")?;
        for number in 0..FILES {
            let dir = self.space.join(format!("src/part{}", number / 20));
            fs::create_dir_all(&dir).map_err(|cause| Error::file("make", &dir, cause))?;
            let text = format!("package part{number}\n").repeat(40);
            write(&dir.join(format!("file{number}.txt")), text.as_bytes())?;
        }
        Ok(())
    }

    /// Makes the workspace a repository with one commit. Needs git.
    pub fn make_repository(&self, git: &Path) -> Result<()> {
        if self.space.join(".git").exists() {
            return Ok(());
        }
        for args in [&["init", "-q"][..], &["add", "."], &["commit", "-q", "-m", "bench"]] {
            let name = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"];
            let out = Command::new(git)
                .args(name)
                .args(["-c", "commit.gpgsign=false", "-c", "init.defaultBranch=main"])
                .args(args)
                .current_dir(&self.space)
                .env("GIT_CONFIG_GLOBAL", "/dev/null")
                .output()
                .map_err(|cause| Error::file("run", git, cause))?;
            if !out.status.success() {
                let said = String::from_utf8_lossy(&out.stderr);
                return Err(error!("git {} failed: {}", args.join(" "), said.trim()));
            }
        }
        Ok(())
    }

    /// Where the copy of this program is that runs inside sandboxes.
    #[must_use]
    pub fn tool(&self) -> PathBuf {
        self.space.join(".bench/tool")
    }

    /// Makes an empty directory of this name, replacing what was there.
    pub fn fresh(&self, name: &str) -> Result<PathBuf> {
        let dir = self.root.join(name);
        crate::guard::remove(&dir);
        private_dir(&dir)?;
        Ok(dir)
    }
}

/// `~/.cache/ringfence-bench`: on a real file system, and not below /tmp, which sandboxes replace.
fn default_base() -> PathBuf {
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    std::env::var_os("XDG_CACHE_HOME")
        .and_then(absolute)
        .or_else(|| std::env::var_os("HOME").and_then(absolute).map(|home| home.join(".cache")))
        .unwrap_or_else(std::env::temp_dir)
        .join("ringfence-bench")
}

/// Removes the directories of runs of which no process is left (all killed at once).
fn sweep(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let dir = entry.path();
        let Ok(lock) = File::open(dir.join("lock")) else { continue };
        if lock.try_lock().is_ok() {
            crate::guard::remove(&dir);
        }
    }
}

fn private_dir(dir: &Path) -> Result<()> {
    fs::DirBuilder::new().mode(0o700).create(dir).map_err(|cause| Error::file("make", dir, cause))
}

/// Writes a file.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).map_err(|cause| Error::file("write", path, cause))
}

/// Finds a program: a native one, looked for in the system's directories before the user's, because
/// those in a home directory are often shell scripts (version managers), and hidden inside a sandbox.
#[must_use]
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"];
    system
        .iter()
        .map(PathBuf::from)
        .chain(std::env::split_paths(&path).filter(|dir| dir.is_absolute()))
        .map(|dir| dir.join(name))
        .find(|path| is_native(path))
}

/// Finds a program of any kind, scripts included, as a user's shell would.
#[must_use]
pub fn find_any(name: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let executable = |path: &PathBuf| {
        fs::metadata(path)
            .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    find(name).or_else(|| {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).map(|dir| dir.join(name)).find(executable)
    })
}

fn is_native(path: &Path) -> bool {
    use std::io::Read;
    let mut magic = [0; 4];
    File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok()
        && magic == *b"\x7fELF"
}
