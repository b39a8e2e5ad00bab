//! A workspace with a store beside it.

use ringfence_session::snapshot::{New, Options, Snapshot, Store};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

pub struct Place {
    pub top: TempDir,
}

impl Place {
    pub fn new() -> Place {
        let top = tempfile::tempdir().unwrap();
        std::fs::create_dir(top.path().join("work")).unwrap();
        Place { top }
    }

    pub fn work(&self) -> PathBuf {
        self.top.path().join("work")
    }

    pub fn open(&self) -> Store {
        open(self.top.path(), None)
    }

    pub fn limited(&self, bytes: u64) -> Store {
        open(self.top.path(), Some(bytes))
    }

    pub fn write(&self, path: &str, bytes: impl AsRef<[u8]>) {
        let path = self.work().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    pub fn read(&self, path: &str) -> Vec<u8> {
        std::fs::read(self.work().join(path)).unwrap()
    }

    /// Waits until stamps of now can be trusted, by the clock that makes them.
    pub fn clock_moves_on(&self) {
        let clock = self.work().join("clock");
        let now = || {
            std::fs::write(&clock, "").unwrap();
            std::fs::metadata(&clock).unwrap().modified().unwrap()
        };
        let began = now();
        while now() < began + std::time::Duration::from_millis(40) {}
        std::fs::remove_file(&clock).unwrap();
    }
}

pub fn open(top: &Path, limit: Option<u64>) -> Store {
    let directory = Some(top.join("store"));
    Store::open(&top.join("work"), Options { directory, limit, ..Options::default() }).unwrap()
}

pub fn create(store: &mut Store) -> Snapshot {
    store.create(&New::default()).unwrap().snapshot
}

pub fn named(store: &mut Store, name: &str) -> Snapshot {
    store.create(&New { name: Some(name.into()), ..New::default() }).unwrap().snapshot
}
