//! A made-up host: its files, its facts, and what its user asks for.
#![allow(dead_code, missing_docs, clippy::unwrap_used)]

use ringfence_policy::files::{Fake, FakeFiles};
use ringfence_policy::{Context, Key, Policy, Request, Setting, resolve};
use ringfence_sandbox::Plan;
use ringfence_sandbox::facts::{Availability, Cgroups, Facts, FakePaths, Kind};
use ringfence_sandbox::planner::{PlanError, plan};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A host and a request. Every method changes one thing.
#[derive(Clone)]
pub struct Host {
    pub files: FakeFiles,
    pub facts: Facts,
    pub request: Request,
    pub home: PathBuf,
}

/// An ordinary machine of today: a user in a git repository below their home.
pub fn host() -> Host {
    let mut files = FakeFiles::default();
    let directories = [
        "/usr/bin",
        "/usr/lib",
        "/etc/ssl/private",
        "/opt",
        "/proc/sys",
        "/proc/bus",
        "/proc/fs",
        "/proc/irq",
        "/dev/pts",
        "/dev/shm",
        "/tmp",
        "/home/u/.cargo/bin",
        "/home/u/project/src",
        "/home/u/project/.git/hooks",
        "/run/user",
        "/srv/data/open",
    ];
    for directory in directories {
        files = files.directory(directory);
    }
    let names = [
        "/dev/null",
        "/dev/zero",
        "/dev/full",
        "/dev/random",
        "/dev/urandom",
        "/dev/tty",
        "/dev/ptmx",
        "/etc/passwd",
        "/etc/shadow",
        "/etc/hosts",
        "/home/u/.gitconfig",
        "/home/u/.ssh/id_ed25519",
        "/home/u/project/.git/config",
        "/home/u/project/.git/HEAD",
        "/home/u/project/.envrc",
        "/home/u/project/.env",
        "/home/u/project/src/main.rs",
        "/srv/data/secret",
        "/srv/data/open/file",
    ];
    for name in names {
        files = files.file(name, "");
    }
    files = files.with("/run/docker.sock", Fake::Socket);
    let files =
        files.symlink("/bin", "usr/bin").symlink("/lib", "usr/lib").symlink("/var/run", "/run");
    let facts = Facts {
        kernel: "6.12.0".to_owned(),
        user: (1000, 1000),
        namespaces: Availability::Yes,
        landlock_abi: 7,
        seccomp: Availability::Yes,
        seccomp_notify: Availability::Yes,
        inside: false,
        cgroups: Cgroups::default(),
        environment: ["EDITOR", "GITHUB_TOKEN", "HOME", "PATH", "TMPDIR"]
            .map(str::to_owned)
            .to_vec(),
        terminal: None,
        data_layers: no("overlays with data-only layers need Linux 6.16"),
        layers: Availability::Yes,
        temporary: PathBuf::from("/tmp"),
        libraries: None,
        bus: None,
        machine: None,
    };
    let home = PathBuf::from("/home/u");
    Host { files, facts, request: Request::default(), home }
}

pub fn no(reason: &str) -> Availability {
    Availability::No(reason.to_owned())
}

impl Host {
    pub fn facts(mut self, change: impl FnOnce(&mut Facts)) -> Host {
        change(&mut self.facts);
        self
    }

    pub fn root(self) -> Host {
        self.facts(|facts| facts.user = (0, 0))
    }

    pub fn abi(self, version: u32) -> Host {
        self.facts(|facts| facts.landlock_abi = version)
    }

    pub fn no_namespaces(self) -> Host {
        self.facts(|facts| facts.namespaces = no("user namespaces are closed"))
    }

    pub fn cgroups_v2(self) -> Host {
        let controllers = ["cpu", "memory", "pids"].map(str::to_owned).to_vec();
        self.facts(|facts| {
            facts.cgroups.v2 = Some((PathBuf::from("/sys/fs/cgroup/user"), controllers))
        })
    }

    pub fn cgroups_v1(self) -> Host {
        let controllers = ["cpu", "memory", "pids"];
        let v1: BTreeMap<_, _> = controllers
            .map(|name| (name.to_owned(), PathBuf::from("/sys/fs/cgroup").join(name)))
            .into();
        self.facts(|facts| facts.cgroups.v1 = v1)
    }

    pub fn option(mut self, key: Key, value: &str) -> Host {
        self.request.options.push(Setting::new(key, value));
        self
    }

    pub fn profile(mut self, name: &str) -> Host {
        self.request.profiles.push(name.to_owned());
        self
    }

    pub fn process(self) -> Host {
        self.option(Key::Tier, "process")
    }

    pub fn file(mut self, path: &str) -> Host {
        self.files = self.files.file(path, "");
        self
    }

    pub fn link(mut self, path: &str, target: &str) -> Host {
        self.files = self.files.symlink(path, target);
        self
    }

    pub fn policy(&self) -> Policy {
        let env = |_: &str| None;
        let context = Context {
            home: self.home.clone(),
            cwd: PathBuf::from("/home/u/project"),
            uid: self.facts.user.0,
            env: &env,
            variables: Vec::new(),
            files: &self.files,
        };
        resolve(&self.request, &context).unwrap_or_else(|error| panic!("{error}"))
    }

    pub fn paths(&self) -> FakePaths {
        let kind = |fake: &Fake| match fake {
            Fake::Directory => Kind::Directory,
            Fake::File(_) | Fake::Socket => Kind::File,
            Fake::Link(target) => Kind::Symlink(target.clone()),
        };
        FakePaths(self.files.0.iter().map(|(path, fake)| (path.clone(), kind(fake))).collect())
    }

    pub fn try_plan(&self) -> Result<Plan, PlanError> {
        plan(&self.policy(), &self.facts, &self.paths())
    }

    #[track_caller]
    pub fn plan(&self) -> Plan {
        self.try_plan().unwrap_or_else(|error| panic!("{error}"))
    }

    #[track_caller]
    pub fn refusal(&self) -> String {
        match self.try_plan() {
            Ok(plan) => panic!("a plan was made, without {:?}", plan.degraded),
            Err(error) => error.to_string(),
        }
    }
}
