//! From a parsed command line to a [`Policy`].

use crate::error::Fault;
use crate::options::Parsed;
use crate::trust::{self, Found};
use ringfence_policy::catalog::Catalog;
use ringfence_policy::{Context, Key, Policy, Request, Setting, resolve, shown, variable_names};
use ringfence_sandbox::inputs::Inputs;
use ringfence_sandbox::{itself, state};
use std::ffi::OsStr;
use std::fs::DirBuilder;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The profile key that an option stands for.
fn key(option: &str) -> Option<Key> {
    Some(match option {
        "read" => Key::Read,
        "write" => Key::Write,
        "deny" => Key::Deny,
        "protect" => Key::Protect,
        "allow-host" => Key::AllowHost,
        "deny-host" => Key::DenyHost,
        "http" => Key::Http,
        "inject" => Key::Inject,
        "network" => Key::Mode,
        "publish" => Key::Publish,
        "allow-socket" => Key::Sockets,
        "clean-env" => Key::Clean,
        "home" => Key::Home,
        "memory" => Key::Memory,
        "cpus" => Key::Cpus,
        "pids" => Key::Pids,
        "open-files" => Key::OpenFiles,
        "disk" => Key::Disk,
        "timeout" => Key::Timeout,
        "overlay" => Key::Overlay,
        "tier" => Key::Tier,
        "allow-degraded" => Key::AllowDegraded,
        "libs" => Key::Libs,
        "gateway" => Key::Gateway,
        "snapshot" => Key::Snapshot,
        "strict" => Key::Strict,
        "syscalls" => Key::CallMode,
        _ => return None,
    })
}

/// What the user asks for, for a command or for the one that `--for` names in its place.
pub fn request(parsed: &Parsed, command: Option<&OsStr>) -> Request {
    let instead = parsed.last("for");
    let command = instead.or(command);
    let mut request = Request {
        workdir: parsed.last("workdir").map(PathBuf::from),
        command: command.map(ToOwned::to_owned),
        ..Request::default()
    };
    for (name, value) in &parsed.options {
        match (*name, key(name)) {
            ("profile", _) => request.profiles.push(value.to_string_lossy().into_owned()),
            ("feature", _) => request.features.push(value.to_string_lossy().into_owned()),
            ("env", _) => request.options.push(Setting::env(value.clone())),
            ("clean-env" | "gateway" | "strict", Some(key)) => {
                request.options.push(Setting::new(key, "true"))
            }
            ("overlay", Some(key)) if value.is_empty() => {
                request.options.push(Setting::new(key, "ask"));
            }
            ("snapshot", Some(key)) if value.is_empty() => {
                request.options.push(Setting::new(key, "always"));
            }
            ("dry-run", _) => request.options.push(Setting::new(Key::Overlay, "discard")),
            (_, Some(key)) => request.options.push(Setting::new(key, value.clone())),
            _ => {}
        }
    }
    if command.is_some() && instead.is_none() && parsed.last("command").is_none() {
        request.arguments = parsed.rest.get(1..).unwrap_or_default().to_vec();
    }
    request
}

/// The caller's home: `$HOME`, else what the user database says.
fn home() -> PathBuf {
    ringfence_sys::identity::home()
        .filter(|home| home.is_absolute())
        .unwrap_or_else(|| PathBuf::from("/"))
}

/// Resolves the policy for this user, here. A project's own policy file is added when it is
/// trusted and no profile was named.
///
/// # Errors
/// The first thing that is wrong in the options or profiles, in one sentence.
pub fn policy(request: &Request) -> Result<Policy, Fault> {
    policy_from(request, &Inputs::new())
}

