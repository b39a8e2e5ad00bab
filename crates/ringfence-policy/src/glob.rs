//! Wildcards: `*` and `?` within a component, `**` across components.

/// Whether a name matches a pattern of `*` and `?`; a slash is a character like any other.
/// Linear in the name for each `*`, so that no pattern takes exponential time.
pub fn name(pattern: &[u8], name: &[u8]) -> bool {
    matches(pattern, name, |byte| [byte; 2])
}

/// Whether a name matches a pattern, the case of ASCII letters aside.
pub fn name_ignoring_case(pattern: &str, text: &str) -> bool {
    let forms = |byte: u8| [byte.to_ascii_lowercase(), byte.to_ascii_uppercase()];
    matches(pattern.as_bytes(), text.as_bytes(), forms)
}

/// With the forms of a pattern's byte that a name may have.
fn matches(pattern: &[u8], name: &[u8], forms: impl Fn(u8) -> [u8; 2]) -> bool {
    let same = |byte: u8, found: u8| forms(byte).contains(&found);
    // A start holds some thousand names against patterns: most end otherwise.
    let ends =
        |byte: u8| matches!(byte, b'*' | b'?') || name.last().is_some_and(|&end| same(byte, end));
    if !pattern.last().is_none_or(|&byte| ends(byte)) {
        return false;
    }
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p, n));
            p += 1;
        } else if pattern.get(p).is_some_and(|&byte| byte == b'?' || same(byte, name[n])) {
            p += 1;
            n += 1;
        } else if let Some((at, matched)) = star {
            p = at + 1;
            n = matched + 1;
            // On to where what is behind the star begins.
            if let Some(&byte) = pattern.get(p).filter(|byte| !matches!(byte, b'*' | b'?')) {
                let [one, other] = forms(byte);
                let begins = |&found: &u8| found == one || found == other;
                let Some(ahead) = name[n..].iter().position(begins) else { return false };
                n += ahead;
            }
            star = Some((at, n));
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

/// Whether a pattern covers a path below its anchor: it matches the path, or a directory above
/// it (a denied directory is denied with all that is in it).
pub fn covers(pattern: &str, below: &[u8]) -> bool {
    let pattern: Vec<&[u8]> = pattern.split('/').map(str::as_bytes).collect();
    let path: Vec<&[u8]> =
        below.split(|&byte| byte == b'/').filter(|part| !part.is_empty()).collect();
    // `reach[i]`: the pattern's first i components match what was read of the path.
    let mut reach = vec![false; pattern.len() + 1];
    reach[0] = true;
    skip_stars(&pattern, &mut reach);
    for part in path {
        let mut next = vec![false; pattern.len() + 1];
        for (index, component) in pattern.iter().enumerate() {
            if !reach[index] {
                continue;
            }
            if *component == b"**" {
                next[index] = true;
            } else if name(component, part) {
                next[index + 1] = true;
            }
        }
        skip_stars(&pattern, &mut next);
        if next[pattern.len()] {
            return true;
        }
        reach = next;
    }
    false
}

/// A `**` also matches no component at all.
fn skip_stars(pattern: &[&[u8]], reach: &mut [bool]) {
    for (index, component) in pattern.iter().enumerate() {
        if reach[index] && *component == b"**" {
            reach[index + 1] = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match() {
        assert!(name(b"ssh_host_*_key", b"ssh_host_ed25519_key"));
        assert!(!name(b"ssh_host_*_key", b"ssh_host_ed25519_key.pub"));
        assert!(name(b"?.env", b"a.env") && !name(b"?.env", b".env"));
        assert!(name(b"*", b"") && !name(b"", b"a"));
        assert!(name(b"*ab?c*", b"aaababxc") && !name(b"*ab?c", b"aaababxcd"));
        assert!(name(b"a*a", b"aa") && !name(b"a*a", b"a") && !name(b"*_KEY", b"KEY_"));
        assert!(name_ignoring_case("*_TOKEN", "npm_token"));
    }

    #[test]
    fn a_pattern_covers_what_it_names_and_all_below() {
        assert!(covers("*.pem", b"a.pem") && covers("*.pem", b"a.pem/inside"));
        assert!(!covers("*.pem", b"sub/a.pem"));
        assert!(covers("**/*.pem", b"a.pem") && covers("**/*.pem", b"x/y/a.pem"));
        assert!(covers("a/**/b", b"a/b") && covers("a/**/b", b"a/x/y/b/c"));
        assert!(!covers("a/**/b", b"a/x/y") && !covers("a/**/b", b"b"));
        assert!(covers("**/.env", b"x/.env") && !covers("**/.env", b"x/env"));
    }

    #[test]
    fn a_hostile_pattern_takes_no_exponential_time() {
        let pattern = "*a".repeat(50) + "b";
        assert!(!name(pattern.as_bytes(), "a".repeat(2000).as_bytes()));
        let pattern = "**/a/".repeat(50) + "b";
        assert!(!covers(&pattern, "a/".repeat(500).as_bytes()));
    }
}
