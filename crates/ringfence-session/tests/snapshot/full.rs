//! Stores on a disk that is full, which is where the kernel lets us have a small one.

use ringfence_session::SessionError;
use ringfence_session::snapshot::{New, Options, Select, Store};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

struct Disk {
    top: TempDir,
}

impl Disk {
    fn of(megabytes: u32) -> Option<Disk> {
        let top = tempfile::tempdir().unwrap();
        for name in ["disk", "work"] {
            std::fs::create_dir(top.path().join(name)).unwrap();
        }
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={megabytes}m"), "ringfence-tests"])
            .arg(top.path().join("disk"))
            .output();
        mounted.is_ok_and(|mounted| mounted.status.success()).then_some(Disk { top })
    }

    fn open(&self) -> Store {
        let directory = Some(self.top.path().join("disk/store"));
        let options = Options { directory, ..Options::default() };
        Store::open(&self.top.path().join("work"), options).unwrap()
    }

    /// A file of the workspace that no compression makes smaller.
    fn file(&self, name: &str, megabytes: usize) {
        let mut bytes = vec![0; megabytes << 20];
        blake3::Hasher::new().update(name.as_bytes()).finalize_xof().fill(&mut bytes);
        std::fs::write(self.top.path().join("work").join(name), bytes).unwrap();
    }

    fn free(&self) -> u64 {
        let found = rustix::fs::statvfs(self.top.path().join("disk")).unwrap();
        found.f_bavail * found.f_frsize
    }

    fn filler(&self) -> PathBuf {
        self.top.path().join("disk/filler")
    }

    fn fill(&self) {
        let mut file = std::fs::File::create(self.filler()).unwrap();
        for size in [4096, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.top.path().join("disk")).status();
    }
}

fn named(name: &str) -> New {
    New { name: Some(name.to_owned()), ..New::default() }
}

fn remove(disk: &Disk, name: &str) {
    std::fs::remove_file(Path::new(disk.top.path()).join("work").join(name)).unwrap();
}

/// Who tries to keep too much has the disk full for a moment, not for good.
#[test]
fn a_snapshot_without_room_takes_none() {
    let Some(disk) = Disk::of(16) else { return };
    let free = disk.free();
    disk.file("large", 40);
    let error = disk.open().create(&named("first")).unwrap_err();
    assert!(matches!(error, SessionError::Full(_)), "{error}");
    assert!(free - disk.free() < 1 << 20, "{} of {free} bytes are left", disk.free());
    // Beside one that was kept, whose bytes may still be in the log.
    remove(&disk, "large");
    disk.file("small", 3);
    disk.open().create(&named("small")).unwrap();
    let free = disk.free();
    disk.file("large", 40);
    let error = disk.open().create(&named("second")).unwrap_err();
    assert!(matches!(error, SessionError::Full(_)), "{error}");
    assert!(free < disk.free() + (1 << 20), "{} of {free} bytes are left", disk.free());
    // What was kept is whole, and the store goes on.
    let mut store = disk.open();
    let small = store.find("small").unwrap();
    let entry = store.entry(&small, Path::new("small")).unwrap().unwrap();
    assert_eq!(store.read(&entry, u64::MAX).unwrap().unwrap().len(), 3 << 20);
    remove(&disk, "large");
    disk.file("more", 1);
    store.create(&named("third")).unwrap();
    assert_eq!(store.list().unwrap().len(), 2);
}

/// Where nothing at all is left, it is no advice to give some back in the way that just failed.
#[test]
fn giving_space_back_says_what_it_lacks() {
    let Some(disk) = Disk::of(16) else { return };
    disk.file("large", 4);
    disk.open().create(&named("large")).unwrap();
    remove(&disk, "large");
    disk.fill();
    let mut store = disk.open();
    let large = store.find("large").unwrap();
    for error in [store.delete(&large).unwrap_err(), store.compact(&[], None).unwrap_err()] {
        let error = error.to_string();
        assert!(error.contains("remove something else first"), "{error}");
    }
    drop(store);
    // The control: with a little room all of it comes back.
    let filled = disk.filler().metadata().unwrap().len();
    let file = std::fs::File::options().write(true).open(disk.filler()).unwrap();
    file.set_len(filled - (512 << 10)).unwrap();
    let mut store = disk.open();
    store.delete(&large).unwrap();
    store.compact(&[], None).unwrap();
    assert!(disk.free() > 4 << 20, "{}", disk.free());
}

/// A directory is opened up to have its attributes set, and closed again where there is no room for them.
#[test]
fn a_directory_whose_attributes_have_no_room_keeps_its_mode() {
    let top = tempfile::tempdir().unwrap();
    let disk = top.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=8m,nr_inodes=64", "ringfence-tests"])
        .arg(&disk)
        .output();
    if !mounted.is_ok_and(|mounted| mounted.status.success()) {
        return;
    }
    struct Mounted<'a>(&'a Path);
    impl Drop for Mounted<'_> {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg(self.0).status();
        }
    }
    let _mounted = Mounted(&disk);
    let (tree, name) = (disk.join("tree"), "user.ringfence");
    let directory = tree.join("d");
    std::fs::create_dir_all(&directory).unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(&directory, name, &[7; 3000], flags).is_err() {
        return;
    }
    let mode = |mode| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let has = || {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(&directory).unwrap().mode() & 0o7777
    };
    mode(0o555);
    let options = Options { directory: Some(top.path().join("store")), ..Options::default() };
    let mut store = Store::open(&tree, options).unwrap();
    let base = store.create(&New::default()).unwrap().snapshot;
    mode(0o755);
    rustix::fs::removexattr(&directory, name).unwrap();
    mode(0o555);
    // Inodes and attributes have the same room there.
    let filler = |number: u32| disk.join(format!("filler{number}"));
    let filled = (0..).take_while(|number| std::fs::write(filler(*number), "").is_ok()).count();
    assert!(store.revert(&base, &Select::default()).is_err(), "there is room for it");
    assert_eq!(has(), 0o555);
    // The control.
    (0..filled as u32).for_each(|number| std::fs::remove_file(filler(number)).unwrap());
    store.revert(&base, &Select::default()).unwrap();
    assert_eq!(has(), 0o555);
    let mut value = vec![0; 4000];
    assert_eq!(rustix::fs::getxattr(&directory, name, &mut value[..]).unwrap(), 3000);
}
