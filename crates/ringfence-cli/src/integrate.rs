//! `ringfence integrate`: a program that starts in its sandbox whoever starts it.
//!
//! A script of the program's name in `~/.local/bin`, and copies of its desktop entries, those of
//! the session's start too, and of its services of the session bus, that call ringfence. What was
//! there before is kept beside the sessions, and `--remove` puts it back byte for byte. The list of what is touched is on disk before the first file is, so that an
//! integration that was interrupted can be removed as well.

mod kept;
mod program;

use self::kept::{forget, is_listed, keep, put, remove, taken};
use self::program::{MADE, Named, Place, runs};
use crate::desktop::{Action, Places, Sought, made, rewritten};
use crate::error::Fault;
use crate::generate::print;
use crate::help;
use crate::options::{Spec, flag, one, parse};
use crate::request::with_catalog;
use ringfence_policy::Key;
use ringfence_policy::profile::configured;
use ringfence_policy::shown;
use ringfence_sandbox::state;
use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

/// Options of `integrate`.
pub const INTEGRATE: [Spec; 5] = [
    one("program", "COMMAND", "The program or its path, where it is not called as the profile is"),
    flag("beside", None, "Leave the program as it is: a command and an entry of their own"),
    flag("autostart", None, "Start it with your session"),
    flag("remove", None, "Put back what was there before"),
    flag("help", Some('h'), "Print help"),
];

/// `ringfence integrate PROFILE [--program COMMAND] [--remove] [-- WORD...]`
///
/// # Errors
/// Bad input, an unknown profile or program, a file that cannot be written.
pub fn integrate(arguments: Vec<OsString>) -> Result<u8, Fault> {
    // Behind `--` are words that the program is always started with.
    let (before, words) = match arguments.iter().position(|word| word == "--") {
        Some(at) => (arguments[..at].to_vec(), &arguments[at + 1..]),
        None => (arguments.clone(), &[][..]),
    };
    let parsed = parse(&INTEGRATE, before, false)?;
    if let Some(done) = help::asked("integrate", &parsed) {
        return done;
    }
    let usage = || Fault::usage("name one profile: ringfence integrate PROFILE [--remove]");
    let [profile] = &parsed.rest[..] else { return Err(usage()) };
    // The name of a directory too, which `--remove` deletes.
    let is_name = |name: &&str| !name.contains('/') && !matches!(*name, "" | "." | "..");
    let profile = profile.to_str().filter(is_name).ok_or_else(usage)?;
    let home = ringfence_sys::identity::home().filter(|home| home.is_absolute());
    let home = home.ok_or_else(|| Fault::usage("there is no home directory; set HOME"))?;
    let folder = state::directory(&home).map_err(Fault::usage)?.join("integrations").join(profile);
    let said = match parsed.has("remove") {
        true => {
            let (said, stay) = remove(profile, &folder)?;
            if !stay.is_empty() {
                print(said.as_bytes())?;
                return Err(Fault::usage(stay.join("\n")));
            }
            said
        }
        false => {
            let found = with_catalog(|catalog| {
                let mut found = catalog.profile(profile).map_err(Fault::of)?;
                if let Some((base, _)) = configured(profile) {
                    found.configurations.clear();
                    let base = catalog.profile(base).map_err(Fault::of)?;
                    let programs = base.get(Key::Programs).cloned();
                    programs.into_iter().for_each(|names| found.set(Key::Programs, names));
                }
                Ok(found)
            })?;
            let named = found.list(Key::Programs).and_then(|list| list.first());
            let program = parsed.last("program").map(|name| name.to_string_lossy().into_owned());
            let program = program.or_else(|| named.map(ToString::to_string));
            let own = || configured(profile).map_or(profile, |(base, _)| base).to_owned();
            let program = Named::parse(&program.unwrap_or_else(own))?;
            let configurations = found.configurations.iter();
            let configurations = configurations.map(|(name, _)| name.to_string()).collect();
            let caveats = found.list(Key::Caveats).into_iter().flatten();
            let caveats: Vec<String> =
                caveats.map(|text| shown::message(text).into_owned()).collect();
            let wanted = Wanted {
                profile,
                words: words
                    .iter()
                    .map(|word| quoted(Path::new(word)))
                    .collect::<Result<_, _>>()?,
                program,
                configurations,
                beside: parsed.has("beside"),
                autostart: parsed.has("autostart"),
            };
            let mut said = add(&wanted, &home, &folder)?;
            for caveat in caveats {
                let _ = writeln!(said, "note: {caveat}");
            }
            said
        }
    };
    print(said.as_bytes())
}

/// What is to be integrated.
struct Wanted<'a> {
    profile: &'a str,
    program: Named,
    configurations: Vec<String>,
    /// What stands behind the program, before what it is called with.
    words: Vec<String>,
    /// The program itself stays as it is.
    beside: bool,
    /// It starts with the session.
    autostart: bool,
}

