//! Whether a program's request has been passed on: all of it, to the kernel. At a session's end it is waited for, and
//! its answer is not.

use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::sign::CertifiedKey;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

/// The request that an HTTP/1 connection is about.
#[derive(Debug, Default)]
pub(super) struct Passage {
    /// The engine has its last byte, and has not written it before.
    taken: AtomicBool,
    /// The engine has written all that it had since.
    passed: AtomicBool,
    told: Notify,
    /// The server has asked for a certificate of the client's, and got none.
    certificate: AtomicBool,
}

impl Passage {
    /// There is none yet, or a new one.
    pub fn begin(&self) {
        self.taken.store(false, Relaxed);
        self.passed.store(false, Relaxed);
    }

    /// The engine is given its last byte.
    pub fn taken(&self) {
        self.taken.store(true, Relaxed);
    }

    /// What is said of a server that takes nothing: as it is, or that it may be for the certificate that it asked for.
    pub fn explained(&self, why: String) -> String {
        if !self.certificate.load(Relaxed) {
            return why;
        }
        format!(
            "{why}; the server asks for a certificate of the client's (mutual TLS), which connections with rules about \
             requests have not: allow the host by -n alone"
        )
    }

    fn flushed(&self) {
        if self.taken.load(Relaxed) && !self.passed.swap(true, Relaxed) {
            self.told.notify_waiters();
        }
    }

    /// Waits until it has been passed on.
    pub async fn passed(&self) {
        loop {
            let mut told = pin!(self.told.notified());
            told.as_mut().enable();
            if self.passed.load(Relaxed) {
                return;
            }
            told.await;
        }
    }
}

/// Sees whether a server asks for a certificate of the client's.
#[derive(Debug)]
pub(super) struct NoCertificate(pub Arc<Passage>);

impl ResolvesClientCert for NoCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.certificate.store(true, Relaxed);
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

/// The connection to a server, at which it is seen that the engine has written what it had: it flushes then.
///
/// A server that takes no more of a request may have said why before: that an upload is too large, or not allowed. The
/// engine would end at the error, so that what is still to be sent is thrown away instead, until nothing more is to be
/// read: the answer, or that there is none.
pub(super) struct Written<S> {
    stream: S,
    passage: Arc<Passage>,
    /// It takes no more.
    deaf: bool,
}

impl<S> Written<S> {
    pub fn new(stream: S, passage: Arc<Passage>) -> Written<S> {
        Written { stream, passage, deaf: false }
    }
}

impl<S> Written<S> {
    /// What became of `bytes` that were written: so many are thrown away, where nobody takes them.
    fn heard(
        &mut self,
        polled: Poll<io::Result<usize>>,
        bytes: impl Fn() -> usize,
    ) -> Poll<io::Result<usize>> {
        match polled {
            Poll::Ready(Err(error)) if gone(&error) => {
                self.deaf = true;
                Poll::Ready(Ok(bytes()))
            }
            other => other,
        }
    }
}

/// Whether an error says that the other side takes no more.
fn gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

impl<S: AsyncRead + Unpin> AsyncRead for Written<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Written<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.deaf {
            return Poll::Ready(Ok(bytes.len()));
        }
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.heard(polled, || bytes.len())
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let all = || parts.iter().map(|part| part.len()).sum();
        if self.deaf {
            return Poll::Ready(Ok(all()));
        }
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.heard(polled, all)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.deaf {
            return Poll::Ready(Ok(()));
        }
        let polled = Pin::new(&mut self.stream).poll_flush(context).map_ok(|()| 0);
        let polled = self.heard(polled, || 0).map_ok(|_| ());
        if matches!(polled, Poll::Ready(Ok(()))) && !self.deaf {
            self.passage.flushed();
        }
        polled
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.deaf {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
