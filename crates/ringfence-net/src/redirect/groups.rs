//! Sockets that share a port (`SO_REUSEPORT`) in the process tier, where ports are the host's.
//!
//! The kernel lets every socket of the same user into such a group: services of the host's would take what programs
//! inside connect to, and programs inside what comes to those. So the kernel never hears of the option. It is noted
//! here, and who binds the port of another one that asked for it too gets that one's very socket, as if it had inherited it.

use super::wanted::Latest;
use super::{Copy, locked};
use crate::calls::Caller;
use ringfence_sys::listener::behalf;
use ringfence_sys::{Errno, caller, notify, process};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;

/// The most descriptors of one place that are known.
const MOST: usize = 64;
/// The most places that are.
const PLACES: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Groups {
    /// Sockets that asked for it, by their numbers.
    asked: Mutex<Latest<u64, ()>>,
    /// By where they are bound, and whether they are sockets of IPv6.
    members: Mutex<HashMap<(SocketAddr, bool), Vec<Member>>>,
}

/// A descriptor that led to a bound socket, when that was bound.
#[derive(Debug)]
struct Member {
    number: u64,
    process: i32,
    descriptor: i32,
}

impl Member {
    /// Its socket, if the descriptor still leads to that.
    fn socket(&self) -> Option<OwnedFd> {
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
        let mut all = locked(&self.members);
        let Some(members) = all.get_mut(&(place, copy.ipv6)) else { return Ok(false) };
        let mut first = None;
        members.retain(|member| {
            let socket = member.socket();
            let there = socket.is_some();
            first = first.take().or(socket.map(|socket| (socket, member.number)));
            there
        });
        let Some((socket, number)) = first else {
            all.remove(&(place, copy.ipv6));
            return Ok(false);
        };
        let (at, close) = (caller.descriptor(), caller.closes_on_exec());
        notify::place(caller.listener, caller.call.id, socket.as_fd(), at, close)?;
        add(members, caller, number);
        Ok(true)
    }

    /// A socket was bound.
    pub fn bound(&self, caller: &Caller<'_>, copy: &Copy) {
        let (Some(number), Some(place)) = (self.asked(copy), copy.bound()) else { return };
        let mut all = locked(&self.members);
        if all.len() >= PLACES {
            all.retain(|_, members| members.iter().any(|member| member.socket().is_some()));
        }
        if all.len() < PLACES {
            add(all.entry((place, copy.ipv6)).or_default(), caller, number);
        }
    }
}

fn add(members: &mut Vec<Member>, caller: &Caller<'_>, number: u64) {
    if let Some(process) = caller::process(caller.call).filter(|_| members.len() < MOST) {
        members.push(Member { number, process, descriptor: caller.descriptor() });
    }
}
