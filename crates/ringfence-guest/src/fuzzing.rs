//! What fuzzing calls, and plain tests: everything here is bytes of somebody who is not trusted.

use crate::bridge::{still, trees};
use crate::files::{self, Files};
use crate::wire::fields::Writer;
use crate::wire::{Framer, Message, ToGuest, ToHost};
use std::fs::{File, Permissions};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
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

/// A small tree of this process's own.
fn tree() -> &'static Path {
    static TREE: OnceLock<PathBuf> = OnceLock::new();
    TREE.get_or_init(|| {
        let tree = std::env::temp_dir().join(format!("ringfence-fuzz-{}", std::process::id()));
        let _ = std::fs::create_dir_all(tree.join("directory"));
        let _ = std::fs::write(tree.join("file"), "content");
        let _ = std::os::unix::fs::symlink("../..", tree.join("link"));
        tree
    })
}

/// Removes that tree: for tests, after which nothing is to be left.
pub fn clear() {
    let _ = std::fs::remove_dir_all(tree());
}

/// Requests for files, one after the other, each with its length before it.
pub fn files(bytes: &[u8]) {
    if let Ok(mut served) = Files::new(tree(), 1 << 30) {
        ask(&mut served, bytes);
    }
}

fn ask(served: &mut Files, mut bytes: &[u8]) {
    while let Some((head, rest)) = bytes.split_first_chunk::<2>() {
        let length = usize::from(u16::from_le_bytes(*head)).min(rest.len());
        let (request, rest) = rest.split_at(length);
        let _ = files::rehearse(request);
        let answer = served.answer(request);
        assert!(answer.is_none_or(|answer| answer.len() >= 16));
        bytes = rest;
    }
}

/// Requests for a name and for what is behind it, as the guest's kernel makes them.
fn request(opcode: u32, node: u64, body: &[u8]) -> Vec<u8> {
    let w = Writer::default().word(40 + body.len() as u32).word(opcode).long(7).long(node);
    let bytes = [w.long(0).long(0).0, body.to_vec()].concat();
    [&(bytes.len() as u16).to_le_bytes()[..], &bytes].concat()
}

/// What a bridge saves of a guest that has a directory and two files open, and one command.
fn table(served: &mut Files) -> Vec<u8> {
    for (name, node, opcode) in [(&b"file\0"[..], 5, 14), (b"directory\0", 6, 27)] {
        ask(served, &[request(1, 1, name), request(opcode, node, &[0; 8])].concat());
    }
    let command = Writer::default().word(2).word(1).word(1).byte(1).byte(1).byte(0).byte(0).byte(0);
    let command = command.long(1000).long(0).long(9).0;
    [command, served.save().unwrap_or_default()].concat()
}

/// Writes bytes over some of another list's: a place, and what it has then.
fn changed(mut list: Vec<u8>, bytes: &[u8]) -> Vec<u8> {
    for change in bytes.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % list.len().max(1);
        list[at] = change[2];
    }
    list
}

/// What a fork's bridge is given of another one's commands and files: these bytes, and what is as it should be but for some
/// of its bytes. Whatever was taken over serves, and can be saved for the next fork.
pub fn saved(bytes: &[u8]) {
    let new = || Files::new(tree(), 1 << 20);
    let (Ok(mut first), Ok(mut other), Ok(mut next)) = (new(), new(), new()) else { return };
    still::adopted(&mut next, bytes);
    let taken = still::adopted(&mut other, &changed(table(&mut first), bytes));
    assert!(taken || !bytes.is_empty());
    if !taken {
        return;
    }
    for node in 0..8 {
        ask(&mut other, &[request(3, node, &[0; 16]), request(1, node, b"file\0")].concat());
        let read = Writer::default().long(node).long(0).word(4096).word(0).0;
        ask(&mut other, &[request(15, 5, &read), request(28, 6, &read)].concat());
    }
    if let (Ok(again), Ok(mut next)) = (other.save(), new()) {
        assert!(next.adopt(&again, &[]).is_ok());
    }
}

/// What a fork's bridge is given of another one's private directories, in the same two ways: made in a directory.
pub fn trees(bytes: &[u8]) {
    const MOST: u64 = 1 << 20;
    let memory = |bytes: &[u8]| ringfence_sys::fd::in_memory(bytes).map(File::from);
    let (Ok(list), Ok(copy)) = (memory(b""), memory(bytes)) else { return };
    let Ok(to) = list.try_clone() else { return };
    let _ = trees::save(&[tree().to_owned()], Path::new(""), to, MOST);
    let list = ringfence_sys::fd::content(list.as_fd(), MOST as usize);
    let Ok(other) = memory(&changed(list.unwrap_or_default(), bytes)) else { return };
    let place = tree().with_extension("made");
    for list in [copy, other] {
        let _ = std::fs::create_dir(&place);
        let _ = trees::make(std::slice::from_ref(&place), list, MOST);
        let _ = std::fs::set_permissions(&place, Permissions::from_mode(0o700));
        let _ = std::fs::remove_dir_all(&place);
    }
}
