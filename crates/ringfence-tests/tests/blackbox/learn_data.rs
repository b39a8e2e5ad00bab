//! `learn --json`: the proposal as data, and nothing written; and which commands take `--json` at all.

use ringfence_tests::{Finished, Person, Place, Tier, everybody};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

/// All names in the home, but for ringfence's own state.
fn listing(place: &Place) -> Vec<PathBuf> {
    let mut waiting = vec![place.at("home")];
    let mut found = Vec::new();
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).unwrap().flatten() {
            let own = matches!(entry.file_name().to_str(), Some(".local" | ".cache"));
            if entry.file_type().unwrap().is_dir() && !own {
                waiting.push(entry.path());
            }
            found.push(entry.path());
        }
    }
    found.sort();
    found.retain(|path| !path.ends_with(".local") && !path.ends_with(".cache"));
    found
}

fn read(finished: &Finished) -> Value {
    let text = finished.text();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn find<'v>(told: &'v Value, list: &str, value: &str) -> &'v Value {
    let found = told[list].as_array().and_then(|all| all.iter().find(|one| one["value"] == value));
    found.unwrap_or_else(|| panic!("{list} has {value}: {told:#}"))
}

#[test]
fn a_proposal_is_printed_as_data_and_nothing_is_written() {
    everybody(Tier::Namespace, |place| {
        place.file("home/.config/app/a", "a\n");
        place.file("home/.other/b", "b\n");
        place.file("home/.ssh/id_ed25519", "a key\n");
        // Each run with a writable home makes the directory of profiles, to guard it.
        place.directory("home/.config/ringfence");
        let before = listing(place);
        let script =
            "cat ~/.config/app/a ~/.ssh/id_ed25519; chmod 600 ~/.other/b; echo x > ~/.new; exit 3";
        let learnt = place.ringfence(["learn", "--json", "--", "sh", "-c", script]);
        learnt.ends(3).says("a\n");
        let told = read(&learnt);
        assert_eq!((&told["schema"], &told["code"]), (&1.into(), &3.into()), "{told:#}");
        assert_eq!(told["command"][2], script);
        let read_rule = find(&told, "rules", "~/.config/app?");
        assert_eq!(read_rule["key"], "filesystem.read");
        assert_eq!((&read_rule["count"], &read_rule["opened"]), (&1.into(), &1.into()));
        assert_eq!(read_rule["by"], serde_json::json!(["cat"]));
        assert!(read_rule.get("reason").is_none());
        let changed = find(&told, "rules", "~/.other?");
        assert_eq!((&changed["key"], &changed["opened"]), (&"filesystem.write".into(), &0.into()));
        let secret = find(&told, "withheld", "~/.ssh/id_ed25519?");
        assert!(secret["reason"].as_str().unwrap().contains("credentials"), "{secret}");
        assert_eq!(told["only_written"], serde_json::json!(["~/.new"]));
        assert!(told["used"]["tasks"].as_u64().unwrap() > 0, "{told:#}");
        assert_eq!(listing(place), before, "nothing is written");
        // The profile in it is the one that -o writes.
        let profile = told["profile"].as_str().unwrap();
        place.file("home/project/l.toml", profile);
        let script = "cat ~/.config/app/a && chmod 600 ~/.other/b && echo done";
        place.sh(&["-p", "./l.toml"], script).ends(0).prints("done");
        let again =
            place.ringfence(["learn", "--json", "-p", "./l.toml", "--", "sh", "-c", script]);
        assert_eq!(read(again.ends(0))["rules"], serde_json::json!([]));
        fs::remove_file(place.project("l.toml")).unwrap();
        let both = place.ringfence(["learn", "--json", "-o", "l.toml", "--", "true"]);
        both.ends(125).says("writes nothing");
        assert!(both.out.is_empty() && !place.project("l.toml").exists());
        // Where nothing ran there is nothing to print.
        let none = place.ringfence(["learn", "--json", "--", "no-such-command"]);
        assert!(none.ends(127).out.is_empty());
    });
}

