//! What a script of an interpreter names as constants: the programs that it starts, the modules
//! that it imports. Read, never run; the rest is the user's to grant.

use std::collections::BTreeSet;

/// Words that stand before a command in Python, Perl, Ruby, JavaScript, PHP and Lua.
const STARTS: [&str; 14] = [
    "subprocess",
    "Popen",
    "check_output",
    "check_call",
    "run(",
    "call(",
    "system",
    "exec",
    "spawn",
    "popen",
    "which(",
    "IO.popen",
    "Open3",
    "qx",
];
/// How far behind such a word a constant is one of its: what follows is another statement.
const FAR: usize = 160;
/// The most names of either kind.
const MOST_NAMES: usize = 128;

/// The first word of each constant behind a word that starts programs, and between backquotes.
pub fn programs(script: &[u8]) -> BTreeSet<Vec<u8>> {
    let mut names = BTreeSet::new();
    for word in STARTS {
        for at in memchr::memmem::find_iter(script, word) {
            let rest = &script[at + word.len()..script.len().min(at + word.len() + FAR)];
            constants(rest, &mut names);
        }
    }
    // Perl's, Ruby's and PHP's.
    let quotes: Vec<usize> = memchr::memchr_iter(b'`', script).collect();
    names.extend(quotes.windows(2).filter_map(|pair| first_word(&script[pair[0] + 1..pair[1]])));
    names.into_iter().take(MOST_NAMES).collect()
}

/// The constants of what is left of a statement.
fn constants(rest: &[u8], names: &mut BTreeSet<Vec<u8>>) {
    let mut rest = rest;
    while let Some(open) = rest.iter().position(|byte| b"\"'({[;".contains(byte)) {
        let quote = rest[open];
        rest = &rest[open + 1..];
        // `qx{…}` and `qx(…)` have no quotes: so does the list of a call, whose constants have them.
        if b"({[".contains(&quote) {
            names.extend(first_word(rest));
        } else if quote == b';' {
            return;
        } else if let Some(close) = memchr::memchr(quote, rest) {
            names.extend(first_word(&rest[..close]));
            rest = &rest[close + 1..];
        }
    }
}

/// The first word of a command, if it can be a program's name.
fn first_word(text: &[u8]) -> Option<Vec<u8>> {
    let word = text.trim_ascii_start().split(|byte| b" \t\n\"'`|;&)}],".contains(byte)).next()?;
    let known = |byte: &u8| byte.is_ascii_alphanumeric() || b"._+-/".contains(byte);
    let plain = (2..256).contains(&word.len()) && word.iter().all(known);
    (plain && (word[0] == b'/' || !word.contains(&b'/'))).then(|| word.to_vec())
}

/// The modules that a Python script imports, by the first part of their names.
pub fn imports(script: &[u8]) -> BTreeSet<Vec<u8>> {
    let mut names = BTreeSet::new();
    for statement in script.split(|byte| matches!(byte, b'\n' | b';')) {
        let statement = statement.trim_ascii();
        let rest = statement.strip_prefix(b"import ").map(|rest| (rest, true));
        let from = || statement.strip_prefix(b"from ").map(|rest| (rest, false));
        let Some((rest, several)) = rest.or_else(from) else { continue };
        for name in rest.split(|byte| *byte == b',').take(if several { 64 } else { 1 }) {
            let known = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
            let name = name.trim_ascii_start();
            let end = name.iter().position(|byte| !known(byte)).unwrap_or(name.len());
            if (1..128).contains(&end) && names.len() < MOST_NAMES {
                names.insert(name[..end].to_vec());
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(names: BTreeSet<Vec<u8>>) -> Vec<String> {
        names.into_iter().map(|name| String::from_utf8(name).expect("text")).collect()
    }

    #[test]
    fn programs_are_named_by_constants_behind_what_starts_them() {
        let of = |text: &str| texts(programs(text.as_bytes()));
        let has = |text: &str, name: &str| {
            assert!(of(text).contains(&name.to_owned()), "{text}: {:?}", of(text))
        };
        has("subprocess.check_output([\"git\", \"--version\"])", "git");
        has("import subprocess as s\ns.run(['/usr/bin/xz', x])", "/usr/bin/xz");
        has("os.system('ls -l | wc')", "ls");
        has("print `git --version`", "git");
        has("my $v = qx{git --version};", "git");
        has("my $v = qx(git --version);", "git");
        has("open3 = Open3.capture2('git', 'log')", "git");
        has("require('child_process').execFileSync(\"git\")", "git");
        has("shutil.which('curl')", "curl");
        assert_eq!(of("print('git'); x = \"curl\""), Vec::<String>::new());
        assert_eq!(of("os.system(name); print('git')"), ["name"], "another statement's");
        assert!(!of("os.system('../x'); system('a/b')").iter().any(|name| name.contains('/')));
        for length in 0..40 {
            let _ = programs(&b"subprocess(['a', \"b`c`'\"`` qx{ system('"[..length.min(39)]);
        }
    }

    #[test]
    fn modules_are_named_by_their_first_part() {
        let text = b"import os.path, gi as g\nfrom apt_pkg import x, y\n  import json;import dbus\n#import not\nfrom . import a";
        assert_eq!(texts(imports(text)), ["apt_pkg", "dbus", "gi", "json", "os"]);
    }
}
