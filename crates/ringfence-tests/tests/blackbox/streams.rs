//! Arguments, standard streams, descriptors and what a process inherits: as without ringfence.

use ringfence_tests::{Place, Running, Tier, everybody, everywhere};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

#[test]
fn arguments_arrive_untouched() {
    everywhere(|place| {
        let words: [&[u8]; 9] = [
            b"",
            b" two  spaces ",
            b"new\nline",
            b"; rm -rf x && $(boom) `boom` $HOME",
            b"'\"\\",
            b"--",
            b"--read",
            b"not utf-8: \xff\xfe\x80",
            b"*",
        ];
        let mut command = place.ringfence_run();
        command.args(["--", "printf", "%s\\0"]).args(words.map(OsStr::from_bytes));
        let ended = Running::start(command).finish();
        ended.ends(0);
        let wanted: Vec<u8> =
            words.iter().flat_map(|word| [word, b"\0".as_slice()].concat()).collect();
        assert_eq!(ended.out, wanted);
    });
}

#[test]
fn odd_names_of_programs_and_directories_work() {
    everywhere(|place| {
        let odd = OsString::from_vec(b"odd \n;\xff name".to_vec());
        let directory = place.directory(std::path::Path::new("home/project").join(&odd));
        ringfence_tests::copy_program("/bin/sh", directory.join(&odd));
        let mut command = place.ringfence_run();
        command.current_dir(&directory);
        command.arg("--").arg(OsStr::from_bytes(b"./odd \n;\xff name"));
        command.args(["-c", "echo ran > here; pwd"]);
        let ended = Running::start(command).finish();
        ended.ends(0);
        assert_eq!(ended.out.strip_suffix(b"\n").unwrap(), directory.as_os_str().as_bytes());
        assert_eq!(std::fs::read(directory.join("here")).unwrap(), b"ran\n");
    });
}

/// Bytes of every value, in no order that a text filter would leave alone.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x2545_F491_4F6C_DD1Du64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

#[test]
fn streams_carry_64_mib_of_any_bytes() {
    everywhere(|place| {
        let bytes = noise(64 << 20);
        let mut command = place.ringfence_run();
        command.args(["--", "cat"]);
        let ended = Running::start_with(command, bytes.clone()).finish();
        assert_eq!(ended.code, 0, "{}", ended.err);
        assert!(ended.out == bytes, "what came back differs");
    });
}

#[test]
fn standard_error_is_the_commands_own() {
    everywhere(|place| {
        let ended = place.sh(&[], "echo out; echo err >&2");
        assert_eq!((ended.code, ended.text().as_str(), ended.err.as_str()), (0, "out", "err\n"));
    });
}

#[test]
fn closed_streams_do_not_hinder_and_are_not_mixed_up() {
    everywhere(|place| {
        place.shell("$RF -- sh -c 'exit 4' <&- >&- 2>&-").ends(4);
        // A descriptor of ringfence's own must not become the command's standard output.
        assert_eq!(
            place.shell("$RF -- sh -c 'echo to stderr >&2' >&- 2>err; cat err").text(),
            "to stderr"
        );
        assert_eq!(place.shell("$RF -- sh -c 'echo fine' <&-").well(), "fine");
        // Who writes to what was closed is told, as outside.
        for (out, closed) in [("", ">&-"), (">&2", "2>&-")] {
            for how in ["sh -c", "$RF -- sh -c"] {
                let line =
                    format!("rm -f told; {how} 'echo lost {out} || : > told' {closed}; ls told");
                place.shell(&line).ends(0);
            }
        }
        let kinds = "for fd in 0 1 2; do [ -e /proc/self/fd/$fd ] && readlink /proc/self/fd/$fd; done >result";
        place.shell(&format!("$RF -- sh -c '{kinds}' <&- 2>&-")).ends(0);
        let result = std::fs::read_to_string(place.project("result")).unwrap();
        assert!(!result.contains("socket:") && !result.contains("anon_inode"), "{result}");
    });
}

