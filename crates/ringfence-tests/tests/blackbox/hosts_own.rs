//! What belongs to the host and is only lent: device nodes, sockets, directories behind a stream, root's own files,
//! another user's profiles.

use ringfence_tests::{Person, Place, Running, Tier, everybody, everywhere, people};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// Root inside owns the nodes of the host's devices.
#[test]
fn nodes_of_devices_are_not_changed() {
    everybody(Tier::Namespace, |place| {
        for device in ["full", "null", "zero", "random", "urandom", "tty"] {
            let path = format!("/dev/{device}");
            let before = fs::metadata(&path).unwrap();
            let changed = place.sh(&[], &format!("chmod 0646 {path}"));
            let touched = place.sh(&[], &format!("touch -d 2001-01-01 {path}"));
            let now = fs::metadata(&path).unwrap();
            // A failure here is no reason to leave the machine with it.
            if now.mode() != before.mode() {
                fs::set_permissions(&path, before.permissions()).unwrap();
            }
            changed.ends(1).says("Read-only file system");
            touched.ends(1);
            assert_eq!((now.mode(), now.mtime()), (before.mode(), before.mtime()), "{path}");
        }
        // The control: they are read and written.
        let used = "echo gone > /dev/null && : >> /dev/null && head -c 3 /dev/zero | od -An -c && \
                    head -c 1 /dev/urandom > /dev/null && ! echo x > /dev/full";
        place.sh(&[], used).ends(0).prints("\\0");
    });
}

/// A socket that is granted is connected to, and nothing else is done to it.
#[test]
fn a_granted_socket_keeps_its_mode() {
    everybody(Tier::Namespace, |place| {
        if !place.has("python3", "--version") {
            return;
        }
        let socket = place.text("outside/socket");
        let listen = "import os,socket,sys\ns=socket.socket(socket.AF_UNIX); s.bind(sys.argv[1])\n\
                      os.chmod(sys.argv[1], 0o600); s.listen(); print('up', flush=True)\n\
                      c,_=s.accept(); c.send(b'heard')";
        let mut command = place.command("python3");
        command.args(["-c", listen, &socket]);
        let mut listener = Running::start(command);
        listener.printed("up\n");
        let run = place.sh(&["--allow-socket", &socket], &format!("chmod 777 {socket}"));
        run.ends(1).says("Read-only file system");
        assert_eq!(fs::metadata(&socket).unwrap().mode() & 0o777, 0o600);
        let connect = format!(
            "import socket\ns=socket.socket(socket.AF_UNIX); s.connect({socket:?}); print(s.recv(9))"
        );
        let run = place.run(&["--allow-socket", &socket], &["python3", "-c", &connect]);
        run.ends(0).prints("b'heard'");
        listener.finish();
    });
}

/// What a service hands over lies in no mount of the view's: there Landlock is the only lock.
#[test]
fn a_directory_that_a_service_hands_over_is_not_written_to() {
    everybody(Tier::Namespace, |place| {
        if !place.has("python3", "--version") {
            return;
        }
        let lent = place.directory("outside/lent");
        place.person.owns(&lent);
        let (lent, socket) = (lent.to_str().unwrap(), place.text("outside/socket"));
        let serve = "import os,socket,sys\ns=socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen()\n\
                     print('up', flush=True)\nfor _ in range(2):\n \
                     c,_=s.accept(); socket.send_fds(c, [b'x'], [os.open(sys.argv[2], os.O_RDONLY)])";
        let mut command = place.command("python3");
        place.person.becomes(&mut command);
        command.args(["-c", serve, &socket, lent]);
        let mut service = Running::start(command);
        service.printed("up\n");
        let take = format!(
            "import os, socket\ns=socket.socket(socket.AF_UNIX); s.connect({socket:?})\n\
             d=socket.recv_fds(s, 9, 1)[1][0]\n\
             def tried(act):\n try: act()\n except OSError as e: return e.errno\n return 0\n\
             print(tried(lambda: os.open('made', os.O_CREAT | os.O_WRONLY, dir_fd=d)),\n\
             tried(lambda: os.mkdir('dir', dir_fd=d)), tried(lambda: os.open('.', os.O_RDONLY, dir_fd=d)))"
        );
        let made = || fs::read_dir(lent).unwrap().count();
        let run = place.run(&["--allow-socket", &socket], &["python3", "-c", &take]);
        run.ends(0).prints("13 13 13");
        assert_eq!(made(), 0);
        // The control: where the directory is granted it is a file, a directory, and a list.
        let granted = ["--allow-socket", &socket, "-w", lent];
        place.run(&granted, &["python3", "-c", &take]).ends(0).prints("0 0 0");
        assert_eq!(made(), 2);
        service.finish();
    });
}