fn add(wanted: &Wanted<'_>, home: &Path, folder: &Path) -> Result<String, Fault> {
    let profile = wanted.profile;
    if is_listed(folder) {
        let why =
            format!("{profile} is integrated already; ringfence integrate {profile} --remove");
        return Err(Fault::usage(why));
    }
    forget(folder)?;
    let bin = home.join(".local/bin");
    let search = std::env::var_os("PATH").unwrap_or_default();
    // Beside the program everything has a name of its own.
    let mark = format!("ringfence-{}", profile.replace(':', "-"));
    let place = Place { bin: &bin, search: &search, beside: wanted.beside, mark: &mark };
    let real = place.real(&wanted.program)?;
    let program = &wanted.program.name;
    let found = real.clone();
    let sought = Sought { name: program, starts: &|word| place.starts(word, &found) };
    let (own, real) = (quoted(&std::env::current_exe().map_err(Fault::of)?)?, quoted(&real)?);
    let named = quoted(Path::new(profile))?;
    let real = std::iter::once(&real).chain(&wanted.words).map(String::as_str);
    let real = real.collect::<Vec<_>>().join(" ");
    let call = format!("{own} run -p {named} -- {real}");
    let actions = wanted.configurations.iter().map(|name| Action {
        name: format!("{program}: {name}"),
        call: format!("{own} run -p {profile}:{name} -- {real}"),
    });
    let actions: Vec<Action> = actions.collect();
    let command = if wanted.beside { &mark } else { program };
    let mut files =
        vec![(bin.join(command), format!("{MADE}{profile}\nexec {call} \"$@\"\n"), 0o755)];
    let places = Places::of(home, &|name| std::env::var_os(name));
    let beside = wanted.beside.then_some("ringfence");
    let named = |name: String| {
        if wanted.beside { format!("{mark}-{}", name.replace('/', "-")) } else { name }
    };
    for (name, text) in places.applications(&sought) {
        if let Some(text) = rewritten(&text, &sought, &call, &actions, beside) {
            files.push((places.applications.join(named(name)), text, 0o644));
        }
    }
    // What starts with the session anyway starts in its sandbox from now on.
    let mut starts = false;
    for (name, text) in places.autostarts(&sought).into_iter().filter(|_| !wanted.beside) {
        if let Some(text) = rewritten(&text, &sought, &call, &[], None) {
            files.push((places.autostart.join(name), text, 0o644));
            starts = true;
        }
    }
    // Whoever calls the program by its name on the bus has it started there.
    for (name, text) in places.services(&sought).into_iter().filter(|_| !wanted.beside) {
        if let Some(text) = rewritten(&text, &sought, &call, &[], None) {
            files.push((places.services.join(name), text, 0o644));
        }
    }
    if wanted.autostart && !starts {
        let path = places.autostart.join(format!("{mark}.desktop"));
        files.push((path, made(program, &call), 0o644));
    }
    let mut left = places.left(&sought);
    // What an earlier integration wrote calls us.
    let ours = call.split_once(" run ").map_or(call.as_str(), |(ours, _)| ours);
    left.retain(|(_, command)| !wanted.beside && !command.contains(ours));
    // Two names may become one beside the program.
    let mut known = HashSet::new();
    files.retain(|(path, ..)| known.insert(path.clone()));
    if let Some((path, other)) = taken(folder, &files) {
        let why = format!("{} is of the integration of {other} already", shown::path(&path));
        let ways = format!("ringfence integrate {other} --remove first, or take --beside");
        return Err(Fault::usage(format!("{why}; {ways}")));
    }
    let mut said = String::new();
    let failed = |path: &Path, error: io::Error| {
        let _ = fs::remove_dir_all(folder);
        Fault::usage(format!("cannot write {}: {error}", path.display()))
    };
    keep(folder, &files).map_err(|error| failed(folder, error))?;
    for (path, text, mode) in &files {
        if let Err(error) = put(path, text.as_bytes(), *mode) {
            // Back to what was there, as far as it was changed.
            let undone = remove(profile, folder).map(|(_, stay)| stay.join("\n"));
            let undone = undone.unwrap_or_else(|fault| fault.message);
            return Err(Fault::usage(format!("cannot write {}: {error} {undone}", path.display())));
        }
        let _ = writeln!(said, "{} starts {program} in its sandbox", shown::path(path));
    }
    for (path, command) in left {
        let (path, command) = (shown::path(&path), shown::line(&command));
        let _ = writeln!(said, "{path} stays as it is where it says Exec={command}");
    }
    let first = std::env::split_paths(&search).find(|path| runs(&path.join(command)));
    if !first.is_some_and(|first| place.is_bin(&first)) {
        let _ = writeln!(said, "put {} first in PATH for it to be found", bin.display());
    }
    if let Some((hidden, tree)) = crate::advice::ungranted(profile, &found) {
        let _ = writeln!(
            said,
            "note: it does not start so: {} is granted by no rule of {profile}; integrate a profile that extends it, with \
             [filesystem] read = [\"{}\"]",
            shown::path(&hidden),
            shown::path(&tree)
        );
    }
    Ok(said)
}

/// A path as scripts and desktop entries take it; names with their special characters are refused.
fn quoted(path: &Path) -> Result<String, Fault> {
    let text = path.to_str().filter(|text| !text.contains(['"', '\'', '`', '$', '\\', '%', '\n']));
    let refused = || Fault::usage(format!("{} cannot stand in a script", path.display()));
    let text = text.ok_or_else(refused)?;
    // Within double quotes nothing of what is left is special, neither to a shell nor in an entry's `Exec`.
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@+".contains(c);
    let bare = !text.is_empty() && text.chars().all(plain);
    Ok(if bare { text.to_owned() } else { format!("\"{text}\"") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_script_would_take_for_more_are_refused() {
        for name in ["/a/$(x)", "/a/b%f", "/a/`b`", "/a/b\nc", "/a/\"b", "/a/b\\c"] {
            assert!(quoted(Path::new(name)).is_err(), "{name:?}");
        }
        assert_eq!(quoted(Path::new("/usr/bin/a-b")).expect("plain"), "/usr/bin/a-b");
        for word in [
            "/a b/c",
            "--url=http://h/?a=1&b=2",
            "a|b",
            "--x=a;b",
            ">out",
            "#c",
            "~",
            "*",
            "(a)",
            "",
            "\u{e9}",
        ] {
            assert_eq!(quoted(Path::new(word)).expect("quoted"), format!("\"{word}\""));
        }
    }
}
