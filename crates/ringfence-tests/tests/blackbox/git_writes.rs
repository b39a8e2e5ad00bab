//! What git outside writes to, and reads as configuration, over links and names that a run left in a repository.

use ringfence_tests::{Place, Tier, everybody, everywhere};
use std::fs;
use std::os::unix::fs::MetadataExt;

const AS_SOMEBODY: &str = "-c user.name=a -c user.email=a@b";

/// A repository with a commit, and a file outside that the program would like to have written.
fn prepared(place: &Place) -> bool {
    if !place.has("git", "--version") {
        return false;
    }
    place.file("outside/rc", "mine\n");
    place
        .shell(&format!("git init -q . && git {AS_SOMEBODY} commit -q --allow-empty -m one"))
        .ends(0);
    place.clock_moves_on();
    true
}

#[test]
fn git_outside_writes_over_no_link_that_a_run_left() {
    everywhere(|place| {
        if !prepared(place) {
            return;
        }
        let rc = place.text("outside/rc");
        for name in [
            "COMMIT_EDITMSG",
            "MERGE_MSG",
            "packed-refs",
            "FETCH_HEAD",
            "logs/HEAD",
            "logs/refs/heads/deep/er",
            "info/refs",
            "rebase-merge/done",
            "refs/heads/x",
            "lfs/tmp",
            "objects/ab",
            "objects/info/alternates",
            "objects/pack/pack-1.keep",
            "worktrees/w/COMMIT_EDITMSG",
            "modules/info/logs/HEAD",
        ] {
            // What lies beside it, the control, stays.
            let make = format!(
                "mkdir -p .git/$(dirname {name}); ln -sf {rc} .git/{name}; echo kept > .git/{name}.beside"
            );
            let outcome = place.sh(&[], &make);
            outcome.ends(0).says(&format!(".git/{name} was created or changed inside"));
            assert!(!place.project(format!(".git/{name}")).is_symlink(), "{name}");
            assert!(place.project(format!(".git/{name}.beside")).exists(), "{name}");
        }
        // One to a file beside it, which git would follow as well, and one that is a directory.
        let make = "ln -sf config .git/COMMIT_EDITMSG; mv .git/logs logs; ln -s ../logs .git/logs";
        place.sh(&[], make).says(".git/COMMIT_EDITMSG was").says(".git/logs was");
        assert_eq!(fs::read_to_string(place.at("outside/rc")).unwrap(), "mine\n");
    });
}

#[test]
fn links_in_a_repository_that_the_user_made_stay() {
    everybody(Tier::Namespace, |place| {
        if !prepared(place) {
            return;
        }
        place.link("home/project/.git/info/exclude.d", "/etc");
        place.link("home/project/.git/logs/mine", "/etc/hostname");
        place.clock_moves_on();
        assert_eq!(place.sh(&[], "echo x > .git/info/more; echo y > file").quiet(), "");
        assert!(place.project(".git/logs/mine").is_symlink());
        assert!(place.project(".git/info/exclude.d").is_symlink());
    });
}

#[test]
fn a_git_file_leads_git_only_where_its_text_says() {
    everywhere(|place| {
        if !prepared(place) {
            return;
        }
        let evil = "evil() { mkdir -p $(dirname $1); cp -r .git t; rm -rf $1; mv t $1; \
                    printf '[core]\\n\\tfsmonitor = touch %s/obeyed; false\\n' $PWD > $1/config; }; ";
        for (way, make, git) in [
            (
                "over a link",
                "evil .git/foo/.git/modules/x; ln -s .git/foo l; mkdir s; \
                 echo 'gitdir: ../l/.git/modules/x' > s/.git",
                "s/.git",
            ),
            (
                "a zero byte",
                "evil .git/foo; mkdir s; printf 'gitdir: ../.git/foo\\0/../modules/x\\n' > s/.git",
                "s/.git",
            ),
            (
                "a space at its end",
                "evil '.git/modules/x'; mv .git/modules/x .git/foo; mkdir -p .git/modules s; \
                 ln -s ../foo '.git/modules/x '; printf 'gitdir: ../.git/modules/x \\n' > s/.git",
                ".git/modules/x ",
            ),
            (
                "a common directory over a link",
                "mkdir -p .git/bar/deep s .git/worktrees/w; evil .git/bar/.git; ln -s .git/bar/deep m; \
                 cp .git/HEAD .git/worktrees/w/; echo '../../../m/../.git' > .git/worktrees/w/commondir; \
                 echo $PWD/s/.git > .git/worktrees/w/gitdir; echo 'gitdir: ../.git/worktrees/w' > s/.git",
                ".git/worktrees/w/commondir",
            ),
            (
                "a common directory with a zero byte",
                "mkdir -p .git/worktrees/w s; evil .git/bar; cp .git/HEAD .git/worktrees/w/; \
                 printf '../../bar\\0/..\\n' > .git/worktrees/w/commondir; \
                 echo $PWD/s/.git > .git/worktrees/w/gitdir; echo 'gitdir: ../.git/worktrees/w' > s/.git",
                ".git/worktrees/w/commondir",
            ),
        ] {
            let make = format!("{evil}{make}");
            let obeyed = place.project("obeyed");
            // The control: outside it works.
            place.shell(&format!("cp -r .git kept; {make}; cd s; git status"));
            assert!(obeyed.exists(), "{way}: outside");
            place.shell("rm -rf .git s l m obeyed; mv kept .git").ends(0);
            place.clock_moves_on();
            let outcome = place.sh(&[], &format!("cp -r .git kept; {make}"));
            outcome.says(&format!("{git} was created"));
            place.shell("cd s; git status");
            assert!(!obeyed.exists(), "{way}: {}", outcome.err);
            place.shell("rm -rf .git s l m; mv kept .git").ends(0);
        }
    });
}

