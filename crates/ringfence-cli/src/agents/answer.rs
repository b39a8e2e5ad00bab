//! What the hook answers when the agent asks it.

use super::{Agent, Hook};
use crate::error::Fault;
use ringfence_policy::shown;
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
        if !may_run_commands(asked) {
            return Ok(json!({}));
        }
        let text =
            "ringfence sees no command that is text in this call, and cannot put it in a sandbox";
        return Ok(refusal(hook.agent, text));
    };
    let prefix = hook.prefix(within(hook, asked)?)?;
    if hook.agent == Agent::Codex {
        // Its hooks can refuse, but not in all versions change a command: it is told what to run.
        return Ok(if is_wrapped(&prefix, command) {
            json!({})
        } else {
            let text = format!(
                "Commands run in a ringfence sandbox here. Run exactly this instead: {prefix} {}",
                shown::quoted_word(command)
            );
            refusal(hook.agent, &text)
        });
    }
    // Who has switched the agent's own questions off is not asked for its sandbox.
    let unasked = asked.get("permission_mode").and_then(Value::as_str) == Some("bypassPermissions");
    let decision = if hook.allow || unasked { "allow" } else { "ask" };
    let mut changed = input.clone();
    changed["command"] = format!("{prefix} {}", shown::quoted_word(command)).into();
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

/// Whether the call is one of a shell's tool, as far as can be told: it names another if it is not.
fn may_run_commands(asked: &Value) -> bool {
    let Some(tool) = asked.get("tool_name").and_then(Value::as_str) else { return true };
    let tool = tool.to_lowercase();
    // These look at a command that runs already, or end it.
    if matches!(tool.as_str(), "bashoutput" | "killbash" | "killshell") {
        return false;
    }
    tool.is_empty()
        || ["bash", "shell", "exec", "command", "terminal"].iter().any(|word| tool.contains(word))
}

/// Where the agent's user works. A tool's own input may say where the model wants its command to start, by one of many
/// names, or by one that the hook is not told: that is for the shell to find out, and no policy.
fn within(hook: &Hook, asked: &Value) -> Result<Vec<String>, Fault> {
    // A session that runs has its policy; where the agent is, `hooks shell` sees itself.
    if hook.session.is_some() {
        return Ok(Vec::new());
    }
    let told: Vec<&str> = match hook.agent {
        // Its `cwd` is where the command would start, and its hook runs elsewhere.
        Agent::Cursor => {
            let roots = asked.get("workspace_roots").and_then(Value::as_array);
            let roots: Vec<&str> = roots.into_iter().flatten().filter_map(Value::as_str).collect();
            if roots.is_empty() {
                let text = "Cursor's hook did not say which folder is open: open one, its commands run there";
                return Err(Fault::usage(text));
            }
            roots
        }
        // Who does not say runs its hook there.
        _ => vec![asked.get("cwd").and_then(Value::as_str).unwrap_or(".")],
    };
    let real = |told: &str| {
        let no = |why: String| Fault::usage(format!("the agent's directory {told}: {why}"));
        let real = std::fs::canonicalize(told).map_err(|error| no(error.to_string()))?;
        real.into_os_string().into_string().map_err(|_| no("its name is no text".to_owned()))
    };
    told.into_iter().map(real).collect()
}

