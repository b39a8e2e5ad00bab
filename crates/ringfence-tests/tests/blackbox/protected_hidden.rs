//! Where a program hides what git or an editor outside would run: in closed directories, behind names that begin
//! protected ones or are no text, and in repositories that are put together of parts.

use ringfence_tests::{Place, everywhere};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A shell's function that makes a repository whose configuration git obeys at `git status`.
const REPOSITORY: &str = "repository() { mkdir -p \"$1/objects\" \"$1/refs\" && echo 'ref: refs/heads/main' > \"$1/HEAD\" && \
     printf '[core]\\n\\trepositoryformatversion = 0\\n\\tfsmonitor = \"touch obeyed; false\"\\n' > \"$1/config\"; }; ";

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Whether `git status` in a directory of the project, outside, runs what the program wrote into a configuration.
fn git_obeys(place: &Place, directory: &str) -> bool {
    place.shell(&format!("cd '{directory}' && git status"));
    let obeyed = place.shell("find . -name obeyed -print -delete");
    !obeyed.out.is_empty()
}

/// A host's program needs only to enter a directory, to find in it what it knows by its name.
#[test]
fn what_is_in_a_directory_that_the_program_closed_is_judged() {
    everywhere(|place| {
        for closed in [0o100, 0o300, 0o400, 0o000] {
            let make = format!(
                "{REPOSITORY} repository .git; mkdir -p .cargo .github/hooks .jj/repo sub/.jj/repo; \
                 for file in .cargo/config.toml .github/hooks/h .jj/repo/config.toml \
                     sub/.jj/repo/config.toml .cargo/kept; do echo x > $file; done; \
                 chmod {closed:o} .git .cargo .github/hooks .github .jj/repo .jj sub/.jj/repo sub/.jj"
            );
            let outcome = place.sh(&[], &make);
            outcome.ends(0).says(".git/config was created").says(".cargo/config.toml was created");
            assert!(!outcome.err.contains("CANNOT"), "{closed:o}: {}", outcome.err);
            assert_eq!(mode(&place.project(".cargo")), closed);
            for name in [".git", ".cargo"] {
                set(&place.project(name), 0o700);
            }
            let left = "chmod -R u+rwx . && find . -name config -o -name config.toml -o -name h";
            assert_eq!(place.shell(left).text(), "", "{closed:o}");
            assert_eq!(fs::read_to_string(place.project(".cargo/kept")).unwrap(), "x\n");
            place.shell("rm -rf .git .cargo .github .jj sub").ends(0);
        }
    });
}

#[test]
fn what_was_there_is_put_back_in_a_directory_that_the_program_closed() {
    everywhere(|place| {
        place
            .shell("mkdir -p .git/objects .git/refs && echo 'ref: refs/heads/main' > .git/HEAD")
            .ends(0);
        let config = place.file("home/project/.git/config", "[core]\n\tbare = false\n");
        let top = place.project("");
        for (closed, what) in [("0100 .git", ".git"), ("0100 .", "."), ("0 .git; chmod 0 .", ".")] {
            place.clock_moves_on();
            let change = format!(
                "printf '[core]\\n\\tfsmonitor = ./x\\n' >> .git/config; echo x > .envrc; chmod {closed}"
            );
            place.run(&[], &["sh", "-c", &change]).says(".envrc was created");
            assert_ne!(mode(&place.project(what)) & 0o700, 0o700, "the mode is the program's");
            set(&top, 0o700);
            set(&place.project(".git"), 0o700);
            assert_eq!(fs::read_to_string(&config).unwrap(), "[core]\n\tbare = false\n");
            assert!(!place.project(".envrc").exists());
        }
    });
}

/// `.config` begins protected names, and is a directory like others.
#[test]
fn directories_that_begin_a_protected_name_are_looked_into() {
    const BEGINNINGS: &str = ".config .cargo .github .hg tools a/.yarn";
    everywhere(|place| {
        for there in [false, true] {
            if there {
                place.shell(&format!("mkdir -p {BEGINNINGS}")).ends(0);
                place.clock_moves_on();
                // Twice: the second start is of what was kept of the first.
                for _ in 0..2 {
                    assert_eq!(place.sh(&[], "true").quiet(), "");
                }
            }
            let make = format!(
                "{REPOSITORY} for name in {BEGINNINGS}; do repository $name/x/.git; \
                 echo x > $name/.envrc; mkdir $name/y; echo x > $name/y/.mcp.json; echo x > $name/y/kept; done"
            );
            place
                .sh(&[], &make)
                .ends(0)
                .says(".github/x/.git/config was created")
                .says("tools/.envrc was");
            let left = place.shell("find . -name .envrc -o -name config -o -name .mcp.json");
            assert_eq!(left.text(), "", "{there}");
            assert_eq!(place.shell("find . -name kept | wc -l").text(), "6");
            place.shell("rm -rf .config .cargo .github .hg tools a").ends(0);
        }
        // Nothing is done about what is written there otherwise.
        place.shell("mkdir -p .github/workflows tools").ends(0);
        let harmless = "echo x > .github/workflows/ci.yml; echo x > tools/x";
        assert_eq!(place.sh(&[], harmless).quiet(), "");
    });
}

