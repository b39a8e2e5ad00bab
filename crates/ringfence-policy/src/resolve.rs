//! From profiles and options to a [`Policy`], for one user and one directory.

use crate::builtin::Builtin;
use crate::catalog::Catalog;
use crate::error::PolicyError;
use crate::files::{FileView, Resolver};
use crate::key::Key;
use crate::merge::{Merged, Setting};
use crate::path::{Bases, normal};
use crate::policy::{Home, Layer, Overlay, Policy, Source, TierChoice};
use crate::{environment, limits, network, rules};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// What a user asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Profiles, left to right. None: `default`, and the preset for the command if there is one.
    pub profiles: Vec<String>,
    /// Profiles whose text is at hand already, after those: what they are called in messages,
    /// and the text. For a project's own file, so that what was found to be trusted is what counts.
    pub inline: Vec<(String, String)>,
    /// Options, in order.
    pub options: Vec<Setting>,
    /// The directory the command starts in; without one, the caller's.
    pub workdir: Option<PathBuf>,
    /// The command, to find its preset by.
    pub command: Option<OsString>,
}

/// Who asks, and where.
pub struct Context<'a> {
    /// The caller's home directory.
    pub home: PathBuf,
    /// The caller's directory.
    pub cwd: PathBuf,
    /// The caller's effective user.
    pub uid: u32,
    /// The caller's environment.
    pub env: &'a dyn Fn(&str) -> Option<OsString>,
    /// The host's files.
    pub files: &'a dyn FileView,
}

/// Makes the policy.
///
/// # Errors
/// The first thing in the profiles or options that is wrong, in one sentence.
pub fn resolve(request: &Request, context: &Context<'_>) -> Result<Policy, PolicyError> {
    let mut resolver = Resolver::new(context.files);
    let home = real_or_normal(&mut resolver, &context.home);
    let workdir = workdir(request, context, &mut resolver)?;
    let xdg = (context.env)("XDG_CONFIG_HOME").map(PathBuf::from);
    let catalog = Catalog::new(context.files, &home, &context.cwd, xdg.as_deref());
    let profiles = catalog.chain(&names(request), &request.inline)?;
    let mut policy = Policy {
        profiles: profiles.iter().map(|profile| profile.origin.to_string()).collect(),
        home_dir: home,
        workdir,
        ..Policy::default()
    };
    let merged = Merged::of(profiles, &request.options);
    singles(&merged, &mut policy)?;
    let workdir = policy.workdir.clone();
    let bases = Bases { home: &context.home, workdir: &workdir, env: context.env };
    rules::resolve(&merged, context, &bases, &mut resolver, &mut policy)?;
    policy.network = network::resolve(&merged, context, &bases, &mut resolver, &mut policy)?;
    policy.environment = environment::resolve(&merged, context, &policy.network)?;
    policy.limits = limits::resolve(&merged)?;
    Ok(policy)
}

/// The names of the profiles that a request stands for.
pub fn names(request: &Request) -> Vec<String> {
    if !request.profiles.is_empty() {
        return request.profiles.clone();
    }
    let mut names = vec!["default".to_owned()];
    let program = request.command.as_deref().map(Path::new).and_then(Path::file_name);
    let preset = program.and_then(OsStr::to_str).and_then(Builtin::for_program);
    names.extend(preset.map(|preset| preset.name.to_owned()));
    names
}

fn workdir(
    request: &Request,
    context: &Context<'_>,
    resolver: &mut Resolver<'_>,
) -> Result<PathBuf, PolicyError> {
    let Some(wanted) = &request.workdir else {
        return Ok(real_or_normal(resolver, &context.cwd));
    };
    let path = normal(&context.cwd.join(wanted));
    let text = wanted.display().to_string();
    let source = Source { origin: "option --workdir".to_owned(), key: String::new(), text };
    match resolver.real(&path) {
        Ok(real) if real.exists => Ok(real.path),
        Ok(_) => Err(PolicyError::value(&source, format!("{} does not exist", path.display()))),
        Err(error) => Err(PolicyError::value(&source, error)),
    }
}

