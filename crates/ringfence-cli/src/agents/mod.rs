//! `ringfence hooks`: the shell commands of an agent run in a sandbox, by the agent's own hooks.
//!
//! The agent asks its hook before each call of its shell tool; the hook (`ringfence hooks answer`)
//! puts `ringfence hooks shell` in front of the command. The agent itself runs as before.

mod answer;
mod edit;
mod install;
mod replace;
mod shell;

use crate::error::Fault;
use crate::options::{POLICY, parse};
use crate::request;
use ringfence_policy::catalog::is_file;
use ringfence_policy::{shown, suggest};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

const HELP: &str = "\
Usage: ringfence hooks print|install|uninstall --claude|--codex|--gemini|--cursor|--opencode...
                 [--session SESSION] [--allow] [-- OPTIONS of run]

The agent's shell commands run by `ringfence run OPTIONS`, or with --session inside a session that
runs. A command that was refused something says so: what, which rule, what to ask the user for.

  print       what would be added to the agent's settings, and where
  install     add it; what was there is kept
  uninstall   put back what was there, byte for byte; what was changed since stays changed

  --allow     the agent need not ask its user before a command (it runs in the sandbox)
";

/// An agent whose hooks are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Agent {
    Claude,
    Codex,
    Gemini,
    Cursor,
    Opencode,
}

impl Agent {
    const ALL: [(Agent, &str); 5] = [
        (Agent::Claude, "claude"),
        (Agent::Codex, "codex"),
        (Agent::Gemini, "gemini"),
        (Agent::Cursor, "cursor"),
        (Agent::Opencode, "opencode"),
    ];

    fn name(self) -> &'static str {
        Agent::ALL.iter().find(|(agent, _)| *agent == self).map_or("", |(_, name)| name)
    }

    /// The user's own settings; never a project's, which the agent itself could write.
    fn settings(self, home: &Path) -> PathBuf {
        match self {
            Agent::Claude => home.join(".claude/settings.json"),
            Agent::Codex => home.join(".codex/hooks.json"),
            Agent::Gemini => home.join(".gemini/settings.json"),
            Agent::Cursor => home.join(".cursor/hooks.json"),
            Agent::Opencode => home.join(".config/opencode/plugins/ringfence.js"),
        }
    }
}

/// What a hook was installed with; the same words stand in the agent's settings.
#[derive(Clone, Debug)]
struct Hook {
    agent: Agent,
    session: Option<String>,
    allow: bool,
    /// Where the agent's user works, which the hook told `hooks shell`; the directory that a model asks for is no
    /// policy.
    within: Vec<String>,
    /// Options of run.
    options: Vec<OsString>,
}

impl Hook {
    /// The words after `ringfence hooks VERB`.
    fn words(&self) -> Vec<String> {
        let mut words = vec![format!("--{}", self.agent.name())];
        words.extend(self.session.iter().map(|session| format!("--session={session}")));
        words.extend(self.allow.then(|| "--allow".to_owned()));
        words.extend(self.within.iter().map(|within| format!("--within={within}")));
        if !self.options.is_empty() {
            words.push("--".to_owned());
            let text = |option: &OsString| option.to_string_lossy().into_owned();
            words.extend(self.options.iter().map(text));
        }
        words
    }

    /// A command of a shell: this program, its verb, the words.
    fn command(&self, verb: &str) -> Result<String, Fault> {
        let program = std::env::current_exe().map_err(Fault::of)?;
        let mut words = vec![program.to_string_lossy().into_owned(), "hooks".into(), verb.into()];
        words.extend(self.words());
        Ok(words.iter().map(|word| shown::word(word)).collect::<Vec<_>>().join(" "))
    }

    /// What is put in front of a command of the agent's; the command is the one word after it.
    fn prefix(&self, within: Vec<String>) -> Result<String, Fault> {
        let plain = Hook { allow: false, within, ..self.clone() };
        let command = plain.command("shell")?;
        Ok(if plain.options.is_empty() {
            format!("{command} -- --")
        } else {
            format!("{command} --")
        })
    }
}

