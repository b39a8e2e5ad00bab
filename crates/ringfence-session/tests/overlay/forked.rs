//! Layers of a fork: what those of its session hold, apart from these.

use super::world::{World, names, state};
use ringfence_session::SessionError;
use ringfence_session::overlay::{self, Copied, End, Overlay, Record, Select, Tree};
use ringfence_session::snapshot::fault;
use rustix::fs::CWD;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn a_fork_has_a_copy_of_its_sessions_layers() {
    let world = World::new();
    let running = world.begin();
    world.change("kept/a", "changed");
    world.put("new/deep/file", "new");
    world.anew("anew");
    world.put("anew/both", "another");
    world.delete("gone");
    world.link("out", &world.top.join("outside"));
    world.put("first", "two names");
    fs::hard_link(world.layer("first"), world.layer("second")).unwrap();
    fs::set_permissions(world.layer("new/deep"), fs::Permissions::from_mode(0o711)).unwrap();
    let hole = fs::File::create(world.layer("hole")).unwrap();
    hole.set_len(1 << 24).unwrap();
    fs::write(world.real("kept/a"), "the host's").unwrap();
    let other = world.top.join("other");
    let tree = Tree::of(&world.top.join("real"), true).unwrap();
    let record = Record::new("76543210", End::Keep, vec![tree]);
    let forked = overlay::begin_as(&other, &record, &world.session(), &mut |_| Ok(())).unwrap();
    let upper = |session: &std::path::Path| overlay::directory(session).join("0/upper");
    let (was, is) = (upper(&world.session()), upper(&other));
    // What was deleted is a device, which cannot be read.
    for layer in [&was, &is] {
        let gone = rustix::fs::statat(CWD, layer.join("gone"), rustix::fs::AtFlags::empty());
        assert_eq!(gone.unwrap().st_rdev, 0);
    }
    let inode = |name: &str| is.join(name).metadata().unwrap().ino();
    assert_eq!(inode("first"), inode("second"));
    assert!(is.join("hole").metadata().unwrap().blocks() < 1 << 10);
    fs::write(is.join("first"), "the fork's").unwrap();
    assert_eq!(fs::read_to_string(was.join("second")).unwrap(), "two names");
    drop((running, forked));
    // A commit does the same with both.
    let found = |session: &std::path::Path| {
        let overlay = Overlay::open(session).unwrap();
        names(&overlay.changes().unwrap())
    };
    assert_eq!(found(&other), found(&world.session()));
    let before = state(&world.top.join("real"));
    // What the host changed since the first session began, and not only since the fork did.
    let done = Overlay::open(&other).unwrap().commit(&Select::default()).unwrap();
    assert_eq!(names(&done.conflicts), ["kept/a"]);
    assert_eq!(state(&world.top.join("real")), before);
    assert_eq!(fs::read_to_string(world.real("kept/a")).unwrap(), "the host's");
    world.outside_is_unchanged();
}

#[test]
fn what_cannot_be_copied_leaves_no_layers() {
    let world = World::new();
    let _running = world.begin();
    world.put("file", "new");
    let other = world.top.join("other");
    let tree = Tree::of(&world.top.join("outside"), true).unwrap();
    let record = Record::new("76543210", End::Keep, vec![tree]);
    let refused =
        overlay::begin_as(&other, &record, &world.session(), &mut |_| Ok(())).unwrap_err();
    assert!(refused.to_string().contains("other trees"), "{refused}");
    assert!(!other.exists());
}