/// In one that was there, below the top: a file is changed in its place, which no directory tells.
#[test]
fn what_is_changed_far_down_in_a_protected_directory_is_seen() {
    everywhere(|place| {
        let names =
            ["sub/.idea/runConfigurations/a.xml", "sub/.husky/_/h", "sub/.yarn/plugins/@y/z/p.cjs"];
        for name in names {
            place.file(format!("home/project/{name}"), "host's");
        }
        place.clock_moves_on();
        assert_eq!(place.sh(&[], "cat sub/.idea/runConfigurations/a.xml").quiet(), "host's");
        let change = format!("for name in {}; do echo x > $name; done", names.join(" "));
        let outcome = place.sh(&[], &change);
        outcome.ends(0).says("sub/.idea was").says("sub/.husky was").says("sub/.yarn/plugins was");
        assert!(!names.iter().any(|name| place.project(name).exists()));
    });
}

/// A `.git` file may lead to a worktree's directory, which is then no repository by itself; and to none in the
/// `.git` of another.
#[test]
fn a_git_file_leads_to_no_whole_repository_that_was_made_inside() {
    everywhere(|place| {
        if !place.has("git", "--version") {
            return;
        }
        let make = format!(
            "{REPOSITORY} mkdir worktree nested; \
             repository .git/worktrees/w; echo 'gitdir: ../.git/worktrees/w' > worktree/.git; \
             repository .git/x/.git/modules/m; echo 'gitdir: ../.git/x/.git/modules/m' > nested/.git"
        );
        let ways = ["worktree", "nested"];
        place.shell(&make).ends(0);
        assert!(ways.iter().all(|way| git_obeys(place, way)), "outside it works");
        place.shell("rm -rf .git worktree nested").ends(0);
        for prepare in ["true", "git init -q ."] {
            place.shell(prepare).ends(0);
            place.clock_moves_on();
            let outcome = place.sh(&[], &make);
            outcome
                .ends(0)
                .says(".git/worktrees/w/config was created")
                .says("nested/.git was created");
            assert!(!ways.iter().any(|way| git_obeys(place, way)), "{}", outcome.err);
            place.shell("rm -rf .git worktree nested").ends(0);
        }
    });
}

/// git takes objects, references and configuration of such a directory from where `commondir` says.
#[test]
fn a_repository_of_which_the_rest_is_elsewhere_is_one() {
    everywhere(|place| {
        if !place.has("git", "--version") {
            return;
        }
        let make = |rest: &str, at: &str, common: &str| {
            format!(
                "{REPOSITORY} repository {rest}; rm {rest}/HEAD; mkdir -p {at}; \
                 printf '[core]\\n\\trepositoryformatversion = 1\\n\\tfsmonitor = \"touch obeyed; false\"\\n[extensions]\\n\\tworktreeConfig = true\\n' \
                 > {rest}/config; printf '[core]\\n\\tbare = false\\n\\tworktree = %s\\n' \"$PWD\" > {at}/config.worktree; \
                 echo 'ref: refs/heads/main' > {at}/HEAD; echo {common} > {at}/commondir"
            )
        };
        // Elsewhere, and the one that a worktree is in, which has no HEAD of its own.
        for (rest, at, common) in
            [("rest", "ordinary", "../rest"), ("own", "own/worktrees/w", "../..")]
        {
            let make = make(rest, at, common);
            place.shell(&make).ends(0);
            assert!(git_obeys(place, at), "outside it works: {at}");
            place.shell(&format!("rm -rf {rest} {at}")).ends(0);
            place.sh(&[], &make).ends(0).says("was created");
            assert!(!git_obeys(place, at), "{at}");
        }
    });
}

/// A bare repository with worktrees, of the user's: what git writes there in a run is left alone.
#[test]
fn a_bare_repository_and_its_worktrees_work() {
    everywhere(|place| {
        if !place.has("git", "--version") {
            return;
        }
        let commit = "-c user.name=a -c user.email=a@b commit -q --allow-empty -m one";
        let prepare = format!(
            "git init -q x && git -C x {commit} && git clone -q --bare x bare && git -C bare worktree add -q ../tree"
        );
        place.shell(&prepare).ends(0);
        place.clock_moves_on();
        let work = format!("git -C tree {commit} && git -C tree status -s");
        assert_eq!(place.sh(&[], &work).quiet(), "");
        place.shell("git -C tree log --oneline | wc -l").ends(0).prints("2");
    });
}

