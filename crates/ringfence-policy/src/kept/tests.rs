use super::*;
use std::collections::BTreeMap;

const USER: u32 = 1000;
const OTHER: u32 = 1001;

/// Directories by whose they are and their modes, and links; what is not among them is not there.
fn led(
    all: &[(&str, u32, u32)],
    links: &[(&str, u32, &str)],
    path: &str,
    (home, user): (&str, u32),
) -> Option<(String, Others)> {
    let directories = all.iter().map(|(at, owner, mode)| (*at, (*owner, *mode, None)));
    let links = links.iter().map(|(at, owner, to)| (*at, (*owner, 0o777, Some(Some(to.into())))));
    let all: BTreeMap<_, _> = directories.chain(links).collect();
    let whose = |at: &Path| {
        let (owner, mode, target) = all.get(at.to_str()?)?.clone();
        Some(Looked { owner, mode, target })
    };
    let found = others(Path::new(path), Path::new(home), user, &whose);
    found.map(|(at, what)| (at.display().to_string(), what))
}

fn found(all: &[(&str, u32, u32)], path: &str, home: &str, user: u32) -> Option<(String, Others)> {
    led(all, &[], path, (home, user))
}

const STATE: &str = "/home/u/.local/state/ringfence";

#[test]
fn what_another_user_has_is_not_used() {
    let home = [("/", 0, 0o755), ("/home", 0, 0o755), ("/home/u", USER, 0o750)];
    assert_eq!(found(&home, STATE, "/home/u", USER), None);
    let roots = Some(("/home/u".to_owned(), Others::Own));
    assert_eq!(found(&home, STATE, "/home/u", 0), roots, "root, with his home");
    // A run of root's made it so.
    let made = [&home[..], &[("/home/u/.local", 0, 0o700), (STATE, 0, 0o700)]].concat();
    assert_eq!(found(&made, STATE, "/home/u", 0), roots);
    let other = [&home[..], &[("/home/u/.local", OTHER, 0o755)]].concat();
    let found = found(&other, STATE, "/home/u", USER);
    assert_eq!(found, Some(("/home/u/.local".to_owned(), Others::Own)));
}

#[test]
fn where_others_write_nothing_is_kept_unless_they_leave_each_other_what_they_have() {
    let moved = |mode: u32, owner: u32| {
        let all = [("/", 0, 0o755), ("/data", 0, mode), ("/data/ringfence", owner, 0o700)];
        found(&all, "/data/ringfence", "/home/u", USER)
    };
    assert_eq!(moved(0o755, USER), None);
    assert_eq!(moved(0o1777, USER), None, "as /tmp");
    assert_eq!(moved(0o775, USER), None, "a group of the user's own");
    assert_eq!(moved(0o777, USER), Some(("/data".to_owned(), Others::Write)));
    let other = Some(("/data/ringfence".to_owned(), Others::Own));
    assert_eq!(moved(0o1777, OTHER), other, "who was quicker");
}

/// A volume of a container's, for whoever runs in it; a directory that a project has its members' homes in.
#[test]
fn of_the_home_itself_and_what_it_lies_in_nothing_is_said() {
    let home = [("/", 0, 0o777), ("/srv", OTHER, 0o777), ("/srv/u", 0, 0o777)];
    assert_eq!(found(&home, "/srv/u/.local/state/ringfence", "/srv/u", USER), None);
    assert_eq!(found(&[("/", 0, 0o755)], "/.local/state/ringfence", "/", USER), None);
}

#[test]
fn links_are_followed_and_whose_they_are_is_looked_at() {
    let all = [
        ("/", 0, 0o755),
        ("/home", 0, 0o755),
        ("/home/u", USER, 0o700),
        ("/home/u/.local", USER, 0o755),
        ("/disk", 0, 0o755),
        ("/disk/u", USER, 0o755),
        ("/disk/other", OTHER, 0o755),
        ("/open", 0, 0o777),
    ];
    let state = "/home/u/.local/state";
    let asked = |links: &[(&str, u32, &str)]| led(&all, links, STATE, ("/home/u", USER));
    let said = |at: &str, what| Some((at.to_owned(), what));
    assert_eq!(asked(&[(state, USER, "/disk/u")]), None);
    assert_eq!(asked(&[(state, USER, "../../../disk/u/new")]), None);
    assert_eq!(asked(&[(state, OTHER, "/disk/u")]), said(state, Others::Own));
    assert_eq!(asked(&[(state, USER, "/disk/other")]), said("/disk/other", Others::Own));
    assert_eq!(asked(&[(state, USER, "../../../open/x")]), said("/open", Others::Write));
    let over_two = [(state, USER, "/disk/u/on"), ("/disk/u/on", USER, "../../open/x")];
    assert_eq!(asked(&over_two), said("/open", Others::Write));
    assert_eq!(asked(&[(state, USER, state)]), None, "to itself: no use of it comes to anything");
}

#[test]
fn a_number_that_no_user_has_here_stands_for_those_of_the_host() {
    assert!(has("         0          0 4294967295\n", 65534));
    assert!(!has("0 1000 1\n1 100000 65533\n", 65534));
    assert!(has("0 1000 1\n1 100000 65536\n", 65534));
    assert!(has("what is this", 65534), "what cannot be read says nothing");
}
