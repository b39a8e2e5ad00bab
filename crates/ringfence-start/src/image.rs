//! The compiled form of a plan: system calls with their arguments, and the data they point to.
//!
//! An image is one piece of bytes without pointers, so that it can be kept in a file and mapped.
//! Numbers are the machine's own; an image is never moved to another machine, its key names the
//! very binary that made it.
//!
//! ```text
//! Header | ops | stamps | data | extra
//! ```

/// The first word of every image: its format. Changed with every change of what is below.
pub const MAGIC: u64 = u64::from_le_bytes(*b"rfimageC");

/// A range of bytes in the image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Span {
    /// Where it begins.
    pub at: u32,
    /// Its length, in bytes or in records.
    pub length: u32,
}

/// What an image begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`sum`] over all that follows this field.
    pub sum: u64,
    /// Flags for `clone3(2)`.
    pub namespaces: u64,
    /// Of the whole, in bytes.
    pub length: u32,
    /// [`PROCESS_TIER`], [`ANNOUNCED`], [`BRIEF`], [`RECORDED`], [`PASSING`], [`JOB`],
    /// [`AWAITED`].
    pub flags: u32,
    /// The first so many steps of `confine` are a part of building the boundary, and for the first command
    /// only: rules of Landlock in the process tier, places of the view in the other one.
    pub aside: u32,
    /// The first so many steps of `confine` (those with them) need nothing of the view ([`crate::beside`]).
    pub early: u32,
    /// All but the last steps of `confine`, which are made when the launcher has said that the plan holds: who makes them is
    /// the command, or nearly, to signals and to the filter.
    pub held: u32,
    /// Nothing: spans follow in eight bytes each.
    pub unused: u32,
    /// Records of [`Op`]: what the child does before it looks for the command.
    pub build: Span,
    /// Records of [`Op`]: what a process does between `clone` and `execve`.
    pub confine: Span,
    /// Records of [`Stamp`].
    pub stamps: Span,
    /// Records of [`Stamp`] that are looked at while the view is built ([`crate::later`]).
    pub later: Span,
    /// Bytes that arguments point to.
    pub data: Span,
    /// In the data: what the key was made of.
    pub key: Span,
    /// In the data: one byte for each variable of the caller's environment, 1 when it is kept.
    pub kept: Span,
    /// In the data: `NAME=value` strings to add, one after the other.
    pub set: Span,
    /// In the data: records of [`Patch`].
    pub patches: Span,
    /// In the data: directories whose change times are noted at the start.
    pub notes: Span,
    /// In the data: those of writable trees, which are held ([`crate::tops`]).
    pub tops: Span,
    /// In the data: the directory in which the command starts.
    pub workdir: Span,
    /// In the data: what the user is told before the command runs.
    pub announce: Span,
    /// In the data: the file of notes of runs, and behind it the places to note ([`crate::runs`]).
    pub runs: Span,
    /// In the data: trees to look through after the run, and the names to look for ([`crate::quiet`]).
    pub trees: Span,
    /// In the data: the directory of all sessions.
    pub sessions: Span,
    /// In the data: the process tier's directory of this session.
    pub private: Span,
    /// In the data: what was made in it, the last first, each a name with a zero byte behind a `/` (a
    /// directory) or a `-` (a link).
    pub made: Span,
    /// What the launcher needs while the command runs, in a form of its own.
    pub extra: Span,
}

/// [`Header::flags`]: no namespaces; descendants are found by adoption.
pub const PROCESS_TIER: u32 = 1;
/// [`Header::flags`]: somebody waits to be told that the command executes.
pub const ANNOUNCED: u32 = 2;
/// [`Header::flags`]: a command that ends soon may end its launcher before libc is up ([`crate::brief`]).
pub const BRIEF: u32 = 4;
/// [`Header::flags`]: the session is recorded.
pub const RECORDED: u32 = 8;
/// [`Header::flags`]: nothing of the view lasts, so that nobody has to wait until it is taken apart ([`crate::teardown`]).
pub const PASSING: u32 = 16;
/// [`Header::flags`]: the command may be a job of its own ([`crate::job`]).
pub const JOB: u32 = 32;
/// [`Header::flags`]: the launcher has something to do that waits until all is built.
pub const AWAITED: u32 = 64;

/// What an argument of an [`Op`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The number itself.
    Number = 0,
    /// An offset into the data; the call gets a pointer.
    Data = 1,
    /// A register; the call gets its content.
    Register = 2,
}

/// No register.
pub const NONE: u8 = 0xff;

