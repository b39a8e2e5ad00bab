//! Claude Code: permissions and sandbox settings.

use super::{Importer, reads};
use crate::key::Key;
use crate::profile::{Text, Value};
use serde_json::Value as Json;

pub(super) fn import(importer: &mut Importer) {
    importer.set_text(Key::Description, "Imported from Claude Code's settings.");
    let denied = importer.texts("permissions.deny");
    let asks = importer.texts("permissions.ask");
    for rule in importer.texts("permissions.allow") {
        // There the strictest rule counts, whatever the order: deny, ask, allow.
        let deny = denied.iter().map(|other| ("deny", other));
        let mut stricter = deny.chain(asks.iter().map(|other| ("ask", other)));
        match stricter.find(|(_, other)| covers(other, &rule)) {
            Some((list, other)) => importer.note(format!(
                "`permissions.allow`: `{rule}` is overruled by `{other}` in `permissions.{list}`: left out"
            )),
            None => permission(importer, "permissions.allow", &rule, true),
        }
    }
    for rule in &denied {
        permission(importer, "permissions.deny", rule, false);
    }
    for rule in asks {
        importer.note(format!("`permissions.ask`: `{rule}` asks; a sandbox does not, so it is neither granted nor denied"));
    }
    let directories = importer.texts("permissions.additionalDirectories");
    importer.paths("permissions.additionalDirectories", Key::Write, directories);
    if importer.take("permissions.defaultMode").is_some() {
        importer.note("`permissions.defaultMode` is about Claude Code's own questions: left out");
    }
    sandbox(importer);
    environment(importer);
    for own in [
        "hooks",
        "model",
        "statusLine",
        "permissions.disableBypassPermissionsMode",
        "enabledPlugins",
    ] {
        if importer.take(own).is_some() {
            importer.note(format!("`{own}` is about Claude Code itself: left out"));
        }
    }
}

/// What a rule `Tool` or `Tool(what)` is of.
fn parts(rule: &str) -> (&str, Option<&str>) {
    match rule.split_once('(') {
        Some((tool, rest)) => (tool, Some(rest.strip_suffix(')').unwrap_or(rest))),
        None => (rule, None),
    }
}

/// What a rule of a tool counts for: one about reading for all that read, one about editing for all that write.
fn family(tool: &str) -> &str {
    match tool {
        "Glob" | "Grep" | "LS" => "Read",
        "Write" | "MultiEdit" | "NotebookEdit" => "Edit",
        tool => tool,
    }
}

/// Whether one rule is about all that another is about: it is the same, or names nothing but the tool.
fn covers(rule: &str, other: &str) -> bool {
    let ((tool, what), (of, _)) = (parts(rule), parts(other));
    let all = matches!(what, None | Some("" | "*" | "**" | "domain:*" | "//**"));
    // Who may read nothing has nothing to edit.
    let same = family(tool) == family(of) || family(tool) == "Read" && family(of) == "Edit";
    rule == other || all && same || rule == "*"
}

/// One such rule.
fn permission(importer: &mut Importer, list: &str, rule: &str, allows: bool) {
    let (tool, what) = parts(rule);
    match (tool, what) {
        (
            "Read" | "Edit" | "Write" | "MultiEdit" | "NotebookEdit" | "Glob" | "Grep" | "LS",
            Some(what),
        ) => {
            let reads = matches!(tool, "Read" | "Glob" | "Grep" | "LS");
            let key = match (reads, allows) {
                (true, true) => Key::Read,
                (false, true) => Key::Write,
                (true, false) => Key::Deny,
                (false, false) => Key::Protect,
            };
            let path = rooted(what);
            importer.paths(list, key, vec![path]);
        }
        ("WebFetch", Some(what)) => match what.strip_prefix("domain:") {
            Some(domain) => {
                let key = if allows { Key::AllowHost } else { Key::DenyHost };
                importer.hosts(list, key, vec![domain.to_owned()]);
            }
            None => importer.note(format!("`{list}`: `{rule}` names no domain: left out")),
        },
        ("Bash", _) => importer.note(format!(
            "`{list}`: `{rule}` is about command lines, which no sandbox can tell apart: left out"
        )),
        _ => importer.note(format!("`{list}`: `{rule}` has no counterpart: left out")),
    }
}

/// Permission rules write `//x` for the path /x, and `/x` for one in the project.
fn rooted(what: &str) -> String {
    match what.strip_prefix('/') {
        Some(rest) if rest.starts_with('/') => rest.to_owned(),
        Some(rest) => format!("./{rest}"),
        None => what.to_owned(),
    }
}

fn sandbox(importer: &mut Importer) {
    let lists = [
        ("sandbox.filesystem.allowWrite", Key::Write),
        ("sandbox.filesystem.allowRead", Key::Read),
        ("sandbox.filesystem.denyRead", Key::Deny),
        ("sandbox.filesystem.denyWrite", Key::Protect),
        ("sandbox.network.allowUnixSockets", Key::Sockets),
    ];
    for (list, key) in lists {
        let mut texts = importer.texts(list).iter().map(|text| absolute(text)).collect();
        if key == Key::Deny {
            texts = reads::denied(importer, "sandbox.filesystem", texts, absolute);
        }
        importer.paths(list, key, texts);
    }
    let allowed = importer.texts("sandbox.network.allowedDomains");
    importer.hosts("sandbox.network.allowedDomains", Key::AllowHost, allowed);
    let denied = importer.texts("sandbox.network.deniedDomains");
    importer.hosts("sandbox.network.deniedDomains", Key::DenyHost, denied);
    for command in importer.texts("sandbox.excludedCommands") {
        importer.note(format!("`sandbox.excludedCommands`: `{command}` ran unconfined; run it without ringfence if it must"));
    }
    for flag in
        ["sandbox.enabled", "sandbox.autoAllowBashIfSandboxed", "sandbox.network.allowLocalBinding"]
    {
        // What they ask for is the case anyhow.
        importer.flag(flag);
    }
}

/// Sandbox settings write `//x` and `/x` alike for the path /x.
fn absolute(text: &str) -> String {
    text.strip_prefix('/').filter(|rest| rest.starts_with('/')).unwrap_or(text).to_owned()
}

fn environment(importer: &mut Importer) {
    let variables = match importer.take("env") {
        None => return,
        Some(Json::Object(variables)) => variables,
        // What it holds may be secret.
        Some(_) => return importer.note("`env` is no object: left out"),
    };
    let mut pairs: Vec<(Text, Text)> = Vec::new();
    for (name, value) in variables {
        match value {
            Json::String(value)
                if value.contains('\0') || name.is_empty() || name.contains(['=', '\0']) =>
            {
                importer
                    .note(format!("`env.{name}` is no variable that a program can have: left out"));
            }
            Json::String(value) => match crate::secrets::hidden(&name) {
                None => pairs.push((name.into(), value.into())),
                Some(why) => importer.note(format!(
                    "`env.{name}` ({why}) is not written into a profile: pass it with --env {name}"
                )),
            },
            _ => importer.note(format!("`env.{name}` is no text: left out")),
        }
    }
    if !pairs.is_empty() {
        importer.profile.set(Key::Set, Value::Pairs(pairs));
    }
}
