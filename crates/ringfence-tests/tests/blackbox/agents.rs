//! Hooks in agents' settings: they put commands behind the sandbox, and go without a trace.

use ringfence_tests::{Person, Place, Tier, everybody};
use std::fs;

const AGENTS: [(&str, &str); 5] = [
    ("--claude", ".claude/settings.json"),
    ("--codex", ".codex/hooks.json"),
    ("--gemini", ".gemini/settings.json"),
    ("--cursor", ".cursor/hooks.json"),
    ("--opencode", ".config/opencode/plugins/ringfence.js"),
];

fn hooks(place: &Place, words: &[&str]) -> ringfence_tests::Finished {
    place.ringfence([&["hooks"], words].concat())
}

#[test]
fn what_was_there_comes_back_byte_for_byte() {
    everybody(Tier::Namespace, |place| {
        for (agent, file) in AGENTS {
            let path = place.at("home").join(file);
            hooks(place, &["install", agent]).ends(0);
            assert!(path.exists(), "{agent}");
            hooks(place, &["uninstall", agent]).ends(0);
            assert!(!path.exists(), "{agent}: there was none");
            let parent = path.parent().unwrap();
            assert!(!parent.exists(), "{agent}: nor was its directory");
            // What somebody put something into stays, and so does what was there.
            hooks(place, &["install", agent]).ends(0);
            fs::write(parent.join("own"), "").unwrap();
            hooks(place, &["uninstall", agent]).ends(0);
            assert!(parent.join("own").exists() && !path.exists(), "{agent}");
            fs::remove_file(parent.join("own")).unwrap();
            hooks(place, &["install", agent]).ends(0);
            hooks(place, &["uninstall", agent]).ends(0);
            assert!(parent.exists(), "{agent}: it was there already");
            hooks(place, &["uninstall", agent]).ends(125).says("holds no hook");
            if agent == "--opencode" {
                continue;
            }
            let odd = "{\"z\":  1,\n\t\"hooks\": {\"Other\": [] }, \"a\": 2}";
            place.file(format!("home/{file}"), odd);
            hooks(place, &["install", agent, "--", "-n", "example.org"]).ends(0);
            hooks(place, &["install", agent]).ends(0);
            let now = fs::read_to_string(&path).unwrap();
            assert_eq!(now.matches("hooks answer").count(), 1, "installed twice is once: {now}");
            hooks(place, &["uninstall", agent]).ends(0);
            assert_eq!(fs::read_to_string(&path).unwrap(), odd, "{agent}");
            // Changed by its user meanwhile: only the hook goes.
            hooks(place, &["install", agent]).ends(0);
            let changed = fs::read_to_string(&path).unwrap().replace("\"a\": 2", "\"a\": 3");
            fs::write(&path, changed).unwrap();
            hooks(place, &["uninstall", agent]).ends(0).says("was changed since");
            let now = fs::read_to_string(&path).unwrap();
            assert_eq!(now, odd.replace("\"a\": 2", "\"a\": 3"), "{agent}");
            // So it is where the hook's own lines have a neighbour by now: all else stays.
            hooks(place, &["install", agent]).ends(0);
            let changed = fs::read_to_string(&path).unwrap();
            let changed = changed.replacen("\"hooks\": {", "\"hooks\": {\n    \"Mine\": [7],", 1);
            fs::write(&path, &changed).unwrap();
            hooks(place, &["uninstall", agent]).ends(0).says("was changed since");
            let now = fs::read_to_string(&path).unwrap();
            assert!(changed.starts_with(now.split("[7],").next().unwrap()), "{now}");
            let now: serde_json::Value = serde_json::from_str(&now).unwrap();
            let wanted = serde_json::json!({"z": 1, "a": 3, "hooks": {"Mine": [7], "Other": []}});
            assert_eq!(now, wanted, "{agent}");
        }
    });
}

