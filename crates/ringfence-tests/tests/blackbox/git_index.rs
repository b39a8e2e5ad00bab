//! What git keeps in a repository for itself and believes when it reads it again: an index that a run wrote has git
//! outside write and read wherever it says.

use ringfence_tests::{Place, Tier, everybody, everywhere};
use std::fs;

/// Who commits is said in the repository's own configuration.
const REPOSITORY: &str = "init() { git init -q \"$@\"; }; \
                          as() { git -c user.name=a -c user.email=a@b \"$@\"; }; ";

/// A repository with a commit, and a file outside that the program would like to have read or written.
fn prepared(place: &Place) -> bool {
    if !place.has("git", "--version") {
        return false;
    }
    place.file("home/project/file", "one\n");
    place.file("home/secret", "the secret\n");
    place.shell(&format!("{REPOSITORY} init . && git add file && as commit -q -m one")).ends(0);
    place.clock_moves_on();
    true
}

/// An index with these paths, all of them the blob that `file` is.
fn index(place: &Place, version: u32, paths: &[&str]) -> Vec<u8> {
    let blob = place.shell("git hash-object -w file").well();
    let blob: Vec<u8> =
        (0..20).map(|at| u8::from_str_radix(&blob[2 * at..2 * at + 2], 16).unwrap()).collect();
    let mut out = b"DIRC".to_vec();
    out.extend(version.to_be_bytes());
    out.extend((paths.len() as u32).to_be_bytes());
    let mut before = 0_u8;
    for path in paths {
        let start = out.len();
        out.extend([0; 24]);
        out.extend(0o100_755_u32.to_be_bytes());
        out.extend([0; 12]);
        out.extend(&blob);
        out.extend((path.len() as u16).to_be_bytes());
        out.extend((version == 4).then_some(before));
        before = path.len() as u8;
        out.extend(path.bytes().chain([0]));
        while version < 4 && !(out.len() - start).is_multiple_of(8) {
            out.push(0);
        }
    }
    // Nobody looks at its hash.
    out.extend([0; 20]);
    out
}

const HOOK: &str = ".git/hooks/post-checkout";

/// What git outside makes of an index: whether it writes what it names.
fn writes(place: &Place, at: &str) -> bool {
    place.shell(&format!("cd {at} && git checkout-index -a -f"));
    let made: Vec<_> =
        [HOOK, "../written"].iter().filter(|path| place.project(path).exists()).collect();
    place.shell(&format!("rm -rf {HOOK} ../written")).ends(0);
    !made.is_empty()
}

#[test]
fn an_index_that_names_what_git_refuses_is_taken_away() {
    everywhere(|place| {
        if !prepared(place) {
            return;
        }
        for version in [2, 3, 4] {
            place.file("home/evil", index(place, version, &[HOOK, "../written", "file"]));
            // The control: git believes it.
            place.shell("cp .git/index kept && cat ../evil > .git/index").ends(0);
            assert!(writes(place, "."), "{version}: outside");
            place.shell("mv kept .git/index && cp ../evil .").ends(0);
            place.clock_moves_on();
            // In its place, of which the directory tells nothing, or as git does it.
            for make in
                ["cat evil > .git/index", "cp evil .git/index.lock; mv .git/index.lock .git/index"]
            {
                let outcome = place.sh(&[], make);
                outcome.ends(0).says(".git/index was created or changed inside");
                outcome.says("`git reset` makes it anew");
                assert!(!place.project(".git/index").exists(), "{version} {make}");
                assert!(!writes(place, "."), "{version} {make}");
                place.shell("git reset -q --hard && git status").ends(0);
                place.clock_moves_on();
            }
        }
        // What it would have git read.
        place.file("home/project/evil", index(place, 2, &["../secret"]));
        place.clock_moves_on();
        place.sh(&[], "cat evil > .git/index").says("git would write and read ../secret by it");
        place.shell("git add -u; git reset -q");
        let all = "git cat-file --batch-all-objects --batch";
        assert!(!place.shell(all).text().contains("the secret"));
        // An index that nobody can be sure of.
        for (way, make) in [
            (
                "another version",
                "printf 'DIRC\\0\\0\\0\\7\\0\\0\\0\\0aaaaaaaaaaaaaaaaaaaa' > .git/index",
            ),
            ("cut off", "head -c 60 .git/index > i; cat i > .git/index"),
            ("closed", "chmod 0 .git/index"),
            ("a FIFO", "rm .git/index; mkfifo .git/index"),
        ] {
            if way == "closed" && place.shell("id -u").text() == "0" {
                continue;
            }
            place.sh(&[], make).says(".git/index was created or changed inside");
            place.shell("git reset -q").ends(0);
            place.clock_moves_on();
        }
    });
}

