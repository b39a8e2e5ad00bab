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
pub(super) struct Written<S> {
    stream: S,
    passage: Arc<Passage>,
}

impl<S> Written<S> {
    pub fn new(stream: S, passage: Arc<Passage>) -> Written<S> {
        Written { stream, passage }
    }
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

super::wire::writes!(Written, |written: &Self| written.passage.flushed());
