//! Files whose headers lie: bounded work, no panic, nothing executed.
#![allow(missing_docs, clippy::unwrap_used)]

use ringfence_learn::closure::{Finder, Surroundings};
use ringfence_learn::fuzzing;
use ringfence_learn::host::Host;
use ringfence_learn::program::{Question, libraries};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Some real program.
fn program() -> Vec<u8> {
    fs::read("/bin/sh").unwrap()
}

/// A random source that is the same each time (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below as u64) as usize
    }
}

#[test]
fn truncated_and_changed_programs_are_read_without_a_panic() {
    let good = program();
    for length in (0..8192).chain([good.len() / 2]) {
        fuzzing::elf(&good[..length.min(good.len())]);
    }
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..3000 {
        let mut bad = good.clone();
        for _ in 0..8 {
            // Headers, where the numbers are.
            let at = random.next(1024);
            bad[at] = [0, 1, 0x7f, 0xff][random.next(4)];
        }
        fuzzing::elf(&bad);
    }
}

#[test]
fn counts_of_four_gigabytes_take_neither_memory_nor_time() {
    let good = program();
    // Program headers: 65535 of them; each file size, offset and address as large as they go.
    let mut bad = good.clone();
    bad[56..58].fill(0xff);
    fuzzing::elf(&bad);
    let table = u64::from_le_bytes(good[32..40].try_into().unwrap()) as usize;
    let count = usize::from(u16::from_le_bytes(good[56..58].try_into().unwrap()));
    for header in 0..count {
        for field in [8, 16, 32, 40] {
            let mut bad = good.clone();
            let at = table + header * 56 + field;
            bad[at..at + 8].fill(0xff);
            fuzzing::elf(&bad);
            bad[at..at + 8].copy_from_slice(&(4u64 << 30).to_le_bytes());
            fuzzing::elf(&bad);
        }
    }
}

#[test]
fn random_bytes_are_no_scripts_caches_or_programs_that_break_anything() {
    let mut random = Random(1);
    let pieces: [&[u8]; 12] =
        [b"$(", b"`", b"\"", b"'", b"\n", b"case x in ", b"<<E\n", b"((", b"${", b"a=", b" ", b")"];
    for _ in 0..2000 {
        let count = random.next(60);
        let text: Vec<u8> =
            (0..count).flat_map(|_| pieces[random.next(pieces.len())].to_vec()).collect();
        fuzzing::shell(&text);
        let bytes: Vec<u8> = (0..random.next(400)).map(|_| random.next(256) as u8).collect();
        fuzzing::cache(&bytes);
        fuzzing::elf(&bytes);
        fuzzing::shell(&bytes);
    }
}

/// A place with an executable of this text in it.
fn executable(place: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = place.join(name);
    fs::write(&path, bytes).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn question(argv: &[&Path]) -> Question {
    Question {
        argv: argv.iter().map(|word| word.as_os_str().to_owned()).collect(),
        search: vec![PathBuf::from("/usr/bin"), PathBuf::from("/bin")],
        workdir: PathBuf::from("/"),
        home: PathBuf::from("/"),
        ..Question::default()
    }
}

#[test]
fn finding_out_executes_nothing() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path().canonicalize().unwrap();
    let mark = place.join("executed");
    let text = format!(
        "#!/bin/sh\ntouch {mark}\nX=$(touch {mark}) \n`touch {mark}`\neval touch {mark}\n",
        mark = mark.display()
    );
    let script = executable(&place, "script", text.as_bytes());
    // A program whose interpreter is that script.
    let mut program = program();
    let at = memchr::memmem::find(&program, b"/lib64/ld-linux-x86-64.so.2\0");
    if let Some(at) = at {
        std::os::unix::fs::symlink(&script, "/tmp/rf-interp").ok();
        program[at..at + 15].copy_from_slice(b"/tmp/rf-interp\0");
        let hostile = executable(&place, "hostile", &program);
        let answer = libraries(&question(&[&hostile]), &mut |_, _| {});
        assert!(answer.missing.iter().any(|(name, _)| name == "/tmp/rf-interp"), "it is no loader");
        fs::remove_file("/tmp/rf-interp").ok();
    }
    let answer = libraries(&question(&[&script]), &mut |_, _| {});
    assert!(answer.files.iter().any(|path| path.ends_with("libc.so.6")), "touch needs it");
    assert!(!mark.exists(), "discovery ran the script");
}

