//! The package registries that this user's tools are set up for.
//!
//! No registry is named in this program: what is allowed is what the tools' own configuration
//! says, read when a policy is made; where it says nothing, what the installed tools themselves
//! have as their default. Nothing is run.

mod installed;

use crate::files::Resolver;
use crate::host::{HostRule, Target};
use crate::port::Ports;
use crate::resolve::Context;
use std::path::{Path, PathBuf};

/// A configuration file larger than this is not read.
const MOST_BYTES: u64 = 1 << 20;

/// The tools that have registries.
pub const TOOLS: [&str; 5] = ["npm", "pip", "cargo", "go", "maven"];

/// Whether what a file says is believed. It is asked about files that say something, by their paths without links.
type Believed<'a> = &'a dyn Fn(&Path) -> bool;

/// The hosts of the registries that a tool is set up for. They may be none: then the tool would
/// use its own default, which a policy must name. A file that a variable leads to counts where it is believed: it could lie
/// in a tree that an earlier run wrote to. (What lies in the home is protected by its name, behind links too.)
///
/// # Errors
/// A sentence, for a tool that is not known.
pub fn hosts(
    tool: &str,
    context: &Context<'_>,
    believed: &dyn Fn(&Path) -> bool,
) -> Result<Vec<HostRule>, String> {
    let reader = Reader { context, believed };
    let addresses = match tool {
        "npm" => npm(&reader),
        "pip" => pip(&reader),
        "cargo" => cargo(&reader),
        "go" => go(&reader),
        "maven" => maven(&reader),
        _ => {
            let near = crate::suggest::tail(crate::suggest::nearest(tool, &TOOLS));
            return Err(format!(
                "`{tool}` has no registries; known are `{}`{near}",
                TOOLS.join("`, `")
            ));
        }
    };
    Ok(rules(&addresses))
}

/// The hosts that an installed tool uses when its settings name none; none where no file that is believed says so.
pub(crate) fn defaults(
    tool: &str,
    context: &Context<'_>,
    believed: &dyn Fn(&Path) -> bool,
) -> Vec<HostRule> {
    installed::defaults(tool, &Reader { context, believed })
        .map_or_else(Vec::new, |addresses| rules(&addresses))
}

fn rules(addresses: &[String]) -> Vec<HostRule> {
    let mut rules: Vec<HostRule> = Vec::new();
    for rule in addresses.iter().filter_map(|address| host(address)) {
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
    rules
}

/// The host and port of an address; `None` for files, and for what is no address.
fn host(address: &str) -> Option<HostRule> {
    let address = address.trim();
    let address = address.strip_prefix("sparse+").unwrap_or(address);
    let (scheme, rest) = address.split_once("://")?;
    let port = match scheme {
        "https" => 443,
        "http" => 80,
        _ => return None,
    };
    let authority = rest.split(['/', '?', '#']).next()?;
    let authority = authority.rsplit('@').next()?;
    let mut rule = HostRule::parse(authority).ok()?;
    // An address has one host and one port: what a rule's `*` or `1-9` would match, no tool asks for.
    let one_host = !matches!(rule.target, Target::Any | Target::Below(_));
    if rule.ports == Ports::default() {
        rule.ports = Ports::one(port);
    }
    (one_host && rule.ports.list(1).is_some()).then_some(rule)
}

struct Reader<'a> {
    context: &'a Context<'a>,
    believed: Believed<'a>,
}

/// A file of settings.
struct Settings {
    path: PathBuf,
    /// Whether a variable says where it is, and says another place than the usual one.
    led: bool,
}

impl Reader<'_> {
    fn env(&self, name: &str) -> Option<String> {
        (self.context.env)(name)?.into_string().ok().filter(|value| !value.is_empty())
    }

    fn text(&self, path: &Path) -> Option<String> {
        self.context.files.text(path, MOST_BYTES).ok()
    }

    fn home(&self, path: &str) -> PathBuf {
        self.context.home.join(path)
    }

    /// Where a variable says that a file, or the directory of a file, is; `usual` without it.
    fn place(&self, name: &str, usual: PathBuf, below: &str) -> Settings {
        let led = self.env(name).map(PathBuf::from).filter(|path| *path != usual);
        let (path, led) = led.map_or((usual, false), |path| (path, true));
        Settings { path: if below.is_empty() { path } else { path.join(below) }, led }
    }

    /// What a file of settings says, and nothing where that is not believed; none where there is no such file.
    fn said(&self, file: &Settings, read: fn(&str) -> Vec<String>) -> Option<Vec<String>> {
        let addresses = read(&self.text(&file.path)?);
        // Without links: only then its place says who can write it.
        let real = || Resolver::new(self.context.files).real(&file.path).ok();
        let counts = addresses.is_empty()
            || !file.led
            || real().is_some_and(|real| (self.believed)(&real.path));
        Some(if counts { addresses } else { Vec::new() })
    }

    fn config(&self, path: &str) -> PathBuf {
        let xdg = self.env("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        xdg.unwrap_or_else(|| self.home(".config")).join(path)
    }
}

