//! Protected names where no path reaches: by relative steps a program goes deeper than a path can be long.

use ringfence_tests::{Place, everywhere};

/// Goes down so many directories of so many bytes, and leaves a repository there whose hook and settings run something.
fn script(count: usize, length: usize) -> String {
    format!(
        r#"
import os
for _ in range({count}):
    os.mkdir("d" * {length}); os.chdir("d" * {length})
os.makedirs("p/.git/hooks"); os.chdir("p")
for name in ".git/hooks/pre-commit", ".envrc", ".git/HEAD":
    open(name, "w").write("x")
"#
    )
}

/// The names that are left below the project, by steps as well.
fn left(place: &Place) -> String {
    let find = "find . -name pre-commit -o -name .envrc -o -name 'p' | sed 's:.*/::' | sort -u";
    place.shell(find).text()
}

#[test]
fn what_lies_too_deep_to_be_looked_at_is_moved_away() {
    everywhere(|place| {
        if !place.has("python3", "--version") {
            return;
        }
        for (count, length) in [(22, 200), (30, 250), (1900, 1), (2300, 1)] {
            let ran = place.run(&[], &["python3", "-c", &script(count, length)]);
            let who = format!("{:?} {:?} {count} {length}", place.person, place.tier);
            ran.ends(0).says("moved to ");
            let left = left(place);
            assert!(!left.contains("pre-commit") && !left.contains(".envrc"), "{who}: {left}");
            place.shell("rm -rf d*").ends(0);
        }
        // The control: the directories themselves, where paths reach, are the program's to make.
        let deep = "import os\nfor _ in range(15):\n os.mkdir('e' * 200); os.chdir('e' * 200)";
        let ran = place.run(&[], &["python3", "-c", deep]);
        ran.ends(0);
        assert_eq!(ran.err, "");
        assert_eq!(place.shell("find . -name 'e*' | wc -l").text(), "15");
    });
}
