//! A place on the host for one test: a home with a project in it, and things beside them.

use crate::{Finished, Person, Running, binary, left_out};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The tier that a test is run in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// `--tier namespace`
    Namespace,
    /// `--tier process`
    Process,
}

impl Tier {
    /// Those that this kernel has all of: what the process tier lacks before Linux 6.12 it refuses to start
    /// without, and is asked about in the plans of such kernels.
    pub fn here() -> Vec<Tier> {
        const WHOLE: u32 = 6;
        match ringfence_sys::landlock::abi() {
            abi if abi < WHOLE => {
                let why = format!("this kernel's Landlock is version {abi}, it needs {WHOLE}");
                left_out("the process tier", &why);
                vec![Tier::Namespace]
            }
            _ => vec![Tier::Namespace, Tier::Process],
        }
    }

    /// As the option takes it.
    pub fn name(self) -> &'static str {
        match self {
            Tier::Namespace => "namespace",
            Tier::Process => "process",
        }
    }
}

/// Where programs are looked for: nothing of the caller's own.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/go/bin";

/// One person's place: `home/project` is the current directory, `outside` is granted to nobody,
/// `tmp` is `TMPDIR`.
#[derive(Debug)]
pub struct Place {
    root: TempDir,
    /// Whose it is.
    pub person: Person,
    /// Where `run` runs.
    pub tier: Tier,
}

impl Place {
    /// A fresh one, removed when it is dropped.
    ///
    /// # Panics
    /// It cannot be made.
    pub fn new(person: Person, tier: Tier) -> Place {
        // `scripts/test` names a place in memory. Paths of sockets are no longer by it than by the other (unix(7)).
        let (above, prefix) = match std::env::var_os("RINGFENCE_TEST_DIR") {
            Some(above) => (above.into(), "t-"),
            None => (std::env::temp_dir(), "ringfence-test-"),
        };
        let root = tempfile::Builder::new().prefix(prefix).tempdir_in(above);
        let root = root.expect("a temporary directory");
        let place = Place { root, person, tier };
        place.person.owns(place.root());
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(place.root(), open).expect("a temporary directory of our own");
        for name in ["home", "home/project", "outside", "tmp"] {
            place.directory(name);
        }
        place.file("outside/secret", "a secret\n");
        place
    }

