//! Settings of agents (JSON) that a program inside may change, but for what makes the agent run or
//! trust something later, outside.
//!
//! The files hold far more keys than anybody lists, and new versions add some. So keys are judged by
//! the words in their names: `mcpServers`, `hasTrustDialogAccepted`, `allowedTools`, `apiKeyHelper`,
//! `hooks` … Wherever such a key stands, it keeps the value it had; what is new is taken out.
//! Values in which nothing can be named (numbers, false, empty) are left alone.

use serde_json::{Map, Value};

/// Words in the names of keys that make an agent run, trust, load or contact something.
const WORDS: [&str; 78] = [
    "accept",
    "accepted",
    "agent",
    "agents",
    "allow",
    "allowed",
    "allowlist",
    "allows",
    "approval",
    "approvals",
    "approve",
    "approved",
    "autoapprove",
    "blacklist",
    "block",
    "blocked",
    "blocklist",
    "bypass",
    "cmd",
    "command",
    "commands",
    "dangerously",
    "denied",
    "denies",
    "deny",
    "denylist",
    "directories",
    "disallow",
    "disallowed",
    "endpoint",
    "endpoints",
    "env",
    "environment",
    "exec",
    "executable",
    "executables",
    "export",
    "exports",
    "extension",
    "extensions",
    "helper",
    "helpers",
    "hook",
    "hooks",
    "host",
    "hosts",
    "include",
    "includes",
    "interpreter",
    "loader",
    "marketplace",
    "marketplaces",
    "mcp",
    "mcpjson",
    "permission",
    "permissions",
    "plugin",
    "plugins",
    "program",
    "programs",
    "proxies",
    "proxy",
    "refresh",
    "sandbox",
    "script",
    "scripts",
    "server",
    "servers",
    "shell",
    "skill",
    "skills",
    "tool",
    "tools",
    "trust",
    "trusted",
    "url",
    "urls",
    "whitelist",
];

/// At the top: parts that the agent fetches and throws away by itself, and the ends of the keys that the user
/// has agreed to, of which only one that is in the environment counts.
const FREE: [&str; 5] = [
    "cachedGrowthBookFeatures",
    "cachedStatsigGates",
    "cachedDynamicConfigs",
    "customApiKeyResponses",
    "tipsHistory",
];

/// What is to be done with a file after a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judged {
    /// It may stay as it is.
    Harmless,
    /// It stays with this text; these keys keep what they had.
    Merged {
        /// The text.
        text: String,
        /// The keys, as `projects./home/ada/app.mcpServers`.
        kept: Vec<String>,
    },
    /// It cannot be read as settings, before or after: it becomes what it was.
    Unreadable,
}

/// Judges settings that were `before` (nothing, when there was no file) and are `now`.
pub fn judge(before: Option<&[u8]>, now: &[u8]) -> Judged {
    let before = match before {
        Some(bytes) if !bytes.trim_ascii().is_empty() => read(bytes).map(|(_, before)| before),
        _ => Some(Map::new()),
    };
    let (Some(before), Some((heading, mut now))) = (before, read(now)) else {
        return Judged::Unreadable;
    };
    let mut kept = Vec::new();
    object(&before, &mut now, "", &mut kept);
    if kept.is_empty() {
        return Judged::Harmless;
    }
    match serde_json::to_string_pretty(&now) {
        Ok(text) => Judged::Merged { text: format!("{heading}{text}\n"), kept },
        Err(_) => Judged::Unreadable,
    }
}

/// The comment above settings, and what they hold. Some agents write one (`// This file is managed …`), all of
/// them leave out lines that begin so. Other comments are not taken for any: parsers differ on where they end,
/// and on what ends a line.
fn read(bytes: &[u8]) -> Option<(&str, Map<String, Value>)> {
    let text = std::str::from_utf8(bytes).ok()?;
    let comment = |line: &&str| line.starts_with("//");
    let length = text.split_inclusive('\n').take_while(comment).map(str::len).sum();
    let (heading, settings) = text.split_at_checked(length)?;
    if heading.contains(['\r', '\u{2028}', '\u{2029}']) {
        return None;
    }
    Some((heading, serde_json::from_str(settings).ok()?))
}

