//! A run that is watched where it changes nothing, and what it teaches.

use crate::error::Fault;
use crate::held;
use crate::learnt_calls::{self, About};
use crate::libraries;
use crate::options::{POLICY, Parsed};
use crate::proposed::Told;
use ringfence_learn::bus;
use ringfence_learn::masked;
use ringfence_learn::propose::{Asked, Proposal, propose};
use ringfence_learn::secrets::Secrets;
use ringfence_learn::variables;
use ringfence_learn::watch::{self, Observed, Use, Watch};
use ringfence_policy::decide::Request;
use ringfence_policy::own::LEARNING;
use ringfence_policy::path::quote;
use ringfence_policy::protect::held_in_home;
use ringfence_policy::{
    Access, HostFiles, NetworkMode, PathRule, Policy, Subject, decide, variable_names,
};
use ringfence_sandbox::dbus::TRACE;
use ringfence_session::ledger::{Reader, Row};
use ringfence_session::place;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// What a run taught.
#[derive(Default)]
pub struct Lesson {
    /// Its exit code.
    pub code: u8,
    /// What the policy lacks for it; unset where nothing ran.
    pub proposal: Option<Proposal>,
    /// What is said in front of it.
    pub head: Vec<String>,
    /// What else is told as data.
    pub told: Told,
}

/// Runs a command and watches it. `about` says which profile its system calls are evidence for.
///
/// # Errors
/// A host without overlays or notification.
pub fn watch(
    parsed: &Parsed,
    argv: &[OsString],
    policy: &Policy,
    about: &About,
) -> Result<Lesson, Fault> {
    let scratch = Scratch::make()?;
    let what = Watch { looks: false, calls: policy.calls.is_some() };
    let (status, observed) = watch::run(inner(parsed, argv, policy, &scratch)?, what).map_err(|error| {
        Fault::of(format!("the run cannot be watched: {error}; learning needs seccomp notification (Linux 5.9), and no filter around ringfence that uses it"))
    })?;
    let code = exit_code(status);
    let words = argv.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let told = Told::of(words, code, &observed);
    let mut lesson = Lesson { code, proposal: None, head: Vec::new(), told };
    if observed.processes == 0 {
        return Ok(lesson);
    }
    std::thread::scope(|beside| {
        // Of the layer nothing is read any more.
        beside.spawn(|| without_layers(&scratch.0));
        taught(&mut lesson, argv, policy, about, &observed, &scratch)
    })?;
    Ok(lesson)
}

/// Fills in what was seen.
fn taught(
    lesson: &mut Lesson,
    argv: &[OsString],
    policy: &Policy,
    about: &About,
    observed: &Observed,
    scratch: &Scratch,
) -> Result<(), Fault> {
    let names = variable_names();
    let (mut proposal, spoken) = std::thread::scope(|beside| {
        let spoken = beside.spawn(|| variables::spoken(policy, &names, observed));
        let proposal = propose(policy, observed, &asked(&scratch.sessions()));
        let spoken = spoken.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (proposal, spoken)
    });
    let log = std::fs::read(scratch.bus()).unwrap_or_default();
    let connected = observed.sockets.iter().filter(|(path, _)| is_bus(path));
    let connected = connected.flat_map(|(_, uses)| uses.by.iter().cloned()).collect();
    proposal.bus(policy, &bus::refused(&String::from_utf8_lossy(&log)), &connected);
    proposal.variables(spoken);
    if policy.exact_libraries {
        proposal.libraries(policy, &libraries::answer(policy, argv), observed);
    }
    learnt_calls::propose(&mut proposal, policy, observed, about)?;
    let head = &mut lesson.head;
    head.push(format!("Learnt by ringfence from: {}", shown(argv)));
    if lesson.code != 0 {
        head.push(format!(
            "The command ended with code {}: what it would have done after that is not known.",
            lesson.code
        ));
    }
    // 124 is that of --timeout.
    head.extend(observed.peaks.lines(lesson.code == 124 || lesson.code > 128));
    if observed.lost > 0 {
        head.push(format!("Too much to remember: {} uses are left out.", observed.lost));
    }
    lesson.proposal = Some(proposal);
    Ok(())
}

