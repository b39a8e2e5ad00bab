//! What a session's snapshot has that no name tells of: directories that git takes for repositories, links to where
//! something is looked for.

use crate::store::{Place, create};
use ringfence_session::snapshot::{New, Options, Select, Snapshot, Store};
use std::os::unix::fs::symlink;
use std::path::PathBuf;

/// What a plan has a session not change, a part of it.
const EXCEPT: [&str; 9] = [
    "**/.git/hooks",
    "**/.git/config",
    "**/.git/commondir",
    "**/.git/modules/**/hooks",
    "**/.git/modules/**/config",
    "**/.git/worktrees/*/commondir",
    "**/.claude/settings.json",
    "**/.venv/pyvenv.cfg",
    ".config/fish",
];

const RUNS: &str = "[core]\n\tfsmonitor = ./x\n";
const RUNS_NOTHING: &str = "[core]\n\tbare = true\n";

fn store(place: &Place, session: Option<&str>) -> Store {
    let options = Options {
        directory: Some(place.top.path().join("store")),
        session: session.map(ToOwned::to_owned),
        except: if session.is_some() { EXCEPT.map(Into::into).to_vec() } else { Vec::new() },
        ..Options::default()
    };
    Store::open(&place.work(), options).unwrap()
}

fn sessions(place: &Place) -> Snapshot {
    let new = New { session: Some("s1".to_owned()), ..New::default() };
    store(place, Some("s1")).create(&new).unwrap().snapshot
}

fn repository(place: &Place, at: &str, config: &str, hook: &str) {
    for name in ["objects/x", "refs/x"] {
        place.write(&format!("{at}/{name}"), "");
    }
    place.write(&format!("{at}/HEAD"), "ref: refs/heads/m\n");
    place.write(&format!("{at}/config"), config);
    place.write(&format!("{at}/hooks/{hook}"), "run me");
}

fn empty(place: &Place) {
    for entry in std::fs::read_dir(place.work()).unwrap() {
        let path = entry.unwrap().path();
        match path.symlink_metadata().unwrap().is_dir() {
            true => std::fs::remove_dir_all(path).unwrap(),
            false => std::fs::remove_file(path).unwrap(),
        }
    }
}

fn there(place: &Place, name: &str) -> bool {
    place.work().join(name).symlink_metadata().is_ok()
}

fn only(path: &str) -> Select {
    Select { only: vec![PathBuf::from(path)], except: Vec::new() }
}

/// By the user, and by a session itself: the tools of an agent revert when no run goes on.
fn by_both(act: impl Fn(&Place, &mut Store)) {
    for session in [None, Some("s1")] {
        let place = Place::new();
        let mut store = store(&place, session);
        act(&place, &mut store);
    }
}

#[test]
fn a_repository_by_another_name_does_not_come_back_with_what_git_would_run() {
    by_both(|place, store| {
        repository(place, "evil", RUNS, "post-checkout");
        repository(place, "fine", RUNS_NOTHING, "post-checkout.sample");
        place.write("outside.git", "gitdir: evil");
        place.write("sub/.git", "gitdir: ../evil");
        place.write("good/.git", "gitdir: ../.git/modules/good");
        place.write("one/HEAD", "ref: refs/heads/m\n");
        place.write("one/commondir", "../evil");
        place.write("tree/.git", "gitdir: ../fine/worktrees/tree");
        place.write("out/.git", "gitdir: ../../elsewhere/worktrees/out");
        symlink("fine", place.work().join("way")).unwrap();
        place.write("over/.git", "gitdir: ../way/worktrees/over");
        let theirs = sessions(place);
        empty(place);
        let done = store.revert(&theirs, &Select::default()).unwrap();
        for (name, comes) in [
            ("evil/config", false),
            ("evil/hooks/post-checkout", false),
            ("sub/.git", false),
            ("one/commondir", false),
            ("out/.git", false),
            ("over/.git", false),
            // The controls: what runs nothing.
            ("evil/HEAD", true),
            ("fine/config", true),
            ("fine/hooks/post-checkout.sample", true),
            ("good/.git", true),
            ("tree/.git", true),
            ("way", true),
            ("outside.git", true),
        ] {
            assert_eq!(there(place, name), comes, "{name}: {:?}", done.kept);
        }
        let said = |text: &str| done.kept.iter().any(|kept| kept.starts_with(text));
        assert!(said("evil/config: config of ") && said("sub/.git: .git leads"), "{:?}", done.kept);
    });
}

