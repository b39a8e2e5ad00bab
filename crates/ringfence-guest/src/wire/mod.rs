//! What the two ends say to each other: frames of a kind, a channel and a payload.
//!
//! ```text
//! u32 length of the payload │ u8 kind │ u32 channel │ payload          little-endian
//! ```
//!
//! Every frame is bounded, nothing is reserved for a length that was only promised, and what cannot
//! be read ends the connection. Streams have a window: who sends more than the other end said it
//! takes is no honest end, and is hung up on.

pub(crate) mod fields;

use fields::{Reader, Writer};
use std::fmt;

/// Changes with any change of the frames; both ends must have the same.
pub const VERSION: u32 = 9;
/// The longest payload: a FUSE request that writes [`MOST_DATA`], with its header and name.
pub const MOST: usize = MOST_DATA + 64 * 1024;
/// The most bytes of a file that one FUSE request reads or writes.
pub const MOST_DATA: usize = 1 << 20;
/// How many bytes of a stream may be under way.
pub const WINDOW: usize = 256 * 1024;
/// The longest piece of a stream in one frame.
pub const PIECE: usize = 64 * 1024;
/// Bytes before the payload.
pub const HEADER: usize = 9;
/// The most strings of a command: arguments and variables.
pub(crate) const MOST_WORDS: usize = 64 * 1024;

/// Why a frame is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The payload is longer than [`MOST`].
    TooLong,
    /// A kind that this end does not take.
    Kind(u8),
    /// The payload is not what its kind says.
    Payload(u8),
    /// The guest has not begun, and says more than that.
    Early,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::TooLong => write!(f, "a frame is longer than {MOST} bytes"),
            Broken::Kind(kind) => write!(f, "a frame of the unknown kind {kind}"),
            Broken::Payload(kind) => write!(f, "a frame of the kind {kind} is malformed"),
            Broken::Early => f.write_str("it speaks before it has begun"),
        }
    }
}

/// Which of a command's output streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Standard output; of a terminal, all of it.
    Out,
    /// Standard error.
    Error,
}

/// A limit of the guest's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Its memory is used up: so many programs its kernel has ended for that since it was last told.
    Memory(u32),
    /// It has as many processes as it may have.
    Processes,
}

/// How a command ended or stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It ended with this code.
    Exited(u8),
    /// This signal ended it.
    Killed(u8),
    /// This signal stopped it.
    Stopped(u8),
}

/// What a guest that begins is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// Nanoseconds since 1970.
    pub clock: u64,
    /// New randomness: clones of one template must not share theirs.
    pub entropy: Vec<u8>,
    /// The host name.
    pub name: Vec<u8>,
    /// All connections go out by the stream; else there is only a loopback.
    pub network: bool,
    /// Ports of the guest's own loopback that lead to the host's, as ranges.
    pub loopback: Vec<(u16, u16)>,
    /// The most processes at once.
    pub processes: Option<u64>,
    /// The most bytes in `/dev/shm`, the one directory of the guest's own that programs may write.
    pub disk: Option<u64>,
}

/// A command for the guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exec {
    /// Input and output are a terminal of the command's own; so is standard error.
    pub terminal: (bool, bool),
    /// Its rows and columns.
    pub size: (u16, u16),
    /// User and group.
    pub user: (u32, u32),
    /// File creation mask.
    pub umask: u32,
    /// The most open files of a process: now, and what it may set itself.
    pub files: (u64, u64),
    /// The signals that it ignores, and those that it blocks, bit `n - 1` for signal `n`.
    pub signals: (u64, u64),
    /// Where.
    pub workdir: Vec<u8>,
    /// The program, where the host has found it in a directory of PATH; else the guest looks for it.
    pub program: Vec<u8>,
    /// What.
    pub argv: Vec<Vec<u8>>,
    /// `NAME=value`.
    pub environment: Vec<Vec<u8>>,
}

