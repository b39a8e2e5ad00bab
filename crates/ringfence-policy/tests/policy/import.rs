//! Peers' settings as profiles.

use ringfence_policy::import::{Imported, Peer, import};
use ringfence_policy::{Key, Profile};

fn read(peer: Peer, text: &str) -> Imported {
    let imported = import(peer, text).unwrap();
    let again = Profile::from_toml(&imported.toml, "imported").unwrap();
    assert_eq!(again.values, imported.profile.values);
    let host = crate::common::host().own(&imported.toml);
    assert!(host.resolve().is_ok(), "{:?}\n{}", host.resolve(), imported.toml);
    imported
}

fn list(imported: &Imported, key: Key) -> Vec<&str> {
    imported.profile.list(key).unwrap_or_default().iter().map(|text| &**text).collect()
}

fn noted(imported: &Imported, part: &str) -> bool {
    imported.notes.iter().any(|note| note.contains(part))
}

#[test]
fn claude() {
    let imported = read(
        Peer::Claude,
        r#"{
            // Team settings
            "permissions": {
                "allow": ["Read(~/notes/**)", "Edit(/src/**)", "Edit(//data/x)", "WebFetch(domain:docs.example.org)", "Bash(npm run test:*)"],
                "deny": ["Read(./.env)", "Read(./secrets/**)", "Edit(.github/workflows/**)", "WebFetch(domain:evil.example)", "WebSearch", "Read(**/*.pem)"],
                "ask": ["Bash(git push:*)"],
                "additionalDirectories": ["../docs/"],
                "defaultMode": "acceptEdits",
            },
            "sandbox": {"enabled": true, "excludedCommands": ["docker"], "network": {"allowUnixSockets": ["~/.agent.sock", "*"], "allowLocalBinding": true, "allowedDomains": ["*.example.org"]},
                "filesystem": {"denyRead": ["~/.aws"], "allowWrite": ["//var/cache/x", "/var/y"]}},
            "env": {"CI": "1", "MY_TOKEN": "hunter2"},
            "hooks": {"PreToolUse": []},
            "cleanupPeriodDays": 20,
        }"#,
    );
    assert_eq!(list(&imported, Key::Read), ["~/notes?"]);
    assert_eq!(
        list(&imported, Key::Write),
        ["./src?", "/data/x?", "../docs/?", "/var/cache/x?", "/var/y?"]
    );
    assert_eq!(list(&imported, Key::Deny), ["./.env", "./secrets", "~/.aws"]);
    assert_eq!(list(&imported, Key::Protect), [".github/workflows"]);
    assert_eq!(list(&imported, Key::AllowHost), ["docs.example.org", "*.example.org"]);
    assert_eq!(list(&imported, Key::DenyHost), ["evil.example:*"]);
    assert_eq!(list(&imported, Key::Sockets), ["~/.agent.sock?"]);
    for part in [
        "npm run test",
        "WebSearch",
        "git push",
        "docker",
        "env.MY_TOKEN",
        "cleanupPeriodDays",
        "`hooks`",
        "**/*.pem",
        "defaultMode",
        "named one by one",
    ] {
        assert!(noted(&imported, part), "{part}: {:#?}", imported.notes);
    }
    assert!(!imported.toml.contains("hunter2") && !imported.notes.concat().contains("hunter2"));
    assert!(!noted(&imported, "sandbox.enabled"));
}

#[test]
fn srt() {
    let imported = read(
        Peer::Srt,
        r#"{
            "network": {"allowedDomains": ["github.com", "*.github.com", "api.example.org:8443", "localhost"], "deniedDomains": ["bad.example"],
                "allowUnixSockets": ["/run/docker.sock"], "allowLocalBinding": false, "allowAllUnixSockets": true},
            "filesystem": {"denyRead": ["~/.ssh"], "allowWrite": [".", "src/", "/tmp"], "denyWrite": [".env", "config/*.pem"], "allowGitConfig": true},
            "ignoreViolations": {"*": ["/usr/bin"]}, "enableWeakerNestedSandbox": true, "mandatoryDenySearchDepth": 3
        }"#,
    );
    assert_eq!(
        list(&imported, Key::AllowHost),
        ["github.com", "*.github.com", "api.example.org:8443"]
    );
    assert_eq!(list(&imported, Key::DenyHost), ["bad.example:*"]);
    assert_eq!(list(&imported, Key::Write), [".", "src/?", "/tmp?"]);
    assert_eq!(list(&imported, Key::Protect), [".env", "config/*.pem"]);
    for part in [
        "localhost",
        "shows every file",
        "allowGitConfig",
        "allowAllUnixSockets",
        "mandatoryDenySearchDepth",
    ] {
        assert!(noted(&imported, part), "{part}: {:#?}", imported.notes);
    }
}

