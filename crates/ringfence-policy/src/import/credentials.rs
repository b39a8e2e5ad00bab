//! The sandbox runtime's `credentials`: files and variables that are hidden, or masked until a request leaves.

use super::Importer;
use crate::key::Key;
use serde_json::Value as Json;

pub(super) fn import(importer: &mut Importer) {
    for (list, name, key) in
        [("credentials.files", "path", Key::Deny), ("credentials.envVars", "name", Key::Hide)]
    {
        for entry in importer.list(list) {
            one(importer, list, name, key, &entry);
        }
    }
    for masking in ["credentials.awsPairs", "credentials.sigv4", "credentials.allowPlaintextInject"]
    {
        if importer.take(masking).is_some() {
            importer.note(format!(
                "`{masking}` is about masked credentials, which are hidden here: left out"
            ));
        }
    }
}

/// One file or variable: what is masked there is hidden here, and put into requests by a rule of its own.
fn one(importer: &mut Importer, list: &str, member: &str, key: Key, entry: &Json) {
    let Some(what) = entry.get(member).and_then(Json::as_str) else {
        importer.note(format!(
            "`{list}` holds {entry}, which has no `{member}` that is a text: left out"
        ));
        return;
    };
    let variable = key == Key::Hide;
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if !variable {
        importer.paths(list, key, vec![what.to_owned()]);
    } else if what.is_empty() || !what.chars().all(plain) {
        importer.note(format!("`{list}`: `{what}` is no name of a variable: left out"));
        return;
    } else {
        importer.profile.add(key, what.to_owned());
    }
    match entry.get("mode") {
        Some(Json::String(mode)) if mode == "deny" => {}
        Some(Json::String(mode)) if mode == "mask" => {
            let source = if variable { format!("env:{what}") } else { format!("file:{what}") };
            let hosts = match entry.get("injectHosts").and_then(Json::as_array) {
                Some(hosts) => {
                    let hosts = hosts.iter().filter_map(Json::as_str).collect::<Vec<_>>();
                    format!(" (for {})", hosts.join(", "))
                }
                None => String::new(),
            };
            importer.note(format!(
                "`{list}`: `{what}` is hidden, not masked; to put it into requests{hosts}, add `HOST HEADER={{{source}}}` to `inject` under [network]"
            ));
        }
        other => {
            let mode = other.map_or_else(|| "nothing".to_owned(), Json::to_string);
            importer.note(format!(
                "`{list}`: the mode of `{what}` is {mode}, neither \"deny\" nor \"mask\": hidden"
            ));
        }
    }
}
