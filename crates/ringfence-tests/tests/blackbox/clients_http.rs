//! Clients of the web through the filter, not inspected: in the clear and within TLS. What this machine
//! does not have is left out.

use crate::clients::{http, reaches, server};
use crate::inspection::clients::{go_client, packages};
use crate::inspection::server::Server;
use crate::toolchains::in_each_tier;
use ringfence_tests::{Tier, everybody, everywhere, free_port, left_out};

/// A web server that answers everything with `served`.
fn web() -> u16 {
    server(|client| http(client, |_| "served".to_owned()))
}

#[test]
fn curl_wget_and_netcat() {
    everywhere(|place| {
        let port = web();
        reaches(place, "curl", "curl -sS --max-time 20 http://localhost:PORT/", port);
        reaches(place, "wget", "wget -qO- --tries=1 --timeout=20 http://localhost:PORT/", port);
        if place.shell("command -v nc").code != 0 {
            left_out("nc", "it is not there");
            return;
        }
        let run = |rule: String| {
            let ask = format!("printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 20 127.0.0.1 {port}");
            place.run(&["-n", &rule], &["bash", "-c", &ask]).text()
        };
        assert!(run(format!("localhost:{port}")).contains("served"));
        assert!(!run("localhost:1".to_owned()).contains("served"));
    });
}

#[test]
fn python_by_urllib_requests_httpx_and_aiohttp() {
    let installed = packages();
    everywhere(|place| {
        let port = web();
        let own = "python3 -c \"import urllib.request as u; \
                   print(u.urlopen('http://localhost:PORT/').read().decode())\"";
        reaches(place, "python3", own, port);
        let readable = |path: &std::path::Path| {
            place.command("ls").arg(path).output().is_ok_and(|ls| ls.status.success())
        };
        let Some(path) = installed.filter(|path| readable(path)) else {
            left_out("requests, httpx and aiohttp", "they cannot be installed or read");
            return;
        };
        let path = path.to_str().unwrap();
        let clients = format!(
            "import sys; sys.path.insert(0, '{path}'); B = 'http://localhost:{port}/'\n\
             import requests, httpx, aiohttp, asyncio\n\
             print(requests.get(B).text, httpx.get(B).text)\n\
             async def main():\n\
             \x20   async with aiohttp.ClientSession() as s:\n\
             \x20       async with s.get(B) as r: print(await r.text())\n\
             asyncio.run(main())"
        );
        let host = format!("localhost:{port}");
        let ended = place.run(&["-n", &host, "-r", path], &["/usr/bin/python3", "-c", &clients]);
        assert_eq!(ended.ends(0).text(), "served served\nserved");
    });
}

#[test]
fn node_by_fetch_and_its_own_http() {
    in_each_tier(|place| {
        let port = web();
        let script = "node -e \"fetch('http://localhost:PORT/').then(r => r.text()).then(console.log)\
                      .then(() => require('http').get('http://localhost:PORT/', r => r.pipe(process.stdout)))\"";
        reaches(place, "node", script, port);
    });
}

#[test]
fn go_by_its_standard_library() {
    let Some(client) = go_client() else { return };
    everywhere(|place| {
        place.file("home/project/client", std::fs::read(client).unwrap());
        place.shell("chmod +x client").ends(0);
        let port = web();
        let (url, host) = (format!("http://127.0.0.1:{port}"), format!("localhost:{port}"));
        let ended = place.run(&["-n", &host], &["./client", &url]);
        assert_eq!(ended.ends(0).text(), "200 served\n200 served");
        place.run(&["-n", "localhost:1"], &["./client", &url]).ends(1);
    });
}

#[test]
fn java_by_its_http_client() {
    in_each_tier(|place| {
        if !place.has("java", "-version") {
            return;
        }
        place.file(
            "home/project/Get.java",
            "import java.net.URI; import java.net.http.*;
public class Get { public static void main(String[] a) throws Exception {
  System.out.println(HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create(a[0])).build(),
    HttpResponse.BodyHandlers.ofString()).body()); } }",
        );
        if place.shell("javac Get.java").code != 0 {
            left_out("java", "there is no compiler");
            return;
        }
        let port = web();
        let (url, host) = (format!("http://localhost:{port}/"), format!("localhost:{port}"));
        let ended = place.run(&["-n", &host], &["java", "-cp", ".", "Get", &url]);
        assert_eq!(ended.ends(0).text(), "served");
        let ended = place.run(&["-n", "localhost:1"], &["java", "-cp", ".", "Get", &url]);
        assert!(ended.code != 0 && !ended.text().contains("served"));
    });
}

/// TLS that is not looked into: the client checks the server's certificate itself.
#[test]
fn curl_and_openssl_within_tls() {
    everywhere(|place| {
        let server = Server::secure();
        place.file("home/project/ca.pem", &server.authority);
        let (port, host) = (server.port, format!("localhost:{}", server.port));
        let ask = format!(
            "curl -sS --cacert ca.pem https://{host}/echo/yes | head -1; \
             printf 'GET /echo/two HTTP/1.0\\r\\nHost: {host}\\r\\n\\r\\n' | openssl s_client -quiet \
             -verify_return_error -CAfile ca.pem -servername localhost -connect {host} 2>/dev/null \
             | grep -a GET"
        );
        let seen = place.run(&["-n", &host], &["bash", "-c", &ask]).text();
        assert!(seen.starts_with("GET /echo/yes HTTP/2"), "{seen}");
        if place.has("openssl", "version") {
            assert!(seen.contains("GET /echo/two HTTP/1.0"), "{seen}");
        }
        // Another name in its SNI than was granted.
        let ask = format!(
            "curl -sS --cacert ca.pem --connect-to other.test:443:localhost:{port} https://other.test/"
        );
        let ended = place.run(&["-n", &host, "--deny-host", "other.test:*"], &["bash", "-c", &ask]);
        assert!(ended.code != 0 && !ended.text().contains("GET"), "{}", ended.text());
    });
}

