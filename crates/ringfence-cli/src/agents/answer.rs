//! What the hook answers when the agent asks it.

use super::{Agent, Hook, always_quoted};
use crate::error::Fault;
use serde_json::{Value, json};
use std::io::Read;

/// A request longer than this is none.
const MOST: u64 = 16 << 20;

/// Reads the agent's question on standard input, and answers on standard output.
///
/// A hook that fails is, to most agents, no hook: whatever goes wrong is answered with a refusal.
pub(super) fn answer(hook: &Hook) -> Result<u8, Fault> {
    let mut bytes = Vec::new();
    let read = std::io::stdin().take(MOST).read_to_end(&mut bytes);
    let asked: Option<Value> = read.ok().and_then(|_| serde_json::from_slice(&bytes).ok());
    let answer = match asked {
        None => refusal(hook.agent, "ringfence could not read the hook's input"),
        Some(asked) => match reply(hook, &asked) {
            Ok(answer) => answer,
            Err(fault) => refusal(hook.agent, &fault.message),
        },
    };
    crate::generate::print(format!("{answer}\n").as_bytes())?;
    Ok(0)
}

fn reply(hook: &Hook, asked: &Value) -> Result<Value, Fault> {
    let input = asked.get("tool_input").or_else(|| asked.get("args")).unwrap_or(asked);
    let Some(command) = input.get("command").and_then(Value::as_str) else {
        // No shell command: not this hook's business.
        return Ok(json!({}));
    };
    let prefix = hook.prefix()?;
    if hook.agent == Agent::Codex {
        // Its hooks can refuse, but not in all versions change a command: it is told what to run.
        return Ok(if is_wrapped(&prefix, command) {
            json!({})
        } else {
            let text = format!(
                "Commands run in a ringfence sandbox here. Run exactly this instead: {prefix} {}",
                always_quoted(command)
            );
            refusal(hook.agent, &text)
        });
    }
    // Who has switched the agent's own questions off is not asked for its sandbox.
    let unasked = asked.get("permission_mode").and_then(Value::as_str) == Some("bypassPermissions");
    let decision = if hook.allow || unasked { "allow" } else { "ask" };
    let mut changed = input.clone();
    changed["command"] = format!("{prefix} {}", always_quoted(command)).into();
    Ok(match hook.agent {
        Agent::Claude => json!({"hookSpecificOutput": {
            "hookEventName": "PreToolUse",
            "permissionDecision": decision,
            "permissionDecisionReason": "runs in a ringfence sandbox",
            "updatedInput": changed,
        }}),
        Agent::Gemini => json!({"decision": "allow", "hookSpecificOutput": {
            "hookEventName": "BeforeTool", "tool_input": changed,
        }}),
        Agent::Cursor => json!({"permission": decision, "updated_input": changed}),
        Agent::Opencode | Agent::Codex => json!({"args": changed}),
    })
}

/// The command is the prefix and one quoted word, and nothing else.
fn is_wrapped(prefix: &str, command: &str) -> bool {
    let Some(word) = command.strip_prefix(prefix).and_then(|rest| rest.strip_prefix(' ')) else {
        return false;
    };
    let inner = word.strip_prefix('\'').and_then(|word| word.strip_suffix('\''));
    inner.is_some_and(|inner| always_quoted(&inner.replace(r"'\''", "'")) == word)
}

fn refusal(agent: Agent, text: &str) -> Value {
    match agent {
        Agent::Claude | Agent::Codex => json!({"hookSpecificOutput": {
            "hookEventName": "PreToolUse", "permissionDecision": "deny",
            "permissionDecisionReason": text,
        }}),
        Agent::Gemini => json!({"decision": "deny", "reason": text}),
        Agent::Cursor => {
            json!({"permission": "deny", "user_message": text, "agent_message": text})
        }
        Agent::Opencode => json!({"error": text}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook(agent: Agent) -> Hook {
        Hook { agent, session: None, allow: false, options: vec!["-n".into(), "x.org".into()] }
    }

    #[test]
    fn commands_are_put_behind_the_sandbox() {
        let asked = json!({"tool_name": "Bash", "tool_input": {"command": "echo 'a b'", "x": 1}});
        let prefix = hook(Agent::Claude).prefix().expect("a program");
        let wrapped = format!(r"{prefix} 'echo '\''a b'\'''");
        let answer = reply(&hook(Agent::Claude), &asked).expect("an answer");
        let updated = &answer["hookSpecificOutput"]["updatedInput"];
        assert_eq!(updated["command"], wrapped);
        assert_eq!(updated["x"], 1, "the rest of the input is kept");
        assert_eq!(answer["hookSpecificOutput"]["permissionDecision"], "ask");
        let mut unasked = asked.clone();
        unasked["permission_mode"] = "bypassPermissions".into();
        let answer = reply(&hook(Agent::Claude), &unasked).expect("an answer");
        assert_eq!(answer["hookSpecificOutput"]["permissionDecision"], "allow");
        assert_eq!(answer["hookSpecificOutput"]["updatedInput"]["command"], wrapped);
        let answer = reply(&hook(Agent::Gemini), &asked).expect("an answer");
        let prefix = hook(Agent::Gemini).prefix().expect("a program");
        let command = answer["hookSpecificOutput"]["tool_input"]["command"].as_str();
        assert!(command.is_some_and(|command| command.starts_with(&prefix)));
    }

    #[test]
    fn a_command_that_calls_ringfence_itself_is_put_behind_it_too() {
        let asked = json!({"tool_input": {"command": "ringfence run --network host -- curl x"}});
        let answer = reply(&hook(Agent::Claude), &asked).expect("an answer");
        let command = answer["hookSpecificOutput"]["updatedInput"]["command"].as_str();
        let prefix = hook(Agent::Claude).prefix().expect("a program");
        assert!(command.is_some_and(|command| command.starts_with(&prefix)));
    }

    #[test]
    fn codex_runs_just_what_it_was_told_to() {
        let prefix = hook(Agent::Codex).prefix().expect("a program");
        assert!(is_wrapped(&prefix, &format!(r"{prefix} 'it'\''s'")));
        for odd in ["'a'; evil", "'a' 'b'", "a", "'a'$(evil)''", r"'a'\'", "'", "''evil''"] {
            assert!(!is_wrapped(&prefix, &format!("{prefix} {odd}")), "{odd}");
        }
        let asked = json!({"tool_input": {"command": "ls"}});
        let answer = reply(&hook(Agent::Codex), &asked).expect("an answer");
        assert_eq!(answer["hookSpecificOutput"]["permissionDecision"], "deny");
    }
}
