//! The libraries that an ELF program needs, found as its loader finds them.
//!
//! The rules are glibc's (`ld.so(8)`, `elf/dl-load.c`): breadth first; a name that is loaded
//! already is not looked for again; `DT_RPATH` of the object and of all that led to it, unless
//! the object has a `DT_RUNPATH`; the library path of the environment; `DT_RUNPATH` of the
//! object alone; `/etc/ld.so.cache`; the directories of the system. A file for another machine
//! is passed over. For musl its own rules (`ldso/dynlink.c`).

use crate::bytes::Started;
use crate::cache::Cache;
use crate::elf::{self, Machine, Object};
use crate::host::{Host, Kind, below};
use crate::search::{self, Loader};
use crate::table::{Known, Table};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// The most objects that one program is followed to.
const MOST_OBJECTS: usize = 4096;
/// The most that is read of the cache.
const MOST_CACHE: usize = 32 << 20;

/// What of the environment counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// `LD_LIBRARY_PATH`, as it will be inside.
    pub library_path: Vec<u8>,
    /// `LD_PRELOAD`, as it will be inside.
    pub preload: Vec<u8>,
}

/// Why an object is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It is the program.
    Program,
    /// It is the interpreter (`PT_INTERP`).
    Interpreter,
    /// It is preloaded.
    Preload,
    /// An object needs it.
    Needed,
    /// A variant of a library for some processors.
    Variant,
    /// It may be opened while the program runs; how that is known.
    Opened(&'static str),
}

/// A loaded object.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// As the loader names it.
    pub path: PathBuf,
    /// What it says.
    pub object: Rc<Object>,
    /// The one that led to it, in the same list.
    pub parent: Option<usize>,
    /// Why.
    pub cause: Cause,
}

/// What a program loads.
#[derive(Clone, Debug, Default)]
pub struct Closure {
    /// The objects, the program first.
    pub objects: Vec<Loaded>,
    /// Names that lead nowhere, and the object that has them.
    pub missing: Vec<(Vec<u8>, usize)>,
    /// Names under which objects are known already.
    names: Known<Vec<u8>>,
    done: usize,
    loader: Option<Loader>,
    /// Musl's directories of the system.
    musl: Vec<PathBuf>,
}

/// A file that the loader would take, and what it says.
type Fitting = (PathBuf, Rc<Object>);

/// The file for a name, and its variants for some processors.
type Found = (Option<Fitting>, Vec<Fitting>);

/// Finds closures; remembers what it read.
pub struct Finder<'h, 'a> {
    host: &'h Host<'a>,
    surroundings: Surroundings,
    cache_file: PathBuf,
    cache: Option<Cache>,
    /// What `/etc/ld.so.preload` says.
    preloads: Option<Vec<u8>>,
    objects: Table<OsString, Option<Rc<Object>>>,
    hwcaps: Table<OsString, Vec<PathBuf>>,
    /// What names lead to where no object says otherwise.
    usual: Table<(Vec<u8>, Machine), Found>,
    /// Room for the beginning of an object.
    room: Box<[u8; 4096]>,
}

impl<'h, 'a> Finder<'h, 'a> {
    /// With this environment, on this host.
    pub fn new(host: &'h Host<'a>, surroundings: Surroundings) -> Finder<'h, 'a> {
        Finder {
            host,
            surroundings,
            cache_file: PathBuf::from("/etc/ld.so.cache"),
            cache: None,
            preloads: None,
            objects: Table::default(),
            hwcaps: Table::default(),
            usual: Table::default(),
            room: Box::new([0; 4096]),
        }
    }

    /// The host it looks at.
    pub fn host(&self) -> &'h Host<'a> {
        self.host
    }

    /// The loader's cache.
    pub fn cache(&mut self) -> &Cache {
        let (host, file) = (self.host, &self.cache_file);
        self.cache
            .get_or_insert_with(|| Cache::new(host.beginning(file, MOST_CACHE).unwrap_or_default()))
    }

    /// Reads an object; each file once.
    pub fn object(&mut self, path: &Path) -> Option<Rc<Object>> {
        if let Some(known) = self.objects.get(path.as_os_str()) {
            return known.clone();
        }
        // By its name without links, of which each object has one.
        let found = self.host.resolve(path)?;
        let object = match self.host.kind(&found.real) {
            _ if found.real.as_os_str() != path.as_os_str() => self.object(&found.real),
            Kind::File(_) => {
                let file = self.host.open(path);
                file.and_then(|file| elf::parse(&Started::of(&file, &mut self.room))).map(Rc::new)
            }
            Kind::Absent | Kind::Directory | Kind::Link(_) | Kind::Other => None,
        };
        self.objects.insert(path.into(), object.clone());
        object
    }

