//! Bytes in both directions: small amounts through a shared buffer, large ones as a [`stream`].

use crate::first::{self, First, answer};
use crate::flow;
use crate::held::Held;
use crate::leaving::Leaving;
use crate::requests::Requests;
use crate::stream;
use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

/// How long nothing may follow what is held before that is told.
const HELD: Duration = Duration::from_secs(5);

/// The shared buffer.
const BUFFER: usize = 64 * 1024;
/// After so many bytes in one direction the connection is worth two descriptors for a pipe.
const SPLICE_AFTER: u64 = 512 * 1024;

thread_local! {
    /// One buffer for all connections: between two steps of a relay nothing is in it.
    static SHARED: RefCell<Vec<u8>> = RefCell::new(vec![0; BUFFER]);
}

/// Bytes relayed.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    sent: AtomicU64,
    received: AtomicU64,
}

impl Counts {
    pub fn sent(&self) -> u64 {
        self.sent.load(Relaxed)
    }
    pub fn received(&self) -> u64 {
        self.received.load(Relaxed)
    }
}

/// Why a relay ended early.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The client said something that does not fit.
    Refused(String),
    /// Who is read from failed.
    From(#[expect(dead_code, reason = "for debugging output")] io::Error),
    /// Who is written to takes no more.
    To(#[expect(dead_code, reason = "for debugging output")] io::Error),
}

impl Broken {
    fn refused(why: &str) -> Broken {
        Broken::Refused(why.to_owned())
    }
}

/// What is done with a client's first bytes.
pub(crate) enum Verdict {
    /// They pass, and all that follows.
    Pass,
    /// They are a request: it is looked at, and so is each one that follows.
    Requests,
    /// They are a TLS client's hello: it passes, and is looked at again if the server wants another one.
    Hello,
    /// They pass, and will be judged again with what follows.
    PassAndWatch,
    /// They are held until more of them is there.
    Hold,
    /// They do not fit.
    Refuse(String),
}

/// What looks at all of a client's first bytes.
type Judge<'a> = &'a (dyn Fn(&[u8]) -> Verdict + Send + Sync);

/// What looks at the head of each request.
type JudgeHead<'a> = &'a (dyn Fn(&First) -> Result<(), String> + Send + Sync);

/// Nothing of the client's passes before it is judged.
pub(crate) struct Gate<'a> {
    /// What was read from the client already.
    pub early: Vec<u8>,
    /// Says what is done with them.
    pub judge: Judge<'a>,
    /// Says whether a request may pass.
    pub head: JudgeHead<'a>,
    /// Hears that so many bytes are held, and nothing follows.
    pub held: &'a (dyn Fn(usize) + Send + Sync),
}

/// What a server says first, for whoever waits for it.
#[derive(Debug, Default)]
struct Word(Mutex<Heard>);

#[derive(Debug, Default)]
struct Heard {
    said: Vec<u8>,
    /// It says no more.
    ended: bool,
    /// Who waits for it.
    waits: Option<Waker>,
}

impl Word {
    /// Bytes of the server's.
    fn hear(&self, bytes: &[u8]) {
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let more = bytes.len().min(answer::ENOUGH - heard.said.len());
        heard.said.extend_from_slice(&bytes[..more]);
        if let Some(waker) = heard.waits.take() {
            waker.wake();
        }
    }

    /// The server has ended.
    fn end(&self) {
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        heard.ended = true;
        if let Some(waker) = heard.waits.take() {
            waker.wake();
        }
    }

