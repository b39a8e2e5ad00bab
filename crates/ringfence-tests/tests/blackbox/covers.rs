//! Somebody outside replaces what is denied or protected while the command runs: the kernel takes the mounts on it
//! away, and they are made again.

use ringfence_tests::{Place, Running, Tier, everybody};
use std::fs;
use std::time::{Duration, Instant};

/// Waits inside until the host has done its part.
const WAIT: &str = "echo ready; until [ -e go ]; do :; done;";

/// Reads each until that is refused, not for ever.
const CLOSES: &str = "closes() { n=0; while cat \"$1\" >/dev/null 2>&1; do n=$((n+1)); \
     [ $n -lt 20000 ] || { echo \"$1 is open\"; exit 4; }; done; };";

/// Puts a file in the place of another one as editors do.
fn replace(place: &Place, name: &str, text: &str) {
    let new = place.file(format!("{name}.new"), text);
    fs::rename(new, place.at(name)).expect("replaced");
}

fn content(place: &Place, name: &str) -> String {
    fs::read_to_string(place.at(name)).expect("readable outside")
}

fn project(place: &Place) -> String {
    place.project("p");
    for (name, text) in [("p/.env", "old"), ("p/free", "old"), ("p/k/t", "old"), ("given/t", "old")]
    {
        place.file(name, text);
    }
    place.at("given").display().to_string()
}

fn runs(place: &Place, given: &str, script: &str) -> Running {
    let token = format!("{given}/t");
    let workspace = place.at("p").display().to_string();
    let options =
        ["-w", &workspace, "--workdir", &workspace, "--deny", ".env", "--deny", "k", "-r", given];
    let options = [&options[..], &["--deny", &token]].concat();
    place.start(&options, &["sh", "-c", script])
}

#[test]
fn what_is_denied_is_denied_again_when_it_is_replaced_outside() {
    everybody(Tier::Namespace, |place| {
        let given = project(place);
        let script = format!(
            "cat .env k/t {given}/t 2>/dev/null && exit 3; {WAIT} {CLOSES} closes .env; closes k/t; \
             closes {given}/t; cat free; cat .env k/t {given}/t; [ $? = 1 ] && echo closed"
        );
        // The first one makes the plan that the second one uses.
        for replaced in [false, true] {
            let mut running = runs(place, &given, &script);
            running.printed("ready");
            if replaced {
                replace(place, "p/.env", "new");
                replace(place, "p/free", "new");
                replace(place, "given/t", "new");
                fs::rename(place.at("p/k"), place.at("p/k.old")).expect("renamed");
                place.file("p/k/t", "new");
            }
            place.file("p/go", "");
            let finished = running.finish();
            finished.ends(0).prints("closed");
            if replaced {
                finished.prints("new").says("p/.env was replaced outside");
            }
            fs::remove_file(place.at("p/go")).expect("removed");
        }
        // For who is outside nothing is different.
        for name in ["p/.env", "p/k/t", "given/t"] {
            assert_eq!(content(place, name), "new", "{name}");
        }
    });
}

#[test]
fn what_is_denied_is_closed_however_often_and_in_whatever_way_it_is_replaced() {
    everybody(Tier::Namespace, |place| {
        let given = project(place);
        let script = format!(
            "{CLOSES} for n in 1 2 3 4 5 6; do echo ready $n; until [ -e go$n ]; do :; done; \
             closes .env; closes k/t; done; echo closed"
        );
        let mut running = runs(place, &given, &script);
        place.file("elsewhere/t", "new");
        for number in 1..=6 {
            running.printed(&format!("ready {number}"));
            match number {
                // Removed and made.
                1 => fs::remove_file(place.at("p/.env")).map(|()| drop(place.file("p/.env", "a"))),
                2 => fs::remove_dir_all(place.at("p/k")).map(|()| drop(place.file("p/k/t", "b"))),
                // Of another kind.
                3 => fs::remove_file(place.at("p/.env")).map(|()| drop(place.directory("p/.env"))),
                4 => fs::remove_dir_all(place.at("p/k")).map(|()| drop(place.file("p/k", "c"))),
                // By links out of what is denied.
                5 => fs::remove_file(place.at("p/k"))
                    .map(|()| drop(place.link("p/k", place.at("elsewhere")))),
                _ => {
                    fs::remove_dir(place.at("p/.env")).map(|()| drop(place.link("p/.env", "free")))
                }
            }
            .expect("replaced");
            place.file(format!("p/go{number}"), "");
        }
        running.finish().ends(0).prints("closed");
    });
}

