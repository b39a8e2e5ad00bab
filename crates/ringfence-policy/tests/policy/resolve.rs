//! From profiles and options to a policy, on made-up hosts.

use crate::common::host;
use ringfence_policy::files::Fake;
use ringfence_policy::{Access, Home, Key, NetworkMode, Policy, TierChoice};
use std::path::Path;
use std::time::Duration;

fn granted(policy: &Policy, access: Access, path: &str) -> bool {
    policy.paths.iter().any(|rule| rule.access == access && rule.path == Path::new(path))
}

#[test]
fn the_default_profile_grants_the_workspace_and_the_system() {
    let policy = host().policy();
    assert!(granted(&policy, Access::Write, "/home/u/project"));
    assert!(granted(&policy, Access::Read, "/usr"));
    assert!(granted(&policy, Access::Read, "/usr/bin"), "/bin leads there");
    assert!(granted(&policy, Access::Read, "/home/u/.cargo/bin"));
    assert_eq!(policy.links.get(Path::new("/bin")).unwrap(), Path::new("usr/bin"));
    assert_eq!(policy.home, Home::Private);
    assert_eq!(policy.network.mode, NetworkMode::None);
    assert!(policy.warnings.is_empty());
    assert!(!policy.paths.iter().any(|rule| rule.path.ends_with("credentials.toml")));
}

#[test]
fn what_is_optional_and_missing_falls_away() {
    let policy = host().policy();
    assert!(!policy.paths.iter().any(|rule| rule.path.starts_with("/nix")));
}

#[test]
fn a_missing_grant_is_refused_and_the_way_out_named() {
    let message = host().option(Key::Read, "/data").error();
    assert_eq!(
        message,
        "option --read \"/data\": /data does not exist; write `?/data` if it may be missing"
    );
    assert!(host().option(Key::Read, "?/data").resolve().is_ok());
    assert!(host().option(Key::Read, "/data?").resolve().is_ok());
    assert!(host().option(Key::Deny, "/data").resolve().is_ok());
    assert!(host().option(Key::Protect, "/data").resolve().is_ok());
}

#[test]
fn a_home_or_system_directory_is_no_workspace_unless_one_says_so() {
    for cwd in [
        "/",
        "/home",
        "/home/u",
        "/etc",
        "/usr/lib",
        "/tmp",
        "/home/u/.config/nvim",
        "/home/u/.ssh",
        "/home/u/.config",
        "/home/u/.config/rclone",
        "/home/u/.local/share",
        "/home/u/.minikube/certs",
        "/home/u/.claude",
        "/home/u/.local/share/opencode/worktree",
    ] {
        let host = host().cwd(cwd);
        let policy = host.policy();
        assert!(!granted(&policy, Access::Write, cwd), "{cwd}");
        assert_eq!(policy.warnings.len(), 1, "{cwd}: {:?}", policy.warnings);
        if cwd == "/" {
            let refused = host.option(Key::Write, ".").error();
            assert!(refused.contains("the root of the file system is not granted"), "{refused}");
            continue;
        }
        let asked = host.option(Key::Write, ".").policy();
        assert!(granted(&asked, Access::Write, cwd), "{cwd}");
    }
    for cwd in [
        "/tmp/x",
        "/srv/project",
        "/home/u/.dotfiles/nvim",
        "/home/u/.local/share/opencode/worktree/a",
        "/home/u/project/.config/x",
    ] {
        assert!(granted(&host().cwd(cwd).policy(), Access::Write, cwd), "{cwd}");
    }
}

#[test]
fn a_link_in_a_writable_tree_lends_no_rights_outside_of_it() {
    let own = "extends = [\"default\"]\n[filesystem]\nwrite = [\"./node_modules?\"]";
    let planted =
        host().with(|files| files.symlink("/home/u/project/node_modules", "/home/u")).own(own);
    let message = planted.error();
    assert!(
        message.contains(
            "/home/u/project/node_modules is a symbolic link inside the writable /home/u/project"
        ),
        "{message}"
    );
    // A relative one, one further up, and one to a single file.
    let relative =
        host().with(|files| files.symlink("/home/u/project/node_modules", "../.ssh")).own(own);
    assert!(relative.resolve().is_err());
    let deep = host()
        .with(|files| files.symlink("/home/u/project/a", "../.ssh"))
        .option(Key::Read, "a/id_ed25519");
    assert!(deep.resolve().is_err());
    // The controls: a real directory, and a link that stays inside.
    let real = host().with(|files| files.directory("/home/u/project/node_modules")).own(own);
    assert!(granted(&real.policy(), Access::Write, "/home/u/project/node_modules"));
    let inside = host().with(|files| files.symlink("/home/u/project/node_modules", "src")).own(own);
    assert!(granted(&inside.policy(), Access::Write, "/home/u/project/src"));
}

