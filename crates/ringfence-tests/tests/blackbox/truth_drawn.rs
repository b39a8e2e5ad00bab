//! `why` tells what really happens, whatever rules are drawn: about paths, variables and hosts.

use crate::truth::{act, why};
use ringfence_tests::everywhere;

/// Numbers that are the same in each run (Knuth's MMIX generator).
struct Dice(u64);

impl Dice {
    fn one_of<'t, T>(&mut self, all: &'t [T]) -> &'t T {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        &all[(self.0 >> 33) as usize % all.len()]
    }
}

/// Whatever rules there are about each other's paths: one sandbox for each set of rules does all acts.
#[test]
fn why_says_what_happens_under_any_rules() {
    const ROUNDS: u64 = 12;
    everywhere(|place| {
        let files = ["a/f", "a/g", "a/d/h", "b/f", "b/g"].map(|name| format!("outside/{name}"));
        files.iter().for_each(|name| drop(place.file(name, "x")));
        let files = files.map(|name| place.text(name));
        let ruled = ["", "/a", "/a/f", "/a/d", "/b", "/b/g"];
        let ruled = ruled.map(|name| place.text(format!("outside{name}")));
        // What is protected is put back afterwards in the process tier: the act itself succeeds.
        let held = place.tier == ringfence_tests::Tier::Namespace;
        let flags: &[&str] =
            if held { &["-r", "-w", "--deny", "--protect"] } else { &["-r", "-w", "--deny"] };
        let mut compared = 0;
        for seed in 0..ROUNDS {
            let mut dice = Dice(seed);
            let count = *dice.one_of(&[1, 2, 3, 4]);
            let options: Vec<&str> = (0..count)
                .flat_map(|_| [*dice.one_of(flags), dice.one_of(&ruled).as_str()])
                .collect();
            let questions = files.iter().flat_map(|path| [("read", path), ("write", path)]);
            let questions: Vec<_> = questions.collect();
            let acts = questions.iter().map(|(verb, path)| {
                format!(
                    "if ( {} ) >/dev/null 2>&1; then echo yes; else echo no; fi\n",
                    act(verb, path)
                )
            });
            let done = place.sh(&options, &acts.collect::<String>());
            if done.code == 125 {
                // These rules cannot be carried out in this tier, and it says so.
                assert!(done.err.starts_with("ringfence: "), "{options:?}: {}", done.err);
                continue;
            }
            let text = done.text();
            let answers: Vec<&str> = text.lines().collect();
            assert_eq!(answers.len(), questions.len(), "{options:?}: {}", done.err);
            for ((verb, path), answer) in questions.iter().zip(answers) {
                let (allowed, said) = why(place, &options, &[verb, path]);
                // In a private directory there is nothing yet, not even the directories on the way.
                if answer == "no" && said.contains("effect:  private") {
                    continue;
                }
                assert_eq!(answer == "yes", allowed, "{options:?} {verb} {path}: {said}");
                compared += 1;
            }
        }
        assert!(compared >= 20, "nothing could be compared: {compared}");
    });
}

/// What `why` answers about variables, for who has all of them.
const VARIABLES: [&str; 16] = [
    "GITHUB_TOKEN",
    "MY_KEY",
    "EDITOR",
    "LC_ALL",
    "TERM",
    "PATH",
    "HOME",
    "PWD",
    "OLDPWD",
    "TMPDIR",
    "TEMP",
    "XDG_RUNTIME_DIR",
    "https_proxy",
    "RINGFENCE",
    "RINGFENCE_NETWORK",
    "RINGFENCE_GATEWAY",
];

