//! Whom to trust, where the caller's environment says so: a corporate authority is often known by a variable alone, which
//! goes inside like any other. What it names goes along, for reading, where it holds certificates, which are public,
//! and the text that bundles have between them: no key, and nothing else in blocks of that kind. What that text says is
//! not judged, and of a directory what comes later is not: both are documented. Where it cannot go along, the variable
//! stays outside: with it, no TLS would work at all.
//!
//! So it is of what tools' own settings name, where they are shown (git's: `git_user`).

use crate::decide::Subject;
use crate::guard::plain;
use crate::judge_path::{self, Act};
use crate::moved::Moved;
use crate::path::normal;
use crate::policy::{Access, NetworkMode, Policy, Source};
use crate::resolve::Context;
use std::path::{Path, PathBuf};

/// Variables by which programs are told of a file with the certificates to trust.
pub const VARIABLES: [&str; 17] = [
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
    "NODE_EXTRA_CA_CERTS",
    // npm and Yarn: a `cafile` in their settings would hide what Node is told.
    "npm_config_cafile",
    "YARN_HTTPS_CA_FILE_PATH",
    "DENO_CERT",
    "AWS_CA_BUNDLE",
    "NIX_SSL_CERT_FILE",
    "HTTPLIB2_CA_CERTS",
    "HEX_CACERTS_PATH",
    "BUNDLE_SSL_CA_CERT",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",
];

/// The one for directories with a file for each.
const DIRECTORIES: &str = "SSL_CERT_DIR";

/// The most bytes of a file of certificates, and files of a directory.
pub(crate) const LARGEST: u64 = 4 << 20;
const MOST: usize = 512;

/// The most bytes of a file of settings.
const SETTINGS: u64 = 1 << 20;

/// Reads what settings name, each as it is written.
type Read = fn(&str) -> Vec<String>;

/// Where tools' settings usually are, and how they name such a file.
const TOLD: [(&str, Read); 7] = [
    (".config/pip/pip.conf", |text| of_ini(text, "cert")),
    (".pip/pip.conf", |text| of_ini(text, "cert")),
    ("/etc/pip.conf", |text| of_ini(text, "cert")),
    (".cargo/config.toml", of_cargo),
    (".curlrc", of_curl),
    (".config/curlrc", of_curl),
    (".npmrc", |text| of_ini(text, "cafile")),
];

/// Shows what the variables name, or takes them away; and what settings name.
pub(crate) fn show(
    context: &Context<'_>,
    resolver: &mut crate::files::Resolver<'_>,
    policy: &mut Policy,
) {
    let network = &policy.network;
    // Where requests are inspected, the launcher reads the files, and names its own.
    let inspected = network.mode == NetworkMode::Filtered
        && !(network.http.is_empty() && network.inject.is_empty());
    if network.mode == NetworkMode::None || inspected {
        return;
    }
    for name in VARIABLES.into_iter().chain([DIRECTORIES]) {
        let environment = &policy.environment;
        if environment.set.contains_key(name) || environment.hides(name).is_some() {
            continue;
        }
        let Some(value) = (context.env)(name).filter(|value| !value.is_empty()) else { continue };
        let named: Vec<PathBuf> = match name == DIRECTORIES {
            true => std::env::split_paths(&value).collect(),
            false => vec![PathBuf::from(&value)],
        };
        for path in named.iter().filter(|path| !path.as_os_str().is_empty()) {
            let path = normal(&policy.workdir.join(path));
            if let Err(why) = one(name, &path, resolver, policy) {
                let shown = path.display();
                policy.warnings.push(format!(
                    "{name} names {shown}, which {why}: neither is shown inside; -r {shown} shows both"
                ));
                policy.environment.pass.remove(name);
                policy.environment.hide.push((name.to_owned(), source(name)));
                break;
            }
        }
    }
    let moved = Moved::of(&policy.home_dir, context.env);
    let cargo = (context.env)("CARGO_HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    for (usual, read) in TOLD {
        let elsewhere = || Some(cargo.as_ref()?.join(usual.strip_prefix(".cargo/")?));
        let file = elsewhere().or_else(|| moved.path(usual));
        let file = normal(&file.unwrap_or_else(|| policy.home_dir.join(usual)));
        for value in settings(&file, read, resolver, policy) {
            let below = value.strip_prefix("~/").map(|below| policy.home_dir.join(below));
            // Relative to what, each tool has its own idea.
            let path = normal(&below.unwrap_or_else(|| PathBuf::from(&value)));
            if !path.is_absolute() {
                continue;
            }
            let (file, shown) = (file.display().to_string(), path.display());
            if let Err(why) = one(&file, &path, resolver, policy) {
                policy.warnings.push(format!(
                    "{file} names {shown}, which {why}: it is not shown inside; -r {shown} shows it"
                ));
            }
        }
    }
}

/// What a file of settings names, where it is shown for reading only: what a program can write grants nothing.
fn settings(
    file: &Path,
    read: Read,
    resolver: &mut crate::files::Resolver<'_>,
    policy: &Policy,
) -> Vec<String> {
    let may = |real: Option<PathBuf>, act| {
        let subject = Subject { path: file.to_owned(), real, missing: false };
        judge_path::file(policy, &subject, act).allowed
    };
    // Most are not shown: that is known without a look at the host.
    if !may(None, Act::Read) {
        return Vec::new();
    }
    let Some(real) = resolver.real(file).ok().filter(|real| real.exists) else { return Vec::new() };
    if !may(Some(real.path.clone()), Act::Read) || may(Some(real.path.clone()), Act::Write) {
        return Vec::new();
    }
    resolver.files().text(&real.path, SETTINGS).map_or_else(|_| Vec::new(), |text| read(&text))
}

