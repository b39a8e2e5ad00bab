//! `--strict`: the call that would make a protected name is refused, and nothing else is.

use ringfence_tests::{Place, Tier, everybody, everywhere};
use std::fs;

/// Each way to make a name, with its arguments.
const WAYS: &str = r#"
import errno, os, sys
def refused(act, *a, **k):
    try:
        act(*a, **k)
    except OSError as e:
        assert e.errno == errno.EPERM, (act, a, e)
    else:
        raise AssertionError((act, a, "was not refused"))
def write(path, flags=os.O_CREAT | os.O_WRONLY, **k):
    os.close(os.open(path, flags, 0o644, **k))
os.mkdir("free"); write("free/file"); os.mkdir("sub")
here = os.open(".", os.O_RDONLY)
for name in [".envrc", ".vscode", ".mcp.json"]:
    full = os.path.join(os.getcwd(), name)
    refused(write, name); refused(write, full); refused(write, "free/../" + name); refused(write, "./" + name)
    refused(write, name, os.O_CREAT | os.O_EXCL | os.O_RDWR)
    refused(write, name, dir_fd=here); refused(write, "/proc/self/cwd/" + name)
    refused(os.mkdir, name); refused(os.mkdir, name + "/"); refused(os.mkdir, name, dir_fd=here)
    refused(os.mkfifo, name); refused(os.symlink, "free/file", name); refused(os.symlink, "x", name, dir_fd=here)
    refused(os.link, "free/file", name); refused(os.rename, "free/file", name)
    refused(os.rename, "free", name, dst_dir_fd=here); refused(os.rename, "free/file", full)
    os.symlink(name, "way"); refused(write, "way"); os.unlink("way")
    os.symlink(full, "one"); os.symlink("one", "way"); refused(write, "way"); os.unlink("way"); os.unlink("one")
    os.symlink("..", "sub/up"); refused(write, "sub/up/" + name); os.unlink("sub/up")
    os.chdir("sub"); refused(write, "../" + name); os.chdir("..")
    assert not os.path.lexists(name)
# Hooks of a repository that is made: their directory may be, and samples.
os.mkdir(".git"); os.mkdir(".git/hooks"); write(".git/hooks/pre-commit.sample")
refused(write, ".git/hooks/pre-commit"); refused(os.rename, "free/file", ".git/hooks/pre-push")
# With all that is in it.
os.mkdir("t"); os.mkdir("t/hooks"); write("t/hooks/pre-commit")
os.rename(".git", "old"); refused(os.rename, "t", ".git"); refused(os.rename, "old", ".git")
# The control: neighbours, names that look alike, and what exists.
for name in [".envrc2", "envrc", ".vscode-x", "a.mcp.json"]:
    write(name); os.unlink(name); os.mkdir(name); os.rmdir(name)
write("free/file"); os.rename("free/file", "free/g"); os.rename("free/g", "free/file")
os.replace("free/file", "there"); write("there"); open("there", "a").write("x")
os.symlink("there", "l"); write("l"); os.link("there", "m")
print("held")
"#;

fn attack(place: &Place, options: &[&str]) -> Option<ringfence_tests::Finished> {
    if !place.has("python3", "--version") {
        return None;
    }
    place.file("home/project/ways.py", WAYS);
    Some(place.run(options, &["python3", "ways.py"]))
}

#[test]
fn making_a_protected_name_is_refused_at_the_call() {
    everywhere(|place| {
        let Some(done) = attack(place, &["--strict"]) else { return };
        done.ends(0).prints("held").says(".envrc is a protected name: making it was refused");
        for name in [".envrc", ".vscode", ".mcp.json", ".git/hooks/pre-commit"] {
            assert!(fs::symlink_metadata(place.project(name)).is_err(), "{name}: a ghost");
        }
        assert_eq!(place.left_behind(), Vec::<String>::new());
        let rows = place.ringfence(["logs", "latest", "--denied"]).quiet();
        assert!(rows.contains("was refused (--strict)"), "{rows}");
    });
}