#[test]
fn chains_and_cycles_of_interpreters_end() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path().canonicalize().unwrap();
    let (a, b) = (place.join("a"), place.join("b"));
    executable(&place, "a", format!("#!{}\n", b.display()).as_bytes());
    executable(
        &place,
        "b",
        format!("#!{}\n. {}\n{}\n", a.display(), b.display(), a.display()).as_bytes(),
    );
    let answer = libraries(&question(&[&a]), &mut |_, _| {});
    assert!(answer.files.len() < 8, "{:?}", answer.files);
    let long = "#!".to_owned() + &"x".repeat(1 << 20);
    let long = executable(&place, "long", long.as_bytes());
    libraries(&question(&[&long]), &mut |_, _| {});
    std::os::unix::fs::symlink("self", place.join("self")).unwrap();
    let answer = libraries(&question(&[&place.join("self")]), &mut |_, _| {});
    assert_eq!(answer.missing.len(), 1);
}

#[test]
fn a_fifo_in_the_place_of_a_library_holds_nobody() {
    let place = tempfile::tempdir().unwrap();
    let fifo = place.path().join("libx.so");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let mut looked = |_: &Path, _| {};
    let host = Host::new(&mut looked);
    assert!(host.open(&fifo).is_none());
    assert!(Finder::new(&host, Surroundings::default()).closure(&fifo).is_none());
}

/// A project's files are whoever's who wrote them.
#[test]
fn files_of_projects_hold_nobody_and_are_not_executed() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path().canonicalize().unwrap();
    let ask = |words: &[&str]| {
        let mut question = question(&words.iter().map(Path::new).collect::<Vec<_>>());
        question.workdir.clone_from(&place);
        libraries(&question, &mut |_, _| {})
    };
    let has = |answer: &ringfence_learn::program::Answer, name: &str| {
        answer.files.iter().any(|path| path.to_string_lossy().contains(name))
    };
    let xz = "/usr/bin/xz";
    if !Path::new(xz).exists() || !Path::new("/usr/bin/make").exists() {
        return;
    }
    let (makefile, package) = (place.join("Makefile"), place.join("package.json"));
    // The control.
    fs::write(&makefile, format!("all:\n\t{xz} x; touch made\nX := $(shell touch made)\n"))
        .unwrap();
    assert!(has(&ask(&["/usr/bin/make"]), "liblzma") && !place.join("made").exists());
    // Makefiles that are none: a FIFO, one without an end, a directory, one that includes itself.
    for kind in ["mkfifo", "mkdir", "ln -s /dev/zero", "ln -s Makefile"] {
        let _ = fs::remove_file(&makefile).or_else(|_| fs::remove_dir(&makefile));
        let script = format!("{kind} {}", makefile.display());
        assert!(std::process::Command::new("sh").args(["-c", &script]).status().unwrap().success());
        assert!(!has(&ask(&["/usr/bin/make"]), "liblzma"), "{kind}");
    }
    fs::remove_file(&makefile).unwrap();
    let many: String = (0..64).map(|at| format!("$(MAKE) -C d{at} t{at}; ")).collect();
    fs::write(&makefile, format!("include Makefile\n%:\n\t{many} $(MAKE) $@ x\n")).unwrap();
    ask(&["/usr/bin/make", "a"]);
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let again =
        r#"{"scripts": {"a": "npm run a; npm run b; npm run a", "b": "npm run a && npm run b"}}"#;
    for text in [deep.as_str(), again, "{", "[]", r#"{"scripts": {"a": 1}}"#, r#"{"scripts": "a"}"#]
    {
        fs::write(&package, text).unwrap();
        ask(&["/usr/bin/npm", "run", "a"]);
    }
}

#[test]
fn everything_that_an_answer_depends_on_is_told() {
    let place = tempfile::tempdir().unwrap();
    let place = place.path().canonicalize().unwrap();
    let script = executable(&place, "script", b"#!/bin/sh\nno-such-command\n");
    let mut told = Vec::new();
    let mut question = question(&[&script]);
    question.search.insert(0, place.join("bin"));
    libraries(&question, &mut |path, _| told.push(path.to_owned()));
    for path in [script.as_path(), Path::new("/etc/ld.so.cache"), &place.join("bin")] {
        assert!(told.iter().any(|told| told == path), "{} is not told", path.display());
    }
    assert!(told.contains(&PathBuf::from("/usr/bin/no-such-command")), "absence counts too");
}