#[test]
fn a_link_to_what_is_granted_anyhow_is_no_danger() {
    let host = host()
        .with(|files| files.symlink("/home/u/project/bin", "/usr/bin"))
        .option(Key::Read, "./bin");
    assert!(granted(&host.policy(), Access::Read, "/usr/bin"));
}

#[test]
fn a_link_of_the_users_own_is_followed_and_recorded() {
    let host = host()
        .with(|files| files.directory("/data/project").symlink("/home/u/link", "/data/project"))
        .option(Key::Write, "~/link");
    let policy = host.policy();
    assert!(granted(&policy, Access::Write, "/data/project"));
    assert_eq!(policy.links.get(Path::new("/home/u/link")).unwrap(), Path::new("/data/project"));
}

#[test]
fn a_socket_behind_a_planted_link_is_refused() {
    let planted = host().with(|files| {
        files
            .with("/run/docker.sock", Fake::Socket)
            .symlink("/home/u/project/app.sock", "/run/docker.sock")
    });
    assert!(planted.option(Key::Sockets, "./app.sock").resolve().is_err());
    let named = host().with(|files| files.with("/run/docker.sock", Fake::Socket));
    assert!(named.option(Key::Sockets, "/run/docker.sock").resolve().is_ok());
}

#[test]
fn a_worktree_gets_its_repository_only_when_that_knows_it() {
    let repository = |back: &str| {
        host()
            .with(|files| {
                files
                    .file("/home/u/project/.git", "gitdir: /home/u/main/.git/worktrees/project\n")
                    .file("/home/u/main/.git/HEAD", "")
                    .directory("/home/u/main/.git/objects")
                    .directory("/home/u/main/.git/refs")
                    .file("/home/u/main/.git/worktrees/project/gitdir", back)
            })
            .policy()
    };
    let policy = repository("/home/u/project/.git\n");
    assert!(granted(&policy, Access::Write, "/home/u/main/.git"));
    assert!(granted(&policy, Access::Protect, "/home/u/main/.git/hooks"));
    assert!(granted(&policy, Access::Protect, "/home/u/main/.git/config"));
    let policy = repository("/home/u/other/.git\n");
    assert!(!granted(&policy, Access::Write, "/home/u/main/.git"));
}

#[test]
fn a_submodule_gets_its_repository_only_when_that_knows_it() {
    let module = |at: &str, back: &str| {
        let host = host().with(|files| {
            files
                .file("/home/u/project/sub/.git", &format!("gitdir: {at}\n"))
                .file(&format!("{at}/HEAD"), "")
                .file(&format!("{at}/config"), &format!("[core]\n\tworktree = {back}\n"))
                .directory(&format!("{at}/objects"))
                .directory(&format!("{at}/refs"))
        });
        host.cwd("/home/u/project/sub").policy()
    };
    let usual = "/home/u/project/.git/modules/sub";
    for back in ["../../../sub", "/home/u/project/sub"] {
        let policy = module(usual, back);
        assert!(granted(&policy, Access::Write, usual), "{back}");
        assert!(granted(&policy, Access::Protect, "/home/u/project/.git/modules/sub/hooks"));
        assert!(granted(&policy, Access::Protect, "/home/u/project/.git/modules/sub/config"));
    }
    assert!(!granted(&module(usual, "../../../other"), Access::Write, usual));
    // No other repository, though it says so.
    for other in ["/home/u/other/.git", "/home/u/other", "/home/u"] {
        assert!(!granted(&module(other, "/home/u/project/sub"), Access::Write, other), "{other}");
    }
}

