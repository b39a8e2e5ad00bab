//! Which settings make git, or what reads its configuration, run a program, write where it is not asked to, or hand
//! credentials elsewhere.

use crate::gitconfig::Setting;
use crate::githarmless::{is_unknown, may_be_an_option};
use crate::gitothers;

/// The merge strategies that git brings. Of others it runs `git-merge-NAME`.
pub(crate) const OWN_STRATEGIES: [&str; 6] =
    ["octopus", "ort", "ours", "recursive", "resolve", "subtree"];

/// Endings of names that mean a program in some section: git's own, and those of extensions
/// that are not known here.
const PROGRAM_ENDINGS: [&str; 21] = [
    "askpass",
    "bin",
    "binary",
    "clean",
    "cmd",
    "command",
    "diffextern",
    "driver",
    "editor",
    "exec",
    "filtercmd",
    "helper",
    "hook",
    "hookspath",
    "pager",
    "process",
    "prog",
    "program",
    "script",
    "smudge",
    "textconv",
];

/// Whether a setting makes git run a program, or as bad.
pub fn runs(setting: &Setting) -> bool {
    let value = setting.value.as_deref().unwrap_or("true");
    if value.is_empty() && empty_is_none(setting) {
        return false;
    }
    if value.starts_with('!') || value.starts_with("ext::") || may_be_an_option(setting, value) {
        return true;
    }
    let judged = by_value(setting, value).or_else(|| gitothers::runs(setting, value));
    // `credential.helper`, `core.sshCommand`, `filter.*.process`, `gpg.*.program`, …
    judged.unwrap_or_else(|| is_programs(&setting.name) || is_unknown(setting))
}

