//! What is secret, by place, variable, link and home.

use super::*;

fn of(home: &Path) -> Secrets {
    Secrets::with(vec![home.to_owned()], Vec::new(), Path::new("/project"), &[])
}

#[test]
fn credentials_are_known_by_their_place() {
    let secrets = of(Path::new("/home/u"));
    let secret = |path: &str| secrets.secret(Path::new(path));
    assert!(secret("/home/u/.ssh/id_ed25519").is_some());
    assert!(secret("/home/u/.ssh/known_hosts").is_none());
    assert!(secret("/home/u/.aws").is_some());
    assert!(secret("/home/u/.awsome").is_none());
    assert_eq!(secret("/srv/.ssh/id").as_deref(), Some("by the name of what it is in"));
    assert!(secret("/srv/.sshd/id").is_none() && secret("/srv/.ssh/known_hosts").is_none());
}

#[test]
fn what_is_secret_is_so_where_a_variable_says_that_it_is() {
    let env = [
        ("KUBECONFIG", "/data/one:/data/two"),
        ("DOCKER_CONFIG", "/data/ships"),
        ("npm_config_userconfig", "settings/npm"),
        ("KRB5CCNAME", "FILE:/data/tickets"),
        ("GNUPGHOME", "/data/keys/"),
        // What the home is in, or the project, is no credential.
        ("NETRC", "/home"),
        ("PASSWORD_STORE_DIR", "/project"),
        ("CARGO_HOME", "/home/u"),
        ("HISTFILE", "/"),
    ];
    let env = env.map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let secrets = Secrets::with(vec!["/home/u".into()], Vec::new(), Path::new("/project"), &env);
    let secret = |path: &str| secrets.secret(Path::new(path));
    for (path, why) in [
        ("/data/one", "a cluster's"),
        ("/data/two", "a cluster's"),
        ("/data/ships/config.json", "registries'"),
        ("/project/settings/npm", "npm's"),
        ("/data/tickets", "of Kerberos"),
        ("/data/keys/x", "keys of GnuPG"),
        ("/home/u/credentials.toml", "cargo's"),
    ] {
        assert_eq!(secret(path).as_deref(), Some(why), "{path}");
    }
    for path in ["/data/three", "/data/ships/daemon.json", "/home/u/x", "/project/x", "/etc/x"] {
        assert_eq!(secret(path), None, "{path}");
    }
    assert!(secrets.tree(Path::new("/data/ships")).is_some(), "with or without one in it");
    let hidden = secrets.hidden(&[], &|path| path == Path::new("/data/two"));
    let hides = |path: &str| hidden.contains(&path.into());
    assert!(
        ["/data/one", "/data/ships/config.json", "/data/tickets", "/data/keys"].map(hides)
            == [true; 4]
    );
    assert!(["/data/two", "/home", "/project", "/home/u", "/data"].map(hides) == [false; 5]);
}

#[test]
fn what_is_secret_is_so_in_each_home() {
    let homes = ["/tmp/other", "/home/u"].map(PathBuf::from).to_vec();
    let others = ["/home/v", "/home"].map(PathBuf::from).to_vec();
    let secrets = Secrets::with(homes, others, Path::new("/project"), &[]);
    let secret = |path: &str| secrets.secret(Path::new(path));
    for path in ["/tmp/other/.netrc", "/home/u/.kube/config", "/home/v/.config/gh"] {
        assert!(secret(path).is_some(), "{path}");
    }
    assert!(secret("/home/u/.config/app").is_none() && secret("/srv/.netrc2").is_none());
    let tree = |path: &str| secrets.tree(Path::new(path));
    for path in ["/home/u", "/home/v", "/home/v/x/y", "/tmp/other", "/home/u/.config"] {
        assert!(tree(path).is_some(), "{path}");
    }
    assert_eq!(tree("/home/u/.config/app"), None, "though the other's is above it");
    let root = Secrets::with(vec!["/".into()], vec!["/home/v".into()], Path::new("/project"), &[]);
    assert!(
        root.tree(Path::new("/home/v/x")).is_some() && root.tree(Path::new("/home/w/x")).is_none()
    );
}