/// Whatever rules there are about variables: one sandbox for each set of rules shows all that are there.
#[test]
fn why_says_which_variables_there_are_under_any_rules() {
    const ROUNDS: u64 = 4;
    let flags: [&[&str]; 9] = [
        &[],
        &["--clean-env"],
        &["-e", "GITHUB_TOKEN"],
        &["-e", "*_KEY"],
        &["-e", "T*"],
        &["-e", "TMPDIR"],
        &["-e", "OLDPWD=x"],
        &["-n", "example.org"],
        &["-n", "example.org", "-e", "https_proxy"],
    ];
    everywhere(|place| {
        let value = place.text("home/project");
        let with_all = |command: &mut std::process::Command| {
            let own = |name: &&&str| !["PATH", "HOME", "TMPDIR", "LC_ALL"].contains(*name);
            command.envs(VARIABLES.iter().filter(own).map(|name| (name, &value)));
        };
        for seed in 0..ROUNDS {
            let mut dice = Dice(seed);
            let mut drawn = [*dice.one_of(&flags), *dice.one_of(&flags)];
            drawn.sort_unstable();
            let options: Vec<&str> = drawn.concat();
            let mut command = place.ringfence_run();
            with_all(&mut command);
            command.args(&options).args(["--", "/usr/bin/env", "-0"]);
            let there = ringfence_tests::Running::start(command).finish().well();
            let there: Vec<&str> =
                there.split('\0').filter_map(|entry| Some(entry.split_once('=')?.0)).collect();
            for name in VARIABLES {
                let mut command = place.command(ringfence_tests::binary());
                with_all(&mut command);
                command.args(["why", "--tier", place.tier_name()]).args(&options);
                command.args(["--", "env", name]);
                let said = ringfence_tests::Running::start(command).finish();
                assert_eq!(
                    said.code == 0,
                    there.contains(&name),
                    "{:?} {options:?} {name}: {}{}",
                    place.tier,
                    said.text(),
                    said.err
                );
            }
        }
    });
}

/// A server at all of this machine's addresses that says so to whoever connects.
fn greeter() -> u16 {
    let listener = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let _ = std::io::Write::write_all(&mut client.unwrap(), b"served");
        }
    });
    port
}

/// Whatever rules there are about hosts and ports: one sandbox for each set of rules connects to all.
#[test]
fn why_says_who_can_be_reached_under_any_rules() {
    const ROUNDS: u64 = 5;
    const ACT: &str = "
import socket, sys
for at in sys.argv[1:]:
    host, port = at.rsplit(':', 1)
    try:
        with socket.create_connection((host.strip('[]'), int(port)), 5) as s:
            print('yes' if s.recv(9) == b'served' else 'no')
    except OSError:
        print('no')
";
    let ports = [greeter(), greeter()];
    // Any other address of this machine; without one the loopback is all there is to ask about.
    let own = std::net::UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("192.0.2.1:9")?;
        Ok(socket.local_addr()?.ip().to_string())
    });
    let own = own.ok().filter(|own| own != "0.0.0.0" && !own.starts_with("127."));
    let hosts = ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "app.localhost", "LOCALHOST."];
    let hosts: Vec<&str> = hosts.into_iter().chain(own.as_deref()).collect();
    let places: Vec<String> =
        hosts.iter().flat_map(|host| ports.map(|port| format!("{host}:{port}"))).collect();
    let mut rules: Vec<String> = ports
        .iter()
        .flat_map(|port| {
            [format!("localhost:{port}"), format!("127.0.0.1:{port}"), format!("*:{port}")]
        })
        .collect();
    rules.extend(["localhost:*".to_owned(), "localhost:1-1023".to_owned(), "*:*".to_owned()]);
    if let Some(own) = &own {
        let net = own.rsplit_once('.').map_or("10.0.0", |(net, _)| net);
        rules.extend(ports.map(|port| format!("{own}:{port}")));
        rules.extend([format!("{net}.0/24:*"), format!("{own}/32:1-1023"), own.clone()]);
        // `*` does not lead to this machine.
        rules.extend([format!("{own}:*"), format!("{own}/32:*")]);
    }
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        let mut reached = [0, 0];
        for seed in 0..ROUNDS {
            let mut dice = Dice(seed);
            let count = *dice.one_of(&[1, 2, 3]);
            let options: Vec<&str> = (0..count)
                .flat_map(|_| {
                    let flag = *dice.one_of(&["-n", "-n", "--deny-host"]);
                    [flag, dice.one_of(&rules).as_str()]
                })
                .collect();
            let argv = ["python3", "-c", ACT].into_iter().chain(places.iter().map(String::as_str));
            let done = place.run(&options, &argv.collect::<Vec<_>>());
            let text = done.ends(0).text();
            let answers: Vec<&str> = text.lines().collect();
            assert_eq!(answers.len(), places.len(), "{options:?}: {}", done.err);
            for (to, answer) in places.iter().zip(answers) {
                let (allowed, said) = why(place, &options, &["connect", to]);
                assert_eq!(answer == "yes", allowed, "{:?} {options:?} {to}: {said}", place.tier);
                reached[usize::from(allowed)] += 1;
            }
        }
        assert!(reached.iter().all(|count| *count >= 5), "too little was compared: {reached:?}");
    });
}
