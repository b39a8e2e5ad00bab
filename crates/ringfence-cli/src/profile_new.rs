//! `ringfence profile new`: a profile for a program, drafted from its files, completed by a run
//! that is watched, shown, and written only when the user says so.

use crate::consent::{Answered, Terminal};
use crate::error::Fault;
use crate::generate::print;
use crate::learnt_calls::About;
use crate::lesson::{self, Lesson};
use crate::options::{POLICY, Parsed, Spec, flag, one, parse};
use crate::profiles::user_directory;
use crate::request::with_catalog;
use crate::{help, libraries, request};
use ringfence_learn::draft::{self, Draft};
use ringfence_learn::propose::Proposal;
use ringfence_learn::text;
use ringfence_policy::catalog::Kind;
use ringfence_policy::{Policy, Profile, shown};
use ringfence_sandbox::{launch, state};
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Its options: those of `run` hold for the run that is watched.
pub const NEW: [Spec; POLICY.len() + 3] = {
    let output =
        Spec { short: Some('o'), ..one("output", "FILE", "Write the profile to FILE, unasked") };
    let mut all = [output; POLICY.len() + 3];
    let mut at = 0;
    while at < POLICY.len() {
        all[at] = POLICY[at];
        at += 1;
    }
    all[at + 1] = flag("save", None, "Write it to your profiles, unasked");
    all[at + 2] = flag("no-run", None, "Do not run the program: what its files say is all");
    all
};

/// `ringfence profile new [OPTIONS] PROGRAM [ARG...]`: exit code 0, whatever the program's is.
///
/// # Errors
/// No such program; a profile of the name that is there already; a run that cannot be watched.
pub fn new(arguments: Vec<OsString>) -> Result<u8, Fault> {
    let parsed = parse(&NEW, arguments, true)?;
    if let Some(done) = help::asked("profile", &parsed) {
        return done;
    }
    help::no_json("profile new", &parsed)?;
    let Some(program) = parsed.rest.first() else {
        return Err(Fault::usage(
            "name a program: ringfence profile new [OPTIONS] PROGRAM [ARG...]",
        ));
    };
    let name = name(&parsed, program)?;
    let file = match parsed.last("output") {
        Some(output) => PathBuf::from(output),
        None => user_directory().join(format!("{name}.toml")),
    };
    if file.symlink_metadata().is_ok() {
        let (word, name) = (shown::path_word(&file), shown::word(&name));
        return Err(Fault::usage(format!(
            "{} exists and is not overwritten: ringfence learn -p {name} --merge {word} -- CMD \
             shows what it lacks, --name NAME makes another one",
            file.display()
        )));
    }
    let argv = parsed.rest.clone();
    let base = policy(&parsed, program, None)?;
    let answer = libraries::answer(&base, &argv);
    if let Some((missing, _)) =
        answer.missing.iter().find(|(missing, _)| program == OsStr::new(missing))
    {
        return Err(Fault { message: format!("{missing}: not found in PATH"), code: 127 });
    }
    let draft = draft::draft(&answer);
    let shipped = with_catalog(|catalog| Ok(catalog.has(Kind::Profile, &name)))?;
    let above = if parsed.has("profile") {
        None
    } else if shipped {
        // A file of its name hides it: it builds on it.
        Some(name.clone())
    } else {
        Some(if draft.window { "program" } else { "default" }.to_owned())
    };
    let made = Made { name: &name, program, above, draft, named: named(&parsed) };
    let drafted = made.text(&Proposal::default(), &[]);
    let terminal = Terminal::now();
    let lesson = match parsed.has("no-run") {
        true => Lesson::default(),
        false => {
            let about = match parsed.has("output") {
                true => About::of(None, Some(&file)),
                false => About { known: None, made: Some(format!("profile {name}")) },
            };
            watched(&parsed, &argv, &drafted, &about)?
        }
    };
    let proposal = lesson.proposal.unwrap_or_default();
    let text = made.text(&proposal, &lesson.head);
    Profile::from_toml(&text, "the proposal").map_err(Fault::of)?;
    print(text.as_bytes())?;
    crate::learn::tell_withheld(&proposal);
    review(&parsed, &file, &name, &text, terminal)
}

/// What the new profile is made of.
struct Made<'a> {
    name: &'a str,
    program: &'a OsStr,
    /// What it builds on where the user named nothing.
    above: Option<String>,
    draft: Draft,
    named: Vec<String>,
}

