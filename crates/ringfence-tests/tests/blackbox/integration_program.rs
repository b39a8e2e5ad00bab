//! `ringfence integrate --program`, where that is a path, and which file is the program at all.

use super::integration::{all, integrate, place_with_entries, read};
use ringfence_tests::{Person, Place, Tier};
use std::path::{Path, PathBuf};

/// A program that says whether it is in a sandbox.
const TELL: &str = "#!/bin/sh\necho \"in ${RINGFENCE:-none} $1\"\n";

fn program(place: &Place, name: &str) -> PathBuf {
    place.program(name, TELL)
}

/// A place with a program, `home/tools/tell`, that is in no directory of `PATH`, and a profile that shows it.
fn place_with_program() -> (Place, PathBuf) {
    let place = Place::new(Person::Ordinary, Tier::Namespace);
    let path = program(&place, "home/tools/tell");
    let profile = "extends = [\"default\"]\n[filesystem]\nread = [\"~/tools\", \"~/.local/bin\"]\n";
    place.file("home/.config/ringfence/profiles/own.toml", profile);
    place.directory("home/.local");
    (place, path)
}

#[test]
fn a_program_that_is_named_by_its_path_has_a_script_of_its_base_name_and_is_itself_not_touched() {
    let (place, path) = &place_with_program();
    let before = all(&place.at("home"));
    let script = place.text("home/.local/bin/tell");
    let called = |command: &str| place.shell(&format!("{command} x")).well();
    // Relative to where it is asked for, which is the project.
    program(place, "home/project/sub/tell");
    for (named, real) in
        [(path.clone(), path.clone()), ("sub/tell".into(), place.project("sub/tell"))]
    {
        integrate(place, &["own", "--program", named.to_str().unwrap()]).ends(0);
        let text = read(place, "home/.local/bin/tell");
        assert!(text.ends_with(&format!(" run -p own -- {} \"$@\"\n", real.display())), "{text}");
        assert_eq!(called(&script), "in 1 x");
        assert_eq!(std::fs::read_to_string(&real).unwrap(), TELL);
        assert_eq!(called(real.to_str().unwrap()), "in none x", "the program itself");
        integrate(place, &["own", "--remove"]).ends(0);
        assert_eq!(called(path.to_str().unwrap()), "in none x");
    }
    std::fs::remove_dir_all(place.project("sub")).unwrap();
    assert_eq!(all(&place.at("home")), before);
}

#[test]
fn names_that_lead_elsewhere_and_files_that_are_no_programs_are_refused() {
    let (place, path) = &place_with_program();
    let notes = place.file("home/documents/notes", "my notes\n");
    for stage in ["without a directory", "with one"] {
        if stage == "with one" {
            place.directory("home/.local/bin");
        }
        let before = all(&place.at("home"));
        let refused = |name: &str, why: &str| {
            integrate(place, &["own", "--program", name]).ends(125).says(why);
            integrate(place, &["own", "--program", name, "--beside"]).ends(125).says(why);
            integrate(place, &["own", "--remove"]).ends(125).says("is not integrated");
            assert_eq!(all(&place.at("home")), before, "{name}, {stage}");
        };
        for name in ["../../documents/notes", "..", "../tools/tell", "/usr/../bin/cat"] {
            refused(name, "a name with `..` may lead anywhere");
        }
        for name in ["", "/", ".", "./"] {
            refused(name, "name a file");
        }
        refused(notes.to_str().unwrap(), "is no file that can be executed");
        refused(&place.text("home/tools"), "is no file that can be executed");
        integrate(place, &["own", "--program", path.to_str().unwrap()]).ends(0);
        integrate(place, &["own", "--remove"]).ends(0);
        assert_eq!(all(&place.at("home")), before, "the control");
    }
}

