//! What becomes of the environment.

use crate::error::PolicyError;
use crate::key::Key;
use crate::merge::Merged;
use crate::policy::{Environment, Network, Source};
use crate::resolve::{Context, choice};
use crate::secrets::{
    BY_VALUE, HARMLESS, HIDDEN, SOCKET_VARIABLES, is_address, is_address_with_password,
    with_password,
};

pub(crate) fn resolve(
    merged: &Merged,
    context: &Context<'_>,
    network: &Network,
) -> Result<Environment, PolicyError> {
    let mut environment = Environment {
        clean: choice(merged, Key::Clean).is_some_and(|(value, _)| value == "true"),
        ..Environment::default()
    };
    environment.hide.reserve(HIDDEN.len());
    for (pattern, _) in HIDDEN {
        environment.hide.push(((*pattern).to_owned(), built_in()));
    }
    // Each that is asked for is in the compiled plan with its value: there are few.
    for name in BY_VALUE.iter().flat_map(|name| [(*name).to_owned(), name.to_ascii_lowercase()]) {
        if (context.env)(&name).is_some_and(|value| with_password(&value)) {
            environment.hide.push((name, built_in()));
        }
    }
    // Those with such names are few as well.
    for name in context.variables.iter().filter(|name| is_address(name)) {
        if (context.env)(name).is_some_and(|value| is_address_with_password(&value)) {
            environment.hide.push((name.clone(), built_in()));
        }
    }
    for name in HARMLESS {
        environment.pass.insert((*name).to_owned(), built_in());
    }
    for entry in merged.of_key(Key::Hide) {
        let source = merged.source(entry);
        environment.hide.push((name(&source, &source.text, true)?, source));
    }
    for variable in SOCKET_VARIABLES {
        if let Some(source) = granted_socket(variable, context, network) {
            environment.pass.insert((*variable).to_owned(), source);
        }
    }
    for entry in merged.of_key(Key::Pass) {
        let source = merged.source(entry);
        environment.pass.insert(name(&source, &source.text, true)?, source);
    }
    for entry in merged.of_key(Key::Set) {
        let mut source = merged.source(entry);
        let text =
            entry.text.to_str().ok_or_else(|| PolicyError::value(&source, "it is not UTF-8"))?;
        if text.contains('\0') {
            return Err(PolicyError::value(&source, "it holds a NUL"));
        }
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        let key = name(&source, key, false)?;
        // The value may be a secret, and sources are printed.
        source.text.clone_from(&key);
        if let Some((_, what)) = OWN.iter().find(|(own, _)| *own == key) {
            let reason = format!("ringfence sets this variable itself: {what}; leave it out");
            return Err(PolicyError::value(&source, reason));
        }
        environment.set.insert(key, (value.to_owned(), source));
    }
    Ok(environment)
}

/// Variables by which programs inside know where they are: a rule that set one would tell them something else.
const OWN: [(&str, &str); 4] = [
    ("RINGFENCE", "programs see by it that they are in a sandbox"),
    ("RINGFENCE_SESSION", "programs see by it which session they are in"),
    ("RINGFENCE_NETWORK", "programs see by it whether there is a network"),
    ("RINGFENCE_GATEWAY", "programs find by it where snapshots are made"),
];

/// The reasons stay in the list itself: this is made at each start.
fn built_in() -> Source {
    Source { origin: "built in".to_owned(), key: String::new(), text: String::new() }
}

/// The rule that grants the socket a variable names, so that the variable is of use inside.
fn granted_socket(variable: &str, context: &Context<'_>, network: &Network) -> Option<Source> {
    if network.sockets.is_empty() {
        return None;
    }
    let value = (context.env)(variable)?.into_string().ok()?;
    let path = value
        .strip_prefix("unix://")
        .or_else(|| value.strip_prefix("unix:path="))
        .unwrap_or(&value);
    let path = path.split(',').next().unwrap_or(path);
    let rule = network.sockets.iter().find(|rule| rule.path == std::path::Path::new(path));
    rule.map(|rule| rule.source.clone())
}

fn name(source: &Source, text: &str, pattern: bool) -> Result<String, PolicyError> {
    if text.is_empty() || text.contains(['=', '\0']) {
        let what = if pattern { "a name or pattern" } else { "a name" };
        return Err(PolicyError::value(
            source,
            format!("`{}` is not {what} of a variable", text.escape_debug()),
        ));
    }
    Ok(text.to_owned())
}
