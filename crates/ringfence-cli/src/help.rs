//! Help, made from the tables of commands and options.

use crate::commands::{COMMANDS, Command};
use crate::error::Fault;
use crate::options::Spec;

/// `ringfence --help`
///
/// # Errors
/// None.
pub fn overview() -> Result<u8, Fault> {
    println!("ringfence runs any command inside a boundary that its user can prove.\n");
    println!("Usage: ringfence COMMAND [OPTIONS] [ARGUMENTS]\n\nCommands:");
    for command in &COMMANDS {
        println!("  {:<12} {}", command.name, command.about);
    }
    println!("\nringfence COMMAND --help prints a command's options. Examples:\n");
    println!(
        "  ringfence run -- make test            this directory writable, secrets hidden, no network"
    );
    println!("  ringfence why -- write ~/.bashrc      which rule decides, and how to change it");
    println!("  ringfence plan -- make test           every mount, rule and limit of that run");
    Ok(0)
}

/// `ringfence COMMAND --help`
///
/// # Errors
/// None.
pub fn command(name: &str) -> Result<u8, Fault> {
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        return overview();
    };
    println!("{}\n\nUsage: ringfence {} {}\n", command.about, command.name, command.usage);
    println!("Options:");
    for spec in command.options {
        println!("  {:<34} {}", left(spec), spec.help);
    }
    Ok(0)
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

/// Whether the words ask for help; then it is printed.
///
/// # Errors
/// None.
pub fn asked(command_name: &str, parsed: &crate::options::Parsed) -> Option<Result<u8, Fault>> {
    parsed.has("help").then(|| command(command_name))
}

/// The command of that name.
pub fn find(name: &str) -> Option<&'static Command> {
    COMMANDS.iter().find(|command| command.name == name)
}
