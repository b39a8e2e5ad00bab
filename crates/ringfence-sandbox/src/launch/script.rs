//! Writes an image: steps one after the other, the data they point to, and a note for each step
//! that says in words what it was for.

use ringfence_start::Sysno;
use ringfence_start::image::{Kind, NONE, Op, register, special};
use std::collections::HashMap;
use std::ffi::CStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// An argument of a step.
#[derive(Clone, Copy, Debug)]
pub(super) enum Arg {
    /// The number itself.
    Number(u64),
    /// A pointer to data.
    Data(u32),
    /// What an earlier step left in a register.
    Register(u8),
}

impl From<i32> for Arg {
    fn from(number: i32) -> Arg {
        Arg::Number(i64::from(number) as u64)
    }
}

impl From<u32> for Arg {
    fn from(number: u32) -> Arg {
        Arg::Number(u64::from(number))
    }
}

impl From<u64> for Arg {
    fn from(number: u64) -> Arg {
        Arg::Number(number)
    }
}

impl From<usize> for Arg {
    fn from(number: usize) -> Arg {
        Arg::Number(number as u64)
    }
}

/// Of what a step is a part: what was being done, and to which path.
#[derive(Clone, Debug, Default)]
pub(super) struct Note {
    pub what: &'static str,
    pub path: Option<PathBuf>,
}

/// A list of steps with their notes.
#[derive(Debug, Default)]
pub(super) struct Steps {
    pub ops: Vec<Op>,
    pub notes: Vec<Note>,
}

/// Which list is being written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Part {
    #[default]
    Build,
    Confine,
}

/// The image in the making.
#[derive(Debug, Default)]
pub(super) struct Script {
    pub build: Steps,
    pub confine: Steps,
    /// How many steps of `confine` are the first command's only, and how many need nothing of the view.
    pub aside: usize,
    pub early: usize,
    /// How many steps of it may be made before it is known whether the plan holds.
    pub held: usize,
    pub data: Vec<u8>,
    part: Part,
    note: Note,
    /// Where strings are, so that each is there once.
    texts: HashMap<Vec<u8>, u32>,
    free: Vec<u8>,
    registers: u8,
}

impl Script {
    /// An empty one, with room for as much as most take.
    pub fn with_room() -> Script {
        let mut script = Script::default();
        script.build.ops.reserve(512);
        script.confine.ops.reserve(128);
        script.data.reserve(24 << 10);
        script.texts.reserve(384);
        script
    }

    /// Goes on to another list.
    pub fn part(&mut self, part: Part) {
        self.part = part;
    }

    /// What the following steps are for.
    pub fn note(&mut self, what: &'static str, path: Option<&Path>) {
        self.note = Note { what, path: path.map(Path::to_path_buf) };
    }

    /// A register for a descriptor. At most some fifty are in use at once.
    pub fn register(&mut self) -> u8 {
        self.free.pop().unwrap_or_else(|| {
            self.registers += 1;
            register::FREE + self.registers - 1
        })
    }

    /// A zero-terminated string in the data.
    pub fn text(&mut self, text: &CStr) -> Arg {
        Arg::Data(self.text_at(text.to_bytes()))
    }

    /// A path in the data. Paths with a zero byte cannot come from a policy.
    pub fn path(&mut self, path: &Path) -> Arg {
        Arg::Data(self.text_at(path.as_os_str().as_bytes()))
    }

    /// Where a string is in the data.
    pub fn text_at(&mut self, text: &[u8]) -> u32 {
        if let Some(at) = self.texts.get(text) {
            return *at;
        }
        let at = self.data.len() as u32;
        self.data.extend_from_slice(text);
        self.data.push(0);
        self.texts.insert(text.to_vec(), at);
        at
    }

    /// Aligned bytes in the data.
    pub fn bytes(&mut self, bytes: &[u8]) -> u32 {
        while !self.data.len().is_multiple_of(8) {
            self.data.push(0);
        }
        let at = self.data.len() as u32;
        self.data.extend_from_slice(bytes);
        at
    }

    /// The list that is being written.
    pub fn steps(&mut self) -> &mut Steps {
        match self.part {
            Part::Build => &mut self.build,
            Part::Confine => &mut self.confine,
        }
    }