/// By a directory's descriptor all that is in it can be listed, and get other modes and times.
#[test]
fn a_directory_is_no_stream() {
    everywhere(|place| {
        let outside = place.text("outside");
        let secret = fs::metadata(place.at("outside/secret")).unwrap().mode();
        for (redirected, stream) in [("<", "input"), ("0<", "input")] {
            let script = format!(
                "$RF -- sh -c 'ls -a /proc/self/fd/0/; chmod 777 /proc/self/fd/0/secret' {redirected} {outside}"
            );
            let run = place.shell(&script);
            run.ends(125).says(&format!("standard {stream} is a directory"));
            assert!(!run.text().contains("secret"));
        }
        // Output cannot be one by a redirection, but by a descriptor that is handed on.
        place.shell(&format!("$RF -- true 3< {outside} >&3")).ends(125).says("standard output");
        // A compiled plan does not change that.
        for _ in 0..2 {
            place.shell("$RF -- true < /dev/null").ends(0);
        }
        place.shell(&format!("$RF -- true < {outside}")).ends(125).says("is a directory");
        assert_eq!(fs::metadata(place.at("outside/secret")).unwrap().mode(), secret);
        place.shell(&format!("$RF -- cat < {outside}/secret")).ends(0).prints("a secret");
    });
}

fn everywhere_as_root(test: impl Fn(&Place)) {
    if people().contains(&Person::Root) {
        Tier::here().into_iter().for_each(|tier| test(&Place::new(Person::Root, tier)));
    }
}

/// A file of /etc that no list names.
#[test]
fn what_others_cannot_read_in_etc_root_does_not_inside() {
    everywhere_as_root(|place| {
        let file = |mode: u32| {
            let file =
                tempfile::Builder::new().prefix("ringfence-test-").tempfile_in("/etc").unwrap();
            fs::write(file.path(), "a secret\n").unwrap();
            fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
            file
        };
        let (closed, open) = (file(0o600), file(0o644));
        let cat =
            |path: &Path, options: &[&str]| place.run(options, &["cat", path.to_str().unwrap()]);
        let run = cat(closed.path(), &[]);
        run.ends(1).says("Permission denied");
        assert!(!run.text().contains("a secret"));
        cat(open.path(), &[]).ends(0).prints("a secret");
        // Granted by its name it is the user's word.
        cat(closed.path(), &["-r", closed.path().to_str().unwrap()]).ends(0).prints("a secret");
    });
}

/// `sudo` that keeps HOME: the profiles there are not root's, nor are the hooks in them.
#[test]
fn another_users_profiles_are_not_roots() {
    everywhere_as_root(|place| {
        let theirs = Place::new(Person::Ordinary, place.tier);
        let ran = theirs.at("ran");
        let profile =
            format!("extends = [\"program\"]\n[hooks]\nbefore = [\"id -u > {}\"]\n", ran.display());
        theirs.file("home/.config/ringfence/profiles/default.toml", profile);
        let mut command = place.ringfence_run();
        command.env("HOME", theirs.at("home")).args(["--", "true"]);
        Running::start(command).finish().ends(125).says("belongs to another user");
        assert!(!ran.exists());
        // The control: it is the word of the one whose it is.
        let run = theirs.run(&[], &["true"]);
        run.ends(0);
        assert_ne!(fs::read_to_string(&ran).unwrap(), "0\n");
    });
}

/// Where everybody makes names, who made one first is not given what root writes there.
#[test]
fn what_root_writes_over_another_users_file_where_all_write_is_roots() {
    everywhere_as_root(|place| {
        place.file("home/project/claude.json", "{}");
        let shared = place.directory("outside/shared");
        let theirs = place.file("outside/shared/out.toml", "");
        Person::Ordinary.owns(&theirs);
        let import = || {
            let mode = fs::Permissions::from_mode(0o666);
            fs::set_permissions(place.at("outside/shared/out.toml"), mode).unwrap();
            place
                .ringfence([
                    "import",
                    "claude",
                    "claude.json",
                    "-o",
                    &place.text("outside/shared/out.toml"),
                ])
                .ends(0);
            let now = fs::metadata(&theirs).unwrap();
            (now.uid(), now.mode() & 0o777)
        };
        // The control: in a directory of root's it is an owner that root has given.
        assert_eq!(import(), (Person::Ordinary.ids().0, 0o666));
        Person::Ordinary.owns(&theirs);
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
        assert_eq!(import(), (0, 0o644));
        assert_eq!(import(), (0, 0o666), "one's own stays as it was");
    });
}
