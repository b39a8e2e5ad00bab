//! `syscalls = "ask"`: the user decides on the terminal; without one, and without a word, it is
//! refused, and nothing is ever added to the profile.

use ringfence_tests::{Person, Place, Terminal, Tier, everywhere};
use std::fs;

/// Enough for a shell; `mkdir` and `rmdir` are left out.
const SHELL: &str = "extends = [\"default\"]\n[syscalls]\nmode = \"ask\"\nallow = [\"clone\", \"faccessat\", \
\"getcwd\", \"getdents64\", \"ioctl\", \"newfstatat\", \"openat\", \"pipe2\", \"prlimit64\", \"readlinkat\", \"statfs\", \
\"uname\", \"kill\", \"chdir\", \"umask\", \"setpgid\"]\n";

#[test]
fn nobody_to_ask_is_a_refusal() {
    everywhere(|place| {
        let file = place.file("home/project/ask.toml", SHELL);
        for _ in 0..2 {
            // The tests have no terminal, or one that is not ours to ask on: setsid leaves it.
            let ran = place.shell("setsid --wait $RF -p ask.toml -- sh -c 'ls . > /dev/null && echo listed; mkdir made'");
            ran.ends(1).prints("listed").says("Operation not permitted");
            ran.says("is refused mkdirat, which no rule lists: there is no terminal to ask on");
            assert_eq!(ran.err.matches("is refused mkdirat").count(), 1, "{}", ran.err);
            assert!(!place.project("made").exists());
        }
        // The control: listed, it works, and nobody is asked.
        place.file("home/project/ask.toml", SHELL.replace("\"uname\"", "\"mkdirat\""));
        let ran = place.shell("setsid --wait $RF -p ask.toml -- mkdir made");
        ran.ends(0);
        assert!(place.project("made").is_dir());
        assert!(!ran.err.contains("refused"), "{}", ran.err);
        assert!(fs::read_to_string(file).unwrap().contains("mode = \"ask\""));
    });
}

#[test]
fn the_users_word_counts_for_one_call_or_for_the_run() {
    everywhere(|place| {
        let file = place.file("home/project/ask.toml", SHELL);
        let mut terminal = Terminal::shell(place);
        // Once: the second one is asked about again; anything but a yes refuses.
        terminal.line("$RF -p ask.toml -- sh -c 'mkdir a; mkdir b; mkdir c; echo en''d'");
        terminal.shows("mkdir (process");
        terminal.shows("calls mkdirat");
        terminal.shows("session: ");
        terminal.line("o");
        terminal.shows("calls mkdirat");
        terminal.shows("session: ");
        terminal.line("");
        terminal.shows("Operation not permitted");
        terminal.shows("calls mkdirat");
        terminal.shows("session: ");
        terminal.line("x");
        terminal.shows("end");
        terminal.shows("in no profile: to keep it, [syscalls] allow = [\"mkdirat\"]");
        terminal.code(0);
        let made = ["a", "b", "c"].map(|name| place.project(name).exists());
        assert_eq!(made, [true, false, false]);
        // For the run: nobody is asked again; and of another call, denied for the run.
        terminal.line("$RF -p ask.toml -- sh -c 'mkdir d; mkdir e; rmdir d; rmdir e; echo en''d'");
        terminal.shows("calls mkdirat");
        terminal.shows("session: ");
        terminal.line("s");
        terminal.shows("calls unlinkat");
        terminal.shows("session: ");
        terminal.line("d");
        let shown = terminal.shows("end");
        assert!(!shown.contains("calls"), "{shown}");
        terminal.code(0);
        assert!(place.project("d").is_dir() && place.project("e").is_dir());
        // Nothing is kept of it: the next run asks again.
        assert_eq!(fs::read_to_string(&file).unwrap(), SHELL);
        terminal.line("$RF -p ask.toml -- mkdir f");
        terminal.shows("calls mkdirat");
        terminal.shows("session: ");
        terminal.line("n");
        terminal.code(1);
        terminal.leave();
        assert!(!place.project("f").exists());
    });
}

