//! The package registries that this user's tools are set up for.
//!
//! No registry is named in this program: what is allowed is what the tools' own configuration
//! says, read when a policy is made; where it says nothing, what the installed tools themselves
//! have as their default. Nothing is run.

mod installed;

use crate::host::HostRule;
use crate::port::Ports;
use crate::resolve::Context;
use std::path::{Path, PathBuf};

/// A configuration file larger than this is not read.
const MOST_BYTES: u64 = 1 << 20;

/// The tools that have registries.
pub const TOOLS: [&str; 5] = ["npm", "pip", "cargo", "go", "maven"];

/// The hosts of the registries that a tool is set up for. They may be none: then the tool would
/// use its own default, which a policy must name.
///
/// # Errors
/// A sentence, for a tool that is not known.
pub fn hosts(tool: &str, context: &Context<'_>) -> Result<Vec<HostRule>, String> {
    let reader = Reader { context };
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
    installed::defaults(tool, &Reader { context }, believed)
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
    if rule.ports == Ports::default() {
        rule.ports = Ports::one(port);
    }
    Some(rule)
}

struct Reader<'a> {
    context: &'a Context<'a>,
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

    fn config(&self, path: &str) -> PathBuf {
        let xdg = self.env("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        xdg.unwrap_or_else(|| self.home(".config")).join(path)
    }
}

/// Only the user's files count, never the project's: a sandboxed program could have written
/// those, and would choose its own hosts.
fn npm(reader: &Reader<'_>) -> Vec<String> {
    let mut found = Vec::new();
    found.extend(reader.env("npm_config_registry").or_else(|| reader.env("NPM_CONFIG_REGISTRY")));
    let user = reader.env("NPM_CONFIG_USERCONFIG").map(PathBuf::from);
    for file in [user.unwrap_or_else(|| reader.home(".npmrc")), PathBuf::from("/etc/npmrc")] {
        for (name, value) in reader.text(&file).iter().flat_map(|text| ini(text)) {
            // `registry`, and `@scope:registry`.
            if name == "registry" || name.ends_with(":registry") {
                found.push(value);
            }
        }
    }
    found
}

fn pip(reader: &Reader<'_>) -> Vec<String> {
    let mut found = Vec::new();
    let variables = [
        "PIP_INDEX_URL",
        "PIP_EXTRA_INDEX_URL",
        "UV_INDEX_URL",
        "UV_DEFAULT_INDEX",
        "UV_EXTRA_INDEX_URL",
    ];
    for value in variables.iter().filter_map(|name| reader.env(name)) {
        found.extend(value.split_whitespace().map(str::to_owned));
    }
    let own = reader.env("PIP_CONFIG_FILE").map(PathBuf::from);
    let files = [
        own,
        Some(reader.config("pip/pip.conf")),
        Some(reader.home(".pip/pip.conf")),
        Some(PathBuf::from("/etc/pip.conf")),
    ];
    for text in files.into_iter().flatten().filter_map(|file| reader.text(&file)) {
        for (name, value) in ini(&text) {
            if matches!(
                name.as_str(),
                "index-url" | "extra-index-url" | "index_url" | "extra_index_url"
            ) {
                found.extend(value.split_whitespace().map(str::to_owned));
            }
        }
    }
    found
}

fn cargo(reader: &Reader<'_>) -> Vec<String> {
    let home = reader.env("CARGO_HOME").map_or_else(|| reader.home(".cargo"), PathBuf::from);
    let text = reader.text(&home.join("config.toml")).or_else(|| reader.text(&home.join("config")));
    let Some(table) = text.and_then(|text| text.parse::<toml::Table>().ok()) else {
        return Vec::new();
    };
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

fn go(reader: &Reader<'_>) -> Vec<String> {
    let file = reader.env("GOENV").map_or_else(|| reader.config("go/env"), PathBuf::from);
    go_settings(&|name| reader.env(name), &reader.text(&file).unwrap_or_default())
}

fn go_settings(env: &dyn Fn(&str) -> Option<String>, text: &str) -> Vec<String> {
    let written = |name: &str| {
        let lines = text.lines().filter_map(|line| line.split_once('='));
        lines
            .filter(|(key, _)| key.trim() == name)
            .map(|(_, value)| value.trim().to_owned())
            .next_back()
    };
    let mut found = Vec::new();
    if let Some(proxies) = env("GOPROXY").or_else(|| written("GOPROXY")) {
        found.extend(proxies.split([',', '|']).map(str::to_owned));
    }
    // The checksum database is named `NAME`, `NAME+KEY` or `NAME+KEY URL`.
    if let Some(database) = env("GOSUMDB").or_else(|| written("GOSUMDB")) {
        match database.split_once(' ') {
            Some((_, address)) => found.push(address.to_owned()),
            None => {
                let name = database.split('+').next().unwrap_or(&database);
                if name.contains('.') {
                    found.push(format!("https://{name}"));
                }
            }
        }
    }
    found
}

/// The addresses of mirrors and repositories in Maven's settings. Their XML is taken by its
/// elements only: no entities, no processing.
fn maven(reader: &Reader<'_>) -> Vec<String> {
    let Some(text) = reader.text(&reader.home(".m2/settings.xml")) else { return Vec::new() };
    let mut rest = without_comments(&text);
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
fn ini(text: &str) -> Vec<(String, String)> {
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
