//! The profiles and features that ship: each is valid, does what it says, and none that is picked
//! by a command's name weakens anything.

use crate::common::host;
use ringfence_policy::builtin::Builtin;
use ringfence_policy::catalog::{Catalog, Kind};
use ringfence_policy::files::FakeFiles;
use ringfence_policy::{Access, FileView, Key, NetworkMode, Profile, Request};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// The presets of agents, which open what the agent cannot do without.
const AGENTS: [&str; 11] = [
    "aider",
    "amp",
    "claude",
    "codex",
    "copilot",
    "cursor-agent",
    "gemini",
    "goose",
    "opencode",
    "pi",
    "qwen",
];

fn load(builtin: &Builtin) -> Profile {
    builtin.load(builtin.name.into())
}

#[test]
fn there_are_enough_and_each_says_what_it_is_for() {
    assert!(Builtin::profiles().len() >= 40 && Builtin::features().len() >= 40);
    for builtin in Builtin::profiles().iter().chain(Builtin::features()) {
        let profile = load(builtin);
        let description = profile.text(Key::Description).unwrap_or_default();
        assert!(description.ends_with('.') && description.len() < 120, "{}", builtin.name);
        assert!(profile.list(Key::Before).is_none() && profile.list(Key::After).is_none());
    }
}

