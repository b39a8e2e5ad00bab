//! What the heads of an HTTP/2 connection's requests and answers take of the launcher's memory. Compressed, a field is one
//! byte on the wire (RFC 7541 §6.1), and a program may send as many as its streams hold: so they are counted, when a request
//! is taken up and nothing more of the connection was read.

use super::allowance::Room;
use super::serve::FIELDS;
use hyper::header::HeaderMap;
use hyper::{StatusCode, Uri};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What a field takes beside its bytes: its place in the map, and in the copy of it that is kept until the server has taken
/// the request.
pub(super) const FIELD: usize = 192;

/// The heads that are under way.
#[derive(Debug)]
pub(super) struct Heads {
    taken: AtomicUsize,
    most: usize,
    /// One for each body that a server has not taken all of, whether it has answered or not; and how many may be.
    bodies: Arc<Body>,
    streams: usize,
}

/// A request's body that is under way, until it is dropped.
#[derive(Debug)]
pub(super) struct Body;

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct Head {
    heads: Arc<Heads>,
    bytes: usize,
}

/// Why a head is not taken up: what a program is answered, and a sentence.
pub(super) type TooMuch = (StatusCode, String);

impl Heads {
    /// At most what there is room for at the same time; one alone may have more.
    pub fn new(room: Room) -> Arc<Heads> {
        let (taken, bodies) = (AtomicUsize::default(), Arc::new(Body));
        Arc::new(Heads { taken, most: room.heads, bodies, streams: room.streams as usize })
    }

    /// Takes up a request's body.
    pub fn body(&self) -> Arc<Body> {
        self.bodies.clone()
    }

    /// Takes up a request's, which brings a body or none.
    ///
    /// # Errors
    /// It has too many fields, or others leave no room for it.
    pub fn request(
        self: &Arc<Self>,
        target: &Uri,
        fields: &HeaderMap,
        brings: bool,
    ) -> Result<Head, TooMuch> {
        if fields.len() > FIELDS {
            let why = format!("a request with more than {FIELDS} header fields");
            return Err((StatusCode::BAD_REQUEST, why));
        }
        // A stream that the server has answered makes room for another one; what it holds of the body does not.
        if brings && Arc::strong_count(&self.bodies) > self.streams {
            let why = "the server has answered too many requests, and not taken what they brought";
            return Err((StatusCode::SERVICE_UNAVAILABLE, why.to_owned()));
        }
        // As it is, as it was judged, and for telling.
        let target = 3 * target.path_and_query().map_or(0, |path| path.as_str().len());
        self.take(target + size(fields)).ok_or_else(|| {
            let why = "the heads of this connection's requests under way are too large together";
            (StatusCode::SERVICE_UNAVAILABLE, why.to_owned())
        })
    }

    /// Takes up an answer's.
    ///
    /// # Errors
    /// As for a request's.
    pub fn answer(self: &Arc<Self>, fields: &HeaderMap) -> Result<Head, TooMuch> {
        let refused = |why: &str| (StatusCode::BAD_GATEWAY, why.to_owned());
        if fields.len() > FIELDS {
            return Err(refused(&format!("an answer with more than {FIELDS} header fields")));
        }
        let why = "the heads of this connection's answers under way are too large together";
        self.take(size(fields)).ok_or_else(|| refused(why))
    }

    fn take(self: &Arc<Self>, bytes: usize) -> Option<Head> {
        let fits = |taken: usize| taken == 0 || taken + bytes <= self.most;
        let more = |taken| fits(taken).then(|| taken + bytes);
        self.taken.fetch_update(Relaxed, Relaxed, more).ok()?;
        Some(Head { heads: self.clone(), bytes })
    }
}

impl Head {
    /// Those that it is one of.
    pub const fn heads(&self) -> &Arc<Heads> {
        &self.heads
    }
}

impl Drop for Head {
    fn drop(&mut self) {
        self.heads.taken.fetch_sub(self.bytes, Relaxed);
    }
}

fn size(fields: &HeaderMap) -> usize {
    fields.iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    fn fields(count: usize, length: usize) -> HeaderMap {
        let mut fields = HeaderMap::new();
        let value = HeaderValue::try_from("x".repeat(length)).expect("a value");
        for _ in 0..count {
            fields.append("x", value.clone());
        }
        fields
    }

    #[test]
    fn heads_are_counted_while_they_are_under_way() {
        let heads = Heads::new(Room { heads: 16 << 10, ..Room::LEAST });
        let root = Uri::from_static("/");
        let request =
            |fields: &HeaderMap| heads.request(&root, fields, true).map_err(|(code, _)| code);
        assert_eq!(request(&fields(FIELDS + 1, 0)).err(), Some(StatusCode::BAD_REQUEST));
        // One alone may have all that one may.
        let large = request(&fields(FIELDS, 100)).expect("it is alone");
        assert_eq!(request(&fields(1, 0)).err(), Some(StatusCode::SERVICE_UNAVAILABLE));
        assert_eq!(heads.answer(&fields(1, 0)).err().map(|it| it.0), Some(StatusCode::BAD_GATEWAY));
        drop(large);
        let several: Vec<_> = (0..10).map(|_| request(&fields(5, 100)).expect("room")).collect();
        assert!(request(&fields(5, 500)).is_err());
        drop(several);
        assert_eq!(heads.taken.load(Relaxed), 0);
        assert!(heads.answer(&fields(FIELDS, 0)).is_ok());
        assert!(heads.answer(&fields(FIELDS + 1, 0)).is_err());
    }

    #[test]
    fn bodies_that_no_server_takes_leave_no_room_for_more() {
        let heads = Heads::new(Room::LEAST);
        let root = Uri::from_static("/");
        let request = |brings| heads.request(&root, &HeaderMap::new(), brings);
        let mut bodies: Vec<_> = (1..Room::LEAST.streams).map(|_| heads.body()).collect();
        assert!(request(true).is_ok());
        bodies.push(heads.body());
        assert!(request(false).is_ok());
        assert_eq!(request(true).err().map(|it| it.0), Some(StatusCode::SERVICE_UNAVAILABLE));
        bodies.pop();
        assert!(request(true).is_ok());
    }
}