#[test]
fn what_leads_to_a_credential_is_one() {
    let place = tempfile::tempdir().expect("a directory");
    let root = place.path().canonicalize().expect("a directory");
    let (home, data) = (root.join("home"), root.join("data"));
    for directory in [home.join(".kube"), home.join(".docker"), home.join("plain"), data.join("gh")]
    {
        std::fs::create_dir_all(directory).expect("a directory");
    }
    std::fs::create_dir(home.join(".config")).expect("a directory");
    for file in [".kube/config", ".netrc", "plain/file"] {
        std::fs::write(home.join(file), "x").expect("a file");
    }
    let link = |at: &str, to: &Path| {
        std::os::unix::fs::symlink(to, home.join(at)).expect("a link");
    };
    link("one", &home.join(".netrc"));
    link("two", Path::new("one"));
    link("cluster", Path::new("./.kube"));
    link("ships", &home.join(".docker"));
    link("all", &home);
    link("up", &root);
    link("fine", &home.join("plain"));
    // A credential that is a link, by the name of what it leads to.
    link(".config/gh", &data.join("gh"));
    link(".bash_history", Path::new("/dev/null"));
    let secrets = of(&home);
    let secret = |path: &str| secrets.secret(&home.join(path));
    assert_eq!(secret("one").as_deref(), Some("of many programs, by a link to ~/.netrc"));
    for path in ["two", "cluster", "cluster/config", "cluster/new", "all/.netrc", "up/home/one"] {
        assert!(secret(path).is_some(), "{path}");
    }
    assert!(secrets.secret(&data.join("gh/hosts.yml")).is_some());
    for path in ["fine", "fine/file", "ships", "ships/daemon.json", "gone", "../data"] {
        assert_eq!(secret(path), None, "{path}");
    }
    assert_eq!(secrets.secret(Path::new("/dev/null")), None);
    let tree = |path: &str| secrets.tree(&home.join(path));
    for path in ["cluster", "ships", "all", "up", "all/.config", "up/data", "all/.docker"] {
        assert!(tree(path).is_some(), "{path}");
    }
    assert!(secrets.tree(&data).is_some() && secrets.tree(&home).is_some());
    assert_eq!((tree("fine"), tree("plain"), tree("all/plain")), (None, None, None));
}

#[test]
fn what_speaks_for_a_user_of_many_programs_is_known() {
    let home = Path::new("/home/u");
    for name in [
        ".authinfo",
        ".smbcredentials",
        ".subversion/auth/svn.simple/a",
        ".config/filezilla/sitemanager.xml",
        ".config/weechat/sec.conf",
        ".terraformrc",
        ".vnc/passwd",
        ".local/share/atuin/key",
        ".zhistory",
        ".lesshst",
        ".Xauthority",
        ".envrc",
        ".config/nix/nix.conf",
        ".config/unknown/token",
    ] {
        assert!(of(home).secret(&home.join(name)).is_some(), "{name}");
    }
    for name in [".subversion/config", ".config/nix/registry.json", ".local/share/app/data"] {
        assert!(of(home).secret(&home.join(name)).is_none(), "{name}");
    }
}

#[test]
fn what_is_secret_is_so_where_its_base_directory_was_moved_to() {
    let home = Path::new("/home/u");
    let to = |base: &'static str| {
        let env = [("XDG_CONFIG_HOME".into(), base.into())];
        Secrets::with(vec![home.to_owned()], Vec::new(), Path::new("/project"), &env)
    };
    let elsewhere = to("/data/settings");
    let is = |path: &str, secrets: &Secrets| secrets.secret(Path::new(path)).is_some();
    assert!(is("/data/settings/gh/hosts.yml", &elsewhere));
    assert!(is("/home/u/.config/gh/hosts.yml", &elsewhere), "another program left it there");
    assert!(!is("/data/settings/x", &elsewhere));
    assert!(is("/home/u/.ssh/id", &to("/home/u")));
    assert!(is("/home/u/gh/hosts.yml", &to("/home/u")));
}

/// Whoever adds an agent names what it logs in with.
#[test]
fn the_login_of_each_agent_is_known() {
    let presets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../profiles");
    let mut agents = 0;
    for preset in std::fs::read_dir(presets).expect("the presets") {
        let text = std::fs::read_to_string(preset.expect("a preset").path()).expect("a preset");
        if !text.contains("_API_KEY\"") {
            continue;
        }
        agents += 1;
        let of_it = |(path, _): &&(&str, &str)| {
            let directory = Path::new(path).parent().unwrap_or(Path::new(""));
            let named = format!("~/{}", directory.display());
            named.len() > 2
                && [&format!("\"{named}"), &format!(":-{named}}}")]
                    .iter()
                    .any(|name| text.contains(*name))
        };
        assert!(AGENTS.iter().any(|agent| of_it(&agent)), "{text}");
    }
    assert!(agents >= 11, "{agents}");
}

