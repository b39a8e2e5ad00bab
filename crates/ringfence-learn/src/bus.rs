//! What was asked of the session bus, by the words of `xdg-dbus-proxy --log`: names that were
//! called, looked for, or to be owned, and were hidden by its filter.

use crate::propose::{Proposal, Rule};
use crate::watch::Use;
use ringfence_policy::{BusAccess, Policy};
use std::collections::{BTreeMap, BTreeSet};

/// The longest log that is read, in bytes.
const MOST: usize = 16 << 20;

/// One thing that was asked: what would have to be granted, and its rule.
pub type Wish = (BusAccess, String);

/// The bus itself, which everybody may talk to.
const BUS: &str = "org.freedesktop.DBus";

/// Reads a log: how often each thing was refused.
pub fn refused(log: &str) -> BTreeMap<Wish, u64> {
    let mut wishes: BTreeMap<Wish, u64> = BTreeMap::new();
    let mut call: Option<Wish> = None;
    for line in log.get(..MOST).unwrap_or(log).lines() {
        if let Some(wish) = filtered(line) {
            *wishes.entry(wish).or_default() += 1;
            call = None;
        } else if line.starts_with("*HIDDEN*") {
            if let Some(wish) = call.take() {
                *wishes.entry(wish).or_default() += 1;
            }
        } else {
            call = called(line);
        }
    }
    wishes
}

/// `C3: -> NAME call INTERFACE.METHOD at /PATH`
fn called(line: &str) -> Option<Wish> {
    let (client, rest) = line.split_once(": -> ")?;
    client.strip_prefix('C')?.parse::<u64>().ok()?;
    let words: Vec<&str> = rest.split_whitespace().collect();
    let [name, "call", method, "at", path] = words[..] else { return None };
    let told = is_name(name) && name != BUS && is_name(method) && path.starts_with('/');
    told.then(|| (BusAccess::Call, format!("{name}={method}@{path}")))
}

/// `Filtering message due to arg0 NAME, policy: 0 (required 3)`
fn filtered(line: &str) -> Option<Wish> {
    let rest = line.strip_prefix("Filtering message due to arg0 ")?;
    let (name, rest) = rest.split_once(", policy: ")?;
    let access = match rest.split_once("(required ")?.1 {
        "1)" => BusAccess::See,
        "2)" => BusAccess::Talk,
        "3)" => BusAccess::Own,
        _ => return None,
    };
    is_name(name).then(|| (access, name.to_owned()))
}

/// The characters of names and methods; a unique name (`:1.7`) is nobody's for long.
fn is_name(text: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    !text.is_empty() && text.len() <= 512 && text.contains('.') && text.bytes().all(known)
}

impl Proposal {
    /// What of the bus was asked for. Whoever answers there acts outside: it is named, and left
    /// to the user. `by` are the programs that connected.
    pub fn bus(&mut self, policy: &Policy, wishes: &BTreeMap<Wish, u64>, by: &BTreeSet<String>) {
        for ((access, text), count) in wishes {
            let granted = policy.dbus.iter().any(|rule| {
                let covers = rule.access == *access || rule.access == BusAccess::Talk;
                covers && rule.rule.is_none() && rule.name == *text
            });
            if granted {
                continue;
            }
            let (key, reason) = match access {
                BusAccess::See => ("see", "it tells which programs run outside"),
                BusAccess::Talk => ("talk", "who answers on the session bus acts outside"),
                BusAccess::Call => ("call", "who answers on the session bus acts outside"),
                BusAccess::Own => ("own", "programs outside take it for a service of this name"),
            };
            let uses = Use { count: *count, by: by.clone(), ..Use::default() };
            let (text, reason) = (text.clone(), reason.to_owned());
            self.withheld.push(Rule { key: ("dbus", key), text, uses, reason });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As xdg-dbus-proxy 0.1.4 prints it.
    const LOG: &str = "C1: -> org.freedesktop.DBus call org.freedesktop.DBus.Hello at /org/freedesktop/DBus
B1: <- org.freedesktop.DBus return from C1
C2: -> org.freedesktop.Notifications call org.freedesktop.Notifications.Notify at /org/freedesktop/Notifications
*HIDDEN* (ping)
B3: <- (no sender) return from C2
*REWRITTEN*
C3: -> org.freedesktop.DBus call org.freedesktop.DBus.RequestName at /
Filtering message due to arg0 org.example.Mine, policy: 0 (required 3)
*HIDDEN* (ping)
C4: -> org.freedesktop.DBus call org.freedesktop.DBus.NameHasOwner at /
Filtering message due to arg0 org.x.y, policy: 0 (required 1)
C5: -> org.example.Allowed call org.example.Allowed.Do at /
B6: <- org.example.Allowed return from C5
";

    #[test]
    fn what_was_hidden_is_told_as_the_narrowest_rule() {
        let wishes: Vec<_> = refused(LOG).into_keys().collect();
        let mut texts: Vec<&str> = wishes.iter().map(|(_, text)| text.as_str()).collect();
        texts.sort_unstable();
        let call = "org.freedesktop.Notifications=org.freedesktop.Notifications.Notify@/org/freedesktop/Notifications";
        assert_eq!(texts, ["org.example.Mine", call, "org.x.y"]);
        assert!(wishes.contains(&(BusAccess::Own, "org.example.Mine".to_owned())));
    }

    #[test]
    fn odd_lines_are_no_rules() {
        for line in [
            "C1: -> a.b\" call x.y at /\n*HIDDEN*",
            "C1: -> :1.7 call x.y at /\n*HIDDEN*",
            "Filtering message due to arg0 a\"]\nb, policy: 0 (required 3)",
            "Filtering message due to arg0 a.b, policy: 0 (required 9)",
            "*HIDDEN*\n*HIDDEN*",
        ] {
            assert!(refused(line).is_empty(), "{line}");
        }
    }
}
