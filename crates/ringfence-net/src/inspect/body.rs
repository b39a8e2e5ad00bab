//! Bodies on their way: passed on frame by frame, counted, their end told; and what follows an answer that changes
//! the protocol.

use super::exchange::Ending;
use super::serve::Link;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::{Either, Full};
use hyper::body::{Body, Incoming};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

/// What a program gets: a server's body, or a sentence of ours.
pub(super) type Answer = Either<Received, Full<Bytes>>;

/// A program's body.
pub(super) struct Sent {
    body: Incoming,
    /// Without holding it: the connection may hold this.
    link: Weak<Link>,
    count: Arc<AtomicU64>,
}

impl Sent {
    pub fn new(body: Incoming, ending: &Ending) -> Sent {
        Sent { body, link: Arc::downgrade(ending.link()), count: ending.sent() }
    }
}

impl Body for Sent {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut polled = Pin::new(&mut self.body).poll_frame(context);
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
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A server's body. When it is dropped, at its end or before, the exchange is told.
pub(super) struct Received {
    body: Incoming,
    ending: Ending,
}

impl Received {
    pub fn new(body: Incoming, ending: Ending) -> Received {
        Received { body, ending }
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &mut polled {
            if let Some(data) = frame.data_ref() {
                self.ending.received(data);
            }
            if let Some(trailers) = frame.trailers_mut() {
                self.ending.redact(trailers);
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Bytes both ways, until one side ends.
pub(super) async fn tunnel(program: OnUpgrade, server: OnUpgrade, mut ending: Ending) {
    let (Ok(program), Ok(server)) = (program.await, server.await) else { return };
    let (mut program, mut server) = (TokioIo::new(program), TokioIo::new(server));
    if let Ok((sent, received)) = tokio::io::copy_bidirectional(&mut program, &mut server).await {
        ending.sent().fetch_add(sent, Relaxed);
        ending.more(received);
    }
}
