//! Collects what belongs to the exact set of libraries, each with the reason.

use crate::closure::{Cause, Closure, Finder, Surroundings};
use crate::hints::{self, Hints};
use crate::host::{Entry, Host, Kind, below};
use crate::nss;
use crate::supplies::{self, fits};
use crate::table::{Known, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Where libraries are kept.
const ROOTS: [&str; 10] = [
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/libx32",
    "/usr/local/lib",
    "/usr/local/lib64",
];

/// Data that every program may read: it is in directories of libraries by tradition.
const DATA: [&str; 4] = ["locale", "os-release", "ssl", "terminfo"];

/// Directories whose content is data, or modules that need nothing that is not there already:
/// nobody looks for libraries in them.
const LEAVES: [&str; 7] =
    ["dist-packages", "gconv", "locale", "node_modules", "site-packages", "ssl", "terminfo"];

/// Where Perl and Python keep their modules that are libraries: nobody looks beside them.
const COMPILED: [&str; 2] = ["auto", "lib-dynload"];

/// Bounds of looking into a directory.
const MOST_NAMES: usize = 8192;
const DEEPEST: usize = 8;
/// The most objects that are looked at in all directories.
const MOST_OBJECTS: usize = 4096;

/// Why something is in the set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// In words that follow the name: `needed`, `its interpreter`.
    pub how: String,
    /// What led to it.
    pub by: Option<PathBuf>,
}

/// The exact set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The directories in which only this is to be seen; without links.
    pub roots: BTreeSet<PathBuf>,
    /// Files in them.
    pub files: BTreeSet<PathBuf>,
    /// Directories in them, with everything below.
    pub directories: BTreeSet<PathBuf>,
    /// Symbolic links in them, and what they say.
    pub links: BTreeMap<PathBuf, PathBuf>,
    /// Why: for these, and for what led to them.
    pub reasons: BTreeMap<PathBuf, Reason>,
    /// Names that lead nowhere, and what has them.
    pub missing: BTreeSet<(String, PathBuf)>,
    /// It depends on the arguments of the command, and not on the program alone.
    pub arguments: bool,
}

impl Answer {
    /// Whether a path of the host is left out of the set.
    pub fn narrows(&self, path: &Path) -> bool {
        let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let below = |at: &Path| {
            self.files.contains(at) || at.ancestors().any(|above| self.directories.contains(above))
        };
        let leads = |at: &Path| {
            let all = self.files.iter().chain(&self.directories);
            all.into_iter().any(|known| known.starts_with(at))
        };
        self.roots.iter().any(|root| real.starts_with(root)) && !below(&real) && !leads(&real)
    }

    /// Whether a directory is one of libraries of all kinds, by its place.
    pub(crate) fn is_shared(&self, directory: &Path) -> bool {
        self.roots.contains(directory)
            || is_machine(directory)
            || directory.parent().is_some_and(|above| {
                let leaf = directory.file_name().and_then(OsStr::to_str).unwrap_or_default();
                LEAVES.contains(&leaf) && !is_machine(above)
            })
    }
}

/// Collects.
pub(crate) struct Collector<'h, 'a> {
    pub(crate) finder: Finder<'h, 'a>,
    pub(crate) answer: Answer,
    hints: Table<(OsString, bool), Rc<Hints>>,
    closed: Known<OsString>,
    /// Paths that were added.
    placed: Known<OsString>,
    /// By the bytes of paths, as all tables here; sorted in the end.
    reasons: Table<OsString, Reason>,
    /// Room for what is read of an object.
    room: Vec<u8>,
    objects: usize,
    nsswitch: Option<Vec<u8>>,
    /// The machines' directories in the roots.
    common: Vec<PathBuf>,
    /// Places that were looked for, with the directory of libraries of an installation of its own.
    supplied: Known<(Option<PathBuf>, &'static str)>,
    /// Executables found in directories, to be looked at as commands.
    pub(crate) scripts: Vec<PathBuf>,
}

impl<'h, 'a> Collector<'h, 'a> {
    pub(crate) fn new(host: &'h Host<'a>, surroundings: Surroundings) -> Collector<'h, 'a> {
        let mut collector = Collector {
            finder: Finder::new(host, surroundings),
            answer: Answer::default(),
            hints: Table::default(),
            closed: Known::default(),
            placed: Known::default(),
            reasons: Table::default(),
            room: Vec::new(),
            objects: 0,
            nsswitch: None,
            common: Vec::new(),
            supplied: Known::default(),
            scripts: Vec::new(),
        };
        let cached = collector.finder.cache().directories();
        for directory in ROOTS.iter().map(PathBuf::from).chain(cached) {
            if let Some(found) = host.resolve(&directory)
                && host.kind(&found.real) == Kind::Directory
            {
                collector.answer.roots.insert(found.real.clone());
            }
        }
        let roots = collector.answer.roots.clone();
        let below = |root: &PathBuf| root.ancestors().skip(1).any(|above| roots.contains(above));
        collector.answer.roots.retain(|root| !below(root));
        let above = collector.answer.roots.iter();
        collector.common = above.flat_map(|root| collector.machines(root)).collect();
        for root in &roots {
            for name in DATA {
                let path = root.join(name);
                if host.kind(&path) != Kind::Absent {
                    collector.place(&path, "data that programs read", None);
                }
            }
        }
        collector
    }