#[test]
fn what_was_typed_before_is_no_answer() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    place.file("home/project/ask.toml", SHELL);
    let mut terminal = Terminal::shell(place);
    // It waits for a file, so that what is typed meanwhile lies in the terminal.
    let gate = place.project("gate");
    let wait = "until test -e gate; do :; done";
    terminal.line(&format!("$RF -p ask.toml -- sh -c 'echo wai''ting; {wait}; mkdir a'"));
    terminal.shows("waiting");
    terminal.line("s").line("s");
    // Shown again, so that it lies there: what comes by a pseudoterminal is brought by a thread of the kernel.
    terminal.shows("s\r\ns\r\n");
    fs::write(gate, "").unwrap();
    terminal.shows("calls mkdirat");
    terminal.shows("session: ");
    assert!(!place.project("a").exists());
    terminal.line("n");
    terminal.code(1);
    terminal.leave();
    assert!(!place.project("a").exists());
}

#[test]
fn a_job_of_a_shell_inside_is_asked_about_and_the_terminal_given_back() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    let list = SHELL.replace(
        "\"uname\"",
        "\"uname\", \"rt_sigtimedwait\", \"getpeername\", \"socket\", \"connect\", \"sysinfo\"",
    );
    place.file("home/project/ask.toml", list);
    let mut terminal = Terminal::shell(place);
    terminal.line("$RF -e PS1=inner. -p ask.toml -- bash --norc --noprofile --noediting -i");
    terminal.shows("inner.");
    terminal.line("mkdir a");
    terminal.shows("calls mkdirat");
    terminal.shows("session: ");
    terminal.line("o");
    terminal.shows("inner.");
    terminal.line("echo wor''ks");
    terminal.shows("works");
    terminal.line("exit 3");
    terminal.code(3);
    terminal.leave();
    assert!(place.project("a").is_dir());
}

#[test]
fn rules_are_not_asked_about_and_the_record_tells_what_was() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    let list = SHELL.replace("allow = [", "allow = [\"unshare\", ");
    place.file("home/project/ask.toml", list);
    let ran = place
        .shell("setsid --wait $RF --name asked -p ask.toml -- sh -c 'unshare -m true; mkdir a'");
    ran.ends(1);
    assert!(!ran.err.contains("unshare,"), "what is refused to all is refused: {}", ran.err);
    let logged = place.ringfence(["logs", "asked", "--denied"]);
    logged.ends(0).prints("mkdirat by mkdir");
    // The vm tier's guest has a kernel of its own.
    place
        .ringfence(["plan", "--tier", "vm", "--syscalls", "ask", "--", "true"])
        .ends(125)
        .says("vm tier");
    place
        .ringfence(["plan", "-p", "ask.toml", "--", "true"])
        .ends(0)
        .prints("waits for your answer");
}

/// A program that has the terminal gather what is typed, once the question stands, stops nobody by it.
#[test]
fn a_program_that_changes_the_terminal_does_not_stop_the_launcher() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    place.file("home/project/ask.toml", SHELL);
    let mut terminal = Terminal::shell(place);
    let gathers = "until test -e gate; do :; done; trap \"\" TTOU; \
                   stty -icanon min 255 time 255 < /dev/tty; echo > changed";
    terminal.line(&format!("$RF -p ask.toml --timeout 15s -- sh -c '{{ {gathers}; }} & mkdir a'"));
    terminal.shows("session: ");
    fs::write(place.project("gate"), "").unwrap();
    while !place.project("changed").exists() {
        std::thread::yield_now();
    }
    // Half an answer, which a read that gathers would have after 25 s, and take for one.
    terminal.types("o");
    terminal.shows("timed out");
    terminal.code(124);
    terminal.leave();
    assert!(!place.project("a").exists());
}