/// One step: a system call, or one of [`special`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Op {
    /// The call's number, or a special one.
    pub call: u32,
    /// The kinds of the arguments, four bits each.
    pub kinds: u32,
    /// Arguments.
    pub arguments: [u64; 6],
    /// Where the result goes.
    pub result: u8,
    /// Steps left out after a success.
    pub then: u8,
    /// Errors that are no failure; 0 for none.
    pub tolerated: [u8; 2],
    /// Steps left out after a tolerated error.
    pub otherwise: u32,
}

/// Steps that are not one system call.
pub mod special {
    /// All special numbers are at or above this.
    pub const FIRST: u32 = 0xf000_0000;
    /// Stores argument 1 at data offset 0, argument 2 bytes wide (4 or 8).
    pub const STORE: u32 = FIRST;
    /// Starts the process that becomes the command; 1: it makes a network namespace for itself.
    pub const COMMAND_START: u32 = FIRST + 1;
    /// Waits for the network namespace and enters it.
    pub const NETWORK_ENTER: u32 = FIRST + 2;
    /// Gives up all capabilities.
    pub const DROP_CAPABILITIES: u32 = FIRST + 3;
    /// Sets a resource limit: resource, value (at most the present hard limit).
    pub const LIMIT: u32 = FIRST + 4;
    /// Restricts to so many processors.
    pub const PROCESSORS: u32 = FIRST + 5;
    /// A mark of the trace: name.
    pub const MARK: u32 = FIRST + 6;
    /// Something that the launcher does with libc's help: its number.
    pub const ASSIST: u32 = FIRST + 7;
    /// A directory, by descriptor, must be the user's own: descriptor.
    pub const OWNED: u32 = FIRST + 8;
    /// Sends a byte and a descriptor on the control socket: byte, descriptor.
    pub const HAND_OUT: u32 = FIRST + 9;
    /// Ends here, with the launcher's: the launcher is gone.
    pub const LEAVE_IF_ORPHANED: u32 = FIRST + 10;
    /// Writes a number in decimal digits, with a zero byte: data offset, number.
    pub const NUMBER: u32 = FIRST + 12;
    /// Reads the answer to a netlink message: socket. An error in it is the step's.
    pub const ACKNOWLEDGED: u32 = FIRST + 11;
    /// Reads four bytes of the data: data offset.
    pub const LOAD: u32 = FIRST + 13;
    /// Grants by Landlock what the standard streams are: ruleset, rights that the kernel knows.
    pub const STREAMS: u32 = FIRST + 14;
    /// Has the process that becomes the command make the places of the view.
    pub const PLACES_START: u32 = FIRST + 15;
    /// Waits until they are made.
    pub const PLACES_MADE: u32 = FIRST + 16;
    /// All is built: has the command go, and lets go of the host's tree. The last step where there is a view.
    pub const ALL_BUILT: u32 = FIRST + 18;
    /// A path must lead to what a descriptor is, its last link not followed: descriptor, path.
    pub const LEADS_TO: u32 = FIRST + 17;
    /// Gives back what the launcher took from its caller for itself: [`super::register::INHERITED`].
    pub const INHERIT: u32 = FIRST + 19;
}

/// Registers with a meaning; images use the others as they like.
pub mod register {
    /// The control socket.
    pub const CONTROL: u8 = 0;
    /// The caller's file creation mask.
    pub const UMASK: u8 = 1;
    /// A pointer to the caller's signal mask.
    pub const SIGNAL_MASK: u8 = 2;
    /// The Landlock ruleset.
    pub const RULESET: u8 = 3;
    /// A pointer to the directory in which the command starts.
    pub const WORKDIR: u8 = 4;
    /// Two numbers made at random, by which the filter knows the session's own `execve`: they go
    /// where that call takes no arguments.
    pub const MARKS: [u8; 2] = [5, 6];
    /// What the command has as the caller had it, where the launcher has it otherwise ([`crate::inherited::of`]).
    pub const INHERITED: u8 = 7;
    /// The first one free for an image.
    pub const FREE: u8 = 8;
    /// How many there are.
    pub const COUNT: usize = 64;
}

/// A place in the data that is different at each start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Patch {
    /// Where.
    pub at: u32,
    /// [`SESSION`] or [`PID`].
    pub what: u32,
}

/// The session's number: eight hexadecimal digits.
pub const SESSION: u32 = 0;
/// The launcher's process number: ten decimal digits.
pub const PID: u32 = 1;

