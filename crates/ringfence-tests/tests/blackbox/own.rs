//! What would decide about later sandboxes, or make an agent run something later: ringfence's own
//! directories, and the settings of agents.

use ringfence_tests::{Place, Running, Tier, everybody, everywhere};
use std::fs;
use std::path::Path;

/// Tries to plant a file in each of ringfence's directories, by their usual places.
const PLANT: &str = "for d in .config .local/state .cache; do \
                     mkdir -p ~/$d/ringfence/planted; echo x > ~/$d/ringfence/file; \
                     mv ~/$d ~/moved; ln -s /tmp ~/$d/ringfence/link; done 2>/dev/null; \
                     ls ~/.cache/ringfence; echo end";

fn planted(place: &Place) -> Vec<String> {
    let bases = [".config", ".local/state", ".cache"];
    let all = bases.iter().flat_map(|base| {
        let names = ["planted", "file", "link"];
        names.map(|name| format!("home/{base}/ringfence/{name}"))
    });
    all.filter(|path| place.at(path).symlink_metadata().is_ok()).collect()
}

#[test]
fn own_directories_are_out_of_reach_in_a_writable_home() {
    everybody(Tier::Namespace, |place| {
        for round in ["absent", "present"] {
            let home = place.text("home");
            let run = place.run(&["-w", &home], &["sh", "-c", PLANT]);
            assert!(run.text().contains("end"), "{round}: {}", run.err);
            assert_eq!(planted(place), [""; 0], "{round}");
            for base in [".config", ".local/state", ".cache"] {
                // Where it was, not renamed away to make room.
                assert!(place.at("home").join(base).join("ringfence").is_dir(), "{round} {base}");
            }
            // The control: beside them, the home is writable.
            place.run(&["-w", &home], &["sh", "-c", "echo x > ~/.cache/beside"]).ends(0);
            assert!(place.at("home/.cache/beside").exists());
            // Compiled plans are not even read.
            place.file("home/.cache/ringfence/plan", "a plan");
            for grant in ["-r", "-w"] {
                let read = place.run(&[grant, &home], &["sh", "-c", "cat ~/.cache/ringfence/plan"]);
                assert_ne!(read.code, 0, "{round}: {}", read.text());
            }
        }
    });
}

#[test]
fn own_directories_are_protected_where_variables_say_they_are() {
    everybody(Tier::Namespace, |place| {
        for variable in ["XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"] {
            let elsewhere = place.directory("home/project/elsewhere");
            let mut command = place.ringfence_run();
            command.env(variable, &elsewhere);
            command.args([
                "--",
                "sh",
                "-c",
                "mkdir -p elsewhere/ringfence/planted; touch elsewhere/beside",
            ]);
            Running::start(command).finish();
            assert!(elsewhere.join("beside").exists(), "{variable}: the control");
            assert!(!elsewhere.join("ringfence/planted").exists(), "{variable}");
            fs::remove_dir_all(&elsewhere).expect("a directory of ours");
        }
    });
}

/// Exchanges a link for a directory of its own, by each way there is; `$1` is the link, `$2` what is below it.
const EXCHANGE: &str = "rm -f $1; mv $1 moved; ln -sfn /tmp $1; mkdir made; mv -T made $1; mkdir -p $1/$2; \
                        echo x > $1/$2/planted; touch beside; true";

#[test]
fn links_on_the_way_to_own_directories_are_not_exchanged() {
    everybody(Tier::Namespace, |place| {
        for (link, below) in [
            (".cache", "ringfence"),
            (".local/state", "ringfence"),
            (".cache/ringfence", "."),
            (".local/state/ringfence", "."),
            (".config/ringfence", "."),
        ] {
            for (number, to) in ["elsewhere/x", "home/dotfiles/x"].into_iter().enumerate() {
                let link = Path::new("home").join(link);
                place.directory(link.parent().expect("a path"));
                let (link, target) = (place.at(link), place.directory(to));
                let _ = fs::remove_file(&link).or_else(|_| fs::remove_dir_all(&link));
                place.link(&link, &target);
                let home = place.text("home");
                let words = [link.to_str().expect("text"), below];
                let mut command = place.ringfence_run();
                command.args(["-w", &home, "--", "sh", "-c", EXCHANGE, "sh"]).args(words);
                let run = Running::start(command).finish();
                // The control: beside it, the home is writable.
                assert!(place.project("beside").exists(), "{link:?} {number}: {}", run.err);
                assert_eq!(
                    fs::read_link(&link).ok().as_ref(),
                    Some(&target),
                    "{link:?}: {}",
                    run.err
                );
                assert!(!target.join(below).join("planted").exists(), "{link:?}");
                fs::remove_file(place.project("beside")).expect("made inside");
                fs::remove_file(&link).expect("a link of ours");
            }
        }
    });
}

