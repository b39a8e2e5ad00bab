//! One machine: started for a session, ended with it.

use super::Shape;
use super::assets::{self, Assets};
use super::jail::{self, Inmate};
use super::qmp::Qmp;
use super::template::{self, Key, Template};
use ringfence_sys as sys;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

/// What the names of a machine's directories begin with; the launcher's process number follows.
const PREFIX: &str = "ringfence-vm-";
/// How long QEMU may take for an answer; loaded machines are slow.
const PATIENCE: Duration = Duration::from_secs(180);
/// The most of QEMU's complaints that are shown.
const MOST_SHOWN: u64 = 2000;

/// A machine that runs.
#[derive(Debug)]
pub struct Machine {
    process: Process,
    socket: PathBuf,
}

impl Machine {
    /// Starts a machine of a shape: a clone of the template, which boots first where there is none.
    ///
    /// # Errors
    /// A sentence.
    pub fn start(assets: &Assets, shape: &Shape, home: &Path) -> Result<Machine, String> {
        let cache = assets::cache(home);
        let key = Key::of(assets, shape)?;
        let template = match Template::find(&cache, &key) {
            Some(template) => template,
            None => template::make(assets, shape, &cache, &key)?,
        };
        let state = template.state()?;
        let mut process = Process::spawn(assets, shape, &cache, None)?;
        // QEMU starts meanwhile, and has no use for its memory before it has a state. Nobody waits for
        // it: what is behind the stream is there when it is there.
        let filled = template.fill(&process.memory);
        filled
            .and_then(|()| process.control.restore(state.as_fd()))
            .map_err(|why| process.explain(why))?;
        let socket = process.directory.join("agent");
        Ok(Machine { process, socket })
    }

    /// Where the bridge connects.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The sandbox has its view: nothing is left to be found on the host.
    pub fn hide(&self) {
        let _ = fs::remove_dir_all(&self.process.directory);
    }

    /// What QEMU said last, for a guest that is gone.
    pub fn complaint(&self) -> Option<String> {
        let said = self.process.said();
        (!said.is_empty()).then_some(said)
    }
}

/// A QEMU in its sandbox.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    /// Holds the socket.
    pub directory: PathBuf,
    /// The guest's memory.
    pub memory: File,
    /// What QEMU is told by.
    pub control: Qmp,
    errors: File,
}

impl Process {
    /// Starts a QEMU: to boot from an initial file system, or to wait for a state.
    pub fn spawn(
        assets: &Assets,
        shape: &Shape,
        cache: &Path,
        boot: Option<&Path>,
    ) -> Result<Process, String> {
        let failed = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
        make_directory(cache).map_err(|error| format!("mkdir({}): {error}", cache.display()))?;
        let profile = profile(assets, cache)?;
        let directory = place().map_err(failed("mkdir"))?;
        let begun = (|| {
            let in_memory =
                || sys::fd::in_memory(b"").map_err(|errno| format!("memfd_create: {errno:?}"));
            // Without a name: it is gone with the last of those who hold it.
            let memory = File::from(in_memory()?);
            memory.set_len(shape.memory).map_err(failed("the guest's memory"))?;
            let listener = UnixListener::bind(directory.join("agent")).map_err(failed("bind"))?;
            let (control, theirs) = UnixStream::pair().map_err(failed("socketpair"))?;
            let errors = in_memory()?;
            let inmate = Inmate {
                assets,
                shape,
                memory: memory.try_clone().map_err(failed("dup"))?.into(),
                boot,
                control: theirs.into(),
                errors: errors.try_clone().map_err(failed("dup"))?,
            };
            let child = jail::start(inmate, &profile).map_err(failed("cannot start QEMU"))?;
            let mut control = Qmp::new(control, PATIENCE);
            // It will hear of it once it listens. The socket is then its alone, so that who connects
            // to it is hung up on when it ends.
            control.prepare(jail::STREAM, listener.as_fd())?;
            Ok((child, memory, control, File::from(errors)))
        })();
        match begun {
            Ok((child, memory, control, errors)) => {
                Ok(Process { child, directory, memory, control, errors })
            }
            Err(why) => {
                let _ = fs::remove_dir_all(&directory);
                Err(why)
            }
        }
    }

    /// A failure, with QEMU's own words.
    pub fn explain(&mut self, why: String) -> String {
        // What it has to say it says until its end.
        let _ = self.child.kill();
        let _ = self.child.wait();
        match self.said() {
            said if said.is_empty() => why,
            said => format!("{why}: {said}"),
        }
    }

    fn said(&self) -> String {
        let mut text = String::new();
        let Ok(mut errors) = self.errors.try_clone() else { return text };
        let _ = errors.rewind();
        let _ = errors.take(MOST_SHOWN).read_to_string(&mut text);
        text.trim().replace('\n', "; ")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Its sandbox dies with the launcher that this kills, and QEMU with its sandbox.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Makes a directory and its parents for the user alone.
pub(super) fn make_directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// The profile of QEMU's sandbox, written where it is not there as it must be.
fn profile(assets: &Assets, cache: &Path) -> Result<PathBuf, String> {
    let (path, text) = (cache.join("machine.toml"), jail::profile(&assets.qemu));
    if fs::read_to_string(&path).is_ok_and(|found| found == text) {
        return Ok(path);
    }
    let new = cache.join(format!("machine.toml.{}", std::process::id()));
    fs::write(&new, text)
        .and_then(|()| fs::rename(&new, &path))
        .map_err(|error| format!("write({}): {error}", path.display()))?;
    Ok(path)
}

/// A new directory for a socket.
fn place() -> io::Result<PathBuf> {
    let user = sys::identity::user();
    let own =
        |path: &PathBuf| path.is_absolute() && path.metadata().is_ok_and(|data| data.uid() == user);
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(own);
    let parent = runtime.unwrap_or_else(std::env::temp_dir);
    remove_dead(&parent, PREFIX);
    let path = parent.join(name(PREFIX));
    fs::DirBuilder::new().mode(0o700).create(&path).map(|()| path)
}

/// A new name that tells whose it is: this process's number follows the prefix.
pub(super) fn name(prefix: &str) -> String {
    format!("{prefix}{}-{:08x}", std::process::id(), sys::identity::random())
}

/// Removes what launchers that were killed at an unlucky moment have left.
pub(super) fn remove_dead(parent: &Path, prefix: &str) {
    let user = sys::identity::user();
    for entry in parent.read_dir().into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(prefix)) else { continue };
        let pid = rest.split('-').next().and_then(|pid| pid.parse::<i32>().ok());
        let ours = entry.metadata().is_ok_and(|data| data.is_dir() && data.uid() == user);
        let dead = |pid| sys::signal::kill(pid, 0) == Err(sys::Errno::ESRCH);
        if ours && pid.is_some_and(dead) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
