//! The verbs of `ringfence snapshot`, and what each of them takes.

use super::arguments::Given;
use super::text;

/// All of them.
pub(super) const ALL: [&str; 9] =
    ["create", "list", "show", "changes", "diff", "history", "revert", "compact", "delete"];

/// Options that are not for all of them, and for which they are: one that is passed over would be taken for heeded.
const OPTIONS: [(&str, &[&str]); 6] = [
    ("name", &["create", "compact"]),
    ("exclude-ignored", &["create"]),
    ("session", &["create"]),
    ("dry-run", &["revert"]),
    ("resume", &["revert"]),
    ("abandon", &["revert"]),
];

/// A word that a verb has no use for was meant for something.
pub(super) fn check(verb: &str, given: &Given, paths: usize) -> Result<(), String> {
    let (most, why) = match verb {
        "create" => (1, "a name is given by --name: ringfence snapshot create --name NAME"),
        "list" => (1, "it shows all snapshots of the workspace (--workspace DIR)"),
        "show" => (3, "it takes a snapshot and one path"),
        "changes" | "diff" => (3, "it takes two snapshots at the most; paths come after `--`"),
        "history" => (2, "it takes one path"),
        "revert" if given.has("resume") || given.has("abandon") => {
            (1, "what was interrupted is known: it takes no snapshot")
        }
        _ => (usize::MAX, ""),
    };
    let one = matches!(verb, "show" | "history");
    let words = given.words.len() + if one { paths } else { 0 };
    if words > most {
        let extra = given
            .words
            .get(most)
            .map_or_else(String::new, |word| format!(" {}", text::safe(word.as_encoded_bytes())));
        return Err(format!("ringfence snapshot {verb}{extra}: {why}"));
    }
    for (option, verbs) in OPTIONS {
        if (given.has(option) || given.value(option).is_some()) && !verbs.contains(&verb) {
            let verbs = verbs.join(" and ");
            return Err(format!("ringfence snapshot {verb} takes no --{option}: {verbs} does"));
        }
    }
    let finishes = given.has("resume") || given.has("abandon");
    if paths > 0 && (finishes || matches!(verb, "create" | "list" | "compact" | "delete")) {
        return Err(format!("ringfence snapshot {verb} takes no paths"));
    }
    if verb == "compact" && given.value("name").is_some() && given.words.len() < 3 {
        return Err("--name is for what snapshots are merged into: ringfence snapshot compact \
                    SNAPSHOT SNAPSHOT... --name NAME"
            .to_owned());
    }
    Ok(())
}
