//! Real clients, each by its own idea of TLS, of whom to trust, and of HTTP.

use super::{Server, host, inject, rule, run, script};
use crate::toolchains::in_each_tier;
use ringfence_tests::{Place, Tier, everywhere, left_out};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Each client gets `/echo/yes` and is refused `/no`.
fn asked(place: &Place, server: &Server, options: &[&str], argv: &[&str]) {
    let get = rule(server, "GET", "/echo/*");
    let options = [&["--http", &get], options].concat();
    let ended = run(place, server, &options, argv);
    let text = ended.text();
    assert!(
        text.contains("GET /echo/yes HTTP") && text.contains("403") && ended.code == 0,
        "{}: {text}\n{}",
        argv[0],
        ended.err
    );
}

#[test]
fn curl_streams_compresses_continues_and_speaks_both_versions() {
    everywhere(|place| {
        let server = Server::secure();
        let any = rule(&server, "GET,POST,PUT", "/*");
        let run = |text: &str| script(place, &server, &["--http", &any], text).well();
        for version in ["--http1.1", "--http2"] {
            let curl = format!("curl -sSf {version}");
            assert_eq!(run(&format!("{curl} --compressed $U/gzip")), "compressed");
            let raw = run(&format!("{curl} $U/gzip | od -An -tx1 | head -1"));
            assert!(raw.starts_with(" 1f 8b"), "{raw}");
            // A body of 20 MB down and up, the latter with its length announced and not.
            assert_eq!(run(&format!("{curl} $U/large/20000000 | wc -c")), "20000000");
            for how in ["", "-H Transfer-Encoding:chunked"] {
                let up =
                    format!("head -c 20000000 /dev/zero | {curl} {how} -T - $U/echo/x | tail -1");
                assert_eq!(run(&up), "body 20000000 0", "{version} {how}");
            }
            let waits = format!("{curl} -H 'Expect: 100-continue' -d hello $U/echo/x | tail -1");
            assert!(run(&waits).starts_with("body 5 "), "{version}");
            let get =
                format!("{curl} -X GET -H Transfer-Encoding:chunked -d hello $U/echo/x | tail -1");
            assert!(run(&get).starts_with("body 5 "), "{version}");
            // The second event is sent when the first has been seen.
            let events = format!(
                "{curl} -N $U/sse | while read -r line; do echo \"$line\"; \
                 if [ \"$line\" = 'data: event 1' ]; then {curl} $U/ack; fi; done"
            );
            assert_eq!(run(&events), "data: event 1\n\ndata: event 2", "{version}");
            let cut = format!("{curl} $U/large/broken/20000000 -o /dev/null; echo $?");
            let cut = script(place, &server, &["--http", &any], &cut);
            assert!(["18", "92", "56"].contains(&&*cut.text()), "{version}: {}", cut.text());
        }
        let trailers = run("curl -sSf --http2 -v $U/trailers 2>&1 | grep -c 'x-trailer: end'");
        assert_eq!(trailers, "1");
    });
}

#[test]
fn websockets_pass() {
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        let server = Server::secure();
        let get = rule(&server, "GET", "/ws");
        let client = format!(
            "
import socket, ssl
def ask(path):
    raw = socket.create_connection(('localhost', {port}))
    s = ssl.create_default_context().wrap_socket(raw, server_hostname='localhost')
    s.send((f'GET {{path}} HTTP/1.1\\r\\nHost: localhost:{port}\\r\\nConnection: keep-alive, Upgrade\\r\\n'
            'Upgrade: websocket\\r\\nSec-WebSocket-Version: 13\\r\\n'
            'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\\r\\n\\r\\n').encode())
    head = b''
    while not head.endswith(b'\\r\\n\\r\\n'): head += s.recv(1)
    return s, head.decode()
s, head = ask('/ws')
assert head.startswith('HTTP/1.1 101'), head
assert 's3pPLMBiTxaQ9kYGzzhZRbK+xOo=' in head, head
for size in (1, 5000, 100000):
    s.sendall(b'x' * size)
    got = 0
    while got < size: got += len(s.recv(65536))
    print('echoed', got)
print(ask('/other')[1].split()[1])",
            port = server.port
        );
        let seen = run(place, &server, &["--http", &get], &["python3", "-c", &client]).well();
        assert_eq!(seen, "echoed 1\nechoed 5000\nechoed 100000\n403");
    });
}

