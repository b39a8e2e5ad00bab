//! What a commit carries over, and what it leaves.

use crate::world::{World, names, no_traces, state};
use ringfence_session::overlay::{self, Select, Trouble};
use rustix::fs::{CWD, FileType, Mode};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

#[test]
fn everything_that_was_done_inside_is_done_outside() {
    let world = World::new();
    let run = world.begin();
    world.change("kept/a", "new a");
    fs::set_permissions(world.layer("kept/a"), fs::Permissions::from_mode(0o640)).unwrap();
    world.delete("gone");
    world.anew("anew");
    world.put("anew/both", "new both");
    world.put("anew/fresh", "fresh");
    world.anew("replaced");
    world.put("replaced/by/directory", "x");
    world.put("made/deep/file", "made");
    fs::hard_link(world.layer("made/deep/file"), world.layer("made/other")).unwrap();
    world.link("link", "kept".as_ref());
    let odd = std::ffi::OsStr::new("odd \n\u{1b}name");
    fs::write(world.layer("").join(odd), "odd").unwrap();
    fs::set_permissions(world.layer("made/deep"), fs::Permissions::from_mode(0o555)).unwrap();
    drop(run);
    let done = world.commit();
    assert!(done.empty && done.left.is_empty() && done.kept.is_empty(), "{done:?}");
    let now = state(&world.real(""));
    let all: Vec<String> = now.keys().map(|path| path.to_string_lossy().into_owned()).collect();
    let wanted = [
        "anew",
        "anew/both",
        "anew/fresh",
        "kept",
        "kept/a",
        "kept/b",
        "link",
        "made",
        "made/deep",
        "made/deep/file",
        "made/other",
        "odd \n\u{1b}name",
        "replaced",
        "replaced/by",
        "replaced/by/directory",
    ];
    assert_eq!(all, wanted);
    assert_eq!(fs::read_to_string(world.real("kept/a")).unwrap(), "new a");
    assert_eq!(fs::metadata(world.real("kept/a")).unwrap().mode() & 0o777, 0o640);
    assert_eq!(fs::metadata(world.real("made/deep")).unwrap().mode() & 0o777, 0o555);
    let inode = |name: &str| fs::metadata(world.real(name)).unwrap().ino();
    assert_eq!(inode("made/deep/file"), inode("made/other"), "hard links stay hard links");
    assert!(!overlay::kept(&world.session()), "nothing waits any more");
    assert!(!overlay::directory(&world.session()).exists());
    fs::set_permissions(world.real("made/deep"), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn times_modes_and_attributes_come_along_and_lent_rights_do_not() {
    let world = World::new();
    let run = world.begin();
    world.put("new", "x");
    let (path, time) = (world.layer("new"), std::time::SystemTime::UNIX_EPOCH);
    let then = time + std::time::Duration::from_secs(1_000_000_000);
    rustix::fs::setxattr(&path, "user.colour", b"red", rustix::fs::XattrFlags::empty()).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_modified(then).unwrap();
    drop(run);
    assert!(world.commit().empty);
    let found = fs::metadata(world.real("new")).unwrap();
    assert_eq!(found.mode() & 0o7777, 0o755, "no set-user-ID");
    assert_eq!(found.modified().unwrap(), then);
    let mut value = [0; 8];
    let length = rustix::fs::getxattr(world.real("new"), "user.colour", &mut value).unwrap();
    assert_eq!(&value[..length], b"red");
}

#[test]
fn what_is_protected_and_what_is_no_file_stays() {
    let world = World::new();
    let run = world.begin();
    world.put(".mcp.json", "{}");
    world.put("sub/.envrc", "evil");
    world.put("sub/fine", "fine");
    world.change("kept/b", "evil");
    world.put(".git/hooks/pre-commit", "evil");
    world.put(".git/hooks/pre-commit.sample", "fine");
    world.put("clone/.git/config", "[core]\n\tbare = false\n");
    world.put("other/.git/config", "[core]\n\tfsmonitor = evil\n");
    world.put("linked/.git", "gitdir: /tmp/evil\n");
    rustix::fs::mknodat(CWD, world.layer("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    drop(run);
    let before = state(&world.real("kept"));
    let done = world.commit();
    let left = [
        ".git/hooks/pre-commit",
        ".mcp.json",
        "kept/b",
        "linked/.git",
        "other/.git/config",
        "pipe",
        "sub/.envrc",
    ];
    assert_eq!(names(&done.left), left);
    let left_ones = done.left.iter().map(|found| found.change.trouble.clone());
    assert!(left_ones.into_iter().all(|trouble| matches!(trouble, Some(Trouble::Left(_)))));
    for name in left.iter().filter(|name| **name != "kept/b") {
        assert!(world.real(name).symlink_metadata().is_err(), "{name} was committed");
    }
    assert_eq!(state(&world.real("kept")), before);
    for name in ["sub/fine", ".git/hooks/pre-commit.sample", "clone/.git/config"] {
        assert!(world.real(name).exists(), "{name} was not committed");
    }
    // They wait, and nothing else does.
    assert_eq!(names(&world.open().changes().unwrap()), left);
    world.open().discard(false).unwrap();
    assert!(!overlay::kept(&world.session()));
}

#[test]
fn links_in_the_layer_and_in_the_tree_lead_nowhere() {
    let world = World::new();
    // The host's own link, and a directory of that name inside.
    std::os::unix::fs::symlink(world.top.join("outside"), world.real("hosts")).unwrap();
    let run = world.begin();
    world.anew("hosts");
    world.put("hosts/secret", "evil");
    world.link("gone", &world.top.join("outside"));
    world.link("kept/a", &world.top.join("outside/secret"));
    world.link("way", &world.top.join("outside"));
    drop(run);
    // Seen by a commit as a link, by the time it is carried out a directory leads elsewhere.
    let done = world.commit();
    assert!(done.empty, "{done:?}");
    world.outside_is_unchanged();
    assert!(world.real("hosts").is_dir() && !world.real("hosts").is_symlink());
    assert_eq!(fs::read_to_string(world.real("hosts/secret")).unwrap(), "evil");
    assert_eq!(world.real("kept/a").read_link().unwrap(), world.top.join("outside/secret"));
    assert!(world.real("gone").is_symlink());
}

#[test]
fn parts_are_committed_by_path() {
    let world = World::new();
    let run = world.begin();
    world.change("kept/a", "new a");
    world.put("made/one", "one");
    world.put("made/two", "two");
    world.anew("anew");
    world.put("anew/fresh", "fresh");
    drop(run);
    let select = |name: &str| Select { paths: vec![world.real(name)], force: false };
    let error = world.open().commit(&select("kept/b")).unwrap_err().to_string();
    assert!(error.contains("was not changed"), "{error}");
    let error = world.open().commit(&select("anew/fresh")).unwrap_err().to_string();
    assert!(error.contains("made anew inside"), "{error}");
    let done = world.open().commit(&select("made/one")).unwrap();
    assert_eq!(names(&done.committed), ["made", "made/one"]);
    assert!(!done.empty && !world.real("made/two").exists() && world.real("made/one").exists());
    let waiting = names(&world.open().changes().unwrap());
    assert_eq!(waiting, ["anew/both", "anew/fresh", "anew/old", "kept/a", "made/two"]);
    // What was committed is the host's own business from now on.
    fs::write(world.real("made/one"), "host's").unwrap();
    assert!(world.commit().empty);
    assert_eq!(fs::read_to_string(world.real("made/one")).unwrap(), "host's");
    assert_eq!(fs::read_to_string(world.real("kept/a")).unwrap(), "new a");
    assert!(!world.real("anew/old").exists());
}

#[test]
fn a_copy_without_a_change_is_none() {
    let world = World::new();
    let run = world.begin();
    fs::create_dir_all(world.layer("kept")).unwrap();
    let status = std::process::Command::new("cp")
        .arg("-p")
        .args([world.real("kept/a"), world.layer("kept/a")])
        .status();
    assert!(status.unwrap().success());
    let same = fs::metadata(world.real("kept")).unwrap().permissions();
    fs::set_permissions(world.layer("kept"), same).unwrap();
    drop(run);
    assert_eq!(world.open().changes().unwrap(), []);
}

#[test]
fn whatever_the_layer_holds_can_be_dropped() {
    let world = World::new();
    let run = world.begin();
    // Deeper than any path is long, and closed to its owner.
    let mut at = rustix::fs::open(world.layer(""), rustix::fs::OFlags::DIRECTORY, Mode::empty());
    for _ in 0..3000 {
        let parent = at.unwrap();
        rustix::fs::mkdirat(&parent, "d", Mode::RWXU).unwrap();
        at = rustix::fs::openat(&parent, "d", rustix::fs::OFlags::DIRECTORY, Mode::empty());
    }
    world.put("closed/file", "x");
    fs::set_permissions(world.layer("closed"), fs::Permissions::from_mode(0o000)).unwrap();
    let error = world.open().discard(false).unwrap_err().to_string();
    assert!(error.contains("still running"), "{error}");
    drop((run, at));
    let found = world.open().changes().unwrap();
    assert!(found.iter().any(|found| found.change.trouble.is_some()), "{found:?}");
    world.open().discard(false).unwrap();
    assert!(!overlay::directory(&world.session()).exists());
    no_traces(&world.real(""));
}

#[test]
fn access_lists_come_along_and_go() {
    use crate::lists::{ACCESS, get, list, set};
    let world = World::new();
    for name in ["kept/a", "anew/old"] {
        if !set(&world.real(name), ACCESS, &list(1, 6, 6)) {
            return;
        }
    }
    let run = world.begin();
    world.change("kept/a", "written");
    world.change("anew/old", "written");
    world.put("new", "written");
    // As overlayfs copies one up; that of `anew/old` was taken away inside.
    assert!(set(&world.layer("kept/a"), ACCESS, &list(1, 6, 6)));
    assert!(set(&world.layer("new"), ACCESS, &list(2, 6, 4)));
    drop(run);
    let done = world.commit();
    assert!(done.empty, "{done:?}");
    let found = ["kept/a", "anew/old", "new"].map(|name| get(&world.real(name), ACCESS));
    let mode = get(&world.real("anew/old"), ACCESS).1;
    assert_eq!(mode & 0o020, 0, "the bound of a list that is gone is no right of the group");
    assert_eq!(found[0], (Some(list(1, 6, 6)), 0o664));
    assert_eq!(found[1].0, None);
    assert_eq!(found[2], (Some(list(2, 6, 4)), 0o644));
}
