//! What is told of protected names: what is inside decides how many sentences there would be.

use ringfence_policy::shown;

/// What was made at a name that was removed outside may be anybody's.
pub(super) const AGAIN: &str =
    "was made again, inside or outside, at a protected name that was removed outside";

/// What a sentence says of a name whose protected thing was `done` in the run.
pub(super) fn inside(done: &str) -> String {
    format!("was {done} inside and is protected")
}

/// Tells what its reader has to know before the end: it may be the user's own that was taken. Who does not take it
/// soon, such as a terminal that the command stopped, gets it at the end: nobody holds up who keeps watch.
pub(super) fn now(sentence: &str) {
    ringfence_sys::say::soon(format_args!("ringfence: {}", shown::message(sentence)));
}

/// Sentences told at most of one kind.
const TOLD: usize = 256;
/// And of what is to be done in the end, below which nothing else shall be out of sight.
const LAST: usize = 16;

/// Sentences, so many at most of each kind, and how many more there were.
#[derive(Default)]
pub(super) struct Said {
    /// What was put right.
    right: Kind,
    /// What was not, or has to be looked at: what a program makes to be put right must not hide it.
    open: Kind,
    /// What is to be done in the end: a program decides in how many repositories.
    last: Kind,
}

#[derive(Default)]
struct Kind {
    told: Vec<String>,
    more: usize,
}

impl Kind {
    fn push(&mut self, most: usize, sentence: String) {
        match self.told.len() < most {
            true => self.told.push(sentence),
            false => self.more += 1,
        }
    }
}

impl Said {
    /// One more that was put right.
    pub fn push(&mut self, sentence: String) {
        self.right.push(TOLD, sentence);
    }

    /// One more that was not, or that somebody has to look at.
    pub fn open(&mut self, sentence: String) {
        self.open.push(TOLD, sentence);
    }

    /// What the user has to do when all else is told.
    pub fn last(&mut self, sentence: String) {
        self.last.push(LAST, sentence);
    }

    /// All of them, those that were too many as one.
    pub fn all(self) -> Vec<String> {
        let Said { right, open, last } = self;
        let mut all = right.told;
        if right.more > 0 {
            all.push(format!(
                "{} more protected names were put right, too many to be told one by one",
                right.more
            ));
        }
        all.extend(open.told);
        if open.more > 0 {
            all.push(format!(
                "{} more protected names could not be put right or looked at, too many to be told one by one: look before \
                 you use anything there",
                open.more
            ));
        }
        all.extend(last.told);
        if last.more > 0 {
            all.push(format!(
                "the same is to be done in {} more repositories: git status tells of it in each",
                last.more
            ));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_right_hides_nothing_that_was_not() {
        let mut said = Said::default();
        said.last("do this".to_owned());
        for number in 0..TOLD + 3 {
            said.push(format!("{number} was moved"));
        }
        said.open("look at this".to_owned());
        let all = said.all();
        assert_eq!(all.len(), TOLD + 3);
        assert!(all[TOLD].starts_with("3 more protected names were put right"));
        assert_eq!(all[TOLD + 1..], ["look at this", "do this"]);
        let mut said = Said::default();
        (0..=TOLD).for_each(|number| said.open(number.to_string()));
        assert!(said.all()[TOLD].starts_with("1 more protected names could not be put right"));
        let mut said = Said::default();
        (0..LAST + 2).for_each(|number| said.last(number.to_string()));
        said.open("look at this".to_owned());
        let all = said.all();
        assert_eq!((all.len(), &*all[0]), (LAST + 2, "look at this"));
        assert!(all[LAST + 1].starts_with("the same is to be done in 2 more repositories"));
    }
}