#[test]
fn wget_openssl_and_git() {
    everywhere(|place| {
        let server = Server::secure();
        let url = host(&server);
        // Where GnuTLS is built in, wget trusts the system's bundle alone, which only a view can replace.
        if place.tier == Tier::Namespace && place.has("wget", "--version") {
            let text = format!(
                "wget -qO- https://{url}/echo/yes; wget -S -qO- https://{url}/no 2>&1; true"
            );
            asked(place, &server, &[], &["sh", "-c", &text]);
        }
        if place.has("openssl", "version") {
            let text = format!(
                "for path in /echo/yes /no; do printf 'GET %s HTTP/1.1\\r\\nHost: {url}\\r\\n\
                 Connection: close\\r\\n\\r\\n' $path | openssl s_client -quiet -verify_return_error \
                 -servername localhost -connect {url} 2>/dev/null; done; true"
            );
            asked(place, &server, &[], &["bash", "-c", &text]);
        }
    });
}

#[test]
fn git_clones_what_it_may_and_nothing_else() {
    everywhere(|place| {
        if !place.has("git", "--version") {
            return;
        }
        let setup = "mkdir -p served && cd served && git init -q one && cd one && \
                     git -c user.name=a -c user.email=b commit -q --allow-empty -m first && \
                     git update-server-info && cd .. && cp -r one two";
        place.shell(setup).ends(0);
        let server = Server::of_files(place.project("served"));
        let get = rule(&server, "GET", "/files/one/*");
        let clone = "git clone -q $U/files/one/.git cloned && git -C cloned log --format=%s; \
                     git clone -q $U/files/two/.git other; echo $?";
        let ended = script(place, &server, &["--http", &get], clone);
        assert_eq!(ended.text(), "first\n128", "{}", ended.err);
        ended.says("403");
    });
}

/// Packages of the index that the caller's pip is set to, installed once; nothing where it has
/// none.
pub fn packages() -> Option<&'static Path> {
    static INSTALLED: OnceLock<Option<PathBuf>> = OnceLock::new();
    let installed = INSTALLED.get_or_init(|| {
        let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python-clients");
        if to.join("done").exists() {
            return Some(to);
        }
        let ended = Command::new("/usr/bin/python3")
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
            .args(["--no-warn-script-location", "--upgrade", "--target"])
            .arg(&to)
            .args(["requests", "httpx[http2]", "aiohttp"])
            .output();
        match ended {
            Ok(ended) if ended.status.success() => {
                std::fs::write(to.join("done"), "").unwrap();
                Some(to)
            }
            Ok(ended) => {
                left_out("Python's clients", &String::from_utf8_lossy(&ended.stderr));
                None
            }
            Err(error) => {
                left_out("Python's clients", &error.to_string());
                None
            }
        }
    });
    installed.as_deref()
}

#[test]
fn python_by_its_own_means() {
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        let server = Server::secure();
        let text = format!(
            "
import urllib.request, urllib.error
print(urllib.request.urlopen('https://localhost:{port}/echo/yes').read().decode())
try: urllib.request.urlopen('https://localhost:{port}/no')
except urllib.error.HTTPError as error: print(error.code)",
            port = server.port
        );
        asked(place, &server, &[], &["python3", "-c", &text]);
    });
}

#[test]
fn python_by_requests_httpx_and_aiohttp() {
    let Some(packages) = packages() else { return };
    everywhere(|place| {
        if !place.command("ls").arg(packages).output().is_ok_and(|ls| ls.status.success()) {
            left_out("Python's clients", &format!("{:?} cannot read them", place.person));
            return;
        }
        let server = Server::secure();
        let base = format!("https://localhost:{}", server.port);
        let clients = [
            "import requests; s = requests.Session(); \
             print(s.get(B + '/echo/yes').text, s.get(B + '/no').status_code)",
            "import httpx; c = httpx.Client(http2=True); \
             print(c.get(B + '/echo/yes').text, c.get(B + '/no').status_code)",
            "import aiohttp, asyncio\n\
             async def main():\n\
             \x20   async with aiohttp.ClientSession() as s:\n\
             \x20       async with s.get(B + '/echo/yes') as r: print(await r.text())\n\
             \x20       async with s.get(B + '/no') as r: print(r.status)\n\
             asyncio.run(main())",
        ];
        let (path, grant) = (packages.to_str().unwrap(), packages.to_str().unwrap());
        for client in clients {
            let text = format!("import sys; sys.path.insert(0, '{path}'); B = '{base}'\n{client}");
            asked(place, &server, &["-r", grant], &["/usr/bin/python3", "-c", &text]);
        }
    });
}