/// From the host to the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToGuest {
    /// Begin.
    Start(Start),
    /// Run a command; its channel is new.
    Exec(Exec),
    /// Bytes for its standard input.
    Input(Vec<u8>),
    /// There will be no more.
    InputEnd,
    /// A signal for it; for its group, when from a terminal.
    Signal(u8, bool),
    /// Its terminal's rows and columns.
    Resize(u16, u16),
    /// This much of an output was taken.
    Taken(Output, u32),
    /// The answer to a FUSE request.
    Files(Vec<u8>),
    /// The connection is made, or refused with this error number.
    Connected(u16),
    /// Bytes of a connection.
    Data(Vec<u8>),
    /// No more bytes of a connection come.
    DataEnd,
    /// This much of a connection was taken.
    DataTaken(u32),
    /// The connection is over.
    Close,
    /// Connect to this port of the guest's loopback; the channel is new.
    Inward(u16),
    /// The answer to a DNS query.
    Answer(Vec<u8>),
    /// End everything, write back what is to be written.
    Stop,
    /// Nobody reads this output any more.
    OutputEnd(Output),
    /// What was since it said hello was only played: it is to be as it was then, and says hello again; once its kernel has
    /// come to rest, where that was the last time.
    Again(bool),
    /// Say nothing more but this number, once all that came before it is done.
    Still(u32),
    /// Go on; at this time, where it stood still for a while: nanoseconds since 1970.
    On(Option<u64>),
    /// Go on as another session: connections are gone, and as in [`ToGuest::Start`] what clones must not share is new.
    Fork(Start),
}

/// From the guest to the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToHost {
    /// The agent is there: its [`VERSION`].
    Hello(u32),
    /// Commands can run; or cannot, with the reason.
    Ready(Result<(), String>),
    /// The command executes.
    Started,
    /// It cannot: the exit code that stands for it, and a sentence.
    Failed(u8, String),
    /// Bytes of an output.
    Output(Output, Vec<u8>),
    /// It ended or stopped.
    Change(Change),
    /// This much of the input was taken.
    Taken(u32),
    /// A FUSE request.
    Files(Vec<u8>),
    /// A program connects to this address (4 or 16 bytes) and port; the channel is new.
    Connect(Vec<u8>, u16),
    /// The connection inward is made, or refused with this error number.
    Connected(u16),
    /// Bytes of a connection.
    Data(Vec<u8>),
    /// No more bytes of a connection come.
    DataEnd,
    /// This much of a connection was taken.
    DataTaken(u32),
    /// The connection is over.
    Close,
    /// A DNS query; its channel comes back with the answer.
    Query(Vec<u8>),
    /// All is ended and written.
    Stopped,
    /// A limit was reached.
    Reached(Limit),
    /// The signal was given to the command.
    Delivered,
    /// All that was said before this number is done, and nothing more will be said.
    Still(u32),
}

impl Output {
    fn byte(self) -> u8 {
        u8::from(self == Output::Error)
    }
}

/// Puts a header before a payload.
fn frame(kind: u8, channel: u32, payload: Writer) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + payload.0.len());
    bytes.extend((payload.0.len() as u32).to_le_bytes());
    bytes.push(kind);
    bytes.extend(channel.to_le_bytes());
    bytes.extend(payload.0);
    bytes
}

/// Both ends' messages: to bytes with a channel, and back.
pub trait Message: Sized {
    /// As a frame.
    fn encode(&self, channel: u32) -> Vec<u8>;
    /// From a frame's kind and payload.
    ///
    /// # Errors
    /// [`Broken`].
    fn decode(kind: u8, payload: &[u8]) -> Result<Self, Broken>;
}

