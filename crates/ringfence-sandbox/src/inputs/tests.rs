use super::*;
use ringfence_policy::FileView;

#[test]
fn device_numbers_are_split_as_the_kernel_splits_them() {
    let device = |path: &str| std::fs::metadata(path).expect("it is there").rdev();
    let null = device("/dev/null");
    assert_eq!((libc_major(null), libc_minor(null)), (1, 3));
    // 8:0x12345, with both minor halves in use (makedev(3)).
    let large = 0x45 | 8 << 8 | 0x123 << 20;
    assert_eq!((libc_major(large), libc_minor(large)), (8, 0x12345));
}

#[test]
fn what_an_old_directory_holds_needs_no_look_of_its_own() {
    let room = tempfile::tempdir().expect("a directory");
    let room = room.path().canonicalize().expect("it is there");
    std::fs::write(room.join("file"), "").expect("written");
    std::os::unix::fs::symlink("file", room.join("link")).expect("made");
    let look = |began: u64| {
        let inputs = Inputs { began, ..Inputs::default() };
        let names = inputs.list(&room);
        assert_eq!(names.len(), 2);
        for name in ["file", "link", "absent"] {
            inputs.kind(&room.join(name));
        }
        inputs.content(&room.join("file"));
        let needed = inputs.needed(1000).into_iter();
        let below = needed.filter(|(path, _)| path.starts_with(&room) && *path != room);
        below.map(|(path, _)| path).collect::<Vec<_>>()
    };
    // Content is another matter.
    assert_eq!(look(u64::MAX), [room.join("file")]);
    // It may have changed between two looks.
    assert_eq!(look(0).len(), 3);
}

#[test]
fn a_directory_does_not_vouch_for_names_within_those_in_it() {
    let room = tempfile::tempdir().expect("a directory");
    let room = room.path().canonicalize().expect("it is there");
    let (few, many) = (room.join("few"), room.join("many"));
    std::fs::create_dir(&few).expect("made");
    std::fs::create_dir(&many).expect("made");
    for name in ["a", "b", "c"] {
        std::fs::write(many.join(name), "").expect("written");
    }
    let inputs = Inputs::new();
    inputs.names(&room);
    assert!(inputs.among(&few, &["x"], 2).is_some());
    assert!(inputs.among(&many, &["x"], 2).is_none());
    let needed = inputs.needed(1000);
    let found = |path: &Path| {
        needed.iter().find(|(known, _)| known == path).map(|(_, found)| found.clone())
    };
    assert!(matches!(found(&few), Some(Found::Listed(..))), "{needed:?}");
    assert!(matches!(found(&many), Some(Found::Crowded(_))), "{needed:?}");
}

/// A directory may be looked into for several reasons.
#[test]
fn names_that_are_looked_for_one_after_the_other_count_all() {
    let room = tempfile::tempdir().expect("a directory");
    let room = room.path().canonicalize().expect("it is there");
    let inputs = Inputs::new();
    assert!(inputs.among(&room, &["a"], 9).is_some_and(|there| there.is_empty()));
    std::fs::write(room.join("b"), "").expect("written");
    assert!(inputs.among(&room, &["b", "c"], 9).is_some_and(|there| there.len() == 1));
    let needed = inputs.needed(1000).into_iter().find(|(path, _)| *path == room);
    let Some((_, Found::Listed([0, ..], names))) = needed else { panic!("{needed:?}") };
    assert_eq!(names.wanted, "a\0b\0c\0");
    assert_eq!(names.there, BTreeSet::from(["b".into()]));
}

#[test]
fn the_stronger_finding_stays() {
    let inputs = Inputs::new();
    let path = Path::new("/etc/passwd");
    assert!(matches!(inputs.link(path), Ok(None)));
    assert!(PathFacts::text(&inputs, path).is_some());
    assert!(matches!(inputs.link(path), Ok(None)));
    assert!(inputs.all(|known, found| known != path || matches!(found, Found::Same(_))));
    assert!(!inputs.all(|known, _| known != path));
    assert!(inputs.lasting());
}