    /// What was collected.
    pub(crate) fn finish(mut self) -> Answer {
        let reasons = self.reasons.into_iter();
        self.answer.reasons = reasons.map(|(path, reason)| (path.into(), reason)).collect();
        self.answer
    }

    pub(crate) fn host(&self) -> &'h Host<'a> {
        self.finder.host()
    }

    fn in_root(&self, path: &Path) -> bool {
        self.answer.roots.iter().any(|root| lies_in(path, root))
    }

    /// A directory that holds libraries of all kinds: one of the roots, or a machine's in it.
    fn is_common(&self, path: &Path) -> bool {
        !self.in_root(path) || is_machine(path)
    }

    /// Puts a reason down, the first one counts.
    pub(crate) fn reason(&mut self, path: &Path, how: &str, by: Option<&Path>) {
        if !self.reasons.contains_key(path.as_os_str()) {
            let reason = Reason { how: how.to_owned(), by: by.map(Path::to_owned) };
            self.reasons.insert(path.into(), reason);
        }
    }

    /// Adds the file or directory that a path leads to, with the links on the way. What it is
    /// without links.
    pub(crate) fn place(&mut self, path: &Path, how: &str, by: Option<&Path>) -> Option<PathBuf> {
        let found = self.host().resolve(path)?;
        if !self.placed.insert(path.into()) {
            return Some(found.real.clone());
        }
        for (link, target) in &found.links {
            if self.in_root(link) {
                self.answer.links.insert(link.clone(), target.clone());
            }
        }
        self.reason(&found.real, how, by);
        if self.in_root(&found.real) {
            match self.host().kind(&found.real) {
                Kind::Directory if self.is_common(&found.real) => {}
                Kind::Directory => {
                    let leaf = found.real.file_name().and_then(OsStr::to_str);
                    let leaf = leaf.is_some_and(|name| LEAVES.contains(&name));
                    if self.answer.directories.insert(found.real.clone()) && !leaf {
                        self.inside(&found.real);
                    }
                }
                _ => _ = self.answer.files.insert(found.real.clone()),
            }
        }
        Some(found.real.clone())
    }

    /// Looks for programs and libraries in a directory of the set: what they need is needed.
    pub(crate) fn inside(&mut self, top: &Path) {
        let mut waiting = vec![(top.to_owned(), 0)];
        while let Some((directory, depth)) = waiting.pop() {
            let name = directory.file_name().and_then(OsStr::to_str).unwrap_or_default();
            let commands = matches!(name, "bin" | "sbin" | "libexec") || name.ends_with("-core");
            let entries = self.host().entries(&directory, MOST_NAMES);
            let compiled = entries.iter().any(|(name, _)| COMPILED.iter().any(|one| one == name));
            for (name, kind) in entries {
                let path = below(&directory, &name);
                let name = name.as_bytes();
                let library = memchr::memmem::find(name, b".so").is_some();
                let program = !name.contains(&b'.');
                match kind {
                    Entry::Directory if depth < DEEPEST => {
                        let known = |list: &[&str]| list.iter().any(|one| one.as_bytes() == name);
                        if !known(&LEAVES) && (!compiled || known(&COMPILED)) {
                            waiting.push((path, depth + 1));
                        }
                    }
                    Entry::Directory => {}
                    Entry::Link if library || program => {
                        let target = self.host().resolve(&path).map(|found| found.real.clone());
                        if target.is_some_and(|real| self.in_root(&real) && !real.starts_with(top))
                        {
                            self.place(&path, "a link leads to it", Some(&directory));
                        }
                    }
                    Entry::File if (library || program) && self.objects < MOST_OBJECTS => {
                        self.objects += 1;
                        if self.finder.object(&path).is_some() {
                            self.reason(&path, "it is in the directory", Some(top));
                            self.close(&path, false);
                        } else if program && commands && self.host().kind(&path) == Kind::File(true)
                        {
                            self.scripts.push(path);
                        }
                    }
                    Entry::File | Entry::Link => {}
                }
            }
        }
    }

