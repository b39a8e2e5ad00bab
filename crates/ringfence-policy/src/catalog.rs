//! Where profiles and features are found, and the order in which they count.

mod configuration;

use crate::builtin::Builtin;
use crate::error::PolicyError;
use crate::files::FileView;
use crate::key::Key;
use crate::path::{Bases, PathError, anchor, normal};
use crate::profile::{Profile, configured};
use crate::suggest::nearest;
use configuration::{listed, whole};
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A profile file has at most this many bytes.
const MOST_BYTES: u64 = 1 << 20;

/// Profiles extend each other at most this deeply.
const DEEPEST: usize = 10;

/// Profiles or features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole policy.
    Profile,
    /// A fragment that a profile pulls in.
    Feature,
}

impl Kind {
    /// `profile` or `feature`.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Profile => "profile",
            Kind::Feature => "feature",
        }
    }

    /// What one does to another of its kind.
    pub(crate) fn needs(self) -> &'static str {
        match self {
            Kind::Profile => "extends",
            Kind::Feature => "requires",
        }
    }

    fn folder(self) -> &'static str {
        match self {
            Kind::Profile => "profiles",
            Kind::Feature => "features",
        }
    }

    fn builtins(self) -> &'static [Builtin] {
        match self {
            Kind::Profile => Builtin::profiles(),
            Kind::Feature => Builtin::features(),
        }
    }
}

/// Where a profile was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In this file.
    File(PathBuf),
    /// In the program.
    BuiltIn,
}

/// A line of `profile list`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Where it was found; a file of the same name hides a built-in one.
    pub place: Place,
    /// Its `description`, empty without one or when the file is wrong.
    pub description: String,
}

/// Finds profiles and features by name.
pub struct Catalog<'a> {
    files: &'a dyn FileView,
    home: &'a Path,
    workdir: &'a Path,
    env: &'a dyn Fn(&str) -> Option<OsString>,
    uid: u32,
    user: PathBuf,
    /// Directories that hold `profiles/` and `features/`, the user's before the system's, as
    /// far as they exist.
    roots: Vec<PathBuf>,
}

/// A profile on its way into a chain.
struct Found {
    profile: Profile,
    place: Place,
    /// At which root it was found, so that it can extend one of its own name further on.
    level: usize,
}

impl<'a> Catalog<'a> {
    /// A catalogue of the user's directory (`$XDG_CONFIG_HOME/ringfence` or
    /// `~/.config/ringfence`), the system's (`/etc/ringfence`), and what is built in.
    /// Names that are files are relative to `workdir`; `env` is the caller's environment, `uid` the caller.
    pub fn new(
        files: &'a dyn FileView,
        home: &'a Path,
        workdir: &'a Path,
        env: &'a dyn Fn(&str) -> Option<OsString>,
        uid: u32,
    ) -> Catalog<'a> {
        let xdg = env("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let user = xdg.unwrap_or_else(|| home.join(".config")).join("ringfence");
        let roots = vec![user.clone(), PathBuf::from("/etc/ringfence")];
        // Asking once for each directory saves asking for each name in it.
        let there = |root: &PathBuf| files.link(root).is_ok();
        let roots = roots.into_iter().filter(there).collect();
        Catalog { files, home, workdir, env, uid, user, roots }
    }

    /// The directory for the user's own, whether it exists or not.
    pub fn user_directory(&self, kind: Kind) -> PathBuf {
        self.user.join(kind.folder())
    }

    /// The profiles of these names, all they extend and their features, in the order in which
    /// they count: what is extended first, then features, then the profile. None counts twice.
    /// The name of a feature stands for it on top of `default`, where no profile has the name.
    /// Those of `inline` (what messages call them, and their text) come after, then `features`.
    ///
    /// # Errors
    /// An unknown name, a file that cannot be read, a circle, features that exclude each other.
    pub fn chain(
        &self,
        names: &[String],
        inline: &[(String, String)],
        features: &[String],
    ) -> Result<Vec<Profile>, PolicyError> {
        let mut chain =
            Chain { catalog: self, done: Vec::new(), stack: Vec::new(), out: Vec::new() };
        for name in names {
            match self.look_up(Kind::Profile, name, 0, None, self.workdir) {
                Ok(None) | Err(PolicyError::Unknown { .. }) if self.has(Kind::Feature, name) => {
                    chain.named(Kind::Profile, "default")?;
                    chain.named(Kind::Feature, name)?;
                }
                Ok(Some(found)) => chain.add(Kind::Profile, name, found)?,
                Ok(None) => return Err(self.unknown(Kind::Profile, name, None)),
                Err(error) => return Err(error),
            }
        }
        for (origin, text) in inline {
            let profile = Profile::from_toml(text, origin)?;
            let place = Place::File(PathBuf::from(origin));
            // The name holds a slash, as that of a file does.
            let name = format!("./{origin}");
            chain.add(Kind::Profile, &name, Found { profile, place, level: 0 })?;
        }
        for name in features {
            chain.named(Kind::Feature, name)?;
        }
        chain.conflicts()?;
        Ok(chain.out)
    }

