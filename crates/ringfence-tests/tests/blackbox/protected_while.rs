//! What is taken while the command runs: by its pattern, and where very much of it is made. Each command waits until the
//! name is gone: nothing but the launcher can have taken it.

use ringfence_tests::{Place, Running, Tier, everybody, everywhere, until};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn gone(paths: &[&str]) -> String {
    let there: Vec<String> = paths.iter().map(|path| format!("test -e {path}")).collect();
    format!("while {}; do :; done; echo gone", there.join(" || "))
}

/// How many files are kept of the runs in a place, by what they say.
fn kept(place: &Place, text: &str) -> usize {
    fn below(at: &Path, text: &str) -> usize {
        let entries = fs::read_dir(at).into_iter().flatten().flatten().map(|entry| entry.path());
        let of = |path: std::path::PathBuf| match path.is_dir() {
            true => below(&path, text),
            false => usize::from(fs::read_to_string(&path).is_ok_and(|is| is == text)),
        };
        entries.map(of).sum()
    }
    below(&place.at("home/.local/state/ringfence/quarantine"), text)
}

#[test]
fn names_with_a_pattern_are_gone_while_the_command_runs() {
    everywhere(|place| {
        place.file("home/project/mine.code-workspace", "host's");
        let script = [
            // In the first moment, and each with its directory.
            "for f in a.code-workspace ci.bazelrc; do echo evil > $f; done".to_owned(),
            "mkdir .config; echo evil > .config/mise.toml; echo fine > .config/other".into(),
            gone(&["a.code-workspace", "ci.bazelrc", ".config/mise.toml"]),
            "mkdir mise; echo evil > mise/config.toml; echo evil > mise/config.local.toml".into(),
            gone(&["mise/config.toml", "mise/config.local.toml"]),
            "echo evil > plain; mv plain late.sublime-project".into(),
            gone(&["late.sublime-project"]),
            // What is granted by its name stays.
            "echo fine > granted.bazelrc; echo evil > .envrc".into(),
            gone(&[".envrc"]),
            "cat granted.bazelrc .config/other mine.code-workspace".into(),
        ]
        .join("\n");
        place.file("home/project/granted.bazelrc", "");
        let run = place.sh(&["-w", "granted.bazelrc"], &script);
        assert_eq!(run.ends(0).text(), "gone\ngone\ngone\ngone\nfine\nfine\nhost's", "{}", run.err);
        let told = run.err.lines().filter(|line| line.contains("while the command ran")).count();
        assert_eq!(told, 7, "{}", run.err);
        assert_eq!(kept(place, "evil\n"), 7);
        for (name, text) in [("mine.code-workspace", "host's"), ("granted.bazelrc", "fine\n")] {
            assert_eq!(fs::read_to_string(place.project(name)).unwrap(), text, "{name}");
        }
    });
}

/// The user works with his own workspace's file outside meanwhile.
#[test]
fn a_file_with_a_pattern_that_was_there_stays_the_users() {
    everybody(Tier::Namespace, |place| {
        let workspace = place.file("home/project/mine.code-workspace", "before");
        let mut command = place.ringfence_run();
        let script = format!(
            "echo evil > a.code-workspace; {}; while ! test -e on; do :; done; echo evil > b.code-workspace; {}",
            gone(&["a.code-workspace"]),
            gone(&["b.code-workspace"])
        );
        command.args(["--", "sh", "-c", &script]);
        let run = Running::start(command);
        fs::write(&workspace, "after").unwrap();
        place.file("home/project/on", "");
        run.finish().ends(0);
        assert_eq!(fs::read_to_string(&workspace).unwrap(), "after");
    });
}

/// Many files in a protected directory, and a name of the list made among them: it is gone long before they are looked
/// at, they are taken, and each is kept.
#[test]
fn very_many_names_in_a_protected_directory_are_all_taken_and_kept() {
    const MANY: usize = 1500;
    everybody(Tier::Namespace, |place| {
        let script = format!(
            "n=0; while test $n -lt {MANY}; do n=$((n+1)); \
             until {{ mkdir -p .vscode && echo evil > .vscode/$n; }} 2>/dev/null; do :; done; done; \
             echo listed > .envrc; {}; \
             while ls -A .vscode 2>/dev/null | grep -q .; do :; done; echo end",
            gone(&[".envrc"])
        );
        let run = place.sh(&[], &script);
        assert_eq!(run.ends(0).text(), "gone\nend", "{}", run.err);
        assert_eq!((kept(place, "evil\n"), kept(place, "listed\n")), (MANY, 1), "{}", run.err);
        assert!(!place.project(".vscode").exists());
    });
}

/// At the end of a run, at the top of the tree and below it.
#[test]
fn very_many_protected_names_are_moved_into_one_directory_at_the_end() {
    const MANY: usize = 1200;
    everybody(Tier::Namespace, |place| {
        place.directory("home/project/d");
        let script = format!(
            "n=0; while test $n -lt {MANY}; do n=$((n+1)); echo evil > d/$n.code-workspace; done; \
             echo fine > d/ordinary"
        );
        let run = place.sh(&[], &script);
        run.ends(0).says("more than 1024 protected names were made in");
        assert_eq!(kept(place, "evil\n"), MANY, "{}", run.err);
        let left: Vec<_> = fs::read_dir(place.project("d")).unwrap().flatten().collect();
        assert!(left.len() == 1 && left[0].file_name() == "ordinary", "{left:?}");
    });
}

