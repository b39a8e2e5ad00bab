//! FUSE as the kernel speaks it (`include/uapi/linux/fuse.h`, version 7.33): requests taken apart,
//! replies put together. Little-endian, as all machines that this serves are.

/// The version spoken.
pub const MAJOR: u32 = 7;
/// The minor version spoken: what a newer kernel adds is not used.
pub const MINOR: u32 = 33;
/// Bytes before a request's own.
pub const HEADER: usize = 40;

macro_rules! opcodes {
    ($($name:ident = $number:literal),* $(,)?) => {
        /// What is asked for.
        #[allow(missing_docs)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Opcode { $($name),* }
        impl Opcode {
            /// By its number.
            pub fn of(number: u32) -> Option<Opcode> {
                match number { $($number => Some(Opcode::$name),)* _ => None }
            }
        }
    };
}

opcodes! {
    Lookup = 1, Forget = 2, GetAttr = 3, SetAttr = 4, ReadLink = 5, Symlink = 6, MakeNode = 8,
    MakeDirectory = 9, Unlink = 10, RemoveDirectory = 11, Rename = 12, Link = 13, Open = 14,
    Read = 15, Write = 16, StatFs = 17, Release = 18, Sync = 20, SetAttribute = 21,
    GetAttribute = 22, ListAttributes = 23, RemoveAttribute = 24, Flush = 25, Init = 26,
    OpenDirectory = 27, ReadDirectory = 28, ReleaseDirectory = 29, SyncDirectory = 30,
    Access = 34, Create = 35, Interrupt = 36, Destroy = 38, BatchForget = 42, Allocate = 43,
    ReadDirectoryPlus = 44, Rename2 = 45, Seek = 46, CopyRange = 47,
}

/// The beginning of every request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The operation's number.
    pub opcode: u32,
    /// Comes back with the reply.
    pub unique: u64,
    /// What it is about.
    pub node: u64,
    /// The rest.
    pub body: Fields<'a>,
}

impl<'a> Request<'a> {
    /// Takes a request apart; `None` when it is none.
    pub fn parse(bytes: &'a [u8]) -> Option<Request<'a>> {
        let mut fields = Fields(bytes);
        let length = fields.word()?;
        let opcode = fields.word()?;
        let (unique, node) = (fields.long()?, fields.long()?);
        let body = Fields(bytes.get(HEADER..)?);
        (length as usize == bytes.len()).then_some(Request { opcode, unique, node, body })
    }
}

/// Fields of a request, in order.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }
    /// The next 32 bits.
    pub fn word(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }
    /// The next 64 bits.
    pub fn long(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
    /// Leaves bytes out.
    pub fn skip(&mut self, count: usize) {
        self.0 = self.0.get(count..).unwrap_or_default();
    }
    /// The next string, without its NUL.
    pub fn text(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|&byte| byte == 0)?;
        let (text, rest) = self.0.split_at(end);
        self.0 = &rest[1..];
        Some(text)
    }
    /// The next string, as the name of one entry: never one that leads elsewhere.
    pub fn name(&mut self) -> Option<&'a [u8]> {
        let name = self.text()?;
        let odd = name.is_empty() || name == b"." || name == b".." || name.contains(&b'/');
        (!odd).then_some(name)
    }
}

/// A reply's bytes, in order.
#[derive(Clone, Debug, Default)]
pub struct Body(pub Vec<u8>);

impl Body {
    /// Adds 16 bits.
    pub fn short(&mut self, value: u16) -> &mut Body {
        self.0.extend(value.to_le_bytes());
        self
    }
    /// Adds 32 bits.
    pub fn word(&mut self, value: u32) -> &mut Body {
        self.0.extend(value.to_le_bytes());
        self
    }
    /// Adds 64 bits.
    pub fn long(&mut self, value: u64) -> &mut Body {
        self.0.extend(value.to_le_bytes());
        self
    }
    /// Adds zeroes.
    pub fn zeroes(&mut self, count: usize) -> &mut Body {
        self.0.resize(self.0.len() + count, 0);
        self
    }
}

/// A whole reply: an error number, or a body.
pub fn reply(unique: u64, result: Result<&[u8], i32>) -> Vec<u8> {
    let (error, body) = match result {
        Ok(body) => (0, body),
        Err(errno) => (-errno, &[][..]),
    };
    let mut bytes = Vec::with_capacity(16 + body.len());
    bytes.extend(((16 + body.len()) as u32).to_le_bytes());
    bytes.extend(error.to_le_bytes());
    bytes.extend(unique.to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// `FATTR_*`: which attributes a `SETATTR` sets.
pub mod set {
    /// Permission bits.
    pub const MODE: u32 = 1;
    /// Owner.
    pub const USER: u32 = 2;
    /// Group.
    pub const GROUP: u32 = 4;
    /// Size.
    pub const SIZE: u32 = 8;
    /// Time of the last read.
    pub const ATIME: u32 = 16;
    /// Time of the last write.
    pub const MTIME: u32 = 32;
    /// There is a handle.
    pub const HANDLE: u32 = 64;
    /// Time of the last read: now.
    pub const ATIME_NOW: u32 = 128;
    /// Time of the last write: now.
    pub const MTIME_NOW: u32 = 256;
}

/// Flags of `INIT`: reads at once, truncating opens, big writes, invalidation by changed times,
/// directories with attributes, long requests, cached links; and `HANDLE_KILLPRIV_V2`: the host's kernel
/// takes set-user-ID bits and capabilities off what is written, so that the guest's need not ask for
/// them before each write.
pub const INIT_FLAGS: u32 = 1
    | 1 << 3
    | 1 << 5
    | 1 << 12
    | 1 << 13
    | 1 << 14
    | 1 << 15
    | 1 << 18
    | 1 << 22
    | 1 << 23
    | 1 << 28;
