//! Which paths git refuses to take into a work tree (`verify_path` in read-cache.c).
//!
//! Git asks that of the paths in a commit, and believes those that stand in its own files: an index that somebody else
//! wrote has `git checkout` write hooks, and `git add -u` read what lies outside.

/// A symbolic link, of an entry's mode.
const LINK: u32 = 0o120_000;
/// A directory of which a sparse index has one entry.
const DIRECTORY: u32 = 0o040_000;
const TYPE: u32 = 0o170_000;

/// Whether git would refuse a path with this mode, on whatever file system.
pub fn refused(path: &[u8], mode: u32) -> bool {
    // Most paths have nothing that has to be looked at.
    let mut before = b'/';
    let mut plain = true;
    for &byte in path {
        let starts = before == b'/' && matches!(byte, b'.' | b'/' | b'g' | b'G' | b'~');
        plain &= !(starts || byte == b'\\' || byte >= 0x80);
        before = byte;
    }
    if plain && before != b'/' {
        return false;
    }
    let path = match path.strip_suffix(b"/") {
        Some(directory) if mode & TYPE == DIRECTORY => directory,
        _ => path,
    };
    path.split(|&byte| byte == b'/').any(|name| name_refused(name, mode & TYPE == LINK))
}

fn name_refused(name: &[u8], link: bool) -> bool {
    if matches!(name, b"" | b"." | b"..") {
        return true;
    }
    let seen = without_ignorable(name);
    if is(&seen, b".git") || link && is(&seen, b".gitmodules") {
        return true;
    }
    // On Windows a backslash ends a name, and a file has a short name as well.
    let mut parts = name.split(|&byte| byte == b'\\');
    parts.any(|part| short_for_git(part) || link && short_for_modules(part))
}

fn is(name: &[u8], wanted: &[u8]) -> bool {
    name.eq_ignore_ascii_case(wanted)
}

/// What HFS+ compares: without code points that it ignores (`next_hfs_char` in utf8.c).
fn without_ignorable(name: &[u8]) -> std::borrow::Cow<'_, [u8]> {
    let ignored = |three: &[u8]| {
        matches!(
            three,
            [0xe2, 0x80, 0x8c..=0x8f | 0xaa..=0xae] | [0xe2, 0x81, 0xaa..=0xaf] | [0xef, 0xbb, 0xbf]
        )
    };
    if !name.windows(3).any(ignored) {
        return name.into();
    }
    let (mut rest, mut seen) = (name, Vec::with_capacity(name.len()));
    while let [first, after @ ..] = rest {
        rest = match rest.get(..3).is_some_and(ignored) {
            true => &rest[3..],
            false => {
                seen.push(*first);
                after
            }
        };
    }
    seen.into()
}

/// `.git` or `git~1`, and what NTFS takes for the same.
fn short_for_git(name: &[u8]) -> bool {
    let rest = match name.get(..5) {
        Some(short) if is(short, b"git~1") => &name[5..],
        _ if name.get(..4).is_some_and(|dotted| is(dotted, b".git")) => &name[4..],
        _ => return false,
    };
    ends(rest)
}

/// Whether what follows is nothing to NTFS.
fn ends(rest: &[u8]) -> bool {
    let rest = rest.iter().find(|byte| !matches!(byte, b'.' | b' '));
    rest.is_none_or(|byte| *byte == b':')
}

/// The same of `.gitmodules` (`is_ntfs_dot_generic` in path.c).
fn short_for_modules(name: &[u8]) -> bool {
    const LONG: &[u8] = b".gitmodules";
    const FALLBACK: &[u8] = b"gi7eba";
    if name.get(..LONG.len()).is_some_and(|long| is(long, LONG)) {
        return ends(&name[LONG.len()..]);
    }
    let Some((short, rest)) = name.split_at_checked(8) else { return false };
    if is(&short[..6], b"gitmod") && short[6] == b'~' && matches!(short[7], b'1'..=b'4') {
        return ends(rest);
    }
    let Some(tilde) = short.iter().position(|&byte| byte == b'~') else { return false };
    let digits = &short[tilde + 1..];
    tilde <= FALLBACK.len()
        && is(&short[..tilde], &FALLBACK[..tilde])
        && digits.first().is_some_and(|first| *first != b'0')
        && digits.iter().all(u8::is_ascii_digit)
        && ends(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: u32 = 0o100_644;

    #[test]
    fn what_git_refuses_is_refused() {
        for bad in [
            &b""[..],
            b"/etc/passwd",
            b"a//b",
            b"a/",
            b".",
            b"./a",
            b"a/./b",
            b"..",
            b"../a",
            b"a/..",
            b"a/../b",
            b".git",
            b".git/hooks/post-checkout",
            b"a/.GiT/config",
            b"GIT~1",
            b"git~1/config",
            b".git ",
            b".git. ./x",
            b".git::$INDEX_ALLOCATION/x",
            b"a\\.git\\x",
            b"a\\git~1",
            b".g\xe2\x80\x8cit/config",
            b"\xef\xbb\xbf.git",
            b".gi\xe2\x81\xaat\xe2\x80\xae/x",
        ] {
            assert!(refused(bad, FILE), "{}", bad.escape_ascii());
        }
        for good in [
            &b"a"[..],
            b".gitmodules",
            b".gitignore",
            b".github/x",
            b"git/x",
            b"git~2",
            b"g",
            b"...",
            b"a/..b/c..",
            b".git-hooks/x",
            b"x.git/y",
            b"a\\b",
            b"\xc3\xa4/\xe2\x82\xac",
            b"a\xe2\x80\x8cb",
            b"\xe2\x80",
            b".gitx",
            b"git~10",
        ] {
            assert!(!refused(good, FILE), "{}", good.escape_ascii());
        }
    }

    #[test]
    fn a_link_is_no_gitmodules() {
        for bad in [
            &b".gitmodules"[..],
            b"a/.GITMODULES",
            b".gitmodules .",
            b"gitmod~1",
            b"GITMOD~4 ",
            b"gi7eba~1",
            b"gi7e~123",
            b"~1000000",
            b".git\xe2\x80\x8cmodules",
        ] {
            assert!(refused(bad, LINK) && !refused(bad, FILE), "{}", bad.escape_ascii());
        }
        for good in [&b".gitmodules2"[..], b"gitmod~5", b"gi7eba~0", b"gi7ebb~1", b"a"] {
            assert!(!refused(good, LINK), "{}", good.escape_ascii());
        }
    }

    #[test]
    fn a_directory_of_a_sparse_index_ends_with_a_slash() {
        assert!(!refused(b"a/b/", DIRECTORY) && refused(b"a/b/", FILE));
        assert!(refused(b"/", DIRECTORY) && refused(b"a//", DIRECTORY) && refused(b"", DIRECTORY));
    }
}