/// What the user makes beside a run is none of its doing, and a later run with a larger tree knows that.
#[test]
fn what_the_user_made_beside_a_run_stays_in_a_run_above() {
    everywhere(|place| {
        place.directory("home/project/a");
        let beside = "coproc RUN { $RF --workdir a -- sh -c 'echo ready; cat > kept'; }; read -ru ${RUN[0]} ready; \
                      mkdir -p b/.vscode b/.git/hooks; echo true > b/.envrc; echo true > b/.git/hooks/pre-commit; \
                      echo '{}' > b/.vscode/tasks.json; exec {RUN[1]}>&-; wait; test -e a/kept";
        place.shell(beside).ends(0);
        place.clock_moves_on();
        assert_eq!(place.sh(&[], "echo x > b/file").quiet(), "");
        for name in [".envrc", ".git/hooks/pre-commit", ".vscode/tasks.json"] {
            assert!(place.project(format!("b/{name}")).exists(), "{name}");
        }
    });
}

/// The file is the user's: it stays what it was, and so does the worktree.
#[test]
fn the_git_file_of_a_worktree_leads_where_it_led() {
    everywhere(|place| {
        if !prepared(place) {
            return;
        }
        place.shell("git worktree add -q tree").ends(0);
        place.clock_moves_on();
        let before = fs::read_to_string(place.project("tree/.git")).unwrap();
        for act in [
            "echo 'gitdir: evil' > .git",
            "printf 'gitdir: %s/.git/worktrees/other\\n' $PWD > .git",
            "rm -f .git",
            "echo 'gitdir: evil' > new; mv -f new .git",
        ] {
            let make = format!(
                "mkdir -p evil/objects evil/refs; echo 'ref: refs/heads/main' > evil/HEAD; {act}; echo made > control"
            );
            let outcome = place.sh(&["--workdir", "tree"], &make);
            let now = fs::read_to_string(place.project("tree/.git")).unwrap_or_default();
            assert_eq!(now, before, "{act}: {}", outcome.err);
            assert!(place.project("tree/control").exists(), "{act}: {}", outcome.err);
            fs::remove_file(place.project("tree/control")).unwrap();
        }
        place.shell("git -C tree status -s").ends(0);
    });
}

/// It leads git nowhere; uv marks directories of its cache so.
#[test]
fn an_empty_git_file_stays() {
    everywhere(|place| {
        let made =
            place.sh(&[], "mkdir -p made/odd && : > made/.git && echo gitdir: x > made/odd/.git");
        made.ends(0).says("made/odd/.git was created");
        assert!(place.project("made/.git").is_file() && !place.project("made/odd/.git").exists());
        assert!(!made.err.contains("made/.git"), "{}", made.err);
    });
}

/// A bare repository that is too far down for the walk is looked at for the file that leads there.
#[test]
fn a_repository_out_of_the_walks_reach_is_judged_for_the_file_that_leads_there() {
    everywhere(|place| {
        if !prepared(place) {
            return;
        }
        let far = "far/".repeat(3);
        // More than a short run's walk gets through, and there before it.
        let many = "for i in $(seq 40); do mkdir -p a/$i/b/c; for j in $(seq 30); do : > a/$i/f$j; done; done";
        let there = format!("{many}; mkdir -p a/40/b/c/{far}bare/worktrees");
        place.shell(&there).ends(0);
        let bare = format!("a/40/b/c/{far}bare");
        place.shell(&format!("cp -r .git/objects .git/refs .git/HEAD {bare}")).ends(0);
        let make = |config: &str| {
            format!(
                "mkdir {bare}/worktrees/w s; cp .git/HEAD {bare}/worktrees/w/; echo ../.. > {bare}/worktrees/w/commondir; \
                 echo $PWD/s/.git > {bare}/worktrees/w/gitdir; echo \"gitdir: $PWD/{bare}/worktrees/w\" > s/.git; {config}"
            )
        };
        place.clock_moves_on();
        let evil =
            format!("printf '[core]\\n\\tfsmonitor = touch obeyed; false\\n' > {bare}/config");
        let outcome = place.sh(&[], &make(&evil));
        place.shell("cd s && git status").ends(0);
        assert!(!place.project("s/obeyed").exists(), "{}", outcome.err);
        assert!(!place.project(format!("{bare}/config")).exists(), "{}", outcome.err);
        assert!(place.project("s/.git").exists(), "{}", outcome.err);
    });
}