/// Something of the host that a plan was derived from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Stamp {
    /// One of [`stamp_kind`].
    pub kind: u32,
    /// Data offset of a path, or of a variable's name, with a zero byte.
    pub name: u32,
    /// Data offset of a link's target or a variable's value, with a zero byte, or of a list.
    pub text: u32,
    /// For alignment.
    pub unused: u32,
    /// Device, inode, size, modification and change time in nanoseconds.
    pub identity: [u64; 5],
}

/// What a [`Stamp`] says.
pub mod stamp_kind {
    /// Nothing is at the path.
    pub const ABSENT: u32 = 0;
    /// Something is, and it is no symbolic link.
    pub const PLAIN: u32 = 1;
    /// A symbolic link with this text.
    pub const LINK: u32 = 2;
    /// This very file or directory, unchanged.
    pub const SAME: u32 = 3;
    /// The environment has this variable with this value.
    pub const VARIABLE: u32 = 4;
    /// The environment does not have this variable.
    pub const UNSET: u32 = 5;
    /// A directory.
    pub const DIRECTORY: u32 = 6;
    /// Neither a directory nor a symbolic link.
    pub const FILE: u32 = 7;
    /// The command has this argument; its place is the first word of the identity, the name has
    /// place 0.
    pub const ARGUMENT: u32 = 8;
    /// The command has so many words (the first word of the identity).
    pub const WORDS: u32 = 9;
    /// This very directory, unchanged; or one that has just those of the names of a list (`text`)
    /// that it had ([`crate::listing`]).
    pub const LISTED: u32 = 10;
    /// This very directory, unchanged: then so are the entries that the next stamps are about, of which the
    /// text says how many they are. Else each is looked at.
    pub const UNCHANGED: u32 = 11;
    /// This very directory, unchanged; or one that still has more names than are looked through
    /// ([`crate::listing::MOST`]).
    pub const CROWDED: u32 = 12;
    /// What is at the path cannot be looked at.
    pub const HIDDEN: u32 = 13;
    /// This very directory, unchanged; or one that has just the symbolic links of a list (`text`).
    pub const LINKS: u32 = 14;
    /// A directory of the caller's own in which no others write, or nothing.
    pub const OWN: u32 = 15;
}

/// A checksum, eight bytes at a time: against torn and rotten files, not against forgers (the
/// file is the user's own and nobody else's to write).
pub fn sum(bytes: &[u8]) -> u64 {
    const PRIME: u64 = 0x9e37_79b9_7f4a_7c15;
    let step = |sum: u64, word: u64| (sum ^ word).wrapping_mul(PRIME).rotate_left(29);
    let mut sum = bytes.len() as u64 ^ PRIME;
    // Four at a time, of which none waits for another one's product.
    let mut sums = [sum, !sum, PRIME, !PRIME];
    let mut at = 0;
    while let Some(words) = bytes.get(at..).and_then(|rest| rest.first_chunk::<32>()) {
        let (words, _) = words.as_chunks::<8>();
        let mut lane = 0;
        while let (Some(sum), Some(word)) = (sums.get_mut(lane), words.get(lane)) {
            *sum = step(*sum, u64::from_le_bytes(*word));
            lane += 1;
        }
        at += 32;
    }
    let mut lane = 0;
    while let Some(one) = sums.get(lane) {
        sum = step(sum, *one);
        lane += 1;
    }
    while let Some(word) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        sum = step(sum, u64::from_le_bytes(*word));
        at += 8;
    }
    while let Some(byte) = bytes.get(at) {
        sum = step(sum, u64::from(*byte));
        at += 1;
    }
    sum
}

/// A mapped image whose ranges were checked.
#[derive(Clone, Copy)]
pub struct Image(*mut u8);

