//! The commands, in one table: dispatch, help, completions and the man page read it.

use crate::error::Fault;
use crate::options::{BARE, PLAIN, POLICY, Spec, parse};
use crate::records;
use crate::{doctor, exec, generate, help, import, plan, profile_new, profiles, run, why};
use ringfence_policy::shown;
use ringfence_session::cli;
use std::ffi::OsString;

/// The rest of the command line.
pub type Arguments = std::iter::Skip<std::env::ArgsOs>;

/// A command.
pub struct Command {
    /// Its name.
    pub name: &'static str,
    /// What follows the name.
    pub usage: &'static str,
    /// One line of help.
    pub about: &'static str,
    /// Its options.
    pub options: &'static [Spec],
    /// Its subcommands.
    pub subcommands: &'static [&'static str],
    call: fn(Vec<OsString>) -> Result<u8, Fault>,
}

const fn command(
    name: &'static str,
    usage: &'static str,
    about: &'static str,
    options: &'static [Spec],
    call: fn(Vec<OsString>) -> Result<u8, Fault>,
) -> Command {
    Command { name, usage, about, options, subcommands: &[], call }
}

/// All commands of this build.
pub const COMMANDS: [Command; 36] = [
    command("run", "[OPTIONS] [--] CMD [ARG...]", "Run a command in a sandbox", &POLICY, |a| {
        run::run(a)
    }),
    command(
        "exec",
        "[OPTIONS] SESSION [--] CMD [ARG...]",
        "Run one more command inside a session that runs",
        &exec::EXEC,
        exec::exec,
    ),
    command(
        "fork",
        "[OPTIONS] SESSION N [--] [WORD...] | SESSION | --helper python",
        "Clone a warm program that runs in a session, or a virtual machine",
        &crate::fork::FORK,
        crate::fork::fork,
    ),
    command("shell", "[OPTIONS]", "An interactive shell inside", &POLICY, run::shell),
    command(
        "plan",
        "[OPTIONS] [-- CMD]",
        "Print what run would do; changes nothing",
        &POLICY,
        plan::plan,
    ),
    command(
        "explain",
        "[OPTIONS] PATH [CMD...]",
        "Why a file is in the view of a command, or why not",
        &POLICY,
        crate::explain::explain,
    ),
    command(
        "learn",
        "[OPTIONS] [-o FILE] [--merge FILE] -- CMD | --from SESSION",
        "Run where nothing is changed, watch, propose a profile",
        &crate::learn::LEARN,
        crate::learn::learn,
    ),
    command(
        "why",
        "[OPTIONS] -- read|write|exec PATH | connect HOST:PORT | http METHOD URL | socket PATH | env NAME",
        "The decision, the rule, where it came from, how to change it",
        &why::WHY,
        why::why,
    ),
    command("doctor", "[--json]", "What this host offers, and each remedy", &PLAIN, doctor::doctor),
    Command {
        subcommands: &["list", "show", "check", "diff", "edit", "path", "syscalls", "new"],
        ..command(
            "profile",
            "list|show|check|diff|edit|path|syscalls [NAME|FILE...] | new [OPTIONS] PROGRAM [ARG...]",
            "Look at profiles, make one for a program",
            &profile_new::NEW,
            profiles::profile,
        )
    },
    Command {
        subcommands: &["list", "show"],
        ..command("feature", "list|show [NAME]", "Look at features", &PLAIN, profiles::feature)
    },
    command(
        "integrate",
        "PROFILE [--program COMMAND] [--beside] [--autostart] [--remove] [-- WORD...]",
        "Let a program start in its sandbox, whoever starts it",
        &crate::integrate::INTEGRATE,
        crate::integrate::integrate,
    ),
    command("trust", "FILE", "Accept a policy file found in a project", &BARE, profiles::trust),
    Command {
        subcommands: &["claude", "srt", "fence", "greywall"],
        ..command(
            "import",
            "claude|srt|fence|greywall FILE [-o FILE]",
            "Convert a peer's settings to a profile",
            &import::IMPORT,
            import::import,
        )
    },
    Command {
        subcommands: &["bash", "zsh", "fish", "elvish", "powershell"],
        ..command(
            "completions",
            "SHELL",
            "Print completions for a shell",
            &PLAIN,
            generate::completions,
        )
    },
    command("man", "", "Print the man page", &PLAIN, generate::man),
    command("schema", "", "Print the JSON Schema of profile files", &PLAIN, generate::schema),
    command("bench", "[GROUP...] [OPTIONS]", "Measure, beside the alternatives", &[], bench),
    Command {
        subcommands: &[
            "create", "list", "show", "changes", "diff", "history", "revert", "compact", "delete",
        ],
        ..command(
            "snapshot",
            "create|list|show|changes|diff|history|revert|compact|delete",
            "Keep and bring back states of a directory",
            &[],
            snapshot,
        )
    },
    command("ps", "[--all] [--json]", "List the sessions that run", &records::PS, |a| {
        records::call("ps", cli::ps, a)
    }),
    command(
        "show",
        "SESSION [--json]",
        "What a session is, and how much it did",
        &records::SHOW,
        |a| records::call("show", cli::show, a),
    ),
    command(
        "logs",
        "[SESSION] [--follow] [--denied] [--kind KIND[,KIND]] [--json]",
        "What a session did, a line each",
        &records::LOGS,
        |a| records::call("logs", cli::logs, a),
    ),
    command(
        "report",
        "[SESSION] [--output FILE]",
        "What a session did, as one page",
        &records::REPORT,
        |a| records::call("report", |a| cli::report(a, &ringfence_sandbox::made_by_a_run), a),
    ),
    command(
        "kill",
        "[--signal SIGNAL] SESSION...",
        "End a session that runs",
        &records::KILL,
        |a| records::call("kill", cli::kill, a),
    ),
    command(
        "cp",
        "[--with-protected] SESSION:PATH PATH | PATH SESSION:PATH",
        "Copy files out of a session that runs, or into it",
        &crate::copy::OPTIONS,
        crate::copy::cp,
    ),
    command(
        "suspend",
        "SESSION",
        "Hold a session of the vm tier still",
        &PLAIN,
        crate::suspend::suspend,
    ),
    command("resume", "SESSION", "Let a suspended session go on", &PLAIN, crate::suspend::resume),
    command(
        "allow",
        "[--always --profile NAME] SESSION HOST[:PORT]",
        "Let a session that runs connect to one more host",
        &crate::allow::ALLOW,
        crate::allow::allow,
    ),
    command(
        "watch",
        "[--profile NAME] [SESSION]",
        "Show refused connections as they come, and answer them",
        &crate::watch::WATCH,
        crate::watch::watch,
    ),
    command(
        "rm",
        "[--force] SESSION...",
        "Remove the record of sessions that ended",
        &records::RM,
        |a| records::call("rm", cli::rm, a),
    ),
    command("gc", "[--all] [--json]", "Remove the records of old sessions", &records::GC, |a| {
        records::call("gc", cli::gc, a)
    }),
    Command {
        subcommands: &["diff", "commit", "discard"],
        ..command(
            "overlay",
            "diff|commit|discard SESSION [PATH...]",
            "Look at changes that were kept apart, commit or drop them",
            &[],
            crate::overlay::overlay,
        )
    },
    Command {
        subcommands: &["wrap"],
        ..command(
            "mcp",
            "[OPTIONS] | wrap [--tool NAME] [--deny-tool NAME] [OPTIONS] -- SERVER [ARG...]",
            "MCP server on stdio: commands, files and snapshots in a sandbox",
            &POLICY,
            crate::mcp::mcp,
        )
    },
    Command {
        subcommands: &["print", "install", "uninstall"],
        ..command(
            "hooks",
            "print|install|uninstall --claude|--codex|--gemini|--cursor|--opencode [-- OPTIONS]",
            "Let an agent run its shell commands in a sandbox",
            &[],
            crate::agents::hooks,
        )
    },
    Command {
        subcommands: &["setup", "status", "clean"],
        ..command(
            "vm",
            "setup|status|clean",
            "What --tier vm needs: fetch it, look at it, drop saved guests",
            &PLAIN,
            crate::vm::vm,
        )
    },
    command("version", "", "Print the version", &PLAIN, |words| {
        let parsed = parse(&PLAIN, words, false)?;
        if let Some(done) = help::asked("version", &parsed) {
            return done;
        }
        help::no_words("version", &parsed.rest)?;
        if parsed.has("json") {
            let version = serde_json::json!({"schema": 1, "version": env!("CARGO_PKG_VERSION")});
            return generate::line(format_args!("{version:#}"));
        }
        generate::line(format_args!("ringfence {}", env!("CARGO_PKG_VERSION")))
    }),
];