#[test]
fn fence() {
    let imported = read(
        Peer::Fence,
        r#"{
            "$schema": "x", "extends": "code",
            "network": {"allowedDomains": ["*"], "allowLocalOutbound": true, "allowLocalOutboundPorts": [5432]},
            "filesystem": {"defaultDenyRead": true, "allowRead": ["~/.config/tool", "/opt/[ab]"], "allowExecute": ["/opt/x"], "allowWrite": ["**/dist"]},
            "command": {"deny": ["git push", "rm -rf /"], "useDefaults": true}, "ssh": {"allowedHosts": ["a"]},
            "devices": {"mode": "minimal"}
        }"#,
    );
    assert_eq!(list(&imported, Key::AllowHost), ["*", "localhost:5432"]);
    assert_eq!(list(&imported, Key::Read), ["~/.config/tool?", "/opt/x?"]);
    assert_eq!(list(&imported, Key::Write), Vec::<&str>::new());
    for part in ["extends", "git push", "/opt/[ab]", "**/dist", "`ssh`", "devices.mode"] {
        assert!(noted(&imported, part), "{part}: {:#?}", imported.notes);
    }
    assert!(!noted(&imported, "shows every file") && !noted(&imported, "$schema"));
}

#[test]
fn greywall() {
    let imported = read(
        Peer::Greywall,
        r#"{"network": {"proxyUrl": "socks5://localhost:43052", "forwardPorts": [3000]}, "filesystem": {"allowRead": ["~/.cargo"], "denyRead": ["~/x"]}, "credentials": {"secrets": ["MY_VALUE"]}}"#,
    );
    assert_eq!(list(&imported, Key::AllowHost), ["localhost:3000"]);
    assert!(noted(&imported, "greyproxy") && noted(&imported, "MY_VALUE"));
    assert!(!noted(&imported, "shows every file"));
}