    /// Adds what an ELF program loads; with what it may open while it runs, if `whole`.
    pub(crate) fn close(&mut self, program: &Path, whole: bool) {
        if !self.closed.insert(program.into()) {
            return;
        }
        let Some(mut closure) = self.finder.closure(program) else { return };
        let mut at = 0;
        let mut paths = BTreeSet::new();
        // What is opened is looked at in its turn: the list grows.
        while at < closure.objects.len() {
            let loaded = closure.objects[at].clone();
            let parent = loaded.parent.map(|parent| closure.objects[parent].path.clone());
            let how = match loaded.cause {
                Cause::Program => "the program",
                Cause::Interpreter => "its interpreter",
                Cause::Preload => "preloaded",
                Cause::Needed => "needed",
                Cause::Variant => "a variant for some processors",
                Cause::Opened(how) => how,
            };
            let real = match loaded.cause {
                Cause::Program => Some(loaded.path.clone()),
                _ => self.place(&loaded.path, how, parent.as_deref()),
            };
            if let Some(real) = &real
                && let Some(name) = real.file_name().and_then(OsStr::to_str)
            {
                self.supplied(supplies::of_library(name), real);
            }
            if let Some(real) = real
                && (whole || matches!(loaded.cause, Cause::Program))
            {
                let hints = self.hints(&real, whole);
                self.opened(&mut closure, at, &hints, whole);
                if whole {
                    // Libraries name places for all kinds of programs: modules of their own are
                    // in a machine's directory.
                    let own = |path: &&PathBuf| {
                        at == 0 || path.ancestors().nth(1).is_some_and(is_machine)
                    };
                    let named = hints.paths.iter().filter(own);
                    paths.extend(named.map(|path| (path.clone(), real.clone())));
                }
            }
            at += 1;
        }
        // A module finds what its program has loaded already.
        for (name, by) in closure.missing.iter().filter(|_| whole) {
            let by = closure.objects[*by].path.clone();
            self.answer.missing.insert((String::from_utf8_lossy(name).into_owned(), by));
        }
        for (path, by) in paths {
            if self.host().kind(&path) != Kind::Absent && self.in_root(&path) {
                let real = self.place(&path, "its path is written in", Some(&by));
                if let Some(real) = real.filter(|real| self.finder.object(real).is_some()) {
                    self.close(&real, false);
                }
            }
        }
    }

    /// What an object may open by name.
    fn opened(&mut self, closure: &mut Closure, at: usize, hints: &Hints, whole: bool) {
        if !hints.databases.is_empty() {
            let host = self.host();
            let file = Path::new("/etc/nsswitch.conf");
            let text = self
                .nsswitch
                .get_or_insert_with(|| host.beginning(file, 64 << 10).unwrap_or_default());
            for module in nss::modules(text, &hints.databases) {
                self.finder.add(closure, &module, at, "nsswitch.conf names it, for");
            }
        }
        if hints.unwinds {
            self.finder.add(closure, b"libgcc_s.so.1", at, "the C library unwinds with it, for");
        }
        for name in hints.libraries.iter().filter(|_| whole) {
            self.finder.add(closure, name, at, "its name is written in");
        }
        if hints.converts {
            let directories = closure.objects.iter().filter_map(|loaded| loaded.path.parent());
            let places: BTreeSet<_> =
                directories.map(|directory| directory.join("gconv")).collect();
            let by = closure.objects[at].path.clone();
            for place in places {
                if self.host().kind(&place) == Kind::Directory {
                    self.place(&place, "character sets are converted with it, by", Some(&by));
                }
            }
        }
    }

    fn hints(&mut self, path: &Path, whole: bool) -> Rc<Hints> {
        let key = (path.as_os_str().to_owned(), whole);
        if let Some(known) = self.hints.get(&key) {
            return Rc::clone(known);
        }
        let object = self.finder.object(path);
        let file = object.as_ref().and_then(|_| self.host().open(path));
        let hints = object.zip(file).map(|(object, file)| {
            if !whole {
                return hints::functions(&file, &object, &mut self.room);
            }
            let mut hints = hints::of(&file, &object, &mut self.room);
            // One that says itself what it opens need not be guessed at.
            if !object.dlopen.is_empty() {
                hints.libraries.clear();
            }
            hints
        });
        let hints = Rc::new(hints.unwrap_or_default());
        self.hints.insert(key, Rc::clone(&hints));
        hints
    }

