//! The profiles that ship, each with the real program where it is installed; features, arguments,
//! hooks, and the user's own profiles.

use ringfence_tests::{Person, Place, Running, Tier, everybody, everywhere, left_out};
use std::fs;
use std::path::Path;

/// Profile, program, script, and what it prints; `NAMED` in a script is a file beside the project
/// that the command's arguments name.
const PROGRAMS: &[(&str, &str, &str, &str)] = &[
    ("bash", "bash", "bash -c 'echo 7'", "7"),
    ("zsh", "zsh", "zsh -f -c 'echo 7'", "7"),
    ("fish", "fish", "fish --no-config -c 'echo 7'", "7"),
    ("tmux", "tmux", "tmux -V >/dev/null; echo 7", "7"),
    ("git", "git", "git init -q r; git -C r rev-parse --is-inside-work-tree", "true"),
    ("ripgrep", "rg", "echo needle > hay; rg -c needle hay", "1"),
    ("jq", "jq", "jq -n 3+4", "7"),
    ("less", "less", "less NAMED", "named"),
    ("archive", "tar", "echo 7 > f; tar cf - f | tar xOf -", "7"),
    ("sqlite", "sqlite3", "sqlite3 :memory: 'select 7'", "7"),
    ("make", "make", "printf 'all:\\n\\t@echo 7\\n' > Makefile; make -s", "7"),
    ("make", "cc", "echo 'int main(){return 7;}' > a.c; cc a.c -o a; ./a; echo $?", "7"),
    ("cmake", "cmake", "cmake -E echo 7", "7"),
    ("gdb", "gdb", "gdb -q -nx -batch -ex 'print 3+4'", "$1 = 7"),
    ("node", "node", "node -p 3+4", "7"),
    ("npm", "npm", "npm --version >/dev/null && echo 7", "7"),
    ("python", "python3", "python3 -c 'print(7)'", "7"),
    ("pip", "python3", "python3 -c 'print(7)'", "7"),
    ("go", "go", "go env GOOS", "linux"),
    ("java", "java", "java -version 2>/dev/null; echo $?", "0"),
    ("mvn", "mvn", "mvn -q --version >/dev/null; echo $?", "0"),
    ("ruby", "ruby", "ruby -e 'puts 7'", "7"),
    ("php", "php", "php -n -r 'echo 7;'", "7"),
    ("perl", "perl", "perl -e 'print 7'", "7"),
    ("lua", "lua5.4", "lua5.4 -e 'print(7)'", "7"),
    ("vim", "vim.tiny", "vim.tiny -u NONE -es -c 'normal i7' -c 'wq! o'; cat o", "7"),
    ("nvim", "nvim", "nvim --headless -u NONE -c 'normal i7' -c 'wq! o' 2>/dev/null; cat o", "7"),
    ("nano", "nano", "nano --version >/dev/null; echo $?", "0"),
    ("postgres", "psql", "psql --version >/dev/null; echo $?", "0"),
    ("aria2", "aria2c", "aria2c --version >/dev/null; echo $?", "0"),
    ("redis", "redis-server", "redis-server --version >/dev/null; echo $?", "0"),
    (
        "nginx",
        "nginx",
        "mkdir -p logs; echo 'events {} http {}' > n.conf; nginx -p . -e /dev/null -c n.conf -t 2>&1 | grep -c ok",
        "1",
    ),
    ("curl", "curl", "curl --version >/dev/null; echo $?", "0"),
    ("wget", "wget", "wget --version >/dev/null; echo $?", "0"),
    ("w3m", "w3m", "w3m -dump NAMED", "named"),
    ("lynx", "lynx", "lynx -dump NAMED | head -1", "named"),
    ("imagemagick", "convert", "convert xc:red -resize 7x7 t.png; identify -format %w t.png", "7"),
    ("poppler", "pdftotext", "pdftotext -v 2>/dev/null; echo $?", "0"),
    ("memcached", "memcached", "memcached -V >/dev/null; echo $?", "0"),
    ("pandoc", "pandoc", "echo '*7*' | pandoc -t plain", "7"),
    ("ffmpeg", "ffmpeg", "ffmpeg -version >/dev/null; echo $?", "0"),
];

