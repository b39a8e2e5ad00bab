//! Bodies on their way: passed on frame by frame, counted, their end told; and what follows an answer that changes
//! the protocol.

use super::exchange::Ending;
use super::expected::{Asked, Waiting};
use super::heads;
use super::serve::{Link, PATIENCE};
use super::upstream::reason;
use crate::leaving::Leaving;
use crate::relay::{self, Broken};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::{Body, Incoming};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The most bytes of a refused request's body that are taken.
const DRAINED: usize = 1 << 20;
/// How much of a tunnel's is read at once.
const STEP: usize = 8 * 1024;

/// What a program gets: a server's body, or a sentence of ours.
pub(super) type Answer = Either<Received, Full<Bytes>>;

/// A program's body.
pub(super) struct Sent {
    /// Nothing where a request without one is sent again.
    body: Option<Incoming>,
    /// Without holding it: the connection may hold this.
    link: Weak<Link>,
    count: Arc<AtomicU64>,
    /// The server is asked whether it wants it.
    waits: Option<Waiting>,
    /// It counts, for as long as some of it may be under way.
    _counted: Option<Arc<heads::Body>>,
}

impl Sent {
    pub fn new(body: Incoming, ending: &Ending, asked: Option<Asked>) -> Sent {
        let (link, waits) = (Arc::downgrade(ending.link()), asked.map(Waiting::new));
        let head = ending.head.as_ref().filter(|_| !body.is_end_stream());
        let _counted = head.map(|head| head.heads().body());
        Sent { body: Some(body), link, count: ending.sent(), waits, _counted }
    }

    /// None.
    pub fn none(ending: &Ending) -> Sent {
        let link = Arc::downgrade(ending.link());
        Sent { body: None, link, count: ending.sent(), waits: None, _counted: None }
    }

    /// By this connection nobody is asked: it is sent.
    pub fn is_wanted(&self) {
        self.waits.iter().for_each(Waiting::wanted);
    }
}

impl Body for Sent {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Some(waits) = &mut self.waits {
            if !ready!(waits.poll(context)) {
                // Not its end, which a server could take for that of an empty one: the connection is cut.
                return Poll::Ready(Some(Err("the server has answered without it".into())));
            }
            self.waits = None;
        }
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let mut polled = Pin::new(body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &mut polled {
            if let Some(data) = frame.data_ref() {
                self.count.fetch_add(data.len() as u64, Relaxed);
            }
            if let Some(trailers) = frame.trailers_mut() {
                match self.link.upgrade() {
                    Some(link) => link.clean_trailers(trailers),
                    None => trailers.clear(),
                }
            }
        }
        if polled.is_ready()
            && self.is_end_stream()
            && let Some(link) = self.link.upgrade()
        {
            link.passage.taken();
        }
        polled.map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or(SizeHint::with_exact(0), Incoming::size_hint)
    }
}

impl Drop for Sent {
    /// A server that takes no more of it: what is left is taken here; but for what the program does not send before it
    /// hears that it is wanted.
    fn drop(&mut self) {
        let left = self.body.take().filter(|body| !body.is_end_stream() && self.waits.is_none());
        if let (Some(body), Ok(runtime)) = (left, tokio::runtime::Handle::try_current()) {
            runtime.spawn(drain(body));
        }
    }
}

/// A server's body. When it is dropped, at its end or before, the exchange is told.
pub(super) struct Received {
    body: Incoming,
    ending: Ending,
    /// The body of the request was not asked for, or may not have been.
    asked: Option<Asked>,
    /// Why it broke off, where the program's side has not heard of it yet.
    error: Option<hyper::Error>,
    /// It has come to its end, or broken off.
    over: bool,
}

impl Received {
    pub fn new(body: Incoming, ending: Ending, asked: Option<Asked>) -> Received {
        let over = body.is_end_stream();
        Received { body, ending, asked, error: None, over }
    }

    fn broke_off(&mut self, why: &str) {
        self.ending.broken(format!("the answer broke off: {why}"));
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        if !self.over {
            self.ending.broken("the program left before the answer's end".to_owned());
        }
        self.asked.iter().for_each(Asked::over);
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Some(error) = self.error.take() {
            return Poll::Ready(Some(Err(error)));
        }
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(Ok(mut frame))) => {
                if let Some(data) = frame.data_ref() {
                    self.ending.received(data);
                }
                if let Some(trailers) = frame.trailers_mut() {
                    self.ending.redact(trailers);
                    self.over = true;
                }
                self.over |= self.body.is_end_stream();
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                self.over = true;
                self.broke_off(&reason(&error));
                // The engine forgets at an error what it has not written yet, the head too: before it hears of this one,
                // it has a turn to write.
                self.error = Some(error);
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Poll::Ready(None) => {
                self.over = true;
                // A server of HTTP/2 may end a stream early, and say that this is no error.
                if self.body.size_hint().lower() > 0 {
                    self.broke_off("the server ended it before the length that it had said");
                }
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.error.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Bytes both ways, until one side fails or both have ended; at the session's end until the program's has.
pub(super) async fn tunnel(
    program: OnUpgrade,
    server: OnUpgrade,
    mut ending: Ending,
    leaving: &Leaving,
) {
    let (Ok(program), Ok(server)) = (program.await, server.await) else { return };
    let (from_program, to_program) = tokio::io::split(TokioIo::new(program));
    let (from_server, to_server) = tokio::io::split(TokioIo::new(server));
    let (sent, received) = (ending.sent(), AtomicU64::default());
    let up = pass(from_program, to_server, &sent);
    let down = pass(from_server, to_program, &received);
    let _ = relay::join(up, down, leaving).await;
    ending.more(received.into_inner());
}

/// Passes bytes on, and their end.
async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    count: &AtomicU64,
) -> Result<(), Broken> {
    let mut piece = vec![0; STEP];
    loop {
        let length = from.read(&mut piece).await.map_err(Broken::From)?;
        if length == 0 {
            return to.shutdown().await.map_err(Broken::To);
        }
        to.write_all(&piece[..length]).await.map_err(Broken::To)?;
        to.flush().await.map_err(Broken::To)?;
        count.fetch_add(length as u64, Relaxed);
    }
}

/// Takes the body of a refused request, up to a measure: a client that is cut off while it sends
/// may not look at the answer.
pub(super) async fn drain<B>(mut body: B)
where
    B: Body<Data = Bytes> + Unpin + Send + 'static,
{
    let taken = async {
        let mut left = DRAINED;
        while let Some(Ok(frame)) = body.frame().await {
            let Some(less) = left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) else {
                break;
            };
            left = less;
        }
    };
    let _ = tokio::time::timeout(PATIENCE, taken).await;
}
