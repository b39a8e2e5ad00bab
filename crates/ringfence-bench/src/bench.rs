//! What every group works with: the lanes, the workspace, and a way to run one command once.

use crate::error::{Error, Result, error};
use crate::host::Lookout;
use crate::lanes::{self, Kind, Lane};
use crate::options::Options;
use crate::progress::Progress;
use crate::sys::process::{Child, Ended, Prepared, Stdio, memory_file};
use crate::work::Work;
use fastrand::Rng;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// No single run may take longer.
pub const RUN_LIMIT: Duration = Duration::from_secs(60);

/// The state of a measurement.
pub struct Bench {
    /// What the user asked for.
    pub options: Options,
    /// The binary under test.
    pub exe: PathBuf,
    /// The working directory.
    pub work: Work,
    /// The lanes of ringfence that work here.
    pub ringfence: Vec<Lane>,
    /// The lanes of alternatives.
    pub peers: Vec<Lane>,
    /// Why lanes were left out.
    pub absent: Vec<String>,
    /// The source of the random order.
    pub rng: Rng,
    /// What other work there is on the machine.
    pub lookout: Lookout,
    /// What the terminal shows.
    pub progress: Progress,
    env: Vec<OsString>,
    own_env: Vec<OsString>,
    null: File,
    out: File,
    err: File,
}

/// What one run gave.
pub struct Ran {
    /// From the start of the first process to the end of the last.
    pub wall: Duration,
    /// What it printed, if that was asked for.
    pub stdout: Vec<u8>,
}

impl Bench {
    /// Makes everything ready, and finds out which lanes work.
    pub fn new(options: Options, exe: PathBuf, work: Work, progress: Progress) -> Result<Bench> {
        let file = |result: std::io::Result<File>| {
            result.map_err(|cause| error!("cannot open a scratch file: {cause}"))
        };
        let variable = |(name, value): (OsString, OsString)| [name, value].join(OsStr::new("="));
        let mut bench = Bench {
            rng: Rng::with_seed(options.seed.unwrap_or_else(|| fastrand::u64(..1 << 32))),
            env: work.environment(),
            own_env: std::env::vars_os().map(variable).collect(),
            null: file(File::options().read(true).write(true).open("/dev/null"))?,
            out: file(memory_file())?,
            err: file(memory_file())?,
            ringfence: lanes::ringfence(&exe, &options),
            peers: Vec::new(),
            absent: Vec::new(),
            lookout: Lookout::default(),
            options,
            exe,
            work,
            progress,
        };
        let (peers, missing) = lanes::peers(&bench.options);
        bench.peers = peers;
        bench.absent.extend(missing.into_iter().map(|name| format!("{name}: not found on PATH")));
        bench.try_lanes();
        Ok(bench)
    }

    /// Leaves out the lanes that cannot run even `true`, with the reason.
    fn try_lanes(&mut self) {
        let Some(program) = crate::work::find("true") else { return };
        let candidates = std::mem::take(&mut self.ringfence).into_iter().map(|lane| (lane, true));
        let peers = std::mem::take(&mut self.peers).into_iter().map(|lane| (lane, false));
        for (lane, ours) in candidates.chain(peers).collect::<Vec<_>>() {
            let tried = self
                .command(&lane, std::slice::from_ref(&OsString::from(&program)), &[])
                .and_then(|command| self.run(&command, false));
            match tried {
                Ok(_) if ours => self.ringfence.push(lane),
                Ok(_) => self.peers.push(lane),
                Err(cause) => self.absent.push(format!("{}: {cause}", lane.name)),
            }
        }
    }

    /// All lanes: the baseline, ringfence's, the peers'.
    #[must_use]
    pub fn lanes(&self) -> Vec<Lane> {
        let mut lanes = vec![Lane::bare()];
        lanes.extend(self.ringfence.iter().cloned());
        lanes.extend(self.peers.iter().cloned());
        lanes
    }

    /// The lane of ringfence that single-lane groups use: the first that works.
    pub fn main_lane(&self) -> Result<Lane> {
        let reason = || {
            let said = self.absent.iter().find(|text| text.starts_with("ringfence "));
            error!(
                "no tier of ringfence works here: {}",
                said.map_or("none was asked for", String::as_str)
            )
        };
        self.ringfence.first().cloned().ok_or_else(reason)
    }

    /// Makes ready to run `argv` in `lane`, with ringfence's `run` options where they apply.
    pub fn command(&self, lane: &Lane, argv: &[OsString], options: &[&str]) -> Result<Prepared> {
        let options: Vec<OsString> = options.iter().map(OsString::from).collect();
        let line = lane.wrap(&self.work, argv, &options)?;
        let env = if matches!(lane.kind, Kind::Peer { .. }) { &self.own_env } else { &self.env };
        self.prepare(&line, env)
    }

    /// Makes ready to run the binary under test with these arguments.
    pub fn product(&self, args: &[&str]) -> Result<Prepared> {
        let line: Vec<OsString> = std::iter::once(self.exe.clone().into())
            .chain(args.iter().map(OsString::from))
            .collect();
        self.prepare(&line, &self.env)
    }

