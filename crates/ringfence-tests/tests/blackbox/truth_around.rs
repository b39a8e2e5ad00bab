//! `why` tells what really happens where rules are drawn for what is around the workspace and the home, for all of the
//! host, and for what is in them; and the host's files tell the same afterwards.

use crate::truth::why;
use ringfence_tests::{Place, Tier, everywhere};
use std::fs;

/// Files that are read and written to, each by its path and by the same above the root.
const FILES: [&str; 7] = [
    "home/.ssh/key",
    "home/note",
    "home/d/f",
    "home/project/f",
    "home/project/sub/g",
    "home/project/sub/deep/h",
    "beside/f",
];
/// What rules are about.
const RULED: [&str; 8] =
    ["", "home", "home/d", "home/note", "home/project", "home/project/sub", "home/.ssh", "beside"];

fn content(name: &str) -> String {
    format!("the host's {name}\n")
}

/// One draw: its options, by the numbers of a generator (Knuth's MMIX).
fn drawn(place: &Place, seed: u64) -> Vec<String> {
    let mut state = seed;
    let mut one_of = |count: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % count
    };
    // What is protected is put back afterwards in the process tier: the act itself succeeds.
    let held = place.tier == Tier::Namespace;
    let flags = ["-r", "-w", "--deny", "--protect"];
    let flags = &flags[..if held { 4 } else { 3 }];
    let mut options = Vec::new();
    for _ in 0..1 + one_of(3) {
        let flag = flags[one_of(flags.len())];
        let ruled = place.text(RULED[one_of(RULED.len())]);
        // All of the host is read, not written.
        let all = flag == "-r" && one_of(4) == 0;
        options.extend([flag.to_owned(), if all { "/".to_owned() } else { ruled }]);
    }
    options
}

#[test]
fn rules_around_the_home_do_what_why_says_of_them() {
    const ROUNDS: u64 = 10;
    everywhere(|place| {
        let mut compared = [0, 0];
        for seed in 0..ROUNDS {
            for name in FILES {
                place.file(name, content(name));
            }
            let options = drawn(place, seed);
            let options: Vec<&str> = options.iter().map(String::as_str).collect();
            // First all reads, then all writes: an answer in a line each.
            let aliases = |name: &str| [place.text(name), format!("/..{}", place.text(name))];
            let reads = FILES.iter().flat_map(|name| {
                aliases(name).map(|path| format!("grep -c 'the host' {path} || echo none\n"))
            });
            let writes = FILES.iter().enumerate().flat_map(|(at, name)| {
                let [path, above] = aliases(name);
                let path = if at % 2 == 0 { path } else { above };
                [format!("echo changed >>{path}\n")]
            });
            let script: String = reads.chain(writes).collect();
            let done = place.sh(&options, &format!("{{ {script} }} 2>/dev/null; true"));
            if done.code == 125 {
                // These rules cannot be carried out in this tier, and it says so.
                assert!(done.err.starts_with("ringfence: "), "{options:?}: {}", done.err);
                continue;
            }
            let text = done.text();
            let answers: Vec<&str> = text.lines().filter(|line| *line != "0").collect();
            assert_eq!(answers.len(), 2 * FILES.len(), "{options:?}: {text}{}", done.err);
            for (name, answers) in FILES.iter().zip(answers.chunks(2)) {
                let path = place.text(name);
                let (allowed, said) = why(place, &options, &["read", &path]);
                let hosts = allowed && !said.contains("private");
                for answer in answers {
                    assert_eq!(
                        *answer == "1",
                        hosts,
                        "{options:?} read {name}: {answers:?} {said}"
                    );
                }
                let (allowed, said) = why(place, &options, &["write", &path]);
                let hosts = allowed && !said.contains("private");
                let now = fs::read_to_string(place.at(name)).unwrap();
                let changed = now != content(name);
                assert_eq!(changed, hosts, "{options:?} write {name}: {said}");
                compared[usize::from(hosts)] += 1;
            }
        }
        assert!(compared.iter().all(|count| *count >= 15), "{:?}: {compared:?}", place.tier);
    });
}