fn of_ini(text: &str, key: &str) -> Vec<String> {
    let lines = crate::registry::ini(text).into_iter();
    lines.filter(|(name, _)| name == key).map(|(_, value)| value).collect()
}

fn of_cargo(text: &str) -> Vec<String> {
    let table = text.parse::<toml::Table>().unwrap_or_default();
    let file = table.get("http").and_then(|http| http.get("cainfo")).and_then(toml::Value::as_str);
    file.map(str::to_owned).into_iter().collect()
}

/// `cacert = "FILE"`, with or without dashes before it, and with `=`, `:` or blanks between the two.
fn of_curl(text: &str) -> Vec<String> {
    let value = |line: &str| {
        let rest = line.trim().trim_start_matches('-').strip_prefix("cacert")?;
        let value = rest.trim_start_matches([' ', '\t', '=', ':']);
        (value != rest).then(|| value.trim_matches('"').to_owned())
    };
    text.lines().filter_map(value).collect()
}

fn source(name: &str) -> Source {
    let text = format!("certificates that {name} names");
    Source { origin: "built in".to_owned(), key: String::new(), text }
}

/// Shows what one names, if nothing does yet.
fn one(
    name: &str,
    path: &Path,
    resolver: &mut crate::files::Resolver<'_>,
    policy: &mut Policy,
) -> Result<(), &'static str> {
    // What is not there is not there outside either.
    let Ok(real) = resolver.real(path) else { return Ok(()) };
    if !real.exists {
        return Ok(());
    }
    let subject = Subject { path: normal(path), real: Some(real.path.clone()), missing: false };
    if judge_path::file(policy, &subject, Act::Read).allowed {
        return Ok(());
    }
    if judge_path::denied(policy, path) || judge_path::denied(policy, &real.path) {
        return Err("a rule denies");
    }
    let files = resolver.files();
    let good = match name == DIRECTORIES {
        false => files.text(&real.path, LARGEST).is_ok_and(|text| certificates(&text)),
        true => files.names(&real.path, MOST + 1).is_ok_and(|names| {
            let paths = names.iter().map(|name| real.path.join(name));
            let mut entries = paths.map(|path| resolver.real(&path));
            names.len() <= MOST
                && entries.all(|entry| {
                    entry.is_ok_and(|entry| {
                        let text = files.text(&entry.path, LARGEST);
                        entry.path.starts_with(&real.path) && text.is_ok_and(|it| certificates(&it))
                    })
                })
        }),
    };
    if !good {
        return Err("holds, or may hold, more than certificates (PEM)");
    }
    policy.links.extend(real.links);
    policy.paths.push(plain(Access::Read, real.path, true, source(name)));
    Ok(())
}

/// Whether a text is certificates (RFC 7468), with any text between them, and nothing else that is written so.
pub(crate) fn certificates(text: &str) -> bool {
    let (mut inside, mut any) = (None, false);
    for line in text.lines().map(str::trim) {
        let label = |word: &str| {
            line.strip_prefix(word)?.strip_suffix("-----").map(|label| {
                matches!(label, "CERTIFICATE" | "TRUSTED CERTIFICATE" | "X509 CERTIFICATE")
            })
        };
        match (label("-----BEGIN "), label("-----END "), &mut inside) {
            (Some(true), _, None) => inside = Some(String::new()),
            (None, Some(true), Some(body)) => {
                // A sequence of more than 127 bytes, as each certificate is.
                if !["MII", "MIH", "MIG"].iter().any(|der| body.starts_with(der)) {
                    return false;
                }
                (inside, any) = (None, true);
            }
            (None, None, Some(body)) => {
                if !line.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte))
                {
                    return false;
                }
                body.push_str(line);
            }
            (None, None, None) if !line.contains("-----") && !line.contains("PRIVATE KEY") => {}
            _ => return false,
        }
    }
    any && inside.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_told_from_what_is_more() {
        let one = "-----BEGIN CERTIFICATE-----\nMIIBqzCCAVGgAwIBAgI\nAbc+/w==\n-----END CERTIFICATE-----\n";
        let key = "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49\n-----END PRIVATE KEY-----\n";
        let crlf = one.replace('\n', "\r\n");
        for good in [one, &crlf, &format!("# a comment\n\nName\n====\n{one}{one}")] {
            assert!(certificates(good), "{good}");
        }
        for more in [
            "",
            "secret\n",
            key,
            &format!("{one}{key}"),
            &format!("{key}{one}"),
            &one.replace("-----END CERTIFICATE-----\n", ""),
            &one.replace("MII", "AAA"),
            &one.replace("Abc", "a secret"),
            &format!("{one}-----BEGIN OPENSSH PRIVATE KEY-----\n"),
            &format!("{one} -----BEGIN RSA PRIVATE KEY-----\n"),
        ] {
            assert!(!certificates(more), "{more}");
        }
    }
}
