//! The options of the commands, in one table: the parser, `--help`, the completions and the
//! man page all read it.
//!
//! The parser is our own because it stands on the launch path: reading a command line costs a
//! few microseconds here. Help, completions and the man page are made from the same table by
//! clap, off that path.

use crate::error::Fault;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// An option.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Long name, without dashes.
    pub long: &'static str,
    /// Short name.
    pub short: Option<char>,
    /// The value's name in help; without one the option is a flag.
    pub value: Option<&'static str>,
    /// A value may be left out (`--overlay[=…]`).
    pub value_optional: bool,
    /// May be given several times.
    pub repeatable: bool,
    /// One line of help.
    pub help: &'static str,
}

/// An option without a value.
pub const fn flag(long: &'static str, short: Option<char>, help: &'static str) -> Spec {
    Spec { long, short, value: None, value_optional: false, repeatable: false, help }
}

/// An option with a value, given once.
pub const fn one(long: &'static str, value: &'static str, help: &'static str) -> Spec {
    Spec { long, short: None, value: Some(value), value_optional: false, repeatable: false, help }
}

const fn many(
    long: &'static str,
    short: Option<char>,
    value: &'static str,
    help: &'static str,
) -> Spec {
    Spec { long, short, value: Some(value), value_optional: false, repeatable: true, help }
}

/// Options that say what a sandbox may do: `run`, `shell`, `plan`, `why`, `learn`.
pub const POLICY: [Spec; 43] = [
    many("profile", Some('p'), "NAME|FILE", "Use this profile; several are merged left to right"),
    one(
        "for",
        "COMMAND",
        "Take the policy that a run of COMMAND has, whatever is run or asked about",
    ),
    many("feature", None, "NAME|FILE", "Add this feature (ringfence feature list)"),
    many("read", Some('r'), "PATH", "Show PATH, readable and executable (?PATH: if it exists)"),
    many("write", Some('w'), "PATH", "Show PATH, writable (?PATH: if it exists)"),
    many("deny", None, "PATH", "Hide PATH, whatever else grants it"),
    many("protect", None, "PATH", "Refuse writing to PATH inside a writable tree"),
    flag("strict", None, "Refuse to make protected names, instead of taking them away"),
    many(
        "allow-host",
        Some('n'),
        "HOST[:PORT]",
        "Let programs connect to HOST (name, *.name, IP, CIDR, localhost:PORT)",
    ),
    many("deny-host", None, "HOST[:PORT]", "Refuse HOST, whatever else allows it"),
    many("http", None, "'METHOD HOST/PATH'", "Let only these requests to HOST through"),
    many(
        "inject",
        None,
        "'HOST HEADER=SOURCE'",
        "Let the proxy add a header whose secret stays outside",
    ),
    one("network", "none|filtered|host", "How much network there is (default: none)"),
    Spec {
        long: "ask",
        short: None,
        value: Some("DURATION"),
        value_optional: true,
        repeatable: false,
        help: "Let a connection that no rule allows wait for `ringfence watch` (default: 60s)",
    },
    many("publish", None, "[ADDR:]PORT[:PORT][/udp]", "Let the host connect in to PORT"),
    many("allow-socket", None, "PATH", "Show a Unix socket of the host"),
    many("env", Some('e'), "NAME[=VALUE]", "Pass or set an environment variable"),
    flag("clean-env", None, "Start from an empty environment"),
    one("workdir", "DIR", "Start in DIR (default: the current directory)"),
    one("home", "private|NAME|host", "What HOME is (default: private)"),
    one("memory", "SIZE", "Limit memory (512M, 4GiB)"),
    one("cpus", "N", "Limit processors (1.5)"),
    one("pids", "N", "Limit processes and threads"),
    one("open-files", "N", "Limit open files of each process"),
    one("disk", "SIZE", "Limit what may be written to private directories"),
    one("timeout", "DURATION", "End everything after DURATION (30s, 5m)"),
    Spec {
        long: "overlay",
        short: None,
        value: Some("ask|commit|discard|keep"),
        value_optional: true,
        repeatable: false,
        help: "Keep writes apart; what happens to them at the end",
    },
    Spec {
        long: "snapshot",
        short: None,
        value: Some("auto|always|never"),
        value_optional: true,
        repeatable: false,
        help: "Keep the state of the directory before the run; record what changed",
    },
    flag(
        "gateway",
        None,
        "Let the command make, compare and revert snapshots of what it may write",
    ),
    flag("dry-run", None, "Run, show what would have changed, and drop it"),
    one("tier", "auto|process|namespace|vm", "How strong the boundary is (default: auto)"),
    many("allow-degraded", None, "LAYER", "Go on although LAYER is missing on this host"),
    one("libs", "exact", "Show only the libraries that the program needs"),
    one("syscalls", "default|learned|ask", "Allow only the system calls that the profile lists"),
    flag("trace-missing", None, "Tell what the program looked for and the sandbox does not show"),
    flag("monitor", Some('m'), "Print decisions as they happen, on stderr"),
    one("name", "NAME", "Name the session"),
    flag("record-programs", None, "Record every program that is executed inside"),
    flag("no-record", None, "Keep no record of the session"),
    one("status-fd", "N", "Write one JSON line for each event to descriptor N"),
    one("command", "STRING", "Run STRING by the user's shell (also -c)"),
    flag("json", None, "Print JSON"),
    flag("help", Some('h'), "Print help"),
];

