//! A made-up host for tests.
#![allow(dead_code, missing_docs)]

use ringfence_policy::decide::Request as Question;
use ringfence_policy::files::FakeFiles;
use ringfence_policy::{
    Context, Decision, Key, Policy, PolicyError, Request, Setting, Subject, decide, resolve,
};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

pub struct Host {
    pub files: FakeFiles,
    pub env: BTreeMap<String, OsString>,
    pub cwd: PathBuf,
    pub home: PathBuf,
    pub uid: u32,
    pub request: Request,
}

/// An ordinary machine: a user `u` in `/home/u/project`, a merged /usr.
pub fn host() -> Host {
    let mut files = FakeFiles::default();
    for directory in
        ["/usr/bin", "/usr/lib", "/etc", "/home/u/project/src", "/tmp", "/home/u/.cargo/bin"]
    {
        files = files.directory(directory);
    }
    let files = files
        .symlink("/bin", "usr/bin")
        .symlink("/lib", "usr/lib")
        .file("/etc/passwd", "")
        .file("/home/u/.ssh/id_ed25519", "")
        .file("/home/u/.bashrc", "")
        .file("/home/u/.cargo/credentials.toml", "");
    Host {
        files,
        env: BTreeMap::new(),
        cwd: PathBuf::from("/home/u/project"),
        home: PathBuf::from("/home/u"),
        uid: 1000,
        request: Request::default(),
    }
}

impl Host {
    pub fn with(mut self, change: impl FnOnce(FakeFiles) -> FakeFiles) -> Host {
        self.files = change(self.files);
        self
    }

    pub fn cwd(mut self, cwd: &str) -> Host {
        self.files = self.files.directory(cwd);
        self.cwd = PathBuf::from(cwd);
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Host {
        self.env.insert(name.to_owned(), OsString::from(value));
        self
    }

    pub fn option(mut self, key: Key, value: impl Into<OsString>) -> Host {
        self.request.options.push(Setting::new(key, value));
        self
    }

    pub fn profile(mut self, name: &str) -> Host {
        self.request.profiles.push(name.to_owned());
        self
    }

    /// Uses a profile of this text, and no other.
    pub fn own(self, toml: &str) -> Host {
        self.with(|files| files.file("/home/u/.config/ringfence/profiles/own.toml", toml))
            .profile("own")
    }

    pub fn context<T>(&self, f: impl FnOnce(&Context<'_>) -> T) -> T {
        let env = |name: &str| self.env.get(name).cloned();
        f(&Context {
            home: self.home.clone(),
            cwd: self.cwd.clone(),
            uid: self.uid,
            env: &env,
            variables: self.env.keys().cloned().collect(),
            files: &self.files,
        })
    }

    /// Resolves another request than its own.
    pub fn asked(&self, request: &Request) -> Result<Policy, PolicyError> {
        self.context(|context| resolve(request, context))
    }

    pub fn resolve(&self) -> Result<Policy, PolicyError> {
        self.context(|context| resolve(&self.request, context))
    }

    pub fn policy(&self) -> Policy {
        self.resolve().expect("a policy")
    }

    pub fn error(&self) -> String {
        self.resolve().expect_err("no policy").to_string()
    }

    pub fn read(&self, path: &str) -> Decision {
        decide(&self.policy(), &Question::Read(self.subject(path)))
    }

    pub fn write(&self, path: &str) -> Decision {
        decide(&self.policy(), &Question::Write(self.subject(path)))
    }

    pub fn subject(&self, path: &str) -> Subject {
        Subject::on_host(Path::new(path), &self.files)
    }
}
