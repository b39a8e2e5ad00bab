//! What stands between a connection and the HTTP engine: bytes that were read already, and the
//! strict look at HTTP/1 requests.

use super::serve::FIELDS;
use crate::first::First;
use crate::requests::Requests;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A connection of which some bytes were read already.
pub(super) struct Prefixed<S> {
    stream: S,
    early: Vec<u8>,
    at: usize,
}

impl<S> Prefixed<S> {
    pub fn new(stream: S, early: Vec<u8>) -> Prefixed<S> {
        Prefixed { stream, early, at: 0 }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Prefixed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.at < self.early.len() {
            let count = (self.early.len() - self.at).min(buffer.remaining());
            buffer.put_slice(&self.early[self.at..self.at + count]);
            self.at += count;
            if self.at == self.early.len() {
                self.early = Vec::new();
                self.at = 0;
            }
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

/// HTTP/1 requests as they come from a program: what several servers would read differently (two
/// lengths, a length and chunks, folded fields, …) never reaches the engine, which is more lenient
/// than that. In place of such a head it gets [`REFUSED`].
pub(super) struct Strict<S> {
    stream: S,
    requests: Requests,
    /// The server has changed the protocol.
    changed: Arc<AtomicBool>,
    /// Takes why a request is none that may be looked at.
    why: Arc<OnceLock<String>>,
    /// What is read into.
    raw: Vec<u8>,
    /// Looked at and not yet taken.
    good: Vec<u8>,
    at: usize,
    /// Nothing more comes of it, but this error where it is in the middle of a request.
    refused: Option<Option<String>>,
}

/// The method of what stands for a request that is none, to be answered by why it is none. A program that
/// uses it itself gets its requests judged as all others.
pub(super) const REFUSED: &str = "RINGFENCE-REFUSED";
const NO_REQUEST: &[u8] = b"RINGFENCE-REFUSED / HTTP/1.1\r\nHost: -\r\nConnection: close\r\n\r\n";
/// How much is read at once: a TLS record.
const STEP: usize = 16 * 1024;

impl<S> Strict<S> {
    pub fn new(stream: S, changed: Arc<AtomicBool>, why: Arc<OnceLock<String>>) -> Strict<S> {
        Strict {
            stream,
            requests: Requests::of(FIELDS),
            changed,
            why,
            raw: Vec::new(),
            good: Vec::new(),
            at: 0,
            refused: None,
        }
    }

    /// Looks at what was read: so many bytes, none where the server's word is all that is new.
    fn look(&mut self, count: usize) {
        let judge = |first: &First| match first {
            First::Http { .. } => Ok(()),
            First::Broken(what) => Err((*what).to_owned()),
            _ => Err("no request".to_owned()),
        };
        self.good.clear();
        self.at = 0;
        let looked = match self.requests.asked() {
            // The engine reads again once the request that asked has been answered.
            Some(_) => self.requests.answered(self.changed.load(Relaxed), &judge, &mut self.good),
            None => Ok(()),
        };
        let raw = &self.raw[..count];
        let looked = looked.and_then(|()| self.requests.feed(raw, &judge, &mut self.good));
        if let Err(why) = looked {
            let _ = self.why.set(why.clone());
            if self.requests.between() {
                self.good.extend_from_slice(NO_REQUEST);
                self.refused = Some(None);
            } else {
                self.refused = Some(Some(why));
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Strict<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let this = &mut *self;
            if this.at < this.good.len() {
                let count = (this.good.len() - this.at).min(buffer.remaining());
                buffer.put_slice(&this.good[this.at..this.at + count]);
                this.at += count;
                return Poll::Ready(Ok(()));
            }
            match &this.refused {
                Some(None) => return Poll::Ready(Ok(())),
                Some(Some(why)) => {
                    let broken = io::Error::new(io::ErrorKind::InvalidData, why.clone());
                    return Poll::Ready(Err(broken));
                }
                None => {}
            }
            if this.requests.asked().is_some() {
                this.look(0);
                continue;
            }
            if this.requests.free() {
                return Pin::new(&mut this.stream).poll_read(context, buffer);
            }
            if this.raw.is_empty() {
                this.raw.resize(STEP, 0);
            }
            let mut raw = ReadBuf::new(&mut this.raw);
            let result = ready!(Pin::new(&mut this.stream).poll_read(context, &mut raw));
            let count = raw.filled().len();
            result?;
            if count == 0 {
                return Poll::Ready(Ok(()));
            }
            this.look(count);
        }
    }
}

/// Writing is the stream's own; `flushed` hears that all has been written.
macro_rules! writes {
    ($kind:ident $(, $more:ident)?) => {
        impl<S: AsyncWrite + Unpin $(, $more: Unpin)?> AsyncWrite for $kind<S $(, $more)?> {
            fn poll_write(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                Pin::new(&mut self.stream).poll_write(context, bytes)
            }
            fn poll_flush(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
            ) -> Poll<io::Result<()>> {
                Pin::new(&mut self.stream).poll_flush(context)
            }
            fn poll_shutdown(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
            ) -> Poll<io::Result<()>> {
                Pin::new(&mut self.stream).poll_shutdown(context)
            }
            fn poll_write_vectored(
                mut self: Pin<&mut Self>,
                context: &mut Context<'_>,
                parts: &[io::IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                Pin::new(&mut self.stream).poll_write_vectored(context, parts)
            }
            fn is_write_vectored(&self) -> bool {
                self.stream.is_write_vectored()
            }
        }
    };
}
pub(super) use writes;

writes!(Prefixed);
writes!(Strict);
