//! What is decided, why, and what there is to type; each refusal beside what is allowed.

use crate::common::{Host, host};
use ringfence_policy::decide::{Request, decide};
use ringfence_policy::files::Fake;
use ringfence_policy::{Decision, Key, Subject};
use std::path::Path;

fn connect(host: &Host, name: &str, port: u16) -> Decision {
    decide(&host.policy(), &Request::Connect { host: name.parse().unwrap(), port })
}

fn http(host: &Host, method: &str, url: &str) -> Decision {
    decide(&host.policy(), &Request::Http { method: method.into(), url: url.into() })
}

fn env(host: &Host, name: &str) -> Decision {
    decide(&host.policy(), &Request::Env { name: name.into() })
}

#[test]
fn the_workspace_is_writable_and_the_system_is_not() {
    let host = host();
    assert!(host.write("/home/u/project/src/main.rs").allowed);
    assert!(host.read("/usr/bin/true").allowed);
    let denied = host.write("/usr/bin/true");
    assert!(!denied.allowed);
    assert_eq!(denied.remedy.as_deref(), Some("make it outside, then --write /usr/bin/true"));
    assert_eq!(host.write("/etc/passwd").remedy.as_deref(), Some("--write /etc/passwd"));
    assert_eq!(denied.rule.unwrap().key, "filesystem.read");
}

#[test]
fn a_path_through_a_link_of_the_view_is_judged_where_it_leads() {
    let host = host();
    assert!(host.read("/bin/true").allowed);
    let lexical = decide(&host.policy(), &Request::Read(Subject::lexical(Path::new("/bin/true"))));
    assert!(lexical.allowed, "{lexical}");
}

#[test]
fn the_worse_of_two_spellings_counts() {
    let host = host().with(|files| files.symlink("/home/u/project/keys", "/home/u/.ssh"));
    let decision = host.read("/home/u/project/keys/id_ed25519");
    assert!(!decision.allowed, "{decision}");
    assert!(decision.explanation.contains("leads to /home/u/.ssh/id_ed25519"));
    assert!(host.read("/home/u/project/src").allowed);
}

#[test]
fn dots_do_not_lead_out() {
    assert!(host().write("/home/u/project/../.ssh/authorized_keys").effect.is_some());
    assert!(!host().read("/home/u/project/../.ssh/id_ed25519").allowed);
}

#[test]
fn deny_beats_protect_beats_write_beats_read() {
    let base = || host().option(Key::Read, ".").option(Key::Write, ".");
    assert!(base().write("/home/u/project/x").allowed);
    let protected = base().option(Key::Protect, "x");
    assert!(!protected.write("/home/u/project/x").allowed);
    assert!(protected.read("/home/u/project/x").allowed);
    let denied = base().option(Key::Protect, "x").option(Key::Deny, "x");
    assert!(!denied.read("/home/u/project/x/y").allowed);
    assert_eq!(denied.read("/home/u/project/x").remedy.as_deref(), Some("leave out --deny x"));
    assert!(
        !base().option(Key::Deny, "x").option(Key::Write, "x?").write("/home/u/project/x").allowed
    );
}

#[test]
fn a_denied_pattern_covers_what_it_names() {
    let host = host().option(Key::Deny, "*.pem");
    assert!(!host.read("/home/u/project/a.pem").allowed);
    assert!(host.read("/home/u/project/a.pub").allowed);
    assert!(host.read("/home/u/project/src/a.pem").allowed);
    let everywhere = crate::common::host().option(Key::Deny, "**/.env");
    assert!(!everywhere.read("/home/u/project/src/.env").allowed);
}

#[test]
fn what_hosts_execute_is_protected_at_any_depth() {
    let host = host();
    let paths = [
        ".git/hooks/pre-commit",
        ".git/config",
        "vendor/x/.git/config",
        ".vscode/tasks.json",
        "a/b/.envrc",
        ".mcp.json",
        ".claude/settings.json",
        ".husky/pre-commit",
        "sub/.git/modules/m/hooks/post-checkout",
        ".cargo/config.toml",
        ".bashrc",
        "my.code-workspace",
        ".git/commondir",
    ];
    for path in paths {
        let decision = host.write(&format!("/home/u/project/{path}"));
        assert!(!decision.allowed, "{path}");
        assert_eq!(decision.layer, "protect");
        assert!(decision.remedy.unwrap().starts_with("--write '?/home/u/project/"), "{path}");
        assert!(host.read(&format!("/home/u/project/{path}")).allowed, "{path}");
    }
    let free = [
        ".git/index",
        ".git/objects/ab/cd",
        ".git/refs/heads/main",
        ".claude/notes.md",
        "package.json",
        "src/.bashrc",
        ".github/workflows/ci.yml",
        "hooks/x",
        ".gitignore",
    ];
    for path in free {
        let decision = host.write(&format!("/home/u/project/{path}"));
        assert!(decision.allowed, "{path}: {decision}");
    }
}

