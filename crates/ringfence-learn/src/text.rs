//! A proposal as a profile file, and its additions to one that is there.

use crate::draft::Draft;
use crate::propose::{Proposal, Rule};
use ringfence_policy::shown::obeyed;
use std::fmt::Write;

/// The order in which tables and keys are written.
const ORDER: [(&str, &str); 11] = [
    ("filesystem", "read"),
    ("filesystem", "write"),
    ("network", "allow"),
    ("network", "sockets"),
    ("network", "publish"),
    ("dbus", "see"),
    ("dbus", "talk"),
    ("dbus", "own"),
    ("dbus", "call"),
    ("environment", "pass"),
    ("syscalls", "allow"),
];

/// A new profile. `head` is put in front as comments; `base` are the profiles it builds on.
pub fn profile(proposal: &Proposal, head: &[String], base: &[String]) -> String {
    let names: Vec<String> = base.iter().map(|name| quoted(name)).collect();
    written(proposal, head, &format!("extends = [{}]\n", names.join(", ")))
}

/// A new profile from a draft, on top of `base`: its keys at the top, then what is proposed.
pub fn drafted(proposal: &Proposal, head: &[String], base: &[String], draft: &Draft) -> String {
    let names: Vec<String> = base.iter().map(|name| quoted(name)).collect();
    let mut top = format!("extends = [{}]\n", names.join(", "));
    if !draft.features.is_empty() {
        top.push_str("features = [\n");
        for wanted in &draft.features {
            let (name, sign) = (quoted(wanted.feature), wanted.sign.display().to_string());
            let sign = one_line(&sign);
            match wanted.reason {
                "" => _ = writeln!(top, "    {name}, # {sign} calls for it"),
                reason => {
                    _ = writeln!(
                        top,
                        "    # NOT proposed, {reason}:\n    # {name}, # {sign} calls for it"
                    )
                }
            }
        }
        top.push_str("]\n");
    }
    top.push_str("arguments = \"read\"\n");
    if draft.exact {
        top.push_str("libs = \"exact\"\n");
    }
    written(proposal, head, &top)
}

fn written(proposal: &Proposal, head: &[String], top: &str) -> String {
    let mut text = String::new();
    for line in head {
        let _ = writeln!(text, "# {}", one_line(line));
    }
    if let Some(told) = proposal.told() {
        let _ = writeln!(text, "# NOT proposed: {told}.");
    }
    for told in [proposal.stays(), proposal.parted()].into_iter().flatten() {
        let _ = writeln!(text, "# {}.", one_line(&told));
    }
    text.push_str(top);
    let mut table = "";
    for key in ORDER {
        let proposed: Vec<&Rule> = proposal.rules.iter().filter(|rule| rule.key == key).collect();
        let withheld: Vec<&Rule> =
            proposal.withheld.iter().filter(|rule| rule.key == key).collect();
        if proposed.is_empty() && withheld.is_empty() {
            continue;
        }
        if table != key.0 {
            table = key.0;
            let _ = write!(text, "\n[{table}]\n");
            if table == "syscalls" {
                text.push_str("mode = \"learned\"\n");
            }
        }
        let open = if proposed.is_empty() { "# " } else { "" };
        let _ = writeln!(text, "{open}{} = [", key.1);
        for rule in proposed {
            let _ = writeln!(text, "    {}", entry(rule));
        }
        for rule in withheld {
            let _ = writeln!(
                text,
                "    # NOT proposed, {}:\n    # {}",
                one_line(&rule.reason),
                entry(rule)
            );
        }
        let _ = writeln!(text, "{open}]");
    }
    text
}

/// An entry of a list, with what it is for.
fn entry(rule: &Rule) -> String {
    let times =
        if rule.uses.count == 1 { "once".to_owned() } else { format!("{} times", rule.uses.count) };
    let by: Vec<&str> = rule.uses.by.iter().take(4).map(String::as_str).collect();
    let more = rule.uses.by.len().saturating_sub(4);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let value = if rule.key.1 == "publish" { rule.text.clone() } else { quoted(&rule.text) };
    format!("{value}, # {times}, by {}{more}", one_line(&by.join(", ")))
}

/// A comment must not break its line: names come from the program.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if obeyed(c) { '?' } else { c }).collect()
}

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if obeyed(c) => _ = write!(quoted, "\\u{:04X}", c as u32),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// The proposal added to a profile's text: each list gets its new entries at its beginning, and all else stays as it is
/// written, in tables with headers, in keys with dots and in tables on one line. Nothing where the text is no profile.
pub fn merged(profile: &str, proposal: &Proposal) -> Option<String> {
    let mut text = profile.to_owned();
    for (table, key) in ORDER {
        let rules = proposal.rules.iter().filter(|rule| rule.key == (table, key));
        let entries: Vec<String> = rules.map(entry).collect();
        if entries.is_empty() {
            continue;
        }
        let calls = table == "syscalls";
        let first = calls.then_some(("mode", "\"learned\""));
        text = ringfence_policy::edit::added(&text, table, key, &entries, first)?;
    }
    Some(text)
}

