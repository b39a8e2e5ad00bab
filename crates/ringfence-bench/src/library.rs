//! The stages before a launch, as functions to be timed: the only place that knows the product's
//! crates. `ringfence bench parts` and `cargo bench` both go through here.

use crate::error::{Result, error};
use ringfence_policy::decide::Request as Question;
use ringfence_policy::{
    Context, Host, HostFiles, HostRule, Policy, Profile, Request, Subject, decide, resolve,
};
use ringfence_sandbox::facts::{Availability, HostPaths};
use ringfence_sandbox::{Facts, filter, planner};
use std::ffi::OsString;
use std::hint::black_box;
use std::path::{Path, PathBuf};

/// A function to be timed.
pub struct Part {
    /// Its name.
    pub name: &'static str,
    /// Runs it once.
    pub run: Box<dyn FnMut()>,
}

/// A profile with something of everything.
const PROFILE: &str = r#"
extends = ["default"]

[filesystem]
read = ["~/.config/git?"]
write = [".", "~/.npm?"]
deny = ["./.env"]
protect = [".github/workflows"]

[network]
allow = ["packages.example.org", "*.github.com:443", "[2001:db8::1]:8443"]

[environment]
set = { CI = "1" }

[limits]
pids = 512
"#;

/// Every part, made ready for the directory `workdir`.
pub fn parts(workdir: &Path) -> Result<Vec<Part>> {
    let failed =
        |cause: &dyn std::fmt::Display| error!("a default policy cannot be made here: {cause}");
    let home = std::env::home_dir().unwrap_or_else(|| PathBuf::from("/"));
    let cwd = workdir.to_owned();
    let request = Request { command: Some("true".into()), ..Request::default() };
    let policy = policy(&request, &home, &cwd)?;
    // A recent kernel, whatever this one is: the same work everywhere, also under valgrind, which knows
    // neither Landlock nor seccomp.
    let facts = Facts {
        namespaces: Availability::Yes,
        landlock_abi: 6,
        seccomp: Availability::Yes,
        seccomp_notify: Availability::Yes,
        inside: false,
        ..Facts::quick(false)
    };
    let plan = planner::plan(&policy, &facts, &HostPaths).map_err(|cause| failed(&cause))?;
    let (for_read, for_connect, for_plan) = (policy.clone(), policy.clone(), policy);
    let read = Question::Read(Subject::lexical(&home.join(".ssh/id_ed25519")));
    let connect = Question::Connect {
        host: Host::parse("api.github.com").map_err(|cause| failed(&cause))?,
        port: 443,
    };
    Ok(vec![
        part("parse a profile", || {
            drop(black_box(Profile::from_toml(black_box(PROFILE), "bench")))
        }),
        part("parse a host rule", || {
            drop(black_box(HostRule::parse(black_box("*.GitHub.com:443"))))
        }),
        part("resolve: find, merge, validate", move || {
            drop(black_box(self::policy(&request, &home, &cwd)));
        }),
        part("decide: read a path", move || drop(black_box(decide(&for_read, &read)))),
        part("decide: connect to a host", move || drop(black_box(decide(&for_connect, &connect)))),
        part("facts of the host", || drop(black_box(Facts::quick(false)))),
        part("plan", move || drop(black_box(planner::plan(&for_plan, &facts, &HostPaths)))),
        part("compile the filter", move || drop(black_box(filter::compile(&plan.seccomp, None)))),
    ])
}

fn part(name: &'static str, run: impl FnMut() + 'static) -> Part {
    Part { name, run: Box::new(run) }
}

fn policy(request: &Request, home: &Path, cwd: &Path) -> Result<Policy> {
    let env = |name: &str| -> Option<OsString> { std::env::var_os(name) };
    let uid = crate::sys::process::user();
    let files = &HostFiles;
    let variables = ringfence_policy::variable_names();
    let (home, cwd) = (home.to_owned(), cwd.to_owned());
    let context = Context { home, cwd, uid, env: &env, variables, files };
    resolve(request, &context)
        .map_err(|cause| error!("a default policy cannot be made here: {cause}"))
}
