//! `ringfence profile`, `ringfence feature` and `ringfence trust`.

use crate::error::Fault;
use crate::generate::print;
use crate::options::{BARE, PLAIN, Parsed, parse};
use crate::request::{with_catalog, with_context};
use crate::{help, learnt_calls, profile_new, trust};
use ringfence_policy::catalog::{Catalog, Kind, Place};
use ringfence_policy::profile::configured;
use ringfence_policy::suggest::nearest;
use ringfence_policy::{Request, merge, resolve, shown};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `ringfence profile list|show|check|diff|edit|path`
///
/// # Errors
/// Bad input, an unknown or invalid profile.
pub fn profile(arguments: Vec<OsString>) -> Result<u8, Fault> {
    if arguments.first().is_some_and(|word| word == "new") {
        return profile_new::new(arguments.into_iter().skip(1).collect());
    }
    let parsed = parse(&PLAIN, arguments, false)?;
    if let Some(done) = help::asked("profile", &parsed) {
        return done;
    }
    let words = words(&parsed)?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if let Some(word) = words.first().filter(|word| **word != "list") {
        help::no_json(&format!("profile {word}"), &parsed)?;
    }
    match words[..] {
        ["list"] | [] => list(Kind::Profile, &parsed),
        ["show", name] => show(Kind::Profile, name),
        ["check", ref names @ ..] if !names.is_empty() => check(names),
        ["diff", one, other] => diff(one, other),
        ["syscalls", name] => syscalls(name, false),
        ["syscalls", name, "forget"] => syscalls(name, true),
        ["edit", name] => edit(name),
        ["path"] => print(format!("{}\n", user_directory().display()).as_bytes()),
        ["path", name] => path(name),
        _ => Err(bad_words("profile", words.first().copied())),
    }
}

/// `ringfence feature list|show`
///
/// # Errors
/// Bad input, an unknown feature.
pub fn feature(arguments: Vec<OsString>) -> Result<u8, Fault> {
    let parsed = parse(&PLAIN, arguments, false)?;
    if let Some(done) = help::asked("feature", &parsed) {
        return done;
    }
    let words = words(&parsed)?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if let Some(word) = words.first().filter(|word| **word != "list") {
        help::no_json(&format!("feature {word}"), &parsed)?;
    }
    match words[..] {
        ["list"] | [] => list(Kind::Feature, &parsed),
        ["show", name] => show(Kind::Feature, name),
        _ => Err(bad_words("feature", words.first().copied())),
    }
}

/// What was learnt about system calls under a profile, beside what it lists.
fn syscalls(name: &str, forget: bool) -> Result<u8, Fault> {
    let request = Request { profiles: vec![name.to_owned()], ..Request::default() };
    let policy = crate::request::policy(&request)?;
    let subject = learnt_calls::subject(&policy);
    learnt_calls::show(&subject, policy.calls.as_ref().map(|calls| &calls.allow), forget)
}

fn words(parsed: &Parsed) -> Result<Vec<String>, Fault> {
    let text = |word: &OsString| {
        let shown = || Fault::usage(format!("{} is no valid text", word.display()));
        word.to_str().map(ToOwned::to_owned).ok_or_else(shown)
    };
    parsed.rest.iter().map(text).collect()
}

fn bad_words(command: &'static str, word: Option<&str>) -> Fault {
    let (known, usage) =
        help::find(command).map_or((&[][..], ""), |found| (found.subcommands, found.usage));
    let word = word.unwrap_or_default();
    let near = nearest(word, known).filter(|near| *near != word);
    let near = near.map_or(String::new(), |near| format!("; did you mean {near}?"));
    Fault::usage(format!("ringfence {command} {word}: use {usage}{near}"))
}

fn list(kind: Kind, parsed: &Parsed) -> Result<u8, Fault> {
    let listed = with_catalog(|catalog| Ok(catalog.list(kind)))?;
    if parsed.has("json") {
        let rows: Vec<_> = listed
            .iter()
            .map(|row| {
                serde_json::json!({
                    "name": row.name, "description": row.description, "place": place(&row.place),
                })
            })
            .collect();
        let all = serde_json::json!({"schema": 1, "list": rows});
        return print(format!("{all:#}\n").as_bytes());
    }
    let mut text = String::new();
    for row in &listed {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{:<16} {}", shown::line(&row.name), shown::line(&row.description));
    }
    print(text.as_bytes())
}

fn place(place: &Place) -> String {
    match place {
        Place::File(path) => path.display().to_string(),
        Place::BuiltIn => "built in".to_owned(),
    }
}

fn show(kind: Kind, name: &str) -> Result<u8, Fault> {
    let (_, text) = with_catalog(|catalog| catalog.text(kind, name).map_err(Fault::of))?;
    match std::io::stdout().is_terminal() {
        true => print(shown::contents(text.as_bytes()).as_bytes()),
        false => print(text.as_bytes()),
    }
}