    /// Whether there is a profile or feature of this name.
    pub fn has(&self, kind: Kind, name: &str) -> bool {
        let file = || self.candidates(kind, name, 0, self.workdir).into_iter();
        let builtin = kind.builtins().iter().any(|builtin| builtin.name == name);
        builtin || file().any(|path| self.files.link(&path).is_ok())
    }

    /// The profile that a command gets without being told: the user's own of the command's name,
    /// when its `programs` names the command, else the one of those built in that names it.
    pub fn preset(&self, program: &str) -> Option<String> {
        let own = !is_file(program) && !program.starts_with('.') && !self.roots.is_empty();
        let own = own.then(|| self.look_up(Kind::Profile, program, 0, None, self.workdir));
        if let Some(Ok(Some(found))) = own {
            let programs = found.profile.list(Key::Programs).unwrap_or_default();
            if programs.iter().any(|name| name == program) {
                return Some(program.to_owned());
            }
        }
        Builtin::for_program(program).map(|preset| preset.name.to_owned())
    }

    /// Whether all that a feature's `when` asks for is there.
    fn holds(&self, profile: &Profile) -> bool {
        let conditions = profile.list(Key::When).unwrap_or_default();
        conditions
            .iter()
            .all(|one| one.split('|').any(|alternative| self.there(alternative.trim())))
    }

    /// A command in the caller's `PATH`, a path, or `$VAR` for a variable that is set; `!` before
    /// it for the opposite.
    fn there(&self, what: &str) -> bool {
        if let Some(absent) = what.strip_prefix('!') {
            return !self.there(absent);
        }
        let variable = what.strip_prefix('$').filter(|name| !name.contains(['/', '{']));
        if let Some(name) = variable {
            return (self.env)(name).is_some_and(|value| !value.is_empty());
        }
        if what.contains(['/', '~', '$']) {
            let bases = Bases { home: self.home, workdir: self.workdir, env: self.env };
            return match anchor(OsStr::new(what), &bases) {
                Ok(anchored) => self.exists(&anchored.path),
                Err(PathError::Unset(_) | PathError::Wrong(_)) => false,
            };
        }
        let search = (self.env)("PATH").unwrap_or_default();
        let absolute = |path: &PathBuf| path.is_absolute();
        std::env::split_paths(&search).filter(absolute).any(|path| self.exists(&path.join(what)))
    }

    fn exists(&self, path: &Path) -> bool {
        crate::files::Resolver::once(self.files).exists(path)
    }

    /// The text of a profile or feature, and where it stands.
    ///
    /// # Errors
    /// An unknown name, or a file that cannot be read.
    pub fn text(&self, kind: Kind, name: &str) -> Result<(Place, String), PolicyError> {
        if let Some((base, _)) = configured(name).filter(|_| kind == Kind::Profile) {
            // One that is not there is no name.
            let found = self.find(kind, name, 0, None, self.workdir)?;
            return match &found.place {
                Place::File(path) => {
                    let text = self.read(path, true)?.unwrap_or_default();
                    Ok((found.place, text))
                }
                Place::BuiltIn => self.text(kind, base),
            };
        }
        for path in self.candidates(kind, name, 0, self.workdir) {
            if let Some(text) = self.read(&path, is_file(name))? {
                return Ok((Place::File(path), text));
            }
        }
        let builtin = kind.builtins().iter().find(|builtin| builtin.name == name);
        let builtin = builtin.ok_or_else(|| self.unknown(kind, name, None))?;
        Ok((Place::BuiltIn, builtin.toml.to_owned()))
    }

    /// A profile by itself, without what it builds on; of a configuration, what that changes.
    ///
    /// # Errors
    /// An unknown name, or a file that is none.
    pub fn profile(&self, name: &str) -> Result<Profile, PolicyError> {
        let found = self.find(Kind::Profile, name, 0, None, self.workdir)?;
        let builtin = Builtin::profile(name).filter(|_| found.place == Place::BuiltIn);
        Ok(builtin.map_or(found.profile, whole))
    }

