//! The hook in the agent's settings: added, and taken out again.

use super::replace::{self, File, read};
use super::{Agent, Hook, edit};
use crate::error::Fault;
use ringfence_policy::import::plain;
use ringfence_session::place;
use serde_json::{Map, Value, json};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What is written below the state directory, to put back what was there.
#[derive(Debug)]
struct Kept {
    /// What was there; nothing, if there was no file.
    before: PathBuf,
    /// What was written.
    after: PathBuf,
    /// The directories that were made for it, the innermost first, a NUL behind each.
    made: PathBuf,
}

impl Kept {
    fn of(agent: Agent) -> Result<Kept, Fault> {
        let directory = place::state().map_err(Fault::of)?.join("hooks");
        let at = |end: &str| directory.join(format!("{}.{end}", agent.name()));
        Ok(Kept { before: at("before"), after: at("after"), made: at("made") })
    }
}

fn settings(agent: Agent) -> Result<PathBuf, Fault> {
    let home = ringfence_sys::identity::home()
        .ok_or_else(|| Fault::usage("there is no home directory"))?;
    Ok(led_to(agent.settings(&home)))
}

/// A link stays one: what it leads to is written, be it there yet or not.
fn led_to(path: PathBuf) -> PathBuf {
    /// As many as the kernel follows (path_resolution(7)).
    const LINKS: usize = 40;
    let mut path = path;
    for _ in 0..LINKS {
        if let Ok(real) = fs::canonicalize(&path) {
            return real;
        }
        let (Ok(target), Some(parent)) = (fs::read_link(&path), path.parent()) else { break };
        path = parent.join(target);
    }
    path
}

/// The list in the settings that the hook is an entry of.
fn list(agent: Agent) -> &'static str {
    match agent {
        Agent::Gemini => "BeforeTool",
        Agent::Cursor => "preToolUse",
        _ => "PreToolUse",
    }
}

/// That list, and the entry.
fn entry(hook: &Hook) -> Result<(&'static str, Value), Fault> {
    let command = hook.command("answer")?;
    let one = json!({"type": "command", "command": command});
    let entry = match hook.agent {
        Agent::Gemini => {
            let one = json!({"type": "command", "name": "ringfence", "command": command});
            json!({"matcher": "run_shell_command", "hooks": [one]})
        }
        Agent::Cursor => json!({"command": command, "matcher": "Shell"}),
        _ => json!({"matcher": "Bash", "hooks": [one]}),
    };
    Ok((list(hook.agent), entry))
}

/// An entry of ours, whatever its options.
fn is_ours(entry: &Value) -> bool {
    let command = |value: &Value| {
        let command = value["command"].as_str();
        command.is_some_and(|command| command.contains(" hooks answer --"))
    };
    command(entry) || entry["hooks"].as_array().is_some_and(|all| all.iter().any(command))
}