impl Message for ToGuest {
    fn encode(&self, channel: u32) -> Vec<u8> {
        let w = Writer::default();
        let (kind, payload) = match self {
            ToGuest::Start(start) => (1, w.start(start)),
            ToGuest::Exec(exec) => {
                let w = w.byte(u8::from(exec.terminal.0)).byte(u8::from(exec.terminal.1));
                let w = w.short(exec.size.0).short(exec.size.1);
                let w = w.word(exec.user.0).word(exec.user.1).word(exec.umask);
                let w = w.long(exec.files.0).long(exec.files.1);
                let w = w.long(exec.signals.0).long(exec.signals.1);
                let w = w.text(&exec.workdir).text(&exec.program);
                (2, w.texts(&exec.argv).texts(&exec.environment))
            }
            ToGuest::Input(bytes) => (3, Writer(bytes.clone())),
            ToGuest::InputEnd => (4, w),
            ToGuest::Signal(signal, group) => (5, w.byte(*signal).byte(u8::from(*group))),
            ToGuest::Resize(rows, columns) => (6, w.short(*rows).short(*columns)),
            ToGuest::Taken(output, count) => (7, w.byte(output.byte()).word(*count)),
            ToGuest::Files(bytes) => (8, Writer(bytes.clone())),
            ToGuest::Connected(errno) => (9, w.short(*errno)),
            ToGuest::Data(bytes) => (10, Writer(bytes.clone())),
            ToGuest::DataEnd => (11, w),
            ToGuest::DataTaken(count) => (12, w.word(*count)),
            ToGuest::Close => (13, w),
            ToGuest::Inward(port) => (14, w.short(*port)),
            ToGuest::Answer(bytes) => (15, Writer(bytes.clone())),
            ToGuest::Stop => (16, w),
            ToGuest::OutputEnd(output) => (17, w.byte(output.byte())),
            ToGuest::Again(last) => (18, w.byte(u8::from(*last))),
            ToGuest::Still(number) => (19, w.word(*number)),
            ToGuest::On(clock) => (20, w.maybe(*clock)),
            ToGuest::Fork(start) => (21, w.start(start)),
        };
        frame(kind, channel, payload)
    }

    fn decode(kind: u8, payload: &[u8]) -> Result<ToGuest, Broken> {
        let mut r = Reader(payload);
        let mut read = || {
            Some(match kind {
                1 => ToGuest::Start(r.start()?),
                2 => {
                    let exec = Exec {
                        terminal: (r.flag()?, r.flag()?),
                        size: (r.short()?, r.short()?),
                        user: (r.word()?, r.word()?),
                        umask: r.word()?,
                        files: (r.long()?, r.long()?),
                        signals: (r.long()?, r.long()?),
                        workdir: r.text()?,
                        program: r.text()?,
                        argv: r.texts()?,
                        environment: r.texts()?,
                    };
                    let nul = |text: &Vec<u8>| text.contains(&0);
                    let all = exec.argv.iter().chain(&exec.environment);
                    if exec.argv.is_empty() || all.chain([&exec.workdir, &exec.program]).any(nul) {
                        return None;
                    }
                    ToGuest::Exec(exec)
                }
                3 => ToGuest::Input(r.piece()?),
                4 => ToGuest::InputEnd,
                5 => ToGuest::Signal(r.signal()?, r.flag()?),
                6 => ToGuest::Resize(r.short()?, r.short()?),
                7 => ToGuest::Taken(r.output()?, r.word()?),
                8 => ToGuest::Files(r.rest()),
                9 => ToGuest::Connected(r.short()?),
                10 => ToGuest::Data(r.piece()?),
                11 => ToGuest::DataEnd,
                12 => ToGuest::DataTaken(r.word()?),
                13 => ToGuest::Close,
                14 => ToGuest::Inward(r.short()?),
                15 => ToGuest::Answer(r.piece()?),
                16 => ToGuest::Stop,
                17 => ToGuest::OutputEnd(r.output()?),
                18 => ToGuest::Again(r.flag()?),
                19 => ToGuest::Still(r.word()?),
                20 => ToGuest::On(r.maybe()?),
                21 => ToGuest::Fork(r.start()?),
                _ => return None,
            })
        };
        let message = read();
        whole(kind, kind <= 21, message, &r)
    }
}

impl Message for ToHost {
    fn encode(&self, channel: u32) -> Vec<u8> {
        let w = Writer::default();
        let (kind, payload) = match self {
            ToHost::Hello(version) => (1, w.word(*version)),
            ToHost::Ready(Ok(())) => (2, w.byte(0)),
            ToHost::Ready(Err(why)) => (2, Writer([&[1], why.as_bytes()].concat())),
            ToHost::Started => (3, w),
            ToHost::Failed(code, why) => (4, Writer([&[*code], why.as_bytes()].concat())),
            ToHost::Output(output, bytes) => {
                let mut w = w.byte(output.byte());
                w.0.extend(bytes);
                (5, w)
            }
            ToHost::Change(change) => {
                let (how, number) = match change {
                    Change::Exited(code) => (0, *code),
                    Change::Killed(signal) => (1, *signal),
                    Change::Stopped(signal) => (2, *signal),
                };
                (6, w.byte(how).byte(number))
            }
            ToHost::Taken(count) => (7, w.word(*count)),
            ToHost::Files(bytes) => (8, Writer(bytes.clone())),
            ToHost::Connected(errno) => (9, w.short(*errno)),
            ToHost::Data(bytes) => (10, Writer(bytes.clone())),
            ToHost::DataEnd => (11, w),
            ToHost::DataTaken(count) => (12, w.word(*count)),
            ToHost::Close => (13, w),
            ToHost::Connect(address, port) => {
                let mut w = w.short(*port);
                w.0.extend(address);
                (14, w)
            }
            ToHost::Query(bytes) => (15, Writer(bytes.clone())),
            ToHost::Stopped => (16, w),
            ToHost::Reached(Limit::Memory(count)) => (17, w.byte(0).word(*count)),
            ToHost::Reached(Limit::Processes) => (17, w.byte(1).word(0)),
            ToHost::Delivered => (18, w),
            ToHost::Still(number) => (19, w.word(*number)),
        };
        frame(kind, channel, payload)
    }