/// The address of a name that is allowed is one made up for it, and others have none.
#[test]
fn dig_asks_the_filter() {
    everywhere(|place| {
        if !place.has("dig", "-v") {
            return;
        }
        let ask = |options: &str, name: &str| {
            let words = format!("dig +short +tries=1 +time=20 {options} {name} A");
            place.run(&["-n", "allowed.test"], &["sh", "-c", &words]).text()
        };
        // The process tier has no datagrams.
        let ways = match place.tier {
            Tier::Namespace => &["", "+tcp", "@192.0.2.1"][..],
            Tier::Process => &["+tcp"],
        };
        for way in ways {
            let answer = ask(way, "allowed.test");
            assert!(
                answer.starts_with("198.18.") || answer.starts_with("198.19."),
                "{way}: {answer}"
            );
            assert_eq!(ask(way, "refused.test"), "", "{way}");
        }
    });
}

/// Where a program is connected to is where it wanted to be, in every tier.
#[test]
fn getpeername_tells_where_the_program_wanted_to_go() {
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        let port = web();
        let script = format!(
            "import socket
s = socket.create_connection(('127.0.0.1', {port})); print(s.getpeername())
six = socket.socket(socket.AF_INET6)
six.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
six.connect(('::ffff:127.0.0.1', {port})); print(six.getpeername()[:2])
try: socket.socket().getpeername()
except OSError as error: print(error.errno)
server = socket.create_server(('127.0.0.1', 0))
own = socket.create_connection(server.getsockname())
print(own.getpeername() == server.getsockname(), server.accept()[0].getpeername() == own.getsockname())
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
room, length = ctypes.create_string_buffer(b'x' * 16, 16), ctypes.c_int(6)
print(libc.getpeername(s.fileno(), room, ctypes.byref(length)), length.value, room.raw[6:] == b'x' * 10)
print(libc.getpeername(s.fileno(), ctypes.c_void_p(8), ctypes.byref(length)), ctypes.get_errno())
def option(socket, room):
    try: return socket.getsockopt(1, 28, room)
    except OSError as error: return error.errno
import struct
asked = struct.pack('=H', 2) + struct.pack('!H', {port}) + bytes([127, 0, 0, 1])
print(option(s, 16) == asked + bytes(8), option(s, 8) == asked, option(s, 17), option(socket.socket(), 16))
print(s.getsockopt(1, 3))"
        );
        let host = format!("localhost:{port}");
        let seen = place.run(&["-n", &host], &["python3", "-c", &script]).well();
        let expected = format!(
            "('127.0.0.1', {port})\n('::ffff:127.0.0.1', {port})\n107\nTrue True\n0 16 True\n-1 14\n\
             True True 22 107\n1"
        );
        assert_eq!(seen, expected);
    });
}

/// A repository by SSH, from a server of the host's own.
#[test]
fn git_by_ssh() {
    const SSHD: &str = "/usr/sbin/sshd";
    everybody(Tier::Namespace, |place| {
        if !std::path::Path::new(SSHD).exists() || place.person != ringfence_tests::Person::Root {
            left_out("git by ssh", "it takes sshd, and root to run it");
            return;
        }
        let setup = "ssh-keygen -q -t ed25519 -N '' -f host && ssh-keygen -q -t ed25519 -N '' -f key && \
                     mkdir -p served && git init -q served/one && git -C served/one -c user.name=a \
                     -c user.email=b commit -q --allow-empty -m served";
        place.shell(setup).ends(0);
        let separation = std::path::Path::new("/run/sshd");
        let made = std::fs::create_dir(separation).is_ok();
        let port = free_port();
        let project = place.project("");
        let project = project.display();
        let serve = format!(
            "exec {SSHD} -D -e -f /dev/null -p {port} -o ListenAddress=127.0.0.1 -o UsePAM=no \
             -o HostKey={project}/host -o AuthorizedKeysFile={project}/key.pub -o StrictModes=no \
             -o PidFile=none -o PermitRootLogin=yes 2>&1"
        );
        let mut sshd = place.shell_start(&serve);
        sshd.printed("listening on");
        let ask = format!(
            "export GIT_SSH_COMMAND='ssh -F /dev/null -i {project}/key -o StrictHostKeyChecking=no \
             -o UserKnownHostsFile=/dev/null -o BatchMode=yes'; cd \"$TMPDIR\" 2>/dev/null || cd /tmp; \
             git clone -q ssh://root@localhost:{port}{project}/served/one cloned && \
             git -C cloned log --format=%s"
        );
        let run = |rule: String| place.run(&["-n", &rule], &["bash", "-c", &ask]);
        let allowed = run(format!("localhost:{port}"));
        let refused = run("localhost:1".to_owned());
        sshd.signal(rustix::process::Signal::TERM);
        sshd.finish();
        if made {
            let _ = std::fs::remove_dir(separation);
        }
        assert_eq!(allowed.text(), "served", "{}", allowed.err);
        assert!(refused.code != 0 && !refused.text().contains("served"));
    });
}
