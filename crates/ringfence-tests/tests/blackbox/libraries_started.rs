//! `--libs exact`: what programs start by name, and what is in them, is part of the set.

use ringfence_tests::{Person, Place, Tier, left_out};

const EXACT: [&str; 2] = ["--libs", "exact"];

/// Runs a command outside, in full and with exact libraries: what works outside works, and says the same.
fn same(place: &Place, command: &[&str]) {
    let name = command[0];
    let outside = place.command(name).args(&command[1..]).output();
    let Some(outside) = outside.ok().filter(|output| output.status.success()) else {
        return left_out(name, "it does not run outside");
    };
    let ran = place.run(&EXACT, command);
    assert_eq!(ran.code, 0, "{command:?}: {} {}", ran.text(), ran.err);
    let outside = String::from_utf8_lossy(&outside.stdout).into_owned();
    assert_eq!(ran.text().trim(), outside.trim(), "{command:?}: {}", ran.err);
}

#[test]
fn an_interpreter_in_a_library_has_its_modules() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    same(place, &["gdb", "-nx", "-batch", "-ex", "python import json; print(json.dumps(1))"]);
    same(place, &["gem", "list", "--local"]);
}

#[test]
fn archives_are_packed_by_each_program_that_packs() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    place.file("home/project/d/a", "content\n");
    for (option, program) in
        [("-z", "gzip"), ("-j", "bzip2"), ("-J", "xz"), ("--zstd", "zstd"), ("--lzma", "lzma")]
    {
        if !place.has(program, "--version") {
            left_out("packing", &format!("{program} is not installed"));
            continue;
        }
        place.run(&EXACT, &["tar", option, "-cf", "d.tar", "d"]).ends(0);
        assert_eq!(
            place.run(&EXACT, &["tar", option, "-tf", "d.tar"]).well(),
            "d/\nd/a",
            "{program}"
        );
    }
}

#[test]
fn a_build_is_configured_with_the_compiler_that_it_finds() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    if !place.has("cmake", "--version") || !place.has("cc", "--version") {
        return left_out("cmake", "it or a compiler is not installed");
    }
    let text = "cmake_minimum_required(VERSION 3.10)\nproject(a C)\nadd_executable(a a.c)\n";
    place.file("home/project/CMakeLists.txt", text);
    place.file("home/project/a.c", "int main(void) { return 0; }\n");
    place.run(&EXACT, &["cmake", "-B", "b", "."]).ends(0);
    place.run(&EXACT, &["cmake", "--build", "b"]).ends(0);
    place.run(&EXACT, &["b/a"]).ends(0);
}

#[test]
fn programs_that_start_others_find_them() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    same(place, &["script", "-qec", "echo hi", "/dev/null"]);
    same(place, &["dbus-run-session", "--", "sh", "-c", "echo $?"]);
    let ran = place.run(&EXACT, &["ldd", "/bin/ls"]);
    ran.ends(0).prints("libc.so.6 => ");
    assert!(!ran.text().contains("not found"), "{}", ran.text());
}

#[test]
fn what_a_script_starts_by_a_constant_is_there() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    if !place.has("git", "--version") {
        return;
    }
    let python = "import subprocess; print(subprocess.check_output(['git', '--version']))";
    let perl = "print `git --version`";
    let node = "console.log(`${require('child_process').execFileSync('git', ['--version'])}`)";
    same(place, &["/usr/bin/python3", "-c", python]);
    same(place, &["perl", "-we", perl]);
    same(place, &["ruby", "-e", "puts `git --version`"]);
    same(place, &["node", "-e", node]);
    place.script("s.py", &format!("#!/usr/bin/python3\n{python}\n"));
    same(place, &["./s.py"]);
    // The control: a name that nothing starts brings nothing in.
    let see = |python: &str| {
        let all = place.run(&EXACT, &["/usr/bin/python3", "-c", python]).well();
        all.lines().any(|name| name == "git-core")
    };
    assert!(!see("import os; print('git'); print('\\n'.join(os.listdir('/usr/lib')))"));
    assert!(see(
        "import os; os.system('git --version > /dev/null'); print('\\n'.join(os.listdir('/usr/lib')))"
    ));
}

#[test]
fn compiled_modules_that_the_distribution_installs_find_their_libraries() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    for module in ["gi", "apt_pkg", "apt", "dbus", "OpenSSL", "yaml"] {
        same(place, &["/usr/bin/python3", "-c", &format!("import {module}; print(1)")]);
    }
    same(place, &["add-apt-repository", "--help"]);
}

#[test]
fn what_another_program_starts_for_somebody_is_there() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    if !place.has("git", "--version") {
        return;
    }
    let lines: [&[&str]; 19] = [
        &["bash", "-lc", "git --version"],
        &["bash", "-c", "trap 'git --version' EXIT"],
        &["sh", "-c", "sh <<E\ngit --version\nE"],
        &["bash", "-c", "bash <<<'git --version'"],
        &["env", "-S", "A=b git --version"],
        &["env", "-iS", "PATH=/usr/bin git", "--version"],
        &["env", "--chdir", "/", "git", "--version"],
        &["script", "-qc", "git --version", "/dev/null"],
        &["script", "-q", "/dev/null", "--command", "git --version"],
        &["nice", "--adjustment", "5", "git", "--version"],
        &["timeout", "--signal", "KILL", "--kill-after", "9", "99", "git", "--version"],
        &["nohup", "setsid", "--wait", "git", "--version"],
        &["sh", "-c", "echo --version | xargs --max-args 1 git"],
        &["stdbuf", "--output", "L", "git", "--version"],
        &["flock", "lock", "-c", "git --version"],
        &["prlimit", "--nofile=100", "git", "--version"],
        &["linux64", "git", "--version"],
        &["setpriv", "--nnp", "git", "--version"],
        &["busybox", "timeout", "9", "git", "--version"],
    ];
    for line in lines {
        same(place, line);
    }
    place.script("s", "#!/usr/bin/env -S nice --adjustment 5 git --version\n");
    let exact = place.run(&EXACT, &["./s"]);
    assert!(!exact.err.contains("shared libraries"), "{}", exact.err);
    // The control: a name that is no command brings nothing in.
    let see = |line: &[&str]| place.run(&EXACT, line).well().contains("git-core");
    assert!(!see(&["nice", "-n", "5", "ls", "/usr/lib", "--hide", "git"]));
    assert!(see(&["nice", "-n", "5", "sh", "-c", "ls /usr/lib; git --version"]));
}