    /// What a program loads; unset when it is no ELF program.
    pub fn closure(&mut self, program: &Path) -> Option<Closure> {
        let object = self.object(program)?;
        let mut closure = Closure::default();
        let interpreter = object.interpreter.clone();
        let machine = object.machine;
        closure.push(program.to_owned(), object, None, Cause::Program);
        if let Some(name) = interpreter {
            let path = PathBuf::from(OsStr::from_bytes(&name));
            let loader = Loader::of(&path);
            closure.loader = Some(loader);
            if loader == Loader::Musl {
                closure.musl = self.musl_directories(&path, machine);
            }
            match self.object(&path).filter(|_| path.is_absolute()) {
                Some(object) => {
                    closure.names.insert(name);
                    closure.push(path, object, Some(0), Cause::Interpreter);
                }
                None => closure.missing.push((name, 0)),
            }
            self.preload(&mut closure);
        }
        self.follow(&mut closure);
        Some(closure)
    }

    fn preload(&mut self, closure: &mut Closure) {
        let file = self.preloads.get_or_insert_with(|| {
            self.host.beginning(Path::new("/etc/ld.so.preload"), 64 << 10).unwrap_or_default()
        });
        let separator = |byte: &u8| byte.is_ascii_whitespace() || *byte == b':';
        let texts = [self.surroundings.preload.clone(), file.clone()];
        let names = texts.iter().flat_map(|text| text.split(separator));
        for name in names.filter(|name| !name.is_empty()).take(256) {
            self.open(closure, name, 0, Cause::Preload);
        }
    }

    /// Adds an object that is opened while the program runs, and what it needs. Whether it was
    /// found, or known already.
    pub fn add(
        &mut self,
        closure: &mut Closure,
        name: &[u8],
        by: usize,
        how: &'static str,
    ) -> bool {
        let before = closure.missing.len();
        self.open(closure, name, by, Cause::Opened(how));
        let found = closure.missing.len() == before;
        closure.missing.truncate(before);
        self.follow(closure);
        found
    }

    /// Goes on until nothing new is needed.
    fn follow(&mut self, closure: &mut Closure) {
        while closure.done < closure.objects.len() && closure.objects.len() < MOST_OBJECTS {
            let at = closure.done;
            closure.done += 1;
            let object = Rc::clone(&closure.objects[at].object);
            for name in &object.needed {
                self.open(closure, name, at, Cause::Needed);
            }
            for name in &object.dlopen {
                self.open(closure, name, at, Cause::Opened("its note on what it opens"));
            }
        }
    }

    fn open(&mut self, closure: &mut Closure, name: &[u8], by: usize, cause: Cause) {
        if closure.names.contains(name) || closure.loader == Some(Loader::Musl) && is_musl(name) {
            return;
        }
        let machine = closure.objects[0].object.machine;
        let (found, variants) = self.find(closure, name, by, machine);
        if found.is_none() && variants.is_empty() {
            if !matches!(cause, Cause::Opened(_)) || closure.objects[by].object.dlopen.is_empty() {
                closure.missing.push((name.to_vec(), by));
            }
            return;
        }
        closure.names.insert(name.to_vec());
        if let Some((path, object)) = found {
            closure.push(path, object, Some(by), cause);
        }
        for (path, object) in variants {
            closure.push(path, object, Some(by), Cause::Variant);
        }
    }

    /// The file for a name, and its variants.
    fn find(&mut self, closure: &Closure, name: &[u8], by: usize, machine: Machine) -> Found {
        if name.contains(&b'/') {
            let paths = search::expand(name, &self.origin(closure, by), machine);
            let mut paths = paths.iter().map(|path| PathBuf::from(OsStr::from_bytes(path)));
            let found = paths.find_map(|path| self.fitting(&path, machine));
            return (found, Vec::new());
        }
        let file = Path::new(OsStr::from_bytes(name));
        let mut variants = Vec::new();
        for directories in self.before_cache(closure, by, machine) {
            let mut found = None;
            for directory in directories {
                let one = self.look_in(&directory, file, machine, &mut variants);
                match found {
                    None => found = one,
                    Some(_) => variants.extend(one),
                }
            }
            if found.is_some() || !variants.is_empty() {
                return (found, variants);
            }
        }
        let musl = closure.loader == Some(Loader::Musl);
        if musl || closure.objects[by].object.no_default {
            return self.find_last(closure, name, by, machine);
        }
        // For most, this depends on the name alone, and many need the same.
        let key = (name.to_vec(), machine);
        if let Some(known) = self.usual.get(&key) {
            return known.clone();
        }
        let found = self.find_last(closure, name, by, machine);
        self.usual.insert(key, found.clone());
        found
    }

    /// The cache, and the directories of the system.
    fn find_last(&mut self, closure: &Closure, name: &[u8], by: usize, machine: Machine) -> Found {
        let file = Path::new(OsStr::from_bytes(name));
        let mut variants = Vec::new();
        let loader = closure.loader.unwrap_or(Loader::Glibc);
        let defaults = if loader == Loader::Musl {
            closure.musl.clone()
        } else {
            search::system_directories(machine, loader)
        };
        let no_default = closure.objects[by].object.no_default;
        if loader == Loader::Glibc {
            let (cached, others) = self.cache().find(name, machine);
            let allowed = |path: &PathBuf| {
                !no_default || !defaults.iter().any(|directory| path.starts_with(directory))
            };
            let found = cached.filter(allowed).and_then(|path| self.fitting(&path, machine));
            let others = others.into_iter().filter(allowed).collect::<Vec<_>>();
            variants.extend(others.iter().filter_map(|path| self.fitting(path, machine)));
            if found.is_some() || !variants.is_empty() {
                return (found, variants);
            }
        }
        for directory in defaults.into_iter().filter(|_| !no_default) {
            let found = self.look_in(&directory, file, machine, &mut variants);
            if found.is_some() || !variants.is_empty() {
                return (found, variants);
            }
        }
        (None, variants)
    }

