//! Which new files are deleted ones under another name.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::Hash;

/// Deleted files of one size: those that nobody looked at yet, and the others by what is in them.
struct Gone<H> {
    unseen: VecDeque<usize>,
    seen: HashMap<H, VecDeque<usize>>,
}

/// Pairs new files with deleted ones, each given with its size, by what is in them: of several the first. Each is read
/// once (`hash`; what it says nothing of has no counterpart), and only where there is one of the same size on the other
/// side: who made the names decides how many they are.
pub fn pairs<H: Eq + Hash>(
    gone: &[(usize, u64)],
    new: &[(usize, u64)],
    mut hash: impl FnMut(usize) -> Option<H>,
) -> HashMap<usize, usize> {
    let mut sizes: HashMap<u64, Gone<H>> = HashMap::new();
    for &(at, size) in gone {
        let (unseen, seen) = Default::default();
        sizes.entry(size).or_insert(Gone { unseen, seen }).unseen.push_back(at);
    }
    let mut pairs = HashMap::new();
    for &(at, size) in new {
        let Some(gone) = sizes.get_mut(&size) else { continue };
        let Some(own) = hash(at) else { continue };
        let mut old = gone.seen.get_mut(&own).and_then(VecDeque::pop_front);
        while old.is_none()
            && let Some(next) = gone.unseen.pop_front()
        {
            match hash(next) {
                Some(other) if other == own => old = Some(next),
                Some(other) => gone.seen.entry(other).or_default().push_back(next),
                None => {}
            }
        }
        pairs.extend(old.map(|old| (at, old)));
    }
    pairs
}

/// The new files that have the bytes of a deleted one, which may be that of several. Each is read once, as in [`pairs`].
pub fn alike<H: Eq + Hash>(
    gone: &[(usize, u64)],
    new: &[(usize, u64)],
    mut hash: impl FnMut(usize) -> Option<H>,
) -> Vec<usize> {
    let mut sizes: HashMap<u64, (Vec<usize>, HashSet<H>)> = HashMap::new();
    for &(at, size) in gone {
        sizes.entry(size).or_default().0.push(at);
    }
    let mut alike = Vec::new();
    for &(at, size) in new {
        let Some((unseen, seen)) = sizes.get_mut(&size) else { continue };
        let Some(own) = hash(at) else { continue };
        while !seen.contains(&own)
            && let Some(next) = unseen.pop()
        {
            seen.extend(hash(next));
        }
        if seen.contains(&own) {
            alike.push(at);
        }
    }
    alike
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local!(static COMPARED: Cell<usize> = const { Cell::new(0) });

    #[derive(Eq)]
    struct Text(usize);

    impl PartialEq for Text {
        fn eq(&self, other: &Text) -> bool {
            COMPARED.set(COMPARED.get() + 1);
            self.0 == other.0
        }
    }

    impl Hash for Text {
        fn hash<S: std::hash::Hasher>(&self, state: &mut S) {
            self.0.hash(state);
        }
    }

    #[test]
    fn as_many_comparisons_as_files() {
        let all = |from: usize| (from..from + 1000).map(|at| (at, 6)).collect::<Vec<_>>();
        let mut read = 0;
        let pairs = pairs(&all(0), &all(1000), |at| {
            read += 1;
            Some(Text(at))
        });
        assert!(pairs.is_empty() && read == 2000, "{read}");
        assert!(COMPARED.get() < 20_000, "{}", COMPARED.get());
    }

    #[test]
    fn a_deleted_file_is_alike_to_several_and_each_is_read_once() {
        let all = |from: usize| (from..from + 1000).map(|at| (at, 6)).collect::<Vec<_>>();
        let read = |text: &dyn Fn(usize) -> usize| {
            let mut read = 0;
            let alike = alike(&all(0), &all(1000), |at| {
                read += 1;
                Some(text(at))
            });
            (alike.len(), read)
        };
        assert_eq!(read(&|at| at), (0, 2000));
        assert_eq!(read(&|at| at % 1000), (1000, 2000));
        assert_eq!(read(&|at| usize::from(at != 0)), (1000, 1001), "one is enough");
        let sizes = alike(&[(0, 1)], &[(1, 2)], |_| -> Option<u8> {
            unreachable!("no other has its size")
        });
        assert!(sizes.is_empty());
        let unread = alike(&[(0, 1), (1, 1)], &[(2, 1)], |at| (at > 0).then_some(()));
        assert_eq!(unread, [2]);
    }

    #[test]
    fn the_first_of_the_same_bytes_is_taken_and_what_has_no_counterpart_is_not_read() {
        let text = ["a", "b", "a", "alone", "a", "a", "b", "a", "else"];
        let size = |at: usize| (at, text[at].len() as u64);
        let (gone, new): (Vec<_>, Vec<_>) =
            ((0..4).map(size).collect(), (4..9).map(size).collect());
        let pairs = pairs(&gone, &new, |at| {
            assert!(text[at].len() == 1, "{at}");
            Some(text[at])
        });
        assert_eq!(pairs, HashMap::from([(4, 0), (5, 2), (6, 1)]));
    }
}
