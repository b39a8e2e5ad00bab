//! What a Makefile has run, as text for a shell: recipes of the targets that are made, with constants in the place of
//! variables. Read, never run: what `make` would compute is not known, and left out.

use crate::words::{self, Word};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The most rules that are read, and the most variables.
const MOST_RULES: usize = 4096;
const MOST_VARIABLES: usize = 4096;
/// The most values of one variable that are kept.
const MOST_VALUES: usize = 8;
/// How far variables in values of variables are followed.
const DEEPEST: usize = 16;
/// The most texts of `$(shell …)`, and the most of what is computed while a file is read.
const MOST_TEXTS: usize = 256;
const MOST_COMPUTED: usize = 1024;
/// The longest value that is added to, and the longest recipe: lines that end in a backslash are one.
const LONGEST: usize = 64 << 10;
/// The most of all recipes, when their variables are known.
const MOST_RECIPES: usize = 16 << 20;
/// What a shell finds where something is not known: a variable that it does not know either.
const UNKNOWN: &[u8] = b"${unknown}";
/// Variables that make itself sets.
const BUILT_IN: [(&[u8], &[u8]); 9] = [
    (b"CC", b"cc"),
    (b"CXX", b"g++"),
    (b"CPP", b"$(CC) -E"),
    (b"AR", b"ar"),
    (b"AS", b"as"),
    (b"LD", b"ld"),
    (b"RM", b"rm -f"),
    (b"MAKE", b"make"),
    (b"SHELL", b"/bin/sh"),
];

/// One rule, as it is written.
#[derive(Debug, Default)]
struct Rule {
    targets: Vec<u8>,
    needs: Vec<u8>,
    recipe: Vec<Vec<u8>>,
}

/// What files of it say together.
#[derive(Debug, Default)]
pub struct Makefile {
    rules: Vec<Rule>,
    /// Each variable with all that is assigned to it: which branch of a condition counts is not followed.
    variables: HashMap<Vec<u8>, Vec<Vec<u8>>>,
    /// Those that the command line sets: no file changes them.
    given: BTreeSet<Vec<u8>>,
    /// Files that are to be read too.
    includes: Vec<Vec<u8>>,
    known: HashMap<Vec<u8>, Word>,
    /// What is run while the file is read.
    shell: Vec<Word>,
    computed: usize,
}

impl Makefile {
    /// One whose command line sets these variables.
    pub fn given(variables: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) -> Makefile {
        let mut makefile = Makefile::default();
        for (name, value) in variables {
            makefile.given.insert(name.clone());
            makefile.variables.insert(name, vec![value]);
        }
        makefile
    }

    /// Takes a text in.
    pub fn read(&mut self, text: &[u8]) {
        let mut lines = text.split(|byte| *byte == b'\n');
        let mut rule = false;
        while let Some(line) = lines.next() {
            let mut line = line.strip_suffix(b"\r").unwrap_or(line).to_vec();
            let recipe = rule && line.first() == Some(&b'\t');
            while line.ends_with(b"\\") {
                let Some(next) = lines.next() else { break };
                if recipe {
                    line.push(b'\n');
                    line.extend(next.strip_prefix(b"\t").unwrap_or(next));
                } else {
                    line.pop();
                    line.push(b' ');
                    line.extend(next.trim_ascii());
                }
            }
            if recipe {
                if let Some(rule) = self.rules.last_mut() {
                    rule.recipe.push(line[1..].to_vec());
                }
                continue;
            }
            let line = line[..comment(&line)].trim_ascii().to_vec();
            if line.is_empty() {
                continue;
            }
            let word = line.split(u8::is_ascii_whitespace).next().unwrap_or_default();
            let rest = line[word.len()..].trim_ascii().to_vec();
            match word {
                b"ifeq" | b"ifneq" | b"ifdef" | b"ifndef" | b"else" | b"endif" => {}
                b"include" | b"-include" | b"sinclude" => self.includes.push(rest),
                b"define" => {
                    let body: Vec<&[u8]> =
                        lines.by_ref().take_while(|line| line.trim_ascii() != b"endef").collect();
                    let end = rest.iter().position(|byte| matches!(byte, b' ' | b'=' | b':'));
                    self.assign(&rest[..end.unwrap_or(rest.len())], &body.join(&b'\n'), false);
                }
                b"export" | b"override" | b"private" if rest.contains(&b'=') => {
                    rule = false;
                    self.statement(&rest);
                }
                b"export" | b"unexport" | b"vpath" | b"undefine" => {}
                _ => rule = self.statement(&line),
            }
        }
    }

