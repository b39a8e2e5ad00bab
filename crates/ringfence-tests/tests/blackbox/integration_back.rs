//! `ringfence integrate --remove`, where what was written is not what it was when it was written.

use super::integration::{all, integrate, place_with_entries, read};

/// A link of the user's is put back whatever became of what stood in its place.
#[test]
fn a_link_that_was_there_comes_back_where_nothing_is() {
    let place = &place_with_entries();
    let entry = "home/.local/share/applications/cat.desktop";
    place.link(entry, place.at("system/applications/cat.desktop"));
    let before = all(&place.at("home"));
    let words = ["program", "--program", "cat"];
    for stage in ["deleted", "being made", "untouched"] {
        integrate(place, &words).ends(0);
        assert!(read(place, entry).contains(" run -p program -- "), "{stage}");
        assert!(!place.at(entry).is_symlink(), "{stage}");
        if stage != "untouched" {
            place.file(entry, "Exec=changed\n");
            integrate(place, &["program", "--remove"]).ends(125).says("was changed since");
            std::fs::remove_file(place.at(entry)).unwrap();
        }
        if stage == "being made" {
            place.link("home/.local/share/applications/.cat.desktop.ringfence", "/elsewhere");
        }
        integrate(place, &["program", "--remove"]).ends(0);
        assert_eq!(all(&place.at("home")), before, "{stage}");
        integrate(place, &["program", "--remove"]).ends(125).says("is not integrated");
    }
}

/// Whatever was changed of it, the rest is undone; what stays is named, and is undone when it may be.
#[test]
fn what_was_changed_stays_and_all_else_is_as_it_was() {
    let place = &place_with_entries();
    let home = place.at("home");
    let before = all(&home);
    let words = ["program", "--program", "cat"];
    // The script is written first and looked at first; a service is the last.
    let script = "home/.local/bin/cat";
    let service = "home/.local/share/dbus-1/services/org.example.Cat.service";
    for changed in [script, service] {
        let written = integrate(place, &words).ends(0).text();
        let written = written.matches(" starts cat in its sandbox\n").count();
        let text = read(place, changed) + "# changed\n";
        place.file(changed, &text);
        for run in 0..2 {
            let done = integrate(place, &["program", "--remove"]);
            done.ends(125).says(&format!("{} was changed since and stays", place.text(changed)));
            let undone = String::from_utf8_lossy(&done.out).matches(" is as it was\n").count();
            assert_eq!(
                undone,
                if run == 0 { written - 1 } else { 0 },
                "{changed}: {}",
                done.text()
            );
            let mut now = all(&home);
            let mut was = before.clone();
            assert_eq!(now.remove(&place.at(changed)).unwrap().1, text);
            was.remove(&place.at(changed));
            // Directories above what stays.
            now.retain(|path, _| was.contains_key(path) || !path.is_dir());
            assert_eq!(now, was, "{changed}");
        }
        // What the user puts where it was undone meanwhile is the user's.
        let own = "home/.local/share/applications/cat.desktop";
        place.file(own, "mine\n");
        std::fs::remove_file(place.at(changed)).unwrap();
        integrate(place, &["program", "--remove"]).ends(0);
        assert_eq!(read(place, own), "mine\n");
        std::fs::remove_file(place.at(own)).unwrap();
        assert_eq!(all(&home), before, "{changed}");
    }
}

/// What stands in the place of what was written may be anything.
#[test]
fn a_fifo_or_an_endless_file_in_its_place_stays() {
    let place = &place_with_entries();
    let before = all(&place.at("home"));
    let entry = "home/.local/share/applications/cat.desktop";
    for make in ["mkfifo", "ln -s /dev/zero"] {
        integrate(place, &["program", "--program", "cat"]).ends(0);
        std::fs::remove_file(place.at(entry)).unwrap();
        place.shell(&format!("{make} {}", place.text(entry))).ends(0);
        // It has so much memory that an endless file would be the end of it.
        let remove = format!(
            "ulimit -v 2000000; timeout 60 {} integrate program --remove",
            ringfence_tests::binary().display()
        );
        place.shell(&remove).ends(125).says("was changed since and stays");
        std::fs::remove_file(place.at(entry)).unwrap();
        integrate(place, &["program", "--remove"]).ends(0);
        assert_eq!(all(&place.at("home")), before, "{make}");
    }
}

/// Of two in one place only the last could be put back first; each would take the other's script for the user's.
#[test]
fn one_place_has_one_integration() {
    let place = &place_with_entries();
    let home = place.at("home");
    let before = all(&home);
    for name in ["one", "two"] {
        let path = format!("home/.config/ringfence/profiles/{name}.toml");
        place.file(path, "extends = [\"program\"]\n");
    }
    let profiles = all(&home);
    integrate(place, &["one", "--program", "cat"]).ends(0);
    let now = all(&home);
    let refused = integrate(place, &["two", "--program", "cat"]);
    refused
        .ends(125)
        .says("is of the integration of one already; ringfence integrate one --remove");
    integrate(place, &["two", "--remove"]).ends(125).says("is not integrated");
    assert_eq!(all(&home), now);
    // Beside it nothing is shared.
    integrate(place, &["two", "--program", "cat", "--beside"]).ends(0);
    integrate(place, &["one", "--remove"]).ends(0);
    integrate(place, &["two", "--remove"]).ends(0);
    assert_eq!(all(&home), profiles);
    integrate(place, &["two", "--program", "cat"]).ends(0);
    integrate(place, &["two", "--remove"]).ends(0);
    std::fs::remove_dir_all(place.at("home/.config")).unwrap();
    assert_eq!(all(&home), before);
}