impl Image {
    /// Looks at bytes as an image; none when they are not one, whole and unharmed.
    ///
    /// # Safety
    /// `base` must point to `length` readable and writable bytes, aligned to eight, that live as
    /// long as the process, and that nothing else touches.
    pub unsafe fn new(base: *mut u8, length: usize) -> Option<Image> {
        if length < size_of::<Header>() || !(base as usize).is_multiple_of(8) {
            return None;
        }
        // SAFETY: long enough and aligned; a header is numbers only.
        let header = unsafe { &*base.cast::<Header>() };
        // SAFETY: within the caller's bytes.
        let rest = unsafe { core::slice::from_raw_parts(base.add(16), length - 16) };
        if header.magic != MAGIC || header.length as usize != length || header.sum != sum(rest) {
            return None;
        }
        let image = Image(base);
        let fits = |span: Span, record: usize, limit: usize| {
            let end =
                (span.at as usize).checked_add((span.length as usize).checked_mul(record)?)?;
            (end <= limit && (record == 1 || (span.at as usize).is_multiple_of(8))).then_some(())
        };
        fits(header.build, size_of::<Op>(), length)?;
        fits(header.confine, size_of::<Op>(), length)?;
        (header.aside <= header.early && header.early <= header.held).then_some(())?;
        (header.held <= header.confine.length).then_some(())?;
        fits(header.stamps, size_of::<Stamp>(), length)?;
        fits(header.later, size_of::<Stamp>(), length)?;
        fits(header.data, 1, length)?;
        fits(header.extra, 1, length)?;
        let data = header.data.length as usize;
        fits(header.key, 1, data)?;
        fits(header.kept, 1, data)?;
        fits(header.set, 1, data)?;
        fits(header.patches, size_of::<Patch>(), data)?;
        fits(header.notes, 1, data)?;
        fits(header.tops, 1, data)?;
        fits(header.workdir, 1, data)?;
        fits(header.announce, 1, data)?;
        fits(header.runs, 1, data)?;
        fits(header.trees, 1, data)?;
        fits(header.sessions, 1, data)?;
        fits(header.private, 1, data)?;
        fits(header.made, 1, data)?;
        // Every string in the data ends at the latest with the data.
        // SAFETY: the range was checked.
        (data > 0 && unsafe { *image.data_at(data as u32 - 1) } == 0).then_some(image)
    }

    /// An image in memory of its own.
    pub fn of(words: &'static mut [u64]) -> Option<Image> {
        let length = size_of_val(words);
        // SAFETY: aligned, writable, lent for ever and to nobody else.
        unsafe { Image::new(words.as_mut_ptr().cast(), length) }
    }

    /// The header.
    pub fn header(&self) -> &'static Header {
        // SAFETY: checked when the image was made; images live as long as the process.
        unsafe { &*self.0.cast::<Header>() }
    }

    /// A pointer into the data. The offset must be within it.
    pub(crate) fn data_at(&self, offset: u32) -> *mut u8 {
        // SAFETY: the callers keep offsets within the checked range.
        unsafe { self.0.add(self.header().data.at as usize + offset as usize) }
    }

    /// A pointer into the data, if the offset is in it with so many bytes.
    pub fn pointer(&self, offset: u64, bytes: u64) -> Option<*mut u8> {
        let fits = offset.checked_add(bytes)? <= u64::from(self.header().data.length);
        fits.then(|| self.data_at(offset as u32))
    }

    /// Bytes of the data.
    pub fn bytes(&self, span: Span) -> &[u8] {
        // SAFETY: spans of the header were checked against the data.
        unsafe { core::slice::from_raw_parts(self.data_at(span.at), span.length as usize) }
    }

    fn records<T: Copy>(&self, span: Span) -> &[T] {
        // SAFETY: the span was checked, its start is aligned, and records are numbers only.
        unsafe {
            let first = self.0.add(span.at as usize).cast::<T>();
            core::slice::from_raw_parts(first, span.length as usize)
        }
    }

    /// The steps that build the boundary.
    pub fn build(&self) -> &[Op] {
        self.records(self.header().build)
    }

    /// The steps between `clone` and `execve`.
    pub fn confine(&self) -> &[Op] {
        self.records(self.header().confine)
    }

    /// What the plan was derived from.
    pub fn stamps(&self) -> &[Stamp] {
        self.records(self.header().stamps)
    }

    /// Those of it that are looked at while the view is built.
    pub fn later(&self) -> &[Stamp] {
        self.records(self.header().later)
    }

    /// What the launcher needs while the command runs.
    pub fn extra(&self) -> &[u8] {
        // SAFETY: the span was checked.
        unsafe {
            let first = self.0.add(self.header().extra.at as usize);
            core::slice::from_raw_parts(first, self.header().extra.length as usize)
        }
    }

    /// Writes what is different at each start.
    pub fn patch(&self, session: u32, pid: u32) {
        let span = self.header().patches;
        let mut at = 0;
        while at < span.length {
            let offset = span.at + at * size_of::<Patch>() as u32;
            // SAFETY: the span was checked; it is not aligned.
            let patch = unsafe { self.data_at(offset).cast::<Patch>().read_unaligned() };
            let hexadecimal = patch.what == SESSION;
            let (digits, number) = if hexadecimal { (8, session) } else { (10, pid) };
            if let Some(place) = self.pointer(u64::from(patch.at), digits) {
                // SAFETY: the range was checked, and nobody else looks at it now.
                let place = unsafe { core::slice::from_raw_parts_mut(place, digits as usize) };
                crate::bytes::write_digits(place, u64::from(number), hexadecimal);
            }
            at += 1;
        }
    }
}