    /// Adds what belongs to a program by its name and by where it is.
    pub(crate) fn belongings(&mut self, name: &str, real: &Path) {
        if own_prefix(real).is_none() {
            let directories = self.answer.roots.iter().chain(&self.common);
            let own: Vec<PathBuf> = directories
                .map(|directory| below(directory, OsStr::new(name)))
                .filter(|own| self.host().kind(own) != Kind::Absent)
                .collect();
            for own in own {
                self.place(&own, "it has the name of", Some(real));
            }
        }
        if self.in_root(real)
            && let Some(home) = self.home_of(real)
        {
            self.place(&home, "the directory of", Some(real));
        }
        for supply in &supplies::SUPPLIES {
            if !supply.programs.iter().any(|pattern| fits(pattern, name)) {
                continue;
            }
            self.supplied(supply.places, real);
        }
    }

    /// The places that go with a program or a library.
    fn supplied(&mut self, places: &[&'static str], real: &Path) {
        for place in places {
            let prefix = own_prefix(real);
            // Many programs have a library that comes with the same places.
            if !self.supplied.insert((prefix.clone(), *place)) {
                continue;
            }
            let (directories, pattern) = match (prefix, place.strip_prefix("TRIPLE/")) {
                (Some(prefix), _) => (vec![prefix], *place),
                (None, Some(pattern)) => (self.common.clone(), pattern),
                (None, None) => (self.answer.roots.iter().cloned().collect(), *place),
            };
            for directory in directories {
                self.matching(&directory, pattern, real);
            }
        }
    }

    /// The machines' directories in a root.
    pub(crate) fn machines(&self, root: &Path) -> Vec<PathBuf> {
        let names =
            ["x86_64-linux-gnu", "aarch64-linux-gnu", "i386-linux-gnu", "riscv64-linux-gnu"];
        let paths = names.map(|name| root.join(name)).into_iter();
        paths.filter(|path| self.host().kind(path) == Kind::Directory).collect()
    }

    fn matching(&mut self, directory: &Path, pattern: &str, real: &Path) {
        let how = "kept for";
        let paths: Vec<PathBuf> = if pattern.contains('*') {
            if self.host().kind(directory) != Kind::Directory {
                return;
            }
            let entries = self.host().listing(directory, MOST_NAMES);
            let fitting = |name: &OsString| name.to_str().is_some_and(|name| fits(pattern, name));
            let names = entries.iter().map(|(name, _)| name).filter(|name| fitting(name));
            let mut paths: Vec<PathBuf> = names.map(|name| below(directory, name)).collect();
            paths.sort_unstable();
            paths
        } else {
            vec![directory.join(pattern)]
        };
        for path in paths {
            if self.host().kind(&path) == Kind::Absent {
                continue;
            }
            // An installation of its own is shown by a grant or not: here only what its modules
            // need of the system counts.
            if let Some(found) = self.place(&path, how, Some(real))
                && !self.in_root(&found)
                && self.host().kind(&found) == Kind::Directory
                && self.closed.insert(found.clone().into_os_string())
            {
                self.inside(&found);
            }
        }
    }

    /// The directory that an application in a root has for itself: a package of node's, or the
    /// one around its `bin`.
    fn home_of(&self, real: &Path) -> Option<PathBuf> {
        let modules = real.ancestors().find(|above| {
            above.parent().and_then(Path::file_name) == Some(OsStr::new("node_modules"))
        });
        if let Some(package) = modules {
            let scope = package.file_name().is_some_and(|name| name.as_bytes().starts_with(b"@"));
            let below = || real.ancestors().find(|path| path.parent() == Some(package));
            return if scope { below().map(Path::to_owned) } else { Some(package.to_owned()) };
        }
        let parent = real.parent()?;
        let programs = ["bin", "sbin", "libexec", "jre"];
        let programs = parent.file_name()?.to_str().is_some_and(|name| programs.contains(&name));
        let home = if programs { parent.parent()? } else { parent };
        (!self.is_common(home)).then(|| home.to_owned())
    }
}

/// The directory of libraries of an installation of its own: `~/x/lib` for `~/x/bin/program`;
/// unset for the system's.
fn own_prefix(real: &Path) -> Option<PathBuf> {
    let system = ["/usr", "/bin", "/sbin", "/lib"];
    if system.iter().any(|above| real.starts_with(above)) {
        return None;
    }
    Some(real.parent()?.parent()?.join("lib"))
}

/// Whether a path is below a directory, both without detours. By bytes: components took longer than all else here.
pub(crate) fn lies_in(path: &Path, directory: &Path) -> bool {
    let rest = path.as_os_str().as_bytes().strip_prefix(directory.as_os_str().as_bytes());
    rest.is_some_and(|rest| rest.len() > 1 && rest[0] == b'/')
}

/// A machine's directory in a root, by its name.
fn is_machine(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_bytes().ends_with(b"-linux-gnu"))
}
