//! What `why` says of Unix sockets beside published ports is what programs meet.

use crate::truth::why;
use ringfence_tests::{Person, Place, Tier, everybody, left_out};
use std::os::unix::net::UnixListener;

/// Tries to bind each path that is given.
const BINDS: &str = "
import socket, sys
for path in sys.argv[1:]:
    try: socket.socket(socket.AF_UNIX).bind(path)
    except OSError as error: print('no', error.strerror)
    else: print('yes')
";

/// Tries to connect to each path that is given.
const CONNECTS: &str = "
import socket, sys
for path in sys.argv[1:]:
    try: socket.socket(socket.AF_UNIX).connect(path)
    except OSError as error: print('no', error.strerror)
    else: print('yes')
";

fn can(place: &Place, options: &[&str], program: &str, path: &str) -> bool {
    let ran = place.run(options, &["python3", "-c", program, path]);
    ran.ends(0);
    ran.text() == "yes"
}

fn ready(place: &Place) -> bool {
    let ready = place.publishes() && place.has("python3", "--version");
    if !ready {
        left_out("sockets beside published ports", "no ports are published here, or no Python");
    }
    ready
}

#[test]
fn sockets_beside_published_ports_are_reached_where_it_is_said() {
    everybody(Tier::Namespace, |place| {
        if !ready(place) {
            return;
        }
        let _host = UnixListener::bind(place.project("host.sock")).unwrap();
        place.person.owns(&place.project("host.sock"));
        // Root's sockets of the host are locked by themselves, and may be passed on.
        let held = place.person == Person::Ordinary;
        for (options, open) in [
            (&[][..], true),
            (&["--publish", "3020"], !held),
            (&["--publish", "3020", "--allow-socket", "host.sock"], true),
        ] {
            let (allowed, said) = why(place, options, &["socket", "host.sock"]);
            assert_eq!(allowed, open, "{options:?}: {said}");
            assert_eq!(said.contains("with published TCP ports"), !open, "{options:?}: {said}");
            assert_eq!(
                said.contains("before the run: --allow-socket "),
                !open,
                "{options:?}: {said}"
            );
            assert_eq!(can(place, options, CONNECTS, "host.sock"), open, "{options:?}: {said}");
        }
    });
}

#[test]
fn sockets_beside_published_ports_are_bound_where_it_is_said() {
    everybody(Tier::Namespace, |place| {
        if !ready(place) {
            return;
        }
        let held = place.person == Person::Ordinary;
        let home = place.text("home/own.sock");
        let publish = ["--publish", "3020"];
        for (options, path, own) in [
            (&[][..], "new.sock", false),
            (&[], "/tmp/new.sock", true),
            (&[], &home, true),
            (&["--home", "kept"], &home, false),
        ] {
            let options = [&publish, options].concat();
            let (allowed, said) = why(place, &options, &["write", path]);
            let open = own || !held;
            assert!(allowed, "{options:?}: {said}");
            assert_eq!(
                !said.contains("no Unix socket can be bound there"),
                open,
                "{options:?}: {said}"
            );
            assert_eq!(can(place, &options, BINDS, path), open, "{options:?} {path}: {said}");
            let _ = std::fs::remove_file(place.project("new.sock"));
        }
        // What is no place for a socket, and where nothing is published.
        place.file("home/project/file", "");
        for (options, path) in [(&publish[..], "file"), (&[], "new.sock")] {
            let (_, said) = why(place, options, &["write", path]);
            assert!(!said.contains("Unix socket"), "{said}");
        }
    });
}

#[test]
fn sockets_in_a_tree_that_is_kept_apart_are_not_called_reachable() {
    everybody(Tier::Namespace, |place| {
        if !place.has("python3", "--version") {
            return;
        }
        let _host = UnixListener::bind(place.project("host.sock")).unwrap();
        place.person.owns(&place.project("host.sock"));
        let beside = place.text("outside/beside.sock");
        let _beside = UnixListener::bind(&beside).unwrap();
        place.person.owns(beside.as_ref());
        for (options, path, open) in [
            (&[][..], "host.sock", true),
            (&["--overlay=discard"], "host.sock", false),
            (&["--overlay=discard", "--allow-socket", "host.sock"], "host.sock", false),
            (&["--overlay=discard", "--allow-socket", &beside], &beside, true),
        ] {
            let (allowed, said) = why(place, options, &["socket", path]);
            assert_eq!(allowed, open, "{options:?}: {said}");
            assert_eq!(said.contains("kept apart (--overlay)"), !open, "{options:?}: {said}");
            assert_eq!(can(place, options, CONNECTS, path), open, "{options:?}: {said}");
        }
    });
}

/// A directory of the host's below the one that holds the runtime directories of its users; none where none can be made.
fn of_users() -> Option<tempfile::TempDir> {
    use std::os::unix::fs::PermissionsExt;
    const USERS: &str = "/run/user";
    let made = std::fs::create_dir_all(USERS)
        .and_then(|()| tempfile::Builder::new().prefix("ringfence-test-").tempdir_in(USERS));
    let Ok(made) = made else {
        left_out("sockets of the host's services", "no directory can be made in /run/user");
        return None;
    };
    std::fs::set_permissions(made.path(), PermissionsExt::from_mode(0o755)).unwrap();
    Some(made)
}

#[test]
fn one_socket_of_the_hosts_services_opens_no_other() {
    everybody(Tier::Namespace, |place| {
        if !place.has("python3", "--version") {
            return;
        }
        let Some(users) = of_users() else { return };
        let path = |name: &str| users.path().join(name).to_str().unwrap().to_owned();
        std::fs::create_dir_all(path("a/b")).unwrap();
        let (bus, deep) = (path("bus"), path("a/b/deep"));
        let _listening = [&bus, &deep].map(|path| {
            let listener = UnixListener::bind(path).unwrap();
            place.person.owns(path.as_ref());
            listener
        });
        place.person.owns(path("a").as_ref());
        let tree = path("a");
        let granted: [&[&str]; 4] = [
            &[],
            &["--allow-socket", &deep],
            &["-w", &tree],
            &["-r", &tree, "--allow-socket", &deep],
        ];
        for root in ["/run", "/"] {
            for granted in granted {
                let options = [&["-r", root], granted].concat();
                for (path, open) in [(&bus, false), (&deep, !granted.is_empty())] {
                    let (allowed, said) = why(place, &options, &["socket", path]);
                    assert_eq!(allowed, open, "{options:?} {path}: {said}");
                    assert_eq!(can(place, &options, CONNECTS, path), open, "{options:?} {path}");
                }
            }
        }
    });
}
