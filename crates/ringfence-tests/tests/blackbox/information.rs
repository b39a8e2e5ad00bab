//! The commands that tell: `plan`, `doctor`, `profile`, `feature`, `import`, `completions`,
//! `man`, `schema`, `--status-fd`; and what bad input is told.

use ringfence_tests::{Person, Place, Tier, everybody, everywhere, left_out};
use serde_json::Value;

fn json(place: &Place, words: &[&str]) -> Value {
    let said = place.ringfence(words);
    assert!(said.code <= 1, "{words:?}: {}", said.err);
    serde_json::from_slice(&said.out)
        .unwrap_or_else(|error| panic!("{words:?}: {error}: {}", said.text()))
}

#[test]
fn a_plan_tells_what_will_be_done_and_does_nothing() {
    everywhere(|place| {
        let tier = place.tier_name();
        let plan = json(
            place,
            &["plan", "--json", "--tier", tier, "--timeout", "5s", "-e", "A=b", "--", "true"],
        );
        assert_eq!(plan["schema"], 1);
        assert_eq!(plan["tier"], tier);
        assert_eq!(plan["user"][0], place.person.ids().0);
        assert_eq!(plan["workdir"], place.text("home/project"));
        let limits = plan["limits"].as_array().unwrap();
        assert!(
            limits.iter().any(|limit| limit["by"] == "timeout" && limit["milliseconds"] == 5000)
        );
        let environment = plan["environment"].as_array().unwrap();
        assert!(environment.iter().any(|step| step["name"] == "A" && step["value"] == "b"));
        assert!(!plan["seccomp"].as_array().unwrap().is_empty());
        let files = plan["landlock"]["files"].as_array().unwrap();
        assert!(
            files.iter().any(|rule| rule["path"] == plan["workdir"] && rule["rights"] == "write")
        );
        for step in plan["mounts"].as_array().unwrap().iter().chain(files) {
            assert!(step["rule"]["origin"].is_string(), "each step has its rule: {step}");
        }
        let text = place.ringfence(["plan", "--tier", tier, "--", "true"]);
        assert!(text.well().contains(tier));
        assert_eq!(place.left_behind(), [""; 0]);
        assert!(std::fs::read_dir(place.project("")).unwrap().next().is_none());
    });
}

#[test]
fn a_plan_holds_no_secret() {
    everybody(Tier::Namespace, |place| {
        let mut command = place.command(ringfence_tests::binary());
        command.env("GITHUB_TOKEN", "hush-hush").args(["plan", "--json", "--", "true"]);
        let said = ringfence_tests::Running::start(command).finish();
        assert!(said.well().contains("GITHUB_TOKEN") && !said.text().contains("hush-hush"));
    });
}

#[test]
fn the_doctor_examines_every_layer() {
    everybody(Tier::Namespace, |place| {
        let report = json(place, &["doctor", "--json"]);
        assert_eq!(
            (&report["schema"], report["tier"].as_str()),
            (&Value::from(1), Some("namespace"))
        );
        let names: Vec<&str> = report["findings"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|finding| finding["name"].as_str())
            .collect();
        for name in ["kernel", "namespaces", "Landlock", "seccomp", "control groups"] {
            assert!(names.contains(&name), "{name} is not in {names:?}");
        }
        for finding in report["findings"].as_array().unwrap() {
            let fine = finding["state"] == "ok";
            assert!(fine || finding["remedy"].is_string(), "a finding without a remedy: {finding}");
        }
        place.ringfence(["doctor"]).ends(0).prints("strongest tier: namespace");
    });
}

#[test]
fn profiles_and_features_are_listed_shown_and_checked() {
    everybody(Tier::Namespace, |place| {
        let list = place.ringfence(["profile", "list"]).well();
        for name in [
            "default",
            "claude",
            "codex",
            "gemini",
            "opencode",
            "aider",
            "goose",
            "cursor-agent",
            "copilot",
            "amp",
            "pi",
            "qwen",
        ] {
            assert!(
                list.lines().any(|line| line.split_whitespace().next() == Some(name)),
                "{name}: {list}"
            );
            let text = place.ringfence(["profile", "show", name]).well();
            let file = place.file(format!("home/project/{name}.toml"), text);
            place.ringfence(["profile", "check", file.to_str().unwrap()]).ends(0);
            place.run(&["-p", file.to_str().unwrap()], &["true"]);
        }
        let list = place.ringfence(["feature", "list"]).well();
        for name in ["node", "python", "rust", "go", "java", "git"] {
            assert!(
                list.lines().any(|line| line.split_whitespace().next() == Some(name)),
                "{name}: {list}"
            );
            place.ringfence(["feature", "show", name]).ends(0);
        }
        place.ringfence(["profile", "path", "default"]).ends(0).prints("built in");
        place.ringfence(["profile", "show", "defalt"]).ends(125).says("default");
    });
}