fn object(
    before: &Map<String, Value>,
    now: &mut Map<String, Value>,
    at: &str,
    kept: &mut Vec<String>,
) {
    let name = |key: &str| if at.is_empty() { key.to_owned() } else { format!("{at}.{key}") };
    let follows = |key: &String| names_a_master(now.get(key)) || names_a_master(before.get(key));
    let guarded: Vec<String> =
        now.keys().chain(before.keys()).filter(|key| runs(key) || follows(key)).cloned().collect();
    for key in guarded {
        match (before.get(&key), now.get(&key)) {
            (Some(old), Some(new)) if old == new => {}
            (Some(old), new) => {
                if !(new.is_none_or(names_nothing) && names_nothing(old)) {
                    kept.push(name(&key));
                    now.insert(key, old.clone());
                }
            }
            (None, Some(new)) if !names_nothing(new) => {
                kept.push(name(&key));
                now.remove(&key);
            }
            (None, _) => {}
        }
    }
    let (none, empty) = (Value::Null, Map::new());
    for (key, new) in now.iter_mut() {
        if runs(key) || at.is_empty() && FREE.contains(&key.as_str()) {
            continue;
        }
        value(before.get(key).unwrap_or(&none), new, &name(key), kept, &empty);
    }
    // An object that is gone takes with it what was guarded in it.
    for (key, old) in before {
        if !now.contains_key(key) && holds_guarded(old) {
            kept.push(name(key));
            now.insert(key.clone(), old.clone());
        }
    }
}

fn value(
    before: &Value,
    now: &mut Value,
    at: &str,
    kept: &mut Vec<String>,
    empty: &Map<String, Value>,
) {
    if !now.is_object() && holds_guarded(before) && !before.is_array() {
        kept.push(at.to_owned());
        *now = before.clone();
        return;
    }
    match now {
        Value::Object(now) => object(before.as_object().unwrap_or(empty), now, at, kept),
        Value::Array(list) => {
            for (index, now) in list.iter_mut().enumerate() {
                let old = before.as_array().and_then(|list| list.get(index));
                value(old.unwrap_or(&Value::Null), now, &format!("{at}[{index}]"), kept, empty);
            }
        }
        _ => {}
    }
}

/// Whether a guarded key with something in it stands anywhere below.
fn holds_guarded(value: &Value) -> bool {
    match value {
        Value::Object(map) => map
            .iter()
            .any(|(key, value)| runs(key) && !names_nothing(value) || holds_guarded(value)),
        _ => false,
    }
}

/// Whether a value says that settings are to be fetched from the address that is its key: opencode's
/// `{"https://…": {"type": "wellknown", …}}` in `auth.json`.
fn names_a_master(value: Option<&Value>) -> bool {
    value.is_some_and(|value| value["type"] == "wellknown")
}

/// Whether a value names nothing that could be run or trusted.
fn names_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Number(_) => true,
        Value::Bool(flag) => !flag,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.iter().all(names_nothing),
        Value::Object(map) => map.values().all(names_nothing),
    }
}

/// Whether one of a key's words is in the list. Names that are paths are not keys of that kind, and `refresh`
/// by itself is a login's token (`awsAuthRefresh` is a command).
fn runs(key: &str) -> bool {
    key != "refresh"
        && !key.contains('/')
        && words(key).any(|word| WORDS.binary_search(&word.as_str()).is_ok())
}

/// The words of a name in camel case, or with `_`, `-` or `.` between them, in lower case. An acronym is one word, with
/// its plural's `s`: `MCPServers`, `baseURLs`.
fn words(name: &str) -> impl Iterator<Item = String> {
    let mut words = vec![String::new()];
    let mut last = Case::None;
    let mut rest = name.chars().peekable();
    while let Some(c) = rest.next() {
        let case = Case::of(c);
        let next = rest.peek().copied();
        // The first letter of a word behind an acronym.
        let ends_acronym = || {
            let after: String = rest.clone().take(2).collect();
            let plural = after.starts_with('s') && !after[1..].starts_with(char::is_lowercase);
            last == Case::Upper && next.is_some_and(char::is_lowercase) && !plural
        };
        if case == Case::None || case == Case::Upper && (last == Case::Lower || ends_acronym()) {
            words.push(String::new());
        }
        last = case;
        if case != Case::None
            && let Some(word) = words.last_mut()
        {
            word.extend(c.to_lowercase());
        }
    }
    words.into_iter()
}

