//! Several files replaced: all, or none.

use crate::error::Fault;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A file, and what will be in it; nothing: no file.
pub(super) type File = (PathBuf, Option<Vec<u8>>);

/// The bytes of a file, if there is one.
pub(super) fn read(path: &Path) -> Result<Option<Vec<u8>>, Fault> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Fault::usage(format!("cannot read {}: {error}", path.display()))),
    }
}

/// Replaces files, each in one step. Where one cannot be, those before it are put back. `known` is what was in some of
/// them when it was settled what will be.
///
/// # Errors
/// The first file that cannot be replaced, or is another one by now.
pub(super) fn all(files: &[File], known: &[File]) -> Result<(), Fault> {
    let mut written = Vec::new();
    let done = replaced(files, known, &mut written);
    for beside in written {
        let _ = fs::remove_file(beside);
    }
    done
}

/// `written` gets what was written beside the files, which is left there where something fails.
fn replaced(files: &[File], known: &[File], written: &mut Vec<PathBuf>) -> Result<(), Fault> {
    let mut put = Vec::new();
    for (path, bytes) in files {
        let before = read(path)?;
        let beside = match bytes {
            Some(bytes) => Some(write_beside(path, bytes, written)?),
            None => None,
        };
        put.push((path, before, beside));
    }
    for (number, (path, _, beside)) in put.iter().enumerate() {
        let done = unchanged(path, known).and_then(|()| put_in_place(path, beside.as_deref()));
        let Err(error) = done else { continue };
        for (path, before, _) in &put[..number] {
            let back = match before {
                Some(bytes) => write_beside(path, bytes, written).map(Some),
                None => Ok(None),
            };
            let back = back.and_then(|back| put_in_place(path, back.as_deref()));
            if back.is_err() {
                ringfence_sys::say!("ringfence: {} could not be put back", path.display());
            }
        }
        return Err(error);
    }
    Ok(())
}

/// An editor, or the agent, may have saved it meanwhile; and who closed it to himself did not mean it to be written.
fn unchanged(path: &Path, known: &[File]) -> Result<(), Fault> {
    let Some((_, known)) = known.iter().find(|(known, _)| known == path) else { return Ok(()) };
    let refused = |why: &str| Err(Fault::usage(format!("{} {why}", path.display())));
    if read(path)? != *known {
        return refused("was changed meanwhile, and nothing was written: say it again");
    }
    match fs::metadata(path) {
        Ok(found) if found.permissions().readonly() => {
            refused("is read-only, and nothing was written: chmod u+w it")
        }
        _ => Ok(()),
    }
}

fn put_in_place(path: &Path, beside: Option<&Path>) -> Result<(), Fault> {
    let done = match beside {
        Some(beside) => fs::rename(beside, path),
        None => match fs::remove_file(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        },
    };
    done.map_err(|error| failed(path, &error))
}

fn write_beside(path: &Path, bytes: &[u8], written: &mut Vec<PathBuf>) -> Result<PathBuf, Fault> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    let mode = fs::metadata(path).map_or(0o600, |found| found.mode() & 0o7777);
    let beside = parent.join(format!(".ringfence-{}-{}", std::process::id(), written.len()));
    let mut options = fs::File::options();
    let options = options.write(true).create_new(true).mode(mode);
    let mut write = || {
        fs::create_dir_all(parent)?;
        let mut file = options.open(&beside)?;
        written.push(beside.clone());
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::set_permissions(&beside, fs::Permissions::from_mode(mode))
    };
    let done: io::Result<()> = write();
    done.map(|()| beside).map_err(|error| failed(path, &error))
}

fn failed(path: &Path, error: &io::Error) -> Fault {
    Fault::usage(format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_was_replaced_is_put_back_where_a_later_file_cannot_be() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::write(at("a"), "a").unwrap();
        fs::set_permissions(at("a"), fs::Permissions::from_mode(0o640)).unwrap();
        fs::write(at("gone"), "gone").unwrap();
        let some = |text: &str| Some(text.as_bytes().to_vec());
        let wanted = [(at("a"), some("A")), (at("new/b"), some("B")), (at("gone"), None)];
        fs::write(at("file"), "").unwrap();
        // No name for a file, which is found in the last step, and in the first one.
        for path in [at("y/"), at("file/below")] {
            let files: Vec<File> = wanted.iter().cloned().chain([(path, some("X"))]).collect();
            assert!(all(&files, &[]).is_err());
            assert_eq!(fs::read(at("a")).unwrap(), b"a");
            assert_eq!(fs::metadata(at("a")).unwrap().mode() & 0o7777, 0o640);
            assert_eq!(fs::read(at("gone")).unwrap(), b"gone");
            assert!(names(&at("new")).is_empty());
        }
        // What it was when it was settled what will be is not what it is.
        let known = [(at("a"), some("other"))];
        assert!(all(&wanted, &known).is_err());
        assert_eq!(fs::read(at("a")).unwrap(), b"a");
        fs::set_permissions(at("a"), fs::Permissions::from_mode(0o440)).unwrap();
        assert!(all(&wanted, &[(at("a"), some("a"))]).is_err());
        fs::set_permissions(at("a"), fs::Permissions::from_mode(0o640)).unwrap();
        all(&wanted, &[(at("a"), some("a"))]).unwrap();
        assert_eq!(fs::read(at("a")).unwrap(), b"A");
        assert_eq!(fs::metadata(at("a")).unwrap().mode() & 0o7777, 0o640);
        assert_eq!(fs::read(at("new/b")).unwrap(), b"B");
        assert_eq!(names(place.path()), ["a", "file", "new"]);
    }
}