/// Whether a name ends like a program's.
pub(crate) fn is_programs(name: &str) -> bool {
    PROGRAM_ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// Of settings that git reads, those that what they say decides about, or whose subsection does. What is not here is
/// harmless where [`crate::githarmless`] has its name.
fn by_value(setting: &Setting, value: &str) -> Option<bool> {
    let subsection = setting.subsection.as_deref();
    Some(match (&*setting.section, setting.name.as_str()) {
        ("alias", _) => true,
        // `git difftool` sources a file of that name, wherever a slash in it leads.
        ("diff" | "merge", "tool" | "guitool") => value.contains('/'),
        ("diff", "binary") => false,
        // Without a word `git cherry-pick` and `git rebase` take the first one.
        ("pull", "twohead" | "octopus") => {
            value.split_whitespace().any(|word| !OWN_STRATEGIES.contains(&word))
        }
        // The daemon that git brings itself.
        ("core", "fsmonitor") => boolean(value).is_none(),
        ("pager", _) => boolean(value).is_none(),
        // Or gives the password to whom it names.
        ("sendemail", name) => {
            name.ends_with("cmd") || name.starts_with("smtp") && name != "smtpuser"
        }
        // A remote without an address has its name for one.
        ("remote", _) if subsection.is_some_and(helper) => true,
        ("remote", "url" | "pushurl" | "pushdefault") | ("branch", "remote" | "pushremote") => {
            helper(value)
        }
        ("extensions", "refstorage") => !matches!(value, "files" | "reftable"),
        ("extensions", "partialclone") | ("checkout", "defaultremote") => helper(value),
        ("remotes", _) => value.split_whitespace().any(helper),
        ("submodule", "url") => helper(value),
        ("url", "insteadof" | "pushinsteadof") => {
            subsection.is_some_and(|base| helper(base) || begins_a_helper(base))
        }
        // What is refused to nobody but a submodule's own address may be what git puts together.
        ("protocol", "allow") => match value {
            "never" => false,
            "user" => !subsection.is_some_and(|name| PROTOCOLS.contains(&name)),
            _ => true,
        },
        ("http", "sslverify") => boolean(value) != Some(true),
        // Who may speak in the user's name.
        ("http", "delegation") => value != "none",
        // Files of patches end in it.
        ("format", "suffix") => value.contains('/'),
        // What git writes into the list of what `git rebase` does it writes in it, and a line there may be `exec …`: some
        // make a line of what was none.
        ("i18n", "commitencoding" | "logoutputencoding" | "filesencoding") => {
            !is_plain_encoding(value)
        }
        // Anybody's to write.
        ("core", "sharedrepository") => {
            u32::from_str_radix(value, 8).is_ok_and(|mode| mode & 0o002 != 0)
        }
        ("core", "protecthfs" | "protectntfs") => boolean(value) != Some(true),
        ("branch", "mergeoptions") => {
            value.split_whitespace().any(|word| !HARMLESS_MERGE_OPTIONS.contains(&word))
        }
        // Git's credential manager has others that send credentials elsewhere, or write files.
        ("credential", name) => !matches!(
            name,
            "username" | "usehttppath" | "interactive" | "provider" | "guiprompt" | "validate"
        ),
        // Options of programs: some write files.
        ("gui", "diffopts" | "historybrowser") | ("gitcvs", "logfile") => true,
        // Of `git svn` each option is one; the directory of Subversion's configuration names programs for connections.
        ("svn", name) => name != "authorsfile",
        ("svn-remote", _) if value.starts_with("svn+") => !value.starts_with("svn+ssh://"),
        _ => return None,
    })
}

/// Whether git takes an empty value as "none", or as a reset of a list. It does not where the value is the beginning of a
/// command (`remote.….uploadpack`, behind which the repository's path stands), of an address, or a truth: empty is false.
fn empty_is_none(setting: &Setting) -> bool {
    match (&*setting.section, setting.name.as_str()) {
        ("core", "fsmonitor" | "gitproxy") | ("http" | "remote", "proxy") => true,
        ("http", "cookiefile") | ("init", "templatedir") | ("diff", "external") => true,
        ("pager", _) | ("interactive", "difffilter") | ("web" | "help", "browser") => true,
        ("include" | "includeif" | "alias" | "hook", _) => false,
        (_, name) => is_programs(name),
    }
}

/// Whether in an encoding nothing but a line feed is one. (In `IBM922` and others U+25D9 is, to iconv(3).)
fn is_plain_encoding(name: &str) -> bool {
    let name = name.replace(['-', '_'], "").to_ascii_lowercase();
    matches!(&*name, "utf8" | "ascii" | "usascii" | "koi8r" | "koi8u" | "gbk" | "gb18030" | "big5")
        || matches!(&*name, "eucjp" | "euckr" | "shiftjis" | "sjis")
        || ["iso8859", "latin", "cp125", "windows125"].iter().any(|family| {
            let member = name.strip_prefix(family);
            member.is_some_and(|member| member.parse::<u8>().is_ok_and(|member| member <= 16))
        })
}

/// The protocols that git speaks by itself, and are let be by `user` as by default.
const PROTOCOLS: [&str; 5] = ["file", "git", "http", "https", "ssh"];
/// The schemes of addresses for which git runs no program but its own.
const SCHEMES: [&str; 9] =
    ["file", "ftp", "ftps", "git", "git+ssh", "http", "https", "ssh", "ssh+git"];
/// What `git merge` is told of a branch without running anything by it.
const HARMLESS_MERGE_OPTIONS: [&str; 14] = [
    "--commit",
    "--edit",
    "--ff",
    "--ff-only",
    "--log",
    "--no-commit",
    "--no-edit",
    "--no-ff",
    "--no-log",
    "--no-squash",
    "--no-stat",
    "--no-verify-signatures",
    "--squash",
    "--stat",
];

/// Whether an address is served by a program: `HELPER::ADDRESS`, or `SCHEME://…` of a scheme that git does not know, for
/// which it runs `git-remote-SCHEME` (`transport_get` in transport.c).
fn helper(address: &str) -> bool {
    let before = |what| address.split_once(what).map(|(before, _)| before);
    let named = |name: &str| name.bytes().all(is_of_scheme);
    before("::").is_some_and(named)
        || before("://")
            .is_some_and(|name| !name.is_empty() && named(name) && !SCHEMES.contains(&name))
}

/// Whether with what follows it an address may be such a one: of `[url "ext:"] insteadOf = x`, and an address `x:sh …`,
/// git makes `ext::sh …`.
fn begins_a_helper(base: &str) -> bool {
    base.trim_end_matches(':').bytes().all(is_of_scheme)
}

/// What the name of a scheme is made of to git (`is_urlschemechar` in url.c).
fn is_of_scheme(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.')
}

pub(crate) fn boolean(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Some(true),
        "false" | "no" | "off" | "0" => Some(false),
        _ => None,
    }
}