/// The lines that a change adds, in the form of `diff -u` without context.
pub fn difference(old: &str, new: &str) -> String {
    let old: Vec<&str> = old.lines().collect();
    let mut at = 0;
    let mut text = String::new();
    for line in new.lines() {
        if old.get(at) == Some(&line) {
            at += 1;
        } else if let Some(ahead) = old[at..].iter().position(|known| *known == line) {
            for gone in &old[at..at + ahead] {
                let _ = writeln!(text, "-{gone}");
            }
            at += ahead + 1;
        } else {
            let _ = writeln!(text, "+{line}");
        }
    }
    for gone in &old[at..] {
        let _ = writeln!(text, "-{gone}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::Use;

    fn rule(key: (&'static str, &'static str), text: &str, reason: &str) -> Rule {
        let mut uses = Use::default();
        uses.add("git");
        Rule { key, text: text.to_owned(), uses, reason: reason.to_owned() }
    }

    fn proposal() -> Proposal {
        Proposal {
            rules: vec![
                rule(("filesystem", "read"), "~/.config/app?", ""),
                rule(("network", "allow"), "example.org:443", ""),
            ],
            withheld: vec![rule(("filesystem", "read"), "~/.ssh/id?", "credentials:\nof ssh")],
            common: ["/sys/fs/cgroup"].into(),
            gone: [].into(),
            stay: [].into(),
            apart: [].into(),
        }
    }

    #[test]
    fn a_profile_says_what_each_rule_is_for_and_what_is_withheld() {
        let text = profile(&proposal(), &["Learnt".to_owned()], &["default".to_owned()]);
        assert!(text.contains("    \"~/.config/app?\", # once, by git\n"), "{text}");
        assert!(
            text.contains("# NOT proposed: nearly each runtime asks for /sys/fs/cgroup and"),
            "{text}"
        );
        assert!(
            text.contains("    # NOT proposed, credentials:?of ssh:\n    # \"~/.ssh/id?\""),
            "{text}"
        );
        ringfence_policy::Profile::from_toml(&text, "learnt").expect("it is a profile");
    }

    #[test]
    fn what_a_terminal_obeys_is_written_as_its_number() {
        let name = "a\u{1b}\u{9b}\u{202e}\u{61c}\"\\b";
        let written = quoted(name);
        assert_eq!(written, "\"a\\u001B\\u009B\\u202E\\u061C\\\"\\\\b\"");
        let profile = format!("[filesystem]\nread = [{written}]\n");
        let profile =
            ringfence_policy::Profile::from_toml(&profile, "odd").expect("it is a profile");
        let read = profile.list(ringfence_policy::Key::Read).expect("a list");
        assert_eq!(read[0], name);
        assert_eq!(one_line("x\u{202e}\ny"), "x??y");
    }

    #[test]
    fn additions_go_into_the_lists_that_are_there() {
        let old = "description = \"x\"\n\n[filesystem]\nread = [\"/a\", \"/b\"]\nwrite = [\n    \".\",\n]\n";
        let new = merged(old, &proposal()).expect("it is a profile");
        ringfence_policy::Profile::from_toml(&new, "merged").expect("it is a profile");
        assert!(new.contains("[network]\nallow = [\n    \"example.org:443\""), "{new}");
        assert!(
            new.contains("read = [\n    \"~/.config/app?\", # once, by git\n    \"/a\", \"/b\"]\n"),
            "{new}"
        );
        let shown = difference(old, &new);
        assert!(shown.contains("+    \"~/.config/app?\""), "{shown}");
        assert_eq!(difference(old, old), "");
    }

    #[test]
    fn lines_end_as_they_did() {
        let old = "description = \"x\"\r\n\r\n[filesystem]\r\nread = [\"/a\",\r\n    \"/b\"]\r\n";
        let merged = |old: &str| merged(old, &proposal()).expect("it is a profile");
        let new = merged(old);
        let plain = merged(&old.replace('\r', ""));
        assert_eq!(new, plain.replace('\n', "\r\n"));
        assert_eq!(difference(old, &new), difference(&old.replace('\r', ""), &plain));
        ringfence_policy::Profile::from_toml(&new, "merged").expect("it is a profile");
        assert!(!plain.contains('\r') && plain.contains("    \"~/.config/app?\""), "the control");
        assert!(merged("").starts_with("\n[filesystem]\n"));
    }
}
