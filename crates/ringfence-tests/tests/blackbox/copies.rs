//! `cp`: what comes out of a session is what a hostile program says, at a place that it may write to.

use ringfence_tests::{Place, Running, everywhere};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A `tar` of the program's own, first in the session's `PATH`: it packs what an archive should not hold.
const TAR: &str = r##"#!/usr/bin/env python3
import io, sys, tarfile
archive = tarfile.open(fileobj=sys.stdout.buffer, mode="w|")
def add(name, data=b"", **what):
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), 0o644
    for key, value in what.items():
        setattr(entry, key, value)
    archive.addfile(entry, io.BytesIO(data))
add("kept/file", b"kept\n")
add("set-user", b"#!/bin/sh\n", mode=0o6755)
add("memory", type=tarfile.CHRTYPE, devmajor=1, devminor=1, mode=0o666)
add("pipe", type=tarfile.FIFOTYPE)
add("kept/same", type=tarfile.LNKTYPE, linkname="kept/file")
add("link", type=tarfile.SYMTYPE, linkname="OUTSIDE")
archive.close()
"##;

/// A session whose `tar` is the program's.
fn session(place: &Place) -> Running {
    let tar = TAR.replace("OUTSIDE", &place.text("outside"));
    place.script("bin/tar", &tar);
    let mut command = place.ringfence_run();
    let path = format!("{}:/usr/bin:/bin", place.text("home/project/bin"));
    command.env("PATH", path).args(["--name", "one", "--"]);
    command.args(["sh", "-c", "mkdir made; echo up; exec sleep 1000"]);
    let mut running = Running::start(command);
    running.printed("up\n");
    running
}

fn ends(place: &Place, running: Running) {
    place.ringfence(["kill", "one"]).quiet();
    running.finish().ends(143);
}

/// Everything below a directory.
fn all(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if is_directory(&path) { all(&path) } else { vec![path] }).collect()
}

fn is_directory(path: &Path) -> bool {
    path.symlink_metadata().unwrap().is_dir()
}

#[test]
fn a_directory_brings_no_devices_and_no_privileges() {
    everywhere(|place| {
        let running = session(place);
        let to = place.directory("copies");
        let copied = place.ringfence(["cp", "one:made", to.to_str().unwrap()]);
        copied.says("memory").says("neither a file nor a link: pipe");
        for path in all(&to) {
            let data = path.symlink_metadata().unwrap();
            let kind = data.file_type();
            assert!(kind.is_file() || kind.is_symlink(), "{}", path.display());
            assert!(!kind.is_char_device() && !kind.is_fifo());
            assert!(kind.is_symlink() || data.mode() & 0o7000 == 0, "{:o}", data.mode());
        }
        // What is harmless came.
        assert_eq!(fs::read_to_string(to.join("made/kept/file")).unwrap(), "kept\n");
        // Each name is a file of its own.
        let same = to.join("made/kept/same");
        assert_eq!(fs::read_to_string(&same).unwrap(), "kept\n");
        assert_eq!(same.metadata().unwrap().nlink(), 1);
        assert_eq!(to.join("made/kept/file").metadata().unwrap().nlink(), 1);
        assert_eq!(fs::metadata(to.join("made/set-user")).unwrap().mode() & 0o7777, 0o755);
        ends(place, running);
    });
}

#[test]
fn links_that_lie_at_the_place_are_not_followed() {
    everywhere(|place| {
        let running = session(place);
        let outside = fs::read_dir(place.at("outside")).unwrap().count();
        // Planted by the program where the copy is to go; left there by an earlier copy.
        place.directory("home/project/here");
        place.directory("copies/made");
        place.link("home/project/here/made", place.at("outside"));
        place.link("copies/made/kept", place.at("outside"));
        for to in ["home/project/here", "copies"] {
            place.ringfence(["cp", "one:made", &place.text(to)]).ends(125).says("symbolic link");
        }
        assert_eq!(fs::read_dir(place.at("outside")).unwrap().count(), outside);
        // Without them the same copy works, and leaves nothing beside.
        fs::remove_file(place.at("home/project/here/made")).unwrap();
        place.ringfence(["cp", "one:made", &place.text("home/project/here")]);
        assert!(place.project("here/made/kept/file").exists());
        assert_eq!(fs::read_dir(place.project("here")).unwrap().count(), 1);
        ends(place, running);
    });
}

