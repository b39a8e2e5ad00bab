//! The sandbox behind a server: one live session, and commands in it.

use crate::Config;
use ringfence_sandbox::itself;
use ringfence_sandbox::live::protocol::Request;
use ringfence_sandbox::live::{captured, client};
use ringfence_session::gateway::Told;
use ringfence_session::ledger::{self, Event, Process};
use ringfence_session::live;
use ringfence_sys as sys;
use std::ffi::{CString, OsStr, OsString};
use std::fmt::Display;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// As many bytes of each stream are kept; the rest is read and counted.
const MOST: usize = 1 << 20;

/// As many of what ringfence itself says of a session.
const MOST_TOLD: usize = 64 << 20;

/// A command that was cancelled is asked to end (SIGTERM), and killed (SIGKILL) so many milliseconds later.
const PATIENCE: i32 = 2000;
const TERM: i32 = 15;
const KILL: i32 = 9;

/// What a server does that cannot ask its session for commands.
const APART: &str = "each command runs in a sandbox of its own, of which nothing but files stays";

/// A sandbox that lives as long as this value; in a new session where the former one was ended from inside.
#[derive(Debug)]
pub struct Sandbox {
    config: Config,
    name: String,
    session: Mutex<Arc<Session>>,
    /// No session is begun any more.
    ends: AtomicBool,
}

/// What is said of a session that was begun in place of another one.
const ANEW: &str = "the session had ended (by --timeout, by kill, or from inside): this is a new one, and nothing runs in it";

/// How long what a launcher said may take to be passed on after its end.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// One session.
#[derive(Debug)]
struct Session {
    /// None: there is no room for a session's record. Nobody can be asked for commands in it then.
    directory: Option<PathBuf>,
    /// Local sockets are refused where we are (the process tier): that is how a session is asked.
    mute: bool,
    launcher: Mutex<Child>,
    /// The sandbox ends when this is closed, however that comes about.
    stdin: Mutex<Option<ChildStdin>>,
    /// Hangs up when all is passed on that the launcher said.
    heard: Mutex<Receiver<()>>,
}

/// What a command did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// Its exit code; 125 when ringfence could not run it.
    pub code: i32,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// Bytes that were not kept.
    pub left_out: u64,
}

impl Sandbox {
    /// Starts it, and waits until commands can be run in it.
    ///
    /// # Errors
    /// What ringfence said.
    pub fn start(config: Config) -> Result<Sandbox, String> {
        let name = format!("mcp-{}", std::process::id());
        let session = Session::begin(&config, &name)?;
        let (session, ends) = (Mutex::new(Arc::new(session)), AtomicBool::new(false));
        let sandbox = Sandbox { config, name, session, ends };
        if let Some(apart) = sandbox.apart() {
            sys::say!("ringfence: {apart}");
        }
        Ok(sandbox)
    }

    /// Ends the sandbox, and with it what still runs in it; returns when nothing of it is left.
    pub fn end(&self) {
        self.ends.store(true, Ordering::Relaxed);
        let session = self.session.lock().map(|session| Arc::clone(&session));
        if let Ok(session) = session {
            session.end();
        }
    }

    /// The session, a new one where it has ended; whether it is new.
    ///
    /// # Errors
    /// None can be begun.
    fn session(&self) -> Result<(Arc<Session>, bool), String> {
        let mut session = self.session.lock().map_err(|_| "the session is in disorder")?;
        let anew = session.ended() && !self.ends.load(Ordering::Relaxed);
        if anew {
            *session = Arc::new(Session::begin(&self.config, &self.name)?);
        }
        Ok((Arc::clone(&session), anew))
    }

    /// Where the session's record is.
    fn directory(&self) -> Option<PathBuf> {
        self.session.lock().ok()?.directory.clone()
    }
}