    /// How many steps the list has.
    pub fn length(&mut self) -> usize {
        self.steps().ops.len()
    }

    /// A step, whose details can be set in what it returns.
    pub fn step(&mut self, call: u32, arguments: &[Arg]) -> &mut Op {
        let mut op = Op { call, result: NONE, ..Op::default() };
        for (index, argument) in arguments.iter().enumerate() {
            let (kind, value) = match *argument {
                Arg::Number(number) => (Kind::Number, number),
                Arg::Data(at) => (Kind::Data, u64::from(at)),
                Arg::Register(register) => (Kind::Register, u64::from(register)),
            };
            op.kinds |= (kind as u32) << (4 * index);
            op.arguments[index] = value;
        }
        let note = self.note.clone();
        let steps = self.steps();
        steps.notes.push(note);
        steps.ops.push(op);
        let last = steps.ops.len() - 1;
        &mut steps.ops[last]
    }

    /// A system call.
    pub fn call(&mut self, call: Sysno, arguments: &[Arg]) -> &mut Op {
        self.step(call as u32, arguments)
    }

    /// A system call whose result, a descriptor, is kept.
    pub fn open(&mut self, call: Sysno, arguments: &[Arg]) -> u8 {
        let register = self.register();
        self.call(call, arguments).result = register;
        register
    }

    /// Closes a descriptor.
    pub fn close(&mut self, register: u8) {
        self.call(Sysno::close, &[Arg::Register(register)]);
        self.free.push(register);
    }

    /// Stores a number, or what a register holds, in the data.
    pub fn store(&mut self, at: u32, value: Arg, width: u32) {
        // The place is an offset, not a pointer.
        self.step(special::STORE, &[Arg::Number(u64::from(at)), value, width.into()]);
    }

    /// A mark of the trace.
    pub fn mark(&mut self, name: &CStr) {
        let name = self.text(name);
        self.step(special::MARK, &[name]);
    }

    /// Opens a path of which no component may be a symbolic link, as a place only.
    pub fn open_without_links(&mut self, directory: Arg, path: &Path) -> u8 {
        self.open_place(directory, path, 0)
    }

    /// The same, but what is at the path itself may be a link, which is opened then.
    pub fn open_link(&mut self, directory: Arg, path: &Path) -> u8 {
        self.open_place(directory, path, ringfence_start::flags::NO_FOLLOW as u64)
    }

    fn open_place(&mut self, directory: Arg, path: &Path, flags: u64) -> u8 {
        const O_PATH_CLOEXEC: u64 = 0o12_000_000;
        const NO_LINKS: u64 = 0x2 | 0x4; // RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS
        let how = [O_PATH_CLOEXEC | flags, 0, NO_LINKS];
        let how: Vec<u8> = how.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let how = Arg::Data(self.constant(&how));
        let path = self.path(path);
        self.open(Sysno::openat2, &[directory, path, how, 24_u32.into()])
    }

    /// Opens a directory of which no component may be a symbolic link, for reading.
    pub fn open_directory(&mut self, path: &Path) -> u8 {
        const DIRECTORY_CLOEXEC: u64 = 0o2_200_000;
        const NO_LINKS: u64 = 0x2 | 0x4; // RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS
        let how: Vec<u8> =
            [DIRECTORY_CLOEXEC, 0, NO_LINKS].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let how = Arg::Data(self.constant(&how));
        let path = self.path(path);
        self.open(Sysno::openat2, &[CWD, path, how, 24_u32.into()])
    }

    /// Bytes that no step changes, kept once.
    pub fn constant(&mut self, bytes: &[u8]) -> u32 {
        // Strings never begin with this, since they hold no zero byte.
        let key = [b"\0", bytes].concat();
        if let Some(at) = self.texts.get(&key) {
            return *at;
        }
        let at = self.bytes(bytes);
        self.texts.insert(key, at);
        at
    }
}

/// The current directory, for calls that take a directory (`AT_FDCWD`).
pub(super) const CWD: Arg = Arg::Number(-100_i64 as u64);

/// No directory: only absolute paths can be opened by it.
pub(super) const NO_DIRECTORY: Arg = Arg::Number(-1_i64 as u64);