    /// What it comes to, once that is said; one that has ended without it wants nothing.
    fn says(&self, what: Says, context: &Context<'_>) -> Poll<bool> {
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match what(&heard.said) {
            Some(said) => Poll::Ready(said),
            None if heard.ended => Poll::Ready(false),
            None => {
                heard.waits = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// What a server's first bytes mean, once there are enough of them ([`answer`]).
type Says = fn(&[u8]) -> Option<bool>;

/// Relays until both directions have ended, or one side failed: then both are reset.
pub(crate) async fn both(
    mut client: TcpStream,
    mut server: TcpStream,
    gate: Gate<'_>,
    counts: &Counts,
    leaving: &Leaving,
) -> Result<(), Broken> {
    let result = {
        let (client_read, client_write) = client.split();
        let (server_read, server_write) = server.split();
        let half = AtomicBool::new(false);
        let word = Word::default();
        let up = upward(client_read, server_write, gate, &counts.sent, (&half, &word));
        let down = pump(server_read, client_write, &counts.received, (&half, Some(&word)));
        join(up, down, leaving).await
    };
    if result.is_err() {
        flow::reset(&client);
        flow::reset(&server);
    }
    result
}

/// Waits for both; the first error ends the other, but for a server that takes no more: what it has said before, that an
/// upload is too large or not allowed, still comes down, as it would to a client of its own (a reset leaves what is there
/// to read). At the session's end nobody is there for what still comes down.
pub(crate) async fn join(
    up: impl Future<Output = Result<(), Broken>>,
    down: impl Future<Output = Result<(), Broken>>,
    leaving: &Leaving,
) -> Result<(), Broken> {
    let (mut up, mut down) = (std::pin::pin!(up), std::pin::pin!(down));
    let (mut up_ended, mut down_ended) = (false, false);
    let mut result = Ok(());
    // Asked once, to be woken then.
    let (mut begun, mut asked) = (std::pin::pin!(leaving.begun()), false);
    std::future::poll_fn(move |context| {
        if !asked {
            asked = true;
            let _ = begun.as_mut().poll(context);
        }
        if !up_ended && let Poll::Ready(ended) = up.as_mut().poll(context) {
            up_ended = true;
            match ended {
                Ok(()) => {}
                Err(Broken::To(_)) => result = ended,
                Err(_) => return Poll::Ready(ended),
            }
        }
        if !down_ended && let Poll::Ready(ended) = down.as_mut().poll(context) {
            down_ended = true;
            if ended.is_err() {
                return Poll::Ready(ended);
            }
        }
        if up_ended && (down_ended || leaving.has_begun()) {
            Poll::Ready(std::mem::replace(&mut result, Ok(())))
        } else {
            Poll::Pending
        }
    })
    .await
}

async fn upward(
    mut client: ReadHalf<'_>,
    mut server: WriteHalf<'_>,
    gate: Gate<'_>,
    count: &AtomicU64,
    (half, word): (&AtomicBool, &Word),
) -> Result<(), Broken> {
    let mut first = gate.early;
    let mut passed = 0;
    let (mut held, mut told) = (Held::default(), false);
    loop {
        let mut waits = false;
        match (gate.judge)(&first) {
            Verdict::Pass => break,
            Verdict::Requests => {
                drop(held);
                let unsent = first.split_off(passed);
                let heard = (half, word);
                return requests(client, server, gate.head, (first, unsent), count, heard).await;
            }
            Verdict::Hello => {
                drop(held);
                let heard = (half, word);
                return hellos(client, server, gate.head, (first, passed), count, heard).await;
            }
            Verdict::Refuse(text) => return Err(Broken::Refused(text)),
            Verdict::Hold => {
                held.set(first.len()).map_err(Broken::refused)?;
                waits = first.len() > passed && !told;
            }
            Verdict::PassAndWatch => {
                held.set(first.len()).map_err(Broken::refused)?;
                server.write_all(&first[passed..]).await.map_err(Broken::To)?;
                count.fetch_add((first.len() - passed) as u64, Relaxed);
                passed = first.len();
            }
        }
        let unsent = first.len() - passed;
        let count_read = {
            let mut more = std::pin::pin!(more(&mut client, &mut first));
            let soon = match waits {
                true => tokio::time::timeout(HELD, more.as_mut()).await.ok(),
                false => Some(more.as_mut().await),
            };
            match soon {
                Some(read) => read?,
                None => {
                    told = true;
                    (gate.held)(unsent);
                    more.await?
                }
            }
        };
        if count_read == 0 {
            // It will never be more. Some servers take the end for that of a head, so that it is judged as one.
            match (gate.judge)(&[&first[..], b"\r\n\r\n"].concat()) {
                Verdict::Refuse(text) => return Err(Broken::Refused(text)),
                _ => break,
            }
        }
    }
    server.write_all(&first[passed..]).await.map_err(Broken::To)?;
    count.fetch_add((first.len() - passed) as u64, Relaxed);
    drop((first, held));
    pump(client, server, count, (half, None)).await
}

/// Passes the end of one direction on. When it is the second one, closing the connections says it.
async fn end(mut to: WriteHalf<'_>, half: &AtomicBool) -> Result<(), Broken> {
    if half.swap(true, Relaxed) { Ok(()) } else { to.shutdown().await.map_err(Broken::To) }
}

/// Relays what a TLS client says, of which `held` is there and `passed` bytes have passed. A server may want another hello
/// (RFC 8446 §4.1.4), and look for its name in that one.
async fn hellos(
    mut client: ReadHalf<'_>,
    mut server: WriteHalf<'_>,
    head: JudgeHead<'_>,
    (mut held, passed): (Vec<u8>, usize),
    count: &AtomicU64,
    (half, word): (&AtomicBool, &Word),
) -> Result<(), Broken> {
    let end_of_hello = first::end_of_hello(&held);
    let end_of_hello =
        end_of_hello.ok_or_else(|| Broken::refused("more in the records of its hello"))?;
    let mut later = held.split_off(end_of_hello);
    server.write_all(&held[passed..]).await.map_err(Broken::To)?;
    count.fetch_add((held.len() - passed) as u64, Relaxed);
    drop(held);
    let (mut ended, mut kept) = (false, Held::default());
    let mut again = loop {
        kept.set(later.len()).map_err(Broken::refused)?;
        if later.len() > first::MOST {
            // What a client sends before it is answered (RFC 8446 §2.3) has no measure but its server's: the rest waits.
            break std::future::poll_fn(|context| word.says(answer::again, context)).await;
        }
        match next(&mut client, &mut later, Some((word, answer::again))).await? {
            Next::Word(again) => break again,
            Next::More(0) => {
                ended = true;
                break true;
            }
            Next::More(_) => {}
        }
    };
    while again {
        match first::next_hello(&later) {
            First::More if later.len() > first::MOST => {
                return Err(Broken::refused("much before another hello, which the server wants"));
            }
            First::More if !ended => ended = more(&mut client, &mut later).await? == 0,
            // It stays a part of one, or is none.
            First::More | First::Other => again = false,
            hello => {
                head(&hello).map_err(Broken::Refused)?;
                again = false;
            }
        }
    }
    server.write_all(&later).await.map_err(Broken::To)?;
    count.fetch_add(later.len() as u64, Relaxed);
    drop((later, kept));
    if ended {
        return end(server, half).await;
    }
    pump(client, server, count, (half, None)).await
}

/// Relays a client's requests, each looked at.
async fn requests(
    mut client: ReadHalf<'_>,
    mut server: WriteHalf<'_>,
    head: JudgeHead<'_>,
    (passed, mut unsent): (Vec<u8>, Vec<u8>),
    count: &AtomicU64,
    (half, word): (&AtomicBool, &Word),
) -> Result<(), Broken> {
    let mut requests = Requests::default();
    let mut out = Vec::new();
    // What passed already is a part of a method: it only has to be known.
    requests.feed(&passed, head, &mut out).map_err(Broken::Refused)?;
    let mut skip = passed.len();
    let mut held = Held::default();
    loop {
        requests.feed(&unsent, head, &mut out).map_err(Broken::Refused)?;
        held.set(requests.held()).map_err(Broken::refused)?;
        let asked = requests.asked();
        // Which of a server's answers is to which request is not looked at; its first word is to the first.
        if asked.is_some_and(|heads| heads > 1) {
            let why = "a request to change the protocol after other requests: it takes a connection \
                       of its own";
            return Err(Broken::Refused(why.to_owned()));
        }
        let from = skip.min(out.len());
        server.write_all(&out[from..]).await.map_err(Broken::To)?;
        skip -= from;
        count.fetch_add((out.len() - from) as u64, Relaxed);
        out.clear();
        unsent.clear();
        if requests.free() {
            return pump(client, server, count, (half, None)).await;
        }
        let what: Says = if requests.like() { answer::speaks_other } else { answer::changes };
        match next(&mut client, &mut unsent, asked.map(|_| (word, what))).await? {
            Next::Word(changes) => {
                requests.answered(changes, head, &mut out).map_err(Broken::Refused)?;
            }
            Next::More(0) => {
                return end(server, half).await;
            }
            Next::More(_) => {}
        }
    }
}

/// What comes next of a client or its server.
enum Next {
    /// More of the client's, so many bytes.
    More(usize),
    /// The server's word, for which it was asked.
    Word(bool),
}

/// Waits for more of the client's, or for the server's word where that is to come.
async fn next(
    client: &mut ReadHalf<'_>,
    to: &mut Vec<u8>,
    word: Option<(&Word, Says)>,
) -> Result<Next, Broken> {
    let mut more = std::pin::pin!(more(client, to));
    std::future::poll_fn(move |context| {
        if let Some((word, what)) = word
            && let Poll::Ready(said) = word.says(what, context)
        {
            return Poll::Ready(Ok(Next::Word(said)));
        }
        more.as_mut().poll(context).map_ok(Next::More)
    })
    .await
}

/// Reads what there is, once there is something: how much; 0 at the end.
async fn more(from: &mut ReadHalf<'_>, to: &mut Vec<u8>) -> Result<usize, Broken> {
    read(from, |bytes| {
        to.extend_from_slice(bytes);
        Ok(bytes.len())
    })
    .await
}

/// Reads what there is, once there is something, and gives it to `take`; nothing at the end.
async fn read<T>(
    from: &mut ReadHalf<'_>,
    mut take: impl FnMut(&[u8]) -> io::Result<T>,
) -> Result<T, Broken> {
    std::future::poll_fn(move |context| {
        SHARED.with_borrow_mut(|buffer| {
            let mut buffer = ReadBuf::new(buffer.as_mut_slice());
            // Unlike `try_read` it knows that a short read leaves nothing, and does not look again.
            ready!(Pin::new(&mut *from).poll_read(context, &mut buffer)).map_err(Broken::From)?;
            Poll::Ready(take(buffer.filled()).map_err(Broken::To))
        })
    })
    .await
}

/// Whether an error only means "not now".
pub(crate) fn wait(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Relays one direction to its end, and passes the end on. The beginning is also for `word`.
async fn pump(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    count: &AtomicU64,
    (half, word): (&AtomicBool, Option<&Word>),
) -> Result<(), Broken> {
    loop {
        if count.load(Relaxed) >= SPLICE_AFTER
            && let Some(pipe) = stream::Pipe::new()
        {
            stream::carry(from.as_ref(), to.as_ref(), &pipe, count).await?;
            break;
        }
        let (count_read, rest) = read(&mut from, |bytes| {
            if bytes.is_empty() {
                return Ok((0, Vec::new()));
            }
            if let Some(word) = word.filter(|_| count.load(Relaxed) < answer::ENOUGH as u64) {
                word.hear(bytes);
            }
            let written = match to.try_write(bytes) {
                Err(error) if wait(&error) => 0,
                other => other?,
            };
            Ok((bytes.len(), bytes[written..].to_vec()))
        })
        .await?;
        if count_read == 0 {
            if let Some(word) = word {
                word.end();
            }
            break;
        }
        count.fetch_add(count_read as u64, Relaxed);
        if !rest.is_empty() {
            to.write_all(&rest).await.map_err(Broken::To)?;
        }
    }
    end(to, half).await
}