/// One that is wrong would end each command of the agent's.
#[test]
fn options_of_a_hook_are_looked_at_when_it_is_installed() {
    everybody(Tier::Namespace, |place| {
        for (agent, file) in AGENTS {
            for (options, told) in [
                (&["-n", "bad host"][..], "bad host"),
                (&["-p", "clade"], "the nearest is `claude`"),
                (&["--memory", "4GX"], "4GX"),
                (&["--network", "none", "-n", "x.example"], "leave one of the two out"),
            ] {
                for verb in ["install", "print"] {
                    let words = [&[verb, agent, "--"], options].concat();
                    hooks(place, &words).ends(125).says(told);
                }
                assert!(!place.at("home").join(file).exists(), "{agent} {options:?}");
            }
            // What is there where the agent will work is not known here.
            let fine = ["install", agent, "--", "-p", "claude", "-n", "x.example", "-r", "build"];
            hooks(place, &fine).ends(0);
            assert!(place.at("home").join(file).exists(), "{agent}");
        }
    });
}

/// What was there before the hook is what the user had, though he installed it twice and edited in between.
#[test]
fn a_hook_that_was_installed_again_after_an_edit_goes_without_a_trace() {
    everybody(Tier::Namespace, |place| {
        for (agent, file) in AGENTS.into_iter().filter(|(agent, _)| *agent != "--opencode") {
            for text in [
                "{\n  \"version\": 1,\n  \"model\": \"x\"\n}\n",
                "{\"hooks\": {}, \"version\":1,  \"model\":  \"x\"}",
            ] {
                let path = place.file(format!("home/{file}"), text);
                let now = || fs::read_to_string(&path).unwrap();
                hooks(place, &["install", agent]).ends(0);
                fs::write(&path, now().replace("\"x\"", "\"y\"")).unwrap();
                hooks(place, &["install", agent, "--", "-n", "example.org"]).ends(0);
                assert_eq!(now().matches("hooks answer").count(), 1, "{agent}: {}", now());
                hooks(place, &["uninstall", agent]).ends(0).says("is what it was");
                assert_eq!(now(), text.replace("\"x\"", "\"y\""), "{agent}");
                hooks(place, &["uninstall", agent]).ends(125).says("holds no hook");
            }
        }
    });
}

/// The hooks of several agents go in and out together, or not at all.
#[test]
fn hooks_of_several_agents_are_installed_all_or_none() {
    everybody(Tier::Namespace, |place| {
        let path = |file: &str| place.at("home").join(file);
        let all: Vec<&str> = AGENTS.iter().map(|(agent, _)| *agent).collect();
        let words = |verb| [&[verb][..], &all[..]].concat();
        let damaged = place.file("home/.codex/hooks.json", "[]");
        hooks(place, &words("install")).ends(125).says("codex");
        for (agent, file) in AGENTS {
            assert!(agent == "--codex" || !path(file).exists(), "{agent}");
        }
        fs::remove_file(damaged).unwrap();
        // One that cannot be written, by root neither.
        let there = place.file("home/.claude/settings.json", "{\"mine\": 1}");
        place.link("home/.config/opencode", "nowhere/opencode");
        let refused = hooks(place, &words("install"));
        assert!(refused.code == 125 && refused.err.contains("plugins"), "{}", refused.err);
        assert_eq!(fs::read_to_string(&there).unwrap(), "{\"mine\": 1}");
        for (agent, file) in AGENTS {
            assert!(agent == "--claude" || !path(file).exists(), "{agent}");
        }
        hooks(place, &["uninstall", "--claude"]).ends(125).says("holds no hook");
        fs::remove_file(there).unwrap();
        fs::remove_file(place.at("home/.config/opencode")).unwrap();
        hooks(place, &words("install")).ends(0);
        for (agent, file) in AGENTS {
            let text = fs::read_to_string(path(file)).unwrap();
            // Each is told of itself alone.
            assert_eq!(
                text.matches(agent).count(),
                1 + usize::from(agent == "--opencode"),
                "{text}"
            );
            assert_eq!(AGENTS.iter().filter(|(other, _)| text.contains(other)).count(), 1);
        }
        hooks(place, &["answer", "--claude", "--gemini"]).ends(125).says("and no other");
        hooks(place, &words("uninstall")).ends(0);
        assert!(AGENTS.iter().all(|(_, file)| !path(file).exists()));
    });
}

