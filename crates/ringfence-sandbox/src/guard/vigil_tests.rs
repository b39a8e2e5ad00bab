use super::super::changed;
use super::super::quarantine::is_aside;
use super::*;
use crate::plan::GuardedTree;
use ringfence_policy::Guarded;
use std::cell::{Cell, RefCell};
use std::fs;

/// A writable tree, and its guards since it was made.
pub(in crate::guard) struct World {
    pub tree: PathBuf,
    pub guarding: Guarding,
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.tree);
    }
}

impl World {
    pub fn new(of: &str) -> World {
        let place = format!("ringfence-vigil-{of}-{}", std::process::id());
        let tree = std::env::temp_dir().join(place);
        fs::create_dir(&tree).expect("a directory");
        // It was there before.
        fs::write(tree.join("old.code-workspace"), "").expect("a file");
        let names = |all: &[&'static str]| {
            all.iter().map(|name| ((*name).into(), Guarded::Plain)).collect::<Vec<_>>()
        };
        let guarded = GuardedTree {
            tree: tree.clone(),
            absent: names(&[
                ".envrc",
                ".vscode",
                ".config/mise.*",
                ".cargo/config",
                "mise/config.*",
            ]),
            nested: names(&["*.code-workspace", "*.bazelrc", ".envrc"]),
            lifted: vec![tree.join("granted.bazelrc")],
            files: Vec::new(),
            granted: Vec::new(),
        };
        // The clock's grain: the file above is older.
        let old = changed(&tree.join("old.code-workspace").symlink_metadata().expect("a file"));
        let guarding = Guarding {
            steps: Vec::new(),
            parents: BTreeMap::new(),
            noted: Default::default(),
            trees: vec![guarded],
            tops: BTreeMap::new(),
            held_tops: Default::default(),
            former: Vec::new(),
            project: None,
            since: old + 1,
            started: Instant::now(),
            taken: Cell::default(),
            room: Cell::new(0),
            begun: None,
            ended: Cell::default(),
            word: RefCell::default(),
            removed: RefCell::default(),
            awaited: RefCell::default(),
            unsure: BTreeMap::new(),
            missed: RefCell::default(),
            asides: RefCell::default(),
            held: [tree.join("held.bazelrc")].into(),
            inherits: false,
        };
        World { tree, guarding }
    }

    fn write(&self, name: &str) {
        let path = self.tree.join(name);
        fs::create_dir_all(path.parent().expect("above")).expect("directories");
        // Not in the same moment as what was there before.
        loop {
            fs::write(&path, "x").expect("a file");
            let data = path.symlink_metadata().expect("a file");
            if changed(&data) >= self.guarding.since {
                return;
            }
        }
    }

    pub fn has(&self, name: &str) -> bool {
        self.tree.join(name).symlink_metadata().is_ok()
    }

    fn vigil(&self) -> Vigil<'_> {
        self.guarding.vigil_of(None).expect("names")
    }

    fn blind(&self) -> Vigil<'_> {
        let mut vigil = self.vigil();
        vigil.watched = Watched::blind();
        vigil
    }
}

impl Vigil<'_> {
    /// Turns until nothing is left of what was told; how many.
    fn turns(&mut self) -> usize {
        let mut turns = 1;
        self.serve();
        while !self.pending.is_empty() {
            self.serve();
            turns += 1;
        }
        turns
    }
}

const MADE: [&str; 6] = [
    "a.code-workspace",
    "ci.bazelrc",
    ".config/mise.toml",
    "mise/config.toml",
    ".envrc",
    ".vscode/deep/tasks.json",
];
const FREE: [&str; 4] = ["granted.bazelrc", "held.bazelrc", ".config/other", "plain"];

fn taken(world: &World) {
    for name in MADE {
        assert!(!world.has(name), "{name}");
    }
    for name in FREE.iter().chain(&["old.code-workspace"]) {
        assert!(world.has(name), "{name}");
    }
}

#[test]
fn what_was_made_before_the_watch_is_found_also_by_its_pattern() {
    let world = World::new("before");
    MADE.iter().chain(&FREE).for_each(|name| world.write(name));
    world.vigil().turns();
    taken(&world);
}

#[test]
fn what_is_made_with_its_directory_is_found() {
    let world = World::new("with");
    let mut vigil = world.vigil();
    vigil.turns();
    MADE.iter().chain(&FREE).for_each(|name| world.write(name));
    vigil.turns();
    if !vigil.watched.is_blind() {
        taken(&world);
    }
}

#[test]
fn where_nothing_tells_names_with_a_pattern_are_found_too() {
    let world = World::new("blind");
    let mut vigil = world.blind();
    vigil.turns();
    MADE.iter().chain(&FREE).for_each(|name| world.write(name));
    vigil.look();
    vigil.turns();
    taken(&world);
}

/// Who is inside makes names without an end: the launcher has more to do.
#[test]
fn a_turn_is_bounded_and_the_names_of_the_list_come_first() {
    let world = World::new("turn");
    let mut vigil = world.vigil();
    vigil.turns();
    let file = |number: usize| format!(".vscode/{number}");
    // Nothing is kept elsewhere in a test: what is taken waits beside, and is not taken once more.
    let waits = |entry: &fs::DirEntry| is_aside(entry.file_name().as_encoded_bytes());
    let left = || {
        let entries = fs::read_dir(world.tree.join(".vscode")).into_iter().flatten().flatten();
        entries.filter(|entry| !waits(entry)).count()
    };
    world.write(&file(0));
    vigil.serve();
    (1..1000).for_each(|number| world.write(&file(number)));
    world.write(".envrc");
    world.write(".cargo/config");
    vigil.look();
    // A turn is bounded by time as well.
    while world.has(".envrc") || world.has(".cargo/config") {
        vigil.serve();
    }
    assert!(left() > 900, "{}", left());
    // It goes on by itself.
    assert!(vigil.next().is_some_and(|next| next <= Instant::now()));
    assert!(vigil.turns() >= 900 / IN_A_TURN);
    assert_eq!(left(), 0);
}

/// More directories than are watched, in a protected one.
#[test]
fn many_directories_in_a_protected_one_end_no_watch() {
    let world = World::new("many");
    let mut vigil = world.vigil();
    vigil.turns();
    for number in 0..MOST + 100 {
        world.write(&format!(".vscode/d{number}/x"));
        if number % 100 == 0 {
            vigil.turns();
        }
    }
    vigil.turns();
    world.write(".cargo/config");
    vigil.turns();
    if !vigil.watched.is_blind() {
        assert!(!world.has(".cargo/config"));
    }
}