#[test]
fn so_is_that_of_any_repository_in_the_tree() {
    everywhere(|place| {
        if !prepared(place) {
            return;
        }
        let make = format!(
            "{REPOSITORY} init nested; init --bare bare.git; git worktree add -q ../project/w 2>&1; \
             init donor; as -C donor commit -q --allow-empty -m x; \
             as -c protocol.file.allow=always submodule -q add ./donor sub 2>&1; as commit -q -m two"
        );
        place.shell(&make).ends(0);
        place.file("home/project/evil", index(place, 2, &["../written"]));
        place.clock_moves_on();
        for at in [
            "nested/.git/index",
            "bare.git/index",
            ".git/worktrees/w/index",
            ".git/worktrees/w/sharedindex.0123",
            ".git/modules/sub/index",
            ".git/sharedindex.0123",
        ] {
            // A look of its own at each: the budget of a short run must not be the reason.
            let outcome = place.sh(&[], &format!("cat evil > {at}; sleep 0.2"));
            outcome.says(&format!("{at} was created or changed inside"));
            assert!(!place.project(at).exists(), "{at}");
            place.clock_moves_on();
        }
        // A directory of that name is a submodule's own.
        let kept =
            "mkdir -p .git/modules/x/index && echo x > .git/modules/x/index/HEAD && cp evil index";
        assert_eq!(place.sh(&[], kept).quiet(), "");
        assert!(
            place.project(".git/modules/x/index/HEAD").exists() && place.project("index").exists()
        );
        // Prepared in one run under a name that means nothing, and moved by another.
        place.sh(&[], "cp evil nested/.git/later").quiet();
        place.clock_moves_on();
        place.sh(&[], "mv nested/.git/later nested/.git/index").says("nested/.git/index was");
    });
}

#[test]
fn git_keeps_each_index_that_it_writes() {
    everybody(Tier::Namespace, |place| {
        if !prepared(place) {
            return;
        }
        for kind in ["", "--object-format=sha256"] {
            place.shell("rm -rf .git").ends(0);
            let make = format!("{REPOSITORY} init . {kind} && git add file && as commit -q -m one");
            if place.shell(&make).code != 0 {
                continue;
            }
            place.shell(
                "git sparse-checkout init --cone --sparse-index; git sparse-checkout set a c",
            );
            place.clock_moves_on();
            for change in [
                "mkdir -p a/b c; touch a/b/x a/y c/z; git add .; as commit -q -m two",
                "git status --short",
                "for n in $(seq 40); do echo $n > a/$n; git status --short > /dev/null; git add a/$n; done",
                "as commit -q -m three; git mv a/1 c/1; git rm -q a/2; git add -N c; as stash -q; git stash pop -q",
                "git update-index --index-version 4; git status --short",
                "git update-index --untracked-cache; git status --short; git update-index --fsmonitor",
                "git -c index.threads=3 update-index --force-write-index",
                "git update-index --split-index; touch c/q; git add c/q; git status --short",
                "git rm -q --cached c/q; git status --short",
                "git update-index --no-split-index; as commit -q -a -m four",
                "git checkout -q -b other; echo 1 > a/3; as commit -q -a -m o; git checkout -q -; \
                 echo 2 > a/3; as commit -q -a -m m; as merge -q other; git status --short",
                "git reset -q --hard; git worktree add -q t; git -C t status --short",
                "git sparse-checkout set a; git status; git sparse-checkout reapply --sparse-index",
                "git init -q nested; cd nested; touch f; git add f; as commit -q -m n; git status --short",
            ] {
                // Not each git knows all of it.
                let outcome =
                    place.sh(&[], &format!("{REPOSITORY} {{ {change}; }} >/dev/null 2>&1; true"));
                assert_eq!(outcome.err, "", "{kind} {change}");
                place.shell("git status --short").ends(0);
                place.clock_moves_on();
            }
        }
    });
}

