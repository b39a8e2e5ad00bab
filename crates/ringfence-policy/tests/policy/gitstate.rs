//! What git keeps for itself: what real git writes is taken for git's, and what git would believe of others is not.

use proptest::prelude::*;
use ringfence_policy::gitstate::{Bad, Content, hash_length, judge};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn of(name: &str, hash: usize, bytes: &[u8]) -> Result<(), Bad> {
    let mut read_at = |at: u64, into: &mut [u8]| {
        let from = bytes.get(at as usize..).unwrap_or_default();
        let length = from.len().min(into.len());
        into[..length].copy_from_slice(&from[..length]);
        Ok(length)
    };
    judge(Path::new(name), hash, Content { size: bytes.len() as u64, read_at: &mut read_at })
}

/// A repository in a directory of its own; `None` where there is no git.
struct Repository(PathBuf);

impl Repository {
    fn new(name: &str, init: &str) -> Option<Repository> {
        let at =
            std::env::temp_dir().join(format!("ringfence-index-{name}-{}", std::process::id()));
        fs::create_dir_all(&at).unwrap();
        let repository = Repository(at);
        repository.git(init).then_some(repository)
    }

    fn git(&self, arguments: &str) -> bool {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(arguments.split(' '));
        git.current_dir(&self.0).env("GIT_CONFIG_NOSYSTEM", "1").env("HOME", &self.0);
        git.output().is_ok_and(|output| output.status.success())
    }

    fn files(&self, count: usize) {
        for file in 0..count {
            let path = self.0.join(format!("dir{}/sub/a-longer-name-{file}.txt", file % 7));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "x").unwrap();
        }
    }

    /// All indexes that there are, and shared ones.
    fn judged(&self) -> Vec<(String, Result<(), Bad>)> {
        let config = fs::read_to_string(self.0.join(".git/config")).unwrap();
        let names = fs::read_dir(self.0.join(".git")).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let index = |name: &String| name == "index" || name.starts_with("sharedindex.");
        names
            .filter(index)
            .map(|name| {
                let bytes = fs::read(self.0.join(".git").join(&name)).unwrap();
                let judged = of(&name, hash_length(Some(&config)), &bytes);
                (name, judged)
            })
            .collect()
    }
}

