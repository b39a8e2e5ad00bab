//! A command line for a file that others may read: without the credentials in it.

use ringfence_policy::secrets::hidden;

/// What stands in the place of one.
const MASK: &str = "***";

/// The words of a command line in one line, credentials in them masked: what follows a name that is one's, in an option, a
/// variable, a header or a request, in addresses before the `@`, and what begins as the tokens of known services do.
pub fn line(words: &[String]) -> String {
    let program = words.first().and_then(|word| word.rsplit('/').next()).unwrap_or_default();
    let mut before = "";
    let mut line = Vec::new();
    for word in words {
        line.push(match () {
            () if before.starts_with('-') && is_secret(before) && !word.starts_with('-') => {
                MASK.to_owned()
            }
            () if is_login(before) => login(word),
            () => short(program, before, word).unwrap_or_else(|| masked(word)),
        });
        before = word;
    }
    line.join(" ")
}

/// Passwords by options of one letter, of programs that have them.
fn short(program: &str, before: &str, word: &str) -> Option<String> {
    const BY_P: [&str; 6] =
        ["sshpass", "mysql", "mysqldump", "mysqladmin", "mariadb", "mariadb-dump"];
    if !BY_P.contains(&program) {
        return None;
    }
    if before == "-p" && program == "sshpass" {
        return Some(MASK.to_owned());
    }
    (word.starts_with("-p") && word.len() > 2).then(|| format!("-p{MASK}"))
}

/// Whether an option takes `USER:PASSWORD`.
fn is_login(option: &str) -> bool {
    matches!(option, "-u" | "--user" | "-U" | "--proxy-user")
}

fn login(word: &str) -> String {
    match word.split_once(':') {
        Some((user, _)) => format!("{user}:{MASK}"),
        None => masked(word),
    }
}

/// Whether a name of an option, a variable, a header or a parameter is a credential's.
fn is_secret(name: &str) -> bool {
    let name = name.trim_start_matches('-').to_ascii_uppercase().replace(['-', '.'], "_");
    let others = [
        "AUTHORIZATION",
        "PROXY_AUTHORIZATION",
        "SET_COOKIE",
        "KEY",
        "PW",
        "SIG",
        "SIGNATURE",
        "CREDS",
    ];
    others.contains(&name.as_str()) || hidden(&name).is_some_and(|why| why.contains("credential"))
}

/// One word, which may be a whole script.
fn masked(word: &str) -> String {
    known(&spaced(&named(&addresses(word))))
}

fn is_quote(c: char) -> bool {
    matches!(c, '"' | '\'' | '`')
}

/// Without what stands before the `@` of an address: with a password, or, on the web, of any kind.
fn addresses(text: &str) -> String {
    let (mut masked, mut rest) = (String::new(), text);
    while let Some(at) = rest.find("://") {
        let (scheme, behind) = rest.split_at(at + 3);
        masked.push_str(scheme);
        let ends = |c: char| matches!(c, '/' | '?' | '#') || c.is_whitespace() || is_quote(c);
        let authority = &behind[..behind.find(ends).unwrap_or(behind.len())];
        // A password may have in it what ends the name of a host.
        let whole = &behind
            [..behind.find(|c: char| c.is_whitespace() || is_quote(c)).unwrap_or(behind.len())];
        let web = scheme.to_ascii_lowercase().ends_with("http://")
            || scheme.to_ascii_lowercase().ends_with("https://");
        let within = authority
            .rfind('@')
            .or_else(|| whole.rfind('@').filter(|_| authority.contains(':') && !web));
        rest = match within.filter(|end| web || behind[..*end].contains(':')) {
            Some(end) => {
                masked.push_str(MASK);
                &behind[end..]
            }
            None => behind,
        };
    }
    masked + rest
}

