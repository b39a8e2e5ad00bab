//! A writable tree whose writes go to a layer of its own: overlayfs, in the child's namespaces.
//!
//! Attributes of overlayfs are kept as the user's own (`userxattr`, Linux 5.11), which is what a
//! user namespace may write. With them the kernel makes no redirects and no copies of metadata
//! alone: each changed file is whole in the layer, and renaming a directory that is on the host is
//! `EXDEV`, for which `mv` and its kin copy.

use super::mounts::{attach, copy_tree, make_directory, new_file_system_with, remove};
use super::script::{Arg, NO_DIRECTORY, Script};
use ringfence_start::Sysno;
use ringfence_start::image::special;
use ringfence_sys::mount::attribute::{NO_DEVICES, NO_SUID};
use ringfence_sys::{Errno, describe};
use std::path::Path;

/// Where an overlay is mounted for the moment in which a file of it is taken.
const ASIDE: &str = ".overlay";

/// A tree, or one file, with a layer on top.
pub(super) struct Layered<'a> {
    pub path: &'a Path,
    pub directory: bool,
    /// Holds the directories `upper` and `work`.
    pub apart: &'a Path,
    /// What is written is dropped with the run.
    pub dropped: bool,
}

/// Writes the steps that make it, attached nowhere yet.
pub(super) fn tree(script: &mut Script, layered: &Layered<'_>, memory: u8) -> u8 {
    let Layered { path, directory, apart, dropped } = *layered;
    let parent = path.parent().unwrap_or(Path::new("/"));
    let lower = if directory { path } else { parent };
    let places = [lower.to_path_buf(), apart.join("upper"), apart.join("work")];
    // A plan that was not told where its layers are (`Plan::keep_apart`) must not find some in the directory
    // of whoever started it: a path that is not absolute is one of no directory.
    let opened = places.map(|place| script.open_without_links(NO_DIRECTORY, &place));
    // By descriptor: no name is looked up again, and none has to be quoted.
    let named = opened.map(|place| {
        const PREFIX: &[u8] = b"/proc/self/fd/";
        let text = script.bytes(&[PREFIX, &[0; 11]].concat());
        let number = u64::from(text) + PREFIX.len() as u64;
        script.step(special::NUMBER, &[Arg::Number(number), Arg::Register(place)]);
        Arg::Data(text)
    });
    let off = script.text(c"off");
    let options = [
        (c"lowerdir", Some(named[0])),
        (c"upperdir", Some(named[1])),
        (c"workdir", Some(named[2])),
        (c"userxattr", None),
        (c"index", Some(off)),
        // Its end would have the kernel write out all that the file system of the layer holds, others'
        // files too (Linux 5.10 can do without): a second and more, for what is dropped then.
        (c"volatile", None),
    ];
    let options = &options[..options.len() - usize::from(!dropped)];
    let attributes = NO_SUID | NO_DEVICES;
    let whole = new_file_system_with(script, c"overlay", options, attributes);
    for place in opened {
        script.close(place);
    }
    let Some(name) = path.file_name().filter(|_| !directory) else { return whole };
    // Only what is attached can be copied (before Linux 6.15).
    const MNT_DETACH: u32 = 2;
    let aside = Path::new(ASIDE);
    make_directory(script, memory, aside, 0o700);
    attach(script, whole, memory, aside);
    let file = copy_tree(script, whole, Path::new(name), false, attributes);
    // Detached by a name that only a descriptor gives: the root is stacked on the host's.
    const PREFIX: &[u8] = b"/proc/self/fd/";
    let text = script.bytes(&[PREFIX, &[0; 11]].concat());
    let number = u64::from(text) + PREFIX.len() as u64;
    script.step(special::NUMBER, &[Arg::Number(number), Arg::Register(whole)]);
    script.call(Sysno::umount2, &[Arg::Data(text), MNT_DETACH.into()]);
    script.close(whole);
    remove(script, memory, aside, true);
    file
}

/// The sentence for a step of it that failed.
pub(super) fn failure(path: &Path, errno: Errno) -> String {
    let state = "ringfence's state directory";
    let why = match errno {
        Errno::EINVAL => format!(
            "; another file system is mounted below it, or the one that holds {state} cannot hold \
             an overlay (one that is an overlay itself cannot; XDG_STATE_HOME names another)"
        ),
        Errno::ELOOP | Errno::EBUSY => format!("; {state} lies in it (XDG_STATE_HOME moves it)"),
        Errno::EPERM => "; unprivileged overlays need Linux 5.11".to_owned(),
        Errno::ENODEV => "; the kernel has no overlay file system (CONFIG_OVERLAY_FS)".to_owned(),
        _ => String::new(),
    };
    format!(
        "cannot keep writes to {} apart: {} ({errno:?}){why}; nothing was run, and nothing written",
        path.display(),
        describe(errno)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_not_looked_for_where_the_caller_is() {
        let mut script = Script::default();
        let (path, apart) = (Path::new("/srv"), Path::new(""));
        tree(&mut script, &Layered { path, directory: true, apart, dropped: false }, 9);
        let opens = script.build.ops.iter().filter(|op| op.call == Sysno::openat2 as u32);
        let directories: Vec<i64> = opens.map(|op| op.arguments[0] as i64).collect();
        // EBADF for a path that is not absolute; with AT_FDCWD (-100) it would be found.
        assert_eq!(directories, [-1, -1, -1]);
    }
}