#[test]
fn submodules_are_judged_whatever_they_are_called() {
    everywhere(|place| {
        if !prepared(place) {
            return;
        }
        for name in ["info", "objects/x", "decoy/objects/y", "a/b/c/d/e/f/g/h/i/j"] {
            // A directory that looks like a repository, on the way to it.
            let make = format!(
                "mkdir -p .git/modules/decoy/refs .git/modules/decoy/objects; cp .git/HEAD .git/modules/decoy; \
                 mkdir -p .git/modules/{name}/objects .git/modules/{name}/refs; \
                 cp .git/HEAD .git/modules/{name}/; cd .git/modules/{name}; mkdir hooks; \
                 echo true > hooks/post-checkout; printf '[core]\\n\\tfsmonitor = ./x\\n' > config"
            );
            let outcome = place.sh(&[], &make);
            let module = place.project(format!(".git/modules/{name}"));
            assert!(!module.join("config").exists(), "{name}: {}", outcome.err);
            assert!(!module.join("hooks/post-checkout").exists(), "{name}: {}", outcome.err);
            assert!(module.join("HEAD").exists(), "{name}");
        }
    });
}

/// Written by its other name in a run that holds it by a mount, it would change all the same.
#[test]
fn what_is_protected_gets_no_second_name() {
    everybody(Tier::Process, |place| {
        if !prepared(place) {
            return;
        }
        place.file("home/project/.git/hooks/pre-commit", "#!/bin/sh\n");
        place.file("home/project/.envrc", "true\n");
        place.file("home/project/two", "host's\n");
        fs::hard_link(place.project("two"), place.project(".husky-of-mine")).unwrap();
        place.clock_moves_on();
        let make = "ln .git/config a; ln .git/hooks/pre-commit b; ln .envrc c; ln two d";
        place.sh(&[], make).ends(0);
        for (own, other) in [(".git/config", "a"), (".git/hooks/pre-commit", "b"), (".envrc", "c")]
        {
            let inode = |name: &str| fs::metadata(place.project(name)).unwrap().ino();
            assert_ne!(inode(own), inode(other), "{own}");
            let text = |name: &str| fs::read(place.project(name)).unwrap();
            assert_eq!(text(own), text(other), "{own}");
        }
        // The control: what is not protected keeps its names.
        assert_eq!(fs::metadata(place.project("two")).unwrap().nlink(), 3);
    });
}

/// What leads a worktree in the project to its repository may go with it, and is what it was when it stays. Of one
/// elsewhere it is held, and so is what says where that is.
#[test]
fn a_worktree_that_was_there_is_removed_and_led_nowhere_else() {
    everywhere(|place| {
        if !prepared(place) {
            return;
        }
        place
            .shell(
                "git worktree add -q in && git worktree add -q stays && git worktree add -q ../out",
            )
            .ends(0);
        let text = |name: &str| {
            let file = place.project(format!(".git/worktrees/{name}"));
            fs::read_to_string(&file).unwrap_or_else(|why| format!("{name}: {why}"))
        };
        let names = ["stays/commondir", "out/commondir", "out/gitdir"];
        let before = names.map(text);
        assert_eq!(before[0], "../..\n", "the control");
        place.clock_moves_on();
        place
            .sh(
                &[],
                "git worktree remove in && git worktree add -q more && git worktree remove more",
            )
            .ends(0);
        assert!(!place.project("in").exists() && !place.project(".git/worktrees/in").exists());

        let lead = "mkdir -p evil; for i in stays/commondir out/commondir out/gitdir; do \
                    echo ../../../evil > .git/worktrees/$i; done";
        place.sh(&[], lead);
        assert_eq!(names.map(text), before);
        // Without one it would be a repository by itself.
        place.sh(&[], "rm .git/worktrees/*/commondir");
        assert_eq!(names.map(text), before);
        place.shell("git -C ../out status --short").ends(0);
    });
    everybody(Tier::Namespace, |place| {
        if !prepared(place) {
            return;
        }
        place.shell("git worktree add -q in && git worktree add -q ../out").ends(0);
        let write = |name: &str| place.sh(&[], &format!("echo ../.. > .git/worktrees/{name}"));
        write("in/commondir").ends(0);
        for name in ["out/commondir", "out/gitdir"] {
            let outcome = write(name);
            assert!(outcome.err.contains("Read-only file system"), "{name}: {}", outcome.err);
        }
        // What is committed of an overlay is the same.
        let apart = |script: &str| place.sh(&["--overlay=commit"], script);
        let common = || fs::read_to_string(place.project(".git/worktrees/in/commondir")).ok();
        apart("echo ../../../evil > .git/worktrees/in/commondir; echo 1 > seen");
        assert_eq!(common().as_deref(), Some("../..\n"));
        apart("rm .git/worktrees/in/commondir; echo 2 > seen");
        assert_eq!(common().as_deref(), Some("../..\n"));
        apart("git worktree remove in").ends(0);
        assert!(!place.project(".git/worktrees/in").exists());
        assert_eq!(fs::read_to_string(place.project("seen")).unwrap(), "2\n");
    });
}
