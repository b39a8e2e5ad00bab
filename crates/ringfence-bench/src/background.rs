//! Processes that run beside a measurement: servers, and commands that keep a sandbox alive.
//!
//! Both are this program's own tool with a pipe as standard input: they end when it closes, which
//! the kernel sees to when the bench ends, however it ends.

use crate::bench::Bench;
use crate::error::{Result, error};
use crate::lanes::Lane;
use crate::sys::process::{Child, Prepared, Stdio, wait_readable};
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::Duration;

/// How long a process may take to say that it is ready, and to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// A process that runs until it is dropped.
pub struct Background {
    child: Child,
    input: Option<PipeWriter>,
    output: BufReader<PipeReader>,
}

impl Background {
    /// Starts a process with pipes as its standard input and output.
    pub fn start(bench: &Bench, command: &Prepared) -> Result<Background> {
        let failed = |cause: std::io::Error| error!("`{}`: {cause}", command.display());
        let (child_input, input) = std::io::pipe().map_err(failed)?;
        let (output, child_output) = std::io::pipe().map_err(failed)?;
        let stdio = Stdio {
            stdin: child_input.as_raw_fd(),
            stdout: child_output.as_raw_fd(),
            stderr: bench.error_file(),
            extra: None,
        };
        let child = Child::start(command, &stdio).map_err(failed)?;
        Ok(Background { child, input: Some(input), output: BufReader::new(output) })
    }

    /// Reads one line of what the process prints; an error when it ends or says nothing in time.
    pub fn line(&mut self) -> Result<String> {
        let mut text = Vec::new();
        loop {
            if self.output.buffer().is_empty() {
                let readable = wait_readable(self.output.get_ref(), PATIENCE);
                if !readable.map_err(|cause| error!("poll: {cause}"))? {
                    return Err(error!("it said nothing for {} s", PATIENCE.as_secs()));
                }
            }
            let bytes =
                self.output.fill_buf().map_err(|cause| error!("cannot read from it: {cause}"))?;
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let taken = end.unwrap_or(bytes.len());
            text.extend_from_slice(&bytes[..taken]);
            let ended = bytes.is_empty();
            self.output.consume(taken + usize::from(end.is_some()));
            match end {
                Some(_) => return Ok(String::from_utf8_lossy(&text).into_owned()),
                None if ended => return Err(error!("it ended before it was ready")),
                None => {}
            }
        }
    }

    /// Sends the process a line.
    pub fn send(&mut self, line: &str) -> Result<()> {
        let input = self.input.as_mut().ok_or_else(|| error!("its input is closed"))?;
        input
            .write_all(format!("{line}\n").as_bytes())
            .map_err(|cause| error!("cannot write to it: {cause}"))
    }

    /// Its process number.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.child.pid()
    }

    /// Kills the process, and waits until it is gone.
    pub fn kill(self) {
        self.child.kill();
    }

    /// Asks a process to end that does not mind its input.
    pub fn stop(&self) {
        self.child.signal(crate::sys::signal::SIGTERM);
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        drop(self.input.take());
        if !matches!(self.child.wait(Some(PATIENCE)), Ok(Some(_))) {
            self.child.kill();
        }
    }
}

/// The server of this program's own tool, on 127.0.0.1.
pub struct Server {
    /// Where it speaks HTTP.
    pub port: u16,
    /// Where it speaks HTTP within TLS.
    pub secure: u16,
    /// Where it answers questions of DNS.
    pub names: u16,
    /// The file with the authority of its certificate.
    pub authority: PathBuf,
    _process: Background,
}

impl Server {
    /// Starts it, and waits until it listens.
    pub fn start(bench: &mut Bench) -> Result<Server> {
        let dir = bench.work.space.join(".bench");
        let command = bench.plain(&bench.tool("serve", &[dir.as_os_str()]))?;
        let mut process = Background::start(bench, &command)?;
        let line =
            process.line().map_err(|cause| error!("the bench's own server failed: {cause}"))?;
        let ports: Vec<u16> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        let &[port, secure, names] = ports.as_slice() else {
            return Err(error!("the bench's own server said {line:?}"));
        };
        let authority = dir.join(crate::tool::serve::AUTHORITY);
        Ok(Server { port, secure, names, authority, _process: process })
    }
}

/// A sandbox that is kept alive by a process that does nothing.
pub struct Holder {
    process: Background,
}

impl Holder {
    /// Starts a sandbox in `lane`, and waits until the process inside it runs.
    pub fn start(bench: &mut Bench, lane: &Lane, options: &[&str]) -> Result<Holder> {
        let argv = bench.tool("hold", &[]);
        let command = bench.command(lane, &argv, options)?;
        let mut process = Background::start(bench, &command)?;
        match process.line() {
            Ok(line) if line == "ready" => Ok(Holder { process }),
            Ok(line) => Err(error!("the sandbox said {line:?} instead of being ready")),
            Err(cause) => {
                drop(process);
                Err(error!("cannot keep a sandbox alive: {cause}; {}", bench.last_words()))
            }
        }
    }

    /// The process number of the sandbox's launcher.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.process.pid()
    }
}