/// The options of a profile, without the network, which not every machine can filter here.
fn with(profile: &str) -> [&str; 4] {
    ["-p", profile, "--network", "none"]
}

#[test]
fn programs_do_their_work_by_their_profiles() {
    everybody(Tier::Namespace, |place| {
        let named = place.file("home/documents/named", "named\n");
        for (profile, program, script, printed) in PROGRAMS {
            if place.shell(&format!("command -v {program}")).code != 0 {
                left_out(program, "it is not installed");
                continue;
            }
            let script = script.replace("NAMED", &named.display().to_string());
            let outside = place.shell(&format!("mkdir -p ../{program}; cd ../{program}; {script}"));
            if outside.text().trim() != *printed {
                left_out(program, &format!("the control fails: {}{}", outside.text(), outside.err));
                continue;
            }
            // The shell's arguments name the file, as the program's own would.
            let options = with(profile);
            let inside = place.run(&options, &["sh", "-c", &script, &named.display().to_string()]);
            assert_eq!(inside.text().trim(), *printed, "{profile}: {script}: {}", inside.err);
            // And the boundary is one.
            let secret = place.text("outside/secret");
            place.run(&options, &["cat", &place.text("home/project/../../tmp")]);
            let denied = place.run(&options, &["sh", "-c", &format!("cat {secret}")]);
            assert!(denied.code != 0 && denied.text().is_empty(), "{profile}: {}", denied.text());
        }
    });
}

#[test]
fn each_profile_and_feature_is_valid_here() {
    everybody(Tier::Namespace, |place| {
        let list = |kind: &str| {
            let listed = place.ringfence([kind, "list"]).well();
            let names = listed.lines().filter_map(|line| line.split_whitespace().next());
            names.map(str::to_owned).collect::<Vec<_>>()
        };
        let (profiles, features) = (list("profile"), list("feature"));
        assert!(profiles.len() >= 40 && features.len() >= 40);
        let check = [vec!["profile".to_owned(), "check".to_owned()], profiles.clone()].concat();
        assert_eq!(place.ringfence(&check).well().lines().count(), profiles.len());
        for name in features {
            place.ringfence(["feature", "show", &name]).ends(0).prints("description");
            place.ringfence(["why", "--feature", &name, "--", "read", "/usr"]).ends(0);
        }
    });
}

#[test]
fn a_feature_is_added_by_either_name() {
    everybody(Tier::Namespace, |place| {
        place.file("home/.cache/zig/file", "");
        let cache = place.text("home/.cache/zig");
        place.ringfence(["why", "--", "write", &cache]).ends(0).prints("private");
        for option in ["-p", "--feature"] {
            let said = place.ringfence(["why", option, "zig", "--", "write", &cache]);
            said.ends(0).prints("feature zig");
            place.run(&[option, "zig"], &["touch", &format!("{cache}/made")]).ends(0);
        }
        place.ringfence(["run", "--feature", "zigg", "--", "true"]).ends(125).says("`zig`");
    });
}

#[test]
fn read_only_shows_the_project_and_writes_nothing() {
    everywhere(|place| {
        place.file("home/project/old", "old");
        let script = "cat old; echo > old; echo > new; echo ran";
        let run = place.sh(&["--feature", "read-only"], script);
        run.prints("oldran");
        assert_eq!(fs::read_to_string(place.project("old")).unwrap(), "old");
        assert!(!place.project("new").exists());
        place.sh(&[], script).prints("oldran");
        assert!(place.project("new").exists(), "the control");
    });
}

