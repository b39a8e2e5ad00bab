//! Profile files: what is read, what is refused, and the shipped ones.

use crate::common::host;
use proptest::prelude::*;
use ringfence_policy::builtin::Builtin;
use ringfence_policy::catalog::{Catalog, Kind, Place};
use ringfence_policy::key::{KEYS, Shape};
use ringfence_policy::profile::{Profile, Value};
use ringfence_policy::{Key, schema};
use std::path::Path;

fn read(text: &str) -> Result<Profile, String> {
    Profile::from_toml(text, "test").map_err(|error| error.to_string())
}

const EXAMPLE: &str = r#"
extends = ["default"]
features = ["git", "node"]

[filesystem]
read = ["~/.config/git"]
write = [".", "~/.npm?"]
deny = ["./.env"]
protect = [".github/workflows"]

[network]
allow = ["packages.example.org", "*.github.com:443"]
deny = []
publish = [3000]
http = ["GET api.github.com/repos/*"]

[environment]
pass = ["ANTHROPIC_API_KEY"]
set = { CI = "1" }

[limits]
memory = "4GiB"
pids = 512
"#;

#[test]
fn the_documented_example_is_read() {
    let profile = read(EXAMPLE).unwrap();
    assert_eq!(profile.list(Key::Write).unwrap(), [".", "~/.npm?"]);
    assert_eq!(profile.list(Key::DenyHost), Some(&[][..]));
    assert_eq!(profile.list(Key::Sockets), None);
    assert_eq!(profile.list(Key::Publish).unwrap(), ["3000"]);
    assert_eq!(profile.text(Key::Pids), Some("512"));
    assert_eq!(profile.get(Key::Set), Some(&Value::Pairs(vec![("CI".into(), "1".into())])));
    let host = host().with(|files| files.directory("/home/u/.config/git")).own(EXAMPLE);
    assert!(host.resolve().is_ok(), "{:?}", host.resolve());
}