    /// The directories that come before the cache, each with its alternatives.
    fn before_cache(&self, closure: &Closure, by: usize, machine: Machine) -> Vec<Vec<PathBuf>> {
        let mut found = Vec::new();
        let library_path = self.surroundings.library_path.as_slice();
        // `;` separates as well (ld.so(8)).
        let library_path: Vec<u8> =
            library_path.iter().map(|byte| if *byte == b';' { b':' } else { *byte }).collect();
        let from_environment = || match library_path.is_empty() {
            true => Vec::new(),
            false => search::directories(&library_path, &self.origin(closure, 0), machine),
        };
        let chain = std::iter::successors(Some(by), |at| closure.objects[*at].parent);
        if closure.loader == Some(Loader::Musl) {
            found.extend(from_environment());
            for at in chain.take(MOST_OBJECTS) {
                let object = &closure.objects[at].object;
                if let Some(path) = object.runpath.as_ref().or(object.rpath.as_ref()) {
                    found.extend(search::directories(path, &self.origin(closure, at), machine));
                }
            }
            return found;
        }
        if closure.objects[by].object.runpath.is_none() {
            let mut seen_program = false;
            for at in chain.take(MOST_OBJECTS) {
                seen_program |= at == 0;
                if let Some(path) = &closure.objects[at].object.rpath {
                    found.extend(search::directories(path, &self.origin(closure, at), machine));
                }
            }
            if let Some(path) = closure.objects[0].object.rpath.as_ref().filter(|_| !seen_program) {
                found.extend(search::directories(path, &self.origin(closure, 0), machine));
            }
        }
        found.extend(from_environment());
        if let Some(path) = &closure.objects[by].object.runpath {
            found.extend(search::directories(path, &self.origin(closure, by), machine));
        }
        found
    }

    /// What `$ORIGIN` is for an object: for the program without links, as `/proc/self/exe` says.
    fn origin(&self, closure: &Closure, at: usize) -> PathBuf {
        let path = &closure.objects[at].path;
        let resolved = (at == 0).then(|| self.host.resolve(path)).flatten();
        let path = resolved.as_ref().map_or(path, |resolved| &resolved.real);
        path.parent().unwrap_or(Path::new("/")).to_owned()
    }

    /// A file that the loader would take: an object for the same machine.
    fn fitting(&mut self, path: &Path, machine: Machine) -> Option<Fitting> {
        let object = self.object(path)?;
        (object.machine == machine).then(|| (path.to_owned(), object))
    }

    fn look_in(
        &mut self,
        directory: &Path,
        file: &Path,
        machine: Machine,
        variants: &mut Vec<Fitting>,
    ) -> Option<Fitting> {
        for above in self.hwcaps(directory) {
            variants.extend(self.fitting(&below(&above, file.as_os_str()), machine));
        }
        self.fitting(&below(directory, file.as_os_str()), machine)
    }

    /// The `glibc-hwcaps` subdirectories of a directory, which are rare.
    fn hwcaps(&mut self, directory: &Path) -> Vec<PathBuf> {
        if let Some(known) = self.hwcaps.get(directory.as_os_str()) {
            return known.clone();
        }
        let place = directory.join("glibc-hwcaps");
        let found: Vec<PathBuf> = match self.host.kind(&place) {
            Kind::Absent => Vec::new(),
            _ => self.host.names(&place, 64).iter().map(|name| place.join(name)).collect(),
        };
        self.hwcaps.insert(directory.into(), found.clone());
        found
    }

    fn musl_directories(&self, interpreter: &Path, machine: Machine) -> Vec<PathBuf> {
        let list = search::musl_list(interpreter);
        match list.and_then(|list| self.host.beginning(&list, 64 << 10)) {
            Some(text) => text
                .split(|byte| matches!(byte, b':' | b'\n'))
                .map(|path| PathBuf::from(OsStr::from_bytes(path)))
                .filter(|path| path.is_absolute())
                .take(256)
                .collect(),
            None => search::system_directories(machine, Loader::Musl),
        }
    }
}

/// Names that musl's loader provides itself.
fn is_musl(name: &[u8]) -> bool {
    const OWN: [&[u8]; 7] =
        [b"libc.", b"libpthread.", b"librt.", b"libm.", b"libdl.", b"libutil.", b"libxnet."];
    OWN.iter().any(|own| name.starts_with(own))
}

impl Closure {
    fn push(&mut self, path: PathBuf, object: Rc<Object>, parent: Option<usize>, cause: Cause) {
        // A variant goes by the name of the library that it stands for.
        if cause != Cause::Variant {
            self.names.extend(object.soname.clone());
        }
        self.objects.push(Loaded { path, object, parent, cause });
    }
}
