//! `ringfence integrate`: whoever starts the program starts it in its sandbox; `--remove` puts
//! everything back byte for byte.

use ringfence_tests::{Finished, Person, Place, Tier, left_out};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// All files below a directory, with their bytes, modes and links.
pub fn all(home: &Path) -> BTreeMap<PathBuf, (u32, String)> {
    use std::os::unix::fs::PermissionsExt;
    let mut found = BTreeMap::new();
    let mut waiting = vec![home.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in directory.read_dir().into_iter().flatten().flatten() {
            let path = entry.path();
            let data = path.symlink_metadata().unwrap();
            let bytes = if data.is_dir() {
                waiting.push(path.clone());
                Vec::new()
            } else if data.is_symlink() {
                path.read_link().unwrap().into_os_string().into_encoded_bytes()
            } else {
                std::fs::read(&path).unwrap()
            };
            let text = String::from_utf8_lossy(&bytes).into_owned();
            found.insert(path, (data.permissions().mode(), text));
        }
    }
    // Ringfence's own: what was there before is kept in it, and plans of what was run.
    let own = [".local/state", ".cache"].map(|name| home.join(name));
    found.retain(|path, _| !own.iter().any(|own| path.starts_with(own)));
    found
}

pub fn integrate(place: &Place, words: &[&str]) -> Finished {
    let mut command = place.command(ringfence_tests::binary());
    command.arg("integrate").args(words);
    command.env("XDG_DATA_DIRS", place.at("system")).env("XDG_CONFIG_DIRS", place.at("etc"));
    ringfence_tests::Running::start(command).finish()
}

pub fn read(place: &Place, name: &str) -> String {
    std::fs::read_to_string(place.at(name)).unwrap_or_default()
}

const ENTRY: &str = "[Desktop Entry]\nType=Application\nName=Cat\nName[de]=Katze\nExec=env A=b cat %U\nTryExec=cat\n\
DBusActivatable=true\n";

pub fn place_with_entries() -> Place {
    let place = Place::new(Person::Ordinary, Tier::Namespace);
    place.file("system/applications/cat.desktop", ENTRY);
    place.file("system/applications/other.desktop", "[Desktop Entry]\nExec=other\n");
    place.file("etc/autostart/watch.desktop", "[Desktop Entry]\nExec=/bin/cat --watch\n");
    // The user's own, which hides the system's.
    place.file("home/.local/share/applications/mine.desktop", "[Desktop Entry]\nExec=cat mine\n");
    place.file("home/.local/bin/cat", "#!/bin/sh\n# mine\n");
    let service = |name: &str, exec: &str| format!("[D-BUS Service]\nName={name}\nExec={exec}\n");
    let services = "system/dbus-1/services";
    let text = service("org.example.Cat", "/bin/cat --bus") + "SystemdService=cat.service\n";
    place.file(format!("{services}/org.example.Cat.service"), &text);
    place.file(format!("{services}/other.service"), service("org.example.Other", "other"));
    // The user's own.
    let own = "home/.local/share/dbus-1/services/mine.service";
    place.file(own, service("org.example.Mine", "cat mine"));
    place
}

#[test]
fn entries_and_what_starts_with_the_session_call_ringfence() {
    let place = &place_with_entries();
    let home = place.at("home");
    let before = all(&home);
    integrate(place, &["program", "--program", "cat", "--autostart"]).ends(0);
    let entry = read(place, "home/.local/share/applications/cat.desktop");
    assert!(entry.contains(" run -p program -- ") && entry.contains("Exec=env A=b /"), "{entry}");
    assert!(entry.contains("DBusActivatable=false") && !entry.contains("TryExec"), "{entry}");
    let mine = read(place, "home/.local/share/applications/mine.desktop");
    assert!(mine.contains(" run -p program -- ") && mine.ends_with("cat mine\n"), "{mine}");
    let started = read(place, "home/.config/autostart/watch.desktop");
    assert!(
        started.contains(" run -p program -- ") && started.ends_with(" --watch\n"),
        "{started}"
    );
    assert!(!place.at("home/.config/autostart/ringfence-program.desktop").exists());
    assert!(!place.at("home/.local/share/applications/other.desktop").exists());
    let services = "home/.local/share/dbus-1/services";
    let service = read(place, &format!("{services}/org.example.Cat.service"));
    assert!(service.contains(" run -p program -- ") && service.ends_with(" --bus\n"), "{service}");
    let mine = read(place, &format!("{services}/mine.service"));
    assert!(mine.contains(" run -p program -- ") && mine.ends_with("cat mine\n"), "{mine}");
    assert!(!place.at(format!("{services}/other.service")).exists());
    integrate(place, &["program", "--remove"]).ends(0);
    assert_eq!(all(&home), before, "the directories that were made are gone too");
}