#[test]
fn no_commit_of_an_overlay_no_copy_and_no_revert_brings_one() {
    everybody(Tier::Namespace, |place| {
        if !prepared(place) {
            return;
        }
        place.file("home/project/evil", index(place, 2, &[HOOK, "../written"]));
        place.shell("cp .git/index ../index; mkdir ../copies").ends(0);
        place.clock_moves_on();
        let before = fs::read(place.at("home/index")).unwrap();
        let is_as_before = || fs::read(place.project(".git/index")).unwrap() == before;
        place.sh(&["--overlay=keep"], "cat evil > .git/index; echo new > beside").ends(0);
        place.ringfence(["overlay", "commit", "latest"]).says(".git/index is a protected name");
        assert!(is_as_before() && place.project("beside").exists());
        // The control: git's own.
        place.sh(&["--overlay=keep"], "echo more > more && git add more").ends(0);
        place.ringfence(["overlay", "commit", "latest"]).ends(0);
        assert_eq!(place.shell("git diff --cached --name-only").well(), "more");
        // A session's repository.
        let make = "mkdir -p out && git clone -q . out/r && cp -r out/r out/good && cat evil > out/r/.git/index";
        let make = format!("{make} && mv out /tmp/out && echo ready && exec sleep 100");
        let mut session = place.start(&["--name", "one"], &["sh", "-c", &make]);
        session.printed("ready");
        let to = place.text("home/copies/out");
        place.ringfence(["cp", "one:/tmp/out", &to]).says(".git/index");
        session.stop();
        assert!(!place.at("home/copies/out/r/.git/index").exists());
        assert!(place.at("home/copies/out/good/.git/index").exists());
    });
}

#[test]
fn conflicts_noted_for_git_rerere_name_no_file_outside() {
    everywhere(|place| {
        if !prepared(place) {
            return;
        }
        let hash = "0123456789abcdef0123456789abcdef01234567";
        let make = format!(
            "mkdir -p .git/rr-cache/{hash} && touch .git/rr-cache/{hash}/preimage && \
             printf '{hash}\\t../secret\\0' > .git/MERGE_RR"
        );
        let commit = format!("{REPOSITORY} as commit -q --allow-empty -m x");
        let read = |name: &str| {
            let told = fs::read_to_string(place.project(format!(".git/rr-cache/{hash}/{name}")));
            told.is_ok_and(|text| text.contains("the secret"))
        };
        // The control: git reads it, at the next commit, and leaves it where the program can.
        place.shell(&format!("{make}; {commit}"));
        assert!(read("postimage"), "outside");
        place.shell("rm -rf .git/rr-cache .git/MERGE_RR").ends(0);
        place.clock_moves_on();
        place.sh(&[], &make).says(".git/MERGE_RR was created or changed inside");
        place.shell(&commit);
        assert!(!read("postimage"));
        // What git notes itself stays.
        place.clock_moves_on();
        let own = format!(
            "{REPOSITORY} git config -l >/dev/null; git checkout -q -b o; echo 1 > file; as commit -q -a -m o; \
             git checkout -q -; echo 2 > file; as commit -q -a -m m; as merge -q o >/dev/null 2>&1; test -s .git/MERGE_RR"
        );
        assert_eq!(place.sh(&[], &own).err, "");
    });
}