#[test]
fn what_is_protected_is_protected_again_when_it_is_replaced_outside() {
    everybody(Tier::Namespace, |place| {
        project(place);
        place.file("p/.envrc", "use old\n");
        place.file("p/.git/config", "[core]\n");
        let workspace = place.at("p").display().to_string();
        let script = format!(
            "(echo x >> .envrc) 2>/dev/null && exit 3; {WAIT} \
             held() {{ n=0; until grep -q \" $PWD/$1 \" /proc/self/mountinfo; do n=$((n+1)); \
             [ $n -lt 3000 ] || {{ echo \"$1 is open\"; exit 4; }}; done; }}; \
             held .envrc; held .git/config; cat .envrc; echo x >> .envrc; echo x >> .git/config; \
             mv .git/config away; echo mine > own && echo done"
        );
        let mut running =
            place.start(&["-w", &workspace, "--workdir", &workspace], &["sh", "-c", &script]);
        running.printed("ready");
        replace(place, "p/.envrc", "use new\n");
        replace(place, "p/.git/config", "[user]\n");
        place.file("p/go", "");
        let finished = running.finish();
        finished.ends(0).prints("use new").prints("done").says("Read-only file system");
        finished.says("p/.git/config was replaced outside");
        assert_eq!(content(place, "p/.envrc"), "use new\n");
        assert_eq!(content(place, "p/.git/config"), "[user]\n");
        assert_eq!(content(place, "p/own"), "mine\n");
    });
}

#[test]
fn names_that_are_made_all_the_time_hide_no_replacement() {
    everybody(Tier::Namespace, |place| {
        let given = project(place);
        let script = format!(
            "touch a; (while :; do mv a b; mv b a; done) & {WAIT} {CLOSES} closes .env; echo closed"
        );
        let mut running = runs(place, &given, &script);
        running.printed("ready");
        replace(place, "p/.env", "new");
        place.file("p/go", "");
        running.finish().ends(0).prints("closed").says("p/.env was replaced outside");
    });
}

#[test]
fn hundreds_of_names_that_are_replaced_at_once_are_all_denied_again() {
    everybody(Tier::Namespace, |place| {
        project(place);
        for number in 0..300 {
            place.file(format!("p/d/{number}"), "old");
            place.file(format!("p/e/{number}"), "new");
        }
        let workspace = place.at("p").display().to_string();
        let script = format!(
            "{WAIT} {CLOSES} for name in d/*; do closes $name; done; cat d.old/1 e/1; echo closed"
        );
        let options =
            ["-w", &workspace, "--workdir", &workspace, "--deny", "d/*", "--timeout", "60s"];
        let mut running = place.start(&options, &["sh", "-c", &script]);
        running.printed("ready");
        fs::rename(place.at("p/d"), place.at("p/d.old")).expect("renamed");
        fs::rename(place.at("p/e"), place.at("p/d")).expect("renamed");
        place.file("p/go", "");
        running.finish().ends(0).prints("closed");
    });
}

#[test]
fn what_is_replaced_again_while_it_is_being_covered_is_covered_again() {
    everybody(Tier::Namespace, |place| {
        let given = project(place);
        let script = format!(
            "{WAIT} {CLOSES} m=0; while [ $m -lt 40 ]; do closes .env; m=$((m+1)); done; echo closed"
        );
        let mut running = runs(place, &given, &script);
        running.printed("ready");
        for number in 0..200 {
            replace(place, "p/.env", &format!("new {number}"));
        }
        place.file("p/go", "");
        running.finish().ends(0).prints("closed");
    });
}

