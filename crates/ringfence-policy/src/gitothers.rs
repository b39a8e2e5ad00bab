//! Which settings of other programs that read git's configuration make them run something, write where they are not
//! asked to, or give a token to whom they name. Beside these counts what ends like a program's name.

use crate::gitconfig::Setting;
use crate::gitruns::{boolean, is_programs};

/// Judges one. `None`: nothing is known of it.
pub(crate) fn runs(setting: &Setting, value: &str) -> Option<bool> {
    let subsection = setting.subsection.as_deref();
    Some(match (&*setting.section, setting.name.as_str()) {
        ("stgit", "diff-opts" | "smtpserver") => true,
        ("stgit", _) if subsection == Some("alias") => true,
        ("gitreview", name) => name != "username",
        ("gcrypt", name) if is_words(name) => true,
        ("remote", name) if name.strip_prefix("gcrypt-").is_some_and(is_words) => true,
        ("cola", "terminal" | "blameviewer") | ("git-town", "browser") => true,
        ("branchless", _) => subsection.is_some_and(|of| of.starts_with("test")),
        ("tig", "diff-highlight") => boolean(value).is_none(),
        ("tig", name) if name.ends_with("-options") => true,
        // tig's keys can stand for commands.
        ("tig", _) => subsection == Some("bind") && value.contains(['!', '@', '?', '+', '<', '>']),
        // git-flow has hooks of its own, and `git flow init` notes the repository's.
        ("gitflow", "hooks") => !value.ends_with("/.git/hooks"),
        // Its scripts evaluate them.
        ("gitflow", _) => value.contains(['$', '`', '"', '\\']),
        ("changelog", "opts") | ("gitoxide", _) => true,
        ("pw", "server") | ("machete", "domain") => true,
        ("spr", name) if name.contains("host") => true,
        // Commands' words: git-secrets takes patterns from the output of one, p4 connects through one, and patatt and
        // transcrypt run the program in their place.
        ("secrets", "providers") | ("git-p4", "port") | ("patatt", "gpg-bin") => true,
        ("transcrypt", "openssl-path" | "crypt-dir") => true,
        ("datalad", _) => subsection == Some("locations"),
        // git-annex gives them to programs that run others (ssh, rsync), or runs git-annex-remote-TYPE.
        ("annex", name) if annex(name) => true,
        (_, name) if name.strip_prefix("annex-").is_some_and(annex) => true,
        ("lfs", "path" | "args" | "standalonetransferagent" | "storage") => true,
        _ => return None,
    })
}

/// Whether a name is one of words for another program.
fn is_words(name: &str) -> bool {
    ["-flags", "-args", "-options"].iter().any(|ending| name.ends_with(ending))
}

/// Whether git-annex runs something for a key of `annex`, or of a remote behind `annex-`.
fn annex(name: &str) -> bool {
    name.ends_with("-options")
        || matches!(name, "shell" | "externaltype" | "rsync-transport")
        || is_programs(name)
}