impl Drop for Repository {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn each_index_that_git_writes_is_gits() {
    for (name, init) in [("sha1", "init -q"), ("sha256", "init -q --object-format=sha256")] {
        let Some(repository) = Repository::new(name, init) else { continue };
        repository.files(300);
        fs::write(repository.0.join("x".repeat(200)), "").unwrap();
        fs::write(repository.0.join("back\\slash"), "").unwrap();
        fs::write(repository.0.join("gitk\u{20ac}"), "").unwrap();
        let mut kinds = 0;
        for step in [
            "add .",
            "update-index --force-remove dir0/sub/a-longer-name-0.txt",
            "add -N dir0",
            "commit -q -am one",
            "update-index --skip-worktree dir1/sub/a-longer-name-1.txt",
            "update-index --index-version 4",
            "update-index --index-version 3",
            "-c core.untrackedCache=true status",
            "update-index --untracked-cache",
            "status",
            "update-index --fsmonitor",
            "status",
            "-c index.threads=4 -c index.recordOffsetTable=true update-index --force-write-index",
            "-c index.threads=3 -c index.version=4 update-index --index-version 4",
            "-c index.threads=5 update-index --force-write-index",
            "-c index.skipHash=true update-index --force-write-index",
            "update-index --split-index",
            "update-index --chmod=+x dir2/sub/a-longer-name-2.txt",
            "rm -q --cached dir3/sub/a-longer-name-3.txt",
            "status",
            "update-index --no-split-index",
            "commit -q -am two",
            "sparse-checkout init --cone --sparse-index",
            "sparse-checkout set dir4",
            "status",
        ] {
            // Not each git knows each of them.
            let done = repository.git(step);
            kinds += usize::from(done);
            for (index, judged) in repository.judged() {
                assert_eq!(judged, Ok(()), "{name} {step} {index}");
            }
        }
        assert!(kinds > 15, "{kinds}");
    }
}

/// An entry as git writes it.
fn entry(path: &[u8], mode: u32, version: u32, strip: u8) -> Vec<u8> {
    let mut out = vec![0; 24];
    out.extend(mode.to_be_bytes());
    out.extend([0; 12]);
    out.extend([1; 20]);
    out.extend((path.len().min(0xfff) as u16).to_be_bytes());
    if version == 4 {
        out.push(strip);
    }
    out.extend(path);
    out.push(0);
    while version < 4 && !out.len().is_multiple_of(8) {
        out.push(0);
    }
    out
}

fn index(version: u32, entries: &[Vec<u8>], extensions: &[u8]) -> Vec<u8> {
    let mut out = b"DIRC".to_vec();
    out.extend(version.to_be_bytes());
    out.extend((entries.len() as u32).to_be_bytes());
    out.extend(entries.concat());
    out.extend(extensions);
    out.extend([0; 20]);
    out
}

fn extension(name: &[u8], content: &[u8]) -> Vec<u8> {
    [name, &(content.len() as u32).to_be_bytes(), content].concat()
}

const FILE: u32 = 0o100_644;

#[test]
fn an_index_names_nothing_that_git_would_refuse() {
    for version in [2, 3, 4] {
        let one = |path: &[u8], mode| {
            of("index", 20, &index(version, &[entry(path, mode, version, 0)], b""))
        };
        assert_eq!(one(b"a/b", FILE), Ok(()));
        assert_eq!(one(b".gitmodules", FILE), Ok(()));
        for bad in [
            &b".git/hooks/post-checkout"[..],
            b"../x",
            b"/etc/x",
            b"a/.GIT/x",
            b"",
            b"a//b",
            b"git~1/x",
        ] {
            let judged = one(bad, FILE);
            assert!(
                matches!(judged, Err(Bad::Path(_))),
                "{version} {} {judged:?}",
                bad.escape_ascii()
            );
        }
        assert!(matches!(one(b".gitmodules", 0o120_000), Err(Bad::Path(_))));
    }
    // By what is kept of the name before.
    let mut second = entry(b"it", FILE, 4, 1);
    second[61] = 6;
    let together = index(4, &[entry(b"a/.gx", FILE, 4, 0), second], b"");
    assert_eq!(of("index", 20, &together), Err(Bad::Path("a/.git".to_owned())));
    // A name that git may take for a shorter or a longer one.
    let mut longer = index(2, &[entry(b"abc", FILE, 2, 0)], b"");
    longer[12 + 61] = 2;
    assert!(of("index", 20, &longer).is_err());
    longer[12 + 61] = 4;
    assert!(of("index", 20, &longer).is_err());
}

/// Each entry may add to the path of the one before: read as a whole each time, a few megabytes took minutes.
#[test]
fn paths_do_not_grow_beyond_what_can_be_made() {
    let grown = |by: usize| {
        let mut more = entry(&vec![b'b'; by], FILE, 4, 0);
        more[60..62].copy_from_slice(&0x0fff_u16.to_be_bytes());
        of("index", 20, &index(4, &[entry(&[b'a'; 4000], FILE, 4, 0), more], b""))
    };
    assert_eq!(grown(96), Ok(()));
    assert_eq!(grown(97), Err(Bad::Unreadable("its paths are too long")));
}

#[test]
fn entries_without_a_path_are_a_split_indexs() {
    let stripped = [entry(b"", FILE, 2, 0)];
    assert!(of("index", 20, &index(2, &stripped, &extension(b"link", &[7; 20]))).is_ok());
    assert!(of("index", 20, &index(2, &stripped, &extension(b"TREE", b""))).is_err());
}

#[test]
fn what_git_may_read_in_another_way_is_not_believed() {
    let entries = [entry(b"a", FILE, 2, 0), entry(b"b", FILE, 2, 0)];
    let good = index(2, &entries, &extension(b"UNKN", b"x"));
    assert_eq!(of("index", 20, &good), Ok(()));
    for bad in [
        index(1, &entries, b""),
        index(5, &entries, b""),
        index(2, &entries, &extension(b"unkn", b"")),
        index(2, &entries, b"TREE\0\0\0\x05x"),
        index(2, &entries, b"TRE"),
        good[..good.len() - 21].to_vec(),
        good[1..].to_vec(),
        Vec::new(),
    ] {
        assert!(matches!(of("index", 20, &bad), Err(Bad::Unreadable(_))));
    }
    // Of another kind of hash.
    assert!(of("index", 32, &good).is_err());
    // Where the extensions begin, and with them a table of where the entries are.
    let at = 12 + entries.concat().len() as u32;
    let table = |first: u32, counts: [u32; 2]| {
        let second = first + entries[0].len() as u32;
        let numbers = [1, first, counts[0], second, counts[1]];
        extension(b"IEOT", &numbers.map(u32::to_be_bytes).concat())
    };
    let end = |at: u32| extension(b"EOIE", &[&at.to_be_bytes()[..], &[0; 20]].concat());
    let all = |table: Vec<u8>, at| of("index", 20, &index(2, &entries, &[table, end(at)].concat()));
    assert_eq!(all(table(12, [1, 1]), at), Ok(()));
    for (table, at) in [
        (table(12, [1, 1]), at + 8),
        (table(12, [1, 1]), 12),
        (table(20, [1, 1]), at),
        (table(12, [2, 0]), at),
        (table(12, [1, 2]), at),
        (table(12, [1, 0]), at),
        (extension(b"IEOT", &[0; 7]), at),
    ] {
        assert!(all(table, at).is_err(), "{at}");
    }
}

#[test]
fn conflicts_that_were_noted_and_strategies_are_judged() {
    let hash = "0123456789abcdef0123456789abcdef01234567";
    let rerere = |text: &str| of("MERGE_RR", 0, text.as_bytes());
    assert_eq!(rerere(""), Ok(()));
    assert_eq!(rerere(&format!("{hash}\ta/b\0{hash}.2\tc d\0")), Ok(()));
    for bad in ["\t../x\0", "\t.git/config\0", "\t/etc/x", ".\t5\t../x\0", ".1x\ta\0", " a\0"] {
        assert!(rerere(&format!("{hash}\ta\0{hash}{bad}")).is_err(), "{bad}");
    }
    let options = |text: &str| of("opts", 0, text.as_bytes());
    assert_eq!(options("[options]\n\tstrategy = ort\n\tmainline = 1\n"), Ok(()));
    assert!(options("[options]\n\tstrategy = x/run\n").is_err());
    assert!(options("[options]\n\tSTRATEGY = theirs\n").is_err());
    for (name, good) in [("recursive\n", true), ("ort", true), ("../x\n", false), ("x", false)] {
        assert_eq!(of("strategy", 0, name.as_bytes()).is_ok(), good, "{name}");
    }
}

#[test]
fn a_workspace_of_jujutsu_leads_to_a_repository_whose_configuration_is_protected() {
    for (text, good) in [
        ("../../main/.jj/repo", true),
        ("/w/main/.jj/repo", true),
        ("../evil", false),
        ("../evil/.jj/repo/x", false),
        ("../evil\0/.jj/repo", false),
        ("", false),
    ] {
        assert_eq!(of("repo", 0, text.as_bytes()).is_ok(), good, "{text:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// An index of git's with a few bytes changed is read or refused, and never has a path that git refuses.
    #[test]
    fn a_changed_index_is_judged(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        version in 2_u32..5,
        cut in any::<prop::sample::Index>(),
    ) {
        let paths: [&[u8]; 4] = [b"a", b"dir/.gitignore", b"dir/git", b"long"];
        let entries = paths.map(|path| {
            let mut entry = entry(path, FILE, version, 0);
            if version == 4 { entry[62] = 0; }
            entry
        });
        let mut bytes = index(version, &entries, &extension(b"TREE", b"xyz"));
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        for name in ["index", "MERGE_RR", "opts"] {
            for hash in [20, 32] {
                let _ = of(name, hash, &bytes);
                let _ = of(name, hash, &bytes[..cut.index(bytes.len())]);
            }
        }
    }
}