/// A file at its usual place.
fn at(path: impl Into<PathBuf>) -> Settings {
    Settings { path: path.into(), led: false }
}

/// Only the user's files count, never the project's: a sandboxed program could have written
/// those, and would choose its own hosts.
fn npm(reader: &Reader<'_>) -> Vec<String> {
    let mut found = Vec::new();
    found.extend(reader.env("npm_config_registry").or_else(|| reader.env("NPM_CONFIG_REGISTRY")));
    let user = reader.place("NPM_CONFIG_USERCONFIG", reader.home(".npmrc"), "");
    // The machine's file is below the prefix of the node that runs npm; distributions have it in /etc.
    let machine = installed::program(reader, "node").and_then(|node| {
        let place = node.parent()?.parent()?.join("etc/npmrc");
        Some(Settings { path: place, led: true })
    });
    for file in [Some(user), machine, Some(at("/etc/npmrc"))].into_iter().flatten() {
        let said = reader.said(&file, |text| {
            // `registry`, and `@scope:registry`.
            let of = |name: &str| name == "registry" || name.ends_with(":registry");
            ini(text).into_iter().filter(|(name, _)| of(name)).map(|(_, value)| value).collect()
        });
        found.extend(said.into_iter().flatten());
    }
    let yarn = reader.said(&at(reader.home(".yarnrc.yml")), yarn_settings);
    found.extend(yarn.into_iter().flatten());
    found
}

/// Yarn's own settings, from its second version on: the registry of all, and of scopes, each in a line of its own.
fn yarn_settings(text: &str) -> Vec<String> {
    let value = |line: &str| {
        let (name, value) = line.trim().split_once(':')?;
        let value = value.split(" #").next()?.trim().trim_matches(['"', '\'']);
        (name.trim_matches('"') == "npmRegistryServer").then(|| value.to_owned())
    };
    text.lines().filter_map(value).collect()
}

fn pip(reader: &Reader<'_>) -> Vec<String> {
    let mut found = Vec::new();
    let variables = [
        "PIP_INDEX_URL",
        "PIP_EXTRA_INDEX_URL",
        "UV_INDEX_URL",
        "UV_INDEX",
        "UV_DEFAULT_INDEX",
        "UV_EXTRA_INDEX_URL",
    ];
    for value in variables.iter().filter_map(|name| reader.env(name)) {
        found.extend(value.split_whitespace().map(|index| unnamed(index).to_owned()));
    }
    // Beside the others, not instead of them.
    let usual = reader.config("pip/pip.conf");
    let own = reader.place("PIP_CONFIG_FILE", usual.clone(), "");
    let own = Some(own).filter(|own| own.led);
    let rest = [at(usual), at(reader.home(".pip/pip.conf")), at("/etc/pip.conf")];
    for file in own.into_iter().chain(rest) {
        found.extend(reader.said(&file, pip_settings).into_iter().flatten());
    }
    let own = reader.place("UV_CONFIG_FILE", reader.config("uv/uv.toml"), "");
    for file in [own, at("/etc/uv/uv.toml")] {
        found.extend(reader.said(&file, uv_settings).into_iter().flatten());
    }
    found
}

/// An index of uv's may have a name: `NAME=ADDRESS`.
fn unnamed(index: &str) -> &str {
    let named = index.split_once('=').filter(|(name, _)| !name.contains("://"));
    named.map_or(index, |(_, address)| address)
}

/// uv's own settings: `[[index]]`, and the older names, also those for its `pip` alone.
fn uv_settings(text: &str) -> Vec<String> {
    let Ok(table) = text.parse::<toml::Table>() else { return Vec::new() };
    let mut found = Vec::new();
    let pip = table.get("pip").and_then(toml::Value::as_table);
    for table in [Some(&table), pip].into_iter().flatten() {
        let indexes = table.get("index").and_then(toml::Value::as_array).into_iter().flatten();
        let extra = table.get("extra-index-url").and_then(toml::Value::as_array);
        let values = indexes.filter_map(|index| index.get("url"));
        let values = values.chain(table.get("index-url")).chain(extra.into_iter().flatten());
        found.extend(values.filter_map(toml::Value::as_str).map(|it| unnamed(it).to_owned()));
    }
    found
}

fn pip_settings(text: &str) -> Vec<String> {
    let names = ["index-url", "extra-index-url", "index_url", "extra_index_url"];
    let mut found = Vec::new();
    for (_, value) in ini(text).iter().filter(|(name, _)| names.contains(&name.as_str())) {
        found.extend(value.split_whitespace().map(str::to_owned));
    }
    found
}

