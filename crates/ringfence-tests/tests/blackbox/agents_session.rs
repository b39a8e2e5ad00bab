//! An agent's commands inside a session that runs: where they start, and what the agent hears.

use ringfence_tests::{Tier, binary, everybody};

#[test]
fn a_command_in_a_session_starts_where_the_agent_is_and_hears_why_it_was_refused() {
    everybody(Tier::Namespace, |place| {
        let granted = place.file("outside/granted", "granted\n");
        let secret = place.text("outside/secret");
        place.directory("home/project/sub");
        place.directory("home/other");
        // What its options say is relative to where its user stood, not to where the agent is.
        let options = ["--name", "live", "-r", "../../outside/granted"];
        let mut running = place.start(&options, &["sh", "-c", "echo up; exec sleep 1000"]);
        running.printed("up\n");
        let ringfence = binary().display();
        let shell = |directory: &str, command: &str| {
            place.shell(&format!(
                "cd {directory} && {ringfence} hooks shell --claude --session=live -- -- '{command}'"
            ))
        };
        let run = shell("sub", &format!("pwd; echo made > made; cat {}", granted.display()));
        assert_eq!(run.quiet(), format!("{}\ngranted", place.text("home/project/sub")));
        assert!(place.project("sub/made").exists());
        let run = shell("sub", &format!("cat {secret}"));
        run.ends(1).says("no rule grants").says("ask the user to allow it: --read");
        assert!(!run.text().contains("a secret"));
        let run = shell(".", "echo \"curl: (6) Could not resolve host: example.org\" >&2; exit 6");
        run.ends(6).says("allow it: --allow-host example.org");
        // Nothing runs elsewhere instead.
        let run = shell("../other", "echo ran");
        assert!(run.code != 0 && !run.text().contains("ran"));
        run.says("home/other").says("no rule grants");
        // The control: what is granted and fails by itself has no explanation.
        let run = shell("sub", "ls nothing-here");
        assert!(run.code != 0 && !run.err.contains("no rule grants"), "{}", run.err);
        place.ringfence(["kill", "live"]).quiet();
        running.finish().ends(143);
    });
}

/// A program names any path in its messages.
#[test]
fn what_an_agent_hears_does_not_say_what_is_there_out_of_sight() {
    everybody(Tier::Namespace, |place| {
        place.file("home/dir/here", "x\n");
        place.link("home/dir/link", place.at("outside/secret"));
        place.link("home/project/link", place.at("home/dir/link"));
        let ringfence = binary().display();
        let heard = |path: &str| {
            let command = format!("echo \"{path}: Permission denied\" >&2; exit 1");
            let shell = format!("{ringfence} hooks shell --claude -- -- '{command}'");
            let run = place.shell(&shell);
            run.ends(1).says("the sandbox's policy: ");
            run.err.lines().filter(|line| line.starts_with("ringfence: ")).collect::<String>()
        };
        let dir = place.text("home/dir");
        let there = heard(&format!("{dir}/here"));
        assert_eq!(there.replace("/here", "/gone"), heard(&format!("{dir}/gone")));
        assert_eq!(there.replace("/here", "/link"), heard(&format!("{dir}/link")));
        let led = heard(&place.text("home/project/link"));
        assert!(!led.contains("outside/secret") && led.contains("leads to"), "{led}");
    });
}
