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