#[test]
fn names_with_special_characters_stay_names() {
    let imported =
        read(Peer::Srt, r#"{"filesystem": {"allowWrite": ["./what?", "./a$b", "./back\\slash"]}}"#);
    assert_eq!(list(&imported, Key::Write), ["./what\\??", "./a\\$b?", "./back\\\\slash?"]);
}

#[test]
fn what_is_no_settings_file_is_refused() {
    for text in ["", "[]", "1", "{", "{\"a\" 1}"] {
        assert!(import(Peer::Srt, text).is_err(), "{text}");
    }
    assert_eq!(
        "cluade".parse::<Peer>().unwrap_err(),
        "`cluade` is none of `claude`, `srt`, `fence`, `greywall`; the nearest is `claude`"
    );
}

#[test]
fn the_root_is_not_granted_for_writing_since_no_profile_may() {
    let imported =
        read(Peer::Claude, r#"{"permissions": {"additionalDirectories": ["/", "/srv"]}}"#);
    assert!(
        list(&imported, Key::Write).iter().all(|rule| !rule.trim_matches(['/', '?']).is_empty())
    );
    assert!(noted(&imported, "is the root of the file system"));
}

#[test]
fn no_variable_is_written_that_no_program_can_have() {
    let text = r#"{"env": {"A": "\u0000b", "B=": "x", "": "y", "KEPT": "z"}}"#;
    let imported = read(Peer::Claude, text);
    assert!(noted(&imported, "`env.A`") && noted(&imported, "`env.B=`"), "{:?}", imported.notes);
    assert!(imported.toml.contains("KEPT"), "{}", imported.toml);
}

/// A rule that names nothing but its tool is about all of it.
#[test]
fn what_is_denied_or_asked_about_as_a_whole_is_not_granted() {
    for (allow, other) in [
        ("WebFetch(domain:example.org)", "WebFetch"),
        ("WebFetch(domain:example.org)", "WebFetch(domain:*)"),
        ("WebFetch(domain:example.org)", "WebFetch(domain:example.org)"),
        ("Read(~/x)", "Read"),
        ("Grep(~/x)", "Read(**)"),
        ("Edit(~/x)", "Edit"),
        ("Write(~/x)", "Edit(*)"),
        ("Edit(~/x)", "Read"),
    ] {
        for list in ["deny", "ask"] {
            let settings = serde_json::json!({"permissions": {"allow": [allow], list: [other]}});
            let imported = read(Peer::Claude, &settings.to_string());
            for key in [Key::Read, Key::Write, Key::AllowHost] {
                assert_eq!(imported.profile.list(key), None, "{allow} {list} {other}");
            }
            assert!(noted(&imported, "overruled"), "{:?}", imported.notes);
        }
    }
    // The control: others do not overrule.
    let settings = r#"{"permissions": {"allow": ["WebFetch(domain:a.example)", "Read(~/x)"], "deny": ["WebFetch(domain:b.example)", "Edit"]}}"#;
    let imported = read(Peer::Claude, settings);
    assert_eq!(list(&imported, Key::AllowHost), ["a.example"]);
    assert_eq!(list(&imported, Key::Read), ["~/x?"]);
}

/// The runtime's own example of a workspace alone: with the deny, nothing would start.
#[test]
fn what_is_allowed_again_within_something_denied_is_not_denied() {
    for (denied, again) in [
        ("~", "."),
        ("~/", "."),
        ("/Users", "."),
        ("/home/*", "."),
        ("/home/ada", "~/code"),
        ("/", "/usr"),
        ("/data/**", "/data/public"),
        ("~/a", "/home/ada/a/b"),
        ("~/a/x/..", "~/a/b"),
    ] {
        for list_of in ["allowRead", "allowWrite"] {
            let files = serde_json::json!({"denyRead": [denied, "~/.ssh"], list_of: [again]});
            let key = if list_of == "allowRead" { Key::Read } else { Key::Write };
            let srt = read(Peer::Srt, &serde_json::json!({"filesystem": files}).to_string());
            let claude = serde_json::json!({"sandbox": {"filesystem": files}});
            for imported in [srt, read(Peer::Claude, &claude.to_string())] {
                assert_eq!(list(&imported, Key::Deny), ["~/.ssh"], "{denied} {again}");
                assert_eq!(list(&imported, key).len(), 1, "{denied} {again}");
                let why = format!("`{denied}` holds `{again}`, which is allowed again");
                assert!(noted(&imported, &why), "{:?}", imported.notes);
            }
        }
    }
    // The same path is no deny at all, but where it is allowed for writing only.
    let imported = read(
        Peer::Srt,
        r#"{"filesystem": {"denyRead": ["~/a", "~/b"], "allowRead": ["~/a/x", "~/a/"], "allowWrite": ["~/b"]}}"#,
    );
    assert_eq!(list(&imported, Key::Deny), ["~/b"]);
    assert!(noted(&imported, "`~/a` is allowed again by `filesystem.allowRead`"));
}

/// What would be shown without the deny stays denied, and what is not allowed again is told.
#[test]
fn what_lies_within_something_granted_stays_denied() {
    for (denied, again, granted) in [
        ("./secrets", "./secrets/public", "."),
        ("secrets", "./secrets/public", "."),
        ("~/code/keys", "~/code/keys/public", "~/code"),
    ] {
        let files = serde_json::json!({"denyRead": [denied], "allowRead": [again], "allowWrite": [granted]});
        let imported = read(Peer::Srt, &serde_json::json!({"filesystem": files}).to_string());
        assert_eq!(list(&imported, Key::Deny), [denied]);
        let why = format!("`filesystem.allowRead`: `{again}` lies within `{denied}`");
        assert!(noted(&imported, &why), "{:?}", imported.notes);
    }
    // The controls: no exception, and none by a peer whose deny counts.
    for (peer, text) in [
        (
            Peer::Srt,
            r#"{"filesystem": {"denyRead": ["~/.aws", "/etc/x", "~x"], "allowRead": ["."]}}"#,
        ),
        (
            Peer::Srt,
            r#"{"filesystem": {"denyRead": ["~/secret*", "~/b/*.pem", "/data/x"], "allowRead": ["~/code", "~/b/c", "/data", ""]}}"#,
        ),
        (
            Peer::Fence,
            r#"{"filesystem": {"denyRead": ["~/.aws", "/etc/x", "~x"], "allowRead": ["~/.aws/config"]}}"#,
        ),
    ] {
        let imported = read(peer, text);
        assert_eq!(list(&imported, Key::Deny).len(), 3, "{:?}", imported.notes);
        assert!(!noted(&imported, "allowed again"));
    }
}

#[test]
fn credentials_that_are_denied_are_hidden() {
    let imported = read(
        Peer::Srt,
        r#"{"credentials": {
            "files": [{"path": "~/.netrc", "mode": "deny"}, {"path": "~/.token", "mode": "mask"}, {"mode": "deny"}, "x"],
            "envVars": [{"name": "PLAIN", "mode": "deny"}, {"name": "GH", "mode": "mask", "injectHosts": ["api.example.org"]},
                {"name": "A*", "mode": "deny"}, {"name": "ODD", "mode": 5}],
            "awsPairs": []
        }}"#,
    );
    assert_eq!(list(&imported, Key::Deny), ["~/.netrc", "~/.token"]);
    assert_eq!(list(&imported, Key::Hide), ["PLAIN", "GH", "ODD"]);
    for part in [
        "`~/.token` is hidden, not masked; to put it into requests, add `HOST HEADER={file:~/.token}`",
        "requests (for api.example.org), add `HOST HEADER={env:GH}` to `inject` under [network]",
        "`A*` is no name",
        "the mode of `ODD` is 5",
        "holds \"x\", which has no `path`",
        "holds {\"mode\":\"deny\"}, which has no `path`",
        "`credentials.awsPairs`",
    ] {
        assert!(noted(&imported, part), "{part}: {:#?}", imported.notes);
    }
    assert!(!noted(&imported, "counterpart") && !noted(&imported, "PLAIN"), "{:?}", imported.notes);
}