#[test]
fn node_by_fetch_and_https() {
    everywhere(|place| {
        if !place.has("node", "--version") {
            return;
        }
        let server = Server::secure();
        let text = format!(
            "const B = 'https://localhost:{}';
            (async () => {{
              console.log(await (await fetch(B + '/echo/yes')).text());
              console.log((await fetch(B + '/no')).status);
              await new Promise((done) => require('https').get(B + '/echo/yes', (r) => {{
                if (r.statusCode !== 200) process.exit(3);
                r.resume(); r.on('end', done);
              }}));
              const http2 = require('http2').connect(B);
              const stream = http2.request({{':path': '/echo/yes'}});
              stream.on('response', (h) => {{ if (h[':status'] !== 200) process.exit(4); }});
              stream.resume(); stream.on('end', () => http2.close());
            }})();",
            server.port
        );
        asked(place, &server, &[], &["node", "-e", &text]);
    });
}

/// A client in Go, built once; nothing where Go is absent.
pub fn go_client() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let to = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-client");
        std::fs::create_dir_all(&to).unwrap();
        std::fs::write(to.join("main.go"), GO).unwrap();
        let ended = Command::new("go")
            .args(["build", "-o", "client", "main.go"])
            .env("GO111MODULE", "off")
            .env("CGO_ENABLED", "0")
            .current_dir(&to)
            .output();
        match ended {
            Ok(ended) if ended.status.success() => Some(to.join("client")),
            Ok(ended) => {
                left_out("go", &String::from_utf8_lossy(&ended.stderr));
                None
            }
            Err(error) => {
                left_out("go", &error.to_string());
                None
            }
        }
    });
    built.as_deref()
}

const GO: &str = r#"package main
import ("fmt"; "io"; "net/http"; "os")
func main() {
  for _, path := range []string{"/echo/yes", "/no"} {
    answer, err := http.Get(os.Args[1] + path)
    if err != nil { fmt.Println(err); os.Exit(1) }
    body, _ := io.ReadAll(answer.Body)
    fmt.Println(answer.StatusCode, string(body))
  }
}"#;

#[test]
fn go_by_its_standard_library() {
    let Some(client) = go_client() else { return };
    everywhere(|place| {
        let program = std::fs::read(client).unwrap();
        place.file("home/project/client", program);
        place.shell("chmod +x client").ends(0);
        let server = Server::secure();
        let url = format!("https://{}", host(&server));
        asked(place, &server, &[], &["./client", &url]);
    });
}

#[test]
fn java_by_its_http_client() {
    in_each_tier(|place| {
        if !place.has("java", "-version") {
            return;
        }
        place.file(
            "home/project/Client.java",
            r#"import java.net.URI; import java.net.http.*;
public class Client {
  public static void main(String[] a) throws Exception {
    var client = HttpClient.newHttpClient();
    for (var path : new String[] {"/echo/yes", "/no"}) {
      var answer = client.send(HttpRequest.newBuilder(URI.create(a[0] + path)).build(),
                               HttpResponse.BodyHandlers.ofString());
      System.out.println(answer.statusCode() + " " + answer.body());
    }
  }
}"#,
        );
        let server = Server::secure();
        let url = format!("https://{}", host(&server));
        let built = place.shell("javac Client.java");
        if built.code != 0 {
            left_out("java", &built.err);
            return;
        }
        asked(place, &server, &[], &["java", "-cp", ".", "Client", &url]);
    });
}

#[test]
fn clients_through_the_proxy_inside_are_looked_at_as_well() {
    everywhere(|place| {
        let server = Server::secure();
        let get = rule(&server, "GET", "/echo/*");
        let key = inject(&server, "X-Key=env:TOKEN");
        let options = ["--http", get.as_str(), "--inject", key.as_str()];
        for proxy in ["http://127.0.0.1:1022", "socks5h://127.0.0.1:1022"] {
            let text = format!(
                "curl -sS --proxy {proxy} --noproxy '' $U/echo/x | grep x-key; \
                 curl -sS -o /dev/null -w '%{{http_code}}' --proxy {proxy} --noproxy '' $U/no"
            );
            let seen = script(place, &server, &options, &text).well();
            assert_eq!(seen, format!("x-key: {}\n403", super::SECRET), "{proxy}");
        }
    });
}
