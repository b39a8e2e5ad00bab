//! What an integration writes, and what was there before, kept beside the sessions: so that it can be put back.

use crate::error::Fault;
use ringfence_policy::{FileView, HostFiles, shown};
use ringfence_sandbox::state;
use ringfence_session::whole;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// A file that was written, and what was there.
struct Before {
    path: PathBuf,
    was: Was,
    /// What was written, to see whether it is still that.
    text: String,
}

enum Was {
    Absent,
    Link(PathBuf),
    /// Its bytes are in the file of this name beside the list.
    File {
        kept: String,
        mode: u32,
    },
}

impl Before {
    fn to_json(&self) -> Value {
        let was = match &self.was {
            Was::Absent => Value::Null,
            Was::Link(target) => json!({"link": target}),
            Was::File { kept, mode } => json!({"file": kept, "mode": mode}),
        };
        json!({"path": self.path, "was": was, "text": self.text})
    }

    fn from_json(value: &Value) -> Option<Before> {
        let was = &value["was"];
        let was = match (was.is_null(), was["link"].as_str()) {
            (true, _) => Was::Absent,
            (_, Some(target)) => Was::Link(target.into()),
            _ => {
                // A name of ours: never one that leads out of the folder.
                let kept = was["file"].as_str().filter(|name| !name.contains('/'))?.to_owned();
                Was::File { kept, mode: u32::try_from(was["mode"].as_u64()?).ok()? }
            }
        };
        let text = value["text"].as_str()?.to_owned();
        Some(Before { path: value["path"].as_str()?.into(), was, text })
    }
}

/// Notes what is there before anything is written.
pub fn keep(folder: &Path, files: &[(PathBuf, String, u32)]) -> io::Result<()> {
    state::make_directory(folder)?;
    let mut kept = Vec::new();
    let above = files.iter().flat_map(|(path, _, _)| path.ancestors().skip(1));
    let mut absent: Vec<&Path> = above.filter(|path| path.symlink_metadata().is_err()).collect();
    absent.sort();
    absent.dedup();
    for (index, (path, text, _)) in files.iter().enumerate() {
        let was = match path.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Was::Absent,
            Err(error) => return Err(error),
            Ok(data) if data.is_symlink() => Was::Link(path.read_link()?),
            Ok(data) if data.is_file() => {
                let name = format!("{index}.before");
                fs::copy(path, folder.join(&name))?;
                Was::File { kept: name, mode: data.permissions().mode() & 0o7777 }
            }
            Ok(_) => return Err(io::Error::other(format!("{} is no file", path.display()))),
        };
        kept.push(Before { path: path.clone(), was, text: text.clone() }.to_json());
    }
    let text = format!("{:#}\n", json!({"schema": 1, "files": kept, "directories": absent}));
    // Until it is there, nothing of the user's is touched.
    whole::write(&folder.join(LIST), text.as_bytes())
}

/// The list of what is touched: there is an integration as long as it is there.
const LIST: &str = "files.json";

pub fn is_listed(folder: &Path) -> bool {
    fs::metadata(folder.join(LIST)).is_ok_and(|data| data.len() > 0)
}

/// The list, and the files on it.
fn listed(folder: &Path) -> Result<(Value, Vec<Before>), Fault> {
    let list = fs::read_to_string(folder.join(LIST))
        .map_err(|error| Fault::usage(format!("cannot read {}: {error}", folder.display())))?;
    let list: Value = serde_json::from_str(&list).map_err(Fault::of)?;
    let kept: Option<Vec<Before>> =
        list["files"].as_array().and_then(|files| files.iter().map(Before::from_json).collect());
    let kept =
        kept.ok_or_else(|| Fault::usage(format!("{}/files.json is damaged", folder.display())))?;
    Ok((list, kept))
}

/// The first of some files that another integration wrote, and the profile of that: two in one place could be put back
/// in one order alone.
pub fn taken(folder: &Path, files: &[(PathBuf, String, u32)]) -> Option<(PathBuf, String)> {
    let others = fs::read_dir(folder.parent()?).into_iter().flatten().flatten();
    others.filter(|other| other.path() != folder).find_map(|other| {
        let (_, kept) = listed(&other.path()).ok()?;
        let mut paths = kept.into_iter().map(|before| before.path);
        let path = paths.find(|path| files.iter().any(|(wanted, ..)| wanted == path))?;
        Some((path, other.file_name().into_string().ok()?))
    })
}

