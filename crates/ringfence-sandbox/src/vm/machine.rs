//! One machine: started for a session, ended with it.

use super::Shape;
use super::assets::{self, Assets};
use super::fork::{Asked, Forked};
use super::jail::{self, Inmate, Origin};
use super::krun;
use super::monitor::Monitor;
use super::place::{self, SOCKET};
use super::qmp::Qmp;
use super::still;
use super::template::{self, Template};
use crate::other_group::descends;
use crate::trace::Trace;
use ringfence_guest::line::{Attendance, Said, Word};
use ringfence_guest::wire::Limit;
use ringfence_sys as sys;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

/// How long a clone may take to begin: some thousand times what one takes that has a processor for itself.
const BEGINNING: Duration = Duration::from_secs(30);
/// The same of one that is known not to.
const MUTE_BEGINNING: Duration = Duration::from_millis(500);
/// The faults of a first clone that never goes on, and of a second one that does not either.
const MUTE: &str = "machine-mute";
const ALL_MUTE: &str = "machines-mute";
/// How long QEMU may take for an answer; loaded machines are slow.
pub(super) const PATIENCE: Duration = Duration::from_secs(180);
/// The most of QEMU's complaints that are shown.
const MOST_SHOWN: u64 = 2000;

/// A machine that runs.
#[derive(Debug)]
pub struct Machine {
    pub(super) recipe: Recipe,
    pub(super) process: Process,
    /// The bridge's end of the guest's stream, until it has it.
    stream: Option<OwnedFd>,
    /// Holds the socket by which the bridge is met.
    directory: PathBuf,
    /// What the bridge knows its launcher by.
    word: Word,
    /// Until the bridge is gone.
    pub(super) attendance: Option<Attendance>,
    /// Until when the guest is to begin.
    until: Option<Instant>,
    /// What the guest's kernel has ended for lack of memory, and whether it refused a process.
    reached: (u64, bool),
    /// The first clone was made of a saved process.
    of_process: bool,
    /// Another one was made in its place.
    second: bool,
    /// Tests want a first clone, and a second one, that never goes on.
    mute: (bool, bool),
    /// What this is a fork of.
    pub(super) fork: Option<Forked>,
    /// Who wants a fork of this.
    pub(super) asked: Asked,
    /// The bridge lets every byte through, and may be killed.
    terminal: Option<sys::terminal::Kept>,
}

/// What clones are made by.
#[derive(Debug)]
pub(super) struct Recipe {
    assets: Assets,
    pub(super) shape: Shape,
    cache: PathBuf,
    /// None, where each session boots.
    template: Option<Template>,
}

impl Recipe {
    /// A clone, that goes on once all there is of it is there, and the other end of its stream. Where there is a
    /// `process` to go on from, of that.
    fn clone(
        &self,
        restored: bool,
        process: Option<&[PathBuf; 2]>,
    ) -> Result<(Process, OwnedFd), String> {
        let Some(template) = &self.template else {
            return krun::boot(&self.assets, &self.shape, &self.cache);
        };
        let memory = template.memory()?;
        let header = template.header();
        let origin = match process {
            #[cfg(target_arch = "x86_64")]
            Some(files) => Origin::Checkpoint(files),
            _ => Origin::Template(&header),
        };
        let (mut clone, stream) =
            Process::spawn(&self.assets, &self.shape, &self.cache, memory, &origin)?;
        if restored {
            // Nobody waits for it: what is behind the stream is there when it is there.
            let asked = match process {
                Some(_) => clone.control.go_on(),
                None => clone.control.restore(template.state()?.as_fd()),
            };
            asked.map_err(|why| clone.explain(why))?;
        }
        Ok((clone, stream.into()))
    }