impl Made<'_> {
    fn text(&self, proposal: &Proposal, learnt: &[String]) -> String {
        let mut head = vec![format!("Made by: ringfence profile new {}", self.program.display())];
        head.extend(learnt.iter().cloned());
        head.push(format!(
            "To have it used without -p {}, add: programs = [\"COMMAND\"]",
            self.name
        ));
        let above: Vec<String> = self.above.iter().cloned().chain(self.named.clone()).collect();
        text::drafted(proposal, &head, &above, &self.draft)
    }
}

/// The profiles that the user named to build on.
fn named(parsed: &Parsed) -> Vec<String> {
    let profiles = parsed.options.iter().filter(|(name, _)| *name == "profile");
    profiles.map(|(_, value)| value.to_string_lossy().into_owned()).collect()
}

/// The name of the profile: the program's own, without a directory.
fn name(parsed: &Parsed, program: &OsStr) -> Result<String, Fault> {
    let own = || Path::new(program).file_name().and_then(OsStr::to_str).map(str::to_owned);
    let name = parsed.last("name").map_or_else(own, |name| name.to_str().map(str::to_owned));
    let plain = |name: &String| {
        let known =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'+' | b'.');
        !name.is_empty()
            && !name.starts_with(['.', '-'])
            && !name.ends_with(".toml")
            && name.bytes().all(known)
    };
    name.filter(plain).ok_or_else(|| {
        Fault::usage("the program's name is no name of a profile; say --name NAME (letters, digits, `-`, `_`, `+`, `.`)")
    })
}

/// The policy of the program: as the user's options have it, on top of a draft if there is one.
fn policy(parsed: &Parsed, program: &OsStr, draft: Option<&str>) -> Result<Policy, Fault> {
    let mut request = request::request(parsed, Some(program));
    match draft {
        // The draft names them.
        Some(draft) => {
            request.profiles.clear();
            request.inline.push(("the draft".to_owned(), draft.to_owned()));
        }
        None if request.profiles.is_empty() => request.profiles.push("program".to_owned()),
        None => {}
    }
    request.profiles.dedup();
    request::policy(&request)
}

/// Watches a run under the draft.
fn watched(
    parsed: &Parsed,
    argv: &[OsString],
    draft: &str,
    about: &About,
) -> Result<Lesson, Fault> {
    let scratch = lesson::Scratch::make()?;
    let file = scratch.file("draft.toml", draft)?;
    let mut own = parsed.clone();
    own.options.retain(|(name, _)| !matches!(*name, "profile" | "save" | "no-run"));
    own.options.insert(0, ("profile", file.into_os_string()));
    let policy = policy(&own, &argv[0], Some(draft))?;
    ringfence_sys::say!(
        "ringfence: {} runs where it changes nothing, and is watched: use it, then end it",
        argv[0].display()
    );
    lesson::watch(&own, argv, &policy, about)
}

/// Writes what the user has seen, if the user says so.
fn review(
    parsed: &Parsed,
    file: &Path,
    name: &str,
    text: &str,
    terminal: Option<Terminal>,
) -> Result<u8, Fault> {
    let unasked = parsed.has("output") || parsed.has("save");
    if !unasked {
        let Some(terminal) = terminal else {
            ringfence_sys::say!(
                "ringfence: not written: nobody can be asked; --save or -o FILE writes it"
            );
            return Ok(0);
        };
        let answer = terminal.agrees(&format!("ringfence: write this to {}?", file.display()));
        if answer != Answered::Yes {
            ringfence_sys::say!("ringfence: not written");
            if answer == Answered::Interrupted {
                launch::die_of_interrupt();
            }
            return Ok(0);
        }
    }
    let written = || {
        if let Some(parent) = file.parent().filter(|_| !parsed.has("output")) {
            state::make_directory(parent)?;
        }
        let mut new = std::fs::File::options().write(true).create_new(true).open(file)?;
        new.write_all(text.as_bytes())
    };
    written().map_err(|error| Fault::of(format!("cannot write {}: {error}", file.display())))?;
    let shown = match parsed.has("output") {
        true => shown::path_word(file),
        false => shown::word(name),
    };
    ringfence_sys::say!(
        "ringfence: written to {}; ringfence run -p {shown} -- CMD",
        file.display()
    );
    Ok(0)
}
