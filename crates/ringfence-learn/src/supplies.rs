//! What programs open that neither their text nor their libraries name: where interpreters keep
//! their modules, what a compiler starts.

/// What goes with some programs.
pub struct Supply {
    /// Names of the programs; `*` stands for anything.
    pub programs: &'static [&'static str],
    /// Directories and files below the directories of libraries. A component may hold `*`;
    /// `TRIPLE` is the machine's directory.
    pub places: &'static [&'static str],
    /// Commands that they start.
    pub commands: &'static [&'static str],
}

/// The table.
pub const SUPPLIES: [Supply; 24] = [
    Supply {
        programs: &["python", "python2*", "python3*", "pypy3*"],
        places: &["python2*", "python3*", "pypy3*"],
        commands: &[],
    },
    Supply { programs: &["perl", "perl5*"], places: &["TRIPLE/perl*", "perl5"], commands: &[] },
    Supply { programs: &["ruby*", "gem", "irb"], places: RUBY, commands: &[] },
    Supply { programs: &["php*"], places: &["php"], commands: &[] },
    Supply { programs: &["lua*"], places: &["lua", "TRIPLE/lua"], commands: &[] },
    Supply { programs: &["tclsh*", "wish*"], places: &["tcltk", "tcl*", "tk*"], commands: &[] },
    Supply { programs: &["R", "Rscript"], places: &["R"], commands: &["sh", "sed", "uname"] },
    Supply { programs: &["node", "nodejs"], places: &["nodejs", "TRIPLE/nodejs"], commands: &[] },
    Supply { programs: &["git"], places: &["git-core"], commands: &["sh", "ssh", "less"] },
    Supply {
        programs: &["cc", "c++", "gcc*", "g++*", "*-linux-gnu-gcc*", "*-linux-gnu-g++*", "clang*"],
        places: &[
            "gcc",
            "gcc-cross",
            "bfd-plugins",
            "TRIPLE/*crt*.o",
            "TRIPLE/bfd-plugins",
            "TRIPLE/libc.*",
            "TRIPLE/libc_nonshared.a",
            "TRIPLE/libm.*",
            "TRIPLE/libm-*.a",
            "TRIPLE/libpthread.*",
            "TRIPLE/libdl.*",
            "TRIPLE/librt.*",
            "TRIPLE/libutil.*",
            "TRIPLE/libmvec.*",
            "TRIPLE/libresolv.*",
            "TRIPLE/libcrypt.*",
            "TRIPLE/libgcc_s.*",
            "TRIPLE/libstdc++.*",
        ],
        commands: &["as", "ld", "ld.bfd", "ld.gold", "ar", "ranlib", "nm", "objcopy"],
    },
    Supply { programs: &["rustc", "cargo"], places: &[], commands: &["cc", "gcc", "ld"] },
    // The user's shell, or `sh`.
    Supply { programs: &["script", "flock", "watch"], places: &[], commands: &["sh", "bash"] },
    // What its recipes call, most of all.
    Supply {
        programs: &["make", "gmake"],
        places: &[],
        commands: &["sh", "cc", "c++", "gcc", "g++"],
    },
    Supply {
        programs: &["ccache", "distcc", "sccache"],
        places: &[],
        commands: &["cc", "c++", "gcc", "g++"],
    },
    Supply { programs: &["soffice*", "libreoffice*"], places: &["libreoffice"], commands: &[] },
    Supply { programs: &["npm", "npx", "yarn", "pnpm"], places: &[], commands: &["sh", "node"] },
    Supply { programs: &["ssh", "scp", "sftp"], places: &["openssh"], commands: &["ssh"] },
    Supply { programs: &["rsync"], places: &[], commands: &["ssh"] },
    // By the option, and for what is unpacked by its content.
    Supply {
        programs: &["tar", "bsdtar"],
        places: &[],
        commands: &["gzip", "bzip2", "xz", "zstd", "lzip", "lzma", "lzop", "compress"],
    },
    Supply {
        programs: &["cmake", "ctest", "meson"],
        places: &[],
        commands: &["cc", "c++", "make", "ninja"],
    },
    // By a line of its settings for each of them, and by what a page is written with.
    Supply {
        programs: &["man"],
        places: &["man-db"],
        commands: &[
            "preconv", "tbl", "eqn", "pic", "refer", "nroff", "troff", "groff", "pager", "less",
        ],
    },
    Supply {
        programs: &["groff", "nroff"],
        places: &[],
        commands: &["preconv", "soelim", "tbl", "eqn", "pic", "refer", "troff", "grotty", "grops"],
    },
    Supply { programs: &["dbus-run-session"], places: &[], commands: &["dbus-daemon"] },
    // `$SHELL`, which is one of these.
    Supply { programs: &["script"], places: &[], commands: &["sh", "bash"] },
];