/// OpenCode's hooks are programs: `tool.execute.before` may change the arguments. Older versions
/// look for exported functions, newer ones for a default export with an `id`.
fn plugin(hook: &Hook) -> Result<String, Fault> {
    let program = std::env::current_exe().map_err(Fault::of)?;
    let mut words = vec!["hooks".to_owned(), "answer".to_owned()];
    words.extend(hook.words());
    let (program, words) = (json!(program.to_string_lossy()), json!(words));
    Ok(format!(
        "// Shell commands run in a ringfence sandbox. Made by `ringfence hooks install --opencode`.
import {{ spawnSync }} from \"node:child_process\";

const ringfence = async (project) => ({{
  \"tool.execute.before\": async (input, output) => {{
    if (input.tool !== \"bash\") return;
    const asked = JSON.stringify({{ cwd: project?.directory, tool_input: output.args }});
    const done = spawnSync({program}, {words}, {{ input: asked, encoding: \"utf8\" }});
    if (done.status !== 0) throw new Error(\"ringfence: \" + (done.stderr || done.error));
    const answer = JSON.parse(done.stdout);
    if (answer.error) throw new Error(answer.error);
    if (answer.args) output.args.command = answer.args.command;
  }},
}});

export default {{ id: \"ringfence\", server: ringfence }};
export const Ringfence = ringfence;
"
    ))
}

/// The settings with the hook in them.
fn with(hook: &Hook, before: Option<&[u8]>) -> Result<Vec<u8>, Fault> {
    if hook.agent == Agent::Opencode {
        return plugin(hook).map(String::into_bytes);
    }
    let mut settings = parsed(hook.agent, before)?;
    if hook.agent == Agent::Cursor {
        settings.entry("version").or_insert(1.into());
    }
    let (name, entry) = entry(hook)?;
    let bad = || {
        Fault::usage(format!(
            "the hooks in {}'s settings have an unknown form; add by \
        hand what `ringfence hooks print` shows",
            hook.agent.name()
        ))
    };
    let hooks = settings.entry("hooks").or_insert_with(|| Map::new().into());
    let list = hooks.as_object_mut().ok_or_else(bad)?.entry(name).or_insert_with(|| json!([]));
    let list = list.as_array_mut().ok_or_else(bad)?;
    list.retain(|entry| !is_ours(entry));
    list.push(entry.clone());
    written(hook.agent, before, &settings, |text| {
        let mut text = edit::without(text, is_ours)?;
        if hook.agent == Agent::Cursor {
            text = edit::with_member(&text, "version", &1.into())?;
        }
        edit::with(&text, name, &entry)
    })
}

/// The settings as a text: the one that was there with what `edit` makes of it, if that says the same. Where it does not,
/// they are written anew, but for comments, which would be gone.
fn written(
    agent: Agent,
    before: Option<&[u8]>,
    settings: &Map<String, Value>,
    edit: impl FnOnce(&str) -> Option<String>,
) -> Result<Vec<u8>, Fault> {
    let there = before.and_then(|before| std::str::from_utf8(before).ok());
    let edited = there.and_then(edit).filter(|edited| says(agent, edited.as_bytes(), settings));
    if edited.is_none() && before.and_then(|before| commented(agent, before)).is_none() {
        return text(settings);
    }
    edited.map(String::into_bytes).ok_or_else(|| {
        Fault::usage(format!(
            "{}'s settings have comments in a place where they cannot be kept; change by hand what \
             `ringfence hooks print --{}` shows",
            agent.name(),
            agent.name()
        ))
    })
}

/// Whether a text says the same to the agent.
fn says(agent: Agent, text: &[u8], settings: &Map<String, Value>) -> bool {
    parsed(agent, Some(text)).is_ok_and(|read| read == *settings)
}

/// Settings that are JSON but for comments, which this agent understands.
fn commented(agent: Agent, bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok().filter(|text| !text.starts_with('\u{feff}'))?;
    let is = |text: &str| serde_json::from_str::<Map<String, Value>>(text).is_ok();
    (agent == Agent::Gemini && !is(text) && is(&plain(text))).then_some(text)
}

fn text(settings: &Map<String, Value>) -> Result<Vec<u8>, Fault> {
    let mut bytes = serde_json::to_vec_pretty(settings).map_err(Fault::of)?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn parsed(agent: Agent, bytes: Option<&[u8]>) -> Result<Map<String, Value>, Fault> {
    let bytes = bytes.filter(|bytes| !bytes.trim_ascii().is_empty());
    let Some(bytes) = bytes else { return Ok(Map::new()) };
    let commented = commented(agent, bytes).map(|text| plain(text).into_bytes());
    serde_json::from_slice(commented.as_deref().unwrap_or(bytes)).map_err(|error| {
        Fault::usage(format!(
            "{}'s settings are not plain JSON ({error}); add by hand what `ringfence hooks print \
             --{}` shows",
            agent.name(),
            agent.name()
        ))
    })
}

pub(super) fn print(hooks: &[Hook]) -> Result<u8, Fault> {
    hooks.iter().try_fold(0, |_, hook| print_one(hook))
}

fn print_one(hook: &Hook) -> Result<u8, Fault> {
    let path = settings(hook.agent)?;
    let out = if hook.agent == Agent::Opencode {
        plugin(hook)?
    } else {
        let (list, entry) = entry(hook)?;
        let mut added = json!({"hooks": {list: [entry]}});
        if hook.agent == Agent::Cursor {
            added["version"] = 1.into();
        }
        format!("{added:#}\n")
    };
    ringfence_sys::say!("ringfence: this goes into {}", path.display());
    crate::generate::print(out.as_bytes())?;
    Ok(0)
}

/// What is to be written for an agent.
struct Change {
    agent: Agent,
    path: PathBuf,
    kept: Kept,
    /// What is there now.
    now: Option<Vec<u8>>,
    /// What will be; nothing: no file.
    then: Option<Vec<u8>>,
}

/// What is in the settings that are to be written.
fn known(planned: &[Change]) -> Vec<File> {
    planned.iter().map(|change| (change.path.clone(), change.now.clone())).collect()
}

/// Puts the hooks into the settings of their agents: of all, or of none.
pub(super) fn install(hooks: &[Hook]) -> Result<u8, Fault> {
    let planned: Result<Vec<Change>, Fault> = hooks.iter().map(installed).collect();
    let planned = planned?;
    let mut files: Vec<File> = Vec::new();
    for Change { agent, path, kept, now, then } in &planned {
        // Installed twice: what was there before the first time is what counts.
        if now.is_none() || read(&kept.after)? != *now {
            place::private_directory(kept.before.parent().unwrap_or(Path::new("/")))
                .map_err(Fault::of)?;
            files.push((kept.before.clone(), without(*agent, now)?));
        }
        let made = missing(path);
        if !made.is_empty() {
            files.push((kept.made.clone(), Some(made)));
        }
        files.extend([(kept.after.clone(), then.clone()), (path.clone(), then.clone())]);
    }
    let known = known(&planned);
    replace::all(&files, &known)?;
    for Change { agent, path, .. } in planned {
        ringfence_sys::say!(
            "ringfence: {}: shell commands run in a sandbox from now on",
            path.display()
        );
        if agent == Agent::Codex {
            ringfence_sys::say!(
                "ringfence: codex asks at its next start whether this hook is trusted"
            );
        }
    }
    Ok(0)
}

/// The directories above a path that are not there, the innermost first, a NUL behind each.
fn missing(path: &Path) -> Vec<u8> {
    let above = path.ancestors().skip(1).take_while(|above| above.symlink_metadata().is_err());
    above.flat_map(|above| [above.as_os_str().as_bytes(), b"\0"].concat()).collect()
}

/// Settings as they are, but for a hook of ours that is in them from an earlier time.
fn without(agent: Agent, now: &Option<Vec<u8>>) -> Result<Option<Vec<u8>>, Fault> {
    let installed = agent != Agent::Opencode && take_out(&mut parsed(agent, now.as_deref())?);
    if installed { Ok(uninstalled(agent)?.then) } else { Ok(now.clone()) }
}

fn installed(hook: &Hook) -> Result<Change, Fault> {
    let (agent, path, kept) = (hook.agent, settings(hook.agent)?, Kept::of(hook.agent)?);
    let now = read(&path)?;
    if agent == Agent::Opencode && now.is_some() && read(&kept.after)? != now {
        return Err(Fault::usage(format!("{} is there already, and is not ours", path.display())));
    }
    let then = Some(with(hook, now.as_deref())?);
    Ok(Change { agent, path, kept, now, then })
}

/// Takes the hooks of agents out of their settings: of all, or of none.
pub(super) fn uninstall(agents: &[Agent]) -> Result<u8, Fault> {
    let planned: Result<Vec<Change>, Fault> =
        agents.iter().map(|agent| uninstalled(*agent)).collect();
    let planned = planned?;
    let mut files: Vec<File> = Vec::new();
    let (mut said, mut made) = (Vec::new(), Vec::new());
    let known = known(&planned);
    for Change { path, kept, now, then, .. } in planned {
        said.push((path.clone(), now == read(&kept.after)?));
        made.extend(read(&kept.made)?.unwrap_or_default());
        let own = [kept.before, kept.after, kept.made].map(|own| (own, None));
        files.push((path, then));
        files.extend(own);
    }
    replace::all(&files, &known)?;
    for directory in made.split(|&byte| byte == 0).filter(|directory| !directory.is_empty()) {
        // What somebody put something into stays.
        let _ = fs::remove_dir(OsStr::from_bytes(directory));
    }
    for (path, untouched) in said {
        if untouched {
            ringfence_sys::say!("ringfence: {} is what it was", path.display());
        } else {
            ringfence_sys::say!(
                "ringfence: {} was changed since; the hook was taken out, the rest is as it is now",
                path.display()
            );
        }
    }
    Ok(0)
}

fn uninstalled(agent: Agent) -> Result<Change, Fault> {
    let (path, kept) = (settings(agent)?, Kept::of(agent)?);
    let now = read(&path)?;
    let none = || Fault::usage(format!("{} holds no hook of ours", path.display()));
    let Some(there) = now.as_deref() else { return Err(none()) };
    let (before, after) = (read(&kept.before)?, read(&kept.after)?);
    if now == after {
        return Ok(Change { agent, path, kept, now, then: before });
    }
    if agent == Agent::Opencode {
        return Err(none());
    }
    let mut settings = parsed(agent, Some(there))?;
    if !take_out(&mut settings) {
        return Err(none());
    }
    // What the hook made to stand in goes with it, where nothing else stands in it by now.
    let known = after.as_ref().and_then(|_| parsed(agent, before.as_deref()).ok());
    let emptied = known.map_or(Vec::new(), |before| emptied(agent, &mut settings, &before));
    // Where nobody touched what was put in, all else is as it was, to the byte.
    let exact = || edit::undone(before.as_deref()?, after.as_deref()?, there);
    let then = match exact().filter(|exact| says(agent, exact, &settings)) {
        Some(exact) => exact,
        None => written(agent, Some(there), &settings, |text| {
            let gone = edit::without(text, is_ours);
            emptied.iter().try_fold(gone?, |text, keys| edit::without_member(&text, keys))
        })?,
    };
    Ok(Change { agent, path, kept, now, then: Some(then) })
}

/// Takes out what was made for the hook and holds nothing any more: the keys of each.
fn emptied(
    agent: Agent,
    settings: &mut Map<String, Value>,
    before: &Map<String, Value>,
) -> Vec<Vec<&'static str>> {
    let mut gone = Vec::new();
    let name = list(agent);
    if let Some(hooks) = settings.get_mut("hooks").and_then(Value::as_object_mut) {
        let was = before.get("hooks").and_then(|hooks| hooks.get(name)).is_some();
        if !was && hooks.get(name).and_then(Value::as_array).is_some_and(Vec::is_empty) {
            hooks.remove(name);
            gone.push(vec!["hooks", name]);
        }
        if hooks.is_empty() && !before.contains_key("hooks") {
            settings.remove("hooks");
            gone = vec![vec!["hooks"]];
        }
    }
    let ours = agent == Agent::Cursor && settings.get("version") == Some(&1.into());
    if ours && !before.contains_key("version") {
        settings.remove("version");
        gone.push(vec!["version"]);
    }
    gone
}

/// Takes our entries out; false when there were none.
fn take_out(settings: &mut Map<String, Value>) -> bool {
    let mut found = false;
    let lists = settings.get_mut("hooks").and_then(Value::as_object_mut);
    for list in lists.into_iter().flat_map(|lists| lists.values_mut()) {
        if let Some(list) = list.as_array_mut() {
            let before = list.len();
            list.retain(|entry| !is_ours(entry));
            found |= list.len() != before;
        }
    }
    found
}
