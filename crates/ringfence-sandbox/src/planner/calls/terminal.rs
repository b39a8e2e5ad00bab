//! Calls that reach the user by the terminal: what types for the user, what the terminal is left like, and the
//! signals that it sends.

use crate::plan::{Test, Verdict};

const TIOCEXCL: u32 = 0x540C;
const TCXONC: u32 = 0x540A;
const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541C;
const TIOCCONS: u32 = 0x541D;
const TIOCSETD: u32 = 0x5423;
/// What `TCXONC` does: stops output, and has the other side stop (`ioctl_tty(2)`).
const TCOOFF: u32 = 0;
const TCIOFF: u32 = 2;

/// The rules, in order.
pub(super) fn rules(
    add: &mut impl FnMut(&'static str, Verdict, &[(u8, Test)], &'static str),
    notify: bool,
) {
    for (request, reason) in [
        (TIOCSTI, "types into the terminal for the user (CVE-2017-5226)"),
        (TIOCLINUX, "pastes into the console for the user (CVE-2023-28100)"),
        (TIOCEXCL, "keeps everybody else from opening the terminal, after the run too"),
        (TIOCSETD, "loads line disciplines"),
        (TIOCCONS, "takes the console's output"),
    ] {
        add("ioctl", Verdict::Refuse, &[(1, Test::Equals(request))], reason);
    }
    for way in [TCOOFF, TCIOFF] {
        let test = [(1, Test::Equals(TCXONC)), (2, Test::Equals(way))];
        add("ioctl", Verdict::Refuse, &test, "stops the terminal, after the run too");
    }
    // A terminal signals who is in its foreground, whom no number names: the launcher, or the user's shell. Servers
    // (nginx) are told of input by a signal too, on sockets.
    // Without a listener there is one around this sandbox already (`learn`, another sandbox, which has the rule too).
    if notify {
        let reason = "has the terminal signal processes outside";
        for (call, tests) in crate::told_of_input::CALLS {
            add(call, Verdict::Supervise, tests, reason);
        }
    }
}