#[test]
fn words_that_the_program_needs_inside_are_put_behind_it_and_caveats_are_said() {
    let place = &place_with_entries();
    let home = place.at("home");
    let before = all(&home);
    let profile = "extends = [\"program\"]\ncaveats = [\"It needs --flag inside.\"]\n";
    place.file("home/.config/ringfence/profiles/cat.toml", profile);
    let done = integrate(place, &["cat", "--", "--flag", "two words"]);
    done.ends(0).prints("note: It needs --flag inside.");
    let script = read(place, "home/.local/bin/cat");
    assert!(script.ends_with("/cat --flag \"two words\" \"$@\"\n"), "{script}");
    let entry = read(place, "home/.local/share/applications/cat.desktop");
    assert!(entry.contains("/cat --flag \"two words\" %U\n"), "{entry}");
    integrate(place, &["cat", "--remove"]).ends(0);
    // Words of a script are no words for a program; without `--` it is one profile too many.
    integrate(place, &["cat", "--", "$(id)"]).ends(125).says("$(id) cannot stand in a script");
    integrate(place, &["cat", "flag"]).ends(125);
    std::fs::remove_dir_all(place.at("home/.config")).unwrap();
    assert_eq!(all(&home), before);
}

#[test]
fn what_starts_the_program_in_another_way_is_named() {
    let place = &place_with_entries();
    let odd = "[Desktop Entry]\nExec=env -u X /bin/cat one\nExec=sh -c \"/bin/cat two\"\n";
    place.file("system/applications/odd\u{1b}[31m.desktop", odd);
    let told = integrate(place, &["program", "--program", "cat"]);
    told.ends(0)
        .prints("odd\\u{1b}[31m.desktop stays as it is where it says Exec=sh -c \"/bin/cat two\"");
    assert!(!told.text().contains('\u{1b}'), "{}", told.text());
    assert_eq!(told.text().matches("stays as it is").count(), 1, "the control: {}", told.text());
    let odd = read(place, "home/.local/share/applications/odd\u{1b}[31m.desktop");
    assert!(odd.contains("Exec=env -u X /") && odd.contains(" run -p program -- "), "{odd}");
}

/// Calls a service of the session bus by its name, which has the bus start it; what the program
/// said of itself. A program that fails before it takes a name ends the call with an error.
fn called(place: &Place) -> String {
    let said = place.project("said");
    let _ = std::fs::remove_file(&said);
    let call = "dbus-send --session --print-reply --dest=org.freedesktop.DBus / \
                org.freedesktop.DBus.StartServiceByName string:org.example.Told uint32:0";
    let mut command = place.command("dbus-run-session");
    command.env("XDG_DATA_DIRS", place.at("system")).env("XDG_RUNTIME_DIR", place.at("home"));
    // Its own idea of a home is the one in the list of users.
    command.env("XDG_DATA_HOME", place.at("home/.local/share"));
    command.args(["--", "sh", "-c", call]);
    ringfence_tests::Running::start(command).finish().ends(1).says("org.example.Told");
    std::fs::read_to_string(&said).unwrap_or_default().trim_end().to_owned()
}

#[test]
fn a_service_that_the_bus_starts_runs_in_its_sandbox() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    if place.shell("command -v dbus-run-session && command -v dbus-send").code != 0 {
        return left_out("a service of the bus", "there is no dbus-run-session or dbus-send");
    }
    let said = place.project("said");
    // Where the record of the run goes.
    place.directory("home/.local");
    let program =
        place.script("tell", "#!/bin/sh\necho \"in ${RINGFENCE:-none} $1\" > \"$SAID\"\nexit 7\n");
    let project = program.parent().unwrap();
    let exec = format!("/usr/bin/env SAID={} {} called", said.display(), program.display());
    let service = format!("[D-BUS Service]\nName=org.example.Told\nExec={exec}\n");
    place.file("system/dbus-1/services/told.service", &service);
    let profile = format!(
        "extends = [\"program\"]\n[filesystem]\nwrite = [\"{0}\"]\n[environment]\npass = [\"SAID\"]\n",
        project.display()
    );
    place.file("home/.config/ringfence/profiles/told.toml", &profile);
    assert_eq!(called(place), "in none called", "outside a sandbox the bus starts it as it is");
    let before = all(&place.at("home"));
    let mut command = place.command(ringfence_tests::binary());
    command.args(["integrate", "told", "--program", "tell"]);
    let search = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{}:{search}", project.display()));
    command.env("XDG_DATA_DIRS", place.at("system"));
    ringfence_tests::Running::start(command).finish().ends(0);
    assert_eq!(called(place), "in 1 called");
    integrate(place, &["told", "--remove"]).ends(0);
    assert_eq!(called(place), "in none called");
    let mut after = all(&place.at("home"));
    after.retain(|path, _| *path != said);
    let mut before = before;
    before.retain(|path, _| *path != said);
    let names = |all: &BTreeMap<PathBuf, (u32, String)>| all.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&after), names(&before));
    assert_eq!(after, before);
}

