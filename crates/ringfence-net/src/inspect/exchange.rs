//! What became of one request, told once, when its answer has ended.

use super::heads::Head;
use super::model::Scanner;
use super::serve::Link;
use crate::decision::{Event, Exchange, Injection};
use hyper::{HeaderMap, StatusCode};
use ringfence_policy::Decision;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// Tells an exchange when it is dropped.
pub(super) struct Ending {
    link: Arc<Link>,
    begun: Instant,
    sent: Arc<AtomicU64>,
    received: u64,
    /// Reads a language model's answer along.
    pub model: Option<Scanner>,
    /// What counts for its request's head, and then for its answer's.
    pub head: Option<Head>,
    /// Taken when it is told.
    exchange: Option<Box<Exchange>>,
    decision: Option<Decision>,
}

impl Ending {
    pub fn new(link: Arc<Link>, method: String, path: String) -> Ending {
        let exchange = Some(Box::new(Exchange { method, path, ..Exchange::default() }));
        let (begun, sent) = (Instant::now(), Arc::default());
        let (model, head, decision) = (None, None, None);
        Ending { link, begun, sent, received: 0, model, head, exchange, decision }
    }

    /// The connection that the request came by.
    pub const fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// Counts the bytes of the request's body.
    pub fn sent(&self) -> Arc<AtomicU64> {
        self.sent.clone()
    }

    /// Bytes of the answer's body.
    pub fn received(&mut self, data: &[u8]) {
        self.received += data.len() as u64;
        if let Some(model) = &mut self.model {
            model.feed(data);
        }
    }

    /// Bytes of what followed the answer.
    pub fn more(&mut self, count: u64) {
        self.received += count;
    }

    pub fn exchange(&mut self) -> Option<&mut Exchange> {
        self.exchange.as_deref_mut()
    }

    /// It was refused, or failed.
    pub fn refused(&mut self, status: StatusCode, why: &str, decision: Option<Decision>) {
        self.decision = decision;
        if let Some(exchange) = self.exchange() {
            exchange.status = Some(status.as_u16());
            let why = Some(why.to_owned());
            match status {
                StatusCode::BAD_GATEWAY => exchange.failed = why,
                _ => exchange.refused = why,
            }
        }
    }

    /// The answer, which had begun, did not come to its end.
    pub fn broken(&mut self, why: String) {
        if let Some(exchange) = self.exchange() {
            exchange.broken.get_or_insert(why);
        }
    }

    /// These credentials are on their way to the server; none, where the request came back unsent.
    pub fn gives(&mut self, injected: &[Injection]) {
        if let Some(exchange) = self.exchange() {
            exchange.injected = injected.to_vec();
        }
    }

    /// Takes the secrets out of an answer's headers or trailers.
    pub fn redact(&self, headers: &mut HeaderMap) {
        self.link.redact(headers);
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.link.passage.begin();
        let Some(mut exchange) = self.exchange.take() else { return };
        exchange.sent = self.sent.load(Relaxed);
        exchange.received = self.received;
        exchange.model = self.model.take().and_then(Scanner::found);
        exchange.duration = self.begun.elapsed();
        self.link.count(exchange.sent, exchange.received);
        self.link.tell(Event::Request(exchange), self.decision.take());
    }
}
