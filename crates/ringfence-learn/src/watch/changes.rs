//! What a call does with a name beside reading or writing what it names.

/// What is done to a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    /// It must be there already.
    pub needed: bool,
    /// The name goes, or leads to another file: what is mounted there can do neither.
    pub replaced: bool,
}

/// What a call does to the last of its names.
pub(super) fn of(call: &str) -> Change {
    let replaced =
        matches!(call, "rename" | "renameat" | "renameat2" | "unlink" | "unlinkat" | "rmdir");
    let changes = ["chmod", "fchmodat", "chown", "lchown", "fchownat", "utime", "futimesat"];
    let gone = matches!(call, "unlink" | "unlinkat" | "rmdir" | "truncate");
    let changed = changes.iter().any(|change| call.starts_with(change)) || call.contains("xattr");
    Change { needed: gone || changed, replaced }
}

/// Where the first of two names is that a call has: the arguments that are its directory and itself.
pub(super) fn first_name(call: &str) -> Option<(Option<usize>, usize)> {
    match call {
        "rename" | "link" => Some((None, 0)),
        "renameat" | "renameat2" | "linkat" => Some((Some(0), 1)),
        _ => None,
    }
}

/// What flags of `open(2)` ask for: reading, writing.
pub(super) fn opened(flags: u64) -> (bool, bool) {
    const WRITE_ONLY: u64 = 1;
    const READ_WRITE: u64 = 2;
    const CREATE: u64 = 0o100;
    const NEW: u64 = 0o200;
    const TRUNCATE: u64 = 0o1000;
    let written = flags & (WRITE_ONLY | READ_WRITE | CREATE | TRUNCATE) != 0;
    // What begins empty has nothing to be read.
    let empty = flags & TRUNCATE != 0 || flags & (CREATE | NEW) == CREATE | NEW;
    let read = flags & WRITE_ONLY == 0 && !empty;
    (read, written)
}

/// Whether flags of `open(2)` ask for what has a name and not for what is in it (`O_PATH`).
pub(super) fn only_names(flags: u64) -> bool {
    const PATH: u64 = 0o10_000_000;
    flags & PATH != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_empty_is_not_read() {
        assert_eq!(opened(0), (true, false));
        assert_eq!(opened(0o1), (false, true));
        assert_eq!(opened(0o2), (true, true), "O_RDWR");
        assert_eq!(opened(0o102), (true, true), "O_RDWR | O_CREAT");
        assert_eq!(opened(0o1102), (false, true), "O_RDWR | O_CREAT | O_TRUNC");
        assert_eq!(opened(0o302), (false, true), "O_RDWR | O_CREAT | O_EXCL");
        assert_eq!(opened(0o100), (true, true), "O_RDONLY | O_CREAT");
    }

    #[test]
    fn what_is_made_need_not_be_there() {
        for made in ["mkdir", "mknodat", "symlink", "creat", "link", "linkat"] {
            assert_eq!(of(made), Change::default(), "{made}");
        }
        for kept in ["chmod", "fchmodat2", "lchown", "utimensat", "lremovexattr", "truncate"] {
            assert_eq!(of(kept), Change { needed: true, replaced: false }, "{kept}");
        }
        assert_eq!(of("unlinkat"), Change { needed: true, replaced: true });
        assert_eq!(of("rename"), Change { needed: false, replaced: true }, "the new name");
    }
}
