//! What is the user's (a credential that is put in, the user's own proxy) goes to no server of the sandbox's own: in the
//! process tier that listens at the host's very loopback.

use crate::clients::server;
use crate::network_told::proxy;
use ringfence_tests::{Finished, Place, Running, everywhere, free_port};
use std::io::{Read, Write};
use std::sync::{Arc, Mutex};

const SECRET: &str = "rf-secret-of-the-user";

/// All but the ports that the gateway itself answers at inside.
const HIGH: &str = "1024-65535";

/// Listens at a port (0: any), asks for something there by the proxy, and says whether it may, what the answer was, and
/// what its own server heard: of the secret, and at all.
const LISTEN: &str = "
import socket, sys, threading
secret, port = sys.argv[1].encode(), int(sys.argv[2])
heard = []
server = socket.socket()
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
def serve():
    while True:
        client, _ = server.accept()
        with client:
            client.settimeout(5)
            try:
                while True:
                    heard.append(client.recv(9999))
                    if not heard[-1]: break
                    client.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 4\\r\\n\\r\\nmine')
            except OSError: pass
try:
    server.bind(('127.0.0.1', port))
    server.listen()
    threading.Thread(target=serve, daemon=True).start()
    may = 'listens'
except OSError as error: may = type(error).__name__
host = sys.argv[3] if len(sys.argv) > 3 else 'localhost:%d' % (port or server.getsockname()[1])
s = socket.create_connection(('127.0.0.1', 1022), 60)
s.sendall(b'GET http://%s/ HTTP/1.1\\r\\nHost: %s\\r\\nConnection: close\\r\\n\\r\\n' % ((host.encode(),) * 2))
answer = b''
while True:
    more = s.recv(9999)
    if not more: break
    answer += more
told = b'\\n'.join(heard)
print(may, answer.split(b' ')[1].decode(), secret in told, bool(told))
print(answer.split(b'\\r\\n\\r\\n')[-1].decode())
";

fn python(place: &Place) -> bool {
    place.has("python3", "--version")
}

/// A service of the host's, and what it has heard.
fn hearing() -> (u16, Arc<Mutex<String>>) {
    let heard = Arc::<Mutex<String>>::default();
    let hears = heard.clone();
    let port = server(move |client| {
        let mut buffer = [0; 4096];
        let count = client.read(&mut buffer)?;
        hears.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..count]));
        client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nserved")
    });
    (port, heard)
}

fn listening(
    place: &Place,
    variables: &[(&str, &str)],
    options: &[&str],
    words: &[&str],
) -> Finished {
    let mut command = place.ringfence_run();
    command.env("TOKEN", SECRET).envs(variables.iter().copied());
    command.args(options).args(["--", "python3", "-c", LISTEN, SECRET]).args(words);
    Running::start(command).finish()
}

#[test]
fn a_server_inside_gets_no_credential() {
    everywhere(|place| {
        if !python(place) {
            return;
        }
        let ask = |port: u16, rule: &str| {
            let (host, key) =
                (format!("localhost:{rule}"), format!("localhost:{rule} x-key=env:TOKEN"));
            listening(place, &[], &["-n", &host, "--inject", &key], &[&port.to_string()])
        };
        // By the port that the rule names: nobody of the host's listens there, and nothing inside may.
        let port = free_port();
        let ended = ask(port, &port.to_string());
        let text = ended.ends(0).text();
        if place.tier_name() == "process" {
            assert!(text.starts_with("PermissionError 502 False False\n"), "{text}");
            ended.says(&format!("nothing inside may listen at port {port} of the loopback"));
            ended.says("`x-key` (--inject)");
        } else {
            // There it is a port of the sandbox's own loopback.
            assert!(text.starts_with("listens 502 False False\n"), "{text}");
        }
        // By one that it happened to get.
        let text = ask(0, HIGH).ends(0).text();
        assert!(text.starts_with("listens 502 False False\n"), "{text}");
        if place.tier_name() == "process" {
            assert!(text.contains("a server inside listens there"), "{text}");
        }
        // The control: a service of the host's gets it.
        for rule in [HIGH, ""] {
            let (port, heard) = hearing();
            let number = port.to_string();
            let text = ask(port, if rule.is_empty() { &number } else { rule }).ends(0).text();
            assert!(text.contains(" 200 False False\nserved"), "{text}");
            assert!(heard.lock().unwrap().contains(&format!("x-key: {SECRET}")));
        }
    });
}