#[test]
fn streams_are_opened_again_by_their_names_and_as_they_are_open() {
    everywhere(|place| {
        place.file("outside/given", "given\n");
        let around = "< ../../outside/given >> ../../outside/out 2>> ../../outside/err";
        let script =
            "cat /dev/stdin; echo o >> /dev/stdout; echo e >> /dev/stderr; cat /proc/self/fd/0";
        let read = |name: &str| std::fs::read_to_string(place.at("outside").join(name)).unwrap();
        place.shell(&format!("$RF -- sh -c '{script}' {around}")).ends(0);
        assert_eq!((read("out").as_str(), read("err").as_str()), ("given\no\ngiven\n", "e\n"));
        // Devices, which are none of the sandbox's own.
        let script = "cat /dev/stdin && echo > /dev/stdout && echo > /dev/stderr";
        place.shell(&format!("$RF -- sh -c '{script}' < /dev/null > /dev/null 2>&1")).ends(0);
        // What was lent for reading is not written, nor the other way round; the control is outside.
        let around = "< ../../outside/given > ../../outside/out 2> ../../outside/err";
        let script = "echo x >> /dev/stdin; cat /dev/stdout >&2; echo done >&2";
        place.shell(&format!("sh -c '{script}' {around}")).ends(0);
        assert_eq!((read("given").as_str(), read("err").as_str()), ("given\nx\n", "done\n"));
        place.shell(&format!("$RF -- sh -c '{script}' {around}")).ends(0);
        assert_eq!(read("given"), "given\nx\n");
        assert_eq!(read("err").matches("Permission denied").count(), 2, "{}", read("err"));
        assert!(read("err").ends_with("done\n"));
        // With a directory nothing is started.
        let beside = place.text("outside/secret");
        let script = format!("cat {beside}; ls /dev/stdin/.; cat /dev/stdin/secret");
        place.shell(&format!("{script} < ../../outside")).ends(0).prints("a secret");
        let seen = place.shell(&format!("$RF -- sh -c '{script}' < ../../outside"));
        assert_eq!((seen.code, seen.text().as_str()), (125, ""), "{}", seen.err);
    });
}

#[test]
fn inherited_descriptors_are_closed() {
    everywhere(|place| {
        place.file("outside/open", "a capability");
        let list = "ls -l /proc/self/fd";
        let control = place.shell(&format!("exec 7<../../outside/open 99</; {list}"));
        assert!(
            control.text().contains("outside/open"),
            "the control holds it: {}",
            control.text()
        );
        let inside = place.shell(&format!("exec 7<../../outside/open 99</; $RF -- {list}")).well();
        let open: Vec<&str> = inside
            .lines()
            .filter_map(|line| line.split_once(" -> "))
            .map(|(left, _)| left)
            .collect();
        let numbers: Vec<&str> = open.iter().filter_map(|left| left.rsplit(' ').next()).collect();
        // ls itself opens the fourth.
        assert_eq!(numbers, ["0", "1", "2", "3"], "{inside}");
        place.shell("exec 7<../../outside/open; cat <&7").ends(0);
        place.shell("exec 7<../../outside/open; $RF -- sh -c 'cat <&7'").ends(2);
    });
}

#[test]
fn the_umask_is_kept() {
    everywhere(|place| {
        for mask in ["0022", "0077", "0002", "0137"] {
            assert_eq!(place.shell(&format!("umask {mask}; $RF -- sh -c umask")).well(), mask);
        }
        place.shell("umask 0077; $RF -- touch private").ends(0);
        assert_eq!(place.shell("stat -c %a private").well(), "600");
    });
}

#[test]
fn ignored_signals_stay_ignored_and_others_are_not() {
    everywhere(|place| {
        let show = "grep -E '^Sig(Ign|Blk|Cgt)' /proc/self/status";
        for before in ["", "trap '' HUP INT QUIT;", "trap '' PIPE CHLD XFSZ;"] {
            let outside = place.shell(&format!("{before} {show}")).well();
            let inside = place.shell(&format!("{before} $RF -- {show}")).well();
            assert_eq!(inside, outside, "{before}");
        }
        place.shell("trap '' HUP; $RF -- sh -c 'kill -HUP $$; exit 3'").ends(3);
        place.shell("$RF -- sh -c 'kill -HUP $$; exit 3'").ends(129);
    });
}

#[test]
fn a_broken_pipe_ends_the_command() {
    everywhere(|place| {
        // `yes` dies of SIGPIPE only if its disposition is the default.
        let ended = place.shell("$RF -- yes | head -n 1; echo ${PIPESTATUS[0]}");
        assert_eq!(ended.well(), "y\n141");
    });
}

#[test]
fn what_a_process_inherits_is_as_outside() {
    everybody(Tier::Namespace, |place: &Place| {
        let show = "ulimit -n; ulimit -s; ulimit -v; nice; cat /proc/self/oom_score_adj";
        let around = "ulimit -n 512; ulimit -s 4096; nice -n 3";
        let outside = place.shell(&format!("{around} bash -c '{show}'")).well();
        let inside = place.shell(&format!("{around} $RF -- bash -c '{show}'")).well();
        assert_eq!(inside, outside);
    });
}