/// What a name on the way means is the program's choice in its own directory, and wherever it can write.
#[test]
fn links_on_the_way_that_the_program_may_have_made_are_not_followed() {
    everywhere(|place| {
        let running = session(place);
        place.directory("elsewhere");
        place.link("home/project/out", place.at("elsewhere"));
        place.link("later", place.at("elsewhere"));
        place.directory("copies");
        let there = || fs::read_dir(place.at("elsewhere")).unwrap().count();
        for to in ["home/project/out", "home/project/out/new", "later", "later/new"] {
            for from in ["one:bin/tar", "one:made"] {
                let refused = place.ringfence(["cp", from, &place.text(to)]);
                refused.ends(125).says("may have made");
            }
        }
        assert_eq!(there(), 0);
        // The control: where it leads can be named; and no link is no trouble.
        place.ringfence(["cp", "one:bin/tar", &place.text("elsewhere")]).ends(0);
        place.ringfence(["cp", "one:bin/tar", "plain"]).ends(0);
        place.ringfence(["cp", "one:bin/tar", &place.text("copies/new/deep")]).ends(0);
        assert!(there() == 1 && place.project("plain").is_file());
        assert!(place.at("copies/new/deep").is_file());
        ends(place, running);
    });
}

/// A session in which a script has filled the directory `t`, and that one's path inside.
fn making(place: &Place, script: &str) -> (Running, String) {
    let mut command = place.ringfence_run();
    command.args(["--name", "one", "--", "sh", "-c"]);
    command.arg(format!("cd ${{TMPDIR:-/tmp}}; {script}; pwd; exec sleep 1000"));
    let mut running = Running::start(command);
    let made = running.printed("t\n").so_far().trim_end().to_owned();
    (running, made)
}

/// Go's cache of modules is so: nobody may write in its directories.
#[test]
fn directories_that_are_closed_are_copied_and_nothing_of_them_is_left() {
    everywhere(|place| {
        let (running, made) = making(
            place,
            "mkdir -p t/closed/inner; cd t; echo file > closed/inner/file; echo evil > closed/.envrc; \
             chmod 500 closed/inner closed",
        );
        let to = place.directory("copies");
        let copied = place.ringfence(["cp", &format!("one:{made}"), to.to_str().unwrap()]);
        copied.ends(0).says("not copied: closed/.envrc: ");
        assert_eq!(fs::read_to_string(to.join("t/closed/inner/file")).unwrap(), "file\n");
        assert!(!to.join("t/closed/.envrc").exists());
        let left = place.at("home/.local/state/ringfence/copies");
        assert_eq!(fs::read_dir(left).unwrap().count(), 0);
        ends(place, running);
    });
}

/// Which process is a copy's is not told by a number: another PID namespace with the same home has others.
#[test]
fn copies_of_others_that_go_on_are_left_alone() {
    everywhere(|place| {
        let (running, made) = making(place, "mkdir t; cd t; echo file > file");
        let to = place.directory("copies");
        let all = "home/.local/state/ringfence/copies";
        let live = place.file(format!("{all}/11111111/part"), "part");
        let left = place.file(format!("{all}/{}/part", std::process::id()), "part");
        let lock = fs::File::open(live.parent().unwrap()).unwrap();
        lock.try_lock().unwrap();
        place.ringfence(["cp", &format!("one:{made}"), to.to_str().unwrap()]).ends(0);
        assert_eq!(fs::read_to_string(to.join("t/file")).unwrap(), "file\n");
        assert!(live.exists(), "somebody is at work there");
        assert!(!left.parent().unwrap().exists(), "nobody is");
        ends(place, running);
    });
}

/// Nor does it bring profiles, whose hooks run outside, or what is trusted.
#[test]
fn a_directory_brings_nothing_of_ringfences_own() {
    everywhere(|place| {
        let (running, made) = making(
            place,
            "mkdir -p t/.config/ringfence/profiles t/.config/other t/.local/state/ringfence; cd t; \
             echo '[hooks]' > .config/ringfence/profiles/evil.toml; echo x > .config/other/file; \
             echo x > .local/state/ringfence/trusted",
        );
        let home = place.text("home");
        for (name, kept) in [(".config", "ringfence"), (".local", "state/ringfence")] {
            let from = format!("one:{made}/{name}");
            let copied = place.ringfence(["cp", &from, &home]);
            copied.ends(0).says(&format!("not copied: {kept}: "));
        }
        assert!(place.at("home/.config/other/file").is_file());
        assert!(!place.at("home/.config/ringfence/profiles/evil.toml").exists());
        assert!(!place.at("home/.local/state/ringfence/trusted").exists());
        // Elsewhere they decide about nothing.
        let to = place.directory("copies");
        place.ringfence(["cp", &format!("one:{made}/.config"), to.to_str().unwrap()]).quiet();
        assert!(to.join(".config/ringfence/profiles/evil.toml").is_file());
        ends(place, running);
    });
}