#[test]
fn exactly_a_protected_path_can_be_granted() {
    let host = host().with(|files| {
        files.directory("/home/u/project/.vscode").directory("/home/u/project/.idea/x")
    });
    assert!(!host.write("/home/u/project/.vscode/tasks.json").allowed);
    let host = host.option(Key::Write, ".vscode").option(Key::Write, ".idea/x");
    assert!(host.write("/home/u/project/.vscode/tasks.json").allowed);
    // One that does not exist yet can be, too; `why` says how.
    assert!(!host.write("/home/u/project/.envrc").allowed);
    let host = host.option(Key::Write, "?/home/u/project/.envrc");
    assert!(host.write("/home/u/project/.envrc").allowed);
    // What is in it is not it: the rest would be free as well.
    assert!(!host.write("/home/u/project/.idea/workspace.xml").allowed);
}

#[test]
fn a_private_home_and_tmp_are_explained() {
    let host = host();
    let decision = host.write("/home/u/.bashrc");
    assert!(decision.allowed);
    assert_eq!(decision.effect.as_deref(), Some("private: discarded at the end"));
    assert!(!host.read("/home/u/.bashrc").allowed);
    assert_eq!(host.write("/tmp/x").effect.as_deref(), Some("private: discarded at the end"));
    let named = crate::common::host().option(Key::Home, "agent");
    assert_eq!(
        named.write("/home/u/.bashrc").effect.as_deref(),
        Some("private: kept in the home `agent`")
    );
    // Without a view of its own, a sandbox cannot write there at all.
    let process = crate::common::host().option(Key::Tier, "process");
    assert!(!process.write("/home/u/.bashrc").allowed);
    let shared = crate::common::host().option(Key::Home, "host");
    assert!(!shared.write("/home/u/.bashrc").allowed);
    assert!(!host.write("/var/lib/x").allowed);
    assert!(host.write("/dev/null").allowed && host.read("/proc/self/status").allowed);
    assert!(!host.write("/proc/sysrq-trigger").allowed && !host.read("/dev/sda").allowed);
}

#[test]
fn remedies_can_be_typed() {
    let decision = host().read("/data/it's here");
    assert_eq!(decision.remedy.as_deref(), Some("--read '?/data/it'\\''s here'"));
}

#[test]
fn there_is_no_network_unless_one_is_granted() {
    let none = host();
    let denied = connect(&none, "example.org", 443);
    assert!(!denied.allowed);
    assert_eq!(denied.remedy.as_deref(), Some("--allow-host example.org"));
    let some =
        host().option(Key::AllowHost, "*.example.org").option(Key::DenyHost, "bad.example.org:*");
    assert!(connect(&some, "a.example.org", 443).allowed);
    assert!(!connect(&some, "bad.example.org", 443).allowed);
    assert!(!connect(&some, "example.org", 443).allowed);
    let port = connect(&some, "a.example.org", 22);
    assert!(!port.allowed);
    assert_eq!(port.remedy.as_deref(), Some("--allow-host a.example.org:22"));
    assert!(port.explanation.contains("is for ports 80,443"), "{port}");
    let closed = connect(&host().option(Key::Mode, "none"), "example.org", 443);
    assert!(!closed.allowed);
    let remedy = "--network filtered --allow-host example.org";
    assert_eq!(closed.remedy.as_deref(), Some(remedy));
    let open = host().option(Key::Mode, "host");
    assert!(connect(&open, "example.org", 22).allowed);
}

/// zsh takes brackets and stars for patterns, and runs nothing where no file fits.
#[test]
fn hosts_in_advice_are_quoted() {
    let none = connect(&host(), "[2001:db8::1]", 443);
    assert_eq!(none.remedy.as_deref(), Some("--allow-host '[2001:db8::1]'"));
    let other = host().option(Key::AllowHost, "example.org");
    let denied = connect(&other, "[2001:db8::1]", 22);
    assert_eq!(denied.remedy.as_deref(), Some("--allow-host '[2001:db8::1]:22'"));
    let clean = host().option(Key::Clean, "true");
    assert_eq!(env(&clean, "A?*").remedy.as_deref(), Some("--env 'A?*'"));
}