#[test]
fn a_program_that_nothing_starts_is_started_with_the_session_when_asked_for() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    place.directory("home/.local");
    let before = all(&place.at("home"));
    integrate(place, &["program", "--program", "cat"]).ends(0);
    assert!(!place.at("home/.config/autostart").exists());
    integrate(place, &["program", "--remove"]).ends(0);
    integrate(place, &["program", "--program", "cat", "--autostart"]).ends(0);
    let entry = read(place, "home/.config/autostart/ringfence-program.desktop");
    assert!(entry.contains(" run -p program -- "), "{entry}");
    integrate(place, &["program", "--remove"]).ends(0);
    assert_eq!(all(&place.at("home")), before);
}

#[test]
fn beside_the_program_everything_has_a_name_of_its_own() {
    let place = &place_with_entries();
    let file = place.file("home/documents/named", "named\n");
    let before = all(&place.at("home"));
    integrate(place, &["program", "--program", "cat", "--beside"]).ends(0);
    let entry = read(place, "home/.local/share/applications/ringfence-program-cat.desktop");
    assert!(entry.contains("Name=Cat (ringfence)\nName[de]=Katze (ringfence)\n"), "{entry}");
    for (path, was) in &before {
        assert_eq!(all(&place.at("home")).get(path), Some(was), "{}", path.display());
    }
    let command = place.text("home/.local/bin/ringfence-program");
    assert_eq!(place.shell(&format!("{command} {}", file.display())).well(), "named");
    integrate(place, &["program", "--remove"]).ends(0);
    assert_eq!(all(&place.at("home")), before);
}

#[test]
fn configurations_are_in_the_entrys_menu() {
    let place = &place_with_entries();
    let text =
        "extends = [\"program\"]\nprograms = [\"cat\"]\n[configuration.work]\nhome = \"work\"\n";
    place.file("home/.config/ringfence/profiles/mine.toml", text);
    integrate(place, &["mine"]).ends(0);
    let entry = read(place, "home/.local/share/applications/cat.desktop");
    assert!(entry.contains("Actions=ringfence-1;\n"), "{entry}");
    assert!(entry.contains("[Desktop Action ringfence-1]\nName=cat: work\n"), "{entry}");
    assert!(entry.contains(" run -p mine:work -- "), "{entry}");
    integrate(place, &["mine", "--remove"]).ends(0);
    // One of them alone.
    integrate(place, &["mine:work"]).ends(0);
    assert!(read(place, "home/.local/bin/cat").contains("run -p mine:work -- "));
    integrate(place, &["mine:work", "--remove"]).ends(0);
    assert_eq!(read(place, "home/.local/bin/cat"), "#!/bin/sh\n# mine\n");
}

#[test]
fn real_entries_come_back_byte_for_byte() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    let mut programs = Vec::new();
    for kind in ["applications", "dbus-1/services"] {
        let own = place.directory(format!("home/.local/share/{kind}"));
        for entry in Path::new("/usr/share").join(kind).read_dir().into_iter().flatten().flatten() {
            let Ok(text) = std::fs::read_to_string(entry.path()) else { continue };
            place.file(own.strip_prefix(place.root()).unwrap().join(entry.file_name()), &text);
            let command = text.lines().find_map(|line| line.strip_prefix("Exec="));
            let name = command.and_then(|line| line.split_whitespace().next()).unwrap_or_default();
            programs.extend(
                Path::new(name).file_name().and_then(|name| name.to_str()).map(str::to_owned),
            );
        }
    }
    programs.sort();
    programs.dedup();
    if programs.is_empty() {
        return left_out("real desktop entries", "none is installed");
    }
    let before = all(&place.at("home"));
    let mut integrated = 0;
    for program in &programs {
        let made = integrate(place, &["program", "--program", program]);
        if made.code == 0 {
            integrated += 1;
            assert_ne!(all(&place.at("home")), before, "{program}");
            integrate(place, &["program", "--remove"]).ends(0);
        }
        assert_eq!(all(&place.at("home")), before, "{program}: {}", made.err);
    }
    assert!(integrated > 0, "{programs:?}");
}