    /// The same, in a directory other than the workspace.
    pub fn product_in(&self, dir: &Path, args: &[&str]) -> Result<Prepared> {
        let line: Vec<OsString> = std::iter::once(self.exe.clone().into())
            .chain(args.iter().map(OsString::from))
            .collect();
        self.prepare_in(&line, &self.env, dir)
    }

    /// Makes ready to run any command line as it stands.
    pub fn plain(&self, line: &[OsString]) -> Result<Prepared> {
        self.prepare(line, &self.env)
    }

    /// The same with variables of its own, which replace those of the same name.
    pub fn plain_with(&self, line: &[OsString], variables: &[(&str, &OsStr)]) -> Result<Prepared> {
        let replaced = |entry: &&OsString| {
            let bytes = entry.as_encoded_bytes();
            !variables.iter().any(|(name, _)| {
                bytes.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'='))
            })
        };
        let mut env: Vec<OsString> = self.env.iter().filter(replaced).cloned().collect();
        env.extend(
            variables.iter().map(|(name, value)| [OsStr::new(name), value].join(OsStr::new("="))),
        );
        self.prepare(line, &env)
    }

    fn prepare(&self, line: &[OsString], env: &[OsString]) -> Result<Prepared> {
        self.prepare_in(line, env, &self.work.space)
    }

    fn prepare_in(&self, line: &[OsString], env: &[OsString], dir: &Path) -> Result<Prepared> {
        let program = line.first().ok_or_else(|| Error::new("no command"))?;
        let program = Path::new(program);
        Prepared::new(
            program,
            line.iter().map(OsString::as_os_str),
            env.iter().map(OsString::as_os_str),
            dir,
        )
        .map_err(|cause| Error::file("run", program, cause))
    }

    /// The command line of this program's own tool `name`, as it is to be called inside a sandbox.
    #[must_use]
    pub fn tool(&self, name: &str, args: &[&OsStr]) -> Vec<OsString> {
        let mut line: Vec<OsString> =
            vec![self.work.tool().into(), "bench".into(), "__tool".into()];
        line.push(name.into());
        line.extend(args.iter().map(OsString::from));
        line
    }

    /// Runs a command once: its time, and its output if `keep`. Anything but exit code 0 is an error.
    pub fn run(&mut self, command: &Prepared, keep: bool) -> Result<Ran> {
        self.run_with(command, keep, None)
    }

    /// The same, with one more descriptor: which of ours, and what the child calls it.
    pub fn run_with(
        &mut self,
        command: &Prepared,
        keep: bool,
        extra: Option<(RawFd, RawFd)>,
    ) -> Result<Ran> {
        let failed = |cause: std::io::Error| error!("`{}`: {cause}", command.display());
        for file in [&mut self.out, &mut self.err] {
            file.set_len(0).and_then(|()| file.rewind()).map_err(failed)?;
        }
        let stdio = Stdio {
            stdin: self.null.as_raw_fd(),
            stdout: if keep { self.out.as_raw_fd() } else { self.null.as_raw_fd() },
            stderr: self.err.as_raw_fd(),
            extra,
        };
        let began = Instant::now();
        let child = Child::start(command, &stdio).map_err(failed)?;
        let ended = child.wait(Some(RUN_LIMIT)).map_err(failed)?;
        let wall = began.elapsed();
        match ended {
            Some(Ended::Code(0)) => {
                let stdout =
                    if keep { contents(&mut self.out).map_err(failed)? } else { Vec::new() };
                Ok(Ran { wall, stdout })
            }
            Some(ended) => Err(error!("{}", self.complaint(&ended.to_string()))),
            None => Err(error!("{}", self.complaint("killed after 60 s"))),
        }
    }

    /// How a run failed, with the first thing it said about that.
    fn complaint(&mut self, ended: &str) -> String {
        let said = contents(&mut self.err).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        match said.lines().map(str::trim).find(|line| !line.is_empty()) {
            Some(line) => format!("{ended}: {}", shortened(line, 200)),
            None => ended.into(),
        }
    }

    /// Whether this build has a subcommand; the reason when not.
    pub fn has(&mut self, subcommand: &str) -> std::result::Result<(), String> {
        let tried =
            self.product(&[subcommand, "--help"]).and_then(|command| self.run(&command, true));
        match tried {
            Ok(_) => Ok(()),
            Err(cause) => {
                Err(format!("not available in this build (`{subcommand} --help`: {cause})"))
            }
        }
    }

    /// A descriptor on nothing.
    #[must_use]
    pub fn null(&self) -> RawFd {
        self.null.as_raw_fd()
    }

    /// The descriptor that takes standard error.
    #[must_use]
    pub fn error_file(&self) -> RawFd {
        self.err.as_raw_fd()
    }

    /// What a background process last said on standard error.
    pub fn last_words(&mut self) -> String {
        self.complaint("it ended")
    }
}

fn contents(file: &mut File) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Text cut to at most `most` characters.
#[must_use]
pub fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.into();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}
