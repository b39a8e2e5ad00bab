//! Which commands the scanner finds in scripts.
#![allow(missing_docs, clippy::unwrap_used)]

use ringfence_learn::shell::scan;
use ringfence_learn::words::Variables;

/// The commands as text; a word that is not known is `?`, several values are joined by `|`.
fn commands(text: &str) -> Vec<String> {
    let known = [(b"HOME".to_vec(), b"/home/u".to_vec())];
    let script = scan(text.as_bytes(), &mut Variables::new(known));
    let word = |values: &[Vec<u8>]| match values {
        [] => "?".to_owned(),
        values => {
            let texts = values.iter().map(|value| String::from_utf8_lossy(value).into_owned());
            texts.collect::<Vec<_>>().join("|")
        }
    };
    let command = |words: &Vec<_>| {
        let words: Vec<String> =
            words.iter().map(|w: &ringfence_learn::words::Word| word(w.values())).collect();
        words.join(" ")
    };
    script.commands.iter().map(command).collect()
}

#[test]
fn simple_commands_pipes_and_lists() {
    assert_eq!(commands("ls /x | wc -l; a && b || c & d"), ["ls /x", "wc -l", "a", "b", "c", "d"]);
    assert_eq!(commands("a \\\n b # c\n'd e' \"f\"g"), ["a b", "d e fg"]);
    assert_eq!(commands("X=1 Y=2 cmd z"), ["cmd z"]);
    assert_eq!(commands("2>&1 a >/dev/null 2>err <in b &>c"), ["a b"]);
}

#[test]
fn compound_commands() {
    assert_eq!(commands("if a; then b; elif c; then d; else e; fi"), ["a", "b", "c", "d", "e"]);
    assert_eq!(commands("while a; do b; done; until c; do d; done"), ["a", "b", "c", "d"]);
    assert_eq!(commands("for x in y z; do $x; done"), ["y|z"]);
    assert_eq!(commands("for ((i=0; i<$(n); i++)); do b; done"), ["n", "b"]);
    assert_eq!(commands("{ a; }; (b; c)"), ["a", "b", "c"]);
    assert_eq!(commands("! a; time b"), ["a", "b"]);
    let script = scan(b"f() { a; }\nfunction g { b; }\nf; g", &mut Variables::default());
    assert_eq!(script.functions, [b"f", b"g"]);
}

#[test]
fn cases() {
    let text = "case $x in\n  a|b) one ;;\n (c) two;; *) three\nesac\nfour";
    assert_eq!(commands(text), ["one", "two", "three", "four"]);
    assert_eq!(commands("case a in a) b;; esac; c"), ["b", "c"]);
    assert_eq!(commands("case a in esac; c"), ["c"]);
    assert_eq!(commands("x=$(case a in a) b;; esac); c"), ["b", "c"]);
}

#[test]
fn substitutions_are_looked_into() {
    assert_eq!(
        commands("echo $(a `b c`) \"$(d \"$(e)\")\""),
        ["b c", "a ?", "e", "d ?", "echo ? ?"]
    );
    assert_eq!(commands("diff <(a) <(b)"), ["a", "b", "diff"]);
    assert_eq!(commands("x=`a \\`b\\``"), ["b", "a ?"]);
    assert_eq!(commands("echo $((1 + $(a) * (2))) b"), ["a", "echo ? b"]);
    assert_eq!(commands("echo ${x:-$(a)}"), ["a", "echo ?"]);
}

#[test]
fn here_documents_are_no_commands() {
    assert_eq!(commands("cat <<E\nrm $(a)\nE\nb"), ["cat", "a", "b"]);
    assert_eq!(commands("cat <<'E'\nrm $(a)\nE\nb"), ["cat", "b"]);
    assert_eq!(commands("cat <<-E\n\tx\n\tE\nb"), ["cat", "b"]);
    assert_eq!(commands("cat <<A <<B\nx\nA\ny\nB\nb"), ["cat", "b"]);
    assert_eq!(commands("cat <<<x\nb"), ["cat", "b"]);
}

#[test]
fn constants_are_followed() {
    assert_eq!(commands("D=/opt/x\n$D/bin/run \"${D}/a\""), ["/opt/x/bin/run /opt/x/a"]);
    assert_eq!(commands("T=${T:-gcc}; $T -c"), ["gcc -c"]);
    assert_eq!(commands("T=a\nif b; then T=c; fi\n$T"), ["b", "a|c"]);
    assert_eq!(commands("T=$(a); $T"), ["a", "?"]);
    assert_eq!(commands("P=/a/b/c; ${P%/*} ${P##*/}"), ["/a/b c"]);
    assert_eq!(commands("~/x $HOME/y"), ["/home/u/x /home/u/y"]);
    assert_eq!(commands("a=(b $(c)); d"), ["c", "d"]);
}

#[test]
fn tests_are_no_commands() {
    assert_eq!(commands("[[ -f a && $(b) < c ]] && d"), ["b", "d"]);
    assert_eq!(commands("[ a = b ] && c"), ["[ a = b ]", "c"]);
}

#[test]
fn hostile_scripts_end() {
    let deep = "$(".repeat(100_000);
    assert!(scan(deep.as_bytes(), &mut Variables::default()).incomplete);
    for text in [
        "(",
        "((",
        "${",
        "`",
        "\"",
        "'",
        "<<",
        "<<E",
        "case",
        "case x in",
        "for",
        "[[",
        "a=(",
        "\\",
        "$",
        "${x:-${",
        ")",
        "}",
        ";;",
        "&>",
        "<(",
        "$((",
        "\"$((",
        "${a:-$((",
        "x[",
        "function",
        "f(",
    ] {
        for repeated in [1, 2, 3, 5_000] {
            let _ = commands(&text.repeat(repeated));
            let _ = commands(&format!("{} x", format!("{text} ").repeat(repeated)));
        }
    }
    let grows = format!("a=xx\n{}$a", "a=$a$a$a$a\n".repeat(1000));
    let _ = commands(&grows);
}

#[test]
fn what_a_shell_reads_is_read() {
    assert_eq!(commands("sh <<E; a\nb c\nE\nd"), ["sh", "a", "b c", "d"]);
    assert_eq!(commands("bash -e <<-'E'\n\tb $x\n\tE\n"), ["bash -e", "b ?"]);
    assert_eq!(commands("/bin/sh -s 1 <<E\nb\nE\n"), ["/bin/sh -s 1", "b"]);
    assert_eq!(commands("bash <<<'b c'"), ["b c", "bash"]);
    assert_eq!(commands("X='b c'; bash <<< \"$X\""), ["b c", "bash"]);
    // It reads something else, or is no shell.
    assert_eq!(commands("sh -c x <<E\nb\nE\n"), ["sh -c x"]);
    assert_eq!(commands("sh file <<E\nb\nE\n"), ["sh file"]);
    assert_eq!(commands("cat <<E\nb $(c)\nE\n"), ["cat", "c"]);
    assert_eq!(commands("cat <<<'b c'"), ["cat"]);
    let itself = "X='sh <<<$X; sh <<<$X; sh <<<$X'\nsh <<<$X\n";
    assert!(commands(itself).len() <= 4096, "it ends");
}