/// What is left by an integration that was killed at each of its stages: there is always a way on, and back.
#[test]
fn one_that_was_interrupted_is_finished_or_taken_back() {
    let place = &place_with_entries();
    let before = all(&place.at("home"));
    let folder = "home/.local/state/ringfence/integrations/program";
    let words = ["program", "--program", "cat"];
    for stage in ["keeping", "listing", "removing"] {
        place.file(format!("{folder}/0.before"), "half of");
        if stage == "listing" {
            place.file(format!("{folder}/files.new"), "{\"schema\": 1, \"fi");
        }
        integrate(place, &["program", "--remove"]).ends(125).says("is not integrated");
        assert!(!place.at(folder).exists(), "{stage}");
        place.file(format!("{folder}/0.before"), "half of");
        integrate(place, &words).ends(0);
        integrate(place, &words).ends(125).says("is integrated already");
        place.file("home/.local/bin/.cat.ringfence", "half of it");
        integrate(place, &["program", "--remove"]).ends(0);
        assert_eq!(all(&place.at("home")), before, "{stage}");
    }
}

/// The name of a profile is one of a directory too.
#[test]
fn what_is_no_profiles_name_removes_nothing() {
    let place = &place_with_entries();
    let kept = "home/.local/state/ringfence/integrations/program/files.json";
    place.file(kept, "{}");
    for name in ["", ".", "..", "../..", "/"] {
        integrate(place, &[name, "--remove"]).ends(125).says("name one profile");
        integrate(place, &[name, "--program", "cat"]).ends(125).says("name one profile");
    }
    assert!(place.at(kept).exists());
}

/// The directory of the script may have another name in PATH.
#[test]
fn the_script_does_not_take_itself_for_the_program() {
    let place = &place_with_entries();
    std::os::unix::fs::symlink(".local/bin", place.at("home/bin")).unwrap();
    let path = format!("{}:{}", place.text("home/bin"), std::env::var("PATH").unwrap());
    let run = |words: &[&str]| {
        let mut command = place.command(ringfence_tests::binary());
        command.arg("integrate").args(words).env("PATH", &path);
        ringfence_tests::Running::start(command).finish()
    };
    let said = run(&["program", "--program", "cat"]);
    assert!(!said.ends(0).text().contains("first in PATH"), "{}", said.text());
    let script = read(place, "home/.local/bin/cat");
    let real = script.lines().last().unwrap();
    assert!(real.ends_with("/cat \"$@\"") && !real.contains("home/bin"), "{script}");
    let file = place.file("home/documents/named", "named\n");
    let called = format!("{} {}", place.text("home/bin/cat"), file.display());
    assert_eq!(place.shell(&called).well(), "named");
    run(&["program", "--remove"]).ends(0);
}

/// Programs that are installed for one user are where the script is put.
#[test]
fn a_program_where_the_script_is_put_is_called_by_what_its_link_leads_to_or_stays() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    let profile = "extends = [\"default\"]\n[filesystem]\nread = [\"~/.local/bin\", \"~/.local/share/tools\"]\n";
    place.file("home/.config/ringfence/profiles/own.toml", profile);
    for name in [".local/share/tools/led", ".local/share/tools/other", ".local/bin/itself"] {
        let text = "#!/bin/sh\necho real \"$@\"; test ! -e ~/hidden || echo open\n";
        place.program(format!("home/{name}"), text);
    }
    place.file("home/hidden", "");
    place.link("home/.local/bin/led", "../share/tools/led");
    place.link("home/.local/bin/called", place.at("home/.local/share/tools/other"));
    let before = all(&place.at("home"));
    let path = format!("{}:/usr/bin:/bin", place.text("home/.local/bin"));
    let run = |words: &[&str]| {
        let mut command = place.command(ringfence_tests::binary());
        command.arg("integrate").args(words).env("PATH", &path);
        ringfence_tests::Running::start(command).finish()
    };
    let called = |name: &str| place.shell(&place.text(format!("home/.local/bin/{name}"))).well();
    assert_eq!(called("led"), "real\nopen", "the control");
    run(&["own", "--program", "led"]).ends(0);
    assert_eq!(called("led"), "real", "it is in its sandbox");
    run(&["own", "--remove"]).ends(0);
    assert_eq!(all(&place.at("home")), before);
    // Its own file, and a link of another name, by which it may tell what it is to do.
    for name in ["itself", "called"] {
        let refused = run(&["own", "--program", name]);
        refused.ends(125).says("itself, where the script").says("with --beside it stays as it is");
        assert_eq!(all(&place.at("home")), before);
        run(&["own", "--program", name, "--beside"]).ends(0);
        assert_eq!(called("ringfence-own"), "real");
        assert_eq!(called(name), "real\nopen");
        run(&["own", "--remove"]).ends(0);
        assert_eq!(all(&place.at("home")), before);
    }
}