#[test]
fn a_made_up_worktree_gets_nothing() {
    // The program in the sandbox makes a `worktrees` directory in its own workspace, so that the
    // "repository" would be a directory above it.
    let host = host().cwd("/home/u/worktrees/w").with(|files| {
        files
            .file("/home/u/worktrees/w/.git", "gitdir: /home/u/worktrees/w\n")
            .file("/home/u/worktrees/w/gitdir", "/home/u/worktrees/w/.git")
            .file("/home/u/HEAD", "")
            .directory("/home/u/objects")
            .directory("/home/u/refs")
    });
    assert!(!granted(&host.policy(), Access::Write, "/home/u"));
    let policy = host.policy();
    let writable: Vec<_> =
        policy.paths.iter().filter(|rule| rule.access == Access::Write).collect();
    assert_eq!(writable.len(), 1);
}

#[test]
fn the_hooks_directory_that_a_repository_names_is_protected() {
    let host = host().with(|files| {
        files.file("/home/u/project/.git/config", "[core]\n\tHooksPath = scripts/hooks\n")
    });
    assert!(granted(&host.policy(), Access::Protect, "/home/u/project/scripts/hooks"));
}

#[test]
fn a_bare_repository_as_workspace_has_its_hooks_protected() {
    let bare = host().cwd("/srv/repo.git").with(|files| {
        files
            .file("/srv/repo.git/HEAD", "")
            .directory("/srv/repo.git/objects")
            .directory("/srv/repo.git/refs")
    });
    assert!(granted(&bare.policy(), Access::Protect, "/srv/repo.git/hooks"));
    assert!(!granted(&host().policy(), Access::Protect, "/home/u/project/hooks"));
}

#[test]
fn a_writable_home_has_its_start_up_files_protected() {
    let policy = host().option(Key::Write, "~").policy();
    for name in [".config/autostart", ".config/systemd", ".local/bin", ".cargo/bin", ".gnupg"] {
        assert!(granted(&policy, Access::Protect, &format!("/home/u/{name}")), "{name}");
    }
    let policy = host()
        .with(|files| files.directory("/home/u/.config"))
        .option(Key::Write, "~/.config")
        .policy();
    assert!(granted(&policy, Access::Protect, "/home/u/.config/autostart"));
    assert!(granted(&policy, Access::Protect, "/home/u/.config/fish"));
    assert!(!granted(&policy, Access::Protect, "/home/u/.local/bin"));
    let above = host().option(Key::Write, "/home").policy();
    assert!(granted(&above, Access::Protect, "/home/u/.bashrc"));
    let exact = host()
        .with(|files| files.directory("/home/u/.local/bin"))
        .option(Key::Write, "~/.local/bin")
        .policy();
    assert!(!granted(&exact, Access::Protect, "/home/u/.local/bin"));
}

#[test]
fn root_does_not_see_what_only_root_could() {
    let mut host =
        host().with(|files| files.file("/etc/shadow", "").file("/etc/ssh/ssh_host_rsa_key", ""));
    assert!(!granted(&host.policy(), Access::Deny, "/etc/shadow"));
    host.uid = 0;
    assert!(granted(&host.policy(), Access::Deny, "/etc/shadow"));
    assert!(!host.read("/etc/ssh/ssh_host_rsa_key").allowed);
    assert!(host.read("/etc/passwd").allowed);
}

#[test]
fn an_empty_list_of_grants_withdraws_and_one_of_refusals_does_not() {
    let base = "[filesystem]\nread = [\"/usr\"]\ndeny = [\"/etc/x\"]\n[network]\nallow = [\"a.example\"]\n";
    let empty = "extends = [\"base\"]\n[filesystem]\nread = []\ndeny = []\n[network]\nallow = []\n";
    let host = host()
        .with(|files| files.file("/home/u/.config/ringfence/profiles/base.toml", base))
        .own(empty);
    let policy = host.policy();
    assert!(!granted(&policy, Access::Read, "/usr"));
    assert!(granted(&policy, Access::Deny, "/etc/x"));
    assert!(policy.network.allow.is_empty());
    assert_eq!(policy.network.mode, NetworkMode::None);
}

#[test]
fn later_profiles_and_options_replace_single_values_and_add_to_lists() {
    let host = host()
        .own("home = \"host\"\ntier = \"process\"\n[filesystem]\nread = [\"/usr\"]\n[limits]\nmemory = \"1GiB\"\npids = 10\ncpus = 1.5\ntimeout = \"1m\"\n[environment]\nset = { A = \"1\", B = 2 }")
        .option(Key::Memory, "2GiB")
        .option(Key::Home, "agent")
        .option(Key::Set, "A=3")
        .option(Key::AllowHost, "example.org");
    let policy = host.policy();
    assert_eq!(policy.limits.memory, Some(2 << 30));
    assert_eq!((policy.limits.pids, policy.limits.cpus), (Some(10), Some(1500)));
    assert_eq!(policy.limits.timeout, Some(Duration::from_secs(60)));
    assert_eq!(policy.home, Home::Named("agent".to_owned()));
    assert_eq!(policy.tier, TierChoice::Process);
    assert_eq!(policy.environment.set["A"].0, "3");
    assert_eq!(policy.environment.set["B"].0, "2");
    assert_eq!(policy.network.mode, NetworkMode::Filtered);
}