    /// An assignment, or a rule's first line: whether it is the latter.
    fn statement(&mut self, line: &[u8]) -> bool {
        let mut depth = 0_usize;
        for (at, byte) in line.iter().enumerate() {
            match byte {
                b'(' | b'{' => depth += 1,
                b')' | b'}' => depth = depth.saturating_sub(1),
                b'=' if depth == 0 => {
                    self.assignment(&line[..at], &line[at + 1..]);
                    return false;
                }
                b':' if depth == 0 => {
                    let colons = line[at..].iter().take_while(|byte| **byte == b':').count();
                    let rest = &line[at + colons..];
                    if rest.first() == Some(&b'=') {
                        self.assignment(&line[..at], &rest[1..]);
                        return false;
                    }
                    return self.rule(&line[..at], rest);
                }
                _ => {}
            }
        }
        // `$(eval …)`, `$(info …)`, `$(error …)`.
        if line.starts_with(b"$") {
            let _ = self.computed(line);
        }
        false
    }

    /// What is computed while a file is read.
    fn computed(&mut self, text: &[u8]) -> Word {
        self.computed += 1;
        if self.computed > MOST_COMPUTED { Word::unknown() } else { self.expand(text, 0) }
    }

    fn assignment(&mut self, name: &[u8], value: &[u8]) {
        let name = name.trim_ascii();
        let kind = name.last().copied().unwrap_or_default();
        let name = name.strip_suffix(&[kind]).filter(|_| b"?+!".contains(&kind)).unwrap_or(name);
        let (name, value) = (name.trim_ascii(), value.trim_ascii());
        if kind != b'!' {
            self.assign(name, value, kind == b'+');
        }
        // What is assigned at once is computed at once.
        if kind == b'!' || memchr::memmem::find(value, b"(shell ").is_some() {
            let text = self.computed(value);
            if kind == b'!' {
                self.runs(text);
            }
        }
    }

    fn assign(&mut self, name: &[u8], value: &[u8], adds: bool) {
        let room = self.variables.len() < MOST_VARIABLES || self.variables.contains_key(name);
        if self.given.contains(name) || name.is_empty() || !room {
            return;
        }
        self.known.clear();
        let values = self.variables.entry(name.to_vec()).or_default();
        if let Some(last) = values.last_mut().filter(|last| adds && last.len() < LONGEST) {
            last.push(b' ');
            last.extend_from_slice(value);
        } else if values.len() < MOST_VALUES {
            values.push(value.to_vec());
        }
    }

    fn rule(&mut self, targets: &[u8], rest: &[u8]) -> bool {
        // `target: NAME = value`
        let name = rest.split(|byte| *byte == b'=').next().unwrap_or_default().trim_ascii();
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.?+:".contains(byte);
        if rest.contains(&b'=') && !name.is_empty() && name.iter().all(plain) {
            self.statement(rest.trim_ascii());
            return false;
        }
        if self.rules.len() >= MOST_RULES {
            return false;
        }
        let mut parts = rest.splitn(2, |byte| *byte == b';');
        let needs = parts.next().unwrap_or_default().to_vec();
        let recipe = parts.next().map(|recipe| recipe.trim_ascii().to_vec()).into_iter().collect();
        self.rules.push(Rule { targets: targets.trim_ascii().to_vec(), needs, recipe });
        true
    }

    /// The files that it has read too, each once.
    pub fn includes(&mut self) -> Vec<Vec<u8>> {
        let mut raw = std::mem::take(&mut self.includes);
        raw.truncate(MOST_TEXTS);
        let names = raw.iter().flat_map(|raw| self.words(raw));
        names.collect::<Vec<_>>().into_iter().filter(|name| !is_unknown(name)).collect()
    }

    /// What is run to make targets (the first one, where none is named), and while the files are read.
    pub fn texts(&mut self, targets: &[Vec<u8>]) -> Vec<Word> {
        let rules = std::mem::take(&mut self.rules);
        let mut heads = Vec::new();
        for rule in &rules {
            heads.push((self.words(&rule.targets), self.words(&rule.needs)));
        }
        let usual = |name: &&Vec<u8>| !name.starts_with(b".") && !name.contains(&b'%');
        let first = || heads.iter().find_map(|(targets, _)| targets.iter().find(usual));
        let mut waiting: Vec<Vec<u8>> = match targets {
            [] => first().into_iter().cloned().collect(),
            _ => targets.to_vec(),
        };
        // Which of those with a pattern or a computed name make what is wanted is not followed, nor is what is wanted then.
        let mut by_target: BTreeMap<&[u8], Vec<usize>> = BTreeMap::new();
        let mut taken: BTreeSet<usize> = BTreeSet::new();
        for (at, (targets, needs)) in heads.iter().enumerate() {
            if targets
                .iter()
                .any(|name| name.contains(&b'%') || is_unknown(name) || is_suffix(name))
            {
                taken.insert(at);
                waiting.extend(needs.iter().cloned());
            }
            for name in targets {
                by_target.entry(name).or_default().push(at);
            }
        }
        let mut wanted: BTreeSet<Vec<u8>> = BTreeSet::new();
        while let Some(name) = waiting.pop() {
            if is_unknown(&name) {
                taken.extend(0..heads.len());
                break;
            }
            if !wanted.insert(name.clone()) {
                continue;
            }
            for &at in by_target.get(name.as_slice()).into_iter().flatten() {
                if taken.insert(at) {
                    waiting.extend(heads[at].1.iter().cloned());
                }
            }
        }
        let mut texts = Vec::new();
        let mut length = 0;
        for line in taken.into_iter().flat_map(|at| &rules[at].recipe) {
            let text = self.expand_to(line, 0, LONGEST).map(commands);
            length += text.values().iter().map(Vec::len).sum::<usize>();
            if length > MOST_RECIPES {
                break;
            }
            texts.push(text);
        }
        texts.append(&mut self.shell);
        texts
    }

