//! From profiles and options to a [`Policy`], for one user and one directory.

use crate::calls::{self, CallList, Otherwise};
use crate::catalog::Catalog;
use crate::error::{Planted, PolicyError};
use crate::files::{FileView, Resolver, planted};
use crate::key::Key;
use crate::merge::{Merged, Setting};
use crate::path::{Bases, normal};
use crate::policy::{
    Access, Arguments, Home, Layer, Overlay, PathRule, Policy, Snapshot, Source, TierChoice,
};
use crate::profile::Profile;
use crate::{arguments, environment, limits, network, rules, shown};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What a user asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Profiles, left to right. None: `default`, and the preset for the command if there is one.
    pub profiles: Vec<String>,
    /// Profiles whose text is at hand already, after those: what they are called in messages,
    /// and the text. For a project's own file, so that what was found to be trusted is what counts.
    pub inline: Vec<(String, String)>,
    /// Files that decide about this run, beside the profiles that are read: they are protected.
    pub deciding: Vec<PathBuf>,
    /// Files that decide about runs elsewhere, where each really is: protected as well. They are not looked at, since
    /// one may be on a server that does not answer.
    pub elsewhere: Vec<PathBuf>,
    /// Where ringfence itself is, and the links by which it was started: protected in writable trees.
    pub program: Vec<PathBuf>,
    /// Features, after the profiles.
    pub features: Vec<String>,
    /// Options, in order.
    pub options: Vec<Setting>,
    /// The directory the command starts in; without one, the caller's.
    pub workdir: Option<PathBuf>,
    /// The command, to find its preset by.
    pub command: Option<OsString>,
    /// Its arguments, for profiles that grant what they name.
    pub arguments: Vec<OsString>,
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
    /// The names in it.
    pub variables: Vec<String>,
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
    let catalog = Catalog::new(context.files, &home, &context.cwd, context.env, context.uid);
    let names = names(request, &catalog, &workdir);
    let homes = crate::homes::of(context.uid, &home, &mut resolver);
    let profiles = catalog.chain(&names, &request.inline, &request.features)?;
    let dangers = said(&profiles);
    let mut deciding = request.deciding.clone();
    deciding.extend(profiles.iter().filter_map(|profile| profile.file.clone()));
    let mut policy = Policy {
        profiles: profiles.iter().map(|profile| profile.origin.to_string()).collect(),
        home_dir: home.clone(),
        account_home: homes.own,
        homes_of_others: homes.others,
        workdir,
        warnings: dangers,
        ..Policy::default()
    };
    not_planted(request, context, &mut resolver, &policy)?;
    // A home that was moved, or is on another file system, keeps its name inside, which `HOME` and `~` say.
    policy.links.extend(resolver.real(&context.home).into_iter().flat_map(|real| real.links));
    let mut merged = Merged::of(profiles, &request.options);
    singles(&merged, &mut policy)?;
    let workdir = policy.workdir.clone();
    let mut named = arguments::Named::default();
    if let Some(granted) = policy.arguments {
        let key = match granted {
            Arguments::Files | Arguments::Read => Key::Read,
            Arguments::Write | Arguments::Beside => Key::Write,
        };
        named = arguments::named(&request.arguments, granted, &mut resolver, &mut policy);
        for path in &named.rules {
            merged.option(&Setting::new(key, path.clone()));
        }
    }
    let bases = Bases { home: &context.home, workdir: &workdir, env: context.env };
    rules::resolve(&merged, context, &bases, &mut resolver, &mut policy)?;
    crate::guard::overruled(&mut policy);
    named.not_planted(&policy)?;
    let linked = crate::own::linked(&home, context.env, &mut resolver);
    let elsewhere = [request.elsewhere.clone(), linked].concat();
    crate::own::protect(deciding, elsewhere, &mut resolver, &mut policy);
    crate::own::program(&request.program, &mut resolver, &mut policy);
    policy.network = network::resolve(&merged, context, &bases, &mut resolver, &mut policy)?;
    policy.dbus = crate::dbus::resolve(&merged, &mut policy.warnings)?;
    policy.environment = environment::resolve(&merged, context, &policy.network)?;
    crate::authorities::show(context, &mut resolver, &mut policy);
    // What a profile is for is protected whatever starts it: `-p codex -- sh -c codex`.
    let known = merged.of_key(Key::Programs).map(|program| program.text.as_ref());
    let set = policy.environment.set.get("PATH").map(|(value, _)| OsString::from(value));
    let search = set.or_else(|| (context.env)("PATH"));
    let search = search.as_deref();
    if names.len() > 1
        && request.profiles.is_empty()
        && let Some(found) = written(request, search, &mut resolver, &policy)
    {
        let plain = Request { profiles: vec!["default".to_owned()], ..request.clone() };
        let mut policy = resolve(&plain, context)?;
        let name = request.command.as_deref().unwrap_or_default();
        if !name.as_bytes().contains(&b'/') {
            let (program, found) = (name.display(), found.display());
            let name = shown::path_word(Path::new(name));
            policy.warnings.push(format!(
                "{program} is {found} by PATH, where runs write: it gets no profile for its name; -p {name} gives it one"
            ));
        }
        return Ok(policy);
    }
    let mut commands: Vec<&OsStr> = request.command.as_deref().into_iter().chain(known).collect();
    commands.sort_unstable();
    commands.dedup();
    if !commands.is_empty() {
        crate::started::protect(&commands, search, &mut resolver, &mut policy);
    }
    policy.limits = limits::resolve(&merged)?;
    Ok(policy)
}

