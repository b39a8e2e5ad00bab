//! The `[dbus]` part of a policy: which names of the session bus are seen, talked to, owned.
//!
//! The rules are those of xdg-dbus-proxy(1), which enforces them.

use crate::error::PolicyError;
use crate::key::Key;
use crate::merge::Merged;
use crate::policy::{BusAccess, BusRule, Source};

/// The longest name on a bus (D-Bus specification, "Message Protocol/Names").
const LONGEST: usize = 255;
/// Names behind which anything can be started, or everything be read, outside.
const DANGEROUS: [(&str, &str); 4] = [
    ("org.freedesktop.systemd1", "starts any program outside"),
    ("org.freedesktop.Flatpak", "starts any program outside"),
    ("org.gnome.Shell", "runs scripts in the desktop"),
    ("org.freedesktop.secrets", "reads the passwords in the keyring"),
];
/// What portals answer as: org.freedesktop.portal.Desktop, .Documents, …
const PORTALS: &str = "org.freedesktop.portal.*";

pub(crate) fn resolve(
    merged: &Merged,
    warnings: &mut Vec<String>,
) -> Result<Vec<BusRule>, PolicyError> {
    let mut rules = Vec::new();
    let keys = [
        (Key::DbusSee, BusAccess::See),
        (Key::DbusTalk, BusAccess::Talk),
        (Key::DbusOwn, BusAccess::Own),
        (Key::DbusCall, BusAccess::Call),
    ];
    for (key, access) in keys {
        for entry in merged.of_key(key) {
            let source = merged.source(entry);
            let rule = rule(access, &source.text, &source)
                .map_err(|reason| PolicyError::value(&source, reason))?;
            let dangerous =
                |(name, _): &&(&str, &str)| access != BusAccess::See && covers(&rule.name, name);
            if let Some((name, what)) = DANGEROUS.iter().find(dangerous) {
                warnings.push(format!("{} opens {name}, which {what}", source.text));
            }
            rules.push(rule);
        }
    }
    if let Some(entry) = merged.single(Key::DbusPortals).filter(|entry| *entry.text == *"true") {
        let source = merged.source(entry);
        let (access, name) = (BusAccess::Talk, PORTALS.to_owned());
        rules.push(BusRule { access, name, rule: None, source });
    }
    Ok(rules)
}

/// Reads `NAME`, `NAME.*` or, for calls, `NAME=RULE`.
fn rule(access: BusAccess, text: &str, source: &Source) -> Result<BusRule, String> {
    let (name, rule) = match (access, text.split_once('=')) {
        (BusAccess::Call, Some((name, rule))) => (name, Some(rule)),
        (BusAccess::Call, None) => {
            return Err("write NAME=INTERFACE.METHOD@/PATH, * for any".to_owned());
        }
        (_, None) => (text, None),
        (_, Some(_)) => return Err("only `call` takes a rule after the name".to_owned()),
    };
    let parts: Vec<&str> = name.strip_suffix(".*").unwrap_or(name).split('.').collect();
    let part = |part: &&str| {
        let mut bytes = part.bytes();
        bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || b"_-".contains(&first))
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
    };
    if parts.len() < 2 || name.len() > LONGEST || !parts.iter().all(part) || name.starts_with('-') {
        return Err("this is no well-known name of a bus, as in org.example.App or org.example.*"
            .to_owned());
    }
    let ordinary = |byte: u8| byte.is_ascii_alphanumeric() || b"_.*@/".contains(&byte);
    if rule.is_some_and(|rule| rule.is_empty() || !rule.bytes().all(ordinary)) {
        return Err("a rule is INTERFACE.METHOD@/PATH, * for any".to_owned());
    }
    Ok(BusRule {
        access,
        name: name.to_owned(),
        rule: rule.map(ToOwned::to_owned),
        source: source.clone(),
    })
}

/// Whether a rule's name covers a name.
fn covers(rule: &str, name: &str) -> bool {
    match rule.strip_suffix(".*") {
        Some(prefix) => {
            name.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        }
        None => rule == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(access: BusAccess, text: &str) -> Result<BusRule, String> {
        let source = Source { origin: String::new(), key: String::new(), text: text.to_owned() };
        rule(access, text, &source)
    }

    #[test]
    fn names_are_those_of_the_specification() {
        for good in ["org.example.App", "org.example.*", "org._7zip.a-b", "a.b"] {
            assert!(read(BusAccess::Talk, good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "*",
            "org",
            "org..a",
            ".a.b",
            "a.b.",
            "org.7zip",
            ":1.5",
            "--own=a.b",
            "a.b c",
            "a.*.b",
            "a.b\n",
            "-a.b",
        ] {
            assert!(read(BusAccess::Talk, bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_calls_have_rules() {
        let call = read(BusAccess::Call, "org.example.App=org.example.If.Do@/a/*").expect("a rule");
        assert_eq!(call.rule.as_deref(), Some("org.example.If.Do@/a/*"));
        for bad in ["org.example.App", "org.example.App=", "org.example.App=a b"] {
            assert!(read(BusAccess::Call, bad).is_err(), "{bad}");
        }
        assert!(read(BusAccess::Own, "org.example.App=*").is_err());
    }

    #[test]
    fn a_star_covers_what_is_below() {
        assert!(covers("org.freedesktop.*", "org.freedesktop.systemd1"));
        assert!(covers("org.freedesktop.systemd1.*", "org.freedesktop.systemd1"));
        assert!(!covers("org.free.*", "org.freedesktop.systemd1"));
    }
}