impl Session {
    fn begin(config: &Config, name: &str) -> Result<Session, String> {
        let mut command = itself::command();
        command.arg("run").args(&config.options).args(["--name", name, "--", "cat"]);
        command.current_dir(config.place());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut launcher = command.spawn().map_err(|error| format!("cannot start: {error}"))?;
        let (mut stdin, mut line) = (launcher.stdin.take(), String::new());
        let sent = stdin.as_mut().map(|stdin| stdin.write_all(b"ready\n"));
        let stdout = launcher.stdout.take().map(BufReader::new);
        let answered = stdout.map(|mut stdout| stdout.read_line(&mut line));
        let up = matches!((sent, answered), (Some(Ok(())), Some(Ok(_)))) && line == "ready\n";
        if !up {
            drop(stdin);
            let mut said = String::new();
            if let Some(stderr) = launcher.stderr.take() {
                let _ = stderr.take(MOST as u64).read_to_string(&mut said);
            }
            let _ = launcher.wait();
            return Err(format!("the sandbox did not start: {}", said.trim_end()));
        }
        // What the launcher says later is the user's to read.
        let (all_said, heard) = channel();
        if let Some(stderr) = launcher.stderr.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                    sys::say!("{line}");
                }
                drop(all_said);
            });
        }
        // It is there before its command, or not at all; the name may lead to one of an earlier server with this number.
        let found = live::find(name).ok().filter(|(session, _)| session.live);
        let directory = found.and_then(|(_, socket)| socket.parent().map(PathBuf::from));
        // A name that nobody listens at: whether it is there is not even looked at then.
        let probe = |directory: &PathBuf| client::connect(&directory.join("nobody")).err();
        let mute = directory.as_ref().and_then(probe) == Some(sys::Errno::EACCES);
        let (launcher, stdin) = (Mutex::new(launcher), Mutex::new(stdin));
        Ok(Session { directory, mute, launcher, stdin, heard: Mutex::new(heard) })
    }

    /// Ends it, and with it what still runs in it; returns when nothing of it is left.
    fn end(&self) {
        // Closed first: whoever comes second finds it closed, and waits with us.
        if let Ok(mut stdin) = self.stdin.lock() {
            stdin.take();
        }
        if let Ok(mut launcher) = self.launcher.lock() {
            let _ = launcher.wait();
        }
        // What it said at its end, of protected files for one. A user's hook may go on, and have its standard error.
        if let Ok(heard) = self.heard.lock() {
            let _ = heard.recv_timeout(LAST_WORDS);
        }
    }

    /// Whether it has ended by itself.
    fn ended(&self) -> bool {
        self.launcher.lock().is_ok_and(|mut launcher| matches!(launcher.try_wait(), Ok(Some(_))))
    }
}

impl Sandbox {
    /// What it was started with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The session's identifier.
    ///
    /// # Errors
    /// It has none.
    pub fn id(&self) -> Result<String, String> {
        let directory = self.directory();
        let name = directory.as_ref().and_then(|directory| directory.file_name()?.to_str());
        name.map(ToOwned::to_owned).ok_or_else(|| "the session has no identifier".to_owned())
    }

    /// Says that each command has a sandbox of its own, where it is so.
    pub fn apart(&self) -> Option<String> {
        let session = self.session.lock().ok()?;
        match (&session.directory, session.mute) {
            (None, _) => Some(format!(
                "calls of tools are not recorded, and {APART}: there is no room for a session's record"
            )),
            (Some(_), mute) => mute.then(|| {
                format!("{APART}: local sockets are refused here, by which a session is asked")
            }),
        }
    }

    /// Adds a row to the session's record. Its troubles are no caller's.
    pub fn record(&self, event: &Event) {
        if let Some(directory) = self.directory() {
            let _ = ledger::append(&directory, Some(&Process::own()), event);
        }
    }

    /// The same, for who does things in the session's place.
    pub fn teller(&self) -> Told {
        let directory = self.directory();
        Box::new(move |_, event| {
            if let Some(directory) = &directory {
                let _ = ledger::append(directory, Some(&Process::own()), event);
            }
        })
    }

    /// Runs one more command in the sandbox, in a directory of it, or where its command started.
    ///
    /// # Errors
    /// An argument has a NUL byte; `ringfence` cannot be started.
    pub fn exec(
        &self,
        workdir: Option<&str>,
        timeout: Duration,
        argv: &[OsString],
        input: Vec<u8>,
        cancelled: BorrowedFd<'_>,
    ) -> Result<Ran, String> {
        let (session, anew) = self.session()?;
        let mut ran = self.exec_in(&session, workdir, timeout, argv, input, cancelled)?;
        if anew {
            ran.stderr.extend(format!("ringfence: {ANEW}\n").bytes());
        }
        Ok(ran)
    }

