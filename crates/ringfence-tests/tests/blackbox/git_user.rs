//! What the user's own configuration of git names for git to read is shown, and nothing that a program could have named.

use ringfence_tests::{Place, everywhere};
use std::os::unix::fs::symlink;

/// A repository, and a configuration of the user's in several files.
fn prepared(place: &Place) -> bool {
    if !place.has("git", "--version") {
        return false;
    }
    let config = "[user]\n\tname = Private\n\temail = p@x\n[core]\n\texcludesFile = ~/.ignored\n\
                  [commit]\n\ttemplate = ~/.template\n[include]\n\tpath = ~/.more\n\tpath = ~/absent\n\
                  [includeIf \"gitdir:/\"]\n\tpath = .work\n";
    place.file("home/.gitconfig", config);
    place.file("home/.more", "[alias]\n\tst = status -s\n[include]\n\tpath = .third\n");
    place.file("home/.third", "[alias]\n\thi = !echo hi\n");
    place.file("home/.work", "[user]\n\tname = Work\n");
    place.file("home/.ignored", ".env\n");
    place.file("home/.template", "# what and why\n");
    place.file("home/project/.env", "a secret\n");
    place.file("home/project/f", "x\n");
    place.shell("git init -q .").ends(0);
    place.clock_moves_on();
    true
}

#[test]
fn git_is_who_the_user_says_and_ignores_what_he_ignores() {
    everywhere(|place| {
        if !prepared(place) {
            return;
        }
        let act = "git st && git hi && git add -A && git commit -qm one && \
                   git log --format=%an && git ls-files && GIT_EDITOR=cat git commit --allow-empty";
        let run = place.sh(&[], act);
        let text = run.text();
        assert!(text.starts_with("?? f\nhi\nWork\nf\n# what and why"), "{text} {}", run.err);
        let why = place.ringfence(["why", "--", "read", &place.text("home/.ignored")]);
        why.ends(0).prints("core.excludesfile of ");
    });
}

#[test]
fn what_a_program_could_have_named_is_not_shown() {
    everywhere(|place| {
        if !prepared(place) {
            return;
        }
        place.file("home/.private", "[a]\n\tb = kept\n");
        place.file("home/.config/tokens/token-file", "[a]\n\tb = kept\n");
        place.directory("home/tree");
        place.file("home/tree/file", "kept");
        let named = "[include]\n\tpath = ~/.private\n[core]\n\texcludesFile = ~/.private\n";
        let read = "cat ~/.private ~/.config/tokens/token-file ~/tree/file; true";
        let shown = |what: &str| {
            place.clock_moves_on();
            place.sh(&[], read).text().contains("kept").then(|| what.to_owned())
        };
        // The control: the user's own file names it.
        place.file("home/.gitconfig", named);
        assert!(shown("named").is_some());
        // In a writable tree, by an include, and by a link to there.
        place.file("home/project/inc", named);
        place.file("home/.gitconfig", "[include]\n\tpath = ~/project/inc\n");
        assert_eq!(shown("included from the project"), None);
        std::fs::remove_file(place.at("home/.gitconfig")).unwrap();
        symlink(place.project("inc"), place.at("home/.gitconfig")).unwrap();
        assert_eq!(shown("a link into the project"), None);
        std::fs::remove_file(place.at("home/.gitconfig")).unwrap();
        // What another run left where it was at home: a link, and a file that the user's own includes.
        place.file("home/dotfiles/real", "kept");
        symlink("../.private", place.at("home/dotfiles/link")).unwrap();
        place.file("home/dotfiles/made", "[core]\n\tattributesFile = ~/.private\n");
        place.file("home/.gitconfig", "[core]\n\texcludesFile = ~/dotfiles/link\n");
        assert_eq!(shown("a link of another run's"), None);
        place.file("home/.gitconfig", "[include]\n\tpath = ~/dotfiles/made\n");
        assert_eq!(shown("named by a file of another run's"), None);
        // A link of the user's in the home is followed.
        std::fs::remove_file(place.at("home/dotfiles/link")).unwrap();
        symlink("dotfiles/real", place.at("home/.linked")).unwrap();
        place.file("home/.gitconfig", "[core]\n\texcludesFile = ~/.linked\n");
        place.clock_moves_on();
        assert!(place.sh(&[], "cat ~/.linked").text().contains("kept"));
        // A link in the project on the way, what is no file, and what is called like a secret.
        symlink(place.at("home/.private"), place.project("link")).unwrap();
        for way in ["~/project/link", "~/tree", "~/.config/tokens/token-file"] {
            place.file("home/.gitconfig", format!("[include]\n\tpath = {way}\n"));
            assert_eq!(shown(way), None);
        }
    });
}

/// What is harmless in a repository's configuration is not in the user's, which all of his repositories have.
#[test]
fn the_users_own_configuration_is_not_made_inside() {
    everywhere(|place| {
        if !prepared(place) {
            return;
        }
        let act = "git config --file made url.http://localhost/.insteadOf https://example.org/; \
                   git init -q nested; git -C nested config url.http://localhost/.insteadOf https://example.org/";
        let tries = |led: &str| {
            place.clock_moves_on();
            let run = place.sh(&[], act);
            assert!(!place.project("made").exists(), "{led}");
            run.says("/project/made was created inside and is protected");
            // The control: a repository's own.
            let kept = std::fs::read_to_string(place.project("nested/.git/config")).unwrap();
            assert!(kept.contains("insteadOf"), "{led}: {kept}");
        };
        place.file("home/.gitconfig", "[include]\n\tpath = ~/project/made\n");
        tries("by an include");
        std::fs::remove_file(place.at("home/.gitconfig")).unwrap();
        symlink("project/made", place.at("home/.gitconfig")).unwrap();
        tries("by a link");
    });
}