/// `ringfence bench`: the suite drives this very program from outside.
fn bench(arguments: Vec<OsString>) -> Result<u8, Fault> {
    let program = std::env::current_exe().map_err(Fault::of)?;
    // The suite tells its own failures.
    Ok(ringfence_bench::main(arguments, program))
}

/// `ringfence snapshot`
fn snapshot(arguments: Vec<OsString>) -> Result<u8, Fault> {
    ringfence_session::wrote::told_to(ringfence_sandbox::written);
    cli::snapshot(arguments).map_err(Fault::usage)
}

/// Calls a command by name.
///
/// # Errors
/// The command's; an unknown name, with the nearest known one.
pub fn call(name: &str, mut arguments: Arguments) -> Result<u8, Fault> {
    let name = match name {
        "-V" | "--version" => "version",
        "-h" | "--help" | "help" => {
            let about = arguments.next().map(|name| name.to_string_lossy().into_owned());
            help::no_words("help COMMAND", &arguments.collect::<Vec<_>>())?;
            return match about {
                None => help::overview(),
                Some(name) if help::find(&name).is_some() => help::command(&name),
                Some(name) => Err(unknown(&name)),
            };
        }
        name => name,
    };
    if let Some(command) = COMMANDS.iter().find(|command| command.name == name) {
        return (command.call)(arguments.collect());
    }
    Err(unknown(name))
}

fn unknown(name: &str) -> Fault {
    let known: Vec<&str> = COMMANDS.iter().map(|command| command.name).collect();
    Fault::usage(match ringfence_policy::suggest::nearest(name, &known) {
        Some(nearest) => format!("unknown command {name}; did you mean ringfence {nearest}?"),
        None => format!(
            "unknown command {name}; to run a program: ringfence run -- {}",
            shown::word(name)
        ),
    })
}
