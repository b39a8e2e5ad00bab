//! Programs by what they do with their words.

/// A program that runs a file that it is told to.
pub(super) struct Reader {
    pub names: &'static [&'static str],
    /// Options behind which there is code, and no file of it.
    pub code: &'static [&'static str],
    /// Options with a value, which may be a file that is run as well. A letter's may stand with it.
    pub valued: &'static [&'static str],
    /// Letters with a value that stands with them, or none.
    pub attached: &'static str,
    /// Options whose value is what is run.
    pub file: &'static [&'static str],
    /// Commands of its own that run a file.
    pub commands: &'static [&'static str],
    /// What it runs of a directory that it is told to run.
    pub main: Option<&'static str>,
    /// Whether its code is for a shell.
    pub shell: bool,
    /// Whether what is behind one dash is one word, no letters.
    pub long: bool,
}

const PLAIN: Reader = Reader {
    names: &[],
    code: &[],
    valued: &[],
    attached: "",
    file: &[],
    commands: &[],
    main: None,
    shell: false,
    long: false,
};

pub(super) const READERS: [Reader; 14] = [
    Reader {
        names: &["sh", "bash", "dash", "zsh", "ksh", "ash", "fish", "mksh", "yash", "csh", "tcsh"],
        code: &["c", "command"],
        valued: &["o", "O", "rcfile", "init-file", "init-command"],
        shell: true,
        ..PLAIN
    },
    Reader { names: &["source"], shell: true, ..PLAIN },
    Reader {
        names: &["python", "pypy", "ipython", "jython", "xonsh", "micropython"],
        code: &["c", "m"],
        valued: &["W", "X", "Q"],
        main: Some("__main__.py"),
        ..PLAIN
    },
    Reader {
        names: &["node", "nodejs", "deno", "bun", "tsx", "ts-node", "esno", "jiti"],
        code: &["e", "p", "eval", "print"],
        main: Some("index.js"),
        valued: &[
            "r",
            "C",
            "require",
            "import",
            "loader",
            "experimental-loader",
            "preload",
            "project",
        ],
        commands: &["run", "exec", "test", "serve", "watch"],
        ..PLAIN
    },
    Reader {
        names: &["perl", "raku"],
        code: &["e", "E"],
        valued: &["I"],
        attached: "MmixCDF",
        ..PLAIN
    },
    Reader {
        names: &["ruby", "jruby"],
        code: &["e"],
        valued: &["r", "I", "C", "E"],
        attached: "FKTWix",
        ..PLAIN
    },
    Reader {
        names: &["php"],
        code: &["r", "B", "R", "E"],
        valued: &["d", "c", "z"],
        file: &["f", "F"],
        ..PLAIN
    },
    Reader { names: &["lua", "luajit"], code: &["e"], valued: &["l"], ..PLAIN },
    Reader {
        names: &[
            "rscript", "littler", "julia", "racket", "guile", "elixir", "bb", "nu", "elvish",
            "janet",
        ],
        code: &["e", "eval", "c", "commands"],
        valued: &["L", "l", "load", "r", "require", "project"],
        file: &["s", "f", "file"],
        ..PLAIN
    },
    Reader {
        names: &["java"],
        valued: &["cp", "classpath", "class-path", "p", "module-path", "add-modules"],
        file: &["jar"],
        long: true,
        ..PLAIN
    },
    Reader {
        names: &["pwsh", "powershell"],
        code: &["c", "command", "encodedcommand"],
        valued: &[
            "executionpolicy",
            "ep",
            "ex",
            "workingdirectory",
            "wd",
            "version",
            "configurationname",
        ],
        file: &["file", "f"],
        long: true,
        ..PLAIN
    },
    Reader {
        names: &[
            "groovy",
            "scala",
            "kotlin",
            "tclsh",
            "wish",
            "expect",
            "osascript",
            "escript",
            "runghc",
        ],
        code: &["e", "c"],
        valued: &["cp", "classpath", "l"],
        file: &["f"],
        long: true,
        ..PLAIN
    },
    Reader {
        names: &["runhaskell", "ocaml", "sbcl", "gjs", "qjs", "wine", "mono"],
        long: true,
        ..PLAIN
    },
    Reader {
        names: &["dotnet"],
        commands: &["exec", "script", "run"],
        valued: &["project"],
        ..PLAIN
    },
];

/// Words of a shell behind which a command begins.
pub(super) const KEYWORDS: [&str; 11] =
    ["!", "{", "}", "if", "then", "else", "elif", "do", "while", "until", "time"];