#[test]
fn what_a_linked_directory_leads_to_is_protected_there() {
    everybody(Tier::Namespace, |place| {
        place.link("home/.config", place.directory("home/dotfiles/config"));
        let home = place.text("home");
        let script = "mkdir -p ~/.config/fish; echo evil > ~/.config/fish/evil; echo evil > ~/dotfiles/config/fish/too; \
                      echo fine > ~/dotfiles/config/fine; true";
        for round in ["absent", "present"] {
            place.run(&["-w", &home], &["sh", "-c", script]).ends(0);
            let fish = place.at("home/dotfiles/config/fish");
            assert!(!fish.join("evil").exists() && !fish.join("too").exists(), "{round}");
            assert!(place.at("home/dotfiles/config/fine").exists(), "{round}: the control");
            place.file("home/dotfiles/config/fish/config.fish", "");
        }
    });
}

/// Where the tree that a link leads to is writable by itself, what is ringfence's own there is held as well.
#[test]
fn a_linked_directory_in_another_writable_tree_is_protected() {
    everywhere(|place| {
        let target = place.directory("elsewhere/dotfiles/config");
        place.directory("elsewhere/dotfiles/config/ringfence/profiles");
        place.link("home/.config", &target);
        let (home, elsewhere) = (place.text("home"), place.text("elsewhere"));
        let script = "echo evil > ~/.config/ringfence/profiles/evil.toml; cd \"$0\"; \
                      echo evil > dotfiles/config/ringfence/profiles/too.toml; \
                      echo fine > dotfiles/config/fine; true";
        let both = ["-w", &home, "-w", &elsewhere];
        let run = place.run(&both, &["sh", "-c", script, &elsewhere]);
        let profiles = target.join("ringfence/profiles");
        let planted = fs::read_dir(&profiles).map_or(0, |names| names.count());
        assert_eq!(planted, 0, "{}", run.err);
        assert!(run.code == 125 || target.join("fine").exists(), "the control: {}", run.err);
    });
}

/// What is granted exactly is granted where a link leads, too.
#[test]
fn an_exact_grant_behind_a_link_is_one() {
    everybody(Tier::Namespace, |place| {
        place.link("home/.config", place.directory("home/dotfiles/config"));
        place.directory("home/dotfiles/config/fish");
        let (home, fish) = (place.text("home"), place.text("home/.config/fish"));
        let script = "echo mine > ~/.config/fish/config.fish";
        place.run(&["-w", &home, "-w", &fish], &["sh", "-c", script]).ends(0);
        assert!(place.at("home/dotfiles/config/fish/config.fish").exists());
    });
}

#[test]
fn nor_are_those_in_the_directory_of_the_run() {
    everywhere(|place| {
        let target = place.directory("elsewhere/caches");
        let link = place.link("home/project/caches", &target);
        for variable in ["XDG_CACHE_HOME", "XDG_STATE_HOME"] {
            let mut command = place.ringfence_run();
            command.env(variable, &link);
            command.args(["--", "sh", "-c", EXCHANGE, "sh", "caches", "ringfence"]);
            let run = Running::start(command).finish();
            assert_eq!(
                fs::read_link(&link).ok().as_ref(),
                Some(&target),
                "{variable}: {}",
                run.err
            );
            assert!(!target.join("ringfence/planted").exists(), "{variable}");
            match place.tier {
                // Nothing of Landlock's holds a link: refused.
                Tier::Process => _ = run.ends(125).says("--allow-degraded deny"),
                _ => assert!(
                    place.project("beside").exists(),
                    "{variable}: the control: {}",
                    run.err
                ),
            }
            let _ = fs::remove_file(place.project("beside"));
        }
    });
}

#[test]
fn own_directories_are_never_granted_for_writing() {
    everywhere(|place| {
        place.directory("home/.config/ringfence/profiles");
        let own = place.text("home/.config/ringfence/profiles");
        place.run(&["-w", &own], &["true"]).ends(125).says("ringfence's own");
        // By a link, and as the directory of the run.
        place.link("home/project/link", &own);
        place.run(&["-w", "link"], &["true"]).ends(125);
        let mut command = place.ringfence_run();
        command.current_dir(&own).args(["--", "touch", "planted"]);
        let run = Running::start(command).finish();
        assert_ne!(run.code, 0, "{}", run.err);
        assert!(!place.at("home/.config/ringfence/profiles/planted").exists());
    });
}

