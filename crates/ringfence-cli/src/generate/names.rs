//! Names of profiles, features and sessions in completions: they come and go, so that the shell asks for them
//! (`ringfence completions names KIND`).

use crate::commands::COMMANDS;
use crate::error::Fault;
use crate::request::with_catalog;
use clap::{Arg, Command, ValueHint};
use clap_complete::Shell;
use ringfence_policy::catalog::Kind;
use ringfence_session::cli::sessions;
use std::collections::HashSet;
use std::fmt::Write;

/// Commands on sessions, which kind of them, and how many words come before; of some there may be several.
const SESSIONS: [(&str, &str, u32, bool); 12] = [
    ("exec", "sessions", 0, false),
    ("fork", "sessions", 0, false),
    ("kill", "sessions", 0, true),
    ("suspend", "sessions", 0, false),
    ("resume", "sessions", 0, false),
    ("allow", "sessions", 0, false),
    ("watch", "sessions", 0, false),
    ("show", "records", 0, false),
    ("logs", "records", 0, false),
    ("report", "records", 0, false),
    ("rm", "ended", 0, true),
    ("overlay", "records", 1, false),
];

/// The names of a kind, a line each. A shell takes them apart, and may expand what it finds in them: others than plain
/// ones are left out.
///
/// # Errors
/// There is no such kind; they cannot be read.
pub(super) fn of(kind: &str) -> Result<String, Fault> {
    let listed = |kind| with_catalog(|catalog| Ok(catalog.list(kind)));
    let all: Vec<String> = match kind {
        "profiles" => listed(Kind::Profile)?.into_iter().map(|row| row.name.to_string()).collect(),
        "features" => listed(Kind::Feature)?.into_iter().map(|row| row.name.to_string()).collect(),
        "sessions" | "records" | "ended" => {
            let all = sessions().map_err(|error| Fault::usage(error.to_string()))?;
            // The newest first.
            let all = all.into_iter().rev().map(|(_, session)| session);
            let due =
                all.filter(|session| kind == "records" || session.live == (kind == "sessions"));
            due.map(|session| session.name.unwrap_or(session.id)).collect()
        }
        _ => return Err(Fault::usage(format!("there are no names of {kind} to complete"))),
    };
    let plain = |name: &&String| {
        let known = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+@".contains(&byte);
        !name.is_empty() && !name.starts_with('-') && name.bytes().all(known)
    };
    // Another session may have had that name.
    let mut known = HashSet::new();
    let names = all.iter().filter(plain).filter(|name| known.insert(*name));
    Ok(names.flat_map(|name| [name, "\n"]).collect())
}

/// A command with the session that it takes.
pub(super) fn argument(command: Command) -> Command {
    let find = |(name, ..): &&(&str, &str, u32, bool)| *name == command.get_name();
    let Some((name, kind, before, several)) = SESSIONS.iter().find(find) else { return command };
    let argument = Arg::new(*kind);
    let argument = if *several { argument.num_args(0..) } else { argument };
    if *before > 0 {
        return command.mut_subcommands(|verb| verb.arg(argument.clone()));
    }
    let command = command.arg(argument);
    if *name != "exec" {
        return command;
    }
    let rest = Arg::new("CMD").num_args(0..).trailing_var_arg(true).allow_hyphen_values(true);
    command.arg(rest.value_hint(ValueHint::CommandWithArguments))
}

/// The options of these commands behind which a value comes.
fn valued() -> Vec<String> {
    let commands = COMMANDS.iter().filter(|command| SESSIONS.iter().any(|of| of.0 == command.name));
    let options = commands.flat_map(crate::help::options);
    let options = options.filter(|spec| spec.value.is_some() && !spec.value_optional);
    let mut all: Vec<String> = options
        .flat_map(|spec| {
            let short = spec.short.map(|short| format!("-{short}"));
            short.into_iter().chain([format!("--{}", spec.long)])
        })
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Completions with the names in them.
pub(super) fn added(shell: Shell, text: &str) -> String {
    match shell {
        Shell::Bash => bash(text),
        Shell::Zsh => zsh(text),
        Shell::Fish => fish(text),
        _ => text.to_owned(),
    }
}

fn bash(text: &str) -> String {
    let mut text = text.replace("complete -F _ringfence ", "complete -F _ringfence_and_names ");
    let mut commands = String::new();
    for (name, kind, before, several) in SESSIONS {
        let due = if several { "" } else { &format!("(( count == {before} )) && ") };
        // Writing to a String cannot fail.
        let _ = writeln!(commands, "            {name}) {due}kind={kind} ;;");
    }
    let more = BASH.replace("VALUED", &valued().join("|")).replace("COMMANDS\n", &commands);
    text.push_str(&more);
    text
}

const BASH: &str = r#"
_ringfence_and_names() {
    _ringfence "$@"
    local cur="$2" prev="$3" kind="" count=0 i
    for (( i = 2; i < COMP_CWORD; i++ )); do
        case "${COMP_WORDS[i]}" in
            --) return 0 ;;
            VALUED) (( i++ )) ;;
            -*) ;;
            *) (( count++ )) ;;
        esac
    done
    # The sign is a word of its own.
    if [[ "$cur" == "=" ]]; then
        cur=""
    elif [[ "$prev" == "=" ]]; then
        prev="${COMP_WORDS[COMP_CWORD-2]}"
    fi
    case "$prev" in
        -p|--profile) kind=profiles ;;
        --feature) kind=features ;;
        VALUED) ;;
        *) [[ "$cur" == -* ]] || case "${COMP_WORDS[1]}" in
