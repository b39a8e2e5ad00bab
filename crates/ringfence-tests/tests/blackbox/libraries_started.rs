//! `--libs exact`: what programs start by name, and what is in them, is part of the set.

use ringfence_tests::{Person, Place, Tier, left_out};
use std::path::Path;

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
    let lines: [&[&str]; 21] = [
        &["bash", "-lc", "git --version"],
        &["bash", "-c", "trap 'git --version' EXIT"],
        &["sh", "-c", "sh <<E\ngit --version\nE"],
        &["bash", "-c", "bash <<<'git --version'"],
        &["sh", "-c", "set -- git --version; \"$@\""],
        &["sh", "-c", "env -i PATH=$PATH git --version"],
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
    let loaders = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];
    for loader in loaders.into_iter().filter(|loader| Path::new(loader).exists()) {
        same(place, &[loader, "/usr/bin/git", "--version"]);
    }
    place.script("s", "#!/usr/bin/env -S nice --adjustment 5 git --version\n");
    let exact = place.run(&EXACT, &["./s"]);
    assert!(!exact.err.contains("shared libraries"), "{}", exact.err);
    // The control: a name that is no command brings nothing in.
    let see = |line: &[&str]| place.run(&EXACT, line).well().contains("git-core");
    assert!(!see(&["nice", "-n", "5", "ls", "/usr/lib", "--hide", "git"]));
    assert!(see(&["nice", "-n", "5", "sh", "-c", "ls /usr/lib; git --version"]));
}

/// A program whose library nothing else here needs, and whether a command's set has that library.
fn has_curl(place: &Place, command: &[&str]) -> bool {
    let library = place.shell("ldd /usr/bin/curl | grep -o '/[^ ]*libcurl[^ ]*'").text();
    let words = ["explain", "--libs", "exact", library.trim()];
    let words = words.into_iter().chain(command.iter().copied());
    match place.ringfence(words).code {
        0 => true,
        1 => false,
        code => panic!("{command:?}: {code}"),
    }
}

#[test]
fn what_a_makefile_has_run_is_found() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    if !place.has("make", "--version") || !place.has("/usr/bin/curl", "--version") {
        return left_out("make", "it or curl is not installed");
    }
    let text = "include rules.mk\nall: deep\nV := $(shell touch made-in-discovery; git --version > /dev/null)\n\
                quiet:\n\t@echo quiet\n";
    place.file("home/project/Makefile", text);
    place.file(
        "home/project/rules.mk",
        "TOOL = /usr/bin/curl --version\n.PHONY: deep all quiet\nfirst: all\ndeep:\n\t@$(TOOL) > /dev/null && echo $@\n",
    );
    place.directory("home/project/sub");
    place.file("home/project/sub/GNUmakefile", "up:\n\t@$(MAKE) -s -C .. deep\n");
    for command in [
        &["make", "-s"][..],
        &["make", "-s", "deep"],
        &["make", "-sC", "sub"],
        &["sh", "-c", "cd . && make -s -f Makefile all"],
        &["env", "make", "-s", "-j2", "deep"],
    ] {
        let ran = place.run(&EXACT, command);
        assert_eq!(ran.ends(0).text().trim(), "deep", "{command:?}: {}", ran.err);
    }
    place.run(&EXACT, &["make", "quiet"]).ends(0).prints("quiet");
    let _ = std::fs::remove_file(place.project("made-in-discovery"));
    assert!(has_curl(place, &["make", "deep"]) && has_curl(place, &["make"]));
    assert!(!has_curl(place, &["make", "all", "TOOL=true"]), "what the command line sets holds");
    assert!(!has_curl(place, &["make", "quiet"]), "the control: another target's");
    assert!(!place.project("made-in-discovery").exists(), "discovery ran nothing");
}