#[test]
fn unknown_keys_name_their_line_and_the_nearest_known_one() {
    let cases = [
        (
            "\n[filesystem]\nraed = []",
            "test, line 3: there is no key `raed` in [filesystem]; the nearest is `read`",
        ),
        (
            "[filesytem]\nread = []",
            "test, line 1: there is no key `filesytem`; the nearest is `filesystem`",
        ),
        (
            "[network]\nmemory = \"1G\"",
            "test, line 2: there is no key `memory` in [network]; `memory` stands in [limits]",
        ),
        ("read = []", "test, line 1: there is no key `read`; `read` stands in [filesystem]"),
        (
            "[limits]\nextends = []",
            "test, line 2: there is no key `extends` in [limits]; `extends` stands at the top, before any [table]",
        ),
        (
            "tier = \"proces\"",
            "test, line 1: `proces` is no tier: it is one of `auto`, `process`, `namespace`, `vm`; the nearest is `process`",
        ),
        (
            "[limits]\nzzzzzz = 1",
            "test, line 2: there is no key `zzzzzz` in [limits]; known are `memory`, `pids`, `cpus`, `open_files`, `disk`, `timeout`",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(read(text).unwrap_err(), expected);
    }
}

#[test]
fn values_of_the_wrong_kind_name_their_line() {
    let cases = [
        (
            "[filesystem]\nread = \"/usr\"",
            "test, line 2: `read` takes a list of texts, as in [\"…\"], not a text",
        ),
        ("[filesystem]\nread = [1]", "test, line 2: `read` takes a text here, not a number"),
        (
            "[filesystem]\nread = [\n \"a\",\n true]",
            "test, line 4: `read` takes a text here, not true or false",
        ),
        ("[environment]\nclean = 1", "test, line 2: `clean` takes true or false, not a number"),
        ("filesystem = 1", "test, line 1: there is no key `filesystem`"),
        ("[filesystem]\nread = [\"a\\u0000b\"]", "test, line 2: `read` holds a NUL"),
        (
            "[environment]\nset = { \"A=B\" = \"x\" }",
            "test, line 2: `A=B` cannot be the name of a variable",
        ),
        (
            "[environment]\nset = { \"\" = \"x\" }",
            "test, line 2: `` cannot be the name of a variable",
        ),
        (
            "[filesystem]\nread = []\nread = [\"a\"]",
            "test, line 3: `read` stands twice in one table: leave one of them",
        ),
        ("[filesystem]\nread = [\"a\"", "test, line 2:"),
        ("[filesystem]\nread = []\nread = []", "test, line 3:"),
    ];
    for (text, expected) in cases {
        let message = read(text).unwrap_err();
        assert!(message.starts_with(expected), "{message}");
        assert!(!message.contains('\n'), "{message}");
    }
}

#[test]
fn a_profile_is_written_so_that_it_is_read_again() {
    let profile = read(EXAMPLE).unwrap();
    let again = read(&profile.to_toml()).unwrap();
    assert_eq!(again.values, profile.values);
    assert!(profile.lines().contains(&"filesystem.deny = \"./.env\"".to_owned()));
}

#[test]
fn the_shipped_ones_are_compiled_to_what_their_files_say() {
    for builtin in Builtin::profiles().iter().chain(Builtin::features()) {
        let read = Profile::from_toml(builtin.toml, builtin.name).unwrap();
        assert_eq!(builtin.load("x".into()).values, read.values, "{}", builtin.name);
        assert!(
            read.text(Key::Description).is_some_and(|text| text.ends_with('.')),
            "{}",
            builtin.name
        );
    }
}

#[test]
fn the_shipped_ones_resolve_and_show_no_credentials() {
    let secret = [
        ".cargo/credentials.toml",
        ".npmrc",
        ".m2/settings.xml",
        ".ssh/id_ed25519",
        ".aws/credentials",
        ".gnupg/x",
        ".netrc",
        ".docker/config.json",
        ".kube/config",
        ".config/gh/hosts.yml",
        ".git-credentials",
        ".config/git/credentials",
        ".local/share/keyrings/x",
        ".gradle/gradle.properties",
        ".bash_history",
        ".mozilla/x",
        ".config/chromium/x",
        ".local/share/uv/credentials/x",
    ];
    for builtin in Builtin::profiles() {
        let host = secret.iter().fold(host(), |host, path| {
            host.with(|files| files.file(&format!("/home/u/{path}"), ""))
        });
        let host = host.profile(builtin.name);
        assert!(host.resolve().is_ok(), "{}: {:?}", builtin.name, host.resolve());
        for path in secret {
            assert!(!host.read(&format!("/home/u/{path}")).allowed, "{}: {path}", builtin.name);
        }
        assert!(host.read("/usr/bin/x").allowed && host.write("/home/u/project/x").allowed);
    }
    for builtin in Builtin::features() {
        let own = format!("extends = [\"default\"]\nfeatures = [\"{}\"]", builtin.name);
        assert!(host().own(&own).resolve().is_ok(), "{}", builtin.name);
    }
}

#[test]
fn the_agents_and_toolchains_are_shipped() {
    for name in [
        "default",
        "claude",
        "codex",
        "gemini",
        "opencode",
        "aider",
        "goose",
        "cursor-agent",
        "copilot",
        "amp",
        "pi",
        "qwen",
    ] {
        assert!(Builtin::profile(name).is_some(), "{name}");
        assert!(
            name == "default" || Builtin::for_program(name).is_some_and(|found| found.name == name),
            "{name}"
        );
    }
    for name in ["node", "python", "rust", "go", "java", "git"] {
        assert!(Builtin::feature(name).is_some(), "{name}");
    }
    assert!(Builtin::for_program("ls").is_none() && Builtin::for_program("").is_none());
}

#[test]
fn configurations_are_read_written_and_in_the_schema() {
    let text = "home = \"private\"\n[configuration.work]\nhome = \"work\"\n[configuration.work.network]\n\
                allow = [\"example.org\"]\n[configuration.empty]\n";
    let profile = Profile::from_toml(text, "p").unwrap();
    let names: Vec<&str> = profile.configurations.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["empty", "work"]);
    assert_eq!(profile.configurations[1].1.len(), 2);
    let again = Profile::from_toml(&profile.to_toml(), "p").unwrap();
    assert_eq!(again, profile);
    let table: toml::Table = text.parse().unwrap();
    check(&schema(), &toml::Value::Table(table), "configurations");
}

#[test]
fn the_schema_knows_every_key_and_no_other() {
    let schema = schema();
    for builtin in Builtin::profiles().iter().chain(Builtin::features()) {
        let table: toml::Table = builtin.toml.parse().unwrap();
        check(&schema, &toml::Value::Table(table), builtin.name);
    }
    let example: toml::Table = EXAMPLE.parse().unwrap();
    check(&schema, &toml::Value::Table(example), "the example");
    for info in KEYS {
        let table = if info.table.is_empty() { &schema } else { &schema["properties"][info.table] };
        assert_eq!(table["additionalProperties"], false);
        assert!(table["properties"][info.name]["description"].is_string(), "{}", info.name);
    }
}

