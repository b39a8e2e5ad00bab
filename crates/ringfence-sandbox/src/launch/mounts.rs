//! The calls of the mount API of Linux 5.2, and those that make the places for mounts, as steps.

use super::script::{Arg, Script};
use ringfence_start::Sysno;
use ringfence_start::image::Op;
use std::ffi::CStr;
use std::path::Path;

pub(super) const ENOENT: u8 = 2;
pub(super) const EEXIST: u8 = 17;
const EPERM: u8 = 1;
const ENOSYS: u8 = 38;
pub(super) const O_CLOEXEC: u32 = 0o2_000_000;
const AT_SYMLINK_NOFOLLOW: u32 = 0x100;
const AT_EMPTY_PATH: u32 = 0x1000;
const AT_RECURSIVE: u32 = 0x8000;
const OPEN_TREE_CLONE: u32 = 1;
const MOVE_MOUNT_F_EMPTY_PATH: u32 = 0x4;
const MOVE_MOUNT_T_EMPTY_PATH: u32 = 0x40;

/// The path relative to the root, for calls on the new root's descriptor.
pub(super) fn relative(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

/// Stops mounts made here from showing in any other namespace, and the reverse.
pub(super) fn make_private(script: &mut Script) {
    const MS_REC_PRIVATE: u32 = 0x4000 | 0x4_0000;
    let (none, root) = (script.text(c"none"), script.text(c"/"));
    script.call(Sysno::mount, &[none, root, 0_u32.into(), MS_REC_PRIVATE.into()]);
}

/// Makes a file system of its own, mounted nowhere yet.
pub(super) fn new_file_system(
    script: &mut Script,
    kind: &CStr,
    options: &[(&CStr, Option<&CStr>)],
    attributes: u64,
) -> u8 {
    let mut set = Vec::new();
    for (key, value) in options {
        set.push((*key, value.map(|value| script.text(value))));
    }
    new_file_system_with(script, kind, &set, attributes)
}

/// The same, with values that are in the data already.
pub(super) fn new_file_system_with(
    script: &mut Script,
    kind: &CStr,
    options: &[(&CStr, Option<Arg>)],
    attributes: u64,
) -> u8 {
    const CLOEXEC: u32 = 1; // FSOPEN_CLOEXEC, FSMOUNT_CLOEXEC
    const SET_FLAG: u32 = 0;
    const SET_STRING: u32 = 1;
    const CREATE: u32 = 6;
    let kind = script.text(kind);
    let context = script.open(Sysno::fsopen, &[kind, CLOEXEC.into()]);
    let configure = Arg::Register(context);
    for (key, value) in options {
        let key = script.text(key);
        let (command, value) = match value {
            Some(value) => (SET_STRING, *value),
            None => (SET_FLAG, 0_u32.into()),
        };
        script.call(Sysno::fsconfig, &[configure, command.into(), key, value]);
    }
    script.call(Sysno::fsconfig, &[configure, CREATE.into()]);
    let made = script.open(Sysno::fsmount, &[configure, CLOEXEC.into(), attributes.into()]);
    script.close(context);
    made
}

/// A private copy of what is mounted at a path (with everything mounted below it), attached
/// nowhere yet, its attributes set on the whole of it.
pub(super) fn copy_tree(
    script: &mut Script,
    directory: u8,
    path: &Path,
    recursive: bool,
    attributes: u64,
) -> u8 {
    let mut flags = OPEN_TREE_CLONE | O_CLOEXEC | AT_SYMLINK_NOFOLLOW;
    if path.as_os_str().is_empty() {
        flags |= AT_EMPTY_PATH;
    }
    if recursive {
        flags |= AT_RECURSIVE;
    }
    let arguments = [Arg::Register(directory), script.path(path), flags.into()];
    if attributes == 0 {
        return script.open(Sysno::open_tree, &arguments);
    }
    // Both in one call where the kernel has it (Linux 6.15), and a container's filter lets it pass.
    let [attr, size] = setting(script, attributes);
    let tree = script.register();
    let [directory, path, flags] = arguments;
    let both = script.call(Sysno::open_tree_attr, &[directory, path, flags, attr, size]);
    (both.result, both.tolerated, both.then) = (tree, [ENOSYS, EPERM], 2);
    script.call(Sysno::open_tree, &arguments).result = tree;
    set_attributes(script, tree, attributes, recursive);
    tree
}

/// A `struct mount_attr` that adds attributes, and its size.
fn setting(script: &mut Script, attributes: u64) -> [Arg; 2] {
    let words: Vec<u8> = [attributes, 0, 0, 0].iter().flat_map(|word| word.to_ne_bytes()).collect();
    [Arg::Data(script.constant(&words)), words.len().into()]
}

/// Adds attributes to a mount, with `recursive` to all below it (`mount_setattr(2)`, Linux 5.12).
pub(super) fn set_attributes(script: &mut Script, mount: u8, attributes: u64, recursive: bool) {
    let [attr, size] = setting(script, attributes);
    let flags = AT_EMPTY_PATH | if recursive { AT_RECURSIVE } else { 0 };
    let empty = script.text(c"");
    script.call(Sysno::mount_setattr, &[Arg::Register(mount), empty, flags.into(), attr, size]);
}

/// Attaches a mount at a path, which is not followed when it is a symbolic link.
pub(super) fn attach<'s>(
    script: &'s mut Script,
    mount: u8,
    directory: u8,
    path: &Path,
) -> &'s mut Op {
    let mut flags = MOVE_MOUNT_F_EMPTY_PATH;
    if path.as_os_str().is_empty() {
        flags |= MOVE_MOUNT_T_EMPTY_PATH;
    }
    let (empty, path) = (script.text(c""), script.path(path));
    let (mount, directory) = (Arg::Register(mount), Arg::Register(directory));
    script.call(Sysno::move_mount, &[mount, empty, directory, path, flags.into()])
}

pub(super) fn make_directory(script: &mut Script, directory: u8, path: &Path, mode: u32) {
    let path = script.path(path);
    let arguments = [Arg::Register(directory), path, mode.into()];
    script.call(Sysno::mkdirat, &arguments).tolerated[0] = EEXIST;
}

pub(super) fn make_file(script: &mut Script, directory: u8, path: &Path, mode: u32) {
    const S_IFREG: u32 = 0o100_000;
    let path = script.path(path);
    let arguments = [Arg::Register(directory), path, (S_IFREG | mode).into(), 0_u32.into()];
    script.call(Sysno::mknodat, &arguments).tolerated[0] = EEXIST;
}

pub(super) fn remove(script: &mut Script, directory: u8, path: &Path, is_directory: bool) {
    const AT_REMOVEDIR: u32 = 0x200;
    let flags = if is_directory { AT_REMOVEDIR } else { 0 };
    let path = script.path(path);
    script.call(Sysno::unlinkat, &[Arg::Register(directory), path, flags.into()]);
}

/// Files and directories for a size: each takes memory that no block counts. The view itself is made of some as well.
pub(super) fn most_files(bytes: u64) -> u64 {
    const BLOCK: u64 = 4096;
    const AT_LEAST: u64 = 8192;
    bytes / BLOCK + AT_LEAST
}

/// The options of a file system in memory.
pub(super) fn memory_options<'o>(
    mode: &'o CStr,
    size: &'o CStr,
    files: Option<&'o CStr>,
) -> Vec<(&'o CStr, Option<&'o CStr>)> {
    let files = files.map(|files| (c"nr_inodes", Some(files)));
    [(c"mode", Some(mode)), (c"size", Some(size))].into_iter().chain(files).collect()
}
