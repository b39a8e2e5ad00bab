//! The plain model: everything a directory holds, copied.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    File { size: usize, bytes: blake3::Hash, mode: u32, attribute: Option<Vec<u8>>, first: PathBuf },
    Directory { mode: u32 },
    Symlink { target: PathBuf },
    Fifo { mode: u32 },
}

pub type State = BTreeMap<PathBuf, Node>;

pub const ATTRIBUTE: &str = "user.ringfence-test";

/// Everything below a directory.
pub fn state(root: &Path) -> State {
    let mut all = State::new();
    let mut inodes: HashMap<u64, PathBuf> = HashMap::new();
    let mut pending = vec![PathBuf::new()];
    while let Some(directory) = pending.pop() {
        let mut names: Vec<OsString> = std::fs::read_dir(root.join(&directory))
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        names.sort();
        for name in names {
            let path = directory.join(name);
            let full = root.join(&path);
            let found = full.symlink_metadata().unwrap();
            let mode = found.permissions().mode() & 0o7777;
            let kind = found.file_type();
            let node = if kind.is_symlink() {
                Node::Symlink { target: std::fs::read_link(&full).unwrap() }
            } else if kind.is_dir() {
                pending.push(path.clone());
                Node::Directory { mode }
            } else if kind.is_file() {
                let mut value = [0u8; 256];
                let length = rustix::fs::lgetxattr(&full, ATTRIBUTE, &mut value[..]).ok();
                let attribute = length.map(|length| value[..length].to_vec());
                inodes.entry(found.ino()).or_insert_with(|| path.clone());
                let bytes = std::fs::read(&full).unwrap();
                let (size, bytes) = (bytes.len(), blake3::hash(&bytes));
                Node::File {
                    size,
                    bytes,
                    mode,
                    attribute,
                    first: PathBuf::from(found.ino().to_string()),
                }
            } else {
                Node::Fifo { mode }
            };
            all.insert(path, node);
        }
    }
    // Links are compared by the first name of the inode, in order of names.
    let mut firsts: HashMap<PathBuf, PathBuf> = HashMap::new();
    for (path, node) in &mut all {
        if let Node::File { first, .. } = node {
            *first = firsts.entry(first.clone()).or_insert_with(|| path.clone()).clone();
        }
    }
    all
}