fn cargo(reader: &Reader<'_>) -> Vec<String> {
    // `CARGO_REGISTRIES_NAME_INDEX`: its registries by variables, beside those of its file.
    let is_index = |name: &&String| {
        name.strip_prefix("CARGO_REGISTRIES_").is_some_and(|rest| rest.ends_with("_INDEX"))
    };
    let names = reader.context.variables.iter().filter(is_index);
    let named: Vec<String> = names.filter_map(|name| reader.env(name)).collect();
    let files = ["config.toml", "config"];
    let mut files =
        files.map(|name| reader.place("CARGO_HOME", reader.home(".cargo"), name)).into_iter();
    let said = files.find_map(|file| reader.said(&file, cargo_settings));
    named.into_iter().chain(said.into_iter().flatten()).collect()
}

fn cargo_settings(text: &str) -> Vec<String> {
    let Ok(table) = text.parse::<toml::Table>() else { return Vec::new() };
    let mut found = Vec::new();
    for (section, keys) in [("source", ["registry", "git"]), ("registries", ["index", "index"])] {
        let entries = table.get(section).and_then(toml::Value::as_table);
        for entry in entries.into_iter().flat_map(|entries| entries.values()) {
            let values = keys.iter().filter_map(|key| entry.get(key)?.as_str());
            found.extend(values.map(str::to_owned));
        }
    }
    found
}

/// What variables name counts before what the file names.
fn go(reader: &Reader<'_>) -> Vec<String> {
    let file = reader.place("GOENV", reader.config("go/env"), "");
    let mut found = Vec::new();
    let proxies = reader.env("GOPROXY").map(|value| go_proxies(&value));
    found.extend(proxies.or_else(|| reader.said(&file, go_written_proxies)).into_iter().flatten());
    let database = reader.env("GOSUMDB").map(|value| go_database(&value));
    let database = database.or_else(|| reader.said(&file, go_written_database));
    found.extend(database.into_iter().flatten());
    found
}

/// What Go's own file of defaults says.
fn go_settings(text: &str) -> Vec<String> {
    [go_written_proxies(text), go_written_database(text)].concat()
}

fn go_written_proxies(text: &str) -> Vec<String> {
    go_written(text, "GOPROXY").map_or_else(Vec::new, go_proxies)
}

fn go_written_database(text: &str) -> Vec<String> {
    go_written(text, "GOSUMDB").map_or_else(Vec::new, go_database)
}

/// The value of the last line for a name.
fn go_written<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = text.lines().filter_map(|line| line.split_once('='));
    lines.rfind(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
}

fn go_proxies(value: &str) -> Vec<String> {
    value.split([',', '|']).map(str::to_owned).collect()
}

/// The checksum database is named `NAME`, `NAME+KEY` or `NAME+KEY URL`.
fn go_database(value: &str) -> Vec<String> {
    if let Some((_, address)) = value.split_once(' ') {
        return vec![address.to_owned()];
    }
    let name = value.split('+').next().unwrap_or(value);
    if name.contains('.') { vec![format!("https://{name}")] } else { Vec::new() }
}

/// The addresses of mirrors and repositories in Maven's settings. Their XML is taken by its
/// elements only: no entities, no processing.
fn maven(reader: &Reader<'_>) -> Vec<String> {
    reader.said(&at(reader.home(".m2/settings.xml")), maven_settings).unwrap_or_default()
}

fn maven_settings(text: &str) -> Vec<String> {
    let mut rest = without_comments(text);
    let mut found = Vec::new();
    while let Some(start) = rest.find("<url>") {
        let after = rest.split_off(start + "<url>".len());
        let end = after.find("</url>").unwrap_or(after.len());
        found.push(after[..end].trim().to_owned());
        rest = after[end..].to_owned();
    }
    found
}

fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("<!--") {
        out.push_str(before);
        rest = after.split_once("-->").map_or("", |(_, after)| after);
    }
    out + rest
}

/// The lines `name = value` of an ini-like file; indented lines continue the value.
pub(crate) fn ini(text: &str) -> Vec<(String, String)> {
    let mut out: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with(['#', ';', '[']) {
            continue;
        }
        match (line.starts_with([' ', '\t']), trimmed.split_once('='), out.last_mut()) {
            (true, _, Some((_, value))) if !trimmed.contains('=') => {
                value.push(' ');
                value.push_str(trimmed);
            }
            (_, Some((name, value)), _) => {
                out.push((name.trim().to_owned(), value.trim().trim_matches('"').to_owned()));
            }
            _ => {}
        }
    }
    out
}
