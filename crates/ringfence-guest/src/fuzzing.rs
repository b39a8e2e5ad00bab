//! What fuzzing calls, and plain tests: everything here is bytes of somebody who is not trusted.

use crate::files::{self, Files};
use crate::wire::{Framer, Message, ToGuest, ToHost};
use std::path::PathBuf;
use std::sync::OnceLock;

/// Takes frames until there are none or they are broken. A message that was understood must say the same
/// again.
fn frames<M: Message + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    let mut framer = Framer::default();
    // In two parts, as they may come.
    let (first, rest) = bytes.split_at(bytes.len() / 2);
    for part in [first, rest] {
        framer.add(part);
        while let Ok(Some((channel, message))) = framer.take::<M>() {
            let mut again = Framer::default();
            again.add(&message.encode(channel));
            assert_eq!(again.take::<M>(), Ok(Some((channel, message))));
        }
    }
}

/// What a guest says to the bridge.
pub fn from_guest(bytes: &[u8]) {
    frames::<ToHost>(bytes);
}

/// What a host says to the agent.
pub fn from_host(bytes: &[u8]) {
    frames::<ToGuest>(bytes);
}

/// Requests for files, one after the other, each with its length before it, over a small tree of this
/// process's own.
pub fn files(mut bytes: &[u8]) {
    static TREE: OnceLock<PathBuf> = OnceLock::new();
    let tree = TREE.get_or_init(|| {
        let tree = std::env::temp_dir().join(format!("ringfence-fuzz-{}", std::process::id()));
        let _ = std::fs::create_dir_all(tree.join("directory"));
        let _ = std::fs::write(tree.join("file"), "content");
        let _ = std::os::unix::fs::symlink("../..", tree.join("link"));
        tree
    });
    let Ok(mut served) = Files::new(tree, 1 << 30) else { return };
    while let Some((head, rest)) = bytes.split_first_chunk::<2>() {
        let length = usize::from(u16::from_le_bytes(*head)).min(rest.len());
        let (request, rest) = rest.split_at(length);
        let _ = files::rehearse(request);
        let answer = served.answer(request);
        assert!(answer.is_none_or(|answer| answer.len() >= 16));
        bytes = rest;
    }
}