#[test]
fn arguments_are_granted_and_nothing_beside_them() {
    everybody(Tier::Namespace, |place| {
        let named = place.file("home/documents/with space?*.txt", "named\n");
        let other = place.file("home/documents/other", "other\n");
        let (named, other) = (named.to_str().expect("text"), other.to_str().expect("text"));
        place.run(&["-p", "program"], &["cat", named]).ends(0).prints("named");
        place.run(&["-p", "program"], &["cat", "../documents/other"]).ends(0).prints("other");
        // Named in a text, not as an argument; and written.
        let script = format!("cat '{other}'");
        place.run(&["-p", "program"], &["sh", "-c", &script, named]).ends(1);
        let script = "echo x > \"$0\"";
        assert_ne!(place.run(&["-p", "program"], &["sh", "-c", script, named]).code, 0);
        place.run(&["-p", "sqlite"], &["sh", "-c", script, named]).ends(0);
        assert_eq!(fs::read_to_string(named).expect("a file"), "x\n");
        // Behind `--` a dash begins a name; before it an option.
        place.file("home/project/-dash", "dash\n");
        place.run(&["-p", "less"], &["cat", "--", "-dash"]).ends(0).prints("dash");
        let script = "cat ./-dash";
        place.run(&["-p", "program"], &["sh", "-c", script, "-dash"]).ends(1);
        place.run(&["-p", "program"], &["sh", "-c", script, "--", "-dash"]).ends(0).prints("dash");
        // What reads files alone gets no directory for a word that is the name of one.
        place.file("home/project/deep/f", "deep\n");
        let script = "cat -- ./-dash ./deep/f";
        let jq = place.run(&["-p", "jq"], &["sh", "-c", script, ".", "deep", "deep/f"]);
        assert_eq!(jq.ends(1).text(), "deep");
        assert!(!jq.err.contains("not granted"), "{}", jq.err);
        let jq = place.run(&["-p", "jq"], &["sh", "-c", script, ".", "./-dash", "deep/f"]);
        jq.ends(0).prints("dash\ndeep");
        place.run(&["-p", "program"], &["sh", "-c", script, "."]).ends(0).prints("dash\ndeep");
        // By an address, as desktops pass them; and never the home for being named.
        let address = format!("file://{}", place.text("home/documents/other"));
        place.run(&["-p", "program"], &["sh", "-c", "cat ~/documents/other", &address]).ends(0);
        let home = place.text("home");
        let listed = place.run(&["-p", "program"], &["ls", "-A", &home]);
        listed.ends(0).says("not granted for being an argument");
        assert!(!listed.text().contains("documents"), "{}", listed.text());
        // Nor what programs' directories are in.
        place.file("home/.config/gh/hosts.yml", "a token\n");
        place.file("home/.config/plain/file", "plain\n");
        for above in [".config", ".local", ".local/share"] {
            place.directory(format!("home/{above}"));
            let listed =
                place.run(&["-p", "program"], &["ls", "-AR", &place.text(format!("home/{above}"))]);
            listed.says("not granted for being an argument");
            assert!(!listed.text().contains("hosts.yml"), "{}", listed.text());
        }
        let plain = place.text("home/.config/plain");
        place.run(&["-p", "program"], &["ls", &plain]).ends(0).prints("file");
    });
}

#[test]
fn hooks_run_outside_and_only_the_users_own() {
    everywhere(|place| {
        let log = place.text("outside/log");
        let profile = format!(
            "extends = [\"default\"]\n[hooks]\nbefore = [\"echo before >> {log}; echo said\"]\n\
             after = [\"echo after >> {log}\"]\n"
        );
        place.file("home/.config/ringfence/profiles/hooked.toml", &profile);
        let run = place.run(&["-p", "hooked"], &["echo", "inside"]);
        assert_eq!(run.well(), "inside");
        run.says("said");
        let read = || fs::read_to_string(place.at("outside/log")).unwrap_or_default();
        assert_eq!(read(), "before\nafter\n");
        // A hook that fails keeps the command from running; what follows it is not run either.
        let failing = profile.replace("echo said", "exit 3");
        place.file("home/.config/ringfence/profiles/hooked.toml", failing);
        let run = place.run(&["-p", "hooked"], &["sh", "-c", "touch ran"]);
        run.ends(125).says("exit status: 3").says("not run");
        assert!(!place.project("ran").exists());
        // A project's file has no hooks, named or trusted.
        let theirs = place.file("home/project/ringfence.toml", &profile);
        place.run(&["-p", "./ringfence.toml"], &["true"]).ends(125).says("hooks");
        let trusted = place.ringfence([Path::new("trust"), &theirs]);
        let run = place.run(&[], &["true"]);
        assert!(trusted.code == 125 || run.code == 125, "{}", run.err);
        assert_eq!(read(), "before\nafter\nbefore\n");
    });
}

