//! What lies in the quarantine is what it was when its run ended: no program changes it later.

use ringfence_tests::{Place, everywhere};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// All files in it, by their names.
fn kept(place: &Place) -> Vec<PathBuf> {
    fn all(at: &Path, files: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(at).into_iter().flatten().flatten() {
            match entry.file_type().unwrap().is_dir() {
                true => all(&entry.path(), files),
                false => files.push(entry.path()),
            }
        }
    }
    let mut files = Vec::new();
    all(&place.at("home/.local/state/ringfence/quarantine"), &mut files);
    files.sort_by_key(|path| path.file_name().map(ToOwned::to_owned));
    files
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn what_was_taken_has_no_other_name() {
    everywhere(|place| {
        let taken = "echo good > a; ln a .mcp.json; while test -e .mcp.json; do :; done; \
                     mkdir -p d/.vscode; echo good > d/.vscode/tasks.json; chmod 750 d/.vscode/tasks.json; \
                     ln d/.vscode/tasks.json b; echo good > c; ln c d/.envrc";
        place.run(&[], &["sh", "-c", taken]).ends(0);
        // The control: what has those names is the program's to write.
        place.run(&[], &["sh", "-c", "for n in a b c; do echo EVIL > $n; done"]).ends(0);
        for name in ["a", "b", "c"] {
            assert_eq!(read(place.project(name)), "EVIL\n");
        }
        let kept = kept(place);
        assert_eq!(kept.len(), 3, "{kept:?}");
        for path in &kept {
            assert_eq!((read(path).as_str(), path.metadata().unwrap().nlink()), ("good\n", 1));
        }
        let tasks = kept.iter().find(|path| path.ends_with("tasks.json")).unwrap();
        assert_eq!(tasks.metadata().unwrap().permissions().mode() & 0o7777, 0o750);
    });
}

/// A giant is not copied, and a pipe cannot be: without its name in the quarantine each has the other one yet.
#[test]
fn what_cannot_be_copied_keeps_its_other_name_alone() {
    everywhere(|place| {
        let script = "mkdir d; truncate -s 1T a; ln a d/.envrc; mkfifo b; ln b d/.mcp.json; \
                      truncate -s 1T d/.nvimrc; echo good > d/.exrc";
        let run = place.run(&[], &["sh", "-c", script]);
        run.ends(0)
            .says("-.envrc was removed (it has another name, and cannot be copied: file too large");
        run.says("-.mcp.json was removed (it has another name, and is no plain file)");
        assert_eq!(place.project("a").metadata().unwrap().len(), 1 << 40);
        assert!(
            place.project("b").exists() && fs::read_dir(place.project("d")).unwrap().count() == 0
        );
        // The control: one name is one that may be kept, whatever it is.
        let kept = kept(place);
        let names = kept.iter().map(|path| path.file_name().unwrap().to_str().unwrap());
        let names = names.map(|name| name.split_once('-').unwrap().1).collect::<Vec<_>>();
        assert!(
            names.len() == 2 && names.contains(&".nvimrc") && names.contains(&".exrc"),
            "{names:?}"
        );
        fs::remove_file(place.project("a")).unwrap();
    });
}

/// A run that goes on in the same tree has what another one takes away open: for writing, for reading, and its directory.
#[test]
fn what_was_taken_is_held_by_no_other_run() {
    everywhere(|place| {
        let holds = "mkfifo go; exec 9<> go; mkdir -p d/.vscode; echo good > d/.vscode/a; echo good > d/.vscode/b; \
                     exec 7> c; echo good >&7; mv c d/.envrc; cd d/.vscode; exec 8< b; echo up; read -r line <&9; \
                     echo EVIL > a; echo EVIL > new; echo EVIL > /proc/self/fd/8; echo EVIL >&7 && echo wrote";
        let mut holder = place.start(&[], &["sh", "-c", holds]);
        holder.printed("up\n");
        place.run(&[], &["true"]).ends(0).says("d/.vscode was").says("d/.envrc was");
        fs::write(place.project("go"), "\n").unwrap();
        // The control: what it holds it can write to.
        holder.finish().ends(0).prints("wrote");
        let kept = kept(place);
        let names = kept.iter().map(|path| path.file_name().unwrap().to_str().unwrap());
        let names = names.map(|name| name.rsplit_once('-').map_or(name, |(_, name)| name));
        assert_eq!(names.collect::<Vec<_>>(), [".envrc", "a", "b"], "{kept:?}");
        assert!(kept.iter().all(|path| read(path) == "good\n"));
    });
}