#[test]
fn what_is_where_the_script_would_be_is_not_replaced_but_for_a_link_to_the_program() {
    let (place, path) = &place_with_program();
    let own = "home/.local/bin/tell";
    let named = path.to_str().unwrap();
    let refused = |what: &str| {
        let before = all(&place.at("home"));
        integrate(place, &["own", "--program", named]).ends(125).says("is there already");
        assert_eq!(all(&place.at("home")), before, "{what}");
        integrate(place, &["own", "--program", named, "--beside"]).ends(0);
        let script = place.text("home/.local/bin/ringfence-own");
        assert_eq!(place.shell(&format!("{script} x")).well(), "in 1 x", "{what}");
        integrate(place, &["own", "--remove"]).ends(0);
        assert_eq!(all(&place.at("home")), before, "{what}");
        std::fs::remove_file(place.at(own)).unwrap();
    };
    program(place, own);
    refused("another program");
    place.file(own, "data\n");
    refused("another file");
    place.link(own, "/bin/true");
    refused("a link to something else");
    place.shell(&format!("mkfifo {}", place.text(own))).ends(0);
    let before = place.at(own).symlink_metadata().unwrap().permissions();
    integrate(place, &["own", "--program", named]).ends(125).says("is there already");
    assert_eq!(place.at(own).symlink_metadata().unwrap().permissions(), before);
    std::fs::remove_file(place.at(own)).unwrap();
    // The program's own name leads to what is in the script's place.
    std::fs::remove_file(path).unwrap();
    program(place, own);
    place.link("home/tools/tell", place.at(own));
    refused("the program itself");
    std::fs::remove_file(path).unwrap();
    program(place, "home/tools/tell");
    place.link(own, path);
    let before = all(&place.at("home"));
    integrate(place, &["own", "--program", named]).ends(0);
    assert_eq!(place.shell(&format!("{} x", place.text(own))).well(), "in 1 x");
    integrate(place, &["own", "--remove"]).ends(0);
    assert_eq!(all(&place.at("home")), before, "the link is back");
}

/// Another program may have the same name elsewhere, as other editions of browsers have.
#[test]
fn what_starts_another_program_of_the_same_name_stays_and_is_named() {
    let (place, path) = &place_with_program();
    let dev = program(place, "home/opt/dev/tell");
    let linked = place.link("home/links/tell", path);
    let (path, dev, linked) = (path.display(), dev.display(), linked.display());
    let entry = |command: &str| format!("[Desktop Entry]\nName=T\nExec={command}\n");
    for (name, command) in [
        ("path", format!("{path} %U")),
        ("linked", format!("env A=b {linked} %U")),
        ("called", "tell %U".to_owned()),
        ("dev", format!("{dev} %U")),
        ("variable", format!("env A=b {dev} %U")),
    ] {
        place.file(format!("home/.local/share/applications/{name}.desktop"), entry(&command));
    }
    let started = place.file("home/.config/autostart/dev.desktop", entry(&dev.to_string()));
    let service = format!("[D-BUS Service]\nName=org.example.Dev\nExec={dev}\n");
    let service = place.file("home/.local/share/dbus-1/services/dev.service", &service);
    let before = all(&place.at("home"));
    // Which one is first in PATH.
    for (first, named, called) in [
        ("tools", "tell", true),
        ("tools", &*path.to_string(), true),
        ("opt/dev", &path.to_string(), false),
    ] {
        let run = |words: &[&str]| {
            let search = std::env::var("PATH").unwrap();
            let mut command = place.command(ringfence_tests::binary());
            command.arg("integrate").args(words).env("XDG_DATA_DIRS", place.at("system"));
            command.env("PATH", format!("{}:{search}", place.text(format!("home/{first}"))));
            ringfence_tests::Running::start(command).finish()
        };
        let said = run(&["own", "--program", named]);
        let now = all(&place.at("home"));
        for (name, changes) in [
            ("path", true),
            ("linked", true),
            ("called", called),
            ("dev", false),
            ("variable", false),
        ] {
            let entry = place.at(format!("home/.local/share/applications/{name}.desktop"));
            assert_eq!(now[&entry] != before[&entry], changes, "{name}, {first}, {named}");
            let stays = format!("{} stays as it is where", entry.display());
            assert_eq!(said.ends(0).text().contains(&stays), !changes, "{name}: {}", said.text());
            let text = &now[&entry].1;
            assert_eq!(text.contains(&format!(" run -p own -- {path} %U")), changes, "{text}");
        }
        assert_eq!((&now[&started], &now[&service]), (&before[&started], &before[&service]));
        run(&["own", "--remove"]).ends(0);
        assert_eq!(all(&place.at("home")), before);
    }
}