#[test]
fn what_a_package_has_run_is_found() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    if !place.has("npm", "--version") || !place.has("/usr/bin/curl", "--version") {
        return left_out("npm", "it or curl is not installed");
    }
    let package = r#"{"name": "x", "version": "1.0.0", "scripts": {
        "pretest": "echo before", "test": "npm run -s deep", "deep": "tool && own",
        "start": "node -e 'require(\"child_process\").execFileSync(\"/usr/bin/curl\", [\"--version\"])' && echo started",
        "postinstall": "/usr/bin/curl --version > made && echo installed", "quiet": "echo quiet"}}"#;
    place.file("home/project/package.json", package);
    let bin = "node_modules/.bin";
    place.directory(format!("home/project/{bin}"));
    place.script(
        "node_modules/tool.sh",
        "#!/bin/sh\n/usr/bin/curl --version > /dev/null && echo tool\n",
    );
    place.script("node_modules/own.js", "#!/usr/bin/env node\nconsole.log(\"own\")\n");
    place.link(format!("home/project/{bin}/tool"), "../tool.sh");
    place.link(format!("home/project/{bin}/own"), "../own.js");
    place.directory("home/project/sub");
    let commands = [
        &["npm", "test", "-s"][..],
        &["npm", "-s", "run", "deep"],
        &["npm", "start", "-s"],
        &["npm", "exec", "-c", "tool"],
        &["npx", "tool"],
        &["sh", "-c", "cd sub && npm -s run deep"],
    ];
    for command in commands {
        assert!(has_curl(place, command), "{command:?}");
        let ran = place.run(&EXACT, command);
        let last = ran.ends(0).text().lines().last().unwrap_or_default().to_owned();
        assert!(["tool", "own", "started"].contains(&last.as_str()), "{command:?}: {}", ran.text());
    }
    place.run(&EXACT, &["npm", "ci", "-s", "--offline"]);
    assert!(has_curl(place, &["npm", "ci"]) && has_curl(place, &["npm", "install"]));
    assert!(!has_curl(place, &["npm", "run", "quiet"]), "the control: another script's");
    assert!(!has_curl(place, &["npm", "version"]));
}

/// Scripts of a project's workspaces are run from its root, those that are named or all of them.
#[test]
fn what_workspaces_have_run_is_found() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    if !place.has("npm", "--version") || !place.has("/usr/bin/curl", "--version") {
        return left_out("npm", "it or curl is not installed");
    }
    place.file(
        "home/project/package.json",
        r#"{"name": "x", "version": "1.0.0", "workspaces": ["packages/*", "./tools/only/"],
        "scripts": {"quiet": "echo quiet", "deep": "echo root"}}"#,
    );
    let package = |at: &str, name: &str, scripts: &str| {
        let text = format!(r#"{{"name": "{name}", "version": "1.0.0", "scripts": {{{scripts}}}}}"#);
        place.file(format!("home/project/{at}/package.json"), text);
    };
    let curl = "/usr/bin/curl --version > /dev/null && echo deep";
    package("packages/a", "@x/a", &format!(r#""deep": "{curl}", "quiet": "echo a""#));
    package("packages/b", "b", r#""deep": "echo b", "quiet": "echo b""#);
    package("tools/only", "only", &format!(r#""only": "{curl}""#));
    package("tools/other", "other", &format!(r#""other": "{curl}""#));
    for command in [
        &["npm", "run", "-s", "deep", "-w", "packages/a"][..],
        &["npm", "-s", "--workspace=@x/a", "run", "deep"],
        &["npm", "run", "-s", "only", "--workspaces", "--if-present"],
        &["npm", "run", "-s", "only", "-w", "only"],
    ] {
        assert!(has_curl(place, command), "{command:?}");
        let ran = place.run(&EXACT, command);
        assert_eq!(ran.ends(0).text().trim(), "deep", "{command:?}: {}", ran.err);
    }
    for command in [
        &["npm", "run", "deep", "-w", "b"][..],
        &["npm", "run", "quiet", "--workspaces"],
        &["npm", "run", "deep"],
        &["npm", "run", "other", "--workspaces"],
    ] {
        assert!(!has_curl(place, command), "the control: {command:?}");
    }
    package("packages/b", "b", &format!(r#""postinstall": "{curl}""#));
    assert!(has_curl(place, &["npm", "ci"]), "what a workspace has run when it is installed");
}

/// Lines that end in a backslash are one recipe, however long it gets.
#[test]
fn a_long_recipe_is_read_to_its_end() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    if !place.has("make", "--version") || !place.has("/usr/bin/curl", "--version") {
        return left_out("make", "it or curl is not installed");
    }
    let long = "\ttrue a rather long line of a recipe that goes on; \\\n".repeat(200);
    let recipe = format!("deep:\n\t@set -e; \\\n{long}\t$(TOOL) --version > /dev/null; echo $@\n");
    place.file("home/project/Makefile", format!("TOOL = /usr/bin/curl\n{recipe}"));
    assert!(long.len() > 8192 && has_curl(place, &["make"]));
    place.run(&EXACT, &["make", "-s"]).ends(0).prints("deep");
    assert!(!has_curl(place, &["make", "TOOL=true"]), "the control");
}