/// Options of commands without a policy.
pub const PLAIN: [Spec; 2] =
    [flag("json", None, "Print JSON"), flag("help", Some('h'), "Print help")];

/// Options of a command that prints no result.
pub const BARE: [Spec; 2] =
    [flag("json", None, "Print JSON"), flag("help", Some('h'), "Print help")];

/// A parsed command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    /// Options in order, by long name.
    pub options: Vec<(&'static str, OsString)>,
    /// What follows: the command and its arguments, or operands.
    pub rest: Vec<OsString>,
}

impl Parsed {
    /// Whether an option was given.
    pub fn has(&self, long: &str) -> bool {
        self.options.iter().any(|(name, _)| *name == long)
    }

    /// The last value of an option.
    pub fn last(&self, long: &str) -> Option<&OsStr> {
        self.options
            .iter()
            .rev()
            .find(|(name, _)| *name == long)
            .map(|(_, value)| value.as_os_str())
    }
}

/// Reads options up to `--` or, with `stop_at_operand`, the first word that is none.
///
/// # Errors
/// [`Fault`] names the unknown option and the nearest known one.
pub fn parse(
    specs: &[Spec],
    arguments: impl IntoIterator<Item = OsString>,
    stop_at_operand: bool,
) -> Result<Parsed, Fault> {
    let mut parsed = Parsed::default();
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        let bytes = argument.as_bytes();
        if bytes == b"--" {
            parsed.rest.extend(arguments);
            return Ok(parsed);
        }
        if let Some(long) = bytes.strip_prefix(b"--") {
            let (name, value) = match long.iter().position(|&byte| byte == b'=') {
                Some(at) => (&long[..at], Some(OsString::from_vec(long[at + 1..].to_vec()))),
                None => (long, None),
            };
            let spec = find_long(specs, name)?;
            take(&mut parsed, spec, &format!("--{}", spec.long), value, &mut arguments)?;
        } else if bytes.len() > 1 && bytes[0] == b'-' {
            short_options(specs, &mut parsed, &bytes[1..], &mut arguments)?;
        } else {
            parsed.rest.push(argument);
            if stop_at_operand {
                parsed.rest.extend(arguments);
                return Ok(parsed);
            }
        }
    }
    Ok(parsed)
}

