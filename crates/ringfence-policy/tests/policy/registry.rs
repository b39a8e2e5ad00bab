//! Registries are what the tools' own settings say, and nothing else.

use crate::common::{Host, host};
use ringfence_policy::Key;
use ringfence_policy::registry::hosts;

fn found(host: &Host, tool: &str) -> Vec<String> {
    host.context(|context| {
        hosts(tool, context, &|_| true).unwrap().iter().map(ToString::to_string).collect()
    })
}

#[test]
fn without_settings_there_are_none() {
    for tool in ["npm", "pip", "cargo", "go", "maven"] {
        assert_eq!(found(&host(), tool), Vec::<String>::new(), "{tool}");
    }
    let message = host().context(|context| hosts("nmp", context, &|_| true).unwrap_err());
    assert!(message.ends_with("the nearest is `npm`"), "{message}");
}

#[test]
fn npm() {
    let text = "; mine\nregistry=https://npm.example.org/repo/\n@corp:registry = https://corp.example:8443/npm\n//npm.example.org/:_authToken=x\n";
    let own = host()
        .with(|files| files.file("/home/u/.npmrc", text))
        .env("npm_config_registry", "http://cache.example");
    assert_eq!(
        found(&own, "npm"),
        ["cache.example:80", "npm.example.org:443", "corp.example:8443"]
    );
    // A project's file can come from inside.
    let project = host().with(|files| files.file("/home/u/project/.npmrc", text));
    assert_eq!(found(&project, "npm"), Vec::<String>::new());
}

#[test]
fn pip() {
    let text = "[global]\nindex-url = https://u:p@pip.example.org/simple\nextra-index-url =\n    https://one.example/simple\n    https://two.example/simple\n";
    let host = host()
        .with(|files| files.file("/home/u/.config/pip/pip.conf", text))
        .env("PIP_INDEX_URL", "https://env.example/simple");
    assert_eq!(
        found(&host, "pip"),
        ["env.example:443", "pip.example.org:443", "one.example:443", "two.example:443"]
    );
}

#[test]
fn cargo() {
    let text = "[source.mirror]\nregistry = \"sparse+https://cargo.example.org/index/\"\n[registries.corp]\nindex = \"https://corp.example/git\"\n[source.local]\ndirectory = \"/x\"\n";
    let own = host().with(|files| files.file("/home/u/.cargo/config.toml", text));
    assert_eq!(
        found(&own, "cargo"),
        ["corp.example:443", "cargo.example.org:443"]
            .iter()
            .rev()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    );
    let named = own.env("CARGO_REGISTRIES_CORP_INDEX", "sparse+https://by-name.example/index/");
    assert_eq!(found(&named, "cargo")[0], "by-name.example:443");
    let moved = host()
        .with(|files| files.file("/opt/cargo/config.toml", text))
        .env("CARGO_HOME", "/opt/cargo");
    assert_eq!(found(&moved, "cargo").len(), 2);
}

#[test]
fn the_machines_file_of_npm_is_below_the_prefix_of_node() {
    let text = "registry=https://npm.example.org/\n";
    for (program, real, file, believed) in [
        ("/usr/bin/node", None, "/usr/etc/npmrc", true),
        (
            "/usr/bin/node",
            Some("/usr/local/lib/node/bin/node"),
            "/usr/local/lib/node/etc/npmrc",
            true,
        ),
        (
            "/usr/bin/node",
            Some("/home/u/project/node/bin/node"),
            "/home/u/project/node/etc/npmrc",
            false,
        ),
        ("/usr/bin/node", None, "/usr/local/etc/npmrc", false),
    ] {
        let host = host().env("PATH", "/usr/bin").with(|files| {
            let files = files.file(file, text);
            match real {
                Some(real) => files.file(real, "").symlink(program, real),
                None => files.file(program, ""),
            }
        });
        let rules = host.own("features = [\"node\"]").policy().network.allow;
        let rules: Vec<_> = rules.iter().map(|rule| rule.host.to_string()).collect();
        let expected: &[&str] = if believed { &["npm.example.org:443"] } else { &[] };
        assert_eq!(rules, expected, "{file} for {real:?}");
    }
}