/// What a character is in a name of several words.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Case {
    /// Digits too.
    Lower,
    Upper,
    /// What stands between words.
    None,
}

impl Case {
    fn of(c: char) -> Case {
        match c {
            c if c.is_uppercase() => Case::Upper,
            c if c.is_alphanumeric() => Case::Lower,
            _ => Case::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = r#"{
        "numStartups": 3,
        "mcpServers": {"docs": {"command": "docs-server"}},
        "projects": {"/home/ada/app": {"allowedTools": [], "history": [], "hasTrustDialogAccepted": false}}
    }"#;

    fn merged(before: &str, now: &str) -> (Value, Vec<String>) {
        match judge(Some(before.as_bytes()), now.as_bytes()) {
            Judged::Merged { text, kept } => (serde_json::from_str(&text).expect("JSON"), kept),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_words_are_in_order() {
        assert!(WORDS.is_sorted());
    }

    #[test]
    fn names_are_taken_apart_as_people_read_them() {
        for (name, expected) in [
            ("mcpServers", "mcp servers"),
            ("MCPServers", "mcp servers"),
            ("HTTPProxy", "http proxy"),
            ("baseURLs", "base urls"),
            ("URLsAllowed", "urls allowed"),
            ("denied_urls", "denied urls"),
            ("x2Hooks", "x2 hooks"),
            ("APIs", "apis"),
            ("XSet", "x set"),
            ("ÄÖServer", "äö server"),
            ("", ""),
        ] {
            assert_eq!(words(name).collect::<Vec<_>>().join(" "), expected, "{name}");
        }
        for name in ["denied_urls", "MCPServers", "HTTPProxy", "baseURLs", "blockedHosts"] {
            assert!(runs(name), "{name}");
        }
        for name in ["numStartups", "theme", "tipsHistory", "lastCost", "hasSeenIntro"] {
            assert!(!runs(name), "{name}");
        }
    }

    #[test]
    fn what_runs_nothing_may_change() {
        let now = BEFORE
            .replace("3", "4")
            .replace("\"history\": []", "\"history\": [{\"display\": \"hi\"}]");
        assert_eq!(judge(Some(BEFORE.as_bytes()), now.as_bytes()), Judged::Harmless);
        let now = r#"{"oauthAccount": {"emailAddress": "ada@example.org"}, "mcpServers": {}, "theme": "dark"}"#;
        assert_eq!(judge(None, now.as_bytes()), Judged::Harmless);
        assert_eq!(judge(Some(b"{}"), now.as_bytes()), Judged::Harmless);
    }

    #[test]
    fn servers_and_trust_stay_as_they_were_at_any_depth() {
        let now = r#"{
            "numStartups": 4,
            "mcpServers": {"docs": {"command": "evil"}, "more": {"command": "evil"}},
            "projects": {
                "/home/ada/app": {"allowedTools": ["Bash"], "hasTrustDialogAccepted": true, "history": ["x"]},
                "/home/ada/mcp-server": {"mcpServers": {"x": {"command": "evil"}}, "lastCost": 1}
            },
            "apiKeyHelper": "evil", "hooks": {"Stop": [{"command": "evil"}]}, "env": {"NODE_OPTIONS": "-r evil"}
        }"#;
        let (value, kept) = merged(BEFORE, now);
        assert!(!value.to_string().contains("evil"), "{value}");
        assert_eq!(value["numStartups"], 4);
        assert_eq!(value["mcpServers"]["docs"]["command"], "docs-server");
        assert_eq!(value["projects"]["/home/ada/app"]["history"][0], "x");
        assert_eq!(value["projects"]["/home/ada/app"]["hasTrustDialogAccepted"], false);
        assert_eq!(value["projects"]["/home/ada/mcp-server"]["lastCost"], 1);
        assert!(kept.contains(&"projects./home/ada/app.allowedTools".to_owned()), "{kept:?}");
    }

    #[test]
    fn a_comment_above_is_one_and_no_other() {
        let before = "// managed\n{\"a\": 1}";
        let now = "// User settings\n// managed\n{\"a\": 2}\n";
        assert_eq!(judge(Some(before.as_bytes()), now.as_bytes()), Judged::Harmless);
        assert_eq!(judge(None, now.as_bytes()), Judged::Harmless);
        let evil = "// managed\n{\"a\": 2, \"trustedFolders\": [\"/\"]}";
        let Judged::Merged { text, kept } = judge(Some(before.as_bytes()), evil.as_bytes()) else {
            panic!("not judged");
        };
        assert!(text.starts_with("// managed\n{") && !text.contains("trusted"), "{text}");
        assert_eq!(kept, ["trustedFolders"]);
        for bad in [
            "// x\r{\"hooks\": {\"a\": \"b\"}}\n{}",
            "// x\u{2028}{\"hooks\": {\"a\": \"b\"}}\n{}",
            "/* x */ {}",
            "{} // x",
            "{\n// x\n}",
        ] {
            assert_eq!(judge(Some(b"{}"), bad.as_bytes()), Judged::Unreadable, "{bad}");
        }
    }

    #[test]
    fn logins_may_change_and_servers_that_settings_come_from_stay() {
        let login = r#"{"anthropic": {"type": "oauth", "refresh": "a", "access": "b"}}"#;
        let now = login.replace(r#""b""#, r#""c""#);
        assert_eq!(judge(Some(login.as_bytes()), now.as_bytes()), Judged::Harmless);
        let evil =
            r#"{"https://evil.example": {"type": "wellknown", "key": "PATH", "token": "x"}}"#;
        let (value, kept) = merged("{}", evil);
        assert_eq!((value.to_string().as_str(), kept.len()), ("{}", 1));
        let (value, _) = merged(evil, "{}");
        assert!(value.to_string().contains("wellknown"), "{value}");
        let (value, _) = merged(
            r#"{"x": {"type": "api", "key": "k"}}"#,
            &evil.replace("https://evil.example", "x"),
        );
        assert_eq!(value["x"]["type"], "api");
    }

    #[test]
    fn odd_spellings_do_not_help() {
        for now in [
            r#"{"mcp\u0053ervers": {"x": {"command": "evil"}}}"#,
            r#"{"mcpServers": {}, "mcpServers": {"x": {"command": "evil"}}}"#,
            r#"{"a": [[{"mcp_servers": {"x": {"command": "evil"}}}]]}"#,
            r#"{"projects": [{"hooks": ["evil"]}]}"#,
        ] {
            let (value, _) = merged("{}", now);
            assert!(!value.to_string().contains("evil"), "{value}");
        }
        for now in ["[]", "{", "\"x\"", "{\"a\": NaN}", ""] {
            assert_eq!(judge(Some(b"{}"), now.as_bytes()), Judged::Unreadable, "{now}");
        }
        // Deeper than anybody nests settings: not followed, and not taken.
        let deep = format!("{}{}", "{\"a\":".repeat(4000), "1}".repeat(4000));
        assert_eq!(judge(None, deep.as_bytes()), Judged::Unreadable);
    }

    #[test]
    fn what_was_taken_out_comes_back() {
        let before = r#"{"permissions": {"deny": ["Read(.env)"]}, "projects": {"/a": {"mcpServers": {"x": {"command": "y"}}}}}"#;
        for now in
            ["{}", r#"{"projects": {}}"#, r#"{"projects": 1}"#, r#"{"projects": {"/a": {}}}"#]
        {
            let (value, kept) = merged(before, now);
            assert_eq!(value["permissions"]["deny"][0], "Read(.env)", "{kept:?}");
            assert_eq!(value["projects"]["/a"]["mcpServers"]["x"]["command"], "y", "{now}");
        }
    }
}