#[test]
fn the_hosts_loopback_is_granted_by_port() {
    let granted = host().option(Key::AllowHost, "localhost:5432");
    assert!(connect(&granted, "localhost", 5432).allowed);
    assert!(connect(&granted, "127.0.0.1", 5432).allowed);
    assert!(connect(&granted, "app.localhost", 5432).allowed);
    assert!(!connect(&granted, "notlocalhost", 5432).allowed);
    assert!(!connect(&granted, "localhost", 5433).allowed);
    // What connect(2) takes for it.
    for zero in ["0.0.0.0", "::", "::ffff:0.0.0.0"] {
        assert!(connect(&granted, zero, 5432).allowed, "{zero}");
        assert!(!connect(&granted, zero, 5433).allowed, "{zero}");
        let denied = host().option(Key::AllowHost, "localhost:*");
        let denied = denied.option(Key::DenyHost, "localhost:5432");
        assert!(!connect(&denied, zero, 5432).allowed, "{zero}");
    }
    let refused = connect(&granted, "127.0.0.2", 5432);
    assert!(!refused.allowed && refused.remedy.is_none(), "{refused}");
    let refused = connect(&granted, "127.0.0.2", 5433);
    assert_eq!(refused.remedy.as_deref(), Some("--allow-host localhost:5433"));
    let any = host().option(Key::AllowHost, "*:*");
    assert!(!connect(&any, "localhost", 5432).allowed);
    assert!(!connect(&any, "169.254.169.254", 80).allowed);
    assert!(connect(&any, "example.org", 22).allowed);
}

#[test]
fn request_rules_allow_these_requests_only() {
    let host = host().option(Key::Http, "GET api.example.org/repos/*");
    assert!(http(&host, "GET", "https://api.example.org/repos/x?page=2").allowed);
    let denied = http(&host, "POST", "https://api.example.org/repos/x");
    assert!(!denied.allowed);
    assert_eq!(denied.remedy.as_deref(), Some("--http 'POST api.example.org/repos/x'"));
    assert!(!http(&host, "GET", "https://api.example.org/repos/../user").allowed);
    assert!(!http(&host, "GET", "https://api.example.org/repos/%2e%2e/user").allowed);
    assert!(!http(&host, "GET", "https://api.example.org/repos/..%2fuser").allowed);
    assert!(!http(&host, "GET", "https://other.example.org/repos/x").allowed);
}

/// What an option says, as a shell reads it: without its quotes.
fn as_typed(remedy: &str) -> String {
    let word = remedy.split_once(' ').expect("an option with a value").1;
    word.trim_start_matches('\'').trim_end_matches('\'').replace("'\\''", "'")
}

#[test]
fn what_is_said_to_allow_a_request_allows_it() {
    let ruled = host().option(Key::Http, "GET api.example.org/x");
    let url = "https://api.example.org/y";
    for method in ["PUT", "VERSION-CONTROL", "BASELINE-CONTROL", "M-SEARCH", "R2D2", "IT'S!"] {
        for url in [url, "https://api.example.org/%2f", "https://api.example.org/a'b"] {
            let denied = http(&ruled, method, url);
            let grant = as_typed(&denied.remedy.expect(method));
            assert!(http(&host().option(Key::Http, &grant), method, url).allowed, "{grant}");
        }
    }
    // No rule names these, and nothing else.
    for (method, url) in [("GE*", url), ("*", url), ("PUT", "https://api.example.org/y*")] {
        let denied = http(&ruled, method, url);
        assert!(!denied.allowed && denied.remedy.is_none(), "{denied}");
    }
}

/// RFC 9110 §9.1: a server may do another thing for `get` than for `GET`.
#[test]
fn a_method_is_judged_in_the_case_in_which_it_is_sent() {
    let ruled = host().option(Key::Http, "get api.example.org/x/*");
    assert!(http(&ruled, "GET", "https://api.example.org/x/y").allowed, "a rule in any case");
    for (method, url) in [
        ("get", "https://api.example.org/x/y"),
        ("Get", "https://api.example.org/x/y"),
        ("get", "https://api.example.org/%2f"),
        ("delete", "https://api.example.org/x/y"),
    ] {
        let denied = http(&ruled, method, url);
        assert!(!denied.allowed && denied.remedy.is_none(), "{denied}");
        assert!(denied.explanation.contains("case-sensitive"), "{denied}");
    }
    let any = host().option(Key::Http, "* api.example.org/x/*");
    assert!(http(&any, "get", "https://api.example.org/x/y").allowed);
    let unruled = host().option(Key::AllowHost, "api.example.org");
    assert!(http(&unruled, "get", "https://api.example.org/x/y").allowed);
    assert!(!http(&unruled, "connect", "http://api.example.org/").allowed);
}

