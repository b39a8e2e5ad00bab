//! `ringfence learn`: runs a command where it changes nothing, watches it, proposes a profile.

use crate::error::Fault;
use crate::generate::print;
use crate::learnt_calls::About;
use crate::lesson::{self, connection, program, shown};
use crate::options::{POLICY, Parsed, Spec, parse};
use crate::proposed::{self, Told};
use crate::{help, request};
use ringfence_learn::propose::{Asked, Proposal, propose};
use ringfence_learn::text;
use ringfence_learn::watch::{self, Observed, Use};
use ringfence_policy::address::is_public;
use ringfence_policy::{FileView, Host, HostFiles, Policy, Profile, shown};
use ringfence_session::ledger::Reader;
use ringfence_session::outside;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// No profile that is added to is longer.
const MOST: u64 = 1 << 20;

/// The options: those of `run`, and what is done with the result.
pub const LEARN: [Spec; POLICY.len() + 3] = {
    const fn value(
        long: &'static str,
        short: Option<char>,
        value: &'static str,
        help: &'static str,
    ) -> Spec {
        Spec { long, short, value: Some(value), value_optional: false, repeatable: false, help }
    }
    let output = value("output", Some('o'), "FILE", "Write the proposed profile to FILE");
    let merge = value("merge", None, "FILE", "Show what the proposal adds to the profile in FILE");
    let from = value("from", None, "SESSION", "Learn from what a recorded session was refused");
    let mut all = [output; POLICY.len() + 3];
    let mut at = 0;
    while at < POLICY.len() {
        all[at] = POLICY[at];
        at += 1;
    }
    all[at] = output;
    all[at + 1] = merge;
    all[at + 2] = from;
    all
};

/// `ringfence learn [OPTIONS] [-o FILE] [--merge FILE] -- CMD`
///
/// # Errors
/// Bad input; a host without overlays or notification; a file that cannot be written.
pub fn learn(arguments: Vec<OsString>) -> Result<u8, Fault> {
    let parsed = parse(&LEARN, arguments, true)?;
    if let Some(done) = help::asked("learn", &parsed) {
        return done;
    }
    let output = parsed.last("output").map(PathBuf::from);
    let merge = parsed.last("merge").map(PathBuf::from);
    if parsed.has("json") && output.is_some() {
        return Err(Fault::usage(
            "--json prints the proposal and writes nothing: leave it out, or -o (\"profile\" is what -o would write)",
        ));
    }
    let base = Base::of(merge, output.as_deref(), &parsed)?;
    if let Some(session) = parsed.last("from") {
        if !parsed.rest.is_empty() || parsed.has("command") {
            return Err(Fault::usage(
                "--from learns from what is on record and runs nothing: leave the command out, or --from",
            ));
        }
        return from_session(&parsed, session, &base, output.as_deref());
    }
    let argv = crate::run::command("learn", &parsed)?;
    ringfence_sandbox::launch::enough_descriptors().map_err(Fault::of)?;
    let policy = policy(&parsed, argv.first().map(OsString::as_os_str), &base)?;
    let known = parsed.has("profile") || base.file.is_some();
    let about = About::of(known.then_some(&policy), output.as_deref());
    let lesson = lesson::watch(&parsed, &argv, &policy, &about)?;
    // Where nothing ran, the sandbox said why.
    if let Some(proposal) = &lesson.proposal {
        let nothing = proposal.nothing(lesson.told.lost);
        let told = parsed.has("json").then_some(&lesson.told);
        finish(proposal, &lesson.head, nothing, &policy, &base, output.as_deref(), told)?;
    }
    Ok(lesson.code)
}

/// What the proposal is added to: a profile, and the options that were given.
struct Base {
    file: Option<PathBuf>,
    /// The options of the policy, each with a blank behind it. Profiles are not among them: they are told by themselves.
    given: String,
}

impl Base {
    fn of(merge: Option<PathBuf>, output: Option<&Path>, parsed: &Parsed) -> Result<Base, Fault> {
        let given = given(parsed);
        let there = |output: &&Path| output.symlink_metadata().is_ok();
        if let Some(output) =
            output.filter(there).filter(|output| Some(*output) != merge.as_deref())
        {
            return Err(is_there(output));
        }
        let Some(file) = merge else { return Ok(Base { file: None, given }) };
        if let Some(target) = output.and_then(|output| output.read_link().ok()) {
            let (file, target) = (file.display(), target.display());
            return Err(Fault::usage(format!(
                "{file} is a link, which would be replaced and not followed: name what it leads to ({target})"
            )));
        }
        let base = Base { file: Some(file), given };
        base.now()?;
        Ok(base)
    }

    /// What is in the file: it may be edited while the command runs.
    fn now(&self) -> Result<Option<String>, Fault> {
        let Some(file) = &self.file else { return Ok(None) };
        let text = HostFiles.text(file, MOST);
        let read = text.map_err(|error| format!("cannot read {}: {error}", file.display()));
        read.map(Some).map_err(Fault::usage)
    }
}

