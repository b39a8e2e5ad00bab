//! Datagrams of peers that are not known yet. To begin a flow takes long, so that they wait here, and those of
//! peers that are known pass them.

use super::Peer;
use std::collections::VecDeque;

/// The most datagrams that wait, and the most bytes of them: whoever comes then is lost, as datagrams are.
const MOST: usize = 64;
const BYTES: usize = 256 * 1024;

/// Those that wait, in their order.
#[derive(Debug, Default)]
pub(super) struct Newcomers {
    waiting: VecDeque<(Peer, Vec<u8>)>,
    bytes: usize,
}

impl Newcomers {
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes one in, if there is room.
    pub fn add(&mut self, peer: Peer, datagram: &[u8]) {
        if self.waiting.len() < MOST && self.bytes + datagram.len() <= BYTES {
            self.bytes += datagram.len();
            self.waiting.push_back((peer, datagram.to_vec()));
        }
    }

    /// The peer that waits longest, with all that is of it.
    pub fn next(&mut self) -> Option<(Peer, Vec<Vec<u8>>)> {
        let (first, _) = self.waiting.front()?;
        let first = *first;
        let (its, others): (VecDeque<_>, _) =
            self.waiting.drain(..).partition(|(peer, _)| *peer == first);
        self.waiting = others;
        let its: Vec<Vec<u8>> = its.into_iter().map(|(_, datagram)| datagram).collect();
        self.bytes -= its.iter().map(Vec::len).sum::<usize>();
        Some((first, its))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(port: u16) -> Peer {
        (([127, 0, 0, 1], port).into(), None)
    }

    #[test]
    fn each_peers_datagrams_stay_together_and_in_order() {
        let mut newcomers = Newcomers::default();
        for (port, byte) in [(1, 1), (2, 2), (1, 3), (3, 4), (2, 5)] {
            newcomers.add(peer(port), &[byte]);
        }
        let mut next =
            || newcomers.next().map(|(peer, datagrams)| (peer.0.port(), datagrams.concat()));
        assert_eq!(next(), Some((1, vec![1, 3])));
        assert_eq!(next(), Some((2, vec![2, 5])));
        assert_eq!(next(), Some((3, vec![4])));
        assert_eq!(next(), None);
        assert_eq!(newcomers.bytes, 0);
    }

    #[test]
    fn they_are_few_and_small_together() {
        let mut newcomers = Newcomers::default();
        (0..1000).for_each(|port| newcomers.add(peer(port), &[0; 2]));
        assert_eq!((newcomers.waiting.len(), newcomers.bytes), (MOST, 2 * MOST));
        let mut newcomers = Newcomers::default();
        (0..1000).for_each(|port| newcomers.add(peer(port), &[0; 65_507]));
        assert_eq!((newcomers.waiting.len(), newcomers.bytes), (4, 4 * 65_507));
    }
}
