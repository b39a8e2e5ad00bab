//! Completions, the man page and the schema: made from the same tables as the parser.

mod names;

use crate::commands::COMMANDS;
use crate::error::Fault;
use crate::options::{PLAIN, Spec, parse};
use clap::{Arg, ArgAction, Command};
use clap_complete::Shell;
use std::ffi::OsString;
use std::io;

fn option(spec: &Spec) -> Arg {
    let mut arg = Arg::new(spec.long).long(spec.long).help(spec.help);
    if let Some(short) = spec.short.or((spec.long == "command").then_some('c')) {
        arg = arg.short(short);
    }
    match spec.value {
        None => arg.action(ArgAction::SetTrue),
        Some(value) => {
            // `a|b|c` lists the only values; `NAME|FILE` does not.
            let words: Vec<&'static str> = value.split('|').collect();
            let closed = words.len() > 1
                && words.iter().all(|word| word.bytes().all(|byte| byte.is_ascii_lowercase()));
            let arg = arg.value_name(value).action(if spec.repeatable {
                ArgAction::Append
            } else {
                ArgAction::Set
            });
            let arg = if closed { arg.value_parser(words) } else { arg };
            if spec.value_optional { arg.num_args(0..=1).require_equals(true) } else { arg }
        }
    }
}

fn tree() -> Command {
    let mut root = Command::new("ringfence")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Runs any command inside a boundary that its user can prove")
        .disable_help_subcommand(true)
        .subcommand_required(true);
    for command in &COMMANDS {
        let options = crate::help::options(command).filter(|spec| spec.long != "help");
        let mut sub = Command::new(command.name)
            .about(command.about)
            .override_usage(format!("ringfence {} {}", command.name, command.usage))
            .args(options.map(option));
        for name in command.subcommands {
            sub = sub.subcommand(Command::new(*name));
        }
        if matches!(command.name, "run" | "plan" | "why") {
            let rest =
                Arg::new("CMD").num_args(0..).trailing_var_arg(true).allow_hyphen_values(true);
            sub = sub.arg(rest.value_hint(clap::ValueHint::CommandWithArguments));
        }
        root = root.subcommand(sub);
    }
    root
}

/// `ringfence completions SHELL`
///
/// # Errors
/// An unknown shell.
pub fn completions(arguments: Vec<OsString>) -> Result<u8, Fault> {
    let parsed = parse(&PLAIN, arguments, false)?;
    if let Some(done) = crate::help::asked("completions", &parsed) {
        return done;
    }
    if let [word, kind] = &parsed.rest[..]
        && word == "names"
    {
        return print(names::of(&kind.to_string_lossy())?.as_bytes());
    }
    let [shell] = &parsed.rest[..] else {
        return Err(Fault::usage(
            "name one shell: ringfence completions bash|zsh|fish|elvish|powershell",
        ));
    };
    let name = shell.to_string_lossy();
    let shell: Shell = name.parse().map_err(|_| {
        let known = ["bash", "zsh", "fish", "elvish", "powershell"];
        let nearest = ringfence_policy::suggest::nearest(&name, &known);
        let nearest = nearest.map_or(String::new(), |shell| format!("; did you mean {shell}?"));
        Fault::usage(format!("unknown shell {name}{nearest} (bash, zsh, fish, elvish, powershell)"))
    })?;
    let mut text = Vec::new();
    // Others show what words are to come, too.
    let mut tree =
        if shell == Shell::Zsh { tree().mut_subcommands(names::argument) } else { tree() };
    clap_complete::generate(shell, &mut tree, "ringfence", &mut text);
    print(names::added(shell, &String::from_utf8_lossy(&text)).as_bytes())
}

/// `ringfence man`
///
/// # Errors
/// Standard output cannot be written.
pub fn man(arguments: Vec<OsString>) -> Result<u8, Fault> {
    let parsed = parse(&PLAIN, arguments, false)?;
    if let Some(done) = crate::help::asked("man", &parsed) {
        return done;
    }
    crate::help::no_words("man", &parsed.rest)?;
    let mut text = Vec::new();
    let root = tree();
    clap_mangen::Man::new(root.clone()).render(&mut text).map_err(Fault::of)?;
    for command in root.get_subcommands() {
        let title = format!("ringfence-{}", command.get_name());
        let man = clap_mangen::Man::new(command.clone().display_name(title));
        man.render_synopsis_section(&mut text).map_err(Fault::of)?;
        man.render_description_section(&mut text).map_err(Fault::of)?;
        man.render_options_section(&mut text).map_err(Fault::of)?;
    }
    text.extend_from_slice(EXIT_CODES.as_bytes());
    print(&text)
}

const EXIT_CODES: &str = ".SH \"EXIT STATUS\"\nThe command's own; 128+n when signal n ended it; 124 \
when the time ran out; 125 when ringfence itself failed; 126 when the command could not be executed; \
127 when it was not found.\n";

/// `ringfence schema`
///
/// # Errors
/// Standard output cannot be written.
pub fn schema(arguments: Vec<OsString>) -> Result<u8, Fault> {
    let parsed = parse(&PLAIN, arguments, false)?;
    if let Some(done) = crate::help::asked("schema", &parsed) {
        return done;
    }
    crate::help::no_words("schema", &parsed.rest)?;
    let mut text = serde_json::to_vec_pretty(&ringfence_policy::schema()).map_err(Fault::of)?;
    text.push(b'\n');
    print(&text)
}

/// Writes a line to standard output, as [`print`] does: `println!` panics when nobody reads.
///
/// # Errors
/// Standard output cannot be written.
pub fn line(text: std::fmt::Arguments<'_>) -> Result<u8, Fault> {
    print(format!("{text}\n").as_bytes())
}

/// Writes to standard output; a reader that stopped reading is no failure.
///
/// # Errors
/// Standard output cannot be written.
pub fn print(text: &[u8]) -> Result<u8, Fault> {
    match io::Write::write_all(&mut io::stdout().lock(), text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Fault::of(error)),
        _ => Ok(0),
    }
}
