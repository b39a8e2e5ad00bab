//! What git keeps in a repository for itself (`gitstate`): judged by its content where the run changed it, since git
//! writes it all the time.

use super::Work;
use super::directory::Directory;
use super::saved::CAREFULLY;
use ringfence_policy::gitread::{MOST, Pass, Said, Unknown};
use ringfence_policy::gitstate::{self, Bad, Content};
use ringfence_policy::shown;
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Takes a file away by which git would do what it does not do by itself, and says what to do then.
pub(super) fn judge(work: &mut Work<'_>, directory: &Directory, name: &OsStr, path: &Path) {
    let Err(bad) = judged(work, directory, name, path) else { return };
    work.take_away(&directory.at(name), path, "created or changed");
    let why = match bad {
        Bad::Path(named) => format!("git would write and read {} by it", shown::line(&named)),
        Bad::Runs(program) => format!("{} would be run for it", shown::line(&program)),
        Bad::Unreadable(why) => format!("what would be done by it is not known ({why})"),
    };
    let (path, parent) = (shown::path(path), path.parent().unwrap_or(path));
    let remedy = match (name.as_encoded_bytes(), gitstate::is_index(Path::new(name))) {
        (b"index", _) => "`git reset` makes it anew, without what was staged".to_owned(),
        (_, true) => {
            format!(
                "remove {} too, and `git reset` makes it anew",
                shown::path(&parent.join("index"))
            )
        }
        _ => "look at what goes on (`git status`, `jj status`) before you go on with it".to_owned(),
    };
    work.said.push(format!("{path}: {why}; {remedy}"));
}

fn judged(
    work: &mut Work<'_>,
    directory: &Directory,
    name: &OsStr,
    path: &Path,
) -> Result<(), Bad> {
    let open = open(&directory.at(name)).map_err(|_| Bad::Unreadable("it cannot be opened"))?;
    let (file, size) = open.ok_or(Bad::Unreadable("it is no plain file"))?;
    let left = work.state.checked_sub(size);
    work.state = left.ok_or(Bad::Unreadable("there is too much of its kind"))?;
    let hash = if gitstate::is_index(Path::new(name)) { hash_length(path, &work.pass) } else { 0 };
    let mut read_at = |at: u64, into: &mut [u8]| file.read_at(into, at);
    gitstate::judge(Path::new(name), hash, Content { size, read_at: &mut read_at })
}

/// A file, and its size. No FIFO there may stop us.
pub(super) fn open(path: &Path) -> io::Result<Option<(File, u64)>> {
    let file = OpenOptions::new().read(true).custom_flags(CAREFULLY).open(path)?;
    let data = file.metadata()?;
    Ok(data.is_file().then_some((file, data.len())))
}

/// How long the hashes of an index are.
pub(super) fn hash_length(index: &Path, pass: &Pass) -> usize {
    gitstate::hash_length(configuration(index, pass))
}

/// The repository's configuration, which has been judged before: what was not to stay is not there any more.
fn configuration(index: &Path, pass: &Pass) -> Option<Vec<u8>> {
    let path = gitstate::configuration(index, |common| common.symlink_metadata().is_ok());
    let (file, size) = open(&path.canonicalize().ok()?).ok()??;
    let read = || {
        let mut text = Vec::new();
        match file.take(MOST).read_to_end(&mut text) {
            _ if size > MOST => Said::Unknown(Unknown::Large),
            Ok(_) => Said::Bytes(text),
            Err(_) => Said::Unknown(Unknown::Broken),
        }
    };
    pass.read(read).bytes()
}
