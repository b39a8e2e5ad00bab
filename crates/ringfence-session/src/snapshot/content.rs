//! The bytes of files: into the store, and out of it.
//!
//! Up to [`CHUNK`] bytes a file is one object. A larger one is a list of chunks, each an object;
//! a chunk of zeros is left out, so that a hole of a petabyte costs nothing, and an appended log
//! costs its last chunk. Where the file system shares blocks (`FICLONE`), a large file is cloned
//! instead of copied; its hash is the same.

use super::codec::{Reader, put, put_bytes};
use super::database::Database;
use super::entry::{Entry, Hash, NONE};
use crate::error::{Result, SessionError};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Larger files are known by their stamps though somebody has them open for writing: what programs keep open so
/// for days is mostly such (databases, logs, disk images), and would be read at each look.
pub(super) const LARGE: u64 = 32 << 20;

/// The size of a chunk, bytes.
pub(super) const CHUNK: u64 = 1 << 20;

/// Smaller runs of zeros are written.
const HOLE: usize = 4096;

/// Reading a file did not work.
pub(super) enum Trouble {
    /// The file's fault.
    Read,
    /// The store's fault.
    Store(SessionError),
}

impl From<SessionError> for Trouble {
    fn from(error: SessionError) -> Trouble {
        Trouble::Store(error)
    }
}

/// Hashes a file, and stores it if so asked. The bytes are those that were read: whether the
/// file changed meanwhile is for the caller to see.
pub(super) fn take(
    database: &mut Database,
    file: OwnedFd,
    size: u64,
    store: bool,
    buffer: &mut Vec<u8>,
) -> std::result::Result<Hash, Trouble> {
    let file = File::from(file);
    if size > CHUNK {
        return take_large(database, &file, size, store, buffer);
    }
    fill(&file, 0, size as usize, buffer)?;
    let hash = *blake3::hash(buffer).as_bytes();
    if store {
        database.put(&hash, buffer)?;
    }
    Ok(hash)
}

/// Reads so many bytes; what the file no longer has is zeros.
fn fill(
    file: &File,
    offset: u64,
    length: usize,
    buffer: &mut Vec<u8>,
) -> std::result::Result<(), Trouble> {
    buffer.clear();
    buffer.resize(length, 0);
    let mut done = 0;
    while done < length {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return Err(Trouble::Read),
        }
    }
    Ok(())
}

fn take_large(
    database: &mut Database,
    file: &File,
    size: u64,
    store: bool,
    buffer: &mut Vec<u8>,
) -> std::result::Result<Hash, Trouble> {
    // A clone stands still while it is read.
    let cloned = if store { clone_in(database, file) } else { None };
    let source = cloned.as_ref().map_or(file, |(clone, _)| clone);
    let mut list = Vec::new();
    put(&mut list, size);
    let mut at = 0;
    while let Some(next) = next_data(source, at, size) {
        let index = next / CHUNK;
        let start = index * CHUNK;
        let length = CHUNK.min(size - start) as usize;
        fill(source, start, length, buffer)?;
        if buffer.iter().any(|&byte| byte != 0) {
            let hash = blake3::hash(buffer);
            put(&mut list, index);
            list.extend_from_slice(hash.as_bytes());
            if store && cloned.is_none() {
                database.put(hash.as_bytes(), buffer)?;
            }
        }
        at = start + CHUNK;
    }
    let hash = *blake3::hash(&list).as_bytes();
    if let Some((_, path)) = cloned {
        let keep = !database.holds(&hash)?;
        let kept = if keep {
            std::fs::rename(&path, database.clone_path(&hash))
        } else {
            std::fs::remove_file(&path)
        };
        kept.map_err(|error| SessionError::call("rename", &path, error))?;
        if keep {
            database.put_clone(&hash, size, &list)?;
        }
    } else if store {
        database.put(&hash, &list)?;
    }
    Ok(hash)
}

