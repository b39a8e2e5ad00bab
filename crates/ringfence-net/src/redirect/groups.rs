//! Sockets that share a port (`SO_REUSEPORT`) in the process tier, where ports are the host's.
//!
//! The kernel lets every socket of the same user into such a group: services of the host's would take what programs
//! inside connect to, and programs inside what comes to those. So the kernel never hears of the option. It is noted
//! here, and who binds the port of another one that asked for it too gets that one's very socket, as if it had inherited it.

use super::wanted::Latest;
use super::{Copy, locked};
use crate::calls::Caller;
use ringfence_sys::listener::behalf;
use ringfence_sys::taken::Taken;
use ringfence_sys::{Errno, caller, notify, process};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Mutex;

/// The most descriptors of one place that are known.
const MOST: usize = 64;
/// The most places that are.
const PLACES: usize = 1024;
/// So many of them are looked at for one that nobody has any more, where there is no room for a new one.
const LOOKS: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Groups {
    /// Sockets that asked for it, by their numbers.
    asked: Mutex<Latest<u64, ()>>,
    places: Mutex<Places>,
}

/// Where a socket is bound, and whether it is one of IPv6.
type Place = (SocketAddr, bool);

/// Who is bound to what. The program decides how many there are, and how many of them are gone: none is looked at again
/// and again.
#[derive(Debug, Default)]
struct Places {
    members: HashMap<Place, Vec<Member>>,
    /// In the order in which they were bound, or found to be.
    order: VecDeque<Place>,
}

impl Places {
    /// The socket that is bound to a place, and its number. Members that are gone are forgotten, up to the one that has it.
    fn socket(&mut self, place: &Place) -> Option<(Taken, u64)> {
        let members = self.members.get_mut(place)?;
        let mut found = None;
        let gone = members.iter().position(|member| {
            found = member.socket().map(|socket| (socket, member.number));
            found.is_some()
        });
        members.drain(..gone.unwrap_or(members.len()));
        if found.is_none() {
            self.members.remove(place);
            self.order.retain(|other| other != place);
        }
        found
    }

    fn add(&mut self, place: Place, member: Member) {
        if !self.members.contains_key(&place) {
            self.make_room();
            self.order.push_back(place);
        }
        let members = self.members.entry(place).or_default();
        if members.len() >= MOST {
            // The first one is there.
            members.remove(1);
        }
        members.push(member);
    }

    /// Forgets a place that nobody has, or else the one that was looked at last.
    fn make_room(&mut self) {
        for look in 1.. {
            let Some(&oldest) = self.order.front().filter(|_| self.order.len() >= PLACES) else {
                return;
            };
            if self.socket(&oldest).is_some() {
                self.order.pop_front();
                match look < LOOKS {
                    true => self.order.push_back(oldest),
                    false => drop(self.members.remove(&oldest)),
                }
            }
        }
    }
}

/// A descriptor that led to a bound socket, when that was bound.
#[derive(Debug)]
struct Member {
    number: u64,
    process: i32,
    descriptor: i32,
}

impl Member {
    fn of(caller: &Caller<'_>, number: u64) -> Option<Member> {
        let process = caller::process(caller.call)?;
        Some(Member { number, process, descriptor: caller.descriptor() })
    }

    /// Its socket, if the descriptor still leads to that.
    fn socket(&self) -> Option<Taken> {
        let process = process::pidfd(self.process).ok()?;
        let socket = notify::copy_of(process.as_fd(), self.descriptor).ok()?;
        (behalf::cookie(socket.as_fd()) == Ok(self.number)).then_some(socket)
    }
}

impl Groups {
    /// `setsockopt(SO_REUSEPORT)`.
    pub fn ask(&self, caller: &Caller<'_>, copy: &Copy) -> Result<(), Errno> {
        let [_, _, _, at, length, _] = caller.call.arguments;
        let mut value = [0; 4];
        if (length as u32 as usize) < value.len() {
            return Err(Errno::EINVAL);
        }
        notify::read_memory(caller.call.thread, at, &mut value)?;
        let number = behalf::cookie(copy.fd())?;
        let mut asked = locked(&self.asked);
        match i32::from_ne_bytes(value) {
            0 => asked.forget(&number),
            _ => asked.note(number, ()),
        }
        Ok(())
    }

    fn asked(&self, copy: &Copy) -> Option<u64> {
        let number = behalf::cookie(copy.fd()).ok()?;
        locked(&self.asked).of(&number).map(|()| number)
    }

    /// Puts the socket that has the place in the caller's, if both asked for it.
    pub fn join(&self, caller: &Caller<'_>, copy: &Copy, place: SocketAddr) -> Result<bool, Errno> {
        if self.asked(copy).is_none() || copy.bound().is_some() {
            return Ok(false);
        }
        let at = (place, copy.ipv6);
        let mut places = locked(&self.places);
        let Some((socket, number)) = places.socket(&at) else { return Ok(false) };
        let (descriptor, close) = (caller.descriptor(), caller.closes_on_exec());
        notify::place(caller.listener, caller.call.id, socket.as_fd(), descriptor, close)?;
        if let Some(member) = Member::of(caller, number) {
            places.add(at, member);
        }
        Ok(true)
    }

    /// A socket was bound.
    pub fn bound(&self, caller: &Caller<'_>, copy: &Copy) {
        let (Some(number), Some(place)) = (self.asked(copy), copy.bound()) else { return };
        if let Some(member) = Member::of(caller, number) {
            locked(&self.places).add((place, copy.ipv6), member);
        }
    }
}
