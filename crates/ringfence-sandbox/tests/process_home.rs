//! HOME in the process tier, and what tools take for their own place.
#![allow(missing_docs, clippy::unwrap_used)]

mod host;

use host::{Host, host};
use ringfence_policy::Key;
use ringfence_sandbox::plan::EnvironmentStep;

fn set(host: &Host, wanted: &str) -> Option<String> {
    host.plan().environment.into_iter().find_map(|step| match step {
        EnvironmentStep::Set { name, value, .. } if name == wanted => Some(value),
        _ => None,
    })
}

#[test]
fn a_kept_home_is_refused_and_the_hosts_is_the_hosts() {
    let refusal = host().process().option(Key::Home, "work").refusal();
    assert!(refusal.contains("the home work") && refusal.contains("--tier namespace"), "{refusal}");
    assert!(!host().option(Key::Home, "work").plan().mounts.is_empty());
    let hosts = host().process().option(Key::Home, "host");
    assert_eq!(set(&hosts, "HOME").as_deref(), Some("/home/u"));
    assert!(hosts.plan().home_links.is_empty());
    assert_eq!(set(&host().process(), "HOME"), None);
    assert!(!host().process().plan().home_links.is_empty());
}

/// By a path of each session's own all would be built anew.
#[test]
fn tools_know_what_they_built_by_where_it_really_is() {
    let with = host().file("/home/u/.cargo/registry/index").process();
    assert_eq!(set(&with, "CARGO_HOME").as_deref(), Some("/home/u/.cargo"));
    // Nothing of it is shown; the caller has said where; and what would be there and not be readable.
    assert_eq!(set(&host().process(), "CARGO_HOME"), None);
    assert_eq!(set(&host().file("/home/u/.cargo/registry/index"), "CARGO_HOME"), None);
    let told = with.clone().facts(|facts| facts.environment.push("CARGO_HOME".to_owned()));
    assert_eq!(set(&told, "CARGO_HOME"), None);
    let settings = with.clone().file("/home/u/.cargo/credentials.toml");
    assert_eq!(set(&settings, "CARGO_HOME"), None);
    let granted = settings.option(Key::Read, "~/.cargo/credentials.toml");
    assert_eq!(set(&granted, "CARGO_HOME").as_deref(), Some("/home/u/.cargo"));
    let go = host().file("/home/u/go/pkg/mod/cache/x").file("/home/u/.cache/go-build/x").process();
    let go = go.option(Key::Read, "~/go/pkg").option(Key::Read, "~/.cache/go-build");
    assert_eq!(set(&go, "GOMODCACHE").as_deref(), Some("/home/u/go/pkg/mod"));
    assert_eq!(set(&go, "GOCACHE"), None);
    let go = go.option(Key::Write, "~/.cache/go-build");
    assert_eq!(set(&go, "GOCACHE").as_deref(), Some("/home/u/.cache/go-build"));
}

/// pnpm would make its store in the project.
#[test]
fn pnpm_is_told_of_its_store_by_its_own_profile_alone() {
    let base = || host().file("/home/u/.local/share/pnpm/store/v3/x").process();
    let name = "npm_config_store_dir";
    let store = Some("/home/u/.local/share/pnpm/store".to_owned());
    assert_eq!(set(&base().profile("pnpm"), name), store);
    assert_eq!(set(&base().profile("pnpm"), "pnpm_config_store_dir"), store, "as from version 11");
    assert_eq!(set(&base().profile("npm"), name), None);
    assert_eq!(set(&base(), name), None, "it is only readable");
    let told = base().profile("pnpm").facts(|facts| facts.environment.push(name.to_owned()));
    assert_eq!(set(&told, name), None);
}

/// What is written where a program with a home of its own was started is not where its user looks for it.
#[test]
fn a_home_of_its_own_says_what_becomes_of_the_directory_of_the_run() {
    let chromium = || host().profile("chromium");
    let told = |host: &Host| host.plan().warnings.join("\n");
    assert!(told(&chromium()).contains("/home/u/project is empty here"), "{}", told(&chromium()));
    let granted = chromium().option(Key::Write, ".");
    assert!(!told(&granted).contains("empty here"), "{}", told(&granted));
    let named = chromium().file("/home/u/project/d.txt").option(Key::Read, "d.txt");
    assert!(told(&named).contains("homes/chromium/project; -w ."), "{}", told(&named));
}
