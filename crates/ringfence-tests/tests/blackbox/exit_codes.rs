//! Exit codes: the command's own, and those that stand for ringfence's words.

use ringfence_tests::{Tier, everybody, everywhere};

#[test]
fn the_commands_own_code_is_passed_on() {
    everywhere(|place| {
        for code in [0, 1, 7, 123, 124, 125, 126, 127, 128, 200, 255] {
            let ended = place.sh(&[], &format!("exit {code}"));
            assert_eq!((ended.code, ended.err.as_str()), (code, ""));
        }
    });
}

#[test]
fn a_signal_is_128_and_its_number() {
    everywhere(|place| {
        for (name, number) in [("HUP", 1), ("INT", 2), ("KILL", 9), ("SEGV", 11), ("TERM", 15)] {
            place.sh(&[], &format!("kill -{name} $$")).ends(128 + number);
        }
    });
}

#[test]
fn a_timeout_is_124_and_says_so() {
    everywhere(|place| {
        place.run(&["--timeout", "100ms"], &["sleep", "1000"]).ends(124).says("--timeout");
        // The control: time enough.
        place.run(&["--timeout", "80s"], &["true"]).ends(0);
    });
}

#[test]
fn ringfences_own_failure_is_125() {
    everywhere(|place| {
        for options in [["--read", "/no/such/path"], ["--memory", "lots"], ["--no-such", "x"]] {
            let ended = place.run(&options, &["sh", "-c", "echo ran"]);
            ended.ends(125).says("ringfence: ");
            assert_eq!(ended.text(), "", "nothing was run");
        }
    });
}

#[test]
fn what_cannot_be_executed_is_126() {
    everywhere(|place| {
        place.file("home/project/plain", "#!/bin/sh\n");
        place.run(&[], &["./plain"]).ends(126).says("plain");
        place.run(&[], &["/usr"]).ends(126).says("/usr");
        place.script("odd", "#!/no/such/interpreter\n");
        place.run(&[], &["./odd"]).ends(126).says("interpreter");
        // The control.
        place.script("fine", "#!/bin/sh\nexit 5\n");
        place.run(&[], &["./fine"]).ends(5);
    });
}

#[test]
fn what_is_not_found_is_127() {
    everywhere(|place| {
        place.run(&[], &["no-such-program-at-all"]).ends(127).says("no-such-program-at-all");
        place.run(&[], &["./no-such"]).ends(127).says("./no-such");
        place.run(&[], &[""]).ends(127);
        // Not where its first word is no program either.
        place.run(&[], &["true 'a b' | cat"]).ends(127).says(r"sh -c 'true '\''a b'\'' | cat'");
        assert!(!place.run(&[], &["no-such-program at all"]).ends(127).err.contains("sh -c"));
    });
}

/// What is wrong is said of what was given, with what would be right.
#[test]
fn words_that_mean_nothing_are_refused_with_what_would_be_right() {
    let place = ringfence_tests::Place::new(ringfence_tests::Person::Ordinary, Tier::Namespace);
    let file = place.file("home/project/f", "").display().to_string();
    let said: [(&[&str], &str); 7] = [
        (&["why", "--", "write", ""], "the path is empty; write `.`"),
        (&["why", "--", "connect", "https://x.example/"], "leave out the scheme"),
        (&["hooks", "foo"], "unknown: hooks foo"),
        (&["integrate", "vim", "--program", "no-such"], "say where it is: --program PATH"),
        (&["run", "--workdir", &file, "--", "true"], "it is no directory"),
        // Three are open: that a fourth is too many, no other thread of the launch can change.
        (&["run", "--open-files", "3", "--", "true"], "(--open-files, ulimit -n)"),
        (&["run", "--inject", "x.example X={file:/nope}", "--", "true"], "/nope does not exist"),
    ];
    for (words, why) in said {
        let refused = place.ringfence(words);
        refused.ends(125).says(why);
        assert!(!refused.err.contains("may be missing"), "{}", refused.err);
    }
    place.ringfence(["why", "--", "connect", "x.example:443"]).ends(1);
}

#[test]
fn a_text_without_an_interpreter_line_is_the_shells() {
    everywhere(|place| {
        place.script("old", "echo $1; exit 9\n");
        let ended = place.run(&[], &["./old", "word"]);
        assert_eq!(ended.ends(9).text(), "word");
    });
}

#[test]
fn codes_are_the_same_through_the_users_shell() {
    everybody(Tier::Namespace, |place| {
        let script = ["run", "-c", "echo \"$((20+3))\" | cat; exit 6"];
        assert_eq!(place.ringfence(script).ends(6).text(), "23");
        place.ringfence(["run"]).ends(125).says("no command");
        place.ringfence(["run", "-c", "true", "--", "true"]).ends(125);
    });
}

#[test]
fn json_is_printed_or_refused() {
    let place = ringfence_tests::Place::new(ringfence_tests::Person::Ordinary, Tier::Namespace);
    let file = place.file("home/project/f", "").display().to_string();
    let read = |words: &[&str], code| {
        let text = place.ringfence(words).ends(code).text();
        serde_json::from_str::<serde_json::Value>(&text)
            .unwrap_or_else(|_| panic!("{words:?}: {text}"))
    };
    let told = read(&["explain", "--json", &file], 0);
    assert_eq!((&told["schema"], &told["in_view"]), (&1.into(), &true.into()), "{told}");
    assert_eq!(told["path"], file.as_str());
    let hidden = place.text("outside/secret");
    let told = read(&["explain", "--json", &hidden], 1);
    assert_eq!(told["in_view"], false);
    assert!(told["reasons"].to_string().contains("no rule grants"), "{told}");
    assert!(read(&["version", "--json"], 0)["version"].is_string());
    for words in
        [&["plan", "--json", "true"][..], &["profile", "list", "--json"], &["schema", "--json"]]
    {
        assert!(read(words, 0).is_object(), "the control: {words:?}");
    }
    let none: [&[&str]; 6] = [
        &["run", "--json", "--", "touch", "made"],
        &["shell", "--json"],
        &["profile", "show", "--json", "default"],
        &["profile", "new", "--json", "--no-run", "-o", "made", "cat"],
        &["trust", "--json", &file],
        &["man", "--json"],
    ];
    for words in none {
        let refused = place.ringfence(words);
        refused.ends(125).says("prints no JSON");
        assert_eq!(refused.text(), "", "{words:?}");
    }
    assert!(!place.project("made").exists());
    place.run(&[], &["echo", "--json"]).ends(0).prints("--json");
}
