//! Where the process tier makes its private directories: a name that anybody can take is never a
//! way to keep it from starting, nor to have it make or remove something elsewhere.

use ringfence_tests::{Finished, Person, Place, Tier, everybody};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// What a directory of dead launchers' would hold, and what others name so.
const OLD: [&str; 3] = ["2147483647-0badcafe", "2147483647-backup", "2147483647"];

/// A directory for temporary files of everybody's, as `/tmp` is.
fn shared(place: &Place) -> PathBuf {
    let shared = place.directory("shared");
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
    shared
}

/// The name in it that this person's directory has.
fn name(place: &Place) -> PathBuf {
    shared(place).join(format!("ringfence-{}", place.person.ids().0))
}

/// Says where its temporary files are, once they can be written.
const WHERE: &str = "echo x >$TMPDIR/f && echo y >$HOME/.f && echo $TMPDIR";

fn run(place: &Place) -> Finished {
    let mut command = place.ringfence_run();
    command.env("TMPDIR", shared(place)).args(["--", "sh", "-c", WHERE]);
    ringfence_tests::Running::start(command).finish()
}

fn all_below(root: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(root).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            found.append(&mut all_below(&entry.path()));
        }
        found.insert(entry.path());
    }
    found
}

/// How somebody takes the name, in words, and does it.
type Taker = (&'static str, Box<dyn Fn(&Path)>);

/// What somebody else may put at the name.
fn takers(place: &Place) -> Vec<Taker> {
    let kept = place.directory("outside/kept");
    for old in OLD {
        place.file(format!("outside/kept/{old}/file"), "a year's work");
    }
    let mut takers: Vec<Taker> = vec![
        ("a file", Box::new(|name| fs::write(name, "").unwrap())),
        ("a link", Box::new(move |name| symlink(&kept, name).unwrap())),
        ("a link to nothing", Box::new(|name| symlink("nothing", name).unwrap())),
    ];
    if place.person == Person::Root {
        let theirs = |mode: u32| {
            move |name: &Path| {
                fs::create_dir(name).unwrap();
                for old in OLD {
                    fs::create_dir(name.join(old)).unwrap();
                }
                fs::set_permissions(name, fs::Permissions::from_mode(mode)).unwrap();
                Person::Ordinary.owns(name);
            }
        };
        takers.push(("a closed directory", Box::new(theirs(0o700))));
        takers.push(("an open directory", Box::new(theirs(0o777))));
    }
    takers
}

fn clear(name: &Path) {
    let _ = fs::remove_file(name);
    let _ = fs::remove_dir_all(name);
}

#[test]
fn a_name_that_somebody_took_keeps_nobody_from_starting() {
    everybody(Tier::Process, |place| {
        let name = name(place);
        let usual = run(place);
        assert!(
            Path::new(&usual.ends(0).text()).starts_with(&name),
            "the control: {}",
            usual.text()
        );
        assert!(!name.exists(), "the last one out takes it along");
        for (what, take) in takers(place) {
            take(&name);
            let before = (all_below(&place.at("outside")), all_below(&shared(place)));
            // With the plan that was compiled for the usual place, anew, and as compiled then.
            for attempt in 0..3 {
                place.clock_moves_on();
                let ended = run(place);
                ended.ends(0);
                let own = place.at("home/.local/state/ringfence");
                assert!(Path::new(&ended.quiet()).starts_with(&own), "{what}: {}", ended.text());
                let after = (all_below(&place.at("outside")), all_below(&shared(place)));
                assert_eq!(before, after, "{what}, {attempt}");
                assert!(!own.join(name.file_name().unwrap()).exists(), "{what}, {attempt}");
            }
            clear(&name);
        }
        run(place).ends(0);
    });
}

#[test]
fn a_place_that_takes_nothing_has_another_in_its_stead() {
    everybody(Tier::Process, |place| {
        // The name is free, and can be made by nobody: found out by the launch alone.
        let run = || {
            let mut command = place.ringfence_run();
            command.env("TMPDIR", "/proc").args(["--", "sh", "-c", WHERE]);
            ringfence_tests::Running::start(command).finish()
        };
        let ended = run();
        let own = place.at("home/.local/state/ringfence");
        assert!(Path::new(&ended.ends(0).quiet()).starts_with(&own), "{}", ended.text());
        // Without a home that is the user's alone there is none, and it is said.
        fs::set_permissions(place.at("home"), fs::Permissions::from_mode(0o777)).unwrap();
        fs::remove_dir_all(place.at("home/.local")).unwrap();
        run()
            .ends(125)
            .says("cannot make a private directory (TMPDIR names another place for it) in /proc/");
    });
}

#[test]
fn a_link_on_the_way_to_it_keeps_nothing_from_being_written() {
    everybody(Tier::Process, |place| {
        place.directory("real");
        place.link("linked", "real");
        let mut command = place.ringfence_run();
        command.env("TMPDIR", place.at("linked")).args(["--", "sh", "-c", WHERE]);
        let ended = ringfence_tests::Running::start(command).finish();
        assert!(ended.ends(0).text().starts_with(&place.text("linked")), "{}", ended.text());
        assert_eq!(all_below(&place.at("real")), BTreeSet::new());
    });
}

#[test]
fn what_the_command_closed_in_its_private_directories_is_removed_with_them() {
    everybody(Tier::Process, |place| {
        let act = "mkdir -p $TMPDIR/a/b/c ~/q/w && touch $TMPDIR/a/b/c/file ~/q/w/file && \
                   chmod 0 $TMPDIR/a/b && chmod 0500 ~/q && chmod 0 $TMPDIR && echo done";
        assert_eq!(place.sh(&[], act).well(), "done");
        let left: Vec<_> = fs::read_dir(place.at("tmp")).unwrap().flatten().collect();
        assert!(left.is_empty(), "{left:?}");
    });
}

/// As those have it who keep their dotfiles in one directory: what is granted has the name of the link as well, and what
/// is written beside it is the private home's.
#[test]
fn what_is_granted_through_a_link_has_the_links_name_in_the_private_home() {
    everybody(Tier::Process, |place| {
        for name in ["home/dots/config/git", "home/dots/agent", "outside/state"] {
            place.directory(name);
        }
        place.file("home/dots/gitconfig", "[user]\n\tname = Ada\n");
        place.file("home/dots/config/git/ignore", "ignored\n");
        place.file("home/dots/config/other", "hidden\n");
        place.file("home/dots/agent/login", "login\n");
        place.file("outside/state/file", "state\n");
        for (target, link) in [
            ("dots/gitconfig", ".gitconfig"),
            ("dots/config", ".config"),
            ("dots/agent", ".agent"),
            ("../outside/state", ".second"),
            (".second", ".state"),
        ] {
            symlink(target, place.at("home").join(link)).unwrap();
        }
        let (agent, state) = (place.text("home/.agent"), place.text("home/.state"));
        let options = ["--write", agent.as_str(), "--read", state.as_str()];
        let act = "cd; cat .gitconfig .config/git/ignore .agent/login .state/file; \
                   echo new >.agent/new; echo mine >.config/mine && cat .config/mine; \
                   cat .config/other; echo no >.state/no";
        let run = place.sh(&options, act);
        let wanted = "[user]\n\tname = Ada\nignored\nlogin\nstate\nmine";
        assert_eq!(run.text(), wanted, "{}", run.err);
        assert_eq!(fs::read_to_string(place.at("home/dots/agent/new")).unwrap(), "new\n");
        for kept in ["home/dots/config/mine", "outside/state/no"] {
            assert!(!place.at(kept).exists(), "{kept}");
        }
    });
}

/// An empty `TMPDIR` would be the directory of the run, and another place after each `cd`.
#[test]
fn a_name_that_means_another_place_in_each_directory_is_none() {
    everybody(Tier::Process, |place| {
        for said in ["", "tmp", "../tmp"] {
            let mut command = place.ringfence_run();
            command.env("TMPDIR", said).args([
                "--",
                "sh",
                "-c",
                "cd / && echo x >$HOME/.f && echo $HOME; ls -A $OLDPWD",
            ]);
            let ran = ringfence_tests::Running::start(command).finish();
            let home = ran.ends(0).well();
            assert!(home.starts_with('/') && !home.contains('\n'), "{said:?}: {home}");
        }
    });
}

/// Makes more levels than there are descriptors, and closes one to its own user, far down.
const NESTED: &str = "import os; os.chdir(os.environ['TMPDIR'])\n\
                      for name in ['a', 'b', '1', '2']: os.mkdir(name); open(name + '/file', 'w')\n\
                      os.symlink('/', 'root'); os.chdir('b')\n\
                      for level in range(600):\n    os.mkdir('d'); os.chdir('d'); open('file', 'w'); os.mkdir('e')\n\
                      for level in range(300): os.chdir('..')\n\
                      os.chmod('d', 0); print(os.environ['TMPDIR'])";

#[test]
fn a_directory_that_is_deep_or_closed_goes_with_the_run() {
    everybody(Tier::Process, |place| {
        place.file("home/project/nested.py", NESTED);
        let shared = shared(place);
        let script = format!("ulimit -n 200; TMPDIR={} $RF -- python3 nested.py", shared.display());
        let private = place.shell(&script).ends(0).text();
        assert!(Path::new(&private).starts_with(&shared), "the control: it was there: {private}");
        assert_eq!(all_below(&shared), BTreeSet::new());
    });
}

/// In the project it is in a writable tree: what it begins with is nothing that was made inside, and what is made there is
/// gone with it.
#[test]
fn a_place_in_the_project_is_not_taken_for_something_made_inside() {
    everybody(Tier::Process, |place| {
        place.program("home/.local/bin/tool", "#!/bin/sh\necho tool\n");
        let tmp = place.directory("home/project/tmp");
        let options = ["--read", &place.text("home/.local/bin")];
        let mut command = place.ringfence_run();
        command.env("TMPDIR", &tmp).args(options);
        command.args(["--", "sh", "-c", "~/.local/bin/tool; echo x > ~/.bashrc"]);
        let ran = ringfence_tests::Running::start(command).finish();
        ran.ends(0).prints("tool");
        assert!(!ran.err.contains("protected"), "{}", ran.err);
        assert_eq!(fs::read_dir(&tmp).unwrap().count(), 0);
        // The control: beside it, it is.
        let mut command = place.ringfence_run();
        command.env("TMPDIR", &tmp).args(["--", "sh", "-c", "echo x > tmp/.envrc"]);
        let ran = ringfence_tests::Running::start(command).finish();
        ran.ends(0).says("tmp/.envrc was created");
    });
}