#[test]
fn a_fifo_or_an_endless_file_among_the_entries_is_no_entry() {
    let place = &place_with_entries();
    let data = place.text("system");
    // It has so much memory that an endless file would be the end of it; a FIFO would hold it.
    let run = |words: &str| {
        let binary = ringfence_tests::binary().display();
        place.shell(&format!(
            "ulimit -v 2000000; XDG_DATA_DIRS={data} timeout 60 {binary} integrate program {words}"
        ))
    };
    for make in ["mkfifo", "ln -s /dev/zero", "truncate -s 3G"] {
        let mut made = Vec::new();
        for name in [
            "system/applications/a.desktop",
            "home/.local/share/applications/a.desktop",
            "home/.config/autostart/a.desktop",
            "home/.local/share/dbus-1/services/a.service",
        ] {
            place.directory(Path::new(name).parent().unwrap());
            place.shell(&format!("{make} {}", place.text(name))).ends(0);
            made.push(place.at(name));
        }
        run("--program cat").ends(0);
        let entry = read(place, "home/.local/share/applications/cat.desktop");
        assert!(entry.contains(" run -p program -- "), "{entry}");
        run("--remove").ends(0);
        for path in made {
            assert!(path.symlink_metadata().is_ok(), "{}", path.display());
            std::fs::remove_file(path).unwrap();
        }
    }
}

/// As shells look for it: what cannot be executed is passed over.
#[test]
fn the_program_is_the_first_of_path_that_can_be_executed() {
    let (place, path) = &place_with_program();
    place.file("home/data/tell", "data\n");
    let search = |directories: &[&str]| {
        let own = directories.iter().map(|name| place.text(format!("home/{name}")));
        let own: Vec<_> = own.chain([std::env::var("PATH").unwrap()]).collect();
        own.join(":")
    };
    let run = |search: &str, words: &[&str]| {
        let mut command = place.command(ringfence_tests::binary());
        command.arg("integrate").args(words).env("PATH", search);
        ringfence_tests::Running::start(command).finish()
    };
    let before = all(&place.at("home"));
    let without = run(&search(&["data"]), &["own", "--program", "tell"]);
    without.ends(125).says("is in no directory of PATH");
    assert_eq!(all(&place.at("home")), before);
    run(&search(&["data", "tools"]), &["own", "--program", "tell"]).ends(0);
    let script = read(place, "home/.local/bin/tell");
    assert!(script.ends_with(&format!(" -- {} \"$@\"\n", path.display())), "{script}");
    let called = format!("{} x", place.text("home/.local/bin/tell"));
    assert_eq!(place.shell(&called).well(), "in 1 x");
    run(&search(&[]), &["own", "--remove"]).ends(0);
    assert_eq!(all(&place.at("home")), before);
}

/// As some desktops and installers of other systems' programs put them.
#[test]
fn entries_further_down_are_entries() {
    let place = &place_with_entries();
    let entry = |words: &str| format!("[Desktop Entry]\nName=C\nExec=cat {words}\n");
    place.file("system/applications/kde/deep/sub.desktop", entry("system"));
    place.file("system/applications/one-hidden.desktop", entry("hidden"));
    place.file("home/.local/share/applications/one/hidden.desktop", entry("own"));
    // It has itself in it.
    place.link("home/.local/share/applications/one/again", "../../applications");
    // The session starts none of those.
    place.file("etc/autostart/sub/never.desktop", entry("never"));
    let before = all(&place.at("home"));
    let own = |name: &str| read(place, &format!("home/.local/share/applications/{name}"));
    integrate(place, &["program", "--program", "cat"]).ends(0);
    let text = own("kde/deep/sub.desktop");
    assert!(text.contains(" run -p program -- ") && text.ends_with(" system\n"), "{text}");
    let text = own("one/hidden.desktop");
    assert!(text.contains(" run -p program -- ") && text.ends_with(" own\n"), "{text}");
    assert!(!place.at("home/.local/share/applications/one-hidden.desktop").exists());
    assert!(!place.at("home/.config/autostart/sub").exists());
    integrate(place, &["program", "--remove"]).ends(0);
    assert_eq!(all(&place.at("home")), before);
    // Two that have one name beside the program.
    place.file("home/.local/share/applications/one-hidden.desktop", entry("two"));
    let before = all(&place.at("home"));
    integrate(place, &["program", "--program", "cat", "--beside"]).ends(0);
    let text = own("ringfence-program-kde-deep-sub.desktop");
    assert!(text.contains("Name=C (ringfence)\n"), "{text}");
    integrate(place, &["program", "--remove"]).ends(0);
    assert_eq!(all(&place.at("home")), before);
}

/// The script would be there, and what it starts would not start.
#[test]
fn a_program_that_the_profile_does_not_grant_is_told() {
    let (place, path) = &place_with_program();
    let named = |profile: &str| {
        integrate(place, &[profile, "--program", path.to_str().unwrap()]).ends(0).text()
    };
    let said = named("default");
    assert!(said.contains("does not start so") && said.contains("read = ["), "{said}");
    integrate(place, &["default", "--remove"]).ends(0);
    let said = named("own");
    assert!(!said.contains("does not start"), "{said}");
}