    /// The directory that holds all of it; its name is this place's alone.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// A path in it.
    pub fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.root().join(name)
    }

    /// A path in it, as text for options.
    ///
    /// # Panics
    /// The name is no text.
    pub fn text(&self, name: impl AsRef<Path>) -> String {
        self.at(name).into_os_string().into_string().expect("a name that is text")
    }

    /// A path in the project.
    pub fn project(&self, name: impl AsRef<Path>) -> PathBuf {
        self.at("home/project").join(name)
    }

    /// Makes a directory, with its parents, of this person's.
    ///
    /// # Panics
    /// It cannot be made.
    pub fn directory(&self, name: impl AsRef<Path>) -> PathBuf {
        let mut at = self.root().to_owned();
        for component in name.as_ref().components() {
            at.push(component);
            if !at.exists() {
                fs::create_dir(&at).expect("a directory");
                self.person.owns(&at);
            }
        }
        at
    }

    /// Makes a file, with its directories, of this person's.
    ///
    /// # Panics
    /// It cannot be written.
    pub fn file(&self, name: impl AsRef<Path>, text: impl AsRef<[u8]>) -> PathBuf {
        let name = name.as_ref();
        if let Some(parent) = name.parent() {
            self.directory(parent);
        }
        let path = self.at(name);
        fs::write(&path, text).expect("a file");
        self.person.owns(&path);
        path
    }

    /// Makes a program of this text, with its directories, of this person's.
    ///
    /// # Panics
    /// It cannot be written.
    pub fn program(&self, name: impl AsRef<Path>, text: impl AsRef<[u8]>) -> PathBuf {
        let name = name.as_ref();
        if let Some(parent) = name.parent() {
            self.directory(parent);
        }
        let path = self.at(name);
        crate::write_program(&path, text);
        self.person.owns(&path);
        path
    }

    /// Makes a program of this text, in the project.
    ///
    /// # Panics
    /// It cannot be written.
    pub fn script(&self, name: &str, text: &str) -> PathBuf {
        self.program(Path::new("home/project").join(name), text)
    }

    /// Makes a symbolic link, with its directories, of this person's.
    ///
    /// # Panics
    /// It cannot be made.
    pub fn link(&self, name: impl AsRef<Path>, target: impl AsRef<Path>) -> PathBuf {
        let name = name.as_ref();
        if let Some(parent) = name.parent() {
            self.directory(parent);
        }
        let path = self.at(name);
        std::os::unix::fs::symlink(target, &path).expect("a link");
        self.person.owns(&path);
        path
    }

    /// A program run as this person in the project, without ringfence.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", PATH)
            .env("HOME", self.at("home"))
            .env("TMPDIR", self.at("tmp"))
            .env("LC_ALL", "C.UTF-8")
            .current_dir(self.at("home/project"));
        self.person.becomes(&mut command);
        command
    }

    /// `ringfence run --tier TIER`, to be completed.
    pub fn ringfence_run(&self) -> Command {
        let mut command = self.command(binary());
        command.args(["run", "--tier", self.tier_name()]);
        command
    }

    /// The tier, as the option takes it.
    pub fn tier_name(&self) -> &'static str {
        self.tier.name()
    }

    /// `ringfence` with these words, to its end.
    pub fn ringfence<S: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = S>) -> Finished {
        let mut command = self.command(binary());
        command.args(words);
        Running::start(command).finish()
    }

    /// `ringfence run --tier TIER OPTIONS -- ARGV`, started.
    pub fn start(&self, options: &[&str], argv: &[&str]) -> Running {
        let mut command = self.ringfence_run();
        command.args(options).arg("--").args(argv);
        Running::start(command)
    }

    /// The same to its end.
    pub fn run(&self, options: &[&str], argv: &[&str]) -> Finished {
        self.start(options, argv).finish()
    }

    /// `ringfence run --tier TIER OPTIONS -- sh -c SCRIPT`, to its end.
    pub fn sh(&self, options: &[&str], script: &str) -> Finished {
        self.run(options, &["sh", "-c", script])
    }

    /// `sh -c SCRIPT` outside, as the control. In it `$RF` is `ringfence run --tier TIER`, for
    /// what only a shell can arrange around it: redirections, limits, signals ignored.
    pub fn shell(&self, script: &str) -> Finished {
        self.shell_start(script).finish()
    }

    /// The same, started.
    pub fn shell_start(&self, script: &str) -> Running {
        let mut command = self.command("/bin/bash");
        command.env("RF", format!("{} run --tier {}", binary().display(), self.tier_name()));
        command.args(["-c", script]);
        Running::start(command)
    }

    /// Whether this person may publish a TCP port: who is not root needs a kernel whose Landlock rules ports.
    pub fn publishes(&self) -> bool {
        const PORTS: u32 = 4;
        let may = self.person == Person::Root || ringfence_sys::landlock::abi() >= PORTS;
        if !may {
            left_out("publishing as an ordinary user", "this kernel's Landlock rules no ports");
        }
        may
    }

    /// Whether this person can run a program outside, asked for its version.
    pub fn has(&self, program: &str, version: &str) -> bool {
        let works =
            self.command(program).arg(version).output().is_ok_and(|out| out.status.success());
        if !works {
            left_out(program, &format!("it does not run here for {:?}", self.person));
        }
        works
    }

    /// Returns when the file system's clock is certainly past everything made so far: change
    /// times are as coarse as the kernel's tick.
    ///
    /// # Panics
    /// The file system has no clock.
    pub fn clock_moves_on(&self) {
        let probe = self.file("clock", "");
        let changed = |path: &Path| {
            let data = path.metadata().expect("a file of ours");
            data.ctime() * 1_000_000_000 + data.ctime_nsec()
        };
        let before = changed(&probe);
        crate::until("the clock moves on", || {
            fs::write(&probe, "x").expect("a file of ours");
            // Or was set back.
            changed(&probe).abs_diff(before) >= 50_000_000
        });
        let _ = fs::remove_file(probe);
    }

    /// What a sandbox of this place left on the host: processes, mounts, temporary files.
    pub fn left_behind(&self) -> Vec<String> {
        let name = self.text("");
        let mut left = Vec::new();
        for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let words = fs::read(process.path().join("cmdline")).unwrap_or_default();
            let words = String::from_utf8_lossy(&words).replace('\0', " ");
            if words.contains(&name) {
                left.push(format!("process {}: {words}", process.file_name().display()));
            }
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        left.extend(
            mounts.lines().filter(|line| line.contains(&name)).map(|line| format!("mount {line}")),
        );
        for entry in fs::read_dir(self.at("tmp")).into_iter().flatten().flatten() {
            left.push(format!("temporary {}", entry.path().display()));
        }
        left
    }
}