/// As git, other version control has its configuration where a file says.
#[test]
fn a_workspace_of_jujutsu_leads_to_no_repository_of_the_programs() {
    everywhere(|place| {
        place.directory("home/project/.jj/repo/store");
        place.clock_moves_on();
        let make = "mv .jj/repo evil; echo x > evil/config.toml; printf ../evil > .jj/repo";
        place.sh(&[], make).says(".jj/repo was created or changed inside");
        assert!(place.project(".jj/repo").symlink_metadata().is_err());
        place.sh(&[], "ln -s ../evil .jj/repo").says(".jj/repo was created");
        assert!(place.project(".jj/repo").symlink_metadata().is_err());
        let own = "mkdir -p w/.jj m/.jj/repo; printf ../../m/.jj/repo > w/.jj/repo; mkdir .jj/repo";
        assert_eq!(place.sh(&[], own).quiet(), "");
        assert!(place.project("w/.jj/repo").is_file() && place.project(".jj/repo").is_dir());
        place.clock_moves_on();
        // In its place.
        place.sh(&[], "printf ../../evil > w/.jj/repo").says("w/.jj/repo was");
    });
}

/// Git writes what is committed there into any directory that a configuration calls the worktree.
#[test]
fn no_worktree_of_a_repository_is_anothers_hooks() {
    everywhere(|place| {
        if !prepared(place) {
            return;
        }
        let make = |way: &str, name: &str| {
            format!(
                "{REPOSITORY} {way} && printf '#!/bin/sh\\ntouch %s/obeyed\\n' $PWD > post-checkout && \
                 chmod +x post-checkout && git --git-dir={name} --work-tree=$PWD add -f post-checkout && \
                 as --git-dir={name} --work-tree=$PWD commit -q -m one && rm post-checkout && \
                 git --git-dir={name} config core.bare false && git --git-dir={name} config core.worktree "
            )
        };
        let outside = "git checkout -f . ; cd \"$P\"; git checkout -q -b b; git checkout -q -; git branch -D b";
        let obeyed = place.project("obeyed");
        let hook = place.project(HOOK);
        for (way, name, to) in [
            ("init sub", "sub", ".git/hooks"),
            ("init --bare bare.git", "bare.git", ".git/hooks"),
            ("init sub", "sub", ".vscode"),
        ] {
            let directory = if name == "sub" { "sub/.git" } else { name };
            let make = make(way, directory);
            let make = format!("mkdir -p {to}; {make} $PWD/{to}");
            let git = format!("P=$PWD; cd {name} && {outside}");
            // The control.
            place.shell(&format!("{make}; {git}"));
            let written = place.project(to).join("post-checkout");
            assert!(
                written.exists() && (to != ".git/hooks" || obeyed.exists()),
                "{way} {to}: outside"
            );
            place.shell(&format!("rm -rf {name} {HOOK} obeyed .vscode")).ends(0);
            place.clock_moves_on();
            place.sh(&[], &make).says(&format!("{directory}/config was created or changed inside"));
            place.shell(&git);
            assert!(!written.exists() && !hook.exists() && !obeyed.exists(), "{way} {to}");
            place.shell(&format!("rm -rf {name} .vscode")).ends(0);
            place.clock_moves_on();
        }
        // A submodule's, which git sets itself, stays.
        let add = format!(
            "{REPOSITORY} init donor; as -C donor commit -q --allow-empty -m x; \
             as -c protocol.file.allow=always submodule --quiet add ./donor deep/sub 2>/dev/null; \
             git -C deep/sub status --short; git config -f .git/modules/deep/sub/config core.worktree"
        );
        let outcome = place.sh(&[], &add);
        assert_eq!(outcome.text(), "../../../../deep/sub", "{}", outcome.err);
        assert!(place.project(".git/modules/deep/sub/config").exists(), "{}", outcome.err);
    });
}