#[test]
fn ids_groups_and_time_are_the_callers() {
    everywhere(|place| {
        let (user, group) = place.person.ids();
        assert_eq!(
            place.sh(&[], "id -u; id -g; id -ru").well(),
            format!("{user}\n{group}\n{user}")
        );
        let outside = place.shell("date +%Z; hostname; nproc").well();
        assert_eq!(place.sh(&[], "date +%Z; hostname; nproc").well(), outside);
    });
}

/// Whoever has read enough (`| head -1`) is no reason to panic.
#[test]
fn output_that_nobody_reads_ends_quietly() {
    for words in [&["--help"][..], &["learn", "--help"], &["hooks", "--help"], &["version"]] {
        let run = |out: std::process::Stdio| {
            let mut command = std::process::Command::new(ringfence_tests::binary());
            command.args(words).stdout(out).output().unwrap()
        };
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let unread = run(writer.into());
        let said = String::from_utf8_lossy(&unread.stderr);
        assert!(unread.status.success() && said.is_empty(), "{words:?}: {said}");
        // The control: read, it says something.
        assert!(!run(std::process::Stdio::piped()).stdout.is_empty(), "{words:?}");
    }
}

/// `ringfence run … 2>&1 | head -1`: that nobody reads what ringfence says any more is no end of its own.
#[test]
fn who_reads_no_messages_gets_the_commands_exit_code() {
    everywhere(|place| {
        let nobody = "exec 3> >(exit); wait $!";
        let script = format!(
            "exec bash -c '{nobody}; $RF -m -- sh -c \"echo x > .envrc; echo ran >&1; exit 3\" 2>&3'"
        );
        place.shell(&script).prints("ran").ends(3);
        assert!(!place.project(".envrc").exists());
        // The control: where somebody reads, there is something said.
        place.sh(&["-m"], "echo x > .envrc; exit 3").ends(3).says(".envrc was created inside");
    });
}

/// Connects what it got as its standard input to the port it is told, and says how that went; first lets go of what that
/// was connected to (connect(2)).
const ELSEWHERE: &str = "\
import ctypes, socket, sys
libc = ctypes.CDLL(None)
s = socket.socket(fileno=0); s.settimeout(20)
libc.connect(0, bytes(16), 16)
try:
    s.connect(('127.0.0.1', int(sys.argv[1]))); print(s.recv(9).decode())
except OSError as error:
    print(error)
";

#[test]
fn a_socket_of_the_network_is_no_standard_stream() {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::{UnixDatagram, UnixStream};
    use std::process::Stdio;
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        let with = |stream: OwnedFd, options: &[&str], argv: &[&str]| {
            let mut command = place.ringfence_run();
            command.args(options).arg("--").args(argv).stdin(Stdio::from(stream));
            let ended = command.output().expect("started");
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            (ended.status.code(), text(&ended.stdout), text(&ended.stderr))
        };
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = other.local_addr().unwrap().port().to_string();
        let connected = || OwnedFd::from(TcpStream::connect(first.local_addr().unwrap()).unwrap());
        let datagrams = || OwnedFd::from(UdpSocket::bind("127.0.0.1:0").unwrap());
        let listening = || OwnedFd::from(TcpListener::bind("127.0.0.1:0").unwrap());
        let local = || OwnedFd::from(UnixDatagram::unbound().unwrap());
        let connect = ["python3", "-c", ELSEWHERE, &port];
        // Twice: a plan that is kept for this command does not change it.
        place.run(&[], &["true"]).ends(0);
        for options in [&[][..], &["-n", "site.test"], &["--network", "none"]] {
            let all: [&dyn Fn() -> OwnedFd; 4] = [&connected, &datagrams, &listening, &local];
            for socket in all {
                for argv in [&connect[..], &["true"]] {
                    let (code, out, err) = with(socket(), options, argv);
                    assert_eq!((code, out.as_str()), (Some(125), ""), "{options:?} {err}");
                    assert!(err.contains("standard input is a socket of the host's"), "{err}");
                }
            }
        }
        other.set_nonblocking(true).unwrap();
        assert!(other.accept().is_err(), "nobody came");
        other.set_nonblocking(false).unwrap();
        // The controls: with the host's network it works, and local streams go in as they are.
        let serves =
            std::thread::spawn(move || other.accept().unwrap().0.write_all(b"reached").unwrap());
        let (code, out, err) = with(connected(), &["--network", "host"], &connect);
        assert_eq!((code, out.trim()), (Some(0), "reached"), "{err}");
        serves.join().unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        (&ours).write_all(b"bytes").unwrap();
        ours.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(
            with(OwnedFd::from(theirs), &[], &["cat"]),
            (Some(0), "bytes".to_owned(), String::new())
        );
    });
}