/// Enough of JSON Schema for what the schema uses.
fn check(schema: &serde_json::Value, value: &toml::Value, place: &str) {
    if let Some(values) = schema["enum"].as_array() {
        assert!(values.iter().any(|known| known.as_str() == value.as_str()), "{place}: {value}");
        return;
    }
    let found = match value {
        toml::Value::String(_) => "string",
        toml::Value::Integer(_) | toml::Value::Float(_) => "number",
        toml::Value::Boolean(_) => "boolean",
        toml::Value::Array(_) => "array",
        _ => "object",
    };
    let fits = |kind: &serde_json::Value| kind == found || kind == "integer" && found == "number";
    let fits = match &schema["type"] {
        serde_json::Value::Array(kinds) => kinds.iter().any(fits),
        kind => fits(kind),
    };
    assert!(fits, "{place}: {value} is no {}", schema["type"]);
    match value {
        toml::Value::Array(items) => {
            items.iter().for_each(|item| check(&schema["items"], item, place))
        }
        toml::Value::Table(entries) => {
            for (name, value) in entries {
                let inner =
                    schema["properties"].get(name).unwrap_or(&schema["additionalProperties"]);
                assert!(inner.is_object(), "{place}: {name} is not in the schema");
                check(inner, value, name);
            }
        }
        _ => {}
    }
}

#[test]
fn files_hide_built_in_ones_of_their_name() {
    let host = host().with(|files| {
        files
            .file("/home/u/.config/ringfence/profiles/claude.toml", "description = \"mine\"")
            .file("/etc/ringfence/profiles/site.toml", "description = \"ours\"")
    });
    let catalog = Catalog::new(&host.files, &host.home, &host.cwd, &|_| None, 1000);
    let list = catalog.list(Kind::Profile);
    let found = |name: &str| list.iter().find(|listed| listed.name == name).unwrap();
    assert_eq!(found("claude").description, "mine");
    assert_eq!(found("site").place, Place::File("/etc/ringfence/profiles/site.toml".into()));
    assert_eq!(found("default").place, Place::BuiltIn);
    assert!(
        catalog.text(Kind::Feature, "gcc").is_ok() && catalog.text(Kind::Profile, "gcc").is_err()
    );
    assert_eq!(
        catalog.user_directory(Kind::Profile),
        Path::new("/home/u/.config/ringfence/profiles")
    );
    let env = |name: &str| (name == "XDG_CONFIG_HOME").then(|| "/cfg".into());
    let moved = Catalog::new(&host.files, &host.home, &host.cwd, &env, 1000);
    assert_eq!(moved.user_directory(Kind::Feature), Path::new("/cfg/ringfence/features"));
    assert!(moved.list(Kind::Profile).iter().all(|listed| listed.description != "mine"));
}

fn value(shape: Shape, values: &'static [&'static str]) -> BoxedStrategy<Value> {
    let text = "[^\u{0}]{0,12}".prop_map(std::borrow::Cow::<'static, str>::from);
    match shape {
        Shape::Text if !values.is_empty() => {
            prop::sample::select(values).prop_map(|text| Value::Text(text.into())).boxed()
        }
        Shape::Text | Shape::Quantity => text.prop_map(Value::Text).boxed(),
        Shape::Flag => any::<bool>().prop_map(Value::Flag).boxed(),
        Shape::Grants | Shape::Adds => {
            prop::collection::vec(text, 0..4).prop_map(Value::List).boxed()
        }
        Shape::Pairs => prop::collection::btree_map("[^\u{0}=]{1,8}", text, 0..3)
            .prop_map(|pairs| {
                Value::Pairs(pairs.into_iter().map(|(name, value)| (name.into(), value)).collect())
            })
            .boxed(),
    }
}

fn entry() -> impl Strategy<Value = (Key, Value)> {
    prop::sample::select(&KEYS[..]).prop_flat_map(|info| {
        value(info.shape, info.values).prop_map(move |value| (info.key, value))
    })
}

proptest! {
    #[test]
    fn any_profile_survives_being_written(entries in prop::collection::vec(entry(), 0..12)) {
        let mut profile = Profile::default();
        for (key, value) in entries {
            profile.set(key, value);
        }
        let text = profile.to_toml();
        let again = Profile::from_toml(&text, "again").map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        prop_assert_eq!(again.values, profile.values);
    }
}