    /// A machine that goes on from another one's state and memory.
    fn other(&self, fork: &Forked) -> Result<(Process, OwnedFd), String> {
        let template = self.template.as_ref().ok_or("libkrun's machines cannot be forked")?;
        let header = template.header();
        let origin = Origin::Other(&header);
        let (mut process, stream) =
            Process::spawn(&self.assets, &self.shape, &self.cache, in_memory()?, &origin)?;
        let asked = process.control.take_over(fork.state()?.as_fd());
        asked.map_err(|why| process.explain(why))?;
        Ok((process, stream.into()))
    }
}

impl Machine {
    /// Starts a machine of a shape: a clone of the template, which boots first where there is none; or a fork.
    ///
    /// # Errors
    /// A sentence.
    pub fn start(
        assets: Assets,
        shape: &Shape,
        home: &Path,
        fork: Option<Forked>,
        trace: &Trace,
    ) -> Result<Machine, String> {
        let cache = assets::cache(home);
        let template = match shape.monitor {
            Monitor::Qemu => Some(template::find_or_make(&assets, shape, &cache)?),
            Monitor::Krun => None,
        };
        let recipe = Recipe { assets, shape: shape.clone(), cache, template };
        let all = trace.fault(ALL_MUTE);
        let mute = (all || trace.fault(MUTE), all);
        let saved =
            recipe.template.as_ref().and_then(Template::checkpoint).filter(|_| fork.is_none());
        let (process, stream) = match &fork {
            Some(fork) => recipe.other(fork)?,
            None => recipe.clone(!mute.0, saved.as_ref())?,
        };
        trace.mark("machine");
        let directory = place::make()?;
        let word = sys::identity::random_bytes();
        let attendance = Attendance::at(&directory.join(SOCKET), word, is_ours);
        let mut machine = Machine {
            recipe,
            process,
            stream: Some(stream),
            directory,
            word,
            attendance: None,
            until: None,
            reached: (0, false),
            of_process: saved.is_some(),
            // There is no other one to be made of what was saved.
            second: fork.is_some(),
            mute,
            fork,
            asked: Asked::default(),
            terminal: sys::terminal::Kept::of_own(),
        };
        machine.attendance = Some(attendance.map_err(|errno| format!("bind: {errno:?}"))?);
        Ok(machine)
    }

    /// Where the bridge calls.
    pub fn socket(&self) -> PathBuf {
        self.directory.join(SOCKET)
    }

    /// What the bridge knows its launcher by, as the value of [`ringfence_guest::line::VARIABLE`].
    pub(super) fn word(&self) -> String {
        ringfence_guest::line::value(self.word)
    }

    /// Lets it go on, if it was held still.
    pub(crate) fn wake() {
        let _ = still::release(std::process::id().cast_signed());
    }

    /// Its command has a terminal, whose keys go to the guest.
    pub(crate) fn has_terminal(&self) -> bool {
        self.terminal.is_some()
    }

    /// The bridge has called: nothing is left to be found on the host. Not before: where a port is published, who
    /// connects its call looks at the socket's name.
    fn hide(&self) {
        let _ = fs::remove_dir_all(&self.directory);
    }

    /// What QEMU said last, for a guest that is gone.
    pub fn complaint(&mut self) -> Option<String> {
        let (said, monitor) = (self.process.said(), self.recipe.shape.monitor.name());
        (!said.is_empty()).then(|| format!("{monitor} says: {said}"))
    }

