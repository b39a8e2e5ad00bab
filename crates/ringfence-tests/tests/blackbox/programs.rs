//! Real programs inside. Each is first run outside, as the control: what this machine does not
//! have is left out, with the reason.

use ringfence_tests::{Place, Tier, everybody, everywhere, left_out};
use std::path::Path;

/// The script works outside and inside, each in a directory of its own.
#[track_caller]
fn same(place: &Place, program: &str, version: &str, script: &str) {
    if !place.has(program, version) {
        return;
    }
    let outside =
        place.shell(&format!("mkdir -p outside-{program} && cd outside-{program} && {script}"));
    if outside.code != 0 {
        return left_out(program, &format!("the control fails: {}", outside.err.trim()));
    }
    let inside = place.run(
        &[],
        &["bash", "-c", &format!("mkdir -p inside-{program} && cd inside-{program} && {script}")],
    );
    inside.ends(0);
    let clean = |text: String| text.replace("inside-", "").replace("outside-", "");
    assert_eq!(clean(inside.text()), clean(outside.text()), "{program} as {:?}", place.person);
}

#[test]
fn shells_and_small_tools() {
    everywhere(|place| {
        same(
            place,
            "bash",
            "--version",
            "for i in 1 2 3; do echo $i; done | sort -r | tee f | wc -l; cat <(echo a) <<< b; test -f f; [[ abc =~ b ]] && echo $BASH_REMATCH",
        );
        same(place, "awk", "-W version", "echo 1 2 | awk '{print $1 + $2}'");
        same(
            place,
            "find",
            "--version",
            "touch a b; find . -type f | sort | xargs -n1 basename; sed -n 1p /etc/passwd | cut -d: -f1",
        );
        same(
            place,
            "tar",
            "--version",
            "mkdir d; echo x > d/f; tar czf t.tgz d; rm -r d; tar xzf t.tgz; cat d/f",
        );
        same(place, "mktemp", "--version", "d=$(mktemp -d); echo x > $d/f; cat $d/f; rm -r $d");
    });
}

#[test]
fn python() {
    everywhere(|place| {
        same(
            place,
            "python3",
            "--version",
            "python3 -c 'import os, pwd, json, ssl, sqlite3; print(pwd.getpwuid(os.getuid()).pw_name, json.dumps([1]))'",
        );
        same(
            place,
            "python3",
            "--version",
            "python3 -c 'import subprocess; print(subprocess.check_output([\"echo\", \"x\"]))'",
        );
        same(
            place,
            "python3",
            "--version",
            "python3 -c 'import tempfile; f = tempfile.NamedTemporaryFile(); f.write(b\"x\"); print(f.tell())'",
        );
        same(
            place,
            "python3",
            "--version",
            "python3 -c 'import threading; t = threading.Thread(target=print, args=(1,)); t.start(); t.join()'",
        );
    });
    everybody(Tier::Namespace, |place| {
        same(
            place,
            "python3",
            "--version",
            "python3 -m venv --without-pip v && v/bin/python -c 'import sys; print(sys.prefix != sys.base_prefix)' && python3 -m venv --without-pip v && echo again",
        );
        same(
            place,
            "python3",
            "--version",
            "python3 -c '
import multiprocessing as m
def f(x): return x * x
if __name__ == \"__main__\":
    print(m.Pool(2).map(f, range(4)), m.Lock(), m.Queue() is not None)' | cut -d'<' -f1",
        );
        same(
            place,
            "python3",
            "--version",
            "python3 -c 'import asyncio; print(asyncio.run(asyncio.sleep(0, 7)))'",
        );
        same(
            place,
            "python3",
            "--version",
            "python3 -c 'from multiprocessing import shared_memory as s; m = s.SharedMemory(create=True, size=9); m.buf[0] = 7; print(m.buf[0]); m.close(); m.unlink()'",
        );
        same(
            place,
            "python3",
            "--version",
            "python3 -c 'import socket; a, b = socket.socketpair(); a.send(b\"x\"); print(b.recv(1), socket.getaddrinfo(\"localhost\", 80)[0][4][1])'",
        );
    });
}