/// A program that runs a command which stands behind its options.
pub(super) struct Wrapper {
    pub name: &'static str,
    /// Its options with a value: letters, and long ones.
    pub letters: &'static str,
    pub long: &'static [&'static str],
    /// Letters behind which there is a shell's code.
    pub code: &'static str,
    /// Words of its own before the command.
    pub own: usize,
    /// Whether it is not known which of its options have a value.
    pub open: bool,
}

const fn wraps(name: &'static str, letters: &'static str, own: usize) -> Wrapper {
    Wrapper { name, letters, long: &[], code: "", own, open: false }
}

/// What is behind arguments like `exec`: anybody's options.
pub(super) const ANY: Wrapper = Wrapper { open: true, ..wraps("", "", 0) };

pub(super) const WRAPPERS: [Wrapper; 43] = [
    Wrapper { long: &["unset", "chdir"], code: "S", ..wraps("env", "uC", 0) },
    wraps("exec", "a", 0),
    wraps("command", "", 0),
    wraps("builtin", "", 0),
    Wrapper { long: &["adjustment"], ..wraps("nice", "n", 0) },
    Wrapper { long: &["class", "classdata", "pid"], ..wraps("ionice", "cnpP", 0) },
    wraps("nohup", "", 0),
    wraps("setsid", "", 0),
    Wrapper { long: &["input", "output", "error"], ..wraps("stdbuf", "ioe", 0) },
    Wrapper {
        long: &["user", "group", "host", "prompt", "chdir", "chroot", "role", "type", "other-user"],
        ..wraps("sudo", "ughpCDrtTUR", 0)
    },
    wraps("doas", "uC", 0),
    Wrapper { code: "c", ..wraps("su", "gGsw", 0) },
    Wrapper { code: "c", ..wraps("runuser", "ugGsw", 0) },
    Wrapper { long: &["kill-after", "signal"], ..wraps("timeout", "ks", 1) },
    Wrapper {
        long: &[
            "arg-file",
            "delimiter",
            "max-lines",
            "max-args",
            "max-procs",
            "max-chars",
            "process-slot-var",
        ],
        ..wraps("xargs", "adEILnPs", 0)
    },
    Wrapper { open: true, ..wraps("parallel", "jaSNLnPI", 0) },
    Wrapper { long: &["timeout", "conflict-exit-code"], code: "c", ..wraps("flock", "wE", 1) },
    Wrapper { open: true, ..wraps("strace", "oepsuPaESXIbO", 0) },
    Wrapper { open: true, ..wraps("ltrace", "oepsualnxF", 0) },
    Wrapper { open: true, ..wraps("perf", "oeF", 0) },
    Wrapper { open: true, ..wraps("valgrind", "", 0) },
    wraps("busybox", "", 0),
    wraps("toybox", "", 0),
    wraps("winpty", "", 0),
    Wrapper { code: "c", long: &["package", "call", "prefix"], ..wraps("npx", "p", 0) },
    Wrapper { open: true, ..wraps("npm", "", 0) },
    Wrapper { open: true, ..wraps("pnpm", "", 0) },
    Wrapper { open: true, ..wraps("yarn", "", 0) },
    Wrapper { open: true, ..wraps("run", "", 0) },
    Wrapper { open: true, ..wraps("dlx", "", 0) },
    wraps("bunx", "", 0),
    Wrapper { open: true, ..wraps("uvx", "p", 0) },
    Wrapper { long: &["interval"], ..wraps("watch", "n", 0) },
    Wrapper { long: &["cpu-list"], ..wraps("taskset", "", 1) },
    wraps("chrt", "TPD", 1),
    Wrapper { open: true, ..wraps("chroot", "", 1) },
    Wrapper { open: true, ..wraps("unshare", "SGRw", 0) },
    Wrapper { open: true, ..wraps("bwrap", "", 0) },
    Wrapper { open: true, ..wraps("systemd-run", "pEMutT", 0) },
    Wrapper { open: true, ..wraps("xvfb-run", "enfps", 0) },
    wraps("faketime", "fm", 1),
    wraps("caffeinate", "tw", 0),
    wraps("proxychains", "f", 0),
];

/// Arguments of other programs that do the same.
pub(super) const WRAPPING: [&str; 7] =
    ["exec", "run", "foreach", "-exec", "-execdir", "-ok", "-okdir"];

/// Programs that obey the file behind an option; others that show or edit files among them.
pub(super) struct Obeyed {
    pub names: &'static [&'static str],
    /// Options whose value is it, with their dashes.
    pub options: &'static [&'static str],
    /// Letters whose value is it, which may stand behind these others, and it with them.
    pub letters: &'static str,
    pub behind: &'static str,
}

/// None of these.
pub(super) const NOTHING: Obeyed = Obeyed { names: &[], options: &[], letters: "", behind: "" };

