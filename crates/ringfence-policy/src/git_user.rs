//! What the user's own configuration of git names for git to read: what it includes, and files of patterns. A run that is
//! shown `~/.gitconfig` and none of these has another name or none, and commits what is to be ignored.

use crate::authorities;
use crate::files::{Real, Resolver};
use crate::gitconfig::{Setting, parse};
use crate::gitnamed;
use crate::gitread::{self, Pass, Said};
use crate::moved::Moved;
use crate::policy::{Access, Source};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// At most so many files are looked at, and granted.
const MOST: usize = 64;

/// Settings that are a path to a file that git reads, beside includes.
const READ: [(&str, &str); 5] = [
    ("core", "excludesfile"),
    ("core", "attributesfile"),
    ("commit", "template"),
    ("gpg", "allowedsignersfile"),
    ("mailmap", "file"),
];

/// The one for a file with the certificates to trust, of all servers or of one: shown where it holds nothing else.
const CERTIFICATES: (&str, &str) = ("http", "sslcainfo");

/// What files are called that are kept apart because of what is in them.
const APART: [&str; 4] = ["secret", "credential", "token", "passw"];

/// A file that is named, and by what.
pub(crate) struct Named {
    pub(crate) real: Real,
    pub(crate) source: Source,
}

/// Where a file of configuration is, and whether another one includes it.
struct File {
    path: PathBuf,
    included: bool,
}

/// Finds them. A file counts that is `shown` for reading only, and what it includes: what a program can write grants
/// nothing, nor what one can have written when it was run elsewhere ([`Own`]). What is in a writable tree is not among
/// them, nor what is no regular file, or called like a secret.
pub(crate) fn named(
    resolver: &mut Resolver<'_>,
    home: &Path,
    moved: &Moved,
    env: &dyn Fn(&str) -> Option<OsString>,
    shown: &dyn Fn(&Path) -> Option<Access>,
) -> Vec<Named> {
    let first = usual(home, moved).into_iter().chain(told(env, "GIT_CONFIG_GLOBAL"));
    let mut files: Vec<File> = first.map(|path| File { path, included: false }).collect();
    let own = Own::of(resolver, home, moved);
    let (mut named, mut at, pass) = (Vec::<Named>::new(), 0, Pass::default());
    while let Some(File { path, included }) = files.get(at) {
        at += 1;
        let (path, included) = (path.clone(), *included);
        let Ok(real) = resolver.real(&path) else { continue };
        if !real.exists || !included && shown(&real.path) != Some(Access::Read) {
            continue;
        }
        let Said::Bytes(bytes) = pass.read(|| gitread::read(resolver.files(), &real.path)) else {
            continue;
        };
        // What cannot be read is a refusal elsewhere.
        for setting in parse(&bytes).unwrap_or_default() {
            let include = is_include(&setting);
            let key = (&*setting.section, setting.name.as_str());
            let read = READ.contains(&key) && (!included || own.holds(&real.path));
            let trusted = key == CERTIFICATES;
            let below = if include { path.parent() } else { None };
            let counts = include || read || trusted;
            let Some(target) = place(&setting, below, home).filter(|_| counts) else {
                continue;
            };
            let Ok(real) = resolver.real(&target) else { continue };
            let full = named.len() == MOST || files.len() == MOST;
            let known = named.iter().any(|one| one.real.path == real.path);
            if !real.exists || full || known || is_apart(&real.path) || is_apart(&target) {
                continue;
            }
            // Nor what it leads to by a link that a program may have made.
            let links = || real.links.iter().map(|(link, _)| link);
            let by_program = links().any(|link| !own.holds(link))
                || links().chain([&real.path]).any(|path| shown(path) == Some(Access::Write));
            if by_program || resolver.files().beginning(&real.path, 1).is_err() {
                continue;
            }
            let text = || resolver.files().text(&real.path, authorities::LARGEST);
            if trusted && !text().is_ok_and(|text| authorities::certificates(&text)) {
                continue;
            }
            let text = format!("{} of {}", setting.key(), path.display());
            let source = Source { origin: "built in".to_owned(), key: String::new(), text };
            named.push(Named { real, source });
            if include {
                files.push(File { path: target, included: true });
            }
        }
    }
    named
}

/// The directories of the user's that are nobody's workspace: the home, those of configuration in it, and what is above.
/// What is deeper (`~/dotfiles`) may have been another run's to write: the link that it made there leads to `~/.ssh`, and
/// the file that was not there before says what it likes.
struct Own {
    /// By its name, and where it is.
    homes: Vec<PathBuf>,
    configuration: Vec<PathBuf>,
}

impl Own {
    fn of(resolver: &mut Resolver<'_>, home: &Path, moved: &Moved) -> Own {
        let git = usual(home, moved).into_iter().filter_map(|file| Some(file.parent()?.to_owned()));
        let configuration = git.flat_map(|git| [git.parent().map(Path::to_owned), Some(git)]);
        let real = resolver.real(home).ok().map(|real| real.path);
        let homes = [home.to_owned()].into_iter().chain(real).collect();
        Own { homes, configuration: configuration.flatten().collect() }
    }

    /// Whether a name is in one of them.
    fn holds(&self, path: &Path) -> bool {
        path.parent().is_some_and(|directory| {
            self.homes.iter().any(|home| home.starts_with(directory))
                || self.configuration.iter().any(|own| own == directory)
        })
    }
}

/// Where the user's own is (git-config(1), FILES).
pub(crate) fn usual(home: &Path, moved: &Moved) -> [PathBuf; 2] {
    const USUAL: &str = ".config/git/config";
    [moved.path(USUAL).unwrap_or_else(|| home.join(USUAL)), home.join(".gitconfig")]
}

/// Where a variable says that one is.
pub(crate) fn told(env: &dyn Fn(&str) -> Option<OsString>, name: &str) -> Option<PathBuf> {
    env(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

fn is_include(setting: &Setting) -> bool {
    matches!(&*setting.section, "include" | "includeif") && setting.name == "path"
}

fn is_apart(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    APART.iter().any(|part| name.contains(part))
}

/// Where a setting that is a path leads (git-config(1), "pathname"), of a file that includes from its directory, `below`.
fn place(setting: &Setting, below: Option<&Path>, home: &Path) -> Option<PathBuf> {
    let text = setting.value.as_deref().filter(|value| !value.is_empty())?;
    let from = below.or_else(|| text.starts_with(['~', '/']).then_some(Path::new("/")))?;
    gitnamed::place(from, text, &|user| user.is_empty().then(|| home.to_owned()))
}