#[test]
fn each_profile_and_each_feature_resolves() {
    let host = host();
    for builtin in Builtin::profiles() {
        let request = Request { profiles: vec![builtin.name.to_owned()], ..Request::default() };
        let policy = host.asked(&request).unwrap_or_else(|error| panic!("{error}"));
        assert!(policy.paths.iter().any(|rule| rule.path == Path::new("/usr")), "{}", builtin.name);
    }
    for builtin in Builtin::features() {
        let request = Request { features: vec![builtin.name.to_owned()], ..Request::default() };
        host.asked(&request).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn what_they_require_and_exclude_exists() {
    for builtin in Builtin::profiles().iter().chain(Builtin::features()) {
        let profile = load(builtin);
        for key in [Key::Requires, Key::Features, Key::Conflicts] {
            for name in profile.list(key).unwrap_or_default() {
                assert!(Builtin::feature(name).is_some(), "{} names {name}", builtin.name);
            }
        }
    }
}

#[test]
fn what_is_picked_by_a_commands_name_only_shows_settings() {
    let host = host();
    let plain = host.asked(&Request::default()).expect("valid");
    for builtin in Builtin::profiles().iter().filter(|builtin| !builtin.programs.is_empty()) {
        if AGENTS.contains(&builtin.name) {
            continue;
        }
        for program in builtin.programs.split('\n') {
            let request = Request { command: Some(program.into()), ..Request::default() };
            let policy = host.asked(&request).expect("valid");
            let writable = |policy: &ringfence_policy::Policy| {
                policy.paths.iter().filter(|rule| rule.access == Access::Write).count()
            };
            assert_eq!(writable(&policy), writable(&plain), "{program}");
            assert_eq!(policy.network.mode, NetworkMode::None, "{program}");
            assert!(policy.network.allow.is_empty() && policy.network.sockets.is_empty());
            assert_eq!(policy.environment, plain.environment, "{program}");
            assert_eq!((policy.home, policy.arguments), (plain.home.clone(), None), "{program}");
            assert!(policy.made.is_empty(), "{program}");
        }
    }
}

#[test]
fn a_program_of_the_project_gets_nothing_for_its_name() {
    let host = host();
    let picked = |command: &str| {
        let request = Request { command: Some(command.into()), ..Request::default() };
        let policy = host.asked(&request).expect("valid");
        policy.profiles.iter().any(|name| name == "profile claude")
    };
    assert!(picked("claude") && picked("/opt/claude/bin/claude"));
    assert!(!picked("./claude") && !picked("bin/claude"));
    assert!(!picked(&host.cwd.join("node_modules/.bin/claude").display().to_string()));
}

#[test]
fn a_feature_is_found_where_a_profile_is_named() {
    let host = host();
    let names = |profiles: &[&str], features: &[&str]| {
        let own = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect();
        let request =
            Request { profiles: own(profiles), features: own(features), ..Request::default() };
        host.asked(&request).map(|policy| policy.profiles).map_err(|error| error.to_string())
    };
    assert_eq!(names(&["zig"], &[]).expect("valid"), ["profile default", "feature zig"]);
    assert_eq!(names(&[], &["zig"]).expect("valid"), ["profile default", "feature zig"]);
    assert_eq!(
        names(&["claude", "zig"], &["gcc"]).expect("valid").last().map(String::as_str),
        Some("feature gcc")
    );
    assert!(names(&["zigg"], &[]).expect_err("invalid").ends_with("the nearest is `zig`"));
}

#[test]
fn conditions_and_conflicts_hold() {
    let with = |when: &str| {
        host().with(|files| {
            files
                .file("/home/u/.config/ringfence/features/one.toml", when)
                .file("/home/u/.config/ringfence/features/two.toml", "conflicts = [\"one\"]")
                .file("/opt/there", "")
        })
    };
    let resolve = |when: &str, features: &[&str]| {
        let features = features.iter().map(|name| (*name).to_owned()).collect();
        with(when).asked(&Request { features, ..Request::default() })
    };
    let counts = |when: &str| {
        let policy = resolve(when, &["one"]).expect("valid");
        policy.profiles.iter().any(|name| name == "feature one")
    };
    assert!(counts("") && counts("when = [\"/opt/there\"]"));
    assert!(counts("when = [\"/opt/absent|/opt/there\", \"!/opt/absent\"]"));
    assert!(!counts("when = [\"/opt/there\", \"/opt/absent\"]"));
    assert!(!counts("when = [\"$NOT_SET\"]") && !counts("when = [\"no-such-command\"]"));
    let error = resolve("", &["one", "two"]).expect_err("invalid").to_string();
    assert_eq!(error, "feature two and feature one exclude each other; leave one of them out");
    assert!(resolve("when = [\"/opt/absent\"]", &["one", "two"]).is_ok());
}

#[test]
fn hooks_count_in_profiles_of_the_users_own_only() {
    let hooks = "[hooks]\nbefore = [\"true\"]";
    let host = host().with(|files| {
        files
            .file("/home/u/.config/ringfence/profiles/mine.toml", hooks)
            .file("/home/u/project/theirs.toml", hooks)
    });
    let run = |profile: &str| {
        host.asked(&Request { profiles: vec![profile.to_owned()], ..Request::default() })
    };
    assert_eq!(run("mine").expect("valid").before[0].text, "true");
    assert!(run("/home/u/project/theirs.toml").expect_err("invalid").to_string().contains("hooks"));
    let inline = vec![("file ./ringfence.toml".to_owned(), hooks.to_owned())];
    assert!(host.asked(&Request { inline, ..Request::default() }).is_err());
}

#[test]
fn the_users_own_preset_counts_when_it_names_the_command() {
    let host = host().with(|files| {
        files.file(
            "/home/u/.config/ringfence/profiles/tool.toml",
            "programs = [\"tool\"]\nextends = [\"default\"]",
        )
    });
    let catalog = Catalog::new(&host.files, &host.home, &host.cwd, &|_| None, 1000);
    assert_eq!(catalog.preset("tool").as_deref(), Some("tool"));
    assert_eq!(catalog.preset("other"), None);
    assert_eq!(catalog.preset("../tool"), None);
    assert!(catalog.has(Kind::Profile, "tool"));
}

/// Files of which no directory is listed.
struct Unlisted(FakeFiles);

impl FileView for Unlisted {
    fn link(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        self.0.link(path)
    }

    fn names(&self, directory: &Path, _: usize) -> io::Result<Vec<OsString>> {
        panic!("{} is listed", directory.display())
    }

    fn text(&self, path: &Path, most: u64) -> io::Result<String> {
        self.0.text(path, most)
    }

    fn socket(&self, path: &Path) -> bool {
        self.0.socket(path)
    }
}

#[test]
fn a_command_without_a_preset_has_no_list_of_all_profiles_made() {
    let host = host().with(|files| {
        files.file("/home/u/.config/ringfence/profiles/tool.toml", "programs = [\"tool\"]")
    });
    let files = Unlisted(host.files);
    let catalog = Catalog::new(&files, &host.home, &host.cwd, &|_| None, 1000);
    assert_eq!(catalog.preset("sh"), None);
    assert_eq!(catalog.preset("tool").as_deref(), Some("tool"));
    // The control: who names one that is not there is told what it might be.
    let mistaken = || catalog.profile("tol");
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(mistaken)).is_err());
}