fn short_options(
    specs: &[Spec],
    parsed: &mut Parsed,
    mut cluster: &[u8],
    arguments: &mut impl Iterator<Item = OsString>,
) -> Result<(), Fault> {
    while let Some((&letter, rest)) = cluster.split_first() {
        let letter = char::from(letter);
        // `-c` is `--command`, which has no short name of its own in help's column.
        let short =
            |spec: &&Spec| spec.short == Some(letter) || (letter == 'c' && spec.long == "command");
        let spec = specs.iter().find(short).ok_or_else(|| {
            Fault::usage(format!("unknown option -{letter}; see ringfence --help"))
        })?;
        let shown = format!("-{letter}");
        if spec.value.is_some() {
            let value = (!rest.is_empty())
                .then(|| OsString::from_vec(rest.strip_prefix(b"=").unwrap_or(rest).to_vec()));
            return take(parsed, spec, &shown, value, arguments);
        }
        take(parsed, spec, &shown, None, arguments)?;
        cluster = rest;
    }
    Ok(())
}

fn find_long<'a>(specs: &'a [Spec], name: &[u8]) -> Result<&'a Spec, Fault> {
    if let Some(spec) = specs.iter().find(|spec| spec.long.as_bytes() == name) {
        return Ok(spec);
    }
    let name = String::from_utf8_lossy(name);
    let known: Vec<&str> = specs.iter().map(|spec| spec.long).collect();
    let nearest = match ringfence_policy::suggest::nearest(&name, &known) {
        Some(nearest) => format!("; did you mean --{nearest}?"),
        None => "; see ringfence --help".to_owned(),
    };
    Err(Fault::usage(format!("unknown option --{name}{nearest}")))
}

fn take(
    parsed: &mut Parsed,
    spec: &Spec,
    shown: &str,
    value: Option<OsString>,
    arguments: &mut impl Iterator<Item = OsString>,
) -> Result<(), Fault> {
    let value = match (spec.value, value) {
        (None, None) => OsString::new(),
        (None, Some(_)) => return Err(Fault::usage(format!("{shown} takes no value"))),
        (Some(_), Some(value)) => value,
        (Some(_), None) if spec.value_optional => OsString::new(),
        (Some(name), None) => arguments
            .next()
            .ok_or_else(|| Fault::usage(format!("{shown} needs a value: {shown} {name}")))?,
    };
    if !spec.repeatable && spec.value.is_some() && parsed.has(spec.long) {
        return Err(Fault::usage(format!("--{} was given twice", spec.long)));
    }
    parsed.options.push((spec_name(spec), value));
    Ok(())
}

/// The table's own string, which outlives the borrow of the table.
fn spec_name(spec: &Spec) -> &'static str {
    spec.long
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Parsed, Fault> {
        parse(&POLICY, words.iter().map(OsString::from), true)
    }

    #[test]
    fn options_end_where_the_command_begins() {
        let parsed =
            parsed(&["-r/a", "-w", "/b", "--deny=/c", "ls", "-r", "--help"]).expect("valid");
        assert_eq!(parsed.rest, ["ls", "-r", "--help"]);
        let given: Vec<_> =
            parsed.options.iter().map(|(name, value)| (*name, value.to_str())).collect();
        assert_eq!(given, [("read", Some("/a")), ("write", Some("/b")), ("deny", Some("/c"))]);
    }

    #[test]
    fn an_unknown_option_names_the_nearest() {
        let fault = parsed(&["--alow-host", "x"]).expect_err("unknown");
        assert_eq!(fault.message, "unknown option --alow-host; did you mean --allow-host?");
    }

    #[test]
    fn a_value_may_follow_or_be_attached_and_must_be_there() {
        assert_eq!(parsed(&["-c", "a b"]).expect("valid").last("command"), Some(OsStr::new("a b")));
        assert_eq!(parsed(&["--overlay", "ls"]).expect("valid").rest, ["ls"]);
        assert!(parsed(&["--memory"]).is_err());
        assert!(parsed(&["--json=1"]).is_err());
        assert!(parsed(&["--memory", "1M", "--memory", "2M"]).is_err());
    }

    #[test]
    fn bytes_that_are_no_text_pass_through() {
        let odd = OsString::from_vec(b"/a\xff\nb".to_vec());
        let parsed = parse(&POLICY, ["-w".into(), odd.clone(), "ls".into()], true).expect("valid");
        assert_eq!(parsed.last("write"), Some(odd.as_os_str()));
    }
}