#[test]
fn yarn_and_uv() {
    let text = "npmRegistryServer: \"https://yarn.example.org/\" # mine\nnpmScopes:\n  corp:\n    \
                npmRegistryServer: 'http://corp.example'\n#npmRegistryServer: https://old.example\n";
    let yarn = host().with(|files| files.file("/home/u/.yarnrc.yml", text));
    assert_eq!(found(&yarn, "npm"), ["yarn.example.org:443", "corp.example:80"]);
    let text = "index-url = \"https://one.example/simple\"\nextra-index-url = [\"https://two.example/\"]\n\
                [[index]]\nname = \"corp\"\nurl = \"https://three.example/simple\"\n\
                [pip]\nindex-url = \"https://four.example/simple\"\n";
    let uv = host()
        .with(|files| files.file("/home/u/.config/uv/uv.toml", text))
        .env("UV_INDEX", "corp=https://five.example/a=b https://six.example/?a=b");
    assert_eq!(
        found(&uv, "pip"),
        ["five", "six", "three", "one", "two", "four"].map(|name| format!("{name}.example:443"))
    );
}

/// The command is given them, so they are its settings.
#[test]
fn a_registry_that_a_rule_sets_is_one() {
    for (feature, variable, host_of) in [
        ("node", "npm_config_registry=https://set.example/", "set.example:443"),
        ("python", "UV_INDEX=corp=https://set.example/", "set.example:443"),
        ("rust", "CARGO_REGISTRIES_CORP_INDEX=sparse+https://set.example/", "set.example:443"),
        ("go", "GOPROXY=https://set.example,direct", "set.example:443"),
    ] {
        let name = variable.split('=').next().unwrap();
        let own = host().env(name, "https://callers.example/");
        let own = own.option(Key::Set, variable).own(&format!("features = [\"{feature}\"]"));
        let rules = own.policy().network.allow;
        let rules: Vec<_> = rules.iter().map(|rule| rule.host.to_string()).collect();
        assert_eq!(rules, [host_of], "{variable}");
    }
}

#[test]
fn go() {
    let own = host().with(|files| {
        files.file(
            "/home/u/.config/go/env",
            "GOPROXY=https://go.example.org|https://b.example,direct\nGOSUMDB=sum.example+abc\n",
        )
    });
    assert_eq!(found(&own, "go"), ["go.example.org:443", "b.example:443", "sum.example:443"]);
    let env = own.env("GOPROXY", "https://c.example,off").env("GOSUMDB", "off");
    assert_eq!(found(&env, "go"), ["c.example:443"]);
}

#[test]
fn maven() {
    let text = "<settings><!-- <url>https://old.example</url> --><mirrors><mirror>\n<url> https://maven.example.org/central </url></mirror></mirrors></settings>";
    let host = host().with(|files| files.file("/home/u/.m2/settings.xml", text));
    assert_eq!(found(&host, "maven"), ["maven.example.org:443"]);
}

/// Maven would ask its own registry, and be refused.
#[test]
fn settings_of_maven_that_are_not_shown_are_told_with_what_shows_them() {
    let of = |option: Option<(Key, &str)>| {
        let text = "<settings><mirrors><mirror><url>https://mvn.example/</url></mirror></mirrors></settings>";
        let host = host().with(|files| files.file("/home/u/.m2/settings.xml", text));
        let host = match option {
            Some((key, value)) => host.option(key, value),
            None => host,
        };
        host.own("extends = [\"default\"]\nfeatures = [\"java\"]").policy().warnings
    };
    let sentence = "/home/u/.m2/settings.xml names hosts, which are allowed, and is not shown, since it may hold \
                    passwords: Maven asks its own instead; -r /home/u/.m2/settings.xml shows it";
    assert!(of(None).iter().any(|said| said == sentence), "{:?}", of(None));
    for option in [(Key::Read, "~/.m2/settings.xml"), (Key::Read, "~/.m2"), (Key::Deny, "~/.m2")] {
        assert!(!of(Some(option)).iter().any(|said| said.contains("settings.xml")), "{option:?}");
    }
}