/// By a rule for just that a session's socket would be connected to; and by a link that leads there, which an earlier run
/// made.
#[test]
fn own_directories_of_sessions_and_plans_are_never_shown() {
    everywhere(|place| {
        for base in [".local/state", ".cache"] {
            let own =
                place.directory(format!("home/{base}/ringfence/sessions")).display().to_string();
            place
                .run(&["-r", &own], &["true"])
                .ends(125)
                .says("ringfence's own, and not shown inside");
            place.directory("home/other");
            place.link("home/other/data", &own);
            let link = place.text("home/other/data");
            place.run(&["-r", &link], &["true"]).ends(125).says("ringfence's own");
            fs::remove_file(link).unwrap();
        }
        // The control: profiles are read.
        let profiles = place.directory("home/.config/ringfence/profiles").display().to_string();
        place.run(&["-r", &profiles], &["ls", &profiles]).ends(0);
    });
}

#[test]
fn the_process_tier_refuses_what_it_cannot_hold() {
    everybody(Tier::Process, |place| {
        let home = place.text("home");
        place.run(&["-w", &home], &["true"]).ends(125).says("--allow-degraded deny");
        // Accepted, it is put right when the run is over.
        let options = ["-w", &home, "--allow-degraded", "deny"];
        place.run(&options, &["sh", "-c", PLANT]);
        assert_eq!(planted(place), [""; 0]);
    });
}

const CLAUDE: &str = r#"{"numStartups": 1, "mcpServers": {"docs": {"command": "docs"}}}"#;

/// Runs a script as what the preset of an agent is for.
fn agent(place: &Place, name: &str, script: &str) -> ringfence_tests::Finished {
    place.run(&["-p", name, "--network", "none"], &["sh", "-c", script])
}

#[test]
fn settings_may_change_but_for_what_runs_or_trusts() {
    everywhere(|place| {
        let file = place.file("home/.claude.json", CLAUDE);
        let evil = r#"{"numStartups": 2, "mcpServers": {"docs": {"command": "evil"}}, "hooks": {"Stop": "evil"},
            "projects": {"/x": {"hasTrustDialogAccepted": true, "allowedTools": ["evil"], "lastCost": 5}}}"#;
        let script = format!("cat > ~/.claude.json <<'END'\n{evil}\nEND");
        let run = agent(place, "claude", &script);
        run.ends(0).says(".claude.json").says("mcpServers");
        let text = fs::read_to_string(&file).expect("a file");
        let now: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert!(!text.contains("evil") && !text.contains("hasTrustDialogAccepted"), "{text}");
        assert_eq!(now["numStartups"], 2);
        assert_eq!(now["projects"]["/x"]["lastCost"], 5);
        assert_eq!(now["mcpServers"]["docs"]["command"], "docs");
        // What runs nothing is kept as it was written, without a word.
        let run = agent(
            place,
            "claude",
            "echo '{\"numStartups\": 3, \"mcpServers\": {\"docs\": {\"command\": \"docs\"}}}' > ~/.claude.json",
        );
        assert_eq!(run.err, "");
        assert!(fs::read_to_string(&file).expect("a file").starts_with("{\"numStartups\": 3"));
    });
}

#[test]
fn settings_that_cannot_be_read_become_what_they_were() {
    everywhere(|place| {
        let file = place.file("home/.claude.json", CLAUDE);
        let scripts = [
            "echo '{\"mcpServers\": {' > ~/.claude.json",
            ": > ~/.claude.json",
            "rm -f ~/.claude.json; ln -s /tmp/x ~/.claude.json; true",
            "rm -f ~/.claude.json; mkdir ~/.claude.json; true",
            "rm -f ~/.claude.json; mkfifo ~/.claude.json; true",
            "mv ~/.claude.json ~/.claude/moved; true",
        ];
        for script in scripts {
            agent(place, "claude", script);
            assert!(file.symlink_metadata().expect("there").is_file(), "{script}");
            assert_eq!(fs::read_to_string(&file).expect("a file"), CLAUDE, "{script}");
        }
    });
}