    /// The words of a list, in all of its values.
    fn words(&mut self, raw: &[u8]) -> Vec<Vec<u8>> {
        let text = self.expand(raw, 0);
        let parts = text.values().iter().flat_map(|value| value.split(u8::is_ascii_whitespace));
        parts.filter(|word| !word.is_empty()).map(<[u8]>::to_vec).collect()
    }

    fn runs(&mut self, text: Word) {
        if self.shell.len() < MOST_TEXTS && !self.shell.contains(&text) {
            self.shell.push(text);
        }
    }

    fn expand(&mut self, raw: &[u8], depth: usize) -> Word {
        self.expand_to(raw, depth, words::LONGEST)
    }

    fn expand_to(&mut self, raw: &[u8], depth: usize, longest: usize) -> Word {
        let mut word = Word::text(b"");
        let mut rest = raw;
        while let Some(at) = memchr::memchr(b'$', rest) {
            word.join(&Word::text(&rest[..at]), longest);
            rest = &rest[at + 1..];
            match rest.first() {
                Some(b'$') => {
                    word.join(&Word::text(b"$"), longest);
                    rest = &rest[1..];
                }
                Some(open @ (b'(' | b'{')) => {
                    let end = close(rest, *open);
                    let inner = &rest[1..end.unwrap_or(rest.len())];
                    let value = self.reference(inner, depth);
                    word.join(&value, longest);
                    rest = end.map_or(&[][..], |end| &rest[end + 1..]);
                }
                Some(name) => {
                    let value = self.variable(&[*name], depth);
                    word.join(&value, longest);
                    rest = &rest[1..];
                }
                None => {}
            }
        }
        word.join(&Word::text(rest), longest);
        word
    }

    fn reference(&mut self, inner: &[u8], depth: usize) -> Word {
        if depth >= DEEPEST {
            return Word::text(UNKNOWN);
        }
        let space = inner.iter().position(u8::is_ascii_whitespace);
        let Some(space) = space else {
            let computed = inner.contains(&b'$') || inner.contains(&b':');
            return if computed { Word::text(UNKNOWN) } else { self.variable(inner, depth) };
        };
        let text = self.expand(inner[space..].trim_ascii(), depth + 1);
        if &inner[..space] == b"shell" {
            self.runs(text);
        }
        Word::text(UNKNOWN)
    }

    /// What a variable can be; one that nothing sets is empty.
    fn variable(&mut self, name: &[u8], depth: usize) -> Word {
        if let Some(known) = self.known.get(name) {
            return known.clone();
        }
        let (first, last) = (name.first().copied(), name.last().copied());
        let automatic = first.is_some_and(|first| b"@<^?*+|%".contains(&first))
            && (name.len() == 1 || name.len() == 2 && matches!(last, Some(b'D' | b'F')));
        if automatic || depth >= DEEPEST {
            return Word::text(UNKNOWN);
        }
        let built_in =
            || BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_vec());
        let values = self.variables.get(name).cloned();
        let values = values.unwrap_or_else(|| built_in().into_iter().collect());
        // One that is made of itself is not known.
        self.known.insert(name.to_vec(), Word::text(UNKNOWN));
        let mut word: Option<Word> = None;
        for value in &values {
            let value = self.expand(value, depth + 1);
            word = Some(word.map_or(value.clone(), |word| word.or(&value)));
        }
        let word = word.unwrap_or_else(|| Word::text(b""));
        self.known.insert(name.to_vec(), word.clone());
        word
    }
}

fn is_unknown(name: &[u8]) -> bool {
    memchr::memmem::find(name, UNKNOWN).is_some()
}

/// `.c.o`: an old rule for all names with these ends.
fn is_suffix(name: &[u8]) -> bool {
    name.first() == Some(&b'.') && name[1..].contains(&b'.') && !name.contains(&b'/')
}