#[test]
fn what_passes_no_inspected_connection_is_not_said_to_be_allowed() {
    let host =
        host().option(Key::Http, "* api.example.org").option(Key::AllowHost, "b.example.org");
    let inject = "c.example.org X-Key={env:KEY}";
    let host = host.option(Key::AllowHost, "c.example.org").option(Key::Inject, inject);
    for method in ["TRACE", "connect", "Track"] {
        assert!(!http(&host, method, "https://api.example.org/").allowed, "{method}");
        assert!(!http(&host, method, "https://c.example.org/").allowed, "{method}");
        // Nobody looks at it there.
        assert!(http(&host, method, "https://b.example.org/").allowed, "{method}");
    }
    assert!(http(&host, "OPTIONS", "https://api.example.org/").allowed);
    // Without TLS the name is looked for in each request.
    assert!(!http(&host, "CONNECT", "http://b.example.org/").allowed);
    assert!(http(&host, "GET", "http://b.example.org/").allowed);
    for none in ["", "BAD METHOD", "G(T"] {
        assert!(!http(&host, none, "https://b.example.org/").allowed, "{none}");
    }
}

#[test]
fn who_answers_at_the_port_of_dns_is_told() {
    let host = host().option(Key::AllowHost, "192.0.2.1:53,54");
    let asked = |port| connect(&host, "192.0.2.1", port);
    assert!(asked(53).allowed && asked(53).effect.is_some());
    assert!(asked(54).allowed && asked(54).effect.is_none());
}

#[test]
fn a_socket_is_visible_only_when_granted() {
    let host = host()
        .with(|files| files.with("/run/docker.sock", Fake::Socket).symlink("/var/run", "/run"));
    let ask =
        |host: &Host, path: &str| decide(&host.policy(), &Request::Socket(host.subject(path)));
    let denied = ask(&host, "/var/run/docker.sock");
    assert!(!denied.allowed);
    assert_eq!(denied.remedy.as_deref(), Some("--allow-socket /run/docker.sock"));
    let host = host.option(Key::Sockets, "/var/run/docker.sock");
    assert!(ask(&host, "/var/run/docker.sock").allowed && ask(&host, "/run/docker.sock").allowed);
    assert!(!ask(&host, "/run/other.sock").allowed);
}

#[test]
fn credentials_are_hidden_unless_named() {
    let plain = host();
    assert!(env(&plain, "PATH").allowed);
    let denied = env(&plain, "GITHUB_TOKEN");
    assert!(!denied.allowed);
    assert_eq!(denied.remedy.as_deref(), Some("--env GITHUB_TOKEN"));
    assert!(denied.explanation.contains("a credential"));
    assert!(env(&host().option(Key::Pass, "GITHUB_TOKEN"), "GITHUB_TOKEN").allowed);
    assert!(env(&host().option(Key::Set, "GITHUB_TOKEN=x"), "GITHUB_TOKEN").allowed);
    let clean = host().option(Key::Clean, "true").option(Key::Pass, "LANG");
    assert!(env(&clean, "PATH").allowed && env(&clean, "LANG").allowed);
    assert!(!env(&clean, "EDITOR").allowed);
    assert!(!env(&clean, "AWS_REGION").allowed && env(&plain, "AWS_REGION").allowed);
}

#[test]
fn the_value_of_a_variable_is_not_in_its_source() {
    let policy = host().option(Key::Set, "TOKEN=hunter2").policy();
    assert!(!format!("{:?}", policy.environment.set["TOKEN"].1).contains("hunter2"));
}

#[test]
fn the_json_form_is_stable() {
    let decision = host().write("/home/u/project/.envrc");
    let json = serde_json::to_value(&decision).unwrap();
    let expected = serde_json::json!({
        "schema": 1,
        "allowed": false,
        "request": {"kind": "write", "path": "/home/u/project/.envrc"},
        "rule": {"origin": "built in", "key": "", "text": "protected in writable trees"},
        "layer": "protect",
        "explanation": "/home/u/project/.envrc is protected in writable trees: direnv sources it in the user's shell",
        "remedy": "--write '?/home/u/project/.envrc'",
        "effect": "a new one does not survive the run",
    });
    assert_eq!(json, expected);
    let connect = serde_json::to_value(connect(&host(), "Example.ORG.", 443)).unwrap();
    assert_eq!(
        connect["request"],
        serde_json::json!({"kind": "connect", "host": "example.org", "port": 443})
    );
}