#[test]
fn what_an_agent_follows_everywhere_is_not_planted() {
    everywhere(|place| {
        let cases = [
            ("claude", ".claude/.config.json"),
            ("claude", ".claude/CLAUDE.md"),
            ("claude", ".claude/settings.json"),
            ("codex", ".codex/config.toml"),
            ("codex", ".codex/AGENTS.md"),
            ("codex", ".codex/skills/evil/SKILL.md"),
            ("codex", ".codex/packages/app-server-daemon/current/bin/codex"),
            ("codex", ".codex/app-server-control/app-server-control.sock"),
            ("codex", ".codex/plugins/evil/hooks.json"),
            ("claude", ".claude/workflows/evil.js"),
            ("claude", ".claude/scheduled_tasks.json"),
            ("claude", ".claude/jobs/evil/state.json"),
            ("claude", ".claude/shell-snapshots/snapshot-bash-1.sh"),
            ("gemini", ".gemini/.env"),
            ("gemini", ".gemini/GEMINI.md"),
            ("gemini", ".gemini/extensions/evil/x"),
            ("gemini", ".gemini/bin/evil"),
            ("qwen", ".qwen/settings.json"),
            ("qwen", ".qwen/extensions/evil/x"),
            ("qwen", ".qwen/locales/evil.js"),
            ("qwen", ".qwen/output-language.md"),
            ("cursor-agent", ".cursor/mcp.json"),
            ("copilot", ".copilot/mcp-config.json"),
            ("copilot", ".copilot/hooks/evil.json"),
            ("copilot", ".copilot/pkg/linux-x64/9.9.9/app.js"),
            ("copilot", ".copilot/installed-plugins/evil/plugin.json"),
            ("aider", ".aider/oauth-keys.env"),
        ];
        for (name, path) in cases {
            let script =
                format!("mkdir -p $(dirname ~/{path}); echo evil > ~/{path}; cat ~/{path}");
            let run = agent(place, name, &script);
            assert!(!place.at("home").join(path).exists(), "{name} {path}: {}", run.err);
            // The control: its state is kept.
            let top = path.split('/').next().unwrap_or_default();
            agent(place, name, &format!("echo kept > ~/{top}/state")).ends(0);
            assert!(place.at("home").join(top).join("state").exists(), "{name}");
        }
    });
}

