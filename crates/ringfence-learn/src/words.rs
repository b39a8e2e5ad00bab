//! Words of scripts whose value is known without running anything.

use crate::table::Table;

/// The most values that are kept for one word.
const MOST_VALUES: usize = 8;
/// The longest value that is kept.
pub(crate) const LONGEST: usize = 4096;
/// The most variables that are kept.
const MOST_VARIABLES: usize = 4096;

/// The values that a word can have; none: not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Word(Values);

/// Most words have one value: that takes one piece of memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Values {
    #[default]
    None,
    One(Vec<u8>),
    /// Two at least.
    Several(Vec<Vec<u8>>),
}

impl Word {
    /// Just this text.
    pub fn text(text: &[u8]) -> Word {
        Word(Values::One(text.to_vec()))
    }

    /// Only known when the program runs.
    pub fn unknown() -> Word {
        Word(Values::None)
    }

    fn of(mut values: Vec<Vec<u8>>) -> Word {
        Word(match values.len() {
            0 | 1 => values.pop().map_or(Values::None, Values::One),
            _ => Values::Several(values),
        })
    }

    /// What it can be.
    pub fn values(&self) -> &[Vec<u8>] {
        match &self.0 {
            Values::None => &[],
            Values::One(only) => std::slice::from_ref(only),
            Values::Several(values) => values,
        }
    }

    fn into_values(self) -> Vec<Vec<u8>> {
        match self.0 {
            Values::None => Vec::new(),
            Values::One(only) => vec![only],
            Values::Several(values) => values,
        }
    }

    /// Its value, if there is just one.
    pub fn constant(&self) -> Option<Vec<u8>> {
        match &self.0 {
            Values::One(only) => Some(only.clone()),
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
        match &mut self.0 {
            Values::None => {}
            Values::One(only) if only.len() + text.len() <= longest => only.extend_from_slice(text),
            Values::One(_) => self.0 = Values::None,
            Values::Several(values) => {
                let mut values = std::mem::take(values);
                values.iter_mut().for_each(|value| value.extend_from_slice(text));
                values.retain(|value| value.len() <= longest);
                *self = Word::of(values);
            }
        }
    }

    /// Adds another word at its end: each value with each.
    pub fn push(&mut self, other: &Word) {
        self.join(other, LONGEST);
    }

    /// The same, with values that may get so long.
    pub fn join(&mut self, other: &Word, longest: usize) {
        if let Values::One(only) = &other.0 {
            return self.push_within(only, longest);
        }
        let joined = |start: &Vec<u8>| {
            other.values().iter().map(|end| [start.as_slice(), end].concat()).collect::<Vec<_>>()
        };
        let mut values: Vec<_> = self.values().iter().flat_map(joined).take(MOST_VALUES).collect();
        values.retain(|value| value.len() <= longest);
        *self = Word::of(values);
    }

    /// Its values, each changed.
    pub fn map(&self, change: impl Fn(&[u8]) -> Vec<u8>) -> Word {
        Word::of(self.values().iter().map(|value| change(value)).collect())
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
        let mut all = std::mem::take(self).into_values();
        for value in other.into_values() {
            if all.len() < MOST_VALUES && !all.contains(&value) {
                all.push(value);
            }
        }
        *self = Word::of(all);
    }
}

/// The variables of a script. One that is assigned several times has all of these values: which
/// one counts where is not followed.
#[derive(Clone, Debug, Default)]
pub struct Variables(Table<Vec<u8>, Word>);

impl Variables {
    /// With these values to begin with.
    pub fn new(known: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) -> Variables {
        Variables(known.into_iter().map(|(name, value)| (name, Word::of(vec![value]))).collect())
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