    /// All profiles or features, by name; configurations behind the profile that has them.
    pub fn list(&self, kind: Kind) -> Vec<Listed> {
        let mut list: Vec<Listed> = Vec::new();
        for root in &self.roots {
            let folder = root.join(kind.folder());
            for file in self.files.names(&folder, 10_000).unwrap_or_default() {
                let Some(name) = file.to_str().and_then(|file| file.strip_suffix(".toml")) else {
                    continue;
                };
                if list.iter().all(|listed| listed.name != name) {
                    let path = folder.join(&file);
                    let profile = self.files.text(&path, MOST_BYTES).ok();
                    let profile = profile.and_then(|text| Profile::from_toml(&text, name).ok());
                    list.extend(listed(name, &Place::File(path), &profile.unwrap_or_default()));
                }
            }
        }
        for builtin in kind.builtins() {
            if list.iter().all(|listed| listed.name != builtin.name) {
                list.extend(listed(builtin.name, &Place::BuiltIn, &whole(builtin)));
            }
        }
        list.sort_by(|a, b| a.name.cmp(&b.name));
        list
    }

    fn find(
        &self,
        kind: Kind,
        name: &str,
        from: usize,
        by: Option<&str>,
        base: &Path,
    ) -> Result<Found, PolicyError> {
        let found = self.look_up(kind, name, from, by, base)?;
        found.ok_or_else(|| self.unknown(kind, name, by))
    }

    /// The same where it is no mistake that there is none: what it might have been called instead takes a look at all.
    fn look_up(
        &self,
        kind: Kind,
        name: &str,
        from: usize,
        by: Option<&str>,
        base: &Path,
    ) -> Result<Option<Found>, PolicyError> {
        if let Some((profile, one)) = configured(name).filter(|_| kind == Kind::Profile) {
            return self.configuration(profile, one, from, by, base).map(Some);
        }
        for (index, path) in self.candidates(kind, name, from, base).into_iter().enumerate() {
            if let Some(text) = self.read(&path, is_file(name))? {
                let origin = if is_file(name) {
                    format!("file {}", path.display())
                } else {
                    format!("{} {name}", kind.word())
                };
                // What is wrong in a file is named by the file, so that it can be opened.
                let profile = Profile::from_toml(&text, &path.display().to_string())?;
                let profile = Profile { origin: origin.into(), ..profile };
                return Ok(Some(Found { profile, place: Place::File(path), level: from + index }));
            }
        }
        let builtin = kind.builtins().iter().find(|builtin| builtin.name == name);
        Ok(builtin.map(|builtin| {
            let profile = builtin.load(format!("{} {name}", kind.word()).into());
            Found { profile, place: Place::BuiltIn, level: usize::MAX - 1 }
        }))
    }

    /// The files that a name may mean.
    fn candidates(&self, kind: Kind, name: &str, from: usize, base: &Path) -> Vec<PathBuf> {
        if is_file(name) {
            return vec![normal(&base.join(name))];
        }
        if name.is_empty() || name.starts_with('.') {
            return Vec::new();
        }
        let roots = self.roots.iter().skip(from);
        roots.map(|root| root.join(kind.folder()).join(format!("{name}.toml"))).collect()
    }

    fn read(&self, path: &Path, required: bool) -> Result<Option<String>, PolicyError> {
        match self.files.text(path, MOST_BYTES) {
            Ok(text) => self.own(path, required).map(|()| Some(text)),
            Err(error) if !required && absent(error.kind()) => Ok(None),
            Err(error) => {
                let reason = error.to_string();
                Err(PolicyError::Unreadable { path: path.to_owned(), reason })
            }
        }
    }

    /// What was found by its name counts only as the caller's own word, or root's: root with another user's HOME
    /// (`sudo` that keeps it) would run that one's hooks. `named` is a path that the caller wrote.
    fn own(&self, path: &Path, named: bool) -> Result<(), PolicyError> {
        let foreign = |at: &&Path| {
            let owner = self.files.owner_and_mode(at).map(|(owner, _)| owner);
            owner.is_some_and(|owner| owner != 0 && owner != self.uid)
        };
        // The file, `profiles`, `ringfence`, of the user's directory: the system's is the administrator's, whatever
        // number that one has in a user namespace.
        let own = path.starts_with(&self.user) && !named;
        match path.ancestors().take(3).find(foreign).filter(|_| own) {
            Some(at) => {
                let reason = format!(
                    "{} belongs to another user, whose profiles are not yours; give HOME and XDG_CONFIG_HOME \
                     your own values (sudo -H), or chown it",
                    at.display()
                );
                Err(PolicyError::Unreadable { path: path.to_owned(), reason })
            }
            None => Ok(()),
        }
    }