/// Without what follows `NAME=`, `NAME:` or `"NAME":`, where the name is a credential's.
fn named(text: &str) -> String {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let (mut masked, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(['=', ':']) {
        let before = rest[..at].trim_end_matches([' ', '"', '\'']);
        let from = before
            .rfind(|c: char| !is_name(c))
            .map_or(0, |from| from + before[from..].chars().next().map_or(1, char::len_utf8));
        let header = rest[at..].starts_with(':');
        let behind = &rest[at + 1..];
        if !is_secret(&before[from..]) || behind.starts_with("//") {
            masked.push_str(&rest[..=at]);
            rest = behind;
            continue;
        }
        let blanks = behind.len() - behind.trim_start_matches(' ').len();
        let value = &behind[if header { blanks } else { 0 }..];
        let quote = value.chars().next().filter(|c| is_quote(*c));
        let end = match quote {
            Some(quote) => value[1..].find(quote).map_or(value.len(), |end| end + 2),
            // The word is the name and its value.
            None if masked.is_empty() && from == 0 => value.len(),
            None if header => value.find(|c| is_quote(c) || c == '\n').unwrap_or(value.len()),
            None => {
                let ends = |c: char| {
                    c.is_whitespace() || is_quote(c) || matches!(c, '&' | ';' | '|' | ')')
                };
                value.find(ends).unwrap_or(value.len())
            }
        };
        masked.push_str(&rest[..=at]);
        masked.push_str(if end > 0 { MASK } else { "" });
        rest = &value[end..];
    }
    masked + rest
}

/// The same of what follows an option in a script, and of what a header has behind its scheme.
fn spaced(text: &str) -> String {
    let (mut masked, mut before) = (String::new(), String::new());
    let mut quoted: Option<char> = None;
    for part in text.split_inclusive(char::is_whitespace) {
        let word = part.trim_end();
        let blank = &part[word.len()..];
        if let Some(quote) = quoted {
            quoted = (!word.contains(quote)).then_some(quote);
            continue;
        }
        let plain = before.trim_matches(is_quote);
        let option = plain.starts_with('-') && is_secret(plain) && !word.starts_with('-');
        let scheme = ["bearer", "basic"].iter().any(|scheme| plain.eq_ignore_ascii_case(scheme));
        if (option || scheme) && !word.is_empty() {
            masked.push_str(MASK);
            masked.push_str(blank);
            let quote = word.chars().next().filter(|c| is_quote(*c));
            quoted = quote.filter(|quote| !word[1..].contains(*quote));
        } else if is_login(plain) && word.contains(':') {
            masked.push_str(&login(word));
            masked.push_str(blank);
        } else {
            masked.push_str(part);
        }
        if !word.is_empty() {
            before = word.to_owned();
        }
    }
    masked
}

/// Without what begins as tokens of known services do.
fn known(text: &str) -> String {
    const BEGIN: [&str; 13] = [
        "ghp_",
        "gho_",
        "ghu_",
        "ghs_",
        "github_pat_",
        "glpat-",
        "sk-",
        "xoxb-",
        "xoxp-",
        "AKIA",
        "eyJ",
        "npm_",
        "hf_",
    ];
    const LEAST: usize = 16;
    let is_token = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let mut masked = String::new();
    let mut rest = text;
    while let Some(from) = rest.find(is_token) {
        let end = rest[from..].find(|c| !is_token(c)).map_or(rest.len(), |end| from + end);
        let token = &rest[from..end];
        let one = token.len() >= LEAST && BEGIN.iter().any(|begin| token.starts_with(begin));
        masked.push_str(&rest[..from]);
        masked.push_str(if one { MASK } else { token });
        rest = &rest[end..];
    }
    masked + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_credential_of_a_command_line_is_kept() {
        for words in [
            &["curl", "-H", "Authorization: Bearer SEKRIT", "x.org"][..],
            &["curl", "-H", "X-Api-Key:SEKRIT"],
            &["curl", "--header=Authorization: token SEKRIT"],
            &["curl", "-u", "me:SEKRIT", "x.org"],
            &["git", "clone", "https://me:SEKRIT@x.org/y"],
            &["git", "clone", "https://SEKRIT@x.org/y"],
            &["psql", "postgres://me:SEK/SEKRIT@x.org/y"],
            &["tool", "--token", "SEKRIT"],
            &["tool", "-token", "SEKRIT"],
            &["tool", "--api-key=SEKRIT"],
            &["tool", "--password=a SEKRIT"],
            &["env", "DB_PASSWORD=a b SEKRIT", "tool"],
            &["sh", "-c", "PASSWORD=SEKRIT tool; x"],
            &["sh", "-c", "PASSWORD='a SEKRIT' tool"],
            &["sh", "-c", "curl -H \"Authorization: Bearer SEKRIT\" x.org"],
            &["sh", "-c", "curl -H 'Authorization: Basic SEKRIT' x.org"],
            &["sh", "-c", "tool --token SEKRIT x"],
            &["sh", "-c", "tool --token 'a SEKRIT' x"],
            &["sh", "-c", "curl -u me:SEKRIT x.org"],
            &["sh", "-c", "echo Bearer SEKRIT"],
            &["curl", "x.org/?a=b&access_token=SEKRIT&c=d"],
            &["curl", "-d", "{\"user\": \"u\", \"password\": \"SEKRIT\"}"],
            &["curl", "-d", "{\"a\":1,\"apiKey\":\"SEKRIT\"}"],
            &["sshpass", "-p", "SEKRIT", "ssh", "x"],
            &["mysql", "-pSEKRIT", "x"],
            &["tool", "ghp_SEKRITSEKRITSEKRIT"],
            &["tool", "eyJhbGciOi.SEKRIT.xxxxxxxx"],
        ] {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let line = line(&words);
            assert!(!line.contains("SEKRIT") && line.contains(MASK), "{line}");
        }
    }

    #[test]
    fn what_is_none_stays() {
        for text in [
            "npm config get registry",
            "git clone https://x.org/y#a@b",
            "git clone ssh://git@x.org/y",
            "ls -p a mkdir -p b/c",
            "curl -H Accept: text/html x.org:80",
            "sh -c a=b c:d; echo é=ü \"x\":'y' ::= :",
            "tool --token",
            "docker run -u 1000 -p 80:80 a@sha256:ab",
            "sk-x AKI eyJ",
        ] {
            let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
            assert_eq!(line(&words), text);
            assert_eq!(line(&[text.to_owned()]), text);
        }
    }

    /// What a user types may be anything.
    #[test]
    fn odd_words_are_masked_too() {
        const ODD: [&str; 12] =
            ["=", ":", "\"", "'", " ", "é", "--token", "://", "@", "bearer", "\n", "\u{2028}"];
        let mut texts = vec![String::new()];
        for _ in 0..4 {
            let longer = |text: &String| ODD.map(|odd| format!("{text}{odd}"));
            texts = texts.iter().flat_map(longer).collect();
            for text in &texts {
                let words = ["sshpass", "-p", text, "--key", text].map(str::to_owned);
                assert!(line(&words).starts_with("sshpass -p *** --key"), "{text}");
                assert!(!masked(&format!("{text} TOKEN=SEKRIT")).contains("SEKRIT"), "{text}");
            }
        }
    }
}
