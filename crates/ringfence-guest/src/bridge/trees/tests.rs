//! Trees that are written down and made again.

use super::*;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};

const MOST: u64 = 1 << 20;

fn place(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("ringfence-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir(&path).expect("a directory");
    path
}

fn memory() -> File {
    File::from(ringfence_sys::fd::in_memory(b"").expect("a file"))
}

#[test]
fn a_tree_is_made_as_it_was() {
    let (from, to) = (place("trees-from"), place("trees-to"));
    fs::create_dir_all(from.join("a/b")).expect("directories");
    fs::write(from.join("a/b/file"), "content").expect("written");
    fs::set_permissions(from.join("a/b/file"), fs::Permissions::from_mode(0o640)).expect("set");
    fs::hard_link(from.join("a/b/file"), from.join("second")).expect("linked");
    symlink("/nowhere", from.join("a/link")).expect("linked");
    let fifo = Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(CWD, from.join("fifo"), FileType::Fifo, fifo, 0).expect("made");
    // What is there already stays, and what leads elsewhere is not followed.
    fs::write(from.join("there"), "new").expect("written");
    fs::write(to.join("there"), "other").expect("written");
    let list = memory();
    save(std::slice::from_ref(&from), Path::new(""), list.try_clone().expect("a copy"), MOST)
        .expect("saved");
    make(std::slice::from_ref(&to), list.try_clone().expect("a copy"), MOST).expect("made");
    assert_eq!(fs::read_to_string(to.join("a/b/file")).expect("read"), "content");
    assert_eq!(fs::read_to_string(to.join("there")).expect("read"), "other");
    let [was, is] = [&from, &to].map(|at| at.join("a/b/file").metadata().expect("its state"));
    assert_eq!(
        (is.mode(), is.mtime(), is.mtime_nsec()),
        (was.mode(), was.mtime(), was.mtime_nsec())
    );
    assert_eq!(fs::read_link(to.join("a/link")).expect("a link"), Path::new("/nowhere"));
    let kind = FileType::from_raw_mode(to.join("fifo").metadata().expect("there").mode());
    assert_eq!(kind, FileType::Fifo);
    // Both names of one file.
    let again = place("trees-again");
    make(std::slice::from_ref(&again), list.try_clone().expect("a copy"), MOST).expect("made");
    let inode = |name: &str| again.join(name).metadata().expect("its inode").ino();
    assert_eq!(inode("a/b/file"), inode("second"));
    for made in [from, to, again] {
        fs::remove_dir_all(made).expect("removed");
    }
}

#[test]
fn no_list_leads_out_of_its_directory() {
    let (from, to) = (place("trees-out"), place("trees-in"));
    fs::write(from.join("file"), "content").expect("written");
    let list = memory();
    save(std::slice::from_ref(&from), Path::new(""), list.try_clone().expect("a copy"), MOST)
        .expect("saved");
    let bytes = ringfence_sys::fd::content(list.as_fd(), 1 << 20).expect("read");
    let at = bytes.windows(4).position(|bytes| bytes == b"file").expect("its name");
    for name in [b"../x", b"a/bc"] {
        let mut bad = bytes.clone();
        bad[at..at + 4].copy_from_slice(name);
        let bad = File::from(ringfence_sys::fd::in_memory(&bad).expect("a file"));
        assert!(make(std::slice::from_ref(&to), bad, MOST).is_err(), "{name:?}");
    }
    for end in 0..bytes.len() {
        let short = File::from(ringfence_sys::fd::in_memory(&bytes[..end]).expect("a file"));
        assert!(make(std::slice::from_ref(&to), short, MOST).is_err(), "{end}");
    }
    // A link on the way is not followed.
    let inner = place("trees-inner");
    fs::create_dir(from.join("sub")).expect("a directory");
    fs::write(from.join("sub/deep"), "deep").expect("written");
    let list = memory();
    save(std::slice::from_ref(&from), Path::new(""), list.try_clone().expect("a copy"), MOST)
        .expect("saved");
    symlink(&inner, to.join("sub")).expect("linked");
    make(std::slice::from_ref(&to), list, MOST).expect("made");
    assert!(!inner.join("deep").exists());
    for made in [from, to, inner] {
        fs::remove_dir_all(made).expect("removed");
    }
}

#[test]
fn holes_stay_holes_however_long_they_are() {
    const LONG: u64 = 1 << 40;
    let (from, to) = (place("trees-holes"), place("trees-holes-made"));
    // As a guest makes it in a moment, with nothing behind it.
    let sparse = File::create(from.join("sparse")).expect("a file");
    sparse.set_len(LONG).expect("long");
    sparse.write_all_at(b"middle", LONG / 2).expect("written");
    File::create(from.join("empty")).expect("a file").set_len(LONG).expect("long");
    let list = memory();
    save(std::slice::from_ref(&from), Path::new(""), list.try_clone().expect("a copy"), MOST)
        .expect("saved");
    assert!(list.metadata().expect("its length").len() < 64 << 10);
    make(std::slice::from_ref(&to), list, MOST).expect("made");
    for name in ["sparse", "empty"] {
        let is = to.join(name).metadata().expect("its state");
        assert!(is.len() == LONG && is.blocks() < 64, "{name}: {is:?}");
    }
    let mut middle = [0; 8];
    let made = File::open(to.join("sparse")).expect("opened");
    made.read_exact_at(&mut middle, LONG / 2 - 1).expect("read");
    assert_eq!(&middle, b"\0middle\0");
    for made in [from, to] {
        fs::remove_dir_all(made).expect("removed");
    }
}

#[test]
fn no_more_is_written_down_than_a_fork_may_have() {
    let (from, to) = (place("trees-most"), place("trees-most-made"));
    fs::write(from.join("much"), vec![1; MOST as usize]).expect("written");
    let list = memory();
    let save = |list: &File, most| {
        save(std::slice::from_ref(&from), Path::new(""), list.try_clone().expect("a copy"), most)
    };
    let why = save(&list, MOST).expect_err("too much");
    assert!(why.contains("more than 1 MiB"), "{why}");
    assert!(list.metadata().expect("its length").len() <= MOST);
    // Names are in memory as well.
    fs::remove_file(from.join("much")).expect("removed");
    let list = memory();
    (0..100).for_each(|n| drop(File::create(from.join(n.to_string())).expect("a file")));
    save(&list, 4096).expect_err("too many");
    assert!(list.metadata().expect("its length").len() <= 4096);
    // A list that is longer than one can be is none, whoever wrote it.
    let list = memory();
    save(&list, MOST).expect("saved");
    make(std::slice::from_ref(&to), list.try_clone().expect("a copy"), 4096).expect_err("long");
    assert_eq!(fs::read_dir(&to).expect("read").count(), 0);
    make(std::slice::from_ref(&to), list, MOST).expect("made");
    assert_eq!(fs::read_dir(&to).expect("read").count(), 100);
    for made in [from, to] {
        fs::remove_dir_all(made).expect("removed");
    }
}

#[test]
fn parts_of_a_list_lie_in_their_file_one_after_the_other() {
    let (from, to) = (place("trees-parts"), place("trees-parts-made"));
    fs::write(from.join("file"), "content").expect("written");
    let list = memory();
    save(std::slice::from_ref(&from), Path::new(""), list.try_clone().expect("a copy"), MOST)
        .expect("saved");
    let bytes = ringfence_sys::fd::content(list.as_fd(), 1 << 20).expect("read");
    let at = bytes.windows(7).position(|bytes| bytes == b"content").expect("its content");
    for (start, length) in [(8_u64, 7_u64), (u64::MAX, 7), (0, 8), (1, 7)] {
        let mut bad = bytes.clone();
        bad[at - 16..at - 8].copy_from_slice(&start.to_le_bytes());
        bad[at - 8..at].copy_from_slice(&length.to_le_bytes());
        let bad = File::from(ringfence_sys::fd::in_memory(&bad).expect("a file"));
        assert!(make(std::slice::from_ref(&to), bad, MOST).is_err(), "{start} {length}");
        let _ = fs::remove_file(to.join("file"));
    }
    for made in [from, to] {
        fs::remove_dir_all(made).expect("removed");
    }
}

#[test]
fn directories_may_be_as_deep_as_a_guest_can_make_them() {
    let (from, to) = (place("trees-deep"), place("trees-deep-made"));
    let deep = |at: &Path, make: bool| {
        let mut directory = open(CWD, at.as_os_str().as_bytes(), OFlags::PATH).expect("opened");
        for _ in 0..DEEPEST {
            if make {
                rustix::fs::mkdirat(&directory, "d", Mode::RWXU).expect("made");
            }
            directory = open(&directory, b"d", OFlags::PATH).expect("opened");
        }
    };
    deep(&from, true);
    let list = memory();
    let copy = list.try_clone().expect("a copy");
    // As the bridge does it.
    let from_there = from.clone();
    let saved = std::thread::spawn(move || save(&[from_there], Path::new(""), copy, MOST)).join();
    saved.expect("a thread").expect("saved");
    make(std::slice::from_ref(&to), list, MOST).expect("made");
    deep(&to, false);
    for made in [from, to] {
        fs::remove_dir_all(made).expect("removed");
    }
}