const RUBY: &[&str] =
    &["ruby", "TRIPLE/ruby", "rubygems-integration", "TRIPLE/rubygems-integration"];

/// Its engines are named for the versions that have some: a pattern would have all names of the machine's directory read.
const OPENSSL: &[&str] = &[
    "TRIPLE/ossl-modules",
    "ossl-modules",
    "TRIPLE/engines-3",
    "engines-3",
    "TRIPLE/engines-1.1",
    "engines-1.1",
];

/// What goes with a library, by the name of its file, whatever program it is in: the modules of an
/// interpreter (`gdb` has Python's in it), what it loads by itself. Places as in [`Supply`].
pub const LIBRARIES: [(&str, &[&str]); 9] = [
    ("libpython3*", &["python3*"]),
    ("libpython2*", &["python2*"]),
    ("libperl.so*", &["TRIPLE/perl*", "perl5"]),
    ("libruby*", RUBY),
    ("libtcl*", &["tcltk", "tcl*"]),
    ("libguile-*", &["guile", "TRIPLE/guile"]),
    ("libR.so*", &["R"]),
    ("libphp*", &["php"]),
    // Its providers and engines: one that came with a module, as Python's `_ssl`, names them too.
    ("libcrypto.so*", OPENSSL),
];

/// What goes with a library.
pub fn of_library(name: &str) -> &'static [&'static str] {
    let known = LIBRARIES.iter().find(|(pattern, _)| fits(pattern, name));
    known.map_or(&[], |(_, places)| places)
}

/// Whether a name fits a pattern with `*`.
pub fn fits(pattern: &str, name: &str) -> bool {
    // Each program is held against all patterns: most differ in the first letter.
    if pattern
        .bytes()
        .next()
        .is_some_and(|first| first != b'*' && name.bytes().next() != Some(first))
    {
        return false;
    }
    let star = pattern.bytes().position(|byte| byte == b'*');
    match star.map(|at| (&pattern[..at], &pattern[at + 1..])) {
        None => pattern == name,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|name| {
            (0..=name.len())
                .filter(|at| name.is_char_boundary(*at))
                .any(|at| fits(rest, &name[at..]))
        }),
    }
}

/// Shells: what they are told by `-c` or in a file is a script.
pub fn is_shell(name: &str) -> bool {
    matches!(name, "sh" | "bash" | "rbash" | "dash" | "ash" | "zsh" | "ksh" | "mksh" | "busybox")
}

/// What a shell does itself, without a program.
pub fn is_builtin(name: &[u8]) -> bool {
    matches!(
        name,
        b":" | b"alias"
            | b"bg"
            | b"bind"
            | b"break"
            | b"cd"
            | b"compgen"
            | b"complete"
            | b"continue"
            | b"declare"
            | b"dirs"
            | b"disown"
            | b"eval"
            | b"exit"
            | b"export"
            | b"false"
            | b"fc"
            | b"fg"
            | b"getopts"
            | b"hash"
            | b"help"
            | b"history"
            | b"jobs"
            | b"let"
            | b"local"
            | b"logout"
            | b"mapfile"
            | b"popd"
            | b"pushd"
            | b"pwd"
            | b"read"
            | b"readarray"
            | b"readonly"
            | b"return"
            | b"set"
            | b"shift"
            | b"shopt"
            | b"suspend"
            | b"times"
            | b"trap"
            | b"true"
            | b"type"
            | b"typeset"
            | b"ulimit"
            | b"umask"
            | b"unalias"
            | b"unset"
            | b"wait"
            | b"."
            | b"source"
            | b"enable"
    )
}
