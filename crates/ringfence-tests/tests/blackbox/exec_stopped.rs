//! A command of `exec` that a program inside stops before it is confined.

use ringfence_tests::{Place, Tier, everybody};

/// Stops whatever gets one of the next numbers, until it has done so; then it waits.
const STOPS: &str = "import os, signal, sys, time\n\
    last = os.fork()\n\
    if last == 0: os._exit(0)\n\
    os.waitpid(last, 0)\n\
    print('up', flush=True)\n\
    while True:\n\
    \x20for number in range(last + 1, last + 40):\n\
    \x20\x20try: os.kill(number, signal.SIGSTOP)\n\
    \x20\x20except ProcessLookupError: continue\n\
    \x20\x20print('stopped', flush=True)\n\
    \x20\x20time.sleep(1000)\n";

fn stops(place: &Place) {
    let mut running = place.start(&["--name", "one"], &["python3", "-c", STOPS]);
    running.printed("up\n");
    let words = ["exec", "--timeout", "5s", "one", "true"];
    // One that is over before the program came to it is another try.
    let hit = (0..32).map(|_| place.ringfence(words)).find(|done| done.code != 0);
    let hit = hit.expect("none was stopped");
    running.printed("stopped\n");
    // Before it was confined, or when it executed: then its time ran out.
    if hit.code != 124 {
        hit.ends(125).says("stopped the command before it began");
    }
    // The next one's number is another one, and nobody waits for the one before.
    place.ringfence(words).quiet();
    place.ringfence(["kill", "one"]).quiet();
    running.finish().ends(143);
}

#[test]
fn a_command_that_is_stopped_before_it_is_confined_holds_up_nobody() {
    everybody(Tier::Namespace, |place| {
        if place.has("python3", "--version") {
            stops(place);
        }
    });
}