COMMANDS
        esac ;;
    esac
    if [[ -n "$kind" && "$COMP_CWORD" -gt 1 ]]; then
        COMPREPLY+=( $(compgen -W "$(ringfence completions names "$kind" 2>/dev/null)" -- "$cur") )
    fi
    return 0
}
"#;

fn zsh(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + ZSH.len());
    // In what values are called a quote would end the word that it is in, and a colon the name.
    let values = COMMANDS.iter().flat_map(crate::help::options).filter_map(|spec| spec.value);
    let mut values: Vec<&str> = values.filter(|value| value.contains(['\'', ':'])).collect();
    values.sort_unstable();
    values.dedup();
    for line in text.lines() {
        let line = values.iter().fold(line.to_owned(), |line, value| {
            let spelled = value.replace('\'', "").replace(':', "\\:");
            line.replace(&format!("]:{value}:"), &format!("]:{spelled}:"))
        });
        let named = |line: &str, kind| line.replace(":_default'", &format!(":_ringfence_{kind}'"));
        let is = |what: &str| line.contains(what);
        let line = if is("--profile=[") || is("'*-p+[") {
            named(&line, "profiles")
        } else if is("--feature=[") {
            named(&line, "features")
        } else {
            let kinds = ["sessions", "records", "ended"];
            let kind = kinds.into_iter().find(|kind| is(&format!(":{kind}:_default'")));
            kind.map_or_else(|| line.clone(), |kind| named(&line, kind))
        };
        out.push_str(&line);
        out.push('\n');
        // Before they are called, which may be in this file.
        if line.starts_with("#compdef ") {
            out.push_str(ZSH);
        }
    }
    out
}

const ZSH: &str = r#"
_ringfence_told() {
    local -a names
    names=(${(f)"$(ringfence completions names $1 2>/dev/null)"})
    compadd -a names
}
_ringfence_profiles() { _ringfence_told profiles; _files }
_ringfence_features() { _ringfence_told features; _files }
_ringfence_sessions() { _ringfence_told sessions }
_ringfence_records() { _ringfence_told records }
_ringfence_ended() { _ringfence_told ended }
"#;

fn fish(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + FISH.len());
    for line in text.lines() {
        out.push_str(line);
        for (option, kind) in [(" -l profile ", "profiles"), (" -l feature ", "features")] {
            if line.starts_with("complete ") && line.contains(option) {
                let _ = write!(out, " -a \"(ringfence completions names {kind})\"");
            }
        }
        out.push('\n');
    }
    out.push_str(&FISH.replace("VALUED", &valued().join(" ")));
    for (name, kind, before, several) in SESSIONS {
        let most = if several { "any" } else { &before.to_string() };
        let _ = writeln!(
            out,
            "complete -c ringfence -n \"__ringfence_session_due {name} {most}\" -f -a \"(ringfence completions names {kind})\""
        );
    }
    out
}

const FISH: &str = r#"
# Whether a session is the next word of a command: with so many words before it.
function __ringfence_session_due -a command most
    set -l words (commandline -opc)
    test "$words[2]" = $command
    or return 1
    set -l count 0
    set -l value no
    for word in $words[3..-1]
        if test $value = yes
            set value no
        else if test "$word" = --
            return 1
        else if contains -- $word VALUED
            set value yes
        else if not string match -q -- '-*' $word
            set count (math $count + 1)
        end
    end
    test $most = any -o $count = $most
end
"#;