#[test]
fn additions_and_a_sessions_refusals_are_data_too() {
    let place = Place::new(Person::Ordinary, Tier::Namespace);
    place.file("home/.config/app/a", "a\n");
    let old = "filesystem.read = ['~/.mine?'] # mine\n";
    place.file("home/project/own.toml", old);
    let words = ["learn", "--json", "--merge", "own.toml", "--", "cat"];
    let file = place.text("home/.config/app/a");
    let told = read(place.ringfence(words.into_iter().chain([file.as_str()])).ends(0));
    find(&told, "rules", "~/.config/app?");
    let merged = told["profile"].as_str().unwrap();
    assert!(merged.contains("'~/.mine?'] # mine") && merged.contains("~/.config/app?"), "{merged}");
    assert_eq!(fs::read_to_string(place.project("own.toml")).unwrap(), old);
    place.run(&["--name", "s"], &["true"]).ends(0);
    let told = read(place.ringfence(["learn", "--json", "--from", "s"]).ends(0));
    assert_eq!((&told["command"][0], &told["code"]), (&"true".into(), &Value::Null), "{told:#}");
    assert!(told["session"].is_string() && told["used"].is_null());
}

/// Help, completions and the man page name the option for who takes it, and for nobody else.
#[test]
fn commands_that_refuse_json_do_not_list_it() {
    let place = Place::new(Person::Ordinary, Tier::Namespace);
    let help = place.ringfence(["help"]).ends(0).text();
    let commands = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let commands: Vec<&str> =
        commands.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let fish = place.ringfence(["completions", "fish"]).ends(0).text();
    let man = place.ringfence(["man"]).ends(0).text();
    let mut all = 0;
    for command in &commands {
        let own = format!("__fish_ringfence_using_subcommand {command}\"");
        let own = format!("{own} -l json");
        let nested = format!("__fish_ringfence_using_subcommand {command}; and not");
        let completed = fish
            .lines()
            .any(|line| line.contains(&own) || line.contains(&nested) && line.contains("-l json"));
        let helped = place.ringfence(["help", command]).text().contains("--json ");
        let own = |section: &&str| {
            section.lines().next().and_then(|line| line.split_whitespace().nth(1)) == Some(command)
        };
        let section = man.split(".SH SYNOPSIS\n").find(own).unwrap_or_else(|| panic!("{command}"));
        let paged = section.contains("\\-\\-json");
        assert_eq!(completed, helped, "{command}");
        assert_eq!(paged, helped, "{command}: in the man page");
        all += usize::from(helped);
    }
    assert!(commands.contains(&"learn") && all >= 10 && all < commands.len(), "{all}");
    for command in ["run", "shell", "mcp", "trust", "import", "man", "completions", "vm", "suspend"]
    {
        assert!(!place.ringfence(["help", command]).text().contains("--json "), "{command}");
        place.ringfence([command, "--json", "bash"]).ends(125);
    }
}

/// What writes nothing takes no option that says where to, and offers none.
#[test]
fn commands_that_write_no_file_offer_none() {
    let place = Place::new(Person::Ordinary, Tier::Namespace);
    let fish = place.ringfence(["completions", "fish"]).ends(0).text();
    let lists = |command: &str, option: &str| {
        let own = format!("__fish_ringfence_using_subcommand {command}");
        let mut lines = fish.lines().filter(|line| line.contains(&own));
        let completed = lines.any(|line| line.contains(&format!("-l {option}")));
        let helped = place.ringfence(["help", command]).text().contains(&format!("--{option}"));
        assert_eq!(completed, helped, "{command} --{option}");
        helped
    };
    let none = [
        "doctor",
        "feature",
        "trust",
        "completions",
        "man",
        "schema",
        "suspend",
        "resume",
        "vm",
        "version",
    ];
    for command in none {
        for option in ["save", "output"] {
            assert!(!lists(command, option), "{command} --{option}");
            let given = format!("--{option}=x");
            place.ringfence([command, &given]).ends(125).says("unknown option");
        }
    }
    assert!(!lists("import", "save"));
    for command in ["import", "learn", "profile", "report"] {
        assert!(lists(command, "output"), "{command}, the control");
    }
    assert!(lists("profile", "save"), "the control");
    place.ringfence(["profile", "list", "--save"]).ends(125).says("unknown option --save");
    place.ringfence(["profile", "list"]).ends(0);
}
