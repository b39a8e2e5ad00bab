//! Which files a command line of git's configuration runs, read as a shell reads it: the first word of each command, and
//! what an interpreter is told to run. What is merely mentioned (`git add src/main.rs`) is the user's data.

/// How deep commands are followed that stand in others.
const DEEP: usize = 8;

/// Files that one setting can name.
const MOST: usize = 64;

/// Programs that run a file that they are told to.
struct Reader {
    names: &'static [&'static str],
    /// Options behind which there is code, and no file of it.
    code: &'static [&'static str],
    /// Options with a value, which may be a file that is run as well.
    valued: &'static [&'static str],
    /// Commands of its own that run a file.
    commands: &'static [&'static str],
    /// Whether its code is for a shell.
    shell: bool,
}

const READERS: [Reader; 7] = [
    Reader {
        names: &["sh", "bash", "dash", "zsh", "ksh", "ash", "fish", "source"],
        code: &["c", "command"],
        valued: &["o", "O", "rcfile", "init-file"],
        commands: &[],
        shell: true,
    },
    Reader {
        names: &["python", "pypy"],
        code: &["c", "m"],
        valued: &["W", "X", "Q"],
        commands: &[],
        shell: false,
    },
    Reader {
        names: &["node", "nodejs", "deno", "bun", "tsx"],
        code: &["e", "p", "eval", "print"],
        valued: &["r", "require", "import", "loader", "experimental-loader", "preload"],
        commands: &["run", "exec", "test", "serve"],
        shell: false,
    },
    Reader { names: &["perl"], code: &["e", "E"], valued: &["I"], commands: &[], shell: false },
    Reader {
        names: &["ruby"],
        code: &["e"],
        valued: &["r", "I", "C"],
        commands: &[],
        shell: false,
    },
    Reader { names: &["php"], code: &["r"], valued: &["f", "d", "c"], commands: &[], shell: false },
    Reader { names: &["lua", "luajit"], code: &["e"], valued: &["l"], commands: &[], shell: false },
];

/// Words of a shell behind which a command begins.
const KEYWORDS: [&str; 11] =
    ["!", "{", "}", "if", "then", "else", "elif", "do", "while", "until", "time"];

/// Programs that run a command which stands behind their options.
const WRAPPERS: [&str; 19] = [
    "env", "exec", "command", "builtin", "nice", "ionice", "nohup", "setsid", "stdbuf", "sudo",
    "doas", "timeout", "xargs", "parallel", "flock", "strace", "busybox", "winpty", "npx",
];

/// Arguments of other programs that do the same.
const WRAPPING: [&str; 5] = ["exec", "run", "foreach", "-exec", "-execdir"];

/// Programs that obey the file behind `-f` or `-F`.
const BY_FILE: [&str; 7] = ["awk", "gawk", "mawk", "make", "gmake", "sed", "ssh"];

/// What the next word of a command is.
#[derive(Clone, Copy)]
enum Next {
    Program,
    /// A program, or an option of what runs it; a value, where the last word was an option.
    Wrapped {
        option: bool,
    },
    /// A file that the program runs, or an option of it.
    Script(&'static Reader),
    /// The value of such an option.
    Value(&'static Reader),
    Code,
    Argument {
        by_file: bool,
    },
    File,
    /// Anything: what the program is, is not known.
    Every,
}

/// The files, as the words are: from the directory of the command, or from a home behind `~`. Of a word that begins with
/// what is known only when it runs, what is behind that, from the directory of the command.
pub(crate) fn programs(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    Line { text: text.as_bytes(), at: 0, depth: 0, found: &mut found }.commands(false);
    found
}

struct Line<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
    found: &'a mut Vec<String>,
}

struct Command {
    next: Next,
    /// The next word is the target of a redirection; of one for reading.
    target: Option<bool>,
}

const COMMAND: Command = Command { next: Next::Program, target: None };

impl Line<'_> {
    /// All commands to the end, or to the parenthesis that closes what was opened before.
    fn commands(&mut self, within: bool) {
        let (mut command, mut open) = (COMMAND, 0_usize);
        while let Some(byte) = self.peek() {
            self.at += 1;
            match byte {
                b' ' | b'\t' | b'\r' => {}
                b'#' => self.skip(|byte| byte != b'\n'),
                b')' if within && open == 0 => return,
                b'(' | b')' => {
                    open = if byte == b'(' { open + 1 } else { open.saturating_sub(1) };
                    command = COMMAND;
                }
                b';' | b'&' | b'|' | b'\n' => command = COMMAND,
                b'<' | b'>' => {
                    self.skip(|byte| b"<>&|".contains(&byte));
                    command.target = Some(byte == b'<');
                }
                _ => {
                    self.at -= 1;
                    let word = self.word();
                    let descriptor = word.bytes().all(|byte| byte.is_ascii_digit());
                    if !(descriptor && matches!(self.peek(), Some(b'<' | b'>'))) {
                        self.take(&mut command, &word);
                    }
                }
            }
        }
    }

