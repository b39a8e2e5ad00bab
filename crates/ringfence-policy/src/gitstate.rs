//! What git keeps in a repository for itself, and believes when it reads it again: it writes, reads and runs what these
//! files say. Git writes them all the time, so that they cannot be held; what a run leaves there is judged.

pub use crate::gitindex::{Bad, Content};

use crate::gitconfig::{last_value, parse};
use crate::gitindex;
use crate::gitpath::refused;
use crate::gitruns::OWN_STRATEGIES;
use crate::policy::Guarded::GitState;
use crate::protect::Entry;
use std::path::{Path, PathBuf};

const fn state(name: &'static str, reason: &'static str) -> Entry {
    Entry { name, guarded: GitState, nested: true, reason }
}

const WRITES: &str = "git reads and writes the paths it names";
const MERGES: &str = "git runs the merge strategy it names";

/// These files, in a repository, its worktrees and its submodules.
pub const STATE: &[Entry] = &[
    state(".git/index", WRITES),
    state(".git/sharedindex.*", WRITES),
    state(".git/MERGE_RR", WRITES),
    state(".git/sequencer/opts", MERGES),
    state(".git/rebase-merge/strategy", MERGES),
    state(".git/rebase-apply/strategy", MERGES),
    state(".git/worktrees/*/index", WRITES),
    state(".git/worktrees/*/sharedindex.*", WRITES),
    state(".git/worktrees/*/MERGE_RR", WRITES),
    state(".git/worktrees/*/sequencer/opts", MERGES),
    state(".git/worktrees/*/rebase-merge/strategy", MERGES),
    state(".git/worktrees/*/rebase-apply/strategy", MERGES),
    state(".git/modules/**/index", WRITES),
    state(".git/modules/**/sharedindex.*", WRITES),
    state(".git/modules/**/MERGE_RR", WRITES),
    state(".git/modules/**/sequencer/opts", MERGES),
    state(".git/modules/**/rebase-merge/strategy", MERGES),
    state(".git/modules/**/rebase-apply/strategy", MERGES),
    // A directory, and in further workspaces a file.
    state(".jj/repo", "Jujutsu takes configuration from where it leads"),
];

/// All of these but an index are small; larger ones are not read.
const SMALL: u64 = 1 << 20;

/// Whether a file of this name is an index, for which the kind of hashes has to be known ([`hash_length`]).
pub fn is_index(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name == "index" || name.starts_with("sharedindex."))
}

/// The configuration that says of an index how long its hashes are: of the repository that its directory is in, where
/// that is a worktree's own (`has_common`: there is a `commondir`).
pub fn configuration(index: &Path, has_common: impl Fn(&Path) -> bool) -> PathBuf {
    let own = index.parent().unwrap_or(index);
    let of = own.parent().and_then(Path::parent).filter(|_| has_common(&own.join("commondir")));
    of.unwrap_or(own).join("config")
}

/// How many bytes the hashes of a repository have, by its configuration.
pub fn hash_length(configuration: Option<impl AsRef<[u8]>>) -> usize {
    let format = configuration.and_then(|text| last_value(text, "extensions", "objectformat"));
    if format.as_deref() == Some("sha256") { 32 } else { 20 }
}

/// Judges one of [`STATE`] by its content.
///
/// # Errors
/// What is wrong with it.
pub fn judge(path: &Path, hash: usize, content: Content<'_>) -> Result<(), Bad> {
    if is_index(path) {
        return gitindex::judge(content, hash, &mut |_| ());
    }
    let text = small(content)?;
    match path.file_name().and_then(|name| name.to_str()) {
        Some("MERGE_RR") => resolutions(&text),
        Some("repo") => jj(&text),
        Some("opts") => options(&text),
        _ => strategy(&String::from_utf8_lossy(&text)),
    }
}

/// Tells the paths that an index has, in their order, as far as it can be read.
pub fn tracked(content: Content<'_>, hash: usize, each: &mut dyn FnMut(&[u8])) {
    let _ = gitindex::judge(content, hash, each);
}

fn small(content: Content<'_>) -> Result<Vec<u8>, Bad> {
    if content.size > SMALL {
        return Err(Bad::Unreadable("it is too large"));
    }
    let mut bytes = vec![0; content.size as usize];
    let mut filled = 0;
    while filled < bytes.len() {
        match (content.read_at)(filled as u64, &mut bytes[filled..]) {
            Ok(read) if read > 0 => filled += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            _ => return Err(Bad::Unreadable("it cannot be read to its end")),
        }
    }
    Ok(bytes)
}

/// Conflicts whose resolution `git rerere` notes, at any commit: it reads and writes the paths (`read_rr` in rerere.c).
fn resolutions(text: &[u8]) -> Result<(), Bad> {
    for line in text.split(|&byte| byte == 0).filter(|line| !line.is_empty()) {
        let tab = line.iter().position(|&byte| byte == b'\t');
        let (name, path) =
            line.split_at(tab.ok_or(Bad::Unreadable("a line of it cannot be read"))?);
        let mut name = name.splitn(2, |&byte| byte == b'.');
        let hash = name.next().unwrap_or_default().iter().all(u8::is_ascii_hexdigit);
        let variant = name
            .next()
            .is_none_or(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit));
        if !hash || !variant {
            return Err(Bad::Unreadable("a line of it cannot be read"));
        }
        if refused(&path[1..], 0) {
            return Err(Bad::Path(String::from_utf8_lossy(&path[1..]).into_owned()));
        }
    }
    Ok(())
}

/// The options of a cherry-pick or a revert that goes on.
fn options(text: &[u8]) -> Result<(), Bad> {
    let settings = parse(text).map_err(|_| Bad::Unreadable("a line of it cannot be read"))?;
    let named = settings.iter().filter(|setting| setting.name == "strategy");
    named.filter_map(|setting| setting.value.as_deref()).try_for_each(strategy)
}

/// Where a further workspace of Jujutsu has its repository: only what is called so has its configuration protected.
fn jj(text: &[u8]) -> Result<(), Bad> {
    use std::os::unix::ffi::OsStrExt;
    let target = Path::new(std::ffi::OsStr::from_bytes(text));
    match target.ends_with(".jj/repo") && !text.contains(&0) {
        true => Ok(()),
        false => Err(Bad::Runs("what the configuration of another repository names".to_owned())),
    }
}

/// `git merge-NAME` is executed, wherever a slash in the name leads.
fn strategy(name: &str) -> Result<(), Bad> {
    let name = name.trim_end_matches(['\n', '\r']);
    match name.is_empty() || OWN_STRATEGIES.contains(&name) {
        true => Ok(()),
        false => Err(Bad::Runs(format!("git-merge-{name}"))),
    }
}
