//! What people do to a workspace, one line each: what is seen of it, that a revert takes it back, and
//! that the revert can be taken back.

use crate::state::state;
use crate::store::{Place, create, named};
use ringfence_session::snapshot::{New, Origin, Select, What};
use std::process::Command;

/// The state before (as a script), what is done, and the changes: A added, M modified, D deleted, P
/// attributes, T another kind of thing.
const LIFE: &[(&str, &str, &[&str])] = &[
    // Files made.
    ("", "echo x > new", &["A new"]),
    ("", "touch empty", &["A empty"]),
    ("", "mkdir -p a/b/c && echo x > a/b/c/new", &["A a", "A a/b", "A a/b/c", "A a/b/c/new"]),
    ("", "mkdir hollow", &["A hollow"]),
    ("mkdir d", "echo x > d/new", &["A d/new"]),
    ("", "i=0; while [ $i -lt 500 ]; do : > f$i; i=$((i+1)); done; mkdir all; mv f* all", &["500"]),
    ("", "head -c 9000000 /dev/zero | tr '\\0' z > large", &["A large"]),
    ("", "printf '\\000\\377\\r\\n' > binary", &["A binary"]),
    ("", "mkfifo pipe", &["A pipe"]),
    ("mkfifo -m 666 pipe; mkfifo pipe2; chmod 4755 pipe2", "rm pipe pipe2", &["D pipe", "D pipe2"]),
    // Files changed.
    ("echo a > f", "echo b > f", &["M f"]),
    ("echo a > f", "echo more >> f", &["M f"]),
    ("echo a > f", ": > f", &["M f"]),
    (": > f", "echo a > f", &["M f"]),
    ("echo a > f", "echo b > f && echo a > f", &[]),
    ("echo a > f", "cp f g && mv g f", &[]),
    ("echo a > f; chmod 644 f", "chmod 755 f", &["P f"]),
    ("echo a > f; chmod 644 f", "chmod 0 f; chmod 600 f", &["P f"]),
    ("mkdir d; chmod 755 d", "chmod 700 d", &["P d"]),
    ("echo a > f; touch -d 2001-01-01 f", "touch f", &[]),
    // Files gone.
    ("echo a > f", "rm f", &["D f"]),
    ("mkdir -p a/b; echo x > a/b/f", "rm -r a", &["D a", "D a/b", "D a/b/f"]),
    ("mkdir d", "rmdir d", &["D d"]),
    ("echo a > f", "rm f; echo a > f", &[]),
    ("echo a > f; echo b > g", "rm -rf ./*", &["D f", "D g"]),
    // Names moved.
    ("echo a > f", "mv f g", &["D f", "A g"]),
    ("echo a > f; mkdir d", "mv f d/f", &["A d/f", "D f"]),
    ("echo a > f; echo b > g", "mv f g", &["D f", "M g"]),
    ("echo a > f; echo b > g", "mv f t; mv g f; mv t g", &["M f", "M g"]),
    (
        "mkdir -p a/b; echo x > a/b/f",
        "mv a z",
        &["D a", "D a/b", "D a/b/f", "A z", "A z/b", "A z/b/f"],
    ),
    ("mkdir a b; echo x > a/f", "mv a/f b/; mv b/f a/", &[]),
    // Links.
    ("echo a > f", "ln -s f link", &["A link"]),
    ("", "ln -s nowhere broken", &["A broken"]),
    ("", "ln -s /etc/passwd out", &["A out"]),
    ("echo a > f; echo b > g; ln -s f link", "ln -sfn g link", &["M link"]),
    ("ln -s nowhere broken", "echo a > nowhere; rm broken", &["D broken", "A nowhere"]),
    ("echo a > f; ln -s f link", "rm link; echo a > link", &["T link"]),
    ("mkdir d; echo x > d/f; ln -s d link", "rm link; mkdir link", &["T link"]),
    // One thing in place of another.
    ("echo a > f", "rm f; mkdir f; echo x > f/g", &["T f", "A f/g"]),
    ("mkdir -p d/e; echo x > d/e/f", "rm -r d; echo x > d", &["T d", "D d/e", "D d/e/f"]),
    ("mkdir d; echo x > d/f", "mv d e; ln -s e d", &["T d", "D d/f", "A e", "A e/f"]),
    // Odd names.
    ("", "echo x > 'a b'; echo x > ' '; echo x > '*'", &["A  ", "A *", "A a b"]),
    ("", "echo x > \"$(printf 'a\\nb')\"; echo x > ./-rf; echo x > 'ü\\'", &["3"]),
    (
        "echo x > .hidden",
        "rm .hidden; mkdir ...; echo x > .../f",
        &["A ...", "A .../f", "D .hidden"],
    ),
];

fn act(place: &Place, script: &str) {
    let done = Command::new("sh").args(["-ec", script]).current_dir(place.work()).status().unwrap();
    assert!(done.success(), "{script}");
}

