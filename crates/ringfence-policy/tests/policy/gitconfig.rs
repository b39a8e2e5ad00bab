//! Git's configuration: read as git reads it, judged by what git would run.

use proptest::prelude::*;
use ringfence_policy::gitconfig::Unread;
use ringfence_policy::gitconfig::{executes, executes_in, executes_the_same, last_value, parse};
use ringfence_policy::gitread::{LONGEST_SECTION, MOST, MOST_SETTINGS, Unknown};
use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;

/// Keys and values.
type Settings = Vec<(String, Option<String>)>;

/// What git makes of a configuration: keys and values, or nothing when it refuses. `None` when
/// there is no git to ask.
fn git(text: &[u8]) -> Option<Option<Settings>> {
    let mut child = Command::new("git")
        .args(["config", "--null", "--list", "--file", "-"])
        .env("LC_ALL", "C")
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    // Git may stop reading at an error.
    let _ = child.stdin.take()?.write_all(text);
    let output = child.wait_with_output().ok()?;
    if !output.status.success() {
        return Some(None);
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let entries = text.split_terminator('\0').map(|entry| match entry.split_once('\n') {
        Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
        None => (entry.to_owned(), None),
    });
    Some(Some(entries.collect()))
}

fn ours(text: &str) -> Option<Settings> {
    let settings = parse(text).ok()?;
    Some(settings.into_iter().map(|setting| (setting.key(), setting.value)).collect())
}

/// Git takes what is before the first dot for the section, and what is before the last one is the name's.
#[test]
fn a_key_is_judged_as_git_takes_it_apart() {
    for text in [
        "[remote.up \"stream\"]\nuploadpack = cmd\n",
        "[lfs.customtransfer \"x\"]\npath = cmd\n",
        "[tig \"bind\"]\ngeneric = q !cmd\n",
        "[gitflow \"path\"]\nhooks = x\n",
    ] {
        assert!(executes(text).is_some(), "{text}");
    }
    let directory = Path::new("/w/.git/modules/x");
    let worktree =
        |value: &str| executes_in(format!("[core]\nworktree = {value}\n"), directory, None);
    assert_eq!(worktree("../../../x"), None);
    // A relative name to git, since it begins with a form feed.
    assert!(worktree("\u{c}/w/x/../../../../../../../../elsewhere").is_some());
}

#[test]
fn the_syntax_is_gits() {
    let texts = [
        "[core]\n\tbare = false\n",
        "[Core] BARE\n",
        "[core] a = 1 ; b\n[x \"Y z\"] k=v # c",
        "[x \"a\\\"b\\\\c\"]\nk = \"q # not a comment\" # a comment",
        "[x.Sub]\nk = a\\\n  b\n",
        "[x.Sub \"Q.r\"]\nk = v\n[a.b.c]\nk = w\n",
        "[a]\nk = \u{c}v\u{c}\n",
        "[a]\u{c}k = v\n",
        "[a]\nk = \"a b\"  c   \n k2 =\n k3 = \\t\\n\\\\\\\"\n",
        "\u{feff}[a]\nk=v\r\nl=w\\\r\nx\r\n",
        "[a]k=v\n[b]\n[a]\nk=w",
        "# c\n; d\n\n[a]\n#x\nk = v;c\n",
        "[a]\nk = v\\",
        "[a]\nk = \"open\n",
        "[a]\nk = \\q\n",
        "[a\nk = v\n",
        "[a \"x]\nk=v\n",
        "[a \"x\" ]\nk=v\n",
        "[]\nk=v\n",
        "k = v\n",
        "[a]\n1k = v\n",
        "[a]\nk_x = v\n",
        "[a]\nk v\n",
        "[a b]\nk=v",
        "[a-b.c-d]\nk-l=v",
        "[a]\nk=v]\n[b]x=y",
        "[a]\n  k = a  \"  b  \"  c  \n",
        "[a \"\"]\nk=v",
        "[a.]\nk=v",
        "[a]\nk",
        "[a]\nk =",
        "[a]\nk = v # \\\nl = w\n",
        "[a]\nk = \"x\\\ny\"\n",
        "[a]\nk = v \\",
        "[a]\nk = v  \\\n\n",
        "[a]\nk = v  \\\n# l\n",
        "[a]\nk = \\\n  v\n",
        "[a]\nk = \"\"  v\n",
        "[a]\nk = \\\n  \"\" \\\n v\n",
    ];
    for text in texts {
        let Some(theirs) = git(text.as_bytes()) else { return };
        assert_eq!(ours(text), theirs, "{text:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_made_up_configuration_is_read_as_git_reads_it(
        parts in prop::collection::vec(prop_oneof![
            Just("[a]"), Just("[a \"b\"]"), Just("["), Just("]"), Just("\""), Just("\\"), Just("\n"), Just(" "),
            Just("k"), Just("="), Just("#"), Just(";"), Just("\r\n"), Just("\t"), Just("v w"), Just("\\n"), Just("-1"), Just("."), Just("\0"),
        ], 0..14),
        section in any::<bool>(),
    ) {
        let text = format!("{}{}", if section { "[s]\n" } else { "" }, parts.concat());
        if text.contains('\0') {
            prop_assert_eq!(ours(&text), None);
        } else if let Some(theirs) = git(text.as_bytes()) {
            // Git before 2.45 makes a space of a tab within a value.
            let plain = |settings: Option<Settings>| format!("{settings:?}").replace("\\t", " ");
            prop_assert_eq!(plain(ours(&text)), plain(theirs), "{:?}", text);
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,60}|[\\[\\]a\"\\\\\n#;= ]{0,60}") {
        let _ = parse(&text);
        let _ = executes(&text);
    }
}

#[test]
fn a_submodules_worktree_is_harmless_within_its_tree() {
    let text = |place: &str| format!("[core]\n\tworktree = {place}\n");
    let good = |directory: &str, place: &str, project: Option<&str>| {
        executes_in(text(place), Path::new(directory), project.map(Path::new)).is_none()
    };
    assert!(good("/w/.git/modules/lib", "../../../lib", None));
    assert!(good("/w/.git/modules/a/modules/b", "/w/a/b", None));
    assert!(good("/w/.git", "..", None) && good("/w/.git", "/w", Some("/w")));
    assert!(!good("/w/.git", "../sub", None) && !good("/w/.git", "../../v", None));
    for bad in [
        "/w",
        "/",
        "/v",
        "/w/.git/hooks",
        "/w/.git",
        "/w/sub/.git/hooks",
        "/w/.vscode",
        "/w/a/.husky/_",
    ] {
        assert!(!good("/w/.git/modules/lib", bad, Some("/w")), "{bad}");
        // Nor of a repository that is called something else, or lies in the project.
        assert!(
            !good("/w/lib.git", bad, Some("/w")) && !good("/w/sub/.git", bad, Some("/w")),
            "{bad}"
        );
    }
    assert!(!good("/w/lib.git", ".", None) && !good("/w/lib.git", "hooks", Some("/w")));
    // What agents keep elsewhere of the project.
    assert!(good("/state/x", "/w", Some("/w")) && good("/state/x/.git", "/w", Some("/w")));
    assert!(!good("/state/x", "/w/.git/hooks", Some("/w")) && !good("/state/x", "/w", None));
    assert_eq!(executes(text("../../../lib")).as_deref(), Some("core.worktree"));
}

/// All settings of a section share its name: a small file must not become a large list.
#[test]
fn what_is_held_of_a_configuration_is_no_more_than_it_has() {
    let long = "s".repeat(LONGEST_SECTION - "[x \"\"]".len());
    let text = format!("[x \"{long}\"]\n{}", "a\n".repeat(MOST_SETTINGS));
    let settings = parse(&text).unwrap();
    assert_eq!((settings.len(), settings[7].key()), (MOST_SETTINGS, format!("x.{long}.a")));
    let mut shared: HashMap<*const u8, usize> = HashMap::new();
    let mut held = 0;
    for setting in &settings {
        for name in [Some(&setting.section), setting.subsection.as_ref()].into_iter().flatten() {
            shared.insert(Rc::as_ptr(name).cast(), name.len());
        }
        held += setting.name.capacity() + setting.value.as_ref().map_or(0, String::capacity);
    }
    held += shared.values().sum::<usize>();
    // A name has a little room to grow.
    assert!(held < 8 * text.len(), "{held} of {}", text.len());
}

#[test]
fn what_is_beyond_a_bound_is_not_known() {
    let long = |length: usize| format!("[x \"{}\"]\n\ta\n", "s".repeat(length - "[x \"\"]".len()));
    let many = |number: usize| format!("[x]\n{}", "a\n".repeat(number));
    let large = |bytes: usize| "#".repeat(bytes);
    let most = MOST as usize;
    for (known, beyond, why) in [
        (long(LONGEST_SECTION), long(LONGEST_SECTION + 1), Unknown::Section),
        (many(MOST_SETTINGS), many(MOST_SETTINGS + 1), Unknown::Settings),
        (large(most), large(most + 1), Unknown::Large),
    ] {
        assert!(parse(&known).is_ok() && executes(&known).is_none(), "{why:?}");
        assert_eq!(parse(&beyond), Err(Unread::Unknown(why)));
        assert!(executes(&beyond).unwrap().starts_with("it has "), "{why:?}");
        assert!(!executes_the_same(&beyond, &beyond, Path::new("/w/.git")), "{why:?}");
    }
    // As small a file as it takes: three million bytes, and half a million names.
    let small = format!("[x \"{}\"]\n{}", "A".repeat(3_000_000), "a\n".repeat(500_000));
    assert!(small.len() < most);
    assert_eq!(parse(&small), Err(Unread::Unknown(Unknown::Section)));
}

/// To git a key ends at a zero byte, and so does a value: what stands behind it is not seen by who looks at the whole.
#[test]
fn a_zero_byte_anywhere_makes_a_configuration_one_that_is_not_known() {
    let zero = Err(Unread::Unknown(Unknown::Zero));
    for text in [
        "[core \"fsmonitor\0\"]\n\tx = ./fs\n",
        "[filter \"x.process\0y\"]\n\tx = ./fs\n",
        "[a]\n\tb = c\0\n",
        "# \0\n",
        "\0",
    ] {
        assert_eq!(parse(text), zero, "{text:?}");
        assert_eq!(executes(text).as_deref(), Some("it has a zero byte"));
        assert_eq!(parse(text.replace('\0', "")).err(), None, "the control: {text:?}");
    }
}

#[test]
fn the_last_value_counts() {
    assert_eq!(
        last_value("[core]\nhooksPath=a\n[Core]\nhookspath=b", "core", "hookspath").as_deref(),
        Some("b")
    );
    assert_eq!(last_value("[core \"x\"]\nhooksPath=a", "core", "hookspath"), None);
}

#[test]
fn a_submodules_place_may_change_within_the_tree() {
    let of = |place: &str| format!("[core]\n\tbare = false\n\tworktree = {place}\n");
    let modules = Path::new("/w/.git/modules/lib");
    let same = |before: &str, now: &str| executes_the_same(before, now, modules);
    let (inside, none) = (of("../../../lib"), "[core]\n\tbare = false\n");
    assert!(same(&inside, none) && same(none, &inside) && same(&inside, &of("../../../other")));
    let outside = of("../../../../home");
    assert!(!same(&inside, &outside) && !same(none, &outside) && !same(&outside, none));
    assert!(same(&outside, &outside));
}