#[test]
fn the_state_of_an_agent_is_made_and_kept() {
    everywhere(|place: &Place| {
        let agent = place.script("codex", "#!/bin/sh\necho login > ~/.codex/auth.json\n");
        assert!(!place.at("home/.codex").exists());
        let options = ["-p", "codex", "--network", "none"];
        place.run(&options, &[agent.to_str().expect("text")]).ends(0);
        let kept = fs::read_to_string(place.at("home/.codex/auth.json")).expect("kept");
        assert_eq!(kept, "login\n");
        use std::os::unix::fs::PermissionsExt;
        let mode = place.at("home/.codex").metadata().expect("a directory").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    });
}

#[test]
fn the_caches_of_package_managers_are_made_and_kept() {
    const CACHES: [(&str, &str); 9] = [
        ("npm", ".npm/_cacache"),
        ("yarn", ".cache/yarn"),
        ("pnpm", ".local/share/pnpm/store"),
        ("pip", ".cache/pip"),
        ("uv", ".cache/uv"),
        ("cargo", ".cargo/registry"),
        ("go", "go/pkg"),
        ("mvn", ".m2/repository"),
        ("gradle", ".gradle/caches"),
    ];
    everywhere(|place| {
        for (profile, cache) in CACHES {
            let file = place.at("home").join(cache).join("kept");
            // By the home that the command has, and, for Java, by the one that the user has.
            let script =
                format!("mkdir -p ~/{cache}; echo x > ~/{cache}/kept && cat {}", file.display());
            place.sh(&["--network", "none"], &format!("{script} || :")).ends(0);
            assert!(!file.exists(), "without the profile {profile} {cache} is made");
            let options = ["-p", profile, "--network", "none"];
            assert_eq!(place.sh(&options, &script).well(), "x", "{profile}");
            assert_eq!(fs::read_to_string(&file).expect(profile), "x\n");
        }
        // Several of them make one profile, as the documents have it.
        place.file("home/project/deps.toml", "extends = [\"npm\", \"pip\", \"cargo\", \"go\"]\n");
        let options = ["-p", "./deps.toml", "--network", "none"];
        assert_eq!(place.sh(&options, "cat ~/.npm/_cacache/kept ~/go/pkg/kept").well(), "x\nx");
    });
}

/// pip takes no cache that it cannot write, and finds out by access(2), which Landlock has no say in.
#[test]
fn the_cache_of_pip_is_the_sandboxs_own_where_nothing_grants_the_hosts() {
    everywhere(|place| {
        let cached = place.file("home/.cache/pip/wheels/cached", "host\n");
        let script = "mkdir -p ~/.cache/pip/wheels/a && echo x > ~/.cache/pip/wheels/cached && cat ~/.cache/pip/wheels/cached";
        assert_eq!(place.sh(&[], script).well(), "x");
        assert_eq!(fs::read_to_string(&cached).expect("the host's"), "host\n");
        // The control: with its profile it is the host's.
        assert_eq!(place.sh(&["-p", "pip", "--network", "none"], script).well(), "x");
        assert_eq!(fs::read_to_string(&cached).expect("the host's"), "x\n");
    });
}

#[test]
fn a_registry_that_is_named_by_the_user_is_not_asked_for_again() {
    everybody(Tier::Namespace, |place| {
        let sentence = "cargo's settings name no registry";
        place.sh(&["-p", "cargo"], ":").ends(0).says(sentence);
        let told = place.sh(&["-p", "cargo", "-n", "localhost:1"], ":").quiet();
        assert_eq!(told, "");
        let deps = "extends = [\"cargo\"]\n[network]\nallow = [\"localhost:1\"]\n";
        place.file("home/.config/ringfence/profiles/deps.toml", deps);
        assert_eq!(place.sh(&["-p", "deps"], ":").quiet(), "");
    });
}

