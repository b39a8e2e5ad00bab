//! The top of a tree that is kept apart: inside it is the layer's own directory, and has to be as the real one is.

use ringfence_tests::{Place, Tier, everybody};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

fn mode(place: &Place, name: &str) -> u32 {
    fs::metadata(place.project(name)).unwrap().mode() & 0o7777
}

fn give(place: &Place, mode: u32) {
    fs::set_permissions(place.project(""), fs::Permissions::from_mode(mode)).unwrap();
    place.clock_moves_on();
}

#[test]
fn the_top_is_inside_what_it_is_outside() {
    everybody(Tier::Namespace, |place| {
        place.file("home/project/sub/x", "x\n");
        for bits in [0o755, 0o2775, 0o1750, 0o700] {
            give(place, bits);
            let look = "stat -c '%a %u %g %Y' .; mkdir made; stat -c %a made; rmdir made";
            let control = place.shell(look).well();
            // To make and remove something set a new time: the same for both.
            let outside = fs::metadata(place.project("")).unwrap();
            let found = place.sh(&["--overlay=discard"], look).quiet();
            let line = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            let (control, found) = (line(&control), line(&found));
            assert_eq!(found[..3], control[..3], "{bits:o}");
            assert_eq!(found[3], outside.mtime().to_string(), "{bits:o}");
            assert_eq!(found[4], control[4], "what is made in it, {bits:o}");
        }
        // What is committed was made by the bits of the real one.
        give(place, 0o2775);
        place.sh(&["--overlay=commit"], "umask 022; mkdir made").ends(0);
        assert_eq!((mode(place, "made"), mode(place, "")), (0o2755, 0o2775));
    });
}

#[test]
fn what_a_run_makes_of_the_top_is_a_change() {
    everybody(Tier::Namespace, |place| {
        place.file("home/project/sub/x", "x\n");
        give(place, 0o755);
        // Alone: nothing else is in the layer.
        place.sh(&["--overlay=keep"], "chmod 711 .").ends(0).says("these changes were kept apart");
        assert_eq!(mode(place, ""), 0o755);
        let shown = place.ringfence(["overlay", "diff", "latest", "--summary"]).quiet();
        assert_eq!(shown, format!("P {}/", place.text("home/project")));
        place.ringfence(["overlay", "commit", "latest"]).ends(0).says("committed 1 change");
        assert_eq!(mode(place, ""), 0o711);
        // With others, of which some are committed first: it waits.
        give(place, 0o755);
        place.sh(&["--overlay=keep"], "chmod 700 .; echo y > sub/y; echo z > sub/z").ends(0);
        place.ringfence(["overlay", "commit", "latest", "sub/y"]).ends(0);
        assert_eq!((mode(place, ""), place.project("sub/y").exists()), (0o755, true));
        place.ringfence(["overlay", "commit", "latest"]).ends(0).says("committed 2 changes");
        assert_eq!((mode(place, ""), place.project("sub/z").exists()), (0o700, true));
        // Where it is as it was, nothing waits; the host's own change is not taken back.
        give(place, 0o755);
        place.sh(&["--overlay=keep"], "chmod 700 .; chmod 755 .").ends(0);
        place.ringfence(["overlay", "diff", "latest"]).ends(125).says("keeps no changes apart");
        place.sh(&["--overlay=keep"], "echo n > new").ends(0);
        give(place, 0o750);
        place.ringfence(["overlay", "commit", "latest"]).ends(0).says("committed 1 change");
        assert_eq!((mode(place, ""), place.project("new").exists()), (0o750, true));
        // What both changed is a conflict.
        place.clock_moves_on();
        place.sh(&["--overlay=keep"], "chmod 700 .").ends(0);
        give(place, 0o711);
        place.ringfence(["overlay", "commit", "latest"]).ends(1).says("conflict");
        assert_eq!(mode(place, ""), 0o711);
        place.ringfence(["overlay", "commit", "latest", "--force"]).ends(0);
        assert_eq!(mode(place, ""), 0o700);
    });
}

/// Toolchains of the home are shown from one read-only copy of it, and the layers are kept below the home as well.
#[test]
fn toolchains_in_the_home_do_not_make_its_layers_read_only() {
    everybody(Tier::Namespace, |place| {
        for name in [".nvm", ".pyenv", ".rbenv", ".rustup", ".sdkman"] {
            place.directory(format!("home/{name}"));
        }
        place.file("outside/file", "old\n");
        let rf = "cd ../../outside && $RF --overlay=keep";
        place.shell(&format!("{rf} -- sh -c 'ls -d ~/.nvm && echo new > file'")).ends(0);
        assert_eq!(fs::read_to_string(place.at("outside/file")).unwrap(), "old\n");
        place.ringfence(["overlay", "commit", "latest"]).ends(0).says("committed 1 change");
        assert_eq!(fs::read_to_string(place.at("outside/file")).unwrap(), "new\n");
        // A kept home's layer, too.
        place.shell(&format!("{rf} --home kept -- sh -c 'echo x > ~/made'")).ends(0);
    });
}