fn real_or_normal(resolver: &mut Resolver<'_>, path: &Path) -> PathBuf {
    match resolver.real(path) {
        Ok(real) if real.exists => real.path,
        _ => normal(path),
    }
}

/// The keys at the top of a profile that take a single value.
fn singles(merged: &Merged, policy: &mut Policy) -> Result<(), PolicyError> {
    if let Some((value, source)) = choice(merged, Key::Home) {
        policy.home = home(&value).map_err(|reason| PolicyError::value(&source, reason))?;
    }
    if let Some((value, source)) = choice(merged, Key::Tier) {
        policy.tier = pick(&value, &source, &TIERS)?;
    }
    if let Some((value, source)) = choice(merged, Key::Overlay) {
        policy.overlay = Some(pick(&value, &source, &OVERLAYS)?);
    }
    if let Some((value, source)) = choice(merged, Key::Libs) {
        policy.exact_libraries = pick(&value, &source, &[("all", false), ("exact", true)])?;
    }
    for entry in merged.of_key(Key::AllowDegraded) {
        let source = merged.source(entry);
        let layer = pick(&entry.text.to_string_lossy(), &source, &LAYERS)?;
        policy.allow_degraded.insert(layer);
    }
    Ok(())
}

/// The value of a single key, with where it stands.
pub(crate) fn choice(merged: &Merged, key: Key) -> Option<(String, Source)> {
    let entry = merged.single(key)?;
    Some((entry.text.to_string_lossy().into_owned(), merged.source(entry)))
}

/// The value that a word names.
pub(crate) fn pick<T: Copy>(
    word: &str,
    source: &Source,
    known: &[(&str, T)],
) -> Result<T, PolicyError> {
    if let Some((_, value)) = known.iter().find(|(name, _)| *name == word) {
        return Ok(*value);
    }
    let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
    let near = crate::suggest::tail(crate::suggest::nearest(word, &names));
    let message = format!("`{word}` is none of `{}`{near}", names.join("`, `"));
    Err(PolicyError::value(source, message))
}

fn home(text: &str) -> Result<Home, String> {
    let named = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    match text {
        "private" => Ok(Home::Private),
        "host" => Ok(Home::Host),
        name if !name.is_empty()
            && name.len() <= 64
            && !name.starts_with(['.', '-'])
            && name.bytes().all(named) =>
        {
            Ok(Home::Named(name.to_owned()))
        }
        _ => Err(format!(
            "`{text}` is no home: write `private`, `host`, or a name of letters, digits, `-`, `_` and `.`"
        )),
    }
}

const TIERS: [(&str, TierChoice); 4] = [
    ("auto", TierChoice::Auto),
    ("process", TierChoice::Process),
    ("namespace", TierChoice::Namespace),
    ("vm", TierChoice::Vm),
];

const OVERLAYS: [(&str, Overlay); 4] = [
    ("ask", Overlay::Ask),
    ("commit", Overlay::Commit),
    ("discard", Overlay::Discard),
    ("keep", Overlay::Keep),
];

/// The layers, by the names that `--allow-degraded` takes.
pub const LAYERS: [(&str, Layer); 16] = [
    ("namespaces", Layer::Namespaces),
    ("landlock", Layer::Landlock),
    ("landlock-truncate", Layer::LandlockTruncate),
    ("landlock-network", Layer::LandlockNetwork),
    ("landlock-ioctl", Layer::LandlockIoctl),
    ("landlock-scope", Layer::LandlockScope),
    ("seccomp", Layer::Seccomp),
    ("seccomp-notify", Layer::SeccompNotify),
    ("memory-limit", Layer::MemoryLimit),
    ("pids-limit", Layer::PidsLimit),
    ("cpus-limit", Layer::CpusLimit),
    ("disk-limit", Layer::DiskLimit),
    ("protect", Layer::Protect),
    ("deny", Layer::Deny),
    ("private-directories", Layer::PrivateDirectories),
    ("metadata", Layer::Metadata),
];