pub(super) const OBEYED: [Obeyed; 7] = [
    Obeyed {
        names: &["awk", "gawk", "mawk", "nawk"],
        options: &["--file", "--exec", "--include"],
        letters: "fEi",
        behind: "bcChkMnNOPrsSt",
    },
    Obeyed {
        names: &["make", "gmake"],
        options: &["--file", "--makefile"],
        letters: "fF",
        behind: "bBdeiknpqrRsStvw",
    },
    Obeyed { names: &["sed"], options: &["--file"], letters: "f", behind: "nErsuz" },
    Obeyed { names: &["ssh"], letters: "F", ..NOTHING },
    Obeyed {
        names: &["vi", "vim", "nvim", "gvim", "ex", "view", "vimdiff"],
        options: &["-S", "-s", "-u", "-U", "-l"],
        ..NOTHING
    },
    Obeyed {
        names: &["emacs", "emacsclient"],
        options: &["-l", "--load", "-load", "--script", "-script", "-x"],
        ..NOTHING
    },
    Obeyed { names: &["rg", "sort"], options: &["--pre", "--compress-program"], ..NOTHING },
];

/// Programs that run nothing of what they are told: they read, write or show it.
pub(super) const HARMLESS: &str = "\
    : [ [[ ack ag ansifilter antiword atom awk base64 basename bat biome black break cat catdoc cd chmod chown \
    clang-format cmp code codium column comm continue cp csplit cursor cut date delta diff diff3 difft dirname \
    docx2txt du echo ed egrep emacs emacsclient eslint ex exiftool exit expand export expr false fgrep file flake8 \
    fmt fold gawk gedit gofmt goimports grep gvim gzip head hexdump hexyl hx install iconv isort join jq jshint kate \
    kdiff3 less let ln local ls mate mawk md5sum meld micro mkdir more most mv mypy nano nl nvim od opendiff paste \
    patch pdftotext prettier printf pwd pylint read readlink realpath return rg rm rmdir ruff rustfmt sed seq \
    sha1sum sha256sum shellcheck shfmt shift sleep sort stat strings subl tac tail tee test touch tr true tsc uniq \
    unset vi view vim vimdiff wc";

/// Variables that name a program which shows or edits a file.
pub(super) const SHOWING: [&str; 9] = [
    "EDITOR",
    "VISUAL",
    "PAGER",
    "GIT_EDITOR",
    "GIT_PAGER",
    "GIT_SEQUENCE_EDITOR",
    "MANPAGER",
    "BROWSER",
    "FCEDIT",
];

/// Git's own commands, which run nothing of what they are told but behind the options below. Others are aliases, or
/// anybody's.
pub(super) const GIT: &str = "\
    add am annotate apply archive bisect blame branch bundle cat-file check-attr check-ignore check-ref-format \
    checkout checkout-index cherry cherry-pick citool clean clone column commit commit-graph commit-tree config \
    count-objects credential describe diff diff-files diff-index diff-tree difftool fast-export fast-import fetch \
    fetch-pack filter-branch fmt-merge-msg for-each-ref for-each-repo format-patch fsck gc grep gui hash-object help \
    index-pack init instaweb interpret-trailers lfs log ls-files ls-remote ls-tree mailinfo maintenance merge \
    merge-base merge-file merge-tree mergetool mktag mktree mv name-rev notes pack-objects pack-refs patch-id prune \
    pull push range-diff read-tree rebase reflog remote repack replace request-pull rerere reset restore rev-list \
    rev-parse revert rm send-email shortlog show show-branch show-ref sparse-checkout stage stash status stripspace \
    submodule switch symbolic-ref tag update-index update-ref var verify-commit whatchanged worktree";

/// Options of git's commands with a shell's code: of which command, letters, and long ones. Long ones that end in
/// `-filter`, `-cmd` and `-pack` are ones as well.
pub(super) const GIT_CODE: [(&str, &str, &[&str]); 10] = [
    ("rebase", "x", &["exec"]),
    ("difftool", "x", &["extcmd"]),
    ("clone", "u", &["upload-pack"]),
    ("fetch", "", &["upload-pack"]),
    ("pull", "", &["upload-pack"]),
    ("push", "", &["receive-pack", "exec"]),
    ("ls-remote", "", &["upload-pack", "exec"]),
    ("archive", "", &["exec"]),
    ("grep", "O", &["open-files-in-pager"]),
    ("instaweb", "db", &["httpd", "browser"]),
];

/// Options of git's own with a value, which stand before its command.
pub(super) const GIT_VALUED: [&str; 7] = [
    "-C",
    "--git-dir",
    "--work-tree",
    "--namespace",
    "--super-prefix",
    "--config-env",
    "--list-cmds",
];