fn is_there(output: &Path) -> Fault {
    let word = shown::word(&output.to_string_lossy());
    Fault::usage(format!(
        "{} exists and is not overwritten: --merge {word} shows what would be added to it, and with -o {word} as well adds it",
        output.display()
    ))
}

/// Writes the result where the user said: in place of the profile that it was added to, or to a file that is not there yet.
fn write(output: &Path, result: &str, base: &Base) -> Result<(), Fault> {
    let failed = |error: &dyn std::fmt::Display| {
        Fault::of(format!("cannot write {}: {error}", output.display()))
    };
    if base.file.as_deref() == Some(output) {
        return outside::write(None, output, result.as_bytes()).map_err(|error| failed(&error));
    }
    // Another one may have made it while the command ran.
    outside::write_new(output, result.as_bytes()).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => is_there(output),
        _ => failed(&error),
    })
}

/// Options of one run, which say nothing of what it may do; and profiles, which are named by themselves.
const NO_POLICY: [&str; 10] = [
    "profile",
    "name",
    "no-record",
    "record-programs",
    "json",
    "status-fd",
    "dry-run",
    "monitor",
    "trace-missing",
    "command",
];

/// What was said of the policy beside profiles, as words for a command line.
fn given(parsed: &Parsed) -> String {
    let of_policy =
        |name: &str| !NO_POLICY.contains(&name) && POLICY.iter().any(|spec| spec.long == name);
    // A profile that lists calls says itself that it does.
    let listed = |name: &str, value: &OsString| name == "syscalls" && value == "learned";
    let options = parsed.options.iter();
    let options = options.filter(|(name, value)| of_policy(name) && !listed(name, value));
    options
        .map(|(name, value)| match value.is_empty() {
            true => format!("--{name} "),
            false => format!("--{name}={} ", shown::word(&value.to_string_lossy())),
        })
        .collect()
}

/// The policy that the proposal is about: the profile that is added to is part of it.
fn policy(parsed: &Parsed, command: Option<&OsStr>, base: &Base) -> Result<Policy, Fault> {
    let mut request = request::request(parsed, command);
    if let Some(file) = &base.file {
        let file = std::path::absolute(file).map_err(Fault::of)?;
        request.profiles.push(file.display().to_string());
    }
    request::policy(&request)
}

/// What a recorded session was refused, as rules.
fn from_session(
    parsed: &Parsed,
    session: &OsStr,
    base: &Base,
    output: Option<&Path>,
) -> Result<u8, Fault> {
    let word = session.to_string_lossy();
    let directory =
        ringfence_session::cli::find(&word).map_err(|error| Fault::usage(error.to_string()))?;
    let reader = Reader::open(&directory).map_err(Fault::of)?;
    let argv = reader.session().map_err(Fault::of)?.argv;
    let told = Told { command: argv.clone(), session: Some(word.to_string()), ..Told::default() };
    let argv: Vec<OsString> = argv.into_iter().map(OsString::from).collect();
    let policy = policy(parsed, argv.first().map(OsString::as_os_str), base)?;
    let mut observed = Observed::default();
    let mut refused = BTreeMap::new();
    for row in reader.events(0, &["network", "dns", "decision"], true).map_err(Fault::of)? {
        match row.kind {
            "network" => {
                let mut one = BTreeMap::new();
                connection(&row, &mut one);
                // It was the policy that refused: to allow it is what is asked here. Addresses of
                // the host's own networks, and its loopback by whatever name, are for the user to allow, as ever.
                let public = |asked: &Asked| match asked.host.parse() {
                    Ok(Host::Address(address)) => is_public(address),
                    Ok(host) => !host.is_loopback(),
                    Err(_) => true,
                };
                refused.extend(one.into_iter().map(|(asked, uses)| {
                    let allowed = public(&asked);
                    (Asked { allowed, ..asked }, uses)
                }));
            }
            "dns" => {
                // A name that is refused is never connected to: on which port is not known.
                let host = row.text("name").trim_end_matches('.').to_owned();
                // One that reads as an address is no name that anybody has; as a rule it would be one about that address.
                if !matches!(host.parse(), Ok(Host::Name(_))) {
                    continue;
                }
                let asked = Asked { host, port: 0, allowed: true };
                refused.entry(asked).or_insert_with(Use::default).add(program(&row));
            }
            _ => {
                let act = match row.text("act") {
                    "read" => watch::Act::Read,
                    "exec" => watch::Act::Execute,
                    _ => watch::Act::Write,
                };
                let path = Path::new(row.text("object"));
                if path.is_absolute() {
                    observed.path(
                        act,
                        path,
                        row.text("exe").rsplit('/').next().unwrap_or_default(),
                    );
                }
            }
        }
    }
    let proposal = propose(&policy, &observed, &refused);
    let head = [
        format!("Learnt by ringfence from what session {word} was refused: {}", shown(&argv)),
        "What a private view does not show is not refused, and not recorded: ringfence learn -- CMD sees it.".to_owned(),
        "Which rule refused is not on record: what that run's own --deny-host refused is told apart only if learn has it too.".to_owned(),
    ];
    let nothing = match refused.is_empty() && observed.paths.is_empty() {
        true => "nothing that was refused is on record",
        false => "the policy allows what was refused, or it is left to you",
    };
    let told = parsed.has("json").then_some(&told);
    finish(&proposal, &head, nothing, &policy, base, output, told)?;
    Ok(0)
}