#[test]
fn the_users_profile_can_build_on_the_shipped_one_of_its_name() {
    let own = "extends = [\"default\"]\n[limits]\npids = 7\n";
    let host =
        host().with(|files| files.file("/home/u/.config/ringfence/profiles/default.toml", own));
    let policy = host.policy();
    assert_eq!(policy.limits.pids, Some(7));
    assert!(granted(&policy, Access::Read, "/usr"));
}

#[test]
fn circles_and_unknown_names_are_refused() {
    let circle = host()
        .with(|files| {
            files
                .file("/home/u/.config/ringfence/profiles/a.toml", "extends = [\"b\"]")
                .file("/home/u/.config/ringfence/profiles/b.toml", "extends = [\"a\"]")
        })
        .profile("a");
    assert_eq!(circle.error(), "profile `a` extends itself: a → b → a");
    let feature = |name: &str, text: &str| {
        (format!("/home/u/.config/ringfence/features/{name}.toml"), text.to_owned())
    };
    let features = [feature("x", "requires = [\"y\"]"), feature("y", "requires = [\"x\"]")];
    let circle = host()
        .with(|files| features.iter().fold(files, |files, (path, text)| files.file(path, text)))
        .own("features = [\"x\"]");
    assert_eq!(circle.error(), "feature `x` requires itself: x → y → x");
    assert_eq!(
        host().profile("defualt").error(),
        "there is no profile `defualt`; the nearest is `default`"
    );
    let by = host().own("features = [\"pyton\"]").error();
    assert_eq!(by, "there is no feature `pyton` (named by profile own); the nearest is `python`");
    assert!(host().profile("../../etc/passwd").resolve().is_err());
    let mut deep = host();
    for level in 0..20 {
        let path = format!("/home/u/.config/ringfence/profiles/p{level}.toml");
        let text = format!("extends = [\"p{}\"]", level + 1);
        deep = deep.with(|files| files.file(&path, &text));
    }
    assert!(deep.profile("p0").error().contains("more than 10 levels"));
}

