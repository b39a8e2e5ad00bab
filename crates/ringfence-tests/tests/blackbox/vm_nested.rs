//! `--tier vm`: sandboxes inside a guest, and the code that drives KVM, in a guest whose processor has it (emulated).

use super::vm::{guests, ringfence, start};
use ringfence_tests::{Person, binary, left_out};
use std::path::Path;

/// Where `vm setup` puts the kernel, as root.
const KERNEL: &str = "/var/lib/ringfence/vm/kernel";

#[test]
fn a_sandbox_inside_a_guest_works() {
    guests(|place| {
        // Commands of root have no capability, so they may not make the user 0 of another namespace their own.
        if place.person == Person::Root {
            return;
        }
        let program = binary().to_str().unwrap();
        place.file("home/project/own", "own\n");
        let script = format!(
            "unshare -Ur id -u; {program} run -- cat own; \
             {program} run --deny $PWD/own -- cat own 2>/dev/null || echo denied"
        );
        let said = start(place, &["-r", program], &["sh", "-c", &script]).finish().well();
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines, ["0", "own", "denied"]);
    });
}

/// Kernel-mode code is executed by KVM, under an emulated processor's virtualisation. A whole run behind such
/// a KVM takes longer: `make nested`.
#[test]
fn kvm_is_used_where_it_executes_a_kernels_code() {
    guests(|place| {
        if place.person == Person::Root && ringfence_tests::people().len() > 1 {
            return;
        }
        if !Path::new(KERNEL).is_dir() {
            return left_out("KVM in a guest", "the kernel of guests is not readable inside one");
        }
        let program = binary().to_str().unwrap();
        // On a loaded machine one look may be too slow: what counts is that it can be found.
        let look = format!("{program} vm status | grep '^executed by  *kvm$'");
        let script =
            format!("ls /dev/kvm; for look in 1 2 3 4 5 6 7 8 9; do {look} && break; done");
        let mut command = ringfence(place, &["run", "--tier", "vm", "-r", program, "-r", KERNEL]);
        // A guest of another shape: it boots, as long as that takes.
        let ran =
            command.args(["--", "sh", "-c", &script]).env("RINGFENCE_VM_NESTED", "1").output();
        let (ran, said) =
            (ran.unwrap(), |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned());
        let (out, err) = (said(&ran.stdout), said(&ran.stderr));
        assert_eq!(out.lines().collect::<Vec<_>>(), ["/dev/kvm", "executed by   kvm"], "{err}");
        // The control: an ordinary guest has none.
        start(place, &[], &["ls", "/dev/kvm"]).finish().ends(2).says("No such file");
    });
}

/// libkrun serves where it is asked for, is built in, and KVM executes guests; else a sentence says what is missing. What its machines do
/// is tried in a guest as well: `make nested`.
#[test]
fn a_monitor_that_cannot_serve_is_refused() {
    guests(|place| {
        let plan = |monitor: &str| {
            let mut command = ringfence(place, &["plan", "--tier", "vm", "--", "true"]);
            let ran = command.env("RINGFENCE_VM_MONITOR", monitor).output().unwrap();
            let said = [ran.stdout, ran.stderr].concat();
            (ran.status.code(), String::from_utf8_lossy(&said).into_owned())
        };
        let (code, said) = plan("qemu");
        assert!(code == Some(0) && !said.contains("libkrun"), "{said}");
        let (code, said) = plan("xen");
        assert!(code == Some(125) && said.contains("qemu or krun"), "{said}");
        let (code, said) = plan("krun");
        let refused = ["built without libkrun", "libkrun has no emulator"];
        match code {
            Some(0) => assert!(said.contains("devices by libkrun"), "{said}"),
            _ => {
                assert!(code == Some(125) && refused.iter().any(|why| said.contains(why)), "{said}")
            }
        }
    });
}
