//! Datagrams of peers that are not known yet. To begin a flow takes long, so that they wait here, and those of
//! peers that are known pass them.

use super::Peer;
use std::collections::{HashMap, VecDeque};

/// The most datagrams that wait, some for each flow that there may be, and the most bytes of them: whoever comes then is
/// lost, as datagrams are.
const MOST: usize = 4 * super::MOST;
const BYTES: usize = 2 << 20;

/// Those that wait, in the order in which their peers came.
#[derive(Debug, Default)]
pub(super) struct Newcomers {
    order: VecDeque<Peer>,
    waiting: HashMap<Peer, Vec<Vec<u8>>>,
    datagrams: usize,
    bytes: usize,
}

impl Newcomers {
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Takes one in, if there is room.
    pub fn add(&mut self, peer: Peer, datagram: &[u8]) {
        if self.datagrams == MOST || self.bytes + datagram.len() > BYTES {
            return;
        }
        self.datagrams += 1;
        self.bytes += datagram.len();
        let its = self.waiting.entry(peer).or_insert_with(|| {
            self.order.push_back(peer);
            Vec::new()
        });
        its.push(datagram.to_vec());
    }

    /// The peer that waits longest, with all that is of it.
    pub fn next(&mut self) -> Option<(Peer, Vec<Vec<u8>>)> {
        let first = self.order.pop_front()?;
        let its = self.waiting.remove(&first)?;
        self.datagrams -= its.len();
        self.bytes -= its.iter().map(Vec::len).sum::<usize>();
        if self.order.is_empty() {
            // What a flood took is given back.
            *self = Newcomers::default();
        }
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
        assert_eq!((newcomers.datagrams, newcomers.bytes), (0, 0));
    }

    #[test]
    fn all_who_may_be_served_at_once_may_wait_at_once() {
        let mut newcomers = Newcomers::default();
        let peers = 0..super::super::MOST as u16;
        // A first datagram of QUIC's is of 1,200 bytes at least.
        peers.clone().for_each(|port| newcomers.add(peer(port), &[0; 1200]));
        let waited = std::iter::from_fn(|| newcomers.next()).map(|(peer, _)| peer.0.port());
        assert!(waited.eq(peers));
    }

    #[test]
    fn they_are_few_and_small_together() {
        let mut newcomers = Newcomers::default();
        (0..10_000).for_each(|port| newcomers.add(peer(port), &[0; 2]));
        assert_eq!((newcomers.datagrams, newcomers.bytes), (MOST, 2 * MOST));
        let mut newcomers = Newcomers::default();
        (0..1000).for_each(|port| newcomers.add(peer(port), &[0; 65_507]));
        assert_eq!((newcomers.datagrams, newcomers.bytes), (32, 32 * 65_507));
    }
}
