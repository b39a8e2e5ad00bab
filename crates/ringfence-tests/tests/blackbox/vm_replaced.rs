//! `--tier vm`: what the host renames while a program has it open, or is in it.

use super::vm::{guests, sh, start};
use ringfence_tests::{Place, Running};
use std::os::unix::fs::MetadataExt;

/// A script's way to wait until the host has done something.
const THEN: &str = "echo up; while ! [ -e go ]; do sleep 0.1; done";

/// Begins a script, has the host do something when it says `up`, and lets it go on.
fn meanwhile(mut running: Running, place: &Place, host: impl FnOnce()) -> String {
    running.printed("up\n");
    host();
    place.file("home/project/go", "");
    running.finish().quiet()
}

fn renamed(place: &Place, from: &str, to: &str) {
    std::fs::rename(place.project(from), place.project(to)).unwrap();
}

fn text(place: &Place, name: &str) -> String {
    std::fs::read_to_string(place.project(name)).unwrap()
}

/// Editors save by a rename, and logs are rotated by one.
#[test]
fn what_a_program_has_open_is_not_the_file_that_the_host_put_at_its_name() {
    guests(|place| {
        let names = ["log", "mode", "old", "short", "named"];
        for name in names {
            place.file(format!("home/project/{name}"), "the first\n");
            place.file(format!("home/project/{name}2"), "precious\n");
        }
        place.file(
            "home/project/program.py",
            "import os, time\n\
             log, mode, old, short = (open(n, 'r+') for n in ('log', 'mode', 'old', 'short'))\n\
             named = os.open('named', os.O_PATH)\n\
             print('up', flush=True)\n\
             while not os.path.exists('go'):\n    time.sleep(0.1)\n\
             again = open(f'/proc/self/fd/{log.fileno()}', 'w')\n\
             again.write('two')\n\
             again.close()\n\
             os.fchmod(mode.fileno(), 0o600)\n\
             os.utime(old.fileno(), (1, 1))\n\
             os.ftruncate(short.fileno(), 3)\n\
             print(os.fstat(short.fileno()).st_size, log.read())\n\
             try:\n    os.chmod(f'/proc/self/fd/{named}', 0o600)\n\
             except OSError as error:\n    print(error.strerror)\n\
             print(*(open(n).read().strip() for n in ('mode', 'old', 'short', 'named')))\n",
        );
        let running = start(place, &[], &["python3", "program.py"]);
        let said = meanwhile(running, place, || {
            for name in names {
                renamed(place, name, &format!("{name}1"));
                renamed(place, &format!("{name}2"), name);
            }
        });
        // By their names, the new ones are there at once.
        let precious = ["precious"; 4].join(" ");
        assert_eq!(said, format!("up\n3 two\nStale file handle\n{precious}"));
        for name in names {
            assert_eq!(text(place, name), "precious\n", "{name}");
            let found = std::fs::metadata(place.project(name)).unwrap();
            assert!(found.mode() & 0o777 != 0o600 && found.mtime() > 1, "{name}");
        }
        assert_eq!((text(place, "log1"), text(place, "short1")), ("two".into(), "the".into()));
    });
}

#[test]
fn a_program_changes_nothing_in_the_directory_that_the_host_put_at_the_name_of_its_own() {
    guests(|place| {
        place.file("home/project/directory/own", "own\n");
        place.file("home/project/new/kept", "precious\n");
        let script =
            format!("cd directory && {}; rm -f *; echo x >y; true", THEN.replace("go", "../go"));
        let mut running = start(place, &[], &["sh", "-c", &script]);
        running.printed("up\n");
        renamed(place, "directory", "moved");
        renamed(place, "new", "directory");
        place.file("home/project/go", "");
        running.finish().ends(0);
        let names = std::fs::read_dir(place.project("directory")).unwrap().count();
        assert_eq!((text(place, "directory/kept").as_str(), names), ("precious\n", 1));
        // By its path it is the new one.
        assert_eq!(sh(place, &[], "cat directory/kept").quiet(), "precious");
    });
}

#[test]
fn a_program_stays_in_the_directory_that_the_host_moves_with_what_it_is_in() {
    guests(|place| {
        place.file("home/project/above/own/file", "first\n");
        let then = THEN.replace("go", "file2");
        let script = format!(
            "cd above/own && {then}; echo more >>file; echo new >new; mkdir made; \
             rm file2; ls; cat file new; cd made && echo inner >inner && ls ../made"
        );
        let mut running = start(place, &[], &["bash", "-c", &script]);
        running.printed("up\n");
        renamed(place, "above", "moved");
        place.file("home/project/above/own/file", "precious\n");
        place.file("home/project/moved/own/file2", "");
        let said = running.finish().quiet();
        assert_eq!(said, "up\nfile\nmade\nnew\nfirst\nmore\nnew\ninner");
        let names = |path: &str| std::fs::read_dir(place.project(path)).unwrap().count();
        assert_eq!((names("above/own"), names("moved/own")), (1, 3));
        assert_eq!(text(place, "above/own/file"), "precious\n");
        assert_eq!(text(place, "moved/own/made/inner"), "inner\n");
    });
}