#[test]
fn every_change_is_seen_reverted_and_brought_back() {
    assert!(LIFE.len() >= 40);
    for (before, change, wanted) in LIFE {
        let place = Place::new();
        act(&place, &format!("{before}\n"));
        let mut store = place.open();
        let base = create(&mut store);
        let first = state(&place.work());
        act(&place, change);
        let second = state(&place.work());
        let seen = store.changes(&base, None, &Select::default()).unwrap();
        let letter = |what| match what {
            What::Added => 'A',
            What::Modified => 'M',
            What::Deleted => 'D',
            What::Attributes => 'P',
            What::Kind => 'T',
        };
        let told: Vec<String> =
            seen.iter().map(|c| format!("{} {}", letter(c.what), c.path.display())).collect();
        match wanted {
            [count] if count.parse::<usize>().is_ok() => {
                let files = told.iter().filter(|line| *line != "A all").count();
                assert_eq!(files.to_string(), *count, "{change}");
            }
            _ => assert_eq!(told, *wanted, "{before} | {change}"),
        }
        let done = store.revert(&base, &Select::default()).unwrap();
        assert_eq!(state(&place.work()), first, "{before} | {change}: reverted");
        assert_eq!(done.before.is_none(), wanted.is_empty(), "{change}");
        if let Some(undo) = done.before {
            assert_eq!(undo.origin, Origin::BeforeRevert);
            store.revert(&undo, &Select::default()).unwrap();
            assert_eq!(state(&place.work()), second, "{before} | {change}: brought back");
        }
    }
}

#[test]
fn any_of_several_snapshots_can_be_reverted_to_in_any_order() {
    let place = Place::new();
    let mut store = place.open();
    let mut states = Vec::new();
    for (number, script) in
        ["echo 1 > a", "echo 2 > a; mkdir d; echo x > d/f", "rm a; mv d e", "ln -s e a"]
            .iter()
            .enumerate()
    {
        act(&place, script);
        named(&mut store, &format!("s{number}"));
        states.push(state(&place.work()));
    }
    for at in [0, 1, 3, 2, 0, 3, 1, 1] {
        let to = store.find(&format!("s{at}")).unwrap();
        store.revert(&to, &Select::default()).unwrap();
        assert_eq!(state(&place.work()), states[at], "s{at}");
    }
    // The latest is the last that somebody made, not those that reverts kept.
    assert_eq!(store.find("latest").unwrap().name.as_deref(), Some("s3"));
    // Between two that are stored.
    let (from, to) = (store.find("s0").unwrap(), store.find("s2").unwrap());
    assert_eq!(store.changes(&from, Some(&to), &Select::default()).unwrap().len(), 3);
}

/// What a revert reads and leaves as it is, the next snapshot knows.
#[test]
fn what_is_left_by_a_revert_of_one_path_is_not_read_again() {
    let place = Place::new();
    let names: Vec<String> = (0..100).map(|number| format!("file{number}")).collect();
    names.iter().for_each(|name| place.write(name, "old"));
    let mut store = place.open();
    let base = named(&mut store, "base");
    names.iter().for_each(|name| place.write(name, format!("new {name}")));
    place.clock_moves_on();
    let one = Select { only: vec!["file7".into()], ..Select::default() };
    let done = store.revert(&base, &one).unwrap();
    assert_eq!(done.changes.len(), 1);
    let made = store.create(&New::default()).unwrap();
    assert!(made.read <= 1, "{} files were read", made.read);
    let changes = store.changes(&base, None, &Select::default()).unwrap();
    assert_eq!(changes.len(), 99);
    store.revert(&done.before.unwrap(), &Select::default()).unwrap();
    names.iter().for_each(|name| assert_eq!(place.read(name), format!("new {name}").as_bytes()));
}

/// With them the mode's group bits are a bound, and say nothing of the group.
#[test]
fn access_lists_come_back_and_go() {
    use crate::lists::{ACCESS, get, list, set};
    const DEFAULT: &str = "system.posix_acl_default";
    let place = Place::new();
    for name in ["taken", "added", "changed", "dir/inner"] {
        place.write(name, "text");
    }
    let at = |name: &str| place.work().join(name);
    if !set(&at("taken"), ACCESS, &list(1, 6, 6)) {
        return;
    }
    assert!(
        set(&at("changed"), ACCESS, &list(1, 6, 4)) && set(&at("dir"), DEFAULT, &list(1, 7, 7))
    );
    let names = [("taken", ACCESS), ("added", ACCESS), ("changed", ACCESS), ("dir", DEFAULT)];
    let all = || names.map(|(name, list)| get(&at(name), list));
    let before = all();
    assert_eq!(before[0], (Some(list(1, 6, 6)), 0o664));
    let mut store = place.open();
    let base = named(&mut store, "base");
    rustix::fs::removexattr(at("taken"), ACCESS).unwrap();
    rustix::fs::removexattr(at("dir"), DEFAULT).unwrap();
    assert!(
        set(&at("added"), ACCESS, &list(2, 6, 6)) && set(&at("changed"), ACCESS, &list(2, 6, 6))
    );
    let after = all();
    let changes = store.changes(&base, None, &Select::default()).unwrap();
    let found: Vec<_> = changes.iter().map(|c| (c.path.to_str().unwrap(), c.what)).collect();
    let wanted = ["added", "changed", "dir", "taken"].map(|name| (name, What::Attributes));
    assert_eq!(found, wanted);
    let done = store.revert(&base, &Select::default()).unwrap();
    assert_eq!((all(), done.kept), (before, Vec::new()));
    store.revert(&done.before.unwrap(), &Select::default()).unwrap();
    assert_eq!(all(), after);
}