#[test]
fn a_grant_in_what_is_protected_whole_is_said_to_have_no_effect() {
    let base = || host().with(|files| files.file("/home/u/project/.vscode/settings.json", "{}"));
    let file = "/home/u/project/.vscode/settings.json";
    for text in [".vscode/settings.json", "?.vscode/settings.json"] {
        let host = base().option(Key::Write, text);
        let warnings = host.policy().warnings;
        let told = warnings.iter().find(|warning| warning.contains("has no effect")).unwrap();
        assert!(told.starts_with(&format!("--write {text}")), "{told}");
        assert!(told.contains("--write /home/u/project/.vscode grants that"), "{told}");
        let decision = host.write(file);
        assert!(!decision.allowed && decision.explanation.contains("lifts nothing"), "{decision}");
    }
    let absent = host().option(Key::Write, "?.husky/pre-commit").policy().warnings;
    assert!(
        absent.iter().any(|told| told.contains("--write '?/home/u/project/.husky'")),
        "{absent:?}"
    );
    // What does grant it, what is protected as a file, and what is not protected.
    for texts in [&[".vscode", ".vscode/settings.json"][..], &["?.cargo/config.toml"], &["src"]] {
        let host = texts.iter().fold(base(), |host, text| host.option(Key::Write, *text));
        let warnings = host.policy().warnings;
        assert!(!warnings.iter().any(|told| told.contains("no effect")), "{warnings:?}");
    }
}

#[test]
fn the_active_virtual_environment_is_readable_whatever_its_variable_holds() {
    let base = || {
        host().with(|files| {
            files
                .file("/home/u/v/bin/tool", "")
                .file("/home/u/v/pip.conf", "")
                .file("/home/u/v/lib/x", "")
                .file("/home/u/v/pyvenv.cfg", "")
                .file("/home/u/.ssh/lib/x", "")
                .symlink("/home/u/project/.venv", "/home/u/v")
                .symlink("/home/u/a/linked", "/home/u/v")
                .file("/home/u/.keyring/lib/secret", "")
                .symlink("/home/u/a/env", "../.keyring")
                .file("/home/u/a/led/lib/x", "")
                .symlink("/home/u/a/led/pyvenv.cfg", "/home/u/v/pyvenv.cfg")
        })
    };
    let active = base().env("VIRTUAL_ENV", "/home/u/v");
    assert!(active.read("/home/u/v/bin/tool").allowed && active.read("/home/u/v/lib/x").allowed);
    assert!(!active.read("/home/u/v/pip.conf").allowed);
    assert!(!base().read("/home/u/v/bin/tool").allowed);
    // A link in a writable tree, which a program of an earlier run may have made.
    let planted = base().env("VIRTUAL_ENV", "/home/u/project/.venv");
    assert!(!planted.read("/home/u/v/bin/tool").allowed);
    // Nor one that was in another project's run, with an environment at its end or anything else; nor settings
    // that are another one's.
    for (project, secret) in [
        ("/home/u/a/env", "/home/u/.keyring/lib/secret"),
        ("/home/u/a/linked", "/home/u/v/bin/tool"),
        ("/home/u/a/led", "/home/u/a/led/lib/x"),
    ] {
        assert!(!base().env("VIRTUAL_ENV", project).read(secret).allowed, "{project}");
    }
    // Nor one in the environment, whatever was writable when it was made.
    let led = host().with(|files| {
        files
            .file("/home/u/w/pyvenv.cfg", "")
            .symlink("/home/u/w/lib", "/home/u/.ssh")
            .file("/home/u/w/share/x", "")
            .symlink("/home/u/w/lib64", "share")
    });
    let led = led.env("VIRTUAL_ENV", "/home/u/w");
    assert!(!led.read("/home/u/.ssh/id_ed25519").allowed && led.read("/home/u/w/lib64/x").allowed);
    for odd in ["", ".venv", "/", "/home/u", "/nowhere"] {
        let host = base().env("VIRTUAL_ENV", odd);
        assert!(
            !host.read("/home/u/v/bin/tool").allowed && host.write("/home/u/project/x").allowed
        );
        assert!(!host.read("/home/u/.ssh/id_ed25519").allowed, "{odd}");
    }
}

/// A program that is shown only its arguments starts in an empty directory that is called as the real one.
#[test]
fn an_empty_directory_of_the_run_is_not_the_home_that_is_kept() {
    let chromium = || host().profile("chromium");
    let here = chromium().write("/home/u/project/x");
    assert_eq!(here.effect.as_deref(), Some("private: discarded at the end"));
    let beside = chromium().write("/home/u/x");
    assert_eq!(beside.effect.as_deref(), Some("private: kept in the home `chromium`"));
    assert_eq!(chromium().option(Key::Write, ".").write("/home/u/project/x").effect, None);
}
