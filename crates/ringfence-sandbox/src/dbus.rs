//! The session bus inside: a filter in front of the user's own, by xdg-dbus-proxy(1).
//!
//! Started as soon as the policy is known, and awaited where the plan needs its socket: the rest of
//! the start goes on meanwhile. It ends when its end of a socket is closed, by whatever ends the
//! launcher. Its directory on the host is removed as soon as the sandbox has its view, in which
//! the socket stays.

use ringfence_policy::{
    Access, BusAccess, BusRule, Guarded, PathRule, Policy, Source, TierChoice, Transport,
};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The program.
const PROXY: &str = "xdg-dbus-proxy";
/// How long it may take to be ready.
const PATIENCE: Duration = Duration::from_secs(10);
/// What the directories of the sockets are called; the launcher's process number follows.
const PREFIX: &str = "ringfence-bus-";
const VARIABLE: &str = "DBUS_SESSION_BUS_ADDRESS";
/// Names a file for what is asked of the bus, in the filter's words. Then there is a filter
/// without rules too, where it can be: what is asked is seen, and nothing of it granted.
pub const TRACE: &str = "RINGFENCE_TRACE_BUS";

/// A filtered session bus.
#[derive(Debug)]
pub struct Bus {
    /// Closed, it ends the proxy.
    alive: UnixStream,
    directory: PathBuf,
    source: Source,
    child: Child,
}

impl Bus {
    /// Starts the filter that a policy asks for, if it does.
    ///
    /// # Errors
    /// A sentence: the program or the bus is missing, or the policy has what does not go with it.
    pub fn start(policy: &Policy) -> Result<Option<Bus>, String> {
        let trace = std::env::var_os(TRACE).map(PathBuf::from).filter(|path| path.is_absolute());
        let source = match (policy.dbus.first(), &trace) {
            (Some(first), _) => first.source.clone(),
            (None, Some(_)) if can_be(policy) => {
                Source { origin: "built in".to_owned(), key: String::new(), text: TRACE.to_owned() }
            }
            (None, _) => return Ok(None),
        };
        let asked = crate::text::source(&source);
        if policy.tier == TierChoice::Process {
            return Err(format!(
                "{asked} needs the namespace tier: the process tier refuses all local sockets"
            ));
        }
        let user = ringfence_sys::identity::user();
        if policy.network.publishes(Transport::Tcp) && user != 0 {
            return Err(format!(
                "{asked} does not go with --publish for an ordinary user: over a bus the published \
                 socket could be passed on to another program; leave one of them away"
            ));
        }
        let program = found(PROXY).ok_or_else(|| {
            format!("{asked} needs {PROXY}, which is not installed; install the package {PROXY}")
        })?;
        let address = address(user).ok_or_else(|| {
            format!(
                "{asked} needs a session bus, and {VARIABLE} names none; log in to a desktop, or \
                     start the command under dbus-run-session"
            )
        })?;
        let directory = directory(user).map_err(|error| {
            format!("cannot make a directory for the socket of {PROXY}: {error}")
        })?;
        let failed = |error: std::io::Error| format!("cannot start {}: {error}", program.display());
        let (alive, theirs) = UnixStream::pair().map_err(failed)?;
        let log = trace.map(std::fs::File::create).transpose().map_err(failed)?;
        let child = Command::new(&program)
            .arg("--fd=0")
            .arg(address)
            .arg(directory.join("bus"))
            .arg("--filter")
            .args(policy.dbus.iter().map(argument))
            .args(log.is_some().then_some("--log"))
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(log.map_or_else(Stdio::null, Stdio::from))
            // Ctrl-C is for the command.
            .process_group(0)
            .spawn()
            .map_err(|error| {
                let _ = std::fs::remove_dir_all(&directory);
                failed(error)
            })?;
        Ok(Some(Bus { alive, directory, source, child }))
    }

    /// Waits until it listens, and shows its socket to what the policy is about.
    ///
    /// # Errors
    /// A sentence: it ended, or is not ready in time.
    pub fn show(&mut self, policy: &mut Policy) -> Result<(), String> {
        let socket = self.directory.join("bus");
        let ready = self
            .alive
            .set_read_timeout(Some(PATIENCE))
            .and_then(|()| self.alive.read_exact(&mut [0]));
        if ready.is_err() {
            let how = match self.child.try_wait() {
                Ok(Some(status)) => format!("it ended ({status})"),
                _ => format!("it was not ready within {PATIENCE:?}"),
            };
            return Err(format!(
                "{PROXY} does not serve the bus: {how}; is the session bus there?"
            ));
        }
        policy.network.sockets.push(PathRule {
            access: Access::Read,
            path: socket.clone(),
            pattern: None,
            optional: false,
            guarded: Guarded::Plain,
            reason: None,
            source: self.source.clone(),
        });
        let value = format!("unix:path={}", socket.display());
        policy.environment.set.insert(VARIABLE.to_owned(), (value, self.source.clone()));
        Ok(())
    }

    /// The sandbox has its view: nothing is left to be found on the host.
    pub fn hide(&self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Drop for Bus {
    fn drop(&mut self) {
        self.hide();
        let _ = self.alive.shutdown(std::net::Shutdown::Both);
        let _ = self.child.wait();
    }
}

/// Whether a bus and a filter for it are there, and the policy goes with them.
fn can_be(policy: &Policy) -> bool {
    let user = ringfence_sys::identity::user();
    let published = !policy.network.publish.is_empty() && user != 0;
    policy.tier != TierChoice::Process
        && !published
        && found(PROXY).is_some()
        && address(user).is_some()
}

fn argument(rule: &BusRule) -> String {
    let word = match rule.access {
        BusAccess::See => "see",
        BusAccess::Talk => "talk",
        BusAccess::Own => "own",
        BusAccess::Call => "call",
    };
    match &rule.rule {
        Some(call) => format!("--{word}={}={call}", rule.name),
        None => format!("--{word}={}", rule.name),
    }
}

/// Where a program is, by `PATH`.
fn found(name: &str) -> Option<PathBuf> {
    let search = std::env::var_os("PATH")?;
    let mut places = std::env::split_paths(&search).map(|directory| directory.join(name));
    places.find(|path| path.is_absolute() && path.is_file())
}

/// The user's own bus (the D-Bus specification's and systemd's ways to name it).
fn address(user: u32) -> Option<String> {
    if let Ok(address) = std::env::var(VARIABLE)
        && !address.is_empty()
    {
        return Some(address);
    }
    let usual = format!("/run/user/{user}/bus");
    Path::new(&usual).exists().then(|| format!("unix:path={usual}"))
}

/// A new directory of the user's own for the socket. Those of launchers that were killed before
/// their sandbox had its view are removed.
fn directory(user: u32) -> std::io::Result<PathBuf> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let own =
        |path: &PathBuf| path.is_absolute() && path.metadata().is_ok_and(|data| data.uid() == user);
    let parent = runtime.filter(own).unwrap_or_else(std::env::temp_dir);
    for entry in parent.read_dir()?.flatten() {
        let name = entry.file_name();
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else { continue };
        let Some(pid) = rest.split('-').next().and_then(|pid| pid.parse::<u32>().ok()) else {
            continue;
        };
        let ours = entry.metadata().is_ok_and(|data| data.is_dir() && data.uid() == user);
        if ours && !Path::new(&format!("/proc/{pid}")).exists() {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
    let random = ringfence_sys::identity::random();
    let path = parent.join(format!("{PREFIX}{}-{random:08x}", std::process::id()));
    std::fs::DirBuilder::new().mode(0o700).create(&path)?;
    Ok(path)
}