    /// What to watch, until the bridge is gone.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let bridge = self.attendance.as_ref().map(Attendance::descriptor);
        bridge.into_iter().chain(self.asked.descriptor())
    }

    /// When it is to be attended to at the latest.
    pub fn until(&self) -> Option<Instant> {
        self.until.into_iter().chain(self.asked.until).min()
    }

    /// Hears the bridge: gives it a stream to the guest, and to another one when that does not begin.
    pub fn attend(&mut self) {
        self.hear_bridge();
        self.hear_caller();
        self.silent_caller();
    }

    fn hear_bridge(&mut self) {
        let Some(attendance) = &mut self.attendance else { return };
        match attendance.hear() {
            Said::Nothing => {}
            Said::Waits => {
                let next = match self.stream.take() {
                    Some(stream) => {
                        self.hide();
                        self.take_over().map(|()| stream)
                    }
                    None => self.another(),
                };
                let saved = self.fork.as_mut().and_then(|fork| fork.saved.take());
                let mute = if self.second { self.mute.1 } else { self.mute.0 };
                let patience = if mute { MUTE_BEGINNING } else { BEGINNING };
                self.until = next.is_ok().then(|| Instant::now() + patience);
                if let Some(attendance) = &self.attendance {
                    let next = next.as_ref().map(|stream| (stream.as_fd(), saved.as_ref()));
                    attendance.answer(next.map_err(String::as_str));
                }
            }
            said @ (Said::Begun | Said::Reached(_)) => self.note(&said),
            Said::Still(saved) => self.stilled(saved),
            Said::Over => {
                (self.attendance, self.until) = (None, None);
                self.asked = Asked::default();
            }
        }
        if self.until.is_some_and(|until| Instant::now() >= until) {
            // The bridge sees that its stream ends, and asks for another one.
            self.process.late = true;
            self.process.kill();
            self.until = None;
        }
    }

    /// The guest has begun, or reached a limit.
    fn note(&mut self, said: &Said) {
        match said {
            Said::Reached(Limit::Memory(count)) => {
                self.reached.0 = self.reached.0.saturating_add((*count).into());
            }
            Said::Reached(Limit::Processes) => self.reached.1 = true,
            _ => {
                self.until = None;
                let of_process = self.of_process && !self.second;
                if let Some(template) = self.recipe.template.as_ref().filter(|_| of_process) {
                    template.checkpoint_went(Ok(()));
                }
            }
        }
    }

    /// Which limits of the guest's own were reached since this was asked last, as sentences. The guest tells of them: its kernel alone knows.
    pub fn limits_hit(&mut self) -> Vec<String> {
        // What was said last, before the bridge's end.
        while let Some(said @ (Said::Begun | Said::Reached(_))) =
            self.attendance.as_mut().map(Attendance::hear)
        {
            self.note(&said);
        }
        let (ended, refused) = std::mem::take(&mut self.reached);
        let megabytes = self.recipe.shape.memory >> 20;
        let memory = format!(
            "the guest's memory ({megabytes} MiB) was used up (--memory): its kernel ended {ended} \
             process{}",
            if ended == 1 { "" } else { "es" }
        );
        let processes = "the process limit was reached (--pids)".to_owned();
        let list = [(ended > 0).then_some(memory), refused.then_some(processes)];
        list.into_iter().flatten().collect()
    }

    /// Makes another clone in place of one that did not begin, once.
    fn another(&mut self) -> Result<OwnedFd, String> {
        let late = "the virtual machine did not begin";
        if self.fork.is_some() {
            return Err(self.process.explain(format!("{late} as a fork")));
        }
        if std::mem::replace(&mut self.second, true) {
            let limit = sys::limit::get(sys::limit::Resource::AddressSpace).ok();
            let hint = super::hint(limit, self.recipe.shape.memory);
            let why = format!("{late}, and neither did a second one: {hint}");
            return Err(self.process.explain(why));
        }
        let template = self.recipe.template.as_ref().filter(|_| self.of_process);
        if let Some(template) = template.filter(|_| !self.process.late) {
            // It has ended by itself: another clone of that process may end so too.
            let said = self.process.ended();
            template.checkpoint_went(Err(&said));
        }
        let made = self.recipe.clone(!self.mute.1, None);
        let (process, stream) =
            made.map_err(|why| self.process.explain(format!("{late}: {why}")))?;
        self.process = process;
        Ok(stream)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.hide();
    }
}

/// A QEMU in its sandbox.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    /// What QEMU is told by.
    pub control: Qmp,
    /// What it complains of, where that is not told by the same way.
    errors: Option<File>,
    /// It was ended because it did not begin in time.
    late: bool,
}