    fn unknown(&self, kind: Kind, name: &str, by: Option<&str>) -> PolicyError {
        let mut known: Vec<String> =
            self.list(kind).into_iter().map(|listed| listed.name).collect();
        if kind == Kind::Profile && by.is_none() {
            // Whoever names a profile may name a feature as well.
            known.extend(self.list(Kind::Feature).into_iter().map(|listed| listed.name));
        }
        PolicyError::Unknown {
            kind: kind.word(),
            name: name.to_owned(),
            by: by.map(str::to_owned),
            nearest: nearest(name, &known).map(str::to_owned),
        }
    }
}

/// Collects profiles in the order in which they count.
struct Chain<'c, 'a> {
    catalog: &'c Catalog<'a>,
    /// What is in the list already, or was left out as such.
    done: Vec<(Kind, Place, String)>,
    /// What is being added, outermost first.
    stack: Vec<(Kind, Place, String)>,
    out: Vec<Profile>,
}

impl Chain<'_, '_> {
    fn named(&mut self, kind: Kind, name: &str) -> Result<(), PolicyError> {
        let found = self.catalog.find(kind, name, 0, None, self.catalog.workdir)?;
        self.add(kind, name, found)
    }

    /// Features that exclude each other.
    fn conflicts(&self) -> Result<(), PolicyError> {
        let there = |name: &str| {
            self.done.iter().any(|(kind, _, known)| *kind == Kind::Feature && known == name)
        };
        for profile in &self.out {
            let against = profile.list(Key::Conflicts).unwrap_or_default();
            if let Some(other) = against.iter().find(|other| there(other)) {
                let (one, other) = (profile.origin.to_string(), other.to_string());
                return Err(PolicyError::Conflict { one, other });
            }
        }
        Ok(())
    }

    fn add(&mut self, kind: Kind, name: &str, found: Found) -> Result<(), PolicyError> {
        let identity = (kind, found.place.clone(), name.to_owned());
        if self.done.contains(&identity) {
            return Ok(());
        }
        if let Some(start) = self.stack.iter().position(|above| *above == identity) {
            let mut chain: Vec<_> =
                self.stack[start..].iter().map(|(_, _, name)| name.clone()).collect();
            chain.push(name.to_owned());
            return Err(PolicyError::Cycle { kind, chain });
        }
        if self.stack.len() == DEEPEST {
            let name = self.stack[0].2.clone();
            return Err(PolicyError::TooDeep { name, limit: DEEPEST });
        }
        self.stack.push(identity.clone());
        let by = found.profile.origin.clone();
        let folder = match &found.place {
            Place::File(path) => path.parent().map(Path::to_path_buf),
            Place::BuiltIn => None,
        };
        let base = folder.as_deref().unwrap_or(self.catalog.workdir);
        if kind == Kind::Feature && !self.catalog.holds(&found.profile) {
            self.stack.pop();
            return Ok(());
        }
        let parts = [
            (Kind::Profile, Key::Extends),
            (Kind::Feature, Key::Requires),
            (Kind::Feature, Key::Features),
        ];
        for (part, key) in parts {
            for name_of_part in found.profile.list(key).unwrap_or_default() {
                // Whoever trusts or names a file has seen that file, and no other.
                if is_file(name)
                    && is_file(name_of_part)
                    && let Place::File(path) = &found.place
                    && path != Path::new(&**name_of_part)
                {
                    let (path, name) = (path.clone(), name_of_part.to_string());
                    return Err(PolicyError::Unfixed { path, name });
                }
                // A file of the user's can build on the shipped profile of the same name.
                let same = part == kind && **name_of_part == *name && !is_file(name);
                let from = if same { found.level + 1 } else { 0 };
                let inner = self.catalog.find(part, name_of_part, from, Some(&by), base)?;
                self.add(part, name_of_part, inner)?;
            }
        }
        self.stack.pop();
        self.done.push(identity);
        let file = match found.place {
            Place::File(path) => Some(path),
            Place::BuiltIn => None,
        };
        self.out.push(Profile { file, ..found.profile });
        Ok(())
    }
}

/// Whether a name means a file.
pub fn is_file(name: &str) -> bool {
    name.contains('/') || name.ends_with(".toml")
}

fn absent(kind: ErrorKind) -> bool {
    // A home that may not be looked into holds no profiles for this user.
    matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied)
}
