//! What a clone starts from is its standard input: it gets that by name as it is, to read, and changes it by no
//! name.

use ringfence_tests::{Place, Tier, binary, everybody};
use std::fs::{self, File};
use std::process::Output;

/// Runs a script as a machine's QEMU is run, or as any command is.
fn run(place: &Place, inner: bool, script: &str) -> Output {
    let mut command = place.command(binary());
    if inner {
        command.env("RINGFENCE_MACHINE", "1");
    }
    command.args(["run", "--tier", "namespace", "--no-record", "--", "sh", "-c", script]);
    command.stdin(File::open(place.at("outside/saved")).unwrap()).output().unwrap()
}

#[test]
fn what_a_clone_starts_from_is_given_to_read_and_cannot_be_changed() {
    everybody(Tier::Namespace, |place| {
        let saved = place.file("outside/saved", "as it was\n");
        // Opened to read and write, it is there to read.
        let ran = run(place, true, "exec 3<>/proc/self/fd/0 && cat <&3");
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert_eq!((ran.status.code(), &ran.stdout[..]), (Some(0), &b"as it was\n"[..]), "{said}");
        let ran = run(place, true, "exec 3<>/proc/self/fd/0 && echo else | cat >&3");
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(!ran.status.success() && said.contains("Bad file descriptor"), "{said}");
        // By other names, and for anybody else by that one too, it is not opened to write.
        let names = ["/proc/self/fd/0", "/proc/thread-self/fd/0", "/proc/$$/fd/0", "/dev/stdin"];
        for (at, name) in names.into_iter().enumerate() {
            for how in ["<>", ">>"] {
                let inner = at > 0 || how == ">>";
                let ran = run(place, inner, &format!("chmod 666 {name}; exec 3{how}{name}"));
                let said = String::from_utf8_lossy(&ran.stderr).into_owned();
                assert!(!ran.status.success(), "{name} {how}");
                assert!(said.contains("Permission denied"), "{name} {how}: {said}");
            }
        }
        assert_eq!(fs::read_to_string(&saved).unwrap(), "as it was\n");
        // Its owner may, out here.
        fs::write(&saved, "new").unwrap();
    });
}