/// A command line as a comment has it: others may read that.
pub fn shown(argv: &[OsString]) -> String {
    let words: Vec<String> = argv.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    masked::line(&words).chars().take(200).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A directory of our own for the session and its overlay: removed at the end.
pub struct Scratch(PathBuf, #[allow(dead_code, reason = "held for its lock")] Option<File>);

impl Scratch {
    /// Makes it.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn make() -> Result<Scratch, Fault> {
        if let Ok(above) = place::state().map(|state| state.join(place::LEARN))
            && place::private_directory(&above).is_ok()
        {
            place::spread(&above);
            held::tidy(&above, remove);
            if let Ok((path, lock)) = held::make(&above) {
                return Ok(Scratch(path, Some(lock)));
            }
        }
        // Where no state can be kept there are no sandboxes of this user's that could look for it elsewhere.
        let random = ringfence_sandbox::launch::random();
        let path = std::env::temp_dir().join(format!("ringfence-learn-{random:08x}"));
        let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
        made.map(|()| Scratch(path.clone(), None)).map_err(|error| {
            Fault::of(format!(
                "cannot make {}: {error} (TMPDIR names another place)",
                path.display()
            ))
        })
    }

    /// Writes a file into it.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn file(&self, name: &str, text: &str) -> Result<PathBuf, Fault> {
        let path = self.0.join(name);
        std::fs::write(&path, text).map_err(Fault::of)?;
        Ok(path)
    }

    /// What was asked of the session bus.
    fn bus(&self) -> PathBuf {
        self.0.join("bus")
    }

    fn sessions(&self) -> PathBuf {
        self.0.join("sessions")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove(&self.0);
    }
}

/// Removes it, unless a run whose `learn` was killed goes on in it: a later one finds it.
fn remove(scratch: &Path) {
    if without_layers(scratch) {
        let _ = std::fs::remove_dir_all(scratch);
    }
}

/// Removes what the command wrote; false where some of it is in use.
fn without_layers(scratch: &Path) -> bool {
    let sessions = std::fs::read_dir(scratch.join("sessions")).into_iter().flatten().flatten();
    let removed = sessions.map(|session| ringfence_session::overlay::remove(&session.path()));
    removed.filter(Result::is_err).count() == 0
}

/// The run that is watched: it sees the host but for credentials, and writes nowhere real.
fn inner(
    parsed: &Parsed,
    argv: &[OsString],
    policy: &Policy,
    scratch: &Scratch,
) -> Result<Command, Fault> {
    let mut command = ringfence_sandbox::itself::command();
    command.env(LEARNING, &scratch.0).env(TRACE, scratch.bus()).arg("run");
    const OURS: [&str; 11] = [
        "output", "merge", "from", "json", "libs", "home", "overlay", "tier", "name", "command",
        "syscalls",
    ];
    for (name, value) in parsed.options.iter().filter(|(name, _)| !OURS.contains(name)) {
        let mut option = OsString::from(format!("--{name}"));
        if POLICY.iter().any(|spec| spec.long == *name && spec.value.is_some()) {
            option.push("=");
            option.push(value);
        }
        command.arg(option);
    }
    command.args(["--tier", "namespace", "--home", "host", "--overlay=discard"]);
    // What a list refuses would not be seen, nor what the exact set of libraries leaves out.
    command.args(["--syscalls", "default", "--libs", "all"]);
    for place in places() {
        command.arg("--read").arg(quote(&place));
    }
    let home = &policy.home_dir;
    if home.parent().is_some() {
        command.arg("--write").arg(quote(home));
    }
    let granted = |path: &Path| {
        let subject = || Subject::on_host(path, &HostFiles);
        let asked = [Request::Read(subject()), Request::Write(subject())];
        let mut decided = asked.iter().map(|request| decide(policy, request));
        decided.any(|decision| decision.allowed && decision.layer != "private")
    };
    let grants = |rule: &&PathRule| matches!(rule.access, Access::Read | Access::Write);
    let named: Vec<_> =
        policy.paths.iter().filter(grants).map(|rule| rule.path.as_path()).collect();
    let hidden = Secrets::of(policy).hidden(&named, &granted);
    // What is protected would be a mount, which nobody replaces (EBUSY). All that is written is kept apart and dropped, and
    // that it was is told; a link is left, since its grant would be one of what it leads to.
    for path in held_in_home().map(|(name, _)| home.join(name)) {
        let is_own = path.symlink_metadata().is_ok_and(|data| data.is_file());
        if is_own
            && home.parent().is_some()
            && !hidden.iter().any(|hidden| path.starts_with(hidden))
        {
            command.arg("--write").arg(quote(&path));
        }
    }
    for path in hidden {
        command.arg("--deny").arg(quote(&path));
    }
    if policy.network.mode != NetworkMode::Host && !parsed.has("network") {
        command.args(["--allow-host", "*:*"]);
    }
    command.arg("--").args(argv);
    if parsed.has("json") {
        // Standard output is the proposal's alone.
        command.stdout(std::io::stderr());
    }
    Ok(command)
}