/// A recipe's lines without what tells make how to run them.
fn commands(text: &[u8]) -> Vec<u8> {
    let mut goes_on = false;
    let lines = text.split(|byte| *byte == b'\n').map(|line| {
        let own = |byte: &u8| !b"@-+ \t".contains(byte);
        let start = if goes_on { 0 } else { line.iter().position(own).unwrap_or(line.len()) };
        goes_on = line.ends_with(b"\\");
        &line[start..]
    });
    lines.collect::<Vec<_>>().join(&b'\n')
}

/// Where a comment begins.
fn comment(line: &[u8]) -> usize {
    let marks = memchr::memchr_iter(b'#', line);
    let mut own = marks.filter(|at| *at == 0 || line[at - 1] != b'\\');
    own.next().unwrap_or(line.len())
}

/// Where the bracket that opens a text is closed.
fn close(text: &[u8], open: u8) -> Option<usize> {
    let end = if open == b'(' { b')' } else { b'}' };
    let mut depth = 0_usize;
    for (at, byte) in text.iter().enumerate() {
        if *byte == open {
            depth += 1;
        } else if *byte == end {
            depth -= 1;
            if depth == 0 {
                return Some(at);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, targets: &[&str]) -> Vec<String> {
        let mut makefile = Makefile::default();
        makefile.read(text.as_bytes());
        let targets: Vec<Vec<u8>> = targets.iter().map(|name| name.as_bytes().to_vec()).collect();
        let texts = makefile.texts(&targets);
        let values = texts.iter().flat_map(Word::values);
        values.map(|value| String::from_utf8_lossy(value).into_owned()).collect()
    }

    #[test]
    fn recipes_of_what_is_made_are_told_with_constants() {
        let text = "TOOL = xz -9\nall: a b ; @echo all\na: c\n\t@$(TOOL) $@ $$HOME\nb:\n\t-git x \\\n\t  y\n\
                    c:\n\t+$(RM) c\nother:\n\tcurl x\n";
        assert_eq!(
            of(text, &[]),
            ["echo all", "xz -9 ${unknown} $HOME", "git x \\\n  y", "rm -f c"]
        );
        assert_eq!(of(text, &["other"]), ["curl x"]);
        assert_eq!(of(text, &["c", "other"]), ["rm -f c", "curl x"]);
        assert_eq!(
            of("a:\n\tone\nifdef X\nT=two\nelse\nT=three\nendif\na: T2 = 1\nb:\n\t$(T)\n", &["b"]),
            ["two", "three"]
        );
        assert_eq!(
            of("%.o: %.c\n\tcc -c $<\nall: x.o\n\tld $^\n", &[]),
            ["cc -c ${unknown}", "ld ${unknown}"]
        );
    }

    #[test]
    fn what_is_run_while_it_is_read_is_told_too() {
        assert_eq!(
            of("V := $(shell git describe)\nall:\n\techo $(V)\n", &[]),
            ["echo ${unknown}", "git describe"]
        );
        assert_eq!(of("V != git describe\n", &[]), ["git describe"]);
        assert_eq!(of("$(info $(shell uname))\n", &[]), ["uname"]);
        assert_eq!(of("define cmds\n@one\ntwo\nendef\nall:\n\t$(cmds)\n", &[]), ["one\ntwo"]);
        // What is needed is not known: all rules.
        assert_eq!(of("all: $(wildcard x/*)\n\tone\nb:\n\ttwo\n", &[]), ["one", "two"]);
        assert_eq!(of("$(Q)x = 1\nall:\n\t$(Q)one\n", &[]), ["one"]);
    }

    #[test]
    fn hostile_ones_end() {
        let mut text = String::from("A0 = x\n");
        for at in 1..200 {
            text += &format!("A{at} = {}\n", format!("$(A{})", at - 1).repeat(50));
        }
        let _ = of(&format!("{text}all:\n\t$(A199)\n"), &[]);
        assert_eq!(of("A = $(B)\nB = $(A)\nall:\n\tx $(A)\n", &[]), ["x ${unknown}"]);
        let _ = of(&format!("all:\n\t{}x\n", "$(".repeat(100_000)), &[]);
        let _ = of(&format!("{}\n", "$(shell ".repeat(100_000)), &[]);
        let many: String = (0..20_000).map(|at| format!("t{at}: t{}\n\tx\n", at + 1)).collect();
        assert_eq!(of(&many, &[]).len(), MOST_RULES);
        for length in 0..64 {
            let _ = of(&"a: b=\\\n\t$(shell $(x${y}) define z\\"[..length.min(30)], &[]);
        }
        assert!(of("all:\n\tone\\", &[]).len() == 1);
        // Each computes anew what is long.
        let adds =
            "B += xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\nA != $(B) $(shell x $(B))\n".repeat(20_000);
        assert!(of(&adds, &[]).len() <= 8 * MOST_TEXTS);
    }
}