    /// What another text runs.
    fn code(&mut self, text: &str) {
        let depth = self.depth + 1;
        if depth < DEEP {
            Line { text: text.as_bytes(), at: 0, depth, found: self.found }.commands(false);
        }
    }

    fn name(&mut self, word: &str) {
        if self.found.len() < MOST && !word.is_empty() {
            self.found.push(word.to_owned());
        }
    }

    fn take(&mut self, command: &mut Command, word: &str) {
        if let Some(reading) = command.target.take() {
            if reading && matches!(command.next, Next::Script(_)) {
                self.name(word);
            }
            return;
        }
        command.next = match command.next {
            Next::Program => self.program(word, None),
            Next::Wrapped { option } => self.program(word, Some(option)),
            Next::Script(reader) => self.script(reader, word),
            Next::Value(reader) => {
                self.name(word);
                Next::Script(reader)
            }
            Next::Code => {
                self.code(word);
                Next::Argument { by_file: false }
            }
            Next::Argument { by_file } => self.argument(by_file, word),
            Next::File => {
                self.name(word);
                Next::Argument { by_file: true }
            }
            Next::Every => {
                let value = word.rsplit_once('=').map_or(word, |(_, value)| value);
                if value.contains('/') {
                    self.code(value);
                }
                Next::Every
            }
        };
    }

    /// A word where a program is awaited. `wrapped` where something runs it: whether that had an option just before.
    fn program(&mut self, word: &str, wrapped: Option<bool>) -> Next {
        if let Some(rest) = word.strip_prefix('!').filter(|rest| !rest.is_empty()) {
            return self.program(rest, None);
        }
        if KEYWORDS.contains(&word) {
            return Next::Program;
        }
        if word.starts_with('-') {
            return wrapped.map_or(Next::Every, |_| Next::Wrapped { option: word != "--" });
        }
        if let Some((_, value)) = word.split_once('=').filter(|(name, _)| is_name(name)) {
            // `PAGER=./page git log`, or a variable that is run later.
            self.code(value);
            return wrapped.map_or(Next::Program, |_| Next::Wrapped { option: false });
        }
        if word.contains('/') {
            self.name(word);
        }
        let name = word.rsplit('/').next().unwrap_or_default();
        let family = match name {
            "." => "source",
            name => name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.'),
        };
        if name == "eval" {
            return Next::Code;
        }
        if let Some(reader) = READERS.iter().find(|reader| reader.names.contains(&family)) {
            return Next::Script(reader);
        }
        // `timeout 5 …`, `sudo -u ada …`
        let value = wrapped == Some(true) || name.starts_with(|c: char| c.is_ascii_digit());
        if WRAPPERS.contains(&name) || wrapped.is_some() && value && !word.contains('/') {
            return Next::Wrapped { option: false };
        }
        Next::Argument { by_file: BY_FILE.contains(&name) }
    }

    /// A word behind an interpreter.
    fn script(&mut self, reader: &'static Reader, word: &str) -> Next {
        let Some(option) = word.strip_prefix(['-', '+']) else {
            if reader.commands.contains(&word) {
                return Next::Script(reader);
            }
            self.name(word);
            return Next::Argument { by_file: false };
        };
        let argument = Next::Argument { by_file: false };
        let (long, value) = match option.strip_prefix('-') {
            Some(long) => long.split_once('=').map_or((long, None), |(a, b)| (a, Some(b))),
            None => (option, None),
        };
        // Short ones stand together, the one with a value at the end: `-lc`. Or the value stands with it.
        let ends = |all: &[&str]| {
            let short = option.len() < 6 && all.iter().any(|one| option.ends_with(one));
            all.contains(&long) || !option.starts_with('-') && short
        };
        let attached = |one: &&str| one.len() == 1 && option.starts_with(*one);
        if ends(reader.code) || reader.code.iter().any(attached) {
            return if reader.shell { Next::Code } else { argument };
        }
        match value {
            Some(value) if reader.valued.contains(&long) => self.name(value),
            None if ends(reader.valued) => return Next::Value(reader),
            _ => {}
        }
        Next::Script(reader)
    }