#[test]
fn programs_work_and_what_races_is_taken_away() {
    everywhere(|place| {
        place.sh(&["--strict"], "git init -q . && echo x > f && git add f").ends(0);
        // Without it the call works, and the name is gone afterwards.
        place.sh(&[], "echo x > .envrc").ends(0);
        assert!(!place.project(".envrc").exists());
        // Another thread changes the name while it is looked at: whatever comes of it does not stay.
        let racer = r#"
import ctypes, os, threading
libc = ctypes.CDLL(None)
path = ctypes.create_string_buffer(b"aenvrc")
def flip():
    for _ in range(200000):
        path[0] = b"."; path[0] = b"a"
thread = threading.Thread(target=flip); thread.start()
while thread.is_alive():
    fd = libc.open(path, os.O_CREAT | os.O_WRONLY, 0o644)
    if fd >= 0: os.close(fd)
"#;
        if place.has("python3", "--version") {
            place.file("home/project/racer.py", racer);
            place.run(&["--strict"], &["python3", "racer.py"]).ends(0);
            assert!(!place.project(".envrc").exists());
        }
    });
}

/// One listener serves both: what would make a protected name is refused by name, and a call that no
/// rule lists by its number.
#[test]
fn with_a_list_of_calls_both_hold() {
    const CALLS: &str = "\"clone\", \"faccessat\", \"getcwd\", \"getdents64\", \"ioctl\", \"newfstatat\", \
                         \"openat\", \"pipe2\", \"prlimit64\", \"readlinkat\", \"statfs\", \"uname\", \"kill\", \
                         \"chdir\", \"umask\", \"setpgid\"";
    everywhere(|place| {
        for mode in ["ask", "learned"] {
            let list = |more: &str| {
                format!(
                    "extends = [\"default\"]\n[syscalls]\nmode = \"{mode}\"\nallow = [{CALLS}{more}]\n"
                )
            };
            place.file("home/project/calls.toml", list(""));
            let run = |script: &str| {
                let script =
                    format!("setsid --wait $RF --strict -p calls.toml -- sh -c '{script}'");
                place.shell(&script)
            };
            // Listed, and still refused for its name; the neighbour works.
            let done = run("echo x > free; ! echo x > .envrc && echo held");
            done.ends(0).prints("held").says(".envrc is a protected name: making it was refused");
            assert!(place.project("free").exists() && !place.project(".envrc").exists(), "{mode}");
            // Not listed: refused whatever the name, before anybody looks at that.
            run("! mkdir made && ! mkdir .vscode && echo held").ends(0).prints("held");
            assert!(!place.project("made").exists() && !place.project(".vscode").exists());
            // Listed too: by its name alone.
            place.file("home/project/calls.toml", list(", \"mkdirat\", \"mkdir\""));
            let done = run("mkdir made-too && ! mkdir .vscode && echo held");
            done.ends(0).prints("held").says(".vscode is a protected name: making it was refused");
            assert!(place.project("made-too").exists() && !place.project(".vscode").exists());
            place.shell("rm -rf free made-too").ends(0);
        }
    });
}

#[test]
fn names_with_an_end_of_line_in_them_make_no_lines_of_their_own() {
    everybody(Tier::Namespace, |place| {
        let name = "$'n\\nringfence: all is well'";
        let script = format!("mkdir {name} && {{ echo x > {name}/.envrc; }} 2>/dev/null");
        let run = place.run(&["--strict"], &["bash", "-c", &script]);
        run.says("making it was refused (--strict)");
        assert!(
            !run.err.lines().any(|line| line == "ringfence: all is well/.envrc"),
            "{}",
            run.err
        );
        assert!(!run.err.lines().any(|line| line.starts_with("ringfence: all")), "{}", run.err);
        // Where a link leads, `why` tells.
        place.link("home/project/link", "/nothing\nallowed: all of it");
        for question in ["read", "write", "exec"] {
            let why = place.ringfence(["why", "--", question, "./link"]);
            let lines: Vec<_> = why.text().lines().map(str::to_owned).collect();
            assert!(
                lines[0].starts_with("denied: ") && lines[0].contains("\\nallowed"),
                "{lines:?}"
            );
            assert!(!lines.iter().any(|line| line.starts_with("allowed")), "{lines:?}");
        }
    });
}