    fn exec_in(
        &self,
        session: &Session,
        workdir: Option<&str>,
        timeout: Duration,
        argv: &[OsString],
        input: Vec<u8>,
        cancelled: BorrowedFd<'_>,
    ) -> Result<Ran, String> {
        let Some(directory) = session.directory.as_ref().filter(|_| !session.mute) else {
            let options = [format!("--timeout={}s", timeout.as_secs()).into()];
            return self.fresh(&options, &going_to(workdir, argv), input, cancelled);
        };
        let socket = directory.join(live::SOCKET);
        let held = directory.join(live::SUSPENDED).exists();
        let connection = if held { None } else { client::connect(&socket).ok() };
        let Some(connection) = connection else {
            // The command knows why, and says it.
            let mut command = itself::command();
            command.arg("exec").arg(format!("--timeout={}s", timeout.as_secs()));
            command.args(workdir.map(|directory| format!("--workdir={directory}")));
            command.arg(&self.name).arg("--").args(argv);
            return finish(command, input, MOST, cancelled);
        };
        let text = |text: &OsStr| {
            let text = CString::new(text.as_encoded_bytes());
            text.map_err(|_| "an argument holds a NUL byte".to_owned())
        };
        let request = Request {
            workdir: text(workdir.unwrap_or_default().as_ref())?,
            argv: argv.iter().map(|word| text(word)).collect::<Result<_, _>>()?,
            ..Request::default()
        };
        Ok(match captured::run(&connection, &request, &input, MOST, timeout, cancelled) {
            Ok(done) => {
                let mut stderr = done.stderr;
                if let Some(why) = done.lost {
                    stderr.extend(format!("ringfence: {why}\n").bytes());
                } else if done.timed_out {
                    stderr.extend(format!("ringfence: timed out after {timeout:?}\n").bytes());
                }
                let (code, left_out) = (done.code.into(), done.left_out);
                Ran { code, stdout: done.stdout, stderr, left_out }
            }
            Err((code, why)) => {
                let stderr = format!("ringfence: {why}\n").into_bytes();
                Ran { code: code.into(), stderr, ..Ran::default() }
            }
        })
    }

    /// Runs a command in a sandbox of its own, under the same policy.
    ///
    /// # Errors
    /// `ringfence` cannot be started.
    pub fn fresh(
        &self,
        options: &[OsString],
        argv: &[OsString],
        input: Vec<u8>,
        cancelled: BorrowedFd<'_>,
    ) -> Result<Ran, String> {
        let mut command = self.ringfence("run");
        // Where there is no room for one, each would say so.
        command.args(self.directory().is_none().then_some("--no-record"));
        command.args(options).arg("--").args(argv);
        finish(command, input, MOST, cancelled)
    }

    /// Asks ringfence for a decision of the same policy. Who is told may find out no more by it than by trying inside.
    ///
    /// # Errors
    /// `ringfence` cannot be started.
    pub fn why(&self, words: &[&OsStr]) -> Result<Ran, String> {
        let mut command = self.ringfence("why");
        command.args(["--inside", "--json", "--"]).args(words);
        said(command, MOST)
    }

    /// The plan of the same policy and further options, as JSON.
    ///
    /// # Errors
    /// `ringfence` cannot be started.
    pub fn plan(&self, options: &[&str], argv: &[&OsStr]) -> Result<Ran, String> {
        let planned = |command: Command| {
            let mut command = command;
            command.args(options).arg("--json").arg("--").args(argv);
            said(command, MOST)
        };
        let ran = planned(self.ringfence("plan"))?;
        if ran.code == 0 || !self.is_machine() {
            return Ok(ran);
        }
        // A guest's files are those of its bridge, in the namespace tier, by the same policy. What that tier's
        // gateway would do for a command is done here, outside, for tools.
        let mut command = itself::command();
        command.arg("plan").args(without_tier(&self.config.options)).args(["--tier", "namespace"]);
        command.current_dir(self.config.place());
        planned(command)
    }

    /// Whether it is a virtual machine, as its record has it.
    fn is_machine(&self) -> bool {
        live::find(&self.name).is_ok_and(|(session, _)| session.live && session.tier == "vm")
    }

    /// What the session's record holds, as JSON.
    ///
    /// # Errors
    /// `ringfence` cannot be started.
    pub fn told(&self, verb: &str, options: &[&str]) -> Result<Ran, String> {
        let mut command = itself::command();
        command.arg(verb).arg(&self.name).args(options);
        said(command, MOST_TOLD)
    }