    /// A word that a program is given.
    fn argument(&mut self, by_file: bool, word: &str) -> Next {
        if let Some(rest) = word.strip_prefix('!').filter(|rest| !rest.is_empty()) {
            return self.program(rest, None);
        }
        if WRAPPING.contains(&word) {
            return Next::Wrapped { option: false };
        }
        if let Some((key, value)) = word.split_once('=')
            && key.to_ascii_lowercase().ends_with("proxycommand")
        {
            self.code(value);
        } else if by_file && matches!(word, "-f" | "-F" | "--file" | "--makefile") {
            return Next::File;
        } else if by_file && let Some(rest) = word.strip_prefix("-f").or(word.strip_prefix("-F")) {
            self.name(rest);
        }
        Next::Argument { by_file }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn skip(&mut self, wanted: impl Fn(u8) -> bool) {
        while self.peek().is_some_and(&wanted) {
            self.at += 1;
        }
    }

    fn word(&mut self) -> String {
        let (mut word, mut quote) = (Vec::new(), None);
        while let Some(byte) = self.peek() {
            self.at += 1;
            match (byte, quote) {
                (byte, Some(open)) if byte == open => quote = None,
                (byte, Some(b'\'')) => word.push(byte),
                (b'\'' | b'"', None) => quote = Some(byte),
                (b'\\', _) => self.escaped(quote.is_some(), &mut word),
                (b'$' | b'`', _) => {
                    self.at -= 1;
                    self.expansion(&mut word);
                }
                (byte, None) if byte.is_ascii_whitespace() || b";&|()<>".contains(&byte) => {
                    self.at -= 1;
                    break;
                }
                (byte, _) => word.push(byte),
            }
        }
        String::from_utf8_lossy(&word).into_owned()
    }

    fn escaped(&mut self, quoted: bool, word: &mut Vec<u8>) {
        let Some(byte) = self.peek() else { return };
        self.at += 1;
        if quoted && !b"$`\"\\\n".contains(&byte) {
            word.push(b'\\');
        }
        if byte != b'\n' {
            word.push(byte);
        }
    }

    /// What is put in the place of a variable or of a command's output.
    fn expansion(&mut self, word: &mut Vec<u8>) {
        let start = self.at + 1;
        let text = self.text;
        let to = |end: u8| {
            let rest = text.get(start..).unwrap_or_default();
            rest.iter().position(|byte| *byte == end).map_or(text.len(), |at| start + at)
        };
        let of = |end: usize| String::from_utf8_lossy(&text[start..end]).into_owned();
        let meant = match (text[self.at], text.get(start)) {
            (b'`', _) => {
                let end = to(b'`');
                self.at = text.len().min(end + 1);
                let inner = of(end);
                self.code(&inner);
                inner
            }
            (_, Some(b'(')) if self.depth < DEEP => {
                self.at += 2;
                self.depth += 1;
                self.commands(true);
                self.depth -= 1;
                of(self.at)
            }
            (_, Some(b'{')) => {
                let end = to(b'}');
                self.at = text.len().min(end + 1);
                let inner = of(end);
                let inner = inner.trim_start_matches('{');
                match inner.split_once([':', '-', '=', '+']) {
                    Some((name, default)) => {
                        self.code(default.trim_start_matches(['-', '=', '+']));
                        name.to_owned()
                    }
                    None => inner.to_owned(),
                }
            }
            (_, Some(byte)) if byte.is_ascii_alphabetic() || *byte == b'_' => {
                self.at = start;
                self.skip(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
                of(self.at)
            }
            (_, Some(byte)) if byte.is_ascii_digit() || b"@*#?$!-".contains(byte) => {
                self.at = start + 1;
                String::new()
            }
            _ => {
                self.at = start;
                return word.push(b'$');
            }
        };
        // Behind an alias's mark, or an option's.
        let begins = word.iter().rposition(|byte| b"!=".contains(byte)).map_or(0, |at| at + 1);
        let home = meant == "HOME" && word.len() == begins;
        word.truncate(begins);
        word.extend_from_slice(match () {
            () if home => b"~",
            () if git_directory(&meant) => b"./.git",
            () => b".",
        });
    }
}

/// Whether a variable, or a command, says where the repository is.
fn git_directory(meant: &str) -> bool {
    let says = ["--git-dir", "--absolute-git-dir", "--git-common-dir"];
    matches!(meant, "GIT_DIR" | "GIT_COMMON_DIR") || says.iter().any(|one| meant.contains(one))
}

fn is_name(text: &str) -> bool {
    let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    first && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::programs;

    #[track_caller]
    fn runs(text: &str, wanted: &[&str]) {
        assert_eq!(programs(text), wanted, "{text}");
    }

    #[test]
    fn words_are_a_shells() {
        for (text, path) in [
            ("scripts/d %f", "scripts/d"),
            ("'/home/u/my proj/a' -x", "/home/u/my proj/a"),
            ("\"my tools/c\" %f", "my tools/c"),
            ("my\\ tools/c %f", "my tools/c"),
            ("$HOME/b/ed", "~/b/ed"),
            ("!$HOME/b/ed", "~/b/ed"),
            ("!\"$HOME\"/b/ed -w", "~/b/ed"),
            ("\"${HOME}/b/ed\" -w", "~/b/ed"),
            ("~/b/ed", "~/b/ed"),
            ("${PWD}/scripts/e", "./scripts/e"),
            ("$PWD/scripts/e", "./scripts/e"),
            ("!\"$(git rev-parse --show-toplevel)/scripts/b.sh\"", "./scripts/b.sh"),
            ("!`git rev-parse --show-toplevel`/scripts/b.sh x", "./scripts/b.sh"),
            ("!$(git rev-parse --git-dir)/tools/x", "./.git/tools/x"),
            ("${GIT_PREFIX:-.}/x", "./x"),
        ] {
            runs(text, &[path]);
        }
    }

    #[test]
    fn the_first_word_of_each_command_is_run() {
        runs("!git add src/main.rs && git commit -m wip", &[]);
        runs("!git log -- ./src/main.c | ./tools/show ./data", &["./tools/show"]);
        runs(
            "!f() { git fetch ./o; ./a \"$@\"; if ./b; then ./c; fi; }; f",
            &["./a", "./b", "./c"],
        );
        runs("!git fetch > ./log 2>&1 < ./in; (./d ./data)", &["./d"]);
        runs("!echo $(./x ./data) # ./y\n./z", &["./x", "./z"]);
        runs("!cat '& ./x'; echo \"; ./y\"", &[]);
        runs("!env A=1 -u B ./x ./data", &["./x"]);
        runs("!timeout 5 ./x ./data; sudo -u ada ./y; xargs -0 git add ./src", &["./x", "./y"]);
        runs("!PAGER='./page -x' git log ./data", &["./page"]);
        runs("!S=$HOME/s; $S", &["~/s"]);
        runs("!git bisect run ./t && find . -exec ./u {} \\;", &["./t", "./u"]);
        runs("-e ./x --rsh=./y", &["./x", "./y"]);
        runs("generic X !./x ./data", &["./x"]);
    }

    #[test]
    fn an_interpreter_runs_a_file_and_is_given_others() {
        for (text, wanted) in [
            ("!node -p \"require('./package.json').version\"", &[][..]),
            ("node scripts/merge.js package-lock.json %A %O %B", &["scripts/merge.js"]),
            ("node -r ./hook.js --import=./i.mjs x.js data", &["./hook.js", "./i.mjs", "x.js"]),
            ("python3.12 -W ignore tool.py ./data", &["ignore", "tool.py"]),
            ("python -c 'open(\"./data\")' ./data", &[]),
            ("python3 -m json.tool ./data", &[]),
            ("perl -lane 'print' ./data", &[]),
            ("./venv/bin/python x.py", &["./venv/bin/python", "x.py"]),
            ("bash -ex -o pipefail run.sh ./data", &["pipefail", "run.sh"]),
            ("!sh -c './x \"$1\" && sh -lc \"./y ./data\"' -", &["./x", "./y"]),
            ("!. ./env; source ./other; sh < ./third", &["./env", "./other", "./third"]),
            ("deno run -A x.ts ./data", &["x.ts"]),
            ("ssh -F ./cfg -o ProxyCommand='./p %h' -i ./key", &["./cfg", "./p"]),
            ("make -f ./x.mk", &["./x.mk"]),
            ("!eval \"./x ./data\"", &["./x"]),
        ] {
            runs(text, wanted);
        }
    }

    #[test]
    fn a_line_without_end_is_read_to_its_end() {
        for text in ["'./x", "\"./x", "./x\\", "$(./x", "`./x", "${./x", "$", "`", "\\", "${"] {
            programs(text);
        }
        programs(&"$(".repeat(100_000));
        programs(&"`$(sh -c '".repeat(10_000));
        assert_eq!(programs(&"./x;".repeat(1000)).len(), super::MOST);
    }
}