/// Drops what is left of an integration that was ended before it touched anything, or after all was put back.
pub fn forget(folder: &Path) -> Result<(), Fault> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Fault::usage(format!("cannot remove {}: {error}", folder.display())))
        }
        _ => Ok(()),
    }
}

/// Puts back what was there before: what it says of that, and of each file that stays why it does. What stays is on the
/// list for the next time.
pub fn remove(profile: &str, folder: &Path) -> Result<(String, Vec<String>), Fault> {
    if !is_listed(folder) {
        forget(folder)?;
        return Err(Fault::usage(format!("{profile} is not integrated")));
    }
    let (mut list, kept) = listed(folder)?;
    let (mut said, mut why, mut stay) = (String::new(), Vec::new(), Vec::new());
    for before in &kept {
        let Before { path, was, text } = before;
        // Where it was ended while it wrote.
        let _ = fs::remove_file(beside(path));
        // Never written, as the integration was interrupted before it came to this file; or put back already.
        let untouched = match was {
            Was::Absent => is_gone(path),
            Was::Link(target) => path.read_link().is_ok_and(|now| now == *target),
            Was::File { kept, .. } => {
                fs::read(folder.join(kept)).is_ok_and(|was| holds(path, &was))
            }
        };
        if untouched {
            continue;
        }
        let shown = shown::path(path);
        let failed = if !is_gone(path) && !holds(path, text.as_bytes()) {
            Some(format!(
                "{shown} was changed since and stays; delete it, then ringfence integrate {profile} --remove"
            ))
        } else {
            let back = back(path, was, folder);
            back.err().map(|error| format!("{shown} stays, it cannot be restored: {error}"))
        };
        match failed {
            None => drop(writeln!(said, "{shown} is as it was")),
            Some(failed) => {
                why.push(failed);
                stay.push(before.to_json());
            }
        }
    }
    if !stay.is_empty() {
        // What comes in the place of what was put back is not ours.
        list["files"] = Value::Array(stay);
        whole::write(&folder.join(LIST), format!("{list:#}\n").as_bytes()).map_err(Fault::of)?;
        return Ok((said, why));
    }
    // Directories that were made for it, unless something else is in them by now.
    for path in list["directories"].as_array().into_iter().flatten().rev() {
        let _ = path.as_str().map(fs::remove_dir);
    }
    fs::remove_file(folder.join(LIST)).map_err(Fault::of)?;
    forget(folder)?;
    Ok((said, why))
}

/// Whether nothing is at a path.
fn is_gone(path: &Path) -> bool {
    let absent = [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory];
    path.symlink_metadata().is_err_and(|error| absent.contains(&error.kind()))
}

/// Whether a file has these bytes. Whatever it is by now, a FIFO or an endless one, the answer comes.
fn holds(path: &Path, bytes: &[u8]) -> bool {
    let now = HostFiles.beginning(path, bytes.len() as u64 + 1);
    now.is_ok_and(|now| now == bytes)
}

fn back(path: &Path, was: &Was, folder: &Path) -> io::Result<()> {
    match was {
        Was::Absent => fs::remove_file(path),
        Was::Link(target) => {
            let beside = ready(path)?;
            symlink(target, &beside)?;
            fs::rename(&beside, path)
        }
        Was::File { kept, mode } => put(path, &fs::read(folder.join(kept))?, *mode),
    }
}

/// Writes beside, then puts in place at once; a link that stands there is replaced, not followed.
pub fn put(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let beside = ready(path)?;
    fs::write(&beside, bytes)?;
    fs::set_permissions(&beside, fs::Permissions::from_mode(mode))?;
    fs::rename(&beside, path)
}

/// Where a file is made first, free for it.
fn ready(path: &Path) -> io::Result<PathBuf> {
    let beside = beside(path);
    fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
    let _ = fs::remove_file(&beside);
    Ok(beside)
}

/// Where it is written first.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.ringfence"))
}
