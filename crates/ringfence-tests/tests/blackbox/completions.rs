//! Completions offer names that come and go: of profiles, features and sessions.

use ringfence_tests::{Person, Place, Running, Terminal, Tier, binary, left_out};

/// Asks bash for each line what it would offer, and says it as `LINE -> WORDS`; the last word is the one to complete.
const BASH: &str = r#"
source completion.bash
asked() {
    COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
    _ringfence_and_names ringfence "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
    echo "$* -> ${COMPREPLY[*]}"
}
"#;

/// A place with a profile of the user's own, beside which lies one that a shell would obey, a session that ended, and one
/// that runs.
fn with_names(shell: &str) -> Option<(Place, Running)> {
    let place = Place::new(Person::Ordinary, Tier::Namespace);
    if place.shell(&format!("command -v {shell}")).code != 0 {
        left_out(shell, "it is not installed");
        return None;
    }
    let text = place.ringfence(["completions", shell]).ends(0).out.clone();
    place.file(format!("home/project/completion.{shell}"), text);
    place.file("home/.config/ringfence/profiles/my-own.toml", "extends = [\"default\"]\n");
    place.file("home/.config/ringfence/profiles/my-$(touch obeyed).toml", "");
    place.link("home/bin/ringfence", binary());
    place.sh(&["--name", "web-ended"], "true").ends(0);
    let mut running =
        place.start(&["--name", "web-runs"], &["sh", "-c", "echo up; exec sleep 1000"]);
    running.printed("up\n");
    Some((place, running))
}

fn ends(place: &Place, running: Running) {
    place.ringfence(["kill", "web-runs"]).quiet();
    running.finish().ends(143);
    assert!(!place.project("obeyed").exists(), "a name was carried out");
}

#[test]
fn bash_offers_names() {
    let Some((place, running)) = with_names("bash") else { return };
    let cases = [
        ("run --profile my", "my-own"),
        ("run -p my", "my-own"),
        ("run --profile = my", "my-own"),
        ("run --feature github", "github"),
        ("exec web", "web-runs"),
        ("exec --workdir /tmp web", "web-runs"),
        ("kill --signal TERM web-runs web", "web-runs"),
        ("show web-r", "web-runs"),
        ("rm web", "web-ended"),
        ("overlay diff web-e", "web-ended"),
        // The controls: what is no place for one.
        ("exec --workdir web", ""),
        ("exec web-runs web", ""),
        ("exec web-runs -- web", ""),
        ("run -- cmd -p my", ""),
        ("overlay web", ""),
        ("logs --fo", "--follow"),
    ];
    let asked: String = cases.iter().map(|(line, _)| format!("asked ringfence {line}\n")).collect();
    place.file("home/project/ask.bash", format!("{BASH}{asked}"));
    let said = place.shell("PATH=~/bin:$PATH bash ask.bash").well();
    let expected = cases.map(|(line, names)| format!("ringfence {line} -> {names}"));
    assert_eq!(
        said.lines().map(str::trim_end).collect::<Vec<_>>(),
        expected.each_ref().map(|line| line.trim_end())
    );
    ends(&place, running);
}

#[test]
fn fish_offers_names() {
    let Some((place, running)) = with_names("fish") else { return };
    for (line, expected) in [
        ("run --profile my", "my-own"),
        ("run -p my", "my-own"),
        ("run --profile=my", "--profile=my-own"),
        ("exec web", "web-runs"),
        ("exec --workdir /tmp web", "web-runs"),
        ("kill --signal TERM web-runs web", "web-runs"),
        ("rm web", "web-ended"),
        ("overlay diff web-e", "web-ended"),
        ("exec web-runs web", ""),
        ("exec web-runs -- web", ""),
        ("logs --fo", "--follow"),
    ] {
        let ask = format!("source completion.fish; complete -C \"ringfence {line}\"");
        let said = place.shell(&format!("PATH=~/bin:$PATH fish --no-config -c '{ask}'")).well();
        let words: Vec<_> = said.lines().filter_map(|line| line.split('\t').next()).collect();
        assert_eq!(words.join(" "), expected, "{line}");
    }
    ends(&place, running);
}

/// Its completions are those of a line that is typed.
#[test]
fn zsh_offers_names() {
    let Some((place, running)) = with_names("zsh") else { return };
    place.shell("mv completion.zsh _ringfence").ends(0);
    let mut terminal = Terminal::shell(&place);
    terminal.line("PATH=~/bin:$PATH PS1='zsh'\"> \" zsh -f -i").shows("zsh> ");
    terminal.line(
        "fpath=($PWD $fpath); autoload -U compinit; compinit -u -D; bindkey -e; echo set''up",
    );
    terminal.shows("setup\r\n");
    terminal.shows("zsh> ");
    for (typed, becomes) in [
        ("run --profile my", "run --profile my-own"),
        ("run -n host.example --http x -p my", "run -n host.example --http x -p my-own"),
        ("plan --profile=my", "plan --profile=my-own"),
        ("exec web", "exec web-runs"),
        ("exec --workdir /tmp web", "exec --workdir /tmp web-runs"),
        ("kill web", "kill web-runs"),
        ("rm web", "rm web-ended"),
        ("overlay diff web-e", "overlay diff web-ended"),
    ] {
        // What it has become is printed, not done.
        terminal.types(&format!("ringfence {typed}\t\u{1}echo \u{5}\r"));
        terminal.shows(&format!("\nringfence {becomes}\r\n"));
        terminal.shows("zsh> ");
    }
    terminal.line("exit").shows("ready> ");
    terminal.leave();
    ends(&place, running);
}