#[test]
fn an_address_of_a_registry_is_one_host_with_one_port() {
    for none in ["http://*", "http://*.example.org", "https://a.example:*", "http://a.example:1-9"]
    {
        assert_eq!(found(&host().env("GOPROXY", none), "go"), Vec::<String>::new(), "{none}");
    }
    // A mirror on the user's own machine is one.
    assert_eq!(found(&host().env("GOPROXY", "http://localhost:4873"), "go"), ["localhost:4873"]);
}

#[test]
fn a_feature_allows_the_configured_hosts() {
    let host = host()
        .with(|files| files.file("/home/u/.npmrc", "registry=https://npm.example.org/"))
        .own("features = [\"node\"]");
    let policy = host.policy();
    assert_eq!(policy.network.allow.len(), 1);
    assert_eq!(policy.network.allow[0].host.to_string(), "npm.example.org:443");
    assert_eq!(policy.network.allow[0].source.origin, "feature node");
}

/// What the features of three tools allow where no settings name a registry.
fn allowed(host: Host) -> (Vec<String>, usize) {
    let host = host.env("PATH", "/usr/bin:/home/u/.versions/shims");
    let policy = host.own("features = [\"node\", \"python\", \"go\"]").policy();
    let mut hosts: Vec<String> =
        policy.network.allow.iter().map(|rule| rule.host.to_string()).collect();
    hosts.sort();
    hosts.dedup();
    (hosts, policy.warnings.len())
}

const DEFINITIONS: &str = "define('registry-x', {default: 'https://no.example/'})\n\
    registry: new Definition('registry', {\n  default: 'https://npm.example.org/',\n  type: url,\n})\n";
const INDEX: &str = "PyPI = PackageIndex(\n    \"https://py.example.org/\", \
    file_storage_domain=\"files.example.org\"\n)\nTestPyPI = PackageIndex(\"https://test.example/\")\n";

#[test]
fn without_settings_it_is_what_the_installed_tools_say() {
    let host = host().with(|files| {
        files
            .file("/usr/lib/node_modules/npm/bin/npm-cli.js", "")
            .symlink("/usr/bin/npm", "../lib/node_modules/npm/bin/npm-cli.js")
            .file(
                "/usr/lib/node_modules/npm/node_modules/@npmcli/config/lib/definitions/definitions.js",
                DEFINITIONS,
            )
            .file("/home/u/.versions/shims/pip", "")
            .file(
                "/home/u/.versions/versions/3.12/lib/python3.12/site-packages/pip/_internal/models/index.py",
                INDEX,
            )
            .file("/usr/lib/go/bin/go", "")
            .symlink("/usr/bin/go", "../lib/go/bin/go")
            .file("/usr/lib/go/go.env", "# x\nGOPROXY=https://go.example.org,direct\nGOSUMDB=sum.example.org\n")
    });
    let (hosts, warnings) = allowed(host);
    let expected = [
        "files.example.org:443",
        "go.example.org:443",
        "npm.example.org:443",
        "py.example.org:443",
        "sum.example.org:443",
    ];
    assert_eq!((hosts, warnings), (expected.map(str::to_owned).to_vec(), 0));
}

#[test]
fn what_a_sandboxed_program_could_have_written_is_not_believed() {
    let host = host().with(|files| {
        files.file("/home/u/project/npm/bin/npm", "").file(
            "/home/u/project/npm/node_modules/@npmcli/config/lib/definitions/definitions.js",
            DEFINITIONS,
        )
    });
    let host = host.with(|files| files.symlink("/usr/bin/npm", "/home/u/project/npm/bin/npm"));
    let (hosts, warnings) = allowed(host);
    assert_eq!((hosts, warnings), (Vec::new(), 3));
}

