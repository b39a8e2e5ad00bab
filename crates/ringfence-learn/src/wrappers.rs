//! Commands that start the one that their arguments say: as words, or as text for a shell.

use crate::shell;
use crate::words::{Variables, Word};

/// How the arguments of one are read.
struct Wrapper {
    names: &'static [&'static str],
    /// Options of one letter that take a value.
    short: &'static str,
    /// Long options that take a value which may be the next word.
    long: &'static [&'static str],
    /// How many operands come before the command.
    operands: usize,
    takes: Takes,
}

/// What is started.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    /// The words behind.
    Words,
    /// The same, or text behind `-c` or `--command`, wherever that stands.
    Command,
    /// Text behind `-c` or `--command` alone.
    Text,
    /// The words behind, some of them from `-S` or `--split-string`.
    Split,
    /// The words behind, together text for a shell.
    Joined,
}

/// What such a command starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Starts {
    /// A program and its arguments.
    Words(Vec<Word>),
    /// Text for a shell.
    Text(Word),
}

const fn words(
    names: &'static [&'static str],
    short: &'static str,
    long: &'static [&'static str],
    operands: usize,
) -> Wrapper {
    Wrapper { names, short, long, operands, takes: Takes::Words }
}

const WRAPPERS: [Wrapper; 33] = [
    Wrapper {
        names: &["env"],
        short: "uCa",
        long: &["unset", "chdir", "argv0"],
        operands: 0,
        takes: Takes::Split,
    },
    words(&["nice"], "n", &["adjustment"], 0),
    words(&["nohup", "setsid", "unbuffer", "chronic", "entr", "valgrind", "eatmydata"], "", &[], 0),
    words(
        &["command", "builtin", "catchsegv", "ccache", "distcc", "sccache", "cross-env"],
        "",
        &[],
        0,
    ),
    // It has the loader tell what the program would load: that must be there.
    words(&["ldd"], "", &[], 0),
    words(
        &["ld.so"],
        "",
        &[
            "library-path",
            "preload",
            "argv0",
            "inhibit-rpath",
            "audit",
            "glibc-hwcaps-prepend",
            "glibc-hwcaps-mask",
        ],
        0,
    ),
    // `set -- git …; "$@"`: what it makes the arguments may be started.
    words(&["set"], "o", &[], 0),
    words(&["exec"], "a", &[], 0),
    words(&["stdbuf"], "ioe", &["input", "output", "error"], 0),
    words(&["time"], "fo", &["format", "output"], 0),
    words(&["ionice"], "cnp", &["class", "classdata", "pid"], 0),
    words(&["timeout"], "ks", &["kill-after", "signal"], 1),
    words(
        &["xargs"],
        "adEILnPs",
        &["arg-file", "delimiter", "max-args", "max-chars", "max-procs", "process-slot-var"],
        0,
    ),
    words(&["sudo", "doas"], "ugCDhpRrTtU", &["user", "group", "chdir", "host", "prompt"], 0),
    words(&["chrt"], "TPD", &["sched-runtime", "sched-period", "sched-deadline"], 1),
    words(&["taskset"], "", &[], 1),
    words(&["prlimit"], "po", &["pid", "output"], 0),
    words(&["setarch"], "", &[], 1),
    words(&["linux32", "linux64", "i386", "x86_64"], "", &[], 0),
    words(&["choom"], "np", &["adjust", "pid"], 0),
    words(&["fakeroot"], "lsib", &["lib", "faked"], 0),
    words(&["strace"], "abeEIoOpPsSuUX", &["output", "trace", "env", "user", "attach"], 0),
    words(&["unshare"], "RwSG", &["root", "wd", "setuid", "setgid", "propagation", "setgroups"], 0),
    words(&["nsenter"], "tSG", &["target", "setuid", "setgid"], 0),
    words(
        &["setpriv"],
        "",
        &[
            "ruid",
            "euid",
            "reuid",
            "rgid",
            "egid",
            "regid",
            "groups",
            "inh-caps",
            "ambient-caps",
            "bounding-set",
            "securebits",
            "pdeathsig",
            "selinux-label",
            "apparmor-profile",
        ],
        0,
    ),
    words(
        &["xvfb-run"],
        "efnpsw",
        &["auth-file", "error-file", "server-num", "server-args", "xauth-protocol", "wait"],
        0,
    ),
    words(&["dbus-run-session"], "", &["config-file", "dbus-daemon"], 0),
    words(&["tini", "dumb-init"], "per", &[], 0),
    words(&["gosu", "su-exec", "faketime"], "", &[], 1),
    words(&["parallel"], "jIN", &["jobs", "max-args", "max-procs"], 0),
    Wrapper {
        names: &["flock"],
        short: "wE",
        long: &["wait", "timeout", "conflict-exit-code"],
        operands: 1,
        takes: Takes::Command,
    },
    Wrapper {
        names: &["script"],
        short: "IOBTmEo",
        long: &[
            "log-in",
            "log-out",
            "log-io",
            "log-timing",
            "logging-format",
            "echo",
            "output-limit",
        ],
        operands: 1,
        takes: Takes::Text,
    },
    Wrapper {
        names: &["watch"],
        short: "n",
        long: &["interval"],
        operands: 0,
        takes: Takes::Joined,
    },
];