#[test]
fn bad_values_name_their_rule_and_a_right_one() {
    let cases = [
        (
            Key::Memory,
            "4GBi",
            "option --memory \"4GBi\": `4GBi` is no size; write for example `4GiB`",
        ),
        (
            Key::Tier,
            "proces",
            "option --tier \"proces\": `proces` is none of `auto`, `process`, `namespace`, `vm`; the nearest is `process`",
        ),
        (Key::AllowDegraded, "landlok", "; the nearest is `landlock`"),
        (Key::AllowHost, "localhost", "name the port of the host's own loopback"),
        (Key::Mode, "ful", "is none of `none`, `filtered`, `host`"),
        (Key::Read, "/a\0b", "it holds a NUL"),
        (Key::Read, "$NOWHERE/x", "the variable NOWHERE is not set"),
        (Key::Home, "../x", "is no home"),
        (Key::Publish, "0", "is no port"),
        (Key::Timeout, "soon", "is no duration"),
    ];
    for (key, value, expected) in cases {
        let message = host().option(key, value).error();
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn patterns_in_grants_read_one_directory_and_no_tree() {
    let host = host()
        .with(|files| {
            files
                .file("/home/u/project/a.conf", "")
                .file("/home/u/project/.b.conf", "")
                .file("/home/u/project/src/c.conf", "")
        })
        .own("[filesystem]\nread = [\"./*.conf\"]");
    let policy = host.policy();
    let paths: Vec<_> = policy.paths.iter().map(|rule| rule.path.display().to_string()).collect();
    assert_eq!(paths, ["/home/u/project/a.conf"]);
    let message = crate::common::host().option(Key::Read, "./**/x").error();
    assert!(message.contains("name the tree"), "{message}");
    assert!(crate::common::host().option(Key::Deny, "./**/x").resolve().is_ok());
}

#[test]
fn two_thousand_rules_resolve() {
    let mut host = host();
    for index in 0..2_000 {
        let path = format!("/home/u/project/src/{index}");
        host.files.0.insert(path.clone().into(), Fake::Directory);
        host = host.option(Key::Read, path);
    }
    assert!(host.policy().paths.len() > 2_000);
}

#[test]
fn a_granted_agent_socket_passes_its_variable_on() {
    let host = host()
        .with(|files| files.with("/run/agent.sock", Fake::Socket))
        .env("SSH_AUTH_SOCK", "/run/agent.sock");
    assert!(host.policy().environment.hides("SSH_AUTH_SOCK").is_some());
    let granted = host.option(Key::Sockets, "$SSH_AUTH_SOCK");
    assert!(granted.policy().environment.hides("SSH_AUTH_SOCK").is_none());
}

#[test]
fn a_file_of_its_own_names_no_other_file() {
    let project = |text: &str| {
        host()
            .with(|files| {
                files.file("/home/u/project/p.toml", text).file("/home/u/project/q.toml", "")
            })
            .profile("./p.toml")
    };
    assert!(project("extends = [\"./q.toml\"]").error().contains("names the file `./q.toml`"));
    assert!(project("features = [\"q.toml\"]").resolve().is_err());
    assert!(project("extends = [\"default\"]").resolve().is_ok());
    let own = host()
        .with(|files| files.file("/home/u/.config/ringfence/profiles/base.toml", ""))
        .own("extends = [\"./base.toml\"]");
    assert!(own.resolve().is_ok());
}

#[test]
fn a_profile_at_hand_counts_after_the_named_ones() {
    let mut host = host();
    let text = "[limits]\npids = 9\n[filesystem]\nread = [\"/etc/passwd\"]\n";
    host.request.inline.push(("file /home/u/project/ringfence.toml".into(), text.into()));
    let policy = host.policy();
    assert_eq!(policy.limits.pids, Some(9));
    assert_eq!(policy.profiles, ["profile default", "file /home/u/project/ringfence.toml"]);
    host.request.inline[0].1 = "extends = [\"./x.toml\"]".into();
    assert!(host.resolve().is_err());
    host.request.inline[0].1 = "[limits]\npid = 9".into();
    assert!(
        host.error()
            .starts_with("file /home/u/project/ringfence.toml, line 2: there is no key `pid`")
    );
}

#[test]
fn whoever_has_no_home_gets_no_system_directory() {
    let mut host = host().cwd("/etc");
    host.home = "/".into();
    assert!(!granted(&host.policy(), Access::Write, "/etc"));
    let mut host = crate::common::host().cwd("/srv/x");
    host.home = "/".into();
    assert!(granted(&host.policy(), Access::Write, "/srv/x"));
    assert!(!host.write("/var/x").allowed);
}

#[test]
fn a_tool_whose_registry_is_not_known_is_named() {
    let policy = host().own("features = [\"node\"]").policy();
    assert_eq!(
        policy.warnings,
        ["npm's settings name no registry: allow the one it uses with --allow-host"]
    );
}

#[test]
fn a_registry_is_not_asked_for_where_no_rule_would_apply_or_one_names_a_host() {
    let profile = |network: &str| format!("features = [\"node\"]\n[network]\n{network}");
    for network in [
        "mode = \"none\"",
        "mode = \"host\"",
        "allow = [\"a.example\"]",
        "http = [\"GET a.example\"]",
    ] {
        let policy = host().own(&profile(network)).policy();
        assert_eq!(policy.warnings, [""; 0], "{network}");
    }
    // The control.
    assert_eq!(host().own(&profile("mode = \"filtered\"")).policy().warnings.len(), 1);
}

#[test]
fn a_call_that_there_is_not_is_told_with_the_nearest() {
    // Also where no list is asked for: the name was meant for when one is.
    for mode in ["", "mode = \"learned\"\n"] {
        let text = |name: &str| format!("[syscalls]\n{mode}allow = [\"{name}\"]");
        let said = host().own(&text("mkdri")).error();
        assert!(
            said.ends_with("there is no system call \"mkdri\"; the nearest is `mkdir`"),
            "{said}"
        );
        // One of other architectures is one: a list is for all.
        assert!(host().own(&text("riscv_hwprobe")).resolve().is_ok());
    }
}