/// Inside: goes on until a file is the new one, or was replaced and is covered again, by nothing but the shell; writes
/// it, and ends.
const WRITES: &str = "writes() { while read -r line < \"$1\"; [ \"$line\" != new ] && [ ! -e go ]; do :; done \
     2>/dev/null; \
     (echo evil >> \"$1\") 2>/dev/null; :; }; : > ready;";

/// Too late for anybody to make the mount again.
#[test]
fn what_is_replaced_just_before_the_end_is_named() {
    everybody(Tier::Namespace, |place| {
        let given = project(place);
        // Those of a launcher that notes, looks and ends before libc is up; the first one makes their plan.
        for (number, name) in ["", ".envrc", ".env", "k/t", ".envrc", "k/t"].iter().enumerate() {
            place.file("p/.envrc", "old");
            place.clock_moves_on();
            let script = format!("{WRITES} [ -z \"$1\" ] || writes \"$1\"");
            let workspace = place.at("p").display().to_string();
            let options = ["-w", &workspace, "--workdir", &workspace, "--deny", ".env", "--deny"];
            let options = [&options[..], &["k/t", "-r", &given]].concat();
            let running = place.start(&options, &["sh", "-c", &script, "sh", name]);
            let ready = place.at("p/ready");
            while !ready.exists() {
                std::thread::yield_now();
            }
            match number {
                0 => {}
                _ => replace(place, &format!("p/{name}"), "new\n"),
            }
            let go = place.file("p/go", "");
            let finished = running.finish();
            finished.ends(0);
            match number {
                0 => assert!(!finished.err.contains("replaced"), "{}", finished.err),
                _ => drop(finished.says(&format!("p/{name} was replaced outside"))),
            }
            for told in [ready, go] {
                fs::remove_file(told).expect("removed");
            }
        }
    });
}

#[test]
fn what_is_replaced_while_the_launcher_is_stopped_until_the_end_is_named() {
    everybody(Tier::Namespace, |place| {
        let given = project(place);
        for replaced in [true, false] {
            place.file("p/.envrc", "old\n");
            let script = format!("mkfifo f; {WATCHED} exec 9>f; {WRITES} writes .envrc; rm f");
            let workspace = place.at("p").display().to_string();
            place.file("p/lefthook.yml", "good");
            let options = ["-w", &workspace, "--workdir", &workspace, "-r", &given];
            let mut running = place.start(&options, &["sh", "-c", &script]);
            watched(place, &mut running);
            let mut lives = fs::File::open(place.at("p/f")).expect("opened");
            running.signal(rustix::process::Signal::STOP);
            match replaced {
                true => replace(place, "p/.envrc", "new\n"),
                // What is written in its place has its mount still.
                false => fs::write(place.at("p/.envrc"), "new\n").expect("written"),
            }
            std::io::Read::read_to_end(&mut lives, &mut Vec::new()).expect("read");
            running.signal(rustix::process::Signal::CONT);
            let finished = running.finish();
            finished.ends(0).says("p/lefthook.yml was replaced outside");
            let said = finished.err.contains("p/.envrc was replaced outside");
            assert_eq!(said, replaced, "{}", finished.err);
            assert_eq!(content(place, "p/.envrc").contains("evil"), replaced);
            for told in ["p/replaced", "p/ready"] {
                fs::remove_file(place.at(told)).expect("removed");
            }
        }
    });
}

/// What is moved away and back is what it was.
#[test]
fn what_comes_back_as_it_was_stays() {
    everybody(Tier::Namespace, |place| {
        for name in [".husky/pre-commit", ".vscode/tasks.json", "lefthook.yml"] {
            place.file(format!("p/{name}"), "good");
        }
        place.clock_moves_on();
        let workspace = place.at("p").display().to_string();
        let script = format!("{WATCHED} {WAIT} echo done");
        let options = ["-w", &workspace, "--workdir", &workspace];
        let mut running = place.start(&options, &["sh", "-c", &script]);
        watched(place, &mut running);
        let moved = |from: &str, to: &str| {
            for name in ["husky", "vscode"] {
                let at = |prefix| place.at(format!("p/{prefix}{name}"));
                fs::rename(at(from), at(to)).expect("renamed");
            }
            settled(place);
        };
        moved(".", "away-");
        moved("away-", ".");
        place.file("p/go", "");
        let finished = running.finish();
        finished.ends(0).prints("done");
        for name in [".husky/pre-commit", ".vscode/tasks.json"] {
            assert_eq!(content(place, &format!("p/{name}")), "good", "{}", finished.err);
        }
    });
}

