//! What a policy makes of sockets, published ports and certificates that variables name.

use crate::common::{Host, host};
use ringfence_policy::files::Fake;
use ringfence_policy::{Access, Key, Transport};
use std::path::Path;

#[test]
fn a_directory_and_a_file_are_no_sockets() {
    let host = |path: &str| {
        host()
            .with(|files| files.with("/srv/sockets/a", Fake::Socket).file("/srv/text", "secret"))
            .option(Key::Sockets, path)
    };
    assert!(host("/srv/sockets/a").resolve().is_ok());
    assert!(host("/srv/sockets/none?").resolve().is_ok());
    for optional in ["", "?"] {
        let error = host(&format!("/srv/sockets{optional}")).error();
        assert!(error.contains("name the socket itself"), "{error}");
        let error = host(&format!("/srv/text{optional}")).error();
        assert!(error.contains("it is no socket"), "{error}");
    }
}

#[test]
fn a_port_inside_is_published_once_for_each_family() {
    let all = |texts: &[&str]| {
        texts.iter().fold(host(), |host, text| host.option(Key::Publish, *text)).resolve()
    };
    assert!(all(&["3600", "[::1]:3600:3600", "3600/udp", "3601"]).is_ok());
    assert_eq!(all(&["3600", "127.0.0.1:3600:3600"]).unwrap().network.publish.len(), 1);
    for wrong in [
        ["3600", "3601:3600"],
        ["3600", "127.0.0.2:3600:3600"],
        ["3600/udp", "[::1]:3600:3600/udp"],
    ] {
        let error = all(&wrong).unwrap_err().to_string();
        assert!(error.contains("is published already, by `"), "{error}");
    }
}

#[test]
fn published_ports_are_read() {
    let host = host()
        .option(Key::Publish, "3000")
        .option(Key::Publish, "0.0.0.0:80:8080")
        .option(Key::Publish, "[::1]:90")
        .option(Key::Publish, "53:5353/udp")
        .option(Key::Publish, "443/tcp");
    let publish: Vec<_> = host
        .policy()
        .network
        .publish
        .iter()
        .map(|p| (p.address.to_string(), p.host_port, p.port, p.transport))
        .collect();
    assert_eq!(
        publish,
        [
            ("127.0.0.1".to_owned(), 3000, 3000, Transport::Tcp),
            ("0.0.0.0".to_owned(), 80, 8080, Transport::Tcp),
            ("::1".to_owned(), 90, 90, Transport::Tcp),
            ("127.0.0.1".to_owned(), 53, 5353, Transport::Udp),
            ("127.0.0.1".to_owned(), 443, 443, Transport::Tcp),
        ]
    );
}

/// A file of certificates, as far as anybody looks here.
const AUTHORITY: &str = "-----BEGIN CERTIFICATE-----\nMIIBqw==\n-----END CERTIFICATE-----\n";

/// Somebody whose authority is known by a variable alone.
fn corporate(text: &str) -> Host {
    host()
        .with(|files| {
            files.file("/home/u/certs/ca.pem", text).symlink("/home/u/ca", "certs/ca.pem")
        })
        .env("NODE_EXTRA_CA_CERTS", "/home/u/ca")
        .option(Key::AllowHost, "example.org")
}

#[test]
fn certificates_that_a_variable_names_are_shown_where_there_is_a_network() {
    let shown = |host: &Host| {
        let policy = host.policy();
        let file = Path::new("/home/u/certs/ca.pem");
        let rule = policy.paths.iter().find(|rule| rule.path == file).map(|rule| rule.access);
        let hidden = policy.environment.hides("NODE_EXTRA_CA_CERTS").is_some();
        let said = policy.warnings.iter().any(|said| said.starts_with("NODE_EXTRA_CA_CERTS names"));
        (rule, hidden, said)
    };
    let good = corporate(AUTHORITY);
    assert_eq!(shown(&good), (Some(Access::Read), false, false));
    assert!(good.policy().links.contains_key(Path::new("/home/u/ca")));
    let key = AUTHORITY.replace("CERTIFICATE", "PRIVATE KEY");
    for text in [format!("{AUTHORITY}{key}"), key, "a secret".to_owned()] {
        assert_eq!(shown(&corporate(&text)), (None, true, true), "{text}");
    }
    let denied = corporate(AUTHORITY).option(Key::Deny, "~/certs");
    assert_eq!(shown(&denied), (None, true, true));
    // What a rule shows is no business of this one.
    let read = corporate("a secret").option(Key::Read, "~/certs/ca.pem").option(Key::Read, "~/ca");
    assert_eq!(shown(&read), (Some(Access::Read), false, false));
    let set = corporate("a secret").option(Key::Set, "NODE_EXTRA_CA_CERTS=x");
    assert_eq!(shown(&set), (None, false, false));
    let inspected = corporate("a secret").option(Key::Http, "GET example.org/");
    assert_eq!(shown(&inspected), (None, false, false));
    let mut none = corporate("a secret");
    none.request.options.clear();
    assert_eq!(shown(&none), (None, false, false));
}

