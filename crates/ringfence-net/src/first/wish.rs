//! What a client of PostgreSQL says before TLS: that it wishes for it. The server answers with one letter, and the hello
//! that follows names a host like any other.

/// `SSLRequest`: its length, and a number that is no version.
pub(super) const TLS: &[u8] = &[0, 0, 0, 8, 4, 210, 22, 47];
/// `GSSENCRequest`, which libpq sends before, where it has a ticket.
pub(super) const GSS: &[u8] = &[0, 0, 0, 8, 4, 210, 22, 48];

/// The most bytes of wishes. A server takes each of the two once.
pub(super) const MOST: usize = 4 * TLS.len();

/// Where the wishes end that bytes begin with.
pub(super) fn end(bytes: &[u8]) -> usize {
    let wishes = bytes.chunks_exact(TLS.len()).take_while(|part| *part == TLS || *part == GSS);
    wishes.count() * TLS.len()
}

/// What a server says after its answers to wishes: a letter each, yes or no.
pub(super) fn after_answers(said: &[u8]) -> &[u8] {
    let letters = said.iter().take(ANSWERS).take_while(|byte| b"SGN".contains(byte));
    &said[letters.count()..]
}

/// The most of them.
pub(super) const ANSWERS: usize = MOST / TLS.len();