/// The profiles of a policy that have names, or those that are files of the user's: no profile elsewhere may name
/// one of these, which could change unnoticed.
fn profiles<'p>(policy: &'p Policy, kind: &str) -> Vec<&'p str> {
    policy.profiles.iter().filter_map(|profile| profile.strip_prefix(kind)).collect()
}

/// Shows the result, or writes it where the user said; as data, where `json` is set.
fn finish(
    proposal: &Proposal,
    head: &[String],
    nothing: &str,
    policy: &Policy,
    base: &Base,
    output: Option<&Path>,
    json: Option<&Told>,
) -> Result<(), Fault> {
    let merged = base.file.as_ref().and_then(|file| std::path::absolute(file).ok());
    let mut files = profiles(policy, "file ");
    files.retain(|file| merged.as_deref() != Some(Path::new(file)));
    let with: String = files.iter().map(|file| format!("-p {} ", shown::word(file))).collect();
    let with = shown::line(&format!("{}{with}", base.given)).to_string();
    let old = match base.now() {
        Ok(old) => old,
        Err(fault) => return Err(kept(proposal, head, json, fault)),
    };
    let result = match &old {
        Some(old) => match text::merged(old, proposal) {
            Some(merged) => merged,
            None => return Err(kept(proposal, head, json, Fault::of(UNFIT))),
        },
        None => {
            let mut head = head.to_vec();
            if !with.is_empty() {
                head.push(format!("It goes with {with}which it does not name: give both."));
            }
            let mut names: Vec<String> =
                profiles(policy, "profile ").into_iter().map(str::to_owned).collect();
            // A user's own `default` extends the one that ships.
            names.dedup();
            text::profile(proposal, &head, &names)
        }
    };
    let origin =
        output.map_or_else(|| "the proposal".to_owned(), |path| path.display().to_string());
    if let Err(error) = Profile::from_toml(&result, &origin) {
        return Err(kept(proposal, head, json, Fault::of(format!("{UNFIT}: {error}"))));
    }
    if let Some(told) = json {
        return proposed::json(proposal, told, &result);
    }
    match (&old, output) {
        (Some(old), _) => _ = print(text::difference(old, &result).as_bytes())?,
        (None, None) => _ = print(result.as_bytes())?,
        (None, Some(_)) => {}
    }
    if let Some(output) = output
        && let Err(fault) = write(output, &result, base)
    {
        // What would have been added is printed already.
        if old.is_none() {
            print(result.as_bytes())?;
        }
        return Err(fault);
    }
    tell_withheld(proposal);
    let count = proposal.rules.len();
    let what = match count {
        0 => format!("nothing to propose: {nothing}"),
        1 => "1 rule proposed".to_owned(),
        _ => format!("{count} rules proposed"),
    };
    match output {
        Some(output) => ringfence_sys::say!(
            "ringfence: {what}; look at {}, then: ringfence run {with}-p {} -- CMD",
            output.display(),
            shown::word(&output.to_string_lossy())
        ),
        None => ringfence_sys::say!("ringfence: {what}"),
    }
    Ok(())
}

const UNFIT: &str =
    "the additions do not fit into this profile; they are printed, add them by hand";

/// A fault at the end: what was learnt is not lost for that, but printed.
fn kept(proposal: &Proposal, head: &[String], json: Option<&Told>, fault: Fault) -> Fault {
    let text = text::profile(proposal, head, &[]);
    let printed = match json {
        Some(told) => proposed::json(proposal, told, &text),
        None => print(text.as_bytes()).map(|_| ()),
    };
    printed.err().unwrap_or(fault)
}

/// Says what is left to the user. Names in it are a program's choice.
pub(crate) fn tell_withheld(proposal: &Proposal) {
    for rule in &proposal.withheld {
        let (table, key) = rule.key;
        let line = format!("not proposed: {table}.{key} {}: {}", rule.text, rule.reason);
        ringfence_sys::say!("ringfence: {}", shown::line(&line));
    }
    if let Some(told) = proposal.told() {
        ringfence_sys::say!("ringfence: not proposed: {told}");
    }
    for told in [proposal.stays(), proposal.parted(), proposal.lost()].into_iter().flatten() {
        ringfence_sys::say!("ringfence: {}", shown::line(&told));
    }
}
