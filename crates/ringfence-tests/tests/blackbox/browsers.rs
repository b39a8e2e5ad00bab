//! Browsers at hosts that are allowed by name: what they send there that looks like a hidden name is switched off
//! by settings that they are shown.

use ringfence_tests::{Finished, Place, Running, Tier, binary, everybody, left_out};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};

const SETTINGS: &str = "/etc/chromium/policies/managed/zz-ringfence.json";

/// A proxy of the user's that leads nowhere: the first bytes of each connection through it, with the host that it is for.
fn proxy() -> (u16, Receiver<(String, u8)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (tell, told) = channel();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && client.read(&mut byte).is_ok_and(|read| read > 0)
            {
                head.push(byte[0]);
            }
            let host = String::from_utf8_lossy(&head).split(' ').nth(1).unwrap_or("").to_owned();
            let _ = client.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
            if client.read(&mut byte).is_ok_and(|read| read > 0)
                && tell.send((host, byte[0])).is_err()
            {
                break;
            }
        }
    });
    (port, told)
}

fn visit(place: &Place, port: u16, options: &[&str]) -> Finished {
    let mut command = place.command(binary());
    command.env("HTTPS_PROXY", format!("http://127.0.0.1:{port}"));
    command.args(["run", "--tier", "namespace", "-m", "-n", "site.test"]).args(options);
    command.args([
        "--",
        "chromium",
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
    ]);
    command.args(["--user-data-dir=/tmp/browser", "--dump-dom", "https://site.test/"]);
    Running::start(command).finish()
}

#[test]
fn chromium_hides_no_name_where_names_are_ruled() {
    everybody(Tier::Namespace, |place| {
        if place.shell("command -v chromium").code != 0 || !Path::new("/etc/chromium").is_dir() {
            return left_out("a browser at an allowed name", "chromium is not installed");
        }
        let hidden = "site.test uses Encrypted Client Hello";
        // The control: without its settings it does hide one, or seems to, and reaches nothing.
        let (port, told) = proxy();
        visit(place, port, &["--deny", "/etc/chromium"]).says(hidden);
        assert!(told.try_recv().is_err(), "nothing of it leaves");

        let run = visit(place, port, &[]);
        assert!(!run.err.contains(hidden), "{}", run.err);
        assert_eq!(told.try_recv().ok(), Some(("site.test:443".to_owned(), 22)), "{}", run.err);
        assert!(!Path::new(SETTINGS).exists(), "the host has nothing of it");
    });
}

/// The host's own settings are there besides, and nothing of it can be changed; other networks show the host's alone.
#[test]
fn settings_are_shown_besides_those_of_the_host() {
    everybody(Tier::Namespace, |place| {
        let host = place.shell("cd /etc/chromium && ls -A");
        if host.code != 0 {
            return left_out("settings of browsers", "there is no /etc/chromium");
        }
        let inside = |options: &[&str]| place.sh(options, "cd /etc/chromium && ls -A").text();
        assert_eq!(inside(&[]), host.text());
        let mut both: Vec<String> = host.text().lines().map(str::to_owned).collect();
        both.push("policies".to_owned());
        both.sort();
        let mut shown: Vec<String> =
            inside(&["-n", "site.test"]).lines().map(str::to_owned).collect();
        shown.sort();
        assert_eq!(shown, both);
        let read = format!("cat {SETTINGS}");
        place
            .sh(&["-n", "site.test"], &read)
            .ends(0)
            .prints("\"EncryptedClientHelloEnabled\": false");
        let write = format!("echo '{{}}' > {SETTINGS}");
        place.sh(&["-n", "site.test"], &write).ends(2);
        place.sh(&["-n", "site.test"], &read).prints("false");
        let make = "echo x > /etc/chromium/policies/managed/zzz.json";
        place.sh(&["-n", "site.test"], make).ends(2).says("Read-only file system");
        assert_eq!(place.shell("cd /etc/chromium && ls -A").text(), host.text());
        // Where every host may be spoken to there is nothing to be told.
        assert_eq!(inside(&["-n", "*"]), host.text());
    });
}

/// `why` knows of the file that is shown, where it is.
#[test]
fn why_tells_of_the_settings_that_are_shown() {
    everybody(Tier::Namespace, |place| {
        let settings = "/etc/opt/chrome_for_testing/policies/managed/zz-ringfence.json";
        let own = "a file of ringfence's own is there inside";
        if !Path::new("/etc/opt").is_dir() || Path::new("/etc/opt/chrome_for_testing").exists() {
            return left_out("settings of a browser that are shown", "/etc/opt is not as usual");
        }
        let why = |host: &str| {
            let done = place.ringfence(["why", "-n", host, "--", "read", settings]);
            done.ends(0);
            done.text().contains(own)
        };
        assert!(!why("site.test"), "there is no such browser");
        place.file("home/.cache/puppeteer/x", "");
        assert!(why("site.test"));
        assert!(!why("*"), "names are not ruled");
        let inside = ["run", "-n", "site.test", "--", "cat", settings];
        place.ringfence(inside).ends(0).prints("EncryptedClientHelloEnabled");
    });
}