/// What a command of this name starts, by its arguments; nothing for one that starts none.
pub fn starts(name: &str, arguments: &[Word]) -> Option<Starts> {
    // Without an architecture, before its options.
    let option = |word: &Word| matches!(word.values(), [only] if only.starts_with(b"-"));
    let bare = name == "setarch" && arguments.first().is_some_and(option);
    let name = if bare { "linux64" } else { name };
    // The loader has a name for each machine, and one for each C library.
    let loader = name.starts_with("ld-linux") || name.starts_with("ld-musl-");
    let name = if loader { "ld.so" } else { name };
    // Each command of each script is held against all: most differ in the first letter.
    let initial = name.bytes().next();
    let is = |known: &&str| known.bytes().next() == initial && *known == name;
    let wrapper = WRAPPERS.iter().find(|wrapper| wrapper.names.iter().any(is))?;
    Some(wrapper.read(arguments, 0))
}

/// How often one word is split into more.
const MOST_SPLIT: usize = 4;

impl Wrapper {
    fn read(&self, arguments: &[Word], split: usize) -> Starts {
        let mut rest = arguments;
        let mut operands = self.operands;
        while let Some((first, after)) = rest.split_first() {
            let Some(word) = first.constant() else {
                // Of `env A=$B git` it is known that it is no command, of `env $A git` it is not: both are looked for.
                if self.takes == Takes::Split && operands == 0 && !after.is_empty() {
                    rest = after;
                    continue;
                }
                break;
            };
            let assignment = word.contains(&b'=') && !word.starts_with(b"/");
            if word == b"--" {
                rest = after;
                break;
            } else if word.starts_with(b"-") && word.len() > 1 {
                let (value, behind) = self.option(&word, after);
                if let Some(value) = value {
                    return match self.takes {
                        Takes::Split if split < MOST_SPLIT => {
                            self.read(&[parts(&value), behind.to_vec()].concat(), split + 1)
                        }
                        Takes::Split => Starts::Words(Vec::new()),
                        _ => Starts::Text(value),
                    };
                }
                rest = behind;
            } else if assignment && operands == 0 {
                rest = after;
            } else if operands > 0 {
                operands -= 1;
                rest = after;
            } else {
                break;
            }
        }
        match self.takes {
            Takes::Text => Starts::Words(Vec::new()),
            Takes::Joined => {
                let mut text = Word::text(b"");
                for word in rest {
                    text.push(word);
                    text.push_bytes(b" ");
                }
                Starts::Text(text)
            }
            _ => Starts::Words(rest.to_vec()),
        }
    }

    /// The value of an option that says what is started, and the words behind the option.
    fn option<'w>(&self, word: &[u8], after: &'w [Word]) -> (Option<Word>, &'w [Word]) {
        let (letter, long): (u8, &[u8]) = match self.takes {
            Takes::Split => (b'S', b"split-string"),
            Takes::Command | Takes::Text => (b'c', b"command"),
            Takes::Words | Takes::Joined => (0, b""),
        };
        let next = || after.first().cloned().unwrap_or_default();
        let behind = after.get(1..).unwrap_or(&[]);
        if let Some(name) = word.strip_prefix(b"--") {
            let mut parts = name.splitn(2, |byte| *byte == b'=');
            let (name, value) = (parts.next().unwrap_or_default(), parts.next());
            let takes = self.long.iter().any(|long| long.as_bytes() == name);
            return match value {
                Some(value) if letter != 0 && name == long => (Some(Word::text(value)), after),
                None if letter != 0 && name == long => (Some(next()), behind),
                None if takes => (None, behind),
                _ => (None, after),
            };
        }
        for (at, byte) in word.iter().enumerate().skip(1) {
            let value = &word[at + 1..];
            let here = !value.is_empty();
            if letter == *byte {
                let value = if here { Word::text(value) } else { next() };
                return (Some(value), if here { after } else { behind });
            }
            if self.short.as_bytes().contains(byte) {
                return (None, if here { after } else { behind });
            }
        }
        (None, after)
    }
}

