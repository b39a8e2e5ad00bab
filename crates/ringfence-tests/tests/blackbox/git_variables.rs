//! Programs that variables have git run, and others that take an editor or a pager from one.

use ringfence_tests::{Running, everywhere};
use std::fs;

/// A variable, its value below the project, and what it leads to that is run. Without a file that is there, it is made.
const VARIABLES: [(&str, &str, &str); 14] = [
    ("GIT_SSH", "tools/ssh", "tools/ssh"),
    ("GIT_SSH_COMMAND", "tools/ssh -v", "tools/ssh"),
    ("GIT_EDITOR", "tools/ed --wait", "tools/ed"),
    ("GIT_SEQUENCE_EDITOR", "tools/ed", "tools/ed"),
    ("GIT_PAGER", "tools/page", "tools/page"),
    ("GIT_EXTERNAL_DIFF", "tools/diff", "tools/diff"),
    ("GIT_ASKPASS", "tools/ask me", "tools/ask me"),
    ("GIT_PROXY_COMMAND", "tools/proxy", "tools/proxy"),
    ("GIT_TEMPLATE_DIR", "tools", "tools/hooks/pre-commit"),
    ("GIT_EXEC_PATH", "tools", "tools/git-x"),
    ("EDITOR", "tools/ed", "tools/ed"),
    ("VISUAL", "tools/ed", "tools/ed"),
    ("PAGER", "tools/page", "tools/page"),
    ("SSH_ASKPASS", "tools/ask", "tools/ask"),
];

/// Writes files inside, with what they are in.
fn write(files: &[&str]) -> String {
    let one = |file: &&str| format!("(mkdir -p \"$(dirname '{file}')\"; echo EVIL > '{file}');");
    files.iter().map(one).collect::<String>() + "true"
}

#[test]
fn what_variables_have_git_run_is_not_written() {
    everywhere(|place| {
        for (variable, value, file) in VARIABLES {
            for there in [true, false] {
                let _ = fs::remove_dir_all(place.project("tools"));
                place.directory("home/project/tools");
                if there {
                    place.file(format!("home/project/{file}"), "host\n");
                }
                place.file("home/project/tools.txt", "host\n");
                place.clock_moves_on();
                let run = |value: String| {
                    let mut command = place.ringfence_run();
                    let act = write(&[file, "tools.txt"]);
                    command.env(variable, value).args(["--", "sh", "-c", &act]);
                    let run = Running::start(command).finish();
                    let text = |file| fs::read_to_string(place.project(file)).unwrap_or_default();
                    assert_eq!(text("tools.txt"), "EVIL\n", "the control: {}", run.err);
                    (text(file), run.err)
                };
                let wanted = if there { "host\n" } else { "" };
                let (text, said) = run(format!("{}/{value}", place.project("").display()));
                assert_eq!(text, wanted, "{variable} {there}: {said}");
                // The plan that was kept is of that value.
                let (text, said) = run("/usr/bin/true".to_owned());
                assert_eq!(text, "EVIL\n", "{variable}: {said}");
            }
        }
    });
}