#[test]
fn an_integration_is_removed_byte_for_byte() {
    everybody(Tier::Namespace, |place| {
        let shim = place.file("home/.local/bin/cat", "#!/bin/sh\n# mine\n");
        let integrate = |words: &[&str]| {
            place.ringfence([&["integrate", "jq", "--program", "cat"], words].concat())
        };
        integrate(&["--remove"]).ends(125).says("not integrated");
        integrate(&[]).ends(0).prints(".local/bin/cat");
        integrate(&[]).ends(125).says("--remove");
        // It is the program in its sandbox: the file that is named, and nothing else.
        let named = place.file("home/documents/named", "named\n");
        let (shim, named) = (shim.display(), named.display());
        place.shell(&format!("{shim} {named}")).ends(0).prints("named");
        let secret = place.text("outside/secret");
        place.shell(&format!("{shim} {named} < {secret}")).ends(0).prints("named");
        // What somebody changed since is not thrown away.
        let made = fs::read_to_string(shim.to_string()).expect("the script");
        place.file("home/.local/bin/cat", "changed");
        integrate(&["--remove"]).ends(125).says("was changed since");
        place.file("home/.local/bin/cat", made);
        integrate(&["--remove"]).ends(0);
        let back = fs::read_to_string(shim.to_string()).expect("the script");
        assert_eq!(back, "#!/bin/sh\n# mine\n");
        // And where nothing was, nothing is.
        fs::remove_file(shim.to_string()).expect("a file of ours");
        integrate(&[]).ends(0);
        integrate(&["--remove"]).ends(0);
        assert!(!place.at("home/.local/bin/cat").exists());
    });
}

/// Without its journal a database that was being written when its program ended is lost.
#[test]
fn a_database_that_is_named_keeps_its_journal_beside_it() {
    everywhere(|place| {
        if !place.has("sqlite3", "--version") {
            return;
        }
        place.directory("home/documents");
        let database = place.text("home/documents/d.db");
        let outside = |sql: &str| place.shell(&format!("sqlite3 {database} '{sql}'")).well();
        let inside = |words: &[&str]| {
            place.run(&["-p", "sqlite"], &[&["sqlite3", &database][..], words].concat())
        };
        // It makes one, too.
        inside(&["create table t(a); insert into t values(zeroblob(2000))"]).ends(0);
        assert_eq!(outside("select count(*) from t"), "1");
        // More than it keeps in memory is in the file when it is killed.
        let more = "pragma cache_size=2; begin; update t set a=1; with recursive n(i) as (select 1 union all select \
                    i+1 from n where i<2000) insert into t select randomblob(2000) from n;";
        assert_ne!(inside(&["-batch", more, ".shell kill -KILL $PPID"]).code, 0);
        assert!(place.at("home/documents/d.db-journal").exists());
        assert_eq!(
            outside("pragma integrity_check; select count(*), length(a) from t"),
            "ok\n1|2000"
        );
        // At the top of the home all would be granted.
        let home = place.text("home/top.db");
        place.shell(&format!("sqlite3 {home} 'create table t(a)'")).ends(0);
        let refused = place.run(&["-p", "sqlite"], &["sqlite3", &home, "insert into t values(1)"]);
        assert_ne!(refused.code, 0);
        refused.says("what is kept beside it takes all of");
        place.shell(&format!("rm {home} {database}*")).ends(0);
    });
}

