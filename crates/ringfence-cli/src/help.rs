//! Help, made from the tables of commands and options.

use crate::commands::{COMMANDS, Command};
use crate::error::Fault;
use crate::generate::print;
use crate::options::Spec;
use std::ffi::OsString;
use std::fmt::Write;

/// `ringfence --help`
///
/// # Errors
/// Standard output cannot be written.
pub fn overview() -> Result<u8, Fault> {
    let mut text = "ringfence runs any command inside a boundary that its user can prove.\n\n\
                    Usage: ringfence COMMAND [OPTIONS] [ARGUMENTS]\n\nCommands:\n"
        .to_owned();
    for command in &COMMANDS {
        let _ = writeln!(text, "  {:<12} {}", command.name, command.about);
    }
    text.push_str(
        "\nringfence COMMAND --help prints a command's options. Examples:\n\
         \n  ringfence run -- make test            this directory writable, secrets hidden, no network\
         \n  ringfence why -- write ~/.bashrc      which rule decides, and how to change it\
         \n  ringfence plan -- make test           every mount, rule and limit of that run\n",
    );
    print(text.as_bytes())
}

/// `ringfence COMMAND --help`
///
/// # Errors
/// Standard output cannot be written.
pub fn command(name: &str) -> Result<u8, Fault> {
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        return overview();
    };
    let Command { name, about, usage, .. } = command;
    let mut text = format!("{about}\n\nUsage: ringfence {name} {usage}\n\nOptions:\n");
    for spec in options(command) {
        let _ = writeln!(text, "  {:<34} {}", left(spec), spec.help);
    }
    print(text.as_bytes())
}

fn left(spec: &Spec) -> String {
    let short = match (spec.short, spec.long) {
        (Some(short), _) => format!("-{short}, "),
        (None, "command") => "-c, ".to_owned(),
        (None, _) => "    ".to_owned(),
    };
    match (spec.value, spec.value_optional) {
        (Some(value), false) => format!("{short}--{} {value}", spec.long),
        (Some(value), true) => format!("{short}--{}[={value}]", spec.long),
        (None, _) => format!("{short}--{}", spec.long),
    }
}

/// Whether the words ask for help; then it is printed. Asked for JSON by a command that has none, it refuses.
///
/// # Errors
/// Standard output cannot be written.
pub fn asked(command_name: &str, parsed: &crate::options::Parsed) -> Option<Result<u8, Fault>> {
    if parsed.has("help") {
        return Some(command(command_name));
    }
    no_json(command_name, parsed).err().map(Err)
}

/// The commands that can print JSON; of profiles and features the list.
const JSON: [&str; 14] = [
    "plan", "why", "explain", "learn", "doctor", "version", "schema", "profile", "feature", "fork",
    "ps", "show", "logs", "gc",
];

/// The options that a command takes: help, completions and the man page tell these.
pub fn options(command: &Command) -> impl Iterator<Item = &'static Spec> {
    let prints = JSON.contains(&command.name);
    command.options.iter().filter(move |spec| prints || spec.long != "json")
}

/// Whoever asks for JSON would read something else.
///
/// # Errors
/// It is asked for, and the command has none.
pub fn no_json(command_name: &str, parsed: &crate::options::Parsed) -> Result<(), Fault> {
    match parsed.has("json") && !JSON.contains(&command_name) {
        false => Ok(()),
        true => {
            Err(Fault::usage(format!("ringfence {command_name} prints no JSON: leave --json out")))
        }
    }
}

/// A word that a command has no use for was meant for something.
///
/// # Errors
/// There is one.
pub fn no_words(command_name: &str, words: &[OsString]) -> Result<(), Fault> {
    match words.first() {
        None => Ok(()),
        Some(word) => Err(Fault::usage(format!(
            "ringfence {command_name} takes no further words: {}",
            word.display()
        ))),
    }
}

/// The command of that name.
pub fn find(name: &str) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| command.name == name)
}
