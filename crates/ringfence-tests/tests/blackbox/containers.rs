//! Within the filters of containers.

use ringfence_tests::{Running, Tier, binary, everybody};

/// Answers clone3 with ENOSYS, as Docker's filter does (seccomp(2)), and executes its arguments.
const WITHOUT_CLONE3: &str = r#"
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
def step(code, yes, no, value): return struct.pack("HBBI", code, yes, no, value)
steps = step(0x20, 0, 0, 0) + step(0x15, 0, 1, 435) + step(0x06, 0, 0, 0x50000 | 38) + step(0x06, 0, 0, 0x7fff0000)
kept = ctypes.create_string_buffer(steps, len(steps))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", 4, ctypes.addressof(kept)), 16)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, program, 0, 0) == 0, ctypes.get_errno()
os.execv(sys.argv[1], sys.argv[1:])
"#;

#[test]
fn where_clone3_is_hidden_a_plan_that_is_kept_is_used_all_the_same() {
    everybody(Tier::Process, |place| {
        if !cfg!(target_arch = "x86_64") || !place.has("python3", "--version") {
            return;
        }
        place.clock_moves_on();
        let resumed = (0..20).any(|_| {
            let mut command = place.command("python3");
            command.env("RINGFENCE_TRACE_LAUNCH", "2");
            command.args(["-c", WITHOUT_CLONE3]).arg(binary());
            command.args(["run", "--tier", "process", "--", "sh", "-c", "echo ran; exit 7"]);
            let ran = Running::start(command).finish();
            ran.ends(7).prints("ran");
            ran.err.lines().any(|line| line.ends_with(" resumed"))
        });
        assert!(resumed, "{:?}", place.person);
    });
}
