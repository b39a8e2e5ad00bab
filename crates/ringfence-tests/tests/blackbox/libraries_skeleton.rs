//! `--libs exact` by an overlay: its skeleton is made whole, is never believed, and is nobody's but the user's.

use ringfence_tests::{Finished, Person, Place, Running, Tier, everybody, left_out};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

const KEPT: &str = "home/.local/state/ringfence/skeletons";

/// Enough of a closure, what it shows, and whether an overlay shows it.
const SEE: &str = "git --version; cd /usr/lib; find . ./*-linux-gnu -maxdepth 1 | sort -u; cd; \
                   cat /usr/lib/*-linux-gnu/libc.so.6 | cksum; \
                   grep -c ' /usr/lib .* overlay ' /proc/self/mountinfo";

fn see(place: &Place) -> Finished {
    place.sh(&["--libs", "exact"], SEE)
}

/// The skeletons that are kept.
fn kept(place: &Place) -> Vec<PathBuf> {
    let entries = fs::read_dir(place.at(KEPT)).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Whether this machine's kernel and programs are such that an overlay is to be used; then it is.
fn serves(place: &Place) -> bool {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let release = read("/proc/sys/kernel/osrelease");
    let mut parts = release.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    let can = version >= (6, 16) && read("/proc/filesystems").contains("\toverlay\n");
    if !can || !place.has("git", "--version") {
        left_out("skeletons", "no overlays of Linux 6.16, or no git");
        return false;
    }
    let seen = see(place);
    assert!(seen.text().ends_with("\n1"), "{}\n{}", seen.text(), seen.err);
    true
}

/// Without the line that says by what.
fn shown(finished: &Finished) -> String {
    finished.text().rsplit_once('\n').unwrap().0.to_owned()
}

#[test]
fn an_overlay_shows_what_mounts_would() {
    everybody(Tier::Namespace, |place| {
        if !serves(place) {
            return;
        }
        let by_overlay = see(place);
        // Where the skeleton could be changed by others, it is not used.
        fs::remove_dir_all(place.at(KEPT)).unwrap();
        let state = place.at("home/.local/state/ringfence");
        fs::set_permissions(&state, fs::Permissions::from_mode(0o777)).unwrap();
        let by_mounts = see(place);
        assert!(by_mounts.text().ends_with("\n0"), "{}", by_mounts.text());
        assert_eq!(shown(&by_overlay), shown(&by_mounts));
        assert!(!place.at(KEPT).exists());
        let outside = place.shell("cat /usr/lib/*-linux-gnu/libc.so.6 | cksum").well();
        assert!(by_overlay.text().contains(&outside));
    });
}

#[test]
fn what_it_shows_is_as_the_host_has_it_and_cannot_be_changed() {
    everybody(Tier::Namespace, |place| {
        if !serves(place) {
            return;
        }
        let look = "stat -c '%a %s %Y %F' -L /usr/lib/*-linux-gnu/libc.so.6 /usr/lib/*-linux-gnu/libz.so.1";
        let outside = place.shell(look).well();
        let change = format!(
            "git --version; cd /usr/lib/*-linux-gnu && for f in libc.so.6 libz.so.1; do
                 rm $f; mv $f away; true >> $f; chmod 777 $f; ln -f /bin/sh $f; touch -d 2000-01-01 $f
             done; mkdir new; setfattr -n user.overlay.redirect -v /etc/passwd libc.so.6
             ls ~/.local/state/ringfence
             names() {{ ls /usr/lib /usr/lib/*-linux-gnu /proc/self/root/usr/lib | cksum; }}; before=$(names)
             umount /usr/lib; umount -l /usr/lib; mount --bind /usr /tmp; unshare -Urm umount /usr/lib
             [ \"$before\" = \"$(names)\" ] && {look}"
        );
        for _ in 0..2 {
            let ended = place.sh(&["--libs", "exact", "-w", &place.text("home")], &change);
            let text = ended.text();
            assert_eq!(text.lines().skip(1).collect::<Vec<_>>().join("\n"), outside);
            assert!(ended.err.matches("Read-only file system").count() >= 10, "{}", ended.err);
            assert!(ended.err.contains("ringfence'"), "{}", ended.err);
        }
        assert_eq!(place.shell(look).well(), outside);
    });
}

/// A library of the skeleton.
fn library(skeleton: &Path) -> PathBuf {
    let machine = fs::read_dir(skeleton).unwrap().flatten().map(|entry| entry.path());
    let machine = machine.into_iter().find(|path| path.join("libc.so.6").is_file());
    machine.unwrap().join("libc.so.6")
}

/// What is done to a library of a skeleton.
type Harm<'a> = (&'a str, &'a dyn Fn(&Path));

#[test]
fn a_skeleton_that_is_not_as_it_was_is_made_anew() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    if !serves(place) {
        return;
    }
    let whole = see(place).text();
    let has_tools = place.has("setfattr", "--version");
    let attribute = |path: &Path, words: &str| {
        place.shell(&format!("setfattr {words} {}", path.display())).ends(0);
    };
    let harms: [Harm; 10] = [
        ("a library is gone", &|path| fs::remove_file(path).unwrap()),
        ("another name", &|path| fs::write(path.with_file_name("libevil.so"), "x").unwrap()),
        ("another name above", &|path| {
            fs::create_dir(path.parent().unwrap().parent().unwrap().join("evil")).unwrap();
        }),
        ("a file of somebody's own", &|path| {
            fs::remove_file(path).unwrap();
            fs::copy("/bin/true", path).unwrap();
        }),
        ("a link in a library's place", &|path| {
            fs::remove_file(path).unwrap();
            symlink("/tmp/evil", path).unwrap();
        }),
        ("another mode", &|path| {
            fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
        }),
        ("a library that is another one", &|path| {
            if has_tools {
                attribute(path, "-n user.overlay.redirect -v /os-release");
            }
        }),
        ("a library without attributes, as after a restored backup", &|path| {
            if has_tools {
                attribute(path, "-x user.overlay.metacopy");
            }
        }),
        ("an opaque directory", &|path| {
            if has_tools {
                attribute(path.parent().unwrap(), "-n user.overlay.opaque -v y");
            }
        }),
        ("a link in the skeleton's place", &|path| {
            let skeleton = path.parent().unwrap().parent().unwrap();
            let away = place.at("home/away");
            fs::rename(skeleton, &away).unwrap();
            symlink(&away, skeleton).unwrap();
        }),
    ];
    for (what, harm) in harms {
        let all = kept(place);
        assert_eq!(all.len(), 1, "{what}: {all:?}");
        // As the user, whose the files have to be.
        harm(&library(&all[0]));
        place.shell(&format!(
            "chown -hR --reference={} {}",
            place.text("home"),
            place.text("home")
        ));
        // A plan that was kept may not know of what a mere look at names does not show.
        let _ = fs::remove_dir_all(place.at("home/.cache/ringfence"));
        assert_eq!(see(place).text(), whole, "{what}");
        assert_eq!(see(place).text(), whole, "{what}");
        let away = place.at("home/away");
        if away.exists() {
            assert!(away.join("git-core").is_dir(), "what a link led to is left alone");
            fs::remove_dir_all(away).unwrap();
        }
    }
}

#[test]
fn a_kept_plan_knows_a_name_that_came_or_went() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    if !serves(place) {
        return;
    }
    place.clock_moves_on();
    let whole = see(place).text();
    let traced = || {
        let mut command = place.ringfence_run();
        command.env("RINGFENCE_TRACE_LAUNCH", "2").args(["--libs", "exact", "--", "sh", "-c", SEE]);
        let ended = Running::start(command).finish();
        (ended.text(), ended.err.lines().any(|line| line.ends_with(" resumed")))
    };
    assert!((0..20).any(|_| traced().1), "a plan is used again");
    for harm in [
        &|path: &Path| fs::remove_file(path).unwrap(),
        &|path: &Path| fs::write(path.with_file_name("libevil.so"), "x").unwrap(),
        &|path: &Path| fs::remove_dir_all(path.parent().unwrap().parent().unwrap()).unwrap(),
    ] as [&dyn Fn(&Path); 3]
    {
        assert!((0..20).any(|_| traced() == (whole.clone(), true)), "a plan is used again");
        harm(&library(&kept(place)[0]));
        assert_eq!(traced(), (whole.clone(), false));
    }
}

#[test]
fn starts_at_once_share_one_and_what_killed_ones_left_goes() {
    everybody(Tier::Namespace, |place| {
        if !serves(place) {
            return;
        }
        let whole = see(place).text();
        let all = kept(place);
        fs::remove_dir_all(place.at("home/.cache/ringfence")).unwrap();
        fs::remove_dir_all(&all[0]).unwrap();
        // By a process that is gone, and by one that lives.
        let mut gone = place.command("true").spawn().unwrap();
        gone.wait().unwrap();
        for (what, pid) in [("new", gone.id()), ("old", gone.id()), ("new", std::process::id())] {
            place.directory(format!("{KEPT}/.{what}-{pid}-00000000/x86_64-linux-gnu"));
        }
        let running: Vec<Running> =
            (0..8).map(|_| place.start(&["--libs", "exact"], &["sh", "-c", SEE])).collect();
        for one in running {
            assert_eq!(one.finish().text(), whole);
        }
        let mut names: Vec<String> = kept(place)
            .iter()
            .map(|path| path.file_name().unwrap().display().to_string())
            .collect();
        names.sort();
        assert_eq!(names.len(), 2, "{names:?}");
        assert!(names[0].starts_with(&format!(".new-{}-", std::process::id())), "{names:?}");
        assert_eq!(names[1], all[0].file_name().unwrap().display().to_string());
    });
}

#[test]
fn one_that_is_in_use_is_kept_and_others_are_few() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    if !serves(place) {
        return;
    }
    let used = kept(place).remove(0);
    place.shell("mkfifo go").ends(0);
    let script = format!("echo ready; read line < go; {SEE}");
    let mut running = place.start(&["--libs", "exact"], &["sh", "-c", &script]);
    running.printed("ready");
    // Older than all others.
    let old = place.shell(&format!("touch -d 2000-01-01 {}", used.display()));
    old.ends(0);
    for number in 0..70 {
        place.directory(format!("{KEPT}/{number:032}"));
    }
    // Another closure.
    place.sh(&["--libs", "exact"], "curl --version; git --version; python3 --version").ends(0);
    let left = kept(place);
    assert!(left.len() < 45, "{}", left.len());
    assert!(used.metadata().is_ok_and(|data| data.is_dir() && data.mode() & 0o777 == 0o755));
    place.shell("echo > go").ends(0);
    assert!(running.finish().text().ends_with("\n1"));
}

#[test]
fn where_none_can_be_made_libraries_are_mounted_one_by_one() {
    everybody(Tier::Namespace, |place| {
        if !serves(place) {
            return;
        }
        let whole = see(place);
        // No file as long as a library may be made; no directory may; no home is known.
        for limit in
            ["ulimit -f 1000", "rm -rf ~/.local/state && touch ~/.local/state", "unset HOME"]
        {
            let (state, cache) = (place.text("home/s"), place.text("home/c"));
            let script = format!(
                "{limit}; export XDG_CACHE_HOME={cache}; case '{limit}' in ulimit*) export XDG_STATE_HOME={state};; esac
                 $RF --libs exact -- sh -c '{}'",
                SEE.replace('\'', "'\\''")
            );
            let ended = place.shell(&script);
            assert!(ended.text().ends_with("\n0"), "{limit}: {} {}", ended.text(), ended.err);
            assert_eq!(shown(&ended), shown(&whole), "{limit}");
            let _ = fs::remove_dir_all(place.at("home/c"));
        }
    });
}

#[test]
fn writes_are_kept_apart_also_where_the_run_is_planned_again() {
    everybody(Tier::Namespace, |place| {
        if !serves(place) {
            return;
        }
        let project = place.at("home/project");
        // Of no use to anybody: layers are the session's.
        for name in ["upper", "work"] {
            place.directory(project.join(name));
        }
        fs::remove_dir_all(place.at(KEPT)).unwrap();
        place.file(KEPT, "");
        let script = format!("echo new > f && cat f; {SEE}");
        let see = |kept: &str| {
            let run =
                format!("cd {} && $RF --overlay={kept} --libs exact -- sh -c ", project.display());
            place.shell(&format!("{run}'{}'", script.replace('\'', "'\\''")))
        };
        let ended = see("discard");
        let text = ended.text();
        assert!(text.starts_with("new\n") && text.ends_with("\n0"), "{text} {}", ended.err);
        let upper = fs::read_dir(project.join("upper")).unwrap().count();
        assert_eq!((upper, project.join("f").exists()), (0, false));
        // The same write arrives where it is to.
        let ended = see("commit");
        let text = ended.text();
        assert!(text.starts_with("new\n") && text.ends_with("\n0"), "{text} {}", ended.err);
        assert_eq!(fs::read_to_string(project.join("f")).unwrap(), "new\n");
    });
}

#[test]
fn one_that_is_replaced_stays_whole_to_who_uses_it() {
    let place = &Place::new(Person::Ordinary, Tier::Namespace);
    if !serves(place) {
        return;
    }
    let used = kept(place).remove(0);
    let inode = used.metadata().unwrap().ino();
    place.shell("mkfifo go").ends(0);
    let script = format!("echo ready; read line < go; {SEE}");
    let mut running = place.start(&["--libs", "exact"], &["sh", "-c", &script]);
    running.printed("ready");
    // It is not as it was: another takes its place, and whoever uses it keeps it whole.
    fs::write(used.join("evil"), "").unwrap();
    assert!(see(place).text().ends_with("\n1"));
    assert_ne!(used.metadata().unwrap().ino(), inode);
    assert_eq!(kept(place).len(), 2, "the one in use is beside it");
    place.shell("echo > go").ends(0);
    let ended = running.finish();
    assert!(ended.text().ends_with("\n1") && ended.text().contains("git version"), "{}", ended.err);
    // It goes with the next that is made.
    place.sh(&["--libs", "exact"], "curl --version; git --version; python3 --version").ends(0);
    let left = kept(place);
    assert!(!left.iter().any(|path| path.display().to_string().contains("/.old-")), "{left:?}");
}
