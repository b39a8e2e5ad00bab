//! A real tree, a layer on it, and something outside that must not change.

use ringfence_session::overlay::{
    self, Done, End, Found, Guard, Names, Overlay, Record, Select, Tree,
};
use rustix::fs::{CWD, FileType, Mode, XattrFlags};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

pub struct World {
    pub top: PathBuf,
    _kept: Option<tempfile::TempDir>,
}

/// What a path is: kind, mode, content or target, modification time of files.
pub type State = BTreeMap<PathBuf, String>;

pub fn state(top: &Path) -> State {
    let mut all = State::new();
    let mut pending = vec![top.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let found = path.symlink_metadata().unwrap();
            let mode = found.mode() & 0o7777;
            let said = if found.is_dir() {
                pending.push(path.clone());
                format!("directory {mode:o}")
            } else if found.is_symlink() {
                format!("link {}", path.read_link().unwrap().display())
            } else {
                let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
                format!("file {mode:o} {} {text}", found.mtime())
            };
            all.insert(path.strip_prefix(top).unwrap().to_owned(), said);
        }
    }
    all
}

impl World {
    /// A tree with something of each kind in it.
    pub fn new() -> World {
        let kept = tempfile::tempdir().unwrap();
        let world = World { top: kept.path().to_owned(), _kept: Some(kept) };
        for directory in ["real/kept", "real/gone/deep", "real/anew", "outside", "session"] {
            fs::create_dir_all(world.top.join(directory)).unwrap();
        }
        fs::set_permissions(world.top.join("session"), fs::Permissions::from_mode(0o700)).unwrap();
        for file in ["kept/a", "kept/b", "gone/deep/file", "anew/old", "anew/both", "replaced"] {
            world.write(&format!("real/{file}"), &format!("old {file}"));
        }
        world.write("outside/secret", "secret");
        world
    }

    pub fn at(top: &Path) -> World {
        World { top: top.to_owned(), _kept: None }
    }

    pub fn real(&self, name: &str) -> PathBuf {
        self.top.join("real").join(name)
    }

    pub fn session(&self) -> PathBuf {
        self.top.join("session")
    }

    /// A path in the layer.
    pub fn layer(&self, name: &str) -> PathBuf {
        overlay::directory(&self.session()).join("0/upper").join(name)
    }

    pub fn write(&self, name: &str, text: &str) {
        let path = self.top.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// The run begins; it ends when what is returned is dropped.
    pub fn begin(&self) -> overlay::InUse {
        let tree = Tree::of(&self.top.join("real"), true).unwrap();
        let mut record = Record::new("0123abcd", End::Keep, vec![tree]);
        let name = |name: &str, how: &str| (name.to_owned(), how.to_owned());
        record.names.push(Names {
            tree: self.top.join("real"),
            top: vec![
                name(".mcp.json", "plain"),
                name(".git/hooks", "git-hooks"),
                name(".git/config", "git-config"),
            ],
            nested: vec![name(".envrc", "plain"), name(".git/config", "git-config")],
        });
        record.guards.push(Guard {
            path: self.real("kept/b"),
            guarded: "plain".to_owned(),
            present: true,
            rule: "--protect kept/b".to_owned(),
        });
        overlay::begin(&self.session(), &record).unwrap()
    }

    /// A file of the layer, with its directories.
    pub fn put(&self, name: &str, text: &str) {
        let path = self.layer(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A file that was there before, as the kernel marks it.
    pub fn change(&self, name: &str, text: &str) {
        self.put(name, text);
        rustix::fs::setxattr(self.layer(name), "user.overlay.origin", b"", XattrFlags::empty())
            .unwrap();
    }

    pub fn delete(&self, name: &str) {
        let path = self.layer(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        rustix::fs::mknodat(CWD, path, FileType::CharacterDevice, Mode::empty(), 0).unwrap();
    }

    /// A directory made anew.
    pub fn anew(&self, name: &str) {
        let path = self.layer(name);
        fs::create_dir_all(&path).unwrap();
        rustix::fs::setxattr(path, "user.overlay.opaque", b"y", XattrFlags::empty()).unwrap();
    }

    pub fn link(&self, name: &str, target: &Path) {
        let path = self.layer(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    pub fn open(&self) -> Overlay {
        Overlay::open(&self.session()).unwrap()
    }

    pub fn commit(&self) -> Done {
        self.open().commit(&Select::default()).unwrap()
    }

    pub fn outside_is_unchanged(&self) {
        let outside = state(&self.top.join("outside"));
        assert_eq!(outside.len(), 1, "{outside:?}");
        assert_eq!(fs::read(self.top.join("outside/secret")).unwrap(), b"secret");
    }
}

/// The paths of changes, relative to the tree.
pub fn names(all: &[Found]) -> Vec<String> {
    let text = |found: &Found| String::from_utf8_lossy(found.change.path.as_slice()).into_owned();
    all.iter().map(text).collect()
}

/// Nothing of a commit is left in the tree.
pub fn no_traces(top: &Path) {
    for path in state(top).keys() {
        let name = path.file_name().unwrap().as_bytes();
        assert!(!name.starts_with(b".ringfence"), "{}", path.display());
    }
}