/// Where the next data is, past holes.
pub(crate) fn next_data(file: &File, at: u64, size: u64) -> Option<u64> {
    if at >= size {
        return None;
    }
    match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(next) => (next < size).then_some(next),
        Err(Errno::NXIO) => None,
        // This file system knows no holes.
        Err(_) => Some(at),
    }
}

/// A clone of the file in the store, under a temporary name.
fn clone_in(database: &Database, file: &File) -> Option<(File, std::path::PathBuf)> {
    let directory = database.directory.join("clones");
    crate::place::private_directory(&directory).ok()?;
    let path = directory.join(format!("new-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let mut options = File::options();
    let clone = options.read(true).write(true).create_new(true).mode(0o600).open(&path).ok()?;
    if rustix::fs::ioctl_ficlone(&clone, file).is_err() {
        let _ = std::fs::remove_file(&path);
        return None;
    }
    Some((clone, path))
}

/// The chunks of a list: index and hash.
pub(super) fn read_list(bytes: &[u8]) -> Option<(u64, Vec<(u64, Hash)>)> {
    let mut reader = Reader(bytes);
    let size = reader.number()?;
    let mut chunks = Vec::new();
    while !reader.at_end() {
        let chunk = (reader.number()?, reader.hash()?);
        if chunk.0.checked_mul(CHUNK)? >= size {
            return None;
        }
        chunks.push(chunk);
    }
    Some((size, chunks))
}

/// Writes the bytes of a stored file into an empty one, and checks them on the way.
pub(super) fn give(database: &Database, entry: &Entry, file: &File, path: &Path) -> Result<()> {
    let failed = |error| SessionError::call("write", path, error);
    if entry.size <= CHUNK {
        let (bytes, _) = database.get(&entry.hash)?;
        write_at(file, &bytes, 0, entry.sparse).map_err(failed)?;
        return file.set_len(entry.size).map_err(failed);
    }
    let (list, cloned) = database.get(&entry.hash)?;
    let bad = || database.corrupt(format!("the chunks of {} are unreadable", path.display()));
    let (size, chunks) = read_list(&list).ok_or_else(bad)?;
    if cloned {
        let source = database.clone_path(&entry.hash);
        let stored = File::open(&source).map_err(|e| SessionError::call("open", &source, e))?;
        if rustix::fs::ioctl_ficlone(file, &stored).is_err() {
            std::io::copy(&mut &stored, &mut &*file).map_err(failed)?;
        }
        return Ok(());
    }
    for (index, hash) in chunks {
        let (bytes, _) = database.get(&hash)?;
        write_at(file, &bytes, index * CHUNK, entry.sparse).map_err(failed)?;
    }
    file.set_len(size).map_err(failed)?;
    if !entry.sparse {
        // Zeros that took space take it again; a file system without this keeps the holes.
        let whole = rustix::fs::FallocateFlags::empty();
        if let Err(error @ (Errno::NOSPC | Errno::DQUOT)) =
            rustix::fs::fallocate(file, whole, 0, size)
        {
            return Err(failed(error.into()));
        }
    }
    Ok(())
}

fn write_at(file: &File, bytes: &[u8], offset: u64, sparse: bool) -> std::io::Result<()> {
    if sparse { write_sparse(file, bytes, offset) } else { file.write_all_at(bytes, offset) }
}

/// Writes what is not zeros.
pub(crate) fn write_sparse(file: &File, bytes: &[u8], offset: u64) -> std::io::Result<()> {
    for (number, block) in bytes.chunks(HOLE).enumerate() {
        if block.iter().any(|&byte| byte != 0) {
            file.write_all_at(block, offset + (number * HOLE) as u64)?;
        }
    }
    Ok(())
}

/// All bytes of a stored file or link, for showing; at most `limit`.
pub(super) fn whole(database: &Database, entry: &Entry, limit: u64) -> Result<Option<Vec<u8>>> {
    if entry.size > limit {
        return Ok(None);
    }
    if entry.size <= CHUNK {
        return Ok(Some(database.get(&entry.hash)?.0));
    }
    let (list, cloned) = database.get(&entry.hash)?;
    if cloned {
        let path = database.clone_path(&entry.hash);
        return std::fs::read(&path).map(Some).map_err(|e| SessionError::call("read", &path, e));
    }
    let bad = || database.corrupt("a chunk list is unreadable");
    let (size, chunks) = read_list(&list).ok_or_else(bad)?;
    let mut bytes = vec![0; usize::try_from(size).map_err(|_| bad())?];
    for (index, hash) in chunks {
        let (chunk, _) = database.get(&hash)?;
        let start = usize::try_from(index * CHUNK).map_err(|_| bad())?;
        bytes.get_mut(start..start + chunk.len()).ok_or_else(bad)?.copy_from_slice(&chunk);
    }
    Ok(Some(bytes))
}

/// Names and values, sorted.
pub(crate) type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

/// Attributes worth keeping: the user's own, access lists, and file capabilities.
fn kept(name: &[u8]) -> bool {
    name.starts_with(b"user.")
        || name.starts_with(b"system.posix_acl_")
        || name == b"security.capability"
}

/// Attributes in the order in which they are set: an access list may take the owner's right to set the others.
pub(crate) fn lists_last(all: &Attributes) -> impl Iterator<Item = &(Vec<u8>, Vec<u8>)> {
    let list = |pair: &&(Vec<u8>, Vec<u8>)| pair.0.starts_with(b"system.posix_acl_");
    all.iter().filter(move |pair| !list(pair)).chain(all.iter().filter(list))
}

/// The mode without what is not to be given: where a file's access list cannot be set, the group's bits were the
/// list's bound, and would be rights of the group.
pub(crate) fn without_list(mode: u32, refused: &[u8]) -> u32 {
    if refused == b"system.posix_acl_access" { mode & !0o070 } else { mode }
}

/// The extended attributes of an open file, name and value, sorted. None where the file system
/// has none.
pub(crate) fn attributes(file: impl AsFd) -> std::result::Result<Attributes, Errno> {
    // Most have none; no list is longer than the second (xattr(7)).
    let mut names = vec![0u8; 512];
    let mut size = rustix::fs::flistxattr(&file, &mut names[..]);
    if size == Err(Errno::RANGE) {
        names.resize(65536, 0);
        size = rustix::fs::flistxattr(&file, &mut names[..]);
    }
    let size = match size {
        Ok(0) | Err(Errno::NOTSUP) => return Ok(Vec::new()),
        size => size?,
    };
    let mut all = Vec::new();
    for name in names[..size].split(|&byte| byte == 0).filter(|name| kept(name)) {
        let mut value = vec![0u8; 65536];
        match rustix::fs::fgetxattr(&file, name, &mut value[..]) {
            Ok(length) => all.push((name.to_vec(), value[..length].to_vec())),
            Err(Errno::NODATA) => {}
            Err(error) => return Err(error),
        }
    }
    all.sort();
    Ok(all)
}

/// Attributes as an object.
pub(super) fn write_attributes(all: &[(Vec<u8>, Vec<u8>)]) -> (Hash, Vec<u8>) {
    if all.is_empty() {
        return (NONE, Vec::new());
    }
    let mut bytes = Vec::new();
    for (name, value) in all {
        put_bytes(&mut bytes, name);
        put_bytes(&mut bytes, value);
    }
    (*blake3::hash(&bytes).as_bytes(), bytes)
}

/// The reverse of [`write_attributes`].
pub(super) fn read_attributes(bytes: &[u8]) -> Option<Attributes> {
    let mut reader = Reader(bytes);
    let mut all = Vec::new();
    while !reader.at_end() {
        all.push((reader.bytes()?.to_vec(), reader.bytes()?.to_vec()));
    }
    Some(all)
}