/// `ringfence hooks VERB --AGENT …`
///
/// # Errors
/// Bad input; settings that cannot be read or written.
pub fn hooks(arguments: Vec<OsString>) -> Result<u8, Fault> {
    let mut words = arguments.into_iter();
    let verb = words.next().map(|verb| verb.to_string_lossy().into_owned()).unwrap_or_default();
    if matches!(verb.as_str(), "-h" | "--help" | "help") {
        return crate::generate::print(HELP.as_bytes());
    }
    if verb.is_empty() {
        ringfence_sys::say::text(format_args!("{HELP}"));
        return Ok(125);
    }
    let unknown = || {
        let known = ["print", "install", "uninstall"];
        let meant = suggest::meant(&verb, &known, "; there are print, install and uninstall");
        Fault::usage(format!("unknown: hooks {verb}{meant}"))
    };
    if !["print", "install", "uninstall", "answer", "shell"].contains(&verb.as_str()) {
        return Err(unknown());
    }
    let (hooks, rest) = parsed(words)?;
    if verb != "shell" && !rest.is_empty() {
        return Err(Fault::usage("one `--` is enough: options of run come after it"));
    }
    if let ("print" | "install", [hook, ..]) = (verb.as_str(), &hooks[..]) {
        resolved(&hook.options)?;
    }
    match verb.as_str() {
        "print" => install::print(&hooks),
        "install" => install::install(&hooks),
        "uninstall" => install::uninstall(&hooks.iter().map(|hook| hook.agent).collect::<Vec<_>>()),
        "answer" => answer::answer(one(&hooks)?),
        "shell" => shell::shell(one(&hooks)?, &rest),
        _ => Err(unknown()),
    }
}

/// Options that mean something else in another directory than this one, or by what is there.
const OF_A_PLACE: [&str; 7] =
    ["read", "write", "deny", "protect", "allow-socket", "inject", "workdir"];

/// Whether a run would take the options: one that is wrong would end each command of the agent's. Where the agent will
/// work is not known yet.
fn resolved(options: &[OsString]) -> Result<(), Fault> {
    let mut read = parse(&POLICY, options.to_vec(), true)?;
    read.options.retain(|(name, value)| {
        let relative = is_file(&value.to_string_lossy()) && !Path::new(value).is_absolute();
        let file = matches!(*name, "profile" | "feature") && relative;
        !OF_A_PLACE.contains(name) && !file
    });
    read.options.push(("workdir", "/".into()));
    request::policy(&request::request(&read, None)).map(drop)
}

/// The one hook of an agent that calls it.
fn one(hooks: &[Hook]) -> Result<&Hook, Fault> {
    let [hook] = hooks else {
        return Err(Fault::usage("an agent names itself, and no other, when it calls its hook"));
    };
    Ok(hook)
}

/// The hooks that the words describe, one for each agent, and what stands after a second `--`.
fn parsed(mut words: impl Iterator<Item = OsString>) -> Result<(Vec<Hook>, Vec<OsString>), Fault> {
    let (mut agents, mut session, mut allow) = (Vec::new(), None, false);
    let mut within = Vec::new();
    let mut options: Vec<OsString> = Vec::new();
    let mut rest = Vec::new();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy().into_owned();
        if text == "--" {
            options.extend(words.by_ref().take_while(|word| word != "--"));
            rest.extend(words.by_ref());
            break;
        }
        if let Some((known, _)) = Agent::ALL.iter().find(|(_, name)| text == format!("--{name}")) {
            if !agents.contains(known) {
                agents.push(*known);
            }
        } else if text == "--allow" {
            allow = true;
        } else if let Some(name) = text.strip_prefix("--session=") {
            session = Some(name.to_owned());
        } else if let Some(directory) = text.strip_prefix("--within=") {
            within.push(directory.to_owned());
        } else if text == "--session" {
            let name = words.next().filter(|word| word != "--");
            let name = name.ok_or_else(|| Fault::usage("--session needs the name of a session"))?;
            session = Some(name.to_string_lossy().into_owned());
        } else {
            let agents = Agent::ALL.map(|(_, name)| format!("--{name}"));
            let known = agents.iter().map(String::as_str).chain(["--session", "--allow"]);
            let known: Vec<&str> = known.collect();
            let meant = suggest::meant(&text, &known, "; see ringfence hooks --help");
            return Err(Fault::usage(format!("unknown option {text}{meant}")));
        }
    }
    if agents.is_empty() {
        let text = "for which agent? --claude, --codex, --gemini, --cursor or --opencode";
        return Err(Fault::usage(text));
    }
    let read = parse(&POLICY, options.clone(), true)?;
    if !read.rest.is_empty() || read.has("help") || read.has("command") {
        return Err(Fault::usage("only options of run come after `--`, no command"));
    }
    if session.is_some() && !options.is_empty() {
        return Err(Fault::usage("a session that runs has its policy; --session takes no options"));
    }
    let hook = |agent| {
        let (session, within, options) = (session.clone(), within.clone(), options.clone());
        Hook { agent, session, allow, within, options }
    };
    Ok((agents.into_iter().map(hook).collect(), rest))
}
