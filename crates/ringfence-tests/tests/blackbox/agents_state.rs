//! What agents keep is writable to them: not what programs outside run of it, nor the agent itself.

use ringfence_tests::{Finished, Place, Running, Tier, everybody, everywhere, write_program};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

fn program(place: &Place, name: impl AsRef<Path>, text: &str) -> PathBuf {
    place.program(name, text)
}

/// Runs what is found by its name in a directory of the home.
fn by_name(place: &Place, directory: &str, options: &[&str], name: &str) -> Finished {
    let mut command = place.ringfence_run();
    let search = format!("{}:/usr/bin:/bin", place.text(directory));
    command.env("PATH", search).args(options).args(["--", name]);
    Running::start(command).finish()
}

fn text(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap()
}

/// Who replaces what it was started from, by a file and by a link, and then writes what is its own.
const REPLACES: &str = "#!/bin/sh
cd \"$STATE\" || exit 9
echo planted > new
mv new \"$PROGRAM\" && echo replaced the program
ln -s /bin/true link && mv -T link \"$CURRENT\" && echo replaced the link
echo kept > own
exit 4
";

/// Codex's standalone installer puts the program into the state that the preset makes writable.
#[test]
fn codex_does_not_replace_itself() {
    everywhere(|place| {
        let standalone = "home/.codex/packages/standalone";
        let text_of = REPLACES
            .replace("$STATE", &place.text("home/.codex"))
            .replace("$PROGRAM", "packages/standalone/releases/1/bin/codex")
            .replace("$CURRENT", "packages/standalone/current");
        let codex = program(place, format!("{standalone}/releases/1/bin/codex"), &text_of);
        let current = place.link(format!("{standalone}/current"), "releases/1");
        place.directory("home/.local/bin");
        place.link("home/.local/bin/codex", place.at(format!("{standalone}/current/bin/codex")));
        let run = by_name(place, "home/.local/bin", &[], "codex");
        run.ends(4);
        if place.tier == Tier::Namespace {
            run.says("Read-only file system");
        }
        assert_eq!(text(&codex), text_of);
        assert_eq!(codex.metadata().unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(fs::read_link(current).unwrap(), Path::new("releases/1"));
        // The control: its state is its own.
        assert_eq!(text(place.at("home/.codex/own")), "kept\n");
    });
}

/// The same where no list has the name: a program that is found in `PATH`, in a tree that may be written.
#[test]
fn a_program_from_the_path_does_not_replace_itself() {
    everywhere(|place| {
        let text_of = REPLACES
            .replace("$STATE", &place.text("home/tools"))
            .replace("$PROGRAM", "some/tool")
            .replace("$CURRENT", "bin/tool");
        let tool = program(place, "home/tools/some/tool", &text_of);
        place.directory("home/tools/bin");
        let link = place.link("home/tools/bin/tool", "../some/tool");
        let tools = place.text("home/tools");
        let profile = "extends = [\"default\"]\n[filesystem]\nwrite = [\"~/tools\"]\n";
        place.file("home/.config/ringfence/profiles/tools.toml", profile);
        let run = by_name(place, "home/tools/bin", &["-p", "tools"], "tool");
        run.ends(4);
        if place.tier == Tier::Namespace {
            run.says("Read-only file system").says("Device or resource busy");
        }
        assert_eq!(text(&tool), text_of);
        assert_eq!(fs::read_link(link).unwrap(), Path::new("../some/tool"));
        assert_eq!(text(place.at("home/tools/own")), "kept\n");
        // Who names the tree for a run means to have it written.
        let run = by_name(place, "home/tools/bin", &["-w", &tools], "tool");
        run.ends(4).prints("replaced the program");
        assert_eq!(text(&tool), "planted\n");
    });
}

/// What a profile is for is protected whatever starts it, and `why` says so: of a profile that names its program, and
/// of a command that it is told.
#[test]
fn why_knows_the_program_that_a_run_starts() {
    everywhere(|place| {
        let honest = "#!/bin/sh\n";
        let tool = program(place, "home/tools/bin/tool", honest);
        let other = place.file("home/tools/other", honest);
        let profile = "extends = [\"default\"]\n[filesystem]\nwrite = [\"~/tools\"]\n";
        place.file("home/.config/ringfence/profiles/tree.toml", profile);
        place.file(
            "home/.config/ringfence/profiles/tool.toml",
            format!("programs = [\"tool\"]\n{profile}"),
        );
        let search = format!("{}:/usr/bin:/bin", place.text("home/tools/bin"));
        let asked = |options: &[&str], path: &Path| {
            let mut command = place.command(ringfence_tests::binary());
            command.arg("why").args(["--tier", place.tier_name()]).args(options);
            command.env("PATH", &search).args(["--", "write"]).arg(path);
            Running::start(command).finish()
        };
        let runs = |options: &[&str], words: &[&str]| {
            let mut command = place.ringfence_run();
            command.env("PATH", &search).args(options).arg("--").args(words);
            Running::start(command).finish()
        };
        let plant = format!("echo planted > {}; true", tool.display());
        for (options, words) in [
            (&["-p", "tool"][..], &["sh", "-c", &plant][..]),
            (&["-p", "tree", "--for", "tool"], &["tool"]),
            (&["--for", "tool"], &["tool"]),
        ] {
            asked(options, &tool).ends(1).prints("the command is started from there");
            asked(options, &other).ends(0);
            let without_for: Vec<&str> = match options {
                ["-p", profile, ..] => vec!["-p", profile],
                _ => vec![],
            };
            let script =
                if words == ["tool"] { format!("#!/bin/sh\n{plant}\n") } else { honest.into() };
            write_program(&tool, &script);
            runs(&without_for, words).ends(0);
            assert_eq!(text(&tool), script, "{options:?}");
        }
        // The control: a profile that names no program, and another command.
        asked(&["-p", "tree"], &tool).ends(0);
        runs(&["-p", "tree"], &["sh", "-c", &plant]).ends(0);
        assert_eq!(text(&tool), "planted\n");
        // What it says to type is so.
        let named = place.text("home/tools/bin");
        asked(&["--for", "tool"], &tool).ends(1).prints(&format!("--write {named}"));
        asked(&["--for", "tool", "-w", &named], &tool).ends(0);
        write_program(&tool, format!("#!/bin/sh\n{plant}\n"));
        runs(&["-w", &named], &["tool"]).ends(0);
        assert_eq!(text(&tool), "planted\n");
    });
}

/// A program too large to be remembered is seen to be another one, and taken away.
#[test]
fn a_large_program_is_not_exchanged_in_the_process_tier() {
    everybody(Tier::Process, |place| {
        let large = place.file("home/.codex/packages/codex", vec![b'x'; 17 << 20]);
        let script = "echo planted > ~/.codex/packages/codex";
        let run = place.sh(&["-p", "codex"], "true");
        run.ends(0);
        assert_eq!(large.metadata().unwrap().len(), 17 << 20, "the control");
        // What is made and changed beside it is no reason to move it.
        let small = place.file("home/.codex/packages/a/small", "honest\n");
        place.clock_moves_on();
        let beside = "cd ~/.codex/packages; echo x > junk; echo x > a/junk; echo x > a/small; \
                      head -c 16777215 /dev/zero > 0";
        place.sh(&["-p", "codex"], beside).ends(0).says("junk was created inside");
        assert_eq!(large.metadata().unwrap().len(), 17 << 20);
        assert_eq!(text(&small), "honest\n");
        let names = fs::read_dir(large.parent().unwrap()).unwrap().count();
        assert_eq!(names, 2, "the program and its directory");
        place.sh(&["-p", "codex"], script).ends(0).says("too large to be kept");
        assert!(!large.exists());
    });
}

/// A profile, a file of its state that is run outside, and one that is there for nothing else.
const STATE: [(&str, &str, &str); 11] = [
    ("opencode", ".local/share/opencode/bin/gopls", ".local/share/opencode/log"),
    ("copilot", ".copilot/pkg/linux-x64/1/index.js", ".copilot/log"),
    ("copilot", ".copilot/installed-plugins/x/hooks.json", ".copilot/log"),
    ("codex", ".codex/plugins/cache/x/hooks.json", ".codex/log"),
    ("codex", ".codex/agents/x.toml", ".codex/log"),
    ("claude", ".claude/chrome/chrome-native-host", ".claude/log"),
    ("gemini", ".gemini/tmp/bin/rg", ".gemini/log"),
    ("qwen", ".qwen/skills/x/SKILL.md", ".qwen/log"),
    ("pi", ".pi/agent/extensions/x.ts", ".pi/agent/sessions/log"),
    ("goose", ".local/share/goose/scheduled_recipes/x.yaml", ".local/share/goose/log"),
    ("cursor-agent", ".cursor/hooks/x.sh", ".cursor/log"),
];

#[test]
fn what_is_run_of_an_agents_state_stays_what_it_was() {
    everywhere(|place| {
        for (profile, run_outside, own) in STATE {
            let held = place.file(format!("home/{run_outside}"), "honest\n");
            let beside = held.with_file_name("new");
            let script = format!("echo planted > ~/{run_outside}; echo kept > ~/{own}");
            let run = place.sh(&["-p", profile], &script);
            run.ends(0);
            if place.tier == Tier::Namespace {
                run.says("Read-only file system");
            }
            assert_eq!(text(&held), "honest\n", "{profile}");
            assert_eq!(text(place.at("home").join(own)), "kept\n", "{profile}: the control");
            // Nor does a new one stay.
            fs::remove_file(&held).unwrap();
            fs::remove_dir(held.parent().unwrap()).unwrap();
            let directory = Path::new(run_outside).parent().unwrap().display();
            place.sh(
                &["-p", profile],
                &format!("mkdir -p ~/{directory}; echo planted > ~/{run_outside}"),
            );
            assert!(!held.exists() && !beside.exists(), "{profile}");
        }
    });
}

/// Claude Code and Codex source what they keep of the user's shell before each command, in sessions outside too.
#[test]
fn snapshots_of_shells_are_of_one_session() {
    everywhere(|place| {
        for (profile, directory) in [
            ("claude", ".claude/shell-snapshots"),
            ("claude", ".claude/session-env"),
            ("codex", ".codex/shell_snapshots"),
        ] {
            let theirs = place.file(format!("home/{directory}/theirs.sh"), "honest\n");
            let script = format!(
                "cd ~/{directory} && echo planted >> theirs.sh; echo own > own.sh && . ./own.sh 2>&-; cat own.sh"
            );
            place.sh(&["-p", profile], &script).ends(0).prints("own");
            assert_eq!(text(&theirs), "honest\n", "{directory}");
            assert!(!theirs.with_file_name("own.sh").exists(), "{directory}");
            if place.tier == Tier::Namespace {
                let run = place.sh(&["-p", profile], &format!("ls -A ~/{directory}; echo end"));
                assert_eq!(run.quiet(), "end", "{directory}");
                // Nor can it be moved out of the way, or be replaced.
                let run =
                    place.sh(&["-p", profile], &format!("mv ~/{directory} ~/{directory}.old"));
                run.ends(1).says("Device or resource busy");
            }
        }
    });
}

/// Where there is none yet, there is one, and it stays empty.
#[test]
fn snapshots_of_shells_begin_empty() {
    everybody(Tier::Namespace, |place| {
        let run = place.sh(&["-p", "claude"], "echo x > ~/.claude/shell-snapshots/new.sh");
        assert_eq!(run.quiet(), "");
        let left = fs::read_dir(place.at("home/.claude/shell-snapshots")).unwrap().count();
        assert_eq!(left, 0);
        let why = place.ringfence(["why", "-p", "claude", "write", "~/.claude/shell-snapshots/x"]);
        why.ends(0).prints("does not survive the run");
    });
}

/// Who tries a preset before the agent is installed finds nothing of it at home.
#[test]
fn nothing_is_made_for_an_agent_that_is_not_there() {
    everywhere(|place| {
        let state = || place.at("home/.claude").exists() || place.at("home/.claude.json").exists();
        let missing = place.run(&[], &["claude"]);
        missing.ends(127).says("command not found: claude");
        assert!(!state(), "{}", place.shell("ls -a ~").text());
        // The control: one that is there has its state.
        program(place, "home/.local/bin/claude", "#!/bin/sh\necho here\n");
        place.shell("PATH=$HOME/.local/bin:$PATH $RF -- claude").ends(0).prints("here");
        assert!(state());
    });
}
