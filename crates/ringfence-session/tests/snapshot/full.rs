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
        open(self.top.path())
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

    fn used(&self) -> u64 {
        let found = rustix::fs::statvfs(self.top.path().join("disk")).unwrap();
        (found.f_blocks - found.f_bfree) * found.f_frsize
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

pub fn open(top: &Path) -> Store {
    let options = Options { directory: Some(top.join("disk/store")), ..Options::default() };
    Store::open(&top.join("work"), options).unwrap()
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

/// It takes its own size and little more, and leaves enough to give it back with.
#[test]
fn a_snapshot_has_room_where_it_fits_once() {
    let Some(disk) = Disk::of(32) else { return };
    let free = disk.free();
    disk.file("large", 20);
    let mut store = disk.open();
    store.create(&named("large")).unwrap();
    assert!(free - disk.free() < 26 << 20, "{} of {free} bytes are left", disk.free());
    disk.file("small", 1);
    let small = store.create(&named("small")).unwrap().snapshot;
    // Whatever is next has room, or takes none; and what there is can be used.
    let used = disk.used();
    disk.file("other", 15);
    for _ in 0..3 {
        let error = store.create(&named("other")).unwrap_err();
        assert!(matches!(error, SessionError::Full(_)), "{error}");
        assert!(disk.used() <= used, "{} bytes, and before {used}", disk.used());
    }
    remove(&disk, "other");
    remove(&disk, "small");
    assert_eq!(store.revert(&small, &Select::default()).unwrap().changes.len(), 1);
    for kept in store.list().unwrap() {
        store.delete(&kept).unwrap();
    }
    remove(&disk, "large");
    store.compact(&[], None).unwrap();
    disk.file("last", 20);
    store.create(&named("last")).unwrap();
}

/// A store of many snapshots has no more in its log than it says, and the disk is not filled by taking that in.
#[test]
fn small_snapshots_leave_the_room_that_their_log_needs() {
    let Some(disk) = Disk::of(12) else { return };
    let mut store = disk.open();
    let last = (0..40).find(|number| {
        disk.file(&format!("{number}"), 1);
        let file = disk.top.path().join("work").join(format!("{number}"));
        std::fs::File::options().write(true).open(&file).unwrap().set_len(900 << 10).unwrap();
        store.create(&New::default()).is_err()
    });
    let last = last.unwrap();
    assert!(last >= 8, "{last} of 0.9 MB");
    remove(&disk, &last.to_string());
    let first = store.list().unwrap()[0].clone();
    store.delete(&first).unwrap();
    store.compact(&[], None).unwrap();
    store.create(&named("again")).unwrap();
}

/// What a killed one has put in batches is named by nothing: the next one gives it back.
#[test]
fn what_a_killed_one_has_put_goes_with_the_next() {
    let Some(disk) = Disk::of(32) else { return };
    disk.file("large", 12);
    for _ in 0..2 {
        // The first step is opening it.
        assert!(crate::killed::killed(disk.top.path(), "create", 1));
        assert!(disk.open().list().unwrap().is_empty());
        assert!(disk.used() > 1 << 20, "nothing was put: {}", disk.used());
    }
    remove(&disk, "large");
    disk.file("small", 1);
    let mut store = disk.open();
    store.create(&named("small")).unwrap();
    // The same bytes are new again.
    disk.file("large", 12);
    let large = store.create(&named("large")).unwrap().snapshot;
    assert!(large.added >= 12 << 20, "{}", large.added);
    assert!(disk.used() < 19 << 20, "{}", disk.used());
    // And one that comes to its end asks for no sweep: what a deleted one had put stays for the next sixteen.
    disk.file("other", 6);
    let other = store.create(&named("other")).unwrap().snapshot;
    remove(&disk, "other");
    store.delete(&other).unwrap();
    let used = disk.used();
    store.create(&named("third")).unwrap();
    disk.file("other", 6);
    assert_eq!(store.create(&named("fourth")).unwrap().snapshot.added >> 20, 0);
    assert!(disk.used() < used + (1 << 20));
}

/// Nor does it keep room from the next one that has too little.
#[test]
fn what_a_killed_one_has_put_goes_where_no_room_is_left() {
    let Some(disk) = Disk::of(32) else { return };
    disk.file("large", 22);
    // Opening it is a step, and each batch is one.
    assert!(crate::killed::killed(disk.top.path(), "create", 5));
    let put = disk.used();
    assert!(put > 10 << 20, "{put}");
    disk.fill();
    let filled = disk.filler().metadata().unwrap().len();
    let file = std::fs::File::options().write(true).open(disk.filler()).unwrap();
    file.set_len(filled - (1 << 20)).unwrap();
    drop(file);
    remove(&disk, "large");
    disk.file("other", 3);
    let mut store = disk.open();
    let error = store.create(&named("other")).unwrap_err();
    assert!(matches!(error, SessionError::Full(_)), "{error}");
    store.create(&named("other")).unwrap();
    drop(store);
    std::fs::remove_file(disk.filler()).unwrap();
    assert!(disk.used() < 8 << 20, "{}", disk.used());
}

/// The log is no second store beside the first.
#[test]
fn a_large_snapshot_takes_what_it_says() {
    let top = tempfile::tempdir().unwrap();
    let (work, directory) = (top.path().join("work"), top.path().join("store"));
    std::fs::create_dir(&work).unwrap();
    let mut bytes = vec![0; 40 << 20];
    blake3::Hasher::new().finalize_xof().fill(&mut bytes);
    std::fs::write(work.join("large"), bytes).unwrap();
    let options = Options { directory: Some(directory.clone()), ..Options::default() };
    let added =
        Store::open(&work, options).unwrap().create(&named("large")).unwrap().snapshot.added;
    let length = |name: &str| std::fs::metadata(directory.join(name)).unwrap().len();
    let taken = length("store.db") + length("store.db-wal");
    assert!(taken < added + (17 << 20), "{taken} bytes for {added}");
}

/// Where nothing at all is left, it is no advice to give some back in the way that just failed.
#[test]
fn giving_space_back_says_what_it_lacks() {
    let Some(disk) = Disk::of(16) else { return };
    disk.file("large", 4);
    disk.open().create(&named("large")).unwrap();
    // Whose log is empty then: else it has a little.
    disk.open().compact(&[], None).unwrap();
    remove(&disk, "large");
    disk.fill();
    let mut store = disk.open();
    let large = store.find("large").unwrap();
    let error = store.delete(&large).unwrap_err().to_string();
    assert!(error.contains("remove something else first"), "{error}");
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
