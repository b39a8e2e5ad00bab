//! Package managers and a registry of the test's own, through the filter and through inspection: each
//! asks it for the versions of a package. What this machine does not have is left out.

use crate::clients::{http_of, server};
use crate::inspection::server::Server;
use ringfence_tests::{Place, Tier, left_out, people};

/// What registries answer, by the path that they are asked for.
const ANSWERS: [(&str, &str, &str); 8] = [
    (
        "npm/probe",
        "application/json",
        r#"{"name":"probe","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"probe","version":"1.0.0","description":"served"}}}"#,
    ),
    ("go/example.test/probe/@v/list", "text/plain", "v1.2.3\n"),
    (
        "go/example.test/probe/@v/v1.2.3.info",
        "application/json",
        r#"{"Version":"v1.2.3","Time":"2026-01-01T00:00:00Z"}"#,
    ),
    ("go/example.test/probe/@v/v1.2.3.mod", "text/plain", "module example.test/probe\n"),
    (
        "maven/test/parent/1/parent-1.pom",
        "text/xml",
        "<project><modelVersion>4.0.0</modelVersion><groupId>test</groupId><artifactId>parent</artifactId>\
         <version>1</version><packaging>pom</packaging></project>",
    ),
    ("cargo/config.json", "application/json", r#"{"dl":"http://localhost:1/"}"#),
    (
        "cargo/pr/ob/probe",
        "text/plain",
        r#"{"name":"probe","vers":"1.2.3","deps":[],"cksum":"0000000000000000000000000000000000000000000000000000000000000000","features":{},"yanked":false}"#,
    ),
    (
        "pip/probe/",
        "text/html",
        "<!DOCTYPE html><html><body><a href=\"probe-9.9.tar.gz\">probe-9.9.tar.gz</a></body></html>",
    ),
];

fn page(path: &str) -> (&'static str, String) {
    let path = path.trim_start_matches('/');
    let known = ANSWERS.iter().find(|(known, _, _)| *known == path);
    known.map_or_else(Default::default, |(_, kind, text)| (*kind, (*text).to_owned()))
}

/// Runs a test in each tier, as the caller: these programs take long to start.
pub fn in_each_tier(test: impl Fn(&Place)) {
    for tier in Tier::here() {
        test(&Place::new(people()[0], tier));
    }
}

/// Runs a script in which `$U` is the registry: over HTTP through the filter, over TLS through inspection,
/// and where it is not granted. It prints `expected` in the first two.
fn asks(place: &Place, script: &str, expected: &str, options: &[&str]) {
    let plain = server(|client| http_of(client, page));
    let files = place.directory("home/registry");
    for (path, _, text) in ANSWERS {
        let text = text.replace("localhost:1", "localhost:2");
        // A directory's own page.
        let path = if path.ends_with('/') { format!("{path}index.html") } else { path.to_owned() };
        place.file(format!("home/registry/{path}"), text);
    }
    let secure = Server::of_files(files);
    let authority = place.file("authority.pem", &secure.authority);
    let run = |url: String, options: &[&str]| {
        let mut command = place.ringfence_run();
        command.env("SSL_CERT_FILE", &authority).args(options).arg("--");
        command.args(["bash", "-c", &format!("U={url}; {{ {script}; }} 2>&1")]);
        ringfence_tests::Running::start(command).finish().text()
    };
    let (host, other) = (format!("localhost:{plain}"), "localhost:1");
    let seen = run(format!("http://localhost:{plain}"), &[options, &["-n", &host]].concat());
    assert!(seen.contains(expected), "through the filter: {seen}");
    let rule = format!("GET localhost:{}/files/*", secure.port);
    let seen = run(
        format!("https://localhost:{}/files", secure.port),
        &[options, &["--http", &rule]].concat(),
    );
    assert!(seen.contains(expected), "through inspection: {seen}");
    let seen = run(format!("http://localhost:{plain}"), &[options, &["-n", other]].concat());
    assert!(!seen.contains(expected), "not granted: {seen}");
}

#[test]
fn npm() {
    in_each_tier(|place| {
        if !place.has("npm", "--version") {
            return;
        }
        let script =
            "npm view probe description --registry $U/npm/ --no-update-notifier --fetch-retries 0";
        asks(place, script, "served", &[]);
    });
}

#[test]
fn pip() {
    in_each_tier(|place| {
        if place.shell("/usr/bin/python3 -m pip --version").code != 0 {
            left_out("pip", "it is not there");
            return;
        }
        // It says which versions there are when none is the one.
        let script = "/usr/bin/python3 -m pip download --no-cache-dir --retries 0 --no-deps \
                      --disable-pip-version-check --index-url $U/pip/ probe==1";
        asks(place, script, "from versions: 9.9", &[]);
    });
}

#[test]
fn go_modules() {
    in_each_tier(|place| {
        let go = "/usr/local/go/bin/go";
        let go = if std::path::Path::new(go).exists() { go } else { "go" };
        if !place.has(go, "version") {
            return;
        }
        let script = format!(
            "cd \"$(mktemp -d)\" && export GOFLAGS=-mod=mod GONOSUMDB='*' GOTOOLCHAIN=local GOCACHE=$PWD/c \
             GOPATH=$PWD/p GOPROXY=$U/go && {go} mod init own.test/x 2>/dev/null; \
             {go} list -m -versions example.test/probe"
        );
        asks(place, &script, "example.test/probe v1.2.3", &["-r", "?/usr/local/go"]);
    });
}

#[test]
fn cargo() {
    in_each_tier(|place| {
        // The one that runs this test: rustup's own shim needs its settings.
        let Some(cargo) = std::env::var_os("CARGO").map(std::path::PathBuf::from) else { return };
        let (Some(cargo), Some(toolchain)) = (cargo.to_str(), cargo.ancestors().nth(2)) else {
            return;
        };
        if !place.has(cargo, "--version") {
            return;
        }
        let toolchain = toolchain.to_str().unwrap();
        let script = format!(
            "cd \"$(mktemp -d)\" && export CARGO_HOME=$PWD/h CARGO_NET_RETRY=0 PATH={toolchain}/bin:$PATH \
             CARGO_REGISTRIES_OWN_INDEX=sparse+$U/cargo/ && mkdir src && touch src/lib.rs && \
             printf '[package]\\nname = \"x\"\\nversion = \"0.1.0\"\\n[dependencies]\\n\
             probe = {{ version = \"1\", registry = \"own\" }}\\n' > Cargo.toml && \
             cargo generate-lockfile && grep -A1 probe Cargo.lock"
        );
        asks(place, &script, "version = \"1.2.3\"", &["-r", toolchain]);
    });
}

#[test]
fn maven() {
    in_each_tier(|place| {
        if !place.has("mvn", "-version") {
            return;
        }
        // The parent has to be fetched before anything is known of the project.
        let script = "cd \"$(mktemp -d)\" && printf '<project><modelVersion>4.0.0</modelVersion><parent>\
             <groupId>test</groupId><artifactId>parent</artifactId><version>1</version><relativePath/></parent>\
             <artifactId>own</artifactId><packaging>pom</packaging><repositories><repository><id>central</id>\
             <url>%s/maven</url></repository></repositories></project>' $U > pom.xml && \
             mvn -B -ntp -Dmaven.repo.local=$PWD/m validate";
        asks(place, script, "BUILD SUCCESS", &[]);
    });
}
