//! Programs made for the rules of loaders that hardly any installed program uses, compared with
//! what the dynamic loader says about them.
#![allow(clippy::disallowed_macros, reason = "whoever runs it reads what it says")]
#![allow(missing_docs, clippy::unwrap_used)]

mod oracle;

use oracle::{loader, ours, told};
use ringfence_learn::closure::{Finder, Surroundings};
use ringfence_learn::host::Host;
use ringfence_learn::program::{Answer, Question, libraries};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory in which libraries and programs are made.
struct Workshop {
    place: tempfile::TempDir,
}

impl Workshop {
    /// None where there is no compiler.
    fn open() -> Option<Workshop> {
        let there = Command::new("gcc").arg("--version").output().is_ok();
        if !there {
            eprintln!("left out: gcc is not installed");
        }
        there.then(|| Workshop { place: tempfile::tempdir().unwrap() })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.place.path().canonicalize().unwrap().join(name)
    }

    fn compile(&self, name: &str, source: &str, flags: &[String]) -> PathBuf {
        let path = self.at(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let text = path.with_extension("c");
        fs::write(&text, source).unwrap();
        let made =
            Command::new("gcc").arg(&text).arg("-o").arg(&path).args(flags).output().unwrap();
        assert!(made.status.success(), "{name}: {}", String::from_utf8_lossy(&made.stderr));
        fs::remove_file(text).unwrap();
        path
    }

    /// A library that needs others.
    fn library(&self, name: &str, needs: &[&Path], flags: &[&str]) -> PathBuf {
        let soname = Path::new(name).file_name().unwrap().to_str().unwrap();
        let mut all =
            vec!["-shared".to_owned(), "-fPIC".to_owned(), format!("-Wl,-soname,{soname}")];
        all.extend(linked(needs, flags));
        self.compile(name, "int of_it(void) { return 0; }\n", &all)
    }

    /// A program that needs libraries.
    fn program(&self, name: &str, needs: &[&Path], flags: &[&str]) -> PathBuf {
        self.compile(name, "int main(void) { return 0; }\n", &linked(needs, flags))
    }
}

/// Flags by which all of these are needed, used or not, with what they need left to be found.
fn linked(needs: &[&Path], flags: &[&str]) -> Vec<String> {
    let start = [
        "-Wl,--no-as-needed",
        "-Wl,--unresolved-symbols=ignore-all",
        "-Wl,--allow-shlib-undefined",
    ];
    let needs = needs.iter().map(|path| path.display().to_string());
    start.into_iter().chain(flags.iter().copied()).map(str::to_owned).chain(needs).collect()
}

/// What we find is what the loader says, variants for other processors aside.
#[track_caller]
fn agrees(program: &Path, library_path: &Path) {
    let loader = loader();
    let mut looked = |_: &Path, _| {};
    let host = Host::new(&mut looked);
    let text = library_path.as_os_str().as_bytes().to_vec();
    let surroundings = Surroundings { library_path: text, ..Surroundings::default() };
    let mut finder = Finder::new(&host, surroundings);
    let found = ours(&mut finder, &loader, program).expect("a program with libraries");
    let env: &[_] = &[("LD_LIBRARY_PATH", library_path)];
    let env = if library_path.as_os_str().is_empty() { &[][..] } else { env };
    let (paths, missing) = told(&loader, program, env).expect("the loader takes it");
    // The loader's own words keep `..` of `$ORIGIN`.
    let all: Vec<PathBuf> = found.paths.union(&found.variants).cloned().collect();
    for path in &paths {
        assert!(all.contains(path), "{} is loaded, and was not found: {all:?}", path.display());
    }
    let extra: Vec<_> = found.paths.difference(&paths).collect();
    assert!(extra.len() <= found.variants.len(), "never loaded: {extra:?}");
    assert_eq!(missing, found.missing);
}

#[test]
fn rpath_and_runpath() {
    let Some(shop) = Workshop::open() else { return };
    let none = Path::new("");
    let place = shop.at("");
    let place = place.display().to_string();
    let path = |kind: &str, of: &str| vec![format!("-Wl,-rpath,{of}"), format!("-Wl,{kind}")];
    let inner = shop.library("inner/libinner.so.1", &[], &[]);
    let middle = shop.library("middle/libmiddle.so.1", &[&inner], &[]);
    let both = format!("{place}/inner:{place}/middle");
    for kind in ["--disable-new-dtags", "--enable-new-dtags"] {
        let name = kind.trim_start_matches('-');
        // What the program says counts for what its libraries need, if it is an RPATH.
        let flags = path(kind, &both);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        agrees(&shop.program(&format!("direct-{name}"), &[&middle], &flags), none);
        // By `$ORIGIN`, in both spellings; and a directory that is not there.
        for origin in ["$ORIGIN/middle:$ORIGIN/inner", "/nowhere:${ORIGIN}/middle:${ORIGIN}/inner"]
        {
            let flags = path(kind, origin);
            let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
            agrees(&shop.program(&format!("origin-{name}"), &[&middle], &flags), none);
        }
        // A library's own counts for what it needs: the program's RUNPATH does not.
        let own = path(kind, "$ORIGIN/../inner");
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        let own = shop.library(&format!("middle/libown{name}.so.1"), &[&inner], &own);
        let flags = path("--enable-new-dtags", "$ORIGIN/middle");
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        agrees(&shop.program(&format!("own-{name}"), &[&own], &flags), none);
        // Nothing leads there: not found, by both.
        agrees(&shop.program(&format!("lost-{name}"), &[&middle], &[]), none);
        // The environment is before a RUNPATH, and after an RPATH.
        shop.library("other/libmiddle.so.1", &[], &[]);
        let flags = path(kind, &both);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        agrees(&shop.program(&format!("env-{name}"), &[&middle], &flags), &shop.at("other"));
    }
}

#[test]
fn tokens_of_the_loader() {
    let Some(shop) = Workshop::open() else { return };
    // Wherever this machine's loader looks for them.
    for (token, places) in [
        ("$LIB", ["lib/x86_64-linux-gnu", "lib64", "lib"]),
        ("${PLATFORM}", ["x86_64", "haswell", "xeon_phi"]),
    ] {
        let mut made = PathBuf::new();
        for place in places {
            made = shop.library(&format!("{place}/libtoken.so.1"), &[], &[]);
        }
        let flag = format!("-Wl,-rpath,$ORIGIN/{token}");
        agrees(&shop.program("token", &[&made], &[&flag]), Path::new(""));
    }
}

#[test]
fn variants_for_some_processors() {
    let Some(shop) = Workshop::open() else { return };
    let plain = shop.library("lib/libfast.so.1", &[], &[]);
    for level in ["x86-64-v2", "x86-64-v3", "x86-64-v4"] {
        shop.library(&format!("lib/glibc-hwcaps/{level}/libfast.so.1"), &[], &[]);
    }
    let program = shop.program("fast", &[&plain], &["-Wl,-rpath,$ORIGIN/lib"]);
    agrees(&program, Path::new(""));
    agrees(&shop.program("fast-by-environment", &[&plain], &[]), &shop.at("lib"));
    // All of them are in the set: which one is taken is decided when it starts.
    let mut looked = |_: &Path, _| {};
    let host = Host::new(&mut looked);
    let mut finder = Finder::new(&host, Surroundings::default());
    let found = ours(&mut finder, &loader(), &program).unwrap();
    assert_eq!(found.variants.len(), 3, "{found:?}");
}

#[test]
fn circles_doubles_and_programs_without_libraries() {
    let Some(shop) = Workshop::open() else { return };
    let empty = shop.library("liba.so.1", &[], &[]);
    let two = shop.library("libb.so.1", &[&empty], &[]);
    // A circle of two, and one that needs both and itself.
    let one = shop.library("liba.so.1", &[&two], &[]);
    let three = shop.library("libc2.so.1", &[&one, &two], &[]);
    let program =
        shop.program("circle", &[&one, &three], &["-Wl,--disable-new-dtags,-rpath,$ORIGIN"]);
    agrees(&program, Path::new(""));
    // The same by a name and by a path.
    let slash = shop.at("sub/../liba.so.1");
    fs::create_dir_all(shop.at("sub")).unwrap();
    let named = shop.compile(
        "libslash.so",
        "",
        &["-shared".to_owned(), "-fPIC".to_owned(), format!("-Wl,-soname,{}", slash.display())],
    );
    agrees(&shop.program("slash", &[&named], &["-Wl,-rpath,$ORIGIN"]), Path::new(""));
    let bare = shop.program("static", &[], &["-static"]);
    let mut looked = |_: &Path, _| {};
    let host = Host::new(&mut looked);
    let mut finder = Finder::new(&host, Surroundings::default());
    assert!(ours(&mut finder, &loader(), &bare).is_none());
    assert_eq!(finder.closure(&bare).unwrap().objects.len(), 1);
}

#[test]
fn musl_looks_by_its_own_rules() {
    let Some(shop) = Workshop::open() else { return };
    let inner = shop.library("lib/libinner.so.1", &[], &[]);
    let middle = shop.library("lib/libmiddle.so.1", &[&inner], &[]);
    // Its loader need not be there; what the program says of it is.
    let loader = "-Wl,--dynamic-linker,/lib/ld-musl-x86_64.so.1";
    let program =
        shop.program("musl", &[&middle], &[loader, "-Wl,-rpath,$ORIGIN/lib", "-nostdlib"]);
    let mut looked = |_: &Path, _| {};
    let host = Host::new(&mut looked);
    let mut finder = Finder::new(&host, Surroundings::default());
    let closure = finder.closure(&program).unwrap();
    let paths: Vec<&Path> = closure.objects.iter().map(|object| object.path.as_path()).collect();
    // The RUNPATH of what led to it counts for musl, where glibc does not inherit it.
    assert!(paths.contains(&inner.as_path()) && paths.contains(&middle.as_path()), "{paths:?}");
    let missing: Vec<String> = closure
        .missing
        .iter()
        .map(|(name, _)| String::from_utf8_lossy(name).into_owned())
        .collect();
    let there = Path::new("/lib/ld-musl-x86_64.so.1").exists();
    assert_eq!(missing.contains(&"/lib/ld-musl-x86_64.so.1".to_owned()), !there);
}

/// The exact set of a program.
fn exact(program: &Path) -> Answer {
    let question = Question {
        argv: vec![program.into()],
        search: vec!["/usr/bin".into()],
        workdir: "/".into(),
        home: "/nonexistent".into(),
        surroundings: Surroundings::default(),
    };
    libraries(&question, &mut |_, _| {})
}

fn has(answer: &Answer, part: &str) -> bool {
    answer.files.iter().chain(&answer.directories).any(|path| path.to_string_lossy().contains(part))
}

#[test]
fn what_is_opened_at_run_time() {
    let Some(shop) = Workshop::open() else { return };
    let flags = |more: &[&str]| more.iter().map(|flag| (*flag).to_owned()).collect::<Vec<_>>();
    let plain = exact(&shop.compile("plain", "int main(void) { return 0; }", &[]));
    let users = "#include <pwd.h>\nint main(void) { return getpwnam(\"x\") != 0; }";
    let users = exact(&shop.compile("users", users, &[]));
    let modules = fs::read_to_string("/etc/nsswitch.conf").unwrap_or_default();
    let module = modules.lines().find_map(|line| line.strip_prefix("passwd:"));
    let module = module.unwrap_or("files").split_whitespace().next().unwrap_or("files").to_owned();
    let file = format!("libnss_{module}");
    let installed = |name: &str| {
        let places = ["/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu", "/usr/lib64"];
        places
            .iter()
            .filter_map(|place| Path::new(place).read_dir().ok())
            .flatten()
            .flatten()
            .any(|entry| entry.file_name().to_string_lossy().starts_with(name))
    };
    assert_eq!(has(&users, &file), installed(&file), "{file}: {:?}", users.files);
    assert!(!has(&plain, "libnss_"), "{:?}", plain.files);
    let converts = "#include <iconv.h>\nint main(void) { return iconv_open(\"a\", \"b\") != 0; }";
    let converts = exact(&shop.compile("converts", converts, &[]));
    assert!(has(&converts, "gconv") && !has(&plain, "gconv"), "{:?}", converts.directories);
    // By its constants, if it opens libraries; and by its note, which says more.
    let opens = "#include <dlfcn.h>\nint main(void) { return dlopen(\"libz.so.1\", 1) != 0; }";
    let opens = exact(&shop.compile("opens", opens, &flags(&["-ldl"])));
    assert_eq!(has(&opens, "libz.so.1"), installed("libz.so.1"));
    let speaks = "#include <stdio.h>\nint main(void) { return puts(\"libz.so.1\"); }";
    assert!(!has(&exact(&shop.compile("speaks", speaks, &[])), "libz.so.1"));
    let json = r#"[{\"soname\":[\"libz.so.1\"],\"priority\":\"required\"}]"#;
    let length = json.replace('\\', "").len() + 1;
    let note = format!(
        "__asm__(\".pushsection .note.dlopen,\\\"a\\\",@note\\n.balign 4\\n.long 4, {length}, 0x407c0c0a\\n\
         .asciz \\\"FDO\\\"\\n.asciz \\\"{}\\\"\\n.balign 4\\n.popsection\\n\");\nint main(void) {{ return 0; }}",
        json.replace('\\', "\\\\\\")
    );
    let noted = exact(&shop.compile("noted", &note, &[]));
    assert_eq!(has(&noted, "libz.so.1"), installed("libz.so.1"), "{note}");
}