#[test]
fn what_is_granted_is_shown_and_what_is_beside_it_is_not() {
    let home = Path::new("/home/u");
    let all = |granted: &dyn Fn(&Path) -> bool| of(home).hidden(&[], granted);
    let places =
        [".claude/.credentials.json", ".Xauthority", ".ssh", ".npmrc", ".config/pip/pip.conf"];
    for place in places.map(|place| home.join(place)) {
        assert!(all(&|_| false).contains(&place), "{place:?}");
        let learnt = all(&|path| path == place);
        assert!(!learnt.contains(&place) && learnt.contains(&home.join(".aws")), "{place:?}");
    }
    let held = tempfile::tempdir().expect("a directory");
    let home = held.path().canonicalize().expect("its name");
    std::fs::create_dir_all(home.join("dots/sso")).expect("made");
    std::os::unix::fs::symlink("dots", home.join(".aws")).expect("made");
    for file in ["config", "credentials", "sso/granted", "sso/token"] {
        std::fs::write(home.join("dots").join(file), "").expect("written");
    }
    let (one, two) = (home.join("dots/config"), home.join("dots/sso/granted"));
    let learnt = of(&home).hidden(&[&one, &two], &|path| path == one || path == two);
    for (name, hides) in [
        (".aws", false),
        ("dots", false),
        ("dots/config", false),
        ("dots/sso", false),
        ("dots/sso/granted", false),
        ("dots/credentials", true),
        ("dots/sso/token", true),
        (".ssh", true),
    ] {
        assert_eq!(learnt.contains(&home.join(name)), hides, "{name}: {learnt:?}");
    }
}

#[test]
fn what_is_the_users_outside_of_the_home_is_known() {
    let secrets = of(Path::new("/home/u"));
    for path in ["/var/mail", "/var/mail/u", "/var/spool/mail/u", "/home/u/Maildir/new/1"] {
        assert!(secrets.secret(Path::new(path)).is_some(), "{path}");
    }
    for path in ["/var/mails", "/var/spool/x", "/home/u/Mailbox"] {
        assert!(secrets.secret(Path::new(path)).is_none(), "{path}");
    }
    let tree = |path: &str| secrets.tree(Path::new(path));
    for path in ["/sys", "/sys/fs", "/sys/fs/cgroup", "/sys/fs/cgroup/system.slice", "/"] {
        assert!(tree(path).is_some(), "{path}");
    }
    for path in ["/sys/class", "/sys/fs/ext4", "/sys/devices/system"] {
        assert_eq!(tree(path), None, "{path}");
    }
}

/// The table that is looked up says what the lists say, the first of them that is about a path.
#[test]
fn what_is_looked_up_is_what_the_lists_say() {
    let naive = |name: &Path| {
        let known = name == Path::new(".ssh/known_hosts") || name == Path::new(".ssh/known_hosts2");
        let mut all = SECRETS.iter().chain(&AGENTS).filter(|_| !known);
        all.find(|(secret, _)| name.starts_with(secret)).map(|(_, why)| *why)
    };
    let mut asked: Vec<PathBuf> =
        ["", "x", ".", ".ssh/known_hosts", ".ssh/known_hosts2", ".ssh/known_hosts/x"]
            .map(PathBuf::from)
            .to_vec();
    for (place, _) in SECRETS.iter().chain(&AGENTS) {
        let place = Path::new(place);
        asked.extend(place.ancestors().map(Path::to_owned));
        asked.extend([place.join("x"), place.join("x/y z"), place.with_extension("other")]);
        asked.push(format!("{}x", place.display()).into());
        asked.push(Path::new("x").join(place));
    }
    for name in &asked {
        assert_eq!(listed(name), naive(name), "{}", name.display());
    }
    assert!(
        asked.iter().filter(|name| listed(name).is_some()).count() > SECRETS.len(),
        "the control"
    );
}