/// The names of the profiles that a request stands for.
pub fn names(request: &Request, catalog: &Catalog<'_>, workdir: &Path) -> Vec<String> {
    if !request.profiles.is_empty() {
        return request.profiles.clone();
    }
    let mut names = vec!["default".to_owned()];
    let command = request.command.as_deref().map(Path::new);
    // What a project calls `claude` is not Claude Code: it gets nothing for its name.
    let own = |path: &&Path| {
        path.components().count() == 1 || !normal(&workdir.join(path)).starts_with(workdir)
    };
    let program = command.filter(own).and_then(Path::file_name).and_then(OsStr::to_str);
    names.extend(program.and_then(|program| catalog.preset(program)));
    names
}

/// The command, if it lies in the workspace or in a tree that an option or a project's file makes writable: there its
/// name says nothing about it. `search` is the `PATH` in which a name without a slash is looked for.
fn written(
    request: &Request,
    search: Option<&OsStr>,
    resolver: &mut Resolver<'_>,
    policy: &Policy,
) -> Option<PathBuf> {
    let command = Path::new(request.command.as_deref()?);
    let mut real = |path: PathBuf| {
        let real = resolver.real(&path).ok().filter(|real| real.exists);
        (path, real.map(|real| real.path))
    };
    let bare = !command.as_os_str().as_bytes().contains(&b'/');
    let (path, real) = if bare {
        // The first of that name; `.` and no name at all are where the run starts.
        let places = std::env::split_paths(search?);
        let paths = places.map(|place| normal(&policy.workdir.join(place).join(command)));
        paths.map(&mut real).find(|(_, real)| real.is_some())?
    } else {
        real(normal(&policy.workdir.join(command)))
    };
    let real = real.unwrap_or_else(|| path.clone());
    let covers = |tree: &Path| path.starts_with(tree) || real.starts_with(tree);
    let writable = |rule: &PathRule| {
        let origin = &rule.source.origin;
        let said = origin.starts_with("option ") || origin.starts_with("file ");
        rule.access == Access::Write && (said || rule.path == policy.workdir) && covers(&rule.path)
    };
    policy.paths.iter().any(writable).then_some(real)
}

/// What profiles and features open, for the user to know before the run.
fn said(profiles: &[Profile]) -> Vec<String> {
    let dangers = |profile: &Profile| {
        let dangers = profile.list(Key::Dangers).unwrap_or_default();
        let sentences = dangers.iter().map(|danger| format!("{}: {danger}", profile.origin));
        sentences.collect::<Vec<_>>()
    };
    profiles.iter().flat_map(dangers).collect()
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
    let source = workdir_option(wanted);
    match resolver.real(&path) {
        Ok(real) if real.exists => Ok(real.path),
        Ok(_) => Err(PolicyError::value(&source, format!("{} does not exist", path.display()))),
        Err(error) => Err(PolicyError::value(&source, error)),
    }
}