/// Inside, until the launcher watches: what was replaced is mounted again.
const WATCHED: &str = "echo ready; until [ -e replaced ]; do :; done; \
     until grep -q \" $PWD/lefthook.yml \" /proc/self/mountinfo; do :; done; echo watched;";

/// Its other half.
fn watched(place: &Place, running: &mut Running) {
    running.printed("ready");
    replace(place, "p/lefthook.yml", "good");
    place.file("p/replaced", "");
    running.printed("watched");
}

/// Waits until the launcher has seen all that was until now: it takes the second one away when it has looked at all that was
/// before the first one.
fn seen(place: &Place) {
    for _ in 0..2 {
        let told = place.at("p/.mcp.json");
        fs::write(&told, "{}").expect("written");
        while told.exists() {
            std::thread::yield_now();
        }
    }
}

/// Waits until the launcher takes what it has seen gone for removed: a name that is made again before is replaced.
fn settled(place: &Place) {
    let begun = Instant::now();
    while begun.elapsed() < SETTLES {
        seen(place);
    }
    seen(place);
}

/// More than the launcher takes for it.
const SETTLES: Duration = Duration::from_millis(150);

/// As editors do that keep a copy until the new one is whole, and git when it checks out.
#[test]
fn what_is_saved_by_removing_it_first_stays_and_is_held() {
    everybody(Tier::Namespace, |place| {
        for name in [".envrc", ".vscode/tasks.json", "lefthook.yml"] {
            place.file(format!("p/{name}"), "good");
        }
        let workspace = place.at("p").display().to_string();
        let script = format!(
            "{WATCHED} {WAIT} until grep -q \" $PWD/.envrc \" /proc/self/mountinfo; do :; done; \
             cat .envrc; echo x > .envrc || echo held"
        );
        let options = ["-w", &workspace, "--workdir", &workspace];
        let mut running = place.start(&options, &["sh", "-c", &script]);
        watched(place, &mut running);
        let (file, backup) = (place.at("p/.envrc"), place.at("p/.envrc~"));
        for number in 0..200 {
            match number % 2 {
                0 => fs::rename(&file, &backup).expect("renamed"),
                _ => fs::remove_file(&file).expect("removed"),
            }
            place.file("p/.envrc", format!("save {number}"));
            let _ = fs::remove_file(&backup);
            // The launcher looks now and then.
            if number % 20 == 0 {
                seen(place);
            }
        }
        settled(place);
        replace(place, "p/.envrc", "the last");
        settled(place);
        place.file("p/go", "");
        let finished = running.finish();
        finished.ends(0).prints("the last").prints("held").says("p/.envrc was replaced outside");
        assert_eq!(content(place, "p/.envrc"), "the last");
        assert!(!finished.err.contains(".envrc was made again"), "{}", finished.err);
    });
}