    fn ringfence(&self, verb: &str) -> Command {
        let mut command = itself::command();
        command.arg(verb).args(&self.config.options).current_dir(self.config.place());
        command
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.end();
    }
}

/// A command that goes to a directory first, inside: what a model names is never the directory of a run, which is writable.
fn going_to(workdir: Option<&str>, argv: &[OsString]) -> Vec<OsString> {
    let Some(workdir) = workdir else { return argv.to_vec() };
    // Of `cd`, `-` is another directory than the one of that name.
    let workdir = if workdir == "-" { "./-" } else { workdir };
    let script = "CDPATH= cd -- \"$1\" || exit 125; shift; exec \"$@\"";
    let words = ["sh", "-c", script, "sh", workdir].map(OsString::from);
    words.into_iter().chain(argv.iter().cloned()).collect()
}

/// Options of `run` without the one that names the tier.
fn without_tier(options: &[OsString]) -> Vec<OsString> {
    let (mut kept, mut rest) = (Vec::new(), options.iter());
    while let Some(word) = rest.next() {
        if word == "--tier" {
            rest.next();
        } else if !word.as_encoded_bytes().starts_with(b"--tier=") {
            kept.push(word.clone());
        }
    }
    kept
}

/// What one of ringfence's own commands says: it ends by itself.
fn said(command: Command, most: usize) -> Result<Ran, String> {
    let (never, _open) = sys::fd::pipe().map_err(|error| format!("ringfence: pipe2: {error}"))?;
    finish(command, Vec::new(), most, never.as_fd())
}

/// Runs a command to its end, or until nobody waits for it any more. What it left in the background may hold its streams
/// open, and is not waited for.
fn finish(
    mut command: Command,
    input: Vec<u8>,
    most: usize,
    cancelled: BorrowedFd<'_>,
) -> Result<Ran, String> {
    let failed = |call: &str, error: &dyn Display| format!("ringfence: {call}: {error}");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed("execve", &error))?;
    let ended = sys::process::pidfd(child.id() as i32);
    let ended = ended.map_err(|error| failed("pidfd_open", &error))?;
    let stdin = child.stdin.take();
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (input, ended) = (&input, &ended);
    let (out, err) = std::thread::scope(|scope| {
        scope.spawn(move || {
            // A command that does not read is no error.
            let _ = stdin.map(|stdin| {
                sys::fd::never_wait(stdin.as_fd())?;
                sys::pipe::write(stdin.as_fd(), ended.as_fd(), input)
            });
        });
        scope.spawn(move || end_when(cancelled, ended.as_fd()));
        let keep = move |pipe| keep(&pipe, ended, most);
        let err =
            scope.spawn(move || stderr.map(|pipe| keep(OwnedFd::from(pipe))).unwrap_or_default());
        let out = stdout.map(|pipe| keep(OwnedFd::from(pipe))).unwrap_or_default();
        (out, err.join().unwrap_or_default())
    });
    let status = child.wait().map_err(|error| failed("wait", &error))?;
    let code = status.code().unwrap_or_else(|| {
        128 + std::os::unix::process::ExitStatusExt::signal(&status).unwrap_or(0)
    });
    Ok(Ran { code, stdout: out.0, stderr: err.0, left_out: out.1 + err.1 })
}

/// Waits for the end of a process, and brings it about when nobody waits for it any more.
fn end_when(cancelled: BorrowedFd<'_>, process: BorrowedFd<'_>) {
    let ready = sys::fd::poll_readable(&[cancelled, process], -1).unwrap_or_default();
    if ready != [true, false] {
        return;
    }
    let send = |signal| sys::signal::send(process, signal);
    let ended = send(TERM).and_then(|()| sys::fd::poll_readable(&[process], PATIENCE));
    if ended.is_ok_and(|ended| ended == [false]) {
        // It may have ended by now: then there is nobody to send it to.
        let _ = send(KILL);
    }
}

/// The first bytes of a stream, and how many more there were.
fn keep(stream: &OwnedFd, ended: &OwnedFd, most: usize) -> (Vec<u8>, u64) {
    let (mut kept, mut more) = (Vec::new(), 0);
    // What could be read is the answer.
    let _ = sys::pipe::read(stream.as_fd(), ended.as_fd(), |bytes| {
        let room = bytes.len().min(most - kept.len());
        kept.extend_from_slice(&bytes[..room]);
        more += (bytes.len() - room) as u64;
        Ok(())
    });
    (kept, more)
}