#[test]
fn a_link_to_where_something_is_looked_for_does_not_come_back() {
    by_both(|place, store| {
        place.write("evil/settings.json", "{}");
        std::fs::create_dir(place.work().join("sub")).unwrap();
        std::fs::create_dir(place.work().join(".git")).unwrap();
        let links =
            [".claude", "sub/.claude", ".config", ".git/modules", ".venv", "plain", "sub/.config"];
        for link in links {
            symlink("evil", place.work().join(link)).unwrap();
        }
        let theirs = sessions(place);
        empty(place);
        store.revert(&theirs, &Select::default()).unwrap();
        let came: Vec<bool> = links.iter().map(|link| there(place, link)).collect();
        // The last three are no way to anything.
        assert_eq!(came, [false, false, false, false, true, true, true]);
    });
}

/// No step brings anything back that is run by itself.
#[test]
fn a_repository_does_not_come_back_in_steps() {
    let steps = [
        ["store/config", "store/HEAD"],
        ["store/HEAD", "store/config"],
        ["store/hooks", "store/HEAD"],
        ["store/modules", "store/HEAD"],
    ];
    for [first, second] in steps {
        by_both(|place, store| {
            repository(place, "store", RUNS, "post-checkout");
            repository(place, "store/modules/a/b", RUNS, "post-checkout");
            let theirs = sessions(place);
            empty(place);
            for name in ["objects", "refs"] {
                std::fs::create_dir_all(place.work().join("store").join(name)).unwrap();
            }
            for step in [first, second] {
                let name = step.strip_prefix("store/").unwrap();
                let others: Vec<PathBuf> = ["config", "HEAD", "hooks", "modules"]
                    .into_iter()
                    .filter(|other| *other != name)
                    .map(|other| PathBuf::from("store").join(other))
                    .collect();
                let except = [others, vec!["store/modules/a/b/HEAD".into()]].concat();
                let select = Select { only: vec!["store".into()], except };
                store.revert(&theirs, &select).unwrap();
            }
            let runs = ["config", "hooks/post-checkout", "modules/a/b/config"];
            let runs = runs.iter().any(|name| there(place, &format!("store/{name}")));
            assert!(!(there(place, "store/HEAD") && runs), "{first} {second}");
            assert!(there(place, first), "the control: {first}");
        });
    }
}

#[test]
fn what_the_user_names_or_kept_himself_comes_back() {
    let place = Place::new();
    repository(&place, "store", RUNS, "post-checkout");
    let (theirs, own) = (sessions(&place), create(&mut store(&place, None)));
    empty(&place);
    let mut outside = store(&place, None);
    outside.revert(&theirs, &Select::default()).unwrap();
    assert!(there(&place, "store/HEAD") && !there(&place, "store/config"));
    outside.revert(&theirs, &only("store")).unwrap();
    assert!(!there(&place, "store/config"), "the directory is not the name");
    outside.revert(&theirs, &only("store/config")).unwrap();
    outside.revert(&theirs, &only("store/hooks")).unwrap();
    assert!(there(&place, "store/config") && there(&place, "store/hooks/post-checkout"));
    empty(&place);
    // A session cannot name it.
    store(&place, Some("s1")).revert(&theirs, &only("store/config")).unwrap();
    store(&place, Some("s1")).revert(&theirs, &only("store")).unwrap();
    assert!(!(there(&place, "store/HEAD") && there(&place, "store/config")));
    empty(&place);
    store(&place, None).revert(&own, &Select::default()).unwrap();
    assert!(there(&place, "store/HEAD") && there(&place, "store/config"));
}