/// Parses and resolves each profile as a run here would.
fn check(names: &[&str]) -> Result<u8, Fault> {
    for name in names {
        let request = Request { profiles: vec![(*name).to_owned()], ..Request::default() };
        with_context(|context| resolve(&request, context).map_err(Fault::of))?;
        crate::generate::line(format_args!("{name}: valid"))?;
    }
    Ok(0)
}

/// What a profile comes to with all that it builds on, one line for each setting.
fn settings(name: &str) -> Result<BTreeSet<String>, Fault> {
    let chain = |catalog: &Catalog<'_>| catalog.chain(&[name.to_owned()], &[], &[]);
    let profiles = with_catalog(|catalog| chain(catalog).map_err(Fault::of))?;
    Ok(merge::lines(profiles))
}

/// Where the user's own profiles stand.
pub fn user_directory() -> PathBuf {
    let xdg = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    let config = xdg.filter(|path| path.is_absolute());
    let config = config.or_else(|| Some(ringfence_sys::identity::home()?.join(".config")));
    config.unwrap_or_default().join("ringfence/profiles")
}

fn diff(one: &str, other: &str) -> Result<u8, Fault> {
    let (before, after) = (settings(one)?, settings(other)?);
    let mut text = String::new();
    for line in before.union(&after) {
        let sign = match (before.contains(line), after.contains(line)) {
            (true, false) => '-',
            (false, true) => '+',
            _ => continue,
        };
        let _ = writeln!(text, "{sign} {}", shown::line(line));
    }
    print(text.as_bytes())?;
    Ok(u8::from(!text.is_empty()))
}

fn path(name: &str) -> Result<u8, Fault> {
    let (found, _) = with_catalog(|catalog| catalog.text(Kind::Profile, name).map_err(Fault::of))?;
    print(format!("{}\n", place(&found)).as_bytes())
}

/// Opens the user's profile in the editor; a built-in one is copied first.
fn edit(name: &str) -> Result<u8, Fault> {
    // A configuration stands in the file of its profile.
    let name = configured(name).map_or(name, |(profile, _)| profile);
    let (found, text) =
        with_catalog(|catalog| catalog.text(Kind::Profile, name).map_err(Fault::of))?;
    let (file, copied) = match found {
        Place::File(path) => (path, false),
        Place::BuiltIn => {
            let directory = user_directory();
            let file = directory.join(format!("{name}.toml"));
            std::fs::create_dir_all(&directory)
                .and_then(|()| std::fs::write(&file, &text))
                .map_err(|error| {
                    Fault::usage(format!("cannot write {}: {error}", file.display()))
                })?;
            (file, true)
        }
    };
    let ended = edited(&file);
    // As it is, it would hold what is built in now, whatever a later ringfence has.
    if copied && std::fs::read(&file).is_ok_and(|now| now == text.as_bytes()) {
        if ended.is_err() {
            let _ = std::fs::remove_file(&file);
        } else {
            ringfence_sys::say!(
                "ringfence: {0} is the built-in {name} as it is now, and is used in its place: remove {0} to go on \
                 with the built-in one",
                file.display()
            );
        }
    }
    ended?;
    check(&[file.to_string_lossy().as_ref()])
}

/// Has the user's editor open a file. Its variable is a command, with options and quotes where there are some: a shell
/// reads it, as for git.
fn edited(file: &Path) -> Result<(), Fault> {
    let editor = ["VISUAL", "EDITOR"].into_iter().find_map(std::env::var_os);
    let editor = editor.filter(|editor| !editor.is_empty()).unwrap_or_else(|| "vi".into());
    let shown = editor.display().to_string();
    let mut line = editor.clone();
    line.push(" \"$@\"");
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(line).arg(editor).arg(file);
    let status = command
        .status()
        .map_err(|error| Fault::usage(format!("cannot start /bin/sh for {shown}: {error}")))?;
    match status.code() {
        Some(0) => Ok(()),
        Some(126 | 127) => {
            Err(Fault::usage(format!("cannot start the editor {shown}; set EDITOR")))
        }
        _ => Err(Fault::usage(format!("the editor {shown} failed"))),
    }
}

/// `ringfence trust FILE`
///
/// One that is gone is forgotten.
///
/// # Errors
/// The file cannot be read or is no valid profile.
pub fn trust(arguments: Vec<OsString>) -> Result<u8, Fault> {
    let parsed = parse(&BARE, arguments, false)?;
    if let Some(done) = help::asked("trust", &parsed) {
        return done;
    }
    let [file] = &parsed.rest[..] else {
        return Err(Fault::usage("name one file: ringfence trust FILE"));
    };
    if trust::forget(Path::new(file))? {
        return crate::generate::line(format_args!(
            "forgotten: {}, which you trusted, and which is gone",
            file.display()
        ));
    }
    trust::accept(Path::new(file))?;
    crate::generate::line(format_args!("trusted as it is now: {}", file.display()))
}
