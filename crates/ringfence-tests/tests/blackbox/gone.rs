//! What a command wrote into the private home is told at the end, as it is gone.

use ringfence_tests::{Finished, Place, everywhere};
use std::fs;

/// A command that lives until its launcher has seen it run.
fn run(place: &Place, options: &[&str], act: &str) -> Finished {
    let wait = "until [ -e go ]; do sleep 0.05; done";
    let options = [options, &["--status-fd", "1"]].concat();
    let mut running = place.start(&options, &["sh", "-c", &format!("{act}; {wait}")]);
    running.printed("\"started\"");
    place.file("home/project/go", "");
    let finished = running.finish();
    fs::remove_file(place.project("go")).unwrap();
    assert_eq!(finished.code, 0, "{}", finished.err);
    finished
}

const GONE: &str = "gone with the run, as the home is private: ";

#[test]
fn files_in_the_private_home_are_told() {
    everywhere(|place| {
        let shown = |name: &str| place.text(format!("home/{name}"));
        run(place, &[], "echo a > ~/note.txt").says(&format!(
            "{GONE}~/note.txt; to keep it, make it outside first, and grant it: --write {}",
            shown("note.txt")
        ));
        place.file("home/note.txt", "host\n");
        let told = run(place, &[], "echo a > ~/note.txt");
        told.says(&format!("{GONE}~/note.txt; --write {} keeps it", shown("note.txt")));
        assert_eq!(fs::read_to_string(place.at("home/note.txt")).unwrap(), "host\n");
        let more = "mkdir ~/d; for i in 1 2 3 4; do echo > ~/d/$i; done; echo > ~/b";
        run(place, &[], more).says(&format!("{GONE}~/b, ~/d/1, ~/d/2 and 2 more; "));
        // The control: what is said is right.
        let kept = run(place, &["-w", &shown("note.txt")], "echo a > ~/note.txt");
        assert!(!kept.err.contains("gone"), "{}", kept.err);
        assert_eq!(fs::read_to_string(place.at("home/note.txt")).unwrap(), "a\n");
    });
}

#[test]
fn nothing_is_told_where_nothing_of_weight_was_written() {
    everywhere(|place| {
        place.directory("home/granted");
        let granted = place.text("home/granted");
        let act = "echo > ~/.hidden; touch ~/empty; mkdir -p ~/.cache/x ~/go/pkg ~/d/.h; echo > ~/go/pkg/a; echo > ~/.cache/a; \
                   echo > ~/d/.h/a; ln -s / ~/root; ln -s project ~/e; echo > ~/granted/a; echo > new; \
                   echo > ~/project/other";
        let quiet = run(place, &["-w", &granted], act);
        assert!(!quiet.err.contains("gone"), "{}", quiet.err);
        assert!(place.at("home/granted/a").exists() && place.project("other").exists());
        if place.tier_name() == "namespace" {
            let kept = run(place, &["--home", "mine"], "echo > ~/note");
            assert!(!kept.err.contains("gone"), "{}", kept.err);
        }
    });
}

#[test]
fn what_was_left_there_holds_nobody_up_and_writes_no_terminal() {
    everywhere(|place| {
        let act = "mkfifo ~/fifo ~/a; ln -s /dev/tty ~/tty; ln -s ~ ~/loop; mkdir ~/closed; echo > ~/closed/a; \
                   chmod 0 ~/closed; echo > \"$(printf '%s/\\033[2J' ~)\"";
        let told = run(place, &[], act);
        told.says(&format!("{GONE}~/\\u{{1b}}[2J"));
        assert!(!told.err.contains('\u{1b}'), "{}", told.err);
    });
}