#[test]
fn a_profile_of_the_users_own_counts() {
    everywhere(|place| {
        let outside = place.text("outside");
        let profile = format!(
            "extends = [\"default\"]\n[filesystem]\nread = [{outside:?}]\n[environment]\nset = {{ MINE = \"1\" }}\n"
        );
        place.file("home/.config/ringfence/profiles/mine.toml", &profile);
        let script = format!("cat {outside}/secret; echo $MINE");
        assert_eq!(place.sh(&["-p", "mine"], &script).well(), "a secret\n1");
        assert_ne!(place.sh(&[], &format!("cat {outside}/secret")).code, 0);
    });
}

#[test]
fn a_projects_own_policy_counts_only_when_trusted() {
    everywhere(|place| {
        let outside = place.text("outside");
        let text = format!("[filesystem]\nread = [{outside:?}]\n");
        let file = place.file("home/project/ringfence.toml", &text);
        let script = format!("cat {outside}/secret");
        let untrusted = place.sh(&[], &script);
        assert_ne!(untrusted.code, 0);
        untrusted.says("ringfence trust");
        place.ringfence(["trust", file.to_str().unwrap()]).ends(0);
        assert_eq!(place.sh(&[], &script).well(), "a secret");
        // Changed, it is another file.
        place.file("home/project/ringfence.toml", format!("{text}# more\n"));
        let changed = place.sh(&[], &script);
        assert_ne!(changed.code, 0);
        changed.says("ringfence trust");
        // From inside, it cannot be changed for the next run.
        place.ringfence(["trust", file.to_str().unwrap()]).ends(0);
        let inside = place.sh(&[], "echo '# inside' >> ringfence.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(!text.contains("inside") || place.sh(&[], &script).code != 0, "{}", inside.err);
    });
}

#[test]
fn peers_settings_are_imported() {
    everybody(Tier::Namespace, |place| {
        place.file(
            "home/project/claude.json",
            r#"{"permissions":{"allow":["Read(~/.zshrc)"],"deny":["Read(./.env)"]}}"#,
        );
        place.file("home/project/srt.json", r#"{"network":{"allowedDomains":["example.org"],"deniedDomains":[]},"filesystem":{"denyRead":["~/.ssh"],"allowWrite":["."],"denyWrite":[".env"]}}"#);
        place.file("home/project/fence.json", r#"{"network":{"allowedDomains":["example.org"]},"filesystem":{"allowWrite":["."],"denyRead":["~/.ssh"]}}"#);
        place.file(
            "home/project/greywall.json",
            r#"{"filesystem":{"allowWrite":["."],"denyRead":["~/.ssh"]}}"#,
        );
        for peer in ["claude", "srt", "fence", "greywall"] {
            let said = place.ringfence(["import", peer, &format!("{peer}.json")]);
            let file = place.file(format!("home/project/{peer}.toml"), &said.ends(0).out);
            place.ringfence(["profile", "check", file.to_str().unwrap()]).ends(0);
            place.ringfence(["import", peer, &format!("{peer}.json"), "-o", "out.toml"]).ends(0);
            assert_eq!(std::fs::read(place.project("out.toml")).unwrap(), said.out);
        }
        place.ringfence(["import", "clade", "claude.json"]).ends(125).says("did you mean claude");
        place.ringfence(["import", "claude", "no-such.json"]).ends(125).says("no-such.json");
        place.file("home/project/bad.json", "{ not json");
        place.ringfence(["import", "claude", "bad.json"]).ends(125).says("bad.json");
    });
}

#[test]
fn completions_are_accepted_by_their_shells() {
    everybody(Tier::Namespace, |place| {
        for (shell, check) in [("bash", "bash -n"), ("zsh", "zsh -n"), ("fish", "fish -n")] {
            let text = place.ringfence(["completions", shell]);
            text.ends(0).prints("ringfence");
            let file = place.file(format!("home/project/completion.{shell}"), &text.out);
            if place.shell(&format!("command -v {shell}")).code != 0 {
                left_out(shell, "it is not installed");
                continue;
            }
            place.shell(&format!("{check} {}", file.display())).ends(0);
        }
        place.ringfence(["completions", "bsh"]).ends(125).says("did you mean bash");
        let man = place.ringfence(["man"]);
        man.ends(0).prints(".TH").prints("EXIT STATUS");
        let help = place.ringfence(["run", "--help"]).well();
        for option in ["--read", "--write", "--deny", "--network", "--timeout", "--allow-degraded"]
        {
            assert!(
                help.contains(option) && man.text().replace('\\', "").contains(option),
                "{option}"
            );
        }
    });
}

#[test]
fn the_schema_is_json_and_knows_the_keys() {
    everybody(Tier::Namespace, |place| {
        let schema = json(place, &["schema"]);
        for key in ["extends", "features", "filesystem", "network", "environment", "limits"] {
            assert!(schema["properties"][key].is_object(), "{key}");
        }
    });
}

#[test]
fn status_lines_tell_the_session() {
    everywhere(|place| {
        let lines = |script: &str| -> Vec<Value> {
            place.shell(script);
            let text = std::fs::read_to_string(place.project("status")).unwrap();
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        };
        let all = lines("$RF --status-fd 9 -- sh -c 'exit 3' 9>status");
        assert_eq!(all.len(), 2, "{all:?}");
        assert_eq!(
            (&all[0]["event"], &all[0]["tier"]),
            (&"started".into(), &place.tier_name().into())
        );
        assert_eq!((&all[1]["event"], &all[1]["code"]), (&"exited".into(), &3.into()));
        assert_eq!(all[0]["session"], all[1]["session"]);
        let killed = lines("$RF --status-fd 9 -- sh -c 'kill -9 $$' 9>status");
        assert_eq!(killed[1]["signal"], 9);
        let failed = lines("$RF --status-fd 9 -- no-such-program 9>status");
        assert_eq!((&failed[0]["event"], &failed[0]["code"]), (&"failed".into(), &127.into()));
        // The command does not get it.
        place.shell("$RF --status-fd 9 -- sh -c 'echo forged >&9' 9>status").ends(2);
        place.shell("$RF --status-fd 77 -- true").ends(125).says("77");
    });
}

#[test]
fn bad_input_is_told_in_one_sentence_with_the_nearest_good_one() {
    everybody(Tier::Namespace, |place| {
        place.file("home/project/bad.toml", "[filesystem]\nreed = [\"/x\"]\n");
        place.file("home/project/section.toml", "[filesytem]\nread = [\"/x\"]\n");
        place.file("home/project/broken.toml", "[filesystem\n");
        let table: [(&[&str], &[&str]); 34] = [
            (&["runn"], &["runn", "run"]),
            (&["run", "--profle", "x", "--", "true"], &["--profle", "--profile"]),
            (&["run", "-Z", "--", "true"], &["-Z"]),
            (&["run", "-p", "defalt", "--", "true"], &["defalt", "default"]),
            (&["run", "-p", "./bad.toml", "--", "true"], &["bad.toml", "line 2", "reed", "read"]),
            (&["run", "-p", "./section.toml", "--", "true"], &["filesytem", "filesystem"]),
            (&["run", "-p", "./broken.toml", "--", "true"], &["broken.toml", "line 1"]),
            (&["run", "-p", "./none.toml", "--", "true"], &["none.toml"]),
            (&["run", "--memory", "4GX", "--", "true"], &["4GX", "4G"]),
            (&["run", "--disk", "-1", "--", "true"], &["-1"]),
            (&["run", "--cpus", "abc", "--", "true"], &["abc"]),
            (&["run", "--pids", "0", "--", "true"], &["`0`"]),
            (&["run", "--open-files", "many", "--", "true"], &["many"]),
            (&["run", "--timeout", "5x", "--", "true"], &["5x"]),
            (&["run", "--network", "hots", "--", "true"], &["hots", "host"]),
            (&["run", "--tier", "vn", "--", "true"], &["vn", "vm"]),
            (&["run", "-n", "exa mple", "--", "true"], &["exa mple"]),
            (&["run", "-n", "example.org:99999", "--", "true"], &["99999"]),
            (&["run", "--allow-degraded", "seccmp", "--", "true"], &["seccmp", "seccomp"]),
            (&["run", "--home", "../x", "--", "true"], &["../x"]),
            (&["run", "-e", "=x", "--", "true"], &["--env"]),
            (&["run", "--read"], &["--read"]),
            (&["why", "--", "reed", "x"], &["reed", "read"]),
            (&["feature", "show", "nod"], &["nod", "node"]),
            (&["snapshot", "list", "--jsn"], &["did you mean --json?"]),
            (&["snapshot", "revrt"], &["did you mean revert?"]),
            (&["gc", "--al"], &["did you mean --all?"]),
            (&["gc", "--nothing-like-it"], &["there are: --all, --json"]),
            (&["logs", "--kind=netwrk"], &["did you mean network?"]),
            (&["overlay", "comit", "latest"], &["did you mean commit?"]),
            (&["vm", "statu"], &["did you mean status?"]),
            (&["hooks", "install", "--clade"], &["did you mean --claude?"]),
            (&["hooks", "instal"], &["did you mean install?"]),
            (
                &["run", "-p", "claude:work", "--", "true"],
                &["claude:work`; the nearest is `claude`"],
            ),
        ];
        for (words, told) in table {
            let said = place.ringfence(words);
            said.ends(125);
            assert_eq!(
                (said.text().as_str(), said.err.lines().count()),
                ("", 1),
                "{words:?}: {}",
                said.err
            );
            assert!(said.err.starts_with("ringfence: "), "{words:?}: {}", said.err);
            for word in told {
                said.says(word);
            }
        }
    });
}

#[test]
fn help_and_version_are_printed() {
    everybody(Tier::Namespace, |place| {
        for words in [
            &["--help"][..],
            &["help"],
            &["run", "--help"],
            &["plan", "--help"],
            &["why", "--help"],
            &["doctor", "--help"],
        ] {
            place.ringfence(words).ends(0).prints("Usage: ringfence");
        }
        place.ringfence(["--version"]).ends(0).prints("ringfence ");
        // A reader that stops early is no failure.
        place.shell("${RF%% *} man | head -n 1; exit ${PIPESTATUS[0]}").ends(0);
    });
}

/// As `--allow-host` takes one.
#[test]
fn a_host_without_a_port_is_asked_about_at_the_usual_one() {
    let place = Place::new(Person::Ordinary, Tier::Namespace);
    let told = |host| place.ringfence(["why", "-n", "example.com", "--", "connect", host]);
    told("example.com").ends(0).prints("allowed");
    told("example.com:443").ends(0).prints("allowed");
    told("example.com:22").ends(1).prints("denied");
    told("example.net").ends(1).prints("--allow-host example.net");
    told("::1").ends(1).prints("denied");
}

/// Who asks as whom is no business of a rule, and its password none of what is printed.
#[test]
fn a_url_with_a_user_is_asked_about_without_one() {
    let place = Place::new(Person::Ordinary, Tier::Namespace);
    let told = |url| place.ringfence(["why", "-n", "example.com", "--", "http", "GET", url]);
    for (url, without) in [
        ("http://user:hush@example.com/", "`http://example.com/`"),
        ("https://hush@example.com:443/a@b?c#d", "`https://example.com:443/a@b?c#d`"),
        ("user:hush@example.com", "`example.com`"),
    ] {
        let asked = told(url);
        asked.ends(125).says("http GET: leave out the user name and the password: ").says(without);
        assert!(!asked.err.contains("hush"), "{}", asked.err);
    }
    told("http://example.com/a@b:c").ends(0).prints("allowed");
}

#[test]
fn a_command_that_is_missing_is_asked_for_by_the_name_of_what_was_called() {
    let place = Place::new(Person::Ordinary, Tier::Namespace);
    for name in ["run", "learn"] {
        let told = format!("no command given: ringfence {name} [OPTIONS] -- CMD [ARG...]");
        place.ringfence([name]).ends(125).says(&told);
    }
}

/// A script that calls one without saying what for has made a mistake, whichever it is; whoever asks for help has not.
#[test]
fn a_verb_that_is_missing_is_wrong_use() {
    let place = Place::new(Person::Ordinary, Tier::Namespace);
    for name in ["overlay", "hooks", "snapshot"] {
        let bare = place.ringfence([name]);
        let usage = format!("Usage: ringfence {name}");
        assert_eq!(bare.ends(125).says(&usage).text(), "", "{name}");
        let help = place.ringfence([name, "--help"]);
        assert_eq!(help.ends(0).prints(&usage).err, "", "{name}");
    }
}