impl Process {
    /// Starts a QEMU: to boot from an initial file system, or to wait for a state. Also the other end of the
    /// guest's stream.
    pub fn spawn(
        assets: &Assets,
        shape: &Shape,
        cache: &Path,
        memory: File,
        from: &Origin<'_>,
    ) -> Result<(Process, UnixStream), String> {
        let failed = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
        make_directory(cache).map_err(|error| format!("mkdir({}): {error}", cache.display()))?;
        let profile = profile(assets, shape.monitor, cache)?;
        let pair = || UnixStream::pair().map_err(failed("socketpair"));
        let ((control, its_control), (stream, its_stream)) = (pair()?, pair()?);
        let (errors, handed, output, complaints): (_, _, OwnedFd, OwnedFd) = match from {
            Origin::Boot(_) => {
                let errors = in_memory()?;
                let copy = errors.try_clone().map_err(failed("dup"))?;
                (Some(errors), Some(its_stream), its_control.into(), copy.into())
            }
            _ => (None, None, its_stream.into(), its_control.into()),
        };
        let input = memory.into();
        let inmate = Inmate { assets, shape, input, from, output, errors: complaints };
        let child = jail::start(inmate, &profile).map_err(failed("cannot start QEMU"))?;
        let control = Qmp::new(control, PATIENCE);
        let mut process = Process { child, control, errors, late: false };
        if let Some(its_stream) = handed {
            // It will hear of it once it listens.
            process.control.prepare(jail::STREAM, its_stream.as_fd())?;
        }
        Ok((process, stream))
    }

    /// One that takes no commands: what its `control` is asked for fails.
    #[cfg(feature = "krun")]
    pub fn of(child: Child, control: Qmp, errors: File) -> Process {
        Process { child, control, errors: Some(errors), late: false }
    }

    /// Its launcher's number.
    #[cfg(target_arch = "x86_64")]
    pub fn launcher(&self) -> i32 {
        self.child.id() as i32
    }

    /// Ends it; all that it has said.
    fn ended(&mut self) -> String {
        // What it has to say it says until its end.
        self.kill();
        self.said()
    }

    /// A failure, with QEMU's own words.
    pub fn explain(&mut self, why: String) -> String {
        match self.ended() {
            said if said.is_empty() => why,
            said => format!("{why}: {said}"),
        }
    }

    /// Ends it.
    fn kill(&mut self) {
        // Its sandbox dies with the launcher that this kills, and QEMU with its sandbox.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn said(&mut self) -> String {
        let mut text = match &mut self.errors {
            None => self.control.complaints(),
            Some(errors) => {
                let mut text = String::new();
                let _ = errors.rewind();
                let _ = errors.take(MOST_SHOWN).read_to_string(&mut text);
                text.trim().replace('\n', "; ")
            }
        };
        text.truncate(text.floor_char_boundary(MOST_SHOWN as usize));
        text
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A file without a name: it is gone with the last of those who hold it.
pub(super) fn in_memory() -> Result<File, String> {
    sys::fd::in_memory(b"").map(File::from).map_err(|errno| format!("memfd_create: {errno:?}"))
}

/// Makes a directory and its parents for the user alone.
pub(super) fn make_directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// The profile of the monitor's sandbox, written where it is not there as it must be.
pub(super) fn profile(assets: &Assets, monitor: Monitor, cache: &Path) -> Result<PathBuf, String> {
    let name = match monitor {
        Monitor::Qemu => "machine.toml",
        Monitor::Krun => "machine-krun.toml",
    };
    let (path, text) = (cache.join(name), jail::profile(monitor, &assets.monitor));
    if fs::read_to_string(&path).is_ok_and(|found| found == text) {
        return Ok(path);
    }
    let new = cache.join(format!("{name}.{}", std::process::id()));
    fs::write(&new, text)
        .and_then(|()| fs::rename(&new, &path))
        .map_err(|error| format!("write({}): {error}", path.display()))?;
    Ok(path)
}

/// Whether a process is in this launcher's sandbox. Where ports are published it is the launcher who connects for it.
fn is_ours(process: i32) -> bool {
    process == std::process::id().cast_signed() || descends(process)
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