/// What git outside, a shell or an editor would run is left out of a directory; the user's word brings it.
#[test]
fn a_directory_brings_nothing_that_programs_outside_run() {
    everywhere(|place| {
        let (running, made) = making(
            place,
            "mkdir -p t/.git/hooks t/.git/objects t/.git/refs t/.husky t/sub; cd t; echo ref: refs/heads/main > .git/HEAD; \
             printf '[core]\\n\\tfsmonitor = touch ran\\n' > .git/config; echo evil > .git/hooks/pre-commit; \
             echo evil > .husky/pre-commit; echo evil > sub/.envrc; echo file > sub/file; ln -s elsewhere .claude",
        );
        let from = format!("one:{made}");
        let protected = [".git/config", ".git/hooks/pre-commit", ".husky", "sub/.envrc", ".claude"];
        let is = |path: PathBuf| path.symlink_metadata().is_ok();
        let to = place.directory("copies");
        let copied = place.ringfence(["cp", &from, to.to_str().unwrap()]);
        copied.ends(0).says("--with-protected copies them");
        for name in protected {
            copied.says(&format!("not copied: {name}: "));
            assert!(!is(to.join("t").join(name)), "{name}");
        }
        // The rest came.
        assert_eq!(fs::read_to_string(to.join("t/sub/file")).unwrap(), "file\n");
        assert!(is(to.join("t/.git/HEAD")) && is(to.join("t/.git/hooks")));
        // The controls: by an option all of it, and what was named itself.
        let whole = place.directory("whole");
        place.ringfence(["cp", "--with-protected", &from, whole.to_str().unwrap()]).quiet();
        assert!(protected.iter().all(|name| is(whole.join("t").join(name))));
        place.ringfence(["cp", &format!("{from}/.husky"), whole.to_str().unwrap()]).quiet();
        assert!(is(whole.join(".husky/pre-commit")));
        ends(place, running);
    });
}

/// Outside `tar` packs and unpacks, as the user.
#[test]
fn a_tar_that_a_program_may_have_left_packs_nothing_outside() {
    everywhere(|place| {
        place.script(
            "tools/tar",
            "#!/bin/sh\ntouch \"$HOME/project/called\"\nexec /usr/bin/tar \"$@\"\n",
        );
        place.file("home/project/made/file", "kept\n");
        let mut command = place.ringfence_run();
        command.args(["--name", "one", "--", "sh", "-c", "echo up; exec sleep 1000"]);
        let mut running = Running::start(command);
        running.printed("up\n");
        place.directory("copies");
        let rf = ringfence_tests::binary().display().to_string();
        let (made, copies) = (place.text("home/project/made"), place.text("copies"));
        let copied = place.shell(&format!(
            "export PATH=$PWD/tools:$PATH; command -v tar; {rf} cp one:{made} {copies} && {rf} cp {copies}/made one:{made} && \
             {rf} exec one -- cat {made}/made/file; ls called"
        ));
        let found = place.project("tools/tar").display().to_string();
        assert_eq!(
            copied.text().lines().collect::<Vec<_>>(),
            [found.as_str(), "kept"],
            "{}",
            copied.err
        );
        ends(place, running);
    });
}

/// What fails inside is told by the file and the reason alone: a shell and its lines are nobody's business, and nothing
/// inside writes to the user's terminal.
#[test]
fn a_copy_that_fails_says_of_which_file_and_why() {
    everywhere(|place| {
        let running = session(place);
        place.file("home/project/file", "x");
        place.directory("home/project/deep");
        let closed = place.file("home/project/closed", "x");
        fs::set_permissions(closed, fs::Permissions::from_mode(0o000)).unwrap();
        // In the process tier it is Landlock that refuses.
        let reasons = ["Permission denied", "Read-only file system"];
        for (words, told) in [
            (["one:closed", "copy"], "one:closed was not copied: "),
            (["file", "one:/usr/file"], "file was not copied to one:/usr/file: "),
            (["deep", "one:/usr/new"], "deep was not copied to one:/usr/new: "),
        ] {
            let copied = place.ringfence(["cp", words[0], words[1]]);
            copied.ends(125).says(told);
            let why = copied.err.strip_prefix(&format!("ringfence: {told}")).unwrap_or_default();
            assert!(reasons.contains(&why.trim_end()), "{words:?}: {}", copied.err);
        }
        // A reason in a language of the program's, and what a terminal would obey.
        place.script("bin/tar", "#!/bin/sh\nprintf 'tar: \\033[31mno\\n' >&2; exit 3\n");
        let copied = place.ringfence(["cp", "one:made", "copy"]);
        copied.ends(125).says("one:made was not copied whole: \\u{1b}[31mno");
        // What is said of a session that is not there is said once.
        let none = place.ringfence(["cp", "none:x", "copy"]);
        none.ends(125).says("none:x was not copied: there is no session none");
        assert_eq!(none.err.lines().count(), 1, "{}", none.err);
        ends(place, running);
    });
}