/// What is kept beside a file is written too: a link that a program left must not say where that is.
#[test]
fn the_place_beside_a_named_file_is_not_said_by_a_link_of_an_earlier_run() {
    everywhere(|place| {
        let kept = place.file("home/documents/kept", "kept\n");
        place.file("home/documents/d.db", "");
        place.directory("home/links");
        place.link("home/links/d.db", place.at("home/documents/d.db"));
        let documents = place.text("home/documents");
        let left = format!("ln -s {documents}/d.db d.db; ln -s {documents} all");
        place.sh(&[], &left).ends(0);
        let script = format!("echo changed > {documents}/kept; cat {documents}/kept");
        let run = |named: &str| place.run(&["-p", "sqlite"], &["sh", "-c", &script, "sh", named]);
        for named in ["d.db", "./d.db", "all/d.db", "all/new.db"] {
            run(named).ends(125).says("a program in an earlier sandbox may have made it");
            assert_eq!(fs::read_to_string(&kept).expect("a file"), "kept\n", "{named}");
        }
        // The control: a link of the user's, where no program writes.
        assert_eq!(run("../links/d.db").well(), "changed");
        assert_eq!(fs::read_to_string(&kept).expect("a file"), "changed\n");
    });
}

/// `EDITOR` is a command, as for git, and a copy that nobody got to edit does not stay.
#[test]
fn an_editor_has_options() {
    everybody(Tier::Namespace, |place| {
        let file = place.at("home/.config/ringfence/profiles/default.toml");
        let edit = |editor: &str| {
            let mut command = place.command(ringfence_tests::binary());
            command.env("EDITOR", editor).args(["profile", "edit", "default"]);
            Running::start(command).finish()
        };
        for (editor, why) in [("nosuch -w", "set EDITOR"), ("false", "the editor false failed")] {
            edit(editor).ends(125).says(why);
            assert!(!file.exists(), "{editor}");
        }
        edit("sed -i '1i # mine'").ends(0);
        assert!(fs::read_to_string(&file).unwrap().starts_with("# mine\n"));
        // The user's own stays.
        edit("false").ends(125);
        assert!(file.exists());
        fs::remove_file(&file).unwrap();
        edit("true").ends(0).says("go on with the built-in one");
    });
}

#[test]
fn profiles_are_compared_by_what_they_come_to() {
    let place = Place::new(Person::Ordinary, Tier::Namespace);
    let differs = place.ringfence(["profile", "diff", "default", "claude"]);
    differs.ends(1).prints("+ environment.pass: ANTHROPIC_API_KEY");
    // It builds on the other one: nothing is taken from that.
    let text = differs.text();
    let gone: Vec<&str> = text.lines().filter(|line| line.starts_with("- ")).collect();
    assert!(gone.iter().all(|line| line.contains(" = ")), "{gone:?}");
    assert_eq!(place.ringfence(["profile", "diff", "claude", "claude"]).ends(0).text(), "");
    place.file("home/project/own.toml", "extends = [\"default\"]\n");
    assert_eq!(place.ringfence(["profile", "diff", "default", "./own.toml"]).ends(0).text(), "");
}

#[test]
fn a_plan_says_that_there_is_no_such_command() {
    let place = Place::new(Person::Ordinary, Tier::Namespace);
    let said = "nosuchcmd is in no directory of PATH";
    place.ringfence(["plan", "--", "nosuchcmd"]).ends(0).says(said);
    place.run(&[], &["nosuchcmd"]).ends(127);
    assert_eq!(place.ringfence(["plan", "--", "sh"]).err, "");
}

#[test]
fn words_of_a_profile_do_not_command_a_terminal() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    let words = "extends = [\"default\"]\ndescription = \"a\\u001b]0;x\\u0007b\"\ndangers = [\"c\\u001b]0;y\\u0007\\nringfence: d\"]\n";
    place.file("home/.config/ringfence/profiles/odd.toml", words);
    let run = place.run(&["-p", "odd"], &["true"]);
    run.ends(0).says("c\\u{1b}]0;y\\u{7}\\nringfence: d");
    for words in [&["profile", "list"][..], &["profile", "diff", "odd", "default"]] {
        let text = place.ringfence(words).text();
        assert!(!text.contains('\u{1b}') && text.contains("\\u{1b}"), "{text}");
    }
}
