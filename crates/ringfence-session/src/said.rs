//! What programs inside say of a failure, as a reason that people read: without the name of the shell that ran them,
//! its line numbers, and what it was about, which the caller knows better.

/// As long as a reason may be, in characters.
const MOST: usize = 300;

/// What ringfence itself says there, of the run or the session.
const OWN: &str = "ringfence: ";

/// Shells that have words of their own for what the kernel says.
const WORDS: [(&str, &str); 2] = [
    ("No such file", "No such file or directory"),
    ("Directory nonexistent", "its directory does not exist there"),
];

/// The reason in what a program wrote to standard error when it failed; none where it said nothing.
pub fn reason(said: &[u8]) -> Option<String> {
    let said = String::from_utf8_lossy(said);
    let telling = |line: &&str| !line.is_empty() && !line.contains("warning: ");
    let lines = said.lines().map(str::trim).filter(telling);
    let (own, lines): (Vec<_>, Vec<_>) = lines.partition(|line| line.starts_with(OWN));
    // Its last words are that it ends; the first ones name what it could not do.
    let tar = lines.iter().find_map(|line| {
        let (program, words) = line.split_once(": ")?;
        (program == "tar" || program.ends_with("/tar")).then_some(words)
    });
    let last = |line: &&'_ str| line.rsplit_once(": ").map_or(*line, |(_, why)| why).to_owned();
    let theirs = tar.map(str::to_owned).or_else(|| lines.last().map(last));
    let theirs = theirs.map(|why| match WORDS.iter().find(|(word, _)| *word == why) {
        Some((_, words)) => (*words).to_owned(),
        None => why,
    });
    let own = own.last().and_then(|line| line.strip_prefix(OWN)).map(str::to_owned);
    let both: Vec<String> = theirs.into_iter().chain(own).collect();
    (!both.is_empty()).then(|| both.join("; ").chars().take(MOST).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_has_no_shell_in_it() {
        for (said, expected) in [
            ("", None),
            (" \n\n", None),
            ("cp: 1: cannot open /x: Permission denied\n", Some("Permission denied")),
            ("sh: line 1: /x: No such file or directory\n", Some("No such file or directory")),
            ("sh: 1: cannot open /x: No such file\n", Some("No such file or directory")),
            ("sh: 1: cannot create /a/x: Directory nonexistent\n", Some(WORDS[1].1)),
            ("bash: warning: setlocale: no\ncat: write error: Broken pipe\n", Some("Broken pipe")),
            ("bash: warning: setlocale: no\n", None),
            ("ringfence: there is no session x; y: z\n", Some("there is no session x; y: z")),
            ("sh: 1: cannot open /x: No\nringfence: it is new\n", Some("No; it is new")),
            (
                "tar: ./a: Cannot open: Permission denied\ntar: Exiting with failure status\n",
                Some("./a: Cannot open: Permission denied"),
            ),
            ("what: it says\nbroken\n", Some("broken")),
        ] {
            assert_eq!(reason(said.as_bytes()).as_deref(), expected, "{said}");
        }
        assert_eq!(reason(&[b'x'; 5000]).map(|reason| reason.len()), Some(MOST));
    }
}
