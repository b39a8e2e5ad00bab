//! What the view has that no host has: files, sockets, and files beside the host's own.

use super::super::compile::assistance;
use super::super::mounts::{
    O_CLOEXEC, attach, copy_tree, make_directory, make_file, new_file_system, relative, remove,
    set_attributes,
};
use super::super::script::Arg;
use super::Building;
use crate::plan::Besides;
use ringfence_net::inspect::Content;
use ringfence_start::Sysno;
use ringfence_start::image::special;
use ringfence_sys::mount::attribute::{NO_DEVICES, NO_EXEC, NO_SUID, READ_ONLY};
use std::path::Path;

const O_WRONLY_CLOEXEC: u32 = 0o1 | O_CLOEXEC;

impl Building<'_> {
    /// A file of the session's own, made on the side and bound read-only to its place.
    pub(super) fn data(&mut self, path: &Path, content: Content) {
        self.script.note("put the session's certificates at", Some(path));
        let name = Path::new(".data");
        make_file(self.script, self.memory, name, 0o444);
        let text = self.script.path(name);
        let memory = Arg::Register(self.memory);
        let file = self.script.open(Sysno::openat, &[memory, text, O_WRONLY_CLOEXEC.into()]);
        let what = assistance::DATA + content as u64;
        self.script.step(special::ASSIST, &[what.into(), Arg::Register(file)]);
        self.script.close(file);
        let attributes = READ_ONLY | NO_SUID | NO_DEVICES;
        let tree = copy_tree(self.script, self.memory, name, false, attributes);
        self.make_target(path, false);
        let target = self.open_in_view(path);
        attach(self.script, tree, target, Path::new(""));
        self.script.close(target);
        self.script.close(tree);
        remove(self.script, self.memory, name, false);
    }

    /// A listening socket, whose listener goes to the launcher.
    pub(super) fn gateway(&mut self, path: &Path) {
        self.make_parents(path);
        self.script.note("make the gateway at", Some(path));
        self.script.call(Sysno::fchdir, &[Arg::Register(self.root)]);
        super::super::capture::local_listener(
            self.script,
            relative(path),
            crate::live::GATEWAY,
            &[],
        );
    }

    /// The session bus: a listening socket, and a file system without a name where its filter can
    /// listen, so that the host has no name for that either.
    pub(super) fn bus(&mut self, path: &Path) {
        self.make_parents(path);
        self.script.note("make the session bus at", Some(path));
        let attributes = NO_SUID | NO_DEVICES | NO_EXEC;
        let options = [(c"mode", Some(c"0700"))];
        let room = new_file_system(self.script, c"tmpfs", &options, attributes);
        self.script.call(Sysno::fchdir, &[Arg::Register(self.root)]);
        super::super::capture::local_listener(
            self.script,
            relative(path),
            crate::live::BUS,
            &[room],
        );
        self.script.close(room);
    }

    /// Lays a directory in memory over one that is bound: the files, and the host's own, bound from below it.
    pub(super) fn besides(&mut self, path: &Path, besides: &Besides) {
        self.script.note("show the settings of browsers in", Some(path));
        let attributes = NO_SUID | NO_DEVICES | NO_EXEC;
        let options = [(c"mode", Some(c"0755"))];
        let made = new_file_system(self.script, c"tmpfs", &options, attributes);
        for (file, text) in &besides.files {
            let parents: Vec<&Path> = file.ancestors().skip(1).collect();
            for parent in parents.iter().rev().filter(|parent| !parent.as_os_str().is_empty()) {
                make_directory(self.script, made, parent, 0o755);
            }
            make_file(self.script, made, file, 0o444);
            let name = self.script.path(file);
            let arguments = [Arg::Register(made), name, O_WRONLY_CLOEXEC.into()];
            let file = self.script.open(Sysno::openat, &arguments);
            let at = Arg::Data(self.script.text_at(text.as_bytes()));
            self.script.call(Sysno::write, &[Arg::Register(file), at, text.len().into()]);
            self.script.close(file);
        }
        let below = self.open_in_view(path);
        attach(self.script, made, below, Path::new(""));
        for entry in &besides.entries {
            match &entry.link {
                Some(target) => {
                    let (target, name) = (self.script.path(target), self.script.path(&entry.name));
                    self.script.call(Sysno::symlinkat, &[target, Arg::Register(made), name]);
                }
                None => {
                    if entry.directory {
                        make_directory(self.script, made, &entry.name, 0o755);
                    } else {
                        make_file(self.script, made, &entry.name, 0o444);
                    }
                    let attributes = NO_SUID | NO_DEVICES | READ_ONLY;
                    let tree = copy_tree(self.script, below, &entry.name, true, attributes);
                    attach(self.script, tree, made, &entry.name);
                    self.script.close(tree);
                }
            }
        }
        set_attributes(self.script, made, READ_ONLY, false);
        self.script.close(below);
        self.script.close(made);
    }
}