/// The same, noting all that is looked at.
///
/// # Errors
/// As [`policy`].
pub fn policy_from(request: &Request, inputs: &Inputs) -> Result<Policy, Fault> {
    if let Some(file) = request.workdir.as_deref().filter(|path| path.is_file()) {
        return Err(Fault::usage(format!("--workdir {}: it is no directory", file.display())));
    }
    let mut request = request.clone();
    let mut warning = None;
    request.elsewhere = trust::accepted(inputs);
    request.program = itself::places();
    if request.profiles.is_empty() {
        let directory = request.workdir.clone().unwrap_or_else(|| PathBuf::from("."));
        match trust::find(&directory, inputs)? {
            Found::None => {}
            // The text that was hashed, not the file again: it may have changed since.
            Found::Trusted(file, text) => {
                request.deciding.extend(std::path::absolute(&file));
                request.inline.push((format!("file {}", file.display()), text));
            }
            Found::Untrusted(file) => {
                let (word, file) = (shown::path_word(&file), file.display());
                warning =
                    Some(format!("{file} is not trusted and not used: ringfence trust {word}"));
            }
            Found::Gone(file) => {
                let (word, file) = (shown::path_word(&file), file.display());
                warning = Some(format!(
                    "{file}, which you trusted, is gone: its rules are not in force; ringfence trust {word} forgets it"
                ));
            }
        }
    }
    let resolve = |context: &Context<'_>| resolve(&request, context).map_err(Fault::of);
    let mut policy = with_inputs(inputs, resolve)?;
    policy.warnings.extend(warning);
    Ok(policy)
}

/// Makes what a policy wants to be there before the run.
///
/// # Errors
/// It cannot be made: what the run would write to it would be lost, or what is to be held by it
/// would be open.
pub fn prepare(policy: &Policy) -> Result<(), Fault> {
    for made in &policy.made {
        let done = match &made.text {
            // The system's: every user's ringfence looks for profiles there.
            None if made.path.starts_with("/etc") => {
                DirBuilder::new().recursive(true).mode(0o755).create(&made.path)
            }
            None => state::make_directory(&made.path),
            Some(text) => make_file(&made.path, text),
        };
        match done {
            // What runs inside is the same user.
            Err(error) if made.text.is_none() && nobody_can_make(&made.path, &error) => {}
            done => done.map_err(|error| {
                Fault::usage(format!("cannot make {}: {error}", made.path.display()))
            })?,
        }
    }
    Ok(())
}

/// Whether a directory could not be made because this user cannot make anything there, nor give
/// himself the right to.
fn nobody_can_make(path: &Path, error: &std::io::Error) -> bool {
    let others = |there: &Path| {
        there.metadata().is_ok_and(|data| data.uid() != ringfence_sys::identity::user())
    };
    match error.kind() {
        ErrorKind::ReadOnlyFilesystem => true,
        ErrorKind::PermissionDenied => path.ancestors().find(|at| at.exists()).is_some_and(others),
        _ => false,
    }
}

fn make_file(path: &Path, text: &str) -> std::io::Result<()> {
    if let Some(parent) = path.parent() {
        state::make_directory(parent)?;
    }
    let mut options = std::fs::OpenOptions::new();
    match options.write(true).create_new(true).mode(0o600).open(path) {
        Ok(mut file) => file.write_all(text.as_bytes()),
        // Another run was first.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Calls `f` with who asks, and where.
///
/// # Errors
/// Those of `f`; a current directory that is gone.
pub fn with_context<T>(f: impl FnOnce(&Context<'_>) -> Result<T, Fault>) -> Result<T, Fault> {
    with_inputs(&Inputs::new(), f)
}

fn with_inputs<T>(
    inputs: &Inputs,
    f: impl FnOnce(&Context<'_>) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let cwd = std::env::current_dir().map_err(|error| {
        Fault::usage(format!("the current directory cannot be used: {error}; cd to another one"))
    })?;
    let env = |name: &str| inputs.variable(name);
    let variables = variable_names();
    f(&Context { home: home(), cwd, uid: uid(), env: &env, variables, files: inputs })
}

/// Calls `f` with the profiles and features that are found from here.
///
/// # Errors
/// Those of `f`; a current directory that is gone.
pub fn with_catalog<T>(f: impl FnOnce(&Catalog<'_>) -> Result<T, Fault>) -> Result<T, Fault> {
    with_context(|context| {
        f(&Catalog::new(context.files, &context.home, &context.cwd, context.env, context.uid))
    })
}

fn uid() -> u32 {
    ringfence_sandbox::facts::user()
}