/// The command waits for a file that is made when so many are kept: it does not look itself, as what it closes is closed
/// to it as well.
fn kept_while(place: &Place, options: &[&str], script: &str, many: usize) {
    let mut command = place.ringfence_run();
    let script = format!("{script}\nwhile ! test -e on; do :; done; echo end");
    command.args(options).args(["--", "sh", "-c", &script]);
    let run = Running::start(command);
    until("what is taken while the command runs", || kept(place, "evil\n") >= many);
    place.file("home/project/on", "");
    let run = run.finish();
    assert_eq!(run.ends(0).text(), "end", "{}", run.err);
    assert_eq!(kept(place, "evil\n"), many, "{}", run.err);
}

#[test]
fn a_closed_directory_hides_no_name_while_the_command_runs() {
    everywhere(|place| {
        let script = "mkdir n; echo evil > n/tasks.json; chmod 000 n; mv n .vscode
            mkdir m; echo evil > m/config; chmod 500 m; mv m .cargo";
        kept_while(place, &[], script, 2);
        let mode = |name: &str| {
            let data = place.project(name).symlink_metadata();
            data.ok().map(|data| data.permissions().mode() & 0o777)
        };
        assert!(matches!(mode(".cargo"), None | Some(0o500)), "{:?}", mode(".cargo"));
        fs::remove_file(place.project("on")).unwrap();
    });
    everywhere(|place| {
        let script = "echo evil > .envrc; chmod 555 .; while ! test -e ended; do :; done";
        let mut command = place.ringfence_run();
        command.args(["--", "sh", "-c", script]);
        let run = Running::start(command);
        until("what is taken while the command runs", || kept(place, "evil\n") == 1);
        fs::set_permissions(place.project(""), fs::Permissions::from_mode(0o755)).unwrap();
        place.file("home/project/ended", "");
        run.finish().ends(0);
    });
}

#[test]
fn a_link_on_the_way_hides_no_name_while_the_command_runs() {
    everywhere(|place| {
        // What is there before the link, what is made behind it later, and one in place of a directory.
        let script = "mkdir a b c .config; echo evil > a/config; ln -s a .cargo
            ln -s b .claude; echo evil > b/settings.json
            rmdir .config; echo evil > c/hk.pkl; ln -s c .config";
        let mut command = place.ringfence_run();
        let script = format!(
            "{script}\n{}",
            gone(&[".cargo/config", ".claude/settings.json", ".config/hk.pkl"])
        );
        command.args(["--", "sh", "-c", &script]);
        let run = Running::start(command).finish();
        assert_eq!(run.ends(0).text(), "gone", "{}", run.err);
        for link in [".cargo", ".claude", ".config"] {
            assert!(!place.project(link).is_symlink(), "{link}");
        }
        // What was in the directories themselves is the program's.
        assert_eq!(fs::read_to_string(place.project("a/config")).unwrap(), "evil\n");
        // A link of the user's stays, as one that leads to nothing of the kind.
        place.directory("home/project/mine");
        place.link("home/project/.cargo", "mine");
        let run = place.sh(&[], "mkdir d; ln -s d .claude; echo fine > .envrc; :");
        run.ends(0);
        assert!(place.project(".cargo").is_symlink());
    });
}

/// Else what becomes of it would tell what there is outside, which the program cannot see.
#[test]
fn a_link_that_leads_out_of_the_tree_is_taken_whatever_is_there() {
    everywhere(|place| {
        place.directory("home/hidden/with/hooks");
        place.directory("home/hidden/without");
        place.directory("home/project/ordinary");
        let hidden = place.text("home/hidden");
        let waits = "while test -L .claude; do :; done; echo gone";
        for name in ["with", "without", "nothing"] {
            let script = format!("! ls {hidden} && ln -s {hidden}/{name} .claude\n{waits}");
            let mut command = place.ringfence_run();
            command.args(["--", "sh", "-c", &script]);
            let run = Running::start(command).finish();
            assert_eq!(run.ends(0).text(), "gone", "{name}: {}", run.err);
            assert!(!place.project(".claude").is_symlink(), "{name}");
        }
        // The control: one into the tree, by its whole path, stays until there is something behind it.
        let inside = place.text("home/project/ordinary");
        let script =
            format!("ln -s {inside} .claude; touch .envrc\n{}\ntest -L .claude", gone(&[".envrc"]));
        place.sh(&[], &script).ends(0);
        assert!(place.project(".claude").is_symlink());
        fs::remove_file(place.project(".claude")).unwrap();
    });
}

/// A name that does not exist, of the user's own configuration, in a directory that is exchanged for another.
#[test]
fn an_exchanged_directory_hides_no_name_while_the_command_runs() {
    everywhere(|place| {
        place.shell("git init -q && git config core.hooksPath tools/hooks").ends(0);
        place.directory("home/project/tools");
        let script = format!(
            "mv tools t2; mkdir -p tools/hooks; echo evil > tools/hooks/pre-commit; {}",
            gone(&["tools/hooks/pre-commit"])
        );
        let run = place.sh(&[], &script);
        assert_eq!(run.ends(0).text(), "gone", "{}", run.err);
        assert_eq!(kept(place, "evil\n"), 1, "{}", run.err);
    });
}
