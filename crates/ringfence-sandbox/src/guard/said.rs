//! What is told of protected names: what is inside decides how many sentences there would be.

/// Sentences told at most of one kind.
const TOLD: usize = 256;

/// Sentences, so many at most, and how many more there were.
#[derive(Default)]
pub(super) struct Said {
    told: Vec<String>,
    more: usize,
}

impl Said {
    /// One more.
    pub fn push(&mut self, sentence: String) {
        match self.told.len() < TOLD {
            true => self.told.push(sentence),
            false => self.more += 1,
        }
    }

    /// All of them, those that were too many as one.
    pub fn all(mut self) -> Vec<String> {
        if self.more > 0 {
            self.told.push(format!(
                "{} more protected names were put right, too many to be told one by one",
                self.more
            ));
        }
        self.told
    }
}
