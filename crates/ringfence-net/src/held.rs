//! What is held of connections until it is clear what they are. How many say how much is the program's to decide, and it
//! is held in the launcher's memory, which no limit of the sandbox's counts: so it has a measure.

use std::cell::Cell;

/// What is held of all connections, where one may be held of that is large.
const ALL: usize = 16 << 20;
/// What is held of each in any case: hellos and heads are seldom larger.
const EACH: usize = 8 << 10;

thread_local! {
    /// All connections are served by one thread.
    static HELD: Cell<usize> = const { Cell::new(0) };
}

/// One connection's part, given back when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Held(usize);

impl Held {
    /// So many bytes are held of it now.
    ///
    /// # Errors
    /// A sentence: there is no room for so much beside what is held of others.
    pub fn set(&mut self, bytes: usize) -> Result<(), &'static str> {
        let all = HELD.get().saturating_sub(self.0).saturating_add(bytes);
        HELD.set(all);
        self.0 = bytes;
        match bytes > EACH && all > ALL {
            true => Err("more to be looked at than there is room for, beside that of others"),
            false => Ok(()),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        HELD.set(HELD.get().saturating_sub(self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_holds_little_of_each_and_what_is_given_back_is_there_again() {
        const LARGE: usize = 64 << 10;
        let mut crowd: Vec<Held> = (0..ALL / LARGE).map(|_| Held::default()).collect();
        for held in &mut crowd {
            for bytes in [1, LARGE / 2, LARGE] {
                assert_eq!(held.set(bytes), Ok(()));
            }
        }
        let mut one = Held::default();
        assert_eq!(one.set(EACH), Ok(()));
        assert!(one.set(EACH + 1).is_err());
        crowd.pop();
        assert_eq!(one.set(EACH + 1), Ok(()));
        drop((crowd, one));
        assert_eq!(HELD.get(), 0);
    }
}