#[test]
fn judged_settings_of_other_agents() {
    everywhere(|place| {
        for (name, path, harmless) in [
            ("gemini", ".gemini/settings.json", r#""ui":{"theme":"dark"}"#),
            ("cursor-agent", ".cursor/cli-config.json", r#""version":1"#),
            ("copilot", ".copilot/config.json", r#""banner":"never""#),
        ] {
            let evil = r#""mcpServers":{"x":{"command":"evil"}},"trustedFolders":["/evil"],"permissions":{"allow":["evil"]}"#;
            let script = format!("echo '{{{harmless},{evil}}}' > ~/{path}");
            agent(place, name, &script).ends(0);
            let text = fs::read_to_string(place.at("home").join(path)).expect("kept");
            assert!(!text.contains("evil"), "{name}: {text}");
            let key = harmless.split('"').nth(1).unwrap_or_default();
            assert!(text.contains(key), "{name}: {text}");
        }
    });
}

/// Copilot writes its file so, and outside runs the newest version of itself that it finds in `pkg`.
#[test]
fn settings_below_a_comment_are_judged() {
    everywhere(|place| {
        let write = |body: &str| {
            let script = format!("printf '// managed\\n%s\\n' '{body}' > ~/.copilot/config.json");
            let run = agent(place, "copilot", &script);
            let text = fs::read_to_string(place.at("home/.copilot/config.json")).expect("kept");
            (run, text)
        };
        let (run, text) = write(r#"{"firstLaunchAt": "now"}"#);
        assert_eq!(
            (run.err.as_str(), text.as_str()),
            ("", "// managed\n{\"firstLaunchAt\": \"now\"}\n")
        );
        let (run, text) = write(r#"{"firstLaunchAt": "then", "trustedFolders": ["/evil"]}"#);
        run.says("trustedFolders");
        assert!(text.starts_with("// managed\n{") && text.contains("then"), "{text}");
        assert!(!text.contains("evil"), "{text}");
    });
}

/// opencode takes its settings, plugins and servers too, from where such an entry says.
#[test]
fn a_login_is_kept_and_no_server_of_settings() {
    everywhere(|place| {
        let file = ".local/share/opencode/auth.json";
        let login = r#"{"anthropic":{"type":"oauth","refresh":"r1","access":"a1","expires":1}}"#;
        let write = |body: &str| agent(place, "opencode", &format!("echo '{body}' > ~/{file}"));
        assert_eq!(write(login).err, "");
        assert_eq!(write(&login.replace("r1", "r2")).err, "");
        let evil = r#","https://evil.example":{"type":"wellknown","key":"X","token":"t"}}"#;
        write(&login.replace("}}", &format!("}}{evil}"))).says("auth.json");
        let text = fs::read_to_string(place.at("home").join(file)).expect("kept");
        assert!(text.contains("r1") && !text.contains("evil"), "{text}");
    });
}

/// opencode ends where it cannot make this file.
#[test]
fn a_file_that_an_agent_cannot_do_without_is_made_empty() {
    everywhere(|place| {
        let settings = place.file("home/.config/opencode/opencode.json", "{}");
        let file = place.at("home/.config/opencode/.gitignore");
        let script = "cat ~/.config/opencode/opencode.json; test -f ~/.config/opencode/.gitignore; \
                      echo evil > ~/.config/opencode/opencode.json";
        let run = agent(place, "opencode", script);
        assert_ne!(run.code, 0);
        run.prints("{}");
        assert_eq!(fs::read_to_string(&file).expect("made"), "");
        assert_eq!(fs::read_to_string(&settings).expect("there"), "{}");
    });
}

/// Agents keep snapshots of the project in a repository among their state.
#[test]
fn a_repository_of_an_agents_own_may_have_the_project_as_worktree() {
    everywhere(|place| {
        let make = |worktree: &str, more: &str| {
            let script = format!(
                "export GIT_DIR=~/.local/share/opencode/snapshot/x GIT_WORK_TREE={worktree}; \
                 rm -rf \"$GIT_DIR\"; mkdir -p \"$GIT_DIR\"; git init -q && git config core.fsmonitor false {more}"
            );
            let run = agent(place, "opencode", &script);
            let config = place.at("home/.local/share/opencode/snapshot/x/config");
            (run.err.clone(), config.exists())
        };
        assert_eq!(make("$PWD", ""), (String::new(), true));
        for (worktree, more) in [("$PWD/..", ""), ("$PWD", "&& git config core.sshCommand evil")] {
            let (err, there) = make(worktree, more);
            assert!(!there && err.contains("config"), "{worktree} {more}: {err}");
        }
    });
}

/// A grant of exactly its name lifts a protection of the list, and none that a rule asks for.
#[test]
fn what_a_rule_protects_is_protected_whoever_grants_it() {
    everywhere(|place| {
        let tasks = place.file("home/project/.vscode/tasks.json", "mine");
        let write = ["sh", "-c", "echo theirs > .vscode/tasks.json; cat .vscode/tasks.json"];
        let run = place.run(&["-w", ".vscode", "--protect", ".vscode"], &write);
        assert_eq!(fs::read_to_string(&tasks).expect("there"), "mine", "{}", run.err);
        // The control.
        place.run(&["-w", ".vscode"], &write).ends(0).prints("theirs");
        assert_eq!(fs::read_to_string(&tasks).expect("there"), "theirs\n");
    });
}

/// Whoever clones a repository into a protected directory hears of it in a few words.
#[test]
fn many_files_of_one_protected_name_are_told_in_one_sentence() {
    everybody(Tier::Namespace, |place| {
        let script = "for n in $(seq 40); do mkdir -p ~/.claude/plugins/a; \
                      echo x > ~/.claude/plugins/a/$n; done; \
                      until ! ls ~/.claude/plugins/a/* >/dev/null 2>&1; do sleep 0.01; done";
        let run = agent(place, "claude", script);
        assert!(run.err.lines().count() <= 8, "{}", run.err);
        run.says("more of what was created in it inside was moved to");
        assert!(!place.at("home/.claude/plugins").exists());
    });
}

#[test]
fn codex_makes_its_own_skills_without_a_word() {
    everywhere(|place| {
        let script =
            "mkdir -p ~/.codex/skills/.system/x; echo x > ~/.codex/skills/.system/x/SKILL.md";
        let run = agent(place, "codex", script);
        assert_eq!(run.err, "", "nothing is said");
        run.ends(0);
        assert!(!place.at("home/.codex/skills").exists());
        let run = agent(place, "codex", &format!("{script}; mkdir ~/.codex/skills/evil"));
        run.ends(0).says("skills/evil");
        assert!(!place.at("home/.codex/skills").exists());
    });
}