/// The words of a text that is split as `env -S` does, nearly as a shell.
fn parts(text: &Word) -> Vec<Word> {
    let text = text.constant().unwrap_or_default();
    let script = shell::scan(&text, &mut Variables::default());
    script.commands.into_iter().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &[&str]) -> Option<String> {
        let words: Vec<Word> = line[1..].iter().map(|word| Word::text(word.as_bytes())).collect();
        let text = |word: &Word| String::from_utf8(word.constant().unwrap_or_default()).ok();
        Some(match starts(line[0], &words)? {
            Starts::Words(words) => words.iter().map(text).collect::<Option<Vec<_>>>()?.join(" "),
            Starts::Text(word) => format!("sh: {}", text(&word)?),
        })
    }

    #[test]
    fn what_is_started_stands_behind_options_and_operands() {
        let lines: [&[&str]; 26] = [
            &["ld-linux-x86-64.so.2", "--library-path", "/x", "--argv0=y", "git", "x"],
            &["ld-musl-x86_64.so.1", "--", "git", "x"],
            &["set", "-eo", "pipefail", "--", "git", "x"],
            &["env", "-i", "A=b", "git", "x"],
            &["env", "--chdir", "/", "-u", "A", "git", "x"],
            &["env", "-S", "A=b git x"],
            &["env", "-iS", "-u B git", "x"],
            &["env", "-S git x"],
            &["env", "--split-string=git", "x"],
            &["nice", "-5", "git", "x"],
            &["nice", "--adjustment", "5", "git", "x"],
            &["timeout", "--signal", "KILL", "-k3", "5", "git", "x"],
            &["xargs", "-I{}", "-n", "1", "--max-procs", "2", "git", "x"],
            &["stdbuf", "-oL", "--error", "L", "git", "x"],
            &["taskset", "-c", "0", "git", "x"],
            &["flock", "-w", "1", "/tmp/lock", "git", "x"],
            &["setpriv", "--nnp", "--reuid", "1", "git", "x"],
            &["prlimit", "--nofile=1", "-n=2", "git", "x"],
            &["setarch", "x86_64", "-R", "git", "x"],
            &["setarch", "-R", "git", "x"],
            &["fakeroot", "--", "git", "x"],
            &["nohup", "git", "x"],
            &["setsid", "--wait", "git", "x"],
            &["exec", "-a", "name", "git", "x"],
            &["strace", "-fo", "out", "git", "x"],
            &["gosu", "root", "git", "x"],
        ];
        for line in lines {
            assert_eq!(of(line).as_deref(), Some("git x"), "{line:?}");
        }
        let texts: [&[&str]; 7] = [
            &["script", "-qc", "git x", "/dev/null"],
            &["script", "-q", "/dev/null", "-c", "git x"],
            &["script", "--command=git x"],
            &["script", "-O", "out", "--command", "git x", "-q"],
            &["flock", "/tmp/lock", "-c", "git x"],
            &["flock", "-n", "/tmp/lock", "--command", "git x"],
            &["watch", "-n", "1", "git x"],
        ];
        for line in texts {
            assert_eq!(of(line).as_deref().map(str::trim_end), Some("sh: git x"), "{line:?}");
        }
        assert_eq!(of(&["script", "typescript"]).as_deref(), Some(""), "a shell alone");
        assert_eq!(of(&["cat", "git"]), None);
        assert_eq!(of(&["timeout", "5"]).as_deref(), Some(""));
        // Texts that stand for themselves again and again end.
        assert_eq!(of(&["env", "-S", "-S '-S \"-S -S\"'"]).as_deref(), Some(""));
    }
}
