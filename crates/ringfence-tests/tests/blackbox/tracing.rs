//! `--feature debug`: what runs inside may trace what runs inside, and nothing else.

use ringfence_tests::{Place, Tier, everybody};

/// Traces a child that has waited for it, and reads its memory; then tries PID 1. Prints each outcome.
const TRACER: &str = r#"
import ctypes, os, signal
libc = ctypes.CDLL(None, use_errno=True)
ATTACH, SEIZE, DETACH = 16, 0x4206, 17
class Piece(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
here = ctypes.create_string_buffer(b"a child's memory")
there = ctypes.create_string_buffer(16)
def told(name, result):
    print(name, os.strerror(ctypes.get_errno()) if result < 0 else "done")
def read(pid):
    one, other = Piece(ctypes.addressof(there), 16), Piece(ctypes.addressof(here), 16)
    return libc.process_vm_readv(pid, ctypes.byref(one), 1, ctypes.byref(other), 1, 0)
child = os.fork()
if child == 0:
    while True:
        signal.pause()
told("child", libc.ptrace(ATTACH, child, 0, 0))
told("memory", read(child))
os.kill(child, signal.SIGKILL)
told("attach", libc.ptrace(ATTACH, 1, 0, 0))
told("seize", libc.ptrace(SEIZE, 1, 0, 0))
told("read", read(1))
try:
    open("/proc/1/mem", "rb").close()
    print("opened")
except OSError as error:
    print("open", error.strerror)
"#;

fn traced(place: &Place, options: &[&str]) -> String {
    place.run(options, &["python3", "-c", TRACER]).well()
}

#[test]
fn what_runs_inside_is_traced_when_granted_and_pid_1_never_is() {
    everybody(Tier::Namespace, |place| {
        if !place.has("python3", "--version") {
            return;
        }
        let no = "Operation not permitted";
        let first = format!("attach {no}\nseize {no}\nread {no}\nopen Permission denied");
        let refused = traced(place, &[]);
        assert_eq!(refused, format!("child {no}\nmemory {no}\n{first}"));
        let granted = traced(place, &["--feature", "debug"]);
        assert_eq!(granted, format!("child done\nmemory done\n{first}"));
    });
}

#[test]
fn what_another_command_of_the_session_runs_is_not_traced() {
    everybody(Tier::Namespace, |place| {
        if !place.has("python3", "--version") {
            return;
        }
        let options = ["--feature", "debug", "--name", "traced"];
        let mut first = place.start(&options, &["sh", "-c", "echo ready; exec sleep 1000"]);
        first.printed("ready");
        let attach = "import ctypes, os; l = ctypes.CDLL(None, use_errno=True)
for pid in sorted(int(n) for n in os.listdir('/proc') if n.isdigit() and int(n) != os.getpid()):
    print(open(f'/proc/{pid}/comm').read().strip(), l.ptrace(16, pid, 0, 0), ctypes.get_errno())";
        let told = place.ringfence(["exec", "traced", "--", "python3", "-c", attach]).well();
        assert!(told.lines().any(|line| line == "sleep -1 1"), "{told}");
        assert!(told.lines().all(|line| line.ends_with(" -1 1")), "{told}");
    });
}

#[test]
fn where_nothing_keeps_it_inside_it_is_refused() {
    everybody(Tier::Process, |place| {
        place.run(&["--feature", "debug"], &["true"]).ends(125).says("needs the namespace tier");
    });
}