/// Gemini's settings may have comments.
#[test]
fn comments_in_settings_stay() {
    everybody(Tier::Namespace, |place| {
        let text = "// mine\n{\n  \"ui\": {\"theme\": \"//\"}, /* that one */\n  \"hooks\": {\n    \
                    \"BeforeTool\": [\n      // another\n      {\"matcher\": \"x\", \"hooks\": []}\n    ]\n  }\n}\n";
        let path = place.file("home/.gemini/settings.json", text);
        let now = || fs::read_to_string(&path).unwrap();
        hooks(place, &["install", "--gemini", "--", "-n", "example.org"]).ends(0);
        hooks(place, &["install", "--gemini"]).ends(0);
        let kept = ["// mine\n", "/* that one */", "// another\n", "\"matcher\": \"x\""];
        assert!(kept.iter().all(|kept| now().contains(kept)), "{}", now());
        assert_eq!(now().matches("hooks answer").count(), 1, "{}", now());
        hooks(place, &["uninstall", "--gemini"]).ends(0);
        assert_eq!(now(), text);
        // Changed by its user meanwhile: only the hook goes.
        hooks(place, &["install", "--gemini"]).ends(0);
        fs::write(&path, now().replace("that one", "this one")).unwrap();
        hooks(place, &["uninstall", "--gemini"]).ends(0).says("was changed since");
        assert_eq!(now(), text.replace("that one", "this one"));
        // Damaged ones are left alone.
        fs::write(&path, "{ // x\n \"a\": }").unwrap();
        hooks(place, &["install", "--gemini"]).ends(125).says("hooks print");
        assert_eq!(now(), "{ // x\n \"a\": }");
    });
}

/// What stands behind the hook on its line does not get into a comment that ends with the line before.
#[test]
fn a_hook_goes_from_behind_a_comment() {
    everybody(Tier::Namespace, |place| {
        let text = "// settings\n{\"hooks\": {\"BeforeTool\": [\n  {\"matcher\": \"x\", \"hooks\": []}\n]}}";
        let path = place.file("home/.gemini/settings.json", text);
        hooks(place, &["install", "--gemini"]).ends(0);
        let now = fs::read_to_string(&path).unwrap();
        let edited = now.replace("[]},", "[]}, // mine").replace("\n]}}", " ]}}");
        assert_eq!(edited.lines().count(), now.lines().count() - 1);
        fs::write(&path, edited).unwrap();
        hooks(place, &["uninstall", "--gemini"]).ends(0).says("was changed since");
        let now = fs::read_to_string(&path).unwrap();
        assert!(now.contains("// mine\n") && !now.contains("hooks answer"), "{now}");
    });
}

#[test]
fn settings_that_are_not_understood_are_left_alone() {
    everybody(Tier::Namespace, |place| {
        for text in ["// a comment\n{}", "{\"hooks\": []}", "[]"] {
            let path = place.file("home/.claude/settings.json", text);
            hooks(place, &["install", "--claude"]).ends(125).says("hooks print");
            assert_eq!(fs::read_to_string(path).unwrap(), text);
        }
    });
}

/// What a model names for a command is where the command goes inside, and makes nothing visible or writable.
#[test]
fn the_directory_that_a_model_names_is_no_workspace() {
    everybody(Tier::Namespace, |place| {
        let binary = ringfence_tests::binary().display().to_string();
        let private = place.file("home/other/private", "a secret");
        let other = place.text("home/other");
        let project = place.text("home/project");
        place.directory("home/project/sub");
        // The agent goes to the directory that its model named, and runs what the hook answered there.
        let run = |named: &str, command: &str| {
            let asked = serde_json::json!({"cwd": project, "tool_input": {"command": command, "workdir": named}});
            fs::write(place.project("asked"), asked.to_string()).unwrap();
            place.shell(&format!(
                "{binary} hooks answer --opencode < asked > answer && \
                 python3 -c 'import json; print(json.load(open(\"answer\"))[\"args\"][\"command\"])' > command && \
                 command=$PWD/command && cd {named} && bash $command"
            ))
        };
        let refused = run(&other, "cat private; echo planted > planted");
        assert!(refused.code != 0 && !refused.text().contains("a secret"));
        refused.says("No such file or directory").says("ask the user to allow it");
        assert!(!place.at("home/other/planted").exists());
        assert_eq!(fs::read_to_string(&private).unwrap(), "a secret");
        // The controls: the project, and a directory in it, are the user's choice.
        for (named, file) in [("", "made"), ("/sub", "sub/made")] {
            let run = run(&format!("{project}{named}"), "pwd; echo made > made");
            run.ends(0);
            assert_eq!(run.text(), format!("{project}{named}"));
            assert!(place.project(file).exists());
        }
    });
}