#[test]
fn a_directory_of_certificates_is_shown_as_a_whole_or_not_at_all() {
    let shown = |other: &str| {
        let host = host()
            .with(|files| {
                files.file("/home/u/certs/a.pem", AUTHORITY).file("/home/u/certs/b", other)
            })
            .with(|files| files.symlink("/home/u/certs/0a1b.0", "a.pem"))
            .env("SSL_CERT_DIR", "/etc:/home/u/certs")
            .option(Key::AllowHost, "example.org");
        let policy = host.policy();
        let rule = policy.paths.iter().any(|rule| rule.path == Path::new("/home/u/certs"));
        (rule, policy.environment.hides("SSL_CERT_DIR").is_some())
    };
    assert_eq!(shown(AUTHORITY), (true, false));
    assert_eq!(shown("a secret"), (false, true));
}

#[test]
fn certificates_that_shown_settings_name_are_shown_and_no_key() {
    let key = AUTHORITY.replace("CERTIFICATE", "PRIVATE KEY");
    for (file, settings, told) in [
        ("/home/u/.config/pip/pip.conf", "[global]\ncert = /home/u/keep/ca.pem\n", true),
        ("/home/u/.cargo/config.toml", "[http]\ncainfo = \"/home/u/keep/ca.pem\"\n", true),
        ("/home/u/.curlrc", "silent\ncacert = \"/home/u/keep/ca.pem\"\n", true),
        ("/home/u/.curlrc", "--cacert /home/u/keep/ca.pem", true),
        ("/home/u/.npmrc", "cafile=~/keep/ca.pem\n", true),
        ("/home/u/.gitconfig", "[http]\n\tsslCAInfo = ~/keep/ca.pem\n", false),
        (
            "/home/u/.config/git/config",
            "[http \"https://git.example/\"]\nsslCAInfo=/home/u/keep/ca.pem\n",
            false,
        ),
    ] {
        let of = |text: &str, option: Option<(Key, &str)>| {
            let host =
                host().with(|files| files.file(file, settings).file("/home/u/keep/ca.pem", text));
            let host = host.option(Key::AllowHost, "example.org");
            let host = match option {
                Some((key, value)) => host.option(key, value),
                None => host,
            };
            let policy = host.policy();
            let rule =
                policy.paths.iter().find(|rule| rule.path == Path::new("/home/u/keep/ca.pem"));
            (
                rule.map(|rule| rule.access),
                policy.warnings.iter().any(|said| said.contains("which holds")),
            )
        };
        let grant = Some((Key::Read, file));
        assert_eq!(of(AUTHORITY, grant), (Some(Access::Read), false), "{settings}");
        for more in [&key, &format!("{AUTHORITY}{key}"), "a secret"] {
            assert_eq!(of(more, grant), (None, told), "{settings}: {more}");
        }
        // What a program can write grants nothing.
        assert_eq!(of(AUTHORITY, Some((Key::Write, file))), (None, false), "{settings}");
        let shown = !file.ends_with("rc") && !file.contains("pip");
        assert_eq!(of(AUTHORITY, None).0.is_some(), shown, "{settings}");
    }
}

/// What asks for one inside fails with words that lead nowhere.
#[test]
fn a_feature_for_an_agent_that_is_not_there_says_so() {
    for (feature, places, start) in [
        ("ssh-agent", "/tmp/nosuch", "eval \"$(ssh-agent)\", and ssh-add"),
        (
            "gpg-agent",
            "/run/user/7/gnupg/S.gpg-agent or /home/u/.gnupg/S.gpg-agent",
            "gpgconf --launch gpg-agent",
        ),
    ] {
        let mut host =
            host().env("SSH_AUTH_SOCK", "/tmp/nosuch").env("XDG_RUNTIME_DIR", "/run/user/7");
        host.request.features.push(feature.to_owned());
        let said = host.policy().warnings;
        let sentence = format!(
            "feature {feature} has no effect: no socket is at {places}; start the agent outside: {start}"
        );
        assert!(said.contains(&sentence), "{said:?}");
    }
    // Of others that may be missing nothing is said.
    let mut host = host();
    host.request.features.push("postgres".to_owned());
    assert!(!host.policy().warnings.iter().any(|said| said.contains("no socket")));
}

#[test]
fn a_grant_that_a_profile_denies_is_told() {
    let of = |profile: &str, option: (Key, &str)| {
        let host = host().with(|files| files.file("/home/u/.git-credentials", ""));
        let host = host
            .profile(profile)
            .option(Key::Read, "~/.git-credentials")
            .option(option.0, option.1);
        let warnings = host.policy().warnings;
        warnings.into_iter().find(|said| said.contains("has no effect"))
    };
    let none = (Key::Read, "/usr");
    assert_eq!(
        of("git", none).expect("it is said"),
        "--read ~/.git-credentials has no effect: feature git denies it (~/.git-credentials), whatever grants \
         it"
    );
    assert_eq!(of("default", none), None);
    // Who wrote both knows of both.
    assert_eq!(of("default", (Key::Deny, "~/.git-credentials")), None);
}