/// The command is the prefix and one quoted word, and nothing else.
fn is_wrapped(prefix: &str, command: &str) -> bool {
    let Some(word) = command.strip_prefix(prefix).and_then(|rest| rest.strip_prefix(' ')) else {
        return false;
    };
    let inner = word.strip_prefix('\'').and_then(|word| word.strip_suffix('\''));
    inner.is_some_and(|inner| shown::quoted_word(&inner.replace(r"'\''", "'")) == word)
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
        Hook {
            agent,
            session: None,
            allow: false,
            within: Vec::new(),
            options: vec!["-n".into(), "x.org".into()],
        }
    }

    /// What stands in front of a command, of which the agent's directory is not told.
    fn prefix_of(agent: Agent) -> String {
        let here = std::fs::canonicalize(".").expect("a directory");
        hook(agent).prefix(vec![here.display().to_string()]).expect("a program")
    }

    #[test]
    fn commands_are_put_behind_the_sandbox() {
        let asked = json!({"tool_name": "Bash", "tool_input": {"command": "echo 'a b'", "x": 1}});
        let prefix = prefix_of(Agent::Claude);
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
        let prefix = prefix_of(Agent::Gemini);
        let command = answer["hookSpecificOutput"]["tool_input"]["command"].as_str();
        assert!(command.is_some_and(|command| command.starts_with(&prefix)));
    }

    #[test]
    fn a_command_that_calls_ringfence_itself_is_put_behind_it_too() {
        let asked = json!({"tool_input": {"command": "ringfence run --network host -- curl x"}});
        let answer = reply(&hook(Agent::Claude), &asked).expect("an answer");
        let command = answer["hookSpecificOutput"]["updatedInput"]["command"].as_str();
        let prefix = prefix_of(Agent::Claude);
        assert!(command.is_some_and(|command| command.starts_with(&prefix)));
    }

    #[test]
    fn a_call_of_the_shell_without_a_command_that_is_text_is_refused() {
        let odd = [
            json!({"tool_name": "Bash", "tool_input": {"command": ["bash", "-lc", "id"]}}),
            json!({"tool_name": "Shell", "tool_input": {"cmd": "id"}}),
            json!({"tool_name": "run_shell_command", "tool_input": null}),
            json!({"tool_name": "exec_command", "tool_input": "id"}),
            json!({"tool_name": ["Read"], "tool_input": {"command": {"text": "id"}}}),
            json!({"args": {"command": 1}}),
            json!([]),
        ];
        for (agent, _) in Agent::ALL {
            for asked in &odd {
                let answer = reply(&hook(agent), asked).expect("an answer");
                let text = "ringfence sees no command that is text in this call, and cannot put it in a sandbox";
                assert_eq!(answer, refusal(agent, text), "{asked}");
            }
            // The control: calls of other tools go on.
            for tool in ["Read", "KillShell"] {
                let asked = json!({"tool_name": tool, "tool_input": {"file_path": "/a"}});
                assert_eq!(reply(&hook(agent), &asked).expect("an answer"), json!({}));
            }
        }
    }

    #[test]
    fn the_directory_that_a_model_asks_for_is_not_where_its_user_works() {
        let mut asked = json!({"cwd": "/usr", "workspace_roots": ["/usr", "/etc"], "tool_input": {"command": "ls"}});
        for key in ["workdir", "dir_path", "directory", "working_directory", "cwd"] {
            asked["tool_input"][key] = "/tmp".into();
        }
        for (_, answer) in Agent::ALL.map(|(agent, _)| (agent, reply(&hook(agent), &asked))) {
            let text = answer.expect("an answer").to_string();
            assert!(text.contains("--within=/usr") && !text.contains("--within=/tmp"), "{text}");
        }
        // Cursor's hook runs elsewhere, and its `cwd` is the command's.
        asked["workspace_roots"] = json!([]);
        reply(&hook(Agent::Cursor), &asked).expect_err("no folder is open");
        asked["cwd"] = "/nowhere at all".into();
        reply(&hook(Agent::Claude), &asked).expect_err("no such directory");
    }

    #[test]
    fn codex_runs_just_what_it_was_told_to() {
        let prefix = prefix_of(Agent::Codex);
        assert!(is_wrapped(&prefix, &format!(r"{prefix} 'it'\''s'")));
        for odd in ["'a'; evil", "'a' 'b'", "a", "'a'$(evil)''", r"'a'\'", "'", "''evil''"] {
            assert!(!is_wrapped(&prefix, &format!("{prefix} {odd}")), "{odd}");
        }
        let asked = json!({"tool_input": {"command": "ls"}});
        let answer = reply(&hook(Agent::Codex), &asked).expect("an answer");
        assert_eq!(answer["hookSpecificOutput"]["permissionDecision"], "deny");
    }
}