    fn decode(kind: u8, payload: &[u8]) -> Result<ToHost, Broken> {
        let mut r = Reader(payload);
        let mut read = || {
            Some(match kind {
                1 => ToHost::Hello(r.word()?),
                2 if r.flag()? => ToHost::Ready(Err(r.sentence())),
                2 => ToHost::Ready(Ok(())),
                3 => ToHost::Started,
                4 => ToHost::Failed(r.byte()?, r.sentence()),
                5 => ToHost::Output(r.output()?, r.piece()?),
                6 => ToHost::Change(match (r.byte()?, &mut r) {
                    (0, r) => Change::Exited(r.byte()?),
                    (1, r) => Change::Killed(r.signal()?),
                    (2, r) => Change::Stopped(r.signal()?),
                    _ => return None,
                }),
                7 => ToHost::Taken(r.word()?),
                8 => ToHost::Files(r.rest()),
                9 => ToHost::Connected(r.short()?),
                10 => ToHost::Data(r.piece()?),
                11 => ToHost::DataEnd,
                12 => ToHost::DataTaken(r.word()?),
                13 => ToHost::Close,
                14 => {
                    let port = r.short()?;
                    let address = r.rest();
                    matches!(address.len(), 4 | 16).then_some(())?;
                    ToHost::Connect(address, port)
                }
                15 => ToHost::Query(r.piece()?),
                16 => ToHost::Stopped,
                17 => ToHost::Reached(match (r.flag()?, r.word()?) {
                    (false, count) => Limit::Memory(count),
                    (true, 0) => Limit::Processes,
                    _ => return None,
                }),
                18 => ToHost::Delivered,
                19 => ToHost::Still(r.word()?),
                _ => return None,
            })
        };
        let message = read();
        whole(kind, kind <= 19, message, &r)
    }
}

/// A message must use its payload up.
fn whole<M>(kind: u8, known: bool, message: Option<M>, rest: &Reader<'_>) -> Result<M, Broken> {
    match message {
        Some(message) if rest.0.is_empty() => Ok(message),
        _ if !known || kind == 0 => Err(Broken::Kind(kind)),
        _ => Err(Broken::Payload(kind)),
    }
}

/// Finds frames in bytes as they come.
#[derive(Debug, Default)]
pub struct Framer {
    bytes: Vec<u8>,
    taken: usize,
}

impl Framer {
    /// Adds bytes that came.
    pub fn add(&mut self, bytes: &[u8]) {
        if self.taken > 0 && self.taken == self.bytes.len() {
            self.bytes.clear();
            self.taken = 0;
        } else if self.taken > MOST {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Takes the next whole frame: its channel and message.
    ///
    /// # Errors
    /// [`Broken`]; nothing after it can be understood.
    pub fn take<M: Message>(&mut self) -> Result<Option<(u32, M)>, Broken> {
        let rest = &self.bytes[self.taken..];
        let Some(header) = rest.first_chunk::<HEADER>() else { return Ok(None) };
        let [a, b, c, d, kind, channel @ ..] = *header;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        if length > MOST {
            return Err(Broken::TooLong);
        }
        let Some(payload) = rest.get(HEADER..HEADER + length) else { return Ok(None) };
        let message = M::decode(kind, payload)?;
        self.taken += HEADER + length;
        Ok(Some((u32::from_le_bytes(channel), message)))
    }
}