/// Without a credential servers inside are reached by the proxy as they are without it.
#[test]
fn a_server_inside_is_reached_by_the_proxy_where_nothing_is_put_in() {
    everywhere(|place| {
        if !python(place) || place.tier_name() != "process" {
            return;
        }
        let port = free_port();
        for (option, rule) in [("-n", ""), ("--http", "GET ")] {
            let rule = format!("{rule}localhost:{port}{}", if rule.is_empty() { "" } else { "/" });
            let ended = listening(place, &[], &[option, &rule], &[&port.to_string()]);
            assert_eq!(ended.ends(0).text(), "listens 200 False True\nmine", "{}", ended.err);
        }
    });
}

/// It listens where the user's own proxy is that does not run: it would be told the password, and see what is for others.
#[test]
fn a_server_inside_is_not_the_users_own_proxy() {
    everywhere(|place| {
        if !python(place) {
            return;
        }
        let ask = |of_proxy: u16, port: u16, host: &str| {
            let proxy = format!("http://user:{SECRET}@{host}:{of_proxy}");
            // `Proxy-Authorization` is in base64, and the header that is put in is not.
            let options = ["-n", "site.test:8000", "--inject", "site.test:8000 x-key=env:TOKEN"];
            let words = [port.to_string(), "site.test:8000".to_owned()];
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            listening(place, &[("HTTPS_PROXY", &proxy), ("NO_PROXY", "")], &options, &words)
        };
        for host in ["127.0.0.1", "localhost", "127.0.0.5", "0.0.0.0"] {
            let port = free_port();
            let ended = ask(port, port, host);
            let text = ended.ends(0).text();
            if place.tier_name() == "process" {
                assert!(text.starts_with("PermissionError 502 False False\n"), "{text}");
                ended.says(&format!("nothing inside may listen at port {port} of the loopback"));
                ended.says("it is your proxy's");
            } else {
                assert!(text.starts_with("listens 502 False False\n"), "{text}");
            }
        }
        // The control: a proxy of the user's that runs gets it.
        let (served, heard) = hearing();
        let text = ask(proxy(served), 0, "127.0.0.1").ends(0).text();
        assert!(text.starts_with("listens 200 False False\nserved"), "{text}");
        assert!(heard.lock().unwrap().contains(&format!("x-key: {SECRET}")));
    });
}

/// Another sandbox of the user's knows nothing of the rule, and may listen there.
#[test]
fn a_server_in_another_sandbox_gets_no_credential() {
    everywhere(|place| {
        if !python(place) || place.tier_name() != "process" {
            return;
        }
        let script = "import socket, sys
server = socket.create_server(('127.0.0.1', 0)); print(server.getsockname()[1], flush=True)
server.settimeout(60); client, _ = server.accept(); client.settimeout(60); print(client.recv(9999).decode(), flush=True)
client.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 6\\r\\nConnection: close\\r\\n\\r\\nserved'); client.close()";
        let mut other = place.start(&["-n", "site.test"], &["python3", "-c", script]);
        let port = other.printed("\n").so_far().trim().to_owned();
        let host = format!("localhost:{port}");
        let key = format!("{host} x-key=env:TOKEN");
        let ask = |options: &[&str]| {
            let mut command = place.ringfence_run();
            command.env("TOKEN", SECRET).args(options);
            let url = format!("http://{host}/");
            command.args(["--", "curl", "-sS", "-m", "60", "-x", "http://127.0.0.1:1022", &url]);
            Running::start(command).finish()
        };
        let refused = ask(&["-n", &host, "--inject", &key]);
        refused.prints("a server in another sandbox listens there");
        // The control: without a credential it is reached, and that is what it hears first.
        assert_eq!(ask(&["-n", &host]).ends(0).text(), "served");
        let heard = other.finish().text();
        assert!(heard.contains("GET /") && !heard.contains(SECRET), "{heard}");
    });
}
