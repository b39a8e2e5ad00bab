//! Links and pipes: their owners, and access lists of pipes.

use crate::lists::{ACCESS, get, list, set};
use crate::store::{Place, named};
use ringfence_session::snapshot::Select;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::Path;

fn pipe(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

/// Only root can give things away.
#[test]
fn links_and_pipes_get_their_owners_back() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let place = Place::new();
    let work = place.work();
    place.write("file", "x");
    symlink("file", work.join("link")).unwrap();
    symlink("nowhere", work.join("to-nothing")).unwrap();
    pipe(&work.join("pipe"));
    let names = ["file", "link", "to-nothing", "pipe"];
    for name in names {
        lchown(work.join(name), Some(1014), Some(1015)).unwrap();
    }
    lchown(work.join("file"), Some(1016), Some(1016)).unwrap();
    let mut store = place.open();
    let base = named(&mut store, "base");
    for name in names {
        std::fs::remove_file(work.join(name)).unwrap();
    }
    let done = store.revert(&base, &Select::default()).unwrap();
    assert_eq!((done.kept, done.unread), (Vec::new(), false));
    for name in &names[1..] {
        let found = std::fs::symlink_metadata(work.join(name)).unwrap();
        assert_eq!((found.uid(), found.gid()), (1014, 1015), "{name}");
    }
    // And not what a link leads to.
    assert_eq!(std::fs::metadata(work.join("file")).unwrap().uid(), 1016);
    assert_eq!(store.changes(&base, None, &Select::default()).unwrap(), []);
}

#[test]
fn pipes_get_their_lists_back_and_none_that_was_not_theirs() {
    let place = Place::new();
    let work = place.work();
    for name in ["listed", "plain"] {
        pipe(&work.join(name));
        std::fs::set_permissions(work.join(name), PermissionsExt::from_mode(0o644)).unwrap();
    }
    let access = list(1014, 6, 6);
    if !set(&work.join("listed"), ACCESS, &access) {
        return;
    }
    let wanted = ["listed", "plain"].map(|name| get(&work.join(name), ACCESS));
    assert_eq!(wanted, [(Some(access), 0o664), (None, 0o644)]);
    let mut store = place.open();
    let base = named(&mut store, "base");
    // Another list is a change.
    set(&work.join("listed"), ACCESS, &list(1014, 4, 6));
    assert_eq!(store.changes(&base, None, &Select::default()).unwrap().len(), 1);
    for name in ["listed", "plain"] {
        std::fs::remove_file(work.join(name)).unwrap();
    }
    // What is made here gets one by itself.
    set(&work, "system.posix_acl_default", &list(1014, 7, 7));
    let select = Select { only: vec!["listed".into(), "plain".into()], ..Select::default() };
    let done = store.revert(&base, &select).unwrap();
    assert_eq!(done.kept, [""; 0]);
    assert_eq!(["listed", "plain"].map(|name| get(&work.join(name), ACCESS)), wanted);
    assert_eq!(store.changes(&base, None, &select).unwrap(), []);
}
