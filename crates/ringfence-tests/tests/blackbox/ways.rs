//! What is around a tree: directories that the sandbox has made on the way to it (whoever renamed one would take the tree away
//! from what holds and hides names in it), and larger trees.

use ringfence_tests::{Place, Tier, everybody, everywhere};
use std::fs;

/// A repository two directories below the home, with a secret. The first is not on the host's way to anything else.
fn deep(place: &Place) -> String {
    place.directory("home/code/deep/proj/.git/hooks");
    place.file("home/code/deep/proj/.git/HEAD", "ref: refs/heads/main\n");
    place.file("home/code/deep/proj/.git/config", "[core]\n\tbare = false\n");
    place.file("home/code/deep/proj/.env", "old\n");
    place.text("home/code/deep/proj")
}

/// What was to be moved on the way, and is refused; and what is not on it is not.
const MOVES: &str = "mv ~/code ~/gone; mv ~/code/deep ~/code/gone; rmdir ~/code/deep; \
     mkdir ~/code/beside && mv ~/code/beside ~/code/moved && touch ~/code/moved/f && ls ~/code; pwd";

#[test]
fn no_directory_on_the_way_to_a_tree_can_be_renamed() {
    everybody(Tier::Namespace, |place| {
        let project = deep(place);
        for options in [
            &[][..],
            &["--strict"],
            &["--overlay=discard"],
            &["--home", "kept"],
            &["-r", "/"],
            &["-p", "claude", "--network", "none"],
        ] {
            let all = [&["-w", &project, "--workdir", &project], options].concat();
            let ended = place.sh(&all, MOVES);
            assert_eq!(
                ended.text(),
                format!("deep\nmoved\n{project}"),
                "{options:?}: {}",
                ended.err
            );
            for moved in ["code", "code/deep"] {
                let from = place.text(format!("home/{moved}"));
                ended.says(&format!("mv: cannot move '{from}' to "));
            }
            assert_eq!(ended.err.matches("Device or resource busy").count(), 3, "{}", ended.err);
        }
        assert!(!place.at("home/gone").exists() && !place.at("home/code/gone").exists());
    });
}

/// In the directory for temporary files as well, where a tree is shown read-only with something in it hidden.
#[test]
fn nor_one_to_what_has_hidden_names() {
    everybody(Tier::Namespace, |place| {
        place.file("home/some/way/lib/.env", "old\n");
        place.file("home/other/way/lib/file", "file\n");
        let (hidden, plain) = (place.text("home/some/way/lib"), place.text("home/other/way/lib"));
        let secret = format!("{hidden}/.env");
        let options = ["-r", &hidden, "-r", &plain, "--deny", &secret];
        let ended = place.sh(&options, &format!("mv ~/some ~/gone; cat {secret}"));
        ended.ends(1).says("Device or resource busy").says("Permission denied");
        // What is only read is guarded nowhere, and goes along.
        assert_eq!(
            place.sh(&options, "mv ~/other ~/gone && cat ~/gone/way/lib/file").well(),
            "file"
        );
        assert_eq!(fs::read_to_string(place.at("home/other/way/lib/file")).unwrap(), "file\n");
    });
}

/// Who grants what is around the directory of the run gives more to it, and takes nothing from what protects it.
#[test]
fn what_is_protected_in_the_workspace_is_so_with_more_around_it_granted() {
    everywhere(|place| {
        place.directory("home/shop/web/.git/hooks");
        place.file("home/shop/web/.git/HEAD", "ref: refs/heads/main\n");
        let config = place.file("home/shop/web/.git/config", "[core]\n\tbare = false\n");
        let hook = place.file("home/shop/web/.git/hooks/pre-commit", "#!/bin/sh\n");
        let tasks = place.file("home/shop/web/.vscode/tasks.json", "{}\n");
        let workspace = place.text("home/shop/web");
        let script = "cd .git; echo evil >>hooks/pre-commit; echo evil >new && mv new config; rm -r hooks; cd ..; \
             echo evil >.vscode/tasks.json; echo evil >.envrc; echo mine >../beside; echo mine >file; sleep 0.05";
        for around in ["home/shop", "home"] {
            let around = place.text(around);
            let options = ["-w", &workspace, "-w", &around, "--workdir", &workspace];
            place.sh(&options, script);
            assert_eq!(fs::read_to_string(&config).unwrap(), "[core]\n\tbare = false\n");
            assert_eq!(fs::read_to_string(&hook).unwrap(), "#!/bin/sh\n", "{around}");
            assert_eq!(fs::read_to_string(&tasks).unwrap(), "{}\n", "{around}");
            assert!(!place.at("home/shop/web/.envrc").exists());
            // The control.
            for name in ["home/shop/beside", "home/shop/web/file"] {
                assert_eq!(fs::read_to_string(place.at(name)).unwrap(), "mine\n");
            }
        }
        // A grant by name lifts it as before.
        let (around, settings) = (place.text("home/shop"), place.text("home/shop/web/.vscode"));
        let options = ["-w", &around, "-w", &workspace, "-w", &settings, "--workdir", &workspace];
        place.sh(&options, "echo mine >.vscode/tasks.json").ends(0);
        assert_eq!(fs::read_to_string(&tasks).unwrap(), "mine\n");
    });
}