#[test]
fn node_and_npm() {
    everywhere(|place| {
        same(
            place,
            "node",
            "--version",
            "node -e 'console.log(1 + 1, require(\"os\").userInfo().uid, process.cwd().length > 1)' | sed 's/true//'",
        );
        same(
            place,
            "node",
            "--version",
            "node -e 'require(\"fs\").writeFileSync(\"f\", \"x\"); new (require(\"worker_threads\").Worker)(\"console.log(7)\", {eval: true})'",
        );
    });
    everybody(Tier::Namespace, |place| {
        same(
            place,
            "node",
            "--version",
            "node -e 'const c = require(\"child_process\"); console.log(c.execSync(\"echo x\").toString()); const h = require(\"http\"); const s = h.createServer((q, r) => r.end(\"hi\")).listen(0, () => h.get({port: s.address().port}, r => r.on(\"data\", d => { console.log(String(d)); s.close(); })))'",
        );
        same(
            place,
            "npm",
            "--version",
            "mkdir -p lib app && echo '{\"name\":\"lib\",\"version\":\"1.0.0\",\"main\":\"i.js\"}' > lib/package.json && echo 'module.exports = 7' > lib/i.js && echo '{\"name\":\"app\",\"version\":\"1.0.0\"}' > app/package.json && cd app && npm pack ../lib --cache ../cache --silent && npm install --cache ../cache --offline --no-audit --no-fund --silent ./lib-1.0.0.tgz && node -p 'require(\"lib\")'",
        );
    });
}

#[test]
fn compilers() {
    everywhere(|place| {
        same(
            place,
            "cc",
            "--version",
            "printf '#include <stdio.h>\\nint main(void) { puts(\"hello\"); return 0; }\\n' > h.c && printf 'h: h.c\\n\\tcc -O1 -o h h.c\\n' > Makefile && make -s && ./h",
        );
        same(
            place,
            "perl",
            "-v",
            "perl -MPOSIX -e 'print getpid() > 1 ? \"x\" : \"y\", join(\",\", map { $_ * 2 } 1..3), \"\\n\"'",
        );
    });
    everybody(Tier::Namespace, |place| {
        same(
            place,
            "go",
            "version",
            "printf 'package main\nfunc main() { println(\"hello\") }\n' > main.go && GOPROXY=off GOCACHE=$PWD/../cache go build -o hello main.go && ./hello 2>&1",
        );
        same(
            place,
            "javac",
            "-version",
            "printf 'public class H { public static void main(String[] a) throws Exception { System.out.println(\"hello \" + new java.io.File(\".\").exists()); } }' > H.java && javac H.java && java -Xmx64m H",
        );
    });
}

#[test]
fn rust() {
    everybody(Tier::Namespace, |place| {
        // The caller's own toolchain, where this person may use it.
        let home = std::env::home_dir().unwrap_or_default();
        let of = |name: &str, directory: &str| {
            std::env::var_os(name)
                .map_or_else(|| home.join(directory), std::path::PathBuf::from)
                .display()
                .to_string()
        };
        let (cargo, rustup) = (of("CARGO_HOME", ".cargo"), of("RUSTUP_HOME", ".rustup"));
        let around =
            format!("export CARGO_HOME={cargo} RUSTUP_HOME={rustup} PATH={cargo}/bin:$PATH;");
        if place.shell(&format!("{around} cargo --version")).code != 0 {
            return left_out("cargo", &format!("it does not run here for {:?}", place.person));
        }
        place.file(
            "home/project/Cargo.toml",
            "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n",
        );
        place.file("home/project/src/main.rs", "fn main() { println!(\"hello\") }\n");
        place.shell(&format!("{around} cargo check -q --offline --target-dir control")).ends(0);
        place.shell(&format!("{around} $RF -- cargo check -q --offline")).ends(0);
        assert!(place.project("target/debug").exists());
    });
}

#[test]
fn searching() {
    everywhere(|place| {
        place.file("home/project/haystack", "needle\n");
        same(
            place,
            "rg",
            "--version",
            "rg -N needle ../haystack; rg --files .. | grep -c haystack",
        );
        same(place, "grep", "--version", "grep -r needle ../haystack");
    });
}

/// Programs' own files that distributions keep beside `/usr`, for reading.
#[test]
fn what_distributions_keep_beside_usr() {
    everywhere(|place| {
        same(place, "dpkg-query", "--version", "dpkg-query -W -f '${Status}' dpkg");
        same(place, "gem", "--version", "gem contents --all 2>/dev/null | sort | cksum");
        let kept =
            ["gems", "texmf", "ghc", "aspell", "dpkg"].map(|name| format!("/var/lib/{name}"));
        for directory in kept.iter().filter(|directory| Path::new(directory).is_dir()) {
            let looks = format!("ls -A {directory}");
            let outside = place.shell(&looks).quiet();
            assert_eq!(place.sh(&[], &looks).quiet(), outside, "{directory}");
            let made = format!("{directory}/made-inside");
            let refusal = match place.tier {
                Tier::Process => "Permission denied",
                Tier::Namespace => "Read-only file system",
            };
            place.sh(&[], &format!("/bin/touch {made}")).ends(1).says(refusal);
            assert!(!Path::new(&made).exists(), "{made}");
        }
        // What is beside them is not shown by it.
        if Path::new("/var/lib/systemd").is_dir() {
            place.shell("ls /var/lib/systemd").ends(0);
            assert_ne!(place.sh(&[], "ls /var/lib/systemd").code, 0);
        }
    });
}
