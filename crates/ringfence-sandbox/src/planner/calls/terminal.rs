//! Calls that reach the user by the terminal: what types for the user, what the terminal is left like, and the
//! signals that it sends.

use crate::plan::{Test, Verdict};

const TIOCEXCL: u32 = 0x540C;
const TCXONC: u32 = 0x540A;
const TIOCSTI: u32 = 0x5412;
const TIOCLINUX: u32 = 0x541C;
const TIOCCONS: u32 = 0x541D;
const TIOCSETD: u32 = 0x5423;
/// Requests of the types `K` and `V` (`linux/kd.h`, `linux/vt.h`) are for the console that the user sits at: they switch
/// its keyboard off, take it over, draw other letters and colours, go to another one. Cameras' requests have the type `V`
/// too, with a size.
const TYPE_OF_IOCTL: u32 = 0xFFFF_FF00;
const OF_THE_CONSOLE: [u32; 2] = [0x4B00, 0x5600];
/// Those of them that only ask: `KDGETLED`, `KDGKBTYPE`, `KDGETMODE`, `GIO_SCRNMAP`, `KDGKBMODE`, `KDGKBENT`,
/// `KDGKBSENT`, `KDGKBDIACR`, `KDGETKEYCODE`, `GIO_FONT`, `KDGKBMETA`, `KDGKBLED`, `GIO_UNIMAP`, `GIO_UNISCRNMAP`,
/// `GIO_FONTX`, `GIO_CMAP`, `KDGKBDIACRUC`, `VT_OPENQRY`, `VT_GETMODE`, `VT_GETSTATE`, `VT_GETHIFONTMASK`.
const ASKS_THE_CONSOLE: [u32; 21] = [
    0x4B31, 0x4B33, 0x4B3B, 0x4B40, 0x4B44, 0x4B46, 0x4B48, 0x4B4A, 0x4B4C, 0x4B60, 0x4B62, 0x4B64,
    0x4B66, 0x4B69, 0x4B6B, 0x4B70, 0x4BFA, 0x5600, 0x5601, 0x5603, 0x560D,
];
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
    for of_the_console in OF_THE_CONSOLE {
        let mut test = vec![(1, Test::Masked(TYPE_OF_IOCTL, of_the_console))];
        let asks = ASKS_THE_CONSOLE.iter().filter(|asks| *asks & TYPE_OF_IOCTL == of_the_console);
        test.extend(asks.map(|asks| (1, Test::Differs(*asks))));
        let reason = "takes over the console and its keyboard, after the run too";
        add("ioctl", Verdict::Refuse, &test, reason);
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
        let reason = "takes the terminal from a job outside, whose keys are not for the command";
        add("ioctl", Verdict::Supervise, &crate::foreground::GIVES, reason);
    }
}
