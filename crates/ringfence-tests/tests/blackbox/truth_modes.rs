//! `why` and what modes, links and the kernel itself decide: its answer is what happens inside.

use ringfence_tests::{Tier, everywhere};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

#[test]
fn modes_links_and_a_process_own_files_are_as_told() {
    everywhere(|place| {
        place.file("home/real/lib/l", "");
        place.directory("home/real/bin");
        place.file("home/project/ro/f", "");
        place.link("home/link", place.at("home/real/bin"));
        place
            .shell("ln -s b a; ln -s a b; touch closed open; chmod 0 closed; chmod 555 ro")
            .ends(0);
        let (real, link) = (place.text("home/real"), place.text("home/link"));
        let options = ["-r", &real, "-r", &link, "--tier", place.tier_name()];
        let above = format!("{link}/../lib/l");
        let asked = [
            ("write", "open"),
            ("write", "closed"),
            ("read", "closed"),
            ("write", "new"),
            ("write", "ro/new"),
            ("write", "ro/f"),
            ("read", "ro/f"),
            ("read", "a"),
            ("write", "a"),
            ("read", &above),
            ("write", "/proc/self/comm"),
            ("write", "/proc/self/oom_score_adj"),
            ("read", "/proc/self/comm"),
            ("write", "/proc/version"),
        ];
        let (mut allowed, mut denied) = (0, 0);
        for (verb, path) in asked {
            let script = match verb {
                "write" => "true >> \"$0\"",
                _ => "cat < \"$0\"",
            };
            let does = place.run(&options[..4], &["sh", "-c", script, path]).code == 0;
            let question = ["--", verb, path];
            let words = ["why"].iter().chain(&options).chain(&question).copied();
            let told = place.ringfence(words);
            assert_eq!(told.code == 0, does, "{verb} {path}: {}", told.text());
            *if does { &mut allowed } else { &mut denied } += 1;
        }
        assert!(allowed > 4 && denied > 4, "{allowed} {denied}");
        place.shell("chmod 755 ro; chmod 644 closed").ends(0);
    });
}

#[test]
fn names_that_are_no_text_are_in_json() {
    everywhere(|place| {
        let name = OsStr::from_bytes(b"a\xff");
        let name = place.at("home").join(name);
        std::fs::write(&name, "").unwrap();
        let tier = place.tier_name();
        for words in
            [&["plan", "--json", "--tier", tier, "-r"][..], &["why", "--json", "--", "read"]]
        {
            let words = words.iter().map(OsStr::new).chain([name.as_os_str()]);
            let json = place.ringfence(words);
            assert!(json.text().contains("a\u{fffd}"), "{} {}", json.code, json.err);
            serde_json::from_str::<serde_json::Value>(&json.text()).unwrap();
        }
        if place.tier == Tier::Namespace {
            place.shell("cd $(mktemp -dp. $'x\\xffXXX') && $RF -- true && $RF -- true").ends(0);
        }
    });
}
