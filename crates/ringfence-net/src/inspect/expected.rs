//! A program that asks before it sends a body (`Expect: 100-continue`, RFC 9110 §10.1.1): its server is asked, and says whether
//! it wants it. A server that wants a login, or takes no such body, says so before anything is sent.

use hyper::http::request::Parts;
use hyper::{Request, StatusCode, Version, header};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::Sleep;

/// Some servers know nothing of it, and wait for the body: after so long it is sent, as curl does.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is known of the server's wish.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Wish {
    #[default]
    Unknown,
    /// It says "continue", or nothing for long.
    Wanted,
    /// It has answered without it: the answer is on its way to the program.
    Answered,
    /// And has arrived, or never will.
    Over,
}

/// What the parts of an exchange share: the request's body, and the answer.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked(Arc<Mutex<(Wish, Option<Waker>)>>);

/// Whether a request asks.
pub(super) fn asks(parts: &Parts) -> bool {
    let asks = |value: &header::HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"100-continue");
    parts.version == Version::HTTP_11 && parts.headers.get(header::EXPECT).is_some_and(asks)
}

impl Asked {
    /// Has this request ask, and its server's word be heard.
    pub fn of<B>(&self, request: &mut Request<B>) {
        let value = header::HeaderValue::from_static("100-continue");
        request.headers_mut().insert(header::EXPECT, value);
        let asked = self.clone();
        hyper::ext::on_informational(request, move |said| {
            if said.status() == StatusCode::CONTINUE {
                asked.becomes(Wish::Wanted);
            }
        });
    }

    /// The body is wanted, as far as anybody can tell.
    pub fn wanted(&self) {
        self.becomes(Wish::Wanted);
    }

    /// The answer is there.
    pub fn answered(&self) {
        self.becomes(Wish::Answered);
    }

    /// The answer is with the program.
    pub fn over(&self) {
        self.becomes(Wish::Over);
    }

    /// A body that is wanted stays so, and what is over is over.
    fn becomes(&self, wish: Wish) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let goes_on = match state.0 {
            Wish::Unknown => true,
            Wish::Answered => wish == Wish::Over,
            Wish::Wanted | Wish::Over => false,
        };
        if goes_on {
            state.0 = wish;
            if let Some(waker) = state.1.take() {
                waker.wake();
            }
        }
    }

    /// Whether the body is to be sent, once that is known: with an answer under way it is not yet, since its connection
    /// ends with the body that is not there.
    fn poll(&self, context: &Context<'_>) -> Poll<bool> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match state.0 {
            Wish::Wanted => Poll::Ready(true),
            Wish::Over => Poll::Ready(false),
            Wish::Unknown | Wish::Answered => {
                state.1 = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// A body that waits to be wanted.
#[derive(Debug)]
pub(super) struct Waiting {
    asked: Asked,
    /// From the first look on.
    time: Option<Pin<Box<Sleep>>>,
}

impl Waiting {
    pub const fn new(asked: Asked) -> Waiting {
        Waiting { asked, time: None }
    }

    /// See [`Asked::wanted`].
    pub fn wanted(&self) {
        self.asked.wanted();
    }

    /// Whether the body is to be sent, once that is known.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        let time = self.time.get_or_insert_with(|| Box::pin(tokio::time::sleep(PATIENCE)));
        if time.as_mut().poll(context).is_ready() {
            self.asked.wanted();
        }
        self.asked.poll(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_wanted_or_answered_and_stays_so() {
        let context = Context::from_waker(Waker::noop());
        let is = |asked: &Asked| asked.poll(&context);
        let asked = Asked::default();
        assert_eq!(is(&asked), Poll::Pending);
        asked.wanted();
        asked.answered();
        asked.over();
        assert_eq!(is(&asked), Poll::Ready(true));
        let asked = Asked::default();
        asked.answered();
        assert_eq!(is(&asked), Poll::Pending);
        asked.wanted();
        assert_eq!(is(&asked), Poll::Pending, "what was answered is not sent");
        asked.over();
        assert_eq!(is(&asked), Poll::Ready(false));
    }
}