/// Whether a socket is the session bus's, or that of the filter before it.
fn is_bus(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "bus")
}

/// What of the host is shown: all but what is the sandbox's own, and `/run`, whose sockets act
/// for whoever connects to them.
fn places() -> Vec<PathBuf> {
    let below = |directory: &str, without: &[&str]| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        let kept = entries.filter(|entry| {
            let directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            directory && !without.iter().any(|name| entry.file_name() == *name)
        });
        kept.map(|entry| entry.path()).collect()
    };
    let mut places = below("/", &["dev", "lost+found", "proc", "run", "tmp", "var"]);
    places.extend(below("/var", &["tmp"]));
    places.sort();
    places
}

/// The code of a run that was watched.
pub fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(125)
}

/// The hosts that sessions asked for.
fn asked(sessions: &Path) -> BTreeMap<Asked, Use> {
    let mut asked = BTreeMap::new();
    for session in std::fs::read_dir(sessions).into_iter().flatten().flatten() {
        let rows =
            Reader::open(&session.path()).and_then(|reader| reader.events(0, &["network"], false));
        rows.unwrap_or_default().iter().for_each(|row| connection(row, &mut asked));
    }
    asked
}

/// A connection on record, as what was asked for.
pub fn connection(row: &Row, asked: &mut BTreeMap<Asked, Use>) {
    let host = if row.text("host").is_empty() { row.text("address") } else { row.text("host") };
    let port = row.number("port").and_then(|port| u16::try_from(port).ok()).unwrap_or(0);
    // Peers of a published port asked us, and nobody asked for them.
    let came = row.number("published").is_some();
    if host.is_empty() || port == 0 || came || row.text("protocol") == "unix" {
        return;
    }
    let key = Asked { host: host.to_owned(), port, allowed: !row.denied() };
    asked.entry(key).or_default().add(program(row));
}

/// The program that a row is about.
pub fn program(row: &Row) -> &str {
    row.text("exe").rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("the command")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use ringfence_session::overlay::{self, End, Record};

    #[test]
    fn what_a_run_uses_that_nobody_here_sees_stays() {
        let above = tempfile::tempdir().unwrap();
        let (held, lock) = held::make(above.path()).unwrap();
        let layers = |name: &str| {
            let session = above.path().join(name).join("sessions/0badcafe");
            std::fs::create_dir_all(&session).unwrap();
            overlay::begin(&session, &Record::new("0badcafe", End::Discard, Vec::new())).unwrap()
        };
        // As earlier builds named them; no process has this number.
        let running = layers("2147483647-0badcafe");
        drop(layers("2147483646-0badcafe"));
        let sweep = || held::tidy(above.path(), remove);
        let there = |name: &str| above.path().join(name).exists();
        sweep();
        assert!(held.exists() && there("2147483647-0badcafe"), "in use");
        assert!(!there("2147483646-0badcafe"), "left by one that was killed");
        drop((lock, running));
        sweep();
        assert!(!held.exists() && !there("2147483647-0badcafe"));
    }
}
