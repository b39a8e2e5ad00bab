//! What the engine of HTTP/2 refuses by itself: a request that it cannot read, such as one whose target has bytes that no URL
//! has. The program gets `PROTOCOL_ERROR`, and nobody else hears of it; so what is written to the program is looked at.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What is said of such a request.
pub(super) const UNREAD: &str = "a request that cannot be read (PROTOCOL_ERROR), as where its path or query has characters \
                                 that URLs write as %XX";
/// A frame that ends a stream, and the reason that is meant here (RFC 9113 §6.4, §7).
const RST_STREAM: u8 = 3;
const PROTOCOL_ERROR: [u8; 4] = [0, 0, 0, 1];
/// Bytes of a frame's header, and of what such a frame holds.
const HEADER: usize = 9;
const REASON: usize = 4;

/// Frames, as far as they were seen.
#[derive(Debug, Default)]
struct Frames {
    /// The header, and what such a frame holds.
    begun: [u8; HEADER + REASON],
    count: usize,
    /// Bytes of another frame that are still to come.
    left: usize,
}

impl Frames {
    /// Takes what was written; how many streams it ended for that reason.
    fn feed(&mut self, mut bytes: &[u8]) -> usize {
        let mut refused = 0;
        while !bytes.is_empty() {
            let skipped = self.left.min(bytes.len());
            self.left -= skipped;
            bytes = &bytes[skipped..];
            let whole = if self.count < HEADER { HEADER } else { HEADER + REASON };
            let taken = (whole - self.count).min(bytes.len());
            self.begun[self.count..self.count + taken].copy_from_slice(&bytes[..taken]);
            self.count += taken;
            bytes = &bytes[taken..];
            let [high, middle, low, kind, ..] = self.begun;
            if self.count == HEADER + REASON {
                refused += usize::from(self.begun[HEADER..] == PROTOCOL_ERROR);
                self.count = 0;
            } else if self.count == HEADER {
                let length = u32::from_be_bytes([0, high, middle, low]) as usize;
                if kind != RST_STREAM || length != REASON {
                    self.left = length;
                    self.count = 0;
                }
            }
        }
        refused
    }
}

/// A connection of a program that speaks HTTP/2; `tell` hears of each request that was refused so.
pub(super) struct Unread<S, F> {
    stream: S,
    frames: Frames,
    tell: F,
}

impl<S, F: FnMut()> Unread<S, F> {
    pub fn new(stream: S, tell: F) -> Unread<S, F> {
        Unread { stream, frames: Frames::default(), tell }
    }

    fn written(&mut self, bytes: &[u8]) {
        for _ in 0..self.frames.feed(bytes) {
            (self.tell)();
        }
    }
}

impl<S: AsyncRead + Unpin, F: Unpin> AsyncRead for Unread<S, F> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin, F: FnMut() + Unpin> AsyncWrite for Unread<S, F> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let count = ready!(Pin::new(&mut self.stream).poll_write(context, bytes))?;
        self.written(&bytes[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let count = ready!(Pin::new(&mut self.stream).poll_write_vectored(context, parts))?;
        let mut left = count;
        for part in parts {
            let taken = left.min(part.len());
            self.written(&part[..taken]);
            left -= taken;
        }
        Poll::Ready(Ok(count))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_that_the_engine_ended_are_counted_however_they_are_written() {
        let reset = |reason: u8| [0, 0, 4, RST_STREAM, 0, 0, 0, 0, 1, 0, 0, 0, reason];
        let data = |body: &[u8]| [&[0, 0, body.len() as u8, 0, 0, 0, 0, 0, 1], body].concat();
        let said = [
            &[0, 0, 0, 4, 0, 0, 0, 0, 0][..],
            &data(&reset(1)),
            &reset(1),
            &reset(7),
            &data(b""),
            &reset(1),
        ]
        .concat();
        for size in 1..=said.len() {
            let mut frames = Frames::default();
            let seen: usize = said.chunks(size).map(|part| frames.feed(part)).sum();
            assert_eq!(seen, 2, "{size}");
        }
    }
}