/// What is read of a run's at its end has a measure, whatever it left.
#[test]
fn indexes_without_end_are_not_read() {
    everybody(Tier::Namespace, |place| {
        if !prepared(place) {
            return;
        }
        // No entries, and an extension that git passes over; on disk they take next to nothing.
        let size = 600 << 20;
        let script = format!(
            "import struct\nfor name in 'ab':\n with open('.git/sharedindex.'+name,'wb') as index:\n  \
             index.write(b'DIRC'+struct.pack('>II',2,0)+b'UNKN'+struct.pack('>I',{size}))\n  \
             index.truncate({size}+40)"
        );
        let run = place.run(&[], &["python3", "-c", &script]);
        run.ends(0).says("there is too much of its kind");
        let left =
            ["a", "b"].map(|name| place.project(format!(".git/sharedindex.{name}")).exists());
        assert!(left[0] != left[1], "{left:?}: one is read, and is good");
    });
}

/// A commit made after the run would remove from the repository what was taken away: it is told.
#[test]
fn what_was_taken_away_and_is_tracked_is_told() {
    everywhere(|place| {
        if !place.has("git", "--version") {
            return;
        }
        place.file("home/project/src/.envrc", "theirs\n");
        place.file("home/project/src/plain", "theirs\n");
        let as_somebody = "-c user.name=a -c user.email=a@b";
        place
            .shell(&format!("git init -q . && git add -A && git {as_somebody} commit -qm one"))
            .ends(0);
        for version in ["2", "4"] {
            place.shell(&format!("git update-index --index-version {version}")).ends(0);
            place.shell("rm src/.envrc src/plain").ends(0);
            place.clock_moves_on();
            let run =
                place.sh(&[], "git checkout -q -- src && touch src/.vimrc.lua && cat src/plain");
            let told = format!("git tracks src/.envrc in {}", place.text("home/project"));
            run.ends(0).prints("theirs").says(&told);
            assert!(!place.project("src/.envrc").exists(), "version {version}");
            // The control: what is said to bring it back does.
            place.shell("git checkout -- src/.envrc").ends(0);
            assert!(place.project("src/.envrc").exists());
        }
        // What is not tracked is not told of.
        let run = place.sh(&[], "mkdir -p other; echo evil > other/.envrc");
        run.ends(0).says("other/.envrc was created");
        assert!(!run.err.contains("git tracks"), "{}", run.err);
    });
}

/// Of a linked worktree the index is elsewhere, a split one is in two files, and what is beside it hides nothing.
#[test]
fn what_is_tracked_is_told_wherever_the_index_is() {
    everywhere(|place| {
        if !place.has("git", "--version") {
            return;
        }
        let as_somebody = "-c user.name=a -c user.email=a@b";
        let make = format!(
            "git init -q . && mkdir src && echo theirs > src/.envrc && echo theirs > src/plain && git add -A && \
             git {as_somebody} commit -qm one && git worktree add -q tree"
        );
        place.shell(&make).ends(0);
        let beside =
            "mkdir junk; for n in $(seq 300); do mkdir junk/$n; echo x > junk/$n/.envrc; done";
        for (at, outside, beside) in [
            ("tree", "true", "true"),
            (".", "git update-index --split-index", "true"),
            (".", "git update-index --no-split-index", beside),
        ] {
            place.shell(&format!("{outside}; git -C {at} checkout -q -- src; rm -rf junk")).ends(0);
            place.clock_moves_on();
            let run = place
                .sh(&[], &format!("{beside}; echo evil >> {at}/src/.envrc; echo x > {at}/new"));
            let repository = place.project(at).components().collect::<std::path::PathBuf>();
            let told = format!("git tracks src/.envrc in {}", repository.display());
            run.ends(0).says(&told);
            assert!(!place.project(at).join("src/.envrc").exists(), "{at} {outside}");
            assert!(place.project(at).join("new").exists(), "the control: {at} {outside}");
        }
    });
}