/// A project whose `.git` is a file that names a bare repository beside it, with a worktree for each branch.
#[test]
fn a_repository_that_a_git_file_leads_to_is_protected_as_git_and_gets_worktrees() {
    everywhere(|place| {
        if !place.has("git", "--version") {
            return;
        }
        let commit = "-c user.name=a -c user.email=a@b commit -q --allow-empty -m one";
        let prepare = format!(
            "git init -q x && git -C x {commit} && git clone -q --bare x .bare && rm -rf x && \
             echo 'gitdir: ./.bare' > .git && git worktree add -q main"
        );
        place.shell(&prepare).ends(0);
        place.clock_moves_on();
        let before = fs::read(place.project(".bare/config")).unwrap();
        let work = format!(
            "git worktree add -q feature && git -C feature {commit} && git -C main {commit}; \
             echo ../x > .bare/hooks/pre-commit; printf '[core]\\n\\tfsmonitor = ./x\\n' >> .bare/config"
        );
        let outcome = place.sh(&[], &work);
        assert!(!outcome.err.contains("feature"), "{}", outcome.err);
        assert_eq!(fs::read(place.project(".bare/config")).unwrap(), before, "{}", outcome.err);
        assert!(!place.project(".bare/hooks/pre-commit").exists(), "{}", outcome.err);
        place.shell("git -C feature log --oneline | wc -l").ends(0).prints("2");
        // From one of them, with all of them granted.
        let work = "cd main && git worktree add -q ../other && git -C ../other log --oneline";
        assert_eq!(place.sh(&[], work).quiet().lines().count(), 2);
        place.shell("git -C other status -s").ends(0);
        // One that leads over a link, or into another repository, is none.
        let evil = "mkdir -p x/.git/r/objects x/.git/r/refs x/.git/r/worktrees/w; ln -s x/.git/r l; \
                    mkdir a b; echo 'gitdir: ../l/worktrees/w' > a/.git; \
                    echo 'gitdir: ../x/.git/r/worktrees/w' > b/.git";
        let outcome = place.sh(&[], evil);
        outcome.says("a/.git was created").says("b/.git was created");
        assert!(!place.project("a/.git").exists() && !place.project("b/.git").exists());
    });
}

/// `*` stands for any name, and a name is bytes.
#[test]
fn wildcards_find_names_that_are_no_text() {
    everywhere(|place| {
        let odd = |before: &[u8], after: &[u8]| {
            let name = [before, b"caf\xe9", after].concat();
            place.project(OsStr::from_bytes(&name))
        };
        // What the shell makes of it.
        let make = "odd=$(printf 'caf\\351'); mkdir -p \".git/worktrees/$odd\" sub; \
                    echo ../../../evil > \".git/worktrees/$odd/commondir\"; \
                    echo x > \"$odd.code-workspace\"; echo x > \"sub/$odd.bazelrc\"; echo x > \"$odd\"";
        for there in [false, true] {
            if there {
                place.clock_moves_on();
            }
            place.sh(&[], make).ends(0).says("code-workspace was created");
            assert!(odd(b"", b"").exists());
            for path in [
                odd(b".git/worktrees/", b"/commondir"),
                odd(b"", b".code-workspace"),
                odd(b"sub/", b".bazelrc"),
            ] {
                assert!(!path.exists(), "{path:?} ({there})");
            }
        }
        // Those that are there are held, or put back.
        let held = odd(b"", b".code-workspace");
        fs::write(&held, "host's").unwrap();
        place.clock_moves_on();
        place.sh(&[], "echo x > \"$(printf 'caf\\351').code-workspace\"; true").ends(0);
        assert_eq!(fs::read_to_string(&held).unwrap(), "host's");
        fs::remove_file(&held).unwrap();
    });
}

#[test]
fn a_wildcard_denies_names_that_are_no_text() {
    everywhere(|place| {
        let secrets = place.directory("home/secrets");
        fs::write(secrets.join(OsStr::from_bytes(b"caf\xe9.pem")), "secret").unwrap();
        fs::write(secrets.join("open.txt"), "readable").unwrap();
        let (secrets, pattern) = (place.text("home/secrets"), place.text("home/secrets/*.pem"));
        let read = format!("cat {secrets}/open.txt {secrets}/*.pem; true");
        place.sh(&["-r", &secrets], &read).ends(0).prints("secret");
        let outcome = place.sh(&["-r", &secrets, "--deny", &pattern], &read);
        outcome.ends(0).prints("readable");
        assert!(!outcome.text().contains("secret"), "{}", outcome.text());
    });
}
