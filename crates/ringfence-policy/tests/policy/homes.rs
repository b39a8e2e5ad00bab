//! Homes that `HOME` does not say: the account's own, and, for root, those of others.

use crate::common::{Host, host};
use ringfence_policy::{Access, Key, Policy};
use std::path::{Path, PathBuf};

/// Accounts as `/etc/passwd` has them, a line that is none among them.
const ACCOUNTS: &str = "root:x:0:0::/root:/bin/bash\n\
    bin:x:2:2::/bin:/usr/sbin/nologin\n\
    www:x:33:33::/var/www:/usr/sbin/nologin\n\
    u:x:1000:1000:,,,:/home/u:/bin/bash\n\
    broken\n\
    v:x:1001:1001::/home/v:/bin/zsh\n";

fn accounts(home: &str) -> Host {
    let mut host = host().with(|files| files.file("/etc/passwd", ACCOUNTS).directory("/home/v"));
    host.home = PathBuf::from(home);
    host
}

fn writable(policy: &Policy, path: &str) -> bool {
    policy.paths.iter().any(|rule| rule.access == Access::Write && rule.path == Path::new(path))
}

fn held(policy: &Policy, access: Access, path: &str) -> bool {
    policy.paths.iter().any(|rule| rule.access == access && rule.path == Path::new(path))
}

#[test]
fn the_accounts_home_is_no_workspace_whatever_home_says() {
    for home in ["/home/u", "/tmp", "/nonexistent", "/github/home"] {
        for cwd in ["/home/u", "/home", "/home/u/.config/nvim", "/home/u/.ssh"] {
            let host = accounts(home).cwd(cwd);
            let policy = host.policy();
            assert!(!writable(&policy, cwd), "HOME={home} in {cwd}");
            assert_eq!(policy.warnings.len(), 1, "HOME={home} in {cwd}: {:?}", policy.warnings);
            let asked = host.option(Key::Write, ".").policy();
            assert!(writable(&asked, cwd), "HOME={home} in {cwd}");
        }
        // A project is one; so is what others have, for who is not root.
        for cwd in ["/home/u/project", "/srv/work", "/home/v", "/var/www"] {
            assert!(writable(&accounts(home).cwd(cwd).policy(), cwd), "HOME={home} in {cwd}");
        }
    }
    let said = accounts("/tmp/h").cwd("/home/u").policy().warnings;
    assert!(said[0].contains("it is the home directory of your account"), "{said:?}");
}

#[test]
fn for_root_no_home_of_those_who_log_in_is_a_workspace() {
    let root = |cwd: &str| {
        let mut host = accounts("/root").cwd(cwd);
        host.uid = 0;
        host.policy()
    };
    for cwd in ["/root", "/home", "/home/u", "/home/v", "/home/v/.ssh"] {
        assert!(!writable(&root(cwd), cwd), "{cwd}");
    }
    for cwd in ["/home/u/project", "/var/www", "/srv/work"] {
        assert!(writable(&root(cwd), cwd), "{cwd}");
    }
}

#[test]
fn what_is_protected_in_a_home_is_in_the_accounts_too() {
    for (home, tree) in [("/tmp/h", "/home/u"), ("/tmp/h", "/home"), ("/home/u", "/home/u")] {
        let policy = accounts(home).option(Key::Write, tree).policy();
        for name in [".config/autostart", ".local/bin", ".inputrc", ".claude.json"] {
            let path = format!("/home/u/{name}");
            assert!(held(&policy, Access::Protect, &path), "HOME={home} {tree} {name}");
        }
        let state = "/home/u/.local/state/ringfence";
        assert!(held(&policy, Access::Deny, state), "HOME={home} {tree}");
        assert!(!held(&policy, Access::Protect, "/home/u/project/.inputrc"));
    }
    // What a rule refuses of a home is refused of both, what it names elsewhere once.
    let refused = accounts("/tmp/h")
        .option(Key::Write, "/home/u")
        .option(Key::Deny, "~/letters")
        .option(Key::Deny, "/home/u/project/x");
    let policy = refused.policy();
    assert!(held(&policy, Access::Deny, "/home/u/letters"));
    assert!(held(&policy, Access::Deny, "/tmp/h/letters"));
    let once = |rule: &&ringfence_policy::PathRule| rule.path == Path::new("/home/u/project/x");
    assert_eq!(policy.paths.iter().filter(once).count(), 1);
    // With nothing of it granted there is nothing to refuse.
    let apart = accounts("/tmp/h").cwd("/srv/work").option(Key::Deny, "~/letters").policy();
    assert!(!held(&apart, Access::Deny, "/home/u/letters"));
    assert!(held(&apart, Access::Deny, "/tmp/h/letters"));
    // Root's grant of another's.
    let mut host = accounts("/root").option(Key::Write, "/home/v");
    host.uid = 0;
    assert!(held(&host.policy(), Access::Protect, "/home/v/.local/bin"));
}
