//! Bytes that wait to be written to a descriptor that does not wait.

/// They stand in one piece, and no more than twice as many are held as wait: who always has more to send never lets it
/// run empty, and a peer that asks for many small frames has them cost their bytes.
#[derive(Debug, Default)]
pub struct Waiting {
    bytes: Vec<u8>,
    /// So many of them went.
    gone: usize,
}

impl Waiting {
    /// How many wait.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.gone
    }

    /// Those that wait.
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.gone..]
    }

    /// Adds some.
    pub fn add(&mut self, bytes: &[u8]) {
        // What went is given up when it is the larger part.
        if self.gone >= self.len() {
            self.bytes.drain(..self.gone);
            self.gone = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// So many of those that wait went.
    pub fn went(&mut self, count: usize) {
        self.gone += count;
    }

    /// How many are held.
    #[cfg(test)]
    pub fn held(&self) -> usize {
        self.bytes.len()
    }
}