#[test]
fn what_is_closed_is_named_before_anything_is_copied() {
    let world = World::new();
    let _running = world.begin();
    world.put("new/deep/file", "new");
    world.delete("gone");
    world.link("out", &world.top.join("closed"));
    fs::write(world.top.join("closed"), "outside").unwrap();
    let close = |path: &std::path::Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    close(&world.top.join("closed"), 0);
    overlay::can_be_copied(&world.session()).unwrap();
    if rustix::process::geteuid().is_root() {
        return; // To whom nothing is closed.
    }
    for (name, mode) in [("new/deep/file", 0o644), ("new/deep", 0o755), ("new", 0o755), ("", 0o755)]
    {
        close(&world.layer(name), 0);
        let refused = overlay::can_be_copied(&world.session()).unwrap_err().to_string();
        let path = world.real(name);
        let path = path.to_str().unwrap().trim_end_matches('/');
        assert!(refused.contains(&format!("closed {path} to")), "{refused}");
        close(&world.layer(name), mode);
        overlay::can_be_copied(&world.session()).unwrap();
    }
    // Of one that has ended there is nothing to say.
    overlay::can_be_copied(&world.top.join("other")).unwrap();
}

/// Copies the layers in another process, which is killed at its step of this number.
fn killed(world: &World, step: usize) -> bool {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "forked::child", "--ignored", "--test-threads=1", "-q"])
        .env("RINGFENCE_TEST_TOP", &world.top)
        .env("RINGFENCE_TEST_STEP", step.to_string())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap();
    status.signal() == Some(9)
}

#[test]
#[ignore = "run by another test, as a process of its own"]
fn child() {
    let get = |name: &str| std::env::var(format!("RINGFENCE_TEST_{name}")).unwrap();
    let (top, step): (PathBuf, usize) = (get("TOP").into(), get("STEP").parse().unwrap());
    let world = World::at(&top);
    let tree = Tree::of(&top.join("real"), true).unwrap();
    let record = Record::new("76543210", End::Keep, vec![tree]);
    let passed = AtomicUsize::new(0);
    fault::install(move |_| {
        // Whoever looks meanwhile sees that it is being made, and that nothing waits.
        assert!(overlay::in_use(&top.join("other")) && overlay::unfinished(&top.join("other")));
        if passed.fetch_add(1, Ordering::Relaxed) == step {
            let me = rustix::process::getpid();
            rustix::process::kill_process(me, rustix::process::Signal::KILL).unwrap();
        }
    });
    overlay::begin_as(&world.top.join("other"), &record, &world.session(), &mut |_| Ok(()))
        .unwrap();
}

#[test]
fn a_copy_that_was_killed_is_nothing_to_commit() {
    let world = World::new();
    let _running = world.begin();
    world.change("kept/a", "changed");
    world.put("new/file", "new");
    let other = world.top.join("other");
    let mut step = 0;
    while killed(&world, step) {
        assert!(!overlay::kept(&other) && overlay::unfinished(&other), "{step}");
        assert!(!overlay::in_use(&other), "{step}");
        let refused = Overlay::open(&other).unwrap_err().to_string();
        assert!(refused.contains("keeps no changes apart"), "{refused}");
        overlay::remove(&other).unwrap();
        fs::remove_dir(&other).unwrap();
        step += 1;
    }
    // Each of the four: two directories, two files.
    assert_eq!(step, 4);
    assert!(overlay::kept(&other) && !overlay::unfinished(&other));
    world.outside_is_unchanged();
}

#[test]
fn of_a_session_that_goes_on_meanwhile_there_is_no_copy() {
    let world = World::new();
    let _running = world.begin();
    world.put("file", "new");
    let other = world.top.join("other");
    for gone in [Copied::Part, Copied::All] {
        let tree = Tree::of(&world.top.join("real"), true).unwrap();
        let record = Record::new("76543210", End::Keep, vec![tree]);
        let mut told = |copied| {
            assert!(!overlay::kept(&other), "it is told before there is a record");
            let gone = copied == gone;
            if gone { Err(SessionError::Usage("it went on".to_owned())) } else { Ok(()) }
        };
        let refused = overlay::begin_as(&other, &record, &world.session(), &mut told).unwrap_err();
        assert_eq!(refused.to_string(), "it went on");
        assert!(!other.exists());
    }
}