/// What would have to be read waits for the end, when nobody writes it any more.
#[test]
fn a_configuration_that_was_away_stays_when_nothing_in_it_runs() {
    everybody(Tier::Namespace, |place| {
        place.file("p/lefthook.yml", "good");
        let names = ["p/.git/config", "p/.gitmodules"];
        let (first, second) = ("[core]\n\tbare = false\n", "[core]\n\tfsmonitor = ./evil\n");
        for (name, made) in names.iter().flat_map(|name| [(name, first), (name, second)]) {
            for name in names {
                place.file(name, "[core]\n");
            }
            let workspace = place.at("p").display().to_string();
            let script = format!("{WATCHED} {WAIT} echo done");
            let options = ["-w", &workspace, "--workdir", &workspace];
            let mut running = place.start(&options, &["sh", "-c", &script]);
            watched(place, &mut running);
            fs::remove_file(place.at(name)).expect("removed");
            settled(place);
            place.file(name, made);
            settled(place);
            assert_eq!(content(place, name), made, "while the command runs");
            place.file("p/go", "");
            let finished = running.finish();
            finished.ends(0).prints("done");
            let stays = place.at(name).exists();
            assert_eq!(stays, made == first, "{name}: {}", finished.err);
            if !stays {
                finished.says("was made again, inside or outside, at a protected name");
            }
            for told in ["p/go", "p/replaced"] {
                fs::remove_file(place.at(told)).expect("removed");
            }
        }
    });
}

/// The launcher is killed: what was made there obeys nobody, and is kept for who looks, as it may be the user's.
#[test]
fn what_is_made_where_a_protected_name_was_removed_does_not_outlive_the_launcher() {
    everybody(Tier::Namespace, |place| {
        for name in [".husky/pre-commit", "lefthook.yml"] {
            place.file(format!("p/{name}"), "good");
        }
        let workspace = place.at("p").display().to_string();
        let options = ["-w", &workspace, "--workdir", &workspace];
        let script = format!(
            "{WATCHED} {WAIT} while :; do mkdir -p .husky; echo evil > .husky/pre-commit; \
             echo made; done 2>/dev/null"
        );
        let mut running = place.start(&options, &["sh", "-c", &script]);
        watched(place, &mut running);
        fs::remove_dir_all(place.at("p/.husky")).expect("removed");
        settled(place);
        place.file("p/go", "");
        running.printed("made");
        running.signal(rustix::process::Signal::KILL);
        // To the end of its output, which the warden holds.
        running.finish().ends(137);
        assert!(!place.at("p/.husky").exists());
        assert_eq!(content(place, "p/lefthook.yml"), "good");
    });
}

/// Without its mount a protected name is open to the program, for as long as nobody makes it again.
#[test]
fn what_is_made_where_a_protected_name_was_removed_is_taken_away() {
    everybody(Tier::Namespace, |place| {
        let names = [".envrc", ".husky/pre-commit", ".vscode/tasks.json"];
        for name in names.iter().chain(&["lefthook.yml"]) {
            place.file(format!("p/{name}"), "good");
        }
        let workspace = place.at("p").display().to_string();
        // Its files keep their change times when the directory gets another name.
        place.file("p/d/tasks.json", "from before");
        place.clock_moves_on();
        let script = format!(
            "echo x > .envrc && exit 3; mkdir e; echo evil > e/pre-commit; echo evil > f; \
             {WATCHED} {WAIT} until [ ! -e .envrc ] && [ ! -e .husky ] && [ ! -e .vscode ]; do :; done; \
             mv f .envrc; mv -T d .vscode; mv -T e .husky; echo x > lefthook.yml && exit 4; \
             n=0; while [ -e .envrc ]; do n=$((n+1)); [ $n -lt 1000000 ] || {{ echo stays; exit 5; }}; done; \
             until [ -e end ]; do :; done; echo done"
        );
        let mut running =
            place.start(&["-w", &workspace, "--workdir", &workspace], &["sh", "-c", &script]);
        watched(place, &mut running);
        fs::remove_file(place.at("p/.envrc")).expect("removed");
        for name in ["p/.husky", "p/.vscode"] {
            fs::remove_dir_all(place.at(name)).expect("removed");
        }
        settled(place);
        place.file("p/go", "");
        let made =
            "p/.envrc was made again, inside or outside, at a protected name that was removed";
        // At once: it may have been the user.
        running.said(made);
        place.file("p/end", "");
        let finished = running.finish();
        finished.ends(0).prints("done").says(made);
        for name in names {
            let there = fs::read_to_string(place.at(format!("p/{name}")));
            assert!(there.is_err(), "{name} is there: {there:?}; {}", finished.err);
        }
        assert_eq!(content(place, "p/lefthook.yml"), "good");
    });
}