#[test]
fn a_command_of_the_agent_runs_inside_and_hears_why_it_was_refused() {
    everybody(Tier::Namespace, |place| {
        let secret = place.text("outside/secret");
        let asked = format!(
            "{{\"tool_name\":\"Bash\",\"tool_input\":{{\"command\":\"echo 'in side'; cat {secret}\"}}}}"
        );
        fs::write(place.project("asked"), asked).unwrap();
        let script = "$RINGFENCE hooks answer --claude < asked > answer && \
                      python3 -c 'import json; print(json.load(open(\"answer\"))\
                      [\"hookSpecificOutput\"][\"updatedInput\"][\"command\"])' > command && \
                      bash command";
        let binary = ringfence_tests::binary().display().to_string();
        let run = place.shell(&script.replace("$RINGFENCE", &binary));
        run.ends(1)
            .prints("in side")
            .says("no rule grants")
            .says("ask the user to allow it: --read");
        assert!(!run.text().contains("a secret"));
        // The control: granted, it is read.
        let run = place.shell(
            &script
                .replace("$RINGFENCE", &binary)
                .replace("--claude", &format!("--claude -- --read={secret}")),
        );
        run.ends(0).prints("a secret");
        // A host that no rule allows looks like one that does not exist; granted, nothing is said of it.
        let message = "curl: (6) Could not resolve host: example.org";
        for (options, told) in [("", true), (" -- -n example.org", false)] {
            let shell = format!(
                "{binary} hooks shell --claude{} -- \"echo '{message}' >&2; exit 6\"",
                if options.is_empty() { " --" } else { options }
            );
            let run = place.shell(&shell);
            run.ends(6).says(message);
            assert_eq!(run.err.contains("allow it: --allow-host example.org"), told, "{}", run.err);
        }
        // No question, no command; nor one whose command is no text.
        for asked in
            ["garbage", r#"{"tool_name":"Bash","tool_input":{"command":["bash","-lc","id"]}}"#]
        {
            let nothing = place.shell(&format!("echo '{asked}' | {binary} hooks answer --claude"));
            nothing.ends(0).prints("\"permissionDecision\":\"deny\"");
        }
    });
}

/// What an agent's command names is relative to where it ran, and what would help depends on what it tried.
#[test]
fn what_the_agent_hears_fits_what_its_command_tried() {
    let hears = |place: &Place, command: &str| {
        let binary = ringfence_tests::binary().display();
        let run = place.shell(&format!("{binary} hooks shell --claude -- -- '{command}'"));
        assert_ne!(run.code, 0, "{command}: {}", run.err);
        run
    };
    everybody(Tier::Namespace, |place| {
        let secret = place.text("outside/secret");
        place.file("home/project/lefthook.yml", "");
        let home = place.text("home");
        hears(place, "cat ../../outside/secret").says(&format!("allow it: --read {secret}"));
        for command in ["echo x > lefthook.yml", "echo > t; mv t lefthook.yml"] {
            hears(place, command).says("the sandbox's policy").says("project/lefthook.yml");
        }
        let made = format!("--write {home}/newdir");
        hears(place, "touch ~/newdir/x").says(&made);
        hears(place, "echo x > ~/newdir/x").says(&made);
        let socket = place.file("outside/s.sock", "").display().to_string();
        let message =
            format!("echo \"dial unix {socket}: connect: permission denied\" >&2; exit 1");
        hears(place, &message).says(&format!("--allow-socket {socket}"));
        // A name is no word of the message; and what fails by itself is not explained.
        let named = place.file("outside/write", "");
        hears(place, &format!("cat {}", named.display())).says("allow it: --read");
        let run = hears(place, "cat nothing-here sub/nothing");
        assert!(!run.err.contains("policy"), "{}", run.err);
    });
    // What is closed outside no grant opens.
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    let run = hears(place, "cat /root/x");
    run.says("closed to the user outside");
    assert!(!run.err.contains("allow it"), "{}", run.err);
}