#[test]
fn values_of_a_wrong_type_are_told() {
    for (peer, text, parts) in [
        (
            Peer::Srt,
            r#"{"filesystem": {"denyRead": 5, "allowWrite": [7, null], "denyWrite": null, "allowGitConfig": "yes"},
                "network": {"allowLocalBinding": 1, "httpProxyPort": "x", "allowAllUnixSockets": "true"}, "credentials": {"files": {}}}"#,
            &[
                "`filesystem.denyRead` is 5",
                "`filesystem.allowWrite` holds 7",
                "`filesystem.allowWrite` holds null",
                "`filesystem.denyWrite` is null",
                "`filesystem.allowGitConfig` is \"yes\", neither true nor false",
                "`network.allowLocalBinding` is 1",
                "`network.httpProxyPort` is \"x\"",
                "`network.allowAllUnixSockets` is \"true\"",
                "`credentials.files` is {}",
            ][..],
        ),
        (
            Peer::Srt,
            r#"{"filesystem": ["x"], "network": false, "credentials": "x"}"#,
            &["`filesystem` is no object", "`network` is no object", "`credentials` is no object"],
        ),
        (
            Peer::Greywall,
            r#"{"filesystem": {"defaultDenyRead": "no"}}"#,
            &["`filesystem.defaultDenyRead` is \"no\""],
        ),
        (Peer::Fence, r#"{"command": {"useDefaults": 0}}"#, &["`command.useDefaults` is 0"]),
        (
            Peer::Claude,
            r#"{"env": ["hunter2"], "permissions": [], "sandbox": {"enabled": "on"}}"#,
            &["`env` is no object", "`permissions` is no object", "`sandbox.enabled` is \"on\""],
        ),
    ] {
        let imported = read(peer, text);
        for part in parts {
            assert!(noted(&imported, part), "{part}: {:#?}", imported.notes);
        }
        assert!(!imported.notes.concat().contains("hunter2"));
    }
}

#[test]
fn variables_of_peers_are_names_and_what_grants_open_is_told() {
    let imported = read(
        Peer::Claude,
        r#"{
            "permissions": {"allow": ["Read(~/$HOME)", "Read($HOME/*.$x)", "Edit(~)", "Read(//home)", "WebFetch(domain:*)"]},
            "sandbox": {"network": {"allowUnixSockets": ["/var/run/docker.sock"]}},
            "env": {"LD_PRELOAD": "/x.so", "A_TOKEN": "x"}
        }"#,
    );
    let reads = list(&imported, Key::Read);
    assert_eq!(reads, ["~/\\$HOME?", "\\$HOME/*.\\$x?", "/home?"]);
    // Before each run, and when it is imported.
    let dangers = list(&imported, Key::Dangers);
    let wanted = [
        "can be changed (~)",
        "can be read (/home)",
        "to every host",
        "/var/run/docker.sock is root",
    ];
    for part in wanted {
        assert!(dangers.iter().any(|danger| danger.contains(part)), "{part}: {dangers:?}");
        assert!(noted(&imported, part), "{part}: {:?}", imported.notes);
    }
    assert!(noted(&imported, "`env.LD_PRELOAD` (a library of the host"), "{:?}", imported.notes);
    assert!(noted(&imported, "`env.A_TOKEN` ("), "{:?}", imported.notes);
    let harmless =
        read(Peer::Claude, r#"{"permissions": {"allow": ["Read(~/notes)", "Edit(x)"]}}"#);
    assert!(list(&harmless, Key::Dangers).is_empty());
}