#[test]
fn what_was_written_in_another_project_is_not_believed() {
    const MODULE: &str = "lib/python3.12/site-packages/pip/_internal/models/index.py";
    let of = |prefix: &str, system: bool| {
        let host = host().with(|files| {
            let mut files = files
                .file(&format!("{prefix}/bin/pip"), "")
                .file(&format!("{prefix}/{MODULE}"), &INDEX.replace("org", "evil"));
            if system {
                files = files
                    .file("/usr/bin/pip", "")
                    .file("/usr/lib/python3/dist-packages/pip/_internal/models/index.py", INDEX);
            }
            files
        });
        let host = host.env("PATH", &format!("{prefix}/bin:/usr/bin"));
        let policy = host.own("features = [\"python\"]").policy();
        let hosts =
            policy.network.allow.iter().map(|rule| rule.host.to_string()).collect::<Vec<_>>();
        (hosts, policy.warnings)
    };
    for prefix in ["/home/u/other/.venv", "/opt/tool", "/home/u/.cache/uv/environment"] {
        let (hosts, warnings) = of(prefix, false);
        assert_eq!(hosts, Vec::<String>::new(), "{prefix}");
        let sentence = format!(
            "pip's settings name no registry, and {prefix}/{MODULE}, where its own is, could be an earlier run's: \
             allow the one it uses with --allow-host"
        );
        assert_eq!(warnings, [sentence]);
        // The tool behind it is the system's.
        let (hosts, warnings) = of(prefix, true);
        assert_eq!(hosts, ["py.example.org:443", "files.example.org:443"]);
        assert_eq!(warnings, Vec::<String>::new());
    }
    // No run is started in a hidden directory of the home, or the system's.
    for prefix in ["/home/u/.local/share/uv/python/3.12", "/usr/local"] {
        assert_eq!(of(prefix, false).0, ["py.example.evil:443", "files.example.evil:443"]);
    }
}

#[test]
fn settings_that_a_variable_leads_to_are_believed_where_no_run_can_have_written_them() {
    let go = "GOPROXY=http://localhost:17777\n";
    let ini = "registry=http://localhost:17777\nindex-url=http://localhost:17777\n";
    let cargo = "[source.x]\nregistry = \"sparse+http://localhost:17777/\"\n";
    for (feature, tool, variable, file, text) in [
        ("go", "go", "GOENV", "", go),
        ("python", "pip", "PIP_CONFIG_FILE", "", ini),
        ("node", "npm", "NPM_CONFIG_USERCONFIG", "", ini),
        ("rust", "cargo", "CARGO_HOME", "/config.toml", cargo),
    ] {
        let of = |directory: &str| {
            let path = format!("{directory}{file}");
            let host = host().with(|files| files.file(&path, text)).env(variable, directory);
            let policy = host.own(&format!("features = [\"{feature}\"]")).policy();
            let rules = policy.network.allow.iter().map(|rule| rule.host.to_string());
            (rules.collect::<Vec<_>>(), policy.warnings)
        };
        for within in ["/home/u/project/settings", "/home/u/other/settings", "/opt/x/settings"] {
            let (rules, warnings) = of(within);
            assert_eq!(rules, Vec::<String>::new(), "{variable}={within}");
            let sentence = format!(
                "{tool}'s settings are in {within}{file}, which could be an earlier run's: allow the registry that \
                 they name with --allow-host"
            );
            assert!(warnings.contains(&sentence), "{variable}={within}: {warnings:?}");
        }
        for own in ["/home/u/.settings", "/usr/local/settings", "/etc/settings"] {
            assert_eq!(of(own).0, ["localhost:17777"], "{variable}={own}");
        }
    }
}

#[test]
fn what_others_than_root_may_write_is_not_fixed() {
    use ringfence_policy::{FileView, HostFiles};
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;
    let root = Path::new("/").metadata().unwrap();
    if (root.uid(), root.mode() & 0o022) == (0, 0) {
        assert!(HostFiles.fixed(Path::new("/proc/version")));
    }
    assert!(!HostFiles.fixed(Path::new("/proc/absent")));
    // Everybody's.
    assert!(!HostFiles.fixed(Path::new("/dev/null")));
}
