//! Words of scripts whose value is known without running anything.

use std::collections::HashMap;

/// The most values that are kept for one word.
const MOST_VALUES: usize = 8;
/// The longest value that is kept.
pub(crate) const LONGEST: usize = 4096;
/// The most variables that are kept.
const MOST_VARIABLES: usize = 4096;

/// The values that a word can have; none: not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Word(Vec<Vec<u8>>);

impl Word {
    /// Just this text.
    pub fn text(text: &[u8]) -> Word {
        Word(vec![text.to_vec()])
    }

    /// Only known when the program runs.
    pub fn unknown() -> Word {
        Word(Vec::new())
    }

    /// What it can be.
    pub fn values(&self) -> &[Vec<u8>] {
        &self.0
    }

    /// Its value, if there is just one.
    pub fn constant(&self) -> Option<Vec<u8>> {
        match self.0.as_slice() {
            [only] => Some(only.clone()),
            _ => None,
        }
    }

    /// Adds a text at its end.
    pub fn push_bytes(&mut self, text: &[u8]) {
        self.push_within(text, LONGEST);
    }

    /// The same, with values that may get so long.
    fn push_within(&mut self, text: &[u8], longest: usize) {
        if text.is_empty() {
            return;
        }
        self.0.iter_mut().for_each(|value| value.extend_from_slice(text));
        self.0.retain(|value| value.len() <= longest);
    }

    /// Adds another word at its end: each value with each.
    pub fn push(&mut self, other: &Word) {
        self.join(other, LONGEST);
    }

    /// The same, with values that may get so long.
    pub fn join(&mut self, other: &Word, longest: usize) {
        if let [only] = other.0.as_slice() {
            return self.push_within(only, longest);
        }
        let joined = |start: &Vec<u8>| {
            let start = start.clone();
            other.0.iter().map(move |end| [start.as_slice(), end].concat())
        };
        self.0 = self.0.iter().flat_map(joined).take(MOST_VALUES).collect();
        self.0.retain(|value| value.len() <= longest);
    }

    /// Its values, each changed.
    pub fn map(&self, change: impl Fn(&[u8]) -> Vec<u8>) -> Word {
        Word(self.0.iter().map(|value| change(value)).collect())
    }

    /// Its values without their first bytes.
    pub fn without(&self, bytes: usize) -> Word {
        self.map(|value| value.get(bytes..).unwrap_or(b"").to_vec())
    }

    /// Its values and another's.
    pub fn or(&self, other: &Word) -> Word {
        let mut all = self.clone();
        all.add(other.clone());
        all
    }

    fn add(&mut self, other: Word) {
        for value in other.0 {
            if self.0.len() < MOST_VALUES && !self.0.contains(&value) {
                self.0.push(value);
            }
        }
    }
}

/// The variables of a script. One that is assigned several times has all of these values: which
/// one counts where is not followed.
#[derive(Clone, Debug, Default)]
pub struct Variables(HashMap<Vec<u8>, Word>);

impl Variables {
    /// With these values to begin with.
    pub fn new(known: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) -> Variables {
        Variables(known.into_iter().map(|(name, value)| (name, Word(vec![value]))).collect())
    }

    /// Adds a value.
    pub fn assign(&mut self, name: &[u8], value: Word) {
        if self.0.len() < MOST_VARIABLES || self.0.contains_key(name) {
            self.0.entry(name.to_vec()).or_default().add(value);
        }
    }

    /// What it can be.
    pub fn value(&self, name: &[u8]) -> Word {
        self.0.get(name).cloned().unwrap_or_default()
    }
}