/// Refuses a directory that a link leads to out of where the caller stands, or of what is around: a run that was started
/// there could have made the link, and what it leads to becomes writable.
fn not_planted(
    request: &Request,
    context: &Context<'_>,
    resolver: &mut Resolver<'_>,
    policy: &Policy,
) -> Result<(), PolicyError> {
    let Some(wanted) = &request.workdir else { return Ok(()) };
    let Ok(real) = resolver.real(&normal(&context.cwd.join(wanted))) else { return Ok(()) };
    let here = real_or_normal(resolver, &context.cwd);
    let workspace = |above: &&Path| crate::workspace::no_workspace(above, policy).is_none();
    let trees: Vec<PathBuf> = here.ancestors().filter(workspace).map(Path::to_path_buf).collect();
    match planted(&real.links, &real.path, &trees) {
        Some((link, tree)) => Err(PolicyError::Planted(Box::new(Planted {
            rule: workdir_option(wanted),
            link: link.to_owned(),
            tree: tree.to_owned(),
            target: real.path.clone(),
        }))),
        None => Ok(()),
    }
}

fn workdir_option(wanted: &Path) -> Source {
    let text = wanted.display().to_string();
    Source { origin: "option --workdir".to_owned(), key: String::new(), text }
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
    policy.strict = choice(merged, Key::Strict).is_some_and(|(value, _)| value == "true");
    policy.trace = choice(merged, Key::Trace).is_some_and(|(value, _)| value == "true");
    policy.git_settings =
        choice(merged, Key::GitSettings).is_some_and(|(value, _)| value == "true");
    policy.gateway = choice(merged, Key::Gateway).is_some_and(|(value, _)| value == "true");
    if let Some((value, source)) = choice(merged, Key::Snapshot) {
        policy.snapshot = Some(pick(&value, &source, &SNAPSHOTS)?);
    }
    policy.calls = call_list(merged)?;
    if let Some((value, source)) = choice(merged, Key::Arguments) {
        policy.arguments = pick(&value, &source, &ARGUMENTS)?;
    }
    policy.before = hooks(merged, Key::Before)?;
    policy.after = hooks(merged, Key::After)?;
    for entry in merged.of_key(Key::AllowDegraded) {
        let source = merged.source(entry);
        let layer = pick(&entry.text.to_string_lossy(), &source, &LAYERS)?;
        policy.allow_degraded.insert(layer);
    }
    Ok(())
}

/// The list of calls, where one is asked for.
fn call_list(merged: &Merged) -> Result<Option<CallList>, PolicyError> {
    // What is no call is told where no list is asked for, too: else it is found when one is.
    let mut allowed = BTreeSet::new();
    for entry in merged.of_key(Key::CallAllow) {
        let name = entry.text.to_string_lossy();
        if let Some(what) = calls::unknown(&name) {
            return Err(PolicyError::value(&merged.source(entry), what));
        }
        allowed.insert(name.into_owned());
    }
    let Some((mode, source)) = choice(merged, Key::CallMode) else { return Ok(None) };
    let modes =
        [("default", None), ("learned", Some(Otherwise::Refuse)), ("ask", Some(Otherwise::Ask))];
    let Some(otherwise) = pick(&mode, &source, &modes)? else { return Ok(None) };
    let mut list = CallList { otherwise, ..CallList::default() };
    if otherwise != Otherwise::Ask
        && let Some((value, source)) = choice(merged, Key::CallOtherwise)
    {
        let known = [("refuse", Otherwise::Refuse), ("kill", Otherwise::Kill)];
        list.otherwise = pick(&value, &source, &known)?;
    }
    list.allow = allowed;
    Ok(Some(list))
}

/// Hooks run outside: only what stands in ringfence's own directories may have them.
fn hooks(merged: &Merged, key: Key) -> Result<Vec<Source>, PolicyError> {
    let source = |entry| {
        let source = merged.source(entry);
        match source.origin.starts_with("file ") {
            true => Err(PolicyError::value(
                &source,
                "hooks run outside of the sandbox; they count only in a profile of your own \
                 (ringfence profile path)",
            )),
            false => Ok(source),
        }
    };
    merged.of_key(key).map(source).collect()
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

const ARGUMENTS: [(&str, Option<Arguments>); 5] = [
    ("none", None),
    ("files", Some(Arguments::Files)),
    ("read", Some(Arguments::Read)),
    ("write", Some(Arguments::Write)),
    ("beside", Some(Arguments::Beside)),
];

const TIERS: [(&str, TierChoice); 4] = [
    ("auto", TierChoice::Auto),
    ("process", TierChoice::Process),
    ("namespace", TierChoice::Namespace),
    ("vm", TierChoice::Vm),
];

const SNAPSHOTS: [(&str, Snapshot); 3] =
    [("auto", Snapshot::Auto), ("always", Snapshot::Always), ("never", Snapshot::Never)];

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
